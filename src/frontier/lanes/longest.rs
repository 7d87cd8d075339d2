//! The longest queues of all lanes, found in steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Frontier, LaneState};
use crate::base::ids::LaneId;
use crate::base::keys::OriginKey;
use crate::base::units::Units;

/// The search for the longest queues.
#[derive(Debug)]
pub struct LongestQueues {
    /// The next lane.
    lane: u32,
    most: usize,
    /// The longest so far, the shortest of them first.
    top: BinaryHeap<Reverse<(u64, LaneId)>>,
}

/// A long queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongQueue {
    /// Scheme, host and port, as in a URL.
    pub origin: String,
    /// Its lane.
    pub lane: LaneId,
    /// Roughly how many of its requests wait elsewhere.
    pub elsewhere: u64,
}

/// How many requests of an origin wait elsewhere, by its stable key.
pub type Elsewhere<'a> = &'a dyn Fn(OriginKey) -> u64;

/// Units of a step, some tenths of a millisecond: one for each lane, and [`NAME_UNITS`] for each name that is compared.
const UNITS_PER_STEP: u64 = 16_384;

/// A name is in memory of its own, and a pattern may have several parts.
const NAME_UNITS: usize = 64;

impl LongestQueues {
    /// The search for so many.
    pub fn new(most: usize) -> Self {
        LongestQueues {
            lane: 0,
            most,
            top: BinaryHeap::new(),
        }
    }
}

impl Frontier {
    /// Goes on with a search; returns whether it is over. `is_wanted`: whether a host counts. `elsewhere`: `None` if no
    /// request waits elsewhere.
    pub fn advance_longest(
        &self,
        search: &mut LongestQueues,
        is_wanted: impl Fn(&str) -> bool,
        elsewhere: Option<Elsewhere<'_>>,
    ) -> bool {
        let mut units = Units::new(UNITS_PER_STEP);
        while !units.is_spent() {
            units.spend(1);
            let Some(slot) = self.lanes.get(search.lane as usize) else {
                return true;
            };
            let lane = LaneId(search.lane);
            search.lane += 1;
            if slot.state == LaneState::Closed {
                continue;
            }
            let mut queued = slot.queue.len() as u64;
            if elsewhere.is_some() {
                units.spend(NAME_UNITS);
                queued += self.elsewhere_of(lane, elsewhere);
            }
            if queued == 0 {
                continue;
            }
            let is_full = search.top.len() == search.most;
            let shortest = search.top.peek().map(|Reverse((queued, _))| *queued);
            if is_full && shortest.is_some_and(|shortest| queued <= shortest) {
                continue;
            }
            units.spend(NAME_UNITS);
            if !is_wanted(self.origin_host(lane)) {
                continue;
            }
            if is_full {
                search.top.pop();
            }
            search.top.push(Reverse((queued, lane)));
        }
        false
    }

    /// How many requests of a lane's origin wait elsewhere. Of several lanes of an origin the first has them.
    fn elsewhere_of(&self, lane: LaneId, elsewhere: Option<Elsewhere<'_>>) -> u64 {
        let origin = self.lanes[lane.0 as usize].origin;
        let is_first = self.origins.get(origin).lane == lane;
        elsewhere.filter(|_| is_first).map_or(0, |elsewhere| {
            let key = self.secret.keys().origin(&self.origin_text(lane));
            elsewhere(key)
        })
    }

    /// The queues that a search has found, the longest first, without those that were closed since. `is_wanted`: as in
    /// the search. The number of a lane that was closed may be another's by now.
    pub fn longest(
        &self,
        search: LongestQueues,
        is_wanted: impl Fn(&str) -> bool,
        elsewhere: Option<Elsewhere<'_>>,
    ) -> Vec<LongQueue> {
        let sorted = search.top.into_sorted_vec().into_iter();
        let lanes = sorted.map(|Reverse((_, lane))| lane);
        let open = lanes.filter(|lane| self.lanes[lane.0 as usize].state != LaneState::Closed);
        let wanted = open.filter(|lane| is_wanted(self.origin_host(*lane)));
        wanted
            .map(|lane| LongQueue {
                origin: self.origin_text(lane),
                lane,
                elsewhere: self.elsewhere_of(lane, elsewhere),
            })
            .collect()
    }

    /// Whether a queue that was found has not been closed since.
    pub fn is_open(&self, queue: &LongQueue) -> bool {
        let is_open = self.lanes[queue.lane.0 as usize].state != LaneState::Closed;
        is_open && self.origin_text(queue.lane) == queue.origin
    }
}
