//! The seen set on disk: writes and merges its runs, and looks for keys in them.
//!
//! ```text
//! frozen keys ──► run ──► named in the journal ──┬──► four of a size are merged to one ──► …
//!                                                └──► removed after a commit without it
//! questions ──► batch ──► blocks are read ──► answers
//! ```
//!
//! The runs change between batches only, so that a batch sees all of them: keys that were in memory when
//! it began are there, or in a run, until it ends.

pub mod checks;
pub mod merging;
mod opening;
pub mod runs;
pub mod writing;

use std::path::PathBuf;
use std::sync::Arc;

use self::checks::{Batch, KEYS_MAX};
use self::merging::Merging;
use self::runs::{RunFailure, RunFile, path_of};
use self::writing::Writing;
use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::frontier::seen::Seen;
use crate::frontier::seen::run::Run;
use crate::sink::WriteError;
use crate::sink::directory::STATE;
use crate::state::record::RunRecord;
use crate::state::seen_runs::merge::{RUNS_MAX, to_merge};

/// The runs of the seen set.
#[derive(Debug)]
pub struct SeenRuns {
    /// The output directory.
    out: PathBuf,
    crawl: u64,
    next_number: u64,
    runs: Vec<RunFile>,
    spill: Option<Spill>,
    merging: Option<Merging>,
    batch: Option<Batch>,
    /// Number of batches so far.
    batches: u64,
    /// Runs that are removed after the next commit, and after the one under way.
    obsolete: Vec<PathBuf>,
    removed_next: Vec<PathBuf>,
    jobs: Vec<DiskJob>,
    failure: Option<WriteError>,
    /// Which of the batch, the merge and the spill has the next step.
    turn: usize,
}

/// What the runs of a crawl begin with.
#[derive(Debug, Default)]
pub struct SeenStart {
    /// The runs that there are.
    pub runs: Vec<RunFile>,
    /// The number of the next.
    pub next_number: u64,
}

/// Frozen keys that are being written to a run.
#[derive(Debug)]
struct Spill {
    writing: Writing,
    /// The piece of the keys that is needed next, and the number of pieces.
    next: usize,
    pieces: usize,
}

/// The runs from now on.
#[derive(Debug)]
pub struct RunsChange {
    /// What is in memory of them.
    pub runs: Vec<Arc<Run>>,
    /// Their records.
    pub records: Vec<RunRecord>,
    /// Whether one of them has the frozen keys.
    pub has_frozen: bool,
}

/// What a step has changed.
#[derive(Debug)]
pub struct Advance {
    /// The runs from now on, if they are others.
    pub change: Option<RunsChange>,
    /// The number of the run that keys in memory are written to from now on.
    pub frozen: Option<u64>,
    /// Whether there is another step to do at once.
    pub has_step: bool,
}

/// Owners of jobs among the files of the disk; `checks::READS` and `merging::READS` are others.
const SPILLED: FileId = FileId(8);
const MERGED: FileId = FileId(9);
const REMOVED: FileId = FileId(12);

impl SeenRuns {
    /// The runs in the state of the crawl in this output directory.
    pub fn new(start: SeenStart, out: PathBuf, crawl: u64) -> Self {
        SeenRuns {
            out,
            crawl,
            next_number: start.next_number,
            runs: start.runs,
            spill: None,
            merging: None,
            batch: None,
            batches: 0,
            obsolete: Vec::new(),
            removed_next: Vec::new(),
            jobs: Vec::new(),
            failure: None,
            turn: 0,
        }
    }

    /// The first job that failed.
    pub fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    /// The runs, as they are now.
    pub fn current(&self) -> RunsChange {
        RunsChange {
            runs: self.runs.iter().map(|run| Arc::clone(run.run())).collect(),
            records: self.runs.iter().map(RunFile::record).collect(),
            has_frozen: false,
        }
    }

    /// Whether frozen keys may be given.
    fn may_spill(&self) -> bool {
        self.spill.is_none() && self.runs.len() < RUNS_MAX && self.failure.is_none()
    }

    /// Begins to write frozen keys, which come in so many pieces, to a run; returns its number.
    fn begin_spill(&mut self, pieces: usize) -> u64 {
        let writing = self.begin_run(SPILLED);
        let number = writing.number();
        self.spill = Some(Spill {
            writing,
            next: 0,
            pieces,
        });
        number
    }

    /// The piece of the frozen keys that is needed now.
    fn wanted_piece(&self) -> Option<usize> {
        let spill = self.spill.as_ref()?;
        spill.writing.wants_keys().then_some(spill.next)
    }

    /// Takes that piece.
    fn put_piece(&mut self, keys: &[u64]) {
        if let Some(spill) = &mut self.spill {
            spill.writing.push(keys);
            spill.next += 1;
            if spill.next == spill.pieces {
                spill.writing.end();
            }
        }
    }

    /// Advances the set and its runs together, by a step of a millisecond or two at most. `may_freeze`: keys in
    /// memory may become a run.
    pub fn advance(&mut self, seen: &mut Seen, may_freeze: bool) -> Advance {
        for (key, is_present) in self.poll_answers().into_iter().flatten() {
            seen.handle_answer(key, is_present);
        }
        let change = self.poll_change();
        if let Some(change) = &change {
            seen.set_runs(change.runs.clone(), change.has_frozen);
        }
        let freezes = may_freeze && seen.is_to_be_frozen() && self.may_spill();
        let keys = seen.take_questions(self.room(seen.questions()));
        let has_step = !keys.is_empty() || self.step();
        self.ask(keys);
        if let Some(piece) = self.wanted_piece() {
            self.put_piece(&seen.frozen_piece(piece));
        }
        let frozen = freezes.then(|| {
            seen.freeze();
            self.begin_spill(seen.frozen_pieces())
        });
        Advance {
            has_step: has_step || frozen.is_some(),
            change,
            frozen,
        }
    }

    /// The batch under way: its number, and how many keys it has.
    pub fn batch(&self) -> Option<(u64, usize)> {
        let batch = self.batch.as_ref()?;
        Some((self.batches, batch.count()))
    }

    /// How many of the keys that wait to be checked are taken now. They join the batch that is being filled,
    /// or begin one, which takes all that wait.
    fn room(&mut self, waiting: usize) -> usize {
        if self.failure.is_some() {
            return 0;
        }
        if self.batch.is_none() && waiting > 0 {
            let count = waiting.min(KEYS_MAX);
            self.batch = Some(Batch::new(count, self.runs.clone()));
            self.batches += 1;
        }
        self.batch.as_ref().map_or(0, Batch::wanted)
    }

    /// Takes keys for which there was room.
    fn ask(&mut self, keys: Vec<u64>) {
        if let Some(batch) = self.batch.as_mut().filter(|_| !keys.is_empty()) {
            batch.push(keys);
        }
    }

    /// Some keys of a batch, and whether any run has them.
    fn poll_answers(&mut self) -> Option<impl Iterator<Item = (u64, bool)> + use<>> {
        let batch = self.batch.as_mut()?;
        let answers = batch.poll_answers();
        if batch.is_over() {
            self.batch = None;
        }
        answers
    }

    /// The runs, if they change now.
    fn poll_change(&mut self) -> Option<RunsChange> {
        if self.batch.is_some() {
            return None;
        }
        if let Some(spill) = self.spill.take_if(|spill| spill.writing.is_done()) {
            self.add(spill.writing);
            return Some(RunsChange {
                has_frozen: true,
                ..self.current()
            });
        }
        let merging = self.merging.take_if(|merging| merging.writing.is_done())?;
        let merged: Vec<u64> = merging.merged().collect();
        let (old, kept): (Vec<RunFile>, Vec<RunFile>) =
            (self.runs.drain(..)).partition(|run| merged.contains(&run.number()));
        self.runs = kept;
        self.obsolete
            .extend(old.iter().map(|run| run.path().to_owned()));
        self.add(merging.writing);
        Some(self.current())
    }

    fn add(&mut self, writing: Writing) {
        let (run, record) = writing.finish();
        self.runs
            .push(RunFile::new(run, record, &self.out, self.crawl));
    }

    /// Does a step of 1 to 2 ms at most; returns false if there is none to do now.
    fn step(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        if self.merging.is_none() {
            self.begin_merge();
        }
        self.turn = (self.turn + 1) % 3;
        let jobs = &mut self.jobs;
        let has_step = [0, 1, 2]
            .into_iter()
            .any(|turn| match (self.turn + turn) % 3 {
                0 => (self.batch.as_mut()).is_some_and(|batch| batch.step(jobs)),
                1 => (self.merging.as_mut()).is_some_and(|merging| merging.step(jobs)),
                _ => (self.spill.as_mut()).is_some_and(|spill| spill.writing.step(jobs)),
            });
        has_step || self.batch.as_ref().is_some_and(Batch::has_answers)
    }

    fn begin_merge(&mut self) {
        let keys: Vec<u64> = self.runs.iter().map(|run| run.record().keys).collect();
        if let Some(chosen) = to_merge(&keys) {
            let runs = chosen.into_iter().map(|run| self.runs[run].clone());
            let runs = runs.collect();
            let writing = self.begin_run(MERGED);
            self.merging = Some(Merging::new(runs, writing));
        }
    }

    fn begin_run(&mut self, file: FileId) -> Writing {
        let number = self.next_number;
        self.next_number += 1;
        let path = path_of(&self.out, number);
        Writing::new(file, number, self.crawl, path, &mut self.jobs)
    }

    /// A commit begins.
    pub fn begin_commit(&mut self) {
        self.removed_next.append(&mut self.obsolete);
    }

    /// The commit is durable: files that it does not name are removed.
    pub fn handle_committed(&mut self) {
        for path in std::mem::take(&mut self.removed_next) {
            self.jobs.push(DiskJob::Remove {
                file: REMOVED,
                path,
                tag: 0,
            });
        }
    }

    /// Jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        std::mem::take(&mut self.jobs)
    }

    /// The disk has finished a job. Returns whether it was one of these.
    pub fn handle_disk(&mut self, done: &DiskDone) -> bool {
        let Some(file) = done.file else {
            return false;
        };
        let path = match file {
            SPILLED => self.spill.as_ref().map(|spill| spill.writing.number()),
            MERGED => (self.merging.as_ref()).map(|merging| merging.writing.number()),
            checks::READS | merging::READS | REMOVED => None,
            _ => return false,
        };
        if let Err(error) = &done.result {
            if file == REMOVED {
                log::warn!("{error}; the file is not needed, and is removed by the next run");
                return true;
            }
            // The system's error names the file of a read.
            let path =
                path.map_or_else(|| self.out.join(STATE), |number| path_of(&self.out, number));
            self.fail((path, std::io::Error::new(error.kind(), error.to_string())));
            return true;
        }
        let read = match file {
            SPILLED => {
                if let Some(spill) = &mut self.spill {
                    spill.writing.handle_disk(done);
                }
                Ok(())
            }
            MERGED => {
                if let Some(merging) = &mut self.merging {
                    merging.writing.handle_disk(done);
                }
                Ok(())
            }
            merging::READS => (self.merging.as_mut()).map_or(Ok(()), |all| all.handle_read(done)),
            checks::READS => match &mut self.batch {
                Some(batch) => {
                    let read = batch.handle_read(done);
                    batch.advance(&mut self.jobs);
                    read
                }
                None => Ok(()),
            },
            _ => Ok(()),
        };
        if let Err(failure) = read {
            self.fail(failure);
        }
        true
    }

    fn fail(&mut self, (path, error): RunFailure) {
        self.failure
            .get_or_insert_with(|| WriteError::new(path, &error));
        // Its keys have no answer: their requests are decided by the run that resumes the crawl.
        self.batch = None;
    }
}

#[cfg(test)]
mod tests;
