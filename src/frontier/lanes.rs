//! The frontier: which request of which lane is next, and whether it may be sent at all.
//!
//! A lane queues the requests of one origin, route and set of scopes. It is in one [`LaneState`]:
//!
//! ```text
//!            ┌────────────── offered (the throttle has it) ◄───────────┬─ parked ◄─┐
//!            ▼                                                         │           │
//!   next() ──┬─► a job to send ── more queued? ────────────────────────┼───────────┤
//!            ├─► robots.txt first, or being fetched ── robots_arrived ─┤           │
//!            ├─► host held, or a page limit reached ── time, an end ───┼───────────┤
//!            ├─► robots.txt first, but no file is free ────────────────┼───────────┘
//!            └─► nothing left ── idle, then closed                     │
//!                  └── a request comes ────────────────────────────────┘
//! ```
//!
//! Of many lanes most are parked: see [`active`].

mod active;
mod activation;
mod admission;
mod changes;
mod count24;
mod departures;
mod eviction;
mod exclusions;
mod first_pages;
mod lifecycle;
mod routes;
mod limits;
mod longest;
mod priorities;
mod removal;
mod resuming;
mod searching;
mod views;

pub use self::activation::ActiveLimits;
pub use self::active::TURN;
pub use self::eviction::Evicted;
pub use self::lifecycle::NewLane;
pub use self::longest::{Elsewhere, LongQueue, LongestQueues};
pub use self::priorities::{HOST_PRIORITIES_MAX, HOST_PRIORITY_MAX};
pub use self::removal::Removal;
pub use self::searching::{QueuedUrl, UrlSearch};
pub use self::views::{LaneView, LaneWait, OriginView, RobotsView};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;

use self::active::ActiveLanes;
use self::changes::ExcludedSince;
use self::count24::Count24;
use self::departures::Departures;
use self::eviction::Eviction;
use self::first_pages::FirstPages;
use self::limits::Limited;
use self::routes::LaneRoute;
use super::domains::Domains;
use super::exclusion::Exclusions;
use super::extra::{Costs, Extra};
use super::filter::{Filtered, Site};
use super::hosts::{FORGOTTEN_PER_TURN, Health, HostId, Hosts};
use super::job::{Job, Rank};
use super::numbers::Numbers;
use super::offers::Offers;
use super::origins::Origins;
use super::queue::Queue;
use super::queued::Queued;
use super::request::PageKind;
use super::robots::{RobotsResult, RobotsState, RulesCache, UNREACHABLE_FOR, Verdict};
use super::saved_counts::ChangedCounts;
use super::saved_robots::SavedRobots;
use super::seen::Seen;
use super::settings::FrontierSettings;
use crate::base::chunked::ChunkedVec;
use crate::base::ids::LaneId;
use crate::base::named::NamedValues;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::wire::url::CrawlUrl;

/// The queued requests of a crawl, and the state that decides which of them may be sent.
#[derive(Debug)]
pub struct Frontier {
    settings: FrontierSettings,
    lanes: ChunkedVec<Lane>,
    /// Lanes that are not the first of their origins, by their keys, and their keys.
    lane_of: HashMap<u64, LaneId, Secret>,
    key_of: HashMap<LaneId, u64, Secret>,
    /// Changes that the throttle has not applied yet, in order.
    changes: Vec<LaneChange>,
    secret: Secret,
    /// Lanes whose requests name a route of their own, other than the settings'.
    routes: HashMap<LaneId, LaneRoute, Secret>,
    /// The hosts of the settings' proxies of http and of https URLs, once a lane goes through them.
    proxy_hosts: [Option<HostId>; 2],
    /// The Crawl-delay that each lane already has as one of its scopes.
    crawl_delays: HashMap<LaneId, Duration, Secret>,
    /// Crawl-delays of hosts that an earlier run of the crawl found.
    earlier_crawl_delays: NamedValues,
    origins: Origins,
    rules: RulesCache,
    /// Results of robots.txt fetches for a later run, and those of an earlier one.
    saved_robots: SavedRobots,
    changed_counts: ChangedCounts,
    /// Verdicts on the first requests of lanes (by number), recorded when a robots.txt arrives and its
    /// rules may be evicted before the lane is released: so each fetch makes progress.
    early_verdicts: HashMap<LaneId, (u64, Verdict), Secret>,
    hosts: Hosts,
    domains: Domains,
    site: Site,
    seen: Seen,
    offers: Offers,
    held: BinaryHeap<Reverse<(Instant, LaneId)>>,
    limited: Limited,
    eviction: Eviction,
    /// Lanes from whose queues requests left, and whose queues were made anew.
    left: Departures,
    rebuilt: Departures,
    active: ActiveLanes,
    first_pages: FirstPages,
    origins_kept: BinaryHeap<Reverse<(Instant, u32)>>,
    queued: usize,
    /// Memory of the queued requests beyond their lanes, in bytes.
    queued_bytes: usize,
    /// Requests that are queued elsewhere.
    spilled: usize,
    lanes_open: usize,
    pages: u64,
    pages_in_flight: u64,
    numbers: Numbers,
    filtered: BTreeMap<Filtered, u64>,
    /// What was excluded while the crawl runs.
    excluded: Exclusions,
    /// Priorities of hosts by order.
    host_priorities: BTreeMap<String, i32>,
    /// Hosts that the configuration excludes since the run began.
    excluded_since: ExcludedSince,
}

/// One lane. There may be millions, so only fields that every lane needs are here.
#[derive(Debug, Default)]
struct Lane {
    queue: Queue,
    origin: u32,
    in_flight: Count24,
    state: LaneState,
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LaneState {
    #[default]
    Closed,
    Idle,
    /// It waits to become active.
    Parked,
    Offered,
    /// The throttle released it: its front is being checked, or its host resolved.
    Released,
    Robots,
    Held,
    Limited,
}

/// A change of a lane for the throttle. Changes are applied in order, before the throttle is polled
/// again: see [`Frontier::lane_changes`].
#[derive(Debug)]
pub enum LaneChange {
    /// The lane has something to send, with these expected costs and this priority. Repeated when
    /// another request becomes the first.
    Offer {
        lane: LaneId,
        costs: Costs,
        priority: i32,
        /// It goes before others: the connection that fetched its robots.txt waits for it.
        goes_first: bool,
    },
    /// The lane has something to send, and is not offered before others.
    Park(LaneId),
    /// The lane has nothing to send until it is offered again.
    Withdraw(LaneId),
    /// The lane is closed; its number may be used again.
    Close(LaneId),
}

/// Result of [`Frontier::next`].
#[derive(Debug)]
pub enum Next {
    /// Send this request.
    Send(Job),
    /// This request ends without being sent.
    Unsent(Job, Unsent),
    /// Crawl-delay of robots.txt: add it as a scope of the lane, then offer the lane again.
    CrawlDelay(Duration),
    /// Nothing can be sent now; the frontier offers the lane again when that changes.
    Later,
}

/// Why a request ended unsent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// Disallowed by a rule of robots.txt: its text and line.
    Disallowed(String, u32),
    /// robots.txt is unavailable.
    RobotsUnreachable,
    /// Its host was given up.
    HostDown,
    /// This machine has no route to its host.
    Unroutable,
    /// `--max-pages-per-host` is reached.
    HostPages,
    /// `PAGES_PER_DOMAIN_MAX` is reached.
    DomainPages,
    /// `BYTES_PER_DOMAIN_MAX` is reached.
    DomainBytes,
    /// It was excluded by an order.
    Excluded,
}

impl Frontier {
    /// Creates an empty frontier. `secret` keys its hash tables.
    pub fn new(settings: FrontierSettings, secret: &Secret) -> Self {
        let mut hosts = Hosts::new(secret);
        if settings.pages_per_host_max > 0 || settings.own_hosts.limits_pages() {
            hosts.count_pages();
        }
        let domains = Domains::new(
            settings.pages_per_domain_max,
            settings.bytes_per_domain_max,
            secret,
        );
        Frontier {
            rules: RulesCache::new(settings.robots_memory),
            saved_robots: SavedRobots::new(),
            changed_counts: ChangedCounts::default(),
            early_verdicts: HashMap::with_hasher(*secret),
            settings,
            lanes: ChunkedVec::new(),
            lane_of: HashMap::with_hasher(*secret),
            key_of: HashMap::with_hasher(*secret),
            changes: Vec::new(),
            secret: *secret,
            routes: HashMap::with_hasher(*secret),
            proxy_hosts: [None; 2],
            crawl_delays: HashMap::with_hasher(*secret),
            earlier_crawl_delays: NamedValues::new(),
            origins: Origins::new(secret),
            hosts,
            domains,
            site: Site::new(secret),
            seen: Seen::new(secret),
            offers: Offers::new(secret),
            held: BinaryHeap::new(),
            limited: Limited::new(secret),
            eviction: Eviction::default(),
            left: Departures::default(),
            rebuilt: Departures::default(),
            active: ActiveLanes::new(secret),
            first_pages: FirstPages::new(secret),
            origins_kept: BinaryHeap::new(),
            queued: 0,
            queued_bytes: 0,
            spilled: 0,
            lanes_open: 0,
            pages: 0,
            pages_in_flight: 0,
            numbers: Numbers::default(),
            filtered: BTreeMap::new(),
            excluded: Exclusions::default(),
            host_priorities: BTreeMap::new(),
            excluded_since: ExcludedSince::new(secret),
        }
    }

    /// Returns the number for a new attempt.
    pub fn number(&mut self) -> u64 {
        self.numbers.next()
    }

    /// Returns a handle to the counter, for attempts that are numbered outside the frontier.
    pub fn numbers(&self) -> Numbers {
        self.numbers.clone()
    }

    /// Drains the changes of lanes since the last call, in order. Call it after each call that may
    /// change a lane, and apply them to the throttle.
    pub fn lane_changes(&mut self) -> std::vec::Drain<'_, LaneChange> {
        self.changes.drain(..)
    }

    /// Returns whether changes of lanes are still to be applied.
    pub fn has_lane_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Queues a request in [its lane](Frontier::lane_for).
    pub fn push(&mut self, lane: LaneId, job: Job) {
        self.queued += 1;
        let slot = &mut self.lanes[lane.0 as usize];
        let first = job.kind == PageKind::Robots;
        let before = slot.queue.peek().map(Queued::priority);
        let queued = Queued::of(job);
        let id = queued.id();
        self.queued_bytes += queued.bytes();
        slot.queue.push(queued);
        match slot.state {
            LaneState::Parked => self.update_parked(lane, before),
            LaneState::Idle => self.offer_lane(lane),
            // A robots.txt request needs no robots.txt verdict and no page limit.
            LaneState::Robots | LaneState::Limited if first => self.offer_lane(lane),
            // It has other costs than the one that was first before.
            LaneState::Offered if slot.queue.peek().map(Queued::id) == Some(id) => {
                self.offer_active(lane);
            }
            _ => {}
        }
    }

    /// Requeues a request that could not be sent; its rank makes it the lane's first again. The lane is
    /// offered again.
    pub fn put_back(&mut self, lane: LaneId, job: Job, now: Instant) {
        self.uncount(&job, lane, false);
        self.queued += 1;
        self.first_pages.end(lane);
        self.first_pages.subtract_in_flight();
        self.active.note_end();
        let slot = &mut self.lanes[lane.0 as usize];
        slot.in_flight.subtract();
        let before = slot.queue.peek().map(Queued::priority);
        if job.kind == PageKind::Robots
            && matches!(slot.state, LaneState::Robots | LaneState::Limited)
        {
            // The lane may be waiting for this very request, which nothing else sends.
            slot.state = LaneState::Released;
        }
        let queued = Queued::of(job);
        self.queued_bytes += queued.bytes();
        slot.queue.push(queued);
        match slot.state {
            LaneState::Parked => self.update_parked(lane, before),
            // The first request is another now, with other costs.
            LaneState::Offered => self.offer_active(lane),
            _ => {}
        }
        self.offer_limited(lane);
        self.offer_or_close(lane, now);
    }

    /// Decides about the first request of a lane that the throttle has released.
    pub fn next(&mut self, lane: LaneId, now: Instant) -> Next {
        let next = self.decide(lane, now);
        match next {
            Next::Send(_) | Next::Unsent(..) => self.active.count(lane, now),
            Next::CrawlDelay(_) | Next::Later => {}
        }
        next
    }

    fn decide(&mut self, lane: LaneId, now: Instant) -> Next {
        if self.is_front_excluded(lane) {
            return Next::Unsent(self.pop(lane), Unsent::Excluded);
        }
        let slot = &self.lanes[lane.0 as usize];
        let Some(front) = slot.queue.peek() else {
            self.lanes[lane.0 as usize].state = LaneState::Idle;
            return Next::Later;
        };
        let origin = self.origins.get(slot.origin);
        match self.health(lane, now) {
            Health::Up => {}
            Health::Held(until) => {
                self.deactivate(lane, LaneState::Held);
                self.held.push(Reverse((until, lane)));
                return Next::Later;
            }
            Health::Unroutable => {
                return Next::Unsent(self.pop(lane), Unsent::Unroutable);
            }
            Health::Down => {
                let asks = self.settings.robots_obey && !front.flags().ignore_robots;
                let why = match origin.robots.is_known() {
                    false if asks && front.kind() == PageKind::Page => Unsent::RobotsUnreachable,
                    _ => Unsent::HostDown,
                };
                return Next::Unsent(self.pop(lane), why);
            }
        }
        let is_robots = front.kind() == PageKind::Robots;
        // It applies to every request of the lane, also to the robots.txt of another origin.
        if self.settings.robots_obey
            && let Some(delay) = origin.robots.crawl_delay(&self.rules)
            && self.crawl_delays.get(&lane) != Some(&delay)
        {
            self.crawl_delays.insert(lane, delay);
            return Next::CrawlDelay(delay);
        }
        if is_robots {
            return Next::Send(self.take(lane));
        }
        if let Some(later) = self.check_page_limits(lane) {
            return later;
        }
        let slot = &self.lanes[lane.0 as usize];
        let front = slot.queue.peek().expect("the front was just seen");
        if !self.settings.robots_obey || front.flags().ignore_robots {
            return Next::Send(self.take(lane));
        }
        let (number, id) = (slot.origin, front.id());
        let verdict = match &self.origins.get(number).robots {
            RobotsState::Known(known) => self.rules.verdict(*known, front.target(), now),
            RobotsState::Absent(until) if *until > now => Verdict::Allowed,
            RobotsState::Unreachable(until) if *until > now => Verdict::Unreachable,
            RobotsState::Fetching(_) => Verdict::Wait,
            _ => Verdict::NeedsFetch,
        };
        let early = match self.early_verdicts.is_empty() {
            true => None,
            false => self.early_verdicts.remove(&lane),
        };
        let verdict = match (verdict, early) {
            (Verdict::NeedsFetch | Verdict::Wait, Some((early_id, verdict))) if early_id == id => {
                verdict
            }
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Allowed => Next::Send(self.take(lane)),
            Verdict::Disallowed(rule, line) => {
                Next::Unsent(self.pop(lane), Unsent::Disallowed(rule, line))
            }
            Verdict::Unreachable => Next::Unsent(self.pop(lane), Unsent::RobotsUnreachable),
            Verdict::Wait => {
                if let RobotsState::Fetching(waiting) = &mut self.origins.get_mut(number).robots {
                    waiting.push(lane);
                }
                self.lanes[lane.0 as usize].state = LaneState::Robots;
                Next::Later
            }
            Verdict::NeedsFetch if !self.first_pages.begin(lane, now) => {
                self.park_first(lane);
                Next::Later
            }
            Verdict::NeedsFetch => {
                let fetching = RobotsState::Fetching(Box::new(SmallVec::from_slice(&[lane])));
                self.set_robots(number, fetching);
                let job = self.robots_job(lane);
                self.first_pages.add_in_flight();
                let slot = &mut self.lanes[lane.0 as usize];
                slot.in_flight.add();
                slot.state = LaneState::Robots;
                Next::Send(job)
            }
        }
    }

    fn robots_job(&mut self, lane: LaneId) -> Job {
        let id = self.number();
        let slot = &self.lanes[lane.0 as usize];
        let front = slot.queue.peek().expect("a request asks for robots.txt");
        let (is_https, host, port) = self.address_of(lane);
        let mut job = Job {
            parent: front.id(),
            kind: PageKind::Robots,
            seed: false,
            depth: front.depth(),
            ..Job::seed(
                id,
                CrawlUrl::from_parts(is_https, host, port, "/robots.txt"),
            )
        };
        let extra = job.extra_mut();
        extra.set_robots_for(slot.origin);
        if let Some(front) = front.extra() {
            // A request's own scopes also throttle the robots.txt fetched for it.
            extra.share_scopes(front);
            extra.share_fields(front);
            extra.route = front.route.clone();
        }
        job
    }

    /// Pops the first request and counts it as in flight.
    fn take(&mut self, lane: LaneId) -> Job {
        let job = self.pop(lane);
        self.begin(lane, job.kind);
        job
    }

    /// Counts a request of a lane as in flight.
    fn begin(&mut self, lane: LaneId, kind: PageKind) {
        self.first_pages.add_in_flight();
        self.lanes[lane.0 as usize].in_flight.add();
        if kind == PageKind::Page {
            self.pages_in_flight += 1;
            if let Some(count) = self.page_count_mut(lane) {
                count.in_flight += 1;
            }
            if let Some(domain) = self.domain_of(lane) {
                self.domains.begin_page(domain);
            }
        }
    }

    /// Pops the first request.
    fn pop(&mut self, lane: LaneId) -> Job {
        self.queued -= 1;
        self.left.note(lane);
        self.first_pages.end(lane);
        let slot = &mut self.lanes[lane.0 as usize];
        let queued = slot.queue.pop().expect("the front was just seen");
        self.queued_bytes -= queued.bytes();
        queued.into_job(self.address_of(lane))
    }

    /// Takes a lane's first request, since its host cannot be resolved: it counts as in flight.
    pub fn take_front(&mut self, lane: LaneId) -> Option<Job> {
        self.has_queued(lane).then(|| self.take(lane))
    }

    /// Takes the page of this rank if it is queued in a lane, wherever: it counts as in flight.
    pub fn take_queued(&mut self, lane: LaneId, rank: Rank) -> Option<Job> {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.queue.peek()?.rank() == rank {
            return Some(self.take(lane));
        }
        let queued = slot.queue.remove(rank)?;
        self.rebuilt.note(lane);
        self.queued -= 1;
        self.queued_bytes -= queued.bytes();
        let job = queued.into_job(self.address_of(lane));
        self.begin(lane, job.kind);
        Some(job)
    }

    /// Reads the memory that the next requests of these lanes need, one level of indirection for all
    /// lanes before the next level: reads of one level do not depend on each other, so their cache
    /// misses overlap. The returned sum has no meaning.
    pub fn touch(&self, lanes: &[LaneId]) -> u64 {
        let slots = || lanes.iter().map(|lane| &self.lanes[lane.0 as usize]);
        let origins: SmallVec<[u32; 32]> = slots().map(|slot| slot.origin).collect();
        let mut sum: u64 = slots().map(|slot| slot.queue.touch()).sum();
        let hosts = origins.iter().map(|origin| self.origins.get(*origin).host);
        let hosts: SmallVec<[u32; 32]> = hosts.map(|host| host.0).collect();
        for host in hosts.iter().map(|host| HostId(*host)) {
            sum += u64::from(self.hosts.get(host).is_seed);
            sum += u64::from(self.origins.first_of(host));
        }
        sum.wrapping_add(self.hosts.touch_names(&hosts))
    }

    /// Marks a lane as released by the throttle. Returns whether its host may be asked now; if not,
    /// [`Frontier::next`] returns what to do.
    pub fn released(&mut self, lane: LaneId, now: Instant) -> bool {
        self.lanes[lane.0 as usize].state = LaneState::Released;
        self.may_be_asked(lane, now)
    }

    /// Returns whether a lane's host is neither held nor given up.
    pub fn may_be_asked(&self, lane: LaneId, now: Instant) -> bool {
        self.health(lane, now) == Health::Up
    }

    /// Returns whether a lane has something queued.
    pub fn has_queued(&self, lane: LaneId) -> bool {
        !self.lanes[lane.0 as usize].queue.is_empty()
    }

    /// Returns whether a lane has something queued and its host is neither held nor given up.
    pub fn is_reachable(&self, lane: LaneId, now: Instant) -> bool {
        self.has_queued(lane) && self.may_be_asked(lane, now)
    }

    /// Number of lanes, including closed ones.
    pub fn lanes_len(&self) -> usize {
        self.lanes.len()
    }

    /// The URL of a lane's first request.
    pub fn front_url(&self, lane: LaneId) -> Option<CrawlUrl> {
        let front = self.lanes[lane.0 as usize].queue.peek()?;
        let (is_https, host, port) = self.address_of(lane);
        Some(CrawlUrl::from_parts(is_https, host, port, front.target()))
    }

    /// Offers the lane if something is queued; closes it if nothing is queued or in flight.
    pub fn offer_or_close(&mut self, lane: LaneId, now: Instant) {
        let slot = &self.lanes[lane.0 as usize];
        match slot.state {
            LaneState::Robots
            | LaneState::Held
            | LaneState::Limited
            | LaneState::Parked
            | LaneState::Offered
            | LaneState::Closed => {}
            _ if !slot.queue.is_empty() => self.offer_lane(lane),
            LaneState::Idle | LaneState::Released => {
                self.lanes[lane.0 as usize].state = LaneState::Idle;
                self.close_if_done(lane, now);
            }
        }
    }

    /// Offers a lane, or parks it.
    fn offer_lane(&mut self, lane: LaneId) {
        let is_offered = self.lanes[lane.0 as usize].state == LaneState::Offered;
        if is_offered || self.enters(lane) {
            self.offer_active(lane);
        }
    }

    fn offer_active(&mut self, lane: LaneId) {
        self.lanes[lane.0 as usize].state = LaneState::Offered;
        let front = self.lanes[lane.0 as usize].queue.peek();
        let extra = front.and_then(Queued::extra);
        let costs = extra.map_or_else(Costs::new, Extra::costs);
        let priority = self.priority_of(lane, front);
        self.changes.push(LaneChange::Offer {
            lane,
            costs,
            priority,
            goes_first: self.first_pages.reserved_until(lane).is_some(),
        });
    }

    /// Records that an attempt has ended. `page`: it fetched a page that counts against the limits.
    pub fn ended(&mut self, lane: LaneId, job: &Job, page: bool, now: Instant) {
        self.uncount(job, lane, page);
        if job.kind == PageKind::Robots {
            self.first_pages.end_asking(lane);
        }
        self.first_pages.subtract_in_flight();
        self.active.note_end();
        self.lanes[lane.0 as usize].in_flight.subtract();
        if page && job.kind == PageKind::Page {
            self.pages += 1;
            if let Some(count) = self.page_count_mut(lane) {
                count.pages += 1;
            }
        }
        if self.changed_counts.is_on() {
            self.note_counts(lane);
        }
        self.offer_limited(lane);
        self.offer_or_close(lane, now);
    }

    /// Applies the result of a robots.txt fetch, which this attempt brought, to the origin that it was for.
    /// Returns until when it is valid.
    pub fn robots_arrived(
        &mut self,
        attempt: u64,
        origin: u32,
        result: RobotsResult,
        now: Instant,
    ) -> Instant {
        let lifetime = match result {
            RobotsResult::Rules(_) | RobotsResult::Absent => self.settings.robots_lifetime,
            RobotsResult::Unreachable => UNREACHABLE_FOR.min(self.settings.robots_lifetime),
        };
        if self.saved_robots.is_on() {
            self.save_robots(attempt, origin, &result, lifetime);
        }
        let waiting = match self.apply_robots(origin, result, now + lifetime) {
            RobotsState::Fetching(waiting) => *waiting,
            _ => SmallVec::new(),
        };
        for lane in waiting {
            if self.lanes[lane.0 as usize].state == LaneState::Robots {
                self.lanes[lane.0 as usize].state = LaneState::Released;
                self.decide_early(lane, now);
                self.review_first_page(lane, now);
                self.offer_or_close(lane, now);
            }
        }
        now + lifetime
    }

    /// If the cache of rules is more than half full, so that the rules may be evicted before the lane is
    /// released, records their verdict on its first request.
    fn decide_early(&mut self, lane: LaneId, now: Instant) {
        if !self.rules.is_half_full() {
            return;
        }
        let slot = &self.lanes[lane.0 as usize];
        if let RobotsState::Known(known) = self.origins.get(slot.origin).robots
            && let Some(front) = slot.queue.peek()
        {
            let verdict = self.rules.verdict(known, front.target(), now);
            self.early_verdicts.insert(lane, (front.id(), verdict));
        }
    }

    /// Sets the robots.txt state of an origin by a result that is valid until then. Returns the state before.
    pub(super) fn apply_robots(
        &mut self,
        origin: u32,
        result: RobotsResult,
        until: Instant,
    ) -> RobotsState {
        let state = match result {
            RobotsResult::Rules(rules) => {
                RobotsState::Known(self.rules.insert(origin, rules, until))
            }
            RobotsResult::Absent => RobotsState::Absent(until),
            RobotsResult::Unreachable => RobotsState::Unreachable(until),
        };
        let before = self.set_robots(origin, state);
        while let Some(evicted) = self.rules.evict() {
            self.origins.get_mut(evicted).robots = RobotsState::Unknown;
        }
        before
    }

    /// Sets the robots.txt state of an origin, drops its rules, and returns the state before.
    fn set_robots(&mut self, origin: u32, state: RobotsState) -> RobotsState {
        let origin = self.origins.get_mut(origin);
        let before = std::mem::replace(&mut origin.robots, state);
        if let RobotsState::Known(number) = before {
            self.rules.remove(number);
        }
        before
    }

    /// Forgets an unused origin, and its rules.
    fn forget_origin(&mut self, origin: u32) {
        self.set_robots(origin, RobotsState::Unknown);
        if let Some(host) = self.origins.forget(origin) {
            self.hosts.release(host);
        }
    }

    /// Memory of the cached robots.txt rules, in bytes.
    pub fn rules_bytes(&self) -> u64 {
        self.rules.bytes()
    }

    /// Number of comparisons with rules since the last call.
    pub fn take_rule_steps(&mut self) -> usize {
        self.rules.take_steps()
    }

    /// Withdraws a lane until `until`.
    pub fn pause(&mut self, lane: LaneId, until: Instant) {
        if matches!(
            self.lanes[lane.0 as usize].state,
            LaneState::Released | LaneState::Idle | LaneState::Offered | LaneState::Parked
        ) {
            self.deactivate(lane, LaneState::Held);
            self.held.push(Reverse((until, lane)));
            self.changes.push(LaneChange::Withdraw(lane));
        }
    }

    /// Ends a pause early: offers the lane.
    pub fn resume(&mut self, lane: LaneId) {
        if self.lanes[lane.0 as usize].state == LaneState::Held {
            self.offer_lane(lane);
        }
    }

    /// Called every turn: drops expired holds of hosts, and what is kept of hosts with nothing queued for
    /// longer than it holds. `is_stopped`: the crawl itself cannot send, so the time does not count against
    /// hosts.
    pub fn update_hosts(&mut self, is_stopped: bool, now: Instant) {
        self.first_pages.expire(now);
        self.hosts.set_stopped(is_stopped, now);
        self.hosts.expire(now);
        self.forget_kept(FORGOTTEN_PER_TURN, now);
        self.hosts.forget_idle(now);
    }

    /// Number of hosts in memory: those with something queued or in flight, those whose robots.txt is
    /// kept, and those that fail.
    pub fn hosts_len(&self) -> usize {
        self.hosts.len()
    }

    /// Returns when [`Frontier::expire`] is due.
    pub fn next_wake(&self) -> Option<Instant> {
        if self.limited.is_due() {
            return Some(Instant::START);
        }
        let held = self.held.peek().map(|Reverse((at, _))| *at);
        held.into_iter().chain(self.first_pages.next_wake()).min()
    }

    /// Offers one lane whose pause or hold is over, rechecks one that a page limit stopped, and ends what was
    /// reserved for first pages for long enough.
    pub fn expire(&mut self, now: Instant) {
        self.first_pages.expire(now);
        if self.limited.is_due() {
            self.recheck_limited();
        }
        if let Some(Reverse((at, lane))) = self.held.peek().copied()
            && at <= now
        {
            self.held.pop();
            if self.lanes[lane.0 as usize].state == LaneState::Held {
                self.offer_lane(lane);
            }
        }
    }

    /// Returns whether a seed may be admitted now: fewer than `FRONTIER_MAX` requests are queued.
    pub fn has_room(&self) -> bool {
        let max = self.settings.queued_max;
        max == 0 || self.queued + self.spilled < max
    }

    /// So many requests are queued elsewhere.
    pub fn set_spilled(&mut self, count: usize) {
        self.spilled = count;
    }

    /// Memory of the queued requests and of the open lanes with their hosts and scopes, in bytes: an estimate.
    pub fn memory(&self) -> u64 {
        (self.queued_bytes + self.lanes_open * LANE_BYTES) as u64
    }

    /// Number of requests queued.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Number of lanes with something queued or in flight.
    pub fn lanes_open(&self) -> usize {
        self.lanes_open
    }

    /// The settings.
    pub fn settings(&self) -> &FrontierSettings {
        &self.settings
    }

    #[cfg(test)]
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    #[cfg(test)]
    pub(crate) fn settings_mut(&mut self) -> &mut FrontierSettings {
        &mut self.settings
    }
}

/// Memory of a lane with its origin, its host and its scope, in bytes: `tests/queued_memory.rs`.
const LANE_BYTES: usize = 250;

#[cfg(test)]
mod tests;
