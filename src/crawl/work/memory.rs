//! Memory that is limited: seeds wait before it is used up.
//!
//! ```text
//! Room ── much is in use ──► Short ── little is, or half of the queue is done ──► Room
//! ```

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::io::Memory;

/// Whether there is memory for more seeds.
#[derive(Debug, Default)]
pub struct MemoryRoom {
    state: State,
    reported: bool,
    /// Bytes of the seeds that were taken since the last measurement.
    taken: usize,
    looked: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Room,
    /// Requests that were queued when memory ran short.
    Short { queued: usize },
}

/// Above this share of the limit seeds wait.
const SHORT_ABOVE: f64 = 0.8;

/// Below this share reading of seeds resumes.
const ROOM_BELOW: f64 = 0.7;

/// With fewer requests queued, something else takes the memory.
const QUEUED_MIN: usize = 1000;

/// Bytes of seeds between two measurements.
const LOOK_EVERY: usize = 1 << 20;
/// Bytes of a seed beside its URL, which is there twice: in its lane, and on its way to the journal.
const SEED_BYTES: usize = 256;
/// Interval of measurements while no seeds come: then shortage is only logged.
const LOOK_SELDOM: Duration = Duration::from_secs(30);

/// Bytes of a queued request without its URL, and of a URL: `tests/queued_memory.rs`.
const QUEUED_BYTES: u64 = 200 + 80;

/// Bytes held by the sink, bodies being read, and the rest of the program.
const BESIDE_BYTES: u64 = 256 << 20;

/// Memory that the configuration may take, in bytes, as far as settings bound it.
fn may_take(config: &Config) -> u64 {
    let frontier = &config.frontier;
    let queued = match frontier.queued_max {
        // What does not fit waits on disk.
        0 => frontier.memory_max.saturating_add(frontier.seen_memory_max),
        most => (most as u64).saturating_mul(QUEUED_BYTES),
    };
    queued
        .saturating_add(config.buffered_bodies_max)
        .saturating_add(config.frontier.robots_memory)
        .saturating_add(config.tls_sessions_memory)
        .saturating_add(BESIDE_BYTES)
}

impl MemoryRoom {
    /// Whether seeds may be read.
    pub fn has_room(&self) -> bool {
        matches!(self.state, State::Room)
    }

    /// Whether memory is to be measured without seeds: links alone may fill it.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_since(self.looked) >= LOOK_SELDOM
    }

    /// Counts a seed with a URL of so many bytes; returns whether memory is to be measured.
    pub fn handle_seed(&mut self, url_bytes: usize) -> bool {
        self.taken += SEED_BYTES + 2 * url_bytes;
        self.taken >= LOOK_EVERY
    }

    /// So much is in use while so many requests are queued.
    pub fn handle_memory(&mut self, memory: Option<Memory>, queued: usize, now: Instant) {
        self.taken = 0;
        self.looked = now;
        let Some(memory) = memory else {
            self.state = State::Room;
            return;
        };
        match self.state {
            State::Room if memory.share() >= SHORT_ABOVE && queued > QUEUED_MIN => {
                self.state = State::Short { queued };
                let level = match std::mem::replace(&mut self.reported, true) {
                    false => log::Level::Warn,
                    true => log::Level::Info,
                };
                log::log!(
                    level,
                    "{} of {} of memory are in use ({}): reading of seeds paused until memory is free; \
                     {queued} requests are queued",
                    megabytes(memory.used),
                    megabytes(memory.limit),
                    memory.by
                );
            }
            // The allocator may keep freed memory, which is then reused; so a shorter queue counts, too.
            State::Short { queued: then } if memory.share() < ROOM_BELOW || queued <= then / 2 => {
                self.state = State::Room;
                log::info!("memory is free again: reading of seeds resumed");
            }
            State::Room | State::Short { .. } => {}
        }
    }
}

/// Logs a warning if the configuration may use more memory than the limit.
pub fn check_limit(memory: Option<Memory>, config: &Config) {
    let may_take = may_take(config);
    let Some(memory) = memory.filter(|memory| may_take > memory.limit) else {
        return;
    };
    let frontier = &config.frontier;
    let of_queue = match frontier.queued_max {
        0 => format!(
            "FRONTIER_MEMORY ({}), SEEN_MEMORY ({})",
            megabytes(frontier.memory_max),
            megabytes(frontier.seen_memory_max)
        ),
        most => format!("FRONTIER_MAX ({most})"),
    };
    log::warn!(
        "memory is limited to {} ({}), and the settings allow {}: reading of seeds pauses once {} are \
         in use; lower {}, BUFFERED_BODIES_MAX ({}), TLS_SESSIONS_MEMORY ({}) or ROBOTS_MEMORY ({}), or raise the \
         limit",
        megabytes(memory.limit),
        memory.by,
        megabytes(may_take),
        megabytes((memory.limit as f64 * SHORT_ABOVE) as u64),
        of_queue,
        megabytes(config.buffered_bodies_max),
        megabytes(config.tls_sessions_memory),
        megabytes(config.frontier.robots_memory),
    );
}

fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_wait_while_memory_is_short_and_never_for_good() {
        let memory = |used| {
            Some(Memory {
                used,
                limit: 1000,
                by: "memory.max",
            })
        };
        let mut room = MemoryRoom::default();
        for (used, queued, expected) in [
            (799, 50_000, true),
            (800, 50_000, false),
            (750, 50_000, false),
            (699, 50_000, true),
            (900, 40_000, false),
            // The kernel still counts freed memory as used.
            (900, 20_001, false),
            (900, 20_000, true),
            (900, 20_000, false),
            (900, 10_000, true),
            (900, 1000, true),
        ] {
            room.handle_memory(memory(used), queued, Instant::START);
            assert_eq!(room.has_room(), expected, "{used} {queued}");
        }
        room.handle_memory(memory(900), 5000, Instant::START);
        assert!(!room.has_room());
        room.handle_memory(None, 5000, Instant::START);
        assert!(room.has_room());
    }

    #[test]
    fn the_memory_bound_grows_with_the_settings() {
        let mut config = Config::default();
        let usual = may_take(&config);
        assert!((7 << 29..9 << 29).contains(&usual), "{usual}");
        config.frontier.queued_max = 100_000;
        config.buffered_bodies_max = 64 << 20;
        config.frontier.robots_memory = 16 << 20;
        config.tls_sessions_memory = 16 << 20;
        assert!(may_take(&config) < 400 << 20);
    }
}
