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

use std::net::SocketAddr;
use std::time::Duration;

use super::buffers::Queue;
use super::ring::Name;
use crate::base::time::Instant;
use crate::io::outbox::{Backlog, Held};
use crate::io::socket::{Received, Socket};
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

/// How bytes have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Each segment, or datagram, by itself, so that no stamp took the place of another.
    Alone,
    /// Some of them together, for all that is known.
    Unknown,
    /// The same, and segments had to wait for one before them, now or earlier: the stamp may be older
    /// than that.
    OutOfOrder,
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
    /// Arrivals that were taken note of and not judged.
    unjudged: u32,
    /// The first of those: they came before segments were counted.
    doubtful: u32,
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
    pub(super) fn note_arrival(&mut self, cut: bool) {
        self.arrivals.since = self.arrivals.since.wrapping_add(1);
        self.arrivals.unjudged += 1;
        self.arrivals.cut |= cut;
    }

    /// Takes note of whether anything is received.
    pub(super) fn receives(&mut self, on: bool) {
        self.arrivals.stopped = !on;
    }

    /// The next arrival that was taken note of is judged, and not to be asked about any more.
    pub(super) fn judged(&mut self) {
        self.arrivals.unjudged -= 1;
        self.arrivals.doubtful = self.arrivals.doubtful.saturating_sub(1);
    }

    /// How the next arrival has come, by the kernel's count of all that were taken note of.
    ///
    /// `all_seen` says whether there are no arrivals that were not taken note of.
    pub(super) fn arrived(&mut self, all_seen: impl FnOnce() -> bool) -> Arrived {
        if self.kind == Kind::Datagram {
            return Arrived::Alone;
        }
        let Some(Received {
            segments,
            out_of_order,
        }) = self.socket.received()
        else {
            return Arrived::Unknown;
        };
        let arrivals = self.arrivals;
        let came = segments.wrapping_sub(arrivals.segments);
        if !arrivals.cut && came == arrivals.since && arrivals.doubtful == 0 {
            return Arrived::Alone;
        }
        if out_of_order > 0 {
            // One that was counted may still wait for what is missing.
            return Arrived::OutOfOrder;
        }
        // From here it can be counted anew, unless there is one that was counted and not seen.
        if !arrivals.stopped && all_seen() {
            self.arrivals = Arrivals {
                segments,
                unjudged: arrivals.unjudged,
                doubtful: arrivals.unjudged,
                ..Arrivals::default()
            };
        }
        Arrived::Unknown
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
    pub(super) fn hold_back(&mut self, bytes: &[u8], held: Held) {
        self.backlog.get_or_insert_default().push(bytes, held);
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn where_segments_came_together_no_arrival_of_that_time_is_known_to_be_one() {
        let (socket, mut peer) = Socket::connected();
        let mut connection = Connection::new(socket, Kind::Stream, Instant::START);
        let mut say = |segments| (0..segments).for_each(|_| peer.write_all(b"!").expect("heard"));
        let judge = |connection: &mut Connection| {
            let arrived = connection.arrived(|| true);
            connection.judged();
            arrived
        };
        say(2);
        (0..2).for_each(|_| connection.note_arrival(false));
        assert_eq!(judge(&mut connection), Arrived::Alone);
        assert_eq!(judge(&mut connection), Arrived::Alone);
        // Three segments made two arrivals: either may be two of them.
        say(3);
        (0..2).for_each(|_| connection.note_arrival(false));
        assert_eq!(judge(&mut connection), Arrived::Unknown);
        assert_eq!(judge(&mut connection), Arrived::Unknown);
        say(1);
        connection.note_arrival(false);
        assert_eq!(judge(&mut connection), Arrived::Alone);
    }
}
