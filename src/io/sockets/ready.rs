//! The queue of the sockets that have something to read: short replies first.

use std::collections::VecDeque;

use crate::io::Token;

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

impl ReadyQueue {
    /// Puts a socket last of its group.
    pub(in crate::io) fn push(&mut self, token: Token, is_long: bool) {
        match is_long {
            false => self.short.push_back(token),
            true => self.long.push_back((token, self.taken)),
        }
    }

    /// Takes the next socket. Of [`PASSED_MAX`] and one, at least one is in a long reply if any is; of two, once
    /// the first of these has waited for long: else those of a busy crawl would gather and be late.
    pub(in crate::io) fn pop(&mut self) -> Option<Token> {
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
        let next = match short {
            Some(token) => {
                self.passed += 1;
                token
            }
            None => {
                let (token, _) = self.long.pop_front()?;
                self.passed = 0;
                token
            }
        };
        self.taken += 1;
        Some(next)
    }

    /// Number of sockets.
    pub(in crate::io) fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

/// Sockets that are read before one that is in a long reply: with it, they are those of one turn.
const PASSED_MAX: u64 = 15;

/// After so many sockets, a tenth of a second of a busy loop, the first in a long reply has waited for long.
const PATIENCE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn token(slot: u32) -> Token {
        Token {
            slot,
            generation: 1,
        }
    }

    #[test]
    fn short_replies_pass_long_ones_a_bounded_number_of_times() {
        let mut queue = ReadyQueue::default();
        for slot in 0..3 {
            queue.push(token(slot), true);
        }
        for slot in 100..140 {
            queue.push(token(slot), false);
        }
        assert_eq!(queue.len(), 43);
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop())
            .map(|token| token.slot)
            .collect();
        let expected: Vec<u32> = (100..115)
            .chain([0])
            .chain(115..130)
            .chain([1])
            .chain(130..140)
            .chain([2])
            .collect();
        assert_eq!(order, expected);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn long_replies_that_have_waited_for_long_are_read_alternately_with_short_ones() {
        let mut queue = ReadyQueue::default();
        let long = 500;
        (0..long).for_each(|slot| queue.push(token(slot), true));
        let mut taken = 0;
        let mut left = long;
        while left > 0 {
            queue.push(token(long), false);
            if queue.pop().is_some_and(|token| token.slot < long) {
                left -= 1;
            }
            taken += 1;
        }
        // One of sixteen at first, then every second.
        let at_first = PATIENCE as u32;
        assert!(taken <= at_first + 2 * long, "{taken}");
        assert!(taken >= at_first, "{taken}");
    }
}
