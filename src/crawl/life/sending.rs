//! What leaves on a connection: a request when the throttle lets it depart, and whatever else the
//! connection has to send.

use std::time::Duration;

use super::flight::{Socket, Stage};
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::core::{Core, key_of, token_of};
use crate::io::{Event, Io};
use crate::throttle::engine::TicketId;

impl<I: Io> Core<I> {
    /// The throttle lets the request of this ticket depart, with the turn's others.
    pub fn depart(&mut self, ticket: TicketId) {
        let key = self.flight_of[ticket.slot()].expect("a ticket has its attempt");
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
        if let Some(feed) = &mut self.feed {
            feed.begin(flight.job.root());
        }
        exchange.timings_mut().due = Some(self.throttle.due(ticket));
        self.throttle
            .follow_departure(flight.lane, ticket, self.now);
        self.http(socket).connection.start(exchange);
        self.recount(socket);
        self.carry_on(socket);
    }

    /// Sends what a connection has to send, and sees to its deadline.
    pub fn carry_on(&mut self, key: Key) {
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return;
        };
        self.scratch.clear();
        let mark = http.connection.take_output(&mut self.scratch);
        if !self.scratch.is_empty() {
            self.io.send(token_of(key), &self.scratch, mark);
        }
        // Only replies have bodies.
        if http.connection.exchange().is_some() && http.paused.is_none() && self.must_wait(key) {
            self.pause(key);
        }
        self.arm(key);
    }

    /// The same after bytes that came. The last of a handshake is not sent by itself where its
    /// request departs in the same turn: one segment less for either side.
    pub fn carry_on_with_request(&mut self, key: Key) {
        match self.sockets.get(key) {
            Some(Socket::Http(http)) if http.connection.is_ready() && http.flight.is_some() => {
                self.secured.push(key);
            }
            _ => self.carry_on(key),
        }
    }

    /// The turn is over: handshakes whose requests must wait end without them.
    pub fn end_handshakes(&mut self) {
        while let Some(key) = self.secured.pop() {
            self.carry_on(key);
        }
    }

    /// Gaps run from the end of the system call that sent the last of a request, when it is gone for
    /// certain: no server ever sees a shorter one. None of the next requests may depart before all of
    /// these are known, so it is done ahead of all other news.
    pub fn begin_gaps(&mut self, events: &[Event]) {
        for event in events {
            let (Event::Sent { token, gone, .. } | Event::Gone { token, at: gone }) = event else {
                continue;
            };
            self.begin_gap(key_of(*token), *gone);
        }
    }

    /// The same of what one connection has sent.
    pub fn begin_gap(&mut self, socket: Key, gone: Instant) {
        if let Some(Socket::Http(http)) = self.sockets.get(socket)
            && let Some(flight) = http.flight.and_then(|key| self.flights.get(key))
            && matches!(flight.stage, Stage::Exchanging { .. })
        {
            self.throttle.sent(flight.ticket, gone);
            self.throttle
                .follow_departure(flight.lane, flight.ticket, gone);
        }
    }

    pub fn on_sent(&mut self, key: Key, at: Instant, slack: Duration) {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) => {
                http.connection.handle_sent(at, slack);
                self.arm(key);
            }
            Some(Socket::Dns(socket)) => self.resolver.handle_sent(*socket, at),
            Some(Socket::Probe(_) | Socket::Parting) | None => {}
        }
    }
}
