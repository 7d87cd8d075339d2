//! Replies that helper threads work on, in the order in which their exchanges ended.
//!
//! ```text
//! push ─► at a worker ─► back ─► complete ─► pop, once those before it are complete
//!             ▲            │ (more to find)
//!             └────────────┘
//! ```

use std::collections::VecDeque;

use super::Task;

/// Replies in order. Each has a number, consecutive along the line.
#[derive(Debug, Default)]
pub(super) struct Line {
    slots: VecDeque<Slot>,
    /// The number of the first.
    first: u64,
    /// Those that came back from their workers and whose results are not handled yet.
    back: VecDeque<u64>,
}

/// A reply in the line.
#[derive(Debug)]
struct Slot {
    /// `None` while its results are handled.
    task: Option<Box<Task>>,
    is_complete: bool,
}

impl Line {
    /// Adds a reply as the last one; returns its number.
    pub fn push(&mut self, task: Box<Task>, is_complete: bool) -> u64 {
        self.slots.push_back(Slot {
            task: Some(task),
            is_complete,
        });
        self.first + self.slots.len() as u64 - 1
    }

    /// The reply of this number, if it is still in the line.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Task> {
        self.slot(number)?.task.as_deref_mut()
    }

    /// A reply has come back from its worker.
    pub fn came_back(&mut self, number: u64) {
        self.back.push_back(number);
    }

    /// Takes the first reply that came back out of its slot.
    pub fn take_back(&mut self) -> Option<(u64, Box<Task>)> {
        let number = self.back.pop_front()?;
        let slot = self
            .slot(number)
            .expect("only a complete reply leaves the line");
        Some((
            number,
            slot.task.take().expect("its results are handled once"),
        ))
    }

    /// Puts a reply back into its slot: its results are to be handled further, before those of others.
    pub fn put_back(&mut self, number: u64, task: Box<Task>) {
        self.fill(number, task);
        self.back.push_front(number);
    }

    /// Puts a reply back into its slot: it goes to a worker once more, or is complete.
    pub fn settle(&mut self, number: u64, task: Box<Task>, is_complete: bool) {
        self.fill(number, task).is_complete = is_complete;
    }

    /// Removes the first reply if it is complete.
    pub fn pop(&mut self) -> Option<Box<Task>> {
        if !self.has_complete() {
            return None;
        }
        self.first += 1;
        self.slots.pop_front()?.task
    }

    /// Whether the first reply is complete.
    pub fn has_complete(&self) -> bool {
        self.slots.front().is_some_and(|slot| slot.is_complete)
    }

    /// Whether results of a reply are to be handled.
    pub fn has_back(&self) -> bool {
        !self.back.is_empty()
    }

    /// Empties the line: numbers from before are not known any more.
    pub fn drain(&mut self) -> impl Iterator<Item = Box<Task>> + use<> {
        self.first += self.slots.len() as u64;
        self.back.clear();
        let slots = std::mem::take(&mut self.slots);
        slots.into_iter().filter_map(|slot| slot.task)
    }

    /// All replies.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.slots.iter().filter_map(|slot| slot.task.as_deref())
    }

    /// All replies, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        let tasks = self.slots.iter_mut();
        tasks.filter_map(|slot| slot.task.as_deref_mut())
    }

    /// Number of replies.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn fill(&mut self, number: u64, task: Box<Task>) -> &mut Slot {
        let slot = self
            .slot(number)
            .expect("only a complete reply leaves the line");
        slot.task = Some(task);
        slot
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let at = number.checked_sub(self.first)?;
        self.slots.get_mut(usize::try_from(at).ok()?)
    }
}
