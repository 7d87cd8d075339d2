//! Settings of pacing: the defaults of all scopes, and those of single scopes.

mod patch;
mod values;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

pub use self::patch::{AutoThrottlePatch, BackoffPatch, RampupPatch, ScopePatch};
pub use self::values::{
    AutoThrottle, AutoThrottleMode, Backoff, Jitter, LatencyFrom, Manager, Oversize, Quota, Rampup,
    RateLimitHeaders, WindowKind,
};
pub use super::map::MapKind;

use crate::base::host_patterns::patterns_above;
use crate::base::time::{Instant, Wall};
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
    /// The wall-clock time of the crawl's first instant, for `hold_until`.
    pub(crate) started: Wall,
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
            started: Wall(0),
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
    /// The end of the hold that a scope's settings ask for, on the crawl's clock.
    pub(crate) fn held_until(&self, settings: &ScopeSettings) -> Instant {
        settings.hold_until.map_or(Instant::START, |until| {
            Instant::START + until.saturating_since(self.started)
        })
    }

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
    /// `*.example.com` matches every host below `example.com`, `ip/*` every address, `domain/*` every
    /// registrable domain if `SCOPE_MAP` maps to domains, and `key/*` every other scope whose name begins with
    /// `key/`.
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
            let patterns = prefix_patterns(name).filter_map(|pattern| known(&pattern));
            return patterns.filter(|pattern| *pattern != DOMAINS).collect();
        }
        let host = name.strip_prefix("*.").unwrap_or(name);
        let host = host.split_once(':').map_or(host, |(host, _port)| host);
        let mut patterns: Vec<&str> = Vec::new();
        // Called for every new scope, and such patterns are rare.
        if self.has_domain_patterns() {
            patterns.extend(patterns_above(host).filter_map(|pattern| known(&pattern)));
        }
        // The public suffix list is searched only if the answer matters.
        let domains = known(DOMAINS).filter(|_| self.maps_to_domain(name));
        patterns.extend(domains);
        patterns
    }

    /// Returns whether a name is that of a scope, or a pattern that matches it; `default` matches all.
    pub(crate) fn covers(&self, pattern: &str, name: &str) -> bool {
        match pattern.strip_prefix('*') {
            _ if pattern == "default" || pattern == name => true,
            _ if pattern == ADDRESSES => name.starts_with("ip/"),
            _ if pattern == DOMAINS => self.maps_to_domain(name),
            None if pattern.ends_with("/*") => {
                // Shorter patterns are asked for only, so that a long path costs no more.
                let slashes = pattern.matches('/').count();
                slashes <= PREFIX_SEGMENTS_MAX && name.starts_with(&pattern[..pattern.len() - 1])
            }
            Some(domain) if !name.contains('/') => {
                let host = name.split_once(':').map_or(name, |(host, _port)| host);
                host.ends_with(domain)
            }
            _ => false,
        }
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
            bytes_per_second: patch.bytes_per_second.or(default.bytes_per_second),
            hold_until: patch.hold_until.or(default.hold_until),
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

/// The patterns that match a name with slashes, or a wider set than it if it is a pattern itself, the narrowest first.
fn prefix_patterns(name: &str) -> impl Iterator<Item = String> {
    let stem = name.strip_suffix("/*").unwrap_or(name);
    let slashes = stem.match_indices('/').take(PREFIX_SEGMENTS_MAX);
    let ends: Vec<usize> = slashes.map(|(at, _)| at).collect();
    ends.into_iter()
        .rev()
        .map(move |end| format!("{}/*", &stem[..end]))
}

/// Most slashes of a pattern such as `key/*`: the path of a scope may have thousands.
pub const PREFIX_SEGMENTS_MAX: usize = 8;

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
    /// `bytes_per_second`: bytes received per second; at least 1.
    pub bytes_per_second: Option<u64>,
    /// `hold_until`: nothing is sent before this time.
    pub hold_until: Option<Wall>,
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
            bytes_per_second: None,
            hold_until: None,
        }
    }
}

#[cfg(test)]
mod tests;
