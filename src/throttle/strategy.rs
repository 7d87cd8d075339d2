//! The interface of a strategy: how a scope's pace reacts to answers, if an embedder replaces the
//! built-in rules.

use std::time::Duration;

use super::settings::ScopeSettings;
use super::signal::{ExchangeEnd, Feedback, Signal};
use crate::base::time::Instant;

/// The pace that a strategy asks for. Other rules (a hold, Crawl-delay, the global cap) can only
/// make it slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time from one send to the next, before jitter.
    pub delay: Duration,
    /// Requests in flight. At least 1.
    pub concurrency: u32,
}

/// An answer as seen by one scope.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Observation<'a> {
    /// Meaning of the answer.
    pub signal: &'a Signal,
    /// The answer is a refusal by this scope's settings, and this scope is blamed for it.
    pub refused: bool,
    /// Departure of the request.
    pub sent: Instant,
}

/// Determines the pace of one scope from answers, in place of AutoThrottle, backoff and rampup.
///
/// It gets every answer. With several requests in flight, those that departed before a change of the pace are
/// answered after it: they say nothing of the new pace, and a strategy that doubled the delay for each of their
/// refusals would make it 16 times as long for one round of 4. Those are the ones whose `sent`
/// ([`Observation::sent`], [`ExchangeEnd::sent`]) is before the time of the change, which is the `now` of the
/// call that returned another pace. The built-in backoff counts them as one refusal.
///
/// A strategy lives as long as its scope's state. Holds, Crawl-delay and quotas still apply and can
/// only make its pace slower. It is called on the crawl's thread and must be fast.
pub trait Strategy: Send {
    /// The pace before the first answer: the configured one, unless implemented.
    fn start(&mut self, settings: &ScopeSettings) -> Pace {
        Pace {
            delay: settings.delay,
            concurrency: settings.concurrency,
        }
    }

    /// The pace after an answer, from the pace before it: the same, unless implemented. Called when the head
    /// arrived, or when none will arrive; once more if the body breaks off, or if [`Classify`](crate::Classify) gave its
    /// body a status, a refusal or not: with that status and without latencies.
    fn answer(
        &mut self,
        _settings: &ScopeSettings,
        pace: Pace,
        _observation: &Observation<'_>,
        _now: Instant,
    ) -> Pace {
        pace
    }

    /// The pace after the end of an exchange whose head was answered before: the same, unless implemented.
    /// Called once, when the verdict on the whole answer is known.
    fn ended(
        &mut self,
        _settings: &ScopeSettings,
        pace: Pace,
        _ending: &ExchangeEnd,
        _now: Instant,
    ) -> Pace {
        pace
    }

    /// Called when a request departed.
    fn sent(&mut self, _at: Instant) {}

    /// Nothing departs before this time, whatever the pace: for limits that a gap cannot express.
    fn departs_at(&self) -> Instant {
        Instant::START
    }

    /// Called with feedback about the scope from an answer or from the embedding program.
    fn feedback(&mut self, _feedback: &Feedback, _now: Instant) {}

    /// When the scope's state may be evicted if it is not used until then; `None`: never.
    fn forgettable_at(&self) -> Option<Instant> {
        None
    }

    /// What a later run of the crawl is to continue with, in any form; `None`: it starts anew. Called after
    /// answers and departures, about once per commit of the crawl's state, and never without such a state.
    /// It may be of a moment shortly before the end of the crawl.
    fn save(&self, _now: Instant) -> Option<Vec<u8>> {
        None
    }

    /// Continues with what an earlier run saved `elapsed` ago, by the system's clock. Called after
    /// [`Strategy::start`] and before the first request, which waits for a full gap in any case. Returns the
    /// pace; `None`: that of the start.
    fn restore(
        &mut self,
        _settings: &ScopeSettings,
        _saved: &[u8],
        _elapsed: Duration,
        _now: Instant,
    ) -> Option<Pace> {
        None
    }
}

/// Creates the strategy of each new scope; registered by an embedder.
pub type StrategyMaker = Box<dyn Fn(&str) -> Option<Box<dyn Strategy>> + Send>;
