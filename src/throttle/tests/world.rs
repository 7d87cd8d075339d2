//! A simulated origin and the requests that go there, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use crate::base::time::Instant;
use crate::fetch::failure::FailureKind;
use crate::throttle::engine::{Grant, LaneId, Throttle, TicketId};
use crate::throttle::scope::ScopeSet;
use crate::throttle::settings::{Jitter, ScopeSettings, Settings};
use crate::throttle::signal::{Ending, Feedback, Signal};

/// Lanes with requests queued, set-up times and page times, and what the origins saw.
pub(super) struct World {
    pub throttle: Throttle,
    pub now: Instant,
    pub queued: BTreeMap<u32, VecDeque<Page>>,
    pub happens: BinaryHeap<Reverse<(Instant, u64, Happens)>>,
    pub tickets: BTreeMap<u64, Exchange>,
    pub next: u64,
    /// Per lane: when each request was sent.
    pub sent: BTreeMap<u32, Vec<Instant>>,
    /// Per scope name: in flight now, and at most.
    pub in_flight: BTreeMap<String, (u32, u32)>,
    pub total: (u32, u32),
    /// Which origin a lane's requests go to, where it has a policy.
    origins: BTreeMap<u32, String>,
    policies: BTreeMap<String, Policy>,
    /// Per origin with a policy: its visits in their order.
    visits: BTreeMap<String, Vec<Visit>>,
}

/// A request as the origin would answer it if it had no policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub setup: Duration,
    pub takes: Duration,
    pub status: u16,
    /// Its connection cannot be made.
    pub fails_setup: bool,
    pub failure: Option<FailureKind>,
    /// What it is expected to cost each of its scopes.
    pub cost: f64,
    /// Its place in the first of its scopes, once it is at the origin.
    pub slot: u16,
}

/// A request under way.
pub(super) struct Exchange {
    ticket: TicketId,
    lane: LaneId,
    page: Page,
    started: Instant,
    reply: Option<Reply>,
}

/// What an origin answers.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub signal: Signal,
    /// From the request's departure to the final head, or to the failure in place of one.
    pub takes: Duration,
    /// The body breaks off.
    pub breaks: bool,
}

/// How an origin answers: asked when a request is there, with how many were before it.
pub(super) type Policy = Box<dyn FnMut(Instant, usize, Page) -> Reply>;

/// A request at an origin with a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub at: Instant,
    pub status: Option<u16>,
    pub slot: u16,
}

impl Reply {
    /// A status, after so many seconds.
    pub fn new(status: u16, takes: f64) -> Self {
        Reply {
            signal: Signal {
                status: Some(status),
                ..Signal::default()
            },
            takes: secs(takes),
            breaks: false,
        }
    }

    /// What the page says of itself.
    pub fn of(page: Page) -> Self {
        let mut reply = Reply::new(page.status, page.takes.as_secs_f64());
        if page.failure == Some(FailureKind::Truncated) {
            reply.breaks = true;
        } else if page.failure.is_some() {
            reply.signal.status = None;
            reply.signal.failure = page.failure;
        }
        reply
    }

    pub fn retry_after(mut self, seconds: f64) -> Self {
        self.signal.retry_after = Some(secs(seconds));
        self
    }

    /// The server's count begins anew after so long.
    pub fn reset(mut self, seconds: f64) -> Self {
        self.signal.rate_limit_reset = Some(secs(seconds));
        self
    }

    /// Nothing remains until then.
    pub fn exhausted(mut self, seconds: f64) -> Self {
        self.signal.rate_limit_exhausted = true;
        self.reset(seconds)
    }

    pub fn says(mut self, feedback: Feedback) -> Self {
        self.signal.feedback.push(feedback);
        self
    }
}

/// So many per second, and so many saved up; others get a 429 at once.
pub(super) fn bucket(rate: f64, burst: f64) -> Policy {
    let (mut level, mut counted) = (burst, Instant::START);
    Box::new(move |now, _, page| {
        level += now.saturating_since(counted).as_secs_f64() * rate;
        level = level.min(burst);
        counted = now;
        if level < 1.0 - 1e-9 {
            return Reply::new(429, page.takes.as_secs_f64() / 4.0);
        }
        level -= 1.0;
        Reply::of(page)
    })
}

/// These replies in their order, and then what each page says of itself.
pub(super) fn script(replies: impl IntoIterator<Item = Reply>) -> Policy {
    let replies: Vec<Reply> = replies.into_iter().collect();
    Box::new(move |_, before, page| {
        let scripted = replies.get(before).cloned();
        scripted.unwrap_or_else(|| Reply::of(page))
    })
}

/// A status until a moment; then what each page says of itself.
pub(super) fn until(end: Instant, status: u16) -> Policy {
    Box::new(move |now, _, page| match now < end {
        true => Reply::new(status, page.takes.as_secs_f64()),
        false => Reply::of(page),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happens {
    Ready(u64),
    Answered(u64),
    Offered(u32),
}

impl World {
    pub fn new(settings: Settings) -> Self {
        World::seeded(settings, 7)
    }

    /// One whose throttle draws other jitter.
    pub fn seeded(settings: Settings, seed: u64) -> Self {
        World {
            throttle: Throttle::new(settings, seed, Instant::START),
            now: Instant::START,
            queued: BTreeMap::new(),
            happens: BinaryHeap::new(),
            tickets: BTreeMap::new(),
            next: 0,
            sent: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            total: (0, 0),
            origins: BTreeMap::new(),
            policies: BTreeMap::new(),
            visits: BTreeMap::new(),
        }
    }

    /// A lane under one scope, whose origin has a policy.
    pub fn origin(&mut self, name: &str, policy: Policy) -> LaneId {
        let lane = self.lane(&[name]);
        self.serve(lane, name, policy);
        lane
    }

    /// Sends a lane's requests to an origin of this name, which answers so from now on.
    pub fn serve(&mut self, lane: LaneId, origin: &str, policy: Policy) {
        self.origins.insert(lane.0, origin.to_owned());
        self.policies.insert(origin.to_owned(), policy);
    }

    /// A new lane to an origin that has a policy.
    pub fn again(&mut self, name: &str) -> LaneId {
        let lane = self.lane(&[name]);
        self.origins.insert(lane.0, name.to_owned());
        lane
    }

    /// Closes a lane: nothing is left to send there.
    pub fn leave(&mut self, lane: LaneId) {
        self.throttle.close_lane(lane, self.now);
        self.sent.remove(&lane.0);
    }

    /// What an origin with a policy saw.
    pub fn visits(&self, origin: &str) -> &[Visit] {
        self.visits.get(origin).map_or(&[], Vec::as_slice)
    }

    /// Its refusals from one moment to another, as rounds: refusals less than `apart` after one
    /// another are one.
    pub fn rounds(&self, origin: &str, from: Instant, to: Instant, apart: f64) -> usize {
        let refused = |visit: &&Visit| visit.status != Some(200);
        let within = |visit: &&Visit| visit.at >= from && visit.at < to;
        let mut last: Option<Instant> = None;
        let mut rounds = 0;
        for visit in self.visits(origin).iter().filter(within).filter(refused) {
            if last.is_none_or(|last| visit.at.saturating_since(last) >= secs(apart)) {
                rounds += 1;
            }
            last = Some(visit.at);
        }
        rounds
    }

    /// Seconds at which an origin was visited.
    pub fn arrivals(&self, origin: &str) -> Vec<f64> {
        let visits = self.visits(origin).iter();
        visits.map(|visit| seconds(visit.at)).collect()
    }

    /// How many it served from one moment to another.
    pub fn served(&self, origin: &str, from: Instant, to: Instant) -> usize {
        let served = |visit: &&Visit| visit.status == Some(200);
        let within = |visit: &&Visit| visit.at >= from && visit.at < to;
        let visits = self.visits(origin).iter();
        visits.filter(within).filter(served).count()
    }

    /// The present delay of a scope in seconds.
    pub fn delay(&mut self, scope: &str) -> f64 {
        let id = self.throttle.scope(scope);
        self.throttle.pace(id).delay.as_secs_f64()
    }

    /// The present concurrency of a scope.
    pub fn concurrency(&mut self, scope: &str) -> u32 {
        let id = self.throttle.scope(scope);
        self.throttle.pace(id).concurrency
    }

    pub fn lane(&mut self, scopes: &[&str]) -> LaneId {
        let ids: Vec<_> = scopes.iter().map(|s| self.throttle.scope(s)).collect();
        self.throttle.open_lane(&ScopeSet::ordered(ids))
    }

    pub fn queue(&mut self, lane: LaneId, count: usize, page: Page) {
        let queue = self.queued.entry(lane.0).or_default();
        queue.extend(std::iter::repeat_n(page, count));
        self.expect(lane);
        self.throttle.offer(lane, self.now);
    }

    /// Says what the lane's next request is expected to cost.
    fn expect(&mut self, lane: LaneId) {
        let front = self.queued.get(&lane.0).and_then(|queue| queue.front());
        let Some(cost) = front.map(|page| page.cost) else {
            return;
        };
        let costs: Vec<_> = if cost == 1.0 {
            Vec::new()
        } else {
            let scopes = self.throttle.lane_scopes(lane);
            scopes.iter().map(|id| (*id, cost)).collect()
        };
        self.throttle.expect(lane, &costs, self.now);
    }

    pub fn later(&mut self, at: Instant, what: Happens) {
        self.next += 1;
        self.happens.push(Reverse((at, self.next, what)));
    }

    /// Lets everything happen up to `end`; gives the number of times it woke.
    pub fn run(&mut self, end: Instant) -> usize {
        let mut turns = 0;
        loop {
            while let Some(grant) = self.throttle.poll(self.now) {
                self.granted(grant);
            }
            let wheel = self.throttle.next_wake();
            let happens = self.happens.peek().map(|Reverse((at, ..))| *at);
            let next = [wheel, happens].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return turns;
            };
            turns += 1;
            self.now = self.now.max(next);
            while let Some(Reverse((at, _, what))) = self.happens.peek().copied()
                && at <= self.now
            {
                self.happens.pop();
                self.happened(what);
            }
        }
    }

    pub fn granted(&mut self, grant: Grant) {
        match grant {
            Grant::Release(lane, ticket) => {
                let queue = self.queued.get_mut(&lane.0).expect("a queue");
                let page = queue.pop_front().expect("a lane is released for a request");
                if !queue.is_empty() {
                    self.expect(lane);
                    self.throttle.offer(lane, self.now);
                }
                self.next += 1;
                let id = self.next;
                let exchange = Exchange {
                    ticket,
                    lane,
                    page,
                    started: self.now,
                    reply: None,
                };
                self.tickets.insert(id, exchange);
                self.later(self.now + page.setup, Happens::Ready(id));
            }
            Grant::Depart(ticket) => {
                let (&id, exchange) = self
                    .tickets
                    .iter()
                    .find(|(_, exchange)| exchange.ticket == ticket)
                    .expect("a known ticket");
                let (lane, page) = (exchange.lane, exchange.page);
                self.throttle.sent(ticket, self.now);
                assert!(self.throttle.due(ticket) <= self.now, "never early");
                self.sent.entry(lane.0).or_default().push(self.now);
                self.count(ticket, 1);
                let slot = self.throttle.slot_of(ticket);
                let reply = self.visit(lane, Page { slot, ..page });
                self.later(self.now + reply.takes, Happens::Answered(id));
                let exchange = self.tickets.get_mut(&id).expect("it is under way");
                exchange.reply = Some(reply);
            }
        }
    }

    fn visit(&mut self, lane: LaneId, page: Page) -> Reply {
        let Some(origin) = self.origins.get(&lane.0) else {
            return Reply::of(page);
        };
        let visits = self.visits.entry(origin.clone()).or_default();
        let policy = self.policies.get_mut(origin).expect("an origin's policy");
        let reply = policy(self.now, visits.len(), page);
        visits.push(Visit {
            at: self.now,
            status: reply.signal.status.filter(|_| !reply.breaks),
            slot: page.slot,
        });
        reply
    }

    fn happened(&mut self, what: Happens) {
        match what {
            Happens::Ready(id) => {
                let exchange = &self.tickets[&id];
                let (ticket, page, started) = (exchange.ticket, exchange.page, exchange.started);
                if page.fails_setup {
                    let signal = Signal {
                        failure: page.failure.or(Some(FailureKind::Connect)),
                        ..Signal::default()
                    };
                    self.throttle.charge_failed(ticket, started);
                    self.throttle.answer(ticket, id, &signal, self.now);
                    self.throttle.finish(ticket, self.now);
                    let lane = exchange.lane;
                    self.tickets.remove(&id);
                    self.sent.entry(lane.0).or_default().push(started);
                } else {
                    self.throttle.ready(ticket, Some(page.setup), self.now);
                }
            }
            Happens::Answered(id) => {
                let exchange = self.tickets.remove(&id).expect("in flight");
                let (ticket, reply) = (exchange.ticket, exchange.reply.expect("answered"));
                let signal = Signal {
                    server_latency: Some(reply.takes),
                    latency: Some(reply.takes),
                    ..reply.signal
                };
                self.count(ticket, -1);
                self.throttle.answer(ticket, id, &signal, self.now);
                if reply.breaks || self.throttle.listens(ticket) {
                    // Every page is another one.
                    let ending = Ending {
                        failure: reply.breaks.then_some(FailureKind::Truncated),
                        took: Some(reply.takes),
                        size: 20_000 + id % 7_000,
                        digest: id,
                        ..Ending::default()
                    };
                    self.throttle.ended(ticket, id, &signal, &ending, self.now);
                }
                self.throttle.finish(ticket, self.now);
            }
            Happens::Offered(lane) => self.throttle.offer(LaneId(lane), self.now),
        }
    }

    pub fn count(&mut self, ticket: TicketId, by: i32) {
        let names: Vec<String> = self
            .throttle
            .ticket_scopes(ticket)
            .map(|id| self.throttle.scope_name(id).to_owned())
            .collect();
        for name in names {
            let entry = self.in_flight.entry(name).or_default();
            entry.0 = entry.0.strict_add_signed(by);
            entry.1 = entry.1.max(entry.0);
        }
        self.total.0 = self.total.0.strict_add_signed(by);
        self.total.1 = self.total.1.max(self.total.0);
    }

    pub fn peak(&self, scope: &str) -> u32 {
        self.in_flight.get(scope).map_or(0, |(_, peak)| *peak)
    }

    pub fn sent(&self, lane: LaneId) -> &[Instant] {
        self.sent.get(&lane.0).map_or(&[], Vec::as_slice)
    }

    pub fn gaps(&self, lane: LaneId) -> Vec<f64> {
        gaps(self.sent(lane))
    }
}

pub(super) fn gaps(sent: &[Instant]) -> Vec<f64> {
    sent.windows(2)
        .map(|pair| pair[1].saturating_since(pair[0]).as_secs_f64())
        .collect()
}

pub(super) fn seconds(at: Instant) -> f64 {
    at.saturating_since(Instant::START).as_secs_f64()
}

/// `None` where two lists of seconds are the same to the millisecond; else both.
pub(super) fn differ(seen: &[f64], expected: &[f64]) -> Option<String> {
    let same = seen.len() == expected.len()
        && seen.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3);
    (!same).then(|| format!("{seen:?}, not {expected:?}"))
}

pub(super) fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

pub(super) fn at(seconds: f64) -> Instant {
    Instant::START + secs(seconds)
}

pub(super) fn page(takes: f64) -> Page {
    Page {
        setup: Duration::ZERO,
        takes: secs(takes),
        status: 200,
        fails_setup: false,
        failure: None,
        cost: 1.0,
        slot: 0,
    }
}

/// A page that ends so.
pub(super) fn failing(failure: FailureKind, takes: f64) -> Page {
    Page {
        failure: Some(failure),
        ..page(takes)
    }
}

/// Settings of one pace for all, without jitter.
pub(super) fn pace(concurrency: u32, delay: f64, delay_per_slot: f64) -> Settings {
    Settings {
        default: ScopeSettings {
            concurrency,
            delay: secs(delay),
            delay_per_slot: secs(delay_per_slot),
            jitter: Jitter::NONE,
            ..ScopeSettings::default()
        },
        scopes: BTreeMap::new(),
        ..Settings::default()
    }
}

pub(super) fn jittered(delay: f64, jitter: Jitter) -> Settings {
    let mut settings = pace(1, delay, 0.0);
    settings.default.jitter = jitter;
    settings
}
