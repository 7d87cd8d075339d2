//! A journal without what has ended: the records of a segment become those of a shorter one.
//!
//! ```text
//! read: pieces of the old segment ──► Replay ──┬──► keys of the seen set, at once
//!                                              └──► write: what else is left of it
//! copy: later pieces of the old segment ──────────► as they are
//! ```
//!
//! The new segment leaves what the old one leaves. It counts from the moment at which it has its name: until
//! then the crawl goes on in the old one.

use std::ops::Range;

use super::journal::{Framer, Pieces};
use super::record::Record;
use super::replay::{Left, Replay};

/// Makes a segment from another that is read in pieces.
#[derive(Debug)]
pub struct Compaction {
    pieces: Pieces,
    framer: Framer,
    stage: Stage,
    /// A piece was taken, and not all of its frames were replayed or copied.
    has_frames: bool,
}

/// What is known of the records that are read first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted<'a> {
    /// The last epoch with a commit; 0 for none.
    pub epoch: u64,
    /// The bytes that are void: none if no run resumed the crawl there.
    pub voids: &'a [Range<u64>],
    /// At the end of that epoch, keys in records before this offset are in runs of the seen set.
    pub dead_keys: u64,
}

/// So much is replayed, copied or written in one step: that takes less than a millisecond. A record counts as
/// one; requests, and keys, that it names count as well.
const STEP: usize = 256;

/// So many frames are copied as fast as one record is replayed.
const COPIES: usize = 8;

/// So many keys in a record count as one record.
const KEYS_PER_COST: usize = 16;

#[derive(Debug)]
enum Stage {
    Reading(Box<Replay>),
    Writing(Box<Left>),
    Copying,
}

/// The old segment is damaged, or a record in it is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Offset of the frame.
    pub offset: u64,
}

impl Compaction {
    /// From a segment of this crawl to another.
    pub fn new(crawl: u64, from: u64, to: u64, counted: Counted<'_>) -> Self {
        let replay = Replay::with_committed(counted.epoch, counted.voids);
        let replay = match counted.voids {
            [] => replay.pass_keys(counted.dead_keys),
            _ => replay,
        };
        Compaction {
            pieces: Pieces::new(from, crawl),
            framer: Framer::new(to, crawl),
            stage: Stage::Reading(Box::new(replay)),
            has_frames: false,
        }
    }

    /// Offset of the next piece in the old segment.
    pub fn position(&self) -> u64 {
        self.pieces.position()
    }

    /// The first bytes of the new segment.
    pub fn header(&self) -> Vec<u8> {
        self.framer.header()
    }

    /// Takes the next piece of the old segment: first of what is replayed, then of what is copied, by
    /// [`Compaction::step`].
    pub fn take(&mut self, piece: &[u8]) {
        self.pieces.push(piece);
        self.has_frames = true;
    }

    /// Replays or copies frames of the pieces that were taken: some hundred at most. Appends bytes of the new
    /// segment. Returns whether there may be more of them.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, Unreadable> {
        if !self.has_frames {
            return Ok(false);
        }
        let mut cost = 0;
        let offset = self.pieces.offset();
        let unreadable = || Unreadable { offset };
        let framer = &self.framer;
        match &mut self.stage {
            Stage::Reading(replay) => {
                if replay.step() {
                    return Ok(true);
                }
                let mut is_sound = true;
                let read = self.pieces.each_while(|offset, payload| {
                    let record = Record::decode(payload).ok();
                    cost += record.as_ref().map_or(1, cost_of);
                    is_sound &= record.is_some_and(|record| replay.push_at(offset, record).is_ok());
                    while let Some(passed) = replay.poll_passed() {
                        framer.frame(out, |out| passed.encode(out));
                        cost += cost_of(&passed);
                    }
                    if replay.has_step() {
                        cost = STEP;
                    }
                    cost < STEP
                });
                read.filter(|()| is_sound).ok_or_else(unreadable)?;
            }
            Stage::Writing(_) => unreachable!("pieces are taken before and after"),
            Stage::Copying => {
                let copied = self.pieces.each_while(|_, payload| {
                    framer.frame(out, |out| out.extend_from_slice(payload));
                    cost += 1;
                    cost < COPIES * STEP
                });
                copied.ok_or_else(unreadable)?;
            }
        }
        self.has_frames = match self.stage {
            Stage::Copying => cost >= COPIES * STEP,
            _ => cost >= STEP,
        };
        Ok(self.has_frames)
    }

    /// All that is replayed was taken, up to a whole frame: the rest is copied later.
    ///
    /// # Errors
    /// [`Unreadable`]: there is no commit, or the last frame is not whole.
    pub fn end_reading(&mut self) -> Result<(), Unreadable> {
        let unreadable = Unreadable {
            offset: self.pieces.offset(),
        };
        if !self.pieces.is_between_frames() {
            return Err(unreadable);
        }
        let Stage::Reading(replay) = std::mem::replace(&mut self.stage, Stage::Copying) else {
            return Err(unreadable);
        };
        let left = replay.into_left().ok_or(unreadable)?;
        self.stage = Stage::Writing(Box::new(left));
        Ok(())
    }

    /// Appends what is left, until there are `most` bytes, some hundred records at most. Returns whether that was
    /// all.
    pub fn write(&mut self, most: usize, out: &mut Vec<u8>) -> bool {
        if let Stage::Writing(left) = &mut self.stage {
            for _ in 0..STEP {
                if out.len() >= most {
                    break;
                }
                match left.step() {
                    Some(Some(record)) => self.framer.frame(out, |out| record.encode(out)),
                    Some(None) => {}
                    None => {
                        self.stage = Stage::Copying;
                        return true;
                    }
                }
            }
            return false;
        }
        true
    }

    /// The new segment goes on with this.
    pub fn into_framer(self) -> Framer {
        self.framer
    }
}

/// How much a record takes part in a step.
fn cost_of(record: &Record) -> usize {
    let named = match record {
        Record::Spill { numbers, .. } => numbers.len(),
        Record::AdmittedToBlock { admission, .. } => admission.requests.len() / KEYS_PER_COST,
        Record::SeedHosts(hosts) => hosts.len() / KEYS_PER_COST,
        Record::Requested(keys) | Record::SeenUndone(keys) => keys.len() / KEYS_PER_COST,
        _ => 0,
    };
    1 + named
}
