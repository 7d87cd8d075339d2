//! Precedence of several settings for one scope.

use super::*;

#[test]
fn f12_scopes_inherit_the_global_settings_that_they_do_not_set() {
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
fn autothrottle_in_one_scope_inherits_the_global_settings() {
    let on = || {
        (
            "THROTTLING_SCOPES",
            json!({"a.test": {"autothrottle": true}}),
        )
    };
    let check = |given_settings: &[(&str, Value)], concurrency, delay: f64| {
        let scope = throttle(given_settings).of("a.test");
        assert_eq!(
            (scope.concurrency, scope.delay),
            (concurrency, secs(delay)),
            "{given_settings:?}"
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
fn latency_follows_the_mode_until_it_is_set() {
    let check = |given_settings: &[(&str, Value)], expected| {
        let settings = throttle(given_settings);
        assert_eq!(
            settings.autothrottle.latency_from, expected,
            "{given_settings:?}"
        );
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
    let config = given(&[("AUTOTHROTTLE_ENABLED", json!(true)), scrapy()]);
    let auto = config.throttle.default.autothrottle.expect("it is on");
    assert_eq!(auto.latency_from, LatencyFrom::Connect);
}

#[test]
fn scopes_override_slots_in_every_table() {
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
fn f20_a_slot_and_a_scope_with_equal_settings_are_equal() {
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
fn the_default_entry_sets_all_other_scopes() {
    let entries = json!({
        "default": {"concurrency": 4, "rampup": true, "jitter": false, "quota": 9, "window": 3,
            "backoff": {"per_slot": true}},
        "a.test": {"concurrency": 2},
    });
    let config = given(&[("THROTTLING_SCOPES", entries)]);
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
    assert_eq!(config.get("CONCURRENT_REQUESTS_PER_DOMAIN"), Some(4.into()));
    assert_eq!(
        config.source("CONCURRENT_REQUESTS_PER_DOMAIN"),
        &SettingSource::Program
    );
    assert_eq!(config.source("BACKOFF_WINDOW"), &SettingSource::Default);

    // A later map without the entry restores the defaults.
    let config = config.with("THROTTLING_SCOPES", json!({})).expect("a map");
    let expected = ThrottleSettings {
        scopes: Default::default(),
        ..ThrottleSettings::default()
    };
    assert_eq!(config.throttle, expected);

    let automatic = json!({"default": {"autothrottle": true}, "a": {"autothrottle": false}});
    let settings = throttle(&[("THROTTLING_SCOPES", automatic)]);
    assert_eq!(settings.of("b.test").concurrency, 8);
    assert_eq!(settings.of("a").delay, secs(1.0));
}

#[test]
fn f29_the_smaller_limit_of_those_set_for_all_addresses_wins() {
    let check = |given_settings: &[(&str, Value)], expected| {
        let mut config = Config::default();
        config.preset("broad").expect("a preset");
        for (name, value) in given_settings {
            config
                .set(name, value, SettingSource::Option)
                .expect("a sound value");
        }
        let settings = config.finish().expect("a sound config").throttle;
        let address = settings.of("ip/192.0.2.1").concurrency;
        // The settings of addresses without an entry.
        assert_eq!(
            settings.of("ip/*").concurrency,
            address,
            "{given_settings:?}"
        );
        assert_eq!(address, expected, "{given_settings:?}");
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
fn f29_a_limit_set_for_one_address_overrides_those_set_for_all() {
    let config = given(&[
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
fn silencing_a_warning_does_not_count_as_setting_the_switch() {
    let config = given(&[(
        "THROTTLING_SCOPES",
        json!({"default": {"ignore_robots_txt": true}}),
    )]);
    let source = config.source("THROTTLING_ROBOTSTXT_OBEY");
    assert_eq!(source, &SettingSource::Default);
    let mut keys = settings().iter().filter_map(|setting| setting.scope_key);
    assert!(keys.all(|key| key != "ignore_robots_txt"));
}
