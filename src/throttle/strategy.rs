//! What a scope's pace does about signals: a replaceable policy, and the ones that are built in.

use std::rc::Rc;
use std::time::Duration;

use super::autothrottle;
use super::settings::{AutoThrottle, ScopeSettings};
use super::signal::Signal;
use crate::base::time::Instant;

/// The pace that a strategy asks for. Other rules (a hold, Crawl-delay, the global cap) only tighten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From one send to the next, before jitter.
    pub delay: Duration,
    /// Requests in flight. At least 1.
    pub concurrency: u32,
}

/// Turns signals into pace, for one scope. One strategy lives as long as its scope's state.
pub trait Strategy {
    /// The pace before the first answer.
    fn start(&mut self, settings: &ScopeSettings) -> Pace;

    /// The pace after `signal`.
    fn answer(
        &mut self,
        settings: &ScopeSettings,
        pace: Pace,
        signal: &Signal,
        now: Instant,
    ) -> Pace;
}

/// Makes the strategy of each new scope; registered by an embedder.
pub type StrategyMaker = Rc<dyn Fn(&str) -> Option<Box<dyn Strategy>>>;

/// The policy of one scope, made whenever it is asked: the built-in ones need no memory beyond the
/// pace itself.
pub(super) enum Policy<'a> {
    /// The configured pace, whatever comes.
    Fixed,
    /// The delay follows the latency, as Scrapy's does.
    AutoThrottle(&'a AutoThrottle),
    /// The embedder's own.
    Custom(&'a mut dyn Strategy),
}

impl<'a> Policy<'a> {
    /// The embedder's own policy, where there is one, or the built-in that `settings` ask for.
    pub(super) fn of(
        custom: Option<&'a mut (dyn Strategy + 'static)>,
        settings: &'a ScopeSettings,
    ) -> Self {
        match (custom, &settings.autothrottle) {
            (Some(strategy), _) => Policy::Custom(strategy),
            (None, Some(auto)) => Policy::AutoThrottle(auto),
            (None, None) => Policy::Fixed,
        }
    }

    /// The pace before the first answer.
    pub(super) fn start(self, settings: &ScopeSettings) -> Pace {
        let configured = Pace {
            delay: settings.delay,
            concurrency: settings.concurrency,
        };
        match self {
            Policy::Fixed => configured,
            Policy::AutoThrottle(auto) => Pace {
                delay: autothrottle::start_delay(auto, settings.delay),
                ..configured
            },
            Policy::Custom(strategy) => strategy.start(settings),
        }
    }

    /// The pace after `signal`.
    pub(super) fn answer(
        self,
        settings: &ScopeSettings,
        pace: Pace,
        signal: &Signal,
        now: Instant,
    ) -> Pace {
        match self {
            Policy::Fixed => pace,
            Policy::AutoThrottle(auto) => Pace {
                delay: autothrottle::adjusted_delay(auto, settings.delay, pace.delay, signal),
                ..pace
            },
            Policy::Custom(strategy) => strategy.answer(settings, pace, signal, now),
        }
    }
}
