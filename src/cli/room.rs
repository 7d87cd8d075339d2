//! Waits for space on a full disk.

use std::io::{self, ErrorKind};
use std::time::Duration;

use super::signals::Received;

/// Waits for space on the disk until a signal asks to stop.
pub struct Room {
    what: &'static str,
    effect_of_stop: &'static str,
    received: Received,
    stops: usize,
    reported: bool,
}

impl Room {
    /// For writing this; a stop signal has this effect.
    pub fn new(what: &'static str, effect_of_stop: &'static str, received: Received) -> Self {
        Room {
            what,
            effect_of_stop,
            stops: received.stops(),
            received,
            reported: false,
        }
    }

    /// Waits for one interval; returns whether to try again.
    pub fn wait(&mut self, error: &io::Error) -> bool {
        if !std::mem::replace(&mut self.reported, true) {
            log::warn!(
                "writing {} waits for disk space: {error}; free some, or send a stop signal to {}",
                self.what,
                self.effect_of_stop
            );
        }
        !self.received.wait_for_stop(self.stops, PAUSE)
    }
}

/// Whether an operation failed for want of space.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Interval between attempts on a full disk.
const PAUSE: Duration = Duration::from_secs(1);
