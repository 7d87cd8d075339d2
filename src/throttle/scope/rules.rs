//! State of the rules that change a scope's pace. Only few scopes have it.

mod saved;

use std::borrow::Cow;
use std::time::Duration;

pub use self::saved::SavedSummary;
pub(in crate::throttle) use self::saved::{Restoring, SavedRules};

use super::slots::Slots;
use super::{NO_INDEX, Profile};
use crate::base::byte_rate::ByteRate;
use crate::base::time::Instant;
use crate::throttle::autothrottle;
use crate::throttle::backoff::{Backoff, Learned};
use crate::throttle::decision::{DecisionEvent, DecisionSource};
use crate::throttle::quota::{Charge, Fit, Ledger};
use crate::throttle::robust::{self, Adjusted, Body, Robust};
use crate::throttle::settings::{AutoThrottleMode, Jitter, ScopeSettings};
use crate::throttle::signal::{ExchangeEnd, Feedback, Signal};
use crate::throttle::strategy::{Observation, Pace, Strategy};
use crate::throttle::suspect::{Kind, Reply, Suspect};

/// The rules of one scope beyond its settings.
///
/// The pace is recomputed whenever a rule changed: the longest delay, the smallest concurrency.
pub(super) struct Rules {
    pace: Pace,
    /// The pace without backoff.
    base: Pace,
    /// The rule that determines the pace's delay.
    delay_source: DecisionSource,
    /// A third party's minimum delay (Crawl-delay): never undercut, not even by jitter.
    pub floor: Duration,
    held: Hold,
    /// The hold that the settings ask for.
    configured_hold: Instant,
    /// One request at a time, until a request sent from this time on is answered without a refusal.
    probing_from: Option<Instant>,
    /// The lane that has claimed the scope, or `NO_INDEX`.
    pub claimed_by: u32,
    /// Sends by slot, if `delay_per_slot` and concurrency make the slots differ.
    pub slots: Option<Slots>,
    adapts: Adapts,
    /// State of backoff, or of rampup's search.
    backoff: Option<Box<Backoff>>,
    /// Detection of block pages.
    suspect: Option<Box<Suspect>>,
    /// The quota.
    quota: Option<Box<Ledger>>,
    /// `requests_per_minute`.
    minute: Option<Box<Ledger>>,
    /// `bytes_per_second`.
    bytes: Option<ByteRate>,
    /// The last child scope that was refused, and when.
    child_refused: Option<(u32, Instant)>,
}

/// The rule by which the pace follows answers, apart from refusals.
enum Adapts {
    No,
    /// AutoThrottle as in Scrapy, with its delay.
    Scrapy(Duration),
    /// AutoThrottle in robust mode.
    Robust(Box<Robust>),
    /// The embedder's own strategy; it handles refusals as well.
    Custom(Box<dyn Strategy>),
}

/// Nothing departs before a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::throttle) struct Hold {
    pub until: Instant,
    pub source: DecisionSource,
    /// After the hold one request at a time, until one is not refused.
    pub probes: bool,
}

/// A change of the pace by one rule.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::throttle) struct Change {
    pub event: DecisionEvent,
    pub source: DecisionSource,
    pub latency: Option<Duration>,
    pub target: Option<Duration>,
    pub before: Pace,
    pub after: Pace,
    pub reason: Cow<'static, str>,
    /// Also logged as a warning, even if decisions are not recorded.
    pub alert: bool,
}

impl Rules {
    /// The rules of a new scope; `None` if its settings determine everything.
    pub fn of(profile: &Profile, strategy: Option<Box<dyn Strategy>>) -> Option<Self> {
        let settings = &profile.settings;
        let backs_off = settings.backoff.enabled && settings.backoff.per_slot;
        let ramps = strategy.is_none() && settings.rampup.is_some();
        let needs_slots = settings.delay_per_slot > Duration::ZERO || backs_off;
        let has_slots = needs_slots && settings.concurrency > 1 && !ramps;
        let is_bounded = settings.quota.is_some()
            || settings.requests_per_minute.is_some()
            || settings.bytes_per_second.is_some();
        let adapts = strategy.is_some() || settings.autothrottle.is_some();
        let is_held = profile.held_until > Instant::START;
        if !adapts && !has_slots && !is_bounded && !ramps && !is_held {
            return None;
        }
        let mut rules = Rules::plain(settings);
        rules.configured_hold = profile.held_until;
        rules.backoff = ramps.then(|| Box::new(Backoff::new(Instant::START)));
        rules.quota = settings.quota.map(|quota| Box::new(Ledger::new(quota)));
        let limit = settings.requests_per_minute;
        rules.minute = limit.map(|limit| Box::new(Ledger::per_minute(limit)));
        let rate = settings.bytes_per_second;
        rules.bytes = rate.map(|rate| ByteRate::new(rate, UNSPENT_MAX));
        rules.slots = has_slots.then(|| Slots::new(settings.concurrency));
        rules.adapts = match (strategy, &settings.autothrottle) {
            (Some(mut strategy), _) => {
                rules.pace = strategy.start(settings);
                Adapts::Custom(strategy)
            }
            (None, Some(auto)) => match auto.mode {
                AutoThrottleMode::Scrapy => {
                    Adapts::Scrapy(autothrottle::start_delay(auto, settings.delay))
                }
                AutoThrottleMode::Robust => {
                    rules.suspect = Some(Box::default());
                    Adapts::Robust(Box::new(Robust::new(auto, settings.delay)))
                }
            },
            (None, None) => Adapts::No,
        };
        rules.recompute(profile);
        Some(rules)
    }

    /// Rules without any effect yet.
    pub fn plain(settings: &ScopeSettings) -> Self {
        let pace = Pace {
            delay: settings.delay,
            concurrency: settings.concurrency,
        };
        Rules {
            pace,
            base: pace,
            delay_source: DecisionSource::User,
            floor: Duration::ZERO,
            held: Hold::NONE,
            configured_hold: Instant::START,
            probing_from: None,
            claimed_by: NO_INDEX,
            slots: None,
            adapts: Adapts::No,
            backoff: None,
            suspect: None,
            quota: None,
            minute: None,
            bytes: None,
            child_refused: None,
        }
    }

    /// Takes over the state of rules under other settings, as far as it still applies.
    pub fn inherit(&mut self, old: Rules, before: &Profile, profile: &Profile, now: Instant) {
        let (before, settings) = (&before.settings, &profile.settings);
        if before.backoff == settings.backoff && before.rampup == settings.rampup {
            self.backoff = old.backoff;
        }
        self.floor = old.floor;
        self.held = old.held;
        self.probing_from = old.probing_from;
        self.claimed_by = old.claimed_by;
        self.child_refused = old.child_refused;
        if before.autothrottle == settings.autothrottle && before.manager == settings.manager {
            if matches!(old.adapts, Adapts::Custom(_)) {
                // The strategy sets it again with its next observation.
                self.pace = old.pace;
            }
            self.adapts = old.adapts;
            self.suspect = old.suspect;
        }
        if let (Some(slots), Some(old)) = (&mut self.slots, old.slots) {
            slots.inherit(old);
        }
        self.quota = match (self.quota.take(), old.quota) {
            (Some(_), Some(old)) if before.quota == settings.quota => Some(old),
            (Some(fresh), Some(old)) => {
                let units = settings.quota.map_or(0.0, |quota| quota.units);
                Some(spent_before(fresh, &old, units, now))
            }
            (fresh, _) => fresh,
        };
        self.minute = match (self.minute.take(), old.minute) {
            (Some(_), Some(old)) if before.requests_per_minute == settings.requests_per_minute => {
                Some(old)
            }
            (Some(fresh), Some(old)) => {
                let limit = settings.requests_per_minute.unwrap_or(0.0);
                Some(spent_before(fresh, &old, limit, now))
            }
            (fresh, _) => fresh,
        };
        if let (Some(bytes), Some(old)) = (&mut self.bytes, old.bytes) {
            bytes.inherit(old, now);
        }
        self.recompute(profile);
    }

    /// Forgets what was learned from replies: the state of `fresh` rules in its place. Holds, minimum gaps and
    /// quotas stay.
    pub fn forget(&mut self, fresh: Rules, profile: &Profile) {
        self.pace = fresh.pace;
        self.backoff = fresh.backoff;
        self.adapts = fresh.adapts;
        self.suspect = fresh.suspect;
        self.child_refused = None;
        if let Some(slots) = &mut self.slots {
            slots.forget();
        }
        self.recompute(profile);
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Maximum number of requests in flight at present.
    pub fn concurrency(&self) -> u32 {
        match self.probing_from {
            Some(_) => 1,
            None => self.pace.concurrency,
        }
    }

    /// The jitter that replaces the scope's own.
    pub fn jitter(&self, profile: &Profile) -> Option<Jitter> {
        let backoff = self.backoff.as_ref()?;
        backoff.jitter(&profile.backoff(self.base))
    }

    /// Recomputes the pace.
    fn recompute(&mut self, profile: &Profile) {
        let settings = &profile.settings;
        let configured = Pace {
            delay: settings.delay,
            concurrency: settings.concurrency,
        };
        let mut pace = configured;
        match &self.adapts {
            Adapts::No => {}
            Adapts::Scrapy(delay) => pace.delay = pace.delay.max(*delay),
            Adapts::Robust(robust) => {
                let auto = settings.autothrottle.as_ref();
                let most = auto.map_or(u32::MAX, robust::in_flight_max);
                pace.delay = pace.delay.max(robust.delay());
                pace.concurrency = pace.concurrency.min(most);
            }
            Adapts::Custom(_) => pace = self.pace,
        }
        self.delay_source = if pace.delay > configured.delay {
            DecisionSource::Autothrottle
        } else {
            DecisionSource::User
        };
        self.base = pace;
        if let Some(backoff) = &self.backoff {
            let asked = backoff.pace(&profile.backoff(pace));
            if asked.delay != pace.delay {
                self.delay_source = match settings.rampup {
                    Some(_) => DecisionSource::Rampup,
                    None => DecisionSource::Backoff,
                };
            }
            pace = asked;
        }
        if let Some(slots) = &self.slots {
            pace.concurrency = pace.concurrency.min(slots.concurrency(profile));
        }
        let longest = settings.backoff.max_delay;
        let probes = self.probe_gap(pace.delay > self.base.delay).min(longest);
        if probes > Duration::ZERO {
            pace.concurrency = 1;
            if probes > pace.delay {
                pace.delay = probes;
                self.delay_source = DecisionSource::Backoff;
            }
        }
        self.pace = pace;
    }

    /// Applies an answer.
    pub fn answer(
        &mut self,
        profile: &Profile,
        observation: &Observation<'_>,
        slot: u16,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        self.end_probing(observation);
        self.adapt(profile, observation, now, changes);
        self.back_off(profile, observation, slot, now, changes);
    }

    /// Applies the rest of an answer to which AutoThrottle or the strategy has [adapted](Rules::adapt).
    pub fn accept(
        &mut self,
        profile: &Profile,
        observation: &Observation<'_>,
        slot: u16,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        self.end_probing(observation);
        self.back_off(profile, observation, slot, now, changes);
    }

    fn end_probing(&mut self, observation: &Observation<'_>) {
        let answered = observation.signal.status.is_some() && !observation.refused;
        let mut probing = self.probing_from.iter();
        if answered && probing.any(|from| observation.sent >= *from) {
            self.probing_from = None;
        }
    }

    /// Applies an answer to AutoThrottle or to the strategy of an embedder.
    pub fn adapt(
        &mut self,
        profile: &Profile,
        observation: &Observation<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let settings = &profile.settings;
        let before = self.pace;
        let has_strategy = matches!(self.adapts, Adapts::Custom(_));
        if observation.refused && self.suspect.is_none() && !has_strategy {
            // From now on it is checked whether slowing down helps.
            self.suspect = Some(Box::default());
        }
        let is_suspected = self.is_suspected();
        match &mut self.adapts {
            Adapts::No => {}
            Adapts::Scrapy(delay) => {
                let auto = settings.autothrottle.as_ref();
                let auto = auto.expect("an adapting scope has AutoThrottle settings");
                let signal = observation.signal;
                *delay = autothrottle::adjusted_delay(auto, settings.delay, *delay, signal);
                let latency = auto
                    .latency_from
                    .choose(signal.latency, signal.server_latency);
                self.recompute(profile);
                if latency.is_some() {
                    changes.push(Change {
                        event: DecisionEvent::Autothrottle,
                        source: DecisionSource::Autothrottle,
                        latency,
                        target: latency.map(|latency| autothrottle::target(auto, latency)),
                        before,
                        after: self.pace,
                        reason: Cow::Borrowed("the delay follows the latency"),
                        alert: false,
                    });
                }
            }
            // The latency of block pages does not measure the origin's pace.
            Adapts::Robust(_) if is_suspected => {}
            Adapts::Robust(robust) => {
                let auto = settings.autothrottle.as_ref();
                let auto = auto.expect("an adapting scope has AutoThrottle settings");
                let adjusted = robust.answer(auto, settings.delay, observation.signal, now);
                let latency = auto.latency_from.choose(
                    observation.signal.latency,
                    observation.signal.server_latency,
                );
                self.recompute(profile);
                changes.push(adjusted_change(adjusted, latency, before, self.pace));
            }
            Adapts::Custom(strategy) => {
                let mut pace = strategy.answer(settings, before, observation, now);
                pace.concurrency = pace.concurrency.max(1);
                self.pace = pace;
                let latency = observation.signal.server_latency;
                changes.extend(strategy_change(observation.refused, latency, before, pace));
            }
        }
    }

    /// Applies refusals, and their absence, to the pace.
    fn back_off(
        &mut self,
        profile: &Profile,
        observation: &Observation<'_>,
        slot: u16,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let latency = observation.signal.server_latency;
        let by_slot = self
            .slots
            .as_mut()
            .filter(|_| profile.settings.backoff.per_slot);
        let has_strategy = matches!(self.adapts, Adapts::Custom(_));
        if has_strategy || !observation.refused && observation.signal.status.is_none() {
            // A strategy has answered, or there was no answer: neither a refusal nor its absence.
            return;
        }
        if !observation.refused
            && by_slot.is_none()
            && profile.settings.rampup.is_none()
            && let Some(backoff) = self.backoff.as_mut().filter(|it| it.is_calm())
        {
            let rules = profile.backoff(self.base);
            return backoff.measure(&rules, observation.sent, latency, now);
        }
        let step = if let Some(slots) = by_slot {
            slots.answer(slot, observation, profile, now)
        } else if observation.refused {
            // The state starts at the request's departure; if it started now, this refusal would
            // count as one of an earlier round.
            let backoff = self
                .backoff
                .get_or_insert_with(|| Box::new(Backoff::new(observation.sent)));
            backoff.refused(&profile.backoff(self.base), observation.sent, latency, now)
        } else if let Some(backoff) = &mut self.backoff {
            backoff.success(&profile.backoff(self.base), observation.sent, latency, now)
        } else {
            return;
        };
        self.recompute(profile);
        if let Some(step) = step {
            changes.push(Change {
                event: step.event,
                source: match profile.settings.rampup {
                    Some(_) => DecisionSource::Rampup,
                    None => DecisionSource::Backoff,
                },
                latency,
                target: None,
                before: step.before,
                after: step.after,
                reason: step.reason,
                alert: false,
            });
        }
    }

    /// Starts to measure the working rate from what is sent after `since`, so that it is known at
    /// the first refusal.
    pub fn measure(&mut self, since: Instant) {
        if self.backoff.is_none() && !matches!(self.adapts, Adapts::Custom(_)) {
            self.backoff = Some(Box::new(Backoff::new(since)));
        }
    }

    /// The limits learned from refusals that still apply.
    pub fn learned(&self) -> Option<Learned> {
        self.backoff.as_ref()?.compact()
    }

    /// Restores limits that were learned before.
    pub fn restore_learned(&mut self, profile: &Profile, learned: Learned, now: Instant) {
        self.backoff = Some(Box::new(Backoff::from_learned(learned, now)));
        self.recompute(profile);
    }

    /// Applies the end of an exchange.
    pub fn ended(
        &mut self,
        profile: &Profile,
        signal: &Signal,
        ending: &ExchangeEnd,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let settings = &profile.settings;
        self.suspects(profile, signal, ending, now, changes);
        let is_suspected = self.is_suspected();
        let before = self.pace;
        match &mut self.adapts {
            Adapts::No | Adapts::Scrapy(_) => {}
            Adapts::Robust(_) if is_suspected => {}
            Adapts::Robust(robust) => {
                let auto = settings.autothrottle.as_ref();
                let auto = auto.expect("an adapting scope has AutoThrottle settings");
                let (Some(latency), Some(took)) = (
                    auto.latency_from
                        .choose(signal.latency, signal.server_latency),
                    ending.took,
                ) else {
                    return;
                };
                let body = Body {
                    latency,
                    took,
                    success: signal.is_success(false) && ending.failure.is_none(),
                    cached: signal.cached,
                };
                let adjusted = robust.ended(auto, settings.delay, &body, now);
                let changed = adjusted.before != adjusted.after;
                self.recompute(profile);
                if changed {
                    changes.push(adjusted_change(adjusted, Some(took), before, self.pace));
                }
            }
            Adapts::Custom(strategy) => {
                let mut pace = strategy.ended(settings, self.pace, ending, now);
                pace.concurrency = pace.concurrency.max(1);
                self.pace = pace;
                let latency = signal.server_latency;
                changes.extend(strategy_change(ending.refused, latency, before, pace));
            }
        }
    }

    /// Checks whether a reply is a block page.
    fn suspects(
        &mut self,
        profile: &Profile,
        signal: &Signal,
        ending: &ExchangeEnd,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let Some(suspect) = &mut self.suspect else {
            return;
        };
        let latency = signal.server_latency;
        let reply = Reply::of(signal, ending, &profile.settings.backoff);
        let suspicion = suspect.ended(reply, latency, ending, now);
        let before = self.pace;
        self.recompute(profile);
        if let Some(suspicion) = suspicion {
            let seen = suspicion.seen;
            let (kind, words) = (suspicion.kind.name(), suspicion.reason);
            let gap = self.pace.delay;
            let reason = if suspicion.cleared {
                format!("{words} (after {seen} blocked replies)")
            } else {
                format!("{kind}: {words} ({seen} replies); next request {gap:?} after the last")
            };
            changes.push(Change {
                event: DecisionEvent::Suspect,
                source: DecisionSource::Backoff,
                latency,
                target: None,
                before,
                after: self.pace,
                reason: Cow::Owned(reason),
                alert: true,
            });
        }
    }

    /// The gap between probes of a suspected block; zero without suspicion. If backoff slows down
    /// for the same refusals, that is enough.
    fn probe_gap(&self, backs_off: bool) -> Duration {
        let by_refusals = |suspect: &Suspect| suspect.kind() == Some(Kind::SlowingDoesNotHelp);
        match &self.suspect {
            Some(suspect) if !(backs_off && by_refusals(suspect)) => suspect.delay(),
            _ => Duration::ZERO,
        }
    }

    /// Returns whether answers are suspected to be block pages.
    pub fn is_suspected(&self) -> bool {
        let suspect = self.suspect.as_ref();
        suspect.is_some_and(|suspect| suspect.kind().is_some())
    }

    /// Returns whether an answer that is not a refusal changes only the measured rate.
    pub fn is_calm(&self) -> bool {
        let follows = !matches!(self.adapts, Adapts::No) || self.suspect.is_some();
        let counts = self.slots.is_some() || self.is_bounded();
        let is_calm = self.backoff.as_ref().is_none_or(|it| it.is_calm());
        is_calm && !follows && !counts && self.probing_from.is_none()
    }

    /// Returns whether it learns from how a reply ends.
    pub fn listens(&self) -> bool {
        let adapts = matches!(self.adapts, Adapts::Robust(_) | Adapts::Custom(_));
        adapts || self.suspect.is_some()
    }

    /// Applies what the server or the embedder reports about the quota.
    pub fn feedback(&mut self, feedback: &Feedback, now: Instant) {
        if let (Some(ledger), Some(units)) = (&mut self.quota, feedback.remaining) {
            ledger.remaining(units, now);
        }
        if let Adapts::Custom(strategy) = &mut self.adapts {
            strategy.feedback(feedback, now);
        }
    }

    /// Records that a child scope was refused. Returns whether another child was refused within the
    /// window: then this scope is blamed as well.
    pub fn child_was_refused(&mut self, child: u32, window: Duration, now: Instant) -> bool {
        let another = self
            .child_refused
            .is_some_and(|(other, at)| other != child && now.saturating_since(at) <= window);
        self.child_refused = Some((child, now));
        another
    }

    /// Applies a hold. Returns whether anything changed: the latest of several applies.
    pub fn hold(&mut self, hold: Hold) -> bool {
        if hold.probes {
            let from = self
                .probing_from
                .map_or(hold.until, |from| from.max(hold.until));
            self.probing_from = Some(from);
        }
        if hold.until <= self.held.until {
            return false;
        }
        self.held = hold;
        if let Some(backoff) = &mut self.backoff {
            backoff.held(hold.until);
        }
        true
    }

    /// End of all holds.
    pub fn held_until(&self) -> Instant {
        self.held.until.max(self.configured_hold)
    }

    /// When holds and documented limits permit the next departure.
    pub fn departs_at(&self) -> Instant {
        let free_at = self.held_until().max(self.paid_at());
        match &self.adapts {
            Adapts::Custom(strategy) => free_at.max(strategy.departs_at()),
            _ => free_at,
        }
    }

    /// Bytes were received.
    pub fn count_bytes(&mut self, bytes: u64, now: Instant) {
        if let Some(rate) = &mut self.bytes {
            rate.count(bytes, now);
        }
    }

    /// When those so far are within `bytes_per_second`.
    fn paid_at(&self) -> Instant {
        self.bytes.map_or(Instant::START, |rate| rate.paid_at())
    }

    /// The rule that delays longest, if the gap is over at `gap_over`.
    pub fn slowest(&self, gap_over: impl FnOnce() -> Instant) -> DecisionSource {
        let held_until = self.held_until();
        let (paid_at, gap_over) = (self.paid_at(), gap_over());
        if paid_at > held_until && paid_at > gap_over {
            DecisionSource::Quota
        } else if held_until > Instant::START && held_until > gap_over {
            match self.held.until < held_until {
                true => DecisionSource::User,
                false => self.held.source,
            }
        } else if self.floor > self.pace.delay {
            DecisionSource::Robots
        } else {
            self.delay_source
        }
    }

    /// When the quota has this much left.
    pub fn fits_at(&self, cost: f64, now: Instant) -> Instant {
        let at = |ledger: &Option<Box<Ledger>>, cost| match ledger {
            None => Instant::START,
            Some(ledger) => match ledger.fits_at(cost, now) {
                Fit::Now => Instant::START,
                Fit::At(at) => at,
                // A cost that never fits was refused before it was queued, so the quota was changed
                // since.
                Fit::Never => ledger.blank_at(),
            },
        };
        at(&self.quota, cost).max(at(&self.minute, 1.0))
    }

    /// Returns whether a request of this cost can never be sent.
    pub fn never_fits(&self, cost: f64, now: Instant) -> bool {
        let quota = self.quota.as_ref();
        quota.is_some_and(|ledger| ledger.fits_at(cost, now) == Fit::Never)
    }

    /// Reserves the expected cost of a request.
    pub fn charge(&mut self, cost: f64) -> Charges {
        Charges {
            quota: self.quota.as_mut().map(|ledger| ledger.charge(cost)),
            minute: self.minute.as_mut().map(|ledger| ledger.charge(1.0)),
        }
    }

    /// Records that a request with a reserved cost departed.
    pub fn charged(&mut self, charges: Charges, at: Instant) -> Charges {
        Charges {
            quota: paired(&mut self.quota, charges.quota, |l, c| l.departed(c, at)),
            minute: paired(&mut self.minute, charges.minute, |l, c| l.departed(c, at)),
        }
    }

    /// Reports the time at which a departed request was on the wire.
    pub fn reached_wire(&mut self, charges: Charges, at: Instant) {
        paired(&mut self.quota, charges.quota, |l, c| l.reached_wire(c, at));
        paired(&mut self.minute, charges.minute, |l, c| {
            l.reached_wire(c, at)
        });
    }

    /// Gives back a reserved cost whose request will not depart.
    pub fn give_back(&mut self, charges: Charges, now: Instant) {
        paired(&mut self.quota, charges.quota, |l, c| l.give_back(c, now));
        paired(&mut self.minute, charges.minute, |l, c| l.give_back(c, now));
    }

    /// Settles the charge of an answered request with its actual cost and the remaining quota,
    /// where reported. Returns the units by which it cost more than expected.
    pub fn settle(
        &mut self,
        charges: Charges,
        actual: Option<f64>,
        remaining: Option<f64>,
        now: Instant,
    ) -> f64 {
        paired(&mut self.minute, charges.minute, |l, c| {
            l.settle(c, None, None, now)
        });
        let more = paired(&mut self.quota, charges.quota, |l, c| {
            l.settle(c, actual, remaining, now)
        });
        more.unwrap_or(0.0)
    }

    /// Returns whether a quota or a documented limit applies.
    pub fn is_bounded(&self) -> bool {
        self.quota.is_some() || self.minute.is_some()
    }

    /// Records a departure.
    pub fn departed(&mut self, at: Instant) {
        if let Adapts::Custom(strategy) = &mut self.adapts {
            strategy.sent(at);
        }
    }

    /// When the state equals that of a new scope again; `None` if time alone does not lead there.
    pub fn blank_at(
        &self,
        settings: &ScopeSettings,
        departs_at: Instant,
        last_sent: Option<Instant>,
    ) -> Option<Instant> {
        let mut blank_at = departs_at;
        if let Some(slots) = &self.slots {
            blank_at = blank_at.max(slots.all_free_at());
        }
        for ledger in [&self.quota, &self.minute].into_iter().flatten() {
            blank_at = blank_at.max(ledger.blank_at());
        }
        let used = last_sent.unwrap_or(Instant::START);
        if self.probing_from.is_some() || self.is_suspected() {
            // If the scope were evicted and created again, it would start with more than one
            // request at a time.
            blank_at = blank_at.max(used + SLOW_KEPT);
        }
        match &self.adapts {
            Adapts::No => {}
            Adapts::Scrapy(_) | Adapts::Robust(_) => {
                let auto = settings.autothrottle.as_ref();
                let fresh = auto.map(|auto| autothrottle::start_delay(auto, settings.delay));
                let slower = fresh.is_some_and(|fresh| self.pace.delay > fresh);
                let kept = if slower { SLOW_KEPT } else { FAST_KEPT };
                blank_at = blank_at.max(used + kept);
            }
            Adapts::Custom(strategy) => blank_at = blank_at.max(strategy.forgettable_at()?),
        }
        Some(blank_at)
    }
}

/// A change of the pace by the embedder's strategy; `None` if it is the same.
fn strategy_change(
    refused: bool,
    latency: Option<Duration>,
    before: Pace,
    after: Pace,
) -> Option<Change> {
    let event = match refused {
        true => DecisionEvent::Backoff,
        false => DecisionEvent::Recover,
    };
    (before != after).then_some(Change {
        event,
        source: DecisionSource::User,
        latency,
        target: None,
        before,
        after,
        reason: Cow::Borrowed("the scope's own strategy"),
        alert: false,
    })
}

/// Converts an adjustment of AutoThrottle to a change of the whole pace.
fn adjusted_change(
    adjusted: Adjusted,
    latency: Option<Duration>,
    before: Pace,
    after: Pace,
) -> Change {
    Change {
        event: if adjusted.suspect {
            DecisionEvent::Suspect
        } else {
            DecisionEvent::Autothrottle
        },
        source: DecisionSource::Autothrottle,
        latency,
        target: adjusted.target,
        before,
        after,
        reason: adjusted.reason,
        alert: false,
    }
}

/// A new ledger that replaces another: what was spent stays spent under the new quota.
fn spent_before(mut fresh: Box<Ledger>, old: &Ledger, units: f64, now: Instant) -> Box<Ledger> {
    fresh.remaining((units - old.consumed_units(now)).max(0.0), now);
    fresh
}

/// The reserved or spent cost of a request in one scope.
#[derive(Clone, Copy, Debug)]
pub(in crate::throttle) struct Charges {
    quota: Option<Charge>,
    minute: Option<Charge>,
}

/// Both or neither: a charge belongs to the scope's present ledger, unless the quota was changed
/// since.
fn paired<T>(
    ledger: &mut Option<Box<Ledger>>,
    charge: Option<Charge>,
    act: impl FnOnce(&mut Ledger, Charge) -> T,
) -> Option<T> {
    Some(act(ledger.as_mut()?, charge?))
}

impl Hold {
    const NONE: Hold = Hold {
        until: Instant::START,
        source: DecisionSource::User,
        probes: false,
    };
}

/// `bytes_per_second`: what was not received in this time may be received later. A reply takes a while, and its bytes
/// are counted at its end.
const UNSPENT_MAX: Duration = Duration::from_secs(1);

/// How long after its last use a scope keeps a learned delay that is shorter than a new scope's:
/// evicting it early costs only time.
const FAST_KEPT: Duration = Duration::from_secs(60);
/// The same for a longer one: evicting it early would bring load back to a slow server.
const SLOW_KEPT: Duration = Duration::from_secs(3600);
