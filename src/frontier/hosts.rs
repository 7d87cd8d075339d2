//! Hosts: the number of pages of each, and whether it fails.
//!
//! A host is held while an origin or a proxy of it is in use, and while it fails. Afterwards it is
//! forgotten: what the crawl remembers of it then is in `HostRecords`.

mod failures;

use std::time::Duration;

use self::failures::Failures;
pub use self::failures::{Health, HostFailure, HostVerdict};
use super::host_records::{HostRecord, HostRecords};
use super::settings::HostPolicy;
use crate::base::chunked::ChunkedVec;
use crate::base::intern::Interner;
use crate::base::keys::HostKey;
use crate::base::secret::Secret;
use crate::base::time::Instant;

/// A host, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// The hosts in use, by name and by number. Numbers of forgotten ones are reused.
#[derive(Debug)]
pub struct Hosts {
    names: Interner,
    hosts: ChunkedVec<Host>,
    /// Pages of each host; empty unless pages per host are limited.
    page_counts: ChunkedVec<PageCount>,
    pages_counted: bool,
    /// What is remembered of hosts for the whole crawl. The number of sitemaps is always here; the rest
    /// only while the host is forgotten.
    records: HostRecords,
    /// Hosts that may be forgotten. Some are in use again, and some are here twice.
    idle: Vec<HostId>,
    failures: Failures,
}

/// State of one host. There may be millions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// The host of a seed, or of a seed's redirect.
    pub is_seed: bool,
    /// Number of its ports that fail. [`u8::MAX`] is never left: the host stays for the crawl.
    failing: u8,
    /// Origins and proxies of it that are in use. [`u16::MAX`] is never left, as above.
    users: u16,
}

/// A host and a port, as connected to. Health is per port: a closed one does not affect another.
pub type HostPort = (HostId, u16);

/// Page count of one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageCount {
    /// Pages fetched.
    pub pages: u32,
    /// Pages being fetched.
    pub in_flight: u32,
}

impl Hosts {
    /// Creates an empty table. `secret` keys its hash tables.
    pub fn new(secret: &Secret) -> Self {
        Hosts {
            names: Interner::new(secret),
            hosts: ChunkedVec::new(),
            page_counts: ChunkedVec::new(),
            pages_counted: false,
            records: HostRecords::new(secret),
            idle: Vec::new(),
            failures: Failures::new(secret),
        }
    }

    /// Returns the host of a name, adding it if it is new. It must be [held](Hosts::hold) before the next
    /// call of [`Hosts::forget_idle`], or it is never forgotten.
    pub fn host(&mut self, name: &str) -> HostId {
        if let Some(id) = self.names.get(name) {
            return HostId(id);
        }
        let id = HostId(self.names.intern(name));
        self.hosts.grow_to(id.0 as usize + 1, Host::default);
        if !self.records.is_empty() {
            self.restore(id, name);
        }
        for _ in 0..self.failures.resume(id, name) {
            self.count_failing(id);
        }
        id
    }

    /// Saves failures for a later run from now on.
    pub fn start_saving(&mut self) {
        self.failures.start_saving();
    }

    /// The next failure that changed since it was saved: host and port, and its bytes; none if it is over.
    pub fn poll_failure(&mut self, now: Instant) -> Option<(String, Vec<u8>)> {
        let names = &self.names;
        self.failures
            .poll_saved(|host| names.get(host).map(HostId), now)
    }

    /// A failure that an earlier run saved `elapsed` ago, for when its host is needed. Returns false if it
    /// has no effect any more.
    pub fn restore_failure(
        &mut self,
        name: &str,
        saved: &[u8],
        elapsed: Duration,
        now: Instant,
    ) -> bool {
        self.failures.restore(name, saved, elapsed, now)
    }

    /// Takes back what was remembered of a host while it was forgotten.
    fn restore(&mut self, id: HostId, name: &str) {
        let key = self.records.key(name);
        let (is_seed, pages) = self.records.update(key, |record| {
            let is_seed = std::mem::take(&mut record.is_seed);
            (is_seed, std::mem::take(&mut record.pages))
        });
        self.get_mut(id).is_seed = is_seed;
        if pages > 0 {
            self.page_count_mut(id).pages = pages;
        }
    }

    /// Adds a user of a host, which is not forgotten until each has been [released](Hosts::release).
    pub fn hold(&mut self, id: HostId) {
        let host = self.get_mut(id);
        host.users = host.users.saturating_add(1);
    }

    /// Removes a user of a host.
    pub fn release(&mut self, id: HostId) {
        let host = self.get_mut(id);
        if host.users < u16::MAX {
            host.users -= 1;
            self.note_idle(id);
        }
    }

    fn note_idle(&mut self, id: HostId) {
        if self.get(id).is_idle() {
            self.idle.push(id);
        }
    }

    /// Called every turn: evicts idle hosts, at most [`FORGOTTEN_PER_TURN`], so that a turn stays short.
    pub fn forget_idle(&mut self, now: Instant) {
        self.drop_failures(now);
        for _ in 0..FORGOTTEN_PER_TURN {
            let Some(id) = self.idle.pop() else {
                return;
            };
            if self.get(id).is_idle() && self.names.is_used(id.0) {
                self.forget(id);
            }
        }
    }

    fn forget(&mut self, id: HostId) {
        let Host { is_seed, .. } = std::mem::take(self.get_mut(id));
        let count = self.page_counts.get_mut(id.0 as usize);
        let PageCount { pages, in_flight } = count.map(std::mem::take).unwrap_or_default();
        debug_assert_eq!(in_flight, 0, "a page in flight is of an origin in use");
        if is_seed || pages > 0 {
            let key = self.records.key(self.names.name(id.0));
            self.records.update(key, |record| {
                record.is_seed = is_seed;
                record.pages = pages;
            });
        }
        self.names.remove(id.0);
    }

    /// Drops failures of idle hosts some time after their holds ended.
    fn drop_failures(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_PER_TURN {
            let Some(host_port) = self.failures.pop_stale(now) else {
                return;
            };
            let is_used = self.get(host_port.0).users > 0;
            if !self.failures.keep(host_port, is_used, now) {
                self.reset(host_port);
            }
        }
    }

    /// Number of hosts held in memory, by name and by number.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Makes a host one of a seed.
    pub fn add_seed(&mut self, name: &str) {
        match self.names.get(name) {
            Some(id) => self.get_mut(HostId(id)).is_seed = true,
            None => {
                let key = self.records.key(name);
                self.records.update(key, |record| record.is_seed = true);
            }
        }
    }

    /// A host that no request names yet is a seed's.
    pub fn restore_seed(&mut self, key: HostKey) {
        self.records.update(key, |record| record.is_seed = true);
    }

    /// Adds the pages and sitemaps of a host that an earlier run counted, before the host is in use.
    pub fn restore_counts(&mut self, name: &str, pages: u64, sitemaps: u64) {
        let key = self.records.key(name);
        self.records.update(key, |record| {
            record.pages = u32::try_from(pages).unwrap_or(u32::MAX);
            record.sitemaps = u32::try_from(sitemaps).unwrap_or(u32::MAX);
        });
    }

    /// Whether a host is a seed's, and the pages counted of it, whether it is held or forgotten.
    pub fn standing(&self, name: &str) -> (bool, u32) {
        match self.names.get(name).map(HostId) {
            Some(id) => (self.get(id).is_seed, self.page_count(id).pages),
            None => {
                let HostRecord { is_seed, pages, .. } = self.records.get(name);
                (is_seed, pages)
            }
        }
    }

    /// Number of sitemaps counted of a host.
    pub fn sitemaps(&self, name: &str) -> u32 {
        self.records.get(name).sitemaps
    }

    /// Counts a sitemap of a host; returns the key by which it can be [uncounted](Hosts::uncount_sitemap).
    pub fn count_sitemap(&mut self, name: &str) -> HostKey {
        let key = self.records.key(name);
        let add = |record: &mut HostRecord| record.sitemaps = record.sitemaps.saturating_add(1);
        self.records.update(key, add);
        key
    }

    /// Uncounts a sitemap: it was seen before.
    pub fn uncount_sitemap(&mut self, host: HostKey) {
        let subtract =
            |record: &mut HostRecord| record.sitemaps = record.sitemaps.saturating_sub(1);
        self.records.update(host, subtract);
    }

    /// Turns on counting of pages, for a limit on pages per host.
    pub fn count_pages(&mut self) {
        self.pages_counted = true;
    }

    /// Page count of a host; zero if pages are not counted.
    pub fn page_count(&self, id: HostId) -> PageCount {
        let count = self.page_counts.get(id.0 as usize);
        count.copied().unwrap_or_default()
    }

    /// Returns whether pages are counted.
    pub fn are_pages_counted(&self) -> bool {
        self.pages_counted
    }

    /// Page count of a host, mutable. Call it only if pages are counted.
    pub fn page_count_mut(&mut self, id: HostId) -> &mut PageCount {
        self.page_counts
            .grow_to(id.0 as usize + 1, PageCount::default);
        &mut self.page_counts[id.0 as usize]
    }

    /// Returns the host of a name, if known.
    pub fn find(&self, name: &str) -> Option<HostId> {
        self.names.get(name).map(HostId)
    }

    /// The name of a host.
    pub fn name(&self, id: HostId) -> &str {
        self.names.name(id.0)
    }

    /// Reads the memory that a look-up of each of these hosts by name needs, one level of indirection
    /// for all before the next, so that cache misses overlap. The returned sum has no meaning.
    pub fn touch_names(&self, ids: &[u32]) -> u64 {
        let names = ids.iter().map(|id| self.names.name(*id));
        let mut sum: u64 = names.map(|name| name.len() as u64).sum();
        for id in ids {
            sum += u64::from(self.names.get(self.names.name(*id)).unwrap_or_default());
        }
        sum
    }

    /// State of a host.
    pub fn get(&self, id: HostId) -> &Host {
        &self.hosts[id.0 as usize]
    }

    fn get_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0 as usize]
    }

    /// Health of a host at `now`.
    pub fn health(&self, host_port: HostPort, now: Instant) -> Health {
        match self.get(host_port.0).failing {
            0 => Health::Up,
            _ => self.failures.health(host_port, now),
        }
    }

    /// Failures of a host since its last success, up to 255.
    pub fn failures_of(&self, host_port: HostPort) -> u8 {
        self.failures.count(host_port)
    }

    /// Records a failure. The host is held for `hold_min` after `failures_max` failures in a row, or after one
    /// request for robots.txt without an answer; each failure after a hold holds it for twice as long, up to
    /// `hold_max`. Of these failures, one `down_after` or more after the first of the row gives it up; no hold ends
    /// later than that.
    pub fn failed(
        &mut self,
        host_port: HostPort,
        how: HostFailure,
        policy: &HostPolicy,
        now: Instant,
    ) -> HostVerdict {
        if self.health(host_port, now) != Health::Up {
            // Its request was in flight when the host was held.
            return HostVerdict::Counted;
        }
        self.begin_failing(host_port, now);
        self.failures.failed(host_port, how, policy, now)
    }

    /// Gives a host up, whatever its failures. `is_unroutable`: this machine has no route to it.
    pub fn give_up(
        &mut self,
        host_port: HostPort,
        is_unroutable: bool,
        policy: &HostPolicy,
        now: Instant,
    ) {
        self.begin_failing(host_port, now);
        self.failures.give_up(host_port, is_unroutable, policy, now);
    }

    /// Makes a host one that fails.
    fn begin_failing(&mut self, host_port: HostPort, now: Instant) {
        let (id, _) = host_port;
        debug_assert!(
            self.names.is_used(id.0),
            "a host that is connected to is in use"
        );
        if (self.failures).begin(host_port, self.names.name(id.0), now) {
            self.count_failing(id);
        }
    }

    /// A further port of a host fails.
    fn count_failing(&mut self, id: HostId) {
        let host = self.get_mut(id);
        host.failing = host.failing.saturating_add(1);
    }

    /// See [`Frontier::discount_time`](crate::frontier::Frontier::discount_time).
    pub fn discount_all(&mut self, span: Duration) {
        self.failures.discount_all(span);
    }

    /// See [`Frontier::discount_host_time`](crate::frontier::Frontier::discount_host_time).
    pub fn discount(&mut self, host_port: HostPort, since: Instant, now: Instant) {
        self.failures.discount(host_port, since, now);
    }

    /// Returns `now` on a clock that stops while the crawl itself can send nothing.
    pub fn active_time(&self, now: Instant) -> Instant {
        self.failures.active_time(now)
    }

    /// Stops or restarts the clock of [`Hosts::active_time`].
    pub fn set_stopped(&mut self, is_stopped: bool, now: Instant) {
        self.failures.set_stopped(is_stopped, now);
    }

    /// Records a connection: a success, unless the host has accepted connections without answering.
    pub fn connected(&mut self, host_port: HostPort) {
        if self.get(host_port.0).failing > 0 && !self.failures.is_unresponsive(host_port) {
            self.reset(host_port);
        }
    }

    /// Records an answer: a success.
    pub fn answered(&mut self, host_port: HostPort) {
        if self.get(host_port.0).failing > 0 {
            self.reset(host_port);
        }
    }

    fn reset(&mut self, host_port: HostPort) {
        let (id, _) = host_port;
        if self.failures.end(host_port, self.names.name(id.0)) {
            let host = self.get_mut(id);
            if host.failing < u8::MAX {
                host.failing -= 1;
                self.note_idle(id);
            }
        }
    }

    /// Number of hosts held at `now`, and when the first of these holds ends. Expired holds not yet
    /// [removed](Hosts::expire) are few.
    pub fn held(&self, now: Instant) -> (usize, Option<Instant>) {
        self.failures.held(now)
    }

    /// Removes expired holds, at most [`EXPIRED_PER_TURN`](failures::EXPIRED_PER_TURN), so that a turn stays
    /// short.
    pub fn expire(&mut self, now: Instant) {
        self.failures.expire(now);
    }
}

#[cfg(test)]
impl Hosts {
    /// Asserts that the hosts in memory are those with these users, those that fail, and those that are
    /// about to be forgotten; returns how many of the last there are.
    pub fn check(&self, users: impl Iterator<Item = HostId>) -> usize {
        let mut count = vec![0; self.names.id_bound()];
        users.for_each(|id| count[id.0 as usize] += 1);
        let mut failing = vec![0; self.names.id_bound()];
        (self.failures.hosts()).for_each(|id| failing[id.0 as usize] += 1);
        let mut idle = 0;
        for id in (0..self.names.id_bound() as u32).map(HostId) {
            let host = self.get(id);
            assert_eq!(usize::from(host.users), count[id.0 as usize], "{id:?}");
            assert_eq!(usize::from(host.failing), failing[id.0 as usize], "{id:?}");
            if !self.names.is_used(id.0) {
                assert!(host.is_idle() && !host.is_seed, "{id:?} has no name");
                assert_eq!(self.page_count(id).pages, 0, "{id:?} has no name");
            } else if host.is_idle() {
                assert!(self.idle.contains(&id), "{id:?} is never forgotten");
                idle += 1;
            }
        }
        idle
    }
}

impl Host {
    fn is_idle(&self) -> bool {
        self.users == 0 && self.failing == 0
    }
}

/// Maximum number of hosts forgotten, and of failures dropped, per call of [`Hosts::forget_idle`]: each
/// takes less than a microsecond. More hosts become idle in a turn only where many lanes are emptied.
pub const FORGOTTEN_PER_TURN: usize = 64;

#[cfg(test)]
mod tests;
