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

    /// The numbers of the attempts that wait.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().map(|unsent| unsent.job.id)
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
/// for a redirect's moment; and for later runs, as long as the sink has not got all of them.
#[derive(Debug)]
pub struct CancelledScopes {
    until: BTreeMap<String, u64>,
    /// With so many names, those that are over are removed.
    reviewed_at: usize,
}

/// From so many scopes on, those under which no request waits are removed each time that the number has
/// doubled.
const SCOPES_KEPT: usize = 64;

impl Default for CancelledScopes {
    fn default() -> Self {
        CancelledScopes {
            until: BTreeMap::new(),
            reviewed_at: SCOPES_KEPT,
        }
    }
}

impl CancelledScopes {
    /// A scope's requests up to this number are cancelled.
    pub fn add(&mut self, name: String, until: u64) {
        self.until.insert(name, until);
    }

    /// Whether there are so many names that they are to be reviewed.
    pub fn are_many(&self) -> bool {
        self.until.len() >= self.reviewed_at
    }

    /// Removes the names that are over, and returns them. `first`: the lowest number of all requests whose scopes
    /// are not known yet, or that the sink has not got.
    pub fn review(&mut self, first: Option<u64>) -> Vec<String> {
        let all = std::mem::take(&mut self.until).into_iter();
        let (kept, over): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|(_, until)| first.is_some_and(|first| first <= *until));
        self.until = kept;
        self.reviewed_at = (2 * self.until.len()).max(SCOPES_KEPT);
        over.into_keys().collect()
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
}

/// Failure of a request cancelled by a command.
pub fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, CANCELLED, "cancelled by a command")
}
