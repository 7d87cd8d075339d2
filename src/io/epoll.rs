//! The kernel's back end on epoll.
//!
//! Each socket is registered once, edge-triggered; closing its descriptor removes it. An edge is
//! remembered until the socket is drained, so reading can pause (the caller does not read, the pool is
//! empty, other sockets take their turns) and resume without the kernel's help. Sockets with something
//! to read take turns in one queue.

mod edges;
mod reading;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token as Name, event};

use self::edges::Edge;
use self::reading::Reading;
use super::limits::{make_descriptors, sockets_allowed};
use super::sockets::connect_meter::ConnectMeter;
use super::sockets::listening::LISTENERS_MAX;
use super::sockets::outbox::{Held, Outbox};
use super::sockets::ready::READS_MAX;
use super::sockets::socket::{Socket, keep_stamping, net_error};
use super::sockets::{Connection, Delivery, Entry, Kind, Sockets, State};
use super::stamps::Stamps;
use super::stamps::departures::{Departure, Departures};
use super::stamps::idle_time::IdleTime;
use super::stamps::query_budget::QueryBudget;
use super::stamps::run_delay::RunDelay;
use super::threads::Threads;
use super::waiting::due::DueSignal;
use super::waiting::spin::Spin;
use super::waiting::timer::{Timer, set_timer_slack};
use super::waiting::{ThreadChange, TurnThread};
use super::{Accepted, Chunk, Close, Endpoint, Event, Io, IoSettings, NetError, Token, Waker};
use crate::base::disk::DiskJob;
use crate::base::pool::Pool;
use crate::base::time::{Instant, Wall};
use crate::base::worker::WorkerJob;
use crate::io::IoKind;

/// The back end that runs on any Linux.
#[derive(Debug)]
pub struct Epoll {
    settings: IoSettings,
    poll: Poll,
    polled: Events,
    /// A copy of `polled`, so that it can be iterated while `self` changes.
    edges: Vec<Edge>,
    timer: Timer,
    due: DueSignal,
    stamps: Stamps,
    connect_meter: ConnectMeter,
    departures: Departures,
    idle_time: IdleTime,
    turn_thread: TurnThread,
    /// How long our thread waited for a processor, read after each sleep.
    delay: RunDelay,
    signal: Arc<WakeSignal>,
    sockets: Sockets<Reading>,
    pool: Pool,
    outbox: Outbox,
    /// Events that no descriptor shows.
    queued: Vec<Event>,
    /// The last poll was filled to its bound; there may be more events.
    has_more: bool,
    /// Turns for which segments are still counted before a request leaves.
    counting_turns: u32,
    /// Bounds the cost of that.
    query_budget: QueryBudget,
    threads: Threads,
    _stamping: OwnedFd,
}

impl Epoll {
    /// A back end for the thread that waits on it.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the open-file limit leaves none for sockets.
    pub fn new(settings: IoSettings) -> io::Result<Self> {
        let capacity = sockets_allowed(settings.sockets_max)?;
        let poll = Poll::new()?;
        let (timer, due) = (Timer::new()?, DueSignal::new()?);
        make_descriptors(capacity, timer.as_fd());
        for (fd, name) in [(timer.as_fd(), TIMER), (due.as_fd(), DUE)] {
            let mut source = SourceFd(&fd.as_raw_fd());
            poll.registry()
                .register(&mut source, name, Interest::READABLE)?;
        }
        let signal = Arc::new(WakeSignal {
            waker: mio::Waker::new(poll.registry(), WAKE)?,
            requested: AtomicBool::new(false),
        });
        let wake = WakeSignal::waker(&signal);
        Ok(Epoll {
            poll,
            polled: Events::with_capacity(EDGES_MAX),
            edges: Vec::with_capacity(EDGES_MAX),
            timer,
            due,
            stamps: Stamps::start(),
            departures: Departures::start(),
            idle_time: IdleTime::start(),
            turn_thread: TurnThread::default(),
            delay: RunDelay::none(),
            signal,
            sockets: Sockets::new(capacity, wake.clone()),
            pool: Pool::new(settings.buffer_bytes, settings.buffers_max),
            outbox: Outbox::default(),
            queued: Vec::new(),
            has_more: false,
            counting_turns: 0,
            connect_meter: ConnectMeter::default(),
            query_budget: QueryBudget::new(),
            threads: Threads::new(&settings, wake),
            _stamping: keep_stamping()?,
            settings,
        })
    }

    /// Opens a socket for `token`; the next wait reports a failure.
    fn open(&mut self, token: Token, kind: Kind, to: SocketAddr) {
        self.sockets.reserve(token);
        let opened = self
            .sockets
            .open(kind, to, &mut self.connect_meter, &self.stamps);
        self.occupy(token, opened);
    }

    /// Puts a socket, or the failure to open it, into its reserved slot.
    fn occupy(&mut self, token: Token, opened: io::Result<State<Reading>>) {
        // After the attempt began: epoll reports a hang-up on a socket that does not even connect.
        let registered = opened.and_then(|state| {
            if let State::Connecting(connection) | State::Open(connection) = &state {
                self.register(token, &connection.socket)?;
            }
            Ok(state)
        });
        let state = registered.unwrap_or_else(|error| {
            let (error, at) = (net_error(&error), self.stamps.now());
            self.queued.push(Event::Failed { token, error, at });
            State::Failed
        });
        self.sockets.occupy(token, state);
    }

    /// Registers a socket for edges of readability and writability.
    fn register(&self, token: Token, socket: &Socket) -> io::Result<()> {
        self.poll.registry().register(
            &mut SourceFd(&socket.as_fd().as_raw_fd()),
            Name(token.slot as usize),
            Interest::READABLE | Interest::WRITABLE,
        )
    }

    /// Polls; sleeps until there is an event if `sleep`. Returns whether there was one.
    fn fetch(&mut self, sleep: bool) -> bool {
        let timeout = if sleep { None } else { Some(Duration::ZERO) };
        match self.poll.poll(&mut self.polled, timeout) {
            Ok(()) => !self.polled.is_empty(),
            Err(error) if error.kind() == ErrorKind::Interrupted => false,
            Err(error) => panic!("epoll_wait failed on a valid descriptor: {error}"),
        }
    }

    /// Sleeps until there is an event or the tail before `until` begins, then polls through the tail.
    /// Returns whether there is an event besides the timer's.
    fn sleep(&mut self, until: Option<Instant>) -> bool {
        let tail = Spin(self.settings.spin).tail(until);
        if tail.is_none_or(|tail| tail > self.stamps.now()) {
            self.timer.arm(tail, &self.stamps);
            let found = self.fetch(true);
            if tail == until || !found || self.polled.iter().any(|event| event.token() != TIMER) {
                return found;
            }
            self.timer.note_fired();
        }
        let Some(until) = until else {
            return false;
        };
        Spin::poll_until(until, || {
            let looking = self.stamps.now();
            let found = self.fetch(false);
            if !found {
                self.stamps.note_empty(looking);
            }
            (found, looking)
        })
    }

    /// Sends bytes of this turn; returns when a marked send left, unless it is queued. The kernel stamps
    /// that if `stamped`.
    fn send_or_queue(
        &mut self,
        token: Token,
        bytes: &[u8],
        mark: bool,
        stamped: bool,
    ) -> Result<Option<Departure>, NetError> {
        let Some(entry) = self.sockets.get(token) else {
            return Ok(None);
        };
        let connecting = entry.is_connecting();
        let Some(connection) = entry.connection() else {
            return Ok(None);
        };
        if connecting || connection.has_backlog() {
            connection.hold_back(bytes, Held::whole(mark));
            return Ok(None);
        }
        if mark && self.counting_turns > 0 && self.query_budget.try_spend() {
            let Connection {
                input,
                socket,
                kind,
                ..
            } = connection;
            input.count_segments(socket, *kind);
        }
        let delivery = connection.send(bytes, mark, stamped, &mut self.departures, &self.stamps)?;
        let (Delivery::Left(departure) | Delivery::HeldBack(departure)) = delivery;
        Ok(departure)
    }

    /// Sends what was asked for in this turn.
    fn send_queued(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut queued = std::mem::take(&mut self.queued);
        let now = self.stamps.now();
        self.departures.begin(now);
        let stamped = self.idle_time.is_available(now);
        for (send, bytes) in outbox.sends() {
            let token = send.token;
            match self.send_or_queue(token, bytes, send.mark, stamped) {
                Ok(Some(departure)) => queued.push(departure.event(token)),
                Ok(None) => {}
                Err(error) => self.fail(token, error, &mut queued),
            }
        }
        outbox.clear();
        self.outbox = outbox;
        self.queued = queued;
    }

    fn fail(&mut self, token: Token, error: NetError, events: &mut Vec<Event>) {
        let at = self.stamps.now();
        self.sockets.fail(token.slot);
        events.push(Event::Failed { token, error, at });
    }
}

impl Io for Epoll {
    fn kind(&self) -> IoKind {
        IoKind::Epoll
    }

    fn now(&self) -> Instant {
        self.stamps.now()
    }

    fn wall_at_start(&self) -> Wall {
        self.stamps.wall_at_start()
    }

    fn capacity(&self) -> usize {
        self.sockets.capacity()
    }

    fn connect(&mut self, token: Token, to: SocketAddr) {
        // What is ready does not wait for that: it takes tens of microseconds.
        self.send_queued();
        self.open(token, Kind::Stream, to);
    }

    fn port_search(&self) -> Duration {
        self.connect_meter.took()
    }

    fn local(&self, token: Token) -> Option<SocketAddr> {
        self.sockets.local(token)
    }

    fn open_datagram(&mut self, token: Token, to: SocketAddr) {
        self.open(token, Kind::Datagram, to);
    }

    fn listen(&mut self, token: Token, at: &Endpoint) -> io::Result<()> {
        self.sockets.reserve(token);
        let listeners = &mut self.sockets.listeners;
        let id = listeners.open(token, at)?;
        let fd = listeners.fd(id).expect("it was just opened").as_raw_fd();
        let name = Name(LISTENERS.0 + id.index);
        let registry = self.poll.registry();
        let registered = registry.register(&mut SourceFd(&fd), name, Interest::READABLE);
        registered.map_err(|error| {
            listeners.close(token);
            io::Error::new(error.kind(), format!("cannot listen on {at}: {error}"))
        })
    }

    fn accept(&mut self, token: Token, accepted: Accepted) {
        self.sockets.reserve(token);
        let socket = accepted.into_socket();
        let connection = Connection::new(socket, Kind::Stream, self.stamps.now());
        self.occupy(token, Ok(State::Open(connection)));
    }

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        self.outbox.push(token, bytes, mark);
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        if let Some(connection) = self.sockets.get(token).and_then(Entry::connection) {
            connection.reading = on;
            self.sockets.enqueue_ready(token);
        }
    }

    fn close(&mut self, token: Token, how: Close) {
        self.sockets.listeners.close(token);
        if let Some(connection) = self.sockets.close(token) {
            connection.socket.prepare_close(how);
        }
    }

    fn disk(&mut self, job: DiskJob) {
        self.threads.disk(job);
    }

    fn compute(&mut self, job: WorkerJob) {
        self.threads.compute(job);
    }

    fn give_up_derivations(&mut self) {
        self.threads.give_up_derivations();
    }

    fn fail_stalled_writes(&mut self) {
        self.threads.fail_stalled_writes();
    }

    fn submit(&mut self) {
        self.threads.submit();
        self.send_queued();
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        if self.turn_thread.begin_turn() != ThreadChange::Same {
            set_timer_slack(self.settings.timer_slack);
            self.delay = RunDelay::start();
        }
        let held = events.len();
        events.extend(
            self.queued
                .drain(..)
                .filter(|event| !self.sockets.is_stale(event)),
        );
        self.counting_turns = self.counting_turns.saturating_sub(1);
        let until = self.sockets.listeners.deadline(until);
        let looking = self.stamps.now();
        let may_sleep = events.len() == held
            && !self.has_pending()
            && until.is_none_or(|until| until > looking);
        // Poll first: a busy loop never sets the timer.
        let mut slept = false;
        if !self.fetch(false) && may_sleep {
            self.stamps.note_empty(looking);
            slept = self.sleep(until);
        }
        let edges = self.polled.iter().count();
        self.has_more = edges == EDGES_MAX;
        let (now, mut window) = self.stamps.begin_turn(slept, edges < EDGES_MAX, edges);
        // What is read in this turn may have come long before.
        let to_read = self.sockets.ready_count().min(READS_MAX);
        self.idle_time.begin_turn(now, edges.max(to_read));
        self.query_budget.refill(now);
        if slept && let Some(kept) = self.delay.since_last() {
            window = window.run_delay(kept.min(now.saturating_since(looking)));
        }
        self.handle_edges(now, window, events);
        self.sockets.listeners.accept(now, events);
        self.serve_ready(events);
    }

    fn unsent(&self, token: Token) -> usize {
        self.sockets.unsent(token)
    }

    fn has_unread(&self, token: Token) -> bool {
        self.has_more || self.sockets.has_unread(token)
    }

    fn queued_events(&self) -> &[Event] {
        &self.queued
    }

    fn has_pending(&self) -> bool {
        !self.queued.is_empty()
            || self.has_more
            || (self.sockets.ready_count() > 0 && self.pool.has_free())
            || self.sockets.listeners.has_pending(|| self.now())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.registry().as_fd())
    }

    fn arm(&mut self, until: Option<Instant>) {
        let until = self.sockets.listeners.deadline(until);
        match until {
            Some(until) if until <= self.now() => self.due.signal(),
            _ => {
                self.due.clear();
                self.timer.arm(until, &self.stamps);
            }
        }
    }

    fn waker(&self) -> Waker {
        let signal = Arc::clone(&self.signal);
        Waker::new(move || {
            // One signal that was not handled yet is enough.
            if !signal.requested.swap(true, Ordering::AcqRel) {
                signal.send();
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

/// Ends a wait from another thread: a host's, through a [`Waker`], or a helper thread's.
#[derive(Debug)]
struct WakeSignal {
    waker: mio::Waker,
    /// A host sent it, not only a helper thread.
    requested: AtomicBool,
}

impl WakeSignal {
    /// Ends a wait without an event.
    fn waker(signal: &Arc<Self>) -> Waker {
        let signal = Arc::clone(signal);
        Waker::new(move || signal.send())
    }

    fn send(&self) {
        if let Err(error) = self.waker.wake() {
            log::error!("cannot wake the event loop: {error}");
        }
    }
}

/// Events per poll. Recording an edge is cheap, and a new connection should not wait behind sockets with
/// something to read.
const EDGES_MAX: usize = 1024;

const TIMER: Name = Name(usize::MAX);
const DUE: Name = Name(usize::MAX - 2);
const WAKE: Name = Name(usize::MAX - 1);
/// The first listener's name; the others follow.
const LISTENERS: Name = Name(usize::MAX - 2 - LISTENERS_MAX);
