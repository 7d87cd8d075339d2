//! The kernel's back end on io_uring.
//!
//! One multishot receive per socket copies what arrives into provided buffers as it arrives. Each
//! segment therefore keeps its own stamp however long our thread is busy, whereas a reader under epoll
//! finds the last segment's stamp on all of them. The cost: the kernel interrupts our thread to do it.
//! Interrupted system calls restart, except those that never do (`epoll_wait` in a host's loop can end
//! with EINTR).
//!
//! Sends and connects are plain system calls, each send stamped just before its own: submitted together
//! they would share one moment and cost as much. The ring reports when an attempt was answered and when
//! a full socket is writable again.
//!
//! Received bytes that cannot be reported yet (the caller does not read, other sockets take their turns)
//! wait in their buffers. When they exceed one turn's share, the receive is cancelled, and TCP flow
//! control stops the peer.

mod pinned;
mod ring;
mod buffers;
mod receiving;
mod submissions;
mod completions;
mod stamping;
mod probe;
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

use self::buffers::Buffers;
use self::receiving::{Receive, Receiving};
pub use self::ring::Unavailable;
use self::ring::{Completion, OpId, OpKind, Ring, SLOT_MAX};
use self::stamping::Stamping;
use self::submissions::{Submission, TIMER, WAKE, listener_op};
use super::limits::{make_descriptors, sockets_allowed};
use super::sockets::connect_meter::ConnectMeter;
use super::sockets::outbox::{Held, Outbox};
use super::sockets::socket::{keep_stamping, net_error};
use super::sockets::{Connection, Delivery, Entry, Kind, Sockets, State};
use super::stamps::Stamps;
use super::stamps::departures::{Departure, Departures};
use super::threads::Threads;
use super::waiting::spin::Spin;
use super::waiting::timer::{Timer, set_timer_slack};
use super::waiting::{ThreadChange, TurnThread};
use super::{Accepted, Chunk, Close, Endpoint, Event, Io, IoSettings, NetError, Token, Waker};
use crate::base::disk::DiskJob;
use crate::base::time::{Instant, Wall};
use crate::base::worker::WorkerJob;
use crate::io::IoKind;

/// The back end whose stamps stay exact while our thread is busy. Requires Linux 6.0.
#[derive(Debug)]
pub struct Uring {
    settings: IoSettings,
    // Before the buffers: fields drop in this order.
    ring: Ring,
    buffers: Buffers,
    /// Operations to start or cancel at the next flush.
    submissions: Vec<Submission>,
    /// Receives started by the flush in progress.
    arming: Vec<OpId>,
    /// Receives in the kernel that have not completed for the last time.
    receiving: usize,
    /// Completions of the turn in progress.
    completions: Vec<Completion>,
    /// Readable at the deadline, for a host that waits in its own loop.
    timer: Timer,
    stamps: Stamps,
    connect_meter: ConnectMeter,
    departures: Departures,
    stamping: Stamping,
    turn_thread: TurnThread,
    signal: Arc<WakeSignal>,
    sockets: Sockets<Receiving>,
    /// Open sockets that wait for buffers to receive into. May contain stale tokens.
    starved: VecDeque<Token>,
    outbox: Outbox,
    /// Events that no descriptor shows.
    queued: Vec<Event>,
    /// Completions were left for the next turn.
    has_more: bool,
    threads: Threads,
    _stamping: OwnedFd,
}

impl Uring {
    /// A back end for the thread that waits on it. The kernel receives on behalf of the thread that
    /// submitted the operation, so when another thread waits, all operations are submitted again.
    ///
    /// # Errors
    /// When the kernel lacks io_uring or a feature of it, or forbids it to us; when the system has no
    /// descriptors or memory left, or the open-file limit leaves none for sockets.
    #[expect(
        unsafe_code,
        reason = "the addresses of the provided buffers are passed to the kernel"
    )]
    pub fn new(settings: IoSettings) -> Result<Self, Unavailable> {
        let capacity = sockets_allowed(settings.sockets_max)?;
        let buffers = Buffers::new(settings.buffer_bytes, settings.buffers_max);
        // One completion per buffer, and the last ones of two operations per socket.
        let ring = Ring::new((settings.buffers_max + 2 * capacity).clamp(1024, COMPLETIONS_MAX))?;
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let signal = Arc::new(WakeSignal {
            fd: signal.map_err(io::Error::from)?,
            requested: AtomicBool::new(false),
        });
        let wake = WakeSignal::waker(&signal);
        let timer = Timer::new()?;
        make_descriptors(capacity, timer.as_fd());
        let stamping = keep_stamping()?;
        // SAFETY: no receive begins before all is in `uring`, whose `drop` ends every receive or leaks
        // the buffers. Until then nothing can fail, and `ring`, declared later, is dropped first.
        unsafe { ring.register_buffers(buffers.provided_ring())? };
        let mut uring = Uring {
            ring,
            buffers,
            submissions: Vec::new(),
            arming: Vec::new(),
            receiving: 0,
            completions: Vec::with_capacity(COMPLETIONS_A_TURN),
            timer,
            stamps: Stamps::start(),
            connect_meter: ConnectMeter::default(),
            departures: Departures::start(),
            stamping: Stamping::start(),
            turn_thread: TurnThread::default(),
            signal,
            sockets: Sockets::new(capacity, wake.clone()),
            starved: VecDeque::new(),
            outbox: Outbox::default(),
            queued: Vec::new(),
            has_more: false,
            threads: Threads::new(&settings, wake),
            _stamping: stamping,
            settings,
        };
        uring.probe_multishot()?;
        Ok(uring)
    }

    /// Opens a socket for `token`; the next wait reports a failure.
    fn open(&mut self, token: Token, kind: Kind, to: SocketAddr) {
        self.reserve(token);
        let opened = self
            .sockets
            .open(kind, to, &mut self.connect_meter, &self.stamps);
        let state = opened.unwrap_or_else(|error| {
            let (error, at) = (net_error(&error), self.stamps.now());
            self.queued.push(Event::Failed { token, error, at });
            State::Failed
        });
        self.occupy(token, state);
    }

    fn reserve(&mut self, token: Token) {
        assert!(
            token.slot <= SLOT_MAX,
            "slots are dense, so none exceeds 2²⁹"
        );
        self.sockets.reserve(token);
    }

    /// Gives a reserved slot its socket and starts the operations that it needs.
    fn occupy(&mut self, token: Token, state: State<Receiving>) {
        self.sockets.occupy(token, state);
        if self.sockets.at(token.slot).is_connecting() {
            self.poll_writable(token.slot);
        }
        self.update_receive(token.slot);
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
        Ok(
            match connection.send(bytes, mark, stamped, &mut self.departures, &self.stamps)? {
                Delivery::Left(departure) => departure,
                Delivery::HeldBack(departure) => {
                    self.poll_writable(token.slot);
                    departure
                }
            },
        )
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
        let stamped = self.stamping.has_idle_time(now);
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
        if let Some(connection) = self.sockets.fail(token.slot) {
            self.release_connection(token.slot, connection);
        }
        events.push(Event::Failed { token, error, at });
    }

    /// Releases what a socket has not reported, and cancels its operations. The kernel keeps the socket
    /// open until they end. The descriptor is closed on drop.
    fn release_connection(&mut self, slot: u32, connection: Connection<Receiving>) {
        let Receiving {
            mut unreported,
            receive,
            polling_writable,
            ..
        } = connection.input;
        while let Some((id, ..)) = self.buffers.pop(&mut unreported) {
            self.buffers.put_back(id);
        }
        let serial = self.sockets.at(slot).serial();
        let name = |what| OpId { what, slot, serial };
        if receive == Receive::Armed {
            self.submissions
                .push(Submission::Cancel(name(OpKind::Receive)));
        }
        if polling_writable {
            self.submissions
                .push(Submission::Cancel(name(OpKind::Ready)));
        }
    }

    /// Notes which thread takes this turn.
    fn begin_thread_turn(&mut self) {
        match self.turn_thread.begin_turn() {
            ThreadChange::Same => {}
            change => self.adopt(change),
        }
    }

    /// Moves all operations to the calling thread. Those submitted by another thread, which may have
    /// ended or be busy, are cancelled; each one's last completion starts it again.
    fn adopt(&mut self, change: ThreadChange) {
        set_timer_slack(self.settings.timer_slack);
        self.stamping.adopt();
        if change == ThreadChange::First {
            self.submissions
                .extend([Submission::Start(WAKE), Submission::Start(TIMER)]);
        } else if let Err(error) = self.ring.cancel_all() {
            log::warn!("io_uring operations stay with the previous thread: {error}");
        }
    }

    /// Sleeps until there is a completion or the tail before the deadline begins, then polls through the
    /// tail.
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
            Spin::poll_until(until, || {
                let now = self.stamps.now();
                let found = self.ring.has_completions();
                if !found {
                    self.stamping.note_empty(now);
                }
                (found, now)
            });
        }
    }
}

impl Io for Uring {
    fn kind(&self) -> IoKind {
        IoKind::Uring
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
        if !self.outbox.is_empty() {
            self.provide();
            self.flush();
            self.send_queued();
        }
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
        self.reserve(token);
        let id = self.sockets.listeners.open(token, at)?;
        self.submissions.push(Submission::Start(listener_op(id)));
        Ok(())
    }

    fn accept(&mut self, token: Token, accepted: Accepted) {
        self.reserve(token);
        let socket = accepted.into_socket();
        let connection = Connection::new(socket, Kind::Stream, self.stamps.now());
        self.occupy(token, State::Open(connection));
    }

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        self.outbox.push(token, bytes, mark);
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        if let Some(connection) = self.sockets.get(token).and_then(Entry::connection) {
            connection.reading = on;
            self.sockets.enqueue_ready(token);
            self.update_receive(token.slot);
        }
    }

    fn close(&mut self, token: Token, how: Close) {
        if let Some(id) = self.sockets.listeners.close(token) {
            self.submissions.push(Submission::Cancel(listener_op(id)));
        }
        if let Some(connection) = self.sockets.close(token) {
            connection.socket.prepare_close(how);
            self.release_connection(token.slot, connection);
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
        // Receives are submitted first, so that they are active when the replies come.
        self.provide();
        self.flush();
        self.send_queued();
        self.flush();
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        self.begin_thread_turn();
        let held = events.len();
        events.extend(
            self.queued
                .drain(..)
                .filter(|event| !self.sockets.is_stale(event)),
        );
        self.provide();
        self.flush();
        let until = self.sockets.listeners.deadline(until);
        let now = self.stamps.now();
        let found = self.ring.has_completions();
        let slept = events.len() == held
            && self.sockets.ready_count() == 0
            && !self.sockets.listeners.has_pending(|| now)
            && !found
            && until.is_none_or(|until| until > now);
        if !found {
            self.stamping.note_empty(now);
        }
        if slept {
            self.sleep(until);
        }
        self.completions.clear();
        self.ring.take(COMPLETIONS_A_TURN, &mut self.completions);
        let complete = !self.ring.has_completions();
        self.has_more = !complete;
        let (now, window) = self
            .stamps
            .begin_turn(slept, complete, self.completions.len());
        self.stamping
            .begin_turn(now, window, complete, self.completions.len());
        self.handle_completions(now, events);
        self.sockets.listeners.accept(now, events);
        self.serve_ready(events);
        // The next arrivals find buffers, however long the turn takes.
        self.provide();
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
            || self.sockets.ready_count() > 0
            || self.sockets.listeners.has_pending(|| self.now())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn arm(&mut self, until: Option<Instant>) {
        if self.turn_thread.is_none() {
            // Nothing polls the timer yet.
            self.begin_thread_turn();
        }
        let until = self.sockets.listeners.deadline(until);
        match until {
            // A timer set to the past raises an interrupt, which is slow on a virtual machine.
            Some(until) if until <= self.now() => self.signal.send(),
            _ => self.timer.arm(until, &self.stamps),
        }
        // A host that sleeps in its own loop does not call us again before it sleeps.
        self.provide();
        self.flush();
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

/// Ends a wait from another thread: a host's, through a [`Waker`], or a helper thread's.
#[derive(Debug)]
struct WakeSignal {
    /// Never read: each write is an event of its own, and the counter holds 2⁶⁴ of them.
    fd: OwnedFd,
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
        if let Err(error) = rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
            log::error!("cannot wake the event loop: {error}");
        }
    }
}

/// Completions taken per turn.
const COMPLETIONS_A_TURN: usize = 256;

/// Completions that the ring holds. An overflow ends receives, which are then started again: rare enough
/// to save the locked memory that a larger ring takes.
const COMPLETIONS_MAX: usize = 1 << 14;
