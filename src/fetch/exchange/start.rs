//! The first bytes of a body, for a judgement of its reply, whatever becomes of the body.

use crate::wire::coding::{Budget, CodingError, DecodeProgress, Decoder};
use crate::wire::http::Headers;

/// The first bytes of a body that is not kept, after content decoding.
#[derive(Debug)]
pub(super) struct Start {
    wanted: usize,
    bytes: Vec<u8>,
    /// Of a body that is discarded undecoded; an error if its codings are not known.
    decoder: Option<Result<Box<Decoder>, CodingError>>,
    is_reported: bool,
}

impl Start {
    /// None of so many bytes.
    pub(super) fn new(wanted: usize) -> Self {
        Start {
            wanted,
            bytes: Vec::new(),
            decoder: None,
            is_reported: false,
        }
    }

    /// Number of the wanted bytes.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// The bytes so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a decoded piece of the body.
    pub(super) fn add(&mut self, piece: &[u8]) {
        let left = self.wanted - self.bytes.len();
        self.bytes
            .extend_from_slice(&piece[..left.min(piece.len())]);
    }

    /// Adds a piece of the body before content decoding. Damage ends the start; it is no fault of the body,
    /// of which nothing else is decoded.
    pub(super) fn add_coded(&mut self, mut piece: &[u8], headers: &Headers) {
        if self.bytes.len() == self.wanted {
            return;
        }
        let make = || Decoder::new(headers.get_all("content-encoding"), Budget::default());
        let decoder = self.decoder.get_or_insert_with(|| make().map(Box::new));
        let Ok(decoder) = decoder else {
            return self.add(piece);
        };
        loop {
            let left = self.wanted - self.bytes.len();
            let progress = decoder.write_some(&mut piece, left as u64, &mut self.bytes);
            if self.bytes.len() == self.wanted {
                // What the decoder holds is not needed any more.
                self.decoder = None;
                return;
            }
            if progress != Ok(DecodeProgress::Paused) {
                return;
            }
        }
    }

    /// Whether so many bytes are all that are wanted: true once.
    pub(super) fn poll_complete(&mut self, length: usize) -> bool {
        let is_complete = length >= self.wanted && !self.is_reported;
        self.is_reported |= is_complete;
        is_complete
    }

    /// Bytes of memory, without the decoder's, which are few and freed soon.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes so far.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
