//! The io floor: one completion-shaped interface to the kernel, and its back ends, one of them
//! simulated.
//!
//! Work is queued (`connect`, `send`, `close`, `disk`, `compute`), leaves with [`Io::submit`] and comes back as
//! [`Event`]s from [`Io::wait`]. There are no callbacks and no futures, so no user code runs in this
//! floor, and a completion ring needs no translation.

mod limits;
mod stamps;
mod waiting;
mod sockets;
mod epoll;
mod uring;
mod kernel;
mod platform;
mod disk;
mod workers;
mod results;
mod threads;
mod priority;
mod shared_memory;
pub mod sim;
#[cfg(test)]
mod conformance;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::base::derive::Derive;
use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::{Instant, Wall};

pub use self::epoll::Epoll;
pub use self::kernel::{BackEnd, Kernel};
pub use self::limits::{Memory, open_files, raise_open_files};
pub use self::platform::Platform;
pub use self::shared_memory::{SharedMemory, left_in_memory, remove_from_memory};
pub use self::sockets::accepted::Accepted;
pub use self::sockets::listening::{Credentials, Endpoint, Peer};
pub use self::uring::{Unavailable, Uring};
pub use crate::base::stamp::{Clock, Stamp};
pub use crate::base::worker::{Compute, WorkerDone, WorkerJob};

/// Makes a file from another on this thread, as [`DiskJob::Derive`] does beside a crawl.
pub fn derive(from: &Path, to: &Path, content: &mut dyn Derive) -> io::Result<()> {
    // The caller has asked for this one file: the reserve of free space is for crawls.
    let mut reserve = disk::Reserve::new(Some(0));
    let is_given_up = AtomicBool::new(false);
    disk::derive((from, to), content, &mut reserve, &is_given_up).map(drop)
}

/// Fills bytes from the file at a path, from an offset on.
pub type FileReader = Box<dyn Fn(&Path, u64, &mut [u8]) -> io::Result<()>>;

/// A back end: epoll, io_uring, or a simulation.
///
/// It is a static type parameter of the crawl, never `dyn`. Calls may come from one thread after
/// another, as the owner moves; settings per thread, such as [`IoSettings::timer_slack`], are applied by
/// the thread's first wait.
pub trait Io {
    /// Its kind.
    fn kind(&self) -> IoKind;

    /// The present moment. All code above takes time from here.
    fn now(&self) -> Instant;

    /// Wall time when the crawl began; see [`Wall::at`].
    fn wall_at_start(&self) -> Wall;

    /// How many sockets may be open at once; one more fails as [`NetError::Exhausted`]. Listeners and what
    /// they accepted are not among them.
    fn capacity(&self) -> usize;

    /// Opens a TCP connection under a token that the caller chooses; ends as `Connected` or `Failed`. What was
    /// to be sent before leaves first.
    ///
    /// The attempt starts now or at the next `submit`; `Connected` has the moment. Bytes sent earlier
    /// leave when the connection is established. The token is in use until `close`.
    fn connect(&mut self, token: Token, to: SocketAddr);

    /// CPU time of the last connect, if it was long and was measured: the kernel searched for a free
    /// local port. Zero otherwise.
    fn port_search(&self) -> Duration {
        Duration::ZERO
    }

    /// Our own address of an established TCP connection or of a TCP listener; `None` if it is closed or
    /// has failed. It is a system call, which not every connection needs.
    fn local(&self, token: Token) -> Option<SocketAddr>;

    /// Opens a UDP socket on an unpredictable port, connected to `to`.
    ///
    /// The kernel chooses the port at random from its ephemeral range. Each `send` is one datagram; each
    /// arriving datagram is one `Received`, truncated to a buffer's length. A port without a listener
    /// ends as `Failed` with `Refused`.
    fn open_datagram(&mut self, token: Token, to: SocketAddr);

    /// Listens for stream connections under a token that the caller chooses, until `close`. It listens
    /// when this returns; each connection is an `Accepted` event with this token.
    ///
    /// A turn accepts at most 8 connections per listener. While a listener has
    /// 16 of them open, adopted or not, further ones wait in the kernel, at most
    /// 64. When accepting fails for want of descriptors or memory, the listener pauses for 250 ms and
    /// tries again, until it succeeds; it is logged once.
    ///
    /// The file of a Unix socket has its mode before a peer can connect, and `close` removes it unless
    /// another file has taken its place. Dropping the back end closes its listeners.
    ///
    /// # Errors
    /// The system's, with the endpoint: among them an address in use, and a file that exists already,
    /// which the caller removes if it is stale. There are at most 4 listeners. After an error the token
    /// is free.
    fn listen(&mut self, token: Token, at: &Endpoint) -> io::Result<()>;

    /// Assigns a token to an accepted connection, from then on a socket like those of `connect`. Bytes
    /// that arrived before are received first. If this machine cannot serve it, it ends as `Failed`.
    ///
    /// The kernel does not stamp such a connection: the stamps of its events are bounds.
    fn accept(&mut self, token: Token, accepted: Accepted);

    /// Copies bytes to be sent. They leave at the next `submit` or just before the next `connect`.
    ///
    /// With `mark`, a `Sent` event has the moments just before and after the first of these bytes was
    /// passed to the kernel. What the socket does not take at once is sent as it drains, and a `Flushed`
    /// event reports its end (a datagram is lost instead). Sends to a failed or closed socket are
    /// dropped.
    fn send(&mut self, token: Token, bytes: &[u8], mark: bool);

    /// Bytes given to [`Io::send`] in earlier turns that a connection has not taken yet, because its peer reads
    /// slowly.
    fn unsent(&self, token: Token) -> usize;

    /// Stops or resumes reading from a connection, which slows its peer by flow control.
    ///
    /// The end of a connection that is not read is not noticed either.
    fn set_reading(&mut self, token: Token, on: bool);

    /// Whether input of a socket that is read may have come and was not reported yet: its silence may be ours,
    /// not its peer's.
    fn has_unread(&self, token: Token) -> bool;

    /// Closes a socket or listener and forgets the token: no event for it comes after this call.
    ///
    /// Bytes that have not left are dropped.
    fn close(&mut self, token: Token, how: Close);

    /// Queues a job for the disk until the next submit, which a read need not wait for; ends as `Event::Disk`.
    ///
    /// Queued jobs are held in memory without a bound here: the caller counts [`DiskJob::held`] against
    /// [`DiskDone::held`]. Dropping the back end waits for queued jobs, but not for free space.
    ///
    /// A job for which there is no space is retried every second, and those behind it wait: reported by
    /// `Event::DiskFull` and `Event::DiskRoom`.
    fn disk(&mut self, job: DiskJob);

    /// Queues a computation for a helper thread; ends as `Event::Computed`, in any order.
    ///
    /// Threads begin with it at the next `submit`. Queued computations are held in memory without a bound
    /// here. Dropping the back end waits for those under way and drops the others. With
    /// [`IoSettings::workers`] of 0 it is performed by the next `submit`.
    fn compute(&mut self, job: WorkerJob);

    /// A reader of files as they are once the jobs of the disk are done. It blocks: for the end of a crawl.
    fn file_reader(&self) -> FileReader {
        Box::new(|path, offset, bytes| disk::read(path, offset, bytes).map(drop))
    }

    /// Memory of so many words under a name, as an earlier process left it, or zeros: it outlives the process,
    /// and not the power of the machine. Blocks for less than a millisecond: for the beginning of a crawl.
    ///
    /// # Errors
    /// The system's: there is no such memory here, it is full, it belongs to another user, or another process
    /// uses this name.
    fn shared_memory(&mut self, name: &str, words: usize) -> io::Result<SharedMemory> {
        SharedMemory::open(name, words)
    }

    /// Breaks off what is made from other files ([`DiskJob::Derive`](crate::base::disk::DiskJob::Derive)), now and
    /// later.
    fn give_up_derivations(&mut self) {}

    /// Fails writes that wait for a reader of standard output or for free disk space, now and later;
    /// such waits have no timeout. Breaks off what is made from other files.
    fn fail_stalled_writes(&mut self) {}

    /// The memory limit nearest to being reached, and its use; `None` without a limit. Takes some system
    /// calls.
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// Processor time of the calling thread so far; `None` if the back end does not measure it. A system call.
    fn processor_time(&self) -> Option<Duration> {
        None
    }

    /// Sends what was queued, and gives jobs to the disk and the helper threads. Each send is stamped just
    /// before its own system call.
    fn submit(&mut self);

    /// Events of what was submitted, which the next wait returns first. Until then they are only
    /// appended to.
    fn queued_events(&self) -> &[Event];

    /// Waits for events until `until` (without end if `None`) and appends them to `events`.
    ///
    /// May return early without an event, and never late by choice. The number of events is bounded by
    /// the work submitted and by the buffers of the receive pool; those with bytes come last, and take
    /// about a millisecond to handle at most.
    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>);

    /// Whether there are events that no descriptor shows, or whose descriptor has been reported: a host
    /// that polls [`Io::as_fd`] must not sleep.
    fn has_pending(&self) -> bool;

    /// A descriptor that becomes readable when there is an event or when the armed deadline passes.
    ///
    /// `None` in the simulation.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Sets the deadline of [`Io::as_fd`], for a host that waits in its own loop. One that has passed
    /// makes it readable at once. To be called before each such wait.
    fn arm(&mut self, until: Option<Instant>);

    /// Nothing happens before something comes from outside of the crawl: waits for that, if this back end does not do so
    /// in [`Io::wait`], because its time is virtual.
    fn wait_outside(&self) {}

    /// Ends a wait from another thread, as `Event::Woken`.
    fn waker(&self) -> Waker;

    /// The bytes of a received chunk.
    fn bytes(&self, chunk: &Chunk) -> &[u8];

    /// Gives a chunk back; its memory belongs to the back end.
    fn release(&mut self, chunk: Chunk);
}

/// The back end that a crawl runs on: `io` of `stats.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoKind {
    /// epoll.
    #[default]
    Epoll,
    /// io_uring.
    Uring,
    /// The [simulated web](crate::sim), in virtual time.
    Simulated,
}

impl IoKind {
    /// The name in files: `epoll`, `uring` or `simulated`.
    pub const fn as_str(self) -> &'static str {
        match self {
            IoKind::Epoll => "epoll",
            IoKind::Uring => "uring",
            IoKind::Simulated => "simulated",
        }
    }
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Everything that can arrive from outside. Together with the crawl's timers it is all that wakes the
/// loop.
#[derive(Debug)]
pub enum Event {
    /// A connection is established.
    Connected {
        /// The connection's token.
        token: Token,
        /// When the attempt left.
        started: Instant,
        /// When it was established.
        stamp: Stamp,
    },
    /// A listener accepted a connection. [`Io::accept`] assigns a token to it; dropped, it is closed.
    Accepted {
        /// The listener's token.
        listener: Token,
        /// The connection.
        accepted: Accepted,
        /// Its other end.
        peer: Peer,
        /// When it was accepted.
        at: Instant,
    },
    /// A socket failed: while connecting, sending or receiving. No event for it follows.
    Failed {
        /// The socket's token.
        token: Token,
        /// Why.
        error: NetError,
        /// When.
        at: Instant,
    },
    /// A marked send left.
    Sent {
        /// The socket's token.
        token: Token,
        /// Just before the system call that sent its first byte.
        at: Instant,
        /// The byte may have left as much later, because other processes ran during the system call.
        /// Zero if it left at once.
        slack: Duration,
        /// The bytes sent by that system call had left by then.
        left_by: Instant,
    },
    /// The rest of a marked send left, which the socket had not taken at once.
    Flushed {
        /// The socket's token.
        token: Token,
        /// After the system call that sent its last byte.
        at: Instant,
    },
    /// Bytes or one datagram arrived. Return the chunk with [`Io::release`].
    Received {
        /// The socket's token.
        token: Token,
        /// Place of the bytes.
        chunk: Chunk,
        /// When the last of them arrived.
        stamp: Stamp,
    },
    /// The peer ended its side in order (FIN). No bytes follow.
    Ended {
        /// The connection's token.
        token: Token,
        /// When.
        stamp: Stamp,
    },
    /// A disk job is done or has failed.
    Disk(DiskDone),
    /// There is no space for a disk job; the system's error. It is retried until there is, and the jobs
    /// behind it wait.
    DiskFull(io::Error),
    /// There was space for that job.
    DiskRoom,
    /// A computation has ended.
    Computed(WorkerDone),
    /// Another thread called the [`Waker`].
    Woken,
}

impl Event {
    /// Length of the bytes that arrived with it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Event::Received { chunk, .. } => chunk.length as usize,
            _ => 0,
        }
    }

    /// The socket or listener that it concerns.
    pub fn token(&self) -> Option<Token> {
        match self {
            Event::Connected { token, .. }
            | Event::Failed { token, .. }
            | Event::Sent { token, .. }
            | Event::Flushed { token, .. }
            | Event::Received { token, .. }
            | Event::Ended { token, .. } => Some(*token),
            Event::Accepted { listener, .. } => Some(*listener),
            Event::Disk(_)
            | Event::DiskFull(_)
            | Event::DiskRoom
            | Event::Computed(_)
            | Event::Woken => None,
        }
    }
}

/// Identifies a socket or listener. The generation distinguishes a slot's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Index into the caller's table; small and dense.
    pub slot: u32,
    /// How many users the slot has had.
    pub generation: u32,
}

/// Mode of closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// With FIN.
    Finish,
    /// With RST: unsent bytes are dropped, and no state remains.
    Reset,
}

/// Why a socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetError {
    /// ECONNREFUSED.
    Refused,
    /// ECONNRESET or EPIPE.
    Reset,
    /// ETIMEDOUT: the kernel gave up.
    TimedOut,
    /// ENETUNREACH or ENETDOWN: this machine has no route or no source address.
    NoRoute,
    /// EHOSTUNREACH or EHOSTDOWN: a router or the link reports the host as unreachable.
    Unreachable,
    /// This machine has no socket or memory left, for any connection (EMFILE, ENFILE, ENOBUFS, ENOMEM).
    Exhausted,
    /// This machine has no local port left for this destination (EADDRNOTAVAIL, EADDRINUSE). For others
    /// it may have.
    NoPort,
    /// Any other errno.
    Other(i32),
}

/// Received bytes in the back end's pool. Must be released.
#[derive(Debug)]
#[must_use = "a chunk that is not released is missing from the pool"]
pub struct Chunk {
    /// Index of the buffer.
    pub buffer: u32,
    /// Length of the bytes in it.
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

/// Settings of a back end.
#[derive(Clone, Debug)]
pub struct IoSettings {
    /// Bound on open sockets; the open-file limit bounds them further.
    pub sockets_max: usize,
    /// Bytes read in one turn, from one socket or several; the last read may exceed it.
    pub read_budget: usize,
    /// Bytes per buffer of the receive pool: no chunk or datagram is longer.
    pub buffer_bytes: usize,
    /// Bound on the buffers. When all are in use, nothing is read until chunks are released.
    pub buffers_max: usize,
    /// Precision of the kernel's timing of our sleep: 1 ns asks for the best.
    ///
    /// It is set for the thread that waits, and stays with that thread.
    pub timer_slack: Duration,
    /// How long before a deadline a wait stops sleeping and polls instead.
    ///
    /// This avoids the delay of waking up, at the cost of a busy core: for benchmarks. It concerns
    /// [`Io::wait`], not hosts that wait for [`Io::as_fd`].
    pub spin: Duration,
    /// Bytes that remain free on each volume that files are written to; `None`: the lesser of 1 GiB and 2 %
    /// of the volume. A write that would leave less waits as on a full disk. They are written to once
    /// stalled writes are to fail ([`Io::fail_stalled_writes`]).
    pub disk_free_min: Option<u64>,
    /// Level at which gzip members are compressed: 0, which stores, to 12.
    pub gzip_level: u32,
    /// Helper threads for computations.
    pub workers: usize,
}

impl Default for IoSettings {
    fn default() -> Self {
        IoSettings {
            sockets_max: 16_384,
            // Half a millisecond's work, which what is due meanwhile waits for.
            read_budget: 128 * 1024,
            // A page's head and the start of its body in one read; 64 MiB in all.
            buffer_bytes: 16 * 1024,
            buffers_max: 4096,
            timer_slack: Duration::from_nanos(1),
            spin: Duration::ZERO,
            disk_free_min: None,
            // Half the time of the default of zlib, for about as many bytes: `cargo bench --bench pages`.
            gzip_level: 4,
            workers: 0,
        }
    }
}
