//! Reports on throttling: reported decisions and paces agree with the servers' records.

use std::time::Duration;

use argiope::frontier::request::Request;
use argiope::sink::files::{FileSink, FileSinkOptions};
use argiope::{FinishReason, Remark, RemarkKind, WaitCause};
use serde_json::{Value, json};

use super::crawl::{Plan, Run};
use super::web::{Arrival, PoliteWeb, Reply, Step, address};

/// Crawls to the end with `throttle.jsonl`; gives its lines too.
fn run_debugged(plan: &Plan, web: PoliteWeb) -> (Run, Vec<Value>) {
    let mut options = FileSinkOptions::new("out");
    options.decisions = true;
    let mut run = plan.begin_into(&web.shared(), FileSink::new(options));
    assert_eq!(run.finish(), FinishReason::Finished);
    run.check_manners();
    let lines = run.decisions();
    (run, lines)
}

/// Seconds since a crawl began: every simulated one begins with the year 2026.
fn second_of(time: &Value) -> f64 {
    let time = time.as_str().expect("a time");
    let clock = time
        .strip_prefix("2026-01-01T")
        .and_then(|t| t.strip_suffix('Z'));
    let parts = clock.expect("of the first day").split(':');
    parts.fold(0.0, |seconds, part| {
        60.0 * seconds + part.parse::<f64>().expect("a number")
    })
}

#[test]
fn f79_each_response_has_a_decision_that_matches_the_server() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[])
        .set("AUTOTHROTTLE_ENABLED", true)
        .set("AUTOTHROTTLE_DEBUG", true)
        .set("AUTOTHROTTLE_MODE", "scrapy");
    plan.seeds = web.pages("one.test", 1, 30, Duration::from_millis(200));
    plan.seeds
        .extend(web.pages("two.test", 2, 10, Duration::from_millis(50)));
    let (run, decisions) = run_debugged(&plan, web);
    let results = run.lines();
    let decisions: Vec<&Value> = decisions
        .iter()
        .filter(|line| line["event"] == "autothrottle")
        .collect();
    assert_eq!(decisions.len(), run.web.borrow().arrivals.len());
    for name in ["one.test", "two.test"] {
        let of_scope = |line: &&&Value| line["scope"] == name;
        let moments = run.web.borrow().moments(name);
        let mut before: Option<&Value> = None;
        for (decision, arrival) in decisions.iter().filter(of_scope).zip(&moments) {
            // The request arrived as long before its head did as the decision has its latency; the
            // decision is of the moment at which the head was there.
            let latency = decision["latency"].as_f64().expect("a latency");
            let decided = second_of(&decision["at"]);
            let left = decided - latency;
            let arrived = arrival.as_nanos() as f64 / 1e9;
            let late = (arrived - left).abs();
            assert!(
                late < 0.002,
                "left at {left}, arrived at {arrived}: {decision}"
            );
            let result = results.iter().find(|line| line.0["id"] == decision["id"]);
            let result = &result.expect("a decision has its result line").0;
            for key in ["status", "latency"] {
                assert_eq!(decision[key], result[key], "{key} of {decision}");
            }
            assert_eq!(decision["size"], result["bytes_body"], "{decision}");
            assert_eq!(decision["source"], "autothrottle");
            // Each begins where the one before it ended.
            if let Some(before) = before {
                assert_eq!(decision["delay"][0], before["delay"][1], "{decision}");
            }
            before = Some(decision);
        }
        assert_eq!(decisions.iter().filter(of_scope).count(), moments.len());
    }
}

#[test]
fn without_the_setting_no_decision_is_written() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[]).set("AUTOTHROTTLE_ENABLED", true);
    plan.seeds = web.pages("one.test", 1, 5, Duration::from_millis(20));
    let (_, decisions) = run_debugged(&plan, web);
    assert_eq!(decisions, [] as [Value; 0]);
}

/// Under a cap for all, a host whose own settings ask for much more.
fn busy(in_all: usize) -> (Run, Vec<Value>) {
    let mut web = PoliteWeb::default();
    let own = json!({"one.test": {"concurrency": 1000, "delay": 0.08}});
    let mut plan = Plan::new(&[])
        .set("AUTOTHROTTLE_DEBUG", true)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("CONCURRENT_REQUESTS", in_all)
        .set("THROTTLING_SCOPES", own);
    plan.seeds = web.pages("one.test", 1, 300, Duration::from_secs(20));
    run_debugged(&plan, web)
}

#[test]
fn f77_settings_without_effect_are_reported_once_with_what_limited() {
    let (run, decisions) = busy(16);
    let words =
        "concurrency 1000 and delay 0.08 never had effect: CONCURRENT_REQUESTS = 16 limited";
    let scope = |line: &&Value| line["event"] == "ineffective";
    let scope: Vec<&Value> = decisions.iter().filter(scope).collect();
    assert_eq!(scope.len(), 1, "{scope:?}");
    assert_eq!(scope[0]["reason"], words);
    assert_eq!(scope[0]["scope"], "one.test");
    assert_eq!(scope[0]["source"], "user");
    let pacing = run.crawler.pacing();
    let remarks = &pacing.scopes[0].remarks;
    assert_eq!(remarks.len(), 1);
    assert_eq!(
        (remarks[0].about, &*remarks[0].words),
        (RemarkKind::Ineffective, words)
    );
    assert_eq!(
        pacing.scopes[0].waited_most().expect("it waited").0,
        WaitCause::GlobalCap
    );

    let (run, decisions) = busy(4096);
    assert!(decisions.iter().all(|line| line["event"] != "ineffective"));
    assert_eq!(run.crawler.pacing().scopes[0].remarks, []);
}

#[test]
fn f78_the_reported_pace_matches_the_server() {
    for (delay, concurrency, think) in [(0.1, 8, 300), (0.05, 2, 400), (1.0, 1, 20)] {
        let mut web = PoliteWeb::default();
        let mut plan = Plan::new(&[])
            .set("DOWNLOAD_DELAY", delay)
            .set("CONCURRENT_REQUESTS_PER_DOMAIN", concurrency);
        let think = Duration::from_millis(think);
        plan.seeds = web.pages("one.test", 1, 200, think);
        // It ends early: what it did is not thinned by the time that others take.
        plan.seeds.extend(web.pages("two.test", 2, 30, 20 * think));
        let web = web.shared();
        let run = plan.run(&web);
        let pacing = run.crawler.pacing();
        let web = web.borrow();
        for scope in &pacing.scopes {
            let of_scope = |arrival: &&Arrival| arrival.host == scope.scope;
            let arrivals: Vec<&Arrival> = web.arrivals.iter().filter(of_scope).collect();
            let (first, last) = (arrivals[0].at, arrivals[arrivals.len() - 1].at);
            let seconds = last.saturating_since(first).as_secs_f64();
            let rate = (arrivals.len() - 1) as f64 / seconds;
            let over = |arrival: &Arrival| arrival.over.expect("every request is answered");
            let end = arrivals
                .iter()
                .map(|arrival| over(arrival))
                .max()
                .expect("some");
            let busy: f64 = arrivals
                .iter()
                .map(|arrival| over(arrival).saturating_since(arrival.at).as_secs_f64())
                .sum();
            let in_flight = busy / end.saturating_since(first).as_secs_f64();
            let close = |reported: Option<f64>, seen: f64| {
                let reported = reported.expect("it was measured");
                assert!(
                    (reported / seen - 1.0).abs() < 0.02,
                    "{reported} reported, {seen} seen"
                );
            };
            assert_eq!(scope.sent, arrivals.len() as u64);
            close(scope.rate, rate);
            close(scope.gap.map(|gap| 1.0 / gap.as_secs_f64()), rate);
            close(scope.concurrency, in_flight);
            assert_eq!(scope.peak as usize, web.hosts[&*scope.scope].peak);
        }
        assert_eq!(pacing.scopes.len(), 2);
    }
}

#[test]
fn waits_of_scopes_are_reported_by_cause() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 1)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set(
            "THROTTLING_SCOPES",
            json!({
                "three.test": {"concurrency": 2, "delay": 0},
                "four.test": {"autothrottle": true, "delay": 0},
                "five.test": {"concurrency": 8, "delay": 0, "quota": 10, "window": 10},
            }),
        );
    plan.seeds = web.pages("one.test", 1, 30, Duration::from_millis(20));
    for (name, number) in [("three.test", 3), ("four.test", 4), ("five.test", 5)] {
        let pages = web.pages(name, number, 39, Duration::from_millis(500));
        plan.seeds.extend(pages);
    }
    plan.seeds
        .extend(web.pages("two.test", 2, 10, Duration::from_millis(20)));
    web.site("two.test", address(2))
        .rules(Duration::from_secs(5));
    let run = plan.run(&web.shared());
    let pacing = run.crawler.pacing();
    let waited = |scope: &str, cause: WaitCause| {
        let scope = pacing.scopes.iter().find(|paced| paced.scope == scope);
        let waited = scope.and_then(|scope| scope.waited.get(&cause));
        waited.map_or(0.0, Duration::as_secs_f64)
    };
    assert!((28.0..31.0).contains(&waited("one.test", WaitCause::Delay)));
    assert!((40.0..51.0).contains(&waited("host/two.test", WaitCause::Robots)));
    assert!((9.0..10.0).contains(&waited("three.test", WaitCause::Concurrency)));
    assert!((15.0..30.0).contains(&waited("four.test", WaitCause::Autothrottle)));
    assert!((25.0..40.0).contains(&waited("five.test", WaitCause::Quota)));
    for scope in &pacing.scopes {
        let (_, most) = scope.waited_most().expect("all of them waited");
        let all: Duration = scope.waited.values().sum();
        assert!(most >= all.mul_f64(0.9), "{scope:?}");
    }
    // The sum over all is of each.
    let all: f64 = pacing.waited.values().map(Duration::as_secs_f64).sum();
    let each = pacing.scopes.iter().flat_map(|scope| scope.waited.values());
    let each: f64 = each.map(Duration::as_secs_f64).sum();
    assert!((all - each).abs() < 1e-6, "{all} {each}");
}

/// What is said of a host of so many pages that are as slow as this, under AutoThrottle.
fn remarks(pages: usize, step: &Step, settings: &[(&'static str, Value)]) -> Vec<Remark> {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[]).set("AUTOTHROTTLE_ENABLED", true);
    plan.settings.extend_from_slice(settings);
    plan.seeds = web.pages("one.test", 1, pages, Duration::ZERO);
    let site = web.site("one.test", address(1));
    for page in 0..pages {
        site.path(&format!("/{page}"), [step.clone()]);
    }
    let run = plan.run(&web.shared());
    let mut scopes = run.crawler.pacing().scopes;
    assert_eq!(scopes.len(), 1);
    scopes.remove(0).remarks
}

/// A page after so many milliseconds.
fn page(millis: u64) -> Step {
    Step::new(Reply::Page(Vec::new())).after(Duration::from_millis(millis))
}

#[track_caller]
fn check_remark(remarks: &[Remark], about: &str, words: &str) {
    let [remark] = remarks else {
        panic!("one remark: {remarks:?}");
    };
    assert_eq!(remark.about.as_str(), about, "{remark:?}");
    assert!(remark.words.contains(words), "{remark:?}");
}

#[test]
fn f100_a_delay_at_its_maximum_is_reported_as_a_slow_server() {
    let scope = remarks(60, &page(5000), &[("AUTOTHROTTLE_MAX_DELAY", json!(2))]);
    check_remark(&scope, "slow", "raise AUTOTHROTTLE_MAX_DELAY");
}

#[test]
fn f101_an_unthrottled_server_is_reported() {
    check_remark(&remarks(400, &page(1), &[]), "unthrottled", "set `delay`");
}

#[test]
fn f102_the_cause_of_low_concurrency_is_reported() {
    let target = ("AUTOTHROTTLE_TARGET_CONCURRENCY", json!(4));
    let cap = ("CONCURRENT_REQUESTS_PER_DOMAIN", json!(1));
    let scope = remarks(200, &page(200), &[target.clone(), cap]);
    check_remark(&scope, "below-target", "limited by concurrency = 1");
    assert_eq!(remarks(400, &page(200), &[target]), []);
}

#[test]
fn f103_a_server_that_refuses_everything_is_reported_as_blocked() {
    let forbidden = Step::new(Reply::Status(403));
    let scope = remarks(40, &forbidden, &[]);
    check_remark(&scope, "suspect", "slowing down does not help");
}

#[test]
fn only_remarkable_scopes_are_listed_and_the_others_are_counted() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 1)
        .set("THROTTLING_SCOPES", json!({"host7.test": {"delay": 0}}));
    for number in 0..240 {
        let name = format!("host{number}.test");
        // The last ones wait, and send most.
        let pages = if number < 200 { 1 } else { 4 };
        let think = Duration::from_millis(20);
        plan.seeds.extend(web.pages(&name, number, pages, think));
    }
    let run = plan.run(&web.shared());
    let pacing = run.crawler.pacing();
    assert!(
        pacing.scopes.len() <= 100 + 4 * 50,
        "{}",
        pacing.scopes.len()
    );
    assert!(pacing.left_out > 0);
    assert_eq!(pacing.scopes.len() + pacing.left_out, 240);
    let is_listed = |name: &str| pacing.scopes.iter().any(|scope| scope.scope == name);
    assert!(is_listed("host7.test"));
    assert!((200..240).all(|number| is_listed(&format!("host{number}.test"))));
    let waited: Vec<Duration> = pacing
        .scopes
        .iter()
        .map(|scope| scope.waited.values().sum())
        .collect();
    assert!(waited.is_sorted_by(|a, b| a >= b), "{waited:?}");
}

#[test]
fn a_wait_that_is_not_over_counts_as_well() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[]).set("DOWNLOAD_DELAY", "1h");
    plan.seeds = web.pages("one.test", 1, 3, Duration::from_millis(20));
    let mut run = plan.begin(&web.shared());
    run.until(Duration::from_secs(60));
    let pacing = run.crawler.pacing();
    let minute = Duration::from_secs(58)..Duration::from_secs(62);
    assert!(
        minute.contains(&pacing.waited[&WaitCause::Delay]),
        "{pacing:?}"
    );
    assert_eq!(pacing.scopes[0].waited, pacing.waited);
}

#[test]
fn f104_no_minute_at_the_origin_exceeds_the_limit_and_the_log_matches() {
    let limit = 60;
    let mut web = PoliteWeb::default();
    let own = json!({"one.test": {"requests_per_minute": limit, "concurrency": 8}});
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("THROTTLING_SCOPES", own);
    plan.faults.piece_gap_max = Duration::from_millis(20);
    web.round_trip = Duration::from_millis(40);
    plan.seeds = web.pages("one.test", 1, 400, Duration::from_millis(700));
    let web = web.shared();
    let run = plan.run(&web);
    // The origin's log is its own: robots.txt and pages as they arrived.
    let seen: Vec<f64> = web
        .borrow()
        .moments("one.test")
        .iter()
        .map(|at| at.as_nanos() as f64 / 1e9)
        .collect();
    assert_eq!(seen.len(), 401);
    let first = seen.windows(limit + 1).find(|w| w[limit] - w[0] < 60.0);
    assert_eq!(first, None, "more than {limit} within a minute");
    // It is used: seven minutes are enough.
    assert!(seen[400] < 420.0, "{} s", seen[400]);
    let mut logged: Vec<f64> = run
        .lines()
        .iter()
        .map(|l| second_of(&l.0["sent"]))
        .collect();
    logged.sort_by(f64::total_cmp);
    assert_eq!(logged.len(), seen.len());
    for (logged, seen) in logged.iter().zip(&seen) {
        let way = seen - logged;
        assert!((0.0..0.041).contains(&way), "sent {logged}, arrived {seen}");
    }
}

/// The gap at the origin behind a slow page that asks so or not, between two that teach nothing.
fn gap_behind(slow: impl Fn(Request) -> Request) -> f64 {
    let mut web = PoliteWeb::default();
    let site = web.site("one.test", address(1));
    for (path, think) in [("/slow", 600), ("/1", 10), ("/2", 10)] {
        let page = Step::page().after(Duration::from_millis(think));
        site.path(path, [page]);
    }
    web.promise.obeys_robots = false;
    let mut plan = Plan::new(&[])
        .set("ROBOTSTXT_OBEY", false)
        .set("AUTOTHROTTLE_ENABLED", true)
        // There one reply is enough to see.
        .set("AUTOTHROTTLE_MODE", "scrapy")
        .set("AUTOTHROTTLE_START_DELAY", 0.2)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 1);
    let get = |path: &str| Request::get(format!("http://one.test{path}"));
    plan.requests = vec![
        slow(get("/slow").priority(2)),
        get("/1").priority(1).dont_adjust_delay(),
        get("/2").dont_adjust_delay(),
    ];
    let web = web.shared();
    plan.run(&web);
    let moments = web.borrow().moments("one.test");
    moments[2].saturating_since(moments[1]).as_secs_f64()
}

#[test]
fn f90_dont_adjust_delay_keeps_the_gap_at_the_origin() {
    let gap = gap_behind(Request::dont_adjust_delay);
    assert!((0.199..0.202).contains(&gap), "{gap} s");
    let gap = gap_behind(|request| request);
    assert!(gap >= 0.6, "{gap} s");
}
