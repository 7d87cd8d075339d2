//! Errors of output directories.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use crate::base::machine;
use crate::base::sentence::debug_as_sentence;
use crate::sink::directory::lock::Owner;

/// Why a directory cannot be used for a crawl.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Another crawl is writing to it.
    #[error(
        "{} is in use by another crawl ({owner}): wait for its end, or choose another directory with \
         --out",
        folder.display()
    )]
    InUse {
        /// The directory.
        folder: PathBuf,
        /// The other crawl.
        owner: Owner,
    },
    /// It contains a crawl, and `--overwrite` was not given.
    #[error(
        "{} already holds a crawl ({}): continue it with --resume, choose another directory with --out, \
         or delete that crawl's files with --overwrite",
        folder.display(), found.display()
    )]
    HoldsACrawl {
        /// The directory.
        folder: PathBuf,
        /// The file that shows it.
        found: PathBuf,
    },
    /// A crawl that is resumed continues or replaces this file, and was given it as seeds.
    #[error("{} is an output file of this crawl, which writes to it: copy it, and give the copy to --seeds", .0.display())]
    InputIsOutput(PathBuf),
    /// Its state has files of another program or version.
    #[error("{} holds the state of a crawl of another version: choose another directory with --out, or delete it by hand", .0.display())]
    HoldsState(PathBuf),
    /// The path is not a directory, or leads through a file.
    #[error("{} is not a directory: choose another one with --out", .0.display())]
    NotADirectory(PathBuf),
    /// A file is not as the last commit of the crawl left it, so the crawl cannot be resumed.
    #[error(
        "cannot resume: {} {reason}: restore it, or begin a new crawl in another directory with --out",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, after its name.
        reason: String,
    },
    /// A file shows that the state had a newer commit than its last one.
    #[error(
        "cannot resume: the state is older than {}, which a newer commit had: restore the newest state, or add \
         --salvage to move newer results to uncommitted/ and fetch what they are of again",
        .0.display()
    )]
    OlderState(PathBuf),
    /// The file system refuses.
    #[error("cannot write to {}: {cause}: choose another directory with --out, or mend the cause", path.display())]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

debug_as_sentence!(DirectoryError);

impl DirectoryError {
    /// Stable error code.
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            DirectoryError::InUse { .. } => "directory.in_use".into(),
            DirectoryError::HoldsACrawl { .. } => "directory.holds_a_crawl".into(),
            DirectoryError::InputIsOutput(_) => "directory.input_is_output".into(),
            DirectoryError::HoldsState(_) => "directory.holds_state".into(),
            DirectoryError::Changed { .. } => "directory.changed".into(),
            DirectoryError::OlderState(_) => "directory.older_state".into(),
            DirectoryError::NotADirectory(_) => "directory.not_one".into(),
            DirectoryError::Unusable { cause, .. } => {
                format!("directory.{}", machine::code(cause)).into()
            }
        }
    }

    /// Returns whether it may be usable later without any change.
    pub fn is_retryable(&self) -> bool {
        match self {
            DirectoryError::InUse { .. } => true,
            DirectoryError::Unusable { cause, .. } => machine::is_temporary(cause),
            _ => false,
        }
    }
}
