//! The sockets to the name servers, and which query waits on which of them under which id.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

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
/// port, takes the place. Of all servers there are never more than `ports_max`, or one for each: beyond
/// that those that have a place serve on.
///
/// What goes by TCP shares a connection ([RFC 7766 §6.2.1]) up to [`QUERIES_SHARED`] in flight, or has
/// one each for [`SINGLE_FOR`] after a server was seen to serve no more; a server has [`STREAMS`] at
/// the most.
///
/// A socket that lost its place closes when nothing waits on it, one that has its place after
/// [`IDLE`].
///
/// [RFC 7766 §6.2.1]: https://www.rfc-editor.org/rfc/rfc7766#section-6.2.1
pub(super) struct Sockets {
    all: Slab<Socket>,
    /// By server.
    places: Vec<Places>,
    /// UDP sockets that are open, and how many may be.
    ports: usize,
    ports_max: usize,
}

#[derive(Clone)]
struct Places {
    ports: Box<[Option<SocketId>; PORTS]>,
    streams: SmallVec<[SocketId; STREAMS]>,
    /// Until then its connections are given one query each.
    single_until: Instant,
    /// One of its connections has served more.
    has_served_several: bool,
}

impl Default for Places {
    fn default() -> Self {
        Places {
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
    /// Who waits for the reply with which id.
    waiting: Vec<(u16, QueryKey)>,
    /// Queries that were handed over and may not have left, in their order: as many as are sent on
    /// one socket at the most.
    leaving: VecDeque<QueryKey>,
    /// Queries sent on it so far.
    used: usize,
    /// It still has its place.
    placed: bool,
    /// Replies that came on it.
    answers: u32,
    /// Since when nothing waits.
    idle_since: Instant,
    /// A timer looks after it.
    watched: bool,
    /// A timer looks whether a second reply comes on it.
    is_suspected: bool,
    /// A query waits on it that was not sent. It serves only the one that was, also when its server is
    /// given several a connection again: then the others ask anew.
    has_unsent: bool,
}

/// What became of a query that was to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is sent by this action.
    Now(Action),
    /// It is sent when the connection is established.
    OnceConnected,
    /// Not at all: it waits behind another one, and asks anew when the connection is over.
    Behind,
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
    /// It is closed.
    Close,
    /// The same, and these ask anew: its server serves one query a connection.
    Replace(Lost),
}

impl Places {
    /// Whether its connections are given one query each.
    fn is_single(&self, now: Instant) -> bool {
        now < self.single_until
    }
}

impl Sockets {
    pub(super) fn new(servers: usize, ports_max: usize) -> Self {
        Sockets {
            all: Slab::new(),
            places: vec![Places::default(); servers],
            ports: 0,
            ports_max,
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
        let entry = self.all.get_mut(socket.0).expect("a placed socket is open");
        entry.used += 1;
        let has_served = entry.used >= QUERIES_PER_SOCKET && transport == Transport::Udp;
        if has_served && self.ports < self.ports_max {
            self.displace(socket);
        }
        (socket, new)
    }

    /// A UDP socket that has its place, or the place for a new one.
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

    /// A connection that may take one more query, if there is one or there may be no other.
    fn stream(&self, server: usize, now: Instant) -> Option<SocketId> {
        let places = &self.places[server];
        let shared = match places.is_single(now) {
            true => 1,
            false => QUERIES_SHARED,
        };
        let load = |socket: &SocketId| {
            let entry = self.all.get(socket.0).expect("a placed socket is open");
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
            leaving: VecDeque::new(),
            used: 0,
            placed: true,
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

    /// Takes a socket's place from it: it serves nobody new.
    fn displace(&mut self, socket: SocketId) {
        let Some(entry) = self.all.get_mut(socket.0) else {
            return;
        };
        if std::mem::take(&mut entry.placed) {
            let places = &mut self.places[entry.server];
            places.streams.retain(|placed| *placed != socket);
            for place in places.ports.iter_mut() {
                place.take_if(|placed| *placed == socket);
            }
        }
    }

    fn forget(&mut self, socket: SocketId) -> Option<Socket> {
        self.displace(socket);
        let entry = self.all.remove(socket.0)?;
        self.ports -= usize::from(matches!(entry.link, Link::Port));
        Some(entry)
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
        if !entry.placed || has_served || is_single {
            self.forget(socket);
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
        self.remove(socket, now);
        Vacated::Close
    }

    /// A reply came on a socket.
    pub(super) fn answered(&mut self, socket: SocketId) {
        if let Some(entry) = self.all.get_mut(socket.0) {
            entry.answers += 1;
            let is_stream = !matches!(entry.link, Link::Port);
            self.places[entry.server].has_served_several |= is_stream && entry.answers > 1;
        }
    }

    /// When to look whether a second reply has come on a connection, if that is in doubt: some servers
    /// answer once a connection and then keep it open and quiet.
    pub(super) fn suspect(&mut self, socket: SocketId, now: Instant) -> Option<Instant> {
        if !self.may_serve_once(socket) {
            return None;
        }
        let entry = self.all.get_mut(socket.0)?;
        let is_new = !std::mem::replace(&mut entry.is_suspected, true);
        is_new.then(|| now + SECOND_REPLY_WITHIN)
    }

    /// It has answered once, more is asked on it, and none of its server's has answered more.
    fn may_serve_once(&self, socket: SocketId) -> bool {
        self.all.get(socket.0).is_some_and(|entry| {
            let is_stream = !matches!(entry.link, Link::Port);
            let is_asked = is_stream && entry.answers == 1 && !entry.waiting.is_empty();
            is_asked && !self.places[entry.server].has_served_several
        })
    }

    /// A second reply has had its time.
    pub(super) fn look_for_second_reply(&mut self, socket: SocketId, now: Instant) -> Vacated {
        match self.may_serve_once(socket) {
            true => self
                .remove(socket, now)
                .map_or(Vacated::Nothing, Vacated::Replace),
            false => Vacated::Nothing,
        }
    }

    /// Forgets a socket that ended or failed.
    pub(super) fn remove(&mut self, socket: SocketId, now: Instant) -> Option<Lost> {
        let entry = self.forget(socket)?;
        let is_stream = matches!(entry.link, Link::Stream(_));
        let was_shared = is_stream && entry.used > 1;
        // Queries that were held behind another one prove nothing.
        if was_shared && !entry.waiting.is_empty() && !entry.has_unsent {
            // Its server may serve one query a connection, as some do; any server can be asked so.
            self.places[entry.server].single_until = now + SINGLE_FOR;
        }
        Some(Lost {
            server: entry.server,
            waiting: entry.waiting.into_iter().map(|(_, query)| query).collect(),
            outlived: entry.answers > 0 && is_stream,
            was_shared,
        })
    }

    /// Sends bytes, or keeps them until the connection is there.
    ///
    /// Where a server serves one query a connection and another one has it, nothing is sent: the query
    /// asks anew when the connection is over.
    pub(super) fn send(&mut self, socket: SocketId, bytes: Vec<u8>, now: Instant) -> Sent {
        let entry = self.all.get_mut(socket.0).expect("picked");
        let is_stream = !matches!(entry.link, Link::Port);
        let is_single = is_stream && self.places[entry.server].is_single(now);
        if entry.waiting.len() > 1 && (is_single || entry.has_unsent) {
            entry.leaving.pop_back();
            entry.has_unsent = true;
            return Sent::Behind;
        }
        match &mut entry.link {
            Link::Connecting { unsent } => {
                unsent.push(bytes);
                Sent::OnceConnected
            }
            Link::Port | Link::Stream(_) => Sent::Now(Action::Send { socket, bytes }),
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
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) server: usize,
    /// Who waited on it.
    pub(super) waiting: Vec<QueryKey>,
    /// A connection that served: its end says nothing against the server (RFC 7766 §6.2.4).
    pub(super) outlived: bool,
    /// A connection that several queries were given to; of these some may have been held behind another.
    pub(super) was_shared: bool,
}

/// One message and how it came.
pub(super) enum Message<'b> {
    Datagram(&'b [u8]),
    Framed(Vec<u8>),
}

/// UDP sockets a server has at once, each with a random port: a forger must guess which of them a query
/// went by, beside its id and its case.
const PORTS: usize = 256;

/// Queries after which a socket gives its place to a new port: one that an attacker has found
/// out is soon worth nothing. Opening one costs about 20 µs, spread over these.
const QUERIES_PER_SOCKET: usize = 8;

/// TCP connections that a server has at once.
const STREAMS: usize = 8;

/// Queries in flight that share a connection before another is made: some servers answer one by one.
const QUERIES_SHARED: usize = 32;

/// How long a connection that has answered once may take for the next reply, where its server has never
/// given a second one. A resolver that looks a name up mostly takes less; if it is taken for one that
/// answers once, it is asked on more connections, for [`SINGLE_FOR`].
const SECOND_REPLY_WITHIN: Duration = Duration::from_millis(500);

/// How long a server that seems to serve one query a connection is asked so. It may only have been slow,
/// and one by one there are [`STREAMS`] queries in flight at the most; a server that does serve one costs
/// its queries [`SECOND_REPLY_WITHIN`] each time this is over.
const SINGLE_FOR: Duration = Duration::from_secs(30);

/// How long an unused socket stays open: RFC 7766 §6.2.3 wants seconds for TCP, and a crawl that
/// asks at all asks several times a second.
const IDLE: Duration = Duration::from_secs(5);
