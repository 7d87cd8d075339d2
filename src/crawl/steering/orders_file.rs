//! `orders.jsonl`: a line for each order that an operator gave. An order is acknowledged once its line is durable.

use std::path::PathBuf;

use serde_json::Value;

use crate::base::disk::{DiskDone, DiskJob, FileId};

/// The lines of orders on their way to the disk.
#[derive(Debug, Default)]
pub struct OrdersFile {
    path: Option<PathBuf>,
    /// Its length when the crawl began.
    length: u64,
    is_open: bool,
    /// Number of the last order of this run.
    last: u64,
    jobs: Vec<DiskJob>,
}

/// The line of an order is durable, or cannot be.
#[derive(Debug)]
pub struct Recorded {
    /// The order's number.
    pub number: u64,
    /// The system's error.
    pub error: Option<String>,
}

impl OrdersFile {
    /// The file of this path, which has this length; it is made if that is 0.
    pub fn new(path: PathBuf, length: u64) -> Self {
        OrdersFile {
            path: Some(path),
            length,
            ..OrdersFile::default()
        }
    }

    /// Records an order. Returns its number, for [`Recorded`]; `None` without a file.
    pub fn record(&mut self, line: &Value) -> Option<u64> {
        let path = self.path.as_ref()?;
        if !self.is_open {
            self.is_open = true;
            let path = path.clone();
            self.jobs.push(match self.length {
                0 => DiskJob::Create { file: FILE, path },
                length => DiskJob::Open {
                    file: FILE,
                    path,
                    length,
                },
            });
        }
        self.last += 1;
        let tag = self.last;
        let mut bytes = line.to_string().into_bytes();
        bytes.push(b'\n');
        self.jobs.push(DiskJob::Append {
            file: FILE,
            bytes,
            gzip: false,
            tag,
        });
        self.jobs.push(DiskJob::Sync { file: FILE, tag });
        Some(tag)
    }

    /// The jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        std::mem::take(&mut self.jobs)
    }

    /// Called with a finished job: whether it is one of this file's, and what it recorded.
    pub fn handle_disk(&mut self, done: &DiskDone) -> Option<Option<Recorded>> {
        if done.file != Some(FILE) {
            return None;
        }
        let error = done.result.as_ref().err().map(ToString::to_string);
        if let Some(error) = &error {
            log::error!("cannot write orders.jsonl: {error}");
        }
        // Appends are followed by a sync with their number, which fails as well if they did.
        let is_sync = done.held == 0 && done.tag > 0;
        let number = done.tag;
        Some((error.is_some() || is_sync).then_some(Recorded { number, error }))
    }
}

/// Its file.
const FILE: FileId = FileId(13);
