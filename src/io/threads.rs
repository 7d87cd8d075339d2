//! The threads of a back end beside the loop's: for the disk and for computations.

use super::disk::Disk;
use super::results::Results;
use super::workers::Workers;
use super::{Event, IoSettings, Waker};
use crate::base::disk::DiskJob;
use crate::base::worker::WorkerJob;

/// Threads that are started with their first job. Dropping it waits for the jobs of the disk.
#[derive(Debug)]
pub(super) struct Threads {
    results: Results,
    disk: Option<Disk>,
    workers: Option<Workers>,
    settings: IoSettings,
}

impl Threads {
    /// No thread yet. `waker` wakes the loop when there are results where there were none.
    pub(super) fn new(settings: &IoSettings, waker: Waker) -> Self {
        Threads {
            results: Results::new(waker),
            disk: None,
            workers: None,
            settings: settings.clone(),
        }
    }

    /// Queues a job for the disk until the next [`Threads::submit`].
    pub(super) fn disk(&mut self, job: DiskJob) {
        let start = || Disk::start(&self.settings, &self.results);
        self.disk.get_or_insert_with(start).push(job);
    }

    /// Queues a computation until the next [`Threads::submit`].
    pub(super) fn compute(&mut self, job: WorkerJob) {
        let IoSettings {
            workers,
            gzip_level,
            ..
        } = self.settings;
        let start = || Workers::start(workers, gzip_level, &self.results);
        self.workers.get_or_insert_with(start).push(job);
    }

    /// Gives the queued jobs and computations to their threads.
    pub(super) fn submit(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.submit();
        }
        if let Some(workers) = &mut self.workers {
            workers.submit();
        }
    }

    /// Breaks off what is made from other files, now and later.
    pub(super) fn give_up_derivations(&self) {
        if let Some(disk) = &self.disk {
            disk.give_up_derivations();
        }
    }

    /// Fails writes that wait for a reader of standard output or for free space, now and later.
    pub(super) fn fail_stalled_writes(&self) {
        if let Some(disk) = &self.disk {
            disk.fail_stalled_writes();
        }
    }

    /// Appends the results since the last call.
    pub(super) fn take_results(&self, events: &mut Vec<Event>) {
        self.results.take(events);
    }
}
