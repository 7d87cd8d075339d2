//! Logs the settings of the entries that an order about a pattern or the default has changed, in steps: there may be
//! a hundred thousand entries.

use serde_json::{Map, Value, json};

use crate::base::units::Units;
use crate::crawl::config::DEFAULT_ENTRY;
use crate::crawl::core::Core;
use crate::crawl::core::runs::of_entry;
use crate::io::Io;
use crate::throttle::engine::covers_many_scopes;
use crate::throttle::settings::ScopePatch;

/// Entries that are looked for, for one line of the log.
#[derive(Debug)]
pub struct ChangedEntries {
    /// When the order was given.
    at: String,
    /// A pattern, or `default`.
    name: String,
    /// What it sets; `None`: it was withdrawn.
    patch: Option<ScopePatch>,
    /// The last entry that was looked at.
    last: Option<String>,
    /// Those that changed.
    changed: Map<String, Value>,
}

/// Units of a step, some tenths of a millisecond: [`LOOK_UNITS`] for each entry that is looked at, and [`WRITE_UNITS`]
/// for each that is written. In tests there are several steps.
const UNITS_PER_STEP: u64 = if cfg!(test) { 100 } else { 4_096 };

const LOOK_UNITS: usize = 8;
const WRITE_UNITS: usize = 64;

impl<I: Io> Core<I> {
    /// Logs that the settings of a scope, of a pattern or of the default have changed. `patch`: what was set; `None`:
    /// it was withdrawn.
    pub fn log_scope(&mut self, name: &str, patch: Option<ScopePatch>) {
        if !self.output.run_log().is_on() {
            return;
        }
        self.finish_scope_log();
        let at = self.network.wall_at(self.now).to_string();
        if covers_many_scopes(name) {
            let own = self.entry_value(name);
            self.orders.unlogged = Some(ChangedEntries {
                at,
                name: name.to_owned(),
                patch,
                last: None,
                changed: Map::from_iter((name != DEFAULT_ENTRY).then(|| (name.to_owned(), own))),
            });
            return self.advance_scope_log();
        }
        let settings = self.entry_value(name);
        let line = json!({"event": "scope", "at": at, "scope": name, "settings": settings});
        self.output.run_log_mut().add(&line);
    }

    /// Looks at the next few entries, and writes the line after the last.
    pub fn advance_scope_log(&mut self) {
        let Some(mut log) = self.orders.unlogged.take() else {
            return;
        };
        let mut units = Units::new(UNITS_PER_STEP);
        let mut last = None;
        let mut is_over = true;
        for entry in self.throttle.entries_after(log.last.as_deref()) {
            if units.is_spent() {
                is_over = false;
                break;
            }
            units.spend(LOOK_UNITS);
            last = Some(entry);
            if self
                .throttle
                .may_have_changed(entry, &log.name, log.patch.as_ref())
            {
                units.spend(WRITE_UNITS);
                log.changed
                    .insert(entry.to_owned(), self.entry_value(entry));
            }
        }
        if !is_over {
            log.last = last.map(str::to_owned);
            self.orders.unlogged = Some(log);
            return self.wakeups.turn_again();
        }
        let line = json!({
            "event": "scopes",
            "at": log.at,
            "default": of_entry(&self.throttle.default_settings()),
            "changed": log.changed,
        });
        self.output.run_log_mut().add(&line);
    }

    /// Writes the line now: another one is to follow.
    pub fn finish_scope_log(&mut self) {
        while self.orders.unlogged.is_some() {
            self.advance_scope_log();
        }
    }

    /// What limits the scopes of an entry; null if there is none.
    fn entry_value(&self, name: &str) -> Value {
        let own = self.throttle.entry_settings(name);
        own.map_or(Value::Null, |own| of_entry(&own))
    }
}
