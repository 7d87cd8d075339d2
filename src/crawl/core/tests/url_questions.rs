//! Operators who ask for one URL and one host, in virtual time.

use std::time::Duration;

use serde_json::Value;

use crate::crawl::core::tests::operated::Trial;
use crate::crawl::core::tests::trial::get;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;

fn ask(trial: &mut Trial, url: &str) -> Value {
    let encoded = url.replace('/', "%2F").replace(':', "%3A");
    trial.ask_well("GET", &format!("/v1/urls/{encoded}"), "")
}

/// Asks for a URL and checks its state.
#[track_caller]
fn check(trial: &mut Trial, url: &str, state: &str) -> Value {
    let reply = ask(trial, url);
    assert_eq!(reply["state"], state, "{reply:#}");
    assert!(reply["why"].is_string(), "{reply:#}");
    reply
}

#[test]
fn a_queued_url_moves_up_until_it_is_in_flight_and_has_ended() {
    let mut trial = Trial::new(60);
    trial.run(150);
    let url = "http://10.0.0.1/12";
    let mut positions = Vec::new();
    let mut states = Vec::new();
    for _ in 0..400 {
        let since = trial.now();
        let reply = ask(&mut trial, url);
        let state = reply["state"].as_str().expect("it has one").to_owned();
        if let Some(position) = reply["position"].as_u64() {
            assert_eq!(reply["position_is_exact"], true);
            positions.push(position);
        }
        if states.last() != Some(&state) {
            states.push(state);
        }
        trial.run(5);
        assert!(trial.now() > since);
    }
    assert_eq!(states, ["queued", "in_flight", "ended"]);
    positions.dedup();
    let down: Vec<u64> = (1..=positions[0]).rev().collect();
    assert_eq!(positions, down, "each request ahead of it leaves once");
    assert_eq!(check(&mut trial, url, "ended")["seen"], "yes");
}

#[test]
fn the_first_of_a_queue_waits_for_its_scope_and_is_sent_when_that_was_said() {
    let mut trial = Trial::new(60);
    trial.run(150);
    let mut found = 0;
    for _ in 0..100 {
        for page in 0..20 {
            let reply = ask(&mut trial, &format!("http://10.0.0.2/{page}"));
            let waits = reply["waits"].as_array().cloned().unwrap_or_default();
            let scope = waits.iter().find(|wait| wait["cause"] == "scope");
            if reply["position"] != 1 || scope.is_none() {
                continue;
            }
            let now = &reply["scopes"][0]["now"];
            assert_eq!(scope.map(|wait| &wait["until"]), Some(&now["next_send"]));
            assert_eq!(scope.map(|wait| &wait["rule"]), Some(&now["limited_by"]));
            assert_eq!(reply["why"], scope.expect("it is there")["text"]);
            found += 1;
        }
        trial.run(7);
    }
    assert!(found > 10, "{found}");
}

#[test]
fn the_reason_of_a_paused_crawl_and_of_an_excluded_host_is_named_first() {
    let mut trial = Trial::new(50);
    trial.run(150);
    trial.ask_well("PUT", "/v1/exclusions/10.0.0.1", "");
    trial.ask_well("POST", "/v1/pause", "");
    let reply = check(&mut trial, "http://10.0.0.2/40", "queued");
    assert_eq!(reply["why"], "the crawl is paused");
    assert_eq!(reply["waits"][0]["cause"], "paused");
    let reply = check(&mut trial, "http://10.0.0.1/40", "queued");
    let causes = reply["waits"].as_array().expect("it waits").iter();
    let causes: Vec<&str> = causes.filter_map(|wait| wait["cause"].as_str()).collect();
    assert_eq!(causes[..2], ["paused", "excluded"], "{reply:#}");
    trial.ask_well("POST", "/v1/resume", "");
    trial.run(3000);
    check(&mut trial, "http://10.0.0.1/40", "ended");
}

#[test]
fn a_url_that_was_never_seen_is_found_from_one_that_a_filter_leaves_out() {
    let mut trial = Trial::with(|config| {
        config.frontier.follow = Follow::Host;
        config.frontier.url_length_limit = 100;
        config.frontier.exclude_hosts = vec!["*.excluded.test".to_owned()];
    });
    for page in 0..50 {
        trial.crawler.submit(get(1, page)).expect("it is a URL");
    }
    trial.run(300);
    let reply = check(&mut trial, "http://10.0.0.1/7000", "never_seen");
    assert_eq!(reply["seen"], "no");
    let long = format!("http://10.0.0.1/{}", "x".repeat(120));
    for (url, filter) in [
        ("http://elsewhere.test/", "offsite"),
        ("http://a.excluded.test/", "excluded"),
        (long.as_str(), "url_length"),
    ] {
        let reply = check(&mut trial, url, "filtered");
        assert_eq!(reply["filter"], filter);
    }
    let (status, reply) = trial.ask("GET", "/v1/urls/nonsense", "");
    assert_eq!(status, 400, "{reply}");
}

#[test]
fn a_url_waits_for_robots_txt_and_its_host_shows_that() {
    let mut trial = Trial::with(|config| config.frontier.robots_obey = true);
    trial.slow_robots("10.0.0.1:80", Duration::from_secs(2));
    for page in 0..60 {
        trial.crawler.submit(get(1, page)).expect("it is a URL");
    }
    trial.run(500);
    let reply = check(&mut trial, "http://10.0.0.1/50", "queued");
    assert_eq!(reply["waits"][0]["cause"], "robots", "{reply:#}");
    assert_eq!(reply["robots_allow"], Value::Null);
    check(&mut trial, "http://10.0.0.1/robots.txt", "in_flight");
    let host = trial.ask_well("GET", "/v1/hosts/10.0.0.1", "");
    assert_eq!(
        host["origins"][0]["robots"]["state"], "fetching",
        "{host:#}"
    );
    assert_eq!(host["origins"][0]["waits_for"], "robots");
    assert_eq!(host["origins"][0]["in_flight"], 1);
    assert_eq!(host["name"]["addresses"][0], "10.0.0.1");
    trial.run(2200);
    let reply = ask(&mut trial, "http://10.0.0.1/50");
    assert_eq!(reply["robots_allow"], true, "{reply:#}");
    let host = trial.ask_well("GET", "/v1/hosts/10.0.0.1", "");
    let robots = &host["origins"][0]["robots"];
    assert_eq!(robots["state"], "absent", "{host:#}");
    assert!(robots["valid_until"].is_string());
    let of_robots = check(&mut trial, "http://10.0.0.1/robots.txt", "ended");
    assert_eq!(&of_robots["robots"], robots);
    check(&mut trial, "http://10.0.0.7/robots.txt", "filtered");
    assert_eq!(host["origins"][0]["health"]["state"], "up");
    assert_eq!(host["seed"], true);
}

#[test]
fn a_url_of_a_host_that_failed_waits_for_the_end_of_its_hold() {
    let mut trial = Trial::new(3);
    // There is no server.
    for page in 0..40 {
        trial.crawler.submit(get(9, page)).expect("it is a URL");
    }
    let mut held = None;
    for _ in 0..600 {
        trial.run(100);
        let host = trial.ask_well("GET", "/v1/hosts/10.0.0.9", "");
        if host["origins"][0]["health"]["state"] == "held" {
            held = Some(host);
            break;
        }
    }
    let host = held.expect("it is held after five failures");
    assert!(
        host["origins"][0]["failures"].as_u64() >= Some(5),
        "{host:#}"
    );
    let reply = check(&mut trial, "http://10.0.0.9/39", "queued");
    let waits = reply["waits"].as_array().expect("it waits");
    let cause = waits.iter().find(|wait| wait["cause"] == "host");
    let text = cause.expect("that is a cause")["text"].as_str();
    let until = host["origins"][0]["health"]["until"]
        .as_str()
        .expect("it has an end");
    assert!(text.is_some_and(|text| text.ends_with(until)), "{reply:#}");
}

#[test]
fn a_url_is_found_in_a_long_queue_and_in_any_lane_of_its_origin() {
    let mut trial = Trial::new(1);
    let submit = |trial: &mut Trial, request: Request| {
        trial.crawler.submit(request).expect("it is a URL");
    };
    for page in 0..10_000 {
        submit(
            &mut trial,
            Request::get(format!("http://10.0.0.3/long/{page}")),
        );
    }
    for page in 0..10 {
        let request = Request::get(format!("http://10.0.0.3/own/{page}"));
        submit(&mut trial, request.scope("apart"));
    }
    trial.run(50);
    let reply = check(&mut trial, "http://10.0.0.3/long/9999", "queued");
    let position = reply["position"].as_u64().expect("it has one");
    assert!((9_900..=10_000).contains(&position), "{reply:#}");
    let reply = check(&mut trial, "http://10.0.0.3/own/9", "queued");
    assert_eq!(reply["scopes"][0]["scope"], "apart", "{reply:#}");
    assert_eq!(reply["queued"], reply["position"]);
    check(&mut trial, "http://10.0.0.3/other", "never_seen");
}

#[test]
fn many_searches_at_once_are_refused_and_the_crawl_keeps_its_pace() {
    let mut trial = Trial::new(30);
    for page in 0..30_000 {
        let request = Request::get(format!("http://10.0.0.3/long/{page}"));
        trial.crawler.submit(request).expect("it is a URL");
    }
    trial.run(300);
    let from = trial.now();
    let request = b"GET /v1/urls/http%3A%2F%2F10.0.0.3%2Flong%2F29999 HTTP/1.1\r\n\r\n";
    let all: Vec<_> = (0..14).map(|_| trial.send(request)).collect();
    trial.run(1000);
    let statuses = all
        .iter()
        .map(|conn| trial.reply(*conn).map(|(status, _)| status));
    let statuses: Vec<u16> = statuses.map(|status| status.expect("a reply")).collect();
    assert!(
        statuses.contains(&200) && statuses.contains(&503),
        "{statuses:?}"
    );
    let hits = trial.hits_since(from);
    // Three hosts, ten requests in a second each.
    assert!((27..=33).contains(&hits.len()), "{}", hits.len());
}

#[test]
fn a_name_that_is_no_host_is_refused() {
    let mut trial = Trial::new(1);
    for name in ["a%2Fb", "", "user%40a.test", "a%20b"] {
        let (status, _) = trial.ask("GET", &format!("/v1/hosts/{name}"), "");
        assert!([400, 404].contains(&status), "{name}");
    }
    let reply = trial.ask_well("GET", "/v1/hosts/nowhere.test", "");
    assert_eq!(reply["origins"], Value::Array(Vec::new()));
    assert_eq!(reply["name"]["state"], "unknown");
}

#[test]
fn the_longest_queues_are_listed_the_longest_first() {
    let mut trial = Trial::new(20);
    for page in 0..3000 {
        let request = Request::get(format!("http://10.0.0.3/long/{page}"));
        trial.crawler.submit(request).expect("it is a URL");
    }
    for host in 100..180 {
        let request = Request::get(format!("http://host-{host}.test/"));
        trial.crawler.submit(request).expect("it is a URL");
    }
    trial.run(300);
    let queues = trial.ask_well("GET", "/v1/queues?limit=3", "");
    let queues = queues["queues"].as_array().expect("a list").clone();
    let of = |at: usize, key: &str| queues[at][key].clone();
    assert_eq!(queues.len(), 3);
    assert_eq!(of(0, "origin"), "http://10.0.0.3");
    assert!(of(0, "queued").as_u64() > Some(2900), "{queues:#?}");
    assert!(of(1, "queued").as_u64() >= of(2, "queued").as_u64());
    assert_eq!(of(0, "scopes")[0], "10.0.0.3");
    let some = trial.ask_well("GET", "/v1/queues?match=host-1*", "");
    assert!(some["queues"].as_array().is_some_and(|queues| {
        queues.iter().all(|queue| {
            queue["origin"]
                .as_str()
                .is_some_and(|o| o.contains("host-1"))
        })
    }));
    let (status, _) = trial.ask("GET", "/v1/queues?limit=0", "");
    assert_eq!(status, 400);
}

#[test]
fn all_scopes_in_a_state_are_listed_also_those_without_an_account() {
    let mut trial = Trial::new(50);
    for number in 0..11_000 {
        let request = Request::get("http://10.0.0.3/1").scope(format!("scope-{number:05}"));
        let request = Request {
            dont_filter: true,
            ..request
        };
        trial.crawler.submit(request).expect("it is a URL");
    }
    trial.run(20);
    let found = trial.ask_well("GET", "/v1/scopes?state=any&match=scope-*&limit=1000", "");
    assert_eq!(found["scopes"].as_array().map(Vec::len), Some(1000));
    let hold = r#"{"hold_until": "2100-01-01T00:00:00Z"}"#;
    for name in ["scope-10999", "scope-00017"] {
        trial.ask_well("PATCH", &format!("/v1/scopes/{name}"), hold);
    }
    let later = r#"{"hold_until": "2101-01-01T00:00:00Z"}"#;
    trial.ask_well("PATCH", "/v1/scopes/scope-05000", later);
    let held = trial.ask_well("GET", "/v1/scopes?state=held&limit=1000", "");
    let names = held["scopes"].as_array().expect("a list").iter();
    let names: Vec<&str> = names.filter_map(|one| one["scope"].as_str()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(names[0], "scope-05000");
    let (status, reply) = trial.ask("GET", "/v1/scopes?state=odd", "");
    assert_eq!(status, 400, "{reply}");
    let (status, reply) = trial.ask("GET", "/v1/scopes?state=any&sort=sent", "");
    assert_eq!(status, 400, "{reply}");
}
