//! Settings of one scope, as they are given: keys that are not set come from the globals.

use std::time::Duration;

use super::values::{AutoThrottleMode, Backoff, Jitter, LatencyFrom, Manager, Rampup, WindowKind};
use crate::base::time::Wall;
use crate::fetch::failure::FailureKind;

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
    /// Bytes received per second.
    pub(crate) bytes_per_second: Option<u64>,
    /// Nothing is sent before this time.
    pub(crate) hold_until: Option<Wall>,
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

    /// Bytes received per second: the next request waits until those of the replies before are within this rate.
    /// At least 1.
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_second = Some(bytes.max(1));
        self
    }

    /// Nothing is sent before this time. Holds that servers ask for apply as well.
    pub fn hold_until(mut self, until: Wall) -> Self {
        self.hold_until = Some(until);
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
            bytes_per_second: self.bytes_per_second.or(under.bytes_per_second),
            hold_until: self.hold_until.or(under.hold_until),
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
    pub(super) fn on(&self, base: &Backoff) -> Backoff {
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
    pub(super) fn on(&self, default: Option<&Rampup>, usual: &Rampup) -> Option<Rampup> {
        let base = default.unwrap_or(usual);
        self.enabled.unwrap_or(default.is_some()).then(|| Rampup {
            backoff_target: self.backoff_target.unwrap_or(base.backoff_target),
            delay_factor: self.delay_factor.unwrap_or(base.delay_factor),
            min_delay: self.min_delay.unwrap_or(base.min_delay),
        })
    }
}
