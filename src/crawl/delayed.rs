//! Requests that wait for a moment of their own: a redirect that says when it may be followed.

use std::collections::BTreeMap;

use crate::base::time::Instant;
use crate::frontier::job::Job;

/// The requests that wait, by when they may go on.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    waiting: BTreeMap<(Instant, u64), Box<Job>>,
}

impl Delayed {
    /// A request waits until `at`.
    pub fn wait(&mut self, job: Job, at: Instant) {
        self.waiting.insert((at, job.id), Box::new(job));
    }

    /// When the first may go on.
    pub fn next(&self) -> Option<Instant> {
        let ((at, _), _) = self.waiting.first_key_value()?;
        Some(*at)
    }

    /// A request that may go on at `now`.
    pub fn expire(&mut self, now: Instant) -> Option<Box<Job>> {
        self.next().filter(|at| *at <= now)?;
        Some(self.waiting.pop_first()?.1)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes out all that wait.
    pub fn drain(&mut self) -> impl Iterator<Item = Box<Job>> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }
}
