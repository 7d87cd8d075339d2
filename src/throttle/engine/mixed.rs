//! Lines in which lanes of different priorities wait: the highest goes first, equal ones take turns, and lower
//! ones have an eighth of the turns.
//!
//! While all lanes of a line have one priority the line is a ring. In a mixed line only the first lane is in
//! the ring; the others are here, sorted. A line is mixed until it is empty, so each lane moves from the ring
//! at most once per wait.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::super::scope::{NO_INDEX, NOT_CAPPED};
use super::{End, Throttle};
use crate::base::ids::{LaneId, ScopeId};
use crate::base::priorities::{PriorityQueue, PriorityTurns};
use crate::base::secret::Known;
use crate::base::time::Instant;

/// The priorities of lanes, and the lines and the queue in which they order them.
#[derive(Debug)]
pub(super) struct Priorities {
    /// Priorities by their numbers. Number 0 is priority 0.
    known: Vec<i32>,
    lines: HashMap<ScopeId, MixedLine, Known>,
    /// Where lanes wait in mixed lines.
    places: HashMap<u32, (ScopeId, Place), Known>,
    /// Scopes whose first lane waits for the global cap, with the number of its priority. An entry is void if
    /// the scope has another number by now.
    capped: PriorityQueue<(ScopeId, u8)>,
}

/// The others of a line; the first is in the scope's ring.
#[derive(Debug, Default)]
struct MixedLine {
    lanes: BTreeMap<Place, u32>,
    turns: PriorityTurns,
    /// The first lane has one of the turns of lower priorities: a higher one does not pass it.
    has_turn: bool,
    first_number: i64,
    next_number: i64,
}

/// A priority, and the order among equal ones.
type Place = (Reverse<i32>, i64);

/// Numbers of priorities are less than this: the last one is `NOT_CAPPED`.
const KNOWN_MAX: usize = NOT_CAPPED as usize;

impl Default for Priorities {
    fn default() -> Self {
        Priorities {
            known: vec![0],
            lines: HashMap::default(),
            places: HashMap::default(),
            capped: PriorityQueue::default(),
        }
    }
}

impl Priorities {
    /// The number of a priority. Beyond 255 different ones, that of the nearest.
    fn number(&mut self, priority: i32) -> u8 {
        if let Some(number) = self.known.iter().position(|known| *known == priority) {
            return number as u8;
        }
        if self.known.len() < KNOWN_MAX {
            self.known.push(priority);
            return (self.known.len() - 1) as u8;
        }
        let distances = self.known.iter().map(|known| known.abs_diff(priority));
        let nearest = distances.enumerate().min_by_key(|(_, distance)| *distance);
        nearest.map_or(0, |(number, _)| number as u8)
    }

    fn priority(&self, number: u8) -> i32 {
        self.known[usize::from(number)]
    }

    pub fn is_mixed(&self, id: ScopeId) -> bool {
        !self.lines.is_empty() && self.lines.contains_key(&id)
    }

    /// Inserts a lane that is not the first.
    fn insert(&mut self, id: ScopeId, lane: u32, number: u8, end: End) {
        let priority = Reverse(self.priority(number));
        let line = self.lines.get_mut(&id).expect("the line is mixed");
        let place = match end {
            End::Back => {
                line.next_number += 1;
                (priority, line.next_number)
            }
            End::Front => {
                line.first_number -= 1;
                (priority, line.first_number)
            }
        };
        line.lanes.insert(place, lane);
        self.places.insert(lane, (id, place));
    }

    /// Removes a lane from its mixed line, unless it is the first there. Returns the scope of the line.
    fn remove(&mut self, lane: u32) -> Option<ScopeId> {
        let (id, place) = self.places.remove(&lane)?;
        let line = self.lines.get_mut(&id).expect("the line is mixed");
        line.lanes.remove(&place);
        Some(id)
    }

    /// The first lane of a line has left it; it had a priority of this number. Returns the next.
    pub fn next_of(&mut self, id: ScopeId, left: u8) -> Option<u32> {
        if self.lines.is_empty() {
            return None;
        }
        let left = self.priority(left);
        let line = self.lines.get_mut(&id)?;
        let below = |priority: i32| {
            let from = (Reverse(priority), i64::MAX);
            line.lanes.range(from..).next().map(|((key, _), _)| key.0)
        };
        let Some(((highest, _), _)) = line.lanes.first_key_value() else {
            self.lines.remove(&id);
            return None;
        };
        if !line.has_turn && below(left).is_some() {
            line.turns.pass_over();
        }
        // What left may wait again at once.
        let (turn, has_turn) = line.turns.choose(highest.0.max(left), below);
        let priority = if has_turn { turn } else { highest.0 };
        line.has_turn = has_turn;
        let mut equal = line.lanes.range((Reverse(priority), i64::MIN)..);
        let (place, lane) = equal.next().map(|(place, lane)| (*place, *lane))?;
        line.lanes.remove(&place);
        self.places.remove(&lane);
        Some(lane)
    }

    /// Adds a scope to those whose first lane waits for the global cap.
    fn push_capped(&mut self, id: ScopeId, number: u8) {
        self.capped.push(self.priority(number), (id, number));
    }

    /// The next of these scopes, and the number of the priority that it had.
    pub fn pop_capped(&mut self) -> Option<(ScopeId, u8)> {
        self.capped.pop().map(|(_, entry)| entry)
    }
}

impl Throttle {
    /// Sets the priority of a lane's next request. Call it again when another request becomes the next.
    pub(crate) fn set_priority(&mut self, lane: LaneId, priority: i32, now: Instant) {
        if priority == 0 && self.lanes[lane.0 as usize].priority == 0 {
            return;
        }
        let number = self.priorities.number(priority);
        if self.lanes[lane.0 as usize].priority == number {
            return;
        }
        if !self.lanes[lane.0 as usize].is_linked() {
            self.lanes[lane.0 as usize].priority = number;
            return;
        }
        let Some(id) = self.unlink(lane.0) else {
            // It is the first of a line.
            return self.set_priority_of_first(lane.0, number, now);
        };
        self.lanes[lane.0 as usize].priority = number;
        self.enqueue_mixed(lane.0, id, End::Back);
        self.schedule_check(id, now);
    }

    /// Takes a lane from the line in which it waits, which is mixed from now on, unless it is the first there.
    fn unlink(&mut self, lane: u32) -> Option<ScopeId> {
        if let Some(id) = self.priorities.remove(lane) {
            return Some(id);
        }
        for id in self.lanes[lane as usize].scopes_copy() {
            let last = self.scope_ref(id).waiting;
            if last == NO_INDEX || self.lanes[last as usize].next == lane {
                continue;
            }
            // It may be in this ring.
            self.mix(id);
            if let Some(id) = self.priorities.remove(lane) {
                return Some(id);
            }
        }
        None
    }

    /// The first lane of a line has another priority now.
    fn set_priority_of_first(&mut self, lane: u32, number: u8, now: Instant) {
        let mut ids = self.lanes[lane as usize].scopes_copy().into_iter();
        let id = ids.find(|id| self.first_waiting(self.scope_ref(*id)) == lane);
        self.lanes[lane as usize].priority = number;
        let Some(id) = id else {
            debug_assert!(false, "a linked lane is in the line of one of its scopes");
            return;
        };
        let is_alone = self.lanes[lane as usize].next == lane && !self.priorities.is_mixed(id);
        if !is_alone && self.scope_ref(id).claimed_by() != lane {
            // Others may go before it.
            self.mix(id);
            self.priorities.insert(id, lane, number, End::Front);
            let first = self.priorities.next_of(id, number);
            self.set_first(id, first.expect("at least this lane waits"));
        }
        self.raise_capped(id);
        self.schedule_check(id, now);
    }

    /// Makes a line a mixed one.
    fn mix(&mut self, id: ScopeId) {
        if self.priorities.is_mixed(id) {
            return;
        }
        self.priorities.lines.insert(id, MixedLine::default());
        let last = self.scope_ref(id).waiting;
        let first = self.lanes[last as usize].next;
        let mut lane = self.lanes[first as usize].next;
        while lane != first {
            let slot = &mut self.lanes[lane as usize];
            // It is still in a line.
            let next = std::mem::replace(&mut slot.next, lane);
            let number = slot.priority;
            self.priorities.insert(id, lane, number, End::Back);
            lane = next;
        }
        self.set_first(id, first);
    }

    /// This lane alone is in the scope's ring.
    fn set_first(&mut self, id: ScopeId, lane: u32) {
        self.lanes[lane as usize].next = lane;
        self.scope_mut(id).waiting = lane;
    }

    /// Adds a lane to a line with lanes of other priorities.
    pub(super) fn enqueue_mixed(&mut self, lane: u32, id: ScopeId, end: End) {
        self.mix(id);
        let scope = self.scope_ref(id);
        let (first, claimed_by) = (self.first_waiting(scope), scope.claimed_by());
        let (number, of_first) = (
            self.lanes[lane as usize].priority,
            self.lanes[first as usize].priority,
        );
        let known = &self.priorities;
        let is_higher = known.priority(number) > known.priority(of_first);
        let is_passed = is_higher && claimed_by != first && !known.lines[&id].has_turn;
        if end == End::Front || is_passed {
            self.priorities.insert(id, first, of_first, End::Front);
            self.set_first(id, lane);
            self.raise_capped(id);
        } else {
            self.priorities.insert(id, lane, number, End::Back);
            self.lanes[lane as usize].next = lane;
        }
    }

    /// The first lane of a scope waits for the global cap.
    pub(super) fn push_capped(&mut self, id: ScopeId) {
        let first = self.first_waiting(self.scope_ref(id));
        let number = self.lanes[first as usize].priority;
        let scope = self.scope_mut(id);
        if scope.capped == NOT_CAPPED {
            scope.capped = number;
            self.priorities.push_capped(id, number);
        }
    }

    /// A scope that may wait for the global cap has another first lane: if its priority is higher, the scope
    /// waits under that.
    fn raise_capped(&mut self, id: ScopeId) {
        let scope = self.scope_ref(id);
        let (capped, first) = (scope.capped, self.first_waiting(scope));
        if capped == NOT_CAPPED || first == NO_INDEX {
            return;
        }
        let number = self.lanes[first as usize].priority;
        if self.priorities.priority(number) > self.priorities.priority(capped) {
            self.scope_mut(id).capped = number;
            self.priorities.push_capped(id, number);
        }
    }
}
