//! Writes text to stderr.

use std::io::{self, Write};

use argiope::parts::printable;

/// Writes text to stderr in one piece, with control characters escaped.
///
/// A write error is ignored: the terminal may be closed, the disk full or the pipe's reader gone, and
/// the crawl continues. The macros of the standard library panic.
pub fn write(text: &str) {
    let _ = io::stderr().lock().write_all(printable(text).as_bytes());
}

/// As [`write`], with a line end.
pub fn write_line(line: &str) {
    write(&format!("{line}\n"));
}
