//! Connections between two requests: which are kept.

use crate::base::ids::LaneId;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::frontier::TURN;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Keeps an idle connection for the next request of a lane. If too many are idle, the one is closed whose lane may
    /// be released last.
    pub fn keep_idle(&mut self, key: Key, lane: LaneId) {
        let (due, _) = self.throttle.pace_of_lane(lane, self.now);
        self.frontier.keep_for_first_page(lane, due);
        // A parked lane is released after those that are active.
        let due = match self.frontier.is_parked(lane) {
            true => due + TURN,
            false => due,
        };
        if let Some(evicted) = self.network.keep(key, due, self.now) {
            self.release_origin(evicted);
        }
    }
}
