//! Applies the commands of handles, and ends the requests that they cancel.

use std::collections::BTreeSet;

use serde_json::json;

use crate::base::ids::{LaneId, ScopeId};
use crate::base::scopes::Scopes;
use crate::crawl::control::shared::Command;
use crate::crawl::core::Core;
use crate::crawl::work::unsent::cancelled;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::throttle::engine::Throttle;

impl<I: Io> Core<I> {
    /// Applies the commands that came since the last turn.
    pub fn apply_commands(&mut self) {
        if self.control.lift_ordered_pause() {
            self.record_pause(false);
            self.record_command("resume", || json!({"before": true, "after": false}));
        }
        if self.control.update_pause() {
            // What was about to depart goes back to its place, with the scopes' places it held.
            self.cancel_unsent();
        }
        self.outage.set_paused(self.control.is_paused());
        if self.is_running() && self.is_behind_with_orders() {
            // A commit goes on with the next turn.
            return;
        }
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
                    scopes.extend(self.begin_cancel_of(&name, until));
                    has_cancelled = true;
                    self.record_command("cancel", || json!({"scope": name, "until": until}));
                }
                Command::Feedback(feedback) => self.throttle.feedback(&feedback, self.now),
                order => self.apply_order(order),
            }
        }
        if has_cancelled {
            self.cancel_all_of(&ids, &scopes);
        }
    }

    /// The requests of a scope up to this number are cancelled from now on; returns the scope if it is in use.
    pub fn begin_cancel_of(&mut self, name: &str, until: u64) -> Option<ScopeId> {
        self.work.cancel_scope(name.to_owned(), until);
        self.record_cancelled_scope(name, until);
        self.throttle.known_scope(name)
    }

    /// Ends the requests of these numbers, and all under these scopes.
    pub fn cancel_all_of(&mut self, ids: &BTreeSet<u64>, scopes: &[ScopeId]) {
        self.cancel_requests(ids, scopes);
        if self.work.has_many_cancelled_scopes() {
            let lowest_outside = match self.has_spilled() || self.is_removing() {
                // It is not looked for in the files, nor in all queues.
                true => Some(1),
                false => self.control.lowest_number(),
            };
            self.review_cancelled_scopes(lowest_outside);
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
        self.end_queued(ids, scopes);
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
