//! A bounded cache of names: their addresses, their absence, and failed lookups.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use hashbrown::HashTable;

use super::answer::{Addresses, Answer, Fault, Source};
use super::lookup::Outcome;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::fetch::failure::Failure;

/// Names and what is known of them, up to `entries_max` and [`ENTRY_BYTES`] for each of these.
///
/// When full it evicts an expired name, or one that was not used since the clock hand last passed
/// it (the CLOCK algorithm). Each answer that is stored also has [`SWEPT_PER_ANSWER`] entries checked in turn,
/// of which the expired are evicted, full or not.
pub(super) struct Cache {
    entries: Vec<Entry>,
    /// Indices into `entries`, found by name.
    by_host: HashTable<u32>,
    hasher: Secret,
    entries_max: usize,
    /// Maximum time before a failing name is retried.
    backoff_max: Duration,
    /// Memory of the entries, in bytes: an answer may have thousands of addresses.
    bytes: usize,
    hand: usize,
    /// Index of the entry that is next checked for its age.
    swept: usize,
    /// Failures from before this time are ignored.
    failures_from: Instant,
}

/// Cache entry of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It has addresses, until they expire.
    Found {
        addresses: Addresses,
        expires: Instant,
    },
    /// It has no addresses, until this expires.
    Absent { fault: Fault, expires: Instant },
    /// The lookup failed; it is not retried before `until`.
    Failing {
        fault: Fault,
        until: Instant,
        backoff: Duration,
    },
}

struct Entry {
    host: Box<str>,
    known: Known,
    /// Used since the hand last passed.
    used: bool,
}

impl Cache {
    /// An empty cache.
    pub(super) fn new(entries_max: usize, backoff_max: Duration, secret: &Secret) -> Self {
        Cache {
            entries: Vec::new(),
            by_host: HashTable::new(),
            hasher: *secret,
            entries_max: entries_max.max(1),
            backoff_max,
            bytes: 0,
            hand: 0,
            swept: 0,
            failures_from: Instant::START,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Valid answers for a name.
    pub(super) fn get(&mut self, host: &str, now: Instant) -> Option<&Known> {
        let index = self.find(host)?;
        let entry = &mut self.entries[index];
        if entry.known.until() <= now || entry.known.failed_before(self.failures_from) {
            return None;
        }
        entry.used = true;
        Some(&entry.known)
    }

    /// If a host was not found, it is looked up anew at this time, unless that is sooner already.
    pub(super) fn retry_by(&mut self, host: &str, at: Instant) {
        let Some(index) = self.find(host) else {
            return;
        };
        match &mut self.entries[index].known {
            Known::Found { .. } => {}
            Known::Absent { expires: until, .. } | Known::Failing { until, .. } => {
                *until = at.min(*until);
            }
        }
    }

    /// Stores the result of a lookup, replacing the entry.
    ///
    /// Each consecutive failure doubles the time until the next try. A failure does not replace
    /// addresses that are still valid.
    pub(super) fn put(&mut self, host: &str, outcome: &Outcome, now: Instant) {
        self.sweep(now);
        let found = self.find(host);
        let known = match (outcome, found.map(|index| &self.entries[index].known)) {
            (Outcome::Found { addresses, expires }, _) => Known::Found {
                addresses: addresses.clone(),
                expires: *expires,
            },
            (Outcome::Absent { fault, expires }, _) => Known::Absent {
                fault: *fault,
                expires: *expires,
            },
            (Outcome::Failed(_), Some(Known::Found { expires, .. })) if *expires > now => return,
            (Outcome::Failed(fault), Some(known @ Known::Failing { backoff, .. }))
                if !known.failed_before(self.failures_from) =>
            {
                Known::failing(*fault, (*backoff * 2).min(self.backoff_max), now)
            }
            (Outcome::Failed(fault), _) => {
                Known::failing(*fault, BACKOFF_MIN.min(self.backoff_max), now)
            }
        };
        let index = match found {
            Some(index) => {
                let entry = &mut self.entries[index];
                self.bytes -= entry.bytes();
                entry.known = known;
                self.bytes += entry.bytes();
                index
            }
            None => self.insert(host, known),
        };
        self.make_room(index, now);
    }

    /// Evicts what has expired among the next few entries.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEPT_PER_ANSWER.min(self.entries.len()) {
            if self.swept >= self.entries.len() {
                self.swept = 0;
            }
            match self.entries.get(self.swept) {
                Some(entry) if entry.known.kept_until() <= now => self.remove(self.swept),
                _ => self.swept += 1,
            }
        }
    }

    /// Discards all failures so far, because the name servers did not work.
    pub(super) fn forget_failures(&mut self, now: Instant) {
        self.failures_from = now;
    }

    /// The valid answer for a name, without counting that as use.
    pub(super) fn peek(&self, host: &str, now: Instant) -> Option<&Known> {
        let known = &self.entries[self.find(host)?].known;
        let is_valid = known.until() > now && !known.failed_before(self.failures_from);
        is_valid.then_some(known)
    }

    /// Returns whether an entry for a name is valid now, without counting that as use.
    pub(super) fn knows(&self, host: &str, now: Instant) -> bool {
        self.peek(host, now).is_some()
    }

    fn find(&self, host: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(host);
        self.by_host
            .find(hash, |index| *self.entries[*index as usize].host == *host)
            .map(|index| *index as usize)
    }

    /// Adds an entry and returns its index, the last.
    fn insert(&mut self, host: &str, known: Known) -> usize {
        let entry = Entry {
            host: host.into(),
            known,
            used: false,
        };
        self.bytes += entry.bytes();
        self.entries.push(entry);
        let index = self.entries.len() - 1;
        let hash = self.hasher.hash_one(host);
        self.by_host.insert_unique(hash, index as u32, |index| {
            self.hasher.hash_one(&*self.entries[*index as usize].host)
        });
        index
    }

    /// Evicts entries while there are too many, or too large ones, but not the one at `newest`.
    fn make_room(&mut self, mut newest: usize, now: Instant) {
        let bytes_max = self.entries_max.saturating_mul(ENTRY_BYTES);
        while self.entries.len() > 1
            && (self.entries.len() > self.entries_max || self.bytes > bytes_max)
        {
            let index = self.next_to_evict(newest, now);
            self.remove(index);
            if newest == self.entries.len() {
                // It was the last, and is now in the place of the evicted one.
                newest = index;
            }
        }
    }

    /// Index of the entry to evict next, other than `newest`; moves the hand past it.
    fn next_to_evict(&mut self, newest: usize, now: Instant) -> usize {
        let mut steps = 0;
        loop {
            let index = self.hand % self.entries.len();
            self.hand = index + 1;
            if index == newest {
                continue;
            }
            let entry = &mut self.entries[index];
            steps += 1;
            if !entry.used || entry.known.until() <= now || steps > STEPS_MAX {
                return index;
            }
            entry.used = false;
        }
    }

    /// Removes an entry; the last one gets its index.
    fn remove(&mut self, index: usize) {
        self.unindex(index);
        let last = self.entries.len() - 1;
        if index != last {
            self.unindex(last);
        }
        let removed = self.entries.swap_remove(index);
        self.bytes -= removed.bytes();
        if let Some(moved) = self.entries.get(index) {
            let hash = self.hasher.hash_one(&*moved.host);
            self.by_host.insert_unique(hash, index as u32, |index| {
                self.hasher.hash_one(&*self.entries[*index as usize].host)
            });
        }
    }

    fn unindex(&mut self, index: usize) {
        let hash = self.hasher.hash_one(&*self.entries[index].host);
        self.by_host
            .find_entry(hash, |found| *found as usize == index)
            .expect("every entry is in the index")
            .remove();
    }
}

impl Entry {
    /// Its memory, in bytes, with its place in the index.
    fn bytes(&self) -> usize {
        let spilled = match &self.known {
            Known::Found { addresses, .. } if addresses.spilled() => {
                addresses.capacity() * size_of::<IpAddr>()
            }
            _ => 0,
        };
        size_of::<Entry>() + size_of::<u64>() + self.host.len() + spilled
    }
}

impl Known {
    fn failing(fault: Fault, backoff: Duration, now: Instant) -> Self {
        Known::Failing {
            fault,
            until: now + backoff,
            backoff,
        }
    }

    /// The answer for a caller.
    pub(super) fn answer(&self) -> Result<Answer, Failure> {
        match self {
            Known::Found { addresses, expires } => Ok(Answer {
                addresses: addresses.clone(),
                port: None,
                expires: *expires,
                source: Source::Cache,
            }),
            Known::Absent { fault, .. } | Known::Failing { fault, .. } => Err(fault.failure()),
        }
    }

    /// Returns whether it is a failure from before this time.
    fn failed_before(&self, at: Instant) -> bool {
        match self {
            Known::Failing { until, backoff, .. } => *until < at + *backoff,
            Known::Found { .. } | Known::Absent { .. } => false,
        }
    }

    /// Until when it is valid.
    /// When the entry is of no more use. A failure counts for the next one for a while.
    fn kept_until(&self) -> Instant {
        match self {
            Known::Found { .. } | Known::Absent { .. } => self.until(),
            Known::Failing { until, .. } => *until + FAILURE_KEPT,
        }
    }

    /// When it expires, or is looked up again.
    pub(super) fn until(&self) -> Instant {
        match self {
            Known::Found { expires, .. } | Known::Absent { expires, .. } => *expires,
            Known::Failing { until, .. } => *until,
        }
    }
}

/// Minimum time before a failed name is retried. Resolvers cache a failure for about 5 s, so a
/// shorter time would repeat their answer; RFC 2308 §7 permits up to five minutes.
pub(super) const BACKOFF_MIN: Duration = Duration::from_secs(30);

/// Memory of an entry that the cache has room for, in bytes: a name of 30 bytes with two addresses takes
/// less.
const ENTRY_BYTES: usize = 192;

/// Maximum number of entries checked to find one to evict, which bounds the work if all were used.
const STEPS_MAX: usize = 64;

/// Entries checked for their age with each answer: more than one, so that the check goes round faster than
/// entries come.
const SWEPT_PER_ANSWER: usize = 4;

/// How long a failure is kept beyond its wait, in which another one doubles the wait.
const FAILURE_KEPT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    fn absent(until: u64) -> Outcome {
        Outcome::Absent {
            fault: Fault::NoData,
            expires: at(until),
        }
    }

    #[test]
    fn expired_entries_are_evicted_though_there_is_room() {
        let mut cache = Cache::new(1000, BACKOFF_MAX, &Secret::from_seed(1));
        for number in 0..100 {
            let expires = if number % 2 == 0 { 10 } else { 1000 };
            cache.put(&format!("{number}.test"), &absent(expires), at(0));
        }
        cache.put("failing.test", &Outcome::Failed(Fault::Timeout), at(0));
        for number in 0..100 {
            cache.put(&format!("later{number}.test"), &absent(1000), at(20));
        }
        assert_eq!(cache.len(), 50 + 1 + 100);
        for number in 0..100 {
            let host = format!("{number}.test");
            assert_eq!(cache.knows(&host, at(20)), number % 2 == 1, "{host}");
            assert_eq!(cache.find(&host).is_some(), number % 2 == 1, "{host}");
        }
    }

    #[test]
    fn an_entry_is_valid_until_it_expires() {
        let mut cache = Cache::new(10, BACKOFF_MAX, &Secret::from_seed(1));
        cache.put("a.test", &absent(10), at(0));
        assert!(cache.get("a.test", at(9)).is_some());
        assert!(cache.knows("a.test", at(9)));
        assert!(cache.get("a.test", at(10)).is_none());
        assert!(!cache.knows("a.test", at(10)));
        assert!(cache.get("b.test", at(9)).is_none());
    }

    #[test]
    fn a_full_cache_keeps_used_entries() {
        let mut cache = Cache::new(100, BACKOFF_MAX, &Secret::from_seed(1));
        cache.put("kept.test", &absent(10), at(0));
        for number in 0..1000 {
            cache.put(&format!("{number}.test"), &absent(10), at(0));
            assert!(cache.get("kept.test", at(1)).is_some(), "after {number}");
            assert!(cache.len() <= 100);
        }
        assert!(cache.get("999.test", at(1)).is_some());
        assert!(cache.get("0.test", at(1)).is_none());
    }

    #[test]
    fn a_cache_of_used_entries_still_accepts_new_ones() {
        let mut cache = Cache::new(200, BACKOFF_MAX, &Secret::from_seed(1));
        for number in 0..1000 {
            let host = format!("{number}.test");
            cache.put(&host, &absent(10), at(0));
            assert!(cache.get(&host, at(1)).is_some());
            assert!(cache.len() <= 200);
        }
    }

    #[test]
    fn the_cache_is_bounded_in_bytes_and_keeps_the_newest_answer() {
        let found = |addresses: usize| Outcome::Found {
            addresses: (0..addresses)
                .map(|_| IpAddr::from([10, 0, 0, 1]))
                .collect(),
            expires: at(10),
        };
        let mut cache = Cache::new(1000, BACKOFF_MAX, &Secret::from_seed(1));
        let name = |number: usize| format!("{number}.{}.test", "x".repeat(20));
        for number in 0..1000 {
            cache.put(&name(number), &found(2), at(0));
        }
        assert_eq!(cache.len(), 1000, "usual ones all have room");
        for round in 0..3 {
            for number in 0..200 {
                let host = name(number * 7);
                cache.put(&host, &found(4000), at(0));
                assert!(cache.get(&host, at(1)).is_some(), "{round} {number}");
                assert!(cache.bytes <= 192_000 || cache.len() == 1);
            }
        }
        assert!(cache.len() <= 2);
        for number in 0..1000 {
            cache.put(&name(number), &found(1), at(0));
        }
        let sum: usize = cache.entries.iter().map(Entry::bytes).sum();
        assert_eq!((cache.bytes, cache.by_host.len()), (sum, cache.len()));
        for number in 0..1000 {
            let index = cache.find(&name(number));
            assert!(index.is_none_or(|index| *cache.entries[index].host == name(number)));
        }
    }

    #[test]
    fn an_expired_entry_is_evicted_before_one_that_is_valid() {
        let mut cache = Cache::new(10, BACKOFF_MAX, &Secret::from_seed(1));
        for number in 0..10 {
            let expires = if number == 5 { 10 } else { 1000 };
            cache.put(&format!("{number}.test"), &absent(expires), at(0));
            cache.get(&format!("{number}.test"), at(1));
        }
        cache.put("new.test", &absent(1000), at(20));
        assert!(cache.find("5.test").is_none());
        assert_eq!(cache.len(), 10);
    }

    #[test]
    fn the_bound_of_the_wait_holds_for_the_first_failure() {
        let failed = Outcome::Failed(Fault::Timeout);
        let mut cache = Cache::new(10, Duration::from_secs(2), &Secret::from_seed(1));
        for round in 0..5 {
            cache.put("a.test", &failed, at(2 * round));
            assert!(cache.get("a.test", at(2 * round + 1)).is_some());
            assert!(cache.get("a.test", at(2 * round + 2)).is_none());
        }
    }

    #[test]
    fn retries_of_a_failing_name_back_off_up_to_a_bound() {
        let failed = Outcome::Failed(Fault::Timeout);
        let mut cache = Cache::new(10, BACKOFF_MAX, &Secret::from_seed(1));
        let mut now = at(0);
        for expected in [30, 60, 120, 240, 480, 900, 900] {
            cache.put("a.test", &failed, now);
            let until = now + Duration::from_secs(expected);
            let before = until - Duration::from_nanos(1);
            assert!(cache.get("a.test", before).is_some());
            assert!(cache.get("a.test", until).is_none());
            now = until;
        }
        cache.put("a.test", &absent(5000), now);
        cache.put("a.test", &failed, at(6000));
        assert!(
            cache.get("a.test", at(6030)).is_none(),
            "success resets the backoff"
        );
    }
}
