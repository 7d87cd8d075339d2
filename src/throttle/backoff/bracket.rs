//! The search for a server's limit between a gap that worked and one that was refused.
//!
//! A refusal while probing leads back to the gap that worked; one out of nowhere to a gap a little
//! longer, and longer by more each time while refusals go on. What the server gave between two
//! refusals is its rate, whatever it saves up for bursts: where enough was given to tell, that
//! bounds both. Answers at a pace, as many as it takes to see, make it one that worked, and the
//! search goes on; close to what was refused it rests, and probes once in a while.

use super::meter::Meter;
use super::noise::Noise;
use super::rampup;
use super::{Guess, Rules, Why, scaled, seconds};
use crate::base::time::{Instant, nanos};
use crate::throttle::decision::Event;
use crate::throttle::settings::{Jitter, Rampup};
use crate::throttle::strategy::Pace;

/// Gaps in nanoseconds; 0: none.
#[derive(Debug)]
pub(super) struct Bracket {
    /// The present gap.
    pub gap: u64,
    /// The shortest gap that worked and was not contradicted since.
    worked: u64,
    /// The longest gap that was refused, as far as is known.
    pub refused: u64,
    /// Where the pace was before refusals went on without an answer between.
    home: u64,
    /// It came back there: what was given since that began is what the server gives.
    outage: bool,
    /// What the server gave between its last refusals.
    told: u64,
    /// What it may be instead of `refused`, if the server saves up what it does not give.
    doubt: u64,
    /// It does.
    saves: bool,
    /// When to probe.
    probe_at: Instant,
    /// From a refused probe to the next one.
    probe_wait_ms: u32,
    /// Rampup's concurrency; 0 without.
    pub lanes: u32,
    /// Rampup's refusals in the present window, and when that began.
    pub tally: u32,
    pub tally_since: Instant,
    /// Rounds of refusals since the trouble began.
    strikes: u8,
    /// Rounds of refusals without an answer between.
    unanswered: u8,
    /// Steps up without a refusal.
    climbed: u8,
}

/// What a gap set by a bracket is jittered by: it stays clear of the limit by more.
pub(super) const JITTER: Jitter = Jitter::symmetric(0.0075);
/// The pace rests this factor off what was refused.
const MARGIN: f64 = 1.02;
/// Closer than this the search is over.
const CLOSE: f64 = 1.042;
/// A probe goes this factor beyond what worked.
const PROBE: f64 = 1.04;
/// Factors back for one round of refusals after the other; then `delay_factor`.
const BACK: [f64; 5] = [1.03, 1.06, 1.12, 1.25, 1.5];
/// Factors up for one step after the other while nothing is refused; then `delay_factor`.
const UP: [f64; 4] = [PROBE, 1.1, 1.2, 1.4];
/// So many answers between two refusals tell a rate.
pub(super) const TELLING: u32 = 20;
/// Rounds without an answer between that are no matter of pace.
const OUTAGE: u8 = 3;
/// The longest wait for a probe, in windows.
const WAIT_MAX: u32 = 2;
/// What the server gives differs by more than chance from what it gave.
const CHANGED: f64 = 1.04;
/// A gap this short is none.
const NOTHING: u64 = 10_000;

impl Bracket {
    fn new(gap: u64, now: Instant) -> Self {
        Bracket {
            gap,
            worked: 0,
            refused: 0,
            home: 0,
            outage: false,
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
            climbed: 0,
        }
    }

    /// The first refusal of a rate that was known to work before, `real` from send to send.
    pub fn after_first(
        real: u64,
        told: Option<u64>,
        rules: &Rules<'_>,
        now: Instant,
    ) -> (Self, Why) {
        let max = nanos(rules.backoff.max_delay).max(real);
        let told = told.map_or(0, |gap| scaled(gap, MARGIN));
        let gap = scaled(real, rules.backoff.delay_factor).max(told).min(max);
        let bracket = Bracket {
            refused: real,
            home: gap.max(1),
            // Nothing says how far off the limit is.
            strikes: BACK.len() as u8,
            climbed: UP.len() as u8,
            ..Bracket::new(gap.max(1), now)
        };
        let why = format!("refused at {} s, which had worked", seconds(real));
        (bracket, (Event::Backoff, why.into()))
    }

    /// A guess turned out to work.
    pub fn after_guess(guess: &Guess, _rules: &Rules<'_>, now: Instant) -> Self {
        Bracket {
            refused: guess.bound,
            climbed: UP.len() as u8,
            ..Bracket::new(guess.delay, now)
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
            climbed: UP.len() as u8,
            ..Bracket::new(nanos(base.delay).max(nanos(rampup.min_delay)), now)
        }
    }

    /// Whether it asks for no more than the base does.
    pub fn is_over(&self, base: u64) -> bool {
        self.gap <= base.max(NOTHING)
    }

    /// A round of refusals, of requests `asked` apart.
    pub fn refused(
        &mut self,
        meter: &mut Meter,
        noise: &mut Noise,
        rules: &Rules<'_>,
        asked: u64,
        now: Instant,
    ) -> Why {
        let window = nanos(rules.backoff.window);
        let max = nanos(rules.backoff.max_delay);
        let factor = rules.backoff.delay_factor;
        if meter.is_past_trouble() {
            self.strikes = 0;
        }
        self.unanswered = if meter.given == 0 {
            self.unanswered.saturating_add(1)
        } else {
            0
        };
        let at = meter.refused_gap(asked);
        let probing = self.worked > scaled(at, 1.01);
        let told = self.told(meter, at, probing);
        let beyond = self.count_for_rampup(rules, now);

        if self.strikes > 0 {
            noise.is_none();
        } else if !probing && let Some(began) = noise.slid(at, self.refused, meter.given) {
            self.gap = began.gap;
            self.worked = began.gap;
            self.refused = began.refused;
            let why = format!("slower does not help: back to {} s", seconds(began.gap));
            return (Event::Recover, why.into());
        }
        let after_outage = meter
            .gap_given(TELLING)
            .filter(|gap| self.outage && *gap > at);
        let known = after_outage.or(told);
        let told = known.map_or(0, |gap| scaled(gap, MARGIN));
        if after_outage.is_some() {
            self.gap = told;
            self.worked = 0;
            self.probe_wait_ms = 0;
        } else if probing && self.strikes == 0 {
            let told = if told == 0 { u64::MAX } else { told };
            self.gap = self.worked.min(told.max(scaled(at, MARGIN)));
        } else {
            let step = BACK
                .get(usize::from(self.strikes))
                .map_or(factor, |step| step.min(factor));
            let step = if beyond && known.is_none() {
                factor
            } else {
                step
            };
            let bound = meter.gap_bound().unwrap_or(0).min(scaled(at, factor));
            self.gap = scaled(at, step).max(bound).max(told);
            self.worked = 0;
            self.probe_wait_ms = 0;
        }
        self.wait_longer(window);
        if self.unanswered >= OUTAGE && meter.giving < 2 * window {
            // Longer gaps would only be late to see the end of it.
            self.gap = self.gap.min(window / 8).max(at);
        }
        self.gap = self.gap.min(max.max(at));
        if self.unanswered == 0 {
            self.refused = self.bound(at, known, after_outage.is_some());
            self.outage = false;
        }
        self.probe_at = now + self.probe_wait(rules);
        if self.unanswered == 0 {
            self.home = self.gap;
        }
        self.strikes = self.strikes.saturating_add(1);
        self.climbed = 0;
        let why = format!("refused at {} s", seconds(at));
        (Event::Backoff, why.into())
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

    /// An answer to a request that departed at `sent`.
    pub fn success(
        &mut self,
        meter: &mut Meter,
        rules: &Rules<'_>,
        pace: Pace,
        sent: Instant,
        now: Instant,
    ) -> Option<Why> {
        if self.unanswered > 0
            && sent >= meter.since
            && let Some(why) = self.come_home(rules)
        {
            meter.step(now);
            return Some(why);
        }
        if !meter.has_seen(self.answers_to_see(rules)) {
            return None;
        }
        let asked = nanos(pace.delay);
        if meter.real_gap() > scaled(asked, 1.2) {
            return self.not_tested(meter, rules, pace, now);
        }
        if asked > scaled(self.gap, 1.02) {
            // The base is slower: this gap was not tried.
            meter.again();
            return None;
        }
        if self.refused >= self.gap {
            return self.beyond_refused(meter, rules, now);
        }
        self.worked = self.gap;
        if self.doubt > scaled(self.gap, 1.03) {
            self.doubt = 0;
            self.saves = false;
        }
        self.search(meter, rules, now)
    }

    /// After an outage the pace comes back by a factor per answer.
    fn come_home(&mut self, rules: &Rules<'_>) -> Option<Why> {
        if self.unanswered < OUTAGE || self.gap <= self.home {
            self.unanswered = 0;
            return None;
        }
        let old = self.gap;
        self.gap = scaled(old, 1.0 / rules.backoff.delay_factor).max(self.home);
        self.outage = self.gap == self.home;
        let why = format!("answered again at {} s", seconds(old));
        Some((Event::Recover, why.into()))
    }

    /// The pace did not bind: fewer requests came than it allows.
    fn not_tested(
        &mut self,
        meter: &mut Meter,
        rules: &Rules<'_>,
        pace: Pace,
        now: Instant,
    ) -> Option<Why> {
        let places = u64::from(pace.concurrency.max(1));
        let held_by_places = self.gap < meter.round_trip() / places;
        if held_by_places && rules.rampup.is_none() {
            // What it was measured to be is known still.
            let quiet = now.saturating_since(meter.quiet_since);
            if quiet < rules.backoff.window * WAIT_MAX {
                return None;
            }
            self.gap = 0;
            return Some((Event::Recover, "no longer what holds the scope back".into()));
        }
        meter.again();
        if !held_by_places {
            return None;
        }
        let why = self.widen(rules)?;
        meter.step(now);
        Some(why)
    }

    /// As fast as was refused before, or faster, and it works so far. What the server saved up
    /// must be spent before that says anything.
    fn beyond_refused(
        &mut self,
        meter: &mut Meter,
        rules: &Rules<'_>,
        now: Instant,
    ) -> Option<Why> {
        let given = match meter.gap_given(TELLING) {
            Some(given) => given,
            None if meter.is_anchored() => return None,
            None => 0,
        };
        if scaled(given, CHANGED) > self.refused {
            // Not much faster than before, it is soon spent, or the limit is a higher one.
            let patience = rules.backoff.window / if self.climbed < 3 { 8 } else { 1 };
            if now.saturating_since(meter.since) < patience {
                return None;
            }
            return Some(self.climb(meter, rules, now));
        }
        self.refused = 0;
        self.worked = self.gap;
        self.probe_wait_ms = 0;
        Some(self.climb(meter, rules, now))
    }

    /// The next step of the search, after the present gap worked.
    fn search(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> Option<Why> {
        if self.refused == 0 {
            return Some(self.climb(meter, rules, now));
        }
        let apart = self.gap as f64 / self.refused as f64;
        if apart > CLOSE {
            let old = self.gap;
            let step = apart.sqrt().min(rules.backoff.delay_factor);
            self.gap = scaled(old, 1.0 / step).max(scaled(self.refused, MARGIN));
            meter.step(now);
            let why = format!(
                "{} s worked, {} s was refused",
                seconds(old),
                seconds(self.refused)
            );
            return Some((Event::Recover, why.into()));
        }
        if now < self.probe_at || !self.may_probe(rules, now) {
            return None;
        }
        self.climbed = 0;
        Some(self.climb(meter, rules, now))
    }

    fn climb(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> Why {
        let factor = rules
            .rampup
            .map_or(rules.backoff.delay_factor, |rampup| rampup.delay_factor);
        let step = UP
            .get(usize::from(self.climbed))
            .map_or(factor, |step| step.min(factor));
        let old = self.gap;
        let floor = rules
            .rampup
            .map_or(1, |rampup| nanos(rampup.min_delay).max(1));
        self.gap = scaled(old, 1.0 / step).max(floor.min(old));
        self.climbed = self.climbed.saturating_add(1);
        meter.step(now);
        let why = format!("{} s works: looking further", seconds(old));
        (rampup::event(rules), why.into())
    }

    /// Answers at the present pace that it takes to see a refusal, if there is one to come.
    fn answers_to_see(&self, rules: &Rules<'_>) -> u32 {
        if self.worked <= self.gap {
            // Far from anything that was refused there is little to be wrong about.
            let far = self.gap > 4 * self.refused && usize::from(self.climbed) > UP.len();
            return if far { 5 } else { 10 };
        }
        let beyond = self.worked as f64 / self.gap as f64 - 1.0;
        let half_window = nanos(rules.backoff.window) / 2 / self.gap.max(1);
        let most = (half_window as f64).clamp(10.0, 100.0);
        (2.0 / beyond).clamp(10.0, most) as u32
    }

    fn wait_longer(&mut self, window: u64) {
        let window = u32::try_from(window / 1_000_000).unwrap_or(u32::MAX);
        let longer = self.probe_wait_ms + self.probe_wait_ms / 2;
        self.probe_wait_ms = longer.clamp(window, window.saturating_mul(WAIT_MAX));
    }

    pub(super) fn probe_wait(&self, rules: &Rules<'_>) -> std::time::Duration {
        rampup::probe_wait(rules)
            .unwrap_or(std::time::Duration::from_millis(self.probe_wait_ms.into()))
    }
}
