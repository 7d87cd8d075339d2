//! Operators who ask crawls and give them orders, in virtual time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::admin::routes::ROUTES;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::crawl::FinishReason;
use crate::crawl::core::tests::operated::Trial;
use crate::crawl::core::tests::trial::{finish, get};
use crate::io::sim::{Faults, FullDisk};

#[test]
fn a_paused_crawl_sends_nothing_until_it_is_resumed() {
    let mut trial = Trial::new(50);
    trial.run(500);
    assert_eq!(
        trial.ask_well("POST", "/v1/pause", ""),
        json!({"paused": true})
    );
    // What has departed arrives within a millisecond.
    trial.run(10);
    let paused_at = trial.now();
    trial.run(2000);
    assert_eq!(trial.hits_since(paused_at), [] as [Instant; 0]);
    let (status, why) = trial.ask("GET", "/readyz", "");
    assert_eq!((status, why), (503, json!("the crawl is paused\n")));
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(true)
    );
    trial.ask_well("POST", "/v1/resume", "");
    trial.run(1000);
    assert!(trial.hits_since(paused_at).len() >= 18);
    assert_eq!(trial.ask_well("GET", "/readyz", ""), json!("ready\n"));
    let orders: Vec<Value> = trial.orders();
    let names: Vec<&str> = orders
        .iter()
        .filter_map(|line| line["order"].as_str())
        .collect();
    assert_eq!(names, ["pause", "resume"]);
    assert_eq!(
        (&orders[0]["uid"], &orders[0]["after"]),
        (&json!(1000), &json!(true))
    );
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 100);
}

#[test]
fn the_pace_of_a_scope_changes_at_once_and_its_state_shows_it() {
    let mut trial = Trial::new(50);
    trial.run(500);
    let reply = trial.ask_well("PUT", "/v1/scopes/10.0.0.1", r#"{"delay": 5}"#);
    assert_eq!(
        reply,
        json!({"scope": "10.0.0.1", "settings": {"delay": 5}})
    );
    let changed_at = trial.now();
    trial.run(20_000);
    let of_first = {
        let world = trial.world.borrow();
        let origins = world.origins.borrow();
        let first: SocketAddr = "10.0.0.1:80".parse().expect("an address");
        let hits = origins.hits().iter().filter(|hit| hit.to == first);
        hits.map(|hit| hit.at).collect::<Vec<_>>()
    };
    let later: Vec<Instant> = of_first.into_iter().filter(|at| *at > changed_at).collect();
    assert!(later.len() >= 3, "{later:?}");
    for pair in later.windows(2) {
        assert!(pair[1].saturating_since(pair[0]) >= Duration::from_millis(4990));
    }
    let scope = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "");
    assert_eq!(scope["settings"], json!({"delay": 5}));
    assert_eq!(scope["now"]["delay"], json!(5.0));
    assert_eq!(scope["now"]["waits_for"], json!("delay"));
    assert!(scope["now"]["next_send"].is_string(), "{scope}");
    let list = trial.ask_well("GET", "/v1/scopes?sort=delay&match=10.*&limit=1", "");
    assert_eq!(list["scopes"][0]["scope"], json!("10.0.0.1"));
    assert_eq!(list["scopes"].as_array().map(Vec::len), Some(1));
    let order = &trial.orders()[0];
    assert_eq!(
        (&order["before"], &order["after"]),
        (&json!({}), &json!({"delay": 5}))
    );
}

#[test]
fn seeds_are_added_and_a_scope_is_cancelled() {
    let mut trial = Trial::new(50);
    trial.run(300);
    trial.ask_well("POST", "/v1/scopes/10.0.0.2/cancel", "");
    let seeds = "http://10.0.0.3/7\n# a comment\n\nhttp://10.0.0.3/8\nhttp://10.0.0.3:99999/\n";
    let reply = trial.ask_well("POST", "/v1/seeds", seeds);
    assert_eq!(reply["accepted"], json!(2));
    assert_eq!(reply["rejected"][0]["url"], json!("http://10.0.0.3:99999/"));
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    let pages = trial.record.pages.borrow();
    let ends = |host: &str| {
        let of_host = pages.iter().filter(|page| page.url.contains(host));
        let failures = of_host.map(|page| page.failure.as_ref().map(|failure| failure.code()));
        failures.collect::<Vec<_>>()
    };
    assert_eq!(ends("10.0.0.3"), [None, None]);
    let cancelled = ends("10.0.0.2");
    assert_eq!(cancelled.len(), 50);
    let asked = cancelled
        .iter()
        .flatten()
        .filter(|code| **code == "cancelled.asked");
    assert!(asked.count() >= 45);
    assert!(ends("10.0.0.1").iter().all(Option::is_none));
}

#[test]
fn an_order_that_waits_for_the_disk_is_in_effect_and_is_answered_in_time() {
    let full = FullDisk {
        below: PathBuf::from("/crawl"),
        from: Duration::ZERO,
        until: Duration::from_secs(60),
        free: 0,
    };
    let faults = Faults {
        disk_full: vec![full],
        ..Faults::default()
    };
    let mut trial = Trial::under(faults, 1000);
    trial.run(300);
    let order =
        trial.send(b"PUT /v1/scopes/10.0.0.1 HTTP/1.1\r\nContent-Length: 12\r\n\r\n{\"delay\": 7}");
    trial.run(9_000);
    assert_eq!(trial.reply(order), None);
    trial.run(3_000);
    let (status, words) = trial.reply(order).expect("it is answered");
    assert_eq!(status, 202, "{words}");
    let scope = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "");
    assert_eq!(scope["settings"], json!({"delay": 7}));
    trial.run(60_000);
    assert_eq!(trial.orders().len(), 1);
}

#[test]
fn a_handle_resumes_what_an_operator_has_paused() {
    let mut trial = Trial::new(50);
    let handle = trial.crawler.handle();
    trial.run(300);
    trial.ask_well("POST", "/v1/pause", "");
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(true)
    );
    // It does not by being dropped.
    drop(handle.clone());
    drop(handle);
    trial.run(500);
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(true)
    );
    let handle = trial.crawler.handle();
    handle.resume();
    trial.run(1_500);
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(false)
    );
    handle.pause();
    trial.run(10);
    let reply = trial.ask_well("POST", "/v1/resume", "");
    assert_eq!(
        reply,
        json!({"paused": true}),
        "the handle still wants a pause"
    );
    drop(handle);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
}

#[test]
fn many_different_questions_about_all_scopes_are_refused_for_a_while() {
    let mut trial = Trial::new(50);
    trial.run(300);
    let stars = format!("/v1/scopes?match={}", "*".repeat(9));
    assert_eq!(trial.ask("GET", &stars, "").0, 400);
    trial.run(1_000);
    let ask = |trial: &mut Trial, number: u32| {
        trial
            .ask("GET", &format!("/v1/scopes?match=a{number}"), "")
            .0
    };
    let statuses: Vec<u16> = (0..20).map(|number| ask(&mut trial, number)).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        16,
        "{statuses:?}"
    );
    assert_eq!(statuses[19], 503);
    trial.run(1_000);
    assert_eq!(ask(&mut trial, 30), 200);
}

#[test]
fn malformed_questions_about_all_scopes_do_not_keep_others_from_an_answer() {
    let mut trial = Trial::new(50);
    trial.run(300);
    for number in 0..40 {
        let (status, _) = trial.ask("GET", &format!("/v1/scopes?sort=a{number}"), "");
        assert_eq!(status, 400);
    }
    assert_eq!(trial.ask("GET", "/v1/scopes", "").0, 200);
    assert_eq!(trial.ask("GET", "/v1/status", "").0, 200);
}

#[test]
fn metrics_are_made_once_in_a_second_whatever_else_is_asked_or_ordered() {
    let mut trial = Trial::new(300);
    trial.run(1_300);
    let (_, first) = trial.ask("GET", "/metrics", "");
    for number in 0..12 {
        trial.ask("GET", &format!("/v1/scopes?match=a{number}"), "");
    }
    trial.ask_well("PUT", "/v1/scopes/10.0.0.1", r#"{"delay": 0}"#);
    trial.run(300);
    assert_eq!(trial.ask("GET", "/metrics", "").1, first);
    trial.run(1_000);
    assert_ne!(trial.ask("GET", "/metrics", "").1, first);
}

#[test]
fn a_long_list_of_scopes_is_described_in_steps_and_is_the_same_for_a_second() {
    let mut trial = Trial::with(|config| config.throttle.default.delay = Duration::ZERO);
    let urls = (1..=60).map(|host| get(host, 1));
    for request in urls {
        trial.crawler.submit(request).expect("it is a URL");
    }
    trial.run(3_000);
    let list = trial.ask_well("GET", "/v1/scopes?sort=sent&limit=100", "");
    let scopes = list["scopes"].as_array().expect("a list").clone();
    assert_eq!((&list["sort"], scopes.len()), (&json!("sent"), 60));
    assert_eq!(
        trial.ask_well("GET", "/v1/scopes?sort=sent&limit=100", ""),
        list
    );
    let all = trial.ask_well("GET", "/v1/scopes?state=any&limit=100", "");
    for scope in all["scopes"].as_array().expect("a list") {
        assert!(scope["scope"].is_string(), "{scope}");
    }
}

#[test]
fn what_a_program_orders_by_its_handle_has_a_line_as_well() {
    let mut trial = Trial::new(50);
    let handle = trial.crawler.handle();
    trial.run(300);
    let patch = r#"{"delay": 3}"#.parse().expect("a patch");
    handle.set_scope("10.0.0.1", patch).expect("it is sound");
    handle.exclude("10.0.0.2").expect("it is a host");
    handle
        .set_host_priority("10.0.0.1", 5)
        .expect("it is a host");
    handle.forget("10.0.0.1").expect("there is room");
    handle
        .set_log_level(log::max_level())
        .expect("there is room");
    handle.cancel_scope("10.0.0.1").expect("there is room");
    trial.run(300);
    trial.ask_well("POST", "/v1/pause", "");
    handle.resume();
    trial.run(300);
    let orders = trial.orders();
    let names: Vec<&str> = orders
        .iter()
        .filter_map(|line| line["order"].as_str())
        .collect();
    let expected = [
        "scope", "exclude", "priority", "forget", "log", "cancel", "pause", "resume",
    ];
    assert_eq!(names, expected);
    assert_eq!(orders[0]["after"], json!({"delay": 3}));
    assert_eq!(
        (&orders[1]["host"], &orders[1]["after"]),
        (&json!("10.0.0.2"), &json!(true))
    );
    assert_eq!(
        (&orders[2]["before"], &orders[2]["after"]),
        (&json!(0), &json!(5))
    );
    assert!(
        orders
            .iter()
            .all(|line| line["order"] == "pause" || line["uid"].is_null())
    );
}

#[test]
fn an_operator_stops_the_crawl_and_the_listener_is_closed() {
    let mut trial = Trial::new(50);
    trial.run(300);
    let reply = trial.ask_well("POST", "/v1/stop", r#"{"grace": 0.5}"#);
    assert_eq!(reply, json!({"grace": 0.5}));
    assert_eq!(finish(&mut trial.crawler), FinishReason::Shutdown);
    assert_eq!(
        trial.crawler.take_pending().count() + trial.record.pages.borrow().len(),
        100
    );
    // It is refused.
    let conn = trial.send(b"GET /healthz HTTP/1.1\r\n\r\n");
    trial.pass(Duration::from_secs(1));
    assert!(trial.world.borrow().closed.contains(&conn));
}

#[test]
fn an_order_that_is_wrong_changes_nothing_and_is_not_recorded() {
    let mut trial = Trial::new(20);
    trial.run(300);
    let bad = [
        ("PUT", "/v1/scopes/10.0.0.1", "{", 400),
        ("PUT", "/v1/scopes/10.0.0.1", r#"{"delay": -1}"#, 400),
        ("PUT", "/v1/scopes/10.0.0.1", r#"{"dealy": 1}"#, 400),
        ("POST", "/v1/stop", r#"{"grace": "soon"}"#, 400),
        ("POST", "/v1/stop", r#"{"grace": -1}"#, 400),
        ("POST", "/v1/stop", "[]", 400),
        (
            "POST",
            "/v1/seeds",
            "http://10.0.0.3/1\n{\"url\": 1}\n",
            400,
        ),
        ("GET", "/v1/scopes?sort=name", "", 400),
        ("GET", "/v1/scopes?limit=0", "", 400),
        ("GET", "/v1/scopes?limit=1001", "", 400),
        ("GET", "/v1/scopes/nowhere.test", "", 404),
        ("GET", "/v1/stop", "", 405),
    ];
    for (method, path, body, expected) in bad {
        let (status, reply) = trial.ask(method, path, body);
        assert_eq!(status, expected, "{method} {path}: {reply}");
        assert!(reply["error"].is_string(), "{method} {path}: {reply}");
    }
    assert_eq!(trial.orders(), [] as [Value; 0]);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 40);
}

#[test]
fn the_description_has_the_routes_and_the_keys_of_the_replies() {
    let description: Value =
        serde_json::from_str(include_str!("../../../admin/openapi.json")).expect("it is JSON");
    let paths = description["paths"].as_object().expect("it has paths");
    let mut described: Vec<(String, String)> = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().expect("it has methods") {
            described.push((path.clone(), method.to_uppercase()));
            let route = ROUTES
                .iter()
                .find(|route| route.path == path && route.method == method.to_uppercase());
            let route = route.unwrap_or_else(|| panic!("there is no {method} {path}"));
            let parameters = operation["parameters"].as_array();
            let parameters = parameters.into_iter().flatten();
            let names = parameters.filter(|parameter| parameter["in"] == "query");
            let names: Vec<&str> = names.filter_map(|one| one["name"].as_str()).collect();
            assert_eq!(names, route.parameters, "{method} {path}");
        }
    }
    for route in ROUTES {
        let this = (route.path.to_owned(), route.method.to_owned());
        assert!(described.contains(&this), "{this:?} is not described");
    }
    let mut trial = Trial::new(20);
    trial.run(500);
    let same = trial.crawler.config().clone();
    trial
        .crawler
        .reload_from(move |answer| answer.give(Ok(same.clone())));
    let mut check = |method: &str, path: &str, body: &str, schema: &str| {
        let reply = trial.ask_well(method, path, body);
        has_keys(&description, schema, &reply);
    };
    check("GET", "/v1/status", "", "Status");
    check("GET", "/v1/history", "", "History");
    check("GET", "/v1/scopes", "", "Scopes");
    check("GET", "/v1/scopes?state=any", "", "ScopesInState");
    check("GET", "/v1/queues", "", "Queues");
    check("GET", "/v1/scopes/10.0.0.1", "", "Scope");
    check("GET", "/v1/scopes/10.0.0.1/decisions", "", "Decisions");
    check("GET", "/v1/hosts/10.0.0.1", "", "Host");
    let priority = r#"{"priority": 3}"#;
    check("PUT", "/v1/hosts/10.0.0.1/priority", priority, "Priority");
    check("GET", "/v1/urls/http%3A%2F%2F10.0.0.1%2F19", "", "Url");
    check("GET", "/v1/urls/http%3A%2F%2F10.0.0.1%2F0", "", "Url");
    check("PUT", "/v1/scopes/10.0.0.1", "{}", "Changed");
    check("PATCH", "/v1/scopes/10.0.0.1", "{}", "Changed");
    check("POST", "/v1/scopes/10.0.0.1/forget", "", "Forgotten");
    check("DELETE", "/v1/scopes/10.0.0.1", "", "Changed");
    check("GET", "/v1/limits", "", "Limits");
    let limit = r#"{"CONCURRENT_REQUESTS": 9}"#;
    check("PUT", "/v1/limits", limit, "Limits");
    check("POST", "/v1/reload", "", "Reloaded");
    check("GET", "/v1/log", "", "Log");
    check("POST", "/v1/scopes/nowhere/cancel", "", "Cancelled");
    check("PUT", "/v1/exclusions/a.test", "", "Exclusions");
    check("GET", "/v1/exclusions", "", "Exclusions");
    check("POST", "/v1/pause", "", "Paused");
    check("POST", "/v1/resume", "", "Paused");
    check("POST", "/v1/rotate", "", "Rotated");
    check("POST", "/v1/seeds", "http://10.0.0.3/1", "Seeds");
    assert_eq!(trial.ask_well("GET", "/v1/openapi.json", ""), description);
    let metrics = trial.ask_well("GET", "/metrics", "");
    let metrics = metrics.as_str().expect("it is text");
    assert!(metrics.contains("# TYPE argiope_"), "{metrics}");
    assert!(metrics.contains("10.0.0.1"), "{metrics}");
    let sample = trial.ask_well("GET", "/v1/history", "")["samples"][0].clone();
    let described = &description["components"]["schemas"]["History"];
    let described = &described["properties"]["samples"]["items"]["properties"];
    let described = described.as_object().expect("it has properties").keys();
    let found = sample.as_object().expect("it is an object").keys();
    assert!(described.eq(found), "each key of a sample is described");
    let present = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "")["now"].clone();
    has_keys(&description, "Present", &present);
    let described = &description["components"]["schemas"]["Present"]["properties"];
    let described = described.as_object().expect("it has properties").keys();
    let found = present.as_object().expect("it is an object").keys();
    assert!(
        described.eq(found),
        "each key of a scope's state is described"
    );
}

/// A reply has the keys that its schema requires, of their types.
fn has_keys(description: &Value, schema: &str, reply: &Value) {
    let schema = &description["components"]["schemas"][schema];
    let required = schema["required"].as_array().into_iter().flatten();
    for key in required.filter_map(Value::as_str) {
        let found = &reply[key];
        assert!(reply.get(key).is_some(), "{key} is missing: {reply}");
        let kind = match found {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let described = schema["properties"][key]["type"].to_string();
        let fits = described.contains(kind)
            || described.contains("integer") && found.is_u64()
            || described == "null";
        assert!(fits, "{key} is {found}, not {described}");
    }
}

#[test]
fn nonsense_from_operators_changes_nothing() {
    let pages = |nonsense: bool| {
        let mut trial = Trial::new(30);
        let mut rng = Rng::from_seed(5);
        if nonsense {
            for _ in 0..200 {
                let length = rng.below(400) as usize;
                let mut bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
                match rng.below(4) {
                    0 => bytes = b"GET /v1/status HTTP/1.1\r\nX: ".repeat(1 + length),
                    1 => bytes
                        .splice(..0, *b"POST /v1/pau HTTP/1.1\r\n")
                        .for_each(drop),
                    2 => {
                        bytes =
                            b"PUT /v1/scopes/a HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n".to_vec()
                    }
                    _ => {}
                }
                trial.send(&bytes);
                trial.run(rng.below(30));
            }
        }
        assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
        assert_eq!(trial.orders(), [] as [Value; 0]);
        let pages = trial.record.pages.borrow();
        let mut urls: Vec<String> = pages.iter().map(|page| page.url.clone()).collect();
        urls.sort();
        urls
    };
    assert_eq!(pages(true), pages(false));
}

#[test]
fn a_stream_has_an_event_each_second_with_the_present_status() {
    let mut trial = Trial::new(1000);
    let streams = [trial.stream(), trial.stream()];
    let mut arrived = Vec::new();
    for _ in 0..200 {
        let before = trial.events(streams[0]).len();
        trial.run(100);
        arrived.push(trial.events(streams[0]).len() - before);
    }
    let in_a_second: Vec<usize> = arrived.windows(10).map(|some| some.iter().sum()).collect();
    assert!(
        in_a_second.iter().all(|number| *number <= 2),
        "{in_a_second:?}"
    );
    let events = trial.events(streams[0]);
    assert!((19..=21).contains(&events.len()), "{}", events.len());
    for stream in streams {
        for pair in trial.events(stream).windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(|event| event["elapsed"].as_f64());
            assert!(before < after, "an event is not that before: {before:?}");
        }
    }
    let description: Value =
        serde_json::from_str(include_str!("../../../admin/openapi.json")).expect("it is JSON");
    has_keys(&description, "Status", &events[20 - 2]);
    assert_eq!(trial.world.borrow().closed, []);
}

#[test]
fn orders_about_names_that_no_request_has_are_refused_with_what_was_meant() {
    let refused = |trial: &mut Trial, method: &str, path: &str, part: &str| {
        let (status, reply) = trial.ask(method, path, "{}");
        let message = reply["error"].as_str().unwrap_or_default();
        assert_eq!(status, 400, "{method} {path}: {reply}");
        assert!(message.contains(part), "{method} {path}: {message}");
    };
    let mut trial = Trial::new(50);
    trial.run(300);
    for (method, path, part) in [
        ("PUT", "/v1/scopes/ip%2F192.0.2.1", "SCOPE_MAP has no ip"),
        ("PATCH", "/v1/scopes/ip%2F*", "SCOPE_MAP has no ip"),
        (
            "POST",
            "/v1/scopes/ip%2F192.0.2.1/forget",
            "SCOPE_MAP has no ip",
        ),
        ("POST", "/v1/scopes/ip%2F192.0.2.1/cancel", "192.0.2.1/32"),
        (
            "POST",
            "/v1/scopes/ip%2F2001:db8::1/cancel",
            "2001:db8::1/128",
        ),
        ("POST", "/v1/scopes/*.a.test/cancel", "exclude the domain"),
        ("POST", "/v1/scopes/domain%2F*/cancel", "is a pattern"),
        (
            "PUT",
            "/v1/scopes/domain%2Fa.test",
            "the name of the domain: a.test",
        ),
        (
            "POST",
            "/v1/scopes/domain%2Fa.test/cancel",
            "of the domain: a.test",
        ),
    ] {
        refused(&mut trial, method, path, part);
    }
    assert_eq!(trial.orders(), [] as [Value; 0]);
    trial.ask_well("PUT", "/v1/scopes/domain%2F*", r#"{"delay": 1}"#);
    trial.ask_well("PUT", "/v1/scopes/*.a.test", r#"{"delay": 1}"#);
    trial.ask_well("DELETE", "/v1/scopes/ip%2F192.0.2.1", "");
    // Where addresses are scopes, those that come later have settings, too; what is there is cancelled.
    let mut trial = Trial::with(|config| config.throttle.concurrent_requests_per_ip = 3);
    trial.submit(50);
    trial.run(300);
    trial.ask_well("PUT", "/v1/scopes/ip%2F192.0.2.1", r#"{"delay": 1}"#);
    refused(
        &mut trial,
        "POST",
        "/v1/scopes/ip%2F192.0.2.2/cancel",
        "192.0.2.2/32",
    );
    trial.ask_well("POST", "/v1/scopes/ip%2F10.0.0.1/cancel", "");
    // A request may have such a scope of its own.
    let mut trial = Trial::with(|_| {});
    let request = get(1, 1).scope("ip/192.0.2.9").scope("*.b.test");
    trial.crawler.submit(request).expect("it is a URL");
    trial.run(1);
    trial.ask_well("PUT", "/v1/scopes/ip%2F192.0.2.9", r#"{"delay": 1}"#);
    trial.ask_well("POST", "/v1/scopes/*.b.test/cancel", "");
}

#[test]
fn the_history_has_the_totals_of_each_five_seconds_also_of_a_pause() {
    let mut trial = Trial::new(100);
    trial.run(7500);
    trial.ask_well("POST", "/v1/pause", "");
    trial.run(10_000);
    let status = trial.ask_well("GET", "/v1/status", "");
    let history = trial.ask_well("GET", "/v1/history", "");
    assert_eq!(history["started"], status["started"]);
    let samples = history["samples"].as_array().expect("a list");
    let seconds = |sample: &Value| sample["elapsed"].as_f64().map(f64::round);
    let seconds: Vec<f64> = samples.iter().filter_map(seconds).collect();
    assert_eq!(seconds, [0.0, 5.0, 10.0, 15.0]);
    let pages: Vec<u64> = (samples.iter())
        .filter_map(|sample| sample["pages"].as_u64())
        .collect();
    assert_eq!(pages[0], 0);
    assert!((90..=102).contains(&pages[1]), "{pages:?}");
    assert_eq!(json!(pages[2]), status["pages"]);
    assert_eq!(pages[2], pages[3]);
    for key in ["bytes_wire", "server_latency", "lateness"] {
        let last = &samples[3][key];
        match key {
            "bytes_wire" => assert_eq!(*last, status[key]),
            _ => assert_eq!(last["count"], status[key]["count"], "{key}"),
        }
    }
    let mean = |value: &Value| value["server_latency"]["mean"].as_f64().expect("a mean");
    assert!((mean(&samples[3]) - mean(&status)).abs() < 1e-12);
    assert!(samples[0]["server_latency"].is_null());
}

#[test]
fn a_stream_of_a_paused_crawl_goes_on_beyond_the_time_of_an_idle_connection() {
    let mut trial = Trial::new(10);
    trial.ask_well("POST", "/v1/pause", "");
    let stream = trial.stream();
    trial.run(200_000);
    let events = trial.events(stream);
    assert!((199..=201).contains(&events.len()), "{}", events.len());
    assert!(events.iter().all(|event| event["paused"] == json!(true)));
    assert!(!trial.world.borrow().closed.contains(&stream));
}

#[test]
fn the_last_event_of_a_stream_has_the_phase_over_and_the_final_totals() {
    let mut trial = Trial::new(20);
    let stream = trial.stream();
    trial.run(1500);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    trial.pass(Duration::from_secs(1));
    let events = trial.events(stream);
    let (last, earlier) = events.split_last().expect("there are some");
    assert_eq!(last["phase"], json!("over"));
    assert_eq!(last["finish_reason"], json!("finished"));
    assert_eq!(last["pages"], json!(40));
    assert!(earlier.iter().all(|event| event["phase"] != json!("over")));
    assert!(trial.world.borrow().closed.contains(&stream));
}

#[test]
fn streams_that_clients_end_or_reset_are_closed() {
    let mut trial = Trial::new(100);
    let [ended, reset] = [trial.stream(), trial.stream()];
    trial.run(1500);
    let net = trial.crawler.io_mut().net();
    net.end(ended, Duration::ZERO);
    net.reset(reset, Duration::ZERO);
    trial.run(1500);
    assert!(trial.world.borrow().closed.contains(&ended));
    assert!(trial.crawler.core.steering.is_empty());
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 200);
}

#[test]
fn the_page_is_sent_with_a_policy_that_allows_nothing_else() {
    let mut trial = Trial::new(5);
    let conn = trial.send(b"GET / HTTP/1.1\r\n\r\n");
    trial.run(100);
    let world = trial.world.borrow();
    let reply = String::from_utf8_lossy(&world.replies[&conn]).into_owned();
    let (head, body) = reply.split_once("\r\n\r\n").expect("it is whole");
    assert!(
        head.contains("Content-Type: text/html; charset=utf-8\r\n"),
        "{head}"
    );
    let policy = head.split("Content-Security-Policy: ").nth(1);
    let policy = policy.and_then(|rest| rest.lines().next());
    let policy = policy.expect("there is a policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    for part in [
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(part), "{part} is not in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(body, include_str!("../../../admin/page.html"));
}

#[test]
fn a_connection_without_a_whole_request_is_closed_in_time() {
    let mut trial = Trial::new(1000);
    let slow = trial.send(b"GET /v1/sta");
    let silent = trial.send(b"");
    trial.run(9_000);
    assert_eq!(trial.world.borrow().closed, []);
    trial.run(3_000);
    assert_eq!(trial.world.borrow().closed, [slow, silent]);
}
