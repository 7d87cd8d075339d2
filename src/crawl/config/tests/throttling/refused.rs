//! Invalid settings of throttling are refused, and the error names their location.

use super::*;

#[test]
fn f14_an_unknown_key_is_an_error_that_suggests_the_nearest() {
    check_entry(json!({"dealy": 1}), &[".dealy: ", "did you mean delay?"]);
    check_entry(
        json!({"backoff": {"http_code": [429]}}),
        &[".backoff.http_code: ", "did you mean http_codes?"],
    );
    check_entry(
        json!({"rampup": {"target": 1}}),
        &[".rampup.target: ", "give enabled, backoff_target"],
    );
    check_entry(
        json!({"autothrottle": {"modes": "robust"}}),
        &[".autothrottle.modes: ", "did you mean mode?"],
    );
}

#[test]
fn f73_values_of_the_wrong_type_are_refused_with_their_location() {
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
        check_entry(entry, &["is not a map; give a table"]);
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
fn a_target_of_zero_is_refused_everywhere() {
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
fn an_unknown_kind_of_error_is_refused_with_a_suggestion() {
    check_entry(
        json!({"backoff": {"exceptions": ["timeuot"]}}),
        &[".backoff.exceptions: ", "did you mean timeout?"],
    );
    for name in ["BACKOFF_EXCEPTIONS", "RETRY_EXCEPTIONS"] {
        let text = refused(name, json!(["builtins.IOError"]));
        assert!(
            text.contains("is not a kind of error; give dns, connect"),
            "{text}"
        );
    }
    let config = given(&[("BACKOFF_EXCEPTIONS", json!("Timeout, dns"))]);
    let kinds = config.throttle.default.backoff.exceptions;
    assert_eq!(kinds, [FailureKind::Timeout, FailureKind::Dns]);
}

#[test]
fn malformed_throttle_settings_are_refused() {
    let check = |name: &str, value: Value, expected: &str| {
        let text = refused(name, value);
        assert!(text.contains(expected), "{text} lacks {expected}");
    };
    check("SCOPE_MAP", json!([]), "an empty list");
    check(
        "SCOPE_MAP",
        json!(["host", "host"]),
        "a list with one rule twice",
    );
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
        "1000 is not a status code",
    );
    check("THROTTLING_MANAGER", json!(""), "missing a name");
    check("THROTTLING_MANAGER", json!(3), "is not a name");
    check("THROTTLING_MANAGER", json!({"steps": 3}), "missing a name");
    check(
        "THROTTLING_SCOPE_MANAGER",
        json!({"name": "default", "x": 1}),
        "no arguments",
    );
    check(
        "THROTTLING_SCOPE_MANAGER",
        json!({"name": "a", "x": null}),
        ".x: null is not a value",
    );
    check(
        "THROTTLING_SCOPE_MANAGER",
        json!({"name": "a", "x": u64::MAX}),
        "that TOML can represent",
    );
    check(
        "DOMAIN_SCOPE_DEFAULTS",
        json!({"dealy": 1}),
        "DEFAULTS.dealy: unknown key",
    );
    check("ADDRESS_SCOPE_DEFAULTS", json!([]), "give a table");
    let deep = (0..200).fold(String::from("1"), |inner, _| format!("[{inner}]"));
    check(
        "THROTTLING_SCOPES",
        json!(format!(r#"{{"a": {deep}}}"#)),
        "is not a map",
    );
}

#[test]
fn a_minimum_backoff_delay_above_the_maximum_is_refused() {
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
