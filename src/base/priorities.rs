//! What waits by priority: the highest first, and turns for the others, so that none starves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

/// Of so many choices that pass over a lower priority the last goes to one: so lower priorities together
/// have an eighth, each an equal part of it.
const TURN_EVERY: u8 = 8;

/// Chooses which priority is served next.
///
/// The highest is, except that each eighth choice goes to a lower one: to each of them in turn.
#[derive(Debug)]
pub struct PriorityTurns {
    /// How many were served since the last turn while a lower priority waited.
    passed_over: u8,
    /// The priority that had the last turn.
    last: i32,
}

impl Default for PriorityTurns {
    fn default() -> Self {
        PriorityTurns {
            passed_over: 0,
            last: i32::MAX,
        }
    }
}

impl PriorityTurns {
    /// The priority to be served next, and whether it has a turn although a higher one waits. `below`: the
    /// highest that waits below another; `highest` waits.
    pub fn choose(&mut self, highest: i32, below: impl Fn(i32) -> Option<i32>) -> (i32, bool) {
        if self.passed_over < TURN_EVERY - 1 {
            return (highest, false);
        }
        let next = below(self.last).filter(|next| *next < highest);
        match next.or_else(|| below(highest)) {
            Some(next) => {
                self.passed_over = 0;
                self.last = next;
                (next, true)
            }
            None => (highest, false),
        }
    }

    /// One was served while a lower priority waited.
    pub fn pass_over(&mut self) {
        self.passed_over = self.passed_over.saturating_add(1);
    }
}

/// A queue by priority. While all that waits has one priority it is a plain queue.
#[derive(Debug)]
pub struct PriorityQueue<T> {
    /// Those of this priority.
    usual: (i32, Line<T>),
    others: BTreeMap<Reverse<i32>, Line<T>>,
    turns: PriorityTurns,
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        PriorityQueue {
            usual: (0, Line::default()),
            others: BTreeMap::new(),
            turns: PriorityTurns::default(),
        }
    }
}

impl<T> PriorityQueue<T> {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.usual.1.is_empty() && self.others.is_empty()
    }

    /// Adds one behind all of its priority.
    pub fn push(&mut self, priority: i32, value: T) {
        if self.is_empty() {
            self.usual.0 = priority;
        }
        match priority == self.usual.0 {
            true => self.usual.1.push(value),
            false => {
                let line = self.others.entry(Reverse(priority)).or_default();
                line.push(value);
            }
        }
    }

    /// Adds one before all of its priority.
    pub fn push_front(&mut self, priority: i32, value: T) {
        if self.is_empty() {
            self.usual.0 = priority;
        }
        match priority == self.usual.0 {
            true => self.usual.1.push_front(value),
            false => {
                let line = self.others.entry(Reverse(priority)).or_default();
                line.push_front(value);
            }
        }
    }

    /// The highest priority of those that wait.
    pub fn highest(&self) -> Option<i32> {
        let usual = (!self.usual.1.is_empty()).then_some(self.usual.0);
        let other = self.others.first_key_value().map(|(key, _)| key.0);
        usual.max(other)
    }

    /// Removes those that do not satisfy this.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.usual.1.retain(&mut is_kept);
        self.others.retain(|_, line| {
            line.retain(&mut is_kept);
            !line.is_empty()
        });
    }

    /// Removes the next, with its priority.
    pub fn pop(&mut self) -> Option<(i32, T)> {
        if self.others.is_empty() {
            let first = self.usual.1.pop()?;
            return Some((self.usual.0, first));
        }
        let (usual, others) = (&self.usual, &self.others);
        let with_usual = |other: Option<i32>, is_below: bool| {
            let is_in = is_below && !usual.1.is_empty();
            other.max(is_in.then_some(usual.0))
        };
        let below = |priority: i32| {
            let mut lower = others.range((Excluded(Reverse(priority)), Unbounded));
            with_usual(lower.next().map(|(key, _)| key.0), usual.0 < priority)
        };
        let first = others.first_key_value().map(|(key, _)| key.0);
        let highest = with_usual(first, true)?;
        let (priority, has_turn) = self.turns.choose(highest, below);
        if !has_turn && below(priority).is_some() {
            self.turns.pass_over();
        }
        if priority == self.usual.0 {
            return Some((priority, self.usual.1.pop()?));
        }
        let line = self.others.get_mut(&Reverse(priority))?;
        let first = line.pop();
        if line.is_empty() {
            self.others.remove(&Reverse(priority));
        }
        Some((priority, first?))
    }
}

/// A queue in pieces, so that it never moves as a whole.
#[derive(Debug)]
pub struct Line<T> {
    pieces: VecDeque<VecDeque<T>>,
}

/// Entries in one piece.
const PIECE: usize = 4096;

impl<T> Default for Line<T> {
    fn default() -> Self {
        Line {
            pieces: VecDeque::new(),
        }
    }
}

impl<T> Line<T> {
    /// Adds one behind all others.
    pub fn push(&mut self, value: T) {
        match self.pieces.back_mut() {
            Some(last) if last.len() < PIECE => last.push_back(value),
            _ => self.pieces.push_back(VecDeque::from([value])),
        }
    }

    /// Adds one before all others.
    pub fn push_front(&mut self, value: T) {
        match self.pieces.front_mut() {
            Some(first) if first.len() < PIECE => first.push_front(value),
            _ => self.pieces.push_front(VecDeque::from([value])),
        }
    }

    /// Removes the first.
    pub fn pop(&mut self) -> Option<T> {
        let first = self.pieces.front_mut()?;
        let value = first.pop_front();
        // The last piece is kept: the next entry needs no new one.
        if first.is_empty() && self.pieces.len() > 1 {
            self.pieces.pop_front();
        }
        value
    }

    /// Removes those that do not satisfy this. No piece but the last is empty.
    fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.pieces.retain_mut(|piece| {
            piece.retain(&mut is_kept);
            !piece.is_empty()
        });
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let entries: usize = self.pieces.iter().map(VecDeque::capacity).sum();
        entries * size_of::<T>() + self.pieces.capacity() * size_of::<VecDeque<T>>()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pieces.front().is_none_or(VecDeque::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The priorities of the next so many.
    fn priorities(queue: &mut PriorityQueue<u32>, count: usize) -> Vec<i32> {
        let all = std::iter::from_fn(|| queue.pop());
        all.take(count).map(|(priority, _)| priority).collect()
    }

    #[test]
    fn equal_priorities_come_in_order_and_higher_ones_before() {
        let mut queue = PriorityQueue::default();
        for number in 0..10_000 {
            queue.push(3, number);
        }
        for number in 0..10_000 {
            assert_eq!(queue.pop(), Some((3, number)));
        }
        assert_eq!(queue.pop(), None);
        for (priority, number) in [(0, 1), (5, 2), (0, 3), (-1, 4), (5, 5)] {
            queue.push(priority, number);
        }
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, [(5, 2), (5, 5), (0, 1), (0, 3), (-1, 4)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_rest_keeps_its_order_when_some_are_removed_and_one_goes_to_the_front() {
        let mut queue = PriorityQueue::default();
        for number in 0..10_000 {
            queue.push(number % 2, number);
        }
        queue.retain(|number| number % 1000 == 7 || *number == 4998);
        queue.push_front(1, -1);
        queue.push_front(3, -2);
        assert_eq!(queue.highest(), Some(3));
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let ones = (0..7).map(|thousand| (1, thousand * 1000 + 7));
        let first: Vec<_> = [(3, -2), (1, -1)].into_iter().chain(ones).collect();
        assert_eq!(all[..7], first[..7]);
        assert!(all.contains(&(0, 4998)) && all.len() == 13, "{all:?}");
        assert_eq!((queue.is_empty(), queue.highest()), (true, None));
    }

    #[test]
    fn each_eighth_choice_goes_to_the_lower_priorities_in_turn() {
        let mut queue = PriorityQueue::default();
        for number in 0..100 {
            for priority in [7, 1, 0, -4] {
                queue.push(priority, number);
            }
        }
        let turns = |lower| [vec![7; 7], vec![lower]].concat();
        let expected = [1, 0, -4, 1].map(turns).concat();
        assert_eq!(priorities(&mut queue, 32), expected);
    }

    #[test]
    fn a_lower_priority_has_its_turns_although_higher_ones_never_end() {
        let mut queue = PriorityQueue::default();
        queue.push(0, 0);
        let mut served = 0;
        loop {
            queue.push(9, 1);
            served += 1;
            if queue.pop() == Some((0, 0)) {
                break;
            }
        }
        assert_eq!(served, usize::from(TURN_EVERY));
    }
}
