//! What a run's journal begins with: a new segment, or one that it continues.

use std::ops::Range;
use std::path::PathBuf;

use crate::base::keys::Keys;
use crate::crawl::journal::seen::SeenStart;
use crate::state::journal::Framer;
use crate::state::outline::Outline;
use crate::state::record::{CommitRecord, Record, Resumption};

/// What a journal begins with.
#[derive(Debug)]
pub struct JournalStart {
    /// The output directory: files in commits are named relative to it.
    pub folder: PathBuf,
    /// The path of the segment, which does not exist yet.
    pub path: PathBuf,
    /// Its number.
    pub segment: u64,
    /// The number of the crawl, in each of its segments.
    pub crawl: u64,
    /// The last epoch that was committed; 0 for none.
    pub epoch: u64,
    /// The secret of the crawl's stable keys.
    pub keys: Keys,
    /// What the crawl was given, as text.
    pub settings: String,
    /// How far earlier runs took its list of seeds.
    pub seeds_taken: u64,
    /// What of the segment there is; `None`: it does not exist.
    pub continues: Option<Continuation>,
    /// The seen set on disk.
    pub seen: SeenStart,
}

/// What of a segment there is when a run continues it.
#[derive(Debug, Default)]
pub struct Continuation {
    /// Its bytes before the beginning of the run.
    pub length: u64,
    /// The commit at which the run continues. `None`: the segment has only its beginning, which is that of the
    /// run.
    commit: Option<CommitRecord>,
    /// Bytes that count for nothing: [`Outline::voids`].
    pub(super) voids: Vec<Range<u64>>,
    /// Bytes that would be left of it, roughly.
    pub(super) left: u64,
    /// Records of the beginning of the run.
    pub(super) records: Vec<Record>,
}

impl Continuation {
    /// Of a segment, from its last commit.
    ///
    /// `left`: bytes that would be left of it, roughly.
    pub fn new(outline: &Outline, commit: CommitRecord, left: u64) -> Self {
        let mut voids = outline.voids.clone();
        voids.push(outline.counted..outline.intact);
        Continuation {
            length: outline.intact,
            commit: Some(commit),
            voids,
            left,
            records: Vec::new(),
        }
    }

    /// Whether the beginning of the run is behind others.
    pub fn is_behind(&self) -> bool {
        self.commit.is_some()
    }
}

impl JournalStart {
    /// Adds a record to the beginning of a run that continues a crawl.
    pub fn add_record(&mut self, record: Record) {
        if let Some(continues) = &mut self.continues {
            continues.records.push(record);
        }
    }

    /// The bytes with which this run begins, and the framer of those that follow.
    pub fn beginning(&self) -> (Vec<u8>, Framer) {
        let commit = (self.continues.as_ref())
            .and_then(|continues| Some((continues.length, continues.commit.clone()?)));
        let (framer, mut bytes, first) = match commit {
            Some((length, commit)) => {
                let resumed = Record::Resumed(Resumption {
                    settings: self.settings.clone(),
                    seeds_taken: self.seeds_taken,
                    commit,
                });
                let framer = Framer::at(self.segment, self.crawl, length);
                (framer, Vec::new(), vec![resumed])
            }
            None => {
                let framer = Framer::new(self.segment, self.crawl);
                let header = framer.header();
                (framer, header, self.first_records().to_vec())
            }
        };
        let records = self
            .continues
            .iter()
            .flat_map(|continues| &continues.records);
        for record in first.iter().chain(records) {
            framer.frame(&mut bytes, |out| record.encode(out));
        }
        (bytes, framer)
    }

    /// The first records of a segment.
    pub fn first_records(&self) -> [Record; 2] {
        let begin = Record::Begin {
            keys: self.keys.to_bytes(),
            settings: self.settings.clone(),
        };
        [begin, Record::SeedsTaken(self.seeds_taken)]
    }
}
