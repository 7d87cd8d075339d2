//! How many sockets the process may have.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's limit of open files as far as it may, and says where it is now.
///
/// The limit is the whole process's, so the library never calls this by itself: a program that
/// wants many sockets does, before it makes a crawler.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // It was allowed to be as high as its maximum; if that is refused, it stays where it was.
    let _ = setrlimit(Resource::Nofile, raised);
    open_files()
}

/// How many files the process may have open at present.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many sockets the open-file limit leaves, at most `wanted`.
pub(super) fn sockets_allowed(wanted: usize) -> io::Result<usize> {
    let limit = open_files();
    let left = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(KEPT_BACK);
    match left.min(wanted) {
        0 => Err(io::Error::other(format!(
            "the limit of {limit} open files leaves none for sockets; raise it above {KEPT_BACK}"
        ))),
        allowed => Ok(allowed),
    }
}

/// Descriptors for files, pipes and the back end itself.
const KEPT_BACK: usize = 64;
