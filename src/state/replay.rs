//! The state of a crawl at its last commit, from the records of its journal in order.
//!
//! ```text
//! push ──► pending ──(commit of its epoch)──► committed ──► finish
//! ```
//!
//! A commit of an epoch applies the records up to the end of that epoch. It may come after records of later
//! epochs: these wait for their own commit, and count for nothing if it never comes. So does the `Begin` of
//! a compacted journal: until a commit comes after it, the state before it holds. A fact needs no commit: the
//! newest about something counts, whatever becomes of the epochs.

mod batches;
mod blocks;
mod committed;
mod entries;
mod facts;
mod left;
mod numbers;
mod passing;
mod restored;
mod seed_hosts;

use std::collections::VecDeque;
use std::ops::Range;

use thiserror::Error;

pub use self::blocks::Blocks;
use self::committed::Committed;
pub use self::committed::is_in_seen_set;
pub use self::entries::OrderedEntries;
pub use self::facts::Facts;
pub use self::left::Left;
use self::passing::{Passing, mark_of};
pub use self::restored::Restored;
use super::record::{CommitRecord, EntryHead, Learned, Record, RecordError, Resumption};

use crate::base::sentence::debug_as_sentence;

/// What is left of a crawl, from the records of its journal in order.
///
/// In memory are the entries that have not ended, one key per URL that was admitted and is in no run of the
/// seen set unless they are passed on, and the records after the last commit.
#[derive(Debug, Default)]
pub struct Replay {
    committed: Option<Committed>,
    /// Records after the end of the last committed epoch.
    pending: VecDeque<Record>,
    /// All records up to the end of this epoch are known to be committed, or void: they do not wait for the
    /// commit.
    known_epoch: u64,
    /// Bytes of those that are void.
    voids: VecDeque<Range<u64>>,
    /// Its end has come.
    is_past_known: bool,
    /// The last epoch that ended since the last `Begin`.
    last_epoch: Option<u64>,
    /// Places of damage among the pending records: how many of them came before it.
    gaps: VecDeque<usize>,
    losses: Losses,
    /// Number of gaps before which, or in which, an epoch was committed whose commit is missing.
    lost_commits: usize,
    facts: Facts,
    /// Facts that need no commit are read apart.
    are_facts_apart: bool,
    /// Nothing was sent since the facts: a `Quiet` was the last record, but for those of commits.
    is_quiet: bool,
    /// The same, and a commit came after it.
    is_quiet_committed: bool,
    /// Keys of the seen set are passed on, and are not in what is left.
    passing: Option<Passing>,
}

/// What damage took from the committed epochs of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Number of places in committed epochs at which records are missing.
    pub gaps: usize,
    /// Number of attempts that ended, whose own records are missing: the seen set lacks their URLs.
    pub unknown_ends: u64,
}

/// Why records are not the journal of a crawl.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The first record does not begin a crawl, or there is no record.
    #[error("the journal lacks its beginning")]
    NoBegin,
    /// It is not a record.
    #[error("{0}")]
    Record(#[source] RecordError),
    /// An epoch ended after an equal or later one.
    #[error("epoch {epoch} ended after epoch {last}")]
    EpochOrder {
        /// The epoch.
        epoch: u64,
        /// The epoch before it.
        last: u64,
    },
    /// The end of a committed epoch is missing, or was committed before.
    #[error(
        "epoch {epoch} is committed, but its end is not in the journal since the commit before"
    )]
    UnknownEpoch {
        /// The epoch.
        epoch: u64,
    },
}

debug_as_sentence!(ReplayError);

impl ReplayError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            ReplayError::NoBegin => "journal.no_begin",
            ReplayError::Record(cause) => cause.code(),
            ReplayError::EpochOrder { .. } => "journal.epoch_order",
            ReplayError::UnknownEpoch { .. } => "journal.unknown_epoch",
        }
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl Replay {
    /// Before the first record.
    pub fn new() -> Self {
        Replay::default()
    }

    /// Before the first record of a segment with a commit of this epoch: up to its end, records count at once
    /// and take no memory, but for those in `voids`, which are as in an
    /// [`Outline`](super::outline::Outline). The segment is not damaged.
    pub fn with_committed(epoch: u64, voids: &[Range<u64>]) -> Self {
        Replay {
            known_epoch: epoch,
            voids: voids.iter().cloned().collect(),
            ..Replay::default()
        }
    }

    /// Facts that need no commit are read apart: they are those of [`Replay::add_facts`]. The records are given as
    /// bytes.
    pub fn without_facts(self) -> Self {
        Replay {
            are_facts_apart: true,
            ..self
        }
    }

    /// Keys of the seen set are passed on by [`Replay::poll_passed`], but for those in records before this
    /// offset, which are in runs. No run resumed the crawl in the segment.
    pub fn pass_keys(self, dead_until: u64) -> Self {
        Replay {
            passing: Some(Passing::new(dead_until)),
            ..self
        }
    }

    /// The next record that is passed on: they begin what [`Replay::into_left`] leaves.
    pub fn poll_passed(&mut self) -> Option<Record> {
        self.passing.as_mut()?.poll()
    }

    /// Adds the next record, whose frame is at this offset.
    ///
    /// # Errors
    /// The record cannot follow those before it. It is not added.
    pub fn push_at(&mut self, offset: u64, record: Record) -> Result<(), ReplayError> {
        while self.voids.front().is_some_and(|void| void.end <= offset) {
            self.voids.pop_front();
        }
        let is_void = |void: &Range<u64>| void.contains(&offset);
        let is_void = self.voids.front().is_some_and(is_void);
        self.push_any(offset, record, is_void)
    }

    /// The same, of the bytes of a record.
    ///
    /// # Errors
    /// As [`Replay::push_at`], or they are not those of a record.
    pub fn push_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ReplayError> {
        while self.step() {}
        let has_voids = self.voids.front().is_some_and(|void| void.start <= offset);
        if self.is_known()
            && !has_voids
            && self.passing.is_none()
            && let Some(committed) = &mut self.committed
            && let Some(admitted) = EntryHead::of_admitted(bytes)
        {
            let (head, entry) = admitted.map_err(ReplayError::Record)?;
            committed.apply_admission(&head, entry);
            (self.is_quiet, self.is_quiet_committed) = (false, false);
            return Ok(());
        }
        if self.committed.is_some() && Learned::is(bytes) {
            if !self.are_facts_apart {
                let learned = Learned::decode(bytes).map_err(ReplayError::Record)?;
                self.facts.learn(learned);
            }
            (self.is_quiet, self.is_quiet_committed) = (false, false);
            return Ok(());
        }
        let record = Record::decode(bytes).map_err(ReplayError::Record)?;
        self.push_at(offset, record)
    }

    /// Whether records are known to be committed, or void.
    fn is_known(&self) -> bool {
        self.known_epoch > 0 && !self.is_past_known
    }

    /// The same, of a record that is not in a void.
    ///
    /// # Errors
    /// As [`Replay::push_at`].
    pub fn push(&mut self, record: Record) -> Result<(), ReplayError> {
        self.push_any(u64::MAX, record, false)
    }

    fn push_any(&mut self, offset: u64, record: Record, is_void: bool) -> Result<(), ReplayError> {
        while self.step() {}
        let is_first = self.committed.is_none() && self.pending.is_empty();
        match &record {
            Record::Begin { .. } => self.last_epoch = None,
            _ if is_first => return Err(ReplayError::NoBegin),
            Record::EpochEnd(epoch) => {
                if let Some(last) = self.last_epoch.filter(|last| last >= epoch)
                    && !self.resume_in_gap(*epoch)
                {
                    return Err(ReplayError::EpochOrder {
                        epoch: *epoch,
                        last,
                    });
                }
                // An epoch ends once the one before is committed.
                if self.last_epoch > self.committed_epoch() {
                    self.lost_commits = self.losses.gaps + self.gaps.len();
                }
                self.last_epoch = Some(*epoch);
            }
            _ => {}
        }
        match &record {
            Record::Quiet => self.is_quiet = true,
            Record::Commit(_) => self.is_quiet_committed = self.is_quiet,
            Record::EpochEnd(_) => {}
            _ => (self.is_quiet, self.is_quiet_committed) = (false, false),
        }
        if let Some(learned) = Learned::of(&record) {
            self.facts.learn(learned);
            return Ok(());
        }
        let is_known = self.is_known();
        match record {
            Record::Resumed(resumption) => self.resume(resumption)?,
            Record::Commit(commit) if commit.epoch <= self.known_epoch => {
                self.note_commit(commit)?
            }
            Record::Commit(commit) => self.commit(commit)?,
            Record::Quiet => {}
            record if is_known && is_void => {
                let committed = self.committed.as_mut().ok_or(ReplayError::NoBegin)?;
                committed.note_uncommitted(&record);
            }
            record if is_known => {
                if let Record::EpochEnd(epoch) = record {
                    self.is_past_known = epoch >= self.known_epoch;
                }
                self.apply_at(offset, record);
            }
            record => self.pending.push_back(record),
        }
        Ok(())
    }

    /// Applies a committed record, whose frame is at this offset.
    fn apply_at(&mut self, offset: u64, record: Record) {
        let mark = self.passing.as_ref().and_then(|_| mark_of(&record));
        Committed::apply_any(&mut self.committed, record);
        if let (Some(passing), Some(committed)) = (&mut self.passing, &mut self.committed) {
            passing.pass(committed, mark, offset);
        }
    }

    /// Goes on with what the last record began, by a step of less than a millisecond. Returns whether there is
    /// more; otherwise the next record does all of it.
    pub fn step(&mut self) -> bool {
        self.committed.as_mut().is_some_and(Committed::step_undo)
    }

    /// Whether [`Replay::step`] has something to do.
    pub fn has_step(&self) -> bool {
        let committed = self.committed.as_ref();
        committed.is_some_and(Committed::has_undo)
    }

    /// The commit of an epoch whose records were all applied.
    fn note_commit(&mut self, commit: CommitRecord) -> Result<(), ReplayError> {
        let committed = self.committed.as_mut().ok_or(ReplayError::NoBegin)?;
        committed.next_number = committed.next_number.max(commit.next_number);
        committed.commit = Some(commit);
        Ok(())
    }

    /// A later run continues: records that wait for a commit have none.
    fn resume(&mut self, resumption: Resumption) -> Result<(), ReplayError> {
        if self.committed_epoch() < Some(resumption.commit.epoch) {
            self.commit(resumption.commit)?;
        }
        // What was damaged when the run began was cut off.
        self.losses.gaps += self.gaps.len();
        self.gaps.clear();
        let mut committed = self.committed.take().ok_or(ReplayError::NoBegin)?;
        committed.add_uncommitted(&self.pending);
        self.pending.clear();
        committed.resume(resumption.settings, resumption.seeds_taken);
        self.last_epoch = committed.commit.as_ref().map(|commit| commit.epoch);
        self.committed = Some(committed);
        Ok(())
    }

    /// An epoch ends that has ended before, without a commit: a later run continued in between. If its beginning
    /// was damaged, what came before that is void. Returns false if there is no damage in between.
    fn resume_in_gap(&mut self, epoch: u64) -> bool {
        let Some(committed) = &mut self.committed else {
            return false;
        };
        let is_end = |record: &Record| matches!(record, Record::EpochEnd(end) if *end == epoch);
        let end = self.pending.iter().position(is_end);
        let Some(gap) = end.and_then(|end| self.gaps.iter().copied().find(|gap| *gap > end)) else {
            return false;
        };
        let void: VecDeque<Record> = self.pending.drain(..gap).collect();
        committed.add_uncommitted(&void);
        while self.gaps.front().is_some_and(|before| *before <= gap) {
            self.gaps.pop_front();
            self.losses.gaps += 1;
        }
        self.gaps.iter_mut().for_each(|after| *after -= gap);
        true
    }

    /// The facts of the records, which were read apart.
    pub fn add_facts(&mut self, facts: Facts) {
        self.facts.extend(facts);
    }

    /// Records are missing here, because a part of the segment is damaged.
    pub fn skip(&mut self) {
        self.gaps.push_back(self.pending.len());
        (self.is_quiet, self.is_quiet_committed) = (false, false);
    }

    fn committed_epoch(&self) -> Option<u64> {
        let commit = self.committed.as_ref()?.commit.as_ref();
        commit.map(|commit| commit.epoch)
    }

    /// What damage took from the committed epochs so far.
    pub fn losses(&self) -> Losses {
        let unknown_ends = self.committed.as_ref().map_or(0, |all| all.unknown_ends);
        Losses {
            gaps: self.losses.gaps.max(self.lost_commits),
            unknown_ends,
        }
    }

    /// The state as of the last commit. Without a commit it is the last `Begin`, with the records of a
    /// beginning that follow it directly.
    ///
    /// # Errors
    /// There is no `Begin`.
    pub fn finish(self) -> Result<Restored, ReplayError> {
        let committed = match self.committed {
            Some(mut committed) => {
                committed.add_uncommitted(&self.pending);
                committed
            }
            None => Committed::before_first_commit(self.pending).ok_or(ReplayError::NoBegin)?,
        };
        let mut restored = committed.restore();
        restored.facts.extend(self.facts);
        restored.is_quiet = self.is_quiet_committed;
        Ok(restored)
    }

    /// The first record, once there was a commit.
    pub fn begin(&self) -> Option<Record> {
        let committed = self.committed.as_ref()?;
        Some(Record::Begin {
            keys: committed.keys.to_bytes(),
            settings: committed.settings.clone(),
        })
    }

    /// Records that leave the same as those so far, behind those that were passed on. `None`: there was no
    /// commit.
    ///
    /// That nothing was sent since the facts is not among them: the next run waits for full gaps.
    pub fn into_left(self) -> Option<Left> {
        let begin = self.begin()?;
        // What was applied before its commit came needs that.
        self.committed_epoch()
            .filter(|epoch| *epoch >= self.known_epoch)?;
        let mut committed = self.committed?;
        let first = match self.passing {
            Some(passing) => {
                // These were as well.
                committed.frozen.clear();
                passing.into_records()
            }
            None => [begin].into(),
        };
        Left::new(first, committed, self.facts, self.pending)
    }

    /// Records are missing, in each of these gaps before the pending record with this index.
    fn note_gaps(&mut self, gaps: &mut VecDeque<usize>, index: usize) {
        while gaps.front().is_some_and(|gap| *gap <= index) {
            gaps.pop_front();
            if let Some(committed) = &mut self.committed {
                committed.note_gap();
            }
        }
    }

    /// Applies records to the state at the last commit: what a salvage changes in it.
    pub fn amend(&mut self, records: Vec<Record>) {
        for record in records {
            Committed::apply_any(&mut self.committed, record);
        }
    }

    /// Applies the records up to the end of the epoch.
    fn commit(&mut self, commit: CommitRecord) -> Result<(), ReplayError> {
        let is_end =
            |record: &Record| matches!(record, Record::EpochEnd(epoch) if *epoch == commit.epoch);
        let end = self.pending.iter().rposition(is_end);
        let (whole, uncertain) = match (end, self.gaps.front(), self.gaps.back()) {
            (Some(end), ..) => (end + 1, 0),
            // The end was in the damaged bytes.
            (None, Some(first), Some(last)) => (*first, last - first),
            (None, ..) => {
                return Err(ReplayError::UnknownEpoch {
                    epoch: commit.epoch,
                });
            }
        };
        let mut gaps = self.gaps.clone();
        for at in 0..whole {
            self.note_gaps(&mut gaps, at);
            if let Some(record) = self.pending.pop_front() {
                self.apply_at(u64::MAX, record);
            }
        }
        // Of this epoch or of the next: each request is kept, in one place, and an end is no reason to drop one.
        let uncertain: Vec<Record> = self.pending.drain(..uncertain).collect();
        for (at, record) in uncertain.iter().enumerate() {
            self.note_gaps(&mut gaps, whole + at);
            let committed = self.committed.as_mut().ok_or(ReplayError::NoBegin)?;
            match record {
                Record::Begin { .. } | Record::Ended(_) | Record::Dropped(_) => {}
                Record::Unspilled { file, offset } => {
                    committed.move_from_block(*file, *offset, &uncertain[at + 1..]);
                }
                Record::Spill { numbers, .. } if !numbers.is_empty() => {}
                record => committed.apply(record.clone()),
            }
        }
        if end.is_none() {
            self.note_gaps(&mut gaps, usize::MAX);
        }
        let covers = |gap: &usize| end.is_none_or(|end| *gap <= end);
        while self.gaps.front().is_some_and(covers) {
            self.gaps.pop_front();
            self.losses.gaps += 1;
        }
        for gap in &mut self.gaps {
            *gap -= whole;
        }
        self.note_commit(commit)
    }
}

#[cfg(test)]
mod tests;
