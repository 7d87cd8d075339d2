//! The seen set with its runs, on files in memory, against a set in memory alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use super::checks::KEYS_PER_STEP;
use super::*;
use crate::base::disk::Written;
use crate::base::keys::UrlKey;
use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::frontier::seen::{Seen, SeenAnswer};

/// A set, its runs, and the files that they are in.
struct Trial {
    seen: Seen,
    runs: SeenRuns,
    files: BTreeMap<PathBuf, Vec<u8>>,
    open: BTreeMap<FileId, PathBuf>,
    /// Reads fail.
    is_broken: bool,
    answers: BTreeMap<u64, bool>,
}

impl Trial {
    fn new(memory_max: u64) -> Self {
        let mut seen = Seen::new(&Secret::from_seed(1));
        seen.set_memory_max(memory_max);
        Trial {
            seen,
            runs: SeenRuns::new(SeenStart::default(), "out".into(), 7),
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            is_broken: false,
            answers: BTreeMap::new(),
        }
    }

    fn perform(&mut self, job: &DiskJob) -> io::Result<Written> {
        match job {
            DiskJob::Create { file, path } => {
                assert!(self.files.insert(path.clone(), Vec::new()).is_none());
                self.open.insert(*file, path.clone());
            }
            DiskJob::Append { file, bytes, .. } => {
                let path = &self.open[file];
                self.files.get_mut(path).expect("a file").extend(bytes);
            }
            DiskJob::Finish { file, .. } => drop(self.open.remove(file)),
            DiskJob::Remove { path, .. } => drop(self.files.remove(path)),
            _ => {}
        }
        Ok(Written::default())
    }

    /// A turn, as that of the core.
    fn turn(&mut self) {
        let advance = self.runs.advance(&mut self.seen, true);
        if advance.change.is_some() {
            self.runs.begin_commit();
            self.runs.handle_committed();
        }
        for mut job in self.runs.poll_jobs() {
            let result = match &mut job {
                DiskJob::Read { .. } if self.is_broken => Err(io::Error::other("EIO")),
                DiskJob::Read {
                    path,
                    offset,
                    bytes,
                    ..
                } => {
                    let start = *offset as usize;
                    let end = start + bytes.len();
                    bytes.copy_from_slice(&self.files[path][start..end]);
                    Ok(Written::default())
                }
                job => self.perform(job),
            };
            self.runs.handle_disk(&job.done(result));
        }
        while let Some((UrlKey(key), is_new)) = self.seen.poll_answer(Instant::START) {
            self.answers.insert(key, is_new);
        }
    }
}

#[test]
fn answers_are_those_of_a_set_in_memory() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let mut trial = Trial::new([1, 200, 2_000, 60_000][seed as usize % 4]);
        let mut expected = BTreeSet::new();
        // Keys that are asked for and have no answer yet, with the right one.
        let mut open: BTreeMap<u64, bool> = BTreeMap::new();
        let known: Vec<u64> = (0..3_000).map(|_| rng.next_u64()).collect();
        for _ in 0..9_000 {
            let key = known[rng.below(3_000) as usize];
            if open.contains_key(&key) {
                continue;
            }
            let is_new = expected.insert(key);
            match trial.seen.ask(UrlKey(key), Instant::START) {
                SeenAnswer::New => assert!(is_new, "{seed}"),
                SeenAnswer::Seen => assert!(!is_new, "{seed}"),
                SeenAnswer::Later => drop(open.insert(key, is_new)),
            }
            if rng.chance(0.3) {
                trial.turn();
            }
            for (key, is_new) in std::mem::take(&mut trial.answers) {
                assert_eq!(open.remove(&key), Some(is_new), "{seed}");
            }
        }
        for _ in 0..50_000 {
            if open.is_empty() {
                break;
            }
            trial.turn();
            for (key, is_new) in std::mem::take(&mut trial.answers) {
                assert_eq!(open.remove(&key), Some(is_new), "{seed}");
            }
        }
        assert!(open.is_empty(), "{seed}: {} have no answer", open.len());
        assert!(trial.runs.failure().is_none());
        let is_small = seed % 4 < 3;
        assert_eq!(trial.files.is_empty(), !is_small, "{seed}");
        assert!(trial.files.len() <= 40, "{seed}: {}", trial.files.len());
    }
}

#[test]
fn all_keys_that_wait_are_checked_in_one_batch() {
    let mut rng = Rng::from_seed(5);
    let mut trial = Trial::new(20_000);
    let known: BTreeSet<u64> = (0..20_000).map(|_| rng.next_u64()).collect();
    for key in &known {
        trial.seen.ask(UrlKey(*key), Instant::START);
        trial.turn();
    }
    while trial.seen.questions() > 0 || trial.runs.batch().is_some() {
        trial.turn();
    }
    trial.answers.clear();
    let first = trial.runs.batches + 1;
    let new: Vec<u64> = (0..300_000).map(|_| rng.next_u64()).collect();
    let is_later = |key: &&u64| trial.seen.ask(UrlKey(**key), Instant::START) == SeenAnswer::Later;
    let later: Vec<u64> = known.iter().chain(&new).filter(is_later).copied().collect();
    let asked = trial.seen.questions();
    assert!(asked > 4 * KEYS_PER_STEP, "{asked}");
    trial.turn();
    assert_eq!(trial.runs.batch(), Some((first, asked)));
    for _ in 0..5_000 {
        trial.turn();
    }
    for key in &later {
        let is_new = trial.answers.remove(key);
        assert_eq!(is_new, Some(!known.contains(key)));
    }
    assert!(trial.answers.is_empty());
}

#[test]
fn a_key_that_cannot_be_looked_for_has_no_answer_and_the_file_is_named() {
    for is_broken in [true, false] {
        let mut rng = Rng::from_seed(3);
        let mut trial = Trial::new(2_000);
        let keys: Vec<u64> = (0..170).map(|_| rng.next_u64()).collect();
        for key in &keys {
            trial.seen.ask(UrlKey(*key), Instant::START);
        }
        while trial.files.is_empty() || !trial.open.is_empty() || trial.seen.is_to_be_frozen() {
            trial.turn();
        }
        trial.turn();
        assert_eq!(
            trial.seen.ask(UrlKey(keys[0]), Instant::START),
            SeenAnswer::Later
        );
        trial.is_broken = is_broken;
        for bytes in trial.files.values_mut() {
            bytes[60] ^= 1;
        }
        for _ in 0..9 {
            trial.turn();
        }
        assert!(trial.answers.is_empty());
        let failure = trial.runs.failure().expect("it is an error").to_string();
        let cause = if is_broken {
            "EIO"
        } else {
            "damaged at byte 32"
        };
        assert!(
            failure.contains(cause) && failure.contains("out/state"),
            "{failure}"
        );
    }
}
