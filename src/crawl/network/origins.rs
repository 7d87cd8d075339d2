//! Where connections lead, by number: what the pool of idle ones goes by.

use crate::base::intern::Interner;
use crate::base::secret::Secret;

/// Scheme, host and port that a connection leads to, and how: connections of one number serve each
/// other's requests. The number is this one's alone while an attempt or a connection holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By the frontier's number of the origin.
    Direct(u32),
    /// By the number of a way through a proxy.
    ByProxy(u32),
}

impl Origin {
    /// One number for either.
    pub fn number(self) -> u64 {
        match self {
            Origin::Direct(number) => u64::from(number) << 1,
            Origin::ByProxy(number) => u64::from(number) << 1 | 1,
        }
    }
}

/// Numbers for origins by way of a proxy, as long as a connection or an attempt belongs to them.
#[derive(Debug)]
pub struct Ways {
    names: Interner,
    uses: Vec<u32>,
}

impl Ways {
    /// None yet.
    pub fn new(secret: &Secret) -> Self {
        Ways {
            names: Interner::new(secret),
            uses: Vec::new(),
        }
    }

    /// The number of a way, which stays its own until it is given back as often as taken.
    pub fn take(&mut self, way: &str) -> u32 {
        let id = self.names.intern(way);
        if self.uses.len() <= id as usize {
            self.uses.resize(id as usize + 1, 0);
        }
        self.uses[id as usize] += 1;
        id
    }

    /// One more use of a number that is in use.
    pub fn share(&mut self, id: u32) {
        self.uses[id as usize] += 1;
    }

    /// Gives one use back.
    pub fn give_back(&mut self, id: u32) {
        let uses = &mut self.uses[id as usize];
        *uses -= 1;
        if *uses == 0 {
            self.names.remove(id);
        }
    }
}
