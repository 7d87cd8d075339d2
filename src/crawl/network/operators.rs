//! Sockets of the control interface: its listeners, and the connections of operators.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;

use crate::admin::access::Via;
use crate::base::slab::Key;
use crate::crawl::network::Network;
use crate::crawl::network::socket::{Socket, key_of, token_of};
use crate::io::{Accepted, Close, Endpoint, Io, Peer, Token};

/// What happened on a connection of an operator.
#[derive(Debug)]
pub enum OperatorEvent {
    /// It was accepted.
    Accepted(Via),
    /// Bytes arrived.
    Received(Vec<u8>),
    /// The client sends nothing more.
    Ended,
    /// It failed, and is closed.
    Failed,
}

/// Sockets of the control interface.
#[derive(Debug, Default)]
pub struct Operators {
    listeners: BTreeSet<Key>,
    connections: usize,
    events: VecDeque<(Key, OperatorEvent)>,
}

impl Operators {
    /// Number of sockets.
    pub fn sockets(&self) -> usize {
        self.listeners.len() + self.connections
    }

    /// Bytes arrived on a connection.
    pub fn handle_received(&mut self, key: Key, bytes: &[u8]) {
        self.events
            .push_back((key, OperatorEvent::Received(bytes.to_vec())));
    }

    /// The client of a connection ended its side.
    pub fn handle_ended(&mut self, key: Key) {
        self.events.push_back((key, OperatorEvent::Ended));
    }
}

impl<I: Io> Network<I> {
    /// Listens for operators; returns the address of a TCP listener.
    ///
    /// # Errors
    /// The system's, with the endpoint.
    pub fn listen(&mut self, at: &Endpoint) -> io::Result<Option<SocketAddr>> {
        let key = self.sockets.insert(Socket::Listener);
        if let Err(error) = self.io.listen(token_of(key), at) {
            self.sockets.remove(key);
            return Err(error);
        }
        self.operators.listeners.insert(key);
        Ok(self.io.local(token_of(key)))
    }

    /// Stops listening, and closes all connections of operators.
    pub fn close_operators(&mut self, connections: impl Iterator<Item = Key>) {
        for key in connections {
            self.close_operator(key);
        }
        for key in std::mem::take(&mut self.operators.listeners) {
            self.sockets.remove(key);
            self.io.close(token_of(key), Close::Finish);
        }
        self.operators.events.clear();
    }

    /// A listener accepted a connection.
    pub fn handle_accepted(&mut self, listener: Token, accepted: Accepted, peer: Peer) {
        if !self.operators.listeners.contains(&key_of(listener)) {
            return;
        }
        let via = match peer {
            Peer::Unix(credentials) => Via::Unix {
                uid: credentials.uid,
            },
            Peer::Tcp(from) => Via::Tcp { from },
        };
        let key = self.sockets.insert(Socket::Operator);
        self.io.accept(token_of(key), accepted);
        self.operators.connections += 1;
        self.operators
            .events
            .push_back((key, OperatorEvent::Accepted(via)));
    }

    /// The connection of an operator failed.
    pub(super) fn fail_operator(&mut self, key: Key) {
        self.close_operator(key);
        self.operators
            .events
            .push_back((key, OperatorEvent::Failed));
    }

    /// The next event of a connection of an operator.
    pub fn poll_operator_event(&mut self) -> Option<(Key, OperatorEvent)> {
        self.operators.events.pop_front()
    }

    /// Sends bytes to an operator at the end of the turn. A turn follows once the first of them, and once the last
    /// of them has left.
    pub fn send_to_operator(&mut self, key: Key, bytes: &[u8]) {
        self.io.send(token_of(key), bytes, true);
    }

    /// Bytes sent to an operator in earlier turns that have not left.
    pub fn unsent_to_operator(&self, key: Key) -> usize {
        self.io.unsent(token_of(key))
    }

    /// Stops or resumes reading from an operator.
    pub fn read_operator(&mut self, key: Key, on: bool) {
        self.io.set_reading(token_of(key), on);
    }

    /// Closes the connection of an operator.
    pub fn close_operator(&mut self, key: Key) {
        if self.sockets.remove(key).is_some() {
            self.io.close(token_of(key), Close::Finish);
            self.operators.connections -= 1;
        }
    }
}
