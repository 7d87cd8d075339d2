//! The receive pool, as memory that the kernel can write to at any moment.
//!
//! A buffer is provided to the kernel, or ours with bytes in it, or free. Few are provided at first, so
//! that the same memory is reused while it is cached; when the kernel runs out, the number doubles, up
//! to the bound.

#![expect(unsafe_code, reason = "the kernel writes to memory that is lent to it")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::time::Duration;

use super::pinned::Pinned;
use super::ring::{OVERHEAD, PROVIDED_MAX, ProvidedRing};
use crate::base::time::Instant;
use crate::io::{Clock, Stamp};

/// All buffers.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Bytes that the caller sees of each; [`OVERHEAD`] more precede them.
    bytes: usize,
    /// How many there may be.
    most: usize,
    /// Each holds `BLOCK` buffers. Freed on drop only.
    blocks: Vec<Pinned>,
    records: Vec<Record>,
    /// Last in, first out.
    free: Vec<u16>,
    provided_ring: ProvidedRing,
    /// How many the kernel has.
    provided: usize,
    /// How many it should have.
    wanted: usize,
}

/// State of one buffer.
#[derive(Clone, Copy, Debug)]
struct Record {
    owner: Owner,
    /// How many bytes it holds, and when they arrived, while it is in a [`Queue`].
    length: u32,
    stamp: Stamp,
    next: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Free,
    Kernel,
    Us,
}

/// Filled buffers in order of arrival, linked through their records.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ends: Option<(u16, u16)>,
    bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    /// Bytes in the queue.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Buffers {
    /// An empty pool. It allocates as buffers are first needed.
    pub(super) fn new(bytes: usize, most: usize) -> Self {
        assert!(
            bytes > 0 && most > 0,
            "a pool has at least one buffer of one byte"
        );
        // The number that can be provided at once bounds the buffer ids.
        let most = most.min(PROVIDED_MAX);
        Buffers {
            bytes,
            most,
            blocks: Vec::new(),
            records: Vec::new(),
            free: Vec::new(),
            provided_ring: ProvidedRing::new(most),
            provided: 0,
            wanted: PROVIDED_FIRST.min(most),
        }
    }

    pub(super) fn provided_ring(&self) -> &ProvidedRing {
        &self.provided_ring
    }

    /// How many blocks are allocated.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// How many buffers the kernel has.
    pub(super) fn provided(&self) -> usize {
        self.provided
    }

    /// The kernel ran out of buffers: doubles the number to provide.
    pub(super) fn grow_provided(&mut self) {
        self.wanted = (2 * self.wanted).min(self.most);
    }

    /// Provides buffers to the kernel, up to the number it should have.
    pub(super) fn provide(&mut self) {
        if self.provided == self.wanted {
            return;
        }
        let before = self.provided;
        while self.provided < self.wanted {
            if self.free.is_empty() {
                self.grow();
            }
            let Some(id) = self.free.pop() else {
                break;
            };
            self.set(id, Owner::Free, Owner::Kernel);
            let at = self.place(id);
            // SAFETY: a buffer that the kernel has is not read, and it does not move.
            unsafe { self.provided_ring.add(at, self.bytes + OVERHEAD, id) };
            self.provided += 1;
        }
        if self.provided > before {
            self.provided_ring.publish();
        }
    }

    /// A completion names this buffer: it is ours from now on.
    pub(super) fn take(&mut self, id: u16) {
        self.set(id, Owner::Kernel, Owner::Us);
        self.provided -= 1;
    }

    /// Frees a buffer of ours.
    pub(super) fn put_back(&mut self, id: u16) {
        self.set(id, Owner::Us, Owner::Free);
        self.free.push(id);
    }

    /// All of a buffer of ours, including what precedes the bytes.
    pub(super) fn whole(&self, id: u16) -> &[u8] {
        let owner = self.records[usize::from(id)].owner;
        assert_eq!(owner, Owner::Us, "only what is ours is read");
        // SAFETY: the kernel is done with it, and it is not provided again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.place(id).as_ptr(), self.bytes + OVERHEAD) }
    }

    /// The first bytes of a buffer of ours.
    pub(super) fn get(&self, id: u16, length: usize) -> &[u8] {
        &self.whole(id)[OVERHEAD..OVERHEAD + length]
    }

    /// Appends a buffer of ours to a queue.
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

    /// Takes the first buffer of a queue, its length and its stamp.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<(u16, usize, Stamp)> {
        let (first, last) = queue.ends?;
        let record = self.records[usize::from(first)];
        queue.ends = record.next.map(|next| (next, last));
        queue.bytes -= record.length as usize;
        Some((first, record.length as usize, record.stamp))
    }

    /// Never frees the memory: the kernel can still read the buffer ring and write to its buffers.
    pub(super) fn leak(&mut self) {
        self.blocks.iter_mut().for_each(Pinned::leak);
        self.provided_ring.leak();
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
        // Taken from the end, so the first buffer of the block is used first.
        let ids = (first..first + count).rev();
        self.free.extend(ids.map(|id| id as u16));
    }

    fn layout(&self) -> Layout {
        Layout::array::<u8>(BLOCK * (self.bytes + OVERHEAD)).expect("a block fits into memory")
    }

    fn place(&self, id: u16) -> NonNull<u8> {
        let (block, index) = (usize::from(id) / BLOCK, usize::from(id) % BLOCK);
        // SAFETY: `index` is below `BLOCK`, so the address lies within the block.
        unsafe {
            self.blocks[block]
                .start()
                .add(index * (self.bytes + OVERHEAD))
        }
    }

    fn set(&mut self, id: u16, from: Owner, to: Owner) {
        let record = &mut self.records[usize::from(id)];
        assert_eq!(
            record.owner, from,
            "a buffer changes its owner once at a time"
        );
        record.owner = to;
    }
}

const UNUSED: Record = Record {
    owner: Owner::Free,
    length: 0,
    stamp: Stamp {
        at: Instant::START,
        clock: Clock::User,
        slack: Duration::ZERO,
    },
    next: None,
};

/// Buffers per block: one megabyte at 16 KiB each.
const BLOCK: usize = 64;

/// Buffers provided at first: the arrivals of one turn of a busy crawl.
const PROVIDED_FIRST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does: takes provided buffers in order.
    fn filled(buffers: &mut Buffers, id: u16) {
        buffers.take(id);
    }

    #[test]
    fn few_buffers_are_provided_at_first_and_all_on_demand() {
        let mut buffers = Buffers::new(10, 1000);
        buffers.provide();
        assert_eq!(buffers.provided(), PROVIDED_FIRST);
        buffers.grow_provided();
        buffers.provide();
        assert_eq!(buffers.provided(), 2 * PROVIDED_FIRST);
        for _ in 0..10 {
            buffers.grow_provided();
        }
        buffers.provide();
        assert_eq!(buffers.provided(), 1000);
        filled(&mut buffers, 3);
        buffers.provide();
        assert_eq!(
            buffers.provided(),
            999,
            "one is ours, and the bound is reached"
        );
        buffers.put_back(3);
        buffers.provide();
        assert_eq!(buffers.provided(), 1000);
    }

    #[test]
    fn a_queue_is_first_in_first_out() {
        let mut buffers = Buffers::new(10, 4);
        buffers.provide();
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
            buffers.provide();
        }
    }

    #[test]
    #[should_panic(expected = "changes its owner once")]
    fn freeing_a_buffer_twice_panics() {
        let mut buffers = Buffers::new(8, 8);
        buffers.provide();
        filled(&mut buffers, 0);
        buffers.put_back(0);
        buffers.put_back(0);
    }

    #[test]
    #[should_panic(expected = "only what is ours")]
    fn reading_a_buffer_that_the_kernel_has_panics() {
        let mut buffers = Buffers::new(8, 8);
        buffers.provide();
        buffers.get(0, 1);
    }
}
