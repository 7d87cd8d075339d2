//! The scopes by name and by number.

use smallvec::SmallVec;

use super::super::scope::{NOBODY, Scope, ScopeId};
use crate::base::chunked::ChunkedVec;
use crate::base::intern::Interner;
use crate::base::secret::Secret;

/// All scopes that there is state for. Numbers of forgotten ones are used again.
///
/// The names may be shared: most scopes are named as their hosts are, and a broad crawl has no
/// memory to spell them twice.
#[derive(Debug)]
pub(super) struct ScopeTable {
    pub names: Interner,
    /// The scope of each name, by the name's number, or `NOBODY`.
    of_name: ChunkedVec<u32>,
    scopes: ChunkedVec<Option<Scope>>,
    /// The names of these, by number.
    name_of: ChunkedVec<u32>,
    /// Forgotten numbers, the last on top.
    free: Vec<u32>,
}

impl ScopeTable {
    /// None yet.
    pub fn new(secret: &Secret) -> Self {
        ScopeTable {
            names: Interner::new(secret),
            of_name: ChunkedVec::new(),
            scopes: ChunkedVec::new(),
            name_of: ChunkedVec::new(),
            free: Vec::new(),
        }
    }

    /// The scope of a name.
    pub fn find(&self, name: &str) -> Option<ScopeId> {
        let name = self.names.get(name)?;
        let id = *self.of_name.get(name as usize)?;
        (id != NOBODY).then_some(ScopeId(id))
    }

    /// Adds the scope of a name that has none.
    pub fn add(&mut self, name: &str, scope: Scope) -> ScopeId {
        let name = self.names.intern(name);
        let id = self.free.pop().unwrap_or(self.scopes.len() as u32);
        self.scopes.grow_to(id as usize + 1, || None);
        self.name_of.grow_to(id as usize + 1, || NOBODY);
        self.of_name.grow_to(name as usize + 1, || NOBODY);
        self.scopes[id as usize] = Some(scope);
        self.name_of[id as usize] = name;
        self.of_name[name as usize] = id;
        ScopeId(id)
    }

    /// Forgets a scope.
    pub fn remove(&mut self, id: ScopeId) {
        self.scopes[id.0 as usize] = None;
        self.free.push(id.0);
        let name = self.name_of[id.0 as usize];
        self.of_name[name as usize] = NOBODY;
        self.names.remove(name);
    }

    /// Reads what a look-up of each of these names reads; see [`super::Throttle::touch_names`].
    pub fn touch(&self, names: &[u32]) -> u64 {
        let mut sum = 0;
        let mut scopes: SmallVec<[u32; 32]> = SmallVec::new();
        for name in names {
            scopes.extend(self.of_name.get(*name as usize).copied());
            sum += self.names.name(*name).len() as u64;
        }
        for name in names {
            let found = self.names.get(self.names.name(*name));
            sum += u64::from(found.unwrap_or(NOBODY));
        }
        for scope in scopes {
            let name = self.name_of.get(scope as usize).copied();
            sum += u64::from(name.unwrap_or(NOBODY));
        }
        sum
    }

    /// The name of a scope.
    pub fn name(&self, id: ScopeId) -> &str {
        self.names.name(self.name_of[id.0 as usize])
    }

    /// The scope of a number, if there is one.
    pub fn get(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes[id.0 as usize].as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: ScopeId) -> Option<&mut Scope> {
        self.scopes[id.0 as usize].as_mut()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.scopes.len() - self.free.len()
    }

    /// Every number that was ever given.
    pub fn ids(&self) -> impl Iterator<Item = ScopeId> + use<> {
        (0..self.scopes.len() as u32).map(ScopeId)
    }
}
