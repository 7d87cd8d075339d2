//! Prepares large replies for writing in bounded steps: computes their digests, and copies their
//! bytes into a record.

use std::fmt;

use crate::sink::page::Page;
use crate::sink::traits::Preparation;
use crate::wire::warc::{Digest, Hashing, PayloadDigest, Record};

/// The prepared parts of a reply.
pub(super) struct Prepared {
    /// Removed when complete.
    payload: Option<PayloadDigest>,
    digest: Option<Digest>,
    record: Option<PreparedRecord>,
}

/// The record of a reply: space for its head, and its block.
pub(super) struct PreparedRecord {
    bytes: Vec<u8>,
    head: usize,
    /// Removed when the block is copied.
    hash: Option<Hashing>,
    digest: Option<Digest>,
}

impl Prepared {
    /// Nothing prepared yet. `head` is the expected length of the head of its record; `None` if it
    /// has no record.
    pub fn new(page: &Page, head: Option<usize>) -> Self {
        Prepared {
            payload: page.has_digest().then(|| PayloadDigest::new(page.chunked)),
            digest: None,
            record: head.map(|head| {
                let mut bytes =
                    Vec::with_capacity(head + page.response_bytes.len() + RECORD_END.len());
                bytes.resize(head, 0);
                PreparedRecord {
                    bytes,
                    head,
                    hash: Some(Hashing::new()),
                    digest: None,
                }
            }),
        }
    }

    /// The digest of the payload and the record, when everything is prepared.
    pub fn finish(self) -> (Option<Digest>, Option<PreparedRecord>) {
        (self.digest, self.record)
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
            let Some(record) = &mut self.record else {
                return true;
            };
            let Some(hash) = &mut record.hash else {
                return true;
            };
            *units = units.saturating_sub(STEP as u64);
            let at = record.bytes.len() - record.head;
            let block = &page.response_bytes;
            let end = block.len().min(at + STEP);
            hash.update(&block[at..end]);
            record.bytes.extend_from_slice(&block[at..end]);
            if end == block.len() {
                record.bytes.extend_from_slice(RECORD_END);
                record.digest = record.hash.take().map(Hashing::finish);
            }
        }
        self.payload.is_none()
            && self
                .record
                .as_ref()
                .is_none_or(|record| record.hash.is_none())
    }
}

impl PreparedRecord {
    /// The complete record.
    pub fn write(self, record: &Record<'_>) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.head);
        let digest = self.digest.expect("its block is copied");
        record.write_head(digest, &mut head);
        let mut bytes = self.bytes;
        // The head nearly always has the expected length: only numbers of constant length differ.
        bytes.splice(..self.head, head);
        bytes
    }
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
