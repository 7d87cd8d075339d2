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

    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty()
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
    /// Marked sends in `bytes`, in order; all end after `sent`.
    marked: Vec<Marked>,
}

/// A marked send that has not left whole.
#[derive(Debug)]
struct Marked {
    /// Where it begins; `None` once that has left.
    start: Option<usize>,
    end: usize,
}

/// What of a send is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Unmarked,
    /// All of it, and it is marked.
    Marked,
    /// The rest of one that is marked.
    Rest,
}

impl Held {
    /// All of a send.
    pub(super) fn whole(mark: bool) -> Self {
        if mark { Held::Marked } else { Held::Unmarked }
    }

    /// What is left of a send whose beginning the socket took.
    pub(super) fn rest(mark: bool) -> Self {
        if mark { Held::Rest } else { Held::Unmarked }
    }
}

/// What became of a marked send, with the moments just before and after the system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Its first byte left, and perhaps all others.
    Begun { before: Instant, after: Instant },
    /// Its last byte left, the first one did so earlier.
    Ended { after: Instant },
}

impl Backlog {
    pub(super) fn push(&mut self, bytes: &[u8], held: Held) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        let start = Some(start).filter(|_| held == Held::Marked);
        if held != Held::Unmarked {
            self.marked.push(Marked { start, end });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends what the socket takes; calls `tell` for each marked one that begins or ends with that.
    pub(super) fn drain(
        &mut self,
        socket: &mut Socket,
        now: impl Fn() -> Instant,
        mut tell: impl FnMut(Left),
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
                    tell(Left::Begun { before, after });
                } else if marked.end <= sent {
                    tell(Left::Ended { after });
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

/// Bytes that an emptied buffer keeps for its next use: more than a turn of ordinary requests.
const KEPT: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_marked_send_is_told_when_its_first_byte_leaves_and_when_its_last_one_does() {
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
        let mut told = Vec::new();
        let mut drain = |backlog: &mut Backlog| {
            let drained = backlog.drain(&mut socket, tick, |left| told.push(left));
            drained.expect("the peer is there");
            told.clone()
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
        let told = take(&mut backlog, length);
        assert!(matches!(told[1..], [Left::Ended { .. }]), "{told:?}");
        let told = take(&mut backlog, 3 * length);
        let [
            _,
            _,
            Left::Ended { after: rest },
            Left::Begun { after: last, .. },
        ] = told[..]
        else {
            panic!("what left whole ends with its beginning: {told:?}");
        };
        assert!(rest <= last);
    }
}
