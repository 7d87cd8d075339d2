//! Keeps and closes connections, and releases what they carried.

use crate::base::address;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::Network;
use crate::crawl::network::origins::Origin;
use crate::crawl::network::socket::Carrier;
use crate::crawl::network::socket::{Socket, token_of};
use crate::crawl::timer::SlotTimer;
use crate::fetch::exchange::Exchange;
use crate::io::{Close, Io};

/// The exchange that a connection carried.
pub struct Carried {
    pub attempt: Key,
    pub exchange: Box<Exchange>,
    pub carrier: Carrier,
    pub origin: Origin,
}

/// A request that waits on a connection for its departure.
pub struct Waiting {
    pub attempt: Key,
    pub carrier: Carrier,
    /// The connection has carried others before.
    pub was_kept: bool,
}

/// Closing returns the origin of a connection, which the caller releases. Only connections of pages have
/// one.
impl<I: Io> Network<I> {
    /// Closes and removes an HTTP connection.
    pub fn close(&mut self, key: Key, how: Close) -> Option<Origin> {
        self.pool.remove(key.slot);
        self.deadlines.cancel(SlotTimer::Socket(key.slot));
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return None;
        };
        self.buffered -= http.counted;
        self.arriving -= http.arrived;
        let origin = http.origin;
        self.scratch.clear();
        if how == Close::Finish && http.connection.is_ready() {
            http.connection.close();
            let _ = http.connection.take_output(&mut self.scratch);
        }
        if self.scratch.is_empty() {
            self.sockets.remove(key);
            self.io.close(token_of(key), how);
        } else {
            // close_notify leaves with the turn's other sends; then the socket closes.
            self.io.send(token_of(key), &self.scratch, false);
            *self.sockets.get_mut(key).expect("it was just there") = Socket::Parting;
            self.parting.push(key);
        }
        Some(origin)
    }

    /// Closes the sockets whose last bytes have left.
    pub fn close_flushed(&mut self) {
        for key in std::mem::take(&mut self.parting) {
            self.sockets.remove(key);
            self.io.close(token_of(key), Close::Finish);
        }
    }

    /// Nothing more is queued for the origin of a connection.
    pub fn release_sessions(&self, key: Key) {
        self.http(key).connection.release_sessions();
    }

    /// Keeps an idle connection, which is needed at `due`. If there are too many, closes the one that is needed
    /// last.
    pub fn keep(&mut self, key: Key, due: Instant, now: Instant) -> Option<Origin> {
        let origin = self.http(key).origin;
        let evicted = self.pool.put(origin.number(), key.slot, due, now)?;
        self.close_idle(evicted)
    }

    /// Closes an idle connection of this origin, for which nothing more is queued; `None` if there is none.
    pub fn close_idle_of(&mut self, origin: Origin) -> Option<Origin> {
        let kept = self.pool.take(origin.number())?;
        if let Some(http) = self.sockets.http_by_slot(kept) {
            http.connection.release_sessions();
        }
        self.close_idle(kept)
    }

    /// Closes the idle connections to networks that were excluded since the run began; returns their origins.
    pub fn close_excluded(&mut self) -> Vec<Origin> {
        if !self.excludes_networks() {
            return Vec::new();
        }
        let keys = self.sockets.iter().map(|(key, _)| key);
        let keys = keys.filter(|key| self.pool.has(key.slot) && self.is_excluded(*key));
        let keys: Vec<Key> = keys.collect();
        let closed = keys.into_iter();
        closed
            .filter_map(|key| self.close(key, Close::Finish))
            .collect()
    }

    /// Whether networks were excluded since the run began.
    pub fn excludes_networks(&self) -> bool {
        self.names.guard().has_changed()
    }

    /// Whether a connection without a proxy leads to a network that was excluded since it was made.
    pub fn is_excluded(&self, key: Key) -> bool {
        if !self.excludes_networks() {
            return false;
        }
        let http = self.sockets.get(key).and_then(Socket::http);
        http.is_some_and(|http| {
            let is_direct = matches!(http.origin, Origin::Direct(_));
            let remote = http.connection.remote().ip();
            is_direct && self.names.guard().is_excluded_since(remote)
        })
    }

    /// Excludes a network by order, or withdraws that.
    pub fn exclude(&mut self, network: address::Network, is_excluded: bool) {
        let guard = self.names.guard_mut();
        match is_excluded {
            true => guard.exclude(network),
            false => guard.include(network),
        }
    }

    /// Closes the idle connection that is needed last; `None` if none is idle.
    pub fn evict_idle(&mut self) -> Option<Origin> {
        let kept = self.pool.evict()?;
        self.close_idle(kept)
    }

    /// Closes a connection that has been idle for the pool's limit; `None` if there is none.
    pub fn expire_idle(&mut self, now: Instant) -> Option<Origin> {
        let kept = self.pool.expire(now)?;
        self.close_idle(kept)
    }

    /// Number of idle connections.
    pub fn idle_len(&self) -> usize {
        self.pool.len()
    }

    /// The next time at which an idle connection may expire.
    pub fn idle_deadline(&self) -> Option<Instant> {
        self.pool.deadline()
    }

    /// Closes the idle connection in this slot.
    fn close_idle(&mut self, slot: u32) -> Option<Origin> {
        let key = self.sockets.key_of(slot);
        self.close(key.expect("an idle connection is open"), Close::Finish)
    }

    /// The request that waits on a connection; `None` if that is idle.
    pub fn waiting_on(&self, key: Key) -> Option<Waiting> {
        let http = self.http(key);
        http.flight.map(|attempt| Waiting {
            attempt,
            carrier: Carrier::of(&http.connection),
            was_kept: http.connection.used() > 0,
        })
    }

    /// Takes the exchange of a connection, which is over. The connection stays open.
    pub fn end_exchange(&mut self, key: Key) -> Carried {
        let carried = self.take_carried(key);
        self.recount(key);
        self.read_freely(key);
        carried
    }

    /// Takes the exchange of a connection that is about to be closed.
    pub fn take_carried(&mut self, key: Key) -> Carried {
        let http = self.http_mut(key);
        let attempt = http.flight.take().expect("a request has an attempt");
        let carrier = Carrier::of(&http.connection);
        let exchange = http.connection.take_exchange();
        let (origin, arrived) = (http.origin, std::mem::take(&mut http.arrived));
        // From now on they are counted as those of a reply that has ended.
        self.arriving -= arrived;
        Carried {
            attempt,
            exchange: exchange.expect("a finished exchange was not taken before"),
            carrier,
            origin,
        }
    }
}

/// The code of a reused connection that ended early, after which a request is repeated on a new one.
pub const IDLE_CLOSED: &str = "idle_closed";
