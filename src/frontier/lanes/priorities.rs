//! Priorities of hosts that are ordered while a crawl runs: they add to those of requests.

use std::collections::BTreeMap;

use super::{Frontier, LaneState};
use crate::base::ids::LaneId;
use crate::frontier::origins::NO_LANE;
use crate::frontier::queued::Queued;

/// Priorities of hosts are from the negative of this to this.
pub const HOST_PRIORITY_MAX: i32 = 1000;

/// Most hosts with a priority by order.
pub const HOST_PRIORITIES_MAX: usize = 1000;

impl Frontier {
    /// Adds this priority to that of all requests to a host, from now on; 0 removes it. Its queues wait by the new
    /// one at once. Among more than [`SWEPT_MAX`] lanes, those of unusual ports and of further scopes follow with the
    /// next change of their first request. Returns false if too many hosts have one.
    pub fn set_host_priority(&mut self, host: &str, priority: i32) -> bool {
        if priority == 0 {
            self.host_priorities.remove(host);
        } else if self.host_priorities.len() < HOST_PRIORITIES_MAX
            || self.host_priorities.contains_key(host)
        {
            self.host_priorities.insert(host.to_owned(), priority);
        } else {
            return false;
        }
        for lane in self.lanes_of(host) {
            match self.lanes[lane.0 as usize].state {
                LaneState::Parked => self.update_parked(lane, None),
                LaneState::Offered => self.offer_active(lane),
                _ => {}
            }
        }
        true
    }

    /// The hosts with a priority by order.
    pub fn host_priorities(&self) -> &BTreeMap<String, i32> {
        &self.host_priorities
    }

    /// The priority by which a lane waits: that of its first request, and its host's.
    pub(super) fn priority_of(&self, lane: LaneId, front: Option<&Queued>) -> i32 {
        let own = front.map_or(0, Queued::priority);
        match self.host_priorities.is_empty() {
            true => own,
            false => {
                let of_host = self.host_priorities.get(self.origin_host(lane));
                own.saturating_add(of_host.copied().unwrap_or(0))
            }
        }
    }

    /// The lanes of a host; of very many lanes, only the first one of each usual origin.
    fn lanes_of(&self, host: &str) -> Vec<LaneId> {
        if self.lanes.len() <= SWEPT_MAX {
            let all = (0..self.lanes.len() as u32).map(LaneId);
            let is_its = |lane: &LaneId| {
                let is_open = self.lanes[lane.0 as usize].state != LaneState::Closed;
                is_open && self.origin_host(*lane) == host
            };
            return all.filter(is_its).collect();
        }
        let numbers = self.origin_numbers_of(host, None).into_iter();
        let lanes = numbers.map(|number| self.origins.get(number).lane);
        lanes.filter(|lane| *lane != NO_LANE).collect()
    }
}

/// So many lanes are looked at for one order.
const SWEPT_MAX: usize = 16_384;
