//! The simulated disk: files in memory, written in order, with latency and limited space.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Faults, FullDisk};
use crate::base::disk::{DiskJob, FileId, Written};
use crate::base::rng::Rng;
use crate::base::time::{Instant, nanos};
use crate::io::Event;
use crate::io::disk::{
    Gzip, RETRY_INTERVAL, check_reserve, is_silent, usual_reserve, waits_for_space,
};

#[derive(Debug)]
pub(super) struct Disk {
    rng: Rng,
    latency_max: Duration,
    space: u64,
    /// What remains free of it.
    free_min: u64,
    full: Vec<FullDisk>,
    /// The job for which there is no space, and those behind it.
    waiting: VecDeque<DiskJob>,
    /// Whether jobs fail instead of waiting for space.
    given_up: bool,
    /// When the last queued job is done; the next one begins then.
    busy_until: Instant,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// How much of each file survives a crash.
    synced: BTreeMap<PathBuf, usize>,
    open: BTreeMap<FileId, Target>,
    stdout: Vec<u8>,
    gzip: Gzip,
}

#[derive(Clone, Debug)]
enum Target {
    Path(PathBuf),
    Stdout,
}

impl Disk {
    pub(super) fn new(rng: Rng, faults: &Faults, free_min: Option<u64>) -> Self {
        Disk {
            rng,
            latency_max: faults.disk_latency_max,
            space: faults.disk_room,
            free_min: free_min.unwrap_or_else(|| usual_reserve(faults.disk_room)),
            full: faults.disk_full.clone(),
            waiting: VecDeque::new(),
            given_up: false,
            busy_until: Instant::START,
            files: BTreeMap::new(),
            synced: BTreeMap::new(),
            open: BTreeMap::new(),
            stdout: Vec::new(),
            gzip: Gzip::default(),
        }
    }

    pub(super) fn files(&self) -> &BTreeMap<PathBuf, Vec<u8>> {
        &self.files
    }

    #[cfg(test)]
    pub(super) fn synced(&self) -> &BTreeMap<PathBuf, usize> {
        &self.synced
    }

    pub(super) fn stdout(&self) -> &[u8] {
        &self.stdout
    }

    /// When a job that is queued now will be done.
    pub(super) fn done_at(&mut self, now: Instant) -> Instant {
        let latency = Duration::from_nanos(self.rng.below(nanos(self.latency_max) + 1));
        self.busy_until = self.busy_until.max(now) + latency;
        self.busy_until
    }

    /// Does a job, or queues it behind those that wait for space. Returns when to retry these, if at
    /// all.
    pub(super) fn handle_job(
        &mut self,
        job: DiskJob,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Option<Instant> {
        let waits = !self.waiting.is_empty();
        self.waiting.push_back(job);
        match waits {
            true => None,
            false => self.run(false, now, events),
        }
    }

    /// Retries the job without space, then those behind it. Returns when to retry again, if at all.
    pub(super) fn handle_retry(
        &mut self,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Option<Instant> {
        self.run(true, now, events)
    }

    /// Ends waits for space, from the next retry on.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    fn run(&mut self, was_full: bool, now: Instant, events: &mut Vec<Event>) -> Option<Instant> {
        let mut was_full = was_full;
        while let Some(mut job) = self.waiting.pop_front() {
            match self.perform(&mut job, now) {
                Err(error) if waits_for_space(&job, &error) && !self.given_up => {
                    if !was_full {
                        events.push(Event::DiskFull(error));
                    }
                    self.waiting.push_front(job);
                    return Some(now + RETRY_INTERVAL);
                }
                result => {
                    let is_full = |error| waits_for_space(&job, error);
                    let is_still_full = result.as_ref().is_err_and(is_full);
                    if std::mem::take(&mut was_full) && !is_still_full {
                        events.push(Event::DiskRoom);
                    }
                    if result.is_err() || !is_silent(&job) {
                        events.push(Event::Disk(job.done(result)));
                    }
                }
            }
        }
        None
    }

    /// Does a job, with the results of the real disk.
    fn perform(&mut self, job: &mut DiskJob, now: Instant) -> io::Result<Written> {
        match job {
            DiskJob::Create { file, path } => {
                if self.files.contains_key(path) {
                    return Err(at(ErrorKind::AlreadyExists, "cannot create", path));
                }
                self.take_space(0, "cannot create", path, now)?;
                self.name(*file, Target::Path(path.clone()))?;
                self.files.insert(path.clone(), Vec::new());
                Ok(Written::default())
            }
            DiskJob::Open { file, path, length } => {
                let Some(content) = self.files.get(path) else {
                    return Err(at(ErrorKind::NotFound, "cannot open", path));
                };
                if content.len() as u64 != *length {
                    return Err(at(ErrorKind::InvalidData, "cannot open", path));
                }
                self.name(*file, Target::Path(path.clone()))
            }
            DiskJob::Stdout { file } => self.name(*file, Target::Stdout),
            DiskJob::Append {
                file, bytes, gzip, ..
            } => self.append(*file, bytes, *gzip, now),
            DiskJob::Sync { file, .. } => {
                let target = self.target(*file)?;
                let length = self.content(&target).len();
                if let Target::Path(path) = target {
                    self.synced.insert(path, length);
                }
                Ok(Written {
                    offset: length as u64,
                    length: 0,
                })
            }
            DiskJob::Finish { file, rename } => {
                let target = self.target(*file)?;
                if let (Target::Path(path), Some(to)) = (target, rename) {
                    self.take_space(0, "cannot rename to", to, now)?;
                    let content = self.files.remove(&path).unwrap_or_default();
                    self.files.insert(to.clone(), content);
                    if let Some(length) = self.synced.remove(&path) {
                        self.synced.insert(to.clone(), length);
                    }
                }
                self.open.remove(file);
                Ok(Written::default())
            }
            DiskJob::Replace { path, bytes, .. } => {
                self.take_space(bytes.len(), "cannot replace", path, now)?;
                self.files.insert(path.clone(), bytes.clone());
                Ok(Written {
                    offset: 0,
                    length: bytes.len() as u64,
                })
            }
            DiskJob::Read {
                path,
                offset,
                bytes,
                ..
            } => self.read(path, *offset, bytes),
            DiskJob::Remove { path, .. } => {
                self.synced.remove(path);
                let removed = self.files.remove(path);
                self.space += removed.map_or(0, |content| content.len() as u64);
                Ok(Written::default())
            }
        }
    }

    /// Fills `bytes` from a file.
    fn read(&self, path: &Path, offset: u64, bytes: &mut [u8]) -> io::Result<Written> {
        let Some(content) = self.files.get(path) else {
            return Err(at(ErrorKind::NotFound, "cannot read", path));
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = content.get(from..).and_then(|rest| rest.get(..bytes.len()));
        let found = found.ok_or_else(|| at(ErrorKind::UnexpectedEof, "cannot read", path))?;
        bytes.copy_from_slice(found);
        Ok(Written {
            offset,
            length: bytes.len() as u64,
        })
    }

    fn append(
        &mut self,
        file: FileId,
        bytes: &[u8],
        gzip: bool,
        now: Instant,
    ) -> io::Result<Written> {
        let target = self.target(file)?;
        let bytes = if gzip {
            self.gzip.member(bytes).to_vec()
        } else {
            bytes.to_vec()
        };
        if let Target::Path(path) = &target {
            self.take_space(bytes.len(), "cannot write to", path, now)?;
        }
        let content = self.content(&target);
        let offset = content.len() as u64;
        content.extend_from_slice(&bytes);
        Ok(Written {
            offset,
            length: bytes.len() as u64,
        })
    }

    fn content(&mut self, target: &Target) -> &mut Vec<u8> {
        match target {
            Target::Path(path) => self.files.entry(path.clone()).or_default(),
            Target::Stdout => &mut self.stdout,
        }
    }

    fn name(&mut self, file: FileId, target: Target) -> io::Result<Written> {
        if self.open.contains_key(&file) {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                format!("file {} is open already", file.0),
            ));
        }
        self.open.insert(file, target);
        Ok(Written::default())
    }

    fn target(&self, file: FileId) -> io::Result<Target> {
        self.open.get(&file).cloned().ok_or_else(|| {
            io::Error::new(
                ErrorKind::NotFound,
                format!("file {} is not open, or could not be created", file.0),
            )
        })
    }

    fn take_space(
        &mut self,
        bytes: usize,
        what: &str,
        path: &Path,
        now: Instant,
    ) -> io::Result<()> {
        let bytes = bytes as u64;
        let since_start = now.saturating_since(Instant::START);
        let is_of = |full: &&mut FullDisk| {
            path.starts_with(&full.below) && (full.from..full.until).contains(&since_start)
        };
        let free_min = match self.given_up {
            true => 0,
            false => self.free_min,
        };
        let mut full: Vec<&mut FullDisk> = self.full.iter_mut().filter(is_of).collect();
        let free = full.iter().map(|full| full.free);
        let free = free.fold(self.space, u64::min);
        let needed = bytes.max(u64::from(!full.is_empty()));
        check_reserve(free, free_min, needed).map_err(|error| {
            io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
        })?;
        for full in &mut full {
            full.free -= bytes;
        }
        self.space -= bytes;
        Ok(())
    }
}

fn at(kind: ErrorKind, what: &str, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{what} {}: {kind}", path.display()))
}
