//! The presets: the values of each, and their precedence.

use super::*;
use crate::crawl::config::presets;

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
    // AutoThrottle alone has no delay at a server that answers at once.
    let mut config = Config::default();
    config.preset("polite").expect("a preset");
    let default = config.finish().expect("a sound preset").throttle.default;
    assert_eq!((default.delay, default.concurrency), (secs(1.0), 1));
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
fn a_preset_has_lower_precedence_than_any_user_setting() {
    for source in [
        file(),
        SettingSource::Option,
        flag("--x"),
        SettingSource::Program,
    ] {
        for preset_first in [true, false] {
            let mut config = Config::default();
            let mut steps: [&dyn Fn(&mut Config); 2] = [
                &|config| config.preset("Polite").expect("a preset"),
                &|config| {
                    let set = config.set("AUTOTHROTTLE_MAX_DELAY", json!(7), source.clone());
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
        "--preset: unknown preset \"polit\"; did you mean polite?"
    );
}

#[test]
fn a_preset_has_a_purpose_and_existing_settings() {
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
