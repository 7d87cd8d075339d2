//! Host names to addresses: the resolver and its sockets, the lanes that wait for it, and the addresses that
//! may be connected to.

use std::net::IpAddr;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::guard::Guard;
use crate::crawl::network::lookups::Lookups;
use crate::fetch::failure::Failure;
use crate::fetch::resolver::{
    Action, Addresses, Answer, Lookup, NameView, Resolver, SocketId, Waiter,
};

/// Names of hosts, with their addresses.
pub struct Names {
    resolver: Resolver,
    /// The resolver's sockets, as many as it may have ports and connections.
    sockets: HashMap<SocketId, Key, Secret>,
    lookups: Lookups,
    guard: Guard,
}

impl Names {
    /// No names.
    pub fn new(resolver: Resolver, guard: Guard, secret: &Secret) -> Self {
        Names {
            resolver,
            sockets: HashMap::with_hasher(*secret),
            lookups: Lookups::new(secret),
            guard,
        }
    }

    /// The lookups of lanes.
    pub fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    /// The same, mutable.
    pub fn lookups_mut(&mut self) -> &mut Lookups {
        &mut self.lookups
    }

    /// Looks up a host; see [`Resolver::resolve`].
    pub fn resolve(&mut self, host: &str, port: u16, waiter: Waiter, now: Instant) -> Lookup {
        self.resolver.resolve(host, port, waiter, now)
    }

    /// Looks up a host without the cache; see [`Resolver::resolve_anew`].
    pub fn resolve_anew(&mut self, host: &str, port: u16, waiter: Waiter, now: Instant) -> Lookup {
        self.resolver.resolve_anew(host, port, waiter, now)
    }

    /// Whether a lookup of a host would begin at once.
    pub fn knows(&self, host: &str, port: u16, now: Instant) -> bool {
        self.resolver.knows(host, port, now)
    }

    /// What is known of a host; see [`Resolver::view`].
    pub fn view(&self, host: &str, port: u16, now: Instant) -> NameView {
        self.resolver.view(host, port, now)
    }

    /// Whether an override answers for a host.
    pub fn is_fixed(&self, host: &str, port: u16) -> bool {
        self.resolver.is_fixed(host, port)
    }

    /// Checks a host whose addresses are known without a name server; the error is the failure of its attempts.
    pub fn check_fixed(&self, host: &str, port: u16) -> Result<(), Failure> {
        match self.resolver.fixed_answer(host, port) {
            Some(answer) => self.allowed_of(&answer).map(drop),
            None => Ok(()),
        }
    }

    /// Forgets failed lookups: the name servers work again.
    pub fn forget_failures(&mut self, now: Instant) {
        self.resolver.forget_failures(now);
    }

    /// The addresses that may be connected to.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The same, mutable.
    pub fn guard_mut(&mut self) -> &mut Guard {
        &mut self.guard
    }

    /// Checks whether `address` may be connected to; the error is the failure of the attempt.
    pub fn check(&self, address: IpAddr) -> Result<(), Failure> {
        self.guard.check(address)
    }

    /// Checks a host that a proxy looks up, as [`Guard::check_host`].
    pub fn check_host(&self, host: &str) -> Result<(), Failure> {
        self.guard.check_host(host)
    }

    /// The addresses of an answer that may be connected to.
    ///
    /// # Errors
    /// None of them may be connected to: the failure of the attempt.
    pub fn allowed_of(&self, answer: &Answer) -> Result<Addresses, Failure> {
        let mut refused = None;
        let mut addresses = Addresses::new();
        for address in &answer.addresses {
            match self.guard.check(*address) {
                Ok(()) => addresses.push(*address),
                Err(failure) => refused = refused.or(Some(failure)),
            }
        }
        match addresses.is_empty() {
            false => Ok(addresses),
            true => Err(refused.expect("an answer has at least one address")),
        }
    }

    /// The next action for the resolver.
    pub fn poll(&mut self) -> Option<Action> {
        self.resolver.poll()
    }

    /// Whether a socket to a name server is open.
    pub fn has_sockets(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Records the key of a socket that was opened for the resolver.
    pub fn add_socket(&mut self, socket: SocketId, key: Key) {
        self.sockets.insert(socket, key);
    }

    /// The key of one of the resolver's sockets.
    pub fn socket(&self, socket: SocketId) -> Option<Key> {
        self.sockets.get(&socket).copied()
    }

    /// Removes one of the resolver's sockets; returns its key.
    pub fn remove_socket(&mut self, socket: SocketId) -> Option<Key> {
        self.sockets.remove(&socket)
    }

    /// Returns the earliest deadline of a query.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.resolver.next_timeout()
    }

    /// Called when the deadline of a query may be over. Retries or ends the queries that are overdue.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.resolver.handle_timeout(now);
    }

    /// Called when a connection to a name server is established. Passes it on to the resolver, which sends
    /// its queries.
    pub fn handle_connected(&mut self, socket: SocketId) {
        self.resolver.handle_connected(socket);
    }

    /// Called when a query has left. Passes its departure time on to the resolver.
    pub fn handle_sent(&mut self, socket: SocketId, at: Instant) {
        self.resolver.handle_sent(socket, at);
    }

    /// Called when bytes from a name server arrived at `arrived`. Passes them on to the resolver.
    pub fn handle_received(
        &mut self,
        socket: SocketId,
        bytes: &[u8],
        arrived: Instant,
        now: Instant,
    ) {
        self.resolver.handle_received(socket, bytes, arrived, now);
    }

    /// Called when a socket of the resolver failed, or its peer closed it. Removes the socket, and notifies
    /// the resolver.
    pub fn handle_ended(&mut self, socket: SocketId, now: Instant) {
        self.sockets.remove(&socket);
        self.resolver.handle_ended(socket, now);
    }
}
