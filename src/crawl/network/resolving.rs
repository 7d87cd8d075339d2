//! Lookups of lanes and probes, and the actions of the resolver: its sockets are opened, written to and
//! closed.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::ids::LaneId;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::Network;
#[cfg(doc)]
use crate::crawl::network::lookups::Lookups;
use crate::crawl::network::names::Names;
use crate::crawl::network::socket::{Socket, token_of};
use crate::fetch::failure::Failure;
use crate::fetch::resolver::{Action, Answer, Lookup, SocketId, Transport, Waiter};
use crate::io::{Close, Io};

/// A lookup that is over; see [`Action::Resolved`].
pub struct Resolved {
    pub host: Box<str>,
    pub waiters: Vec<Waiter>,
    pub left: Option<Instant>,
    pub over: Instant,
    pub result: Result<Answer, Failure>,
}

impl<I: Io> Network<I> {
    /// Looks up the host of a lane, which waits where the answer is not ready.
    pub fn look_up(&mut self, lane: LaneId, host: &str, port: u16, now: Instant) -> Lookup {
        let lookup = self.names.resolve(host, port, u64::from(lane.0), now);
        match lookup {
            Lookup::Ready(_) => {}
            // Not the turn's time: the lookup that it joins may send its query within this turn.
            Lookup::Pending => self.names.lookups_mut().begin(lane, self.io.now()),
            Lookup::Busy => self.names.lookups_mut().refuse(lane),
        }
        lookup
    }

    /// Looks up a host for a probe; see [`Resolver::resolve`](crate::fetch::resolver::Resolver::resolve).
    pub fn look_up_for_probe(
        &mut self,
        host: &str,
        port: u16,
        waiter: Waiter,
        now: Instant,
    ) -> Lookup {
        self.names.resolve(host, port, waiter, now)
    }

    /// Looks up a host without the cache; see [`Names::resolve_anew`].
    pub fn look_up_anew(&mut self, host: &str, port: u16, waiter: Waiter, now: Instant) -> Lookup {
        self.names.resolve_anew(host, port, waiter, now)
    }

    /// What is known of names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Forgets failed lookups: the name servers work again.
    pub fn forget_failed_lookups(&mut self, now: Instant) {
        self.names.forget_failures(now);
    }

    /// Called when the deadline of a query may be over. Retries or ends the queries that are overdue.
    pub fn handle_query_timeout(&mut self, now: Instant) {
        self.names.handle_timeout(now);
    }

    /// Whether one more lane may wait for a name, of at most `max`.
    pub fn may_look_up(&self, max: usize) -> bool {
        let lookups = self.names.lookups();
        !lookups.has_refused() && lookups.under_way() < max
    }

    /// A lane waits for a lookup that is under way; see [`Lookups::begin`].
    pub fn begin_lookup(&mut self, lane: LaneId, now: Instant) {
        self.names.lookups_mut().begin(lane, now);
    }

    /// Ends a lane's wait for its lookup; see [`Lookups::end`].
    pub fn end_lookup(&mut self, lane: LaneId, left: Option<Instant>, over: Instant) {
        self.names.lookups_mut().end(lane, left, over);
    }

    /// Returns the duration of a lane's last lookup; 0 if something was sent since.
    pub fn lookup_took(&self, lane: LaneId) -> Duration {
        self.names.lookups().took(lane)
    }

    /// Takes the duration of a lane's last lookup; see [`Lookups::take`].
    pub fn take_lookup(&mut self, lane: LaneId) -> Option<Duration> {
        self.names.lookups_mut().take(lane)
    }

    /// Removes the records of a closed lane; see [`Lookups::forget`].
    pub fn forget_lookup(&mut self, lane: LaneId) {
        self.names.lookups_mut().forget(lane);
    }

    /// Takes the lanes that wait for room in the resolver.
    pub fn take_refused_lookups(&mut self) -> VecDeque<LaneId> {
        self.names.lookups_mut().take_refused()
    }

    /// Performs the resolver's actions until a lookup ends. `steps`: the number of actions left in this turn.
    pub fn poll_resolved(&mut self, steps: &mut usize) -> Option<Resolved> {
        while *steps > 0 {
            let action = self.names.poll()?;
            *steps -= 1;
            match action {
                Action::Open {
                    socket,
                    server,
                    transport,
                } => {
                    let key = self.sockets.insert(Socket::Dns(socket));
                    self.names.add_socket(socket, key);
                    match transport {
                        Transport::Udp => self.io.open_datagram(token_of(key), server),
                        Transport::Tcp => self.io.connect(token_of(key), server),
                    }
                }
                Action::Send { socket, bytes } => {
                    if let Some(key) = self.names.socket(socket) {
                        self.io.send(token_of(key), &bytes, true);
                    }
                }
                Action::Close { socket } => {
                    if let Some(key) = self.names.remove_socket(socket) {
                        self.sockets.remove(key);
                        self.io.close(token_of(key), Close::Finish);
                    }
                }
                Action::Resolved {
                    host,
                    waiters,
                    left,
                    over,
                    result,
                } => {
                    return Some(Resolved {
                        host,
                        waiters,
                        left,
                        over,
                        result,
                    });
                }
            }
        }
        None
    }

    /// A socket of the resolver's has ended or failed.
    pub(super) fn end_dns(&mut self, key: Key, socket: SocketId, now: Instant) {
        self.sockets.remove(key);
        self.io.close(token_of(key), Close::Reset);
        self.names.handle_ended(socket, now);
    }
}
