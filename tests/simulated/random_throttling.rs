//! Random webs whose servers have limits, crawled under random throttling.

use std::collections::BTreeSet;
use std::time::Duration;

use argiope::base::rng::Rng;
use serde_json::{Map, Value, json};

use super::many_seeds::{check_sent, each_seed};
use super::policy::Limit;
use super::random::{Case, NAMES, case, pick};
use super::web::{Reply, Site, Step};

/// How many there are; a few seconds for all.
const SEEDS: u64 = 280;

/// A random web and crawl, and beyond that what servers refuse and how the crawl is throttled.
pub fn throttled(seed: u64) -> Case {
    let mut case = case(seed);
    let mut rng = Rng::from_seed(seed).fork("throttling");
    // The crawl lasts long enough for a robots.txt that could not be had to be asked for again.
    case.web.promise.attempts = 1000;
    for site in case.web.sites.values_mut() {
        refuse(&mut rng, site);
    }
    let settings = &mut case.plan.settings;
    backoff(&mut rng, settings, &mut case.web.promise.hold_max);
    autothrottle(&mut rng, settings);
    let hosts_are_scopes = scope_map(&mut rng, &mut case);
    if hosts_are_scopes {
        scopes(&mut rng, &mut case);
    }
    case
}

/// Limits, and Retry-After.
fn refuse(rng: &mut Rng, site: &mut Site) {
    if rng.chance(0.5) {
        let rate = pick(rng, &[0.2, 0.5, 2.0, 10.0]);
        let mut limit = match rng.chance(0.7) {
            true => Limit::bucket(rate, pick(rng, &[1.0, 3.0])),
            false => Limit::window(2, Duration::from_secs_f64(2.0 / rate)),
        };
        limit.refusal = refusal(rng);
        site.limit = Some(limit);
    }
    for step in site.paths.values_mut().flatten() {
        let refuses = matches!(step.reply, Reply::Status(429 | 503));
        if refuses && rng.chance(0.5) {
            let wait = 1 + rng.below(40);
            step.headers.push(format!("Retry-After: {wait}"));
        }
    }
}

fn refusal(rng: &mut Rng) -> Step {
    let step = Step::status(pick(rng, &[429, 503])).after_ms(rng.below(30));
    let wait = 1 + rng.below(20);
    match rng.below(3) {
        0 => step.with(format!("Retry-After: {wait}")),
        1 => step.with(format!("RateLimit-Reset: {wait}")),
        _ => step,
    }
}

type Settings = Vec<(&'static str, Value)>;

fn backoff(rng: &mut Rng, settings: &mut Settings, hold_max: &mut Duration) {
    let cap = pick(rng, &[5, 30, 300]);
    let fully = rng.chance(0.2);
    let enabled = rng.chance(0.9);
    settings.extend([
        ("BACKOFF_ENABLED", json!(enabled)),
        ("BACKOFF_WINDOW", json!(pick(rng, &[1, 5, 60]))),
        ("BACKOFF_MIN_DELAY", json!(pick(rng, &[0.1, 1.0]))),
        ("BACKOFF_MAX_DELAY", json!(cap)),
        ("BACKOFF_DELAY_FACTOR", json!(pick(rng, &[1.5, 2.0, 10.0]))),
        ("RETRY_AFTER_OBEY", json!(fully)),
    ]);
    *hold_max = match (enabled, fully) {
        (false, _) => Duration::ZERO,
        (true, true) => Duration::MAX / 4,
        (true, false) => Duration::from_secs(cap),
    };
}

fn autothrottle(rng: &mut Rng, settings: &mut Settings) {
    settings.extend([
        ("AUTOTHROTTLE_MODE", json!(pick(rng, &["robust", "scrapy"]))),
        (
            "AUTOTHROTTLE_START_DELAY",
            json!(pick(rng, &[0.1, 1.0, 5.0])),
        ),
        (
            "AUTOTHROTTLE_TARGET_CONCURRENCY",
            json!(pick(rng, &[0.5, 1.0, 4.0])),
        ),
        ("LATENCY_FROM", json!(pick(rng, &["send", "connect"]))),
    ]);
}

/// Whether each host is a scope by itself.
fn scope_map(rng: &mut Rng, case: &mut Case) -> bool {
    let maps: [&[&str]; 6] = [
        &["host"],
        &["domain"],
        &["hierarchy"],
        &["host", "ip"],
        &["host", "domain"],
        &["domain", "host", "ip"],
    ];
    if rng.chance(0.15) {
        case.plan.preset = Some("broad");
        // A host that is a domain by itself is paced as one, and addresses have bounds of their own.
        let promise = &mut case.web.promise;
        promise.gap_min = promise.gap_min.min(Duration::from_millis(125));
        promise.per_host = promise.per_host.max(4);
        promise.per_address = promise.per_address.max(16);
        return true;
    }
    let map = pick(rng, &maps);
    case.plan.settings.push(("SCOPE_MAP", json!(map)));
    map.contains(&"host")
}

/// A quota for each host, or rampup.
fn scopes(rng: &mut Rng, case: &mut Case) {
    let mut own = Map::new();
    let promise = &mut case.web.promise;
    let entry = match rng.below(5) {
        0 => {
            let units = 1 + rng.below(5) as usize;
            let window = pick(rng, &[2, 10]);
            let sliding = rng.chance(0.5);
            // A window may be used up at its end, and the next at its beginning.
            let most = if sliding { units } else { 2 * units };
            promise.quota = Some((most, Duration::from_secs(window)));
            let kind = if sliding { "sliding" } else { "fixed" };
            json!({"quota": units, "window": window, "window_kind": kind})
        }
        1 => {
            // Where to begin; from there it goes as far as the servers bear.
            promise.gap_min = Duration::ZERO;
            promise.per_host = usize::MAX;
            json!({"rampup": true})
        }
        2 => {
            let minute = pick(rng, &[20, 60]);
            promise.quota = Some((minute, Duration::from_secs(60)));
            json!({"requests_per_minute": minute})
        }
        3 => {
            let second = 1 + rng.below(59);
            promise.held_for = Duration::from_secs(second);
            // The simulated clock begins with the year.
            json!({"hold_until": format!("2026-01-01T01:00:{second:02}+01:00")})
        }
        _ => return,
    };
    for name in NAMES {
        own.insert(name.to_owned(), entry.clone());
    }
    let own = ("THROTTLING_SCOPES", Value::Object(own));
    case.plan.settings.push(own);
}

#[test]
fn random_webs_with_random_throttling_are_crawled_completely_and_politely() {
    each_seed(SEEDS, |seed| {
        let case = throttled(seed);
        let web = case.web.shared();
        let run = case.plan.run(&web);
        run.check_lines();
        let lines = run.lines();
        check_sent(seed, &lines, &web.borrow().arrivals.len());
        let pages = lines.iter().filter(|line| line.is_page());
        let found: BTreeSet<String> = pages.map(|line| line.url().to_owned()).collect();
        // What was refused over and over leads nowhere: not all need be found, but every seed.
        let uncalled: Vec<_> = found.difference(&case.expected).collect();
        assert!(
            uncalled.is_empty(),
            "seed {seed}: {uncalled:?} were nowhere"
        );
        for url in &case.plan.seeds {
            assert!(found.contains(url), "seed {seed}: {url} was lost");
        }
        let left = run.crawler.progress();
        let busy = left.queued + left.in_flight + left.buffered + left.scopes_waiting;
        assert_eq!(busy, 0, "seed {seed}: {left:?}");
    });
}
