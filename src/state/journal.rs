//! Frames of the journal: records in a segment, each with a checksum. The only file that imports
//! `crc32fast`.
//!
//! ```text
//! segment = magic (8 bytes), version (4), number of the segment (8), crawl (8), checksum (4), frames
//! frame   = length of the payload (4), checksum (4), payload: one record
//! ```
//!
//! Numbers are little-endian. The checksum of a frame covers the crawl, the segment's number, the offset of
//! the frame in it and the length, so that a frame at another place or of another crawl is not intact. The
//! header has this form in every version.

use std::cell::Cell;
use std::io;

use thiserror::Error;

use super::record::{Record, RecordError};

use crate::base::sentence::debug_as_sentence;

/// Appends framed records of one segment to a buffer.
///
/// It counts the bytes of the segment: all that it returns or appends is written, in this order.
#[derive(Debug)]
pub struct Framer {
    header: [u8; HEADER_BYTES],
    /// Checksum of what comes before the offset, in each frame.
    place: u32,
    /// Offset of the next frame.
    offset: Cell<u64>,
}

/// Reads the records of one segment.
///
/// It stops at the end, or at the first frame that is incomplete or damaged. [`Reader::skip_damage`] goes on
/// with the next one that is intact.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// Their offset in the segment.
    base: u64,
    segment: u64,
    crawl: u64,
    place: u32,
    /// Offset of the next frame.
    offset: usize,
    is_torn: bool,
}

/// Why a segment of the journal cannot be read, or one of its records.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The bytes do not begin as a segment does.
    #[error("not a segment of a journal")]
    NotAJournal,
    /// The header is missing or incomplete: its write was interrupted.
    #[error("the header of the segment is incomplete ({length} of {HEADER_BYTES} bytes)")]
    Incomplete {
        /// Number of bytes that there are.
        length: usize,
    },
    /// A newer version wrote it.
    #[error(
        "the state has version {version}, and this program reads up to {supported}; \
         use the version of argiope that wrote it, or a later one"
    )]
    Newer {
        /// Its version.
        version: u32,
        /// The newest version that is read.
        supported: u32,
    },
    /// The header does not match its checksum.
    #[error("the header of the segment is damaged")]
    Damaged,
    /// A frame is intact, but is not a record.
    #[error("the record at byte {offset} cannot be read: {cause}")]
    Record {
        /// Offset of the frame in the segment.
        offset: u64,
        /// What was wrong.
        #[source]
        cause: RecordError,
    },
}

debug_as_sentence!(SegmentError);

impl SegmentError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            SegmentError::NotAJournal => "journal.unknown",
            SegmentError::Incomplete { .. } => "journal.incomplete",
            SegmentError::Newer { .. } => "journal.newer",
            SegmentError::Damaged => "journal.damaged",
            SegmentError::Record { cause, .. } => cause.code(),
        }
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl Framer {
    /// For the segment with this number, of this crawl.
    pub fn new(segment: u64, crawl: u64) -> Self {
        let (header, place) = header(VERSION, segment, crawl);
        Framer {
            header,
            place,
            offset: Cell::new(HEADER_BYTES as u64),
        }
    }

    /// For the segment with this number, of this crawl, that has so many bytes.
    pub fn at(segment: u64, crawl: u64, length: u64) -> Self {
        let framer = Framer::new(segment, crawl);
        framer.offset.set(length);
        framer
    }

    /// The first bytes of the segment.
    pub fn header(&self) -> Vec<u8> {
        self.header.to_vec()
    }

    /// Appends a frame whose payload is what `encode` appends: one record.
    ///
    /// # Panics
    /// The record has no bytes, or more than [`PAYLOAD_MAX`].
    pub fn frame(&self, out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEAD]);
        encode(out);
        let (head, payload) = out[start..].split_at_mut(FRAME_HEAD);
        assert!(
            (1..=PAYLOAD_MAX).contains(&payload.len()),
            "a record has 1 to {PAYLOAD_MAX} bytes, and not {}",
            payload.len()
        );
        let offset = self.offset.get();
        let length = payload.len() as u32;
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..].copy_from_slice(&checksum(self.place, offset, payload).to_le_bytes());
        self.offset
            .set(offset + (FRAME_HEAD + payload.len()) as u64);
    }

    /// Number of bytes of the segment so far, its header included.
    pub fn length(&self) -> u64 {
        self.offset.get()
    }
}

impl<'a> Reader<'a> {
    /// Reads a segment, which is all of these bytes.
    ///
    /// # Errors
    /// The header is not that of a segment, or of a newer version.
    pub fn new(bytes: &'a [u8]) -> Result<Self, SegmentError> {
        let is_empty = || bytes.iter().all(|byte| *byte == 0);
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            let length = bytes.len();
            return match MAGIC.starts_with(&bytes[..length.min(8)]) || is_empty() {
                true => Err(SegmentError::Incomplete { length }),
                false => Err(SegmentError::NotAJournal),
            };
        };
        if header[..8] != MAGIC {
            return match header.iter().all(|byte| *byte == 0) {
                // Room was reserved for it, and it was not written, though bytes behind it may be.
                true => Err(SegmentError::Incomplete { length: 0 }),
                false => Err(SegmentError::NotAJournal),
            };
        }
        let place = crc32fast::hash(&header[..28]);
        if word(header, 28) != place {
            return Err(SegmentError::Damaged);
        }
        match word(header, 8) {
            VERSION => {}
            0 => return Err(SegmentError::Damaged),
            version => {
                return Err(SegmentError::Newer {
                    version,
                    supported: VERSION,
                });
            }
        }
        Ok(Reader {
            bytes,
            base: 0,
            segment: number(header, 12),
            crawl: number(header, 20),
            place,
            offset: HEADER_BYTES,
            is_torn: false,
        })
    }

    /// Reads a segment whose header is damaged, by its number and that of its crawl, if it is known: the
    /// frames show which bytes of the header are right. `None` if no frame is intact.
    pub fn without_header(bytes: &'a [u8], segment: u64, crawl: Option<u64>) -> Option<Self> {
        let damaged = bytes.first_chunk::<HEADER_BYTES>()?;
        let (_, of_number) = header(VERSION, segment, number(damaged, 20));
        let known = crawl.map(|crawl| header(VERSION, segment, crawl).1);
        let places = [Some(word(damaged, 28)), Some(of_number), known];
        places.into_iter().flatten().find_map(|place| {
            let mut reader = Reader {
                bytes,
                base: 0,
                segment,
                crawl: crawl.unwrap_or_else(|| number(damaged, 20)),
                place,
                offset: HEADER_BYTES,
                is_torn: true,
            };
            let is_intact = reader.payload().is_some() || reader.skip_damage().is_some();
            reader.offset = HEADER_BYTES;
            reader.is_torn = false;
            is_intact.then_some(reader)
        })
    }

    /// Reads the rest of a segment, which has this offset in it, and begins with a frame that is not intact.
    pub fn of_rest(segment: u64, crawl: u64, offset: u64, rest: &'a [u8]) -> Self {
        let (_, place) = header(VERSION, segment, crawl);
        Reader {
            bytes: rest,
            base: offset,
            segment,
            crawl,
            place,
            offset: 0,
            is_torn: !rest.is_empty(),
        }
    }

    /// After the records ended at a damaged frame: goes to the next frame that is intact, and returns the
    /// number of bytes before it. `None` if there is no other; then the reader stays at the damaged one. A frame
    /// of more than 64 KiB counts only if another may follow it, or the end.
    pub fn skip_damage(&mut self) -> Option<u64> {
        let damaged = self.offset;
        if !self.is_torn {
            return None;
        }
        let is_intact = |offset: &usize| {
            may_begin(&self.bytes[*offset..]) && self.payload_at(*offset).is_some()
        };
        let next = (damaged + 1..self.bytes.len()).find(is_intact)?;
        self.offset = next;
        self.is_torn = false;
        Some((next - damaged) as u64)
    }

    /// The number of the segment.
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// The crawl that wrote it.
    pub fn crawl(&self) -> u64 {
        self.crawl
    }

    /// Number of bytes up to the end of the last intact frame that was read, the header included.
    pub fn intact(&self) -> u64 {
        self.base + self.offset as u64
    }

    /// Whether reading stopped before the end of the bytes, at an incomplete or damaged frame. Room that
    /// was reserved and not written counts as one.
    #[cfg(test)]
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// The offset and the payload of the next frame, as [`Reader::next`] would read it.
    pub fn next_payload(&mut self) -> Option<(u64, &'a [u8])> {
        if self.is_torn || self.offset == self.bytes.len() {
            return None;
        }
        let Some(payload) = self.payload() else {
            self.is_torn = true;
            return None;
        };
        let offset = self.intact();
        self.offset += FRAME_HEAD + payload.len();
        Some((offset, payload))
    }

    /// The payload of the next frame, if it is intact.
    fn payload(&self) -> Option<&'a [u8]> {
        self.payload_at(self.offset)
    }

    /// The payload of the frame at this offset, if it is intact.
    fn payload_at(&self, offset: usize) -> Option<&'a [u8]> {
        payload_of(self.place, self.base + offset as u64, &self.bytes[offset..])
    }
}

/// The records. An error is a frame that is intact, but is not a record; the next call reads the frame
/// after it.
impl Iterator for Reader<'_> {
    type Item = Result<Record, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (offset, payload) = self.next_payload()?;
        let record = Record::decode(payload);
        Some(record.map_err(|cause| SegmentError::Record { offset, cause }))
    }
}

/// The record in one frame of a segment that is read in parts: these bytes begin with it. `None` if it is not
/// intact, or not a record.
pub fn record_at(segment: u64, crawl: u64, offset: u64, bytes: &[u8]) -> Option<Record> {
    let (_, place) = header(VERSION, segment, crawl);
    Record::decode(payload_of(place, offset, bytes)?).ok()
}

/// Frames of a segment that is read in pieces.
#[derive(Debug)]
pub struct Pieces {
    place: u32,
    /// Offset of the first of the bytes.
    offset: u64,
    /// What is left of the pieces: at most a part of a frame.
    bytes: Vec<u8>,
}

impl Pieces {
    /// Of the segment with this number, of this crawl. The first piece begins behind its header.
    pub fn new(segment: u64, crawl: u64) -> Self {
        let (_, place) = header(VERSION, segment, crawl);
        Pieces {
            place,
            offset: HEADER_BYTES as u64,
            bytes: Vec::new(),
        }
    }

    /// Offset of the next piece.
    pub fn position(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Offset of the next frame.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the pieces end where a frame does.
    pub fn is_between_frames(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Adds the next piece, of at most this length: `read` reads it, and returns its length.
    ///
    /// # Errors
    /// Those of `read`: then none is added.
    pub fn read(
        &mut self,
        length: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let before = self.bytes.len();
        self.bytes.resize(before + length, 0);
        let read = read(&mut self.bytes[before..]);
        let added = read.as_ref().map_or(0, |added| *added);
        self.bytes.truncate(before + added);
        read
    }

    /// Passes the offset and the payload of each whole frame on. `None`: a frame is damaged.
    pub fn each(&mut self, mut take: impl FnMut(u64, &[u8])) -> Option<()> {
        self.each_while(|offset, payload| {
            take(offset, payload);
            true
        })
    }

    /// The same, until `take` returns false: the frames after that come with the next call.
    pub fn each_while(&mut self, take: impl FnMut(u64, &[u8]) -> bool) -> Option<()> {
        self.each_while_unless(|_| false, take)
    }

    /// The same; the checksum is not made of a payload that `is_known` to be intact.
    pub fn each_while_unless(
        &mut self,
        is_known: impl Fn(&[u8]) -> bool,
        mut take: impl FnMut(u64, &[u8]) -> bool,
    ) -> Option<()> {
        let mut start = 0;
        let mut goes_on = true;
        while goes_on
            && let Some((head, rest)) = self.bytes[start..].split_first_chunk::<FRAME_HEAD>()
        {
            let length = u32::from_le_bytes(array(&head[..4])) as usize;
            if !(1..=PAYLOAD_MAX).contains(&length) {
                return None;
            }
            let Some(payload) = rest.get(..length) else {
                break;
            };
            if !is_known(payload) && !is_intact(self.place, self.offset, head, payload) {
                return None;
            }
            goes_on = take(self.offset, payload);
            start += FRAME_HEAD + length;
            self.offset += (FRAME_HEAD + length) as u64;
        }
        self.bytes.drain(..start);
        Some(())
    }
}

/// Where a frame ends that has this offset and payload.
pub fn end_of(offset: u64, payload: &[u8]) -> u64 {
    offset + (FRAME_HEAD + payload.len()) as u64
}

/// The payload of the frame with which these bytes begin, if it is intact.
fn payload_of(place: u32, offset: u64, bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<FRAME_HEAD>()?;
    let length = u32::from_le_bytes(array(&head[..4])) as usize;
    if !(1..=PAYLOAD_MAX).contains(&length) {
        return None;
    }
    let payload = rest.get(..length)?;
    is_intact(place, offset, head, payload).then_some(payload)
}

/// Whether a payload is that of the frame with this head, at this offset.
fn is_intact(place: u32, offset: u64, head: &[u8; FRAME_HEAD], payload: &[u8]) -> bool {
    checksum(place, offset, payload) == u32::from_le_bytes(array(&head[4..]))
}

/// Whether these bytes may begin with a frame, before its checksum is made: by chance, one in sixty numbers
/// is the length of one, of 32 MiB on average.
fn may_begin(bytes: &[u8]) -> bool {
    let head = |bytes: &[u8]| {
        let (head, payload) = bytes.split_first_chunk::<FRAME_HEAD>()?;
        let length = u32::from_le_bytes(array(&head[..4])) as usize;
        let is_kind = payload
            .first()
            .is_none_or(|kind| (1..=KIND_MAX).contains(kind));
        (length <= PAYLOAD_MAX && is_kind || length == 0).then_some(length)
    };
    let Some(length) = head(bytes) else {
        return false;
    };
    match bytes.get(FRAME_HEAD + length..) {
        None => false,
        Some(after) => length <= CHECKED_ALONE || after.len() < FRAME_HEAD || head(after).is_some(),
    }
}

/// The header of a segment, and its checksum.
fn header(version: u32, segment: u64, crawl: u64) -> ([u8; HEADER_BYTES], u32) {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[12..20].copy_from_slice(&segment.to_le_bytes());
    header[20..28].copy_from_slice(&crawl.to_le_bytes());
    let checksum = crc32fast::hash(&header[..28]);
    header[28..].copy_from_slice(&checksum.to_le_bytes());
    (header, checksum)
}

/// The checksum of a frame, or of a block of another file.
pub(super) fn checksum(place: u32, offset: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(place);
    hasher.update(&offset.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// The number at this offset of a header.
fn number(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(array(&header[at..at + 8]))
}

/// The short number at this offset of a header.
fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(array(&header[at..at + 4]))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("it has this length")
}

/// The first bytes of a segment.
const MAGIC: [u8; 8] = *b"argiope\n";
/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a frame before its payload.
const FRAME_HEAD: usize = 8;
/// The greatest kind of a record that there may ever be, in its first byte.
const KIND_MAX: u8 = 63;
/// Frames with so many bytes are looked for wherever they are.
const CHECKED_ALONE: usize = 64 << 10;
/// Most bytes of a record, so that a damaged length does not make a reader ask for gigabytes.
pub const PAYLOAD_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
