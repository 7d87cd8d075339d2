//! Settings from several sources, and the configuration that results.

mod throttling;
mod values;

use std::time::Duration;

use serde_json::{Value, json};

use super::{Config, SettingSource, settings};
use crate::throttle::settings::Jitter;

/// A configuration with these settings, set by the program.
fn given(given_settings: &[(&str, Value)]) -> Config {
    let mut config = Config::default();
    for (name, value) in given_settings {
        config
            .set(name, value, SettingSource::Program)
            .unwrap_or_else(|error| panic!("{name} = {value} is refused: {error}"));
    }
    config
}

/// The error for an invalid value; it must leave the configuration unchanged.
fn refused(name: &str, value: Value) -> String {
    let mut config = Config::default();
    let before = format!("{config:?}");
    let error = config
        .set(name, &value, SettingSource::Option)
        .expect_err(&format!("{name} = {value} must be refused"));
    assert_eq!(
        format!("{config:?}"),
        before,
        "{name} = {value} left traces"
    );
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text:?} is more than one line");
    text
}

fn flag(name: &str) -> SettingSource {
    SettingSource::Flag(name.to_owned())
}

fn file() -> SettingSource {
    SettingSource::File {
        path: "crawl.toml".into(),
        line: 7,
    }
}

#[test]
fn every_setting_reads_back_its_own_text() {
    for setting in settings() {
        let config = given(&[(setting.name, setting.default().into())]);
        assert_eq!(
            config.get(setting.name),
            Some(setting.default()),
            "{}",
            setting.name
        );
    }
}

#[test]
fn names_are_unique_and_in_capitals() {
    for (index, setting) in settings().iter().enumerate() {
        assert_eq!(setting.name, setting.name.to_ascii_uppercase());
        assert!(
            settings()[..index].iter().all(|o| o.name != setting.name),
            "{} stands twice in the table",
            setting.name
        );
        assert!(!setting.meaning.is_empty() && !setting.meaning.contains('\n'));
    }
}

#[test]
fn names_are_taken_in_any_case() {
    let config = given(&[("Retry_Times", json!(5))]);
    assert_eq!(config.frontier.retry_times, 5);
    assert_eq!(config.get("RETRY_TIMES"), config.get("retry_times"));
}

#[test]
fn an_unknown_name_is_an_error_that_suggests_the_nearest() {
    let check = |name, expected: &str| {
        let text = refused(name, json!(1));
        assert!(text.contains(expected), "{text}");
    };
    check("DOWNLOAD_DELLAY", "did you mean DOWNLOAD_DELAY?");
    check("BACKOFF_WINDWO", "did you mean BACKOFF_WINDOW?");
    check("SPIDER_MODULES", "unknown setting");
}

#[test]
fn higher_precedence_wins_regardless_of_order() {
    let sources = [
        (SettingSource::Preset("gentle".to_owned()), 1),
        (file(), 2),
        (SettingSource::Option, 3),
        (flag("--max-depth"), 4),
    ];
    // In every rotation the flag wins.
    for first in 0..sources.len() {
        let mut config = Config::default();
        for (source, depth) in sources.iter().cycle().skip(first).take(sources.len()) {
            config
                .set("DEPTH_LIMIT", json!(depth), source.clone())
                .expect("a depth");
        }
        assert_eq!(config.frontier.depth_limit, 4);
        assert_eq!(config.source("depth_limit"), &flag("--max-depth"));
    }
}

#[test]
fn last_value_of_a_source_wins() {
    let config = given(&[("RETRY_TIMES", json!(1)), ("RETRY_TIMES", json!(4))]);
    assert_eq!(config.frontier.retry_times, 4);
}

#[test]
fn an_overridden_value_is_checked() {
    let mut config = Config::default();
    let depth = flag("--max-depth");
    config.set("DEPTH_LIMIT", json!(4), depth).expect("a depth");
    let error = config.set("depth_limit", json!("deep"), file());
    let text = error.expect_err("no number").to_string();
    assert!(text.starts_with("crawl.toml:7: depth_limit: "), "{text}");
}

#[test]
fn autothrottle_raises_the_default_concurrency_and_drops_the_default_delays() {
    let check = |given_settings: &[(&str, Value)], concurrency, delay, per_slot| {
        let pace = given(given_settings).throttle.default;
        assert_eq!(pace.concurrency, concurrency, "{given_settings:?}");
        assert_eq!(pace.delay.as_secs_f64(), delay, "{given_settings:?}");
        assert_eq!(
            pace.delay_per_slot.as_secs_f64(),
            per_slot,
            "{given_settings:?}"
        );
    };
    let on = || ("AUTOTHROTTLE_ENABLED", json!(true));
    let off = || ("AUTOTHROTTLE_ENABLED", json!(false));
    check(&[], 1, 1.0, 1.0);
    check(&[on()], 8, 0.0, 0.0);
    check(&[on(), off()], 1, 1.0, 1.0);
    check(&[("DOWNLOAD_DELAY", json!(2)), on()], 8, 2.0, 0.0);
    check(&[on(), ("DOWNLOAD_DELAY", json!(2))], 8, 2.0, 0.0);
    check(
        &[on(), ("CONCURRENT_REQUESTS_PER_DOMAIN", json!(3))],
        3,
        0.0,
        0.0,
    );
    check(&[on(), ("DOWNLOAD_DELAY_PER_SLOT", json!(3))], 8, 0.0, 3.0);
}

#[test]
fn a_chosen_delay_is_the_whole_gap() {
    let check = |given_settings: &[(&str, Value)], delay, per_slot| {
        let pace = given(given_settings).throttle.default;
        assert_eq!(pace.delay.as_secs_f64(), delay, "{given_settings:?}");
        assert_eq!(
            pace.delay_per_slot.as_secs_f64(),
            per_slot,
            "{given_settings:?}"
        );
    };
    let delay = || ("DOWNLOAD_DELAY", json!(0.3));
    let per_slot = || ("DOWNLOAD_DELAY_PER_SLOT", json!(2));
    check(&[delay()], 0.3, 0.0);
    check(&[per_slot()], 1.0, 2.0);
    check(&[delay(), per_slot()], 0.3, 2.0);
    check(&[per_slot(), delay()], 0.3, 2.0);
}

#[test]
fn a_scope_sets_some_keys_and_inherits_the_rest() {
    let config = given(&[(
        "throttling_scopes",
        json!({
            "Example.COM": {"delay": "250ms", "ignore_robots_txt": true},
            "both": {"Delay": 1, "delay_per_slot": 2, "jitter": [0, 0.1], "concurrency": "3"},
            "nothing": {},
        }),
    )]);
    let scopes = &config.throttle.scopes;
    assert_eq!(scopes.len(), 3, "the default's example is replaced");
    let example = &scopes["example.com"];
    assert_eq!(example.delay, Some(Duration::from_millis(250)));
    assert_eq!(example.delay_per_slot, Some(Duration::ZERO));
    assert_eq!(example.ignore_robots_txt, Some(true));
    assert_eq!((example.concurrency, example.jitter), (None, None));
    assert_eq!(scopes["both"].delay_per_slot, Some(Duration::from_secs(2)));
    assert_eq!(scopes["both"].concurrency, Some(3));
    assert_eq!(scopes["nothing"].delay_per_slot, None);
}

#[test]
fn scope_names_are_normalised_as_urls_are() {
    let check = |name: &str, expected: &str| {
        let config = given(&[("THROTTLING_SCOPES", json!({name: {}}))]);
        let names: Vec<_> = config.throttle.scopes.keys().collect();
        assert_eq!(names, [expected]);
    };
    check("A.Test", "a.test");
    check("a.test:80", "a.test");
    check("A.test:8080", "a.test:8080");
    check("Bücher.example", "xn--bcher-kva.example");
    check("[::1]:8080", "[::1]:8080");
    check("ip/192.0.2.1", "ip/192.0.2.1");
    check("My API", "My API");
}

#[test]
fn slots_and_scopes_are_merged_and_scopes_win() {
    let config = given(&[
        (
            "THROTTLING_SCOPES",
            json!(r#"{"a.test": {"delay": 2}, "b.test": {"concurrency": 2}}"#),
        ),
        (
            "DOWNLOAD_SLOTS",
            json!({"a.test": {"delay": 5, "randomize_delay": false}, "c.test": {"delay": 1}}),
        ),
    ]);
    let scopes = &config.throttle.scopes;
    assert_eq!(scopes["a.test"].delay, Some(Duration::from_secs(2)));
    assert_eq!(scopes["a.test"].jitter, Some(Jitter::NONE));
    assert_eq!(scopes["b.test"].concurrency, Some(2));
    assert_eq!(scopes["c.test"].delay, Some(Duration::from_secs(1)));
}

#[test]
fn a_malformed_scope_is_named() {
    let check = |value, expected: &str| {
        let text = refused("THROTTLING_SCOPES", value);
        assert!(text.contains(expected), "{text} lacks {expected}");
    };
    check(
        json!({"a.test": {"dealy": 1}}),
        r#"THROTTLING_SCOPES."a.test".dealy: unknown key; did you mean delay?"#,
    );
    check(
        json!({"a.test": {"delay": -1}}),
        r#""a.test".delay: -1 is negative"#,
    );
    check(
        json!({"a.test": {"concurrency": 0}}),
        ".concurrency: 0 is too small",
    );
    check(json!({"a.test": 3}), r#""a.test": 3 is not a map"#);
    check(json!({"http://a.test/": {}}), "a URL is not a scope");
    check(json!({"": {}}), "invalid name of a scope");
    check(json!({"a.test ": {}}), "invalid name of a scope");
    check(json!({"A.test": {}, "a.test": {}}), "has two entries");
    check(json!([1]), "[1] is not a map");
    check(json!("a.test=1"), "is not a map");
    let text = refused("DOWNLOAD_SLOTS", json!({"a": {"jitter": 1}}));
    assert!(text.contains("DOWNLOAD_SLOTS.a.jitter: "), "{text}");
}

#[test]
fn a_finished_config_is_checked_as_a_whole() {
    let config = given(&[("DOWNLOAD_MAXSIZE", json!("1GiB"))]);
    let text = config.finish().expect_err("too large").to_string();
    assert!(text.contains("raise BUFFERED_BODIES_MAX"), "{text}");

    let config = given(&[("HOST_HOLD_MIN", json!("1h"))]);
    let text = config.finish().expect_err("no range").to_string();
    let expected = "HOST_HOLD_MIN: HOST_HOLD_MIN is 3600s, more than HOST_HOLD_MAX, which is 900s; \
                    lower HOST_HOLD_MIN or raise HOST_HOLD_MAX";
    assert_eq!(text, expected);
    let config = given(&[("HOST_DOWN_TIME_MAX", json!(60))]);
    let text = config.finish().expect_err("no range").to_string();
    assert!(
        text.starts_with("HOST_DOWN_TIME_MAX: HOST_DOWN_TIME is 900s"),
        "{text}"
    );

    let mut config = Config::default();
    config.throttle.default.concurrency = 0;
    let text = config.finish().expect_err("a stall").to_string();
    assert!(
        text.starts_with("CONCURRENT_REQUESTS_PER_DOMAIN: 0 is too small"),
        "{text}"
    );

    let mut config = Config::default();
    config.throttle.default.jitter.low = f64::NAN;
    config.finish().expect_err("not a number");

    let mut config = Config::default();
    config.fetch.user_agent = "a\r\nb".to_owned();
    config.finish().expect_err("a header within a header");
}

#[test]
fn requests_in_flight_without_limit_are_bounded_by_open_files() {
    let config = given(&[("CONCURRENT_REQUESTS", json!(0))]);
    let config = config.finish().expect("a config");
    let max = config.throttle.concurrent_requests;
    assert!((1..=config.io.sockets_max).contains(&max), "{max}");
}

#[test]
fn the_default_config_has_the_defaults_of_each_floor() {
    let config = Config::default().finish().expect("the defaults are sound");
    let mut derived = config.clone();
    derived.derive();
    assert_eq!(format!("{derived:?}"), format!("{config:?}"));
    assert_eq!(
        config.throttle,
        crate::throttle::settings::ThrottleSettings::default()
    );
    assert_eq!(
        config.fetch,
        crate::fetch::settings::FetchSettings::default()
    );
}
