//! `runs.jsonl`: when each run of a crawl began and ended, and by which settings it was paced.

use std::path::PathBuf;

use serde_json::Value;

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::base::time::Wall;
use crate::crawl::line_file::LineFile;

/// The log of this run, and what is known of the run before.
#[derive(Debug)]
pub struct RunLog {
    file: LineFile,
    is_on: bool,
    /// This run continues an earlier one.
    pub is_resumed: bool,
    /// When the last commit of the earlier run was recorded.
    pub committed: Option<Wall>,
}

/// Its file.
const FILE: FileId = FileId(14);

impl Default for RunLog {
    fn default() -> Self {
        RunLog {
            file: LineFile::none(FILE),
            is_on: false,
            is_resumed: false,
            committed: None,
        }
    }
}

impl RunLog {
    /// Logs to this file from now on, which has this length.
    pub fn start(&mut self, path: PathBuf, length: u64) {
        self.file = LineFile::new(FILE, path, length);
        self.is_on = true;
    }

    /// Whether there is a log.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds a line.
    pub fn add(&mut self, line: &Value) {
        self.file.record(line);
    }

    /// Whether all lines are durable, or cannot be.
    pub fn is_done(&self) -> bool {
        self.file.is_done()
    }

    /// The jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        self.file.poll_jobs()
    }

    /// The disk has finished a job; returns whether it was one of these.
    pub fn handle_disk(&mut self, done: &DiskDone) -> bool {
        self.file.handle_disk(done).is_some()
    }
}
