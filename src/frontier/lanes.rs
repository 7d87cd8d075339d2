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
use std::time::Duration;

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::filter::{self, Filtered, Site};
use super::hosts::{Health, HostId, Hosts};
use super::job::Job;
use super::origins::Origins;
use super::queue::Queue;
use super::request::Kind;
use super::robots::{Brought, Standing as Robots, Verdict};
use super::seen::Seen;
use super::settings::Settings;
use crate::base::time::Instant;
use crate::throttle::engine::{LaneId, Throttle};
use crate::throttle::scope::ScopeSet;
use crate::wire::url::CrawlUrl;

/// All that is still to fetch, and what decides whether it may be.
#[derive(Debug)]
pub struct Frontier {
    settings: Settings,
    lanes: Vec<Lane>,
    lane_of: HashTable<LaneId>,
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
    next_id: u64,
    filtered: BTreeMap<Filtered, u64>,
}

#[derive(Debug, Default)]
struct Lane {
    key: u64,
    queue: Queue,
    origin: u32,
    host: u32,
    in_flight: u32,
    stands: Stands,
    /// The origin's Crawl-delay that has been made one of the lane's scopes.
    heeded: Option<Duration>,
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
    Send(Box<Job>),
    /// This request has ended without being sent.
    Unsent(Box<Job>, Unsent),
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
        Frontier {
            settings,
            lanes: Vec::new(),
            lane_of: HashTable::new(),
            origins: Origins::default(),
            hosts: Hosts::default(),
            site: Site::default(),
            seen: Seen::default(),
            held: BinaryHeap::new(),
            limited: Vec::new(),
            origins_kept: BinaryHeap::new(),
            queued: 0,
            lanes_open: 0,
            pages: 0,
            pages_in_flight: 0,
            next_id: 1,
            filtered: BTreeMap::new(),
        }
    }

    /// Whether `url` may come in, at `depth` links from its seed; it counts as seen from now on.
    ///
    /// `seed`: its host, or domain, is one that `--follow` may lead to from now on.
    pub fn check(&mut self, url: &CrawlUrl, depth: u32, seed: bool) -> Result<(), Filtered> {
        let verdict = self.verdict(url, depth, seed);
        if let Err(filtered) = verdict {
            self.count_filtered(filtered, 1);
        }
        verdict
    }

    fn verdict(&mut self, url: &CrawlUrl, depth: u32, seed: bool) -> Result<(), Filtered> {
        filter::check(&self.settings, url, depth)?;
        if !seed {
            let host = self.hosts.find(url.host_str());
            let seed_host = host.is_some_and(|host| host.is_seed);
            if !self.site.contains(self.settings.follow, url, seed_host) {
                return Err(Filtered::Offsite);
            }
            if self.queued >= self.settings.queued_max {
                return Err(Filtered::FrontierFull);
            }
            let spent = self.settings.pages_per_host_max;
            if spent > 0 && host.is_some_and(|host| host.pages >= spent) {
                return Err(Filtered::HostPages);
            }
        }
        if !self.seen.insert(url.fingerprint()) {
            return Err(Filtered::Duplicate);
        }
        if seed {
            let host = self.hosts.host(url.host_str());
            self.hosts.get_mut(host).is_seed = true;
            self.site.add(self.settings.follow, url);
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
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Queues a request in the lane of its origin and scopes.
    pub fn push(&mut self, job: Job, scopes: &ScopeSet, throttle: &mut Throttle, now: Instant) {
        let lane = self.lane(&job.url, scopes, throttle);
        self.queued += 1;
        let slot = &mut self.lanes[lane.0 as usize];
        let first = job.kind != Kind::Page;
        slot.queue.push(Box::new(job));
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
    pub fn put_back(&mut self, lane: LaneId, job: Box<Job>, throttle: &mut Throttle, now: Instant) {
        self.uncount(&job, lane);
        self.queued += 1;
        let slot = &mut self.lanes[lane.0 as usize];
        slot.in_flight -= 1;
        if job.kind != Kind::Page && matches!(slot.stands, Stands::Robots | Stands::Limited) {
            // What the lane waits for may be this very request, and nobody else will send it.
            slot.stands = Stands::Taken;
        }
        slot.queue.push(job);
        self.offer_limited(throttle, now);
        self.go_on(lane, throttle, now);
    }

    /// What is next in a lane that the throttle has released.
    pub fn next(&mut self, lane: LaneId, now: Instant) -> Next {
        let slot = &self.lanes[lane.0 as usize];
        let Some(front) = slot.queue.peek() else {
            self.lanes[lane.0 as usize].stands = Stands::Idle;
            return Next::Later;
        };
        match self.hosts.get(HostId(slot.host)).health(now) {
            Health::Up => {}
            Health::Held(until) => {
                self.lanes[lane.0 as usize].stands = Stands::Held;
                self.held.push(Reverse((until, lane)));
                return Next::Later;
            }
            Health::Down => return Next::Unsent(self.pop(lane), Unsent::HostDown),
        }
        let is_page = front.kind == Kind::Page;
        // Whatever leaves from here heeds it: a neighbour's robots.txt that lies here, too.
        if self.settings.robots_obey
            && let Some(delay) = self.origins.get_mut(slot.origin).robots.crawl_delay()
            && slot.heeded != Some(delay)
        {
            self.lanes[lane.0 as usize].heeded = Some(delay);
            return Next::CrawlDelay(delay);
        }
        if !is_page {
            return Next::Send(self.take(lane));
        }
        if let Some(later) = self.spent(lane) {
            return later;
        }
        if !self.settings.robots_obey {
            return Next::Send(self.take(lane));
        }
        let slot = &self.lanes[lane.0 as usize];
        let front = slot.queue.peek().expect("the front was just seen");
        let origin = self.origins.get_mut(slot.origin);
        match origin.robots.verdict(front.url.request_target(), now) {
            Verdict::Allowed => Next::Send(self.take(lane)),
            Verdict::Disallowed(rule, line) => {
                Next::Unsent(self.pop(lane), Unsent::Disallowed(rule, line))
            }
            Verdict::Unreachable => Next::Unsent(self.pop(lane), Unsent::RobotsUnreachable),
            Verdict::Wait => {
                if let Robots::Fetching(waiting) = &mut origin.robots {
                    waiting.push(lane);
                }
                self.lanes[lane.0 as usize].stands = Stands::Robots;
                Next::Later
            }
            Verdict::Ask => {
                origin.robots = Robots::Fetching(Box::new(SmallVec::from_slice(&[lane])));
                let job = self.robots_job(lane);
                let slot = &mut self.lanes[lane.0 as usize];
                slot.in_flight += 1;
                slot.stands = Stands::Robots;
                Next::Send(job)
            }
        }
    }

    /// Page limits: the whole crawl's stops the lane for now, the host's ends what it has.
    fn spent(&mut self, lane: LaneId) -> Option<Next> {
        let max = self.settings.pages_max;
        if max > 0 && self.pages + self.pages_in_flight >= max {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.push(lane);
            return Some(Next::Later);
        }
        let max = self.settings.pages_per_host_max;
        if max > 0 {
            let host = self.hosts.get(HostId(self.lanes[lane.0 as usize].host));
            if host.pages >= max {
                return Some(Next::Unsent(self.pop(lane), Unsent::HostPages));
            }
        }
        if self.awaits_pages(HostId(self.lanes[lane.0 as usize].host)) {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.push(lane);
            return Some(Next::Later);
        }
        None
    }

    fn robots_job(&mut self, lane: LaneId) -> Box<Job> {
        let id = self.number();
        let slot = &self.lanes[lane.0 as usize];
        let front = slot.queue.peek().expect("a page asks for robots.txt");
        let url = front
            .url
            .join("/robots.txt")
            .expect("an absolute path joins every URL");
        let mut job = Job {
            id,
            parent: front.id,
            via: None,
            url,
            kind: Kind::Robots,
            seed: false,
            fresh: false,
            redirects: 0,
            attempt: 1,
            depth: front.depth,
            priority: 0,
            share: 0.0,
            extra: None,
        };
        job.extra_mut().robots_for = Some(slot.origin);
        // Custom scopes pace everything that is sent on their requests' behalf.
        job.extra_mut().scopes = front.extra.as_ref().and_then(|extra| extra.scopes.clone());
        Box::new(job)
    }

    /// Takes the front to be sent.
    fn take(&mut self, lane: LaneId) -> Box<Job> {
        let job = self.pop(lane);
        let slot = &mut self.lanes[lane.0 as usize];
        slot.in_flight += 1;
        if job.kind == Kind::Page {
            self.pages_in_flight += 1;
            self.hosts.get_mut(HostId(slot.host)).in_flight += 1;
        }
        job
    }

    /// Takes the front out of the queue.
    fn pop(&mut self, lane: LaneId) -> Box<Job> {
        self.queued -= 1;
        let slot = &mut self.lanes[lane.0 as usize];
        slot.queue.pop().expect("the front was just seen")
    }

    /// Takes a lane's front because its host cannot be resolved: it counts as being sent.
    pub fn take_front(&mut self, lane: LaneId) -> Option<Box<Job>> {
        self.lanes[lane.0 as usize].queue.peek()?;
        Some(self.take(lane))
    }

    /// The throttle has released a lane. Whether its host may be asked now; if not, `next` says
    /// what comes of it.
    pub fn released(&mut self, lane: LaneId, now: Instant) -> bool {
        let slot = &mut self.lanes[lane.0 as usize];
        slot.stands = Stands::Taken;
        self.hosts.get(HostId(slot.host)).health(now) == Health::Up
    }

    /// The lane's first URL: whose host is to be resolved.
    pub fn front(&self, lane: LaneId) -> Option<&Job> {
        self.lanes[lane.0 as usize].queue.peek()
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
            throttle.expect(lane, front.costs(), now);
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
        let slot = &mut self.lanes[lane.0 as usize];
        slot.in_flight -= 1;
        if page && job.kind == Kind::Page {
            self.pages += 1;
            self.hosts.get_mut(HostId(slot.host)).pages += 1;
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
            let slot = &self.lanes[lane.0 as usize];
            if slot.stands != Stands::Limited {
                continue;
            }
            if self.awaits_pages(HostId(slot.host)) {
                self.limited.push(lane);
            } else {
                self.offer(lane, throttle, now);
            }
        }
    }

    /// Whether a host may give no more pages unless one of those on their way fails.
    fn awaits_pages(&self, host: HostId) -> bool {
        let (max, host) = (self.settings.pages_per_host_max, self.hosts.get(host));
        max > 0 && host.pages < max && host.pages + host.in_flight >= max
    }

    fn uncount(&mut self, job: &Job, lane: LaneId) {
        if job.kind == Kind::Page {
            self.pages_in_flight -= 1;
            let host = HostId(self.lanes[lane.0 as usize].host);
            self.hosts.get_mut(host).in_flight -= 1;
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

    /// The host of a lane could not be resolved or connected to.
    pub fn host_failed(&mut self, lane: LaneId, now: Instant) {
        if !self.settings.gives_up_hosts {
            return;
        }
        let host = HostId(self.lanes[lane.0 as usize].host);
        self.hosts.get_mut(host).failed(now);
    }

    /// The host of a lane was connected to.
    pub fn host_connected(&mut self, lane: LaneId) {
        let host = HostId(self.lanes[lane.0 as usize].host);
        self.hosts.get_mut(host).connected();
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

    /// Offers lanes whose hosts have been held long enough.
    pub fn expire(&mut self, throttle: &mut Throttle, now: Instant) {
        while let Some(Reverse((at, lane))) = self.held.peek().copied()
            && at <= now
        {
            self.held.pop();
            if self.lanes[lane.0 as usize].stands == Stands::Held {
                self.offer(lane, throttle, now);
            }
        }
    }

    /// The lane of an origin and a set of scopes, opened if there is none.
    fn lane(&mut self, url: &CrawlUrl, scopes: &ScopeSet, throttle: &mut Throttle) -> LaneId {
        let host = self.hosts.host(url.host_str());
        let origin = self.origins.origin(url, host);
        let key = lane_key(origin, scopes);
        let lanes = &self.lanes;
        if let Some(lane) = self
            .lane_of
            .find(key, |lane| lanes[lane.0 as usize].key == key)
        {
            return *lane;
        }
        self.origins.get_mut(origin).lanes += 1;
        let lane = throttle.open_lane(scopes);
        if self.lanes.len() <= lane.0 as usize {
            self.lanes.resize_with(lane.0 as usize + 1, Lane::default);
        }
        self.lanes[lane.0 as usize] = Lane {
            key,
            queue: Queue::default(),
            origin,
            host: host.0,
            in_flight: 0,
            stands: Stands::Idle,
            heeded: None,
        };
        let lanes = &self.lanes;
        self.lane_of
            .insert_unique(key, lane, |lane| lanes[lane.0 as usize].key);
        self.lanes_open += 1;
        lane
    }

    fn close_if_done(&mut self, lane: LaneId, throttle: &mut Throttle, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.stands != Stands::Idle || !slot.queue.is_empty() || slot.in_flight > 0 {
            return;
        }
        let (key, origin) = (slot.key, slot.origin);
        *slot = Lane::default();
        if let Ok(entry) = self.lane_of.find_entry(key, |other| *other == lane) {
            entry.remove();
        }
        throttle.close_lane(lane, now);
        self.lanes_open -= 1;
        self.origins.get_mut(origin).lanes -= 1;
        self.keep_or_forget(origin, now);
    }

    /// An origin without lanes is remembered while its robots.txt holds, within the bound.
    fn keep_or_forget(&mut self, origin: u32, now: Instant) {
        let slot = self.origins.get_mut(origin);
        if slot.lanes > 0 || slot.kept || matches!(slot.robots, Robots::Fetching(_)) {
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
            if slot.lanes == 0 && !matches!(slot.robots, Robots::Fetching(_)) {
                self.origins.forget(first);
            }
        }
    }

    /// Empties every queue, in order of lanes: for `pending.jsonl` after an early stop.
    pub fn drain(&mut self) -> Vec<Box<Job>> {
        let mut jobs: Vec<Box<Job>> = Vec::with_capacity(self.queued);
        for lane in &mut self.lanes {
            jobs.extend(lane.queue.drain());
        }
        self.queued = 0;
        jobs.sort_by_key(|job| job.id);
        jobs
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

/// Names a lane: its origin and its scopes, mixed into 64 bits.
fn lane_key(origin: u32, scopes: &ScopeSet) -> u64 {
    // The finalizer of splitmix64, chained: a lane is found by its whole key.
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let start = mix((u64::from(origin) + 1) << 1 | u64::from(scopes.is_ordered()));
    scopes.ids().iter().fold(start, |key, scope| {
        mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ u64::from(scope.0))
    })
}

#[cfg(test)]
mod tests;
