//! A ring of slots for the pacing wheel; each slot is a list of fixed chunks, appended to and
//! emptied, never searched.

/// 512 slots: a window that slides over the numbered slots of a level.
pub(super) struct Ring {
    pub(super) slots: Box<[Slot; SLOTS]>,
    occupied: [u64; SLOTS / 64],
}

impl Ring {
    pub(super) fn new() -> Self {
        Ring {
            slots: Box::new([Slot::EMPTY; SLOTS]),
            occupied: [0; SLOTS / 64],
        }
    }

    pub(super) fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize % SLOTS]
    }

    /// The first occupied slot at or after `number`, the start of the window.
    pub(super) fn first_from(&self, number: u64) -> Option<u64> {
        let position = number as usize % SLOTS;
        let (word, bit) = (position / 64, position % 64);
        let words = self.occupied.len();
        (0..=words).find_map(|step| {
            let at = (word + step) % words;
            let mask = match step {
                0 => u64::MAX << bit,
                _ if step == words => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let bits = self.occupied[at] & mask;
            let found = at * 64 + bits.trailing_zeros() as usize;
            (bits != 0).then(|| number + (found.wrapping_sub(position) % SLOTS) as u64)
        })
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }

    pub(super) fn append(&mut self, number: u64, entry: Entry, chunks: &mut Chunks) {
        let position = number as usize % SLOTS;
        let slot = &mut self.slots[position];
        if slot.head == NONE || chunks.get(slot.head).len as usize == CHUNK {
            slot.head = chunks.take(slot.head);
        }
        let chunk = chunks.get(slot.head);
        chunk.entries[chunk.len as usize] = entry;
        chunk.len += 1;
        slot.len += 1;
        slot.min = slot.min.min(entry.low);
        self.occupied[position / 64] |= 1 << (position % 64);
    }

    /// Takes the entries of one chunk, and their number, out of an occupied slot.
    pub(super) fn take_chunk(
        &mut self,
        number: u64,
        chunks: &mut Chunks,
    ) -> ([Entry; CHUNK], usize) {
        let position = number as usize % SLOTS;
        let slot = &mut self.slots[position];
        let chunk = chunks.get(slot.head);
        let (entries, count, next) = (chunk.entries, chunk.len, chunk.next);
        chunks.give_back(slot.head);
        slot.head = next;
        slot.len -= count;
        if slot.len == 0 {
            *slot = Slot::EMPTY;
            self.occupied[position / 64] &= !(1 << (position % 64));
        }
        (entries, count as usize)
    }
}

/// A list of chunks, starting with the one being filled.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    head: u32,
    pub(super) len: u32,
    /// The low half of the earliest time; all times of a slot share the high half.
    pub(super) min: u32,
}

impl Slot {
    const EMPTY: Slot = Slot {
        head: NONE,
        len: 0,
        min: u32::MAX,
    };
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) id: u32,
    pub(super) low: u32,
}

/// 512 bytes: eight cache lines that are written and read sequentially.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk {
    entries: [Entry; CHUNK],
    len: u32,
    next: u32,
}

/// All chunks. Memory grows by one block at a time, so growing copies nothing; it is kept for reuse
/// until the wheel is dropped.
pub(super) struct Chunks {
    blocks: Vec<Box<[Chunk]>>,
    /// The first unused chunk, the head of a list.
    unused: u32,
}

impl Default for Chunks {
    fn default() -> Self {
        Chunks {
            blocks: Vec::new(),
            unused: NONE,
        }
    }
}

impl Chunks {
    fn get(&mut self, index: u32) -> &mut Chunk {
        &mut self.blocks[index as usize / BLOCK][index as usize % BLOCK]
    }

    /// An empty chunk followed by `next`.
    fn take(&mut self, next: u32) -> u32 {
        if self.unused == NONE {
            let first = (self.blocks.len() * BLOCK) as u32;
            let mut block = vec![Chunk::EMPTY; BLOCK].into_boxed_slice();
            for (chunk, index) in block.iter_mut().zip(first..) {
                chunk.next = index + 1;
            }
            block[BLOCK - 1].next = NONE;
            self.blocks.push(block);
            self.unused = first;
        }
        let index = self.unused;
        let chunk = self.get(index);
        let unused = chunk.next;
        chunk.len = 0;
        chunk.next = next;
        self.unused = unused;
        index
    }

    fn give_back(&mut self, index: u32) {
        self.get(index).next = self.unused;
        self.unused = index;
    }

    pub(super) fn memory(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<Chunk>()
    }
}

impl Chunk {
    const EMPTY: Chunk = Chunk {
        entries: [Entry { id: 0, low: 0 }; CHUNK],
        len: 0,
        next: NONE,
    };
}

/// Slots per ring.
pub(super) const SLOTS: usize = 512;
/// With its two indices a chunk of 62 entries fills eight cache lines.
const CHUNK: usize = 62;
/// Chunks per block: just under 64 KiB, below the size from which an allocator maps memory page by
/// page, with space for alignment overhead.
const BLOCK: usize = 127;
/// Marks the absence of a chunk.
const NONE: u32 = u32::MAX;
