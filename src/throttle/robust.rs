//! AutoThrottle's robust mode: keeps the target number of requests in flight without being misled
//! by single latencies.
//!
//! The delay is the usual busy time of a request ÷ target concurrency. `mix.rs` estimates the usual
//! busy time: it ignores outliers, separates classes of pages, and follows changes. In addition:
//!
//! - Replies from caches do not measure the origin. Every request is paced as if it missed.
//! - A latency known only as an interval, because this thread was busy, counts only as far as it
//!   contradicts the estimate.
//! - A failure never makes the pace faster.
//! - A slow body keeps its server busy as a slow head does: see [`Robust::ended`].
//! - The delay falls to a quarter per reply at most, so that no single reply causes a burst.
//! - A mean does not bound the number in flight at any moment, so that is bounded separately: see
//!   [`in_flight_max`].

use std::borrow::Cow;
use std::time::Duration;

use super::autothrottle;
use super::mix::{Mix, Recorded};
use super::settings::{AutoThrottle, LatencyFrom};
use super::signal::Signal;
use crate::base::time::{Instant, nanos};

/// The state of one scope.
#[derive(Clone, Debug)]
pub struct Robust {
    /// In nanoseconds.
    delay: u64,
    /// Time from departure to head, for replies of the origin.
    heads: Mix,
    /// Time from head to end of body; allocated only for sites with slow bodies.
    bodies: Option<Box<Mix>>,
}

/// The state of one scope as it is saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SavedRobust {
    /// In nanoseconds.
    pub delay: u64,
    /// Usual time to the head, in seconds.
    pub heads: Option<f32>,
    /// Usual time from head to end of body, if bodies are slow.
    pub bodies: Option<f32>,
}

/// Effect of a reply on the delay.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjusted {
    /// The delay before.
    pub before: Duration,
    /// The delay from now on.
    pub after: Duration,
    /// The delay aimed at; `None` if the reply was not used.
    pub target: Option<Duration>,
    /// Human-readable text.
    pub reason: Cow<'static, str>,
    /// A cache answered, or probably did.
    pub suspect: bool,
}

/// A body that ended or broke off after a final head.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// Time to the head, measured from the start that `latency_from` sets.
    pub latency: Duration,
    /// Time from departure to the end of the body.
    pub took: Duration,
    /// The head was a success, and the body is complete.
    pub success: bool,
    /// As in [`Signal::cached`].
    pub cached: Option<bool>,
}

/// Maximum number of requests in flight at this target: the target rounded down, plus one.
///
/// The delay keeps the target on average. When a slow batch begins, the mean is still that of the
/// fast one, and a server that hangs yields no measurement before the first timeout; this bounds
/// the requests sent until then. At a constant latency it has almost no effect, with jitter or
/// without.
pub fn in_flight_max(settings: &AutoThrottle) -> u32 {
    // A cast to an integer saturates.
    (settings.target_concurrency as u32).saturating_add(1)
}

impl Robust {
    /// The state before the first reply: the start delay, but at least the scope's own `floor`.
    pub fn new(settings: &AutoThrottle, floor: Duration) -> Self {
        Robust {
            delay: nanos(autothrottle::start_delay(settings, floor)),
            heads: Mix::of_heads(),
            bodies: None,
        }
    }

    /// What a later run of the crawl continues with; `None` before the first reply.
    pub fn save(&self) -> Option<SavedRobust> {
        let bodies = self.bodies.as_deref().and_then(Mix::usual);
        (!self.heads.is_empty()).then_some(SavedRobust {
            delay: self.delay,
            heads: self.heads.usual(),
            bodies,
        })
    }

    /// Continues with what an earlier run saved.
    pub fn restored(saved: SavedRobust, settings: &AutoThrottle, floor: Duration) -> Self {
        let is_time = |seconds: &f32| seconds.is_finite() && *seconds >= 0.0;
        let heads = saved.heads.filter(is_time);
        let bodies = saved.bodies.filter(is_time);
        let most = nanos(ceiling(settings, floor));
        Robust {
            delay: saved.delay.clamp(nanos(floor), most),
            heads: match heads {
                Some(usual) => Mix::of_heads().with_usual(usual),
                None => Mix::of_heads(),
            },
            bodies: bodies.map(|usual| Box::new(Mix::default().with_usual(usual))),
        }
    }

    /// The present delay, before jitter.
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay)
    }

    /// Learns from a final head, or from its absence: the latency of a timeout is the time waited.
    pub fn answer(
        &mut self,
        settings: &AutoThrottle,
        floor: Duration,
        signal: &Signal,
        now: Instant,
    ) -> Adjusted {
        let latency = match settings.latency_from {
            LatencyFrom::Connect => signal.latency,
            LatencyFrom::Send => signal.server_latency,
        };
        let Some(latency) = latency else {
            return self.unchanged("no latency was measured", false);
        };
        let success = signal.is_success(false);
        let ceiling = ceiling(settings, floor);
        if signal.cached == Some(true) {
            if !success || !self.heads.is_empty() {
                return self.unchanged("a cached reply does not measure the origin", true);
            }
            let target = delay_for(BUSY_UNSEEN, settings, floor);
            let reason = "cached reply, origin unknown: paced as if it took a second";
            return self.adjust(target.min(self.delay()), target, ceiling, reason, true);
        }
        let present = match self.heads.usual() {
            Some(usual) => Duration::from_secs_f32(usual),
            None => autothrottle::latency_at(settings, self.delay()),
        };
        let latency = match signal.believed(latency, present) {
            believed if believed == present && !signal.slack.is_zero() => {
                let reason = "latency known only as an interval that includes the usual one";
                return self.unchanged(reason, false);
            }
            believed => believed,
        };
        if !success {
            return self.answer_failed(settings, floor, latency, now);
        }
        let learned = self.heads.record(latency, true, now);
        let target = self.target(settings, floor);
        let (aim, reason, suspect) = match learned {
            Recorded::First if target > self.delay() => {
                let present = self.delay().min(ceiling);
                (present, "one slow reply: ignored until more follow", false)
            }
            Recorded::First | Recorded::Counted => {
                (target, "usual latency ÷ target concurrency", false)
            }
            Recorded::Outlier => (
                target,
                "outlier: ignored until more of its kind follow",
                false,
            ),
            Recorded::Changed => (target, "the latency changed", false),
            Recorded::CacheHit => (
                target,
                "far faster than the others: taken for a cache hit",
                true,
            ),
        };
        self.adjust(aim, target, ceiling, reason, suspect)
    }

    /// Learns from a failure: it can only make the pace slower.
    fn answer_failed(
        &mut self,
        settings: &AutoThrottle,
        floor: Duration,
        latency: Duration,
        now: Instant,
    ) -> Adjusted {
        let quick = "fast failure: never makes the pace faster";
        if latency.as_secs_f64() <= self.delay().as_secs_f64() * settings.target_concurrency {
            return self.unchanged(quick, false);
        }
        let before = self.heads.clone();
        let learned = self.heads.record(latency, false, now);
        if self.heads.falls_from(&before) {
            // Slow, but faster than others of its class.
            self.heads = before;
            return self.unchanged(quick, false);
        }
        let target = self.target(settings, floor);
        let (aim, reason) = match learned {
            Recorded::First => (self.delay(), "one slow failure: ignored until more follow"),
            _ => (target.max(self.delay()), "slow failure"),
        };
        self.adjust(aim, target, ceiling(settings, floor), reason, false)
    }

    /// Learns from the end of a body whose head was passed to [`answer`](Robust::answer) before.
    ///
    /// The time that the body takes beyond the head keeps a connection of the server busy as well,
    /// so the busy time is the sum of both. They are estimated separately: most sites are slow in
    /// only one of them, and bodies that end with their heads use no memory here.
    pub fn ended(
        &mut self,
        settings: &AutoThrottle,
        floor: Duration,
        body: &Body,
        now: Instant,
    ) -> Adjusted {
        let extra = body.took.saturating_sub(body.latency);
        if body.cached == Some(true) {
            return self.unchanged("a cached reply does not measure the origin", true);
        }
        if self.bodies.is_none() {
            let heads = self.heads.usual().unwrap_or(0.0);
            if extra < BODY_SHORTEST.max(Duration::from_secs_f32(heads * BODY_SHARE)) {
                return self.unchanged("the body ended with its head", false);
            }
        }
        let bodies = self.bodies.get_or_insert_with(|| {
            // Earlier bodies ended with their heads.
            let mut bodies = Mix::default();
            bodies.record(Duration::ZERO, true, now);
            Box::new(bodies)
        });
        if !body.success && extra.as_secs_f32() <= bodies.usual().unwrap_or(0.0) {
            return self.unchanged("the body broke off: never makes the pace faster", false);
        }
        let before = bodies.clone();
        let learned = bodies.record(extra, body.success, now);
        if !body.success && bodies.falls_from(&before) {
            *bodies = before;
            return self.unchanged("the body broke off: never makes the pace faster", false);
        }
        if bodies.longest() < BODY_SHORTEST.as_secs_f32() {
            // No slow body is remembered.
            self.bodies = None;
        }
        let target = self.target(settings, floor);
        let reason = match learned {
            Recorded::Outlier => "outlier among bodies: ignored until more of its kind follow",
            _ => "bodies take longer than their heads",
        };
        // A broken body raises the mean of bodies, but that of heads may have fallen meanwhile.
        let least = if body.success {
            Duration::ZERO
        } else {
            self.delay()
        };
        let ceiling = ceiling(settings, floor);
        self.adjust(target.max(least), target, ceiling, reason, false)
    }

    /// The delay that keeps the target concurrency in flight.
    fn target(&self, settings: &AutoThrottle, floor: Duration) -> Duration {
        let heads = self.heads.usual().map(f64::from);
        let bodies = self.bodies.as_deref().and_then(Mix::usual).map(f64::from);
        match (heads, bodies) {
            (None, None) => self.delay(),
            (heads, bodies) => {
                let busy = heads.map_or(0.0, |heads| heads.max(BUSY_MIN)) + bodies.unwrap_or(0.0);
                delay_for(busy, settings, floor)
            }
        }
    }

    /// Sets the delay to `aim`, or as close to it as one reply may lead. A start delay above the
    /// ceiling falls to it at once: only a delay that was not learned can be above.
    fn adjust(
        &mut self,
        aim: Duration,
        target: Duration,
        ceiling: Duration,
        reason: &'static str,
        suspect: bool,
    ) -> Adjusted {
        let before = self.delay();
        let after = aim.max((before / FALL_MAX).min(ceiling));
        self.delay = nanos(after);
        Adjusted {
            before,
            after,
            target: Some(target),
            reason: reason.into(),
            suspect,
        }
    }

    fn unchanged(&self, reason: &'static str, suspect: bool) -> Adjusted {
        Adjusted {
            before: self.delay(),
            after: self.delay(),
            target: None,
            reason: reason.into(),
            suspect,
        }
    }
}

/// The delay at which requests with this busy time (seconds) reach the target concurrency, within
/// the bounds.
fn delay_for(busy: f64, settings: &AutoThrottle, floor: Duration) -> Duration {
    // Clamped before the conversion to `Duration`: a tiny target concurrency would overflow it.
    let ceiling = ceiling(settings, floor);
    let delay = (busy / settings.target_concurrency).min(ceiling.as_secs_f64());
    Duration::from_secs_f64(delay).max(floor)
}

/// The longest delay that may be learned; the scope's own delay takes precedence.
fn ceiling(settings: &AutoThrottle, floor: Duration) -> Duration {
    settings.max_delay.max(floor)
}

/// The delay falls at most to this fraction per reply: from the start delay to a tenth of a second
/// in three or four replies.
const FALL_MAX: u32 = 4;
/// While only caches have answered, the origin is paced as if it took this many seconds: the delay
/// used for an unknown site (`DOWNLOAD_DELAY`). The next request may be the one that misses; most
/// origins are faster than this.
const BUSY_UNSEEN: f64 = 1.0;
/// No origin is assumed to be faster than this, in seconds: replies that all take less may come
/// from a cache that does not declare itself, and 200 per second are enough for the origin behind
/// it.
const BUSY_MIN: f64 = 0.005;
/// A body that ends within this time, or
const BODY_SHORTEST: Duration = Duration::from_millis(2);
/// within this share of the usual latency, counts as ended with its head while no slower ones are
/// known.
const BODY_SHARE: f32 = 0.05;

#[cfg(test)]
mod tests;
