//! Cause of the wait of a scope's next request.

use super::decision::DecisionSource;
use std::fmt;

/// The reason why a scope's next request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
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
    /// `CONCURRENT_REQUESTS` are in flight.
    GlobalCap,
    /// Nothing is queued, so nothing waits.
    Queue,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 10] = [
        Cause::Delay,
        Cause::Autothrottle,
        Cause::Backoff,
        Cause::Hold,
        Cause::Robots,
        Cause::Rampup,
        Cause::Quota,
        Cause::Concurrency,
        Cause::GlobalCap,
        Cause::Queue,
    ];

    /// The key in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Delay => "delay",
            Cause::Autothrottle => "autothrottle",
            Cause::Backoff => "backoff",
            Cause::Hold => "hold",
            Cause::Robots => "robots",
            Cause::Rampup => "rampup",
            Cause::Quota => "quota",
            Cause::Concurrency => "concurrency",
            Cause::GlobalCap => "global_cap",
            Cause::Queue => "queue",
        }
    }

    /// The cause that corresponds to a rule.
    pub(super) fn of(source: DecisionSource, held: bool) -> Cause {
        match source {
            _ if held => Cause::Hold,
            DecisionSource::Autothrottle => Cause::Autothrottle,
            DecisionSource::Backoff => Cause::Backoff,
            DecisionSource::RetryAfter | DecisionSource::RateLimit => Cause::Hold,
            DecisionSource::Robots => Cause::Robots,
            DecisionSource::Rampup => Cause::Rampup,
            DecisionSource::Quota => Cause::Quota,
            DecisionSource::User => Cause::Delay,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
