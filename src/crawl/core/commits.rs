//! Commits: the journal and the sink make one epoch durable, then the commit is recorded.

use std::time::Duration;

use crate::base::disk::DiskDone;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::work::offers::OfferOrigin;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::sink::WriteError;
use crate::sink::commit::Epoch;

/// The only epoch of a crawl without a state on disk.
const ONLY_EPOCH: Epoch = Epoch(1);

impl<I: Io> Core<I> {
    /// Records a request that was admitted.
    pub fn record_admitted(&mut self, job: &Job, origin: OfferOrigin) {
        let not_before = match origin {
            OfferOrigin::Redirect(Some(at)) => Some(self.network.wall_at(at)),
            _ => None,
        };
        self.journal
            .record_admitted(job, replaced_by(job, origin), not_before);
    }

    /// Records an attempt that takes the place of another.
    pub fn record_successor(&mut self, job: &Job, before: &Job) {
        self.journal.record_admitted(job, before.id, None);
    }

    /// Records that the sink has the result of an attempt. `is_final`: the request has no further one.
    pub fn record_ended(&mut self, job: &Job, is_final: bool) {
        self.journal.record_ended(job);
        if job.kind == PageKind::Robots && self.frontier.report_robots(job.id) {
            self.journal.await_commit();
        }
        if is_final {
            self.forget_cancel(job);
        }
        self.count_spilled_end(job);
    }

    /// Whether an earlier run requested this URL, too, and its result was lost.
    pub fn take_requested(&mut self, url: &str) -> bool {
        self.journal.take_requested(url)
    }

    /// An attempt was cancelled because the crawl stops: the run that resumes the crawl makes it again.
    /// Returns false if none will: the crawl has no state, or a submitter that is told of this end.
    pub fn continues_later(&mut self, job: &Job) -> bool {
        let continues = self.journal.is_on() && !job.awaited && job.kind != PageKind::Robots;
        if continues {
            self.continue_later(job);
        }
        continues
    }

    /// Leaves an attempt to the run that resumes the crawl.
    pub fn continue_later(&mut self, job: &Job) {
        let mut again = Job {
            id: self.frontier.number(),
            parent: job.id,
            ..job.clone()
        };
        again.extra_mut().set_root(job.root());
        self.record_successor(&again, job);
        self.work.keep_cancelled(again);
    }

    /// Records the Crawl-delay of a host.
    pub fn record_crawl_delay(&mut self, host: &str, delay: Duration) {
        self.journal.record_crawl_delay(host, delay);
    }

    /// Records how far the list of seeds was taken.
    pub fn record_seeds_taken(&mut self, position: u64) {
        self.journal.record_seeds_taken(position);
    }

    /// When the next commit is due.
    pub fn commit_due(&self) -> Option<Instant> {
        let due = self.journal.next_timeout()?;
        let is_possible = self.control.phase().is_fetching() && !self.has_lost_writes();
        is_possible.then_some(due)
    }

    /// Begins a commit of everything so far.
    pub fn begin_commit(&mut self) {
        self.begin_facts();
        self.record_spilled();
        if let Some(epoch) = self.journal.begin_commit() {
            self.frontier.begin_commit();
            self.sync_spilled();
            self.output.prepare(epoch);
            self.control.handle_prepare();
        }
    }

    /// Advances the commit under way: recorded when all of it is durable, ended when the record is.
    pub fn advance_commit(&mut self) {
        // After a failed sync a later one may report more than the epoch has.
        if !self.journal.is_on() || self.has_lost_writes() {
            return;
        }
        if let Some(files) = self.output.poll_prepared() {
            self.journal.handle_prepared(files);
        }
        let next_number = self.frontier.numbers().last() + 1;
        let at = self.network.wall_at(self.now);
        // The commit names blocks of requests.
        if self.is_spill_synced() {
            self.journal.record_commit(next_number, at);
        }
        let has_step = self.journal.advance_rewrite();
        self.wakeups.turn_again_if(has_step);
        if let Some(epoch) = self.journal.poll_committed(self.now) {
            self.on_orders_committed(epoch);
            self.output.commit();
            self.frontier.handle_committed();
            self.control.handle_commit();
            self.remove_spilled();
            self.resume_started();
            // The sink may close files now.
            self.wakeups.turn_again();
        }
    }

    /// The crawl has ended: as soon as no commit is under way, the sink writes the rest and the last epoch
    /// is committed.
    pub fn finish_output(&mut self) {
        let has_lost_writes = self.has_lost_writes();
        if self.output.is_finished() || !self.journal.is_idle() && !has_lost_writes {
            return;
        }
        if !has_lost_writes && self.journal.is_on() && self.frontier.waits_for_commit() {
            // They are saved by the last commit.
            return self.begin_commit();
        }
        self.output.finish();
        if has_lost_writes {
            return;
        }
        self.record_last_facts();
        self.journal.record_unsent();
        self.journal.end_rewriting();
        self.record_spilled();
        let epoch = self.journal.begin_commit();
        self.sync_spilled();
        self.output.prepare(epoch.unwrap_or(ONLY_EPOCH));
        self.control.handle_prepare();
    }

    /// Whether everything is written and committed, or cannot be.
    pub fn is_written(&mut self) -> bool {
        if !self.journal.is_on() {
            // The lengths of the files have nowhere to be recorded.
            drop(self.output.poll_prepared());
        }
        let is_recorded = self.journal.is_idle() || self.has_lost_writes();
        self.output.is_finished() && is_recorded && self.output.is_done()
    }

    /// The crawl is over: ends the journal, or the commit of a crawl without a state on disk.
    pub fn end_commits(&mut self) {
        if !self.journal.is_on() {
            self.output.commit();
        }
        self.journal.end();
    }

    /// The first write of the sink or of the state that failed.
    pub fn write_error(&self) -> Option<&WriteError> {
        let of_state = || self.journal.failure().or_else(|| self.spill_failure());
        self.output.failure().or_else(of_state)
    }

    /// Whether there is such a write.
    pub fn has_lost_writes(&self) -> bool {
        self.write_error().is_some()
    }

    /// Passes the result of a disk job on.
    pub fn on_disk(&mut self, done: &DiskDone) {
        if self.journal.handle_disk(done) || self.on_spill_disk(done) {
            return;
        }
        if !self.on_order_disk(done) {
            self.output.handle_disk(done);
        }
    }
}

/// The attempt that a request continues, by a redirect; 0 for none.
pub fn replaced_by(job: &Job, origin: OfferOrigin) -> u64 {
    match origin {
        OfferOrigin::Redirect(_) => job.parent,
        OfferOrigin::List | OfferOrigin::Submitter | OfferOrigin::Link => 0,
    }
}
