//! Lanes that wait for their host's address, and the duration of the last lookup of each.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::ids::LaneId;
use crate::base::secret::Secret;
use crate::base::time::Instant;

/// Lookups of lanes: under way, refused for lack of room, and the last finished ones.
#[derive(Debug)]
pub struct Lookups {
    /// Start of each lane's wait.
    asked: HashMap<LaneId, Instant, Secret>,
    /// Duration of the last lookup of each lane that has not sent anything since.
    took: HashMap<LaneId, Duration, Secret>,
    /// Lanes for which the resolver had no room.
    unresolved: VecDeque<LaneId>,
}

impl Lookups {
    /// No lookups.
    pub fn new(secret: &Secret) -> Self {
        Lookups {
            asked: HashMap::with_hasher(*secret),
            took: HashMap::with_hasher(*secret),
            unresolved: VecDeque::new(),
        }
    }

    /// Records that a lane waits for an answer from now on. A lane that waits already, and asks again because
    /// another of its requests ended, keeps the start of its wait.
    pub fn begin(&mut self, lane: LaneId, now: Instant) {
        self.asked.entry(lane).or_insert(now);
    }

    /// Removes the records of a closed lane, whose number may be used again.
    pub fn forget(&mut self, lane: LaneId) {
        self.asked.remove(&lane);
        self.took.remove(&lane);
    }

    /// Records that the resolver had no room for a lane's query. The lane asks again when there is room.
    pub fn refuse(&mut self, lane: LaneId) {
        self.unresolved.push_back(lane);
    }

    /// Ends a lane's wait, and records the duration of its lookup for its next attempt: since the query's
    /// departure (`left`), or since the lane asked, if that was later.
    pub fn end(&mut self, lane: LaneId, left: Option<Instant>, over: Instant) {
        let Some(asked) = self.asked.remove(&lane) else {
            return;
        };
        let from = left.map_or(asked, |left| left.max(asked));
        let took = over.saturating_since(from);
        if !took.is_zero() {
            self.took.insert(lane, took);
        }
    }

    /// Returns the duration of a lane's last lookup; 0 if something was sent since.
    pub fn took(&self, lane: LaneId) -> Duration {
        self.took.get(&lane).copied().unwrap_or_default()
    }

    /// Takes the duration of a lane's last lookup, for the attempt that it is charged to. Later attempts are
    /// not charged with it.
    pub fn take(&mut self, lane: LaneId) -> Option<Duration> {
        self.took.remove(&lane)
    }

    /// Since when a lane waits for an answer; `None` if it does not.
    pub fn waits_since(&self, lane: LaneId) -> Option<Instant> {
        self.asked.get(&lane).copied()
    }

    /// Number of lanes that wait for an answer.
    pub fn under_way(&self) -> usize {
        self.asked.len()
    }

    /// Whether lanes wait for room in the resolver.
    pub fn has_refused(&self) -> bool {
        !self.unresolved.is_empty()
    }

    /// Takes the lanes that wait for room in the resolver.
    pub fn take_refused(&mut self) -> VecDeque<LaneId> {
        std::mem::take(&mut self.unresolved)
    }

    /// Whether there is no record of any lookup.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.took.is_empty()
    }
}
