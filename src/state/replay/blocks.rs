//! Blocks of spilled requests by file and offset, in 32 bytes each: there may be ten million.

use std::collections::BTreeMap;

use crate::state::record::SpilledBlock;

/// Blocks, by file and offset.
#[derive(Debug, Default)]
pub struct Blocks {
    /// By file and mebibyte: those of a whole file would take milliseconds to move.
    parts: BTreeMap<(u64, u32), Part>,
}

/// The blocks that begin in a mebibyte of a file, by offset, with those that were removed.
#[derive(Debug, Default)]
struct Part {
    blocks: Vec<Block>,
    removed: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    origin: u64,
    first: u64,
    offset: u32,
    /// In bytes; 0 for a block that was removed.
    length: u32,
    priority: i32,
    requests: u32,
}

/// Bytes of the record of a block, roughly.
const RECORD: usize = 36;

/// So many blocks that were removed are not worth a move of the others.
const REMOVED_MIN: usize = 1024;

impl Blocks {
    /// Adds a block, or replaces the one there.
    pub fn insert(&mut self, block: &SpilledBlock) {
        let number = |what| u32::try_from(what).expect("a file of blocks has at most 64 MiB");
        let part = (block.file, part_of(number(block.offset)));
        let part = self.parts.entry(part).or_default();
        let added = Block {
            origin: block.origin,
            first: block.first,
            offset: number(block.offset),
            length: number(block.length),
            priority: block.priority,
            requests: number(block.requests),
        };
        // They are mostly added in order.
        if (part.blocks.last()).is_none_or(|last| last.offset < added.offset) {
            part.blocks.push(added);
            return;
        }
        match part.find(added.offset) {
            Ok(at) => {
                part.removed -= usize::from(part.blocks[at].length == 0);
                part.blocks[at] = added;
            }
            Err(at) => part.blocks.insert(at, added),
        }
    }

    /// Removes a block.
    pub fn remove(&mut self, number: u64, offset: u64) -> Option<SpilledBlock> {
        let offset = u32::try_from(offset).ok()?;
        let place = (number, part_of(offset));
        let part = self.parts.get_mut(&place)?;
        let at = part.find(offset).ok()?;
        let removed = part.blocks[at];
        if removed.length == 0 {
            return None;
        }
        part.blocks[at].length = 0;
        part.removed += 1;
        if part.removed == part.blocks.len() {
            self.parts.remove(&place);
        } else if part.removed >= REMOVED_MIN.max(part.blocks.len() / 2) {
            part.blocks.retain(|block| block.length > 0);
            part.removed = 0;
        }
        Some(removed.of(number))
    }

    /// Bytes of their records, roughly.
    pub fn bytes_in_journal(&self) -> usize {
        let left = |part: &Part| part.blocks.len() - part.removed;
        RECORD * self.parts.values().map(left).sum::<usize>()
    }

    /// Number of requests in all blocks.
    pub fn requests(&self) -> u64 {
        self.iter().map(|block| block.requests).sum()
    }

    /// All blocks, by file and offset.
    pub fn iter(&self) -> impl Iterator<Item = SpilledBlock> {
        self.parts.iter().flat_map(|((number, _), part)| {
            let left = part.blocks.iter().filter(|block| block.length > 0);
            left.map(|block| block.of(*number))
        })
    }

    /// All blocks, by the numbers of their first requests: a block that was moved is behind newer ones.
    pub fn into_by_first(self) -> impl Iterator<Item = SpilledBlock> {
        let parts: Vec<((u64, u32), Part)> = self.parts.into_iter().collect();
        let mut order: Vec<(u64, u32, u32)> = Vec::new();
        for (index, (_, part)) in parts.iter().enumerate() {
            let left = (part.blocks.iter().enumerate()).filter(|(_, block)| block.length > 0);
            order.extend(left.map(|(at, block)| (block.first, index as u32, at as u32)));
        }
        order.sort_unstable();
        order.into_iter().map(move |(_, index, at)| {
            let ((number, _), part) = &parts[index as usize];
            part.blocks[at as usize].of(*number)
        })
    }

    /// All blocks, by file and offset.
    pub fn into_ordered(self) -> impl Iterator<Item = SpilledBlock> {
        self.parts.into_iter().flat_map(|((number, _), part)| {
            let blocks = part.blocks.into_iter();
            let left = blocks.filter(|block| block.length > 0);
            left.map(move |block| block.of(number))
        })
    }
}

impl Part {
    fn find(&self, offset: u32) -> Result<usize, usize> {
        self.blocks
            .binary_search_by_key(&offset, |block| block.offset)
    }
}

/// The mebibyte of a file with this offset.
fn part_of(offset: u32) -> u32 {
    offset >> 20
}

impl Block {
    fn of(&self, file: u64) -> SpilledBlock {
        SpilledBlock {
            file,
            offset: self.offset.into(),
            length: self.length.into(),
            origin: self.origin,
            first: self.first,
            priority: self.priority,
            requests: self.requests.into(),
        }
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
            // In some mebibytes.
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
    fn no_list_of_a_full_file_is_longer_than_its_mebibyte() {
        const LENGTH: u64 = 64;
        let mut blocks = Blocks::default();
        for number in 0..(64 << 20) / LENGTH {
            blocks.insert(&SpilledBlock {
                file: 1,
                offset: number * LENGTH,
                length: LENGTH,
                origin: number,
                first: number,
                priority: 0,
                requests: 1,
            });
        }
        let longest = blocks.parts.values().map(|part| part.blocks.len()).max();
        assert_eq!(longest, Some((1 << 20) / LENGTH as usize));
        assert_eq!(blocks.requests(), (64 << 20) / LENGTH);
    }
}
