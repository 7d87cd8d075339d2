//! Jobs for helper threads and their results: plain values; the `io` floor performs the jobs.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::gzip::Gzip;

/// A computation that owns what it needs.
pub trait Compute: Any + Send {
    /// Computes. Called once for each time that it is submitted. It must end, and not block. `gzip`: the
    /// thread's, whose state is too large for one computation.
    fn run(&mut self, gzip: &mut Gzip);
}

/// A computation for a helper thread.
pub struct WorkerJob {
    /// Returned in [`WorkerDone`]: chosen by the owner.
    pub number: u64,
    /// What is computed, on any thread.
    pub compute: Box<dyn Compute>,
}

/// A computation that has ended.
pub struct WorkerDone {
    /// The job's number.
    pub number: u64,
    /// The computation with its results; after a panic it may be half done.
    pub compute: Box<dyn Compute>,
    /// The message of the panic in which it ended, if it did.
    pub panic: Option<String>,
}

impl WorkerJob {
    /// Performs the job on this thread. A panic ends in its result.
    pub fn perform(mut self, gzip: &mut Gzip) -> WorkerDone {
        let run = catch_unwind(AssertUnwindSafe(|| self.compute.run(gzip)));
        let panic = run.err().map(|payload| message_of(&*payload));
        self.done(panic)
    }

    /// The result of a job that ended in this panic, or in none.
    pub fn done(self, panic: Option<String>) -> WorkerDone {
        WorkerDone {
            number: self.number,
            compute: self.compute,
            panic,
        }
    }
}

impl WorkerDone {
    /// The computation as what it was before it was submitted.
    ///
    /// # Panics
    /// It is of another type.
    pub fn into_computed<T: Compute>(self) -> Box<T> {
        let compute: Box<dyn Any> = self.compute;
        compute
            .downcast()
            .expect("what comes back is what was submitted")
    }
}

/// The text that `panic!` was called with.
fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

impl fmt::Debug for WorkerJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerJob").field(&self.number).finish()
    }
}

impl fmt::Debug for WorkerDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerDone")
            .field("number", &self.number)
            .field("panic", &self.panic)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sum(Vec<u32>, u32);

    impl Compute for Sum {
        fn run(&mut self, _gzip: &mut Gzip) {
            assert!(!self.0.is_empty(), "nothing to add");
            self.1 = self.0.iter().sum();
        }
    }

    fn perform(numbers: &[u32]) -> WorkerDone {
        let compute = Box::new(Sum(numbers.to_vec(), 0));
        WorkerJob { number: 7, compute }.perform(&mut Gzip::new(1))
    }

    #[test]
    fn a_job_returns_its_computation_with_its_result() {
        let done = perform(&[1, 2, 3]);
        assert_eq!((done.number, &done.panic), (7, &None));
        assert_eq!(done.into_computed::<Sum>().1, 6);
    }

    #[test]
    fn a_panic_ends_the_job_and_its_computation_comes_back() {
        let done = perform(&[]);
        assert_eq!(done.panic.as_deref(), Some("nothing to add"));
        assert_eq!(done.into_computed::<Sum>().1, 0);
    }
}
