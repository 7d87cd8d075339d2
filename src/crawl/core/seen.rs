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
        for (key, is_present) in runs.poll_answers().into_iter().flatten() {
            seen.handle_answer(key, is_present);
        }
        let change = runs.poll_change();
        if let Some(change) = &change {
            seen.set_runs(change.runs.clone(), change.has_frozen);
        }
        // What is decided while the crawl ends is not in the journal, so that it must be in no run.
        let freezes = is_running && seen.is_to_be_frozen() && runs.may_spill();
        let keys = seen.take_questions(runs.room());
        let has_step = !keys.is_empty() || runs.step();
        if !keys.is_empty() {
            runs.ask(keys);
        }
        if let Some(piece) = runs.wanted_piece() {
            runs.put_piece(&seen.frozen_piece(piece));
        }
        let frozen = freezes.then(|| {
            seen.freeze();
            runs.begin_spill(seen.frozen_pieces())
        });
        if let Some(change) = &change {
            self.journal.record_runs(change);
        }
        if let Some(run) = frozen {
            self.journal.record_seen_frozen(run);
        }
        self.wakeups.turn_again_if(has_step || frozen.is_some());
    }
}
