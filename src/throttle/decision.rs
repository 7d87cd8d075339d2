//! What the throttle decided, and by which rule: the lines of `throttle.jsonl`.

use std::borrow::Cow;
use std::time::Duration;

use crate::base::time::Instant;

/// One decision about the pace of one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// The scope's name.
    pub scope: String,
    /// The attempt whose answer led to it; `None` where none did.
    pub id: Option<u64>,
    /// What kind of decision.
    pub event: Event,
    /// Status of that answer.
    pub status: Option<u16>,
    /// The latency that was looked at, in the scope's own `latency_from`.
    pub latency: Option<Duration>,
    /// The delay that the rule aims at; `None` where it aims at none.
    pub target_delay: Option<Duration>,
    /// The pace's delay before and after.
    pub delay: [Duration; 2],
    /// The pace's concurrency before and after.
    pub concurrency: [u32; 2],
    /// Requests of the scope in flight.
    pub in_flight: u32,
    /// Bytes of the answer's body, where they are known by then.
    pub size: Option<u64>,
    /// Words for a person: what was seen, and what was done about it.
    pub reason: Cow<'static, str>,
    /// The rule that decided.
    pub source: Source,
}

/// The kinds of decisions; `event` of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// AutoThrottle looked at a latency.
    Autothrottle,
    /// A refusal made the pace slower.
    Backoff,
    /// Nothing departs for a while.
    Hold,
    /// Quiet made the pace faster again.
    Recover,
    /// Rampup made the pace faster or slower.
    Rampup,
    /// A quota was spent, or reconciled.
    Quota,
    /// robots.txt asked for a pace.
    Robots,
    /// A setting had no effect.
    Ineffective,
    /// Answers are not what they seem.
    Suspect,
}

impl Event {
    /// The word in `throttle.jsonl`.
    pub const fn name(self) -> &'static str {
        match self {
            Event::Autothrottle => "autothrottle",
            Event::Backoff => "backoff",
            Event::Hold => "hold",
            Event::Recover => "recover",
            Event::Rampup => "rampup",
            Event::Quota => "quota",
            Event::Robots => "robots",
            Event::Ineffective => "ineffective",
            Event::Suspect => "suspect",
        }
    }
}

/// The rules that pace a scope; `source` of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The latency.
    Autothrottle,
    /// Refusals.
    Backoff,
    /// `Retry-After`.
    RetryAfter,
    /// `RateLimit-*` and its relatives.
    RateLimit,
    /// Crawl-delay.
    Robots,
    /// Rampup.
    Rampup,
    /// A quota.
    Quota,
    /// The configuration, or the embedding program.
    User,
}

impl Source {
    /// The word in `throttle.jsonl`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Autothrottle => "autothrottle",
            Source::Backoff => "backoff",
            Source::RetryAfter => "retry-after",
            Source::RateLimit => "ratelimit",
            Source::Robots => "robots",
            Source::Rampup => "rampup",
            Source::Quota => "quota",
            Source::User => "user",
        }
    }
}
