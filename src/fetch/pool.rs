//! Idle connections by origin: the most recently used one is reused first, the longest idle one is
//! closed first.
//!
//! Hand-written: pools in libraries belong to an HTTP client and hold its connections, and this one
//! holds only numbers.

use std::time::Duration;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::time::Instant;

/// Connections that wait for the next request of their origin. All operations except
/// [`Pool::take_where`] take constant time.
///
/// A connection is identified by its slot in the caller's table, a small and dense number.
#[derive(Debug)]
pub struct Pool {
    /// By slot. Linked lists run through it: one by age over all, and one stack per origin.
    entries: Vec<Option<Entry>>,
    /// The most recently used connection of each origin.
    tops: HashMap<u64, u32, Secret>,
    /// The connections idle longest and shortest.
    oldest: Option<u32>,
    youngest: Option<u32>,
    count: usize,
    count_max: usize,
    idle_timeout: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    origin: u64,
    since: Instant,
    older: Option<u32>,
    younger: Option<u32>,
    /// In the stack of the same origin.
    below: Option<u32>,
    above: Option<u32>,
}

impl Pool {
    /// An empty pool for up to `count_max` connections, each for `idle_timeout`.
    pub fn new(count_max: usize, idle_timeout: Duration, secret: &Secret) -> Self {
        Pool {
            entries: Vec::new(),
            tops: HashMap::with_hasher(*secret),
            oldest: None,
            youngest: None,
            count: 0,
            count_max,
            idle_timeout,
        }
    }

    /// Adds an idle connection. If the pool is full, returns the connection to close: the longest
    /// idle one, or this one if the pool holds none at all.
    #[must_use = "the returned connection must be closed"]
    pub fn put(&mut self, origin: u64, connection: u32, now: Instant) -> Option<u32> {
        if self.count_max == 0 {
            return Some(connection);
        }
        let pushed_out = if self.count == self.count_max {
            self.oldest
        } else {
            None
        };
        if let Some(oldest) = pushed_out {
            self.remove(oldest);
        }
        let slot = connection as usize;
        if self.entries.len() <= slot {
            self.entries.resize(slot + 1, None);
        }
        assert!(
            self.entries[slot].is_none(),
            "a connection is in the pool only once"
        );
        let below = self.tops.insert(origin, connection);
        let older = self.youngest.replace(connection);
        self.entries[slot] = Some(Entry {
            origin,
            since: now,
            older,
            younger: None,
            below,
            above: None,
        });
        if let Some(below) = below {
            self.entry(below).above = Some(connection);
        }
        match older {
            Some(older) => self.entry(older).younger = Some(connection),
            None => self.oldest = Some(connection),
        }
        self.count += 1;
        pushed_out
    }

    /// Takes the origin's most recently used connection, which is the most likely to be alive.
    pub fn take(&mut self, origin: u64) -> Option<u32> {
        let connection = *self.tops.get(&origin)?;
        self.remove(connection);
        Some(connection)
    }

    /// Takes the most recently used of the origin's connections for which `is_wanted` is true; a
    /// linear search over that origin's connections.
    pub fn take_where(&mut self, origin: u64, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let mut next = self.tops.get(&origin).copied();
        while let Some(connection) = next {
            if is_wanted(connection) {
                self.remove(connection);
                return Some(connection);
            }
            next = self.entries[connection as usize].and_then(|entry| entry.below);
        }
        None
    }

    /// Removes a connection from the pool. Returns whether it was there.
    pub fn remove(&mut self, connection: u32) -> bool {
        let slot = self.entries.get_mut(connection as usize);
        let Some(entry) = slot.and_then(Option::take) else {
            return false;
        };
        match entry.above {
            Some(above) => self.entry(above).below = entry.below,
            None => {
                match entry.below {
                    Some(below) => self.tops.insert(entry.origin, below),
                    None => self.tops.remove(&entry.origin),
                };
            }
        }
        if let Some(below) = entry.below {
            self.entry(below).above = entry.above;
        }
        match entry.younger {
            Some(younger) => self.entry(younger).older = entry.older,
            None => self.youngest = entry.older,
        }
        match entry.older {
            Some(older) => self.entry(older).younger = entry.younger,
            None => self.oldest = entry.younger,
        }
        self.count -= 1;
        true
    }

    /// Takes a connection whose idle timeout has expired, to be closed. Call it until it returns
    /// `None`.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        if now < self.deadline()? {
            return None;
        }
        let oldest = self.oldest?;
        self.remove(oldest);
        Some(oldest)
    }

    /// When the idle timeout of the next connection expires.
    pub fn deadline(&self) -> Option<Instant> {
        let oldest = self.entries[self.oldest? as usize].as_ref();
        Some(oldest.expect("links point to pooled connections").since + self.idle_timeout)
    }

    /// Takes the longest idle connection, to be closed because its socket is needed.
    pub fn evict(&mut self) -> Option<u32> {
        let oldest = self.oldest?;
        self.remove(oldest);
        Some(oldest)
    }

    /// Number of idle connections.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn entry(&mut self, connection: u32) -> &mut Entry {
        let entry = self.entries[connection as usize].as_mut();
        entry.expect("links point to pooled connections")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    fn pool(count_max: usize) -> Pool {
        Pool::new(count_max, Duration::from_millis(100), &Secret::from_seed(1))
    }

    #[test]
    fn the_most_recently_used_connection_is_reused_first() {
        let mut pool = pool(9);
        for connection in [4, 7, 1] {
            assert_eq!(pool.put(0, connection, at(0)), None);
        }
        assert_eq!(pool.take(5), None);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take(0)).collect();
        assert_eq!(taken, [1, 7, 4]);
    }

    #[test]
    fn the_most_recently_used_matching_connection_is_taken() {
        let mut pool = pool(9);
        for connection in [4, 7, 1, 8] {
            assert_eq!(pool.put(0, connection, at(0)), None);
        }
        assert_eq!(
            pool.take_where(0, |connection| connection % 2 == 1),
            Some(1)
        );
        assert_eq!(pool.take_where(0, |connection| connection > 8), None);
        assert_eq!(pool.take_where(5, |_| true), None);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take(0)).collect();
        assert_eq!(taken, [8, 7, 4]);
        assert_eq!(pool.len(), 0);
    }

    #[test]
    fn a_full_pool_closes_the_longest_idle_connection() {
        let mut pool = pool(2);
        assert_eq!(pool.put(0, 10, at(0)), None);
        assert_eq!(pool.put(1, 11, at(0)), None);
        assert_eq!(pool.put(2, 12, at(0)), Some(10));
        assert_eq!(pool.take(0), None);
        assert_eq!(pool.len(), 2);
    }

    #[test]
    fn a_pool_of_size_zero_keeps_nothing() {
        assert_eq!(pool(0).put(0, 3, at(0)), Some(3));
    }

    /// A reference model: a plain list, oldest first.
    #[derive(Default)]
    struct Model(Vec<(u64, u32, Instant)>);

    proptest! {
        #[test]
        fn a_pool_behaves_like_a_plain_list(
            steps in prop::collection::vec((0..6_u8, 0..4_u64, 0..12_u32, 0..60_u64), 1..200),
        ) {
            let mut pool = pool(5);
            let mut model = Model::default();
            let mut now = at(0);
            for (step, origin, connection, pause) in steps {
                match step {
                    0..=2 if !model.0.iter().any(|waiting| waiting.1 == connection) => {
                        let full = model.0.len() == 5;
                        let expected = full.then(|| model.0.remove(0).1);
                        model.0.push((origin, connection, now));
                        prop_assert_eq!(pool.put(origin, connection, now), expected);
                    }
                    3 => {
                        let found = model.0.iter().rposition(|waiting| waiting.0 == origin);
                        let expected = found.map(|index| model.0.remove(index).1);
                        prop_assert_eq!(pool.take(origin), expected);
                    }
                    4 => {
                        let found = model.0.iter().position(|waiting| waiting.1 == connection);
                        let expected = found.map(|index| model.0.remove(index)).is_some();
                        prop_assert_eq!(pool.remove(connection), expected);
                    }
                    _ => now += Duration::from_millis(pause),
                }
                let over = |waiting: &&(u64, u32, Instant)| now >= waiting.2 + pool.idle_timeout;
                let expired: Vec<u32> = model.0.iter().filter(over).map(|w| w.1).collect();
                model.0.drain(..expired.len());
                let gone: Vec<u32> = std::iter::from_fn(|| pool.expire(now)).collect();
                prop_assert_eq!(gone, expired);
                prop_assert_eq!(pool.len(), model.0.len());
                let next = model.0.first().map(|waiting| waiting.2 + pool.idle_timeout);
                prop_assert_eq!(pool.deadline(), next);
            }
        }
    }
}
