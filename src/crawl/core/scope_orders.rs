//! Orders about the pace of scopes: their settings, and what was learned of them.

use serde_json::{Map, Value, json};

use crate::admin::response::Response;
use crate::crawl::config::{ConfigError, DEFAULT_ENTRY, patch_text};
use crate::crawl::core::Core;
use crate::crawl::core::orders::ForgetOrder;
use crate::crawl::steering::Asked;
use crate::io::Io;
use crate::throttle::engine::{Forgetting, Forgotten};
use crate::throttle::settings::ScopePatch;

impl<I: Io> Core<I> {
    /// The settings that the entry of a scope, a pattern or `default` has.
    pub fn entry_json(&self, name: &str) -> Value {
        let text = patch_text(&self.throttle.entry(name));
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Replaces the settings of a scope, of a pattern, or of `default`.
    pub fn order_scope(&mut self, asked: &Asked) {
        let text = std::str::from_utf8(&asked.body).unwrap_or("?");
        let patch = text.parse::<ScopePatch>();
        self.apply_scope_order(asked, patch);
    }

    /// Changes some keys of these settings (a merge patch, RFC 7396): null removes a key.
    pub fn order_scope_keys(&mut self, asked: &Asked) {
        let keys = match serde_json::from_slice(&asked.body) {
            Ok(Value::Object(keys)) => keys,
            _ => {
                let message =
                    "the body is an object of the keys that change, such as {\"delay\": 2}";
                return self.refuse(asked, &Response::error(400, message));
            }
        };
        // Its settings are those of the normalised name.
        let Some(name) = self.scope_of(asked) else {
            return;
        };
        if name == DEFAULT_ENTRY && keys.values().any(has_null) {
            let message = "keys of default cannot be removed: give another value";
            return self.refuse(asked, &Response::error(400, message));
        }
        let mut settings = match self.entry_json(&name) {
            Value::Object(settings) => settings,
            _ => Map::new(),
        };
        merge(&mut settings, keys);
        let patch = Value::Object(settings).to_string().parse::<ScopePatch>();
        let configured = self.config.throttle.scopes.get(&name);
        let configured = configured.cloned().unwrap_or_default();
        if name != DEFAULT_ENTRY && patch.as_ref() == Ok(&configured) {
            // Nothing is left of the orders: later changes of the configuration hold.
            let before = self.entry_json(&name);
            self.withdraw_scope(&name, self.now);
            return self.acknowledge_scope(asked, &name, &before);
        }
        self.apply_scope_order(asked, patch);
    }

    /// Withdraws the settings that a scope was given: those that are configured hold again.
    pub fn order_withdrawal(&mut self, asked: &Asked) {
        let Some(name) = self.scope_of(asked) else {
            return;
        };
        let before = self.entry_json(&name);
        self.withdraw_scope(&name, self.now);
        let after = self.entry_json(&name);
        let facts = json!({"scope": name, "before": before, "after": after});
        let reply = json!({"scope": name, "settings": after});
        self.acknowledge_order(asked, "withdraw", facts, reply);
    }

    /// Forgets what was learned of a scope, of a pattern, or of all (`default`). Of many scopes it is answered when all
    /// were visited.
    pub fn order_forget(&mut self, asked: Asked) {
        let Some(name) = self.scope_of(&asked) else {
            return;
        };
        match self.forget_learned(&name, self.now) {
            Forgetting::Done(scopes) => self.acknowledge_forget(&asked, &name, scopes),
            Forgetting::Refused(why) => {
                let response = Response::error(503, why);
                self.refuse(&asked, &response.with("Retry-After", "10"));
            }
            Forgetting::Going(id) => {
                let late = Response::json(202, &json!({"scope": name, "scopes": null}));
                self.steering.respond_later(asked.key, late);
                self.orders.forgetting.push(ForgetOrder { id, name, asked });
            }
        }
    }

    /// Goes on with orders about many scopes, and answers those that are over.
    pub fn advance_scope_orders(&mut self) {
        if self.throttle.advance_visits(self.now) {
            self.wakeups.turn_again();
        }
        while let Some(Forgotten { id, name, scopes }) = self.throttle.poll_forgotten() {
            self.end_rests_of(&name);
            self.wakeups.turn_again();
            // A program does not wait for it, and several operators may.
            let orders = |core: &Self| {
                core.orders
                    .forgetting
                    .iter()
                    .position(|order| order.id == id)
            };
            while let Some(at) = orders(self) {
                let ForgetOrder { name, asked, .. } = self.orders.forgetting.remove(at);
                match self.steering.waits_for_answer(asked.key) {
                    true => self.acknowledge_forget(&asked, &name, scopes),
                    false => {
                        let facts = json!({"scope": name, "scopes": scopes});
                        self.record_order_of(Some(asked.via), "forget", facts);
                    }
                }
            }
        }
    }

    fn acknowledge_forget(&mut self, asked: &Asked, name: &str, scopes: usize) {
        let facts = json!({"scope": name, "scopes": scopes});
        self.acknowledge_order(asked, "forget", facts.clone(), facts);
    }

    /// The normalised name of the scope that an order is about; one that is none is refused.
    fn scope_of(&mut self, asked: &Asked) -> Option<String> {
        let checked = (self.config).check_scope(&asked.call.name, &ScopePatch::default());
        checked
            .map_err(|error| self.refuse(asked, &Response::error(400, &error.to_string())))
            .ok()
    }

    fn apply_scope_order(&mut self, asked: &Asked, patch: Result<ScopePatch, ConfigError>) {
        let checked = patch.and_then(|patch| {
            let name = self.config.check_scope(&asked.call.name, &patch)?;
            Ok((name, patch))
        });
        let (name, patch) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                return self.refuse(asked, &Response::error(400, &error.to_string()));
            }
        };
        let before = self.entry_json(&name);
        if let Err(error) = self.change_scope(&name, patch, self.now) {
            return self.refuse(asked, &Response::error(400, &error.to_string()));
        }
        self.acknowledge_scope(asked, &name, &before);
    }

    /// Answers an order that has changed the settings of a scope.
    fn acknowledge_scope(&mut self, asked: &Asked, name: &str, before: &Value) {
        let after = self.entry_json(name);
        let facts = json!({"scope": name, "before": before, "after": after});
        let reply = json!({"scope": name, "settings": after});
        self.acknowledge_order(asked, "scope", facts, reply);
    }
}

/// Whether a value is null, or a table with one.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Object(table) => table.values().any(has_null),
        value => value.is_null(),
    }
}

/// Merges keys into a table; null removes a key. A table within it is merged in the same way.
fn merge(table: &mut Map<String, Value>, keys: Map<String, Value>) {
    for (key, value) in keys {
        match value {
            Value::Null => drop(table.remove(&key)),
            Value::Object(inner) => match table.get_mut(&key) {
                Some(Value::Object(known)) => merge(known, inner),
                _ => drop(table.insert(key, Value::Object(inner))),
            },
            value => drop(table.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_merged_and_null_removes_one() {
        let check = |table: Value, keys: Value, expected: Value| {
            let (Value::Object(mut table), Value::Object(keys)) = (table, keys) else {
                panic!("both are tables");
            };
            merge(&mut table, keys);
            assert_eq!(Value::Object(table), expected);
        };
        check(
            json!({"delay": 1, "concurrency": 2}),
            json!({"delay": 3, "concurrency": null, "quota": null}),
            json!({"delay": 3}),
        );
        check(
            json!({"backoff": {"max_delay": 60, "window": 5}, "rampup": true}),
            json!({"backoff": {"window": null, "min_delay": 1}, "rampup": {"enabled": false}}),
            json!({"backoff": {"max_delay": 60, "min_delay": 1}, "rampup": {"enabled": false}}),
        );
    }
}
