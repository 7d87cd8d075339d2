//! The robust mode against a simulated server, in virtual time. All figures are measured at the
//! server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::fetch::failure::FailureKind;
use crate::throttle::settings::Backoff;
use crate::throttle::signal::{ExchangeEnd, Signal};
use crate::throttle::suspect::{self, Suspect};

/// A crawl of one server with one scope.
struct Crawl {
    settings: AutoThrottle,
    floor: Duration,
    cap: u32,
    /// Jitter to either side of the delay, as a share of it.
    jitter: f64,
    /// Blocks are detected and pace the scope as well.
    suspects: bool,
}

/// The server's behaviour for one request.
#[derive(Clone, Copy)]
struct Reply {
    status: Option<u16>,
    head: f64,
    body: f64,
    cached: Option<bool>,
    /// A block page: small, and always the same.
    block: bool,
}

/// What was observed at the server.
struct Seen {
    sent: Vec<f64>,
    /// The delay at each send.
    delays: Vec<f64>,
    /// Requests in flight at each send, itself included.
    in_flight: Vec<u32>,
}

impl Crawl {
    fn new(start_delay: f64, target_concurrency: f64) -> Self {
        Crawl {
            settings: AutoThrottle {
                start_delay: secs(start_delay),
                target_concurrency,
                ..AutoThrottle::default()
            },
            floor: Duration::ZERO,
            cap: 8,
            jitter: 0.0,
            suspects: false,
        }
    }

    fn jittered(mut self) -> Self {
        self.jitter = 0.5;
        self
    }

    /// Sends `count` requests; `server` is called with the number of each, its arrival, and the
    /// number in flight.
    fn run(&self, count: usize, mut server: impl FnMut(usize, f64, u32) -> Reply) -> Seen {
        let mut robust = Robust::new(&self.settings, self.floor);
        let cap = self.cap.min(in_flight_max(&self.settings));
        let mut suspect = Suspect::new();
        let mut rng = Rng::from_seed(7);
        let mut events: BinaryHeap<Reverse<(Instant, usize, bool)>> = BinaryHeap::new();
        let mut replies: Vec<Reply> = Vec::new();
        let (mut now, mut in_flight) = (Instant::START, 0);
        let mut factor = 1.0;
        let mut last = None;
        let mut seen = Seen {
            sent: Vec::new(),
            delays: Vec::new(),
            in_flight: Vec::new(),
        };
        while replies.len() < count {
            let delay = robust.delay().max(suspect.delay());
            let due = last.map_or(now, |last| last + delay.mul_f64(factor));
            let next = events.peek().map(|Reverse((at, ..))| *at);
            if in_flight < cap && next.is_none_or(|next| due < next) {
                now = now.max(due);
                last = Some(now);
                factor = 1.0 + rng.range_f64(-self.jitter, self.jitter);
                in_flight += 1;
                seen.sent.push(in_seconds(now));
                seen.delays.push(delay.as_secs_f64());
                seen.in_flight.push(in_flight);
                let reply = server(replies.len(), in_seconds(now), in_flight);
                let id = replies.len();
                replies.push(reply);
                events.push(Reverse((now + secs(reply.head), id, false)));
                events.push(Reverse((now + secs(reply.head + reply.body), id, true)));
                continue;
            }
            let Reverse((at, id, ended)) = events.pop().expect("something is in flight");
            now = at;
            let reply = replies[id];
            if ended {
                in_flight -= 1;
                if self.suspects {
                    let ending = ExchangeEnd {
                        size: if reply.block { 700 } else { 20_000 },
                        digest: if reply.block { 0 } else { id as u64 + 1 },
                        ..ExchangeEnd::default()
                    };
                    let signal = Signal {
                        status: reply.status,
                        ..Signal::default()
                    };
                    let kind = suspect::Reply::of(&signal, &ending, &Backoff::default());
                    suspect.ended(kind, Some(secs(reply.head)), &ending, now);
                }
                if reply.status.is_some() && suspect.kind().is_none() {
                    let body = Body {
                        latency: secs(reply.head),
                        took: secs(reply.head + reply.body),
                        success: reply.status == Some(200),
                        cached: reply.cached,
                    };
                    robust.ended(&self.settings, self.floor, &body, now);
                }
            } else if suspect.kind().is_none() {
                robust.answer(&self.settings, self.floor, &signal(reply), now);
            }
        }
        seen
    }
}

impl Seen {
    /// Requests per second, from request number `from` on.
    fn rate(&self, from: usize) -> f64 {
        let sent = &self.sent[from..];
        (sent.len() - 1) as f64 / (sent[sent.len() - 1] - sent[0])
    }

    fn peak(&self) -> u32 {
        self.in_flight.iter().copied().max().unwrap_or(0)
    }

    /// The coefficient of variation of the delay.
    fn delay_cv(&self, from: usize) -> f64 {
        let delays = &self.delays[from..];
        let count = delays.len() as f64;
        let mean = delays.iter().sum::<f64>() / count;
        let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / count;
        variance.sqrt() / mean
    }
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn in_seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

fn page(head: f64) -> Reply {
    Reply {
        status: Some(200),
        head,
        body: 0.0,
        cached: None,
        block: false,
    }
}

fn error(status: u16, head: f64) -> Reply {
    Reply {
        status: Some(status),
        ..page(head)
    }
}

fn hit(head: f64) -> Reply {
    Reply {
        cached: Some(true),
        ..page(head)
    }
}

fn timeout(after: f64) -> Reply {
    Reply {
        status: None,
        ..page(after)
    }
}

fn signal(reply: Reply) -> Signal {
    Signal {
        status: reply.status,
        failure: reply.status.is_none().then_some(FailureKind::Timeout),
        server_latency: Some(secs(reply.head)),
        latency: Some(secs(reply.head)),
        cached: reply.cached,
        ..Signal::default()
    }
}

/// The delay after consecutive `replies`.
fn after(crawl: &Crawl, replies: impl IntoIterator<Item = Reply>) -> f64 {
    let mut robust = Robust::new(&crawl.settings, crawl.floor);
    for reply in replies {
        robust.answer(&crawl.settings, crawl.floor, &signal(reply), Instant::START);
    }
    robust.delay().as_secs_f64()
}

/// The delay after consecutive bounds: each a latency (s) and by how much it may be too long.
fn after_bounds(crawl: &Crawl, known: usize, bounds: &[(f64, f64)]) -> f64 {
    let mut robust = Robust::new(&crawl.settings, crawl.floor);
    let exact = std::iter::repeat_n((0.02, 0.0), known);
    for (latency, slack) in exact.chain(bounds.iter().copied()) {
        let signal = Signal {
            slack: secs(slack),
            ..signal(page(latency))
        };
        robust.answer(&crawl.settings, crawl.floor, &signal, Instant::START);
    }
    robust.delay().as_secs_f64()
}

#[test]
fn f89_latency_intervals_of_a_busy_thread_do_not_slow_the_crawl_but_a_slow_server_does() {
    let crawl = Crawl::new(5.0, 1.0);
    // The server answers in 20 ms; each time our thread was busy for 200 ms.
    let ours = [(0.2, 0.19); 50];
    near(after_bounds(&crawl, 20, &ours), 0.02, 1e-3);
    // Now it takes half a second, or a little less.
    let slow = [(0.5, 0.01); 12];
    near(after_bounds(&crawl, 20, &slow), 0.49, 0.02);
    // With no earlier knowledge: at most 200 ms is much less than the start delay.
    near(after_bounds(&crawl, 0, &ours), 0.2, 1e-3);
}

fn near(value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value / expected - 1.0).abs() <= tolerance,
        "{value} is not {expected} ± {tolerance}"
    );
}

#[test]
fn f83_the_second_request_waits_for_the_start_delay_and_at_least_the_floor() {
    for (start, floor, expected) in [(5.0, 0.0, 5.0), (4.0, 6.0, 6.0), (7.0, 6.0, 7.0)] {
        let mut crawl = Crawl::new(start, 1.0);
        crawl.floor = secs(floor);
        let seen = crawl.run(2, |_, _, _| page(expected + 1.0));
        near(seen.sent[1], expected, 1e-6);
    }
}

#[test]
fn f83_a_single_reply_lowers_the_start_delay_by_three_quarters_at_most() {
    for (replies, expected) in [(1, 1.25), (2, 0.3125), (3, 0.1)] {
        let pages = (0..replies).map(|_| page(0.1));
        near(after(&Crawl::new(5.0, 1.0), pages), expected, 1e-6);
    }
}

#[test]
fn f84_a_constant_latency_gives_the_target_over_it() {
    for (target, rate) in [(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)] {
        let seen = Crawl::new(5.0, target).run(2000, |_, _, _| page(0.1));
        near(seen.rate(20), rate, 0.001);
        assert_eq!(f64::from(seen.peak()), target);
        let seen = Crawl::new(5.0, target)
            .jittered()
            .run(5000, |_, _, _| page(0.1));
        near(seen.rate(20), rate, 0.02);
    }
}

#[test]
fn f84_the_target_is_reached_within_seconds_of_the_start_delay() {
    for target in [1.0, 4.0] {
        let seen = Crawl::new(5.0, target).run(20, |_, _, _| page(0.1));
        near(seen.delays[6], 0.1 / target, 1e-3);
        assert!(seen.sent[6] < 7.0, "{}", seen.sent[6]);
    }
}

#[test]
fn f84_a_server_that_queues_is_used_fully_and_not_overloaded() {
    // One page at a time, 20 ms each, at any request rate.
    let mut free = 0.0_f64;
    let seen = Crawl::new(0.5, 4.0).jittered().run(3000, |_, now, _| {
        free = free.max(now) + 0.02;
        page(free - now)
    });
    assert!(seen.rate(100) > 0.95 * 50.0, "{}", seen.rate(100));
    assert!(seen.peak() <= 5);
}

#[test]
fn f85_one_outlier_costs_less_than_a_minute() {
    let crawl = Crawl::new(5.0, 1.0);
    let usual = (0..50).map(|_| page(0.1));
    near(after(&crawl, usual.clone().chain([page(30.0)])), 0.1, 1e-3);
    near(after(&crawl, usual.chain([timeout(30.0)])), 0.1, 1e-3);
    // Not even as the very first reply.
    assert!(after(&crawl, [page(30.0)]) <= 5.0);
}

#[test]
fn f85_a_lasting_rise_is_followed_within_a_few_replies() {
    let crawl = Crawl::new(5.0, 2.0);
    let replies = (0..500).map(|i| page(if i < 497 { 0.1 } else { 3.0 }));
    near(after(&crawl, replies), 1.5, 1e-3);
}

#[test]
fn f86_failures_never_lower_the_delay_and_slow_ones_raise_it() {
    let crawl = Crawl::new(2.0, 1.0);
    for status in [301, 302, 400, 404, 429, 500, 503] {
        near(
            after(&crawl, (0..100).map(|_| error(status, 0.01))),
            2.0,
            1e-6,
        );
        let after = after(&crawl, (0..5).map(|_| error(status, 9.0)));
        near(after, 9.0, 1e-3);
    }
    for status in [200, 201, 204, 206, 304] {
        assert!(after(&crawl, (0..10).map(|_| error(status, 0.01))) < 0.02);
    }
}

#[test]
fn f86_a_slow_failure_does_not_lower_the_start_delay() {
    let crawl = Crawl::new(5.0, 1.0);
    near(after(&crawl, [page(0.1), timeout(3.0)]), 1.25, 1e-6);
    let mut robust = Robust::new(&crawl.settings, crawl.floor);
    robust.answer(
        &crawl.settings,
        crawl.floor,
        &signal(page(0.1)),
        Instant::START,
    );
    let broken = Body {
        latency: secs(0.1),
        took: secs(3.0),
        success: false,
        cached: None,
    };
    robust.ended(&crawl.settings, crawl.floor, &broken, Instant::START);
    near(robust.delay().as_secs_f64(), 1.25, 1e-6);
}

#[test]
fn f86_a_failure_faster_than_its_class_does_not_lower_later_delays() {
    let crawl = Crawl::new(1.0, 1.0);
    // 723 ms on average; the failures take a little longer.
    let pages = (0..400).map(|i| page(if i % 10 == 0 { 0.03 } else { 0.8 }));
    let before = after(&crawl, pages.clone().chain([page(0.8)]));
    for status in [503, 404] {
        let failures = (0..50).map(|_| error(status, 0.74));
        let after = after(&crawl, pages.clone().chain(failures).chain([page(0.8)]));
        near(after, before, 1e-4);
    }
}

#[test]
fn f86_a_hanging_server_slows_the_crawl_to_its_timeout() {
    let seen = Crawl::new(0.5, 1.0).run(30, |_, _, _| timeout(1.0));
    near(seen.rate(10), 1.0, 0.02);
    assert!(seen.peak() <= 2);
    // Also if it was fast before.
    let seen = Crawl::new(0.5, 1.0).run(
        140,
        |i, _, _| if i < 100 { page(0.05) } else { timeout(1.0) },
    );
    near(seen.rate(110), 1.0, 0.02);
    assert!(seen.peak() <= 2);
}

#[test]
fn f86_a_server_that_hung_regains_its_pace_within_minutes() {
    for (known, quick) in [(100, 0.05), (0, 0.05), (100, 0.006), (0, 0.006)] {
        let mut back = None;
        let crawl = Crawl::new(0.5, 1.0).jittered();
        let seen = crawl.run(known + 110, |i, now, _| {
            if i < known || i >= known + 10 {
                if i >= known + 10 {
                    back.get_or_insert(now);
                }
                page(quick)
            } else {
                timeout(30.0)
            }
        });
        let back = back.expect("it came back");
        let index = seen.delays.iter().rposition(|delay| *delay > 1.1 * quick);
        let took = seen.sent[index.expect("it was slow") + 1] - back;
        assert!(took < 240.0, "{took} s after {known} pages of {quick} s");
    }
}

#[test]
fn f87_the_delay_stays_between_the_floor_and_the_ceiling() {
    let mut crawl = Crawl::new(5.0, 1.0);
    crawl.floor = secs(1.0);
    near(after(&crawl, (0..10).map(|_| page(0.01))), 1.0, 1e-6);
    near(after(&crawl, (0..10).map(|_| hit(0.01))), 1.0, 1e-6);
    crawl.settings.max_delay = secs(10.0);
    near(after(&crawl, (0..10).map(|_| page(90.0))), 10.0, 1e-6);
    // The scope's own delay takes precedence over the ceiling.
    crawl.floor = secs(20.0);
    near(after(&crawl, (0..10).map(|_| page(90.0))), 20.0, 1e-6);
}

#[test]
fn f87_a_start_delay_above_the_ceiling_applies_only_until_a_delay_is_learned() {
    let mut crawl = Crawl::new(400.0, 1.0);
    crawl.settings.max_delay = secs(60.0);
    near(after(&crawl, []), 400.0, 1e-6);
    near(after(&crawl, [page(0.01)]), 60.0, 1e-6);
    near(after(&crawl, [page(500.0)]), 60.0, 1e-6);
    near(after(&crawl, [hit(0.01)]), 60.0, 1e-6);
    // A failure never makes the pace faster, not even in this case.
    near(after(&crawl, [error(500, 0.01)]), 400.0, 1e-6);
    near(after(&crawl, [timeout(500.0)]), 400.0, 1e-6);
    // The scope's own delay takes precedence over the ceiling.
    crawl.floor = secs(90.0);
    near(after(&crawl, [page(0.01)]), 90.0, 1e-6);
}

#[test]
fn f88_half_a_request_in_flight_is_half_the_rate_and_a_target_above_the_cap_is_the_cap() {
    let seen = Crawl::new(0.5, 0.5).run(500, |_, _, _| page(0.1));
    near(seen.rate(20), 5.0, 0.001);
    assert_eq!(seen.peak(), 1);
    let seen = Crawl::new(0.5, 16.0)
        .jittered()
        .run(3000, |_, _, _| page(0.1));
    assert_eq!(seen.peak(), 8);
    near(seen.rate(20), 80.0, 0.02);
    // Would overflow a `Duration`.
    near(
        after(&Crawl::new(0.5, 1e-300), [page(0.1), page(0.1)]),
        60.0,
        1e-6,
    );
}

#[test]
fn f90_a_reply_without_latency_changes_nothing() {
    let crawl = Crawl::new(3.0, 1.0);
    let mut robust = Robust::new(&crawl.settings, crawl.floor);
    let silent = Signal {
        status: Some(200),
        ..Signal::default()
    };
    let adjusted = robust.answer(&crawl.settings, crawl.floor, &silent, Instant::START);
    assert_eq!(adjusted.target, None);
    assert_eq!((adjusted.before, adjusted.after), (secs(3.0), secs(3.0)));
}

#[test]
fn f89_the_latency_starts_at_the_point_set_by_latency_from() {
    for (from, expected) in [(LatencyFrom::Send, 0.1), (LatencyFrom::Connect, 0.4)] {
        let mut crawl = Crawl::new(0.5, 1.0);
        crawl.settings.latency_from = from;
        let mut robust = Robust::new(&crawl.settings, crawl.floor);
        let signal = Signal {
            latency: Some(secs(0.4)),
            ..signal(page(0.1))
        };
        for _ in 0..5 {
            robust.answer(&crawl.settings, crawl.floor, &signal, Instant::START);
        }
        near(robust.delay().as_secs_f64(), expected, 1e-3);
    }
}

#[test]
fn f94_fast_errors_never_make_the_crawl_faster() {
    let crawl = Crawl::new(0.5, 1.0).jittered();
    let seen = crawl.run(1000, |i, _, _| {
        if i < 100 {
            page(0.2)
        } else {
            error(503, 0.0001)
        }
    });
    near(seen.rate(20), 5.0, 0.03);
    assert!(seen.rate(100) < 1.03 * 5.0, "{}", seen.rate(100));
    assert!(seen.delays[100..].iter().all(|delay| *delay >= 0.199));
}

#[test]
fn f95_replies_marked_as_cached_do_not_set_the_rate() {
    let crawl = Crawl::new(0.5, 1.0).jittered();
    let seen = crawl.run(
        2000,
        |i, _, _| if i % 10 == 3 { page(0.3) } else { hit(0.05) },
    );
    // As if each were a miss, although only a tenth are.
    near(seen.rate(50), 1.0 / 0.3, 0.03);
    let misses = (seen.sent[1993] - seen.sent[53]).recip() * 194.0;
    assert!(misses < 0.4, "{misses}");
}

#[test]
fn f95_unmarked_cache_hits_are_detected_by_their_latency() {
    for jitter in [0.0, 0.5] {
        let mut crawl = Crawl::new(0.5, 1.0);
        crawl.jitter = jitter;
        let mut rng = Rng::from_seed(3);
        let seen = crawl.run(3000, |_, _, _| {
            page(if rng.below(10) == 0 { 0.3 } else { 0.001 })
        });
        near(seen.rate(200), 1.0 / 0.3, 0.03);
        assert!(seen.peak() <= 2);
    }
}

#[test]
fn f95_cache_hits_alone_never_lower_the_delay_below_that_of_an_unknown_origin() {
    for (target, expected) in [(1.0, 1.0), (4.0, 0.25)] {
        let crawl = Crawl::new(5.0, target).jittered();
        let seen = crawl.run(500, |_, _, _| hit(0.0005));
        near(seen.delays[499], expected, 1e-6);
    }
    // They do not raise a delay that the user chose either.
    let seen = Crawl::new(0.2, 1.0).run(500, |_, _, _| hit(0.0005));
    near(seen.delays[499], 0.2, 1e-6);
}

#[test]
fn f95_replies_that_are_all_very_fast_may_be_unmarked_cache_hits() {
    let seen = Crawl::new(0.5, 1.0).run(3000, |_, _, _| page(0.0005));
    near(seen.rate(20), 200.0, 0.01);
    // A fast server that takes more time than a cache is believed.
    let seen = Crawl::new(0.5, 1.0).run(3000, |_, _, _| page(0.006));
    near(seen.rate(20), 1.0 / 0.006, 0.01);
}

#[test]
fn f96_block_pages_stop_the_crawl_instead_of_making_it_faster() {
    let mut crawl = Crawl::new(0.5, 1.0).jittered();
    crawl.suspects = true;
    let block = Reply {
        block: true,
        ..page(0.0002)
    };
    // For an hour; the probes do no harm and detect its end.
    let (mut began, mut blocked) = (None, 0);
    let seen = crawl.run(300, |i, now, _| {
        let began = *began.get_or_insert(if i < 100 { return page(0.05) } else { now });
        if now - began > 3600.0 {
            return page(0.05);
        }
        blocked += 1;
        block
    });
    // The rate did not rise before the block was detected either.
    assert!(seen.delays[100..].iter().all(|delay| *delay >= 0.04));
    assert!(blocked < 30, "{blocked}");
    near(seen.rate(200), 20.0, 0.05);
}

#[test]
fn f99_batches_of_fast_and_slow_pages_do_not_make_the_delay_oscillate() {
    for jitter in [0.0, 0.5] {
        let mut crawl = Crawl::new(0.5, 1.0);
        crawl.jitter = jitter;
        let seen = crawl.run(2000, |i, _, _| {
            page(if i / 20 % 2 == 0 { 0.03 } else { 0.8 })
        });
        assert!(seen.delay_cv(100) < 0.15, "{}", seen.delay_cv(100));
        assert!(seen.peak() <= 2, "{}", seen.peak());
        // On average the target is in flight: 415 ms each.
        near(seen.rate(100), 1.0 / 0.415, 0.05);
    }
}

#[test]
fn f99_randomly_mixed_fast_and_slow_pages_do_not_make_the_delay_oscillate() {
    let mut rng = Rng::from_seed(5);
    let crawl = Crawl::new(0.5, 2.0).jittered();
    let seen = crawl.run(3000, |_, _, _| {
        page(if rng.below(2) == 0 { 0.03 } else { 0.8 })
    });
    assert!(seen.delay_cv(100) < 0.2, "{}", seen.delay_cv(100));
    assert!(seen.peak() <= 3, "{}", seen.peak());
    // The bound on requests in flight reduces the average a little.
    near(seen.rate(100), 2.0 / 0.415, 0.1);
}

#[test]
fn f99_a_slow_body_after_a_fast_head_counts_as_busy_time() {
    for (target, rate) in [(1.0, 0.5), (4.0, 2.0)] {
        let slow = |_, _, _| Reply {
            body: 2.0,
            ..page(0.001)
        };
        let seen = Crawl::new(0.5, target).run(300, slow);
        near(seen.rate(20), rate, 0.02);
        assert!(f64::from(seen.peak()) <= target + 1.0);
        near(seen.delays[299], 2.0 / target, 0.02);
    }
}

#[test]
fn f99_one_slow_body_has_no_effect_and_slow_ones_are_forgotten_over_time() {
    let crawl = Crawl::new(0.5, 1.0);
    let seen = crawl.run(600, |i, _, _| Reply {
        body: if i == 50 { 30.0 } else { 0.0 },
        ..page(0.1)
    });
    assert!(seen.delays[20..].iter().all(|delay| *delay < 0.101));
    let seen = crawl.run(300, |i, _, _| Reply {
        body: if i < 50 { 1.0 } else { 0.0 },
        ..page(0.1)
    });
    near(seen.delays[50], 1.1, 1e-2);
    near(seen.delays[299], 0.1, 1e-2);
}

/// A scope whose heads take 100 ms and whose bodies take `bodies` more, consecutively.
fn after_bodies(bodies: impl IntoIterator<Item = (f64, bool)>) -> Robust {
    let crawl = Crawl::new(0.5, 1.0);
    let mut robust = Robust::new(&crawl.settings, crawl.floor);
    for (extra, success) in bodies {
        robust.answer(
            &crawl.settings,
            crawl.floor,
            &signal(page(0.1)),
            Instant::START,
        );
        let body = Body {
            latency: secs(0.1),
            took: secs(0.1 + extra),
            success,
            cached: None,
        };
        robust.ended(&crawl.settings, crawl.floor, &body, Instant::START);
    }
    robust
}

#[test]
fn f86_a_body_that_breaks_off_never_lowers_the_delay() {
    let whole = (0..400).map(|i| (if i % 10 == 0 { 0.3 } else { 3.0 }, true));
    let end = [(3.0, true)];
    let delay_after = |broken: f64| {
        let broken = (0..50).map(|_| (broken, false));
        after_bodies(whole.clone().chain(broken).chain(end)).delay()
    };
    let before = after_bodies(whole.clone().chain(end)).delay();
    for broken in [0.0, 1.0, 2.76] {
        near(
            delay_after(broken).as_secs_f64(),
            before.as_secs_f64(),
            1e-4,
        );
    }
}

#[test]
fn scopes_without_slow_bodies_use_no_memory_for_them() {
    let slow = (0..50).map(|_| (1.0, true));
    assert!(after_bodies(slow.clone()).bodies.is_some());
    let quick = (0..200).map(|_| (0.0, true));
    assert!(after_bodies(quick.clone()).bodies.is_none());
    assert!(after_bodies(slow.chain(quick)).bodies.is_none());
}

#[test]
fn the_robust_state_fits_into_120_bytes() {
    assert!(size_of::<Robust>() <= 120);
}
