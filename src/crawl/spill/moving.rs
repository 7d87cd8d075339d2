//! Moves the blocks that count out of files that have few of them, so that those can be removed.

use std::collections::VecDeque;

use super::files::{Files, MOVE};
use crate::state::journal::Pieces;
use crate::state::record::{Entry, Record};

/// Files with few blocks, and the one whose blocks are being moved to another.
#[derive(Debug, Default)]
pub struct Mover {
    sparse: VecDeque<u64>,
    moving: Option<Moving>,
}

/// A file whose blocks are moved.
#[derive(Debug)]
struct Moving {
    file: u64,
    length: u64,
    pieces: Pieces,
    is_reading: bool,
}

/// A block of such a file; it may not count any more.
#[derive(Debug)]
pub struct Found<'a> {
    /// File and offset.
    pub at: (u64, u64),
    pub origin: u64,
    pub entries: Vec<Entry>,
    /// The record, as it is in the file.
    pub payload: &'a [u8],
}

/// Bytes of such a file that are read in one step.
const PIECE: u64 = 64 << 10;

impl Mover {
    /// A file has few blocks.
    pub fn push(&mut self, file: u64) {
        self.sparse.push_back(file);
    }

    /// Has the next piece of a file read.
    pub fn advance(&mut self, files: &mut Files) {
        if self.moving.is_none()
            && let Some(file) = self.sparse.pop_front()
            && let Some(length) = files.length(file)
        {
            self.moving = Some(Moving {
                file,
                length,
                pieces: Pieces::new(file, files.crawl()),
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
        let length = moving.length.saturating_sub(offset).min(PIECE);
        if length == 0 || !files.has_blocks(moving.file) {
            // A block that was being read keeps it until that is over.
            files.forget_sparse(moving.file);
            self.moving = None;
            return;
        }
        moving.is_reading = true;
        files.read(moving.file, offset, length as usize, MOVE);
    }

    /// A piece was read: `each` is called with its blocks. Returns the file and the offset at which it is
    /// damaged, if it is; whatever follows stays there.
    pub fn handle_piece(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(Found<'_>),
    ) -> Option<(u64, u64)> {
        let moving = self.moving.as_mut()?;
        moving.is_reading = false;
        moving.pieces.push(piece);
        let file = moving.file;
        let read = moving.pieces.each(|offset, payload| {
            if let Ok(Record::Spilled { origin, entries }) = Record::decode(payload) {
                each(Found {
                    at: (file, offset),
                    origin,
                    entries,
                    payload,
                });
            }
        });
        if read.is_some() {
            return None;
        }
        let offset = moving.pieces.offset();
        self.moving = None;
        Some((file, offset))
    }
}
