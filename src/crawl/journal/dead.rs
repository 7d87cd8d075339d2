//! How much of a segment is dead: records that a rewriting would leave out, roughly.

use crate::frontier::job::Job;

/// Bytes of dead records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dead {
    /// So many of the segment.
    pub bytes: u64,
    /// So many of them when its rewriting began.
    before: u64,
}

/// Bytes of a short record, with the head of its frame.
pub const RECORD: usize = 16;

/// Bytes of the record of a block, without what it says of each request.
pub const BLOCK_RECORD: u64 = 48;

impl Dead {
    /// Of a segment that an earlier run wrote.
    pub fn of(bytes: u64) -> Self {
        Dead { bytes, before: 0 }
    }

    /// So many bytes more.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The record of a request is dead, and so is the one that says so.
    pub fn add_request(&mut self, job: &Job) {
        let stored = job.extra.as_ref().map_or(0, |extra| extra.stored_bytes());
        self.add((job.url.as_str().len() + stored + 2 * RECORD) as u64);
    }

    /// The segment is rewritten without these.
    pub fn begin_rewrite(&mut self) {
        self.before = self.bytes;
    }

    /// The new segment takes the place of the old one.
    pub fn end_rewrite(&mut self) {
        self.bytes -= std::mem::take(&mut self.before);
    }
}
