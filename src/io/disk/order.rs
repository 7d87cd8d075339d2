//! Which jobs of the disk wait for which: reads pass all others that do not concern their bytes.
//!
//! Jobs that change files are numbered and done in order. A read waits for the last job before it that writes
//! to its bytes, or that names or removes its file. A job that names or removes a file waits for the reads of
//! it that were queued before.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use crate::base::disk::{DiskJob, FileId};

/// The jobs whose order matters to later reads.
#[derive(Debug, Default)]
pub(in crate::io) struct Order {
    /// Number of jobs so far that change files.
    number: u64,
    open: BTreeMap<FileId, Open>,
    changes: BTreeMap<PathBuf, Changes>,
}

/// When a job may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Place {
    /// After the jobs with lower numbers.
    InOrder(u64),
    /// After the job with this number; 0: at once.
    After(u64),
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    /// Where the next bytes go; a lower bound once bytes were compressed.
    end: u64,
}

/// Jobs that concern a path and may not be done yet.
#[derive(Debug, Default)]
struct Changes {
    /// The last one that concerns all of its bytes.
    whole: u64,
    /// Appends since then: number, and offset of the first byte.
    appends: VecDeque<(u64, u64)>,
}

impl Order {
    /// Adds a job. Jobs with numbers up to `done` are done.
    pub(in crate::io) fn add(&mut self, job: &DiskJob, done: u64) -> Place {
        if let DiskJob::Read {
            path,
            offset,
            bytes,
            ..
        } = job
        {
            let end = offset.saturating_add(bytes.len() as u64);
            let changes = self.changes.get(path);
            return Place::After(changes.map_or(0, |changes| changes.before(end)));
        }
        if let DiskJob::Derive { .. } = job {
            // Both of its files have no other jobs.
            return Place::After(0);
        }
        self.number += 1;
        self.forget(done);
        match job {
            DiskJob::Create { file, path } => self.open(*file, path, 0),
            DiskJob::Open { file, path, length } => self.open(*file, path, *length),
            DiskJob::Append {
                file, bytes, gzip, ..
            } => self.append(*file, bytes.len() as u64, *gzip),
            DiskJob::AppendCompressed { file, bytes, .. } => {
                self.append(*file, bytes.len() as u64, true);
            }
            DiskJob::Finish { file, rename } => {
                let open = self.open.remove(file);
                if let (Some(open), Some(to)) = (open, rename) {
                    self.change(&open.path);
                    self.change(to);
                }
            }
            DiskJob::Replace { path, .. } | DiskJob::Remove { path, .. } => self.change(path),
            DiskJob::Stdout { .. }
            | DiskJob::Allocate { .. }
            | DiskJob::Sync { .. }
            | DiskJob::Derive { .. }
            | DiskJob::Read { .. } => {}
        }
        Place::InOrder(self.number)
    }

    /// The number of the next job that changes files.
    pub(in crate::io) fn next(&self) -> u64 {
        self.number + 1
    }

    fn open(&mut self, file: FileId, path: &Path, end: u64) {
        self.change(path);
        let path = path.to_owned();
        self.open.insert(file, Open { path, end });
    }

    fn append(&mut self, file: FileId, length: u64, is_compressed: bool) {
        let Some(open) = self.open.get_mut(&file) else {
            return;
        };
        let start = open.end;
        if !is_compressed {
            open.end += length;
        }
        let append = (self.number, start);
        match self.changes.get_mut(&open.path) {
            Some(changes) => changes.appends.push_back(append),
            None => {
                let appends = VecDeque::from([append]);
                let changes = Changes { whole: 0, appends };
                self.changes.insert(open.path.clone(), changes);
            }
        }
    }

    fn change(&mut self, path: &Path) {
        let changes = self.changes.entry(path.to_owned()).or_default();
        changes.whole = self.number;
        changes.appends.clear();
    }

    /// Forgets what is done, once per some jobs.
    fn forget(&mut self, done: u64) {
        if !self.number.is_multiple_of(FORGET_EVERY) {
            return;
        }
        self.changes.retain(|_, changes| {
            let is_done = |(number, _): &(u64, u64)| *number <= done;
            while changes.appends.front().is_some_and(is_done) {
                changes.appends.pop_front();
            }
            changes.whole > done || !changes.appends.is_empty()
        });
    }
}

impl Changes {
    /// The last job that concerns bytes before this offset.
    fn before(&self, end: u64) -> u64 {
        let mut appends = self.appends.iter().rev();
        let append = appends.find(|(_, start)| *start < end);
        append.map_or(self.whole, |(number, _)| *number)
    }
}

/// The paths that a job names or removes: it waits for earlier reads of them.
pub(in crate::io) fn renamed_by(job: &DiskJob) -> Renamed<'_> {
    match job {
        DiskJob::Replace { path, .. } | DiskJob::Remove { path, .. } => Renamed::Path(path),
        DiskJob::Finish {
            rename: Some(_), ..
        } => Renamed::Open,
        _ => Renamed::None,
    }
}

/// Whose earlier reads a job waits for.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) enum Renamed<'a> {
    /// No file's.
    None,
    /// This file's.
    Path(&'a Path),
    /// All files': it renames the open one, perhaps over another.
    Open,
}

impl Renamed<'_> {
    /// Whether a read of this path comes before the job.
    pub(in crate::io) fn concerns(self, path: &Path) -> bool {
        match self {
            Renamed::None => false,
            Renamed::Path(renamed) => renamed == path,
            Renamed::Open => true,
        }
    }
}

/// Jobs after which those that are done are forgotten.
const FORGET_EVERY: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn append(file: u32, length: usize) -> DiskJob {
        DiskJob::Append {
            file: FileId(file),
            bytes: vec![0; length],
            gzip: false,
            tag: 0,
        }
    }

    fn read(path: &str, offset: u64, length: usize) -> DiskJob {
        DiskJob::Read {
            file: FileId(9),
            path: path.into(),
            offset,
            bytes: vec![0; length],
            tag: 0,
        }
    }

    #[test]
    fn a_read_waits_for_the_last_job_that_concerns_its_bytes() {
        let mut order = Order::default();
        let create = |file, path: &str| DiskJob::Create {
            file: FileId(file),
            path: path.into(),
        };
        let jobs = [
            create(1, "a"),
            append(1, 10),
            create(2, "b"),
            append(1, 10),
            DiskJob::Sync {
                file: FileId(1),
                tag: 0,
            },
        ];
        for (number, job) in (1..).zip(&jobs) {
            assert_eq!(order.add(job, 0), Place::InOrder(number));
        }
        let check = |order: &mut Order, job: DiskJob, after: u64| {
            assert_eq!(order.add(&job, 0), Place::After(after), "{job:?}");
        };
        check(&mut order, read("a", 0, 10), 2);
        check(&mut order, read("a", 3, 8), 4);
        check(&mut order, read("a", 10, 1), 4);
        check(&mut order, read("a", u64::MAX, 1), 4);
        check(&mut order, read("b", 0, 1), 3);
        check(&mut order, read("c", 0, 1), 0);
        let renamed = DiskJob::Finish {
            file: FileId(1),
            rename: Some("c".into()),
        };
        assert_eq!(order.add(&renamed, 0), Place::InOrder(6));
        let removed = DiskJob::Remove {
            file: FileId(9),
            path: "b".into(),
            tag: 0,
        };
        assert_eq!(order.add(&removed, 0), Place::InOrder(7));
        check(&mut order, read("a", 0, 1), 6);
        check(&mut order, read("b", 0, 1), 7);
        check(&mut order, read("c", 0, 1), 6);
    }

    #[test]
    fn what_is_done_is_forgotten() {
        let mut order = Order::default();
        for number in 0..1_000 {
            let path = PathBuf::from(format!("{number}"));
            let file = FileId(number);
            order.add(&DiskJob::Create { file, path }, order.number);
            order.add(&append(number, 1), order.number);
            order.add(&DiskJob::Finish { file, rename: None }, order.number);
        }
        assert!(order.open.is_empty());
        assert!(order.changes.len() < 64, "{}", order.changes.len());
    }
}
