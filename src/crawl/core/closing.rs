//! Closes connections, and counts the connections and attempts of each origin.

use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::Flight;
use crate::crawl::network::origins::Origin;
use crate::io::{Close, Io};

/// Idle connections closed each time that the pool's timer fires: each is a system call.
const CLOSED_AT_ONCE: usize = 16;

impl<I: Io> Core<I> {
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
    pub fn on_idle_too_long(&mut self) {
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
            Origin::ByProxy(number) => self.network.share_way(number),
        }
    }

    /// A connection or an attempt of an origin is over.
    pub fn release_origin(&mut self, origin: Origin) {
        match origin {
            Origin::Direct(number) => self.frontier.release_origin(number, self.now),
            Origin::ByProxy(number) => self.network.give_back_way(number),
        }
    }

    /// Forgets what was kept of an attempt that is over.
    pub fn forget(&mut self, key: Key, flight: &Flight) {
        self.network.cancel_attempt(key);
        self.release_origin(flight.origin);
    }
}
