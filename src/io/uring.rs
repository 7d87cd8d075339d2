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

mod ring;
mod buffers;
mod connection;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::Timespec;

use self::buffers::Buffers;
use self::connection::{Blind, Connection, Ending, Entry, Kind, Receive, State};
pub use self::ring::Unavailable;
use self::ring::{Answer, Name, OVERHEAD, Ring, SLOT_MAX, What};
use super::delay::RunDelay;
use super::departures::Departures;
use super::disk::Disk;
use super::limits::sockets_allowed;
use super::outbox::Outbox;
use super::socket::{Attempt, Socket, keep_stamping, net_error};
use super::spin::Spin;
use super::stamps::{EXACT, Stamps, Unseen, departure_slack, established};
use super::timer::{Timer, set_timer_slack};
use super::{Chunk, Clock, Close, Event, Io, NetError, Settings, Stamp, Token, Waker};
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
    departures: Departures,
    watch: Watch,
    bell: Arc<Bell>,
    /// Indexed by [`Token::slot`].
    entries: Vec<Entry>,
    /// Sockets in `entries` that hold a descriptor.
    open: usize,
    /// Open sockets with something to tell, in the order of their turns. May name stale tokens.
    line: VecDeque<Token>,
    /// Open sockets that wait for buffers to receive into. May name stale tokens.
    starved: VecDeque<Token>,
    turn: u64,
    outbox: Outbox,
    /// Events that no descriptor shows.
    news: Vec<Event>,
    disk: Option<Disk>,
    _stamping: OwnedFd,
}

/// What the kernel is to be asked.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// For the start of an operation.
    Start(Name),
    /// For the end of one.
    Cancel(Name),
}

/// How closely the sockets were watched up to this turn.
#[derive(Debug)]
struct Watch {
    delay: RunDelay,
    /// When there was no answer last.
    empty_at: Instant,
    /// Since when the answers of this turn may have been given.
    since: Instant,
    /// The same, as well as it is known without the scheduler's account.
    unseen: Unseen,
    /// How long our thread was kept from watching in that time; `None` where nobody knows.
    kept: Option<Duration>,
}

impl Uring {
    /// A back end for the calling thread, whose timer slack it sets (see [`Settings::timer_slack`]).
    /// It must stay with this thread: the kernel receives in its name.
    ///
    /// # Errors
    /// When the kernel has no io_uring, not enough of it, or not for us; when the system gives no
    /// descriptors or no memory, or the open-file limit leaves none for sockets.
    pub fn new(settings: Settings) -> Result<Self, Unavailable> {
        let capacity = sockets_allowed(settings.sockets_max)?;
        let buffers = Buffers::new(settings.buffer_bytes, settings.buffers_max);
        // An answer a buffer, and for each socket the last ones of two operations.
        let ring = Ring::new((settings.buffers_max + 2 * capacity).clamp(1024, ANSWERS_MAX))?;
        // SAFETY: the buffers are dropped after the ring, and only when no receive is under way.
        unsafe { ring.borrow_from(buffers.lending())? };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let mut uring = Uring {
            capacity,
            ring,
            buffers,
            asks: Vec::new(),
            arming: Vec::new(),
            receiving: 0,
            answers: Vec::with_capacity(ANSWERS_A_TURN),
            timer: Timer::new()?,
            stamps: Stamps::start(),
            departures: Departures::start(),
            watch: Watch::start(),
            bell: Arc::new(Bell {
                fd: bell.map_err(io::Error::from)?,
                rung: AtomicBool::new(false),
            }),
            entries: Vec::new(),
            open: 0,
            line: VecDeque::new(),
            starved: VecDeque::new(),
            turn: 0,
            outbox: Outbox::default(),
            news: Vec::new(),
            disk: None,
            _stamping: keep_stamping()?,
            settings,
        };
        uring.try_out()?;
        set_timer_slack(uring.settings.timer_slack);
        uring.asks.extend([Ask::Start(BELL), Ask::Start(TIMER)]);
        uring.flush();
        Ok(uring)
    }

    /// Receives twice with one operation, which no list of the kernel's features promises.
    fn try_out(&mut self) -> Result<(), Unavailable> {
        let lacking = || Unavailable::Lacks("receives that go on after the first");
        let (ours, theirs) = Socket::pair()?;
        self.buffers.lend();
        self.ring.ask_receive(TRIAL, ours.as_fd().as_raw_fd());
        self.ring.submit();
        self.receiving += 1;
        for _ in 0..2 {
            theirs
                .send(b"?")
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
            let answer = self.trial_answer().ok_or_else(lacking)?;
            let id = answer.buffer.ok_or_else(lacking)?;
            self.buffers.take_back(id);
            let length = self.ring.read(self.buffers.whole(id)).length;
            self.buffers.put_back(id);
            if length != 1 || !answer.more {
                return Err(lacking());
            }
        }
        self.ring.ask_cancel(TRIAL);
        self.ring.submit();
        match self.trial_answer() {
            Some(Answer { more: false, .. }) => Ok(()),
            _ => Err(Unavailable::Lacks("an end to what was begun")),
        }
    }

    fn trial_answer(&mut self) -> Option<Answer> {
        let patient_until = self.stamps.now() + TRIAL_PATIENCE;
        while !self.ring.has_answers() && self.stamps.now() < patient_until {
            self.sleep(Some(patient_until));
        }
        self.answers.clear();
        self.ring.take(1, &mut self.answers);
        let answer = self.answers.pop()?;
        self.receiving -= usize::from(!answer.more);
        Some(answer)
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

    fn try_open(&self, kind: Kind, to: SocketAddr) -> Result<State, NetError> {
        if self.open == self.capacity {
            return Err(NetError::Exhausted);
        }
        let opened = || -> io::Result<State> {
            Ok(match kind {
                Kind::Stream => {
                    let socket = Socket::stream(to)?;
                    let started = self.stamps.now();
                    socket.connect(to)?;
                    let mut connection = Connection::new(socket, kind, started);
                    connection.attempt_slack = departure_slack(started, self.stamps.now());
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

    /// Asks to be told when a socket can be written to, unless that is asked already.
    fn await_ready(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let name = name(What::Ready, slot, entry);
        if let Some(connection) = entry.connection()
            && !connection.awaiting
        {
            connection.awaiting = true;
            self.asks.push(Ask::Start(name));
        }
    }

    /// Starts or ends receiving, as the socket's state demands.
    fn consider_receiving(&mut self, slot: u32) {
        let untold_max = self.settings.read_budget;
        let entry = &mut self.entries[slot as usize];
        let name = name(What::Receive, slot, entry);
        let State::Open(connection) = &mut entry.state else {
            return;
        };
        match (connection.receive, connection.wants_receive(untold_max)) {
            (Receive::Off, true) => {
                connection.receive = Receive::Queued;
                self.asks.push(Ask::Start(name));
            }
            // The ask will find that it is no longer wanted.
            (Receive::Queued | Receive::Starved, false) => connection.receive = Receive::Off,
            (Receive::Armed, false) => {
                connection.receive = Receive::Stopping;
                self.asks.push(Ask::Cancel(name));
            }
            _ => {}
        }
    }

    /// Hands over what the kernel is to be asked. No send is among it.
    fn flush(&mut self) {
        if self.asks.is_empty() {
            return;
        }
        let mut asks = std::mem::take(&mut self.asks);
        let mut handed_over = 0;
        for ask in &asks {
            if !self.ring.has_room() {
                self.ring.submit();
                if !self.ring.has_room() {
                    break;
                }
            }
            match ask {
                Ask::Start(name) => self.start(*name),
                Ask::Cancel(name) => self.ring.ask_cancel(*name),
            }
            handed_over += 1;
        }
        // What the kernel did not take now it is asked for again.
        asks.drain(..handed_over);
        self.asks = asks;
        self.ring.submit();
        let now = self.stamps.now();
        for name in self.arming.drain(..) {
            if let State::Open(connection) = &mut self.entries[name.slot as usize].state {
                connection.blind.until = now;
            }
        }
    }

    fn start(&mut self, name: Name) {
        match name.what {
            What::Bell => self.ring.ask_watch(name, self.bell.fd.as_raw_fd()),
            What::Timer => self.ring.ask_watch(name, self.timer.as_fd().as_raw_fd()),
            What::Ready | What::Receive => {
                let entry = &mut self.entries[name.slot as usize];
                if entry.serial != name.serial {
                    return;
                }
                let Some(connection) = entry.connection() else {
                    return;
                };
                let fd = connection.socket.as_fd().as_raw_fd();
                if name.what == What::Ready {
                    return self.ring.ask_ready(name, fd);
                }
                if connection.receive == Receive::Queued {
                    connection.receive = Receive::Armed;
                    connection.receives(true);
                    self.ring.ask_receive(name, fd);
                    self.arming.push(name);
                    self.receiving += 1;
                }
            }
            What::Cancel => unreachable!("a cancel is no operation to be started"),
        }
    }

    /// Lends the kernel what buffers there are, and lets those receive again that had none.
    fn lend(&mut self) {
        self.buffers.lend();
        for _ in 0..self.starved.len().min(self.buffers.lent()) {
            let Some(token) = self.starved.pop_front() else {
                return;
            };
            if let Some(entry) = current(&mut self.entries, token)
                && let Some(connection) = entry.connection()
                && connection.receive == Receive::Starved
            {
                connection.receive = Receive::Off;
                self.consider_receiving(token.slot);
            }
        }
    }

    fn handle_answers(&mut self, now: Instant, events: &mut Vec<Event>) {
        // All arrivals are taken note of before the first of them is judged.
        for answer in &self.answers {
            if answer.name.what == What::Receive
                && let Some(entry) = named(&mut self.entries, answer.name)
                && let Some(connection) = entry.connection()
            {
                let length = answer.result.map_or(0, |whole| whole as usize);
                if length > OVERHEAD {
                    connection.arrived(length == OVERHEAD + self.settings.buffer_bytes);
                }
                if !answer.more {
                    connection.receives(false);
                }
            }
        }
        for index in 0..self.answers.len() {
            let answer = self.answers[index];
            match answer.name.what {
                What::Ready => self.handle_ready(answer, now, events),
                What::Receive => self.handle_received(answer, events),
                What::Timer => {
                    self.timer.told();
                    self.keep_watching(answer);
                }
                What::Bell => {
                    if self.bell.rung.swap(false, Ordering::AcqRel) {
                        events.push(Event::Woken);
                    }
                    if let Some(disk) = &mut self.disk {
                        disk.take_done(events);
                    }
                    self.keep_watching(answer);
                }
                // There was nothing to end any more.
                What::Cancel => {}
            }
        }
    }

    /// A watch goes on by itself, unless the kernel had no room for its answers.
    fn keep_watching(&mut self, answer: Answer) {
        if !answer.more {
            self.asks.push(Ask::Start(answer.name));
        }
    }

    /// A socket may have been connected, or takes more, or failed. One that is gone does nothing.
    fn handle_ready(&mut self, answer: Answer, now: Instant, events: &mut Vec<Event>) {
        let slot = answer.name.slot;
        let Some(entry) = named(&mut self.entries, answer.name) else {
            return;
        };
        let token = entry.token(slot as usize);
        let connecting = matches!(entry.state, State::Connecting(_));
        let Some(connection) = entry.connection() else {
            return;
        };
        connection.awaiting = false;
        if connecting {
            match connection.socket.attempt() {
                Attempt::Pending => return self.await_ready(slot),
                Attempt::Failed(error) => return self.fail(token, error, events),
                Attempt::Established(rtt) => match connection.socket.local() {
                    Ok(local) => {
                        let stamp =
                            established(connection.floor, connection.attempt_slack, rtt, now);
                        connection.blind.since = stamp.at;
                        events.push(Event::Connected {
                            token,
                            started: connection.floor,
                            stamp,
                            local,
                        });
                        entry.establish();
                    }
                    Err(error) => return self.fail(token, net_error(&error), events),
                },
            }
            self.consider_receiving(slot);
        }
        let Some(connection) = self.entries[slot as usize].connection() else {
            return;
        };
        if let Some(backlog) = &mut connection.backlog {
            let drained = backlog.drain(
                &connection.socket,
                || self.stamps.now(),
                |at, after| {
                    let slack = self.departures.slack(at, after);
                    events.push(Event::Sent { token, at, slack });
                },
            );
            if let Err(error) = drained {
                return self.fail(token, error, events);
            }
            if connection.has_backlog() {
                self.await_ready(slot);
            }
        }
    }

    /// Something arrived, or nothing will any more.
    fn handle_received(&mut self, answer: Answer, events: &mut Vec<Event>) {
        let slot = answer.name.slot;
        if let Some(id) = answer.buffer {
            self.buffers.take_back(id);
        }
        if !answer.more {
            self.receiving -= 1;
        }
        let open = named(&mut self.entries, answer.name)
            .is_some_and(|entry| matches!(entry.state, State::Open(_)));
        if !open {
            if let Some(id) = answer.buffer {
                self.buffers.put_back(id);
            }
            if answer.more {
                // A cancel that came at a bad moment; it would go on for good.
                self.asks.push(Ask::Cancel(answer.name));
            }
            return;
        }
        let mut starved = false;
        match (answer.result, answer.buffer) {
            (Ok(_), Some(id)) => self.take_bytes(slot, id),
            (Err(libc::ENOBUFS), _) => {
                self.buffers.want_more();
                starved = true;
            }
            (Ok(_) | Err(libc::ECANCELED | libc::EINTR | libc::EAGAIN), _) => {}
            (Err(errno), _) => {
                let error = net_error(&io::Error::from_raw_os_error(errno));
                self.end(slot, Ending::Failure(error));
            }
        }
        let entry = &mut self.entries[slot as usize];
        let token = entry.token(slot as usize);
        let State::Open(connection) = &mut entry.state else {
            return;
        };
        if !answer.more {
            // From here on nobody looks until it is armed again.
            connection.blind = Blind {
                since: connection.floor,
                until: Instant::FAR_FUTURE,
            };
            connection.receive = Receive::Off;
            if starved {
                connection.receive = Receive::Starved;
                self.starved.push_back(token);
            }
        }
        if !connection.in_line {
            self.tell(token, events);
        }
        self.consider_receiving(slot);
    }

    /// Takes what stands in a buffer that came back.
    fn take_bytes(&mut self, slot: u32, id: u16) {
        let State::Open(connection) = &mut self.entries[slot as usize].state else {
            unreachable!("the caller looked");
        };
        let message = self.ring.read(self.buffers.whole(id));
        if message.length == 0 {
            self.buffers.put_back(id);
            // An empty datagram says nothing.
            if connection.kind == Kind::Stream {
                self.end(slot, Ending::Fin(self.stamps.noticed()));
            }
            return;
        }
        let all_seen = || !self.ring.has_answers();
        let stamp = self
            .watch
            .judge(message.stamp, connection, &self.stamps, all_seen);
        if stamp.clock == Clock::Kernel {
            connection.floor = stamp.at;
        }
        let untold = &mut connection.untold;
        self.buffers.push(untold, id, message.length, stamp);
    }

    fn end(&mut self, slot: u32, ending: Ending) {
        if let State::Open(connection) = &mut self.entries[slot as usize].state {
            connection.ending = Some(ending);
        }
    }

    /// Lets each socket in line tell its share.
    fn serve_line(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.line.len() {
            let Some(token) = self.line.pop_front() else {
                return;
            };
            if let Some(entry) = current(&mut self.entries, token)
                && let Some(connection) = entry.connection()
            {
                connection.in_line = false;
                self.tell(token, events);
                self.consider_receiving(token.slot);
            }
        }
    }

    /// Tells what a socket has received, until its share of this turn is spent.
    fn tell(&mut self, token: Token, events: &mut Vec<Event>) {
        let entry = &mut self.entries[token.slot as usize];
        let State::Open(connection) = &mut entry.state else {
            return;
        };
        if connection.told.0 != self.turn {
            connection.told = (self.turn, 0);
        }
        while connection.reading && connection.told.1 < self.settings.read_budget {
            if let Some((id, length, stamp)) = self.buffers.pop(&mut connection.untold) {
                connection.told.1 += length;
                let chunk = Chunk {
                    buffer: u32::from(id),
                    length: length as u32,
                };
                events.push(Event::Received {
                    token,
                    chunk,
                    stamp,
                });
                continue;
            }
            match connection.ending.take() {
                None => return,
                Some(Ending::Failure(error)) => self.fail(token, error, events),
                Some(Ending::Fin(stamp)) => {
                    events.push(Event::Ended { token, stamp });
                    entry.end();
                }
            }
            return;
        }
        if connection.wants_turn() {
            self.line.push_back(token);
        }
    }

    /// Sends bytes of this turn; the moment they began to leave, unless they must wait.
    fn send_now(
        &mut self,
        token: Token,
        bytes: &[u8],
        mark: bool,
    ) -> Result<Option<Instant>, NetError> {
        let Some(entry) = current(&mut self.entries, token) else {
            return Ok(None);
        };
        let connecting = matches!(entry.state, State::Connecting(_));
        let Some(connection) = entry.connection() else {
            return Ok(None);
        };
        if connecting || connection.has_backlog() {
            connection.hold_back(bytes, mark);
            return Ok(None);
        }
        let at = self.stamps.now();
        if mark {
            connection.asked = at;
        }
        match (connection.socket.send(bytes)?, connection.kind) {
            (Some(taken), Kind::Stream) if taken < bytes.len() => {
                connection.hold_back(&bytes[taken..], false);
                self.await_ready(token.slot);
            }
            (None, Kind::Stream) => {
                connection.hold_back(bytes, mark);
                self.await_ready(token.slot);
                return Ok(None);
            }
            // A datagram leaves whole or is lost, as datagrams may be.
            _ => {}
        }
        Ok(Some(at))
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

    /// Ends all that is under way. Whether the kernel is done with our buffers.
    fn quiesce(&mut self) -> bool {
        if self.ring.cancel_all().is_err() {
            return false;
        }
        while self.receiving > 0 {
            self.answers.clear();
            self.ring.take(ANSWERS_A_TURN, &mut self.answers);
            // They were all given before the cancelling came back.
            if self.answers.is_empty() {
                return false;
            }
            let ended = |answer: &&Answer| answer.name.what == What::Receive && !answer.more;
            self.receiving -= self.answers.iter().filter(ended).count();
        }
        true
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

    fn submit(&mut self) {
        // Receives are handed over first, so that they are there when the answers come.
        self.lend();
        self.flush();
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut news = std::mem::take(&mut self.news);
        if !outbox.is_empty() {
            self.departures.begin(self.stamps.now());
        }
        for (send, bytes) in outbox.sends() {
            let token = send.token;
            match self.send_now(token, bytes, send.mark) {
                Ok(Some(at)) if send.mark => {
                    let slack = self.departures.slack(at, self.stamps.now());
                    news.push(Event::Sent { token, at, slack });
                }
                Ok(_) => {}
                Err(error) => self.fail(token, error, &mut news),
            }
        }
        outbox.clear();
        self.outbox = outbox;
        self.news = news;
        self.flush();
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
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
        self.turn += 1;
        self.serve_line(events);
        self.answers.clear();
        self.ring.take(ANSWERS_A_TURN, &mut self.answers);
        let complete = !self.ring.has_answers();
        let (now, unseen) = self.stamps.begin_turn(slept, complete, self.answers.len());
        self.watch.begin_turn(now, unseen, complete);
        self.handle_answers(now, events);
        // The next arrivals find room, however long the turn takes.
        self.lend();
    }

    fn has_news(&self) -> bool {
        !self.news.is_empty() || !self.line.is_empty()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn arm(&mut self, until: Option<Instant>) {
        self.timer.arm(until, &self.stamps);
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
            self.buffers.leak();
        }
    }
}

impl Watch {
    fn start() -> Self {
        Watch {
            delay: RunDelay::start(),
            empty_at: Instant::START,
            since: Instant::START,
            unseen: Unseen::since(Instant::START),
            kept: None,
        }
    }

    /// There was no answer at this moment.
    fn saw_nothing(&mut self, at: Instant) {
        self.empty_at = at;
    }

    /// Answers were taken, all or not all of them.
    fn begin_turn(&mut self, now: Instant, unseen: Unseen, complete: bool) {
        self.unseen = unseen;
        self.since = self.empty_at;
        // It cannot have been longer than there was time.
        let longest = now.saturating_since(self.since);
        self.kept = if longest > EXACT {
            self.delay.since_last().map(|delay| delay.min(longest))
        } else {
            Some(longest)
        };
        if complete {
            self.empty_at = now;
        }
    }

    /// When bytes arrived, and how far that may be off. Whatever kept us from looking: where they
    /// came in one segment, and no other one with them, the stamp is theirs.
    fn judge(
        &self,
        kernel: Option<Timespec>,
        connection: &mut Connection,
        stamps: &Stamps,
        all_seen: impl FnOnce() -> bool,
    ) -> Stamp {
        let (blind, floor) = (connection.blind, connection.floor);
        let asked = connection.asked;
        let unseen = match self.kept {
            Some(_) => Unseen::since(self.since),
            None => self.unseen,
        };
        let stamp = stamps.arrival(kernel, unseen.asked(asked), floor);
        if stamp.clock == Clock::User {
            return stamp;
        }
        let slack = if stamp.at < blind.until {
            let unseen = Unseen::since(blind.since.min(self.since));
            stamps.arrival(kernel, unseen.asked(asked), floor).slack
        } else {
            stamp.slack.min(self.kept.unwrap_or(Duration::MAX))
        };
        if self.unseen.is_stale(&stamp) && connection.is_out_of_order() {
            // Nobody stamped what was missing.
            return stamps.arrival(None, unseen.asked(asked), floor);
        }
        let exact = slack <= EXACT || connection.arrived_singly(all_seen);
        Stamp {
            slack: if exact { Duration::ZERO } else { slack },
            ..stamp
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

fn name(what: What, slot: u32, entry: &Entry) -> Name {
    Name {
        what,
        slot,
        serial: entry.serial,
    }
}

/// The entry that an operation was for, unless its slot has another user by now.
fn named(entries: &mut [Entry], name: Name) -> Option<&mut Entry> {
    entries
        .get_mut(name.slot as usize)
        .filter(|entry| entry.serial == name.serial)
}

/// The entry a token names, unless its slot has another user by now.
fn current(entries: &mut [Entry], token: Token) -> Option<&mut Entry> {
    entries
        .get_mut(token.slot as usize)
        .filter(|entry| entry.generation == token.generation)
}

const BELL: Name = Name {
    what: What::Bell,
    slot: 0,
    serial: 0,
};

const TIMER: Name = Name {
    what: What::Timer,
    slot: 0,
    serial: 0,
};

/// No socket's: serials begin with 1.
const TRIAL: Name = Name {
    what: What::Receive,
    slot: SLOT_MAX,
    serial: 0,
};

/// A datagram to ourselves arrives at once, whatever the machine is busy with.
const TRIAL_PATIENCE: Duration = Duration::from_secs(1);

/// Answers that one turn works through. What they lead to is done before anything is sent.
const ANSWERS_A_TURN: usize = 256;

/// Answers that the ring holds. More of them end receives, which are begun anew: that is rare enough
/// to spare the locked memory that a ring counts as.
const ANSWERS_MAX: usize = 1 << 14;
