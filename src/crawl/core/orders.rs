//! Orders given while the crawl runs, as far as they are not carried out at once: recorded, so that later runs
//! follow them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use log::LevelFilter;

use crate::base::time::Instant;
use crate::crawl::config::{ConfigError, DEFAULT_ENTRY, Problem, ScopeOrder, SettingSource};
use crate::crawl::core::Core;
use crate::crawl::core::removing::Removing;
use crate::crawl::core::scope_log::ChangedEntries;
use crate::crawl::steering::Asked;
use crate::crawl::work::unsent::cancelled;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::state::record::About;
use crate::state::replay::Facts;
use crate::throttle::engine::{ForgetId, Forgetting, covers_many_scopes};
use crate::throttle::settings::ScopePatch;

/// The cancellations that the journal has, so that each is recorded once and removed when it is over.
#[derive(Debug, Default)]
pub struct Orders {
    /// A reload that waits for its configuration.
    pub reloading: Option<Reloading>,
    /// Orders to forget what was learned of many scopes, until all were visited.
    pub forgetting: Vec<ForgetOrder>,
    /// An order about many scopes whose effects are to be logged.
    pub unlogged: Option<ChangedEntries>,
    /// Cancellations of queued requests that go on.
    pub removals: VecDeque<Removing>,
    /// The settings that scopes were given, in this run and in earlier ones.
    pub scopes: BTreeMap<String, ScopePatch>,
    /// The level of the log that was ordered in an earlier run.
    pub log_level: Option<LevelFilter>,
    /// Requests whose cancellation the journal has, by their numbers.
    recorded_cancels: BTreeSet<u64>,
}

/// An order to forget what was learned of many scopes.
#[derive(Debug)]
pub struct ForgetOrder {
    /// Its number.
    pub id: ForgetId,
    /// A pattern, or `default`.
    pub name: String,
    /// Who waits for its end.
    pub asked: Asked,
}

/// A reload that waits for its configuration.
#[derive(Debug)]
pub struct Reloading {
    /// The number of the request to its source.
    pub number: u64,
    /// Who asked for it; `None`: a signal.
    pub asked: Option<Asked>,
}

/// Scopes that have settings of their own by orders: each takes about half a kilobyte, also of the state on disk.
const SCOPES_MAX: usize = if cfg!(test) { 200 } else { 100_000 };

fn too_many_scopes(name: &str) -> ConfigError {
    let what =
        format!("{SCOPES_MAX} scopes have settings by orders, and there is no room for more");
    let mend = "withdraw those of others, give an order about a pattern, or add it to THROTTLING_SCOPES and reload";
    let problem = Problem::new(what, mend).within(name);
    problem.at(SettingSource::Program, "THROTTLING_SCOPES")
}

/// Cancellations that are forgotten in one turn.
const FORGOTTEN_PER_TURN: usize = 256;

impl<I: Io> Core<I> {
    /// Replaces the settings of a scope from now on, in later runs, too.
    ///
    /// # Errors
    /// A value out of range, also by what earlier patches of the default have set; too many scopes.
    pub fn change_scope(
        &mut self,
        name: &str,
        patch: ScopePatch,
        now: Instant,
    ) -> Result<(), ConfigError> {
        // Of the default, what a patch leaves out stays as it is: all patches in one have the same effect as one
        // after another.
        let recorded = match name == DEFAULT_ENTRY {
            true => patch.clone().over(&self.throttle.default_patch()),
            false => patch.clone(),
        };
        self.config.check_scope(name, &recorded)?;
        if self.orders.scopes.len() >= SCOPES_MAX && !self.orders.scopes.contains_key(name) {
            return Err(too_many_scopes(name));
        }
        if self.journal.is_on() {
            let text = ScopeOrder::new(name, recorded.clone(), &self.config).to_text();
            let at = self.network.wall_at(now);
            self.journal
                .record_fact(About::ScopeSettings, name, at, text.as_bytes());
        }
        self.orders.scopes.insert(name.to_owned(), recorded);
        self.throttle.set_scope(name, patch.clone(), now);
        self.end_rests_of(name);
        self.log_scope(name, Some(patch));
        Ok(())
    }

    /// Withdraws the settings that a scope was given, in this run or an earlier one: those of the configuration hold
    /// from now on.
    pub fn withdraw_scope(&mut self, name: &str, now: Instant) {
        if self.orders.scopes.remove(name).is_none() {
            return;
        }
        if self.journal.is_on() {
            self.record_order(About::ScopeSettings, name, &[]);
        }
        let (configured, ordered) = (&self.config.throttle, &self.orders.scopes);
        self.throttle.withdraw_scope(name, configured, ordered, now);
        self.end_rests_of(name);
        self.log_scope(name, None);
    }

    /// Forgets what was learned of a scope, of a pattern or of `default`. What rests in files because of that is looked
    /// at anew once all is forgotten.
    pub fn forget_learned(&mut self, name: &str, now: Instant) -> Forgetting {
        let forgetting = self.throttle.forget(name, now);
        let is_refused = matches!(forgetting, Forgetting::Refused(_));
        if !is_refused && covers_many_scopes(name) && self.journal.is_on() {
            // For what earlier records have of scopes that are not in use.
            self.record_order(About::Forgotten, name, &[1]);
        }
        if matches!(forgetting, Forgetting::Done(_)) {
            self.end_rests_of(name);
        }
        forgetting
    }

    /// Applies the settings that an earlier run was given for a scope. A key that the configuration has set since
    /// then keeps its configured value. Returns what is left of the order, as it is recorded; `None` if nothing is.
    pub fn restore_scope_settings(&mut self, name: &str, value: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let mut order = ScopeOrder::parse(text)?;
        let was_empty = order.patch == ScopePatch::default();
        for replaced in order.settle(name, &self.config) {
            log::warn!("{replaced}");
        }
        if let Some(dropped) = order.fit(name, &self.config) {
            log::warn!("{dropped}");
        }
        if order.patch == ScopePatch::default() && !was_empty {
            return None;
        }
        let text = order.to_text();
        self.orders
            .scopes
            .insert(name.to_owned(), order.patch.clone());
        self.throttle.set_scope(name, order.patch, self.now);
        Some(text)
    }

    /// A request is cancelled. If it may wait in a file, or may be one that an earlier run left, it ends when its
    /// turn comes.
    pub fn cancel_later(&mut self, number: u64) {
        if self.spill.cancel(number) | self.work.cancel_left(number) {
            self.record_cancel(number);
        }
    }

    /// A request that waits in memory is cancelled. If its number was given, it stays cancelled in later runs until
    /// the sink has its result, which may take long.
    pub fn end_by_order(&mut self, job: Job, scopes: Vec<String>, numbers: &BTreeSet<u64>) {
        if numbers.contains(&job.root()) {
            self.record_cancel(job.root());
        }
        self.work.end(job, scopes, cancelled());
    }

    /// Requests are cancelled that may be queued. Those that are not are forgotten later.
    pub fn record_cancels(&mut self, numbers: &BTreeSet<u64>) {
        for number in numbers {
            self.record_cancel(*number);
        }
    }

    /// A request is cancelled whose result the sink has not got.
    pub fn record_cancel(&mut self, number: u64) {
        if self.journal.is_on() && self.orders.recorded_cancels.insert(number) {
            self.record_order(About::Cancelled, &number.to_string(), &[1]);
        }
    }

    /// The turn of a request has come that was cancelled before.
    pub fn end_cancelled(&mut self, job: Job) {
        self.work.end(job, Vec::new(), cancelled());
    }

    /// The sink has the final result of a request, and the journal says so: it need not be cancelled by a later run.
    pub fn forget_cancel(&mut self, job: &Job) {
        if !self.orders.recorded_cancels.is_empty()
            && self.orders.recorded_cancels.remove(&job.root())
        {
            self.record_order(About::Cancelled, &job.root().to_string(), &[]);
        }
    }

    /// Forgets cancellations that have no request any more.
    pub fn forget_orders(&mut self) {
        if self.is_removing() {
            return;
        }
        self.forget_cancels();
        if self.work.has_cancelled_scopes() && self.are_scopes_known() {
            self.review_cancelled_scopes(None);
        }
    }

    /// Forgets some of the other cancellations, once no request waits in a file or is left by an earlier run, and
    /// none that was cancelled waits for the sink: these were of requests that had ended before.
    fn forget_cancels(&mut self) {
        if self.orders.recorded_cancels.is_empty()
            || self.has_spilled()
            || self.work.has_left()
            || self.work.has_unsent()
        {
            return;
        }
        let waiting: BTreeSet<u64> = self.replied().map(Job::root).collect();
        let recorded = self.orders.recorded_cancels.iter().copied();
        let over = recorded.filter(|number| !waiting.contains(number));
        let over: Vec<u64> = over.take(FORGOTTEN_PER_TURN).collect();
        for number in &over {
            self.orders.recorded_cancels.remove(number);
            self.record_order(About::Cancelled, &number.to_string(), &[]);
        }
        self.wakeups.turn_again_if(over.len() == FORGOTTEN_PER_TURN);
    }

    /// All requests of a scope up to this number are cancelled, also those whose scopes are not known yet.
    pub fn record_cancelled_scope(&mut self, name: &str, until: u64) {
        self.record_order(About::CancelledScope, name, &until.to_le_bytes());
    }

    /// Forgets cancelled scopes of which all requests have ended. `lowest_outside`: the lowest number of a request
    /// that is not here yet.
    pub fn review_cancelled_scopes(&mut self, lowest_outside: Option<u64>) {
        let replied = self.replied().map(|job| job.id);
        let lowest_outside = replied.chain(lowest_outside).min();
        for name in self.work.review_cancelled_scopes(lowest_outside) {
            self.record_order(About::CancelledScope, &name, &[]);
        }
    }

    /// Cancels the scopes that an earlier run was to cancel, before its requests are here.
    pub fn restore_cancelled_scopes(&mut self, orders: &mut CancelOrders) {
        for (name, until) in orders.scopes.drain(..) {
            self.work.cancel_scope(name, until);
        }
    }

    /// Ends a request that an earlier run had offered, if that run was to cancel it; returns it otherwise.
    pub fn end_offered(&mut self, job: Job, orders: &mut CancelOrders) -> Option<Job> {
        let number = job.root();
        if !orders.requests.remove(&number) {
            return Some(job);
        }
        self.orders.recorded_cancels.insert(number);
        self.end_cancelled(job);
        None
    }

    /// Cancels the requests that an earlier run was to cancel, once they are here.
    pub fn restore_cancelled(&mut self, orders: CancelOrders) {
        for number in orders.requests {
            match self.spill.cancel(number) | self.work.cancel_left(number) {
                true => {
                    self.orders.recorded_cancels.insert(number);
                }
                false => self.record_order(About::Cancelled, &number.to_string(), &[]),
            }
        }
    }

    /// Records an order, or with an empty value that it is over.
    pub fn record_order(&mut self, about: About, name: &str, value: &[u8]) {
        let at = self.network.wall_at(self.now);
        self.journal.record_fact(about, name, at, value);
    }
}

/// What an earlier run was to cancel.
#[derive(Debug)]
pub struct CancelOrders {
    requests: BTreeSet<u64>,
    scopes: Vec<(String, u64)>,
}

impl CancelOrders {
    /// Those among these facts.
    pub fn of(facts: &Facts) -> Self {
        let requests = facts.about(About::Cancelled);
        let scopes = facts.about(About::CancelledScope);
        CancelOrders {
            requests: requests
                .filter_map(|order| order.name.parse().ok())
                .collect(),
            scopes: scopes
                .filter_map(|order| {
                    let until = order.value.try_into().ok()?;
                    Some((order.name.to_owned(), u64::from_le_bytes(until)))
                })
                .collect(),
        }
    }
}
