//! What the epoll back end knows of each socket.
//!
//! ```text
//! Vacant ── connect ──► Connecting ── established ──► Open ── FIN ──► HalfClosed
//!    └───── open_datagram ─────────────────────────────▲
//! ```
//! From each of them a failure leads to `Failed`, and `close` back to `Vacant`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::time::Instant;
use crate::io::Token;
use crate::io::outbox::{Backlog, Held};
use crate::io::socket::Socket;
use crate::io::stamps::Unseen;

/// A slot of the table of sockets.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) generation: u32,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Vacant,
    /// Waits for the answer to its SYN.
    Connecting(Connection),
    Open(Connection),
    /// The peer has ended its side; we may still send.
    HalfClosed(Connection),
    /// Told to the caller, who has yet to close it.
    Failed,
}

/// A socket and what is to be done with it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) kind: Kind,
    /// Whether the caller wants to read.
    pub(super) reading: bool,
    /// Whether it stands in the line of those to be read.
    pub(super) in_line: bool,
    /// There was an edge, and the socket has not been drained since.
    pub(super) unread: Option<Unread>,
    /// The moment that nothing can arrive before: the attempt's start, then the last arrival.
    pub(super) floor: Instant,
    /// The attempt may have begun as much later.
    pub(super) attempt_slack: Duration,
    /// When the last marked send left.
    pub(super) asked: Instant,
    /// Segments with data that the kernel had taken, where all of them are known to have been read.
    segments: Option<u32>,
    /// Made when first needed: most sockets take all they are given.
    pub(super) backlog: Option<Box<Backlog>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    Datagram,
}

/// How the bytes of a read have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// In one segment, or as one datagram: the stamp can be no other's.
    Alone,
    /// In one or more.
    Unknown,
    /// Segments had to wait for one before them, now or earlier: the stamp may be older than that.
    OutOfOrder,
}

/// Something to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    pub(super) before: Unseen,
    /// An end or an error stands behind the bytes, and makes no edge of its own.
    pub(super) ending: bool,
}

impl Entry {
    pub(super) fn vacant() -> Self {
        Entry {
            generation: 0,
            state: State::Vacant,
        }
    }

    pub(super) fn token(&self, slot: usize) -> Token {
        Token {
            slot: slot as u32,
            generation: self.generation,
        }
    }

    /// Our own address, if it is established.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        match &self.state {
            State::Open(connection) | State::HalfClosed(connection) => {
                connection.socket.local().ok()
            }
            State::Vacant | State::Connecting(_) | State::Failed => None,
        }
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            State::Connecting(connection)
            | State::Open(connection)
            | State::HalfClosed(connection) => Some(connection),
            State::Vacant | State::Failed => None,
        }
    }

    /// The SYN was answered.
    pub(super) fn establish(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Vacant) {
            State::Connecting(connection) => State::Open(connection),
            other => other,
        };
    }

    /// The peer ended its side.
    pub(super) fn end(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Vacant) {
            State::Open(connection) => State::HalfClosed(connection),
            other => other,
        };
    }

    /// The caller is done with it; the socket, if there still is one.
    pub(super) fn vacate(&mut self) -> Option<Connection> {
        match std::mem::replace(&mut self.state, State::Vacant) {
            State::Connecting(connection)
            | State::Open(connection)
            | State::HalfClosed(connection) => Some(connection),
            State::Vacant | State::Failed => None,
        }
    }
}

impl Connection {
    pub(super) fn new(
        socket: Socket,
        kind: Kind,
        started: Instant,
        attempt_slack: Duration,
    ) -> Self {
        Connection {
            socket,
            kind,
            reading: true,
            in_line: false,
            unread: None,
            floor: started,
            attempt_slack,
            asked: Instant::START,
            segments: (kind == Kind::Stream).then_some(0),
            backlog: None,
        }
    }

    /// Before a read: how many segments there have been, where that may be needed later on. If the
    /// read leaves nothing, those were read for certain.
    pub(super) fn count_before(&self, is_wanted: bool) -> Option<u32> {
        let socket = Some(&self.socket).filter(|_| is_wanted && self.kind == Kind::Stream);
        socket?.segments()
    }

    /// How what a read gave has come. The kernel is asked if `asks`. `counted` segments were there
    /// before the read; `drained`: it left none.
    pub(super) fn arrived(&mut self, asks: bool, counted: Option<u32>, drained: bool) -> Arrived {
        if self.kind == Kind::Datagram {
            return Arrived::Alone;
        }
        let known = self.segments.take();
        self.segments = counted.filter(|_| drained);
        let received = if asks { self.socket.received() } else { None };
        let Some(received) = received else {
            return Arrived::Unknown;
        };
        if received.out_of_order > 0 {
            return Arrived::OutOfOrder;
        }
        // One that came after the read is counted as well: where it was only one, that was read.
        if known.is_none_or(|known| received.segments.wrapping_sub(known) != 1) {
            return Arrived::Unknown;
        }
        self.segments = Some(received.segments).filter(|_| drained);
        Arrived::Alone
    }

    /// Counts the segments so far, if nothing waits to be read, for [`Connection::arrived`].
    pub(super) fn count_segments(&mut self) {
        if self.kind == Kind::Stream && self.segments.is_none() && self.unread.is_none() {
            self.segments = self.socket.segments();
        }
    }

    /// Drops the stamps of departures that came too late to be told. While one waits, each edge of the
    /// socket says that an error stands behind what is to be read.
    pub(super) fn forget_stamps(&self) {
        while self.socket.departed().is_some() {}
    }

    /// Whether it is to be put in line; if so, it counts as standing there.
    pub(super) fn wants_turn(&mut self) -> bool {
        let wants = self.reading && self.unread.is_some() && !self.in_line;
        self.in_line |= wants;
        wants
    }

    pub(super) fn has_backlog(&self) -> bool {
        self.backlog
            .as_ref()
            .is_some_and(|backlog| !backlog.is_empty())
    }

    /// Keeps bytes until the socket takes them.
    pub(super) fn hold_back(&mut self, bytes: &[u8], held: Held) {
        self.backlog.get_or_insert_default().push(bytes, held);
    }
}

/// The entry a token names, unless its slot has another user by now.
pub(super) fn current(entries: &mut [Entry], token: Token) -> Option<&mut Entry> {
    entries
        .get_mut(token.slot as usize)
        .filter(|entry| entry.generation == token.generation)
}
