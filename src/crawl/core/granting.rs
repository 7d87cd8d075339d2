//! Requests leave: released when their lane may connect, departed when every gap allows.

use std::hint::black_box;

use smallvec::SmallVec;

use crate::base::ids::LaneId;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::core::url_log::URL_LOG;
use crate::crawl::flights::Stage;
use crate::io::Io;
use crate::throttle::engine::{Grant, TicketId};

/// Grants taken in one turn, so that its length stays bounded.
const GRANTS_PER_TURN: usize = 256;

/// Releases among them. Each may open a connection; meanwhile others become ready and late.
const RELEASES_PER_TURN: usize = 32;

/// If more events than this came in one turn, the processor is busy: more active lanes would wait for it, and
/// their connections with them.
const EVENTS_IF_IDLE: usize = 64;

/// So many scopes and their lanes are more than the processor's caches hold.
const SCOPES_BEYOND_CACHES: usize = 20_000;

/// After so many grants sends are submitted: opening a connection takes long.
const GRANTS_PER_SUBMIT: usize = 8;

impl<I: Io> Core<I> {
    /// Releases and departs what the throttle allows; returns whether there was anything.
    pub fn grant(&mut self) -> bool {
        let releasing = self.may_release();
        debug_assert!(
            !self.frontier.has_lane_changes(),
            "each change of a lane is applied where it is made"
        );
        if self.frontier.may_activate() {
            self.frontier.fill(self.now);
            self.update_lanes();
        }
        self.throttle.set_releasing(releasing);
        if releasing && self.throttle.scopes_len() >= SCOPES_BEYOND_CACHES {
            let lanes = self.throttle.coming(self.now).take(RELEASES_PER_TURN);
            let lanes: SmallVec<[LaneId; RELEASES_PER_TURN]> = lanes.collect();
            if lanes.len() > 1 {
                black_box(self.frontier.touch(&lanes));
                black_box(self.throttle.touch(&lanes));
            }
        }
        let mut releases = 0;
        let mut has_more = false;
        for number in 0..GRANTS_PER_TURN {
            if number % GRANTS_PER_SUBMIT == GRANTS_PER_SUBMIT - 1 {
                self.network.submit();
            }
            match self.throttle.poll(self.now) {
                Some(Grant::Depart(ticket)) => self.depart(ticket),
                Some(Grant::Release(lane, ticket)) => {
                    self.on_release(lane, ticket);
                    let goes_on = releasing && self.may_release_more();
                    self.throttle.set_releasing(goes_on);
                    releases += 1;
                    // Matching rules of robots.txt may take long.
                    if releases == RELEASES_PER_TURN || self.pages.is_spent_on_rules() {
                        break;
                    }
                }
                None if releasing && !has_more && self.activate_more() => has_more = true,
                None if has_more => break,
                None => return number > 0,
            }
        }
        self.wakeups.turn_again();
        true
    }

    /// Nothing can be released: activates parked lanes if there are slots for them and the processor is not
    /// busy. Returns whether some were activated.
    fn activate_more(&mut self) -> bool {
        if self.frontier.parked() == 0 || !self.throttle.is_idle() {
            return false;
        }
        if self.network.events_of_turn() > EVENTS_IF_IDLE {
            // It may be after the next turn.
            self.wakeups.turn_again();
            return false;
        }
        let room = self.throttle.room();
        let is_more = self.frontier.activate_more(room, self.now);
        self.update_lanes();
        is_more
    }

    /// Sends what may depart now, amid a turn's events, and releases what is due by now.
    pub fn depart_due(&mut self) {
        self.update_clock();
        let mut departed = false;
        for _ in 0..GRANTS_PER_TURN {
            let Some(ticket) = self.throttle.poll_departure(self.now) else {
                break;
            };
            self.depart(ticket);
            departed = true;
        }
        self.take_arrivals();
        if self.grant() || departed {
            self.network.submit();
        }
    }

    /// Sends the request of this ticket, with the turn's others. If its host was held since the release,
    /// it goes back to its lane, charged as a send: nothing is sent in a hold.
    fn depart(&mut self, ticket: TicketId) {
        let key = self.flights.key_of_ticket(ticket);
        let key = key.expect("a ticket has its attempt");
        let flight = self.flights.get_mut(key).expect("a ticket has its attempt");
        if !self.frontier.may_be_asked(flight.lane, self.now) {
            let flight = self.withdraw(key);
            return self.return_to_lane(flight.lane, flight.job);
        }
        let Stage::Ready {
            mut exchange,
            socket,
            ..
        } = std::mem::replace(&mut flight.stage, Stage::Moving)
        else {
            unreachable!("only what is ready departs");
        };
        flight.stage = Stage::Exchanging { socket };
        let job = &flight.job;
        log::debug!(target: URL_LOG, "sent {}: {} {}", job.id, job.method(), job.url);
        self.control.handle_departure(job.root());
        exchange.timings_mut().due = Some(self.throttle.due(ticket));
        self.throttle
            .follow_departure(flight.lane, ticket, self.now);
        // Before a byte leaves.
        self.record_departed(key);
        self.network.start(socket, exchange);
        self.transmit(socket);
    }

    /// Begins the gap after an attempt that was sent. It runs from the end of the system call that sent
    /// the last byte, so that no server sees a shorter one. Done ahead of all other events: no further
    /// request may depart before.
    pub fn begin_gap(&mut self, key: Key, gone: Instant) {
        if let Some(flight) = self.flights.get(key)
            && matches!(flight.stage, Stage::Exchanging { .. })
            && self.throttle.sent(flight.ticket, gone)
        {
            self.throttle
                .follow_departure(flight.lane, flight.ticket, gone);
        }
    }
}
