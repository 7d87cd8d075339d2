//! `state/unread-00000001` and so on: what a pipe delivered and a crawl with a state did not take.
//!
//! No later run can read a pipe again. The one that resumes the crawl reads these files as seeds files, after the
//! seeds that the earlier runs were given; its state lists them from then on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use argiope::Request;

use super::feed::Unfed;
use super::pending;

/// The folder of the state in an output directory.
const STATE: &str = "state";

/// How the names begin; a number of eight digits follows.
const PREFIX: &str = "unread-";

/// Appended to the name while the file is written.
const UNFINISHED: &str = ".new";

/// Writes these seeds, one per line. Returns the file; `None` if there are none.
///
/// # Errors
/// The file cannot be written. The error contains the number of lines that were.
pub fn write(
    seeds: impl Iterator<Item = Request>,
    folder: &Path,
    wait: &mut dyn FnMut(&io::Error) -> bool,
) -> anyhow::Result<Option<PathBuf>> {
    let mut seeds = seeds.peekable();
    if seeds.peek().is_none() {
        return Ok(None);
    }
    let state = folder.join(STATE);
    let last = files(folder)?.pop().and_then(|last| number_of(&last));
    let name = format!("{PREFIX}{:08}", last.unwrap_or(0) + 1);
    let unfinished = state.join(format!("{name}{UNFINISHED}"));
    let path = state.join(name);
    if let Err(error) = pending::replace(seeds, &unfinished, &path, wait) {
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    pending::sync(&state)?;
    Ok(Some(path))
}

/// The files of the crawl in this directory, in the order in which they were written.
///
/// # Errors
/// The folder of the state cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(STATE))? {
        let path = entry?.path();
        if number_of(&path).is_some() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a path is that of such a file, of any crawl.
pub fn is_named(path: &Path) -> bool {
    let is_of_state = path.parent().is_some_and(|parent| parent.ends_with(STATE));
    is_of_state && number_of(path).is_some()
}

/// The path that such a file of the crawl in this directory has now: the directory may have been moved.
pub fn moved(path: &Path, folder: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    folder.join(STATE).join(name)
}

/// The requests of a file.
pub fn requests(path: &Path) -> anyhow::Result<impl Iterator<Item = Request> + use<>> {
    let seeds = super::feed::Seeds::open_regular(&[], &[path.to_owned()])?;
    Ok(Unfed::all_of(seeds))
}

fn number_of(path: &Path) -> Option<u64> {
    let number = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let is_number = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok()).flatten()
}
