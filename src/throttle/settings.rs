//! Settings of pacing: the defaults of all scopes, and those of single scopes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

pub use super::map::MapKind;

use super::signal::Signal;
use crate::fetch::failure::FailureKind;
use crate::wire::url::{CrawlUrl, Host};

/// Pacing of the whole crawl: the globals, and the scopes that differ from them.
#[derive(Clone, Debug, PartialEq)]
pub struct ThrottleSettings {
    /// `CONCURRENT_REQUESTS`: maximum number of requests in flight in total. At least 1 in a
    /// finished config.
    pub(crate) concurrent_requests: usize,
    /// `CONCURRENT_REQUESTS_PER_IP`: maximum number of requests in flight per address; 0 disables
    /// it.
    pub(crate) concurrent_requests_per_ip: u32,
    /// Settings of scopes without an entry.
    pub(crate) default: ScopeSettings,
    /// Replaces the default's concurrency and delays in a scope in which AutoThrottle is on while
    /// the default has it off, or the reverse. Values that the user set are the same in both.
    pub(crate) inverse_base: BasePace,
    /// What replaced the configured default since, if anything did.
    pub(crate) changed_default: Option<Box<ChangedDefault>>,
    /// `THROTTLING_SCOPES` (and `DOWNLOAD_SLOTS`): entries of scopes with own settings, by name or
    /// pattern; see [`ThrottleSettings::entry_of`].
    pub(crate) scopes: BTreeMap<String, ScopePatch>,
    /// `SCOPE_MAP`: which scopes a URL has, from the most general rule to the most specific.
    pub(crate) scope_map: Vec<MapKind>,
    /// `THROTTLING_MANAGER`: a registered map and classification of answers in place of the
    /// built-in ones.
    pub(crate) manager: Option<Manager>,
    /// `THROTTLING_ROBOTSTXT_OBEY`: whether Crawl-delay in robots.txt applies.
    pub(crate) robotstxt_obey: bool,
    /// `THROTTLING_ROBOTSTXT_MAX_DELAY`: upper bound of a Crawl-delay.
    pub(crate) robotstxt_max_delay: Duration,
    /// `THROTTLING_ROBOTSTXT_KEEP_CONCURRENCY`: a Crawl-delay does not reduce the concurrency to 1.
    pub(crate) robotstxt_keep_concurrency: bool,
    /// `RATELIMIT_HEADERS`: when rate-limit fields of a reply hold a scope.
    pub(crate) rate_limit_headers: RateLimitHeaders,
    /// `RETRY_AFTER_OBEY`: holds asked for by a server are not capped by `BACKOFF_MAX_DELAY`.
    pub(crate) obey_fully: bool,
    /// `REDIRECT_MAX_DELAY`: upper bound of the Retry-After of a redirect.
    pub(crate) redirect_max_delay: Duration,
    /// `DELAYED_REQUESTS_WARN_THRESHOLD`: a warning is logged once when this many requests from
    /// outside the frontier wait; 0: never.
    pub(crate) delayed_requests_warn_threshold: usize,
    /// `AUTOTHROTTLE_*`: for scopes that enable it themselves.
    pub(crate) autothrottle: AutoThrottle,
    /// `LATENCY_FROM`, if set: it applies to scopes in either mode of AutoThrottle.
    pub(crate) latency_from: Option<LatencyFrom>,
    /// `AUTOTHROTTLE_DEBUG`: every decision about a pace is logged.
    pub(crate) debug: bool,
    /// `RAMPUP_*`: for scopes that enable it.
    pub(crate) rampup: Rampup,
    /// `THROTTLING_WINDOW`: for quotas without a window of their own.
    pub(crate) window: Duration,
    /// `THROTTLING_WINDOW_KIND`: for quotas without a kind of their own.
    pub(crate) window_kind: WindowKind,
    /// `QUOTA_OVERSIZE`: what happens to a request that costs more than its whole quota.
    pub(crate) oversize: Oversize,
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        ThrottleSettings {
            concurrent_requests: 4096,
            concurrent_requests_per_ip: 0,
            default: ScopeSettings::default(),
            inverse_base: BasePace::usual(true),
            changed_default: None,
            scopes: BTreeMap::from([(
                // The example of the specification's sources: a scope that asks for more than the
                // default.
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

impl ThrottleSettings {
    /// The settings of scopes without an entry.
    pub fn usual(&self) -> &ScopeSettings {
        &self.default
    }

    /// Replaces settings of scopes without an entry: what `patch` sets, over what earlier patches set, over
    /// what is configured. The patches in one, by [`ThrottleSettings::default_patch`], have the same effect.
    pub(crate) fn change_default(&mut self, patch: ScopePatch) {
        let changed = self.changed_default.take();
        let changed = changed.unwrap_or_else(|| {
            Box::new(ChangedDefault {
                configured: self.default.clone(),
                configured_inverse: self.inverse_base,
                patch: ScopePatch::default(),
            })
        });
        let ChangedDefault {
            configured,
            configured_inverse,
            patch: earlier,
        } = *changed;
        let patch = patch.over(&earlier);
        let was_automatic = configured.autothrottle.is_some();
        let configured_base = BasePace::of(&configured);
        // A patch completes what is configured, not what an earlier patch made of it: that has lost the
        // keys of what was off.
        self.default = configured.clone();
        self.inverse_base = configured_inverse;
        let default = self.scope(&patch);

        let is_switched = default.autothrottle.is_some() != was_automatic;
        let inverse = match is_switched {
            true => configured_base,
            false => configured_inverse,
        };
        self.default = default;
        self.inverse_base = inverse.with(&patch);
        self.changed_default = Some(Box::new(ChangedDefault {
            configured,
            configured_inverse,
            patch,
        }));
    }

    /// All patches of the default so far in one.
    pub(crate) fn default_patch(&self) -> ScopePatch {
        let changed = self.changed_default.as_ref();
        changed.map_or_else(ScopePatch::default, |changed| changed.patch.clone())
    }

    /// All settings of the scope with this name.
    pub fn of(&self, name: &str) -> ScopeSettings {
        let mut settings = self.scope(&self.patch_of(name));
        // Both settings for addresses apply: the lower cap holds, unless an address has a
        // concurrency of its own.
        let per_ip = self.concurrent_requests_per_ip;
        if per_ip > 0 && name.starts_with("ip/") {
            let own = self.scopes.get(name).filter(|_| name != ADDRESSES);
            if own.is_none_or(|own| own.concurrency.is_none()) {
                settings.concurrency = settings.concurrency.min(per_ip);
            }
        }
        settings
    }

    /// The key in [`scopes`](ThrottleSettings::scopes) of the most specific entry for the scope with this
    /// name: its own entry, or else that of the narrowest matching pattern. Scopes with the same
    /// key, and those without one, have the same settings.
    ///
    /// `*.example.com` matches every host below `example.com`, `ip/*` every address, and `domain/*`
    /// every registrable domain if `SCOPE_MAP` maps to domains.
    pub(crate) fn entry_of(&self, name: &str) -> Option<&str> {
        let known = |key: &str| self.scopes.get_key_value(key).map(|(key, _)| key.as_str());
        known(name).or_else(|| self.patterns_of(name).first().copied())
    }

    /// The user's settings of the scope with this name: its entry, completed key by key from the
    /// wider patterns that match it.
    pub(crate) fn patch_of(&self, name: &str) -> ScopePatch {
        self.patch_from_entries(name, |_| true)
    }

    /// The same without the patterns for all domains or all addresses: only a delay given to a name
    /// takes precedence over the Crawl-delay of its robots.txt.
    pub(crate) fn patch_by_name(&self, name: &str) -> ScopePatch {
        self.patch_from_entries(name, |key| ![DOMAINS, ADDRESSES].contains(&key))
    }

    /// The keys in [`scopes`](ThrottleSettings::scopes) of all entries for the scope with this name, the most
    /// specific first.
    pub(crate) fn entries_of(&self, name: &str) -> Vec<&str> {
        let entry = self.entry_of(name);
        let wider = entry.map(|entry| self.patterns_of(entry));
        entry
            .into_iter()
            .chain(wider.into_iter().flatten())
            .collect()
    }

    fn patch_from_entries(&self, name: &str, counts: impl Fn(&str) -> bool) -> ScopePatch {
        let entries = self.entries_of(name).into_iter();
        entries
            .filter(|key| counts(key))
            .fold(ScopePatch::default(), |patch, key| {
                patch.over(&self.scopes[key])
            })
    }

    /// The existing patterns that match a name, the narrowest first.
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
        // Called for every new scope, and such patterns are rare.
        if self.has_domain_patterns() {
            let above = host.match_indices('.');
            patterns.extend(above.filter_map(|(dot, _)| known(&format!("*{}", &host[dot..]))));
        }
        // The public suffix list is searched only if the answer matters.
        let domains = known(DOMAINS).filter(|_| self.maps_to_domain(name));
        patterns.extend(domains);
        patterns
    }

    /// Returns whether there is an entry for all hosts below a domain, such as `*.example.com`.
    fn has_domain_patterns(&self) -> bool {
        let from = (Bound::Included("*."), Bound::Unbounded);
        let first = self.scopes.range::<str, _>(from).next();
        first.is_some_and(|(key, _)| key.starts_with("*."))
    }

    /// Returns whether a scope of this name is a registrable domain. A host that is one itself
    /// shares the scope of the domain, and its pace.
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

    /// The settings of a scope with an entry; keys that are not set come from the default.
    pub(crate) fn scope(&self, patch: &ScopePatch) -> ScopeSettings {
        let default = &self.default;
        let automatic = default.autothrottle.is_some();
        let switched = patch.autothrottle.enabled.unwrap_or(automatic);
        let base = match switched == automatic {
            true => BasePace::of(default),
            false => self.inverse_base,
        };
        let BasePace {
            concurrency,
            delay,
            delay_per_slot,
        } = base.with(patch);
        ScopeSettings {
            concurrency,
            delay,
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

    /// The settings of AutoThrottle if enabled: those of `patch`, completed by the globals.
    pub(crate) fn autothrottle_of(&self, patch: &AutoThrottlePatch) -> AutoThrottle {
        let base = self
            .default
            .autothrottle
            .as_ref()
            .unwrap_or(&self.autothrottle);
        let mode = patch.mode.unwrap_or(base.mode);
        let usual = match mode == base.mode {
            true => base.latency_from,
            // Each mode has its own default, unless the user set one for all.
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

/// The key for all addresses in `ThrottleSettings::scopes`.
pub const ADDRESSES: &str = "ip/*";
/// The key for all registrable domains to which a URL is mapped.
pub const DOMAINS: &str = "domain/*";

/// Default concurrency and delays of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasePace {
    /// See [`ScopeSettings::concurrency`].
    pub(crate) concurrency: u32,
    /// See [`ScopeSettings::delay`].
    pub(crate) delay: Duration,
    /// See [`ScopeSettings::delay_per_slot`].
    pub(crate) delay_per_slot: Duration,
}

impl BasePace {
    /// Those of these settings.
    fn of(settings: &ScopeSettings) -> Self {
        BasePace {
            concurrency: settings.concurrency,
            delay: settings.delay,
            delay_per_slot: settings.delay_per_slot,
        }
    }

    /// These, with what `patch` sets.
    fn with(self, patch: &ScopePatch) -> Self {
        BasePace {
            concurrency: patch.concurrency.unwrap_or(self.concurrency),
            delay: patch.delay.unwrap_or(self.delay),
            delay_per_slot: match (patch.delay_per_slot, patch.delay) {
                (Some(own), _) => own,
                // A delay replaces the default's delay per slot too.
                (None, Some(_)) => Duration::ZERO,
                (None, None) => self.delay_per_slot,
            },
        }
    }

    /// The built-in values, with AutoThrottle or without.
    pub(crate) fn usual(automatic: bool) -> Self {
        match automatic {
            // AutoThrottle needs a range to choose from: eight requests in flight and no minimum
            // gap.
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

/// A configured default, and what has replaced keys of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChangedDefault {
    configured: ScopeSettings,
    /// The configured [`ThrottleSettings::inverse_base`].
    configured_inverse: BasePace,
    /// All patches in one.
    patch: ScopePatch,
}

/// All pacing settings of one scope.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScopeSettings {
    /// `CONCURRENT_REQUESTS_PER_DOMAIN`: maximum number of requests in flight. At least 1.
    pub concurrency: u32,
    /// `DOWNLOAD_DELAY`: minimum time from one send to the next.
    pub delay: Duration,
    /// `DOWNLOAD_DELAY_PER_SLOT`: minimum time from one send to the next of the same slot.
    pub delay_per_slot: Duration,
    /// `RANDOMIZE_DOWNLOAD_DELAY`: range of the random factor, drawn once per send.
    pub jitter: Jitter,
    /// AutoThrottle, if enabled.
    pub autothrottle: Option<AutoThrottle>,
    /// `BACKOFF_*`: how refusals change the pace.
    pub backoff: Backoff,
    /// `rampup`: search of the server's limit from below, if enabled.
    pub rampup: Option<Rampup>,
    /// `quota`: maximum cost per window, if any.
    pub quota: Option<Quota>,
    /// `requests_per_minute`: a documented limit, kept in any span of 60 s.
    pub requests_per_minute: Option<f64>,
    /// `manager` (`THROTTLING_SCOPE_MANAGER`): a registered strategy in place of the built-in one.
    pub manager: Option<Manager>,
}

impl ScopeSettings {
    /// The maximum delay of AutoThrottle, or else of backoff.
    pub(crate) fn delay_max(&self) -> Duration {
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

/// The settings of one entry; keys that are not set come from the globals.
///
/// The usual keys have a method each; every key can be given as JSON text, as in `THROTTLING_SCOPES`:
/// `r#"{"backoff": {"max_delay": 600}}"#.parse::<ScopePatch>()?`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopePatch {
    /// Replaces `CONCURRENT_REQUESTS_PER_DOMAIN`.
    pub(crate) concurrency: Option<u32>,
    /// Replaces `DOWNLOAD_DELAY`. Also the lower bound of AutoThrottle's delay in this scope.
    pub(crate) delay: Option<Duration>,
    /// Replaces `DOWNLOAD_DELAY_PER_SLOT`; 0 if only `delay` is set.
    pub(crate) delay_per_slot: Option<Duration>,
    /// Replaces `RANDOMIZE_DOWNLOAD_DELAY`.
    pub(crate) jitter: Option<Jitter>,
    /// Suppresses the warning if this scope's own delay replaces the Crawl-delay of robots.txt.
    pub(crate) ignore_robots_txt: Option<bool>,
    /// AutoThrottle in this scope: replaces `AUTOTHROTTLE_*` key by key.
    pub(crate) autothrottle: AutoThrottlePatch,
    /// Backoff in this scope: replaces `BACKOFF_*` key by key.
    pub(crate) backoff: BackoffPatch,
    /// Rampup in this scope: on or off, and its keys.
    pub(crate) rampup: RampupPatch,
    /// Quota in units per window.
    pub(crate) quota: Option<f64>,
    /// Replaces `THROTTLING_WINDOW`.
    pub(crate) window: Option<Duration>,
    /// Replaces `THROTTLING_WINDOW_KIND`.
    pub(crate) window_kind: Option<WindowKind>,
    /// A documented limit in requests per minute.
    pub(crate) requests_per_minute: Option<f64>,
    /// Replaces `THROTTLING_SCOPE_MANAGER`.
    pub(crate) manager: Option<Manager>,
}

impl ScopePatch {
    /// Replaces `CONCURRENT_REQUESTS_PER_DOMAIN`.
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Replaces `DOWNLOAD_DELAY`. Also the lower bound of AutoThrottle's delay in this scope.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Replaces `DOWNLOAD_DELAY_PER_SLOT`; 0 if only `delay` is set.
    pub fn delay_per_slot(mut self, delay: Duration) -> Self {
        self.delay_per_slot = Some(delay);
        self
    }

    /// Quota in units per [window](ScopePatch::window).
    pub fn quota(mut self, units: f64) -> Self {
        self.quota = Some(units);
        self
    }

    /// Replaces `THROTTLING_WINDOW`.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// A documented limit in requests per minute.
    pub fn requests_per_minute(mut self, requests: f64) -> Self {
        self.requests_per_minute = Some(requests);
        self
    }

    /// This patch, completed by `under` in keys that are not set here.
    pub(crate) fn over(self, under: &ScopePatch) -> Self {
        ScopePatch {
            concurrency: self.concurrency.or(under.concurrency),
            delay_per_slot: match (self.delay_per_slot, self.delay) {
                // A delay determines the whole gap of its scope; a delay per slot from `under` is
                // ignored.
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

/// AutoThrottle's keys in an entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AutoThrottlePatch {
    /// Replaces `AUTOTHROTTLE_ENABLED`.
    pub(crate) enabled: Option<bool>,
    /// Replaces `AUTOTHROTTLE_MODE`.
    pub(crate) mode: Option<AutoThrottleMode>,
    /// Replaces `AUTOTHROTTLE_START_DELAY`.
    pub(crate) start_delay: Option<Duration>,
    /// Replaces `AUTOTHROTTLE_MAX_DELAY`.
    pub(crate) max_delay: Option<Duration>,
    /// Replaces `AUTOTHROTTLE_TARGET_CONCURRENCY`.
    pub(crate) target_concurrency: Option<f64>,
    /// Replaces `LATENCY_FROM`.
    pub(crate) latency_from: Option<LatencyFrom>,
}

impl AutoThrottlePatch {
    /// This patch, completed by `under` in keys that are not set here.
    pub(crate) fn over(self, under: &Self) -> Self {
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

/// The keys of `backoff` in an entry; each as in [`Backoff`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackoffPatch {
    /// See [`Backoff::enabled`].
    pub(crate) enabled: Option<bool>,
    /// See [`Backoff::http_codes`].
    pub(crate) http_codes: Option<Vec<u16>>,
    /// See [`Backoff::exceptions`].
    pub(crate) exceptions: Option<Vec<FailureKind>>,
    /// See [`Backoff::delay_factor`].
    pub(crate) delay_factor: Option<f64>,
    /// See [`Backoff::max_delay`].
    pub(crate) max_delay: Option<Duration>,
    /// See [`Backoff::min_delay`].
    pub(crate) min_delay: Option<Duration>,
    /// See [`Backoff::jitter`].
    pub(crate) jitter: Option<Jitter>,
    /// See [`Backoff::window`].
    pub(crate) window: Option<Duration>,
    /// See [`Backoff::concurrency_factor`].
    pub(crate) concurrency_factor: Option<f64>,
    /// See [`Backoff::per_slot`].
    pub(crate) per_slot: Option<bool>,
}

impl BackoffPatch {
    /// This patch, completed by `under` in keys that are not set here.
    pub(crate) fn over(self, under: &Self) -> Self {
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

    /// The full settings: this patch on top of `base`.
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

/// `rampup` in an entry: a bool, or a map of its keys (which enables it).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RampupPatch {
    /// On, off, or not set.
    pub(crate) enabled: Option<bool>,
    /// See [`Rampup::backoff_target`].
    pub(crate) backoff_target: Option<(u32, u32)>,
    /// See [`Rampup::delay_factor`].
    pub(crate) delay_factor: Option<f64>,
    /// See [`Rampup::min_delay`].
    pub(crate) min_delay: Option<Duration>,
}

impl RampupPatch {
    /// This patch, completed by `under` in keys that are not set here.
    pub(crate) fn over(self, under: &Self) -> Self {
        RampupPatch {
            enabled: self.enabled.or(under.enabled),
            backoff_target: self.backoff_target.or(under.backoff_target),
            delay_factor: self.delay_factor.or(under.delay_factor),
            min_delay: self.min_delay.or(under.min_delay),
        }
    }

    /// The full settings if rampup is on: enabled here, or by default if not set here.
    fn on(&self, default: Option<&Rampup>, usual: &Rampup) -> Option<Rampup> {
        let base = default.unwrap_or(usual);
        self.enabled.unwrap_or(default.is_some()).then(|| Rampup {
            backoff_target: self.backoff_target.unwrap_or(base.backoff_target),
            delay_factor: self.delay_factor.unwrap_or(base.delay_factor),
            min_delay: self.min_delay.unwrap_or(base.min_delay),
        })
    }
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
    pub(super) fn choose<T>(self, from_connect: T, from_send: T) -> T {
        match self {
            LatencyFrom::Connect => from_connect,
            LatencyFrom::Send => from_send,
        }
    }
}

#[cfg(test)]
mod tests;
