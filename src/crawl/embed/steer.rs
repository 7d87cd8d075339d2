//! Steering from elsewhere: what a handle said is done here, between two turns' other work.

use std::collections::{BTreeMap, BTreeSet};

use super::inbox::Word;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::life::flight::{Flight, Stage};
use crate::crawl::phase::Phase;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::io::{Close, Io};
use crate::throttle::map::Scopes;
use crate::throttle::scope::ScopeId;

/// The code of what somebody cancelled.
pub const ASKED: &str = "asked";

/// A request that has ended unsent and that the sink is still to hear of, when it is ready.
#[derive(Debug)]
pub struct Ended {
    job: Job,
    scopes: Vec<String>,
    failure: Failure,
}

/// Such requests that are told in one turn.
const ENDED_PER_TURN: usize = 64;
/// While so many are still to be told nothing is taken in from outside.
const ENDED_MAX: usize = 1024;

/// From so many scopes on, those that nobody waits under are looked for, each time that they have
/// doubled.
const UNWANTED_LOOKED_THROUGH: usize = 64;

/// Scopes whose requests are not wanted any more, and up to which number.
///
/// Kept for those whose scopes are not known yet: they are in the inbox, or wait for the scope map or
/// a redirect's moment.
#[derive(Debug, Default)]
pub struct Unwanted(BTreeMap<String, u64>);

impl Unwanted {
    /// Whether a request under these scopes is.
    fn has(&self, job: &Job, scopes: &Scopes) -> bool {
        let is_named = |name: &str| self.0.get(name).is_some_and(|until| job.id <= *until);
        job.kind != Kind::Robots && !self.0.is_empty() && scopes.names().any(is_named)
    }
}

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
        let (words, is_more) = self.inbox.take_words();
        self.unfinished |= is_more;
        if words.is_empty() {
            return;
        }
        let mut ids = BTreeSet::new();
        let mut scopes = Vec::new();
        let mut called_off = false;
        for word in words {
            match word {
                Word::Cancel(id) => {
                    ids.insert(id);
                    called_off = true;
                }
                Word::CancelScope(name, until) => {
                    scopes.extend(self.throttle.known_scope(&name));
                    self.remember_unwanted(name, until);
                    called_off = true;
                }
                Word::SetScope(name, patch) => self.throttle.set_scope(&name, *patch, self.now),
                Word::Feedback(feedback) => self.throttle.feedback(&feedback, self.now),
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
        let waiting: Vec<Job> = waiting.chain(self.delayed.take_out(is_named)).collect();
        for job in waiting {
            self.end_later(job, Vec::new(), asked());
        }
        let (throttle, now) = (&mut self.throttle, self.now);
        let queued = self
            .frontier
            .take_out(|id| ids.contains(&id), scopes, throttle, now);
        for (lane, job) in queued {
            let names = self.lane_scope_names(lane);
            self.end_later(job, names, asked());
        }
        let throttle = &self.throttle;
        self.work.call_off(|task| {
            let mut held = throttle.lane_scopes(task.lane).iter();
            let is_under = held.any(|scope| scopes.contains(scope));
            is_named(&task.job) || task.job.kind != Kind::Robots && is_under
        });
        for key in self.flights_where(|_| true) {
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
            let now = self.now;
            if let Some(news) = self.http(socket).connection.abort(asked(), now) {
                self.on_news(socket, news);
            }
            return;
        }
        let held = self.throttle.ticket_scopes(flight.ticket);
        let names = held.map(|scope| self.throttle.scope_name(scope).to_owned());
        let names = names.collect();
        let flight = self.withdraw(key);
        self.frontier.ended(
            flight.lane,
            &flight.job,
            false,
            &mut self.throttle,
            self.now,
        );
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
    fn remember_unwanted(&mut self, name: String, until: u64) {
        let names = self.unwanted.0.len();
        if names >= UNWANTED_LOOKED_THROUGH && names.is_power_of_two() {
            let waiting = self.mapping.ids().chain(self.delayed.ids());
            let first = waiting.chain(self.inbox.lowest_number()).min();
            let meant = |until: u64| first.is_some_and(|first| first <= until);
            self.unwanted.0.retain(|_, until| meant(*until));
        }
        self.unwanted.0.insert(name, until);
    }

    /// Whether a request that is to be queued is not wanted any more; then it ends.
    pub fn is_unwanted(&mut self, job: &Job, scopes: &Scopes) -> bool {
        let unwanted = self.unwanted.has(job, scopes);
        if unwanted {
            let names = scopes.names().map(str::to_owned).collect();
            self.end_later(job.clone(), names, asked());
        }
        unwanted
    }

    /// A request has ended unsent; the sink hears of it when it is ready.
    pub fn end_later(&mut self, job: Job, scopes: Vec<String>, failure: Failure) {
        self.ending.push_back(Ended {
            job,
            scopes,
            failure,
        });
    }

    /// Whether so many have ended that nothing more should come in before the sink has heard.
    pub fn has_too_many_ended(&self) -> bool {
        self.ending.len() >= ENDED_MAX
    }

    /// Tells the sink what has ended unsent, as far as it is ready.
    pub fn tell_ended(&mut self) {
        for _ in 0..ENDED_PER_TURN {
            if self.ending.is_empty() || !self.sink.is_ready() {
                break;
            }
            self.tell_one_ended();
        }
        self.unfinished |= !self.ending.is_empty() && self.sink.is_ready();
        if !self.unwanted.0.is_empty()
            && self.mapping.is_empty()
            && self.delayed.len() == 0
            && self.inbox.is_empty()
            && self.found.is_empty()
        {
            // The scopes of all that were meant are known.
            self.unwanted.0.clear();
        }
    }

    /// Tells the sink all that has ended, ready or not: the crawl ends.
    pub fn tell_all_ended(&mut self) {
        while !self.ending.is_empty() {
            self.tell_one_ended();
        }
    }

    fn tell_one_ended(&mut self) {
        if let Some(ended) = self.ending.pop_front() {
            self.end_unqueued(&ended.job, ended.scopes, ended.failure);
        }
    }
}

fn asked() -> Failure {
    Failure::new(
        FailureKind::Cancelled,
        ASKED,
        "it was cancelled by whoever steers the crawl",
    )
}

#[cfg(test)]
mod tests;
