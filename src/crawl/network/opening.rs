//! Reuses idle connections, opens those of probes, and what this machine grants to new ones.

use std::net::SocketAddr;

use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::origins::Origin;
use crate::crawl::network::socket::{Socket, token_of};
use crate::crawl::network::{Closed, Network};
use crate::fetch::connection::ConnectionEvent;
use crate::fetch::failure::Failure;
use crate::io::{Close, Io, Stamp};

/// Kind of the connected socket.
pub enum Connected {
    /// The first connection of this attempt.
    Page {
        attempt: Key,
        origin: Origin,
        remote: SocketAddr,
        event: Option<ConnectionEvent>,
        /// The attempt's other connections.
        closed: Closed,
    },
    /// The connection of a probe.
    Probe(u32),
    /// Handled within the network.
    Other,
}

impl<I: Io> Network<I> {
    /// Takes the most recently used idle connection of an origin; if slots back off by themselves, of this
    /// slot (0: of all).
    pub fn take_idle(&mut self, origin: Origin, slot: u32) -> Option<Key> {
        let kept = match slot {
            0 => self.pool.take(origin.number()),
            // A refusal on a connection concerns its slot alone.
            slot => {
                let sockets = &self.sockets;
                let is_its = |kept| {
                    let http = sockets.http_by_slot(kept);
                    http.is_some_and(|http| http.slot == slot)
                };
                self.pool.take_where(origin.number(), is_its)
            }
        };
        let key = self.sockets.key_of(kept?);
        Some(key.expect("an idle connection is open"))
    }

    /// Whether a connection of pages has carried nothing yet.
    pub fn is_new(&self, key: Key) -> bool {
        self.connection(key).used() == 0
    }

    /// Assigns an idle connection to an attempt.
    pub fn assign(&mut self, key: Key, attempt: Key) {
        self.http_mut(key).flight = Some(attempt);
    }

    /// Records how long the search for a local port took in the last connect, which was to this place. If it
    /// took long, connects to the place are paced.
    pub fn note_port_search(&mut self, to: SocketAddr, now: Instant) {
        let took = self.io.port_search();
        self.ports.note_search(to, took, now);
    }

    /// Returns the time until which a request waits before it connects, if this machine is short of ports for
    /// all of these places.
    pub fn port_wait(
        &mut self,
        places: impl Iterator<Item = SocketAddr>,
        now: Instant,
    ) -> Option<Instant> {
        self.ports.waits_until(places, now)
    }

    /// Called when this machine had no port left for one more connection to this place. Pauses connects to
    /// the place; returns the end of the pause.
    pub fn handle_no_port(&mut self, to: SocketAddr, now: Instant) -> Instant {
        self.ports.refused(to, now)
    }

    /// Called when this machine refused a socket for one more connection beside so many requests. Lowers the
    /// limit on requests in flight, and returns it if it changes.
    pub fn handle_exhausted(&mut self, failure: &Failure, in_flight: usize) -> Option<usize> {
        self.room.handle_exhausted(failure, in_flight)
    }

    /// Opens a connection on which nothing is sent.
    pub fn open_probe(&mut self, probe: u32, to: SocketAddr) -> Key {
        let key = self.sockets.insert(Socket::Probe(probe));
        self.io.connect(token_of(key), to);
        key
    }

    /// Closes the connection of a probe.
    pub fn close_probe(&mut self, key: Key) {
        self.sockets.remove(key);
        self.io.close(token_of(key), Close::Reset);
    }

    /// Called when a socket is connected. Passes it on to the connection or the resolver, and closes the
    /// other connections of a page's attempt. Returns what the socket is for. `wants_local`: read our own
    /// address.
    pub fn handle_connected(
        &mut self,
        key: Key,
        started: Instant,
        stamp: Stamp,
        wants_local: bool,
        now: Instant,
    ) -> Connected {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) => {
                let attempt = http.flight.expect("a new connection has an attempt");
                let remote = http.connection.remote();
                self.ports.granted(remote, now);
                let local = wants_local.then(|| self.io.local(token_of(key)));
                let origin = http.origin;
                let event = http
                    .connection
                    .handle_connected(local.flatten(), started, stamp);
                Connected::Page {
                    attempt,
                    origin,
                    remote,
                    event,
                    closed: self.handle_won(attempt, key),
                }
            }
            Some(Socket::Dns(socket)) => {
                self.names.handle_connected(*socket);
                Connected::Other
            }
            Some(Socket::Probe(probe)) => Connected::Probe(*probe),
            Some(Socket::Parting | Socket::Listener | Socket::Operator) | None => Connected::Other,
        }
    }
}
