//! What refusals do to the pace of one scope: it backs off, looks for the limit, and stays there.
//!
//! ```text
//!          refused, rate unknown             10 answers at one pace
//!   Calm ───────────────────────► Guessing ─────────────────────────┐
//!    │ ▲                             │ quiet windows                ▼
//!    │ └─────────────────────────────┴──────────────────────── Following
//!    └──────────────── refused, rate known ───────────────────────► ▲
//! ```
//!
//! *Calm* asks for nothing. *Guessing* knows of no rate that works: the delay doubles with each
//! round of refusals, and comes back by a step per quiet window (`guess`). *Following* knows one,
//! and searches between it and the slowest that was refused, in steps as short as it takes to see
//! (`bracket`). Rampup is a search that begins before anything was refused (`rampup`).
//!
//! A *round* is all refusals of requests that departed before the first of them was known.

mod guess;
mod bracket;
mod search;
mod rampup;
mod meter;
mod noise;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod goals;

use std::borrow::Cow;
use std::time::Duration;

use self::bracket::Bracket;
use self::guess::Guess;
use self::meter::Meter;
use self::noise::Noise;
use super::decision::Event;
use super::settings::{self, Jitter};
use super::strategy::Pace;
use crate::base::time::{Instant, nanos};

/// What one scope has learned from refusals, and the pace that follows from it.
#[derive(Debug)]
pub(super) struct Backoff {
    state: State,
    meter: Meter,
    noise: Noise,
    /// How often concurrency was cut.
    cuts: u8,
}

#[derive(Debug)]
enum State {
    /// Nothing binds; the rate is measured.
    Calm,
    /// No rate is known to work.
    Guessing(Guess),
    /// One is.
    Following(Bracket),
}

/// What holds for the scope at the moment of a call. May differ from call to call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    /// The scope's `backoff`.
    pub backoff: &'a settings::Backoff,
    /// The scope's `rampup`, where it is on.
    pub rampup: Option<&'a settings::Rampup>,
    /// The pace without backoff: configured, or AutoThrottle's. Never gone beyond but by rampup,
    /// for which it is where to begin.
    pub base: Pace,
    /// How far rampup may raise the concurrency.
    pub concurrency_max: u32,
}

/// A change of the pace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub before: Pace,
    pub after: Pace,
    pub event: Event,
    pub reason: Cow<'static, str>,
}

/// What remains of a scope that went idle: the limits that still bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Learned {
    gap: u64,
    refused: u64,
    known: bool,
    cuts: u8,
    lanes: u32,
}

/// What a state's step was, for the log.
type Why = (Event, Cow<'static, str>);

impl Learned {
    /// The gap that is known to work, where one is.
    pub fn gap(&self) -> Option<Duration> {
        self.known.then(|| Duration::from_nanos(self.gap))
    }
}

impl Backoff {
    /// Nothing learned.
    pub fn new(now: Instant) -> Self {
        Backoff {
            state: State::Calm,
            meter: Meter::new(now),
            noise: Noise::default(),
            cuts: 0,
        }
    }

    /// Backs off from the beginning, by this delay (the seeds' `get_initial_backoff`).
    #[cfg(test)]
    pub fn starting_at(delay: Duration, now: Instant) -> Self {
        Backoff {
            state: State::Guessing(Guess::at(nanos(delay))),
            ..Backoff::new(now)
        }
    }

    /// What was kept of a scope that went idle. Its first answers are a probe.
    pub fn from_learned(learned: Learned, now: Instant) -> Self {
        let state = match (learned.gap, learned.known) {
            (0, _) => State::Calm,
            (gap, false) => State::Guessing(Guess::at(gap)),
            (gap, true) => {
                let (refused, lanes) = (learned.refused, learned.lanes);
                State::Following(Bracket::remembered(gap, refused, lanes, now))
            }
        };
        let mut backoff = Backoff {
            state,
            cuts: learned.cuts,
            ..Backoff::new(now)
        };
        // What is given from now on is compared with that limit.
        backoff.meter.anchor(now);
        backoff
    }

    /// The limits that still bind; `None` where there are none.
    pub fn compact(&self) -> Option<Learned> {
        let (gap, refused, known, lanes) = match &self.state {
            State::Calm => (0, 0, false, 0),
            State::Guessing(guess) => (guess.delay, 0, false, 0),
            State::Following(bracket) => (bracket.gap, bracket.refused, true, bracket.lanes),
        };
        (gap > 0 || self.cuts > 0).then_some(Learned {
            gap,
            refused,
            known,
            cuts: self.cuts,
            lanes,
        })
    }

    /// Whether it asks for nothing; what rampup looks for aside.
    pub fn is_calm(&self) -> bool {
        matches!(self.state, State::Calm) && self.cuts == 0
    }

    /// The pace it asks for: never faster than the base, save for rampup.
    pub fn pace(&self, rules: &Rules<'_>) -> Pace {
        let base = rules.base;
        let gap = match &self.state {
            State::Calm => 0,
            State::Guessing(guess) => guess.delay,
            State::Following(bracket) => bracket.gap,
        };
        let asked = Duration::from_nanos(gap);
        let (delay, lanes) = match (rules.rampup, &self.state) {
            (Some(_), State::Calm) => (base.delay, base.concurrency),
            (Some(rampup), State::Following(bracket)) => (
                asked.max(rampup.min_delay),
                bracket.lanes.max(base.concurrency),
            ),
            _ => (asked.max(base.delay), base.concurrency),
        };
        let concurrency = match self.cuts {
            0 => lanes.max(1),
            cuts => {
                let factor = rules.backoff.concurrency_factor.powi(i32::from(cuts));
                ((f64::from(lanes) * factor) as u32).max(1)
            }
        };
        Pace { delay, concurrency }
    }

    /// The jitter it asks for; `None` leaves it to the scope.
    pub fn jitter(&self, rules: &Rules<'_>) -> Option<Jitter> {
        match &self.state {
            State::Calm => None,
            State::Guessing(_) => Some(rules.backoff.jitter),
            // A pace close under the limit has no room for more.
            State::Following(bracket) => {
                let base = nanos(rules.base.delay);
                let binds = rules.rampup.is_some() || bracket.gap > base;
                binds.then(|| bracket.jitter_above(if rules.rampup.is_some() { 0 } else { base }))
            }
        }
    }

    /// Nothing departs until then because the server said so: that time is no idle time.
    pub fn held(&mut self, until: Instant) {
        if let State::Following(bracket) = &mut self.state {
            bracket.held(self.meter.silent_until(until), until);
        }
        self.meter.held(until);
        // Who says when to come again refuses for a reason.
        self.noise = Noise::default();
    }

    /// An answer that is no refusal, to a request that departed at `sent`.
    pub fn success(
        &mut self,
        rules: &Rules<'_>,
        sent: Instant,
        latency: Option<Duration>,
        now: Instant,
    ) -> Option<Step> {
        let before = self.pace(rules);
        self.hear(rules, before.delay, sent, latency, now);
        if let (Some(rampup), State::Calm) = (rules.rampup, &self.state) {
            let start = Bracket::ramping(before, rampup, now);
            self.state = State::Following(start);
            self.meter.step(now);
            return None;
        }
        let why = self.regain_concurrency(rules, now).or_else(|| {
            if let Some(why) = self.reopened(sent, now) {
                return Some(why);
            }
            self.leave_guess(rules, now);
            match &mut self.state {
                State::Calm => {
                    self.meter.forget_slowly();
                    None
                }
                State::Guessing(guess) => guess.quiet(&mut self.meter, rules, now),
                State::Following(bracket) => {
                    bracket.success(&mut self.meter, rules, before, sent, now)
                }
            }
        });
        self.calm_down(rules);
        self.step(rules, before, why)
            .filter(|step| step.before != step.after)
    }

    /// The same of one that is calm, and where rampup looks for nothing: no more comes of it than a
    /// better measure.
    pub fn measure(
        &mut self,
        rules: &Rules<'_>,
        sent: Instant,
        latency: Option<Duration>,
        now: Instant,
    ) {
        self.hear(rules, rules.base.delay, sent, latency, now);
        self.meter.forget_slowly();
    }

    fn hear(
        &mut self,
        rules: &Rules<'_>,
        asked: Duration,
        sent: Instant,
        latency: Option<Duration>,
        now: Instant,
    ) {
        if now.saturating_since(self.meter.quiet_since) >= rules.backoff.window {
            self.noise.is_none();
        }
        self.noise.answered();
        self.meter.accepted(sent, latency, nanos(asked));
    }

    /// A refusal of a request that departed at `sent`. `None` where it belongs to a round that was
    /// counted before.
    pub fn refused(
        &mut self,
        rules: &Rules<'_>,
        sent: Instant,
        latency: Option<Duration>,
        now: Instant,
    ) -> Option<Step> {
        let before = self.pace(rules);
        let asked = nanos(before.delay);
        self.meter.refused(sent, latency, asked);
        let fresh = matches!(self.state, State::Calm);
        if sent < self.meter.since && !fresh {
            return None;
        }
        if sent < self.meter.quiet_since && !matches!(self.state, State::Guessing(_)) {
            return None;
        }
        self.meter.quiet_since = now;
        if self.noise.explains(asked) && !matches!(self.state, State::Guessing(_)) {
            return None;
        }
        let max = nanos(rules.backoff.max_delay);
        let exhausted = !fresh && asked >= max;
        let why: Why = match &mut self.state {
            State::Calm if self.meter.is_known() => {
                let real = self.meter.refused_gap(asked);
                let (bracket, why) = Bracket::after_first(&self.meter, real, rules, now);
                self.state = State::Following(bracket);
                why
            }
            State::Calm => {
                let (guess, why) = Guess::first(asked, rules);
                self.state = State::Guessing(guess);
                why
            }
            State::Guessing(guess) => guess.refused(self.meter.given > 0, rules),
            State::Following(bracket) => {
                bracket.refused(&self.meter, &mut self.noise, rules, asked, now)
            }
        };
        if exhausted && before.concurrency > 1 {
            self.cuts = self.cuts.saturating_add(1);
        }
        self.meter.anchor(sent);
        self.meter.step(now);
        self.step(rules, before, Some(why))
    }

    /// Gives concurrency back after a quiet window: it was cut last, so it comes back first.
    fn regain_concurrency(&mut self, rules: &Rules<'_>, now: Instant) -> Option<Why> {
        let quiet = now.saturating_since(self.meter.quiet_since) >= rules.backoff.window;
        if self.cuts == 0 || !quiet || self.meter.count == 0 {
            return None;
        }
        self.cuts -= 1;
        self.meter.quiet_since = now;
        self.meter.step(now);
        Some((Event::Recover, "a quiet window: more at once".into()))
    }

    /// A guess under which enough was answered is a known rate.
    fn leave_guess(&mut self, rules: &Rules<'_>, now: Instant) {
        if let State::Guessing(guess) = &self.state
            && self.cuts == 0
            && self.meter.is_known()
        {
            let bracket = Bracket::after_guess(guess, rules, now);
            self.state = State::Following(bracket);
        }
    }

    /// The server answers again after it had answered nothing for a while: what it gave over all
    /// of that time is a known rate, however slow the guess became meanwhile.
    fn reopened(&mut self, sent: Instant, now: Instant) -> Option<Why> {
        let State::Guessing(guess) = &mut self.state else {
            return None;
        };
        if sent < self.meter.since || !guess.was_closed() || self.cuts > 0 {
            return None;
        }
        let gap = self.meter.reopened()?;
        let old = guess.delay;
        if gap >= old {
            return None;
        }
        let bracket = Bracket::after_outage(gap, &self.meter, now);
        self.state = State::Following(bracket);
        self.meter.step(now);
        Some((Event::Recover, bracket::answered_again(old)))
    }

    /// Ends where nothing binds any more.
    fn calm_down(&mut self, rules: &Rules<'_>) {
        let base = nanos(rules.base.delay);
        let over = match &self.state {
            State::Calm => false,
            State::Guessing(guess) => guess.delay <= base,
            State::Following(bracket) => rules.rampup.is_none() && bracket.is_over(base),
        };
        if over {
            self.state = State::Calm;
        }
    }

    fn step(&self, rules: &Rules<'_>, before: Pace, why: Option<Why>) -> Option<Step> {
        let (event, reason) = why?;
        Some(Step {
            before,
            after: self.pace(rules),
            event,
            reason,
        })
    }
}

/// However slow the pace, so many nanoseconds tell whether it works: two minutes. What failures made
/// very slow would otherwise stay so for hours.
const LONG_ENOUGH: u64 = 120_000_000_000;

/// A span times a factor.
fn scaled(gap: u64, factor: f64) -> u64 {
    (gap as f64 * factor) as u64
}

/// Seconds, for the log.
fn seconds(gap: u64) -> f64 {
    (gap / 1000) as f64 / 1e6
}
