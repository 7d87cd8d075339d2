//! Checks keys that a filter passes against the blocks of runs, in batches sorted by their places.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::crawl::journal::seen::runs::{RunFailure, RunFile};

/// A batch of keys that is checked.
#[derive(Debug)]
pub struct Batch {
    runs: Vec<RunFile>,
    /// Ascending.
    keys: Vec<u64>,
    is_found: Vec<bool>,
    /// By run and block.
    probes: Vec<Probe>,
    /// The first probe that is not read yet.
    next: usize,
    /// Probes and blocks of each read.
    reads: BTreeMap<u64, (Range<usize>, Range<u64>)>,
    tag: u64,
}

/// A key that may be in a block.
#[derive(Clone, Copy, Debug)]
struct Probe {
    run: u32,
    key: u32,
    block: u64,
}

/// Keys in a batch at most: their filters take a millisecond or two.
pub const KEYS_MAX: usize = 4096;

/// The owner of the reads among the files of the disk.
pub const READS: FileId = FileId(10);

/// Reads under way at most.
const READS_MAX: usize = 16;

/// Blocks that are read at once at most: 128 KiB.
const BLOCKS_PER_READ: u64 = 32;

/// Blocks between two that are needed which are read as well, rather than the two by themselves.
const GAP_MAX: u64 = 4;

impl Batch {
    /// Begins to check keys against all runs.
    pub fn new(mut keys: Vec<u64>, runs: Vec<RunFile>) -> Self {
        keys.sort_unstable();
        let mut probes = Vec::new();
        for (number, run) in (0..).zip(&runs) {
            let of_key = |(key, print): (u32, &u64)| {
                let block = run.run().block_of(*print)?;
                Some(Probe {
                    run: number,
                    key,
                    block,
                })
            };
            probes.extend((0..).zip(&keys).filter_map(of_key));
        }
        Batch {
            is_found: vec![false; keys.len()],
            runs,
            keys,
            probes,
            next: 0,
            reads: BTreeMap::new(),
            tag: 0,
        }
    }

    /// Has blocks read.
    pub fn advance(&mut self, jobs: &mut Vec<DiskJob>) {
        while self.reads.len() < READS_MAX
            && let Some(first) = self.probes.get(self.next).copied()
        {
            let mut end = first.block + 1;
            let fits = |probe: &&Probe| {
                let is_near = probe.run == first.run
                    && probe.block < end + GAP_MAX
                    && probe.block < first.block + BLOCKS_PER_READ;
                if is_near {
                    end = probe.block + 1;
                }
                is_near
            };
            let count = self.probes[self.next..].iter().take_while(fits).count();
            let blocks = first.block..end;
            let run = &self.runs[first.run as usize];
            self.tag += 1;
            jobs.push(run.read(READS, blocks.clone(), self.tag));
            self.reads
                .insert(self.tag, (self.next..self.next + count, blocks));
            self.next += count;
        }
    }

    /// The disk has read blocks.
    pub fn handle_read(&mut self, done: &DiskDone) -> Result<(), RunFailure> {
        let Some((probes, blocks)) = self.reads.remove(&done.tag) else {
            return Ok(());
        };
        for probe in &self.probes[probes] {
            let run = &self.runs[probe.run as usize];
            let key = self.keys[probe.key as usize];
            if run.has(probe.block, &blocks, &done.read, key)? {
                self.is_found[probe.key as usize] = true;
            }
        }
        Ok(())
    }

    /// Whether all keys are checked.
    pub fn is_over(&self) -> bool {
        self.next == self.probes.len() && self.reads.is_empty()
    }

    /// The keys, and whether a run has them.
    pub fn answers(self) -> impl Iterator<Item = (u64, bool)> {
        self.keys.into_iter().zip(self.is_found)
    }
}
