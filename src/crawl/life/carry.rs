//! Connections and what they carry: opened or taken from the pool, sent on, timed, kept or closed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smallvec::SmallVec;

use super::flight::{Carrier, End, Flight, HttpSocket, Socket, Stage, Unread};
use super::names::Found;
use super::origins::Origin;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::core::{Core, key_of, token_of};
use crate::crawl::timer::Timer;
use crate::fetch::connection::{Connection, News};
use crate::fetch::exchange::{Description, Exchange};
use crate::fetch::eyeballs::{Race, Turn};
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::timings::{Arrival, Timings};
use crate::fetch::tls::TlsSession;
use crate::fetch::tunnel::{Tunnel, UNREACHABLE};
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::io::{Clock, Close, Event, Io, NetError, Stamp};
use crate::throttle::engine::{LaneId, TicketId};
use crate::wire::http::{Limits, RequestError, UsualFields};
use crate::wire::proxy::Proxy;
use crate::wire::robots;

/// The code of a kept connection's death, after which a request is tried once more on a new one.
pub const IDLE_CLOSED: &str = "idle_closed";

/// The code of a connection that our own machine had no socket for.
pub const EXHAUSTED: &str = "exhausted";
/// The code of a connection that our own machine had no local port for.
pub const NO_PORT: &str = "no_port";
/// How long a lane waits after that.
const EXHAUSTED_PAUSE: Duration = Duration::from_secs(1);
/// A server that closes a new connection on which it heard nothing for so long did not hang up on
/// us: it was we who kept it waiting. A request that is put back for that is not charged, and this
/// is the least time between two such connections. No server in use waits for less.
const PATIENT: Duration = Duration::from_millis(900);

impl<I: Io> Core<I> {
    /// A released request takes an idle connection of its origin, or begins to make one.
    pub fn take_connection(&mut self, job: Job, lane: LaneId, ticket: TicketId, found: Found) {
        let mut timings = Timings {
            started: self.now,
            ..Timings::default()
        };
        if let Some(took) = self.looked_up.remove(&lane) {
            // The lookup was this attempt's; the wait for its turn after it is no phase of it.
            timings.started = self.now - took;
            timings.dns = Some(self.now);
        }
        let proxy = self.frontier.proxy_of(lane).cloned();
        let proxy = proxy.as_deref();
        let exchange = self
            .exchange_of(&job, proxy, timings)
            .expect("what cannot be put on the wire is not admitted");
        let origin = match proxy {
            None => Origin::Direct(self.frontier.hold_origin(lane)),
            // Whoever is somebody else to a proxy has other connections through it.
            Some(proxy) => {
                let way = format!("{} by {}", job.url.origin(), proxy.to_url());
                Origin::ByProxy(self.ways.take(&way))
            }
        };
        // A kept connection may end under a request, which would have to be made again.
        let idle = match job.fresh || !job.is_idempotent() {
            true => None,
            false => self.pool.take(origin.number()),
        };
        let port = found.port;
        let scarce_until = match idle {
            Some(_) => None,
            None => {
                let places = found.addresses.iter();
                let places = places.map(|address| SocketAddr::new(*address, port));
                self.ports.scarce_until(places, self.now)
            }
        };
        let key = self.flights.insert(Flight {
            lane,
            ticket,
            origin,
            released: self.now,
            signal: None,
            decisions: Vec::new(),
            port,
            stage: Stage::Connecting {
                exchange,
                race: Race::new(found.addresses),
                sockets: SmallVec::new(),
            },
            job,
        });
        if self.flight_of.len() <= ticket.slot() {
            self.flight_of.resize(ticket.slot() + 1, None);
        }
        self.flight_of[ticket.slot()] = Some(key);
        match (idle, scarce_until) {
            (Some(slot), _) => {
                let socket = self
                    .sockets
                    .key_of(slot)
                    .expect("an idle connection is open");
                self.http(socket).flight = Some(key);
                self.on_ready(key, socket);
            }
            (None, Some(until)) => self.put_off(key, until),
            (None, None) => self.race_on(key),
        }
    }

    /// The exchange of a job, ready to be sent, in the memory of one that is over where there is some.
    fn exchange_of(
        &mut self,
        job: &Job,
        proxy: Option<&Proxy>,
        timings: Timings,
    ) -> Result<Box<Exchange>, RequestError> {
        #[cfg_attr(not(feature = "cookies"), expect(unused_mut, reason = "they are all"))]
        let mut fields = job.fields();
        #[cfg(feature = "cookies")]
        if let Some(cookies) = self.cookies_for(job, &fields) {
            fields.push(("Cookie".to_owned(), cookies));
        }
        let asked = describe(job, &fields, proxy, &self.usual);
        let (settings, limits) = (&self.config.fetch, Limits::default());
        let mut exchange = self.spare.take_exchange();
        exchange.renew(&asked, settings, limits, timings)?;
        Ok(exchange)
    }

    /// Opens the next connection of an attempt's race, when it is time for it.
    fn race_on(&mut self, key: Key) {
        loop {
            let Some(flight) = self.flights.get_mut(key) else {
                return;
            };
            let Stage::Connecting { race, .. } = &mut flight.stage else {
                return;
            };
            match race.next(self.now) {
                Turn::Try(address) => {
                    // A further address is one scope more, which must have a place.
                    let scope = self.throttle.address_scope(address);
                    let has_place =
                        scope.is_none_or(|scope| self.throttle.try_add(flight.ticket, scope));
                    if !has_place {
                        race.handle_skipped();
                    } else if let Err(failure) = self.open(key, address) {
                        return self.end_connecting(key, failure, &Carrier::default());
                    }
                }
                Turn::At(at) => return self.deadlines.arm_by(Timer::Flight(key.slot), at),
                Turn::Wait | Turn::Lost => return,
            }
        }
    }

    /// Opens one connection for an attempt.
    fn open(&mut self, key: Key, address: IpAddr) -> Result<(), Failure> {
        if self.is_crowded()
            && let Some(idle) = self.pool.evict()
        {
            self.close_slot(idle, Close::Finish);
        }
        let flight = self.flights.get_mut(key).expect("it connects");
        let url = &flight.job.url;
        let tls = match url.is_https() {
            true => Some(TlsSession::new(&self.tls, url.host_str())?),
            false => None,
        };
        let tunnel = match self.frontier.proxy_of(flight.lane) {
            Some(proxy) => Tunnel::new(proxy, url)?,
            None => None,
        };
        let remote = SocketAddr::new(address, flight.port);
        let socket = self.sockets.insert(Socket::Http(HttpSocket {
            connection: Connection::open(remote, tls, flight.released, self.now)
                .with_timeout(flight.job.timeout())
                .through(tunnel),
            flight: Some(key),
            origin: flight.origin,
            paused: None,
            held: false,
            unread: Unread::default(),
            given: 0,
            gave_way: false,
            counted: 0,
        }));
        if let Stage::Connecting { race, sockets, .. } = &mut flight.stage {
            sockets.push(socket);
            race.handle_started(self.now);
        }
        let origin = flight.origin;
        self.hold_again(origin);
        self.stats.connections += 1;
        self.io.connect(token_of(socket), remote);
        self.arm(socket);
        Ok(())
    }

    /// Whether one more connection is one too many while others are idle.
    fn is_crowded(&self) -> bool {
        let asked_for = self.load.as_ref().is_some_and(|load| {
            self.throttle.in_flight() + self.pool.len() > load.connections_max()
        });
        asked_for || self.sockets.len() >= self.io.capacity()
    }

    pub fn on_flight_timeout(&mut self, slot: u32) {
        if let Some(key) = self.flights.key_of(slot) {
            self.race_on(key);
        }
    }

    pub fn on_connected(&mut self, key: Key, started: Instant, stamp: Stamp) {
        let is_local_read = self.sink.reads_local();
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) => {
                let flight = http.flight.expect("a new connection is somebody's");
                self.ports.granted(http.connection.remote(), self.now);
                let local = is_local_read.then(|| self.io.local(token_of(key)));
                let news =
                    http.connection
                        .handle_connected(local.flatten(), started, arrival(stamp));
                self.won(flight, key);
                if let Some(news) = news {
                    self.on_news(key, news);
                }
                self.carry_on(key);
            }
            Some(Socket::Dns(socket)) => {
                let socket = *socket;
                self.resolver.handle_connected(socket);
            }
            Some(Socket::Parting) | None => {}
        }
    }

    /// Of an attempt's connections this one was established first: the others are given up.
    fn won(&mut self, key: Key, winner: Key) {
        let flight = self
            .flights
            .get_mut(key)
            .expect("a connection has its attempt");
        self.frontier.host_connected(flight.lane);
        self.deadlines.cancel(Timer::Flight(key.slot));
        if let Stage::Connecting { sockets, .. } = &mut flight.stage {
            let all = std::mem::replace(sockets, SmallVec::from_slice(&[winner]));
            for loser in all.into_iter().filter(|socket| *socket != winner) {
                self.close_socket(loser, Close::Reset);
            }
        }
    }

    pub fn on_failed(&mut self, key: Key, error: NetError, at: Instant) {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) if http.held => {
                http.unread.end = Some(End::Failed(error, at));
            }
            Some(Socket::Http(http)) => {
                let (code, detail) = words(error);
                if let Some(news) = http.connection.handle_failed(code, detail, at) {
                    self.on_news(key, news);
                }
            }
            Some(Socket::Dns(socket)) => {
                let socket = *socket;
                self.on_dns_ended(key, socket);
            }
            Some(Socket::Parting) | None => {}
        }
    }

    pub fn on_ended(&mut self, key: Key, stamp: Stamp) {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) if http.held => http.unread.end = Some(End::Ended(stamp)),
            Some(Socket::Http(http)) => {
                if let Some(news) = http.connection.handle_end(arrival(stamp).at) {
                    self.on_news(key, news);
                }
            }
            Some(Socket::Dns(socket)) => {
                let socket = *socket;
                self.on_dns_ended(key, socket);
            }
            Some(Socket::Parting) | None => {}
        }
    }

    /// Gaps run from the end of the system call that sent the last of a request, when it is gone for
    /// certain: no server ever sees a shorter one. None of the next requests may depart before all of
    /// these are known, so it is done ahead of all other news.
    pub fn begin_gaps(&mut self, events: &[Event]) {
        for event in events {
            let (Event::Sent { token, gone, .. } | Event::Gone { token, at: gone }) = event else {
                continue;
            };
            self.begin_gap(key_of(*token), *gone);
        }
    }

    /// The same of what one connection has sent.
    pub fn begin_gap(&mut self, socket: Key, gone: Instant) {
        if let Some(Socket::Http(http)) = self.sockets.get(socket)
            && let Some(flight) = http.flight.and_then(|key| self.flights.get(key))
            && matches!(flight.stage, Stage::Exchanging { .. })
        {
            self.throttle.sent(flight.ticket, gone);
            self.throttle
                .follow_departure(flight.lane, flight.ticket, gone);
        }
    }

    pub fn on_sent(&mut self, key: Key, at: Instant, slack: Duration) {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) => {
                http.connection.handle_sent(at, slack);
                self.arm(key);
            }
            Some(Socket::Dns(socket)) => self.resolver.handle_sent(*socket, at),
            Some(Socket::Parting) | None => {}
        }
    }

    pub fn on_socket_timeout(&mut self, slot: u32) {
        let Some(key) = self.sockets.key_of(slot) else {
            return;
        };
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return;
        };
        if http.paused.is_some() {
            // We keep it waiting, not it us.
            self.arm_at(key, self.now + self.config.fetch.idle_timeout);
            return;
        }
        match http.connection.handle_timeout(&self.config.fetch, self.now) {
            Some(news) => self.on_news(key, news),
            None => self.arm(key),
        }
    }

    /// What a connection has to say.
    pub fn on_news(&mut self, key: Key, news: News) {
        match news {
            News::Ready => {
                let flight = self
                    .http(key)
                    .flight
                    .expect("a new connection is somebody's");
                self.hear_of_tunnel(flight);
                self.on_ready(flight, key);
            }
            News::Failed(failure) => self.on_set_up_failed(key, failure),
            News::Head => {
                let flight = self.http(key).flight.expect("a reply is somebody's");
                self.on_head(flight, key);
            }
            News::Piece => unreachable!("it is handed over where it was read"),
            News::Ended { failure, reusable } => self.on_exchange_over(key, failure, reusable),
            News::DiedIdle => self.on_died_idle(key),
            News::Closed => self.on_closed_by_peer(key),
        }
    }

    /// A new connection is ready: where a proxy tunnels it, the origin behind was reached.
    fn hear_of_tunnel(&mut self, key: Key) {
        let flight = self.flights.get(key).expect("a connection has its attempt");
        let proxy = self.frontier.proxy_of(flight.lane);
        if proxy.is_some_and(|proxy| !proxy.forwards(&flight.job.url)) {
            self.frontier.origin_connected(flight.lane);
        }
    }

    fn on_set_up_failed(&mut self, key: Key, failure: Failure) {
        let http = self.http(key);
        let flight_key = http.flight.expect("a new connection is somebody's");
        let carrier = Carrier::of(&http.connection);
        let established = http.connection.established();
        self.close_socket(key, Close::Reset);
        let flight = self
            .flights
            .get_mut(flight_key)
            .expect("a connection has its attempt");
        match &mut flight.stage {
            Stage::Connecting {
                race,
                sockets,
                exchange,
            } => {
                // A handshake that failed had a connection, and it took its time.
                exchange.timings_mut().end_connect(established);
                sockets.retain(|socket| *socket != key);
                race.handle_failed();
                // Only TCP's failures are the address's; TLS is the same behind all of them, and so is
                // what a proxy says.
                let is_tcp = established.is_none()
                    && (matches!(failure.kind, FailureKind::Connect)
                        || failure.kind == FailureKind::Timeout && failure.code == "connect");
                if is_tcp && race.next(self.now) != Turn::Lost {
                    return self.race_on(flight_key);
                }
                // A probe tells what it could not send; it does not wait until it could.
                if failure.code == EXHAUSTED && self.load.is_none() {
                    return self.on_exhausted(flight_key, &failure);
                }
                if failure.code == NO_PORT && self.load.is_none() {
                    let remote = carrier.remote.expect("a connection leads somewhere");
                    return self.on_no_port(flight_key, remote);
                }
                if is_tcp {
                    self.frontier.host_failed(flight.lane, self.now);
                } else if failure.code == UNREACHABLE {
                    self.frontier.origin_failed(flight.lane, self.now);
                }
                self.end_connecting(flight_key, failure, &carrier);
            }
            // It spoke, or failed, between being ready and departing.
            Stage::Ready { .. } => self.end_waiting(flight_key, failure, &carrier),
            Stage::Exchanging { .. } | Stage::Moving => {
                unreachable!("a connection that carries a request is set up")
            }
        }
    }

    /// Our machine has no socket to give. That is no fault of the origin's, and no URL's loss: the
    /// request waits, and fewer are in flight from now on.
    fn on_exhausted(&mut self, key: Key, failure: &Failure) {
        if let Some(most) = self.room.refused(self.throttle.in_flight()) {
            let level = self.room.said.level();
            log::log!(
                level,
                "{failure}; at most {most} requests are in flight for now (CONCURRENT_REQUESTS)"
            );
            self.throttle.set_in_flight_max(most);
        }
        self.put_off(key, self.now + EXHAUSTED_PAUSE);
    }

    /// Our machine has no port left for one more connection to this place. Requests for it wait,
    /// and those for others go on.
    fn on_no_port(&mut self, key: Key, remote: SocketAddr) {
        let until = self.ports.refused(remote, self.now);
        let level = self.ports.said.level();
        log::log!(
            level,
            "our machine has no local port left for {remote}; requests wait until one is free \
             (net.ipv4.ip_local_port_range has more)"
        );
        self.put_off(key, until);
    }

    /// A request that connects goes back into its lane, which waits until a moment.
    fn put_off(&mut self, key: Key, until: Instant) {
        let flight = self.flights.get(key).expect("an attempt ends once");
        let lane = flight.lane;
        if let Stage::Connecting { sockets, .. } = &flight.stage {
            for socket in sockets.clone() {
                self.close_socket(socket, Close::Reset);
            }
        }
        self.reconnect(key);
        self.frontier
            .pause(lane, until, &mut self.throttle, self.now);
    }

    /// No connection: what was begun is charged as a send at its start.
    fn end_connecting(&mut self, key: Key, failure: Failure, carrier: &Carrier) {
        let flight = self.flights.get_mut(key).expect("an attempt ends once");
        let stage = std::mem::replace(&mut flight.stage, Stage::Moving);
        let (
            Stage::Connecting {
                exchange, sockets, ..
            },
            ticket,
        ) = (stage, flight.ticket)
        else {
            unreachable!("only an attempt that connects fails to");
        };
        let released = flight.released;
        for socket in sockets {
            self.close_socket(socket, Close::Reset);
        }
        self.throttle.charge_failed(ticket, released);
        self.on_end(key, exchange, Some(failure), carrier);
    }

    fn on_exchange_over(&mut self, key: Key, failure: Option<Failure>, reusable: bool) {
        let http = self.http(key);
        let flight = http.flight.take().expect("a reply is somebody's");
        let carrier = Carrier::of(&http.connection);
        let exchange = http
            .connection
            .take_exchange()
            .expect("an exchange that is over is there to be taken");
        let origin = http.origin;
        self.recount(key);
        self.let_go(key);
        let lane = self
            .flights
            .get(flight)
            .expect("a reply has its attempt")
            .lane;
        let whole = failure.is_none();
        if self.favoured == Some(key) {
            self.favoured = None;
        }
        // Its deadline stays on the wheel: the next request's is later, and then costs nothing there.
        self.on_end(flight, exchange, failure, &carrier);
        // A connection with nothing queued for its origin closes at once, and so do those beside it
        // that were kept while there was. The requests of a probe are queued only when they are due.
        let is_queued = self.frontier.has_queued(lane);
        let is_asked_for = match &self.load {
            None => is_queued,
            Some(load) => load.keeps_connection(is_queued),
        };
        let is_wanted = self.is_running() && is_asked_for;
        while !is_wanted && let Some(kept) = self.pool.take(origin.number()) {
            self.close_slot(kept, Close::Finish);
        }
        if reusable && is_wanted {
            if let Some(evicted) = self.pool.put(origin.number(), key.slot, self.now) {
                self.close_slot(evicted, Close::Finish);
            }
        } else if reusable || whole {
            self.close_socket(key, Close::Finish);
        } else {
            self.close_socket(key, Close::Reset);
        }
    }

    /// A kept connection died under a request: the request is tried once more on a new one, and
    /// passes the gate again.
    fn on_died_idle(&mut self, key: Key) {
        let http = self.http(key);
        let flight = http.flight.take().expect("a request is somebody's");
        let carrier = Carrier::of(&http.connection);
        let exchange = http
            .connection
            .take_exchange()
            .expect("an exchange that died is there to be taken");
        self.close_socket(key, Close::Reset);
        let failure = Failure::new(
            FailureKind::Reset,
            IDLE_CLOSED,
            "the kept connection ended before the first byte of a reply",
        );
        self.on_end(flight, exchange, Some(failure), &carrier);
    }

    /// A connection that waited was ended by its peer.
    fn on_closed_by_peer(&mut self, key: Key) {
        let http = self.http(key);
        let flight = http.flight.take();
        let carrier = Carrier::of(&http.connection);
        let was_kept = http.connection.used() > 0;
        self.close_socket(key, Close::Finish);
        match flight {
            None => {}
            Some(flight) if was_kept => self.reconnect(flight),
            Some(flight) => {
                let failure = Failure::new(
                    FailureKind::Connect,
                    "closed",
                    "the server closed the connection before the request was due to leave",
                );
                self.end_waiting(flight, failure, &carrier);
            }
        }
    }

    /// A new connection was of no use although it came to be. It is charged like one that could
    /// not be set up, so that a server that hangs up on us is not called again at once; but where
    /// the server had waited long enough for us, in a hold or a gap, the request is put back.
    fn end_waiting(&mut self, key: Key, failure: Failure, carrier: &Carrier) {
        let flight = self.flights.get_mut(key).expect("an attempt ends once");
        let stage = std::mem::replace(&mut flight.stage, Stage::Moving);
        let Stage::Ready {
            exchange, since, ..
        } = stage
        else {
            unreachable!("only a request that waits for its gap is ended so");
        };
        if self.now.saturating_since(since) >= PATIENT {
            return self.reconnect(key);
        }
        let (ticket, released) = (flight.ticket, flight.released);
        self.throttle.charge_failed(ticket, released);
        self.on_end(key, exchange, Some(failure), carrier);
    }

    /// The connection that a request waited on is gone; nothing was sent, so nothing is lost.
    fn reconnect(&mut self, key: Key) {
        let flight = self.flights.remove(key).expect("a request has its attempt");
        self.forget(key, &flight);
        self.throttle.cancel(flight.ticket, self.now);
        self.frontier
            .put_back(flight.lane, flight.job, &mut self.throttle, self.now);
    }

    /// The throttle lets the request of this ticket depart, with the turn's others.
    pub fn depart(&mut self, ticket: TicketId) {
        let key = self.flight_of[ticket.slot()].expect("a ticket has its attempt");
        let flight = self.flights.get_mut(key).expect("a ticket has its attempt");
        let Stage::Ready {
            mut exchange,
            socket,
            ..
        } = std::mem::replace(&mut flight.stage, Stage::Moving)
        else {
            unreachable!("only what is ready departs");
        };
        flight.stage = Stage::Exchanging { socket };
        if let Some(feed) = &mut self.feed {
            feed.begin(flight.job.root());
        }
        exchange.timings_mut().due = Some(self.throttle.due(ticket));
        self.throttle
            .follow_departure(flight.lane, ticket, self.now);
        self.http(socket).connection.start(exchange);
        self.recount(socket);
        self.carry_on(socket);
    }

    /// Sends what a connection has to send, and sees to its deadline.
    pub fn carry_on(&mut self, key: Key) {
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return;
        };
        self.scratch.clear();
        let mark = http.connection.take_output(&mut self.scratch);
        if !self.scratch.is_empty() {
            self.io.send(token_of(key), &self.scratch, mark);
        }
        // Only replies have bodies.
        if http.connection.exchange().is_some() && http.paused.is_none() && self.must_wait(key) {
            self.pause(key);
        }
        self.arm(key);
    }

    /// The same after bytes that came. The last of a handshake is not sent by itself where its
    /// request departs in the same turn: one segment less for either side.
    pub fn carry_on_with_request(&mut self, key: Key) {
        match self.sockets.get(key) {
            Some(Socket::Http(http)) if http.connection.is_ready() && http.flight.is_some() => {
                self.secured.push(key);
            }
            _ => self.carry_on(key),
        }
    }

    /// The turn is over: handshakes whose requests must wait end without them.
    pub fn end_handshakes(&mut self) {
        while let Some(key) = self.secured.pop() {
            self.carry_on(key);
        }
    }

    fn arm(&mut self, key: Key) {
        if let Some(Socket::Http(http)) = self.sockets.get(key)
            && let Some(deadline) = http.connection.deadline(&self.config.fetch)
        {
            self.arm_at(key, deadline.at);
        }
    }

    fn arm_at(&mut self, key: Key, at: Instant) {
        self.deadlines.arm_by(Timer::Socket(key.slot), at);
    }

    pub fn on_idle_too_long(&mut self) {
        while let Some(slot) = self.pool.expire(self.now) {
            self.close_slot(slot, Close::Finish);
        }
    }

    fn close_slot(&mut self, slot: u32, how: Close) {
        let key = self
            .sockets
            .key_of(slot)
            .expect("an idle connection is open");
        self.close_socket(key, how);
    }

    /// Closes a socket and forgets it.
    pub fn close_socket(&mut self, key: Key, how: Close) {
        self.pool.remove(key.slot);
        self.deadlines.cancel(Timer::Socket(key.slot));
        let Some(Socket::Http(http)) = self.sockets.get_mut(key) else {
            return;
        };
        self.buffered -= http.counted;
        let origin = http.origin;
        self.scratch.clear();
        if how == Close::Finish && http.connection.is_ready() {
            http.connection.close();
            let _ = http.connection.take_output(&mut self.scratch);
        }
        self.let_go_of(origin);
        if self.scratch.is_empty() {
            self.sockets.remove(key);
            self.io.close(token_of(key), how);
        } else {
            // close_notify leaves with the turn's other sends; then the socket closes.
            self.io.send(token_of(key), &self.scratch, false);
            *self.sockets.get_mut(key).expect("it was just there") = Socket::Parting;
            self.parting.push(key);
        }
    }

    /// Closes the sockets whose last bytes have left.
    pub fn part(&mut self) {
        for key in std::mem::take(&mut self.parting) {
            self.sockets.remove(key);
            self.io.close(token_of(key), Close::Finish);
        }
    }

    /// Forgets what was kept of an attempt that is over.
    pub fn forget(&mut self, key: Key, flight: &Flight) {
        self.flight_of[flight.ticket.slot()] = None;
        self.deadlines.cancel(Timer::Flight(key.slot));
        self.let_go_of(flight.origin);
    }

    /// One more connection is of an origin that an attempt goes to.
    fn hold_again(&mut self, origin: Origin) {
        match origin {
            Origin::Direct(number) => self.frontier.hold_origin_again(number),
            Origin::ByProxy(number) => self.ways.share(number),
        }
    }

    /// A connection or an attempt of an origin is over.
    fn let_go_of(&mut self, origin: Origin) {
        match origin {
            Origin::Direct(number) => self.frontier.let_origin_go(number, self.now),
            Origin::ByProxy(number) => self.ways.give_back(number),
        }
    }

    pub fn http(&mut self, key: Key) -> &mut HttpSocket {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) => http,
            other => unreachable!("a connection of pages is named, not {other:?}"),
        }
    }
}

/// Whether a job's request can be put on the wire, as far as the job goes: the fields of every
/// request were checked before the crawl began.
pub fn check_request(job: &Job) -> Result<(), RequestError> {
    describe(job, &job.fields(), None, &UsualFields::default()).check()
}

/// What a job asks for with these fields, of a proxy where there is one that forwards.
fn describe<'a>(
    job: &'a Job,
    fields: &'a [(String, String)],
    proxy: Option<&'a Proxy>,
    usual: &'a UsualFields,
) -> Description<'a> {
    let proxy = proxy.filter(|proxy| proxy.forwards(&job.url));
    Description {
        method: job.method(),
        target: match proxy {
            None => job.url.request_target(),
            Some(_) => job.url.as_str(),
        },
        host: job.url.authority(),
        usual,
        headers: fields,
        body: Some(job.body()).filter(|body| !body.is_empty()),
        keep_wire: true,
        body_max: match job.kind {
            Kind::Robots => Some(robots::LENGTH_MAX as u64),
            Kind::Page | Kind::Sitemap => job.body_max(),
        },
        timeout: job.timeout(),
        proxy,
    }
}

/// A back end's stamp, as the fetch floor takes it.
pub fn arrival(stamp: Stamp) -> Arrival {
    Arrival {
        at: stamp.at,
        kernel: stamp.clock == Clock::Kernel,
        slack: stamp.slack,
    }
}

/// The stable code of a socket's failure, and words for it.
fn words(error: NetError) -> (&'static str, std::borrow::Cow<'static, str>) {
    match error {
        NetError::Refused => ("refused", "the connection was refused".into()),
        NetError::Reset => ("reset", "the connection was reset".into()),
        NetError::TimedOut => ("timed_out", "the kernel gave the connection up".into()),
        NetError::Unreachable => ("unreachable", "no route leads there".into()),
        NetError::Exhausted => (
            EXHAUSTED,
            "our machine has no socket or memory to give".into(),
        ),
        NetError::NoPort => (NO_PORT, "our machine has no local port left".into()),
        NetError::Other(errno) => (
            "other",
            format!("{}", std::io::Error::from_raw_os_error(errno)).into(),
        ),
    }
}
