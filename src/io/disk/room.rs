//! The wait for room on a full disk.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Whether room is still waited for.
#[derive(Debug, Default)]
pub(super) struct Room {
    given_up: Mutex<bool>,
    changed: Condvar,
}

impl Room {
    /// Waits a moment, or until room is given up.
    pub(super) fn wait(&self) {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(given_up, PAUSE, |given_up| !*given_up);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Nobody waits for it any more, now or later.
    pub(super) fn give_up(&self) {
        *self.given_up.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether nobody waits for it any more.
    pub(super) fn is_given_up(&self) -> bool {
        *self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a job for which there is no room is tried again.
pub(in crate::io) const PAUSE: Duration = Duration::from_secs(1);
