//! Requests that must not be made twice: each departs only once its start is committed.
//!
//! ```text
//! (released) ──► Recorded ──(an epoch begins)──► InEpoch ──(it is committed)──► started
//! ```
//!
//! After a crash, what was started may have been done, and is not made again. So at most one request of a
//! lane is started and has not departed.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::LaneId;

/// The starts of requests that must not be made twice.
#[derive(Debug, Default)]
pub struct Starts {
    /// Attempts whose start is recorded, and their lanes, which wait for the commit.
    recorded: BTreeMap<u64, LaneId>,
    /// Those of the epoch that is being committed.
    in_epoch: BTreeMap<u64, LaneId>,
    /// Attempts whose start is committed and that have not ended.
    started: BTreeSet<u64>,
    /// Lanes that may go on.
    resumed: Vec<LaneId>,
}

/// Whether a request that must not be made twice may depart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It may: that it was started is known to the run that resumes the crawl.
    Committed,
    /// Its start is to be recorded, and its lane waits for the commit.
    New,
    /// Its lane waits for the commit.
    Waits,
}

impl Starts {
    /// The attempt is to depart, of this lane.
    pub fn request(&mut self, number: u64, lane: LaneId) -> Start {
        if self.started.contains(&number) {
            return Start::Committed;
        }
        if self.in_epoch.contains_key(&number) {
            return Start::Waits;
        }
        match self.recorded.insert(number, lane) {
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
        for (number, lane) in std::mem::take(&mut self.in_epoch) {
            self.started.insert(number);
            self.resumed.push(lane);
        }
    }

    /// The lanes whose requests may depart since the last call.
    pub fn poll_lanes(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.resumed)
    }

    /// An attempt has ended.
    pub fn end(&mut self, number: u64) {
        if !self.is_empty() {
            self.recorded.remove(&number);
            self.in_epoch.remove(&number);
            self.started.remove(&number);
        }
    }

    /// Whether lanes wait for a commit that has not begun.
    pub fn is_waiting(&self) -> bool {
        !self.recorded.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.in_epoch.is_empty() && self.started.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_departs_once_the_commit_of_its_start_is_over() {
        let mut starts = Starts::default();
        let lane = LaneId(3);
        assert_eq!(starts.request(1, lane), Start::New);
        assert!(starts.is_waiting());
        starts.begin_epoch();
        assert!(!starts.is_waiting());
        // This one was recorded too late for the epoch.
        assert_eq!(starts.request(2, LaneId(4)), Start::New);
        assert_eq!(starts.request(1, lane), Start::Waits);
        assert!(starts.poll_lanes().is_empty());
        starts.commit();
        assert_eq!(starts.poll_lanes(), [lane]);
        assert_eq!(starts.request(1, lane), Start::Committed);
        assert_eq!(starts.request(2, LaneId(4)), Start::Waits);
        starts.end(1);
        assert_eq!(starts.request(1, lane), Start::New);
    }
}
