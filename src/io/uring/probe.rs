//! A probe for features that the kernel does not list, and the wait for its last completions.

#[cfg(test)]
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::ring::{Completion, OpId, OpKind, SLOT_MAX};
use super::{COMPLETIONS_A_TURN, Unavailable, Uring};
use crate::io::sockets::socket::Socket;

impl Uring {
    /// Receives twice with one operation and cancels it.
    pub(super) fn probe_multishot(&mut self) -> Result<(), Unavailable> {
        let lacking = || Unavailable::Lacks("multishot receives");
        let (ours, theirs) = Socket::pair()?;
        self.buffers.provide();
        self.ring
            .submit_receive(PROBE, ours.as_fd().as_raw_fd(), true);
        self.ring.submit();
        self.receiving += 1;
        #[cfg(test)]
        if let Some(cancellations) = INJECTED.take() {
            self.ring.injected = cancellations;
            return Err(lacking());
        }
        for _ in 0..2 {
            theirs
                .send(b"?")
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
            let completion = self.probe_completion().ok_or_else(lacking)?;
            let id = completion.buffer.ok_or_else(lacking)?;
            self.buffers.take(id);
            let length = self.ring.read(self.buffers.whole(id)).length;
            self.buffers.put_back(id);
            if length != 1 || !completion.more {
                return Err(lacking());
            }
        }
        self.ring.submit_cancel(PROBE);
        self.ring.submit();
        match self.probe_completion() {
            Some(Completion { more: false, .. }) => Ok(()),
            _ => Err(Unavailable::Lacks("cancellation of multishot receives")),
        }
    }

    fn probe_completion(&mut self) -> Option<Completion> {
        let give_up_at = self.stamps.now() + PROBE_TIMEOUT;
        while !self.ring.has_completions() && self.stamps.now() < give_up_at {
            self.sleep(Some(give_up_at));
        }
        self.completions.clear();
        self.ring.take(1, &mut self.completions);
        let completion = self.completions.pop()?;
        self.receiving -= usize::from(!completion.more);
        Some(completion)
    }

    /// Cancels all operations and waits for their ends. False if the kernel may still use our buffers.
    pub(super) fn quiesce(&mut self) -> bool {
        if self.ring.cancel_all().is_err() {
            return false;
        }
        // The kernel posts last completions on behalf of the submitting thread, which may be another.
        let give_up_at = self.stamps.now() + QUIESCE_TIMEOUT;
        while self.receiving > 0 {
            self.completions.clear();
            self.ring.take(COMPLETIONS_A_TURN, &mut self.completions);
            if self.completions.is_empty() {
                let now = self.stamps.now();
                if now >= give_up_at {
                    return false;
                }
                self.ring.sleep(
                    Some(self.stamps.timer_time(give_up_at)),
                    self.stamps.timer_time(now),
                );
            }
            let ended = |completion: &&Completion| {
                completion.name.what == OpKind::Receive && !completion.more
            };
            self.receiving -= self.completions.iter().filter(ended).count();
        }
        true
    }
}

/// Not a socket's id: serials begin with 1.
const PROBE: OpId = OpId {
    what: OpKind::Receive,
    slot: SLOT_MAX,
    serial: 0,
};

/// Cancelled operations end at once, unless the thread that submitted them does not run.
const QUIESCE_TIMEOUT: Duration = Duration::from_millis(100);

#[cfg(test)]
thread_local! {
    /// Fails this thread's next probe while its receive is active, and then cancellations.
    pub(super) static INJECTED: std::cell::RefCell<Option<VecDeque<io::Error>>> =
        std::cell::RefCell::default();
}

/// A datagram to ourselves arrives at once, however busy the machine is.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
