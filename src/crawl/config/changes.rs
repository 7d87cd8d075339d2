//! Changes between two configurations of one crawl.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::error::Problem;
use super::{Config, ConfigError, Setting, SettingSource, settings, table};
use crate::base::address::Network;

/// A setting whose value differs between two configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value in the first one.
    pub before: Value,
    /// Its value in the second one.
    pub after: Value,
}

impl Change {
    /// As JSON: name, before, after. Of maps and of `EXCLUDE` only the entries that differ; a value that may have a secret is
    /// hidden, and one that is long is not shown.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("name".to_owned(), self.setting.name.into());
        let (before, after) = match SECRET.contains(&self.setting.name) {
            true => ("hidden".into(), "hidden".into()),
            false if self.setting.name == "EXCLUDE" => differing_items(&self.before, &self.after),
            false => differing(&self.before, &self.after),
        };
        json.insert("before".to_owned(), shortened(before));
        json.insert("after".to_owned(), shortened(after));
        json.into()
    }
}

impl Config {
    /// The settings whose values differ in `other`, in the order of the table.
    pub(crate) fn changes_to(&self, other: &Config) -> Vec<Change> {
        let changed = settings().iter().filter_map(|setting| {
            let (before, after) = ((setting.read)(self), (setting.read)(other));
            (before != after).then_some(Change {
                setting,
                before,
                after,
            })
        });
        changed.collect()
    }

    /// The value of a setting as it was given; null if it was not.
    pub(crate) fn given_value(&self, setting: &Setting) -> Value {
        match self.source(setting.name) {
            SettingSource::Default => Value::Null,
            _ => (setting.read)(self),
        }
    }

    /// The networks of `EXCLUDE`.
    pub(crate) fn excluded_networks(&self) -> Vec<Network> {
        let networks = self.exclude_nets.iter().map(|text| text.parse());
        networks
            .map(|network| network.expect("the setting was checked"))
            .collect()
    }

    /// Sets a setting over every other source.
    ///
    /// # Errors
    /// An unknown setting, or a value that it does not accept.
    pub(crate) fn override_with(&mut self, name: &str, value: &Value) -> Result<(), ConfigError> {
        self.set_json(name, value, SettingSource::Program)
    }

    /// The setting of this name or alias, in any case.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn setting(name: &str) -> Result<&'static Setting, Problem> {
        table::find(name)
    }
}

/// Of two lists of texts, the items that are not in both.
fn differing_items(before: &Value, after: &Value) -> (Value, Value) {
    let set = |value: &Value| -> BTreeSet<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (before, after) = (set(before), set(after));
    let only = |of: &BTreeSet<String>, other: &BTreeSet<String>| {
        let only = of.difference(other).map(|item| Value::from(item.as_str()));
        Value::Array(only.collect())
    };
    (only(&before, &after), only(&after, &before))
}

/// Of maps, the entries that are not in both.
fn differing(before: &Value, after: &Value) -> (Value, Value) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let only = |of: &Map<String, Value>, other: &Map<String, Value>| {
                let differ = of
                    .iter()
                    .filter(|(key, value)| other.get(*key) != Some(*value));
                let differ = differ.map(|(key, value)| (key.clone(), value.clone()));
                Value::Object(differ.collect())
            };
            (only(before, after), only(after, before))
        }
        _ => (before.clone(), after.clone()),
    }
}

/// The value, or how long it is.
fn shortened(value: Value) -> Value {
    let bytes = match &value {
        Value::Object(_) | Value::Array(_) | Value::String(_) => value.to_string().len(),
        _ => 0,
    };
    match bytes > SHOWN_MAX {
        true => format!("a value of {bytes} bytes, which is not shown").into(),
        false => value,
    }
}

/// Settings that may have a secret.
const SECRET: [&str; 5] = [
    "PROXY",
    "PROXY_HTTPS",
    "DEFAULT_REQUEST_HEADERS",
    "HTTP_USER",
    "HOSTS",
];

/// Bytes of a value that are shown.
const SHOWN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: Config, after: Config, expected: &[(&str, Value, Value)]) {
        let found = before.changes_to(&after);
        let found: Vec<_> = found
            .iter()
            .map(|change| {
                let json = change.to_json();
                (
                    change.setting.name,
                    json["before"].clone(),
                    json["after"].clone(),
                )
            })
            .collect();
        assert_eq!(found, expected);
    }

    fn with(name: &str, value: Value) -> Config {
        let config = Config::default().with(name, value);
        config.expect("it is valid")
    }

    #[test]
    fn changes_name_the_settings_with_their_values() {
        check(Config::default(), Config::default(), &[]);
        check(
            Config::default(),
            with("RETRY_TIMES", json!(5)),
            &[("RETRY_TIMES", json!(2), json!(5))],
        );
        // A delay that is set makes the delay of a slot 0.
        check(
            Config::default(),
            with("DOWNLOAD_DELAY", json!(2)),
            &[
                ("DOWNLOAD_DELAY", json!(1), json!(2)),
                ("DOWNLOAD_DELAY_PER_SLOT", json!(1), json!(0)),
            ],
        );
    }

    #[test]
    fn changes_of_maps_have_the_entries_that_differ() {
        check(
            with(
                "THROTTLING_SCOPES",
                json!({"a.test": {"delay": 1}, "b.test": {"delay": 1}}),
            ),
            with(
                "THROTTLING_SCOPES",
                json!({"a.test": {"delay": 1}, "c.test": {"delay": 2}}),
            ),
            &[(
                "THROTTLING_SCOPES",
                json!({"b.test": {"delay": 1}}),
                json!({"c.test": {"delay": 2}}),
            )],
        );
    }

    #[test]
    fn changes_of_excluded_hosts_have_those_that_differ() {
        check(
            with("EXCLUDE", json!(["a.test", "b.test"])),
            with("EXCLUDE", json!(["c.test", "b.test", "10.0.0.0/8"])),
            &[(
                "EXCLUDE",
                json!(["a.test"]),
                json!(["10.0.0.0/8", "c.test"]),
            )],
        );
    }

    #[test]
    fn secrets_are_hidden() {
        check(
            Config::default(),
            with("PROXY", json!("http://me:secret@10.0.0.1:8080")),
            &[("PROXY", json!("hidden"), json!("hidden"))],
        );
    }
}
