//! Settings that a scope was given while the crawl ran, as they are recorded for later runs, and what becomes of
//! them when the configuration changes.

use serde_json::{Map, Value};

use super::form::Form;
use super::scopes::{DEFAULT_ENTRY, Keys};
use super::{Config, SettingSource, settings};
use crate::throttle::settings::ScopePatch;

/// Keys of a scope and their values; those of tables by their paths, such as `backoff.max_delay`.
type Values = Map<String, Value>;

/// An order: settings that a scope was given while the crawl ran.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeOrder {
    /// What it sets.
    pub patch: ScopePatch,
    /// What the configuration set for the scope when the order was given. `None`: it is not known.
    configured: Option<Values>,
}

impl ScopeOrder {
    /// An order for the scope `name`, given now.
    pub fn new(name: &str, patch: ScopePatch, config: &Config) -> Self {
        ScopeOrder {
            patch,
            configured: Some(configured(name, config)),
        }
    }

    /// Reads what [`ScopeOrder::to_text`] writes, or a patch alone. `None` if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let Value::Object(mut keys) = serde_json::from_str(text).ok()? else {
            return None;
        };
        let configured = match keys.remove(CONFIGURED) {
            None => None,
            Some(Value::Object(values)) => Some(values),
            Some(_) => return None,
        };
        let patch = Keys::read(&keys.into()).ok()?;
        Some(ScopeOrder { patch, configured })
    }

    /// As JSON: the patch, and what was configured.
    pub fn to_text(&self) -> String {
        let mut keys = Keys::write(&self.patch);
        if let (Value::Object(keys), Some(configured)) = (&mut keys, &self.configured) {
            keys.insert(CONFIGURED.to_owned(), configured.clone().into());
        }
        keys.to_string()
    }

    /// Applies the order to a configuration that may have changed since: what is configured now and was not then
    /// replaces what the order sets for the same key. Returns a line for the log for each such key.
    pub fn settle(&mut self, name: &str, config: &Config) -> Vec<String> {
        let Some(then) = self.configured.take() else {
            self.configured = Some(configured(name, config));
            return Vec::new();
        };
        let now = configured(name, config);
        let mut ordered = flat(&self.patch);
        let mut replaced = Vec::new();
        for (key, value) in now
            .iter()
            .filter(|(key, value)| then.get(*key) != Some(*value))
        {
            let earlier = ordered.remove(key);
            if name != DEFAULT_ENTRY {
                // An order takes the place of the whole entry of its scope.
                ordered.insert(key.clone(), value.clone());
            }
            if let Some(earlier) = earlier.filter(|earlier| earlier != value) {
                replaced.push(format!(
                    "{name}: {key} is {value} as this run is configured, not {earlier} as an earlier run was ordered"
                ));
            }
        }
        // A delay that was ordered sets the delay per slot to 0.
        let per_slot = now.get(DELAY_PER_SLOT);
        if let Some(value) = per_slot.filter(|value| then.get(DELAY_PER_SLOT) != Some(*value))
            && ordered.contains_key("delay")
        {
            ordered.insert(DELAY_PER_SLOT.to_owned(), value.clone());
        }
        self.patch = patch_of(&ordered);
        self.configured = Some(now);
        replaced
    }

    /// Drops what is not possible with this configuration: as few groups of keys as possible. What the entry of the
    /// scope sets for their keys holds. Returns a line for the log if something is dropped.
    pub fn fit(&mut self, name: &str, config: &Config) -> Option<String> {
        let error = config.check_scope(name, &self.patch).err()?;
        let ordered = flat(&self.patch);
        let entry = match name == DEFAULT_ENTRY {
            true => Values::new(),
            false => configured(name, config),
        };
        let without = |groups: u32| -> Values {
            let is_dropped = |key: &str| groups & 1 << group_of(key) != 0;
            let kept = ordered.iter().filter(|(key, _)| !is_dropped(key));
            let of_entry = entry.iter().filter(|(key, _)| is_dropped(key));
            let left = kept.chain(of_entry);
            left.map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        // Each is a set of groups, a bit for each.
        let mut choices: Vec<u32> = (1..2 << GROUPS.len()).collect();
        choices.sort_by_key(|groups| groups.count_ones());
        let is_possible = |left: &Values| config.check_scope(name, &patch_of(left)).is_ok();
        let left = choices.into_iter().map(without).find(is_possible);
        let left = left.unwrap_or_default();
        let dropped = ordered
            .iter()
            .filter(|(key, value)| left.get(*key) != Some(*value));
        let dropped: Vec<&str> = dropped.map(|(key, _)| key.as_str()).collect();
        self.patch = patch_of(&left);
        Some(format!(
            "{name}: not all that an earlier run was ordered is possible with the settings of this run ({error}): \
             dropped: {}",
            dropped.join(", ")
        ))
    }
}

/// Keys that are dropped together, those first that are dropped rather than others. All other keys are one more
/// group.
const GROUPS: [&[&str]; 5] = [
    &["backoff"],
    &["autothrottle"],
    &["rampup"],
    &["quota", "window", "window_kind", "requests_per_minute"],
    &["manager"],
];

/// The group of a key, by its number.
fn group_of(key: &str) -> usize {
    let (first, _) = key.split_once('.').unwrap_or((key, ""));
    let group = GROUPS.iter().position(|keys| keys.contains(&first));
    group.unwrap_or(GROUPS.len())
}

/// The key of an order with what was configured. No setting of a scope has this name.
const CONFIGURED: &str = "configured";

const DELAY_PER_SLOT: &str = "delay_per_slot";

/// What the configuration sets for a scope: the entry of this name, or what it sets for all scopes without one.
fn configured(name: &str, config: &Config) -> Values {
    if name != DEFAULT_ENTRY {
        let entry = config.throttle.scopes.get(name);
        return entry.map_or_else(Values::new, flat);
    }
    let mut values = config.given.scopes.get(name).map_or_else(Values::new, flat);
    let is_set = |name: &str| *config.source(name) != SettingSource::Default;
    for setting in settings().iter().filter(|setting| is_set(setting.name)) {
        let key = match setting.name {
            "AUTOTHROTTLE_ENABLED" => Some("autothrottle.enabled"),
            _ => setting.scope_key,
        };
        if let Some(key) = key {
            values.insert(key.to_owned(), (setting.read)(config));
        }
    }
    values
}

/// The keys of a patch.
fn flat(patch: &ScopePatch) -> Values {
    let Value::Object(keys) = Keys::write(patch) else {
        unreachable!("a patch is a table");
    };
    let mut values = Values::new();
    for (key, value) in keys {
        match value {
            Value::Object(table) if TABLES.contains(&key.as_str()) => {
                let of_table = table.into_iter();
                values.extend(of_table.map(|(inner, value)| (format!("{key}.{inner}"), value)));
            }
            value => drop(values.insert(key, value)),
        }
    }
    values
}

/// The patch with these keys.
fn patch_of(values: &Values) -> ScopePatch {
    let mut keys = Map::new();
    for (path, value) in values {
        match path.split_once('.') {
            Some((table, key)) => {
                let table = keys.entry(table).or_insert_with(|| Map::new().into());
                table[key] = value.clone();
            }
            None => drop(keys.insert(path.clone(), value.clone())),
        }
    }
    Keys::read(&keys.into()).expect("they are values of patches")
}

/// Keys whose values are tables of keys.
const TABLES: [&str; 3] = ["backoff", "rampup", "autothrottle"];
