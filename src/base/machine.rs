//! Classifies errors of this machine: a stable code, and whether they can be temporary.

use std::io::{Error, ErrorKind};

/// The stable code of a system error.
pub fn code(error: &Error) -> &'static str {
    match (error.kind(), error.raw_os_error()) {
        (_, Some(libc::EMFILE | libc::ENFILE)) => "open_files",
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge, _) => "full",
        (ErrorKind::PermissionDenied, _) => "denied",
        (ErrorKind::ReadOnlyFilesystem, _) => "read_only",
        (ErrorKind::NotFound, _) => "not_found",
        (ErrorKind::OutOfMemory, _) => "memory",
        (ErrorKind::Unsupported, _) => "unsupported",
        _ => "other",
    }
}

/// Returns whether a volume, or its user's quota, is full. This can be temporary.
pub fn is_full(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Returns whether the operation may succeed later without intervention: other processes free
/// descriptors and memory. A full disk does not count.
pub fn is_temporary(error: &Error) -> bool {
    let kinds = [
        ErrorKind::Interrupted,
        ErrorKind::OutOfMemory,
        ErrorKind::ResourceBusy,
        ErrorKind::TimedOut,
        ErrorKind::WouldBlock,
    ];
    kinds.contains(&error.kind()) || code(error) == "open_files"
}
