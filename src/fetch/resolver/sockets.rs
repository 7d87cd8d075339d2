//! The sockets to the name servers, and which query waits on which of them under which id.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Action, QueryKey, Transport};
use crate::base::rng::Rng;
use crate::base::slab::{Key, Slab};
use crate::base::time::Instant;
use crate::wire::dns::Deframer;

/// Names one of the resolver's sockets, for as long as it is open and never after.
///
/// The slot of the key is small and dense, fit to index the driver's table of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub Key);

/// Every open socket.
///
/// Each server has up to [`PORTS`] UDP sockets, opened when chance first picks them, so that a
/// forger must guess the port too; after [`QUERIES_PER_SOCKET`] queries a new one, on another
/// port, takes the place. It has one TCP connection, shared by what is in flight (RFC 7766 §6.2.1).
/// A socket that lost its place closes when nothing waits on it, one that has its place after
/// [`IDLE`]: there are never more than places and queries in flight together.
pub(super) struct Sockets {
    all: Slab<Socket>,
    /// By server.
    places: Vec<Places>,
}

#[derive(Clone, Default)]
struct Places {
    ports: [Option<SocketId>; PORTS],
    stream: Option<SocketId>,
}

struct Socket {
    server: usize,
    link: Link,
    /// Who waits for the reply with which id.
    waiting: Vec<(u16, QueryKey)>,
    /// Queries that were handed over and may not have left, in their order: as many as are sent on
    /// one socket at the most.
    leaving: VecDeque<QueryKey>,
    /// Queries sent on it so far.
    used: usize,
    /// It still has its place.
    placed: bool,
    /// A reply came on it.
    answered: bool,
    /// Since when nothing waits.
    idle_since: Instant,
    /// A timer looks after it.
    watched: bool,
}

enum Link {
    Port,
    Connecting { unsent: Vec<Vec<u8>> },
    Stream(Deframer),
}

/// What became of a socket on which nobody waits any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Vacated {
    /// Others still wait on it, or a timer looks after it already.
    Nothing,
    /// It is to be looked at again then.
    Watch(Instant),
    /// It has no place and is closed.
    Close,
}

impl Sockets {
    pub(super) fn new(servers: usize) -> Self {
        Sockets {
            all: Slab::new(),
            places: vec![Places::default(); servers],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// A socket for one more query to a server, and whether it is new and to be opened.
    pub(super) fn pick(
        &mut self,
        server: usize,
        transport: Transport,
        rng: &mut Rng,
    ) -> (SocketId, bool) {
        let place = match transport {
            Transport::Udp => &mut self.places[server].ports[rng.below(PORTS as u64) as usize],
            Transport::Tcp => &mut self.places[server].stream,
        };
        let (socket, new) = match *place {
            Some(socket) => (socket, false),
            None => {
                let link = match transport {
                    Transport::Udp => Link::Port,
                    Transport::Tcp => Link::Connecting { unsent: Vec::new() },
                };
                let socket = SocketId(self.all.insert(Socket {
                    server,
                    link,
                    waiting: Vec::new(),
                    leaving: VecDeque::new(),
                    used: 0,
                    placed: true,
                    answered: false,
                    idle_since: Instant::START,
                    watched: false,
                }));
                *place = Some(socket);
                (socket, true)
            }
        };
        let entry = self.all.get_mut(socket.0).expect("a placed socket is open");
        entry.used += 1;
        if entry.used == QUERIES_PER_SOCKET {
            entry.placed = false;
            *place = None;
        }
        (socket, new)
    }

    /// An id that nobody else waits for on this socket; from now on the query does, which leaves
    /// next.
    pub(super) fn enlist(&mut self, socket: SocketId, query: QueryKey, rng: &mut Rng) -> u16 {
        let entry = self.all.get_mut(socket.0).expect("picked");
        entry.leaving.push_back(query);
        let waiting = &mut entry.waiting;
        let id = loop {
            let id = rng.next_u64() as u16;
            if waiting.iter().all(|(taken, _)| *taken != id) {
                break id;
            }
        };
        waiting.push((id, query));
        id
    }

    /// The query that has left, the first of those that may not have.
    pub(super) fn left(&mut self, socket: SocketId) -> Option<QueryKey> {
        self.all.get_mut(socket.0)?.leaving.pop_front()
    }

    /// The query that waits for the reply with an id.
    pub(super) fn waiting(&self, socket: SocketId, id: u16) -> Option<QueryKey> {
        let waiting = &self.all.get(socket.0)?.waiting;
        waiting
            .iter()
            .find_map(|(taken, query)| (*taken == id).then_some(*query))
    }

    /// A query waits no longer.
    pub(super) fn leave(&mut self, socket: SocketId, id: u16, now: Instant) -> Vacated {
        let Some(entry) = self.all.get_mut(socket.0) else {
            return Vacated::Nothing;
        };
        entry.waiting.retain(|(taken, _)| *taken != id);
        if !entry.waiting.is_empty() {
            return Vacated::Nothing;
        }
        if !entry.placed {
            self.all.remove(socket.0);
            return Vacated::Close;
        }
        entry.idle_since = now;
        if std::mem::replace(&mut entry.watched, true) {
            return Vacated::Nothing;
        }
        Vacated::Watch(now + IDLE)
    }

    /// The timer of a socket is due: what is to become of it?
    pub(super) fn look_after(&mut self, socket: SocketId, now: Instant) -> Vacated {
        let Some(entry) = self.all.get_mut(socket.0) else {
            return Vacated::Nothing;
        };
        if !entry.waiting.is_empty() {
            entry.watched = false;
            return Vacated::Nothing;
        }
        let until = entry.idle_since + IDLE;
        if now < until {
            return Vacated::Watch(until);
        }
        self.remove(socket);
        Vacated::Close
    }

    /// A reply came on a socket.
    pub(super) fn answered(&mut self, socket: SocketId) {
        if let Some(entry) = self.all.get_mut(socket.0) {
            entry.answered = true;
        }
    }

    /// Forgets a socket that ended or failed.
    pub(super) fn remove(&mut self, socket: SocketId) -> Option<Lost> {
        let entry = self.all.remove(socket.0)?;
        if entry.placed {
            let places = &mut self.places[entry.server];
            for place in places.ports.iter_mut().chain([&mut places.stream]) {
                place.take_if(|placed| *placed == socket);
            }
        }
        Some(Lost {
            server: entry.server,
            waiting: entry.waiting.into_iter().map(|(_, query)| query).collect(),
            outlived: entry.answered && matches!(entry.link, Link::Stream(_)),
        })
    }

    /// Sends bytes, or keeps them until the connection is there.
    pub(super) fn send(&mut self, socket: SocketId, bytes: Vec<u8>) -> Option<Action> {
        match &mut self.all.get_mut(socket.0)?.link {
            Link::Connecting { unsent } => {
                unsent.push(bytes);
                None
            }
            Link::Port | Link::Stream(_) => Some(Action::Send { socket, bytes }),
        }
    }

    /// A connection is there: what waited for it.
    pub(super) fn connected(&mut self, socket: SocketId) -> Vec<Vec<u8>> {
        match self.all.get_mut(socket.0).map(|entry| &mut entry.link) {
            Some(link @ Link::Connecting { .. }) => {
                let before = std::mem::replace(link, Link::Stream(Deframer::default()));
                match before {
                    Link::Connecting { unsent } => unsent,
                    Link::Port | Link::Stream(_) => unreachable!("matched just above"),
                }
            }
            _ => Vec::new(),
        }
    }

    /// The next whole message of what arrived; advances the bytes.
    pub(super) fn message<'b>(
        &mut self,
        socket: SocketId,
        bytes: &mut &'b [u8],
    ) -> Option<Message<'b>> {
        match &mut self.all.get_mut(socket.0)?.link {
            Link::Port if bytes.is_empty() => None,
            Link::Port => Some(Message::Datagram(std::mem::take(bytes))),
            Link::Connecting { .. } => None,
            Link::Stream(deframer) => deframer.read(bytes).map(Message::Framed),
        }
    }
}

/// A socket that ended.
pub(super) struct Lost {
    pub(super) server: usize,
    /// Who waited on it.
    pub(super) waiting: Vec<QueryKey>,
    /// A connection that served: its end says nothing against the server (RFC 7766 §6.2.4).
    pub(super) outlived: bool,
}

/// One message and how it came.
pub(super) enum Message<'b> {
    Datagram(&'b [u8]),
    Framed(Vec<u8>),
}

/// UDP sockets a server has at once: each a random port, so three more bits to guess.
const PORTS: usize = 8;

/// Queries after which a socket gives its place to a new port: one that an attacker has found
/// out is soon worth nothing, and opening one costs a few µs, spread over these.
const QUERIES_PER_SOCKET: usize = 64;

/// How long an unused socket stays open: RFC 7766 §6.2.3 wants seconds for TCP, and a crawl that
/// asks at all asks several times a second.
const IDLE: Duration = Duration::from_secs(5);
