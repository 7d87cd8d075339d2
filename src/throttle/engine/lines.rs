//! The lines in which lanes wait for a scope's slot, and released requests for its gap.
//!
//! A line is a ring linked through its members: a scope stores the last member, whose `next` is the
//! first. So waiting allocates nothing, and costs a scope one number. Lanes of different priorities wait in
//! [mixed lines](super::mixed).

use super::super::scope::{NO_INDEX, Scope};
use super::lanes::Waiting;
use super::tickets::{TicketId, TicketState};
use super::{End, Throttle};
use crate::base::ids::ScopeId;

impl Throttle {
    /// The first lane in a scope's line, or `NO_INDEX`.
    #[inline]
    pub(super) fn first_waiting(&self, scope: &Scope) -> u32 {
        match scope.waiting {
            NO_INDEX => NO_INDEX,
            last => self.lanes[last as usize].next,
        }
    }

    /// The first ticket in a scope's line, or `NO_INDEX`.
    #[inline]
    pub(super) fn first_departing(&self, scope: &Scope) -> u32 {
        match scope.departing {
            NO_INDEX => NO_INDEX,
            last => self.ticket_at(last).next,
        }
    }

    /// The first lane in line that still waits; lanes that no longer do are removed.
    pub(super) fn first_offered(&mut self, id: ScopeId) -> Option<u32> {
        loop {
            let lane = self.first_waiting(self.scope_ref(id));
            if lane == NO_INDEX {
                return None;
            }
            self.lanes_visited += 1;
            match self.lanes[lane as usize].state {
                Waiting::Offered { .. } => return Some(lane),
                Waiting::Idle | Waiting::Parked => self.dequeue(id),
                Waiting::Closed => {
                    self.dequeue(id);
                    self.lanes_free.push(lane);
                }
            }
        }
    }

    pub(super) fn enqueue(&mut self, lane: u32, id: ScopeId, end: End) {
        let last = self.scope_ref(id).waiting;
        if last == NO_INDEX {
            self.lanes[lane as usize].next = lane;
            self.lines += 1;
        } else if self.priorities.is_mixed(id)
            || self.lanes[lane as usize].priority != self.lanes[last as usize].priority
        {
            return self.enqueue_mixed(lane, id, end);
        } else {
            self.lanes[lane as usize].next = self.lanes[last as usize].next;
            self.lanes[last as usize].next = lane;
            if end == End::Front {
                return;
            }
        }
        self.scope_mut(id).waiting = lane;
    }

    /// Puts a lane into a scope's line: ahead of lanes without a claim, but behind an older claim, if it has
    /// claimed the scope; behind others that go first if it goes first, unless another has claimed the scope.
    pub(super) fn join_line(&mut self, lane: u32, id: ScopeId) {
        let scope = self.scope_ref(id);
        let (claimed_by, last) = (scope.claimed_by(), scope.waiting);
        let slot = &self.lanes[lane as usize];
        if claimed_by == lane {
            self.enqueue(lane, id, End::Front);
        } else if slot.goes_first()
            && claimed_by == NO_INDEX
            && last != NO_INDEX
            && !self.priorities.is_mixed(id)
            && self.lanes[last as usize].priority == slot.priority
        {
            self.enqueue_first(lane, id);
        } else {
            self.enqueue(lane, id, End::Back);
        }
    }

    /// Inserts a lane into a line that is not empty, behind the first ones that go first: past so many of them
    /// that the search stays short.
    fn enqueue_first(&mut self, lane: u32, id: ScopeId) {
        let last = self.scope_ref(id).waiting;
        let mut before = last;
        let mut is_last = false;
        for _ in 0..FIRST_MAX {
            let next = self.lanes[before as usize].next;
            if !self.lanes[next as usize].goes_first() {
                break;
            }
            before = next;
            if before == last {
                is_last = true;
                break;
            }
        }
        self.lanes[lane as usize].next = self.lanes[before as usize].next;
        self.lanes[before as usize].next = lane;
        if is_last {
            self.scope_mut(id).waiting = lane;
        }
    }

    /// Removes the first lane from the line.
    pub(super) fn dequeue(&mut self, id: ScopeId) {
        let last = self.scope_ref(id).waiting;
        let first = self.lanes[last as usize].next;
        let slot = &mut self.lanes[first as usize];
        let next = std::mem::replace(&mut slot.next, NO_INDEX);
        let priority = slot.priority;
        if first != last {
            self.lanes[last as usize].next = next;
        } else if let Some(next) = self.priorities.next_of(id, priority, &self.lanes) {
            self.lanes[next as usize].next = next;
            self.scope_mut(id).waiting = next;
        } else {
            self.scope_mut(id).waiting = NO_INDEX;
            self.lines -= 1;
        }
    }

    /// Appends a ticket to a scope's line. Returns whether it is also the first.
    pub(super) fn enqueue_departing(&mut self, slot: u32, id: ScopeId) -> bool {
        let last = self.scope_ref(id).departing;
        if last == NO_INDEX {
            self.ticket_at_mut(slot).next = slot;
        } else {
            self.ticket_at_mut(slot).next = self.ticket_at(last).next;
            self.ticket_at_mut(last).next = slot;
        }
        self.scope_mut(id).departing = slot;
        last == NO_INDEX
    }

    /// Removes the first ticket from the line.
    pub(super) fn dequeue_departing(&mut self, id: ScopeId) {
        let last = self.scope_ref(id).departing;
        let first = self.ticket_at(last).next;
        if first == last {
            self.scope_mut(id).departing = NO_INDEX;
        } else {
            self.ticket_at_mut(last).next = self.ticket_at(first).next;
        }
    }

    /// Removes a ready ticket that will not depart from its line.
    pub(super) fn remove_from_line(&mut self, ticket: TicketId) {
        if self.ticket(ticket).state != TicketState::Ready {
            return;
        }
        let slot = ticket.0.slot;
        for id in self.ticket(ticket).ids() {
            let last = self.scope_ref(id).departing;
            if last == NO_INDEX {
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
                        self.scope_mut(id).departing = if alone { NO_INDEX } else { before };
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

/// Lanes that go first which another one passes by to join them.
const FIRST_MAX: usize = 64;
