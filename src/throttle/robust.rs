//! AutoThrottle's robust mode: as many requests in flight as the target says, whatever the latency
//! pretends.
//!
//! The delay is the usual busy time of a request ÷ target concurrency. What is usual is `mix.rs`'s
//! to say: outliers are left out, classes of pages are told apart, and changes are followed. Beyond
//! that:
//!
//! - Replies from caches say nothing of the origin. Every request is paced as if it missed.
//! - A latency that is a mere bound, since our own thread was busy, teaches what it contradicts.
//! - What is no success never makes the pace faster.
//! - A body that takes its time keeps its server busy as a head does: see [`Robust::ended`].
//! - The delay falls to a quarter per reply at most, so that no single reply makes a burst.
//! - A mean promises nothing about the moment, so in flight is bounded: see [`in_flight_max`].

use std::borrow::Cow;
use std::time::Duration;

use super::autothrottle;
use super::mix::{Learned, Mix};
use super::settings::{AutoThrottle, LatencyFrom};
use super::signal::Signal;
use crate::base::time::{Instant, nanos};

/// The state of one scope.
#[derive(Clone, Debug)]
pub struct Robust {
    /// In nanoseconds.
    delay: u64,
    /// From departure to head, of what the origin answered.
    heads: Mix,
    /// From head to end of body; few sites are slow there.
    bodies: Option<Box<Mix>>,
}

/// What a reply did to the delay.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjusted {
    /// The delay before.
    pub before: Duration,
    /// The delay from now on.
    pub after: Duration,
    /// The delay that is aimed at; `None` where the reply taught nothing.
    pub target: Option<Duration>,
    /// Words for a person.
    pub reason: Cow<'static, str>,
    /// A cache answered, or seems to have.
    pub suspect: bool,
}

/// A body that ended, or broke off, behind a final head.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// From departure to head, as the scope's `latency_from` has it.
    pub latency: Duration,
    /// From departure to the end of the body.
    pub took: Duration,
    /// The head was a success, and the body is whole.
    pub success: bool,
    /// As in [`Signal::cached`].
    pub cached: Option<bool>,
}

/// Requests in flight at most, at this target: it, rounded down, and one.
///
/// The delay holds the target on average. When a slow batch begins the average is still that of
/// the quick one, and a server that hangs teaches nothing before the first timeout; this bounds
/// what is sent until then. At a constant latency it changes next to nothing, jitter or not.
pub fn in_flight_max(settings: &AutoThrottle) -> u32 {
    // A cast to an integer saturates.
    (settings.target_concurrency as u32).saturating_add(1)
}

impl Robust {
    /// The state before the first reply: the start delay, never under the scope's own `floor`.
    pub fn new(settings: &AutoThrottle, floor: Duration) -> Self {
        Robust {
            delay: nanos(autothrottle::start_delay(settings, floor)),
            heads: Mix::of_heads(),
            bodies: None,
        }
    }

    /// The present delay, before jitter.
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay)
    }

    /// Learns from a final head, or from the lack of one: the latency of what timed out is the
    /// time that was waited.
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
            return self.unchanged("it has no latency to learn from", false);
        };
        let success = signal.is_success(false);
        let ceiling = ceiling(settings, floor);
        if signal.cached == Some(true) {
            if !success || !self.heads.is_empty() {
                return self.unchanged("a cache's reply says nothing of the origin", true);
            }
            let target = delay_for(UNSEEN, settings, floor);
            let reason = "from a cache, the origin unseen: paced as if it took a second";
            return self.adjust(target.min(self.delay()), target, ceiling, reason, true);
        }
        let present = match self.heads.usual() {
            Some(usual) => Duration::from_secs_f32(usual),
            None => autothrottle::latency_at(settings, self.delay()),
        };
        let latency = match signal.believed(latency, present) {
            believed if believed == present && !signal.slack.is_zero() => {
                let reason = "a mere bound, and no contradiction to what is usual";
                return self.unchanged(reason, false);
            }
            believed => believed,
        };
        if !success {
            return self.answer_failed(settings, floor, latency, now);
        }
        let learned = self.heads.learn(latency, true, now);
        let target = self.target(settings, floor);
        let (aim, reason, suspect) = match learned {
            Learned::First if target > self.delay() => {
                let present = self.delay().min(ceiling);
                (present, "one slow reply: waits for more", false)
            }
            Learned::First | Learned::Counted => {
                (target, "usual latency ÷ target concurrency", false)
            }
            Learned::Outlier => (
                target,
                "unlike the others: waits for more of its kind",
                false,
            ),
            Learned::Changed => (target, "the latency changed for good", false),
            Learned::LikeACache => (
                target,
                "far too quick beside the others: taken for a cache's",
                true,
            ),
        };
        self.adjust(aim, target, ceiling, reason, suspect)
    }

    /// Learns from what was no success: only what makes the pace slower.
    fn answer_failed(
        &mut self,
        settings: &AutoThrottle,
        floor: Duration,
        latency: Duration,
        now: Instant,
    ) -> Adjusted {
        let quick = "no success, and quick: never makes the pace faster";
        if latency.as_secs_f64() <= self.delay().as_secs_f64() * settings.target_concurrency {
            return self.unchanged(quick, false);
        }
        let before = self.heads.clone();
        let learned = self.heads.learn(latency, false, now);
        if self.heads.falls_from(&before) {
            // Slow, but quicker than others of its class.
            self.heads = before;
            return self.unchanged(quick, false);
        }
        let target = self.target(settings, floor);
        let (aim, reason) = match learned {
            Learned::First => (self.delay(), "one slow failure: waits for more"),
            _ => (target.max(self.delay()), "no success, and slow"),
        };
        self.adjust(aim, target, ceiling(settings, floor), reason, false)
    }

    /// Learns from the end of a body, where [`answer`](Robust::answer) was told of its head.
    ///
    /// What the body takes beyond the head keeps a connection of the server busy as well, so that
    /// the busy time is the sum of both. They are learned apart: most sites are slow in one of
    /// them only, and most bodies end with their heads, which costs no memory here.
    pub fn ended(
        &mut self,
        settings: &AutoThrottle,
        floor: Duration,
        body: &Body,
        now: Instant,
    ) -> Adjusted {
        let extra = body.took.saturating_sub(body.latency);
        if body.cached == Some(true) {
            return self.unchanged("a cache's reply says nothing of the origin", true);
        }
        if self.bodies.is_none() {
            let heads = self.heads.usual().unwrap_or(0.0);
            if extra < BODY_SHORTEST.max(Duration::from_secs_f32(heads * BODY_SHARE)) {
                return self.unchanged("the body ended with its head", false);
            }
        }
        let bodies = self.bodies.get_or_insert_with(|| {
            // Those before ended with their heads.
            let mut bodies = Mix::default();
            bodies.learn(Duration::ZERO, true, now);
            Box::new(bodies)
        });
        if !body.success && extra.as_secs_f32() <= bodies.usual().unwrap_or(0.0) {
            return self.unchanged("it broke off: never makes the pace faster", false);
        }
        let before = bodies.clone();
        let learned = bodies.learn(extra, body.success, now);
        if !body.success && bodies.falls_from(&before) {
            *bodies = before;
            return self.unchanged("it broke off: never makes the pace faster", false);
        }
        if bodies.longest() < BODY_SHORTEST.as_secs_f32() {
            // None of the slow ones is remembered.
            self.bodies = None;
        }
        let target = self.target(settings, floor);
        let reason = match learned {
            Learned::Outlier => "unlike other bodies: waits for more of its kind",
            _ => "bodies take longer than their heads",
        };
        // What broke off raises the mean of bodies; that of heads may have fallen meanwhile.
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
                let busy = heads.map_or(0.0, |heads| heads.max(QUICKEST)) + bodies.unwrap_or(0.0);
                delay_for(busy, settings, floor)
            }
        }
    }

    /// Goes to `aim`, or as far towards it as one reply may lead. A start delay above the ceiling
    /// falls to it at once: only what was never learned stands above.
    fn adjust(
        &mut self,
        aim: Duration,
        target: Duration,
        ceiling: Duration,
        reason: &'static str,
        suspect: bool,
    ) -> Adjusted {
        let before = self.delay();
        let after = aim.max((before / FALL_AT_MOST).min(ceiling));
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

/// The delay at which requests that keep the server busy for so many seconds are as many as the
/// target says, within the bounds.
fn delay_for(busy: f64, settings: &AutoThrottle, floor: Duration) -> Duration {
    // Bounded before it is a span: a tiny target concurrency asks for more than a span can hold.
    let ceiling = ceiling(settings, floor);
    let delay = (busy / settings.target_concurrency).min(ceiling.as_secs_f64());
    Duration::from_secs_f64(delay).max(floor)
}

/// The longest delay that may be learned; the scope's own goes before it.
fn ceiling(settings: &AutoThrottle, floor: Duration) -> Duration {
    settings.max_delay.max(floor)
}

/// The delay falls to this part per reply at most: from the start delay to a tenth of a second in
/// three or four replies.
const FALL_AT_MOST: u32 = 4;
/// While caches alone have answered, the origin is paced as if it took so many seconds: the delay
/// that holds for a site of which nothing is known (`DOWNLOAD_DELAY`). The next request may be the
/// one that misses; most origins are quicker than this.
const UNSEEN: f64 = 1.0;
/// No origin is taken to be quicker than this, in seconds: replies that all take less may come
/// from a cache that does not say so, and two hundred a second are plenty for what is behind it.
const QUICKEST: f64 = 0.005;
/// A body that ends within this, or
const BODY_SHORTEST: Duration = Duration::from_millis(2);
/// this part of the usual latency, ended with its head, as long as there are no slower ones.
const BODY_SHARE: f32 = 0.05;

#[cfg(test)]
mod tests;
