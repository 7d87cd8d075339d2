//! Settings that change while the crawl runs: by a new configuration, and by orders over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::crawl::config::{Change, Config, ConfigError, Problem, SettingSource, settings};
use crate::throttle::settings::Manager;

/// The configuration, and the limits that were ordered over it.
///
/// An order on a limit holds until it is withdrawn, whatever a later configuration sets. Facts for the journal leave
/// by [`Overrides::poll_facts`] and enter a later run by [`Overrides::restore`].
#[derive(Debug)]
pub struct Overrides {
    /// As this run was given it.
    start: Arc<Config>,
    /// As it was reloaded last, without orders.
    base: Arc<Config>,
    /// The limits that were ordered.
    ordered: BTreeMap<&'static str, Value>,
    /// The facts that the journal has.
    recorded: BTreeMap<&'static str, String>,
}

/// Limits that may be ordered.
pub const LIMITS: [&str; 9] = [
    "CONCURRENT_REQUESTS",
    "BYTES_PER_SECOND_MAX",
    "CLOSESPIDER_PAGECOUNT",
    "CLOSESPIDER_ERRORCOUNT",
    "CLOSESPIDER_BYTECOUNT",
    "CLOSESPIDER_TIMEOUT",
    "PAGES_PER_HOST_MAX",
    "PAGES_PER_DOMAIN_MAX",
    "BYTES_PER_DOMAIN_MAX",
];

/// Limits that need counts of each host or domain, which are kept only if the run began with such a limit.
const COUNTED: [&str; 3] = [
    "PAGES_PER_HOST_MAX",
    "PAGES_PER_DOMAIN_MAX",
    "BYTES_PER_DOMAIN_MAX",
];

/// Why a limit cannot be ordered. Nothing was changed.
#[derive(Debug, PartialEq)]
pub struct LimitError {
    /// What was wrong, and how to mend it.
    pub error: ConfigError,
    /// It would be possible in another run: this one has not counted what it limits.
    pub needs_run: bool,
}

/// A setting of a new configuration that needs another run.
#[derive(Debug, PartialEq)]
pub struct FixedChange {
    /// The setting, as the run has it and as it is to be.
    pub change: Change,
    /// Why.
    pub why: &'static str,
}

impl Overrides {
    /// The settings of a run with this configuration, which is finished.
    pub fn new(start: Arc<Config>) -> Self {
        Overrides {
            base: Arc::clone(&start),
            start,
            ordered: BTreeMap::new(),
            recorded: BTreeMap::new(),
        }
    }

    /// The limits that were ordered.
    pub fn ordered(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.ordered.keys().copied()
    }

    /// The configuration without orders.
    pub fn base(&self) -> &Arc<Config> {
        &self.base
    }

    /// Orders limits; null withdraws an order. Returns the configuration that holds now.
    ///
    /// # Errors
    /// One of them cannot be ordered: then none is.
    pub fn order(&mut self, limits: &Map<String, Value>) -> Result<Config, LimitError> {
        let mut ordered = self.ordered.clone();
        for (name, value) in limits {
            match check_limit(&self.start, name, value)? {
                (name, Value::Null) => drop(ordered.remove(name)),
                (name, value) => drop(ordered.insert(name, value)),
            }
        }
        let config = over(&self.base, &ordered);
        let config = config.map_err(|error| LimitError {
            error,
            needs_run: false,
        })?;
        self.ordered = ordered;
        Ok(config)
    }

    /// Replaces the configuration without orders by a finished one. Returns the configuration that holds now.
    ///
    /// # Errors
    /// It has settings that need another run: then nothing is replaced.
    pub fn reload(&mut self, new: Config) -> Result<Config, Vec<FixedChange>> {
        let refused = refused(&self.start, &new);
        if !refused.is_empty() {
            return Err(refused);
        }
        // What is ordered is possible with any configuration that is: no other setting depends on a limit.
        let config = over(&new, &self.ordered).unwrap_or_else(|_| new.clone());
        self.base = Arc::new(new);
        Ok(config)
    }

    /// The limits: value, the configured value, and whether the value is ordered.
    pub fn limits_json(&self, present: &Config) -> Value {
        let limits = LIMITS.iter().map(|name| {
            let value_in = |config: &Config| config.get(name).map_or(Value::Null, Value::from);
            let limit = json!({
                "value": value_in(present),
                "configured": value_in(&self.base),
                "is_ordered": self.ordered.contains_key(name),
            });
            ((*name).to_owned(), limit)
        });
        Value::Object(limits.collect())
    }

    /// What the journal is to record since the last call: an empty text is a fact that has nothing to say any more.
    pub fn poll_facts(&mut self) -> Vec<(&'static str, String)> {
        let mut facts = BTreeMap::new();
        for setting in settings() {
            let configured = self.start.given_value(setting);
            let reloaded = self.base.given_value(setting);
            let is_reloaded = setting.is_live && reloaded != configured;
            let ordered = self.ordered.get(setting.name);
            if !is_reloaded && ordered.is_none() {
                continue;
            }
            let mut fact = Map::from_iter([(CONFIGURED.to_owned(), configured)]);
            if is_reloaded {
                fact.insert(RELOADED.to_owned(), reloaded);
            }
            if let Some(value) = ordered {
                fact.insert(ORDERED.to_owned(), value.clone());
            }
            facts.insert(setting.name, Value::Object(fact).to_string());
        }
        let over = self
            .recorded
            .keys()
            .filter(|name| !facts.contains_key(*name));
        let mut changed: Vec<_> = over.map(|name| (*name, String::new())).collect();
        for (name, fact) in &facts {
            if self.recorded.get(name) != Some(fact) {
                changed.push((name, fact.clone()));
            }
        }
        self.recorded = facts;
        changed
    }

    /// Continues with the facts of earlier runs: names of settings, and texts. An order holds, unless this run is
    /// configured otherwise than the run that was given it. What that run had reloaded is part of the configuration
    /// that this run is given: see [`reloaded_value`]. Returns the configuration that holds now, and lines for the log.
    pub fn restore(&mut self, facts: &[(String, String)]) -> (Config, Vec<String>) {
        let mut warnings = Vec::new();
        for (name, text) in facts {
            let Ok(setting) = Config::setting(name) else {
                warnings.push(format!(
                    "{name}, which was changed in an earlier run, is no setting any more"
                ));
                continue;
            };
            self.recorded.insert(setting.name, text.clone());
            let Ok(Value::Object(mut fact)) = serde_json::from_str(text) else {
                warnings.push(format!(
                    "what was changed of {name} in an earlier run cannot be read"
                ));
                continue;
            };
            let Some(ordered) = fact.remove(ORDERED) else {
                continue;
            };
            let now = Some(self.start.given_value(setting));
            let is_same = [CONFIGURED, RELOADED]
                .iter()
                .any(|key| fact.get(*key) == now.as_ref());
            let may_be =
                LIMITS.contains(&setting.name) && !self.is_uncounted(setting.name, &ordered);
            if is_same && may_be {
                self.ordered.insert(setting.name, ordered);
            } else {
                let now = self
                    .start
                    .get(setting.name)
                    .map_or(Value::Null, Value::from);
                warnings.push(format!(
                    "{name} is {now} as this run is configured, not {ordered} as an earlier run was ordered"
                ));
            }
        }
        match over(&self.base, &self.ordered) {
            Ok(config) => (config, warnings),
            Err(error) => {
                self.ordered.clear();
                warnings.push(format!(
                    "limits that were ordered in an earlier run are not possible any more, and are dropped: {error}"
                ));
                (Config::clone(&self.base), warnings)
            }
        }
    }

    fn is_uncounted(&self, name: &str, value: &Value) -> bool {
        is_uncounted(&self.start, name, value)
    }
}

/// The value of a setting that a run had reloaded, by the text of its fact: null if it was given none any more.
pub fn reloaded_value(fact: &[u8]) -> Option<Value> {
    let fact: Value = serde_json::from_slice(fact).ok()?;
    fact.get(RELOADED).cloned()
}

/// Checks an order on a limit by its name in any case; null withdraws one. Returns the name of the setting, and its
/// value as settings are read.
///
/// # Errors
/// There is no such limit or value, or it needs counts that this run does not have.
pub fn check_limit(
    start: &Config,
    name: &str,
    value: &Value,
) -> Result<(&'static str, Value), LimitError> {
    let refused = |problem: Problem, needs_run: bool| LimitError {
        error: problem.at(SettingSource::Program, name),
        needs_run,
    };
    let setting = Config::setting(name).map_err(|mut problem| {
        if !LIMITS.iter().any(|limit| problem.mend.contains(limit)) {
            problem.mend = format!("give one of {}", LIMITS.join(", "));
        }
        refused(problem, false)
    })?;
    if !LIMITS.contains(&setting.name) {
        let mend = format!("those that can be are {}", LIMITS.join(", "));
        return Err(refused(
            Problem::new("not a limit that can be ordered", mend),
            false,
        ));
    }
    if value.is_null() {
        return Ok((setting.name, Value::Null));
    }
    let mut scratch = Config::default();
    let read = scratch.override_with(setting.name, value);
    read.map_err(|error| LimitError {
        error,
        needs_run: false,
    })?;
    let value = (scratch.get(setting.name)).map_or(Value::Null, Value::from);
    match is_uncounted(start, setting.name, &value) {
        true => Err(refused(Problem::new(UNCOUNTED, MEND), true)),
        false => Ok((setting.name, value)),
    }
}

/// The settings of a finished configuration that need another run than one that began with `start`.
pub fn refused(start: &Config, new: &Config) -> Vec<FixedChange> {
    let changes = start.changes_to(new).into_iter();
    let changes = changes.filter(|change| {
        let name = change.setting.name;
        // What is not given follows from the machine, or from what else is refused.
        let is_given = !start.given_value(change.setting).is_null()
            || !new.given_value(change.setting).is_null();
        is_given && (!change.setting.is_live || is_uncounted(start, name, &change.after))
    });
    let refused = changes.map(|change| {
        let why = match change.setting.is_live {
            true => UNCOUNTED,
            false => NEEDS_RUN,
        };
        FixedChange { change, why }
    });
    let mut refused: Vec<_> = refused.collect();
    if let Some(change) = changed_managers(start, new) {
        refused.push(FixedChange {
            change,
            why: MANAGERS,
        });
    }
    refused
}

/// The change of the managers of scopes, if there is one.
fn changed_managers(start: &Config, new: &Config) -> Option<Change> {
    const NAME: &str = "THROTTLING_SCOPES";
    let managers = |config: &Config| -> Vec<(String, Option<Manager>)> {
        let scopes = config.throttle().scopes.iter();
        let own = scopes.filter_map(|(name, patch)| Some((name.clone(), patch.manager.clone()?)));
        let own = own.map(|(name, manager)| (name, Some(manager)));
        let usual = config.throttle().usual().manager.clone();
        let usual = ("default".to_owned(), usual);
        own.chain([usual]).collect()
    };
    let names = |managers: &[(String, Option<Manager>)]| {
        let with = managers.iter().filter(|(_, manager)| manager.is_some());
        with.map(|(name, _)| Value::from(name.as_str())).collect()
    };
    let (before, after) = (managers(start), managers(new));
    let setting = Config::setting(NAME).expect("it is in the table");
    (before != after).then(|| Change {
        setting,
        before: names(&before),
        after: names(&after),
    })
}

fn is_uncounted(start: &Config, name: &str, value: &Value) -> bool {
    let is_off = |value: &Value| value.as_u64() == Some(0);
    let was_off = || start.get(name).is_some_and(|value| is_off(&value.into()));
    COUNTED.contains(&name) && !is_off(value) && was_off()
}

/// The configuration with these limits.
fn over(base: &Config, ordered: &BTreeMap<&'static str, Value>) -> Result<Config, ConfigError> {
    let mut config = base.clone();
    for (name, value) in ordered {
        config.override_with(name, value)?;
    }
    config.finish()
}

/// Keys of a fact.
const CONFIGURED: &str = "configured";
const RELOADED: &str = "reloaded";
const ORDERED: &str = "ordered";

const NEEDS_RUN: &str = "it is read when a run begins";
const UNCOUNTED: &str = "it was 0 when the run began, so that nothing was counted for it";
const MANAGERS: &str = "managers of scopes are made when a run begins";

/// How to apply what needs another run.
pub const MEND: &str = "stop the crawl, and continue it with --resume";

#[cfg(test)]
mod tests;
