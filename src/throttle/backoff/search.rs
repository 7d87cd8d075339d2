//! The way up: what answers prove of a bracket's present gap, and where it goes from there.

use std::time::Duration;

use super::bracket::{Bracket, CHANGED, MARGIN, OUTAGE, TELLING, WAIT_MAX, answered_again};
use super::meter::{Meter, millis};
use super::{Rules, Why, rampup, scaled, seconds};
use crate::base::time::{Instant, nanos};
use crate::throttle::decision::Event;
use crate::throttle::strategy::Pace;

impl Bracket {
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
            && let Some(why) = self.come_home(meter, rules, now)
        {
            meter.step(now);
            return Some(why);
        }
        if !meter.has_seen(self.answers_to_see(rules)) {
            return None;
        }
        if self.dear_ms > 0 && millis(meter.busy) < self.dear_ms {
            // As much may have been saved up while nothing was sent.
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

    /// After an outage the pace comes back to where it was.
    fn come_home(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> Option<Why> {
        if self.unanswered < OUTAGE || self.gap <= self.home {
            self.unanswered = 0;
            return None;
        }
        let old = self.gap;
        let average = meter.reopened().unwrap_or(0).min(old);
        if average > self.home && meter.was_spent() {
            // What was refused was not too fast: it came when all was given.
            // Told twice, it is what the server gives.
            let close = average.abs_diff(self.told) < average / 6;
            self.refused = if close { average } else { 0 };
            self.home = if close {
                scaled(average, MARGIN)
            } else {
                average
            };
            self.told = average;
        }
        self.gap = self.home;
        self.unanswered = 0;
        self.outage_ms = millis(meter.giving);
        let lasted = Duration::from_nanos(meter.giving).min(rules.backoff.window / 8);
        self.held(lasted, now);
        Some((Event::Recover, answered_again(old)))
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
            // What it was measured to be is known still, and what was saved up at the server hides
            // a refusal: only a long time at this very pace tells.
            let quiet = now.saturating_since(meter.quiet_since.max(meter.since));
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
        // Not much faster than before, it is soon spent, or the limit is a higher one.
        let stays = self.hasty && self.climbed == 1 && rules.rampup.is_none();
        let patience = if stays {
            Duration::from_millis(self.probe_wait_ms.into())
        } else {
            rules.backoff.window / if self.climbed < 3 { 8 } else { 1 }
        };
        let patient = now.saturating_since(meter.since) < patience;
        if stays && patient && meter.gave_more_than(self.refused) {
            self.refused = scaled(self.gap, 1.0 / MARGIN);
            self.worked = self.gap;
            self.hasty = false;
            self.probe_wait_ms = 0;
            return None;
        }
        if scaled(given, CHANGED) > self.refused {
            if patient {
                return None;
            }
            if rules.rampup.is_some() || self.gap > nanos(rules.base.delay) {
                return Some(self.climb(meter, rules, now));
            }
        }
        self.refused = 0;
        self.worked = self.gap;
        self.probe_wait_ms = 0;
        Some(self.climb(meter, rules, now))
    }

    /// The next step of the search, after the present gap worked.
    fn search(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> Option<Why> {
        if self.refused == 0 {
            // Above what was the limit once, savings may be what is spent.
            let above = self.told > self.gap && rules.rampup.is_none();
            if above && now.saturating_since(meter.since) < rules.backoff.window / 16 {
                return None;
            }
            return Some(self.climb(meter, rules, now));
        }
        let apart = self.gap as f64 / self.refused as f64;
        if apart > CLOSE {
            let quiet = now.saturating_since(meter.quiet_since).as_millis() as f64;
            if quiet < f64::from(self.dear_ms) / (apart - 1.0) {
                // A refusal would cost more than there is to gain by then.
                return None;
            }
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
        if self.probe_wait_ms == 0 {
            self.wait_for_probe(false, rules, now);
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
        let step = match self.climbed {
            0 if self.coarse && rules.rampup.is_none() => FINE,
            _ => step,
        };
        let old = self.gap;
        let floor = rules
            .rampup
            .map_or(rules.base.delay, |rampup| rampup.min_delay);
        let floor = nanos(floor).max(1);
        self.gap = scaled(old, 1.0 / step).max(floor.min(old));
        self.climbed = self.climbed.saturating_add(1);
        meter.step(now);
        let why = format!("{} s works: looking further", seconds(old));
        (rampup::event(rules), why.into())
    }

    /// Answers at the present pace that it takes to see a refusal, if there is one to come.
    fn answers_to_see(&self, rules: &Rules<'_>) -> u32 {
        // Far from anything that was refused there is little to be wrong about.
        let far = self.climbed > FREELY && self.gap > 4 * self.refused && self.told == 0;
        let least = if far { 5.0 } else { 10.0 };
        let beyond = if self.worked > self.gap {
            self.worked as f64 / self.gap as f64 - 1.0
        } else {
            1.0
        };
        let half_window = nanos(rules.backoff.window) / 2 / self.gap.max(1);
        let most = (half_window as f64).clamp(least, 100.0);
        let enough = (2.0 / beyond).clamp(least, most) as u32;
        if self.dear_ms > 0 && self.worked > self.gap {
            4 * enough
        } else {
            enough
        }
    }
}

/// Closer than this to what was refused the search is over.
const CLOSE: f64 = 1.042;
/// A probe goes this factor beyond what worked.
const PROBE: f64 = 1.04;
/// Or this one, where that was too far.
const FINE: f64 = 1.02;
/// Factors up for one step after the other while nothing is refused; then `delay_factor`.
const UP: [f64; 4] = [PROBE, 1.1, 1.2, 1.4];
/// From so many steps on, the pace goes up by `delay_factor`.
pub(super) const FREELY: u8 = UP.len() as u8;
