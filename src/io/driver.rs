//! The thread that takes the turns. A back end may be made on one thread and driven by another; what
//! the kernel does by the thread is asked for by the one that drives.

use std::thread::{self, ThreadId};

thread_local! {
    /// Kept, for asking the standard library each turn costs more than the turn may.
    static HERE: ThreadId = thread::current().id();
}

/// Who took the last turn.
#[derive(Debug, Default)]
pub(super) struct Driver(Option<ThreadId>);

/// Who takes this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drives {
    /// The thread that took the one before.
    Same,
    /// A thread; there was no turn before.
    First,
    /// Another thread than took the one before.
    Other,
}

impl Driver {
    /// Whether there was no turn yet.
    pub(super) fn is_nobody(&self) -> bool {
        self.0.is_none()
    }

    /// The calling thread takes a turn.
    pub(super) fn turn(&mut self) -> Drives {
        let here = HERE.with(|here| *here);
        match self.0.replace(here) {
            Some(before) if before == here => Drives::Same,
            Some(_) => Drives::Other,
            None => Drives::First,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_on_another_thread_is_noticed_once() {
        let mut driver = Driver::default();
        let turns = |driver: &mut Driver| [driver.turn(), driver.turn()];
        assert_eq!(turns(&mut driver), [Drives::First, Drives::Same]);
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| turns(&mut driver));
            let elsewhere = elsewhere.join().expect("it takes two turns");
            assert_eq!(elsewhere, [Drives::Other, Drives::Same]);
        });
        assert_eq!(turns(&mut driver), [Drives::Other, Drives::Same]);
    }
}
