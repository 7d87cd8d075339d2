//! The queue of the sockets that have something to read: short replies first.

use std::collections::VecDeque;

use crate::io::Token;

/// Tokens of sockets with pending input. Those in a long reply come after the others, each group in order,
/// so that a short reply never waits for all of the long ones. May contain stale tokens.
#[derive(Debug, Default)]
pub(in crate::io) struct ReadyQueue {
    short: VecDeque<Token>,
    long: VecDeque<Token>,
    /// Sockets that were taken while the first of a long reply waited.
    passed: usize,
}

impl ReadyQueue {
    /// Puts a socket last of its group.
    pub(in crate::io) fn push(&mut self, token: Token, is_long: bool) {
        match is_long {
            false => self.short.push_back(token),
            true => self.long.push_back(token),
        }
    }

    /// Takes the next socket. One in a long reply waits for [`PASSED_MAX`] others at most.
    pub(in crate::io) fn pop(&mut self) -> Option<Token> {
        if self.long.is_empty() {
            return self.short.pop_front();
        }
        if self.passed < PASSED_MAX
            && let Some(token) = self.short.pop_front()
        {
            self.passed += 1;
            return Some(token);
        }
        self.passed = 0;
        self.long.pop_front()
    }

    /// Number of sockets.
    pub(in crate::io) fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

/// Sockets that are read before one that is in a long reply: with it, they are those of one turn.
const PASSED_MAX: usize = 15;

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
}
