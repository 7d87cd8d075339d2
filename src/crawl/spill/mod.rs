//! Requests that do not fit into memory: they wait in files, by origin.
//!
//! ```text
//! admitted ──┬─► its lane                                     while memory has room
//!            └─► tail ──► block of a file ──► its origin waits in line ──► read ──► its lane
//! ```
//!
//! A block has requests of one origin and one priority. Origins take turns: each brings one block into
//! memory, and waits again, behind all others, once most of that has ended. So an origin with millions of
//! requests takes no more memory than one with a hundred, and others do not wait for it. The origin whose
//! requests have the highest priority goes first; lower priorities have an eighth of the turns. A request stays
//! behind older ones of its origin and priority that are in files.
//!
//! When others wait and there is no room, the requests of lanes that wait for long (a long delay, a hold) go
//! to files as well; their origins rest until some can be sent.
//!
//! A request is written once: the journal does not have those that are admitted to the tail, but records
//! which block has them, with the keys of their URLs. At a commit it records those that are still in the tail.
//! It also records which of its requests a block has taken over, and when those of a block were read again: a
//! block counts until then.

mod files;
mod index;
mod moving;
mod rests;
mod searching;
mod tail;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;

use self::files::{APPEND, FILE, Files, MOVE, READS, SYNC, entries_of, path_of};
use self::index::{Index, Location, length_max};
use self::moving::{Found, Mover};
use self::rests::Rests;
pub use self::rests::ScopeNames;
pub use self::searching::{FoundRequest, Searched};
use self::searching::{SEARCH, Searching};
use self::tail::{BLOCK_BYTES, Tail, TailBlock, TailBlocks};
use crate::base::disk::{DiskDone, DiskJob};
use crate::base::secret::Known;
use crate::base::time::Instant;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::sink::WriteError;
use crate::state::record::{self, BlockOrigin, Entry, SpilledBlock, WrittenBlock};

/// The requests in files, or none: a crawl without a state on disk.
pub struct Spill {
    open: Option<Box<Open>>,
    /// The first job that failed, once all requests were taken.
    last_failure: Option<WriteError>,
}

/// Where files are, and those of earlier runs.
#[derive(Clone, Debug)]
pub struct SpillStart {
    /// The output directory.
    pub folder: PathBuf,
    /// The number of the crawl, in each of its files.
    pub crawl: u64,
    /// The number of the next file.
    pub next_file: u64,
    /// The numbers of the files that there are.
    pub files: Vec<u64>,
}

struct Open {
    /// `FRONTIER_MEMORY`.
    memory_max: u64,
    tail: Tail,
    /// The number of the tail; the one before it is, or was, `writing`.
    tails: u64,
    /// What was the tail before, while its blocks are written.
    writing: Option<TailBlocks>,
    /// The memory of the tail before that.
    empty_tail: Tail,
    files: Files,
    index: Index,
    /// Requests in blocks and in the tail.
    requests: u64,
    /// Blocks that are being read.
    reads: HashMap<u64, Reading, Known>,
    next_read: u64,
    /// Blocks that were read.
    arrived: VecDeque<SpilledRequests>,
    /// Requests in memory of origins that wait again once these have ended. They may be a million: no insertion
    /// moves all of them.
    taken: BTreeMap<u64, u32>,
    /// Origins that have no turn before a time.
    rests: Rests,
    /// Blocks that were written, for the journal.
    written: Vec<WrittenBlock>,
    mover: Mover,
    /// Requests that were cancelled while they were in a file, by their numbers.
    cancelled: BTreeSet<u64>,
    /// Searches for URLs, by their numbers.
    searches: BTreeMap<u32, Searching>,
}

#[derive(Debug)]
struct Reading {
    origin: u64,
    priority: i32,
    location: Location,
}

/// The requests of a block that was read.
#[derive(Debug)]
pub struct SpilledRequests {
    /// The number of its file.
    pub file: u64,
    /// Its offset in it.
    pub offset: u64,
    /// The requests.
    pub entries: Vec<Entry>,
    origin: u64,
    priority: i32,
    length_max: u64,
}

/// Beyond so many bytes that wait for the disk, no more seeds are taken in.
const UNWRITTEN_MAX: usize = 8 << 20;
/// Most blocks that are read at once.
const READS_MAX: usize = 64;
/// Blocks of the tail that are written in one turn.
const BLOCKS_PER_TURN: usize = 256;
/// Origins that are looked at in one turn, of those that wait or rest.
const ORIGINS_PER_TURN: usize = 256;
/// Memory that is reserved for a block that is being read, in bytes.
const READ_MEMORY: u64 = 16 << 10;
/// An origin waits again when so many of its requests are left in memory.
const LEFT_IN_MEMORY: u32 = 16;

impl SpillStart {
    /// For a new crawl with this output directory.
    pub fn new(folder: &Path, crawl: u64) -> Self {
        SpillStart {
            folder: folder.to_owned(),
            crawl,
            next_file: 0,
            files: Vec::new(),
        }
    }

    /// The requests of a block, from its bytes.
    ///
    /// # Errors
    /// It is damaged.
    pub fn entries_of(&self, block: &SpilledBlock, bytes: &[u8]) -> io::Result<Vec<Entry>> {
        entries_of(block.file, self.crawl, block.offset, bytes)
    }

    /// The path of a file.
    pub fn path_of(&self, number: u64) -> PathBuf {
        path_of(&self.folder, number)
    }
}

impl Spill {
    /// A crawl without a state on disk: all requests are in memory.
    pub fn none() -> Self {
        Spill {
            open: None,
            last_failure: None,
        }
    }

    /// Requests beyond `memory_max` bytes (`FRONTIER_MEMORY`) go to files.
    pub fn new(start: SpillStart, memory_max: u64) -> Self {
        let open = Open {
            memory_max,
            tail: Tail::default(),
            tails: 1,
            writing: None,
            empty_tail: Tail::default(),
            files: Files::new(start),
            index: Index::default(),
            requests: 0,
            reads: HashMap::default(),
            next_read: READS,
            arrived: VecDeque::new(),
            taken: BTreeMap::new(),
            rests: Rests::default(),
            written: Vec::new(),
            mover: Mover::default(),
            cancelled: BTreeSet::new(),
            searches: BTreeMap::new(),
        };
        Spill {
            open: Some(Box::new(open)),
            last_failure: None,
        }
    }

    /// Adds a block that an earlier run wrote. Those of one origin and priority come in the order of their
    /// requests.
    pub fn restore(&mut self, block: &SpilledBlock) {
        if let Some(open) = &mut self.open {
            open.add(block);
        }
    }

    /// Whether an origin has requests here, as far as they are not being read.
    pub fn has(&self, origin: u64) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let writing = open.writing.as_ref();
            open.index.has(origin)
                || open.tail.has(origin)
                || writing.is_some_and(|blocks| blocks.has(origin))
        })
    }

    /// Roughly how many requests an origin has here, as far as they are not in memory.
    pub fn requests_of(&self, origin: u64) -> u64 {
        self.open.as_ref().map_or(0, |open| {
            let writing = open.writing.as_ref();
            let writing = writing.map_or(0, |blocks| blocks.tail().requests_of(origin));
            open.index.requests_of(origin) + writing + open.tail.requests_of(origin)
        })
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.requests as usize)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether so much waits for the disk that no seed and no request is taken in.
    pub fn is_behind(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.files.unwritten() > UNWRITTEN_MAX)
    }

    /// Whether no sync is under way and none failed.
    pub fn is_synced(&self) -> bool {
        (self.open.as_ref()).is_none_or(|open| open.files.is_synced())
    }

    /// The first job that failed.
    pub fn failure(&self) -> Option<&WriteError> {
        let open = self.open.as_ref();
        let failure = open.and_then(|open| open.files.failure());
        failure.or(self.last_failure.as_ref())
    }

    /// Whether a request that was admitted waits here; `used`: memory of those that do not. Others are
    /// needed at once, or continue an attempt.
    pub fn takes(&self, origin: impl FnOnce() -> u64, job: &Job, used: u64) -> bool {
        let Some(open) = self.open.as_deref() else {
            return false;
        };
        let is_short = used >= open.memory_max;
        if !is_short && open.requests == 0 {
            return false;
        }
        if !Self::may_take(job) {
            return false;
        }
        if is_short {
            return true;
        }
        let origin = origin();
        let is_written = |tail: &TailBlocks| tail.has(origin);
        open.tail.has(origin)
            || open.writing.as_ref().is_some_and(is_written)
            || open.index.is_behind(origin, job.priority)
    }

    /// Whether a request may wait here at all.
    pub fn may_take(job: &Job) -> bool {
        job.kind == PageKind::Page
            && job.attempt == 1
            && job.redirects == 0
            && !job.awaited
            && (job.extra.as_ref()).is_none_or(|extra| extra.stored_bytes() <= BLOCK_BYTES)
    }

    /// Whether origins wait and there is no room for them; `used`: memory of the requests that are not here.
    pub fn wants_room(&self, used: u64) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let waits =
                !open.index.is_nobody_waiting() || !open.tail.is_empty() || open.writing.is_some();
            waits && used + open.waiting_memory() >= open.room()
        })
    }

    /// No request of this origin is needed before `until`: it has no turn until then. `scopes`: of its requests.
    pub fn rest(&mut self, origin: u64, until: Instant, scopes: ScopeNames) {
        if let Some(open) = self.open.as_deref_mut() {
            open.taken.remove(&origin);
            open.rests.insert(origin, until, scopes);
        }
    }

    /// Ends the rests of origins under scopes of these names: how long they wait may have changed. They wait for
    /// their turns by [`Spill::expire`].
    pub fn end_rests(&mut self, about: ScopeNames) {
        if let Some(open) = self.open.as_deref_mut() {
            open.rests.review(about);
        }
    }

    /// Origins whose rest is over wait for their turns: some hundred at most. Returns whether there may be more.
    pub fn expire(&mut self, now: Instant) -> bool {
        let Some(open) = self.open.as_deref_mut() else {
            return false;
        };
        for _ in 0..ORIGINS_PER_TURN {
            let Some(origin) = open.rests.poll(now) else {
                return false;
            };
            if let Some(origin) = origin {
                open.wait_again(origin);
            }
        }
        true
    }

    /// Takes a request that the journal has.
    pub fn put(&mut self, origin: u64, job: &Job) {
        self.add_to_tail(origin, job, None);
    }

    /// Takes a request that is admitted. The journal does not have it; `key`: of its URL.
    pub fn admit(&mut self, origin: u64, job: &Job, key: u64) {
        self.add_to_tail(origin, job, Some(key));
    }

    fn add_to_tail(&mut self, origin: u64, job: &Job, new_key: Option<u64>) {
        let open = self.open.as_deref_mut().expect("it takes requests");
        open.requests += 1;
        open.tail.put(origin, job, new_key);
        if open.tail.is_full() {
            open.begin_writing();
        }
    }

    /// Calls `record` with the bytes of each request that was admitted, and that neither the journal has nor a
    /// block: the journal has it from now on.
    pub fn record_new(&mut self, mut record: impl FnMut(&[u8])) {
        if let Some(open) = &mut self.open {
            if let Some(writing) = &mut open.writing {
                writing.record_new(&mut record);
            }
            open.tail.record_new(record);
        }
    }

    /// Writes blocks, and has others read while there is room: a step of some hundred. `used`: memory of the
    /// requests that are not here. Returns whether there is another step to take at once.
    pub fn advance(&mut self, used: u64) -> bool {
        let Some(open) = self.open.as_deref_mut() else {
            return false;
        };
        if open.requests == 0 || open.files.failure().is_some() {
            return false;
        }
        open.write_blocks(BLOCKS_PER_TURN);
        // Some room is left for links, so that these do not all take the way over the disk.
        open.mover.advance(&mut open.files);
        let room = open.room();
        let mut used = used + open.waiting_memory();
        // One block is in memory, however little that has.
        let is_alone = used == 0;
        let mut origins = 0;
        // An origin waits behind all those whose blocks are being written.
        while open.writing.is_none()
            && (used < room || is_alone && open.is_nothing_read())
            && open.reads.len() < READS_MAX
        {
            if open.index.is_nobody_waiting() && !open.tail.is_empty() {
                open.begin_writing();
                open.write_blocks(BLOCKS_PER_TURN);
                continue;
            }
            // Those of origins that have their turns count for nothing, and may be many.
            origins += 1;
            if origins > ORIGINS_PER_TURN {
                return true;
            }
            match open.index.next() {
                Some((origin, priority)) => {
                    if open.read(origin, priority) {
                        used += READ_MEMORY;
                    }
                }
                None => break,
            }
        }
        open.writing.is_some()
    }

    /// The requests of a block that was read: they are in memory from now on.
    pub fn poll_read(&mut self) -> Option<SpilledRequests> {
        let open = self.open.as_deref_mut()?;
        let read = open.arrived.pop_front()?;
        open.take(&read);
        Some(read)
    }

    /// Whether there are such requests.
    pub fn has_read(&self) -> bool {
        (self.open.as_ref()).is_some_and(|open| !open.arrived.is_empty())
    }

    /// Whether [`Spill::handle_end`] is to be called.
    pub fn counts_ends(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| !open.taken.is_empty())
    }

    /// An attempt of this origin has ended.
    pub fn handle_end(&mut self, origin: u64) {
        let Some(open) = self.open.as_deref_mut() else {
            return;
        };
        if let Some(left) = open.taken.get_mut(&origin) {
            *left = left.saturating_sub(1);
            if *left <= LEFT_IN_MEMORY {
                open.taken.remove(&origin);
                open.wait_again(origin);
            }
        }
    }

    /// A request was cancelled. Returns whether it may be here: then it ends when its turn comes.
    pub fn cancel(&mut self, number: u64) -> bool {
        match &mut self.open {
            Some(open) if open.requests > 0 => {
                open.cancelled.insert(number);
                true
            }
            _ => false,
        }
    }

    /// Whether a request that was read was cancelled before.
    pub fn is_cancelled(&mut self, number: u64) -> bool {
        let open = self.open.as_deref_mut();
        open.is_some_and(|open| !open.cancelled.is_empty() && open.cancelled.remove(&number))
    }

    /// Forgets which requests were cancelled: none is here.
    pub fn forget_cancelled(&mut self) {
        if let Some(open) = self.open.as_deref_mut() {
            open.cancelled.clear();
        }
    }

    /// How many were cancelled here and have not come back.
    #[cfg(test)]
    pub fn cancelled_len(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.cancelled.len())
    }

    /// Blocks that were written since the last call.
    pub fn poll_written(&mut self) -> Vec<WrittenBlock> {
        match &mut self.open {
            Some(open) if !open.written.is_empty() => std::mem::take(&mut open.written),
            _ => Vec::new(),
        }
    }

    /// A commit begins: blocks are durable before it is.
    pub fn begin_commit(&mut self) {
        let Some(open) = self.open.as_deref_mut() else {
            return;
        };
        open.files.sync_written();
        // The journal does not know yet which files the blocks have emptied that it was not given.
        if open.written.is_empty() {
            open.files.begin_removal();
        }
    }

    /// The commit is durable: files that had no blocks when it began are removed.
    pub fn handle_committed(&mut self) {
        if let Some(open) = &mut self.open {
            open.files.handle_committed();
        }
    }

    /// Jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        match &mut self.open {
            Some(open) => open.files.poll_jobs(),
            None => Vec::new(),
        }
    }

    /// The disk has finished a job. Returns whether it was one of these.
    pub fn handle_disk(&mut self, done: &DiskDone) -> bool {
        let Some(open) = self.open.as_deref_mut() else {
            return false;
        };
        if done.file != Some(FILE) {
            return false;
        }
        if done.tag & SEARCH != 0 {
            open.handle_searched(done);
            return true;
        }
        if done.tag == APPEND {
            open.files.handle_written(done.held);
        }
        match &done.result {
            Err(error) => open.files.handle_failure(error),
            Ok(_) if done.tag == SYNC => open.files.handle_synced(),
            Ok(_) if done.tag == MOVE => open.handle_piece(&done.read),
            Ok(_) => open.handle_read(done),
        }
        true
    }

    /// All requests, at the end of the crawl: those of blocks in the order of their locations, then those of the
    /// tail. `read` fills bytes from a file; a block that cannot be read is left out.
    pub fn drain<R>(&mut self, read: R) -> impl Iterator<Item = Job> + use<R>
    where
        R: Fn(&Path, u64, &mut [u8]) -> io::Result<()>,
    {
        let mut open = self.open.take();
        self.last_failure = open.as_mut().and_then(|open| open.files.take_failure());
        let locations = open.as_ref().map(|open| open.index.locations());
        let mut locations = locations.unwrap_or_default().into_iter();
        let tail = open.as_ref().map(|open| {
            let written = open.writing.as_ref().map(TailBlocks::entries);
            (written.unwrap_or_default().into_iter()).chain(open.tail.entries())
        });
        let mut tail = tail.into_iter().flatten();
        let mut block = Vec::new().into_iter();
        let next = move || {
            loop {
                if let Some(Entry { job, .. }) = block.next() {
                    return Some(job);
                }
                let (Some(open), Some(location)) = (&open, locations.next()) else {
                    return tail.next().map(|Entry { job, .. }| job);
                };
                let mut bytes = vec![0; open.files.bytes_at(location)];
                let path = open.files.path(location.file);
                let entries = read(&path, location.offset, &mut bytes)
                    .and_then(|()| open.files.entries_of(location, &bytes));
                match entries {
                    Ok(entries) => block = entries.into_iter(),
                    Err(error) => {
                        log::error!(
                            "{}: {error}; its requests are left out here, and a run that resumes the crawl \
                             continues from the last commit",
                            path.display()
                        )
                    }
                }
            }
        };
        std::iter::from_fn(next)
    }
}

impl Open {
    /// A block counts from now on; its origin waits for its turn.
    fn add(&mut self, block: &SpilledBlock) {
        self.requests += block.requests;
        self.files.count_in(block);
        if self.index.add(block) {
            self.index.wait(block.origin, block.priority);
        }
    }

    /// Begins to read an origin's first block of this priority, unless it has its turn already, or a block of
    /// a higher priority, with which it waits as well.
    fn read(&mut self, origin: u64, priority: i32) -> bool {
        let has_turn =
            self.taken.contains_key(&origin) || self.rests.has(origin) || self.is_read(origin);
        if has_turn {
            // It waits again after it.
            return false;
        }
        if self.index.highest(origin) != Some(priority) {
            return false;
        }
        let Some(location) = self.index.first(origin, priority) else {
            return false;
        };
        self.next_read += 1;
        let length = self.files.bytes_at(location);
        (self.files).read(location.file, location.offset, length, self.next_read);
        let reading = Reading {
            origin,
            priority,
            location,
        };
        self.reads.insert(self.next_read, reading);
        true
    }

    /// Whether a block of an origin is being read, or was and is not in memory yet.
    fn is_read(&self, origin: u64) -> bool {
        self.reads.values().any(|reading| reading.origin == origin)
            || self.arrived.iter().any(|read| read.origin == origin)
    }

    /// Blocks may have been read.
    fn handle_read(&mut self, done: &DiskDone) {
        let Some(reading) = self.reads.remove(&done.tag) else {
            return;
        };
        let Reading {
            origin,
            priority,
            location,
        } = reading;
        match self.files.entries_of(location, &done.read) {
            Ok(entries) => self.arrived.push_back(SpilledRequests {
                file: location.file,
                offset: location.offset,
                entries,
                origin,
                priority,
                length_max: location.length_max,
            }),
            Err(error) => self.files.handle_damage(location.file, &error),
        }
    }

    /// The requests of a block are in memory: it does not count any more.
    fn take(&mut self, read: &SpilledRequests) {
        let count = read.entries.len() as u64;
        self.index.remove_first(read.origin, read.priority, count);
        self.requests -= count;
        self.files.count_out(read.file, read.length_max);
        if self.files.becomes_sparse(read.file) {
            self.mover.push(read.file);
        }
        if !self.index.has(read.origin) {
            return;
        }
        match u32::try_from(count) {
            Ok(count) if count > LEFT_IN_MEMORY && !self.rests.has(read.origin) => {
                self.taken.insert(read.origin, count);
            }
            _ => self.wait_again(read.origin),
        }
    }

    /// An origin waits for its next turn.
    fn wait_again(&mut self, origin: u64) {
        if let Some(priority) = self.index.highest(origin) {
            self.index.wait(origin, priority);
        }
    }

    /// Memory that may be used when a block is read, in bytes.
    fn room(&self) -> u64 {
        self.memory_max - self.memory_max / 8
    }

    fn is_nothing_read(&self) -> bool {
        self.reads.is_empty() && self.arrived.is_empty()
    }

    /// Memory that blocks take which are read, in bytes.
    fn waiting_memory(&self) -> u64 {
        (self.reads.len() + self.arrived.len()) as u64 * READ_MEMORY
    }

    /// Begins to write the tail, in blocks of one origin and priority.
    fn begin_writing(&mut self) {
        // Mostly it was written long ago.
        self.write_blocks(usize::MAX);
        let tail = std::mem::replace(&mut self.tail, std::mem::take(&mut self.empty_tail));
        self.writing = Some(tail.into_blocks());
        self.tails += 1;
    }

    /// Writes blocks of what was the tail, so many at most.
    fn write_blocks(&mut self, most: usize) {
        let Some(mut blocks) = self.writing.take() else {
            return;
        };
        let mut out = Vec::new();
        for block in std::iter::from_fn(|| blocks.next_block()).take(most) {
            self.write_block(block, &mut out);
        }
        self.files.append(&mut out);
        match blocks.is_empty() {
            true => self.empty_tail = blocks.into_empty_tail(),
            false => self.writing = Some(blocks),
        }
    }

    fn write_block(&mut self, block: TailBlock, out: &mut Vec<u8>) {
        let TailBlock {
            origin,
            priority,
            requests,
            is_new,
            has_seed,
            bytes,
        } = block;
        let count = requests.len() as u64;
        self.requests -= count;
        let framed = self.files.frame(out, |out| {
            record::encode_spilled(origin, count, &bytes, out);
        });
        let Some(framed) = framed else {
            return;
        };
        let block = framed.block(origin, priority, count, requests[0].0);
        self.add(&block);
        let origin = match is_new {
            false => BlockOrigin::Journal {
                numbers: requests.iter().map(|(number, _)| *number).collect(),
            },
            true => BlockOrigin::Admitted {
                requests,
                seed_host: has_seed.then(|| record::host_of_request(&bytes).to_owned()),
            },
        };
        self.written.push(WrittenBlock { block, origin });
    }

    /// Moves the blocks of a piece that count.
    fn handle_piece(&mut self, piece: &[u8]) {
        let mut mover = std::mem::take(&mut self.mover);
        let mut out = Vec::new();
        let damage = mover.handle_piece(piece, |found| self.move_block(&found, &mut out));
        self.mover = mover;
        self.files.append(&mut out);
        if let Some((file, offset)) = damage {
            // Whatever is damaged is reported when its turn comes.
            log::warn!(
                "{}: damaged at byte {offset}; its requests stay there",
                self.files.path(file).display(),
            );
        }
    }

    fn move_block(&mut self, found: &Found<'_>, out: &mut Vec<u8>) {
        let (file, offset) = found.at;
        let Some(priority) = self.index.priority_at(found.origin, file, offset) else {
            return;
        };
        if self.is_read(found.origin) {
            return;
        }
        let payload = found.payload;
        let Some(framed) = (self.files).frame(out, |out| out.extend_from_slice(payload)) else {
            return;
        };
        let count = found.entries.len() as u64;
        let first = found.entries.first().map_or(0, |entry| entry.job.id);
        let block = framed.block(found.origin, priority, count, first);
        self.index.relocate(found.at, &block);
        self.files.count_in(&block);
        self.files.count_out(file, length_max(block.length));
        self.written.push(WrittenBlock {
            block,
            origin: BlockOrigin::Block { file, offset },
        });
    }
}

#[cfg(test)]
mod tests;
