//! A lane: the scopes under which a queue of requests is sent, and whether it has something to send.

use smallvec::SmallVec;

use super::super::scope::{NOBODY, ScopeId, ScopeSet};
use super::lines::End;
use super::{PASSED_MAX, Throttle};
use crate::base::time::Instant;

/// A lane, by number. Numbers are used again once a lane is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// There may be millions: every field here is one that each of them needs.
#[derive(Debug)]
pub(super) struct Lane {
    /// Its scopes, where it has no more than two: `NO_SCOPE` in place of the second if there is
    /// none. Longer lists are in `more`.
    few: [ScopeId; 2],
    more: Option<Box<More>>,
    pub offered_at: Instant,
    /// The next in the line it stands in (perhaps without waiting any more), or `NOBODY`.
    pub next: u32,
    /// How many of its scopes its requests name or map to. They come first; the others came by
    /// themselves (an address, a Crawl-delay).
    pub named: u8,
    /// Whether the last of these is the most specific.
    pub ordered: bool,
    pub state: Waiting,
    /// Times it was first and could not go for another scope's sake.
    pub passed: u8,
}

/// What few lanes have.
#[derive(Debug, Default)]
struct More {
    /// All its scopes, where there are more than two.
    scopes: Vec<ScopeId>,
    /// What its next request is expected to cost, where that was said.
    costs: Vec<(ScopeId, f64)>,
}

/// No scope has this number.
const NO_SCOPE: ScopeId = ScopeId(u32::MAX);

impl Lane {
    fn new(scopes: &ScopeSet) -> Self {
        let mut lane = Lane {
            few: [NO_SCOPE; 2],
            more: None,
            offered_at: Instant::START,
            next: NOBODY,
            named: scopes.ids().len() as u8,
            ordered: scopes.is_ordered(),
            state: Waiting::Idle,
            passed: 0,
        };
        lane.set_scopes(scopes.ids());
        lane
    }

    /// First those that its requests name or map to, then those that came by themselves.
    pub fn scopes(&self) -> &[ScopeId] {
        match (&self.more, self.few) {
            (Some(more), _) if !more.scopes.is_empty() => &more.scopes,
            (_, [NO_SCOPE, _]) => &[],
            (_, [_, NO_SCOPE]) => &self.few[..1],
            _ => &self.few,
        }
    }

    /// The same, to be gone through while the lane changes.
    pub fn scopes_apart(&self) -> SmallVec<[ScopeId; 4]> {
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

    /// Those of its scopes that it was opened under.
    fn named(&self) -> &[ScopeId] {
        &self.scopes()[..usize::from(self.named)]
    }

    /// What its next request is expected to cost a scope.
    pub fn cost(&self, scope: ScopeId) -> f64 {
        cost_of(self.costs(), scope)
    }

    fn costs(&self) -> &[(ScopeId, f64)] {
        self.more.as_ref().map_or(&[], |more| &more.costs)
    }

    /// Whether it stands in some scope's line.
    fn is_linked(&self) -> bool {
        self.next != NOBODY
    }

    /// It waits for a place, not for time: it is due when it gets one.
    pub fn want_place(&mut self) {
        if let Waiting::Offered { wanted_place } = &mut self.state {
            *wanted_place = true;
        }
    }

    /// Whether it has something to send.
    pub fn is_offered(&self) -> bool {
        matches!(self.state, Waiting::Offered { .. })
    }
}

/// What a request is expected to cost a scope.
pub(super) fn cost_of(costs: &[(ScopeId, f64)], scope: ScopeId) -> f64 {
    let said = costs.iter().find(|(id, _)| *id == scope);
    said.map_or(1.0, |(_, units)| *units)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Closed,
    Idle,
    /// It has something to send. `wanted_place`: it waited for a place, not for time.
    Offered {
        wanted_place: bool,
    },
}

impl Throttle {
    /// The scopes that a lane is opened under for requests that have these: at least one.
    pub fn lane_scopes_of(&mut self, scopes: &ScopeSet) -> ScopeSet {
        if !scopes.ids().is_empty() {
            return scopes.clone();
        }
        // No scope means no limit but the global cap (F18): one that never says no.
        let free = self.implicit_scope("", |settings| settings.concurrency = u32::MAX);
        match scopes.is_ordered() {
            true => ScopeSet::ordered([free]),
            false => ScopeSet::unordered([free]),
        }
    }

    /// Opens a lane under these scopes. Without any it is bound by the global cap alone.
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

    /// The scopes of a lane: those it was opened under first.
    pub fn lane_scopes(&self, lane: LaneId) -> &[ScopeId] {
        self.lanes[lane.0 as usize].scopes()
    }

    /// Whether these are the scopes that a lane was opened under.
    pub fn is_opened_under(&self, lane: LaneId, scopes: &ScopeSet) -> bool {
        let slot = &self.lanes[lane.0 as usize];
        slot.named() == scopes.ids() && slot.ordered == scopes.is_ordered()
    }

    /// The scopes that a lane was opened under.
    pub fn opened_under(&self, lane: LaneId) -> ScopeSet {
        let slot = &self.lanes[lane.0 as usize];
        let named = slot.named().iter().copied();
        match slot.ordered {
            true => ScopeSet::ordered(named),
            false => ScopeSet::unordered(named),
        }
    }

    /// Those of a lane's scopes that it was not opened under: they came by themselves.
    pub fn joined_scopes(&self, lane: LaneId) -> &[ScopeId] {
        let slot = &self.lanes[lane.0 as usize];
        &slot.scopes()[usize::from(slot.named)..]
    }

    /// Adds a scope to a lane that does not wait now (an address once it is known, a Crawl-delay).
    pub fn add_scope(&mut self, lane: LaneId, scope: ScopeId) {
        let slot = &mut self.lanes[lane.0 as usize];
        let mut scopes = slot.scopes_apart();
        if !scopes.contains(&scope) {
            scopes.push(scope);
            slot.set_scopes(&scopes);
            self.scope_mut(scope).lanes += 1;
        }
    }

    /// Takes a scope from a lane that does not wait now (an address that is the host's no more).
    pub fn remove_scope(&mut self, lane: LaneId, scope: ScopeId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        let mut scopes = slot.scopes_apart();
        if let Some(at) = scopes.iter().position(|other| *other == scope) {
            assert!(
                at >= usize::from(slot.named),
                "what a lane was opened under stays"
            );
            scopes.remove(at);
            slot.set_scopes(&scopes);
            self.disown(&[scope], now);
        }
    }

    /// Closes a lane that does not wait and whose requests have ended.
    pub fn close_lane(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        assert_eq!(slot.state, Waiting::Idle, "a lane that waits is not closed");
        slot.state = Waiting::Closed;
        let scopes = slot.scopes_apart();
        slot.few = [NO_SCOPE; 2];
        slot.more = None;
        if !slot.is_linked() {
            self.lanes_free.push(lane.0);
        }
        self.disown(&scopes, now);
    }

    /// What the next request of a lane is expected to cost a scope.
    pub(super) fn cost(&self, lane: u32, scope: ScopeId) -> f64 {
        self.lanes[lane as usize].cost(scope)
    }

    /// Says what the next request of a lane is expected to cost its scopes: 1 where nothing is said.
    /// Said again where another request comes to be the next.
    pub fn expect(&mut self, lane: LaneId, costs: &[(ScopeId, f64)], now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.costs() == costs {
            return;
        }
        slot.more.get_or_insert_default().costs = costs.to_vec();
        if slot.is_offered() {
            for scope in slot.scopes_apart() {
                self.look_at(scope, now);
            }
        }
    }

    pub(super) fn disown(&mut self, scopes: &[ScopeId], now: Instant) {
        for scope in scopes {
            self.scope_mut(*scope).lanes -= 1;
            self.settle(*scope, now);
        }
    }

    /// The lane has something to send. Offering twice is offering once.
    pub fn offer(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        assert_ne!(slot.state, Waiting::Closed, "a closed lane sends nothing");
        if slot.is_offered() {
            return;
        }
        slot.state = Waiting::Offered {
            wanted_place: false,
        };
        slot.offered_at = now;
        slot.passed = 0;
        if !slot.is_linked() {
            let first = slot.scopes()[0];
            self.stand(lane.0, first, End::Back);
            return self.look_at(first, now);
        }
        // A lane that was withdrawn still stands in one of these lines, and now waits again.
        for id in slot.scopes_apart() {
            self.look_at(id, now);
        }
    }

    /// The lane has nothing to send any more.
    pub fn withdraw(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.is_offered() {
            slot.state = Waiting::Idle;
            self.unclaim(lane.0, now);
        }
    }

    pub(super) fn unclaim(&mut self, lane: u32, now: Instant) {
        if self.lanes[lane as usize].passed < PASSED_MAX {
            return;
        }
        self.lanes[lane as usize].passed = 0;
        for id in self.lanes[lane as usize].scopes_apart() {
            let scope = self.scope_mut(id);
            if scope.claimed_by() == lane {
                scope.claim(NOBODY);
                self.look_at(id, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_of_them_fit_into_32_megabytes() {
        assert_eq!(size_of::<Lane>(), 32);
    }

    #[test]
    fn scopes_come_and_go_whether_few_or_many() {
        let mut lane = Lane::new(&ScopeSet::ordered([ScopeId(0)]));
        for count in [1, 2, 3, 5, 3, 2, 1, 0, 2] {
            let scopes: Vec<ScopeId> = (0..count).map(ScopeId).collect();
            lane.set_scopes(&scopes);
            assert_eq!(lane.scopes(), scopes);
        }
        assert_eq!(lane.named(), [ScopeId(0)]);
    }
}
