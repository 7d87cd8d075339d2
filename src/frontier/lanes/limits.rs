//! How many pages the crawl may fetch, and of each host.

use super::{Frontier, Next, Stands, Unsent};
use crate::base::time::Instant;
use crate::frontier::hosts::{Given, HostId};
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::throttle::engine::{LaneId, Throttle};

/// Lanes looked at when a request has ended; the others follow one by one ([`Frontier::expire`]), so that
/// the work for each request does not grow with their number.
const LIMITED_AT_ONCE: usize = 8;

impl Frontier {
    /// Page limits: the whole crawl's stops the lane for now, the host's ends what it has.
    pub(super) fn spent(&mut self, lane: LaneId, throttle: &Throttle) -> Option<Next> {
        let max = self.settings.pages_max;
        if max > 0 && self.pages + self.pages_in_flight >= max {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.push_back(lane);
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
            self.limited.push_back(lane);
            return Some(Next::Later);
        }
        None
    }

    /// A request has ended: offers the lanes that page limits stopped and stop no more, the first now
    /// and the others by and by.
    pub(super) fn offer_limited(&mut self, throttle: &mut Throttle, now: Instant) {
        self.limited_due = self.limited.len();
        for _ in 0..LIMITED_AT_ONCE.min(self.limited_due) {
            self.look_at_limited(throttle, now);
        }
    }

    /// Looks at the next of them, and offers it if nothing stops it.
    pub(super) fn look_at_limited(&mut self, throttle: &mut Throttle, now: Instant) {
        let max = self.settings.pages_max;
        if max > 0 && self.pages + self.pages_in_flight >= max {
            // They all wait for the next end.
            self.limited_due = 0;
            return;
        }
        self.limited_due = self.limited_due.saturating_sub(1);
        let Some(lane) = self.limited.pop_front() else {
            return;
        };
        if self.lanes[lane.0 as usize].stands != Stands::Limited {
            return;
        }
        match self.awaits_pages(self.host_of(lane)) {
            true => self.limited.push_back(lane),
            false => self.offer(lane, throttle, now),
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
