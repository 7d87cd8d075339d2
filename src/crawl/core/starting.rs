//! Requests that must not be made twice: recorded as started before they depart, and not made again by the
//! run that resumes the crawl.

use std::time::Duration;

use crate::base::ids::LaneId;
use crate::crawl::core::Core;
use crate::crawl::journal::starts::Start;
use crate::crawl::work::unsent::OUTCOME_UNKNOWN;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::io::Io;

/// A lane that waits for a commit is asked again after this time, if it was not resumed before.
const WAIT: Duration = Duration::from_secs(1);

impl<I: Io> Core<I> {
    /// Whether a request that was released must wait until its start is committed: one that is not
    /// idempotent (RFC 9110, section 9.2.2), of a crawl with a state on disk.
    pub fn waits_for_start(&mut self, job: &Job, lane: LaneId) -> bool {
        self.journal.is_on()
            && !job.is_idempotent()
            && self.journal.start(job.id, lane) != Start::Committed
    }

    /// Returns it to its lane, which waits; others do not.
    pub fn wait_for_start(&mut self, job: Job, lane: LaneId) {
        self.frontier.put_back(lane, job, self.now);
        self.frontier.pause(lane, self.now + WAIT);
        self.update_lanes();
    }

    /// A commit is over: the lanes that waited for it go on.
    pub fn resume_started(&mut self) {
        for lane in self.journal.poll_started() {
            self.frontier.resume(lane);
        }
        self.update_lanes();
    }

    /// Whether a request that is stopped in flight may have been carried out, and must not be made again.
    pub fn has_unknown_outcome(&self, job: &Job) -> bool {
        self.journal.is_on() && !job.is_idempotent()
    }

    /// Ends a request that an earlier run started.
    pub fn end_started(&mut self, job: Job) {
        self.journal.record_started(job.id);
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
