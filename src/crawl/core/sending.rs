//! What leaves on a connection: a request when the throttle lets it depart, and whatever else the
//! connection has to send.

use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::flights::Stage;
use crate::io::Io;
use crate::throttle::engine::TicketId;

impl<I: Io> Core<I> {
    /// The throttle lets the request of this ticket depart, with the turn's others.
    pub fn depart(&mut self, ticket: TicketId) {
        let key = self.flights.key_of_ticket(ticket);
        let key = key.expect("a ticket has its attempt");
        let flight = self.flights.get_mut(key).expect("a ticket has its attempt");
        let Stage::Ready {
            mut exchange,
            socket,
            ..
        } = std::mem::replace(&mut flight.stage, Stage::Moving)
        else {
            unreachable!("only what is ready departs");
        };
        flight.stage = Stage::Exchanging { socket };
        self.control.handle_departure(flight.job.root());
        exchange.timings_mut().due = Some(self.throttle.due(ticket));
        self.throttle
            .follow_departure(flight.lane, ticket, self.now);
        self.network.start(socket, exchange);
        self.carry_on(socket);
    }

    /// Sends what a connection has to send, and reads its reply only while the sink is ready.
    pub fn carry_on(&mut self, key: Key) {
        if self.network.carry_on(key, self.now) && !self.output.is_ready() {
            self.network.pause(key, self.now);
        }
    }

    /// The same after bytes that came, with the request where that departs in the same turn.
    pub fn carry_on_with_request(&mut self, key: Key) {
        if !self.network.waits_for_request(key) {
            self.carry_on(key);
        }
    }

    /// The turn is over: handshakes whose requests must wait end without them.
    pub fn end_handshakes(&mut self) {
        while let Some(key) = self.network.poll_waiting() {
            self.carry_on(key);
        }
    }

    /// Gaps run from the end of the system call that sent the last of a request, when it is gone for
    /// certain: no server ever sees a shorter one. None of the next requests may depart before all of
    /// these are known, so it is done ahead of all other events.
    pub fn begin_gap(&mut self, key: Key, gone: Instant) {
        if let Some(flight) = self.flights.get(key)
            && matches!(flight.stage, Stage::Exchanging { .. })
        {
            self.throttle.sent(flight.ticket, gone);
            self.throttle
                .follow_departure(flight.lane, flight.ticket, gone);
        }
    }
}
