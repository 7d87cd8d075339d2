//! Settings of single scopes: `THROTTLING_SCOPES`, and `DOWNLOAD_SLOTS` as in Scrapy.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};

use super::choices::{Codes, Flag, JitterForm, OneOf};
use super::error::{ConfigError, Problem, SettingSource, UNKNOWN_KEY, nearest};
use super::form::{Form, wrong};
use super::quantity::{
    AboveOne, AboveZero, BelowOne, Bytes, Concurrency, Delay, Moment, PerMinute, Timeout,
};
use super::throttling::{Exceptions, Registered, Target};
use crate::throttle::settings::{
    ADDRESSES, AutoThrottleMode, AutoThrottlePatch, BackoffPatch, DOMAINS, LatencyFrom,
    PREFIX_SEGMENTS_MAX, RampupPatch, ScopePatch, WindowKind,
};
use crate::wire::url::CrawlUrl;

type Patches = BTreeMap<String, ScopePatch>;

/// `THROTTLING_SCOPES`.
pub(super) struct Scopes;

impl Form for Scopes {
    type Of = Patches;
    const KIND: &'static str = "map of scopes";

    fn read(value: &Value) -> Result<Patches, Problem> {
        patches(value, SCOPE_KEYS)
    }

    fn write(of: &Patches) -> Value {
        written(of, SCOPE_KEYS)
    }
}

/// `DOWNLOAD_SLOTS`.
pub(super) struct Slots;

impl Form for Slots {
    type Of = Patches;
    const KIND: &'static str = Scopes::KIND;

    fn read(value: &Value) -> Result<Patches, Problem> {
        patches(value, SLOT_KEYS)
    }

    fn write(of: &Patches) -> Value {
        written(of, SLOT_KEYS)
    }
}

/// Defaults for each scope of one kind: `DOMAIN_SCOPE_DEFAULTS`.
pub(super) struct Keys;

impl Form for Keys {
    type Of = ScopePatch;
    const KIND: &'static str = "table of a scope's keys";

    fn read(value: &Value) -> Result<ScopePatch, Problem> {
        let mut patch = ScopePatch::default();
        let table = object(
            value,
            r#"give a table, or JSON: {"concurrency": 2, "delay": 0.5}"#,
        )?;
        read_keys(&mut patch, &table, SCOPE_KEYS)?;
        Ok(patch)
    }

    fn write(of: &ScopePatch) -> Value {
        written_keys(of, SCOPE_KEYS).into()
    }
}

/// Parses an entry of `THROTTLING_SCOPES` from JSON, for
/// [`Crawler::set_scope`](crate::Crawler::set_scope), which validates the scope's name.
///
/// ```
/// use argiope::settings::ScopePatch;
/// use std::time::Duration;
///
/// let patch: ScopePatch = r#"{"delay": "250ms", "concurrency": 2}"#.parse()?;
/// let same = ScopePatch::default().delay(Duration::from_millis(250)).concurrency(2);
/// assert_eq!(patch, same);
/// assert!(r#"{"delai": 1}"#.parse::<ScopePatch>().is_err());
/// # Ok::<(), argiope::ConfigError>(())
/// ```
impl FromStr for ScopePatch {
    type Err = ConfigError;

    fn from_str(json: &str) -> Result<Self, ConfigError> {
        serde_json::from_str(json)
            .map_err(|error| {
                Problem::new(
                    format!("invalid JSON: {error}"),
                    "give an object of a scope's keys",
                )
            })
            .and_then(|value| Keys::read(&value))
            .map_err(|problem| problem.at(SettingSource::Program, "THROTTLING_SCOPES"))
    }
}

/// A patch as JSON, as it is parsed.
pub(in crate::crawl) fn patch_text(patch: &ScopePatch) -> String {
    Keys::write(patch).to_string()
}

/// Validates a patch for the scope `name` by the rules of `THROTTLING_SCOPES`. Returns the normalised
/// name.
pub(super) fn check(name: &str, patch: &ScopePatch) -> Result<String, Problem> {
    Keys::read(&Keys::write(patch))?;
    scope_name(name)
}

/// The effective patches: for each key, `THROTTLING_SCOPES` overrides `DOWNLOAD_SLOTS`. If a patch
/// sets `delay` and not `delay_per_slot`, the latter is 0.
pub(super) fn effective(slots: &Patches, scopes: &Patches) -> Patches {
    let mut all = slots.clone();
    for (name, patch) in scopes {
        let under = all.remove(name).unwrap_or_default();
        all.insert(name.clone(), patch.clone().over(&under));
    }
    for patch in all.values_mut() {
        if patch.delay.is_some() {
            patch.delay_per_slot.get_or_insert(Duration::ZERO);
        }
    }
    all
}

/// The inverse of [`effective`]: patches for which it returns `scopes`.
pub(super) fn raw_patches(scopes: &Patches) -> Patches {
    let mut given = scopes.clone();
    for patch in given.values_mut() {
        if patch.delay.is_some() {
            patch.delay_per_slot = patch.delay_per_slot.filter(|delay| !delay.is_zero());
        }
    }
    given
}

/// One key of a table: reads it into a patch, and writes it from one.
struct Key<P: 'static> {
    name: &'static str,
    read: fn(&mut P, &Value) -> Result<(), Problem>,
    /// `None` if the key is not set, or is an alias of another key.
    write: fn(&P) -> Option<Value>,
}

macro_rules! key {
    ($name:literal, $form:ty, $($field:ident).+) => {
        Key {
            name: $name,
            read: |patch, value| once::<$form>(&mut patch.$($field).+, value),
            write: |patch| patch.$($field).+.as_ref().map(<$form>::write),
        }
    };
    // An alias of another key: read, never written.
    (also $name:literal, $form:ty, $($field:ident).+) => {
        Key {
            name: $name,
            read: |patch, value| once::<$form>(&mut patch.$($field).+, value),
            write: |_| None,
        }
    };
}

const SCOPE_KEYS: &[Key<ScopePatch>] = &[
    key!("concurrency", Concurrency<1>, concurrency),
    key!("delay", Delay, delay),
    key!("delay_per_slot", Delay, delay_per_slot),
    key!("jitter", JitterForm, jitter),
    key!("ignore_robots_txt", Flag, ignore_robots_txt),
    Key {
        name: "backoff",
        read: |patch, value| {
            let patch = &mut patch.backoff;
            match switch(value) {
                Some(_) => once::<Flag>(&mut patch.enabled, value),
                None => read_keys(patch, &object(value, SWITCH_OR_TABLE)?, BACKOFF_KEYS),
            }
        },
        write: |patch| table(&patch.backoff, BACKOFF_KEYS),
    },
    Key {
        name: "rampup",
        read: |patch, value| {
            let patch = &mut patch.rampup;
            match switch(value) {
                Some(_) => once::<Flag>(&mut patch.enabled, value)?,
                None => read_keys(patch, &object(value, SWITCH_OR_TABLE)?, RAMPUP_KEYS)?,
            }
            // A table of settings enables the mechanism.
            patch.enabled.get_or_insert(true);
            Ok(())
        },
        write: |patch| table(&patch.rampup, RAMPUP_KEYS),
    },
    key!("quota", AboveZero, quota),
    key!("window", Delay, window),
    key!("window_kind", OneOf<WindowKind>, window_kind),
    key!("requests_per_minute", PerMinute, requests_per_minute),
    key!("manager", Registered, manager),
    key!("bytes_per_second", Bytes<u64>, bytes_per_second),
    key!("hold_until", Moment, hold_until),
    Key {
        name: "autothrottle",
        read: |patch, value| {
            let patch = &mut patch.autothrottle;
            match switch(value) {
                Some(_) => once::<Flag>(&mut patch.enabled, value),
                None => read_keys(patch, &object(value, SWITCH_OR_TABLE)?, AUTOTHROTTLE_KEYS),
            }
        },
        write: |patch| table(&patch.autothrottle, AUTOTHROTTLE_KEYS),
    },
    key!(also "autothrottle_enabled", Flag, autothrottle.enabled),
    key!(also "autothrottle_mode", OneOf<AutoThrottleMode>, autothrottle.mode),
    key!(also "autothrottle_start_delay", Delay, autothrottle.start_delay),
    key!(also "autothrottle_max_delay", Delay, autothrottle.max_delay),
    key!(also "autothrottle_target_concurrency", AboveZero, autothrottle.target_concurrency),
    key!(also "latency_from", OneOf<LatencyFrom>, autothrottle.latency_from),
];

const BACKOFF_KEYS: &[Key<BackoffPatch>] = &[
    key!("enabled", Flag, enabled),
    key!("http_codes", Codes, http_codes),
    key!("exceptions", Exceptions, exceptions),
    key!("delay_factor", AboveOne, delay_factor),
    key!("max_delay", Timeout, max_delay),
    key!("min_delay", Timeout, min_delay),
    key!("jitter", JitterForm, jitter),
    key!("window", Timeout, window),
    key!("concurrency_factor", BelowOne, concurrency_factor),
    key!(also "concurrency_decrease_factor", BelowOne, concurrency_factor),
    key!("per_slot", Flag, per_slot),
];

const RAMPUP_KEYS: &[Key<RampupPatch>] = &[
    key!("enabled", Flag, enabled),
    key!("backoff_target", Target, backoff_target),
    key!("delay_factor", AboveOne, delay_factor),
    key!("min_delay", Delay, min_delay),
];

const AUTOTHROTTLE_KEYS: &[Key<AutoThrottlePatch>] = &[
    key!("enabled", Flag, enabled),
    key!("mode", OneOf<AutoThrottleMode>, mode),
    key!("start_delay", Delay, start_delay),
    key!("max_delay", Delay, max_delay),
    key!("target_concurrency", AboveZero, target_concurrency),
    key!("latency_from", OneOf<LatencyFrom>, latency_from),
];

const SLOT_KEYS: &[Key<ScopePatch>] = &[
    key!("concurrency", Concurrency<1>, concurrency),
    key!("delay", Delay, delay),
    key!("randomize_delay", JitterForm, jitter),
];

fn patches(value: &Value, keys: &[Key<ScopePatch>]) -> Result<Patches, Problem> {
    let mut patches = Patches::new();
    for (name, entry) in &object(value, MAP)? {
        let read = || {
            let mut patch = ScopePatch::default();
            let name_key = scope_name(name)?;
            read_keys(&mut patch, &object(entry, MAP)?, keys)?;
            Ok((name_key, patch))
        };
        let (name_key, patch) = read().map_err(|problem: Problem| problem.within(name))?;
        if patches.insert(name_key, patch).is_some() {
            let twice = Problem::new("the scope has two entries", "remove one of them");
            return Err(twice.within(name));
        }
    }
    Ok(patches)
}

fn read_keys<P>(patch: &mut P, table: &Map<String, Value>, keys: &[Key<P>]) -> Result<(), Problem> {
    for (key, value) in table {
        let known = keys
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(key));
        let read = match known {
            Some(known) => (known.read)(patch, value),
            None => Err(unknown(key, value, keys.iter().map(|key| key.name))),
        };
        read.map_err(|problem| problem.within(key))?;
    }
    Ok(())
}

/// Whether it is a key of a scope's entry.
pub(super) fn is_key_of_scopes(key: &str) -> bool {
    let mut keys = SCOPE_KEYS.iter();
    keys.any(|known| known.name.eq_ignore_ascii_case(key))
}

fn unknown(key: &str, value: &Value, names: impl Iterator<Item = &'static str> + Clone) -> Problem {
    let mend = match nearest(key, names.clone()) {
        Some(name) => format!("did you mean {name}?"),
        None if value.is_object() => {
            "put the name of the scope in quotes: THROTTLING_SCOPES.\"example.com\"".to_owned()
        }
        None => format!("give {}", names.collect::<Vec<_>>().join(", ")),
    };
    Problem::new(UNKNOWN_KEY, mend)
}

/// Reads a key. It is an error if the field is set already, by the same key or an alias.
fn once<F: Form>(field: &mut Option<F::Of>, value: &Value) -> Result<(), Problem> {
    let read = F::read(value)?;
    match field.replace(read) {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            "set twice, by two spellings of one key",
            "remove one of them",
        )),
    }
}

/// The value as a switch; `None` if it is anything else.
fn switch(value: &Value) -> Option<bool> {
    Flag::read(value).ok()
}

fn written(patches: &Patches, keys: &[Key<ScopePatch>]) -> Value {
    patches
        .iter()
        .map(|(name, patch)| (name.clone(), written_keys(patch, keys).into()))
        .collect::<Map<_, _>>()
        .into()
}

fn written_keys<P>(patch: &P, keys: &[Key<P>]) -> Map<String, Value> {
    keys.iter()
        .filter_map(|key| Some((key.name.to_owned(), (key.write)(patch)?)))
        .collect()
}

/// A table within a scope's entry; `None` if it is empty.
fn table<P>(patch: &P, keys: &[Key<P>]) -> Option<Value> {
    let table = written_keys(patch, keys);
    (!table.is_empty()).then(|| table.into())
}

const MAP: &str = r#"give a table, or JSON: {"example.com": {"concurrency": 2, "delay": 0.5}}"#;
const SWITCH_OR_TABLE: &str = "give true, false or a table";

/// The value as an object; text is parsed as JSON.
pub(super) fn object(value: &Value, mend: &str) -> Result<Map<String, Value>, Problem> {
    let parsed = match value {
        Value::Object(map) => return Ok(map.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    match parsed {
        Some(Value::Object(map)) => Ok(map),
        _ => Err(wrong(value, "not a map", mend)),
    }
}

/// Normalises a scope's name as URLs are normalised: hosts in lower case, in ASCII, without port 80.
///
/// The name may also be `*.HOST` (every host below HOST), `PREFIX/*` (every scope below a prefix), `host/HOST` (the scope of Crawl-delay), and
/// `HOST/PATH` (an endpoint).
fn scope_name(name: &str) -> Result<String, Problem> {
    const MEND: &str = "give the host alone (example.com, example.com:8080) or a scope of your own";
    if name.contains("://") {
        return Err(Problem::new("a URL is not a scope", MEND));
    }
    if name.is_empty() || name.trim() != name || name.contains(char::is_control) {
        return Err(Problem::new("invalid name of a scope", MEND));
    }
    if [ADDRESSES, DOMAINS].contains(&name) {
        return Ok(name.to_owned());
    }
    let address = name.strip_prefix("ip/");
    if let Some(address) = address.filter(|address| !address.ends_with("/*")) {
        let bare = address.trim_start_matches('[').trim_end_matches(']');
        return match bare.parse::<IpAddr>() {
            Ok(address) => Ok(format!("ip/{address}")),
            Err(_) => Err(Problem::new(
                "not an IP address",
                "give ip/192.0.2.1, ip/2001:db8::1 or ip/*",
            )),
        };
    }
    if let Some(host) = name.strip_prefix("*.") {
        let host = host_name(host)?;
        return match host.contains(['*', '/', ':']) {
            false => Ok(format!("*.{host}")),
            true => Err(Problem::new("invalid pattern", STARS)),
        };
    }
    if let Some(prefix) = name.strip_suffix("/*") {
        // Names of addresses end with the address, and those of Crawl-delays with the host.
        let is_long = prefix.matches('/').count() >= PREFIX_SEGMENTS_MAX;
        let is_reserved = ["ip", "host"].contains(&prefix.split('/').next().unwrap_or_default());
        if prefix.is_empty() || prefix.contains('*') || is_reserved || is_long {
            return Err(Problem::new("invalid pattern", STARS));
        }
        let prefix = scope_name(prefix)?;
        return Ok(format!("{}/*", prefix.strip_suffix('/').unwrap_or(&prefix)));
    }
    if name.contains('*') {
        return Err(Problem::new("invalid pattern", STARS));
    }
    if let Some(host) = name.strip_prefix("host/") {
        return Ok(format!("host/{}", host_name(host)?));
    }
    match name.split_once('/') {
        // An endpoint: its path is normalised, too.
        Some((host, _)) if host.contains(['.', ':']) => {
            match CrawlUrl::parse(&format!("http://{name}")) {
                Ok(url) if url.query().is_none() => {
                    Ok(format!("{}{}", url.scope_key(), url.path()))
                }
                Ok(_) => Err(Problem::new(
                    "a scope must not contain a query",
                    "remove ? and what follows",
                )),
                Err(_) => Ok(name.to_owned()),
            }
        }
        Some(_) => Ok(name.to_owned()),
        None => host_name(name),
    }
}

/// Normalises a host. A name without dot and colon is a scope of the user's own: returned unchanged.
fn host_name(name: &str) -> Result<String, Problem> {
    if !name.contains(['.', ':']) {
        return Ok(name.to_owned());
    }
    match CrawlUrl::parse(&format!("http://{name}/")) {
        Ok(url) => Ok(url.scope_key().to_owned()),
        Err(_) => Ok(name.to_owned()),
    }
}

/// The entry with the defaults of all scopes that have no entry.
pub(in crate::crawl) const DEFAULT_ENTRY: &str = "default";
const STARS: &str = "use * in *.example.com (all hosts below it), ip/*, domain/* and key/* (all scopes whose names \
                     begin with key/, which has at most 7 further slashes) only";
