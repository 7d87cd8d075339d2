//! Which records of a segment count, found before they are replayed: then none has to wait for its commit.

use std::ops::Range;

use super::journal::Reader;
use super::record::Record;

/// Which records of a segment count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The last epoch with a commit. All records up to its end count, but for those in `voids`.
    pub committed: u64,
    /// Bytes of records that count for nothing, but for facts and for what was requested: each ends where a
    /// later run resumed the crawl.
    pub voids: Vec<Range<u64>>,
    /// Bytes up to the end of the last committed epoch, or to the resumption after it.
    pub counted: u64,
    /// Number of bytes that are intact, and whole frames.
    pub intact: u64,
}

impl Outline {
    /// Of a segment. `None`: no epoch of it is committed, or it is damaged before the last commit.
    pub fn of(mut reader: Reader<'_>) -> Option<Self> {
        let mut outline = Outline::default();
        let mut ends: Vec<(u64, u64)> = Vec::new();
        while let Some((offset, payload)) = reader.next_payload() {
            let end = reader.intact();
            match Record::decode_mark(payload) {
                Some(Ok(Record::EpochEnd(epoch))) => {
                    ends.push((epoch, end));
                }
                Some(Ok(Record::Commit(commit))) => {
                    let at = ends.iter().position(|(epoch, _)| *epoch == commit.epoch)?;
                    outline.committed = commit.epoch;
                    outline.counted = ends[at].1;
                    ends.drain(..=at);
                }
                Some(Ok(Record::Resumed(_))) => {
                    outline.voids.push(outline.counted..offset);
                    outline.counted = end;
                    ends.clear();
                }
                Some(_) => return None,
                None => {}
            }
        }
        outline.intact = reader.intact();
        // A commit behind damage shows that what it covers is damaged, or that another commit is.
        while reader.skip_damage().is_some() {
            while let Some((_, payload)) = reader.next_payload() {
                if Record::decode_mark(payload).is_some() {
                    return None;
                }
            }
        }
        (outline.committed > 0).then_some(outline)
    }
}
