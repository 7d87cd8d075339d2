//! The thread that reads: a read does not wait for the syncs of other files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::files::read;
use super::order::{Renamed, renamed_by};
use super::report_done;
use crate::base::disk::DiskJob;
use crate::io::results::{Results, block_signals};

/// What the two threads know of each other.
#[derive(Debug, Default)]
pub(super) struct Reads {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs up to this number, which change files, are done.
    done: u64,
    waiting: Vec<Read>,
    /// Before which job the read under way comes, and its path.
    under_way: Option<(u64, PathBuf)>,
    is_closed: bool,
}

#[derive(Debug)]
struct Read {
    job: DiskJob,
    /// The number of the job that it waits for.
    after: u64,
    /// The number of the next job that changes files.
    before: u64,
}

impl Reads {
    /// Starts the thread.
    pub(super) fn start(reads: &Arc<Self>, results: Results) -> std::io::Result<JoinHandle<()>> {
        let reads = Arc::clone(reads);
        let work = move || {
            block_signals();
            while let Some(mut job) = reads.next() {
                let result = match &mut job {
                    DiskJob::Read {
                        path,
                        offset,
                        bytes,
                        ..
                    } => read(path, *offset, bytes),
                    _ => unreachable!("other jobs are done in order"),
                };
                report_done(&results, job, result);
                reads.end();
            }
        };
        thread::Builder::new().name("disk reads".into()).spawn(work)
    }

    /// Adds a read that waits for the job with the number `after`, and comes before that with `before`.
    pub(super) fn push(&self, job: DiskJob, after: u64, before: u64) {
        self.lock().waiting.push(Read { job, after, before });
        self.changed.notify_all();
    }

    /// The number up to which jobs that change files are done.
    pub(super) fn done(&self) -> u64 {
        self.lock().done
    }

    /// The job with this number, which changes files, is done, and all before it.
    pub(super) fn set_done(&self, number: u64) {
        let mut state = self.lock();
        state.done = number;
        if !state.waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Waits until the reads are over that a job with this number must not overtake.
    pub(super) fn wait_before(&self, job: &DiskJob, number: u64) {
        let renamed = renamed_by(job);
        if let Renamed::None = renamed {
            return;
        }
        let is_before = |before: u64, path: &Path| before <= number && renamed.concerns(path);
        let state = self.lock();
        let has_reads = |state: &mut State| {
            let mut waiting = state.waiting.iter();
            let under_way = state.under_way.as_ref();
            under_way.is_some_and(|(before, path)| is_before(*before, path))
                || waiting.any(|read| is_before(read.before, path_of(&read.job)))
        };
        let waited = self.changed.wait_while(state, has_reads);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// There are no more jobs: the thread ends after the reads that wait.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // No job is left to wait for.
        state.done = u64::MAX;
        self.changed.notify_all();
    }

    /// The next read that need not wait; `None`: the thread ends.
    fn next(&self) -> Option<DiskJob> {
        let mut state = self.lock();
        loop {
            let done = state.done;
            let is_ready = |read: &Read| read.after <= done;
            if let Some(index) = state.waiting.iter().position(is_ready) {
                let read = state.waiting.remove(index);
                state.under_way = Some((read.before, path_of(&read.job).to_owned()));
                return Some(read.job);
            }
            if state.is_closed {
                return None;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        self.lock().under_way = None;
        self.changed.notify_all();
    }

    /// Each change of the state is complete before anything can panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path_of(job: &DiskJob) -> &Path {
    match job {
        DiskJob::Read { path, .. } => path,
        _ => Path::new(""),
    }
}
