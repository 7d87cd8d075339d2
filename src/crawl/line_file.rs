//! A file to which lines of JSON are appended, each durable as soon as the disk can: `orders.jsonl`, `runs.jsonl`.

use std::path::PathBuf;

use serde_json::Value;

use crate::base::disk::{DiskDone, DiskJob, FileId};

/// The lines of a file on their way to the disk.
#[derive(Debug)]
pub struct LineFile {
    file: FileId,
    path: Option<PathBuf>,
    /// Its length when the crawl began.
    length: u64,
    is_open: bool,
    /// Number of the last line of this run.
    last: u64,
    /// Number of the last line that is to be synced.
    synced: u64,
    /// Number of the last line that is durable, or cannot be.
    settled: u64,
    jobs: Vec<DiskJob>,
}

/// Lines are durable, or cannot be.
#[derive(Debug)]
pub struct Recorded {
    /// The number of the last of them.
    pub number: u64,
    /// The system's error.
    pub error: Option<String>,
}

impl LineFile {
    /// No file: lines are dropped.
    pub fn none(file: FileId) -> Self {
        LineFile {
            file,
            path: None,
            length: 0,
            is_open: false,
            last: 0,
            synced: 0,
            settled: 0,
            jobs: Vec::new(),
        }
    }

    /// The file of this path, which has this length; it is made if that is 0.
    pub fn new(file: FileId, path: PathBuf, length: u64) -> Self {
        LineFile {
            path: Some(path),
            length,
            ..LineFile::none(file)
        }
    }

    /// Records a line. Returns its number, for [`Recorded`]; `None` without a file.
    pub fn record(&mut self, line: &Value) -> Option<u64> {
        let path = self.path.as_ref()?;
        let file = self.file;
        if !self.is_open {
            self.is_open = true;
            let path = path.clone();
            self.jobs.push(match self.length {
                0 => DiskJob::Create { file, path },
                length => DiskJob::Open { file, path, length },
            });
        }
        self.last += 1;
        let tag = self.last;
        let mut bytes = line.to_string().into_bytes();
        bytes.push(b'\n');
        self.jobs.push(DiskJob::Append {
            file,
            bytes,
            gzip: false,
            tag,
        });
        Some(tag)
    }

    /// Whether all lines are durable, or cannot be.
    pub fn is_done(&self) -> bool {
        self.settled == self.last
    }

    /// The jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        if self.synced < self.last {
            self.synced = self.last;
            let (file, tag) = (self.file, self.last);
            self.jobs.push(DiskJob::Sync { file, tag });
        }
        std::mem::take(&mut self.jobs)
    }

    /// Called with a finished job: whether it is one of this file's, and what it recorded.
    pub fn handle_disk(&mut self, done: &DiskDone) -> Option<Option<Recorded>> {
        if done.file != Some(self.file) {
            return None;
        }
        let error = done.result.as_ref().err().map(ToString::to_string);
        if let (Some(error), Some(path)) = (&error, &self.path) {
            let name = path.file_name().unwrap_or_default();
            log::error!("cannot write {}: {error}", name.display());
        }
        // Appends are followed by a sync, which fails as well if they did.
        let is_sync = done.held == 0 && done.tag > 0;
        let number = done.tag;
        if is_sync {
            self.settled = self.settled.max(number);
        }
        Some((error.is_some() || is_sync).then_some(Recorded { number, error }))
    }
}
