//! A journal without what has ended: the records of a segment become those of a shorter one.
//!
//! ```text
//! read: pieces of the old segment ──► Replay ──► write: what is left of it
//! copy: later pieces of the old segment ──────────────────────► as they are
//! ```
//!
//! The new segment leaves what the old one leaves. It counts from the moment at which it has its name: until
//! then the crawl goes on in the old one.

use super::journal::{Framer, Pieces};
use super::record::Record;
use super::replay::{Left, Replay};

/// Makes a segment from another that is read in pieces.
#[derive(Debug)]
pub struct Compaction {
    pieces: Pieces,
    framer: Framer,
    stage: Stage,
}

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
    /// From a segment of this crawl to another. `committed`: the last epoch with a commit in what is read first;
    /// 0 for none.
    pub fn new(crawl: u64, from: u64, to: u64, committed: u64) -> Self {
        Compaction {
            pieces: Pieces::new(from, crawl),
            framer: Framer::new(to, crawl),
            stage: Stage::Reading(Box::new(Replay::with_committed(committed))),
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

    /// Takes the next piece of the old segment: first of what is replayed, then of what is copied. Appends
    /// bytes of the new segment.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Unreadable> {
        self.pieces.push(piece);
        let offset = self.pieces.offset();
        let unreadable = || Unreadable { offset };
        let framer = &self.framer;
        match &mut self.stage {
            Stage::Reading(replay) => {
                let mut is_sound = true;
                let read = self.pieces.each(|_, payload| {
                    let record = Record::decode(payload).ok();
                    is_sound &= record.is_some_and(|record| replay.push(record).is_ok());
                });
                read.filter(|()| is_sound).ok_or_else(unreadable)
            }
            Stage::Writing(_) => unreachable!("pieces are taken before and after"),
            Stage::Copying => {
                let copied = self.pieces.each(|_, payload| {
                    framer.frame(out, |out| out.extend_from_slice(payload));
                });
                copied.ok_or_else(unreadable)
            }
        }
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

    /// Appends what is left, until there are `most` bytes. Returns whether that was all.
    pub fn write(&mut self, most: usize, out: &mut Vec<u8>) -> bool {
        if let Stage::Writing(left) = &mut self.stage {
            while out.len() < most {
                match left.next() {
                    Some(record) => self.framer.frame(out, |out| record.encode(out)),
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
