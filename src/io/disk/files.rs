//! The disk thread's file operations.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, fallocate};

use super::reserve::Reserve;
use crate::base::compression::{Compression, Compressor};
use crate::base::disk::{DiskJob, FileId, Written};
use crate::base::gzip::Gzip;
use crate::io::IoSettings;

/// The open files.
#[derive(Debug)]
pub(super) struct Files {
    open: BTreeMap<FileId, Open>,
    gzip: Gzip,
    compressor: Compressor,
    /// What several jobs append, and what is compressed.
    together: Vec<u8>,
    reserve: Reserve,
    /// Readable once waits for a reader of standard output are to fail.
    given_up: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    target: Target,
    /// Where the next bytes go.
    end: u64,
    /// There is space for bytes before this offset.
    allocated: u64,
}

/// What became of jobs that append to one file.
#[derive(Debug)]
pub(super) enum Together {
    /// The first job is another one, or appends many bytes as they are, or to no file.
    Other,
    /// So many were done: where the bytes of each are.
    Done(Vec<Written>),
    /// None of so many could be done.
    Failed(usize, io::Error),
}

#[derive(Debug)]
enum Target {
    /// A file; whether its directory entry has been synced.
    Path { path: PathBuf, entry_synced: bool },
    /// Standard output, which can be neither truncated nor synced. A write waits for its reader until
    /// this is readable.
    Stdout {
        given_up: Option<Arc<OwnedFd>>,
        /// How much of an append to be retried has been written and cannot be taken back.
        written: usize,
    },
}

impl Files {
    /// No files. `given_up` becomes readable once waits for a reader of standard output are to fail.
    pub(super) fn new(given_up: Option<Arc<OwnedFd>>, settings: &IoSettings) -> Self {
        Files {
            open: BTreeMap::new(),
            gzip: Gzip::new(settings.gzip_level),
            compressor: Compressor::default(),
            together: Vec::new(),
            reserve: Reserve::new(settings.disk_free_min),
            given_up,
        }
    }

    /// Writes to what was to remain free, from now on.
    pub(super) fn use_reserve(&mut self) {
        self.reserve.use_up();
    }

    /// Does a job. The error names what failed, and where.
    pub(super) fn perform(&mut self, job: &mut DiskJob) -> io::Result<Written> {
        match job {
            DiskJob::Create { file, path } => self.create(*file, path),
            DiskJob::Open { file, path, length } => self.open(*file, path, *length),
            DiskJob::Stdout { file } => self.stdout(*file),
            DiskJob::Append {
                file, bytes, gzip, ..
            } => self.append(*file, bytes, *gzip),
            DiskJob::AppendCompressed {
                file,
                bytes,
                compression,
                ..
            } => self.append_compressed(*file, bytes, *compression),
            DiskJob::Allocate { file, bytes } => {
                find(&mut self.open, *file)?.allocate(*bytes, &mut self.reserve);
                Ok(Written::default())
            }
            DiskJob::Sync { file, .. } => find(&mut self.open, *file)?.sync(),
            DiskJob::Finish { file, rename } => self.finish(*file, rename.as_deref()),
            DiskJob::Replace { path, bytes, .. } => replace(path, bytes, &mut self.reserve),
            DiskJob::Read {
                path,
                offset,
                bytes,
                ..
            } => read(path, *offset, bytes),
            DiskJob::Remove { path, .. } => remove(path),
            DiskJob::Derive { .. } => unreachable!("another thread makes files from others"),
        }
    }

    fn create(&mut self, id: FileId, path: &Path) -> io::Result<Written> {
        self.refuse_twice(id)?;
        let mut create = || {
            if let Some(folder) = folder_of(path) {
                fs::create_dir_all(folder)?;
            }
            self.reserve.take(open_folder(path)?, 0)?;
            OpenOptions::new().write(true).create_new(true).open(path)
        };
        let open = Open {
            file: create().map_err(|error| at("cannot create", path, &error))?,
            target: Target::Path {
                path: path.to_owned(),
                entry_synced: false,
            },
            end: 0,
            allocated: 0,
        };
        self.open.insert(id, open);
        Ok(Written::default())
    }

    fn open(&mut self, id: FileId, path: &Path, length: u64) -> io::Result<Written> {
        self.refuse_twice(id)?;
        let open = || {
            let file = OpenOptions::new().write(true).open(path)?;
            check_length(file.metadata()?.len(), length)?;
            Ok(file)
        };
        let open = Open {
            file: open().map_err(|error: io::Error| at("cannot open", path, &error))?,
            target: Target::Path {
                path: path.to_owned(),
                entry_synced: false,
            },
            end: length,
            allocated: 0,
        };
        self.open.insert(id, open);
        Ok(Written::default())
    }

    fn stdout(&mut self, id: FileId) -> io::Result<Written> {
        self.refuse_twice(id)?;
        let file = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| at("cannot open", STDOUT.as_ref(), &error))?
            .into();
        let open = Open {
            file,
            target: Target::Stdout {
                given_up: self.given_up.clone(),
                written: 0,
            },
            end: 0,
            allocated: 0,
        };
        self.open.insert(id, open);
        Ok(Written::default())
    }

    fn refuse_twice(&self, id: FileId) -> io::Result<()> {
        if self.open.contains_key(&id) {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                format!("file {} is open already", id.0),
            ));
        }
        Ok(())
    }

    fn append(&mut self, id: FileId, bytes: &[u8], gzip: bool) -> io::Result<Written> {
        let open = find(&mut self.open, id)?;
        if !gzip {
            return open.append(bytes, &mut self.reserve);
        }
        self.together.clear();
        self.gzip.member(bytes, &mut self.together);
        open.append(&self.together, &mut self.reserve)
    }

    fn append_compressed(
        &mut self,
        id: FileId,
        bytes: &[u8],
        compression: Compression,
    ) -> io::Result<Written> {
        let open = find(&mut self.open, id)?;
        self.together.clear();
        self.compressor
            .compress(compression, bytes, &mut self.together)
            .map_err(|error| at("cannot compress for", open.name(), &error))?;
        open.append(&self.together, &mut self.reserve)
    }

    /// Writes what the first jobs append to one file in one call: as many as [`TOGETHER_MAX`] allows.
    pub(super) fn append_together<'a>(
        &mut self,
        jobs: impl Iterator<Item = &'a DiskJob>,
    ) -> Together {
        let mut jobs = jobs.peekable();
        self.together.clear();
        self.together.shrink_to(TOGETHER_KEPT);
        let Some(DiskJob::Append { file: to, .. }) = jobs.peek() else {
            return Together::Other;
        };
        let open = match self.open.get_mut(to) {
            Some(open) if matches!(open.target, Target::Path { .. }) => open,
            // What standard output took of them could not be taken back.
            _ => return Together::Other,
        };
        let (mut written, mut read) = (Vec::new(), 0);
        for job in jobs {
            let DiskJob::Append {
                file, bytes, gzip, ..
            } = job
            else {
                break;
            };
            let start = self.together.len();
            let is_more = start > 0 && read + bytes.len() > TOGETHER_MAX;
            let is_long = !gzip && bytes.len() > COPIED_MAX;
            if is_more || is_long || file != to {
                break;
            }
            read += bytes.len();
            match gzip {
                true => self.gzip.member(bytes, &mut self.together),
                false => self.together.extend_from_slice(bytes),
            }
            written.push(Written {
                offset: start as u64,
                length: (self.together.len() - start) as u64,
            });
        }
        if written.is_empty() {
            return Together::Other;
        }
        match open.append(&self.together, &mut self.reserve) {
            Ok(at) => {
                for place in &mut written {
                    place.offset += at.offset;
                }
                Together::Done(written)
            }
            Err(error) => Together::Failed(written.len(), error),
        }
    }

    fn finish(&mut self, id: FileId, rename: Option<&Path>) -> io::Result<Written> {
        let open = find(&mut self.open, id)?;
        open.release();
        if let (Some(to), Target::Path { path, .. }) = (rename, &open.target) {
            // Without space for the new name the file stays open, to be finished later.
            fs::rename(path, to).map_err(|error| at("cannot rename to", to, &error))?;
            self.open.remove(&id);
            sync_entry(to).map_err(|error| {
                let error = at("cannot sync the new name of", to, &error);
                // It has its new name: the job is not retried.
                io::Error::other(error.to_string())
            })?;
        }
        self.open.remove(&id);
        Ok(Written::default())
    }
}

impl Open {
    /// Appends all of the bytes or none: a failed append leaves nothing in the file. Standard output
    /// keeps what was written, and a retry of the same append goes on there.
    fn append(&mut self, bytes: &[u8], reserve: &mut Reserve) -> io::Result<Written> {
        let offset = self.end;
        let missing = (offset + bytes.len() as u64).saturating_sub(self.allocated.max(offset));
        if missing > 0 && matches!(self.target, Target::Path { .. }) {
            let taken = reserve.take(&self.file, missing);
            taken.map_err(|error| at("cannot write to", self.name(), &error))?;
        }
        let written = match &mut self.target {
            Target::Path { .. } => self.file.write_all_at(bytes, offset),
            Target::Stdout { given_up, written } => {
                write_to_reader(&mut self.file, bytes, given_up.as_deref(), written)
            }
        };
        if let Err(error) = written {
            if matches!(self.target, Target::Path { .. }) {
                // If this fails as well, the next append overwrites it.
                let _ = self.file.set_len(offset);
                self.allocated = 0;
            }
            return Err(at("cannot write to", self.name(), &error));
        }
        self.end += bytes.len() as u64;
        Ok(Written {
            offset,
            length: bytes.len() as u64,
        })
    }

    /// Allocates space for bytes after the end, unless it would be taken from the reserve.
    fn allocate(&mut self, bytes: u64, reserve: &mut Reserve) {
        let (from, until) = (self.end.max(self.allocated), self.end + bytes);
        if let Target::Path { .. } = self.target
            && let Some(missing) = until.checked_sub(from).filter(|missing| *missing > 0)
            && reserve.take(&self.file, missing).is_ok()
            && fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, missing).is_ok()
        {
            self.allocated = until;
        }
    }

    /// Frees what was allocated after the end.
    fn release(&mut self) {
        if self.allocated > self.end {
            // It stays allocated if this fails, until the file is removed.
            let _ = self.file.set_len(self.end);
            self.allocated = 0;
        }
    }

    /// Standard output is synced if it is a file.
    fn sync(&mut self) -> io::Result<Written> {
        if let Target::Path { path, entry_synced } = &mut self.target {
            let result = self.file.sync_data().and_then(|()| {
                if !*entry_synced {
                    match sync_entry(path) {
                        // The folder was moved or deleted; the open file is still valid.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        entry_synced => entry_synced?,
                    }
                    *entry_synced = true;
                }
                Ok(())
            });
            result.map_err(|error| at("cannot sync", path, &error))?;
        } else if self.file.metadata()?.is_file() {
            let synced = self.file.sync_data();
            synced.map_err(|error| at("cannot sync", STDOUT.as_ref(), &error))?;
        }
        Ok(Written {
            offset: self.end,
            length: 0,
        })
    }

    fn name(&self) -> &Path {
        match &self.target {
            Target::Path { path, .. } => path,
            Target::Stdout { .. } => STDOUT.as_ref(),
        }
    }
}

/// Writes whenever the pipe takes bytes, until waiting is given up. Skips the first `written` bytes, and
/// resets it once all are written.
fn write_to_reader(
    file: &mut File,
    bytes: &[u8],
    given_up: Option<&OwnedFd>,
    written: &mut usize,
) -> io::Result<()> {
    while *written < bytes.len() {
        if let Some(given_up) = given_up {
            let mut wait_for = [
                PollFd::new(&*file, PollFlags::OUT),
                PollFd::new(given_up, PollFlags::IN),
            ];
            poll(&mut wait_for, None)?;
            if wait_for[0].revents().is_empty() {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "it was not read in time",
                ));
            }
        }
        let rest = &bytes[*written..];
        match file.write(&rest[..rest.len().min(PIPE_BUF)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    *written = 0;
    Ok(())
}

fn find(open: &mut BTreeMap<FileId, Open>, id: FileId) -> io::Result<&mut Open> {
    open.get_mut(&id).ok_or_else(|| {
        io::Error::new(
            ErrorKind::NotFound,
            format!("file {} is not open, or could not be created", id.0),
        )
    })
}

/// Writes a file beside the old one, syncs it, and renames it over the old one.
fn replace(path: &Path, bytes: &[u8], reserve: &mut Reserve) -> io::Result<Written> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let mut write = || {
        if let Some(folder) = folder_of(path) {
            fs::create_dir_all(folder)?;
        }
        reserve.take(open_folder(path)?, bytes.len() as u64)?;
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&beside, path)?;
        sync_entry(path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&beside);
        at("cannot replace", path, &error)
    })?;
    Ok(Written {
        offset: 0,
        length: bytes.len() as u64,
    })
}

/// Fills `bytes` from a file.
pub(in crate::io) fn read(path: &Path, offset: u64, bytes: &mut [u8]) -> io::Result<Written> {
    let read = File::open(path).and_then(|file| file.read_exact_at(bytes, offset));
    read.map_err(|error| at("cannot read", path, &error))?;
    Ok(Written {
        offset,
        length: bytes.len() as u64,
    })
}

/// Removes a file that may be missing.
fn remove(path: &Path) -> io::Result<Written> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at("cannot remove", path, &error)),
        _ => Ok(Written::default()),
    }
}

/// Syncs a file's directory entry.
pub(super) fn sync_entry(path: &Path) -> io::Result<()> {
    open_folder(path)?.sync_all()
}

/// Fails if the length of a file to be continued is another.
fn check_length(length: u64, expected: u64) -> io::Result<()> {
    if length == expected {
        return Ok(());
    }
    let message = format!("its length is {length}, not {expected}");
    Err(io::Error::new(ErrorKind::InvalidData, message))
}

/// Opens the folder of a path.
fn open_folder(path: &Path) -> io::Result<File> {
    File::open(folder_of(path).unwrap_or(Path::new(".")))
}

/// The folder that a path names; `None` for a bare file name.
fn folder_of(path: &Path) -> Option<&Path> {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
}

/// The system's error with the operation and the path.
fn at(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// Appends are written together while they have no more bytes than this before compression, unless it is one.
const TOGETHER_MAX: usize = 512 * 1024;

/// Memory that is kept for them.
const TOGETHER_KEPT: usize = 1024 * 1024;

/// More bytes that are not compressed are not copied, but written alone.
const COPIED_MAX: usize = 32 * 1024;

const STDOUT: &str = "standard output";

/// Bytes that a pipe takes atomically.
const PIPE_BUF: usize = libc::PIPE_BUF;
