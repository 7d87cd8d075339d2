//! Connections: their events, what leaves on them, and how they are closed.

use std::time::Duration;

use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::breaker::Probed;
use crate::crawl::core::Core;
use crate::crawl::flights::Stage;
use crate::crawl::network::origins::Origin;
use crate::crawl::network::socket::Carrier;
use crate::crawl::network::{Carried, IDLE_CLOSED, SocketEvent, Waiting};
use crate::fetch::connection::ConnectionEvent;
use crate::fetch::failure::{Failure, FailureKind};
use crate::io::{Close, Io, NetError, Stamp};

impl<I: Io> Core<I> {
    /// A connection's timer fired.
    pub fn on_socket_timeout(&mut self, slot: u32) {
        if let Some((key, event)) = self.network.handle_timeout(slot, self.now) {
            self.on_connection_event(key, event);
        }
    }

    pub fn on_failed(&mut self, key: Key, error: NetError, at: Instant) {
        match self.network.handle_failed(key, error, at, self.now) {
            SocketEvent::Http(event) => self.on_connection_event(key, event),
            SocketEvent::Probe(probe) => {
                let ended = match error {
                    NetError::Refused | NetError::Reset => Probed::Refused,
                    NetError::NoRoute => Probed::NoRoute,
                    _ => Probed::Failed,
                };
                self.on_probed(probe, ended);
            }
            SocketEvent::Other => {}
        }
    }

    pub fn on_ended(&mut self, key: Key, stamp: Stamp) {
        if let Some(event) = self.network.handle_ended(key, stamp, self.now) {
            self.on_connection_event(key, event);
        }
    }

    /// Something happened on a connection.
    pub fn on_connection_event(&mut self, key: Key, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Ready => {
                let attempt = self.network.handle_ready(key);
                self.on_tunnel_ready(attempt);
                self.on_ready(attempt, key);
            }
            ConnectionEvent::Failed(failure) => self.on_set_up_failed(key, failure),
            ConnectionEvent::Head => self.on_head(self.network.attempt_on(key), key),
            ConnectionEvent::Piece => unreachable!("it is handed over where it was read"),
            ConnectionEvent::Ended { failure, reusable } => {
                self.on_exchange_over(key, failure, reusable)
            }
            ConnectionEvent::DiedIdle => self.on_died_idle(key),
            ConnectionEvent::Closed => self.on_closed_by_peer(key),
        }
    }

    /// A new connection is ready: if it is a tunnel through a proxy, the proxy reached the origin.
    fn on_tunnel_ready(&mut self, key: Key) {
        let flight = self.flights.get(key).expect("a connection has its attempt");
        let proxy = self.frontier.proxy_of(flight.lane);
        if proxy.is_some_and(|proxy| !proxy.forwards(&flight.job.url)) {
            self.frontier.origin_connected(flight.lane);
        }
    }

    fn on_exchange_over(&mut self, key: Key, failure: Option<Failure>, reusable: bool) {
        let Carried {
            attempt,
            exchange,
            carrier,
            origin,
        } = self.network.end_exchange(key);
        let flight = self.flights.get(attempt).expect("a reply has its attempt");
        let lane = flight.lane;
        let whole = failure.is_none();
        if !reusable {
            // No connection waits for its first page.
            self.frontier.end_first_page(lane);
        }
        // Its deadline stays on the wheel: the next request's is later and then costs nothing there.
        self.on_end(attempt, exchange, failure, &carrier);
        // A connection with nothing queued for its origin closes at once, and so do those beside it
        // that were kept while there was.
        let is_queued = self.frontier.has_queued(lane);
        let is_asked_for = self.workload.keeps_connection(is_queued);
        // A reply that is processed may lead to more requests.
        let is_wanted = self.is_running() && (is_asked_for || self.pages.has(lane));
        // Its address may have been excluded since it was made.
        let reusable = reusable && !self.network.is_excluded(key);
        if !is_wanted {
            self.close_idle(origin);
            self.network.release_sessions(key);
        }
        if reusable && is_wanted {
            return self.keep_idle(key, lane);
        }
        self.frontier.end_first_page(lane);
        let how = match reusable || whole {
            true => Close::Finish,
            false => Close::Reset,
        };
        self.close_socket(key, how);
    }

    /// A kept connection ended before the first byte of a reply: the request is tried once more on a new
    /// one, and is throttled again.
    fn on_died_idle(&mut self, key: Key) {
        let carried = self.network.take_carried(key);
        self.close_socket(key, Close::Reset);
        let failure = Failure::new(
            FailureKind::Reset,
            IDLE_CLOSED,
            "the reused connection ended before the first byte of a reply",
        );
        let failure = Some(failure);
        self.on_end(carried.attempt, carried.exchange, failure, &carried.carrier);
    }

    /// A connection that waited was ended by its peer.
    fn on_closed_by_peer(&mut self, key: Key) {
        let waiting = self.network.waiting_on(key);
        self.close_socket(key, Close::Finish);
        match waiting {
            None => {}
            Some(waiting) if waiting.was_kept => self.reconnect(waiting.attempt),
            Some(Waiting {
                attempt, carrier, ..
            }) => {
                let failure = Failure::new(
                    FailureKind::Connect,
                    "closed",
                    "the server closed the connection before the request departed",
                );
                self.end_waiting(attempt, failure, &carrier);
            }
        }
    }

    /// A new connection ended before its request departed. It is charged like one that could not be set
    /// up, so that a server that hangs up is not called again at once. If the server had waited for long,
    /// in a hold or a gap, the request is returned to its lane uncharged.
    pub fn end_waiting(&mut self, key: Key, failure: Failure, carrier: &Carrier) {
        let flight = self.flights.get_mut(key).expect("an attempt ends once");
        let stage = std::mem::replace(&mut flight.stage, Stage::Moving);
        let Stage::Ready {
            exchange, since, ..
        } = stage
        else {
            unreachable!("only a request that waits for its gap is ended so");
        };
        if self.now.saturating_since(since) >= PATIENT {
            return self.reconnect(key);
        }
        self.end_undeparted(key, exchange, failure, carrier);
    }

    /// Sends what a connection has to send. Its reply is read only while the sink is ready.
    pub fn transmit(&mut self, key: Key) {
        if self.network.transmit(key, self.now) && !self.output.is_ready() {
            self.network.pause(key, self.now);
        }
    }

    /// The same after bytes arrived. A handshake's last bytes wait for the request if that may depart in
    /// the same turn.
    pub fn transmit_with_request(&mut self, key: Key) {
        if !self.network.waits_for_request(key) {
            self.transmit(key);
        }
    }

    /// The turn ends: sends the last bytes of handshakes whose requests did not depart.
    pub fn end_handshakes(&mut self) {
        while let Some(key) = self.network.poll_waiting() {
            self.transmit(key);
        }
    }

    /// Closes a connection and forgets it.
    pub fn close_socket(&mut self, key: Key, how: Close) {
        if let Some(origin) = self.network.close(key, how) {
            self.release_origin(origin);
        }
    }

    /// Closes the connections that were kept for an origin.
    pub fn close_idle(&mut self, origin: Origin) {
        while let Some(origin) = self.network.close_idle_of(origin) {
            self.release_origin(origin);
        }
    }

    /// Closes what has been idle for as long as the pool keeps it.
    pub fn close_expired(&mut self) {
        // The timer fires again for what is left.
        for _ in 0..CLOSED_AT_ONCE {
            let Some(origin) = self.network.expire_idle(self.now) else {
                return;
            };
            self.release_origin(origin);
        }
    }

    /// One more connection is of an origin that an attempt goes to.
    pub fn share_origin(&mut self, origin: Origin) {
        match origin {
            Origin::Direct(number) => self.frontier.hold_origin_again(number),
            Origin::ByProxy(number) => self.network.share_proxy_origin(number),
        }
    }

    /// A connection or an attempt of an origin is over.
    pub fn release_origin(&mut self, origin: Origin) {
        match origin {
            Origin::Direct(number) => self.frontier.release_origin(number, self.now),
            Origin::ByProxy(number) => self.network.release_proxy_origin(number),
        }
    }
}

/// Idle connections closed each time that the pool's timer fires: each is a system call.
const CLOSED_AT_ONCE: usize = 16;

/// A server that closes a new connection after so long without a request did not hang up: we kept it
/// waiting. The request is not charged for it, and this is the least time between two such connections.
/// No server in use waits for less.
const PATIENT: Duration = Duration::from_millis(900);
