//! Results of other threads for the loop: a list and a wake-up.

#![expect(unsafe_code, reason = "signal masks are set through libc alone")]

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Event, Waker};

/// Events that other threads report to the loop.
#[derive(Clone, Debug)]
pub(super) struct Results {
    events: Arc<Mutex<Vec<Event>>>,
    waker: Waker,
}

impl Results {
    /// An empty list. `waker` wakes the loop when it stops being empty.
    pub(super) fn new(waker: Waker) -> Self {
        Results {
            events: Arc::default(),
            waker,
        }
    }

    /// Adds an event, from any thread.
    pub(super) fn report(&self, event: Event) {
        self.report_all([event]);
    }

    /// Adds events, from any thread.
    pub(super) fn report_all(&self, more: impl IntoIterator<Item = Event>) {
        let mut events = self.lock();
        let first = events.is_empty();
        events.extend(more);
        mem::drop(events);
        if first {
            self.waker.wake();
        }
    }

    /// Appends the events since the last call.
    pub(super) fn take(&self, events: &mut Vec<Event>) {
        events.append(&mut self.lock());
    }

    /// The list is valid even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves signals to the host's threads; writing to a closed pipe is then an error instead of the end of
/// the process.
pub(super) fn block_signals() {
    // SAFETY: a zeroed set is filled before it is read, and only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
