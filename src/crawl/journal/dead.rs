//! How much of a segment is dead: records that a rewriting would leave out, roughly. Of keys it is known which.

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

/// Up to where the keys in a segment are dead: they are in runs of the seen set.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadKeys {
    /// Where keys were last said to be written to a run.
    frozen: u64,
    /// The keys before this offset are in runs: now, at the end of the epoch that is being committed, and at
    /// that of the last one with a commit.
    now: u64,
    in_epoch: u64,
    committed: u64,
}

impl DeadKeys {
    /// All keys before this offset are being written to a run. 0: it is not known.
    pub fn freeze(&mut self, offset: u64) {
        self.frozen = offset;
    }

    /// That run is one of the seen set's.
    pub fn name_run(&mut self) {
        self.now = self.now.max(self.frozen);
    }

    /// An epoch ends.
    pub fn end_epoch(&mut self) {
        self.in_epoch = self.now;
    }

    /// It is committed.
    pub fn commit(&mut self) {
        self.committed = self.in_epoch;
    }

    /// The offset before which keys are dead at the end of the last epoch with a commit.
    pub fn until(&self) -> u64 {
        self.committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_dead_once_a_commit_names_their_run() {
        let mut keys = DeadKeys::default();
        keys.freeze(100);
        keys.end_epoch();
        keys.name_run();
        keys.commit();
        assert_eq!(keys.until(), 0, "it was named after the epoch");
        // The next keys are being written.
        keys.freeze(700);
        keys.end_epoch();
        keys.commit();
        assert_eq!(keys.until(), 100);
        // A run of which it is not known where its keys end.
        keys.freeze(0);
        keys.name_run();
        keys.end_epoch();
        keys.commit();
        assert_eq!(keys.until(), 100);
    }
}
