//! `stats.json`: replaced every few seconds, and once more at the end.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::Instant;

/// Path of the statistics, and the replacements that the disk has not finished.
pub struct StatsFile {
    path: Option<PathBuf>,
    /// Called before each replacement: whether the file is still ours.
    may_write: Option<Box<dyn Fn() -> bool + Send>>,
    written: Instant,
    under_way: usize,
}

/// Interval between replacements.
const EVERY: Duration = Duration::from_secs(3);
/// The tag of its disk jobs, which belong to no open file.
const TAG: u64 = u64::MAX;

impl StatsFile {
    /// The file of this path, or none. `may_write` is called before each replacement.
    pub fn new(
        path: Option<PathBuf>,
        may_write: Option<Box<dyn Fn() -> bool + Send>>,
        now: Instant,
    ) -> Self {
        StatsFile {
            path,
            may_write,
            written: now,
            under_way: 0,
        }
    }

    /// Whether there is such a file.
    pub fn is_written(&self) -> bool {
        self.path.is_some()
    }

    /// Whether the next replacement is due.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_since(self.written) >= EVERY
    }

    /// Begins a replacement; returns whether the file may be written. If so, [`StatsFile::replace`]
    /// follows: creating the text takes long enough to check first.
    pub fn begin(&mut self, now: Instant) -> bool {
        self.written = now;
        self.path.is_some() && self.may_write.as_ref().is_none_or(|may| may())
    }

    /// The job that replaces the file by this text.
    pub fn replace(&mut self, bytes: Vec<u8>) -> Option<DiskJob> {
        let path = self.path.clone()?;
        self.under_way += 1;
        Some(DiskJob::Replace {
            path,
            bytes,
            tag: TAG,
        })
    }

    /// The disk has finished a job; returns whether it was one of these.
    pub fn handle_disk(&mut self, done: &DiskDone) -> bool {
        if done.file.is_some() || done.tag != TAG {
            return false;
        }
        self.under_way -= 1;
        if let Err(error) = &done.result {
            log::warn!("cannot write stats.json: {error}");
        }
        true
    }

    /// Whether no replacement is under way.
    pub fn is_done(&self) -> bool {
        self.under_way == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_file_that_may_not_be_written_is_checked_again_after_the_interval() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let may_write = Box::new(move || count.fetch_add(1, Ordering::Relaxed) > 0);
        let start = Instant::START;
        let mut file = StatsFile::new(Some("stats.json".into()), Some(may_write), start);
        let due = start + EVERY;
        assert!(file.is_due(due) && !file.begin(due));
        assert!(!file.is_due(due) && file.is_done());
        assert!(file.is_due(due + EVERY) && file.begin(due + EVERY));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert!(file.replace(b"{}".to_vec()).is_some() && !file.is_done());
    }

    #[test]
    fn a_file_without_a_path_is_never_begun() {
        let mut file = StatsFile::new(None, None, Instant::START);
        assert!(!file.begin(Instant::START));
    }
}
