//! A hash table in shards, so that growing never moves more than one shard in a turn.
//!
//! Hand-written: sharded tables in libraries are for several threads and lock each shard. This one is a
//! list of `hashbrown` tables, found by extendible hashing (Fagin et al., 1979).

use hashbrown::HashTable;

/// Several hash tables in place of one; the hash of a record selects the table.
///
/// When a table of ten million records doubles, its caller waits for most of a second, and it needs half as
/// much memory in addition meanwhile. Here a shard that is full is split in two, within a millisecond or two.
#[derive(Debug)]
pub struct ShardedTable<T> {
    /// The number of the shard for each value of the first `depth` bits of a hash.
    directory: Vec<u32>,
    depth: u32,
    shards: Vec<Shard<T>>,
}

#[derive(Debug)]
struct Shard<T> {
    table: HashTable<T>,
    /// Number of first bits that the hashes of all its records have in common.
    depth: u32,
}

impl<T> ShardedTable<T> {
    /// An empty table.
    pub fn new() -> Self {
        ShardedTable {
            directory: vec![0],
            depth: 0,
            shards: vec![Shard {
                table: HashTable::new(),
                depth: 0,
            }],
        }
    }

    /// An empty table with shards for so many records: none is split before they are in it.
    pub fn for_records(count: usize) -> Self {
        let mut depth = 0;
        while count >> depth > MOSTLY && depth < DEPTH_MAX {
            depth += 1;
        }
        if depth == 0 {
            return ShardedTable::new();
        }
        let shard = |_| Shard {
            table: HashTable::with_capacity(SHARD_MAX),
            depth,
        };
        ShardedTable {
            directory: (0..1 << depth).collect(),
            depth,
            shards: (0..1 << depth).map(shard).collect(),
        }
    }

    /// Sorts records roughly by their shards: so they are in a processor's cache when the records are added.
    /// Those with the same hash stay in order.
    pub fn sort(records: &mut Vec<T>, hash_of: impl Fn(&T) -> u64)
    where
        T: Copy,
    {
        let group_of = |record: &T| first_bits(hash_of(record), SORT_BITS);
        let mut starts = [0; (1 << SORT_BITS) + 1];
        for record in &*records {
            starts[group_of(record) + 1] += 1;
        }
        for group in 1..starts.len() {
            starts[group] += starts[group - 1];
        }
        let mut sorted = records.clone();
        for record in &*records {
            let next = &mut starts[group_of(record)];
            sorted[*next] = *record;
            *next += 1;
        }
        *records = sorted;
    }

    /// The shard for records with this hash.
    pub fn shard(&self, hash: u64) -> &HashTable<T> {
        &self.shards[self.number_of(hash)].table
    }

    /// The same, to change or remove records.
    pub fn shard_mut(&mut self, hash: u64) -> &mut HashTable<T> {
        let number = self.number_of(hash);
        &mut self.shards[number].table
    }

    /// The same, with room for one more record. `hash_of`: the hash of a record.
    pub fn shard_with_room(&mut self, hash: u64, hash_of: impl Fn(&T) -> u64) -> &mut HashTable<T> {
        let mut number = self.number_of(hash);
        while self.shards[number].table.len() >= most_in(number)
            && self.shards[number].depth < DEPTH_MAX
        {
            self.split(hash, &hash_of);
            number = self.number_of(hash);
        }
        &mut self.shards[number].table
    }

    /// All records, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().flat_map(|shard| shard.table.iter())
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.table.len()).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.table.is_empty())
    }

    fn number_of(&self, hash: u64) -> usize {
        self.directory[first_bits(hash, self.depth)] as usize
    }

    /// Splits the shard for this hash by the next bit of the hashes of its records.
    fn split(&mut self, hash: u64, hash_of: &impl Fn(&T) -> u64) {
        let (lower, upper) = (self.number_of(hash), self.shards.len());
        let Shard { table, depth } = &mut self.shards[lower];
        let depth_before = *depth;
        *depth += 1;
        let depth = *depth;
        // At once as large as it may become: then it never grows by moving.
        let before = std::mem::replace(table, HashTable::with_capacity(SHARD_MAX));
        let mut moved = HashTable::with_capacity(SHARD_MAX);
        for record in before {
            let hash = hash_of(&record);
            let half = match first_bits(hash, depth) & 1 {
                0 => &mut *table,
                _ => &mut moved,
            };
            half.insert_unique(hash, record, hash_of);
        }
        self.shards.push(Shard {
            table: moved,
            depth,
        });
        if self.depth < depth {
            self.depth = depth;
            self.directory = (self.directory.iter())
                .flat_map(|number| [*number, *number])
                .collect();
        }
        let places = 1 << (self.depth - depth_before);
        let first = first_bits(hash, self.depth) / places * places;
        let last_half = &mut self.directory[first + places / 2..first + places];
        last_half.fill(u32::try_from(upper).expect("at most 2^DEPTH_MAX"));
    }
}

impl<T> Default for ShardedTable<T> {
    fn default() -> Self {
        ShardedTable::new()
    }
}

/// The first bits of a hash after those that a shard compares first, the highest seven; it uses the lowest
/// for places.
fn first_bits(hash: u64, count: u32) -> usize {
    let bits = u128::from(hash << 7) << count >> u64::BITS;
    bits as usize
}

/// Most records in a shard before it is split. Hashes fill all shards alike: with one bound for all, those of
/// a table of millions would be split within the same turns.
fn most_in(shard: usize) -> usize {
    // Multiples of the golden ratio, whose fractions are evenly distributed (Knuth, The Art of Computer
    // Programming, 6.4).
    let fraction = (shard as u32).wrapping_mul(0x9e37_79b9);
    let spread = (u64::from(fraction) * (SHARD_MAX / SPREAD) as u64) >> u32::BITS;
    SHARD_MAX - spread as usize
}

/// The bounds of shards differ by up to 1/8.
const SPREAD: usize = 8;

/// Slots of a shard: an allocator rounds up the memory of smaller ones by more (of 10 million records of 16
/// bytes, to 36 bytes each with 16 384 slots, 34 with these), and larger ones take longer to split. In tests
/// shards are many.
const SLOTS: usize = if cfg!(test) { 64 } else { 32_768 };
/// Most records in a shard, until its depth is [`DEPTH_MAX`]: all that a table of so many slots takes.
const SHARD_MAX: usize = SLOTS / 8 * 7;
/// Records for which a shard has room, whatever its bound, if hashes are evenly distributed.
const MOSTLY: usize = SHARD_MAX / 4 * 3;
/// Bits of hashes by which records are sorted.
const SORT_BITS: u32 = 8;
/// Bounds the directory where hashes are not evenly distributed: 64 MiB.
const DEPTH_MAX: u32 = if cfg!(test) { 14 } else { 24 };

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    fn hash(number: &u32) -> u64 {
        xxh3_64(&number.to_le_bytes())
    }

    #[test]
    fn records_are_found_and_removed_while_shards_are_split() {
        const RECORDS: u32 = 30_000;
        let mut table = ShardedTable::new();
        let mut most_moved = 0;
        for number in 0..RECORDS {
            let moved = Cell::new(0);
            let count = |number: &u32| {
                moved.set(moved.get() + 1);
                hash(number)
            };
            let shard = table.shard_with_room(hash(&number), count);
            shard.insert_unique(hash(&number), number, count);
            most_moved = most_moved.max(moved.get());
            // Every tenth is removed again.
            let gone = number / 2;
            if number % 20 == 0
                && let Ok(entry) =
                    (table.shard_mut(hash(&gone))).find_entry(hash(&gone), |own| *own == gone)
            {
                entry.remove();
            }
        }
        for number in 0..RECORDS {
            let found = table
                .shard(hash(&number))
                .find(hash(&number), |own| *own == number);
            let is_removed = number < RECORDS / 2 && number % 10 == 0;
            assert_eq!(found, (!is_removed).then_some(&number));
        }
        let left = RECORDS as usize - RECORDS as usize / 20;
        assert_eq!((table.len(), table.iter().count()), (left, left));
        assert!(most_moved <= SHARD_MAX, "{most_moved}");
        let sizes = table.shards.iter().map(|shard| shard.table.len());
        assert!(sizes.clone().max() <= Some(SHARD_MAX));
        assert!(sizes.min() >= Some(SHARD_MAX / 8), "evenly distributed");
        let shards = left.div_ceil(SHARD_MAX)..3 * left / SHARD_MAX;
        assert!(shards.contains(&table.shards.len()));
    }

    #[test]
    fn a_table_for_many_records_is_not_split_before_they_are_in_it() {
        for count in [0, 1, MOSTLY, MOSTLY + 1, 1000, 30_000] {
            let mut table = ShardedTable::for_records(count);
            let mut records: Vec<u32> = (0..count as u32).collect();
            ShardedTable::sort(&mut records, hash);
            let shards = table.shards.len();
            for number in records {
                let hash_of = |_: &u32| -> u64 { panic!("no record is moved") };
                let shard = match shards {
                    // It grows.
                    1 => table.shard_with_room(hash(&number), hash),
                    _ => table.shard_with_room(hash(&number), hash_of),
                };
                shard.insert_unique(hash(&number), number, hash);
            }
            assert_eq!((table.len(), table.shards.len()), (count, shards));
            assert!(count == 0 || shards <= 2 * count.div_ceil(MOSTLY));
            for number in 0..count as u32 {
                let shard = table.shard(hash(&number));
                assert!(shard.find(hash(&number), |own| *own == number).is_some());
            }
        }
    }

    #[test]
    fn sorted_records_are_in_order_of_shards_and_then_as_before() {
        let mut records: Vec<(u32, u32)> = (0..10_000).map(|at| (at % 300, at)).collect();
        let before = records.clone();
        ShardedTable::sort(&mut records, |(number, _)| hash(number));
        let group_of = |number: u32| first_bits(hash(&number), SORT_BITS);
        assert!(records.is_sorted_by_key(|(number, _)| group_of(*number)));
        let mut model = before;
        model.sort_by_key(|(number, _)| group_of(*number));
        assert_eq!(records, model);
    }

    #[test]
    fn shards_that_fill_alike_are_split_one_after_the_other() {
        const SHARDS: usize = 64;
        // So many records in each shard when it is split, if all have equally many at any time.
        let mut bounds: Vec<usize> = (0..SHARDS).map(most_in).collect();
        bounds.sort_unstable();
        assert!(bounds.iter().all(|bound| *bound <= SHARD_MAX));
        assert!(bounds[0] >= SHARD_MAX - SHARD_MAX / SPREAD);
        let alike = (bounds.chunk_by(|one, other| one == other)).map(<[usize]>::len);
        let even = SHARDS / (SHARD_MAX / SPREAD);
        assert!(alike.max() <= Some(even + 2), "{bounds:?}");
    }

    #[test]
    fn hashes_without_any_difference_share_a_shard_that_grows() {
        let mut table = ShardedTable::new();
        for number in 0..SHARD_MAX + 1000 {
            let shard = table.shard_with_room(7, |_| 7);
            shard.insert_unique(number as u64, number, |own| *own as u64);
        }
        assert_eq!(table.len(), SHARD_MAX + 1000);
        assert_eq!(table.shard(7).len(), SHARD_MAX + 1000);
    }

    #[test]
    fn a_small_table_takes_little_memory() {
        let mut table: ShardedTable<u64> = ShardedTable::new();
        assert_eq!(table.shards[0].table.capacity(), 0);
        for number in 0..10 {
            let shard = table.shard_with_room(number, |own| *own);
            shard.insert_unique(number, number, |own| *own);
        }
        assert!(table.shards[0].table.capacity() < SHARD_MAX / 2);
        assert_eq!(table.shards.len(), 1);
    }
}
