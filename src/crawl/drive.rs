//! What lets a host drive a crawl from a loop of its own: the descriptor's deadline, and sleep while
//! there is nothing to do.

use super::core::Core;
use super::snapshot::Snapshot;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Tells whoever asked how the crawl does.
    pub fn answer(&self) {
        let snapshot = Snapshot::of(&self.stats, self.progress(), self.halted);
        self.inbox.answer(snapshot);
    }

    /// Sets the deadline that the descriptor carries. What there is to do at once makes it readable.
    pub fn arm_descriptor(&mut self) {
        let deadline = match self.io.has_news() {
            true => Some(self.now),
            false => self.next_deadline(),
        };
        self.io.arm(deadline);
        self.armed = true;
    }

    /// There is something to do that came from outside of a turn: a host that waits takes one.
    pub fn stir(&mut self) {
        self.unfinished = true;
        if std::mem::take(&mut self.armed) {
            self.io.arm(Some(self.now));
        }
    }

    /// Whether nothing at all is under way that somebody outside does not begin.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
            && self.sockets.is_empty()
            && self.frontier.queued() == 0
            && self.mapping.is_empty()
            && self.delayed.len() == 0
            && self.ending.is_empty()
            && self.load.is_none()
            && self.stats_path.is_none()
            && self.sink.is_ready()
    }
}
