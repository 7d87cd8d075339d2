//! Learned limits of evicted scopes, until they expire.

use super::super::backoff::{LEARNED_KEPT_FOR, Learned};
use crate::base::keys::ScopeKey;
use crate::base::sharded::ShardedTable;
use crate::base::time::Instant;

/// Learned limits by the keys of their scopes, in 32 bytes each.
///
/// A limit expires [`LEARNED_KEPT_FOR`] to twice that after its scope was evicted: limits are kept in two
/// generations, and the old one is dropped as a whole.
#[derive(Debug, Default)]
pub(super) struct LearnedLimits {
    young: ShardedTable<Entry>,
    old: ShardedTable<Entry>,
    /// A limit was kept at some time: in most crawls none is.
    is_used: bool,
    /// When the young generation began.
    since: Instant,
}

/// A scope's key, and its limits, in 32 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: ScopeKey,
    gap: u64,
    refused: u64,
    lanes: u32,
    known: bool,
    cuts: u8,
    /// Number of the last order to forget when it was evicted.
    orders: u16,
}

impl LearnedLimits {
    /// Keeps the limits of a scope that is evicted. `orders`: number of the last order to forget until now.
    pub fn insert(&mut self, key: ScopeKey, learned: Learned, orders: u16, now: Instant) {
        if !std::mem::replace(&mut self.is_used, true) {
            self.since = now;
        }
        self.take(key, now);
        let Learned {
            gap,
            refused,
            known,
            cuts,
            lanes,
        } = learned;
        let entry = Entry {
            key,
            gap,
            refused,
            lanes,
            known,
            cuts,
            orders,
        };
        let hash_of = |entry: &Entry| entry.key.0;
        let shard = self.young.shard_with_room(key.0, hash_of);
        shard.insert_unique(key.0, entry, hash_of);
    }

    /// Removes and returns the limits of a scope, and the number of the last order to forget before they were kept;
    /// `None` if they have expired.
    pub fn take(&mut self, key: ScopeKey, now: Instant) -> Option<(Learned, u16)> {
        if !self.is_used {
            return None;
        }
        self.expire(now);
        let tables = [&mut self.young, &mut self.old].into_iter();
        let mut shards = tables.map(|table| table.shard_mut(key.0));
        shards.find_map(|shard| {
            let entry = shard.find_entry(key.0, |entry| entry.key == key).ok()?;
            let entry = entry.remove().0;
            let learned = Learned {
                gap: entry.gap,
                refused: entry.refused,
                known: entry.known,
                cuts: entry.cuts,
                lanes: entry.lanes,
            };
            Some((learned, entry.orders))
        })
    }

    /// Returns whether none was ever kept.
    pub fn is_empty(&self) -> bool {
        !self.is_used
    }

    /// Number of scopes.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn expire(&mut self, now: Instant) {
        let age = now.saturating_since(self.since);
        if age < LEARNED_KEPT_FOR {
            return;
        }
        let young = std::mem::take(&mut self.young);
        self.old = match age < 2 * LEARNED_KEPT_FOR {
            true => young,
            false => ShardedTable::new(),
        };
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::throttle::backoff::Backoff;

    fn learned() -> Learned {
        let backoff = Backoff::starting_at(Duration::from_secs(3), Instant::START);
        backoff.compact().expect("a limit")
    }

    fn at(hours: u64) -> Instant {
        Instant::START + Duration::from_secs(hours * 3600)
    }

    #[test]
    fn a_limit_takes_32_bytes() {
        assert_eq!(size_of::<Entry>(), 32);
    }

    #[test]
    fn a_limit_is_returned_once_and_expires_after_one_to_two_days() {
        let check = |evicted: u64, asked: u64| {
            let mut limits = LearnedLimits::default();
            limits.insert(ScopeKey(1), learned(), 3, at(0));
            limits.insert(ScopeKey(7), learned(), 4, at(evicted));
            let found = limits.take(ScopeKey(7), at(asked));
            assert!(found.is_none_or(|found| found == (learned(), 4)));
            assert_eq!(limits.take(ScopeKey(7), at(asked)), None, "taken");
            found.is_some()
        };
        assert!(check(0, 23) && check(0, 47) && check(23, 47) && check(30, 77));
        assert!(!check(0, 48) && !check(23, 72) && !check(30, 78));
    }

    #[test]
    fn expired_limits_take_no_memory_and_a_scope_has_one() {
        let mut limits = LearnedLimits::default();
        for hours in 0..1000 {
            for scope in 0..10 {
                limits.insert(ScopeKey(hours * 10 + scope), learned(), 0, at(hours));
                limits.insert(ScopeKey(hours * 10 + scope), learned(), 0, at(hours));
            }
            assert!(limits.len() <= 480, "{}", limits.len());
        }
    }
}
