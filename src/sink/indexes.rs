//! The indexes of closed WARC files that are being made.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::base::disk::{DiskJob, FileId};
use crate::sink::cdxj::{DeriveIndex, index_path};

/// Which indexes are being made. One that cannot be made is a warning: it costs no result.
#[derive(Debug)]
pub(super) struct Indexes {
    /// Id of the next one.
    next: FileId,
    /// The WARC file of each.
    making: BTreeMap<FileId, PathBuf>,
}

impl Indexes {
    /// None yet. Ids from this one on are theirs.
    pub(super) fn new(files_from: FileId) -> Self {
        Indexes {
            next: files_from,
            making: BTreeMap::new(),
        }
    }

    /// Makes the index of a WARC file that has its final name.
    pub(super) fn make(&mut self, warc: PathBuf, disk: &mut Vec<DiskJob>) {
        let name = warc.file_name().and_then(|name| name.to_str());
        let (Some(name), Some(to)) = (name, index_path(&warc)) else {
            return;
        };
        let file = self.next;
        self.next.0 += 1;
        disk.push(DiskJob::Derive {
            file,
            from: warc.clone(),
            to,
            derive: Box::new(DeriveIndex::new(name)),
            tag: 0,
        });
        self.making.insert(file, warc);
    }

    /// Handles the end of a job, if it is one of these; returns whether it is.
    pub(super) fn handle_done<T>(&mut self, file: FileId, result: &io::Result<T>) -> bool {
        let Some(warc) = self.making.remove(&file) else {
            return false;
        };
        if let Err(error) = result {
            log::warn!(
                "{} has no index: {error}; make it with `argiope cdxj {0}`, or resume the crawl",
                warc.display()
            );
        }
        true
    }

    /// Whether none is being made.
    pub(super) fn is_done(&self) -> bool {
        self.making.is_empty()
    }
}
