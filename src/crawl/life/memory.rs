//! Memory that is limited: seeds wait before it is used up.
//!
//! ```text
//! Room ── much is in use ──► Short ── little is, or half of the queue is done ──► Room
//! ```

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::Core;
use crate::io::{Io, Memory};

/// Whether there is memory for more seeds.
#[derive(Debug, Default)]
pub struct MemoryRoom {
    state: State,
    reported: bool,
    /// Seeds taken since it was looked at.
    taken: u32,
    looked: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Room,
    /// So many requests were queued when it was found short.
    Short { queued: usize },
}

/// Above this share of the limit seeds wait.
const SHORT_ABOVE: f64 = 0.8;
/// Below this they come in again.
const ROOM_BELOW: f64 = 0.7;
/// What is queued beside so many is not what takes the memory.
const QUEUED_MIN: usize = 1000;
/// Seeds that take a megabyte or so come in between two looks.
const LOOK_EVERY: u32 = 4096;

/// How often it is looked at where no seeds come: links alone fill it, and nothing is done but to say so.
const LOOK_SELDOM: Duration = Duration::from_secs(30);

/// What a queued request takes beside its URL, and what a URL takes: `tests/queued_memory.rs`.
const QUEUED_BYTES: u64 = 200 + 80;
/// What the sink holds, what is being read, and the rest of the program.
const BESIDE_BYTES: u64 = 256 << 20;

/// What of memory the configuration may take, in bytes: as far as settings bound it.
pub fn may_take(config: &Config) -> u64 {
    let queued = (config.frontier.queued_max as u64).saturating_mul(QUEUED_BYTES);
    queued
        .saturating_add(config.buffered_bodies_max)
        .saturating_add(config.frontier.robots_memory)
        .saturating_add(BESIDE_BYTES)
}

impl MemoryRoom {
    /// Whether seeds may come in.
    pub fn has_room(&self) -> bool {
        matches!(self.state, State::Room)
    }

    /// A seed has come in; whether memory is to be looked at.
    fn handle_seed(&mut self) -> bool {
        self.taken += 1;
        self.taken >= LOOK_EVERY
    }

    /// So much is in use while so many requests are queued.
    fn handle_memory(&mut self, memory: Option<Memory>, queued: usize) {
        self.taken = 0;
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
                    "{} of {} of memory are in use ({}): seeds wait until there is more, and {queued} \
                     requests are queued",
                    megabytes(memory.used),
                    megabytes(memory.limit),
                    memory.by
                );
            }
            // What the allocator has back it need not give back, and it is used again.
            State::Short { queued: then } if memory.share() < ROOM_BELOW || queued <= then / 2 => {
                self.state = State::Room;
                log::info!("there is memory for seeds again");
            }
            State::Room | State::Short { .. } => {}
        }
    }
}

impl<I: Io> Core<I> {
    /// A crawl begins: compares the limit of memory with what its configuration may take.
    pub fn compare_memory(&mut self) {
        let (memory, may_take) = (self.io.memory(), may_take(&self.config));
        if let Some(memory) = memory
            && may_take > memory.limit
        {
            log::warn!(
                "memory is limited to {} ({}), and the settings may take {}: seeds wait once {} are in \
                 use; lower FRONTIER_MAX ({}), BUFFERED_BODIES_MAX ({}) or ROBOTS_MEMORY ({}), or raise the limit",
                megabytes(memory.limit),
                memory.by,
                megabytes(may_take),
                megabytes((memory.limit as f64 * SHORT_ABOVE) as u64),
                self.config.frontier.queued_max,
                megabytes(self.config.buffered_bodies_max),
                megabytes(self.config.frontier.robots_memory),
            );
        }
    }

    /// Called once a second: looks at how much memory is in use, each time if seeds wait for memory or more
    /// of them may come, else now and then.
    pub fn watch_memory(&mut self) {
        let feeds = self.feed.as_ref().is_some_and(|feed| !feed.is_finished());
        let waits = feeds || !self.inbox.is_closed() || !self.memory.has_room();
        if waits || self.now.saturating_since(self.memory.looked) >= LOOK_SELDOM {
            self.look_at_memory();
        }
    }

    fn look_at_memory(&mut self) {
        let had_room = self.memory.has_room();
        let memory = self.io.memory();
        self.memory.looked = self.now;
        self.memory.handle_memory(memory, self.frontier.queued());
        self.unfinished |= self.memory.has_room() && !had_room;
    }

    /// A seed has come in.
    pub fn count_seed_memory(&mut self) {
        if self.memory.handle_seed() {
            self.look_at_memory();
        }
    }
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
            // It is still in use as far as the kernel knows.
            (900, 20_001, false),
            (900, 20_000, true),
            (900, 20_000, false),
            (900, 10_000, true),
            (900, 1000, true),
        ] {
            room.handle_memory(memory(used), queued);
            assert_eq!(room.has_room(), expected, "{used} {queued}");
        }
        room.handle_memory(memory(900), 5000);
        assert!(!room.has_room());
        room.handle_memory(None, 5000);
        assert!(room.has_room());
    }

    #[test]
    fn what_settings_may_take_grows_with_them() {
        let mut config = Config::default();
        let usual = may_take(&config);
        assert!((3 << 30..4 << 30).contains(&usual), "{usual}");
        config.frontier.queued_max = 100_000;
        config.buffered_bodies_max = 64 << 20;
        config.frontier.robots_memory = 16 << 20;
        assert!(may_take(&config) < 400 << 20);
    }
}
