//! The last decisions of all scopes, for operators who ask for those of one scope.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use super::super::decision::{Decision, DecisionEvent, DecisionSource};
use super::Throttle;
use crate::base::keys::ScopeKey;
use crate::base::time::Instant;

/// The last decisions, at most [`HISTORY_MAX`].
#[derive(Debug, Default)]
pub(super) struct History {
    is_on: bool,
    decisions: VecDeque<Recorded>,
}

/// A decision. There may be a hundred thousand, so the scope is known by its key alone.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub scope: ScopeKey,
    pub at: Instant,
    pub id: Option<u64>,
    pub reason: Cow<'static, str>,
    pub delay: [Duration; 2],
    pub latency: Option<Duration>,
    pub target: Option<Duration>,
    pub concurrency: [u32; 2],
    pub in_flight: u32,
    pub status: Option<u16>,
    pub event: DecisionEvent,
    pub source: DecisionSource,
}

impl Recorded {
    /// A decision about the scope with this key.
    pub fn of(decision: &Decision, scope: ScopeKey) -> Self {
        Recorded {
            scope,
            at: decision.at,
            id: decision.id,
            reason: decision.reason.clone(),
            delay: decision.delay,
            latency: decision.latency,
            target: decision.target_delay,
            concurrency: decision.concurrency,
            in_flight: decision.in_flight,
            status: decision.status,
            event: decision.event,
            source: decision.source,
        }
    }
}

/// Decisions of all scopes that are kept: some 16 MB.
const HISTORY_MAX: usize = 100_000;

impl History {
    /// Whether decisions are kept.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Keeps a decision.
    pub fn push(&mut self, decision: Recorded) {
        if self.decisions.len() == HISTORY_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }
}

impl Throttle {
    /// Keeps the last decisions from now on.
    pub(crate) fn keep_history(&mut self) {
        self.history.is_on = true;
    }

    /// Whether decisions are recorded at all.
    pub(super) fn records_decisions(&self) -> bool {
        self.tracing || self.history.is_on()
    }

    /// The key of a scope in the history.
    pub(super) fn history_key(&self, scope: &str) -> ScopeKey {
        self.secret.keys().scope(scope)
    }

    /// The last decisions about a scope, at most `most`, the newest first. The sizes of bodies are not kept.
    pub(crate) fn history_of(&self, scope: &str, most: usize) -> Vec<Decision> {
        let key = self.history_key(scope);
        let of_scope = self.history.decisions.iter().rev();
        let of_scope = of_scope.filter(|recorded| recorded.scope == key);
        let decisions = of_scope.take(most).map(|recorded| Decision {
            at: recorded.at,
            scope: scope.to_owned(),
            id: recorded.id,
            event: recorded.event,
            status: recorded.status,
            latency: recorded.latency,
            target_delay: recorded.target,
            delay: recorded.delay,
            concurrency: recorded.concurrency,
            in_flight: recorded.in_flight,
            size: None,
            reason: recorded.reason.clone(),
            source: recorded.source,
        });
        decisions.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::settings::ThrottleSettings;

    #[test]
    fn a_decision_takes_at_most_160_bytes() {
        assert!(size_of::<Recorded>() <= 160, "{}", size_of::<Recorded>());
    }

    #[test]
    fn the_oldest_decisions_are_dropped_and_those_of_a_scope_are_found_the_newest_first() {
        let mut throttle = Throttle::new(ThrottleSettings::default(), 1, Instant::START);
        let scopes = ["a.test", "b.test"].map(|name| throttle.scope(name));
        let decide = |throttle: &mut Throttle, number: u64| {
            throttle.decide_beside(
                scopes[number as usize % 2],
                Some(number),
                DecisionEvent::Hold,
                DecisionSource::User,
                number.to_string(),
                Instant::START,
            );
        };
        decide(&mut throttle, 0);
        assert!(throttle.history_of("a.test", 9).is_empty(), "it is off");
        throttle.keep_history();
        for number in 1..=150_000 {
            decide(&mut throttle, number);
        }
        assert_eq!(throttle.history.decisions.len(), HISTORY_MAX);
        let ids = |name: &str, most: usize| {
            let found = throttle.history_of(name, most).into_iter();
            found
                .map(|decision| decision.id.expect("it has one"))
                .collect::<Vec<u64>>()
        };
        assert_eq!(ids("a.test", 3), [150_000, 149_998, 149_996]);
        assert_eq!(ids("b.test", 100_000).last(), Some(&50_001));
        assert_eq!(ids("c.test", 3), [] as [u64; 0]);
        assert!(!throttle.has_decisions(), "they are not traced");
    }
}
