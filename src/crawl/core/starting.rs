//! What is recorded before a request departs: that it does, and the start of one that must not be made twice,
//! which the run that resumes the crawl does not make again.

use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::Stage;
use crate::crawl::journal::starts::Start;
use crate::crawl::work::unsent::OUTCOME_UNKNOWN;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Whether an attempt whose connection is ready must wait until its start is committed: one that is not
    /// idempotent (RFC 9110, section 9.2.2), of a crawl with a state on disk. It holds its slots meanwhile,
    /// so that no more are started than may be in flight.
    pub fn waits_for_start(&mut self, key: Key) -> bool {
        if !self.journal.is_on() {
            return false;
        }
        let job = &self.flights.get(key).expect("the caller found it").job;
        !job.is_idempotent() && self.journal.start(job.id, key) != Start::Committed
    }

    /// Records that an attempt departs.
    pub fn record_departed(&mut self, key: Key) {
        if let Some(flight) = self.flights.get(key) {
            self.journal.record_departed(&flight.job);
        }
    }

    /// A commit is over: the attempts that waited for it may depart, if they still have a connection.
    pub fn resume_started(&mut self) {
        for key in self.journal.poll_started() {
            let Some(flight) = self.flights.get_mut(key) else {
                continue;
            };
            if let Stage::Ready { since, .. } = &mut flight.stage {
                let setup = since.saturating_since(flight.released);
                *since = self.now;
                self.throttle.ready(flight.ticket, Some(setup), self.now);
            }
        }
    }

    /// Whether a request that is stopped in flight may have been carried out, and must not be made again.
    pub fn has_unknown_outcome(&self, job: &Job) -> bool {
        self.journal.has_departed(job.id)
    }

    /// Ends a request that an earlier run started.
    pub fn end_started(&mut self, job: Job) {
        self.work.end(job, Vec::new(), outcome_unknown());
    }
}

/// Failure of a request that may have been carried out.
pub fn outcome_unknown() -> Failure {
    Failure::new(
        FailureKind::Cancelled,
        OUTCOME_UNKNOWN,
        "the crawl ended after the request may have been sent; it is not sent again",
    )
}
