//! Applies the commands of handles between two turns' other work.

use std::collections::BTreeSet;

use crate::base::ids::{LaneId, ScopeId};
use crate::base::scopes::Scopes;
use crate::base::slab::Key;
use crate::crawl::control::phase::Phase;
use crate::crawl::control::shared::Command;
use crate::crawl::control::unsent::{Unsent, asked};
use crate::crawl::core::Core;
use crate::crawl::flights::{Flight, Stage};
use crate::fetch::failure::Failure;
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::io::{Close, Io};
use crate::throttle::engine::Throttle;

/// Requests that ended unsent and are put into the sink in one turn.
const UNSENT_PER_TURN: usize = 64;

impl<I: Io> Core<I> {
    /// Does what the crawl was told since the last turn.
    pub fn apply_commands(&mut self) {
        let paused = self.inbox.is_paused() && self.phase == Phase::Running;
        if paused && !self.halted {
            // What was about to depart goes back to its place, with the scopes' places it held.
            self.cancel_unsent();
        }
        self.halted = paused;
        self.outage.set_paused(paused);
        if !matches!(self.phase, Phase::Running | Phase::Draining { .. }) {
            // All that is left is given back as it is.
            return;
        }
        let (words, is_more) = self.inbox.take_commands();
        self.unfinished |= is_more;
        if words.is_empty() {
            return;
        }
        let mut ids = BTreeSet::new();
        let mut scopes = Vec::new();
        let mut called_off = false;
        for word in words {
            match word {
                Command::Cancel(id) => {
                    ids.insert(id);
                    called_off = true;
                }
                Command::CancelScope(name, until) => {
                    scopes.extend(self.throttle.known_scope(&name));
                    self.cancel_scope_until(name, until);
                    called_off = true;
                }
                Command::SetScope(name, patch) => self.throttle.set_scope(&name, *patch, self.now),
                Command::Feedback(feedback) => self.throttle.feedback(&feedback, self.now),
            }
        }
        if called_off {
            self.call_off(&ids, &scopes);
        }
    }

    /// Ends the requests of these numbers, and all under these scopes, wherever they are.
    fn call_off(&mut self, ids: &BTreeSet<u64>, scopes: &[ScopeId]) {
        let is_named = |job: &Job| ids.contains(&job.root()) && job.kind != Kind::Robots;
        self.put_back_suspects_of(is_named, scopes);
        let waiting = self.inbox.take_out(is_named).into_iter();
        let waiting = waiting.chain(self.mapping.take_out(is_named));
        let waiting = waiting.chain(self.delayed.take_out(is_named));
        let mut waiting: Vec<Job> = waiting.collect();
        waiting.extend(self.take_out_offers(is_named));
        for job in waiting {
            self.end_later(job, Vec::new(), asked());
        }
        let queued = self.frontier.extract(
            |id| ids.contains(&id),
            |lane| is_under(&self.throttle, lane, scopes),
        );
        self.update_lanes();
        for (lane, job) in queued {
            let names = self.lane_scope_names(lane);
            self.end_later(job, names, asked());
        }
        let throttle = &self.throttle;
        self.pages.call_off(|task| {
            let is_page = task.job.kind != Kind::Robots;
            is_named(&task.job) || is_page && is_under(throttle, task.lane, scopes)
        });
        for key in self.flights.keys_where(|_| true) {
            let Some(flight) = self.flights.get(key) else {
                continue;
            };
            let is_under = || {
                let mut held = self.throttle.ticket_scopes(flight.ticket);
                held.any(|scope| scopes.contains(&scope))
            };
            if is_named(&flight.job) || flight.job.kind != Kind::Robots && is_under() {
                self.call_back(key);
            }
        }
    }

    /// Ends one attempt that was released.
    fn call_back(&mut self, key: Key) {
        let flight = self.flights.get(key).expect("the caller found it");
        if let Stage::Exchanging { socket } = flight.stage {
            if let Some(news) = self.network.abort(socket, asked(), self.now) {
                self.on_news(socket, news);
            }
            return;
        }
        let held = self.throttle.ticket_scopes(flight.ticket);
        let names = held.map(|scope| self.throttle.scope_name(scope).to_owned());
        let names = names.collect();
        let flight = self.withdraw(key);
        self.end_attempt(flight.lane, &flight.job, false);
        self.end_later(flight.job, names, asked());
    }

    /// Takes an attempt that has not departed from its connection and gives its places back.
    pub fn withdraw(&mut self, key: Key) -> Flight {
        let flight = self.flights.remove(key).expect("the caller found it");
        match &flight.stage {
            Stage::Connecting { sockets, .. } => {
                for socket in sockets {
                    self.close_socket(*socket, Close::Reset);
                }
            }
            Stage::Ready { socket, .. } => self.close_socket(*socket, Close::Finish),
            Stage::Exchanging { .. } | Stage::Moving => {}
        }
        self.forget(key, &flight);
        self.throttle.cancel(flight.ticket, self.now);
        flight
    }

    /// Keeps in mind that this scope's requests are not wanted up to this number, until all of them
    /// have been seen.
    fn cancel_scope_until(&mut self, name: String, until: u64) {
        let (mapping, delayed, inbox) = (&self.mapping, &self.delayed, &self.inbox);
        let offers = &self.offers;
        self.cancelled_scopes.add(name, until, || {
            let waiting = mapping.ids().chain(delayed.ids()).chain(offers.ids());
            waiting.chain(inbox.lowest_number()).min()
        });
    }

    /// Whether a request that is to be queued is not wanted any more; then it ends.
    pub fn end_if_cancelled(&mut self, job: &Job, scopes: &Scopes) -> bool {
        let unwanted = self.cancelled_scopes.has(job, scopes);
        if unwanted {
            let names = scopes.names().map(str::to_owned).collect();
            self.end_later(job.clone(), names, asked());
        }
        unwanted
    }

    /// A request has ended unsent; the sink hears of it when it is ready.
    pub fn end_later(&mut self, job: Job, scopes: Vec<String>, failure: Failure) {
        self.unsent.push(job, scopes, failure);
    }

    /// Puts what has ended unsent into the sink, as far as that is ready.
    pub fn put_ready_unsent(&mut self) {
        for _ in 0..UNSENT_PER_TURN {
            if !self.output.is_ready() {
                break;
            }
            let Some(unsent) = self.unsent.pop() else {
                break;
            };
            self.put_unsent(unsent);
        }
        self.unfinished |= !self.unsent.is_empty() && self.output.is_ready();
        if !self.cancelled_scopes.is_empty()
            && self.mapping.is_empty()
            && self.delayed.len() == 0
            && self.offers.is_empty()
            && self.inbox.is_empty()
            && self.found.is_empty()
        {
            // The scopes of all that were meant are known.
            self.cancelled_scopes.clear();
        }
    }

    /// Tells the sink all that has ended, ready or not: the crawl ends.
    pub fn put_all_unsent(&mut self) {
        while let Some(unsent) = self.unsent.pop() {
            self.put_unsent(unsent);
        }
    }

    fn put_unsent(&mut self, unsent: Unsent) {
        self.end_unqueued(&unsent.job, unsent.scopes, unsent.failure);
    }
}

/// Whether a lane is throttled under one of these scopes.
fn is_under(throttle: &Throttle, lane: LaneId, scopes: &[ScopeId]) -> bool {
    let mut held = throttle.lane_scopes(lane).iter();
    held.any(|scope| scopes.contains(scope))
}

#[cfg(test)]
mod tests;
