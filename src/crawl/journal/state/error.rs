//! Why a state cannot be begun or read.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::machine;
use crate::base::sentence::debug_as_sentence;
use crate::crawl::journal::damage::Damage;
use crate::crawl::journal::segment::ReadError;
use crate::state::journal::SegmentError;
use crate::state::replay::ReplayError;

/// Why a state cannot be begun or read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// There is none.
    #[error("{} has no state of a crawl to resume: name the directory of one with --out", .0.display())]
    None(PathBuf),
    /// A file or folder cannot be read or made.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A file with keys of the seen set is missing, damaged, or cannot be read.
    #[error(
        "{}: {cause}: restore the file from a backup, or continue without its keys by adding --salvage to \
         --resume",
        path.display()
    )]
    SeenRun {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: io::Error,
    },
    /// What the crawl was given is too long for a record.
    #[error(
        "settings and URLs of the command line are {bytes} bytes, and the state holds {SETTINGS_MAX}: give \
         URLs in a seeds file, or set STATE to false"
    )]
    Settings {
        /// Its length.
        bytes: usize,
    },
    /// A file is damaged, or of a newer version.
    #[error("{}: {cause}", path.display())]
    Segment {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: SegmentError,
    },
    /// A part of a file is not as it was written.
    #[error(
        "{0}: restore the file from a backup, or continue with what is intact by adding --salvage to \
         --resume"
    )]
    Damaged(Box<Damage>),
    /// The records of a file contradict each other.
    #[error("{}: {cause}", path.display())]
    Replay {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        #[source]
        cause: ReplayError,
    },
}

debug_as_sentence!(StateError);

impl StateError {
    pub(super) fn in_file(path: &Path, cause: ReadError) -> Self {
        let path = path.to_owned();
        match cause {
            ReadError::Io(cause) => StateError::Io { path, cause },
            ReadError::Segment(cause) => StateError::Segment { path, cause },
            ReadError::Damaged(damage) => StateError::Damaged(Box::new(damage)),
            ReadError::Replay(cause) => StateError::Replay { path, cause },
        }
    }

    /// The stable code.
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            StateError::None(_) => "state.none".into(),
            StateError::Settings { .. } => "state.settings".into(),
            StateError::Io { cause, .. } | StateError::SeenRun { cause, .. } => {
                format!("file.{}", machine::code(cause)).into()
            }
            StateError::Segment { cause, .. } => cause.code().into(),
            StateError::Damaged(_) => "journal.damaged".into(),
            StateError::Replay { cause, .. } => cause.code().into(),
        }
    }

    /// Returns whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            StateError::None(_) | StateError::Settings { .. } | StateError::Damaged(_) => false,
            StateError::Io { cause, .. } | StateError::SeenRun { cause, .. } => {
                machine::is_temporary(cause)
            }
            StateError::Segment { cause, .. } => cause.is_retryable(),
            StateError::Replay { cause, .. } => cause.is_retryable(),
        }
    }
}

/// Greatest length of what a crawl was given, in bytes.
pub const SETTINGS_MAX: usize = 32 << 20;
