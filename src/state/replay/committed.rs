//! The state of a crawl after the records up to its last commit.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::{HashMap, HashSet};

use super::blocks::Blocks;
use super::entries::Entries;
use super::facts::Facts;
use super::numbers::Numbers;
use super::restored::Restored;
use super::seed_hosts::SeedHosts;
use crate::base::keys::Keys;
use crate::base::pile::Pile;
use crate::base::secret::Known;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::state::record::{
    BlockAdmission, CommitRecord, Entry, EntryHead, Record, RunRecord, SpilledBlock,
};
use crate::wire::url::{host_of_rest, registrable};

/// The state after the records up to the last commit.
#[derive(Debug)]
pub struct Committed {
    pub(super) keys: Keys,
    pub(super) settings: String,
    /// Room for a URL.
    text: String,
    /// Attempts that have not ended.
    pub(super) admitted: Entries,
    /// Offers without an answer.
    pub(super) offered: Entries,
    /// Blocks of spilled requests, by file and offset.
    pub(super) spilled: Blocks,
    /// Requests whose entries follow, and that were admitted before: of a block that was read again, or of a
    /// segment that was rewritten.
    readmitted: u64,
    /// The block that has them, if they are those of one.
    reading: Option<SpilledBlock>,
    /// Numbers of attempts that ended behind damage, if there is some.
    ended: Option<Numbers>,
    /// Keys of the URLs that were admitted and are in no run.
    pub(super) seen: Pile<u64>,
    /// The same, of those that are being written to a run.
    pub(super) frozen: Vec<(u64, Pile<u64>)>,
    pub(super) runs: Vec<RunRecord>,
    /// Keys in runs that do not count as seen.
    pub(super) undone: HashSet<u64, Known>,
    /// Admissions that are being undone.
    undo: Option<Undo>,
    pub(super) seed_hosts: SeedHosts,
    /// Attempts that must not be made twice and may have been.
    pub(super) started: BTreeSet<u64>,
    /// Keys of URLs that were requested, with no result.
    pub(super) requested: HashSet<u64, Known>,
    /// Keys of URLs that were admitted after the commit, by number.
    uncommitted: HashMap<u64, u64, Known>,
    pub(super) commit: Option<CommitRecord>,
    pub(super) seeds_taken: u64,
    pub(super) next_number: u64,
    /// Number of ends of attempts that are not known.
    pub(super) unknown_ends: u64,
    /// Facts that belong to their epoch: counts of limits, and what is cancelled.
    pub(super) of_epochs: Facts,
}

/// Keys that do not count as seen any more: how often each was admitted in vain.
#[derive(Debug)]
struct Undo {
    counts: HashMap<u64, usize, Known>,
    /// They do not count, however often each was admitted.
    is_of_all: bool,
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
    /// Of a crawl with these keys that begins.
    pub fn new(keys: [u8; 16], settings: String) -> Self {
        Committed {
            keys: Keys::from_bytes(keys),
            settings,
            text: String::new(),
            admitted: Entries::default(),
            offered: Entries::default(),
            spilled: Blocks::default(),
            readmitted: 0,
            reading: None,
            ended: None,
            seen: Pile::new(),
            frozen: Vec::new(),
            runs: Vec::new(),
            undone: HashSet::default(),
            undo: None,
            seed_hosts: SeedHosts::default(),
            started: BTreeSet::new(),
            requested: HashSet::default(),
            uncommitted: HashMap::default(),
            commit: None,
            seeds_taken: 0,
            next_number: 1,
            unknown_ends: 0,
            of_epochs: Facts::default(),
        }
    }

    /// The last `Begin`, and the records of a beginning that follow it directly. `None`: there is none.
    pub fn before_first_commit(mut records: VecDeque<Record>) -> Option<Self> {
        let begin = |record: &Record| matches!(record, Record::Begin { .. });
        let last = records.iter().rposition(begin);
        records.drain(..last.unwrap_or(0));
        let Some(Record::Begin { keys, settings }) = records.pop_front() else {
            return None;
        };
        let mut committed = Committed::new(keys, settings);
        let others = records.iter().position(|record| !is_of_beginning(record));
        for record in records.drain(..others.unwrap_or(records.len())) {
            committed.apply(record);
        }
        committed.add_uncommitted(&records);
        Some(committed)
    }

    /// Notes which URLs were requested after the last commit: their results are lost.
    pub fn add_uncommitted(&mut self, records: &VecDeque<Record>) {
        records
            .iter()
            .for_each(|record| self.note_uncommitted(record));
        self.uncommitted.clear();
    }

    /// Notes of a record that does not count which URL was requested.
    pub fn note_uncommitted(&mut self, record: &Record) {
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
    pub fn apply_any(committed: &mut Option<Self>, record: Record) {
        match (committed, record) {
            (committed, Record::Begin { keys, settings }) => {
                *committed = Some(Committed::new(keys, settings));
            }
            (Some(committed), record) => committed.apply(record),
            (None, _) => unreachable!("the first record is a Begin"),
        }
    }

    /// Applies a record.
    pub fn apply(&mut self, record: Record) {
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
            Record::Departed(number) => {
                let key = (self.admitted.get(number)).map(|entry| self.key_of(&entry));
                self.requested.extend(key);
            }
            Record::Started(number) => {
                self.started.insert(number);
            }
            Record::StartUndone(number) => {
                self.started.remove(&number);
            }
            Record::Requested(keys) => self.requested.extend(keys),
            Record::SeedsTaken(lines) => self.seeds_taken = lines,
            Record::SeenFrozen(run) => {
                // Undone keys are not in the run.
                self.finish_undo();
                self.frozen.push((run, std::mem::take(&mut self.seen)));
            }
            Record::SeenRuns(runs) => {
                let is_named = |number: u64| runs.iter().any(|run| run.number == number);
                self.frozen.retain(|(run, _)| !is_named(*run));
                self.runs = runs;
            }
            Record::SeenUndone(keys) => self.begin_undo_of_all(keys),
            Record::EpochEnd(_) => {}
            Record::Spill { block, numbers } => {
                for number in numbers {
                    self.spill(number);
                }
                self.spilled.insert(&block);
            }
            Record::AdmittedBefore(count) => (self.readmitted, self.reading) = (count, None),
            Record::Unspilled { file, offset } => {
                let block = self.spilled.remove(file, offset);
                self.begin_reading(block);
            }
            Record::AdmittedToBlock { block, admission } => {
                self.spilled.insert(&block);
                self.admit_to_block(admission);
            }
            // It is in files of its own.
            Record::Spilled { .. } => {}
            Record::Fact(fact) => self.of_epochs.add(fact.about, (&fact).into()),
            Record::Begin { .. }
            | Record::Commit(_)
            | Record::Quiet
            | Record::Resumed(_)
            | Record::CrawlDelay { .. } => {
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
    pub fn apply_admission(&mut self, head: &EntryHead<'_>, bytes: &[u8]) {
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
            let domain = registrable(host);
            let key = self.keys.host(host).0;
            let domain_key = match domain == host {
                true => key,
                false => self.keys.host(domain).0,
            };
            self.seed_hosts.insert(key, domain_key);
        }
        self.admitted.insert_stored(head.id, head.replaces, bytes);
    }

    /// An attempt ended; so have those that it replaced: their results came before its own, if at all.
    fn end(&mut self, number: u64) {
        let is_known = self.admitted.has(number) || self.offered.has(number);
        self.unknown_ends += u64::from(!is_known);
        let mut number = number;
        loop {
            if let Some(ended) = &mut self.ended {
                ended.insert(number);
            }
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

    /// The requests of a block follow, which were admitted before.
    fn begin_reading(&mut self, block: Option<SpilledBlock>) {
        self.readmitted = block.map_or(0, |block| block.requests);
        self.reading = block;
    }

    /// Records are missing here. A block whose requests were to follow is left: some of them may be there alone.
    /// That a block was read may be missing, too: which attempts ended shows what it has in vain.
    pub fn note_gap(&mut self) {
        if let Some(block) = self.reading.take_if(|_| self.readmitted > 0) {
            self.spilled.insert(&block);
        }
        self.readmitted = 0;
        self.ended.get_or_insert_default();
    }

    /// A block is left, if all of its requests are in the records that follow: admitted, or in another block.
    pub fn move_from_block(&mut self, file: u64, offset: u64, rest: &[Record]) {
        self.readmitted = 0;
        let Some(block) = self.spilled.remove(file, offset) else {
            return;
        };
        let is_moved = matches!(rest.first(), Some(Record::Spill { block: to, numbers })
            if numbers.is_empty() && (to.first, to.requests) == (block.first, block.requests));
        let is_admitted = |record: &&Record| matches!(record, Record::Admitted(_));
        let admitted = rest.iter().take_while(is_admitted).count() as u64;
        if is_moved {
            return;
        }
        match admitted >= block.requests {
            true => self.begin_reading(Some(block)),
            false => self.spilled.insert(&block),
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
        if let Some(undo) = self.undo.as_mut().filter(|undo| undo.is_of_all) {
            undo.counts.remove(&key);
        }
        self.seen.push(key);
    }

    /// Begins to undo the admission of these attempts, which are not left: their URLs do not count as seen.
    fn begin_undo(&mut self, attempts: &[Entry]) {
        let mut counts: HashMap<u64, usize, Known> = HashMap::default();
        for entry in attempts.iter().filter(|entry| is_in_seen_set(&entry.job)) {
            *counts.entry(self.key_of(entry)).or_default() += 1;
        }
        let stage = UndoStage::Seen { piece: 0 };
        self.undo = (!counts.is_empty()).then_some(Undo {
            counts,
            is_of_all: false,
            stage,
        });
    }

    /// Begins to undo all admissions of URLs with these keys.
    fn begin_undo_of_all(&mut self, keys: Vec<u64>) {
        self.finish_undo();
        self.undo = Some(Undo {
            counts: keys.into_iter().map(|key| (key, usize::MAX)).collect(),
            is_of_all: true,
            stage: UndoStage::Seen { piece: 0 },
        });
    }

    /// Whether admissions are being undone.
    pub fn has_undo(&self) -> bool {
        self.undo.is_some()
    }

    /// Looks at some thousand keys, or entries, for those that are undone. Returns whether there are more.
    pub fn step_undo(&mut self) -> bool {
        let Some(Undo {
            counts,
            is_of_all,
            stage,
        }) = &mut self.undo
        else {
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
            UndoStage::Seen { .. } if *is_of_all => {
                // Those that were not there are in runs.
                let in_runs = counts.iter().filter(|(_, count)| **count == usize::MAX);
                self.undone.extend(in_runs.map(|(key, _)| *key));
                *stage = UndoStage::Over;
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

    /// Undoes all that is being undone.
    pub fn finish_undo(&mut self) {
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
    pub fn resume(&mut self, settings: String, seeds_taken: u64) {
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

    /// What is left, for the run that resumes the crawl.
    pub fn restore(mut self) -> Restored {
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
            ended: self.ended,
            seen: self.seen,
            runs: self.runs,
            undone,
            seed_hosts: self.seed_hosts,
            started: self.started.into_iter().collect(),
            requested: self.requested.into_iter().collect(),
            facts: self.of_epochs,
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
