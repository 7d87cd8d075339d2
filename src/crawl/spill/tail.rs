//! Requests that are not in a file yet.

use std::cmp::Reverse;
use std::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::base::secret::Known;
use crate::frontier::job::Job;
use crate::state::record;
use crate::wire::url::CrawlUrl;

/// The requests that go to a file next.
#[derive(Debug, Default)]
pub struct Tail {
    requests: Vec<Waiting>,
    bytes: Vec<u8>,
    origins: HashMap<u64, Line, Known>,
    /// The origins, in the order of their first requests.
    order: Vec<u64>,
}

/// The requests of an origin in the tail, by index: each leads to the next.
#[derive(Debug)]
struct Line {
    first: u32,
    last: u32,
    /// Requests that are not in a block.
    count: u32,
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
    /// A block has it.
    is_written: bool,
    /// The next request of its origin.
    next: Option<u32>,
    /// Its bytes.
    start: usize,
    end: usize,
}

/// The requests of a tail in blocks, which are taken one by one: a tail has tens of thousands of requests, too many
/// to sort in one turn.
#[derive(Debug)]
pub struct TailBlocks {
    tail: Tail,
    /// Number of origins in `tail.order` that were begun.
    begun: usize,
    /// The requests of the last of them that are in no block, in order.
    group: VecDeque<u32>,
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
        let index = u32::try_from(self.requests.len()).expect("a tail is written before");
        match self.origins.entry(origin) {
            Entry::Occupied(mut line) => {
                let line = line.get_mut();
                self.requests[line.last as usize].next = Some(index);
                line.last = index;
                line.count += 1;
            }
            Entry::Vacant(line) => {
                self.order.push(origin);
                line.insert(Line {
                    first: index,
                    last: index,
                    count: 1,
                });
            }
        }
        self.requests.push(Waiting {
            origin,
            priority: job.priority,
            number: job.id,
            is_new: new_key.is_some(),
            key: new_key.unwrap_or(0),
            is_seed: job.seed,
            is_written: false,
            next: None,
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

    /// How many requests of an origin are in no block.
    pub fn requests_of(&self, origin: u64) -> u64 {
        let line = self.origins.get(&origin);
        line.map_or(0, |line| line.count.into())
    }

    /// Number of requests, also of those that are in a block.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// The first request of an origin for a URL that is in no block, of `count` from the one at `from` on, and its
    /// number of bytes.
    pub fn find(
        &self,
        origin: u64,
        url: &CrawlUrl,
        from: usize,
        count: usize,
    ) -> Option<(Job, u64)> {
        let mut waiting = self.requests.iter().skip(from).take(count);
        waiting.find_map(|waiting| {
            let bytes = &self.bytes[waiting.start..waiting.end];
            let is_of_origin = waiting.origin == origin && !waiting.is_written;
            let is_it = is_of_origin && record::is_request_for(bytes, url);
            is_it.then(|| {
                let entry = record::decode_request(bytes).expect("bytes of a request");
                (entry.job, bytes.len() as u64)
            })
        })
    }

    /// So many requests of an origin have gone.
    fn forget(&mut self, origin: u64, count: u32) {
        if let Some(line) = self.origins.get_mut(&origin) {
            line.count -= count;
            if line.count == 0 {
                self.origins.remove(&origin);
            }
        }
    }

    /// Calls `record` with the bytes of each request that neither the journal has nor a block: it has them from now
    /// on.
    pub fn record_new(&mut self, mut record: impl FnMut(&[u8])) {
        let left = self.requests.iter_mut();
        for waiting in left.filter(|waiting| waiting.is_new && !waiting.is_written) {
            record(&self.bytes[waiting.start..waiting.end]);
            waiting.is_new = false;
        }
    }

    /// The requests that are in no block, in the order in which they came.
    pub fn entries(&self) -> Vec<record::Entry> {
        let left = self.requests.iter().filter(|waiting| !waiting.is_written);
        let bytes = left.map(|waiting| &self.bytes[waiting.start..waiting.end]);
        let read = |bytes: &[u8]| record::decode_request(bytes).expect("bytes of a request");
        bytes.map(read).collect()
    }

    /// The requests in blocks: by origin in the order of their first requests, the highest priority first.
    pub fn into_blocks(self) -> TailBlocks {
        TailBlocks {
            tail: self,
            begun: 0,
            group: VecDeque::new(),
        }
    }

    /// The indices of the requests of an origin, the highest priority first, then in order.
    fn line_of(&self, origin: u64) -> Vec<u32> {
        let first = self.origins.get(&origin).map(|line| line.first);
        let next = |index: &u32| self.requests[*index as usize].next;
        let mut line: Vec<u32> = std::iter::successors(first, next).collect();
        // Mostly they are in order.
        line.sort_by_key(|index| {
            let waiting = &self.requests[*index as usize];
            (Reverse(waiting.priority), waiting.number)
        });
        line
    }

    /// Without requests, in the same memory.
    fn cleared(mut self) -> Self {
        self.requests.clear();
        self.bytes.clear();
        self.origins.clear();
        self.order.clear();
        self
    }
}

impl TailBlocks {
    /// Whether an origin has a request in a block that was not taken.
    pub fn has(&self, origin: u64) -> bool {
        self.tail.has(origin)
    }

    /// As [`Tail::record_new`], of those in blocks that were not taken.
    pub fn record_new(&mut self, record: impl FnMut(&[u8])) {
        self.tail.record_new(record);
    }

    /// The requests in blocks that were not taken.
    pub fn entries(&self) -> Vec<record::Entry> {
        self.tail.entries()
    }

    /// The requests, also of blocks that were taken.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Whether all blocks were taken.
    pub fn is_empty(&self) -> bool {
        self.tail.origins.is_empty()
    }

    /// The memory of the tail, for another.
    pub fn into_empty_tail(self) -> Tail {
        self.tail.cleared()
    }

    /// The next block.
    pub fn next_block(&mut self) -> Option<TailBlock> {
        if self.group.is_empty() {
            let origin = *self.tail.order.get(self.begun)?;
            self.begun += 1;
            self.group = self.tail.line_of(origin).into();
        }
        let tail = &mut self.tail;
        let first = &tail.requests[*self.group.front()? as usize];
        let mut block = TailBlock {
            origin: first.origin,
            priority: first.priority,
            requests: Vec::new(),
            is_new: first.is_new,
            has_seed: false,
            bytes: Vec::new(),
        };
        while let Some(index) = self.group.front()
            && block.requests.len() < BLOCK_REQUESTS
        {
            let waiting = &mut tail.requests[*index as usize];
            let is_alike = waiting.priority == block.priority && waiting.is_new == block.is_new;
            let size = block.bytes.len() + waiting.end - waiting.start;
            if !is_alike || !block.requests.is_empty() && size > BLOCK_BYTES {
                break;
            }
            waiting.is_written = true;
            block.requests.push((waiting.number, waiting.key));
            block.has_seed |= waiting.is_seed;
            let bytes = &tail.bytes[waiting.start..waiting.end];
            block.bytes.extend_from_slice(bytes);
            self.group.pop_front();
        }
        tail.forget(block.origin, block.requests.len() as u32);
        Some(block)
    }
}
