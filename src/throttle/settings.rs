//! What a user may say about pacing: for all scopes, and for one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::signal::Signal;
use crate::fetch::failure::FailureKind;
use crate::wire::url::{CrawlUrl, Host};

/// Pacing for the whole crawl: the globals, and the scopes that differ from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `CONCURRENT_REQUESTS`: requests in flight in all. At least 1 in a finished config.
    pub concurrent_requests: usize,
    /// `CONCURRENT_REQUESTS_PER_IP`: requests in flight per address; 0 switches the address scope off.
    pub concurrent_requests_per_ip: u32,
    /// What holds for a scope that says nothing of its own.
    pub default: ScopeSettings,
    /// What replaces the default's concurrency and delays in a scope that has AutoThrottle where the
    /// default has not, or the other way round. What the user said of them is the same in both.
    pub otherwise: BasePace,
    /// `THROTTLING_SCOPES` (and `DOWNLOAD_SLOTS`): scopes that say something of their own, by name or
    /// by pattern; see [`Settings::entry_of`].
    pub scopes: BTreeMap<String, ScopePatch>,
    /// `SCOPE_MAP`: which scopes a URL has, from the widest rule to the narrowest as they are given.
    pub scope_map: Vec<MapKind>,
    /// `THROTTLING_MANAGER`: a registered map and reading of answers in place of the built-in one.
    pub manager: Option<Manager>,
    /// `THROTTLING_ROBOTSTXT_OBEY`: robots.txt's Crawl-delay is honoured.
    pub robotstxt_obey: bool,
    /// `THROTTLING_ROBOTSTXT_MAX_DELAY`: no Crawl-delay is taken for longer than this.
    pub robotstxt_max_delay: Duration,
    /// `THROTTLING_ROBOTSTXT_KEEP_CONCURRENCY`: a Crawl-delay leaves the concurrency as it is, where
    /// it would be 1 otherwise.
    pub robotstxt_keep_concurrency: bool,
    /// `RATELIMIT_HEADERS`: when what a reply says of its server's limits holds a scope.
    pub rate_limit_headers: RateLimitHeaders,
    /// `RETRY_AFTER_OBEY`: `BACKOFF_MAX_DELAY` does not cap what a server asks for.
    pub obey_fully: bool,
    /// `REDIRECT_MAX_DELAY`: no redirect waits longer for the Retry-After that came with it.
    pub redirect_max_delay: Duration,
    /// `DELAYED_REQUESTS_WARN_THRESHOLD`: requests from outside the frontier that wait at once, for
    /// one warning; 0: never.
    pub delayed_requests_warn_threshold: usize,
    /// `AUTOTHROTTLE_*`: for scopes that switch it on themselves.
    pub autothrottle: AutoThrottle,
    /// `LATENCY_FROM`, where it was said: a scope of another mode keeps it.
    pub latency_from: Option<LatencyFrom>,
    /// `AUTOTHROTTLE_DEBUG`: every decision about a pace is told.
    pub debug: bool,
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
            otherwise: BasePace::usual(true),
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
            manager: None,
            robotstxt_obey: true,
            robotstxt_max_delay: Duration::from_secs(60),
            robotstxt_keep_concurrency: false,
            rate_limit_headers: RateLimitHeaders::Always,
            obey_fully: false,
            redirect_max_delay: Duration::from_secs(120),
            delayed_requests_warn_threshold: 500,
            autothrottle: AutoThrottle::default(),
            latency_from: None,
            debug: false,
            rampup: Rampup::default(),
            window: Duration::from_secs(60),
            window_kind: WindowKind::Fixed,
            oversize: Oversize::Alone,
        }
    }
}

impl Settings {
    /// Everything that paces the scope of this name.
    pub fn of(&self, name: &str) -> ScopeSettings {
        let mut settings = self.scope(&self.patch_of(name));
        // What is said of all addresses is said twice over: the tighter cap holds, unless one of
        // them has a concurrency of its own.
        let per_ip = self.concurrent_requests_per_ip;
        if per_ip > 0 && name.starts_with("ip/") {
            let own = self.scopes.get(name).filter(|_| name != ADDRESSES);
            if own.is_none_or(|own| own.concurrency.is_none()) {
                settings.concurrency = settings.concurrency.min(per_ip);
            }
        }
        settings
    }

    /// The key in [`scopes`](Settings::scopes) under which most is said of the scope of this name:
    /// its own, or else that of the narrowest pattern it falls under. Scopes with the same key, and
    /// those with none, have the same settings.
    ///
    /// `*.example.com` stands for every host below `example.com`, `ip/*` for every address and
    /// `domain/*` for every registrable domain where `SCOPE_MAP` makes those scopes.
    pub fn entry_of(&self, name: &str) -> Option<&str> {
        let known = |key: &str| self.scopes.get_key_value(key).map(|(key, _)| key.as_str());
        known(name).or_else(|| self.patterns_of(name).first().copied())
    }

    /// What the user said of the scope of this name: in its entry, and, key by key below that, under
    /// the wider patterns that the entry falls under.
    pub fn patch_of(&self, name: &str) -> ScopePatch {
        self.said_of(name, |_| true)
    }

    /// The same, without what was said of all domains or addresses and so of no name: only a delay
    /// that somebody gave to a host goes before the one that its robots.txt asks for.
    pub fn patch_by_name(&self, name: &str) -> ScopePatch {
        self.said_of(name, |key| ![DOMAINS, ADDRESSES].contains(&key))
    }

    fn said_of(&self, name: &str, counts: impl Fn(&str) -> bool) -> ScopePatch {
        let entry = self.entry_of(name);
        let wider = entry.map(|entry| self.patterns_of(entry));
        entry
            .into_iter()
            .chain(wider.into_iter().flatten())
            .filter(|key| counts(key))
            .fold(ScopePatch::default(), |patch, key| {
                patch.over(&self.scopes[key])
            })
    }

    /// The patterns that there are for a name, the narrowest first.
    fn patterns_of(&self, name: &str) -> Vec<&str> {
        let known = |key: &str| self.scopes.get_key_value(key).map(|(key, _)| key.as_str());
        if name.starts_with("ip/") {
            return known(ADDRESSES).into_iter().collect();
        }
        if name.contains('/') {
            return Vec::new();
        }
        let host = name.strip_prefix("*.").unwrap_or(name);
        let host = host.split_once(':').map_or(host, |(host, _port)| host);
        let mut patterns: Vec<&str> = Vec::new();
        // Asked for every new scope, and seldom is there any.
        if self.has_domain_patterns() {
            let above = host.match_indices('.');
            patterns.extend(above.filter_map(|(dot, _)| known(&format!("*{}", &host[dot..]))));
        }
        // The list of suffixes is asked only where somebody wants to know.
        let domains = known(DOMAINS).filter(|_| self.maps_to_domain(name));
        patterns.extend(domains);
        patterns
    }

    /// Whether an entry is for all below a domain, as `*.example.com`.
    fn has_domain_patterns(&self) -> bool {
        let from = (Bound::Included("*."), Bound::Unbounded);
        let first = self.scopes.range::<str, _>(from).next();
        first.is_some_and(|(key, _)| key.starts_with("*."))
    }

    /// Whether a scope of this name stands for a registrable domain. A host that is one itself
    /// shares its scope with the domain, and is paced as the domain is.
    fn maps_to_domain(&self, name: &str) -> bool {
        let mapped = [MapKind::Domain, MapKind::Hierarchy];
        let is_domain = |url: CrawlUrl| {
            matches!(url.host(), Host::Name(host) if host == name)
                && url.registrable_domain() == name
        };
        self.scope_map.iter().any(|kind| mapped.contains(kind))
            && name.contains('.')
            && CrawlUrl::parse(&format!("http://{name}/")).is_ok_and(is_domain)
    }

    /// The settings of a scope that says something of its own; the rest is the default's.
    pub fn scope(&self, patch: &ScopePatch) -> ScopeSettings {
        let default = &self.default;
        let automatic = default.autothrottle.is_some();
        let switched = patch.autothrottle.enabled.unwrap_or(automatic);
        let base = match switched == automatic {
            true => BasePace {
                concurrency: default.concurrency,
                delay: default.delay,
                delay_per_slot: default.delay_per_slot,
            },
            false => self.otherwise,
        };
        let delay_per_slot = match (patch.delay_per_slot, patch.delay) {
            (Some(own), _) => own,
            // A delay of its own speaks for the whole scope.
            (None, Some(_)) => Duration::ZERO,
            (None, None) => base.delay_per_slot,
        };
        ScopeSettings {
            concurrency: patch.concurrency.unwrap_or(base.concurrency),
            delay: patch.delay.unwrap_or(base.delay),
            delay_per_slot,
            jitter: patch.jitter.unwrap_or(default.jitter),
            autothrottle: switched.then(|| self.autothrottle_of(&patch.autothrottle)),
            backoff: patch.backoff.on(&default.backoff),
            rampup: patch.rampup.on(default.rampup.as_ref(), &self.rampup),
            quota: self.quota_of(patch),
            requests_per_minute: patch.requests_per_minute.or(default.requests_per_minute),
            manager: match &patch.manager {
                Some(own) => own.clone().unless_built_in(),
                None => default.manager.clone(),
            },
        }
    }

    /// AutoThrottle where it is on: what `patch` says, and the rest as it is for all scopes.
    pub(crate) fn autothrottle_of(&self, patch: &AutoThrottlePatch) -> AutoThrottle {
        let base = self
            .default
            .autothrottle
            .as_ref()
            .unwrap_or(&self.autothrottle);
        let mode = patch.mode.unwrap_or(base.mode);
        let usual = match mode == base.mode {
            true => base.latency_from,
            // Each mode has its own, unless the user wants the same in all.
            false => self.latency_from.unwrap_or(mode.latency_from()),
        };
        AutoThrottle {
            start_delay: patch.start_delay.unwrap_or(base.start_delay),
            max_delay: patch.max_delay.unwrap_or(base.max_delay),
            target_concurrency: patch.target_concurrency.unwrap_or(base.target_concurrency),
            mode,
            latency_from: patch.latency_from.unwrap_or(usual),
        }
    }

    fn quota_of(&self, patch: &ScopePatch) -> Option<Quota> {
        let base = self.default.quota.as_ref();
        let units = patch.quota.or(base.map(|quota| quota.units))?;
        let window = base.map_or(self.window, |quota| quota.window);
        let kind = base.map_or(self.window_kind, |quota| quota.kind);
        Some(Quota {
            units,
            window: patch.window.unwrap_or(window),
            kind: patch.window_kind.unwrap_or(kind),
            oversize: base.map_or(self.oversize, |quota| quota.oversize),
        })
    }
}

/// The key for every address, in [`Settings::scopes`].
pub const ADDRESSES: &str = "ip/*";
/// The key for every registrable domain that a URL is mapped to.
pub const DOMAINS: &str = "domain/*";

/// The concurrency and the delays of a scope for which nothing else was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasePace {
    /// See [`ScopeSettings::concurrency`].
    pub concurrency: u32,
    /// See [`ScopeSettings::delay`].
    pub delay: Duration,
    /// See [`ScopeSettings::delay_per_slot`].
    pub delay_per_slot: Duration,
}

impl BasePace {
    /// What holds where the user says nothing, with AutoThrottle or without.
    pub fn usual(automatic: bool) -> Self {
        match automatic {
            // AutoThrottle needs room to choose in: eight at once and no gap.
            true => BasePace {
                concurrency: 8,
                delay: Duration::ZERO,
                delay_per_slot: Duration::ZERO,
            },
            false => BasePace {
                concurrency: 1,
                delay: Duration::from_secs(1),
                delay_per_slot: Duration::from_secs(1),
            },
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

impl ScopeSettings {
    /// The longest delay that AutoThrottle, or else backoff, may ask for.
    pub fn delay_max(&self) -> Duration {
        let auto = self.autothrottle.as_ref();
        auto.map_or(self.backoff.max_delay, |auto| auto.max_delay)
    }
}

impl Default for ScopeSettings {
    fn default() -> Self {
        let base = BasePace::usual(false);
        ScopeSettings {
            concurrency: base.concurrency,
            delay: base.delay,
            delay_per_slot: base.delay_per_slot,
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
    /// `backoff.enabled`: refusals change the pace at all. Without it nothing is a refusal, and a
    /// Retry-After is not heeded either.
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

impl Backoff {
    /// Whether an answer is a refusal by its status or its failure.
    pub fn refuses(&self, signal: &Signal) -> bool {
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

impl Manager {
    /// The name of what is built in.
    pub const BUILT_IN: &str = "default";

    /// `None` where this is only another way to ask for what is built in.
    pub fn unless_built_in(self) -> Option<Self> {
        Some(self).filter(|manager| manager.name != Self::BUILT_IN)
    }
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

impl ScopePatch {
    /// This, and what `under` says where this says nothing.
    pub fn over(self, under: &ScopePatch) -> Self {
        ScopePatch {
            concurrency: self.concurrency.or(under.concurrency),
            delay_per_slot: match (self.delay_per_slot, self.delay) {
                // A delay speaks for the whole gap of its scope; one that stands under it is no part.
                (None, Some(_)) => None,
                (own, _) => own.or(under.delay_per_slot),
            },
            delay: self.delay.or(under.delay),
            jitter: self.jitter.or(under.jitter),
            ignore_robots_txt: self.ignore_robots_txt.or(under.ignore_robots_txt),
            autothrottle: self.autothrottle.over(&under.autothrottle),
            backoff: self.backoff.over(&under.backoff),
            rampup: self.rampup.over(&under.rampup),
            quota: self.quota.or(under.quota),
            window: self.window.or(under.window),
            window_kind: self.window_kind.or(under.window_kind),
            requests_per_minute: self.requests_per_minute.or(under.requests_per_minute),
            manager: self.manager.or_else(|| under.manager.clone()),
        }
    }
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

impl AutoThrottlePatch {
    /// This, and what `under` says where this says nothing.
    pub fn over(self, under: &Self) -> Self {
        AutoThrottlePatch {
            enabled: self.enabled.or(under.enabled),
            mode: self.mode.or(under.mode),
            start_delay: self.start_delay.or(under.start_delay),
            max_delay: self.max_delay.or(under.max_delay),
            target_concurrency: self.target_concurrency.or(under.target_concurrency),
            latency_from: self.latency_from.or(under.latency_from),
        }
    }
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

impl BackoffPatch {
    /// This, and what `under` says where this says nothing.
    pub fn over(self, under: &Self) -> Self {
        BackoffPatch {
            enabled: self.enabled.or(under.enabled),
            http_codes: self.http_codes.or_else(|| under.http_codes.clone()),
            exceptions: self.exceptions.or_else(|| under.exceptions.clone()),
            delay_factor: self.delay_factor.or(under.delay_factor),
            max_delay: self.max_delay.or(under.max_delay),
            min_delay: self.min_delay.or(under.min_delay),
            jitter: self.jitter.or(under.jitter),
            window: self.window.or(under.window),
            concurrency_factor: self.concurrency_factor.or(under.concurrency_factor),
            per_slot: self.per_slot.or(under.per_slot),
        }
    }

    /// The whole, where `base` has what is not said here.
    fn on(&self, base: &Backoff) -> Backoff {
        let patch = self.clone();
        let base = base.clone();
        Backoff {
            enabled: patch.enabled.unwrap_or(base.enabled),
            http_codes: patch.http_codes.unwrap_or(base.http_codes),
            exceptions: patch.exceptions.unwrap_or(base.exceptions),
            delay_factor: patch.delay_factor.unwrap_or(base.delay_factor),
            max_delay: patch.max_delay.unwrap_or(base.max_delay),
            min_delay: patch.min_delay.unwrap_or(base.min_delay),
            jitter: patch.jitter.unwrap_or(base.jitter),
            window: patch.window.unwrap_or(base.window),
            concurrency_factor: patch.concurrency_factor.unwrap_or(base.concurrency_factor),
            per_slot: patch.per_slot.unwrap_or(base.per_slot),
        }
    }
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

impl RampupPatch {
    /// This, and what `under` says where this says nothing.
    pub fn over(self, under: &Self) -> Self {
        RampupPatch {
            enabled: self.enabled.or(under.enabled),
            backoff_target: self.backoff_target.or(under.backoff_target),
            delay_factor: self.delay_factor.or(under.delay_factor),
            min_delay: self.min_delay.or(under.min_delay),
        }
    }

    /// The whole, where it is on: here, or by default where nothing is said here.
    fn on(&self, default: Option<&Rampup>, usual: &Rampup) -> Option<Rampup> {
        let base = default.unwrap_or(usual);
        self.enabled.unwrap_or(default.is_some()).then(|| Rampup {
            backoff_target: self.backoff_target.unwrap_or(base.backoff_target),
            delay_factor: self.delay_factor.unwrap_or(base.delay_factor),
            min_delay: self.min_delay.unwrap_or(base.min_delay),
        })
    }
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

impl AutoThrottleMode {
    /// The latency that it follows unless the user says which.
    pub const fn latency_from(self) -> LatencyFrom {
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

/// `latency_from`: where the latency that AutoThrottle follows begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyFrom {
    /// At the request's departure.
    Send,
    /// At TCP established: the TLS handshake counts where this exchange made one.
    Connect,
}

#[cfg(test)]
mod tests;
