//! Settings of pacing that have several keys, or one of several values.

use std::time::Duration;

use crate::fetch::failure::FailureKind;
use crate::throttle::signal::Signal;

/// `BACKOFF_*`: which answers are refusals, and how they change the pace.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Backoff {
    /// `backoff.enabled`: refusals change the pace. If false, no answer is a refusal and
    /// Retry-After is ignored.
    pub enabled: bool,
    /// `BACKOFF_HTTP_CODES`: statuses that count as refusals.
    pub http_codes: Vec<u16>,
    /// `BACKOFF_EXCEPTIONS`: failures that count as refusals.
    pub exceptions: Vec<FailureKind>,
    /// `BACKOFF_DELAY_FACTOR`: factor by which a step multiplies the delay. Above 1.
    pub delay_factor: f64,
    /// `BACKOFF_MAX_DELAY`: upper bound of the delay, and of holds asked for by a server.
    pub max_delay: Duration,
    /// `BACKOFF_MIN_DELAY`: minimum delay in backoff until a working rate is known.
    pub min_delay: Duration,
    /// `BACKOFF_JITTER`: replaces the scope's jitter in backoff without a known rate.
    pub jitter: Jitter,
    /// `BACKOFF_WINDOW`: time without refusals per step of recovery.
    pub window: Duration,
    /// `BACKOFF_CONCURRENCY_FACTOR`: factor by which each round of refusals multiplies the
    /// concurrency once the delay is at its maximum. Between 0 and 1, exclusive.
    pub concurrency_factor: f64,
    /// `backoff.per_slot`: each slot of the scope backs off separately.
    pub per_slot: bool,
}

impl Backoff {
    /// Returns whether an answer is a refusal by its status or its failure.
    pub(crate) fn refuses(&self, signal: &Signal) -> bool {
        let by_status = signal
            .status
            .is_some_and(|status| self.http_codes.contains(&status));
        let by_failure = signal
            .failure
            .is_some_and(|kind| self.exceptions.contains(&kind));
        self.enabled && (by_status || by_failure)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            enabled: true,
            http_codes: vec![429, 502, 503, 504, 520, 521, 522, 523, 524],
            exceptions: vec![
                FailureKind::Timeout,
                FailureKind::Reset,
                FailureKind::Truncated,
            ],
            delay_factor: 2.0,
            max_delay: Duration::from_secs(300),
            min_delay: Duration::from_secs(1),
            jitter: Jitter::symmetric(0.1),
            window: Duration::from_secs(60),
            concurrency_factor: 0.5,
            per_slot: false,
        }
    }
}

/// `rampup`: the pace rises until a few refusals per window occur, and stays there.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rampup {
    /// `RAMPUP_BACKOFF_TARGET`: range of wanted refusals per window.
    pub backoff_target: (u32, u32),
    /// `rampup.delay_factor`: factor by which a step divides the delay. Above 1.
    pub delay_factor: f64,
    /// `rampup.min_delay`: lower bound of the delay.
    pub min_delay: Duration,
}

impl Default for Rampup {
    fn default() -> Self {
        Rampup {
            backoff_target: (1, 1),
            delay_factor: 2.0,
            min_delay: Duration::ZERO,
        }
    }
}

/// `quota`: maximum cost per window, in units chosen by the user.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Quota {
    /// `quota`: units per window. Above 0.
    pub units: f64,
    /// `THROTTLING_WINDOW`, `window`: length of a window; zero disables the quota.
    pub window: Duration,
    /// `window_kind`: fixed or sliding.
    pub kind: WindowKind,
    /// `QUOTA_OVERSIZE`: what happens to a request that costs more than a whole window.
    pub oversize: Oversize,
}

/// `window_kind`: how the windows of a quota follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowKind {
    /// A window begins with its first cost, and all costs expire together at its end.
    Fixed,
    /// In every span of the window's length the costs are at most the quota.
    Sliding,
}

/// What happens to a request that costs more than its whole quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oversize {
    /// It is sent in an unused window, and uses all of it.
    Alone,
    /// It is refused and not sent.
    Refuse,
}

/// A registered strategy by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Manager {
    /// Name under which it was registered.
    pub name: String,
    /// Its arguments: all other keys of its table in the configuration.
    pub(crate) arguments: serde_json::Map<String, serde_json::Value>,
}

impl Manager {
    /// The name of the built-in strategy.
    pub(crate) const BUILT_IN: &str = "default";

    /// All other keys of its table in the configuration, as JSON text.
    pub fn arguments(&self) -> String {
        serde_json::Value::from(self.arguments.clone()).to_string()
    }

    /// Returns `None` if this names the built-in strategy.
    pub(crate) fn unless_built_in(self) -> Option<Self> {
        Some(self).filter(|manager| manager.name != Self::BUILT_IN)
    }
}

/// `RATELIMIT_HEADERS`: when `RateLimit-*` fields hold a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitHeaders {
    /// Whenever a reply reports that nothing remains, and with every refusal.
    Always,
    /// With refusals only.
    Backoff,
    /// Never.
    Off,
}

/// Range of the factor by which each gap is multiplied, uniformly distributed around 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Added to 1 for the shortest gap. At least −1, at most `high`.
    pub low: f64,
    /// Added to 1 for the longest gap.
    pub high: f64,
}

impl Jitter {
    /// No randomness: `False`.
    pub const NONE: Jitter = Jitter {
        low: 0.0,
        high: 0.0,
    };

    /// The same share in both directions: the scalar form.
    pub const fn symmetric(share: f64) -> Self {
        Jitter {
            low: -share,
            high: share,
        }
    }
}

impl Default for Jitter {
    /// `True`: half the delay in both directions.
    fn default() -> Self {
        Jitter::symmetric(0.5)
    }
}

/// `AUTOTHROTTLE_*`: the pace follows the latency.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AutoThrottle {
    /// `AUTOTHROTTLE_START_DELAY`.
    pub start_delay: Duration,
    /// `AUTOTHROTTLE_MAX_DELAY`.
    pub max_delay: Duration,
    /// `AUTOTHROTTLE_TARGET_CONCURRENCY`: above 0, fractions allowed.
    pub target_concurrency: f64,
    /// `AUTOTHROTTLE_MODE`: how the delay follows the latency.
    pub mode: AutoThrottleMode,
    /// Which latency the delay follows.
    pub latency_from: LatencyFrom,
}

/// `AUTOTHROTTLE_MODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutoThrottleMode {
    /// Latencies are filtered, cached replies are ignored, and block pages are detected.
    Robust,
    /// Rules 1 to 5 exactly as in Scrapy.
    Scrapy,
}

impl AutoThrottleMode {
    /// The latency that this mode follows by default.
    pub(crate) const fn latency_from(self) -> LatencyFrom {
        match self {
            AutoThrottleMode::Robust => LatencyFrom::Send,
            AutoThrottleMode::Scrapy => LatencyFrom::Connect,
        }
    }
}

impl Default for AutoThrottle {
    fn default() -> Self {
        AutoThrottle {
            start_delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(60),
            target_concurrency: 1.0,
            mode: AutoThrottleMode::Robust,
            latency_from: LatencyFrom::Send,
        }
    }
}

/// `latency_from`: start of the latency that AutoThrottle follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LatencyFrom {
    /// At the departure of the request.
    Send,
    /// When the TCP connection is established: includes the TLS handshake if this exchange made
    /// one.
    Connect,
}

impl LatencyFrom {
    /// The one of the two latencies that AutoThrottle follows: from the start of the connection or from
    /// the departure of the request.
    pub(in crate::throttle) fn choose<T>(self, from_connect: T, from_send: T) -> T {
        match self {
            LatencyFrom::Connect => from_connect,
            LatencyFrom::Send => from_send,
        }
    }
}
