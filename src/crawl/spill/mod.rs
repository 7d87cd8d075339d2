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
//! The journal has each request that was admitted. It records which requests a block has taken over, and
//! when they were read again: a block counts until then.

mod index;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;

use self::index::{FILES_END, Index, Location, OFFSET_END, length_max};
use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::base::secret::Known;
use crate::base::time::Instant;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::sink::WriteError;
use crate::sink::directory::{QUEUE, STATE};
use crate::state::journal::{Framer, Pieces, record_at};
use crate::state::record::{self, Entry, Record, SpilledBlock};

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
    folder: PathBuf,
    crawl: u64,
    /// `FRONTIER_MEMORY`.
    memory_max: u64,
    index: Index,
    files: BTreeMap<u64, File>,
    current: Option<Current>,
    next_file: u64,
    tail: Tail,
    /// Requests in blocks and in the tail.
    requests: u64,
    /// Blocks that are being read.
    reads: HashMap<u64, Reading, Known>,
    next_read: u64,
    /// Blocks that were read.
    arrived: VecDeque<SpilledRequests>,
    /// Requests in memory of origins that wait again once these have ended.
    taken: HashMap<u64, u32, Known>,
    /// Origins that have no turn before a time.
    resting: HashMap<u64, Instant, Known>,
    rests: BTreeSet<(Instant, u64)>,
    /// Blocks that were written, for the journal.
    written: Vec<WrittenBlock>,
    /// Files with few blocks, and the one whose blocks are being moved to another.
    sparse: VecDeque<u64>,
    moving: Option<Moving>,
    /// Requests that were cancelled while they were in a file, by their numbers.
    cancelled: BTreeSet<u64>,
    /// Files that are removed after the next commit, and after the one under way.
    empty: Vec<u64>,
    removed_next: Vec<u64>,
    jobs: Vec<DiskJob>,
    /// Syncs under way.
    syncs: u32,
    failure: Option<WriteError>,
}

/// A file with blocks.
#[derive(Debug, Default)]
struct File {
    length: u64,
    /// Blocks that count.
    blocks: u64,
    /// Bytes of these, at most.
    bytes: u64,
    /// Whether it is in line to be moved.
    is_sparse: bool,
}

/// A block that was written.
#[derive(Debug)]
pub struct WrittenBlock {
    /// Where it is.
    pub block: SpilledBlock,
    /// The numbers of its requests; none if it was moved.
    pub numbers: Vec<u64>,
    /// Where it was before: file and offset.
    pub moved_from: Option<(u64, u64)>,
}

/// A file whose blocks are moved.
#[derive(Debug)]
struct Moving {
    file: u64,
    length: u64,
    pieces: Pieces,
    is_reading: bool,
}

/// The file that is written.
#[derive(Debug)]
struct Current {
    number: u64,
    framer: Framer,
    is_synced: bool,
}

/// Requests that are not in a file yet.
#[derive(Debug, Default)]
struct Tail {
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
    /// Its bytes.
    start: usize,
    end: usize,
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

/// The file among those of the disk.
const FILE: FileId = FileId(1);

/// Tags of disk jobs; reads have those from `READS` on.
const APPEND: u64 = 0;
const SYNC: u64 = 1;
const REMOVE: u64 = 2;
const MOVE: u64 = 3;
const READS: u64 = 16;

/// Most requests in a block: as many go by turns.
const BLOCK_REQUESTS: usize = 64;
/// A block with so many bytes takes no more requests.
const BLOCK_BYTES: usize = 64 << 10;
/// The tail is written when it has so many bytes.
const TAIL_BYTES: usize = 1 << 20;
/// A file with so many bytes takes no more blocks. In tests files are many.
const FILE_BYTES: u64 = if cfg!(test) { 150 } else { OFFSET_END - 1 };
/// The blocks of a file are moved when they are less than one in so many of its bytes. In tests one block less
/// is enough.
const SPARSE: u64 = if cfg!(test) { 1 } else { 4 };
/// Bytes of such a file that are read in one step.
const PIECE: u64 = 64 << 10;
/// Most blocks that are read at once.
const READS_MAX: usize = 64;
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
            folder: start.folder,
            crawl: start.crawl,
            memory_max,
            index: Index::default(),
            files: (start.files.iter())
                .map(|number| (*number, File::default()))
                .collect(),
            current: None,
            next_file: start.next_file,
            tail: Tail::default(),
            requests: 0,
            reads: HashMap::default(),
            next_read: READS,
            arrived: VecDeque::new(),
            taken: HashMap::default(),
            resting: HashMap::default(),
            rests: BTreeSet::new(),
            written: Vec::new(),
            sparse: VecDeque::new(),
            moving: None,
            cancelled: BTreeSet::new(),
            empty: start.files,
            removed_next: Vec::new(),
            jobs: Vec::new(),
            syncs: 0,
            failure: None,
        };
        Spill {
            open: Some(Box::new(open)),
            last_failure: None,
        }
    }

    /// Adds a block that an earlier run wrote. Those of one origin and priority come in the order of their
    /// requests.
    pub fn restore(&mut self, block: &SpilledBlock) {
        let Some(open) = &mut self.open else {
            return;
        };
        open.empty.retain(|file| *file != block.file);
        open.add(block);
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.requests as usize)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no sync is under way and none failed.
    pub fn is_synced(&self) -> bool {
        (self.open.as_ref()).is_none_or(|open| open.syncs == 0 && open.failure.is_none())
    }

    /// The first job that failed.
    pub fn failure(&self) -> Option<&WriteError> {
        let open = self.open.as_ref();
        let failure = open.and_then(|open| open.failure.as_ref());
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
        open.tail.origins.contains_key(&origin) || open.index.is_behind(origin, job.priority)
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
            let waits = !open.index.is_nobody_waiting() || !open.tail.requests.is_empty();
            waits && used + open.waiting_memory() >= open.room()
        })
    }

    /// No request of this origin is needed before `until`: it has no turn until then.
    pub fn rest(&mut self, origin: u64, until: Instant) {
        if let Some(open) = self.open.as_deref_mut() {
            open.taken.remove(&origin);
            if let Some(before) = open.resting.insert(origin, until) {
                open.rests.remove(&(before, origin));
            }
            open.rests.insert((until, origin));
        }
    }

    /// Origins whose rest is over wait for their turns.
    pub fn expire(&mut self, now: Instant) {
        let Some(open) = self.open.as_deref_mut() else {
            return;
        };
        while let Some((until, origin)) = open.rests.first().copied()
            && until <= now
        {
            open.rests.pop_first();
            open.resting.remove(&origin);
            open.wait_again(origin);
        }
    }

    /// Takes a request.
    pub fn put(&mut self, origin: u64, job: &Job) {
        let open = self.open.as_deref_mut().expect("it takes requests");
        open.requests += 1;
        let tail = &mut open.tail;
        let start = tail.bytes.len();
        record::encode_request(job, &mut tail.bytes);
        *tail.origins.entry(origin).or_default() += 1;
        tail.requests.push(Waiting {
            origin,
            priority: job.priority,
            number: job.id,
            start,
            end: tail.bytes.len(),
        });
        if tail.bytes.len() >= TAIL_BYTES {
            open.write_tail();
        }
    }

    /// Has blocks read while there is room; `used`: memory of the requests that are not here.
    pub fn advance(&mut self, used: u64) {
        let Some(open) = self.open.as_deref_mut() else {
            return;
        };
        if open.requests == 0 || open.failure.is_some() {
            return;
        }
        // Some room is left for links, so that these do not all take the way over the disk.
        open.advance_move();
        let room = open.room();
        let mut used = used + open.waiting_memory();
        // One block is in memory, however little that has.
        let is_alone = used == 0;
        while (used < room || is_alone && open.is_nothing_read()) && open.reads.len() < READS_MAX {
            if open.index.is_nobody_waiting() && !open.tail.requests.is_empty() {
                open.write_tail();
            }
            match open.index.next() {
                Some((origin, priority)) => {
                    if open.read(origin, priority) {
                        used += READ_MEMORY;
                    }
                }
                None => return,
            }
        }
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

    /// A request was cancelled; it may be here. It ends when its turn comes.
    pub fn cancel(&mut self, number: u64) {
        if let Some(open) = &mut self.open
            && open.requests > 0
        {
            open.cancelled.insert(number);
        }
    }

    /// Whether a request that was read was cancelled before.
    pub fn is_cancelled(&mut self, number: u64) -> bool {
        let open = self.open.as_deref_mut();
        open.is_some_and(|open| !open.cancelled.is_empty() && open.cancelled.remove(&number))
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
        if let Some(current) = &mut open.current
            && !std::mem::replace(&mut current.is_synced, true)
        {
            open.sync();
        }
        if !open.written.is_empty() {
            // The journal does not know yet which files these have emptied.
            return;
        }
        let current = open.current.as_ref().map(|current| current.number);
        let (removed, kept) = (open.empty.drain(..)).partition(|number| Some(*number) != current);
        open.removed_next = removed;
        open.empty = kept;
    }

    /// The commit is durable: files that had no blocks when it began are removed.
    pub fn handle_committed(&mut self) {
        let Some(open) = self.open.as_deref_mut() else {
            return;
        };
        for number in std::mem::take(&mut open.removed_next) {
            open.files.remove(&number);
            open.jobs.push(DiskJob::Remove {
                file: FILE,
                path: open.path(number),
                tag: REMOVE,
            });
        }
    }

    /// Jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        match &mut self.open {
            Some(open) if !open.jobs.is_empty() => std::mem::take(&mut open.jobs),
            _ => Vec::new(),
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
        match &done.result {
            Err(error) => {
                let path = open.folder.join(STATE);
                open.failure
                    .get_or_insert_with(|| WriteError::new(path, error));
            }
            Ok(_) if done.tag == SYNC => open.syncs -= 1,
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
        self.last_failure = open.as_mut().and_then(|open| open.failure.take());
        let locations = open.as_ref().map(|open| open.index.locations());
        let mut locations = locations.unwrap_or_default().into_iter();
        let mut tail = open
            .as_ref()
            .map(|open| open.tail.entries())
            .unwrap_or_default()
            .into_iter();
        let mut block = Vec::new().into_iter();
        let next = move || {
            loop {
                if let Some(Entry { job, .. }) = block.next() {
                    return Some(job);
                }
                let (Some(open), Some(location)) = (&open, locations.next()) else {
                    return tail.next().map(|Entry { job, .. }| job);
                };
                let mut bytes = vec![0; open.bytes_at(location)];
                let path = open.path(location.file);
                let entries = read(&path, location.offset, &mut bytes)
                    .and_then(|()| open.entries_of(location, &bytes));
                match entries {
                    Ok(entries) => block = entries.into_iter(),
                    Err(error) => {
                        log::error!("{}: {error}; the state has its requests", path.display())
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
        self.count_in(block);
        if self.index.add(block) {
            self.index.wait(block.origin, block.priority);
        }
    }

    /// A file has one block more.
    fn count_in(&mut self, block: &SpilledBlock) {
        let file = self.files.entry(block.file).or_default();
        file.length = file.length.max(block.offset + block.length);
        file.blocks += 1;
        file.bytes += length_max(block.length);
        if file.blocks == 1 {
            self.empty.retain(|number| *number != block.file);
        }
    }

    /// Begins to read an origin's first block of this priority, unless it has its turn already, or a block of
    /// a higher priority, with which it waits as well.
    fn read(&mut self, origin: u64, priority: i32) -> bool {
        let has_turn = self.taken.contains_key(&origin)
            || self.resting.contains_key(&origin)
            || self.reads.values().any(|reading| reading.origin == origin)
            || self.arrived.iter().any(|read| read.origin == origin);
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
        self.jobs.push(DiskJob::Read {
            file: FILE,
            path: self.path(location.file),
            offset: location.offset,
            bytes: vec![0; self.bytes_at(location)],
            tag: self.next_read,
        });
        let reading = Reading {
            origin,
            priority,
            location,
        };
        self.reads.insert(self.next_read, reading);
        true
    }

    /// Bytes to be read for a block.
    fn bytes_at(&self, location: Location) -> usize {
        let length = self.files.get(&location.file).map_or(0, |file| file.length);
        location
            .length_max
            .min(length.saturating_sub(location.offset)) as usize
    }

    fn entries_of(&self, location: Location, bytes: &[u8]) -> io::Result<Vec<Entry>> {
        entries_of(location.file, self.crawl, location.offset, bytes)
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
        match self.entries_of(location, &done.read) {
            Ok(entries) => self.arrived.push_back(SpilledRequests {
                file: location.file,
                offset: location.offset,
                entries,
                origin,
                priority,
                length_max: location.length_max,
            }),
            Err(error) => {
                let path = self.path(location.file);
                self.failure
                    .get_or_insert_with(|| WriteError::new(path, &error));
            }
        }
    }

    /// The requests of a block are in memory: it does not count any more.
    fn take(&mut self, read: &SpilledRequests) {
        self.index.remove_first(read.origin, read.priority);
        let count = read.entries.len() as u64;
        self.requests -= count;
        let file = self.files.get_mut(&read.file).expect("it has the block");
        file.blocks -= 1;
        file.bytes -= read.length_max;
        if file.blocks == 0 {
            self.empty.push(read.file);
        }
        self.note_sparse(read.file);
        if !self.index.has(read.origin) {
            return;
        }
        match u32::try_from(count) {
            Ok(count) if count > LEFT_IN_MEMORY && !self.resting.contains_key(&read.origin) => {
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

    /// Writes the tail, in blocks of one origin and priority.
    fn write_tail(&mut self) {
        let Tail {
            mut requests,
            bytes,
            ..
        } = std::mem::take(&mut self.tail);
        self.requests -= requests.len() as u64;
        let group = |waiting: &Waiting| (waiting.origin, Reverse(waiting.priority));
        requests.sort_unstable_by_key(|waiting| (group(waiting), waiting.number));
        let mut out = Vec::with_capacity(bytes.len() + requests.len() * 4);
        let mut rest = &requests[..];
        while let Some(first) = rest.first() {
            let mut size = 0;
            let fits = |waiting: &&Waiting| {
                let is_first = size == 0;
                size += waiting.end - waiting.start;
                group(waiting) == group(first) && (is_first || size <= BLOCK_BYTES)
            };
            let count = rest.iter().take(BLOCK_REQUESTS).take_while(fits).count();
            let (block, after) = rest.split_at(count);
            rest = after;
            self.write_block(block, &bytes, &mut out);
        }
        self.append(&mut out);
    }

    fn write_block(&mut self, requests: &[Waiting], bytes: &[u8], out: &mut Vec<u8>) {
        let first = &requests[0];
        let parts = requests
            .iter()
            .map(|waiting| &bytes[waiting.start..waiting.end]);
        let parts: Vec<u8> = parts.flatten().copied().collect();
        let count = requests.len() as u64;
        let framed = self.frame(out, |out| {
            record::encode_spilled(first.origin, count, &parts, out);
        });
        let Some((file, offset, length)) = framed else {
            return;
        };
        let block = SpilledBlock {
            file,
            offset,
            length,
            origin: first.origin,
            priority: first.priority,
            requests: count,
            first: first.number,
        };
        self.add(&block);
        self.written.push(WrittenBlock {
            block,
            numbers: requests.iter().map(|waiting| waiting.number).collect(),
            moved_from: None,
        });
    }

    /// Few bytes of this file may count.
    fn note_sparse(&mut self, number: u64) {
        let is_current = (self.current.as_ref()).is_some_and(|current| current.number == number);
        if let Some(file) = self.files.get_mut(&number)
            && file.blocks > 0
            && file.bytes * SPARSE < file.length
            && !is_current
            && !std::mem::replace(&mut file.is_sparse, true)
        {
            self.sparse.push_back(number);
        }
    }

    /// Reads the next piece of a file whose blocks are moved.
    fn advance_move(&mut self) {
        if self.moving.is_none()
            && let Some(number) = self.sparse.pop_front()
            && let Some(file) = self.files.get(&number)
        {
            self.moving = Some(Moving {
                file: number,
                length: file.length,
                pieces: Pieces::new(number, self.crawl),
                is_reading: false,
            });
        }
        let Some(moving) = &mut self.moving else {
            return;
        };
        if moving.is_reading {
            return;
        }
        let offset = moving.pieces.position();
        let is_left = self
            .files
            .get(&moving.file)
            .is_some_and(|file| file.blocks > 0);
        let length = moving.length.saturating_sub(offset).min(PIECE);
        if length == 0 || !is_left {
            // A block that was being read keeps it until that is over.
            if let Some(file) = self.files.get_mut(&moving.file) {
                file.is_sparse = false;
            }
            self.moving = None;
            return;
        }
        moving.is_reading = true;
        let job = DiskJob::Read {
            file: FILE,
            path: path_of(&self.folder, moving.file),
            offset,
            bytes: vec![0; length as usize],
            tag: MOVE,
        };
        self.jobs.push(job);
    }

    /// Moves the blocks of a piece that count.
    fn handle_piece(&mut self, piece: &[u8]) {
        let Some(mut moving) = self.moving.take() else {
            return;
        };
        moving.is_reading = false;
        moving.pieces.push(piece);
        let mut out = Vec::new();
        let file = moving.file;
        let read = moving.pieces.each(|offset, payload| {
            if let Ok(Record::Spilled { origin, entries }) = Record::decode(payload) {
                self.move_block((file, offset), origin, &entries, payload, &mut out);
            }
        });
        self.append(&mut out);
        if read.is_some() {
            self.moving = Some(moving);
            return;
        }
        // Whatever is damaged is reported when its turn comes.
        log::warn!(
            "{}: damaged at byte {}; its requests stay there",
            self.path(file).display(),
            moving.pieces.offset()
        );
    }

    fn move_block(
        &mut self,
        from: (u64, u64),
        origin: u64,
        entries: &[Entry],
        payload: &[u8],
        out: &mut Vec<u8>,
    ) {
        let Some(priority) = self.index.priority_at(origin, from.0, from.1) else {
            return;
        };
        let is_read = self.reads.values().any(|reading| reading.origin == origin)
            || self.arrived.iter().any(|read| read.origin == origin);
        if is_read {
            return;
        }
        let Some((number, offset, length)) = self.frame(out, |out| out.extend_from_slice(payload))
        else {
            return;
        };
        let block = SpilledBlock {
            file: number,
            offset,
            length,
            origin,
            priority,
            requests: entries.len() as u64,
            first: entries.first().map_or(0, |entry| entry.job.id),
        };
        self.index.relocate(from, &block);
        self.count_in(&block);
        if let Some(file) = self.files.get_mut(&from.0) {
            file.blocks -= 1;
            file.bytes = file.bytes.saturating_sub(length_max(length));
            if file.blocks == 0 {
                self.empty.push(from.0);
            }
        }
        self.written.push(WrittenBlock {
            block,
            numbers: Vec::new(),
            moved_from: Some(from),
        });
    }

    /// Appends a frame to the file that is written; returns its file, its offset and its length.
    fn frame(
        &mut self,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Option<(u64, u64, u64)> {
        let is_full = |current: &Current| current.framer.length() >= FILE_BYTES;
        if self.current.as_ref().is_none_or(is_full) {
            self.append(out);
            self.begin_file(out);
        }
        let current = self.current.as_ref()?;
        let offset = current.framer.length();
        current.framer.frame(out, encode);
        Some((current.number, offset, current.framer.length() - offset))
    }

    /// Begins the next file.
    fn begin_file(&mut self, out: &mut Vec<u8>) {
        if let Some(current) = self.current.take() {
            if !current.is_synced {
                self.sync();
            }
            self.jobs.push(DiskJob::Finish {
                file: FILE,
                rename: None,
            });
        }
        let number = self.next_file;
        assert!(number < FILES_END, "2^22 files of 64 MiB");
        self.next_file += 1;
        self.jobs.push(DiskJob::Create {
            file: FILE,
            path: self.path(number),
        });
        let framer = Framer::new(number, self.crawl);
        out.extend_from_slice(&framer.header());
        self.current = Some(Current {
            number,
            framer,
            is_synced: false,
        });
    }

    fn sync(&mut self) {
        self.syncs += 1;
        self.jobs.push(DiskJob::Sync {
            file: FILE,
            tag: SYNC,
        });
    }

    fn append(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        self.jobs.push(DiskJob::Append {
            file: FILE,
            bytes: std::mem::take(out),
            gzip: false,
            tag: APPEND,
        });
        if let Some(current) = &mut self.current {
            current.is_synced = false;
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        path_of(&self.folder, number)
    }
}

impl Tail {
    fn entries(&self) -> Vec<Entry> {
        let bytes = self
            .requests
            .iter()
            .map(|waiting| &self.bytes[waiting.start..waiting.end]);
        let read = |bytes: &[u8]| record::decode_request(bytes).expect("bytes of a request");
        bytes.map(read).collect()
    }
}

/// The requests of a block of a file.
fn entries_of(file: u64, crawl: u64, offset: u64, bytes: &[u8]) -> io::Result<Vec<Entry>> {
    match record_at(file, crawl, offset, bytes) {
        Some(Record::Spilled { entries, .. }) => Ok(entries),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the block at byte {offset} is damaged: restore the file, or continue without it with \
                 --resume --salvage"
            ),
        )),
    }
}

/// The path of a file in the output directory of a crawl.
fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(STATE).join(format!("{QUEUE}{number:08}"))
}

#[cfg(test)]
mod tests;
