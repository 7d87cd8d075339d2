//! Limits and configurations that change, and what a later run has of them.

use super::*;

fn config(settings: &[(&str, Value)]) -> Config {
    let mut config = Config::default();
    for (name, value) in settings {
        config = config.with(name, value.clone()).expect("it is valid");
    }
    config.finish().expect("they are valid together")
}

fn begun(settings: &[(&str, Value)]) -> Overrides {
    Overrides::new(Arc::new(config(settings)))
}

fn order(overrides: &mut Overrides, name: &str, value: Value) -> Result<Value, String> {
    let limits = Map::from_iter([(name.to_owned(), value)]);
    let ordered = overrides.order(&limits);
    let config = ordered.map_err(|refused| refused.error.to_string())?;
    Ok(value_in(&config, name))
}

fn value_in(config: &Config, name: &str) -> Value {
    config.get(name).map_or(Value::Null, Value::from)
}

/// The facts of a run, as a later one finds them.
fn facts(overrides: &mut Overrides) -> Vec<(String, String)> {
    let facts = overrides.poll_facts().into_iter();
    facts.map(|(name, text)| (name.to_owned(), text)).collect()
}

#[test]
fn an_order_holds_until_it_is_withdrawn() {
    let mut overrides = begun(&[("CLOSESPIDER_PAGECOUNT", json!(5))]);
    assert_eq!(
        order(&mut overrides, "closespider_pagecount", json!("7")),
        Ok(json!(7))
    );
    let new = config(&[("CLOSESPIDER_PAGECOUNT", json!(6))]);
    let holds = overrides.reload(new).expect("it may change");
    assert_eq!(value_in(&holds, "CLOSESPIDER_PAGECOUNT"), json!(7));
    let limit = overrides.limits_json(&holds)["CLOSESPIDER_PAGECOUNT"].clone();
    let expected = json!({"value": 7, "configured": 6, "is_ordered": true});
    assert_eq!(limit, expected);
    assert_eq!(
        order(&mut overrides, "CLOSESPIDER_PAGECOUNT", Value::Null),
        Ok(json!(6))
    );
}

#[test]
fn wrong_limits_are_refused_and_change_nothing() {
    let mut overrides = begun(&[]);
    for (name, value, part) in [
        ("NO_SUCH", json!(1), "unknown setting"),
        (
            "DOWNLOAD_DELAY",
            json!(1),
            "not a limit that can be ordered",
        ),
        ("CONCURRENT_REQUESTS", json!(-1), "CONCURRENT_REQUESTS"),
        (
            "CONCURRENT_REQUESTS",
            json!({"a": 1}),
            "CONCURRENT_REQUESTS",
        ),
        ("CLOSESPIDER_TIMEOUT", json!("soon"), "CLOSESPIDER_TIMEOUT"),
        ("PAGES_PER_HOST_MAX", json!(3), "was 0 when the run began"),
    ] {
        let refused = order(&mut overrides, name, value).expect_err(name);
        assert!(refused.contains(part), "{refused}");
    }
    let two = json!({"CONCURRENT_REQUESTS": 5, "CLOSESPIDER_PAGECOUNT": "many"});
    let refused = overrides.order(two.as_object().expect("an object"));
    assert!(refused.is_err());
    assert_eq!(overrides.ordered().count(), 0);
    assert_eq!(overrides.poll_facts(), []);
}

#[test]
fn a_limit_that_is_counted_may_be_raised_and_switched_off() {
    let mut overrides = begun(&[("PAGES_PER_HOST_MAX", json!(3))]);
    assert_eq!(
        order(&mut overrides, "PAGES_PER_HOST_MAX", json!(9)),
        Ok(json!(9))
    );
    assert_eq!(
        order(&mut overrides, "PAGES_PER_HOST_MAX", json!(0)),
        Ok(json!(0))
    );
    assert_eq!(
        order(&mut overrides, "PAGES_PER_HOST_MAX", json!(1)),
        Ok(json!(1))
    );
}

#[test]
fn a_setting_that_needs_another_run_refuses_the_whole_configuration() {
    let mut overrides = begun(&[]);
    let new = config(&[
        ("RETRY_TIMES", json!(9)),
        ("WARC", json!(false)),
        ("PAGES_PER_DOMAIN_MAX", json!(9)),
        ("THROTTLING_SCOPES", json!({"a.test": {"manager": "mine"}})),
    ]);
    let refused = overrides.reload(new).expect_err("it needs another run");
    let names: Vec<_> = refused.iter().map(|one| one.change.setting.name).collect();
    assert_eq!(names, ["PAGES_PER_DOMAIN_MAX", "WARC", "THROTTLING_SCOPES"]);
    assert_eq!(value_in(overrides.base(), "RETRY_TIMES"), json!(2));
    assert_eq!(overrides.poll_facts(), []);
}

#[test]
fn a_later_run_with_the_configuration_of_the_start_or_of_the_reload_has_the_limits_that_were_ordered()
 {
    let start = [
        ("DOWNLOAD_DELAY", json!(5)),
        ("CLOSESPIDER_PAGECOUNT", json!(50)),
    ];
    let new = [
        ("RETRY_TIMES", json!(7)),
        ("CLOSESPIDER_PAGECOUNT", json!(60)),
    ];
    let mut overrides = begun(&start);
    overrides.reload(config(&new)).expect("it may change");
    order(&mut overrides, "CONCURRENT_REQUESTS", json!(11)).expect("a limit");
    order(&mut overrides, "CLOSESPIDER_PAGECOUNT", json!(70)).expect("a limit");
    let facts = facts(&mut overrides);
    let reloaded = facts
        .iter()
        .filter_map(|(name, fact)| Some((name.as_str(), reloaded_value(fact.as_bytes())?)));
    let expected = [
        ("CLOSESPIDER_PAGECOUNT", json!(60)),
        ("DOWNLOAD_DELAY", Value::Null),
        ("RETRY_TIMES", json!(7)),
    ];
    assert_eq!(reloaded.collect::<Vec<_>>(), expected);
    for given in [&start, &new] {
        let mut later = begun(given);
        let (present, warnings) = later.restore(&facts);
        assert_eq!(warnings, [] as [String; 0]);
        assert_eq!(value_in(&present, "CONCURRENT_REQUESTS"), json!(11));
        assert_eq!(value_in(&present, "CLOSESPIDER_PAGECOUNT"), json!(70));
        let (name, value) = &given[0];
        assert_eq!(value_in(&present, name), *value);
    }
}

#[test]
fn what_a_later_run_configures_anew_holds_over_orders_with_a_warning() {
    let mut overrides = begun(&[("CLOSESPIDER_PAGECOUNT", json!(50))]);
    order(&mut overrides, "CLOSESPIDER_PAGECOUNT", json!(70)).expect("a limit");
    let facts = facts(&mut overrides);
    let mut later = begun(&[("CLOSESPIDER_PAGECOUNT", json!(80))]);
    let (present, warnings) = later.restore(&facts);
    assert_eq!(value_in(&present, "CLOSESPIDER_PAGECOUNT"), json!(80));
    let expected = "CLOSESPIDER_PAGECOUNT is 80 as this run is configured, not 70 as an earlier run was ordered";
    assert_eq!(warnings, [expected]);
    assert_eq!(
        later.poll_facts(),
        [("CLOSESPIDER_PAGECOUNT", String::new())],
        "the order is forgotten"
    );
}

#[test]
fn facts_that_cannot_be_read_are_dropped_with_a_warning() {
    let mut later = begun(&[]);
    let facts = [("NO_SUCH", "{}"), ("RETRY_TIMES", "]")];
    let facts = facts.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let (present, warnings) = later.restore(&facts);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(later.base().changes_to(&present), []);
}
