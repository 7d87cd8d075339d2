//! A full disk: nothing is released until there is room again.
//!
//! ```text
//! Room ── no room for a job ──► Full ── there was, after all ──► Room
//! ```
//!
//! The disk keeps the job and retries it, and all later jobs wait: nothing that was handed to it is
//! lost. Replies in flight are read as long as the sink has memory for them.

use std::time::Duration;

use crate::base::time::Instant;

/// Whether the disk has room for what the crawl writes.
#[derive(Debug, Default)]
pub struct Storage {
    state: State,
    pauses: u64,
    paused: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// There is room, after there was none until then.
    Room { since: Option<Instant> },
    /// There is no room since then.
    Full { since: Instant },
}

impl Default for State {
    fn default() -> Self {
        State::Room { since: None }
    }
}

/// A disk that is full again within this time is not logged again.
const SAME_FAULT: Duration = Duration::from_secs(60);

impl Storage {
    /// Whether anything may be released.
    pub fn has_room(&self) -> bool {
        matches!(self.state, State::Room { .. })
    }

    /// Number of times there was no room.
    pub fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Total time without room.
    pub fn paused(&self, now: Instant) -> Duration {
        self.paused + self.full_for(now).unwrap_or_default()
    }

    /// Time without room so far, if there is none.
    pub fn full_for(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Room { .. } => None,
            State::Full { since } => Some(now.saturating_since(since)),
        }
    }

    /// There is no room. Returns the level of the log line.
    pub fn handle_full(&mut self, now: Instant) -> log::Level {
        let level = match self.state {
            State::Room { since: Some(since) } if now.saturating_since(since) < SAME_FAULT => {
                log::Level::Info
            }
            State::Room { .. } => log::Level::Warn,
            State::Full { .. } => return log::Level::Debug,
        };
        self.pauses += 1;
        self.state = State::Full { since: now };
        level
    }

    /// There is room again; returns the time without.
    pub fn handle_room(&mut self, now: Instant) -> Duration {
        let took = self.full_for(now).unwrap_or_default();
        self.paused += took;
        self.state = State::Room { since: Some(now) };
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fills_again_at_once_is_reported_once() {
        let at = |seconds| Instant::START + Duration::from_secs(seconds);
        let mut storage = Storage::default();
        assert!(storage.has_room());
        assert_eq!(storage.handle_full(at(10)), log::Level::Warn);
        assert!(!storage.has_room());
        assert_eq!(storage.full_for(at(15)), Some(Duration::from_secs(5)));
        assert_eq!(storage.handle_room(at(15)), Duration::from_secs(5));
        assert!(storage.has_room());
        assert_eq!(storage.handle_full(at(16)), log::Level::Info);
        storage.handle_room(at(17));
        assert_eq!(storage.handle_full(at(90)), log::Level::Warn);
        assert_eq!(storage.pauses(), 3);
        assert_eq!(storage.paused(at(94)), Duration::from_secs(10));
    }
}
