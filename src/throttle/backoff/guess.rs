//! Backoff while no working rate is known: the delay grows by a factor and shrinks by half the
//! remaining distance.

use super::meter::Meter;
use super::{OUTAGE_ROUNDS, Rules, StepReason, TESTED_AFTER, scaled, seconds};
use crate::base::time::{Instant, nanos};
use crate::throttle::decision::DecisionEvent;

/// A guessed delay and the bounds known around it, in nanoseconds. 0 means unknown.
#[derive(Debug)]
pub(super) struct Guess {
    pub delay: u64,
    /// The shortest delay at which a window passed without refusals.
    pub safe: u64,
    /// The longest delay that was refused.
    pub refused: u64,
    /// The longest delay that was refused after answers. Refusals while nothing is answered do not
    /// depend on the pace.
    pub bound: u64,
    /// Rounds of refusals without an answer in between.
    pub unanswered: u8,
}

/// Bounds closer than this share of the delay count as equal.
const CLOSE: f64 = 0.05;
/// Within this share of a refused delay, the present delay must be known to work before a shorter
/// one is tried: a window with few answers proves less than the difference.
const NEAR: f64 = 0.24;

impl Guess {
    /// A guess without known bounds.
    pub fn at(delay: u64) -> Self {
        Guess {
            delay,
            safe: 0,
            refused: 0,
            bound: 0,
            unanswered: 0,
        }
    }

    /// The first refusal, of requests sent `asked` apart.
    pub fn first(asked: u64, rules: &Rules<'_>) -> (Self, StepReason) {
        let mut guess = Guess::at(asked);
        let why = guess.refused(true, rules);
        (guess, why)
    }

    /// Handles a round of refusals. `answered`: requests were answered since the round before.
    pub fn refused(&mut self, answered: bool, rules: &Rules<'_>) -> StepReason {
        let (old, backoff) = (self.delay, rules.backoff);
        self.refused = old;
        if answered {
            // Jitter may have sent it this early; the base delay has a jitter of its own.
            let earliest = scaled(old, 1.0 + backoff.jitter.low.clamp(-1.0, 0.0));
            self.bound = earliest.max(nanos(rules.base.delay).min(old));
            self.unanswered = 0;
        } else {
            self.unanswered = self.unanswered.saturating_add(1);
        }
        if self.safe > old {
            self.delay = self.safe;
            let back = format!(
                "refused at {} s: back to the last delay without refusals",
                seconds(old)
            );
            return (DecisionEvent::Backoff, back.into());
        }
        self.safe = 0;
        self.delay = scaled(old, backoff.delay_factor)
            .max(nanos(backoff.min_delay))
            .min(nanos(backoff.max_delay).max(old));
        let slower = format!("refused at {} s", seconds(old));
        (DecisionEvent::Backoff, slower.into())
    }

    /// Handles an answer to a request of the present pace. Returns whether the server refused
    /// everything until then.
    pub fn was_closed(&mut self) -> bool {
        std::mem::take(&mut self.unanswered) >= OUTAGE_ROUNDS - 1
    }

    /// Handles an answer. Makes a step after a window without refusals in which requests of the
    /// present pace were answered.
    pub fn quiet(
        &mut self,
        meter: &mut Meter,
        rules: &Rules<'_>,
        now: Instant,
    ) -> Option<StepReason> {
        let quiet = now.saturating_since(meter.since);
        if quiet < rules.backoff.window || meter.count == 0 {
            return None;
        }
        let base = nanos(rules.base.delay);
        if self.delay <= base {
            // The base delay has become at least as long: this guess is obsolete.
            return None;
        }
        let apart = self.delay.saturating_sub(self.refused);
        let near = self.bound > 0 && apart as f64 <= NEAR * self.delay as f64;
        if near && !meter.is_known() && nanos(quiet) < TESTED_AFTER {
            return None;
        }
        self.safe = self.delay;
        if self.refused >= self.safe
            || (self.safe - self.refused) as f64 <= CLOSE * self.safe as f64
        {
            // This delay was refused too long ago to count.
            self.refused = 0;
            self.bound = 0;
        }
        let target = self.refused.max(base);
        self.delay = target + (self.safe - target) / 2;
        if self.delay - base <= scaled(base, CLOSE).max(DELAY_NEGLIGIBLE) {
            self.delay = base;
        }
        meter.step(now);
        Some((DecisionEvent::Recover, "a window without refusals".into()))
    }
}

/// Delays of at most this many nanoseconds (1 ms) above the base count as the base.
const DELAY_NEGLIGIBLE: u64 = 1_000_000;
