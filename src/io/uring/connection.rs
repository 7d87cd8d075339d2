//! What the io_uring back end knows of each socket.
//!
//! ```text
//! Vacant ── connect ──► Connecting ── established ──► Open ── FIN told ──► HalfClosed
//!    └───── open_datagram ─────────────────────────────▲
//! ```
//! From each of them a failure leads to `Failed`, and `close` back to `Vacant`.
//!
//! An open socket's receive operation has a life of its own:
//! ```text
//!  ┌──────── its last answer ─────────┬──────────────┐
//!  ▼                                  │              │
//! Off ── asked for ──► Queued ── handed over ──► Armed ── cancelled ──► Stopping
//!  ▲                                  │
//!  └── buffers came back ── Starved ◄─┘ no buffers
//! ```

use std::time::Duration;

use super::buffers::Queue;
use super::ring::Name;
use crate::base::time::Instant;
use crate::io::outbox::Backlog;
use crate::io::socket::Socket;
use crate::io::{NetError, Stamp, Token};

/// A slot of the table of sockets.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) generation: u32,
    /// How many sockets the slot has had: what answers are told apart by.
    pub(super) serial: u32,
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
    pub(super) receive: Receive,
    /// Whether the kernel was asked, or is to be asked, to say when it can be written to.
    pub(super) awaiting: bool,
    /// Received and not told yet.
    pub(super) untold: Queue,
    /// What comes after that.
    pub(super) ending: Option<Ending>,
    /// Whether it stands in the line of those that have something to tell.
    pub(super) in_line: bool,
    /// The turn in which it told something last, and how many bytes.
    pub(super) told: (u64, usize),
    /// The moment that nothing can arrive before: the attempt's start, then the last arrival.
    pub(super) floor: Instant,
    /// The attempt may have begun as much later.
    pub(super) attempt_slack: Duration,
    /// When the last marked send left.
    pub(super) asked: Instant,
    pub(super) blind: Blind,
    pub(super) arrivals: Arrivals,
    /// Made when first needed: most sockets take all they are given.
    pub(super) backlog: Option<Box<Backlog>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    Datagram,
}

/// How its receive operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    Off,
    /// To be handed over.
    Queued,
    Armed,
    /// Cancelled, and has not answered for the last time yet.
    Stopping,
    /// It ended for want of buffers, and stands in line for them.
    Starved,
}

/// What comes after the last bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Fin(Stamp),
    Failure(NetError),
}

/// The last time in which nobody looked at the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blind {
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// What tells whether arrivals were single segments: then their stamps are their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    /// Arrivals since segments were counted, all of them seen.
    since: u32,
    /// Segments that were counted then.
    segments: u32,
    /// One of them filled its buffer, so that a segment may have made two arrivals.
    cut: bool,
    /// Nothing is received at present, so that segments may lie unseen.
    stopped: bool,
}

impl Entry {
    pub(super) fn vacant() -> Self {
        Entry {
            generation: 0,
            serial: 0,
            state: State::Vacant,
        }
    }

    pub(super) fn token(&self, slot: usize) -> Token {
        Token {
            slot: slot as u32,
            generation: self.generation,
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

    /// The peer ended its side, and the caller was told.
    pub(super) fn end(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Vacant) {
            State::Open(connection) => State::HalfClosed(connection),
            other => other,
        };
    }

    /// Takes the socket out, if there still is one, and leaves this state.
    pub(super) fn leave(&mut self, state: State) -> Option<Connection> {
        match std::mem::replace(&mut self.state, state) {
            State::Connecting(connection)
            | State::Open(connection)
            | State::HalfClosed(connection) => Some(connection),
            State::Vacant | State::Failed => None,
        }
    }
}

impl Connection {
    pub(super) fn new(socket: Socket, kind: Kind, started: Instant) -> Self {
        Connection {
            socket,
            kind,
            reading: true,
            receive: Receive::Off,
            awaiting: false,
            untold: Queue::default(),
            ending: None,
            in_line: false,
            told: (0, 0),
            floor: started,
            attempt_slack: Duration::ZERO,
            asked: Instant::START,
            blind: Blind {
                since: started,
                until: Instant::FAR_FUTURE,
            },
            arrivals: Arrivals::default(),
            backlog: None,
        }
    }

    /// Takes note of an arrival; `cut` if it filled its buffer.
    pub(super) fn arrived(&mut self, cut: bool) {
        self.arrivals.since = self.arrivals.since.wrapping_add(1);
        self.arrivals.cut |= cut;
    }

    /// Takes note of whether anything is received.
    pub(super) fn receives(&mut self, on: bool) {
        self.arrivals.stopped = !on;
    }

    /// Whether all arrivals that were taken note of were one segment each, so that no stamp took
    /// the place of another. If it cannot be told the answer is no.
    ///
    /// `all_seen` says whether there are no arrivals that were not taken note of.
    pub(super) fn arrived_singly(&mut self, all_seen: impl FnOnce() -> bool) -> bool {
        // Each datagram has a stamp of its own.
        if self.kind == Kind::Datagram {
            return true;
        }
        let Some(segments) = self.socket.segments() else {
            return false;
        };
        let arrivals = self.arrivals;
        let came = segments.wrapping_sub(arrivals.segments);
        let singly = !arrivals.cut && came == arrivals.since;
        // From here it can be counted anew, unless there is one that was counted and not seen.
        if !singly && !arrivals.stopped && all_seen() {
            self.arrivals = Arrivals {
                segments,
                ..Arrivals::default()
            };
        }
        singly
    }

    /// Whether segments had to wait for one before them, now or earlier.
    pub(super) fn is_out_of_order(&self) -> bool {
        let received = self.socket.received();
        received.is_some_and(|received| received.out_of_order > 0)
    }

    pub(super) fn has_something_to_tell(&self) -> bool {
        !self.untold.is_empty() || self.ending.is_some()
    }

    /// Whether it is to be put in line; if so, it counts as standing there.
    pub(super) fn wants_turn(&mut self) -> bool {
        let wants = self.reading && self.has_something_to_tell() && !self.in_line;
        self.in_line |= wants;
        wants
    }

    /// Whether the kernel should be receiving. What is untold must not grow without a bound.
    pub(super) fn wants_receive(&self, untold_max: usize) -> bool {
        self.reading && self.ending.is_none() && self.untold.bytes() < untold_max
    }

    pub(super) fn has_backlog(&self) -> bool {
        self.backlog
            .as_ref()
            .is_some_and(|backlog| !backlog.is_empty())
    }

    /// Keeps bytes until the socket takes them.
    pub(super) fn hold_back(&mut self, bytes: &[u8], mark: bool) {
        self.backlog.get_or_insert_default().push(bytes, mark);
    }
}

/// The entry that an operation was for, unless its slot has another user by now.
pub(super) fn named(entries: &mut [Entry], name: Name) -> Option<&mut Entry> {
    entries
        .get_mut(name.slot as usize)
        .filter(|entry| entry.serial == name.serial)
}

/// The entry a token names, unless its slot has another user by now.
pub(super) fn current(entries: &mut [Entry], token: Token) -> Option<&mut Entry> {
    entries
        .get_mut(token.slot as usize)
        .filter(|entry| entry.generation == token.generation)
}
