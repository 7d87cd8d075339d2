//! The seen set on disk: its keys go to runs, and what only a run can answer is asked there.

use crate::crawl::core::Core;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Advances the seen set on disk, by a step of a millisecond or two at most.
    pub fn advance_seen(&mut self) {
        let is_running = self.is_running();
        let is_fetching = self.control.phase().is_fetching();
        let Some(runs) = self.journal.seen().filter(|_| is_fetching) else {
            return;
        };
        let seen = self.frontier.seen_mut();
        // What is decided while the crawl ends is not in the journal, so that it must be in no run.
        let advance = runs.advance(seen, is_running);
        if let Some(change) = &advance.change {
            self.journal.record_runs(change);
        }
        if let Some(run) = advance.frozen {
            self.record_spilled();
            self.journal.record_seen_frozen(run);
        }
        self.wakeups.turn_again_if(advance.has_step);
    }
}
