//! Simulated helper threads: a computation is performed when it is submitted, and its result comes later.

use std::time::Duration;

use super::Faults;
use crate::base::gzip::Gzip;
use crate::base::rng::Rng;
use crate::base::time::{Instant, nanos};
use crate::base::worker::{WorkerDone, WorkerJob};

#[derive(Debug)]
pub(super) struct Workers {
    rng: Rng,
    takes_max: Duration,
    panic: f64,
    gzip: Gzip,
}

impl Workers {
    pub(super) fn new(rng: Rng, faults: &Faults, gzip_level: u32) -> Self {
        Workers {
            rng,
            takes_max: faults.compute_max,
            panic: faults.compute_panic,
            gzip: Gzip::new(gzip_level),
        }
    }

    /// Performs a job. Returns its result and when that arrives: any of several may be the first.
    pub(super) fn perform(&mut self, job: WorkerJob, now: Instant) -> (WorkerDone, Instant) {
        let takes = Duration::from_nanos(self.rng.below(nanos(self.takes_max) + 1));
        let done = match self.panic > 0.0 && self.rng.chance(self.panic) {
            true => job.done(Some("the simulation lets it panic".to_owned())),
            false => job.perform(&mut self.gzip),
        };
        (done, now + takes)
    }
}
