//! Sends on a connection, and sets the deadline of its answer.

use std::time::Duration;

use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::Network;
use crate::crawl::network::socket::{Socket, token_of};
use crate::crawl::timer::SlotTimer;
use crate::fetch::connection::ConnectionEvent;
use crate::fetch::deadline::Deadline;
use crate::fetch::exchange::Exchange;
use crate::fetch::failure::Failure;
use crate::io::Io;

impl<I: Io> Network<I> {
    /// Begins an exchange on a connection that is ready.
    pub fn start(&mut self, key: Key, exchange: Box<Exchange>) {
        self.http_mut(key).connection.start(exchange);
        self.recount(key);
    }

    /// Ends the exchange of a connection.
    pub fn abort(&mut self, key: Key, failure: Failure, now: Instant) -> Option<ConnectionEvent> {
        self.http_mut(key).connection.abort(failure, now)
    }

    /// Sends the output of a connection, and arms its deadline. Returns whether a reply is read on it: it
    /// pauses if there is no room for more, and the caller pauses it if the sink is busy.
    pub fn transmit(&mut self, key: Key, now: Instant) -> bool {
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return false;
        };
        self.scratch.clear();
        let mark = http.connection.take_output(&mut self.scratch);
        if !self.scratch.is_empty() {
            self.io.send(token_of(key), &self.scratch, mark);
        }
        // Only replies have bodies.
        let mut is_read = http.connection.exchange().is_some() && http.paused.is_none();
        let has_no_room = self.is_full() && self.favoured != Some(key) && self.fills(key);
        if is_read && (has_no_room || self.rate.is_spent(now)) {
            self.pause(key, now);
            is_read = false;
        }
        self.arm(key);
        is_read
    }

    /// Defers the last handshake bytes of a connection if its request departs in the same turn, which
    /// saves a segment. Otherwise returns `false` and [transmits](Self::transmit).
    pub fn waits_for_request(&mut self, key: Key) -> bool {
        let http = self.sockets.http(key);
        let waits = http.is_some_and(|http| http.connection.is_ready() && http.flight.is_some());
        if waits {
            self.secured.push(key);
        }
        waits
    }

    /// Takes the next deferred connection, at the end of the turn.
    pub fn poll_waiting(&mut self) -> Option<Key> {
        self.secured.pop()
    }

    /// Called when a marked send has left. Passes its departure time on to the connection or the resolver.
    pub fn handle_sent(&mut self, key: Key, at: Instant, slack: Duration) {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) => {
                http.connection.handle_sent(at, slack);
                self.arm(key);
            }
            Some(Socket::Dns(socket)) => self.names.handle_sent(*socket, at),
            Some(Socket::Probe(_) | Socket::Parting | Socket::Listener | Socket::Operator)
            | None => {}
        }
    }

    /// Called when a connection's timer fired. Returns the event of its connection, if the wait is over; arms
    /// the timer again otherwise.
    pub fn handle_timeout(&mut self, slot: u32, now: Instant) -> Option<(Key, ConnectionEvent)> {
        let key = self.sockets.key_of(slot)?;
        let http = self.sockets.http_mut(key)?;
        if http.paused.is_some() {
            // Reading is paused by the crawl, so the server is not idle.
            self.arm_at(key, now + self.config.fetch.idle_timeout);
            return None;
        }
        let settings = &self.config.fetch;
        let deadline = http.connection.deadline(settings);
        let is_silent = |deadline: Deadline| deadline.at <= now && deadline.phase.is_silence();
        if deadline.is_some_and(is_silent) && self.io.has_unread(token_of(key)) {
            http.connection.handle_unread(now);
        }
        let event = http.connection.handle_timeout(settings, now);
        if event.is_none() {
            self.arm(key);
        }
        Some((key, event?))
    }

    /// Arms the deadline of a connection's present wait.
    pub(super) fn arm(&mut self, key: Key) {
        if let Some(Socket::Http(http)) = self.sockets.get(key)
            && let Some(deadline) = http.connection.deadline(&self.config.fetch)
        {
            self.arm_at(key, deadline.at);
        }
    }

    fn arm_at(&mut self, key: Key, at: Instant) {
        self.deadlines.arm_by(SlotTimer::Socket(key.slot), at);
    }
}
