//! The life of one connection: connect, tunnel, TLS handshake, exchanges, close.
//!
//! The crawl carries bytes and events between it and the kernel. After every call of a `handle_*`
//! method, [`Connection::take_output`] may have something to send.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use super::deadline::{Deadline, Phase};
use super::exchange::{Exchange, Step};
use super::failure::{Failure, FailureKind};
use super::settings::FetchSettings;
use super::timings::Established;
use super::tls::{Certificates, TlsInfo, TlsSession};
use super::transport::Transport;
use super::tunnel::Tunnel;
use crate::base::stamp::Stamp;
use crate::base::time::Instant;

/// An event of a connection. Events are returned one at a time, in the order in which they
/// happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It can carry a request: [`Connection::start`].
    Ready,
    /// It could not be set up, and is closed.
    Failed(Failure),
    /// The final head is complete: [`Connection::exchange`]. The body follows.
    Head,
    /// A piece of a body in mode [`BodyMode::Take`](super::body::BodyMode::Take) is available:
    /// [`Exchange::swap_body`]. The bytes read so far may contain more.
    Piece,
    /// The exchange is over: [`Connection::take_exchange`].
    Ended {
        /// The failure, if any.
        failure: Option<Failure>,
        /// The connection can carry another exchange; otherwise it is closed.
        reusable: bool,
    },
    /// It failed before the first byte of a reply, as a kept connection may at any time, and is
    /// closed. Its request may be retried once on a new one ([`Connection::take_exchange`]).
    DiedIdle,
    /// It was idle when its peer closed it or sent unsolicited bytes. It is closed.
    Closed,
}

/// One connection, plain or TLS, to an origin or through a proxy.
///
/// ```text
/// Connecting ──► Tunnelling ──► Handshaking ──► Ready ◄─────────────┐
///      │              │             ▲             ▲ │ start         │ take_exchange, reusable
///      ├──────────────┼─────────────┘ (TLS)       │ ▼               │
///      └──────────────┴─────────────── (plain) ───┘ Exchanging ──► Finished
///      any failure, any end ──► Closed ◄────────────────────────────┘ take_exchange
/// ```
///
/// Through a proxy, `connect` ends when TCP to the proxy is established, and the TLS handshake
/// starts with the departure of the ClientHello into the tunnel: the time that the proxy takes to
/// reach the origin lies between the two, in no phase and in no latency of the origin. The peer is
/// the proxy.
#[derive(Debug)]
pub struct Connection {
    state: State,
    transport: Transport,
    remote: SocketAddr,
    local: Option<SocketAddr>,
    /// The TCP connection, once established.
    established: Option<Established>,
    /// The TLS handshake, once complete.
    secured: Option<Secured>,
    /// Timeout of the set-up, if it differs from the settings.
    timeout: Option<Duration>,
    /// The peer is silent since then at the earliest: before, its input waited to be read.
    silent_from: Instant,
    /// Number of exchanges started.
    used: u32,
    /// Content of the marked send that was not reported as sent yet.
    marked: Option<Mark>,
}

#[derive(Debug)]
enum State {
    /// Waits for the kernel.
    Connecting {
        opened: Instant,
        released: Instant,
        /// The tunnel that the peer, a proxy, opens first.
        tunnel: Option<Box<Tunnel>>,
    },
    /// Waits for the proxy to open its tunnel.
    Tunnelling {
        opened: Instant,
        released: Instant,
        tunnel: Box<Tunnel>,
    },
    /// Waits for the end of the TLS handshake, which starts with the departure of the ClientHello.
    Handshaking {
        started: Instant,
        /// It may have started later by up to this much.
        slack: Duration,
        released: Instant,
        hello_sent: bool,
    },
    /// Waits for a request.
    Ready { since: Instant },
    /// Waits for a reply.
    Exchanging(Box<Exchange>),
    /// Waits for its exchange to be taken.
    Finished {
        exchange: Box<Exchange>,
        reusable_since: Option<Instant>,
    },
    /// Waits for nothing.
    Closed,
}

/// A complete TLS handshake.
#[derive(Clone, Copy, Debug)]
struct Secured {
    /// Stamp of its last bytes.
    arrival: Stamp,
    /// Time since the departure of the ClientHello.
    took: Duration,
    /// It may have been shorter by up to this much.
    slack: Duration,
}

/// Content of a marked send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Hello,
    Request,
}

impl Connection {
    /// A connection requested from the kernel at `now`, for an attempt released at `released`.
    ///
    /// With a TLS session the handshake starts as soon as TCP is established.
    // This and the two builder methods are inlined so that the value is built in place instead of
    // being moved by each of them.
    #[inline]
    pub fn open(
        remote: SocketAddr,
        tls: Option<TlsSession>,
        released: Instant,
        now: Instant,
    ) -> Self {
        Connection {
            state: State::Connecting {
                opened: now,
                released,
                tunnel: None,
            },
            transport: Transport::new(tls),
            remote,
            local: None,
            established: None,
            secured: None,
            timeout: None,
            silent_from: Instant::START,
            used: 0,
            marked: None,
        }
    }

    /// The kernel has established it, by an attempt that departed at `left`. `local` is our own
    /// address, if it was asked for.
    pub fn handle_connected(
        &mut self,
        local: Option<SocketAddr>,
        left: Instant,
        arrival: Stamp,
    ) -> Option<ConnectionEvent> {
        let State::Connecting {
            opened,
            released,
            tunnel,
        } = &mut self.state
        else {
            return None;
        };
        let (opened, released, tunnel) = (*opened, *released, tunnel.take());
        self.local = local;
        self.established = Some(Established::after(left, arrival));
        if let Some(tunnel) = tunnel {
            self.state = State::Tunnelling {
                opened,
                released,
                tunnel,
            };
            return None;
        }
        self.on_path_open(released, arrival.at)
    }

    /// Continues when the path to the origin is open: with the TLS handshake, or ready.
    fn on_path_open(&mut self, released: Instant, at: Instant) -> Option<ConnectionEvent> {
        if self.transport.is_handshaking() {
            self.state = State::Handshaking {
                started: at,
                slack: Duration::ZERO,
                released,
                hello_sent: false,
            };
            return None;
        }
        self.state = State::Ready { since: at };
        Some(ConnectionEvent::Ready)
    }

    /// Makes the peer a proxy, which must open a tunnel first.
    #[inline]
    pub fn through(mut self, through: Option<Tunnel>) -> Self {
        if let State::Connecting { tunnel, .. } = &mut self.state {
            *tunnel = through.map(Box::new);
        }
        self
    }

    /// Sets a timeout for the set-up, measured from the release of its request, in place of
    /// `DOWNLOAD_TIMEOUT`.
    #[inline]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Connection { timeout, ..self }
    }

    /// When TCP was established and how long that took, if it was.
    pub fn established(&self) -> Option<Established> {
        self.established
    }

    /// Starts an exchange; its request is sent by [`Connection::take_output`].
    ///
    /// Phases of the connection that belong to the exchange are copied into its timings.
    pub fn start(&mut self, mut exchange: Box<Exchange>) {
        let State::Ready { since } = self.state else {
            panic!("an exchange starts only on a ready connection");
        };
        let timings = exchange.timings_mut();
        timings.ready = Some(since);
        if self.used == 0 {
            timings.end_connect(self.established);
            if let Some(Secured {
                arrival,
                took,
                slack,
            }) = self.secured
            {
                timings.secured = Some(Stamp { slack, ..arrival });
                timings.tls_took = Some(took);
            }
        }
        self.used += 1;
        self.state = State::Exchanging(exchange);
    }

    /// Appends the bytes to send to `out`. Returns `true` if the send must be marked; its departure
    /// is then reported to [`Connection::handle_sent`].
    #[must_use = "if it returns true, the send must be marked"]
    pub fn take_output(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let mut mark = None;
        match &mut self.state {
            // The ClientHello is sent once TCP is established.
            State::Connecting { .. } => return false,
            // TLS output is for the origin, so it waits.
            State::Tunnelling { tunnel, .. } => {
                tunnel.take_output(out);
                return false;
            }
            State::Handshaking { hello_sent, .. } if !*hello_sent => {
                *hello_sent = true;
                mark = Some(Mark::Hello);
            }
            State::Exchanging(exchange) if exchange.is_queued() => {
                mark = Some(Mark::Request);
                self.transport.send(exchange.hand_out(), out);
            }
            _ => {}
        }
        self.transport.take_output(out);
        if out.len() == before {
            return false;
        }
        if mark.is_some() {
            self.marked = mark;
        }
        mark.is_some()
    }

    /// Reports that a marked send departed at `at`, or up to `late` after that.
    pub fn handle_sent(&mut self, at: Instant, late: Duration) {
        match (self.marked.take(), &mut self.state) {
            (Some(Mark::Hello), State::Handshaking { started, slack, .. }) => {
                (*started, *slack) = (at, late);
            }
            (
                Some(Mark::Request),
                State::Exchanging(exchange) | State::Finished { exchange, .. },
            ) => exchange.handle_sent(at, late),
            _ => {}
        }
    }

    /// Consumes bytes from the wire. Call it until it returns `None`: `bytes` is then empty. After
    /// [`ConnectionEvent::Piece`] the rest may also be kept for later; there may be more events although it is
    /// empty.
    pub fn handle_bytes(&mut self, bytes: &mut &[u8], arrival: Stamp) -> Option<ConnectionEvent> {
        if let State::Tunnelling { .. } = self.state {
            let event = self.read_tunnel(bytes, arrival);
            if event.is_some() || matches!(self.state, State::Tunnelling { .. }) {
                return event;
            }
        }
        self.transport.decrypt(bytes);
        match &mut self.state {
            State::Tunnelling { .. } => unreachable!("the tunnel's bytes were read above"),
            State::Handshaking { .. } => self.read_handshake(arrival),
            State::Ready { .. } => self.read_unsolicited(bytes),
            State::Exchanging(_) => self.read(bytes, arrival),
            State::Connecting { .. } | State::Finished { .. } | State::Closed => {
                *bytes = &[];
                None
            }
        }
    }

    /// The peer closed its side in an orderly way.
    pub fn handle_end(&mut self, at: Instant) -> Option<ConnectionEvent> {
        match &mut self.state {
            State::Connecting { .. } => Some(self.set_up_failed(Failure::new(
                FailureKind::Connect,
                "closed",
                "the connection ended before it was established",
            ))),
            State::Tunnelling { .. } => Some(self.set_up_failed(proxy_closed(
                "the proxy closed the connection before its tunnel was open",
            ))),
            State::Handshaking { .. } => Some(self.set_up_failed(Failure::new(
                FailureKind::Tls,
                "closed",
                "the server closed the connection during the handshake",
            ))),
            State::Ready { .. } => Some(self.close_idle()),
            State::Exchanging(exchange) if self.used > 1 && !exchange.has_begun() => {
                Some(self.fail_idle())
            }
            State::Exchanging(exchange) => {
                let step = exchange.handle_end(self.transport.may_end());
                Some(self.on_step(step, at))
            }
            State::Finished { reusable_since, .. } => {
                *reusable_since = None;
                None
            }
            State::Closed => None,
        }
    }

    /// The socket failed; `code` and `detail` are the kernel's reason (`refused`, `reset`).
    pub fn handle_failed(
        &mut self,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
        at: Instant,
    ) -> Option<ConnectionEvent> {
        let failure = |kind| Failure::new(kind, code, detail);
        match &mut self.state {
            State::Connecting { .. } => Some(self.set_up_failed(failure(FailureKind::Connect))),
            State::Tunnelling { .. } => Some(self.set_up_failed(proxy_closed(
                "the connection to the proxy failed before its tunnel was open",
            ))),
            State::Handshaking { .. } => Some(self.set_up_failed(failure(FailureKind::Reset))),
            State::Ready { .. } => Some(self.close_idle()),
            State::Exchanging(exchange) if self.used > 1 && !exchange.has_begun() => {
                Some(self.fail_idle())
            }
            State::Exchanging(exchange) => {
                let step = exchange.fail(failure(FailureKind::Reset));
                Some(self.on_step(step, at))
            }
            State::Finished { reusable_since, .. } => {
                *reusable_since = None;
                None
            }
            State::Closed => None,
        }
    }

    /// Reading resumes after we paused it for `waited`, which does not count as silence of the
    /// peer.
    pub fn handle_resumed(&mut self, waited: Duration, now: Instant) {
        if let State::Exchanging(exchange) = &mut self.state {
            exchange.handle_resumed(waited, now);
        }
    }

    /// Input waits to be read, so the peer's silence begins now at the earliest.
    pub fn handle_unread(&mut self, now: Instant) {
        self.silent_from = now;
        self.handle_resumed(Duration::ZERO, now);
    }

    /// Input was read, however long ago it came: until now the peer may have waited for that.
    pub fn handle_read(&mut self, now: Instant) {
        if let State::Exchanging(exchange) = &mut self.state {
            exchange.handle_activity(now);
        }
    }

    /// Deadline of the present phase. `None` while nothing is expected from the peer: the idle
    /// timeout belongs to the pool.
    pub fn deadline(&self, settings: &FetchSettings) -> Option<Deadline> {
        let timeout = self.timeout.unwrap_or(settings.download_timeout);
        let set_up = |released: Instant, phase: Deadline| {
            Deadline::new(released + timeout, Phase::Total).or(phase)
        };
        match &self.state {
            State::Connecting {
                opened, released, ..
            } => {
                let at = (*opened + settings.connect_timeout).min(*released + timeout);
                // Either timeout means that TCP was not established. It does not count against the
                // host if the request's own timeout is shorter than the crawl's usual one.
                let usual = settings.connect_timeout.min(settings.download_timeout);
                let phase = match timeout < usual.min(CONNECT_TIMEOUT_MIN) {
                    true => Phase::Total,
                    false => Phase::Connect,
                };
                Some(Deadline::new(at, phase))
            }
            State::Tunnelling {
                opened, released, ..
            } => {
                let from = self.silent_from.max(*opened);
                let tunnel = Deadline::new(from + settings.connect_timeout, Phase::Tunnel);
                Some(set_up(*released, tunnel))
            }
            State::Handshaking {
                started, released, ..
            } => {
                let from = self.silent_from.max(*started);
                let tls = Deadline::new(from + settings.tls_timeout, Phase::Tls);
                Some(set_up(*released, tls))
            }
            State::Exchanging(exchange) => Some(exchange.deadline(self.silent_from, settings)),
            State::Ready { .. } | State::Finished { .. } | State::Closed => None,
        }
    }

    /// Called when a timer fires. Ends the present phase if its deadline has passed; otherwise ask
    /// for the new [`Connection::deadline`].
    pub fn handle_timeout(
        &mut self,
        settings: &FetchSettings,
        now: Instant,
    ) -> Option<ConnectionEvent> {
        let deadline = self.deadline(settings)?;
        if now < deadline.at {
            return None;
        }
        self.abort(deadline.phase.failure(), now)
    }

    /// Aborts the present exchange or set-up. What was received of a reply is kept.
    pub fn abort(&mut self, failure: Failure, at: Instant) -> Option<ConnectionEvent> {
        match &mut self.state {
            State::Connecting { .. } | State::Tunnelling { .. } | State::Handshaking { .. } => {
                Some(self.set_up_failed(failure))
            }
            State::Ready { .. } => Some(self.close_idle()),
            State::Exchanging(exchange) => {
                let step = exchange.fail(failure);
                Some(self.on_step(step, at))
            }
            State::Finished { .. } | State::Closed => None,
        }
    }

    /// Takes the exchange that ended; a reusable connection is then ready for the next one.
    pub fn take_exchange(&mut self) -> Option<Box<Exchange>> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Finished {
                exchange,
                reusable_since,
            } => {
                if let Some(since) = reusable_since {
                    self.state = State::Ready { since };
                }
                Some(exchange)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Closes it from our side; with TLS the last output is close_notify.
    pub fn close(&mut self) {
        if self.is_ready() {
            self.transport.close();
        }
        self.state = State::Closed;
    }

    /// The present exchange, or the one that ended and was not taken yet.
    pub fn exchange(&self) -> Option<&Exchange> {
        match &self.state {
            State::Exchanging(exchange) | State::Finished { exchange, .. } => Some(exchange),
            _ => None,
        }
    }

    /// The same, mutable, to set how the body is wanted.
    pub fn exchange_mut(&mut self) -> Option<&mut Exchange> {
        match &mut self.state {
            State::Exchanging(exchange) | State::Finished { exchange, .. } => Some(exchange),
            _ => None,
        }
    }

    /// Returns whether HTTP runs directly on TCP, without TLS.
    pub fn is_plain(&self) -> bool {
        matches!(self.transport, Transport::Plain)
    }

    /// Returns whether it waits for a request.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// Returns whether it is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Number of exchanges it has carried, the present one included. Above 1, the present one
    /// reuses it.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Address of the peer.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Our own address, once established.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Nothing more is queued for its server: TLS sessions of that are the first to be evicted.
    pub fn release_sessions(&self) {
        self.transport.release_sessions();
    }

    /// The negotiated TLS parameters, if TLS is used and its handshake is complete.
    pub fn tls(&self) -> Option<TlsInfo> {
        self.transport.info()
    }

    /// The server's certificates, if TLS is used and its handshake is complete or failed because of
    /// them.
    pub fn certificates(&self) -> Certificates {
        self.transport.certificates()
    }

    /// Bytes of memory of its buffers, those of its exchange included.
    pub fn memory(&self) -> usize {
        self.transport.memory() + self.exchange().map_or(0, Exchange::memory)
    }

    fn read_tunnel(&mut self, bytes: &mut &[u8], arrival: Stamp) -> Option<ConnectionEvent> {
        let State::Tunnelling {
            released, tunnel, ..
        } = &mut self.state
        else {
            unreachable!("called only in state Tunnelling");
        };
        let released = *released;
        match tunnel.handle_bytes(bytes) {
            Ok(true) => self.on_path_open(released, arrival.at),
            Ok(false) => None,
            Err(failure) => {
                *bytes = &[];
                Some(self.set_up_failed(failure))
            }
        }
    }

    fn read_handshake(&mut self, arrival: Stamp) -> Option<ConnectionEvent> {
        let State::Handshaking { started, slack, .. } = self.state else {
            unreachable!("called only in state Handshaking");
        };
        if !self.transport.is_handshaking() {
            self.secured = Some(Secured {
                arrival,
                took: arrival.at.saturating_since(started),
                slack: slack + arrival.slack,
            });
            self.state = State::Ready { since: arrival.at };
            return Some(ConnectionEvent::Ready);
        }
        let failure = self.transport.take_failure()?;
        Some(self.set_up_failed(failure))
    }

    /// Bytes while no request was sent: a 408 to an idle connection, or a protocol in which the
    /// server speaks first. Never a reply.
    fn read_unsolicited(&mut self, bytes: &mut &[u8]) -> Option<ConnectionEvent> {
        let has_bytes = !self.transport.unread(bytes).is_empty();
        *bytes = &[];
        let failure = self.transport.take_failure();
        match failure.or_else(|| has_bytes.then(unsolicited)) {
            Some(failure) if self.used == 0 => Some(self.set_up_failed(failure)),
            Some(_) => Some(self.close_idle()),
            None if self.transport.peer_closed() => Some(self.close_idle()),
            None => None,
        }
    }

    fn read(&mut self, bytes: &mut &[u8], arrival: Stamp) -> Option<ConnectionEvent> {
        let State::Exchanging(exchange) = &mut self.state else {
            unreachable!("called only in state Exchanging");
        };
        let mut input = self.transport.unread(bytes);
        if !input.is_empty() && exchange.is_unasked(arrival.at) {
            *bytes = &[];
            if self.used > 1 {
                return Some(self.fail_idle());
            }
            let step = exchange.fail(unsolicited());
            return Some(self.on_step(step, arrival.at));
        }
        let offered = input.len();
        let step = exchange.handle_bytes(&mut input, arrival);
        let taken = offered - input.len();
        self.transport.consume(bytes, taken);
        match step {
            Some(Step::Over { failure, reusable }) => {
                // Bytes after a reply belong to no request of ours: they are dropped, and the
                // connection is closed.
                let more = !self.transport.unread(bytes).is_empty();
                *bytes = &[];
                let spoilt = more || self.transport.is_broken() || self.transport.peer_closed();
                let reusable = reusable && !spoilt;
                Some(self.on_step(Step::Over { failure, reusable }, arrival.at))
            }
            Some(Step::Head) => Some(ConnectionEvent::Head),
            Some(Step::Piece) => Some(ConnectionEvent::Piece),
            None => self.check_layer_below(arrival.at),
        }
    }

    /// Called when the exchange has read all it can: returns whether the layer below can continue.
    fn check_layer_below(&mut self, at: Instant) -> Option<ConnectionEvent> {
        let State::Exchanging(exchange) = &mut self.state else {
            unreachable!("called only in state Exchanging");
        };
        exchange.handle_activity(at);
        match self.transport.take_failure() {
            Some(_) if self.used > 1 && !exchange.has_begun() => Some(self.fail_idle()),
            Some(failure) => {
                let step = exchange.fail(failure);
                Some(self.on_step(step, at))
            }
            None if self.transport.peer_closed() => self.handle_end(at),
            None => None,
        }
    }

    fn on_step(&mut self, step: Step, at: Instant) -> ConnectionEvent {
        let Step::Over { failure, reusable } = step else {
            return ConnectionEvent::Head;
        };
        let State::Exchanging(exchange) = std::mem::replace(&mut self.state, State::Closed) else {
            unreachable!("called only in state Exchanging");
        };
        self.state = State::Finished {
            exchange,
            reusable_since: reusable.then_some(at),
        };
        ConnectionEvent::Ended { failure, reusable }
    }

    fn fail_idle(&mut self) -> ConnectionEvent {
        let State::Exchanging(exchange) = std::mem::replace(&mut self.state, State::Closed) else {
            unreachable!("called only in state Exchanging");
        };
        self.state = State::Finished {
            exchange,
            reusable_since: None,
        };
        ConnectionEvent::DiedIdle
    }

    fn set_up_failed(&mut self, failure: Failure) -> ConnectionEvent {
        self.state = State::Closed;
        ConnectionEvent::Failed(failure)
    }

    fn close_idle(&mut self) -> ConnectionEvent {
        self.state = State::Closed;
        ConnectionEvent::Closed
    }
}

fn proxy_closed(detail: &'static str) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_closed", detail)
}

fn unsolicited() -> Failure {
    Failure::new(
        FailureKind::Protocol,
        "unsolicited",
        "the server sent bytes before any request",
    )
}

/// The minimum timeout of a request's own whose expiry before TCP is established counts against the
/// host. A shorter one can expire because of distance or a single lost packet: the kernel resends a
/// SYN after 1 s (RFC 6298 §2).
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
