//! The segment that a run writes: its records, the jobs that make them durable, and its rewriting without what
//! has ended.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::Instant;
use crate::crawl::journal::dead::{Dead, DeadKeys};
use crate::crawl::journal::departures::Departures;
use crate::crawl::journal::held::Held;
use crate::crawl::journal::rewrite::{FILE, Rewrite, Step};
use crate::crawl::journal::start::JournalStart;
use crate::crawl::journal::state::path_of;
use crate::io::SharedMemory;
use crate::state::compaction::{Counted, Unreadable};
use crate::state::journal::Framer;

/// The segment that a run writes.
pub struct SegmentWriter {
    folder: PathBuf,
    path: PathBuf,
    /// The number of the segment, and that of the crawl.
    segment: u64,
    crawl: u64,
    framer: Framer,
    /// There is space for the segment up to this length, if the file system can allocate it.
    allocated: u64,
    /// Records that are framed once the next segment has its name.
    held: Held,
    rewrite: Option<Box<Rewrite>>,
    /// How much of the segment is dead.
    dead: Dead,
    dead_keys: DeadKeys,
    /// The segment is not rewritten any more.
    is_last: bool,
    /// Bytes of it that count for nothing.
    voids: Vec<Range<u64>>,
    /// Segments that hold nothing more than this one: they are removed after the next commit, and after the
    /// one under way.
    old: Vec<PathBuf>,
    old_next: Vec<PathBuf>,
    /// Whether the beginning of the segment is written. Records follow only then: if it could not be
    /// written, they would take its place.
    is_begun: bool,
    /// Records that were not handed to the disk yet.
    records: Vec<u8>,
    /// When records are handed to the disk next, if no commit does so before.
    hand_over_at: Instant,
    /// Departures whose records may not be written, where the machine has memory for them.
    departures: Option<Departures>,
    jobs: Vec<DiskJob>,
    /// Bytes that were handed to the disk and are not written.
    unwritten: usize,
}

/// How far an epoch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochProgress {
    /// All records of the epoch are durable.
    Synced,
    /// The commit is durable.
    Committed,
}

/// Records are handed to the disk at the end of a turn, but not more often: what a process that is killed
/// had recorded by then is known to the run that resumes the crawl. The first after a pause go at once: that a
/// request departs is handed over before it is sent.
const HAND_OVER_INTERVAL: Duration = Duration::from_millis(5);

/// Records are handed to the disk when there are so many bytes of them, if no commit does so before.
const BATCH_SIZE: usize = 256 << 10;

/// So many bytes are allocated beyond the end of a segment.
const ALLOCATED: u64 = 1 << 20;

/// A segment is rewritten when it is so long and half of it is dead. In tests that is often.
pub const REWRITE_MIN: u64 = if cfg!(test) { 3000 } else { 64 << 20 };

/// Tags of the disk jobs.
const APPEND: u64 = 0;
const RECORDS: u64 = 1;
const COMMIT: u64 = 2;
const BEGINNING: u64 = 3;
const REMOVE: u64 = 4;

impl SegmentWriter {
    /// Of the segment that this start begins or continues.
    pub fn new(start: &JournalStart, now: Instant) -> Self {
        let (beginning, framer) = start.beginning();
        let path = start.path.clone();
        let (records, job, old) = match &start.continues {
            Some(continues) => {
                let open = DiskJob::Open {
                    file: FILE,
                    path,
                    length: framer.length(),
                };
                (Vec::new(), open, Some(continues))
            }
            None => (beginning, DiskJob::Create { file: FILE, path }, None),
        };
        let dead = old.map_or(0, |old| old.length.saturating_sub(old.left));
        let mut writer = SegmentWriter {
            folder: start.folder.clone(),
            path: start.path.clone(),
            segment: start.segment,
            crawl: start.crawl,
            framer,
            allocated: 0,
            held: Held::default(),
            rewrite: None,
            dead: Dead::of(dead),
            dead_keys: DeadKeys::default(),
            is_last: false,
            voids: old.map_or_else(Vec::new, |old| old.voids.clone()),
            old: Vec::new(),
            old_next: Vec::new(),
            is_begun: old.is_some(),
            records,
            hand_over_at: now,
            departures: None,
            jobs: vec![job],
            unwritten: 0,
        };
        writer.hand_over(BEGINNING);
        writer
    }

    /// Has departures stored in memory that outlives the process, before anything is recorded.
    pub fn set_memory(&mut self, memory: SharedMemory) {
        self.departures = Some(Departures::new(memory, self.crawl, self.is_begun));
    }

    /// Nothing more is recorded.
    pub fn end(&mut self) {
        self.departures = None;
    }

    /// The segment's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The segment's number.
    #[cfg(test)]
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// The output directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a commit may begin: the segment is begun, and no records wait for the name of the next one.
    pub fn takes_commit(&self) -> bool {
        self.is_begun && !self.is_held()
    }

    /// Whether records wait for the name of the next segment.
    pub fn is_held(&self) -> bool {
        let is_held = |rewrite: &Rewrite| rewrite.is_held();
        !self.held.is_empty() || self.rewrite.as_deref().is_some_and(is_held)
    }

    /// Bytes of records that are not written.
    pub fn unwritten(&self) -> usize {
        self.unwritten + self.records.len() + self.held.len()
    }

    /// Appends a record.
    pub fn record(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.is_held() {
            return self.held.add(encode);
        }
        self.framer.frame(&mut self.records, encode);
        if self.records.len() >= BATCH_SIZE && self.is_begun {
            self.hand_over(APPEND);
        }
    }

    /// The URL with this key is requested: its record follows.
    pub fn note_departure(&mut self, key: impl FnOnce() -> u64) {
        if let Some(departures) = &mut self.departures {
            departures.push(key());
        }
    }

    /// How much of the segment is dead.
    pub fn dead(&mut self) -> &mut Dead {
        &mut self.dead
    }

    /// The keys recorded so far are being written to a run of the seen set.
    pub fn freeze_keys(&mut self) {
        // While it is held it is not known where they will be.
        let at = if self.is_held() {
            0
        } else {
            self.framer.length()
        };
        self.dead_keys.freeze(at);
    }

    /// The run has its name: its keys, of which there are so many, are on disk twice.
    pub fn name_run(&mut self, keys: u64) {
        self.dead_keys.name_run();
        self.dead.add(keys * size_of::<u64>() as u64);
    }

    /// The records of an epoch end here, and are made durable: [`EpochProgress::Synced`] follows.
    pub fn sync_epoch(&mut self) {
        self.dead_keys.end_epoch();
        self.old_next = std::mem::take(&mut self.old);
        self.sync(RECORDS);
    }

    /// The record of the commit ends here, and is made durable: [`EpochProgress::Committed`] follows.
    pub fn sync_commit(&mut self) {
        self.sync(COMMIT);
    }

    fn sync(&mut self, tag: u64) {
        self.flush();
        self.jobs.push(DiskJob::Sync { file: FILE, tag });
    }

    /// The epoch is committed.
    pub fn commit(&mut self, epoch: u64) {
        self.dead_keys.commit();
        for path in std::mem::take(&mut self.old_next) {
            self.jobs.push(DiskJob::Remove {
                file: FILE,
                path,
                tag: REMOVE,
            });
        }
        if self.is_to_be_rewritten() {
            self.begin_rewrite(epoch);
        }
    }

    /// Hands what was recorded to the disk, before the next commit.
    pub fn flush(&mut self) {
        self.hand_over(APPEND);
    }

    /// When what was recorded is to be handed to the disk: [`SegmentWriter::poll_jobs`] does so.
    pub fn hand_over_due(&self) -> Option<Instant> {
        let has_records = self.is_begun && !self.records.is_empty();
        has_records.then_some(self.hand_over_at)
    }

    /// Jobs for the disk since the last call.
    pub fn poll_jobs(&mut self, now: Instant) -> Vec<DiskJob> {
        if self.hand_over_due().is_some_and(|due| due <= now) {
            self.flush();
            self.hand_over_at = now + HAND_OVER_INTERVAL;
        }
        let jobs = std::mem::take(&mut self.jobs);
        self.unwritten += jobs.iter().map(DiskJob::held).sum::<usize>();
        jobs
    }

    /// Whether a job of the disk is one of these.
    pub fn has(done: &DiskDone) -> bool {
        done.file == Some(FILE) || Rewrite::has(done)
    }

    /// A job has ended, well or not: its bytes no longer wait for the disk.
    pub fn handle_ended(&mut self, done: &DiskDone) {
        self.unwritten = self.unwritten.saturating_sub(done.held);
    }

    /// A job is done, without an error, and so were all before.
    pub fn handle_disk(&mut self, done: &DiskDone) -> Option<EpochProgress> {
        if Rewrite::has(done) {
            if let Some(rewrite) = &mut self.rewrite {
                rewrite.handle_disk(done);
            }
            return None;
        }
        match done.tag {
            BEGINNING => self.is_begun = true,
            APPEND => {
                if let Some(departures) = &mut self.departures {
                    departures.handle_written();
                }
            }
            RECORDS => return Some(EpochProgress::Synced),
            COMMIT => return Some(EpochProgress::Committed),
            _ => {}
        }
        None
    }

    /// The segment is not rewritten any more.
    pub fn end_rewriting(&mut self) {
        debug_assert!(!self.is_held(), "no commit begins then");
        let abandoned = self.rewrite.take().map(|rewrite| rewrite.abandon());
        self.jobs.extend(abandoned.into_iter().flatten());
        self.is_last = true;
    }

    fn is_to_be_rewritten(&self) -> bool {
        let length = self.framer.length();
        let is_worth_it = length >= REWRITE_MIN && self.dead.bytes >= length / 2;
        is_worth_it && self.rewrite.is_none() && !self.is_last
    }

    /// Begins to rewrite the segment, right after the commit of an epoch.
    fn begin_rewrite(&mut self, epoch: u64) {
        self.dead.begin_rewrite();
        self.flush();
        let number = self.segment + 1;
        let (rewrite, jobs) = Rewrite::new(
            self.crawl,
            (self.segment, &self.path, self.framer.length()),
            Counted {
                epoch,
                voids: &self.voids,
                dead_keys: self.dead_keys.until(),
            },
            (number, path_of(&self.folder, number)),
        );
        self.rewrite = Some(Box::new(rewrite));
        self.jobs.extend(jobs);
    }

    /// Takes a step of the rewriting, of a millisecond at most. `is_committing`: the record of a commit is still
    /// to be written to this segment. Returns whether there is another step to take at once.
    ///
    /// # Errors
    /// [`Unreadable`]: the segment cannot be read.
    pub fn advance_rewrite(&mut self, is_committing: bool) -> Result<bool, Unreadable> {
        while let Some(rewrite) = &mut self.rewrite {
            match rewrite.poll() {
                Step::Wait => return Ok(false),
                Step::Again => return Ok(true),
                Step::Job(job) => self.jobs.push(job),
                Step::Length => {
                    let length = self.framer.length();
                    let is_last = rewrite.is_nearly_done(length);
                    if is_last && is_committing {
                        return Ok(false);
                    }
                    rewrite.extend_to(length, is_last);
                    self.flush();
                }
                Step::Done => self.end_rewrite(),
                Step::Unreadable(at) => return Err(at),
            }
        }
        Ok(self.held.frame(&self.framer, &mut self.records))
    }

    /// The next segment takes the place of the present one.
    fn end_rewrite(&mut self) {
        let Some(rewrite) = self.rewrite.take() else {
            return;
        };
        let (number, path, framer) = rewrite.into_segment();
        let length = framer.length();
        self.jobs.push(DiskJob::Finish {
            file: FILE,
            rename: None,
        });
        self.jobs.push(DiskJob::Open {
            file: FILE,
            path: path.clone(),
            length,
        });
        self.segment = number;
        self.dead.end_rewrite();
        self.dead_keys = DeadKeys::default();
        self.allocated = 0;
        self.voids.clear();
        self.framer = framer;
        self.old.push(std::mem::replace(&mut self.path, path));
    }

    /// Hands the records to the disk.
    fn hand_over(&mut self, tag: u64) {
        if self.records.is_empty() {
            return;
        }
        self.jobs.push(DiskJob::Append {
            file: FILE,
            bytes: std::mem::take(&mut self.records),
            gzip: false,
            tag,
        });
        let has_all = !self.is_held();
        if let Some(departures) = &mut self.departures {
            departures.hand_over(has_all);
        }
        self.allocate();
    }

    /// Has space allocated for the records that follow, so that they do not wait for it.
    fn allocate(&mut self) {
        let length = self.framer.length();
        if length + ALLOCATED / 2 > self.allocated {
            self.allocated = length + ALLOCATED;
            self.jobs.push(DiskJob::Allocate {
                file: FILE,
                bytes: ALLOCATED,
            });
        }
    }
}
