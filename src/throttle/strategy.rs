//! What a scope's pace does about answers, where the embedder brings that.

use std::time::Duration;

use super::settings::ScopeSettings;
use super::signal::{Ending, Feedback, Signal};
use crate::base::time::Instant;

/// The pace that a strategy asks for. Other rules (a hold, Crawl-delay, the global cap) only tighten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From one send to the next, before jitter.
    pub delay: Duration,
    /// Requests in flight. At least 1.
    pub concurrency: u32,
}

/// An answer, as one scope hears of it.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// What it means.
    pub signal: &'a Signal,
    /// It is a refusal by this scope's settings, and this scope is blamed for it.
    pub refused: bool,
    /// When its request departed.
    pub sent: Instant,
}

/// Turns answers into pace, for one scope, in place of AutoThrottle, backoff and rampup.
///
/// One strategy lives as long as its scope's state. Holds, Crawl-delay and quotas go on beside it
/// and only tighten what it asks for. It is asked on the crawl's thread and must be quick.
pub trait Strategy: Send {
    /// The pace before the first answer.
    fn start(&mut self, settings: &ScopeSettings) -> Pace;

    /// The pace after an answer, from the pace before it.
    fn answer(
        &mut self,
        settings: &ScopeSettings,
        pace: Pace,
        observation: &Observation<'_>,
        now: Instant,
    ) -> Pace;

    /// The pace after the end of an exchange whose head was answered before.
    fn ended(
        &mut self,
        _settings: &ScopeSettings,
        pace: Pace,
        _ending: &Ending,
        _now: Instant,
    ) -> Pace {
        pace
    }

    /// A request departed.
    fn sent(&mut self, _at: Instant) {}

    /// Nothing departs before this, whatever the pace: for limits that no gap can express.
    fn departs_at(&self) -> Instant {
        Instant::START
    }

    /// What an answer, or the embedding program, told of the scope beyond the pace.
    fn feedback(&mut self, _feedback: &Feedback, _now: Instant) {}

    /// When the scope's state may be forgotten, if nobody uses it until then; `None`: never.
    fn forgettable_at(&self) -> Option<Instant> {
        None
    }
}

/// Makes the strategy of each new scope; registered by an embedder.
pub type StrategyMaker = Box<dyn Fn(&str) -> Option<Box<dyn Strategy>> + Send>;
