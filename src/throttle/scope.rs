//! One scope: the unit of throttling. Its pace, what is in flight, and when it may send next.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::settings::ScopeSettings;
use super::signal::Signal;
use super::strategy::{Pace, Policy, Strategy};
use crate::base::time::{Instant, nanos};

/// A scope by its interned number. Numbers are used again once a scope is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

/// The settings of a scope, shared by all that have the same.
#[derive(Debug)]
pub(super) struct Profile {
    pub settings: ScopeSettings,
}

/// A line of waiters, by number; the links are kept by whoever waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub first: u32,
    pub last: u32,
}

impl Line {
    /// Nobody: no waiter has this number.
    pub const NOBODY: u32 = u32::MAX;
    pub const EMPTY: Line = Line {
        first: Self::NOBODY,
        last: Self::NOBODY,
    };

    pub fn is_empty(self) -> bool {
        self.first == Self::NOBODY
    }
}

/// The state of one scope.
///
/// *Released* requests hold a place of its concurrency. Until they depart they are *prepared*:
/// their connection is being made, or waits for the gap to allow.
///
/// There may be millions: every field here is one that each of them needs.
pub(super) struct Scope {
    pub profile: Rc<Profile>,
    rare: Option<Box<Rare>>,
    /// The pace's delay, in nanoseconds.
    delay: u64,
    /// The pace's concurrency.
    concurrency: u32,
    /// The last departure; `FAR_FUTURE` where there was none.
    last_sent: Instant,
    /// The factor around 1 that was drawn for the gap after it.
    factor: f32,
    /// How long a request of this scope usually needs from release to being ready to depart.
    setup_us: u32,
    pub in_flight: u32,
    pub prepared: u32,
    /// Lanes that name this scope.
    pub lanes: u32,
    /// The lane that this scope is being kept for, or `NOBODY`.
    pub claimed_by: u32,
    /// Lanes that wait for this scope to release.
    pub waiting: Line,
    /// Prepared requests that wait for this scope's gap.
    pub departing: Line,
    /// When the wheel will look at this scope; older entries of it on the wheel are void.
    pub wake_at: Instant,
    pub queued: Queued,
}

/// What few scopes have.
#[derive(Default)]
struct Rare {
    /// A third party's minimum (Crawl-delay): never undercut, jitter or not.
    floor: Duration,
    /// Nothing departs before (a hold).
    held_until: Instant,
    /// Sends by slot, where `delay_per_slot` and concurrency make slots differ.
    slots: Option<Box<[Slot]>>,
    /// The embedder's own strategy.
    strategy: Option<Box<dyn Strategy>>,
}

/// In which of the engine's queues a scope stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// In none: it is on the wheel, or waits for an exchange to end.
    No,
    /// To be looked at now, before all others: a prepared request of its may depart.
    Departing,
    /// To be looked at now.
    Ready,
    /// To be looked at when the global cap has room.
    Capped,
}

/// One of a scope's N places for a request in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    free_at: Instant,
    busy: bool,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("pace", &self.pace())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Scope {
    pub fn new(profile: Rc<Profile>, mut strategy: Option<Box<dyn Strategy>>) -> Self {
        let settings = &profile.settings;
        let pace = Policy::of(strategy.as_deref_mut(), settings).start(settings);
        let slots =
            (settings.delay_per_slot > Duration::ZERO && settings.concurrency > 1).then(|| {
                let free = Slot {
                    free_at: Instant::START,
                    busy: false,
                };
                vec![free; settings.concurrency as usize].into_boxed_slice()
            });
        let rare = (slots.is_some() || strategy.is_some()).then(|| {
            Box::new(Rare {
                slots,
                strategy,
                ..Rare::default()
            })
        });
        Scope {
            rare,
            delay: nanos(pace.delay),
            concurrency: pace.concurrency,
            last_sent: Instant::FAR_FUTURE,
            factor: 1.0,
            setup_us: 0,
            in_flight: 0,
            prepared: 0,
            lanes: 0,
            claimed_by: Line::NOBODY,
            waiting: Line::EMPTY,
            departing: Line::EMPTY,
            wake_at: Instant::FAR_FUTURE,
            queued: Queued::No,
            profile,
        }
    }

    /// The present pace: delay before jitter, and concurrency.
    pub fn pace(&self) -> Pace {
        Pace {
            delay: Duration::from_nanos(self.delay),
            concurrency: self.concurrency,
        }
    }

    /// Lets the policy change the pace after an answer. Whether it did.
    pub fn answer(&mut self, signal: &Signal, now: Instant) -> bool {
        let old = self.pace();
        let settings = &self.profile.settings;
        let strategy = self.rare.as_mut().and_then(|rare| rare.strategy.as_mut());
        let policy = Policy::of(strategy.map(|strategy| &mut **strategy), settings);
        let new = policy.answer(settings, old, signal, now);
        self.delay = nanos(new.delay);
        self.concurrency = new.concurrency.max(1);
        self.pace() != old
    }

    /// Heeds a third party's minimum gap. The larger of several holds.
    pub fn raise_floor(&mut self, floor: Duration) {
        let rare = self.rare.get_or_insert_default();
        rare.floor = rare.floor.max(floor);
    }

    /// Nothing departs before `until`. Holds combine by the latest.
    pub fn hold(&mut self, until: Instant) {
        let rare = self.rare.get_or_insert_default();
        rare.held_until = rare.held_until.max(until);
    }

    fn floor(&self) -> Duration {
        self.rare.as_ref().map_or(Duration::ZERO, |rare| rare.floor)
    }

    fn held_until(&self) -> Instant {
        let rare = self.rare.as_ref();
        rare.map_or(Instant::START, |rare| rare.held_until)
    }

    fn slots(&self) -> Option<&[Slot]> {
        self.rare.as_ref()?.slots.as_deref()
    }

    fn slots_mut(&mut self) -> Option<&mut [Slot]> {
        self.rare.as_mut()?.slots.as_deref_mut()
    }

    /// The gap after the last departure, as drawn: the largest that any rule asks for.
    pub fn gap(&self) -> Duration {
        let factor = f64::from(self.factor);
        let drawn = self.pace().delay.mul_f64(factor).max(self.floor());
        if self.concurrency == 1 {
            // The only slot's delay is the scope's own.
            drawn.max(self.profile.settings.delay_per_slot.mul_f64(factor))
        } else {
            drawn
        }
    }

    /// The usual gap: for planning departures that have not drawn theirs.
    fn usual_gap(&self) -> Duration {
        self.pace().delay.max(self.floor())
    }

    /// When the next request may depart, by every gap and hold.
    pub fn departs_at(&self) -> Instant {
        if self.last_sent == Instant::FAR_FUTURE {
            self.held_until()
        } else {
            (self.last_sent + self.gap()).max(self.held_until())
        }
    }

    /// Whether its concurrency leaves room for one more.
    pub fn has_place(&self) -> bool {
        self.in_flight < self.concurrency
    }

    /// When the next request may be released; `None` while every place is taken.
    ///
    /// That is ahead of its departure by the usual set-up time, behind those already prepared.
    pub fn releases_at(&self) -> Option<Instant> {
        if !self.has_place() {
            return None;
        }
        let mut departs = self.departs_at() + self.usual_gap() * self.prepared;
        if let Some(slots) = self.slots() {
            let free_at = slots.iter().filter(|slot| !slot.busy).map(|s| s.free_at);
            departs = departs.max(free_at.min()?);
        }
        Some(departs - Duration::from_micros(u64::from(self.setup_us)))
    }

    /// Takes a place; says which slot, and when that slot lets its request depart.
    pub fn reserve(&mut self) -> (u16, Instant) {
        self.in_flight += 1;
        self.prepared += 1;
        let Some(slots) = self.slots_mut() else {
            return (0, Instant::START);
        };
        let (index, slot) = slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| !slot.busy)
            .min_by_key(|(_, slot)| slot.free_at)
            .expect("a scope releases only while it has a free slot");
        slot.busy = true;
        (index as u16, slot.free_at)
    }

    /// Charges a departure: the next gap runs from `sent`, with a freshly drawn `factor`.
    pub fn depart(&mut self, slot: u16, sent: Instant, factor: f32) {
        self.prepared -= 1;
        self.factor = factor;
        self.sent(slot, sent);
    }

    /// The exact moment of a departure that was charged already. It only ever moves later.
    pub fn sent(&mut self, slot: u16, at: Instant) {
        if self.last_sent == Instant::FAR_FUTURE || at > self.last_sent {
            self.last_sent = at;
        }
        let delay = self.profile.settings.delay_per_slot;
        let factor = f64::from(self.factor);
        if let Some(slots) = self.slots_mut() {
            slots[usize::from(slot)].free_at = at + delay.mul_f64(factor);
        }
    }

    /// Gives a place back.
    pub fn free(&mut self, slot: u16, departed: bool) {
        self.in_flight -= 1;
        if !departed {
            self.prepared -= 1;
        }
        if let Some(slots) = self.slots_mut() {
            slots[usize::from(slot)].busy = false;
        }
    }

    /// Learns from one set-up how far ahead of due to release (a running mean over about four).
    pub fn learn_setup(&mut self, took: Duration) {
        // More than this is no set-up to wait for, but trouble.
        let took = (nanos(took) / 1000).min(2_000_000) as u32;
        self.setup_us = if self.setup_us == 0 {
            took
        } else {
            ((u64::from(self.setup_us) * 3 + u64::from(took)) / 4) as u32
        };
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
        self.waiting.is_empty()
            && self.departing.is_empty()
            && self.queued == Queued::No
            && self.blank_at().is_some_and(|at| at <= now)
    }

    /// When it will be blank by time alone, if nobody uses it until then.
    pub fn blank_at(&self) -> Option<Instant> {
        let rare = self.rare.as_ref();
        let learns = self.profile.settings.autothrottle.is_some()
            || rare.is_some_and(|rare| rare.strategy.is_some());
        if self.lanes > 0 || self.in_flight > 0 || learns {
            return None;
        }
        let slots = self.slots().into_iter().flatten();
        Some(
            slots
                .map(|slot| slot.free_at)
                .fold(self.departs_at(), Instant::max),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_of_them_fit_into_88_megabytes() {
        assert!(size_of::<Option<Scope>>() <= 88);
    }
}
