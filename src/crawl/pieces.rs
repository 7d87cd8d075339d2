//! Bodies that the sink takes while they come: what it wants of each, their pieces, and those that it
//! holds.

use super::core::{Core, token_of};
use super::flight::{Flight, HttpSocket, Socket};
use crate::base::slab::{Key, Slab};
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::wish::Wish;
use crate::frontier::request::Kind;
use crate::io::{Io, Waker};
use crate::sink::Sink;
use crate::sink::reply::{Flow, Held, Reply, Resumed};

/// What lies between the network and a sink that takes bodies while they come.
#[derive(Debug)]
pub(super) struct Pieces {
    /// Bodies that may be read on.
    resumed: Resumed,
    /// Memory for the piece on its way.
    piece: Vec<u8>,
}

/// Bytes of the wire that one piece is made of: what they decode to is in memory at once.
const PIECE_WIRE: usize = 4 << 10;

/// Memory that is kept from one piece to the next.
const PIECE_KEPT: usize = 64 << 10;

impl Pieces {
    pub fn new(waker: Waker) -> Self {
        Pieces {
            resumed: Resumed::new(move || waker.wake()),
            piece: Vec::new(),
        }
    }

    /// Gives the sink what there is of a body that it takes. `None` where there is nothing.
    pub fn hand_over(
        &mut self,
        http: &mut HttpSocket,
        flights: &Slab<Flight>,
        sink: &mut dyn Sink,
    ) -> Option<Flow> {
        let exchange = http.connection.exchange_mut()?;
        if !exchange.swap_body(&mut self.piece) {
            return None;
        }
        let flight = http.flight.and_then(|key| flights.get(key));
        let id = flight.expect("a reply is somebody's").job.id;
        let flow = sink.on_body(id, &self.piece);
        self.piece.clear();
        self.piece.shrink_to(PIECE_KEPT);
        Some(flow)
    }
}

impl HttpSocket {
    /// Whether the body of the reply on its way is taken in pieces.
    pub fn is_taken(&self) -> bool {
        let exchange = self.connection.exchange();
        exchange.is_some_and(|exchange| exchange.wish() == Wish::Take)
    }

    /// Leaves of `bytes` what one piece may be made of, where the body is taken in pieces; how many
    /// are left for later.
    pub fn until_a_piece(&self, bytes: &mut &[u8]) -> usize {
        if !self.is_taken() {
            return 0;
        }
        let (now, later) = bytes.split_at(bytes.len().min(PIECE_WIRE));
        *bytes = now;
        later.len()
    }
}

impl<I: Io> Core<I> {
    /// Asks the sink what it wants of the body whose head has just come.
    pub fn ask_for_body(&mut self, key: Key, socket: Key) {
        let Some(flight) = self.flights.get(key) else {
            return;
        };
        if flight.job.kind != Kind::Page || self.load.is_some() {
            return;
        }
        let job = &flight.job;
        let (id, tag) = (job.id, job.extra.as_deref().map_or(0, |extra| extra.tag));
        let http = self.sockets.get(socket).and_then(Socket::http);
        let connection = &http.expect("a reply comes on a connection").connection;
        let exchange = connection.exchange().expect("a head has its exchange");
        let head = exchange.head().expect("the head just came");
        let wish = self.sink.on_head(&Reply {
            id,
            tag,
            url: job.url.as_str(),
            attempt: u32::from(job.attempt),
            status: head.status,
            headers: &head.headers,
            remote: connection.remote(),
            tls: connection.tls(),
            certificates: connection.certificates(),
            timings: exchange.timings(),
            held: Held {
                attempt: id,
                socket,
            },
            resumed: &self.pieces.resumed,
            root: job.root(),
            depth: job.depth,
            route: job.route(),
            leads: &self.leads,
        });
        let now = self.now;
        let connection = &mut self.http(socket).connection;
        let exchange = connection.exchange_mut().expect("it was just there");
        exchange.set_wish(wish);
        if wish == Wish::Cancel {
            let failure = Failure::new(
                FailureKind::Cancelled,
                "by_sink",
                "the sink wanted no more of it than its head",
            );
            if let Some(news) = connection.abort(failure, now) {
                self.on_news(socket, news);
            }
        }
    }

    /// The sink has no room for more of this body: its connection is not read until it has.
    pub fn hold(&mut self, key: Key) {
        let now = self.now;
        let http = self.http(key);
        assert!(http.is_taken(), "what is over is held by nobody");
        http.held = true;
        if http.paused.is_none() {
            http.paused = Some(now);
            self.io.set_reading(token_of(key), false);
        }
        self.carry_on(key);
    }

    /// A connection is held no longer, for what it carried is over.
    pub fn let_go(&mut self, key: Key) {
        let http = self.http(key);
        if std::mem::take(&mut http.held) && http.paused.take().is_some() {
            self.io.set_reading(token_of(key), true);
        }
    }

    /// Bodies for which the sink has room again are read on as soon as there is room for all.
    pub fn resume(&mut self) {
        while let Some(Held { attempt, socket }) = self.pieces.resumed.take() {
            let Some(http) = self.sockets.get_mut(socket).and_then(Socket::http_mut) else {
                continue;
            };
            let flight = http.flight.and_then(|key| self.flights.get(key));
            if flight.is_some_and(|flight| flight.job.id == attempt) && http.held {
                http.held = false;
                self.paused.push_front(socket);
            }
        }
    }
}
