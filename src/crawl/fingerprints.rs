//! The seen set of a crawl with its runs on disk, and nothing else: for measurements.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::disk::DiskJob;
use crate::base::keys::UrlKey;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::crawl::journal::seen::{SeenRuns, SeenStart};
use crate::frontier::seen::{Seen, SeenAnswer};
use crate::io::{Epoll, Event, Io, IoSettings};

/// A seen set, its runs and the disk that they are on.
#[derive(Debug)]
pub struct Fingerprints {
    seen: Seen,
    runs: SeenRuns,
    io: Epoll,
    events: Vec<Event>,
    /// Jobs that the disk has not done.
    under_way: usize,
    /// The number of the last batch, when it began, and its keys.
    batch: Option<(u64, Instant, usize)>,
    longest_batch: (Duration, usize),
}

impl Fingerprints {
    /// An empty set with runs in the folder `state` of an output directory. Keys in memory take at most
    /// `memory_max` bytes.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(out: PathBuf, memory_max: u64) -> io::Result<Self> {
        let mut seen = Seen::new(&Secret::random());
        seen.set_memory_max(memory_max);
        Ok(Fingerprints {
            seen,
            runs: SeenRuns::new(SeenStart::default(), out, 1),
            io: Epoll::new(IoSettings::default())?,
            events: Vec::new(),
            under_way: 0,
            batch: None,
            longest_batch: Default::default(),
        })
    }

    /// Offers a key: whether it is new. `None`: the answer comes later.
    pub fn offer(&mut self, key: u64) -> Option<bool> {
        match self.seen.ask(UrlKey(key), Instant::START) {
            SeenAnswer::New => Some(true),
            SeenAnswer::Seen => Some(false),
            SeenAnswer::Later => None,
        }
    }

    /// A later answer: the key, and whether it is new.
    pub fn poll_answer(&mut self) -> Option<(u64, bool)> {
        let (UrlKey(key), is_new) = self.seen.poll_answer(Instant::START)?;
        Some((key, is_new))
    }

    /// Takes a turn, as that of a crawl. `waits`: until the disk has done something, if there is nothing else
    /// to do. Returns whether there is more to do.
    ///
    /// # Errors
    /// A run cannot be read or written.
    pub fn turn(&mut self, waits: bool) -> io::Result<bool> {
        let advance = self.runs.advance(&mut self.seen, true);
        self.measure_batch();
        if advance.change.is_some() {
            self.runs.begin_commit();
            self.runs.handle_committed();
        }
        for job in self.runs.poll_jobs() {
            // All others of a run report failures alone.
            let is_reported = matches!(
                job,
                DiskJob::Append { .. }
                    | DiskJob::Sync { .. }
                    | DiskJob::Read { .. }
                    | DiskJob::Remove { .. }
            );
            self.under_way += usize::from(is_reported);
            self.io.disk(job);
        }
        self.io.submit();
        let sleeps = waits && !advance.has_step && self.under_way > 0;
        let until = if sleeps { None } else { Some(Instant::START) };
        self.io.wait(until, &mut self.events);
        for event in self.events.drain(..) {
            if let Event::Disk(done) = event {
                self.under_way = self.under_way.saturating_sub(1);
                self.runs.handle_disk(&done);
            }
        }
        match self.runs.failure() {
            Some(failure) => Err(io::Error::other(failure.to_string())),
            None => Ok(advance.has_step || self.under_way > 0),
        }
    }

    fn measure_batch(&mut self) {
        let current = self.runs.batch();
        if self.batch.map(|(number, ..)| number) == current.map(|(number, _)| number) {
            return;
        }
        let now = self.io.now();
        if let Some((_, began, keys)) = self.batch {
            let took = now.saturating_since(began);
            self.longest_batch = self.longest_batch.max((took, keys));
        }
        self.batch = current.map(|(number, keys)| (number, now, keys));
    }

    /// How long the longest batch of checks took, and its number of keys.
    pub fn longest_batch(&self) -> (Duration, usize) {
        self.longest_batch
    }

    /// The runs: how many, their keys, and their bytes on disk.
    pub fn on_disk(&self) -> (usize, u64, u64) {
        let records = self.runs.current().records;
        let keys = records.iter().map(|record| record.keys).sum();
        let bytes = records.iter().map(|record| record.length).sum();
        (records.len(), keys, bytes)
    }
}
