//! `crawl --resume`: what a crawl was given, kept in its state for the run that continues it.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use argiope::settings::{Setting, SettingSource, all as settings};
use argiope::sink::directory::{self, DirectoryLock, KeptInput, LineFile};
use argiope::{Commit, Config, LoadPhase, LoadProgress, State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Usage;
use super::feed::Seeds;
use super::progress::{Shown, bytes};
use super::seed_file::{SeedFile, absolute};
use super::seeds::{is_read_last, is_regular};
use super::settings::of_machine;
use super::signals::Received;
use super::unread;

/// What a crawl was given: settings, and seeds in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInputs {
    /// Settings that are not at their defaults.
    pub settings: Map<String, Value>,
    /// The seeds of each run, in order.
    pub lists: Vec<SeedList>,
    /// Whether result lines go to standard output.
    #[serde(default)]
    pub to_stdout: bool,
}

/// The seeds of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedList {
    /// URLs of the command line.
    pub urls: Vec<String>,
    /// Seeds files.
    pub files: Vec<SeedFile>,
    /// Other inputs, which were read after the files and cannot be read again.
    pub pipes: Vec<String>,
    /// Whether the files are those that the crawl itself made of what pipes had delivered. `None` in states of earlier
    /// versions, which are recognized by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    is_unread: Option<bool>,
}

impl SeedList {
    /// Its URLs and the lines of its files.
    fn open(&self) -> Result<Seeds, Usage> {
        let files = self.files.iter().map(|file| PathBuf::from(&file.path));
        Seeds::open_regular(&self.urls, &files.collect::<Vec<_>>())
    }

    /// Whether there are seeds besides URLs of the command line.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty() || !self.pipes.is_empty()
    }

    /// Whether nothing was given.
    fn is_empty(&self) -> bool {
        self.urls.is_empty() && self.files.is_empty() && self.pipes.is_empty()
    }

    /// Whether this file is one that the crawl in `out` made of what pipes had delivered.
    fn is_unread(&self, path: &Path, out: &Path) -> bool {
        // The user may have given such a file of another crawl as seeds.
        let is_here = || !is_regular(path) || is_regular(&unread::moved(path, out));
        (self.is_unread).unwrap_or_else(|| unread::is_named(path) && is_here())
    }

    /// Metadata of its files that are not of the state.
    pub fn metadata(&self, out: &Path) -> impl Iterator<Item = Metadata> {
        let paths = self.files.iter().map(|file| Path::new(&file.path));
        let given = paths.filter(move |path| !self.is_unread(path, out));
        given.filter_map(|path| fs::metadata(path).ok())
    }
}

/// What earlier runs did not take of their seeds.
pub struct Reopened {
    /// All lists, without what cannot be read again.
    pub lists: Vec<SeedList>,
    /// The seeds.
    pub seeds: Seeds,
    /// Number of URLs and lines of the lists before them.
    pub taken: u64,
}

/// A crawl to be continued.
pub struct Resumed {
    /// The lock of its directory, which is set.
    pub lock: Arc<OnceLock<DirectoryLock>>,
    /// Its state.
    pub state: State,
    /// What it was given.
    pub inputs: RunInputs,
}

impl RunInputs {
    /// What this run is given.
    pub fn of(config: &Config, urls: &[String], seeds: &[PathBuf], to_stdout: bool) -> Self {
        let unset = [SettingSource::Default, of_machine()];
        let is_set = |name: &str| !unset.contains(config.source(name));
        let set = settings().iter().filter(|setting| is_set(setting.name));
        let value_of = |setting: &Setting| {
            let value = config.get(setting.name).map_or(Value::Null, Value::from);
            // The run that resumes the crawl may be started elsewhere.
            match (setting.kind, value.as_str()) {
                ("path", Some(path)) => absolute(Path::new(path)).into(),
                _ => value,
            }
        };
        let (pipes, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
            seeds.iter().partition(|path| is_read_last(path));
        RunInputs {
            settings: set
                .map(|setting| (setting.name.to_owned(), value_of(setting)))
                .collect(),
            lists: vec![SeedList {
                urls: urls.to_vec(),
                files: (files.into_iter())
                    .map(|path| SeedFile::at(absolute(path)))
                    .collect(),
                pipes: pipes.into_iter().map(|path| absolute(path)).collect(),
                is_unread: Some(false),
            }],
            to_stdout,
        }
    }

    /// Whether there are neither URLs nor seeds files.
    pub fn has_no_seeds(&self) -> bool {
        self.lists.iter().all(SeedList::is_empty)
    }

    /// Opens what the earlier runs of the crawl in `out` did not take of their seeds: those after the first `taken`, and
    /// what pipes had delivered. `what`: the option for which this is done.
    ///
    /// # Errors
    /// A file is missing, has changed or cannot be read.
    pub fn reopen(self, what: &str, out: &Path, taken: u64) -> anyhow::Result<Reopened> {
        let mut lists = Vec::new();
        let mut seeds = Seeds::open(&[], &[])?;
        let mut unread = unread::files(out).unwrap_or_default();
        for mut list in self.lists {
            let are_unread: Vec<bool> = (list.files.iter())
                .map(|file| list.is_unread(file.path.as_ref(), out))
                .collect();
            for (file, is_unread) in list.files.iter_mut().zip(are_unread) {
                if is_unread {
                    let moved = unread::moved(file.path.as_ref(), out);
                    // It is listed: its lines are counted.
                    unread.retain(|path| *path != moved);
                    file.path = absolute(&moved);
                }
                let path = &file.path;
                if let Some(old) = file.renamed_before(out) {
                    return Err(Usage(format!(
                        "{what}: the seeds file {path} was renamed to {old} when the crawl began: rename it back"
                    ))
                    .into());
                }
                // Without it the lines of later files would be taken for those of this one.
                if !is_regular(path.as_ref()) {
                    return Err(Usage(format!(
                        "{what}: the seeds file {path} is missing: put it back, unchanged"
                    ))
                    .into());
                }
                file.check()
                    .map_err(|changed| Usage(format!("{what}: {changed}")))?;
            }
            for pipe in std::mem::take(&mut list.pipes) {
                match unread.last() {
                    Some(kept) => log::info!(
                        "{what}: what the earlier run had not taken of {pipe} is read from {}",
                        kept.display()
                    ),
                    None => log::warn!(
                        "{what}: {pipe} is not read again; lines that the earlier run had not taken are missing"
                    ),
                }
            }
            seeds = seeds.then(list.open()?);
            lists.push(list);
        }
        let taken = (seeds.skip(taken)).map_err(|error| Usage(format!("{what}: {error}")))?;
        // Lines of pipes were counted, too: these files are not, until they are listed.
        let files = unread.into_iter().map(|path| SeedFile::at(absolute(&path)));
        let kept = SeedList {
            files: files.collect(),
            is_unread: Some(true),
            ..SeedList::default()
        };
        if !kept.is_empty() {
            seeds = seeds.then(kept.open()?);
            lists.push(kept);
        }
        Ok(Reopened {
            lists,
            seeds,
            taken,
        })
    }

    /// Follows seeds files to the names under which they are kept.
    pub fn follow(&mut self, kept: &[KeptInput]) {
        let files = self.lists.iter_mut().flat_map(|list| &mut list.files);
        files.for_each(|file| file.follow(kept));
    }

    /// As text, for the state.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a tree of texts")
    }
}

impl Resumed {
    /// Reads the state of the crawl in this directory, and shows how far it has come, unless `quiet`; with
    /// `salvage` without its damaged parts. From then on a stop signal ends the process: until the crawl begins,
    /// nothing is lost by that.
    pub fn load(
        out: &Path,
        salvage: bool,
        quiet: bool,
        received: &Received,
    ) -> anyhow::Result<Self> {
        if let Err(error) = fs::metadata(out) {
            let what = match error.kind() {
                ErrorKind::NotFound => "does not exist".to_owned(),
                _ => format!("cannot be opened: {error}"),
            };
            return Err(Usage(format!(
                "--resume: {} {what}: name the directory of a crawl with --out",
                out.display()
            ))
            .into());
        }
        let lock: Arc<OnceLock<DirectoryLock>> = Arc::default();
        // It does not keep the lock when the command ends without a signal.
        let locked = Arc::downgrade(&lock);
        received.exit_on_signal(move || {
            let lock = locked.upgrade();
            if let Some(lock) = lock.as_ref().and_then(|lock| lock.get()) {
                lock.remove_file();
            }
        })?;
        let taken = directory::lock(out).map_err(|error| Usage(format!("--resume: {error}")))?;
        lock.set(taken).expect("it is set only once");
        let mut shown = Shown::new(quiet);
        let watch = |progress: LoadProgress| {
            shown.show_line(|| {
                let LoadProgress {
                    phase,
                    read,
                    length,
                    ..
                } = progress;
                let what = match phase {
                    LoadPhase::Check => "checking the state",
                    LoadPhase::Requests => "checking queued requests",
                    _ => "reading the state",
                };
                format!("{what}: {} of {}", bytes(read), bytes(length))
            });
        };
        let read = match salvage {
            true => State::salvage_watched(out, watch),
            false => State::load_watched(out, watch),
        };
        shown.end();
        let state = read.map_err(|error| Usage(format!("--resume: {error}")))?;
        let inputs: Result<RunInputs, _> = serde_json::from_str(state.settings());
        let mut inputs = inputs.map_err(|_| {
            Usage(format!(
                "--resume: the state in {} was not written by this command",
                out.display()
            ))
        })?;
        for (name, value) in state.reloaded_settings() {
            match Value::from(value) {
                Value::Null => drop(inputs.settings.remove(&name)),
                value => drop(inputs.settings.insert(name, value)),
            }
        }
        Ok(Resumed {
            lock,
            state,
            inputs,
        })
    }

    /// Checks that lines can go where the earlier run wrote them. `is_asked`: `--results -` is given;
    /// `stdout`: standard output, if they go there.
    pub fn check_results(
        &self,
        is_asked: bool,
        out: &Path,
        stdout: Option<&Metadata>,
    ) -> anyhow::Result<()> {
        let file = out.join("results.jsonl");
        if is_asked && !self.inputs.to_stdout {
            return Err(Usage(format!(
                "--results -: the lines of this crawl are in {}; leave the option out",
                file.display()
            ))
            .into());
        }
        let lines = LineFile::results(out).unwrap_or_default();
        let is_same = |stdout: &Metadata| {
            let mut lines = lines.iter().map(|lines| fs::metadata(lines.path()));
            lines.any(|there| {
                there.is_ok_and(|there| (there.dev(), there.ino()) == (stdout.dev(), stdout.ino()))
            })
        };
        // Without a commit the file counts as one of the crawl, and is deleted.
        if self.state.commit().is_none() && stdout.is_some_and(is_same) {
            return Err(Usage(format!(
                "--resume: standard output is {}, which a crawl deletes if nothing was committed; redirect it to another file",
                file.display()
            ))
            .into());
        }
        Ok(())
    }
}

/// Number of the last line on standard output that is committed; `None` if lines go to a file.
pub fn committed_lines(last: Option<&Commit>, out: &Path) -> Option<u64> {
    let stdout = out.join(STDOUT);
    let mut files = last?.files.iter();
    files
        .find(|file| file.path == stdout)
        .map(|file| file.length)
}

/// Ends the line that a kill cut short, where standard output is the file that has it: the first line of this run is
/// one of its own. What a pipe has is not known.
pub fn end_cut_line(stdout: &Metadata) {
    let Some(last) = stdout.len().checked_sub(1).filter(|_| stdout.is_file()) else {
        return;
    };
    let mut byte = [b'\n'];
    let file = File::open("/proc/self/fd/1");
    let read = file.and_then(|file| file.read_exact_at(&mut byte, last));
    if let Err(error) = read {
        // It may be read by others only: readers find the line behind the cut one.
        log::debug!("standard output: {error}");
    }
    if byte != [b'\n']
        && let Err(error) = io::stdout().write_all(b"\n")
    {
        log::warn!("standard output: {error}");
    }
}

/// Standard output among the files of a commit.
pub const STDOUT: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_was_given_is_read_back_from_its_text() {
        let config = Config::default()
            .with("DOWNLOAD_DELAY", "250ms")
            .and_then(|config| config.with("ROBOTSTXT_OBEY", false))
            .expect("they are valid");
        let urls = ["http://a.test/".to_owned()];
        let inputs = RunInputs::of(&config, &urls, &["-".into(), "/s.txt".into()], true);
        assert_eq!(inputs.settings.len(), 2);
        let read: RunInputs = serde_json::from_str(&inputs.to_text()).expect("it is its own");
        assert_eq!(read, inputs);
    }
    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        let text = r#"{"settings": {}, "lists": [{"urls": ["http://a.test/"], "files": ["/a", "/b"], "pipes": []}]}"#;
        let read: RunInputs = serde_json::from_str(text).expect("it is known");
        let paths = read.lists[0].files.iter().map(|file| &*file.path);
        assert_eq!(paths.collect::<Vec<_>>(), ["/a", "/b"]);
        // Its own file of what a pipe had delivered, in a directory that was moved since.
        let list = &read.lists[0];
        let own = Path::new("/old/state/unread-00000001");
        assert!(list.is_unread(own, Path::new("/new")));
        assert!(!list.is_unread(Path::new("/a"), Path::new("/new")));
    }
}
