//! Holds by Retry-After and rate-limit headers: in refusals, redirects and good replies.

use std::sync::Arc;
use std::time::Duration;

use super::crawl::{Plan, Run};
use super::policy::{Mood, page_of};
use super::web::{PoliteWeb, Reply, Step, address};

const SITE: &str = "one.test";
const OTHER: &str = "two.test";

/// The nth page of a site, counted from 0, is answered so; all others are pages.
fn nth(at: usize, step: Step) -> Mood {
    Arc::new(move |visit| match visit.before == at {
        true => Some(step.clone()),
        false => Some(page_of(visit.path)),
    })
}

fn refusal(status: u16, header: &str) -> Step {
    Step::status(status).after_ms(10).with(header)
}

/// So many pages of a site.
fn urls(site: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |page| format!("http://{site}/{page}"))
}

/// A crawl of one site in this mood, and of a second that has none; 100 ms apart.
struct Case {
    mood: Mood,
    settings: Vec<(&'static str, serde_json::Value)>,
    pages: usize,
}

impl Case {
    fn of(mood: Mood) -> Self {
        Case {
            mood,
            settings: vec![
                ("DOWNLOAD_DELAY", 0.1.into()),
                ("RANDOMIZE_DOWNLOAD_DELAY", false.into()),
                ("ROBOTSTXT_OBEY", false.into()),
                ("BACKOFF_JITTER", 0.into()),
            ],
            pages: 8,
        }
    }

    fn set(mut self, name: &'static str, value: impl Into<serde_json::Value>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    fn run(self) -> (Run, Vec<f64>) {
        let mut web = PoliteWeb::default();
        web.promise.obeys_robots = false;
        web.round_trip = Duration::from_millis(10);
        web.site(SITE, address(1)).mood(self.mood);
        let calm = nth(usize::MAX, Step::page());
        web.site(OTHER, address(2)).mood(calm);
        let mut plan = Plan::new(&[]);
        plan.settings = self.settings;
        plan.seeds = urls(SITE, self.pages).chain(urls(OTHER, 40)).collect();
        let web = web.shared();
        let run = plan.run(&web);
        let gaps = gaps(&web.borrow(), SITE);
        let others = self::gaps(&web.borrow(), OTHER);
        assert!(
            others.iter().all(|gap| *gap < 0.12),
            "the other host had to wait: {others:?}"
        );
        (run, gaps)
    }
}

/// Seconds between the arrivals at a host.
fn gaps(web: &PoliteWeb, host: &str) -> Vec<f64> {
    let moments = web.moments(host);
    let pairs = moments.windows(2);
    pairs
        .map(|pair| pair[1].saturating_since(pair[0]).as_secs_f64())
        .collect()
}

/// The gap behind the first reply, where that is this one.
fn check(step: Step, expected: f64) {
    let (_, gaps) = Case::of(nth(0, step.clone())).run();
    assert!(
        (expected - 0.011..expected + 0.05).contains(&gaps[0]),
        "{gaps:?} after {step:?}, not {expected}"
    );
}

#[test]
fn f44_retry_after_holds_its_host_once_and_no_other() {
    for status in [429, 503] {
        let (_, gaps) = Case::of(nth(2, refusal(status, "Retry-After: 2"))).run();
        assert!((2.0..2.1).contains(&gaps[2]), "{gaps:?}");
        assert!(
            gaps[3..].iter().all(|gap| (1.0..1.1).contains(gap)),
            "{gaps:?}"
        );
    }
}

#[test]
fn f45_retry_after_accepts_a_date_and_ignores_garbage() {
    // Every simulated crawl begins with the year 2026.
    let date = |at| format!("Retry-After: Thu, 01 Jan 2026 00:00:{at} GMT");
    check(refusal(429, &date("30")), 30.0);
    for text in ["soon", "-5", "1e999", "\u{e4}", "0"] {
        check(refusal(429, &format!("Retry-After: {text}")), 1.0);
    }
    check(
        refusal(429, "Retry-After: Wed, 31 Dec 2025 23:59:59 GMT"),
        1.0,
    );
}

#[test]
fn f46_a_reset_holds_like_a_retry_after() {
    check(refusal(429, "RateLimit-Reset: 2"), 2.02);
    for text in ["-1", "nan", "inf", "x"] {
        check(refusal(429, &format!("RateLimit-Reset: {text}")), 1.0);
    }
}

#[test]
fn ratelimit_headers_of_a_good_reply_hold_only_with_nothing_remaining() {
    let reply = |left: &str| {
        let page = Step::page().after_ms(10).with("RateLimit-Limit: 10");
        page.with(format!("RateLimit-Remaining: {left}"))
            .with("RateLimit-Reset: 7")
    };
    check(reply("0"), 7.02);
    for left in ["1", "5", "9"] {
        check(reply(left), 0.1);
    }
    for left in [1, 5] {
        let list = format!("RateLimit: \"default\";r={left};t=7");
        check(Step::page().after_ms(10).with(list), 0.1);
    }
}

#[test]
fn ratelimit_headers_of_a_cached_reply_are_ignored() {
    let spent = || {
        let page = Step::page().after_ms(10).with("RateLimit-Limit: 10");
        page.with("RateLimit-Remaining: 0")
            .with("RateLimit-Reset: 7")
    };
    check(spent(), 7.02);
    check(spent().with("X-Cache: MISS"), 7.02);
    check(spent().with("X-Cache: HIT").with("Age: 30"), 0.1);
    check(spent().with("Cache-Status: edge; hit"), 0.1);
}

#[test]
fn f47_retry_after_overrides_a_reset() {
    let both = refusal(429, "RateLimit-Reset: 7").with("Retry-After: 3");
    check(both, 3.02);
}

/// Two replies to two requests that are in flight together ask for a hold each.
#[test]
fn f48_a_shorter_hold_never_shortens_a_longer_one_whatever_the_window() {
    for (first, second) in [(5, 2), (2, 5)] {
        let mood: Mood = Arc::new(move |visit| {
            let say = |seconds, think| {
                let say = format!("Retry-After: {seconds}");
                Some(refusal(429, &say).after_ms(think))
            };
            match visit.before {
                0 => say(first, 10),
                1 => say(second, 40),
                _ => Some(page_of(visit.path)),
            }
        });
        let case = Case::of(mood)
            .set("CONCURRENT_REQUESTS_PER_DOMAIN", 2)
            .set("DOWNLOAD_DELAY", 0.01)
            .set("BACKOFF_WINDOW", 1);
        let mut web = PoliteWeb::default();
        web.promise.obeys_robots = false;
        web.round_trip = Duration::from_millis(10);
        web.site(SITE, address(1)).mood(case.mood);
        let mut plan = Plan::new(&[]);
        plan.settings = case.settings;
        plan.seeds = urls(SITE, 5).collect();
        let web = web.shared();
        plan.run(&web);
        let gaps = gaps(&web.borrow(), SITE);
        assert!(gaps[0] < 0.05 && gaps[1] >= 4.95, "{gaps:?}");
        assert!(gaps[1] < 5.1, "{gaps:?}");
    }
}

/// A server that wants an hour, over and over.
#[test]
fn a_hold_that_is_capped_lets_one_request_probe_at_a_time() {
    let mood: Mood = Arc::new(|_| Some(refusal(429, "Retry-After: 3600")));
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.promise.attempts = 100;
    web.promise.hold_max = Duration::from_secs(10);
    web.round_trip = Duration::from_millis(10);
    web.site(SITE, address(1)).mood(mood);
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8)
        .set("BACKOFF_MAX_DELAY", 10)
        .set("ROBOTSTXT_OBEY", false);
    plan.seeds = urls(SITE, 40).collect();
    let web = web.shared();
    let mut run = plan.begin(&web);
    assert_eq!(run.until(Duration::from_secs(95)), None);
    run.check_manners();
    let gaps = gaps(&web.borrow(), SITE);
    let (first, probes) = gaps.split_at(7);
    assert!(first.iter().all(|gap| *gap < 0.02), "{gaps:?}");
    assert_eq!(probes.len(), 9, "{gaps:?}");
    assert!(probes.iter().all(|gap| *gap >= 10.0), "{gaps:?}");
}

#[test]
fn retry_after_obey_waits_for_the_whole_hold() {
    let case = Case::of(nth(0, refusal(429, "Retry-After: 3600")))
        .set("BACKOFF_MAX_DELAY", 10)
        .set("RETRY_AFTER_OBEY", true);
    let (_, gaps) = case.run();
    assert!((3600.0..3601.0).contains(&gaps[0]), "{gaps:?}");
}

#[test]
fn a_page_with_nothing_remaining_holds_its_host_until_the_reset() {
    let epoch = 1_767_225_600 + 3;
    let generations: [&[&str]; 8] = [
        &[
            "RateLimit-Limit: 12",
            "RateLimit-Remaining: 0",
            "RateLimit-Reset: 3",
        ],
        &[
            "RateLimit-Limit: 12, 12;w=1",
            "RateLimit-Remaining: 0",
            "RateLimit-Reset: 3",
        ],
        &["RateLimit: limit=100, remaining=0, reset=3"],
        &[
            "RateLimit: \"default\";r=0;t=3",
            "RateLimit-Policy: \"default\";q=100;w=60",
        ],
        &["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: EPOCH"],
        &["X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: EPOCH"],
        &["X-RateLimit-Remaining: 0.0", "X-RateLimit-Reset: 3"],
        &[
            "X-RateLimit-Remaining: 0",
            "X-RateLimit-Reset-After: 3.0",
            "X-RateLimit-Reset: EPOCH.0",
        ],
    ];
    for lines in generations {
        let mut step = page_of("/0").after_ms(10);
        for line in lines {
            step = step.with(line.replace("EPOCH", &epoch.to_string()));
        }
        let (_, gaps) = Case::of(nth(0, step)).run();
        assert!((2.9..3.2).contains(&gaps[0]), "{gaps:?} after {lines:?}");
        // It was no refusal: the pace is what it was.
        assert!(gaps[1..].iter().all(|gap| *gap < 0.11), "{gaps:?}");
    }
}

#[test]
fn f49_retry_after_of_a_redirect_delays_it_alone_up_to_the_cap() {
    for (asked, most, expected) in [(2, 120, 2.0), (9999, 3, 3.0)] {
        let to = Reply::Redirect(302, "/7".to_owned());
        let step = Step::new(to).with(format!("Retry-After: {asked}"));
        let mood: Mood = Arc::new(move |visit| match visit.path {
            "/0" => Some(step.clone()),
            _ => Some(page_of(visit.path)),
        });
        let mut case = Case::of(mood).set("REDIRECT_MAX_DELAY", most);
        case.pages = 7;
        let (run, gaps) = case.run();
        assert_eq!(gaps.len(), 7);
        assert!(gaps[..6].iter().all(|gap| *gap < 0.11), "{gaps:?}");
        let web = run.web.borrow();
        let moments = web.moments(SITE);
        let waited = moments[7].saturating_since(moments[0]).as_secs_f64();
        assert!((expected..expected + 0.1).contains(&waited), "{waited}");
    }
}
