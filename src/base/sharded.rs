//! A hash table in shards, so that growing never moves all of it in one turn.
//!
//! Hand-written: sharded tables in libraries are for several threads and lock each shard. This one is a
//! list of `hashbrown` tables.

use hashbrown::HashTable;

/// Several hash tables in place of one; the hash of a record selects the table.
///
/// When a table of ten million records doubles, its caller waits for most of a second, and it needs
/// half as much memory in addition meanwhile. Here each shard doubles separately.
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

    /// The shard for records with this hash.
    pub fn shard(&self, hash: u64) -> &HashTable<T> {
        &self.shards[index(hash)]
    }

    /// The same, mutable.
    pub fn shard_mut(&mut self, hash: u64) -> &mut HashTable<T> {
        &mut self.shards[index(hash)]
    }

    /// All records, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().flat_map(HashTable::iter)
    }

    /// The same, taken out shard by shard.
    pub fn into_records(self) -> impl Iterator<Item = T> {
        self.shards.into_iter().flatten()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for ShardedTable<T> {
    fn default() -> Self {
        ShardedTable::new()
    }
}

/// Uses bits that the shards do not use themselves, which are the lowest and the highest.
fn index(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

/// Enough shards that one of a table of ten million is moved within a few milliseconds, and no
/// more: an allocator rounds up the memory of each.
const SHARDS: usize = 64;

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    #[test]
    fn records_are_evenly_distributed_over_shards_by_hash() {
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
