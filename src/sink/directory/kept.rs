//! Files that a crawl would delete or replace, and that are its inputs or no crawl's: each is kept under a name of its own.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is an input of this crawl.
    Input,
    /// No crawl has written it.
    Foreign,
}

/// An input of a crawl that is an output file of an earlier crawl in its directory, with the name under which it is
/// kept: its own with `.old` or `.oldN` appended, which no other file has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeptInput {
    /// Its path.
    pub path: PathBuf,
    /// The path that it gets.
    pub kept: PathBuf,
    /// Its device and inode.
    id: (u64, u64),
}

impl KeptInput {
    /// This file, with a free name.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let name = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let id = id_of(&fs::symlink_metadata(path)?);
        let mut kept = name(".old");
        let mut number = 1;
        // Each skipped name is that of an existing file, so this ends.
        while fs::symlink_metadata(&kept).is_ok() {
            number += 1;
            kept = name(&format!(".old{number}"));
        }
        Ok(KeptInput {
            path: path.to_owned(),
            kept,
            id,
        })
    }

    /// Whether this is the metadata of the same file.
    pub fn is(&self, file: &Metadata) -> bool {
        id_of(file) == self.id
    }

    /// Whether it has the name under which it is kept. It has not if another process changed the directory meanwhile.
    ///
    /// Makes a blocking call to the file system.
    pub fn is_kept(&self) -> bool {
        fs::symlink_metadata(&self.kept).is_ok_and(|file| self.is(&file))
    }

    /// Gives it the name; nothing is replaced. It keeps its first name too, if the file system has hard links: until
    /// the state has the new name, an earlier one may have the first.
    ///
    /// Makes blocking calls to the file system.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn keep(&self) -> io::Result<()> {
        match fs::hard_link(&self.path, &self.kept) {
            Ok(()) => {
                self.warn(Kept::Input);
                Ok(())
            }
            Err(_) => self.rename(Kept::Input),
        }
    }

    /// Renames it.
    pub(super) fn rename(&self, why: Kept) -> io::Result<()> {
        fs::rename(&self.path, &self.kept)?;
        self.warn(why);
        Ok(())
    }

    fn warn(&self, why: Kept) {
        let (path, kept) = (self.path.display(), self.kept.display());
        match why {
            Kept::Input => log::warn!("{path} is an input of this crawl: it is kept as {kept}"),
            Kept::Foreign => log::warn!("{path} was not written by a crawl: it is kept as {kept}"),
        }
    }
}

fn id_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
