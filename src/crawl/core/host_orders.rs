//! Orders about hosts.

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::crawl::config::Config;
use crate::crawl::core::Core;
use crate::crawl::steering::Asked;
use crate::frontier::{HOST_PRIORITIES_MAX, HOST_PRIORITY_MAX};
use crate::io::Io;
use crate::state::record::About;

impl<I: Io> Core<I> {
    /// Sets the priority of a host.
    pub fn order_host_priority(&mut self, asked: &Asked) {
        let host = match Config::check_host(&asked.call.name) {
            Ok(host) => host,
            Err(message) => return self.refuse(asked, &Response::error(400, &message)),
        };
        let Some(priority) = priority_in(&asked.body) else {
            let message = format!(
                "the body is an object with a priority from -{HOST_PRIORITY_MAX} to {HOST_PRIORITY_MAX}: \
                 {{\"priority\": 5}}"
            );
            return self.refuse(asked, &Response::error(400, &message));
        };
        let Some(facts) = self.order_of_host_priority(&host, priority) else {
            return self.refuse(asked, &Response::error(409, &too_many()));
        };
        let reply = json!({"host": host, "priority": priority});
        self.acknowledge_order(asked, "priority", facts, reply);
    }

    /// Sets the priority of a host. Returns the facts of the order; `None` if there is no room.
    pub fn order_of_host_priority(&mut self, host: &str, priority: i32) -> Option<Value> {
        let before = self.frontier.host_priorities().get(host);
        let before = before.copied().unwrap_or(0);
        let is_set = self.change_host_priority(host, priority);
        is_set.then(|| json!({"host": host, "before": before, "after": priority}))
    }

    /// Sets the priority of a host from now on and in later runs; returns false if there is no room.
    fn change_host_priority(&mut self, host: &str, priority: i32) -> bool {
        if !self.frontier.set_host_priority(host, priority) {
            return false;
        }
        self.update_lanes();
        if self.journal.is_on() {
            let value = match priority {
                0 => Vec::new(),
                priority => priority.to_le_bytes().to_vec(),
            };
            self.record_order(About::HostPriority, host, &value);
        }
        true
    }

    /// Restores the priority that an earlier run was ordered to give to a host; returns whether it is kept.
    pub fn restore_host_priority(&mut self, host: &str, value: &[u8]) -> bool {
        let priority = value.try_into().map(i32::from_le_bytes);
        priority.is_ok_and(|priority| self.frontier.set_host_priority(host, priority))
    }
}

/// Why there is no room for a priority.
pub fn too_many() -> String {
    format!("{HOST_PRIORITIES_MAX} hosts have a priority: set one to 0")
}

/// The priority in the body of an order.
fn priority_in(body: &[u8]) -> Option<i32> {
    let Ok(Value::Object(keys)) = serde_json::from_slice(body) else {
        return None;
    };
    let priority = keys.get("priority").filter(|_| keys.len() == 1)?.as_i64()?;
    let priority = i32::try_from(priority).ok()?;
    (-HOST_PRIORITY_MAX..=HOST_PRIORITY_MAX)
        .contains(&priority)
        .then_some(priority)
}
