//! What users say about throttling: every key, every malformed value, every preset.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{file, flag, refused, said};
use crate::crawl::config::{Config, Source, presets, settings};
use crate::fetch::failure::{Failure, FailureKind};
use crate::throttle::settings::{
    ADDRESSES, AutoThrottleMode, BasePace, DOMAINS, Jitter, LatencyFrom, MapKind, Oversize,
    RateLimitHeaders, ScopeSettings, Settings, WindowKind,
};

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Throttling after these sayings, which must be sound together.
fn throttle(sayings: &[(&str, Value)]) -> Settings {
    let config = said(sayings).finish();
    config
        .unwrap_or_else(|error| panic!("{sayings:?} is refused: {error}"))
        .throttle
}

/// The settings of the scope `a.test`, whose entry this is.
fn scope(entry: Value) -> ScopeSettings {
    throttle(&[("THROTTLING_SCOPES", json!({"a.test": entry}))]).of("a.test")
}

/// The error that an entry for `a.test` brings about; it must name the place.
fn check_entry(entry: Value, parts: &[&str]) {
    let shown = entry.to_string();
    let text = refused("THROTTLING_SCOPES", json!({"a.test": entry}));
    let place = r#"-s THROTTLING_SCOPES."a.test""#;
    assert!(text.starts_with(place), "{shown}: {text}");
    for part in parts {
        assert!(text.contains(part), "{shown}: {text} lacks {part}");
    }
}

/// The error that a finished config ends with.
fn unfinished(sayings: &[(&str, Value)]) -> String {
    let error = said(sayings).finish();
    error.expect_err("must be refused as a whole").to_string()
}

#[test]
fn f12_globals_hold_for_scopes_that_do_not_say_otherwise() {
    let entry = json!({"a.test": {"delay": 0.5}});
    let settings = throttle(&[
        ("THROTTLING_SCOPES", entry),
        ("CONCURRENT_REQUESTS_PER_DOMAIN", json!(3)),
        ("BACKOFF_JITTER", json!([0.01, 0.33])),
        ("THROTTLING_WINDOW_KIND", json!("sliding")),
    ]);
    let scope = settings.of("a.test");
    assert_eq!((scope.concurrency, scope.delay), (3, secs(0.5)));
    let jitter = Jitter {
        low: 0.01,
        high: 0.33,
    };
    assert_eq!(scope.backoff.jitter, jitter);
    assert_eq!(settings.window_kind, WindowKind::Sliding);
}

#[test]
fn f13_the_example_scope_is_there_until_another_map_is_given() {
    let example = |settings: &Settings| {
        let scope = settings.of("quotes.toscrape.com");
        (scope.concurrency, scope.delay, scope.delay_per_slot)
    };
    assert_eq!(
        example(&throttle(&[])),
        (16, Duration::ZERO, Duration::ZERO)
    );
    let other = throttle(&[("THROTTLING_SCOPES", json!({}))]);
    assert_eq!(example(&other), (1, secs(1.0), secs(1.0)));
}

#[test]
fn f14_an_entry_takes_every_key() {
    let scope = scope(json!({
        "concurrency": 3, "delay": "250ms", "delay_per_slot": 2, "jitter": [-0.1, 0.3],
        "ignore_robots_txt": true, "backoff": {"window": 30}, "rampup": true, "quota": 500.0,
        "window": 10, "window_kind": "sliding", "requests_per_minute": 60,
        "manager": {"name": "mine", "steps": [1, 2]}, "autothrottle": {"enabled": true},
    }));
    assert_eq!((scope.concurrency, scope.delay), (3, secs(0.25)));
    assert_eq!(scope.delay_per_slot, secs(2.0));
    assert_eq!((scope.jitter.low, scope.jitter.high), (-0.1, 0.3));
    assert_eq!(scope.backoff.window, secs(30.0));
    assert!(scope.rampup.is_some() && scope.autothrottle.is_some());
    let quota = scope.quota.expect("a quota");
    assert_eq!((quota.units, quota.window), (500.0, secs(10.0)));
    assert_eq!(quota.kind, WindowKind::Sliding);
    assert_eq!(scope.requests_per_minute, Some(60.0));
    let manager = scope.manager.expect("a manager");
    assert_eq!(manager.name, "mine");
    assert_eq!(manager.arguments["steps"], json!([1, 2]));
}

#[test]
fn f14_an_unknown_key_is_named_with_its_neighbour() {
    check_entry(json!({"dealy": 1}), &[".dealy: ", "did you mean delay?"]);
    check_entry(
        json!({"backoff": {"http_code": [429]}}),
        &[".backoff.http_code: ", "did you mean http_codes?"],
    );
    check_entry(
        json!({"rampup": {"target": 1}}),
        &[".rampup.target: ", "there is enabled, backoff_target"],
    );
    check_entry(
        json!({"autothrottle": {"modes": "robust"}}),
        &[".autothrottle.modes: ", "did you mean mode?"],
    );
}

#[test]
fn f37_a_scope_has_a_backoff_of_its_own() {
    let backoff = scope(json!({"backoff": {
        "http_codes": [429, 999], "exceptions": ["dns", "reset"], "delay_factor": 1.2,
        "max_delay": 180.0, "min_delay": 5.0, "jitter": [0.01, 0.33], "window": "30s",
        "concurrency_factor": 0.8, "per_slot": true, "enabled": true,
    }}))
    .backoff;
    assert_eq!(backoff.http_codes, [429, 999]);
    assert_eq!(backoff.exceptions, [FailureKind::Dns, FailureKind::Reset]);
    assert_eq!(
        (backoff.delay_factor, backoff.concurrency_factor),
        (1.2, 0.8)
    );
    assert_eq!(
        (backoff.min_delay, backoff.max_delay),
        (secs(5.0), secs(180.0))
    );
    assert_eq!((backoff.jitter.low, backoff.jitter.high), (0.01, 0.33));
    assert_eq!(backoff.window, secs(30.0));
    assert!(backoff.per_slot && backoff.enabled);
    assert!(!scope(json!({"backoff": false})).backoff.enabled);
    assert!(scope(json!({"backoff": {}})).backoff.enabled);
}

#[test]
fn f58_a_scope_has_a_rampup_of_its_own() {
    let rampup = |value| scope(json!({"rampup": value})).rampup;
    assert_eq!(rampup(json!(false)), None);
    assert_eq!(rampup(json!(true)), Some(Settings::default().rampup));
    let own = rampup(json!({"backoff_target": [1, 3], "delay_factor": 1.5, "min_delay": "10ms"}));
    let own = own.expect("a table switches it on");
    assert_eq!(own.backoff_target, (1, 3));
    assert_eq!((own.delay_factor, own.min_delay), (1.5, secs(0.01)));
    assert_eq!(rampup(json!({"enabled": false, "delay_factor": 3})), None);
}

#[test]
fn f73_values_of_the_wrong_type_are_refused_by_their_place() {
    let wrong = [
        json!([[1]]),
        json!({"a": {"b": {"c": [{"d": null}]}}}),
        json!("nonsense"),
        json!(null),
    ];
    let keys = [
        "concurrency",
        "delay",
        "delay_per_slot",
        "jitter",
        "ignore_robots_txt",
        "backoff",
        "rampup",
        "quota",
        "window",
        "window_kind",
        "requests_per_minute",
        "autothrottle",
        "autothrottle_enabled",
        "autothrottle_mode",
        "autothrottle_start_delay",
        "autothrottle_max_delay",
        "autothrottle_target_concurrency",
        "latency_from",
        "backoff.enabled",
        "backoff.http_codes",
        "backoff.exceptions",
        "backoff.delay_factor",
        "backoff.max_delay",
        "backoff.min_delay",
        "backoff.jitter",
        "backoff.window",
        "backoff.concurrency_factor",
        "backoff.per_slot",
        "rampup.enabled",
        "rampup.backoff_target",
        "rampup.delay_factor",
        "rampup.min_delay",
        "autothrottle.mode",
        "autothrottle.target_concurrency",
    ];
    for key in keys {
        for value in &wrong {
            let entry = key
                .rsplit('.')
                .fold(value.clone(), |inner, key| json!({key: inner}));
            check_entry(entry, &[&format!(".{key}")]);
        }
    }
    for entry in [json!(3), json!([]), json!(null), json!(true), json!("x")] {
        check_entry(entry, &["is no map; give a table"]);
    }
}

#[test]
fn numbers_beyond_their_bounds_are_refused() {
    let check = |key: &str, values: &[Value]| {
        for value in values {
            let entry = key
                .rsplit('.')
                .fold(value.clone(), |inner, key| json!({key: inner}));
            check_entry(entry, &[&format!(".{key}: ")]);
        }
    };
    let no_number = || [json!(-1), json!("nan"), json!("inf"), json!("-inf")].to_vec();
    let and = |more: &[Value]| [&no_number(), more].concat();
    check("concurrency", &and(&[json!(0), json!(1.5), json!(1.0)]));
    check("delay", &no_number());
    check("delay_per_slot", &no_number());
    check("window", &no_number());
    check("quota", &and(&[json!(0)]));
    check(
        "requests_per_minute",
        &and(&[json!(0), json!(1e-9), json!(1e300)]),
    );
    check(
        "jitter",
        &and(&[
            json!([-1.1, 0]),
            json!([0.2, 0.1]),
            json!([0, 1e9]),
            json!(1.1),
        ]),
    );
    check(
        "backoff.jitter",
        &and(&[json!([-1.1, 0]), json!([0.2, 0.1])]),
    );
    check(
        "backoff.delay_factor",
        &and(&[json!(0), json!(1), json!(0.5), json!(1e300)]),
    );
    check(
        "backoff.concurrency_factor",
        &and(&[json!(0), json!(1), json!(1.5)]),
    );
    check("backoff.max_delay", &and(&[json!(0)]));
    check("backoff.min_delay", &and(&[json!(0)]));
    check("backoff.window", &and(&[json!(0)]));
    check(
        "backoff.http_codes",
        &[
            json!([99]),
            json!([1000]),
            json!([-1]),
            json!([429.5]),
            json!("soon"),
        ],
    );
    check(
        "rampup.backoff_target",
        &and(&[
            json!(0),
            json!([0, 0]),
            json!([3, 1]),
            json!([1, 2, 3]),
            json!([]),
            json!(1.5),
        ]),
    );
    check("rampup.delay_factor", &and(&[json!(1), json!(0)]));
    check("rampup.min_delay", &no_number());
    check("autothrottle_target_concurrency", &and(&[json!(0)]));
    check("autothrottle.target_concurrency", &and(&[json!(0)]));
    check("autothrottle.start_delay", &no_number());
}

#[test]
fn a_target_of_nothing_is_refused_everywhere() {
    for name in ["AUTOTHROTTLE_TARGET_CONCURRENCY", "RAMPUP_BACKOFF_TARGET"] {
        for value in [json!(0), json!(-1), json!("0"), json!("nan")] {
            refused(name, value);
        }
    }
    let mut config = Config::default();
    config.throttle.default.autothrottle = Some(config.throttle.autothrottle.clone());
    let automatic = config.throttle.default.autothrottle.as_mut();
    automatic.expect("it is on").target_concurrency = 0.0;
    let text = config.finish().expect_err("no target").to_string();
    assert!(
        text.contains("AUTOTHROTTLE_TARGET_CONCURRENCY: 0.0 is not above 0"),
        "{text}"
    );
}

#[test]
fn an_unknown_kind_of_error_is_refused_with_its_neighbour() {
    check_entry(
        json!({"backoff": {"exceptions": ["timeuot"]}}),
        &[".backoff.exceptions: ", "did you mean timeout?"],
    );
    for name in ["BACKOFF_EXCEPTIONS", "RETRY_EXCEPTIONS"] {
        let text = refused(name, json!(["builtins.IOError"]));
        assert!(
            text.contains("is no kind of error; there is dns, connect"),
            "{text}"
        );
    }
    let config = said(&[("BACKOFF_EXCEPTIONS", json!("Timeout, dns"))]);
    let kinds = config.throttle.default.backoff.exceptions;
    assert_eq!(kinds, [FailureKind::Timeout, FailureKind::Dns]);
}

#[test]
fn every_kind_of_error_may_be_a_refusal() {
    let all: Vec<&str> = FailureKind::ALL.iter().map(|kind| kind.name()).collect();
    let config = said(&[("BACKOFF_EXCEPTIONS", json!(all))]);
    assert_eq!(config.throttle.default.backoff.exceptions, FailureKind::ALL);
    assert_eq!(config.get("BACKOFF_EXCEPTIONS"), Some(json!(all)));
}

#[test]
fn errors_are_retried_by_kind_or_by_code() {
    let is_retried = |config: &Config, kind, code| {
        let failure = Failure::new(kind, code, "");
        let names = &config.frontier.retry_exceptions;
        names.iter().any(|name| failure.is_named(name))
    };
    let usual = Config::default();
    let check = |kind, code, expected| {
        assert_eq!(is_retried(&usual, kind, code), expected, "{kind:?} {code}");
    };
    check(FailureKind::Connect, "refused", true);
    check(FailureKind::Timeout, "first_byte", true);
    check(FailureKind::Reset, "reset", true);
    check(FailureKind::Truncated, "length", true);
    check(FailureKind::Dns, "timeout", true);
    check(FailureKind::Dns, "servfail", true);
    check(FailureKind::Dns, "nxdomain", false);
    check(FailureKind::Tls, "handshake", false);
    let config = said(&[("RETRY_EXCEPTIONS", json!("Tls, dns.NXDOMAIN"))]);
    assert!(is_retried(&config, FailureKind::Tls, "any"));
    assert!(is_retried(&config, FailureKind::Dns, "nxdomain"));
    assert!(!is_retried(&config, FailureKind::Dns, "servfail"));
    assert!(!is_retried(&config, FailureKind::Timeout, "first_byte"));
    for wrong in ["dns.", "dns.a b", ".servfail", "dsn.servfail"] {
        refused("RETRY_EXCEPTIONS", json!([wrong]));
    }
}

#[test]
fn both_spellings_mean_the_same_and_only_one_is_taken() {
    let factor = |name: &str| {
        let config = said(&[(name, json!(0.8))]);
        assert_eq!(
            config.source("BACKOFF_CONCURRENCY_FACTOR"),
            &Source::Program
        );
        config.throttle.default.backoff.concurrency_factor
    };
    assert_eq!(factor("BACKOFF_CONCURRENCY_FACTOR"), 0.8);
    assert_eq!(factor("backoff_concurrency_decrease_factor"), 0.8);
    let entry = json!({"backoff": {"concurrency_decrease_factor": 0.8}});
    let config = said(&[("THROTTLING_SCOPES", json!({"a": entry}))]);
    assert_eq!(
        config.get("THROTTLING_SCOPES"),
        Some(json!({"a": {"backoff": {"concurrency_factor": 0.8}}}))
    );
    check_entry(
        json!({"backoff": {"concurrency_factor": 0.5, "concurrency_decrease_factor": 0.8}}),
        &[".backoff.concurrency_factor: is said twice"],
    );
    check_entry(
        json!({"autothrottle": {"mode": "robust"}, "autothrottle_mode": "scrapy"}),
        &[".autothrottle_mode: is said twice"],
    );
    check_entry(
        json!({"autothrottle": true, "autothrottle_enabled": false}),
        &["said twice"],
    );
    check_entry(json!({"delay": 1, "Delay": 2}), &["said twice"]);
}

#[test]
fn autothrottle_in_a_scope_is_said_flat_or_in_a_table() {
    let flat = scope(json!({
        "autothrottle_enabled": true, "autothrottle_mode": "scrapy",
        "autothrottle_start_delay": 2, "autothrottle_max_delay": 10,
        "autothrottle_target_concurrency": 0.5, "latency_from": "send",
    }));
    let table = scope(json!({"autothrottle": {
        "enabled": true, "mode": "scrapy", "start_delay": 2, "max_delay": 10,
        "target_concurrency": 0.5, "latency_from": "send",
    }}));
    assert_eq!(flat, table);
    let auto = table.autothrottle.expect("it is on");
    assert_eq!(auto.mode, AutoThrottleMode::Scrapy);
    assert_eq!((auto.start_delay, auto.max_delay), (secs(2.0), secs(10.0)));
    assert_eq!(auto.target_concurrency, 0.5);
    assert_eq!(auto.latency_from, LatencyFrom::Send);
    // Its keys alone do not switch it on: that might be faster than before.
    let entry = json!({"autothrottle": {"target_concurrency": 4}});
    assert_eq!(scope(entry), Settings::default().default);
}

#[test]
fn autothrottle_in_one_scope_keeps_what_was_said_of_all() {
    let on = || {
        (
            "THROTTLING_SCOPES",
            json!({"a.test": {"autothrottle": true}}),
        )
    };
    let check = |sayings: &[(&str, Value)], concurrency, delay: f64| {
        let scope = throttle(sayings).of("a.test");
        assert_eq!(
            (scope.concurrency, scope.delay),
            (concurrency, secs(delay)),
            "{sayings:?}"
        );
    };
    check(&[on()], 8, 0.0);
    check(
        &[on(), ("CONCURRENT_REQUESTS_PER_DOMAIN", json!(1))],
        1,
        0.0,
    );
    check(&[on(), ("DOWNLOAD_DELAY", json!(2))], 8, 2.0);
    let settings = throttle(&[
        ("AUTOTHROTTLE_ENABLED", json!(true)),
        (
            "THROTTLING_SCOPES",
            json!({"a.test": {"autothrottle": false}}),
        ),
    ]);
    let base = BasePace::usual(false);
    let scope = settings.of("a.test");
    assert_eq!(
        (scope.concurrency, scope.delay),
        (base.concurrency, base.delay)
    );
}

#[test]
fn the_latency_follows_the_mode_until_it_is_said() {
    let check = |sayings: &[(&str, Value)], expected| {
        let settings = throttle(sayings);
        assert_eq!(settings.autothrottle.latency_from, expected, "{sayings:?}");
    };
    let scrapy = || ("AUTOTHROTTLE_MODE", json!("scrapy"));
    check(&[], LatencyFrom::Send);
    check(&[scrapy()], LatencyFrom::Connect);
    check(
        &[scrapy(), ("LATENCY_FROM", json!("send"))],
        LatencyFrom::Send,
    );
    check(
        &[("LATENCY_FROM", json!("connect")), scrapy()],
        LatencyFrom::Connect,
    );
    let config = said(&[("AUTOTHROTTLE_ENABLED", json!(true)), scrapy()]);
    let auto = config.throttle.default.autothrottle.expect("it is on");
    assert_eq!(auto.latency_from, LatencyFrom::Connect);
}

#[test]
fn every_other_word_arrives_in_its_field() {
    let settings = throttle(&[
        ("RATELIMIT_HEADERS", json!("backoff")),
        ("RETRY_AFTER_OBEY", json!(true)),
        ("REDIRECT_MAX_DELAY", json!("2m")),
        ("DELAYED_REQUESTS_WARN_THRESHOLD", json!(7)),
        ("AUTOTHROTTLE_DEBUG", json!(true)),
        ("RAMPUP_BACKOFF_TARGET", json!("1,3")),
        ("THROTTLING_WINDOW", json!(5)),
        ("QUOTA_OVERSIZE", json!("refuse")),
        ("SCOPE_MAP", json!("host, ip")),
        ("THROTTLING_MANAGER", json!("mine")),
        (
            "THROTTLING_SCOPE_MANAGER",
            json!(r#"{"name": "steady", "gap": 3}"#),
        ),
        ("BACKOFF_ENABLED", json!(false)),
    ]);
    assert_eq!(settings.rate_limit_headers, RateLimitHeaders::Backoff);
    assert!(settings.obey_fully && settings.debug);
    assert_eq!(settings.redirect_max_delay, secs(120.0));
    assert_eq!(settings.delayed_requests_warn_threshold, 7);
    assert_eq!(settings.rampup.backoff_target, (1, 3));
    assert_eq!(settings.window, secs(5.0));
    assert_eq!(settings.oversize, Oversize::Refuse);
    assert_eq!(settings.scope_map, [MapKind::Host, MapKind::Ip]);
    assert_eq!(settings.manager.expect("a manager").name, "mine");
    let steady = settings.default.manager.expect("a manager");
    assert_eq!(
        (&steady.name[..], &steady.arguments["gap"]),
        ("steady", &json!(3))
    );
    assert!(!settings.default.backoff.enabled);
}

#[test]
fn malformed_words_about_throttling_are_refused() {
    let check = |name: &str, value: Value, expected: &str| {
        let text = refused(name, value);
        assert!(text.contains(expected), "{text} lacks {expected}");
    };
    check("SCOPE_MAP", json!([]), "no rule at all");
    check("SCOPE_MAP", json!(["host", "host"]), "one rule twice");
    check("SCOPE_MAP", json!("hosts"), "did you mean host?");
    check("AUTOTHROTTLE_MODE", json!("scarpy"), "did you mean scrapy?");
    check(
        "RATELIMIT_HEADERS",
        json!(true),
        "give always, backoff or off",
    );
    check("QUOTA_OVERSIZE", json!("never"), "give alone or refuse");
    check(
        "BACKOFF_HTTP_CODES",
        json!([429, 1000]),
        "1000 is no status code",
    );
    check("THROTTLING_MANAGER", json!(""), "without a name");
    check("THROTTLING_MANAGER", json!(3), "is no name");
    check("THROTTLING_MANAGER", json!({"steps": 3}), "without a name");
    check(
        "THROTTLING_SCOPE_MANAGER",
        json!({"name": "default", "x": 1}),
        "no arguments",
    );
    check(
        "THROTTLING_SCOPE_MANAGER",
        json!({"name": "a", "x": null}),
        ".x: null is nothing",
    );
    check(
        "THROTTLING_SCOPE_MANAGER",
        json!({"name": "a", "x": u64::MAX}),
        "that a file could say",
    );
    check(
        "DOMAIN_SCOPE_DEFAULTS",
        json!({"dealy": 1}),
        "DEFAULTS.dealy: there is no such key",
    );
    check("ADDRESS_SCOPE_DEFAULTS", json!([]), "give a table");
    let deep = (0..200).fold(String::from("1"), |inner, _| format!("[{inner}]"));
    check(
        "THROTTLING_SCOPES",
        json!(format!(r#"{{"a": {deep}}}"#)),
        "is no map",
    );
}

#[test]
fn the_least_delay_of_a_backoff_is_not_above_the_longest() {
    let text = unfinished(&[("BACKOFF_MAX_DELAY", json!(0.5))]);
    assert!(
        text.starts_with("BACKOFF_MAX_DELAY: min_delay is 1s, more than"),
        "{text}"
    );
    let text = unfinished(&[("BACKOFF_MIN_DELAY", json!(301))]);
    assert!(text.starts_with("BACKOFF_MIN_DELAY: "), "{text}");
    let entry = json!({"a.test": {"backoff": {"max_delay": 0.5}}});
    let text = unfinished(&[("THROTTLING_SCOPES", entry.clone())]);
    assert!(
        text.contains(r#"THROTTLING_SCOPES."a.test".backoff.min_delay: "#),
        "{text}"
    );
    // In any order, and together with the other.
    let settings = throttle(&[
        ("BACKOFF_MIN_DELAY", json!(400)),
        ("BACKOFF_MAX_DELAY", json!(500)),
    ]);
    assert_eq!(settings.default.backoff.min_delay, secs(400.0));
    throttle(&[
        ("THROTTLING_SCOPES", entry),
        ("BACKOFF_MIN_DELAY", json!(0.1)),
    ]);
}

#[test]
fn names_of_scopes_are_normalised_wherever_a_host_stands() {
    let check = |name: &str, expected: &str| {
        let config = said(&[("THROTTLING_SCOPES", json!({name: {}}))]);
        let names: Vec<_> = config.throttle.scopes.keys().collect();
        assert_eq!(names, [expected]);
    };
    check("*.Example.COM", "*.example.com");
    #[cfg(feature = "idn")]
    check("*.Bücher.example", "*.xn--bcher-kva.example");
    check("host/A.test:80", "host/a.test");
    check("API.test/Fast-Endpoint", "api.test/Fast-Endpoint");
    check("api.test:80/a/../b", "api.test/b");
    check("ip/2001:DB8:0::1", "ip/2001:db8::1");
    check("ip/[::1]", "ip/::1");
    check("ip/*", ADDRESSES);
    check("domain/*", DOMAINS);
    check("my/own name", "my/own name");
    let wrong = |name: &str, expected: &str| {
        let text = refused("THROTTLING_SCOPES", json!({name: {}}));
        assert!(text.contains(expected), "{text}");
    };
    wrong("*", "a star stands for");
    wrong("a.*.test", "a star stands for");
    wrong("*.*.test", "a star stands for");
    wrong("host/*", "a star stands for");
    wrong("ip/a.test", "no address");
    wrong("a.test/x?y=1", "a query is no part");
    // It would be no host's, and nobody would notice.
    #[cfg(not(feature = "idn"))]
    for name in [
        "Bücher.example",
        "*.bücher.example",
        "host/bücher.example",
        "bücher.example/x",
    ] {
        wrong(name, "the feature `idn`");
    }
    let twice = json!({"*.A.test": {}, "*.a.test": {}});
    assert!(refused("THROTTLING_SCOPES", twice).contains("named twice"));
    let twice = json!({"ip/::1": {}, "ip/0::1": {}});
    assert!(refused("THROTTLING_SCOPES", twice).contains("named twice"));
}

#[test]
fn what_is_excluded_is_named_as_urls_name_it() {
    #[cfg(feature = "idn")]
    {
        let config = said(&[(
            "EXCLUDE",
            json!(["Bücher.example", "*.bücher.example", "A.test"]),
        )]);
        let expected = ["xn--bcher-kva.example", "*.xn--bcher-kva.example", "a.test"];
        assert_eq!(config.frontier.exclude_hosts, expected);
    }
    #[cfg(not(feature = "idn"))]
    for name in ["bücher.example", "*.bücher.example"] {
        let text = refused("EXCLUDE", json!([name]));
        assert!(text.contains("the feature `idn`"), "{text}");
    }
}

#[test]
fn slots_stand_below_scopes_in_every_table() {
    let settings = throttle(&[
        (
            "DOWNLOAD_SLOTS",
            json!({"a.test": {"delay": 5, "concurrency": 2}}),
        ),
        (
            "THROTTLING_SCOPES",
            json!({"a.test": {"concurrency": 3, "rampup": true}}),
        ),
    ]);
    let scope = settings.of("a.test");
    assert_eq!((scope.concurrency, scope.delay), (3, secs(5.0)));
    assert_eq!(scope.delay_per_slot, Duration::ZERO);
    assert!(scope.rampup.is_some());
}

#[test]
fn f20_a_slot_and_a_scope_that_say_the_same_are_the_same() {
    let pace = |name: &str, jitter: &str| {
        let entry = json!({"a.test": {"concurrency": 2, "delay": 0.2, jitter: false}});
        throttle(&[(name, entry)]).of("a.test")
    };
    assert_eq!(
        pace("DOWNLOAD_SLOTS", "randomize_delay"),
        pace("THROTTLING_SCOPES", "jitter")
    );
}

#[test]
fn the_entry_called_default_is_all_other_scopes() {
    let entries = json!({
        "default": {"concurrency": 4, "rampup": true, "jitter": false, "quota": 9, "window": 3,
            "backoff": {"per_slot": true}},
        "a.test": {"concurrency": 2},
    });
    let config = said(&[("THROTTLING_SCOPES", entries)]);
    let settings = &config.throttle;
    for name in ["a.test", "b.test"] {
        let scope = settings.of(name);
        assert_eq!(scope.concurrency, if name == "a.test" { 2 } else { 4 });
        assert_eq!(scope.jitter, Jitter::NONE);
        assert!(scope.rampup.is_some() && scope.backoff.per_slot);
        let quota = scope.quota.expect("a quota");
        assert_eq!((quota.units, quota.window), (9.0, secs(3.0)));
        assert_eq!(scope.delay, secs(1.0));
    }
    assert!(!settings.scopes.contains_key("default"));
    assert_eq!(config.get("CONCURRENT_REQUESTS_PER_DOMAIN"), Some(json!(4)));
    assert_eq!(
        config.source("CONCURRENT_REQUESTS_PER_DOMAIN"),
        &Source::Program
    );
    assert_eq!(config.source("BACKOFF_WINDOW"), &Source::Default);

    // A later map without it leaves nothing behind.
    let config = config.with("THROTTLING_SCOPES", json!({})).expect("a map");
    let expected = Settings {
        scopes: Default::default(),
        ..Settings::default()
    };
    assert_eq!(config.throttle, expected);

    let automatic = json!({"default": {"autothrottle": true}, "a": {"autothrottle": false}});
    let settings = throttle(&[("THROTTLING_SCOPES", automatic)]);
    assert_eq!(settings.of("b.test").concurrency, 8);
    assert_eq!(settings.of("a").delay, secs(1.0));
}

#[test]
fn f106_the_presets_of_the_cheat_sheet() {
    let check = |name: &str, target, max, start| {
        let mut config = Config::default();
        config.preset(name).expect("a preset");
        let config = config.finish().expect("a sound preset");
        let auto = config.throttle.default.autothrottle.as_ref();
        let auto = auto.expect("it is on");
        assert_eq!(auto.target_concurrency, target, "{name}");
        assert_eq!(auto.max_delay, secs(max), "{name}");
        assert_eq!(auto.start_delay, secs(start), "{name}");
        let source = config.source("AUTOTHROTTLE_MAX_DELAY").to_string();
        assert_eq!(source, format!("preset {name}"));
    };
    check("polite", 1.0, 10.0, 2.0);
    check("cooperative", 4.0, 30.0, 1.0);
    check("many-domains", 2.0, 60.0, 1.0);
}

#[test]
fn the_broad_preset_bounds_domains_and_addresses() {
    let mut config = Config::default();
    config.preset("broad").expect("a preset");
    let settings = config.finish().expect("a sound preset").throttle;
    let kinds = [MapKind::Host, MapKind::Domain, MapKind::Ip];
    assert_eq!(settings.scope_map, kinds);
    let check = |name: &str, concurrency, delay: f64| {
        let scope = settings.of(name);
        assert_eq!(
            (scope.concurrency, scope.delay),
            (concurrency, secs(delay)),
            "{name}"
        );
    };
    check("www.example.com", 1, 1.0);
    check("example.com", 4, 0.25);
    check("example.co.uk", 4, 0.25);
    check("someone.github.io", 4, 0.25);
    check("ip/192.0.2.1", 16, 0.05);
    check("quotes.toscrape.com", 16, 0.0);
}

#[test]
fn f29_the_smaller_of_what_is_said_of_all_addresses_holds() {
    let check = |sayings: &[(&str, Value)], expected| {
        let mut config = Config::default();
        config.preset("broad").expect("a preset");
        for (name, value) in sayings {
            config
                .set(name, value, Source::Option)
                .expect("a sound value");
        }
        let settings = config.finish().expect("a sound config").throttle;
        let address = settings.of("ip/192.0.2.1").concurrency;
        // What addresses without an entry share.
        assert_eq!(settings.of("ip/*").concurrency, address, "{sayings:?}");
        assert_eq!(address, expected, "{sayings:?}");
    };
    let per_ip = |most: u32| ("CONCURRENT_REQUESTS_PER_IP", json!(most));
    check(&[], 16);
    check(&[per_ip(1)], 1);
    check(&[per_ip(16)], 16);
    check(&[per_ip(40)], 16);
    check(&[per_ip(0)], 16);
    let only_delay = ("ADDRESS_SCOPE_DEFAULTS", json!({"delay": 0.1}));
    let per_domain = ("CONCURRENT_REQUESTS_PER_DOMAIN", json!(8));
    check(&[only_delay, per_domain, per_ip(2)], 2);
}

#[test]
fn f29_what_is_said_of_one_address_goes_before_what_is_said_of_all() {
    let config = said(&[
        ("CONCURRENT_REQUESTS_PER_DOMAIN", json!(8)),
        ("CONCURRENT_REQUESTS_PER_IP", json!(1)),
        (
            "THROTTLING_SCOPES",
            json!({"ip/192.0.2.1": {"concurrency": 4}, "ip/192.0.2.2": {"delay": 4}}),
        ),
    ]);
    let of = |name| config.throttle.of(name).concurrency;
    assert_eq!((of("ip/192.0.2.1"), of("ip/192.0.2.2")), (4, 1));
}

#[test]
fn a_switch_is_not_taken_for_said_where_its_warning_is_silenced() {
    let config = said(&[(
        "THROTTLING_SCOPES",
        json!({"default": {"ignore_robots_txt": true}}),
    )]);
    let source = config.source("THROTTLING_ROBOTSTXT_OBEY");
    assert_eq!(source, &Source::Default);
    let mut keys = settings().iter().filter_map(|setting| setting.scope_key);
    assert!(keys.all(|key| key != "ignore_robots_txt"));
}

#[test]
fn a_preset_stands_below_all_that_a_user_says() {
    for source in [file(), Source::Option, flag("--x"), Source::Program] {
        for preset_first in [true, false] {
            let mut config = Config::default();
            let mut steps: [&dyn Fn(&mut Config); 2] = [
                &|config| config.preset("Polite").expect("a preset"),
                &|config| {
                    let set = config.set("AUTOTHROTTLE_MAX_DELAY", &json!(7), source.clone());
                    set.expect("a delay");
                },
            ];
            if !preset_first {
                steps.reverse();
            }
            steps.iter().for_each(|step| step(&mut config));
            assert_eq!(config.throttle.autothrottle.max_delay, secs(7.0));
            assert_eq!(config.throttle.autothrottle.start_delay, secs(2.0));
            assert_eq!(config.source("AUTOTHROTTLE_MAX_DELAY"), &source);
        }
    }
    let text = Config::default().preset("polit").expect_err("no preset");
    assert_eq!(
        text.to_string(),
        "--preset: \"polit\" is no preset; did you mean polite?"
    );
}

#[test]
fn a_preset_only_names_settings_and_says_what_it_is_for() {
    let names: BTreeSet<&str> = presets().iter().map(|preset| preset.name).collect();
    assert_eq!(names.len(), presets().len());
    for preset in presets() {
        assert!(!preset.meaning.is_empty());
        for (name, _) in preset.values {
            assert!(
                settings().iter().any(|setting| setting.name == *name),
                "{name}"
            );
        }
    }
}

#[test]
fn every_scope_key_that_the_list_names_is_one() {
    let all = json!({
        "concurrency": 1, "delay": 1, "delay_per_slot": 1, "jitter": 0.1, "ignore_robots_txt": true,
        "backoff": {"enabled": true, "http_codes": [429], "exceptions": ["dns"], "delay_factor": 2,
            "max_delay": 9, "min_delay": 1, "jitter": 0.1, "window": 9, "concurrency_factor": 0.5},
        "rampup": {"backoff_target": 1}, "window": 1, "window_kind": "fixed", "manager": "mine",
        "autothrottle": {"enabled": true, "mode": "robust", "start_delay": 1, "max_delay": 9,
            "target_concurrency": 1, "latency_from": "send"},
    });
    let config = said(&[("THROTTLING_SCOPES", json!({"a": all}))]);
    let shown = config.get("THROTTLING_SCOPES").expect("a setting");
    for key in settings().iter().filter_map(|setting| setting.scope_key) {
        let path = format!("/a/{}", key.replace('.', "/"));
        assert!(shown.pointer(&path).is_some(), "{key}");
    }
}
