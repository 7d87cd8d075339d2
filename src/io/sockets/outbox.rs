//! Bytes to be sent: the buffer of this turn's sends, and the bytes that sockets did not take.

use crate::base::time::Instant;
use crate::io::sockets::socket::Socket;
use crate::io::{NetError, Token};

/// The sends of one turn in one buffer, whose memory is reused.
#[derive(Debug, Default)]
pub(in crate::io) struct Outbox {
    bytes: Vec<u8>,
    sends: Vec<Send>,
}

/// One send: a range of the buffer.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct Send {
    pub(in crate::io) token: Token,
    pub(in crate::io) mark: bool,
    start: usize,
    end: usize,
}

impl Outbox {
    pub(in crate::io) fn push(&mut self, token: Token, bytes: &[u8], mark: bool) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.sends.push(Send {
            token,
            mark,
            start,
            end: self.bytes.len(),
        });
    }

    pub(in crate::io) fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    pub(in crate::io) fn sends(&self) -> impl Iterator<Item = (Send, &[u8])> {
        self.sends
            .iter()
            .map(|send| (*send, &self.bytes[send.start..send.end]))
    }

    pub(in crate::io) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.sends.clear();
    }
}

/// Bytes that one socket has not taken yet.
#[derive(Debug, Default)]
pub(in crate::io) struct Backlog {
    bytes: Vec<u8>,
    /// Number of `bytes` that were sent.
    sent: usize,
    /// Marked sends in `bytes`, in order; all end after `sent`.
    marked: Vec<Marked>,
}

/// A marked send of which bytes are left.
#[derive(Debug)]
struct Marked {
    /// Where it begins; `None` once its first byte has left.
    start: Option<usize>,
    end: usize,
}

/// What part of a send is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Held {
    Unmarked,
    /// All of a marked one.
    Marked,
    /// The rest of a marked one.
    Rest,
}

impl Held {
    /// All of a send.
    pub(in crate::io) fn whole(mark: bool) -> Self {
        if mark { Held::Marked } else { Held::Unmarked }
    }

    /// The rest of a send that the socket took in part.
    pub(in crate::io) fn rest(mark: bool) -> Self {
        if mark { Held::Rest } else { Held::Unmarked }
    }
}

/// Progress of a marked send, with the moments just before and after the system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Left {
    /// Its first byte left, and perhaps all others.
    Begun { before: Instant, after: Instant },
    /// Its last byte left, in a later call than the first.
    Ended { after: Instant },
}

impl Backlog {
    pub(in crate::io) fn push(&mut self, bytes: &[u8], held: Held) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        let start = Some(start).filter(|_| held == Held::Marked);
        if held != Held::Unmarked {
            self.marked.push(Marked { start, end });
        }
    }

    pub(in crate::io) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of bytes.
    pub(in crate::io) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends what the socket takes; calls `report` for each marked send that begins or ends to leave.
    pub(in crate::io) fn drain(
        &mut self,
        socket: &mut Socket,
        now: impl Fn() -> Instant,
        mut report: impl FnMut(Left),
    ) -> Result<(), NetError> {
        while self.sent < self.bytes.len() {
            socket.prepare_send();
            let before = now();
            let Some(taken) = socket.send(&self.bytes[self.sent..])? else {
                return Ok(());
            };
            self.sent += taken;
            let sent = self.sent;
            let begins = |marked: &Marked| marked.start.is_some_and(|start| start < sent);
            let touched = |marked: &Marked| begins(marked) || marked.end <= sent;
            if !self.marked.first().is_some_and(touched) {
                continue;
            }
            let after = now();
            for marked in &mut self.marked {
                if begins(marked) {
                    marked.start = None;
                    report(Left::Begun { before, after });
                } else if marked.end <= sent {
                    report(Left::Ended { after });
                }
            }
            self.marked.retain(|marked| marked.end > sent);
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.sent = 0;
        Ok(())
    }
}

/// Capacity that an emptied buffer keeps: more than a turn of ordinary requests.
const KEPT: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_marked_send_is_reported_when_its_first_byte_leaves_and_when_its_last_does() {
        let (mut socket, mut peer) = Socket::connected();
        let length = 50_000_000;
        let mut backlog = Backlog::default();
        for held in [Held::Marked, Held::Unmarked, Held::Rest] {
            backlog.push(&vec![0; length], held);
        }
        backlog.push(b"!", Held::Marked);
        let clock = Cell::new(0);
        let tick = || {
            clock.set(clock.get() + 1);
            Instant::from_nanos(clock.get())
        };
        let mut reported = Vec::new();
        let mut drain = |backlog: &mut Backlog| {
            let drained = backlog.drain(&mut socket, tick, |left| reported.push(left));
            drained.expect("the peer is there");
            reported.clone()
        };
        let begun = drain(&mut backlog);
        assert!(
            matches!(begun[..], [Left::Begun { before, after }] if before < after),
            "no socket takes the first send whole: {begun:?}"
        );
        let mut taken = 0;
        let mut buffer = vec![0; 1_000_000];
        let mut take = |backlog: &mut Backlog, until: usize| {
            while taken < until {
                taken += peer.read(&mut buffer).expect("there is more");
                drain(backlog);
            }
            drain(backlog)
        };
        let reported = take(&mut backlog, length);
        assert!(
            matches!(reported[1..], [Left::Ended { .. }]),
            "{reported:?}"
        );
        let reported = take(&mut backlog, 3 * length);
        let [
            _,
            _,
            Left::Ended { after: rest },
            Left::Begun { after: last, .. },
        ] = reported[..]
        else {
            panic!("a send that left at once has one event: {reported:?}");
        };
        assert!(rest <= last);
    }
}
