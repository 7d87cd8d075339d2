//! Attempts between their release and their end.

use crate::base::ids::LaneId;
use crate::base::slab::{Key, Slab};
use crate::base::time::Instant;
use crate::crawl::classifier::BodyStart;
use crate::crawl::network::origins::Origin;
use crate::fetch::exchange::Exchange;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::throttle::decision::Decision;
use crate::throttle::engine::TicketId;
use crate::throttle::signal::Signal;

/// The attempts between their release and their end, by key and by ticket.
#[derive(Default)]
pub struct Flights {
    slab: Slab<Flight>,
    /// By the slot of their tickets.
    of_ticket: Vec<Option<Key>>,
    /// Requests that are awaited, by their numbers, and whether they took off; otherwise their flight was over. Those
    /// since they were last taken.
    moved: Vec<(u64, bool)>,
    /// Number of those for a robots.txt.
    robots: usize,
}

impl Flights {
    /// An attempt was released.
    pub fn insert(&mut self, flight: Flight) -> Key {
        let slot = flight.ticket.slot();
        if flight.job.awaited {
            self.moved.push((flight.job.root(), true));
        }
        self.robots += usize::from(flight.job.kind == PageKind::Robots);
        let key = self.slab.insert(flight);
        if self.of_ticket.len() <= slot {
            self.of_ticket.resize(slot + 1, None);
        }
        self.of_ticket[slot] = Some(key);
        key
    }

    /// The attempt of a key, if it has not ended.
    pub fn get(&self, key: Key) -> Option<&Flight> {
        self.slab.get(key)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Flight> {
        self.slab.get_mut(key)
    }

    /// An attempt has ended; its ticket must not be given back before. Inline: a flight is large, and
    /// each call on the way copies it once more.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<Flight> {
        let flight = self.slab.remove(key)?;
        self.of_ticket[flight.ticket.slot()] = None;
        self.robots -= usize::from(flight.job.kind == PageKind::Robots);
        if flight.job.awaited {
            self.moved.push((flight.job.root(), false));
        }
        Some(flight)
    }

    /// Takes the awaited requests that took off, or whose flight was over, since the last call: their numbers, and which
    /// of the two, in order. There are as many as a turn releases and ends.
    pub fn drain_moved(&mut self) -> impl Iterator<Item = (u64, bool)> + '_ {
        self.moved.drain(..)
    }

    /// The attempt that holds a ticket.
    pub fn key_of_ticket(&self, ticket: TicketId) -> Option<Key> {
        self.of_ticket.get(ticket.slot()).copied().flatten()
    }

    /// The keys of the attempts in the stages that `is_wanted` names.
    pub fn keys_where(&self, is_wanted: impl Fn(&Stage) -> bool) -> Vec<Key> {
        let wanted = |(_, flight): &(Key, &Flight)| is_wanted(&flight.stage);
        self.slab
            .iter()
            .filter(wanted)
            .map(|(key, _)| key)
            .collect()
    }

    /// The attempts of the lanes that `is_wanted` names.
    pub fn of_lanes(&self, is_wanted: impl Fn(LaneId) -> bool) -> impl Iterator<Item = &Flight> {
        let flights = self.slab.iter().map(|(_, flight)| flight);
        flights.filter(move |flight| is_wanted(flight.lane))
    }

    /// The first attempt that `is_wanted` names, with its key.
    pub fn find(&self, is_wanted: impl Fn(&Flight) -> bool) -> Option<(Key, &Flight)> {
        self.slab.iter().find(|(_, flight)| is_wanted(flight))
    }

    /// Number of attempts.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Number of those for a robots.txt.
    pub fn robots(&self) -> usize {
        self.robots
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }
}

/// One attempt between its release and its end.
#[derive(Debug)]
pub struct Flight {
    pub job: Job,
    pub lane: LaneId,
    pub ticket: TicketId,
    /// Its origin.
    pub origin: Origin,
    pub released: Instant,
    /// Signal of its head, once that has arrived.
    pub signal: Option<Signal>,
    /// The start of its body, if it is judged by that.
    pub body_start: Option<Box<BodyStart>>,
    /// The decisions that its head caused, until its body's size is known. Empty without
    /// `AUTOTHROTTLE_DEBUG`.
    pub decisions: Vec<Decision>,
    pub stage: Stage,
}

/// Stage of an attempt, named for what it waits for.
///
/// ```text
/// Connecting ──► Ready ──► Exchanging ──► (taken off at its end)
///     ▲  (an idle connection skips it)        │
///     └──── a reused connection died ◄────────┘
/// ```
#[derive(Debug)]
pub enum Stage {
    /// For a connection.
    Connecting { exchange: Box<Exchange> },
    /// For the throttle to let it depart.
    Ready {
        exchange: Box<Exchange>,
        socket: Key,
        since: Instant,
    },
    /// For the reply.
    Exchanging { socket: Key },
    /// Between two of the others, within one call.
    Moving,
}
