//! Notes what the reply to each released request asked for.

use std::time::Duration;

use super::super::asked::AskedHold;
use super::super::decision::DecisionSource;
use super::{Throttle, TicketId};
use crate::base::ids::ScopeId;
use crate::base::time::Instant;

impl Throttle {
    /// How long the reply to a request asked its scopes to wait, if it did.
    pub(crate) fn hold_asked_for(&self, ticket: TicketId) -> Option<Box<AskedHold>> {
        self.ticket(ticket).asked.clone()
    }

    /// A reply asked a scope to wait, and it is held for as long as the bounds of the settings allow.
    pub(super) fn note_asked(
        &mut self,
        ticket: TicketId,
        scope: ScopeId,
        (asked, held): (Duration, Duration),
        source: DecisionSource,
        now: Instant,
    ) {
        if asked.is_zero() {
            return;
        }
        let name = self.scope_table.name(scope);
        let state = self.tickets.get_mut(ticket.0);
        let state = state.expect(super::tickets::TICKET_IN_USE);
        let new = || Box::new(AskedHold::new(now, asked, source));
        state.asked.get_or_insert_with(new).hold(name, now + held);
    }
}
