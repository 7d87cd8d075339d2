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

mod entry;
mod opening;
mod ways;
mod limits;
mod leaving;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use hashbrown::{HashMap, HashTable};
use smallvec::SmallVec;

use self::limits::Limited;
use self::ways::Way;
use super::extra::{Costs, Extra};
use super::filter::{Filtered, Site};
use super::hosts::{Health, HostId, Hosts};
use super::job::Job;
use super::numbers::Numbers;
use super::origins::Origins;
use super::queue::Queue;
use super::queued::Queued;
use super::request::Kind;
use super::robots::{Brought, RulesCache, Standing as Robots, UNREACHABLE_FOR, Verdict};
use super::seen::Seen;
use super::settings::Settings;
use crate::base::chunked::ChunkedVec;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::throttle::engine::{LaneId, Throttle};
use crate::throttle::scope::ScopeSet;
use crate::wire::url::CrawlUrl;

/// All that is still to fetch, and what decides whether it may be.
#[derive(Debug)]
pub struct Frontier {
    settings: Settings,
    lanes: ChunkedVec<Lane>,
    /// Lanes that are not the first of their origins, by the names that `lane_key` gives them.
    lane_of: HashTable<(u64, LaneId)>,
    secret: Secret,
    /// The lanes whose requests do not go as the settings say.
    routes: HashMap<LaneId, Way, Secret>,
    /// The host of the settings' proxy, once a lane goes through it.
    proxy_host: Option<HostId>,
    /// The Crawl-delays of origins that have been made scopes of these lanes.
    heeded: HashMap<LaneId, Duration, Secret>,
    origins: Origins,
    rules: RulesCache,
    /// What the rules said of the first requests of lanes when they came, where they may be gone
    /// before the lane's turn: so each fetch of a robots.txt brings its lanes on.
    decided: HashMap<LaneId, (u64, Verdict), Secret>,
    /// Sitemaps that were let in, by host.
    sitemaps: HashMap<HostId, u32, Secret>,
    hosts: Hosts,
    site: Site,
    seen: Seen,
    held: BinaryHeap<Reverse<(Instant, LaneId)>>,
    limited: Limited,
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
    /// robots.txt is unavailable.
    RobotsUnreachable,
    /// Its host was given up.
    HostDown,
    /// Our machine has no route to its host.
    Unroutable,
    /// Its host has had `--max-pages-per-host`.
    HostPages,
}

impl Frontier {
    /// An empty frontier, whose tables hash under a secret.
    pub fn new(settings: Settings, secret: &Secret) -> Self {
        let mut hosts = Hosts::new(secret);
        if settings.pages_per_host_max > 0 {
            hosts.count_pages();
        }
        Frontier {
            rules: RulesCache::new(settings.robots_memory),
            decided: HashMap::with_hasher(*secret),
            sitemaps: HashMap::with_hasher(*secret),
            settings,
            lanes: ChunkedVec::new(),
            lane_of: HashTable::new(),
            secret: *secret,
            routes: HashMap::with_hasher(*secret),
            proxy_host: None,
            heeded: HashMap::with_hasher(*secret),
            origins: Origins::new(secret),
            hosts,
            site: Site::default(),
            seen: Seen::new(secret),
            held: BinaryHeap::new(),
            limited: Limited::new(secret),
            origins_kept: BinaryHeap::new(),
            queued: 0,
            lanes_open: 0,
            pages: 0,
            pages_in_flight: 0,
            numbers: Numbers::default(),
            filtered: BTreeMap::new(),
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
        let first = job.kind == Kind::Robots;
        slot.queue.push(Queued::of(job));
        match slot.stands {
            Stands::Idle => self.offer(lane, throttle, now),
            // A robots.txt waits for nobody's robots.txt, and for no page limit.
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
        if job.kind == Kind::Robots && matches!(slot.stands, Stands::Robots | Stands::Limited) {
            // What the lane waits for may be this very request, and nobody else will send it.
            slot.stands = Stands::Taken;
        }
        slot.queue.push(Queued::of(job));
        self.offer_limited(lane, throttle, now);
        self.offer_or_close(lane, throttle, now);
    }

    /// What is next in a lane that the throttle has released.
    pub fn next(&mut self, lane: LaneId, throttle: &Throttle, now: Instant) -> Next {
        let slot = &self.lanes[lane.0 as usize];
        let Some(front) = slot.queue.peek() else {
            self.lanes[lane.0 as usize].stands = Stands::Idle;
            return Next::Later;
        };
        let origin = self.origins.get(slot.origin);
        match self.health(lane, now) {
            Health::Up => {}
            Health::Held(until) => {
                self.lanes[lane.0 as usize].stands = Stands::Held;
                self.held.push(Reverse((until, lane)));
                return Next::Later;
            }
            Health::Unroutable => {
                return Next::Unsent(self.pop(lane, throttle), Unsent::Unroutable);
            }
            Health::Down => {
                let asks = self.settings.robots_obey && !front.flags().ignore_robots;
                let why = match origin.robots.is_known() {
                    false if asks && front.kind() == Kind::Page => Unsent::RobotsUnreachable,
                    _ => Unsent::HostDown,
                };
                return Next::Unsent(self.pop(lane, throttle), why);
            }
        }
        let is_robots = front.kind() == Kind::Robots;
        // Whatever leaves from here heeds it: a neighbour's robots.txt that lies here, too.
        if self.settings.robots_obey
            && let Some(delay) = origin.robots.crawl_delay(&self.rules)
            && self.heeded.get(&lane) != Some(&delay)
        {
            self.heeded.insert(lane, delay);
            return Next::CrawlDelay(delay);
        }
        if is_robots {
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
        let (number, id) = (slot.origin, front.id());
        let verdict = match &self.origins.get(number).robots {
            Robots::Known(known) => self.rules.verdict(*known, front.target(), now),
            Robots::Absent(until) if *until > now => Verdict::Allowed,
            Robots::Unreachable(until) if *until > now => Verdict::Unreachable,
            Robots::Fetching(_) => Verdict::Wait,
            _ => Verdict::Ask,
        };
        let decided = match self.decided.is_empty() {
            true => None,
            false => self.decided.remove(&lane),
        };
        let verdict = match (verdict, decided) {
            (Verdict::Ask | Verdict::Wait, Some((decided, verdict))) if decided == id => verdict,
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Allowed => Next::Send(self.take(lane, throttle)),
            Verdict::Disallowed(rule, line) => {
                Next::Unsent(self.pop(lane, throttle), Unsent::Disallowed(rule, line))
            }
            Verdict::Unreachable => {
                Next::Unsent(self.pop(lane, throttle), Unsent::RobotsUnreachable)
            }
            Verdict::Wait => {
                if let Robots::Fetching(waiting) = &mut self.origins.get_mut(number).robots {
                    waiting.push(lane);
                }
                self.lanes[lane.0 as usize].stands = Stands::Robots;
                Next::Later
            }
            Verdict::Ask => {
                let fetching = Robots::Fetching(Box::new(SmallVec::from_slice(&[lane])));
                self.set_robots(number, fetching);
                let job = self.robots_job(lane, throttle);
                let slot = &mut self.lanes[lane.0 as usize];
                slot.in_flight.add();
                slot.stands = Stands::Robots;
                Next::Send(job)
            }
        }
    }

    fn robots_job(&mut self, lane: LaneId, throttle: &Throttle) -> Job {
        let id = self.number();
        let slot = &self.lanes[lane.0 as usize];
        let front = slot.queue.peek().expect("a request asks for robots.txt");
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

    /// Whether a lane has something queued and its host is neither held nor given up.
    pub fn is_askable(&self, lane: LaneId, now: Instant) -> bool {
        self.has_queued(lane) && self.health(lane, now) == Health::Up
    }

    /// How many lanes there are, those included that are closed.
    pub fn lanes_len(&self) -> usize {
        self.lanes.len()
    }

    /// The URL of a lane's first request.
    pub fn front_url(&self, lane: LaneId, throttle: &Throttle) -> Option<CrawlUrl> {
        let front = self.lanes[lane.0 as usize].queue.peek()?;
        let (is_https, host, port) = self.address_of(lane, throttle);
        Some(CrawlUrl::of_parts(is_https, host, port, front.target()))
    }

    /// The lane may go on: it is offered if it has something, closed if it is done for.
    pub fn offer_or_close(&mut self, lane: LaneId, throttle: &mut Throttle, now: Instant) {
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
        self.offer_limited(lane, throttle, now);
        self.offer_or_close(lane, throttle, now);
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
        let standing = match brought {
            Brought::Rules(rules) => {
                Robots::Known(self.rules.insert(origin, rules, now + lifetime))
            }
            Brought::Absent => Robots::Absent(now + lifetime),
            Brought::Unreachable => Robots::Unreachable(now + UNREACHABLE_FOR.min(lifetime)),
        };
        let waiting = match self.set_robots(origin, standing) {
            Robots::Fetching(waiting) => *waiting,
            _ => SmallVec::new(),
        };
        while let Some(evicted) = self.rules.evict() {
            self.origins.get_mut(evicted).robots = Robots::Unknown;
        }
        for lane in waiting {
            if self.lanes[lane.0 as usize].stands == Stands::Robots {
                self.lanes[lane.0 as usize].stands = Stands::Taken;
                self.decide_now(lane, now);
                self.offer_or_close(lane, throttle, now);
            }
        }
    }

    /// Where the rules of a lane's origin may be gone before its turn comes, remembers what they say of
    /// its first request.
    fn decide_now(&mut self, lane: LaneId, now: Instant) {
        if !self.rules.is_pressed() {
            return;
        }
        let slot = &self.lanes[lane.0 as usize];
        if let Robots::Known(known) = self.origins.get(slot.origin).robots
            && let Some(front) = slot.queue.peek()
        {
            let verdict = self.rules.verdict(known, front.target(), now);
            self.decided.insert(lane, (front.id(), verdict));
        }
    }

    /// Changes how an origin's robots.txt stands; gives how it stood. Its rules go.
    fn set_robots(&mut self, origin: u32, standing: Robots) -> Robots {
        let origin = self.origins.get_mut(origin);
        let before = std::mem::replace(&mut origin.robots, standing);
        if let Robots::Known(number) = before {
            self.rules.remove(number);
        }
        before
    }

    /// Forgets an origin that nobody uses, and its rules.
    fn forget_origin(&mut self, origin: u32) {
        self.set_robots(origin, Robots::Unknown);
        self.origins.forget(origin);
    }

    /// Bytes that the rules of robots.txt files take.
    pub fn rules_bytes(&self) -> u64 {
        self.rules.bytes()
    }

    /// How many comparisons with rules there were since this was last asked.
    pub fn take_rule_steps(&mut self) -> usize {
        self.rules.take_steps()
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

    /// Offers a lane that was to wait until a moment.
    pub fn resume(&mut self, lane: LaneId, throttle: &mut Throttle, now: Instant) {
        if self.lanes[lane.0 as usize].stands == Stands::Held {
            self.offer(lane, throttle, now);
        }
    }

    /// Called every turn: forgets holds of hosts that are over. `is_stopped`: nothing can be asked,
    /// through no fault of theirs.
    pub fn attend_hosts(&mut self, is_stopped: bool, now: Instant) {
        self.hosts.set_stopped(is_stopped, now);
        self.hosts.expire(now);
    }

    /// When [`Frontier::expire`] has something to do.
    pub fn next_wake(&self) -> Option<Instant> {
        if self.limited.is_due() {
            return Some(Instant::START);
        }
        self.held.peek().map(|Reverse((at, _))| *at)
    }

    /// Offers a lane whose host has been held long enough, and looks at one that a page limit stopped.
    pub fn expire(&mut self, throttle: &mut Throttle, now: Instant) {
        if self.limited.is_due() {
            self.look_at_limited(throttle, now);
        }
        if let Some(Reverse((at, lane))) = self.held.peek().copied()
            && at <= now
        {
            self.held.pop();
            if self.lanes[lane.0 as usize].stands == Stands::Held {
                self.offer(lane, throttle, now);
            }
        }
    }

    /// Whether a seed may come in now.
    pub fn has_room(&self) -> bool {
        self.queued < self.settings.queued_max
    }

    /// Requests queued.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Lanes with something queued or in flight.
    pub fn lanes_open(&self) -> usize {
        self.lanes_open
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[cfg(test)]
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    #[cfg(test)]
    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
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
