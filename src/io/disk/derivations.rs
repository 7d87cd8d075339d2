//! The thread that makes files from others: one at a time, when no other thread wants the processor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use super::new_file::derive;
use super::report_done;
use super::reserve::Reserve;
use crate::base::disk::{DiskJob, Written};
use crate::io::priority::lower_priority;
use crate::io::results::{Results, block_signals};

/// A handle of the thread, which starts with its first job. Dropping it breaks off the job under way.
#[derive(Debug)]
pub(super) struct Derivations {
    results: Results,
    free_min: Option<u64>,
    is_given_up: Arc<AtomicBool>,
    /// Jobs that leave with the next submit.
    unsent: Vec<DiskJob>,
    running: Option<(Sender<DiskJob>, JoinHandle<()>)>,
}

impl Derivations {
    pub(super) fn new(free_min: Option<u64>, results: &Results) -> Self {
        Derivations {
            results: results.clone(),
            free_min,
            is_given_up: Arc::default(),
            unsent: Vec::new(),
            running: None,
        }
    }

    /// Queues a job until the next [`Derivations::submit`].
    pub(super) fn push(&mut self, job: DiskJob) {
        self.unsent.push(job);
    }

    /// Gives the queued jobs to the thread. Without it they fail.
    pub(super) fn submit(&mut self) {
        for job in mem::take(&mut self.unsent) {
            if self.running.is_none() {
                self.running = self.start();
            }
            let refused = match &self.running {
                Some((jobs, _)) => jobs.send(job).err().map(|refused| refused.0),
                None => Some(job),
            };
            if let Some(job) = refused {
                let error = io::Error::other("its thread is not running");
                report_done(&self.results, job, Err(error));
            }
        }
    }

    /// Breaks off the job under way, and all that follow.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    fn start(&self) -> Option<(Sender<DiskJob>, JoinHandle<()>)> {
        let (jobs, inbox) = channel();
        let results = self.results.clone();
        let is_given_up = Arc::clone(&self.is_given_up);
        let reserve = Reserve::new(self.free_min);
        let thread = thread::Builder::new()
            .name("derivations".into())
            .spawn(move || work(&inbox, &results, reserve, &is_given_up))
            .inspect_err(|error| log::warn!("cannot start a thread for indexes: {error}"));
        Some((jobs, thread.ok()?))
    }
}

impl Drop for Derivations {
    fn drop(&mut self) {
        self.give_up();
        if let Some((jobs, thread)) = self.running.take() {
            drop(jobs);
            // Panics of jobs are results.
            let _ = thread.join();
        }
    }
}

fn work(
    inbox: &Receiver<DiskJob>,
    results: &Results,
    mut reserve: Reserve,
    is_given_up: &AtomicBool,
) {
    block_signals();
    lower_priority(NICER);
    while let Ok(mut job) = inbox.recv() {
        let result = match &mut job {
            DiskJob::Derive {
                from,
                to,
                derive: content,
                ..
            } => {
                let run = || derive((from, to), &mut **content, &mut reserve, is_given_up);
                let run: Result<io::Result<Written>, _> = catch_unwind(AssertUnwindSafe(run));
                run.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
            }
            _ => unreachable!("other jobs are done by other threads"),
        };
        report_done(results, job, result);
    }
}

/// Added to the nice value of the thread: the most that there is, so that any other thread runs before it.
const NICER: i32 = 19;
