//! A descriptor that says that something is due already.
//!
//! A timer set to the past would say so, too. But the kernel programs an interrupt for it, which on a
//! virtual machine takes longer than all else that a host's turn costs besides its pages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Becomes readable when it is rung; watched for edges, each ring is one.
#[derive(Debug)]
pub(super) struct Due {
    fd: OwnedFd,
    /// It was, and that was not told to us yet.
    rung: bool,
}

impl Due {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Due { fd, rung: false })
    }

    pub(super) fn ring(&mut self) {
        if !self.rung {
            let written = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
            written.expect("a counter of our own has room for more rings than a crawl has turns");
            self.rung = true;
        }
    }

    /// Nothing is due any more: what was rung and not told is taken back.
    pub(super) fn take_back(&mut self) {
        if self.rung {
            let emptied = rustix::io::read(&self.fd, &mut [0; 8]);
            emptied.expect("there is a ring in it");
            self.rung = false;
        }
    }

    /// Takes note that it was told.
    pub(super) fn told(&mut self) {
        self.rung = false;
    }
}

impl AsFd for Due {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn what_was_rung_can_be_read_until_it_is_taken_back() {
        let mut due = Due::new().expect("a descriptor");
        let is_readable = |due: &Due| {
            let now = Duration::ZERO.try_into().expect("it fits");
            poll(&mut [PollFd::new(due, PollFlags::IN)], Some(&now)).expect("poll works") == 1
        };
        assert!(!is_readable(&due));
        due.take_back();
        for _ in 0..3 {
            due.ring();
            due.ring();
            assert!(is_readable(&due));
            due.take_back();
            assert!(!is_readable(&due), "one ring is left of two");
        }
        // What was told makes an edge again.
        due.ring();
        due.told();
        due.ring();
        due.take_back();
        assert!(!is_readable(&due));
    }
}
