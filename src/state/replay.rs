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

mod blocks;
mod entries;
mod facts;
mod passing;
mod seed_hosts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use hashbrown::{HashMap, HashSet};
use thiserror::Error;

pub use self::blocks::Blocks;
use self::entries::Entries;
pub use self::entries::OrderedEntries;
pub use self::facts::Facts;
use self::passing::{Passing, mark_of};
pub use self::seed_hosts::SeedHosts;
use super::record::{
    About, BlockAdmission, CommitRecord, Entry, EntryHead, Record, RecordError, Resumption,
    RunRecord,
};
use crate::base::keys::Keys;
use crate::base::pile::Pile;
use crate::base::secret::Known;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::wire::url::{host_of_rest, registrable};

/// What is left of a crawl, from the records of its journal in order.
///
/// In memory are the entries that have not ended, one key per URL that was admitted and is in no run of the
/// seen set, and the records after the last commit.
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

/// Keys in one record.
const KEYS_PER_RECORD: usize = 4096;

/// A crawl at its last commit.
#[derive(Debug)]
pub struct Restored {
    /// The keys of the crawl: [`Keys::from_bytes`].
    pub keys: [u8; 16],
    /// Its settings, as JSON.
    pub settings: String,
    /// Attempts that have not ended, by number.
    pub admitted: OrderedEntries,
    /// Offers without an answer, by number.
    pub offered: OrderedEntries,
    /// Blocks of requests that have not ended either.
    pub spilled: Blocks,
    /// Keys of the URLs that were admitted, but for those in `runs`. A URL that was attempted again is there
    /// several times; robots.txt files, and targets of redirects of sitemaps, are not: the seen set does not
    /// hold them.
    pub seen: Pile<u64>,
    /// The runs of the seen set on disk.
    pub runs: Vec<RunRecord>,
    /// Keys in `runs` of URLs whose admission is undone: they do not count as seen.
    pub undone: Vec<u64>,
    /// Keys of the host and of the registrable domain of each seed.
    pub seed_hosts: SeedHosts,
    /// Numbers of the attempts that must not be made twice and may have been.
    pub started: Vec<u64>,
    /// Keys of URLs that were requested, with no committed result.
    pub requested: Vec<u64>,
    /// The Crawl-delay of each host that has one, in ns.
    pub crawl_delays: Vec<(String, u64)>,
    /// What was learned, also after the last commit.
    pub facts: Facts,
    /// Nothing was sent after the facts were recorded.
    pub is_quiet: bool,
    /// The last commit; none if the crawl ended before its first.
    pub commit: Option<CommitRecord>,
    /// Number of lines of the list of seeds that were taken.
    pub seeds_taken: u64,
    /// Number of the next attempt, greater than all before.
    pub next_number: u64,
}

impl Restored {
    /// Bytes of a segment with what is left, roughly.
    pub fn bytes_in_journal(&self) -> u64 {
        let keys = self.seen.len() + self.undone.len() + self.requested.len();
        let entries = self.admitted.bytes() + self.offered.bytes();
        let keys = size_of::<u64>() * (keys + 2 * self.seed_hosts.len());
        (keys + entries + self.spilled.bytes_in_journal() + self.facts.bytes_in_journal()) as u64
    }

    /// Records of what was requested, seen before the first commit, and learned: they need no commit.
    pub fn learned(&self) -> impl Iterator<Item = Record> {
        let is_begun = self.commit.is_some();
        // Few: it is a beginning.
        let (seen, hosts) = match is_begun {
            true => (Vec::new(), Vec::new()),
            false => (
                self.seen.iter().copied().collect(),
                self.seed_hosts.iter().collect(),
            ),
        };
        // One that has nothing to say is newer than what an older segment says.
        let facts = self.facts.all().filter(|fact| fact.about != About::Counts);
        in_records(seen, Record::Seen)
            .chain(in_records(hosts, Record::SeedHosts))
            .chain(in_records(self.requested.clone(), Record::Requested))
            .chain(facts.map(Record::Fact))
    }
}

/// Why records are not the journal of a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
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
        let is_known = self.is_known();
        match record {
            Record::Resumed(resumption) => self.resume(resumption)?,
            Record::Commit(commit) if commit.epoch <= self.known_epoch => {
                self.note_commit(commit)?
            }
            Record::Commit(commit) => self.commit(commit)?,
            Record::Fact(fact) if fact.about != About::Counts => self.facts.add(fact),
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
        committed.is_some_and(|committed| committed.undo.is_some())
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
            None => Committed::before_first_commit(self.pending)?,
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
    pub fn into_left(mut self) -> Option<Left> {
        let (passed, begin) = match self.passing.take() {
            Some(passing) => (passing.into_records(), None),
            None => (VecDeque::new(), Some(self.begin()?)),
        };
        // What was applied before its commit came needs that.
        self.committed_epoch()
            .filter(|epoch| *epoch >= self.known_epoch)?;
        let mut committed = self.committed?;
        committed.finish_undo();
        let commit = CommitRecord {
            next_number: committed.next_number,
            ..committed.commit?
        };
        if begin.is_none() {
            // They were passed on.
            committed.frozen.clear();
        }
        // As they came: each run has what was seen before it was begun.
        let frozen = committed.frozen.into_iter();
        let frozen = frozen.flat_map(|(run, keys)| {
            (keys.into_pieces().map(Record::Seen)).chain([Record::SeenFrozen(run)])
        });
        let undone: Vec<u64> = committed.undone.into_iter().collect();
        let requested: Vec<u64> = committed.requested.into_iter().collect();
        let seed_hosts = committed.seed_hosts.into_pairs();
        let seed_hosts = in_batches(seed_hosts, Record::SeedHosts);
        let started = committed.started.into_iter().map(Record::Started);
        // With a commit no older segment counts, so that what has nothing to say is left out.
        let facts = self.facts.into_all().chain(committed.counts.into_all());
        let facts = facts.map(|fact| (!fact.value.is_empty()).then_some(Record::Fact(fact)));
        let crawl_delays = committed.crawl_delays.into_iter();
        let crawl_delays = crawl_delays.map(|(host, delay)| Record::CrawlDelay { host, delay });
        let blocks = committed.spilled.into_ordered().map(|block| Record::Spill {
            block,
            numbers: Vec::new(),
        });
        let admitted_before = committed.admitted.len() as u64;
        let admitted = committed.admitted.into_ordered().map(Record::Admitted);
        let offered = committed.offered.into_ordered().map(Record::Offered);
        let records = (passed.into_iter())
            .chain(begin)
            .chain([Record::SeedsTaken(committed.seeds_taken)])
            .chain([Record::SeenRuns(committed.runs)])
            .chain(frozen)
            .chain(committed.seen.into_pieces().map(Record::Seen))
            .chain(in_records(undone, Record::SeenUndone))
            .chain(seed_hosts)
            .chain(crawl_delays);
        let others = blocks
            .chain([Record::AdmittedBefore(admitted_before)])
            .chain(admitted)
            .chain(offered)
            .chain(started)
            .chain(in_records(requested, Record::Requested))
            .chain([Record::EpochEnd(commit.epoch), Record::Commit(commit)])
            .chain(self.pending);
        let steps = records.map(Some).chain(facts).chain(others.map(Some));
        Some(Left {
            steps: Box::new(steps),
        })
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
        for _ in 0..whole {
            if let Some(record) = self.pending.pop_front() {
                self.apply_at(u64::MAX, record);
            }
        }
        let Some(committed) = &mut self.committed else {
            return Err(ReplayError::NoBegin);
        };
        // Of this epoch or of the next: requests are kept where they are, and an end is no reason to drop one.
        let uncertain = self.pending.drain(..uncertain);
        let is_kept = |record: &Record| match record {
            Record::Begin { .. }
            | Record::Ended(_)
            | Record::Dropped(_)
            | Record::Unspilled { .. } => false,
            Record::Spill { numbers, .. } => numbers.is_empty(),
            _ => true,
        };
        uncertain
            .filter(is_kept)
            .for_each(|record| committed.apply(record));
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

/// The records of a journal without what has ended.
pub struct Left {
    /// Records, and steps over what has nothing to say: a million of these take long.
    steps: Box<dyn Iterator<Item = Option<Record>> + Send>,
}

impl Left {
    /// The next step, of about a microsecond or of a record of some thousand keys: the next record, or
    /// `Some(None)` for none. `None`: there are no more.
    pub fn step(&mut self) -> Option<Option<Record>> {
        self.steps.next()
    }
}

#[cfg(test)]
impl Iterator for Left {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.step()? {
                return Some(record);
            }
        }
    }
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Left")
    }
}

/// The state after the records up to the last commit.
#[derive(Debug)]
struct Committed {
    keys: Keys,
    settings: String,
    /// Room for a URL.
    text: String,
    /// Attempts that have not ended.
    admitted: Entries,
    /// Offers without an answer.
    offered: Entries,
    /// Blocks of spilled requests, by file and offset.
    spilled: Blocks,
    /// Requests whose entries follow, and that were admitted before: of a block that was read again, or of a
    /// segment that was rewritten.
    readmitted: u64,
    /// Keys of the URLs that were admitted and are in no run.
    seen: Pile<u64>,
    /// The same, of those that are being written to a run.
    frozen: Vec<(u64, Pile<u64>)>,
    runs: Vec<RunRecord>,
    /// Keys in runs that do not count as seen.
    undone: HashSet<u64, Known>,
    /// Admissions that are being undone.
    undo: Option<Undo>,
    seed_hosts: SeedHosts,
    crawl_delays: BTreeMap<String, u64>,
    /// Attempts that must not be made twice and may have been.
    started: BTreeSet<u64>,
    /// Keys of URLs that were requested, with no result.
    requested: HashSet<u64, Known>,
    /// Keys of URLs that were admitted after the commit, by number.
    uncommitted: HashMap<u64, u64, Known>,
    commit: Option<CommitRecord>,
    seeds_taken: u64,
    next_number: u64,
    /// Number of ends of attempts that are not known.
    unknown_ends: u64,
    /// Counts of limits, which belong to their epoch.
    counts: Facts,
}

/// Keys that do not count as seen any more: how often each was admitted in vain.
#[derive(Debug)]
struct Undo {
    counts: HashMap<u64, usize, Known>,
    stage: UndoStage,
}

#[derive(Debug)]
enum UndoStage {
    /// They are looked for among the keys that are in no run.
    Seen {
        piece: usize,
    },
    /// Those that are not there are in runs, and do not count unless an attempt is left.
    Admitted {
        from: u64,
    },
    Over,
}

impl Committed {
    fn new(keys: [u8; 16], settings: String) -> Self {
        Committed {
            keys: Keys::from_bytes(keys),
            settings,
            text: String::new(),
            admitted: Entries::default(),
            offered: Entries::default(),
            spilled: Blocks::default(),
            readmitted: 0,
            seen: Pile::new(),
            frozen: Vec::new(),
            runs: Vec::new(),
            undone: HashSet::default(),
            undo: None,
            seed_hosts: SeedHosts::default(),
            crawl_delays: BTreeMap::new(),
            started: BTreeSet::new(),
            requested: HashSet::default(),
            uncommitted: HashMap::default(),
            commit: None,
            seeds_taken: 0,
            next_number: 1,
            unknown_ends: 0,
            counts: Facts::default(),
        }
    }

    /// The last `Begin`, and the records of a beginning that follow it directly.
    fn before_first_commit(mut records: VecDeque<Record>) -> Result<Self, ReplayError> {
        let begin = |record: &Record| matches!(record, Record::Begin { .. });
        let last = records.iter().rposition(begin);
        records.drain(..last.unwrap_or(0));
        let Some(Record::Begin { keys, settings }) = records.pop_front() else {
            return Err(ReplayError::NoBegin);
        };
        let mut committed = Committed::new(keys, settings);
        let others = records.iter().position(|record| !is_of_beginning(record));
        for record in records.drain(..others.unwrap_or(records.len())) {
            committed.apply(record);
        }
        committed.add_uncommitted(&records);
        Ok(committed)
    }

    /// Notes which URLs were requested after the last commit: their results are lost.
    fn add_uncommitted(&mut self, records: &VecDeque<Record>) {
        records
            .iter()
            .for_each(|record| self.note_uncommitted(record));
        self.uncommitted.clear();
    }

    /// The same, of the next record.
    fn note_uncommitted(&mut self, record: &Record) {
        match record {
            Record::Admitted(entry) => {
                self.uncommitted.insert(entry.job.id, self.key_of(entry));
            }
            Record::Departed(number) => {
                let key = self.uncommitted.get(number).copied();
                let earlier = || self.admitted.get(*number).map(|entry| self.key_of(&entry));
                self.requested.extend(key.or_else(earlier));
            }
            Record::Requested(keys) => self.requested.extend(keys),
            _ => {}
        }
    }

    /// The key of the URL of an entry.
    fn key_of(&self, entry: &Entry) -> u64 {
        self.keys.url(entry.job.url.as_str()).0
    }

    /// Applies a record that may begin the state.
    fn apply_any(committed: &mut Option<Self>, record: Record) {
        match (committed, record) {
            (committed, Record::Begin { keys, settings }) => {
                *committed = Some(Committed::new(keys, settings));
            }
            (Some(committed), record) => committed.apply(record),
            (None, _) => unreachable!("the first record is a Begin"),
        }
    }

    fn apply(&mut self, record: Record) {
        let readmitted = std::mem::take(&mut self.readmitted);
        match record {
            Record::Admitted(entry) => {
                self.readmitted = readmitted;
                self.count(&entry);
                self.begin_admission(entry.job.id, |all| all.see(&entry.job));
                self.remember_seed(&entry.job);
                self.admitted.insert(&entry);
            }
            Record::Offered(entry) => {
                self.count(&entry);
                self.offered.insert(&entry);
            }
            Record::Dropped(number) => {
                self.count_number(number);
                self.offered.remove(number);
            }
            Record::Ended(number) => {
                self.count_number(number);
                self.end(number);
            }
            Record::Seen(keys) => self.seen.extend(keys),
            Record::SeedHosts(hosts) => {
                for (host, domain) in hosts {
                    self.seed_hosts.insert(host, domain);
                }
            }
            Record::CrawlDelay { host, delay } => {
                self.crawl_delays.insert(host, delay);
            }
            Record::Departed(number) => {
                let key = (self.admitted.get(number)).map(|entry| self.key_of(&entry));
                self.requested.extend(key);
            }
            Record::Started(number) => {
                self.started.insert(number);
            }
            Record::Requested(keys) => self.requested.extend(keys),
            Record::SeedsTaken(lines) => self.seeds_taken = lines,
            Record::SeenFrozen(run) => self.frozen.push((run, std::mem::take(&mut self.seen))),
            Record::SeenRuns(runs) => {
                let is_named = |number: u64| runs.iter().any(|run| run.number == number);
                self.frozen.retain(|(run, _)| !is_named(*run));
                self.runs = runs;
            }
            Record::SeenUndone(keys) => self.undone.extend(keys),
            Record::SeenReset => {
                self.seen = Pile::new();
                self.frozen = Vec::new();
                self.runs = Vec::new();
                self.undone.clear();
            }
            Record::EpochEnd(_) => {}
            Record::Spill { block, numbers } => {
                for number in numbers {
                    self.spill(number);
                }
                self.spilled.insert(&block);
            }
            Record::AdmittedBefore(count) => self.readmitted = count,
            Record::Unspilled { file, offset } => {
                let block = self.spilled.remove(file, offset);
                self.readmitted = block.map_or(0, |block| block.requests);
            }
            Record::AdmittedToBlock { block, admission } => {
                self.spilled.insert(&block);
                self.admit_to_block(admission);
            }
            // It is in files of its own.
            Record::Spilled { .. } => {}
            Record::Fact(counts) => self.counts.add(counts),
            Record::Begin { .. } | Record::Commit(_) | Record::Quiet | Record::Resumed(_) => {
                unreachable!("handled by Replay")
            }
        }
    }

    /// A request is admitted. It counts as seen, unless it was admitted before.
    fn begin_admission(&mut self, number: u64, see: impl FnOnce(&mut Self)) {
        self.offered.remove(number);
        match self.readmitted.checked_sub(1) {
            Some(left) => self.readmitted = left,
            None => see(self),
        }
    }

    /// As [`Committed::apply`], of an admission whose entry has these bytes.
    fn apply_admission(&mut self, head: &EntryHead<'_>, bytes: &[u8]) {
        for number in [head.id, head.parent, head.replaces] {
            self.count_number(number);
        }
        let is_in_seen_set = is_kind_in_seen_set(head.kind(), head.redirects);
        let [scheme, rest] = head.url();
        self.begin_admission(head.id, |all| {
            if is_in_seen_set {
                all.text.clear();
                all.text.push_str(scheme);
                all.text.push_str(rest);
                all.see_key(all.keys.url(&all.text).0);
            }
        });
        if head.is_seed() && is_in_seen_set {
            let host = host_of_rest(rest);
            self.seed_hosts
                .insert(self.keys.host(host).0, self.keys.host(registrable(host)).0);
        }
        self.admitted.insert_stored(head.id, head.replaces, bytes);
    }

    /// An attempt ended; so have those that it replaced: their results came before its own, if at all.
    fn end(&mut self, number: u64) {
        let is_known = self.admitted.has(number) || self.offered.has(number);
        self.unknown_ends += u64::from(!is_known);
        let mut number = number;
        loop {
            let entry = match self.admitted.remove(number) {
                Some(entry) => entry,
                // One that was cancelled may have been offered only.
                None => match self.offered.remove(number) {
                    Some(entry) => {
                        self.see(&entry.job);
                        self.remember_seed(&entry.job);
                        entry
                    }
                    None => return,
                },
            };
            if !self.requested.is_empty() {
                let key = self.key_of(&entry);
                self.requested.remove(&key);
            }
            self.started.remove(&number);
            number = entry.replaces;
        }
    }

    /// Requests are admitted that a block has.
    fn admit_to_block(&mut self, admission: BlockAdmission) {
        for (number, key) in admission.requests {
            self.count_number(number);
            self.offered.remove(number);
            self.see_key(key);
        }
        if let Some((host, domain)) = admission.seed_host {
            self.seed_hosts.insert(host, domain);
        }
    }

    /// A request is in a block from now on.
    fn spill(&mut self, number: u64) {
        self.count_number(number);
        self.admitted.remove(number);
    }

    /// Keeps the keys of the host of a seed.
    fn remember_seed(&mut self, job: &Job) {
        if job.seed && is_in_seen_set(job) {
            let host = self.keys.host(job.url.host_str()).0;
            let domain = self.keys.host(job.url.registrable_domain()).0;
            self.seed_hosts.insert(host, domain);
        }
    }

    /// The URL of a request counts as seen.
    fn see(&mut self, job: &Job) {
        if is_in_seen_set(job) {
            self.see_key(self.keys.url(job.url.as_str()).0);
        }
    }

    fn see_key(&mut self, key: u64) {
        self.undone.remove(&key);
        self.seen.push(key);
    }

    /// Begins to undo the admission of these attempts, which are not left: their URLs do not count as seen.
    fn begin_undo(&mut self, attempts: &[Entry]) {
        let mut counts: HashMap<u64, usize, Known> = HashMap::default();
        for entry in attempts.iter().filter(|entry| is_in_seen_set(&entry.job)) {
            *counts.entry(self.key_of(entry)).or_default() += 1;
        }
        let stage = UndoStage::Seen { piece: 0 };
        self.undo = (!counts.is_empty()).then_some(Undo { counts, stage });
    }

    /// Looks at some thousand keys, or entries, for those that are undone. Returns whether there are more.
    fn step_undo(&mut self) -> bool {
        let Some(Undo { counts, stage }) = &mut self.undo else {
            return false;
        };
        match stage {
            UndoStage::Seen { piece } if *piece < self.seen.pieces() => {
                self.seen
                    .retain_in_piece(*piece, |key| match counts.get_mut(key) {
                        Some(count) if *count > 0 => {
                            *count -= 1;
                            false
                        }
                        _ => true,
                    });
                *piece += 1;
            }
            UndoStage::Seen { .. } => {
                // Those that were admitted before the last run was begun are in a run.
                counts.retain(|_, count| *count > 0);
                *stage = match self.runs.is_empty() || counts.is_empty() {
                    true => UndoStage::Over,
                    false => UndoStage::Admitted { from: 0 },
                };
            }
            UndoStage::Admitted { from } => match self.admitted.some_from(*from) {
                Some((next, entries)) => {
                    for entry in entries {
                        counts.remove(&self.keys.url(entry.job.url.as_str()).0);
                    }
                    *from = next;
                }
                None => {
                    self.undone.extend(counts.keys());
                    *stage = UndoStage::Over;
                }
            },
            UndoStage::Over => self.undo = None,
        }
        self.undo.is_some()
    }

    fn finish_undo(&mut self) {
        while self.step_undo() {}
    }

    fn count(&mut self, entry: &Entry) {
        for number in [entry.job.id, entry.job.parent, entry.replaces] {
            self.count_number(number);
        }
    }

    fn count_number(&mut self, number: u64) {
        self.next_number = self.next_number.max(number.saturating_add(1));
    }

    /// A later run continues from here.
    fn resume(&mut self, settings: String, seeds_taken: u64) {
        self.finish_undo();
        self.settings = settings;
        self.seeds_taken = seeds_taken;
        self.readmitted = 0;
        // The run has them in memory.
        let frozen = std::mem::take(&mut self.frozen).into_iter();
        frozen.for_each(|(_, keys)| self.seen.append(keys));
        self.drop_successors();
    }

    /// Drops the successors of attempts that have not ended: these are made again, and have their own successors
    /// then.
    fn drop_successors(&mut self) {
        let superseded = |entries: &Entries| -> Vec<u64> {
            let replacements = entries.replacements();
            let superseded = replacements.filter(|(_, replaced)| self.admitted.has(*replaced));
            superseded.map(|(number, _)| number).collect()
        };
        let (admitted, offered) = (superseded(&self.admitted), superseded(&self.offered));
        for number in offered {
            self.offered.remove(number);
        }
        let superseded: Vec<Entry> = admitted
            .iter()
            .filter_map(|number| self.admitted.remove(*number))
            .collect();
        self.begin_undo(&superseded);
    }

    fn restore(mut self) -> Restored {
        let (settings, seeds_taken) = (std::mem::take(&mut self.settings), self.seeds_taken);
        self.resume(settings, seeds_taken);
        self.finish_undo();
        let mut undone: Vec<u64> = self.undone.into_iter().collect();
        undone.sort_unstable();
        Restored {
            keys: self.keys.to_bytes(),
            settings: self.settings,
            admitted: self.admitted.into_ordered(),
            offered: self.offered.into_ordered(),
            spilled: self.spilled,
            seen: self.seen,
            runs: self.runs,
            undone,
            seed_hosts: self.seed_hosts,
            started: self.started.into_iter().collect(),
            requested: self.requested.into_iter().collect(),
            crawl_delays: self.crawl_delays.into_iter().collect(),
            facts: self.counts,
            is_quiet: false,
            commit: self.commit,
            seeds_taken: self.seeds_taken,
            next_number: self.next_number,
        }
    }
}

/// Whether a record is of the beginning of a segment, after its `Begin`: valid without a commit.
fn is_of_beginning(record: &Record) -> bool {
    matches!(
        record,
        Record::SeedsTaken(_) | Record::Seen(_) | Record::SeedHosts(_) | Record::Requested(_)
    )
}

/// Whether the seen set holds the URL of a request: not those that the crawl fetches for its own use by
/// name or by redirect, which anyone may fetch as a page.
pub fn is_in_seen_set(job: &Job) -> bool {
    is_kind_in_seen_set(job.kind, job.redirects)
}

fn is_kind_in_seen_set(kind: PageKind, redirects: u8) -> bool {
    match kind {
        PageKind::Page => true,
        PageKind::Sitemap => redirects == 0,
        PageKind::Robots => false,
    }
}

/// Records of some thousand keys each, made when they are needed.
fn in_batches<K: Send + 'static>(
    mut keys: impl Iterator<Item = K> + Send + 'static,
    record: fn(Vec<K>) -> Record,
) -> impl Iterator<Item = Record> {
    std::iter::from_fn(move || {
        let batch: Vec<K> = keys.by_ref().take(KEYS_PER_RECORD).collect();
        (!batch.is_empty()).then(|| record(batch))
    })
}

/// Keys, in records of some thousand.
fn in_records<K: Clone + Send + 'static>(
    keys: Vec<K>,
    record: fn(Vec<K>) -> Record,
) -> impl Iterator<Item = Record> {
    let starts = (0..keys.len()).step_by(KEYS_PER_RECORD);
    starts.map(move |start| {
        let end = keys.len().min(start + KEYS_PER_RECORD);
        record(keys[start..end].to_vec())
    })
}

#[cfg(test)]
mod tests;
