//! What a user may say about pacing: for all scopes, and for one.

use std::collections::BTreeMap;
use std::time::Duration;

/// Pacing for the whole crawl: the globals, and the scopes that differ from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `CONCURRENT_REQUESTS`: requests in flight in all. At least 1 in a finished config.
    pub concurrent_requests: usize,
    /// `CONCURRENT_REQUESTS_PER_IP`: requests in flight per address; 0 switches the address scope off.
    pub concurrent_requests_per_ip: u32,
    /// What holds for a scope that says nothing of its own.
    pub default: ScopeSettings,
    /// `THROTTLING_SCOPES` (and `DOWNLOAD_SLOTS`): scopes that say something of their own.
    pub scopes: BTreeMap<String, ScopePatch>,
    /// `THROTTLING_ROBOTSTXT_OBEY`: robots.txt's Crawl-delay is honoured.
    pub robotstxt_obey: bool,
    /// `THROTTLING_ROBOTSTXT_MAX_DELAY`: no Crawl-delay is taken for longer than this.
    pub robotstxt_max_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            concurrent_requests: 4096,
            concurrent_requests_per_ip: 0,
            default: ScopeSettings::default(),
            scopes: BTreeMap::from([(
                // The seeds' own example of a scope that asks for more than the default.
                "quotes.toscrape.com".to_owned(),
                ScopePatch {
                    concurrency: Some(16),
                    delay: Some(Duration::ZERO),
                    delay_per_slot: Some(Duration::ZERO),
                    ..ScopePatch::default()
                },
            )]),
            robotstxt_obey: true,
            robotstxt_max_delay: Duration::from_secs(60),
        }
    }
}

/// Everything that paces one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeSettings {
    /// `CONCURRENT_REQUESTS_PER_DOMAIN`: requests in flight. At least 1.
    pub concurrency: u32,
    /// `DOWNLOAD_DELAY`: from one send to the next.
    pub delay: Duration,
    /// `DOWNLOAD_DELAY_PER_SLOT`: from one send to the next of the same slot.
    pub delay_per_slot: Duration,
    /// `RANDOMIZE_DOWNLOAD_DELAY`: drawn once per send.
    pub jitter: Jitter,
    /// AutoThrottle, where it is enabled.
    pub autothrottle: Option<AutoThrottle>,
}

impl Default for ScopeSettings {
    fn default() -> Self {
        ScopeSettings {
            concurrency: 1,
            delay: Duration::from_secs(1),
            delay_per_slot: Duration::from_secs(1),
            jitter: Jitter::default(),
            autothrottle: None,
        }
    }
}

/// What a scope says of its own; the rest comes from the globals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopePatch {
    /// Instead of `CONCURRENT_REQUESTS_PER_DOMAIN`.
    pub concurrency: Option<u32>,
    /// Instead of `DOWNLOAD_DELAY`. Also the floor of AutoThrottle here.
    pub delay: Option<Duration>,
    /// Instead of `DOWNLOAD_DELAY_PER_SLOT`; 0 where `delay` is set and this is not.
    pub delay_per_slot: Option<Duration>,
    /// Instead of `RANDOMIZE_DOWNLOAD_DELAY`.
    pub jitter: Option<Jitter>,
    /// No warning where this scope's own delay replaces robots.txt's Crawl-delay.
    pub ignore_robots_txt: Option<bool>,
}

/// Factors around 1 between which each gap is drawn, evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Added to 1 for the shortest gap. From −1 up to `high`.
    pub low: f64,
    /// Added to 1 for the longest gap.
    pub high: f64,
}

impl Jitter {
    /// No randomness at all: `False`.
    pub const NONE: Jitter = Jitter {
        low: 0.0,
        high: 0.0,
    };

    /// The same share either way: the scalar form.
    pub const fn symmetric(share: f64) -> Self {
        Jitter {
            low: -share,
            high: share,
        }
    }
}

impl Default for Jitter {
    /// `True`: half the delay either way.
    fn default() -> Self {
        Jitter::symmetric(0.5)
    }
}

/// `AUTOTHROTTLE_*`: the pace follows the latency.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoThrottle {
    /// `AUTOTHROTTLE_START_DELAY`.
    pub start_delay: Duration,
    /// `AUTOTHROTTLE_MAX_DELAY`.
    pub max_delay: Duration,
    /// `AUTOTHROTTLE_TARGET_CONCURRENCY`: above 0, fractions allowed.
    pub target_concurrency: f64,
    /// Which latency it follows.
    pub latency_from: LatencyFrom,
}

impl Default for AutoThrottle {
    fn default() -> Self {
        AutoThrottle {
            start_delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(60),
            target_concurrency: 1.0,
            latency_from: LatencyFrom::Connect,
        }
    }
}

/// `latency_from`: where the latency that AutoThrottle follows begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyFrom {
    /// At the request's departure.
    Send,
    /// At TCP established: the TLS handshake counts where this exchange made one.
    Connect,
}
