//! What our own machine says no with: a stable name for it, and whether it may pass.

use std::io::{Error, ErrorKind};

/// The stable name of a refusal by the system.
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

/// Whether a volume, or its user's quota, has no room left. This can pass.
pub fn is_full(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Whether the same may be had later, without anybody's doing anything about it: others give back
/// descriptors and memory. A disk that is full stays so.
pub fn passes(error: &Error) -> bool {
    let kinds = [
        ErrorKind::Interrupted,
        ErrorKind::OutOfMemory,
        ErrorKind::ResourceBusy,
        ErrorKind::TimedOut,
        ErrorKind::WouldBlock,
    ];
    kinds.contains(&error.kind()) || code(error) == "open_files"
}
