//! The kernel's back ends as one type.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::limits;
use super::{
    Accepted, Chunk, Close, Endpoint, Epoll, Event, Io, IoSettings, Memory, Token, Unavailable,
    Uring, Waker,
};
use crate::base::disk::DiskJob;
use crate::base::time::{Instant, Wall};
use crate::base::worker::WorkerJob;
use crate::io::IoKind;

/// `IO`: the kernel interface to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackEnd {
    /// The fastest in measurements: epoll. A new connection costs the same on either; with kept
    /// connections io_uring takes a sixth more CPU time, because it receives each reply separately.
    #[default]
    Auto,
    /// epoll, which every Linux has.
    Epoll,
    /// io_uring, whose stamps stay exact while our thread is busy, even where a reply comes in pieces.
    /// Falls back to epoll with a warning where io_uring is unavailable.
    Uring,
}

/// The kernel, through one of its interfaces.
#[derive(Debug)]
pub enum Kernel {
    /// Through epoll.
    Epoll(Box<Epoll>),
    /// Through io_uring.
    Uring(Box<Uring>),
}

impl Kernel {
    /// Opens the wanted back end, or falls back to epoll and logs why.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the open-file limit leaves none for sockets.
    pub fn open(wanted: BackEnd, settings: IoSettings) -> io::Result<Self> {
        match wanted {
            BackEnd::Auto | BackEnd::Epoll => Self::epoll(settings),
            BackEnd::Uring => Self::or_epoll(Uring::new(settings.clone()), settings),
        }
    }

    fn or_epoll(uring: Result<Uring, Unavailable>, settings: IoSettings) -> io::Result<Self> {
        match uring {
            Ok(uring) => {
                log::info!("using io_uring");
                Ok(Kernel::Uring(Box::new(uring)))
            }
            Err(reason) => {
                log::warn!("{reason}; using epoll instead");
                Self::epoll(settings)
            }
        }
    }

    fn epoll(settings: IoSettings) -> io::Result<Self> {
        let epoll = Epoll::new(settings)?;
        log::info!("using epoll");
        Ok(Kernel::Epoll(Box::new(epoll)))
    }
}

/// Forwards a call to either.
macro_rules! either {
    ($self:ident, $io:ident => $call:expr) => {
        match $self {
            Kernel::Epoll($io) => $call,
            Kernel::Uring($io) => $call,
        }
    };
}

impl Io for Kernel {
    fn kind(&self) -> IoKind {
        either!(self, io => io.kind())
    }

    fn now(&self) -> Instant {
        either!(self, io => io.now())
    }

    fn wall_at_start(&self) -> Wall {
        either!(self, io => io.wall_at_start())
    }

    fn capacity(&self) -> usize {
        either!(self, io => io.capacity())
    }

    fn connect(&mut self, token: Token, to: SocketAddr) {
        either!(self, io => io.connect(token, to));
    }

    fn port_search(&self) -> Duration {
        either!(self, io => io.port_search())
    }

    fn local(&self, token: Token) -> Option<SocketAddr> {
        either!(self, io => io.local(token))
    }

    fn open_datagram(&mut self, token: Token, to: SocketAddr) {
        either!(self, io => io.open_datagram(token, to));
    }

    fn listen(&mut self, token: Token, at: &Endpoint) -> io::Result<()> {
        either!(self, io => io.listen(token, at))
    }

    fn accept(&mut self, token: Token, accepted: Accepted) {
        either!(self, io => io.accept(token, accepted));
    }

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        either!(self, io => io.send(token, bytes, mark));
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        either!(self, io => io.set_reading(token, on));
    }

    fn unsent(&self, token: Token) -> usize {
        either!(self, io => io.unsent(token))
    }

    fn has_unread(&self, token: Token) -> bool {
        either!(self, io => io.has_unread(token))
    }

    fn close(&mut self, token: Token, how: Close) {
        either!(self, io => io.close(token, how));
    }

    fn disk(&mut self, job: DiskJob) {
        either!(self, io => io.disk(job));
    }

    fn compute(&mut self, job: WorkerJob) {
        either!(self, io => io.compute(job));
    }

    fn fail_stalled_writes(&mut self) {
        either!(self, io => io.fail_stalled_writes());
    }

    fn memory(&self) -> Option<Memory> {
        limits::memory()
    }

    fn processor_time(&self) -> Option<Duration> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).ok()
    }

    fn submit(&mut self) {
        either!(self, io => io.submit());
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        either!(self, io => io.wait(until, events));
    }

    fn queued_events(&self) -> &[Event] {
        either!(self, io => io.queued_events())
    }

    fn has_pending(&self) -> bool {
        either!(self, io => io.has_pending())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        either!(self, io => io.as_fd())
    }

    fn arm(&mut self, until: Option<Instant>) {
        either!(self, io => io.arm(until));
    }

    fn waker(&self) -> Waker {
        either!(self, io => io.waker())
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        either!(self, io => io.bytes(chunk))
    }

    fn release(&mut self, chunk: Chunk) {
        either!(self, io => io.release(chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(opened: io::Result<Kernel>) -> IoKind {
        opened.expect("epoll is always available").kind()
    }

    #[test]
    fn a_missing_back_end_falls_back_to_epoll() {
        let absent = Kernel::or_epoll(Err(Unavailable::Absent), IoSettings::default());
        assert_eq!(kind(absent), IoKind::Epoll);
    }

    #[test]
    fn the_wanted_back_end_is_opened_and_epoll_by_default() {
        let open = |wanted| kind(Kernel::open(wanted, IoSettings::default()));
        assert_eq!(open(BackEnd::Epoll), IoKind::Epoll);
        assert_eq!(open(BackEnd::Auto), IoKind::Epoll);
        match Uring::new(IoSettings::default()) {
            Ok(_) => assert_eq!(open(BackEnd::Uring), IoKind::Uring),
            Err(reason) => crate::base::loud::skip(reason),
        }
    }
}
