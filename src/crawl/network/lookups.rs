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

    /// A lane waits for an answer from now on. A waiting lane may be released and ask again, because
    /// another of its requests ended: its wait began when it first asked.
    pub fn begin(&mut self, lane: LaneId, now: Instant) {
        self.asked.entry(lane).or_insert(now);
    }

    /// A lane is closed: its number may be used again.
    pub fn forget(&mut self, lane: LaneId) {
        self.asked.remove(&lane);
        self.took.remove(&lane);
    }

    /// The resolver had no room for a lane's query: the lane asks again when there is room.
    pub fn refuse(&mut self, lane: LaneId) {
        self.unresolved.push_back(lane);
    }

    /// A lane's lookup is over. Its next attempt counts the lookup as its own, from the query's departure
    /// (`left`), or the part of it that the attempt waited for.
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

    /// Duration of a lane's last lookup; 0 if something was sent since.
    pub fn took(&self, lane: LaneId) -> Duration {
        self.took.get(&lane).copied().unwrap_or_default()
    }

    /// The same, for the attempt that it belongs to: later attempts are not charged with it.
    pub fn take(&mut self, lane: LaneId) -> Option<Duration> {
        self.took.remove(&lane)
    }

    /// Lanes that wait for an answer.
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
