//! A lane: the scopes under which a queue of requests is sent, and whether it has something to send.

use smallvec::SmallVec;

use super::super::scope::{NOBODY, ScopeId, ScopeSet};
use super::lines::End;
use super::{PASSED_MAX, Throttle};
use crate::base::time::Instant;

/// A lane, by number. Numbers are used again once a lane is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

#[derive(Debug)]
pub(super) struct Lane {
    /// First those that its requests name or map to, then those that came by themselves (an
    /// address, a Crawl-delay).
    pub scopes: SmallVec<[ScopeId; 2]>,
    /// How many are of the first kind.
    pub named: u8,
    /// Whether the last of these is the most specific.
    pub ordered: bool,
    pub state: Waiting,
    /// The next in the line it stands in.
    pub next: u32,
    /// It stands in some scope's line (perhaps without waiting any more).
    pub linked: bool,
    /// Times it was first and could not go for another scope's sake.
    pub passed: u8,
    /// It waited for a place, not for time: it is due when it gets one.
    pub wanted_place: bool,
    pub offered_at: Instant,
    /// What its next request is expected to cost, where that was said.
    pub costs: Box<[(ScopeId, f64)]>,
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
    Offered,
}

impl Throttle {
    /// Opens a lane under these scopes. Without any it is bound by the global cap alone.
    pub fn open_lane(&mut self, scopes: &ScopeSet) -> LaneId {
        let mut ids: SmallVec<[ScopeId; 2]> = SmallVec::from_slice(scopes.ids());
        if ids.is_empty() {
            // No scope means no limit but the global cap (F18): one that never says no.
            ids.push(self.implicit_scope("", |settings| settings.concurrency = u32::MAX));
        }
        for id in &ids {
            self.scope_mut(*id).lanes += 1;
        }
        let lane = Lane {
            named: ids.len() as u8,
            ordered: scopes.is_ordered(),
            scopes: ids,
            state: Waiting::Idle,
            next: NOBODY,
            linked: false,
            passed: 0,
            wanted_place: false,
            offered_at: Instant::START,
            costs: Box::default(),
        };
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
        &self.lanes[lane.0 as usize].scopes
    }

    /// Those of a lane's scopes that it was not opened under: they came by themselves.
    pub fn joined_scopes(&self, lane: LaneId) -> &[ScopeId] {
        let slot = &self.lanes[lane.0 as usize];
        &slot.scopes[usize::from(slot.named)..]
    }

    /// Adds a scope to a lane that does not wait now (an address once it is known, a Crawl-delay).
    pub fn add_scope(&mut self, lane: LaneId, scope: ScopeId) {
        let scopes = &mut self.lanes[lane.0 as usize].scopes;
        if !scopes.contains(&scope) {
            scopes.push(scope);
            self.scope_mut(scope).lanes += 1;
        }
    }

    /// Takes a scope from a lane that does not wait now (an address that is the host's no more).
    pub fn remove_scope(&mut self, lane: LaneId, scope: ScopeId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if let Some(at) = slot.scopes.iter().position(|other| *other == scope) {
            assert!(
                at >= usize::from(slot.named),
                "what a lane was opened under stays"
            );
            slot.scopes.remove(at);
            self.disown(&[scope], now);
        }
    }

    /// Closes a lane that does not wait and whose requests have ended.
    pub fn close_lane(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        assert_eq!(slot.state, Waiting::Idle, "a lane that waits is not closed");
        slot.state = Waiting::Closed;
        let scopes = std::mem::take(&mut slot.scopes);
        if !slot.linked {
            self.lanes_free.push(lane.0);
        }
        self.disown(&scopes, now);
    }

    /// What the next request of a lane is expected to cost a scope.
    pub(super) fn cost(&self, lane: u32, scope: ScopeId) -> f64 {
        cost_of(&self.lanes[lane as usize].costs, scope)
    }

    /// Says what the next request of a lane is expected to cost its scopes: 1 where nothing is said.
    /// Said again where another request comes to be the next.
    pub fn expect(&mut self, lane: LaneId, costs: &[(ScopeId, f64)], now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if *slot.costs == *costs {
            return;
        }
        slot.costs = costs.into();
        if slot.state == Waiting::Offered {
            for scope in slot.scopes.clone() {
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
        if slot.state == Waiting::Offered {
            return;
        }
        slot.state = Waiting::Offered;
        slot.offered_at = now;
        slot.passed = 0;
        slot.wanted_place = false;
        let linked = slot.linked;
        let scopes = slot.scopes.clone();
        if !linked {
            self.stand(lane.0, scopes[0], End::Back);
        }
        // A lane that was withdrawn still stands in one of these lines, and now waits again.
        for id in &scopes[..if linked { scopes.len() } else { 1 }] {
            self.look_at(*id, now);
        }
    }

    /// The lane has nothing to send any more.
    pub fn withdraw(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.state == Waiting::Offered {
            slot.state = Waiting::Idle;
            self.unclaim(lane.0, now);
        }
    }

    pub(super) fn unclaim(&mut self, lane: u32, now: Instant) {
        if self.lanes[lane as usize].passed < PASSED_MAX {
            return;
        }
        self.lanes[lane as usize].passed = 0;
        for id in self.lanes[lane as usize].scopes.clone() {
            let scope = self.scope_mut(id);
            if scope.claimed_by() == lane {
                scope.claim(NOBODY);
                self.look_at(id, now);
            }
        }
    }
}
