//! Tickets: the slots that a released request holds in its scopes until its exchange ends.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::asked::AskedHold;
use super::super::cause::WaitCause;
use super::super::scope::{Charges, NO_INDEX};
use super::Throttle;
use super::lanes::{Waiting, cost_of};
use crate::base::ids::ScopeId;
use crate::base::slab::Key;
use crate::base::time::Instant;

/// Id of a released request with its slots in all its scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketId(pub(super) Key);

impl TicketId {
    /// A small, dense index, unique among tickets in use: an index for the caller's table.
    pub fn slot(self) -> usize {
        self.0.slot as usize
    }
}

#[derive(Debug)]
pub(super) struct Ticket {
    pub held: SmallVec<[Held; 2]>,
    /// Its reserved or spent costs in scopes with a quota.
    pub charges: Vec<(ScopeId, Charges)>,
    /// As in its lane: how many of the scopes its request names or maps to, and whether they are
    /// ordered.
    pub named: u8,
    pub ordered: bool,
    /// Earliest time for which the gap is checked (slots, and when the lane was offered).
    pub due: Instant,
    /// Time of departure, once departed.
    pub sent: Instant,
    /// The last reported time by which it was on the wire; `FAR_FUTURE` before the first report.
    pub on_wire_at: Instant,
    /// The gap that was asked for, once departed.
    pub gap: Duration,
    /// The scope whose gap delayed it when it was ready, by which rule, and since when.
    pub delayed_by: (ScopeId, WaitCause, Instant),
    pub state: TicketState,
    /// What its reply asked for; `None` for nearly all.
    pub asked: Option<Box<AskedHold>>,
    pub next: u32,
}

pub(super) const TICKET_IN_USE: &str = "a ticket is in use until it is finished or cancelled";

/// A slot in one scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub id: ScopeId,
    pub slot: u16,
    /// An answer to the request was a refusal of this scope.
    pub refused: bool,
    /// Its head was none, and its body may be: that it was accepted does not count yet.
    pub is_open: bool,
}

impl Ticket {
    /// The scopes in which it has a slot.
    pub fn ids(&self) -> SmallVec<[ScopeId; 4]> {
        self.held.iter().map(|held| held.id).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketState {
    Preparing,
    Ready,
    Departed,
    /// Its slots are free; the verdict on its reply is to come.
    Answered,
}

impl Throttle {
    pub(super) fn reserve(&mut self, lane: u32, now: Instant) -> TicketId {
        self.in_flight += 1;
        let slot = &mut self.lanes[lane as usize];
        let waited = std::mem::replace(&mut slot.state, Waiting::Idle);
        let mut due = match waited {
            Waiting::Offered {
                waited_for_slot: true,
            } => now,
            _ => slot.offered_at,
        };
        let (slot, scope_table) = (&self.lanes[lane as usize], &mut self.scope_table);
        let mut charges = Vec::new();
        let mut held = SmallVec::<[Held; 2]>::new();
        for id in slot.scopes() {
            let scope = scope_table.get_mut(*id).expect("a lane's scopes exist");
            if let Some(charge) = scope.charge(slot.cost(*id)) {
                charges.push((*id, charge));
            }
            let (slot, free_at) = scope.reserve();
            due = due.max(free_at);
            held.push(Held {
                id: *id,
                slot,
                refused: false,
                is_open: false,
            });
        }
        let first = held[0].id;
        TicketId(self.tickets.insert(Ticket {
            held,
            charges,
            named: slot.named(),
            ordered: slot.is_ordered(),
            due,
            sent: Instant::START,
            on_wire_at: Instant::FAR_FUTURE,
            gap: Duration::ZERO,
            delayed_by: (first, WaitCause::Delay, Instant::FAR_FUTURE),
            state: TicketState::Preparing,
            asked: None,
            next: NO_INDEX,
        }))
    }

    /// Adds a scope to a released request if the scope has a free slot: another address is about to
    /// be tried.
    pub(crate) fn try_add(&mut self, ticket: TicketId, scope: ScopeId, now: Instant) -> bool {
        self.refresh_stale(scope, now);
        if self.ticket(ticket).held.iter().any(|held| held.id == scope) {
            return true;
        }
        let state = self.scope_mut(scope);
        if !state.has_free_slot() {
            return false;
        }
        let (slot, _) = state.reserve();
        let held = Held {
            id: scope,
            slot,
            refused: false,
            is_open: false,
        };
        self.ticket_mut(ticket).held.push(held);
        true
    }

    /// Sets the expected cost of the released request, if it is another one than the lane was
    /// offered for. Returns `false` if the cost does not fit; then the request must be put back.
    pub(crate) fn recharge(
        &mut self,
        ticket: TicketId,
        costs: &[(ScopeId, f64)],
        now: Instant,
    ) -> bool {
        self.refresh_ticket(ticket, now);
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
            *charge = scope.charge(cost).expect("the scope has a quota");
        }
        self.ticket_mut(ticket).charges = charges;
        fits
    }

    /// Called when the request's connection is ready. It departs by a later
    /// [`Grant::Depart`](super::Grant::Depart), in the order of becoming ready. `setup` is the time
    /// from release for a new connection, which teaches how far ahead to release; a kept connection
    /// has none.
    pub fn ready(&mut self, ticket: TicketId, setup: Option<Duration>, now: Instant) {
        let state = self.ticket_mut(ticket);
        assert_eq!(
            state.state,
            TicketState::Preparing,
            "a request becomes ready once"
        );
        state.state = TicketState::Ready;
        if let Some(setup) = setup {
            for id in state.ids() {
                self.scope_mut(id).learn_setup(setup);
            }
        }
        let state = self.ticket(ticket);
        let blocker = self.blocker_of_ticket(state, now);
        let (id, goes) = (
            blocker.map_or(state.held[0].id, |(id, _)| id),
            blocker.is_none(),
        );
        let cause = self.cause(id, 0.0, false, now);
        self.ticket_mut(ticket).delayed_by = (id, cause, now);
        let is_first = self.enqueue_departing(ticket.0.slot, id);
        if goes && is_first {
            // The rest of the scope is checked after this has departed.
            self.check_now(id, true);
        } else {
            self.schedule_check(id, now);
        }
    }

    /// Charges the gap of a departing request to each of its scopes.
    pub(super) fn charge(&mut self, ticket: TicketId, now: Instant) {
        let (tickets, scope_table) = (&mut self.tickets, &mut self.scope_table);
        let state = tickets.get_mut(ticket.0).expect(TICKET_IN_USE);
        let mut gap = Duration::ZERO;
        let (blocker, cause, ready_at) = state.delayed_by;
        let mut previous = None;
        for Held { id, slot, .. } in &state.held {
            let scope = scope_table.get_mut(*id).expect("a ticket's scopes exist");
            if *id == blocker {
                previous = scope.last_sent();
            }
            let jitter = scope.jitter();
            let factor = 1.0 + self.rng.range_f64(jitter.low, jitter.high);
            let (departs_at, left) = scope.departs_after();
            state.due = state.due.max(departs_at);
            gap = gap.max(left);
            scope.depart(*slot, now, factor as f32);
            self.accounts.departed(scope, now);
            if scope.counts_sends() {
                self.unsaved.mark(*id, scope);
            }
        }
        for (id, charge) in &mut state.charges {
            let scope = scope_table.get_mut(*id).expect("a ticket's scopes exist");
            *charge = scope.charged(*charge, now);
        }
        state.state = TicketState::Departed;
        state.sent = now;
        state.gap = gap;
        self.account_wait(blocker, cause, (ready_at, now), previous);
    }

    /// Reports the time by which a departed request was on the wire. The next gap and the quota's
    /// window run from it. It is later than the charged time, so nothing is sent earlier than
    /// planned. May be reported again, with the same time or a later one; returns whether it is new.
    pub fn sent(&mut self, ticket: TicketId, at: Instant) -> bool {
        let state = self.tickets.get_mut(ticket.0).expect(TICKET_IN_USE);
        if state.on_wire_at == at {
            return false;
        }
        (state.sent, state.on_wire_at) = (at, at);
        for (id, charge) in &state.charges {
            let scope = self
                .scope_table
                .get_mut(*id)
                .expect("a ticket's scopes exist");
            scope.reached_wire(*charge, at);
        }
        for Held { id, slot, .. } in &state.held {
            let scope = self
                .scope_table
                .get_mut(*id)
                .expect("a ticket's scopes exist");
            scope.sent(*slot, at);
        }
        true
    }

    /// Charges a failed set-up as a send at `started`.
    pub(crate) fn charge_failed(&mut self, ticket: TicketId, started: Instant) {
        if self.ticket(ticket).state != TicketState::Departed {
            self.remove_from_line(ticket);
            self.charge(ticket, started);
        }
    }

    /// When throttling allowed the departure.
    pub fn due(&self, ticket: TicketId) -> Instant {
        self.ticket(ticket).due
    }

    /// The gap that throttling asked for before this departure; zero before a scope's first.
    pub(crate) fn gap(&self, ticket: TicketId) -> Duration {
        self.ticket(ticket).gap
    }

    /// The scopes of a released request.
    pub(crate) fn ticket_scopes(&self, ticket: TicketId) -> impl Iterator<Item = ScopeId> + '_ {
        self.ticket(ticket).held.iter().map(|held| held.id)
    }

    /// The scopes of a released request, each with whether an answer to the request was classified
    /// as a refusal of this scope.
    pub(crate) fn ticket_refusals(
        &self,
        ticket: TicketId,
    ) -> impl Iterator<Item = (ScopeId, bool)> + '_ {
        let held = self.ticket(ticket).held.iter();
        held.map(|held| (held.id, held.refused))
    }

    /// Its slot in the first of its scopes.
    #[cfg(test)]
    pub(crate) fn slot_of(&self, ticket: TicketId) -> u16 {
        self.ticket(ticket).held[0].slot
    }

    /// The slot that a request holds, from 1 up, if slots back off separately (`backoff.per_slot`),
    /// else 0. A refusal then concerns one connection.
    pub(crate) fn backoff_slot(&self, ticket: TicketId) -> u32 {
        let mut held = self.ticket(ticket).held.iter();
        let by_slot = held.find(|held| {
            let settings = &self.scope_ref(held.id).profile.settings;
            settings.backoff.enabled && settings.backoff.per_slot
        });
        by_slot.map_or(0, |held| u32::from(held.slot) + 1)
    }

    /// Returns everything that a request which has not departed had reserved.
    pub fn cancel(&mut self, ticket: TicketId, now: Instant) {
        self.remove_from_line(ticket);
        self.release_slots(ticket, now);
    }

    /// Bytes of a reply were received: the next requests of its scopes wait for `bytes_per_second`.
    pub(crate) fn count_bytes(&mut self, ticket: TicketId, bytes: u64, now: Instant) {
        self.refresh_ticket(ticket, now);
        let held = self.ticket(ticket).held.clone();
        for Held { id, .. } in &held {
            self.scope_mut(*id).count_bytes(bytes, now);
        }
    }

    /// Ends the exchange and frees its slots.
    pub fn finish(&mut self, ticket: TicketId, now: Instant) {
        self.remove_from_line(ticket);
        self.release_slots(ticket, now);
    }

    /// Ends the exchange of a request that has departed, and frees its slots, though the verdict on its reply
    /// is to come: until [`Throttle::finish`] its scopes may be answered for. Where the verdict may concern the
    /// next request, the slots are kept until then: where answers are suspected, costs are charged, or each slot
    /// has a backoff of its own.
    pub fn finish_exchange(&mut self, ticket: TicketId, now: Instant) {
        self.refresh_ticket(ticket, now);
        let state = self.ticket(ticket);
        let waits = |held: &Held| {
            let scope = self.scope_ref(held.id);
            let backoff = &scope.profile.settings.backoff;
            scope.is_suspected() || backoff.enabled && backoff.per_slot
        };
        if !state.charges.is_empty() || state.held.iter().any(waits) {
            return;
        }
        let held = state.held.clone();
        let state = self.ticket_mut(ticket);
        debug_assert_eq!(state.state, TicketState::Departed, "it has a reply");
        state.state = TicketState::Answered;
        // A scope that is answered for exists.
        for Held { id, .. } in &held {
            self.scope_mut(*id).lanes += 1;
        }
        self.free_slots(&held, Vec::new(), true, now);
    }

    pub(super) fn release_slots(&mut self, ticket: TicketId, now: Instant) {
        let ticket = self.tickets.remove(ticket.0).expect(TICKET_IN_USE);
        let departed = ticket.state == TicketState::Departed;
        if ticket.state == TicketState::Answered {
            for Held { id, .. } in &ticket.held {
                self.scope_mut(*id).lanes -= 1;
                self.evict_or_schedule(*id, now);
            }
            return;
        }
        self.free_slots(&ticket.held, ticket.charges, departed, now);
    }

    fn free_slots(
        &mut self,
        held: &[Held],
        charges: Vec<(ScopeId, Charges)>,
        departed: bool,
        now: Instant,
    ) {
        self.in_flight -= 1;
        for (id, charges) in charges {
            let scope = self.scope_mut(id);
            if departed {
                scope.settle(charges, None, None, now);
            } else {
                scope.give_back(charges, now);
            }
        }
        // Scopes that wait for the cap go before the scopes of this request.
        self.promote_capped();
        for Held { id, slot, .. } in held {
            let scope = self
                .scope_table
                .get_mut(*id)
                .expect("a ticket's scopes exist");
            scope.free(*slot, departed);
            if departed {
                self.accounts.ended(scope, now);
            }
            self.evict_or_schedule(*id, now);
        }
    }

    /// Number of requests released and not finished.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn ticket(&self, id: TicketId) -> &Ticket {
        self.tickets.get(id.0).expect(TICKET_IN_USE)
    }

    pub(super) fn ticket_mut(&mut self, id: TicketId) -> &mut Ticket {
        self.tickets.get_mut(id.0).expect(TICKET_IN_USE)
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
