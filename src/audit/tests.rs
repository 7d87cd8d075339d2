//! What one request, or a few, show of the bounds and rules of an audit.

use serde_json::{Value, json};

use super::*;

/// A time so many milliseconds after the beginning of the run.
fn at(millis: u64) -> String {
    Time((1_795_219_200_000 + millis) * 1_000_000).to_string()
}

fn entry(delay: f64) -> Value {
    json!({
        "concurrency": 2, "delay": delay, "delay_per_slot": 0.0, "jitter": [0.0, 0.0], "backoff_jitter": null,
        "hold_until": null, "hold_max": 300.0, "rampup_min_delay": null, "requests_per_minute": null,
        "managed": false, "own_delay": false, "own_concurrency": false
    })
}

fn settings(delay: f64, scopes: &[(&str, f64)]) -> Value {
    let mut entries = json!({});
    for (name, delay) in scopes {
        entries[*name] = entry(*delay);
    }
    json!({
        "user_agent": "a", "concurrent_requests": 9, "concurrent_requests_per_ip": 0,
        "scope_map": ["host", "domain"], "default": entry(delay), "scopes": entries,
        "robots": {
            "obeyed": false, "agent": "a", "crawl_delay": true, "crawl_delay_max": 60.0, "keeps_concurrency": false
        },
        "holds": {"obeyed_fully": false, "redirect_max": 120.0}, "allow_net": [], "exclude_nets": [],
        "exclude_hosts": [], "excluded": [], "proxied": false
    })
}

fn start(settings: Value) -> Value {
    json!({
        "event": "start", "at": at(0), "version": "1", "committed": null, "paused": false, "settings": settings
    })
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn evidence(runs: &[Value], orders: &[Value]) -> Evidence {
    Evidence {
        runs: RunLog::read(text(runs).as_bytes()).expect("it is in memory"),
        orders: Orders::read(text(orders).as_bytes()).expect("it is in memory"),
        robots: RobotsLog::default(),
    }
}

/// A request under one scope, allowed at `due` and sent at `sent`.
fn sent(id: u64, scope: &str, due: u64, sent: u64) -> Value {
    json!({
        "id": id, "kind": "page", "url": format!("http://{scope}/"), "scopes": [scope], "status": 200,
        "remote": "93.184.216.34:80", "started": at(due.min(sent)), "due": at(due), "sent": at(sent),
        "headers": null, "body": null, "ended": 0.0
    })
}

fn judge(mut auditor: Auditor, lines: &[Value]) -> Verdict {
    for line in lines {
        let line = line.to_string();
        auditor.add(&Attempt::parse(line.as_bytes()).expect("a result line"));
    }
    auditor.finish().0
}

#[test]
fn a_line_that_comes_too_late_is_counted_and_makes_the_verdict_incomplete() {
    let lines = [
        sent(1, "a.test", 2_000, 2_000),
        sent(2, "b.test", 3_000, 3_000),
        sent(3, "a.test", 1_500, 1_500),
    ];
    let runs = [start(settings(1.0, &[]))];
    let verdict = judge(Auditor::bounded(evidence(&runs, &[]), 9, 1), &lines);
    assert_eq!(
        (verdict.verdict, verdict.unjudged.unordered),
        ("incomplete", 1)
    );
    // With room for it the gap is too short.
    let verdict = judge(Auditor::bounded(evidence(&runs, &[]), 9, 9), &lines);
    assert_eq!(verdict.kinds, [(Kind::Gap, 1)]);
    assert_eq!(
        (verdict.violations[0].id, verdict.violations[0].after),
        (1, Some(3))
    );
}

#[test]
fn departures_under_more_names_than_are_kept_are_counted() {
    let lines = [
        sent(1, "a.test", 1_000, 1_000),
        sent(2, "b.test", 1_000, 1_000),
        sent(3, "b.test", 1_001, 1_001),
    ];
    let runs = [start(settings(1.0, &[]))];
    let verdict = judge(Auditor::bounded(evidence(&runs, &[]), 1, 9), &lines);
    assert_eq!(
        (verdict.verdict, verdict.unjudged.beyond_names),
        ("incomplete", 2)
    );
    assert_eq!(verdict.departures, 3);
}

#[test]
fn what_departs_in_the_turn_of_an_order_is_excused_and_counted() {
    let runs = [start(settings(0.0, &[]))];
    let pause = json!({"at": at(5_000), "order": "pause", "after": true});
    let check = |due, at, expected: (&str, u64)| {
        let auditor = Auditor::new(evidence(&runs, std::slice::from_ref(&pause)));
        let verdict = judge(auditor, &[sent(1, "a.test", due, at)]);
        assert_eq!((verdict.verdict, verdict.excused), expected, "{due} {at}");
    };
    check(4_900, 4_999, ("kept", 0));
    check(4_900, 5_500, ("kept", 1));
    check(5_001, 5_500, ("violated", 0));
    // A turn does not last longer than a second.
    check(1_000, 6_001, ("violated", 0));
}

#[test]
fn settings_count_from_their_line_on() {
    let change = |millis, name: &str, delay: Option<f64>| {
        let settings = delay.map(entry);
        json!({"event": "scope", "at": at(millis), "scope": name, "settings": settings})
    };
    let runs = [
        start(settings(1.0, &[])),
        change(5_000, "a.test", Some(3.0)),
        change(20_000, "a.test", None),
    ];
    let check = |times: [u64; 2], expected: &[(Kind, u64)]| {
        let lines = [
            sent(1, "a.test", times[0], times[0]),
            sent(2, "a.test", times[1], times[1]),
        ];
        let verdict = judge(Auditor::new(evidence(&runs, &[])), &lines);
        assert_eq!(verdict.kinds, expected, "{times:?}");
    };
    check([3_000, 4_001], &[]);
    check([6_000, 8_999], &[(Kind::Gap, 1)]);
    check([6_000, 9_000], &[]);
    check([19_500, 21_000], &[]);
}

#[test]
fn an_order_on_the_default_counts_from_its_line_on_and_exclusions_stay() {
    let mut excluding = settings(1.0, &[]);
    excluding["exclude_hosts"] = json!(["b.test"]);
    let runs = [
        start(excluding),
        json!({"event": "scopes", "at": at(5_000), "default": entry(3.0), "scopes": {"c.test": entry(9.0)}}),
    ];
    let check = |scope: &str, times: [u64; 2], expected: &[(Kind, u64)]| {
        let lines = [
            sent(1, scope, times[0], times[0]),
            sent(2, scope, times[1], times[1]),
        ];
        let verdict = judge(Auditor::new(evidence(&runs, &[])), &lines);
        assert_eq!(verdict.kinds, expected, "{scope} {times:?}");
    };
    check("a.test", [3_000, 4_001], &[]);
    check("a.test", [6_000, 8_999], &[(Kind::Gap, 1)]);
    check("c.test", [6_000, 9_001], &[(Kind::Gap, 1)]);
    check("b.test", [6_000, 9_001], &[(Kind::ExcludedHost, 2)]);
}

#[test]
fn an_order_on_a_pattern_changes_the_entries_of_its_line_and_no_others() {
    let scopes = [("*.b.test", 1.0), ("c.b.test", 1.0), ("d.test", 2.0)];
    let changed = json!({"*.b.test": entry(3.0), "c.b.test": null, "e.b.test": entry(4.0)});
    let runs = [
        start(settings(9.0, &scopes)),
        json!({"event": "scopes", "at": at(5_000), "default": entry(9.0), "changed": changed}),
    ];
    let log = RunLog::read(text(&runs).as_bytes()).expect("it is in memory");
    let gap = |number, scope| {
        let limits = log.settings(number).limits_of(scope);
        limits.map(|limits| limits.gap.div_ceil(1_000_000_000))
    };
    for (scope, before, after) in [
        ("a.b.test", 1, 3),
        ("c.b.test", 1, 3),
        ("e.b.test", 1, 4),
        ("d.test", 2, 2),
        ("x.test", 9, 9),
    ] {
        let gaps = [gap(0, scope), gap(1, scope)];
        assert_eq!(gaps, [Some(before), Some(after)], "{scope}");
    }
}

#[test]
fn the_narrowest_entry_of_a_scope_applies() {
    let scopes = [
        ("a.b.test", 1.0),
        ("*.b.test", 2.0),
        ("*.test", 3.0),
        ("domain/*", 4.0),
        ("ip/*", 5.0),
        ("key/*", 6.0),
        ("key/eu/*", 7.0),
    ];
    let runs = [start(settings(9.0, &scopes))];
    let log = RunLog::read(text(&runs).as_bytes()).expect("it is in memory");
    let gap = |scope| {
        let limits = log.settings(0).limits_of(scope);
        limits.map(|limits| limits.gap.div_ceil(1_000_000_000))
    };
    for (scope, expected) in [
        ("a.b.test", Some(1)),
        ("c.b.test:81", Some(2)),
        ("c.test", Some(3)),
        ("example.com", Some(4)),
        ("www.example.com", Some(9)),
        ("ip/192.0.2.1", Some(5)),
        ("c.b.test/path", Some(9)),
        ("key", Some(9)),
        ("key/a", Some(6)),
        ("key/eu/a", Some(7)),
        ("domain/a", Some(9)),
        ("host/a.b.test", None),
    ] {
        assert_eq!(gap(scope), expected, "{scope}");
    }
}

#[test]
fn time_between_a_commit_and_the_next_run_is_unobserved_and_gaps_across_it_are_judged() {
    let mut next = start(settings(2.0, &[]));
    (next["at"], next["committed"]) = (at(9_000).into(), at(5_000).into());
    let runs = [start(settings(2.0, &[])), next];
    for (second, kinds) in [(10_000, vec![]), (9_100, vec![(Kind::Gap, 1)])] {
        let first = second - 1_000 - if kinds.is_empty() { 6_000 } else { 0 };
        let lines = [
            sent(1, "a.test", first, first),
            sent(2, "a.test", second, second),
        ];
        let verdict = judge(Auditor::new(evidence(&runs, &[])), &lines);
        assert_eq!(verdict.kinds, kinds);
        assert_eq!(verdict.scopes[0].unobserved_gaps, 1);
        let period = serde_json::to_value(&verdict.unobserved).expect("it is JSON");
        assert_eq!(period, json!([{"from": at(5_000), "to": at(9_000)}]));
    }
}

#[test]
fn damaged_lines_of_the_log_are_counted_and_named() {
    let lines = format!(
        "{}?\n{{\"event\": \"start\"}}\n{{\"ev",
        text(&[start(settings(1.0, &[]))])
    );
    let log = RunLog::read(lines.as_bytes()).expect("it is in memory");
    let read = log.read_lines();
    assert_eq!((read.lines, read.bad, read.incomplete), (1, 2, true));
    assert_eq!(read.first_bad.as_ref().map(|(line, _)| *line), Some(2));
}

#[test]
fn each_route_has_a_robots_txt_of_its_own() {
    let mut obeying = settings(1.0, &[]);
    obeying["robots"]["obeyed"] = json!(true);
    let check = |proxied: [Option<bool>; 2], kinds: &[&str]| {
        let mut robots = [
            json!({"at": at(0), "until": at(9_000), "origin": "http://a.test", "meaning": "absent"}),
            json!({"at": at(1_000), "until": at(5_000), "origin": "http://a.test", "meaning": "unreachable"}),
        ];
        for (line, proxied) in robots.iter_mut().zip(proxied) {
            if let Some(proxied) = proxied {
                line["proxied"] = json!(proxied);
            }
        }
        let evidence = Evidence {
            robots: RobotsLog::read(text(&robots).as_bytes()).expect("it is in memory"),
            ..evidence(&[start(obeying.clone())], &[])
        };
        let lines = [2_000, 6_000].map(|time| sent(time, "a.test", time, time));
        let verdict = judge(Auditor::new(evidence), &lines);
        let found: Vec<Value> = (verdict.violations.iter())
            .map(|violation| json!(violation)["kind"].clone())
            .collect();
        assert_eq!(found, kinds, "{proxied:?}");
    };
    check([None, None], &["robots-unreachable", "robots-expired"]);
    check([Some(false), Some(true)], &[]);
    check([None, Some(true)], &[]);
    check([Some(true), None], &[]);
}
