//! How connections are closed, and what is forgotten with them and with the attempts they carried.

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
            self.let_go_of(origin);
        }
    }

    /// Closes the connections that were kept for an origin.
    pub fn close_idle(&mut self, origin: Origin) {
        while let Some(origin) = self.network.close_idle_of(origin) {
            self.let_go_of(origin);
        }
    }

    /// Closes what has been idle for as long as the pool keeps it.
    pub fn on_idle_too_long(&mut self) {
        // The timer fires again for what is left.
        for _ in 0..CLOSED_AT_ONCE {
            let Some(origin) = self.network.expire_idle(self.now) else {
                return;
            };
            self.let_go_of(origin);
        }
    }

    /// Forgets what was kept of an attempt that is over.
    pub fn forget(&mut self, key: Key, flight: &Flight) {
        self.network.cancel_attempt(key);
        self.let_go_of(flight.origin);
    }
}
