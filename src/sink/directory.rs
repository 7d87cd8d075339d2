//! Prepares the output directory before a crawl: creates it, and protects the files of other
//! crawls.

mod control;
mod discard;
mod error;
mod indexes;
mod kept;
mod line_file;
mod lines;
mod lock;
mod outputs;
mod own;
mod resume;
mod trimmed;

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use self::control::{ControlFiles, prepare_run_log};
pub use self::discard::{NewFolders, discard};
pub use self::error::DirectoryError;
use self::kept::Kept;
pub use self::kept::KeptInput;
pub(super) use self::line_file::LineFileName;
pub use self::lines::{LineAt, LineEnd, LineFile, LineFileReader, LineReader};
use self::lock::Locked;
pub use self::lock::{DirectoryLock, Owner};
pub(super) use self::outputs::{DECISIONS, FILTERED, LINKS, ROBOTS, SERIES, STDOUT};
use self::outputs::{WARCS, entries, is_warc_of_ours};
use self::resume::Newer;
use crate::sink::commit::Commit;

/// Prepares `folder` for a crawl, and locks it. Keep the lock until everything is written.
///
/// A directory that another crawl is writing to is refused, and so is one that contains an earlier
/// crawl; with `overwrite` the files of the earlier crawl are deleted, and no others. A list of rejected seeds alone is
/// no crawl, and is deleted: none of its seeds could be sent. Two kinds of files that would be deleted are renamed
/// instead, with a warning: inputs of this crawl, and files of lines that do not begin as those of a crawl do. `.old` or
/// `.oldN` is appended to their names; no file is replaced. A file to which standard output is redirected is kept, and
/// does not count as an earlier crawl.
///
/// Makes blocking calls to the file system, as only the functions of this file do on this floor: they run
/// before the crawl's loop.
///
/// # Errors
/// [`DirectoryError`], which states what is wrong, where, and how to mend it.
pub fn prepare(
    folder: &Path,
    overwrite: bool,
    in_use: InUse<'_>,
) -> Result<DirectoryLock, DirectoryError> {
    let failed = |path: &Path, cause| DirectoryError::Unusable {
        path: path.to_owned(),
        cause,
    };
    fs::create_dir_all(folder).map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            DirectoryError::NotADirectory(folder.to_owned())
        }
        _ => failed(folder, cause),
    })?;

    // Before anything is checked: a crawl that has just started has no files yet.
    let lock = lock(folder)?;
    let mut old = EarlierCrawl::find(folder).map_err(|(path, cause)| failed(&path, cause))?;
    if let Some(output) = in_use.output {
        let outputs = std::slice::from_ref(output);
        old.files.retain(|file| !is_any_of(file, outputs));
    }
    if let Some(first) = old.first() {
        if !overwrite && !old.has_not_begun(folder) {
            return Err(DirectoryError::HoldsACrawl {
                folder: folder.to_owned(),
                found: first,
            });
        }
        if let Some(state) = old.state {
            return Err(DirectoryError::HoldsState(state));
        }
        let mut useless = Vec::new();
        for file in &old.files {
            let kept_as = match is_any_of(file, in_use.inputs) {
                true => Some(Kept::Input),
                false => is_foreign(file).then_some(Kept::Foreign),
            };
            match kept_as {
                Some(why) => KeptInput::new(file)
                    .and_then(|input| input.rename(why))
                    .map_err(|cause| failed(file, cause))?,
                None => useless.push(file),
            }
        }
        for file in useless {
            fs::remove_file(file).map_err(|cause| failed(file, cause))?;
        }
        match fs::remove_dir(folder.join(STATE)) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => {
                return Err(failed(&folder.join(STATE), cause));
            }
            _ => {}
        }
    }

    // Permissions, read-only mounts and quotas are best tested by writing.
    let probe = folder.join(PROBE);
    fs::write(&probe, b"").map_err(|cause| failed(folder, cause))?;
    fs::remove_file(&probe).map_err(|cause| failed(&probe, cause))?;
    Ok(lock)
}

/// The inputs of a crawl that [`prepare`] with `overwrite` will rename, with the names that it will give them. A
/// state that is made before has these names; [`KeptInput::is_kept`] says later whether they are right.
///
/// Makes blocking calls to the file system.
///
/// # Errors
/// The directory cannot be read.
pub fn kept_inputs(folder: &Path, in_use: InUse<'_>) -> Result<Vec<KeptInput>, DirectoryError> {
    if in_use.inputs.is_empty() {
        return Ok(Vec::new());
    }
    let unusable = |(path, cause): (PathBuf, io::Error)| match cause.kind() {
        ErrorKind::NotADirectory => DirectoryError::NotADirectory(folder.to_owned()),
        _ => DirectoryError::Unusable { path, cause },
    };
    let old = EarlierCrawl::find(folder).map_err(unusable)?;
    let outputs = in_use.output.map_or(&[][..], std::slice::from_ref);
    let is_kept = |file: &&PathBuf| is_any_of(file, in_use.inputs) && !is_any_of(file, outputs);
    let kept = old.files.iter().filter(is_kept);
    kept.map(|file| KeptInput::new(file).map_err(|cause| unusable((file.clone(), cause))))
        .collect()
}

/// The inputs of a crawl that is resumed which would be replaced at its end, `pending.jsonl` of an earlier one, with
/// free names for them: before that call [`KeptInput::keep`].
///
/// Makes blocking calls to the file system.
///
/// # Errors
/// [`DirectoryError::InputIsOutput`]: one is a file that the crawl continues. The directory cannot be read.
pub fn kept_inputs_of_resumed(
    lock: &DirectoryLock,
    inputs: &[Metadata],
) -> Result<Vec<KeptInput>, DirectoryError> {
    let folder = lock.locked_path();
    let output = None;
    let kept = kept_inputs(folder, InUse { inputs, output })?;
    match kept.iter().find(|input| input.path != folder.join(PENDING)) {
        Some(input) => Err(DirectoryError::InputIsOutput(input.path.clone())),
        None => Ok(kept),
    }
}

/// Locks the directory of a crawl that is to be resumed. Only then may its state be read: until it is
/// locked, another process may be writing to it.
///
/// Makes blocking calls to the file system.
///
/// # Errors
/// [`DirectoryError`], if another process has locked it, or it cannot be locked.
pub fn lock(folder: &Path) -> Result<DirectoryLock, DirectoryError> {
    let cause = match DirectoryLock::take(folder) {
        Ok(Locked::Ours(lock)) => return Ok(lock),
        Ok(Locked::Others(owner)) => {
            return Err(DirectoryError::InUse {
                folder: folder.to_owned(),
                owner,
            });
        }
        Err(cause) => cause,
    };
    Err(DirectoryError::Unusable {
        path: folder.to_owned(),
        cause,
    })
}

/// The process that has locked a directory, if one has: the crawl that writes to it. Nothing is locked or
/// changed. One that ended without removing its lock does not count, unless it was on another machine.
///
/// Makes blocking calls to the file system.
///
/// # Errors
/// The lock cannot be read.
pub fn owner(folder: &Path) -> io::Result<Option<Owner>> {
    lock::live_owner(folder)
}

/// Makes the output files in a locked directory those of the crawl's last commit, before it is resumed:
///
/// - A file of the commit that is longer is cut, with a warning. A WARC file that was being written gets its final
///   name: the resumed crawl begins another.
/// - A file that was begun after the commit is deleted. Without a commit, results and WARC files are
///   moved to the folder `uncommitted`: the commit may be lost.
/// - A WARC file with its final name is not changed, and may have been moved away.
///
/// Everything is durable when it returns. After a crash in between it can be called again. The paths of
/// the commit begin with the path that was locked. Makes blocking calls to the file system.
///
/// # Errors
/// [`DirectoryError::Changed`] if a file has less than was committed, or is not in the commit, and
/// [`DirectoryError::OlderState`] if a file proves that there was a newer commit; then nothing is changed.
/// [`DirectoryError::Unusable`] if the file system refuses.
pub fn resume(lock: &DirectoryLock, last: Option<&Commit>) -> Result<(), DirectoryError> {
    let steps = resume::plan(lock.locked_path(), last, Newer::Cut)?;
    steps.iter().try_for_each(resume::perform)
}

/// The same of a state whose newest commits may be lost: all that is newer than the last commit is moved to the
/// folder `uncommitted`, and not cut off, deleted or refused.
///
/// # Errors
/// As [`resume`], but for [`DirectoryError::OlderState`].
pub fn salvage(lock: &DirectoryLock, last: Option<&Commit>) -> Result<(), DirectoryError> {
    let steps = resume::plan(lock.locked_path(), last, Newer::SetAside)?;
    steps.iter().try_for_each(resume::perform)
}

/// The WARC files in this folder, named `*.warc.gz`, that have no CDXJ index beside them: that is made after a file is
/// closed, and a crash may come in between. Makes blocking calls to the file system.
///
/// # Errors
/// The folder cannot be read. One that does not exist has no files.
pub fn unindexed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    indexes::unindexed(folder)
}

/// Calls `each` with the URL of each request that a line says was sent which [`resume`] will cut off: the
/// crawl sends it again. Makes blocking calls to the file system.
///
/// # Errors
/// The lines cannot be read.
pub(crate) fn trimmed_urls(
    folder: &Path,
    last: Option<&Commit>,
    each: impl FnMut(&str),
) -> io::Result<()> {
    trimmed::sent_urls(folder, last, trimmed::TAIL_MAX, each)
}

/// Calls `each` with the URL of each result line that this commit has. Returns false if the lines are elsewhere.
/// Makes blocking calls to the file system.
///
/// # Errors
/// The lines cannot be read.
pub(crate) fn committed_urls(
    folder: &Path,
    last: &Commit,
    each: impl FnMut(&str),
) -> io::Result<bool> {
    trimmed::committed_urls(folder, last, each)
}

/// Files that a crawl is about to use, under any name.
#[derive(Clone, Copy, Debug, Default)]
pub struct InUse<'a> {
    /// Files that it reads.
    pub inputs: &'a [Metadata],
    /// The file to which its standard output is redirected.
    pub output: Option<&'a Metadata>,
}

/// Returns whether the path is one of these files.
fn is_any_of(path: &Path, files: &[Metadata]) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| {
        let mut files = files.iter();
        files.any(|file| (file.dev(), file.ino()) == (there.dev(), there.ino()))
    })
}

/// Whether a file is certainly none that a crawl has written.
fn is_foreign(file: &Path) -> bool {
    matches!(own::is_of_a_crawl(file), Ok(false))
}

/// Files of an earlier crawl in a directory.
#[derive(Debug, Default)]
struct EarlierCrawl {
    /// Output files, which may be deleted.
    files: Vec<PathBuf>,
    /// The folder of a state, if it has files of another program or version.
    state: Option<PathBuf>,
}

impl EarlierCrawl {
    fn find(folder: &Path) -> Result<EarlierCrawl, (PathBuf, io::Error)> {
        let mut old = EarlierCrawl::default();
        for name in FILES {
            let path = folder.join(name);
            match fs::symlink_metadata(&path) {
                Ok(_) => old.files.push(path),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err((path, error)),
            }
        }
        let lines = entries(folder)?.into_iter().filter(|path| {
            let mut series = SERIES.iter();
            series.any(|name| LineFileName::of(path, &folder.join(name)).is_some())
        });
        old.files.extend(lines);
        let warcs = entries(&folder.join(WARCS))?;
        let ours = (warcs.into_iter())
            .filter(|path| is_warc_of_ours(path) || indexes::is_index_of_ours(path));
        old.files.extend(ours);
        let state = folder.join(STATE);
        let (ours, others): (Vec<_>, Vec<_>) =
            (entries(&state)?.into_iter()).partition(|path| is_state_of_ours(path));
        old.files.extend(ours);
        old.state = (!others.is_empty()).then_some(state);
        Ok(old)
    }

    /// Whether it is one whose seeds were all rejected, so that it did not begin: there is nothing but their list.
    fn has_not_begun(&self, folder: &Path) -> bool {
        self.state.is_none() && self.files == [folder.join(REJECTED)]
    }

    /// A file that shows an earlier crawl. Unknown files do not count.
    fn first(&self) -> Option<PathBuf> {
        self.files.first().or(self.state.as_ref()).cloned()
    }
}

/// Whether a path is that of a file of a state, by its name.
fn is_state_of_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let number = [JOURNAL, QUEUE, SEEN, UNREAD].into_iter();
    let number = name.and_then(|name| number.filter_map(|kind| name.strip_prefix(kind)).next());
    let number = number.map(|number| number.strip_suffix(UNFINISHED).unwrap_or(number));
    number.is_some_and(|number| number.len() >= 8 && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The folder of a crawl's state.
pub(crate) const STATE: &str = "state";

/// How the names of its journal's segments begin; a number of eight digits follows.
pub(crate) const JOURNAL: &str = "journal-";

/// Appended to the name of a segment that is not complete.
pub(crate) const UNFINISHED: &str = ".new";

/// The same of files with requests that do not fit into memory.
pub(crate) const QUEUE: &str = "queue-";

/// The same of runs of the seen set.
pub(crate) const SEEN: &str = "seen-";

/// The same of files with seeds that the command read from a pipe, and the crawl did not take.
const UNREAD: &str = "unread-";

/// The requests that were queued when a crawl ended.
const PENDING: &str = "pending.jsonl";

/// The seeds that can never be sent.
const REJECTED: &str = "rejected.jsonl";

/// Files that a crawl writes directly into its directory, besides those of lines.
const FILES: [&str; 8] = [
    "stats.json",
    "pending.jsonl",
    "rejected.jsonl",
    control::RUNS,
    control::ORDERS,
    control::SOCKET,
    // Temporary files of a crawl that was killed.
    "pending.jsonl.tmp",
    "stats.json.tmp",
];

/// A file that is created and deleted to test whether writing works.
const PROBE: &str = ".argiope-probe";

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files, each containing its own name, or a line as a crawl writes it.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = match *file {
                "results.jsonl" => "{\"id\": 1, \"parent\": null}\n",
                file => file,
            };
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn error(folder: &Path, overwrite: bool) -> String {
        let message = prepare(folder, overwrite, InUse::default())
            .expect_err("a refusal")
            .to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn a_directory_is_made_with_its_parents() {
        let parent = folder(&[]);
        let path = parent.path().join("a/b");
        drop(prepare(&path, false, InUse::default()).unwrap());
        assert!(path.is_dir());
        assert_eq!(entries(&path).unwrap(), [] as [&Path; 0]);
        drop(prepare(&path, false, InUse::default()).unwrap());
    }

    #[test]
    fn a_list_of_rejected_seeds_alone_is_no_crawl_and_is_replaced() {
        let alone = folder(&["rejected.jsonl", "notes.txt"]);
        drop(prepare(alone.path(), false, InUse::default()).unwrap());
        assert!(!alone.path().join("rejected.jsonl").exists());
        assert!(alone.path().join("notes.txt").exists());
        let crawl = folder(&["rejected.jsonl", "stats.json"]);
        let message = error(crawl.path(), false);
        assert!(message.contains("already holds a crawl"), "{message}");
        assert!(crawl.path().join("rejected.jsonl").exists());
    }

    #[test]
    fn a_directory_that_contains_a_crawl_is_refused() {
        for file in [
            "results.jsonl",
            "results.jsonl.zst",
            "results-000001.jsonl.open",
            "stats.json",
            "pending.jsonl",
            "throttle.jsonl",
            "throttle-000002.jsonl.gz",
            "robots.jsonl",
            "links.jsonl.gz",
            "filtered.jsonl",
            "runs.jsonl",
            "orders.jsonl",
            "control.sock",
            "pending.jsonl.tmp",
            "stats.json.tmp",
            "warc/argiope-20261121000001020-00000-a.warc.gz",
            "warc/argiope-20261121000001020-00000-a.warc.gz.open",
            "warc/argiope-20261121000001020-00000-a.cdxj",
            "warc/argiope-20261121000001020-00000-a.cdxj.tmp",
            "state/unread-00000001",
            "state/anything",
        ] {
            let folder = folder(&[file]);
            let message = error(folder.path(), false);
            assert!(message.contains("already holds a crawl"), "{message}");
            assert!(
                message.contains(file.split("/a").next().unwrap()),
                "{message}"
            );
            assert!(
                message.contains("--out") && message.contains("--overwrite"),
                "{message}"
            );
            assert!(folder.path().join(file).exists());
        }
    }

    #[test]
    fn a_directory_in_use_is_refused_and_keeps_its_files() {
        let folder = folder(&[]);
        let lock = prepare(folder.path(), false, InUse::default()).unwrap();
        assert!(error(folder.path(), false).contains("in use by another crawl"));
        fs::write(folder.path().join("results.jsonl"), "live").unwrap();
        for overwrite in [false, true] {
            let message = error(folder.path(), overwrite);
            assert!(
                message.contains("in use by another crawl (process "),
                "{message}"
            );
            assert!(folder.path().join("results.jsonl").exists());
        }
        drop(lock);
        drop(prepare(folder.path(), true, InUse::default()).unwrap());
        assert!(!folder.path().join("results.jsonl").exists());
    }

    #[test]
    fn unknown_files_are_accepted_and_kept() {
        let others = ["notes.txt", "warc/other.warc.gz", "warc/argiope-list.txt"];
        let folder = folder(&others);
        drop(prepare(folder.path(), false, InUse::default()).unwrap());
        drop(prepare(folder.path(), true, InUse::default()).unwrap());
        for file in others {
            assert!(folder.path().join(file).exists(), "{file}");
        }
    }

    #[test]
    fn overwriting_deletes_only_files_of_a_crawl() {
        let ours = [
            "results.jsonl",
            "results-000001.jsonl.gz",
            "results-000002.jsonl.gz.open",
            "stats.json",
            "warc/argiope-1-00000-a.warc.gz.open",
            "warc/argiope-1-00000-a.cdxj",
            "warc/argiope-1-00000-a.cdxj.tmp",
            "warc/argiope-1-00000-a.cdxj.tmp.sort",
        ];
        let others = [
            "warc/mine.cdxj",
            "results.jsonl.bak",
            "results-1.jsonl",
            "warc/mine-argiope-1.warc.gz",
        ];
        let folder = folder(&[&ours[..], &others].concat());
        drop(prepare(folder.path(), true, InUse::default()).unwrap());
        for file in ours {
            assert!(!folder.path().join(file).exists(), "{file}");
        }
        for file in others {
            assert!(folder.path().join(file).exists(), "{file}");
        }
    }

    #[test]
    fn overwriting_keeps_a_file_that_no_crawl_has_written() {
        let folder = folder(&["stats.json", "results.jsonl", "links.jsonl"]);
        let path = |name: &str| folder.path().join(name);
        drop(prepare(folder.path(), true, InUse::default()).unwrap());
        assert_eq!(entries(folder.path()).unwrap(), [path("links.jsonl.old")]);
        fs::write(path("results.jsonl"), "{\"id\": 1, \"title\": \"Tea\"}\n").unwrap();
        fs::write(path("links.jsonl"), "my links").unwrap();
        drop(prepare(folder.path(), true, InUse::default()).unwrap());
        let names = ["links.jsonl.old", "links.jsonl.old2", "results.jsonl.old"];
        assert_eq!(entries(folder.path()).unwrap(), names.map(path));
        assert_eq!(
            fs::read_to_string(path("links.jsonl.old2")).unwrap(),
            "my links"
        );
    }

    #[test]
    fn overwriting_keeps_the_inputs_of_the_crawl() {
        let names = ["pending.jsonl", "pending.jsonl.old", "results.jsonl"];
        let folder = folder(&names);
        let input = |name: &str| fs::metadata(folder.path().join(name)).unwrap();
        let check = |expected: &[(&str, &str)]| {
            let paths = entries(folder.path()).unwrap();
            let found = paths.iter().map(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, fs::read_to_string(path).unwrap())
            });
            let expected = expected
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        };
        // Neither input replaces the other.
        let inputs = [input("pending.jsonl"), input("pending.jsonl.old")];
        let prepare = |inputs: &[Metadata]| {
            let output = None;
            drop(super::prepare(folder.path(), true, InUse { inputs, output }).unwrap());
        };
        prepare(&inputs);
        check(&[
            ("pending.jsonl.old", "pending.jsonl.old"),
            ("pending.jsonl.old2", "pending.jsonl"),
        ]);
        // Nor a file that is no longer read.
        fs::write(folder.path().join("pending.jsonl"), "next").unwrap();
        prepare(&[input("pending.jsonl")]);
        check(&[
            ("pending.jsonl.old", "pending.jsonl.old"),
            ("pending.jsonl.old2", "pending.jsonl"),
            ("pending.jsonl.old3", "next"),
        ]);
        // A second name of an input does not permit deleting the first.
        fs::remove_file(folder.path().join("pending.jsonl.old2")).unwrap();
        let (old, new) = ("pending.jsonl.old", "pending.jsonl");
        fs::hard_link(folder.path().join(old), folder.path().join(new)).unwrap();
        prepare(&[input(new)]);
        check(&[
            ("pending.jsonl.old", "pending.jsonl.old"),
            ("pending.jsonl.old2", "pending.jsonl.old"),
            ("pending.jsonl.old3", "next"),
        ]);
    }

    #[test]
    fn the_file_of_standard_output_is_kept_and_not_an_earlier_crawl() {
        let folder = folder(&["results.jsonl", "stats.json"]);
        let output = fs::metadata(folder.path().join("results.jsonl")).unwrap();
        let in_use = InUse {
            inputs: &[],
            output: Some(&output),
        };
        let message = prepare(folder.path(), false, in_use)
            .unwrap_err()
            .to_string();
        assert!(message.contains("stats.json"), "{message}");
        drop(prepare(folder.path(), true, in_use).unwrap());
        assert!(folder.path().join("results.jsonl").exists());
        assert!(!folder.path().join("stats.json").exists());
        drop(prepare(folder.path(), false, in_use).unwrap());
    }

    #[test]
    fn overwriting_follows_no_link() {
        let (outside, folder) = (folder(&["precious"]), folder(&[]));
        let precious = outside.path().join("precious");
        std::os::unix::fs::symlink(&precious, folder.path().join("stats.json")).unwrap();
        assert!(error(folder.path(), false).contains("already holds a crawl"));
        drop(prepare(folder.path(), true, InUse::default()).unwrap());
        assert!(precious.exists());
    }

    #[test]
    fn overwriting_never_deletes_unknown_files_of_a_state() {
        let folder = folder(&["state/log", "results.jsonl"]);
        assert!(error(folder.path(), true).contains("holds the state of a crawl"));
        assert!(folder.path().join("results.jsonl").exists());
    }

    #[test]
    fn an_unwritable_directory_is_reported_before_the_crawl() {
        let folder = folder(&["file"]);
        let check = |path: &Path, expected: &str| {
            let message = error(path, false);
            assert!(
                message.contains(expected) && message.contains("--out"),
                "{message}"
            );
        };
        check(&folder.path().join("file"), "is not a directory");
        check(&folder.path().join("file/below"), "is not a directory");
        let input = fs::metadata(folder.path()).unwrap();
        let in_use = InUse {
            inputs: &[input],
            output: None,
        };
        let refused = kept_inputs(&folder.path().join("file"), in_use).unwrap_err();
        assert!(refused.to_string().contains("is not a directory"));
        check(Path::new("/proc/self"), "cannot write to /proc/self");
    }
}
