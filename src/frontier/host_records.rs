//! What is remembered of each host for the whole crawl: seed membership and the counters of limits.

use crate::base::keys::{HostKey, Keys};
use crate::base::secret::Secret;
use crate::base::sharded::ShardedTable;

/// Records of hosts by their keys, in 16 bytes each. A host of which nothing is remembered has none.
#[derive(Debug)]
pub(super) struct HostRecords {
    table: ShardedTable<Packed>,
    len: usize,
    keys: Keys,
}

/// Record of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRecord {
    /// The host of a seed, or of a seed's redirect.
    pub is_seed: bool,
    /// Pages fetched, if pages are counted.
    pub pages: u32,
    /// Sitemaps admitted, up to 2³¹ - 1.
    pub sitemaps: u32,
}

/// A record as stored.
#[derive(Clone, Copy, Debug)]
struct Packed {
    key: HostKey,
    pages: u32,
    /// The number of sitemaps, and [`SEED`].
    seed_and_sitemaps: u32,
}

/// The bit of [`Packed::seed_and_sitemaps`] that a seed's host has.
const SEED: u32 = 1 << 31;

impl HostRecords {
    /// Creates an empty table. `secret` has the keys.
    pub fn new(secret: &Secret) -> Self {
        HostRecords {
            table: ShardedTable::new(),
            len: 0,
            keys: *secret.keys(),
        }
    }

    /// The key of a host.
    pub fn key(&self, name: &str) -> HostKey {
        self.keys.host(name)
    }

    /// The record of a host.
    pub fn get(&self, name: &str) -> HostRecord {
        if self.is_empty() {
            return HostRecord::default();
        }
        let key = self.key(name);
        let found = self.table.shard(key.0).find(key.0, |own| own.key == key);
        found.map(Packed::unpack).unwrap_or_default()
    }

    /// Changes the record of a host, and returns what `change` returns.
    pub fn update<T>(&mut self, key: HostKey, change: impl FnOnce(&mut HostRecord) -> T) -> T {
        let hash_of = |own: &Packed| own.key.0;
        let shard = self.table.shard_with_room(key.0, hash_of);
        let found = shard.find_entry(key.0, |own| own.key == key);
        let mut record = match &found {
            Ok(entry) => entry.get().unpack(),
            Err(_) => HostRecord::default(),
        };
        let result = change(&mut record);
        match (found, record == HostRecord::default()) {
            (Ok(mut entry), false) => *entry.get_mut() = record.pack(key),
            (Ok(entry), true) => {
                entry.remove();
                self.len -= 1;
            }
            (Err(absent), false) => {
                let shard = absent.into_table();
                shard.insert_unique(key.0, record.pack(key), hash_of);
                self.len += 1;
            }
            (Err(_), true) => {}
        }
        result
    }

    /// Number of records.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl HostRecord {
    fn pack(self, key: HostKey) -> Packed {
        let seed = if self.is_seed { SEED } else { 0 };
        Packed {
            key,
            pages: self.pages,
            seed_and_sitemaps: seed | self.sitemaps.min(SEED - 1),
        }
    }
}

impl Packed {
    fn unpack(&self) -> HostRecord {
        HostRecord {
            is_seed: self.seed_and_sitemaps & SEED > 0,
            pages: self.pages,
            sitemaps: self.seed_and_sitemaps & !SEED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_16_bytes_and_is_returned_unchanged() {
        assert_eq!(size_of::<Packed>(), 16);
        let mut records = HostRecords::new(&Secret::from_seed(1));
        let of = |is_seed, pages, sitemaps| HostRecord {
            is_seed,
            pages,
            sitemaps,
        };
        let all = [
            of(true, 0, 0),
            of(false, u32::MAX, 0),
            of(false, 0, SEED - 1),
            of(true, 7, 9),
        ];
        for (number, record) in (0..).zip(all) {
            let key = records.key(&format!("{number}.test"));
            records.update(key, |own| *own = record);
        }
        for (number, record) in (0..).zip(all) {
            assert_eq!(records.get(&format!("{number}.test")), record);
        }
        assert_eq!(records.get("other.test"), HostRecord::default());
        let key = records.key("0.test");
        records.update(key, |own| own.sitemaps = u32::MAX);
        assert_eq!(records.get("0.test"), of(true, 0, SEED - 1), "saturated");
    }

    #[test]
    fn an_empty_record_is_not_stored() {
        let mut records = HostRecords::new(&Secret::from_seed(1));
        let key = records.key("a.test");
        for _ in 0..2 {
            records.update(key, |_| ());
            assert!(records.is_empty());
            records.update(key, |own| own.pages = 3);
            assert_eq!(records.len(), 1);
            records.update(key, |own| own.pages -= 3);
            assert_eq!((records.len(), records.table.len()), (0, 0));
        }
    }
}
