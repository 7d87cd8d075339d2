//! Moves the crawl from phase to phase, to its end.

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::control::phase::Phase;
use crate::crawl::core::Core;
use crate::crawl::finish::FinishReason;
use crate::io::Io;

/// Shortest time that the reader of standard output has to take the rest, however soon a crawl is to
/// stop. Files have all the time they need.
const READER_PATIENCE: Duration = Duration::from_secs(1);

impl<I: Io> Core<I> {
    /// Enters the next phase once this one has nothing left to do.
    pub fn advance_phase(&mut self) {
        if self.has_lost_writes() && !self.control.phase().has_failed() {
            return self.fail();
        }
        match self.control.phase() {
            Phase::Running => self.advance_running(),
            Phase::Draining {
                reason,
                until,
                is_stopped,
            } => self.advance_draining(reason, until, is_stopped),
            Phase::Flushing { reason, until } => self.advance_flushing(reason, until),
            Phase::Over { .. } => {}
        }
    }

    fn advance_running(&mut self) {
        if let Some((reason, grace)) = self.reason_to_drain() {
            self.drain(reason, grace);
        } else if self.is_exhausted() {
            // Submitted or ordered before the last handle was dropped, and not taken yet.
            let is_taken = self.take_submission();
            let has_commands = self.control.has_commands();
            // Commands that wait for the disk are taken after the next commit.
            let has_next = is_taken || has_commands && !self.is_behind_with_orders();
            match is_taken || has_commands {
                true => self.wakeups.turn_again_if(has_next),
                false if self.control.close_submissions_if_done() => {
                    self.flush(FinishReason::Finished, None);
                }
                // Submitted by another thread in the meantime.
                false => self.wakeups.turn_again(),
            }
        }
    }

    /// Why nothing more is sent though there are requests left, and how long those in flight may take.
    fn reason_to_drain(&mut self) -> Option<(FinishReason, Duration)> {
        if let Some(grace) = self.control.poll_stop() {
            return Some((FinishReason::Shutdown, grace));
        }
        let ends_at = self.control.ends_at();
        let reason = if self.frontier.is_page_limit_reached() {
            FinishReason::PageCount
        } else if self.has_failed_too_often() {
            FinishReason::ErrorCount
        } else if self.has_received_all() {
            // Those in flight would receive more than was allowed.
            return Some((FinishReason::ByteCount, Duration::ZERO));
        } else if ends_at.is_some_and(|at| at <= self.now) {
            FinishReason::Timeout
        } else if self.control.source_error().is_some() {
            FinishReason::SourceFailed
        } else {
            let reason = self.workload.is_stuck(self.now)?;
            return Some((reason, Duration::ZERO));
        };
        Some((reason, self.config.stop_grace))
    }

    fn advance_draining(&mut self, reason: FinishReason, mut until: Instant, mut is_stopped: bool) {
        // What is left in queues is still to be fetched.
        self.finish_removals();
        if let Some(grace) = self.control.poll_stop() {
            until = until.min(self.now + grace);
            is_stopped = true;
            self.control.set_phase(Phase::Draining {
                reason,
                until,
                is_stopped,
            });
        }
        let is_over = self.is_drained();
        let is_last = self.now >= until || self.waits_in_vain();
        if !is_over && is_last {
            if self.applies_last_commands() {
                return;
            }
            self.cancel_all();
            // Replies that arrived are whole, and their links are pending.
            self.process_pages(true);
            // The turn has submitted already, and waits for what this queues.
            self.network.submit();
        }
        if is_over || is_last && !self.has_pages() {
            let is_limit = reason == FinishReason::Timeout && self.is_out_of_time_for_disk();
            self.flush(reason, (is_stopped || is_limit).then_some(until));
        }
    }

    fn advance_flushing(&mut self, reason: FinishReason, until: Option<Instant>) {
        let is_time_up = until.is_some_and(|until| until <= self.now);
        self.finish_output();
        // Results that are not acknowledged are fetched again by the run that resumes the crawl. A limit of time
        // bounds the wait for the disk alone.
        let is_bounded = self.control.is_stopping() || !self.output.has_disk_room();
        let is_uncommitted = self.output.is_abandoned()
            || is_time_up && is_bounded && self.output.is_unacknowledged();
        let is_lost = is_time_up && reason == FinishReason::SinkFailed;
        // An order is acknowledged before the crawl is over, unless the state cannot have what it changed.
        let waits_for_orders = self.is_recording_orders() && !self.has_lost_writes();
        let is_written = self.is_written() && !waits_for_orders;
        if is_written || is_lost || is_uncommitted {
            self.end_commits();
            self.control.set_phase(Phase::Over { reason });
        } else if let Some(grace) = self.control.poll_stop() {
            self.bound_flushing(reason, until, grace);
        } else if until.is_none()
            && self.is_out_of_time_for_disk()
            && self.control.poll_time_limit(self.now)
        {
            self.bound_flushing(reason, until, self.config.stop_grace);
        } else if is_time_up {
            // Writes are tried a last time; where they fail again the crawl is over. A later run makes the missing
            // indexes.
            self.network.fail_stalled_writes();
            self.network.give_up_derivations();
            // None is to be bounded again.
            self.control.poll_time_limit(self.now);
            let until = None;
            self.control.set_phase(Phase::Flushing { reason, until });
        }
    }

    /// The last writes have this time at most.
    fn bound_flushing(&mut self, reason: FinishReason, until: Option<Instant>, grace: Duration) {
        self.network.give_up_derivations();
        let grace = grace.max(READER_PATIENCE);
        let wait = match self.output.has_disk_room() {
            true => "for their reader; after {} s those for standard output are discarded",
            false => "for disk space; after {} s they are discarded",
        };
        let wait = wait.replace("{}", &grace.as_secs_f64().to_string());
        log::warn!("the last results wait {wait}");
        let until = until.into_iter().chain([self.now + grace]).min();
        self.control.set_phase(Phase::Flushing { reason, until });
    }

    /// Whether `CLOSESPIDER_TIMEOUT` is reached while writes wait for disk space: the limit bounds that pause, too.
    fn is_out_of_time_for_disk(&self) -> bool {
        let ends_at = self.control.ends_at();
        !self.output.has_disk_room() && ends_at.is_some_and(|at| at <= self.now)
    }

    /// A result could not be written: nothing more is fetched. What else the sink has is written as far
    /// as that is possible at once, so that it is known what is lost.
    fn fail(&mut self) {
        let is_flushing = self.control.phase().is_flushing();
        self.control.close_submissions();
        self.cancel_all();
        self.conclude_all();
        self.network.fail_stalled_writes();
        let until = Some(self.now + self.config.stop_grace);
        if is_flushing {
            let reason = FinishReason::SinkFailed;
            self.control.set_phase(Phase::Flushing { reason, until });
            self.write_stats();
            self.hand_to_disk();
            self.wakeups.turn_again();
        } else {
            self.flush(FinishReason::SinkFailed, until);
        }
    }

    fn drain(&mut self, reason: FinishReason, grace: Duration) {
        self.control.close_submissions();
        self.control.set_phase(Phase::Draining {
            reason,
            until: self.now + grace,
            is_stopped: reason == FinishReason::Shutdown,
        });
        self.requeue_suspects();
        self.cancel_unsent();
        self.wakeups.turn_again();
    }

    /// Accepts no more commands. Returns whether some are to be applied first: the last commit has their effects,
    /// and what they cancel is not left to a later run.
    fn applies_last_commands(&mut self) -> bool {
        let waits = self.control.close_commands() && !self.has_lost_writes();
        self.wakeups.turn_again_if(waits);
        waits
    }

    fn flush(&mut self, reason: FinishReason, until: Option<Instant>) {
        if self.applies_last_commands() {
            return;
        }
        let until = until.map(|until| until.max(self.now + READER_PATIENCE));
        if self.throttle.has_visits() {
            // Scopes are saved by the settings that they have now, and orders are acknowledged.
            return self.wakeups.turn_again();
        }
        self.keep_offers();
        // Links of the last pages may have ended unsent in this very turn.
        self.put_all_unsent();
        self.control.set_phase(Phase::Flushing { reason, until });
        self.log_end(reason);
        self.throttle.conclude(self.now);
        self.write_stats();
        self.report_decisions();
        self.finish_output();
        self.hand_to_disk();
        self.network.submit();
        self.wakeups.turn_again();
    }
}
