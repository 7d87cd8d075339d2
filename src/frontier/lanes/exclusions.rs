//! Hosts that are excluded while the crawl runs.

use super::Frontier;
use crate::base::ids::LaneId;
use crate::frontier::filter::is_excluded;

/// Most exclusions by order: each release compares them.
pub const EXCLUSIONS_MAX: usize = 1000;

/// A host or `*.domain` is excluded from now on: nothing is admitted, and what is queued ends when its lane is
/// released.
impl Frontier {
    /// Excludes a host or domain. Returns false if it was excluded by an order before, or if there are
    /// [`EXCLUSIONS_MAX`].
    pub fn exclude(&mut self, entry: &str) -> bool {
        let is_known = self.excluded.iter().any(|known| known == entry);
        if is_known || self.excluded.len() >= EXCLUSIONS_MAX {
            return false;
        }
        self.excluded.push(entry.to_owned());
        self.settings.exclude_hosts.push(entry.to_owned());
        true
    }

    /// Withdraws an exclusion that was ordered; returns false if there is none.
    pub fn include(&mut self, entry: &str) -> bool {
        let Some(at) = self.excluded.iter().position(|known| known == entry) else {
            return false;
        };
        self.excluded.remove(at);
        // The last one is the order's: the settings may have the same.
        let all = &mut self.settings.exclude_hosts;
        if let Some(at) = all.iter().rposition(|known| known == entry) {
            all.remove(at);
        }
        true
    }

    /// The exclusions by order.
    pub fn excluded(&self) -> &[String] {
        &self.excluded
    }

    /// Whether the host of a lane was excluded by an order.
    pub fn is_excluded(&self, lane: LaneId) -> bool {
        !self.excluded.is_empty() && is_excluded(&self.excluded, self.origin_host(lane))
    }
}
