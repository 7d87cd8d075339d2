//! What a run that resumes a crawl continues with.

use std::collections::HashSet;

use super::batches::in_records;
use super::blocks::Blocks;
use super::entries::OrderedEntries;
use super::facts::Facts;
use super::numbers::Numbers;
use super::seed_hosts::SeedHosts;
use crate::base::pile::Pile;
use crate::state::record::{CommitRecord, Entry, Record, RunRecord};

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
    /// Numbers of attempts that ended behind damage of the journal; `None`: it is intact.
    pub ended: Option<Numbers>,
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

/// What a damaged journal says of requests, by their numbers.
#[derive(Debug)]
pub struct KnownRequests {
    /// They have ended, or the journal has them, or a block.
    here: Numbers,
    /// Others have taken their place, until it is known that they have ended.
    replaced: Numbers,
}

impl KnownRequests {
    /// Takes a block with these requests. Returns those that it has alone, if the journal is to have them in place
    /// of the block: others it has in vain, or one of them was replaced. That one is made again.
    pub fn take_block(&mut self, entries: &[Entry]) -> Option<Vec<Entry>> {
        let is_alone = |entry: &&Entry| self.here.insert(entry.job.id);
        let alone: Vec<Entry> = entries.iter().filter(is_alone).cloned().collect();
        let is_replaced = |entry: &Entry| self.replaced.has(entry.job.id);
        (alone.len() < entries.len() || alone.iter().any(is_replaced)).then_some(alone)
    }
}

impl Restored {
    /// What the journal says of requests that blocks may have as well. `None`: it is intact, and they do not.
    pub fn take_known(&mut self) -> Option<KnownRequests> {
        let mut known = KnownRequests {
            here: self.ended.take()?,
            replaced: Numbers::default(),
        };
        for entries in [&self.admitted, &self.offered] {
            known.here.extend(entries.numbers());
            known.replaced.extend(entries.replaced());
        }
        Some(known)
    }

    /// Has these keys, of URLs that were admitted and are in no run, not count as seen.
    pub fn undo(&mut self, keys: &HashSet<u64>) {
        for piece in 0..self.seen.pieces() {
            self.seen.retain_in_piece(piece, |key| !keys.contains(key));
        }
    }

    /// Bytes of a segment with what is left, roughly.
    pub fn bytes_in_journal(&self) -> u64 {
        let keys = self.seen.len() + self.undone.len() + self.requested.len();
        let entries = self.admitted.bytes() + self.offered.bytes();
        let keys = size_of::<u64>() * (keys + 2 * self.seed_hosts.len_max());
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
        let facts = self.facts.all().filter(|fact| !fact.about.is_of_epoch());
        let crawl_delays = self.facts.crawl_delays().iter();
        let crawl_delays = crawl_delays.map(|delay| Record::CrawlDelay {
            host: delay.name.to_owned(),
            delay: delay.at,
        });
        in_records(seen, Record::Seen)
            .chain(in_records(hosts, Record::SeedHosts))
            .chain(in_records(self.requested.clone(), Record::Requested))
            .chain(crawl_delays)
            .chain(facts.map(Record::Fact))
    }
}
