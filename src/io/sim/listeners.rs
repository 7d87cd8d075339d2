//! Simulated listeners, and the connections to them that have no token yet.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use super::ConnId;
use super::socket::{Arrival, Socket};
use crate::base::time::Instant;
use crate::io::sockets::accepted::{Accepted, Dropped, Handle, Ticket};
use crate::io::sockets::listening::{
    ACCEPTS_A_TURN, BACKLOG, Endpoint, LISTENERS_MAX, Peer, Places,
};
use crate::io::{Event, Token};

/// All listeners of a simulated machine.
#[derive(Debug)]
pub(super) struct Listeners {
    listeners: Vec<Listener>,
    /// Accepted connections without a token.
    waiting: BTreeMap<ConnId, Socket>,
    /// Accepted connections whose ticket was dropped.
    dropped: Dropped,
    /// The port of the next listener on port 0.
    port_next: u16,
}

#[derive(Debug)]
struct Listener {
    token: Token,
    at: Endpoint,
    places: Places,
    /// Connections that are not accepted yet.
    backlog: VecDeque<(Socket, Peer)>,
    /// Connections that this turn may still accept.
    left: usize,
}

impl Listeners {
    pub(super) fn new() -> Self {
        Listeners {
            listeners: Vec::new(),
            waiting: BTreeMap::new(),
            dropped: Dropped::default(),
            port_next: 49_152,
        }
    }

    /// Starts to listen, unless the endpoint is in use.
    pub(super) fn listen(&mut self, token: Token, at: &Endpoint) -> io::Result<()> {
        if self.listeners.len() == LISTENERS_MAX {
            return Err(io::Error::other(format!(
                "cannot listen on {at}: there are {LISTENERS_MAX} listeners already, close one first"
            )));
        }
        if self.find(at).is_some() {
            return Err(in_use(at));
        }
        let mut at = at.clone();
        if let Endpoint::Tcp(address) = &mut at
            && address.port() == 0
        {
            address.set_port(self.port_next);
            self.port_next += 1;
        }
        self.listeners.push(Listener {
            token,
            at,
            places: Places::new(None),
            backlog: VecDeque::new(),
            left: ACCEPTS_A_TURN,
        });
        Ok(())
    }

    /// Closes the listener with this token, if there is one; returns the connections in its backlog.
    pub(super) fn close(&mut self, token: Token) -> Option<Vec<ConnId>> {
        let is_it = |listener: &Listener| listener.token == token;
        let index = self.listeners.iter().position(is_it)?;
        let backlog = self.listeners.remove(index).backlog;
        Some(backlog.into_iter().map(|(socket, _)| socket.id).collect())
    }

    pub(super) fn has_slot(&self, slot: u32) -> bool {
        let mut listeners = self.listeners.iter();
        listeners.any(|listener| listener.token.slot == slot)
    }

    /// The address of a TCP listener.
    pub(super) fn local(&self, token: Token) -> Option<SocketAddr> {
        let mut listeners = self.listeners.iter();
        address_of(&listeners.find(|listener| listener.token == token)?.at)
    }

    /// A client connects to an endpoint. Returns whether a listener has room for it.
    pub(super) fn connect(&mut self, id: ConnId, at: &Endpoint, from: Peer, now: Instant) -> bool {
        let Some(index) = self.find(at) else {
            return false;
        };
        let listener = &mut self.listeners[index];
        if listener.backlog.len() == BACKLOG {
            return false;
        }
        let local = address_of(&listener.at);
        let socket = Socket::accepted(id, local, now);
        listener.backlog.push_back((socket, from));
        true
    }

    /// Something arrives for a connection without a token.
    pub(super) fn arrive(&mut self, id: ConnId, at: Instant, what: Arrival) {
        let listeners = self.listeners.iter_mut();
        let mut backlogs = listeners.flat_map(|listener| &mut listener.backlog);
        let socket = match self.waiting.get_mut(&id) {
            Some(socket) => Some(socket),
            None => backlogs
                .find(|(socket, _)| socket.id == id)
                .map(|(socket, _)| socket),
        };
        if let Some(socket) = socket {
            socket.inbox.push_back((at, what));
        }
    }

    /// Resets the number that each listener may accept per turn.
    pub(super) fn begin_turn(&mut self) {
        for listener in &mut self.listeners {
            listener.left = ACCEPTS_A_TURN;
        }
    }

    /// Accepts as many connections as this turn still may.
    pub(super) fn accept(&mut self, now: Instant, events: &mut Vec<Event>) {
        for listener in &mut self.listeners {
            while listener.left > 0
                && !listener.backlog.is_empty()
                && let Some(place) = listener.places.take()
                && let Some((socket, peer)) = listener.backlog.pop_front()
            {
                listener.left -= 1;
                let ticket = Ticket::new(socket.id.0, place, &self.dropped);
                self.waiting.insert(socket.id, socket);
                events.push(Event::Accepted {
                    listener: listener.token,
                    accepted: Accepted::new(Handle::Simulated(ticket)),
                    peer,
                    at: now,
                });
            }
        }
    }

    /// Takes the socket of an accepted connection for a token.
    pub(super) fn adopt(&mut self, ticket: Ticket) -> Socket {
        let (id, place) = ticket.redeem();
        let mut socket = self
            .waiting
            .remove(&ConnId(id))
            .expect("a connection is adopted by the back end that accepted it");
        socket.place = Some(place);
        socket
    }

    /// Takes the connections whose tickets were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> Vec<ConnId> {
        let dropped: Vec<_> = self.dropped.take().into_iter().map(ConnId).collect();
        for id in &dropped {
            self.waiting.remove(id);
        }
        dropped
    }

    /// Whether connections can be accepted now.
    pub(super) fn has_pending(&self) -> bool {
        let mut listeners = self.listeners.iter();
        listeners.any(|listener| !listener.backlog.is_empty() && listener.places.is_free())
    }

    fn find(&self, at: &Endpoint) -> Option<usize> {
        let is_it = |listener: &Listener| match (&listener.at, at) {
            (Endpoint::Unix { path, .. }, Endpoint::Unix { path: wanted, .. }) => path == wanted,
            (ours, wanted) => ours == wanted,
        };
        self.listeners.iter().position(is_it)
    }
}

/// The error for an endpoint in use.
pub(super) fn in_use(at: &Endpoint) -> io::Error {
    let reason = match at {
        Endpoint::Tcp(_) => "the address is in use",
        Endpoint::Unix { .. } => "the file exists already; remove it if no process listens on it",
    };
    io::Error::new(
        ErrorKind::AddrInUse,
        format!("cannot listen on {at}: {reason}"),
    )
}

fn address_of(at: &Endpoint) -> Option<SocketAddr> {
    match at {
        Endpoint::Tcp(address) => Some(*address),
        Endpoint::Unix { .. } => None,
    }
}
