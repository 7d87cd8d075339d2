//! The scopes of one request: names in order, with what it is expected to cost in each.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

/// The scopes of a request, each once.
///
/// Made from a name, a list, a set, a map of names to costs, from nothing, or from two of these by
/// [`add_scope`]. A set and a sorted map have no order that means anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scopes {
    entries: SmallVec<[Entry; 2]>,
    unordered: bool,
    cut: bool,
}

/// One scope of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What the request is expected to cost, in the units of the scope's quota; where that is not
    /// said it is 1.
    pub cost: Option<f64>,
}

/// Scopes of one request. Each makes it wait for one gate more; who needs more gates than this has
/// mapped something that has no end, like the labels of made-up host names.
pub const SCOPES_MAX: usize = 16;

/// Scopes and one more, or several: both given in any form. What was given is not changed.
///
/// A scope that is in both keeps its first place. Of two costs the larger is kept.
pub fn add_scope(scopes: impl Into<Scopes>, more: impl Into<Scopes>) -> Scopes {
    let mut scopes = scopes.into();
    scopes.join(more.into());
    scopes
}

impl Scopes {
    /// None.
    pub fn new() -> Self {
        Scopes::default()
    }

    /// The same scopes in no order: none is more specific than the others.
    pub fn unordered(mut self) -> Self {
        self.set_unordered();
        self
    }

    /// Whether the last is the most specific.
    pub fn is_ordered(&self) -> bool {
        !self.unordered
    }

    /// Whether more were given than [`SCOPES_MAX`], and the last of them left out.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The scopes, in their order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Their names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none: only the global limits hold.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn set_unordered(&mut self) {
        self.unordered = true;
    }

    /// All that is ever added is added here. A scope without a name is none.
    pub(super) fn put(&mut self, entry: Entry) {
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
            self.cut = true;
        }
    }

    pub(crate) fn join(&mut self, more: Scopes) {
        self.unordered |= more.unordered;
        self.cut |= more.cut;
        for entry in more.entries {
            self.put(entry);
        }
    }
}

impl Entry {
    /// A scope with nothing said of costs.
    pub fn of(name: impl Into<String>) -> Self {
        Entry {
            name: name.into(),
            cost: None,
        }
    }

    /// What the request is expected to cost. What is no number of units (negative, not a number)
    /// counts as more than any quota holds.
    pub fn cost(mut self, units: f64) -> Self {
        self.cost = Some(units);
        self
    }
}

/// Of costs. What is no number of units counts as the most there is.
fn is_more(now: f64, before: f64) -> bool {
    let is_amount = |cost: f64| cost >= 0.0;
    is_amount(before) && (!is_amount(now) || now > before)
}

impl From<&str> for Entry {
    fn from(name: &str) -> Self {
        Entry::of(name)
    }
}

impl From<String> for Entry {
    fn from(name: String) -> Self {
        Entry::of(name)
    }
}

impl<S: Into<String>> From<(S, f64)> for Entry {
    fn from((name, units): (S, f64)) -> Self {
        Entry::of(name).cost(units)
    }
}

impl<E: Into<Entry>> FromIterator<E> for Scopes {
    fn from_iter<I: IntoIterator<Item = E>>(entries: I) -> Self {
        let mut scopes = Scopes::new();
        for entry in entries {
            scopes.put(entry.into());
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

impl From<Entry> for Scopes {
    fn from(entry: Entry) -> Self {
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

impl<E: Into<Entry>, const N: usize> From<[E; N]> for Scopes {
    fn from(entries: [E; N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<E: Into<Entry>> From<Vec<E>> for Scopes {
    fn from(entries: Vec<E>) -> Self {
        entries.into_iter().collect()
    }
}

impl<E: Into<Entry>> From<BTreeSet<E>> for Scopes {
    fn from(entries: BTreeSet<E>) -> Self {
        entries.into_iter().collect::<Scopes>().unordered()
    }
}

impl<S: Into<String>> From<BTreeMap<S, f64>> for Scopes {
    fn from(entries: BTreeMap<S, f64>) -> Self {
        entries.into_iter().collect::<Scopes>().unordered()
    }
}
