//! Lines in which lanes of different priorities wait: the highest goes first, equal ones take turns, and lower
//! ones have an eighth of the turns.
//!
//! While all lanes of a line have one priority the line is a ring. In a mixed line only the first lane is in
//! the ring; the others are in queues here, by priority. A line is mixed until it is empty.
//!
//! ```text
//! ring ── another priority comes ──► first lane, rest of the ring, queues
//!                                      rest ── the priority of one of them changes ──► queues, in steps
//! ```
//!
//! The rest of the ring stays linked, however long it is. A lane cannot be taken from its middle: if its
//! priority changes, the rest goes to queues, from which any lane can be taken, some hundred lanes in a step.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use hashbrown::HashMap;

use super::super::scope::{NO_INDEX, NOT_CAPPED};
use super::lanes::Lane;
use super::places::Places;
use super::{End, Throttle};
use crate::base::chunked::ChunkedVec;
use crate::base::ids::{LaneId, ScopeId};
use crate::base::priorities::{Line, PriorityQueue, PriorityTurns};
use crate::base::secret::Known;
use crate::base::time::Instant;

/// The priorities of lanes, and the lines and the queue in which they order them.
#[derive(Debug)]
pub(super) struct Priorities {
    /// Priorities by their numbers. Number 0 is priority 0.
    known: Vec<i32>,
    lines: HashMap<ScopeId, MixedLine, Known>,
    /// Where lanes wait in queues of mixed lines.
    places: Places,
    /// Lines whose rest is taken apart.
    splitting: VecDeque<ScopeId>,
    /// Scopes whose first lane waits for the global cap, with the number of its priority. An entry is void if
    /// the scope has another number by now.
    capped: PriorityQueue<(ScopeId, u8)>,
}

/// The others of a line; the first is in the scope's ring.
#[derive(Debug, Default)]
struct MixedLine {
    queues: BTreeMap<Reverse<i32>, LaneQueue>,
    rest: Option<Rest>,
    /// The rest is taken apart.
    is_splitting: bool,
    turns: PriorityTurns,
    /// The first lane has one of the turns of lower priorities: a higher one does not pass it.
    has_turn: bool,
}

/// Lanes of one priority; at least one.
#[derive(Debug, Default)]
struct LaneQueue {
    /// Lanes, and the numbers of their places: those that have left are void.
    entries: Line<(u32, u32)>,
    /// Number of lanes that have not left.
    lanes: usize,
}

/// Lanes that were in the ring before the line was mixed, linked from the first to the last.
#[derive(Clone, Copy, Debug)]
struct Rest {
    first: u32,
    last: u32,
    /// The number of the priority that they had. That of one may be another by now, until the rest is taken
    /// apart.
    number: u8,
}

/// Lanes of a rest that go to queues in one step.
const LANES_PER_STEP: usize = if cfg!(test) { 16 } else { 256 };

/// Numbers of priorities are less than this: the last one is `NOT_CAPPED`.
const KNOWN_MAX: usize = NOT_CAPPED as usize;

impl Default for Priorities {
    fn default() -> Self {
        Priorities {
            known: vec![0],
            lines: HashMap::default(),
            places: Places::default(),
            splitting: VecDeque::new(),
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

    /// Whether a rest is being taken apart.
    pub fn is_splitting(&self) -> bool {
        !self.splitting.is_empty()
    }

    /// Memory of lanes that wait in mixed lines, in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let queues = self.lines.values().flat_map(|line| line.queues.values());
        queues.map(|queue| queue.entries.bytes()).sum::<usize>() + self.places.bytes()
    }

    /// Inserts a lane that is not the first.
    fn insert(&mut self, id: ScopeId, lane: u32, number: u8, end: End) {
        let priority = Reverse(self.priority(number));
        let line = self.lines.get_mut(&id).expect("the line is mixed");
        let queue = line.queues.entry(priority).or_default();
        let entry = (lane, self.places.enter(lane, id));
        queue.lanes += 1;
        match end {
            End::Back => queue.entries.push(entry),
            End::Front => queue.entries.push_front(entry),
        }
    }

    /// Removes a lane, with the priority of this number, from the queue in which it waits, if it is in one.
    /// Returns the scope of the line.
    fn remove(&mut self, lane: u32, number: u8) -> Option<ScopeId> {
        let id = self.places.leave(lane)?;
        let priority = Reverse(self.priority(number));
        let line = self.lines.get_mut(&id).expect("the line is mixed");
        let queue = line.queues.get_mut(&priority).expect("the lane is in it");
        queue.lanes -= 1;
        if queue.lanes == 0 {
            line.queues.remove(&priority);
        }
        Some(id)
    }

    /// The first lane of a line has left it; it had a priority of this number. Returns the next.
    pub fn next_of(&mut self, id: ScopeId, left: u8, lanes: &ChunkedVec<Lane>) -> Option<u32> {
        if self.lines.is_empty() {
            return None;
        }
        let left = self.priority(left);
        let line = self.lines.get_mut(&id)?;
        let of_rest = line.rest.map(|rest| self.known[usize::from(rest.number)]);
        let queues = &line.queues;
        let below = |priority: i32| {
            let mut lower = queues.range((Excluded(Reverse(priority)), Unbounded));
            let of_queues = lower.next().map(|(key, _)| key.0);
            of_queues.max(of_rest.filter(|of_rest| *of_rest < priority))
        };
        let of_queues = queues.first_key_value().map(|(key, _)| key.0);
        let Some(highest) = of_queues.max(of_rest) else {
            self.lines.remove(&id);
            return None;
        };
        if !line.has_turn && below(left).is_some() {
            line.turns.pass_over();
        }
        // What left may wait again at once.
        let (turn, has_turn) = line.turns.choose(highest.max(left), below);
        let priority = if has_turn { turn } else { highest };
        line.has_turn = has_turn;
        let Some(queue) = line.queues.get_mut(&Reverse(priority)) else {
            return line.pop_rest(lanes);
        };
        let places = &mut self.places;
        let entries = std::iter::from_fn(|| queue.entries.pop());
        let mut current = entries.filter(|(lane, entry)| places.is_current(*lane, *entry));
        let (lane, _) = current.next().expect("it has a lane");
        places.leave(lane);
        queue.lanes -= 1;
        if queue.lanes == 0 {
            line.queues.remove(&Reverse(priority));
        }
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

impl MixedLine {
    /// Takes the first lane of the rest.
    fn pop_rest(&mut self, lanes: &ChunkedVec<Lane>) -> Option<u32> {
        let rest = self.rest.as_mut()?;
        let lane = rest.first;
        match lane == rest.last {
            true => self.rest = None,
            false => rest.first = lanes[lane as usize].next,
        }
        Some(lane)
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
        let old = self.lanes[lane.0 as usize].priority;
        if let Some(id) = self.priorities.remove(lane.0, old) {
            self.lanes[lane.0 as usize].priority = number;
            self.enqueue_mixed(lane.0, id, End::Back);
            return self.schedule_check(id, now);
        }
        let scopes = self.lanes[lane.0 as usize].scopes_copy();
        if (scopes.iter()).any(|id| self.first_waiting(self.scope_ref(*id)) == lane.0) {
            return self.set_priority_of_first(lane.0, number, now);
        }
        // It is in the ring of one of them, or in what is left of that.
        for id in scopes {
            if self.scope_ref(id).waiting != NO_INDEX {
                self.mix(id);
                self.begin_splitting(id);
            }
        }
        self.lanes[lane.0 as usize].priority = number;
        self.split_lines(now);
    }

    /// Takes the rest of a line apart, in steps.
    fn begin_splitting(&mut self, id: ScopeId) {
        let line = self.priorities.lines.get_mut(&id);
        let line = line.expect("the line is mixed");
        if line.rest.is_some() && !std::mem::replace(&mut line.is_splitting, true) {
            self.priorities.splitting.push_back(id);
        }
    }

    /// Moves some lanes from rests to queues.
    pub(super) fn split_lines(&mut self, now: Instant) {
        let mut lanes = 0;
        while let Some(id) = self.priorities.splitting.front().copied() {
            let line = self.priorities.lines.get_mut(&id);
            let Some(lane) = line.and_then(|line| line.pop_rest(&self.lanes)) else {
                if let Some(line) = self.priorities.lines.get_mut(&id) {
                    line.is_splitting = false;
                }
                self.priorities.splitting.pop_front();
                continue;
            };
            self.lanes_visited += 1;
            let first = self.first_waiting(self.scope_ref(id));
            self.add_to_mixed(lane, id, End::Back);
            if self.first_waiting(self.scope_ref(id)) != first {
                self.schedule_check(id, now);
            }
            lanes += 1;
            if lanes == LANES_PER_STEP {
                return;
            }
        }
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
            let first = self.priorities.next_of(id, number, &self.lanes);
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
        let last = self.scope_ref(id).waiting;
        let first = self.lanes[last as usize].next;
        let rest = (first != last).then(|| Rest {
            first: self.lanes[first as usize].next,
            last,
            number: self.lanes[last as usize].priority,
        });
        let line = MixedLine {
            rest,
            ..MixedLine::default()
        };
        self.priorities.lines.insert(id, line);
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
        let line = self.priorities.lines.get_mut(&id);
        let line = line.expect("the line is mixed");
        if let Some(rest) = &mut line.rest
            && end == End::Back
            && rest.number == self.lanes[lane as usize].priority
        {
            self.lanes[rest.last as usize].next = lane;
            // It is in a line.
            self.lanes[lane as usize].next = lane;
            rest.last = lane;
            return;
        }
        self.add_to_mixed(lane, id, end);
    }

    /// Adds a lane to the first or to the queues of a mixed line.
    fn add_to_mixed(&mut self, lane: u32, id: ScopeId, end: End) {
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
