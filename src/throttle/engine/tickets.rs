//! A ticket: the places that a released request holds in its scopes, until its exchange has ended.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::scope::{Line, ScopeId};
use super::super::signal::Signal;
use super::Throttle;
use super::lanes::Waiting;
use crate::base::slab::Key;
use crate::base::time::Instant;

/// A released request: its places in all its scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketId(pub(super) Key);

impl TicketId {
    /// Small, dense and its own while it is not given back: an index for the caller's table.
    pub fn slot(self) -> usize {
        self.0.slot as usize
    }
}

#[derive(Debug)]
pub(super) struct Ticket {
    pub scopes: SmallVec<[(ScopeId, u16); 2]>,
    /// No gap is asked about before this (slots, and when the lane was offered).
    pub due: Instant,
    /// The gap that was asked for, once departed.
    pub gap: Duration,
    pub state: TicketState,
    pub next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketState {
    Preparing,
    Ready,
    Departed,
}

impl Throttle {
    pub(super) fn reserve(&mut self, lane: u32, now: Instant) -> TicketId {
        self.in_flight += 1;
        let slot = &mut self.lanes[lane as usize];
        slot.state = Waiting::Idle;
        let mut due = if slot.wanted_place {
            now
        } else {
            slot.offered_at
        };
        let scopes = slot.scopes.clone();
        let places = scopes
            .iter()
            .map(|id| {
                let (slot, free_at) = self.scope_mut(*id).reserve();
                due = due.max(free_at);
                (*id, slot)
            })
            .collect();
        TicketId(self.tickets.insert(Ticket {
            scopes: places,
            due,
            gap: Duration::ZERO,
            state: TicketState::Preparing,
            next: Line::NOBODY,
        }))
    }

    /// Adds a scope to a released request, if it has a place: another address is about to be tried.
    pub fn try_add(&mut self, ticket: TicketId, scope: ScopeId) -> bool {
        let held = &self.ticket(ticket).scopes;
        if held.iter().any(|(other, _)| *other == scope) {
            return true;
        }
        let state = self.scope_mut(scope);
        if !state.has_place() {
            return false;
        }
        let (slot, _) = state.reserve();
        self.ticket_mut(ticket).scopes.push((scope, slot));
        true
    }

    /// The request's connection is ready. It departs by a later [`Grant::Depart`], in the order of
    /// becoming ready. `setup` is what a new connection took from release, and teaches how far ahead
    /// to release; a kept one teaches nothing.
    pub fn ready(&mut self, ticket: TicketId, setup: Option<Duration>, now: Instant) {
        let state = self.ticket_mut(ticket);
        assert_eq!(
            state.state,
            TicketState::Preparing,
            "a request is ready once"
        );
        state.state = TicketState::Ready;
        let scopes = state.scopes.clone();
        if let Some(setup) = setup {
            for (id, _) in &scopes {
                self.scope_mut(*id).learn_setup(setup);
            }
        }
        let keeper = self
            .keeper_of_ticket(self.ticket(ticket), now)
            .map_or(scopes[0].0, |(id, _)| id);
        self.stand_departing(ticket.0.slot, keeper);
        self.look_at(keeper, now);
    }

    /// Charges the gap of a departing request to each of its scopes.
    pub(super) fn charge(&mut self, ticket: TicketId, now: Instant) {
        let scopes = self.ticket(ticket).scopes.clone();
        let mut due = self.ticket(ticket).due;
        let mut gap = Duration::ZERO;
        for (id, slot) in &scopes {
            let jitter = self.scope_ref(*id).profile.settings.jitter;
            let factor = 1.0 + self.rng.range_f64(jitter.low, jitter.high);
            let scope = self.scope_mut(*id);
            due = due.max(scope.departs_at());
            if scope.last_sent().is_some() {
                gap = gap.max(scope.gap());
            }
            scope.depart(*slot, now, factor as f32);
        }
        let state = self.ticket_mut(ticket);
        state.state = TicketState::Departed;
        state.due = due;
        state.gap = gap;
    }

    /// The exact moment a departed request was sent: the next gap runs from here.
    pub fn sent(&mut self, ticket: TicketId, at: Instant, now: Instant) {
        for (id, slot) in self.ticket(ticket).scopes.clone() {
            self.scope_mut(id).sent(slot, at);
            self.look_at(id, now);
        }
    }

    /// Set-up failed: what was begun at `started` is charged as a send then.
    pub fn charge_failed(&mut self, ticket: TicketId, started: Instant) {
        if self.ticket(ticket).state != TicketState::Departed {
            self.leave_line_of(ticket);
            self.charge(ticket, started);
        }
    }

    /// When throttling allowed the departure.
    pub fn due(&self, ticket: TicketId) -> Instant {
        self.ticket(ticket).due
    }

    /// The gap that throttling asked for before this departure; zero before a scope's first.
    pub fn gap(&self, ticket: TicketId) -> Duration {
        self.ticket(ticket).gap
    }

    /// The scopes of a released request.
    pub fn ticket_scopes(&self, ticket: TicketId) -> impl Iterator<Item = ScopeId> + '_ {
        self.ticket(ticket).scopes.iter().map(|(id, _)| *id)
    }

    /// The answer to a departed request: each of its scopes may change its pace.
    pub fn answer(&mut self, ticket: TicketId, signal: &Signal, now: Instant) {
        for (id, _) in self.ticket(ticket).scopes.clone() {
            if self.scope_mut(id).answer(signal, now) {
                self.look_at(id, now);
            }
        }
    }

    /// Gives back what an undeparted request had reserved: it never happened.
    pub fn cancel(&mut self, ticket: TicketId, now: Instant) {
        self.leave_line_of(ticket);
        self.release_places(ticket, now);
    }

    /// The exchange has ended: its places are free.
    pub fn finish(&mut self, ticket: TicketId, now: Instant) {
        self.leave_line_of(ticket);
        self.release_places(ticket, now);
    }

    pub(super) fn release_places(&mut self, ticket: TicketId, now: Instant) {
        let ticket = self
            .tickets
            .remove(ticket.0)
            .expect("a ticket is given back once");
        let departed = ticket.state == TicketState::Departed;
        self.in_flight -= 1;
        // Those who wait for the cap come before those who just had a place.
        self.use_cap();
        for (id, slot) in ticket.scopes {
            self.scope_mut(id).free(slot, departed);
            self.settle(id, now);
        }
    }

    /// Requests released and not finished.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn ticket(&self, id: TicketId) -> &Ticket {
        self.tickets
            .get(id.0)
            .expect("a ticket is used until it is given back")
    }

    pub(super) fn ticket_mut(&mut self, id: TicketId) -> &mut Ticket {
        self.tickets
            .get_mut(id.0)
            .expect("a ticket is used until it is given back")
    }

    pub(super) fn ticket_at(&self, slot: u32) -> &Ticket {
        self.tickets.by_slot(slot).expect("a ticket in line exists")
    }

    pub(super) fn ticket_at_mut(&mut self, slot: u32) -> &mut Ticket {
        self.tickets
            .by_slot_mut(slot)
            .expect("a ticket in line exists")
    }
}
