//! Prepares replies for writing: computes their digests and makes their records. The loop does it in bounded
//! steps; a helper thread does all at once, and compresses the record.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::gzip::Gzip;
use crate::sink::page::Page;
use crate::sink::records::{protocols_of, reply_record};
use crate::sink::traits::Preparation;
use crate::wire::warc::{Digest, Hashing, PayloadDigest, Record, RecordId};

/// The prepared parts of a reply.
pub(super) struct Prepared {
    /// Removed when complete.
    payload: Option<PayloadDigest>,
    digest: Option<Digest>,
    reply: Option<PreparedReply>,
    place: Option<Place>,
}

/// A place in the open file for the record of a reply.
#[derive(Debug)]
pub(super) struct Place {
    /// The record's id.
    pub id: RecordId,
    /// That of the file's `warcinfo` record.
    pub info: RecordId,
    /// Keeps the file open until the record is written.
    pub room: Room,
}

/// Bytes reserved in a file, until dropped.
#[derive(Debug)]
pub(super) struct Room {
    reserved: Reserved,
    size: u64,
}

/// How many bytes of a file are reserved.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserved(Arc<AtomicU64>);

/// The record of a reply.
pub(super) enum PreparedReply {
    /// As it is, for the disk thread to compress.
    Plain(PlainRecord),
    /// As a gzip member.
    Member(MemberRecord),
}

/// Space for the head of a record, and its block.
#[derive(Default)]
pub(super) struct PlainRecord {
    bytes: Vec<u8>,
    head: usize,
    /// Begins with the copy of the block.
    hash: Option<Hashing>,
    /// There is one when the block is copied.
    digest: Option<Digest>,
}

/// A record with the ids that it has in its place.
pub(super) struct MemberRecord {
    id: RecordId,
    head: Vec<u8>,
    digest: Digest,
    /// Head, block, and end, compressed.
    member: Vec<u8>,
}

impl Prepared {
    /// Nothing prepared yet. `has_record`: it has a record, in this place if that is known.
    pub fn new(page: &Page, has_record: bool, place: Option<Place>) -> Self {
        Prepared {
            payload: page.has_digest().then(|| PayloadDigest::new(page.chunked)),
            digest: None,
            reply: has_record.then(|| PreparedReply::Plain(PlainRecord::default())),
            place,
        }
    }

    /// The digest of the payload, the record, and the room in the open file that is reserved for it, when
    /// everything is prepared.
    pub fn finish(self) -> (Option<Digest>, Option<PreparedReply>, Option<Room>) {
        let room = self.place.map(|place| place.room);
        (self.digest, self.reply, room)
    }
}

impl Reserved {
    /// Bytes reserved.
    pub fn size(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Reserves so many bytes more.
    pub fn reserve(&self, size: u64) -> Room {
        self.0.fetch_add(size, Ordering::Relaxed);
        Room {
            reserved: self.clone(),
            size,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.reserved.0.fetch_sub(self.size, Ordering::Relaxed);
    }
}

impl Preparation for Prepared {
    fn step(&mut self, page: &Page, units: &mut u64) -> bool {
        while *units > 0 {
            if let Some(payload) = &mut self.payload {
                *units = units.saturating_sub(STEP as u64 / 2);
                if payload.step(page.raw_body(), STEP) {
                    self.digest = self.payload.take().map(PayloadDigest::finish);
                }
                continue;
            }
            match &mut self.reply {
                Some(PreparedReply::Plain(record)) if !record.is_complete() => {
                    *units = units.saturating_sub(STEP as u64);
                    record.step(page);
                }
                _ => return true,
            }
        }
        let is_whole = match &self.reply {
            Some(PreparedReply::Plain(record)) => record.is_complete(),
            Some(PreparedReply::Member(_)) | None => true,
        };
        self.payload.is_none() && is_whole
    }

    fn complete(&mut self, page: &Page, gzip: &mut Gzip) {
        if let (Some(place), Some(reply)) = (&self.place, &mut self.reply) {
            if self.payload.take().is_some() {
                self.digest = page.digest();
            }
            *reply = PreparedReply::Member(MemberRecord::new(page, self.digest, place, gzip));
        }
        let mut units = u64::MAX;
        while !self.step(page, &mut units) {}
    }
}

impl PreparedReply {
    /// The id of the record, if it is known.
    pub fn id(&self) -> Option<RecordId> {
        match self {
            PreparedReply::Plain(_) => None,
            PreparedReply::Member(record) => Some(record.id),
        }
    }

    /// The complete record, and whether it is a gzip member.
    pub fn write(self, record: &Record<'_>) -> (Vec<u8>, bool) {
        match self {
            PreparedReply::Plain(prepared) => (prepared.write(record), false),
            PreparedReply::Member(prepared) => prepared.write(record),
        }
    }
}

impl PlainRecord {
    fn is_complete(&self) -> bool {
        self.digest.is_some()
    }

    /// Copies a part of the block.
    fn step(&mut self, page: &Page) {
        let block = &page.response_bytes;
        if self.hash.is_none() {
            self.head = head_length(page);
            self.bytes
                .reserve_exact(self.head + block.len() + RECORD_END.len());
            self.bytes.resize(self.head, 0);
        }
        let hash = self.hash.get_or_insert_with(Hashing::new);
        let at = self.bytes.len() - self.head;
        let end = block.len().min(at + STEP);
        hash.update(&block[at..end]);
        self.bytes.extend_from_slice(&block[at..end]);
        if end == block.len() {
            self.bytes.extend_from_slice(RECORD_END);
            self.digest = self.hash.take().map(Hashing::finish);
        }
    }

    fn write(self, record: &Record<'_>) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.head);
        let digest = self.digest.expect("its block is copied");
        record.write_head(digest, &mut head);
        let mut bytes = self.bytes;
        // The head nearly always has the expected length: only numbers of constant length differ.
        bytes.splice(..self.head, head);
        bytes
    }
}

impl MemberRecord {
    fn new(page: &Page, payload: Option<Digest>, place: &Place, gzip: &mut Gzip) -> Self {
        let protocols = protocols_of(page);
        let record = reply_record(page, payload, place.id, place.info, &protocols);
        let digest = Digest::new(record.block);
        let mut head = Vec::new();
        record.write_head(digest, &mut head);
        let mut member = Vec::new();
        gzip.member(&whole(&head, &record), &mut member);
        // It is counted by its length, and was made in space for what does not shrink.
        member.shrink_to_fit();
        MemberRecord {
            id: place.id,
            head,
            digest,
            member,
        }
    }

    /// The member if it has the record's head. Otherwise, if something was learned of the page since, the
    /// record, uncompressed; that copies the reply in one step.
    fn write(self, record: &Record<'_>) -> (Vec<u8>, bool) {
        let mut head = Vec::with_capacity(self.head.len());
        record.write_head(self.digest, &mut head);
        match head == self.head {
            true => (self.member, true),
            false => (whole(&head, record), false),
        }
    }
}

/// A record with this head.
fn whole(head: &[u8], record: &Record<'_>) -> Vec<u8> {
    [head, record.block, RECORD_END].concat()
}

/// The length of the head of a page's reply record.
fn head_length(page: &Page) -> usize {
    let id = RecordId::from_random([0; 16]);
    let digest = Digest::new(b"");
    let payload = page.has_digest().then_some(digest);
    let protocols = protocols_of(page);
    let record = reply_record(page, payload, id, id, &protocols);
    let mut head = Vec::new();
    record.write_head(digest, &mut head);
    head.len()
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}

/// Follows each block.
const RECORD_END: &[u8] = b"\r\n\r\n";

/// Bytes digested and copied per step.
const STEP: usize = 32 << 10;
