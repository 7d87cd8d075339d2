//! Reaction of one scope to refusals: back off, search for the server's limit, and stay just below
//! it.
//!
//! ```text
//!          refused, rate unknown             10 answers at one pace
//!   Calm ───────────────────────► Guessing ─────────────────────────┐
//!    │ ▲                             │ quiet windows                ▼
//!    │ └─────────────────────────────┴──────────────────────── Following
//!    └──────────────── refused, rate known ───────────────────────► ▲
//! ```
//!
//! *Calm*: backoff does not change the pace. *Guessing*: no working rate is known; the delay
//! doubles with each round of refusals and comes back by one step per quiet window (`guess`).
//! *Following*: a working rate is known; backoff searches between it and the slowest refused rate,
//! and each step lasts only as many answers as are needed to see a refusal (`bracket`). Rampup is
//! the same search, started before any refusal (`rampup`).
//!
//! A *round* is all refusals of requests that departed before its first refusal arrived.

mod guess;
mod bracket;
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
use super::decision::DecisionEvent;
use super::settings::{self, Jitter};
use super::strategy::Pace;
use crate::base::time::{Instant, nanos};

/// State of backoff for one scope, and the pace that follows from it.
#[derive(Debug)]
pub(super) struct Backoff {
    state: State,
    meter: Meter,
    noise: Noise,
    /// Number of times that concurrency was halved.
    cuts: u8,
}

#[derive(Debug)]
enum State {
    /// Backoff does not limit the pace; the rate is measured.
    Calm,
    /// No rate is known to work.
    Guessing(Guess),
    /// A rate is known to work.
    Following(Bracket),
}

/// The settings that apply to the scope at the time of a call. They may differ between calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    /// The scope's `backoff`.
    pub backoff: &'a settings::Backoff,
    /// The scope's `rampup`, where it is on.
    pub rampup: Option<&'a settings::Rampup>,
    /// The pace without backoff: configured, or AutoThrottle's. Backoff never goes faster; rampup
    /// does, and starts from it.
    pub base: Pace,
    /// Upper bound of the concurrency that rampup may set.
    pub concurrency_max: u32,
}

/// A change of the pace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub before: Pace,
    pub after: Pace,
    pub event: DecisionEvent,
    pub reason: Cow<'static, str>,
}

/// Compact form of the limits that still apply to an idle scope, kept after its eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Learned {
    /// The present gap, in nanoseconds; 0 for none.
    pub gap: u64,
    /// The slowest refused gap; 0 for none.
    pub refused: u64,
    /// The gap is known to work.
    pub known: bool,
    /// Number of times that concurrency was halved.
    pub cuts: u8,
    /// Rampup's concurrency; 0 without rampup.
    pub lanes: u32,
}

/// How long after its last use a learned limit is kept: as long as a robots.txt is valid by default. One
/// that was not met for so long is likely to be another now.
pub(super) const LEARNED_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Event and reason of a state's step, for the log.
type StepReason = (DecisionEvent, Cow<'static, str>);

impl Learned {
    /// The gap that is known to work, if any.
    pub fn gap(&self) -> Option<Duration> {
        self.known.then(|| Duration::from_nanos(self.gap))
    }
}

impl Backoff {
    /// The calm state.
    pub fn new(now: Instant) -> Self {
        Backoff {
            state: State::Calm,
            meter: Meter::new(now),
            noise: Noise::default(),
            cuts: 0,
        }
    }

    /// Starts in backoff with this delay (`get_initial_backoff` in the specification's sources).
    #[cfg(test)]
    pub fn starting_at(delay: Duration, now: Instant) -> Self {
        Backoff {
            state: State::Guessing(Guess::at(nanos(delay))),
            ..Backoff::new(now)
        }
    }

    /// Restores the state of an evicted scope. Its first answers are treated as a probe.
    pub fn from_learned(learned: Learned, now: Instant) -> Self {
        let state = match (learned.gap, learned.known) {
            (0, _) => State::Calm,
            (gap, false) => State::Guessing(Guess::at(gap)),
            (gap, true) => {
                let (refused, lanes) = (learned.refused, learned.lanes);
                State::Following(Bracket::from_learned(gap, refused, lanes, now))
            }
        };
        let mut backoff = Backoff {
            state,
            cuts: learned.cuts,
            ..Backoff::new(now)
        };
        // Answers from now on are compared with the restored limit.
        backoff.meter.anchor(now);
        backoff
    }

    /// The limits that still apply, or `None`.
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

    /// Returns whether backoff leaves the pace unchanged; rampup's search is not considered.
    pub fn is_calm(&self) -> bool {
        matches!(self.state, State::Calm) && self.cuts == 0
    }

    /// The pace that backoff asks for: never faster than the base, except in rampup.
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

    /// The jitter that backoff asks for; `None` leaves it to the scope.
    pub fn jitter(&self, rules: &Rules<'_>) -> Option<Jitter> {
        match &self.state {
            State::Calm => None,
            State::Guessing(_) => Some(rules.backoff.jitter),
            // A pace just below the limit has no room for a larger jitter.
            State::Following(bracket) => {
                let base = nanos(rules.base.delay);
                let binds = rules.rampup.is_some() || bracket.gap > base;
                binds.then(|| bracket.jitter_above(if rules.rampup.is_some() { 0 } else { base }))
            }
        }
    }

    /// Records that the server asked for silence until `until`, so this time does not count as
    /// idle.
    pub fn held(&mut self, until: Instant) {
        if let State::Following(bracket) = &mut self.state {
            bracket.held(self.meter.idle_until(until), until);
        }
        self.meter.held(until);
        // A server that sends a wait time refuses because of the pace, so this is not noise.
        self.noise = Noise::default();
    }

    /// Handles an answer that is not a refusal, to a request that departed at `sent`.
    pub fn success(
        &mut self,
        rules: &Rules<'_>,
        sent: Instant,
        latency: Option<Duration>,
        now: Instant,
    ) -> Option<Step> {
        let before = self.pace(rules);
        self.record_success(rules, before.delay, sent, latency, now);
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
            self.finish_guess(rules, now);
            match &mut self.state {
                State::Calm => {
                    self.meter.decay();
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

    /// The same for a calm scope without rampup: only the measured rate is updated.
    pub fn measure(
        &mut self,
        rules: &Rules<'_>,
        sent: Instant,
        latency: Option<Duration>,
        now: Instant,
    ) {
        self.record_success(rules, rules.base.delay, sent, latency, now);
        self.meter.decay();
    }

    fn record_success(
        &mut self,
        rules: &Rules<'_>,
        asked: Duration,
        sent: Instant,
        latency: Option<Duration>,
        now: Instant,
    ) {
        if now.saturating_since(self.meter.quiet_since) >= rules.backoff.window {
            self.noise.end_slide();
        }
        self.noise.answered();
        self.meter.accepted(sent, latency, nanos(asked));
    }

    /// Handles a refusal of a request that departed at `sent`. Returns `None` if it belongs to a
    /// round that was counted already.
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
        let why: StepReason = match &mut self.state {
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
            State::Guessing(guess) => guess.refused(self.meter.served > 0, rules),
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

    /// Restores one step of concurrency after a quiet window. Concurrency was cut last, so it is
    /// restored before the delay gets shorter.
    fn regain_concurrency(&mut self, rules: &Rules<'_>, now: Instant) -> Option<StepReason> {
        let quiet = now.saturating_since(self.meter.quiet_since) >= rules.backoff.window;
        if self.cuts == 0 || !quiet || self.meter.count == 0 {
            return None;
        }
        self.cuts -= 1;
        self.meter.quiet_since = now;
        self.meter.step(now);
        Some((
            DecisionEvent::Recover,
            "a window without refusals: concurrency raised".into(),
        ))
    }

    /// Turns a guess into a known rate once enough requests were answered under it.
    fn finish_guess(&mut self, rules: &Rules<'_>, now: Instant) {
        if let State::Guessing(guess) = &self.state
            && self.cuts == 0
            && self.meter.is_known()
        {
            let bracket = Bracket::after_guess(guess, rules, now);
            self.state = State::Following(bracket);
        }
    }

    /// The server answers again after it had answered nothing for a while. Its average rate over
    /// all of that time becomes the known rate, even if the guess has become much slower meanwhile.
    fn reopened(&mut self, sent: Instant, now: Instant) -> Option<StepReason> {
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
        Some((DecisionEvent::Recover, bracket::answered_again(old)))
    }

    /// Returns to `Calm` when backoff no longer limits the pace.
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

    fn step(&self, rules: &Rules<'_>, before: Pace, why: Option<StepReason>) -> Option<Step> {
        let (event, reason) = why?;
        Some(Step {
            before,
            after: self.pace(rules),
            event,
            reason,
        })
    }
}

/// Nanoseconds (two minutes) after which a pace counts as tested, however few requests it allowed.
/// Without this bound a pace made very slow by failures would stay slow for hours.
const TESTED_AFTER: u64 = 120_000_000_000;
/// Rounds of refusals without an answer in between that count as an outage: the pace does not
/// matter then.
const OUTAGE_ROUNDS: u8 = 3;

/// Multiplies a gap by a factor.
fn scaled(gap: u64, factor: f64) -> u64 {
    (gap as f64 * factor) as u64
}

/// Converts nanoseconds to seconds, for the log.
fn seconds(gap: u64) -> f64 {
    (gap / 1000) as f64 / 1e6
}
