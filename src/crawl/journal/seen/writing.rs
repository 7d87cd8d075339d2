//! Writes a run of the seen set, a bounded step at a time.

use std::path::PathBuf;

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::frontier::seen::run::Run;
use crate::state::record::RunRecord;
use crate::state::seen_runs::file::RunWriter;

/// A run that is being written.
#[derive(Debug)]
pub struct Writing {
    file: FileId,
    writer: RunWriter,
    stage: Stage,
    /// Jobs that are not done.
    under_way: usize,
    /// Bytes since the last sync.
    unsynced: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Keys are written; more may come.
    Keys,
    /// The last keys are written.
    LastKeys,
    Directory,
    Syncing,
    Done,
}

/// Most jobs under way: others of the disk come between them.
const UNDER_WAY_MAX: usize = 2;

/// So many bytes are synced at once: a longer sync would hold up the commits.
const SYNC_BYTES: usize = 8 << 20;

/// Tags of disk jobs.
const APPEND: u64 = 0;
const SYNC: u64 = 1;
const LAST_SYNC: u64 = 2;

impl Writing {
    /// Begins the run with this number, of this crawl.
    pub fn new(
        file: FileId,
        number: u64,
        crawl: u64,
        path: PathBuf,
        jobs: &mut Vec<DiskJob>,
    ) -> Self {
        let writer = RunWriter::new(number, crawl);
        let header = writer.identity().header();
        jobs.push(DiskJob::Create { file, path });
        let mut writing = Writing {
            file,
            writer,
            stage: Stage::Keys,
            under_way: 0,
            unsynced: 0,
        };
        writing.append(header, jobs);
        writing
    }

    /// The number of the run.
    pub fn number(&self) -> u64 {
        self.writer.identity().number()
    }

    /// Whether more keys are needed.
    pub fn wants_keys(&self) -> bool {
        self.stage == Stage::Keys && !self.writer.has_part()
    }

    /// Adds keys: ascending, and greater than those before.
    pub fn push(&mut self, keys: &[u64]) {
        self.writer.push(keys);
    }

    /// There are no more keys.
    pub fn end(&mut self) {
        self.stage = Stage::LastKeys;
    }

    /// Does a step of 1 to 2 ms at most; returns false if there is none to do now.
    pub fn step(&mut self, jobs: &mut Vec<DiskJob>) -> bool {
        if self.writer.build_filter() {
            return true;
        }
        if self.under_way >= UNDER_WAY_MAX {
            return false;
        }
        match self.stage {
            Stage::Keys if !self.writer.has_part() => return false,
            Stage::LastKeys if !self.writer.has_keys() => self.stage = Stage::Directory,
            Stage::Keys | Stage::LastKeys => {
                let part = self.writer.write_part();
                self.append(part, jobs);
            }
            Stage::Directory => match self.writer.write_directory() {
                Some(piece) => self.append(piece, jobs),
                None => {
                    self.stage = Stage::Syncing;
                    self.sync(LAST_SYNC, jobs);
                    let rename = None;
                    jobs.push(DiskJob::Finish {
                        file: self.file,
                        rename,
                    });
                }
            },
            Stage::Syncing | Stage::Done => return false,
        }
        true
    }

    /// The disk has finished a job of this file.
    pub fn handle_disk(&mut self, done: &DiskDone) {
        self.under_way = self.under_way.saturating_sub(1);
        if done.tag == LAST_SYNC && self.stage == Stage::Syncing {
            self.stage = Stage::Done;
        }
    }

    /// Whether the run is durable.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The run, which is durable.
    pub fn finish(self) -> (Run, RunRecord) {
        self.writer.finish()
    }

    fn append(&mut self, bytes: Vec<u8>, jobs: &mut Vec<DiskJob>) {
        self.under_way += 1;
        self.unsynced += bytes.len();
        jobs.push(DiskJob::Append {
            file: self.file,
            bytes,
            gzip: false,
            tag: APPEND,
        });
        if self.unsynced >= SYNC_BYTES {
            self.sync(SYNC, jobs);
        }
    }

    fn sync(&mut self, tag: u64, jobs: &mut Vec<DiskJob>) {
        self.under_way += 1;
        self.unsynced = 0;
        jobs.push(DiskJob::Sync {
            file: self.file,
            tag,
        });
    }
}
