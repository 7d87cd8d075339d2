//! The table of sockets that both kernel back ends share: slots by token, their states, the queue of those
//! that have something to read, and what a connection is besides its input.
//!
//! ```text
//! Vacant ── connect ──► Connecting ── established ──► Open ── FIN reported ──► HalfClosed
//!    └── open_datagram, accept ────────────────────────▲
//! ```
//! From each of them a failure leads to `Failed`, and `close` back to `Vacant`.

pub(super) mod accepted;
pub(super) mod listening;
pub(super) mod connect_meter;
pub(super) mod listeners;
pub(super) mod outbox;
pub(super) mod ready;
pub(super) mod socket;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use self::connect_meter::ConnectMeter;
use self::listeners::Listeners;
use self::outbox::{Backlog, Held};
use self::ready::{ReadState, ReadyQueue, TurnReads};
use self::socket::Socket;
use super::stamps::departures::{Departure, Departures};
use super::stamps::{Stamps, departure_slack};
use super::{Event, NetError, Token, Waker};
use crate::base::time::Instant;

/// The back end's part of a connection: its input.
pub(super) trait Input {
    /// The input of a connection that begins at this moment.
    fn new(kind: Kind, started: Instant) -> Self;

    /// Whether there is something to read or to report.
    fn is_pending(&self) -> bool;

    /// Whether something has come that was not read, here or in the kernel as far as known.
    fn is_unread(&self) -> bool {
        self.is_pending()
    }
}

/// All sockets of a back end, by [`Token::slot`].
#[derive(Debug)]
pub(super) struct Sockets<I> {
    entries: Vec<Entry<I>>,
    /// Open sockets of `connect` and `open_datagram`.
    open: usize,
    capacity: usize,
    /// Open sockets with pending input, in order of their turns. May contain stale tokens.
    ready: ReadyQueue,
    pub(super) listeners: Listeners,
}

/// A slot of the table.
#[derive(Debug)]
pub(super) struct Entry<I> {
    generation: u32,
    /// How many sockets the slot has had.
    serial: u32,
    state: State<I>,
}

#[derive(Debug)]
pub(super) enum State<I> {
    Vacant,
    /// Waits for the answer to its SYN.
    Connecting(Connection<I>),
    Open(Connection<I>),
    /// The peer has ended its side; we can still send.
    HalfClosed(Connection<I>),
    /// Reported to the caller, who has yet to close it.
    Failed,
}

/// A socket and its state.
#[derive(Debug)]
pub(super) struct Connection<I> {
    pub(super) socket: Socket,
    pub(super) kind: Kind,
    /// Whether the caller wants to read.
    pub(super) reading: bool,
    pub(super) reads: ReadState,
    /// Nothing can arrive before this: the start of the attempt, then the last arrival.
    pub(super) floor: Instant,
    /// The attempt may have begun as much later.
    pub(super) attempt_slack: Duration,
    /// When the last marked send left.
    pub(super) sent_at: Instant,
    /// Allocated when first needed: most sockets take all they are given.
    pub(super) backlog: Option<Box<Backlog>>,
    pub(super) input: I,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    Datagram,
}

/// Result of a send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delivery {
    /// They left, or were a datagram that was lost; with the departure if it is to be reported.
    Left(Option<Departure>),
    /// The socket took some or none; with the departure of the first byte, if it is to be reported.
    HeldBack(Option<Departure>),
}

impl<I: Input> Sockets<I> {
    /// A table for so many open sockets.
    pub(super) fn new(capacity: usize, wake: Waker) -> Self {
        Sockets {
            entries: Vec::new(),
            open: 0,
            capacity,
            ready: ReadyQueue::default(),
            listeners: Listeners::new(wake),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The entry of a token; `None` if its slot has had another user since.
    pub(super) fn get(&mut self, token: Token) -> Option<&mut Entry<I>> {
        find(&mut self.entries, token)
    }

    /// The entry of a slot's user by serial number; `None` if the slot has had another one since.
    pub(super) fn get_serial(&mut self, slot: u32, serial: u32) -> Option<&mut Entry<I>> {
        self.entries
            .get_mut(slot as usize)
            .filter(|entry| entry.serial == serial)
    }

    /// The entry of a slot that has had a user.
    pub(super) fn at(&mut self, slot: u32) -> &mut Entry<I> {
        &mut self.entries[slot as usize]
    }

    /// Our own address of an established connection or of a listener.
    pub(super) fn local(&self, token: Token) -> Option<SocketAddr> {
        if let Some(address) = self.listeners.local(token) {
            return Some(address);
        }
        let entry = self.entries.get(token.slot as usize)?;
        match &entry.state {
            State::Open(connection) | State::HalfClosed(connection)
                if entry.generation == token.generation =>
            {
                connection.socket.local().ok()
            }
            _ => None,
        }
    }

    /// Whether an event concerns a socket that was closed since.
    pub(super) fn is_stale(&self, event: &Event) -> bool {
        event.token().is_some_and(|token| {
            let entry = &self.entries[token.slot as usize];
            entry.generation != token.generation || matches!(entry.state, State::Vacant)
        })
    }

    /// Makes room for a token's slot, which must be vacant.
    pub(super) fn reserve(&mut self, token: Token) {
        let slot = token.slot as usize;
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, Entry::vacant);
        }
        assert!(
            matches!(self.entries[slot].state, State::Vacant)
                && !self.listeners.has_slot(token.slot),
            "a token's slot is closed before it is used again"
        );
    }

    /// Opens a socket, unless `capacity` are open.
    pub(super) fn open(
        &self,
        kind: Kind,
        to: SocketAddr,
        connect_meter: &mut ConnectMeter,
        stamps: &Stamps,
    ) -> io::Result<State<I>> {
        if self.open == self.capacity {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(match kind {
            Kind::Stream => {
                let socket = Socket::stream(to)?;
                let around = connect_meter.connect(&socket, to, stamps)?;
                let mut connection = Connection::new(socket, kind, around.before);
                connection.attempt_slack = departure_slack(around.before, around.after);
                State::Connecting(connection)
            }
            Kind::Datagram => {
                let socket = Socket::datagram(to)?;
                State::Open(Connection::new(socket, kind, stamps.now()))
            }
        })
    }

    /// Gives a reserved slot its socket.
    pub(super) fn occupy(&mut self, token: Token, state: State<I>) {
        if let State::Connecting(connection) | State::Open(connection) = &state {
            self.open += usize::from(!connection.socket.is_accepted());
        }
        let entry = &mut self.entries[token.slot as usize];
        entry.generation = token.generation;
        entry.serial = entry.serial.wrapping_add(1);
        entry.state = state;
    }

    /// Takes the connection of a socket that the caller closes.
    pub(super) fn close(&mut self, token: Token) -> Option<Connection<I>> {
        self.get(token)?;
        self.leave(token.slot, State::Vacant)
    }

    /// Takes the connection of a socket that failed.
    pub(super) fn fail(&mut self, slot: u32) -> Option<Connection<I>> {
        self.leave(slot, State::Failed)
    }

    fn leave(&mut self, slot: u32, state: State<I>) -> Option<Connection<I>> {
        let state = std::mem::replace(&mut self.entries[slot as usize].state, state);
        match state {
            State::Connecting(connection)
            | State::Open(connection)
            | State::HalfClosed(connection) => {
                self.open -= usize::from(!connection.socket.is_accepted());
                Some(connection)
            }
            State::Vacant | State::Failed => None,
        }
    }

    /// Puts a socket into the ready queue if its input is pending and is to be read.
    pub(super) fn enqueue_ready(&mut self, token: Token) {
        if let Some(connection) = find(&mut self.entries, token).and_then(Entry::connection)
            && connection.reading
            && connection.input.is_pending()
        {
            self.ready.push(token, &mut connection.reads);
        }
    }

    /// Length of the ready queue.
    pub(super) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Takes the next socket of the ready queue, if the turn has reads left.
    pub(super) fn next_ready(&mut self, turn: &mut TurnReads) -> Option<Token> {
        let entries = &mut self.entries;
        self.ready.pop(turn, |token, group| {
            let connection = find(entries, token)?.connection()?;
            connection.reads.leave(group)
        })
    }

    /// Whether input of a socket waits to be read.
    pub(super) fn has_unread(&self, token: Token) -> bool {
        let connection = self.connection(token);
        connection.is_some_and(|connection| connection.reading && connection.input.is_unread())
    }

    /// Bytes that a socket has not taken.
    pub(super) fn unsent(&self, token: Token) -> usize {
        let backlog = self
            .connection(token)
            .and_then(|connection| connection.backlog.as_ref());
        backlog.map_or(0, |backlog| backlog.len())
    }

    /// The connection of a token; `None` if it is closed or has failed.
    fn connection(&self, token: Token) -> Option<&Connection<I>> {
        let entry = self.entries.get(token.slot as usize)?;
        match &entry.state {
            State::Connecting(connection)
            | State::Open(connection)
            | State::HalfClosed(connection) => {
                Some(connection).filter(|_| entry.generation == token.generation)
            }
            State::Vacant | State::Failed => None,
        }
    }
}

impl<I: Input> Entry<I> {
    fn vacant() -> Self {
        Entry {
            generation: 0,
            serial: 0,
            state: State::Vacant,
        }
    }

    /// The token of the slot's user.
    pub(super) fn token(&self, slot: u32) -> Token {
        Token {
            slot,
            generation: self.generation,
        }
    }

    /// How many sockets the slot has had. Identifies operations of the present one.
    pub(super) fn serial(&self) -> u32 {
        self.serial
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(_))
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection<I>> {
        match &mut self.state {
            State::Connecting(connection)
            | State::Open(connection)
            | State::HalfClosed(connection) => Some(connection),
            State::Vacant | State::Failed => None,
        }
    }

    /// The connection, if it is established and the peer has not ended its side.
    pub(super) fn open(&mut self) -> Option<&mut Connection<I>> {
        match &mut self.state {
            State::Open(connection) => Some(connection),
            _ => None,
        }
    }

    /// The SYN was answered.
    pub(super) fn establish(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Vacant) {
            State::Connecting(connection) => State::Open(connection),
            other => other,
        };
    }

    /// The peer has ended its side, and that was reported.
    pub(super) fn end(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Vacant) {
            State::Open(connection) => State::HalfClosed(connection),
            other => other,
        };
    }
}

impl<I: Input> Connection<I> {
    pub(super) fn new(socket: Socket, kind: Kind, started: Instant) -> Self {
        Connection {
            socket,
            kind,
            reading: true,
            reads: ReadState::new(kind),
            floor: started,
            attempt_slack: Duration::ZERO,
            sent_at: Instant::START,
            backlog: None,
            input: I::new(kind, started),
        }
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

    /// Sends bytes and keeps what the socket does not take. The kernel stamps the departure if
    /// `stamped`.
    pub(super) fn send(
        &mut self,
        bytes: &[u8],
        mark: bool,
        stamped: bool,
        departures: &mut Departures,
        stamps: &Stamps,
    ) -> Result<Delivery, NetError> {
        self.reads.begin_reply();
        let sent = departures.send(&mut self.socket, bytes, mark, stamped, stamps)?;
        let delivery = match (sent.taken, self.kind) {
            (Some(taken), Kind::Stream) if taken < bytes.len() => {
                self.hold_back(&bytes[taken..], Held::rest(mark));
                Delivery::HeldBack(sent.departure)
            }
            (None, Kind::Stream) => {
                self.hold_back(bytes, Held::whole(mark));
                return Ok(Delivery::HeldBack(None));
            }
            // A datagram leaves whole or is lost.
            _ => Delivery::Left(sent.departure),
        };
        if mark {
            self.sent_at = sent.before;
        }
        Ok(delivery)
    }
}

/// The entry of a token; `None` if its slot has had another user since.
fn find<I>(entries: &mut [Entry<I>], token: Token) -> Option<&mut Entry<I>> {
    entries
        .get_mut(token.slot as usize)
        .filter(|entry| entry.generation == token.generation)
}
