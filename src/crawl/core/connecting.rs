//! From a release to a connection: an idle one of the origin, or new ones, of which the first to be
//! established carries the request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::LaneId;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::breaker::Probed;
use crate::crawl::core::Core;
use crate::crawl::core::names::Found;
use crate::crawl::flights::{Flight, Stage};
use crate::crawl::network::origins::Origin;
use crate::crawl::network::ports::NO_PORT;
use crate::crawl::network::room::EXHAUSTED;
use crate::crawl::network::socket::Carrier;
use crate::crawl::network::{Closed, Connected, Destination, RaceStep, SetUpFailed, Target};
use crate::fetch::exchange::Exchange;
use crate::fetch::failure::Failure;
use crate::fetch::tunnel::UNREACHABLE;
use crate::frontier::job::Job;
use crate::io::{Io, Stamp};
use crate::throttle::engine::TicketId;

impl<I: Io> Core<I> {
    /// A released request takes an idle connection of its origin, or begins to make one.
    pub fn take_connection(&mut self, job: Job, lane: LaneId, ticket: TicketId, found: Found) {
        let proxy = self.frontier.proxy_of(lane).cloned();
        let proxy = proxy.as_deref();
        let mut exchange = self.exchange_for(&job, lane, proxy);
        let due = self.workload.due_of(job.tag());
        if let Some(due) = due {
            exchange.set_begun(due);
        }
        let origin = match proxy {
            None => Origin::Direct(self.frontier.hold_origin(lane)),
            // Connections through a proxy are kept apart by the proxy's credentials, too.
            Some(proxy) => {
                let name = format!("{} by {}", job.url.origin(), proxy.to_url());
                self.network.take_proxy_origin(&name)
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
        let scarce_until = match idle {
            Some(_) => None,
            None => {
                let places = found.addresses.iter();
                let places = places.map(|address| SocketAddr::new(*address, found.port));
                self.network.port_wait(places, self.now)
            }
        };
        let timeout = job.timeout();
        let key = self.flights.insert(Flight {
            lane,
            ticket,
            origin,
            released: self.now,
            signal: None,
            body_start: None,
            decisions: Vec::new(),
            stage: Stage::Connecting { exchange },
            job,
        });
        match (idle, scarce_until) {
            (Some(socket), _) => {
                self.network.assign(socket, key);
                self.on_ready(key, socket);
            }
            (None, Some(until)) => self.requeue_at(key, until),
            (None, None) => {
                let target = Target {
                    addresses: found.addresses,
                    port: found.port,
                    origin,
                    released: due.unwrap_or(self.now),
                    timeout,
                };
                self.network.connect(key, target);
                // Its first address is one that the attempt was released for.
                let begins = self.advance_race(key);
                debug_assert!(begins, "the first address has a place");
            }
        }
    }

    /// Opens the next connection of an attempt when it is due. Returns `false` if no address is left that
    /// has a free slot: then the attempt is to be ended.
    fn advance_race(&mut self, key: Key) -> bool {
        let flight = self.flights.get(key).expect("a race has its attempt");
        let destination = Destination {
            url: &flight.job.url,
            proxy: self.frontier.proxy_of(flight.lane).map(Arc::as_ref),
        };
        let connections_max = self.workload.connections_max();
        let idle_max = connections_max.saturating_sub(self.throttle.in_flight());
        let (throttle, now) = (&mut self.throttle, self.now);
        // A further address is one scope more, which must have a free slot.
        let slot_at = |address| {
            let scope = throttle.address_scope(address);
            let has_place = scope.is_none_or(|scope| throttle.try_add(flight.ticket, scope, now));
            has_place.then(|| throttle.backoff_slot(flight.ticket))
        };
        let step = self
            .network
            .advance_race(key, destination, idle_max, slot_at, self.now);
        match step {
            RaceStep::Opened {
                origin,
                remote,
                evicted,
            } => {
                if let Some(evicted) = evicted {
                    self.release_origin(evicted);
                }
                self.share_origin(origin);
                self.output.stats_mut().connections += 1;
                if self.workload.rules().waits_for_machine {
                    self.network.note_port_search(remote, self.now);
                }
            }
            RaceStep::Waits => {}
            RaceStep::Lost => return false,
            RaceStep::Failed(failure) => self.end_connecting(key, failure, &Carrier::default()),
        }
        true
    }

    /// The head start of an address is over, which has neither failed nor won: the race continues.
    pub fn on_race_timeout(&mut self, slot: u32) {
        if let Some(key) = self.network.handle_race_timeout(slot) {
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
                closed,
            } => {
                self.on_answered(origin, remote);
                let flight = self.flights.get(attempt);
                let flight = flight.expect("a connection has its attempt");
                self.frontier.host_connected(flight.lane);
                self.release_origins(closed);
                if let Some(event) = event {
                    self.on_connection_event(key, event);
                }
                self.transmit(key);
            }
            Connected::Probe(probe) => self.on_probed(probe, Probed::Answered),
            Connected::Other => {}
        }
    }

    /// A new connection failed before its request departed.
    pub fn on_set_up_failed(&mut self, socket: Key, failure: Failure) {
        let failed = self
            .network
            .handle_set_up_failed(socket, &failure, self.now);
        let SetUpFailed {
            attempt: key,
            closed,
            carrier,
            established,
            goes_on,
            is_tcp,
            lacks_route,
            unrouted,
        } = failed;
        self.release_origins(closed);
        let flight = self.flights.get_mut(key);
        let flight = flight.expect("a connection has its attempt");
        match &mut flight.stage {
            // A handshake that failed had a TCP connection, which took its time.
            Stage::Connecting { exchange } => exchange.timings_mut().end_connect(established),
            // The server sent something, or the connection failed, between ready and departure.
            Stage::Ready { .. } => return self.end_waiting(key, failure, &carrier),
            Stage::Exchanging { .. } | Stage::Moving => {
                unreachable!("a connection that carries a request is set up")
            }
        }
        let lane = flight.lane;
        if goes_on && self.advance_race(key) {
            return;
        }
        if failure.name == EXHAUSTED && self.workload.rules().waits_for_machine {
            return self.on_exhausted(key, &failure);
        }
        if failure.name == NO_PORT && self.workload.rules().waits_for_machine {
            let remote = carrier.remote.expect("a connection leads somewhere");
            let until = self.network.handle_no_port(remote, self.now);
            return self.requeue_at(key, until);
        }
        if is_tcp && self.suspend_flight(key, &failure, &carrier, lacks_route, unrouted) {
            return;
        }
        let failure = match is_tcp {
            true => self.name_proxy(lane, failure),
            false => failure,
        };
        if is_tcp {
            self.on_connect_charged(lane, unrouted, &failure);
        } else if failure.name == UNREACHABLE {
            self.on_origin_failed(lane, &failure);
        }
        self.end_connecting(key, failure, &carrier);
    }

    /// The failure to reach a proxy names it: the URL is that of another host.
    pub fn name_proxy(&self, lane: LaneId, mut failure: Failure) -> Failure {
        if let Some(proxy) = self.frontier.proxy_of(lane) {
            let (host, port, detail) = (proxy.host(), proxy.port(), &failure.detail);
            failure.detail = format!("the proxy {host}:{port}: {detail}").into();
        }
        failure
    }

    /// This machine has no socket left. The origin is not at fault and no URL is lost: the request waits,
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
        self.abandon(key);
        self.reconnect(key);
        self.pause_lane(lane, until);
    }

    /// Ends an attempt that got no connection.
    pub fn end_connecting(&mut self, key: Key, failure: Failure, carrier: &Carrier) {
        self.abandon(key);
        let flight = self.flights.get_mut(key).expect("an attempt ends once");
        let Stage::Connecting { exchange } = std::mem::replace(&mut flight.stage, Stage::Moving)
        else {
            unreachable!("only an attempt that connects fails to");
        };
        self.end_undeparted(key, exchange, failure, carrier);
    }

    /// Ends an attempt whose request did not depart. It is charged as a send at its start.
    pub fn end_undeparted(
        &mut self,
        key: Key,
        exchange: Box<Exchange>,
        failure: Failure,
        carrier: &Carrier,
    ) {
        let flight = self.flights.get(key).expect("an attempt ends once");
        self.throttle.charge_failed(flight.ticket, flight.released);
        self.frontier.end_first_page(flight.lane);
        self.on_end(key, exchange, Some(failure), carrier);
    }

    /// Returns a request to its lane whose connection is gone: nothing was sent.
    pub fn reconnect(&mut self, key: Key) {
        let flight = self.flights.remove(key).expect("a request has its attempt");
        self.release_origin(flight.origin);
        self.throttle.cancel(flight.ticket, self.now);
        self.return_to_lane(flight.lane, flight.job);
    }

    /// An attempt connects no longer.
    pub fn abandon(&mut self, key: Key) {
        let closed = self.network.abandon(key);
        self.release_origins(closed);
    }

    /// Connections were closed.
    fn release_origins(&mut self, closed: Closed) {
        for origin in closed {
            self.release_origin(origin);
        }
    }
}

/// How long a lane waits after this machine had no socket for it.
const EXHAUSTED_PAUSE: Duration = Duration::from_secs(1);
