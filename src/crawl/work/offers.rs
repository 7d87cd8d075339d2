//! Requests that were offered to the frontier and wait for its answer.

use std::collections::BTreeMap;

use crate::base::time::Instant;
use crate::frontier::job::Job;
use crate::frontier::offers::OfferId;

/// The requests that wait for an answer.
#[derive(Debug, Default)]
pub struct Offers {
    waiting: BTreeMap<OfferId, Offered>,
}

/// A request that waits for an answer.
#[derive(Debug)]
pub struct Offered {
    /// The request; its number is 0 as long as it has none.
    pub job: Box<Job>,
    /// Its origin.
    pub origin: OfferOrigin,
}

/// Origin of an offered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferOrigin {
    /// A list of seeds: one that is not admitted is counted only.
    List,
    /// A submitter that has its number and is notified of its end.
    Submitter,
    /// A page with a link to it.
    Link,
    /// A page that redirects to it and waits for the answer. It is not followed before this time.
    Redirect(Option<Instant>),
}

/// While so many wait no request is admitted from outside, none is released, and links of pages are not read.
/// Those of the page that is being read may come on top.
const WAITING_MAX: usize = 10_000;

impl Offers {
    /// A request waits for an answer.
    pub fn wait(&mut self, id: OfferId, offered: Offered) {
        self.waiting.insert(id, offered);
    }

    /// Removes a request whose answer has come. `None` if it was cancelled meanwhile.
    pub fn take(&mut self, id: OfferId) -> Option<Offered> {
        self.waiting.remove(&id)
    }

    /// Removes the requests that `is_unwanted` names. Their answers change nothing.
    pub fn take_out(&mut self, is_unwanted: impl Fn(&Job) -> bool) -> Vec<(OfferId, Offered)> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (out, kept): (BTreeMap<_, _>, _) = waiting.partition(|(_, o)| is_unwanted(&o.job));
        self.waiting = kept;
        out.into_iter().collect()
    }

    /// The numbers of the attempts that wait and have one.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        let ids = self.waiting.values().map(|offered| offered.job.id);
        ids.filter(|id| *id != 0)
    }

    /// Number of requests that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no more should come.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }
}
