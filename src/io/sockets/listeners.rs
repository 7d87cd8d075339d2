//! Listening sockets of the kernel's back ends.
//!
//! The kernel reports a listener once when connections begin to wait; that is remembered until none is
//! left. A failure of our own machine (no descriptor, no memory) pauses the listener for
//! [`ACCEPT_PAUSE`], so that connections which cannot be accepted do not make the loop spin.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use rustix::fs::Mode;
use socket2::{Domain, Protocol, SockAddr, Socket as Raw, Type};

use crate::base::time::Instant;
use crate::io::sockets::accepted::{Accepted, Handle};
use crate::io::sockets::listening::{
    ACCEPTS_A_TURN, BACKLOG, Credentials, Endpoint, LISTENERS_MAX, Peer, Places,
};
use crate::io::sockets::socket::{Socket, peer_credentials};
use crate::io::{Event, Token, Waker};

/// All listeners of a back end, identified by index.
#[derive(Debug, Default)]
pub(in crate::io) struct Listeners {
    slots: Vec<Option<Listener>>,
    /// How many listeners there have been.
    serial: u32,
    /// Ends the wait of the back end.
    wake: Option<Waker>,
}

/// Identifies a listener in the kernel's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) struct ListenerId {
    pub(in crate::io) index: usize,
    /// Distinguishes it from earlier ones at the same index.
    pub(in crate::io) serial: u32,
}

impl Listeners {
    /// None. `wake` ends the wait of the back end, without an event.
    pub(in crate::io) fn new(wake: Waker) -> Self {
        Listeners {
            wake: Some(wake),
            ..Listeners::default()
        }
    }

    /// Binds a listener and starts to listen.
    ///
    /// # Errors
    /// The system's, with the endpoint; also for more than [`LISTENERS_MAX`] listeners.
    pub(in crate::io) fn open(&mut self, token: Token, at: &Endpoint) -> io::Result<ListenerId> {
        let vacant = self.slots.iter().position(Option::is_none);
        let index = vacant.unwrap_or(self.slots.len());
        if index == LISTENERS_MAX {
            return Err(io::Error::other(format!(
                "cannot listen on {at}: there are {LISTENERS_MAX} listeners already, close one first"
            )));
        }
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let places = Places::new(self.wake.clone());
        let listener = Listener::open(token, serial, at, places).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {at}: {error}"))
        })?;
        if vacant.is_none() {
            self.slots.push(None);
        }
        self.slots[index] = Some(listener);
        Ok(ListenerId { index, serial })
    }

    /// Closes the listener with this token, if there is one, and removes its file.
    pub(in crate::io) fn close(&mut self, token: Token) -> Option<ListenerId> {
        let index = self.position(token)?;
        let listener = self.slots[index].take()?;
        let serial = listener.serial;
        Some(ListenerId { index, serial })
    }

    /// Whether a listener has a token with this slot.
    pub(in crate::io) fn has_slot(&self, slot: u32) -> bool {
        self.all().any(|listener| listener.token.slot == slot)
    }

    /// The address of a TCP listener.
    pub(in crate::io) fn local(&self, token: Token) -> Option<SocketAddr> {
        self.slots[self.position(token)?].as_ref()?.local
    }

    /// The descriptor of a listener; `None` if it was closed.
    pub(in crate::io) fn fd(&self, id: ListenerId) -> Option<BorrowedFd<'_>> {
        let listener = self.slots.get(id.index)?.as_ref();
        Some(
            listener
                .filter(|listener| listener.serial == id.serial)?
                .raw
                .as_fd(),
        )
    }

    /// The kernel reports that connections wait at this index.
    pub(in crate::io) fn mark_ready(&mut self, index: usize) {
        if let Some(Some(listener)) = self.slots.get_mut(index) {
            listener.is_ready = true;
        }
    }

    /// Accepts connections, a bounded number from each listener.
    pub(in crate::io) fn accept(&mut self, now: Instant, events: &mut Vec<Event>) {
        for listener in self.slots.iter_mut().flatten() {
            listener.accept(now, events);
        }
    }

    /// Whether connections can be accepted now.
    pub(in crate::io) fn has_pending(&self, now: impl Fn() -> Instant) -> bool {
        self.all().any(|listener| {
            listener.is_ready
                && listener.places.is_free()
                && listener.paused_until.is_none_or(|until| until <= now())
        })
    }

    /// The earlier of a deadline and the end of a listener's pause.
    pub(in crate::io) fn deadline(&self, until: Option<Instant>) -> Option<Instant> {
        let pauses = self.all().filter_map(Listener::pause);
        pauses.chain(until).min()
    }

    fn position(&self, token: Token) -> Option<usize> {
        let is_it = |slot: &Option<Listener>| slot.as_ref().is_some_and(|it| it.token == token);
        self.slots.iter().position(is_it)
    }

    fn all(&self) -> impl Iterator<Item = &Listener> {
        self.slots.iter().flatten()
    }
}

#[derive(Debug)]
struct Listener {
    token: Token,
    serial: u32,
    /// Dropped before the socket: a socket file without a listener would be taken for a stale one.
    file: Option<SocketFile>,
    raw: Raw,
    local: Option<SocketAddr>,
    endpoint: Endpoint,
    places: Places,
    /// Connections may wait.
    is_ready: bool,
    paused_until: Option<Instant>,
    /// The failure that paused it was logged.
    is_reported: bool,
    /// How the next attempts to accept fail.
    #[cfg(test)]
    injected: std::collections::VecDeque<io::Error>,
    /// How the next attempts to read credentials fail.
    #[cfg(test)]
    injected_credentials: std::collections::VecDeque<io::Error>,
}

impl Listener {
    fn open(token: Token, serial: u32, at: &Endpoint, places: Places) -> io::Result<Self> {
        let (raw, file) = match at {
            Endpoint::Tcp(address) => (bind_tcp(*address)?, None),
            Endpoint::Unix { path, mode } => {
                let (raw, file) = bind_unix(path, *mode)?;
                (raw, Some(file))
            }
        };
        // A socket that is bound and does not listen refuses connections.
        raw.listen(BACKLOG as i32)?;
        Ok(Listener {
            token,
            serial,
            local: raw.local_addr()?.as_socket(),
            file,
            raw,
            endpoint: at.clone(),
            places,
            is_ready: false,
            paused_until: None,
            is_reported: false,
            #[cfg(test)]
            injected: std::collections::VecDeque::new(),
            #[cfg(test)]
            injected_credentials: std::collections::VecDeque::new(),
        })
    }

    fn pause(&self) -> Option<Instant> {
        self.paused_until
            .filter(|_| self.is_ready && self.places.is_free())
    }

    fn accept(&mut self, now: Instant, events: &mut Vec<Event>) {
        if !self.is_ready || self.paused_until.is_some_and(|until| until > now) {
            return;
        }
        self.paused_until = None;
        let mut aborted = 0;
        for _ in 0..ACCEPTS_A_TURN {
            let Some(place) = self.places.take() else {
                return;
            };
            match self.next() {
                Ok((raw, peer)) => {
                    self.is_reported = false;
                    events.push(Event::Accepted {
                        listener: self.token,
                        accepted: Accepted::new(Handle::Kernel(Socket::accepted(
                            raw, place, &peer,
                        ))),
                        peer,
                        at: now,
                    });
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        self.is_ready = false;
                        return;
                    }
                    // The connection ended before it was accepted, or is closed for want of its peer's
                    // credentials. The next one may be sound.
                    Some(libc::ECONNABORTED | libc::EPROTO | libc::EINTR) => {
                        aborted += 1;
                        if aborted == ACCEPTS_A_TURN {
                            self.pause_from(now, &error);
                        }
                    }
                    _ => return self.pause_from(now, &error),
                },
            }
        }
    }

    fn pause_from(&mut self, now: Instant, error: &io::Error) {
        self.paused_until = Some(now + ACCEPT_PAUSE);
        if !self.is_reported {
            self.is_reported = true;
            log::warn!(
                "cannot accept connections on {}: {error}; trying again every {} ms",
                self.endpoint,
                ACCEPT_PAUSE.as_millis()
            );
        }
    }

    fn next(&mut self) -> io::Result<(Raw, Peer)> {
        #[cfg(test)]
        if let Some(error) = self.injected.pop_front() {
            return Err(error);
        }
        let (raw, address) = self.raw.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)?;
        let peer = match address.as_socket() {
            Some(address) => Peer::Tcp(address),
            None => Peer::Unix(self.credentials(&raw).map_err(|error| {
                log::warn!(
                    "a connection to {} is closed: its peer's credentials cannot be read: {error}",
                    self.endpoint
                );
                // A failure of this connection, not of the listener.
                io::Error::from_raw_os_error(libc::ECONNABORTED)
            })?),
        };
        Ok((raw, peer))
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "tests inject failures")
    )]
    fn credentials(&mut self, raw: &Raw) -> io::Result<Credentials> {
        #[cfg(test)]
        if let Some(error) = self.injected_credentials.pop_front() {
            return Err(error);
        }
        peer_credentials(raw.as_fd())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.file = None;
        // The kernel can keep the socket longer than we do; it must not accept for us.
        let _ = self.raw.shutdown(std::net::Shutdown::Both);
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Raw> {
    let raw = Raw::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    // Connections of an earlier process in TIME_WAIT do not block the port.
    raw.set_reuse_address(true)?;
    if address.is_ipv6() {
        raw.set_only_v6(true)?;
    }
    raw.bind(&SockAddr::from(address))?;
    Ok(raw)
}

/// Binds a Unix socket whose file never has more than these permissions.
fn bind_unix(at: &Path, mode: u32) -> io::Result<(Raw, SocketFile)> {
    let bytes = at.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        let reason = "the path of a Unix socket is neither empty nor contains a NUL byte";
        return Err(io::Error::new(ErrorKind::InvalidInput, reason));
    }
    let raw = Raw::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // The file takes its mode from the socket. This avoids changing the umask, which is the whole
    // process's.
    rustix::fs::fchmod(&raw, Mode::from_raw_mode(mode & 0o777))?;
    raw.bind(&SockAddr::unix(at)?)
        .map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => io::Error::new(
                ErrorKind::AddrInUse,
                "the file exists already; remove it if no process listens on it",
            ),
            _ => error,
        })?;
    let (file, found) = SocketFile::find(at)?;
    if found & !mode & 0o777 != 0 {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!("its file system gives it the mode {found:o} instead of {mode:o}"),
        ));
    }
    Ok((raw, file))
}

/// The file of a Unix socket. Dropping it removes the file, unless another one has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Finds the socket just bound at a path, and its permission bits.
    fn find(at: &Path) -> io::Result<(Self, u32)> {
        let path = path::absolute(at)?;
        let found = fs::symlink_metadata(&path)?;
        let file = SocketFile {
            path,
            device: found.dev(),
            inode: found.ino(),
        };
        Ok((file, found.mode() & 0o7777))
    }

    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| {
            found.file_type().is_socket() && (found.dev(), found.ino()) == (self.device, self.inode)
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours()
            && let Err(error) = fs::remove_file(&self.path)
        {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// How long a listener waits after a failure to accept.
pub(in crate::io) const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    const TOKEN: Token = Token {
        slot: 3,
        generation: 1,
    };

    fn unix(path: &Path) -> Endpoint {
        Endpoint::Unix {
            path: path.to_owned(),
            mode: 0o600,
        }
    }

    fn permissions(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it exists").mode() & 0o777
    }

    #[test]
    fn a_unix_socket_has_its_mode_before_it_can_be_connected_to() {
        let folder = tempfile::tempdir().expect("a folder");
        for mode in [0o600, 0o700, 0o400] {
            let path = folder.path().join(format!("{mode:o}"));
            let (raw, file) = bind_unix(&path, mode).expect("the endpoint is free");
            // Nothing changed the mode after `bind`, and a socket that does not listen refuses
            // connections.
            assert_eq!(permissions(&path), mode);
            let refused = UnixStream::connect(&path).expect_err("it does not listen");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            raw.listen(1).expect("it can");
            assert_eq!(permissions(&path), mode);
            drop(file);
            assert!(!path.exists());
        }
    }

    #[test]
    fn closing_a_listener_keeps_a_file_that_replaced_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control.sock");
        let mut listeners = Listeners::default();
        listeners
            .open(TOKEN, &unix(&path))
            .expect("the endpoint is free");
        fs::remove_file(&path).expect("it is ours");
        let other = UnixListener::bind(&path).expect("the endpoint is free");
        assert!(listeners.close(TOKEN).is_some());
        UnixStream::connect(&path).expect("the other one listens");
        drop(other);
    }

    #[test]
    fn an_invalid_unix_path_is_an_error_that_names_it() {
        let check = |path: &str, expected: &str| {
            let error = Listeners::default().open(TOKEN, &unix(Path::new(path)));
            let error = error.expect_err("there is no such path");
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("cannot listen on {path}: ")),
                "{text}"
            );
            assert!(text.contains(expected), "{text}");
        };
        check("", "empty");
        check("\0abstract", "NUL");
        check("/nowhere/at/all/control.sock", "No such file");
        check(&"x".repeat(200), "SUN_LEN");
    }

    /// A listener and a client that waits for it.
    fn with_client(folder: &Path) -> (Listeners, UnixStream) {
        let path = folder.join("control.sock");
        let mut listeners = Listeners::default();
        listeners
            .open(TOKEN, &unix(&path))
            .expect("the endpoint is free");
        let client = UnixStream::connect(&path).expect("it listens");
        listeners.mark_ready(0);
        (listeners, client)
    }

    fn inject(listeners: &mut Listeners, errno: i32, times: usize) {
        let listener = listeners.slots[0].as_mut().expect("it is open");
        let errors = (0..times).map(|_| io::Error::from_raw_os_error(errno));
        listener.injected.extend(errors);
    }

    #[test]
    fn a_failure_of_our_machine_pauses_a_listener_and_loses_no_connection() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut listeners, _client) = with_client(folder.path());
        let mut now = Instant::START;
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
            inject(&mut listeners, errno, 1);
            let mut events = Vec::new();
            listeners.accept(now, &mut events);
            assert!(events.is_empty(), "{events:?}");
            assert!(
                !listeners.has_pending(|| now),
                "it would keep the loop busy"
            );
            let until = now + ACCEPT_PAUSE;
            assert_eq!(listeners.deadline(None), Some(until));
            assert_eq!(listeners.deadline(Some(now)), Some(now));
            // It is not tried earlier.
            inject(&mut listeners, errno, 1);
            listeners.accept(until - Duration::from_nanos(1), &mut events);
            let left = listeners.slots[0].as_mut().expect("it is open");
            assert_eq!(left.injected.len(), 1);
            left.injected.clear();
            assert!(listeners.has_pending(|| until));
            now = until;
        }
        let mut events = Vec::new();
        listeners.accept(now, &mut events);
        assert!(matches!(events[..], [Event::Accepted { .. }]), "{events:?}");
        assert_eq!(listeners.deadline(None), None);
    }

    #[test]
    fn a_connection_without_readable_credentials_is_closed_and_the_next_is_accepted() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut listeners, _first) = with_client(folder.path());
        let _second = UnixStream::connect(folder.path().join("control.sock")).expect("it listens");
        let listener = listeners.slots[0].as_mut().expect("it is open");
        let failure = io::Error::from_raw_os_error(libc::ENOMEM);
        listener.injected_credentials.push_back(failure);
        let mut events = Vec::new();
        listeners.accept(Instant::START, &mut events);
        assert!(matches!(events[..], [Event::Accepted { .. }]), "{events:?}");
        assert_eq!(listeners.deadline(None), None, "the listener is not paused");
    }

    #[test]
    fn aborted_connections_are_skipped_and_too_many_of_them_pause_the_listener() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut listeners, _client) = with_client(folder.path());
        let now = Instant::START;
        let mut events = Vec::new();
        inject(&mut listeners, libc::ECONNABORTED, ACCEPTS_A_TURN - 1);
        listeners.accept(now, &mut events);
        assert!(matches!(events[..], [Event::Accepted { .. }]), "{events:?}");
        events.clear();
        inject(&mut listeners, libc::ECONNABORTED, ACCEPTS_A_TURN);
        listeners.accept(now, &mut events);
        assert!(events.is_empty(), "{events:?}");
        assert_eq!(listeners.deadline(None), Some(now + ACCEPT_PAUSE));
    }
}
