//! Damage of a segment: bytes of committed epochs that are not as they were written.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::state::record::SpilledBlock;

/// A damaged segment of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes; 0 if it is missing.
    pub length: u64,
    /// There is no such file.
    pub is_missing: bool,
    /// The bytes that are not intact, in order. Those after the last commit do not count.
    pub ranges: Vec<Range<u64>>,
    /// Number of intact records before the first of them.
    pub records_before: u64,
    /// Number of intact records after the first of them.
    pub records_after: u64,
    /// Number of attempts that ended, whose own records are missing: their URLs count as never seen.
    pub unknown_ends: u64,
    /// Number of requests that were in the damaged part, if it is known: of a file of queued requests.
    pub requests: u64,
}

impl Damage {
    /// Adds a block of requests.
    pub(in crate::crawl) fn add_block(&mut self, block: &SpilledBlock) {
        let end = block.offset.saturating_add(block.length);
        self.ranges.push(block.offset..end);
        self.requests += block.requests;
    }

    /// Number of bytes that are not intact.
    pub fn bytes(&self) -> u64 {
        let lengths = self.ranges.iter().map(|range| range.end - range.start);
        lengths.sum()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if self.is_missing {
            return write!(
                f,
                "{path} is missing; {} requests were in it",
                self.requests
            );
        }
        let first = self.ranges.first().map_or(0, |range| range.start);
        let bytes = self.bytes();
        write!(
            f,
            "{path} is damaged: of its {} bytes {bytes} are not as they were written",
            self.length
        )?;
        match self.ranges.len() {
            1 => write!(f, ", from byte {first} on")?,
            places => write!(f, ", in {places} places, the first at byte {first}")?,
        }
        write!(
            f,
            "; {} records before that and {} after it are intact",
            self.records_before, self.records_after
        )?;
        match self.requests {
            0 => Ok(()),
            requests => write!(f, "; {requests} requests were in it"),
        }
    }
}
