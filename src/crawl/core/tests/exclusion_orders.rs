//! Hosts, networks and patterns that are excluded while a crawl runs, in virtual time.

use std::time::Duration;

use serde_json::json;

use crate::crawl::FinishReason;
use crate::crawl::core::tests::operated::Trial;
use crate::crawl::core::tests::trial::{finish, get};
use crate::frontier::request::Request;

/// Excludes something while two hosts are crawled: afterwards no server is asked for what `is_excluded` names, and
/// the rest is fetched. Then that is withdrawn. What was excluded ended with this code.
#[track_caller]
fn check(name: &str, code: &str, is_excluded: impl Fn(&str, &str) -> bool) {
    let mut trial = Trial::new(200);
    trial.run(300);
    let text = name.replace("%2F", "/").replace("%3A", ":");
    let excluded = trial.ask_well("PUT", &format!("/v1/exclusions/{name}"), "");
    assert_eq!(excluded, json!({"excluded": [text]}));
    // Again, which changes nothing.
    trial.ask_well("PUT", &format!("/v1/exclusions/{name}"), "");
    trial.run(10);
    let excluded_at = trial.now();
    trial.ask_well("POST", "/v1/seeds", "http://10.0.0.2/290");
    trial.run(10_000);
    let hosts = ["10.0.0.1", "10.0.0.2"];
    let mut others = 0;
    for host in hosts {
        for target in trial.targets_after(host, excluded_at) {
            assert!(!is_excluded(host, &target), "{host}{target}");
            others += 1;
        }
    }
    assert!(others > 40, "{others}");
    let cleared = trial.ask_well("DELETE", &format!("/v1/exclusions/{name}"), "");
    assert_eq!(cleared, json!({"excluded": []}));
    trial.ask_well("POST", "/v1/seeds", "http://10.0.0.2/291");
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert!(
        trial
            .targets_after("10.0.0.2", excluded_at)
            .contains(&"/291".to_owned())
    );
    let pages = trial.record.pages.borrow();
    assert_eq!(pages.len(), 402);
    let codes = pages.iter().filter_map(|page| page.failure.as_ref());
    let codes: Vec<String> = codes.map(|failure| failure.code().to_string()).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for found in &codes {
        assert!(
            [code, "filtered.excluded"].contains(&found.as_str()),
            "{found}"
        );
    }
    let orders = trial.orders();
    let kind = match text.split_once('/').is_some() {
        true if text.starts_with("re:") => "pattern",
        true => "network",
        false => "host",
    };
    assert_eq!(orders[0][kind], text, "{:?}", orders[0]);
}

#[test]
fn an_excluded_host_is_asked_for_nothing_more() {
    check("10.0.0.2", "filtered.excluded", |host, _| {
        host == "10.0.0.2"
    });
}

#[test]
fn an_excluded_network_is_not_connected_to_and_its_kept_connections_are_closed() {
    let is_it = |host: &str, _: &str| host == "10.0.0.2";
    check("10.0.0.2%2F32", "filtered.excluded_address", is_it);
}

#[test]
fn urls_of_an_excluded_pattern_are_left_out_while_others_of_their_host_go_on() {
    let is_it = |_: &str, target: &str| target.ends_with('0') || target.ends_with('7');
    check("re%3A%2F[0-9]*[07]$", "filtered.excluded", is_it);
}

#[test]
fn a_host_whose_connection_is_being_made_to_an_excluded_network_is_not_asked() {
    let mut trial = Trial::with(|_| {});
    for page in 0..5 {
        trial.crawler.submit(get(1, page)).expect("it is a URL");
        trial.crawler.submit(get(2, page)).expect("it is a URL");
    }
    // The order is taken before a connection is there, which takes a millisecond.
    trial.ask_well("PUT", "/v1/exclusions/10.0.0.2%2F31", "");
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    let from = trial.now() - Duration::from_secs(100);
    assert_eq!(trial.targets_after("10.0.0.2", from), [] as [&str; 0]);
    assert_eq!(trial.targets_after("10.0.0.1", from).len(), 5);
}

#[test]
fn more_exclusions_than_there_may_be_and_patterns_that_are_none_are_refused() {
    let mut trial = Trial::new(300);
    trial.run(100);
    for number in 0..50 {
        trial.ask_well("PUT", &format!("/v1/exclusions/re%3Ax{number}"), "");
    }
    let (status, reply) = trial.ask("PUT", "/v1/exclusions/re%3Ax50", "");
    assert_eq!(status, 409, "{reply}");
    trial.ask_well("DELETE", "/v1/exclusions/re%3Ax7", "");
    trial.ask_well("PUT", "/v1/exclusions/re%3Ax50", "");
    for bad in ["re%3A", "re%3A%28", "10.0.0.0%2F99", "a%2Fb", "%5Cw"] {
        let (status, reply) = trial.ask("PUT", &format!("/v1/exclusions/{bad}"), "");
        assert_eq!(status, 400, "{reply}");
    }
    assert_eq!(trial.orders().len(), 52);
    let request = Request::get("http://10.0.0.1/x7");
    trial.crawler.submit(request).expect("it is a URL");
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    let from = trial.now() - Duration::from_secs(1000);
    let asked = trial.targets_after("10.0.0.1", from);
    assert!(
        asked.contains(&"/x7".to_owned()),
        "its pattern was withdrawn"
    );
}

#[test]
fn a_handle_excludes_and_includes_and_gives_a_priority() {
    let mut trial = Trial::new(100);
    let handle = trial.crawler.handle();
    trial.run(300);
    handle.exclude("10.0.0.2/32").expect("it goes on");
    handle.set_host_priority("10.0.0.1", 7).expect("it goes on");
    trial.run(10);
    let from = trial.now();
    trial.run(3000);
    assert_eq!(trial.targets_after("10.0.0.2", from), [] as [&str; 0]);
    let host = trial.ask_well("GET", "/v1/hosts/10.0.0.1", "");
    assert_eq!(host["priority"], 7);
    let reply = trial.ask_well("GET", "/v1/exclusions", "");
    assert_eq!(reply, json!({"excluded": ["10.0.0.2/32"]}));
    handle.include("10.0.0.2/32").expect("it goes on");
    trial.crawler.submit(get(2, 299)).expect("it is a URL");
    drop(handle);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert!(!trial.targets_after("10.0.0.2", from).is_empty());
}

#[test]
fn a_connection_in_flight_to_an_excluded_network_is_not_kept() {
    let mut trial = Trial::new(60);
    for page in 0..60 {
        let (target, think) = (format!("/{page}"), Duration::from_millis(90));
        trial.answer("10.0.0.2:80", &target, think, "200 OK");
    }
    // A request is in flight most of the time.
    trial.run(1050);
    let idle = |trial: &mut Trial, host: &str| {
        let host = trial.ask_well("GET", &format!("/v1/hosts/{host}"), "");
        let origin = &host["origins"][0];
        assert!(origin["queued"].as_u64() > Some(30), "{host:#}");
        origin["idle_connections"].as_u64().expect("a number")
    };
    // Requests stay queued, so that connections are kept.
    for host in ["10.0.0.1", "10.0.0.2"] {
        let hold = r#"{"hold_until": "2100-01-01T00:00:00Z"}"#;
        trial.ask_well("PATCH", &format!("/v1/scopes/{host}"), hold);
    }
    trial.ask_well("PUT", "/v1/exclusions/10.0.0.2%2F32", "");
    trial.run(500);
    assert_eq!(idle(&mut trial, "10.0.0.1"), 1);
    assert_eq!(idle(&mut trial, "10.0.0.2"), 0);
}
