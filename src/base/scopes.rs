//! The scopes of one request: an ordered list of names with expected costs.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

/// The scopes of a request, without duplicates.
///
/// Can be made from a name, a list, a set, a map of names to costs, from `()`, or from two of these
/// by [`add_scope`]. A set and a sorted map yield unordered scopes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scopes {
    entries: SmallVec<[ScopeEntry; 2]>,
    unordered: bool,
    truncated: bool,
}

/// One scope of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeEntry {
    /// Its name.
    pub name: String,
    /// Expected cost of the request in the units of the scope's quota; 1 if `None`.
    pub cost: Option<f64>,
}

/// Maximum number of scopes of one request. The request waits for every one of them. A map that
/// adds more has mapped something unbounded, like the labels of generated host names.
pub const SCOPES_MAX: usize = 16;

/// Combines two sets of scopes, each given in any form; the arguments are not changed.
///
/// A scope that is in both keeps its first position. Of two costs the larger is kept.
pub fn add_scope(scopes: impl Into<Scopes>, more: impl Into<Scopes>) -> Scopes {
    let mut scopes = scopes.into();
    scopes.join(more.into());
    scopes
}

impl Scopes {
    /// An empty set.
    pub fn new() -> Self {
        Scopes::default()
    }

    /// The same scopes, unordered: none is more specific than the others.
    pub fn unordered(mut self) -> Self {
        self.set_unordered();
        self
    }

    /// Returns whether the last scope is the most specific.
    pub fn is_ordered(&self) -> bool {
        !self.unordered
    }

    /// Returns whether more than [`SCOPES_MAX`] scopes were added and the last ones were omitted.
    pub(crate) fn is_cut(&self) -> bool {
        self.truncated
    }

    /// The scopes in order.
    pub fn entries(&self) -> &[ScopeEntry] {
        &self.entries
    }

    /// The names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Number of scopes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no scope, so that only the global limits apply.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn set_unordered(&mut self) {
        self.unordered = true;
    }

    /// Every addition goes through here. Empty names are ignored.
    pub(crate) fn insert(&mut self, entry: ScopeEntry) {
        if entry.name.is_empty() {
            return;
        }
        if let Some(known) = self.entries.iter_mut().find(|own| own.name == entry.name) {
            known.cost = match (known.cost, entry.cost) {
                (Some(before), Some(now)) if is_more(now, before) => Some(now),
                (before, now) => before.or(now),
            };
        } else if self.entries.len() < SCOPES_MAX {
            self.entries.push(entry);
        } else {
            self.truncated = true;
        }
    }

    pub(crate) fn join(&mut self, more: Scopes) {
        self.unordered |= more.unordered;
        self.truncated |= more.truncated;
        for entry in more.entries {
            self.insert(entry);
        }
    }
}

impl ScopeEntry {
    /// A scope without an expected cost.
    pub fn new(name: impl Into<String>) -> Self {
        ScopeEntry {
            name: name.into(),
            cost: None,
        }
    }

    /// Sets the expected cost. A value that is not a valid number of units (negative, not a number)
    /// counts as more than any quota.
    pub fn cost(mut self, units: f64) -> Self {
        self.cost = Some(units);
        self
    }
}

/// Compares costs; an invalid value counts as the largest.
fn is_more(now: f64, before: f64) -> bool {
    let is_amount = |cost: f64| cost >= 0.0;
    is_amount(before) && (!is_amount(now) || now > before)
}

impl From<&str> for ScopeEntry {
    fn from(name: &str) -> Self {
        ScopeEntry::new(name)
    }
}

impl From<String> for ScopeEntry {
    fn from(name: String) -> Self {
        ScopeEntry::new(name)
    }
}

impl<S: Into<String>> From<(S, f64)> for ScopeEntry {
    fn from((name, units): (S, f64)) -> Self {
        ScopeEntry::new(name).cost(units)
    }
}

impl<E: Into<ScopeEntry>> FromIterator<E> for Scopes {
    fn from_iter<I: IntoIterator<Item = E>>(entries: I) -> Self {
        let mut scopes = Scopes::new();
        for entry in entries {
            scopes.insert(entry.into());
        }
        scopes
    }
}

impl From<()> for Scopes {
    fn from((): ()) -> Self {
        Scopes::new()
    }
}

impl From<&Scopes> for Scopes {
    fn from(scopes: &Scopes) -> Self {
        scopes.clone()
    }
}

impl From<ScopeEntry> for Scopes {
    fn from(entry: ScopeEntry) -> Self {
        [entry].into()
    }
}

impl From<&str> for Scopes {
    fn from(name: &str) -> Self {
        [name].into()
    }
}

impl From<String> for Scopes {
    fn from(name: String) -> Self {
        [name].into()
    }
}

impl<S: Into<String>> From<(S, f64)> for Scopes {
    fn from(entry: (S, f64)) -> Self {
        [entry].into()
    }
}

impl<T: Into<Scopes>> From<Option<T>> for Scopes {
    fn from(scopes: Option<T>) -> Self {
        scopes.map(Into::into).unwrap_or_default()
    }
}

impl<E: Into<ScopeEntry>, const N: usize> From<[E; N]> for Scopes {
    fn from(entries: [E; N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<E: Into<ScopeEntry>> From<Vec<E>> for Scopes {
    fn from(entries: Vec<E>) -> Self {
        entries.into_iter().collect()
    }
}

impl<E: Into<ScopeEntry>> From<BTreeSet<E>> for Scopes {
    fn from(entries: BTreeSet<E>) -> Self {
        entries.into_iter().collect::<Scopes>().unordered()
    }
}

impl<S: Into<String>> From<BTreeMap<S, f64>> for Scopes {
    fn from(entries: BTreeMap<S, f64>) -> Self {
        entries.into_iter().collect::<Scopes>().unordered()
    }
}
