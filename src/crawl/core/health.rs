//! Hosts that do not answer: their requests wait, and cost no attempt, until the host answers or is
//! given up (`HOST_DOWN_AFTER`).

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::ids::LaneId;
use crate::crawl::breaker::Egress;
use crate::crawl::core::Core;
use crate::fetch::failure::Failure;
use crate::frontier::hosts::HostVerdict;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::sink::page::Page;
use crate::wire::proxy::Route;

/// Health of a host, as shown by the failure of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostStanding {
    /// It answers: `RETRY_TIMES` decides.
    Answers,
    /// It does not, and its requests wait for it.
    Awaited,
    /// It does not, or one of its proxies does not: `RETRY_TIMES` decides, and requests of the same route wait for
    /// `HOST_HOLD_MIN`.
    Spared,
    /// It has not for too long: the attempt was the last.
    GivenUp,
}

impl<I: Io> Core<I> {
    /// The host that a lane's connections lead to could not be resolved or connected to.
    pub fn on_host_failed(&mut self, lane: LaneId, failure: &Failure) {
        if !self.counts_against_hosts(failure) {
            return;
        }
        let verdict = self.frontier.host_failed(lane, self.now);
        let (host, _) = self.frontier.host_and_port(lane);
        log_verdict(host, verdict, failure);
    }

    /// A failure to connect is its host's, and not our network's. `unrouted`: this machine has no route
    /// there, and the host has addresses of that family alone.
    pub fn on_connect_charged(
        &mut self,
        lane: LaneId,
        unrouted: Option<SocketAddr>,
        failure: &Failure,
    ) {
        let breaker = self.outage.breaker();
        let is_for_good = |to: &SocketAddr| breaker.is_without_route(Egress::of(to.ip()), self.now);
        if self.frontier.proxy_of(lane).is_some() || !unrouted.as_ref().is_some_and(is_for_good) {
            return self.on_host_failed(lane, failure);
        }
        if !self.counts_against_hosts(failure) {
            return;
        }
        self.frontier.host_unroutable(lane, self.now);
        let (host, _) = self.frontier.host_and_port(lane);
        log::info!(
            "{host}: requests fail, because this machine has a route for one IP family only and the host \
             has only addresses of the other"
        );
    }

    /// A lane's proxy could not reach the lane's host.
    pub fn on_origin_failed(&mut self, lane: LaneId, failure: &Failure) {
        if !self.counts_against_hosts(failure) {
            return;
        }
        let verdict = self.frontier.origin_failed(lane, self.now);
        let host = self.frontier.origin_host(lane);
        log_verdict(host, verdict, failure);
    }

    /// Whether a failed attempt waits for its host and is not counted: if it got no connection, or was for
    /// a robots.txt and got no answer. Not where `HOST_DOWN_EXCEPTIONS` or `RETRY_EXCEPTIONS` leaves the failure
    /// out, or the `Classify` has decided.
    pub fn host_standing(&mut self, job: &Job, page: &Page) -> HostStanding {
        let Some(failure) = &page.failure else {
            return HostStanding::Answers;
        };
        // Only a host's own robots.txt counts: any other site may redirect its robots.txt there.
        let is_own_robots = job.kind == PageKind::Robots && job.redirects == 0;
        let is_unanswered = is_own_robots && failure.is_unanswered();
        if page.status.is_some() || !(failure.is_unconnected() || is_unanswered) {
            return HostStanding::Answers;
        }
        let settings = self.frontier.settings();
        let mut passing = settings.retry_exceptions.iter();
        if !self.workload.rules().waits_for_hosts
            || !passing.any(|name| failure.is_named(name))
            || self.classifier.retries(job, page, self.now).is_some()
            || settings.hosts.down_after.is_zero()
            || !settings.hosts.counts(|name| failure.is_named(name))
            // No page is to be requested twice, whatever its host does.
            || job.kind == PageKind::Page && settings.retry_times == 0
        {
            return HostStanding::Answers;
        }
        let host = job.url.host_str();
        let by_proxy = self.goes_by_proxy(job);
        if by_proxy && !failure.is_unconnected() && self.frontier.has_several_routes(&job.url) {
            // The proxy may be what does not answer, and requests to the host that do not use it must not suffer.
            return HostStanding::Spared;
        }
        // A failure to connect through a proxy was counted already.
        let is_proxys = failure.is_unconnected() && by_proxy;
        if is_unanswered && !is_proxys {
            let verdict = self.frontier.host_unanswered(&job.url, self.now);
            log_verdict(host, verdict, failure);
        }
        match self.frontier.is_host_down(&job.url, self.now) {
            true => HostStanding::GivenUp,
            false => HostStanding::Awaited,
        }
    }

    /// Whether a failure counts against a host that does not answer.
    fn counts_against_hosts(&self, failure: &Failure) -> bool {
        let policy = &self.frontier.settings().hosts;
        policy.counts(|name| failure.is_named(name))
    }

    /// The route of a request, if it is not that of all: its own, that of its host, or the one of its scheme and host.
    pub fn shown_route(&self, job: &Job) -> Option<Route> {
        let of_url = || {
            let proxies = &self.frontier.settings().proxies;
            proxies.route_if_varied(&job.url)
        };
        self.frontier.route_of(job).cloned().or_else(of_url)
    }

    fn goes_by_proxy(&self, job: &Job) -> bool {
        match self.frontier.route_of(job) {
            Some(route) => matches!(route, Route::Proxy(_)),
            None => {
                let proxies = &self.frontier.settings().proxies;
                let (is_https, host) = (job.url.is_https(), job.url.host_str());
                proxies.of(is_https, host).is_some()
            }
        }
    }
}

/// Logged at `-v` only: there may be very many hosts.
fn log_verdict(host: &str, verdict: HostVerdict, failure: &Failure) {
    match verdict {
        HostVerdict::Counted => {}
        HostVerdict::Held(hold) => log::info!(
            "{host} is unresponsive ({}): held for {}",
            failure.code(),
            seconds(hold)
        ),
        HostVerdict::GivenUp(span) => log::info!(
            "{host} has been unresponsive for {} ({}): its requests fail (HOST_DOWN_AFTER)",
            seconds(span),
            failure.code()
        ),
    }
}

fn seconds(span: Duration) -> String {
    format!("{:.0} s", span.as_secs_f64())
}
