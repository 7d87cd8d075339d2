//! The next segment of a journal, which has only what is left of the present one. It is written while the
//! crawl goes on, and then takes its place.
//!
//! ```text
//! Reading ──► Writing ──► Copying what was recorded meanwhile ──► Held ──► Done
//! ```
//!
//! While it is held the journal hands nothing to the disk: the new segment is completed, synced and named.
//! Until it has its name, only the present segment counts.

use std::path::{Path, PathBuf};

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::sink::directory::UNFINISHED;
use crate::state::compaction::{Compaction, Counted, Unreadable};
use crate::state::journal::Framer;

/// The rewriting of a segment.
#[derive(Debug)]
pub struct Rewrite {
    compaction: Compaction,
    stage: Stage,
    /// The segment that is read.
    from: PathBuf,
    /// It is read up to here in this stage.
    until: u64,
    /// The new segment, and its name while it is written.
    to: PathBuf,
    unfinished: PathBuf,
    /// Its number.
    number: u64,
    /// Whether a job is under way that the next step waits for.
    is_waiting: bool,
    /// Bytes of the new segment that are not handed to the disk yet.
    out: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Writing,
    Copying,
    Held,
    /// It is synced.
    Naming,
    /// It gets its name.
    Done,
}

/// What a rewriting needs next.
#[derive(Debug)]
pub enum Step {
    /// Nothing: a job is under way.
    Wait,
    /// Another step: this one has taken as long as one may in a turn.
    Again,
    /// A job of the disk; others may follow.
    Job(DiskJob),
    /// It has read all that it knew of: [`Rewrite::extend_to`] tells it of more.
    Length,
    /// The new segment is complete.
    Done,
    /// The present segment cannot be read.
    Unreadable(Unreadable),
}

/// The present segment among the files of the disk. Those of the sink have greater numbers.
pub const FILE: FileId = FileId(0);

/// The new segment among the files of the disk.
const NEXT: FileId = FileId(2);

/// Tags of disk jobs.
const WRITE: u64 = 20;
const READ: u64 = 21;
const SYNC: u64 = 22;
const REMOVE: u64 = 23;

/// Bytes that are read, or written, by one job: some thousand records.
const PIECE: usize = 64 << 10;

impl Rewrite {
    /// Of a segment of this length into the one that follows it.
    pub fn new(
        crawl: u64,
        from: (u64, &Path, u64),
        counted: Counted<'_>,
        to: (u64, PathBuf),
    ) -> (Self, Vec<DiskJob>) {
        let (from_number, from_path, until) = from;
        let (number, to) = to;
        let rewrite = Rewrite {
            compaction: Compaction::new(crawl, from_number, number, counted),
            stage: Stage::Reading,
            from: from_path.to_owned(),
            until,
            unfinished: unfinished_of(to.clone()),
            to,
            number,
            // For its header.
            is_waiting: true,
            out: Vec::new(),
        };
        let create = DiskJob::Create {
            file: NEXT,
            path: rewrite.unfinished.clone(),
        };
        // Some half of the records are left. What it does not need is free again once it has its name.
        let allocate = DiskJob::Allocate {
            file: NEXT,
            bytes: until / 2,
        };
        let header = append(rewrite.compaction.header());
        (rewrite, vec![create, allocate, header])
    }

    /// Whether nothing may be handed to the disk.
    pub fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Naming | Stage::Done)
    }

    /// Whether it only waits for records to be handed over, few enough to hold the journal meanwhile.
    pub fn is_nearly_done(&self, length: u64) -> bool {
        self.stage == Stage::Copying
            && !self.is_waiting
            && self.compaction.position() == self.until
            && length - self.until <= PIECE as u64
    }

    /// The present segment has this length; `is_last`: it stays so.
    pub fn extend_to(&mut self, length: u64, is_last: bool) {
        self.until = length;
        if is_last {
            self.stage = Stage::Held;
        }
    }

    /// The next step, of a millisecond at most.
    pub fn poll(&mut self) -> Step {
        if self.is_waiting {
            return Step::Wait;
        }
        match self.compaction.step(&mut self.out) {
            Ok(false) => {}
            Ok(true) => return Step::Again,
            Err(error) => return Step::Unreadable(error),
        }
        if !self.out.is_empty() && self.stage != Stage::Writing {
            return self.write();
        }
        let position = self.compaction.position();
        match self.stage {
            Stage::Reading | Stage::Copying | Stage::Held if position < self.until => {
                let length = (self.until - position).min(PIECE as u64);
                self.is_waiting = true;
                // In order with what is appended to it.
                Step::Job(DiskJob::Read {
                    file: FILE,
                    path: self.from.clone(),
                    offset: position,
                    bytes: vec![0; length as usize],
                    tag: READ,
                })
            }
            Stage::Reading => {
                if let Err(error) = self.compaction.end_reading() {
                    return Step::Unreadable(error);
                }
                self.stage = Stage::Writing;
                self.poll()
            }
            Stage::Writing => {
                let is_whole = self.compaction.write(PIECE, &mut self.out);
                if is_whole {
                    self.stage = Stage::Copying;
                }
                match is_whole && self.out.is_empty() {
                    true => self.poll(),
                    false if is_whole || self.out.len() >= PIECE => self.write(),
                    false => Step::Again,
                }
            }
            Stage::Copying => Step::Length,
            Stage::Held => {
                self.stage = Stage::Naming;
                self.is_waiting = true;
                Step::Job(DiskJob::Sync {
                    file: NEXT,
                    tag: SYNC,
                })
            }
            Stage::Naming => {
                self.stage = Stage::Done;
                self.is_waiting = true;
                Step::Job(DiskJob::Finish {
                    file: NEXT,
                    rename: Some(self.to.clone()),
                })
            }
            Stage::Done => Step::Done,
        }
    }

    /// A job is done, without an error.
    pub fn handle_disk(&mut self, done: &DiskDone) {
        self.is_waiting = false;
        if done.tag == READ {
            self.compaction.take(&done.read);
        }
    }

    /// Whether a job of the disk is one of these.
    pub fn has(done: &DiskDone) -> bool {
        done.file == Some(NEXT) || done.file == Some(FILE) && done.tag == READ
    }

    /// The new segment: its number, its path, and the framer that goes on with it.
    pub fn into_segment(self) -> (u64, PathBuf, Framer) {
        (self.number, self.to, self.compaction.into_framer())
    }

    /// Jobs that remove what was written: the present segment stays. It must not be [held](Rewrite::is_held).
    pub fn abandon(self) -> [DiskJob; 2] {
        let close = DiskJob::Finish {
            file: NEXT,
            rename: None,
        };
        let remove = DiskJob::Remove {
            file: NEXT,
            path: self.unfinished,
            tag: REMOVE,
        };
        [close, remove]
    }

    fn write(&mut self) -> Step {
        self.is_waiting = true;
        Step::Job(append(std::mem::take(&mut self.out)))
    }
}

/// The path of a segment that is not complete.
pub fn unfinished_of(path: PathBuf) -> PathBuf {
    let mut path = path.into_os_string();
    path.push(UNFINISHED);
    path.into()
}

fn append(bytes: Vec<u8>) -> DiskJob {
    DiskJob::Append {
        file: NEXT,
        bytes,
        gzip: false,
        tag: WRITE,
    }
}
