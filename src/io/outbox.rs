//! What is waiting to be sent: the arena of this turn's sends, and what sockets did not take.

use super::socket::Socket;
use super::{NetError, Token};
use crate::base::time::Instant;

/// The sends of one turn, copied one after another; its memory is reused turn after turn.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    sends: Vec<Send>,
}

/// One send: a range of the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Send {
    pub(super) token: Token,
    pub(super) mark: bool,
    start: usize,
    end: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, token: Token, bytes: &[u8], mark: bool) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.sends.push(Send {
            token,
            mark,
            start,
            end: self.bytes.len(),
        });
    }

    pub(super) fn sends(&self) -> impl Iterator<Item = (Send, &[u8])> {
        self.sends
            .iter()
            .map(|send| (*send, &self.bytes[send.start..send.end]))
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.sends.clear();
    }
}

/// What one socket has not taken yet, sent as it drains.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    /// How many of `bytes` have left.
    sent: usize,
    /// Where marked sends begin in `bytes`, in order; all at or after `sent`.
    marks: Vec<usize>,
}

impl Backlog {
    pub(super) fn push(&mut self, bytes: &[u8], mark: bool) {
        if mark {
            self.marks.push(self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends what the socket takes; calls `left` with the moment each marked send began to leave.
    pub(super) fn drain(
        &mut self,
        socket: &Socket,
        now: impl Fn() -> Instant,
        mut left: impl FnMut(Instant),
    ) -> Result<(), NetError> {
        while self.sent < self.bytes.len() {
            let at = now();
            let Some(taken) = socket.send(&self.bytes[self.sent..])? else {
                return Ok(());
            };
            self.sent += taken;
            let begun = self.marks.partition_point(|&mark| mark < self.sent);
            self.marks.drain(..begun).for_each(|_| left(at));
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.sent = 0;
        Ok(())
    }
}

/// Bytes that an emptied buffer keeps for its next use: more than a turn of ordinary requests.
const KEPT: usize = 256 * 1024;
