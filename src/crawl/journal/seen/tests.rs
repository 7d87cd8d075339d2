//! The seen set with its runs, on files in memory, against a set in memory alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

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
        for (key, is_present) in self.runs.poll_answers().into_iter().flatten() {
            self.seen.handle_answer(key, is_present);
        }
        if let Some(change) = self.runs.poll_change() {
            self.seen.set_runs(change.runs, change.has_frozen);
            self.runs.begin_commit();
            self.runs.handle_committed();
        }
        let freezes = self.seen.is_to_be_frozen() && self.runs.may_spill();
        let keys = self.seen.take_questions(self.runs.room());
        match keys.is_empty() {
            true => drop(self.runs.step()),
            false => self.runs.ask(keys),
        }
        if let Some(piece) = self.runs.wanted_piece() {
            self.runs.put_piece(&self.seen.frozen_piece(piece));
        }
        if freezes {
            self.seen.freeze();
            self.runs.begin_spill(self.seen.frozen_pieces());
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
