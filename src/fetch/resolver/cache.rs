//! A bounded cache of names: their addresses, their absence, and failed lookups.

use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::HashTable;

use super::answer::{Addresses, Answer, Fault, Source};
use super::lookup::Outcome;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::fetch::failure::Failure;

/// Names and what is known of them, up to `entries_max`.
///
/// When full it evicts an expired name, or one that was not used since the clock hand last passed
/// it (the CLOCK algorithm).
pub(super) struct Cache {
    entries: Vec<Entry>,
    /// Indices into `entries`, found by name.
    by_host: HashTable<u32>,
    hasher: Secret,
    entries_max: usize,
    hand: usize,
    /// Failures from before this time are ignored.
    failures_from: Instant,
}

/// What is known of a name.
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
    pub(super) fn new(entries_max: usize, secret: &Secret) -> Self {
        Cache {
            entries: Vec::new(),
            by_host: HashTable::new(),
            hasher: *secret,
            entries_max: entries_max.max(1),
            hand: 0,
            failures_from: Instant::START,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is valid for a name now.
    pub(super) fn get(&mut self, host: &str, now: Instant) -> Option<&Known> {
        let index = self.find(host)?;
        let entry = &mut self.entries[index];
        if entry.known.until() <= now || entry.known.failed_before(self.failures_from) {
            return None;
        }
        entry.used = true;
        Some(&entry.known)
    }

    /// Stores the result of a lookup, replacing the entry.
    ///
    /// Each consecutive failure doubles the time until the next try. A failure does not replace
    /// addresses that are still valid.
    pub(super) fn put(&mut self, host: &str, outcome: &Outcome, now: Instant) {
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
                Known::failing(*fault, (*backoff * 2).min(BACKOFF_MAX), now)
            }
            (Outcome::Failed(fault), _) => Known::failing(*fault, BACKOFF_MIN, now),
        };
        match found {
            Some(index) => self.entries[index].known = known,
            None => self.insert(host, known),
        }
    }

    /// Discards all failures so far, because the name servers did not work.
    pub(super) fn forget_failures(&mut self, now: Instant) {
        self.failures_from = now;
    }

    /// Returns whether an entry for a name is valid now, without counting that as use.
    pub(super) fn knows(&self, host: &str, now: Instant) -> bool {
        self.find(host).is_some_and(|index| {
            let known = &self.entries[index].known;
            known.until() > now && !known.failed_before(self.failures_from)
        })
    }

    fn find(&self, host: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(host);
        self.by_host
            .find(hash, |index| *self.entries[*index as usize].host == *host)
            .map(|index| *index as usize)
    }

    fn insert(&mut self, host: &str, known: Known) {
        let entry = Entry {
            host: host.into(),
            known,
            used: false,
        };
        let index = if self.entries.len() < self.entries_max {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let index = self.evict();
            self.entries[index] = entry;
            index
        };
        let hash = self.hasher.hash_one(host);
        self.by_host.insert_unique(hash, index as u32, |index| {
            self.hasher.hash_one(&*self.entries[*index as usize].host)
        });
    }

    /// Frees an entry and returns its index.
    fn evict(&mut self) -> usize {
        for _ in 0..STEPS_MAX {
            let entry = &mut self.entries[self.hand];
            if !entry.used {
                break;
            }
            entry.used = false;
            self.hand = (self.hand + 1) % self.entries.len();
        }
        let index = self.hand;
        self.hand = (self.hand + 1) % self.entries.len();
        let hash = self.hasher.hash_one(&*self.entries[index].host);
        self.by_host
            .find_entry(hash, |found| *found as usize == index)
            .expect("every entry is in the index")
            .remove();
        index
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
    fn until(&self) -> Instant {
        match self {
            Known::Found { expires, .. } | Known::Absent { expires, .. } => *expires,
            Known::Failing { until, .. } => *until,
        }
    }
}

/// Minimum time before a failed name is retried. Resolvers cache a failure for about 5 s, so a
/// shorter time would repeat their answer; RFC 2308 §7 permits up to five minutes.
pub(super) const BACKOFF_MIN: Duration = Duration::from_secs(30);

/// Maximum time before a failing name is retried: as long as a failing host is held.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);

/// Maximum number of entries checked to find one to evict, which bounds the work if all were used.
const STEPS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_entry_is_valid_until_it_expires() {
        let mut cache = Cache::new(10, &Secret::from_seed(1));
        cache.put("a.test", &absent(10), at(0));
        assert!(cache.get("a.test", at(9)).is_some());
        assert!(cache.knows("a.test", at(9)));
        assert!(cache.get("a.test", at(10)).is_none());
        assert!(!cache.knows("a.test", at(10)));
        assert!(cache.get("b.test", at(9)).is_none());
    }

    #[test]
    fn a_full_cache_keeps_used_entries() {
        let mut cache = Cache::new(100, &Secret::from_seed(1));
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
        let mut cache = Cache::new(200, &Secret::from_seed(1));
        for number in 0..1000 {
            let host = format!("{number}.test");
            cache.put(&host, &absent(10), at(0));
            assert!(cache.get(&host, at(1)).is_some());
            assert!(cache.len() <= 200);
        }
    }

    #[test]
    fn retries_of_a_failing_name_back_off_up_to_a_bound() {
        let failed = Outcome::Failed(Fault::Timeout);
        let mut cache = Cache::new(10, &Secret::from_seed(1));
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
