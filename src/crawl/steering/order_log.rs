//! The log of orders: each gets its line in `orders.jsonl` once the state has what it changed.

use std::collections::VecDeque;
use std::path::PathBuf;

use serde_json::Value;

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::crawl::line_file::{LineFile, Recorded};
use crate::sink::commit::Epoch;

/// The orders on their way to the disk.
///
/// The state is durable before the line. A crash in between leaves an order in effect that has no line and was not
/// acknowledged; it never leaves a line whose order a later run does not follow.
#[derive(Debug)]
pub struct OrderLog {
    file: LineFile,
    has_file: bool,
    /// Orders whose effects are not committed, with the epoch that has them.
    uncommitted: VecDeque<(Epoch, Value)>,
    /// Number of the last order.
    last: u64,
    /// Number of the last order that is recorded, or cannot be.
    recorded: u64,
}

impl Default for OrderLog {
    fn default() -> Self {
        OrderLog {
            file: LineFile::none(FILE),
            has_file: false,
            uncommitted: VecDeque::new(),
            last: 0,
            recorded: 0,
        }
    }
}

impl OrderLog {
    /// The file of this path, which has this length.
    pub fn new(path: PathBuf, length: u64) -> Self {
        OrderLog {
            file: LineFile::new(FILE, path, length),
            has_file: true,
            ..OrderLog::default()
        }
    }

    /// Whether orders have lines.
    pub fn has_file(&self) -> bool {
        self.has_file
    }

    /// Adds an order; `epoch`: the one that has its effects, if it has any in the state. Returns its number.
    pub fn add(&mut self, line: Value, epoch: Option<Epoch>) -> u64 {
        self.last += 1;
        // Lines are in the order of the orders.
        match epoch.or_else(|| Some(self.uncommitted.back()?.0)) {
            Some(epoch) => self.uncommitted.push_back((epoch, line)),
            None => self.record(&line),
        }
        self.last
    }

    /// Whether an order is recorded, or cannot be.
    pub fn is_recorded(&self, number: u64) -> bool {
        number <= self.recorded
    }

    /// Whether all are.
    pub fn is_done(&self) -> bool {
        self.recorded == self.last
    }

    /// Whether so many wait for the disk that programs can give no further order.
    pub fn is_behind(&self) -> bool {
        self.last - self.recorded >= WAITING_MAX
    }

    /// An epoch is committed: the orders that it has get their lines.
    pub fn handle_committed(&mut self, epoch: Epoch) {
        let covered = self.uncommitted.partition_point(|(of, _)| *of <= epoch);
        let lines: Vec<_> = self.uncommitted.drain(..covered).collect();
        for (_, line) in &lines {
            self.record(line);
        }
    }

    /// The jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        self.file.poll_jobs()
    }

    /// Called with a finished job: whether it is one of these, and what it recorded.
    pub fn handle_disk(&mut self, done: &DiskDone) -> Option<Option<Recorded>> {
        let recorded = self.file.handle_disk(done)?;
        if let Some(recorded) = &recorded {
            self.recorded = self.recorded.max(recorded.number);
        }
        Some(recorded)
    }

    fn record(&mut self, line: &Value) {
        // The file numbers its lines as the orders are numbered.
        if self.file.record(line).is_none() {
            self.recorded += 1;
        }
    }
}

/// The file of orders.
const FILE: FileId = FileId(13);

/// Orders that wait for the disk, some hundred bytes each, while programs can give more.
const WAITING_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::disk::Written;

    fn lines(log: &mut OrderLog) -> Vec<u64> {
        let jobs = log.poll_jobs().into_iter();
        let appended = jobs.filter_map(|job| match job {
            DiskJob::Append { tag, .. } => Some(tag),
            _ => None,
        });
        appended.collect()
    }

    #[test]
    fn an_order_has_its_line_once_its_effects_are_committed() {
        let mut log = OrderLog::new("orders.jsonl".into(), 0);
        assert_eq!(log.add(json!(1), Some(Epoch(3))), 1);
        assert_eq!(log.add(json!(2), Some(Epoch(4))), 2);
        // One without effects in the state follows those before it.
        assert_eq!(log.add(json!(3), None), 3);
        assert_eq!(lines(&mut log), [] as [u64; 0]);
        log.handle_committed(Epoch(3));
        assert_eq!(lines(&mut log), [1]);
        log.handle_committed(Epoch(4));
        assert_eq!(lines(&mut log), [2, 3]);
        assert!(!log.is_recorded(1) && !log.is_done());
        let done = DiskDone {
            file: Some(FILE),
            tag: 3,
            held: 0,
            result: Ok(Written::default()),
            unwritten: Vec::new(),
            read: Vec::new(),
        };
        assert!(log.handle_disk(&done).is_some());
        assert!(log.is_recorded(3) && log.is_done());
    }

    #[test]
    fn orders_without_a_file_are_recorded_by_the_commit() {
        let mut log = OrderLog::default();
        assert_eq!(log.add(json!(1), None), 1);
        assert!(log.is_recorded(1));
        assert_eq!(log.add(json!(2), Some(Epoch(1))), 2);
        assert!(!log.is_recorded(2));
        log.handle_committed(Epoch(1));
        assert!(log.is_recorded(2) && log.is_done());
    }
}
