//! A seeds file as the state of a crawl has it: its path, and what shows that it has not changed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use argiope::sink::directory::KeptInput;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::Usage;
use super::pending::NAME as PENDING;

/// A seeds file of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct SeedFile {
    /// Its absolute path.
    pub path: String,
    /// Its content when the run began; `None` in states of earlier versions, which have paths only.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
}

/// By which a file is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// Its length in bytes.
    length: u64,
    /// XXH3 of samples: of all bytes of a file of up to a MiB.
    samples: u64,
}

/// The forms in which states have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Path(String),
    File {
        path: String,
        #[serde(default)]
        content: Option<Content>,
    },
}

impl From<Stored> for SeedFile {
    fn from(stored: Stored) -> Self {
        let (path, content) = match stored {
            Stored::Path(path) => (path, None),
            Stored::File { path, content } => (path, content),
        };
        SeedFile { path, content }
    }
}

impl SeedFile {
    /// The file at an absolute path, as it is now.
    pub fn at(path: String) -> Self {
        let content = Content::of(path.as_ref());
        if let Err(error) = &content {
            // Opening it as seeds reports the same.
            log::debug!("{path}: {error}");
        }
        SeedFile {
            path,
            content: content.ok(),
        }
    }

    /// Follows the file to the name under which it is kept, if it is one of these.
    pub fn follow(&mut self, kept: &[KeptInput]) {
        if let Ok(file) = fs::metadata(&self.path)
            && let Some(input) = kept.iter().find(|input| input.is(&file))
        {
            self.path = absolute(&input.kept);
        }
    }

    /// Checks that it is as it was when the run began.
    ///
    /// # Errors
    /// The file cannot be read, or it has changed. The state counts the lines that were taken, and the count is wrong
    /// for a changed file.
    pub fn check(&mut self) -> Result<(), Usage> {
        let path = &self.path;
        let found = Content::of(path.as_ref())
            .map_err(|error| Usage(format!("the seeds file {path} cannot be read: {error}")))?;
        let known = *self.content.get_or_insert(found);
        if known == found {
            return Ok(());
        }
        let how = match known.length == found.length {
            true => format!("it still has {} bytes, but others", found.length),
            false => format!("it had {} bytes, and has {}", known.length, found.length),
        };
        Err(Usage(format!(
            "the seeds file {path} has changed since the crawl began ({how}): put it back, unchanged, and \
             give new seeds in another file; or begin a new crawl with what is queued: argiope state DIR --export"
        )))
    }

    /// A file that an earlier version renamed without a word in the state: the name that it has now. That version
    /// wrote another file at its path.
    pub fn renamed_before(&self, out: &Path) -> Option<String> {
        let is_pending = Path::new(&self.path) == Path::new(&absolute(&out.join(PENDING)));
        let old = format!("{}.old", self.path);
        let is_renamed = self.content.is_none() && is_pending && Path::new(&old).exists();
        is_renamed.then_some(old)
    }
}

impl Content {
    fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut hasher = Xxh3::new();
        let mut block = vec![0; SAMPLE];
        let samples = length.div_ceil(SAMPLE as u64).min(SAMPLES);
        for number in 0..samples {
            // From the first block to the last.
            let last = length.saturating_sub(SAMPLE as u64);
            let offset = match samples {
                SAMPLES => u128::from(last) * u128::from(number) / u128::from(SAMPLES - 1),
                _ => u128::from(number) * SAMPLE as u128,
            };
            let offset = offset as u64;
            let size = (length - offset).min(SAMPLE as u64) as usize;
            file.read_exact_at(&mut block[..size], offset)?;
            hasher.update(&block[..size]);
        }
        Ok(Content {
            length,
            samples: hasher.digest(),
        })
    }
}

/// A path from any working directory; `-` is standard input.
pub fn absolute(path: &Path) -> String {
    let absolute = match path.as_os_str() == "-" {
        true => path.to_owned(),
        false => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    };
    absolute.to_string_lossy().into_owned()
}

/// Length of a sample, and their greatest number: 1 MiB in all, so that a file of any size is read in
/// milliseconds.
const SAMPLE: usize = 16 << 10;
const SAMPLES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_recognized_by_its_length_and_samples_from_its_beginning_to_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("seeds");
        let max = SAMPLE * SAMPLES as usize;
        for length in [0, 1, SAMPLE, SAMPLE + 1, max - 1, max, max + 1, 3 * max + 7] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            fs::write(&path, &bytes).expect("it can be written");
            let mut file = SeedFile::at(absolute(&path));
            file.check().expect("it has not changed");
            let check_changed = |file: &mut SeedFile, bytes: &[u8], what: &str| {
                fs::write(&path, bytes).expect("it can be written");
                let error = file.check().expect_err("it has changed").to_string();
                assert!(
                    error.contains(what) && error.contains("put it back"),
                    "{error}"
                );
            };
            check_changed(&mut file, &[&bytes[..], b"x"].concat(), "bytes, and has");
            let every = if length > max { length - 1 } else { length / 7 };
            for at in (0..length).step_by(every.max(1)) {
                let mut other = bytes.clone();
                other[at] ^= 1;
                check_changed(&mut file, &other, "bytes, but others");
            }
        }
    }

    #[test]
    fn the_path_in_a_state_of_an_earlier_version_is_a_file_of_any_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = absolute(&folder.path().join(PENDING));
        fs::write(&path, "one").expect("it can be written");
        let text = serde_json::to_string(&path).expect("a text");
        let mut file: SeedFile = serde_json::from_str(&text).expect("a path");
        assert_eq!(file.path, path);
        assert_eq!(file.renamed_before(folder.path()), None);
        fs::write(folder.path().join("pending.jsonl.old"), "two").expect("it can be written");
        assert_eq!(
            file.renamed_before(folder.path()),
            Some(format!("{path}.old"))
        );
        file.check().expect("any content");
        assert_eq!(file.renamed_before(folder.path()), None);
        // From then on it is known.
        let text = serde_json::to_string(&file).expect("a text");
        let read: SeedFile = serde_json::from_str(&text).expect("its own");
        assert_eq!(read, file);
        assert!(read.content.is_some());
    }
}
