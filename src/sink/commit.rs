//! Commits: by which results become final.

use std::fmt;
use std::path::PathBuf;

/// Number of a commit. The first of a crawl is 1, and each is greater by 1 than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An epoch that the crawl has recorded, with the files that its results are in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// Its number.
    pub epoch: Epoch,
    /// What [`DiskSink::prepared`](crate::DiskSink::prepared) returned for it.
    pub files: Vec<FileLength>,
}

/// How much of an output file is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileLength {
    /// The path that the file has when it is complete. Until then it may have another, which is the
    /// sink's business.
    pub path: PathBuf,
    /// Number of bytes from its start that belong to the epoch or to one before it.
    pub length: u64,
}

impl FileLength {
    /// This length of the file at `path`.
    pub fn new(path: impl Into<PathBuf>, length: u64) -> Self {
        FileLength {
            path: path.into(),
            length,
        }
    }
}
