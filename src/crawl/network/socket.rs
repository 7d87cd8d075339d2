//! Sockets and their purposes; connections of pages, and their deferred reads.

use std::net::SocketAddr;

use crate::base::slab::{Key, Slab};
use crate::base::time::Instant;
use crate::crawl::network::origins::Origin;
use crate::fetch::body::BodyMode;
use crate::fetch::connection::Connection;
use crate::fetch::exchange::Exchange;
use crate::fetch::resolver::SocketId;
use crate::fetch::tls::{Certificates, TlsInfo};
use crate::io::{NetError, Stamp, Token};

/// All sockets, by key.
#[derive(Default)]
pub struct Sockets {
    slab: Slab<Socket>,
}

impl Sockets {
    /// Adds a socket.
    pub fn insert(&mut self, socket: Socket) -> Key {
        self.slab.insert(socket)
    }

    /// The socket of a key, if it exists.
    pub fn get(&self, key: Key) -> Option<&Socket> {
        self.slab.get(key)
    }

    /// The same, mutable.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Socket> {
        self.slab.get_mut(key)
    }

    /// The connection of pages of a key; `None` if there is none.
    pub fn http(&self, key: Key) -> Option<&HttpSocket> {
        self.get(key).and_then(Socket::http)
    }

    /// The same, mutable.
    pub fn http_mut(&mut self, key: Key) -> Option<&mut HttpSocket> {
        self.get_mut(key).and_then(Socket::http_mut)
    }

    /// The attempt of a connection of pages.
    pub fn attempt_on(&self, key: Key) -> Option<Key> {
        self.http(key)?.flight
    }

    /// The HTTP connection in this slot; `None` if the socket has another purpose.
    pub fn http_by_slot(&self, slot: u32) -> Option<&HttpSocket> {
        self.slab.by_slot(slot).and_then(Socket::http)
    }

    /// The key of a slot in use.
    pub fn key_of(&self, slot: u32) -> Option<Key> {
        self.slab.key_of(slot)
    }

    /// Removes a socket.
    pub fn remove(&mut self, key: Key) -> Option<Socket> {
        self.slab.remove(key)
    }

    /// Number of sockets.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// All sockets.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Socket)> {
        self.slab.iter()
    }
}

/// Purpose of a socket.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are for pages, and lie where the slab puts them"
)]
pub enum Socket {
    /// A connection of pages.
    Http(HttpSocket),
    /// A socket of the resolver.
    Dns(SocketId),
    /// A probe of the network: nothing is sent on it.
    Probe(u32),
    /// Closing: its last bytes are being sent.
    Parting,
    /// A listener of the control interface.
    Listener,
    /// A connection of the control interface.
    Operator,
}

impl Socket {
    /// The connection, if it is for pages.
    pub fn http(&self) -> Option<&HttpSocket> {
        match self {
            Socket::Http(http) => Some(http),
            _ => None,
        }
    }

    /// The same, mutable.
    pub fn http_mut(&mut self) -> Option<&mut HttpSocket> {
        match self {
            Socket::Http(http) => Some(http),
            _ => None,
        }
    }
}

/// A connection that carries exchanges.
#[derive(Debug)]
pub struct HttpSocket {
    pub connection: Connection,
    /// Its attempt; `None` while it is idle.
    pub flight: Option<Key>,
    /// Origin that it is connected to.
    pub origin: Origin,
    /// Its slot, if slots back off by themselves; 0 otherwise.
    pub slot: u32,
    /// It failed because this machine has no route there.
    pub lacks_route: bool,
    /// Start of the wait for room, if reading is stopped.
    pub paused: Option<Instant>,
    /// Its body is held: until the sink has room for it, or until the next turn.
    pub held: bool,
    /// Bytes received by then and not read.
    pub unread: Unread,
    /// Bytes of its body given to the sink since its share of a turn began.
    pub given: usize,
    /// It is held only because it used its share of a turn.
    pub gave_way: bool,
    /// Bytes of its buffers that the crawl's total holds.
    pub counted: usize,
    /// Bytes of its present reply that the total of the replies in flight holds.
    pub arrived: u64,
}

/// Bytes received on a connection before it was held, and not read: less than the size of a receive, and
/// perhaps the end.
#[derive(Debug, Default)]
pub struct Unread {
    pub bytes: Vec<u8>,
    /// When the last of it arrived.
    pub stamp: Option<Stamp>,
    pub end: Option<End>,
}

/// End of a connection.
#[derive(Debug)]
pub enum End {
    /// By the peer, in good order.
    Ended(Stamp),
    /// The same, at that time.
    Failed(NetError, Instant),
}

impl HttpSocket {
    /// A connection that is being opened for an attempt.
    pub fn new(connection: Connection, attempt: Key, origin: Origin, slot: u32) -> Self {
        HttpSocket {
            connection,
            flight: Some(attempt),
            origin,
            slot,
            lacks_route: false,
            paused: None,
            held: false,
            unread: Unread::default(),
            given: 0,
            gave_way: false,
            counted: 0,
            arrived: 0,
        }
    }

    /// Stores received bytes until they may be read.
    pub fn put_by(&mut self, bytes: &[u8], stamp: Stamp) {
        self.unread.bytes.extend_from_slice(bytes);
        self.unread.stamp = Some(stamp);
    }

    /// Updates the crawl's total of buffered bytes by this connection's present share.
    pub fn recount(&mut self, total: usize) -> usize {
        let present = self.connection.memory() + self.unread.bytes.capacity();
        let total = total - self.counted + present;
        self.counted = present;
        total
    }

    /// Updates the total of bytes of the replies in flight by those of its present reply.
    pub fn recount_arrived(&mut self, total: u64) -> u64 {
        let exchange = self.connection.exchange();
        let present = exchange.map_or(0, Exchange::wire_length);
        let total = total - self.arrived + present;
        self.arrived = present;
        total
    }

    /// Whether the body of the present reply is taken in pieces.
    pub fn is_taken(&self) -> bool {
        let exchange = self.connection.exchange();
        exchange.is_some_and(|exchange| exchange.body_mode() == BodyMode::Take)
    }

    /// Whether the body of the present reply is kept, and is long or may become longer than its received
    /// bytes.
    pub fn is_long(&self) -> bool {
        let exchange = self.connection.exchange();
        exchange.is_some_and(Exchange::is_long)
    }

    /// Bytes of the body so far, and bytes of the wire that were read of the reply.
    pub fn progress(&self) -> (usize, u64) {
        let exchange = self.connection.exchange();
        exchange.map_or((0, 0), |exchange| {
            (exchange.body_length(), exchange.wire_length())
        })
    }

    /// Units of a step that began at this progress.
    pub fn kept_since(&self, before: (usize, u64)) -> usize {
        let (body, wire) = self.progress();
        let wire = usize::try_from(wire.saturating_sub(before.1)).unwrap_or(usize::MAX);
        let bytes = body.saturating_sub(before.0).max(wire);
        let exchange = self.connection.exchange();
        match exchange.is_some_and(Exchange::expands) {
            true => bytes.max(DECODED_LEAST),
            false => bytes.max(STEP_LEAST),
        }
    }
}

/// Facts of the connection that carried an attempt, for its result line.
#[derive(Clone, Debug, Default)]
pub struct Carrier {
    pub remote: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    pub reused: bool,
    pub tls: Option<TlsInfo>,
    pub certificates: Certificates,
}

impl Carrier {
    pub fn of(connection: &Connection) -> Self {
        Carrier {
            remote: Some(connection.remote()),
            local: connection.local(),
            reused: connection.used() > 1,
            tls: connection.tls(),
            certificates: connection.certificates(),
        }
    }
}

/// The slab key of a token.
pub fn key_of(token: Token) -> Key {
    Key {
        slot: token.slot,
        generation: token.generation,
    }
}

/// The token of a slab key.
pub fn token_of(key: Key) -> Token {
    Token {
        slot: key.slot,
        generation: key.generation,
    }
}

/// Least units of each other step: chunks may be of one byte each.
const STEP_LEAST: usize = 16;

/// Least units of each step of a compressed body: a few bytes may take long to decode.
const DECODED_LEAST: usize = 4 << 10;
