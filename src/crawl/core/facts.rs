//! What the crawl learns and a later run continues with: recorded as it changes, restored at a resume.
//!
//! A hold is recorded in the turn that learns it, other changes of a scope with the next commit. What is
//! recorded counts without a commit: that the crawl ended does not make a server forget.

use std::time::Duration;

use crate::base::time::{Wall, nanos};
use crate::crawl::core::Core;
use crate::crawl::stats::Totals;
use crate::frontier::saved_counts::Counts;
use crate::io::Io;
use crate::state::record::{About, Fact};
use crate::state::replay::Facts;

/// Scopes that are recorded in one turn, but for those with new holds.
const SCOPES_PER_TURN: usize = 256;

/// Facts of an earlier run that are reviewed in one turn, at most half a microsecond each. In tests there are several
/// turns.
const REVIEWED_PER_TURN: usize = if cfg!(test) { 3 } else { 256 };

/// Hosts and domains whose counts are recorded by the commit that follows; of more some are recorded before.
const COUNTS_PER_COMMIT: usize = if cfg!(test) { 4 } else { 256 };

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
        self.record_public_hosts(at);
        while self.frontier.changed_counts() > COUNTS_PER_COMMIT {
            self.record_changed_count(at);
        }
        let mut is_urgent = false;
        while let Some((host, failure)) = self.frontier.poll_failure(self.now) {
            self.journal.record_fact(About::Host, &host, at, &failure);
            is_urgent = true;
        }
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

    /// Records the counts of limits that changed: they belong to the epoch.
    fn record_counts(&mut self) {
        let at = self.network.wall_at(self.now);
        while self.record_changed_count(at) {}
        let totals = self.totals();
        let counts = Counts {
            pages: totals.pages,
            errors: totals.errors,
            bytes: totals.bytes,
            active: nanos(totals.active),
            ..Counts::default()
        };
        let counts = counts.to_bytes();
        self.journal.record_fact(About::Counts, "", at, &counts);
    }

    /// What the limits of the crawl count.
    pub fn totals(&self) -> Totals {
        let stats = self.output.stats();
        Totals {
            pages: self.frontier.pages(),
            errors: stats.errors_earlier + stats.errors_final,
            bytes: self.network.received(),
            active: self.control.active_time(self.now),
        }
    }

    /// Records the counts of a host or a domain that changed. Returns false if there is none.
    fn record_changed_count(&mut self, at: Wall) -> bool {
        let Some((name, counts)) = self.frontier.poll_counts() else {
            return false;
        };
        let counts = counts.to_bytes();
        self.journal.record_fact(About::Counts, &name, at, &counts);
        true
    }

    /// A commit begins: what changed until now is due.
    pub fn begin_facts(&mut self) {
        self.record_counts();
        self.throttle.begin_save();
        self.record_facts();
    }

    /// Nothing more is sent: records all changes.
    pub fn record_last_facts(&mut self) {
        self.record_counts();
        self.throttle.begin_save();
        while {
            self.record_facts();
            self.throttle.has_due()
        } {}
        if !self.throttle.knows_all_sends(self.now) {
            return;
        }
        let at = self.network.wall_at(self.now);
        for name in self.throttle.open_gaps(self.now) {
            self.journal.record_fact(About::OpenGap, name, at, &[1]);
        }
        self.journal.record_quiet();
    }

    /// Continues with what an earlier run learned; what has no effect any more is recorded as such. That run may
    /// have sent until now: then each scope waits for a full gap. `is_quiet`: nothing was sent after the facts.
    pub fn restore_facts(&mut self, mut facts: Facts, is_quiet: bool) {
        self.throttle.continue_from(is_quiet, self.now);
        let wall = self.network.wall_at(self.now);
        self.restore_settings(&facts.take_kind(About::Setting));
        // There may be millions: each is read once its scope or its origin is in use, or reviewed later.
        let scopes = facts.take_kind(About::Scope);
        self.throttle.restore_scopes(scopes, wall);
        let robots = facts.take_kind(About::Robots);
        self.frontier.restore_robots(robots, (self.now, wall));
        for fact in facts.into_known() {
            // A clock that went back makes nothing older than it is, nor younger in the next run.
            let at = Wall(fact.at).min(wall);
            let Fact {
                about, name, value, ..
            } = &fact;
            let elapsed = wall.saturating_since(at);
            let is_kept = match about {
                About::ScopeSettings => {
                    let order = self.restore_scope_settings(name, value);
                    let order = order.unwrap_or_default().into_bytes();
                    if order != *value {
                        self.journal.record_fact(*about, name, at, &order);
                        continue;
                    }
                    true
                }
                About::Scope | About::Robots | About::Setting => {
                    unreachable!("they were taken")
                }
                About::Host => {
                    let frontier = &mut self.frontier;
                    frontier.restore_failure(name, value, elapsed, self.now)
                }
                About::Counts => self.restore_counts(name, value),
                // They apply once the requests are there.
                About::Cancelled | About::CancelledScope => true,
                About::Paused => self.restore_pause(),
                About::Excluded => self.restore_exclusion(name),
                About::HostPriority => self.restore_host_priority(name, value),
                About::LogLevel => self.restore_log_level(value),
                About::Cookies => self.restore_cookies(value, elapsed),
                About::SeedOrigin => self.restore_seed_origin(name),
                About::PublicHost => self.restore_public_host(name),
                About::Forgotten => {
                    // As its clock was: by it the states were saved, too.
                    self.throttle.restore_forgotten(name, Wall(fact.at))
                }
                About::OpenGap => {
                    self.throttle.restore_open_gap(name);
                    // It is recorded again when nothing more is sent.
                    false
                }
            };
            match is_kept {
                false => self.journal.record_fact(*about, name, at, &[]),
                // From now on its time is that of this clock.
                true if at.0 < fact.at => self.journal.record_fact(*about, name, at, value),
                true => {}
            }
        }
    }

    /// Reviews some of what an earlier run learned of scopes and origins that are not in use: what has no effect any
    /// more is recorded as such.
    pub fn review_facts(&mut self) {
        if !self.is_running() {
            return;
        }
        let at = self.network.wall_at(self.now);
        for _ in 0..REVIEWED_PER_TURN {
            let scope = self.throttle.review_saved(self.now);
            let reviewed = scope.map(|scope| (About::Scope, scope)).or_else(|| {
                let robots = self.frontier.review_robots(self.now)?;
                Some((About::Robots, robots))
            });
            match reviewed {
                Some((about, Some((name, value)))) => {
                    self.journal.record_fact(about, &name, at, &value);
                }
                Some((_, None)) => {}
                None => return,
            }
        }
        self.wakeups.turn_again();
    }

    /// A limit that earlier runs have reached ends this run at once.
    fn warn_of_limits(&self, counts: Counts) {
        let is_over = self.control.ends_at().is_some_and(|at| at <= self.now);
        let reached = [
            (
                self.frontier.is_page_limit_reached(),
                "--max-pages (CLOSESPIDER_PAGECOUNT)",
            ),
            (self.has_failed_too_often(), "CLOSESPIDER_ERRORCOUNT"),
            (
                self.has_received_all(),
                "--max-bytes (CLOSESPIDER_BYTECOUNT)",
            ),
            (is_over, "--max-time (CLOSESPIDER_TIMEOUT)"),
        ];
        for (_, name) in reached.iter().filter(|(is_reached, _)| *is_reached) {
            log::warn!(
                "{name} is for all runs of the crawl, which has {} pages, {} errors, {} bytes and {:.0?} so far: \
                 raise it to continue",
                counts.pages,
                counts.errors,
                counts.bytes,
                Duration::from_nanos(counts.active)
            );
        }
    }

    fn restore_counts(&mut self, name: &str, value: &[u8]) -> bool {
        let Some(counts) = Counts::from_bytes(value) else {
            return false;
        };
        self.frontier.restore_counts(name, counts);
        if name.is_empty() {
            self.output.stats_mut().errors_earlier = counts.errors;
            self.network.restore_received(counts.bytes);
            let active = Duration::from_nanos(counts.active);
            self.control.count_earlier(active, &self.config);
            self.warn_of_limits(counts);
        }
        true
    }
}
