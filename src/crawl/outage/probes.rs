//! The breaker's probes: connections, lookups, and hosts picked from the queue.

use std::hash::BuildHasher;

use hashbrown::HashMap;

use crate::base::ids::LaneId;
use crate::base::secret::Secret;
use crate::base::slab::Key;
use crate::crawl::breaker::Egress;
use crate::fetch::resolver::Waiter;
use crate::wire::url::registrable;

/// The probes under way, and which lane's host was picked last.
pub struct Probes {
    connections: HashMap<u32, Key, Secret>,
    lookups: HashMap<u32, ProbeLookup, Secret>,
    picked: LaneId,
    /// Lanes that were passed over since the last that was picked.
    passed: usize,
}

/// Purpose of a lookup of the breaker.
#[derive(Clone, Copy, Debug)]
pub enum ProbeLookup {
    /// It is the probe; `any`: each reply is an answer.
    Itself { any: bool },
    /// It gives the address of a host that was picked, which is to be reached by this egress at this
    /// port.
    Picked { egress: Egress, port: u16 },
}

/// Numbers from this on name the breaker's lookups; those below are lanes.
pub const LOOKUP_WAITER: Waiter = 1 << 32;

impl Probes {
    /// None under way.
    pub fn new(secret: &Secret) -> Self {
        Probes {
            connections: HashMap::with_hasher(*secret),
            lookups: HashMap::with_hasher(*secret),
            picked: LaneId(0),
            passed: 0,
        }
    }

    /// Whether a lookup has a waiter other than the breaker.
    pub fn is_for_lanes(waiters: &[Waiter]) -> bool {
        waiters.iter().any(|waiter| *waiter < LOOKUP_WAITER)
    }

    /// Records the connection that was begun for a probe.
    pub fn add_connection(&mut self, probe: u32, socket: Key) {
        self.connections.insert(probe, socket);
    }

    /// Records the lookup that was begun for a probe.
    pub fn add_lookup(&mut self, probe: u32, what: ProbeLookup) {
        self.lookups.insert(probe, what);
    }

    /// Removes a lookup that has ended; returns its purpose, unless its probe was ended before.
    pub fn end_lookup(&mut self, probe: u32) -> Option<ProbeLookup> {
        self.lookups.remove(&probe)
    }

    /// Removes a probe that is over; returns its connection, to be closed.
    pub fn end(&mut self, probe: u32) -> Option<Key> {
        self.lookups.remove(&probe);
        self.connections.remove(&probe)
    }

    /// Returns the next of so many lanes to be searched for a host. Lanes take turns, the last one first: its
    /// host is the least likely to have been probed before.
    pub fn next_lane(&mut self, lanes: usize) -> LaneId {
        let before = self.picked.0 as usize;
        self.picked = LaneId((before.min(lanes) + lanes - 1) as u32 % lanes as u32);
        self.passed += 1;
        self.picked
    }

    /// Restarts the count of lanes that were passed over: called when a host was picked, or all were passed
    /// over.
    pub fn restart_count(&mut self) {
        self.passed = 0;
    }

    /// Number of lanes that were passed over since the last [`restart_count`](Self::restart_count).
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// A new name below another's registrable domain.
    pub fn name_below(&self, name: &str, probe: u32) -> Box<str> {
        let label = self.lookups.hasher().hash_one((name, probe));
        format!("{label:016x}.{}", registrable(name)).into()
    }
}
