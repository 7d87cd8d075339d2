//! A hash table of fingerprints in shards, each a range of them.
//!
//! Hand-written: tables of libraries double, so that just after that a fingerprint takes twice the memory.
//! Here a shard grows by a quarter, a fingerprint takes 10 to 12.5 bytes, and its slot follows from its size,
//! so that a scan of a shard yields its fingerprints almost in order.

/// A set of fingerprints: keyed hashes, evenly distributed. 0 is none of them.
#[derive(Debug)]
pub struct Table {
    shards: Vec<Shard>,
    /// The highest bits of a fingerprint, so many, select the shard.
    shard_bits: u32,
    len: usize,
    slots: usize,
}

#[derive(Debug, Default)]
struct Shard {
    /// 0: an empty slot.
    slots: Box<[u64]>,
    len: usize,
}

impl Table {
    /// An empty table with 2^`shard_bits` shards.
    pub fn new(shard_bits: u32) -> Self {
        Table {
            shards: (0..1_usize << shard_bits)
                .map(|_| Shard::default())
                .collect(),
            shard_bits,
            len: 0,
            slots: 0,
        }
    }

    /// An empty table with as many shards.
    pub fn like(other: &Table) -> Self {
        Table::new(other.shard_bits)
    }

    /// Adds a fingerprint; returns false if it is present.
    pub fn insert(&mut self, print: u64) -> bool {
        let bits = self.shard_bits;
        let shard = &mut self.shards[shard_of(print, bits)];
        let mut slot = match shard.find(print, bits) {
            Ok(_) => return false,
            Err(slot) => slot,
        };
        if (shard.len + 1) * LOAD_MAX.1 > shard.slots.len() * LOAD_MAX.0 {
            self.slots += shard.grow(bits);
            slot = shard.find(print, bits).expect_err("it is not present");
        }
        shard.slots[slot] = print;
        shard.len += 1;
        self.len += 1;
        true
    }

    /// Makes room for fingerprints, so that their shards are not grown step by step. Some may be there twice:
    /// [`Table::shrink`] when they are added.
    pub fn reserve(&mut self, prints: impl Iterator<Item = u64>) {
        let bits = self.shard_bits;
        let mut counts = vec![0; self.shards.len()];
        prints.for_each(|print| counts[shard_of(print, bits)] += 1);
        for (shard, count) in self.shards.iter_mut().zip(counts) {
            self.slots += shard.reserve(count, bits);
        }
    }

    /// Frees room that was made for more fingerprints than there are.
    pub fn shrink(&mut self) {
        for shard in &mut self.shards {
            self.slots -= shard.shrink(self.shard_bits);
        }
    }

    /// Returns whether a fingerprint is present.
    pub fn contains(&self, print: u64) -> bool {
        let shard = &self.shards[shard_of(print, self.shard_bits)];
        shard.find(print, self.shard_bits).is_ok()
    }

    /// Number of fingerprints.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory of the slots, in bytes.
    pub fn bytes(&self) -> u64 {
        (self.slots * size_of::<u64>()) as u64
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The fingerprints of a shard, ascending. Those of the next shard are greater.
    pub fn sorted(&self, shard: usize) -> Vec<u64> {
        let shard = &self.shards[shard];
        let mut prints = Vec::with_capacity(shard.len);
        prints.extend(shard.slots.iter().filter(|print| **print != 0));
        prints.sort_unstable();
        prints
    }
}

impl Shard {
    /// The slot of a fingerprint, or the empty one for it. An error of a shard without slots means nothing.
    fn find(&self, print: u64, shard_bits: u32) -> Result<usize, usize> {
        let count = self.slots.len();
        if count == 0 {
            return Err(0);
        }
        let share = u128::from(print << shard_bits) * count as u128;
        let mut slot = (share >> u64::BITS) as usize;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                other if other == print => return Ok(slot),
                _ => slot = if slot + 1 == count { 0 } else { slot + 1 },
            }
        }
    }

    /// Adds slots; returns how many.
    fn grow(&mut self, shard_bits: u32) -> usize {
        let before = self.slots.len();
        let count = (before + before / 4).max(SLOTS_MIN);
        self.resize(count, shard_bits);
        count - before
    }

    /// Adds slots for so many fingerprints more; returns how many.
    fn reserve(&mut self, more: usize, shard_bits: u32) -> usize {
        let before = self.slots.len();
        let count = slots_for(self.len + more);
        if more == 0 || count <= before {
            return 0;
        }
        self.resize(count, shard_bits);
        count - before
    }

    /// Removes slots that are more than the growth of a shard adds; returns how many.
    fn shrink(&mut self, shard_bits: u32) -> usize {
        let before = self.slots.len();
        let count = slots_for(self.len);
        if before <= count + count / 4 {
            return 0;
        }
        self.resize(count, shard_bits);
        before - count
    }

    fn resize(&mut self, count: usize, shard_bits: u32) {
        let old = std::mem::replace(&mut self.slots, vec![0; count].into());
        for print in old.iter().filter(|print| **print != 0) {
            let slot = self
                .find(*print, shard_bits)
                .expect_err("each is there once");
            self.slots[slot] = *print;
        }
    }
}

/// Slots of a shard with room for so many fingerprints.
fn slots_for(prints: usize) -> usize {
    (prints * LOAD_MAX.1 / LOAD_MAX.0 + 1).max(SLOTS_MIN)
}

fn shard_of(print: u64, shard_bits: u32) -> usize {
    print.checked_shr(u64::BITS - shard_bits).unwrap_or(0) as usize
}

/// A shard has at most this share of its slots in use.
const LOAD_MAX: (usize, usize) = (4, 5);

/// Slots of the smallest shard that is not empty.
const SLOTS_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn it_holds_what_was_inserted_in_order_of_shards() {
        for shard_bits in [0, 1, 6] {
            let mut rng = Rng::from_seed(u64::from(shard_bits));
            let mut table = Table::new(shard_bits);
            let mut expected = BTreeSet::new();
            for _ in 0..20_000 {
                // Some are there twice, and some are extreme.
                let print = match rng.below(4) {
                    0 => 1 + rng.below(1_000),
                    1 => u64::MAX - rng.below(1_000),
                    _ => rng.next_u64(),
                };
                assert_eq!(table.contains(print), expected.contains(&print));
                assert_eq!(table.insert(print), expected.insert(print));
            }
            assert_eq!(table.len(), expected.len());
            let sorted = (0..table.shards()).flat_map(|shard| table.sorted(shard));
            assert!(sorted.eq(expected.iter().copied()));
        }
    }

    #[test]
    fn many_at_once_are_as_one_by_one_and_take_as_little_memory_also_if_they_are_there_twice() {
        for shard_bits in [0, 1, 6] {
            let mut rng = Rng::from_seed(u64::from(shard_bits));
            let mut table = Table::new(shard_bits);
            let mut expected = BTreeSet::new();
            for count in [3, 20_000, 1, 5_000] {
                let mut prints: Vec<u64> = (0..count).map(|_| rng.next_u64().max(1)).collect();
                prints.extend(prints.clone());
                prints.extend(expected.iter().take(5_000));
                table.reserve(prints.iter().copied());
                for print in &prints {
                    table.insert(*print);
                }
                table.shrink();
                expected.extend(prints);
                let sorted = (0..table.shards()).flat_map(|shard| table.sorted(shard));
                assert!(sorted.eq(expected.iter().copied()));
                assert_eq!(table.len(), expected.len());
                let slots: usize = table.shards.iter().map(|shard| shard.slots.len()).sum();
                assert_eq!(table.bytes(), 8 * slots as u64);
                let least = (64 * SLOTS_MIN) as u64;
                assert!(table.bytes() <= 13 * expected.len() as u64 + 8 * least);
            }
        }
    }

    #[test]
    fn a_print_takes_at_most_13_bytes() {
        let mut rng = Rng::from_seed(1);
        let mut table = Table::new(4);
        for count in 1..200_000 {
            table.insert(rng.next_u64().max(1));
            if count > 20_000 {
                assert!(table.bytes() <= 13 * count, "{count}: {}", table.bytes());
            }
        }
    }
}
