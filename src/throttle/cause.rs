//! WaitCause of the wait of a scope's next request.

use super::decision::DecisionSource;
use std::fmt;

/// The reason why a scope's next request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitCause {
    /// The configured delay.
    Delay,
    /// AutoThrottle's delay.
    Autothrottle,
    /// Backoff's delay.
    Backoff,
    /// A hold: `Retry-After`, `RateLimit-*`, or set by the embedding program.
    Hold,
    /// Crawl-delay.
    Robots,
    /// Rampup's delay.
    Rampup,
    /// A quota, or a documented limit.
    Quota,
    /// All slots of the scope are taken.
    Concurrency,
    /// `CONCURRENT_REQUESTS` are in flight, or as many hosts have a turn as keep the crawl busy.
    GlobalCap,
    /// Nothing is queued, so nothing waits.
    Queue,
}

impl WaitCause {
    /// All causes.
    pub const ALL: [WaitCause; 10] = [
        WaitCause::Delay,
        WaitCause::Autothrottle,
        WaitCause::Backoff,
        WaitCause::Hold,
        WaitCause::Robots,
        WaitCause::Rampup,
        WaitCause::Quota,
        WaitCause::Concurrency,
        WaitCause::GlobalCap,
        WaitCause::Queue,
    ];

    /// The key in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitCause::Delay => "delay",
            WaitCause::Autothrottle => "autothrottle",
            WaitCause::Backoff => "backoff",
            WaitCause::Hold => "hold",
            WaitCause::Robots => "robots",
            WaitCause::Rampup => "rampup",
            WaitCause::Quota => "quota",
            WaitCause::Concurrency => "concurrency",
            WaitCause::GlobalCap => "global_cap",
            WaitCause::Queue => "queue",
        }
    }

    /// The cause that corresponds to a rule.
    pub(super) fn of(source: DecisionSource, held: bool) -> WaitCause {
        match source {
            _ if held => WaitCause::Hold,
            DecisionSource::Autothrottle => WaitCause::Autothrottle,
            DecisionSource::Backoff => WaitCause::Backoff,
            DecisionSource::RetryAfter | DecisionSource::RateLimit => WaitCause::Hold,
            DecisionSource::Robots => WaitCause::Robots,
            DecisionSource::Rampup => WaitCause::Rampup,
            DecisionSource::Quota => WaitCause::Quota,
            DecisionSource::User => WaitCause::Delay,
        }
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
