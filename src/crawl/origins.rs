//! Numbers for origins, as long as a connection or an attempt belongs to them.

use crate::base::intern::Interner;

/// Scheme, host and port by number: what the pool of idle connections goes by.
#[derive(Debug, Default)]
pub(super) struct Origins {
    names: Interner,
    uses: Vec<u32>,
}

impl Origins {
    /// The number of an origin, which stays its own until it is given back as often as taken.
    pub fn take(&mut self, origin: &str) -> u32 {
        let id = self.names.intern(origin);
        if self.uses.len() <= id as usize {
            self.uses.resize(id as usize + 1, 0);
        }
        self.uses[id as usize] += 1;
        id
    }

    /// One more use of a number that is in use.
    pub fn share(&mut self, id: u32) -> u32 {
        self.uses[id as usize] += 1;
        id
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
