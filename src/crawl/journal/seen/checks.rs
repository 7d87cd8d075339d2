//! Checks keys that a filter passes against the blocks of runs, in batches sorted by their places.
//!
//! ```text
//! keys ──► groups, each a range of keys ──► sorted, filtered ──► blocks are read ──► answers
//! ```
//!
//! A batch takes all keys that wait, so that one which is large reads the runs sequentially. Each group is
//! checked against all runs by itself: a step is bounded, and memory as well.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::crawl::journal::seen::runs::{RunFailure, RunFile};

/// A batch of keys that is checked.
#[derive(Debug)]
pub struct Batch {
    runs: Vec<RunFile>,
    count: usize,
    /// Keys that are still to be added.
    missing: usize,
    /// Keys by their highest bits; each is a later group.
    ranges: VecDeque<Vec<u64>>,
    range_bits: u32,
    /// Groups of keys that are being checked, in order.
    groups: VecDeque<Group>,
    /// Number of groups before these.
    answered: usize,
    reads: BTreeMap<u64, Read>,
    tag: u64,
}

/// Keys that are checked together.
#[derive(Debug)]
struct Group {
    /// Ascending.
    keys: Vec<u64>,
    is_found: Vec<bool>,
    /// By run and block.
    probes: Vec<Probe>,
    /// The first probe that is not read yet.
    next: usize,
    reads: usize,
}

/// A key that may be in a block.
#[derive(Clone, Copy, Debug)]
struct Probe {
    run: u32,
    key: u32,
    block: u64,
}

/// Blocks that are being read.
#[derive(Debug)]
struct Read {
    group: usize,
    probes: Range<usize>,
    blocks: Range<u64>,
}

/// Keys that are added or filtered at once at most, about: it takes a millisecond or two.
pub const KEYS_PER_STEP: usize = 4096;

/// Keys in a batch at most: of 10 bytes each.
pub const KEYS_MAX: usize = 8 << 20;

/// The owner of the reads among the files of the disk.
pub const READS: FileId = FileId(10);

/// Reads under way at most.
const READS_MAX: usize = 16;

/// Groups at most, from the first without answers on.
const GROUPS_MAX: usize = 32;

/// Blocks that are read at once at most: 256 KiB.
const BLOCKS_PER_READ: u64 = 64;

/// Blocks between two that are needed which are read as well, rather than the two by themselves.
const GAP_MAX: u64 = 4;

/// Ranges of a batch at most.
const RANGE_BITS_MAX: u32 = 16;

impl Batch {
    /// Begins to check so many keys against all runs.
    pub fn new(count: usize, runs: Vec<RunFile>) -> Self {
        let ranges = count.div_ceil(KEYS_PER_STEP).next_power_of_two();
        let range_bits = ranges.ilog2().min(RANGE_BITS_MAX);
        let of_range = count >> range_bits;
        // Keys are evenly distributed: seven standard deviations are reserved.
        let capacity = match range_bits {
            0 => count,
            _ => of_range + 7 * of_range.isqrt(),
        };
        let ranges = (0..1 << range_bits).map(|_| Vec::with_capacity(capacity));
        Batch {
            runs,
            count,
            missing: count,
            ranges: ranges.collect(),
            range_bits,
            groups: VecDeque::new(),
            answered: 0,
            reads: BTreeMap::new(),
            tag: 0,
        }
    }

    /// Number of its keys.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many keys are to be added now.
    pub fn wanted(&self) -> usize {
        self.missing.min(KEYS_PER_STEP)
    }

    /// Adds wanted keys.
    pub fn push(&mut self, keys: Vec<u64>) {
        self.missing -= keys.len();
        if let Some(only) = self.ranges.front_mut().filter(|_| self.range_bits == 0) {
            *only = keys;
            return;
        }
        for key in keys {
            self.ranges[(key >> (u64::BITS - self.range_bits)) as usize].push(key);
        }
    }

    /// Begins a group, in a step of 1 to 2 ms; returns false if there is none to begin now.
    pub fn step(&mut self, jobs: &mut Vec<DiskJob>) -> bool {
        let is_read = |group: &Group| group.next == group.probes.len();
        let is_ready = self.missing == 0
            && self.reads.len() < READS_MAX
            && self.groups.len() < GROUPS_MAX
            && self.groups.back().is_none_or(is_read);
        let keys = match is_ready {
            true => self.ranges.pop_front(),
            false => None,
        };
        let Some(keys) = keys else {
            return false;
        };
        self.groups.push_back(Group::new(keys, &self.runs));
        self.advance(jobs);
        true
    }

    /// Has blocks read.
    pub fn advance(&mut self, jobs: &mut Vec<DiskJob>) {
        let number = self.answered + self.groups.len();
        let Some(group) = self.groups.back_mut() else {
            return;
        };
        while self.reads.len() < READS_MAX
            && let Some((probes, blocks)) = group.next_read()
        {
            let run = &self.runs[group.probes[probes.start].run as usize];
            self.tag += 1;
            jobs.push(run.read(READS, blocks.clone(), self.tag));
            let read = Read {
                group: number - 1,
                probes,
                blocks,
            };
            self.reads.insert(self.tag, read);
        }
    }

    /// The disk has read blocks.
    pub fn handle_read(&mut self, done: &DiskDone) -> Result<(), RunFailure> {
        let Some(read) = self.reads.remove(&done.tag) else {
            return Ok(());
        };
        self.groups[read.group - self.answered].handle_read(read, &self.runs, &done.read)
    }

    /// The next keys whose answers are known, and whether a run has them.
    pub fn poll_answers(&mut self) -> Option<impl Iterator<Item = (u64, bool)> + use<>> {
        self.groups.front().filter(|group| group.is_over())?;
        let group = self.groups.pop_front()?;
        self.answered += 1;
        Some(group.keys.into_iter().zip(group.is_found))
    }

    /// Whether there are answers.
    pub fn has_answers(&self) -> bool {
        self.groups.front().is_some_and(Group::is_over)
    }

    /// Whether all answers were taken.
    pub fn is_over(&self) -> bool {
        self.ranges.is_empty() && self.groups.is_empty()
    }
}

impl Group {
    /// Looks for keys in the filters of all runs.
    fn new(mut keys: Vec<u64>, runs: &[RunFile]) -> Self {
        keys.sort_unstable();
        let mut probes = Vec::new();
        for (number, run) in (0..).zip(runs) {
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
        Group {
            is_found: vec![false; keys.len()],
            keys,
            probes,
            next: 0,
            reads: 0,
        }
    }

    /// The probes that are read next, and their blocks.
    fn next_read(&mut self) -> Option<(Range<usize>, Range<u64>)> {
        let first = self.probes.get(self.next).copied()?;
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
        let probes = self.next..self.next + count;
        self.next = probes.end;
        self.reads += 1;
        Some((probes, first.block..end))
    }

    fn handle_read(
        &mut self,
        read: Read,
        runs: &[RunFile],
        bytes: &[u8],
    ) -> Result<(), RunFailure> {
        self.reads -= 1;
        for of_block in self.probes[read.probes].chunk_by(|a, b| a.block == b.block) {
            let run = &runs[of_block[0].run as usize];
            let block = run.block(of_block[0].block, &read.blocks, bytes)?;
            for probe in of_block {
                if block.has(self.keys[probe.key as usize]) {
                    self.is_found[probe.key as usize] = true;
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.next == self.probes.len() && self.reads == 0
    }
}
