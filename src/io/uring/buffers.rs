//! The receive pool as memory that the kernel may write to at any moment.
//!
//! A buffer is always somebody's: lent to the kernel, ours with bytes in it, or free. Few are lent
//! at first, so that the same memory is used again while it is in the cache; when the kernel runs
//! out of them the number doubles, up to the bound.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::time::Duration;

use super::pinned::Pinned;
use super::ring::{LENT_MAX, Lending, OVERHEAD};
use crate::base::time::Instant;
use crate::io::{Clock, Stamp};

/// All buffers there are.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Bytes that the caller sees of each; there are [`OVERHEAD`] more before them.
    bytes: usize,
    /// How many there may be.
    most: usize,
    /// Each holds `BLOCK` buffers. Never given up before the end.
    blocks: Vec<Pinned>,
    records: Vec<Record>,
    /// The one put back last goes out first.
    free: Vec<u16>,
    lending: Lending,
    /// How many the kernel has.
    lent: usize,
    /// How many it should have.
    wanted: usize,
}

/// What is known of one buffer.
#[derive(Clone, Copy, Debug)]
struct Record {
    whose: Whose,
    /// How many bytes it holds, and when they came, while it waits in a [`Queue`].
    length: u32,
    stamp: Stamp,
    next: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Nobodys,
    Kernels,
    Ours,
}

/// Filled buffers in the order they came, threaded through their records.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ends: Option<(u16, u16)>,
    bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    /// How much there is in it.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Buffers {
    /// None yet. The memory is taken from the system as it is first needed.
    pub(super) fn new(bytes: usize, most: usize) -> Self {
        assert!(
            bytes > 0 && most > 0,
            "a pool has at least one buffer of a byte"
        );
        // What the kernel can be lent at once is the bound of what can be named.
        let most = most.min(LENT_MAX);
        Buffers {
            bytes,
            most,
            blocks: Vec::new(),
            records: Vec::new(),
            free: Vec::new(),
            lending: Lending::new(most),
            lent: 0,
            wanted: LENT_FIRST.min(most),
        }
    }

    pub(super) fn lending(&self) -> &Lending {
        &self.lending
    }

    /// How many blocks they are in.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// How many the kernel has.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    /// The kernel ran out of them.
    pub(super) fn want_more(&mut self) {
        self.wanted = (2 * self.wanted).min(self.most);
    }

    /// Lends the kernel what it should have and we can spare.
    pub(super) fn lend(&mut self) {
        if self.lent == self.wanted {
            return;
        }
        let before = self.lent;
        while self.lent < self.wanted {
            if self.free.is_empty() {
                self.grow();
            }
            let Some(id) = self.free.pop() else {
                break;
            };
            self.set(id, Whose::Nobodys, Whose::Kernels);
            let at = self.place(id);
            // SAFETY: nobody reads a buffer of the kernel's, and it stays where it is.
            unsafe { self.lending.lay_out(at, self.bytes + OVERHEAD, id) };
            self.lent += 1;
        }
        if self.lent > before {
            self.lending.publish();
        }
    }

    /// An answer has named it: from now on it is ours.
    pub(super) fn take_back(&mut self, id: u16) {
        self.set(id, Whose::Kernels, Whose::Ours);
        self.lent -= 1;
    }

    /// Its content is not needed any longer.
    pub(super) fn put_back(&mut self, id: u16) {
        self.set(id, Whose::Ours, Whose::Nobodys);
        self.free.push(id);
    }

    /// All of a buffer of ours, with what stands before the bytes.
    pub(super) fn whole(&self, id: u16) -> &[u8] {
        let whose = self.records[usize::from(id)].whose;
        assert_eq!(whose, Whose::Ours, "only what is ours is read");
        // SAFETY: the kernel is done with it, and as long as `self` is borrowed it is not lent again.
        unsafe { std::slice::from_raw_parts(self.place(id).as_ptr(), self.bytes + OVERHEAD) }
    }

    /// The first bytes of a buffer of ours.
    pub(super) fn get(&self, id: u16, length: usize) -> &[u8] {
        &self.whole(id)[OVERHEAD..OVERHEAD + length]
    }

    /// Puts a buffer of ours at the end of a queue.
    pub(super) fn push(&mut self, queue: &mut Queue, id: u16, length: usize, stamp: Stamp) {
        let record = &mut self.records[usize::from(id)];
        record.length = length as u32;
        record.stamp = stamp;
        record.next = None;
        queue.bytes += length;
        queue.ends = Some(match queue.ends {
            None => (id, id),
            Some((first, last)) => {
                self.records[usize::from(last)].next = Some(id);
                (first, id)
            }
        });
    }

    /// The first buffer of a queue, how many bytes it holds, and when they came.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<(u16, usize, Stamp)> {
        let (first, last) = queue.ends?;
        let record = self.records[usize::from(first)];
        queue.ends = record.next.map(|next| (next, last));
        queue.bytes -= record.length as usize;
        Some((first, record.length as usize, record.stamp))
    }

    /// Frees nothing, ever: the kernel may still read the ring of buffers and write to those it names.
    pub(super) fn leak(&mut self) {
        self.blocks.iter_mut().for_each(Pinned::leak);
        self.lending.leak();
    }

    fn grow(&mut self) {
        let first = self.records.len();
        let count = BLOCK.min(self.most - first);
        if count == 0 {
            return;
        }
        self.blocks.push(Pinned::new(self.layout()));
        self.records.resize(first + count, UNUSED);
        self.free.reserve(self.records.len());
        // Taken from the end, so the first buffer of the block goes out first.
        let ids = (first..first + count).rev();
        self.free.extend(ids.map(|id| id as u16));
    }

    fn layout(&self) -> Layout {
        Layout::array::<u8>(BLOCK * (self.bytes + OVERHEAD)).expect("a block fits into memory")
    }

    fn place(&self, id: u16) -> NonNull<u8> {
        let (block, index) = (usize::from(id) / BLOCK, usize::from(id) % BLOCK);
        // SAFETY: `index` is below `BLOCK`, so the place lies within the block.
        unsafe {
            self.blocks[block]
                .start()
                .add(index * (self.bytes + OVERHEAD))
        }
    }

    fn set(&mut self, id: u16, from: Whose, to: Whose) {
        let record = &mut self.records[usize::from(id)];
        assert_eq!(record.whose, from, "a buffer changes hands once at a time");
        record.whose = to;
    }
}

const UNUSED: Record = Record {
    whose: Whose::Nobodys,
    length: 0,
    stamp: Stamp {
        at: Instant::START,
        clock: Clock::User,
        slack: Duration::ZERO,
    },
    next: None,
};

/// Buffers in a block: a megabyte at 16 KiB each, which the system hands over untouched.
const BLOCK: usize = 64;

/// Buffers lent at first: as many arrivals as a turn of a busy crawl brings.
const LENT_FIRST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel would: takes a lent buffer, in the order they were lent.
    fn filled(buffers: &mut Buffers, id: u16) {
        buffers.take_back(id);
    }

    #[test]
    fn it_lends_a_few_at_first_and_all_at_need() {
        let mut buffers = Buffers::new(10, 1000);
        buffers.lend();
        assert_eq!(buffers.lent(), LENT_FIRST);
        buffers.want_more();
        buffers.lend();
        assert_eq!(buffers.lent(), 2 * LENT_FIRST);
        for _ in 0..10 {
            buffers.want_more();
        }
        buffers.lend();
        assert_eq!(buffers.lent(), 1000);
        filled(&mut buffers, 3);
        buffers.lend();
        assert_eq!(buffers.lent(), 999, "one is ours, and there may be no more");
        buffers.put_back(3);
        buffers.lend();
        assert_eq!(buffers.lent(), 1000);
    }

    #[test]
    fn a_queue_gives_back_what_came_first() {
        let mut buffers = Buffers::new(10, 4);
        buffers.lend();
        let mut queue = Queue::default();
        for round in 0..2 {
            for id in [2, 0, 3] {
                filled(&mut buffers, id);
                buffers.push(&mut queue, id, 5 + usize::from(id), UNUSED.stamp);
            }
            assert_eq!(queue.bytes(), 7 + 5 + 8, "round {round}");
            for id in [2, 0, 3] {
                let (first, length, _) = buffers.pop(&mut queue).expect("it was put in");
                assert_eq!((first, length), (id, 5 + usize::from(id)));
                buffers.put_back(id);
            }
            assert!(queue.is_empty() && buffers.pop(&mut queue).is_none());
            assert_eq!(queue.bytes(), 0);
            buffers.lend();
        }
    }

    #[test]
    #[should_panic(expected = "changes hands once")]
    fn a_buffer_put_back_twice_is_a_mistake_of_ours() {
        let mut buffers = Buffers::new(8, 8);
        buffers.lend();
        filled(&mut buffers, 0);
        buffers.put_back(0);
        buffers.put_back(0);
    }

    #[test]
    #[should_panic(expected = "only what is ours")]
    fn a_buffer_of_the_kernels_is_not_read() {
        let mut buffers = Buffers::new(8, 8);
        buffers.lend();
        buffers.get(0, 1);
    }
}
