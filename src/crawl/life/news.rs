//! What a connection has to say, and what that leads to.

use std::borrow::Cow;
use std::time::Duration;

use super::flight::{Carrier, End, Socket, Stage};
use super::ports::NO_PORT;
use super::room::EXHAUSTED;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::breaker::Probed;
use crate::crawl::core::Core;
use crate::fetch::connection::News;
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::timings::Arrival;
use crate::io::{Clock, Close, Io, NetError, Stamp};

impl<I: Io> Core<I> {
    pub fn on_failed(&mut self, key: Key, error: NetError, at: Instant) {
        match self.sockets.get_mut(key) {
            Some(Socket::Http(http)) if http.held => {
                http.unread.end = Some(End::Failed(error, at));
            }
            Some(Socket::Probe(probe)) => {
                let ended = match error {
                    NetError::Refused | NetError::Reset => Probed::Refused,
                    NetError::NoRoute => Probed::NoRoute,
                    _ => Probed::Failed,
                };
                let probe = *probe;
                self.on_probed(probe, ended);
            }
            Some(Socket::Http(http)) => {
                http.lacks_route = error == NetError::NoRoute;
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
            Some(Socket::Probe(_) | Socket::Parting) | None => {}
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
        // A reply that is worked on may lead to more requests.
        let is_wanted = self.is_running() && (is_asked_for || self.work.has(lane));
        if !is_wanted {
            self.close_idle(origin);
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
    pub fn end_waiting(&mut self, key: Key, failure: Failure, carrier: &Carrier) {
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
fn words(error: NetError) -> (&'static str, Cow<'static, str>) {
    match error {
        NetError::Refused => ("refused", "the connection was refused".into()),
        NetError::Reset => ("reset", "the connection was reset".into()),
        NetError::TimedOut => ("timed_out", "the kernel gave the connection up".into()),
        NetError::NoRoute => ("unreachable", "no route leads there".into()),
        NetError::Unreachable => ("unreachable", "the host cannot be reached".into()),
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

/// The code of a kept connection's death, after which a request is tried once more on a new one.
pub const IDLE_CLOSED: &str = "idle_closed";

/// A server that closes a new connection on which it heard nothing for so long did not hang up on
/// us: it was we who kept it waiting. A request that is put back for that is not charged, and this
/// is the least time between two such connections. No server in use waits for less.
const PATIENT: Duration = Duration::from_millis(900);
