//! What an operator sees of an origin, of a lane, and of one URL: nothing here changes the frontier.

use std::time::Duration;

use super::{Frontier, LaneState};
use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::frontier::filter::{self, Filtered};
use crate::frontier::hosts::Health;
use crate::frontier::origins::NO_LANE;
use crate::frontier::robots::RobotsState;
use crate::frontier::seen::Presence;
use crate::wire::url::CrawlUrl;

/// An origin in use, or kept for its robots.txt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginView {
    /// Number of the origin.
    pub number: u32,
    /// Scheme, host and port, as in a URL.
    pub name: String,
    /// Whether it is reached by a route other than the settings'.
    pub has_route: bool,
    /// Its robots.txt.
    pub robots: RobotsView,
    /// Whether requests may be sent to its host and port.
    pub health: Health,
    /// Failures since the last success.
    pub failures: u8,
    /// Its first lane.
    pub lane: Option<LaneView>,
}

/// What is counted of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCounts {
    /// Whether it is the host of a seed.
    pub is_seed: bool,
    /// Pages fetched, if pages per host are limited.
    pub pages: Option<u32>,
    /// Sitemaps admitted, if they are limited.
    pub sitemaps: u32,
}

/// The robots.txt of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsView {
    /// It was not fetched, or has expired.
    Unknown,
    /// It is being fetched.
    Fetching,
    /// Its rules are known until this time, and its Crawl-delay.
    Known(Instant, Option<Duration>),
    /// There is none: everything is allowed until this time.
    Absent(Instant),
    /// It is unavailable: nothing is allowed until this time.
    Unreachable(Instant),
}

/// A lane: requests of one origin, route and set of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Number of the lane.
    pub lane: LaneId,
    /// Requests in its queue, without those on disk.
    pub queued: usize,
    /// Requests that were released and have not ended.
    pub in_flight: u32,
    /// What it waits for.
    pub wait: LaneWait,
}

/// What a lane waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWait {
    /// Nothing: its queue is empty.
    Idle,
    /// Other lanes are active.
    Inactive,
    /// Its scopes.
    Scopes,
    /// The address of its host, a connection, or the check of its first request.
    Release,
    /// robots.txt.
    Robots,
    /// A host that failed.
    Host,
    /// A limit of pages that those in flight may reach.
    PageLimit,
}

impl Frontier {
    /// The filter that a link to a URL does not pass now; `None` if it passes all, or was admitted before.
    /// `depth`: that of the link.
    pub fn filter_of(&self, url: &CrawlUrl, depth: u32) -> Option<Filtered> {
        let checked = self.check_url(url, depth, false);
        let full = (!self.has_room()).then_some(Filtered::FrontierFull);
        checked.err().map(|rejection| rejection.filter).or(full)
    }

    /// Whether a URL was admitted.
    pub fn presence_of(&self, url: &CrawlUrl) -> Presence {
        self.seen.presence(self.seen.key(url))
    }

    /// Whether a URL was offered and waits for the answer whether it was seen.
    pub fn is_offered(&self, url: &CrawlUrl) -> bool {
        self.offers.holds(self.seen.key(url))
    }

    /// The state of a lane.
    pub fn lane_view(&self, lane: LaneId) -> LaneView {
        let slot = &self.lanes[lane.0 as usize];
        LaneView {
            lane,
            queued: slot.queue.len(),
            in_flight: slot.in_flight.get(),
            wait: match slot.state {
                LaneState::Closed | LaneState::Idle => LaneWait::Idle,
                LaneState::Parked => LaneWait::Inactive,
                LaneState::Offered => LaneWait::Scopes,
                LaneState::Released => LaneWait::Release,
                LaneState::Robots => LaneWait::Robots,
                LaneState::Held => LaneWait::Host,
                LaneState::Limited => LaneWait::PageLimit,
            },
        }
    }

    /// Health of the host of a lane, or of its proxy.
    pub fn health_of_lane(&self, lane: LaneId, now: Instant) -> Health {
        self.health(lane, now)
    }

    /// Scheme, host and port of a lane, as in a URL.
    pub fn origin_text(&self, lane: LaneId) -> String {
        let (is_https, host, port) = self.address_of(lane);
        let url = CrawlUrl::from_parts(is_https, host, port, "/");
        url.origin().to_owned()
    }

    /// The origin of a lane.
    pub fn origin_of_lane(&self, lane: LaneId) -> u32 {
        self.lanes[lane.0 as usize].origin
    }

    /// The state of an origin, by its number.
    pub fn origin_view(&self, number: u32, now: Instant) -> OriginView {
        let origin = self.origins.get(number);
        let (is_https, port) = origin.scheme_and_port();
        let host = self.hosts.name(origin.host);
        let url = CrawlUrl::from_parts(is_https, host, port, "/");
        OriginView {
            number,
            name: url.origin().to_owned(),
            has_route: self.origins.has_route(number),
            robots: match &origin.robots {
                RobotsState::Unknown => RobotsView::Unknown,
                RobotsState::Fetching(_) => RobotsView::Fetching,
                known @ RobotsState::Known(_) => RobotsView::Known(
                    known.valid_until(&self.rules).unwrap_or(now),
                    known.crawl_delay(&self.rules),
                ),
                RobotsState::Absent(until) => RobotsView::Absent(*until),
                RobotsState::Unreachable(until) => RobotsView::Unreachable(*until),
            },
            health: self.hosts.health((origin.host, port), now),
            failures: self.hosts.failures_of((origin.host, port)),
            lane: (origin.lane != NO_LANE).then(|| self.lane_view(origin.lane)),
        }
    }

    /// Whether the robots.txt of an origin allows a URL; `None` if it is not known now, or is not obeyed.
    pub fn robots_allow(&self, number: u32, url: &CrawlUrl, now: Instant) -> Option<bool> {
        let robots = &self.origins.get(number).robots;
        if !self.settings.robots_obey || robots.valid_until(&self.rules)? <= now {
            return None;
        }
        match robots {
            RobotsState::Known(known) => Some(self.rules.allows(*known, url.request_target())),
            RobotsState::Absent(_) => Some(true),
            RobotsState::Unreachable(_) => Some(false),
            RobotsState::Unknown | RobotsState::Fetching(_) => None,
        }
    }

    /// The origins of a host that are in use: those of the ports 80 and 443, of `port`, and the one that was used
    /// first.
    pub fn origins_of(&self, host: &str, port: Option<u16>, now: Instant) -> Vec<OriginView> {
        let numbers = self.origin_numbers_of(host, port).into_iter();
        numbers
            .map(|number| self.origin_view(number, now))
            .collect()
    }

    /// The numbers of these origins.
    pub(super) fn origin_numbers_of(&self, host: &str, port: Option<u16>) -> Vec<u32> {
        let Some(host) = self.hosts.find(host) else {
            return Vec::new();
        };
        let mut numbers = self
            .origins
            .first_number(host)
            .into_iter()
            .collect::<Vec<_>>();
        let ports = [(80, false), (443, true)].into_iter();
        let given = port
            .into_iter()
            .flat_map(|port| [(port, false), (port, true)]);
        for (port, is_https) in ports.chain(given) {
            numbers.extend(self.origins.numbers_of((host, port, is_https)));
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// What is counted of a host for the whole crawl, whether or not it is in use.
    pub fn host_counts(&self, host: &str) -> HostCounts {
        let (is_seed, pages) = self.hosts.standing(host);
        HostCounts {
            is_seed,
            pages: self.hosts.are_pages_counted().then_some(pages),
            sitemaps: self.hosts.sitemaps(host),
        }
    }

    /// Whether the host or its domain is excluded.
    pub fn excludes_host(&self, host: &str) -> bool {
        filter::is_excluded(&self.settings.exclude_hosts, host) || self.excluded.exclude_host(host)
    }
}
