//! What of the frontier a later run of the crawl continues with.

use std::time::Duration;

use super::Frontier;
use crate::base::time::Instant;
use crate::frontier::robots::RobotsResult;
use crate::frontier::saved_robots::Age;
use crate::wire::url::CrawlUrl;

impl Frontier {
    /// Saves what is learned from now on.
    pub fn start_saving(&mut self) {
        if self.settings.robots_obey {
            self.saved_robots.start();
        }
    }

    /// The next result of a robots.txt fetch to be saved, with its origin.
    pub fn poll_robots(&mut self) -> Option<(String, Vec<u8>)> {
        self.saved_robots.poll()
    }

    /// A result that an earlier run saved `elapsed` ago, for when its origin is needed. Returns false if it
    /// is no longer valid.
    pub fn restore_robots(
        &mut self,
        origin: &str,
        saved: &[u8],
        elapsed: Duration,
        now: Instant,
    ) -> bool {
        let settings = &self.settings;
        let age = Age {
            elapsed,
            lifetime: settings.robots_lifetime,
            now,
        };
        let (agent, most) = (&*settings.robots_agent, settings.robots_memory);
        let robots = &mut self.saved_robots;
        settings.robots_obey && robots.restore(origin, saved, agent, age, most)
    }

    /// Saves a result, unless the origin is reached by a route of its own.
    pub(super) fn save_robots(&mut self, origin: u32, result: &RobotsResult, lifetime: Duration) {
        if self.origins.has_route(origin) {
            return;
        }
        let slot = self.origins.get(origin);
        let (is_https, port) = slot.scheme_and_port();
        let url = CrawlUrl::from_parts(is_https, self.hosts.name(slot.host), port, "/");
        let agent = &self.settings.robots_agent;
        self.saved_robots.add(url.origin(), result, agent, lifetime);
    }

    /// Continues with the robots.txt of an origin that an earlier run fetched.
    pub(super) fn continue_robots(&mut self, origin: u32, url: &CrawlUrl) {
        let agent = &self.settings.robots_agent;
        if let Some((result, until)) = self.saved_robots.take(url.origin(), agent) {
            self.apply_robots(origin, result, until);
        }
    }
}
