//! What an audit found.

use std::fmt;

use serde::{Serialize, Serializer};

use super::runs::{Run, Unobserved};
use super::time::Time;

/// What a request violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The configured delay of a scope.
    Gap,
    /// The configured delay of a slot of a scope.
    SlotGap,
    /// `requests_per_minute` of a scope.
    PerMinute,
    /// The configured concurrency of a scope.
    Concurrency,
    /// `CONCURRENT_REQUESTS`.
    TotalConcurrency,
    /// A Retry-After.
    RetryAfter,
    /// Rate-limit fields.
    RateLimit,
    /// `hold_until` of a scope.
    HoldUntil,
    /// The Retry-After of a redirect.
    RedirectWait,
    /// A hold that is shorter than the reply asked for and the settings allow.
    ShortHold,
    /// The Crawl-delay of a robots.txt.
    CrawlDelay,
    /// One request at a time, as with a Crawl-delay.
    CrawlDelayConcurrency,
    /// It was sent before robots.txt was fetched.
    RobotsNotFetched,
    /// It was sent after robots.txt was no longer valid.
    RobotsExpired,
    /// It was sent while robots.txt was unavailable.
    RobotsUnreachable,
    /// robots.txt disallows it.
    RobotsDisallowed,
    /// An address that is not globally routable, and not allowed.
    Address,
    /// It lacks the scope of its address.
    AddressScope,
    /// `EXCLUDE`, by its host.
    ExcludedHost,
    /// `EXCLUDE`, by its address.
    ExcludedNetwork,
    /// An order that excludes its host.
    ExcludedByOrder,
    /// An order that pauses the crawl.
    Paused,
    /// An order that cancels requests of its scope.
    Cancelled,
    /// An order that stops the crawl.
    Stopped,
    /// It was sent while no run of the crawl could send.
    OutsideRun,
    /// It was sent before throttling allowed it.
    Early,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 26] = [
        Kind::Gap,
        Kind::SlotGap,
        Kind::PerMinute,
        Kind::Concurrency,
        Kind::TotalConcurrency,
        Kind::RetryAfter,
        Kind::RateLimit,
        Kind::HoldUntil,
        Kind::RedirectWait,
        Kind::ShortHold,
        Kind::CrawlDelay,
        Kind::CrawlDelayConcurrency,
        Kind::RobotsNotFetched,
        Kind::RobotsExpired,
        Kind::RobotsUnreachable,
        Kind::RobotsDisallowed,
        Kind::Address,
        Kind::AddressScope,
        Kind::ExcludedHost,
        Kind::ExcludedNetwork,
        Kind::ExcludedByOrder,
        Kind::Paused,
        Kind::Cancelled,
        Kind::Stopped,
        Kind::OutsideRun,
        Kind::Early,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Gap => "gap",
            Kind::SlotGap => "slot-gap",
            Kind::PerMinute => "per-minute",
            Kind::Concurrency => "concurrency",
            Kind::TotalConcurrency => "total-concurrency",
            Kind::RetryAfter => "retry-after",
            Kind::RateLimit => "ratelimit",
            Kind::HoldUntil => "hold-until",
            Kind::RedirectWait => "redirect-wait",
            Kind::ShortHold => "short-hold",
            Kind::CrawlDelay => "crawl-delay",
            Kind::CrawlDelayConcurrency => "crawl-delay-concurrency",
            Kind::RobotsNotFetched => "robots-not-fetched",
            Kind::RobotsExpired => "robots-expired",
            Kind::RobotsUnreachable => "robots-unreachable",
            Kind::RobotsDisallowed => "robots-disallowed",
            Kind::Address => "address",
            Kind::AddressScope => "address-scope",
            Kind::ExcludedHost => "excluded-host",
            Kind::ExcludedNetwork => "excluded-network",
            Kind::ExcludedByOrder => "excluded-by-order",
            Kind::Paused => "paused",
            Kind::Cancelled => "cancelled",
            Kind::Stopped => "stopped",
            Kind::OutsideRun => "outside-run",
            Kind::Early => "early",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A request that violated a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// What it violated.
    pub kind: Kind,
    /// The scope whose limit that is; of limits that concern no scope, the host with its port.
    pub scope: String,
    /// The host of its URL, with its port.
    pub host: String,
    /// Number of its attempt: `id` of its result line.
    pub id: u64,
    /// When it departed.
    pub sent: Time,
    /// Seconds by which it was too early, of limits that are times.
    pub early: Option<f64>,
    /// The attempt that it followed too soon, or whose reply asked it to wait.
    pub after: Option<u64>,
    /// The limit and how it was violated, for a person; may change.
    pub detail: String,
}

/// Verdict on one scope or host.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScopeVerdict {
    /// Its name.
    pub scope: String,
    /// `kept` or `violated`.
    pub verdict: &'static str,
    /// Requests that departed under it.
    pub departures: u64,
    /// Violations by their kinds.
    pub violations: Vec<(Kind, u64)>,
    /// The shortest time between two departures, in seconds.
    pub gap_min: Option<f64>,
    /// The shortest that the settings allow at its last departure, in seconds.
    pub gap_allowed: Option<f64>,
    /// Gaps in which requests may have been sent that have no lines.
    pub unobserved_gaps: u64,
}

impl ScopeVerdict {
    /// Number of its violations.
    pub fn violated(&self) -> u64 {
        self.violations.iter().map(|(_, count)| count).sum()
    }
}

/// What could not be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unjudged {
    /// Departures whose lines came too late to be put in order.
    pub unordered: u64,
    /// Departures under more names of scopes and origins than are kept.
    pub beyond_names: u64,
    /// Requests whose robots.txt the archive lacks.
    pub robots_unknown: u64,
    /// Departures under a limit that concerns more departures than are kept.
    pub beyond_departures: u64,
}

impl Unjudged {
    /// Whether all was judged.
    pub fn is_none(&self) -> bool {
        *self == Unjudged::default()
    }
}

/// What an audit found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// `kept`; `violated`; `incomplete`: no violation was found, and not all could be judged.
    pub verdict: &'static str,
    /// Requests that were sent.
    pub departures: u64,
    /// Requests that departed just after what forbade them, in the same turn: they count as in flight.
    pub excused: u64,
    /// Number of violations.
    pub violated: u64,
    /// Violations by kind: those that occurred.
    pub kinds: Vec<(Kind, u64)>,
    /// The first violations in the order in which they were found.
    pub violations: Vec<Violation>,
    /// Violations that are not listed.
    pub violations_omitted: u64,
    /// The runs.
    pub runs: Vec<Run>,
    /// When requests may have been sent that have no lines.
    pub unobserved: Vec<Unobserved>,
    /// What could not be judged.
    pub unjudged: Unjudged,
    /// A verdict for each scope, those with most violations first, then by name.
    pub scopes: Vec<ScopeVerdict>,
}
