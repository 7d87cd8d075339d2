//! How many pages the crawl may fetch, and of each host.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{Frontier, Next, Stands, Unsent};
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::frontier::hosts::{Given, HostId};
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::throttle::engine::{LaneId, Throttle};

/// Lanes that a page limit stopped.
#[derive(Debug)]
pub(super) struct Limited {
    /// By the limit of the whole crawl.
    by_crawl: VecDeque<LaneId>,
    /// How many of these are to be looked at since the last end.
    due: usize,
    /// By the limit of their host: only an end there changes that.
    by_host: HashMap<HostId, Vec<LaneId>, Secret>,
    /// Those of hosts of which a request has ended, to be looked at.
    freed: VecDeque<LaneId>,
}

impl Limited {
    pub fn new(secret: &Secret) -> Self {
        Limited {
            by_crawl: VecDeque::new(),
            due: 0,
            by_host: HashMap::with_hasher(*secret),
            freed: VecDeque::new(),
        }
    }

    /// Whether some are to be looked at.
    pub fn is_due(&self) -> bool {
        self.due > 0 || !self.freed.is_empty()
    }
}

/// Lanes looked at when a request has ended; the others follow one by one ([`Frontier::expire`]), so that
/// no turn is long.
const LIMITED_AT_ONCE: usize = 8;

impl Frontier {
    /// Page limits: the whole crawl's stops the lane for now, the host's ends what it has.
    pub(super) fn spent(&mut self, lane: LaneId, throttle: &Throttle) -> Option<Next> {
        let max = self.settings.pages_max;
        if max > 0 && self.pages + self.pages_in_flight >= max {
            self.lanes[lane.0 as usize].stands = Stands::Limited;
            self.limited.by_crawl.push_back(lane);
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
            self.limited.by_host.entry(host).or_default().push(lane);
            return Some(Next::Later);
        }
        None
    }

    /// A request of a lane has ended: offers the lanes that page limits stopped and stop no more, the
    /// first now and the others one by one.
    pub(super) fn offer_limited(&mut self, ended: LaneId, throttle: &mut Throttle, now: Instant) {
        if self.settings.pages_per_host_max > 0 {
            let host = self.host_of(ended);
            let freed = self.limited.by_host.remove(&host);
            self.limited.freed.extend(freed.into_iter().flatten());
        }
        self.limited.due = self.limited.by_crawl.len();
        for _ in 0..LIMITED_AT_ONCE {
            if !self.limited.is_due() {
                return;
            }
            self.look_at_limited(throttle, now);
        }
    }

    /// Looks at the next of them, and offers it if nothing stops it.
    pub(super) fn look_at_limited(&mut self, throttle: &mut Throttle, now: Instant) {
        let max = self.settings.pages_max;
        let lane = match self.limited.freed.pop_front() {
            None if max > 0 && self.pages + self.pages_in_flight >= max => {
                // They all wait for the next end.
                self.limited.due = 0;
                return;
            }
            None => {
                self.limited.due = self.limited.due.saturating_sub(1);
                self.limited.by_crawl.pop_front()
            }
            freed => freed,
        };
        let Some(lane) = lane.filter(|lane| self.lanes[lane.0 as usize].stands == Stands::Limited)
        else {
            return;
        };
        let host = self.host_of(lane);
        match self.awaits_pages(host) {
            true => self.limited.by_host.entry(host).or_default().push(lane),
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
