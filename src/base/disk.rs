//! What is handed to the disk, and what comes back: values only, the writing is the io floor's.

use std::io;
use std::path::PathBuf;

/// A file that the disk writes to, named by whoever asked for it to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A piece of work for the disk. Jobs are done in the order they were handed over. One for which there
/// is no room is tried again until there is, and those behind it wait: what it did the first time is
/// taken back, so nothing is there twice and no job overtakes another.
#[derive(Debug)]
pub enum DiskJob {
    /// Creates a file for appending; fails if it exists. Parent folders are made.
    Create {
        /// The name it goes by from now on.
        file: FileId,
        /// Where it lies.
        path: PathBuf,
    },
    /// Makes `file` stand for the process's standard output.
    Stdout {
        /// The name it goes by from now on.
        file: FileId,
    },
    /// Appends bytes as they are, or as one gzip member of their own.
    Append {
        /// The file.
        file: FileId,
        /// What to append, before compression.
        bytes: Vec<u8>,
        /// Whether to write one gzip member holding the bytes.
        gzip: bool,
        /// Handed back with [`DiskDone`], so that the caller knows which job it was.
        tag: u64,
    },
    /// Makes what was appended so far survive a crash of the machine.
    Sync {
        /// The file.
        file: FileId,
        /// Handed back with [`DiskDone`].
        tag: u64,
    },
    /// Closes a file and gives it its final name.
    Finish {
        /// The file.
        file: FileId,
        /// Its final name; `None` keeps the present one.
        rename: Option<PathBuf>,
    },
    /// Replaces a whole file so that a reader sees the old or the new content, never a part.
    Replace {
        /// The file to replace.
        path: PathBuf,
        /// Its new content.
        bytes: Vec<u8>,
        /// Handed back with [`DiskDone`].
        tag: u64,
    },
}

impl DiskJob {
    /// How many bytes the job keeps in memory until it is done.
    pub fn held(&self) -> usize {
        match self {
            DiskJob::Append { bytes, .. } | DiskJob::Replace { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }
}

/// What became of a job. Only `Append`, `Sync` and `Replace` report success; every job reports failure.
#[derive(Debug)]
pub struct DiskDone {
    /// The job's tag (0 for jobs that have none).
    pub tag: u64,
    /// The file, where the job named one.
    pub file: Option<FileId>,
    /// How many bytes of memory the job gave back.
    pub held: usize,
    /// Where the bytes lie in the file, or what the machine said.
    pub result: io::Result<Written>,
    /// The bytes of an append that failed, before compression; else none.
    pub unwritten: Vec<u8>,
}

/// The place of appended bytes in their file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes in the file, after compression.
    pub length: u64,
}
