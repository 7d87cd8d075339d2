//! How many pages the crawl may fetch, and of each host.

use super::{Frontier, Next, Stands, Unsent};
use crate::base::time::Instant;
use crate::frontier::hosts::{Given, HostId};
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::throttle::engine::{LaneId, Throttle};

impl Frontier {
    /// Page limits: the whole crawl's stops the lane for now, the host's ends what it has.
    pub(super) fn spent(&mut self, lane: LaneId, throttle: &Throttle) -> Option<Next> {
        let max = self.settings.pages_max;
        if max > 0 && self.pages + self.pages_in_flight >= max {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.push(lane);
            return Some(Next::Later);
        }
        let max = self.settings.pages_per_host_max;
        if max == 0 {
            return None;
        }
        let host = self.host_of(lane);
        if self.hosts.given(host).pages >= max {
            return Some(Next::Unsent(self.pop(lane, throttle), Unsent::HostPages));
        }
        if self.awaits_pages(host) {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.push(lane);
            return Some(Next::Later);
        }
        None
    }

    /// Offers the lanes that page limits stopped and stop no more.
    pub(super) fn offer_limited(&mut self, throttle: &mut Throttle, now: Instant) {
        let max = self.settings.pages_max;
        if self.limited.is_empty() || max > 0 && self.pages + self.pages_in_flight >= max {
            return;
        }
        for lane in std::mem::take(&mut self.limited) {
            if self.lanes[lane.0 as usize].stands != Stands::Limited {
                continue;
            }
            if self.awaits_pages(self.host_of(lane)) {
                self.limited.push(lane);
            } else {
                self.offer(lane, throttle, now);
            }
        }
    }

    /// Whether a host may give no more pages unless one of those on their way fails.
    pub(super) fn awaits_pages(&self, host: HostId) -> bool {
        let (max, given) = (self.settings.pages_per_host_max, self.hosts.given(host));
        max > 0 && given.pages < max && given.pages + given.in_flight >= max
    }

    pub(super) fn uncount(&mut self, job: &Job, lane: LaneId) {
        if job.kind == Kind::Page {
            self.pages_in_flight -= 1;
            if let Some(given) = self.given_mut(lane) {
                given.in_flight -= 1;
            }
        }
    }

    /// The pages of a lane's host, where they are counted.
    pub(super) fn given_mut(&mut self, lane: LaneId) -> Option<&mut Given> {
        if !self.hosts.counts_pages() {
            return None;
        }
        let host = self.host_of(lane);
        Some(self.hosts.given_mut(host))
    }

    /// Pages fetched that count against the limits.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether `--max-pages` is reached.
    pub fn is_spent(&self) -> bool {
        let max = self.settings.pages_max;
        max > 0 && self.pages >= max
    }
}
