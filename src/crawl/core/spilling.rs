//! Requests that do not fit into memory wait in files, and come back in turns.

use crate::base::disk::DiskDone;
use crate::crawl::core::Core;
use crate::crawl::spill::{ScopeNames, SpilledRequests};
use crate::crawl::work::offers::OfferOrigin;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::sink::WriteError;
use crate::state::replay::Blocks;

/// Blocks of requests that come back in one turn.
const BLOCKS_PER_TURN: usize = 4;

impl<I: Io> Core<I> {
    /// Queues a request that was admitted: in its lane, or in a file. It replaces no attempt.
    pub fn queue_admitted(&mut self, job: Job) {
        if !self.is_for_file(&job) {
            self.record_admitted(&job, OfferOrigin::Link);
            return self.release_later(job);
        }
        self.steering.searches().note_queued(&job.url);
        let origin = self.frontier.origin_key(&job.url).0;
        let key = self.journal.await_record(job.url.as_str());
        self.spill.admit(origin, &job, key);
        self.frontier.set_spilled(self.spill.len());
    }

    /// Queues a request that an earlier run admitted.
    pub fn queue_again(&mut self, job: Job) {
        if !self.is_for_file(&job) {
            return self.release_later(job);
        }
        self.steering.searches().note_queued(&job.url);
        self.spill.put(self.frontier.origin_key(&job.url).0, &job);
        self.frontier.set_spilled(self.spill.len());
    }

    fn is_for_file(&self, job: &Job) -> bool {
        let frontier = &self.frontier;
        let origin = || frontier.origin_key(&job.url).0;
        self.spill.takes(origin, job, frontier.memory())
    }

    /// The settings of a scope, of a pattern or of `default` have changed, or what was learned: origins under it whose
    /// requests rest in files may have to wait less than before.
    pub fn end_rests_of(&mut self, name: &str) {
        self.spill.end_rests(ScopeNames::of_order(name));
    }

    /// Takes requests back that were read, has more read, and records what was written.
    pub fn advance_spill(&mut self) {
        if self.is_running() && !self.spill.is_empty() {
            for _ in 0..BLOCKS_PER_TURN {
                let Some(read) = self.spill.poll_read() else {
                    break;
                };
                self.take_spilled(read);
            }
            self.wakeups.turn_again_if(self.spill.has_read());
            let has_rested = self.spill.expire(self.now);
            self.evict_waiting();
            let goes_on = self.spill.advance(self.frontier.memory());
            self.wakeups.turn_again_if(has_rested || goes_on);
        }
        self.record_blocks();
    }

    fn record_blocks(&mut self) {
        for written in self.spill.poll_written() {
            self.journal.record_block(written);
        }
    }

    /// Records all requests that were admitted so far and have not been recorded: those on their way to a file.
    pub fn record_spilled(&mut self) {
        self.record_blocks();
        let journal = &mut self.journal;
        let record = |request: &[u8]| journal.record_admitted_request(request);
        self.spill.record_new(record);
    }

    fn take_spilled(&mut self, read: SpilledRequests) {
        self.journal.record_unspilled(read.file, read.offset);
        for entry in read.entries {
            let job = entry.job;
            self.record_admitted(&job, OfferOrigin::Link);
            self.restore_origin(&job);
            match self.spill.is_cancelled(job.root()) {
                true => self.end_cancelled(job),
                false => self.release_later(job),
            }
        }
        if !self.has_spilled() {
            self.spill.forget_cancelled();
        }
        self.frontier.set_spilled(self.spill.len());
    }

    /// Adds the blocks that an earlier run wrote.
    pub fn restore_spilled(&mut self, blocks: Blocks) {
        for block in blocks.into_by_first() {
            self.spill.restore(&block);
        }
        self.frontier.set_spilled(self.spill.len());
    }

    /// Whether requests wait in files.
    pub fn has_spilled(&self) -> bool {
        !self.spill.is_empty()
    }

    /// A commit begins: files are synced before it is.
    pub fn sync_spilled(&mut self) {
        self.spill.begin_commit();
    }

    /// A commit is durable: files without requests are removed.
    pub fn remove_spilled(&mut self) {
        self.spill.handle_committed();
    }

    /// Whether what was written so far is durable.
    pub fn is_spill_synced(&self) -> bool {
        self.spill.is_synced()
    }

    /// The first job of these files that failed.
    pub fn spill_failure(&self) -> Option<&WriteError> {
        self.spill.failure()
    }

    /// The disk has finished a job. Returns whether it was one of these files.
    pub fn on_spill_disk(&mut self, done: &DiskDone) -> bool {
        self.spill.handle_disk(done)
    }

    /// All requests that wait in files, at the end of the crawl.
    pub fn drain_spilled(&mut self) -> impl Iterator<Item = Job> + use<I> {
        self.record_spilled();
        self.spill.drain(self.network.file_reader())
    }

    /// An attempt has ended: its origin may have its next turn.
    pub fn count_spilled_end(&mut self, job: &Job) {
        if self.spill.counts_ends() && job.kind != PageKind::Robots {
            self.spill.handle_end(self.frontier.origin_key(&job.url).0);
        }
    }
}
