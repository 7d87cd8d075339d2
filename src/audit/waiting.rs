//! Puts departures and holds in the order of their times. Lines are in the order in which attempts finished.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::names::NameId;
use super::time::Time;

/// What happened at a time.
#[derive(Debug)]
pub struct Event {
    pub at: Time,
    pub what: What,
}

/// What happened.
#[derive(Debug)]
pub enum What {
    Departure(Departure),
    Hold(Hold),
}

/// A request departed.
#[derive(Debug)]
pub struct Departure {
    pub id: u64,
    /// When throttling allowed it.
    pub allowed_at: Time,
    /// When it ended.
    pub end: Time,
    pub scopes: SmallVec<[NameId; 2]>,
    pub origin: NameId,
    /// The least time between departures to its origin; 0 for none.
    pub crawl_delay: u64,
    /// One request to its origin at a time.
    pub is_alone: bool,
}

/// A scope is held.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub scope: NameId,
    pub from: Time,
    pub until: Time,
    /// By rate-limit fields; else by Retry-After.
    pub by_rate_limit: bool,
    /// The attempt whose reply asked for it.
    pub by: u64,
}

/// Events that wait for earlier ones, up to a bound.
#[derive(Debug)]
pub struct Waiting {
    events: BinaryHeap<Reverse<Event>>,
    max: usize,
    judged_until: Time,
}

impl Waiting {
    /// At most `max` events wait.
    pub fn new(max: usize) -> Self {
        Waiting {
            events: BinaryHeap::new(),
            max,
            judged_until: Time(0),
        }
    }

    /// Adds an event; returns false if later ones were taken before.
    pub fn add(&mut self, event: Event) -> bool {
        let is_late = event.at < self.judged_until;
        if !is_late {
            self.events.push(Reverse(event));
        }
        !is_late
    }

    /// The next event in order, if more than `max` wait.
    pub fn poll(&mut self) -> Option<Event> {
        (self.events.len() > self.max).then(|| self.take())?
    }

    /// The next event in order.
    pub fn take(&mut self) -> Option<Event> {
        let Reverse(event) = self.events.pop()?;
        self.judged_until = event.at;
        Some(event)
    }
}

impl Event {
    fn key(&self) -> (Time, bool, u64) {
        match &self.what {
            What::Hold(hold) => (self.at, false, hold.by),
            What::Departure(departure) => (self.at, true, departure.id),
        }
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}
