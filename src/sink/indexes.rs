//! The indexes of closed WARC files that are being made.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;

use crate::base::derive::BrokenOff;
use crate::base::disk::{DiskJob, FileId};
use crate::sink::cdxj::{DeriveIndex, index_path};

/// Which indexes are being made. One that cannot be made is a warning: it costs no result.
#[derive(Debug)]
pub(super) struct Indexes {
    /// Id of the next one.
    next: FileId,
    /// The WARC file of each.
    making: BTreeMap<FileId, PathBuf>,
    /// Files of earlier runs that have none.
    older: VecDeque<PathBuf>,
    /// The index of one of these.
    making_older: Option<FileId>,
    /// How many of these the end of the crawl waits for: there may be thousands.
    awaited: usize,
}

/// Files of earlier runs, the newest, whose indexes the end of a crawl waits for. A run that was killed leaves a few.
const AWAITED_MAX: usize = 8;

impl Indexes {
    /// None yet. Ids from this one on are theirs.
    pub(super) fn new(files_from: FileId) -> Self {
        Indexes {
            next: files_from,
            making: BTreeMap::new(),
            older: VecDeque::new(),
            making_older: None,
            awaited: 0,
        }
    }

    /// Makes the indexes of files of earlier runs, the last first, one after the other, while no others are being made.
    pub(super) fn make_older(&mut self, warcs: Vec<PathBuf>, disk: &mut Vec<DiskJob>) {
        self.older.extend(warcs.into_iter().rev());
        self.awaited = self.older.len().min(AWAITED_MAX);
        self.make_next_older(disk);
    }

    fn make_next_older(&mut self, disk: &mut Vec<DiskJob>) {
        if !self.making.is_empty() {
            return;
        }
        if let Some(warc) = self.older.pop_front() {
            self.making_older = self.make(warc, disk);
        }
    }

    /// Makes the index of a WARC file that has its final name; returns its id.
    pub(super) fn make(&mut self, warc: PathBuf, disk: &mut Vec<DiskJob>) -> Option<FileId> {
        let name = warc.file_name().and_then(|name| name.to_str());
        let (name, to) = (name?, index_path(&warc)?);
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
        Some(file)
    }

    /// Handles the end of a job, if it is one of these; returns whether it is.
    pub(super) fn handle_done<T>(
        &mut self,
        file: FileId,
        result: &io::Result<T>,
        disk: &mut Vec<DiskJob>,
    ) -> bool {
        let Some(warc) = self.making.remove(&file) else {
            return false;
        };
        if let Err(error) = result {
            log::warn!(
                "{} has no index: {error}; make it with `argiope cdxj {0}`, or resume the crawl",
                warc.display()
            );
        }
        if self.making_older.take_if(|older| *older == file).is_some() {
            self.awaited = self.awaited.saturating_sub(1);
        }
        if matches!(result, Err(error) if BrokenOff::is(error)) {
            // So would the others be.
            self.older.clear();
            self.awaited = 0;
        }
        self.make_next_older(disk);
        true
    }

    /// Whether the end of the crawl waits for none.
    pub(super) fn is_done(&self) -> bool {
        let older = self.making_older;
        self.awaited == 0 && self.making.keys().all(|file| Some(*file) == older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(jobs: &mut Vec<DiskJob>) -> Vec<(FileId, String)> {
        let made = jobs.drain(..).map(|job| match job {
            DiskJob::Derive { file, from, .. } => (file, from.display().to_string()),
            other => panic!("{other:?} is no index"),
        });
        made.collect()
    }

    #[test]
    fn indexes_of_earlier_runs_are_made_one_by_one_and_the_end_waits_for_the_last_eight() {
        let (mut indexes, mut jobs) = (Indexes::new(FileId(1)), Vec::new());
        let older = (0..20).map(|number| PathBuf::from(format!("{number}.warc.gz")));
        indexes.make_older(older.collect(), &mut jobs);
        for number in (0..20).rev() {
            assert_eq!(indexes.is_done(), number < 12, "{number}");
            let made = made(&mut jobs);
            assert_eq!(made.len(), 1);
            assert_eq!(made[0].1, format!("{number}.warc.gz"));
            assert!(indexes.handle_done(made[0].0, &Ok(()), &mut jobs));
        }
        assert!(made(&mut jobs).is_empty());
        indexes.make("own.warc.gz".into(), &mut jobs);
        assert!(!indexes.is_done(), "the end waits for its own");
    }

    #[test]
    fn after_one_is_broken_off_no_older_one_is_begun() {
        let (mut indexes, mut jobs) = (Indexes::new(FileId(1)), Vec::new());
        let older = ["1.warc.gz", "2.warc.gz", "3.warc.gz"].map(PathBuf::from);
        indexes.make_older(older.to_vec(), &mut jobs);
        let damaged: io::Result<()> = Err(io::ErrorKind::InvalidData.into());
        let first = made(&mut jobs)[0].0;
        indexes.handle_done(first, &damaged, &mut jobs);
        assert!(!indexes.is_done());
        let second = made(&mut jobs)[0].0;
        let broken_off: io::Result<()> = Err(BrokenOff::error("an index"));
        indexes.handle_done(second, &broken_off, &mut jobs);
        assert!(indexes.is_done() && made(&mut jobs).is_empty());
    }
    #[test]
    fn after_a_file_system_that_timed_out_the_next_older_one_is_made() {
        let (mut indexes, mut jobs) = (Indexes::new(FileId(1)), Vec::new());
        let older = ["1.warc.gz", "2.warc.gz"].map(PathBuf::from);
        indexes.make_older(older.to_vec(), &mut jobs);
        let timed_out: io::Result<()> = Err(io::ErrorKind::TimedOut.into());
        let first = made(&mut jobs)[0].0;
        indexes.handle_done(first, &timed_out, &mut jobs);
        assert_eq!(made(&mut jobs).len(), 1);
        assert!(!indexes.is_done());
    }
}
