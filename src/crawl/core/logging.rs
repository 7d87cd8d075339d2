//! The level of the log, as operators see and change it.

use log::LevelFilter;
use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::crawl::core::Core;
use crate::crawl::steering::Asked;
use crate::io::Io;
use crate::state::record::About;

impl<I: Io> Core<I> {
    /// Changes the level of the log of the process, in later runs, too.
    pub fn order_log_level(&mut self, asked: &Asked) {
        if !self.steering.sets_log_level() {
            return self.refuse(asked, &Response::error(409, NOT_OURS));
        }
        let level = match level_of(&asked.body) {
            Ok(level) => level,
            Err(message) => return self.refuse(asked, &Response::error(400, &message)),
        };
        let facts = self.order_of_log_level(level);
        let reply = json!({"level": facts["after"]});
        self.acknowledge_order(asked, "log", facts, reply);
    }

    /// Changes the level of the log of the process. Returns the facts of the order.
    pub fn order_of_log_level(&mut self, level: LevelFilter) -> Value {
        let before = name_of(log::max_level());
        log::set_max_level(level);
        let after = name_of(level);
        if self.journal.is_on() {
            self.record_order(About::LogLevel, "", after.as_bytes());
        }
        json!({"before": before, "after": after})
    }

    /// Keeps the level that an earlier run was ordered to have; returns whether it is one.
    pub fn restore_log_level(&mut self, value: &[u8]) -> bool {
        let name = str::from_utf8(value).ok();
        self.orders.log_level = name.and_then(|name| name.parse().ok());
        self.orders.log_level.is_some()
    }

    /// Operators may change the level of the log: the one that they have ordered in an earlier run holds.
    pub fn resume_log_level(&mut self) {
        self.steering.allow_log_level();
        if let Some(level) = self.orders.log_level {
            log::warn!(
                "the level of the log is {}, as an earlier run of this crawl was ordered: `argiope ctl DIR log LEVEL` \
                 changes it",
                name_of(level)
            );
            log::set_max_level(level);
        }
    }
}

/// The level of the log, for an operator.
pub fn log_level() -> Response {
    Response::json(200, &json!({"level": name_of(log::max_level())}))
}

/// The level in the body of an order.
fn level_of(body: &[u8]) -> Result<LevelFilter, String> {
    let value: Value = serde_json::from_slice(body).map_err(|_| FORM.to_owned())?;
    let name = match value.as_object() {
        Some(keys) if keys.len() == 1 => keys.get("level").and_then(Value::as_str),
        _ => None,
    };
    let name = name.ok_or_else(|| FORM.to_owned())?;
    name.parse()
        .map_err(|_| format!("{name:?} is no level of the log; {FORM}"))
}

fn name_of(level: LevelFilter) -> String {
    level.as_str().to_ascii_lowercase()
}

const FORM: &str = "the body is {\"level\": …} with off, error, warn, info, debug or trace";

const NOT_OURS: &str = "the program that runs this crawl sets the level of its log itself";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_has_no_level_is_refused() {
        let check = |body: &str, part: &str| {
            let error = level_of(body.as_bytes()).expect_err(body);
            assert!(error.contains(part), "{error}");
        };
        assert_eq!(level_of(br#"{"level": "debug"}"#), Ok(LevelFilter::Debug));
        check(r#"{"level": "loud"}"#, "\"loud\" is no level of the log");
        check(r#"{"level": 3}"#, FORM);
        check(r#"{"level": "off", "x": 1}"#, FORM);
        check("debug", FORM);
    }
}
