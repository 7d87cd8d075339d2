//! The seen set: which URLs were admitted, by fingerprint.

use hashbrown::hash_table::Entry;

use crate::base::sharded::ShardedTable;

/// Fingerprints of admitted URLs.
///
/// 64 bits each: among 100 million URLs the chance that any two collide is 0.03 %, and a collision
/// costs one page. About 9 to 18 bytes a URL.
#[derive(Debug, Default)]
pub struct Seen {
    prints: ShardedTable<u64>,
}

impl Seen {
    /// Adds a fingerprint; false if it was there.
    pub fn insert(&mut self, print: u64) -> bool {
        let shard = self.prints.shard_mut(print);
        match shard.entry(print, |other| *other == print, |p| *p) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(print);
                true
            }
        }
    }

    /// Whether the fingerprint is there.
    pub fn contains(&self, print: u64) -> bool {
        let shard = self.prints.shard(print);
        shard.find(print, |other| *other == print).is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.prints.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_new_once() {
        let mut seen = Seen::default();
        assert!(seen.insert(7));
        assert!(!seen.insert(7));
        assert!(seen.contains(7));
        assert!(!seen.contains(8));
        assert_eq!(seen.len(), 1);
    }
}
