//! Output: pages go to the sink and its jobs to the disk; both report backpressure.

mod pull;
mod run_log;
mod spare;
mod stats_file;
mod storage;

use std::io;
use std::time::Duration;

pub use self::run_log::RunLog;
pub use self::stats_file::StatsFile;

use self::pull::Pull;
use self::spare::Spare;
use self::storage::Storage;
use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::{Instant, Wall};
use crate::crawl::stats::Stats;
use crate::fetch::exchange::{Buffers, Exchange};
use crate::frontier::request::Request;
use crate::sink::commit::{Commit, Epoch, FileLength};
use crate::sink::filtered::FilteredLink;
use crate::sink::page::Page;
use crate::sink::pull::Results;
use crate::sink::{DiskSink, Preparation, WriteError};
use crate::throttle::decision::Decision;

/// The sink, its disk jobs and the statistics.
///
/// Pages enter by [`Output::put`], finished disk jobs by [`Output::handle_disk`]. Jobs for the disk leave
/// by [`Output::poll_jobs`].
pub struct Output {
    sink: Box<dyn DiskSink>,
    /// The queue that the sink fills, if the crawl's owner takes the results.
    pull: Option<Pull>,
    jobs: Vec<DiskJob>,
    stats: Stats,
    stats_file: StatsFile,
    run_log: RunLog,
    intake: Intake,
    storage: Storage,
    spare: Spare,
    commit: CommitStage,
    is_finished: bool,
}

/// Stage of the commit under way: `None → Preparing → Prepared → None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitStage {
    /// None is under way.
    None,
    /// The sink makes the epoch durable.
    Preparing(Epoch),
    /// It is durable, and not recorded yet.
    Prepared(Epoch),
}

/// Requests that wait while the sink is not ready, for the warning.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Queued, or waiting for their scopes or moments.
    pub queued: usize,
    /// Sent, or being parsed.
    pub under_way: usize,
    /// Ended unsent, and not put into the sink yet.
    pub ended: usize,
}

impl Output {
    /// A new output. `results`: the queue that the sink fills, if the crawl's owner takes results one
    /// by one.
    pub fn new(
        sink: Box<dyn DiskSink>,
        results: Option<Results>,
        stats: Stats,
        stats_file: StatsFile,
    ) -> Self {
        Output {
            sink,
            pull: results.map(Pull::new),
            jobs: Vec::new(),
            stats,
            stats_file,
            run_log: RunLog::default(),
            intake: Intake::Ready,
            storage: Storage::default(),
            spare: Spare::default(),
            commit: CommitStage::None,
            is_finished: false,
        }
    }

    /// Replaces the sink.
    #[cfg(test)]
    pub fn set_sink(&mut self, sink: impl DiskSink + 'static) {
        self.sink = Box::new(sink);
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        if let Some(pull) = &mut self.pull {
            pull.begin_turn();
        }
    }

    /// A turn ends.
    pub fn end_turn(&mut self) {
        if let Some(pull) = &mut self.pull {
            pull.end_turn();
        }
    }

    /// Whether the sink takes more now.
    pub fn is_ready(&self) -> bool {
        self.sink.is_ready()
    }

    /// Whether the disk has room.
    pub fn has_disk_room(&self) -> bool {
        self.storage.has_room()
    }

    /// Whether the sink is ready and the disk has room.
    pub fn takes_more(&self) -> bool {
        self.has_disk_room() && self.is_ready()
    }

    /// Whether the sink was not ready when the last turn ended.
    pub fn was_full(&self) -> bool {
        self.intake.is_full()
    }

    /// A turn ends: records whether the sink is ready, and warns if requests have waited for it for
    /// 10 s, unless the disk is full, which was reported.
    pub fn check_sink(&mut self, backlog: Backlog, is_sending: bool, now: Instant) {
        let Backlog {
            queued,
            under_way,
            ended,
        } = backlog;
        let is_waited_for = queued + under_way + ended > 0 && self.has_disk_room() && is_sending;
        let is_ready = self.is_ready();
        if self.intake.observe(is_ready, is_waited_for, now) {
            log::warn!(
                "the sink has not been ready for {} s: {queued} queued, {under_way} active and {ended} \
                 finished requests wait for it",
                PATIENCE.as_secs()
            );
        }
    }

    /// The sink, for bodies that it takes in pieces.
    pub fn sink(&mut self) -> &mut dyn DiskSink {
        &mut *self.sink
    }

    /// Whether the sink reads our own address of each connection.
    pub fn reads_local(&self) -> bool {
        self.sink.reads_local()
    }

    /// Whether the sink keeps replies in their content codings.
    pub fn keeps_codings(&self) -> bool {
        self.sink.keeps_codings()
    }

    /// Whether the sink writes the links of pages.
    pub fn keeps_links(&self) -> bool {
        self.sink.keeps_links()
    }

    /// Whether the sink writes the links that filters leave out.
    pub fn keeps_filtered(&self) -> bool {
        self.sink.keeps_filtered()
    }

    /// Gives the sink a request from outside that a filter leaves out.
    pub fn put_filtered(&mut self, link: &FilteredLink<'_>, at: Wall) {
        let mut line = Vec::new();
        link.write_line(&mut line);
        self.sink.filtered(&line, at, &mut self.jobs);
    }

    /// The first result that could not be written.
    pub fn failure(&self) -> Option<&WriteError> {
        self.sink.failure()
    }

    /// What the sink prepares of a page before it is put. See [`DiskSink::preparation`].
    pub fn preparation(&mut self, page: &Page, units: &mut u64) -> Option<Box<dyn Preparation>> {
        self.sink.preparation(page, units)
    }

    /// What the sink prepares of this page is complete: the page is put next.
    pub fn handle_prepared(&mut self, id: u64, prepared: Box<dyn Preparation>) {
        self.sink.prepared_page(id, prepared);
    }

    /// Counts a page and passes it to the sink; returns the buffers that the sink left.
    /// `asked_by`: the request, if the page's line does not contain all of it.
    pub fn put(&mut self, mut page: Box<Page>, asked_by: Option<&dyn Fn() -> Request>) -> Buffers {
        self.stats.count(&page);
        if let Some(request) = asked_by {
            self.sink.on_request(page.id, request);
        }
        self.sink.put(&mut page, &mut self.jobs);
        self.spare.put_page(page)
    }

    /// Gives a decision of the throttle to the sink.
    pub fn put_decision(&mut self, decision: &Decision, at: Wall) {
        self.sink.decision(decision, at, &mut self.jobs);
    }

    /// Called every second: flushes the sink. `at`: the wall-clock time.
    pub fn flush(&mut self, at: Wall) {
        self.sink.on_time(at, &mut self.jobs);
        self.sink.flush(&mut self.jobs);
    }

    /// The sink closes its files and begins others. Returns the names of those that are closed.
    pub fn rotate(&mut self) -> Vec<String> {
        self.sink.rotate(&mut self.jobs)
    }

    /// The crawl continues from its last commit.
    pub fn resume(&mut self, last: Option<&Commit>) {
        self.sink.resumed(last, &mut self.jobs);
    }

    /// The sink begins to make an epoch durable, unless a result is lost.
    pub fn prepare(&mut self, epoch: Epoch) {
        if self.sink.failure().is_none() {
            self.sink.prepare(epoch, &mut self.jobs);
            self.commit = CommitStage::Preparing(epoch);
        }
    }

    /// The files of the epoch, once it is durable.
    pub fn poll_prepared(&mut self) -> Option<Vec<FileLength>> {
        let CommitStage::Preparing(epoch) = self.commit else {
            return None;
        };
        let files = self.sink.prepared(epoch)?;
        self.commit = CommitStage::Prepared(epoch);
        Some(files)
    }

    /// The epoch is recorded, if it is durable and no result was lost since.
    pub fn commit(&mut self) {
        if let CommitStage::Prepared(epoch) = self.commit
            && self.sink.failure().is_none()
        {
            self.sink.committed(epoch, &mut self.jobs);
            self.commit = CommitStage::None;
        }
    }

    /// The crawl has ended: the sink writes the rest.
    pub fn finish(&mut self) {
        self.sink.finish(&mut self.jobs);
        self.is_finished = true;
    }

    /// Whether [`Output::finish`] was called.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether the sink makes an epoch durable.
    pub fn is_preparing(&self) -> bool {
        matches!(self.commit, CommitStage::Preparing(_))
    }

    /// Whether all is written and durable, or cannot be. Asked after [`Output::finish`].
    pub fn is_done(&self) -> bool {
        let is_lost = self.sink.failure().is_some();
        let are_others_done = self.stats_file.is_done() && self.run_log.is_done();
        (!self.is_preparing() || is_lost) && self.sink.is_done() && are_others_done
    }

    /// The requests whose results could not be written, each once.
    pub fn take_unwritten(&mut self) -> Vec<Request> {
        self.sink.take_unwritten()
    }

    /// Jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> std::vec::Drain<'_, DiskJob> {
        self.jobs.extend(self.run_log.poll_jobs());
        self.jobs.drain(..)
    }

    /// The disk has finished a job.
    pub fn handle_disk(&mut self, done: &DiskDone) {
        if !self.stats_file.handle_disk(done) && !self.run_log.handle_disk(done) {
            self.sink.disk_done(done, &mut self.jobs);
        }
    }

    /// The disk is full: no request is released until space is available.
    pub fn handle_disk_full(&mut self, error: &io::Error, now: Instant) {
        let level = self.storage.handle_full(now);
        log::log!(
            level,
            "disk full ({error}): crawl paused until space is available"
        );
    }

    /// Disk space is available again.
    pub fn handle_disk_room(&mut self, now: Instant) {
        let took = self.storage.handle_room(now);
        log::info!(
            "disk space is available again after {:.1} s: crawl resumed",
            took.as_secs_f64()
        );
    }

    /// How long the disk has been full; `None` if it is not full.
    pub fn disk_full_for(&self, now: Instant) -> Option<Duration> {
        self.storage.full_for(now)
    }

    /// Number of times the disk was full, and the total time.
    pub fn disk_pauses(&self, now: Instant) -> (u64, Duration) {
        (self.storage.pauses(), self.storage.paused(now))
    }

    /// The log of runs.
    pub fn run_log(&self) -> &RunLog {
        &self.run_log
    }

    /// The log of runs, to be continued.
    pub fn run_log_mut(&mut self) -> &mut RunLog {
        &mut self.run_log
    }

    /// The statistics.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The statistics, to be updated.
    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Whether `stats.json` is to be replaced periodically.
    pub fn has_stats_file(&self) -> bool {
        self.stats_file.is_written()
    }

    /// Whether the last replacement of `stats.json` is long enough ago. Not while the disk is full: none
    /// would be read before it has room, and the last one has it all.
    pub fn is_stats_file_due(&self, now: Instant) -> bool {
        self.has_disk_room() && self.stats_file.is_due(now)
    }

    /// Begins to replace `stats.json`; returns whether it may be written. If so, its text is made and
    /// passed to [`Output::write_stats`].
    pub fn begin_stats(&mut self, now: Instant) -> bool {
        self.stats_file.begin(now)
    }

    /// Replaces `stats.json` by this text.
    pub fn write_stats(&mut self, text: Vec<u8>) {
        self.jobs.extend(self.stats_file.replace(text));
    }

    /// Whether results wait for the crawl's owner to take them.
    pub fn results_wait(&self) -> bool {
        self.pull.as_ref().is_some_and(|pull| !pull.is_empty())
    }

    /// Whether a turn should return at once to an owner that takes the waiting results.
    pub fn is_pressing(&self) -> bool {
        self.pull.as_ref().is_some_and(Pull::is_pressing)
    }

    /// The next result, for the crawl's owner.
    pub fn take_result(&mut self) -> Option<Page> {
        self.pull.as_mut()?.take()
    }

    /// Each result that is taken is to be acknowledged.
    pub fn keep_unacknowledged(&self) {
        self.pull.iter().for_each(Pull::keep_unacknowledged);
    }

    /// The crawl's owner does not lose this result any more.
    pub fn acknowledge(&self, id: u64) {
        self.pull.iter().for_each(|pull| pull.acknowledge(id));
    }

    /// Whether a commit waits for the crawl's owner to acknowledge results.
    pub fn is_unacknowledged(&self) -> bool {
        self.pull.as_ref().is_some_and(Pull::is_unacknowledged)
    }

    /// Whether the last commit waits for acknowledgements that do not come.
    pub fn is_abandoned(&self) -> bool {
        self.pull.as_ref().is_some_and(Pull::is_abandoned)
    }

    /// The queue of results, if the crawl's owner takes them: for an owner on another thread.
    pub fn results(&self) -> Option<&Results> {
        self.pull.as_ref().map(Pull::results)
    }

    /// Drops the waiting results, and all later ones: no owner takes them.
    pub fn give_up_results(&self) {
        if let Some(pull) = &self.pull {
            pull.give_up();
        }
    }

    /// An exchange to be renewed, with its memory.
    pub fn take_exchange(&mut self) -> Box<Exchange> {
        self.spare.take_exchange()
    }

    /// Keeps the buffers of a page whose exchange was kept without them.
    pub fn put_buffers(&mut self, buffers: Buffers) {
        self.spare.put_buffers(buffers);
    }

    /// Keeps the memory of an exchange that is over and of what its outcome was made of, if that is known.
    pub fn put_exchange(&mut self, exchange: Box<Exchange>, buffers: Option<Buffers>) {
        self.spare.put_exchange(exchange, buffers);
    }

    /// A page to be reused, with its buffers.
    pub fn take_page(&mut self) -> Box<Page> {
        self.spare.take_page()
    }

    /// A text to be written over by a page's Content-Type.
    pub fn take_content_type(&mut self) -> String {
        self.spare.take_content_type()
    }
}

/// Readiness of the sink when the last turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intake {
    /// It accepts pages.
    Ready,
    /// It has accepted none since then.
    Full { since: Instant },
    /// It has accepted none for [`PATIENCE`], and the warning is logged.
    Stuck,
}

impl Intake {
    /// Whether it accepts no pages.
    fn is_full(self) -> bool {
        self != Intake::Ready
    }

    /// Records its present readiness; returns whether to log the warning.
    fn observe(&mut self, is_ready: bool, is_waited_for: bool, now: Instant) -> bool {
        match *self {
            _ if is_ready => *self = Intake::Ready,
            Intake::Ready => *self = Intake::Full { since: now },
            Intake::Full { since } => {
                if is_waited_for && now.saturating_since(since) >= PATIENCE {
                    *self = Intake::Stuck;
                    return true;
                }
            }
            Intake::Stuck => {}
        }
        false
    }
}

/// A warning is logged when a sink that is waited for has not been ready for so long. Disks are slow
/// for seconds at a time.
const PATIENCE: Duration = Duration::from_secs(10);
