//! Settings of throttling: every key sets its field.

mod changed;
mod precedence;
mod presets;
mod refused;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{file, flag, given, refused};
use crate::crawl::config::{Config, SettingSource, settings};
use crate::fetch::failure::{Failure, FailureKind};
use crate::throttle::settings::{
    ADDRESSES, AutoThrottleMode, BasePace, DOMAINS, Jitter, LatencyFrom, MapKind, Oversize,
    RateLimitHeaders, ScopeSettings, ThrottleSettings, WindowKind,
};

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The throttle settings of a valid configuration with these settings.
fn throttle(given_settings: &[(&str, Value)]) -> ThrottleSettings {
    let config = given(given_settings).finish();
    config
        .unwrap_or_else(|error| panic!("{given_settings:?} is refused: {error}"))
        .throttle
}

/// The settings of the scope `a.test` with this entry.
fn scope(entry: Value) -> ScopeSettings {
    throttle(&[("THROTTLING_SCOPES", json!({"a.test": entry}))]).of("a.test")
}

/// Checks the error for an entry of `a.test`: it must name the location and contain `parts`.
fn check_entry(entry: Value, parts: &[&str]) {
    let shown = entry.to_string();
    let text = refused("THROTTLING_SCOPES", json!({"a.test": entry}));
    let place = r#"-s THROTTLING_SCOPES."a.test""#;
    assert!(text.starts_with(place), "{shown}: {text}");
    for part in parts {
        assert!(text.contains(part), "{shown}: {text} lacks {part}");
    }
}

/// The error of [`Config::finish`].
fn unfinished(given_settings: &[(&str, Value)]) -> String {
    let error = given(given_settings).finish();
    error.expect_err("must be refused as a whole").to_string()
}

#[test]
fn f13_the_predefined_scope_exists_until_another_map_is_set() {
    let example = |settings: &ThrottleSettings| {
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
fn f37_a_scope_can_have_its_own_backoff() {
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
fn f58_a_scope_can_have_its_own_rampup() {
    let rampup = |value| scope(json!({"rampup": value})).rampup;
    assert_eq!(rampup(json!(false)), None);
    assert_eq!(
        rampup(json!(true)),
        Some(ThrottleSettings::default().rampup)
    );
    let own = rampup(json!({"backoff_target": [1, 3], "delay_factor": 1.5, "min_delay": "10ms"}));
    let own = own.expect("a table switches it on");
    assert_eq!(own.backoff_target, (1, 3));
    assert_eq!((own.delay_factor, own.min_delay), (1.5, secs(0.01)));
    assert_eq!(rampup(json!({"enabled": false, "delay_factor": 3})), None);
}

#[test]
fn every_kind_of_error_may_be_a_refusal() {
    let all: Vec<&str> = FailureKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let config = given(&[("BACKOFF_EXCEPTIONS", json!(all))]);
    assert_eq!(config.throttle.default.backoff.exceptions, FailureKind::ALL);
    assert_eq!(config.get("BACKOFF_EXCEPTIONS"), Some(json!(all).into()));
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
    check(FailureKind::Truncated, "body", true);
    check(FailureKind::Dns, "timeout", true);
    check(FailureKind::Dns, "servfail", true);
    check(FailureKind::Dns, "nxdomain", false);
    check(FailureKind::Tls, "handshake", false);
    let config = given(&[("RETRY_EXCEPTIONS", json!("Tls, dns.NXDOMAIN"))]);
    assert!(is_retried(&config, FailureKind::Tls, "expired"));
    assert!(is_retried(&config, FailureKind::Dns, "nxdomain"));
    assert!(!is_retried(&config, FailureKind::Dns, "servfail"));
    assert!(!is_retried(&config, FailureKind::Timeout, "first_byte"));
    for wrong in ["dns.", "dns.a b", ".servfail", "dsn.servfail"] {
        refused("RETRY_EXCEPTIONS", json!([wrong]));
    }
}

#[test]
fn aliases_set_the_same_key_and_may_not_be_combined() {
    let factor = |name: &str| {
        let config = given(&[(name, json!(0.8))]);
        assert_eq!(
            config.source("BACKOFF_CONCURRENCY_FACTOR"),
            &SettingSource::Program
        );
        config.throttle.default.backoff.concurrency_factor
    };
    assert_eq!(factor("BACKOFF_CONCURRENCY_FACTOR"), 0.8);
    assert_eq!(factor("backoff_concurrency_decrease_factor"), 0.8);
    let entry = json!({"backoff": {"concurrency_decrease_factor": 0.8}});
    let config = given(&[("THROTTLING_SCOPES", json!({"a": entry}))]);
    assert_eq!(
        config.get("THROTTLING_SCOPES"),
        Some(json!({"a": {"backoff": {"concurrency_factor": 0.8}}}).into())
    );
    check_entry(
        json!({"backoff": {"concurrency_factor": 0.5, "concurrency_decrease_factor": 0.8}}),
        &[".backoff.concurrency_factor: set twice"],
    );
    check_entry(
        json!({"autothrottle": {"mode": "robust"}, "autothrottle_mode": "scrapy"}),
        &[".autothrottle_mode: set twice"],
    );
    check_entry(
        json!({"autothrottle": true, "autothrottle_enabled": false}),
        &["set twice"],
    );
    check_entry(json!({"delay": 1, "Delay": 2}), &["set twice"]);
}

#[test]
fn autothrottle_in_a_scope_is_given_flat_or_in_a_table() {
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
    // A table without `enabled` does not enable it, because that could raise the rate.
    let entry = json!({"autothrottle": {"target_concurrency": 4}});
    assert_eq!(scope(entry), ThrottleSettings::default().default);
}

#[test]
fn every_other_setting_sets_its_field() {
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
fn hosts_in_all_forms_of_scope_names_are_normalised() {
    let check = |name: &str, expected: &str| {
        let config = given(&[("THROTTLING_SCOPES", json!({name: {}}))]);
        let names: Vec<_> = config.throttle.scopes.keys().collect();
        assert_eq!(names, [expected]);
    };
    check("*.Example.COM", "*.example.com");
    check("*.Bücher.example", "*.xn--bcher-kva.example");
    check("host/A.test:80", "host/a.test");
    check("API.test/Fast-Endpoint", "api.test/Fast-Endpoint");
    check("api.test:80/a/../b", "api.test/b");
    check("ip/2001:DB8:0::1", "ip/2001:db8::1");
    check("ip/[::1]", "ip/::1");
    check("ip/*", ADDRESSES);
    check("domain/*", DOMAINS);
    check("key/*", "key/*");
    check("tenant/eu/*", "tenant/eu/*");
    check("API.Example.com/*", "api.example.com/*");
    check("api.example.com/v1/*", "api.example.com/v1/*");
    check("my/own name", "my/own name");
    let wrong = |name: &str, expected: &str| {
        let text = refused("THROTTLING_SCOPES", json!({name: {}}));
        assert!(text.contains(expected), "{text}");
    };
    wrong("*", "use * in *.example.com");
    wrong("a.*.test", "use * in *.example.com");
    wrong("*.*.test", "use * in *.example.com");
    wrong("host/*", "use * in *.example.com");
    wrong("ip/192.0.2.1/*", "use * in *.example.com");
    wrong("/*", "use * in *.example.com");
    wrong("a*/*", "use * in *.example.com");
    wrong("a/b/c/d/e/f/g/h/i/*", "at most 7 further slashes");
    wrong("ip/a.test", "not an IP address");
    wrong("a.test/x?y=1", "must not contain a query");
    let twice = json!({"*.A.test": {}, "*.a.test": {}});
    assert!(refused("THROTTLING_SCOPES", twice).contains("has two entries"));
    let twice = json!({"ip/::1": {}, "ip/0::1": {}});
    assert!(refused("THROTTLING_SCOPES", twice).contains("has two entries"));
}

#[test]
fn excluded_hosts_are_normalised_as_urls_are() {
    let config = given(&[(
        "EXCLUDE",
        json!(["Bücher.example", "*.bücher.example", "A.test"]),
    )]);
    let expected = ["xn--bcher-kva.example", "*.xn--bcher-kva.example", "a.test"];
    assert_eq!(config.frontier.exclude_hosts, expected);
}

#[test]
fn every_scope_key_in_the_table_exists() {
    let all = json!({
        "concurrency": 1, "delay": 1, "delay_per_slot": 1, "jitter": 0.1, "ignore_robots_txt": true,
        "backoff": {"enabled": true, "http_codes": [429], "exceptions": ["dns"], "delay_factor": 2,
            "max_delay": 9, "min_delay": 1, "jitter": 0.1, "window": 9, "concurrency_factor": 0.5},
        "rampup": {"backoff_target": 1}, "window": 1, "window_kind": "fixed", "manager": "mine",
        "autothrottle": {"enabled": true, "mode": "robust", "start_delay": 1, "max_delay": 9,
            "target_concurrency": 1, "latency_from": "send"},
    });
    let config = given(&[("THROTTLING_SCOPES", json!({"a": all}))]);
    let shown = Value::from(config.get("THROTTLING_SCOPES").expect("a setting"));
    for key in settings().iter().filter_map(|setting| setting.scope_key) {
        let path = format!("/a/{}", key.replace('.', "/"));
        assert!(shown.pointer(&path).is_some(), "{key}");
    }
}
