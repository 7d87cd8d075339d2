//! A scope's settings, from its entry and the globals.

use serde_json::json;

use super::*;
use crate::fetch::failure::FailureKind;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Settings with these entries.
fn with_entries(scopes: &[(&str, ScopePatch)]) -> ThrottleSettings {
    ThrottleSettings {
        scopes: scopes
            .iter()
            .map(|(name, patch)| ((*name).to_owned(), patch.clone()))
            .collect(),
        ..ThrottleSettings::default()
    }
}

fn delayed(seconds: f64) -> ScopePatch {
    ScopePatch {
        delay: Some(secs(seconds)),
        ..ScopePatch::default()
    }
}

fn automatic(enabled: bool) -> ScopePatch {
    ScopePatch {
        autothrottle: AutoThrottlePatch {
            enabled: Some(enabled),
            ..AutoThrottlePatch::default()
        },
        ..ScopePatch::default()
    }
}

fn pace_of(scope: &ScopeSettings) -> (u32, f64, f64) {
    (
        scope.concurrency,
        scope.delay.as_secs_f64(),
        scope.delay_per_slot.as_secs_f64(),
    )
}

#[test]
fn f12_a_scope_without_settings_equals_the_default() {
    let mut settings = ThrottleSettings::default();
    settings.default.rampup = Some(Rampup::default());
    settings.default.autothrottle = Some(AutoThrottle {
        target_concurrency: 3.0,
        ..AutoThrottle::default()
    });
    settings.default.quota = Some(Quota {
        units: 5.0,
        window: secs(7.0),
        kind: WindowKind::Sliding,
        oversize: Oversize::Refuse,
    });
    settings.default.requests_per_minute = Some(60.0);
    settings.default.manager = Some(Manager {
        name: "mine".to_owned(),
        arguments: serde_json::Map::new(),
    });
    settings.default.backoff.per_slot = true;
    assert_eq!(settings.scope(&ScopePatch::default()), settings.default);
    assert_eq!(settings.of("a.test"), settings.default);
}

#[test]
fn f12_each_key_replaces_only_its_own_global() {
    let settings = ThrottleSettings::default();
    let check = |patch: ScopePatch, expected: ScopeSettings| {
        assert_eq!(settings.scope(&patch), expected, "{patch:?}");
    };
    let default = || settings.default.clone();
    check(
        ScopePatch {
            concurrency: Some(3),
            ..ScopePatch::default()
        },
        ScopeSettings {
            concurrency: 3,
            ..default()
        },
    );
    check(
        delayed(0.5),
        ScopeSettings {
            delay: secs(0.5),
            delay_per_slot: Duration::ZERO,
            ..default()
        },
    );
    check(
        ScopePatch {
            delay_per_slot: Some(secs(2.0)),
            ..delayed(0.5)
        },
        ScopeSettings {
            delay: secs(0.5),
            delay_per_slot: secs(2.0),
            ..default()
        },
    );
    check(
        ScopePatch {
            jitter: Some(Jitter::NONE),
            requests_per_minute: Some(30.0),
            ..ScopePatch::default()
        },
        ScopeSettings {
            jitter: Jitter::NONE,
            requests_per_minute: Some(30.0),
            ..default()
        },
    );
}

#[test]
fn f37_each_backoff_key_can_be_replaced_separately() {
    let settings = ThrottleSettings::default();
    let usual = Backoff::default;
    let check = |patch: BackoffPatch, expected: Backoff| {
        let patch = ScopePatch {
            backoff: patch,
            ..ScopePatch::default()
        };
        let scope = settings.scope(&patch);
        assert_eq!(scope.backoff, expected);
        let rest = ScopeSettings {
            backoff: usual(),
            ..scope
        };
        assert_eq!(rest, settings.default);
    };
    let none = BackoffPatch::default;
    macro_rules! key {
        ($field:ident, $value:expr) => {
            check(
                BackoffPatch {
                    $field: Some($value),
                    ..none()
                },
                Backoff {
                    $field: $value,
                    ..usual()
                },
            )
        };
    }
    key!(enabled, false);
    key!(http_codes, vec![429, 999]);
    key!(exceptions, vec![FailureKind::Dns]);
    key!(delay_factor, 1.2);
    key!(max_delay, secs(180.0));
    key!(min_delay, secs(5.0));
    key!(
        jitter,
        Jitter {
            low: 0.01,
            high: 0.33
        }
    );
    key!(window, secs(30.0));
    key!(concurrency_factor, 0.8);
    key!(per_slot, true);
}

#[test]
fn f58_each_rampup_key_can_be_replaced_separately() {
    let mut settings = ThrottleSettings::default();
    settings.rampup.backoff_target = (2, 4);
    let scope = |patch: RampupPatch| {
        let patch = ScopePatch {
            rampup: patch,
            ..ScopePatch::default()
        };
        settings.scope(&patch).rampup
    };
    let on = || RampupPatch {
        enabled: Some(true),
        ..RampupPatch::default()
    };
    let usual = || settings.rampup.clone();
    assert_eq!(scope(RampupPatch::default()), None);
    assert_eq!(scope(on()), Some(usual()));
    let check = |patch, expected| assert_eq!(scope(patch), Some(expected));
    check(
        RampupPatch {
            backoff_target: Some((1, 3)),
            ..on()
        },
        Rampup {
            backoff_target: (1, 3),
            ..usual()
        },
    );
    check(
        RampupPatch {
            delay_factor: Some(1.5),
            ..on()
        },
        Rampup {
            delay_factor: 1.5,
            ..usual()
        },
    );
    check(
        RampupPatch {
            min_delay: Some(secs(0.1)),
            ..on()
        },
        Rampup {
            min_delay: secs(0.1),
            ..usual()
        },
    );

    settings.default.rampup = Some(Rampup::default());
    let off = ScopePatch {
        rampup: RampupPatch {
            enabled: Some(false),
            ..RampupPatch::default()
        },
        ..ScopePatch::default()
    };
    assert_eq!(settings.scope(&off).rampup, None);
}

#[test]
fn autothrottle_in_one_scope_has_the_same_default_pace_as_globally() {
    let settings = ThrottleSettings::default();
    assert_eq!(pace_of(&settings.scope(&automatic(true))), (8, 0.0, 0.0));
    let patch = ScopePatch {
        concurrency: Some(2),
        ..automatic(true)
    };
    assert_eq!(pace_of(&settings.scope(&patch)), (2, 0.0, 0.0));
    let patch = ScopePatch {
        delay: Some(secs(0.5)),
        ..automatic(true)
    };
    assert_eq!(pace_of(&settings.scope(&patch)), (8, 0.5, 0.0));
    assert_eq!(
        settings.scope(&automatic(true)).autothrottle,
        Some(settings.autothrottle.clone())
    );

    let mut everywhere = ThrottleSettings::default();
    everywhere.default.autothrottle = Some(AutoThrottle::default());
    everywhere.inverse_base = BasePace::usual(false);
    let off = everywhere.scope(&automatic(false));
    assert_eq!(pace_of(&off), (1, 1.0, 1.0));
    assert_eq!(off.autothrottle, None);
}

#[test]
fn the_latency_depends_on_the_mode_unless_it_is_set() {
    let check = |global: Option<LatencyFrom>, own: Option<LatencyFrom>, expected| {
        let settings = ThrottleSettings {
            latency_from: global,
            ..ThrottleSettings::default()
        };
        let mut patch = automatic(true);
        patch.autothrottle.mode = Some(AutoThrottleMode::Scrapy);
        patch.autothrottle.latency_from = own;
        let scope = settings.scope(&patch).autothrottle.expect("it is on");
        assert_eq!(scope.mode, AutoThrottleMode::Scrapy);
        assert_eq!(scope.latency_from, expected);
    };
    check(None, None, LatencyFrom::Connect);
    check(Some(LatencyFrom::Send), None, LatencyFrom::Send);
    check(None, Some(LatencyFrom::Send), LatencyFrom::Send);
}

#[test]
fn a_quota_takes_its_window_from_the_scope_or_the_globals() {
    let settings = ThrottleSettings {
        window: secs(10.0),
        window_kind: WindowKind::Sliding,
        oversize: Oversize::Refuse,
        ..ThrottleSettings::default()
    };
    let patch = ScopePatch {
        quota: Some(500.0),
        ..ScopePatch::default()
    };
    let usual = Quota {
        units: 500.0,
        window: secs(10.0),
        kind: WindowKind::Sliding,
        oversize: Oversize::Refuse,
    };
    assert_eq!(settings.scope(&patch).quota, Some(usual));
    let own = ScopePatch {
        window: Some(secs(2.0)),
        window_kind: Some(WindowKind::Fixed),
        ..patch
    };
    let expected = Quota {
        window: secs(2.0),
        kind: WindowKind::Fixed,
        ..usual
    };
    assert_eq!(settings.scope(&own).quota, Some(expected));
    let windowed = ScopePatch {
        window: Some(secs(2.0)),
        ..ScopePatch::default()
    };
    assert_eq!(settings.scope(&windowed).quota, None);
}

#[test]
fn a_scope_may_select_the_built_in_strategy() {
    let manager = |name: &str| {
        Some(Manager {
            name: name.to_owned(),
            arguments: serde_json::Map::from_iter([("pace".to_owned(), json!(3))]),
        })
    };
    let mut settings = ThrottleSettings::default();
    settings.default.manager = manager("mine");
    let scope = |name: &str| {
        settings
            .scope(&ScopePatch {
                manager: manager(name),
                ..ScopePatch::default()
            })
            .manager
    };
    assert_eq!(scope("other"), manager("other"));
    assert_eq!(scope("default"), None);
}

#[test]
fn a_pattern_matches_below_a_host_and_the_narrowest_wins() {
    let both = ScopePatch {
        concurrency: Some(7),
        ..delayed(3.0)
    };
    let settings = with_entries(&[
        ("*.example.com", both),
        ("*.b.example.com", delayed(2.0)),
        ("a.example.com", delayed(1.5)),
    ]);
    let check = |name: &str, entry: Option<&str>, concurrency, delay| {
        assert_eq!(settings.entry_of(name), entry, "{name}");
        let scope = settings.of(name);
        let pace = (scope.concurrency, scope.delay.as_secs_f64());
        assert_eq!(pace, (concurrency, delay), "{name}");
        if let Some(entry) = entry {
            assert_eq!(scope, settings.of(entry), "{name}");
        }
    };
    check("x.example.com", Some("*.example.com"), 7, 3.0);
    check("x.example.com:8080", Some("*.example.com"), 7, 3.0);
    check("y.x.example.com", Some("*.example.com"), 7, 3.0);
    check("x.b.example.com", Some("*.b.example.com"), 7, 2.0);
    check("a.example.com", Some("a.example.com"), 7, 1.5);
    check("b.example.com", Some("*.example.com"), 7, 3.0);
    check("example.com", None, 1, 1.0);
    check("notexample.com", None, 1, 1.0);
    check("host/x.example.com", None, 1, 1.0);
}

#[test]
fn a_pattern_of_a_prefix_matches_the_names_below_it_and_the_longest_wins() {
    let both = ScopePatch {
        concurrency: Some(7),
        ..delayed(3.0)
    };
    let settings = with_entries(&[
        ("key/*", both),
        ("key/eu/*", delayed(2.0)),
        ("key/eu/one", delayed(1.5)),
        ("api.test/*", delayed(4.0)),
        (DOMAINS, delayed(9.0)),
    ]);
    let check = |name: &str, entry: Option<&str>, concurrency, delay| {
        assert_eq!(settings.entry_of(name), entry, "{name}");
        let scope = settings.of(name);
        let pace = (scope.concurrency, scope.delay.as_secs_f64());
        assert_eq!(pace, (concurrency, delay), "{name}");
        if let Some(entry) = entry {
            assert_eq!(scope, settings.of(entry), "{name}");
            assert!(settings.covers(entry, name), "{name}");
        }
    };
    check("key/a", Some("key/*"), 7, 3.0);
    check("key/us/1", Some("key/*"), 7, 3.0);
    check("key/eu/1", Some("key/eu/*"), 7, 2.0);
    check("key/eu/one", Some("key/eu/one"), 7, 1.5);
    check("key", None, 1, 1.0);
    check("keys/a", None, 1, 1.0);
    check("api.test/search/x", Some("api.test/*"), 1, 4.0);
    check("domain/x", None, 1, 1.0);
    check("ip/192.0.2.1", None, 1, 1.0);
    let long = format!("key{}", "/x".repeat(4000));
    check(&long, Some("key/*"), 7, 3.0);
    assert!(!settings.covers("key/*", "keys/a") && !settings.covers("key/eu/*", "key/a"));
}

#[test]
fn addresses_and_domains_have_patterns_of_their_own() {
    let scopes = [
        (ADDRESSES, delayed(0.05)),
        (DOMAINS, delayed(0.25)),
        (
            "own.test",
            ScopePatch {
                concurrency: Some(9),
                ..ScopePatch::default()
            },
        ),
    ];
    let mut settings = with_entries(&scopes);
    settings.scope_map = vec![MapKind::Host, MapKind::Domain, MapKind::Ip];
    let entry = |name: &str| settings.entry_of(name).map(str::to_owned);
    let (addresses, domains) = (Some(ADDRESSES.to_owned()), Some(DOMAINS.to_owned()));
    assert_eq!(entry("ip/192.0.2.1"), addresses);
    assert_eq!(entry("ip/2001:db8::1"), addresses);
    assert_eq!(entry("example.com"), domains);
    assert_eq!(entry("example.co.uk"), domains);
    // A name below a private suffix is a separate site.
    assert_eq!(entry("someone.github.io"), domains);
    for none in [
        "www.example.com",
        "localhost",
        "192.0.2.1",
        "api",
        "example.com:8080",
    ] {
        assert_eq!(entry(none), None, "{none}");
    }
    // Its own entry, completed by that of all domains.
    let own = settings.of("own.test");
    assert_eq!((own.concurrency, own.delay), (9, secs(0.25)));

    settings.scope_map = vec![MapKind::Host];
    assert_eq!(settings.entry_of("example.com"), None);
}

#[test]
fn only_a_delay_given_to_a_name_overrides_crawl_delay() {
    let mut settings = with_entries(&[
        (DOMAINS, delayed(0.25)),
        ("*.example.com", delayed(0.5)),
        (
            "own.test",
            ScopePatch {
                ignore_robots_txt: Some(true),
                ..ScopePatch::default()
            },
        ),
    ]);
    settings.scope_map = vec![MapKind::Host, MapKind::Domain];
    let check = |name: &str, all: Option<f64>, by_name: Option<f64>| {
        assert_eq!(settings.patch_of(name).delay, all.map(secs), "{name}");
        let patch = settings.patch_by_name(name);
        assert_eq!(patch.delay, by_name.map(secs), "{name}");
    };
    check("a.test", Some(0.25), None);
    check("own.test", Some(0.25), None);
    check("www.example.com", Some(0.5), Some(0.5));
    check("www.a.test", None, None);
    assert_eq!(
        settings.patch_by_name("own.test").ignore_robots_txt,
        Some(true)
    );
}

#[test]
fn a_delay_overrides_the_delay_per_slot_of_a_wider_pattern() {
    let wide = ScopePatch {
        delay_per_slot: Some(secs(9.0)),
        ..delayed(3.0)
    };
    let patch = delayed(0.5).over(&wide);
    assert_eq!(patch.delay, Some(secs(0.5)));
    assert_eq!(patch.delay_per_slot, None);
    let patch = ScopePatch::default().over(&wide);
    assert_eq!(patch, wide);
}
