//! Files that are made from others: the `io` floor opens them, and floors above say what is made.

use std::fmt;
use std::io::{self, Read, Write};

use crate::base::line_sorter::Scratch;

/// The cause of the error of a derivation that was broken off: its file is not waited for any more. Errors of files are
/// other ones.
#[derive(Debug)]
pub struct BrokenOff {
    /// What was not made.
    what: String,
}

impl BrokenOff {
    /// The error.
    pub fn error(what: impl fmt::Display) -> io::Error {
        let what = what.to_string();
        io::Error::other(BrokenOff { what })
    }

    /// Whether an error is one.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<BrokenOff>())
    }
}

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: it was broken off", self.what)
    }
}

impl std::error::Error for BrokenOff {}

/// Makes the content of a file from that of another. See [`DiskJob::Derive`](crate::DiskJob::Derive).
pub trait Derive: fmt::Debug + Send {
    /// Reads what it needs `from` the one file, and writes all of the other. It may take as long as reading both; it
    /// is broken off by errors of its files, which it returns.
    ///
    /// # Errors
    /// Those of the files; [`InvalidData`](io::ErrorKind::InvalidData) if the content is not as expected.
    fn derive(&mut self, files: DeriveFiles<'_>) -> io::Result<()>;
}

/// The files of a derivation.
pub struct DeriveFiles<'a> {
    /// The file that is read, from its start.
    pub from: &'a mut dyn Read,
    /// The new file.
    pub to: &'a mut dyn Write,
    /// For what does not fit into memory: an empty file, which is deleted.
    pub scratch: &'a mut dyn Scratch,
}

impl fmt::Debug for DeriveFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeriveFiles")
    }
}
