//! From a release to a connection: an idle one of the origin, or new ones, of which the first to be
//! established carries the request.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::bound::Bound;
use crate::base::ids::LaneId;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::breaker::Probed;
use crate::crawl::core::Core;
use crate::crawl::core::names::Found;
use crate::crawl::flights::{Flight, Stage};
use crate::crawl::network::Connected;
use crate::crawl::network::carrier::Carrier;
use crate::crawl::network::origins::Origin;
use crate::crawl::network::ports::NO_PORT;
use crate::crawl::network::room::EXHAUSTED;
use crate::fetch::connection::Connection;
use crate::fetch::eyeballs::{Race, Turn};
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::timings::Timings;
use crate::fetch::tunnel::{Tunnel, UNREACHABLE};
use crate::frontier::job::Job;
use crate::io::{Close, Io, Stamp};
use crate::throttle::engine::TicketId;

/// More addresses than an answer of 64 KiB can hold.
const ADDRESSES_MAX: usize = 8192;

/// How long a lane waits after our machine had no socket for it.
const EXHAUSTED_PAUSE: Duration = Duration::from_secs(1);

impl<I: Io> Core<I> {
    /// A released request takes an idle connection of its origin, or begins to make one.
    pub fn take_connection(&mut self, job: Job, lane: LaneId, ticket: TicketId, found: Found) {
        let mut timings = Timings {
            started: self.now,
            ..Timings::default()
        };
        if let Some(took) = self.network.names_mut().lookups_mut().take(lane) {
            // The lookup was this attempt's; the wait for its turn after it is no phase of it.
            timings.started = self.now - took;
            timings.dns = Some(self.now);
        }
        let proxy = self.frontier.proxy_of(lane).cloned();
        let proxy = proxy.as_deref();
        let mut exchange = self.output.take_exchange();
        self.requests
            .write(&mut exchange, &job, proxy, timings, self.now)
            .expect("what cannot be put on the wire is not admitted");
        let origin = match proxy {
            None => Origin::Direct(self.frontier.hold_origin(lane)),
            // Connections through a proxy are kept apart by the proxy's credentials, too.
            Some(proxy) => {
                let way = format!("{} by {}", job.url.origin(), proxy.to_url());
                self.network.take_way(&way)
            }
        };
        // A kept connection may end before the reply, and the request would have to be repeated.
        let idle = match job.fresh || !job.is_idempotent() {
            true => None,
            false => {
                let slot = self.throttle.backoff_slot(ticket);
                self.network.take_idle(origin, slot)
            }
        };
        let port = found.port;
        let scarce_until = match idle {
            Some(_) => None,
            None => {
                let places = found.addresses.iter();
                let places = places.map(|address| SocketAddr::new(*address, port));
                self.network.port_wait(places, self.now)
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
        match (idle, scarce_until) {
            (Some(socket), _) => {
                self.network.assign(socket, key);
                self.on_ready(key, socket);
            }
            (None, Some(until)) => self.requeue_at(key, until),
            (None, None) => self.begin_race(key),
        }
    }

    /// Opens the next connection of an attempt's race when it is due. Returns `false` if no address is
    /// left that has a free slot: then the attempt is to be ended.
    fn advance_race(&mut self, key: Key) -> bool {
        let mut steps = Bound::new("try addresses", ADDRESSES_MAX);
        while steps.step() {
            let Some(flight) = self.flights.get_mut(key) else {
                return true;
            };
            let Stage::Connecting { race, .. } = &mut flight.stage else {
                return true;
            };
            match race.next(self.now) {
                Turn::Try(address) => {
                    // A further address is one scope more, which must have a free slot.
                    let scope = self.throttle.address_scope(address);
                    let has_place =
                        scope.is_none_or(|scope| self.throttle.try_add(flight.ticket, scope));
                    if !has_place {
                        race.handle_skipped();
                    } else if let Err(failure) = self.open(key, address) {
                        self.end_connecting(key, failure, &Carrier::default());
                        return true;
                    }
                }
                Turn::At(at) => {
                    self.network.arm_attempt(key, at);
                    return true;
                }
                Turn::Wait => return true,
                Turn::Lost => return false,
            }
        }
        false
    }

    /// Opens one connection for an attempt.
    fn open(&mut self, key: Key, address: IpAddr) -> Result<(), Failure> {
        if self.is_crowded()
            && let Some(origin) = self.network.evict_idle()
        {
            self.release_origin(origin);
        }
        let flight = self.flights.get_mut(key).expect("it connects");
        let url = &flight.job.url;
        let tls = self.network.tls_session(url)?;
        let tunnel = match self.frontier.proxy_of(flight.lane) {
            Some(proxy) => Tunnel::new(proxy, url)?,
            None => None,
        };
        let remote = SocketAddr::new(address, flight.port);
        let connection = Connection::open(remote, tls, flight.released, self.now)
            .with_timeout(flight.job.timeout())
            .through(tunnel);
        let (origin, slot) = (flight.origin, self.throttle.backoff_slot(flight.ticket));
        let socket = self.network.open(connection, key, origin, slot);
        if let Stage::Connecting { race, sockets, .. } = &mut flight.stage {
            sockets.push(socket);
            race.handle_started(self.now);
        }
        self.share_origin(origin);
        self.output.stats_mut().connections += 1;
        if self.workload.waits_for_machine() {
            self.network.note_port_search(remote, self.now);
        }
        Ok(())
    }

    /// Whether one more connection is one too many while others are idle.
    fn is_crowded(&self) -> bool {
        let in_flight = self.throttle.in_flight();
        let connections_max = self.workload.connections_max();
        self.network.is_crowded(in_flight, connections_max)
    }

    /// Begins a race. Its first address is one that the attempt was released for.
    fn begin_race(&mut self, key: Key) {
        let begins = self.advance_race(key);
        debug_assert!(begins, "the first address has a place");
    }

    pub fn on_flight_timeout(&mut self, slot: u32) {
        if let Some(key) = self.flights.key_of(slot) {
            // The address whose head start is over has neither failed nor won: the race continues.
            let goes_on = self.advance_race(key);
            debug_assert!(goes_on, "an attempt is on its way");
        }
    }

    pub fn on_connected(&mut self, key: Key, started: Instant, stamp: Stamp) {
        let wants_local = self.output.reads_local();
        match self
            .network
            .handle_connected(key, started, stamp, wants_local, self.now)
        {
            Connected::Page {
                attempt,
                origin,
                remote,
                event,
            } => {
                self.on_answered(origin, remote);
                self.on_race_won(attempt, key);
                if let Some(event) = event {
                    self.on_connection_event(key, event);
                }
                self.transmit(key);
            }
            Connected::Probe(probe) => self.on_probed(probe, Probed::Answered),
            Connected::Other => {}
        }
    }

    /// This connection of an attempt was established first: the others are closed.
    fn on_race_won(&mut self, key: Key, winner: Key) {
        let flight = self
            .flights
            .get_mut(key)
            .expect("a connection has its attempt");
        self.frontier.host_connected(flight.lane);
        self.network.cancel_attempt(key);
        if let Stage::Connecting { sockets, .. } = &mut flight.stage {
            let all = std::mem::replace(sockets, SmallVec::from_slice(&[winner]));
            for loser in all.into_iter().filter(|socket| *socket != winner) {
                self.close_socket(loser, Close::Reset);
            }
        }
    }

    pub fn on_set_up_failed(&mut self, key: Key, failure: Failure) {
        let http = self.network.http(key);
        let flight_key = http.flight.expect("a new connection has its attempt");
        let carrier = Carrier::of(&http.connection);
        let established = http.connection.established();
        let lacks_route = http.lacks_route;
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
                // A handshake that failed had a TCP connection, which took its time.
                exchange.timings_mut().end_connect(established);
                sockets.retain(|socket| *socket != key);
                race.handle_failed();
                // Only failures of TCP are about the address; TLS and proxies fail alike on all of them.
                // A request's own timeout that ended the attempt is `timeout.total`, which does not count
                // against the host.
                let is_tcp = established.is_none()
                    && (matches!(failure.kind, FailureKind::Connect)
                        || failure.kind == FailureKind::Timeout && failure.code == "connect");
                let timeout = flight.job.timeout();
                let timeout = timeout.unwrap_or(self.config.fetch.download_timeout);
                let has_time = self.now < flight.released + timeout;
                let goes_on = is_tcp && has_time && race.next(self.now) != Turn::Lost;
                let only_remote = carrier
                    .remote
                    .filter(|remote| race.has_only_like(remote.ip()));
                let others = match has_time {
                    true => SmallVec::new(),
                    // Their time is over as well.
                    false => std::mem::take(sockets),
                };
                let lane = flight.lane;
                for other in others {
                    self.close_socket(other, Close::Reset);
                }
                if goes_on && self.advance_race(flight_key) {
                    return;
                }
                if failure.code == EXHAUSTED && self.workload.waits_for_machine() {
                    return self.on_exhausted(flight_key, &failure);
                }
                if failure.code == NO_PORT && self.workload.waits_for_machine() {
                    let remote = carrier.remote.expect("a connection leads somewhere");
                    let until = self.network.handle_no_port(remote, self.now);
                    return self.requeue_at(flight_key, until);
                }
                let unrouted = only_remote.filter(|_| lacks_route);
                if is_tcp
                    && self.suspend_flight(flight_key, &failure, &carrier, lacks_route, unrouted)
                {
                    return;
                }
                if is_tcp {
                    self.on_connect_charged(lane, unrouted, &failure);
                } else if failure.code == UNREACHABLE {
                    self.on_origin_failed(lane, &failure);
                }
                self.end_connecting(flight_key, failure, &carrier);
            }
            // The server sent something, or the connection failed, between ready and departure.
            Stage::Ready { .. } => self.end_waiting(flight_key, failure, &carrier),
            Stage::Exchanging { .. } | Stage::Moving => {
                unreachable!("a connection that carries a request is set up")
            }
        }
    }

    /// Our machine has no socket left. The origin is not at fault and no URL is lost: the request waits,
    /// and fewer requests are in flight from now on.
    fn on_exhausted(&mut self, key: Key, failure: &Failure) {
        let in_flight = self.throttle.in_flight();
        if let Some(most) = self.network.handle_exhausted(failure, in_flight) {
            self.throttle.set_in_flight_max(most);
        }
        self.requeue_at(key, self.now + EXHAUSTED_PAUSE);
    }

    /// Returns a request that connects to its lane, which waits until a moment.
    pub fn requeue_at(&mut self, key: Key, until: Instant) {
        let flight = self.flights.get(key).expect("an attempt ends once");
        let lane = flight.lane;
        if let Stage::Connecting { sockets, .. } = &flight.stage {
            for socket in sockets.clone() {
                self.close_socket(socket, Close::Reset);
            }
        }
        self.reconnect(key);
        self.pause_lane(lane, until);
    }

    /// Ends an attempt that got no connection. It is charged as a send at its start.
    pub fn end_connecting(&mut self, key: Key, failure: Failure, carrier: &Carrier) {
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

    /// Returns a request to its lane whose connection is gone: nothing was sent.
    pub fn reconnect(&mut self, key: Key) {
        let flight = self.flights.remove(key).expect("a request has its attempt");
        self.forget(key, &flight);
        self.throttle.cancel(flight.ticket, self.now);
        self.return_to_lane(flight.lane, flight.job);
    }
}
