//! Limits that operators and handles change while a crawl runs, in virtual time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::crawl::FinishReason;
use crate::crawl::core::tests::operated::Trial;
use crate::crawl::core::tests::spilled;
use crate::crawl::core::tests::trial::{finish, run_for};
use crate::io::sim::web::{Reply, Web};

/// A crawl of two hosts, each with up to 50 requests in flight, which take a second.
fn parallel(pages: u32) -> Trial {
    Trial::thinking(Duration::from_secs(1), pages, |config| {
        config.throttle.default.concurrency = 50;
        config.throttle.default.delay = Duration::ZERO;
    })
}

/// Limits the requests in flight, and gives how many there are from then on, most and least in each 100 ms.
fn in_flight_after(trial: &mut Trial, limit: &Value) -> Vec<usize> {
    let body = json!({"CONCURRENT_REQUESTS": limit}).to_string();
    trial.ask_well("PUT", "/v1/limits", &body);
    let mut found = Vec::new();
    for _ in 0..20 {
        trial.run(100);
        found.push(trial.crawler.progress().in_flight);
    }
    found
}

#[test]
fn fewer_requests_are_in_flight_as_soon_as_those_beyond_the_limit_have_ended() {
    let mut trial = parallel(300);
    trial.run(500);
    assert_eq!(trial.crawler.progress().in_flight, 100);
    let before = trial.now();
    let lowered = in_flight_after(&mut trial, &json!(7));
    assert!(lowered[..3].iter().all(|count| *count > 7), "{lowered:?}");
    assert!(lowered[10..].iter().all(|count| *count == 7), "{lowered:?}");
    assert!(lowered.is_sorted_by(|one, next| one >= next), "{lowered:?}");
    let hits = trial.hits_since(before + Duration::from_millis(5));
    assert!((7..=14).contains(&hits.len()), "{} requests", hits.len());
    let raised = in_flight_after(&mut trial, &json!(60));
    assert!(raised.iter().all(|count| *count == 60), "{raised:?}");
    let withdrawn = in_flight_after(&mut trial, &Value::Null);
    assert_eq!(withdrawn[0], 100, "{withdrawn:?}");
    let orders = trial.orders();
    assert_eq!(orders.len(), 3);
    let values = |order: &Value| (order["before"].clone(), order["after"].clone());
    let limit = |count: u64| json!({"CONCURRENT_REQUESTS": count});
    assert_eq!(values(&orders[0]), (limit(4096), limit(7)));
    assert_eq!(values(&orders[2]), (limit(60), limit(4096)));
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 600);
}

#[test]
fn a_crawl_ends_at_a_limit_of_pages_that_was_lowered_and_goes_on_beyond_one_that_was_raised() {
    let mut trial = Trial::thinking(Duration::from_millis(5), 300, |config| {
        config.throttle.default.delay = Duration::from_millis(100);
        config.frontier.pages_max = 10;
    });
    trial.run(300);
    trial.ask_well("PUT", "/v1/limits", r#"{"closespider_pagecount": 30}"#);
    trial.run(1000);
    let fetched = trial.record.pages.borrow().len();
    assert!((20..=28).contains(&fetched), "{fetched}");
    trial.ask_well("PUT", "/v1/limits", r#"{"CLOSESPIDER_PAGECOUNT": 5}"#);
    assert_eq!(finish(&mut trial.crawler), FinishReason::PageCount);
    let more = trial.record.pages.borrow().len() - fetched;
    assert!(more <= 2, "{more} were in flight");
}

#[test]
fn lanes_that_wait_for_a_limit_go_on_when_it_is_raised() {
    let mut trial = Trial::thinking(Duration::from_secs(2), 300, |config| {
        config.throttle.default.concurrency = 10;
        config.throttle.default.delay = Duration::ZERO;
        config.frontier.pages_max = 3;
        config.frontier.pages_per_host_max = 2;
    });
    trial.run(500);
    assert_eq!(trial.crawler.progress().in_flight, 3);
    trial.ask_well(
        "PUT",
        "/v1/limits",
        r#"{"PAGES_PER_HOST_MAX": 5, "CLOSESPIDER_PAGECOUNT": 0}"#,
    );
    trial.run(200);
    assert_eq!(trial.crawler.progress().in_flight, 10);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    let pages = trial.record.pages.borrow();
    let sent = pages.iter().filter(|page| page.timings.sent.is_some());
    assert_eq!(sent.count(), 10);
}

#[test]
fn the_time_of_a_crawl_is_limited_while_it_runs() {
    let mut trial = Trial::new(300);
    trial.run(2000);
    trial.ask_well("PUT", "/v1/limits", r#"{"CLOSESPIDER_TIMEOUT": "3s"}"#);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Timeout);
    let elapsed = trial.crawler.elapsed().as_secs_f64();
    assert!((3.0..3.2).contains(&elapsed), "{elapsed}");
}

#[test]
fn limits_show_what_is_configured_and_what_is_ordered() {
    let mut trial = Trial::new(50);
    trial.run(100);
    let shown = trial.ask_well("GET", "/v1/limits", "");
    let limit = &shown["limits"]["CONCURRENT_REQUESTS"];
    assert_eq!(
        *limit,
        json!({"value": 4096, "configured": 4096, "is_ordered": false})
    );
    let changed = trial.ask_well("PUT", "/v1/limits", r#"{"concurrent_requests": 9}"#);
    let limit = &changed["limits"]["CONCURRENT_REQUESTS"];
    assert_eq!(
        *limit,
        json!({"value": 9, "configured": 4096, "is_ordered": true})
    );
    assert_eq!(trial.ask_well("GET", "/v1/limits", ""), changed);
}

#[test]
fn wrong_limits_get_the_reason_and_change_nothing() {
    let mut trial = Trial::new(50);
    trial.run(100);
    let before = trial.ask_well("GET", "/v1/limits", "");
    for (body, expected, part) in [
        ("", 400, "an object of limits"),
        ("{}", 400, "an object of limits"),
        ("[]", 400, "an object of limits"),
        ("{\"CONCURRENT_REQUESTS\": 1", 400, "an object of limits"),
        (r#"{"CONCURRENT_REQUESTS": -5}"#, 400, "CONCURRENT_REQUESTS"),
        (
            r#"{"CONCURRENT_REQUESTS": 1e99}"#,
            400,
            "CONCURRENT_REQUESTS",
        ),
        (
            r#"{"CONCURRENT_REQUESTS": [1]}"#,
            400,
            "CONCURRENT_REQUESTS",
        ),
        (
            r#"{"CONCURRENT_REQUESTS": 5, "nonsense": 1}"#,
            400,
            "unknown setting",
        ),
        (r#"{"ALLOW_NET": "0.0.0.0/0"}"#, 400, "not a limit"),
        (
            r#"{"PAGES_PER_HOST_MAX": 5}"#,
            409,
            "was 0 when the run began",
        ),
    ] {
        let (status, reply) = trial.ask("PUT", "/v1/limits", body);
        assert_eq!(status, expected, "{body}: {reply}");
        let why = reply["error"].as_str().unwrap_or_default();
        assert!(why.contains(part), "{body}: {why}");
    }
    assert_eq!(trial.ask_well("GET", "/v1/limits", ""), before);
    assert_eq!(trial.orders(), [] as [Value; 0]);
}

#[test]
fn a_handle_changes_limits_and_withdraws_them() {
    let mut trial = parallel(300);
    let handle = trial.crawler.handle();
    trial.run(100);
    handle.set_limit("concurrent_requests", 5).expect("a limit");
    trial.run(1500);
    assert_eq!(trial.crawler.progress().in_flight, 5);
    let refused = handle
        .set_limit("DOWNLOAD_DELAY", 5)
        .expect_err("it is no limit");
    assert_eq!(refused.code(), "unsound");
    handle
        .withdraw_limit("CONCURRENT_REQUESTS")
        .expect("a limit");
    trial.run(100);
    assert_eq!(trial.crawler.progress().in_flight, 100);
}

#[test]
fn a_run_that_continues_a_crawl_has_the_limits_that_were_ordered() {
    let web = || Web::new(|_| Reply::text("page").after(Duration::from_secs(1)));
    let edit = |config: &mut crate::crawl::config::Config| {
        config.throttle.default.concurrency = 50;
        config.frontier.memory_max = 1 << 30;
    };
    let first = web();
    let mut crawler = spilled::crawl(&first, edit);
    let handle = crawler.handle();
    for number in 0..200 {
        crawler.submit(spilled::page(number)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_secs(1));
    assert!(crawler.progress().in_flight > 20);
    handle.set_limit("CONCURRENT_REQUESTS", 4).expect("a limit");
    run_for(&mut crawler, Duration::from_secs(3));
    let second = web();
    let mut later = spilled::resumed(&crawler, &second, edit);
    let _handle = later.handle();
    for _ in 0..20 {
        run_for(&mut later, Duration::from_millis(200));
        assert!(later.progress().in_flight <= 4);
    }
    assert!(!second.asked().is_empty());
    let third = web();
    let mut raised = spilled::resumed(&later, &third, |config| {
        edit(config);
        *config = config
            .clone()
            .with("CONCURRENT_REQUESTS", 12)
            .expect("valid");
        edit(config);
    });
    let _other = raised.handle();
    run_for(&mut raised, Duration::from_secs(3));
    assert_eq!(raised.progress().in_flight, 12, "it is configured anew");
}
