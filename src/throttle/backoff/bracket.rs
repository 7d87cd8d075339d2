//! Search for a server's limit between a gap that worked and a gap that was refused.
//!
//! A refused probe leads back to the gap that worked. A refusal of a gap that had worked makes the
//! gap a little longer, and by a larger factor each time while refusals continue. The average rate
//! that the server served between two refusals is its limit, even if it is a token bucket; with
//! enough answers to measure it, it bounds both gaps. A gap counts as working after as many answers
//! as are needed to see a refusal; then the search continues. Close to the refused gap it stops and
//! probes once in a while.

mod rampup;
mod search;

use std::borrow::Cow;
use std::time::Duration;

use self::search::UP_STEPS;
use super::meter::{Meter, millis};
use super::noise::Noise;

use super::{Guess, OUTAGE_ROUNDS, Rules, StepReason, TESTED_AFTER, scaled, seconds};
use crate::base::time::{Instant, nanos};
use crate::throttle::decision::DecisionEvent;
use crate::throttle::settings::{Jitter, Rampup};
use crate::throttle::strategy::Pace;

/// Reason of the step back to the earlier pace after an outage, for the log.
pub(super) fn answered_again(gap: u64) -> Cow<'static, str> {
    format!("answered again at {} s", seconds(gap)).into()
}

/// All gaps are in nanoseconds; 0 means none.
#[derive(Debug)]
pub(super) struct Bracket {
    /// The present gap.
    pub gap: u64,
    /// The shortest gap that worked, unless a later refusal contradicted it.
    pub worked: u64,
    /// The longest gap known to be refused.
    pub refused: u64,
    /// The gap before rounds of refusals without any answer start.
    pub resume_gap: u64,
    /// Length of the last outage, in milliseconds. The server's rate is measured from its start.
    pub outage_ms: u32,
    /// The gap at which the server served requests between its last refusals, as measured.
    pub server_gap: u64,
    /// The gap to use in place of `refused` if the server turns out to be a token bucket.
    pub bucket_gap: u64,
    /// The server was seen to behave like a token bucket.
    pub is_bucket: bool,
    /// Time of the next probe.
    pub probe_at: Instant,
    /// Interval from a refused probe to the next probe.
    pub probe_wait_ms: u32,
    /// Rampup's concurrency; 0 without rampup.
    pub lanes: u32,
    /// Refusals in the present window of rampup, and the start of that window.
    pub window_refusals: u16,
    pub window_since: Instant,
    /// Rounds of refusals since the server last recovered.
    refused_rounds: u8,
    /// Rounds of refusals without an answer in between.
    pub unanswered: u8,
    /// The wait that the last refusal asked for. A token bucket refills meanwhile, so a gap must
    /// work for longer than this before it counts as working.
    pub hold_ms: u32,
    /// Steps to a shorter gap since the last refusal.
    pub steps_up: u8,
    /// The last probe was refused after its first step had worked. The next probe stays at its
    /// first step until that has worked for a whole probe interval.
    pub overshot_later: bool,
    /// The last probe was refused at its first step. The next probe's first step is smaller.
    pub overshot_first: bool,
}

/// Jitter of a gap set by a bracket: smaller than the distance that the gap keeps from the limit.
pub(super) const JITTER: Jitter = Jitter::symmetric(0.003);
/// Distance kept from a refused gap, as a factor.
pub(super) const MARGIN: f64 = 1.02;
/// Factors for the first rounds of refusals in a row; later rounds use `delay_factor`.
const BACK_FACTORS: [f64; 5] = [1.03, 1.06, 1.12, 1.25, 1.5];
/// Number of answers between two refusals from which the server's rate is computed.
pub(super) const RATE_ANSWERS: u32 = 20;
/// A refusal after this many answers at one pace counts as a single one.
const LONE_ANSWERS: u64 = 60;
/// A probe is due after this many times its cost.
const PROBE_COST_FACTOR: u32 = 30;
/// Upper bound of the interval between probes, in windows.
pub(super) const PROBE_WAIT_MAX: u32 = 2;
/// A change of the server's rate by more than this factor is not chance.
pub(super) const RATE_CHANGED: f64 = 1.04;
/// A single refusal is tolerated if the pace was at most this factor faster than what the server
/// served.
const LONE_TOLERANCE: f64 = 1.01;
/// A probe refused after fewer answers than this did not use up a token bucket.
const EARLY_ANSWERS: u32 = 20;
/// Gaps of at most this many nanoseconds (10 µs) count as no gap.
const GAP_NEGLIGIBLE: u64 = 10_000;

impl Bracket {
    fn new(gap: u64, now: Instant) -> Self {
        Bracket {
            gap,
            worked: 0,
            refused: 0,
            resume_gap: 0,
            outage_ms: 0,
            server_gap: 0,
            bucket_gap: 0,
            is_bucket: false,
            probe_at: now,
            probe_wait_ms: 0,
            lanes: 0,
            window_refusals: 0,
            window_since: now,
            refused_rounds: 0,
            unanswered: 0,
            hold_ms: 0,
            steps_up: 0,
            overshot_later: false,
            overshot_first: false,
        }
    }

    /// A rate that was known to work was refused; `real` is the measured gap.
    pub fn after_first(
        meter: &Meter,
        real: u64,
        rules: &Rules<'_>,
        now: Instant,
    ) -> (Self, StepReason) {
        let max = nanos(rules.backoff.max_delay.max(rules.base.delay));
        // The first refusal does not show how far away the limit is; a later one shows that it is
        // near.
        let near = meter.served_gap(RATE_ANSWERS).is_some();
        let step = if near {
            let server_gap = meter.served_gap_here(RATE_ANSWERS).unwrap_or(0);
            scaled(server_gap, MARGIN).max(scaled(real, BACK_FACTORS[0]))
        } else {
            scaled(real, rules.backoff.delay_factor)
        };
        let gap = step.min(max).max(1);
        let bracket = Bracket {
            refused: real,
            resume_gap: gap,
            refused_rounds: if near { 1 } else { BACK_FACTORS.len() as u8 },
            steps_up: if near { 0 } else { UP_STEPS },
            ..Bracket::new(gap, now)
        };
        let why = format!("refused at {} s, which worked before", seconds(real));
        (bracket, (DecisionEvent::Backoff, why.into()))
    }

    /// A guess was found to work.
    pub fn after_guess(guess: &Guess, _rules: &Rules<'_>, now: Instant) -> Self {
        Bracket {
            refused: guess.bound,
            steps_up: UP_STEPS,
            ..Bracket::new(guess.delay, now)
        }
    }

    /// The server answered nothing for a while; `gap` is its average over that time.
    pub fn after_outage(gap: u64, meter: &Meter, now: Instant) -> Self {
        Bracket {
            server_gap: gap,
            resume_gap: gap,
            outage_ms: millis(meter.serving),
            ..Bracket::new(gap, now)
        }
    }

    /// Restores the state of an evicted scope.
    pub fn from_learned(gap: u64, refused: u64, lanes: u32, now: Instant) -> Self {
        Bracket {
            refused,
            lanes,
            ..Bracket::new(gap, now)
        }
    }

    /// Rampup starts from the base pace.
    pub fn ramping(base: Pace, rampup: &Rampup, now: Instant) -> Self {
        Bracket {
            lanes: base.concurrency,
            steps_up: UP_STEPS,
            ..Bracket::new(nanos(base.delay).max(nanos(rampup.min_delay)), now)
        }
    }

    /// Returns the jitter of the gap, limited so that no jittered gap is shorter than `least`.
    pub fn jitter_above(&self, least: u64) -> Jitter {
        let lowest = least as f64 / self.gap.max(1) as f64 - 1.0;
        Jitter {
            low: JITTER.low.max(lowest.min(0.0)),
            ..JITTER
        }
    }

    /// Returns whether the bracket asks for no more delay than the base and knows of no refusal.
    pub fn is_over(&self, base: u64) -> bool {
        self.gap <= GAP_NEGLIGIBLE || (self.gap <= base && self.refused == 0)
    }

    /// Handles a round of refusals of requests sent `asked` apart.
    pub fn refused(
        &mut self,
        meter: &Meter,
        noise: &mut Noise,
        rules: &Rules<'_>,
        asked: u64,
        now: Instant,
    ) -> StepReason {
        if meter.has_recovered() {
            self.refused_rounds = 0;
        }
        self.unanswered = if meter.served == 0 {
            self.unanswered.saturating_add(1)
        } else {
            0
        };
        let max = nanos(rules.backoff.max_delay.max(rules.base.delay));
        let at = meter.refused_gap(asked);
        let probing = self.worked > scaled(at, 1.01);
        let server_gap = self.server_gap(meter, at, probing);
        let beyond = self.count_for_rampup(rules, now);

        if self.refused_rounds > 0 {
            noise.end_slide();
        } else if !probing && let Some(start) = noise.step_back_from(at, self.refused, meter.served)
        {
            self.gap = start.gap.min(max);
            self.worked = self.gap;
            self.refused = start.refused;
            let why = format!(
                "slowing down does not help: back to {} s",
                seconds(start.gap)
            );
            return (DecisionEvent::Recover, why.into());
        }

        let window = nanos(rules.backoff.window);
        let outage = u64::from(self.outage_ms) * 1_000_000;
        let recent = meter.serving < outage + outage / 2;
        if !probing
            && self.refused_rounds == 0
            && meter.busy >= self.round(rules)
            && self.refused < self.gap
        {
            // At a pace this close to the limit, one refusal per window is intended.
            let is_single =
                server_gap.is_none_or(|server_gap| server_gap <= scaled(self.gap, LONE_TOLERANCE));
            if is_single && self.refused > 0 && self.gap <= asked {
                self.wait_for_probe(false, rules, now);
                self.refused_rounds = 1;
                let why = format!("refused once at {} s: the pace stays", seconds(at));
                return (DecisionEvent::Backoff, why.into());
            }
        }
        let since_outage = meter
            .served_gap(RATE_ANSWERS)
            .filter(|gap| recent && *gap > at);
        let known = since_outage.or(server_gap);
        let chance = noise.is_detected() && !probing && u64::from(meter.count) >= LONE_ANSWERS;
        if let Some(served) = since_outage {
            self.gap = scaled(served, MARGIN);
            self.forget_worked();
        } else if probing && self.refused_rounds == 0 {
            let server_gap = server_gap.map_or(u64::MAX, |gap| scaled(gap.max(at), MARGIN));
            self.gap = self.worked.min(server_gap);
        } else {
            let bound = meter.gap_bound().unwrap_or(0);
            self.step_back(at, bound, server_gap, beyond, rules);
            self.forget_worked();
        }
        if self.unanswered >= OUTAGE_ROUNDS {
            // A longer gap would only delay seeing the end of the outage.
            self.gap = self
                .gap
                .min((window.max(meter.serving) / 8).max(self.resume_gap));
        }
        self.gap = self.gap.min(max);
        if self.unanswered == 0 {
            // A refused probe beyond the known refused gap does not contradict that gap.
            let before = Some(self.refused).filter(|gap| probing && *gap < self.gap);
            self.refused = self.bound(at, known, since_outage.is_some());
            self.refused = self.refused.max(before.unwrap_or(0));
            self.resume_gap = self.gap;
            self.outage_ms = 0;
        }
        self.wait_for_probe(chance, rules, now);
        self.refused_rounds = self.refused_rounds.saturating_add(1);
        self.overshot_later = probing && self.steps_up > 1;
        let soon = meter.count < EARLY_ANSWERS && !self.overshot_first;
        self.overshot_first = probing && self.steps_up == 1 && soon;
        self.steps_up = 0;
        self.hold_ms = 0;
        let why = format!("refused at {} s", seconds(at));
        (DecisionEvent::Backoff, why.into())
    }

    /// Makes the gap longer than `at`: by a little for the first round, by more for later rounds,
    /// and at least to the measured gap of the server.
    fn step_back(
        &mut self,
        at: u64,
        bound: u64,
        server_gap: Option<u64>,
        beyond: bool,
        rules: &Rules<'_>,
    ) {
        let factor = rules.backoff.delay_factor;
        let step = BACK_FACTORS
            .get(usize::from(self.refused_rounds))
            .filter(|_| !beyond || server_gap.is_some())
            .map_or(factor, |step| step.min(factor));
        let server_gap = server_gap.map_or(0, |gap| scaled(gap, MARGIN));
        self.gap = scaled(at, step)
            .max(bound.min(scaled(at, factor)))
            .max(server_gap);
    }

    /// Discards the working gap after a refusal contradicted it.
    fn forget_worked(&mut self) {
        self.worked = 0;
        self.probe_wait_ms = 0;
    }

    /// Sets the time of the next probe. The interval grows by half while all probes are refused.
    pub fn wait_for_probe(&mut self, chance: bool, rules: &Rules<'_>, now: Instant) {
        let least = millis(self.round(rules));
        let longer = self.probe_wait_ms.saturating_add(self.probe_wait_ms / 2);
        self.probe_wait_ms = longer.clamp(least, least.saturating_mul(PROBE_WAIT_MAX));
        if chance && self.refused_rounds == 0 {
            // The refusal may be chance: probe again as soon as enough answers can have shown that.
            let soon = LONE_ANSWERS * self.gap / 1_000_000;
            let soon = u32::try_from(soon).unwrap_or(u32::MAX);
            self.probe_wait_ms = self.probe_wait_ms.min(soon);
        }
        let wait = Duration::from_millis(self.probe_wait_ms.into());
        self.probe_at = now + rampup::probe_wait(rules).unwrap_or(wait);
    }

    /// The time in which one round of refusals is acceptable: a window, or more at a pace so slow
    /// that one refusal is a large share of the requests in a window.
    fn round(&self, rules: &Rules<'_>) -> u64 {
        let slow = self
            .gap
            .saturating_mul(PROBE_COST_FACTOR.into())
            .min(TESTED_AFTER);
        nanos(rules.backoff.window).max(slow)
    }

    /// Records that a refusal cost this much silence: the cost of probing must stay small compared
    /// with its gain.
    pub fn held(&mut self, silent: Duration, until: Instant) {
        self.probe_at = self.probe_at.max(until + silent * PROBE_COST_FACTOR);
        self.hold_ms = self.hold_ms.max(millis(nanos(silent)));
    }

    /// Returns the longest gap that counts as refused after a refusal at `at`.
    ///
    /// If the server is not a token bucket, its served rate may be below its limit. That it is one
    /// shows when a pace between the two is refused right away.
    fn bound(&mut self, at: u64, server_gap: Option<u64>, certain: bool) -> u64 {
        let bucket_gap = std::mem::take(&mut self.bucket_gap);
        if bucket_gap > scaled(at, 1.02) && bucket_gap < self.gap {
            self.is_bucket = true;
            return bucket_gap;
        }
        let server_gap = server_gap.filter(|gap| *gap > at && *gap < self.gap);
        // One test confirms the token bucket for one refusal only.
        let certain = std::mem::take(&mut self.is_bucket) || certain;
        match server_gap {
            Some(server_gap) if certain => server_gap,
            _ => {
                self.bucket_gap = server_gap.unwrap_or(0);
                at
            }
        }
    }

    /// Returns the gap that corresponds to the server's rate, if what it served since its last
    /// refusal shows it.
    ///
    /// A server that is not a token bucket served no more than was requested. That it is one shows
    /// when it accepts a faster pace for a while; that it was asked for enough shows when most
    /// answers came at this pace or at one not far from it.
    fn server_gap(&mut self, meter: &Meter, at: u64, probing: bool) -> Option<u64> {
        let server_gap = meter.served_gap(RATE_ANSWERS)?;
        let near = if probing { self.worked } else { at };
        let asked_for = meter.count >= meter.served / 2 || server_gap <= scaled(near, 1.25);
        if !asked_for || (probing && meter.count < RATE_ANSWERS / 2) {
            return None;
        }
        let before = std::mem::replace(&mut self.server_gap, server_gap);
        // The limit rose: earlier answers do not count.
        let rose = before > 0 && scaled(server_gap, RATE_CHANGED) < before;
        (!rose).then_some(server_gap)
    }
}
