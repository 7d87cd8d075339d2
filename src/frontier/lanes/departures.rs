//! The lanes from whose queues requests left last, for searches in steps.

use crate::base::ids::LaneId;

/// The last lanes to which something happened.
#[derive(Debug)]
pub(super) struct Departures {
    last: [LaneId; KEPT],
    count: usize,
}

/// Lanes that are kept: more than change in a turn, but for turns in which many requests leave memory.
const KEPT: usize = 512;

impl Default for Departures {
    fn default() -> Self {
        Departures {
            last: [LaneId(0); KEPT],
            count: 0,
        }
    }
}

impl Departures {
    /// It happened to this lane.
    pub fn note(&mut self, lane: LaneId) {
        self.last[self.count % KEPT] = lane;
        self.count += 1;
    }

    /// How often it happened so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether it may have happened to this lane after the first `count` times.
    pub fn has(&self, lane: LaneId, count: usize) -> bool {
        let since = self.count - count;
        since > KEPT || (count..self.count).any(|number| self.last[number % KEPT] == lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_known_while_fewer_others_follow_than_are_kept() {
        let mut departures = Departures::default();
        departures.note(LaneId(7));
        let before = departures.count();
        assert!(departures.has(LaneId(7), 0) && !departures.has(LaneId(8), 0));
        assert!(!departures.has(LaneId(7), before));
        departures.note(LaneId(7));
        for _ in 1..KEPT {
            departures.note(LaneId(9));
        }
        assert!(departures.has(LaneId(7), before) && !departures.has(LaneId(8), before));
        departures.note(LaneId(9));
        assert!(departures.has(LaneId(8), before), "it may have been one");
        assert!(!departures.has(LaneId(8), before + 1));
    }
}
