//! A descriptor that is readable while a deadline has passed.
//!
//! A timer set to the past would be readable as well, but the kernel programs an interrupt for it, which
//! on a virtual machine takes longer than the rest of a host's turn without its pages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Becomes readable when it is signalled; each signal is an edge.
#[derive(Debug)]
pub(in crate::io) struct DueSignal {
    fd: OwnedFd,
    /// It is readable, and the kernel has not reported that yet.
    is_signalled: bool,
}

impl DueSignal {
    pub(in crate::io) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(DueSignal {
            fd,
            is_signalled: false,
        })
    }

    pub(in crate::io) fn signal(&mut self) {
        if !self.is_signalled {
            let written = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
            written.expect("the counter holds more signals than a crawl has turns");
            self.is_signalled = true;
        }
    }

    /// Takes back a signal that was not reported yet: nothing is due any more.
    pub(in crate::io) fn clear(&mut self) {
        if self.is_signalled {
            let emptied = rustix::io::read(&self.fd, &mut [0; 8]);
            emptied.expect("the counter is not zero");
            self.is_signalled = false;
        }
    }

    /// The kernel has reported the signal.
    pub(in crate::io) fn note_reported(&mut self) {
        self.is_signalled = false;
    }
}

impl AsFd for DueSignal {
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
    fn a_signal_is_readable_until_it_is_cleared() {
        let mut due = DueSignal::new().expect("a descriptor");
        let is_readable = |due: &DueSignal| {
            let now = Duration::ZERO.try_into().expect("it fits");
            poll(&mut [PollFd::new(due, PollFlags::IN)], Some(&now)).expect("poll works") == 1
        };
        assert!(!is_readable(&due));
        due.clear();
        for _ in 0..3 {
            due.signal();
            due.signal();
            assert!(is_readable(&due));
            due.clear();
            assert!(!is_readable(&due), "one signal is left of two");
        }
        // A reported signal can be sent again.
        due.signal();
        due.note_reported();
        due.signal();
        due.clear();
        assert!(!is_readable(&due));
    }
}
