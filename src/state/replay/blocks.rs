//! Blocks of spilled requests by file and offset, in some 17 bytes each: there may be ten million.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use hashbrown::HashMap;

use crate::base::secret::Known;
use crate::state::record::codec::{Input, put_number, put_signed};
use crate::state::record::{RecordError, SpilledBlock};

/// Blocks, by file and offset.
#[derive(Debug, Default)]
pub struct Blocks {
    /// By file and number in it: those of a whole file would take milliseconds to move.
    parts: BTreeMap<Place, Part>,
    /// The part that the last block was added to, while it grows.
    growing: Option<Place>,
    len: usize,
    requests: u64,
}

/// A part of a file: its number, and that of the part.
type Place = (u64, u32);

/// The blocks that begin in a part of a file, by offset, encoded one after the other.
#[derive(Debug, Default)]
struct Part {
    bytes: Vec<u8>,
    /// The first request of the first block that was added: those of others are near.
    base: u64,
    /// No block has had a greater offset.
    last: u16,
}

/// Bytes of the record of a block, roughly.
const RECORD: usize = 36;

/// Binary digits of an offset in a part of a file: the blocks of a part are looked at one by one.
const PART_BITS: u32 = 15;

impl Blocks {
    /// Adds a block, or replaces the one there.
    pub fn insert(&mut self, block: &SpilledBlock) {
        let place = place_of(block.file, block.offset);
        let (place, offset) = place.expect("a file of blocks has at most 64 MiB");
        if self.growing != Some(place) {
            if let Some(full) = self.growing.and_then(|place| self.parts.get_mut(&place)) {
                full.bytes.shrink_to_fit();
            }
            self.growing = Some(place);
        }
        let part = self.parts.entry(place).or_default();
        self.len += 1;
        self.requests += block.requests;
        // They are mostly added in order.
        if part.bytes.is_empty() || part.last < offset {
            if part.bytes.is_empty() {
                part.base = block.first;
            }
            part.last = offset;
            encode(block, offset, part.base, &mut part.bytes);
            return;
        }
        let mut added = Vec::new();
        encode(block, offset, part.base, &mut added);
        let (at, replaced) = part.find(offset);
        let end = match replaced {
            Some((replaced, end)) => {
                self.len -= 1;
                self.requests -= replaced.requests;
                end
            }
            None => at,
        };
        part.bytes.splice(at..end, added);
    }

    /// Removes a block.
    pub fn remove(&mut self, file: u64, offset: u64) -> Option<SpilledBlock> {
        let (place, offset) = place_of(file, offset)?;
        let part = self.parts.get_mut(&place)?;
        let (at, found) = part.find(offset);
        let (removed, end) = found?;
        part.bytes.drain(at..end);
        if part.bytes.is_empty() {
            self.parts.remove(&place);
        }
        self.len -= 1;
        self.requests -= removed.requests;
        Some(removed.of(place))
    }

    /// Bytes of their records, roughly.
    pub fn bytes_in_journal(&self) -> usize {
        RECORD * self.len
    }

    /// Number of requests in all blocks.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// All blocks, by file and offset.
    pub fn iter(&self) -> impl Iterator<Item = SpilledBlock> {
        let parts = self.parts.iter();
        parts.flat_map(|(place, part)| part.placed().map(|(_, block)| block.of(*place)))
    }

    /// All blocks, by file and offset. The memory of a part is freed behind its last block.
    pub fn into_ordered(self) -> impl Iterator<Item = SpilledBlock> {
        self.parts.into_iter().flat_map(|(place, part)| {
            let mut at = 0;
            std::iter::from_fn(move || {
                let (block, end) = part.block_at(at)?;
                at = end;
                Some(block.of(place))
            })
        })
    }

    /// All blocks, by the numbers of their first requests: a block that was moved is behind newer ones. Memory
    /// of their parts is freed meanwhile.
    pub fn into_by_first(self) -> impl Iterator<Item = SpilledBlock> {
        ByFirst::new(self)
    }
}

impl Part {
    /// The block at this position in the bytes, and where it ends.
    fn block_at(&self, at: usize) -> Option<(Block, usize)> {
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let mut input = Input::new(rest);
        let block = Block::decode(&mut input, self.base).expect("it was encoded here");
        Some((block, self.bytes.len() - input.len()))
    }

    /// The blocks, by offset, each with its position in the bytes.
    fn placed(&self) -> impl Iterator<Item = (usize, Block)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let at = next;
            let (block, end) = self.block_at(at)?;
            next = end;
            Some((at, block))
        })
    }

    /// The position in the bytes of the block with this offset, or of the next; and the block and where it
    /// ends, if it is there.
    fn find(&self, offset: u16) -> (usize, Option<(Block, usize)>) {
        let mut at = 0;
        while let Some((block, end)) = self.block_at(at) {
            if block.offset >= offset {
                let is_it = block.offset == offset;
                return (at, is_it.then_some((block, end)));
            }
            at = end;
        }
        (at, None)
    }
}

/// A block in a part of a file.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// In the part.
    offset: u16,
    length: u64,
    origin: u64,
    priority: i32,
    requests: u64,
    first: u64,
}

/// The part of a file with this offset, and the offset in that. `None`: no file is so long.
fn place_of(file: u64, offset: u64) -> Option<(Place, u16)> {
    let part = u32::try_from(offset >> PART_BITS).ok()?;
    let offset = offset & ((1 << PART_BITS) - 1);
    Some(((file, part), offset as u16))
}

fn encode(block: &SpilledBlock, offset: u16, base: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&block.origin.to_le_bytes());
    put_number(block.length, out);
    put_signed(block.priority.into(), out);
    put_number(block.requests, out);
    put_signed(block.first.wrapping_sub(base) as i64, out);
}

impl Block {
    fn decode(input: &mut Input<'_>, base: u64) -> Result<Self, RecordError> {
        Ok(Block {
            offset: u16::from_le_bytes(input.array("offset")?),
            origin: u64::from_le_bytes(input.array("origin")?),
            length: input.number("length")?,
            priority: input.signed("priority")? as i32,
            requests: input.number("requests")?,
            first: base.wrapping_add(input.signed("first")? as u64),
        })
    }

    fn of(&self, (file, part): Place) -> SpilledBlock {
        SpilledBlock {
            file,
            offset: (u64::from(part) << PART_BITS) + u64::from(self.offset),
            length: self.length,
            origin: self.origin,
            first: self.first,
            priority: self.priority,
            requests: self.requests,
        }
    }
}

/// Blocks by the numbers of their first requests.
///
/// A part is opened once its least number is next, and freed behind its last block. Few are open at once: blocks
/// are mostly written in order.
struct ByFirst {
    /// Parts that are not open, each with its least number, which is the greatest in the first.
    closed: Vec<(u64, Place, Part)>,
    open: HashMap<Place, OpenPart, Known>,
    /// The first request of the next block of each open part.
    next: BinaryHeap<Reverse<(u64, Place)>>,
}

struct OpenPart {
    part: Part,
    /// The positions of blocks that were not taken, the next one last.
    positions: Vec<u32>,
}

impl ByFirst {
    fn new(blocks: Blocks) -> Self {
        let parts = blocks.parts.into_iter().filter_map(|(place, part)| {
            let least = part.placed().map(|(_, block)| block.first).min();
            Some((least?, place, part))
        });
        let mut closed: Vec<(u64, Place, Part)> = parts.collect();
        closed.sort_unstable_by_key(|(least, place, _)| Reverse((*least, *place)));
        ByFirst {
            closed,
            open: HashMap::default(),
            next: BinaryHeap::new(),
        }
    }

    /// The next part that may have the next block.
    fn pop_next(&mut self) -> Option<(u64, Place, Part)> {
        let open = self.next.peek();
        self.closed
            .pop_if(|(least, place, _)| open.is_none_or(|Reverse(open)| (*least, *place) < *open))
    }

    /// Opens the parts that may have the next block.
    fn open(&mut self) {
        while let Some((least, place, part)) = self.pop_next() {
            let firsts = part.placed().map(|(at, block)| (block.first, at as u32));
            let mut firsts: Vec<(u64, u32)> = firsts.collect();
            firsts.sort_unstable_by(|one, other| other.cmp(one));
            let positions = firsts.into_iter().map(|(_, at)| at).collect();
            self.open.insert(place, OpenPart { part, positions });
            self.next.push(Reverse((least, place)));
        }
    }
}

impl Iterator for ByFirst {
    type Item = SpilledBlock;

    fn next(&mut self) -> Option<SpilledBlock> {
        self.open();
        let Reverse((_, place)) = self.next.pop()?;
        let OpenPart { part, positions } = self.open.get_mut(&place)?;
        let (block, _) = part.block_at(positions.pop()? as usize)?;
        match positions.last().and_then(|at| part.block_at(*at as usize)) {
            Some((following, _)) => self.next.push(Reverse((following.first, place))),
            None => {
                self.open.remove(&place);
            }
        }
        Some(block.of(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn random_blocks_are_those_of_a_map() {
        let mut rng = Rng::from_seed(9);
        let mut blocks = Blocks::default();
        let mut model: BTreeMap<(u64, u64), SpilledBlock> = BTreeMap::new();
        for number in 0..60_000 {
            // In some parts.
            let (file, offset) = (rng.below(3), rng.below(8000) << 9);
            if rng.chance(0.6) {
                let block = SpilledBlock {
                    file,
                    offset,
                    length: 1 + number,
                    origin: number << 30,
                    first: number << 20,
                    priority: -(number as i32),
                    requests: 1 + rng.below(64),
                };
                blocks.insert(&block);
                model.insert((file, offset), block);
            } else {
                assert_eq!(blocks.remove(file, offset), model.remove(&(file, offset)));
            }
        }
        let left: Vec<SpilledBlock> = blocks.iter().collect();
        assert!(left.len() > 5000);
        let mut model: Vec<SpilledBlock> = model.into_values().collect();
        assert_eq!(left, model);
        model.sort_by_key(|block| block.first);
        assert_eq!(blocks.into_by_first().collect::<Vec<_>>(), model);
    }

    #[test]
    fn no_part_of_a_full_file_takes_long_to_look_through() {
        const LENGTH: u64 = 64;
        let mut blocks = Blocks::default();
        for number in 0..(64 << 20) / LENGTH {
            blocks.insert(&block(1, number * LENGTH, LENGTH, number));
        }
        let parts = blocks.parts.values();
        let longest = parts.map(|part| part.placed().count()).max();
        assert_eq!(longest, Some(512));
        assert_eq!(blocks.requests(), (64 << 20) / LENGTH);
    }

    #[test]
    fn a_block_takes_20_bytes() {
        let mut rng = Rng::from_seed(3);
        let mut blocks = Blocks::default();
        let mut offset = 0;
        for number in 0..100_000 {
            let length = 200 + rng.below(200);
            let first = 50_000_000 + number * 10 + rng.below(4000);
            blocks.insert(&SpilledBlock {
                origin: rng.next_u64(),
                requests: 10,
                ..block(9, offset, length, first)
            });
            offset += length;
        }
        let bytes: usize = (blocks.parts.values())
            .map(|part| part.bytes.capacity() + size_of::<(Place, Part)>())
            .sum();
        assert!(bytes < 20 * 100_000, "{bytes}");
    }

    #[test]
    fn parts_are_opened_one_after_the_other() {
        let mut rng = Rng::from_seed(5);
        let mut blocks = Blocks::default();
        for number in 0..10_000 {
            // The order of a tail is that of origins.
            blocks.insert(&block(1, number << 8, 200, number + rng.below(500)));
        }
        let mut by_first = ByFirst::new(blocks);
        let mut open_max = 0;
        while by_first.next().is_some() {
            open_max = open_max.max(by_first.open.len());
        }
        assert!(
            open_max <= 8,
            "{open_max} of {}",
            (10_000 << 8) >> PART_BITS
        );
    }

    fn block(file: u64, offset: u64, length: u64, first: u64) -> SpilledBlock {
        SpilledBlock {
            file,
            offset,
            length,
            origin: first,
            first,
            priority: 0,
            requests: 1,
        }
    }
}
