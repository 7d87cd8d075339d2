//! What a scope's pace does about signals: a replaceable policy, and the ones that are built in.

use std::fmt;
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

/// The policy of one scope. The built-in ones need no memory beyond the pace itself.
pub(super) enum Policy {
    /// The configured pace, whatever comes.
    Fixed,
    /// The delay follows the latency, as Scrapy's does.
    AutoThrottle(Rc<AutoThrottle>),
    /// The embedder's own.
    Custom(Box<dyn Strategy>),
}

impl Policy {
    /// The built-in policy that `settings` ask for.
    pub(super) fn built_in(autothrottle: Option<&Rc<AutoThrottle>>) -> Self {
        autothrottle.map_or(Policy::Fixed, |settings| {
            Policy::AutoThrottle(Rc::clone(settings))
        })
    }

    /// The pace before the first answer.
    pub(super) fn start(&mut self, settings: &ScopeSettings) -> Pace {
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
        &mut self,
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

    /// Whether a scope that has this policy carries nothing that a fresh one would not.
    pub(super) fn forgets(&self) -> bool {
        matches!(self, Policy::Fixed)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Fixed => "Fixed",
            Policy::AutoThrottle(_) => "AutoThrottle",
            Policy::Custom(_) => "Custom",
        })
    }
}
