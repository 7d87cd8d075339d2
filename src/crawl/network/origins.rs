//! Origins of connections by number: the key of the pool of idle connections.

use crate::base::intern::Interner;
use crate::base::secret::Secret;

/// Destination of a connection: scheme, host and port, direct or through a proxy. Connections of one number serve
/// the same requests. A number is not reused while an attempt or a connection holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Direct, by the frontier's number of the origin.
    Direct(u32),
    /// Through a proxy, by the number in [`ProxyOrigins`].
    ByProxy(u32),
}

impl Origin {
    /// A common number for both kinds.
    pub fn number(self) -> u64 {
        match self {
            Origin::Direct(number) => u64::from(number) << 1,
            Origin::ByProxy(number) => u64::from(number) << 1 | 1,
        }
    }
}

/// Numbers of origins through proxies, for as long as a connection or an attempt uses them.
#[derive(Debug)]
pub struct ProxyOrigins {
    names: Interner,
    uses: Vec<u32>,
}

impl ProxyOrigins {
    /// No numbers.
    pub fn new(secret: &Secret) -> Self {
        ProxyOrigins {
            names: Interner::new(secret),
            uses: Vec::new(),
        }
    }

    /// The number of an origin through a proxy, valid until it is released as often as it was taken.
    pub fn take(&mut self, name: &str) -> u32 {
        let id = self.names.intern(name);
        if self.uses.len() <= id as usize {
            self.uses.resize(id as usize + 1, 0);
        }
        self.uses[id as usize] += 1;
        id
    }

    /// Counts one more use of a number in use.
    pub fn share(&mut self, id: u32) {
        self.uses[id as usize] += 1;
    }

    /// Releases one use.
    pub fn release(&mut self, id: u32) {
        let uses = &mut self.uses[id as usize];
        *uses -= 1;
        if *uses == 0 {
            self.names.remove(id);
        }
    }
}
