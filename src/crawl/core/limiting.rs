//! Limits that are changed while the crawl runs, by operators and by handles.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::admin::response::Response;
use crate::base::named::NamedValues;
use crate::crawl::config::Config;
use crate::crawl::core::Core;
use crate::crawl::overrides::LimitError;
use crate::crawl::steering::Asked;
use crate::io::Io;
use crate::state::record::About;

impl<I: Io> Core<I> {
    /// The limits, for an operator.
    pub fn limits(&self) -> Response {
        Response::json(
            200,
            &json!({"limits": self.overrides.limits_json(&self.config)}),
        )
    }

    /// Changes limits by order: a JSON object, in which null withdraws an order.
    pub fn order_limits(&mut self, asked: &Asked) {
        let limits = match serde_json::from_slice(&asked.body) {
            Ok(Value::Object(limits)) if !limits.is_empty() => limits,
            _ => return self.refuse(asked, &Response::error(400, FORM)),
        };
        let facts = match self.order_of_limits(&limits) {
            Ok(facts) => facts,
            Err(refused) => {
                let status = if refused.needs_run { 409 } else { 400 };
                let response = Response::error(status, &refused.error.to_string());
                return self.refuse(asked, &response);
            }
        };
        let reply = json!({"limits": self.overrides.limits_json(&self.config)});
        self.acknowledge_order(asked, "limits", facts, reply);
    }

    /// Changes limits. Returns the facts of the order.
    ///
    /// # Errors
    /// One of them is wrong. Nothing is changed.
    pub fn order_of_limits(&mut self, limits: &Map<String, Value>) -> Result<Value, LimitError> {
        let before = Arc::clone(&self.config);
        self.change_limits(limits)?;
        let named = |config: &Config| -> Map<String, Value> {
            let names = limits.keys().filter_map(|name| Config::setting(name).ok());
            let value_of = |name: &str| config.get(name).map_or(Value::Null, Value::from);
            names
                .map(|setting| (setting.name.to_owned(), value_of(setting.name)))
                .collect()
        };
        Ok(json!({"before": named(&before), "after": named(&self.config)}))
    }

    /// Changes limits from now on, in later runs, too; null withdraws an order.
    ///
    /// # Errors
    /// One of them is wrong. Nothing is changed.
    pub fn change_limits(&mut self, limits: &Map<String, Value>) -> Result<(), LimitError> {
        let config = self.overrides.order(limits)?;
        self.record_settings();
        self.adopt(config);
        Ok(())
    }

    /// Records the settings that changed.
    pub fn record_settings(&mut self) {
        if self.journal.is_on() {
            for (name, fact) in self.overrides.poll_facts() {
                if !self.journal.takes(fact.len()) {
                    log::warn!(
                        "{name} is too long for the state: a later run has it only if it is given there again"
                    );
                }
                self.record_order(About::Setting, name, fact.as_bytes());
            }
        }
    }

    /// Continues with the settings that changed in earlier runs.
    pub fn restore_settings(&mut self, facts: &NamedValues) {
        let facts = facts.iter().filter(|fact| !fact.value.is_empty());
        let facts = facts.map(|fact| {
            let text = String::from_utf8_lossy(fact.value);
            (fact.name.to_owned(), text.into_owned())
        });
        let facts: Vec<(String, String)> = facts.collect();
        if facts.is_empty() {
            return;
        }
        let (config, warnings) = self.overrides.restore(&facts);
        for warning in warnings {
            log::warn!("{warning}");
        }
        self.record_settings();
        self.adopt(config);
    }
}

const FORM: &str = "the body is an object of limits, such as {\"CLOSESPIDER_PAGECOUNT\": 1000}; null withdraws an order";
