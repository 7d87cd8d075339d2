//! Cuts the files of an output directory to the last commit of their crawl.
//!
//! First everything is checked, which changes nothing; the result is a list of steps. Each step has the
//! same effect if it is done twice, and the list made after any part of it leads to the same files: a
//! crash while it is performed is mended by the next resume.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::sink::commit::{Commit, FileLength};
use crate::sink::directory::error::DirectoryError;
use crate::sink::directory::indexes::{self, index_of};
use crate::sink::directory::line_file::LineFileName;
use crate::sink::directory::outputs::{
    FILTERED, LINKS, OPEN, RESULTS, SERIES, STDOUT, WARCS, entries, is_warc_of_ours,
};
use crate::sink::warc::serial_of;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Cuts a file to this length, and syncs it.
    Cut(FileLength),
    /// Gives a file its final name.
    Rename { from: PathBuf, to: PathBuf },
    /// Moves a file to the folder of what no commit has.
    SetAside { from: PathBuf, to: PathBuf },
    /// Copies what a file has beyond this length to the same folder.
    KeepTail { of: FileLength, to: PathBuf },
    /// Deletes a file.
    Delete(PathBuf),
    /// Deletes the index of a WARC file that is cut or moved by the next step.
    DeleteIndex(PathBuf),
    /// Syncs the entries of a folder.
    SyncFolder(PathBuf),
}

impl Step {
    /// Whether a file is changed by it, or gets another name.
    fn concerns(&self, path: &Path) -> bool {
        match self {
            Step::Cut(file) | Step::KeepTail { of: file, .. } => file.path == path,
            Step::Rename { from, .. } | Step::SetAside { from, .. } => from == path,
            Step::Delete(deleted) => deleted == path,
            Step::DeleteIndex(_) | Step::SyncFolder(_) => false,
        }
    }
}

/// What is done with results that are newer than the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newer {
    /// They are cut off: they were written since. A file that proves a newer commit is an error.
    Cut,
    /// They are kept in another folder: newer commits may be lost.
    SetAside,
}

/// The changes after which the files of `folder` are those of its last commit.
pub(super) fn plan(
    folder: &Path,
    last: Option<&Commit>,
    newer: Newer,
) -> Result<Vec<Step>, DirectoryError> {
    let listed = last.map_or(&[][..], |commit| &commit.files);
    let is_listed = |path: &Path| listed.iter().any(|file| file.path == path);
    let (warcs, stdout) = (folder.join(WARCS), folder.join(STDOUT));
    let mut steps = Vec::new();
    for file in listed {
        if file.path == stdout {
            // It cannot be cut: the line `resumed_after` says what counts.
        } else if file.path.parent() == Some(&warcs) && is_warc_of_ours(&file.path) {
            let mut open = file.path.clone().into_os_string();
            open.push(OPEN);
            plan_closed(folder, file, open.into(), newer, &mut steps)?;
        } else if file.path.starts_with(folder) {
            plan_lines(folder, file, &is_listed, newer, &mut steps)?;
        }
    }
    plan_newer_lines(folder, last, newer, &mut steps)?;
    let found = entries(&warcs).map_err(|(path, cause)| unusable(&path, cause))?;
    let has_warcs = !found.is_empty();
    // The last one is in each commit.
    let last_serial = (listed.iter())
        .filter_map(|file| serial_of(folder, &file.path))
        .max();
    for path in found.into_iter().filter(|path| is_warc_of_ours(path)) {
        if path.extension() == Some(OPEN[1..].as_ref()) {
            match (is_listed(&path.with_extension("")), newer) {
                (true, _) => {}
                (false, Newer::Cut) if last.is_some() => steps.push(Step::Delete(path)),
                (false, _) => set_aside(folder, path, &mut steps),
            }
        } else if last.is_none() {
            set_aside(folder, path, &mut steps);
        } else if last_serial.is_some() && serial_of(folder, &path) > last_serial {
            // It got its final name after a commit that has it.
            match newer {
                Newer::Cut => return Err(DirectoryError::OlderState(path)),
                Newer::SetAside => set_aside(folder, path, &mut steps),
            }
        }
    }
    let has_aside = |step: &Step| matches!(step, Step::SetAside { .. } | Step::KeepTail { .. });
    if steps.iter().any(has_aside) {
        steps.push(Step::SyncFolder(folder.join(UNCOMMITTED)));
    }
    steps.extend(has_warcs.then_some(Step::SyncFolder(warcs)));
    steps.push(Step::SyncFolder(folder.to_owned()));
    Ok(steps.into_iter().flat_map(without_stale_index).collect())
}

/// A step, after another that deletes the index which would be stale behind it.
fn without_stale_index(step: Step) -> impl Iterator<Item = Step> {
    let warc = match &step {
        Step::Cut(file) => Some(&file.path),
        Step::SetAside { from, .. } => Some(from),
        _ => None,
    };
    let index = warc.and_then(|warc| index_of(warc)).map(Step::DeleteIndex);
    index.into_iter().chain([step])
}

/// Without a commit a file is kept elsewhere: the crawl may have ended before its first one, or the file that
/// had it may be lost, and with it a month of results.
fn set_aside(folder: &Path, from: PathBuf, steps: &mut Vec<Step>) {
    if let Some(name) = from.file_name() {
        let to = place_aside(folder, name.as_ref());
        steps.push(Step::SetAside { from, to });
    }
}

/// Cuts a file that has at least this length; what it has beyond is kept elsewhere under `name`, or not.
fn cut(folder: &Path, file: FileLength, name: &Path, newer: Newer, steps: &mut Vec<Step>) {
    let has_more = fs::metadata(&file.path).is_ok_and(|found| found.len() > file.length);
    if newer == Newer::SetAside && has_more {
        let (of, to) = (file.clone(), place_aside(folder, name));
        steps.push(Step::KeepTail { of, to });
    }
    steps.push(Step::Cut(file));
}

/// A free name in the folder of what no commit has.
fn place_aside(folder: &Path, name: &Path) -> PathBuf {
    let kept = folder.join(UNCOMMITTED).join(name);
    let mut to = kept.clone();
    let mut number = 1;
    // Each skipped name is that of an existing file, so this ends.
    while fs::symlink_metadata(&to).is_ok() {
        number += 1;
        let mut name = kept.clone().into_os_string();
        name.push(format!(".{number}"));
        to = name.into();
    }
    to
}

/// A file to which nothing is added keeps what was committed and gets its final name. `open`: the name that it has
/// before.
fn plan_closed(
    folder: &Path,
    file: &FileLength,
    open: PathBuf,
    newer: Newer,
    steps: &mut Vec<Step>,
) -> Result<(), DirectoryError> {
    match (length_of(&open)?, length_of(&file.path)?) {
        (Some(_), Some(_)) => {
            return Err(DirectoryError::Changed {
                path: file.path.clone(),
                reason: format!("exists twice, also as {}", open.display()),
            });
        }
        (Some(_), None) if file.length == 0 => steps.push(Step::Delete(open)),
        (Some(length), None) => {
            check(&open, Some(length), file.length)?;
            let length = FileLength::new(open.clone(), file.length);
            let name = file.path.file_name().unwrap_or_default();
            cut(folder, length, name.as_ref(), newer, steps);
            steps.push(Step::Rename {
                from: open,
                to: file.path.clone(),
            });
        }
        // It gets its final name once a commit has all of it.
        (None, Some(length)) if length > file.length => match newer {
            Newer::Cut => return Err(DirectoryError::OlderState(file.path.clone())),
            Newer::SetAside => {
                let name = file.path.file_name().unwrap_or_default();
                cut(folder, file.clone(), name.as_ref(), newer, steps);
            }
        },
        (None, Some(length)) => check(&file.path, Some(length), file.length)?,
        // A file with a final name may be moved away, and an empty one was deleted.
        (None, None) if file.length == 0 => {}
        (None, None) => log::warn!(
            "{} is not there, and {} bytes of it were committed: it was deleted or moved away, and what it had \
             is not written again",
            file.path.display(),
            file.length
        ),
    }
    Ok(())
}

/// A file of lines without a number is continued, one with a number is closed. A file of another sink may still
/// have another name.
fn plan_lines(
    folder: &Path,
    file: &FileLength,
    is_listed: &dyn Fn(&Path) -> bool,
    newer: Newer,
    steps: &mut Vec<Step>,
) -> Result<(), DirectoryError> {
    let length = length_of(&file.path)?;
    let Some((first, name)) = series_of(folder, &file.path) else {
        return match length {
            Some(_) => plan_continued(folder, file, newer, steps),
            None => Ok(()),
        };
    };
    if name.number.is_some() {
        let mut open = name.open().path(&first);
        // Until it gets its number: others were begun after it.
        let unnumbered = LineFileName::unnumbered(name.compression).path(&first);
        if name.number == Some(1)
            && length.is_none()
            && length_of(&open)?.is_none()
            && length_of(&unnumbered)?.is_some()
            && !is_listed(&unnumbered)
        {
            open = unnumbered;
        }
        return plan_closed(folder, file, open, newer, steps);
    }
    let closed = LineFileName::numbered(1, name.compression).path(&first);
    match (length, length_of(&closed)?, newer) {
        // It got its number after a commit that has it.
        (None, Some(_), Newer::Cut) => Err(DirectoryError::OlderState(closed)),
        (None, Some(length), Newer::SetAside) => {
            check(&closed, Some(length), file.length)?;
            let name = closed.file_name().unwrap_or_default();
            let cut_to = FileLength::new(closed.clone(), file.length);
            cut(folder, cut_to, name.as_ref(), newer, steps);
            steps.push(Step::Rename {
                from: closed,
                to: file.path.clone(),
            });
            Ok(())
        }
        _ => plan_continued(folder, file, newer, steps),
    }
}

/// Lines are continued.
fn plan_continued(
    folder: &Path,
    file: &FileLength,
    newer: Newer,
    steps: &mut Vec<Step>,
) -> Result<(), DirectoryError> {
    check(&file.path, length_of(&file.path)?, file.length)?;
    let name = file.path.file_name().unwrap_or_default();
    cut(folder, file.clone(), name.as_ref(), newer, steps);
    Ok(())
}

/// Files of lines that the commit does not have.
fn plan_newer_lines(
    folder: &Path,
    last: Option<&Commit>,
    newer: Newer,
    steps: &mut Vec<Step>,
) -> Result<(), DirectoryError> {
    let listed = last.map_or(&[][..], |commit| &commit.files);
    let is_listed = |path: &Path| listed.iter().any(|file| file.path == path);
    let has_stdout = is_listed(&folder.join(STDOUT));
    for path in entries(folder).map_err(|(path, cause)| unusable(&path, cause))? {
        let Some((first, name)) = series_of(folder, &path) else {
            continue;
        };
        let is_results = first == folder.join(RESULTS);
        let is_links = [LINKS, FILTERED]
            .iter()
            .any(|name| first == folder.join(name));
        // A reader of standard output may collect the lines there.
        let is_of_reader = is_results && has_stdout;
        let is_planned = steps.iter().any(|step| step.concerns(&path));
        if is_of_reader || is_planned || is_listed(&name.closed().path(&first)) {
            continue;
        }
        match name.number {
            None => {
                let has_lines = length_of(&path)? > Some(0);
                // The commit has no lines, and a run with another compression began with this file.
                let is_first = |file: &FileLength| {
                    let name = LineFileName::of(&file.path, &first);
                    file.length == 0 && name.is_some_and(|name| name.number.is_none())
                };
                let is_begun = listed.iter().any(is_first);
                if is_results && last.is_some() && has_lines && !is_begun {
                    return Err(DirectoryError::Changed {
                        path,
                        reason: "is not in the last commit of the state".to_owned(),
                    });
                }
                let is_kept = last.is_none() || newer == Newer::SetAside && is_results;
                match has_lines && is_kept && (is_results || is_links) {
                    true => set_aside(folder, path, steps),
                    false => steps.push(Step::Delete(path)),
                }
            }
            Some(_) if name.is_open => match (last, newer) {
                (Some(_), Newer::Cut) => steps.push(Step::Delete(path)),
                _ => set_aside(folder, path, steps),
            },
            Some(_) if last.is_none() => set_aside(folder, path, steps),
            Some(number) => {
                let numbers = listed.iter().filter_map(|file| {
                    let name = LineFileName::of(&file.path, &first)?;
                    name.number
                });
                if number <= numbers.max().unwrap_or(0) {
                    continue;
                }
                // It got its final name after a commit that has it.
                match newer {
                    Newer::Cut => return Err(DirectoryError::OlderState(path)),
                    Newer::SetAside => set_aside(folder, path, steps),
                }
            }
        }
    }
    Ok(())
}

/// The first file of the series of lines that a path is in, and its name there.
fn series_of(folder: &Path, path: &Path) -> Option<(PathBuf, LineFileName)> {
    SERIES.iter().find_map(|name| {
        let first = folder.join(name);
        let name = LineFileName::of(path, &first)?;
        Some((first, name))
    })
}

/// An error if a file does not have all that was committed.
fn check(path: &Path, length: Option<u64>, committed: u64) -> Result<(), DirectoryError> {
    let reason = match length {
        Some(length) if length >= committed => return Ok(()),
        Some(length) => {
            format!("is cut short: it has {length} bytes, and {committed} were committed")
        }
        None => format!("is missing, and {committed} bytes of it were committed"),
    };
    Err(DirectoryError::Changed {
        path: path.to_owned(),
        reason,
    })
}

/// `None` if there is no such file.
fn length_of(path: &Path) -> Result<Option<u64>, DirectoryError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, error)),
    }
}

/// Makes a change.
pub(super) fn perform(step: &Step) -> Result<(), DirectoryError> {
    match step {
        Step::Cut(file) => perform_cut(file).map_err(|cause| unusable(&file.path, cause)),
        Step::KeepTail { of, to } => keep_tail(of, to).map_err(|cause| unusable(to, cause)),
        Step::Rename { from, to } => fs::rename(from, to).map_err(|cause| unusable(to, cause)),
        Step::SetAside { from, to } => {
            log::warn!(
                "no commit of the crawl's state has {}: it is kept as {}",
                from.display(),
                to.display()
            );
            let parent = to.parent().unwrap_or(to);
            fs::create_dir_all(parent)
                .and_then(|()| fs::rename(from, to))
                .map_err(|cause| unusable(to, cause))
        }
        Step::DeleteIndex(path) => indexes::remove(path).map_err(|cause| unusable(path, cause)),
        Step::Delete(path) => perform_deletion(path).map_err(|cause| unusable(path, cause)),
        Step::SyncFolder(path) => File::open(path)
            .and_then(|folder| folder.sync_all())
            .map_err(|cause| unusable(path, cause)),
    }
}

fn perform_deletion(path: &Path) -> io::Result<()> {
    let bytes = fs::metadata(path)?.len();
    if bytes > 0 {
        log::warn!(
            "{}: all its {bytes} bytes, after the last commit of the state, are deleted: {AGAIN}",
            path.display()
        );
    }
    fs::remove_file(path)
}

fn perform_cut(file: &FileLength) -> io::Result<()> {
    let mut handle = OpenOptions::new().read(true).write(true).open(&file.path)?;
    let length = handle.metadata()?.len();
    if length > file.length {
        let bytes = length - file.length;
        let name = file.path.as_os_str().to_string_lossy();
        let is_text = [".jsonl", ".jsonl.open"]
            .iter()
            .any(|ending| name.ends_with(ending));
        let lines = match is_text {
            true => format!(" ({} lines)", lines_from(&mut handle, file.length)?),
            false => String::new(),
        };
        log::warn!(
            "{}: {bytes} bytes{lines} after the last commit of the state are cut off: {AGAIN}",
            file.path.display()
        );
    }
    handle.set_len(file.length)?;
    handle.sync_all()
}

/// Number of line ends from an offset on.
fn lines_from(file: &mut File, offset: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(offset))?;
    let (mut block, mut lines) = (vec![0; BLOCK], 0);
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(lines),
            Ok(read) => lines += block[..read].iter().filter(|byte| **byte == b'\n').count() as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Copies what a file has beyond a length.
fn keep_tail(of: &FileLength, to: &Path) -> io::Result<()> {
    let mut from = File::open(&of.path)?;
    from.seek(SeekFrom::Start(of.length))?;
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    let mut kept = File::create(to)?;
    let bytes = io::copy(&mut from, &mut kept)?;
    kept.sync_all()?;
    log::warn!(
        "no commit of the crawl's state has the last {bytes} bytes of {}: they are kept as {}",
        of.path.display(),
        to.display()
    );
    Ok(())
}

fn unusable(path: &Path, cause: io::Error) -> DirectoryError {
    DirectoryError::Unusable {
        path: path.to_owned(),
        cause,
    }
}

/// What becomes of results that are cut off.
const AGAIN: &str = "the requests are sent again, but for those that must not be sent twice";

/// The folder of what no commit has.
const UNCOMMITTED: &str = "uncommitted";

/// Size of the blocks in which lines are counted.
const BLOCK: usize = 64 << 10;

#[cfg(test)]
mod tests;
