//! Watches memory while seeds may come in.

use crate::crawl::core::Core;
use crate::crawl::work::memory::{SHORT_ABOVE, may_take, megabytes};
use crate::io::Io;

impl<I: Io> Core<I> {
    /// A crawl begins: compares the limit of memory with what its configuration may take.
    pub fn compare_memory(&mut self) {
        let (memory, may_take) = (self.network.io().memory(), may_take(&self.config));
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
        if waits || self.memory.is_due(self.now) {
            self.look_at_memory();
        }
    }

    fn look_at_memory(&mut self) {
        let had_room = self.memory.has_room();
        let memory = self.network.io().memory();
        self.memory
            .handle_memory(memory, self.frontier.queued(), self.now);
        self.unfinished |= self.memory.has_room() && !had_room;
    }

    /// A seed has come in.
    pub fn count_seed_memory(&mut self) {
        if self.memory.handle_seed() {
            self.look_at_memory();
        }
    }
}
