//! Seeds that can never be sent: ten are logged, all are counted, and `rejected.jsonl` has each with its reason.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::json;

use super::room::is_full;
use super::seed_file::absolute;

/// The file's name in the output directory.
pub const NAME: &str = "rejected.jsonl";

/// Seeds that are logged one by one.
const LOGGED_MAX: u64 = 10;

/// Bytes of lines that are kept while there is no output directory: some hundred thousand lines. It is made when the
/// first seeds have been read.
const HELD_MAX: usize = 16 << 20;

/// Characters of a seed that are written.
const SEED_CHARS: usize = 2000;

/// Lines of the file that a run which resumes the crawl does not repeat: some 50 MB of memory.
const KNOWN_MAX: usize = 1_000_000;

/// The rejected seeds of a run: written by the thread that reads seeds, and closed by the main thread.
#[derive(Clone, Debug, Default)]
pub struct Rejected {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Number of seeds.
    count: u64,
    place: Place,
    known: Known,
}

/// The seeds that earlier runs of the crawl rejected: a run that resumes it reads some of them again.
#[derive(Debug, Default)]
struct Known {
    /// Lines, by the absolute paths of files.
    lines: HashMap<String, HashSet<u64>>,
    /// Seeds of the command line, as far as they are written.
    urls: HashSet<String>,
}

/// What is read of a line of the file.
#[derive(Deserialize)]
struct Line {
    file: Option<String>,
    line: Option<u64>,
    seed: Option<String>,
}

impl Known {
    /// Reads what the file in an output directory has.
    fn read(out: &Path) -> io::Result<Self> {
        let mut known = Known::default();
        let file = BufReader::new(File::open(out.join(NAME))?);
        for text in file.split(b'\n').take(KNOWN_MAX) {
            let Ok(line) = serde_json::from_slice::<Line>(&text?) else {
                continue;
            };
            match (line.file, line.line, line.seed) {
                (Some(file), Some(number), _) => {
                    let path = absolute(Path::new(&file));
                    known.lines.entry(path).or_default().insert(number);
                }
                (None, _, Some(seed)) => drop(known.urls.insert(seed)),
                _ => {}
            }
        }
        Ok(known)
    }

    fn has(&self, line: Option<(&str, u64)>, text: Option<&str>) -> bool {
        match (line, text) {
            (Some((file, number)), _) => {
                let lines = || self.lines.get(&absolute(Path::new(file)));
                !self.lines.is_empty() && lines().is_some_and(|lines| lines.contains(&number))
            }
            (None, Some(text)) => self.urls.contains(&*shortened(text)),
            (None, None) => false,
        }
    }
}

/// Where their lines go.
#[derive(Debug)]
enum Place {
    /// To memory, until there is a directory.
    Held {
        lines: Vec<u8>,
        /// Number of seeds for whose lines there was no room.
        omitted: u64,
    },
    /// To a file.
    To(LinesFile),
    /// Off: there is no directory, or its file cannot be written.
    Off,
}

/// The file, which is created with the first line. On a full disk its lines wait in memory for the next one, or for the
/// end of the crawl.
#[derive(Debug)]
struct LinesFile {
    path: PathBuf,
    file: Option<File>,
    /// Bytes of whole lines in it.
    length: u64,
    /// Lines that are not in it, and the number of those for which there was no room.
    held: Vec<u8>,
    omitted: u64,
    /// Whether a write found no space.
    has_waited: bool,
}

impl Default for Place {
    fn default() -> Self {
        Place::Held {
            lines: Vec::new(),
            omitted: 0,
        }
    }
}

impl Rejected {
    /// A seed is rejected. `line`: its file and line; `None` for a URL of the command line. `text`: what it was, as far
    /// as it is text.
    pub fn add(&self, line: Option<(&str, u64)>, text: Option<&str>, why: &dyn Display) {
        let mut shared = self.lock();
        shared.count += 1;
        let count = shared.count;
        if count <= LOGGED_MAX {
            match (line, text) {
                (Some((file, number)), _) => log::warn!("{file}:{number}: {why}"),
                (None, Some(text)) => log::warn!("{text}: {why}"),
                (None, None) => log::warn!("{why}"),
            }
        } else if count == LOGGED_MAX + 1 {
            log::warn!("further invalid seeds are counted, and not logged");
        }
        let text = text.map(shortened);
        let object = json!({
            "file": line.map(|(file, _)| file),
            "line": line.map(|(_, number)| number),
            "seed": text,
            "error": why.to_string(),
        });
        shared.place.write(format!("{object}\n").as_bytes());
    }

    /// Leaves out those that the file in this directory has already: the crawl is resumed.
    pub fn skip_known(&self, out: &Path) {
        // Without the file there is nothing to leave out; what cannot be read is repeated.
        self.lock().known = Known::read(out).unwrap_or_default();
    }

    /// Whether an earlier run of the crawl rejected the same. What a pipe delivers is new.
    pub fn is_known(&self, line: Option<(&str, u64)>, text: Option<&str>) -> bool {
        self.lock().known.has(line, text)
    }

    /// Number of seeds that were rejected.
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    /// Whether more were rejected than are logged one by one: only a file has the rest.
    pub fn says_more_than_log(&self) -> bool {
        self.count() > LOGGED_MAX
    }

    /// Writes those so far, and what follows, to the output directory; without one they are only counted.
    pub fn write_to(&self, out: Option<&Path>) {
        let mut shared = self.lock();
        let place = match out {
            Some(out) => Place::To(LinesFile {
                path: out.join(NAME),
                file: None,
                length: 0,
                held: Vec::new(),
                omitted: 0,
                has_waited: false,
            }),
            None => Place::Off,
        };
        if let Place::Held { lines, omitted } = std::mem::replace(&mut shared.place, place) {
            if !lines.is_empty() {
                shared.place.write(&lines);
            }
            if omitted > 0 {
                let object = json!({"omitted": omitted});
                shared.place.write(format!("{object}\n").as_bytes());
            }
        }
    }

    /// The file that has them, if one was written.
    pub fn file(&self) -> Option<PathBuf> {
        match &mut self.lock().place {
            Place::To(lines) => {
                lines.end();
                lines.file.is_some().then(|| lines.path.clone())
            }
            Place::Held { .. } | Place::Off => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Writes a line, or several. There are few, and each is in the file at once, also if the process is killed.
    fn write(&mut self, bytes: &[u8]) {
        let result = match self {
            Place::Held { lines, omitted } => {
                hold(bytes, lines, omitted);
                Ok(())
            }
            Place::To(lines) => {
                hold(bytes, &mut lines.held, &mut lines.omitted);
                lines.write()
            }
            Place::Off => Ok(()),
        };
        if let Err(error) = result {
            log::warn!("{NAME}: {error}: further invalid seeds are only counted");
            *self = Place::Off;
        }
    }
}

/// As much of a seed as is written.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SEED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Keeps lines in memory, if there is room.
fn hold(bytes: &[u8], lines: &mut Vec<u8>, omitted: &mut u64) {
    match lines.len() + bytes.len() <= HELD_MAX {
        true => lines.extend_from_slice(bytes),
        false => *omitted += 1,
    }
}

impl LinesFile {
    /// Writes what is held, unless there is no space for it.
    fn write(&mut self) -> io::Result<()> {
        match self.write_held() {
            Err(error) if is_full(&error) => {
                if !std::mem::replace(&mut self.has_waited, true) {
                    log::warn!("{NAME}: {error}: invalid seeds wait for disk space");
                }
                Ok(())
            }
            written => written,
        }
    }

    fn write_held(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                // A seed may have a login or a header with one.
                let file = OpenOptions::new()
                    .create(true)
                    .append(true)
                    .mode(0o600)
                    .open(&self.path)?;
                self.length = file.metadata()?.len();
                none.insert(file)
            }
        };
        if let Err(error) = file.write_all(&self.held) {
            // No line is torn, or there twice.
            if file.metadata()?.len() > self.length {
                file.set_len(self.length)?;
            }
            return Err(error);
        }
        self.length += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// The crawl has ended.
    fn end(&mut self) {
        let written = self.write_held();
        if self.omitted > 0 || written.is_err() {
            log::warn!("{NAME} has not all invalid seeds: there was no space for them");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).expect("it was written");
        let lines = text.lines().map(serde_json::from_str);
        lines.map(|line| line.expect("a line of JSON")).collect()
    }

    #[test]
    fn seeds_rejected_before_and_after_there_is_a_directory_are_in_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let rejected = Rejected::default();
        rejected.write_to(None);
        rejected.add(None, Some("x"), &"no host");
        assert_eq!((rejected.count(), rejected.file()), (1, None));

        let rejected = Rejected::default();
        rejected.add(Some(("seeds.txt", 3)), Some("not a url"), &"is no host");
        rejected.write_to(Some(folder.path()));
        rejected.add(None, Some(&"y".repeat(3000)), &"is no host");
        rejected.add(Some(("seeds.txt", 4)), None, &"is not UTF-8");
        let path = folder.path().join(NAME);
        assert_eq!((rejected.count(), rejected.file()), (3, Some(path.clone())));
        let found = lines(&path);
        let first =
            json!({"file": "seeds.txt", "line": 3, "seed": "not a url", "error": "is no host"});
        assert_eq!(found[0], first);
        assert_eq!(
            (&found[1]["file"], &found[2]["seed"]),
            (&Value::Null, &Value::Null)
        );
        let shown = found[1]["seed"].as_str().expect("a text");
        assert_eq!(shown.chars().count(), SEED_CHARS + 1);
    }

    #[test]
    fn what_an_earlier_run_rejected_is_known_to_the_one_that_resumes_the_crawl() {
        let folder = tempfile::tempdir().expect("a folder");
        let rejected = Rejected::default();
        rejected.write_to(Some(folder.path()));
        let file = folder.path().join("seeds.txt");
        let file = file.to_str().expect("text");
        rejected.add(Some((file, 3)), Some("not a url"), &"is no host");
        rejected.add(None, Some(&"y".repeat(3000)), &"is no host");
        let mode = fs::metadata(folder.path().join(NAME)).expect("it was written");
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);

        let next = Rejected::default();
        assert!(!next.is_known(Some((file, 3)), None));
        next.skip_known(folder.path());
        assert!(next.is_known(Some((file, 3)), None));
        assert!(!next.is_known(Some((file, 4)), None));
        assert!(!next.is_known(Some(("seeds.txt", 3)), None));
        assert!(next.is_known(None, Some(&"y".repeat(3000))));
        assert!(!next.is_known(None, Some("z")));
    }

    #[test]
    fn memory_is_bounded_and_no_file_is_made_without_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let rejected = Rejected::default();
        rejected.write_to(Some(folder.path()));
        assert!(!folder.path().join(NAME).exists());
        assert_eq!(rejected.file(), None);

        let rejected = Rejected::default();
        let long = "x".repeat(SEED_CHARS);
        let many = HELD_MAX as u64 / SEED_CHARS as u64;
        for number in 0..many {
            rejected.add(Some(("s", number)), Some(&long), &"is no host");
        }
        rejected.write_to(Some(folder.path()));
        let found = lines(&folder.path().join(NAME));
        let omitted = found.last().expect("lines")["omitted"].as_u64();
        assert_eq!(omitted, Some(many - (found.len() as u64 - 1)));
        assert_eq!(rejected.count(), many);
    }

    #[test]
    fn lines_wait_for_space_on_a_full_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let mut lines = LinesFile {
            path: "/dev/full".into(),
            file: None,
            length: 0,
            held: b"1\n".to_vec(),
            omitted: 0,
            has_waited: false,
        };
        lines.write().expect("it waits");
        assert!(lines.has_waited);
        (lines.path, lines.file) = (path.clone(), None);
        hold(b"2\n", &mut lines.held, &mut lines.omitted);
        lines.write().expect("there is space");
        assert_eq!(fs::read_to_string(path).expect("it was written"), "1\n2\n");
    }
}
