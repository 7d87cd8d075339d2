//! The settings of scopes: keys, and names of entries.

use std::collections::{BTreeMap, BTreeSet};

use argiope::Config;
use argiope::serde_json::{Value, json};

use crate::markdown::{names, quoted, rows, tables};
use crate::tree::read;

#[test]
fn every_key_of_a_scope_is_documented() {
    let page = read("docs/reference/scopes.md");
    let tables = tables(&page);
    let keys = |entry: Value| -> BTreeSet<String> {
        let config = Config::default().with("THROTTLING_SCOPES", json!({"a.test": entry}));
        let refused = config.expect_err("unknown key").to_string();
        let (_, keys) = refused.split_once("unknown key; give ").expect("the keys");
        keys.trim_end_matches('.')
            .split(", ")
            .map(str::to_owned)
            .collect()
    };
    // Unlike any key, so that the error proposes none.
    let unknown = || json!({"qqqqqqqqqqqqqqqqqqqqqqqq": 1});
    let mut documented = names(tables[0]);
    // The sentence about keys of `autothrottle` that may also be keys of the entry.
    let alone = page
        .lines()
        .find(|line| line.contains("may also be keys of the entry"));
    let (_, alone) = alone
        .expect("the sentence")
        .split_once(": ")
        .expect("the keys");
    documented.extend(quoted(alone).map(str::to_owned));
    assert_eq!(documented, keys(unknown()));

    for (table, key) in tables[1..4]
        .iter()
        .zip(["backoff", "rampup", "autothrottle"])
    {
        let head = table.lines().next().unwrap_or_default();
        assert!(head.contains(&format!("`{key}`")), "{head}");
        let mut documented = names(table);
        if key == "backoff" {
            assert!(table.contains("`concurrency_decrease_factor`"));
            documented.insert("concurrency_decrease_factor".to_owned());
        }
        assert_eq!(documented, keys(json!({key: unknown()})), "{key}");
    }
}

#[test]
fn each_key_of_a_scope_stands_instead_of_its_setting() {
    let page = read("docs/reference/scopes.md");
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (table, of) in tables(&page)
        .iter()
        .zip(["", "backoff.", "rampup.", "autothrottle."])
    {
        for row in rows(table) {
            let settings: Vec<&str> = quoted(row[2]).collect();
            let keys: Vec<&str> = quoted(row[0]).collect();
            assert!(
                settings.is_empty() || settings.len() == keys.len(),
                "{row:?}"
            );
            for (key, setting) in keys.iter().zip(settings) {
                let settings = documented.entry(format!("{of}{key}")).or_default();
                settings.insert(setting.to_owned());
            }
        }
    }
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for setting in argiope::settings::all() {
        if let Some(key) = setting.scope_key {
            let settings = known.entry(key.to_owned()).or_default();
            settings.insert(setting.name.to_owned());
        }
    }
    assert_eq!(documented, known);
}

#[test]
fn every_example_of_a_scopes_name_is_one_and_every_pattern_has_an_example() {
    let page = read("docs/reference/scopes.md");
    let tables = tables(&page);
    let table = tables
        .iter()
        .find(|table| table.starts_with("| name of an entry "));
    let table = table.expect("the table of names");
    let entry = |name: &str| {
        let entries = json!({name: {"delay": 1}});
        Config::default().with("THROTTLING_SCOPES", entries)
    };
    let mut patterns = BTreeSet::new();
    for row in rows(table) {
        for name in quoted(row[1]) {
            let config = entry(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let shown = config.get("THROTTLING_SCOPES").expect("a setting");
            let shown = Value::from(shown);
            assert!(shown.get(name).is_some(), "{name} is read as {shown}");
            if name.contains('*') {
                patterns.insert(name.to_owned());
            }
        }
    }
    let refused = entry("a*.test").expect_err("no pattern").to_string();
    let words = refused.split([' ', ',', '(', ')']);
    let known = words.filter(|word| word.contains('*') && word.len() > 1 && !word.contains('"'));
    assert_eq!(patterns, known.map(str::to_owned).collect(), "{refused}");
}
