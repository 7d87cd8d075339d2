//! Orders about hosts.

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::crawl::core::Core;
use crate::crawl::core::host_view::url_of_host;
use crate::crawl::steering::Asked;
use crate::frontier::HOST_PRIORITIES_MAX;
use crate::io::Io;
use crate::state::record::About;

/// Priorities of hosts are from the negative of this to this.
const PRIORITY_MAX: i64 = 1000;

impl<I: Io> Core<I> {
    /// Sets the priority of a host, from now on and in later runs.
    pub fn order_host_priority(&mut self, asked: &Asked) {
        let host = url_of_host(&asked.call.name);
        let Some(host) = host.filter(|url| url.host_str() == url.scope_key()) else {
            let message = "give a host without a port, such as example.com";
            return self.refuse(asked, &Response::error(400, message));
        };
        let host = host.host_str().to_owned();
        let Some(priority) = priority_in(&asked.body) else {
            let message = format!(
                "the body is an object with a priority from -{PRIORITY_MAX} to {PRIORITY_MAX}: {{\"priority\": 5}}"
            );
            return self.refuse(asked, &Response::error(400, &message));
        };
        let before = self.frontier.host_priorities().get(&host);
        let before = before.copied().unwrap_or(0);
        if !self.frontier.set_host_priority(&host, priority) {
            let message = format!("{HOST_PRIORITIES_MAX} hosts have a priority: set one to 0");
            return self.refuse(asked, &Response::error(409, &message));
        }
        self.update_lanes();
        if self.journal.is_on() {
            let value = match priority {
                0 => Vec::new(),
                priority => priority.to_le_bytes().to_vec(),
            };
            self.record_order(About::HostPriority, &host, &value);
        }
        let facts = json!({"host": host, "before": before, "after": priority});
        let reply = json!({"host": host, "priority": priority});
        self.acknowledge_order(asked, "priority", facts, reply);
    }

    /// Restores the priority that an earlier run was ordered to give to a host; returns whether it is kept.
    pub fn restore_host_priority(&mut self, host: &str, value: &[u8]) -> bool {
        let priority = value.try_into().map(i32::from_le_bytes);
        priority.is_ok_and(|priority| self.frontier.set_host_priority(host, priority))
    }
}

/// The priority in the body of an order.
fn priority_in(body: &[u8]) -> Option<i32> {
    let Ok(Value::Object(keys)) = serde_json::from_slice(body) else {
        return None;
    };
    let priority = keys.get("priority").filter(|_| keys.len() == 1)?.as_i64()?;
    let is_in_range = (-PRIORITY_MAX..=PRIORITY_MAX).contains(&priority);
    is_in_range.then_some(priority as i32)
}
