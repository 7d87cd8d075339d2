//! The order in which sockets with something to read are read: short replies first, and in each turn a few.

use std::collections::VecDeque;

use crate::io::sockets::Kind;
use crate::io::{Event, Token};

/// Tokens of sockets with pending input. Those in a long reply come after the others, each group in order,
/// so that a short reply never waits for all of the long ones. May contain stale tokens.
#[derive(Debug, Default)]
pub(in crate::io) struct ReadyQueue {
    short: VecDeque<Token>,
    /// With the number of sockets that were taken before.
    long: VecDeque<(Token, u64)>,
    /// Sockets that were taken.
    taken: u64,
    /// Sockets among them since the last one that is in a long reply.
    passed: u64,
}

/// What the queue knows of a socket.
#[derive(Debug)]
pub(in crate::io) struct ReadState {
    kind: Kind,
    /// Bytes received since the last send.
    received: usize,
    /// Where it waits.
    queued: Option<Group>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Group {
    Short,
    Long,
}

/// What may still be read in a turn.
#[derive(Debug)]
pub(in crate::io) struct TurnReads {
    sockets: usize,
    bytes: usize,
}

impl ReadyQueue {
    /// Puts a socket last of its group, unless it waits there.
    pub(in crate::io) fn push(&mut self, token: Token, socket: &mut ReadState) {
        let group = socket.group();
        // If its next reply has come in the meantime, its token among the long ones is stale.
        if socket.queued.replace(group) == Some(group) {
            return;
        }
        match group {
            Group::Short => self.short.push_back(token),
            Group::Long => self.long.push_back((token, self.taken)),
        }
    }

    /// Takes the next socket, if the turn has reads left. `leave` calls [`ReadState::leave`] of a token that
    /// is not stale.
    ///
    /// Of [`PASSED_MAX`] and one, at least one is in a long reply if any is; of two, once the first of these
    /// has waited for long: else those of a busy crawl would gather and be late.
    pub(in crate::io) fn pop(
        &mut self,
        turn: &mut TurnReads,
        mut leave: impl FnMut(Token, Group) -> Option<Kind>,
    ) -> Option<Token> {
        if turn.sockets == 0 || turn.bytes == 0 {
            return None;
        }
        loop {
            let (token, group) = self.pop_front()?;
            let Some(kind) = leave(token, group) else {
                continue;
            };
            self.taken += 1;
            match group {
                Group::Short => self.passed += 1,
                Group::Long => self.passed = 0,
            }
            turn.sockets = turn.sockets.saturating_sub(match kind {
                Kind::Stream => 1,
                Kind::Datagram => READS_OF_DATAGRAM,
            });
            return Some(token);
        }
    }

    /// Takes the next token.
    fn pop_front(&mut self) -> Option<(Token, Group)> {
        let waited = self.long.front().map(|(_, since)| self.taken - since);
        let passed_max = match waited {
            None => u64::MAX,
            Some(waited) if waited >= PATIENCE => 1,
            Some(_) => PASSED_MAX,
        };
        let short = match self.passed < passed_max {
            true => self.short.pop_front(),
            false => None,
        };
        match short {
            Some(token) => Some((token, Group::Short)),
            None => self.long.pop_front().map(|(token, _)| (token, Group::Long)),
        }
    }

    /// Number of tokens.
    pub(in crate::io) fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

impl ReadState {
    pub(in crate::io) fn new(kind: Kind) -> Self {
        ReadState {
            kind,
            received: 0,
            queued: None,
        }
    }

    /// Called before a send: a reply begins after it.
    pub(in crate::io) fn begin_reply(&mut self) {
        self.received = 0;
    }

    /// Counts bytes that were received.
    pub(in crate::io) fn count(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    /// Of `most` bytes, those that are read at once: those of a short reply, or all of them of a long one.
    pub(in crate::io) fn share_of(&self, most: usize) -> usize {
        match (self.kind, self.group()) {
            (Kind::Stream, Group::Short) => most.min(LONG_REPLY - self.received),
            _ => most,
        }
    }

    /// Takes it from a group; `None` if it does not wait there.
    pub(in crate::io) fn leave(&mut self, group: Group) -> Option<Kind> {
        self.queued.take_if(|queued| *queued == group)?;
        Some(self.kind)
    }

    fn group(&self) -> Group {
        match self.kind == Kind::Stream && self.received >= LONG_REPLY {
            true => Group::Long,
            false => Group::Short,
        }
    }
}

impl TurnReads {
    /// A new turn, which may read so many bytes.
    pub(in crate::io) fn new(bytes: usize) -> Self {
        TurnReads {
            sockets: READS_MAX,
            bytes,
        }
    }

    /// Bytes that may still be read; the last read may exceed them.
    pub(in crate::io) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the bytes that were read with these events.
    pub(in crate::io) fn count(&mut self, events: &[Event]) {
        let bytes = events.iter().map(Event::len).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Sockets read per turn. Each can deliver a page, which takes up to a tenth of a millisecond to handle
/// and delays deadlines by that.
pub(in crate::io) const READS_MAX: usize = 16;

/// Reads of a turn that a datagram counts as. An address that a name server answers is connected to, which
/// takes tens of microseconds.
const READS_OF_DATAGRAM: usize = 2;

/// A reply is long from so many bytes on: most pages are shorter, and a receive buffer takes as much.
const LONG_REPLY: usize = 16 << 10;

/// Sockets that are read before one that is in a long reply: with it, they are those of one turn.
const PASSED_MAX: u64 = READS_MAX as u64 - 1;

/// After so many sockets, a tenth of a second of a busy loop, the first in a long reply has waited for long.
const PATIENCE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets, of which those below `long` are in a long reply.
    struct Sockets {
        queue: ReadyQueue,
        states: Vec<ReadState>,
        generations: Vec<u32>,
    }

    impl Sockets {
        fn new(count: u32, long: u32) -> Self {
            let state = |slot| {
                let mut state = ReadState::new(Kind::Stream);
                state.count(if slot < long { LONG_REPLY } else { 1 });
                state
            };
            Sockets {
                queue: ReadyQueue::default(),
                states: (0..count).map(state).collect(),
                generations: vec![1; count as usize],
            }
        }

        fn push(&mut self, slot: u32) {
            let token = Token {
                slot,
                generation: self.generations[slot as usize],
            };
            self.queue.push(token, &mut self.states[slot as usize]);
        }

        /// Another user has the slot.
        fn replace(&mut self, slot: u32) {
            self.generations[slot as usize] += 1;
            self.states[slot as usize] = ReadState::new(Kind::Stream);
        }

        fn pop(&mut self) -> Option<u32> {
            let token = self.queue.pop(&mut TurnReads::new(1), |token, group| {
                let slot = token.slot as usize;
                let is_present = self.generations[slot] == token.generation;
                is_present.then(|| self.states[slot].leave(group))?
            });
            token.map(|token| token.slot)
        }

        fn order(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.pop()).collect()
        }
    }

    #[test]
    fn short_replies_pass_long_ones_a_bounded_number_of_times() {
        let mut sockets = Sockets::new(43, 3);
        (0..43).for_each(|slot| sockets.push(slot));
        assert_eq!(sockets.queue.len(), 43);
        let expected: Vec<u32> = (3..18)
            .chain([0])
            .chain(18..33)
            .chain([1])
            .chain(33..43)
            .chain([2])
            .collect();
        assert_eq!(sockets.order(), expected);
        assert_eq!(sockets.queue.len(), 0);
    }

    #[test]
    fn long_replies_that_have_waited_for_long_are_read_alternately_with_short_ones() {
        let long = 500;
        let mut sockets = Sockets::new(long + 1, long);
        (0..long).for_each(|slot| sockets.push(slot));
        let mut taken = 0;
        let mut left = long;
        while left > 0 {
            sockets.push(long);
            if sockets.pop().is_some_and(|slot| slot < long) {
                left -= 1;
            }
            taken += 1;
        }
        // One of sixteen at first, then every second.
        let at_first = PATIENCE as u32;
        assert!(taken <= at_first + 2 * long, "{taken}");
        assert!(taken >= at_first, "{taken}");
    }

    #[test]
    fn a_connection_whose_next_reply_has_come_does_not_wait_as_for_its_last_one() {
        let mut sockets = Sockets::new(5, 3);
        (0..3).for_each(|slot| sockets.push(slot));
        sockets.states[1].begin_reply();
        sockets.push(1);
        sockets.push(3);
        assert_eq!(sockets.order(), [1, 3, 0, 2]);
    }

    #[test]
    fn sockets_that_were_closed_take_no_turn_from_others() {
        let mut sockets = Sockets::new(50, 30);
        (0..50).for_each(|slot| sockets.push(slot));
        (0..29).for_each(|slot| sockets.replace(slot));
        let expected: Vec<u32> = (30..45).chain([29]).chain(45..50).collect();
        assert_eq!(sockets.order(), expected);
    }

    #[test]
    fn a_turn_reads_a_bounded_number_of_sockets_and_bytes() {
        let mut queue = ReadyQueue::default();
        let mut states: Vec<ReadState> = (0..40)
            .map(|slot| match slot < 20 {
                true => ReadState::new(Kind::Datagram),
                false => ReadState::new(Kind::Stream),
            })
            .collect();
        for (slot, state) in states.iter_mut().enumerate() {
            let token = Token {
                slot: slot as u32,
                generation: 1,
            };
            queue.push(token, state);
        }
        let mut read_in = |bytes, event: Option<Event>| {
            let mut turn = TurnReads::new(bytes);
            let mut read = 0;
            while let Some(token) = queue.pop(&mut turn, |token, group| {
                states[token.slot as usize].leave(group)
            }) {
                assert!(token.slot < 40);
                read += 1;
                turn.count(event.as_slice());
            }
            read
        };
        let received = Event::Received {
            token: Token {
                slot: 0,
                generation: 1,
            },
            chunk: crate::io::Chunk {
                buffer: 0,
                length: 10,
            },
            stamp: crate::io::Stamp::exact(crate::base::time::Instant::START),
        };
        assert_eq!(read_in(1, None), 8);
        // The last read may exceed the bytes.
        assert_eq!(read_in(25, Some(received)), 3);
        // Nine datagrams are left.
        assert_eq!(read_in(1, None), 8);
        assert_eq!(read_in(1, None), 15);
        assert_eq!(read_in(1, None), 6);
        assert_eq!(read_in(1, None), 0);
    }
}
