//! The journal of a crawl: records what is still to be fetched, and commits it together with the results.
//!
//! ```text
//! Idle ── due, and something was recorded ──► Preparing: the sink and the journal make the epoch durable
//!   ▲                                                            │
//!   └── Recorded ◄── Recording: the commit becomes durable ◄─────┘
//! ```
//!
//! A request is recorded when it is admitted, and again when its result was passed to the sink; both belong
//! to the same epoch as that result. A segment that has grown is rewritten without what has ended. After a
//! crash, what was admitted and has not ended in the last
//! committed epoch is still to be fetched, and files are cut to the lengths of that epoch.

pub mod contents;
pub mod damage;
mod dead;
pub mod departures;
mod held;
pub mod progress;
mod rewrite;
pub mod seen;
pub mod segment;
pub mod start;
pub mod starts;
pub mod state;
mod writer;

use std::io;
use std::time::Duration;

use hashbrown::HashSet;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::keys::Keys;
use crate::base::secret::Known;
use crate::base::slab::Key;
use crate::base::time::{Instant, Wall};
use crate::crawl::journal::dead::{BLOCK_RECORD, RECORD};
use crate::crawl::journal::seen::{RunsChange, SeenRuns};
use crate::crawl::journal::start::JournalStart;
use crate::crawl::journal::starts::{Start, Starts};
use crate::crawl::journal::writer::{EpochProgress, SegmentWriter};
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::SharedMemory;
use crate::sink::WriteError;
use crate::sink::commit::{Epoch, FileLength};
use crate::state::record::{
    self, About, BlockAdmission, BlockOrigin, CommitRecord, Record, WrittenBlock,
};
use crate::wire::url::registrable;

/// The journal, or none: a crawl without a state on disk.
pub struct Journal {
    open: Option<Box<Open>>,
}

/// A journal that is written.
struct Open {
    writer: SegmentWriter,
    keys: Keys,
    /// Keys of URLs that earlier runs requested without a committed result.
    requested: HashSet<u64, Known>,
    starts: Starts,
    seen: SeenRuns,
    /// How far the list of seeds was taken, if that is not recorded yet.
    seeds_taken: Option<u64>,
    /// Whether anything was recorded since the last commit began.
    has_new: bool,
    /// Whether the next commit begins as soon as one may.
    is_hastened: bool,
    /// Nothing more is sent: the last commit says so.
    is_quiet: bool,
    /// `STATE_SYNC`.
    interval: Duration,
    /// The last epoch that was begun.
    epoch: Epoch,
    stage: Stage,
    failure: Option<WriteError>,
}

#[derive(Debug)]
enum Stage {
    /// Nothing is being committed; the next commit is due then.
    Idle { due: Instant },
    /// The epoch is being made durable.
    Preparing {
        /// The sink's files, once it is prepared.
        files: Option<Vec<FileLength>>,
        /// Whether the records of the epoch are durable.
        is_synced: bool,
    },
    /// The commit is being made durable.
    Recording,
    /// It is durable.
    Recorded,
}

/// So much time is not counted at most, if a crawl in which nothing happens is killed.
const TIME_INTERVAL: Duration = Duration::from_secs(60);

/// Most bytes of the optional fields of a request, its body among them, that a record can hold. A larger
/// one is not in the journal: it is lost if the crawl ends before it is sent.
const STORED_MAX: usize = 32 << 20;

/// Names of settings are shorter.
const NAME_ROOM: usize = 1 << 10;

/// Beyond so many bytes that wait for the disk, no more seeds are taken in.
const UNWRITTEN_MAX: usize = 8 << 20;

impl Journal {
    /// A crawl without a state on disk.
    pub fn none() -> Self {
        Journal { open: None }
    }

    /// A journal with a commit every `interval` (`STATE_SYNC`).
    pub fn new(start: JournalStart, interval: Duration, now: Instant) -> Self {
        let has_new =
            (start.continues.as_ref()).is_none_or(|continues| !continues.records.is_empty());
        let open = Open {
            writer: SegmentWriter::new(&start, now),
            keys: start.keys,
            requested: HashSet::default(),
            starts: Starts::default(),
            seen: SeenRuns::new(start.seen, start.folder, start.crawl),
            seeds_taken: None,
            has_new,
            is_hastened: false,
            is_quiet: false,
            interval,
            epoch: Epoch(start.epoch),
            stage: Stage::Idle { due: now },
            failure: None,
        };
        Journal {
            open: Some(Box::new(open)),
        }
    }

    /// Has departures stored in memory that outlives the process, before anything is recorded.
    pub fn set_memory(&mut self, memory: SharedMemory) {
        if let Some(open) = &mut self.open {
            open.writer.set_memory(memory);
        }
    }

    /// The run is over, and nothing more is recorded.
    pub fn end(&mut self) {
        if let Some(open) = &mut self.open {
            open.writer.end();
        }
    }

    /// Whether the crawl has a state on disk.
    pub fn is_on(&self) -> bool {
        self.open.is_some()
    }

    /// The first write that failed.
    pub fn failure(&self) -> Option<&WriteError> {
        let open = self.open.as_ref()?;
        open.failure.as_ref().or_else(|| open.seen.failure())
    }

    /// Records that a request was admitted. `replaces`: the attempt that it continues, by a retry or a
    /// redirect; 0 for none. `not_before`: it is not sent before that time.
    pub fn record_admitted(&mut self, job: &Job, replaces: u64, not_before: Option<Wall>) {
        if let Some(open) = self.open_for(job) {
            let not_before = not_before.map(|wall| wall.0);
            open.record(|out| record::encode_admitted(job, replaces, not_before, out));
        }
    }

    /// Records that a request was offered: the answer comes later.
    pub fn record_offered(&mut self, job: &Job, replaces: u64) {
        if let Some(open) = self.open_for(job) {
            open.record(|out| record::encode_offered(job, replaces, None, out));
            // Its answer takes its place.
            open.writer.dead().add_request(job);
        }
    }

    /// Records that a request that was offered is not admitted.
    pub fn record_dropped(&mut self, job: &Job) {
        if let Some(open) = self.open_for(job) {
            open.record(|out| Record::Dropped(job.id).encode(out));
        }
    }

    /// Records that the sink has the result of an attempt.
    pub fn record_ended(&mut self, job: &Job) {
        if let Some(open) = self.open_for(job) {
            open.record(|out| Record::Ended(job.id).encode(out));
            open.writer.dead().add_request(job);
        }
        if let Some(open) = &mut self.open {
            open.starts.end(job.id);
        }
    }

    /// Records that an attempt departs. Call it before a byte of its request leaves.
    pub fn record_departed(&mut self, job: &Job) {
        if let Some(open) = self.open_for(job) {
            let key = || open.keys.url(job.url.as_str()).0;
            open.writer.note_departure(key);
            // It is no reason for a commit.
            let has_new = open.has_new;
            open.record(|out| Record::Departed(job.id).encode(out));
            open.writer.dead().add(RECORD as u64);
            open.has_new = has_new;
        }
        if let Some(open) = &mut self.open {
            open.starts.depart(job.id);
        }
    }

    /// Continues with the keys of URLs that earlier runs requested without a committed result.
    pub fn restore_requested(&mut self, urls: Vec<u64>) {
        if let Some(open) = &mut self.open {
            open.requested = urls.into_iter().collect();
        }
    }

    /// A request of this URL was admitted that is recorded by the next commit, which is due as for any other
    /// record. Returns the key of the URL in records; 0 if nothing is recorded.
    pub fn await_record(&mut self, url: &str) -> u64 {
        self.open.as_mut().map_or(0, |open| {
            open.has_new = true;
            open.keys.url(url).0
        })
    }

    /// A URL was requested: whether an earlier run had requested it, and its result was lost.
    pub fn take_requested(&mut self, url: &str) -> bool {
        match &mut self.open {
            Some(open) if !open.requested.is_empty() => {
                let key = open.keys.url(url).0;
                open.requested.remove(&key)
            }
            _ => false,
        }
    }

    /// An attempt that must not be made twice is to depart: it may once its start is committed.
    pub fn start(&mut self, number: u64, key: Key) -> Start {
        let Some(open) = self.open.as_deref_mut() else {
            return Start::Committed;
        };
        let start = open.starts.request(number, key);
        if start == Start::New {
            open.record(|out| Record::Started(number).encode(out));
        }
        start
    }

    /// Whether an attempt that must not be made twice departed, and has not ended.
    pub fn has_departed(&self, number: u64) -> bool {
        let open = self.open.as_deref();
        open.is_some_and(|open| open.starts.has_departed(number))
    }

    /// Nothing more is sent: records which attempts were started and did not depart.
    pub fn record_unsent(&mut self) {
        if let Some(open) = self.open.as_deref_mut() {
            for number in open.starts.take_unsent() {
                open.record(|out| Record::StartUndone(number).encode(out));
                open.writer.dead().add(2 * RECORD as u64);
            }
        }
    }

    /// The attempts that may depart after a commit.
    pub fn poll_started(&mut self) -> Vec<Key> {
        let open = self.open.as_deref_mut();
        open.map_or_else(Vec::new, |open| open.starts.poll_resumed())
    }

    /// The seen set on disk.
    pub fn seen(&mut self) -> Option<&mut SeenRuns> {
        self.open.as_deref_mut().map(|open| &mut open.seen)
    }

    /// Whether keys are being looked for in runs of the seen set.
    pub fn is_looking_up(&self) -> bool {
        let open = self.open.as_deref();
        open.is_some_and(|open| open.seen.batch().is_some())
    }

    /// Records that all keys so far are being written to the run with this number.
    pub fn record_seen_frozen(&mut self, run: u64) {
        if let Some(open) = &mut self.open {
            open.writer.freeze_keys();
            open.record(|out| Record::SeenFrozen(run).encode(out));
        }
    }

    /// Records the runs of the seen set from now on.
    pub fn record_runs(&mut self, change: &RunsChange) {
        if let Some(open) = &mut self.open {
            open.record(|out| Record::SeenRuns(change.records.clone()).encode(out));
            if let Some(run) = change.records.last().filter(|_| change.has_frozen) {
                open.writer.name_run(run.keys);
            }
        }
    }

    /// Records the Crawl-delay of a host.
    pub fn record_crawl_delay(&mut self, host: &str, delay: Duration) {
        if let Some(open) = &mut self.open {
            let record = Record::CrawlDelay {
                host: host.to_owned(),
                delay: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
            };
            open.record(|out| record.encode(out));
        }
    }

    /// Records that a block was written.
    pub fn record_block(&mut self, written: WrittenBlock) {
        let Some(open) = &mut self.open else {
            return;
        };
        let WrittenBlock { block, origin } = written;
        match origin {
            BlockOrigin::Admitted {
                requests,
                seed_host,
            } => {
                let host_keys = |host: &String| {
                    let domain = registrable(host);
                    (open.keys.host(host).0, open.keys.host(domain).0)
                };
                let admission = BlockAdmission {
                    requests,
                    seed_host: seed_host.as_ref().map(host_keys),
                };
                open.record(|out| record::encode_admitted_to_block(&block, &admission, out));
            }
            BlockOrigin::Journal { numbers } => {
                open.writer.dead().add(block.length);
                open.record(|out| record::encode_spill(&block, &numbers, out));
            }
            BlockOrigin::Block { file, offset } => {
                open.writer.dead().add(BLOCK_RECORD);
                open.record(|out| Record::Unspilled { file, offset }.encode(out));
                open.record(|out| record::encode_spill(&block, &[], out));
            }
        }
    }

    /// Records that a request was admitted that waits to be written to a block; it has these bytes.
    pub fn record_admitted_request(&mut self, request: &[u8]) {
        if let Some(open) = &mut self.open {
            open.record(|out| record::encode_admitted_request(request, out));
        }
    }

    /// Records that the requests of a block were read.
    pub fn record_unspilled(&mut self, file: u64, offset: u64) {
        if let Some(open) = &mut self.open {
            open.writer.dead().add(BLOCK_RECORD);
            open.record(|out| Record::Unspilled { file, offset }.encode(out));
        }
    }

    /// Whether a fact of so many bytes, with a short name, is recorded.
    pub fn takes(&self, bytes: usize) -> bool {
        bytes + NAME_ROOM <= STORED_MAX
    }

    /// Records what was learned about something: it needs no commit. An empty value: nothing is known any more.
    pub fn record_fact(&mut self, about: About, name: &str, at: Wall, value: &[u8]) {
        if let Some(open) = &mut self.open
            && name.len() + value.len() <= STORED_MAX
        {
            open.record(|out| record::encode_fact(about, name, at.0, value, out));
            // The next one about the same takes its place.
            open.writer
                .dead()
                .add((name.len() + value.len() + RECORD) as u64);
        }
    }

    /// Hands what was recorded to the disk, before the next commit.
    pub fn flush(&mut self) {
        if let Some(open) = &mut self.open {
            open.writer.flush();
        }
    }

    /// Records that nothing was sent since the facts, and nothing more will be.
    pub fn record_quiet(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_quiet = true;
        }
    }

    /// Records how far the list of seeds was taken.
    pub fn record_seeds_taken(&mut self, position: u64) {
        if let Some(open) = &mut self.open {
            // The last position before a commit is enough.
            open.seeds_taken = Some(position);
            open.has_new = true;
        }
    }

    /// The journal, for a request that it has: no robots.txt, which is fetched again when it is needed.
    fn open_for(&mut self, job: &Job) -> Option<&mut Open> {
        self.open
            .as_deref_mut()
            .filter(|_| job.kind != PageKind::Robots && is_storable(job))
    }

    /// When the next commit is due; `None` while one is under way, or nothing was recorded.
    pub fn next_timeout(&self) -> Option<Instant> {
        let open = self.open.as_ref()?;
        match open.stage {
            Stage::Idle { due }
                if open.has_new && open.failure.is_none() && open.writer.takes_commit() =>
            {
                // Requests or orders wait for it.
                let is_awaited = open.starts.is_waiting() || open.is_hastened;
                Some(if is_awaited { Instant::START } else { due })
            }
            _ => None,
        }
    }

    /// Has a commit made though nothing was recorded: the sink has something that is saved once it is durable.
    pub fn await_commit(&mut self) {
        if let Some(open) = &mut self.open {
            open.has_new = true;
        }
    }

    /// Has the next commit made as soon as one may begin; returns its epoch, which has everything recorded so far.
    /// `None` without a state on disk.
    pub fn hasten_commit(&mut self) -> Option<Epoch> {
        let open = self.open.as_deref_mut()?;
        (open.has_new, open.is_hastened) = (true, true);
        Some(Epoch(open.epoch.0 + 1))
    }

    /// Time counts for a limit: has a commit made a minute after the last one, though nothing happened.
    pub fn count_time(&mut self, now: Instant) {
        if let Some(open) = &mut self.open
            && let Stage::Idle { due } = open.stage
            && due + TIME_INTERVAL <= now
        {
            open.has_new = true;
        }
    }

    /// Whether no commit is under way, and one may begin.
    pub fn is_idle(&self) -> bool {
        let open = self.open.as_ref();
        open.is_none_or(|open| {
            open.writer.takes_commit() && matches!(open.stage, Stage::Idle { .. })
        })
    }

    /// Begins a commit: ends the epoch. The caller has the sink prepare the same epoch.
    pub fn begin_commit(&mut self) -> Option<Epoch> {
        let open = self.open.as_deref_mut()?;
        debug_assert!(matches!(open.stage, Stage::Idle { .. }), "one at a time");
        open.epoch.0 += 1;
        let epoch = open.epoch;
        if let Some(position) = open.seeds_taken.take() {
            open.record(|out| Record::SeedsTaken(position).encode(out));
        }
        if open.is_quiet {
            open.record(|out| Record::Quiet.encode(out));
        }
        open.record(|out| Record::EpochEnd(epoch.0).encode(out));
        (open.has_new, open.is_hastened) = (false, false);
        open.starts.begin_epoch();
        open.seen.begin_commit();
        open.writer.sync_epoch();
        open.stage = Stage::Preparing {
            files: None,
            is_synced: false,
        };
        Some(epoch)
    }

    /// The commit that begins next is the last one: the segment is not rewritten any more.
    pub fn end_rewriting(&mut self) {
        if let Some(open) = &mut self.open {
            open.writer.end_rewriting();
        }
    }

    /// The sink has prepared the epoch: all of it is durable in these files.
    pub fn handle_prepared(&mut self, durable: Vec<FileLength>) {
        if let Some(open) = self.open.as_deref_mut()
            && let Stage::Preparing { files, .. } = &mut open.stage
        {
            *files = Some(durable);
        }
    }

    /// Records the commit once the records and the results of the epoch are durable. `next_number`: of the
    /// next attempt; `at`: now.
    pub fn record_commit(&mut self, next_number: u64, at: Wall) {
        let Some(open) = self.open.as_deref_mut() else {
            return;
        };
        let Stage::Preparing {
            files,
            is_synced: true,
        } = &mut open.stage
        else {
            return;
        };
        let Some(files) = files.take() else {
            return;
        };
        let name = |file: &FileLength| {
            let path = file
                .path
                .strip_prefix(open.writer.folder())
                .unwrap_or(&file.path);
            (path.to_string_lossy().into_owned(), file.length)
        };
        let commit = CommitRecord {
            epoch: open.epoch.0,
            files: files.iter().map(name).collect(),
            next_number,
            at: at.0,
        };
        // It is no reason for another commit, and the next one takes its place.
        let has_new = open.has_new;
        let length = |name: &str| name.len() + RECORD;
        let length: usize = commit.files.iter().map(|(name, _)| length(name)).sum();
        open.writer.dead().add((length + 4 * RECORD) as u64);
        open.record(|out| Record::Commit(commit).encode(out));
        open.has_new = has_new;
        open.writer.sync_commit();
        open.stage = Stage::Recording;
    }

    /// The epoch whose commit has just become durable. The next one is due an interval later.
    pub fn poll_committed(&mut self, now: Instant) -> Option<Epoch> {
        let open = self.open.as_deref_mut()?;
        if !matches!(open.stage, Stage::Recorded) {
            return None;
        }
        open.stage = Stage::Idle {
            due: now + open.interval,
        };
        open.starts.commit();
        open.writer.commit(open.epoch.0);
        open.seen.handle_committed();
        Some(open.epoch)
    }

    /// Goes on with the rewriting of the segment. Call it every turn. Returns whether there is more to do at
    /// once.
    pub fn advance_rewrite(&mut self) -> bool {
        let open = self.open.as_deref_mut();
        let open = open.filter(|open| open.failure.is_none());
        open.is_some_and(Open::advance_rewrite)
    }

    /// Whether so much waits for the disk that no seed and no request is taken in.
    pub fn is_behind(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.writer.unwritten() > UNWRITTEN_MAX)
    }

    /// When what was recorded is to be handed to the disk: [`Journal::poll_jobs`] does so.
    pub fn hand_over_due(&self) -> Option<Instant> {
        self.open.as_ref()?.writer.hand_over_due()
    }

    /// Jobs for the disk since the last call.
    pub fn poll_jobs(&mut self, now: Instant) -> Vec<DiskJob> {
        let Some(open) = self.open.as_deref_mut() else {
            return Vec::new();
        };
        let mut jobs = open.writer.poll_jobs(now);
        jobs.append(&mut open.seen.poll_jobs());
        jobs
    }

    /// The disk has finished a job. Returns whether it was the journal's.
    pub fn handle_disk(&mut self, done: &DiskDone) -> bool {
        let Some(open) = self.open.as_deref_mut() else {
            return false;
        };
        if !SegmentWriter::has(done) {
            return open.seen.handle_disk(done);
        }
        open.writer.handle_ended(done);
        if let Err(error) = &done.result {
            open.fail(error);
            return true;
        }
        if open.failure.is_some() {
            // What was lost was to be durable before this.
            return true;
        }
        match open.writer.handle_disk(done) {
            Some(EpochProgress::Synced) => {
                if let Stage::Preparing { is_synced, .. } = &mut open.stage {
                    *is_synced = true;
                }
            }
            Some(EpochProgress::Committed) => open.stage = Stage::Recorded,
            None => {}
        }
        true
    }
}

/// Whether a record can hold a request.
fn is_storable(job: &Job) -> bool {
    let extra = job.extra.as_ref();
    let bytes = extra.map_or(0, |extra| extra.stored_bytes());
    bytes <= STORED_MAX
}

impl Open {
    /// Appends a record.
    fn record(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.has_new = true;
        self.writer.record(encode);
    }

    /// Takes a step of the rewriting. Returns whether there is another to take at once.
    fn advance_rewrite(&mut self) -> bool {
        let is_committing = !matches!(self.stage, Stage::Idle { .. });
        match self.writer.advance_rewrite(is_committing) {
            Ok(has_step) => has_step,
            Err(at) => {
                let message = format!("the record at byte {} is damaged", at.offset);
                self.fail(&io::Error::new(io::ErrorKind::InvalidData, message));
                false
            }
        }
    }

    /// A write, or a read of the segment, has failed.
    fn fail(&mut self, error: &io::Error) {
        let path = self.writer.path().to_owned();
        self.failure
            .get_or_insert_with(|| WriteError::new(path, error));
    }
}

#[cfg(test)]
mod tests;
