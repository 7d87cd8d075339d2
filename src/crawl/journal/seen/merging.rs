//! Merges runs of the seen set, a bounded step at a time.

use std::ops::Range;

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::crawl::journal::seen::runs::{RunFailure, RunFile};
use crate::crawl::journal::seen::writing::Writing;
use crate::frontier::seen::run::PART_PRINTS;
use crate::state::seen_runs::merge::Merge;

/// A merge under way.
#[derive(Debug)]
pub struct Merging {
    inputs: Vec<Input>,
    merge: Merge,
    /// The run that takes their place.
    pub writing: Writing,
    is_over: bool,
}

#[derive(Debug)]
struct Input {
    run: RunFile,
    /// The block that is read next.
    next: u64,
    reading: Option<Range<u64>>,
}

/// Blocks that are read at once: 256 KiB.
const BLOCKS_PER_READ: u64 = 64;

/// The owner of the reads among the files of the disk.
pub const READS: FileId = FileId(11);

impl Merging {
    /// Begins to merge runs to another.
    pub fn new(runs: Vec<RunFile>, writing: Writing) -> Self {
        Merging {
            merge: Merge::new(runs.len()),
            inputs: (runs.into_iter())
                .map(|run| Input {
                    run,
                    next: 0,
                    reading: None,
                })
                .collect(),
            writing,
            is_over: false,
        }
    }

    /// Does a step of 1 to 2 ms at most; returns false if there is none to do now.
    pub fn step(&mut self, jobs: &mut Vec<DiskJob>) -> bool {
        if self.writing.step(jobs) {
            return true;
        }
        if self.is_over || !self.writing.wants_keys() {
            return false;
        }
        let wanted: Vec<usize> = self.merge.wanted().collect();
        for number in wanted {
            self.read(number, jobs);
        }
        if self.merge.is_over() {
            self.is_over = true;
            self.writing.end();
            return true;
        }
        let keys = self.merge.take(PART_PRINTS);
        self.writing.push(&keys);
        !keys.is_empty()
    }

    fn read(&mut self, number: usize, jobs: &mut Vec<DiskJob>) {
        let input = &mut self.inputs[number];
        if input.reading.is_some() {
            return;
        }
        let end = input.run.blocks().min(input.next + BLOCKS_PER_READ);
        if input.next == end {
            return self.merge.end(number);
        }
        let blocks = input.next..end;
        jobs.push(input.run.read(READS, blocks.clone(), number as u64));
        input.reading = Some(blocks);
    }

    /// The disk has read blocks.
    pub fn handle_read(&mut self, done: &DiskDone) -> Result<(), RunFailure> {
        let number = done.tag as usize;
        let input = &mut self.inputs[number];
        let Some(blocks) = input.reading.take() else {
            return Ok(());
        };
        input.next = blocks.end;
        let keys = input.run.keys_in(blocks, &done.read)?;
        self.merge.push(number, keys);
        Ok(())
    }

    /// The numbers of the runs that were merged.
    pub fn merged(&self) -> impl Iterator<Item = u64> {
        self.inputs.iter().map(|input| input.run.number())
    }
}
