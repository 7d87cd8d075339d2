//! Actions of the resolver: its sockets are opened, written to and closed.

use crate::base::ids::LaneId;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::Network;
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
            // Not the turn's moment: the lookup that it joins may continue in this very turn.
            Lookup::Pending => self.names.lookups_mut().begin(lane, self.io.now()),
            Lookup::Busy => self.names.lookups_mut().refuse(lane),
        }
        lookup
    }

    /// Does what the resolver wants done, until a lookup is over. `steps`: so much may be done in this turn.
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
