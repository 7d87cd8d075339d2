//! Our end of a simulated connection.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::ConnId;
use crate::base::time::Instant;
use crate::io::NetError;

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
    pub(super) to: SocketAddr,
    pub(super) started: Instant,
    pub(super) datagram: bool,
    pub(super) reading: bool,
    pub(super) in_line: bool,
    /// What has arrived and was not read, with the moment it did.
    pub(super) inbox: VecDeque<(Instant, Arrival)>,
    /// What was sent before the connection stood.
    pub(super) held: Vec<Held>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    pub(super) mark: bool,
}

/// What comes in on a connection.
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
    pub(super) fn new(id: ConnId, to: SocketAddr, started: Instant, datagram: bool) -> Self {
        Socket {
            id,
            to,
            started,
            datagram,
            reading: true,
            in_line: false,
            inbox: VecDeque::new(),
            held: Vec::new(),
        }
    }

    /// Whether it is to be put in line; if so, it counts as standing there.
    pub(super) fn wants_turn(&mut self) -> bool {
        let wants = self.reading && !self.inbox.is_empty() && !self.in_line;
        self.in_line |= wants;
        wants
    }
}
