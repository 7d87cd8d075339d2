//! The steps to a faster pace: what answers prove about a bracket's present gap, and the next gap
//! to try.

use std::time::Duration;

use super::super::meter::{Meter, millis};
use super::super::{OUTAGE_ROUNDS, Rules, StepReason, scaled, seconds};
use super::rampup;
use super::{Bracket, MARGIN, PROBE_WAIT_MAX, RATE_ANSWERS, RATE_CHANGED, answered_again};
use crate::base::time::{Instant, nanos};
use crate::throttle::decision::DecisionEvent;
use crate::throttle::strategy::Pace;

impl Bracket {
    /// Handles an answer to a request that departed at `sent`.
    pub fn success(
        &mut self,
        meter: &mut Meter,
        rules: &Rules<'_>,
        pace: Pace,
        sent: Instant,
        now: Instant,
    ) -> Option<StepReason> {
        if self.unanswered > 0
            && sent >= meter.since
            && let Some(why) = self.resume(meter, rules, now)
        {
            meter.step(now);
            return Some(why);
        }
        if !meter.has_answers(self.answers_needed(rules)) {
            return None;
        }
        if self.hold_ms > 0 && millis(meter.busy) < self.hold_ms {
            // A token bucket may have refilled while nothing was sent.
            return None;
        }
        let asked = nanos(pace.delay);
        if meter.real_gap() > scaled(asked, 1.2) {
            return self.not_tested(meter, rules, pace, now);
        }
        if asked > scaled(self.gap, 1.02) {
            // The base delay is longer, so this gap was not tested.
            meter.restart();
            return None;
        }
        if self.refused >= self.gap {
            return self.beyond_refused(meter, rules, now);
        }
        self.worked = self.gap;
        if self.bucket_gap > scaled(self.gap, 1.03) {
            self.bucket_gap = 0;
            self.is_bucket = false;
        }
        self.search(meter, rules, now)
    }

    /// Returns to the pace before an outage.
    fn resume(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> Option<StepReason> {
        if self.unanswered < OUTAGE_ROUNDS || self.gap <= self.resume_gap {
            self.unanswered = 0;
            return None;
        }
        let old = self.gap;
        let average = meter.reopened().unwrap_or(0).min(old);
        if average > self.resume_gap && meter.was_exhausted() {
            // The refusals came because a quota was used up, not because of the pace. Measured
            // twice, the average is the server's rate.
            let close = average.abs_diff(self.server_gap) < average / 6;
            self.refused = if close { average } else { 0 };
            self.resume_gap = if close {
                scaled(average, MARGIN)
            } else {
                average
            };
            self.server_gap = average;
        }
        self.gap = self.resume_gap;
        self.unanswered = 0;
        self.outage_ms = millis(meter.serving);
        let lasted = Duration::from_nanos(meter.serving).min(rules.backoff.window / 8);
        self.held(lasted, now);
        Some((DecisionEvent::Recover, answered_again(old)))
    }

    /// The pace was not tested: fewer requests came than it allows.
    fn not_tested(
        &mut self,
        meter: &mut Meter,
        rules: &Rules<'_>,
        pace: Pace,
        now: Instant,
    ) -> Option<StepReason> {
        let slots = u64::from(pace.concurrency.max(1));
        let limited_by_slots = self.gap < meter.round_trip() / slots;
        if limited_by_slots && rules.rampup.is_none() {
            // The measured limit is still known, and a full token bucket hides refusals: only a
            // long time at this very pace shows anything.
            let quiet = now.saturating_since(meter.quiet_since.max(meter.since));
            if quiet < rules.backoff.window * PROBE_WAIT_MAX {
                return None;
            }
            self.gap = 0;
            return Some((
                DecisionEvent::Recover,
                "backoff no longer limits the scope".into(),
            ));
        }
        meter.restart();
        if !limited_by_slots {
            return None;
        }
        let why = self.raise_concurrency(rules)?;
        meter.step(now);
        Some(why)
    }

    /// A gap as short as the refused one, or shorter, works so far. That proves nothing until a
    /// token bucket would be used up.
    fn beyond_refused(
        &mut self,
        meter: &mut Meter,
        rules: &Rules<'_>,
        now: Instant,
    ) -> Option<StepReason> {
        let served = match meter.served_gap(RATE_ANSWERS) {
            Some(served) => served,
            None if meter.is_anchored() => return None,
            None => 0,
        };
        // A pace only a little faster uses the bucket up soon, or the limit has risen.
        let stays = self.overshot_later && self.steps_up == 1 && rules.rampup.is_none();
        let step_time = if stays {
            Duration::from_millis(self.probe_wait_ms.into())
        } else {
            rules.backoff.window / if self.steps_up < 3 { 8 } else { 1 }
        };
        let is_early = now.saturating_since(meter.since) < step_time;
        if stays && is_early && meter.served_faster_than(self.refused) {
            self.refused = scaled(self.gap, 1.0 / MARGIN);
            self.worked = self.gap;
            self.overshot_later = false;
            self.probe_wait_ms = 0;
            return None;
        }
        if scaled(served, RATE_CHANGED) > self.refused {
            if is_early {
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

    /// Makes the next step of the search after the present gap worked.
    fn search(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> Option<StepReason> {
        if self.refused == 0 {
            // Faster than the earlier limit, the answers may come from a full token bucket.
            let above = self.server_gap > self.gap && rules.rampup.is_none();
            if above && now.saturating_since(meter.since) < rules.backoff.window / 16 {
                return None;
            }
            return Some(self.climb(meter, rules, now));
        }
        let apart = self.gap as f64 / self.refused as f64;
        if apart > CLOSE {
            let quiet = now.saturating_since(meter.quiet_since).as_millis() as f64;
            if quiet < f64::from(self.hold_ms) / (apart - 1.0) {
                // A refusal would cost more time than the faster pace would gain by then.
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
            return Some((DecisionEvent::Recover, why.into()));
        }
        if self.probe_wait_ms == 0 {
            self.wait_for_probe(false, rules, now);
        }
        if now < self.probe_at || !self.may_probe(rules, now) {
            return None;
        }
        self.steps_up = 0;
        Some(self.climb(meter, rules, now))
    }

    fn climb(&mut self, meter: &mut Meter, rules: &Rules<'_>, now: Instant) -> StepReason {
        let factor = rules
            .rampup
            .map_or(rules.backoff.delay_factor, |rampup| rampup.delay_factor);
        let step = UP_FACTORS
            .get(usize::from(self.steps_up))
            .map_or(factor, |step| step.min(factor));
        let step = match self.steps_up {
            0 if self.overshot_first && rules.rampup.is_none() => PROBE_FINE,
            _ => step,
        };
        let old = self.gap;
        let floor = rules
            .rampup
            .map_or(rules.base.delay, |rampup| rampup.min_delay);
        let floor = nanos(floor).max(1);
        self.gap = scaled(old, 1.0 / step).max(floor.min(old));
        self.steps_up = self.steps_up.saturating_add(1);
        meter.step(now);
        let why = format!("{} s works: trying a shorter delay", seconds(old));
        (rampup::event(rules), why.into())
    }

    /// Number of answers at the present pace after which a refusal would have been seen.
    fn answers_needed(&self, rules: &Rules<'_>) -> u32 {
        // Far from any refused gap there is little to verify.
        let far = self.steps_up > UP_STEPS && self.gap > 4 * self.refused && self.server_gap == 0;
        let least = if far { 5.0 } else { 10.0 };
        let beyond = if self.worked > self.gap {
            self.worked as f64 / self.gap as f64 - 1.0
        } else {
            1.0
        };
        let half_window = nanos(rules.backoff.window) / 2 / self.gap.max(1);
        let most = (half_window as f64).clamp(least, 100.0);
        let enough = (2.0 / beyond).clamp(least, most) as u32;
        if self.hold_ms > 0 && self.worked > self.gap {
            4 * enough
        } else {
            enough
        }
    }
}

/// The search ends when the gap is within this factor of the refused one.
const CLOSE: f64 = 1.042;
/// Factor by which a probe goes beyond the working gap.
const PROBE: f64 = 1.04;
/// The same after a probe that was refused at its first step.
const PROBE_FINE: f64 = 1.02;
/// Factors of the first steps without a refusal; later steps use `delay_factor`.
const UP_FACTORS: [f64; 4] = [PROBE, 1.1, 1.2, 1.4];
/// After this many steps the pace rises by `delay_factor`.
pub(in crate::throttle::backoff) const UP_STEPS: u8 = UP_FACTORS.len() as u8;
