//! Requests of lanes that wait for long leave memory to others.

use crate::crawl::core::Core;
use crate::crawl::spill::Spill;
use crate::frontier::Evicted;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Moves requests of lanes that wait for long to files, while others wait there for room.
    pub fn evict_waiting(&mut self) {
        if !self.spill.wants_room(self.frontier.memory()) || self.throttle.is_refreshing() {
            // How long a lane waits is known when all scopes have the present settings.
            return;
        }
        let mut evicted = Vec::new();
        let (throttle, now) = (&self.throttle, self.now);
        let pace = |lane| throttle.pace_of_lane(lane, now);
        let goes_on = self
            .frontier
            .evict(&mut evicted, pace, Spill::may_take, now);
        self.update_lanes();
        for Evicted { jobs, until } in evicted {
            for job in jobs {
                self.steering.searches().note_queued(&job.url);
                let origin = self.frontier.origin_key(&job.url).0;
                self.spill.put(origin, &job);
                self.spill.rest(origin, until);
            }
        }
        self.frontier.set_spilled(self.spill.len());
        self.wakeups.turn_again_if(goes_on);
    }
}
