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
    /// How long to wait without a signal.
    patience: Option<Duration>,
    /// When waiting is given up, once it has begun.
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
            patience: None,
            until: None,
            reported: false,
        }
    }

    /// Waits no longer than this, if a time is given.
    pub fn for_at_most(mut self, patience: Option<Duration>) -> Self {
        self.patience = patience;
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
        let now = Instant::now();
        let end = |patience| *self.until.get_or_insert(now + patience);
        let is_over = self.patience.map(end).is_some_and(|end| end <= now);
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
