//! Settings that have an effect on a probe, and warnings of others.

use super::*;
use crate::crawl::config::settings as config_settings;

#[test]
fn settings_without_effect_are_named_with_their_source() {
    for name in SETTINGS_WITH_EFFECT {
        let there = config_settings()
            .iter()
            .any(|setting| setting.name == *name);
        assert!(there, "{name}");
    }
    assert_eq!(
        settings_without_effect(&Config::default()),
        Vec::<String>::new()
    );
    let mut config = Config::default();
    let given = [
        ("download_delay", "2"),
        ("KEEPALIVE_MAX", "0"),
        ("STOP_GRACE", "1s"),
        ("CONNECT_TIMEOUT", "1s"),
    ];
    for (name, value) in given {
        config
            .set(name, value, SettingSource::Option)
            .expect("a valid setting");
    }
    let place = SettingSource::Option;
    let expected = ["DOWNLOAD_DELAY", "KEEPALIVE_MAX"].map(|name| format!("{name} ({place})"));
    assert_eq!(settings_without_effect(&config), expected);
}

/// Parts of a configuration that are of no use to a probe, or that it replaces.
const FIELDS_WITHOUT_EFFECT: &[&str] = &[
    "throttle.",
    "frontier.",
    "given.",
    "robots_ignored_hosts_max",
    "outage_breaker",
    "max_time",
    "metrics_scopes_max",
    "warc",
    "rotation.",
    "links_file",
    "extraction",
    "filtered_file",
    "state",
    // Every origin is one that the user named, and no redirect is followed.
    "fetch.credential_origins",
    "fetch.private_headers",
    "fetch.keepalive_max",
    "io.gzip_level",
    "io.disk_free_min",
];

/// Fields among these that are of use to a probe nonetheless.
const FIELDS_WITH_EFFECT: &[&str] = &[
    "given.user_agent",
    "given.contact",
    "given.exclude",
    "frontier.own_hosts",
    "frontier.proxies.",
];

#[test]
fn each_setting_of_a_part_that_a_probe_uses_has_an_effect() {
    let table = include_str!("../../config/table.rs");
    let is_in = |parts: &[&str], field: &str| parts.iter().any(|part| field.starts_with(part));
    let mut seen = Vec::new();
    for row in table.split("row!(\"").skip(1) {
        let (name, rest) = row.split_once('"').expect("a name is quoted");
        // The form may have arguments; the field begins with a small letter.
        let field = rest.split(", ").find(|part| {
            let first = part.trim_start().chars().next();
            first.is_some_and(|first| first.is_ascii_lowercase())
        });
        let field = field.expect("a row names its field").trim();
        let has_effect = is_in(FIELDS_WITH_EFFECT, field) || !is_in(FIELDS_WITHOUT_EFFECT, field);
        let is_listed = SETTINGS_WITH_EFFECT.contains(&name);
        assert_eq!(is_listed, has_effect, "{name} sets {field}");
        seen.push(name);
    }
    let others = config_settings().iter().map(|setting| setting.name);
    let others: Vec<&str> = others.filter(|name| !seen.contains(name)).collect();
    assert_eq!(others, ["AUTOTHROTTLE_ENABLED"], "its row is written out");
}

#[test]
fn beside_every_a_rate_has_no_effect() {
    let targets = [Request::get("http://a.test/")];
    let is_sound = |rate, every, count| {
        let settings = ProbeSettings {
            rate,
            every,
            length: Some(Length::Requests(count)),
            ..ProbeSettings::default()
        };
        check(&settings, &targets).is_ok()
    };
    let every = Some(Duration::from_secs(1));
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
        assert!(is_sound(rate, every, 10), "{rate}");
        assert!(!is_sound(rate, None, 10), "{rate}");
    }
    assert!(is_sound(1.0, Some(SPAN_MAX), 1));
    assert!(
        !is_sound(1.0, Some(SPAN_MAX), 2),
        "they would take 20 years"
    );
}
