//! Hosts: the number of pages of each, and its health.
//!
//! A host is held while an origin or a proxy of it is in use, and while it fails. Afterwards it is
//! forgotten: what the crawl remembers of it then is in `HostRecords`.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;

use super::host_records::{HostRecord, HostRecords};
use super::saved_hosts::{SavedFailure, SavedHosts};
use crate::base::chunked::ChunkedVec;
use crate::base::intern::Interner;
use crate::base::keys::HostKey;
use crate::base::secret::Secret;
use crate::base::time::Instant;

/// A host, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// The hosts in use, by name and by number. Numbers of forgotten ones are reused.
///
/// ```text
///        five failures in a row,             a failure, HOST_DOWN_AFTER
///        or no answer for robots.txt         after the first of them
/// Up ───────────────────────────────► Held ───────────────────────────► Down
///  ▲                                   │ ▲                               │
///  │                        hold over  ▼ │ a failure: twice as long      │
///  └──────────── a success ◄────────── Up (one more try) ◄───────────────┘ 15 min later
/// ```
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
    /// Those that failed since their last success.
    failing: HashMap<HostPort, Failing, Secret>,
    /// When each of `failing` is to be checked, to drop it if its host is idle.
    stale: BTreeSet<(Instant, HostPort)>,
    /// Held ones, by the end of the hold, each once. Expired holds are removed by [`Hosts::expire`].
    held: BTreeSet<(Instant, HostPort)>,
    /// Failures for a later run, and those of an earlier one.
    saved: SavedHosts,
    /// Total time in which the crawl itself could send nothing, until `stopped_since`.
    stopped: Duration,
    /// Since when the crawl can send nothing; `None` while it can.
    stopped_since: Option<Instant>,
}

/// State of one host. There may be millions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// The host of a seed, or of a seed's redirect.
    pub is_seed: bool,
    /// Entries of its ports in `failing`. [`u8::MAX`] is never left: the host stays for the crawl.
    failing: u8,
    /// Origins and proxies of it that are in use. [`u16::MAX`] is never left, as above.
    users: u16,
}

/// A host and a port, as connected to. Health is per port: a closed one does not affect another.
pub type HostPort = (HostId, u16);

/// A host that failed since its last success.
#[derive(Clone, Copy, Debug)]
struct Failing {
    /// The first failure in the row, in [active time](Hosts::active_time).
    since: Instant,
    /// Time from that in earlier runs of the crawl.
    earlier: Duration,
    /// Failures since the last success.
    failures: u8,
    /// Holds since the last success; [`GIVEN_UP`] after it was given up.
    holds: u8,
    /// End of its hold, or of the time that it stays given up; in the past while it may be tried.
    until: Instant,
    /// It accepts connections but answers nothing: a connection alone is not a success.
    is_unresponsive: bool,
    /// Number of times it was given up.
    given_up: u8,
    /// It was given up because this machine has no route to it.
    is_unroutable: bool,
    /// End of the last discounted span, in active time.
    discounted_until: Instant,
    /// When it is to be checked, as in `stale`.
    checked_at: Instant,
}

/// Page count of one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageCount {
    /// Pages fetched.
    pub pages: u32,
    /// Pages being fetched.
    pub in_flight: u32,
}

/// Health of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It may be asked.
    Up,
    /// It failed: not to be asked before this time.
    Held(Instant),
    /// It was given up: its URLs end as `host_down`, or as `robots.unreachable` where its robots.txt
    /// never came.
    Down,
    /// It was given up because this machine has no route to it: its URLs end as `connect.unreachable`.
    Unroutable,
}

/// Kind of a host's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFailure {
    /// Its name could not be resolved, or it could not be connected to.
    Unconnected,
    /// Its robots.txt got no answer, before or after a connection.
    Unanswered,
}

/// Result of recording a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostVerdict {
    /// The failure is counted, without effect so far; or its request was in flight when an earlier
    /// failure caused a hold.
    Counted,
    /// The host is held for this long.
    Held(Duration),
    /// The host is given up, after this long without a success.
    GivenUp(Duration),
}

/// Number of failures in a row after which a host is held.
const FAILURES_MAX: u8 = 5;
/// The first hold; each further one is twice as long.
const HOLD_MIN: Duration = Duration::from_secs(5);
/// The longest hold, and how long a host stays given up the first time. Then one request tries again; if
/// it fails, the host stays given up for twice as long.
const HOLD_MAX: Duration = Duration::from_secs(15 * 60);
/// Maximum time that a host stays given up.
const DOWN_MAX: Duration = Duration::from_secs(24 * 3600);
/// Value of [`Failing::holds`] for a host that was given up.
const GIVEN_UP: u8 = u8::MAX;

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
            failing: HashMap::with_hasher(*secret),
            stale: BTreeSet::new(),
            held: BTreeSet::new(),
            saved: SavedHosts::new(secret),
            stopped: Duration::ZERO,
            stopped_since: None,
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
        self.continue_failing(id, name);
        id
    }

    /// Saves failures for a later run from now on.
    pub fn start_saving(&mut self) {
        self.saved.start();
    }

    /// The next failure that changed since it was saved: host and port, and its bytes; none if it is over.
    pub fn poll_failure(&mut self, now: Instant) -> Option<(String, Vec<u8>)> {
        let (host, port) = self.saved.poll()?;
        let id = self.names.get(&host).map(HostId);
        let failing = id.and_then(|id| self.failing.get(&(id, port)));
        let failing = failing.filter(|failing| !failing.is_unroutable);
        let bytes = failing.map(|failing| {
            let span = self.active_time(now).saturating_since(failing.since);
            let failure = SavedFailure {
                failures: failing.failures,
                holds: failing.holds,
                given_up: failing.given_up,
                is_unresponsive: failing.is_unresponsive,
                span: span + failing.earlier,
                left: failing.until.saturating_since(now),
            };
            failure.encode()
        });
        Some((format!("{host}:{port}"), bytes.unwrap_or_default()))
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
        self.saved.restore(name, saved, elapsed, HOLD_MAX, now)
    }

    /// Continues with the failures of a new host that an earlier run saved.
    fn continue_failing(&mut self, id: HostId, name: &str) {
        for earlier in self.saved.take(name) {
            let host_port = (id, earlier.port);
            let SavedFailure {
                failures, holds, ..
            } = earlier.failure;
            let failing = Failing {
                since: self.active_time(earlier.resumed_at),
                earlier: earlier.failure.span,
                failures,
                holds,
                until: earlier.until,
                is_unresponsive: earlier.failure.is_unresponsive,
                given_up: earlier.failure.given_up,
                is_unroutable: false,
                discounted_until: Instant::START,
                checked_at: earlier.until + HOLD_MAX,
            };
            if (1..GIVEN_UP).contains(&holds) {
                self.held.insert((failing.until, host_port));
            }
            self.stale.insert((failing.checked_at, host_port));
            if self.failing.insert(host_port, failing).is_none() {
                let host = self.get_mut(id);
                host.failing = host.failing.saturating_add(1);
            }
        }
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

    /// Drops failures of idle hosts [`HOLD_MAX`] after their holds ended.
    fn drop_failures(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_PER_TURN {
            let Some((_, host_port)) = self.stale.first().copied().filter(|(at, _)| *at <= now)
            else {
                return;
            };
            self.stale.pop_first();
            let is_used = self.get(host_port.0).users > 0;
            let failing = self.failing.get_mut(&host_port);
            let failing = failing.expect("a failure is dropped together with its entry here");
            failing.checked_at = match is_used {
                true => now + HOLD_MAX,
                false => failing.until + HOLD_MAX,
            };
            if failing.checked_at > now {
                self.stale.insert((failing.checked_at, host_port));
            } else {
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
        if self.get(host_port.0).failing == 0 {
            return Health::Up;
        }
        match self.failing.get(&host_port) {
            Some(failing) if failing.until <= now => Health::Up,
            Some(failing) if failing.holds < GIVEN_UP => Health::Held(failing.until),
            Some(failing) if failing.is_unroutable => Health::Unroutable,
            Some(_) => Health::Down,
            None => Health::Up,
        }
    }

    /// Records a failure. The host is held for 5 s after five failures in a row, or after one request for
    /// robots.txt without an answer; each failure after a hold holds it for twice as long, up to 15 min.
    /// A failure `down_after` or more after the first of the row gives it up; no hold ends later than
    /// that.
    pub fn failed(
        &mut self,
        host_port: HostPort,
        how: HostFailure,
        down_after: Duration,
        now: Instant,
    ) -> HostVerdict {
        if self.health(host_port, now) != Health::Up {
            // Its request was in flight when the host was held.
            return HostVerdict::Counted;
        }
        let active = self.active_time(now);
        let failing = self.failing_mut(host_port, now);
        let since = active.saturating_since(failing.since) + failing.earlier;
        let before = failing.until;
        failing.is_unresponsive |= how == HostFailure::Unanswered;
        failing.failures = failing.failures.saturating_add(1);
        let is_tried_again = failing.holds > 0;
        if how == HostFailure::Unconnected && failing.failures < FAILURES_MAX && !is_tried_again {
            return HostVerdict::Counted;
        }
        if since >= down_after {
            self.give_up(host_port, false, now);
            return HostVerdict::GivenUp(since);
        }
        let hold = HOLD_MIN
            .saturating_mul(1 << failing.holds.min(16))
            .min(HOLD_MAX);
        // The last try is due when `down_after` has passed, not later.
        let hold = hold.min(down_after - since);
        failing.until = now + hold;
        failing.holds = failing.holds.saturating_add(1).min(GIVEN_UP - 1);
        let until = failing.until;
        self.held.remove(&(before, host_port));
        self.held.insert((until, host_port));
        HostVerdict::Held(hold)
    }

    /// Gives a host up, whatever its failures. `is_unroutable`: this machine has no route to it.
    pub fn give_up(&mut self, host_port: HostPort, is_unroutable: bool, now: Instant) {
        let failing = self.failing_mut(host_port, now);
        let before = failing.until;
        failing.holds = GIVEN_UP;
        failing.is_unroutable = is_unroutable;
        let silence = HOLD_MAX.saturating_mul(1 << failing.given_up.min(16));
        failing.until = now + silence.min(DOWN_MAX);
        failing.given_up = failing.given_up.saturating_add(1);
        self.held.remove(&(before, host_port));
    }

    fn failing_mut(&mut self, host_port: HostPort, now: Instant) -> &mut Failing {
        let since = self.active_time(now);
        debug_assert!(
            self.names.is_used(host_port.0.0),
            "a host that is connected to is in use"
        );
        self.saved.add(self.names.name(host_port.0.0), host_port.1);
        self.failing.entry(host_port).or_insert_with(|| {
            let checked_at = now + HOLD_MAX;
            self.stale.insert((checked_at, host_port));
            let host = &mut self.hosts[host_port.0.0 as usize];
            host.failing = host.failing.saturating_add(1);
            Failing {
                since,
                earlier: Duration::ZERO,
                failures: 0,
                holds: 0,
                until: now,
                is_unresponsive: false,
                given_up: 0,
                is_unroutable: false,
                discounted_until: Instant::START,
                checked_at,
            }
        })
    }

    /// See [`Frontier::discount_time`](crate::frontier::Frontier::discount_time).
    pub fn discount_all(&mut self, span: Duration) {
        if self.stopped_since.is_none() {
            self.stopped += span;
        }
    }

    /// See [`Frontier::discount_host_time`](crate::frontier::Frontier::discount_host_time).
    pub fn discount(&mut self, host_port: HostPort, since: Instant, now: Instant) {
        let active = self.active_time(now);
        if let Some(failing) = self.failing.get_mut(&host_port) {
            // Several lanes may report overlapping spans.
            let since = since.max(failing.since).max(failing.discounted_until);
            failing.since += active.saturating_since(since);
            failing.discounted_until = active;
        }
    }

    /// Returns `now` on a clock that stops while the crawl itself can send nothing.
    pub fn active_time(&self, now: Instant) -> Instant {
        self.stopped_since.map_or(now, |since| since.min(now)) - self.stopped
    }

    /// Stops or restarts the clock of [`Hosts::active_time`]: time in which the crawl itself can send
    /// nothing does not count towards giving a host up.
    pub fn set_stopped(&mut self, is_stopped: bool, now: Instant) {
        match (self.stopped_since, is_stopped) {
            (None, true) => self.stopped_since = Some(now),
            (Some(since), false) => {
                self.stopped += now.saturating_since(since);
                self.stopped_since = None;
            }
            _ => {}
        }
    }

    /// Records a connection: a success, unless the host has accepted connections without answering.
    pub fn connected(&mut self, host_port: HostPort) {
        if self.get(host_port.0).failing > 0
            && self
                .failing
                .get(&host_port)
                .is_some_and(|host| !host.is_unresponsive)
        {
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
        if let Some(failing) = self.failing.remove(&host_port) {
            self.saved.add(self.names.name(host_port.0.0), host_port.1);
            self.held.remove(&(failing.until, host_port));
            self.stale.remove(&(failing.checked_at, host_port));
            let host = self.get_mut(host_port.0);
            if host.failing < u8::MAX {
                host.failing -= 1;
                self.note_idle(host_port.0);
            }
        }
    }

    /// Number of hosts held at `now`, and when the first of these holds ends. Expired holds not yet
    /// [removed](Hosts::expire) are few.
    pub fn held(&self, now: Instant) -> (usize, Option<Instant>) {
        let over = self
            .held
            .iter()
            .take_while(|(until, _)| *until <= now)
            .count();
        let next = self.held.iter().nth(over).map(|(until, _)| *until);
        (self.held.len() - over, next)
    }

    /// Removes expired holds, at most [`EXPIRED_PER_TURN`], so that a turn stays short.
    pub fn expire(&mut self, now: Instant) {
        for _ in 0..EXPIRED_PER_TURN {
            match self.held.first() {
                Some((until, _)) if *until <= now => self.held.pop_first(),
                _ => return,
            };
        }
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
        (self.failing.keys()).for_each(|(id, _)| failing[id.0 as usize] += 1);
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
        assert_eq!(self.stale.len(), self.failing.len());
        idle
    }
}

impl Host {
    fn is_idle(&self) -> bool {
        self.users == 0 && self.failing == 0
    }
}

/// Maximum number of holds removed per call of [`Hosts::expire`].
const EXPIRED_PER_TURN: usize = 1024;

/// Maximum number of hosts forgotten, and of failures dropped, per call of [`Hosts::forget_idle`]: each
/// takes less than a microsecond. More hosts become idle in a turn only where many lanes are emptied.
pub const FORGOTTEN_PER_TURN: usize = 64;

#[cfg(test)]
mod tests {
    use super::HostFailure::{Unanswered, Unconnected};
    use super::*;

    const DOWN_AFTER: Duration = Duration::from_secs(3600);

    fn one() -> (Hosts, HostPort) {
        let mut hosts = Hosts::new(&Secret::from_seed(1));
        let id = hosts.host("a.test");
        (hosts, (id, 80))
    }

    fn fail(hosts: &mut Hosts, id: HostPort, times: u32, now: Instant) -> HostVerdict {
        let fail = |_| hosts.failed(id, Unconnected, DOWN_AFTER, now);
        (0..times).map(fail).last().expect("at least one")
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The host in a run that begins `elapsed` after `now`, with its failure.
    fn next_run(hosts: &mut Hosts, elapsed: Duration, now: Instant) -> (Hosts, HostPort) {
        let mut next = Hosts::new(&Secret::from_seed(1));
        while let Some((name, saved)) = hosts.poll_failure(now) {
            assert_eq!(name, "a.test:80");
            next.restore_failure(&name, &saved, elapsed, Instant::START);
        }
        let id = next.host("a.test");
        (next, (id, 80))
    }

    #[test]
    fn a_failing_host_continues_to_fail_in_the_next_run() {
        let now = Instant::START + secs(100);
        let first = || {
            let (mut hosts, id) = one();
            hosts.start_saving();
            hosts.hold(id.0);
            (hosts, id)
        };
        let (mut hosts, id) = first();
        assert_eq!(fail(&mut hosts, id, 5, now), HostVerdict::Held(secs(5)));
        let (mut next, id) = next_run(&mut hosts, secs(2), now);
        let until = Instant::START + secs(3);
        assert_eq!(next.health(id, Instant::START), Health::Held(until));
        assert_eq!(next.held(Instant::START), (1, Some(until)));
        next.hold(id.0);
        // The first hold of this run is the second of the row.
        assert_eq!(fail(&mut next, id, 1, until), HostVerdict::Held(secs(10)));
        next.answered(id);
        assert_eq!(next.health(id, until), Health::Up);
        next.release(id.0);
        next.check([].into_iter());

        // The time before counts towards giving it up, and so does that it was.
        let (mut hosts, id) = first();
        fail(&mut hosts, id, 5, now);
        hosts.failing_mut(id, now);
        let later = now + secs(3000);
        let (mut next, id) = next_run(&mut hosts, secs(0), later);
        next.hold(id.0);
        let end = Instant::START + secs(600);
        assert_eq!(
            fail(&mut next, id, 1, end),
            HostVerdict::GivenUp(secs(3600))
        );
        next.start_saving();
        next.failing_mut(id, end);
        let (mut last, id) = next_run(&mut next, secs(60), end);
        assert_eq!(last.health(id, Instant::START), Health::Down);
        let again = Instant::START + HOLD_MAX - secs(60);
        assert_eq!(last.health(id, again), Health::Up);
        last.hold(id.0);
        fail(&mut last, id, 1, again);
        assert_eq!(
            last.health(id, again + HOLD_MAX),
            Health::Down,
            "for twice as long"
        );

        // A success is saved, too.
        let (mut hosts, id) = first();
        fail(&mut hosts, id, 5, now);
        hosts.answered(id);
        let (next, id) = next_run(&mut hosts, secs(0), now);
        assert_eq!(next.health(id, Instant::START), Health::Up);
    }

    #[test]
    fn a_host_takes_at_most_4_bytes() {
        assert!(size_of::<Host>() <= 4);
    }

    #[test]
    fn five_failures_in_a_row_hold_a_host_for_5_s_and_each_later_one_doubles_the_hold() {
        let (mut hosts, id) = one();
        let mut now = Instant::START + secs(7);
        assert_eq!(fail(&mut hosts, id, 4, now), HostVerdict::Counted);
        assert_eq!(hosts.health(id, now), Health::Up);
        for seconds in [5, 10, 20, 40, 80, 160, 320, 640, 900, 900] {
            assert_eq!(
                fail(&mut hosts, id, 1, now),
                HostVerdict::Held(secs(seconds))
            );
            let until = now + secs(seconds);
            assert_eq!(hosts.health(id, now), Health::Held(until));
            assert_eq!(hosts.held(now), (1, Some(until)));
            assert_eq!(fail(&mut hosts, id, 9, now), HostVerdict::Counted);
            now = until;
            assert_eq!(hosts.health(id, now), Health::Up);
            assert_eq!(hosts.held(now), (0, None));
        }
    }

    #[test]
    fn the_last_try_is_due_at_host_down_after_and_its_failure_fails_the_host() {
        let (mut hosts, id) = one();
        let down_after = secs(120);
        let mut now = Instant::START;
        let mut holds = Vec::new();
        let span = loop {
            match hosts.failed(id, Unanswered, down_after, now) {
                HostVerdict::Held(hold) => holds.push(hold.as_secs()),
                HostVerdict::GivenUp(span) => break span,
                HostVerdict::Counted => panic!("every failure after a hold is a hold or the end"),
            }
            now += Duration::from_secs(*holds.last().expect("just pushed"));
        };
        assert_eq!(holds, [5, 10, 20, 40, 45]);
        assert_eq!(span, down_after);
        assert_eq!(hosts.health(id, now), Health::Down);
        assert_eq!(hosts.held(now), (0, None));
        // 15 min later one request tries again.
        now += HOLD_MAX;
        assert_eq!(hosts.health(id, now), Health::Up);
        let verdict = hosts.failed(id, Unconnected, down_after, now);
        assert!(matches!(verdict, HostVerdict::GivenUp(_)), "{verdict:?}");
        now += HOLD_MAX;
        assert_eq!(hosts.health(id, now), Health::Down, "for twice as long");
        now += HOLD_MAX;
        hosts.connected(id);
        assert_eq!(
            hosts.health(id, now),
            Health::Up,
            "a connection is not a success, but the host may be tried"
        );
        hosts.answered(id);
        assert_eq!(
            hosts.failed(id, Unconnected, down_after, now),
            HostVerdict::Counted
        );
    }

    #[test]
    fn discounted_time_does_not_count_towards_down_after() {
        let down_after = secs(120);
        let check = |discount: fn(&mut Hosts, HostPort, Instant)| {
            let (mut hosts, id) = one();
            let mut now = Instant::START + secs(1000);
            hosts.failed(id, Unanswered, down_after, now);
            now += secs(300);
            discount(&mut hosts, id, now);
            matches!(
                hosts.failed(id, Unanswered, down_after, now),
                HostVerdict::GivenUp(_)
            )
        };
        assert!(check(|_, _, _| ()));
        assert!(!check(|hosts, _, _| hosts.discount_all(secs(200))));
        assert!(!check(|hosts, id, now| hosts.discount(
            id,
            now - secs(200),
            now
        )));
        assert!(check(|hosts, id, now| hosts.discount(
            id,
            now - secs(100),
            now
        )));
        // A span from before its first failure discounts only the time since that.
        assert!(!check(|hosts, id, now| hosts.discount(
            id,
            now - secs(900),
            now
        )));
    }

    #[test]
    fn the_health_of_a_port_does_not_affect_another_port() {
        let (mut hosts, open) = one();
        let closed = (open.0, 443);
        let mut now = Instant::START;
        for seconds in [5, 10, 20, 40, 45] {
            let verdict = hosts.failed(closed, Unanswered, secs(120), now);
            assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
            assert_eq!(hosts.health(open, now), Health::Up);
            hosts.answered(open);
            hosts.connected(open);
            now += secs(seconds);
        }
        let verdict = hosts.failed(closed, Unanswered, secs(120), now);
        assert!(matches!(verdict, HostVerdict::GivenUp(_)), "{verdict:?}");
    }

    #[test]
    fn a_success_resets_failures_and_holds() {
        let (mut hosts, id) = one();
        let now = Instant::START;
        fail(&mut hosts, id, 4, now);
        hosts.connected(id);
        assert_eq!(fail(&mut hosts, id, 4, now), HostVerdict::Counted);
        assert_eq!(fail(&mut hosts, id, 1, now), HostVerdict::Held(HOLD_MIN));
        hosts.connected(id);
        assert_eq!(hosts.held(now), (0, None));
        assert_eq!(fail(&mut hosts, id, 5, now), HostVerdict::Held(HOLD_MIN));
    }

    #[test]
    fn a_connection_without_an_answer_is_not_a_success() {
        let (mut hosts, id) = one();
        let mut now = Instant::START;
        for seconds in [5, 10, 20] {
            hosts.connected(id);
            let verdict = hosts.failed(id, Unanswered, DOWN_AFTER, now);
            assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
            now += secs(seconds);
        }
        hosts.answered(id);
        let verdict = hosts.failed(id, Unanswered, DOWN_AFTER, now);
        assert_eq!(verdict, HostVerdict::Held(HOLD_MIN));
    }

    #[test]
    fn time_in_which_the_crawl_is_stopped_does_not_count() {
        let (mut hosts, id) = one();
        let at = |seconds| Instant::START + secs(seconds);
        let fail =
            |hosts: &mut Hosts, seconds| hosts.failed(id, Unanswered, secs(120), at(seconds));
        assert_eq!(fail(&mut hosts, 10), HostVerdict::Held(secs(5)));
        hosts.set_stopped(true, at(12));
        hosts.set_stopped(true, at(400));
        hosts.set_stopped(false, at(500));
        // Five seconds of active time have passed.
        assert_eq!(fail(&mut hosts, 503), HostVerdict::Held(secs(10)));
        hosts.set_stopped(true, at(513));
        assert_eq!(fail(&mut hosts, 700), HostVerdict::Held(secs(20)));
        hosts.set_stopped(false, at(700));
        assert_eq!(fail(&mut hosts, 805), HostVerdict::GivenUp(secs(120)));
    }

    #[test]
    fn a_held_host_is_counted_once() {
        let (mut hosts, id) = one();
        let mut now = Instant::START;
        for seconds in [5, 10, 20] {
            let verdict = hosts.failed(id, Unanswered, DOWN_AFTER, now);
            assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
            assert_eq!(hosts.held.len(), 1);
            now += secs(seconds);
        }
        hosts.give_up(id, false, now);
        assert_eq!((hosts.held.len(), hosts.health(id, now)), (0, Health::Down));
    }

    #[test]
    fn expired_holds_are_removed_and_not_counted() {
        let mut hosts = Hosts::new(&Secret::from_seed(1));
        let ids: Vec<HostPort> = (0..3)
            .map(|number| (hosts.host(&format!("h{number}.test")), 80))
            .collect();
        for (number, id) in ids.iter().enumerate() {
            let at = Instant::START + secs(number as u64);
            hosts.failed(*id, Unanswered, DOWN_AFTER, at);
        }
        let now = Instant::START + secs(6);
        assert_eq!(hosts.held(now), (1, Some(Instant::START + secs(7))));
        hosts.expire(now);
        assert_eq!(hosts.held.len(), 1);
        assert_eq!(hosts.held(now), (1, Some(Instant::START + secs(7))));
    }
}
