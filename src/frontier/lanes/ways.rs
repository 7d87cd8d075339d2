//! How the requests of a lane go: to their host or through a proxy, and whether that may be asked.

use std::sync::Arc;
use std::time::Duration;

use super::Frontier;
use crate::base::intern::Interner;
use crate::base::time::Instant;
use crate::frontier::hosts::{Health, HostFailure, HostId, HostVerdict, Place};
use crate::throttle::engine::{LaneId, Throttle};
use crate::wire::proxy::{Proxy, Route};
use crate::wire::url::CrawlUrl;

/// How a lane's requests go, where that was said.
#[derive(Debug)]
pub(super) struct Way {
    pub route: Route,
    /// The proxy's, where they go through one.
    pub host: Option<HostId>,
}

impl Frontier {
    /// The proxy that a lane's requests go through.
    pub fn proxy_of(&self, lane: LaneId) -> Option<&Arc<Proxy>> {
        match self.routes.get(&lane).map(|way| &way.route) {
            None => self.settings.proxy.as_ref(),
            Some(Route::Direct) => None,
            Some(Route::Proxy(proxy)) => Some(proxy),
        }
    }

    /// Remembers how a new lane's requests go, and the host that they go through.
    pub(super) fn note_route(&mut self, lane: LaneId, route: Option<&Route>, names: &mut Interner) {
        let proxy = match route {
            None => self.settings.proxy.as_ref(),
            Some(Route::Direct) => None,
            Some(Route::Proxy(proxy)) => Some(proxy),
        };
        let Some(route) = route else {
            if let Some(proxy) = proxy
                && self.proxy_host.is_none()
            {
                self.proxy_host = Some(self.hosts.host(proxy.host(), names));
            }
            return;
        };
        let way = Way {
            route: route.clone(),
            host: proxy.map(|proxy| self.hosts.host(proxy.host(), names)),
        };
        self.routes.insert(lane, way);
    }

    /// Whether this is how requests go that say nothing.
    pub(super) fn is_usual(&self, route: &Route) -> bool {
        match (route, &self.settings.proxy) {
            (Route::Direct, usual) => usual.is_none(),
            (Route::Proxy(proxy), usual) => usual.as_ref() == Some(proxy),
        }
    }

    /// The host that a lane's connections lead to, and its port: a proxy's where there is one.
    pub fn host_and_port<'a>(&'a self, lane: LaneId, throttle: &'a Throttle) -> (&'a str, u16) {
        if let Some(proxy) = self.proxy_of(lane) {
            return (proxy.host(), proxy.port());
        }
        let (_, host, port) = self.address_of(lane, throttle);
        (host, port)
    }

    /// The host that a lane's requests are for, whatever they go through.
    pub fn origin_host<'a>(&self, lane: LaneId, throttle: &'a Throttle) -> &'a str {
        self.address_of(lane, throttle).1
    }

    /// Whether a lane's origin is https, its host and its port.
    pub(super) fn address_of<'a>(
        &self,
        lane: LaneId,
        throttle: &'a Throttle,
    ) -> (bool, &'a str, u16) {
        let origin = self.origins.get(self.lanes[lane.0 as usize].origin);
        let (is_https, port) = origin.scheme_and_port();
        (is_https, throttle.names().name(origin.host.0), port)
    }

    pub(super) fn host_of(&self, lane: LaneId) -> HostId {
        self.origins.get(self.lanes[lane.0 as usize].origin).host
    }

    /// The host of the proxy that a lane's requests go through.
    pub(super) fn proxy_host_of(&self, lane: LaneId) -> Option<HostId> {
        match self.routes.get(&lane) {
            None => self.proxy_host,
            Some(way) => way.host,
        }
    }

    /// The host and port that a lane's requests are for, whatever they go through.
    fn place_of(&self, lane: LaneId) -> Place {
        let origin = self.origins.get(self.lanes[lane.0 as usize].origin);
        (origin.host, origin.scheme_and_port().1)
    }

    /// The host and port that a lane's connections lead to: its proxy's, or its own.
    fn dialled_place(&self, lane: LaneId) -> Place {
        match (self.proxy_host_of(lane), self.proxy_of(lane)) {
            (Some(host), Some(proxy)) => (host, proxy.port()),
            _ => self.place_of(lane),
        }
    }

    /// Whether a lane's host may be asked, and whatever it is reached through.
    pub(super) fn health(&self, lane: LaneId, now: Instant) -> Health {
        let health = self.hosts.health(self.place_of(lane), now);
        match (health, self.proxy_host_of(lane)) {
            (Health::Up, Some(_)) => self.hosts.health(self.dialled_place(lane), now),
            (health, _) => health,
        }
    }

    /// The host that a lane's connections lead to could not be resolved or connected to.
    pub fn host_failed(&mut self, lane: LaneId, now: Instant) -> HostVerdict {
        self.count_failure(self.dialled_place(lane), HostFailure::Unconnected, now)
    }

    /// The host that a lane's connections lead to is not reached from our machine at all: it is given
    /// up.
    pub fn host_unroutable(&mut self, lane: LaneId, now: Instant) {
        if !self.settings.host_down_after.is_zero() {
            self.hosts.give_up(self.dialled_place(lane), true, now);
        }
    }

    /// The host that a lane's connections lead to was connected to.
    pub fn host_connected(&mut self, lane: LaneId) {
        self.hosts.connected(self.dialled_place(lane));
    }

    /// A lane's proxy could not reach the lane's host.
    pub fn origin_failed(&mut self, lane: LaneId, now: Instant) -> HostVerdict {
        self.count_failure(self.place_of(lane), HostFailure::Unconnected, now)
    }

    /// A lane's proxy reached the lane's host.
    pub fn origin_connected(&mut self, lane: LaneId) {
        self.hosts.connected(self.place_of(lane));
    }

    /// The host of this robots.txt gave no answer to the request for it.
    pub fn host_unanswered(
        &mut self,
        url: &CrawlUrl,
        throttle: &Throttle,
        now: Instant,
    ) -> HostVerdict {
        match self.hosts.find(url.host_str(), throttle.names()) {
            Some(host) => self.count_failure((host, url.port()), HostFailure::Unanswered, now),
            None => HostVerdict::Counted,
        }
    }

    /// A lane's host answered a request.
    pub fn host_answered(&mut self, lane: LaneId) {
        self.hosts.answered(self.place_of(lane));
    }

    fn count_failure(&mut self, place: Place, how: HostFailure, now: Instant) -> HostVerdict {
        match self.settings.host_down_after {
            Duration::ZERO => HostVerdict::Counted,
            after => self.hosts.failed(place, how, after, now),
        }
    }

    /// Whether the host of this URL was given up.
    pub fn is_host_down(&self, url: &CrawlUrl, throttle: &Throttle, now: Instant) -> bool {
        let host = self.hosts.find(url.host_str(), throttle.names());
        host.is_some_and(|host| {
            let health = self.hosts.health((host, url.port()), now);
            matches!(health, Health::Down | Health::Unroutable)
        })
    }

    /// Time by [`Hosts::running`]'s clock.
    pub fn running(&self, now: Instant) -> Instant {
        self.hosts.running(now)
    }

    /// No host could be asked for this long: it does not count towards their being given up.
    pub fn excuse_hosts(&mut self, span: Duration) {
        self.hosts.excuse_all(span);
    }

    /// The host that a lane's connections lead to could not be asked since this moment of running time,
    /// through no fault of its own: that time does not count towards its being given up.
    pub fn excuse_host(&mut self, lane: LaneId, since: Instant, now: Instant) {
        self.hosts.excuse(self.dialled_place(lane), since, now);
    }

    /// How many hosts are held, and when the first of these holds is over.
    pub fn hosts_held(&self, now: Instant) -> (usize, Option<Instant>) {
        self.hosts.held(now)
    }
}
