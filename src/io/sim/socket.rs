//! Our end of a simulated connection.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::base::time::Instant;
use crate::io::NetError;
use crate::io::sockets::Kind;
use crate::io::sockets::listening::Place;
use crate::io::sockets::ready::ReadState;

/// Identifies a connection or a datagram socket to the world; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// A slot of the table of sockets.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) generation: u32,
    pub(super) state: State,
}

/// `Vacant → Connecting → Open`; datagram sockets are open at once. A failure leads to `Failed`,
/// `close` back to `Vacant`.
#[derive(Debug)]
pub(super) enum State {
    Vacant,
    Connecting(Socket),
    Open(Socket),
    Failed,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) id: ConnId,
    /// The other side's address; for an accepted connection ours, if it has one.
    pub(super) to: Option<SocketAddr>,
    pub(super) started: Instant,
    pub(super) kind: Kind,
    pub(super) reading: bool,
    pub(super) reads: ReadState,
    /// Bytes received and not read, with their times.
    pub(super) inbox: VecDeque<(Instant, Arrival)>,
    /// Bytes sent before the connection was established.
    pub(super) held: Vec<Held>,
    /// Its place among the accepted connections, if a listener accepted it.
    pub(super) place: Option<Place>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    pub(super) mark: bool,
}

/// Events that arrive on a connection.
#[derive(Debug)]
pub(super) enum Arrival {
    Bytes(Vec<u8>),
    End,
    Failure(NetError),
}

impl Entry {
    pub(super) fn vacant() -> Self {
        Entry {
            generation: 0,
            state: State::Vacant,
        }
    }

    pub(super) fn socket(&mut self) -> Option<&mut Socket> {
        match &mut self.state {
            State::Connecting(socket) | State::Open(socket) => Some(socket),
            State::Vacant | State::Failed => None,
        }
    }

    pub(super) fn establish(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Vacant) {
            State::Connecting(socket) => State::Open(socket),
            other => other,
        };
    }

    pub(super) fn vacate(&mut self) -> Option<Socket> {
        match std::mem::replace(&mut self.state, State::Vacant) {
            State::Connecting(socket) | State::Open(socket) => Some(socket),
            State::Vacant | State::Failed => None,
        }
    }
}

impl Socket {
    pub(super) fn new(id: ConnId, to: SocketAddr, started: Instant, kind: Kind) -> Self {
        Socket {
            id,
            to: Some(to),
            started,
            kind,
            reading: true,
            reads: ReadState::new(kind),
            inbox: VecDeque::new(),
            held: Vec::new(),
            place: None,
        }
    }

    /// A connection to a listener at this address.
    pub(super) fn accepted(id: ConnId, local: Option<SocketAddr>, now: Instant) -> Self {
        Socket {
            id,
            to: local,
            started: now,
            kind: Kind::Stream,
            reading: true,
            reads: ReadState::new(Kind::Stream),
            inbox: VecDeque::new(),
            held: Vec::new(),
            place: None,
        }
    }

    /// The destination, if it was opened from one of our ports.
    pub(super) fn connected_to(&self) -> Option<SocketAddr> {
        self.to
            .filter(|_| self.kind == Kind::Stream && self.place.is_none())
    }

    /// Whether it is read and has something to read.
    pub(super) fn has_unread(&self) -> bool {
        self.reading && !self.inbox.is_empty()
    }
}
