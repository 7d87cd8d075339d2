//! Which lanes are active: they wait in the throttle, or have a request in flight. The others are parked.
//!
//! If more hosts took turns than connections are kept, each would find its connection closed when its turn
//! comes. So lanes take turns of many requests, and as few are active as keep the crawl busy.
//!
//! ```text
//!          ┌─ fewer are active than may be, or nothing else can be released ─┐
//!          ▼                                                                 │
//! enter ─► active ── its turn is over and others wait, or one of a ───────► parked
//!            │       higher priority does                                    │
//!            └──────────── held, limited, or nothing queued ◄────────────────┘
//! ```

use std::time::Duration;

use hashbrown::HashMap;

use crate::base::chunked::ChunkedVec;
use crate::base::ids::LaneId;
use crate::base::priorities::PriorityQueue;
use crate::base::secret::Secret;
use crate::base::time::Instant;

/// The active lanes, and the queues of the parked ones.
#[derive(Debug)]
pub(super) struct ActiveLanes {
    /// So many lanes are active at once without being parked first.
    room: usize,
    active: usize,
    /// By lane: `OUT`, `ACTIVE`, or the number of its entry in a queue.
    standings: ChunkedVec<u32>,
    /// Turns of active lanes since others wait.
    turns: HashMap<LaneId, Turn, Secret>,
    /// Parked lanes that begin with a robots.txt.
    fresh: Entries,
    /// The other parked lanes.
    begun: Entries,
    /// Number of parked lanes, and of entries in both queues.
    parked: usize,
    entries: usize,
    /// The number of the last entry.
    number: u32,
    /// Lanes taken from a queue while the other one was passed over.
    passed_over: u8,
    /// The last lane was taken from `fresh`.
    was_fresh: bool,
    /// Lanes that are to be activated for those that were parked for a higher priority.
    preempted: usize,
    /// A lane was parked, or one that was active is not any more or has one request less in flight: others may
    /// be activated.
    has_changed: bool,
}

/// Parked lanes, with numbers: an entry is void once its lane has another standing.
type Entries = PriorityQueue<(LaneId, u32)>;

/// The turn of an active lane.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    requests: u32,
    /// The time of the first of these requests.
    since: Option<Instant>,
    is_over: bool,
    /// It has the turn of a lower priority: higher ones wait until that is over.
    is_lower: bool,
}

/// After so many requests a lane's turn is over.
const REQUESTS_PER_TURN: u32 = 64;

/// So long after its first request a lane's turn is over.
pub const TURN: Duration = Duration::from_secs(60);

/// Of so many choices between the two queues the last goes to the one that was passed over.
const CHOICES: u8 = 8;

/// Neither active nor parked.
const OUT: u32 = 0;

const ACTIVE: u32 = 1;

/// Numbers of entries are higher than these.
const FIRST_NUMBER: u32 = 2;

/// Void entries beyond as many as there are parked lanes.
const VOID_SLACK: usize = 64;

impl ActiveLanes {
    /// None yet, of any number.
    pub fn new(secret: &Secret) -> Self {
        ActiveLanes {
            room: usize::MAX,
            active: 0,
            standings: ChunkedVec::new(),
            turns: HashMap::with_hasher(*secret),
            fresh: Entries::default(),
            begun: Entries::default(),
            parked: 0,
            entries: 0,
            number: FIRST_NUMBER - 1,
            passed_over: 0,
            was_fresh: false,
            preempted: 0,
            has_changed: false,
        }
    }

    /// Parks lanes while so many are active.
    pub fn set_room(&mut self, room: usize) {
        self.room = room.max(1);
    }

    /// A lane has a request to send. Returns whether it is active, as a new one is while there is room, and one
    /// that is active until its turn is over. `may_begin`: lanes that begin with a robots.txt may do so.
    pub fn enter(&mut self, lane: LaneId, priority: i32, may_begin: bool) -> bool {
        match self.standing(lane) {
            OUT if self.active < self.room && self.parked == 0 => {
                self.activate(lane);
                true
            }
            ACTIVE => !self.is_over(lane, priority, may_begin),
            _ => false,
        }
    }

    /// Parks a lane behind all of its priority. `is_fresh`: it begins with a robots.txt.
    pub fn park(&mut self, lane: LaneId, priority: i32, is_fresh: bool) {
        let entry = self.new_entry(lane);
        match is_fresh {
            true => self.fresh.push(priority, entry),
            false => self.begun.push(priority, entry),
        }
        self.drop_void();
    }

    /// Parks a lane that cannot begin yet, before all of its priority.
    pub fn park_first(&mut self, lane: LaneId, priority: i32) {
        let entry = self.new_entry(lane);
        self.fresh.push_front(priority, entry);
        self.drop_void();
    }

    fn new_entry(&mut self, lane: LaneId) -> (LaneId, u32) {
        self.leave(lane);
        self.parked += 1;
        self.entries += 1;
        self.has_changed = true;
        self.number = self.number.checked_add(1).unwrap_or(FIRST_NUMBER);
        *self.standing_mut(lane) = self.number;
        (lane, self.number)
    }

    /// A lane is neither active nor parked any more.
    pub fn leave(&mut self, lane: LaneId) {
        match self.standing(lane) {
            OUT => return,
            ACTIVE => {
                self.active -= 1;
                self.has_changed |= self.parked > 0;
                if !self.turns.is_empty() {
                    self.turns.remove(&lane);
                }
            }
            _ => self.parked -= 1,
        }
        *self.standing_mut(lane) = OUT;
    }

    /// An active lane has one request less in flight.
    pub fn note_end(&mut self) {
        self.has_changed |= self.parked > 0;
    }

    /// Whether parked lanes may be activated that could not be before.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// These are to be activated.
    pub fn end_change(&mut self) {
        self.has_changed = false;
    }

    /// A request of an active lane leaves its queue.
    pub fn count(&mut self, lane: LaneId, now: Instant) {
        if self.parked == 0 {
            if !self.turns.is_empty() {
                self.turns.clear();
            }
            return;
        }
        let turn = self.turns.entry(lane).or_default();
        turn.requests += 1;
        let since = *turn.since.get_or_insert(now);
        turn.is_over |= turn.requests >= REQUESTS_PER_TURN || now >= since + TURN;
    }

    /// Whether the turn of an active lane is over.
    fn is_over(&mut self, lane: LaneId, priority: i32, may_begin: bool) -> bool {
        if self.parked == 0 {
            return false;
        }
        let turn = self.turns.get(&lane).copied().unwrap_or_default();
        if turn.is_over {
            return true;
        }
        let is_preempted = !turn.is_lower
            && turn.requests > 0
            && (self.highest(may_begin)).is_some_and(|highest| highest > priority);
        self.preempted += usize::from(is_preempted);
        is_preempted
    }

    /// The highest priority of the lanes that may be activated.
    fn highest(&self, may_begin: bool) -> Option<i32> {
        let fresh = self.fresh.highest().filter(|_| may_begin);
        self.begun.highest().max(fresh)
    }

    /// Whether a lane is to be activated although others may be released. `may_begin`: one that begins with
    /// a robots.txt, too.
    pub fn has_vacancy(&self, may_begin: bool) -> bool {
        (self.active < self.room || self.preempted > 0) && self.has_parked(may_begin)
    }

    /// Whether lanes are parked that may be activated.
    pub fn has_parked(&self, may_begin: bool) -> bool {
        self.parked > 0 && (!self.begun.is_empty() || may_begin && !self.fresh.is_empty())
    }

    /// Activates the next parked lane. `may_begin`: one that begins with a robots.txt, too.
    pub fn poll(&mut self, may_begin: bool) -> Option<LaneId> {
        loop {
            let is_fresh = self.choose(may_begin)?;
            let (priority, (lane, number)) = match is_fresh {
                true => self.fresh.pop()?,
                false => self.begun.pop()?,
            };
            self.entries -= 1;
            if self.standing(lane) != number {
                continue;
            }
            self.was_fresh = is_fresh;
            self.preempted = self.preempted.saturating_sub(1);
            self.leave(lane);
            self.activate(lane);
            if self
                .highest(may_begin)
                .is_some_and(|highest| highest > priority)
            {
                self.turns.entry(lane).or_default().is_lower = true;
            }
            return Some(lane);
        }
    }

    /// Whether the next lane is taken from `fresh`: of the two first lanes the one with the higher priority, in
    /// turn if they have the same. `None` if there is none.
    fn choose(&mut self, may_begin: bool) -> Option<bool> {
        let fresh = self.fresh.highest().filter(|_| may_begin);
        let (of_fresh, of_begun) = match (fresh, self.begun.highest()) {
            (Some(of_fresh), Some(of_begun)) => (of_fresh, of_begun),
            (Some(_), None) => return Some(true),
            (None, Some(_)) => return Some(false),
            (None, None) => {
                self.preempted = 0;
                return None;
            }
        };
        if of_fresh == of_begun {
            return Some(!self.was_fresh);
        }
        self.passed_over = (self.passed_over + 1) % CHOICES;
        let has_turn = self.passed_over == 0;
        Some((of_fresh > of_begun) != has_turn)
    }

    fn activate(&mut self, lane: LaneId) {
        *self.standing_mut(lane) = ACTIVE;
        self.active += 1;
    }

    fn standing(&self, lane: LaneId) -> u32 {
        self.standings.get(lane.0 as usize).copied().unwrap_or(OUT)
    }

    fn standing_mut(&mut self, lane: LaneId) -> &mut u32 {
        self.standings.grow_to(lane.0 as usize + 1, || OUT);
        &mut self.standings[lane.0 as usize]
    }

    /// Removes void entries once there are more of them than of others.
    fn drop_void(&mut self) {
        if self.entries <= 2 * self.parked + VOID_SLACK {
            return;
        }
        let standings = &self.standings;
        let is_current = |(lane, number): &(LaneId, u32)| standings[lane.0 as usize] == *number;
        self.fresh.retain(is_current);
        self.begun.retain(is_current);
        self.entries = self.parked;
    }

    /// Number of parked lanes.
    pub fn parked(&self) -> usize {
        self.parked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(room: usize) -> ActiveLanes {
        let mut lanes = ActiveLanes::new(&Secret::from_seed(1));
        lanes.set_room(room);
        lanes
    }

    impl ActiveLanes {
        /// A lane has a request to send, and is parked if it does not become active.
        fn enter_or_park(&mut self, lane: u32, priority: i32) -> bool {
            let enters = self.enter(LaneId(lane), priority, true);
            if !enters {
                self.park(LaneId(lane), priority, false);
            }
            enters
        }

        /// An active lane sends a request.
        fn send(&mut self, lane: u32, seconds: u64) {
            self.count(LaneId(lane), Instant::START + Duration::from_secs(seconds));
        }
    }

    #[test]
    fn lanes_beyond_the_room_are_parked_and_activated_in_order() {
        let mut lanes = lanes(2);
        let entered: Vec<bool> = (0..5).map(|lane| lanes.enter_or_park(lane, 0)).collect();
        assert_eq!(entered, [true, true, false, false, false]);
        assert_eq!((lanes.active, lanes.parked()), (2, 3));
        assert!(!lanes.has_vacancy(true) && lanes.has_parked(true));
        assert_eq!(lanes.poll(true), Some(LaneId(2)));
        lanes.leave(LaneId(0));
        lanes.leave(LaneId(3));
        assert!(!lanes.has_vacancy(true));
        lanes.leave(LaneId(1));
        assert!(lanes.has_vacancy(true));
        assert_eq!(lanes.poll(true), Some(LaneId(4)), "3 has left");
        assert_eq!(
            (lanes.poll(true), lanes.active, lanes.parked()),
            (None, 2, 0)
        );
    }

    #[test]
    fn a_turn_ends_after_so_many_requests_or_so_long_while_others_wait() {
        let mut lanes = lanes(2);
        for lane in 0..2 {
            assert!(lanes.enter_or_park(lane, 0));
        }
        for second in 0..500 {
            lanes.send(0, second);
            assert!(lanes.enter_or_park(0, 0), "none waits");
        }
        assert!(!lanes.enter_or_park(2, 0));
        for _ in 1..REQUESTS_PER_TURN {
            lanes.send(0, 500);
            assert!(lanes.enter_or_park(0, 0));
        }
        lanes.send(0, 500);
        assert!(!lanes.enter_or_park(0, 0), "after so many requests");
        assert_eq!(lanes.poll(true), Some(LaneId(2)));
        lanes.send(1, 500);
        assert!(lanes.enter_or_park(1, 0));
        lanes.send(1, 500 + TURN.as_secs());
        assert!(!lanes.enter_or_park(1, 0), "after so long");
        lanes.send(2, 600);
        assert!(lanes.enter_or_park(2, 0));
        assert_eq!(lanes.poll(true), Some(LaneId(0)));
    }

    #[test]
    fn a_higher_priority_ends_a_turn_and_a_lower_one_has_its_turn() {
        let mut lanes = lanes(1);
        assert!(lanes.enter_or_park(0, 0));
        assert!(!lanes.enter_or_park(1, 7));
        assert!(lanes.enter_or_park(0, 0), "it has sent nothing");
        lanes.send(0, 1);
        assert!(!lanes.enter_or_park(0, 0));
        assert!(lanes.has_vacancy(true));
        assert_eq!(lanes.poll(true), Some(LaneId(1)));
        assert!(!lanes.has_vacancy(true));
        for lane in 2..20 {
            assert!(!lanes.enter_or_park(lane, 7));
        }
        let mut order = Vec::new();
        while let Some(lane) = lanes.poll(true) {
            order.push(lane.0);
        }
        let turn = order.iter().position(|lane| *lane == 0);
        assert!(turn.is_some_and(|turn| turn < 8), "{order:?}");
        lanes.park(LaneId(2), 7, false);
        lanes.send(0, 2);
        assert!(lanes.enter_or_park(0, 0), "its turn is not over");
    }

    #[test]
    fn lanes_that_begin_and_others_take_turns_unless_none_may_begin() {
        let mut lanes = lanes(1);
        for lane in 0..4 {
            lanes.park(LaneId(lane), 0, true);
            lanes.park(LaneId(10 + lane), 0, false);
        }
        let next = |lanes: &mut ActiveLanes, may_begin| lanes.poll(may_begin).map(|lane| lane.0);
        assert_eq!(next(&mut lanes, false), Some(10));
        assert_eq!(next(&mut lanes, true), Some(0));
        lanes.park_first(LaneId(0), 0);
        assert_eq!(next(&mut lanes, true), Some(11));
        assert_eq!(next(&mut lanes, true), Some(0));
        assert_eq!(next(&mut lanes, false), Some(12));
        assert_eq!(next(&mut lanes, false), Some(13));
        assert_eq!(next(&mut lanes, false), None);
        assert!(lanes.has_parked(true) && !lanes.has_parked(false));
        assert_eq!(next(&mut lanes, true), Some(1));
    }

    #[test]
    fn lanes_that_begin_have_turns_beside_others_of_a_higher_priority() {
        let mut lanes = lanes(1);
        lanes.park(LaneId(0), 0, true);
        for lane in 1..100 {
            lanes.park(LaneId(lane), 5, false);
        }
        let turn = (0..100).position(|_| lanes.poll(true) == Some(LaneId(0)));
        assert_eq!(turn, Some(usize::from(CHOICES) - 1));
    }

    #[test]
    fn void_entries_are_fewer_than_parked_lanes() {
        let mut lanes = lanes(1);
        for round in 0..1000 {
            for lane in 0..100 {
                // Its first request has another priority each time.
                lanes.park(LaneId(lane), round, round % 2 == 0);
            }
            assert!(
                lanes.entries <= 2 * 100 + VOID_SLACK + 1,
                "{}",
                lanes.entries
            );
        }
        assert_eq!(lanes.parked(), 100);
        let all = std::iter::from_fn(|| lanes.poll(true)).count();
        assert_eq!((all, lanes.entries), (100, 0));
    }
}
