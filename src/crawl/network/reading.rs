//! Reads from connections: from all, until buffered bodies reach their bound or the sink is busy.

use std::borrow::Cow;

use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::Network;
use crate::crawl::network::pieces::Read;
use crate::crawl::network::ports::NO_PORT;
use crate::crawl::network::rate::InFlight;
use crate::crawl::network::room::EXHAUSTED;
use crate::crawl::network::socket::{End, Socket, Unread, token_of};
use crate::fetch::body::BodyMode;
use crate::fetch::connection::ConnectionEvent;
use crate::fetch::exchange::Exchange;
use crate::frontier::request::PageKind;
use crate::io::{Chunk, Io, NetError, Stamp};
use crate::sink::reply::{Flow, Held, ResumeFn};

/// Result of a socket's event.
pub enum SocketEvent {
    /// An event of a connection of pages.
    Http(ConnectionEvent),
    /// The connection of a probe failed.
    Probe(u32),
    /// Handled within the network.
    Other,
}

/// Result of resuming a connection whose reads were stopped.
pub enum Resumed {
    /// It is read again, beginning with the stored bytes.
    Reads(Key),
    /// Another event instead.
    Event(Key, ConnectionEvent),
    /// It is closed, or held.
    Other,
}

impl<I: Io> Network<I> {
    /// Bytes of all buffered bodies.
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// Whether they have reached their bound.
    pub fn is_full(&self) -> bool {
        self.buffered as u64 >= self.config.buffered_bodies_max
    }

    /// Bytes have arrived on a socket: those of replies are within `BYTES_PER_SECOND_MAX`.
    pub fn count_received(&mut self, key: Key, chunk: &Chunk, now: Instant) {
        if self.rate.is_limited() && self.sockets.http(key).is_some() {
            let bytes = self.length_of(chunk);
            self.rate.count(bytes, now);
        }
    }

    /// An attempt has ended, of which so many bytes were received; `reply`: the kind of its reply, if it has one.
    pub fn count_reply(&mut self, bytes: u64, reply: Option<PageKind>) {
        self.rate.count_reply(bytes, reply);
    }

    /// Bytes of all replies that have ended, in earlier runs of the crawl, too.
    pub fn received(&self) -> u64 {
        self.rate.received()
    }

    /// So many bytes were received in earlier runs.
    pub fn restore_received(&mut self, bytes: u64) {
        self.rate.restore_received(bytes);
    }

    /// Whether another request may be sent beside those in flight, by `CLOSESPIDER_BYTECOUNT`.
    pub fn leaves_room(&self, most: u64, in_flight: InFlight) -> bool {
        let reply_max = self.config.fetch.body_max;
        self.rate
            .leaves_room(most, in_flight, self.arriving, reply_max)
    }

    /// Whether another request may be sent, by `BYTES_PER_SECOND_MAX`.
    pub fn allows_request(&self, in_flight: InFlight, now: Instant) -> bool {
        self.rate.allows_request(in_flight, now)
    }

    /// Whether bytes per second are limited: then stopped connections are read one in each turn.
    pub fn is_rate_limited(&self) -> bool {
        self.rate.is_limited()
    }

    /// When more may be received, if that has to wait.
    pub fn rate_due(&self, now: Instant) -> Option<Instant> {
        self.rate.paid_at(now)
    }

    /// Replaces the buffered bytes of a page that is being processed.
    pub fn count_held(&mut self, before: usize, present: usize) {
        self.buffered = self.buffered - before + present;
    }

    /// Updates the buffered bytes of a connection.
    pub(super) fn recount(&mut self, key: Key) {
        let total = self.buffered;
        let arriving = self.arriving;
        let http = self.http_mut(key);
        let (total, arriving) = (http.recount(total), http.recount_arrived(arriving));
        (self.buffered, self.arriving) = (total, arriving);
    }

    /// Sets the mode of the body whose head arrived on a connection.
    pub fn set_body_mode(&mut self, key: Key, mode: BodyMode) {
        let exchange = self.http_mut(key).connection.exchange_mut();
        let exchange = exchange.expect("a head has its exchange");
        exchange.set_body_mode(mode);
    }

    /// Of the body whose head arrived on a connection the length alone is wanted.
    pub fn count_body(&mut self, key: Key) {
        let exchange = self.http_mut(key).connection.exchange_mut();
        exchange.expect("a head has its exchange").count_body();
    }

    /// The first bytes of the body whose head arrived on a connection are wanted, whatever its mode.
    pub fn want_body_start(&mut self, key: Key, bytes: usize) {
        let exchange = self.http_mut(key).connection.exchange_mut();
        exchange.expect("a head has its exchange").want_start(bytes);
    }

    /// Whether they are all there, before the end of the body: true once.
    pub fn poll_body_start(&mut self, key: Key) -> bool {
        let http = self.sockets.http_mut(key);
        let exchange = http.and_then(|http| http.connection.exchange_mut());
        exchange.is_some_and(Exchange::poll_start)
    }

    /// Handle that a sink uses to resume a body.
    pub fn resume_fn(&self) -> &ResumeFn {
        self.pieces.resume_fn()
    }

    /// Length of the received bytes.
    pub fn length_of(&self, chunk: &Chunk) -> usize {
        self.io.bytes(chunk).len()
    }

    /// Continues with the bytes received for a socket, after those used; `None` if a connection of pages
    /// needs nothing more. See [`Pieces::read`](super::pieces::Pieces::read) for `give`.
    pub fn read(
        &mut self,
        key: Key,
        chunk: &Chunk,
        used: &mut usize,
        stamp: Stamp,
        give: impl FnOnce(Key, &[u8]) -> Flow,
        now: Instant,
    ) -> Option<Read> {
        let bytes = self.io.bytes(chunk);
        let mut rest = &bytes[*used..];
        match self.sockets.get_mut(key)? {
            Socket::Http(http) => {
                let read = self.pieces.read(http, &mut rest, stamp, give);
                // They may have come long ago, and filled the window until now.
                http.connection.handle_read(now);
                self.buffered = http.recount(self.buffered);
                self.arriving = http.recount_arrived(self.arriving);
                *used = bytes.len() - rest.len();
                // Without TLS, no more output follows from the bytes read.
                let is_all = rest.is_empty() && http.connection.is_plain();
                Some(if is_all { read.into_last() } else { read })
            }
            Socket::Dns(socket) => {
                self.names.handle_received(*socket, bytes, stamp.at, now);
                None
            }
            Socket::Operator => {
                self.operators.handle_received(key, bytes);
                None
            }
            Socket::Probe(_) | Socket::Parting | Socket::Listener => None,
        }
    }

    /// Takes the stored bytes of a connection that is read again.
    pub fn take_unread(&mut self, key: Key) -> Unread {
        std::mem::take(&mut self.http_mut(key).unread)
    }

    /// Continues with those bytes; `None` if the connection is closed. Its end is stored again if it is
    /// [held](Self::hold).
    pub fn read_unread(
        &mut self,
        key: Key,
        unread: &mut Unread,
        used: &mut usize,
        stamp: Stamp,
        give: impl FnOnce(Key, &[u8]) -> Flow,
    ) -> Option<Read> {
        let http = self.sockets.http_mut(key)?;
        let mut rest = &unread.bytes[*used..];
        let read = self.pieces.read(http, &mut rest, stamp, give);
        *used = unread.bytes.len() - rest.len();
        self.buffered = http.recount(self.buffered);
        self.arriving = http.recount_arrived(self.arriving);
        if matches!(read, Read::Full | Read::Enough) {
            http.unread.end = unread.end.take();
        }
        Some(read)
    }

    /// Stops reading a connection until there is room.
    pub fn pause(&mut self, key: Key, now: Instant) {
        self.http_mut(key).paused = Some(now);
        self.io.set_reading(token_of(key), false);
        if self.favoured == Some(key) {
            self.paused.push_front(key);
        } else {
            self.paused.push_back(key);
        }
    }

    /// Holds a body until it is [resumed](Self::resume): the sink has no room for more of it, or it has used
    /// its share of the turn.
    pub fn hold(&mut self, key: Key, now: Instant) {
        let http = self.http_mut(key);
        assert!(
            http.is_taken() || http.is_long(),
            "a finished exchange has one owner"
        );
        http.held = true;
        if http.paused.is_none() {
            http.paused = Some(now);
            self.io.set_reading(token_of(key), false);
        }
        let is_read = self.transmit(key, now);
        debug_assert!(!is_read, "its reading is stopped");
    }

    /// Holds a body that has used its share of the turn. Its connection is read again in the next turn.
    /// `number`: that of its attempt.
    pub fn hold_for_others(&mut self, key: Key, number: u64, now: Instant) {
        let http = self.http_mut(key);
        http.gave_way = http.paused.is_none();
        self.hold(key, now);
        (self.pieces.resume_fn())(Held {
            attempt: number,
            socket: key,
        });
    }

    /// Whether a body is held because it used its share of the turn.
    pub fn gave_way(&self, key: Key) -> bool {
        let http = self.sockets.http(key);
        http.is_some_and(|http| http.gave_way)
    }

    /// Removes the holds of a connection whose exchange is over: it is read again, and no other connection
    /// waits for its end.
    pub(super) fn read_freely(&mut self, key: Key) {
        let http = self.http_mut(key);
        if std::mem::take(&mut http.held) && http.paused.take().is_some() {
            self.io.set_reading(token_of(key), true);
        }
        if self.favoured == Some(key) {
            self.favoured = None;
        }
    }

    /// Resumes bodies for which the sink has room again, and those that used their share of a turn, once
    /// there is room for all. `number_of` gives the number of an attempt that is not over.
    pub fn resume(&mut self, number_of: impl Fn(Key) -> Option<u64>, now: Instant) {
        while let Some(Held { attempt, socket }) = self.pieces.take_resumed() {
            let Some(http) = self.sockets.http_mut(socket) else {
                continue;
            };
            if http.flight.and_then(&number_of) == Some(attempt) && http.held {
                http.held = false;
                if std::mem::take(&mut http.gave_way) {
                    // The time before was this body's own. Others that used their share are first.
                    http.paused = Some(now);
                    self.paused.push_back(socket);
                } else {
                    self.paused.push_front(socket);
                }
            }
        }
    }

    /// Number of connections that wait for room.
    pub fn paused_len(&self) -> usize {
        self.paused.len()
    }

    /// Room for the waiting connections that are read at once.
    pub fn room(&self) -> u64 {
        let bound = self.config.buffered_bodies_max;
        bound.saturating_sub(self.buffered as u64)
    }

    /// Reads from the next connection that waits for room, and counts its share of that `room`. `None` if it
    /// has to wait on.
    ///
    /// If there is no room, and only the end of a body can make some, one connection is read all the same
    /// until its exchange is over: the bound is exceeded by one body at most, and by the bytes that each
    /// connection had read when it was stopped.
    pub fn resume_next(&mut self, room: &mut u64, now: Instant) -> Option<Resumed> {
        // Bytes are kept twice, raw and decoded, in memory that grows by doubling.
        let at_once = (self.config.io.read_budget as u64).saturating_mul(4);
        if self.rate.is_spent(now) {
            return None;
        }
        let key = self.paused.front().copied()?;
        let mut place = 0;
        if *room < at_once && self.fills(key) {
            match self.favoured.filter(|_| self.favours_one()) {
                // It may have used its share, and others are before it now.
                Some(favoured) => {
                    place = self.paused.iter().position(|key| *key == favoured)?;
                }
                None => self.favoured = Some(key),
            }
        }
        *room = room.saturating_sub(at_once);
        let key = self.paused.remove(place).expect("it stands there");
        let Some(http) = self.sockets.http_mut(key).filter(|http| !http.held) else {
            return Some(Resumed::Other);
        };
        let Some(since) = http.paused.take() else {
            return Some(Resumed::Other);
        };
        let waited = now.saturating_since(since);
        http.connection.handle_resumed(waited, now);
        // Its timer may have been due each time that others were read.
        if let Some(event) = http.connection.handle_timeout(&self.config.fetch, now) {
            return Some(Resumed::Event(key, event));
        }
        self.io.set_reading(token_of(key), true);
        Some(Resumed::Reads(key))
    }

    /// Whether there still is a connection that reads on without room.
    fn favours_one(&self) -> bool {
        self.favoured.is_some_and(|key| self.fills(key))
    }

    /// Whether reading takes room that its end frees: not for bodies that the sink takes in pieces.
    pub(super) fn fills(&self, key: Key) -> bool {
        let http = self.sockets.http(key);
        http.is_some_and(|http| http.connection.exchange().is_some() && !http.is_taken())
    }

    /// Called when a socket failed. Ends its connection or query; of a body on hold, once that is read on.
    /// Returns what became of it.
    pub fn handle_failed(
        &mut self,
        key: Key,
        error: NetError,
        at: Instant,
        now: Instant,
    ) -> SocketEvent {
        let event = match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) if http.held => {
                http.unread.end = Some(End::Failed(error, at));
                None
            }
            Some(Socket::Http(http)) => {
                http.lacks_route = error == NetError::NoRoute;
                let (code, detail) = words(error);
                http.connection.handle_failed(code, detail, at)
            }
            Some(Socket::Probe(probe)) => return SocketEvent::Probe(*probe),
            Some(Socket::Dns(socket)) => {
                let socket = *socket;
                self.end_dns(key, socket, now);
                None
            }
            Some(Socket::Operator) => {
                self.fail_operator(key);
                None
            }
            Some(Socket::Parting | Socket::Listener) | None => None,
        };
        event.map_or(SocketEvent::Other, SocketEvent::Http)
    }

    /// Called when the peer of a socket ended its side. Ends the reply or the query on it; of a body on hold,
    /// once that is read on.
    pub fn handle_ended(
        &mut self,
        key: Key,
        stamp: Stamp,
        now: Instant,
    ) -> Option<ConnectionEvent> {
        match self.sockets.get_mut(key)? {
            Socket::Http(http) if http.held => {
                http.unread.end = Some(End::Ended(stamp));
                None
            }
            Socket::Http(http) => http.connection.handle_end(stamp.at),
            Socket::Dns(socket) => {
                let socket = *socket;
                self.end_dns(key, socket, now);
                None
            }
            Socket::Operator => {
                self.operators.handle_ended(key);
                None
            }
            Socket::Probe(_) | Socket::Parting | Socket::Listener => None,
        }
    }
}

/// Stable code and message of a socket's failure.
fn words(error: NetError) -> (&'static str, Cow<'static, str>) {
    match error {
        NetError::Refused => ("refused", "the connection was refused".into()),
        NetError::Reset => ("reset", "the connection was reset".into()),
        NetError::TimedOut => ("timed_out", "the connection timed out in the kernel".into()),
        NetError::NoRoute => ("unreachable", "no route to the host".into()),
        NetError::Unreachable => ("unreachable", "the host cannot be reached".into()),
        NetError::Exhausted => (
            EXHAUSTED,
            "this machine has no free socket or memory".into(),
        ),
        NetError::NoPort => (NO_PORT, "this machine has no local port left".into()),
        NetError::Other(errno) => (
            "other",
            format!("{}", std::io::Error::from_raw_os_error(errno)).into(),
        ),
    }
}
