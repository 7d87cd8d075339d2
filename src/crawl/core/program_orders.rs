//! Orders that a program gives by a handle: they have lines as those of operators have.

use serde_json::{Value, json};

use crate::crawl::control::shared::Command;
use crate::crawl::core::Core;
use crate::crawl::core::{exclusions, host_orders};
use crate::io::Io;
use crate::throttle::engine::Forgetting;

impl<I: Io> Core<I> {
    /// Applies a command that is an order and no cancellation. A program gets no reply.
    pub fn apply_order(&mut self, command: Command) {
        match command {
            Command::SetScope(name, patch) => {
                let before = self.entry_json(&name);
                // The handle has checked the patch alone.
                if let Err(error) = self.change_scope(&name, *patch, self.now) {
                    return log::warn!(
                        "settings are not applied: earlier ones do not allow them: {error}"
                    );
                }
                self.record_scope_command("scope", &name, before);
            }
            Command::WithdrawScope(name) => {
                let before = self.entry_json(&name);
                self.withdraw_scope(&name, self.now);
                self.record_scope_command("withdraw", &name, before);
            }
            Command::Rotate => {
                let closed = self.rotate_files();
                self.record_command("rotate", || json!({"closed": closed}));
            }
            Command::SetLimits(limits) => match self.order_of_limits(&limits) {
                Ok(facts) => self.record_command("limits", || facts),
                Err(refused) => log::warn!("the limit is not changed: {}", refused.error),
            },
            Command::Reload(config) => match self.reload(*config) {
                Ok(reloaded) => self.record_command("reload", || reloaded.to_facts()),
                Err(refused) => log::warn!("the configuration is not reloaded: {refused}"),
            },
            Command::Exclude(exclusion, on) => match self.order_of_exclusion(&exclusion, on) {
                Some((order, facts)) => self.record_command(order, || facts),
                None => log::warn!(
                    "{} is not excluded: {}",
                    exclusion.text(),
                    exclusions::too_many()
                ),
            },
            Command::Forget(name) => match self.forget_learned(&name, self.now) {
                Forgetting::Refused(why) => {
                    log::warn!("what was learned of {name} is not forgotten: {why}");
                }
                Forgetting::Done(_) | Forgetting::Going(_) => {
                    self.record_command("forget", || json!({"scope": name}));
                }
            },
            Command::HostPriority(host, priority) => {
                match self.order_of_host_priority(&host, priority) {
                    Some(facts) => self.record_command("priority", || facts),
                    None => log::warn!("{host} gets no priority: {}", host_orders::too_many()),
                }
            }
            Command::LogLevel(level) => {
                let facts = self.order_of_log_level(level);
                self.record_command("log", || facts);
            }
            Command::Cancel(_) | Command::CancelScope(..) | Command::Feedback(_) => {
                unreachable!("these are applied together")
            }
        }
    }

    /// Records a command that changed the settings of a scope.
    fn record_scope_command(&mut self, order: &str, name: &str, before: Value) {
        let after = self.entry_json(name);
        self.record_command(
            order,
            || json!({"scope": name, "before": before, "after": after}),
        );
    }

    /// Records a command as an order, if orders have lines.
    pub fn record_command(&mut self, order: &str, facts: impl FnOnce() -> Value) {
        if self.steering.records_orders() {
            self.record_order_of(None, order, facts());
        }
    }

    /// Whether so many orders wait for the disk that no command is applied before a commit.
    pub fn is_behind_with_orders(&self) -> bool {
        self.steering.is_behind()
    }
}
