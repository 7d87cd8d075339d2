//! What has come of a reply.

use crate::base::memory::is_room_scarce;
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
    /// The longest that the body can become on the wire, as far as is known.
    pub(super) body_most: usize,
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
            body_most,
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
        *body_most = 0;
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
            let most = self.head_bytes.saturating_add(self.body_most);
            make_room(&mut self.wire, used.len(), most);
            self.wire.extend_from_slice(used);
        }
    }

    /// Makes room for so many more bytes of the body, of which no more than `most` are kept in all;
    /// `None` for as many as on the wire.
    pub(super) fn make_room(&mut self, bytes: usize, most: Option<u64>) {
        let most = most.map_or(self.body_most, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        let left = most.saturating_sub(self.body.len());
        make_room(&mut self.body, bytes.min(left), most);
    }

    /// The head is complete, and everything so far was it, but for blank lines ahead of it. No more
    /// than `body_max` bytes of the body are kept.
    pub(super) fn take_head(&mut self, head: Head, framing: Option<Framing>, body_max: u64) {
        let declared = match framing {
            Some(Framing::Length(length)) => length,
            _ => u64::MAX,
        };
        self.framing = framing;
        self.body_most = usize::try_from(declared.min(body_max)).unwrap_or(usize::MAX);
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

/// A buffer longer than this grows to its greatest expected length at once, or by [`ROOM_FACTOR`]: to copy
/// it into one twice as long, and that again, would hold up everything else for milliseconds.
pub(super) const LONG: usize = 1 << 20;

/// What a long buffer is given at the most: so many bytes, or so many times what is in it. Memory that
/// nothing is written to costs nothing but addresses.
const ROOM_LEAST: usize = 64 << 20;
const ROOM_FACTOR: usize = 8;

/// Makes room for so many bytes more in a buffer that is expected to get `most` in all.
fn make_room(buffer: &mut Vec<u8>, bytes: usize, most: usize) {
    let needed = buffer.len().saturating_add(bytes);
    if needed <= buffer.capacity() || needed <= LONG || is_room_scarce() {
        return;
    }
    let room = buffer.len().saturating_mul(ROOM_FACTOR).max(ROOM_LEAST);
    let whole = match needed <= most {
        // What is read last may lie beyond the limit of the body, until it is cut.
        true => most.saturating_add(LONG).min(room).max(needed),
        // The framing of chunks comes on top of what was expected, and may be many times as much.
        false => room.max(needed),
    };
    // Where there is not as much, it grows as any other.
    let _ = buffer.try_reserve_exact(whole - buffer.len());
}
