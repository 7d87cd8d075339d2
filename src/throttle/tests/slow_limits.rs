//! Limits of few requests per minute, with AutoThrottle on: found and kept with any window.

use super::world::*;
use crate::base::rng::Rng;
use crate::throttle::settings::{AutoThrottle, ThrottleSettings};

/// A crawl of one origin.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The origin's token bucket: requests per second, and its size.
    rate: f64,
    burst: f64,
    /// `BACKOFF_WINDOW` in seconds.
    window: u64,
    /// `AUTOTHROTTLE_TARGET_CONCURRENCY`.
    target: f64,
    seed: u64,
}

/// Length of each crawl, and when it must be settled, in seconds.
const SECONDS: f64 = 1200.0;
const SETTLED: f64 = 120.0;

impl Case {
    /// One request in two seconds, without a burst.
    fn of(window: u64, target: f64, seed: u64) -> Self {
        Case {
            rate: 0.5,
            burst: 1.0,
            window,
            target,
            seed,
        }
    }

    fn settings(&self) -> ThrottleSettings {
        let mut settings = pace(32, 0.0, 0.0);
        settings.default.backoff.window = secs(self.window as f64);
        settings.default.autothrottle = Some(AutoThrottle {
            start_delay: secs(0.5),
            target_concurrency: self.target,
            ..AutoThrottle::default()
        });
        settings
    }

    /// Pages take about 20 ms, refusals almost nothing, and requests arrive up to a few
    /// milliseconds late.
    fn origin(&self) -> Policy {
        let mut rng = Rng::from_seed(self.seed);
        let mut bucket = bucket(self.rate, self.burst);
        let mut last = at(0.0);
        Box::new(move |now, before, page| {
            last = last.max(now + secs(0.003 * rng.range_f64(0.0, 1.0).powi(4)));
            let mut reply = bucket(last, before, page);
            reply.takes = match reply.signal.status {
                Some(429) => secs(0.0003),
                _ => secs(rng.range_f64(0.019, 0.021)),
            };
            reply
        })
    }

    fn run(&self) -> Figures {
        let mut world = World::seeded(self.settings(), self.seed);
        let lane = world.origin("a.test", self.origin());
        world.queue(lane, (SECONDS * self.rate * 4.0) as usize, page(0.02));
        world.run(at(SECONDS));
        let refused: Vec<f64> = world
            .visits("a.test")
            .iter()
            .filter(|visit| visit.status == Some(429))
            .map(|visit| seconds(visit.at))
            .filter(|at| *at >= SETTLED)
            .collect();
        let in_three = |from: f64| {
            let within = |at: &&f64| (from..from + 180.0).contains(*at);
            refused.iter().filter(within).count()
        };
        let served = world.served("a.test", at(SETTLED), at(SECONDS));
        Figures {
            used: served as f64 / ((SECONDS - SETTLED) * self.rate),
            refused_a_minute: refused.len() as f64 / ((SECONDS - SETTLED) / 60.0),
            refused_in_three: refused.iter().map(|at| in_three(*at)).max().unwrap_or(0),
        }
    }
}

/// What was observed at the origin after the crawl had to be settled.
#[derive(Debug)]
struct Figures {
    /// Served requests, as a share of the limit.
    used: f64,
    refused_a_minute: f64,
    /// Maximum number of refusals in any three minutes.
    refused_in_three: usize,
}

/// Requires at least 90 % of the limit and at most one refusal per minute, `in_three` in any three.
fn check(cases: impl IntoIterator<Item = Case>, in_three: usize) {
    let wrong: Vec<String> = cases
        .into_iter()
        .map(|case| (case, case.run()))
        .filter(|(_, seen)| {
            let often = seen.refused_a_minute > 1.0 || seen.refused_in_three > in_three;
            seen.used < 0.9 || often
        })
        .map(|(case, seen)| format!("{case:?}: {seen:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const WINDOWS: [u64; 8] = [10, 15, 20, 30, 45, 60, 90, 120];

#[test]
fn f41_a_limit_of_one_in_two_seconds_is_found_and_kept_with_any_window() {
    let targets = [1.0, 8.0];
    let cases = WINDOWS.into_iter().flat_map(|window| {
        let seeds = move |target| (1..=6).map(move |seed| Case::of(window, target, seed));
        targets.into_iter().flat_map(seeds)
    });
    check(cases, 3);
}

#[test]
fn f41_slower_and_faster_limits_are_kept_with_short_windows() {
    let rates = [0.2, 0.33, 0.7].into_iter();
    let limits = rates.flat_map(|rate| [(rate, 1.0), (rate, 5.0)]);
    let cases = limits.flat_map(|(rate, burst)| {
        [10, 20, 60].map(move |window| Case {
            rate,
            burst,
            ..Case::of(window, 1.0, window)
        })
    });
    check(cases, 5);
}
