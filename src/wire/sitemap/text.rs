//! The text of a sitemap, window by window: decompressed, and converted to UTF-8.

use std::fmt;

use super::LENGTH_MAX;
use crate::base::units::Units;
use crate::wire::charset::{Detection, Recoder};
use crate::wire::coding::{Budget, DecodeProgress, Decoder};

/// A text that is partly in memory.
pub(super) struct Text<B> {
    body: B,
    /// Offset up to which the body was read.
    at: usize,
    unpacks: Option<Decoder>,
    /// Decompressed bytes that were not converted yet.
    unpacked: Vec<u8>,
    content_type: Option<Box<str>>,
    encoding: Encoding,
    /// Number of bytes of the document so far.
    length: usize,
    window: Vec<u8>,
    /// Offset up to which the window was consumed.
    start: usize,
    is_over: bool,
    is_cut: bool,
}

enum Encoding {
    /// Decided by the first bytes.
    Unknown,
    Utf8,
    Other(Box<Recoder>),
}

impl<B: AsRef<[u8]>> Text<B> {
    /// The text of a body. With `ratio_max` a gzip file is decompressed.
    pub fn new(body: B, content_type: Option<&str>, ratio_max: Option<u32>) -> Self {
        let is_gzip = body.as_ref().starts_with(&[0x1f, 0x8b]);
        let unpacks = ratio_max.filter(|_| is_gzip).and_then(|ratio_max| {
            let budget = Budget {
                bytes_max: LENGTH_MAX as u64,
                ratio_max: u64::from(ratio_max),
            };
            Decoder::new([&b"gzip"[..]], budget).ok()
        });
        Text {
            body,
            at: 0,
            unpacks,
            unpacked: Vec::new(),
            content_type: content_type.map(Into::into),
            encoding: Encoding::Unknown,
            length: 0,
            window: Vec::new(),
            start: 0,
            is_over: false,
            is_cut: false,
        }
    }

    /// The unconsumed part of the window.
    pub fn window(&self) -> &[u8] {
        &self.window[self.start..]
    }

    /// Returns whether nothing follows the window.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether the text was longer than the limit.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        self.window.capacity() + self.unpacked.capacity()
    }

    /// Consumes `length` bytes of the window.
    pub fn consume(&mut self, length: usize) {
        self.start += length;
    }

    /// If the window is shorter than `least`, extends it to `most` bytes, or as far as the units
    /// and the text permit.
    pub fn fill(&mut self, least: usize, most: usize, units: &mut Units) {
        if self.is_over || self.window().len() >= least {
            return;
        }
        self.window.drain(..self.start);
        self.start = 0;
        while !self.is_over && self.window.len() < most && !units.is_spent() {
            self.read(units);
        }
    }

    fn read(&mut self, units: &mut Units) {
        let body = self.body.as_ref();
        let end = body.len().min(self.at + READ_AT_ONCE);
        let (mut piece, mut last) = (&body[self.at..end], end == body.len());
        self.at = end;
        if let Some(decoder) = &mut self.unpacks {
            self.unpacked.clear();
            let before = piece.len();
            let most = READ_AT_ONCE as u64;
            match decoder.write_some(&mut piece, most, &mut self.unpacked) {
                Ok(DecodeProgress::More) => {}
                Ok(DecodeProgress::Paused) => {
                    self.at -= piece.len();
                    last = false;
                }
                Ok(DecodeProgress::Full) => (last, self.is_cut) = (true, true),
                // Text before the error counts.
                Err(_) => last = true,
            }
            units.spend(before + self.unpacked.len());
            piece = &self.unpacked;
        }
        let room = LENGTH_MAX - self.length;
        if piece.len() > room {
            (piece, last, self.is_cut) = (&piece[..room], true, true);
        }
        self.length += piece.len();
        if let Encoding::Unknown = self.encoding {
            let mut detection = Detection::new(piece, self.content_type.as_deref());
            detection.step(piece, &mut Units::unbounded());
            piece = &piece[detection.start()..];
            self.encoding = match detection.recoder() {
                None => Encoding::Utf8,
                Some(recoder) => Encoding::Other(recoder),
            };
        }
        match &mut self.encoding {
            Encoding::Other(recoder) => {
                units.spend(piece.len());
                recoder.decode(piece, last, &mut self.window);
            }
            Encoding::Unknown | Encoding::Utf8 => self.window.extend_from_slice(piece),
        }
        units.spend(piece.len() / 16);
        self.is_over = last;
    }
}

impl<B> fmt::Debug for Text<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Bytes read at once, and decompressed at once.
const READ_AT_ONCE: usize = 16 << 10;
