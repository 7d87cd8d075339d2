//! The disk threads: one does jobs in order, with compression; one reads; one makes files from others.
//!
//! A write can block for seconds, so it is not done by the crawl's thread. Jobs enter through a channel, all
//! of a turn at once; results come back through a list and a wake-up. A read passes all jobs that do not
//! concern its bytes, and a file is made from another beside all of them.

mod derivations;
mod files;
mod new_file;
mod order;
mod reads;
mod reserve;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::results::{Results, block_signals};
use super::{Event, IoSettings};
use crate::base::disk::{DiskJob, Written};
use crate::base::machine;
use derivations::Derivations;
pub(super) use files::read;
use files::{Files, Together};
pub(super) use new_file::derive;
pub(super) use order::{Order, Place, renamed_by};
use reads::Reads;
pub(super) use reserve::{Reserve, check as check_reserve, usual_reserve};

/// A job with its number, or 0.
type Numbered = (u64, DiskJob);

/// A handle of the disk threads. Dropping it waits until all jobs are done, or fail for want of space.
#[derive(Debug)]
pub(super) struct Disk {
    /// `None` only while being dropped, or without a thread.
    jobs: Option<Sender<Vec<Numbered>>>,
    /// Jobs that leave with the next submit.
    unsent: Vec<Numbered>,
    order: Order,
    results: Results,
    reads: Arc<Reads>,
    /// `None`: the first thread reads as well.
    reading_thread: Option<JoinHandle<()>>,
    derivations: Derivations,
    space: Arc<SpaceWait>,
    thread: Option<JoinHandle<()>>,
    /// Readable once waits for a reader of standard output are to fail; `None` without an eventfd.
    given_up: Option<Arc<OwnedFd>>,
}

impl Disk {
    /// Starts the threads. Results go to `results`.
    pub(super) fn start(settings: &IoSettings, results: &Results) -> Self {
        let (jobs, inbox) = channel();
        let given_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let given_up = given_up.ok().map(Arc::new);
        let space = Arc::new(SpaceWait::default());
        let reads = Arc::new(Reads::default());
        let reading_thread = Reads::start(&reads, results.clone());
        let thread = {
            let (results, space, reads) = (results.clone(), Arc::clone(&space), Arc::clone(&reads));
            let files = Files::new(given_up.clone(), settings);
            thread::Builder::new().name("disk".into()).spawn(move || {
                let _close = CloseReads(&reads);
                work(files, &inbox, &results, &space, &reads);
            })
        };
        let thread = thread
            .inspect_err(|error| log::error!("cannot start the disk thread: {error}"))
            .ok();
        Disk {
            jobs: thread.is_some().then_some(jobs),
            unsent: Vec::new(),
            order: Order::default(),
            results: results.clone(),
            reads,
            reading_thread: reading_thread
                .inspect_err(|error| log::warn!("cannot start a thread for reads: {error}"))
                .ok(),
            derivations: Derivations::new(settings.disk_free_min, results),
            space,
            thread,
            given_up,
        }
    }

    /// Breaks off what is made from other files.
    pub(super) fn give_up_derivations(&self) {
        self.derivations.give_up();
    }

    /// Fails writes that wait for a reader of standard output or for free space, now and later, and breaks off what
    /// is made from other files.
    pub(super) fn fail_stalled_writes(&self) {
        self.give_up_derivations();
        self.space.give_up();
        if let Some(given_up) = &self.given_up {
            // The counter holds 2⁶⁴ of them.
            let _ = rustix::io::write(given_up, &1_u64.to_ne_bytes());
        }
    }

    /// Queues a job until the next [`Disk::submit`].
    pub(super) fn push(&mut self, job: DiskJob) {
        if let DiskJob::Derive { .. } = job {
            return self.derivations.push(job);
        }
        let place = self.order.add(&job, self.reads.done());
        let number = match place {
            Place::After(after) if self.jobs.is_some() && self.reading_thread.is_some() => {
                return self.reads.push(job, after, self.order.next());
            }
            Place::After(_) => 0,
            Place::InOrder(number) => number,
        };
        self.unsent.push((number, job));
    }

    /// Gives the queued jobs to the thread. Without it they fail.
    pub(super) fn submit(&mut self) {
        self.derivations.submit();
        if self.unsent.is_empty() {
            return;
        }
        // About as many will follow in the next turn.
        let next = Vec::with_capacity(self.unsent.len());
        let unsent = mem::replace(&mut self.unsent, next);
        let refused = match &self.jobs {
            Some(jobs) => jobs.send(unsent).err().map(|refused| refused.0),
            None => Some(unsent),
        };
        for (_, job) in refused.into_iter().flatten() {
            let error = io::Error::other("the disk thread is not running");
            report_done(&self.results, job, Err(error));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.submit();
        self.jobs = None;
        self.derivations.give_up();
        self.space.give_up();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the disk thread panicked; queued writes may be lost");
        }
        self.reads.close();
        if let Some(thread) = self.reading_thread.take() {
            // A panic of this thread loses no data: reads change nothing.
            let _ = thread.join();
        }
    }
}

/// Closes the reads when the thread ends that they wait for.
struct CloseReads<'a>(&'a Reads);

impl Drop for CloseReads<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A job is done, or has failed.
fn report_done(results: &Results, job: DiskJob, result: io::Result<Written>) {
    if result.is_err() || !is_silent(&job) {
        results.report(Event::Disk(job.done(result)));
    }
}

/// Whether jobs wait for free space.
#[derive(Debug, Default)]
struct SpaceWait {
    given_up: Mutex<bool>,
    changed: Condvar,
}

impl SpaceWait {
    /// Waits until the next try, or until waiting is given up.
    fn wait(&self) {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(given_up, RETRY_INTERVAL, |given_up| !*given_up);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends all waits, now and later.
    fn give_up(&self) {
        *self.given_up.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether waiting was given up.
    fn is_given_up(&self) -> bool {
        *self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn work(
    mut files: Files,
    inbox: &Receiver<Vec<Numbered>>,
    results: &Results,
    space: &SpaceWait,
    reads: &Reads,
) {
    block_signals();
    let mut jobs = VecDeque::new();
    while let Ok(more) = inbox.recv() {
        jobs.extend(more);
        jobs.extend(inbox.try_iter().flatten());
        let mut alone = 0;
        loop {
            if alone == 0 {
                alone = append_jobs(&mut files, &mut jobs, results, reads);
            }
            let Some((number, mut job)) = jobs.pop_front() else {
                break;
            };
            alone = alone.saturating_sub(1);
            reads.wait_before(&job, number);
            let result = perform(&mut files, &mut job, space, |event| results.report(event));
            report_done(results, job, result);
            if number > 0 {
                reads.set_done(number);
            }
        }
    }
}

/// Does the first jobs if they append, those of each file with one write. Returns how many of the next jobs are
/// to be done one by one, as they could not be done together.
fn append_jobs(
    files: &mut Files,
    jobs: &mut VecDeque<Numbered>,
    results: &Results,
    reads: &Reads,
) -> usize {
    loop {
        let (done, alone) = match files.append_together(jobs.iter().map(|(_, job)| job)) {
            Together::Done(written) => (written.into_iter().map(Ok).collect(), 0),
            Together::Other => return 0,
            Together::Failed(count, error) if machine::is_full(&error) => return count,
            // Another failure is the first job's: no write is tried twice.
            Together::Failed(count, error) => (vec![Err(error)], count - 1),
        };
        let mut last = 0;
        // The memory of the jobs is freed before the list of results is locked.
        let jobs = jobs.drain(..done.len()).zip(done);
        let events: Vec<Event> = jobs
            .map(|((number, job), result)| {
                last = number.max(last);
                Event::Disk(job.done(result))
            })
            .collect();
        results.report_all(events);
        if last > 0 {
            reads.set_done(last);
        }
        if alone > 0 {
            return alone;
        }
    }
}

/// Does a job, retrying while there is no space for it.
fn perform(
    files: &mut Files,
    job: &mut DiskJob,
    space: &SpaceWait,
    mut report: impl FnMut(Event),
) -> io::Result<Written> {
    let mut was_full = false;
    loop {
        if space.is_given_up() {
            files.use_reserve();
        }
        match files.perform(job) {
            Err(error) if waits_for_space(job, &error) && !space.is_given_up() => {
                if !mem::replace(&mut was_full, true) {
                    report(Event::DiskFull(error));
                }
                space.wait();
            }
            result => {
                // Another failure than want of space.
                let is_full = |error| waits_for_space(job, error);
                if was_full && !result.as_ref().is_err_and(is_full) {
                    report(Event::DiskRoom);
                }
                return result;
            }
        }
    }
}

/// Whether a failed job is retried once there is space. A failed sync is not: the kernel reports it once
/// and then forgets it.
pub(super) fn waits_for_space(job: &DiskJob, error: &io::Error) -> bool {
    machine::is_full(error) && !matches!(job, DiskJob::Sync { .. })
}

/// Whether a job reports only failure.
pub(super) fn is_silent(job: &DiskJob) -> bool {
    match job {
        DiskJob::Create { .. }
        | DiskJob::Open { .. }
        | DiskJob::Stdout { .. }
        | DiskJob::Allocate { .. } => true,
        DiskJob::Finish { rename, .. } => rename.is_none(),
        DiskJob::Append { .. }
        | DiskJob::AppendCompressed { .. }
        | DiskJob::Sync { .. }
        | DiskJob::Replace { .. }
        | DiskJob::Read { .. }
        | DiskJob::Derive { .. }
        | DiskJob::Remove { .. } => false,
    }
}

/// How often a job without space is retried.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);
