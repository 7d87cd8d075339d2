//! Idle connections by origin: the most recently used one is reused first. If there are too many, the one
//! that is needed last is closed: in a rotation over more origins than connections, the one idle for the
//! longest is the one needed next.
//!
//! Hand-written: pools in libraries belong to an HTTP client and hold its connections, and this one
//! holds only numbers.

use std::collections::BinaryHeap;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::time::Instant;

/// Connections that wait for the next request of their origin. All operations except
/// [`Pool::take_where`] take constant time while the pool is not full. In a full one, adding and closing take
/// logarithmic time, and all are ordered anew once in a while.
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
    /// The order in which they are closed. Empty until one has to be: most pools never are full.
    order: BinaryHeap<Closing>,
    /// Number of the next entry.
    next: u64,
    count: usize,
    count_max: usize,
    idle_timeout: Duration,
}

/// The connection needed last is closed first; of several, the one that came last.
///
/// Void if its connection has another number by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Closing {
    due: Instant,
    number: u64,
    connection: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    origin: u64,
    since: Instant,
    due: Instant,
    number: u64,
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
            order: BinaryHeap::new(),
            next: 0,
            count: 0,
            count_max,
            idle_timeout,
        }
    }

    /// Adds an idle connection that is needed at `due`, as far as is known. If there are too many now, returns
    /// the one to close: the one needed last, which may be this one.
    #[must_use = "the returned connection must be closed"]
    pub fn put(&mut self, origin: u64, connection: u32, due: Instant, now: Instant) -> Option<u32> {
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
        let number = self.next;
        self.next += 1;
        self.entries[slot] = Some(Entry {
            origin,
            since: now,
            due,
            number,
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
        if self.order.len() > 2 * self.count + ORDER_SLACK {
            // Entries of connections that were taken would pile up.
            self.order.clear();
        } else if !self.order.is_empty() {
            self.order.push(Closing {
                due,
                number,
                connection,
            });
        }
        match self.count > self.count_max {
            true => self.evict(),
            false => None,
        }
    }

    /// Whether a connection is in the pool.
    pub fn has(&self, connection: u32) -> bool {
        let entry = self.entries.get(connection as usize);
        entry.is_some_and(Option::is_some)
    }

    /// Number of an origin's connections; a linear search over these.
    pub fn count_of(&self, origin: u64) -> usize {
        let mut next = self.tops.get(&origin).copied();
        let mut count = 0;
        while let Some(connection) = next {
            count += 1;
            next = self.entries[connection as usize].and_then(|entry| entry.below);
        }
        count
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

    /// Takes the connection that is needed last, to be closed because its socket is needed.
    pub fn evict(&mut self) -> Option<u32> {
        if self.order.is_empty() {
            self.sort();
        }
        while let Some(last) = self.order.pop() {
            let entry = self.entries[last.connection as usize];
            if entry.is_some_and(|entry| entry.number == last.number) {
                self.remove(last.connection);
                return Some(last.connection);
            }
        }
        debug_assert_eq!(self.count, 0, "each connection has its place in the order");
        None
    }

    /// Orders all connections by when they are needed.
    fn sort(&mut self) {
        let mut next = self.youngest;
        let mut order = std::mem::take(&mut self.order).into_vec();
        order.clear();
        while let Some(connection) = next {
            let entry = self.entry(connection);
            next = entry.older;
            order.push(Closing {
                due: entry.due,
                number: entry.number,
                connection,
            });
        }
        self.order = order.into();
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

/// Void entries of the order beyond as many as there are others.
const ORDER_SLACK: usize = 64;

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
            assert_eq!(pool.put(0, connection, at(0), at(0)), None);
        }
        assert_eq!(pool.take(5), None);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take(0)).collect();
        assert_eq!(taken, [1, 7, 4]);
    }

    #[test]
    fn the_most_recently_used_matching_connection_is_taken() {
        let mut pool = pool(9);
        for connection in [4, 7, 1, 8] {
            assert_eq!(pool.put(0, connection, at(0), at(0)), None);
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
    fn a_full_pool_closes_the_connection_that_is_needed_last() {
        let mut pool = pool(2);
        assert_eq!(pool.put(0, 10, at(5), at(0)), None);
        assert_eq!(pool.put(1, 11, at(9), at(0)), None);
        assert_eq!(pool.put(2, 12, at(7), at(0)), Some(11));
        assert_eq!(pool.put(3, 13, at(8), at(0)), Some(13), "the new one");
        assert_eq!(pool.take(0), Some(10));
        assert_eq!(pool.put(4, 14, at(7), at(0)), None);
        assert_eq!(pool.put(5, 15, at(6), at(0)), Some(14), "the later of two");
        assert_eq!((pool.take(1), pool.take(2)), (None, Some(12)));
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn a_rotation_over_more_origins_than_connections_finds_most_of_them() {
        let mut pool = pool(80);
        let mut found = 0;
        for step in 0..1000_u64 {
            let (origin, now) = (step % 100, at(step));
            let connection = pool.take(origin);
            found += usize::from(connection.is_some());
            let connection = connection.unwrap_or(step as u32);
            let _ = pool.put(origin, connection, now + Duration::from_millis(100), now);
        }
        assert_eq!(found, 80 * 9);
        assert!(pool.order.len() <= 2 * 81 + ORDER_SLACK + 1);
    }

    #[test]
    fn a_pool_of_size_zero_keeps_nothing() {
        assert_eq!(pool(0).put(0, 3, at(0), at(0)), Some(3));
    }

    /// A reference model: a plain list, oldest first.
    #[derive(Default)]
    struct Model(Vec<(u64, u32, Instant, u64)>);

    impl Model {
        /// Removes the connection that is needed last: the later one of several.
        fn evict(&mut self) -> Option<u32> {
            let dues = self.0.iter().enumerate();
            let (last, _) = dues.max_by_key(|(_, waiting)| waiting.3)?;
            Some(self.0.remove(last).1)
        }
    }

    proptest! {
        #[test]
        fn a_pool_behaves_like_a_plain_list(
            steps in prop::collection::vec((0..7_u8, 0..4_u64, 0..12_u32, 0..60_u64), 1..400),
        ) {
            let mut pool = pool(5);
            let mut model = Model::default();
            let mut now = at(0);
            for (step, origin, connection, pause) in steps {
                match step {
                    0..=2 if !model.0.iter().any(|waiting| waiting.1 == connection) => {
                        let due = pause / 10;
                        model.0.push((origin, connection, now, due));
                        let is_full = model.0.len() > 5;
                        let expected = if is_full { model.evict() } else { None };
                        prop_assert_eq!(pool.put(origin, connection, at(due), now), expected);
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
                    5 => prop_assert_eq!(pool.evict(), model.evict()),
                    _ => now += Duration::from_millis(pause),
                }
                let over = |waiting: &&(u64, u32, Instant, u64)| now >= waiting.2 + pool.idle_timeout;
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
