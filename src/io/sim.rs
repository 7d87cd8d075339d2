//! A kernel that is not there: virtual time, a network and a disk, all from a seed.
//!
//! A crawl runs here as it would under the kernel, but waiting takes no time and chance repeats:
//! the same seed and the same calls give the same events. The other side of the network is a
//! [`World`], which sees what real servers would see, and when.

mod disk;
mod net;
mod origins;
mod ports;
mod socket;
pub mod web;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::disk::Disk;
use self::net::Happening;
use self::ports::Ports;
use self::socket::{Arrival, Entry, Held, Socket, State};
use super::outbox::Outbox;
use super::{Chunk, Close, Event, Io, Memory, NetError, Settings, Stamp, Token, Waker};
use crate::base::disk::DiskJob;
use crate::base::pool::Pool;
use crate::base::rng::Rng;
use crate::base::time::{Instant, Wall};

pub use self::net::{Answer, ConnId, Faults, FullDisk, Net, World};
pub use self::origins::{Hit, Origins};

/// The simulated back end: what a crawler in virtual time runs on.
pub struct Sim {
    settings: Settings,
    world: Box<dyn World>,
    net: Net,
    ports: Ports,
    /// How long the last connect looked for one.
    port_search: Duration,
    /// Sockets that there are, which may be fewer than the settings say.
    sockets_max: usize,
    disk: Disk,
    memory: Vec<(Duration, Memory)>,
    /// Indexed by [`Token::slot`].
    entries: Vec<Entry>,
    /// Which token each connection has, from opening to closing.
    tokens: BTreeMap<ConnId, Token>,
    connections: u64,
    /// Sockets with something to read. May name stale tokens.
    line: VecDeque<Token>,
    pool: Pool,
    outbox: Outbox,
    news: Vec<Event>,
    woken: Arc<AtomicBool>,
}

impl Sim {
    /// A world without faults.
    #[doc(hidden)]
    pub fn new(seed: u64, world: Box<dyn World>) -> Self {
        Sim::with(seed, Settings::default(), Faults::default(), world)
    }

    /// A network and a disk with these faults.
    #[doc(hidden)]
    pub fn with(seed: u64, settings: Settings, faults: Faults, world: Box<dyn World>) -> Self {
        let rng = Rng::from_seed(seed);
        Sim {
            disk: Disk::new(rng.fork("disk"), &faults),
            memory: faults.memory.clone(),
            port_search: Duration::ZERO,
            ports: Ports::new(faults.ports_max, faults.port_search),
            sockets_max: settings.sockets_max.min(faults.sockets_max),
            net: Net::new(rng.fork("net"), faults),
            world,
            entries: Vec::new(),
            tokens: BTreeMap::new(),
            connections: 0,
            line: VecDeque::new(),
            pool: Pool::new(settings.buffer_bytes, settings.buffers_max),
            outbox: Outbox::default(),
            news: Vec::new(),
            woken: Arc::default(),
            settings,
        }
    }

    /// Whether nothing will ever happen unless we do something: a wait without end.
    #[doc(hidden)]
    pub fn is_idle(&self) -> bool {
        self.net.next_at().is_none() && !self.has_news() && !self.woken.load(Ordering::Acquire)
    }

    /// What has been written, by path.
    #[doc(hidden)]
    pub fn files(&self) -> &BTreeMap<std::path::PathBuf, Vec<u8>> {
        self.disk.files()
    }

    /// What has been written to standard output.
    #[doc(hidden)]
    pub fn stdout(&self) -> &[u8] {
        self.disk.stdout()
    }

    /// Our thread is busy for so long.
    fn keep_busy(&mut self, busy: Duration) {
        if !busy.is_zero() {
            let mut news = std::mem::take(&mut self.news);
            self.pass(busy, &mut news);
            self.news = news;
        }
    }

    fn open(&mut self, token: Token, to: SocketAddr, datagram: bool) {
        let slot = token.slot as usize;
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, Entry::vacant);
        }
        assert!(
            matches!(self.entries[slot].state, State::Vacant),
            "a token's slot is closed before it is used again"
        );
        let started = self.net.now();
        self.port_search = Duration::ZERO;
        let refusal = if self.tokens.len() == self.sockets_max {
            Some(NetError::Exhausted)
        } else if !datagram {
            let (found, search) = self.ports.take(to, started);
            self.port_search = search;
            self.keep_busy(search);
            (!found).then_some(NetError::NoPort)
        } else {
            None
        };
        let state = if let Some(error) = refusal {
            let at = started;
            self.news.push(Event::Failed { token, error, at });
            State::Failed
        } else {
            self.connections += 1;
            let id = ConnId(self.connections);
            self.tokens.insert(id, token);
            let path = self.world.distance(to, self.net.rng());
            self.net.open(id, to, path, datagram);
            let socket = Socket::new(id, to, started, datagram);
            if datagram {
                State::Open(socket)
            } else {
                State::Connecting(socket)
            }
        };
        self.entries[slot] = Entry {
            generation: token.generation,
            state,
        };
    }

    /// Lets one thing happen, on either side of the network.
    fn happen(&mut self, happening: Happening, events: &mut Vec<Event>) {
        match happening {
            Happening::Syn(id, to) => {
                let answer = self.world.connect(id, to, &mut self.net);
                self.net.answer(id, answer);
            }
            Happening::Told(id, bytes) => self.world.bytes(id, &bytes, &mut self.net),
            Happening::Datagram(id, to, bytes) => {
                self.world.datagram(id, to, &bytes, &mut self.net);
            }
            Happening::Closed(id, how) => {
                self.net.forget(id);
                self.world.closed(id, how, &mut self.net);
            }
            Happening::Alarm(what) => self.world.alarm(what, &mut self.net),
            Happening::Disk(job) => {
                let retry = self.disk.handle_job(job, self.net.now(), events);
                self.retry_disk(retry);
            }
            Happening::DiskRetry => {
                let retry = self.disk.handle_retry(self.net.now(), events);
                self.retry_disk(retry);
            }
            Happening::Established(id) => self.establish(id, events),
            Happening::Unanswered(id, error) => self.fail(id, error, events),
            Happening::Arrived(id, what) => self.arrive(id, what),
        }
    }

    fn retry_disk(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.net.schedule(at, Happening::DiskRetry);
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

    /// Lets so much time pass, and what happens in it happen.
    fn pass(&mut self, span: Duration, events: &mut Vec<Event>) {
        let until = self.net.now() + span;
        while self.net.next_at().is_some_and(|at| at <= until) {
            let happening = self.net.pop();
            self.happen(happening, events);
        }
        self.net.advance(until);
    }

    fn arrive(&mut self, id: ConnId, what: Arrival) {
        let Some(&token) = self.tokens.get(&id) else {
            return;
        };
        if let Some(socket) = self.entries[token.slot as usize].socket() {
            socket.inbox.push_back((self.net.now(), what));
            if socket.wants_turn() {
                self.line.push_back(token);
            }
        }
    }

    fn fail(&mut self, id: ConnId, error: NetError, events: &mut Vec<Event>) {
        if let Some(token) = self.tokens.remove(&id) {
            let at = self.net.now();
            let entry = &mut self.entries[token.slot as usize];
            if let Some(socket) = entry.socket().filter(|socket| !socket.datagram) {
                self.ports.give_back(socket.to, false, at);
            }
            entry.state = State::Failed;
            self.net.forget(id);
            events.push(Event::Failed { token, error, at });
        }
    }

    /// Reads from each socket in line once, as long as there are buffers.
    fn serve_line(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.line.len() {
            if !self.pool.has_free() {
                return;
            }
            if let Some(token) = self.line.pop_front() {
                self.read(token, events);
            }
        }
    }

    /// Reads from a socket until it is drained, its budget is spent or the pool is empty.
    fn read(&mut self, token: Token, events: &mut Vec<Event>) {
        let Some(socket) = current(&mut self.entries, token).and_then(Entry::socket) else {
            return;
        };
        socket.in_line = false;
        let id = socket.id;
        let mut budget = self.settings.read_budget;
        while socket.reading
            && let Some((at, arrival)) = socket.inbox.front_mut()
        {
            let at = *at;
            match arrival {
                Arrival::Bytes(bytes) => {
                    let buffer = if budget == 0 { None } else { self.pool.take() };
                    let Some(buffer) = buffer else {
                        socket.in_line = true;
                        self.line.push_back(token);
                        return;
                    };
                    let room = self.pool.get_mut(buffer);
                    let length = bytes.len().min(room.len());
                    room[..length].copy_from_slice(&bytes[..length]);
                    budget = budget.saturating_sub(length);
                    bytes.drain(..length);
                    if !socket.datagram {
                        self.net.read(id, length);
                    }
                    // The rest of a datagram that is too long is lost.
                    if bytes.is_empty() || socket.datagram {
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
}

impl Io for Sim {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn now(&self) -> Instant {
        self.net.now()
    }

    fn wall_at_start(&self) -> Wall {
        WALL_AT_START
    }

    fn capacity(&self) -> usize {
        self.settings.sockets_max
    }

    fn connect(&mut self, token: Token, to: SocketAddr) {
        self.open(token, to, false);
    }

    fn port_search(&self) -> Duration {
        self.port_search
    }

    fn local(&self, token: Token) -> Option<SocketAddr> {
        let entry = self.entries.get(token.slot as usize)?;
        match &entry.state {
            State::Open(socket) if entry.generation == token.generation => {
                Some(local_address(socket.id, socket.to))
            }
            _ => None,
        }
    }

    fn open_datagram(&mut self, token: Token, to: SocketAddr) {
        self.open(token, to, true);
    }

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        self.outbox.push(token, bytes, mark);
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        let Some(socket) = current(&mut self.entries, token).and_then(Entry::socket) else {
            return;
        };
        socket.reading = on;
        if socket.wants_turn() {
            self.line.push_back(token);
        }
    }

    fn close(&mut self, token: Token, how: Close) {
        let Some(entry) = current(&mut self.entries, token) else {
            return;
        };
        if let Some(socket) = entry.vacate() {
            if !socket.datagram {
                let rests = how == Close::Finish;
                self.ports.give_back(socket.to, rests, self.net.now());
            }
            self.tokens.remove(&socket.id);
            self.net.close(socket.id, how);
        }
    }

    fn disk(&mut self, job: DiskJob) {
        let at = self.disk.done_at(self.net.now());
        self.net.schedule(at, Happening::Disk(job));
    }

    fn memory(&self) -> Option<Memory> {
        let since_start = self.net.now().saturating_since(Instant::START);
        let known = self.memory.iter().rev();
        let mut known = known.skip_while(|(from, _)| *from > since_start);
        known.next().map(|(_, memory)| *memory)
    }

    fn give_up_waiting(&mut self) {
        self.disk.give_up();
    }

    fn submit(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut news = std::mem::take(&mut self.news);
        for (send, bytes) in outbox.sends() {
            let before = self.net.now();
            let took = self.net.send_takes();
            if !took.is_zero() {
                self.pass(took, &mut news);
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
            self.net.send(socket.id, bytes);
            let after = self.net.now();
            news.extend(send.mark.then_some(sent(send.token, before, after)));
        }
        outbox.clear();
        self.outbox = outbox;
        self.news = news;
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        let held = events.len();
        let entries = &mut self.entries;
        events.extend(self.news.drain(..).filter(|event| {
            event.token().is_none_or(|token| {
                current(entries, token).is_some_and(|entry| !matches!(entry.state, State::Vacant))
            })
        }));
        if self.woken.swap(false, Ordering::AcqRel) {
            events.push(Event::Woken);
        }
        self.serve_line(events);
        loop {
            let now = self.net.now();
            let due = self.net.next_at().map(|at| at.max(now));
            let sleepy = events.len() == held;
            match due {
                // What happens at the same moment is told together.
                Some(at) if at == now || (sleepy && until.is_none_or(|until| at <= until)) => {
                    let happening = self.net.pop();
                    self.happen(happening, events);
                    self.serve_line(events);
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

    fn untold(&self) -> &[Event] {
        &self.news
    }

    fn has_news(&self) -> bool {
        !self.news.is_empty() || (!self.line.is_empty() && self.pool.has_free())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self, _until: Option<Instant>) {}

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

/// The news of a marked send whose system call lay between the two. That it took long it is not told.
fn sent(token: Token, at: Instant, gone: Instant) -> Event {
    Event::Sent {
        token,
        at,
        slack: Duration::ZERO,
        gone,
    }
}

fn current(entries: &mut [Entry], token: Token) -> Option<&mut Entry> {
    entries
        .get_mut(token.slot as usize)
        .filter(|entry| entry.generation == token.generation)
}

/// An address of ours to reach `to` from.
fn local_address(id: ConnId, to: SocketAddr) -> SocketAddr {
    let port = 32_768 + (id.0 % 28_232) as u16;
    let ip = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    };
    SocketAddr::new(ip, port)
}

/// Every simulated crawl begins at the same moment: 2026-01-01T00:00:00Z.
const WALL_AT_START: Wall = Wall(1_767_225_600_000_000_000);
