//! What the crawl learns and a later run continues with: recorded as it changes, restored at a resume.
//!
//! A hold is recorded in the turn that learns it, other changes of a scope with the next commit. What is
//! recorded counts without a commit: that the crawl ended does not make a server forget.

use crate::base::time::Wall;
use crate::crawl::core::Core;
use crate::io::Io;
use crate::state::record::{About, Fact};
use crate::state::replay::Facts;

/// Scopes that are recorded in one turn, but for those with new holds.
const SCOPES_PER_TURN: usize = 256;

impl<I: Io> Core<I> {
    /// Records new holds, and part of the other changes that are due.
    pub fn record_facts(&mut self) {
        if !self.journal.is_on() {
            return;
        }
        let at = self.network.wall_at(self.now);
        while let Some((origin, robots)) = self.frontier.poll_robots() {
            self.journal
                .record_fact(About::Robots, &origin, at, &robots);
        }
        let mut is_urgent = false;
        while let Some((name, state)) = self.throttle.poll_urgent(self.now) {
            self.journal.record_fact(About::Scope, &name, at, &state);
            is_urgent = true;
        }
        if is_urgent {
            // Only a power cut may lose it.
            self.journal.flush();
        }
        for _ in 0..SCOPES_PER_TURN {
            let Some((name, state)) = self.throttle.poll_due(self.now) else {
                return;
            };
            self.journal.record_fact(About::Scope, &name, at, &state);
        }
        self.wakeups.turn_again_if(self.throttle.has_due());
    }

    /// A commit begins: what changed until now is due.
    pub fn begin_facts(&mut self) {
        self.throttle.begin_save();
        self.record_facts();
    }

    /// Nothing more is sent: records all changes.
    pub fn record_last_facts(&mut self) {
        self.throttle.begin_save();
        while {
            self.record_facts();
            self.throttle.has_due()
        } {}
        self.journal.record_quiet();
    }

    /// Continues with what an earlier run learned, and records it again. It may have sent until now: each
    /// scope waits for a full gap. `is_quiet`: nothing was sent after the facts.
    pub fn restore_facts(&mut self, facts: Facts, is_quiet: bool) {
        self.throttle.continue_from(is_quiet, self.now);
        let wall = self.network.wall_at(self.now);
        for fact in facts.into_known() {
            // A clock that went back makes nothing older than it is, nor younger in the next run.
            let at = Wall(fact.at).min(wall);
            let Fact {
                about, name, value, ..
            } = &fact;
            let elapsed = wall.saturating_since(at);
            let is_kept = match about {
                About::Scope => self.throttle.restore_scope(name, value, elapsed),
                About::Robots => {
                    let frontier = &mut self.frontier;
                    frontier.restore_robots(name, value, elapsed, self.now)
                }
                About::Host | About::Crawl => true,
            };
            if is_kept {
                self.journal.record_fact(*about, name, at, value);
            }
        }
    }
}
