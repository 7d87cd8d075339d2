//! Orders about the pace of scopes, in virtual time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::base::time::Instant;
use crate::crawl::FinishReason;
use crate::crawl::core::tests::operated::Trial;
use crate::crawl::core::tests::trial::{finish, get};
use crate::frontier::request::Request;

/// A moment as text.
fn text(trial: &Trial, at: Instant) -> String {
    trial.crawler.core.wall_text(at)
}

/// Changes some settings of a scope; returns all of them.
fn patch(trial: &mut Trial, scope: &str, keys: &Value) -> Value {
    let path = format!("/v1/scopes/{scope}");
    trial.ask_well("PATCH", &path, &keys.to_string())["settings"].clone()
}

#[test]
fn a_scope_that_is_held_until_a_time_sends_nothing_before_it_and_goes_on_then() {
    let mut trial = Trial::new(100);
    trial.run(300);
    let until = trial.now() + Duration::from_secs(4);
    let keys = json!({"hold_until": text(&trial, until)});
    assert_eq!(patch(&mut trial, "10.0.0.1", &keys), keys);
    trial.run(20);
    let from = trial.now();
    let now = &trial.ask_well("GET", "/v1/scopes/10.0.0.1", "")["now"];
    assert_eq!(now["held"], true, "{now:#}");
    assert_eq!(now["limited_by"], "user");
    let end = now["next_send"].as_str().map(str::to_owned);
    assert_eq!(end, keys["hold_until"].as_str().map(str::to_owned));
    let rest = until.saturating_since(trial.now());
    trial.run(rest.as_millis() as u64 - 1);
    assert_eq!(trial.targets_after("10.0.0.1", from), [] as [&str; 0]);
    assert!(trial.targets_after("10.0.0.2", from).len() > 35);
    trial.run(150);
    let at = trial.targets_after("10.0.0.1", from).len();
    assert!((1..=2).contains(&at), "{at}");
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 200);
}

#[test]
fn a_hold_is_lifted_and_the_other_settings_stay() {
    let mut trial = Trial::new(100);
    trial.run(300);
    let far = json!({"hold_until": "2100-01-01T00:00:00Z", "concurrency": 1});
    patch(&mut trial, "10.0.0.1", &far);
    let settings = patch(&mut trial, "10.0.0.1", &json!({"delay": 0.2}));
    assert_eq!(settings["concurrency"], 1);
    assert!(settings["hold_until"].is_string(), "{settings}");
    trial.run(2000);
    let from = trial.now();
    let lifted = patch(&mut trial, "10.0.0.1", &json!({"hold_until": null}));
    assert_eq!(lifted, json!({"concurrency": 1, "delay": 0.2}));
    trial.run(2000);
    let count = trial.targets_after("10.0.0.1", from).len();
    assert!((9..=11).contains(&count), "{count}");
}

#[test]
fn a_held_pattern_holds_scopes_that_come_later() {
    let mut trial = Trial::new(30);
    let until = text(&trial, trial.now() + Duration::from_secs(5));
    patch(&mut trial, "*.test", &json!({"hold_until": until}));
    let request = Request::get("http://10.0.0.3/1").scope("late.test");
    trial.crawler.submit(request).expect("it is a URL");
    trial.run(4900);
    let start = Instant::START;
    assert_eq!(trial.targets_after("10.0.0.3", start), [] as [&str; 0]);
    assert_eq!(trial.targets_after("10.0.0.1", start).len(), 30);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.targets_after("10.0.0.3", start), ["/1"]);
}

#[test]
fn all_is_held_by_the_default_until_a_time_that_has_passed_replaces_it() {
    let mut trial = Trial::new(100);
    trial.run(300);
    let far = json!({"hold_until": "2100-01-01T00:00:00Z"});
    patch(&mut trial, "default", &far);
    trial.run(20);
    let from = trial.now();
    trial.run(2000);
    assert_eq!(trial.hits_since(from), [] as [Instant; 0]);
    let (status, reply) = trial.ask("PATCH", "/v1/scopes/default", r#"{"hold_until": null}"#);
    assert_eq!(status, 400, "{reply}");
    let past = json!({"hold_until": text(&trial, trial.now())});
    patch(&mut trial, "default", &past);
    trial.run(2000);
    assert!(trial.hits_since(from).len() > 35);
}

#[test]
fn what_was_learned_of_a_scope_is_forgotten_but_not_what_its_server_asked_for() {
    let mut trial = Trial::new(0);
    for page in 0..200 {
        trial.crawler.submit(get(1, page)).expect("it is a URL");
    }
    trial.run(1000);
    for page in 0..300 {
        let (target, think) = (format!("/{page}"), Duration::from_millis(5));
        trial.answer("10.0.0.1:80", &target, think, "429 Too Many Requests");
    }
    trial.run(3000);
    let delay = |trial: &mut Trial| {
        let scope = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "");
        scope["now"]["delay"].as_f64().expect("it has one")
    };
    let learned = delay(&mut trial);
    assert!(learned > 0.15, "{learned}");
    let decisions = trial.ask_well("GET", "/v1/scopes/10.0.0.1/decisions?limit=2", "");
    let last = &decisions["decisions"][0];
    assert_eq!(last["event"], "backoff", "{decisions:#}");
    assert_eq!(
        last["delay"][1], learned,
        "the last one has the present delay"
    );
    assert_eq!(last["status"], 429);
    assert_eq!(decisions["decisions"].as_array().map(Vec::len), Some(2));
    assert!(last["at"].as_str() > decisions["decisions"][1]["at"].as_str());
    let forgotten = trial.ask_well("POST", "/v1/scopes/10.0.0.1/forget", "");
    assert_eq!(forgotten, json!({"scope": "10.0.0.1", "scopes": 1}));
    assert_eq!(delay(&mut trial), 0.1);
    trial.run(5000);
    assert!(delay(&mut trial) > 0.15, "it learns again");
    let forgotten = trial.ask_well("POST", "/v1/scopes/default/forget", "");
    assert_eq!(forgotten["scope"], "default");
    assert_eq!(delay(&mut trial), 0.1);
    let held = "429 Too Many Requests\r\nretry-after: 30";
    for page in 0..300 {
        let (target, think) = (format!("/{page}"), Duration::from_millis(5));
        trial.answer("10.0.0.1:80", &target, think, held);
    }
    trial.run(4000);
    trial.ask_well("POST", "/v1/scopes/10.0.0.1/forget", "");
    let from = trial.now();
    trial.run(20_000);
    assert_eq!(trial.hits_since(from), [] as [Instant; 0]);
}

#[test]
fn a_change_of_a_scope_that_is_wrong_changes_nothing() {
    let mut trial = Trial::new(50);
    trial.run(200);
    for body in [
        "",
        "[]",
        "{",
        r#"{"hold_until": 5}"#,
        r#"{"hold_until": "tomorrow"}"#,
        r#"{"delya": 5}"#,
    ] {
        let (status, reply) = trial.ask("PATCH", "/v1/scopes/10.0.0.1", body);
        assert_eq!(status, 400, "{body}: {reply}");
    }
    let (status, _) = trial.ask("POST", "/v1/scopes/a*b/forget", "");
    assert_eq!(status, 400);
    assert_eq!(trial.orders(), [] as [Value; 0]);
}

#[test]
fn a_name_in_another_spelling_is_that_of_the_same_scope() {
    let mut trial = Trial::new(30);
    trial.run(200);
    patch(
        &mut trial,
        "10.0.0.1",
        &json!({"delay": 0.5, "concurrency": 1}),
    );
    let hold = json!({"hold_until": "2100-01-01T00:00:00Z"});
    let settings = patch(&mut trial, "10.0.0.1:80", &hold);
    assert_eq!(settings["delay"], 0.5, "{settings}");
    assert_eq!(settings["concurrency"], 1);
    let settings = patch(&mut trial, "10.0.0.1:80", &json!({"hold_until": null}));
    assert_eq!(settings, json!({"delay": 0.5, "concurrency": 1}));
}

#[test]
fn a_hold_that_is_lifted_leaves_no_order_so_that_the_configuration_holds() {
    let mut trial = Trial::new(30);
    trial.run(200);
    let hold = json!({"hold_until": "2100-01-01T00:00:00Z"});
    patch(&mut trial, "10.0.0.1", &hold);
    assert_eq!(trial.crawler.core.orders.scopes.len(), 1);
    assert_eq!(
        patch(&mut trial, "10.0.0.1", &json!({"hold_until": null})),
        json!({})
    );
    assert!(trial.crawler.core.orders.scopes.is_empty());
    let from = trial.now();
    trial.run(1000);
    assert!(trial.targets_after("10.0.0.1", from).len() >= 9);
}

#[test]
fn the_scope_of_an_address_is_held_also_if_it_only_caps_requests() {
    let mut trial = Trial::with(|config| config.throttle.concurrent_requests_per_ip = 2);
    for page in 0..60 {
        for host in 1..=2 {
            trial.crawler.submit(get(host, page)).expect("it is a URL");
        }
    }
    trial.run(500);
    let hold = json!({"hold_until": "2100-01-01T00:00:00Z"});
    patch(&mut trial, "ip%2F10.0.0.1", &hold);
    trial.run(10);
    let from = trial.now();
    trial.run(1000);
    assert_eq!(trial.targets_after("10.0.0.1", from), [] as [&str; 0]);
    assert!(trial.targets_after("10.0.0.2", from).len() >= 9);
    patch(&mut trial, "ip%2F10.0.0.1", &json!({"hold_until": null}));
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.targets_after("10.0.0.1", Instant::START).len(), 60);
}

#[test]
fn the_number_of_scopes_with_settings_by_orders_is_bounded() {
    let mut trial = Trial::new(300);
    trial.run(10);
    let delay = json!({"delay": 2});
    for number in 0..200 {
        patch(&mut trial, &format!("{number}.test"), &delay);
    }
    let order = |trial: &mut Trial, name: &str| {
        trial.ask("PATCH", &format!("/v1/scopes/{name}"), &delay.to_string())
    };
    let (status, refused) = order(&mut trial, "other.test");
    assert_eq!(status, 400);
    let message = refused["error"].as_str().unwrap_or_default().to_owned();
    for part in ["other.test", "200 scopes", "withdraw"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(order(&mut trial, "7.test").0, 200, "it has some");
    trial.ask_well("DELETE", "/v1/scopes/7.test", "");
    assert_eq!(order(&mut trial, "other.test").0, 200);
}
