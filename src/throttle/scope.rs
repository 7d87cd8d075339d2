//! One scope: the unit of throttling. Its pace, what is in flight, and when it may send next.

mod rules;
mod slots;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::rules::{Change, Charges, Hold};

use self::rules::Rules;
use smallvec::SmallVec;

use super::backoff::{self, Learned};
use super::decision::Source;
use super::settings::{Jitter, ScopeSettings};
use super::signal::{Ending, Feedback, Signal};
use super::strategy::{Observation, Pace, Strategy};
use crate::base::time::{Instant, nanos};

/// A scope by its interned number. Numbers are used again once a scope is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

/// The scopes that a request names, or that its URL maps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeSet {
    ids: SmallVec<[ScopeId; 4]>,
    ordered: bool,
}

impl ScopeSet {
    /// From the most general to the most specific. The first of doubles counts.
    pub fn ordered(ids: impl IntoIterator<Item = ScopeId>) -> Self {
        let mut set = ScopeSet {
            ids: SmallVec::new(),
            ordered: true,
        };
        for id in ids {
            if !set.ids.contains(&id) {
                set.ids.push(id);
            }
        }
        set
    }

    /// None more specific than another.
    pub fn unordered(ids: impl IntoIterator<Item = ScopeId>) -> Self {
        let mut ids: SmallVec<[ScopeId; 4]> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        ScopeSet {
            ids,
            ordered: false,
        }
    }

    /// The scopes.
    pub fn ids(&self) -> &[ScopeId] {
        &self.ids
    }

    /// Whether the last is the most specific.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }
}

/// The settings of a scope, shared by all that have the same.
#[derive(Debug)]
pub(super) struct Profile {
    pub settings: ScopeSettings,
    /// It bounds what is spent and paces nothing: no refusal is about it.
    pub only_quota: bool,
    /// It came to be by itself (an address's cap, a Crawl-delay): settings do not change it.
    pub is_implicit: bool,
    /// How far rampup may raise the concurrency: what may be in flight in all.
    pub concurrency_max: u32,
}

impl Profile {
    /// These settings, of a scope that paces.
    pub fn of(mut settings: ScopeSettings) -> Self {
        if settings.rampup.is_some() {
            // What rampup looks for is a pace of the scope; slots would hold it back.
            settings.delay_per_slot = Duration::ZERO;
        }
        Profile {
            settings,
            only_quota: false,
            is_implicit: false,
            concurrency_max: u32::MAX,
        }
    }

    /// What backoff goes by, over this pace.
    fn backoff(&self, base: Pace) -> backoff::Rules<'_> {
        backoff::Rules {
            backoff: &self.settings.backoff,
            rampup: self.settings.rampup.as_ref(),
            base,
            concurrency_max: self.concurrency_max,
        }
    }
}

/// No lane and no ticket has this number: the end of a line, or nobody.
pub(super) const NOBODY: u32 = u32::MAX;

/// The state of one scope.
///
/// *Released* requests hold a place of its concurrency. Until they depart they are *prepared*:
/// their connection is being made, or waits for the gap to allow.
///
/// There may be millions: every field here is one that each of them needs. What a rule needs that
/// most scopes never meet is in `rules`. It is one line of the processor's cache: whoever looks at
/// a scope that was not in use lately waits for the memory once.
#[repr(align(64))]
pub(super) struct Scope {
    pub profile: Arc<Profile>,
    rules: Option<Box<Rules>>,
    /// The last departure; `FAR_FUTURE` where there was none.
    last_sent: Instant,
    /// When the wheel will look at this scope; older entries of it on the wheel are void.
    pub wake_at: Instant,
    /// The factor around 1 that was drawn for the gap after the last departure.
    factor: f32,
    pub in_flight: u32,
    /// Lanes that name this scope.
    pub lanes: u32,
    /// The last of the lanes that wait for this scope to release; the line is a ring.
    pub waiting: u32,
    /// The last of the prepared requests that wait for this scope's gap; the line is a ring.
    pub departing: u32,
    /// Its row in the accounts, or `NOBODY`.
    pub account: u32,
    /// Requests that are prepared. More than it can count are as good as that many.
    prepared: u16,
    /// How long a request of this scope usually needs from release to being ready to depart, in
    /// units of `SETUP_UNIT`.
    setup: u16,
    pub queued: Queued,
    /// The first lane in its line waits for the global cap: the scope has an entry in the queue of
    /// those that do, and needs no wake for a release until that entry is taken.
    pub capped: bool,
    /// Answers, up to `MEASURED_AFTER`.
    answered: u8,
}

/// So many answers tell that a scope is used for more than a page or two.
const MEASURED_AFTER: u8 = 4;

/// In which of the engine's queues a scope stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// In none: it is on the wheel, or waits for an exchange to end.
    No,
    /// To be looked at now, before all others: a prepared request of its may depart.
    Departing,
    /// To be looked at now.
    Ready,
}

/// What the learned set-up time is counted in.
const SETUP_UNIT: Duration = Duration::from_micros(50);
/// More than this is no set-up to wait for, but trouble.
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
            waiting: NOBODY,
            departing: NOBODY,
            account: NOBODY,
            prepared: 0,
            setup: 0,
            queued: Queued::No,
            capped: false,
            answered: 0,
            profile,
        }
    }

    /// Follows other settings from now on.
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

    fn settings(&self) -> &ScopeSettings {
        &self.profile.settings
    }

    /// The present pace: delay before jitter, and concurrency. Holds and a third party's minimum
    /// are not in it.
    pub fn pace(&self) -> Pace {
        match &self.rules {
            Some(rules) => rules.pace(),
            None => Pace {
                delay: self.settings().delay,
                concurrency: self.settings().concurrency,
            },
        }
    }

    /// How many may be in flight now.
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

    /// The lane that this scope is being kept for, or `NOBODY`.
    pub fn claimed_by(&self) -> u32 {
        self.rules.as_ref().map_or(NOBODY, |rules| rules.claimed_by)
    }

    /// Keeps the scope for a lane, or for nobody in particular.
    pub fn claim(&mut self, lane: u32) {
        if lane != NOBODY || self.rules.is_some() {
            self.rules_mut().claimed_by = lane;
        }
    }

    /// Whether an answer is a refusal by this scope's settings.
    pub fn refuses(&self, signal: &Signal) -> bool {
        self.settings().backoff.refuses(signal)
    }

    /// Notes that a scope below was refused; whether that is this one's affair, too.
    pub fn note_child(&mut self, child: u32, now: Instant) -> bool {
        let window = self.settings().backoff.window;
        self.rules_mut().note_child(child, window, now)
    }

    /// What an answer changes.
    pub fn answer(
        &mut self,
        observation: &Observation<'_>,
        slot: u16,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        if observation.refused {
            self.rules_mut();
        } else if self.is_worth_measuring() {
            self.rules_mut().measure(observation.sent);
        }
        if let Some(rules) = &mut self.rules {
            rules.answer(&self.profile, observation, slot, now, changes);
        }
    }

    /// Whether the rate that works is to be known when the first refusal comes: where refusals
    /// count, and without that knowledge would cost a gap longer than the present one. Once.
    fn is_worth_measuring(&mut self) -> bool {
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

    /// The limits that refusals taught and that bind still.
    pub fn learned(&self) -> Option<Learned> {
        self.rules.as_ref()?.learned()
    }

    /// Begins with limits that were learned before.
    pub fn recall(&mut self, learned: Learned, now: Instant) {
        let profile = Arc::clone(&self.profile);
        self.rules_mut().recall(&profile, learned, now);
    }

    /// What the end of an exchange changes.
    pub fn ended(
        &mut self,
        signal: &Signal,
        ending: &Ending,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        if let Some(rules) = &mut self.rules {
            rules.ended(&self.profile, signal, ending, now, changes);
        }
    }

    /// Whether an answer that is no refusal leaves it as it is: only its settings bind, or what
    /// refusals taught is over.
    pub fn is_calm(&self) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.is_calm())
    }

    /// Whether it learns from how a reply ends.
    pub fn listens(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.listens())
    }

    /// Whether its answers are suspected not to be what they seem.
    pub fn is_suspected(&self) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|rules| rules.is_suspected())
    }

    /// What is known of the scope beyond status and latency.
    pub fn feedback(&mut self, feedback: &Feedback, now: Instant) {
        if let Some(rules) = &mut self.rules {
            rules.feedback(feedback, now);
        }
    }

    /// Heeds a third party's minimum gap. The larger of several holds.
    pub fn raise_floor(&mut self, floor: Duration) {
        let rules = self.rules_mut();
        rules.floor = rules.floor.max(floor);
    }

    /// Nothing departs before the hold is over. Holds combine by the latest. Whether it changed
    /// anything.
    pub fn hold(&mut self, hold: Hold) -> bool {
        self.rules_mut().hold(hold)
    }

    /// Whether something keeps departures back beyond the pace at `now`.
    pub fn is_held(&self, now: Instant) -> bool {
        self.rules
            .as_ref()
            .is_some_and(|rules| rules.held_until() > now)
    }

    /// The gap after the last departure, as drawn: the largest that any rule asks for.
    pub fn gap(&self) -> Duration {
        let Some(rules) = &self.rules else {
            let settings = self.settings();
            let drawn = stretched(settings.delay, f64::from(self.factor));
            return match settings.concurrency {
                // The only slot's delay is the scope's own.
                1 => drawn.max(stretched(settings.delay_per_slot, f64::from(self.factor))),
                _ => drawn,
            };
        };
        let factor = f64::from(self.factor);
        let pace = rules.pace();
        if pace.delay.is_zero() && self.settings().delay_per_slot.is_zero() {
            // However it is drawn.
            return rules.floor;
        }
        // A pace that changed since the draw may want less randomness than was drawn.
        let jitter = self.jitter();
        let within = factor.clamp(1.0 + jitter.low, 1.0 + jitter.high);
        let drawn = stretched(pace.delay, within);
        let drawn = drawn.max(rules.floor);
        match pace.concurrency {
            1 => drawn.max(stretched(self.settings().delay_per_slot, factor)),
            _ => drawn,
        }
    }

    /// Between which factors the next gap is drawn.
    pub fn jitter(&self) -> Jitter {
        let own = self.settings().jitter;
        let rules = self.rules.as_ref();
        rules
            .and_then(|rules| rules.jitter(&self.profile))
            .unwrap_or(own)
    }

    /// The gap between departures, for planning those that have not drawn theirs.
    fn usual_gap(&self) -> Duration {
        let floor = self
            .rules
            .as_ref()
            .map_or(Duration::ZERO, |rules| rules.floor);
        self.pace().delay.max(floor)
    }

    /// When the next request may depart, by every gap and hold.
    pub fn departs_at(&self) -> Instant {
        self.departs_after().0
    }

    /// The same, and the gap that it leaves after the last departure; none before the first.
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

    /// The rule that the next departure waits for longest.
    pub fn slowest_rule(&self, _now: Instant) -> Source {
        let gap_over = || match self.last_sent {
            Instant::FAR_FUTURE => Instant::START,
            sent => sent + self.gap(),
        };
        match &self.rules {
            Some(rules) => rules.slowest(gap_over),
            None => Source::User,
        }
    }

    /// Whether its concurrency leaves room for one more.
    pub fn has_place(&self) -> bool {
        self.in_flight < self.concurrency()
    }

    /// When a request of this cost may be released; `None` while every place is taken.
    ///
    /// That is ahead of its departure by the usual set-up time, behind those already prepared. A
    /// quota is asked for that very moment, since it is charged then.
    pub fn releases_at(&self, cost: f64, now: Instant) -> Option<Instant> {
        self.has_place()
            .then(|| self.releases_after(self.departs_at(), cost, now))?
    }

    /// Whether it is kept for this lane, or for none.
    pub fn is_free_for(&self, lane: u32) -> bool {
        let claimed_by = self.claimed_by();
        claimed_by == NOBODY || claimed_by == lane
    }

    /// When this lane may release a request of this cost; `None` while every place is taken, or it is
    /// kept for another lane.
    pub fn releases_for(&self, lane: u32, cost: f64, now: Instant) -> Option<Instant> {
        self.is_free_for(lane)
            .then(|| self.releases_at(cost, now))?
    }

    /// The same as [`Scope::releases_at`], of a scope that has a place and whose next departure may be at `departs_at`.
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

    /// When what may be spent has this much left.
    pub fn fits_at(&self, cost: f64, now: Instant) -> Instant {
        let rules = self.rules.as_ref();
        rules.map_or(Instant::START, |rules| rules.fits_at(cost, now))
    }

    /// Whether a request of this cost could never be sent.
    pub fn never_fits(&self, cost: f64, now: Instant) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.never_fits(cost, now))
    }

    /// Reserves what a request is expected to spend; `None` where nothing bounds it.
    pub fn charge(&mut self, cost: f64) -> Option<Charges> {
        let rules = self.rules.as_mut().filter(|rules| rules.is_bounded())?;
        Some(rules.charge(cost))
    }

    /// What was reserved has left.
    pub fn charged(&mut self, charges: Charges, at: Instant) -> Charges {
        match &mut self.rules {
            Some(rules) => rules.charged(charges, at),
            None => charges,
        }
    }

    /// What has left was gone at this moment.
    pub fn gone(&mut self, charges: Charges, at: Instant) {
        if let Some(rules) = &mut self.rules {
            rules.gone(charges, at);
        }
    }

    /// What was reserved will not leave.
    pub fn give_back(&mut self, charges: Charges, now: Instant) {
        if let Some(rules) = &mut self.rules {
            rules.give_back(charges, now);
        }
    }

    /// What has left has its answer. Gives the units by which it cost more than was expected.
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

    /// Takes a place; says which slot, and when that slot lets its request depart.
    pub fn reserve(&mut self) -> (u16, Instant) {
        self.in_flight += 1;
        self.prepared = self.prepared.saturating_add(1);
        match self.rules.as_mut().and_then(|rules| rules.slots.as_mut()) {
            Some(slots) => slots.take(),
            None => (0, Instant::START),
        }
    }

    /// Charges a departure: the next gap runs from `sent`, with a freshly drawn `factor`.
    pub fn depart(&mut self, slot: u16, sent: Instant, factor: f32) {
        self.prepared = self.prepared.saturating_sub(1);
        self.factor = factor;
        if let Some(rules) = &mut self.rules {
            rules.departed(sent);
        }
        self.sent(slot, sent);
    }

    /// The exact moment of a departure that was charged already. It only ever moves later.
    pub fn sent(&mut self, slot: u16, at: Instant) {
        self.follow(at);
        let factor = f64::from(self.factor);
        if let Some(slots) = self.rules.as_mut().and_then(|rules| rules.slots.as_mut()) {
            slots.sent(slot, at, factor, &self.profile);
        }
    }

    /// Gives a place back.
    pub fn free(&mut self, slot: u16, departed: bool) {
        self.in_flight -= 1;
        if !departed {
            self.prepared = self.prepared.saturating_sub(1);
        }
        if let Some(slots) = self.rules.as_mut().and_then(|rules| rules.slots.as_mut()) {
            slots.give_back(slot);
        }
    }

    /// Requests on the wire: released and departed.
    pub fn on_the_wire(&self) -> u32 {
        self.in_flight.saturating_sub(u32::from(self.prepared))
    }

    /// Whether one more may depart: fewer may be in flight now than when places were taken.
    pub fn has_room_on_the_wire(&self) -> bool {
        self.on_the_wire() < self.concurrency()
    }

    /// Learns from one set-up how far ahead of due to release (a running mean over about four).
    pub fn learn_setup(&mut self, took: Duration) {
        let took = nanos(took.min(SETUP_MAX)).div_ceil(nanos(SETUP_UNIT)) as u32;
        self.setup = match self.setup {
            0 => took,
            known => (u32::from(known) * 3 + took) / 4,
        } as u16;
    }

    /// The last departure, if there was one.
    pub fn last_sent(&self) -> Option<Instant> {
        (self.last_sent != Instant::FAR_FUTURE).then_some(self.last_sent)
    }

    /// Counts a departure that happened under other scopes as this one's own.
    pub fn follow(&mut self, sent: Instant) {
        if self.last_sent == Instant::FAR_FUTURE || sent > self.last_sent {
            self.last_sent = sent;
        }
    }

    /// Whether it carries nothing at `now` that a fresh scope would not.
    pub fn is_blank(&self, now: Instant) -> bool {
        self.waiting == NOBODY
            && self.departing == NOBODY
            && self.queued == Queued::No
            && !self.capped
            && self.blank_at().is_some_and(|at| at <= now)
    }

    /// When it will be blank by time alone, if nobody uses it until then.
    pub fn blank_at(&self) -> Option<Instant> {
        if self.lanes > 0 || self.in_flight > 0 {
            return None;
        }
        match &self.rules {
            Some(rules) => rules.blank_at(self.settings(), self.departs_at(), self.last_sent()),
            None => Some(self.departs_at()),
        }
    }
}

/// A delay times a factor, to the nearest nanosecond, in a tenth of the time that `mul_f64` takes:
/// it is asked several times a request, mostly of no delay at all.
fn stretched(delay: Duration, factor: f64) -> Duration {
    if delay.is_zero() {
        return Duration::ZERO;
    }
    Duration::from_nanos((nanos(delay) as f64 * factor + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_of_them_fit_into_64_megabytes_a_cache_line_each() {
        assert_eq!(size_of::<Option<Scope>>(), 64);
        assert_eq!(align_of::<Option<Scope>>(), 64);
    }
}
