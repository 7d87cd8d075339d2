//! Keys of the seen set that are passed on while a segment is read: a rewriting does not hold them.

use std::collections::VecDeque;

use super::committed::Committed;
use crate::base::pile::Pile;
use crate::state::record::Record;

/// What is passed on of the records that were applied: the keys that are in no run, and which of them are being
/// written to one.
///
/// No admission that was passed on may be undone later, so that no run may have resumed the crawl in the segment.
#[derive(Debug)]
pub struct Passing {
    /// Keys in records before this offset are in runs.
    dead_until: u64,
    records: VecDeque<Record>,
}

/// So many keys are passed on at once.
const KEYS: usize = 4096;

/// What is passed on of a record besides its keys, before it is applied. Runs are, since one of them may be merged
/// before the last ones are named.
pub fn mark_of(record: &Record) -> Option<Record> {
    let is_mark = matches!(
        record,
        Record::Begin { .. } | Record::SeenFrozen(_) | Record::SeenRuns(_)
    );
    is_mark.then(|| record.clone())
}

impl Passing {
    /// Keys in records before this offset are in runs.
    pub fn new(dead_until: u64) -> Self {
        Passing {
            dead_until,
            records: VecDeque::new(),
        }
    }

    /// A record at this offset was applied. `mark`: of [`mark_of`].
    pub fn pass(&mut self, committed: &mut Committed, mark: Option<Record>, offset: u64) {
        let is_begin = matches!(mark, Some(Record::Begin { .. }));
        if offset < self.dead_until && !is_begin {
            committed.seen = Pile::new();
            committed.frozen.clear();
            return;
        }
        if mark.is_none() && committed.seen.len() < KEYS {
            return;
        }
        let frozen = (committed.frozen.iter_mut()).map(|(_, keys)| std::mem::take(keys));
        let keys = frozen.chain([std::mem::take(&mut committed.seen)]);
        let keys = keys.flat_map(Pile::into_pieces).map(Record::Seen);
        self.records.extend(keys.chain(mark));
    }

    /// The records that were not polled.
    pub fn into_records(self) -> VecDeque<Record> {
        self.records
    }

    /// The next record of those that are passed on.
    pub fn poll(&mut self) -> Option<Record> {
        self.records.pop_front()
    }
}
