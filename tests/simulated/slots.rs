//! Scrapy's download slots, and the equivalent scopes.

use std::time::Duration;

use argiope::base::time::Instant;
use argiope::frontier::request::Request;
use serde_json::{Value, json};

use super::crawl::Plan;
use super::policy::pages;
use super::web::{PoliteWeb, address};

const SITES: [&str; 2] = ["one.test", "two.test"];

/// When the origins were asked for what, by a crawl of these requests.
fn schedule(setting: &'static str, said: Value, requests: Vec<Request>) -> Vec<(Instant, String)> {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(10);
    for (number, site) in (1..).zip(SITES) {
        let think = Duration::from_millis(50);
        web.site(site, address(number)).mood(pages(think));
    }
    let mut plan = Plan::new(&[])
        .set("ROBOTSTXT_OBEY", false)
        .set("DOWNLOAD_DELAY", 1)
        .set(setting, said);
    plan.requests = requests;
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    let asked = web.arrivals.iter();
    asked
        .map(|arrival| (arrival.at, format!("{}{}", arrival.host, arrival.path)))
        .collect()
}

fn urls() -> impl Iterator<Item = String> {
    SITES
        .into_iter()
        .flat_map(|site| (0..20).map(move |page| format!("http://{site}/{page}")))
}

fn seconds(schedule: &[(Instant, String)]) -> Vec<f64> {
    let moments = schedule.iter();
    moments.map(|(at, _)| at.as_nanos() as f64 / 1e9).collect()
}

#[test]
fn f20_download_slots_and_scopes_give_the_same_schedule() {
    for (randomize, jitter) in [(json!(false), json!(false)), (json!(true), json!(0.5))] {
        let slot =
            json!({"one.test": {"concurrency": 2, "delay": 0.2, "randomize_delay": randomize}});
        let scope = json!({"one.test": {"concurrency": 2, "delay": 0.2, "jitter": jitter}});
        let requests = || urls().map(Request::get).collect();
        let by_slot = schedule("DOWNLOAD_SLOTS", slot, requests());
        let by_scope = schedule("THROTTLING_SCOPES", scope, requests());
        assert_eq!(by_slot.len(), 40);
        assert_eq!(by_slot, by_scope);
        // It is that of the slot, and not that of all others.
        let last = by_slot.iter().rfind(|(_, url)| url.starts_with("one.test"));
        let took = last.expect("it was asked").0.as_nanos() as f64 / 1e9;
        assert!((3.0..5.0).contains(&took), "{took} s for 20 pages");
    }
}

#[test]
fn f20_a_download_slot_is_the_one_scope_of_its_request_in_a_line_and_in_code() {
    let slots = || json!({"mine": {"concurrency": 1, "delay": 0.5, "randomize_delay": false}});
    let of_line = |url: String| {
        let line = json!({"url": url, "download_slot": "mine"}).to_string();
        Request::from_line(&line).expect("a seed").expect("one")
    };
    let in_code = |url: String| Request::get(url).scope("other").download_slot("mine");
    let by_line = schedule("DOWNLOAD_SLOTS", slots(), urls().map(of_line).collect());
    let by_code = schedule("DOWNLOAD_SLOTS", slots(), urls().map(in_code).collect());
    let by_scope = |url: String| Request::get(url).scope("mine");
    let by_scope = schedule("DOWNLOAD_SLOTS", slots(), urls().map(by_scope).collect());
    assert_eq!(by_line, by_scope);
    assert_eq!(by_code, by_scope);
    // Both hosts share it.
    let seconds = seconds(&by_line);
    let gaps = seconds.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(
        gaps.clone().all(|gap| (0.499..0.502).contains(&gap)),
        "{seconds:?}"
    );
}

#[test]
fn f20_a_download_slot_beside_scopes_is_refused() {
    let line = r#"{"url": "http://one.test/", "download_slot": "mine", "scopes": ["other"]}"#;
    let error = Request::from_line(line).expect_err("it is ambiguous");
    assert_eq!(
        error.to_string(),
        r#"`download_slot`: "mine" is given together with `scopes`; name all scopes in `scopes`"#
    );
}
