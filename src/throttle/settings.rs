//! What a user may say about pacing: for all scopes, and for one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fetch::failure::FailureKind;

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
    /// `SCOPE_MAP`: which scopes a URL has, from the widest rule to the narrowest as they are given.
    pub scope_map: Vec<MapKind>,
    /// `THROTTLING_ROBOTSTXT_OBEY`: robots.txt's Crawl-delay is honoured.
    pub robotstxt_obey: bool,
    /// `THROTTLING_ROBOTSTXT_MAX_DELAY`: no Crawl-delay is taken for longer than this.
    pub robotstxt_max_delay: Duration,
    /// `RATELIMIT_HEADERS`: when what a reply says of its server's limits holds a scope.
    pub rate_limit_headers: RateLimitHeaders,
    /// `RETRY_AFTER_OBEY`: `BACKOFF_MAX_DELAY` does not cap what a server asks for.
    pub obey_fully: bool,
    /// `DELAYED_REQUESTS_WARN_THRESHOLD`: requests from outside the frontier that wait at once, for
    /// one warning; 0: never.
    pub delayed_requests_warn_threshold: usize,
    /// `AUTOTHROTTLE_*`: for scopes that switch it on themselves.
    pub autothrottle: AutoThrottle,
    /// `RAMPUP_*`: for scopes that switch it on.
    pub rampup: Rampup,
    /// `THROTTLING_WINDOW`: for quotas that say no other.
    pub window: Duration,
    /// `THROTTLING_WINDOW_KIND`: the same.
    pub window_kind: WindowKind,
    /// `QUOTA_OVERSIZE`: what becomes of a request that costs more than its quota ever holds.
    pub oversize: Oversize,
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
            scope_map: vec![MapKind::Host],
            robotstxt_obey: true,
            robotstxt_max_delay: Duration::from_secs(60),
            rate_limit_headers: RateLimitHeaders::Always,
            obey_fully: false,
            delayed_requests_warn_threshold: 500,
            autothrottle: AutoThrottle::default(),
            rampup: Rampup::default(),
            window: Duration::from_secs(60),
            window_kind: WindowKind::Fixed,
            oversize: Oversize::Alone,
        }
    }
}

/// `SCOPE_MAP`: a rule by which a URL has scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Its host, with the port where that is not the scheme's own.
    Host,
    /// Its registrable domain; its host where there is none.
    Domain,
    /// Its registrable domain and every name from there down to its host.
    Hierarchy,
    /// Its host and path, without the query.
    Endpoint,
    /// The address that it is fetched from: `ip/ADDRESS`.
    Ip,
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
    /// `BACKOFF_*`: what refusals do to the pace.
    pub backoff: Backoff,
    /// `rampup`: the pace looks for the server's limit from below, where it is enabled.
    pub rampup: Option<Rampup>,
    /// `quota`: what may be spent per window, where there is such a bound.
    pub quota: Option<Quota>,
    /// `requests_per_minute`: a documented limit, held in every 60 s that pass.
    pub requests_per_minute: Option<f64>,
    /// `manager` (`THROTTLING_SCOPE_MANAGER`): a registered strategy in place of the built-in one.
    pub manager: Option<Manager>,
}

impl Default for ScopeSettings {
    fn default() -> Self {
        ScopeSettings {
            concurrency: 1,
            delay: Duration::from_secs(1),
            delay_per_slot: Duration::from_secs(1),
            jitter: Jitter::default(),
            autothrottle: None,
            backoff: Backoff::default(),
            rampup: None,
            quota: None,
            requests_per_minute: None,
            manager: None,
        }
    }
}

/// `BACKOFF_*`: which answers are refusals, and what they do to the pace.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// `backoff.enabled`: refusals change the pace at all.
    pub enabled: bool,
    /// `BACKOFF_HTTP_CODES`: statuses that are refusals.
    pub http_codes: Vec<u16>,
    /// `BACKOFF_EXCEPTIONS`: failures that are refusals.
    pub exceptions: Vec<FailureKind>,
    /// `BACKOFF_DELAY_FACTOR`: a step multiplies the delay by this. Above 1.
    pub delay_factor: f64,
    /// `BACKOFF_MAX_DELAY`: caps the delay, and holds that a server asks for.
    pub max_delay: Duration,
    /// `BACKOFF_MIN_DELAY`: the least delay while backing off, until a working rate is known.
    pub min_delay: Duration,
    /// `BACKOFF_JITTER`: in place of the scope's own while backing off without a known rate.
    pub jitter: Jitter,
    /// `BACKOFF_WINDOW`: quiet time per step of recovery.
    pub window: Duration,
    /// `BACKOFF_CONCURRENCY_FACTOR`: concurrency is multiplied by this per refusal round once the
    /// delay is at its longest. Above 0, below 1.
    pub concurrency_factor: f64,
    /// `backoff.per_slot`: each slot of the scope backs off by itself.
    pub per_slot: bool,
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

/// `rampup`: refusals are looked for, a few per window, and the pace settles where they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Rampup {
    /// `RAMPUP_BACKOFF_TARGET`: refusals wanted per window, from the first to the second.
    pub backoff_target: (u32, u32),
    /// `rampup.delay_factor`: a step up divides the delay by this. Above 1.
    pub delay_factor: f64,
    /// `rampup.min_delay`: the delay is never brought under this.
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

/// `quota`: what may be spent per window, in units of the user's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// `quota`: units per window. Above 0.
    pub units: f64,
    /// `THROTTLING_WINDOW`, `window`: how long one window is; zero never blocks.
    pub window: Duration,
    /// `window_kind`.
    pub kind: WindowKind,
    /// `QUOTA_OVERSIZE`: what becomes of a request that costs more than a whole window holds.
    pub oversize: Oversize,
}

/// `window_kind`: how the windows of a quota follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// A window begins with its first spending, and what was spent is forgotten at its end.
    Fixed,
    /// In every span of the window's length no more is spent than the quota.
    Sliding,
}

/// What becomes of a request that costs more than its quota ever holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversize {
    /// It is sent into an untouched window, and takes all of it.
    Alone,
    /// It ends unsent.
    Refuse,
}

/// A strategy by the name under which it was registered.
#[derive(Clone, Debug, PartialEq)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// What the configuration says to it: all the other keys of its table.
    pub arguments: serde_json::Map<String, serde_json::Value>,
}

/// `RATELIMIT_HEADERS`: when `RateLimit-*` fields hold a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitHeaders {
    /// Whenever a reply says that nothing remains, and with every refusal.
    Always,
    /// With refusals only.
    Backoff,
    /// Never.
    Off,
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
    /// AutoThrottle here: key by key instead of `AUTOTHROTTLE_*`.
    pub autothrottle: AutoThrottlePatch,
    /// Backoff here: key by key instead of `BACKOFF_*`.
    pub backoff: BackoffPatch,
    /// Rampup here: on or off, and its keys.
    pub rampup: RampupPatch,
    /// Units per window.
    pub quota: Option<f64>,
    /// Instead of `THROTTLING_WINDOW`.
    pub window: Option<Duration>,
    /// Instead of `THROTTLING_WINDOW_KIND`.
    pub window_kind: Option<WindowKind>,
    /// A documented limit.
    pub requests_per_minute: Option<f64>,
    /// Instead of `THROTTLING_SCOPE_MANAGER`.
    pub manager: Option<Manager>,
}

/// AutoThrottle's keys in a scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AutoThrottlePatch {
    /// Instead of `AUTOTHROTTLE_ENABLED`.
    pub enabled: Option<bool>,
    /// Instead of `AUTOTHROTTLE_MODE`.
    pub mode: Option<AutoThrottleMode>,
    /// Instead of `AUTOTHROTTLE_START_DELAY`.
    pub start_delay: Option<Duration>,
    /// Instead of `AUTOTHROTTLE_MAX_DELAY`.
    pub max_delay: Option<Duration>,
    /// Instead of `AUTOTHROTTLE_TARGET_CONCURRENCY`.
    pub target_concurrency: Option<f64>,
    /// Instead of `LATENCY_FROM`.
    pub latency_from: Option<LatencyFrom>,
}

/// The keys of `backoff` in a scope; each as in [`Backoff`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackoffPatch {
    /// See [`Backoff::enabled`].
    pub enabled: Option<bool>,
    /// See [`Backoff::http_codes`].
    pub http_codes: Option<Vec<u16>>,
    /// See [`Backoff::exceptions`].
    pub exceptions: Option<Vec<FailureKind>>,
    /// See [`Backoff::delay_factor`].
    pub delay_factor: Option<f64>,
    /// See [`Backoff::max_delay`].
    pub max_delay: Option<Duration>,
    /// See [`Backoff::min_delay`].
    pub min_delay: Option<Duration>,
    /// See [`Backoff::jitter`].
    pub jitter: Option<Jitter>,
    /// See [`Backoff::window`].
    pub window: Option<Duration>,
    /// See [`Backoff::concurrency_factor`].
    pub concurrency_factor: Option<f64>,
    /// See [`Backoff::per_slot`].
    pub per_slot: Option<bool>,
}

/// `rampup` in a scope: a bool, or a map of its keys (which switches it on).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RampupPatch {
    /// `true`, `false`, or not said.
    pub enabled: Option<bool>,
    /// See [`Rampup::backoff_target`].
    pub backoff_target: Option<(u32, u32)>,
    /// See [`Rampup::delay_factor`].
    pub delay_factor: Option<f64>,
    /// See [`Rampup::min_delay`].
    pub min_delay: Option<Duration>,
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
    /// `AUTOTHROTTLE_MODE`: how it follows the latency.
    pub mode: AutoThrottleMode,
    /// Which latency it follows.
    pub latency_from: LatencyFrom,
}

/// `AUTOTHROTTLE_MODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoThrottleMode {
    /// Latency is filtered, caches are seen through, blocks that look like pages are recognised.
    Robust,
    /// Rules 1 to 5 as Scrapy has them, to the digit.
    Scrapy,
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

/// `latency_from`: where the latency that AutoThrottle follows begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyFrom {
    /// At the request's departure.
    Send,
    /// At TCP established: the TLS handshake counts where this exchange made one.
    Connect,
}
