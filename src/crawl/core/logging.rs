//! The level of the log, as operators see and change it.

use log::LevelFilter;
use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::crawl::core::Core;
use crate::crawl::steering::Asked;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Changes the level of the log of the process, until it ends.
    pub fn order_log_level(&mut self, asked: &Asked) {
        if !self.steering.sets_log_level() {
            return self.refuse(asked, &Response::error(409, NOT_OURS));
        }
        let level = match level_of(&asked.body) {
            Ok(level) => level,
            Err(message) => return self.refuse(asked, &Response::error(400, &message)),
        };
        let before = name_of(log::max_level());
        log::set_max_level(level);
        let after = name_of(level);
        let facts = json!({"before": before, "after": after});
        self.acknowledge_order(asked, "log", facts, json!({"level": after}));
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
