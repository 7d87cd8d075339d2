//! An attempt between its release and its end, and the sockets that carry it.

use std::net::SocketAddr;

use smallvec::SmallVec;

use super::origins::Origin;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::fetch::connection::Connection;
use crate::fetch::exchange::Exchange;
use crate::fetch::eyeballs::Race;
use crate::fetch::resolver::SocketId;
use crate::fetch::tls::{Certificates, TlsInfo};
use crate::frontier::job::Job;
use crate::io::{Io, NetError, Stamp};
use crate::throttle::decision::Decision;
use crate::throttle::engine::{LaneId, TicketId};
use crate::throttle::signal::Signal;

/// One attempt on its way.
#[derive(Debug)]
pub struct Flight {
    pub job: Job,
    pub lane: LaneId,
    pub ticket: TicketId,
    /// Where it goes.
    pub origin: Origin,
    pub released: Instant,
    /// What its head said, once that is there.
    pub signal: Option<Signal>,
    /// What its head led to, until its body's size is known; empty where nobody wants to know.
    pub decisions: Vec<Decision>,
    /// The port to connect to.
    pub port: u16,
    pub stage: Stage,
}

/// What an attempt waits for.
///
/// ```text
/// Connecting ──► Ready ──► Exchanging ──► (taken off at its end)
///     ▲  (an idle connection skips it)        │
///     └──── a reused connection died ◄────────┘
/// ```
#[derive(Debug)]
pub enum Stage {
    /// For one of these connections.
    Connecting {
        exchange: Box<Exchange>,
        race: Race,
        sockets: SmallVec<[Key; 2]>,
    },
    /// For the throttle to let it depart.
    Ready {
        exchange: Box<Exchange>,
        socket: Key,
        since: Instant,
    },
    /// For the reply.
    Exchanging { socket: Key },
    /// Between two of the others, within one call.
    Moving,
}

/// What a socket is for.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are for pages, and lie where the slab puts them"
)]
pub enum Socket {
    /// Pages.
    Http(HttpSocket),
    /// The resolver's.
    Dns(SocketId),
    /// Whether the network works: nothing is sent on it.
    Probe(u32),
    /// Nothing any more: its last bytes are on their way.
    Parting,
}

impl Socket {
    /// The connection, where it is for pages.
    pub fn http(&self) -> Option<&HttpSocket> {
        match self {
            Socket::Http(http) => Some(http),
            Socket::Dns(_) | Socket::Probe(_) | Socket::Parting => None,
        }
    }

    /// The same, to be changed.
    pub fn http_mut(&mut self) -> Option<&mut HttpSocket> {
        match self {
            Socket::Http(http) => Some(http),
            Socket::Dns(_) | Socket::Probe(_) | Socket::Parting => None,
        }
    }
}

/// A connection that carries exchanges.
#[derive(Debug)]
pub struct HttpSocket {
    pub connection: Connection,
    /// The attempt it is for; `None` while it is idle.
    pub flight: Option<Key>,
    /// Where it leads.
    pub origin: Origin,
    /// The slot that it belongs to, where slots back off by themselves; else 0.
    pub slot: u32,
    /// It failed because our machine has no route there.
    pub lacks_route: bool,
    /// Since when reading is stopped until there is room.
    pub paused: Option<Instant>,
    /// Its body is not read on: until the sink has room for it, or, where it gave way, until the next turn.
    pub held: bool,
    /// What had been received by then and was not read.
    pub unread: Unread,
    /// Bytes of bodies that the sink was given since it was last others' turn.
    pub given: usize,
    /// As much as one turn allows was read of it, which alone stopped it.
    pub gave_way: bool,
    /// Bytes of its buffers that the crawl's total holds.
    pub counted: usize,
}

/// What was received on a connection before it was held, and not read: less than the size of a receive,
/// and perhaps the end.
#[derive(Debug, Default)]
pub struct Unread {
    pub bytes: Vec<u8>,
    /// When the last of it arrived.
    pub stamp: Option<Stamp>,
    pub end: Option<End>,
}

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// In good order.
    Ended(Stamp),
    /// So, at that time.
    Failed(NetError, Instant),
}

impl HttpSocket {
    /// Puts by what was received, until it may be read.
    pub fn put_by(&mut self, bytes: &[u8], stamp: Stamp) {
        self.unread.bytes.extend_from_slice(bytes);
        self.unread.stamp = Some(stamp);
    }

    /// The crawl's total of buffered bytes, with this connection's present share in it.
    pub fn recount(&mut self, total: usize) -> usize {
        let present = self.connection.memory() + self.unread.bytes.capacity();
        let total = total - self.counted + present;
        self.counted = present;
        total
    }
}

impl<I: Io> Core<I> {
    /// A connection that is known to be for pages.
    pub fn http(&mut self, key: Key) -> &mut HttpSocket {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) => http,
            other => unreachable!("a connection of pages is named, not {other:?}"),
        }
    }
}

/// The connection that carried an attempt, as its result line tells of it.
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
