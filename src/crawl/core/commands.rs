//! Applies the commands of handles, and ends the requests that they cancel.

use std::collections::BTreeSet;

use crate::base::ids::{LaneId, ScopeId};
use crate::base::scopes::Scopes;
use crate::crawl::control::shared::Command;
use crate::crawl::core::Core;
use crate::crawl::work::unsent::cancelled;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::throttle::engine::Forgetting;
use crate::throttle::engine::Throttle;

impl<I: Io> Core<I> {
    /// Applies the commands that came since the last turn.
    pub fn apply_commands(&mut self) {
        if self.control.lift_ordered_pause() {
            self.record_pause(false);
        }
        if self.control.update_pause() {
            // What was about to depart goes back to its place, with the scopes' places it held.
            self.cancel_unsent();
        }
        self.outage.set_paused(self.control.is_paused());
        let (commands, is_more) = self.control.poll_commands();
        self.wakeups.turn_again_if(is_more);
        let mut ids = BTreeSet::new();
        let mut scopes = Vec::new();
        let mut has_cancelled = false;
        for command in commands {
            match command {
                Command::Cancel(id) => {
                    self.cancel_later(id);
                    ids.insert(id);
                    has_cancelled = true;
                }
                Command::CancelScope(name, until) => {
                    scopes.extend(self.throttle.known_scope(&name));
                    self.work.cancel_scope(name.clone(), until);
                    self.record_cancelled_scope(&name, until);
                    has_cancelled = true;
                }
                Command::SetScope(name, patch) => {
                    // The handle has checked the patch alone.
                    if let Err(error) = self.change_scope(&name, *patch, self.now) {
                        log::warn!(
                            "settings are not applied: earlier ones do not allow them: {error}"
                        );
                    }
                }
                Command::Rotate => drop(self.rotate_files()),
                Command::Feedback(feedback) => self.throttle.feedback(&feedback, self.now),
                Command::WithdrawScope(name) => self.withdraw_scope(&name, self.now),
                Command::SetLimits(limits) => {
                    if let Err(refused) = self.change_limits(&limits) {
                        log::warn!("the limit is not changed: {}", refused.error);
                    }
                }
                Command::Reload(config) => {
                    if let Err(refused) = self.reload(*config) {
                        log::warn!("the configuration is not reloaded: {refused}");
                    }
                }
                Command::Exclude(exclusion, on) => self.set_exclusion(&exclusion, on),
                Command::Forget(name) => {
                    // Programs get no reply.
                    if self.throttle.forget(&name, self.now) == Forgetting::Refused {
                        log::warn!(
                            "what was learned of {name} is not forgotten: too many such orders go on"
                        );
                    }
                }
                Command::HostPriority(host, priority) => self.set_host_priority(&host, priority),
            }
        }
        if has_cancelled {
            self.cancel_requests(&ids, &scopes);
            if self.work.has_many_cancelled_scopes() {
                let lowest_outside = match self.has_spilled() {
                    // It is not looked for in the files.
                    true => Some(1),
                    false => self.control.lowest_number(),
                };
                self.review_cancelled_scopes(lowest_outside);
            }
        }
    }

    /// Ends the requests of these numbers, and all under these scopes, wherever they are.
    fn cancel_requests(&mut self, ids: &BTreeSet<u64>, scopes: &[ScopeId]) {
        let is_named = |job: &Job| ids.contains(&job.root()) && job.kind != PageKind::Robots;
        self.requeue_suspects_of(is_named, scopes);
        for job in self.control.take_out(is_named) {
            self.work.end(job, Vec::new(), cancelled());
        }
        for removed in self.work.take_out(is_named) {
            if let Some(offer) = removed.awaited {
                // The target has a final page of its own.
                self.conclude_redirect(offer, true);
            }
            self.end_by_order(removed.job, Vec::new(), ids);
        }
        let queued = self.frontier.extract(
            |id| ids.contains(&id),
            |lane| is_under(&self.throttle, lane, scopes),
        );
        self.update_lanes();
        for (lane, job) in queued {
            let names = self.lane_scope_names(lane);
            self.end_by_order(job, names, ids);
        }
        // What was received of a reply may be long: then it is among those that are processed.
        self.cancel_flights(ids, scopes);
        let throttle = &self.throttle;
        let mut named = Vec::new();
        self.pages.cancel(|task| {
            let is_page = task.job.kind != PageKind::Robots;
            named.extend(is_named(&task.job).then(|| task.job.root()));
            is_named(&task.job) || is_page && is_under(throttle, task.lane, scopes)
        });
        for number in named {
            self.record_cancel(number);
        }
    }

    /// Ends a request that is to be queued if it was cancelled by its scope; returns whether it was.
    pub fn end_if_cancelled(&mut self, job: &Job, scopes: &Scopes) -> bool {
        let is_cancelled = self.work.is_cancelled(job, scopes);
        if is_cancelled {
            let names = scopes.names().map(str::to_owned).collect();
            self.work.end(job.clone(), names, cancelled());
        }
        is_cancelled
    }
}

/// Whether a lane is throttled under one of these scopes.
fn is_under(throttle: &Throttle, lane: LaneId, scopes: &[ScopeId]) -> bool {
    let mut held = throttle.lane_scopes(lane).iter();
    held.any(|scope| scopes.contains(scope))
}

#[cfg(test)]
mod tests;
