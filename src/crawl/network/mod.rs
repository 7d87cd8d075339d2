//! Connections: sends, reads, deadlines, the idle pool, the addresses they may lead to, and the sockets our
//! machine grants.
//!
//! It knows attempts by their keys and lanes by their numbers, and nothing of queues, paces and results:
//! events of a connection are returned to the crawl.

pub mod guard;
pub mod lookups;
pub mod names;
pub mod origins;
pub mod pieces;
pub mod ports;
pub mod room;
pub mod socket;
mod closing;
mod opening;
mod operators;
mod race;
pub mod rate;
mod reading;
mod resolving;
mod sending;

pub use closing::{Carried, IDLE_CLOSED, Waiting};
pub use opening::Connected;
pub use operators::OperatorEvent;
pub use race::{Closed, Destination, RaceStep, SetUpFailed, Target};
pub use reading::{Resumed, SocketEvent};
pub use resolving::Resolved;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::base::address;
use crate::base::disk::DiskJob;
use crate::base::secret::Secret;
use crate::base::slab::Key;
use crate::base::time::{Instant, Wall};
use crate::base::worker::WorkerJob;
use crate::crawl::config::Config;
use crate::crawl::network::names::Names;
use crate::crawl::network::operators::Operators;
use crate::crawl::network::origins::{Origin, ProxyOrigins};
use crate::crawl::network::pieces::Pieces;
use crate::crawl::network::ports::Ports;
use crate::crawl::network::race::Races;
use crate::crawl::network::rate::Rate;
use crate::crawl::network::room::Room;
use crate::crawl::network::socket::{HttpSocket, Socket, Sockets, key_of};
use crate::crawl::timer::{Deadlines, SlotTimer};
use crate::fetch::connection::Connection;
use crate::fetch::exchange::Exchange;
use crate::fetch::pool::Pool;
use crate::fetch::tls::TlsConfig;
use crate::io::{Chunk, Event, FileReader, Io, IoKind, Memory};

/// The connections of a crawl, on a back end.
pub struct Network<I: Io> {
    io: I,
    config: Arc<Config>,
    tls: TlsConfig,
    names: Names,
    sockets: Sockets,
    /// The control interface's among them.
    operators: Operators,
    /// Attempts that connect.
    races: Races,
    /// Idle connections.
    pool: Pool,
    /// Origins of connections through proxies.
    proxy_origins: ProxyOrigins,
    /// Destinations for which this machine has no local port left.
    ports: Ports,
    /// Limit on requests in flight, by the sockets this machine grants.
    room: Room,
    /// Deadlines of connections and of attempts.
    deadlines: Deadlines,
    /// Connections that are ready for their request, with handshake bytes left to send.
    secured: Vec<Key>,
    /// Sockets that close once their queued bytes have left.
    parting: Vec<Key>,
    /// Sockets whose reading is stopped, in the order of stopping.
    paused: VecDeque<Key>,
    /// The connection that is read although there is no room.
    favoured: Option<Key>,
    /// Bytes of all buffered bodies.
    buffered: usize,
    /// Bytes so far of the replies in flight.
    arriving: u64,
    /// Bytes received per second.
    rate: Rate,
    /// Bodies that the sink takes in pieces.
    pieces: Pieces,
    /// Buffer for a connection's output.
    scratch: Vec<u8>,
    /// Events of the last wait, but for those of sockets to name servers.
    events: Vec<Event>,
    /// The events of sockets to name servers.
    name_events: Vec<Event>,
    /// Number of all these events, also after they were taken.
    events_len: usize,
    /// Number of these events that were searched for sends.
    events_seen: usize,
    /// The same for the events of the next wait.
    queued_seen: usize,
}

impl<I: Io> Network<I> {
    /// A network without connections.
    pub fn new(
        io: I,
        config: Arc<Config>,
        tls: TlsConfig,
        names: Names,
        room: Room,
        secret: &Secret,
        now: Instant,
    ) -> Self {
        Network {
            tls,
            names,
            sockets: Sockets::default(),
            operators: Operators::default(),
            races: Races::default(),
            pool: Pool::new(
                config.fetch.keepalive_max,
                config.fetch.keepalive_timeout,
                secret,
            ),
            proxy_origins: ProxyOrigins::new(secret),
            ports: Ports::new(secret),
            room,
            deadlines: Deadlines::new(now),
            secured: Vec::new(),
            parting: Vec::new(),
            paused: VecDeque::new(),
            favoured: None,
            buffered: 0,
            arriving: 0,
            rate: Rate::new(config.bytes_per_second_max),
            pieces: Pieces::new(io.waker()),
            scratch: Vec::new(),
            events: Vec::new(),
            name_events: Vec::new(),
            events_len: 0,
            events_seen: 0,
            queued_seen: 0,
            config,
            io,
        }
    }

    /// The back end.
    pub fn io(&self) -> &I {
        &self.io
    }

    /// The same, to be changed by a test.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// The kind of back end.
    pub fn io_kind(&self) -> IoKind {
        self.io.kind()
    }

    /// The time at this very moment, which may be later than the turn's.
    pub fn clock(&self) -> Instant {
        self.io.now()
    }

    /// The wall clock's time when the back end started.
    pub fn wall_at_start(&self) -> Wall {
        self.io.wall_at_start()
    }

    /// The wall clock's time at a moment.
    pub fn wall_at(&self, at: Instant) -> Wall {
        self.io.wall_at_start().at(at)
    }

    /// Memory of the process and its limit, if the back end can measure them.
    pub fn memory(&self) -> Option<Memory> {
        self.io.memory()
    }

    /// Processor time of this thread so far, if the back end measures it.
    pub fn processor_time(&self) -> Option<Duration> {
        self.io.processor_time()
    }

    /// Whether the back end has something to report or to submit at once.
    pub fn has_pending(&self) -> bool {
        self.io.has_pending()
    }

    /// The connection of pages of a key, which must exist.
    fn http(&self, key: Key) -> &HttpSocket {
        let http = self.sockets.http(key);
        http.expect("a connection of pages is named")
    }

    /// The connection of pages of a key, which must exist.
    pub fn connection(&self, key: Key) -> &Connection {
        &self.http(key).connection
    }

    /// The exchange that a connection of pages carries; `None` if there is none.
    pub fn exchange_on(&self, key: Key) -> Option<&Exchange> {
        self.sockets.http(key)?.connection.exchange()
    }

    /// What a connection of pages leads to; `None` if there is none.
    pub fn peer_of(&self, key: Key) -> Option<(Origin, SocketAddr)> {
        let http = self.sockets.http(key)?;
        Some((http.origin, http.connection.remote()))
    }

    /// The same as [`http`](Self::http), mutable.
    fn http_mut(&mut self, key: Key) -> &mut HttpSocket {
        let http = self.sockets.http_mut(key);
        http.expect("a connection of pages is named")
    }

    /// The attempt of a connection of pages, which must have one.
    pub fn attempt_on(&self, key: Key) -> Key {
        let attempt = self.http(key).flight;
        attempt.expect("a connection in use has its attempt")
    }

    /// Whether there is no socket but those of the control interface.
    pub fn is_empty(&self) -> bool {
        self.sockets_len() == 0
    }

    /// Number of sockets but those of the control interface.
    fn sockets_len(&self) -> usize {
        self.sockets.len() - self.operators.sockets()
    }

    /// Returns the origin of a connection through a proxy, and counts one more use of it.
    pub fn take_proxy_origin(&mut self, name: &str) -> Origin {
        Origin::ByProxy(self.proxy_origins.take(name))
    }

    /// Counts one more attempt or connection that uses an origin.
    pub fn share_proxy_origin(&mut self, number: u32) {
        self.proxy_origins.share(number);
    }

    /// Releases an origin whose attempt or connection has ended.
    pub fn release_proxy_origin(&mut self, number: u32) {
        self.proxy_origins.release(number);
    }

    /// Number of idle connections of an origin.
    pub fn idle_connections(&self, origin: Origin) -> usize {
        self.pool.count_of(origin.number())
    }

    /// Timeouts and bounds are those of this configuration from now on. A connection keeps the deadline of its present
    /// wait, unless the new one is later.
    pub fn set_config(&mut self, config: Arc<Config>, now: Instant) {
        self.rate.set(config.bytes_per_second_max, now);
        self.config = config;
    }

    /// Replaces the networks to which no connection is opened.
    pub fn set_excluded(&mut self, excluded: Vec<address::Network>) {
        self.names.guard_mut().set_excluded(excluded);
    }

    /// Sets the most requests in flight; returns how many may be in flight at present.
    pub fn set_in_flight_max(&mut self, most: usize) -> usize {
        self.room.set_most(most)
    }

    /// Most requests in flight for which this machine has sockets.
    pub fn in_flight_max(&self) -> usize {
        self.room.most()
    }

    /// Called every second: removes expired shortages. Returns the limit on requests in flight if refused
    /// requests may be in flight again.
    pub fn tick(&mut self, now: Instant) -> Option<usize> {
        self.ports.expire(now);
        self.room.widened()
    }

    /// Begins a turn: waits for events until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.pieces.begin_turn();
        self.io.wait(until, &mut self.events);
        self.events_len = self.events.len();
        if self.names.has_sockets() {
            let sockets = &self.sockets;
            let of_names = |event: &mut Event| {
                let key = event.token().map(key_of);
                key.is_some_and(|key| matches!(sockets.get(key), Some(Socket::Dns(_))))
            };
            self.name_events
                .extend(self.events.extract_if(.., of_names));
        }
        self.events_seen = 0;
        self.queued_seen = 0;
    }

    /// Takes the events of the last wait, but for those of sockets to name servers. Their memory is given
    /// back with [`put_back_events`](Self::put_back_events).
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Puts back the memory of events, which is empty.
    pub fn put_back_events(&mut self, events: Vec<Event>) {
        self.events = events;
    }

    /// Takes the events of sockets to name servers. Their memory is given back with
    /// [`put_back_name_events`](Self::put_back_name_events).
    pub fn take_name_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.name_events)
    }

    /// Puts back the memory of these events, which is empty.
    pub fn put_back_name_events(&mut self, events: Vec<Event>) {
        self.name_events = events;
    }

    /// Number of events that the last wait reported.
    pub fn events_of_turn(&self) -> usize {
        self.events_len
    }

    /// Whether the last wait reported events.
    pub fn has_events(&self) -> bool {
        self.events_len > 0
    }

    /// The next attempt that has sent something since the last call, and when: from the events of the last
    /// wait, and then from those that the next wait reports.
    ///
    /// A later wait repeats the latter, since the end of a send may follow in it.
    pub fn poll_sent(&mut self) -> Option<(Key, Instant)> {
        while let Some(event) = self.events.get(self.events_seen) {
            self.events_seen += 1;
            if let Event::Sent { token, left_by, .. } | Event::Flushed { token, at: left_by } =
                event
                && let Some(attempt) = self.sockets.attempt_on(key_of(*token))
            {
                return Some((attempt, *left_by));
            }
        }
        while let Some(event) = self.io.queued_events().get(self.queued_seen) {
            self.queued_seen += 1;
            if let Event::Sent { token, left_by, .. } = event
                && let Some(attempt) = self.sockets.attempt_on(key_of(*token))
            {
                return Some((attempt, *left_by));
            }
        }
        None
    }

    /// Reads the clock.
    pub fn update_clock(&mut self) -> Instant {
        let now = self.io.now();
        self.tls.set_now(now);
        now
    }

    /// Submits the queued sends.
    pub fn submit(&mut self) {
        self.io.submit();
    }

    /// Returns the memory of received bytes.
    pub fn release(&mut self, chunk: Chunk) {
        self.io.release(chunk);
    }

    /// Queues a job for the disk.
    pub fn disk(&mut self, job: DiskJob) {
        self.io.disk(job);
    }

    /// Queues a computation for a helper thread.
    pub fn compute(&mut self, job: WorkerJob) {
        self.io.compute(job);
    }

    /// A reader of files, for the end of the crawl: it blocks.
    pub fn file_reader(&self) -> FileReader {
        self.io.file_reader()
    }

    /// Breaks off what is made from other files.
    pub fn give_up_derivations(&mut self) {
        self.io.give_up_derivations();
    }

    /// Fails writes that wait for a reader or for free disk space.
    pub fn fail_stalled_writes(&mut self) {
        self.io.fail_stalled_writes();
    }

    /// Sets the deadline of the back end's descriptor.
    pub fn arm_descriptor(&mut self, until: Option<Instant>) {
        self.io.arm(until);
    }

    /// The next time at which a deadline of a connection or an attempt may be over.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Returns a connection or an attempt whose deadline may be over; see [`Deadlines::expire`].
    pub fn expire_deadline(&mut self, now: Instant) -> Option<SlotTimer> {
        self.deadlines.expire(now)
    }

    /// All sockets.
    #[cfg(test)]
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Counters of body reads.
    #[cfg(test)]
    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }
}
