//! Servers whose latency misleads: caches, blocks, batches, slow bodies.

use std::sync::Arc;
use std::time::Duration;

use argiope::base::time::Instant;
use argiope::crawl::Parts;
use argiope::sink::files::{FileSink, FileSinkOptions};
use argiope::throttle::signal::{Answer, BodySignal, ByStatus, Classify};
use serde_json::Value;

use super::crawl::{Plan, RUNS};
use super::policy::{Mood, always, batches, cached, page_of, soft_block, turns};
use super::web::{Arrival, PoliteWeb, Reply, Step, address};

const SITE: &str = "one.test";
const PAGE: Duration = Duration::from_millis(50);

/// Crawls a server in this mood for so long, at one in flight by AutoThrottle, or by these
/// settings.
fn crawl(mood: Mood, seconds: u64, settings: &[(&'static str, serde_json::Value)]) -> PoliteWeb {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(2);
    web.site(SITE, address(1)).mood(mood);
    let mut plan = Plan::new(&[])
        .set("AUTOTHROTTLE_ENABLED", true)
        .set("AUTOTHROTTLE_START_DELAY", 0.5)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8)
        .set("DOWNLOAD_DELAY", 0)
        .set("DOWNLOAD_TIMEOUT", 10)
        .set("ROBOTSTXT_OBEY", false);
    plan.settings.extend_from_slice(settings);
    plan.seeds = (0..15_000).map(|n| format!("http://{SITE}/{n}")).collect();
    let web = web.shared();
    let mut run = plan.begin(&web);
    assert_eq!(run.until(Duration::from_secs(seconds)), None);
    run.check_manners();
    web.take()
}

fn visits(web: &PoliteWeb) -> Vec<&Arrival> {
    web.visits(SITE).collect()
}

fn peak(web: &PoliteWeb) -> usize {
    web.hosts[SITE].peak
}

/// Arrivals from a second on.
fn since(web: &PoliteWeb, second: u64) -> usize {
    let from = Instant::START + Duration::from_secs(second);
    web.visits(SITE).filter(|visit| visit.at >= from).count()
}

/// Arrivals in the minute behind so many.
fn in_the_minute_after(web: &PoliteWeb, count: usize) -> usize {
    let visits = visits(web);
    let end = visits[count].at + Duration::from_secs(60);
    visits[count..].iter().filter(|a| a.at < end).count()
}

#[test]
fn f94_fast_errors_never_make_the_crawl_faster() {
    let errors = || turns(100, page_of("/").after(PAGE), Step::status(503).after_ms(0));
    let web = crawl(errors(), 180, &[]);
    let after = in_the_minute_after(&web, 100);
    assert!(after <= 30, "{after} requests in a minute of errors");
    let web = crawl(errors(), 180, &[("AUTOTHROTTLE_ENABLED", false.into())]);
    let after = in_the_minute_after(&web, 100);
    assert!(after <= 40, "{after} requests in a minute of errors");
}

#[test]
fn f95_cache_hits_do_not_raise_the_rate() {
    let web = crawl(cached(Duration::from_millis(300)), 300, &[]);
    // As if every one of them were the origin's.
    let rate = since(&web, 60) as f64 / 240.0;
    assert!((2.8..3.6).contains(&rate), "{rate} a second");
}

#[test]
fn f95_cache_hits_without_headers_do_not_raise_the_rate() {
    let quiet: Mood = {
        let lines = cached(Duration::from_millis(300));
        std::sync::Arc::new(move |visit| {
            let mut step = lines(visit)?;
            step.headers.clear();
            Some(step)
        })
    };
    let web = crawl(quiet, 300, &[]);
    let rate = since(&web, 60) as f64 / 240.0;
    assert!(rate < 3.6, "{rate} a second");
}

#[test]
fn f96_a_soft_block_is_detected_within_ten_replies() {
    let web = crawl(soft_block(100, PAGE), 180, &[]);
    let after = in_the_minute_after(&web, 100);
    assert!(after <= 10 + 12, "{after} requests in a minute of blocks");
    let last = since(&web, 120);
    assert!(last <= 6, "{last} requests in the last minute");
}

/// Crawls a server in this mood by AutoThrottle for so long, with a reader of answers; gives what was
/// suspected of it.
fn suspicions(
    mood: Mood,
    seconds: u64,
    classify: impl Classify + 'static,
) -> (PoliteWeb, Vec<Value>) {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(2);
    web.site(SITE, address(1)).mood(mood);
    let mut plan = Plan::new(&[])
        .set("AUTOTHROTTLE_ENABLED", true)
        .set("AUTOTHROTTLE_START_DELAY", 0.5)
        .set("AUTOTHROTTLE_DEBUG", true)
        .set("DOWNLOAD_DELAY", 0)
        .set("ROBOTSTXT_OBEY", false);
    plan.seeds = (0..15_000).map(|n| format!("http://{SITE}/{n}")).collect();
    let mut options = FileSinkOptions::new("out");
    options.decisions = true;
    let mut parts = Parts::new(FileSink::new(options));
    parts.classify = Some(Box::new(classify));
    let mut run = plan.begin_with(&web.shared(), parts);
    assert_eq!(run.until(Duration::from_secs(seconds)), None);
    run.check_manners();
    let mut suspicions = run.decisions();
    suspicions.retain(|line| line["event"] == "suspect");
    let web = run.web.take();
    (web, suspicions)
}

#[test]
fn f96_varying_challenges_are_detected_by_their_marks() {
    let mood: Mood = Arc::new(|visit| {
        if visit.before < 100 {
            return Some(page_of(visit.path).after(PAGE));
        }
        // No two are the same page, so that nothing but the mark tells.
        let asks = format!(
            "<title>{0}</title><div class=\"g-recaptcha\">{0}</div>",
            visit.path
        );
        Some(Step::new(Reply::Html(asks)).after(Duration::from_micros(300)))
    });
    let (web, suspicions) = suspicions(mood, 180, ByStatus);
    let after = in_the_minute_after(&web, 100);
    assert!(
        after <= 10 + 12,
        "{after} requests in a minute of challenges"
    );
    let reasons = |source| {
        let lines = suspicions
            .iter()
            .filter(move |line| line["source"] == source);
        lines
            .map(|line| line["reason"].as_str().expect("a reason"))
            .collect::<Vec<_>>()
    };
    let by_backoff = reasons("backoff");
    assert_eq!(by_backoff.len(), 1, "{suspicions:?}");
    assert!(by_backoff[0].contains("g-recaptcha"), "{by_backoff:?}");
    // Until then AutoThrottle takes such quick replies for a cache's.
    let by_autothrottle = reasons("autothrottle");
    assert_eq!(by_autothrottle.len(), suspicions.len() - 1);
    for reason in by_autothrottle {
        assert!(reason.contains("taken for a cache hit"), "{reason}");
    }
}

/// Counts the items of a page.
struct Items;

impl Classify for Items {
    fn classify_body(&self, _answer: &Answer<'_>, body: &[u8]) -> BodySignal {
        let items = body.windows(4).filter(|words| *words == b"<li>");
        BodySignal::nothing().items(items.count() as u32)
    }
}

#[test]
fn f97_a_block_is_detected_by_missing_items() {
    let mood: Mood = Arc::new(|visit| {
        let items = if visit.before < 100 { "<li>" } else { "<b>" };
        let page = format!("<title>{0}</title>{items}{0}", visit.path).repeat(50);
        Some(Step::new(Reply::Html(page)).after(Duration::from_millis(20)))
    });
    let (_, lines) = suspicions(Arc::clone(&mood), 120, Items);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["scope"], SITE);
    let reason = lines[0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("no items any more"), "{reason}");
    let (_, lines) = suspicions(mood, 120, ByStatus);
    assert_eq!(lines, [] as [Value; 0], "no items were counted");
}

/// Reads pages that ask for patience under a 200.
struct Patience;

impl Classify for Patience {
    fn classify_body(&self, _answer: &Answer<'_>, body: &[u8]) -> BodySignal {
        match body.windows(9).any(|words| words == b"slow down") {
            true => BodySignal::nothing().status(429),
            false => BodySignal::nothing(),
        }
    }
}

/// How often a scope backed off from a server whose pages 20 to 39 ask for patience.
fn backoffs(classify: impl Classify + 'static) -> usize {
    let mood: Mood = Arc::new(|visit| {
        let words = match visit.before {
            20..40 => "slow down",
            _ => "a page",
        };
        let page = format!("{words} {}", visit.path);
        Some(Step::new(Reply::Html(page)).after(Duration::from_millis(20)))
    });
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.site(SITE, address(1)).mood(mood);
    let mut plan = Plan::new(&[])
        .set("AUTOTHROTTLE_DEBUG", true)
        .set("DOWNLOAD_DELAY", 0.1)
        // The web knows of no reason to ask again for a page under a 200.
        .set("RETRY_TIMES", 0)
        .set("ROBOTSTXT_OBEY", false);
    plan.seeds = (0..60).map(|n| format!("http://{SITE}/{n}")).collect();
    let mut options = FileSinkOptions::new("out");
    options.decisions = true;
    let mut parts = Parts::new(FileSink::new(options));
    parts.classify = Some(Box::new(classify));
    let mut run = plan.begin_with(&web.shared(), parts);
    // For the audit of its files.
    run.crawler.log_runs(RUNS, 0);
    run.finish();
    run.check_manners();
    let decisions = run.decisions();
    decisions
        .iter()
        .filter(|line| line["event"] == "backoff")
        .count()
}

#[test]
fn a_classifier_can_read_a_refusal_from_a_200_body() {
    assert!(backoffs(Patience) > 0);
    assert_eq!(backoffs(ByStatus), 0, "no bodies were read");
}

#[test]
fn f99_batches_of_quick_and_slow_pages_do_not_make_the_rate_oscillate() {
    let thinks = [Duration::from_millis(30), Duration::from_millis(800)];
    let settings = [("RANDOMIZE_DOWNLOAD_DELAY", false.into())];
    let web = crawl(batches(20, thinks), 600, &settings);
    assert!(peak(&web) <= 2, "{} in flight", peak(&web));
    let moments: Vec<Instant> = visits(&web).iter().map(|visit| visit.at).collect();
    let late = &moments[moments.len() / 3..];
    let gaps: Vec<f64> = late
        .windows(2)
        .map(|pair| pair[1].saturating_since(pair[0]).as_secs_f64())
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    let cv = spread.sqrt() / mean;
    assert!(cv < 0.2 && (0.35..0.5).contains(&mean), "{cv} of {mean} s");
}

#[test]
fn a_slow_body_after_a_quick_head_counts_as_in_flight() {
    let slow = always(page_of("/").after_ms(1).body_after(Duration::from_secs(2)));
    let web = crawl(slow, 300, &[]);
    assert!(peak(&web) <= 2, "{} in flight", peak(&web));
    let rate = since(&web, 60) as f64 / 240.0;
    assert!((0.4..0.6).contains(&rate), "{rate} a second");
}

#[test]
fn a_server_that_is_always_slow_has_the_target_in_flight() {
    for (target, most, least) in [(1, 2, 0.17), (4, 5, 0.7)] {
        let settings = [("AUTOTHROTTLE_TARGET_CONCURRENCY", target.into())];
        let web = crawl(always(page_of("/").after_ms(5000)), 600, &settings);
        assert!(peak(&web) <= most, "{} in flight", peak(&web));
        let rate = since(&web, 120) as f64 / 480.0;
        assert!(rate >= least, "{rate} a second");
    }
}

#[test]
fn a_server_that_hangs_has_at_most_the_target_in_flight() {
    let web = crawl(always(Step::new(Reply::Silence)), 300, &[]);
    assert!(peak(&web) <= 2, "{} in flight", peak(&web));
    assert!(visits(&web).len() <= 30, "{} requests", visits(&web).len());
}

#[test]
fn a_server_that_bans_at_any_pace_gets_few_requests() {
    for status in [403, 429] {
        let web = crawl(always(Step::status(status)), 900, &[]);
        let last = since(&web, 600);
        assert!(last <= 10, "{last} requests in five minutes of {status}");
    }
}
