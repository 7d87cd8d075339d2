//! What a run that resumes a crawl continues with.

use super::batches::in_records;
use super::blocks::Blocks;
use super::entries::OrderedEntries;
use super::facts::Facts;
use super::seed_hosts::SeedHosts;
use crate::base::pile::Pile;
use crate::state::record::{About, CommitRecord, Record, RunRecord};

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
