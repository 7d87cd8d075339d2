//! Servers with a hidden limit: it is found, used, and followed when it changes.

use std::time::Duration;

use argiope::base::time::Instant;

use super::book::rounds;
use super::crawl::Plan;
use super::policy::{Limit, pages};
use super::web::{PoliteWeb, address};

const SITE: &str = "one.test";
const ROUND_TRIP: Duration = Duration::from_millis(10);
const WINDOW: f64 = 60.0;

/// A crawl of a server with a limit.
struct Case {
    limit: Limit,
    /// How long a page takes.
    think: Duration,
    settings: Vec<(&'static str, serde_json::Value)>,
    seconds: f64,
}

/// What the server saw over a span of the crawl.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Share of what the limit let pass.
    used: f64,
    /// Refusal rounds per window.
    rounds: f64,
    /// Share of the replies that were refusals.
    refused: f64,
    /// Coefficient of variation of the gap from one arrival to the next.
    cv: f64,
}

impl Case {
    fn of(limit: Limit, concurrency: u32) -> Self {
        Case {
            limit,
            think: Duration::from_millis(10),
            settings: vec![
                ("CONCURRENT_REQUESTS_PER_DOMAIN", concurrency.into()),
                ("DOWNLOAD_DELAY", 0.into()),
            ],
            seconds: 600.0,
        }
    }

    fn set(mut self, name: &'static str, value: impl Into<serde_json::Value>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// AutoThrottle on, with so many in flight as its target.
    fn automatic(self, target: u32) -> Self {
        self.set("AUTOTHROTTLE_ENABLED", true)
            .set("AUTOTHROTTLE_START_DELAY", 0.5)
            .set("AUTOTHROTTLE_TARGET_CONCURRENCY", target)
    }

    /// Crawls until its time is up.
    fn run(&self) -> PoliteWeb {
        let mut web = PoliteWeb::default();
        web.round_trip = ROUND_TRIP;
        web.site(SITE, address(1))
            .limit(self.limit.clone())
            .mood(pages(self.think));
        let mut plan = Plan::new(&[]);
        plan.settings.clone_from(&self.settings);
        let fastest = self.limit.schedule.iter().map(|(_, rate)| *rate);
        let fastest = fastest.fold(0.0, f64::max);
        let enough = (fastest * self.seconds * 1.1) as usize + 1000;
        plan.seeds = (0..enough).map(|n| format!("http://{SITE}/{n}")).collect();
        let web = web.shared();
        let mut run = plan.begin(&web);
        let over = run.until(Duration::from_secs_f64(self.seconds));
        assert_eq!(over, None, "seed {}: there was too little", run.seed);
        run.check_manners();
        web.take()
    }
}

fn figures(web: &PoliteWeb, limit: &Limit, from: f64, to: f64) -> Figures {
    let within = |at: Instant| (from..to).contains(&(at.as_nanos() as f64 / 1e9));
    let visits: Vec<_> = web.visits(SITE).filter(|a| within(a.at)).collect();
    let refused: Vec<_> = visits.iter().filter(|a| a.refused).map(|a| a.at).collect();
    let passed = visits.len() - refused.len();
    let seconds = from as u64..to as u64;
    let most: f64 = seconds
        .map(|second| limit.rate(Instant::START + Duration::from_secs(second)))
        .sum();
    let gaps = visits.windows(2);
    let gaps = gaps.map(|pair| pair[1].at.saturating_since(pair[0].at).as_secs_f64());
    let gaps: Vec<f64> = gaps.collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    Figures {
        cv: spread.sqrt() / mean,
        used: passed as f64 / most,
        rounds: rounds(refused.iter().copied(), ROUND_TRIP) as f64 / ((to - from) / WINDOW),
        refused: refused.len() as f64 / visits.len() as f64,
    }
}

/// What is used at least, and refused at most, from a second on; the peak stays under the cap.
fn check_settled(case: &Case, from: f64, cap: usize) {
    let web = case.run();
    let seen = figures(&web, &case.limit, from, case.seconds);
    let peak = web.hosts[SITE].peak;
    assert!(
        seen.used >= 0.95 && seen.rounds <= 1.0 && seen.cv < 0.1 && peak <= cap,
        "{seen:?}, {peak} at once, at {:?} under {:?}",
        case.limit.schedule,
        case.settings
    );
}

#[test]
fn f41_a_hidden_limit_is_used_fully_and_rarely_overdrawn() {
    for (rate, cap, from, seconds) in [
        (0.5, 8, 120.0, 900.0),
        (0.5, 16, 120.0, 900.0),
        (5.0, 8, 60.0, 400.0),
        (50.0, 8, 30.0, 150.0),
    ] {
        let case = Case {
            seconds,
            ..Case::of(Limit::bucket(rate, 5.0), cap)
        };
        check_settled(&case, from, cap as usize);
    }
}

#[test]
fn f41_a_hidden_limit_is_used_fully_with_autothrottle_on() {
    for (rate, cap, from, seconds) in [
        (0.5, 8, 120.0, 900.0),
        (5.0, 16, 60.0, 400.0),
        (50.0, 8, 30.0, 120.0),
    ] {
        let case = Case {
            seconds,
            ..Case::of(Limit::bucket(rate, 5.0), cap)
        };
        check_settled(&case.automatic(cap), from, cap as usize);
    }
}

#[test]
fn f41_one_request_in_two_seconds_is_kept_with_autothrottle_on_however_short_the_window() {
    for window in [10, 20, 60, 120] {
        let mut case = Case::of(Limit::bucket(0.5, 1.0), 32)
            .automatic(1)
            .set("BACKOFF_WINDOW", window);
        case.think = Duration::from_millis(20);
        case.seconds = 900.0;
        let web = case.run();
        let seen = figures(&web, &case.limit, 120.0, case.seconds);
        assert!(
            seen.used >= 0.9 && seen.rounds <= 1.0,
            "{seen:?}, window {window} s"
        );
    }
}

#[test]
fn f41_five_hundred_a_second_are_found_from_both_sides() {
    let limit = || Limit::bucket(500.0, 5.0);
    let case = Case {
        seconds: 36.0,
        ..Case::of(limit(), 16)
    };
    check_settled(&case, 25.0, 16);
    check_settled(&case.automatic(16), 25.0, 16);
}

#[test]
fn f98_instant_refusals_slow_the_crawl_down() {
    for (automatic, concurrency) in [(false, 8), (true, 8)] {
        let mut case = Case::of(Limit::bucket(5.0, 5.0), concurrency);
        case.think = Duration::from_millis(20);
        case.seconds = 300.0;
        if automatic {
            case = case.automatic(1);
        }
        let web = case.run();
        let seen = figures(&web, &case.limit, 60.0, 300.0);
        assert!(seen.used >= 0.95 && seen.refused < 0.05, "{seen:?}");
    }
}

#[test]
fn a_fixed_window_of_unknown_end_is_mostly_used() {
    let case = Case {
        seconds: 1500.0,
        ..Case::of(Limit::window(20, Duration::from_secs(10)), 8)
    };
    let web = case.run();
    let seen = figures(&web, &case.limit, 900.0, 1500.0);
    assert!(seen.used >= 0.9 && seen.refused < 0.08, "{seen:?}");
}

/// 20, 5 and 40 a second, six windows of twenty seconds each.
fn moving() -> Case {
    let limit = Limit::bucket(20.0, 5.0);
    let limit = limit
        .then(Duration::from_secs(120), 5.0)
        .then(Duration::from_secs(240), 40.0);
    let case = Case {
        seconds: 360.0,
        ..Case::of(limit, 8)
    };
    case.set("BACKOFF_WINDOW", 20)
}

/// Three windows after each change, so much of the limit is used.
fn check_follows(case: &Case, used: f64) {
    let web = case.run();
    for begun in [0.0, 120.0, 240.0] {
        let seen = figures(&web, &case.limit, begun + 60.0, begun + 120.0);
        assert!(
            seen.used >= used && seen.refused < 0.05,
            "{seen:?} from second {begun} on under {:?}",
            case.settings
        );
    }
}

#[test]
fn f41_a_limit_that_moves_is_followed() {
    check_follows(&moving(), 0.9);
    check_follows(&moving().automatic(8), 0.9);
}

#[test]
fn f59_rampup_finds_and_follows_a_limit_that_moves() {
    let case = moving().set("DOWNLOAD_DELAY", 1).set(
        "THROTTLING_SCOPES",
        serde_json::json!({ SITE: {"rampup": true} }),
    );
    check_follows(&case, 0.9);
}
