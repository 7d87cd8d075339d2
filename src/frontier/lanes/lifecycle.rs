//! Opens and closes lanes, and keeps the origins of closed ones while their robots.txt is valid.

use std::cmp::Reverse;
use std::hash::BuildHasher;

use super::{Frontier, Lane, LaneChange, LaneState};
use crate::base::ids::LaneId;
use crate::base::ids::ScopeSet;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::frontier::job::Job;
use crate::frontier::origins::NO_LANE;
use crate::frontier::robots::RobotsState;
use crate::wire::proxy::Route;

/// Maximum number of origins without lanes whose robots.txt is kept. Beyond it, the one that expires
/// first is forgotten.
const ROBOTS_KEPT_MAX: usize = 200_000;

/// Memory of such an origin and its host beside the rules: `tests/idle_hosts_memory.rs`. All of them take
/// at most as much as the rules of robots.txt may.
const KEPT_BYTES: u64 = 160;

/// As many are kept however little memory the rules may take.
const ROBOTS_KEPT_MIN: usize = 256;

/// Where a request goes, and the lane that it most likely has.
#[derive(Clone, Debug)]
pub struct LaneQuery {
    origin: u32,
    /// Other than the settings' proxy.
    route: Option<Route>,
    /// The first lane of the origin, if it has this route. It is the request's lane if it was opened
    /// under the request's scopes, which only the throttle stores for each lane.
    pub candidate: Option<LaneId>,
}

/// A lane to be opened, as [`Frontier::lane_for`] returns it.
#[derive(Debug)]
pub struct NewLane {
    origin: u32,
    key: u64,
    route: Option<Route>,
}

impl Frontier {
    /// Looks up the origin and route of a request.
    pub fn lane_query(&mut self, job: &Job) -> LaneQuery {
        let route = self.route_of(job);
        let route = route
            .filter(|route| !self.is_default_route(route, &job.url))
            .cloned();
        let host = self.hosts.host(job.url.host_str());
        let (origin, is_new) = self.origins.origin(&job.url, host, route.as_ref());
        if is_new {
            self.hosts.hold(host);
            if route.is_none() {
                self.continue_robots(origin, &job.url);
            }
        }
        let first = self.origins.get(origin).lane;
        let has_route = |lane| self.routes.get(&lane).map(|way| &way.route) == route.as_ref();
        LaneQuery {
            origin,
            candidate: (first != NO_LANE && has_route(first)).then_some(first),
            route,
        }
    }

    /// Returns the lane under these scopes, when it is not the query's candidate. If there is none,
    /// returns what [`Frontier::open_lane`] must then open.
    pub fn lane_for(&self, query: LaneQuery, scopes: &ScopeSet) -> Result<LaneId, NewLane> {
        let LaneQuery { origin, route, .. } = query;
        let key = lane_key(&self.secret, origin, route.as_ref(), scopes);
        let found = self.lane_of.get(&key).copied();
        found.ok_or(NewLane { origin, key, route })
    }

    /// Opens a lane under the number that the throttle assigned.
    pub fn open_lane(&mut self, new: NewLane, lane: LaneId) {
        let NewLane { origin, key, route } = new;
        self.lanes.grow_to(lane.0 as usize + 1, Lane::default);
        self.lanes[lane.0 as usize] = Lane {
            origin,
            state: LaneState::Idle,
            ..Lane::default()
        };
        self.lanes_open += 1;
        self.set_route(lane, route);
        let origin = self.origins.get_mut(origin);
        origin.users += 1;
        if origin.lane == NO_LANE {
            origin.lane = lane;
        } else {
            self.lane_of.insert(key, lane);
            self.key_of.insert(lane, key);
        }
    }

    pub(super) fn close_if_done(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.state != LaneState::Idle || !slot.queue.is_empty() || !slot.in_flight.is_zero() {
            return;
        }
        let number = slot.origin;
        *slot = Lane::default();
        self.active.leave(lane);
        self.first_pages.end(lane);
        self.remove_route(lane);
        let origin = self.origins.get_mut(number);
        origin.users -= 1;
        if origin.lane == lane {
            origin.lane = NO_LANE;
        } else if let Some(key) = self.key_of.remove(&lane) {
            self.lane_of.remove(&key);
        }
        if !self.crawl_delays.is_empty() {
            self.crawl_delays.remove(&lane);
        }
        if !self.early_verdicts.is_empty() {
            self.early_verdicts.remove(&lane);
        }
        self.changes.push(LaneChange::Close(lane));
        self.lanes_open -= 1;
        self.keep_or_forget(number, now);
    }

    /// Returns the number of a lane's origin and counts a user of it. The number is not reused until
    /// every hold has been released by [`Frontier::release_origin`].
    pub fn hold_origin(&mut self, lane: LaneId) -> u32 {
        let number = self.lanes[lane.0 as usize].origin;
        self.hold_origin_again(number);
        number
    }

    /// Adds a hold to an origin that is held.
    pub fn hold_origin_again(&mut self, number: u32) {
        self.origins.get_mut(number).users += 1;
    }

    /// Releases one hold of an origin.
    pub fn release_origin(&mut self, number: u32, now: Instant) {
        let origin = self.origins.get_mut(number);
        origin.users -= 1;
        if origin.users == 0 {
            self.keep_or_forget(number, now);
        }
    }

    /// Keeps an unused origin while its robots.txt is valid, if there is room; otherwise evicts it.
    pub(super) fn keep_or_forget(&mut self, origin: u32, now: Instant) {
        let slot = self.origins.get_mut(origin);
        if slot.users > 0 || slot.kept || matches!(slot.robots, RobotsState::Fetching(_)) {
            return;
        }
        let until = slot.robots.valid_until(&self.rules);
        let Some(until) = until.filter(|until| *until > now) else {
            return self.forget_origin(origin);
        };
        slot.kept = true;
        self.origins_kept.push(Reverse((until, origin)));
        self.forget_kept(2, now);
    }

    /// Forgets origins that were kept for their robots.txt, at most `most`: those whose robots.txt is no
    /// longer valid, and others while too many are kept.
    pub(super) fn forget_kept(&mut self, most: usize, now: Instant) {
        for _ in 0..most {
            let Some(Reverse((until, first))) = self.origins_kept.peek().copied() else {
                return;
            };
            if until > now && self.origins_kept.len() <= self.kept_max() {
                return;
            }
            self.origins_kept.pop();
            let slot = self.origins.get_mut(first);
            slot.kept = false;
            if slot.users == 0 && !matches!(slot.robots, RobotsState::Fetching(_)) {
                self.forget_origin(first);
            }
        }
    }

    /// Maximum number of origins that are kept for their robots.txt.
    fn kept_max(&self) -> usize {
        let max = self.settings.robots_memory / KEPT_BYTES;
        (max.min(ROBOTS_KEPT_MAX as u64) as usize).max(ROBOTS_KEPT_MIN)
    }
}

/// Hashes a lane's origin, route and scopes to 64 bits.
fn lane_key(secret: &Secret, origin: u32, route: Option<&Route>, scopes: &ScopeSet) -> u64 {
    // The finalizer of splitmix64, chained. All 64 bits are compared to find a lane.
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let start = mix(secret.hash_one((origin, scopes.is_ordered())));
    let start = match route {
        None => start,
        Some(route) => mix(start ^ secret.hash_one(route)),
    };
    scopes.ids().iter().fold(start, |key, scope| {
        mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ u64::from(scope.0))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::ids::ScopeId;

    #[test]
    fn no_two_of_many_lanes_have_one_key() {
        let secret = Secret::from_seed(1);
        let mut keys = HashSet::new();
        for number in 0..100_000 {
            let scopes = ScopeSet::ordered([ScopeId(number), ScopeId(number % 7)]);
            assert!(
                keys.insert(lane_key(&secret, number / 3, None, &scopes)),
                "{number}"
            );
        }
    }
}
