//! Jobs for the disk and their results: plain values; the `io` floor performs the jobs.

use std::io;
use std::path::PathBuf;

use crate::base::compression::Compression;
use crate::base::derive::Derive;

/// Id of a file that the disk writes to, chosen by the code that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A job for the disk. Jobs are performed in order, except that a read passes all jobs but those that write
/// its bytes, or that name or remove its file. A job for which there is no space left is
/// retried until there is, and later jobs wait: its partial effects are undone before, so nothing
/// is written twice and no job overtakes another. [`DiskJob::Derive`] is done beside all others.
#[derive(Debug)]
#[non_exhaustive]
pub enum DiskJob {
    /// Creates a file for appending; fails if it exists. Missing parent folders are created.
    Create {
        /// Its id from now on.
        file: FileId,
        /// Its path.
        path: PathBuf,
    },
    /// Opens a file for appending; fails if it is missing or has another length.
    Open {
        /// Its id from now on.
        file: FileId,
        /// Its path.
        path: PathBuf,
        /// Its length.
        length: u64,
    },
    /// Makes `file` refer to the process's standard output.
    Stdout {
        /// Its id from now on.
        file: FileId,
    },
    /// Appends bytes unchanged, or as a separate gzip member.
    Append {
        /// The file.
        file: FileId,
        /// The bytes before compression.
        bytes: Vec<u8>,
        /// Whether to compress the bytes into one gzip member.
        gzip: bool,
        /// Returned in [`DiskDone`], to identify the job.
        tag: u64,
    },
    /// Appends bytes as a gzip member or zstd frame of their own: lines of a file that is compressed.
    AppendCompressed {
        /// The file.
        file: FileId,
        /// The bytes before compression.
        bytes: Vec<u8>,
        /// How they are compressed, at the usual level.
        compression: Compression,
        /// Returned in [`DiskDone`], to identify the job.
        tag: u64,
    },
    /// Allocates space for bytes that will be appended, where the file system can and there is more free than
    /// must remain so. Otherwise nothing is done, which is no error.
    Allocate {
        /// The file.
        file: FileId,
        /// How many bytes after its present end.
        bytes: u64,
    },
    /// Syncs the file, so that its contents survive a crash of the machine.
    Sync {
        /// The file.
        file: FileId,
        /// Returned in [`DiskDone`].
        tag: u64,
    },
    /// Closes a file and gives it its final name, durably.
    Finish {
        /// The file.
        file: FileId,
        /// Its final name; `None` keeps the present one.
        rename: Option<PathBuf>,
    },
    /// Replaces a whole file atomically: a reader sees either the old or the new content.
    Replace {
        /// The file to replace.
        path: PathBuf,
        /// Its new content.
        bytes: Vec<u8>,
        /// Returned in [`DiskDone`].
        tag: u64,
    },
    /// Reads bytes of a file that was written before; fails if it has fewer.
    Read {
        /// Returned in [`DiskDone`]: the owner. The file need not be open under this id.
        file: FileId,
        /// The file to read.
        path: PathBuf,
        /// Offset of the first byte.
        offset: u64,
        /// As many bytes are read as these are; their values do not matter.
        bytes: Vec<u8>,
        /// Returned in [`DiskDone`].
        tag: u64,
    },
    /// Makes a file from another that is complete under its name, beside all other jobs and with the lowest priority,
    /// durably: a reader sees all of it or none. Without space it fails. It is broken off where stalled writes are to
    /// fail, and where the crawl is dropped.
    Derive {
        /// Returned in [`DiskDone`]: the owner.
        file: FileId,
        /// The file that is read.
        from: PathBuf,
        /// The file that is made; one of this name is replaced.
        to: PathBuf,
        /// What is made.
        derive: Box<dyn Derive>,
        /// Returned in [`DiskDone`].
        tag: u64,
    },
    /// Removes a file; it is no error if it is missing. The removal may be undone by a crash of the machine.
    Remove {
        /// Returned in [`DiskDone`]: the owner. The file must not be open.
        file: FileId,
        /// The file to remove.
        path: PathBuf,
        /// Returned in [`DiskDone`].
        tag: u64,
    },
}

impl DiskJob {
    /// Bytes of memory that the job occupies until it is done.
    pub fn held(&self) -> usize {
        match self {
            DiskJob::Append { bytes, .. }
            | DiskJob::AppendCompressed { bytes, .. }
            | DiskJob::Replace { bytes, .. }
            | DiskJob::Read { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// The result of this job, as [`DiskSink::disk_done`](crate::DiskSink::disk_done) gets it. A failed
    /// append returns its bytes.
    pub fn done(self, result: io::Result<Written>) -> DiskDone {
        let held = self.held();
        let (mut unwritten, mut read) = (Vec::new(), Vec::new());
        let (file, tag) = match self {
            DiskJob::Create { file, .. }
            | DiskJob::Open { file, .. }
            | DiskJob::Stdout { file }
            | DiskJob::Allocate { file, .. }
            | DiskJob::Finish { file, .. } => (Some(file), 0),
            DiskJob::Append {
                file, bytes, tag, ..
            }
            | DiskJob::AppendCompressed {
                file, bytes, tag, ..
            } => {
                if result.is_err() {
                    unwritten = bytes;
                }
                (Some(file), tag)
            }
            DiskJob::Sync { file, tag } => (Some(file), tag),
            DiskJob::Replace { tag, .. } => (None, tag),
            DiskJob::Read {
                file, bytes, tag, ..
            } => {
                if result.is_ok() {
                    read = bytes;
                }
                (Some(file), tag)
            }
            DiskJob::Remove { file, tag, .. } | DiskJob::Derive { file, tag, .. } => {
                (Some(file), tag)
            }
        };
        DiskDone {
            tag,
            file,
            held,
            result,
            unwritten,
            read,
        }
    }
}

/// Result of a job. Every job reports failure; `Append`, `AppendCompressed`, `Sync`, `Replace`, `Read`, `Remove`, `Derive` and
/// a `Finish` that renames report success as well.
#[derive(Debug)]
#[non_exhaustive]
pub struct DiskDone {
    /// The job's tag (0 for jobs without one).
    pub tag: u64,
    /// The file, if the job has one.
    pub file: Option<FileId>,
    /// Bytes of memory freed by the job.
    pub held: usize,
    /// Position of the bytes in the file, or the system's error.
    pub result: io::Result<Written>,
    /// The bytes of a failed append, before compression; otherwise empty.
    pub unwritten: Vec<u8>,
    /// The bytes of a read that succeeded; otherwise empty.
    pub read: Vec<u8>,
}

/// Position of appended bytes in their file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes in the file, after compression.
    pub length: u64,
}
