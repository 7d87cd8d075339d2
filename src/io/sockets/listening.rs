//! Endpoints of listeners, the peers that connect to them, and the bound on accepted connections.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::io::Waker;

/// Where a listener is bound. Its display form is the address or the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// TCP; with port 0 the kernel chooses one, which [`Io::local`](crate::io::Io::local) returns.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix {
        /// Its file, which must not exist yet. Linux allows 107 bytes.
        path: PathBuf,
        /// Permission bits of the file, such as `0o600`. The process's umask can clear more of them.
        mode: u32,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(f),
            Endpoint::Unix { path, .. } => path.display().fmt(f),
        }
    }
}

/// The other end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A TCP connection from this address.
    Tcp(SocketAddr),
    /// A connection to a Unix socket, by a process that had these credentials when it connected.
    Unix(Credentials),
}

/// A process's identity as the kernel reports it (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id; `None` for a process of another pid namespace.
    pub pid: Option<u32>,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// The accepted connections of one listener, adopted or not, and their bound.
#[derive(Clone, Debug)]
pub(in crate::io) struct Places(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    count: AtomicUsize,
    /// Ends the wait of the back end: an accepted connection may be dropped by another thread.
    wake: Option<Waker>,
}

impl Places {
    /// All places are free. `wake` is called when one becomes free while all are taken.
    pub(in crate::io) fn new(wake: Option<Waker>) -> Self {
        Places(Arc::new(Taken {
            count: AtomicUsize::new(0),
            wake,
        }))
    }

    pub(in crate::io) fn is_free(&self) -> bool {
        self.0.count.load(Ordering::Acquire) < ACCEPTED_MAX
    }

    /// Takes a place; `None` if all are taken. Only the listener's own thread calls this.
    pub(in crate::io) fn take(&self) -> Option<Place> {
        if !self.is_free() {
            return None;
        }
        self.0.count.fetch_add(1, Ordering::AcqRel);
        Some(Place(Arc::clone(&self.0)))
    }
}

/// An accepted connection's place, free again when dropped.
#[derive(Debug)]
pub(in crate::io) struct Place(Arc<Taken>);

impl Drop for Place {
    fn drop(&mut self) {
        let before = self.0.count.fetch_sub(1, Ordering::AcqRel);
        if before == ACCEPTED_MAX
            && let Some(wake) = &self.0.wake
        {
            wake.wake();
        }
    }
}

/// Connections that one turn accepts from one listener.
pub(in crate::io) const ACCEPTS_A_TURN: usize = 8;

/// Open connections that one listener accepted. A browser opens six, a metrics scraper one or two.
pub(in crate::io) const ACCEPTED_MAX: usize = 16;

/// Connections that wait to be accepted; the kernel refuses or drops further ones.
pub(in crate::io) const BACKLOG: usize = 64;

/// Listeners that one back end has at most.
pub(in crate::io) const LISTENERS_MAX: usize = 4;
