//! Rampup: the same search, begun before anything was refused, and never at rest for long.

use std::time::Duration;

use super::bracket::Bracket;
use super::{Rules, Why};
use crate::base::time::Instant;
use crate::throttle::decision::Event;

/// What a step up is called.
pub(super) fn event(rules: &Rules<'_>) -> Event {
    match rules.rampup {
        Some(_) => Event::Rampup,
        None => Event::Recover,
    }
}

/// From a refused probe to the next one: as often as refusals are wanted.
pub(super) fn probe_wait(rules: &Rules<'_>) -> Option<Duration> {
    let (_, most) = rules.rampup?.backoff_target;
    Some(rules.backoff.window / most.max(1))
}

impl Bracket {
    /// Counts a round of refusals. Whether that is more than rampup wants in a window.
    pub(super) fn count_for_rampup(&mut self, rules: &Rules<'_>, now: Instant) -> bool {
        let Some(rampup) = rules.rampup else {
            return false;
        };
        self.begin_window(rules, now);
        self.tally = self.tally.saturating_add(1);
        u32::from(self.tally) > rampup.backoff_target.1
    }

    /// Whether rampup would have another refusal in this window. Without rampup: always.
    pub(super) fn may_probe(&mut self, rules: &Rules<'_>, now: Instant) -> bool {
        let Some(rampup) = rules.rampup else {
            return true;
        };
        self.begin_window(rules, now);
        u32::from(self.tally) < rampup.backoff_target.1
    }

    fn begin_window(&mut self, rules: &Rules<'_>, now: Instant) {
        if now.saturating_since(self.tally_since) >= rules.backoff.window {
            self.tally = 0;
            self.tally_since = now;
        }
    }

    /// The delay is as low as concurrency lets it be of use: more at once.
    pub(super) fn widen(&mut self, rules: &Rules<'_>) -> Option<Why> {
        if self.lanes >= rules.concurrency_max {
            return None;
        }
        let old = self.lanes.max(rules.base.concurrency).max(1);
        self.lanes = old.saturating_mul(2).min(rules.concurrency_max);
        Some((Event::Rampup, "all places are taken: more at once".into()))
    }
}
