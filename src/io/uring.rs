//! The kernel through io_uring.
//!
//! What arrives is received by the kernel, into buffers lent to it, the moment it comes: one
//! operation a socket does it for good. So each segment keeps its own stamp however long our
//! thread is busy, where epoll's reader finds the last one's stamp on all of them. The price: the
//! kernel interrupts our thread to do it. System calls that a signal would break off are resumed,
//! save those that never are (`epoll_wait` in a host's loop may end with EINTR).
//!
//! Sends are plain system calls, each stamped just before its own: handed over together they
//! would share one moment, and cost as much. So are connects. The ring tells when an attempt was
//! answered and when a full socket takes more.
//!
//! What was received and cannot be told yet (the caller does not read, others have their turn)
//! waits in its buffers. When that is more than a turn's share, the kernel stops receiving for
//! that socket, and its peer feels it.

#![expect(
    unsafe_code,
    reason = "the kernel reads and writes memory that is lent to it"
)]

mod pinned;
mod ring;
mod buffers;
mod connection;
mod asks;
mod answers;
mod watch;
mod trial;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use self::asks::{Ask, BELL, TIMER, name};
use self::buffers::Buffers;
use self::connection::{Connection, Entry, Kind, Receive, State, current};
pub use self::ring::Unavailable;
use self::ring::{Answer, Name, Ring, SLOT_MAX, What};
use self::watch::Watch;
use super::connects::Connects;
use super::departures::{Departure, Departures};
use super::disk::Disk;
use super::driver::{Driver, Drives};
use super::epoll::READS_MAX;
use super::limits::sockets_allowed;
use super::outbox::{Held, Outbox};
use super::socket::{Socket, keep_stamping, net_error};
use super::spin::Spin;
use super::stamps::{Stamps, departure_slack};
use super::timer::{Timer, set_timer_slack};
use super::{Chunk, Close, Event, Io, NetError, Settings, Token, Waker};
use crate::base::disk::DiskJob;
use crate::base::time::{Instant, Wall};

/// The back end whose stamps stay exact while our thread is busy. It needs Linux 6.0.
#[derive(Debug)]
pub struct Uring {
    settings: Settings,
    capacity: usize,
    // Before the buffers: it goes first.
    ring: Ring,
    buffers: Buffers,
    /// What the kernel is to be asked at the next opportunity.
    asks: Vec<Ask>,
    /// Receives of the flush that is under way.
    arming: Vec<Name>,
    /// Receives that the kernel has and that have not answered for the last time.
    receiving: usize,
    /// Answers that are being worked through.
    answers: Vec<Answer>,
    /// For a host that waits in a loop of its own.
    timer: Timer,
    stamps: Stamps,
    connects: Connects,
    departures: Departures,
    watch: Watch,
    driver: Driver,
    bell: Arc<Bell>,
    /// Indexed by [`Token::slot`].
    entries: Vec<Entry>,
    /// Sockets in `entries` that hold a descriptor.
    open: usize,
    /// Open sockets with something to tell, in the order of their turns. May name stale tokens.
    line: VecDeque<Token>,
    /// Open sockets that wait for buffers to receive into. May name stale tokens.
    starved: VecDeque<Token>,
    outbox: Outbox,
    /// Events that no descriptor shows.
    news: Vec<Event>,
    /// There are answers that one turn had no time for.
    cut: bool,
    disk: Option<Disk>,
    _stamping: OwnedFd,
}

impl Uring {
    /// A back end for whichever thread waits on it. The kernel receives in the name of the thread
    /// that asked for it, so when another one comes to wait all is asked for anew.
    ///
    /// # Errors
    /// When the kernel has no io_uring, not enough of it, or not for us; when the system gives no
    /// descriptors or no memory, or the open-file limit leaves none for sockets.
    pub fn new(settings: Settings) -> Result<Self, Unavailable> {
        let capacity = sockets_allowed(settings.sockets_max)?;
        let buffers = Buffers::new(settings.buffer_bytes, settings.buffers_max);
        // An answer a buffer, and for each socket the last ones of two operations.
        let ring = Ring::new((settings.buffers_max + 2 * capacity).clamp(1024, ANSWERS_MAX))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(Bell {
            fd: bell.map_err(io::Error::from)?,
            rung: AtomicBool::new(false),
        });
        let timer = Timer::new()?;
        let stamping = keep_stamping()?;
        // SAFETY: no receive begins before all is in `uring`, whose `drop` ends every receive or leaks
        // the buffers.
        unsafe { ring.borrow_from(buffers.lending())? };
        let mut uring = Uring {
            capacity,
            ring,
            buffers,
            asks: Vec::new(),
            arming: Vec::new(),
            receiving: 0,
            answers: Vec::with_capacity(ANSWERS_A_TURN),
            timer,
            stamps: Stamps::start(),
            connects: Connects::default(),
            departures: Departures::start(),
            watch: Watch::start(),
            driver: Driver::default(),
            bell,
            entries: Vec::new(),
            open: 0,
            line: VecDeque::new(),
            starved: VecDeque::new(),
            outbox: Outbox::default(),
            news: Vec::new(),
            cut: false,
            disk: None,
            _stamping: stamping,
            settings,
        };
        uring.try_out()?;
        Ok(uring)
    }

    /// Opens a socket for `token`; a failure is told by the next wait.
    fn open(&mut self, token: Token, kind: Kind, to: SocketAddr) {
        let slot = token.slot as usize;
        assert!(
            token.slot <= SLOT_MAX,
            "slots are dense, so there are not that many"
        );
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, Entry::vacant);
        }
        assert!(
            matches!(self.entries[slot].state, State::Vacant),
            "a token's slot is closed before it is used again"
        );
        let state = match self.try_open(kind, to) {
            Ok(state) => {
                self.open += 1;
                state
            }
            Err(error) => {
                let at = self.stamps.now();
                self.news.push(Event::Failed { token, error, at });
                State::Failed
            }
        };
        let entry = &mut self.entries[slot];
        entry.generation = token.generation;
        entry.serial = entry.serial.wrapping_add(1);
        entry.state = state;
        match entry.state {
            State::Connecting(_) => self.await_ready(token.slot),
            State::Open(_) => self.consider_receiving(token.slot),
            _ => {}
        }
    }

    fn try_open(&mut self, kind: Kind, to: SocketAddr) -> Result<State, NetError> {
        if self.open == self.capacity {
            return Err(NetError::Exhausted);
        }
        let mut opened = || -> io::Result<State> {
            Ok(match kind {
                Kind::Stream => {
                    let socket = Socket::stream(to)?;
                    let around = self.connects.connect(&socket, to, &self.stamps)?;
                    let mut connection = Connection::new(socket, kind, around.before);
                    connection.attempt_slack = departure_slack(around.before, around.after);
                    State::Connecting(connection)
                }
                Kind::Datagram => {
                    let socket = Socket::datagram(to)?;
                    State::Open(Connection::new(socket, kind, self.stamps.now()))
                }
            })
        };
        opened().map_err(|error| net_error(&error))
    }

    /// Sends bytes of this turn; when a marked send left, unless it must wait. The kernel is to
    /// stamp that if `stamped`.
    fn send_now(
        &mut self,
        token: Token,
        bytes: &[u8],
        mark: bool,
        stamped: bool,
    ) -> Result<Option<Departure>, NetError> {
        let Some(entry) = current(&mut self.entries, token) else {
            return Ok(None);
        };
        let connecting = matches!(entry.state, State::Connecting(_));
        let Some(connection) = entry.connection() else {
            return Ok(None);
        };
        if connecting || connection.has_backlog() {
            connection.hold_back(bytes, Held::whole(mark));
            return Ok(None);
        }
        let stamped = stamped && connection.kind == Kind::Stream;
        let socket = &mut connection.socket;
        let sent = self
            .departures
            .send(socket, bytes, mark, stamped, &self.stamps)?;
        if mark {
            connection.asked = sent.before;
        }
        match (sent.taken, connection.kind) {
            (Some(taken), Kind::Stream) if taken < bytes.len() => {
                connection.hold_back(&bytes[taken..], Held::rest(mark));
                self.await_ready(token.slot);
            }
            (None, Kind::Stream) => {
                connection.hold_back(bytes, Held::whole(mark));
                self.await_ready(token.slot);
                return Ok(None);
            }
            // A datagram leaves whole or is lost, as datagrams may be.
            _ => {}
        }
        Ok(sent.departure)
    }

    fn fail(&mut self, token: Token, error: NetError, events: &mut Vec<Event>) {
        let at = self.stamps.now();
        if let Some(connection) = self.entries[token.slot as usize].leave(State::Failed) {
            self.part(token.slot, connection);
        }
        events.push(Event::Failed { token, error, at });
    }

    /// Lets go of a socket: what it has not told, and what the kernel does for it. The kernel keeps
    /// the socket open until it has let go as well. Closes it like any other descriptor.
    fn part(&mut self, slot: u32, mut connection: Connection) {
        while let Some((id, ..)) = self.buffers.pop(&mut connection.untold) {
            self.buffers.put_back(id);
        }
        let entry = &self.entries[slot as usize];
        if connection.receive == Receive::Armed {
            self.asks
                .push(Ask::Cancel(name(What::Receive, slot, entry)));
        }
        if connection.awaiting {
            self.asks.push(Ask::Cancel(name(What::Ready, slot, entry)));
        }
        self.open -= 1;
    }

    /// The calling thread takes a turn.
    fn drive(&mut self) {
        match self.driver.turn() {
            Drives::Same => {}
            drives => self.adopt(drives),
        }
    }

    /// The calling thread takes the turns from now on. What was asked for in the name of another
    /// one, which may be gone or busy with something else, is asked for anew: each operation's end
    /// is answered, and begins it again.
    fn adopt(&mut self, drives: Drives) {
        set_timer_slack(self.settings.timer_slack);
        self.watch.adopt();
        if drives == Drives::First {
            self.asks.extend([Ask::Start(BELL), Ask::Start(TIMER)]);
        } else if let Err(error) = self.ring.cancel_all() {
            log::warn!("the ring serves the thread that drove it before: {error}");
        }
    }

    /// Sleeps until there is an answer or the tail before the deadline begins, and looks through
    /// the tail.
    fn sleep(&mut self, until: Option<Instant>) {
        let until = until.filter(|until| *until < Instant::FAR_FUTURE);
        let tail = Spin(self.settings.spin).tail(until);
        let now = self.stamps.now();
        if tail.is_none_or(|tail| tail > now) {
            let moment = |at| self.stamps.timer_time(at);
            self.ring.sleep(tail.map(moment), moment(now));
        }
        if let Some(until) = until
            && tail.is_some_and(|tail| tail < until && tail <= self.stamps.now())
        {
            Spin::look_until(until, || {
                let now = self.stamps.now();
                let found = self.ring.has_answers();
                if !found {
                    self.watch.saw_nothing(now);
                }
                (found, now)
            });
        }
    }
}

impl Io for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn now(&self) -> Instant {
        self.stamps.now()
    }

    fn wall_at_start(&self) -> Wall {
        self.stamps.wall_at_start()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn connect(&mut self, token: Token, to: SocketAddr) {
        self.open(token, Kind::Stream, to);
    }

    fn port_search(&self) -> Duration {
        self.connects.took()
    }

    fn local(&self, token: Token) -> Option<SocketAddr> {
        let entry = self.entries.get(token.slot as usize)?;
        Some(entry)
            .filter(|entry| entry.generation == token.generation)?
            .local()
    }

    fn open_datagram(&mut self, token: Token, to: SocketAddr) {
        self.open(token, Kind::Datagram, to);
    }

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        self.outbox.push(token, bytes, mark);
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        let Some(entry) = current(&mut self.entries, token) else {
            return;
        };
        let Some(connection) = entry.connection() else {
            return;
        };
        connection.reading = on;
        if connection.wants_turn() {
            self.line.push_back(token);
        }
        self.consider_receiving(token.slot);
    }

    fn close(&mut self, token: Token, how: Close) {
        let Some(entry) = current(&mut self.entries, token) else {
            return;
        };
        if let Some(connection) = entry.leave(State::Vacant) {
            connection.socket.prepare_close(how);
            self.part(token.slot, connection);
        }
    }

    fn disk(&mut self, job: DiskJob) {
        let bell = &self.bell;
        let disk = self.disk.get_or_insert_with(|| {
            let bell = Arc::clone(bell);
            Disk::start(move || bell.ring())
        });
        disk.push(job);
    }

    fn give_up_waiting(&mut self) {
        if let Some(disk) = &self.disk {
            disk.give_up_waiting();
        }
    }

    fn submit(&mut self) {
        // Receives are handed over first, so that they are there when the answers come.
        self.lend();
        self.flush();
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut news = std::mem::take(&mut self.news);
        let mut stamped = false;
        if !outbox.is_empty() {
            let now = self.stamps.now();
            self.departures.begin(now);
            stamped = self.watch.has_leisure(now);
        }
        for (send, bytes) in outbox.sends() {
            let token = send.token;
            match self.send_now(token, bytes, send.mark, stamped) {
                Ok(Some(departure)) => news.push(departure.of(token)),
                Ok(None) => {}
                Err(error) => self.fail(token, error, &mut news),
            }
        }
        outbox.clear();
        self.outbox = outbox;
        self.news = news;
        self.flush();
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        self.drive();
        let stale = |event: &Event| {
            event.token().is_some_and(|token| {
                let entry = &self.entries[token.slot as usize];
                entry.generation != token.generation || matches!(entry.state, State::Vacant)
            })
        };
        let held = events.len();
        events.extend(self.news.drain(..).filter(|event| !stale(event)));
        self.lend();
        self.flush();
        let now = self.stamps.now();
        let found = self.ring.has_answers();
        let slept = events.len() == held
            && self.line.is_empty()
            && !found
            && until.is_none_or(|until| until > now);
        if !found {
            self.watch.saw_nothing(now);
        }
        if slept {
            self.sleep(until);
        }
        self.answers.clear();
        self.ring.take(ANSWERS_A_TURN, &mut self.answers);
        let complete = !self.ring.has_answers();
        self.cut = !complete;
        let (now, unseen) = self.stamps.begin_turn(slept, complete, self.answers.len());
        self.watch
            .begin_turn(now, unseen, complete, self.answers.len());
        self.handle_answers(now, events);
        self.serve_line(events);
        // The next arrivals find room, however long the turn takes.
        self.lend();
    }

    fn untold(&self) -> &[Event] {
        &self.news
    }

    fn has_news(&self) -> bool {
        !self.news.is_empty() || self.cut || !self.line.is_empty()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn arm(&mut self, until: Option<Instant>) {
        if self.driver.is_nobody() {
            // Nobody watches the timer yet.
            self.drive();
        }
        match until {
            // A timer set to the past interrupts the processor: dear on a virtual machine.
            Some(until) if until <= self.now() => self.bell.ring(),
            _ => self.timer.arm(until, &self.stamps),
        }
        // Whoever sleeps in a loop of his own does not come by here again.
        self.lend();
        self.flush();
    }

    fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.bell);
        Waker::new(move || {
            // Whoever rang first and was not heard yet rings for all.
            if !bell.rung.swap(true, Ordering::AcqRel) {
                bell.ring();
            }
        })
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        self.buffers.get(chunk.buffer as u16, chunk.length as usize)
    }

    fn release(&mut self, chunk: Chunk) {
        self.buffers.put_back(chunk.buffer as u16);
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.quiesce() {
            self.ring.leak();
            self.buffers.leak();
        }
    }
}

/// What other threads ring to end a wait: hosts through a [`Waker`], and the disk.
#[derive(Debug)]
struct Bell {
    /// Never read: each ring is told by itself, and there is room for 2⁶⁴ of them.
    fd: OwnedFd,
    /// A host rang, not only the disk.
    rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        if let Err(error) = rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
            log::error!("the loop cannot be woken: {error}");
        }
    }
}

/// Answers that one turn takes. Of the sockets that have something to tell by then a few do.
const ANSWERS_A_TURN: usize = 256;

/// Answers that the ring holds. More of them end receives, which are begun anew: that is rare enough
/// to spare the locked memory that a ring counts as.
const ANSWERS_MAX: usize = 1 << 14;
