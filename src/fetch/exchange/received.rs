//! The received part of a reply.

use crate::base::memory::{Expected, make_room};
use crate::fetch::body::UndecodedBody;
use crate::fetch::failure::Truncation;
use crate::wire::http::{Framing, Head, Headers};

/// The received part of the final reply.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) head: Option<Head>,
    pub(super) framing: Option<Framing>,
    pub(super) wire: Vec<u8>,
    pub(super) wire_bytes: u64,
    pub(super) head_bytes: usize,
    pub(super) body: Vec<u8>,
    /// The body, if it is decoded elsewhere.
    pub(super) undecoded: Option<UndecodedBody>,
    /// The maximum size of the body on the wire, as far as known.
    pub(super) body_expected: usize,
    /// Bytes of the body that were taken from here.
    pub(super) taken: u64,
    pub(super) truncated: Option<Truncation>,
    /// Memory for the head of the next reply, after this exchange.
    pub(super) spare_head: Headers,
}

impl Received {
    /// Clears everything; the memory is kept.
    pub(super) fn clear(&mut self) {
        // All fields are named, so that none keeps its old value by mistake.
        let Received {
            head,
            framing,
            wire,
            wire_bytes,
            head_bytes,
            body,
            undecoded,
            body_expected,
            taken,
            truncated,
            spare_head: _,
        } = self;
        *head = None;
        *framing = None;
        wire.clear();
        *wire_bytes = 0;
        *head_bytes = 0;
        body.clear();
        *undecoded = None;
        *body_expected = 0;
        *taken = 0;
        *truncated = None;
    }

    /// Discards bytes that are not part of the final reply.
    pub(super) fn discard(&mut self) {
        self.wire.clear();
        self.wire_bytes = 0;
    }

    /// Counts the bytes that reading consumed, and keeps them if `keep` is set.
    pub(super) fn take(&mut self, before: &[u8], after: &[u8], keep: bool) {
        let used = &before[..before.len() - after.len()];
        self.wire_bytes += used.len() as u64;
        if keep {
            let expected = self.expects(self.head_bytes);
            make_room(&mut self.wire, used.len(), expected);
            self.wire.extend_from_slice(used);
        }
    }

    /// Reserves space for `bytes` more bytes of the body, of which at most `most` are kept in
    /// total; `None`: as many as on the wire.
    pub(super) fn make_room(&mut self, bytes: usize, most: Option<u64>) {
        let expected = match most {
            Some(most) => Expected::AtMost(usize::try_from(most).unwrap_or(usize::MAX)),
            None => self.expects(0),
        };
        let (Expected::Declared(most) | Expected::AtMost(most)) = expected;
        let left = most.saturating_sub(self.body.len());
        make_room(&mut self.body, bytes.min(left), expected);
    }

    /// The size of the body on the wire, and so many bytes beside it.
    fn expects(&self, beside: usize) -> Expected {
        let all = self.body_expected.saturating_add(beside);
        match self.framing {
            Some(Framing::Length(_)) => Expected::Declared(all),
            _ => Expected::AtMost(all),
        }
    }

    /// Stores the complete head. All bytes so far belong to it, except for blank lines before it.
    /// At most `body_max` bytes of the body will be kept.
    pub(super) fn take_head(&mut self, head: Head, framing: Option<Framing>, body_max: u64) {
        let declared = match framing {
            Some(Framing::Length(length)) => length,
            _ => u64::MAX,
        };
        self.framing = framing;
        self.body_expected = usize::try_from(declared.min(body_max)).unwrap_or(usize::MAX);
        let blank = self.wire.iter().take_while(|byte| b"\r\n".contains(byte));
        let blank = blank.count();
        self.wire.drain(..blank);
        self.wire_bytes -= blank as u64;
        self.head_bytes = self.wire.len();
        self.head = Some(head);
    }

    /// Removes the last bytes, which exceed the limit.
    pub(super) fn drop_last(&mut self, bytes: usize) {
        self.wire.truncate(self.wire.len().saturating_sub(bytes));
        self.wire_bytes -= bytes as u64;
    }
}
