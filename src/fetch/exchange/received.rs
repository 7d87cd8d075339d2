//! What has come of a reply.

use crate::fetch::failure::Truncation;
use crate::wire::http::{Framing, Head, Headers};

/// What has come of the final reply.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) head: Option<Head>,
    pub(super) framing: Option<Framing>,
    pub(super) wire: Vec<u8>,
    pub(super) wire_bytes: u64,
    pub(super) head_bytes: usize,
    pub(super) body: Vec<u8>,
    /// Bytes of the body that were taken from here.
    pub(super) taken: u64,
    pub(super) truncated: Option<Truncation>,
    /// Memory for the head of the next reply, once this exchange is over.
    pub(super) room: Headers,
}

impl Received {
    /// Nothing has come; its memory stays.
    pub(super) fn start_anew(&mut self) {
        // All fields are named, so that none can be left as it was.
        let Received {
            head,
            framing,
            wire,
            wire_bytes,
            head_bytes,
            body,
            taken,
            truncated,
            room: _,
        } = self;
        *head = None;
        *framing = None;
        wire.clear();
        *wire_bytes = 0;
        *head_bytes = 0;
        body.clear();
        *taken = 0;
        *truncated = None;
    }

    /// What came is no part of the final reply.
    pub(super) fn start_again(&mut self) {
        self.wire.clear();
        self.wire_bytes = 0;
    }

    /// Counts, and keeps where that is asked for, what reading used up.
    pub(super) fn take(&mut self, before: &[u8], after: &[u8], keep: bool) {
        let used = &before[..before.len() - after.len()];
        self.wire_bytes += used.len() as u64;
        if keep {
            self.wire.extend_from_slice(used);
        }
    }

    /// The head is complete, and everything so far was it, but for blank lines ahead of it.
    pub(super) fn take_head(&mut self, head: Head) {
        let blank = self.wire.iter().take_while(|byte| b"\r\n".contains(byte));
        let blank = blank.count();
        self.wire.drain(..blank);
        self.wire_bytes -= blank as u64;
        self.head_bytes = self.wire.len();
        self.head = Some(head);
    }

    /// Takes back the last bytes, which are over the limit.
    pub(super) fn drop_last(&mut self, bytes: usize) {
        self.wire.truncate(self.wire.len().saturating_sub(bytes));
        self.wire_bytes -= bytes as u64;
    }
}
