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
    /// Bytes up to the end of the last commit, or of the last resumption: what follows them does not count yet.
    pub marked: u64,
}

/// Makes the outline of a segment from its frames.
#[derive(Debug, Default)]
pub struct Outliner {
    outline: Outline,
    /// Epochs that ended after the last commit, and where.
    ends: Vec<(u64, u64)>,
}

impl Outliner {
    /// Adds the next frame, which begins and ends at these offsets. `None`: the segment has no outline.
    pub fn push(&mut self, frame: Range<u64>, payload: &[u8]) -> Option<()> {
        let Self { outline, ends } = self;
        outline.intact = frame.end;
        match Record::decode_mark(payload) {
            Some(Ok(Record::EpochEnd(epoch))) => ends.push((epoch, frame.end)),
            Some(Ok(Record::Commit(commit))) => {
                let at = ends.iter().position(|(epoch, _)| *epoch == commit.epoch)?;
                outline.committed = commit.epoch;
                outline.counted = ends[at].1;
                ends.drain(..=at);
                outline.marked = frame.end;
            }
            Some(Ok(Record::Resumed(_))) => {
                outline.voids.push(outline.counted..frame.start);
                outline.counted = frame.end;
                outline.marked = frame.end;
                ends.clear();
            }
            Some(_) => return None,
            None => {}
        }
        Some(())
    }

    /// The outline. `reader` reads what follows the frames so far, which is not intact. `None`: no epoch is
    /// committed, or the segment is damaged before the last commit.
    pub fn finish(self, mut reader: Reader<'_>) -> Option<Outline> {
        let outline = self.outline;
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

impl Outline {
    /// Of a segment. `None`: as of [`Outliner::finish`].
    pub fn of(mut reader: Reader<'_>) -> Option<Self> {
        let mut outliner = Outliner::default();
        while let Some((offset, payload)) = reader.next_payload() {
            outliner.push(offset..reader.intact(), payload)?;
        }
        outliner.finish(reader)
    }
}
