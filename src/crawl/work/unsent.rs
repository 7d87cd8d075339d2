//! Requests that ended without being sent: those that the sink has not got yet, and scopes whose requests
//! end as soon as they are known.

use std::collections::{BTreeMap, VecDeque};

use crate::base::scopes::Scopes;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;

/// The code of a request that was cancelled by a command.
pub const CANCELLED: &str = "asked";

/// The code of a request that was cancelled in flight because the crawl stops.
pub const STOPPED: &str = "stopped";

/// The code of a request that may have been carried out, and that must not be sent twice.
pub const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// A request that has ended unsent and is still to be given to the sink.
#[derive(Debug)]
pub struct Unsent {
    /// The request.
    pub job: Job,
    /// The names of its scopes, as far as they are known.
    pub scopes: Vec<String>,
    /// Why it ended.
    pub failure: Failure,
}

/// Requests that have ended unsent, in order, until the sink is ready for them.
#[derive(Debug, Default)]
pub struct UnsentQueue {
    waiting: VecDeque<Unsent>,
}

/// While so many wait for the sink no request is admitted from outside.
const UNSENT_MAX: usize = 1024;

impl UnsentQueue {
    /// A request has ended.
    pub fn push(&mut self, job: Job, scopes: Vec<String>, failure: Failure) {
        self.waiting.push_back(Unsent {
            job,
            scopes,
            failure,
        });
    }

    /// The first of them.
    pub fn pop(&mut self) -> Option<Unsent> {
        self.waiting.pop_front()
    }

    /// Removes all.
    pub fn drain(&mut self) -> impl Iterator<Item = Unsent> + use<> {
        std::mem::take(&mut self.waiting).into_iter()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether so many wait that no request should be admitted from outside.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= UNSENT_MAX
    }
}

/// Scopes whose requests were cancelled, and up to which number.
///
/// Kept for requests whose scopes are not known yet: they are in the inbox, or wait for the scope map or
/// for a redirect's moment.
#[derive(Debug, Default)]
pub struct CancelledScopes {
    until: BTreeMap<String, u64>,
}

/// From so many scopes on, those under which no request waits are removed each time that the number has
/// doubled.
const SCOPES_KEPT: usize = 64;

impl CancelledScopes {
    /// A scope's requests up to this number are cancelled. `first_waiting`: the lowest number of all whose
    /// scopes are not known yet.
    pub fn add(&mut self, name: String, until: u64, first_waiting: impl FnOnce() -> Option<u64>) {
        let names = self.until.len();
        if names >= SCOPES_KEPT && names.is_power_of_two() {
            let first = first_waiting();
            self.until
                .retain(|_, until| first.is_some_and(|first| first <= *until));
        }
        self.until.insert(name, until);
    }

    /// Whether a request under these scopes is cancelled.
    pub fn has(&self, job: &Job, scopes: &Scopes) -> bool {
        let is_named = |name: &str| self.until.get(name).is_some_and(|until| job.id <= *until);
        job.kind != PageKind::Robots && !self.until.is_empty() && scopes.names().any(is_named)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// The scopes of all requests that were meant are known. Returns their names.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.until).into_keys().collect()
    }
}

/// Failure of a request cancelled by a command.
pub fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, CANCELLED, "cancelled by a command")
}
