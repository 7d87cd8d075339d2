//! What of the frontier a later run of the crawl continues with.

use std::time::Duration;

use super::Frontier;
use crate::base::ids::LaneId;
use crate::base::named::{NamedValues, Reviewed};
use crate::base::time::{Instant, Wall};
use crate::frontier::robots::RobotsResult;
use crate::frontier::saved_counts::{CountOf, Counts};
use crate::frontier::saved_robots::Valid;
use crate::frontier::settings::FrontierSettings;
use crate::wire::url::{CrawlUrl, registrable};

impl Frontier {
    /// Saves what is learned from now on.
    pub fn start_saving(&mut self) {
        self.hosts.start_saving();
        if self.settings.robots_obey {
            self.saved_robots.start();
        }
        let is_limited = self.hosts.are_pages_counted() || self.domains.are_counted();
        if is_limited || self.settings.sitemaps_per_host_max > 0 {
            self.changed_counts.start();
        }
    }

    /// Notes that counts of a lane's host and domain may have changed.
    pub(super) fn note_counts(&mut self, lane: LaneId) {
        let host = self.address_of(lane).1;
        let (host, domain) = (Box::from(host), Box::from(registrable(host)));
        if self.hosts.are_pages_counted() {
            self.changed_counts.add(CountOf::Host(host));
        }
        if self.domains.are_counted() {
            self.changed_counts.add(CountOf::Domain(domain));
        }
    }

    /// The next counts of a host or a domain that changed since they were saved, with their name.
    pub fn poll_counts(&mut self) -> Option<(String, Counts)> {
        let of = self.changed_counts.poll()?;
        let counts = match &of {
            CountOf::Host(name) => Counts {
                pages: self.hosts.standing(name).1.into(),
                sitemaps: self.hosts.sitemaps(name).into(),
                ..Counts::default()
            },
            CountOf::Domain(name) => self.domains.counts(self.domains.key_of(name)),
        };
        Some((of.name(), counts))
    }

    /// Number of hosts and domains whose counts changed since they were saved.
    pub fn changed_counts(&self) -> usize {
        self.changed_counts.len()
    }

    /// Continues with the counts that an earlier run saved under a name.
    pub fn restore_counts(&mut self, name: &str, counts: Counts) {
        match CountOf::of_name(name) {
            None => self.pages = counts.pages,
            Some(CountOf::Host(name)) => {
                let pages = match self.hosts.are_pages_counted() {
                    true => counts.pages,
                    false => 0,
                };
                self.hosts.restore_counts(&name, pages, counts.sitemaps);
            }
            Some(CountOf::Domain(name)) => {
                let key = self.domains.key_of(&name);
                self.domains.restore(key, counts);
            }
        }
    }

    /// The next failure of a host that changed since it was saved, by host and port. No bytes: it is over.
    pub fn poll_failure(&mut self, now: Instant) -> Option<(String, Vec<u8>)> {
        self.hosts.poll_failure(now)
    }

    /// A failure that an earlier run saved `elapsed` ago. Returns false if it has no effect any more.
    pub fn restore_failure(
        &mut self,
        name: &str,
        saved: &[u8],
        elapsed: Duration,
        now: Instant,
    ) -> bool {
        self.hosts.restore_failure(name, saved, elapsed, now)
    }

    /// The next result of a robots.txt fetch to be saved, with its origin.
    pub fn poll_robots(&mut self) -> Option<(String, Vec<u8>)> {
        self.saved_robots.poll()
    }

    /// The results that an earlier run saved, for when their origins are needed. `now`: also by the system's clock.
    pub fn restore_robots(&mut self, results: NamedValues, now: (Instant, Wall)) {
        let most = self.settings.robots_memory;
        self.saved_robots.restore(results, now, most);
    }

    /// Reviews the next of these results whose origin is not in use: it is dropped if it is no longer valid. `None`:
    /// all were reviewed.
    pub fn review_robots(&mut self, now: Instant) -> Option<Reviewed> {
        self.saved_robots.review(valid(&self.settings), now)
    }

    /// The sink has the page of an attempt to fetch a robots.txt. Returns whether its result is saved by a commit.
    pub fn report_robots(&mut self, attempt: u64) -> bool {
        self.saved_robots.report(attempt)
    }

    /// A commit begins of what the sink has got until now.
    pub fn begin_commit(&mut self) {
        self.saved_robots.begin_commit();
    }

    /// The commit under way is durable.
    pub fn handle_committed(&mut self) {
        self.saved_robots.handle_committed();
    }

    /// Whether results of robots.txt fetches wait for a commit.
    pub fn waits_for_commit(&self) -> bool {
        self.saved_robots.waits_for_commit()
    }

    /// Saves the result that an attempt brought, unless the origin is reached by a route of its own.
    pub(super) fn save_robots(
        &mut self,
        attempt: u64,
        origin: u32,
        result: &RobotsResult,
        lifetime: Duration,
    ) {
        if self.origins.has_route(origin) {
            return;
        }
        let name = self.origin_name(origin);
        let fetched = Valid {
            lifetime,
            ..valid(&self.settings)
        };
        self.saved_robots.add(attempt, &name, result, fetched);
    }

    /// The name of an origin: `http://a.test:81`.
    pub fn origin_name(&self, origin: u32) -> String {
        let slot = self.origins.get(origin);
        let (is_https, port) = slot.scheme_and_port();
        let url = CrawlUrl::from_parts(is_https, self.hosts.name(slot.host), port, "/");
        url.origin().to_owned()
    }

    /// Continues with the robots.txt of an origin that an earlier run fetched.
    pub(super) fn continue_robots(&mut self, origin: u32, url: &CrawlUrl) {
        let valid = valid(&self.settings);
        if let Some((result, until)) = self.saved_robots.take(url.origin(), valid) {
            self.apply_robots(origin, result, until);
        }
    }
}

/// Which results of earlier runs are valid.
fn valid(settings: &FrontierSettings) -> Valid<'_> {
    let lifetime = match settings.robots_obey {
        true => settings.robots_lifetime,
        false => Duration::ZERO,
    };
    Valid {
        agent: &settings.robots_agent,
        lifetime,
        has_sitemaps: settings.sitemaps,
    }
}
