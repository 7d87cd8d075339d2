//! The sockets to the name servers, and which query waits on which of them with which id.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Action, QueryKey, Transport};
use crate::base::rng::Rng;
use crate::base::slab::{Key, Slab};
use crate::base::time::Instant;
use crate::wire::dns::Deframer;

/// Id of one of the resolver's sockets, never reused after it was closed.
///
/// The slot of the key is small and dense, so it can index the driver's table of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub Key);

/// All open sockets.
///
/// Each server has up to [`PORTS`] UDP sockets, opened when they are first picked at random, so
/// that a forger must guess the port as well; after [`QUERIES_PER_SOCKET`] queries a new socket
/// with another port replaces it. There are at most `ports_max` UDP sockets over all servers, or
/// one per server; beyond that the existing ones continue to be used.
///
/// TCP queries share a connection ([RFC 7766 §6.2.1]), up to [`QUERIES_SHARED`] in flight. For
/// [`SINGLE_FOR`] after a server was seen to answer only one query per connection, each has its
/// own. A server has at most [`STREAMS`] connections.
///
/// A replaced socket closes when no query waits on it, any other after being idle for [`IDLE`].
///
/// [RFC 7766 §6.2.1]: https://www.rfc-editor.org/rfc/rfc7766#section-6.2.1
pub(super) struct Sockets {
    all: Slab<Socket>,
    /// By server.
    places: Vec<ServerSockets>,
    /// Number of open UDP sockets, and their maximum.
    ports: usize,
    ports_max: usize,
}

#[derive(Clone)]
struct ServerSockets {
    ports: Box<[Option<SocketId>; PORTS]>,
    streams: SmallVec<[SocketId; STREAMS]>,
    /// Until then each of its connections gets one query.
    single_until: Instant,
    /// One of its connections has answered more than one query.
    has_served_several: bool,
}

impl Default for ServerSockets {
    fn default() -> Self {
        ServerSockets {
            ports: Box::new([None; PORTS]),
            streams: SmallVec::new(),
            single_until: Instant::START,
            has_served_several: false,
        }
    }
}

struct Socket {
    server: usize,
    link: Link,
    /// Queries that wait for a reply, with their ids.
    waiting: Vec<(u16, QueryKey)>,
    /// Queries that were handed out and may not have departed yet, in order; at most as many as are
    /// sent on one socket.
    departing: VecDeque<QueryKey>,
    /// Number of queries sent on it so far.
    used: usize,
    /// It is still in its server's table, so new queries may use it.
    is_listed: bool,
    /// Number of replies received on it.
    answers: u32,
    /// Since when no query waits on it.
    idle_since: Instant,
    /// It has an idle timer.
    watched: bool,
    /// It has a timer for a second reply.
    is_suspected: bool,
    /// A query that was not sent waits on it. It serves only the one that was sent, even if its
    /// server may again get several per connection; the others are asked again elsewhere.
    has_unsent: bool,
}

/// Result of sending a query.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is sent by this action.
    Now(Action),
    /// It is sent when the connection is established.
    OnceConnected,
    /// It is not sent: it waits behind another one, and is asked again when the connection has
    /// ended.
    Held,
}

enum Link {
    Port,
    Connecting { unsent: Vec<Vec<u8>> },
    Stream(Deframer),
}

/// Action for a socket after a query stopped waiting on it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Vacated {
    /// Nothing: others wait on it, or it has a timer already.
    Nothing,
    /// Check it again at this time.
    Watch(Instant),
    /// Close it.
    Close,
    /// Close it, and ask these again: its server answers one query per connection.
    Replace(Lost),
}

impl ServerSockets {
    /// Returns whether each of its connections gets only one query.
    fn is_single(&self, now: Instant) -> bool {
        now < self.single_until
    }
}

impl Sockets {
    pub(super) fn new(servers: usize, ports_max: usize) -> Self {
        Sockets {
            all: Slab::new(),
            places: vec![ServerSockets::default(); servers],
            ports: 0,
            ports_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Picks a socket for one more query to a server. Returns whether it is new and must be opened.
    pub(super) fn pick(
        &mut self,
        server: usize,
        transport: Transport,
        rng: &mut Rng,
        now: Instant,
    ) -> (SocketId, bool) {
        let known = match transport {
            Transport::Udp => self.port(server, rng),
            Transport::Tcp => self.stream(server, now).ok_or(0),
        };
        let (socket, new) = match known {
            Ok(socket) => (socket, false),
            Err(place) => (self.open(server, transport, place), true),
        };
        let entry = self.all.get_mut(socket.0).expect("a listed socket is open");
        entry.used += 1;
        let has_served = entry.used >= QUERIES_PER_SOCKET && transport == Transport::Udp;
        if has_served && self.ports < self.ports_max {
            self.displace(socket);
        }
        (socket, new)
    }

    /// A UDP socket in the table, or the free entry for a new one.
    fn port(&self, server: usize, rng: &mut Rng) -> Result<SocketId, usize> {
        let ports = &self.places[server].ports;
        let place = rng.below(PORTS as u64) as usize;
        if let Some(socket) = ports[place] {
            return Ok(socket);
        }
        if self.ports < self.ports_max {
            return Err(place);
        }
        let (before, behind) = ports.split_at(place);
        let mut others = behind.iter().chain(before).flatten();
        others.next().copied().ok_or(place)
    }

    /// A connection that may take one more query, or that must because no other may be opened.
    fn stream(&self, server: usize, now: Instant) -> Option<SocketId> {
        let places = &self.places[server];
        let shared = match places.is_single(now) {
            true => 1,
            false => QUERIES_SHARED,
        };
        let load = |socket: &SocketId| {
            let entry = self.all.get(socket.0).expect("a listed socket is open");
            (entry.has_unsent, entry.waiting.len())
        };
        let least = places.streams.iter().copied().min_by_key(load)?;
        let (has_unsent, waiting) = load(&least);
        let has_room = !has_unsent && waiting < shared || places.streams.len() >= STREAMS;
        has_room.then_some(least)
    }

    fn open(&mut self, server: usize, transport: Transport, place: usize) -> SocketId {
        let link = match transport {
            Transport::Udp => Link::Port,
            Transport::Tcp => Link::Connecting { unsent: Vec::new() },
        };
        let socket = SocketId(self.all.insert(Socket {
            server,
            link,
            waiting: Vec::new(),
            departing: VecDeque::new(),
            used: 0,
            is_listed: true,
            answers: 0,
            idle_since: Instant::START,
            watched: false,
            is_suspected: false,
            has_unsent: false,
        }));
        match transport {
            Transport::Udp => {
                self.ports += 1;
                self.places[server].ports[place] = Some(socket);
            }
            Transport::Tcp => self.places[server].streams.push(socket),
        }
        socket
    }

    /// Removes a socket from its server's table, so that no new query uses it.
    fn displace(&mut self, socket: SocketId) {
        let Some(entry) = self.all.get_mut(socket.0) else {
            return;
        };
        if std::mem::take(&mut entry.is_listed) {
            let places = &mut self.places[entry.server];
            places.streams.retain(|listed| *listed != socket);
            for place in places.ports.iter_mut() {
                place.take_if(|listed| *listed == socket);
            }
        }
    }

    fn forget(&mut self, socket: SocketId) -> Option<Socket> {
        self.displace(socket);
        let entry = self.all.remove(socket.0)?;
        self.ports -= usize::from(matches!(entry.link, Link::Port));
        Some(entry)
    }

    /// Assigns an id that is unused on this socket to a query, which is the next to depart.
    pub(super) fn assign_id(&mut self, socket: SocketId, query: QueryKey, rng: &mut Rng) -> u16 {
        let entry = self.all.get_mut(socket.0).expect("picked");
        entry.departing.push_back(query);
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

    /// Returns the query that has departed: the first of those that may not have.
    pub(super) fn left(&mut self, socket: SocketId) -> Option<QueryKey> {
        self.all.get_mut(socket.0)?.departing.pop_front()
    }

    /// The query that waits for the reply with this id.
    pub(super) fn waiting(&self, socket: SocketId, id: u16) -> Option<QueryKey> {
        let waiting = &self.all.get(socket.0)?.waiting;
        waiting
            .iter()
            .find_map(|(taken, query)| (*taken == id).then_some(*query))
    }

    /// A query stops waiting.
    pub(super) fn leave(&mut self, socket: SocketId, id: u16, now: Instant) -> Vacated {
        let Some(entry) = self.all.get_mut(socket.0) else {
            return Vacated::Nothing;
        };
        entry.waiting.retain(|(taken, _)| *taken != id);
        let is_stream = !matches!(entry.link, Link::Port);
        let is_single = is_stream && self.places[entry.server].is_single(now);
        if !entry.waiting.is_empty() {
            let is_over = is_single || entry.has_unsent;
            return match is_over.then(|| self.remove(socket, now)).flatten() {
                Some(lost) => Vacated::Replace(lost),
                None => Vacated::Nothing,
            };
        }
        let has_served = entry.used >= QUERIES_PER_SOCKET && !is_stream;
        if !entry.is_listed || has_served || is_single {
            self.forget(socket);
            return Vacated::Close;
        }
        entry.idle_since = now;
        if std::mem::replace(&mut entry.watched, true) {
            return Vacated::Nothing;
        }
        Vacated::Watch(now + IDLE)
    }

    /// Handles the idle timer of a socket.
    pub(super) fn check_idle(&mut self, socket: SocketId, now: Instant) -> Vacated {
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
        self.remove(socket, now);
        Vacated::Close
    }

    /// Counts a reply on a socket.
    pub(super) fn answered(&mut self, socket: SocketId) {
        if let Some(entry) = self.all.get_mut(socket.0) {
            entry.answers += 1;
            let is_stream = !matches!(entry.link, Link::Port);
            self.places[entry.server].has_served_several |= is_stream && entry.answers > 1;
        }
    }

    /// When to check whether a second reply has arrived on a connection, if that is in doubt: some
    /// servers answer once per connection and then keep it open without replying.
    pub(super) fn suspect(&mut self, socket: SocketId, now: Instant) -> Option<Instant> {
        if !self.may_serve_once(socket) {
            return None;
        }
        let entry = self.all.get_mut(socket.0)?;
        let is_new = !std::mem::replace(&mut entry.is_suspected, true);
        is_new.then(|| now + SECOND_REPLY_WITHIN)
    }

    /// It has answered once, more queries wait on it, and no connection of its server has answered
    /// more than once.
    fn may_serve_once(&self, socket: SocketId) -> bool {
        self.all.get(socket.0).is_some_and(|entry| {
            let is_stream = !matches!(entry.link, Link::Port);
            let is_asked = is_stream && entry.answers == 1 && !entry.waiting.is_empty();
            is_asked && !self.places[entry.server].has_served_several
        })
    }

    /// The time for a second reply is over.
    pub(super) fn check_second_reply(&mut self, socket: SocketId, now: Instant) -> Vacated {
        match self.may_serve_once(socket) {
            true => self
                .remove(socket, now)
                .map_or(Vacated::Nothing, Vacated::Replace),
            false => Vacated::Nothing,
        }
    }

    /// Removes a socket that ended or failed.
    pub(super) fn remove(&mut self, socket: SocketId, now: Instant) -> Option<Lost> {
        let entry = self.forget(socket)?;
        let is_stream = matches!(entry.link, Link::Stream(_));
        let was_shared = is_stream && entry.used > 1;
        // Queries that were held back behind another one prove nothing.
        if was_shared && !entry.waiting.is_empty() && !entry.has_unsent {
            // Its server may answer one query per connection, as some do; every server can be asked
            // that way.
            self.places[entry.server].single_until = now + SINGLE_FOR;
        }
        Some(Lost {
            server: entry.server,
            waiting: entry.waiting.into_iter().map(|(_, query)| query).collect(),
            had_answered: entry.answers > 0 && is_stream,
            was_shared,
        })
    }

    /// Sends bytes, or stores them until the connection is established.
    ///
    /// If the server answers one query per connection and this one has one already, nothing is
    /// sent: the query is asked again when the connection has ended.
    pub(super) fn send(&mut self, socket: SocketId, bytes: Vec<u8>, now: Instant) -> Sent {
        let entry = self.all.get_mut(socket.0).expect("picked");
        let is_stream = !matches!(entry.link, Link::Port);
        let is_single = is_stream && self.places[entry.server].is_single(now);
        if entry.waiting.len() > 1 && (is_single || entry.has_unsent) {
            entry.departing.pop_back();
            entry.has_unsent = true;
            return Sent::Held;
        }
        match &mut entry.link {
            Link::Connecting { unsent } => {
                unsent.push(bytes);
                Sent::OnceConnected
            }
            Link::Port | Link::Stream(_) => Sent::Now(Action::Send { socket, bytes }),
        }
    }

    /// A connection was established. Returns the bytes stored for it.
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

    /// The next complete message of the received bytes; advances `bytes`.
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
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) server: usize,
    /// The queries that waited on it.
    pub(super) waiting: Vec<QueryKey>,
    /// It had answered before: its end is not a fault of the server (RFC 7766 §6.2.4).
    pub(super) had_answered: bool,
    /// A connection with several queries, of which some may have been held back behind another.
    pub(super) was_shared: bool,
}

/// One message and its framing.
pub(super) enum Message<'b> {
    Datagram(&'b [u8]),
    Framed(Vec<u8>),
}

/// UDP sockets per server, each with a random port: a forger must guess which of them a query used,
/// besides its id and letter case.
const PORTS: usize = 256;

/// Queries after which a socket is replaced by one with a new port, so that a port found by an
/// attacker soon becomes useless. Opening one costs about 20 µs, spread over these queries.
const QUERIES_PER_SOCKET: usize = 8;

/// Maximum number of TCP connections per server.
const STREAMS: usize = 8;

/// Queries in flight that share a connection before another one is opened: some servers answer them
/// one by one.
const QUERIES_SHARED: usize = 32;

/// How long a connection that has answered once may take for the next reply, if its server has
/// never answered twice. Recursive lookups usually take less; a slow server that is mistaken for
/// one that answers once is only asked over more connections, for [`SINGLE_FOR`].
const SECOND_REPLY_WITHIN: Duration = Duration::from_millis(500);

/// How long a server that seems to answer one query per connection gets only one. It may only have
/// been slow, and with one query each there are at most [`STREAMS`] in flight; a server that does
/// answer only one costs its queries [`SECOND_REPLY_WITHIN`] each time this ends.
const SINGLE_FOR: Duration = Duration::from_secs(30);

/// How long an unused socket stays open: RFC 7766 §6.2.3 asks for seconds for TCP, and a crawl that
/// makes any queries makes several per second.
const IDLE: Duration = Duration::from_secs(5);
