//! The kernel through epoll.
//!
//! Each socket is registered once, edge-triggered, and never touched by `epoll_ctl` again: a
//! closed descriptor leaves by itself. An edge is remembered until the socket is drained, so
//! reading can pause (the caller asked, the pool is empty, others have their turn) and go on later
//! without the kernel's help. Sockets with something to read stand in one line and take turns.

mod connection;
mod edges;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token as Name, event};

use self::connection::{Connection, Entry, Kind, State, current};
use self::edges::Edge;
use super::allowance::Allowance;
use super::connects::Connects;
use super::delay::RunDelay;
use super::departures::{Departure, Departures};
use super::disk::Disk;
use super::driver::{Driver, Drives};
use super::due::Due;
use super::leisure::Leisure;
use super::limits::sockets_allowed;
use super::outbox::{Held, Outbox};
use super::socket::{Socket, keep_stamping, net_error};
use super::spin::Spin;
use super::stamps::{Stamps, departure_slack};
use super::timer::{Timer, set_timer_slack};
use super::{Chunk, Close, Event, Io, NetError, Settings, Token, Waker};
use crate::base::disk::DiskJob;
use crate::base::pool::Pool;
use crate::base::time::{Instant, Wall};

/// The back end that runs on any Linux.
#[derive(Debug)]
pub struct Epoll {
    settings: Settings,
    capacity: usize,
    poll: Poll,
    polled: Events,
    /// What `polled` said, copied out so that it can be worked through.
    edges: Vec<Edge>,
    timer: Timer,
    due: Due,
    stamps: Stamps,
    connects: Connects,
    departures: Departures,
    leisure: Leisure,
    driver: Driver,
    /// What our thread waits for a processor, looked up after each sleep.
    delay: RunDelay,
    bell: Arc<Bell>,
    /// Indexed by [`Token::slot`].
    entries: Vec<Entry>,
    /// Sockets in `entries` that hold a descriptor.
    open: usize,
    /// Open sockets with something to read, in the order of their turns. May name stale tokens.
    line: VecDeque<Token>,
    pool: Pool,
    outbox: Outbox,
    /// Events that no descriptor shows.
    news: Vec<Event>,
    /// The last look brought as much as one look may: there is more, perhaps.
    cut: bool,
    /// Turns for which it is still worth while to know how many segments a socket has had.
    watchful: u32,
    /// What that may cost.
    allowance: Allowance,
    disk: Option<Disk>,
    _stamping: OwnedFd,
}

impl Epoll {
    /// A back end for whichever thread waits on it.
    ///
    /// # Errors
    /// When the system gives no descriptors, or the open-file limit leaves none for sockets.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let capacity = sockets_allowed(settings.sockets_max)?;
        let poll = Poll::new()?;
        let (timer, due) = (Timer::new()?, Due::new()?);
        for (fd, name) in [(timer.as_fd(), TIMER), (due.as_fd(), DUE)] {
            let mut source = SourceFd(&fd.as_raw_fd());
            poll.registry()
                .register(&mut source, name, Interest::READABLE)?;
        }
        let bell = Arc::new(Bell {
            waker: mio::Waker::new(poll.registry(), BELL)?,
            rung: AtomicBool::new(false),
        });
        Ok(Epoll {
            capacity,
            poll,
            polled: Events::with_capacity(EDGES_MAX),
            edges: Vec::with_capacity(EDGES_MAX),
            timer,
            due,
            stamps: Stamps::start(),
            departures: Departures::start(),
            leisure: Leisure::start(),
            driver: Driver::default(),
            delay: RunDelay::none(),
            bell,
            entries: Vec::new(),
            open: 0,
            line: VecDeque::new(),
            pool: Pool::new(settings.buffer_bytes, settings.buffers_max),
            outbox: Outbox::default(),
            news: Vec::new(),
            cut: false,
            watchful: 0,
            connects: Connects::default(),
            allowance: Allowance::new(),
            disk: None,
            _stamping: keep_stamping()?,
            settings,
        })
    }

    /// Opens a socket for `token`; a failure is told by the next wait.
    fn open(&mut self, token: Token, kind: Kind, to: SocketAddr) {
        let slot = token.slot as usize;
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, Entry::vacant);
        }
        assert!(
            matches!(self.entries[slot].state, State::Vacant),
            "a token's slot is closed before it is used again"
        );
        let state = match self.try_open(token, kind, to) {
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
        self.entries[slot] = Entry {
            generation: token.generation,
            state,
        };
    }

    fn try_open(&mut self, token: Token, kind: Kind, to: SocketAddr) -> Result<State, NetError> {
        if self.open == self.capacity {
            return Err(NetError::Exhausted);
        }
        let mut opened = || -> io::Result<State> {
            let (socket, started, slack) = match kind {
                Kind::Stream => {
                    let socket = Socket::stream(to)?;
                    let around = self.connects.connect(&socket, to, &self.stamps)?;
                    let slack = departure_slack(around.before, around.after);
                    (socket, around.before, slack)
                }
                Kind::Datagram => (Socket::datagram(to)?, self.stamps.now(), Duration::ZERO),
            };
            // After the attempt: a socket that is not even connecting counts as hung up.
            self.poll.registry().register(
                &mut SourceFd(&socket.as_fd().as_raw_fd()),
                Name(token.slot as usize),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            let connection = Connection::new(socket, kind, started, slack);
            Ok(match kind {
                Kind::Stream => State::Connecting(connection),
                Kind::Datagram => State::Open(connection),
            })
        };
        opened().map_err(|error| net_error(&error))
    }

    /// Fetches the kernel's news; sleeps until there is some if `sleep`. Whether there was any.
    fn fetch(&mut self, sleep: bool) -> bool {
        let timeout = if sleep { None } else { Some(Duration::ZERO) };
        match self.poll.poll(&mut self.polled, timeout) {
            Ok(()) => !self.polled.is_empty(),
            Err(error) if error.kind() == ErrorKind::Interrupted => false,
            Err(error) => panic!("epoll_wait takes a descriptor of our own: {error}"),
        }
    }

    /// Sleeps until there is news or the tail before `until` begins, and looks through the tail.
    /// Whether there is news that was waited for.
    fn sleep(&mut self, until: Option<Instant>) -> bool {
        let tail = Spin(self.settings.spin).tail(until);
        if tail.is_none_or(|tail| tail > self.stamps.now()) {
            self.timer.arm(tail, &self.stamps);
            let found = self.fetch(true);
            if tail == until || !found || self.polled.iter().any(|event| event.token() != TIMER) {
                return found;
            }
            self.timer.told();
        }
        let Some(until) = until else {
            return false;
        };
        Spin::look_until(until, || {
            let looking = self.stamps.now();
            let found = self.fetch(false);
            if !found {
                self.stamps.saw_nothing(looking);
            }
            (found, looking)
        })
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
        if mark && self.watchful > 0 && self.allowance.spend() {
            connection.count_segments();
        }
        let stamped = stamped && connection.kind == Kind::Stream;
        let socket = &mut connection.socket;
        let sent = self
            .departures
            .send(socket, bytes, mark, stamped, &self.stamps)?;
        match (sent.taken, connection.kind) {
            (Some(taken), Kind::Stream) if taken < bytes.len() => {
                connection.hold_back(&bytes[taken..], Held::rest(mark));
            }
            (None, Kind::Stream) => {
                connection.hold_back(bytes, Held::whole(mark));
                return Ok(None);
            }
            // A datagram leaves whole or is lost, as datagrams may be.
            _ => {}
        }
        if mark {
            connection.asked = sent.before;
        }
        Ok(sent.departure)
    }

    fn fail(&mut self, token: Token, error: NetError, events: &mut Vec<Event>) {
        let at = self.stamps.now();
        self.entries[token.slot as usize].state = State::Failed;
        self.open -= 1;
        events.push(Event::Failed { token, error, at });
    }
}

impl Io for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
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
    }

    fn close(&mut self, token: Token, how: Close) {
        let Some(entry) = current(&mut self.entries, token) else {
            return;
        };
        if let Some(connection) = entry.vacate() {
            connection.socket.prepare_close(how);
            self.open -= 1;
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
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut news = std::mem::take(&mut self.news);
        let mut stamped = false;
        if !outbox.is_empty() {
            let now = self.stamps.now();
            self.departures.begin(now);
            stamped = self.leisure.is_there(now);
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
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        let stale = |event: &Event| {
            event.token().is_some_and(|token| {
                let entry = &self.entries[token.slot as usize];
                entry.generation != token.generation || matches!(entry.state, State::Vacant)
            })
        };
        if self.driver.turn() != Drives::Same {
            set_timer_slack(self.settings.timer_slack);
            self.delay = RunDelay::start();
        }
        let held = events.len();
        events.extend(self.news.drain(..).filter(|event| !stale(event)));
        self.watchful = self.watchful.saturating_sub(1);
        let looking = self.stamps.now();
        let may_sleep =
            events.len() == held && !self.has_news() && until.is_none_or(|until| until > looking);
        // A look first: a busy loop never pays for the timer.
        let mut slept = false;
        if !self.fetch(false) && may_sleep {
            self.stamps.saw_nothing(looking);
            slept = self.sleep(until);
        }
        let edges = self.polled.iter().count();
        self.cut = edges == EDGES_MAX;
        let (now, mut unseen) = self.stamps.begin_turn(slept, edges < EDGES_MAX, edges);
        // What is read in this turn may have come long before.
        let to_read = self.line.len().min(READS_MAX);
        self.leisure.begin_turn(now, edges.max(to_read));
        self.allowance.earn(now);
        if slept && let Some(kept) = self.delay.since_last() {
            unseen = unseen.kept(kept.min(now.saturating_since(looking)));
        }
        self.handle_edges(now, unseen, events);
        self.serve_line(events);
    }

    fn untold(&self) -> &[Event] {
        &self.news
    }

    fn has_news(&self) -> bool {
        !self.news.is_empty() || self.cut || (!self.line.is_empty() && self.pool.has_free())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.registry().as_fd())
    }

    fn arm(&mut self, until: Option<Instant>) {
        match until {
            Some(until) if until <= self.now() => self.due.ring(),
            _ => {
                self.due.take_back();
                self.timer.arm(until, &self.stamps);
            }
        }
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
        &self.pool.get(chunk.buffer)[..chunk.length as usize]
    }

    fn release(&mut self, chunk: Chunk) {
        self.pool.put_back(chunk.buffer);
    }
}

/// What other threads ring to end a wait: hosts through a [`Waker`], and the disk.
#[derive(Debug)]
struct Bell {
    waker: mio::Waker,
    /// A host rang, not only the disk.
    rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        if let Err(error) = self.waker.wake() {
            log::error!("the loop cannot be woken: {error}");
        }
    }
}

/// Descriptors that one look at the kernel's news may report. Noting them costs little, and a
/// connection that became ready should not wait behind those that have something to read.
const EDGES_MAX: usize = 1024;

/// Sockets read from in one turn. Each may bring a page, which takes up to a tenth of a
/// millisecond to work off, and what falls due meanwhile is late by that.
pub(super) const READS_MAX: usize = 16;

const TIMER: Name = Name(usize::MAX);
const DUE: Name = Name(usize::MAX - 2);
const BELL: Name = Name(usize::MAX - 1);
