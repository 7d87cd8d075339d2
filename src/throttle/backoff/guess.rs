//! Backing off while no rate is known to work: by factors up, by halves of the way down.

use super::bracket::OUTAGE;
use super::meter::Meter;
use super::{LONG_ENOUGH, Rules, Why, scaled, seconds};
use crate::base::time::{Instant, nanos};
use crate::throttle::decision::Event;

/// A delay that is a guess, in nanoseconds, and what is known around it. 0: nothing.
#[derive(Debug)]
pub(super) struct Guess {
    pub delay: u64,
    /// The shortest delay under which a window was quiet.
    pub safe: u64,
    /// The longest delay that was refused.
    pub refused: u64,
    /// The longest that was refused after answers: while nothing is answered, the pace does not
    /// matter.
    pub bound: u64,
    /// Rounds of refusals without an answer between.
    pub unanswered: u8,
}

/// Bounds this close (as a share) are one: between them is nothing to find.
const CLOSE: f64 = 0.05;
/// This close to what was refused, a pace is first known to work before a shorter one is tried: a
/// window of few answers proves less than what is between the two.
const NEAR: f64 = 0.24;

impl Guess {
    /// A delay out of nowhere.
    pub fn at(delay: u64) -> Self {
        Guess {
            delay,
            safe: 0,
            refused: 0,
            bound: 0,
            unanswered: 0,
        }
    }

    /// The first refusal, of requests `asked` apart, after so many answers.
    pub fn first(asked: u64, rules: &Rules<'_>) -> (Self, Why) {
        let mut guess = Guess::at(asked);
        let why = guess.refused(true, rules);
        (guess, why)
    }

    /// A round of refusals.
    pub fn refused(&mut self, answered: bool, rules: &Rules<'_>) -> Why {
        let (old, backoff) = (self.delay, rules.backoff);
        self.refused = old;
        if answered {
            // It may have departed as early as jitter lets it; the base is not jittered by this.
            let earliest = scaled(old, 1.0 + backoff.jitter.low.clamp(-1.0, 0.0));
            self.bound = earliest.max(nanos(rules.base.delay).min(old));
            self.unanswered = 0;
        } else {
            self.unanswered = self.unanswered.saturating_add(1);
        }
        if self.safe > old {
            self.delay = self.safe;
            let back = format!("refused at {} s: back to what was quiet", seconds(old));
            return (Event::Backoff, back.into());
        }
        self.safe = 0;
        self.delay = scaled(old, backoff.delay_factor)
            .max(nanos(backoff.min_delay))
            .min(nanos(backoff.max_delay).max(old));
        let slower = format!("refused at {} s", seconds(old));
        (Event::Backoff, slower.into())
    }

    /// An answer to a request of the present pace: whether the server was closed until then,
    /// whatever the pace.
    pub fn was_closed(&mut self) -> bool {
        std::mem::take(&mut self.unanswered) >= OUTAGE - 1
    }

    /// An answer. A step follows after a window without refusals, if requests of the present pace
    /// were answered in it.
    pub fn quiet(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> Option<Why> {
        let quiet = now.saturating_since(meter.since);
        if quiet < rules.backoff.window || meter.count == 0 {
            return None;
        }
        let base = nanos(rules.base.delay);
        if self.delay <= base {
            // The base has become as slow meanwhile: this guess is over.
            return None;
        }
        let apart = self.delay.saturating_sub(self.refused);
        let near = self.bound > 0 && apart as f64 <= NEAR * self.delay as f64;
        if near && !meter.is_known() && nanos(quiet) < LONG_ENOUGH {
            return None;
        }
        self.safe = self.delay;
        if self.refused >= self.safe
            || (self.safe - self.refused) as f64 <= CLOSE * self.safe as f64
        {
            // It was long ago that this was refused.
            self.refused = 0;
            self.bound = 0;
        }
        let target = self.refused.max(base);
        self.delay = target + (self.safe - target) / 2;
        if self.delay - base <= scaled(base, CLOSE).max(NOTHING) {
            self.delay = base;
        }
        meter.step(now);
        Some((Event::Recover, "a quiet window".into()))
    }
}

/// A delay this short is none.
const NOTHING: u64 = 1_000_000;
