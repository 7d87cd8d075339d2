//! Rampup: the same search as after a refusal, started before any, with frequent probes.

use std::time::Duration;

use super::super::{Rules, StepReason};
use super::Bracket;
use crate::base::time::Instant;
use crate::throttle::decision::DecisionEvent;

/// The event of a step to a faster pace.
pub(in crate::throttle::backoff) fn event(rules: &Rules<'_>) -> DecisionEvent {
    match rules.rampup {
        Some(_) => DecisionEvent::Rampup,
        None => DecisionEvent::Recover,
    }
}

/// Interval from a refused probe to the next one, so that refusals are as frequent as rampup's
/// target.
pub(in crate::throttle::backoff) fn probe_wait(rules: &Rules<'_>) -> Option<Duration> {
    let (_, most) = rules.rampup?.backoff_target;
    Some(rules.backoff.window / most.max(1))
}

impl Bracket {
    /// Counts a round of refusals. Returns whether there were more than rampup's target in this
    /// window.
    pub(in crate::throttle::backoff) fn count_for_rampup(
        &mut self,
        rules: &Rules<'_>,
        now: Instant,
    ) -> bool {
        let Some(rampup) = rules.rampup else {
            return false;
        };
        self.begin_window(rules, now);
        self.window_refusals = self.window_refusals.saturating_add(1);
        u32::from(self.window_refusals) > rampup.backoff_target.1
    }

    /// Returns whether rampup's target allows another refusal in this window. Always true without
    /// rampup.
    pub(in crate::throttle::backoff) fn may_probe(
        &mut self,
        rules: &Rules<'_>,
        now: Instant,
    ) -> bool {
        let Some(rampup) = rules.rampup else {
            return true;
        };
        self.begin_window(rules, now);
        u32::from(self.window_refusals) < rampup.backoff_target.1
    }

    fn begin_window(&mut self, rules: &Rules<'_>, now: Instant) {
        if now.saturating_since(self.window_since) >= rules.backoff.window {
            self.window_refusals = 0;
            self.window_since = now;
        }
    }

    /// A shorter delay has no effect at this concurrency: doubles the concurrency.
    pub(in crate::throttle::backoff) fn raise_concurrency(
        &mut self,
        rules: &Rules<'_>,
    ) -> Option<StepReason> {
        if self.lanes >= rules.concurrency_max {
            return None;
        }
        let old = self.lanes.max(rules.base.concurrency).max(1);
        self.lanes = old.saturating_mul(2).min(rules.concurrency_max);
        Some((
            DecisionEvent::Rampup,
            "all slots are in use: concurrency raised".into(),
        ))
    }
}
