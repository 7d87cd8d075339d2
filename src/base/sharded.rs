//! A hash table in parts, so that no turn has to move all of it when it grows.

use hashbrown::HashTable;

/// So many hash tables in place of one: which of them a record is in its hash says.
///
/// A table of ten million records that doubles keeps its caller waiting for the better part of a
/// second, and is there one and a half times while it does. Each part doubles by itself.
#[derive(Debug)]
pub struct ShardedTable<T> {
    shards: Vec<HashTable<T>>,
}

impl<T> ShardedTable<T> {
    /// An empty table.
    pub fn new() -> Self {
        ShardedTable {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
        }
    }

    /// The part for records of this hash.
    pub fn shard(&self, hash: u64) -> &HashTable<T> {
        &self.shards[index(hash)]
    }

    /// The same, to be changed.
    pub fn shard_mut(&mut self, hash: u64) -> &mut HashTable<T> {
        &mut self.shards[index(hash)]
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for ShardedTable<T> {
    fn default() -> Self {
        ShardedTable::new()
    }
}

/// Bits that the parts themselves do not go by, which use the lowest and the highest.
fn index(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

/// Enough that a part of a table of ten million is moved within some milliseconds, and no more: an
/// allocator rounds up the memory of each.
const SHARDS: usize = 64;

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    #[test]
    fn a_record_is_in_the_part_that_its_hash_says_and_the_parts_are_about_even() {
        let mut table = ShardedTable::new();
        let hash = |number: &u32| xxh3_64(&number.to_le_bytes());
        for number in 0..64_000u32 {
            let shard = table.shard_mut(hash(&number));
            shard.insert_unique(hash(&number), number, hash);
        }
        assert_eq!(table.len(), 64_000);
        for number in 0..64_000u32 {
            let found = table
                .shard(hash(&number))
                .find(hash(&number), |n| *n == number);
            assert_eq!(found, Some(&number));
        }
        let most = table.shards.iter().map(HashTable::len).max();
        assert!(most < Some(1200), "{most:?}");
    }
}
