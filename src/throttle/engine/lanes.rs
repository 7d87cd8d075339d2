//! Lanes: the scopes under which a queue of requests is sent, and whether it has a request to send.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::scope::NO_INDEX;
use super::{PASSED_OVER_MAX, Throttle};
use crate::base::ids::{LaneId, ScopeId, ScopeSet};
use crate::base::time::Instant;

/// A lane. There may be millions, so only fields that every lane needs are here.
#[derive(Debug)]
pub(super) struct Lane {
    /// Its scopes if there are at most two, with `NO_SCOPE` in place of a missing second. Longer
    /// lists are in `more`.
    few: [ScopeId; 2],
    more: Option<Box<More>>,
    pub offered_at: Instant,
    /// The next lane in the line (which may be there without waiting any more), or `NO_INDEX`.
    pub next: u32,
    /// Number of its scopes that its requests name or map to, `ORDERED` and `FIRST`. They come first; the
    /// others were added automatically (an address, a Crawl-delay).
    named: u8,
    /// The number of the priority of its next request.
    pub priority: u8,
    pub state: Waiting,
    /// Times it was first in a line and could not be released because of another scope.
    pub passed_over: u8,
}

/// Data that few lanes have.
#[derive(Debug, Default)]
struct More {
    /// All its scopes if there are more than two.
    scopes: Vec<ScopeId>,
    /// Expected costs of its next request, where given.
    costs: Vec<(ScopeId, f64)>,
}

/// The last of the scopes that requests name or map to is the most specific.
const ORDERED: u8 = 0x80;

/// Its request goes before those of others in the lines of its scopes.
const FIRST: u8 = 0x40;

/// Marks a missing scope.
const NO_SCOPE: ScopeId = ScopeId(u32::MAX);

impl Lane {
    fn new(scopes: &ScopeSet) -> Self {
        let mut lane = Lane {
            few: [NO_SCOPE; 2],
            more: None,
            offered_at: Instant::START,
            next: NO_INDEX,
            named: scopes.ids().len() as u8 | if scopes.is_ordered() { ORDERED } else { 0 },
            priority: 0,
            state: Waiting::Idle,
            passed_over: 0,
        };
        lane.set_scopes(scopes.ids());
        lane
    }

    /// All its scopes: those its requests name or map to, then those added automatically.
    pub fn scopes(&self) -> &[ScopeId] {
        match (&self.more, self.few) {
            (Some(more), _) if !more.scopes.is_empty() => &more.scopes,
            (_, [NO_SCOPE, _]) => &[],
            (_, [_, NO_SCOPE]) => &self.few[..1],
            _ => &self.few,
        }
    }

    /// Number of its scopes that its requests name or map to: they come first.
    pub fn named(&self) -> u8 {
        self.named & !(ORDERED | FIRST)
    }

    /// Whether the last of these is the most specific.
    pub fn is_ordered(&self) -> bool {
        self.named & ORDERED != 0
    }

    /// A copy of the same list, for iteration while the lane changes.
    pub fn scopes_copy(&self) -> SmallVec<[ScopeId; 4]> {
        SmallVec::from_slice(self.scopes())
    }

    fn set_scopes(&mut self, scopes: &[ScopeId]) {
        if let Some(more) = &mut self.more {
            more.scopes.clear();
        }
        self.few = [NO_SCOPE; 2];
        match self.few.get_mut(..scopes.len()) {
            Some(few) => few.copy_from_slice(scopes),
            None => self.more.get_or_insert_default().scopes = scopes.to_vec(),
        }
    }

    /// Expected cost of its next request in a scope.
    pub fn cost(&self, scope: ScopeId) -> f64 {
        cost_of(self.costs(), scope)
    }

    fn costs(&self) -> &[(ScopeId, f64)] {
        self.more.as_ref().map_or(&[], |more| &more.costs)
    }

    /// Returns whether it is in some scope's line.
    pub fn is_linked(&self) -> bool {
        self.next != NO_INDEX
    }

    /// Records that it waits for a slot and not for a time: it is due when it gets the slot.
    pub fn wait_for_slot(&mut self) {
        if let Waiting::Offered { waited_for_slot } = &mut self.state {
            *waited_for_slot = true;
        }
    }

    /// Returns whether its request goes before those of others in the lines of its scopes.
    pub fn goes_first(&self) -> bool {
        self.named & FIRST != 0
    }

    /// Sets whether its request goes before those of others.
    fn set_first(&mut self, first: bool) {
        self.named = self.named & !FIRST | if first { FIRST } else { 0 };
    }

    /// Returns whether it has a request to send.
    pub fn is_offered(&self) -> bool {
        matches!(self.state, Waiting::Offered { .. })
    }
}

/// Expected cost of a request in a scope.
pub(super) fn cost_of(costs: &[(ScopeId, f64)], scope: ScopeId) -> f64 {
    let cost = costs.iter().find(|(id, _)| *id == scope);
    cost.map_or(1.0, |(_, units)| *units)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Closed,
    Idle,
    /// It has a request to send, and is not offered for now: others are.
    Parked,
    /// It has a request to send. `waited_for_slot`: it waited for a slot and not for a time.
    Offered {
        waited_for_slot: bool,
    },
}

impl Throttle {
    /// The scopes under which a lane is opened for requests with these scopes: at least one.
    fn lane_scopes_of(&mut self, scopes: &ScopeSet) -> ScopeSet {
        if !scopes.ids().is_empty() {
            return scopes.clone();
        }
        // Without scopes only the global cap applies (F18), through a scope that never limits.
        let free = self.implicit_scope("", |settings| settings.concurrency = u32::MAX);
        match scopes.is_ordered() {
            true => ScopeSet::ordered([free]),
            false => ScopeSet::unordered([free]),
        }
    }

    /// Opens a lane under these scopes. Without any, only the global cap applies.
    pub fn open_lane(&mut self, scopes: &ScopeSet) -> LaneId {
        let scopes = self.lane_scopes_of(scopes);
        for id in scopes.ids() {
            self.scope_mut(*id).lanes += 1;
        }
        let lane = Lane::new(&scopes);
        if let Some(id) = self.lanes_free.pop() {
            self.lanes[id as usize] = lane;
            LaneId(id)
        } else {
            self.lanes.push(lane);
            LaneId((self.lanes.len() - 1) as u32)
        }
    }

    /// The scopes of a lane, starting with those it was opened under.
    pub(crate) fn lane_scopes(&self, lane: LaneId) -> &[ScopeId] {
        self.lanes[lane.0 as usize].scopes()
    }

    /// Returns whether a lane was opened under these scopes. Without any, a lane is under the one scope
    /// that sets no limit.
    pub(crate) fn is_opened_under(&self, lane: LaneId, scopes: &ScopeSet) -> bool {
        let slot = &self.lanes[lane.0 as usize];
        let named = &slot.scopes()[..usize::from(slot.named())];
        let same = match (named, scopes.ids()) {
            ([only], []) => self.scope_table.name(*only).is_empty(),
            (named, ids) => named == ids,
        };
        same && slot.is_ordered() == scopes.is_ordered()
    }

    /// The scopes of a lane that were added automatically after it was opened.
    pub(crate) fn joined_scopes(&self, lane: LaneId) -> &[ScopeId] {
        let slot = &self.lanes[lane.0 as usize];
        &slot.scopes()[usize::from(slot.named())..]
    }

    /// Adds a scope to a lane that does not wait now (an address after name resolution, a
    /// Crawl-delay).
    pub(crate) fn add_scope(&mut self, lane: LaneId, scope: ScopeId) {
        let slot = &mut self.lanes[lane.0 as usize];
        let mut scopes = slot.scopes_copy();
        if !scopes.contains(&scope) {
            scopes.push(scope);
            slot.set_scopes(&scopes);
            self.scope_mut(scope).lanes += 1;
        }
    }

    /// Removes a scope from a lane that does not wait now (an address that is no longer the
    /// host's).
    pub(crate) fn remove_scope(&mut self, lane: LaneId, scope: ScopeId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        let mut scopes = slot.scopes_copy();
        if let Some(at) = scopes.iter().position(|other| *other == scope) {
            assert!(
                at >= usize::from(slot.named()),
                "a scope that a lane was opened under is not removed"
            );
            scopes.remove(at);
            slot.set_scopes(&scopes);
            self.drop_scopes(&[scope], now);
        }
    }

    /// Closes a lane that does not wait and whose requests have ended.
    pub fn close_lane(&mut self, lane: LaneId, now: Instant) {
        self.unpark(lane, now);
        let slot = &mut self.lanes[lane.0 as usize];
        assert_eq!(slot.state, Waiting::Idle, "only an idle lane is closed");
        slot.state = Waiting::Closed;
        let scopes = slot.scopes_copy();
        slot.few = [NO_SCOPE; 2];
        slot.more = None;
        if !slot.is_linked() {
            self.lanes_free.push(lane.0);
        }
        self.drop_scopes(&scopes, now);
    }

    /// Expected cost of a lane's next request in a scope.
    pub(super) fn cost(&self, lane: u32, scope: ScopeId) -> f64 {
        self.lanes[lane as usize].cost(scope)
    }

    /// Sets the expected costs of a lane's next request in its scopes; 1 where not given. Call it
    /// again when another request becomes the next.
    pub(crate) fn expect(&mut self, lane: LaneId, costs: &[(ScopeId, f64)], now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.costs() == costs {
            return;
        }
        slot.more.get_or_insert_default().costs = costs.to_vec();
        if slot.is_offered() {
            for scope in slot.scopes_copy() {
                self.schedule_check(scope, now);
            }
        }
    }

    pub(super) fn drop_scopes(&mut self, scopes: &[ScopeId], now: Instant) {
        for scope in scopes {
            self.scope_mut(*scope).lanes -= 1;
            self.evict_or_schedule(*scope, now);
        }
    }

    /// Records that the lane has a request to send. Idempotent.
    pub fn offer(&mut self, lane: LaneId, now: Instant) {
        self.offer_in_line(lane, false, now);
    }

    /// The same for a request that goes before those of other lanes in the lines of its scopes, since a
    /// connection waits for it. Each scope still keeps its gaps, claims come before it, and in a scope whose lanes
    /// differ in priority it has no precedence.
    pub(crate) fn offer_first(&mut self, lane: LaneId, now: Instant) {
        self.offer_in_line(lane, true, now);
    }

    fn offer_in_line(&mut self, lane: LaneId, goes_first: bool, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        assert_ne!(slot.state, Waiting::Closed, "a closed lane is not offered");
        if slot.is_offered() {
            return;
        }
        self.unpark(lane, now);
        let slot = &mut self.lanes[lane.0 as usize];
        slot.state = Waiting::Offered {
            waited_for_slot: false,
        };
        slot.set_first(goes_first);
        slot.offered_at = now;
        slot.passed_over = 0;
        if !slot.is_linked() {
            let first = slot.scopes()[0];
            self.join_line(lane.0, first);
            return self.schedule_check(first, now);
        }
        // A withdrawn lane may still be in one of these lines, and now waits again.
        for id in slot.scopes_copy() {
            self.schedule_check(id, now);
        }
    }

    /// Records that an idle lane has a request to send, which is not offered before others: the wait is one for
    /// the global cap.
    pub(crate) fn park(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.state == Waiting::Idle {
            slot.state = Waiting::Parked;
            for id in slot.scopes_copy() {
                self.account_parked(id, true, now);
            }
        }
    }

    fn unpark(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.state == Waiting::Parked {
            slot.state = Waiting::Idle;
            for id in slot.scopes_copy() {
                self.account_parked(id, false, now);
            }
        }
    }

    /// Records that the lane has nothing to send any more.
    pub fn withdraw(&mut self, lane: LaneId, now: Instant) {
        self.unpark(lane, now);
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.is_offered() {
            slot.state = Waiting::Idle;
            self.unclaim(lane.0, now);
        }
    }

    /// When a lane may be released as far as time decides, and the usual gap of the slowest of its scopes.
    pub(crate) fn pace_of_lane(&self, lane: LaneId, now: Instant) -> (Instant, Duration) {
        let slot = &self.lanes[lane.0 as usize];
        let mut slowest = (now, Duration::ZERO);
        for id in slot.scopes() {
            let scope = self.scope_ref(*id);
            if let Some(at) = scope.releases_at(slot.cost(*id), now) {
                slowest.0 = slowest.0.max(at);
            }
            slowest.1 = slowest.1.max(scope.usual_gap());
        }
        slowest
    }

    pub(super) fn unclaim(&mut self, lane: u32, now: Instant) {
        if self.lanes[lane as usize].passed_over < PASSED_OVER_MAX {
            return;
        }
        self.lanes[lane as usize].passed_over = 0;
        for id in self.lanes[lane as usize].scopes_copy() {
            let scope = self.scope_mut(id);
            if scope.claimed_by() == lane {
                scope.claim(NO_INDEX);
                self.schedule_check(id, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cause::WaitCause;
    use super::super::super::settings::ThrottleSettings;
    use super::super::Grant;
    use super::*;

    #[test]
    fn a_million_lanes_fit_into_32_megabytes() {
        assert_eq!(size_of::<Lane>(), 32);
    }

    #[test]
    fn a_scope_whose_lanes_are_closed_while_it_waits_for_the_global_cap_is_not_checked_over_and_over()
     {
        let now = Instant::START + Duration::from_secs(1);
        let settings = ThrottleSettings {
            concurrent_requests: 1,
            ..ThrottleSettings::default()
        };
        let mut throttle = Throttle::new(settings, 1, now);
        let lanes = ["a.test", "b.test"].map(|name| {
            let scope = throttle.scope(name);
            throttle.open_lane(&ScopeSet::ordered([scope]))
        });
        for lane in lanes {
            throttle.offer(lane, now);
        }
        let Some(Grant::Release(first, ticket)) = throttle.poll(now) else {
            panic!("one has a slot");
        };
        assert_eq!(throttle.poll(now), None, "the other waits for it");
        let other = lanes.into_iter().find(|lane| *lane != first);
        let other = other.expect("there are two");
        throttle.withdraw(other, now);
        throttle.close_lane(other, now);
        assert_eq!(throttle.poll(now), None);
        assert_ne!(
            throttle.next_wake(),
            Some(Instant::START),
            "nothing is ready"
        );
        throttle.cancel(ticket, now);
        throttle.withdraw(first, now);
        throttle.close_lane(first, now);
        while throttle.next_wake() == Some(Instant::START) {
            assert_eq!(throttle.poll(now), None);
        }
        assert_eq!(throttle.scopes_len(), 0, "both are evicted");
    }

    #[test]
    fn a_parked_lane_waits_for_the_global_cap() {
        let at = |seconds| Instant::START + Duration::from_secs(seconds);
        let mut throttle = Throttle::new(ThrottleSettings::default(), 1, at(0));
        let scope = throttle.scope("a.test");
        let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
        for (parked, offered) in [(0, 5), (7, 8)] {
            throttle.park(lane, at(parked));
            // Other requests of the scope end meanwhile.
            throttle.schedule_check(scope, at(parked));
            throttle.offer(lane, at(offered));
            throttle.withdraw(lane, at(offered));
        }
        let waited = throttle.waited(at(20));
        let sum = waited.iter().map(|(_, waited)| *waited).sum::<Duration>();
        assert_eq!(sum, Duration::from_secs(6));
        assert!(waited.contains(&(WaitCause::GlobalCap, sum)), "{waited:?}");
        throttle.park(lane, at(20));
        throttle.close_lane(lane, at(21));
    }

    #[test]
    fn scopes_are_added_and_removed_in_short_and_long_lists() {
        let mut lane = Lane::new(&ScopeSet::ordered([ScopeId(0)]));
        for count in [1, 2, 3, 5, 3, 2, 1, 0, 2] {
            let scopes: Vec<ScopeId> = (0..count).map(ScopeId).collect();
            lane.set_scopes(&scopes);
            assert_eq!(lane.scopes(), scopes);
        }
        assert_eq!(lane.scopes()[..usize::from(lane.named())], [ScopeId(0)]);
    }
}
