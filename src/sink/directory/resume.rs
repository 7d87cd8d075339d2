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
    LINKS, OPEN, RESULTS, SERIES, STDOUT, WARCS, entries, is_warc_of_ours,
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
        let is_links = first == folder.join(LINKS);
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sink::commit::Epoch;

    type Contents = BTreeMap<String, String>;

    fn contents(files: &[(&str, &str)]) -> Contents {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        files.iter().map(owned).collect()
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn read(folder: &Path) -> Contents {
        let mut found = Contents::new();
        for below in [folder.to_owned(), folder.join(WARCS)] {
            for path in entries(&below).unwrap() {
                if path.is_file() {
                    let name = path.strip_prefix(folder).unwrap().display().to_string();
                    found.insert(name, fs::read_to_string(&path).unwrap());
                }
            }
        }
        found
    }

    fn commit(folder: &Path, files: &[(&str, u64)]) -> Commit {
        let length = |(name, length): &(&str, u64)| FileLength::new(folder.join(name), *length);
        Commit {
            epoch: Epoch(1),
            files: files.iter().map(length).collect(),
        }
    }

    fn resume(folder: &Path, last: Option<&Commit>) -> Result<(), DirectoryError> {
        plan(folder, last, Newer::Cut)?.iter().try_for_each(perform)
    }

    /// Resumes with these files and this commit, after each number of steps of a first try and again after
    /// the whole.
    fn check(files: &[(&str, &str)], listed: Option<&[(&str, u64)]>, expected: &[(&str, &str)]) {
        for done in 0.. {
            let folder = folder(files);
            let folder = folder.path();
            let last = listed.map(|files| commit(folder, files));
            let steps = plan(folder, last.as_ref(), Newer::Cut).unwrap();
            steps
                .iter()
                .take(done)
                .for_each(|step| perform(step).unwrap());
            for _ in 0..2 {
                resume(folder, last.as_ref()).unwrap();
                assert_eq!(read(folder), contents(expected), "after {done} steps");
            }
            if done == steps.len() {
                break;
            }
        }
    }

    const A: &str = "warc/argiope-20261121000001020-00000-a.warc.gz";
    const B: &str = "warc/argiope-20261121000001021-00001-a.warc.gz";
    const B_OPEN: &str = "warc/argiope-20261121000001021-00001-a.warc.gz.open";
    const C_OPEN: &str = "warc/argiope-20261121000001022-00002-a.warc.gz.open";

    #[test]
    fn files_are_cut_to_the_commit_and_newer_ones_deleted() {
        let files = [
            ("results.jsonl", "one\ntwo\nto"),
            ("throttle.jsonl", "all\n"),
            (A, "complete"),
            (B_OPEN, "record\0\0\0"),
            (C_OPEN, "newer"),
        ];
        let listed = [("results.jsonl", 8), ("throttle.jsonl", 4), (B, 6)];
        let expected = [
            ("results.jsonl", "one\ntwo\n"),
            ("throttle.jsonl", "all\n"),
            (A, "complete"),
            (B, "record"),
        ];
        check(&files, Some(&listed), &expected);
    }

    #[test]
    fn complete_files_keep_their_content_and_may_be_moved_away() {
        let lines = ("results.jsonl", "one\n");
        let listed = [("results.jsonl", 4), (A, 8), (B, 6)];
        check(
            &[lines, (A, "complete")],
            Some(&listed),
            &[lines, (A, "complete")],
        );
    }

    #[test]
    fn an_empty_warc_file_is_deleted() {
        let lines = ("results.jsonl", "");
        let listed = [("results.jsonl", 0), (B, 0)];
        check(&[lines, (B_OPEN, "begun")], Some(&listed), &[lines]);
    }

    #[test]
    fn files_begun_after_the_commit_are_deleted() {
        let files = [("results.jsonl", ""), ("throttle.jsonl", "new\n")];
        check(
            &files,
            Some(&[("results.jsonl", 0)]),
            &[("results.jsonl", "")],
        );
        let files = [("results.jsonl", "new\n"), (A, "complete"), (B_OPEN, "new")];
        check(&files, None, &[]);
    }

    #[test]
    fn lines_of_another_compression_after_a_commit_without_lines_are_deleted() {
        let begun = [("results.jsonl", ""), ("results.jsonl.zst", "newer")];
        let listed = [("results.jsonl", 0)];
        check(&begun, Some(&listed), &begun[..1]);
        let folder = folder(&begun);
        let folder = folder.path();
        let last = commit(folder, &listed);
        let steps = plan(folder, Some(&last), Newer::SetAside).unwrap();
        steps.iter().try_for_each(perform).unwrap();
        let kept = folder.join(UNCOMMITTED).join("results.jsonl.zst");
        assert_eq!(fs::read_to_string(kept).unwrap(), "newer");
        // Of lines that were committed, one who compressed them would be told.
        let last = commit(folder, &[("results.jsonl", 4)]);
        fs::write(folder.join("results.jsonl.zst"), "all").unwrap();
        fs::remove_file(folder.join("results.jsonl")).unwrap();
        let error = resume(folder, Some(&last)).expect_err("it is refused");
        assert_eq!(error.code(), "directory.changed");
    }

    #[test]
    fn without_a_commit_results_are_kept_elsewhere() {
        let files = [
            ("results.jsonl", "one\n"),
            (A, "complete"),
            (B_OPEN, "record"),
        ];
        let folder = folder(&files);
        let folder = folder.path();
        let kept = |name: &str| fs::read_to_string(folder.join(UNCOMMITTED).join(name));
        resume(folder, None).unwrap();
        assert_eq!(read(folder), contents(&[]));
        fs::write(folder.join("results.jsonl"), "two\n").unwrap();
        resume(folder, None).unwrap();
        assert_eq!(kept("results.jsonl").unwrap(), "one\n");
        assert_eq!(kept("results.jsonl.2").unwrap(), "two\n");
        for (warc, content) in [(A, "complete"), (B_OPEN, "record")] {
            let name = Path::new(warc).file_name().unwrap().to_str().unwrap();
            assert_eq!(kept(name).unwrap(), content);
        }
        // An empty file has nothing to keep.
        fs::write(folder.join("results.jsonl"), "").unwrap();
        resume(folder, None).unwrap();
        assert!(kept("results.jsonl.3").is_err());
    }

    #[test]
    fn links_without_a_commit_are_kept_elsewhere_and_newer_ones_deleted() {
        let files = [("results.jsonl", "one\n"), ("links.jsonl", "of it\n")];
        check(&files, Some(&[("results.jsonl", 4)]), &files[..1]);
        let folder = folder(&files);
        resume(folder.path(), None).unwrap();
        let kept = folder.path().join(UNCOMMITTED).join("links.jsonl");
        assert_eq!(fs::read_to_string(kept).unwrap(), "of it\n");
    }

    #[test]
    fn a_complete_file_after_those_of_the_commit_proves_a_newer_one() {
        let files = [
            ("results.jsonl", "one\ntwo\n"),
            (A, "complete"),
            (B, "complete"),
            (C_OPEN, "newer"),
        ];
        let folder = folder(&files);
        let folder = folder.path();
        let older = commit(folder, &[("results.jsonl", 4), (A, 8)]);
        let error = resume(folder, Some(&older)).expect_err("it is refused");
        assert_eq!(error.code(), "directory.older_state");
        assert!(error.to_string().contains(B), "{error}");
        assert_eq!(read(folder), contents(&files), "nothing is changed");
        let salvage = || {
            let steps = plan(folder, Some(&older), Newer::SetAside)?;
            steps.iter().try_for_each(perform)
        };
        for _ in 0..2 {
            salvage().expect("it can be continued");
            let expected = [("results.jsonl", "one\n"), (A, "complete")];
            assert_eq!(read(folder), contents(&expected));
        }
        let aside = folder.join(UNCOMMITTED);
        let kept = |name: &str| {
            let name = Path::new(name).file_name().unwrap();
            fs::read_to_string(aside.join(name)).unwrap()
        };
        assert_eq!(kept("results.jsonl"), "two\n");
        assert_eq!((&*kept(B), &*kept(C_OPEN)), ("complete", "newer"));
        assert_eq!(entries(&aside).unwrap().len(), 3, "once each");
        // One that was being written.
        fs::write(folder.join(B_OPEN), "record and more").unwrap();
        let older = commit(folder, &[("results.jsonl", 4), (B, 6)]);
        let steps = plan(folder, Some(&older), Newer::SetAside).unwrap();
        steps.iter().try_for_each(perform).unwrap();
        assert_eq!(fs::read_to_string(folder.join(B)).unwrap(), "record");
        let tail = format!("{}.2", Path::new(B).file_name().unwrap().display());
        assert_eq!(kept(&tail), " and more");
        // One that is longer than a commit says.
        let older = commit(folder, &[("results.jsonl", 4), (B, 3)]);
        let error = resume(folder, Some(&older)).expect_err("it is refused");
        assert_eq!(error.code(), "directory.older_state");
        let steps = plan(folder, Some(&older), Newer::SetAside).unwrap();
        steps.iter().try_for_each(perform).unwrap();
        assert_eq!(fs::read_to_string(folder.join(B)).unwrap(), "rec");
        let tail = format!("{}.3", Path::new(B).file_name().unwrap().display());
        assert_eq!(kept(&tail), "ord");
        // Without WARC files in the commit, those in the folder prove nothing.
        let without = commit(folder, &[("results.jsonl", 4)]);
        resume(folder, Some(&without)).expect("it can be continued");
    }

    #[test]
    fn a_numbered_file_is_cut_and_gets_its_final_name_and_newer_ones_are_deleted() {
        let files = [
            ("results-000001.jsonl", "one\n"),
            ("results-000002.jsonl.open", "two\nthr"),
            ("results-000003.jsonl.open", "newer\n"),
            ("throttle-000001.jsonl.gz.open", "newer"),
        ];
        let expected = [
            ("results-000001.jsonl", "one\n"),
            ("results-000002.jsonl", "two\n"),
        ];
        check(&files, Some(&[("results-000002.jsonl", 4)]), &expected);
        // A complete file may be moved away.
        check(
            &files[1..],
            Some(&[("results-000001.jsonl", 4), ("results-000002.jsonl", 4)]),
            &expected[1..],
        );
        check(&files, Some(&[("results-000002.jsonl", 0)]), &expected[..1]);
    }

    #[test]
    fn a_file_without_lines_is_begun_again() {
        let files = [
            ("results-000003.jsonl.open", "newer\n"),
            ("results.jsonl", ""),
        ];
        check(&files, Some(&[("results-000003.jsonl", 0)]), &[]);
        check(&[], Some(&[("results-000003.jsonl", 0)]), &[]);
    }

    #[test]
    fn a_file_that_was_to_get_its_number_gets_it() {
        let listed = [("results-000001.jsonl.gz", 4)];
        let expected = [("results-000001.jsonl.gz", "one\n")];
        let newer = ("results-000002.jsonl.gz.open", "newer\n");
        for name in ["results.jsonl.gz", "results-000001.jsonl.gz"] {
            check(&[(name, "one\n"), newer], Some(&listed), &expected);
        }
        // A commit before that has it under its first name.
        let first = ("results.jsonl", "one\ntwo\n");
        check(
            &[first, newer],
            Some(&[("results.jsonl", 4)]),
            &[("results.jsonl", "one\n")],
        );
    }

    #[test]
    fn a_complete_file_of_lines_after_those_of_the_commit_proves_a_newer_one() {
        let check = |files: &[(&str, &str)],
                     listed: &[(&str, u64)],
                     proof: &str,
                     left: &[(&str, &str)],
                     aside: &[(&str, &str)]| {
            let folder = folder(files);
            let folder = folder.path();
            let older = commit(folder, listed);
            let error = resume(folder, Some(&older)).expect_err("it is refused");
            assert_eq!(error.code(), "directory.older_state", "{error}");
            assert!(error.to_string().contains(proof), "{error}");
            assert_eq!(read(folder), contents(files), "nothing is changed");
            for _ in 0..2 {
                let steps =
                    plan(folder, Some(&older), Newer::SetAside).expect("it can be continued");
                steps
                    .iter()
                    .for_each(|step| perform(step).expect("it is done"));
                assert_eq!(read(folder), contents(left));
            }
            for (name, text) in aside {
                let kept = fs::read_to_string(folder.join(UNCOMMITTED).join(name));
                assert_eq!(kept.expect("it is kept"), *text);
            }
        };
        check(
            &[
                ("results-000001.jsonl", "one\n"),
                ("results-000002.jsonl", "two\n"),
                ("results-000003.jsonl.open", "three\n"),
            ],
            &[("results-000001.jsonl", 4)],
            "results-000002.jsonl",
            &[("results-000001.jsonl", "one\n")],
            &[
                ("results-000002.jsonl", "two\n"),
                ("results-000003.jsonl.open", "three\n"),
            ],
        );
        check(
            &[("results-000001.jsonl", "one\ntwo\n")],
            &[("results.jsonl", 4)],
            "results-000001.jsonl",
            &[("results.jsonl", "one\n")],
            &[("results-000001.jsonl", "two\n")],
        );
        check(
            &[("results-000001.jsonl", "one\ntwo\n")],
            &[("results-000001.jsonl", 4)],
            "results-000001.jsonl",
            &[("results-000001.jsonl", "one\n")],
            &[("results-000001.jsonl", "two\n")],
        );
    }

    #[test]
    fn lines_on_standard_output_are_no_file() {
        let listed = [("-", 3), (A, 8)];
        for name in ["-", "results.jsonl"] {
            let files = [(name, "of the user"), (A, "complete")];
            check(&files, Some(&listed), &files);
        }
    }

    #[test]
    fn files_of_others_are_kept() {
        let others = [
            ("notes.txt", "ours"),
            ("results.jsonl.bak", "ours"),
            ("warc/mine.warc.gz.open", "ours"),
            ("warc/argiope-list.open", "ours"),
        ];
        check(&others, None, &others);
        check(&others, Some(&[]), &others);
        // A sink may still have its file under another name.
        check(&others, Some(&[("urls.txt", 3)]), &others);
        check(
            &[("urls.txt", "1234")],
            Some(&[("urls.txt", 3)]),
            &[("urls.txt", "123")],
        );
    }

    #[test]
    fn a_file_that_lacks_committed_bytes_is_an_error_and_nothing_is_changed() {
        let check = |files: &[(&str, &str)], listed: &[(&str, u64)], named: &[&str]| {
            let folder = folder(files);
            let last = commit(folder.path(), listed);
            let error = resume(folder.path(), Some(&last)).expect_err("it is refused");
            let message = error.to_string();
            for name in named {
                assert!(message.contains(name), "{name} is not in {message}");
            }
            assert!(!message.contains('\n'), "{message}");
            assert_eq!(error.code(), "directory.changed");
            assert_eq!(read(folder.path()), contents(files));
        };
        let lines = ("results.jsonl", "one\ntwo\n");
        check(
            &[lines],
            &[("results.jsonl", 9)],
            &["results.jsonl", "8", "9", "--out"],
        );
        check(&[], &[("results.jsonl", 0)], &["results.jsonl", "missing"]);
        let listed = [("results.jsonl", 4), (B, 7)];
        check(&[lines, (B, "record")], &listed, &[B, "6", "7"]);
        check(&[lines, (B_OPEN, "record")], &listed, &[B_OPEN, "6", "7"]);
        check(
            &[lines, (B, "records"), (B_OPEN, "records")],
            &listed,
            &[B, "twice"],
        );
        check(
            &[lines, (C_OPEN, "newer")],
            &[],
            &["results.jsonl", "last commit"],
        );
    }
}
