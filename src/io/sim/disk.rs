//! The simulated disk: files in memory, with latency, limited space and errors.
//!
//! The jobs of one file are done in order. A sync may take longer, and then jobs of other files overtake it.
//! A read passes all jobs that do not concern its bytes, and may itself take longer.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Cursor, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::Files;
use super::{Faults, FullDisk};
use crate::base::compression::{Compression, Compressor};
use crate::base::derive::{Derive, DeriveFiles};
use crate::base::disk::{DiskJob, FileId, Written};
use crate::base::gzip::Gzip;
use crate::base::rng::Rng;
use crate::base::time::{Instant, nanos};
use crate::io::disk::{
    Order, Place, RETRY_INTERVAL, check_reserve, is_silent, renamed_by, usual_reserve,
    waits_for_space,
};
use crate::io::{Event, IoSettings};

#[derive(Debug)]
pub(super) struct Disk {
    rng: Rng,
    latency_max: Duration,
    sync_delay_max: Duration,
    /// Probability that a job fails.
    error: f64,
    /// Jobs that have failed so.
    errors: u64,
    space: u64,
    /// What remains free of it.
    free_min: u64,
    full: Vec<FullDisk>,
    /// The job for which there is no space, and those behind it.
    waiting: VecDeque<(u64, DiskJob)>,
    order: Order,
    /// When the jobs that change files are done, by their numbers; those that are done are gone.
    undone: BTreeMap<u64, Instant>,
    /// When the last queued read is done, and when the reads of each path are.
    reading_until: Instant,
    reading: BTreeMap<PathBuf, Instant>,
    /// Reads whose job, by its number, waits for space.
    held: Vec<(u64, DiskJob)>,
    /// Whether jobs fail instead of waiting for space.
    given_up: bool,
    /// When the last queued job is done; the next one begins then.
    busy_until: Instant,
    /// When the last sync of each file is done, if later jobs of others may be done before.
    syncing: BTreeMap<FileId, Instant>,
    files: Files,
    open: BTreeMap<FileId, Target>,
    /// There is space for bytes of a file before this offset.
    allocated: BTreeMap<FileId, u64>,
    stdout: Vec<u8>,
    gzip: Gzip,
    compressor: Compressor,
}

#[derive(Clone, Debug)]
enum Target {
    /// A file, and where its next bytes go.
    Path {
        path: PathBuf,
        end: usize,
    },
    Stdout,
}

impl Disk {
    pub(super) fn new(rng: Rng, faults: &Faults, settings: &IoSettings) -> Self {
        Disk {
            rng,
            latency_max: faults.disk_latency_max,
            sync_delay_max: faults.sync_delay_max,
            error: faults.disk_error,
            errors: 0,
            space: faults.disk_room,
            free_min: settings
                .disk_free_min
                .unwrap_or_else(|| usual_reserve(faults.disk_room)),
            full: faults.disk_full.clone(),
            waiting: VecDeque::new(),
            order: Order::default(),
            undone: BTreeMap::new(),
            reading_until: Instant::START,
            reading: BTreeMap::new(),
            held: Vec::new(),
            given_up: false,
            busy_until: Instant::START,
            syncing: BTreeMap::new(),
            files: Files::default(),
            open: BTreeMap::new(),
            allocated: BTreeMap::new(),
            stdout: Vec::new(),
            gzip: Gzip::new(settings.gzip_level),
            compressor: Compressor::default(),
        }
    }

    pub(super) fn files(&self) -> &BTreeMap<PathBuf, Vec<u8>> {
        self.files.contents()
    }

    /// How many bytes of a file survive a power cut.
    pub(super) fn synced(&self, path: &Path) -> usize {
        self.files.synced(path)
    }

    /// Number of jobs that failed though the disk had space.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    /// Puts durable files on the disk in place of all others.
    pub(super) fn put_files(&mut self, files: BTreeMap<PathBuf, Vec<u8>>) {
        self.files = files.into();
    }

    /// Ends amid these jobs: the first of them are done, the next in part. Returns the files that are left
    /// after the end of the process, or of the machine's power.
    pub(super) fn crash(
        &mut self,
        crash: super::Crash,
        mut jobs: Vec<(Place, DiskJob)>,
        now: Instant,
        rng: &mut Rng,
    ) -> BTreeMap<PathBuf, Vec<u8>> {
        jobs.retain(|(place, _)| matches!(place, Place::InOrder(_)));
        let done = rng.below(jobs.len() as u64 + 1) as usize;
        let mut jobs = jobs.into_iter();
        let mut events = Vec::new();
        for (place, job) in jobs.by_ref().take(done) {
            let _ = self.handle_job(place, job, now, &mut events);
        }
        if let Some((_, job)) = jobs.next()
            && self.waiting.is_empty()
        {
            self.begin(job, rng);
        }
        let files = std::mem::take(&mut self.files);
        match crash {
            super::Crash::Killed => files.contents().clone(),
            super::Crash::PowerCut => files.cut(rng),
        }
    }

    /// Does a part of a job.
    fn begin(&mut self, job: DiskJob, rng: &mut Rng) {
        match job {
            DiskJob::Append {
                file, bytes, gzip, ..
            } => {
                let bytes = self.coded(&bytes, gzip);
                self.append_part(file, &bytes, rng);
            }
            DiskJob::AppendCompressed {
                file,
                bytes,
                compression,
                ..
            } => {
                if let Ok(bytes) = self.compressed(&bytes, compression) {
                    self.append_part(file, &bytes, rng);
                }
            }
            DiskJob::Finish {
                file,
                rename: Some(to),
            } => {
                if let Some(Target::Path { path, .. }) = self.open.get(&file) {
                    self.files.rename(path, &to);
                }
            }
            DiskJob::Create { path, .. } if self.files.get(&path).is_none() => {
                self.files.create(&path);
            }
            DiskJob::Remove { path, .. } => drop(self.files.remove(&path)),
            DiskJob::Replace { path, bytes, .. } => self.files.replace(&path, &bytes),
            _ => {}
        }
    }

    /// Appends a part of the bytes.
    fn append_part(&mut self, file: FileId, bytes: &[u8], rng: &mut Rng) {
        let Some(target) = self.open.get(&file) else {
            return;
        };
        let part = rng.below(bytes.len() as u64 + 1) as usize;
        match target {
            Target::Path { path, end } => self.files.write(path, *end, &bytes[..part]),
            Target::Stdout => self.stdout.extend_from_slice(&bytes[..part]),
        }
    }

    pub(super) fn stdout(&self) -> &[u8] {
        &self.stdout
    }

    /// When a job that is queued now will be done, and after which others.
    pub(super) fn done_at(&mut self, job: &DiskJob, now: Instant) -> (Place, Instant) {
        let first = self.undone.keys().next().copied();
        let done = first.unwrap_or_else(|| self.order.next()) - 1;
        let place = self.order.add(job, done);
        if let DiskJob::Derive { .. } = job {
            // On a stream of its own: whether there are indexes changes nothing else.
            let latency = self.rng.fork("derive").below(nanos(self.latency_max) + 1);
            return (place, now + Duration::from_nanos(latency));
        }
        let latency = Duration::from_nanos(self.rng.below(nanos(self.latency_max) + 1));
        let at = match place {
            Place::After(number) => self.read_at(job, number, now + latency),
            Place::InOrder(number) => {
                let at = self.changed_at(job, now, latency);
                self.undone.insert(number, at);
                at
            }
        };
        (place, at)
    }

    fn read_at(&mut self, job: &DiskJob, after: u64, at: Instant) -> Instant {
        let mut at = self.reading_until.max(at);
        if !self.sync_delay_max.is_zero() && self.rng.chance(READ_DELAYED) {
            at += Duration::from_nanos(self.rng.below(nanos(self.sync_delay_max) + 1));
        }
        if let Some(changed) = self.undone.get(&after) {
            at = at.max(*changed);
        }
        self.reading_until = at;
        if let DiskJob::Read { path, .. } = job {
            self.reading.insert(path.clone(), at);
        }
        at
    }

    fn changed_at(&mut self, job: &DiskJob, now: Instant, latency: Duration) -> Instant {
        let renamed = renamed_by(job);
        let reading = self.reading.iter();
        let read = reading.filter(|(path, _)| renamed.concerns(path));
        let read = read.map(|(_, at)| *at).max();
        self.busy_until = self.busy_until.max(now).max(read.unwrap_or(now)) + latency;
        if self.sync_delay_max.is_zero() {
            return self.busy_until;
        }
        let mut at = self.busy_until;
        if let Some(file) = file_of(job) {
            at = at.max(self.syncing.get(&file).copied().unwrap_or(at));
            if let DiskJob::Sync { .. } = job {
                at += Duration::from_nanos(self.rng.below(nanos(self.sync_delay_max) + 1));
            }
            self.syncing.insert(file, at);
        }
        at
    }

    /// Does a job, or queues it behind those that wait for space. Returns when to retry these, if at
    /// all.
    pub(super) fn handle_job(
        &mut self,
        place: Place,
        job: DiskJob,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Option<Instant> {
        let number = match place {
            Place::InOrder(number) => number,
            Place::After(after) => {
                self.held.push((after, job));
                self.read_held(now, events);
                return None;
            }
        };
        let waits = !self.waiting.is_empty();
        self.waiting.push_back((number, job));
        match waits {
            true => None,
            false => self.run(false, now, events),
        }
    }

    /// Does the reads whose jobs are done.
    fn read_held(&mut self, now: Instant, events: &mut Vec<Event>) {
        let is_ready = |(after, _): &mut (u64, DiskJob)| !self.undone.contains_key(after);
        let ready: Vec<(u64, DiskJob)> = self.held.extract_if(.., is_ready).collect();
        for (_, mut job) in ready {
            if let DiskJob::Read { path, .. } = &job
                && self.reading.get(path).is_some_and(|at| *at <= now)
            {
                self.reading.remove(path);
            }
            let result = self.perform(&mut job, now);
            events.push(Event::Disk(job.done(result)));
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
        while let Some((number, mut job)) = self.waiting.pop_front() {
            match self.perform(&mut job, now) {
                Err(error) if waits_for_space(&job, &error) && !self.given_up => {
                    if !was_full {
                        events.push(Event::DiskFull(error));
                    }
                    self.waiting.push_front((number, job));
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
                    self.undone.remove(&number);
                    self.read_held(now, events);
                }
            }
        }
        None
    }

    /// Does a job, with the results of the real disk.
    fn perform(&mut self, job: &mut DiskJob, now: Instant) -> io::Result<Written> {
        let fails = self.error > 0.0
            && match job {
                DiskJob::Derive { .. } => self.rng.fork("derive").chance(self.error),
                _ => self.rng.chance(self.error),
            };
        match job {
            DiskJob::Create { file, path } => {
                if self.files.get(path).is_some() {
                    return Err(at(ErrorKind::AlreadyExists, "cannot create", path));
                }
                if fails {
                    return Err(self.broken("cannot create", path));
                }
                self.take_space(0, "cannot create", path, now)?;
                let path = path.clone();
                self.files.create(&path);
                self.name(*file, Target::Path { path, end: 0 })
            }
            DiskJob::Open { file, path, length } => {
                let Some(content) = self.files.get(path) else {
                    return Err(at(ErrorKind::NotFound, "cannot open", path));
                };
                if content.len() as u64 != *length {
                    return Err(at(ErrorKind::InvalidData, "cannot open", path));
                }
                if fails {
                    return Err(self.broken("cannot open", path));
                }
                let target = Target::Path {
                    path: path.clone(),
                    end: content.len(),
                };
                self.name(*file, target)
            }
            DiskJob::Stdout { file } => self.name(*file, Target::Stdout),
            DiskJob::Append {
                file, bytes, gzip, ..
            } => {
                let bytes = self.coded(bytes, *gzip);
                self.append(*file, &bytes, fails, now)
            }
            DiskJob::AppendCompressed {
                file,
                bytes,
                compression,
                ..
            } => {
                let bytes = self.compressed(bytes, *compression)?;
                self.append(*file, &bytes, fails, now)
            }
            DiskJob::Allocate { file, bytes } => {
                self.allocate(*file, *bytes, now)?;
                Ok(Written::default())
            }
            DiskJob::Sync { file, .. } => self.sync(*file, fails),
            DiskJob::Finish { file, rename } => self.finish(*file, rename.as_deref(), fails, now),
            DiskJob::Replace { path, bytes, .. } => {
                if fails {
                    return Err(self.broken("cannot replace", path));
                }
                self.take_space(bytes.len(), "cannot replace", path, now)?;
                self.files.replace(path, bytes);
                self.files.sync_folder(path);
                Ok(Written {
                    offset: 0,
                    length: bytes.len() as u64,
                })
            }
            DiskJob::Read { path, .. } if fails => Err(self.broken("cannot read", path)),
            DiskJob::Read {
                path,
                offset,
                bytes,
                ..
            } => read(self.files.contents(), path, *offset, bytes),
            DiskJob::Derive {
                from, to, derive, ..
            } => {
                // It is no loss: it does not count among the errors.
                if fails || self.given_up {
                    return Err(at(ErrorKind::Other, "cannot make", to));
                }
                self.derive((from, to), &mut **derive, now)
            }
            DiskJob::Remove { path, .. } if fails => Err(self.broken("cannot remove", path)),
            DiskJob::Remove { path, .. } => {
                self.space = self.space.saturating_add(self.files.remove(path));
                Ok(Written::default())
            }
        }
    }

    /// Makes a file from another.
    fn derive(
        &mut self,
        (from, to): (&Path, &Path),
        derive: &mut dyn Derive,
        now: Instant,
    ) -> io::Result<Written> {
        let Some(mut content) = self.files.get(from).map(Vec::as_slice) else {
            return Err(at(ErrorKind::NotFound, "cannot open", from));
        };
        let mut made = Vec::new();
        derive.derive(DeriveFiles {
            from: &mut content,
            to: &mut made,
            scratch: &mut Cursor::new(Vec::new()),
        })?;
        self.take_space(made.len(), "cannot make", to, now)?;
        self.files.replace(to, &made);
        self.files.sync_folder(to);
        Ok(Written {
            offset: 0,
            length: made.len() as u64,
        })
    }

    /// Makes a file durable, and its entry. A sync that fails is the last that could have made the bytes
    /// before it durable.
    fn sync(&mut self, file: FileId, fails: bool) -> io::Result<Written> {
        let offset = match self.target(file)? {
            Target::Path { path, end } if fails => {
                self.files.fail_sync(&path, end);
                return Err(self.broken("cannot sync", &path));
            }
            Target::Path { path, end } => {
                self.files.sync(&path, end);
                end
            }
            Target::Stdout => self.stdout.len(),
        };
        Ok(Written {
            offset: offset as u64,
            length: 0,
        })
    }

    fn finish(
        &mut self,
        file: FileId,
        rename: Option<&Path>,
        fails: bool,
        now: Instant,
    ) -> io::Result<Written> {
        let target = self.target(file)?;
        self.release(file);
        if let (Target::Path { path, .. }, Some(to)) = (target, rename) {
            if fails && self.rng.chance(0.5) {
                return Err(self.broken("cannot rename to", to));
            }
            self.take_space(0, "cannot rename to", to, now)?;
            self.files.rename(&path, to);
            self.open.remove(&file);
            if fails {
                return Err(self.broken("cannot sync the new name of", to));
            }
            self.files.sync_folder(to);
        }
        self.open.remove(&file);
        Ok(Written::default())
    }

    /// The bytes of a file of lines as they are written.
    fn compressed(&mut self, bytes: &[u8], compression: Compression) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        self.compressor.compress(compression, bytes, &mut out)?;
        Ok(out)
    }

    /// The bytes as they are written.
    fn coded<'a>(&mut self, bytes: &'a [u8], gzip: bool) -> Cow<'a, [u8]> {
        if !gzip {
            return bytes.into();
        }
        let mut member = Vec::new();
        self.gzip.member(bytes, &mut member);
        member.into()
    }

    fn append(
        &mut self,
        file: FileId,
        bytes: &[u8],
        fails: bool,
        now: Instant,
    ) -> io::Result<Written> {
        let target = self.target(file)?;
        let length = bytes.len() as u64;
        let offset = match target {
            Target::Path { path, end } => {
                if fails {
                    // What was written of it is cut off again, if that does not fail, too.
                    let left = self.rng.below(length + 1) as usize;
                    self.files.write(&path, end, &bytes[..left]);
                    self.release(file);
                    return Err(self.broken("cannot write to", &path));
                }
                let allocated = self.allocated.get(&file).copied().unwrap_or(0);
                let missing = (end + bytes.len()).saturating_sub(end.max(allocated as usize));
                if missing > 0 || bytes.is_empty() {
                    self.take_space(missing, "cannot write to", &path, now)?;
                }
                self.files.write(&path, end, bytes);
                let next = end + bytes.len();
                self.open.insert(file, Target::Path { path, end: next });
                end
            }
            Target::Stdout => {
                self.stdout.extend_from_slice(bytes);
                self.stdout.len() - bytes.len()
            }
        };
        Ok(Written {
            offset: offset as u64,
            length,
        })
    }

    /// Allocates space after the end of a file, if there is some.
    fn allocate(&mut self, file: FileId, bytes: u64, now: Instant) -> io::Result<()> {
        if let Target::Path { path, end } = self.target(file)? {
            let allocated = self.allocated.get(&file).copied().unwrap_or(0);
            let until = end as u64 + bytes;
            let missing = until.saturating_sub(allocated.max(end as u64)) as usize;
            if missing > 0 && self.take_space(missing, "", &path, now).is_ok() {
                self.allocated.insert(file, until);
            }
        }
        Ok(())
    }

    /// Frees what was allocated after the end of a file.
    fn release(&mut self, file: FileId) {
        let allocated = self.allocated.remove(&file);
        if let (Some(until), Some(Target::Path { end, .. })) = (allocated, self.open.get(&file)) {
            let free = until.saturating_sub(*end as u64);
            self.space = self.space.saturating_add(free);
        }
    }

    /// A job fails though there is space.
    fn broken(&mut self, what: &str, path: &Path) -> io::Error {
        self.errors += 1;
        at(io::Error::from_raw_os_error(EIO).kind(), what, path)
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

/// The file of a job whose jobs are done in order.
fn file_of(job: &DiskJob) -> Option<FileId> {
    match job {
        DiskJob::Create { file, .. }
        | DiskJob::Open { file, .. }
        | DiskJob::Stdout { file }
        | DiskJob::Append { file, .. }
        | DiskJob::AppendCompressed { file, .. }
        | DiskJob::Allocate { file, .. }
        | DiskJob::Sync { file, .. }
        | DiskJob::Finish { file, .. }
        | DiskJob::Read { file, .. }
        | DiskJob::Derive { file, .. }
        | DiskJob::Remove { file, .. } => Some(*file),
        DiskJob::Replace { .. } => None,
    }
}

/// Fills `bytes` from a file.
pub(super) fn read(
    files: &BTreeMap<PathBuf, Vec<u8>>,
    path: &Path,
    offset: u64,
    bytes: &mut [u8],
) -> io::Result<Written> {
    let Some(content) = files.get(path) else {
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

fn at(kind: ErrorKind, what: &str, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{what} {}: {kind}", path.display()))
}

/// Probability that a read takes longer, where syncs do.
const READ_DELAYED: f64 = 0.1;

/// Linux's number of an error of the device.
const EIO: i32 = 5;
