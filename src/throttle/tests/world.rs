//! A simulated origin and the requests that go there, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use crate::base::time::Instant;
use crate::throttle::engine::{Grant, LaneId, Throttle, TicketId};
use crate::throttle::scope::ScopeSet;
use crate::throttle::settings::{Jitter, ScopeSettings, Settings};
use crate::throttle::signal::Signal;

/// Lanes with requests queued, set-up times and page times, and what the origin saw.
pub(super) struct World {
    pub throttle: Throttle,
    pub now: Instant,
    pub queued: BTreeMap<u32, VecDeque<Page>>,
    pub happens: BinaryHeap<Reverse<(Instant, u64, Happens)>>,
    pub tickets: BTreeMap<u64, (TicketId, LaneId, Page, Instant)>,
    pub next: u64,
    /// Per lane: when each request was sent.
    pub sent: BTreeMap<u32, Vec<Instant>>,
    /// Per scope name: in flight now, and at most.
    pub in_flight: BTreeMap<String, (u32, u32)>,
    pub total: (u32, u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub setup: Duration,
    pub takes: Duration,
    pub status: u16,
    pub fails_setup: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happens {
    Ready(u64),
    Answered(u64),
    Offered(u32),
}

impl World {
    pub fn new(settings: Settings) -> Self {
        World {
            throttle: Throttle::new(settings, 7, Instant::START),
            now: Instant::START,
            queued: BTreeMap::new(),
            happens: BinaryHeap::new(),
            tickets: BTreeMap::new(),
            next: 0,
            sent: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            total: (0, 0),
        }
    }

    pub fn lane(&mut self, scopes: &[&str]) -> LaneId {
        let ids: Vec<_> = scopes.iter().map(|s| self.throttle.scope(s)).collect();
        self.throttle.open_lane(&ScopeSet::ordered(ids))
    }

    pub fn queue(&mut self, lane: LaneId, count: usize, page: Page) {
        let queue = self.queued.entry(lane.0).or_default();
        queue.extend(std::iter::repeat_n(page, count));
        self.throttle.offer(lane, self.now);
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
                    self.throttle.offer(lane, self.now);
                }
                self.next += 1;
                let id = self.next;
                self.tickets.insert(id, (ticket, lane, page, self.now));
                self.later(self.now + page.setup, Happens::Ready(id));
            }
            Grant::Depart(ticket) => {
                let (&id, &(_, lane, page, _)) = self
                    .tickets
                    .iter()
                    .find(|(_, (other, ..))| *other == ticket)
                    .expect("a known ticket");
                self.throttle.sent(ticket, self.now, self.now);
                assert!(self.throttle.due(ticket) <= self.now, "never early");
                self.sent.entry(lane.0).or_default().push(self.now);
                self.count(ticket, 1);
                self.later(self.now + page.takes, Happens::Answered(id));
            }
        }
    }

    pub fn happened(&mut self, what: Happens) {
        match what {
            Happens::Ready(id) => {
                let (ticket, lane, page, started) = self.tickets[&id];
                if page.fails_setup {
                    self.throttle.charge_failed(ticket, started);
                    self.throttle.finish(ticket, self.now);
                    self.tickets.remove(&id);
                    self.sent.entry(lane.0).or_default().push(started);
                } else {
                    self.throttle.ready(ticket, Some(page.setup), self.now);
                }
            }
            Happens::Answered(id) => {
                let (ticket, _, page, _) = self.tickets.remove(&id).expect("in flight");
                let signal = Signal {
                    status: Some(page.status),
                    server_latency: Some(page.takes),
                    latency: Some(page.takes),
                    ..Signal::default()
                };
                self.count(ticket, -1);
                self.throttle.answer(ticket, id, &signal, self.now);
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
