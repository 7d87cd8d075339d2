//! Targets of `--results` and `--hdr`: a file, a pipe or a device.
//!
//! No file is removed or replaced, and an existing file is truncated only after all checks have passed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::Usage;

/// An opened output; nothing has been written or truncated yet.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    /// Whether it was opened by name; otherwise it is standard output.
    is_named: bool,
}

impl Output {
    /// Opens the path of an option; a missing file is created. For a pipe without a reader, this waits
    /// for one.
    pub fn open(flag: &str, path: &Path) -> Result<Self, Usage> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        Ok(Output {
            path: path.to_owned(),
            file: file.map_err(|error| cannot_write(flag, path, &error))?,
            is_named: true,
        })
    }

    /// The process's standard output.
    pub fn stdout() -> io::Result<Self> {
        Ok(Output {
            path: PathBuf::from("standard output"),
            file: io::stdout().as_fd().try_clone_to_owned()?.into(),
            is_named: false,
        })
    }

    /// Whether both are the same file, in which each would overwrite the other.
    pub fn is_same_file(&self, other: &Output) -> io::Result<bool> {
        let (ours, theirs) = (self.file.metadata()?, other.file.metadata()?);
        Ok(ours.is_file() && (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()))
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Truncates a file; has no effect on a pipe or device.
    pub fn empty(&self) -> io::Result<()> {
        match self.is_file()? {
            true => self.file.set_len(0),
            false => Ok(()),
        }
    }

    /// Syncs the written data to disk, if the output supports that.
    pub fn sync(&self) -> io::Result<()> {
        match self.is_file()? {
            true => self.file.sync_data(),
            false => Ok(()),
        }
    }

    fn is_file(&self) -> io::Result<bool> {
        Ok(self.is_named && self.file.metadata()?.is_file())
    }
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn cannot_write(flag: &str, path: &Path, error: &io::Error) -> Usage {
    Usage(format!(
        "{flag} {}: cannot be written: {error}; name a file in an existing folder",
        path.display()
    ))
}
