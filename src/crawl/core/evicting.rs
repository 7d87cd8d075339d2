//! Requests of lanes that wait for long leave memory to others.

use crate::crawl::core::Core;
use crate::crawl::spill::{ScopeNames, Spill};
use crate::frontier::Evicted;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Moves requests of lanes that wait for long to files, while others wait there for room.
    pub fn evict_waiting(&mut self) {
        if !self.spill.wants_room(self.frontier.memory()) || self.throttle.is_refreshing() {
            // How long a lane waits is known when all scopes have the present settings.
            return;
        }
        if self.is_removing() {
            // What was cancelled is looked for in memory.
            return;
        }
        let mut evicted = Vec::new();
        let (throttle, now) = (&self.throttle, self.now);
        let pace = |lane| throttle.pace_of_lane(lane, now);
        let goes_on = self
            .frontier
            .evict(&mut evicted, pace, Spill::may_take, now);
        // Lanes without requests may be closed.
        let scopes = evicted.iter().map(|evicted| self.scopes_at_rest(evicted));
        let scopes: Vec<ScopeNames> = scopes.collect();
        self.update_lanes();
        for (Evicted { jobs, until, .. }, scopes) in evicted.into_iter().zip(scopes) {
            for job in jobs {
                self.steering.searches().note_queued(&job.url);
                let origin = self.frontier.origin_key(&job.url).0;
                self.spill.put(origin, &job);
                self.spill.rest(origin, until, scopes);
            }
        }
        self.frontier.set_spilled(self.spill.len());
        self.wakeups.turn_again_if(goes_on);
    }

    /// The names of the scopes for which requests that leave memory have waited.
    fn scopes_at_rest(&self, evicted: &Evicted) -> ScopeNames {
        let mut names = ScopeNames::default();
        // Whether its Crawl-delay applies depends on the settings of the host, which may have a scope elsewhere.
        let host = evicted.jobs.first().map(|job| job.url.scope_key());
        host.iter().for_each(|host| names.add(host));
        for scope in self.throttle.lane_scopes(evicted.lane) {
            names.add(self.throttle.scope_name(*scope));
        }
        names
    }
}
