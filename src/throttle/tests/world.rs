//! A simulated origin and its requests, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use crate::base::ids::LaneId;
use crate::base::ids::ScopeSet;
use crate::base::time::Instant;
use crate::fetch::failure::FailureKind;
use crate::throttle::engine::{Grant, Throttle, TicketId};
use crate::throttle::settings::{Jitter, ScopeSettings, ThrottleSettings};
use crate::throttle::signal::{BodySignal, ExchangeEnd, Feedback, Signal};

/// Sends whatever may leave now. `answer` gives each request its reply at once.
pub fn answer_all(
    throttle: &mut Throttle,
    now: Instant,
    mut answer: impl FnMut(&mut Throttle, TicketId),
) {
    while let Some(grant) = throttle.poll(now) {
        match grant {
            Grant::Release(_, ticket) => throttle.ready(ticket, None, now),
            Grant::Depart(ticket) => {
                throttle.sent(ticket, now);
                answer(throttle, ticket);
                throttle.finish(ticket, now);
            }
        }
    }
}

/// Lanes with queued requests, set-up times and page times, and the origins' observations.
pub(super) struct World {
    pub throttle: Throttle,
    pub now: Instant,
    pub queued: BTreeMap<u32, VecDeque<Page>>,
    /// Lanes whose requests go first.
    pub first: BTreeSet<u32>,
    pub events: BinaryHeap<Reverse<(Instant, u64, WorldEvent)>>,
    pub tickets: BTreeMap<u64, Exchange>,
    pub next: u64,
    /// Send times of the requests of each lane.
    pub sent: BTreeMap<u32, Vec<Instant>>,
    /// Per scope name: requests in flight now and at most.
    pub in_flight: BTreeMap<String, (u32, u32)>,
    pub total: (u32, u32),
    /// The origin of a lane's requests, if it has a policy.
    origins: BTreeMap<u32, String>,
    policies: BTreeMap<String, Policy>,
    /// Per origin with a policy: its visits in order.
    visits: BTreeMap<String, Vec<Visit>>,
}

/// A request with the answer of an origin without a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub setup: Duration,
    pub takes: Duration,
    pub status: u16,
    /// Its connection cannot be established.
    pub fails_setup: bool,
    pub failure: Option<FailureKind>,
    /// Its expected cost in each of its scopes.
    pub cost: f64,
    /// Its slot in the first of its scopes, once it has arrived at the origin.
    pub slot: u16,
}

/// A request in progress.
pub(super) struct Exchange {
    ticket: TicketId,
    lane: LaneId,
    page: Page,
    started: Instant,
    reply: Option<Reply>,
}

/// An answer of an origin.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub signal: Signal,
    /// Time from the request's departure to the final head, or to the failure in place of one.
    pub takes: Duration,
    /// The body breaks off.
    pub breaks: bool,
}

/// Answers of an origin: called when a request arrives, with the number of earlier ones.
pub(super) type Policy = Box<dyn FnMut(Instant, usize, Page) -> Reply>;

/// A request that arrived at an origin with a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub at: Instant,
    pub status: Option<u16>,
    pub slot: u16,
}

impl Reply {
    /// A status after this many seconds.
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

    /// The answer that the page describes.
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

    /// The server's window restarts after this many seconds.
    pub fn reset(mut self, seconds: f64) -> Self {
        self.signal.rate_limit_reset = Some(secs(seconds));
        self
    }

    /// The quota is used up, and restarts after this many seconds.
    pub fn exhausted(mut self, seconds: f64) -> Self {
        self.signal.rate_limit_exhausted = true;
        self.reset(seconds)
    }

    pub fn feedback(mut self, feedback: Feedback) -> Self {
        self.signal.feedback.push(feedback);
        self
    }
}

/// A token bucket: `rate` per second and `burst` tokens; excess requests get a 429 at once.
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

/// These replies in order, and then what each page describes.
pub(super) fn script(replies: impl IntoIterator<Item = Reply>) -> Policy {
    let replies: Vec<Reply> = replies.into_iter().collect();
    Box::new(move |_, before, page| {
        let scripted = replies.get(before).cloned();
        scripted.unwrap_or_else(|| Reply::of(page))
    })
}

/// A status until `end`; then what each page describes.
pub(super) fn until(end: Instant, status: u16) -> Policy {
    Box::new(move |now, _, page| match now < end {
        true => Reply::new(status, page.takes.as_secs_f64()),
        false => Reply::of(page),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldEvent {
    Ready(u64),
    Answered(u64),
    Offered(u32),
}

impl World {
    pub fn new(settings: ThrottleSettings) -> Self {
        World::seeded(settings, 7)
    }

    /// A world with another jitter seed.
    pub fn seeded(settings: ThrottleSettings, seed: u64) -> Self {
        World {
            throttle: Throttle::new(settings, seed, Instant::START),
            now: Instant::START,
            queued: BTreeMap::new(),
            first: BTreeSet::new(),
            events: BinaryHeap::new(),
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

    /// Sends a lane's requests to an origin of this name with this policy from now on.
    pub fn serve(&mut self, lane: LaneId, origin: &str, policy: Policy) {
        self.origins.insert(lane.0, origin.to_owned());
        self.policies.insert(origin.to_owned(), policy);
    }

    /// A new lane to an origin that has a policy.
    pub fn lane_again(&mut self, name: &str) -> LaneId {
        let lane = self.lane(&[name]);
        self.origins.insert(lane.0, name.to_owned());
        lane
    }

    /// Closes a lane without queued requests.
    pub fn leave(&mut self, lane: LaneId) {
        self.throttle.close_lane(lane, self.now);
        self.sent.remove(&lane.0);
    }

    /// The visits at an origin with a policy.
    pub fn visits(&self, origin: &str) -> &[Visit] {
        self.visits.get(origin).map_or(&[], Vec::as_slice)
    }

    /// Number of rounds of refusals between two times: refusals less than `apart` seconds after one
    /// another are one round.
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

    /// Number of requests served between two times.
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
        self.offer(lane);
    }

    fn offer(&mut self, lane: LaneId) {
        match self.first.contains(&lane.0) {
            true => self.throttle.offer_first(lane, self.now),
            false => self.throttle.offer(lane, self.now),
        }
    }

    /// Sets the expected cost of the lane's next request.
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

    pub fn later(&mut self, at: Instant, what: WorldEvent) {
        self.next += 1;
        self.events.push(Reverse((at, self.next, what)));
    }

    /// Runs everything up to `end`; returns the number of wake-ups.
    pub fn run(&mut self, end: Instant) -> usize {
        let mut turns = 0;
        loop {
            while let Some(grant) = self.throttle.poll(self.now) {
                self.granted(grant);
            }
            let wheel = self.throttle.next_wake();
            let events = self.events.peek().map(|Reverse((at, ..))| *at);
            let next = [wheel, events].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return turns;
            };
            turns += 1;
            self.now = self.now.max(next);
            while let Some(Reverse((at, _, what))) = self.events.peek().copied()
                && at <= self.now
            {
                self.events.pop();
                self.on_event(what);
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
                    self.offer(lane);
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
                self.later(self.now + page.setup, WorldEvent::Ready(id));
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
                self.later(self.now + reply.takes, WorldEvent::Answered(id));
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

    fn on_event(&mut self, what: WorldEvent) {
        match what {
            WorldEvent::Ready(id) => {
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
            WorldEvent::Answered(id) => {
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
                    // Every page is different.
                    let ending = ExchangeEnd {
                        failure: reply.breaks.then_some(FailureKind::Truncated),
                        took: Some(reply.takes),
                        size: 20_000 + id % 7_000,
                        digest: id,
                        ..ExchangeEnd::default()
                    };
                    let body = BodySignal::nothing();
                    self.throttle
                        .answer_body(ticket, id, &signal, ending.failure, &body, self.now);
                    self.throttle.ended(ticket, id, &signal, &ending, self.now);
                }
                self.throttle.finish(ticket, self.now);
            }
            WorldEvent::Offered(lane) => self.offer(LaneId(lane)),
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

/// `None` if two lists of seconds agree to the millisecond; else both as text.
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

/// A page that ends with this failure.
pub(super) fn failing(failure: FailureKind, takes: f64) -> Page {
    Page {
        failure: Some(failure),
        ..page(takes)
    }
}

/// Settings with one pace for all scopes, without jitter.
pub(super) fn pace(concurrency: u32, delay: f64, delay_per_slot: f64) -> ThrottleSettings {
    ThrottleSettings {
        default: ScopeSettings {
            concurrency,
            delay: secs(delay),
            delay_per_slot: secs(delay_per_slot),
            jitter: Jitter::NONE,
            ..ScopeSettings::default()
        },
        scopes: BTreeMap::new(),
        ..ThrottleSettings::default()
    }
}

pub(super) fn jittered(delay: f64, jitter: Jitter) -> ThrottleSettings {
    let mut settings = pace(1, delay, 0.0);
    settings.default.jitter = jitter;
    settings
}
