//! The slots of a scope, where each keeps a delay of its own.

use std::time::Duration;

use crate::base::time::Instant;

/// A scope's N places for a request in flight, told apart.
#[derive(Clone, Debug)]
pub(super) struct Slots(Box<[Slot]>);

#[derive(Clone, Copy, Debug)]
struct Slot {
    free_at: Instant,
    busy: bool,
}

impl Slots {
    /// That many, all free.
    pub fn new(count: u32) -> Self {
        let free = Slot {
            free_at: Instant::START,
            busy: false,
        };
        Slots(vec![free; count as usize].into_boxed_slice())
    }

    /// Begins where others are: what is taken there is taken here, as far as there are so many.
    pub fn inherit(&mut self, others: &Slots) {
        for (slot, other) in self.0.iter_mut().zip(&others.0) {
            *slot = *other;
        }
    }

    /// When the next one is free by its own delay; `None` while all are taken.
    pub fn free_at(&self) -> Option<Instant> {
        let free = self.0.iter().filter(|slot| !slot.busy);
        free.map(|slot| slot.free_at).min()
    }

    /// Takes the one that is free first; says which, and when it lets its request depart.
    pub fn take(&mut self) -> (u16, Instant) {
        let (index, slot) = self
            .0
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| !slot.busy)
            .min_by_key(|(_, slot)| slot.free_at)
            .expect("a scope releases only while it has a free slot");
        slot.busy = true;
        (index as u16, slot.free_at)
    }

    /// A request of this slot was sent: the slot is free again `delay` later at the earliest.
    pub fn sent(&mut self, slot: u16, at: Instant, delay: Duration) {
        // There may be fewer than there were.
        if let Some(slot) = self.0.get_mut(usize::from(slot)) {
            slot.free_at = at + delay;
        }
    }

    /// Gives one back.
    pub fn give_back(&mut self, slot: u16) {
        if let Some(slot) = self.0.get_mut(usize::from(slot)) {
            slot.busy = false;
        }
    }

    /// When all of them are free by their own delays.
    pub fn all_free_at(&self) -> Instant {
        let free_at = self.0.iter().map(|slot| slot.free_at);
        free_at.max().unwrap_or(Instant::START)
    }
}
