//! Priorities of hosts that are ordered, in virtual time.

use std::time::Duration;

use serde_json::json;

use crate::crawl::FinishReason;
use crate::crawl::core::tests::operated::Trial;
use crate::crawl::core::tests::trial::{finish, get};

/// One request at a time, of two hosts.
fn trial() -> Trial {
    let mut trial = Trial::with(|config| {
        config.throttle.default.delay = Duration::ZERO;
        config.throttle.concurrent_requests = 1;
    });
    for page in 0..200 {
        for host in 1..=2 {
            trial.crawler.submit(get(host, page)).expect("it is a URL");
        }
    }
    trial
}

/// Requests to each of the hosts in the next 400 ms.
fn counts(trial: &mut Trial) -> [usize; 2] {
    let from = trial.now();
    trial.run(400);
    ["10.0.0.1", "10.0.0.2"].map(|host| trial.targets_after(host, from).len())
}

#[test]
fn the_host_of_the_higher_priority_goes_first_from_the_order_on() {
    let mut trial = trial();
    // The first host has its turn, which is of 64 requests.
    trial.run(100);
    let path = "/v1/hosts/10.0.0.2/priority";
    let reply = trial.ask_well("PUT", path, r#"{"priority": 5}"#);
    assert_eq!(reply, json!({"host": "10.0.0.2", "priority": 5}));
    let host = trial.ask_well("GET", "/v1/hosts/10.0.0.2", "");
    assert_eq!(host["priority"], 5);
    let [one, two] = counts(&mut trial);
    assert!(one < 10 && two > 50, "{one} {two}");
    trial.ask_well("PUT", path, r#"{"priority": -5}"#);
    let [one, two] = counts(&mut trial);
    assert!(two < 10 && one > 50, "{one} {two}");
    trial.ask_well("PUT", path, r#"{"priority": 0}"#);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 400);
    let orders = trial.orders();
    assert_eq!(orders[1]["before"], 5);
    assert_eq!(orders[1]["after"], -5);
}

#[test]
fn a_priority_that_is_none_is_refused() {
    let mut trial = trial();
    let check = |trial: &mut Trial, host: &str, body: &str| {
        let (status, reply) = trial.ask("PUT", &format!("/v1/hosts/{host}/priority"), body);
        assert_eq!(status, 400, "{reply}");
    };
    check(&mut trial, "10.0.0.2", "");
    check(&mut trial, "10.0.0.2", r#"{"priority": 1001}"#);
    check(&mut trial, "10.0.0.2", r#"{"priority": 1.5}"#);
    check(&mut trial, "10.0.0.2", r#"{"priority": 1, "more": 2}"#);
    check(&mut trial, "10.0.0.2:8080", r#"{"priority": 1}"#);
    check(&mut trial, "a%2Fb", r#"{"priority": 1}"#);
}
