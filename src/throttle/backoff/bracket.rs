//! The search for a server's limit between a gap that worked and one that was refused.
//!
//! A refusal while probing leads back to the gap that worked; one out of nowhere to a gap a little
//! longer, and longer by more each time while refusals go on. What the server gave between two
//! refusals is its rate, whatever it saves up for bursts: where enough was given to tell, that
//! bounds both. Answers at a pace, as many as it takes to see, make it one that worked, and the
//! search goes on; close to what was refused it rests, and probes once in a while.

use std::borrow::Cow;
use std::time::Duration;

use super::meter::{Meter, millis};
use super::noise::Noise;
use super::rampup;
use super::search::FREELY;
use super::{Guess, LONG_ENOUGH, Rules, Why, scaled, seconds};
use crate::base::time::{Instant, nanos};
use crate::throttle::decision::Event;
use crate::throttle::settings::{Jitter, Rampup};
use crate::throttle::strategy::Pace;

/// Why the pace comes back, for the log.
pub(super) fn answered_again(gap: u64) -> Cow<'static, str> {
    format!("answered again at {} s", seconds(gap)).into()
}

/// Gaps in nanoseconds; 0: none.
#[derive(Debug)]
pub(super) struct Bracket {
    /// The present gap.
    pub gap: u64,
    /// The shortest gap that worked and was not contradicted since.
    pub worked: u64,
    /// The longest gap that was refused, as far as is known.
    pub refused: u64,
    /// Where the pace was before refusals went on without an answer between.
    pub home: u64,
    /// How long nothing was answered before it came back there: what was given since that began
    /// is what the server gives.
    pub outage_ms: u32,
    /// What the server gave between its last refusals.
    pub told: u64,
    /// What it may be instead of `refused`, if the server saves up what it does not give.
    pub doubt: u64,
    /// It does.
    pub saves: bool,
    /// When to probe.
    pub probe_at: Instant,
    /// From a refused probe to the next one.
    pub probe_wait_ms: u32,
    /// Rampup's concurrency; 0 without.
    pub lanes: u32,
    /// Rampup's refusals in the present window, and when that began.
    pub tally: u16,
    pub tally_since: Instant,
    /// Rounds of refusals since the trouble began.
    strikes: u8,
    /// Rounds of refusals without an answer between.
    pub unanswered: u8,
    /// How long the last refusal asked to wait: what the server saved up meanwhile is soon spent.
    pub dear_ms: u32,
    /// Steps up without a refusal.
    pub climbed: u8,
    /// The last probe went on after a first step that worked, and too far: the next one stays at
    /// that step until it is proven.
    pub hasty: bool,
    /// The last probe's first step was too far at once: the next one's is a shorter one.
    pub coarse: bool,
}

/// What a gap set by a bracket is jittered by: it stays clear of the limit by more.
pub(super) const JITTER: Jitter = Jitter::symmetric(0.003);
/// The pace rests this factor off what was refused.
pub(super) const MARGIN: f64 = 1.02;
/// Factors back for one round of refusals after the other; then `delay_factor`.
const BACK: [f64; 5] = [1.03, 1.06, 1.12, 1.25, 1.5];
/// So many answers between two refusals tell a rate.
pub(super) const TELLING: u32 = 20;
/// A refusal after so many answers at one pace is a lone one.
const LONE: u64 = 60;
/// A probe is due after so many times what it costs.
const WORTH: u32 = 30;
/// Rounds without an answer between that are no matter of pace.
pub(super) const OUTAGE: u8 = 3;
/// The longest wait for a probe, in windows.
pub(super) const WAIT_MAX: u32 = 2;
/// What the server gives differs by more than chance from what it gave.
pub(super) const CHANGED: f64 = 1.04;
/// A lone refusal is borne where no more than this factor was asked for beyond what was given.
const LENIENT: f64 = 1.01;
/// A probe refused after fewer answers had no savings to spend.
const SOON: u32 = 20;
/// A gap this short is none.
const NOTHING: u64 = 10_000;

impl Bracket {
    fn new(gap: u64, now: Instant) -> Self {
        Bracket {
            gap,
            worked: 0,
            refused: 0,
            home: 0,
            outage_ms: 0,
            told: 0,
            doubt: 0,
            saves: false,
            probe_at: now,
            probe_wait_ms: 0,
            lanes: 0,
            tally: 0,
            tally_since: now,
            strikes: 0,
            unanswered: 0,
            dear_ms: 0,
            climbed: 0,
            hasty: false,
            coarse: false,
        }
    }

    /// A refusal of a rate that was known to work, `real` from send to send.
    pub fn after_first(meter: &Meter, real: u64, rules: &Rules<'_>, now: Instant) -> (Self, Why) {
        let max = nanos(rules.backoff.max_delay.max(rules.base.delay));
        // The first one says nothing of how far off the limit is; a later one, that it was near.
        let near = meter.gap_given(TELLING).is_some();
        let step = if near {
            let told = meter.gap_given_here(TELLING).unwrap_or(0);
            scaled(told, MARGIN).max(scaled(real, BACK[0]))
        } else {
            scaled(real, rules.backoff.delay_factor)
        };
        let gap = step.min(max).max(1);
        let bracket = Bracket {
            refused: real,
            home: gap,
            strikes: if near { 1 } else { BACK.len() as u8 },
            climbed: if near { 0 } else { FREELY },
            ..Bracket::new(gap, now)
        };
        let why = format!("refused at {} s, which had worked", seconds(real));
        (bracket, (Event::Backoff, why.into()))
    }

    /// A guess turned out to work.
    pub fn after_guess(guess: &Guess, _rules: &Rules<'_>, now: Instant) -> Self {
        Bracket {
            refused: guess.bound,
            climbed: FREELY,
            ..Bracket::new(guess.delay, now)
        }
    }

    /// The server was closed for all, and gave so much until then.
    pub fn after_outage(gap: u64, meter: &Meter, now: Instant) -> Self {
        Bracket {
            told: gap,
            home: gap,
            outage_ms: millis(meter.giving),
            ..Bracket::new(gap, now)
        }
    }

    /// What was kept of a scope that went idle.
    pub fn remembered(gap: u64, refused: u64, lanes: u32, now: Instant) -> Self {
        Bracket {
            refused,
            lanes,
            ..Bracket::new(gap, now)
        }
    }

    /// Rampup begins where the base is.
    pub fn ramping(base: Pace, rampup: &Rampup, now: Instant) -> Self {
        Bracket {
            lanes: base.concurrency,
            climbed: FREELY,
            ..Bracket::new(nanos(base.delay).max(nanos(rampup.min_delay)), now)
        }
    }

    /// The jitter of its gap, none of which is shorter than `least`.
    pub fn jitter_above(&self, least: u64) -> Jitter {
        let lowest = least as f64 / self.gap.max(1) as f64 - 1.0;
        Jitter {
            low: JITTER.low.max(lowest.min(0.0)),
            ..JITTER
        }
    }

    /// Whether it asks for no more than the base does, and knows of nothing against that.
    pub fn is_over(&self, base: u64) -> bool {
        self.gap <= NOTHING || (self.gap <= base && self.refused == 0)
    }

    /// A round of refusals, of requests `asked` apart.
    pub fn refused(
        &mut self,
        meter: &Meter,
        noise: &mut Noise,
        rules: &Rules<'_>,
        asked: u64,
        now: Instant,
    ) -> Why {
        if meter.is_past_trouble() {
            self.strikes = 0;
        }
        self.unanswered = if meter.given == 0 {
            self.unanswered.saturating_add(1)
        } else {
            0
        };
        let max = nanos(rules.backoff.max_delay.max(rules.base.delay));
        let at = meter.refused_gap(asked);
        let probing = self.worked > scaled(at, 1.01);
        let told = self.told(meter, at, probing);
        let beyond = self.count_for_rampup(rules, now);

        if self.strikes > 0 {
            noise.is_none();
        } else if !probing && let Some(began) = noise.slid(at, self.refused, meter.given) {
            self.gap = began.gap.min(max);
            self.worked = self.gap;
            self.refused = began.refused;
            let why = format!("slower does not help: back to {} s", seconds(began.gap));
            return (Event::Recover, why.into());
        }

        let window = nanos(rules.backoff.window);
        let outage = u64::from(self.outage_ms) * 1_000_000;
        let recent = meter.giving < outage + outage / 2;
        if !probing
            && self.strikes == 0
            && meter.busy >= self.round(rules)
            && self.refused < self.gap
        {
            // Once in a window is no more than is wanted, at a pace this close.
            let lone = told.is_none_or(|told| told <= scaled(self.gap, LENIENT));
            if lone && self.refused > 0 && self.gap <= asked {
                self.wait_for_probe(false, rules, now);
                self.strikes = 1;
                let why = format!("refused once at {} s, which works", seconds(at));
                return (Event::Backoff, why.into());
            }
        }
        let since_outage = meter.gap_given(TELLING).filter(|gap| recent && *gap > at);
        let known = since_outage.or(told);
        let chance = noise.is_some() && !probing && u64::from(meter.count) >= LONE;
        if let Some(given) = since_outage {
            self.gap = scaled(given, MARGIN);
            self.forget_worked();
        } else if probing && self.strikes == 0 {
            let told = told.map_or(u64::MAX, |gap| scaled(gap.max(at), MARGIN));
            self.gap = self.worked.min(told);
        } else {
            let bound = meter.gap_bound().unwrap_or(0);
            self.step_back(at, bound, told, beyond, rules);
            self.forget_worked();
        }
        if self.unanswered >= OUTAGE {
            // Longer gaps would only be late to see the end of it.
            self.gap = self.gap.min((window.max(meter.giving) / 8).max(self.home));
        }
        self.gap = self.gap.min(max);
        if self.unanswered == 0 {
            // A probe further beyond what was refused before says nothing against that.
            let before = Some(self.refused).filter(|gap| probing && *gap < self.gap);
            self.refused = self.bound(at, known, since_outage.is_some());
            self.refused = self.refused.max(before.unwrap_or(0));
            self.home = self.gap;
            self.outage_ms = 0;
        }
        self.wait_for_probe(chance, rules, now);
        self.strikes = self.strikes.saturating_add(1);
        self.hasty = probing && self.climbed > 1;
        let soon = meter.count < SOON && !self.coarse;
        self.coarse = probing && self.climbed == 1 && soon;
        self.climbed = 0;
        self.dear_ms = 0;
        let why = format!("refused at {} s", seconds(at));
        (Event::Backoff, why.into())
    }

    /// A little slower than `at`, or more than a little if it is not the first time; at least as
    /// slow as what was given asks for.
    fn step_back(
        &mut self,
        at: u64,
        bound: u64,
        told: Option<u64>,
        beyond: bool,
        rules: &Rules<'_>,
    ) {
        let factor = rules.backoff.delay_factor;
        let step = BACK
            .get(usize::from(self.strikes))
            .filter(|_| !beyond || told.is_some())
            .map_or(factor, |step| step.min(factor));
        let told = told.map_or(0, |gap| scaled(gap, MARGIN));
        self.gap = scaled(at, step)
            .max(bound.min(scaled(at, factor)))
            .max(told);
    }

    /// What worked does so no longer.
    fn forget_worked(&mut self) {
        self.worked = 0;
        self.probe_wait_ms = 0;
    }

    /// Sets when to probe: later each time, as long as all probes are refused.
    pub fn wait_for_probe(&mut self, chance: bool, rules: &Rules<'_>, now: Instant) {
        let least = millis(self.round(rules));
        let longer = self.probe_wait_ms.saturating_add(self.probe_wait_ms / 2);
        self.probe_wait_ms = longer.clamp(least, least.saturating_mul(WAIT_MAX));
        if chance && self.strikes == 0 {
            // By chance, perhaps: it is tried again as soon as that could be seen.
            let soon = LONE * self.gap / 1_000_000;
            let soon = u32::try_from(soon).unwrap_or(u32::MAX);
            self.probe_wait_ms = self.probe_wait_ms.min(soon);
        }
        let wait = Duration::from_millis(self.probe_wait_ms.into());
        self.probe_at = now + rampup::probe_wait(rules).unwrap_or(wait);
    }

    /// The time in which one round of refusals is no more than is wanted: a window, or longer where
    /// the pace is so slow that a refusal is much of what could be sent in one.
    fn round(&self, rules: &Rules<'_>) -> u64 {
        let slow = self.gap.saturating_mul(WORTH.into()).min(LONG_ENOUGH);
        nanos(rules.backoff.window).max(slow)
    }

    /// A refusal cost so much time: what it costs to probe is to be little of what it may gain.
    pub fn held(&mut self, silent: Duration, until: Instant) {
        self.probe_at = self.probe_at.max(until + silent * WORTH);
        self.dear_ms = self.dear_ms.max(millis(nanos(silent)));
    }

    /// The longest gap that counts as refused, now that `at` was.
    ///
    /// What was given may be less than the limit where the server saves nothing up. That it saves
    /// is seen by a pace between the two that is refused right away.
    fn bound(&mut self, at: u64, told: Option<u64>, certain: bool) -> u64 {
        let doubt = std::mem::take(&mut self.doubt);
        if doubt > scaled(at, 1.02) && doubt < self.gap {
            self.saves = true;
            return doubt;
        }
        let told = told.filter(|gap| *gap > at && *gap < self.gap);
        // One test is good for one time.
        let certain = std::mem::take(&mut self.saves) || certain;
        match told {
            Some(told) if certain => told,
            _ => {
                self.doubt = told.unwrap_or(0);
                at
            }
        }
    }

    /// The server's rate as a gap, where what it gave since its last refusal tells.
    ///
    /// A server that saves nothing up gave no more than it was asked for. That it saves up shows
    /// when it stands a faster pace for a while; that it was asked for enough shows when most was
    /// given at that pace, or at one not far from it.
    fn told(&mut self, meter: &Meter, at: u64, probing: bool) -> Option<u64> {
        let told = meter.gap_given(TELLING)?;
        let near = if probing { self.worked } else { at };
        let asked_for = meter.count >= meter.given / 2 || told <= scaled(near, 1.25);
        if !asked_for || (probing && meter.count < TELLING / 2) {
            return None;
        }
        let before = std::mem::replace(&mut self.told, told);
        // The limit rose: the answers of before do not count.
        let rose = before > 0 && scaled(told, CHANGED) < before;
        (!rose).then_some(told)
    }
}
