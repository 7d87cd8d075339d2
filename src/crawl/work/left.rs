//! Requests that an earlier run left, until they are queued: some in each turn, so that the first are sent
//! while the others wait.

use std::collections::BTreeSet;

use crate::base::time::Wall;
use crate::frontier::job::Job;
use crate::state::record::Entry;
use crate::state::replay::OrderedEntries;
use crate::wire::url::CrawlUrl;

/// Requests that an earlier run left, in order of their admission.
#[derive(Debug, Default)]
pub struct LeftRequests {
    entries: OrderedEntries,
    /// Numbers of those that must not be made twice and may have been.
    started: Vec<u64>,
    /// Numbers of those that were cancelled since.
    cancelled: BTreeSet<u64>,
}

/// What is to be done with a request that an earlier run left.
#[derive(Debug)]
pub enum LeftRequest {
    /// It is queued.
    Queued(Job),
    /// It is queued at this time.
    Delayed(Job, Wall),
    /// It may have been carried out, and is not made again.
    Started(Job),
    /// It was cancelled.
    Cancelled(Job),
}

impl LeftRequests {
    /// All that an earlier run left. `started`: the numbers of those that it may have made, ascending.
    pub fn new(entries: OrderedEntries, started: Vec<u64>) -> Self {
        LeftRequests {
            entries,
            started,
            cancelled: BTreeSet::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Searches some thousand of them for one for a URL. See [`OrderedEntries::find_from`].
    pub fn find_from(&self, from: u64, url: &CrawlUrl) -> (Option<Entry>, Option<u64>, usize) {
        self.entries.find_from(from, url)
    }

    /// The number of the next one.
    pub fn next_number(&self) -> Option<u64> {
        self.entries.numbers().next()
    }

    /// Cancels the request of this number, if it is one of these. Returns false if there are none.
    pub fn cancel(&mut self, number: u64) -> bool {
        if self.len() == 0 {
            return false;
        }
        self.cancelled.insert(number);
        true
    }

    /// The next one. What it replaced has ended.
    pub fn poll(&mut self) -> Option<LeftRequest> {
        let entry = self.entries.next()?;
        let left = self.left(entry);
        if self.len() == 0 {
            *self = LeftRequests::default();
        }
        Some(left)
    }

    /// Removes those that are not made, in whatever place they are.
    pub fn take_unmade(&mut self) -> Vec<LeftRequest> {
        let (started, cancelled) = (&self.started, &self.cancelled);
        if started.is_empty() && cancelled.is_empty() {
            return Vec::new();
        }
        let unmade = self.entries.extract(|number, entry| {
            let is_started = started.binary_search(&number).is_ok();
            is_started || !cancelled.is_empty() && cancelled.contains(&entry().job.root())
        });
        unmade.into_iter().map(|entry| self.left(entry)).collect()
    }

    /// What is to be done with one of them.
    fn left(&mut self, entry: Entry) -> LeftRequest {
        let Entry {
            mut job,
            not_before,
            ..
        } = entry;
        // Its submitter is gone.
        job.awaited = false;
        let is_cancelled = self.cancelled.remove(&job.root());
        let is_started = self.started.binary_search(&job.id).is_ok();
        match not_before {
            _ if is_started => LeftRequest::Started(job),
            _ if is_cancelled => LeftRequest::Cancelled(job),
            Some(at) => LeftRequest::Delayed(job, Wall(at)),
            None => LeftRequest::Queued(job),
        }
    }

    /// Removes all.
    pub fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        let left = std::mem::take(self);
        left.entries.map(|entry| Job {
            awaited: false,
            ..entry.job
        })
    }
}
