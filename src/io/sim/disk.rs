//! The simulated disk: files in memory, written in order, slowly, and only while there is room.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Weather;
use crate::base::disk::{DiskJob, FileId, Written};
use crate::base::rng::Rng;
use crate::base::time::{Instant, nanos};
use crate::io::disk::Gzip;

#[derive(Debug)]
pub(super) struct Disk {
    rng: Rng,
    latency_max: Duration,
    room: u64,
    /// When the job handed over last is done; the next begins then.
    busy_until: Instant,
    files: BTreeMap<PathBuf, Vec<u8>>,
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
    pub(super) fn new(rng: Rng, weather: &Weather) -> Self {
        Disk {
            rng,
            latency_max: weather.disk_latency_max,
            room: weather.disk_room,
            busy_until: Instant::START,
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            stdout: Vec::new(),
            gzip: Gzip::default(),
        }
    }

    pub(super) fn files(&self) -> &BTreeMap<PathBuf, Vec<u8>> {
        &self.files
    }

    pub(super) fn stdout(&self) -> &[u8] {
        &self.stdout
    }

    /// When a job that is handed over now will be done.
    pub(super) fn done_at(&mut self, now: Instant) -> Instant {
        let latency = Duration::from_nanos(self.rng.below(nanos(self.latency_max) + 1));
        self.busy_until = self.busy_until.max(now) + latency;
        self.busy_until
    }

    /// Does a job, with the outcomes of the real disk.
    pub(super) fn perform(&mut self, job: &DiskJob) -> io::Result<Written> {
        match job {
            DiskJob::Create { file, path } => {
                if self.files.contains_key(path) {
                    return Err(at(ErrorKind::AlreadyExists, "cannot create", path));
                }
                self.name(*file, Target::Path(path.clone()))?;
                self.files.insert(path.clone(), Vec::new());
                Ok(Written::default())
            }
            DiskJob::Stdout { file } => self.name(*file, Target::Stdout),
            DiskJob::Append {
                file, bytes, gzip, ..
            } => self.append(*file, bytes, *gzip),
            DiskJob::Sync { file, .. } => {
                let target = self.target(*file)?;
                Ok(Written {
                    offset: self.content(&target).len() as u64,
                    length: 0,
                })
            }
            DiskJob::Finish { file, rename } => {
                let target = self.target(*file)?;
                self.open.remove(file);
                if let (Target::Path(path), Some(to)) = (target, rename) {
                    let content = self.files.remove(&path).unwrap_or_default();
                    self.files.insert(to.clone(), content);
                }
                Ok(Written::default())
            }
            DiskJob::Replace { path, bytes, .. } => {
                self.take_room(bytes.len(), "cannot replace", path)?;
                self.files.insert(path.clone(), bytes.clone());
                Ok(Written {
                    offset: 0,
                    length: bytes.len() as u64,
                })
            }
        }
    }

    fn append(&mut self, file: FileId, bytes: &[u8], gzip: bool) -> io::Result<Written> {
        let target = self.target(file)?;
        let bytes = if gzip {
            self.gzip.member(bytes).to_vec()
        } else {
            bytes.to_vec()
        };
        if let Target::Path(path) = &target {
            self.take_room(bytes.len(), "cannot write to", path)?;
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

    fn take_room(&mut self, bytes: usize, what: &str, path: &Path) -> io::Result<()> {
        let bytes = bytes as u64;
        if bytes > self.room {
            return Err(at(ErrorKind::StorageFull, what, path));
        }
        self.room -= bytes;
        Ok(())
    }
}

fn at(kind: ErrorKind, what: &str, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{what} {}: {kind}", path.display()))
}
