//! The lines in which lanes wait for a scope's place, and released requests for its gap.
//!
//! A line is linked through those who stand in it, so standing in line allocates nothing.

use super::super::scope::{Line, ScopeId};
use super::Throttle;
use super::lanes::Waiting;
use super::tickets::{TicketId, TicketState};

/// Where in a line a lane stands: a claiming one goes first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

impl Throttle {
    /// The first in line that still waits; those who do not any more leave the line.
    pub(super) fn first_offered(&mut self, id: ScopeId) -> Option<u32> {
        loop {
            let lane = self.scope_ref(id).waiting.first;
            if lane == Line::NOBODY {
                return None;
            }
            match self.lanes[lane as usize].state {
                Waiting::Offered => return Some(lane),
                Waiting::Idle => self.leave(id),
                Waiting::Closed => {
                    self.leave(id);
                    self.lanes_free.push(lane);
                }
            }
        }
    }

    pub(super) fn stand(&mut self, lane: u32, id: ScopeId, end: End) {
        let line = self.scope_ref(id).waiting;
        let slot = &mut self.lanes[lane as usize];
        slot.linked = true;
        slot.next = Line::NOBODY;
        let line = if line.is_empty() {
            self.lines += 1;
            Line {
                first: lane,
                last: lane,
            }
        } else if end == End::Front {
            slot.next = line.first;
            Line {
                first: lane,
                ..line
            }
        } else {
            self.lanes[line.last as usize].next = lane;
            Line { last: lane, ..line }
        };
        self.scope_mut(id).waiting = line;
    }

    /// The first lane leaves the line.
    pub(super) fn leave(&mut self, id: ScopeId) {
        let first = self.scope_ref(id).waiting.first;
        let slot = &mut self.lanes[first as usize];
        slot.linked = false;
        let next = std::mem::replace(&mut slot.next, Line::NOBODY);
        let line = &mut self.scope_mut(id).waiting;
        line.first = next;
        if next == Line::NOBODY {
            line.last = Line::NOBODY;
            self.lines -= 1;
        }
    }

    pub(super) fn stand_departing(&mut self, slot: u32, id: ScopeId) {
        self.ticket_at_mut(slot).next = Line::NOBODY;
        let line = self.scope_ref(id).departing;
        if line.is_empty() {
            self.scope_mut(id).departing = Line {
                first: slot,
                last: slot,
            };
        } else {
            self.ticket_at_mut(line.last).next = slot;
            self.scope_mut(id).departing.last = slot;
        }
    }

    /// The first ticket leaves the line.
    pub(super) fn leave_departing(&mut self, id: ScopeId) {
        let first = self.scope_ref(id).departing.first;
        let next = self.ticket_at(first).next;
        let line = &mut self.scope_mut(id).departing;
        line.first = next;
        if next == Line::NOBODY {
            line.last = Line::NOBODY;
        }
    }

    /// A ready ticket that will not depart leaves the line it stands in.
    pub(super) fn leave_line_of(&mut self, ticket: TicketId) {
        if self.ticket(ticket).state != TicketState::Ready {
            return;
        }
        let slot = ticket.0.slot;
        for (id, _) in self.ticket(ticket).scopes.clone() {
            let line = self.scope_ref(id).departing;
            let mut before = Line::NOBODY;
            let mut at = line.first;
            while at != Line::NOBODY && at != slot {
                before = at;
                at = self.ticket_at(at).next;
            }
            if at == slot {
                let next = self.ticket_at(slot).next;
                if before != Line::NOBODY {
                    self.ticket_at_mut(before).next = next;
                }
                let line = &mut self.scope_mut(id).departing;
                if line.first == slot {
                    line.first = next;
                }
                if line.last == slot {
                    line.last = before;
                }
                self.ticket_mut(ticket).state = TicketState::Preparing;
                return;
            }
        }
    }
}
