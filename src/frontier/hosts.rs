//! Hosts: how many pages each has given, and whether it still answers.

use std::time::Duration;

use hashbrown::HashMap;

use crate::base::chunked::ChunkedVec;
use crate::base::intern::Interner;
use crate::base::secret::Secret;
use crate::base::time::Instant;

/// A host by the number of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// All hosts that the crawl has to do with. Their names are spelled out elsewhere, among those of
/// the scopes, which are mostly the same.
#[derive(Debug)]
pub struct Hosts {
    hosts: ChunkedVec<Host>,
    /// What each has given; empty where nobody asks how much that is.
    given: ChunkedVec<Given>,
    counts: bool,
    /// Until when those are held that were ever held.
    held: HashMap<HostId, Instant, Secret>,
}

/// What is remembered of one host. There may be millions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// A seed names it, or a seed's redirect leads to it.
    pub is_seed: bool,
    /// Failures to resolve or connect since the last success.
    failures: u8,
    /// Times it was held.
    holds: u8,
    was_held: bool,
}

/// The pages of one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Pages fetched.
    pub pages: u32,
    /// Pages being fetched.
    pub in_flight: u32,
}

/// Whether a host may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It may.
    Up,
    /// It failed too often in a row; not before this moment.
    Held(Instant),
    /// It was held three times and still fails: its URLs end as `host_down`.
    Down,
}

/// Failures in a row that put a host on hold.
const FAILURES_MAX: u8 = 5;
/// The first hold; each further one is twice as long.
const HOLD: Duration = Duration::from_secs(15 * 60);
/// Holds after which a host that still fails is given up.
const HOLDS_MAX: u8 = 3;

impl Hosts {
    /// None yet.
    pub fn new(secret: &Secret) -> Self {
        Hosts {
            hosts: ChunkedVec::new(),
            given: ChunkedVec::new(),
            counts: false,
            held: HashMap::with_hasher(*secret),
        }
    }

    /// The host of a name, made if it is new.
    pub fn host(&mut self, name: &str, names: &mut Interner) -> HostId {
        let id = names.intern(name);
        names.keep(id);
        self.hosts.grow_to(id as usize + 1, Host::default);
        HostId(id)
    }

    /// Counts pages from now on: where they are limited.
    pub fn count_pages(&mut self) {
        self.counts = true;
    }

    /// The pages of a host; none where they are not counted.
    pub fn given(&self, id: HostId) -> Given {
        let given = self.given.get(id.0 as usize);
        given.copied().unwrap_or_default()
    }

    /// Whether pages are counted.
    pub fn counts_pages(&self) -> bool {
        self.counts
    }

    /// The pages of a host, to be changed, where they are counted.
    pub fn given_mut(&mut self, id: HostId) -> &mut Given {
        self.given.grow_to(id.0 as usize + 1, Given::default);
        &mut self.given[id.0 as usize]
    }

    /// The host of a name, if it is known.
    pub fn find(&self, name: &str, names: &Interner) -> Option<HostId> {
        let id = names.get(name)?;
        self.hosts.get(id as usize).map(|_| HostId(id))
    }

    /// What is remembered of a host.
    pub fn get(&self, id: HostId) -> &Host {
        &self.hosts[id.0 as usize]
    }

    /// What is remembered of a host, to be changed.
    pub fn get_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0 as usize]
    }

    /// Whether a host may be asked at `now`.
    pub fn health(&self, id: HostId, now: Instant) -> Health {
        let host = self.get(id);
        if !host.was_held {
            return Health::Up;
        }
        if host.failures >= FAILURES_MAX && host.holds >= HOLDS_MAX {
            return Health::Down;
        }
        match self.held.get(&id) {
            Some(until) if *until > now => Health::Held(*until),
            _ => Health::Up,
        }
    }

    /// A host could not be resolved or connected to. The fifth time in a row puts it on hold, or,
    /// after three holds, out of the crawl.
    pub fn failed(&mut self, id: HostId, now: Instant) {
        if self.health(id, now) != Health::Up {
            // Of requests that were on their way when the verdict fell.
            return;
        }
        let host = self.get_mut(id);
        host.failures += 1;
        if host.failures >= FAILURES_MAX && host.holds < HOLDS_MAX {
            let until = now + HOLD * (1 << host.holds);
            host.holds += 1;
            host.failures = 0;
            host.was_held = true;
            self.held.insert(id, until);
        }
    }

    /// A host was connected to: all is forgiven.
    pub fn connected(&mut self, id: HostId) {
        let host = self.get_mut(id);
        host.failures = 0;
        host.holds = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> (Hosts, HostId) {
        let mut hosts = Hosts::new(&Secret::from_seed(1));
        let id = hosts.host("a.test", &mut Interner::new(&Secret::from_seed(1)));
        (hosts, id)
    }

    fn fail(hosts: &mut Hosts, id: HostId, times: u32, now: Instant) {
        for _ in 0..times {
            hosts.failed(id, now);
        }
    }

    #[test]
    fn a_million_of_them_fit_into_4_megabytes() {
        assert_eq!(size_of::<Host>(), 4);
    }

    #[test]
    fn five_failures_in_a_row_hold_a_host_for_a_quarter_of_an_hour_then_twice_that() {
        let (mut hosts, id) = one();
        let mut now = Instant::START;
        fail(&mut hosts, id, 4, now);
        assert_eq!(hosts.health(id, now), Health::Up);
        for minutes in [15, 30, 60] {
            fail(&mut hosts, id, 5, now);
            let until = now + Duration::from_secs(minutes * 60);
            assert_eq!(hosts.health(id, now), Health::Held(until));
            now = until;
            assert_eq!(hosts.health(id, now), Health::Up);
        }
        fail(&mut hosts, id, 4, now);
        assert_eq!(hosts.health(id, now), Health::Up);
        hosts.failed(id, now);
        assert_eq!(hosts.health(id, now), Health::Down);
    }

    #[test]
    fn a_success_forgives_everything() {
        let (mut hosts, id) = one();
        fail(&mut hosts, id, 4, Instant::START);
        hosts.connected(id);
        fail(&mut hosts, id, 4, Instant::START);
        assert_eq!(hosts.health(id, Instant::START), Health::Up);
        hosts.failed(id, Instant::START);
        let mut now = Instant::START + HOLD;
        hosts.connected(id);
        fail(&mut hosts, id, 5, now);
        assert_eq!(hosts.health(id, now), Health::Held(now + HOLD));
        now += HOLD;
        assert_eq!(hosts.health(id, now), Health::Up);
    }
}
