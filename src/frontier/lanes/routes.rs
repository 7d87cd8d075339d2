//! The route of a lane's requests, direct or through a proxy, and the health of the hosts on it.

use std::sync::Arc;
use std::time::Duration;

use super::Frontier;
use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::frontier::hosts::{Health, HostFailure, HostId, HostPort, HostVerdict};
use crate::frontier::job::Job;
use crate::wire::proxy::{Proxy, Route};
use crate::wire::url::CrawlUrl;

/// The route that a lane's requests name themselves.
#[derive(Debug)]
pub(super) struct LaneRoute {
    pub route: Route,
    /// The host of its proxy; `None` if the route is direct.
    pub proxy_host: Option<HostId>,
}

impl Frontier {
    /// The proxy of a lane's requests; `None` if they go directly.
    pub fn proxy_of(&self, lane: LaneId) -> Option<&Arc<Proxy>> {
        match self.routes.get(&lane).map(|own| &own.route) {
            None => self.usual_proxy_of(lane),
            Some(Route::Direct) => None,
            Some(Route::Proxy(proxy)) => Some(proxy),
        }
    }

    /// The proxy of a lane's requests by the settings.
    fn usual_proxy_of(&self, lane: LaneId) -> Option<&Arc<Proxy>> {
        let proxies = &self.settings.proxies;
        if proxies.are_none() {
            return None;
        }
        let (is_https, host, _) = self.address_of(lane);
        proxies.of(is_https, host)
    }

    /// The route of a request, if it is not that of the settings: its own, or that of its host.
    pub fn route_of<'a>(&'a self, job: &'a Job) -> Option<&'a Route> {
        let own = job.route();
        own.or_else(|| self.settings.own_hosts.route(&job.url))
    }

    /// Whether a request goes through a proxy, its own, its host's or that of the settings.
    pub fn is_proxied(&self, job: &Job) -> bool {
        match self.route_of(job) {
            Some(route) => *route != Route::Direct,
            None => {
                let (url, proxies) = (&job.url, &self.settings.proxies);
                proxies.of(url.is_https(), url.host_str()).is_some()
            }
        }
    }

    /// Stores the route of a new lane, and the host of its proxy.
    pub(super) fn set_route(&mut self, lane: LaneId, route: Option<Route>) {
        let proxy = match &route {
            None => self.usual_proxy_of(lane),
            Some(Route::Direct) => None,
            Some(Route::Proxy(proxy)) => Some(proxy),
        };
        let proxy = proxy.map(Arc::clone);
        let Some(route) = route else {
            let of_scheme = usize::from(self.address_of(lane).0);
            if let Some(proxy) = proxy
                && self.proxy_hosts[of_scheme].is_none()
            {
                self.proxy_hosts[of_scheme] = Some(self.hold_host(proxy.host()));
            }
            return;
        };
        let own = LaneRoute {
            route,
            proxy_host: proxy.map(|proxy| self.hold_host(proxy.host())),
        };
        self.routes.insert(lane, own);
    }

    /// Removes the route of a closed lane.
    pub(super) fn remove_route(&mut self, lane: LaneId) {
        if self.routes.is_empty() {
            return;
        }
        let route = self.routes.remove(&lane);
        if let Some(host) = route.and_then(|own| own.proxy_host) {
            self.hosts.release(host);
        }
    }

    fn hold_host(&mut self, name: &str) -> HostId {
        let host = self.hosts.host(name);
        self.hosts.hold(host);
        host
    }

    /// Returns whether requests for a URL without a route of their own take this one.
    pub(super) fn is_default_route(&self, route: &Route, url: &CrawlUrl) -> bool {
        let usual = (self.settings.proxies).of(url.is_https(), url.host_str());
        match route {
            Route::Direct => usual.is_none(),
            Route::Proxy(own) => usual == Some(own),
        }
    }

    /// Host and port that a lane's connections are made to: its proxy's, or its origin's.
    pub fn host_and_port(&self, lane: LaneId) -> (&str, u16) {
        if let Some(proxy) = self.proxy_of(lane) {
            return (proxy.host(), proxy.port());
        }
        let (_, host, port) = self.address_of(lane);
        (host, port)
    }

    /// Host of a lane's origin, whatever its route.
    pub fn origin_host(&self, lane: LaneId) -> &str {
        self.address_of(lane).1
    }

    /// Origin of a lane: whether it is https, its host and its port.
    pub(super) fn address_of(&self, lane: LaneId) -> (bool, &str, u16) {
        let origin = self.origins.get(self.lanes[lane.0 as usize].origin);
        let (is_https, port) = origin.scheme_and_port();
        (is_https, self.hosts.name(origin.host), port)
    }

    pub(super) fn host_of(&self, lane: LaneId) -> HostId {
        self.origins.get(self.lanes[lane.0 as usize].origin).host
    }

    /// Host of a lane's proxy.
    pub(super) fn proxy_host_of(&self, lane: LaneId) -> Option<HostId> {
        match self.routes.get(&lane) {
            None => {
                self.usual_proxy_of(lane)?;
                self.proxy_hosts[usize::from(self.address_of(lane).0)]
            }
            Some(own) => own.proxy_host,
        }
    }

    /// Host and port of a lane's origin, whatever its route.
    fn host_port_of(&self, lane: LaneId) -> HostPort {
        let origin = self.origins.get(self.lanes[lane.0 as usize].origin);
        (origin.host, origin.scheme_and_port().1)
    }

    /// Host and port that a lane's connections are made to: its proxy's, or its origin's.
    fn dialled_host_port(&self, lane: LaneId) -> HostPort {
        match (self.proxy_host_of(lane), self.proxy_of(lane)) {
            (Some(host), Some(proxy)) => (host, proxy.port()),
            _ => self.host_port_of(lane),
        }
    }

    /// Health of a lane's host, and, if that is up, of its proxy.
    pub(super) fn health(&self, lane: LaneId, now: Instant) -> Health {
        let health = self.hosts.health(self.host_port_of(lane), now);
        match (health, self.proxy_host_of(lane)) {
            (Health::Up, Some(_)) => self.hosts.health(self.dialled_host_port(lane), now),
            (health, _) => health,
        }
    }

    /// The lane's proxy, if its host is not given up, so that the proxy is what is down.
    pub fn proxy_before(&self, lane: LaneId, now: Instant) -> Option<&Arc<Proxy>> {
        let is_up = matches!(self.hosts.health(self.host_port_of(lane), now), Health::Up);
        self.proxy_of(lane).filter(|_| is_up)
    }

    /// Records that the lane's proxy, or else its host, could not be resolved or connected to.
    pub fn host_failed(&mut self, lane: LaneId, now: Instant) -> HostVerdict {
        self.count_failure(self.dialled_host_port(lane), HostFailure::Unconnected, now)
    }

    /// Gives up the lane's proxy, or else its host: this machine has no route to it.
    pub fn host_unroutable(&mut self, lane: LaneId, now: Instant) {
        let policy = &self.settings.hosts;
        if !policy.down_after.is_zero() {
            let host_port = self.dialled_host_port(lane);
            self.hosts.give_up(host_port, true, policy, now);
        }
    }

    /// Records a connection to the lane's proxy, or else to its host.
    pub fn host_connected(&mut self, lane: LaneId) {
        self.hosts.connected(self.dialled_host_port(lane));
    }

    /// Records that a lane's proxy could not reach the lane's host.
    pub fn origin_failed(&mut self, lane: LaneId, now: Instant) -> HostVerdict {
        self.count_failure(self.host_port_of(lane), HostFailure::Unconnected, now)
    }

    /// Records that a lane's proxy reached the lane's host.
    pub fn origin_connected(&mut self, lane: LaneId) {
        self.hosts.connected(self.host_port_of(lane));
    }

    /// Returns whether requests to the origin of this URL go by more than one route.
    pub fn has_several_routes(&self, url: &CrawlUrl) -> bool {
        self.hosts.find(url.host_str()).is_some_and(|host| {
            let key = (host, url.port(), url.is_https());
            self.origins.numbers_of(key).len() > 1
        })
    }

    /// Records that a request for this robots.txt got no answer.
    pub fn host_unanswered(&mut self, url: &CrawlUrl, now: Instant) -> HostVerdict {
        match self.hosts.find(url.host_str()) {
            Some(host) => self.count_failure((host, url.port()), HostFailure::Unanswered, now),
            None => HostVerdict::Counted,
        }
    }

    /// Records that a lane's host answered a request.
    pub fn host_answered(&mut self, lane: LaneId) {
        self.hosts.answered(self.host_port_of(lane));
    }

    fn count_failure(
        &mut self,
        host_port: HostPort,
        how: HostFailure,
        now: Instant,
    ) -> HostVerdict {
        let policy = &self.settings.hosts;
        match policy.down_after {
            Duration::ZERO => HostVerdict::Counted,
            _ => self.hosts.failed(host_port, how, policy, now),
        }
    }

    /// Returns whether the host of this URL was given up.
    pub fn is_host_down(&self, url: &CrawlUrl, now: Instant) -> bool {
        let host = self.hosts.find(url.host_str());
        host.is_some_and(|host| {
            let health = self.hosts.health((host, url.port()), now);
            matches!(health, Health::Down | Health::Unroutable)
        })
    }

    /// `now` on the clock of [`Hosts::active_time`](crate::frontier::hosts::Hosts::active_time).
    pub fn active_time(&self, now: Instant) -> Instant {
        self.hosts.active_time(now)
    }

    /// Discounts a span in which no host could be asked: it does not count towards `HOST_DOWN_AFTER`.
    pub fn discount_time(&mut self, span: Duration) {
        self.hosts.discount_all(span);
    }

    /// Discounts the time since `since` (in active time) for the lane's proxy, or else its host, which
    /// could not be asked for a reason that is not its own: it does not count towards `HOST_DOWN_AFTER`.
    pub fn discount_host_time(&mut self, lane: LaneId, since: Instant, now: Instant) {
        self.hosts
            .discount(self.dialled_host_port(lane), since, now);
    }

    /// Number of hosts held, and when the first of these holds ends.
    pub fn hosts_held(&self, now: Instant) -> (usize, Option<Instant>) {
        self.hosts.held(now)
    }
}
