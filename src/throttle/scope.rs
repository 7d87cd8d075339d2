//! The state of one scope, the unit of throttling: its pace, its requests in flight, and when it
//! may send next.

mod rules;
mod slots;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::rules::SavedSummary;
pub(super) use self::rules::{Change, Charges, Hold, Restoring, SavedRules};

use self::rules::Rules;
use super::backoff::{self, Learned};
use super::decision::DecisionSource;
use super::settings::{Jitter, ScopeSettings};
use super::signal::{ExchangeEnd, Feedback, Signal};
use super::strategy::{Observation, Pace, Strategy};
use crate::base::time::{Instant, nanos};

/// The settings of a scope, shared by all scopes with the same settings.
#[derive(Debug)]
pub(super) struct Profile {
    pub settings: ScopeSettings,
    /// It only has a quota and no pace, so no refusal concerns it.
    pub only_quota: bool,
    /// It was created automatically (an address's cap, a Crawl-delay): settings do not change it.
    pub is_implicit: bool,
    /// Maximum concurrency for rampup: the global cap.
    pub concurrency_max: u32,
    /// `hold_until`; [`Instant::START`] if nothing is held.
    pub held_until: Instant,
}

impl Profile {
    /// These settings, of a scope with a pace.
    pub fn of(mut settings: ScopeSettings) -> Self {
        if settings.rampup.is_some() {
            // Rampup searches the pace of the whole scope; a delay per slot would limit it.
            settings.delay_per_slot = Duration::ZERO;
        }
        Profile {
            settings,
            only_quota: false,
            is_implicit: false,
            concurrency_max: u32::MAX,
            held_until: Instant::START,
        }
    }

    /// The inputs of backoff at this base pace.
    fn backoff(&self, base: Pace) -> backoff::Rules<'_> {
        backoff::Rules {
            backoff: &self.settings.backoff,
            rampup: self.settings.rampup.as_ref(),
            base,
            concurrency_max: self.concurrency_max,
        }
    }
}

/// Marks the end of a line, or the absence of a lane or ticket; no lane and no ticket has this
/// number.
pub(super) const NO_INDEX: u32 = u32::MAX;

/// In place of the number of a priority: the scope's first lane does not wait for the global cap.
pub(super) const NOT_CAPPED: u8 = u8::MAX;

/// The state of one scope.
///
/// *Released* requests hold a slot of its concurrency. Until they depart they are *prepared*: their
/// connection is being set up, or they wait for the gap.
///
/// There may be millions of scopes, so only fields that every scope needs are here; the state of
/// rules that most scopes never use is in `rules`. The struct is one cache line, so that access to
/// an idle scope costs one cache miss.
#[repr(align(64))]
pub(super) struct Scope {
    pub profile: Arc<Profile>,
    rules: Option<Box<Rules>>,
    /// Time of the last departure; `FAR_FUTURE` before the first.
    last_sent: Instant,
    /// When the wheel will check this scope; older wheel entries of it are void.
    pub wake_at: Instant,
    /// Jitter factor, drawn for the gap after the last departure.
    factor: f32,
    pub in_flight: u32,
    /// Number of lanes with this scope, and of its replies whose verdict is to come.
    pub lanes: u32,
    /// The last lane in the line that waits for this scope to release; the line is a ring.
    pub waiting: u32,
    /// The last prepared request in the line that waits for this scope's gap; the line is a ring.
    pub departing: u32,
    /// Its row in the accounts, or `NO_INDEX`.
    pub account: u32,
    /// Number of prepared requests, saturating.
    prepared: u16,
    /// Usual time of a request of this scope from release to being ready to depart, in units of
    /// `SETUP_UNIT`.
    setup: u16,
    pub queued: Queued,
    /// The first lane in its line waits for the global cap: the scope has an entry in the queue of
    /// these, under the priority of this number, and needs no wake-up for a release until that entry
    /// is taken. Otherwise `NOT_CAPPED`.
    pub capped: u8,
    /// Number of answers, up to `MEASURED_AFTER`.
    answered: u8,
    pub unsaved: Unsaved,
}

/// Whether the state of a scope changed since it was saved for a later run of the crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsaved {
    /// It did not.
    No,
    /// It did: it is saved with the next commit.
    Yes,
    /// It has a new hold: it is saved in this turn.
    Urgent,
}

/// After this many answers a scope is used for more than a page or two.
const MEASURED_AFTER: u8 = 4;

/// The engine's queue that a scope is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// None: it is on the wheel, or waits for an exchange to end.
    No,
    /// `departing`: a prepared request of it may depart; checked first.
    Departing,
    /// `ready`: to be checked now.
    Ready,
}

/// Unit of the learned set-up time.
const SETUP_UNIT: Duration = Duration::from_micros(50);
/// Upper bound of the learned set-up time; longer ones are failures and not worth waiting for.
const SETUP_MAX: Duration = Duration::from_secs(2);

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("pace", &self.pace())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Scope {
    pub fn new(profile: Arc<Profile>, strategy: Option<Box<dyn Strategy>>) -> Self {
        Scope {
            rules: Rules::of(&profile, strategy).map(Box::new),
            last_sent: Instant::FAR_FUTURE,
            wake_at: Instant::FAR_FUTURE,
            factor: 1.0,
            in_flight: 0,
            lanes: 0,
            waiting: NO_INDEX,
            departing: NO_INDEX,
            account: NO_INDEX,
            prepared: 0,
            setup: 0,
            queued: Queued::No,
            capped: NOT_CAPPED,
            answered: 0,
            unsaved: Unsaved::No,
            profile,
        }
    }

    /// Applies other settings from now on.
    pub fn change(
        &mut self,
        profile: Arc<Profile>,
        strategy: Option<Box<dyn Strategy>>,
        now: Instant,
    ) {
        let fresh = Rules::of(&profile, strategy);
        self.rules = match (fresh, self.rules.take()) {
            (None, None) => None,
            (fresh, old) => {
                let mut fresh = fresh.unwrap_or_else(|| Rules::plain(&profile.settings));
                if let Some(old) = old {
                    fresh.inherit(*old, &self.profile, &profile, now);
                }
                Some(Box::new(fresh))
            }
        };
        self.profile = profile;
    }

    /// Forgets what was learned from replies. Holds, minimum gaps and quotas stay.
    pub fn forget(&mut self, strategy: Option<Box<dyn Strategy>>) {
        self.answered = 0;
        if let Some(rules) = &mut self.rules {
            let fresh = Rules::of(&self.profile, strategy);
            let fresh = fresh.unwrap_or_else(|| Rules::plain(&self.profile.settings));
            rules.forget(fresh, &self.profile);
        }
    }

    fn settings(&self) -> &ScopeSettings {
        &self.profile.settings
    }

    /// The present pace: delay before jitter, and concurrency. Holds and a third party's minimum
    /// delay are not included.
    pub fn pace(&self) -> Pace {
        match &self.rules {
            Some(rules) => rules.pace(),
            None => Pace {
                delay: self.settings().delay,
                concurrency: self.settings().concurrency,
            },
        }
    }

    /// Maximum number of requests in flight at present.
    fn concurrency(&self) -> u32 {
        match &self.rules {
            Some(rules) => rules.concurrency(),
            None => self.settings().concurrency,
        }
    }

    fn rules_mut(&mut self) -> &mut Rules {
        let settings = &self.profile.settings;
        self.rules
            .get_or_insert_with(|| Box::new(Rules::plain(settings)))
    }

    /// Whether it has state beyond its settings: only then it may have learned something.
    pub fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// The lane that has claimed this scope, or `NO_INDEX`.
    pub fn claimed_by(&self) -> u32 {
        self.rules
            .as_ref()
            .map_or(NO_INDEX, |rules| rules.claimed_by)
    }

    /// Claims the scope for a lane, or ends the claim with `NO_INDEX`.
    pub fn claim(&mut self, lane: u32) {
        if lane != NO_INDEX || self.rules.is_some() {
            self.rules_mut().claimed_by = lane;
        }
    }

    /// Returns whether an answer is a refusal by this scope's settings.
    pub fn refuses(&self, signal: &Signal) -> bool {
        self.settings().backoff.refuses(signal)
    }

    /// Records that a child scope was refused. Returns whether this scope is to be blamed as well.
    pub fn child_was_refused(&mut self, child: u32, now: Instant) -> bool {
        let window = self.settings().backoff.window;
        self.rules_mut().child_was_refused(child, window, now)
    }

    /// Applies an answer.
    pub fn answer(
        &mut self,
        observation: &Observation<'_>,
        slot: u16,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        if observation.refused {
            self.rules_mut();
        } else if self.should_measure() {
            self.rules_mut().measure(observation.sent);
        }
        if let Some(rules) = &mut self.rules {
            rules.answer(&self.profile, observation, slot, now, changes);
        }
    }

    /// Applies a head that is no refusal, and whose body may be one.
    pub fn answer_open(
        &mut self,
        observation: &Observation<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        if self.should_measure() {
            self.rules_mut().measure(observation.sent);
        }
        if let Some(rules) = &mut self.rules {
            rules.adapt(&self.profile, observation, now, changes);
        }
    }

    /// Applies that its body was none either.
    pub fn accept(
        &mut self,
        observation: &Observation<'_>,
        slot: u16,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        if let Some(rules) = &mut self.rules {
            rules.accept(&self.profile, observation, slot, now, changes);
        }
    }

    /// Returns, once, whether to measure the working rate for the first refusal: if refusals count,
    /// and the fallback without a known rate would be a gap longer than the present one.
    fn should_measure(&mut self) -> bool {
        if self.answered == MEASURED_AFTER {
            return false;
        }
        let backoff = &self.profile.settings.backoff;
        if !backoff.enabled {
            return false;
        }
        self.answered += 1;
        self.answered == MEASURED_AFTER && self.pace().delay < backoff.min_delay
    }

    /// The limits learned from refusals that still apply.
    pub fn learned(&self) -> Option<Learned> {
        self.rules.as_ref()?.learned()
    }

    /// Restores limits that were learned before.
    pub fn restore_learned(&mut self, learned: Learned, now: Instant) {
        let profile = Arc::clone(&self.profile);
        self.rules_mut().restore_learned(&profile, learned, now);
    }

    /// Appends what a later run of the crawl continues with; nothing if that is a new scope.
    pub fn save(&self, now: Instant, out: &mut Vec<u8>) {
        if let Some(rules) = &self.rules {
            rules.save(&self.profile, now, out);
        }
    }

    /// Continues with what an earlier run saved.
    pub fn restore(&mut self, saved: &SavedRules, restoring: Restoring) {
        let profile = Arc::clone(&self.profile);
        self.rules_mut().restore(&profile, saved, restoring);
    }

    /// Makes a new scope count the sends until then that are not known: an earlier run may have sent until
    /// then.
    pub fn begin_after(&mut self, from: Instant, costs_known: bool) {
        if let Some(rules) = &mut self.rules {
            rules.begin_after(&self.profile, from, costs_known);
        }
    }

    /// Applies the end of an exchange.
    pub fn ended(
        &mut self,
        signal: &Signal,
        ending: &ExchangeEnd,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        if let Some(rules) = &mut self.rules {
            rules.ended(&self.profile, signal, ending, now, changes);
        }
    }

    /// Returns whether an answer that is not a refusal changes nothing: only the settings determine
    /// the pace, or the effects of refusals are over.
    pub fn is_calm(&self) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.is_calm())
    }

    /// Returns whether each send changes what a later run continues with.
    pub fn counts_sends(&self) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|rules| rules.counts_sends())
    }

    /// Returns whether it learns from how a reply ends.
    pub fn listens(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.listens())
    }

    /// Returns whether its answers are suspected to be block pages.
    pub fn is_suspected(&self) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|rules| rules.is_suspected())
    }

    /// Applies feedback beyond status and latency.
    pub fn feedback(&mut self, feedback: &Feedback, now: Instant) {
        if let Some(rules) = &mut self.rules {
            rules.feedback(feedback, now);
        }
    }

    /// Applies a third party's minimum gap. The largest of several applies.
    pub fn raise_floor(&mut self, floor: Duration) {
        let rules = self.rules_mut();
        rules.floor = rules.floor.max(floor);
    }

    /// Applies a hold: nothing departs before its end. The latest of several applies. Returns
    /// whether anything changed.
    pub fn hold(&mut self, hold: Hold) -> bool {
        self.rules_mut().hold(hold)
    }

    /// Returns whether departures at `now` are delayed by more than the pace.
    pub fn is_held(&self, now: Instant) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|rules| rules.held_until() > now)
    }

    /// The gap after the last departure, with its jitter: the largest that any rule asks for.
    #[inline]
    pub fn gap(&self) -> Duration {
        let (delay, floor) = match &self.rules {
            Some(rules) => (rules.pace().delay, rules.floor),
            None => (self.settings().delay, Duration::ZERO),
        };
        // Independent of jitter.
        if delay.is_zero() && self.settings().delay_per_slot.is_zero() {
            return floor;
        }
        self.drawn_gap()
    }

    /// The same where there is a delay.
    fn drawn_gap(&self) -> Duration {
        let factor = f64::from(self.factor);
        // If the pace changed since the draw, the drawn factor may exceed the new jitter.
        let jitter = self.jitter();
        let within = factor.clamp(1.0 + jitter.low, 1.0 + jitter.high);
        let Some(rules) = &self.rules else {
            let settings = self.settings();
            let drawn = scaled(settings.delay, within);
            return match settings.concurrency {
                // With one slot, the slot's delay is the scope's own.
                1 => drawn.max(scaled(settings.delay_per_slot, within)),
                _ => drawn,
            };
        };
        let pace = rules.pace();
        let drawn = scaled(pace.delay, within);
        let drawn = drawn.max(rules.floor);
        match pace.concurrency {
            1 => drawn.max(scaled(self.settings().delay_per_slot, within)),
            _ => drawn,
        }
    }

    /// Bytes of a reply were received.
    pub fn count_bytes(&mut self, bytes: u64, now: Instant) {
        if let Some(rules) = &mut self.rules {
            rules.count_bytes(bytes, now);
        }
    }

    /// The range of factors from which the next gap is drawn.
    pub fn jitter(&self) -> Jitter {
        let own = self.settings().jitter;
        let rules = self.rules.as_ref();
        rules
            .and_then(|rules| rules.jitter(&self.profile))
            .unwrap_or(own)
    }

    /// The usual gap, for planning departures whose jitter is not drawn yet.
    pub fn usual_gap(&self) -> Duration {
        let floor = self
            .rules
            .as_ref()
            .map_or(Duration::ZERO, |rules| rules.floor);
        self.pace().delay.max(floor)
    }

    /// When the next request may depart, by every gap and hold.
    #[inline]
    pub fn departs_at(&self) -> Instant {
        self.departs_after().0
    }

    /// The same, with the resulting gap after the last departure; zero before the first.
    #[inline]
    pub fn departs_after(&self) -> (Instant, Duration) {
        let (gap_over, gap) = match self.last_sent {
            Instant::FAR_FUTURE => (Instant::START, Duration::ZERO),
            sent => {
                let gap = self.gap();
                (sent + gap, gap)
            }
        };
        match &self.rules {
            Some(rules) => (gap_over.max(rules.departs_at()), gap),
            None => (gap_over, gap),
        }
    }

    /// The rule that delays the next departure longest.
    pub fn slowest_rule(&self, _now: Instant) -> DecisionSource {
        let gap_over = || match self.last_sent {
            Instant::FAR_FUTURE => Instant::START,
            sent => sent + self.gap(),
        };
        match &self.rules {
            Some(rules) => rules.slowest(gap_over),
            None => DecisionSource::User,
        }
    }

    /// Returns whether its concurrency permits one more request.
    pub fn has_free_slot(&self) -> bool {
        self.in_flight < self.concurrency()
    }

    /// When a request of this cost may be released; `None` while all slots are taken.
    ///
    /// That is earlier than its departure by the usual set-up time, after the requests already
    /// prepared. The quota is checked for the time of release, since it is charged then.
    pub fn releases_at(&self, cost: f64, now: Instant) -> Option<Instant> {
        self.has_free_slot()
            .then(|| self.releases_after(self.departs_at(), cost, now))?
    }

    /// Returns whether it is claimed by this lane or by none.
    pub fn is_free_for(&self, lane: u32) -> bool {
        let claimed_by = self.claimed_by();
        claimed_by == NO_INDEX || claimed_by == lane
    }

    /// When this lane may release a request of this cost; `None` while all slots are taken or
    /// another lane has claimed the scope.
    pub fn releases_for(&self, lane: u32, cost: f64, now: Instant) -> Option<Instant> {
        self.is_free_for(lane)
            .then(|| self.releases_at(cost, now))?
    }

    /// The same as [`Scope::releases_at`], for a scope with a free slot whose next departure may be
    /// at `departs_at`.
    #[inline]
    pub fn releases_after(&self, departs_at: Instant, cost: f64, now: Instant) -> Option<Instant> {
        let mut departs = departs_at;
        if self.prepared > 0 {
            departs += self.usual_gap() * u32::from(self.prepared);
        }
        if let Some(slots) = self.rules.as_ref().and_then(|rules| rules.slots.as_ref()) {
            departs = departs.max(slots.free_at()?);
        }
        Some((departs - self.setup()).max(self.fits_at(cost, now)))
    }

    /// When the quota has this much left.
    #[inline]
    pub fn fits_at(&self, cost: f64, now: Instant) -> Instant {
        let rules = self.rules.as_ref();
        rules.map_or(Instant::START, |rules| rules.fits_at(cost, now))
    }

    /// Returns whether a request of this cost can never be sent.
    pub fn never_fits(&self, cost: f64, now: Instant) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.never_fits(cost, now))
    }

    /// Reserves the expected cost of a request; `None` without a quota.
    pub fn charge(&mut self, cost: f64) -> Option<Charges> {
        let rules = self.rules.as_mut().filter(|rules| rules.is_bounded())?;
        Some(rules.charge(cost))
    }

    /// Records that a request with a reserved cost departed.
    pub fn charged(&mut self, charges: Charges, at: Instant) -> Charges {
        match &mut self.rules {
            Some(rules) => rules.charged(charges, at),
            None => charges,
        }
    }

    /// Reports the time at which a departed request was on the wire.
    pub fn reached_wire(&mut self, charges: Charges, at: Instant) {
        if let Some(rules) = &mut self.rules {
            rules.reached_wire(charges, at);
        }
    }

    /// Gives back a reserved cost whose request will not depart.
    pub fn give_back(&mut self, charges: Charges, now: Instant) {
        if let Some(rules) = &mut self.rules {
            rules.give_back(charges, now);
        }
    }

    /// Settles the charge of an answered request. Returns the units by which it cost more than
    /// expected.
    pub fn settle(
        &mut self,
        charges: Charges,
        actual: Option<f64>,
        remaining: Option<f64>,
        now: Instant,
    ) -> f64 {
        match &mut self.rules {
            Some(rules) => rules.settle(charges, actual, remaining, now),
            None => 0.0,
        }
    }

    fn setup(&self) -> Duration {
        SETUP_UNIT * u32::from(self.setup)
    }

    /// Takes a slot. Returns its index and the time of departure.
    pub fn reserve(&mut self) -> (u16, Instant) {
        self.in_flight += 1;
        self.prepared = self.prepared.saturating_add(1);
        match self.rules.as_mut().and_then(|rules| rules.slots.as_mut()) {
            Some(slots) => slots.take(),
            None => (0, Instant::START),
        }
    }

    /// Charges a departure: the next gap runs from `sent`, with a newly drawn `factor`.
    pub fn depart(&mut self, slot: u16, sent: Instant, factor: f32) {
        self.prepared = self.prepared.saturating_sub(1);
        self.factor = factor;
        if let Some(rules) = &mut self.rules {
            rules.departed(sent);
        }
        self.sent(slot, sent);
    }

    /// Sets the exact time of a departure that was charged already. Only moves it later.
    pub fn sent(&mut self, slot: u16, at: Instant) {
        self.follow(at);
        let factor = f64::from(self.factor);
        if let Some(slots) = self.rules.as_mut().and_then(|rules| rules.slots.as_mut()) {
            slots.sent(slot, at, factor, &self.profile);
        }
    }

    /// Frees a slot.
    pub fn free(&mut self, slot: u16, departed: bool) {
        self.in_flight -= 1;
        if !departed {
            self.prepared = self.prepared.saturating_sub(1);
        }
        if let Some(slots) = self.rules.as_mut().and_then(|rules| rules.slots.as_mut()) {
            slots.give_back(slot);
        }
    }

    /// Number of requests on the wire: released and departed.
    pub fn on_the_wire(&self) -> u32 {
        self.in_flight.saturating_sub(u32::from(self.prepared))
    }

    /// Returns whether one more may depart: the concurrency may be lower now than when slots were
    /// taken.
    pub fn may_depart_more(&self) -> bool {
        self.on_the_wire() < self.concurrency()
    }

    /// Learns from one set-up how early to release (a running mean over about four).
    pub fn learn_setup(&mut self, took: Duration) {
        let took = nanos(took.min(SETUP_MAX)).div_ceil(nanos(SETUP_UNIT)) as u32;
        self.setup = match self.setup {
            0 => took,
            known => (u32::from(known) * 3 + took) / 4,
        } as u16;
    }

    /// Time of the last departure, if any.
    pub fn last_sent(&self) -> Option<Instant> {
        (self.last_sent != Instant::FAR_FUTURE).then_some(self.last_sent)
    }

    /// Counts a departure under other scopes as one of this scope.
    pub fn follow(&mut self, sent: Instant) {
        if self.last_sent == Instant::FAR_FUTURE || sent > self.last_sent {
            self.last_sent = sent;
        }
    }

    /// Returns whether its first lane waits for the global cap.
    pub fn is_capped(&self) -> bool {
        self.capped != NOT_CAPPED
    }

    /// Returns whether its state at `now` equals that of a new scope.
    pub fn is_blank(&self, now: Instant) -> bool {
        self.waiting == NO_INDEX
            && self.departing == NO_INDEX
            && self.queued == Queued::No
            && !self.is_capped()
            && self.blank_at().is_some_and(|at| at <= now)
    }

    /// When time alone will make it blank, if it is not used until then.
    pub fn blank_at(&self) -> Option<Instant> {
        if self.lanes > 0 || self.in_flight > 0 {
            return None;
        }
        self.spent_at()
    }

    /// Returns whether its sends and learned state have no effect at `now`.
    pub fn is_spent(&self, now: Instant) -> bool {
        self.spent_at().is_some_and(|at| at <= now)
    }

    /// When they have none any more, if time alone determines that.
    fn spent_at(&self) -> Option<Instant> {
        match &self.rules {
            Some(rules) => rules.blank_at(self.settings(), self.departs_at(), self.last_sent()),
            None => Some(self.departs_at()),
        }
    }
}

/// A delay times a factor, rounded to the nearest nanosecond. Ten times as fast as `mul_f64`: it is
/// called several times per request, mostly with a delay of zero.
fn scaled(delay: Duration, factor: f64) -> Duration {
    if delay.is_zero() {
        return Duration::ZERO;
    }
    Duration::from_nanos((nanos(delay) as f64 * factor + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_scopes_fit_into_64_megabytes_a_cache_line_each() {
        assert_eq!(size_of::<Option<Scope>>(), 64);
        assert_eq!(align_of::<Option<Scope>>(), 64);
    }
}
