//! Parks lanes and activates them: which of them the throttle has.

use super::{Frontier, LaneChange, LaneState};
use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::frontier::request::PageKind;
use crate::frontier::robots::{RobotsState, Verdict};

/// Lanes that are activated in one step.
const ACTIVATED_PER_STEP: usize = 32;

/// Whether a robots.txt that is known has expired is checked when its lane is activated.
const ANY_TIME: Instant = Instant::START;

/// What bounds the number of active lanes.
#[derive(Clone, Copy, Debug)]
pub struct ActiveLimits {
    /// So many lanes are active, and more while nothing else can be released.
    pub lanes: usize,
    /// Connections that this machine has files for.
    pub files: usize,
    /// Connections among them that may be idle.
    pub kept: usize,
}

impl Frontier {
    /// Parks lanes beyond these limits. Without limits none is parked.
    pub fn limit_active(&mut self, limits: ActiveLimits) {
        self.active.set_room(limits.lanes);
        self.first_pages.set_files(limits.files, limits.kept);
    }

    /// Activates some parked lanes, if there are any: nothing else can be released, though there is room for so
    /// many requests. Returns whether it did.
    pub fn activate_more(&mut self, room: usize, now: Instant) -> bool {
        let most = room.min(ACTIVATED_PER_STEP);
        self.active.parked() > 0 && self.activate(most, |_| true, now) > 0
    }

    /// Whether [`Frontier::fill`] is to be called, and then whether more can be activated if nothing else can be
    /// released.
    pub fn may_activate(&self) -> bool {
        self.active.has_changed() || self.first_pages.is_freed() || self.has_vacancy()
    }

    /// Activates parked lanes while fewer are active than may be.
    pub fn fill(&mut self, now: Instant) {
        self.first_pages.end_wait();
        self.active.end_change();
        if self.has_vacancy() {
            let is_due = |frontier: &Frontier| frontier.has_vacancy();
            self.activate(ACTIVATED_PER_STEP, is_due, now);
        }
    }

    /// Whether a parked lane is to be activated whatever the others do.
    fn has_vacancy(&self) -> bool {
        self.active.parked() > 0 && self.active.has_vacancy(self.first_pages.may_begin(0))
    }

    fn activate(&mut self, most: usize, is_due: impl Fn(&Frontier) -> bool, now: Instant) -> usize {
        let (mut activated, mut begun) = (0, 0);
        for _ in 0..most {
            let may_begin = self.first_pages.may_begin(begun);
            let next = is_due(self).then(|| self.active.poll(may_begin)).flatten();
            let Some(lane) = next else {
                if !may_begin && self.active.has_parked(true) {
                    self.first_pages.wait();
                }
                break;
            };
            if !self.has_queued(lane) {
                self.lanes[lane.0 as usize].state = LaneState::Idle;
                self.close_if_done(lane, now);
                activated += 1;
                continue;
            }
            let is_fresh = self.begins_with_robots(lane, now);
            if is_fresh && !may_begin {
                self.park_first(lane);
                continue;
            }
            begun += usize::from(is_fresh);
            activated += 1;
            self.offer_active(lane);
        }
        activated
    }

    /// Whether a lane that is to be offered is active; if not, it is parked.
    pub(super) fn enters(&mut self, lane: LaneId) -> bool {
        let front = self.lanes[lane.0 as usize].queue.peek();
        let priority = self.priority_of(lane, front);
        let may_begin = self.first_pages.may_begin(0);
        let enters = self.active.enter(lane, priority, may_begin);
        if !enters {
            self.first_pages.end(lane);
            let is_fresh = self.begins_with_robots(lane, ANY_TIME);
            self.active.park(lane, priority, is_fresh);
            self.lanes[lane.0 as usize].state = LaneState::Parked;
            self.changes.push(LaneChange::Park(lane));
        }
        enters
    }

    /// Parks a released lane that is to ask for a robots.txt, and has no file for it.
    pub(super) fn park_first(&mut self, lane: LaneId) {
        let front = self.lanes[lane.0 as usize].queue.peek();
        let priority = self.priority_of(lane, front);
        self.active.park_first(lane, priority);
        self.lanes[lane.0 as usize].state = LaneState::Parked;
        self.changes.push(LaneChange::Park(lane));
    }

    /// The queue of a parked lane has changed; its first request had this priority.
    pub(super) fn update_parked(&mut self, lane: LaneId, before: Option<i32>) {
        let front = self.lanes[lane.0 as usize].queue.peek();
        if let Some(front) = front
            && before != Some(front.priority())
        {
            let priority = self.priority_of(lane, Some(front));
            let is_fresh = self.begins_with_robots(lane, ANY_TIME);
            self.active.park(lane, priority, is_fresh);
        }
    }

    /// A lane is neither active nor parked any more, but in this state.
    pub(super) fn deactivate(&mut self, lane: LaneId, state: LaneState) {
        self.active.leave(lane);
        self.first_pages.end(lane);
        self.lanes[lane.0 as usize].state = state;
    }

    /// Whether a lane has to ask for a robots.txt, and that alone keeps its first page from being sent.
    fn begins_with_robots(&self, lane: LaneId, now: Instant) -> bool {
        if !self.settings.robots_obey || !self.first_pages.is_on() {
            return false;
        }
        let slot = &self.lanes[lane.0 as usize];
        let is_asked_for = slot
            .queue
            .peek()
            .is_some_and(|front| front.kind() != PageKind::Robots && !front.flags().ignore_robots);
        is_asked_for
            && match &self.origins.get(slot.origin).robots {
                RobotsState::Fetching(_) => false,
                known => known
                    .valid_until(&self.rules)
                    .is_none_or(|until| until <= now),
            }
    }

    /// The robots.txt of a lane has arrived: its connection waits only for a first page that may be sent in
    /// time.
    pub(super) fn review_first_page(&mut self, lane: LaneId, now: Instant) {
        let Some(until) = self.first_pages.reserved_until(lane) else {
            return;
        };
        let slot = &self.lanes[lane.0 as usize];
        let origin = self.origins.get(slot.origin);
        let delay = origin.robots.crawl_delay(&self.rules);
        let comes = delay.is_none_or(|delay| now + delay <= until)
            && match (&origin.robots, slot.queue.peek()) {
                (RobotsState::Known(known), Some(front)) => {
                    self.rules.verdict(*known, front.target(), now) == Verdict::Allowed
                }
                (RobotsState::Absent(_), Some(_)) => true,
                _ => false,
            };
        if !comes {
            self.first_pages.end(lane);
        }
    }

    /// The connection that fetched the robots.txt of a lane is kept; the lane may be released at `due`.
    pub fn keep_for_first_page(&mut self, lane: LaneId, due: Instant) {
        if (self.first_pages.reserved_until(lane)).is_some_and(|until| due > until) {
            self.first_pages.end(lane);
        }
    }

    /// The connection that fetched the robots.txt of a lane is not kept.
    pub fn end_first_page(&mut self, lane: LaneId) {
        self.first_pages.end(lane);
    }

    /// Whether a lane is parked.
    pub fn is_parked(&self, lane: LaneId) -> bool {
        self.lanes[lane.0 as usize].state == LaneState::Parked
    }

    /// Number of parked lanes.
    pub fn parked(&self) -> usize {
        self.active.parked()
    }
}
