//! Waits for space on a full disk.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::signals::Received;

/// Waits for space on the disk until a signal asks to stop.
pub struct Room {
    what: &'static str,
    effect_of_stop: &'static str,
    received: Received,
    stops: usize,
    /// When waiting is given up without a signal.
    until: Option<Instant>,
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
            until: None,
            reported: false,
        }
    }

    /// Waits no longer than this, if a time is given.
    pub fn for_at_most(mut self, patience: Option<Duration>) -> Self {
        self.until = patience.map(|patience| Instant::now() + patience);
        self
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
        let is_over = self.until.is_some_and(|until| until <= Instant::now());
        !is_over && !self.received.wait_for_stop(self.stops, PAUSE)
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
