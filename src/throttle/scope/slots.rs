//! The slots of a scope when each has its own delay or backoff.

use std::time::Duration;

use super::Profile;
use crate::base::time::Instant;
use crate::throttle::backoff::{Backoff, Learned, Step};
use crate::throttle::strategy::{Observation, Pace};

/// The N slots for requests in flight of a scope, each with its own state.
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// How many times the scope's concurrency was reduced because all slots were at their longest
    /// delay.
    cuts: u8,
    /// Refusals since the last reduction.
    refused: u32,
    /// Time of the last refusal, or of the last reduction that was undone.
    quiet_since: Instant,
}

struct Slot {
    free_at: Instant,
    busy: bool,
    /// Backoff of this slot (`backoff.per_slot`).
    backoff: Option<Box<Backoff>>,
}

impl Slots {
    /// `count` free slots.
    pub fn new(count: u32) -> Self {
        let free = || Slot {
            free_at: Instant::START,
            busy: false,
            backoff: None,
        };
        Slots {
            slots: (0..count).map(|_| free()).collect(),
            cuts: 0,
            refused: 0,
            quiet_since: Instant::START,
        }
    }

    /// Copies the state of other slots, as far as there are as many.
    pub fn inherit(&mut self, others: Slots) {
        for (slot, other) in self.slots.iter_mut().zip(others.slots) {
            *slot = other;
        }
        self.cuts = others.cuts;
        self.refused = others.refused;
        self.quiet_since = others.quiet_since;
    }

    /// Forgets what refusals have shown. The times of departures stay.
    pub fn forget(&mut self) {
        for slot in &mut self.slots {
            slot.backoff = None;
        }
        (self.cuts, self.refused) = (0, 0);
        self.quiet_since = Instant::START;
    }

    /// When the next slot is free by its own delay; `None` while all are taken.
    pub fn free_at(&self) -> Option<Instant> {
        let free = self.slots.iter().filter(|slot| !slot.busy);
        free.map(|slot| slot.free_at).min()
    }

    /// Takes the slot that is free first. Returns its index and the time of departure.
    pub fn take(&mut self) -> (u16, Instant) {
        let (index, slot) = self
            .slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| !slot.busy)
            .min_by_key(|(_, slot)| slot.free_at)
            .expect("a scope releases only while it has a free slot");
        slot.busy = true;
        (index as u16, slot.free_at)
    }

    /// Records a departure in this slot: the slot is free again after its delay times `factor`, at
    /// the earliest.
    pub fn sent(&mut self, slot: u16, at: Instant, factor: f64, profile: &Profile) {
        // The number of slots may have been reduced.
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            let own = profile.settings.delay_per_slot.mul_f64(factor);
            slot.free_at = at + own.max(slot.backoff_delay(profile));
        }
    }

    /// Applies an answer to a request of this slot, if slots back off separately.
    pub fn answer(
        &mut self,
        slot: u16,
        observation: &Observation<'_>,
        profile: &Profile,
        now: Instant,
    ) -> Option<Step> {
        let latency = observation.signal.server_latency;
        let own = self.slots.get_mut(usize::from(slot))?;
        let rules = profile.backoff(base(profile));
        let step = if observation.refused {
            // As in the rules of the whole scope.
            let backoff = own
                .backoff
                .get_or_insert_with(|| Box::new(Backoff::new(observation.sent)));
            backoff.refused(&rules, observation.sent, latency, now)
        } else {
            let backoff = own.backoff.as_mut()?;
            backoff.success(&rules, observation.sent, latency, now)
        };
        own.free_at = own
            .free_at
            .max(observation.sent + own.backoff_delay(profile));
        self.count_refusal(observation.refused && step.is_some(), profile, now);
        step
    }

    /// Reduces the concurrency once all slots are at their longest delay, and restores it by quiet
    /// windows.
    fn count_refusal(&mut self, refused: bool, profile: &Profile, now: Instant) {
        let backoff = &profile.settings.backoff;
        if refused {
            self.quiet_since = now;
            self.refused = self.refused.saturating_add(1);
            let at_most = |slot: &Slot| slot.backoff_delay(profile) >= backoff.max_delay;
            let concurrency = self.concurrency(profile);
            // As many refusals as there are slots are one round.
            if self.slots.iter().all(at_most) && concurrency > 1 && self.refused >= concurrency {
                self.cuts = self.cuts.saturating_add(1);
                self.refused = 0;
            }
        } else if self.cuts > 0 && now.saturating_since(self.quiet_since) >= backoff.window {
            self.cuts -= 1;
            self.quiet_since = now;
        }
    }

    /// Number of slots that may be used at once.
    pub fn concurrency(&self, profile: &Profile) -> u32 {
        let factor = profile.settings.backoff.concurrency_factor;
        let cut = f64::from(profile.settings.concurrency) * factor.powi(i32::from(self.cuts));
        (cut as u32).max(1)
    }

    /// Frees a slot.
    pub fn give_back(&mut self, slot: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            slot.busy = false;
        }
    }

    /// None is free before this time.
    pub fn free_from(&mut self, at: Instant) {
        for slot in &mut self.slots {
            slot.free_at = slot.free_at.max(at);
        }
    }

    /// The limits that slots have learned, with their numbers.
    pub fn learned(&self) -> impl Iterator<Item = (u16, Learned)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(number, slot)| Some((number, slot.backoff.as_ref()?.compact()?)))
    }

    /// Restores what a slot had learned.
    pub fn restore_learned(
        &mut self,
        slot: u16,
        learned: Learned,
        profile: &Profile,
        now: Instant,
    ) {
        let slot = self.slots.get_mut(usize::from(slot));
        if let Some(slot) = slot.filter(|_| profile.settings.backoff.per_slot) {
            slot.backoff = Some(Box::new(Backoff::from_learned(learned, now)));
            slot.free_at = slot.free_at.max(now + slot.backoff_delay(profile));
        }
    }

    /// How many times the scope's concurrency was reduced.
    pub fn cuts(&self) -> u8 {
        self.cuts
    }

    /// Restores such reductions.
    pub fn restore_cuts(&mut self, cuts: u8, now: Instant) {
        self.cuts = cuts;
        self.quiet_since = now;
    }

    /// When all of them are free by their own delays.
    pub fn all_free_at(&self) -> Instant {
        let free_at = self.slots.iter().map(|slot| slot.free_at);
        free_at.max().unwrap_or(Instant::START)
    }
}

impl Slot {
    fn backoff_delay(&self, profile: &Profile) -> Duration {
        let backoff = self.backoff.as_ref();
        backoff.map_or(Duration::ZERO, |backoff| {
            backoff.pace(&profile.backoff(base(profile))).delay
        })
    }
}

/// The base pace of a slot's backoff.
fn base(profile: &Profile) -> Pace {
    Pace {
        delay: profile.settings.delay_per_slot,
        concurrency: 1,
    }
}
