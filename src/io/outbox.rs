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

    /// Sends what the socket takes; calls `left` with the moments just before and after the system
    /// call that began to send each marked one.
    pub(super) fn drain(
        &mut self,
        socket: &Socket,
        now: impl Fn() -> Instant,
        mut left: impl FnMut(Instant, Instant),
    ) -> Result<(), NetError> {
        while self.sent < self.bytes.len() {
            let at = now();
            let Some(taken) = socket.send(&self.bytes[self.sent..])? else {
                return Ok(());
            };
            self.sent += taken;
            let begun = self.marks.partition_point(|&mark| mark < self.sent);
            if begun > 0 {
                let after = now();
                self.marks.drain(..begun).for_each(|_| left(at, after));
            }
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
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_marked_send_is_told_when_its_first_byte_leaves() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let socket = Socket::stream(to).expect("a socket");
        socket.connect(to).expect("the listener accepts");
        let (mut peer, _) = listener.accept().expect("we connected");
        let length = 50_000_000;
        let mut backlog = Backlog::default();
        for _ in 0..2 {
            backlog.push(&vec![0; length], true);
        }
        let mut told = 0;
        let mut drain = |backlog: &mut Backlog| {
            backlog
                .drain(&socket, || Instant::START, |_, _| told += 1)
                .expect("the peer is there");
            told
        };
        assert_eq!(
            drain(&mut backlog),
            1,
            "no socket takes the first send whole"
        );
        let mut taken = 0;
        let mut buffer = vec![0; 1_000_000];
        while taken < length {
            taken += peer.read(&mut buffer).expect("there is more");
            drain(&mut backlog);
        }
        assert_eq!(drain(&mut backlog), 2);
    }
}
