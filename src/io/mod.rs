//! The kernel, or one that is not there: one interface, completion-shaped, and its back ends.
//!
//! Work is handed over (`connect`, `send`, `close`, `disk`), leaves with [`Io::submit`] and comes
//! back as [`Event`]s from [`Io::wait`]. There are no callbacks and no futures, so no user code
//! runs in here, and a back end that is a ring of completions needs no translation.

mod stamps;
mod allowance;
mod timer;
mod due;
mod spin;
mod socket;
mod limits;
mod memory;
mod delay;
mod leisure;
mod driver;
mod departures;
mod connects;
mod outbox;
mod epoll;
mod uring;
mod kernel;
mod disk;
pub mod sim;
#[cfg(test)]
mod conformance;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::{Instant, Wall};

#[cfg(test)]
pub(crate) use self::disk::gunzip;
pub use self::epoll::Epoll;
pub use self::kernel::{BackEnd, Kernel};
pub use self::limits::{open_files, raise_open_files};
pub use self::memory::Memory;
pub use self::uring::{Unavailable, Uring};

/// A back end: the kernel through epoll, through io_uring, or a simulated one.
///
/// It is a static type parameter of the crawl, never `dyn`. Calls may come from one thread after the
/// other, as its owner moves; what is the thread's (see [`Settings::timer_slack`]) is seen to by the
/// first wait on it.
pub trait Io {
    /// What it is called: `epoll`, `uring` or `simulated`.
    fn name(&self) -> &'static str;

    /// The present moment. The only clock in the house.
    fn now(&self) -> Instant;

    /// Wall time when the crawl began; see [`Wall::at`].
    fn wall_at_start(&self) -> Wall;

    /// How many sockets may be open at once; one more fails as [`NetError::Exhausted`].
    fn capacity(&self) -> usize;

    /// Opens a TCP connection under a token of the caller's; ends as `Connected` or `Failed`.
    ///
    /// The connection attempt starts now or at the next `submit`; `Connected` says when. What is
    /// sent before it is established leaves when it is. The token is taken until `close`.
    fn connect(&mut self, token: Token, to: SocketAddr);

    /// How long the processor was busy with the last connect, where that was long and could be measured:
    /// the kernel looked through local ports for a free one. Zero otherwise.
    fn port_search(&self) -> Duration {
        Duration::ZERO
    }

    /// Our own address of an established connection; `None` where it is closed or has failed. Under the
    /// kernel it is a system call, which not every connection needs.
    fn local(&self, token: Token) -> Option<SocketAddr>;

    /// Opens a UDP socket bound to an unpredictable port and connected to `to`.
    ///
    /// The port is the kernel's choice, at random from its ephemeral range. Ready for `send` at
    /// once, each a datagram of its own; datagrams arrive as `Received`, one event each, cut to a
    /// buffer's length. A port that nobody listens on is `Failed` with `Refused`, once that is known.
    fn open_datagram(&mut self, token: Token, to: SocketAddr);

    /// Copies bytes to be sent. They leave at the next `submit`, never before.
    ///
    /// With `mark`, a `Sent` event reports the moments just before and after the first of these bytes
    /// was handed to the kernel. What the socket does not take at once is sent as it drains, and a
    /// `Gone` event reports the end of that (a datagram is then lost). Sends to a socket that failed
    /// or was closed go nowhere.
    fn send(&mut self, token: Token, bytes: &[u8], mark: bool);

    /// Stops or resumes reading from a connection, so that a full house pushes back on its peers.
    ///
    /// A connection that is not read is not seen to end either.
    fn set_reading(&mut self, token: Token, on: bool);

    /// Ends a socket and forgets the token: no event for it comes after this call.
    ///
    /// Bytes that have not left yet never will.
    fn close(&mut self, token: Token, how: Close);

    /// Hands work to the disk; ends as `Event::Disk`.
    ///
    /// What the disk has not done yet is held in memory, without a bound here: the caller counts
    /// [`DiskJob::held`] against [`DiskDone::held`]. Dropping the back end waits for the disk, but not for
    /// room on it.
    ///
    /// While there is no room for a job it is tried again every second, and so are those behind it:
    /// `Event::DiskFull` and `Event::DiskRoom` say so.
    fn disk(&mut self, job: DiskJob);

    /// What waits for somebody to read our standard output, or for room on a disk, waits no longer: it
    /// fails, as does from now on all that would wait. Neither has an end of its own.
    fn give_up_waiting(&mut self) {}

    /// The limit of memory that is nearest, and how much is in use; `None` where there is none. Takes some
    /// system calls.
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// Sends what was queued. Each send is stamped just before its own system call.
    fn submit(&mut self);

    /// News of what was submitted that the next wait will tell first: what has left is known to have left
    /// before that. Until the next wait it only grows.
    fn untold(&self) -> &[Event];

    /// Waits for news until `until` (forever if `None`) and appends it to `events`.
    ///
    /// May come back early with nothing, never late by choice. The events it appends are bounded
    /// by what was asked for and by the buffers of the receive pool; those that bring bytes come
    /// last, and are few enough to be worked off within a millisecond or so.
    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>);

    /// Whether there is news that no descriptor shows, or has shown once only: a host that polls
    /// [`Io::as_fd`] must not sleep.
    fn has_news(&self) -> bool;

    /// A descriptor that becomes readable when there is news or when the armed deadline passes.
    ///
    /// `None` in the simulation, which has no descriptors.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Sets the deadline that [`Io::as_fd`] carries, for a host that waits in a loop of its own. One
    /// that has passed makes it readable at once.
    fn arm(&mut self, until: Option<Instant>);

    /// What another thread calls to end a wait; it arrives as `Event::Woken`.
    fn waker(&self) -> Waker;

    /// The bytes of a received chunk.
    fn bytes(&self, chunk: &Chunk) -> &[u8];

    /// Gives a chunk back; its memory belongs to the back end.
    fn release(&mut self, chunk: Chunk);
}

/// Everything that can arrive from outside. With the crawl's timers it is all that can wake us.
#[derive(Debug)]
pub enum Event {
    /// A connection is established.
    Connected {
        /// Whose.
        token: Token,
        /// When the attempt left.
        started: Instant,
        /// When it was established, by the best clock there is.
        stamp: Stamp,
    },
    /// A socket failed: while connecting, sending or receiving. No event for it follows.
    Failed {
        /// Whose.
        token: Token,
        /// How.
        error: NetError,
        /// When.
        at: Instant,
    },
    /// A marked send left.
    Sent {
        /// Whose.
        token: Token,
        /// Just before the system call that sent its first byte.
        at: Instant,
        /// It may have left as much later: the system call took that long, others were run in
        /// between. Zero where it left at once.
        slack: Duration,
        /// After that system call: what it sent was gone by then.
        gone: Instant,
    },
    /// The rest of a marked send left, which the socket did not take at once.
    Gone {
        /// Whose.
        token: Token,
        /// After the system call that sent its last byte.
        at: Instant,
    },
    /// Bytes (or one datagram) arrived. Give the chunk back with [`Io::release`].
    Received {
        /// Whose.
        token: Token,
        /// Where the bytes are.
        chunk: Chunk,
        /// When the last of them arrived.
        stamp: Stamp,
    },
    /// The peer ended its side in good order (FIN). No bytes follow.
    Ended {
        /// Whose.
        token: Token,
        /// When.
        stamp: Stamp,
    },
    /// The disk has done, or could not do, a job.
    Disk(DiskDone),
    /// There is no room for a job, as the machine says it. It is tried again until there is, and no job
    /// behind it is done before.
    DiskFull(io::Error),
    /// There was room for that job.
    DiskRoom,
    /// Another thread called the [`Waker`].
    Woken,
}

impl Event {
    /// Bytes that arrived with it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Event::Received { chunk, .. } => chunk.length as usize,
            _ => 0,
        }
    }

    /// The socket it is about, if it is about one.
    pub fn token(&self) -> Option<Token> {
        match self {
            Event::Connected { token, .. }
            | Event::Failed { token, .. }
            | Event::Sent { token, .. }
            | Event::Gone { token, .. }
            | Event::Received { token, .. }
            | Event::Ended { token, .. } => Some(*token),
            Event::Disk(_) | Event::DiskFull(_) | Event::DiskRoom | Event::Woken => None,
        }
    }
}

/// Names a socket. The generation tells a slot's present user from its earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Index into the caller's table; small and dense.
    pub slot: u32,
    /// How many users the slot has had.
    pub generation: u32,
}

/// When something arrived, and how far that can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The moment.
    pub at: Instant,
    /// Who stamped it.
    pub clock: Clock,
    /// It may have happened as much earlier. Zero where the stamp is exact.
    pub slack: Duration,
}

impl Stamp {
    /// Stamped by the kernel, and nothing else can have been stamped in its place.
    pub fn exact(at: Instant) -> Self {
        Stamp {
            at,
            clock: Clock::Kernel,
            slack: Duration::ZERO,
        }
    }

    /// It happened at this moment or before: an upper bound. All that we stamp ourselves is one.
    pub fn is_bound(&self) -> bool {
        self.clock == Clock::User || !self.slack.is_zero()
    }
}

/// Who stamped an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The kernel, as the bytes came in (`SO_TIMESTAMPING`).
    Kernel,
    /// We did, when we got round to it.
    User,
}

/// How to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// With FIN, as good manners have it.
    Finish,
    /// With RST: nothing is waited for, and nothing lingers.
    Reset,
}

/// Why a socket failed, in the kernel's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetError {
    /// ECONNREFUSED.
    Refused,
    /// ECONNRESET or EPIPE.
    Reset,
    /// ETIMEDOUT: the kernel gave up.
    TimedOut,
    /// ENETUNREACH or ENETDOWN: our machine knows no route there, or has no source address for one.
    NoRoute,
    /// EHOSTUNREACH or EHOSTDOWN: somebody on the way, or the link, says that the host cannot be reached.
    Unreachable,
    /// Our machine has no socket or memory to give, for whatever connection (EMFILE, ENFILE,
    /// ENOBUFS, ENOMEM).
    Exhausted,
    /// Our machine has no local port left for one more connection to this place (EADDRNOTAVAIL,
    /// EADDRINUSE). To other places it may well have.
    NoPort,
    /// Anything else, by its errno.
    Other(i32),
}

/// Received bytes that wait in the back end's pool. It must be given back.
#[derive(Debug)]
#[must_use = "a chunk that is not released is lost to the pool"]
pub struct Chunk {
    /// The pool's buffer.
    pub buffer: u32,
    /// How much of it is filled.
    pub length: u32,
}

/// Ends a wait from another thread.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Waker(Arc::new(wake))
    }

    /// Ends the present wait, or the next one.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// What a back end is told before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Open sockets that there may be at once; the open-file limit bounds it further.
    pub sockets_max: usize,
    /// Bytes read from one socket before the others have their turn; the last read may exceed it.
    pub read_budget: usize,
    /// Bytes one buffer of the receive pool holds: no chunk, and no datagram, is longer.
    pub buffer_bytes: usize,
    /// Buffers there may be. When all are out, nothing is read until chunks come back.
    pub buffers_max: usize,
    /// How fine the kernel may time our sleep: 1 ns asks for the best it has.
    ///
    /// It is set for the thread that makes the back end, and stays with that thread.
    pub timer_slack: Duration,
    /// How long before a deadline a wait stops sleeping and looks for news until it comes.
    ///
    /// What a sleep is late by is saved, and a core is kept busy: for those who benchmark. A host
    /// that waits for [`Io::as_fd`] sleeps as it likes; this is about [`Io::wait`].
    pub spin: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sockets_max: 16_384,
            read_budget: 256 * 1024,
            // A page's head and the start of its body in one read; 64 MiB in all.
            buffer_bytes: 16 * 1024,
            buffers_max: 4096,
            timer_slack: Duration::from_nanos(1),
            spin: Duration::ZERO,
        }
    }
}
