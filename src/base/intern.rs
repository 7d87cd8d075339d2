//! Interns names as small ids, so that a million references do not repeat the text.
//!
//! Hand-written: the usual libraries never free a name, and a crawl forgets hosts.

use std::hash::BuildHasher;

use smol_str::SmolStr;

use super::chunked::ChunkedVec;
use super::secret::Secret;
use super::sharded::ShardedTable;

/// A two-way map of strings and dense ids.
///
/// Ids start at 0; a removed one is reused for the next new name, so tables indexed by id stay as
/// small as the maximum number of names held at once. Names of up to 23 bytes, as most hosts have,
/// cost about 34 bytes each, including the table; longer ones need an allocation as well.
pub struct Interner {
    names: ChunkedVec<Option<SmolStr>>,
    /// Removed ids; the last one is reused first.
    free: Vec<u32>,
    /// Ids by the hash of their names. Never iterated.
    table: ShardedTable<u32>,
    hasher: Secret,
}

impl Interner {
    /// An empty interner; names are hashed under a secret because remote parties choose them.
    pub fn new(secret: &Secret) -> Self {
        Interner {
            names: ChunkedVec::new(),
            free: Vec::new(),
            table: ShardedTable::new(),
            hasher: *secret,
        }
    }

    /// The id of a name, if it is interned.
    pub fn get(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        let found = self
            .table
            .shard(hash)
            .find(hash, |id| self.names[*id as usize].as_deref() == Some(name));
        found.copied()
    }

    /// The id of a name; interns it if it is new.
    ///
    /// Panics beyond 2³² names, which no bounded crawl reaches.
    pub fn intern(&mut self, name: &str) -> u32 {
        if let Some(id) = self.get(name) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.names.push(None);
            u32::try_from(self.names.len() - 1).expect("at most 2^32 names are held")
        });
        self.names[id as usize] = Some(SmolStr::new(name));
        let (names, hasher) = (&self.names, &self.hasher);
        let hash = hasher.hash_one(name);
        let hash_of = |id: &u32| hasher.hash_one(text(&names[*id as usize]));
        let shard = self.table.shard_with_room(hash, hash_of);
        shard.insert_unique(hash, id, hash_of);
        id
    }

    /// The name of an id in use; panics for any other id.
    pub fn name(&self, id: u32) -> &str {
        text(self.names.get(id as usize).unwrap_or(&None))
    }

    /// Returns whether an id is in use.
    pub fn is_used(&self, id: u32) -> bool {
        matches!(self.names.get(id as usize), Some(Some(_)))
    }

    /// Removes a name; its id may be reused. Ids not in use are ignored.
    pub fn remove(&mut self, id: u32) {
        let Some(held) = self.names.get_mut(id as usize) else {
            return;
        };
        let Some(name) = held.take() else {
            return;
        };
        let hash = self.hasher.hash_one(name.as_str());
        let shard = self.table.shard_mut(hash);
        if let Ok(entry) = shard.find_entry(hash, |held| *held == id) {
            entry.remove();
        }
        self.free.push(id);
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// One more than the largest id ever used: the required length of a table indexed by id.
    pub fn id_bound(&self) -> usize {
        self.names.len()
    }
}

fn text(name: &Option<SmolStr>) -> &str {
    name.as_deref().expect("an id in use has a name")
}

impl std::fmt::Debug for Interner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interner({} names)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_has_one_id_and_an_id_one_name() {
        let mut names = Interner::new(&Secret::from_seed(1));
        let a = names.intern("a.test");
        let b = names.intern("b.test");
        assert_ne!(a, b);
        assert_eq!(names.intern("a.test"), a);
        assert_eq!(names.get("b.test"), Some(b));
        assert_eq!(names.get("c.test"), None);
        assert_eq!((names.name(a), names.name(b)), ("a.test", "b.test"));
    }

    #[test]
    fn ids_are_reused_so_that_tables_stay_small() {
        let mut names = Interner::new(&Secret::from_seed(1));
        for round in 0..1000 {
            let id = names.intern(&format!("{round}.test"));
            assert_eq!(id, 0);
            assert!(names.is_used(id));
            names.remove(id);
            names.remove(id);
            assert!(!names.is_used(id) && !names.is_used(1));
        }
        assert!(names.is_empty());
        assert_eq!(names.id_bound(), 1);
    }

    #[test]
    fn short_and_long_names_are_returned_unchanged() {
        assert_eq!(size_of::<Option<SmolStr>>(), 24);
        let mut names = Interner::new(&Secret::from_seed(1));
        let texts: Vec<String> = (0..60).map(|length| "é.".repeat(length)).collect();
        let ids: Vec<u32> = texts.iter().map(|text| names.intern(text)).collect();
        for (text, id) in texts.iter().zip(ids) {
            assert_eq!(names.name(id), text);
            assert_eq!(names.get(text), Some(id));
        }
    }

    #[test]
    #[should_panic(expected = "an id in use has a name")]
    fn a_removed_id_has_no_name() {
        let mut names = Interner::new(&Secret::from_seed(1));
        let id = names.intern("a");
        names.remove(id);
        names.name(id);
    }

    proptest! {
        #[test]
        fn an_interner_behaves_like_a_list_of_names(
            steps in prop::collection::vec((any::<bool>(), 0..60u32), 0..400),
            seed in any::<u64>(),
        ) {
            let mut names = Interner::new(&Secret::from_seed(seed));
            let mut model: Vec<(String, u32)> = Vec::new();
            for (keep, number) in steps {
                let name = format!("host-{number}");
                let held = model.iter().position(|(held, _)| *held == name);
                prop_assert_eq!(names.get(&name), held.map(|index| model[index].1));
                if keep {
                    let id = names.intern(&name);
                    if held.is_none() {
                        prop_assert!(model.iter().all(|(_, other)| *other != id));
                        model.push((name, id));
                    }
                } else if let Some(index) = held {
                    names.remove(model.swap_remove(index).1);
                }
                prop_assert_eq!(names.len(), model.len());
                prop_assert!(model.iter().all(|(name, id)| names.name(*id) == name));
            }
        }
    }
}
