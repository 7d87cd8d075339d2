//! A ticket: the places that a released request holds in its scopes, until its exchange has ended.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::cause::Cause;
use super::super::scope::{Charges, NOBODY, ScopeId};
use super::Throttle;
use super::lanes::{Waiting, cost_of};
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
    pub held: SmallVec<[Held; 2]>,
    /// What it has reserved or spent in scopes that bound that.
    pub charges: Vec<(ScopeId, Charges)>,
    /// As of its lane: how many of them its request names or maps to, and whether in an order.
    pub named: u8,
    pub ordered: bool,
    /// No gap is asked about before this (slots, and when the lane was offered).
    pub due: Instant,
    /// When it departed, once it has.
    pub sent: Instant,
    /// The moment by which it was gone, as told last; `FAR_FUTURE` before that.
    pub gone: Instant,
    /// The gap that was asked for, once departed.
    pub gap: Duration,
    /// The scope whose gap kept it when it was ready, by which rule, and since when.
    pub kept: (ScopeId, Cause, Instant),
    pub state: TicketState,
    pub next: u32,
}

pub(super) const USED: &str = "a ticket is used until it is given back, once";

/// A place in one scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub id: ScopeId,
    pub slot: u16,
}

impl Ticket {
    /// The scopes it has a place in.
    pub fn ids(&self) -> SmallVec<[ScopeId; 4]> {
        self.held.iter().map(|held| held.id).collect()
    }
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
        let waited = std::mem::replace(&mut slot.state, Waiting::Idle);
        let mut due = match waited {
            Waiting::Offered { wanted_place: true } => now,
            _ => slot.offered_at,
        };
        let (slot, roll) = (&self.lanes[lane as usize], &mut self.roll);
        let mut charges = Vec::new();
        let held: SmallVec<[Held; 2]> = slot
            .scopes()
            .iter()
            .map(|id| {
                let scope = roll.get_mut(*id).expect("a lane's scopes exist");
                if let Some(charge) = scope.charge(slot.cost(*id)) {
                    charges.push((*id, charge));
                }
                let (slot, free_at) = scope.reserve();
                due = due.max(free_at);
                Held { id: *id, slot }
            })
            .collect();
        let first = held[0].id;
        TicketId(self.tickets.insert(Ticket {
            held,
            charges,
            named: slot.named,
            ordered: slot.ordered,
            due,
            sent: Instant::START,
            gone: Instant::FAR_FUTURE,
            gap: Duration::ZERO,
            kept: (first, Cause::Delay, Instant::FAR_FUTURE),
            state: TicketState::Preparing,
            next: NOBODY,
        }))
    }

    /// Adds a scope to a released request, if it has a place: another address is about to be tried.
    pub fn try_add(&mut self, ticket: TicketId, scope: ScopeId) -> bool {
        if self.ticket(ticket).held.iter().any(|held| held.id == scope) {
            return true;
        }
        let state = self.scope_mut(scope);
        if !state.has_place() {
            return false;
        }
        let (slot, _) = state.reserve();
        let held = Held { id: scope, slot };
        self.ticket_mut(ticket).held.push(held);
        true
    }

    /// Says what the released request is expected to cost, where another one was taken than its
    /// lane was offered for. `false` where it does not fit: then it must be put back.
    pub fn recharge(&mut self, ticket: TicketId, costs: &[(ScopeId, f64)], now: Instant) -> bool {
        let mut charges = std::mem::take(&mut self.ticket_mut(ticket).charges);
        if charges.is_empty() {
            return true;
        }
        let mut fits = true;
        for (id, charge) in &mut charges {
            let cost = cost_of(costs, *id);
            let scope = self.scope_mut(*id);
            scope.give_back(*charge, now);
            fits &= scope.fits_at(cost, now) <= now;
            *charge = scope.charge(cost).expect("it is bounded");
        }
        self.ticket_mut(ticket).charges = charges;
        fits
    }

    /// The request's connection is ready. It departs by a later
    /// [`Grant::Depart`](super::Grant::Depart), in the order of becoming ready. `setup` is what a new
    /// connection took from release, and teaches how far ahead to release; a kept one teaches nothing.
    pub fn ready(&mut self, ticket: TicketId, setup: Option<Duration>, now: Instant) {
        let state = self.ticket_mut(ticket);
        assert_eq!(
            state.state,
            TicketState::Preparing,
            "a request is ready once"
        );
        state.state = TicketState::Ready;
        if let Some(setup) = setup {
            for id in state.ids() {
                self.scope_mut(id).learn_setup(setup);
            }
        }
        let state = self.ticket(ticket);
        let keeper = self.keeper_of_ticket(state, now);
        let (id, goes) = (
            keeper.map_or(state.held[0].id, |(id, _)| id),
            keeper.is_none(),
        );
        let cause = self.cause(id, 0.0, false, now);
        self.ticket_mut(ticket).kept = (id, cause, now);
        let is_first = self.stand_departing(ticket.0.slot, id);
        if goes && is_first {
            // What else there is to know of the scope is looked at once this has departed.
            self.look_now(id, true);
        } else {
            self.look_at(id, now);
        }
    }

    /// Charges the gap of a departing request to each of its scopes.
    pub(super) fn charge(&mut self, ticket: TicketId, now: Instant) {
        let (tickets, roll) = (&mut self.tickets, &mut self.roll);
        let state = tickets.get_mut(ticket.0).expect(USED);
        let mut gap = Duration::ZERO;
        for Held { id, slot } in &state.held {
            let scope = roll.get_mut(*id).expect("a ticket's scopes exist");
            let jitter = scope.jitter();
            let factor = 1.0 + self.rng.range_f64(jitter.low, jitter.high);
            let (departs_at, left) = scope.departs_after();
            state.due = state.due.max(departs_at);
            gap = gap.max(left);
            scope.depart(*slot, now, factor as f32);
            self.accounts.departed(scope, now);
        }
        for (id, charge) in &mut state.charges {
            let scope = roll.get_mut(*id).expect("a ticket's scopes exist");
            *charge = scope.charged(*charge, now);
        }
        state.state = TicketState::Departed;
        state.sent = now;
        state.gap = gap;
        let (keeper, cause, ready_at) = state.kept;
        self.account_wait(keeper, cause, ready_at, now);
    }

    /// The moment by which a departed request was gone: the next gap runs from here, and the window
    /// of what it spent. It is later than the moment that was charged, so nothing can come of it
    /// sooner than was planned. May be told again, of the same moment or a later one.
    pub fn sent(&mut self, ticket: TicketId, at: Instant) {
        let state = self.tickets.get_mut(ticket.0).expect(USED);
        if state.gone == at {
            return;
        }
        (state.sent, state.gone) = (at, at);
        for (id, charge) in &state.charges {
            let scope = self.roll.get_mut(*id).expect("a ticket's scopes exist");
            scope.gone(*charge, at);
        }
        for Held { id, slot } in &state.held {
            let scope = self.roll.get_mut(*id).expect("a ticket's scopes exist");
            scope.sent(*slot, at);
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
        self.ticket(ticket).held.iter().map(|held| held.id)
    }

    /// Which place it holds in the first of its scopes.
    #[cfg(test)]
    pub fn slot_of(&self, ticket: TicketId) -> u16 {
        self.ticket(ticket).held[0].slot
    }

    /// The slot that a request holds, from 1 up, where slots back off by themselves
    /// (`backoff.per_slot`); 0 elsewhere. What is refused there is a connection's affair.
    pub(crate) fn backoff_slot(&self, ticket: TicketId) -> u32 {
        let mut held = self.ticket(ticket).held.iter();
        let by_slot = held.find(|held| {
            let settings = &self.scope_ref(held.id).profile.settings;
            settings.backoff.enabled && settings.backoff.per_slot
        });
        by_slot.map_or(0, |held| u32::from(held.slot) + 1)
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
        let ticket = self.tickets.remove(ticket.0).expect(USED);
        let departed = ticket.state == TicketState::Departed;
        self.in_flight -= 1;
        for (id, charges) in ticket.charges {
            let scope = self.scope_mut(id);
            if departed {
                scope.settle(charges, None, None, now);
            } else {
                scope.give_back(charges, now);
            }
        }
        // Those who wait for the cap come before those who just had a place.
        self.use_cap();
        for Held { id, slot } in &ticket.held {
            let scope = self.roll.get_mut(*id).expect("a ticket's scopes exist");
            scope.free(*slot, departed);
            if departed {
                self.accounts.ended(scope, now);
            }
            self.settle(*id, now);
        }
    }

    /// Requests released and not finished.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn ticket(&self, id: TicketId) -> &Ticket {
        self.tickets.get(id.0).expect(USED)
    }

    pub(super) fn ticket_mut(&mut self, id: TicketId) -> &mut Ticket {
        self.tickets.get_mut(id.0).expect(USED)
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
