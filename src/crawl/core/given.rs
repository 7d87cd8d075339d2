//! Orders that operators give: each takes effect at once, and is answered when its effects and its line in
//! `orders.jsonl` are durable.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::admin::routes::Resource;
use crate::crawl::core::Core;
use crate::crawl::steering::Asked;
use crate::frontier::request::Request;
use crate::io::Io;
use crate::state::record::About;
use crate::throttle::settings::ScopePatch;

impl<I: Io> Core<I> {
    /// Takes an order.
    pub fn take_order(&mut self, asked: Asked) {
        // The last writes may wait for a full disk: they can be stopped.
        let is_stop = asked.call.resource == Resource::Stop;
        if !is_stop && !self.control.phase().is_fetching() {
            let message = "the crawl is over, but for its last writes";
            return self.refuse(&asked, &Response::error(409, message));
        }
        if let Some(message) = self.why_in_vain(&asked.call) {
            return self.refuse(&asked, &Response::error(400, &message));
        }
        match asked.call.resource {
            Resource::Pause => self.order_pause(&asked, true),
            Resource::Resume => self.order_pause(&asked, false),
            Resource::Stop => self.order_stop(&asked),
            Resource::ChangeScope => self.order_scope(&asked),
            Resource::MergeScope => self.order_scope_keys(&asked),
            Resource::HostPriority => self.order_host_priority(&asked),
            Resource::ForgetScope => self.order_forget(asked),
            Resource::CancelScope => self.order_cancel(&asked),
            Resource::Rotate => self.order_rotation(&asked),
            Resource::AddSeeds => self.order_seeds(&asked),
            Resource::Exclude => self.order_exclusion(&asked, true),
            Resource::Include => self.order_exclusion(&asked, false),
            Resource::ChangeLimits => self.order_limits(&asked),
            Resource::Reload => self.order_reload(asked),
            Resource::WithdrawScope => self.order_withdrawal(&asked),
            Resource::ChangeLog => self.order_log_level(&asked),
            _ => unreachable!("it changes nothing"),
        }
    }

    /// An operator has paused or resumed the crawl.
    pub fn record_pause(&mut self, is_paused: bool) {
        if self.journal.is_on() {
            let value: &[u8] = if is_paused { &[1] } else { &[] };
            self.record_order(About::Paused, "", value);
        }
    }

    /// Restores the pause that an operator ordered in an earlier run. Returns true: the order is kept.
    pub fn restore_pause(&mut self) -> bool {
        self.control.order_pause(true);
        log::warn!(
            "the crawl is paused, as an earlier run of it was ordered to: `argiope ctl DIR resume` resumes it"
        );
        true
    }

    fn order_pause(&mut self, asked: &Asked, is_paused: bool) {
        if !self.is_running() {
            return self.refuse(asked, &Response::error(409, "the crawl is ending"));
        }
        let before = self.control.is_to_pause();
        self.control.order_pause(is_paused);
        self.record_pause(is_paused);
        self.apply_commands();
        let after = self.control.is_to_pause();
        let order = if is_paused { "pause" } else { "resume" };
        let facts = json!({"before": before, "after": after});
        self.acknowledge_order(asked, order, facts, json!({"paused": after}));
    }

    fn order_stop(&mut self, asked: &Asked) {
        let grace = match grace_of(&asked.body) {
            Ok(grace) => grace,
            Err(message) => return self.refuse(asked, &Response::error(400, message)),
        };
        let stopper = self.control.stopper();
        match grace {
            None => stopper.stop(),
            Some(grace) => stopper.shutdown(grace),
        }
        let grace = grace.unwrap_or(self.config.stop_grace).as_secs_f64();
        self.acknowledge_order(
            asked,
            "stop",
            json!({"grace": grace}),
            json!({"grace": grace}),
        );
    }

    fn order_cancel(&mut self, asked: &Asked) {
        // A scope of requests may have any name; that of a host is normalised.
        let checked = (self.config).check_scope(&asked.call.name, &ScopePatch::default());
        let name = checked.unwrap_or_else(|_| asked.call.name.clone());
        let until = self.frontier.numbers().last();
        let scope = self.begin_cancel_of(&name, until);
        self.cancel_all_of(&BTreeSet::new(), scope.as_slice());
        let facts = json!({"scope": name, "until": until});
        self.acknowledge_order(asked, "cancel", facts, json!({"scope": name}));
    }

    /// Adds seeds: lines as in a seeds file. All are checked before any is taken.
    fn order_seeds(&mut self, asked: &Asked) {
        if !self.is_running() || !self.has_room() {
            let message = match self.is_running() {
                true => "there is no room for more requests now: try again later",
                false => "the crawl is ending and takes no more requests",
            };
            let response = Response::error(503, message).with("Retry-After", "1");
            return self.refuse(asked, &response);
        }
        let text = match std::str::from_utf8(&asked.body) {
            Ok(text) => text,
            Err(_) => return self.refuse(asked, &Response::error(400, "the lines are not UTF-8")),
        };
        let mut requests = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            match Request::from_line(line) {
                Ok(None) => {}
                Ok(Some(request)) if requests.len() < SEEDS_MAX => requests.push(request),
                Ok(Some(_)) => {
                    let message = format!("more than {SEEDS_MAX} seeds: send several requests");
                    return self.refuse(asked, &Response::error(413, &message));
                }
                Err(error) => {
                    let message = format!("line {number}: {error}; none was taken");
                    return self.refuse(asked, &Response::error(400, &message));
                }
            }
        }
        let mut rejected = Vec::new();
        let mut accepted = 0;
        for request in &requests {
            match self.submit(request) {
                Ok(_) => accepted += 1,
                Err(error) => {
                    rejected.push(json!({"url": request.url, "error": error.to_string()}))
                }
            }
        }
        let facts = json!({"accepted": accepted, "rejected": rejected.len()});
        let reply = json!({"accepted": accepted, "rejected": rejected});
        self.acknowledge_order(asked, "seeds", facts, reply);
    }
}

/// The grace time in the body of an order to stop; `None`: that of the configuration.
fn grace_of(body: &[u8]) -> Result<Option<Duration>, &'static str> {
    const FORM: &str =
        "the body is empty, or an object with the grace time in seconds: {\"grace\": 5}";
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let Ok(Value::Object(keys)) = serde_json::from_slice(body) else {
        return Err(FORM);
    };
    let mut keys = keys.iter();
    match (keys.next(), keys.next()) {
        (None, _) => Ok(None),
        (Some((key, grace)), None) if key == "grace" => {
            let seconds = grace.as_f64().ok_or(FORM)?;
            Duration::try_from_secs_f64(seconds)
                .map(Some)
                .map_err(|_| FORM)
        }
        _ => Err(FORM),
    }
}

/// Seeds of one order, up to ten microseconds each.
const SEEDS_MAX: usize = 100;
