//! The simulated back end: virtual time, a network and a disk, all determined by a seed.
//!
//! A crawl runs here as it would on the kernel, but waiting takes no time and runs are reproducible: the
//! same seed and the same calls give the same events. The other side of the network is a [`World`],
//! which sees what real servers would see, and when.

mod listeners;
mod disk;
mod files;
mod net;
mod origins;
mod ports;
mod socket;
mod workers;
pub mod web;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use self::disk::Disk;
use self::listeners::Listeners;
use self::net::SimEvent;
use self::ports::Ports;
use self::socket::{Arrival, Entry, Held, Socket, State};
use self::workers::Workers;
use super::sockets::Kind;
use super::sockets::outbox::Outbox;
use super::sockets::ready::{ReadyQueue, TurnReads};
use super::{
    Accepted, Chunk, Close, Endpoint, Event, Io, IoSettings, Memory, NetError, Stamp, Token, Waker,
};
use crate::base::disk::DiskJob;
use crate::base::pool::Pool;
use crate::base::rng::Rng;
use crate::base::time::{Instant, Wall};
use crate::base::worker::WorkerJob;
use crate::io::{FileReader, IoKind, SharedMemory};

pub use self::net::{Answer, Faults, FullDisk, Net, World};
pub use self::origins::{Hit, Origins};
pub use self::socket::ConnId;

/// What processes of a simulated machine share, by name.
pub(crate) type Shared = BTreeMap<String, Arc<[AtomicU64]>>;

/// How a run ends without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Its process is killed: what was written stays.
    Killed,
    /// The machine loses its power: what was synced stays.
    PowerCut,
}

/// The simulated back end, for crawls in virtual time.
pub struct Sim {
    settings: IoSettings,
    wall_at_start: Wall,
    world: Box<dyn World>,
    net: Net,
    ports: Ports,
    /// Duration of the last connect's search for a port.
    port_search: Duration,
    /// Sockets that the machine has, perhaps fewer than the settings allow.
    sockets_max: usize,
    disk: Disk,
    workers: Workers,
    /// Jobs and computations that begin at the next submit.
    jobs: Vec<DiskJob>,
    computations: Vec<WorkerJob>,
    shared: Shared,
    memory: Vec<(Duration, Memory)>,
    /// Indexed by [`Token::slot`].
    entries: Vec<Entry>,
    /// The token of each open connection.
    tokens: BTreeMap<ConnId, Token>,
    /// How many of these were accepted.
    accepted: usize,
    listeners: Listeners,
    /// Sockets with something to read.
    ready: ReadyQueue,
    pool: Pool,
    outbox: Outbox,
    queued: Vec<Event>,
    woken: Arc<AtomicBool>,
}

impl Sim {
    /// A simulation without faults.
    #[doc(hidden)]
    pub fn new(seed: u64, world: Box<dyn World>) -> Self {
        Sim::with(seed, IoSettings::default(), Faults::default(), world)
    }

    /// A simulation with these faults of network and disk.
    #[doc(hidden)]
    pub fn with(seed: u64, settings: IoSettings, faults: Faults, world: Box<dyn World>) -> Self {
        let rng = Rng::from_seed(seed);
        Sim {
            wall_at_start: WALL_AT_START,
            workers: Workers::new(rng.fork("workers"), &faults, settings.gzip_level),
            jobs: Vec::new(),
            computations: Vec::new(),
            disk: Disk::new(rng.fork("disk"), &faults, &settings),
            shared: Shared::new(),
            memory: faults.memory.clone(),
            port_search: Duration::ZERO,
            ports: Ports::new(faults.ports_max, faults.port_search),
            sockets_max: settings.sockets_max.min(faults.sockets_max),
            net: Net::new(rng.fork("net"), faults),
            world,
            entries: Vec::new(),
            tokens: BTreeMap::new(),
            accepted: 0,
            listeners: Listeners::new(),
            ready: ReadyQueue::default(),
            pool: Pool::new(settings.buffer_bytes, settings.buffers_max),
            outbox: Outbox::default(),
            queued: Vec::new(),
            woken: Arc::default(),
            settings,
        }
    }

    /// Sets the wall clock's time at the start.
    #[doc(hidden)]
    #[must_use]
    pub fn starting_at(mut self, wall: Wall) -> Self {
        self.wall_at_start = wall;
        self
    }

    /// Whether nothing will apply unless we act: a wait would have no end.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.net.next_at().is_none() && !self.has_pending() && !self.woken.load(Ordering::Acquire)
    }

    /// The files written, by path.
    #[doc(hidden)]
    pub fn files(&self) -> &BTreeMap<std::path::PathBuf, Vec<u8>> {
        self.disk.files()
    }

    /// How many bytes of a file survive a crash of the machine.
    #[doc(hidden)]
    pub fn synced(&self, path: &std::path::Path) -> usize {
        self.disk.synced(path)
    }

    /// Number of disk jobs that failed though there was space.
    #[doc(hidden)]
    pub fn disk_errors(&self) -> u64 {
        self.disk.errors()
    }

    /// Puts durable files on the disk in place of all others.
    #[doc(hidden)]
    pub fn put_files(&mut self, files: BTreeMap<std::path::PathBuf, Vec<u8>>) {
        self.disk.put_files(files);
    }

    /// The memory of the machine that processes share.
    #[cfg(test)]
    pub(crate) fn shared(&mut self) -> &mut Shared {
        &mut self.shared
    }

    /// Ends the process, or the power of the machine: returns the files that are left.
    #[doc(hidden)]
    pub fn crash(&mut self, crash: Crash, rng: &mut Rng) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
        let mut jobs = Vec::new();
        while self.net.next_at().is_some() {
            if let SimEvent::Disk(place, job) = self.net.pop() {
                jobs.push((place, job));
            }
        }
        if crash == Crash::PowerCut {
            self.shared.clear();
        }
        let now = self.net.now();
        self.disk.crash(crash, jobs, now, rng)
    }

    /// The bytes written to standard output.
    #[doc(hidden)]
    pub fn stdout(&self) -> &[u8] {
        self.disk.stdout()
    }

    /// The network, through which a test opens clients to our listeners and acts for them.
    #[cfg(test)]
    pub(crate) fn net(&mut self) -> &mut Net {
        &mut self.net
    }

    /// Whether our own thread takes time for what it does, so that a turn may end late.
    #[cfg(test)]
    pub(crate) fn turns_take_time(&self) -> bool {
        self.net.turns_take_time()
    }

    /// Lets our thread be busy for a while.
    fn keep_busy(&mut self, busy: Duration) {
        if !busy.is_zero() {
            let mut queued = std::mem::take(&mut self.queued);
            self.pass(busy, &mut queued);
            self.queued = queued;
        }
    }

    /// Makes room for the token's slot, which must be vacant.
    fn reserve(&mut self, token: Token) {
        let slot = token.slot as usize;
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, Entry::vacant);
        }
        assert!(
            matches!(self.entries[slot].state, State::Vacant)
                && !self.listeners.has_slot(token.slot),
            "a token's slot is closed before it is used again"
        );
    }

    fn open(&mut self, token: Token, to: SocketAddr, kind: Kind) {
        let is_stream = kind == Kind::Stream;
        self.reserve(token);
        let started = self.net.now();
        self.port_search = Duration::ZERO;
        let refusal = if self.tokens.len() - self.accepted == self.sockets_max {
            Some(NetError::Exhausted)
        } else if is_stream {
            let (found, search) = self.ports.take(to, started);
            self.port_search = search;
            self.keep_busy(search);
            (!found).then_some(NetError::NoPort)
        } else {
            None
        };
        let state = if let Some(error) = refusal {
            let at = started;
            self.queued.push(Event::Failed { token, error, at });
            State::Failed
        } else {
            let path = self.world.distance(to, self.net.rng());
            let id = self.net.open(to, path, !is_stream);
            self.tokens.insert(id, token);
            let socket = Socket::new(id, to, started, kind);
            match kind {
                Kind::Stream => State::Connecting(socket),
                Kind::Datagram => State::Open(socket),
            }
        };
        self.entries[token.slot as usize] = Entry {
            generation: token.generation,
            state,
        };
    }

    /// Applies one event, on either side of the network.
    fn apply(&mut self, event: SimEvent, events: &mut Vec<Event>) {
        match event {
            SimEvent::Syn(id, to) => {
                let answer = self.world.connect(id, to, &mut self.net);
                self.net.answer(id, answer);
            }
            SimEvent::Bytes(id, bytes) => self.world.bytes(id, &bytes, &mut self.net),
            SimEvent::Datagram(id, to, bytes) => {
                self.world.datagram(id, to, &bytes, &mut self.net);
            }
            SimEvent::Closed(id, how) => {
                self.net.forget(id);
                self.world.closed(id, how, &mut self.net);
            }
            SimEvent::Alarm(what) => self.world.alarm(what, &mut self.net),
            SimEvent::Disk(place, job) => {
                let retry = self.disk.handle_job(place, job, self.net.now(), events);
                self.retry_disk(retry);
            }
            SimEvent::DiskRetry => {
                let retry = self.disk.handle_retry(self.net.now(), events);
                self.retry_disk(retry);
            }
            SimEvent::Computed(done) => events.push(Event::Computed(done)),
            SimEvent::ClientSyn(id, at, from) => {
                if !self.listeners.connect(id, &at, from, self.net.now()) {
                    self.net.close(id, Close::Reset);
                }
            }
            SimEvent::Established(id) => self.establish(id, events),
            SimEvent::ConnectFailed(id, error) => self.fail(id, error, events),
            SimEvent::Arrived(id, what) => self.arrive(id, what),
        }
    }

    fn retry_disk(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.net.schedule(at, SimEvent::DiskRetry);
        }
    }

    fn establish(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some(&token) = self.tokens.get(&id) else {
            return;
        };
        let at = self.net.now();
        let entry = &mut self.entries[token.slot as usize];
        entry.establish();
        let Some(socket) = entry.socket() else {
            return;
        };
        events.push(Event::Connected {
            token,
            started: socket.started,
            stamp: Stamp::exact(at),
        });
        for Held { bytes, mark } in std::mem::take(&mut socket.held) {
            self.net.send(id, &bytes);
            events.extend(mark.then_some(sent(token, at, at)));
        }
    }

    /// Advances time, with the events in it.
    fn pass(&mut self, span: Duration, events: &mut Vec<Event>) {
        let until = self.net.now() + span;
        while self.net.next_at().is_some_and(|at| at <= until) {
            let event = self.net.pop();
            self.apply(event, events);
        }
        self.net.advance(until);
    }

    fn arrive(&mut self, id: ConnId, what: Arrival) {
        let Some(&token) = self.tokens.get(&id) else {
            return self.listeners.arrive(id, self.net.now(), what);
        };
        if let Some(socket) = self.entries[token.slot as usize].socket() {
            socket.inbox.push_back((self.net.now(), what));
            self.enqueue_ready(token);
        }
    }

    /// Puts a socket into the ready queue if it has something to read.
    fn enqueue_ready(&mut self, token: Token) {
        if let Some(socket) = current(&mut self.entries, token).and_then(Entry::socket)
            && socket.has_unread()
        {
            self.ready.push(token, &mut socket.reads);
        }
    }

    fn fail(&mut self, id: ConnId, error: NetError, events: &mut Vec<Event>) {
        if let Some(token) = self.tokens.remove(&id) {
            let at = self.net.now();
            let entry = &mut self.entries[token.slot as usize];
            if let Some(socket) = entry.socket() {
                if let Some(to) = socket.connected_to() {
                    self.ports.give_back(to, false, at);
                }
                self.accepted -= usize::from(socket.place.is_some());
            }
            entry.state = State::Failed;
            self.net.forget(id);
            events.push(Event::Failed { token, error, at });
        }
    }

    /// Reads once from each of the first ready sockets, while there are buffers and reads left of the turn's.
    fn serve_ready(&mut self, turn: &mut TurnReads, events: &mut Vec<Event>) {
        for _ in 0..self.ready.len() {
            if !self.pool.has_free() {
                return;
            }
            let entries = &mut self.entries;
            let next = self.ready.pop(turn, |token, group| {
                current(entries, token)?.socket()?.reads.leave(group)
            });
            let Some(token) = next else {
                return;
            };
            let before = events.len();
            self.read(token, turn.bytes(), events);
            turn.count(&events[before..]);
        }
    }

    /// Reads from a socket until it is drained, its share of `most` bytes is read or the pool is empty.
    fn read(&mut self, token: Token, most: usize, events: &mut Vec<Event>) {
        let Some(socket) = current(&mut self.entries, token).and_then(Entry::socket) else {
            return;
        };
        let id = socket.id;
        let mut budget = socket.reads.share_of(most);
        while socket.reading
            && let Some((at, arrival)) = socket.inbox.front_mut()
        {
            let at = *at;
            match arrival {
                Arrival::Bytes(bytes) => {
                    let buffer = if budget == 0 { None } else { self.pool.take() };
                    let Some(buffer) = buffer else {
                        return self.enqueue_ready(token);
                    };
                    let room = self.pool.get_mut(buffer);
                    let length = bytes.len().min(room.len());
                    room[..length].copy_from_slice(&bytes[..length]);
                    budget = budget.saturating_sub(length);
                    socket.reads.count(length);
                    bytes.drain(..length);
                    if socket.kind == Kind::Stream {
                        self.net.read(id, length);
                    }
                    // The rest of a datagram that is too long is lost.
                    if bytes.is_empty() || socket.kind == Kind::Datagram {
                        socket.inbox.pop_front();
                    }
                    events.push(Event::Received {
                        token,
                        chunk: Chunk {
                            buffer,
                            length: length as u32,
                        },
                        stamp: Stamp::exact(at),
                    });
                }
                Arrival::End => {
                    events.push(Event::Ended {
                        token,
                        stamp: Stamp::exact(at),
                    });
                    socket.inbox.pop_front();
                }
                Arrival::Failure(error) => {
                    let error = *error;
                    return self.fail(id, error, events);
                }
            }
        }
    }

    /// Whether a socket waits to be read.
    fn can_read(&self) -> bool {
        self.ready.len() > 0 && self.pool.has_free()
    }

    /// Sends what was asked for in this turn.
    fn send_queued(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut queued = std::mem::take(&mut self.queued);
        for (send, bytes) in outbox.sends() {
            let before = self.net.now();
            let took = self.net.send_takes();
            if !took.is_zero() {
                self.pass(took, &mut queued);
            }
            let Some(entry) = current(&mut self.entries, send.token) else {
                continue;
            };
            let connecting = matches!(entry.state, State::Connecting(_));
            let Some(socket) = entry.socket() else {
                continue;
            };
            if connecting {
                socket.held.push(Held {
                    bytes: bytes.to_vec(),
                    mark: send.mark,
                });
                continue;
            }
            socket.reads.begin_reply();
            self.net.send(socket.id, bytes);
            let after = self.net.now();
            queued.extend(send.mark.then_some(sent(send.token, before, after)));
        }
        outbox.clear();
        self.outbox = outbox;
        self.queued = queued;
    }
}

impl Io for Sim {
    fn kind(&self) -> IoKind {
        IoKind::Simulated
    }

    fn now(&self) -> Instant {
        self.net.now()
    }

    fn wall_at_start(&self) -> Wall {
        self.wall_at_start
    }

    fn capacity(&self) -> usize {
        self.settings.sockets_max
    }

    fn connect(&mut self, token: Token, to: SocketAddr) {
        self.send_queued();
        self.open(token, to, Kind::Stream);
    }

    fn port_search(&self) -> Duration {
        self.port_search
    }

    fn local(&self, token: Token) -> Option<SocketAddr> {
        if let Some(address) = self.listeners.local(token) {
            return Some(address);
        }
        let entry = self.entries.get(token.slot as usize)?;
        match &entry.state {
            State::Open(socket) if entry.generation == token.generation => {
                let is_accepted = socket.place.is_some();
                let local = |to| local_address(socket.id, to);
                socket.to.map(|to| if is_accepted { to } else { local(to) })
            }
            _ => None,
        }
    }

    fn open_datagram(&mut self, token: Token, to: SocketAddr) {
        self.open(token, to, Kind::Datagram);
    }

    fn listen(&mut self, token: Token, at: &Endpoint) -> io::Result<()> {
        self.reserve(token);
        if let Endpoint::Unix { path, .. } = at
            && self.disk.files().contains_key(path)
        {
            return Err(listeners::in_use(at));
        }
        self.listeners.listen(token, at)
    }

    fn accept(&mut self, token: Token, accepted: Accepted) {
        self.reserve(token);
        let socket = self.listeners.adopt(accepted.into_ticket());
        self.tokens.insert(socket.id, token);
        self.accepted += 1;
        self.entries[token.slot as usize] = Entry {
            generation: token.generation,
            state: State::Open(socket),
        };
        self.enqueue_ready(token);
    }

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        self.outbox.push(token, bytes, mark);
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        if let Some(socket) = current(&mut self.entries, token).and_then(Entry::socket) {
            socket.reading = on;
            self.enqueue_ready(token);
        }
    }

    fn unsent(&self, _token: Token) -> usize {
        // The world keeps the window itself: nothing is held back on an established connection.
        0
    }

    fn has_unread(&self, token: Token) -> bool {
        let entry = self.entries.get(token.slot as usize);
        match entry.filter(|entry| entry.generation == token.generation) {
            Some(Entry {
                state: State::Connecting(socket) | State::Open(socket),
                ..
            }) => socket.has_unread(),
            _ => false,
        }
    }

    fn close(&mut self, token: Token, how: Close) {
        if let Some(waiting) = self.listeners.close(token) {
            for id in waiting {
                self.net.close(id, Close::Reset);
            }
            return;
        }
        let Some(entry) = current(&mut self.entries, token) else {
            return;
        };
        if let Some(socket) = entry.vacate() {
            if let Some(to) = socket.connected_to() {
                let rests = how == Close::Finish;
                self.ports.give_back(to, rests, self.net.now());
            }
            self.accepted -= usize::from(socket.place.is_some());
            self.tokens.remove(&socket.id);
            self.net.close(socket.id, how);
        }
    }

    fn disk(&mut self, job: DiskJob) {
        self.jobs.push(job);
    }

    fn compute(&mut self, job: WorkerJob) {
        self.computations.push(job);
    }

    fn file_reader(&self) -> FileReader {
        let files = self.disk.files().clone();
        Box::new(move |path, offset, bytes| disk::read(&files, path, offset, bytes).map(drop))
    }

    fn shared_memory(&mut self, name: &str, words: usize) -> io::Result<SharedMemory> {
        let zeros = || (0..words).map(|_| AtomicU64::new(0)).collect();
        let memory = self.shared.entry(name.to_owned()).or_insert_with(zeros);
        Ok(SharedMemory::Simulated(Arc::clone(memory)))
    }

    fn memory(&self) -> Option<Memory> {
        let since_start = self.net.now().saturating_since(Instant::START);
        let known = self.memory.iter().rev();
        let mut known = known.skip_while(|(from, _)| *from > since_start);
        known.next().map(|(_, memory)| *memory)
    }

    fn fail_stalled_writes(&mut self) {
        self.disk.give_up();
    }

    fn submit(&mut self) {
        for job in std::mem::take(&mut self.jobs) {
            let (place, at) = self.disk.done_at(&job, self.net.now());
            self.net.schedule(at, SimEvent::Disk(place, job));
        }
        for job in std::mem::take(&mut self.computations) {
            let (done, at) = self.workers.perform(job, self.net.now());
            self.net.schedule(at, SimEvent::Computed(done));
        }
        self.send_queued();
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        let held = events.len();
        let entries = &mut self.entries;
        events.extend(self.queued.drain(..).filter(|event| {
            event.token().is_none_or(|token| {
                current(entries, token).is_some_and(|entry| !matches!(entry.state, State::Vacant))
            })
        }));
        if self.woken.swap(false, Ordering::AcqRel) {
            events.push(Event::Woken);
        }
        for id in self.listeners.take_dropped() {
            self.net.close(id, Close::Finish);
        }
        self.listeners.begin_turn();
        self.listeners.accept(self.net.now(), events);
        let mut turn = TurnReads::new(self.settings.read_budget);
        self.serve_ready(&mut turn, events);
        loop {
            let now = self.net.now();
            let due = self.net.next_at().map(|at| at.max(now));
            let sleepy = events.len() == held && !self.can_read();
            match due {
                // Events of the same moment are returned together.
                Some(at) if at == now || (sleepy && until.is_none_or(|until| at <= until)) => {
                    let event = self.net.pop();
                    self.apply(event, events);
                    self.listeners.accept(self.net.now(), events);
                    self.serve_ready(&mut turn, events);
                }
                _ => {
                    if let Some(until) = until
                        && sleepy
                    {
                        self.net.advance(until);
                    }
                    return;
                }
            }
        }
    }

    fn queued_events(&self) -> &[Event] {
        &self.queued
    }

    fn has_pending(&self) -> bool {
        !self.queued.is_empty() || self.can_read() || self.listeners.has_pending()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self, _until: Option<Instant>) {}

    fn wait_outside(&self) {
        while !self.woken.load(Ordering::Acquire) {
            thread::park_timeout(OUTSIDE_EVERY);
        }
    }

    fn waker(&self) -> Waker {
        let woken = Arc::clone(&self.woken);
        Waker::new(move || woken.store(true, Ordering::Release))
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        &self.pool.get(chunk.buffer)[..chunk.length as usize]
    }

    fn release(&mut self, chunk: Chunk) {
        let busy = self.net.chunk_takes();
        self.keep_busy(busy);
        self.pool.put_back(chunk.buffer);
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim")
            .field("now", &self.net.now())
            .finish_non_exhaustive()
    }
}

/// The event of a marked send whose system call took from `at` to `left_by`. Its slack does not show
/// that.
fn sent(token: Token, at: Instant, left_by: Instant) -> Event {
    Event::Sent {
        token,
        at,
        slack: Duration::ZERO,
        left_by,
    }
}

fn current(entries: &mut [Entry], token: Token) -> Option<&mut Entry> {
    entries
        .get_mut(token.slot as usize)
        .filter(|entry| entry.generation == token.generation)
}

/// An address of ours for connections to `to`.
fn local_address(id: ConnId, to: SocketAddr) -> SocketAddr {
    let port = 32_768 + (id.0 % 28_232) as u16;
    let ip = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    };
    SocketAddr::new(ip, port)
}

/// How soon a crawl in virtual time handles what comes from outside, in real time.
const OUTSIDE_EVERY: Duration = Duration::from_millis(1);

/// Wall time at the start of every simulated crawl: 2026-01-01T00:00:00Z.
const WALL_AT_START: Wall = Wall(1_767_225_600_000_000_000);
