//! Moves the crawl from phase to phase, to its end.

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::control::inbox::Stop;
use crate::crawl::control::phase::Phase;
use crate::crawl::core::Core;
use crate::io::Io;

/// Finish reason where the results cannot be written.
const SINK_FAILED: &str = "sink_failed";

/// Finish reason after an order to stop.
const SHUTDOWN: &str = "shutdown";

/// Shortest time that the reader of standard output has to take the rest, however soon a crawl is to
/// stop. Files have all the time they need.
const READER_PATIENCE: Duration = Duration::from_secs(1);

impl<I: Io> Core<I> {
    /// Moves on to the next phase once this one has nothing left.
    pub fn advance_phase(&mut self) {
        if self.output.failure().is_some() && !self.is_failing() {
            self.fail();
            return;
        }
        match self.phase {
            Phase::Running => {
                if let Some(stop) = self.inbox.take_stop() {
                    self.drain(SHUTDOWN, self.grace_of(stop));
                } else if self.frontier.is_page_limit_reached() {
                    self.drain("closespider_pagecount", self.config.stop_grace);
                } else if self.has_failed_too_often() {
                    self.drain("closespider_errorcount", self.config.stop_grace);
                } else if self.ends_at().is_some_and(|at| at <= self.now) {
                    self.drain("closespider_timeout", self.config.stop_grace);
                } else if self
                    .feed
                    .as_ref()
                    .is_some_and(|feed| feed.failure().is_some())
                {
                    self.drain("source_failed", self.config.stop_grace);
                } else if let Some(why) = self.workload.is_stuck(self.now) {
                    self.drain(why, Duration::ZERO);
                } else if self.is_exhausted() {
                    // Submitted before the last handle went, and not yet taken.
                    match self.take_one_in() {
                        true => self.unfinished = true,
                        false => self.flush("finished", None),
                    }
                }
            }
            Phase::Draining {
                reason,
                mut until,
                mut is_stopped,
            } => {
                if let Some(stop) = self.inbox.take_stop() {
                    until = until.min(self.now + self.grace_of(stop));
                    is_stopped = true;
                    self.phase = Phase::Draining {
                        reason,
                        until,
                        is_stopped,
                    };
                }
                let is_over = self.flights.is_empty()
                    && self.unsent.is_empty()
                    && self.pages.is_empty()
                    && self.offers.is_empty();
                if !is_over && self.now >= until {
                    self.cancel_all();
                    // What came is whole, and what it leads to is to be fetched some day.
                    self.work_on(true);
                }
                if is_over || self.now >= until && self.pages.is_empty() {
                    self.flush(reason, is_stopped.then_some(until));
                }
            }
            Phase::Flushing { reason, until } => {
                let is_given_up =
                    reason == SINK_FAILED && until.is_some_and(|until| until <= self.now);
                if is_given_up || self.output.is_done() {
                    self.phase = Phase::Over { reason };
                } else if let Some(stop) = self.inbox.take_stop() {
                    let grace = self.grace_of(stop).max(READER_PATIENCE);
                    let wait = match self.output.has_disk_room() {
                        true => "to be read; in {} s those on standard output are given up",
                        false => "for room on the disk; in {} s they are given up",
                    };
                    let wait = wait.replace("{}", &grace.as_secs_f64().to_string());
                    log::warn!("the last results wait {wait}");
                    let sooner = until.into_iter().chain([self.now + grace]).min();
                    self.phase = Phase::Flushing {
                        reason,
                        until: sooner,
                    };
                } else if until.is_some_and(|until| until <= self.now) {
                    // Who waits for it hears of its failure; without that there is nothing to wait for.
                    self.network.fail_stalled_writes();
                    // What it waits for is tried a last time.
                    self.phase = Phase::Flushing {
                        reason,
                        until: None,
                    };
                }
            }
            Phase::Over { .. } => {}
        }
    }

    fn is_failing(&self) -> bool {
        matches!(
            self.phase,
            Phase::Flushing {
                reason: SINK_FAILED,
                ..
            } | Phase::Over { .. }
        )
    }

    /// A result could not be written: nothing more is fetched. What else the sink has is written as far
    /// as that is possible at once, so that it is known what is lost.
    fn fail(&mut self) {
        let is_finished = matches!(self.phase, Phase::Flushing { .. });
        self.cancel_all();
        self.conclude_all();
        self.network.fail_stalled_writes();
        let until = Some(self.now + self.config.stop_grace);
        if is_finished {
            self.phase = Phase::Flushing {
                reason: SINK_FAILED,
                until,
            };
            self.write_stats();
            self.hand_to_disk();
            self.unfinished = true;
        } else {
            self.flush(SINK_FAILED, until);
        }
    }

    fn grace_of(&self, stop: Stop) -> Duration {
        match stop {
            Stop::Configured => self.config.stop_grace,
            Stop::Within(grace) => grace,
        }
    }

    /// When its time is over (`CLOSESPIDER_TIMEOUT`), if that is limited.
    pub fn ends_at(&self) -> Option<Instant> {
        Some(Instant::START + self.config.max_time?)
    }

    /// Whether it still sends.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether `CLOSESPIDER_ERRORCOUNT` is reached.
    pub fn has_failed_too_often(&self) -> bool {
        let max = self.frontier.settings().errors_max;
        max > 0 && self.output.stats().errors_final >= max
    }

    pub fn is_exhausted(&self) -> bool {
        self.flights.is_empty()
            && self.pages.is_empty()
            && self.frontier.queued() == 0
            && self.mapping.is_empty()
            && self.delayed.len() == 0
            && self.offers.is_empty()
            && self.outage.is_idle()
            && self.unsent.is_empty()
            && self.workload.is_spent()
            && self.feed.as_ref().is_none_or(|feed| feed.is_finished())
            && !self.found.is_any_open()
            // Whoever takes them may submit what they lead to.
            && !self.output.results_wait()
            && self.inbox.is_closed()
    }

    fn drain(&mut self, reason: &'static str, grace: Duration) {
        self.phase = Phase::Draining {
            reason,
            until: self.now + grace,
            is_stopped: reason == SHUTDOWN,
        };
        self.put_back_suspects();
        self.cancel_unsent();
        self.unfinished = true;
    }

    fn flush(&mut self, reason: &'static str, until: Option<Instant>) {
        let until = until.map(|until| until.max(self.now + READER_PATIENCE));
        self.phase = Phase::Flushing { reason, until };
        self.settle_offers();
        // Links of the last pages may have ended unsent in this very turn.
        self.put_all_unsent();
        self.throttle.conclude(self.now);
        self.write_stats();
        self.tell_decisions();
        self.output.finish();
        self.hand_to_disk();
        self.network.submit();
        self.unfinished = true;
    }
}
