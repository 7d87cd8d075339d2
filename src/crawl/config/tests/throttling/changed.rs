//! Settings that are ordered while a crawl runs: those of the default in one patch, and those of a later run
//! whose configuration has changed.

use serde_json::{Map, Value, json};

use super::{secs, throttle};
use crate::base::rng::Rng;
use crate::crawl::config::tests::given;
use crate::crawl::config::{Config, ScopeOrder, patch_text};
use crate::throttle::settings::{ScopePatch, ThrottleSettings};

/// Some of these keys, each with one of its values.
fn some_of(keys: &[(&str, &[Value])], rng: &mut Rng) -> Map<String, Value> {
    let chance = rng.range_f64(0.0, 0.6);
    let mut chosen = Map::new();
    for (key, values) in keys {
        let value = &values[rng.below(values.len() as u64) as usize];
        if rng.chance(chance) {
            chosen.insert((*key).to_owned(), value.clone());
        }
    }
    chosen
}

/// A patch with any of the keys of a scope.
fn random_patch(rng: &mut Rng) -> ScopePatch {
    let switch = [json!(true), json!(false)];
    let delays = [json!(0), json!(0.1), json!(2.5), json!(70)];
    let counts = [json!(1), json!(3), json!(16)];
    let jitters = [json!(false), json!(0.25), json!([-0.1, 0.3])];
    let mut patch = some_of(
        &[
            ("concurrency", &counts),
            ("delay", &delays),
            ("delay_per_slot", &delays),
            ("jitter", &jitters),
            ("ignore_robots_txt", &switch),
            ("quota", &counts),
            ("window", &[json!(5), json!(3600)]),
            ("window_kind", &[json!("fixed"), json!("sliding")]),
            ("requests_per_minute", &counts),
            ("manager", &[json!("default"), json!("own")]),
        ],
        rng,
    );
    let backoff = some_of(
        &[
            ("enabled", &switch),
            ("http_codes", &[json!([429]), json!([500, 503])]),
            ("exceptions", &[json!([]), json!(["timeout"])]),
            ("delay_factor", &[json!(1.5), json!(3)]),
            ("max_delay", &[json!(100), json!(600)]),
            ("min_delay", &[json!(2), json!(50)]),
            ("jitter", &jitters),
            ("window", &[json!(10)]),
            ("concurrency_factor", &[json!(0.25)]),
            ("per_slot", &switch),
        ],
        rng,
    );
    let rampup = some_of(
        &[
            ("enabled", &switch),
            ("backoff_target", &[json!([1, 2]), json!([3, 5])]),
            ("delay_factor", &[json!(1.5), json!(3)]),
            ("min_delay", &delays),
        ],
        rng,
    );
    let autothrottle = some_of(
        &[
            ("enabled", &switch),
            ("mode", &[json!("robust"), json!("scrapy")]),
            ("start_delay", &[json!(2), json!(3)]),
            ("max_delay", &[json!(90)]),
            ("target_concurrency", &[json!(0.5), json!(1)]),
            ("latency_from", &[json!("send"), json!("connect")]),
        ],
        rng,
    );
    for (key, table) in [
        ("backoff", backoff),
        ("rampup", rampup),
        ("autothrottle", autothrottle),
    ] {
        if !table.is_empty() {
            patch.insert(key.to_owned(), table.into());
        }
    }
    let text = Value::from(patch).to_string();
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Settings of scopes that differ from the default in AutoThrottle or in single keys.
fn all_of(settings: &ThrottleSettings) -> Vec<String> {
    let entries = [
        "{}",
        r#"{"autothrottle": true}"#,
        r#"{"autothrottle": false, "rampup": true}"#,
        r#"{"delay": 1, "quota": 7}"#,
    ];
    entries
        .into_iter()
        .map(|entry| format!("{:?}", settings.scope(&entry.parse().expect("a patch"))))
        .collect()
}

#[test]
fn changes_of_the_default_one_after_another_have_the_effect_of_one_patch_with_all_of_them() {
    let mut rng = Rng::from_seed(1);
    for number in 0..3000 {
        let configured = throttle(&[
            ("AUTOTHROTTLE_ENABLED", rng.chance(0.5).into()),
            ("DOWNLOAD_DELAY", [0, 3][rng.below(2) as usize].into()),
        ]);
        let mut live = configured.clone();
        for _ in 0..1 + rng.below(5) {
            live.change_default(random_patch(&mut rng));
        }
        let text = patch_text(&live.default_patch());
        let mut later = configured;
        later.change_default(text.parse().expect("it is written as it is read"));
        assert_eq!(all_of(&later), all_of(&live), "{number}: {text}");
        assert_eq!(later.default_patch(), live.default_patch(), "{text}");
    }
}

#[test]
fn a_changed_default_delay_holds_in_scopes_that_switch_autothrottle() {
    for automatic in [false, true] {
        let mut settings = throttle(&[("AUTOTHROTTLE_ENABLED", automatic.into())]);
        settings.change_default(ScopePatch::default().delay(secs(20.0)));
        for switch in [r#"{"autothrottle": true}"#, r#"{"autothrottle": false}"#] {
            let scope = settings.scope(&switch.parse().expect("a patch"));
            assert_eq!(scope.delay, secs(20.0), "{automatic}, {switch}");
            settings.change_default(switch.parse().expect("a patch"));
            assert_eq!(settings.usual().delay, secs(20.0), "{automatic}, {switch}");
        }
    }
}

/// A sound configuration with these settings.
fn config(settings: &[(&str, Value)]) -> Config {
    given(settings).finish().expect("it is sound")
}

/// An order under one configuration, under another one: what it sets then, and what is logged.
fn settled(name: &str, order: &str, configs: [&[(&str, Value)]; 2]) -> (ScopePatch, Vec<String>) {
    let patch = order.parse().expect("a patch");
    let given = ScopeOrder::new(name, patch, &config(configs[0]));
    let mut later = ScopeOrder::parse(&given.to_text()).expect("it is written as it is read");
    assert_eq!(later, given);
    let log = later.settle(name, &config(configs[1]));
    // Once it is settled, nothing changes.
    let mut again = ScopeOrder::parse(&later.to_text()).expect("it is written as it is read");
    assert_eq!(
        again.settle(name, &config(configs[1])),
        Vec::<String>::new()
    );
    assert_eq!(again, later);
    (later.patch, log)
}

#[test]
fn what_the_configuration_sets_since_an_order_is_not_overridden_by_it() {
    let check = |name: &str, order: &str, configs: [&[(&str, Value)]; 2], left: &str, logged| {
        let (patch, log) = settled(name, order, configs);
        assert_eq!(patch, left.parse().expect("a patch"), "{name}: {order}");
        assert_eq!(log.len(), logged, "{log:?}");
    };
    let delay = |delay: i32| [("DOWNLOAD_DELAY", json!(delay))];
    let both = r#"{"delay": 10, "concurrency": 2}"#;
    check("default", both, [&[], &[]], both, 0);
    check("default", both, [&delay(1), &delay(1)], both, 0);
    check("default", both, [&delay(1), &[]], both, 0);
    check(
        "default",
        both,
        [&[], &delay(1)],
        r#"{"concurrency": 2}"#,
        1,
    );
    check(
        "default",
        both,
        [&delay(1), &delay(3)],
        r#"{"concurrency": 2}"#,
        1,
    );
    check(
        "default",
        both,
        [&delay(1), &delay(10)],
        r#"{"concurrency": 2}"#,
        0,
    );
    let (_, log) = settled("default", both, [&delay(1), &delay(3)]);
    assert_eq!(
        log,
        ["default: delay is 3 as this run is configured, not 10 as an earlier run was ordered"]
    );
    // What only follows from another setting is not set.
    let automatic = [("AUTOTHROTTLE_ENABLED", json!(true))];
    check("default", both, [&[], &automatic], both, 0);
    let off = r#"{"autothrottle": false, "delay": 10}"#;
    check("default", off, [&[], &automatic], r#"{"delay": 10}"#, 1);
    let per_slot = [("DOWNLOAD_DELAY_PER_SLOT", json!(4))];
    let with_slot = r#"{"delay": 10, "delay_per_slot": 4, "concurrency": 2}"#;
    check("default", both, [&[], &per_slot], with_slot, 0);
    let entry = |entry: Value| {
        [(
            "THROTTLING_SCOPES",
            json!({"default": entry, "a.test": entry}),
        )]
    };
    let slow = entry(json!({"backoff": {"max_delay": 400}}));
    let slower = entry(json!({"backoff": {"max_delay": 500}}));
    let backoff = r#"{"backoff": {"max_delay": 600, "window": 9}}"#;
    check("default", backoff, [&slow, &slow], backoff, 0);
    check(
        "default",
        backoff,
        [&slow, &slower],
        r#"{"backoff": {"window": 9}}"#,
        1,
    );
    // An order for a scope takes the place of its entry.
    let merged = r#"{"backoff": {"max_delay": 500, "window": 9}}"#;
    check("a.test", backoff, [&slow, &slower], merged, 1);
    check("a.test", backoff, [&slow, &[]], backoff, 0);
    check("a.test", both, [&[], &delay(1)], both, 0);
    check("a.test", "{}", [&slow, &slow], "{}", 0);
    check(
        "a.test",
        "{}",
        [&slow, &slower],
        r#"{"backoff": {"max_delay": 500}}"#,
        0,
    );
    // Of an order without a record of the configuration nothing is known.
    let mut earlier = ScopeOrder::parse(both).expect("a patch");
    assert_eq!(
        earlier.settle("default", &config(&delay(3))),
        Vec::<String>::new()
    );
    assert_eq!(earlier.patch, both.parse().expect("a patch"));
}

#[test]
fn of_an_order_that_is_not_possible_any_more_only_the_groups_that_conflict_are_dropped() {
    let check = |name: &str, order: &str, settings: &[(&str, Value)], left: &str, dropped: &str| {
        let given = ScopeOrder::new(name, order.parse().expect("a patch"), &config(&[]));
        let mut later = ScopeOrder::parse(&given.to_text()).expect("it is written as it is read");
        let later_config = config(settings);
        later.settle(name, &later_config);
        let log = later.fit(name, &later_config);
        assert_eq!(
            later.patch,
            left.parse().expect("a patch"),
            "{name}: {order}"
        );
        let log = log.unwrap_or_default();
        assert_eq!(log.rsplit("dropped: ").next(), Some(dropped), "{log}");
        assert_eq!(later.fit(name, &later_config), None, "it is possible now");
    };
    let short = [("BACKOFF_MAX_DELAY", json!(50))];
    let order =
        r#"{"delay": 10, "quota": 3, "backoff": {"min_delay": 100, "window": 9}, "rampup": true}"#;
    let rest = r#"{"delay": 10, "quota": 3, "rampup": true}"#;
    for name in ["default", "a.test"] {
        check(name, order, &[], order, "");
        check(
            name,
            order,
            &short,
            rest,
            "backoff.min_delay, backoff.window",
        );
        let alone = r#"{"backoff": {"min_delay": 100}}"#;
        check(name, alone, &short, "{}", "backoff.min_delay");
    }
    // What the entry of the scope sets holds instead.
    let entry = json!({"a.test": {"backoff": {"max_delay": 50, "jitter": 0.2}}});
    let with_entry =
        r#"{"delay": 10, "quota": 3, "rampup": true, "backoff": {"max_delay": 50, "jitter": 0.2}}"#;
    let settings = [("THROTTLING_SCOPES", entry)];
    let dropped = "backoff.min_delay, backoff.window";
    check("a.test", order, &settings, with_entry, dropped);
}
