//! The records of a journal without what has ended, made one by one.

use std::collections::VecDeque;

use super::batches::{in_batches, in_records};
use super::committed::Committed;
use super::facts::Facts;
use crate::state::record::{CommitRecord, Record};

/// The records of a journal without what has ended.
pub struct Left {
    /// Records, and steps over what has nothing to say: a million of these take long.
    steps: Box<dyn Iterator<Item = Option<Record>> + Send>,
}

impl Left {
    /// Of a state after its commit: these records first, and the pending ones last. `None`: it has no commit.
    pub fn new(
        first: VecDeque<Record>,
        mut committed: Committed,
        mut facts: Facts,
        pending: VecDeque<Record>,
    ) -> Option<Self> {
        committed.finish_undo();
        let commit = CommitRecord {
            next_number: committed.next_number,
            ..committed.commit?
        };
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
        let crawl_delays = facts.take_crawl_delays().into_values();
        let facts = facts.into_all().chain(committed.of_epochs.into_all());
        let facts = facts.map(|fact| (!fact.value.is_empty()).then_some(Record::Fact(fact)));
        let crawl_delays = crawl_delays.map(|(host, delay, _)| Record::CrawlDelay { host, delay });
        let blocks = committed.spilled.into_ordered().map(|block| Record::Spill {
            block,
            numbers: Vec::new(),
        });
        let admitted_before = committed.admitted.len() as u64;
        let admitted = committed.admitted.into_ordered().map(Record::Admitted);
        let offered = committed.offered.into_ordered().map(Record::Offered);
        let records = (first.into_iter())
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
            .chain(pending);
        let steps = records.map(Some).chain(facts).chain(others.map(Some));
        Some(Left {
            steps: Box::new(steps),
        })
    }

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
