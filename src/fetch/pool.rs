//! Idle connections by origin: the one used last goes first, the one idle longest ends first.

use std::time::Duration;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::time::Instant;

/// Connections that wait for their origin's next request. Everything takes constant time.
///
/// A connection is known by its slot in the caller's table, which is small and dense.
#[derive(Debug)]
pub struct Pool {
    /// By slot. Links run through it: by age over all, and through each origin's stack.
    entries: Vec<Option<Entry>>,
    /// The connection that each origin used last.
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
    /// Of the same origin.
    below: Option<u32>,
    above: Option<u32>,
}

impl Pool {
    /// An empty pool that holds `count_max` connections for `idle_timeout` each.
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

    /// Lets a connection wait. At the bound, the one returned must be closed: the one idle
    /// longest, or this one where nothing may wait at all.
    #[must_use = "a connection that is pushed out must be closed"]
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
            "a connection waits in one place"
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

    /// Takes the origin's connection that was used last: the one most likely to be alive.
    pub fn take(&mut self, origin: u64) -> Option<u32> {
        let connection = *self.tops.get(&origin)?;
        self.remove(connection);
        Some(connection)
    }

    /// Takes of the origin's connections the one used last that `is_wanted`, of few.
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

    /// Forgets a connection, wherever it waits; says whether it did.
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

    /// Takes a connection that has waited for too long, and must be closed. Call until `None`.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        if now < self.deadline()? {
            return None;
        }
        let oldest = self.oldest?;
        self.remove(oldest);
        Some(oldest)
    }

    /// When the next connection will have waited for too long.
    pub fn deadline(&self) -> Option<Instant> {
        let oldest = self.entries[self.oldest? as usize].as_ref();
        Some(oldest.expect("links lead to those that wait").since + self.idle_timeout)
    }

    /// Takes the connection idle longest, which must be closed: its socket is needed elsewhere.
    pub fn evict(&mut self) -> Option<u32> {
        let oldest = self.oldest?;
        self.remove(oldest);
        Some(oldest)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn entry(&mut self, connection: u32) -> &mut Entry {
        let entry = self.entries[connection as usize].as_mut();
        entry.expect("links lead to those that wait")
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
    fn the_connection_used_last_goes_first() {
        let mut pool = pool(9);
        for connection in [4, 7, 1] {
            assert_eq!(pool.put(0, connection, at(0)), None);
        }
        assert_eq!(pool.take(5), None);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take(0)).collect();
        assert_eq!(taken, [1, 7, 4]);
    }

    #[test]
    fn of_the_wanted_ones_the_connection_used_last_goes_first_and_the_others_stay() {
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
    fn at_the_bound_the_one_idle_longest_is_pushed_out() {
        let mut pool = pool(2);
        assert_eq!(pool.put(0, 10, at(0)), None);
        assert_eq!(pool.put(1, 11, at(0)), None);
        assert_eq!(pool.put(2, 12, at(0)), Some(10));
        assert_eq!(pool.take(0), None);
        assert_eq!(pool.len(), 2);
    }

    #[test]
    fn nothing_waits_where_nothing_may() {
        assert_eq!(pool(0).put(0, 3, at(0)), Some(3));
    }

    /// What the pool must do, in the plainest way: a list, the oldest first.
    #[derive(Default)]
    struct Model(Vec<(u64, u32, Instant)>);

    proptest! {
        #[test]
        fn it_does_what_a_plain_list_does(
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
