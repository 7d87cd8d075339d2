//! The engine against a simulated origin: every figure is read at the origin, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use super::engine::{Grant, LaneId, Throttle, TicketId};
use super::scope::ScopeSet;
use super::settings::{
    AutoThrottle, AutoThrottleMode, Jitter, ScopePatch, ScopeSettings, Settings,
};
use super::signal::Signal;
use crate::base::time::Instant;

/// Lanes with requests queued, set-up times and page times, and what the origin saw.
struct World {
    throttle: Throttle,
    now: Instant,
    queued: BTreeMap<u32, VecDeque<Page>>,
    happens: BinaryHeap<Reverse<(Instant, u64, Happens)>>,
    tickets: BTreeMap<u64, (TicketId, LaneId, Page, Instant)>,
    next: u64,
    /// Per lane: when each request was sent.
    sent: BTreeMap<u32, Vec<Instant>>,
    /// Per scope name: in flight now, and at most.
    in_flight: BTreeMap<String, (u32, u32)>,
    total: (u32, u32),
}

#[derive(Clone, Copy, Debug)]
struct Page {
    setup: Duration,
    takes: Duration,
    status: u16,
    fails_setup: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Ready(u64),
    Answered(u64),
    Offered(u32),
}

impl World {
    fn new(settings: Settings) -> Self {
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

    fn lane(&mut self, scopes: &[&str]) -> LaneId {
        let ids: Vec<_> = scopes.iter().map(|s| self.throttle.scope(s)).collect();
        self.throttle.open_lane(&ScopeSet::ordered(ids))
    }

    fn queue(&mut self, lane: LaneId, count: usize, page: Page) {
        let queue = self.queued.entry(lane.0).or_default();
        queue.extend(std::iter::repeat_n(page, count));
        self.throttle.offer(lane, self.now);
    }

    fn later(&mut self, at: Instant, what: Happens) {
        self.next += 1;
        self.happens.push(Reverse((at, self.next, what)));
    }

    /// Lets everything happen up to `end`; gives the number of times it woke.
    fn run(&mut self, end: Instant) -> usize {
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

    fn granted(&mut self, grant: Grant) {
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

    fn happened(&mut self, what: Happens) {
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

    fn count(&mut self, ticket: TicketId, by: i32) {
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

    fn peak(&self, scope: &str) -> u32 {
        self.in_flight.get(scope).map_or(0, |(_, peak)| *peak)
    }

    fn sent(&self, lane: LaneId) -> &[Instant] {
        self.sent.get(&lane.0).map_or(&[], Vec::as_slice)
    }

    fn gaps(&self, lane: LaneId) -> Vec<f64> {
        gaps(self.sent(lane))
    }
}

fn gaps(sent: &[Instant]) -> Vec<f64> {
    sent.windows(2)
        .map(|pair| pair[1].saturating_since(pair[0]).as_secs_f64())
        .collect()
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn at(seconds: f64) -> Instant {
    Instant::START + secs(seconds)
}

fn page(takes: f64) -> Page {
    Page {
        setup: Duration::ZERO,
        takes: secs(takes),
        status: 200,
        fails_setup: false,
    }
}

/// Settings of one pace for all, without jitter.
fn pace(concurrency: u32, delay: f64, delay_per_slot: f64) -> Settings {
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

fn jittered(delay: f64, jitter: Jitter) -> Settings {
    let mut settings = pace(1, delay, 0.0);
    settings.default.jitter = jitter;
    settings
}

#[test]
fn f01_a_scopes_concurrency_is_reached_and_never_exceeded() {
    for cap in [1, 2, 8] {
        let mut world = World::new(pace(cap, 0.0, 0.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 100, page(0.2));
        world.run(at(60.0));
        assert_eq!(world.peak("a.test"), cap);
        assert_eq!(world.sent(lane).len(), 100);
    }
}

#[test]
fn f02_every_gap_is_at_least_the_delay() {
    let mut world = World::new(pace(4, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 10_000, page(0.03));
    world.run(at(2000.0));
    assert_eq!(world.sent(lane).len(), 10_000);
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 0.1));
    // Nothing is lost to slack: ten a second.
    assert!(world.sent(lane)[9_999] <= at(1000.0));
}

#[test]
fn f02_slow_handshakes_never_bunch_requests() {
    let mut world = World::new(pace(8, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    for setup in [0.9, 0.05, 0.5, 0.0, 0.7, 0.1]
        .into_iter()
        .cycle()
        .take(300)
    {
        world.queue(
            lane,
            1,
            Page {
                setup: secs(setup),
                ..page(0.02)
            },
        );
    }
    world.run(at(300.0));
    assert_eq!(world.sent(lane).len(), 300);
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 0.1));
}

#[test]
fn release_runs_ahead_so_that_a_steady_handshake_costs_no_pace() {
    let mut world = World::new(pace(8, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    let slow = Page {
        setup: secs(0.25),
        ..page(0.02)
    };
    world.queue(lane, 200, slow);
    world.run(at(60.0));
    let late: Vec<f64> = world.gaps(lane).split_off(20);
    assert!(
        late.iter().all(|gap| (0.1..0.101).contains(gap)),
        "{late:?}"
    );
}

#[test]
fn f03_each_slot_keeps_its_own_delay() {
    let mut world = World::new(pace(3, 0.0, 1.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 60, page(0.05));
    world.run(at(60.0));
    let sent = world.sent(lane);
    assert_eq!(sent.len(), 60);
    assert!(
        sent.windows(4)
            .all(|w| w[3].saturating_since(w[0]) >= secs(1.0))
    );
    assert!(sent[59] <= at(19.1));
}

#[test]
fn f04_the_worked_timeline_of_the_seed() {
    for (takes, third) in [(0.05, 1.0), (1.5, 1.5)] {
        let mut world = World::new(pace(2, 0.3, 1.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 3, page(takes));
        world.run(at(10.0));
        assert_eq!(world.sent(lane), [at(0.0), at(0.3), at(third)]);
    }
}

#[test]
fn f05_the_global_cap_holds_over_all_scopes_and_is_reached() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.concurrent_requests = 16;
    let mut world = World::new(settings);
    let lanes: Vec<_> = (0..100)
        .map(|i| world.lane(&[&format!("h{i}.test")]))
        .collect();
    for lane in &lanes {
        world.queue(*lane, 20, page(0.1));
    }
    world.run(at(60.0));
    assert_eq!(world.total.1, 16);
    assert!(lanes.iter().all(|lane| world.sent(*lane).len() == 20));
}

#[test]
fn f06_a_delay_over_the_response_time_makes_concurrency_one() {
    for (takes, peak) in [(0.05, 1), (1.0, 5)] {
        let mut world = World::new(pace(8, 0.2, 0.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 50, page(takes));
        world.run(at(60.0));
        assert_eq!(world.peak("a.test"), peak);
    }
}

#[test]
fn f07_an_apex_and_its_subdomains_are_paced_apart() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let lanes = ["a.test", "b.a.test", "c.a.test"].map(|name| world.lane(&[name]));
    for lane in lanes {
        world.queue(lane, 10, page(0.05));
    }
    world.run(at(9.0));
    assert!(lanes.iter().all(|lane| world.sent(*lane).len() == 10));
}

#[test]
fn f08_throttled_scopes_never_starve_ready_ones() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.concurrent_requests = 16;
    for i in 0..50 {
        let slow = ScopePatch {
            delay: Some(secs(5.0)),
            ..ScopePatch::default()
        };
        settings.scopes.insert(format!("slow{i}.test"), slow);
    }
    let mut world = World::new(settings);
    let slow: Vec<_> = (0..50)
        .map(|i| world.lane(&[&format!("slow{i}.test")]))
        .collect();
    for lane in &slow {
        world.queue(*lane, 20, page(0.05));
    }
    let free = world.lane(&["free.test"]);
    world.queue(free, 20_000, page(0.05));
    world.run(at(60.0));
    // Alone: 8 in flight of 50 ms, 160 a second.
    let rate = world.sent(free).len() as f64 / 60.0;
    assert!(rate >= 0.95 * 160.0, "{rate} of 160 a second");
    let sent: usize = slow.iter().map(|lane| world.sent(*lane).len()).sum();
    assert!(sent as f64 >= 0.99 * 600.0, "{sent} of 600");
}

#[test]
fn f08_scopes_that_wait_for_the_global_cap_have_their_turns_in_order() {
    let mut settings = pace(1, 0.0, 0.0);
    settings.concurrent_requests = 3;
    let mut world = World::new(settings);
    let lanes: Vec<_> = (0..20)
        .map(|i| world.lane(&[&format!("h{i}.test")]))
        .collect();
    for lane in &lanes {
        world.queue(*lane, 1000, page(0.01));
    }
    world.run(at(10.0));
    let counts: Vec<usize> = lanes.iter().map(|lane| world.sent(*lane).len()).collect();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(most.copied() <= least.map(|least| least + 1), "{counts:?}");
}

#[test]
fn f08_ten_thousand_slow_scopes_cost_a_fast_one_nothing() {
    let mut settings = pace(1, 60.0, 0.0);
    let fast = ScopePatch {
        delay: Some(secs(0.005)),
        concurrency: Some(8),
        ..ScopePatch::default()
    };
    settings.scopes.insert("fast.test".to_owned(), fast);
    let mut world = World::new(settings);
    for i in 0..10_000 {
        let lane = world.lane(&[&format!("h{i}.test")]);
        world.queue(lane, 2, page(0.01));
    }
    let fast = world.lane(&["fast.test"]);
    world.queue(fast, 4000, page(0.01));
    world.run(at(10.0));
    assert!(world.sent(fast).len() >= 1960, "{}", world.sent(fast).len());
}

#[test]
fn f09_gaps_are_drawn_evenly_between_the_factors() {
    for jitter in [
        Jitter::default(),
        Jitter::symmetric(0.2),
        Jitter {
            low: -0.1,
            high: 0.3,
        },
        Jitter::NONE,
    ] {
        let mut world = World::new(jittered(0.1, jitter));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 1001, page(0.01));
        world.run(at(400.0));
        let mut gaps = world.gaps(lane);
        assert_eq!(gaps.len(), 1000);
        gaps.sort_by(f64::total_cmp);
        let (low, high) = (0.1 * (1.0 + jitter.low), 0.1 * (1.0 + jitter.high));
        assert!(gaps[0] >= low - 1e-6 && gaps[999] <= high + 1e-6);
        // Kolmogorov–Smirnov against the even distribution, at the 0.1 % level.
        if high > low {
            let distance = gaps.iter().enumerate().fold(0f64, |worst, (i, gap)| {
                let expected = (gap - low) / (high - low);
                worst.max((expected - i as f64 / 1000.0).abs())
            });
            assert!(distance < 1.95 / 1000f64.sqrt(), "{distance}");
        }
    }
}

#[test]
fn f10_the_jittered_mean_is_the_delay() {
    let mut world = World::new(jittered(0.1, Jitter::default()));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1001, page(0.01));
    world.run(at(400.0));
    let gaps = world.gaps(lane);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((0.098..0.102).contains(&mean), "{mean}");
}

#[test]
fn f10_the_defaults_of_delay_and_slot_delay_have_the_delay_as_their_mean() {
    let mut settings = jittered(1.0, Jitter::default());
    settings.default.delay_per_slot = secs(1.0);
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1001, page(0.01));
    world.run(at(2000.0));
    let gaps = world.gaps(lane);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((0.98..1.02).contains(&mean), "{mean}");
}

#[test]
fn f11_nothing_bursts_after_an_idle_time() {
    let mut world = World::new(pace(4, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, page(0.01));
    world.run(at(1.0));
    world.queue(lane, 100, page(0.01));
    world.run(at(20.0));
    assert_eq!(world.sent(lane).len(), 101);
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 0.1));
}

#[test]
fn f11_a_scope_that_was_forgotten_in_between_keeps_its_gap() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let first = world.lane(&["a.test"]);
    world.queue(first, 1, page(0.01));
    world.run(at(0.5));
    world.throttle.close_lane(first, world.now);
    let second = world.lane(&["a.test"]);
    world.queue(second, 1, page(0.01));
    world.run(at(5.0));
    assert_eq!(world.sent(second).last(), Some(&at(1.0)));
}

#[test]
fn f76_a_scope_that_nobody_uses_is_forgotten_once_its_gap_is_over() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, page(0.01));
    world.run(at(0.5));
    world.throttle.close_lane(lane, world.now);
    assert_eq!(world.throttle.scopes_len(), 1);
    world.run(at(0.9));
    assert_eq!(world.throttle.scopes_len(), 1);
    world.run(at(1.1));
    assert_eq!(world.throttle.scopes_len(), 0);
}

#[test]
fn f12_what_a_scope_does_not_say_comes_from_the_globals() {
    let mut settings = pace(3, 1.0, 0.0);
    let patch = ScopePatch {
        delay: Some(Duration::ZERO),
        ..ScopePatch::default()
    };
    settings.scopes.insert("a.test".to_owned(), patch);
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 30, page(0.1));
    world.run(at(10.0));
    assert_eq!(world.peak("a.test"), 3);
}

#[test]
fn f13_the_example_scope_has_sixteen_places_and_no_delay() {
    let mut world = World::new(Settings::default());
    let lane = world.lane(&["quotes.toscrape.com"]);
    let other = world.lane(&["other.test"]);
    world.queue(lane, 100, page(0.1));
    world.queue(other, 3, page(0.1));
    world.run(at(4.0));
    assert_eq!(world.peak("quotes.toscrape.com"), 16);
    assert_eq!(world.sent(lane).len(), 100);
    assert_eq!(world.peak("other.test"), 1);
}

#[test]
fn f16_a_request_waits_for_the_slower_of_its_scopes() {
    let mut settings = pace(8, 0.0, 0.0);
    let slow = ScopePatch {
        delay: Some(secs(0.5)),
        ..ScopePatch::default()
    };
    settings.scopes.insert("users".to_owned(), slow);
    let mut world = World::new(settings);
    let both = world.lane(&["api", "users"]);
    let one = world.lane(&["api"]);
    world.queue(both, 10, page(0.01));
    world.queue(one, 100, page(0.01));
    world.run(at(10.0));
    assert!(
        world
            .gaps(both)
            .iter()
            .all(|gap| (0.5..0.501).contains(gap))
    );
    assert_eq!(world.sent(one).len(), 100);
}

#[test]
fn f18_without_scopes_only_the_global_cap_holds() {
    let mut settings = pace(1, 1.0, 1.0);
    settings.concurrent_requests = 5;
    let mut world = World::new(settings);
    let lane = world.lane(&[]);
    world.queue(lane, 100, page(0.1));
    world.run(at(3.0));
    assert_eq!(world.sent(lane).len(), 100);
    assert_eq!(world.total.1, 5);
}

#[test]
fn f21_places_in_several_scopes_are_taken_together_and_none_leaks() {
    let mut settings = pace(3, 0.001, 0.0);
    settings.concurrent_requests = 20;
    let mut world = World::new(settings);
    let mut rng = crate::base::rng::Rng::from_seed(11);
    let mut lanes = Vec::new();
    for _ in 0..100 {
        let count = 2 + rng.below(4);
        let names: Vec<String> = (0..count).map(|_| format!("s{}", rng.below(12))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        lanes.push(world.lane(&names));
    }
    for lane in &lanes {
        for _ in 0..100 {
            let random = Page {
                setup: secs(rng.range_f64(0.0, 0.01)),
                takes: secs(rng.range_f64(0.0, 0.02)),
                status: 200,
                fails_setup: rng.chance(0.1),
            };
            world.queue(*lane, 1, random);
        }
    }
    world.run(at(600.0));
    let sent: usize = lanes.iter().map(|lane| world.sent(*lane).len()).sum();
    assert_eq!(sent, 10_000);
    assert_eq!(world.throttle.in_flight(), 0);
    for (name, (now, peak)) in &world.in_flight {
        assert_eq!(*now, 0, "{name}");
        assert!(*peak <= 3, "{name}");
    }
}

#[test]
fn f28_a_request_of_many_busy_scopes_is_sent_within_a_few_fair_shares() {
    let mut world = World::new(pace(1, 0.0, 0.0));
    for name in ["a", "b", "c"] {
        for _ in 0..3 {
            let lane = world.lane(&[name]);
            // Lanes of the same scopes are one lane to the frontier; here they stand for a crowd.
            world.queue(
                lane,
                1000,
                page(0.1 + 0.013 * f64::from(name.as_bytes()[0] - 96)),
            );
        }
    }
    let many = world.lane(&["a", "b", "c"]);
    world.queue(many, 10, page(0.1));
    world.run(at(60.0));
    assert_eq!(world.sent(many).len(), 10, "in {:?}", world.gaps(many));
}

#[test]
fn f29_an_address_caps_all_names_on_it() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.concurrent_requests_per_ip = 2;
    let mut world = World::new(settings);
    let address = "127.0.0.9".parse().expect("an address");
    for i in 0..10 {
        let host = world.throttle.scope(&format!("h{i}.test"));
        let ip = world.throttle.address_scope(address).expect("it is on");
        let lane = world.throttle.open_lane(&ScopeSet::ordered([host, ip]));
        world.queue(lane, 10, page(0.05));
    }
    world.run(at(10.0));
    assert_eq!(world.peak("ip/127.0.0.9"), 2);
}

#[test]
fn f51_a_crawl_delay_is_never_undercut_and_counts_from_the_last_request() {
    let mut world = World::new(jittered(1.0, Jitter::default()));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, page(0.05));
    world.run(at(0.1));
    let delayed = world.throttle.crawl_delay_scope("a.test", secs(3.0));
    world.throttle.follow_lane(delayed, lane);
    world.throttle.add_scope(lane, delayed);
    world.queue(lane, 50, page(0.05));
    world.run(at(300.0));
    assert_eq!(world.sent(lane).len(), 51);
    assert!(
        world
            .gaps(lane)
            .iter()
            .all(|gap| (3.0..3.001).contains(gap))
    );
}

#[test]
fn a_scopes_own_delay_overrules_a_longer_crawl_delay_and_says_so_unless_silenced() {
    let mut settings = pace(1, 1.0, 0.0);
    for (name, delay, silent) in [("own.test", 0.1, None), ("quiet.test", 0.1, Some(true))] {
        let patch = ScopePatch {
            delay: Some(secs(delay)),
            ignore_robots_txt: silent,
            ..ScopePatch::default()
        };
        settings.scopes.insert(name.to_owned(), patch);
    }
    let throttle = Throttle::new(settings, 1, Instant::START);
    let told = |scope: &str, asked| throttle.overrules_crawl_delay(scope, secs(asked));
    assert_eq!(told("own.test", 1.0), Some(secs(0.1)));
    assert_eq!(told("own.test", 0.1), None, "nothing is taken away");
    assert_eq!(told("quiet.test", 1.0), None);
    assert_eq!(told("other.test", 1.0), None);
    assert!(!throttle.heeds_crawl_delay("own.test"));
    assert!(throttle.heeds_crawl_delay("other.test"));
}

#[test]
fn a_hold_lets_nothing_go_before_its_end() {
    let mut world = World::new(pace(4, 0.1, 0.0));
    let scope = world.throttle.scope("a.test");
    let lane = world.lane(&["a.test"]);
    world.throttle.hold(scope, at(20.0), world.now);
    world.throttle.hold(scope, at(10.0), world.now);
    world.queue(lane, 3, page(0.05));
    world.run(at(60.0));
    assert_eq!(world.sent(lane), [at(20.0), at(20.1), at(20.2)]);
}

fn auto(target_concurrency: f64, concurrency: u32, floor: f64) -> Settings {
    let mut settings = pace(concurrency, floor, 0.0);
    settings.default.autothrottle = Some(AutoThrottle {
        start_delay: secs(0.5),
        target_concurrency,
        ..AutoThrottle::default()
    });
    settings
}

#[test]
fn f82_without_the_flag_latency_changes_nothing() {
    let mut world = World::new(pace(1, 0.2, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 50, page(0.001));
    world.run(at(60.0));
    assert!(
        world
            .gaps(lane)
            .iter()
            .all(|gap| (0.2..0.2001).contains(gap))
    );
}

#[test]
fn f83_the_first_request_goes_at_once_and_the_second_after_the_start_delay() {
    let mut settings = auto(1.0, 8, 0.0);
    settings.default.autothrottle = Some(AutoThrottle::default());
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    // No answer arrives before the second is due: the start delay is what holds.
    world.queue(lane, 2, page(30.0));
    world.run(at(60.0));
    assert_eq!(world.sent(lane), [at(0.0), at(5.0)]);
}

#[test]
fn f84_the_rate_settles_at_target_concurrency_over_latency() {
    for (target, rate) in [(1.0, 10.0), (2.0, 20.0), (4.0, 40.0), (0.5, 5.0)] {
        let mut world = World::new(auto(target, 8, 0.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 10_000, page(0.1));
        world.run(at(20.0));
        let before = world.sent(lane).len();
        world.run(at(60.0));
        let settled = (world.sent(lane).len() - before) as f64 / 40.0;
        assert!((settled / rate - 1.0).abs() < 0.02, "{settled} of {rate}");
    }
}

#[test]
fn f86_fast_errors_do_not_speed_up_and_slow_ones_slow_down() {
    let mut settings = auto(1.0, 8, 0.0);
    let auto = settings.default.autothrottle.as_mut();
    auto.expect("it is on").mode = AutoThrottleMode::Scrapy;
    settings.default.backoff.enabled = false;
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    let scope = world.throttle.scope("a.test");
    let error = Page {
        status: 503,
        ..page(0.001)
    };
    world.queue(lane, 20, error);
    world.run(at(30.0));
    assert_eq!(world.throttle.pace(scope).delay, secs(0.5));
    world.queue(
        lane,
        1,
        Page {
            status: 503,
            ..page(2.0)
        },
    );
    world.run(at(60.0));
    assert_eq!(world.throttle.pace(scope).delay, secs(2.0));
}

#[test]
fn f88_a_target_over_the_cap_is_held_by_the_cap() {
    let mut world = World::new(auto(16.0, 8, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 5000, page(0.1));
    world.run(at(60.0));
    assert_eq!(world.peak("a.test"), 8);
}

#[test]
fn f91_a_scopes_own_delay_is_the_floor_of_autothrottle() {
    let mut settings = auto(1.0, 8, 0.0);
    let patch = ScopePatch {
        delay: Some(secs(1.0)),
        ..ScopePatch::default()
    };
    settings.scopes.insert("a.test".to_owned(), patch);
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 60, page(0.001));
    world.run(at(120.0));
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 1.0));
}

#[test]
fn f93_autothrottle_keeps_under_the_caps_of_host_and_address() {
    let mut settings = auto(8.0, 2, 0.0);
    settings.concurrent_requests_per_ip = 3;
    let mut world = World::new(settings);
    let address = "127.0.0.9".parse().expect("an address");
    for i in 0..4 {
        let host = world.throttle.scope(&format!("h{i}.test"));
        let ip = world.throttle.address_scope(address).expect("it is on");
        let lane = world.throttle.open_lane(&ScopeSet::ordered([host, ip]));
        world.queue(lane, 200, page(0.1));
    }
    world.run(at(30.0));
    assert_eq!(world.peak("ip/127.0.0.9"), 3);
    assert!((0..4).all(|i| world.peak(&format!("h{i}.test")) <= 2));
}

#[test]
fn f80_nothing_wakes_while_all_scopes_wait() {
    let mut world = World::new(pace(1, 60.0, 0.0));
    for i in 0..20 {
        let lane = world.lane(&[&format!("h{i}.test")]);
        world.queue(lane, 3, page(0.01));
    }
    world.run(at(1.0));
    let turns = world.run(at(59.0));
    // The wheel may wake a few times to move its entries down, not per scope and second.
    assert!(turns <= 16, "{turns}");
}

#[test]
fn f109_many_lanes_offered_in_one_moment_keep_the_gap() {
    let mut world = World::new(pace(8, 0.05, 0.0));
    let lanes: Vec<_> = (0..1000).map(|_| world.lane(&["a.test"])).collect();
    for lane in &lanes {
        world
            .queued
            .entry(lane.0)
            .or_default()
            .push_back(page(0.01));
        world.later(at(1.0), Happens::Offered(lane.0));
    }
    world.run(at(100.0));
    let mut all: Vec<Instant> = lanes
        .iter()
        .flat_map(|lane| world.sent(*lane).to_vec())
        .collect();
    all.sort_unstable();
    assert_eq!(all.len(), 1000);
    assert!(gaps(&all).iter().all(|gap| *gap >= 0.05));
}

#[test]
fn a_request_that_may_depart_does_so_before_another_is_released() {
    let now = Instant::START;
    let mut throttle = Throttle::new(pace(8, 0.0, 0.0), 1, now);
    for name in ["a.test", "b.test", "c.test"] {
        let scope = throttle.scope(name);
        let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
        throttle.offer(lane, now);
    }
    for _ in 0..3 {
        let Some(Grant::Release(_, ticket)) = throttle.poll(now) else {
            panic!("each lane may go");
        };
        throttle.ready(ticket, None, now);
        assert_eq!(throttle.poll(now), Some(Grant::Depart(ticket)));
    }
    assert_eq!(throttle.poll(now), None);
}
