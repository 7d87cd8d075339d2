//! Requests that ended without being sent: those that the sink has not got yet, and scopes whose requests
//! end as soon as they are known.

use std::collections::{BTreeMap, VecDeque};

use crate::base::scopes::Scopes;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::wire::url::CrawlUrl;

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
    /// How many have left.
    gone: u64,
}

/// Requests that are compared in one step of a search.
const COMPARED: usize = if cfg!(test) { 8 } else { 2048 };

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
        let first = self.waiting.pop_front()?;
        self.gone += 1;
        Some(first)
    }

    /// Searches some thousand of them for one for a URL; `next` is where the search is, and begins at 0. Returns it, and
    /// whether all were compared.
    pub fn find_from(&self, next: &mut u64, url: &CrawlUrl) -> (Option<&Unsent>, bool) {
        let from = next.saturating_sub(self.gone) as usize;
        let mut range = self.waiting.iter().skip(from).take(COMPARED);
        let found = range.find(|unsent| unsent.job.url == *url);
        *next = self.gone + (from + COMPARED) as u64;
        (found, from + COMPARED >= self.waiting.len())
    }

    /// Removes all.
    pub fn drain(&mut self) -> impl Iterator<Item = Unsent> + use<> {
        self.gone += self.waiting.len() as u64;
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
    /// The last number of the requests of a scope that are cancelled.
    pub fn until(&self, name: &str) -> Option<u64> {
        self.until.get(name).copied()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_is_found_in_steps_while_the_first_leave_and_others_come() {
        let url = |number: u64| format!("http://a.test/{number}");
        let url = |number| CrawlUrl::parse(&url(number)).expect("a URL");
        let push = |queue: &mut UnsentQueue, number| {
            queue.push(Job::seed(number, url(number)), Vec::new(), cancelled());
        };
        let mut queue = UnsentQueue::default();
        for wanted in 50..=100 {
            queue = UnsentQueue::default();
            (1..=100).for_each(|number| push(&mut queue, number));
            let (mut next, mut last) = (0, 100);
            loop {
                let (found, is_over) = queue.find_from(&mut next, &url(wanted));
                if let Some(found) = found {
                    assert_eq!(found.job.id, wanted);
                    break;
                }
                assert!(!is_over, "{wanted} was missed");
                for _ in 0..3 {
                    queue.pop();
                    last += 1;
                    push(&mut queue, last);
                }
            }
        }
        let (found, is_over) = queue.find_from(&mut 0, &url(1));
        assert!(found.is_none() && !is_over, "it has left");
        let mut all = u64::from(u32::MAX);
        assert!(queue.find_from(&mut all, &url(100)).1);
    }
}
