//! Records that wait until the next segment has its name: only then is it known where they are in it.

use std::collections::VecDeque;

use crate::state::journal::Framer;

/// Encoded records, in order, in pieces: they never move as a whole, and are framed piece by piece.
#[derive(Debug, Default)]
pub struct Held {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    /// Where each record ends.
    ends: Vec<usize>,
}

/// A piece with so many bytes takes no more records: it is framed in less than a millisecond.
const PIECE: usize = 64 << 10;

impl Held {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes of all records.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Adds a record.
    pub fn add(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let is_full = |piece: &Piece| piece.bytes.len() >= PIECE;
        if self.pieces.back().is_none_or(is_full) {
            self.pieces.push_back(Piece::default());
        }
        let piece = self.pieces.back_mut().expect("one was added");
        let before = piece.bytes.len();
        encode(&mut piece.bytes);
        piece.ends.push(piece.bytes.len());
        self.bytes += piece.bytes.len() - before;
    }

    /// Appends the frames of the first records. Returns whether there are more.
    pub fn frame(&mut self, framer: &Framer, out: &mut Vec<u8>) -> bool {
        let Some(Piece { bytes, ends }) = self.pieces.pop_front() else {
            return false;
        };
        self.bytes -= bytes.len();
        let mut start = 0;
        for end in ends {
            framer.frame(out, |out| out.extend_from_slice(&bytes[start..end]));
            start = end;
        }
        !self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_records_are_framed_in_order_and_in_short_steps() {
        let mut held = Held::default();
        let (framer, plain) = (Framer::new(3, 1), Framer::new(3, 1));
        let (mut framed, mut expected) = (Vec::new(), Vec::new());
        let mut steps = 0;
        for number in 0..1_000_000u32 {
            let record = number.to_le_bytes();
            held.add(|out| out.extend_from_slice(&record));
            plain.frame(&mut expected, |out| out.extend_from_slice(&record));
            // Others are added meanwhile.
            if number % 100_000 == 99_999 {
                let before = framed.len();
                held.frame(&framer, &mut framed);
                assert!(framed.len() - before <= 4 * PIECE, "a step is short");
                steps += 1;
            }
        }
        loop {
            steps += 1;
            if !held.frame(&framer, &mut framed) {
                break;
            }
        }
        assert!(framed == expected, "the same frames");
        assert!(steps >= 4_000_000 / PIECE, "{steps}");
        assert_eq!((held.len(), held.is_empty()), (0, true));
    }
}
