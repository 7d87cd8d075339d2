//! Requests that must not be made twice: each departs only once its start is committed.
//!
//! ```text
//! (connected) ──► recorded ──(an epoch begins)──► in epoch ──(it is committed)──► started ──► departed
//!                    └────────────────────────────────┴──(nothing more is sent)────┴──► undone
//! ```
//!
//! After a crash, what was started may have been done, and is not made again. So an attempt is started as
//! late as possible: when it holds its slots and has its connection. At the end of a run that stops in order
//! the starts of attempts that did not depart are undone.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::slab::Key;

/// The starts of requests that must not be made twice.
#[derive(Debug, Default)]
pub struct Starts {
    /// Attempts whose start is recorded, and which wait for the commit: their keys among those in flight.
    recorded: BTreeMap<u64, Key>,
    /// Those of the epoch that is being committed.
    in_epoch: BTreeMap<u64, Key>,
    /// Attempts whose start is committed, and that have neither departed nor ended.
    started: BTreeSet<u64>,
    /// Those that departed and have not ended.
    departed: BTreeSet<u64>,
    /// Attempts that may go on.
    resumed: Vec<Key>,
}

/// Whether a request that must not be made twice may depart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It may: that it was started is known to the run that resumes the crawl.
    Committed,
    /// Its start is to be recorded, and it waits for the commit.
    New,
    /// It waits for the commit.
    Waits,
}

impl Starts {
    /// The attempt is to depart. It may be in flight anew, with another key.
    pub fn request(&mut self, number: u64, key: Key) -> Start {
        if self.started.contains(&number) || self.departed.contains(&number) {
            return Start::Committed;
        }
        if let Some(before) = self.in_epoch.get_mut(&number) {
            *before = key;
            return Start::Waits;
        }
        match self.recorded.insert(number, key) {
            None => Start::New,
            Some(_) => Start::Waits,
        }
    }

    /// An epoch begins to be committed: what is recorded belongs to it.
    pub fn begin_epoch(&mut self) {
        self.in_epoch.append(&mut self.recorded);
    }

    /// The epoch is committed.
    pub fn commit(&mut self) {
        for (number, key) in std::mem::take(&mut self.in_epoch) {
            self.started.insert(number);
            self.resumed.push(key);
        }
    }

    /// The attempts that may depart since the last call.
    pub fn poll_resumed(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.resumed)
    }

    /// An attempt departs.
    pub fn depart(&mut self, number: u64) {
        if self.started.remove(&number) {
            self.departed.insert(number);
        }
    }

    /// Whether an attempt departed and has not ended.
    pub fn has_departed(&self, number: u64) -> bool {
        self.departed.contains(&number)
    }

    /// Nothing more is sent: removes the attempts that did not depart, whose starts are to be undone.
    pub fn take_unsent(&mut self) -> Vec<u64> {
        let waiting = self.recorded.keys().chain(self.in_epoch.keys());
        let unsent: Vec<u64> = waiting.chain(&self.started).copied().collect();
        unsent.iter().for_each(|number| self.end(*number));
        unsent
    }

    /// An attempt has ended.
    pub fn end(&mut self, number: u64) {
        if !self.is_empty() {
            self.recorded.remove(&number);
            self.in_epoch.remove(&number);
            self.started.remove(&number);
            self.departed.remove(&number);
        }
    }

    /// Whether attempts wait for a commit that has not begun.
    pub fn is_waiting(&self) -> bool {
        !self.recorded.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.recorded.is_empty()
            && self.in_epoch.is_empty()
            && self.started.is_empty()
            && self.departed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_departs_once_the_commit_of_its_start_is_over() {
        let mut starts = Starts::default();
        let key = |slot| Key {
            slot,
            generation: 0,
        };
        assert_eq!(starts.request(1, key(3)), Start::New);
        assert!(starts.is_waiting());
        starts.begin_epoch();
        assert!(!starts.is_waiting());
        // This one was recorded too late for the epoch.
        assert_eq!(starts.request(2, key(4)), Start::New);
        // Its first connection was closed meanwhile.
        assert_eq!(starts.request(1, key(5)), Start::Waits);
        assert!(starts.poll_resumed().is_empty());
        starts.commit();
        assert_eq!(starts.poll_resumed(), [key(5)]);
        assert_eq!(starts.request(1, key(3)), Start::Committed);
        assert_eq!(starts.request(2, key(4)), Start::Waits);
        starts.end(1);
        assert_eq!(starts.request(1, key(3)), Start::New);
    }

    #[test]
    fn the_starts_of_attempts_that_did_not_depart_are_undone() {
        let mut starts = Starts::default();
        let key = Key {
            slot: 0,
            generation: 0,
        };
        for number in [1, 2] {
            starts.request(number, key);
        }
        starts.begin_epoch();
        starts.commit();
        starts.depart(1);
        assert!(starts.has_departed(1) && !starts.has_departed(2));
        starts.request(3, key);
        starts.begin_epoch();
        starts.request(4, key);
        assert_eq!(starts.take_unsent(), [4, 3, 2]);
        assert!(starts.take_unsent().is_empty());
        assert_eq!(starts.request(1, key), Start::Committed);
        assert_eq!(starts.request(2, key), Start::New);
        starts.end(1);
        assert_eq!(starts.take_unsent(), [2]);
    }
}
