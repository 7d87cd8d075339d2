//! The frontier: which request of which lane is next, and whether it may be sent at all.
//!
//! A lane holds the requests of one origin that share their scopes. It *stands* in one place:
//!
//! ```text
//!            ┌────────────── offered (the throttle has it) ◄───────────┐
//!            ▼                                                         │
//!   next() ──┬─► a job to send ── more queued? ────────────────────────┤
//!            ├─► robots.txt first, or being fetched ── robots_arrived ─┤
//!            ├─► its host is held, the pages are spent ── time, end ───┤
//!            └─► nothing left ── idle, then closed
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use smallvec::SmallVec;

use super::extra::{Costs, Extra};
use super::filter::{self, Filtered, Site};
use super::hosts::{Given, Health, HostId, Hosts};
use super::job::Job;
use super::numbers::Numbers;
use super::origins::{NO_LANE, Origins};
use super::queue::{Queue, Queued};
use super::request::Kind;
use super::robots::{Brought, Standing as Robots, Verdict};
use super::seen::Seen;
use super::settings::Settings;
use crate::base::chunked::ChunkedVec;
use crate::base::intern::Interner;
use crate::base::time::Instant;
use crate::throttle::engine::{LaneId, Throttle};
use crate::throttle::scope::{ScopeId, ScopeSet};
use crate::wire::proxy::{Proxy, Route};
use crate::wire::url::CrawlUrl;

/// All that is still to fetch, and what decides whether it may be.
#[derive(Debug)]
pub struct Frontier {
    settings: Settings,
    lanes: ChunkedVec<Lane>,
    /// Lanes that are not the first of their origins, by the names that `lane_key` gives them.
    lane_of: HashTable<(u64, LaneId)>,
    /// The lanes whose requests do not go as the settings say.
    routes: HashMap<LaneId, Way, FixedState>,
    /// The host of the settings' proxy, once a lane goes through it.
    proxy_host: Option<HostId>,
    /// The Crawl-delays of origins that have been made scopes of these lanes.
    heeded: HashMap<LaneId, Duration, FixedState>,
    origins: Origins,
    hosts: Hosts,
    site: Site,
    seen: Seen,
    held: BinaryHeap<Reverse<(Instant, LaneId)>>,
    limited: Vec<LaneId>,
    origins_kept: BinaryHeap<Reverse<(Instant, u32)>>,
    queued: usize,
    lanes_open: usize,
    pages: u64,
    pages_in_flight: u64,
    numbers: Numbers,
    filtered: BTreeMap<Filtered, u64>,
}

/// There may be millions: every field here is one that each of them needs.
#[derive(Debug, Default)]
struct Lane {
    queue: Queue,
    origin: u32,
    in_flight: Count24,
    stands: Stands,
}

/// How a lane's requests go, where that was said.
#[derive(Debug)]
struct Way {
    route: Route,
    /// The proxy's, where they go through one.
    host: Option<HostId>,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stands {
    #[default]
    Closed,
    Idle,
    Offered,
    /// Its front is being looked at, or its host is being resolved.
    Taken,
    Robots,
    Held,
    Limited,
}

/// What comes next in a lane.
#[derive(Debug)]
pub enum Next {
    /// This request is to be sent.
    Send(Job),
    /// This request has ended without being sent.
    Unsent(Job, Unsent),
    /// robots.txt asks for this gap: make it one of the lane's scopes, then offer the lane again.
    CrawlDelay(Duration),
    /// Nothing can be sent now; the frontier says when again.
    Later,
}

/// Why a request ended unsent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// A rule of robots.txt forbids it: its text and line.
    Disallowed(String, u32),
    /// robots.txt could not be had.
    RobotsUnreachable,
    /// Its host was given up.
    HostDown,
    /// Its host has had `--max-pages-per-host`.
    HostPages,
}

/// Origins without lanes whose robots.txt is remembered. The one that expires first goes first.
const ROBOTS_KEPT_MAX: usize = 200_000;

impl Frontier {
    /// An empty frontier.
    pub fn new(settings: Settings) -> Self {
        let mut hosts = Hosts::default();
        if settings.pages_per_host_max > 0 {
            hosts.count_pages();
        }
        Frontier {
            settings,
            lanes: ChunkedVec::new(),
            lane_of: HashTable::new(),
            routes: HashMap::default(),
            proxy_host: None,
            heeded: HashMap::default(),
            origins: Origins::default(),
            hosts,
            site: Site::default(),
            seen: Seen::default(),
            held: BinaryHeap::new(),
            limited: Vec::new(),
            origins_kept: BinaryHeap::new(),
            queued: 0,
            lanes_open: 0,
            pages: 0,
            pages_in_flight: 0,
            numbers: Numbers::default(),
            filtered: BTreeMap::new(),
        }
    }

    /// Whether `url` may come in, at `depth` links from its seed; it counts as seen from now on.
    ///
    /// `seed`: its host, or domain, is one that `--follow` may lead to from now on.
    pub fn check(
        &mut self,
        url: &CrawlUrl,
        depth: u32,
        seed: bool,
        throttle: &mut Throttle,
    ) -> Result<(), Filtered> {
        let verdict = self.verdict(url, depth, seed, throttle.names_mut());
        if let Err(filtered) = verdict {
            self.count_filtered(filtered, 1);
        }
        verdict
    }

    /// Lets a URL in that no filter may leave out. It counts as seen, and as a seed's where it is one.
    pub fn let_in(&mut self, url: &CrawlUrl, seed: bool, throttle: &mut Throttle) {
        self.seen.insert(url.fingerprint());
        if seed {
            self.add_seed(url, throttle.names_mut());
        }
    }

    fn add_seed(&mut self, url: &CrawlUrl, names: &mut Interner) {
        let host = self.hosts.host(url.host_str(), names);
        self.hosts.get_mut(host).is_seed = true;
        self.site.add(self.settings.follow, url);
    }

    fn verdict(
        &mut self,
        url: &CrawlUrl,
        depth: u32,
        seed: bool,
        names: &mut Interner,
    ) -> Result<(), Filtered> {
        filter::check(&self.settings, url, depth)?;
        if !seed {
            let host = self.hosts.find(url.host_str(), names);
            let seed_host = host.is_some_and(|host| self.hosts.get(host).is_seed);
            if !self.site.contains(self.settings.follow, url, seed_host) {
                return Err(Filtered::Offsite);
            }
            if self.queued >= self.settings.queued_max {
                return Err(Filtered::FrontierFull);
            }
            let spent = self.settings.pages_per_host_max;
            if spent > 0 && host.is_some_and(|host| self.hosts.given(host).pages >= spent) {
                return Err(Filtered::HostPages);
            }
        }
        if !self.seen.insert(url.fingerprint()) {
            return Err(Filtered::Duplicate);
        }
        if seed {
            self.add_seed(url, names);
        }
        Ok(())
    }

    /// Counts links that were left out for a reason.
    pub fn count_filtered(&mut self, reason: Filtered, count: u64) {
        if count > 0 {
            *self.filtered.entry(reason).or_default() += count;
        }
    }

    /// A number for a new attempt.
    pub fn number(&mut self) -> u64 {
        self.numbers.next()
    }

    /// Where numbers come from, for attempts that are numbered elsewhere.
    pub fn numbers(&self) -> Numbers {
        self.numbers.clone()
    }

    /// Queues a request in the lane of its origin and scopes.
    pub fn push(&mut self, job: Job, scopes: &ScopeSet, throttle: &mut Throttle, now: Instant) {
        let lane = self.lane(&job.url, job.route(), scopes, throttle);
        self.queued += 1;
        let slot = &mut self.lanes[lane.0 as usize];
        let first = job.kind != Kind::Page;
        slot.queue.push(Queued::of(job));
        match slot.stands {
            Stands::Idle => self.offer(lane, throttle, now),
            // robots.txt and sitemaps wait for nobody's robots.txt, and for no page limit.
            Stands::Robots | Stands::Limited if first => self.offer(lane, throttle, now),
            // Another may be the first now.
            Stands::Offered => self.offer(lane, throttle, now),
            _ => {}
        }
    }

    /// Puts back a request that could not be sent after all; it is the lane's first again, and the
    /// lane goes on.
    pub fn put_back(&mut self, lane: LaneId, job: Job, throttle: &mut Throttle, now: Instant) {
        self.uncount(&job, lane);
        self.queued += 1;
        let slot = &mut self.lanes[lane.0 as usize];
        slot.in_flight.subtract();
        if job.kind != Kind::Page && matches!(slot.stands, Stands::Robots | Stands::Limited) {
            // What the lane waits for may be this very request, and nobody else will send it.
            slot.stands = Stands::Taken;
        }
        slot.queue.push(Queued::of(job));
        self.offer_limited(throttle, now);
        self.go_on(lane, throttle, now);
    }

    /// What is next in a lane that the throttle has released.
    pub fn next(&mut self, lane: LaneId, throttle: &Throttle, now: Instant) -> Next {
        let slot = &self.lanes[lane.0 as usize];
        let Some(front) = slot.queue.peek() else {
            self.lanes[lane.0 as usize].stands = Stands::Idle;
            return Next::Later;
        };
        let origin = self.origins.get(slot.origin);
        match self.health_of(lane, origin.host, now) {
            Health::Up => {}
            Health::Held(until) => {
                self.lanes[lane.0 as usize].stands = Stands::Held;
                self.held.push(Reverse((until, lane)));
                return Next::Later;
            }
            Health::Down => return Next::Unsent(self.pop(lane, throttle), Unsent::HostDown),
        }
        let is_page = front.kind() == Kind::Page;
        // Whatever leaves from here heeds it: a neighbour's robots.txt that lies here, too.
        if self.settings.robots_obey
            && let Some(delay) = origin.robots.crawl_delay()
            && self.heeded.get(&lane) != Some(&delay)
        {
            self.heeded.insert(lane, delay);
            return Next::CrawlDelay(delay);
        }
        if !is_page {
            return Next::Send(self.take(lane, throttle));
        }
        if let Some(later) = self.spent(lane, throttle) {
            return later;
        }
        let slot = &self.lanes[lane.0 as usize];
        let front = slot.queue.peek().expect("the front was just seen");
        if !self.settings.robots_obey || front.flags().ignore_robots {
            return Next::Send(self.take(lane, throttle));
        }
        let origin = self.origins.get_mut(slot.origin);
        match origin.robots.verdict(front.target(), now) {
            Verdict::Allowed => Next::Send(self.take(lane, throttle)),
            Verdict::Disallowed(rule, line) => {
                Next::Unsent(self.pop(lane, throttle), Unsent::Disallowed(rule, line))
            }
            Verdict::Unreachable => {
                Next::Unsent(self.pop(lane, throttle), Unsent::RobotsUnreachable)
            }
            Verdict::Wait => {
                if let Robots::Fetching(waiting) = &mut origin.robots {
                    waiting.push(lane);
                }
                self.lanes[lane.0 as usize].stands = Stands::Robots;
                Next::Later
            }
            Verdict::Ask => {
                origin.robots = Robots::Fetching(Box::new(SmallVec::from_slice(&[lane])));
                let job = self.robots_job(lane, throttle);
                let slot = &mut self.lanes[lane.0 as usize];
                slot.in_flight.add();
                slot.stands = Stands::Robots;
                Next::Send(job)
            }
        }
    }

    /// Page limits: the whole crawl's stops the lane for now, the host's ends what it has.
    fn spent(&mut self, lane: LaneId, throttle: &Throttle) -> Option<Next> {
        let max = self.settings.pages_max;
        if max > 0 && self.pages + self.pages_in_flight >= max {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.push(lane);
            return Some(Next::Later);
        }
        let max = self.settings.pages_per_host_max;
        if max == 0 {
            return None;
        }
        let host = self.host_of(lane);
        if self.hosts.given(host).pages >= max {
            return Some(Next::Unsent(self.pop(lane, throttle), Unsent::HostPages));
        }
        if self.awaits_pages(host) {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.push(lane);
            return Some(Next::Later);
        }
        None
    }

    fn robots_job(&mut self, lane: LaneId, throttle: &Throttle) -> Job {
        let id = self.number();
        let slot = &self.lanes[lane.0 as usize];
        let front = slot.queue.peek().expect("a page asks for robots.txt");
        let (is_https, host, port) = self.address_of(lane, throttle);
        let mut job = Job {
            parent: front.id(),
            kind: Kind::Robots,
            seed: false,
            depth: front.depth(),
            ..Job::seed(id, CrawlUrl::of_parts(is_https, host, port, "/robots.txt"))
        };
        let extra = job.extra_mut();
        extra.set_robots_for(slot.origin);
        if let Some(front) = front.extra() {
            // Custom scopes pace everything that is sent on their requests' behalf.
            extra.share_scopes(front);
            extra.route = front.route.clone();
        }
        job
    }

    /// The proxy that a lane's requests go through.
    pub fn proxy_of(&self, lane: LaneId) -> Option<&Arc<Proxy>> {
        match self.routes.get(&lane).map(|way| &way.route) {
            None => self.settings.proxy.as_ref(),
            Some(Route::Direct) => None,
            Some(Route::Proxy(proxy)) => Some(proxy),
        }
    }

    /// The host that a lane's connections lead to: its proxy's, or its own.
    fn dialled(&self, lane: LaneId) -> HostId {
        self.proxy_host_of(lane)
            .unwrap_or_else(|| self.host_of(lane))
    }

    /// The host of the proxy that a lane's requests go through.
    fn proxy_host_of(&self, lane: LaneId) -> Option<HostId> {
        match self.routes.get(&lane) {
            None => self.proxy_host,
            Some(way) => way.host,
        }
    }

    /// Whether a lane's host may be asked, and whatever it is reached through.
    fn health(&self, lane: LaneId, now: Instant) -> Health {
        self.health_of(lane, self.host_of(lane), now)
    }

    fn health_of(&self, lane: LaneId, host: HostId, now: Instant) -> Health {
        let proxy = self.proxy_host_of(lane);
        match (self.hosts.health(host, now), proxy) {
            (Health::Up, Some(proxy)) => self.hosts.health(proxy, now),
            (health, _) => health,
        }
    }

    fn host_of(&self, lane: LaneId) -> HostId {
        self.origins.get(self.lanes[lane.0 as usize].origin).host
    }

    /// Whether a lane's origin is https, its host and its port.
    fn address_of<'a>(&self, lane: LaneId, throttle: &'a Throttle) -> (bool, &'a str, u16) {
        let origin = self.origins.get(self.lanes[lane.0 as usize].origin);
        let (is_https, port) = origin.scheme_and_port();
        (is_https, throttle.names().name(origin.host.0), port)
    }

    /// Takes the front to be sent.
    fn take(&mut self, lane: LaneId, throttle: &Throttle) -> Job {
        let job = self.pop(lane, throttle);
        self.lanes[lane.0 as usize].in_flight.add();
        if job.kind == Kind::Page {
            self.pages_in_flight += 1;
            if let Some(given) = self.given_mut(lane) {
                given.in_flight += 1;
            }
        }
        job
    }

    /// The pages of a lane's host, where they are counted.
    fn given_mut(&mut self, lane: LaneId) -> Option<&mut Given> {
        if !self.hosts.counts_pages() {
            return None;
        }
        let host = self.host_of(lane);
        Some(self.hosts.given_mut(host))
    }

    /// Takes the front out of the queue.
    fn pop(&mut self, lane: LaneId, throttle: &Throttle) -> Job {
        self.queued -= 1;
        let slot = &mut self.lanes[lane.0 as usize];
        let queued = slot.queue.pop().expect("the front was just seen");
        queued.into_job(self.address_of(lane, throttle))
    }

    /// Takes a lane's front because its host cannot be resolved: it counts as being sent.
    pub fn take_front(&mut self, lane: LaneId, throttle: &Throttle) -> Option<Job> {
        self.has_queued(lane).then(|| self.take(lane, throttle))
    }

    /// Reads what the next requests of these lanes will be made of, a step of the way for all of them
    /// before the next step for any: none of the reads of a step waits for another, so the memory, in
    /// which millions of lanes lie about, serves them together. The sum of it means nothing.
    pub fn touch(&self, lanes: &[LaneId], throttle: &Throttle) -> u64 {
        let slots = || lanes.iter().map(|lane| &self.lanes[lane.0 as usize]);
        let origins: SmallVec<[u32; 32]> = slots().map(|slot| slot.origin).collect();
        let mut sum: u64 = slots().map(|slot| slot.queue.touch()).sum();
        let hosts = origins.iter().map(|origin| self.origins.get(*origin).host);
        let hosts: SmallVec<[u32; 32]> = hosts.map(|host| host.0).collect();
        for host in hosts.iter().map(|host| HostId(*host)) {
            sum += u64::from(self.hosts.get(host).is_seed);
            sum += u64::from(self.origins.first_of(host));
        }
        sum.wrapping_add(throttle.touch_names(&hosts))
    }

    /// The throttle has released a lane. Whether its host may be asked now; if not, `next` says
    /// what comes of it.
    pub fn released(&mut self, lane: LaneId, now: Instant) -> bool {
        self.lanes[lane.0 as usize].stands = Stands::Taken;
        self.health(lane, now) == Health::Up
    }

    /// Whether a lane has something queued.
    pub fn has_queued(&self, lane: LaneId) -> bool {
        !self.lanes[lane.0 as usize].queue.is_empty()
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

    /// The URL of a lane's first request.
    pub fn front_url(&self, lane: LaneId, throttle: &Throttle) -> Option<CrawlUrl> {
        let front = self.lanes[lane.0 as usize].queue.peek()?;
        let (is_https, host, port) = self.address_of(lane, throttle);
        Some(CrawlUrl::of_parts(is_https, host, port, front.target()))
    }

    /// The lane may go on: it is offered if it has something, closed if it is done for.
    pub fn go_on(&mut self, lane: LaneId, throttle: &mut Throttle, now: Instant) {
        let slot = &self.lanes[lane.0 as usize];
        match slot.stands {
            Stands::Robots | Stands::Held | Stands::Limited | Stands::Closed => {}
            _ if !slot.queue.is_empty() => self.offer(lane, throttle, now),
            Stands::Offered => {}
            Stands::Idle | Stands::Taken => {
                self.lanes[lane.0 as usize].stands = Stands::Idle;
                self.close_if_done(lane, throttle, now);
            }
        }
    }

    fn offer(&mut self, lane: LaneId, throttle: &mut Throttle, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        slot.stands = Stands::Offered;
        if let Some(front) = slot.queue.peek() {
            let costs = front.extra().map_or_else(Costs::new, Extra::costs);
            throttle.expect(lane, &costs, now);
        }
        throttle.offer(lane, now);
    }

    /// An attempt has ended. `page`: it brought a page that counts against the limits.
    pub fn ended(
        &mut self,
        lane: LaneId,
        job: &Job,
        page: bool,
        throttle: &mut Throttle,
        now: Instant,
    ) {
        self.uncount(job, lane);
        self.lanes[lane.0 as usize].in_flight.subtract();
        if page && job.kind == Kind::Page {
            self.pages += 1;
            if let Some(given) = self.given_mut(lane) {
                given.pages += 1;
            }
        }
        self.offer_limited(throttle, now);
        self.go_on(lane, throttle, now);
    }

    /// Offers the lanes that page limits stopped and stop no more.
    fn offer_limited(&mut self, throttle: &mut Throttle, now: Instant) {
        let max = self.settings.pages_max;
        if self.limited.is_empty() || max > 0 && self.pages + self.pages_in_flight >= max {
            return;
        }
        for lane in std::mem::take(&mut self.limited) {
            if self.lanes[lane.0 as usize].stands != Stands::Limited {
                continue;
            }
            if self.awaits_pages(self.host_of(lane)) {
                self.limited.push(lane);
            } else {
                self.offer(lane, throttle, now);
            }
        }
    }

    /// Whether a host may give no more pages unless one of those on their way fails.
    fn awaits_pages(&self, host: HostId) -> bool {
        let (max, given) = (self.settings.pages_per_host_max, self.hosts.given(host));
        max > 0 && given.pages < max && given.pages + given.in_flight >= max
    }

    fn uncount(&mut self, job: &Job, lane: LaneId) {
        if job.kind == Kind::Page {
            self.pages_in_flight -= 1;
            if let Some(given) = self.given_mut(lane) {
                given.in_flight -= 1;
            }
        }
    }

    /// What a fetch of robots.txt brought, for the origin it was asked for.
    pub fn robots_arrived(
        &mut self,
        origin: u32,
        brought: Brought,
        throttle: &mut Throttle,
        now: Instant,
    ) {
        let lifetime = self.settings.robots_lifetime;
        let origin = self.origins.get_mut(origin);
        for lane in origin.robots.arrived(brought, lifetime, now) {
            if self.lanes[lane.0 as usize].stands == Stands::Robots {
                self.lanes[lane.0 as usize].stands = Stands::Taken;
                self.go_on(lane, throttle, now);
            }
        }
    }

    /// The host that a lane's connections lead to could not be resolved or connected to.
    pub fn host_failed(&mut self, lane: LaneId, now: Instant) {
        if self.settings.gives_up_hosts {
            self.hosts.failed(self.dialled(lane), now);
        }
    }

    /// The host that a lane's connections lead to was connected to.
    pub fn host_connected(&mut self, lane: LaneId) {
        self.hosts.connected(self.dialled(lane));
    }

    /// A lane's proxy could not reach the lane's host.
    pub fn origin_failed(&mut self, lane: LaneId, now: Instant) {
        if self.settings.gives_up_hosts {
            self.hosts.failed(self.host_of(lane), now);
        }
    }

    /// A lane's proxy reached the lane's host.
    pub fn origin_connected(&mut self, lane: LaneId) {
        self.hosts.connected(self.host_of(lane));
    }

    /// Lets a lane wait until a moment.
    pub fn pause(&mut self, lane: LaneId, until: Instant, throttle: &mut Throttle, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if matches!(slot.stands, Stands::Taken | Stands::Idle | Stands::Offered) {
            slot.stands = Stands::Held;
            self.held.push(Reverse((until, lane)));
            throttle.withdraw(lane, now);
        }
    }

    /// When [`Frontier::expire`] has something to do.
    pub fn next_wake(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse((at, _))| *at)
    }

    /// Offers a lane whose host has been held long enough.
    pub fn expire(&mut self, throttle: &mut Throttle, now: Instant) {
        if let Some(Reverse((at, lane))) = self.held.peek().copied()
            && at <= now
        {
            self.held.pop();
            if self.lanes[lane.0 as usize].stands == Stands::Held {
                self.offer(lane, throttle, now);
            }
        }
    }

    /// The lane of an origin, a way there and a set of scopes, opened if there is none.
    fn lane(
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
        let key = lane_key(origin, route, &scopes);
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

    /// Whether this is how requests go that say nothing.
    fn is_usual(&self, route: &Route) -> bool {
        match (route, &self.settings.proxy) {
            (Route::Direct, usual) => usual.is_none(),
            (Route::Proxy(proxy), usual) => usual.as_ref() == Some(proxy),
        }
    }

    /// Remembers how a new lane's requests go, and the host that they go through.
    fn note_route(&mut self, lane: LaneId, route: Option<&Route>, names: &mut Interner) {
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

    fn close_if_done(&mut self, lane: LaneId, throttle: &mut Throttle, now: Instant) {
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
            let key = lane_key(number, route, &throttle.opened_under(lane));
            if let Ok(entry) = self.lane_of.find_entry(key, |(_, other)| *other == lane) {
                entry.remove();
            }
        }
        if !self.heeded.is_empty() {
            self.heeded.remove(&lane);
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
    fn keep_or_forget(&mut self, origin: u32, now: Instant) {
        let slot = self.origins.get_mut(origin);
        if slot.users > 0 || slot.kept || matches!(slot.robots, Robots::Fetching(_)) {
            return;
        }
        let Some(until) = slot.robots.holds_until().filter(|until| *until > now) else {
            return self.origins.forget(origin);
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
                self.origins.forget(first);
            }
        }
    }

    /// Takes out of the queues the requests that `is_wanted` names by their origin's number, and all
    /// that are queued in lanes under one of these scopes, save robots.txt, which others wait for.
    /// Looks at every lane: a few milliseconds for a million.
    pub fn take_out(
        &mut self,
        is_wanted: impl Fn(u64) -> bool,
        scopes: &[ScopeId],
        throttle: &mut Throttle,
        now: Instant,
    ) -> Vec<(LaneId, Job)> {
        let mut taken = Vec::new();
        for lane in (0..self.lanes.len() as u32).map(LaneId) {
            let slot = &mut self.lanes[lane.0 as usize];
            if slot.queue.is_empty() {
                continue;
            }
            let all = !scopes.is_empty()
                && throttle
                    .lane_scopes(lane)
                    .iter()
                    .any(|scope| scopes.contains(scope));
            let out = slot.queue.extract(|queued| {
                queued.kind() != Kind::Robots && (all || is_wanted(queued.root()))
            });
            if out.is_empty() {
                continue;
            }
            self.queued -= out.len();
            if slot.stands == Stands::Offered && !slot.queue.is_empty() {
                // Another may be the first now.
                self.offer(lane, throttle, now);
            }
            for queued in out {
                let job = queued.into_job(self.address_of(lane, throttle));
                taken.push((lane, job));
            }
        }
        taken
    }

    /// Empties every queue: for `pending.jsonl` after an early stop. What waited outside comes with
    /// it, all in order of admission.
    pub fn drain(
        &mut self,
        outside: impl Iterator<Item = Job>,
        throttle: &Throttle,
    ) -> impl Iterator<Item = Job> {
        let mut queued: Vec<(LaneId, Queued)> = Vec::with_capacity(self.queued);
        for (lane, slot) in (0..).map(LaneId).zip(self.lanes.iter_mut()) {
            while let Some(first) = slot.queue.pop() {
                queued.push((lane, first));
            }
        }
        self.queued = 0;
        let outside = outside.map(|job| (NO_LANE, Queued::Whole(Box::new(job))));
        queued.extend(outside);
        queued.sort_by_key(|(_, queued)| queued.id());
        queued.into_iter().map(|(lane, queued)| match queued {
            Queued::Whole(job) => *job,
            plain => plain.into_job(self.address_of(lane, throttle)),
        })
    }

    /// Whether a seed may come in now.
    pub fn has_room(&self) -> bool {
        self.queued < self.settings.queued_max
    }

    /// Requests queued.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Pages fetched that count against the limits.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether `--max-pages` is reached.
    pub fn is_spent(&self) -> bool {
        let max = self.settings.pages_max;
        max > 0 && self.pages >= max
    }

    /// Lanes with something queued or in flight.
    pub fn lanes_open(&self) -> usize {
        self.lanes_open
    }

    /// How often each filter said no.
    pub fn filtered(&self) -> &BTreeMap<Filtered, u64> {
        &self.filtered
    }

    /// URLs admitted so far, by fingerprint.
    pub fn seen_len(&self) -> usize {
        self.seen.len()
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[cfg(test)]
    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

/// Names a lane: its origin, the way there and its scopes, mixed into 64 bits.
fn lane_key(origin: u32, route: Option<&Route>, scopes: &ScopeSet) -> u64 {
    // The finalizer of splitmix64, chained: a lane is found by its whole key.
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let start = mix((u64::from(origin) + 1) << 1 | u64::from(scopes.is_ordered()));
    let start = match route {
        None => start,
        Some(route) => mix(start ^ FixedState::default().hash_one(route)),
    };
    scopes.ids().iter().fold(start, |key, scope| {
        mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ u64::from(scope.0))
    })
}

/// A count up to 16 million, in three bytes: more requests than can be in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Count24([u8; 3]);

impl Count24 {
    fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }

    fn set(&mut self, count: u32) {
        let [bytes @ .., 0] = count.to_le_bytes() else {
            panic!("fewer than 2^24 requests are in flight");
        };
        self.0 = bytes;
    }

    fn add(&mut self) {
        self.set(self.get() + 1);
    }

    fn subtract(&mut self) {
        self.set(self.get() - 1);
    }

    fn is_zero(self) -> bool {
        self.get() == 0
    }
}

#[cfg(test)]
mod tests;
