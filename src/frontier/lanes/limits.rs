//! Limits of pages and bytes: of the whole crawl, of each host, and of each registrable domain.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{Frontier, LaneState, Next, Unsent};
use crate::base::ids::LaneId;
use crate::base::keys::HostKey;
use crate::base::secret::Secret;
use crate::frontier::domains::DomainStanding;
use crate::frontier::hosts::{HostId, PageCount};
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;

/// Lanes stopped by a page limit.
#[derive(Debug)]
pub(super) struct Limited {
    /// Stopped by the limit of the whole crawl.
    by_crawl: VecDeque<LaneId>,
    /// Number of `by_crawl` lanes to recheck since the last end of a request.
    due: usize,
    /// Stopped by the limit of their host: rechecked only when a request to that host ends.
    by_host: HashMap<HostId, Vec<LaneId>, Secret>,
    /// Stopped by the limit of pages of their domain: rechecked once a request to it may be sent, or none.
    by_domain: HashMap<HostKey, Vec<LaneId>, Secret>,
    /// From `by_host` and `by_domain`, to be rechecked.
    freed: VecDeque<LaneId>,
}

impl Limited {
    pub fn new(secret: &Secret) -> Self {
        Limited {
            by_crawl: VecDeque::new(),
            due: 0,
            by_host: HashMap::with_hasher(*secret),
            by_domain: HashMap::with_hasher(*secret),
            freed: VecDeque::new(),
        }
    }

    /// Returns whether lanes are to be rechecked.
    pub fn is_due(&self) -> bool {
        self.due > 0 || !self.freed.is_empty()
    }
}

/// Maximum number of lanes rechecked when a request ends; the others follow one by one
/// ([`Frontier::expire`]), so that no turn is long.
const RECHECKED_PER_END: usize = 8;

impl Frontier {
    /// Applies the limits. If that of the crawl is reached, the lane waits; if one of the host or its domain
    /// is, its first request ends unsent. `None` if none is.
    pub(super) fn check_page_limits(&mut self, lane: LaneId) -> Option<Next> {
        let max = self.settings.pages_max;
        if max > 0 && self.pages + self.pages_in_flight >= max {
            self.deactivate(lane, LaneState::Limited);
            self.limited.by_crawl.push_back(lane);
            return Some(Next::Later);
        }
        let host = self.host_of(lane);
        let max = self.page_limit_of(host);
        if max > 0 && self.hosts.page_count(host).pages >= max {
            return Some(Next::Unsent(self.pop(lane), Unsent::HostPages));
        }
        let why = match self.domain_of(lane).map(|key| self.domains.standing(key)) {
            Some(DomainStanding::Pages) => Some(Unsent::DomainPages),
            Some(DomainStanding::Bytes) => Some(Unsent::DomainBytes),
            Some(DomainStanding::Open | DomainStanding::Pending) | None => None,
        };
        if let Some(why) = why {
            return Some(Next::Unsent(self.pop(lane), why));
        }
        self.waits_for_place(lane).then(|| {
            self.deactivate(lane, LaneState::Limited);
            Next::Later
        })
    }

    /// Returns whether the pages in flight would reach a limit of the lane's host or domain; then the lane is
    /// rechecked after one of them.
    fn waits_for_place(&mut self, lane: LaneId) -> bool {
        let host = self.host_of(lane);
        if self.is_host_limit_pending(host) {
            self.limited.by_host.entry(host).or_default().push(lane);
            return true;
        }
        match self.domain_of(lane) {
            Some(domain) if self.domains.standing(domain) == DomainStanding::Pending => {
                self.limited.by_domain.entry(domain).or_default().push(lane);
                true
            }
            _ => false,
        }
    }

    /// The domain of a lane's host; `None` if domains are not counted.
    pub(super) fn domain_of(&self, lane: LaneId) -> Option<HostKey> {
        let are_counted = self.domains.are_counted();
        are_counted.then(|| self.domains.key_of(self.address_of(lane).1))
    }

    /// Bytes were received by an attempt of a lane.
    pub fn count_bytes(&mut self, lane: LaneId, bytes: u64) {
        if let Some(domain) = self.domain_of(lane) {
            self.domains.count_bytes(domain, bytes);
        }
    }

    /// After the end of a request: rechecks lanes stopped by page limits, up to [`RECHECKED_PER_END`]
    /// now and the others one by one.
    pub(super) fn offer_limited(&mut self, ended: LaneId) {
        if self.hosts.are_pages_counted() {
            let host = self.host_of(ended);
            let freed = self.limited.by_host.remove(&host);
            self.limited.freed.extend(freed.into_iter().flatten());
        }
        if let Some(domain) = self.domain_of(ended)
            && self.domains.standing(domain) != DomainStanding::Pending
        {
            let freed = self.limited.by_domain.remove(&domain);
            self.limited.freed.extend(freed.into_iter().flatten());
        }
        self.limited.due = self.limited.by_crawl.len();
        for _ in 0..RECHECKED_PER_END {
            if !self.limited.is_due() {
                return;
            }
            self.recheck_limited();
        }
    }

    /// Limits have changed: rechecks all lanes that they have stopped, one by one.
    pub(super) fn recheck_all_limited(&mut self) {
        let by_host =
            std::mem::replace(&mut self.limited.by_host, HashMap::with_hasher(self.secret));
        let by_domain = std::mem::replace(
            &mut self.limited.by_domain,
            HashMap::with_hasher(self.secret),
        );
        let by_host = by_host.into_values().flatten();
        let freed = by_host.chain(by_domain.into_values().flatten());
        self.limited.freed.extend(freed);
        self.limited.due = self.limited.by_crawl.len();
    }

    /// Rechecks the next lane, and offers it if no limit stops it.
    pub(super) fn recheck_limited(&mut self) {
        let max = self.settings.pages_max;
        let lane = match self.limited.freed.pop_front() {
            None if max > 0 && self.pages + self.pages_in_flight >= max => {
                // All wait for the next end of a request.
                self.limited.due = 0;
                return;
            }
            None => {
                self.limited.due = self.limited.due.saturating_sub(1);
                self.limited.by_crawl.pop_front()
            }
            freed => freed,
        };
        let Some(lane) =
            lane.filter(|lane| self.lanes[lane.0 as usize].state == LaneState::Limited)
        else {
            return;
        };
        if !self.waits_for_place(lane) {
            self.offer_lane(lane);
        }
    }

    /// Returns whether the pages in flight would reach the host's limit: no more is sent unless one of
    /// them fails.
    pub(super) fn is_host_limit_pending(&self, host: HostId) -> bool {
        let max = self.page_limit_of(host);
        let count = self.hosts.page_count(host);
        max > 0 && count.pages < max && count.pages + count.in_flight >= max
    }

    /// The limit of pages of a host: its own, or that of all; 0: none.
    pub(super) fn pages_max_of(&self, host: &str) -> u32 {
        let own = self.settings.own_hosts.pages_max(host);
        own.map_or(self.settings.pages_per_host_max, |(max, _)| max)
    }

    /// The same by the number of the host. Without a limit its name is not looked up.
    fn page_limit_of(&self, host: HostId) -> u32 {
        match self.hosts.are_pages_counted() {
            true => self.pages_max_of(self.hosts.name(host)),
            false => 0,
        }
    }

    /// An attempt is no longer in flight. `counts`: it fetched a page that counts against the limits.
    pub(super) fn uncount(&mut self, job: &Job, lane: LaneId, counts: bool) {
        if job.kind == PageKind::Page {
            self.pages_in_flight -= 1;
            if let Some(count) = self.page_count_mut(lane) {
                count.in_flight -= 1;
            }
            if let Some(domain) = self.domain_of(lane) {
                self.domains.end_page(domain, counts);
            }
        }
    }

    /// Page count of a lane's host; `None` if pages are not counted.
    pub(super) fn page_count_mut(&mut self, lane: LaneId) -> Option<&mut PageCount> {
        if !self.hosts.are_pages_counted() {
            return None;
        }
        let host = self.host_of(lane);
        Some(self.hosts.page_count_mut(host))
    }

    /// Number of pages fetched that count against the limits.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns whether `--max-pages` is reached.
    pub fn is_page_limit_reached(&self) -> bool {
        let max = self.settings.pages_max;
        max > 0 && self.pages >= max
    }
}
