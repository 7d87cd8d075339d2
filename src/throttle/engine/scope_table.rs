//! The table of scopes, by name and by id.

use super::super::scope::Scope;
use crate::base::chunked::ChunkedVec;
use crate::base::ids::ScopeId;
use crate::base::intern::Interner;
use crate::base::secret::Secret;

/// All scopes with state. Ids of evicted scopes are reused.
#[derive(Debug)]
pub(super) struct ScopeTable {
    /// A scope has the id of its name.
    names: Interner,
    scopes: ChunkedVec<Option<Scope>>,
}

impl ScopeTable {
    /// An empty table.
    pub fn new(secret: &Secret) -> Self {
        ScopeTable {
            names: Interner::new(secret),
            scopes: ChunkedVec::new(),
        }
    }

    /// The scope with this name.
    pub fn find(&self, name: &str) -> Option<ScopeId> {
        self.names.get(name).map(ScopeId)
    }

    /// Adds a scope under a name that has none.
    pub fn add(&mut self, name: &str, scope: Scope) -> ScopeId {
        let id = self.names.intern(name);
        self.scopes.grow_to(id as usize + 1, || None);
        self.scopes[id as usize] = Some(scope);
        ScopeId(id)
    }

    /// Evicts a scope.
    pub fn remove(&mut self, id: ScopeId) {
        self.scopes[id.0 as usize] = None;
        self.names.remove(id.0);
    }

    /// Reads the memory that finding these scopes by name reads; see [`super::Throttle::touch`].
    pub(crate) fn touch(&self, ids: &[ScopeId]) -> u64 {
        let names = ids.iter().map(|id| self.name(*id));
        let mut sum: u64 = names.map(|name| name.len() as u64).sum();
        for id in ids {
            sum += u64::from(self.names.get(self.name(*id)).unwrap_or_default());
        }
        sum
    }

    /// The name of a scope.
    pub fn name(&self, id: ScopeId) -> &str {
        self.names.name(id.0)
    }

    /// All scopes, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Scope)> {
        let ids = self.ids();
        ids.filter_map(|id| Some((id, self.get(id)?)))
            .map(|(id, scope)| (self.name(id), scope))
    }

    /// The scope with this id, if it exists.
    pub fn get(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes[id.0 as usize].as_ref()
    }

    /// The same, mutable.
    pub fn get_mut(&mut self, id: ScopeId) -> Option<&mut Scope> {
        self.scopes[id.0 as usize].as_mut()
    }

    /// Returns whether there is no scope.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Number of scopes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Ids that were ever used are below this.
    pub fn ids_len(&self) -> usize {
        self.scopes.len()
    }

    /// Every id that was ever used.
    pub fn ids(&self) -> impl Iterator<Item = ScopeId> + use<> {
        (0..self.scopes.len() as u32).map(ScopeId)
    }
}
