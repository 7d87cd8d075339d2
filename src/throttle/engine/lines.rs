//! The lines in which lanes wait for a scope's place, and released requests for its gap.
//!
//! A line is a ring, linked through those who stand in it: a scope knows the last, whose next is
//! the first. So standing in line allocates nothing, and costs a scope one number.

use super::super::scope::{NOBODY, Scope, ScopeId};
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
    /// The first lane in a scope's line, or `NOBODY`.
    #[inline]
    pub(super) fn first_waiting(&self, scope: &Scope) -> u32 {
        match scope.waiting {
            NOBODY => NOBODY,
            last => self.lanes[last as usize].next,
        }
    }

    /// The first ticket in a scope's line, or `NOBODY`.
    #[inline]
    pub(super) fn first_departing(&self, scope: &Scope) -> u32 {
        match scope.departing {
            NOBODY => NOBODY,
            last => self.ticket_at(last).next,
        }
    }

    /// The first in line that still waits; those who do not any more leave the line.
    pub(super) fn first_offered(&mut self, id: ScopeId) -> Option<u32> {
        loop {
            let lane = self.first_waiting(self.scope_ref(id));
            if lane == NOBODY {
                return None;
            }
            match self.lanes[lane as usize].state {
                Waiting::Offered { .. } => return Some(lane),
                Waiting::Idle => self.leave(id),
                Waiting::Closed => {
                    self.leave(id);
                    self.lanes_free.push(lane);
                }
            }
        }
    }

    pub(super) fn stand(&mut self, lane: u32, id: ScopeId, end: End) {
        let last = self.scope_ref(id).waiting;
        if last == NOBODY {
            self.lanes[lane as usize].next = lane;
            self.lines += 1;
        } else {
            self.lanes[lane as usize].next = self.lanes[last as usize].next;
            self.lanes[last as usize].next = lane;
            if end == End::Front {
                return;
            }
        }
        self.scope_mut(id).waiting = lane;
    }

    /// The first lane leaves the line.
    pub(super) fn leave(&mut self, id: ScopeId) {
        let last = self.scope_ref(id).waiting;
        let first = self.lanes[last as usize].next;
        let slot = &mut self.lanes[first as usize];
        let next = std::mem::replace(&mut slot.next, NOBODY);
        if first == last {
            self.scope_mut(id).waiting = NOBODY;
            self.lines -= 1;
        } else {
            self.lanes[last as usize].next = next;
        }
    }

    /// A ticket stands last in a scope's line. Whether it is the first as well.
    pub(super) fn stand_departing(&mut self, slot: u32, id: ScopeId) -> bool {
        let last = self.scope_ref(id).departing;
        if last == NOBODY {
            self.ticket_at_mut(slot).next = slot;
        } else {
            self.ticket_at_mut(slot).next = self.ticket_at(last).next;
            self.ticket_at_mut(last).next = slot;
        }
        self.scope_mut(id).departing = slot;
        last == NOBODY
    }

    /// The first ticket leaves the line.
    pub(super) fn leave_departing(&mut self, id: ScopeId) {
        let last = self.scope_ref(id).departing;
        let first = self.ticket_at(last).next;
        if first == last {
            self.scope_mut(id).departing = NOBODY;
        } else {
            self.ticket_at_mut(last).next = self.ticket_at(first).next;
        }
    }

    /// A ready ticket that will not depart leaves the line it stands in.
    pub(super) fn leave_line_of(&mut self, ticket: TicketId) {
        if self.ticket(ticket).state != TicketState::Ready {
            return;
        }
        let slot = ticket.0.slot;
        for id in self.ticket(ticket).ids() {
            let last = self.scope_ref(id).departing;
            if last == NOBODY {
                continue;
            }
            let mut before = last;
            loop {
                let at = self.ticket_at(before).next;
                if at == slot {
                    let next = self.ticket_at(slot).next;
                    self.ticket_at_mut(before).next = next;
                    if last == slot {
                        let alone = before == slot;
                        self.scope_mut(id).departing = if alone { NOBODY } else { before };
                    }
                    self.ticket_mut(ticket).state = TicketState::Preparing;
                    return;
                }
                before = at;
                if at == last {
                    break;
                }
            }
        }
    }
}
