//! What single scopes say of their own: `THROTTLING_SCOPES`, and `DOWNLOAD_SLOTS` as Scrapy has it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{Problem, nearest};
use super::form::{Flag, Form, JitterForm, wrong};
use super::quantity::{Delay, Whole};
use crate::throttle::settings::ScopePatch;
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

/// What holds: a scope's entry among the scopes goes before the one among the slots, key by key,
/// and where a delay is chosen a slot's own delay is 0 unless it is chosen too.
pub(super) fn effective(slots: &Patches, scopes: &Patches) -> Patches {
    let mut all = slots.clone();
    for (name, patch) in scopes {
        let under = all.remove(name).unwrap_or_default();
        let patch = patch.clone();
        let merged = ScopePatch {
            concurrency: patch.concurrency.or(under.concurrency),
            delay: patch.delay.or(under.delay),
            delay_per_slot: patch.delay_per_slot.or(under.delay_per_slot),
            jitter: patch.jitter.or(under.jitter),
            ignore_robots_txt: patch.ignore_robots_txt.or(under.ignore_robots_txt),
            ..patch
        };
        all.insert(name.clone(), merged);
    }
    for patch in all.values_mut() {
        if patch.delay.is_some() {
            patch.delay_per_slot.get_or_insert(Duration::ZERO);
        }
    }
    all
}

/// What must have been said for `effective` to give these.
pub(super) fn said_of(scopes: &Patches) -> Patches {
    let mut said = scopes.clone();
    for patch in said.values_mut() {
        if patch.delay.is_some() {
            patch.delay_per_slot = patch.delay_per_slot.filter(|delay| !delay.is_zero());
        }
    }
    said
}

/// One key of a scope's entry: how it is read into a patch, and written from one.
struct Key {
    name: &'static str,
    read: fn(&mut ScopePatch, &Value) -> Result<(), Problem>,
    write: fn(&ScopePatch) -> Option<Value>,
}

macro_rules! key {
    ($name:literal, $form:ty, $field:ident) => {
        Key {
            name: $name,
            read: |patch, value| {
                patch.$field = Some(<$form>::read(value)?);
                Ok(())
            },
            write: |patch| patch.$field.as_ref().map(<$form>::write),
        }
    };
}

const SCOPE_KEYS: &[Key] = &[
    key!("concurrency", Whole<u32, 1>, concurrency),
    key!("delay", Delay, delay),
    key!("delay_per_slot", Delay, delay_per_slot),
    key!("jitter", JitterForm, jitter),
    key!("ignore_robots_txt", Flag, ignore_robots_txt),
];

const SLOT_KEYS: &[Key] = &[
    key!("concurrency", Whole<u32, 1>, concurrency),
    key!("delay", Delay, delay),
    key!("randomize_delay", JitterForm, jitter),
];

fn patches(value: &Value, keys: &[Key]) -> Result<Patches, Problem> {
    let mut patches = Patches::new();
    for (name, entry) in &object(value)? {
        let name_key = scope_name(name).map_err(|problem| problem.within(name))?;
        let mut patch = ScopePatch::default();
        for (key, value) in &object(entry).map_err(|problem| problem.within(name))? {
            read_key(&mut patch, key, value, keys).map_err(|p| p.within(key).within(name))?;
        }
        if patches.insert(name_key, patch).is_some() {
            let twice = Problem::new("the scope is named twice", "keep one of its entries");
            return Err(twice.within(name));
        }
    }
    Ok(patches)
}

fn read_key(patch: &mut ScopePatch, key: &str, value: &Value, keys: &[Key]) -> Result<(), Problem> {
    let names = || keys.iter().map(|key| key.name);
    match keys
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(key))
    {
        Some(known) => (known.read)(patch, value),
        None => Err(Problem::new(
            "a scope has no such key",
            match nearest(key, names()) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("there is {}", names().collect::<Vec<_>>().join(", ")),
            },
        )),
    }
}

fn written(patches: &Patches, keys: &[Key]) -> Value {
    let entry = |patch| {
        keys.iter()
            .filter_map(|key| Some((key.name.to_owned(), (key.write)(patch)?)))
            .collect::<Map<_, _>>()
    };
    patches
        .iter()
        .map(|(name, patch)| (name.clone(), entry(patch).into()))
        .collect::<Map<_, _>>()
        .into()
}

/// The object that a value is, or that its text says in JSON.
fn object(value: &Value) -> Result<Map<String, Value>, Problem> {
    let parsed = match value {
        Value::Object(map) => return Ok(map.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    match parsed {
        Some(Value::Object(map)) => Ok(map),
        _ => Err(wrong(
            value,
            "no map",
            r#"give a table, or JSON: {"example.com": {"concurrency": 2, "delay": 0.5}}"#,
        )),
    }
}

/// A scope's name as URLs have it: what looks like a host is lower-cased, in ASCII, without port 80.
fn scope_name(name: &str) -> Result<String, Problem> {
    const MEND: &str = "give the host alone (example.com, example.com:8080) or a scope of your own";
    if name.contains("://") {
        return Err(Problem::new("a scope is no URL", MEND));
    }
    if name.is_empty() || name.trim() != name || name.contains(char::is_control) {
        return Err(Problem::new("no name of a scope", MEND));
    }
    // A name of the user's own has no dot and no port; `ip/ADDRESS` and `host/NAME` are no hosts.
    if name.contains('/') || !name.contains(['.', ':']) {
        return Ok(name.to_owned());
    }
    match CrawlUrl::parse(&format!("http://{name}/")) {
        Ok(url) => Ok(url.scope_key().to_owned()),
        Err(_) => Ok(name.to_owned()),
    }
}
