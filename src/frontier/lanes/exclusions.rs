//! Requests that are excluded by order: none is admitted, and what is queued ends when its lane is released.

use super::Frontier;
use crate::base::ids::LaneId;
use crate::frontier::exclusion::{Exclusion, Exclusions};
use crate::frontier::request::PageKind;
use crate::wire::url::CrawlUrl;

impl Frontier {
    /// Excludes something from now on. Returns false if it was excluded by an order before, or if there are too
    /// many exclusions.
    pub fn exclude(&mut self, exclusion: &Exclusion) -> bool {
        self.excluded.add(exclusion)
    }

    /// Withdraws an exclusion that was ordered; returns false if there is none.
    pub fn include(&mut self, exclusion: &Exclusion) -> bool {
        self.excluded.remove(exclusion)
    }

    /// The exclusions by order.
    pub fn excluded(&self) -> &Exclusions {
        &self.excluded
    }

    /// Whether the configuration excludes a host since the run began.
    pub fn is_host_excluded_since(&self, host: &str) -> bool {
        self.excluded_since.contains(host)
    }

    /// Whether the first request of a lane was excluded since the run began. A pattern does not exclude a robots.txt,
    /// which other URLs need.
    pub fn is_front_excluded(&mut self, lane: LaneId) -> bool {
        if !self.has_queued(lane) {
            return false;
        }
        if self.is_host_excluded_since(self.origin_host(lane)) {
            return true;
        }
        if self.excluded.texts().is_empty() {
            return false;
        }
        if self.excluded.exclude_host(self.origin_host(lane)) {
            return true;
        }
        let front = self.lanes[lane.0 as usize].queue.peek();
        let front = front.filter(|front| front.kind() != PageKind::Robots);
        let Some(front) = front.filter(|_| self.excluded.have_patterns()) else {
            return false;
        };
        let (is_https, host, port) = self.address_of(lane);
        let url = CrawlUrl::from_parts(is_https, host, port, front.target());
        let steps = self.excluded.pattern_steps(url.as_str());
        let is_excluded = self.excluded.match_pattern(url.as_str());
        self.rules.add_steps(steps);
        is_excluded
    }
}
