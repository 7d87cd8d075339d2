//! Which blocks each origin has, and the lines in which origins wait for their turn.

use std::collections::VecDeque;

use hashbrown::hash_table::Entry;

use crate::base::priorities::PriorityQueue;
use crate::base::sharded::ShardedTable;
use crate::state::record::SpilledBlock;

/// The blocks of all origins. An origin with one block takes 16 bytes, and 8 in its line; one with several
/// takes 64 more, and 8 per block.
#[derive(Debug, Default)]
pub struct Index {
    origins: ShardedTable<(u64, Packed)>,
    /// The blocks of origins that have several.
    several: ShardedTable<(u64, Box<Several>)>,
    /// Bytes and requests of all blocks.
    bytes: u64,
    requests: u64,
    /// Origins that wait for their turn, by priority. Some may have no such block any more.
    lines: PriorityQueue<u64>,
    /// Priorities by their numbers.
    priorities: Vec<i32>,
}

/// The blocks of an origin: the highest priority first, in a priority the one that was written first.
type Blocks = VecDeque<Packed>;

/// The blocks of an origin that has, or had, several.
#[derive(Debug)]
struct Several {
    blocks: Blocks,
    /// Their bytes.
    bytes: u64,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The number of the file.
    pub file: u64,
    /// The offset in it.
    pub offset: u64,
    /// It has at most so many bytes.
    pub length_max: u64,
}

/// A location and the number of a priority in 63 bits; [`SEVERAL`] marks an origin with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed(u64);

const SEVERAL: Packed = Packed(u64::MAX);

const OFFSET_BITS: u32 = 26;
const SIZE_BITS: u32 = 7;
const PRIORITY_BITS: u32 = 8;
const FILE_BITS: u32 = 63 - OFFSET_BITS - SIZE_BITS - PRIORITY_BITS;

/// Blocks begin before this offset.
pub const OFFSET_END: u64 = 1 << OFFSET_BITS;
/// Files have smaller numbers.
pub const FILES_END: u64 = 1 << FILE_BITS;

impl Index {
    /// Whether an origin has a block.
    pub fn has(&self, origin: u64) -> bool {
        let shard = self.origins.shard(origin);
        shard.find(origin, |(key, _)| *key == origin).is_some()
    }

    /// Adds a block. Returns whether its origin had none of this priority or a higher one.
    pub fn add(&mut self, block: &SpilledBlock) -> bool {
        let priority = self.priority_number(block.priority);
        let packed = Packed::new(block, priority);
        let origin = block.origin;
        let bytes = packed.bytes();
        self.bytes += bytes;
        self.requests += block.requests;
        let shard = self.origins.shard_with_room(origin, |(key, _)| *key);
        match shard.entry(origin, |(key, _)| *key == origin, |(key, _)| *key) {
            Entry::Vacant(slot) => {
                slot.insert((origin, packed));
                true
            }
            Entry::Occupied(mut slot) => {
                let first = std::mem::replace(&mut slot.get_mut().1, SEVERAL);
                if first != SEVERAL {
                    let blocks = Box::new(Several {
                        blocks: Blocks::from([first]),
                        bytes: first.bytes(),
                    });
                    let several = self.several.shard_with_room(origin, |(key, _)| *key);
                    several.insert_unique(origin, (origin, blocks), |(key, _)| *key);
                }
                let (several, priorities) = self.several_mut(origin);
                several.bytes += bytes;
                let blocks = &mut several.blocks;
                let before = |other: &Packed| {
                    other.priority_in(priorities) >= packed.priority_in(priorities)
                };
                let at = blocks.partition_point(before);
                blocks.insert(at, packed);
                at == 0
            }
        }
    }

    /// The first block of an origin with this priority.
    pub fn first(&self, origin: u64, priority: i32) -> Option<Location> {
        let shard = self.origins.shard(origin);
        let (_, packed) = shard.find(origin, |(key, _)| *key == origin)?;
        if *packed != SEVERAL {
            let is_it = packed.priority_in(&self.priorities) == priority;
            return is_it.then(|| packed.location());
        }
        let blocks = self.blocks(origin);
        let at = first_of(blocks, priority, &self.priorities)?;
        Some(blocks[at].location())
    }

    /// Whether an origin has a block of this priority or a higher one.
    pub fn is_behind(&self, origin: u64, priority: i32) -> bool {
        let highest = self.highest(origin);
        highest.is_some_and(|highest| highest >= priority)
    }

    /// The highest priority of an origin's blocks.
    pub fn highest(&self, origin: u64) -> Option<i32> {
        let shard = self.origins.shard(origin);
        match shard.find(origin, |(key, _)| *key == origin)? {
            (_, SEVERAL) => {
                let first = self.blocks(origin).front();
                first.map(|packed| packed.priority_in(&self.priorities))
            }
            (_, packed) => Some(packed.priority_in(&self.priorities)),
        }
    }

    /// All blocks, in the order of their locations.
    pub fn locations(&self) -> Vec<Location> {
        let single = self.origins.iter().map(|(_, packed)| *packed);
        let single = single.filter(|packed| *packed != SEVERAL);
        let several = self.several.iter();
        let several = several.flat_map(|(_, several)| several.blocks.iter());
        let all = single.chain(several.copied());
        let mut locations: Vec<Location> = all.map(Packed::location).collect();
        locations.sort_unstable_by_key(|location| (location.file, location.offset));
        locations
    }

    /// The blocks of an origin, the highest priority first, in a priority the one that was written first.
    pub fn blocks_of(&self, origin: u64) -> Vec<Packed> {
        let shard = self.origins.shard(origin);
        match shard.find(origin, |(key, _)| *key == origin) {
            None => Vec::new(),
            Some((_, SEVERAL)) => self.blocks(origin).iter().copied().collect(),
            Some((_, packed)) => vec![*packed],
        }
    }

    /// Roughly how many requests an origin has: as many as its blocks have by their bytes, and at least one if it has a
    /// block.
    pub fn requests_of(&self, origin: u64) -> u64 {
        let shard = self.origins.shard(origin);
        let bytes = match shard.find(origin, |(key, _)| *key == origin) {
            None => return 0,
            Some((_, SEVERAL)) => {
                let several = self.several.shard(origin);
                let found = several.find(origin, |(key, _)| *key == origin);
                found.expect("it has several blocks").1.bytes
            }
            Some((_, packed)) => packed.bytes(),
        };
        let requests = u128::from(bytes) * u128::from(self.requests) / u128::from(self.bytes);
        u64::try_from(requests).unwrap_or(u64::MAX).max(1)
    }

    /// The priority of an origin's block at this location, if it has one there.
    pub fn priority_at(&self, origin: u64, file: u64, offset: u64) -> Option<i32> {
        let is_it = |packed: &Packed| {
            let location = packed.location();
            (location.file, location.offset) == (file, offset)
        };
        let shard = self.origins.shard(origin);
        match shard.find(origin, |(key, _)| *key == origin)? {
            (_, SEVERAL) => {
                let found = self.blocks(origin).iter().find(|packed| is_it(packed));
                found.map(|packed| packed.priority_in(&self.priorities))
            }
            (_, packed) if is_it(packed) => Some(packed.priority_in(&self.priorities)),
            _ => None,
        }
    }

    /// A block of an origin, with this priority, has another location now. It keeps its turn.
    pub fn relocate(&mut self, from: (u64, u64), block: &SpilledBlock) {
        let priority = self.priority_number(block.priority);
        let to = Packed::new(block, priority);
        let origin = block.origin;
        let is_it = |packed: &&mut Packed| {
            let location = packed.location();
            (location.file, location.offset) == from
        };
        let shard = self.origins.shard_mut(origin);
        let Some((_, packed)) = shard.find_mut(origin, |(key, _)| *key == origin) else {
            return;
        };
        if *packed != SEVERAL {
            self.bytes = self.bytes - packed.bytes() + to.bytes();
            *packed = to;
            return;
        }
        let (several, _) = self.several_mut(origin);
        if let Some(packed) = several.blocks.iter_mut().find(is_it) {
            let before = std::mem::replace(packed, to).bytes();
            several.bytes = several.bytes - before + to.bytes();
            self.bytes = self.bytes - before + to.bytes();
        }
    }

    /// Removes the first block of an origin with this priority, which has so many requests.
    pub fn remove_first(&mut self, origin: u64, priority: i32, requests: u64) {
        let shard = self.origins.shard_mut(origin);
        let Ok(slot) = shard.find_entry(origin, |(key, _)| *key == origin) else {
            return;
        };
        let packed = slot.get().1;
        if packed != SEVERAL {
            slot.remove();
            self.bytes -= packed.bytes();
            self.requests -= requests;
            return;
        }
        let (several, priorities) = self.several_mut(origin);
        let at = first_of(&several.blocks, priority, priorities);
        let removed = at.and_then(|at| several.blocks.remove(at));
        let bytes = removed.map_or(0, Packed::bytes);
        several.bytes -= bytes;
        let is_empty = several.blocks.is_empty();
        if removed.is_some() {
            self.bytes -= bytes;
            self.requests -= requests;
        }
        if is_empty {
            let same = |entry: &(u64, Box<Several>)| entry.0 == origin;
            if let Ok(slot) = self.several.shard_mut(origin).find_entry(origin, same) {
                slot.remove();
            }
            let same = |entry: &(u64, Packed)| entry.0 == origin;
            if let Ok(slot) = self.origins.shard_mut(origin).find_entry(origin, same) {
                slot.remove();
            }
        }
    }

    /// An origin waits at the end of the line of this priority.
    pub fn wait(&mut self, origin: u64, priority: i32) {
        let number = self.priority_number(priority);
        self.lines.push(self.priorities[number], origin);
    }

    /// The next origin, and the priority of its line: the highest first, in a line the first. Lower ones
    /// have an eighth of the turns, so that none waits for ever.
    pub fn next(&mut self) -> Option<(u64, i32)> {
        let (priority, origin) = self.lines.pop()?;
        Some((origin, priority))
    }

    /// Whether no origin waits.
    pub fn is_nobody_waiting(&self) -> bool {
        self.lines.is_empty()
    }

    /// The blocks of an origin with several.
    fn blocks(&self, origin: u64) -> &Blocks {
        let several = self.several.shard(origin);
        let found = several.find(origin, |(key, _)| *key == origin);
        &found.expect("it has several blocks").1.blocks
    }

    /// The same, with the priorities by their numbers.
    fn several_mut(&mut self, origin: u64) -> (&mut Several, &[i32]) {
        let several = self.several.shard_mut(origin);
        let found = several.find_mut(origin, |(key, _)| *key == origin);
        let (_, several) = found.expect("it has several blocks");
        (several, &self.priorities)
    }

    /// The number of a priority. Beyond 255 different ones, that of the nearest.
    fn priority_number(&mut self, priority: i32) -> usize {
        let known = &self.priorities;
        if let Some(number) = known.iter().position(|known| *known == priority) {
            return number;
        }
        if known.len() < (1 << PRIORITY_BITS) - 1 {
            self.priorities.push(priority);
            return self.priorities.len() - 1;
        }
        let distances = known.iter().map(|known| known.abs_diff(priority));
        let nearest = distances.enumerate().min_by_key(|(_, distance)| *distance);
        nearest.map_or(0, |(number, _)| number)
    }
}

impl Packed {
    fn new(block: &SpilledBlock, priority: usize) -> Self {
        assert!(
            block.file < FILES_END && block.offset < OFFSET_END,
            "a block in a file of ours: {block:?}"
        );
        let packed = block.file << OFFSET_BITS | block.offset;
        let packed = packed << SIZE_BITS | size_of(block.length);
        Packed(packed << PRIORITY_BITS | priority as u64)
    }

    fn priority(self) -> usize {
        (self.0 & ((1 << PRIORITY_BITS) - 1)) as usize
    }

    /// The priority, from those by their numbers.
    fn priority_in(self, priorities: &[i32]) -> i32 {
        priorities[self.priority()]
    }

    /// Its bytes, or up to a quarter more.
    fn bytes(self) -> u64 {
        self.location().length_max
    }

    /// The location.
    pub fn location(self) -> Location {
        let packed = self.0 >> PRIORITY_BITS;
        let size = packed & ((1 << SIZE_BITS) - 1);
        let packed = packed >> SIZE_BITS;
        Location {
            file: packed >> OFFSET_BITS,
            offset: packed & (OFFSET_END - 1),
            length_max: bytes_of(size),
        }
    }
}

/// Where the first block of a priority is among those of an origin.
fn first_of(blocks: &Blocks, priority: i32, priorities: &[i32]) -> Option<usize> {
    let at = blocks.partition_point(|packed| packed.priority_in(priorities) > priority);
    let found = blocks.get(at)?;
    (found.priority_in(priorities) == priority).then_some(at)
}

/// As many bytes are read for a block of this length.
pub fn length_max(length: u64) -> u64 {
    bytes_of(size_of(length))
}

/// The least size that holds so many bytes. Sizes grow by a quarter or less.
fn size_of(length: u64) -> u64 {
    let sizes = 0..1 << SIZE_BITS;
    let mut fitting = sizes.filter(|size| bytes_of(*size) >= length);
    fitting.next().expect("a block is shorter than 2^37 bytes")
}

fn bytes_of(size: u64) -> u64 {
    (4 + size % 4) << (4 + size / 4)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::rng::Rng;

    fn block(origin: u64, priority: i32, file: u64, offset: u64) -> SpilledBlock {
        SpilledBlock {
            file,
            offset,
            length: 100 + offset,
            origin,
            priority,
            requests: 1,
            first: offset,
        }
    }

    #[test]
    fn a_place_keeps_file_and_offset_and_at_most_a_quarter_more_bytes() {
        for length in [1, 64, 65, 1000, 16_384, 64 << 20, 1 << 30] {
            let block = SpilledBlock {
                length,
                ..block(7, 0, FILES_END - 1, OFFSET_END - 1)
            };
            let location = Packed::new(&block, 254).location();
            assert_eq!((location.file, location.offset), (block.file, block.offset));
            let most = (length + length / 4).max(64);
            assert!(
                (length..=most).contains(&location.length_max),
                "{location:?}"
            );
        }
    }

    #[test]
    fn blocks_of_random_origins_come_by_priority_and_then_in_order() {
        let mut rng = Rng::from_seed(4);
        let mut index = Index::default();
        let mut model: BTreeMap<(u64, Reverse<i32>), VecDeque<u64>> = BTreeMap::new();
        for offset in 1..5000 {
            let origin = rng.below(40) << 50;
            let priority = rng.below(3) as i32 - 1;
            let blocks = model.entry((origin, Reverse(priority))).or_default();
            if rng.chance(0.55) {
                blocks.push_back(offset);
                let to_this = (origin, Reverse(i32::MAX))..=(origin, Reverse(priority));
                let before: usize = model.range(to_this).map(|(_, blocks)| blocks.len()).sum();
                let is_first = index.add(&block(origin, priority, 3, offset));
                assert_eq!(is_first, before == 1);
            } else if !blocks.is_empty() {
                index.remove_first(origin, priority, 1);
                blocks.pop_front();
            }
            let first = index
                .first(origin, priority)
                .map(|location| location.offset);
            let expected = model.get(&(origin, Reverse(priority)));
            assert_eq!(first, expected.and_then(|blocks| blocks.front().copied()));
            let of_origin = model.range((origin, Reverse(i32::MAX))..=(origin, Reverse(i32::MIN)));
            let filled = of_origin.filter(|(_, blocks)| !blocks.is_empty());
            let highest = filled.map(|((_, priority), _)| priority.0).next();
            assert_eq!(index.highest(origin), highest);
            assert_eq!(index.has(origin), highest.is_some());
            let count: usize = (model
                .range((origin, Reverse(i32::MAX))..=(origin, Reverse(i32::MIN))))
            .map(|(_, blocks)| blocks.len())
            .sum();
            let roughly = index.requests_of(origin) as usize;
            // Later blocks of this test are longer.
            assert!(
                (count / 4..=1 + 4 * count).contains(&roughly),
                "{roughly} of {count}"
            );
            let all: usize = model.values().map(VecDeque::len).sum();
            assert_eq!(index.requests, all as u64);
        }
    }

    #[test]
    fn origins_wait_in_the_order_in_which_they_came_the_highest_priority_first() {
        let mut index = Index::default();
        for origin in 0..10_000 {
            index.wait(origin, (origin % 2) as i32);
        }
        let order: Vec<(u64, i32)> = std::iter::from_fn(|| index.next()).collect();
        let of = |priority| order.iter().filter(move |next| next.1 == priority);
        assert!(of(1).map(|next| next.0).eq((0..5000).map(|n| 2 * n + 1)));
        assert!(of(0).map(|next| next.0).eq((0..5000).map(|n| 2 * n)));
        // The others have an eighth of the turns.
        let lower = order[..800].iter().filter(|next| next.1 == 0);
        assert_eq!(lower.count(), 100);
        assert!(index.is_nobody_waiting());
    }

    #[test]
    fn beyond_255_priorities_the_nearest_counts() {
        let mut index = Index::default();
        for priority in 0..300 {
            index.add(&block(1, priority, 0, 5 + priority as u64));
        }
        let mut blocks = Vec::new();
        while let Some(priority) = index.highest(1) {
            index.remove_first(1, priority, 1);
            blocks.push(priority);
        }
        assert_eq!(blocks.len(), 300);
        blocks.dedup();
        assert_eq!(blocks.len(), 255);
    }
}
