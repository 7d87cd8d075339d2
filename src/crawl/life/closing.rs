//! How connections are closed, and what is forgotten with them and with the attempts they carried.

use super::flight::{Flight, Socket};
use crate::base::slab::Key;
use crate::crawl::core::{Core, token_of};
use crate::crawl::timer::Timer;
use crate::io::{Close, Io};

/// Idle connections closed each time that the pool's timer fires: each is a system call.
const CLOSED_AT_ONCE: usize = 16;

impl<I: Io> Core<I> {
    /// Closes a socket and forgets it.
    pub fn close_socket(&mut self, key: Key, how: Close) {
        self.pool.remove(key.slot);
        self.deadlines.cancel(Timer::Socket(key.slot));
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return;
        };
        self.buffered -= http.counted;
        let origin = http.origin;
        self.scratch.clear();
        if how == Close::Finish && http.connection.is_ready() {
            http.connection.close();
            let _ = http.connection.take_output(&mut self.scratch);
        }
        self.let_go_of(origin);
        if self.scratch.is_empty() {
            self.sockets.remove(key);
            self.io.close(token_of(key), how);
        } else {
            // close_notify leaves with the turn's other sends; then the socket closes.
            self.io.send(token_of(key), &self.scratch, false);
            *self.sockets.get_mut(key).expect("it was just there") = Socket::Parting;
            self.parting.push(key);
        }
    }

    /// The same of an idle connection, by its place in the pool.
    pub fn close_slot(&mut self, slot: u32, how: Close) {
        let key = self
            .sockets
            .key_of(slot)
            .expect("an idle connection is open");
        self.close_socket(key, how);
    }

    /// Closes the sockets whose last bytes have left.
    pub fn close_flushed(&mut self) {
        for key in std::mem::take(&mut self.parting) {
            self.sockets.remove(key);
            self.io.close(token_of(key), Close::Finish);
        }
    }

    /// Closes what has been idle for as long as the pool keeps it.
    pub fn on_idle_too_long(&mut self) {
        // The timer fires again for what is left.
        for _ in 0..CLOSED_AT_ONCE {
            let Some(slot) = self.pool.expire(self.now) else {
                return;
            };
            self.close_slot(slot, Close::Finish);
        }
    }

    /// Forgets what was kept of an attempt that is over.
    pub fn forget(&mut self, key: Key, flight: &Flight) {
        self.forget_times(key, flight);
        self.let_go_of(flight.origin);
    }

    /// The same, but for its origin.
    pub fn forget_times(&mut self, key: Key, flight: &Flight) {
        self.flight_of[flight.ticket.slot()] = None;
        self.deadlines.cancel(Timer::Flight(key.slot));
    }
}
