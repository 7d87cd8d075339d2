//! Lanes open and close, and their origins are remembered for a while.

use std::cmp::Reverse;
use std::hash::BuildHasher;

use super::{Frontier, Lane, Stands};
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::frontier::origins::NO_LANE;
use crate::frontier::robots::Standing as Robots;
use crate::throttle::engine::{LaneId, Throttle};
use crate::throttle::scope::ScopeSet;
use crate::wire::proxy::Route;
use crate::wire::url::CrawlUrl;

/// Origins without lanes whose robots.txt is remembered. The one that expires first goes first.
const ROBOTS_KEPT_MAX: usize = 200_000;

impl Frontier {
    /// The lane of an origin, a way there and a set of scopes, opened if there is none.
    pub(super) fn lane(
        &mut self,
        url: &CrawlUrl,
        route: Option<&Route>,
        scopes: &ScopeSet,
        throttle: &mut Throttle,
    ) -> LaneId {
        let route = route.filter(|route| !self.is_usual(route));
        let host = self.hosts.host(url.host_str(), throttle.names_mut());
        let origin = self.origins.origin(url, host, route);
        let scopes = throttle.lane_scopes_of(scopes);
        let first = self.origins.get(origin).lane;
        let goes_so = |lane| self.routes.get(&lane).map(|way| &way.route) == route;
        if first != NO_LANE && throttle.is_opened_under(first, &scopes) && goes_so(first) {
            return first;
        }
        let key = lane_key(&self.secret, origin, route, &scopes);
        if let Some((_, lane)) = self.lane_of.find(key, |(other, _)| *other == key) {
            return *lane;
        }
        let lane = throttle.open_lane(&scopes);
        self.lanes.grow_to(lane.0 as usize + 1, Lane::default);
        self.lanes[lane.0 as usize] = Lane {
            origin,
            stands: Stands::Idle,
            ..Lane::default()
        };
        self.lanes_open += 1;
        self.note_route(lane, route, throttle.names_mut());
        let origin = self.origins.get_mut(origin);
        origin.users += 1;
        if origin.lane == NO_LANE {
            origin.lane = lane;
        } else {
            self.lane_of
                .insert_unique(key, (key, lane), |(key, _)| *key);
        }
        lane
    }

    pub(super) fn close_if_done(&mut self, lane: LaneId, throttle: &mut Throttle, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.stands != Stands::Idle || !slot.queue.is_empty() || !slot.in_flight.is_zero() {
            return;
        }
        let number = slot.origin;
        *slot = Lane::default();
        let way = match self.routes.is_empty() {
            true => None,
            false => self.routes.remove(&lane),
        };
        let origin = self.origins.get_mut(number);
        origin.users -= 1;
        if origin.lane == lane {
            origin.lane = NO_LANE;
        } else {
            let route = way.as_ref().map(|way| &way.route);
            let key = lane_key(&self.secret, number, route, &throttle.opened_under(lane));
            if let Ok(entry) = self.lane_of.find_entry(key, |(_, other)| *other == lane) {
                entry.remove();
            }
        }
        if !self.heeded.is_empty() {
            self.heeded.remove(&lane);
        }
        if !self.decided.is_empty() {
            self.decided.remove(&lane);
        }
        throttle.close_lane(lane, now);
        self.lanes_open -= 1;
        self.keep_or_forget(number, now);
    }

    /// The number of a lane's origin, which is no other's until it is let go as often as held.
    pub fn hold_origin(&mut self, lane: LaneId) -> u32 {
        let number = self.lanes[lane.0 as usize].origin;
        self.hold_origin_again(number);
        number
    }

    /// One more hold on an origin that is held.
    pub fn hold_origin_again(&mut self, number: u32) {
        self.origins.get_mut(number).users += 1;
    }

    /// Lets go of an origin that was held.
    pub fn let_origin_go(&mut self, number: u32, now: Instant) {
        let origin = self.origins.get_mut(number);
        origin.users -= 1;
        if origin.users == 0 {
            self.keep_or_forget(number, now);
        }
    }

    /// An origin that nobody uses is remembered while its robots.txt holds, within the bound.
    pub(super) fn keep_or_forget(&mut self, origin: u32, now: Instant) {
        let slot = self.origins.get_mut(origin);
        if slot.users > 0 || slot.kept || matches!(slot.robots, Robots::Fetching(_)) {
            return;
        }
        let until = slot.robots.holds_until(&self.rules);
        let Some(until) = until.filter(|until| *until > now) else {
            return self.forget_origin(origin);
        };
        slot.kept = true;
        self.origins_kept.push(Reverse((until, origin)));
        while let Some(Reverse((until, first))) = self.origins_kept.peek().copied()
            && (until <= now || self.origins_kept.len() > ROBOTS_KEPT_MAX)
        {
            self.origins_kept.pop();
            let slot = self.origins.get_mut(first);
            slot.kept = false;
            if slot.users == 0 && !matches!(slot.robots, Robots::Fetching(_)) {
                self.forget_origin(first);
            }
        }
    }
}

/// Names a lane: its origin, the way there and its scopes, mixed into 64 bits.
fn lane_key(secret: &Secret, origin: u32, route: Option<&Route>, scopes: &ScopeSet) -> u64 {
    // The finalizer of splitmix64, chained: a lane is found by its whole key.
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
    use crate::throttle::scope::ScopeId;

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
