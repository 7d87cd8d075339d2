//! Names of the output files of a crawl.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The result lines.
pub(in crate::sink) const RESULTS: &str = "results.jsonl";

/// Result lines on standard output, in the list of a commit: their number is in place of a length.
pub(in crate::sink) const STDOUT: &str = "-";

/// Decisions about paces.
pub(in crate::sink) const DECISIONS: &str = "throttle.jsonl";

/// The archive of robots.txt.
pub(in crate::sink) const ROBOTS: &str = "robots.jsonl";

/// The links of pages.
pub(in crate::sink) const LINKS: &str = "links.jsonl";

/// The links that filters leave out.
pub(in crate::sink) const FILTERED: &str = "filtered.jsonl";

/// The files of lines, each the first of a series.
pub(in crate::sink) const SERIES: [&str; 5] = [RESULTS, DECISIONS, ROBOTS, LINKS, FILTERED];

/// The folder of WARC files.
pub(super) const WARCS: &str = "warc";

/// Appended to the final name of a WARC file that is being written.
pub(in crate::sink) const OPEN: &str = ".open";

/// A folder's entries sorted by name; empty if the folder does not exist.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    };
    match list() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| (folder.to_owned(), error)),
    }
}

/// Whether a crawl writes WARC files of such names.
pub(super) fn is_warc_of_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        let name = name.strip_suffix(OPEN).unwrap_or(name);
        name.starts_with("argiope-") && name.ends_with(".warc.gz")
    })
}
