//! Requests that are not in a file yet.

use std::cmp::Reverse;

use hashbrown::HashMap;

use crate::base::secret::Known;
use crate::frontier::job::Job;
use crate::state::record::{self, Entry};

/// The requests that go to a file next.
#[derive(Debug, Default)]
pub struct Tail {
    requests: Vec<Waiting>,
    bytes: Vec<u8>,
    /// Number of requests, by origin.
    origins: HashMap<u64, u32, Known>,
}

/// A request in the tail.
#[derive(Debug)]
struct Waiting {
    origin: u64,
    priority: i32,
    number: u64,
    /// The journal does not have it.
    is_new: bool,
    /// The key of its URL, if it is new.
    key: u64,
    is_seed: bool,
    /// Its bytes.
    start: usize,
    end: usize,
}

/// The requests of a tail in blocks, which are taken one by one.
#[derive(Debug)]
pub struct TailBlocks {
    tail: Tail,
    /// Number of requests in blocks that were taken.
    written: usize,
}

/// Requests of one origin and priority that become a block. The journal has all of them, or none.
#[derive(Debug)]
pub struct TailBlock {
    pub origin: u64,
    pub priority: i32,
    /// The numbers of the requests, in order, and the keys of their URLs if they are new; at least one.
    pub requests: Vec<(u64, u64)>,
    /// The journal does not have them.
    pub is_new: bool,
    /// Whether one of them is a seed.
    pub has_seed: bool,
    /// The requests, encoded.
    pub bytes: Vec<u8>,
}

/// Most requests in a block: as many go by turns.
const BLOCK_REQUESTS: usize = 64;
/// A block with so many bytes takes no more requests.
pub const BLOCK_BYTES: usize = 64 << 10;
/// The tail is written when it has so many bytes.
const TAIL_BYTES: usize = 1 << 20;

impl Tail {
    /// Adds a request; `new_key`: the key of its URL, if the journal does not have it.
    pub fn put(&mut self, origin: u64, job: &Job, new_key: Option<u64>) {
        let start = self.bytes.len();
        record::encode_request(job, &mut self.bytes);
        *self.origins.entry(origin).or_default() += 1;
        self.requests.push(Waiting {
            origin,
            priority: job.priority,
            number: job.id,
            is_new: new_key.is_some(),
            key: new_key.unwrap_or(0),
            is_seed: job.seed,
            start,
            end: self.bytes.len(),
        });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether it is to be written.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= TAIL_BYTES
    }

    /// Whether an origin has a request here.
    pub fn has(&self, origin: u64) -> bool {
        self.origins.contains_key(&origin)
    }

    /// So many requests of an origin have gone.
    fn forget(&mut self, origin: u64, count: u32) {
        if let Some(left) = self.origins.get_mut(&origin) {
            *left -= count;
            if *left == 0 {
                self.origins.remove(&origin);
            }
        }
    }

    /// Calls `record` with the bytes of each request that the journal does not have: it has them from now on.
    pub fn record_new(&mut self, record: impl FnMut(&[u8])) {
        record_new(&mut self.requests, &self.bytes, record);
    }

    /// The requests, in the order in which they came.
    pub fn entries(&self) -> Vec<Entry> {
        entries_of(&self.requests, &self.bytes)
    }

    /// The requests in blocks, by origin, the highest priority first.
    pub fn into_blocks(mut self) -> TailBlocks {
        (self.requests).sort_unstable_by_key(|waiting| (waiting.group(), waiting.number));
        TailBlocks {
            tail: self,
            written: 0,
        }
    }
}

impl Waiting {
    /// Requests of one group go to one block.
    fn group(&self) -> (u64, Reverse<i32>) {
        (self.origin, Reverse(self.priority))
    }
}

impl TailBlocks {
    /// Whether an origin has a request in a block that was not taken.
    pub fn has(&self, origin: u64) -> bool {
        self.tail.has(origin)
    }

    /// As [`Tail::record_new`], of those in blocks that were not taken.
    pub fn record_new(&mut self, record: impl FnMut(&[u8])) {
        let rest = &mut self.tail.requests[self.written..];
        record_new(rest, &self.tail.bytes, record);
    }

    /// The requests in blocks that were not taken.
    pub fn entries(&self) -> Vec<Entry> {
        entries_of(self.rest(), &self.tail.bytes)
    }

    /// Whether all blocks were taken.
    pub fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next block.
    pub fn next_block(&mut self) -> Option<TailBlock> {
        let rest = self.rest();
        let first = rest.first()?;
        let mut size = 0;
        let fits = |waiting: &&Waiting| {
            let is_first = size == 0;
            size += waiting.end - waiting.start;
            let is_alike = waiting.group() == first.group() && waiting.is_new == first.is_new;
            is_alike && (is_first || size <= BLOCK_BYTES)
        };
        let count = rest.iter().take(BLOCK_REQUESTS).take_while(fits).count();
        let block = &rest[..count];
        let parts = block
            .iter()
            .map(|waiting| &self.tail.bytes[waiting.start..waiting.end]);
        let block = TailBlock {
            origin: first.origin,
            priority: first.priority,
            requests: block
                .iter()
                .map(|waiting| (waiting.number, waiting.key))
                .collect(),
            is_new: first.is_new,
            has_seed: block.iter().any(|waiting| waiting.is_seed),
            bytes: parts.flatten().copied().collect(),
        };
        self.written += count;
        self.tail.forget(block.origin, count as u32);
        Some(block)
    }

    fn rest(&self) -> &[Waiting] {
        &self.tail.requests[self.written..]
    }
}

fn record_new(requests: &mut [Waiting], bytes: &[u8], mut record: impl FnMut(&[u8])) {
    for waiting in requests.iter_mut().filter(|waiting| waiting.is_new) {
        record(&bytes[waiting.start..waiting.end]);
        waiting.is_new = false;
    }
}

fn entries_of(requests: &[Waiting], bytes: &[u8]) -> Vec<Entry> {
    let bytes = requests
        .iter()
        .map(|waiting| &bytes[waiting.start..waiting.end]);
    let read = |bytes: &[u8]| record::decode_request(bytes).expect("bytes of a request");
    bytes.map(read).collect()
}
