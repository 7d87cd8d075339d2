//! Whichever of the kernel's interfaces carries a crawl, as one type.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::memory;
use super::{Chunk, Close, Epoll, Event, Io, Memory, Settings, Token, Unavailable, Uring, Waker};
use crate::base::disk::DiskJob;
use crate::base::time::{Instant, Wall};

/// `IO`: the kernel interface that carries a crawl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackEnd {
    /// The one that measured best: epoll. A new connection costs the same on either; where
    /// connections are kept io_uring takes a sixth more of the processor, for it receives each
    /// reply by itself.
    #[default]
    Auto,
    /// epoll, which every Linux has.
    Epoll,
    /// io_uring, whose stamps stay exact while our thread is busy, even where a reply comes in
    /// pieces. Where the kernel has not enough of it, or not for us, epoll with a warning.
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
    /// What was asked for, or what there is in its place: then a line in the log says why.
    ///
    /// # Errors
    /// When the system gives no descriptors, or the open-file limit leaves none for sockets.
    pub fn open(wanted: BackEnd, settings: Settings) -> io::Result<Self> {
        match wanted {
            BackEnd::Auto | BackEnd::Epoll => Self::epoll(settings),
            BackEnd::Uring => Self::or_epoll(Uring::new(settings.clone()), settings),
        }
    }

    fn or_epoll(uring: Result<Uring, Unavailable>, settings: Settings) -> io::Result<Self> {
        match uring {
            Ok(uring) => {
                log::info!("io_uring carries the crawl");
                Ok(Kernel::Uring(Box::new(uring)))
            }
            Err(reason) => {
                log::warn!("{reason}; epoll takes its place");
                Self::epoll(settings)
            }
        }
    }

    fn epoll(settings: Settings) -> io::Result<Self> {
        let epoll = Epoll::new(settings)?;
        log::info!("epoll carries the crawl");
        Ok(Kernel::Epoll(Box::new(epoll)))
    }
}

/// The same call on either.
macro_rules! either {
    ($self:ident, $io:ident => $call:expr) => {
        match $self {
            Kernel::Epoll($io) => $call,
            Kernel::Uring($io) => $call,
        }
    };
}

impl Io for Kernel {
    fn name(&self) -> &'static str {
        either!(self, io => io.name())
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

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        either!(self, io => io.send(token, bytes, mark));
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        either!(self, io => io.set_reading(token, on));
    }

    fn close(&mut self, token: Token, how: Close) {
        either!(self, io => io.close(token, how));
    }

    fn disk(&mut self, job: DiskJob) {
        either!(self, io => io.disk(job));
    }

    fn give_up_waiting(&mut self) {
        either!(self, io => io.give_up_waiting());
    }

    fn memory(&self) -> Option<Memory> {
        memory::memory()
    }

    fn submit(&mut self) {
        either!(self, io => io.submit());
    }

    fn wait(&mut self, until: Option<Instant>, events: &mut Vec<Event>) {
        either!(self, io => io.wait(until, events));
    }

    fn untold(&self) -> &[Event] {
        either!(self, io => io.untold())
    }

    fn has_news(&self) -> bool {
        either!(self, io => io.has_news())
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

    fn name(opened: io::Result<Kernel>) -> &'static str {
        opened.expect("there is always epoll").name()
    }

    #[test]
    fn epoll_takes_the_place_of_what_is_not_there() {
        let absent = Kernel::or_epoll(Err(Unavailable::Absent), Settings::default());
        assert_eq!(name(absent), "epoll");
    }

    #[test]
    fn who_asks_for_one_gets_it_and_who_does_not_gets_epoll() {
        let open = |wanted| name(Kernel::open(wanted, Settings::default()));
        assert_eq!(open(BackEnd::Epoll), "epoll");
        assert_eq!(open(BackEnd::Auto), "epoll");
        match Uring::new(Settings::default()) {
            Ok(_) => assert_eq!(open(BackEnd::Uring), "uring"),
            Err(reason) => crate::base::loud::skip(reason),
        }
    }
}
