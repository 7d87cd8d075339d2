//! Searches the requests in files for one URL, in steps, while blocks are written, read and moved.
//!
//! First the requests that are not in a block yet are compared, then the blocks of the URL's origin, in the order in which
//! they come back to memory. A block that is written meanwhile has requests that were compared, or that came during the
//! search. A request that comes, or returns to memory, during the search may be missed.

use std::collections::BTreeMap;
use std::io;

use super::files::Files;
use super::index::Packed;
use super::{Open, Spill};
use crate::base::disk::DiskDone;
use crate::base::time::Instant;
use crate::frontier::job::Job;
use crate::wire::url::CrawlUrl;

/// A search, which is removed when it is over.
#[derive(Debug)]
pub struct Searching {
    url: CrawlUrl,
    origin: u64,
    /// The tail that is searched, by its number, and how many of its requests were compared.
    tail: u64,
    compared: usize,
    /// The blocks of the origin, once no tail is left.
    blocks: Option<Vec<Packed>>,
    /// The next block to be compared, and the next one to be read.
    next: usize,
    unread: usize,
    /// Blocks that were read and not compared, by their places in the list.
    read: BTreeMap<usize, io::Result<Vec<u8>>>,
    /// Requests in the blocks that were compared.
    ahead: u64,
}

/// What a step has found.
#[derive(Debug)]
pub enum Searched {
    /// It is here.
    Found(Box<FoundRequest>),
    /// It is not.
    Nothing,
    /// Another step is needed; `is_waiting`: not before the disk has read a block.
    Unfinished { is_waiting: bool },
    /// A block was removed or moved meanwhile, or cannot be read.
    Failed(String),
}

/// A request in a file, or on its way to one.
#[derive(Debug)]
pub struct FoundRequest {
    /// The request.
    pub job: Job,
    /// Requests of its origin that come back before it, roughly.
    pub ahead: u64,
    /// It was cancelled, and ends when its turn comes.
    pub is_cancelled: bool,
    /// Its origin has no turn before.
    pub rests_until: Option<Instant>,
}

/// Tags of reads for searches have this bit, then the number of the search and the place of the block.
pub const SEARCH: u64 = 1 << 63;
const PLACE_BITS: u32 = 32;

/// Requests of a tail that are compared in one step, some twenty nanoseconds each.
const REQUESTS_PER_STEP: usize = if cfg!(test) { 8 } else { 4096 };

/// Blocks that are compared in one step, some twenty microseconds each, and that are read at once for one search, up to
/// 80 KiB each.
const BLOCKS_PER_STEP: usize = 8;

impl Spill {
    /// Goes on with the search of this number for a URL, or begins it.
    pub fn search(&mut self, number: u32, url: &CrawlUrl, origin: u64) -> Searched {
        let is_begun = |open: &Open| open.searches.contains_key(&number);
        if !self.open.as_deref().is_some_and(is_begun) && !self.has(origin) {
            return Searched::Nothing;
        }
        let Some(open) = self.open.as_deref_mut() else {
            return Searched::Nothing;
        };
        let begun = open.searches.remove(&number);
        let mut searching = begun.unwrap_or_else(|| open.begin_search(url, origin));
        let searched = open.search_on(number, &mut searching);
        if matches!(searched, Searched::Unfinished { .. }) {
            open.searches.insert(number, searching);
        }
        searched
    }

    /// Ends the searches that are not wanted any more.
    pub fn end_searches(&mut self, is_wanted: impl Fn(u32) -> bool) {
        if let Some(open) = self.open.as_deref_mut()
            && !open.searches.is_empty()
        {
            open.searches.retain(|number, _| is_wanted(*number));
        }
    }
}

impl Open {
    fn begin_search(&self, url: &CrawlUrl, origin: u64) -> Searching {
        Searching {
            url: url.clone(),
            origin,
            // The tail before is being written, or has been.
            tail: self.tails.saturating_sub(1),
            compared: 0,
            blocks: None,
            next: 0,
            unread: 0,
            read: BTreeMap::new(),
            ahead: 0,
        }
    }

    /// One step.
    fn search_on(&mut self, number: u32, searching: &mut Searching) -> Searched {
        if searching.blocks.is_none() {
            match self.search_tails(searching) {
                Some(Some(found)) => return Searched::Found(found),
                Some(None) => searching.blocks = Some(self.index.blocks_of(searching.origin)),
                None => return Searched::Unfinished { is_waiting: false },
            }
        }
        let blocks = searching.blocks.as_deref().unwrap_or_default();
        for _ in 0..BLOCKS_PER_STEP {
            let Some(read) = searching.read.remove(&searching.next) else {
                break;
            };
            let location = blocks[searching.next].location();
            let entries = read.and_then(|bytes| self.files.entries_of(location, &bytes));
            let entries = match entries {
                Ok(entries) => entries,
                Err(error) => {
                    let path = self.files.path(location.file);
                    return Searched::Failed(format!("{}: {error}", path.display()));
                }
            };
            let found = entries
                .iter()
                .position(|entry| entry.job.url == searching.url);
            if let Some(at) = found {
                let (file, offset) = (location.file, location.offset);
                if (self.index.priority_at(searching.origin, file, offset)).is_none() {
                    return Searched::Failed("its block has been moved".to_owned());
                }
                let entry = entries.into_iter().nth(at).expect("it was just there");
                let found = self.found(searching, entry.job, searching.ahead + at as u64);
                return Searched::Found(found);
            }
            searching.ahead += entries.len() as u64;
            searching.next += 1;
        }
        if searching.next == blocks.len() {
            return Searched::Nothing;
        }
        let end = blocks.len().min(searching.next + BLOCKS_PER_STEP);
        while searching.unread < end {
            let block = blocks[searching.unread];
            let tag = tag_of(number, searching.unread);
            read_block(&mut self.files, block, tag);
            searching.unread += 1;
        }
        let is_waiting = !searching.read.contains_key(&searching.next);
        Searched::Unfinished { is_waiting }
    }

    /// Compares requests that are in no block. `Some` once that is over.
    fn search_tails(&self, searching: &mut Searching) -> Option<Option<Box<FoundRequest>>> {
        let mut left = REQUESTS_PER_STEP;
        while searching.tail <= self.tails {
            let tail = match self.tails - searching.tail {
                0 => Some(&self.tail),
                1 => self.writing.as_ref().map(|blocks| blocks.tail()),
                // All of it is in blocks.
                _ => None,
            };
            if let Some(tail) = tail {
                let from = searching.compared;
                let (origin, url) = (searching.origin, &searching.url);
                if let Some((job, bytes)) = tail.find(origin, url, from, left) {
                    let blocks = self.index.blocks_of(searching.origin).into_iter();
                    let in_blocks: u64 = blocks.map(|block| block.location().length_max).sum();
                    let ahead = in_blocks / bytes.max(1);
                    return Some(Some(self.found(searching, job, ahead)));
                }
                if tail.len() - from.min(tail.len()) > left {
                    searching.compared += left;
                    return None;
                }
                left -= tail.len() - from.min(tail.len());
            }
            (searching.tail, searching.compared) = (searching.tail + 1, 0);
        }
        Some(None)
    }

    fn found(&self, searching: &Searching, job: Job, ahead: u64) -> Box<FoundRequest> {
        Box::new(FoundRequest {
            is_cancelled: self.cancelled.contains(&job.root()),
            rests_until: self.rests.until(searching.origin),
            job,
            ahead,
        })
    }

    /// The disk has read a block for a search, or could not.
    pub fn handle_searched(&mut self, done: &DiskDone) {
        let number = (done.tag & !SEARCH) >> PLACE_BITS;
        let place = done.tag & ((1 << PLACE_BITS) - 1);
        let searching =
            (u32::try_from(number).ok()).and_then(|number| self.searches.get_mut(&number));
        // Otherwise the search is over.
        if let Some(searching) = searching {
            let read = match &done.result {
                Ok(_) => Ok(done.read.clone()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            searching.read.insert(place as usize, read);
        }
    }
}

fn tag_of(number: u32, place: usize) -> u64 {
    SEARCH | u64::from(number) << PLACE_BITS | place as u64
}

fn read_block(files: &mut Files, block: Packed, tag: u64) {
    let location = block.location();
    let length = files.bytes_at(location);
    files.read(location.file, location.offset, length, tag);
}
