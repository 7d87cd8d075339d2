//! Hosts: how many pages each has given, and whether it still answers.

use std::time::Duration;

use crate::base::intern::Interner;
use crate::base::time::Instant;

/// A host by its interned number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// All hosts that the crawl has to do with.
#[derive(Debug, Default)]
pub struct Hosts {
    names: Interner,
    hosts: Vec<Host>,
}

/// What is remembered of one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// A seed names it, or a seed's redirect leads to it.
    pub is_seed: bool,
    /// Pages fetched.
    pub pages: u32,
    /// Pages being fetched.
    pub in_flight: u32,
    /// Failures to resolve or connect since the last success.
    failures: u8,
    /// Times it was held.
    holds: u8,
    held_until: Instant,
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
    /// The host of a name, made if it is new.
    pub fn host(&mut self, name: &str) -> HostId {
        let id = self.names.intern(name);
        if self.hosts.len() <= id as usize {
            self.hosts.resize(id as usize + 1, Host::default());
        }
        HostId(id)
    }

    /// What is remembered of a host by name.
    pub fn find(&self, name: &str) -> Option<&Host> {
        self.names.get(name).map(|id| &self.hosts[id as usize])
    }

    /// The name of a host.
    pub fn name(&self, id: HostId) -> &str {
        self.names.name(id.0)
    }

    /// What is remembered of a host.
    pub fn get(&self, id: HostId) -> &Host {
        &self.hosts[id.0 as usize]
    }

    /// What is remembered of a host, to be changed.
    pub fn get_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0 as usize]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }
}

impl Host {
    /// Whether it may be asked at `now`.
    pub fn health(&self, now: Instant) -> Health {
        if self.failures >= FAILURES_MAX && self.holds >= HOLDS_MAX {
            Health::Down
        } else if self.held_until > now {
            Health::Held(self.held_until)
        } else {
            Health::Up
        }
    }

    /// It could not be resolved or connected to. The fifth time in a row puts it on hold, or,
    /// after three holds, out of the crawl.
    pub fn failed(&mut self, now: Instant) {
        if self.health(now) != Health::Up {
            // Of requests that were on their way when the verdict fell.
            return;
        }
        self.failures += 1;
        if self.failures >= FAILURES_MAX && self.holds < HOLDS_MAX {
            self.held_until = now + HOLD * (1 << self.holds);
            self.holds += 1;
            self.failures = 0;
        }
    }

    /// It was connected to: all is forgiven.
    pub fn connected(&mut self) {
        self.failures = 0;
        self.holds = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(host: &mut Host, times: u32, now: Instant) {
        for _ in 0..times {
            host.failed(now);
        }
    }

    #[test]
    fn five_failures_in_a_row_hold_a_host_for_a_quarter_of_an_hour_then_twice_that() {
        let mut host = Host::default();
        let mut now = Instant::START;
        fail(&mut host, 4, now);
        assert_eq!(host.health(now), Health::Up);
        for minutes in [15, 30, 60] {
            fail(&mut host, 5, now);
            let until = now + Duration::from_secs(minutes * 60);
            assert_eq!(host.health(now), Health::Held(until));
            now = until;
            assert_eq!(host.health(now), Health::Up);
        }
        fail(&mut host, 4, now);
        assert_eq!(host.health(now), Health::Up);
        host.failed(now);
        assert_eq!(host.health(now), Health::Down);
    }

    #[test]
    fn a_success_forgives_everything() {
        let mut host = Host::default();
        fail(&mut host, 4, Instant::START);
        host.connected();
        fail(&mut host, 4, Instant::START);
        assert_eq!(host.health(Instant::START), Health::Up);
        host.failed(Instant::START);
        let mut now = Instant::START + HOLD;
        host.connected();
        fail(&mut host, 5, now);
        assert_eq!(host.health(now), Health::Held(now + HOLD));
        now += HOLD;
        assert_eq!(host.health(now), Health::Up);
    }
}
