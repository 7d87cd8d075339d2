//! How far a crawl has come, and how it comes to its end: it sends, it waits for what is on its way,
//! its sink writes the rest.

use std::time::Duration;

use super::core::Core;
use super::embed::inbox::Stop;
use super::embed::pull::Pull;
use crate::base::time::Instant;
use crate::io::Io;

/// How far a crawl has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It sends.
    Running,
    /// It sends nothing more and waits for what is in flight.
    Draining {
        reason: &'static str,
        until: Instant,
        /// A stop was ordered, as the reason or beside it: the last writes have until then, too.
        is_stopped: bool,
    },
    /// The sink writes the rest. After an order to stop, the reader of standard output has
    /// limited time to take it.
    Flushing {
        reason: &'static str,
        until: Option<Instant>,
    },
    /// It is over.
    Over { reason: &'static str },
}

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
        if self.sink.failure().is_some() && !self.is_failing() {
            self.fail();
            return;
        }
        match self.phase {
            Phase::Running => {
                if let Some(stop) = self.inbox.take_stop() {
                    self.drain(SHUTDOWN, self.grace_of(stop));
                } else if self.frontier.is_spent() {
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
                } else if let Some(why) = self.load.as_ref().and_then(|l| l.is_stuck(self.now)) {
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
                let is_over =
                    self.flights.is_empty() && self.ending.is_empty() && self.work.is_empty();
                if !is_over && self.now >= until {
                    self.cancel_all();
                    // What came is whole, and what it leads to is to be fetched some day.
                    self.work_on(true);
                }
                if is_over || self.now >= until && self.work.is_empty() {
                    self.flush(reason, is_stopped.then_some(until));
                }
            }
            Phase::Flushing { reason, until } => {
                let is_given_up =
                    reason == SINK_FAILED && until.is_some_and(|until| until <= self.now);
                if is_given_up || self.sink.is_done() && self.stats_under_way == 0 {
                    self.phase = Phase::Over { reason };
                } else if let Some(stop) = self.inbox.take_stop() {
                    let grace = self.grace_of(stop).max(READER_PATIENCE);
                    let wait = match self.storage.has_room() {
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
                    self.io.give_up_waiting();
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
        self.io.give_up_waiting();
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
        max > 0 && self.stats.errors_final >= max
    }

    pub fn is_exhausted(&self) -> bool {
        self.flights.is_empty()
            && self.work.is_empty()
            && self.frontier.queued() == 0
            && self.mapping.is_empty()
            && self.delayed.len() == 0
            && self.outage.is_idle()
            && self.ending.is_empty()
            && self.load.as_ref().is_none_or(|load| load.is_spent())
            && self.feed.as_ref().is_none_or(|feed| feed.is_finished())
            && !self.found.is_any_open()
            // Whoever takes them may submit what they lead to.
            && self.pull.as_ref().is_none_or(Pull::is_empty)
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
        // Links of the last pages may have ended unsent in this very turn.
        self.tell_all_ended();
        self.throttle.conclude(self.now);
        self.write_stats();
        self.tell_decisions();
        self.sink.finish(&mut self.disk);
        self.hand_to_disk();
        self.io.submit();
        self.unfinished = true;
    }
}
