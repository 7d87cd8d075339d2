//! One connection through its life: established, secured, used, used again, closed.
//!
//! The crawl carries bytes and news between it and the kernel. After every call that hands
//! something in, [`Connection::take_output`] may have something to send.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use super::deadline::{Deadline, Phase};
use super::exchange::{Exchange, Step};
use super::failure::{Failure, FailureKind};
use super::settings::Settings;
use super::timings::{Arrival, Established};
use super::tls::{Certificates, TlsInfo, TlsSession};
use super::transport::Transport;
use super::tunnel::Tunnel;
use crate::base::time::Instant;

/// What a connection has to say. One piece of news at a time, in the order it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It can carry a request: [`Connection::start`].
    Ready,
    /// It could not be set up, and is closed.
    Failed(Failure),
    /// The final head is there: [`Connection::exchange`]. The body follows.
    Head,
    /// A piece of a body that is taken while it comes is there: [`Exchange::swap_body`]. More of it may
    /// be in what has been read.
    Piece,
    /// The exchange is over: [`Connection::take_exchange`].
    Ended {
        /// What went wrong.
        failure: Option<Failure>,
        /// The connection can carry another exchange; if not, it is closed.
        reusable: bool,
    },
    /// It died before the first byte of a reply, as a kept connection may at any time, and is
    /// closed. Its request may be tried once more on a new one ([`Connection::take_exchange`]).
    DiedIdle,
    /// It was waiting for a request when its peer ended it or sent what nobody asked for. It is closed.
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
/// Through a proxy `connect` ends when TCP to the proxy is established, and the TLS handshake begins
/// with the ClientHello's departure into the tunnel: the time that the proxy takes to reach the
/// origin lies between the two, in no phase and no latency of the origin's. The peer is the proxy.
#[derive(Debug)]
pub struct Connection {
    state: State,
    transport: Transport,
    remote: SocketAddr,
    local: Option<SocketAddr>,
    /// TCP, once it is established.
    established: Option<Established>,
    /// The TLS handshake, once it is over.
    secured: Option<Secured>,
    /// For how long it may be set up, where the settings do not say so.
    timeout: Option<Duration>,
    /// Exchanges started.
    used: u32,
    /// What the marked send that has not been reported yet carries.
    marked: Option<Mark>,
}

#[derive(Debug)]
enum State {
    /// For the kernel.
    Connecting {
        opened: Instant,
        released: Instant,
        /// What the peer, a proxy, must do first.
        tunnel: Option<Box<Tunnel>>,
    },
    /// For the proxy to make its tunnel.
    Tunnelling {
        opened: Instant,
        released: Instant,
        tunnel: Box<Tunnel>,
    },
    /// For the end of the TLS handshake, which began with the ClientHello's departure.
    Handshaking {
        began: Instant,
        /// It may have begun as much later.
        slack: Duration,
        released: Instant,
        greeted: bool,
    },
    /// For a request.
    Ready { since: Instant },
    /// For a reply.
    Exchanging(Box<Exchange>),
    /// For its exchange to be taken.
    Finished {
        exchange: Box<Exchange>,
        reusable_since: Option<Instant>,
    },
    /// For nothing.
    Closed,
}

/// A TLS handshake that is over.
#[derive(Clone, Copy, Debug)]
struct Secured {
    /// How its last bytes arrived.
    arrival: Arrival,
    /// From the ClientHello's departure.
    took: Duration,
    /// It may have taken as much less.
    slack: Duration,
}

/// What a marked send carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Hello,
    Request,
}

impl Connection {
    /// A connection that the kernel is asked for at `now`, for an attempt released at `released`.
    ///
    /// With a TLS session it is secured as soon as it is established.
    // Inlined, as are the two that add to it, so that it is made where it is kept, and not moved there
    // from each.
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
            used: 0,
            marked: None,
        }
    }

    /// The kernel has established it, by an attempt that left at `left`; `local` is our own address,
    /// where somebody wants to know it.
    pub fn handle_connected(
        &mut self,
        local: Option<SocketAddr>,
        left: Instant,
        arrival: Arrival,
    ) -> Option<News> {
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
        self.go_through(released, arrival.at)
    }

    /// Nothing lies between us and the origin any more.
    fn go_through(&mut self, released: Instant, at: Instant) -> Option<News> {
        if self.transport.is_handshaking() {
            self.state = State::Handshaking {
                began: at,
                slack: Duration::ZERO,
                released,
                greeted: false,
            };
            return None;
        }
        self.state = State::Ready { since: at };
        Some(News::Ready)
    }

    /// Its peer is a proxy, which must make a tunnel first.
    #[inline]
    pub fn through(mut self, through: Option<Tunnel>) -> Self {
        if let State::Connecting { tunnel, .. } = &mut self.state {
            *tunnel = through.map(Box::new);
        }
        self
    }

    /// It may take so long to be set up, from the release of what it is for, in place of
    /// `DOWNLOAD_TIMEOUT`.
    #[inline]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Connection { timeout, ..self }
    }

    /// When TCP was established and how long that took, if it was.
    pub fn established(&self) -> Option<Established> {
        self.established
    }

    /// Begins an exchange; its request waits for [`Connection::take_output`].
    ///
    /// What the connection knows of its own phases goes into the exchange's timings.
    pub fn start(&mut self, mut exchange: Box<Exchange>) {
        let State::Ready { since } = self.state else {
            panic!("an exchange starts on a connection that is ready");
        };
        let timings = exchange.timings_mut();
        timings.ready = Some(since);
        if self.used == 0 {
            timings.end_connect(self.established);
            let began = timings.started;
            if let Some(Secured {
                arrival,
                took,
                slack,
            }) = self.secured
            {
                timings.tls_handshake = Some(arrival.at).filter(|at| *at >= began);
                timings.tls_took = Some(took);
                timings.tls_slack = slack;
                timings.tls_by_user = !arrival.kernel;
            }
        }
        self.used += 1;
        self.state = State::Exchanging(exchange);
    }

    /// Appends what is to be sent to `out`. `true` asks for a marked send, whose departure
    /// [`Connection::handle_sent`] then hears of.
    #[must_use = "without its mark a request has no departure"]
    pub fn take_output(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let mut mark = None;
        match &mut self.state {
            // The ClientHello leaves when there is somebody to hear it.
            State::Connecting { .. } => return false,
            // What TLS has to say is for the origin.
            State::Tunnelling { tunnel, .. } => {
                tunnel.take_output(out);
                return false;
            }
            State::Handshaking { greeted, .. } if !*greeted => {
                *greeted = true;
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

    /// A marked send departed, or did so up to `late` after that.
    pub fn handle_sent(&mut self, at: Instant, late: Duration) {
        match (self.marked.take(), &mut self.state) {
            (Some(Mark::Hello), State::Handshaking { began, slack, .. }) => {
                (*began, *slack) = (at, late);
            }
            (
                Some(Mark::Request),
                State::Exchanging(exchange) | State::Finished { exchange, .. },
            ) => exchange.handle_sent(at, late),
            _ => {}
        }
    }

    /// Takes bytes from the wire. Call until it returns `None`: `bytes` is then used up. After
    /// [`News::Piece`] the rest may as well be kept for later; there may be more although it is empty.
    pub fn handle_bytes(&mut self, bytes: &mut &[u8], arrival: Arrival) -> Option<News> {
        if let State::Tunnelling { .. } = self.state {
            let news = self.hear_proxy(bytes, arrival);
            if news.is_some() || matches!(self.state, State::Tunnelling { .. }) {
                return news;
            }
        }
        self.transport.take_in(bytes);
        match &mut self.state {
            State::Tunnelling { .. } => unreachable!("a proxy was just heard to its end"),
            State::Handshaking { .. } => self.shake_hands(arrival),
            State::Ready { .. } => self.hear_unasked(bytes),
            State::Exchanging(_) => self.read(bytes, arrival),
            State::Connecting { .. } | State::Finished { .. } | State::Closed => {
                *bytes = &[];
                None
            }
        }
    }

    /// The peer ended its side in good order.
    pub fn handle_end(&mut self, at: Instant) -> Option<News> {
        match &mut self.state {
            State::Connecting { .. } => Some(self.set_up_failed(Failure::new(
                FailureKind::Connect,
                "closed",
                "the connection ended before it was established",
            ))),
            State::Tunnelling { .. } => Some(self.set_up_failed(proxy_closed(
                "the proxy closed the connection before its tunnel stood",
            ))),
            State::Handshaking { .. } => Some(self.set_up_failed(Failure::new(
                FailureKind::Tls,
                "closed",
                "the server closed the connection during the handshake",
            ))),
            State::Ready { .. } => Some(self.close_idle()),
            State::Exchanging(exchange) if self.used > 1 && !exchange.has_begun() => {
                Some(self.died_idle())
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
    ) -> Option<News> {
        let failure = |kind| Failure::new(kind, code, detail);
        match &mut self.state {
            State::Connecting { .. } => Some(self.set_up_failed(failure(FailureKind::Connect))),
            State::Tunnelling { .. } => Some(self.set_up_failed(proxy_closed(
                "the connection to the proxy failed before its tunnel stood",
            ))),
            State::Handshaking { .. } => Some(self.set_up_failed(failure(FailureKind::Reset))),
            State::Ready { .. } => Some(self.close_idle()),
            State::Exchanging(exchange) if self.used > 1 && !exchange.has_begun() => {
                Some(self.died_idle())
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

    /// What the peer sends is read again, after we kept it waiting: that was no silence of its.
    pub fn handle_resumed(&mut self, waited: Duration, now: Instant) {
        if let State::Exchanging(exchange) = &mut self.state {
            exchange.handle_resumed(waited, now);
        }
    }

    /// When the present phase is out of time. None while nothing is awaited of the peer: how long
    /// a connection may wait for a request is the pool's to say.
    pub fn deadline(&self, settings: &Settings) -> Option<Deadline> {
        let timeout = self.timeout.unwrap_or(settings.download_timeout);
        let set_up = |released: Instant, phase: Deadline| {
            Deadline::new(released + timeout, Phase::Total).or(phase)
        };
        match &self.state {
            State::Connecting {
                opened, released, ..
            } => {
                let at = (*opened + settings.connect_timeout).min(*released + timeout);
                // Either timeout means that TCP was not established. That does not count against the peer
                // where the request gave it less time than the crawl gives any peer.
                let usual = settings.connect_timeout.min(settings.download_timeout);
                let phase = match timeout < usual.min(CONNECT_LEAST) {
                    true => Phase::Total,
                    false => Phase::Connect,
                };
                Some(Deadline::new(at, phase))
            }
            State::Tunnelling {
                opened, released, ..
            } => {
                let tunnel = Deadline::new(*opened + settings.connect_timeout, Phase::Tunnel);
                Some(set_up(*released, tunnel))
            }
            State::Handshaking {
                began, released, ..
            } => {
                let tls = Deadline::new(*began + settings.tls_timeout, Phase::Tls);
                Some(set_up(*released, tls))
            }
            State::Exchanging(exchange) => Some(exchange.deadline(settings)),
            State::Ready { .. } | State::Finished { .. } | State::Closed => None,
        }
    }

    /// A timer fired. If the present phase is out of time, it ends here; otherwise ask for the
    /// new [`Connection::deadline`].
    pub fn handle_timeout(&mut self, settings: &Settings, now: Instant) -> Option<News> {
        let deadline = self.deadline(settings)?;
        if now < deadline.at {
            return None;
        }
        self.abort(deadline.phase.failure(), now)
    }

    /// Gives up what is under way. What came of a reply is kept.
    pub fn abort(&mut self, failure: Failure, at: Instant) -> Option<News> {
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

    /// Ends it from our side; with TLS the last output says so to the peer.
    pub fn close(&mut self) {
        if self.is_ready() {
            self.transport.close();
        }
        self.state = State::Closed;
    }

    /// The exchange under way, or the one that ended and was not taken yet.
    pub fn exchange(&self) -> Option<&Exchange> {
        match &self.state {
            State::Exchanging(exchange) | State::Finished { exchange, .. } => Some(exchange),
            _ => None,
        }
    }

    /// The same, for who says what is wanted of the body.
    pub fn exchange_mut(&mut self) -> Option<&mut Exchange> {
        match &mut self.state {
            State::Exchanging(exchange) | State::Finished { exchange, .. } => Some(exchange),
            _ => None,
        }
    }

    /// Whether nothing lies between the wire and HTTP: no TLS.
    pub fn is_plain(&self) -> bool {
        matches!(self.transport, Transport::Plain)
    }

    /// Whether it waits for a request.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// Whether there is nothing more to be had from it.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Exchanges it has carried, the present one included. Above 1, the present one reuses it.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The peer.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Our end, once it is established.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// What TLS agreed on, where there is TLS and its handshake is over.
    pub fn tls(&self) -> Option<TlsInfo> {
        self.transport.info()
    }

    /// What the server showed, where there is TLS and its handshake is over or was ended for them.
    pub fn certificates(&self) -> Certificates {
        self.transport.certificates()
    }

    /// Bytes of memory that its buffers hold, its exchange's included.
    pub fn memory(&self) -> usize {
        self.transport.memory() + self.exchange().map_or(0, Exchange::memory)
    }

    fn hear_proxy(&mut self, bytes: &mut &[u8], arrival: Arrival) -> Option<News> {
        let State::Tunnelling {
            released, tunnel, ..
        } = &mut self.state
        else {
            unreachable!("only a proxy is heard");
        };
        let released = *released;
        match tunnel.handle_bytes(bytes) {
            Ok(true) => self.go_through(released, arrival.at),
            Ok(false) => None,
            Err(failure) => {
                *bytes = &[];
                Some(self.set_up_failed(failure))
            }
        }
    }

    fn shake_hands(&mut self, arrival: Arrival) -> Option<News> {
        let State::Handshaking { began, slack, .. } = self.state else {
            unreachable!("only a handshake is shaken");
        };
        if !self.transport.is_handshaking() {
            self.secured = Some(Secured {
                arrival,
                took: arrival.at.saturating_since(began),
                slack: slack + arrival.slack,
            });
            self.state = State::Ready { since: arrival.at };
            return Some(News::Ready);
        }
        let failure = self.transport.take_failure()?;
        Some(self.set_up_failed(failure))
    }

    /// Bytes while nothing was asked: a 408 to an idle connection, or a protocol in which the
    /// server speaks first. Never a reply.
    fn hear_unasked(&mut self, bytes: &mut &[u8]) -> Option<News> {
        let spoke = !self.transport.unread(bytes).is_empty();
        *bytes = &[];
        let failure = self.transport.take_failure();
        match failure.or_else(|| spoke.then(unsolicited)) {
            Some(failure) if self.used == 0 => Some(self.set_up_failed(failure)),
            Some(_) => Some(self.close_idle()),
            None if self.transport.peer_closed() => Some(self.close_idle()),
            None => None,
        }
    }

    fn read(&mut self, bytes: &mut &[u8], arrival: Arrival) -> Option<News> {
        let State::Exchanging(exchange) = &mut self.state else {
            unreachable!("only an exchange is read");
        };
        let mut input = self.transport.unread(bytes);
        if !input.is_empty() && exchange.is_unasked(arrival.at) {
            *bytes = &[];
            if self.used > 1 {
                return Some(self.died_idle());
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
                // connection with them.
                let more = !self.transport.unread(bytes).is_empty();
                *bytes = &[];
                let spoilt = more || self.transport.is_broken() || self.transport.peer_closed();
                let reusable = reusable && !spoilt;
                Some(self.on_step(Step::Over { failure, reusable }, arrival.at))
            }
            Some(Step::Head) => Some(News::Head),
            Some(Step::Piece) => Some(News::Piece),
            None => self.look_beneath(arrival.at),
        }
    }

    /// The exchange has read all there is: whether the layer beneath it goes on.
    fn look_beneath(&mut self, at: Instant) -> Option<News> {
        let State::Exchanging(exchange) = &mut self.state else {
            unreachable!("only an exchange has something beneath it");
        };
        exchange.handle_activity(at);
        match self.transport.take_failure() {
            Some(_) if self.used > 1 && !exchange.has_begun() => Some(self.died_idle()),
            Some(failure) => {
                let step = exchange.fail(failure);
                Some(self.on_step(step, at))
            }
            None if self.transport.peer_closed() => self.handle_end(at),
            None => None,
        }
    }

    fn on_step(&mut self, step: Step, at: Instant) -> News {
        let Step::Over { failure, reusable } = step else {
            return News::Head;
        };
        let State::Exchanging(exchange) = std::mem::replace(&mut self.state, State::Closed) else {
            unreachable!("only an exchange ends");
        };
        self.state = State::Finished {
            exchange,
            reusable_since: reusable.then_some(at),
        };
        News::Ended { failure, reusable }
    }

    fn died_idle(&mut self) -> News {
        let State::Exchanging(exchange) = std::mem::replace(&mut self.state, State::Closed) else {
            unreachable!("only an exchange dies");
        };
        self.state = State::Finished {
            exchange,
            reusable_since: None,
        };
        News::DiedIdle
    }

    fn set_up_failed(&mut self, failure: Failure) -> News {
        self.state = State::Closed;
        News::Failed(failure)
    }

    fn close_idle(&mut self) -> News {
        self.state = State::Closed;
        News::Closed
    }
}

fn proxy_closed(detail: &'static str) -> Failure {
    Failure::new(FailureKind::Connect, "proxy_closed", detail)
}

fn unsolicited() -> Failure {
    Failure::new(
        FailureKind::Protocol,
        "unsolicited",
        "the server spoke before it was asked",
    )
}

/// The least timeout of a request's own whose end counts against a peer that TCP is not established with.
/// In less, a host far away or one lost packet looks like a host that is down: the kernel sends a SYN again
/// after 1 s (RFC 6298 §2).
const CONNECT_LEAST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
