//! Ids of lanes and scopes, which frontier and throttle both use.

use smallvec::SmallVec;

/// Id of a lane. Ids are reused after a lane was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Id of a scope. Ids are reused after a scope was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

/// The scopes that a request names, or that its URL maps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeSet {
    ids: SmallVec<[ScopeId; 4]>,
    ordered: bool,
}

impl ScopeSet {
    /// From the most general to the most specific. Of duplicates the first counts.
    pub fn ordered(ids: impl IntoIterator<Item = ScopeId>) -> Self {
        let mut set = ScopeSet {
            ids: SmallVec::new(),
            ordered: true,
        };
        for id in ids {
            if !set.ids.contains(&id) {
                set.ids.push(id);
            }
        }
        set
    }

    /// Scopes of which none is more specific than another.
    pub fn unordered(ids: impl IntoIterator<Item = ScopeId>) -> Self {
        let mut ids: SmallVec<[ScopeId; 4]> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        ScopeSet {
            ids,
            ordered: false,
        }
    }

    /// The scopes.
    pub fn ids(&self) -> &[ScopeId] {
        &self.ids
    }

    /// Returns whether the last is the most specific.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }
}
