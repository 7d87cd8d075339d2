//! Bodies that come in pieces: what the sink wants of each, how much of them is read in a turn, and which
//! are held.

use super::flight::{End, Flight, HttpSocket, Socket};
use super::news::arrival;
use super::steps_max;
use crate::base::bound::Bound;
use crate::base::slab::{Key, Slab};
use crate::crawl::core::{Core, token_of};
use crate::fetch::body_mode::BodyMode;
use crate::fetch::connection::News;
use crate::fetch::exchange::Exchange;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::request::Kind;
use crate::io::{Io, Stamp, Waker};
use crate::sink::Sink;
use crate::sink::reply::{Flow, Held, Reply, Resumed};

/// Bytes of one body that a sink is given before others have their turn: a few bytes may decode to
/// hundreds of megabytes, which a sink that is always ready would otherwise get all at once.
const GIVEN_AT_ONCE: usize = 1 << 20;

/// What lies between the network and a sink that takes bodies while they come.
#[derive(Debug)]
pub struct Pieces {
    /// Bodies that may be read on.
    resumed: Resumed,
    /// Memory for the piece on its way.
    piece: Vec<u8>,
    /// Bytes that may still be kept in this turn of bodies that are long or become much more than they
    /// were.
    kept_left: usize,
    /// The most that a turn kept of them.
    #[cfg(test)]
    pub kept_max: usize,
    /// What all turns counted for them.
    #[cfg(test)]
    pub kept_total: usize,
}

/// Bytes that a turn keeps of bodies that are long or become much more than they were, or reads of the
/// wire for them: some milliseconds, in which they are decoded, or the kernel clears the memory for them.
pub const KEPT_PER_TURN: usize = 512 << 10;

/// What each step of a body that is decoded counts at least: it may be long for a few bytes.
const DECODED_LEAST: usize = 4 << 10;

/// What each other step counts at least: chunks may be of one byte each.
const STEP_LEAST: usize = 16;

impl Pieces {
    pub fn new(waker: Waker) -> Self {
        Pieces {
            resumed: Resumed::new(move || waker.wake()),
            piece: Vec::new(),
            kept_left: KEPT_PER_TURN,
            #[cfg(test)]
            kept_max: 0,
            #[cfg(test)]
            kept_total: 0,
        }
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.kept_left = KEPT_PER_TURN;
    }

    /// Reads from a connection until there is news of it or a piece of a body, which the sink is given
    /// where it takes the body. What may not be read yet is put by.
    pub fn read(
        &mut self,
        http: &mut HttpSocket,
        bytes: &mut &[u8],
        stamp: Stamp,
        flights: &Slab<Flight>,
        sink: &mut dyn Sink,
    ) -> Read {
        if http.held {
            http.put_by(std::mem::take(bytes), stamp);
            return Read::Held;
        }
        if self.kept_left == 0 && http.is_long() {
            http.put_by(std::mem::take(bytes), stamp);
            return Read::Enough;
        }
        let before = http.progress();
        let news = http.connection.handle_bytes(bytes, arrival(stamp));
        let flow = self.hand_over(http, flights, sink);
        if news == Some(News::Piece) && http.is_long() {
            let kept = http.kept_since(before);
            self.kept_left = self.kept_left.saturating_sub(kept);
            #[cfg(test)]
            {
                self.kept_max = self.kept_max.max(KEPT_PER_TURN - self.kept_left);
                self.kept_total += kept;
            }
            if self.kept_left > 0 {
                return Read::Again;
            }
            http.put_by(std::mem::take(bytes), stamp);
            return Read::Enough;
        }
        match news {
            Some(News::Piece) | None if flow == Some(Flow::Full) => {
                http.put_by(std::mem::take(bytes), stamp);
                Read::Full
            }
            Some(News::Piece) if http.given >= GIVEN_AT_ONCE => {
                http.given = 0;
                http.put_by(std::mem::take(bytes), stamp);
                Read::Enough
            }
            Some(News::Piece) => Read::Again,
            Some(news) => Read::News(news),
            None => Read::All,
        }
    }

    /// Gives the sink what there is of a body that it takes. `None` where there is nothing.
    fn hand_over(
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
        http.given += self.piece.len();
        self.piece.clear();
        Some(flow)
    }
}

/// What reading came to.
pub enum Read {
    /// There may be more in what was read.
    Again,
    /// This has happened.
    News(News),
    /// The sink has no room for more of the body, from now on.
    Full,
    /// As much of the body as one turn allows was read, or given to the sink: it is others' turn.
    Enough,
    /// It is held: nothing was read.
    Held,
    /// There is no more.
    All,
}

impl Read {
    /// Whether an exchange is over with it.
    pub fn ends_exchange(&self) -> bool {
        matches!(self, Read::News(News::Ended { .. }))
    }
}

impl HttpSocket {
    /// Whether the body of the reply on its way is taken in pieces.
    pub fn is_taken(&self) -> bool {
        let exchange = self.connection.exchange();
        exchange.is_some_and(|exchange| exchange.body_mode() == BodyMode::Take)
    }

    /// Whether the body of the reply on its way is kept, and is long or may become more than what comes.
    pub fn is_long(&self) -> bool {
        let exchange = self.connection.exchange();
        exchange.is_some_and(Exchange::is_long)
    }

    /// Bytes of the body of the reply on its way so far, and bytes of the wire that were read of the
    /// reply.
    fn progress(&self) -> (usize, u64) {
        let exchange = self.connection.exchange();
        exchange.map_or((0, 0), |exchange| {
            (exchange.body_length(), exchange.wire_length())
        })
    }

    /// What a step that began at this progress counts.
    fn kept_since(&self, before: (usize, u64)) -> usize {
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
        let (id, tag) = (job.id, job.tag());
        let http = self.sockets.get(socket).and_then(Socket::http);
        let connection = &http.expect("a reply comes on a connection").connection;
        let exchange = connection.exchange().expect("a head has its exchange");
        let head = exchange.head().expect("the head just came");
        let body_mode = self.sink.on_head(&Reply {
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
            resumed: self.pieces.resumed.tell(),
            root: job.root(),
            depth: job.depth,
            route: job.route(),
            leads: &self.leads,
        });
        let now = self.now;
        let connection = &mut self.http(socket).connection;
        let exchange = connection.exchange_mut().expect("it was just there");
        exchange.set_body_mode(body_mode);
        if body_mode == BodyMode::Cancel {
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

    /// This body is not read on until it is [resumed](Core::resume): the sink has no room for more of it, or
    /// it is others' turn.
    pub fn hold(&mut self, key: Key) {
        let now = self.now;
        let http = self.http(key);
        assert!(
            http.is_taken() || http.is_long(),
            "what is over is held by nobody"
        );
        http.held = true;
        if http.paused.is_none() {
            http.paused = Some(now);
            self.io.set_reading(token_of(key), false);
        }
        self.carry_on(key);
    }

    /// As much of this body as one turn allows was read: its connection goes on in the next turn.
    pub fn hold_for_others(&mut self, key: Key) {
        let http = self.http(key);
        http.gave_way = http.paused.is_none();
        self.hold(key);
        let flight = self.http(key).flight.and_then(|key| self.flights.get(key));
        let held = Held {
            attempt: flight.expect("a reply is somebody's").job.id,
            socket: key,
        };
        (self.pieces.resumed.tell())(held);
    }

    /// Goes on with what was put by of a connection that is read again.
    pub fn read_on(&mut self, key: Key) {
        let unread = std::mem::take(&mut self.http(key).unread);
        let Some(stamp) = unread.stamp else {
            return;
        };
        let mut bytes = &unread.bytes[..];
        let mut steps = Bound::new("read on", steps_max(bytes.len()));
        while steps.step() {
            let Some(http) = self.sockets.get_mut(key).and_then(Socket::http_mut) else {
                return;
            };
            let read = self
                .pieces
                .read(http, &mut bytes, stamp, &self.flights, &mut *self.sink);
            self.buffered = http.recount(self.buffered);
            match read {
                Read::Again => {}
                Read::News(news) => self.on_news(key, news),
                Read::Full => {
                    http.unread.end = unread.end;
                    return self.hold(key);
                }
                Read::Enough => {
                    http.unread.end = unread.end;
                    return self.hold_for_others(key);
                }
                Read::Held => unreachable!("it was just let go"),
                Read::All => break,
            }
        }
        match unread.end {
            None => self.carry_on_with_request(key),
            Some(End::Ended(stamp)) => self.on_ended(key, stamp),
            Some(End::Failed(error, at)) => self.on_failed(key, error, at),
        }
    }

    /// A connection is held no longer, for what it carried is over.
    pub fn let_go(&mut self, key: Key) {
        let http = self.http(key);
        if std::mem::take(&mut http.held) && http.paused.take().is_some() {
            self.io.set_reading(token_of(key), true);
        }
    }

    /// Bodies for which the sink has room again, and those that gave way, are read on as soon as there is
    /// room for all.
    pub fn resume(&mut self) {
        while let Some(Held { attempt, socket }) = self.pieces.resumed.take() {
            let Some(http) = self.sockets.get_mut(socket).and_then(Socket::http_mut) else {
                continue;
            };
            let flight = http.flight.and_then(|key| self.flights.get(key));
            if flight.is_some_and(|flight| flight.job.id == attempt) && http.held {
                http.held = false;
                if std::mem::take(&mut http.gave_way) {
                    // What came before was this body's own time. Others that gave way are first.
                    http.paused = Some(self.now);
                    self.paused.push_back(socket);
                } else {
                    self.paused.push_front(socket);
                }
            }
        }
    }
}
