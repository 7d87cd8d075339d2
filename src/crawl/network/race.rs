//! Attempts that connect: happy eyeballs (RFC 8305), from an attempt's addresses to the connection that
//! carries its request.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::network::Network;
use crate::crawl::network::origins::Origin;
use crate::crawl::network::socket::Carrier;
use crate::crawl::network::socket::{HttpSocket, Socket, token_of};
use crate::crawl::timer::SlotTimer;
use crate::fetch::connection::Connection;
use crate::fetch::eyeballs::{Race, Turn};
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::timings::Established;
use crate::fetch::tls::TlsSession;
use crate::fetch::tunnel::Tunnel;
use crate::io::{Close, Io};
use crate::wire::proxy::Proxy;
use crate::wire::url::CrawlUrl;

/// The attempts that connect, by the slots of their keys.
///
/// ```text
/// connect ──► racing ──► won ──► ready      won: its other connections are closed
///              ▲ │        │
///              │ ▼        ▼
///          a connection fails ──► lost       no address is left that may be tried
/// ```
///
/// An attempt is here from `connect` until it has a ready connection, or no address is left.
#[derive(Default)]
pub struct Races {
    of_slots: Vec<Option<Racing>>,
}

/// An attempt that connects.
struct Racing {
    attempt: Key,
    race: Race,
    /// Its connections that have not failed.
    sockets: SmallVec<[Key; 2]>,
    port: u16,
    origin: Origin,
    released: Instant,
    timeout: Option<Duration>,
}

/// What an attempt connects to.
pub struct Target {
    /// In the order of RFC 8305, section 4.
    pub addresses: SmallVec<[IpAddr; 2]>,
    pub port: u16,
    pub origin: Origin,
    /// When the attempt was released: its timeout runs from then.
    pub released: Instant,
    /// Its own timeout, if it has one.
    pub timeout: Option<Duration>,
}

/// What lies behind the address: it decides about tunnel and TLS.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    pub url: &'a CrawlUrl,
    pub proxy: Option<&'a Proxy>,
}

/// Result of advancing a race.
pub enum RaceStep {
    /// One more connection of this origin is being opened. `evicted`: origin of the idle connection that was
    /// closed in exchange, which the caller releases.
    Opened {
        origin: Origin,
        remote: SocketAddr,
        evicted: Option<Origin>,
    },
    /// Its connections have not failed yet.
    Waits,
    /// No address is left that may be tried: the race is over.
    Lost,
    /// There can be no connection to this destination.
    Failed(Failure),
}

/// Origins of connections that were closed; the caller releases each.
pub type Closed = SmallVec<[Origin; 2]>;

/// A new connection that failed, and is closed.
pub struct SetUpFailed {
    pub attempt: Key,
    /// Its origin, and those of others that were closed with it.
    pub closed: Closed,
    pub carrier: Carrier,
    /// Its TCP connection, if that was established.
    pub established: Option<Established>,
    /// The attempt may have another address: the race is to be advanced. Otherwise it is over.
    pub goes_on: bool,
    /// The failure is about the address. TLS and proxies fail alike on all of them.
    pub is_tcp: bool,
    /// This machine has no route to the address.
    pub lacks_route: bool,
    /// The address, if this machine has no route to it and the host has only addresses of this family.
    pub unrouted: Option<SocketAddr>,
}

impl Races {
    fn insert(&mut self, racing: Racing) {
        let slot = racing.attempt.slot as usize;
        if self.of_slots.len() <= slot {
            self.of_slots.resize_with(slot + 1, || None);
        }
        debug_assert!(
            self.of_slots[slot].is_none(),
            "a race ends with its attempt"
        );
        self.of_slots[slot] = Some(racing);
    }

    fn get_mut(&mut self, attempt: Key) -> Option<&mut Racing> {
        let racing = self.of_slots.get_mut(attempt.slot as usize)?.as_mut();
        racing.filter(|racing| racing.attempt == attempt)
    }

    fn remove(&mut self, attempt: Key) -> Option<Racing> {
        let place = self.of_slots.get_mut(attempt.slot as usize)?;
        place.take_if(|racing| racing.attempt == attempt)
    }

    /// Returns the attempt in this slot.
    fn attempt_in(&self, slot: u32) -> Option<Key> {
        let racing = self.of_slots.get(slot as usize)?.as_ref();
        racing.map(|racing| racing.attempt)
    }

    /// Whether no attempt connects.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.of_slots.iter().all(Option::is_none)
    }
}

impl<I: Io> Network<I> {
    /// Begins the race of an attempt. [`advance_race`](Self::advance_race) opens its first connection.
    pub fn connect(&mut self, attempt: Key, target: Target) {
        let Target {
            addresses,
            port,
            origin,
            released,
            timeout,
        } = target;
        self.races.insert(Racing {
            attempt,
            race: Race::new(addresses),
            sockets: SmallVec::new(),
            port,
            origin,
            released,
            timeout,
        });
    }

    /// Opens the next connection of an attempt if it is due.
    ///
    /// `slot_at`: takes a slot of the address; 0 unless slots back off by themselves, `None` if there is
    /// none, and the address is skipped. `idle_max`: so many connections may be idle beside it.
    pub fn advance_race(
        &mut self,
        attempt: Key,
        destination: Destination<'_>,
        idle_max: usize,
        mut slot_at: impl FnMut(IpAddr) -> Option<u32>,
        now: Instant,
    ) -> RaceStep {
        loop {
            let Some(racing) = self.races.get_mut(attempt) else {
                return RaceStep::Waits;
            };
            match racing.race.next(now) {
                Turn::Try(address) => match slot_at(address) {
                    None => racing.race.handle_skipped(),
                    Some(slot) => {
                        let remote = SocketAddr::new(address, racing.port);
                        let opened = self.open(attempt, remote, destination, slot, idle_max, now);
                        return opened.unwrap_or_else(RaceStep::Failed);
                    }
                },
                Turn::At(at) => {
                    self.arm_attempt(attempt, at);
                    return RaceStep::Waits;
                }
                Turn::Wait => return RaceStep::Waits,
                Turn::Lost => {
                    let sockets = self.end_race(attempt);
                    debug_assert!(sockets.is_empty(), "all connections have failed");
                    return RaceStep::Lost;
                }
            }
        }
    }

    /// Opens one connection of an attempt.
    fn open(
        &mut self,
        attempt: Key,
        remote: SocketAddr,
        destination: Destination<'_>,
        slot: u32,
        idle_max: usize,
        now: Instant,
    ) -> Result<RaceStep, Failure> {
        let Destination { url, proxy } = destination;
        let tls = match url.is_https() {
            true => Some(TlsSession::new(&self.tls, url.host_str())?),
            false => None,
        };
        let tunnel = match proxy {
            Some(proxy) => Tunnel::new(proxy, url)?,
            None => None,
        };
        let is_crowded = self.pool.len() > idle_max || self.sockets_len() >= self.io.capacity();
        let evicted = match is_crowded {
            true => self.evict_idle(),
            false => None,
        };
        let racing = self.races.get_mut(attempt).expect("it connects");
        let (origin, released, timeout) = (racing.origin, racing.released, racing.timeout);
        let connection = Connection::open(remote, tls, released, now)
            .with_timeout(timeout)
            .through(tunnel);
        let http = HttpSocket::new(connection, attempt, origin, slot);
        let socket = self.sockets.insert(Socket::Http(http));
        racing.sockets.push(socket);
        racing.race.handle_started(now);
        let next = racing.race.next(now);
        self.io.connect(token_of(socket), remote);
        self.arm(socket);
        if let Turn::At(at) = next {
            self.arm_attempt(attempt, at);
        }
        Ok(RaceStep::Opened {
            origin,
            remote,
            evicted,
        })
    }

    /// Called when the timer of the attempt in this slot fired. Returns the attempt, whose race is to be
    /// advanced; `None` if it connects no longer.
    pub fn handle_race_timeout(&self, slot: u32) -> Option<Key> {
        self.races.attempt_in(slot)
    }

    /// Called when a connection of an attempt was established first. Closes the attempt's others.
    pub(super) fn handle_won(&mut self, attempt: Key, winner: Key) -> Closed {
        self.cancel_attempt(attempt);
        let Some(racing) = self.races.get_mut(attempt) else {
            return Closed::new();
        };
        let all = std::mem::replace(&mut racing.sockets, SmallVec::from_slice(&[winner]));
        let losers = all.into_iter().filter(|socket| *socket != winner);
        losers
            .filter_map(|loser| self.close(loser, Close::Reset))
            .collect()
    }

    /// Called when a new connection can carry the request of its attempt. Ends the race; returns the attempt.
    pub fn handle_ready(&mut self, socket: Key) -> Key {
        let attempt = self.attempt_on(socket);
        self.races.remove(attempt);
        attempt
    }

    /// Called when a new connection failed before its request departed. Closes it, and if the attempt cannot
    /// try another address, its other connections.
    pub fn handle_set_up_failed(
        &mut self,
        socket: Key,
        failure: &Failure,
        now: Instant,
    ) -> SetUpFailed {
        let attempt = self.attempt_on(socket);
        let http = self.http(socket);
        let carrier = Carrier::of(&http.connection);
        let established = http.connection.established();
        let lacks_route = http.lacks_route;
        let mut closed: Closed = self.close(socket, Close::Reset).into_iter().collect();
        // A request's own timeout that ended the attempt is `timeout.total`, which does not count against the
        // host.
        let is_tcp = established.is_none()
            && (matches!(failure.kind, FailureKind::Connect)
                || failure.kind == FailureKind::Timeout && failure.name == "connect");
        let mut goes_on = false;
        let mut unrouted = None;
        if let Some(racing) = self.races.get_mut(attempt) {
            racing.sockets.retain(|other| *other != socket);
            racing.race.handle_failed();
            let timeout = racing.timeout.unwrap_or(self.config.fetch.download_timeout);
            let has_time = now < racing.released + timeout;
            goes_on = is_tcp && has_time && racing.race.next(now) != Turn::Lost;
            let has_only_like = |remote: &SocketAddr| racing.race.has_only_like(remote.ip());
            unrouted = carrier.remote.filter(|_| lacks_route).filter(has_only_like);
        }
        if !goes_on {
            // Where its time is over, that of the others is as well.
            closed.extend(self.abandon(attempt));
        }
        SetUpFailed {
            attempt,
            closed,
            carrier,
            established,
            goes_on,
            is_tcp,
            lacks_route,
            unrouted,
        }
    }

    /// Ends the race of an attempt, if it has one, and closes its connections.
    pub fn abandon(&mut self, attempt: Key) -> Closed {
        let sockets = self.end_race(attempt);
        let sockets = sockets.into_iter();
        sockets
            .filter_map(|socket| self.close(socket, Close::Reset))
            .collect()
    }

    /// Removes the race of an attempt; returns its connections.
    fn end_race(&mut self, attempt: Key) -> SmallVec<[Key; 2]> {
        match self.races.remove(attempt) {
            None => SmallVec::new(),
            Some(racing) => {
                self.cancel_attempt(attempt);
                racing.sockets
            }
        }
    }

    /// Arms the timer of an attempt: its next address may be tried then.
    fn arm_attempt(&mut self, attempt: Key, at: Instant) {
        self.deadlines.arm_by(SlotTimer::Flight(attempt.slot), at);
    }

    /// Cancels that timer.
    fn cancel_attempt(&mut self, attempt: Key) {
        self.deadlines.cancel(SlotTimer::Flight(attempt.slot));
    }

    /// The attempts that connect.
    #[cfg(test)]
    pub fn races(&self) -> &Races {
        &self.races
    }
}
