//! The parts of a wait: its deadline as a descriptor, its polled tail, and the thread that waits.
//!
//! A back end can be made on one thread and waited on by another. What the kernel does per thread is
//! requested by the thread that waits.

pub(super) mod due;
pub(super) mod spin;
pub(super) mod timer;

use std::thread::{self, ThreadId};

thread_local! {
    /// Cached: asking the standard library each turn costs more than a turn may.
    static HERE: ThreadId = thread::current().id();
}

/// The thread that took the last turn.
#[derive(Debug, Default)]
pub(super) struct TurnThread(Option<ThreadId>);

/// Which thread takes this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadChange {
    /// The thread that took the last one.
    Same,
    /// The first thread to take one.
    First,
    /// Another thread than the one that took the last one.
    Other,
}

impl TurnThread {
    /// Whether there was no turn yet.
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The calling thread takes a turn.
    pub(super) fn begin_turn(&mut self) -> ThreadChange {
        let here = HERE.with(|here| *here);
        match self.0.replace(here) {
            Some(before) if before == here => ThreadChange::Same,
            Some(_) => ThreadChange::Other,
            None => ThreadChange::First,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_on_another_thread_is_noticed_once() {
        let mut turn_thread = TurnThread::default();
        let turns =
            |turn_thread: &mut TurnThread| [turn_thread.begin_turn(), turn_thread.begin_turn()];
        assert_eq!(
            turns(&mut turn_thread),
            [ThreadChange::First, ThreadChange::Same]
        );
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| turns(&mut turn_thread));
            let elsewhere = elsewhere.join().expect("it takes two turns");
            assert_eq!(elsewhere, [ThreadChange::Other, ThreadChange::Same]);
        });
        assert_eq!(
            turns(&mut turn_thread),
            [ThreadChange::Other, ThreadChange::Same]
        );
    }
}
