//! Rows of accounts by the names of their scopes.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::BuildHasher;

use super::Account;
use crate::base::secret;

/// One row for each name.
#[derive(Debug, Default)]
pub(super) struct NameIndex(HashTable<u32>);

impl NameIndex {
    /// The row of a name.
    pub fn find(&self, name: &str, rows: &[Account]) -> Option<u32> {
        let is_it = |row: &u32| rows[*row as usize].scope == name;
        self.0.find(hash_of(name), is_it).copied()
    }

    /// A row is that of its name from now on.
    pub fn insert(&mut self, row: u32, rows: &[Account]) {
        let name = |row: &u32| &rows[*row as usize].scope;
        let own = name(&row);
        let entry = self.0.entry(
            hash_of(own),
            |other| name(other) == own,
            |other| hash_of(name(other)),
        );
        match entry {
            Entry::Occupied(mut entry) => *entry.get_mut() = row,
            Entry::Vacant(entry) => drop(entry.insert(row)),
        }
    }

    /// A row is to be another's.
    pub fn remove(&mut self, row: u32, rows: &[Account]) {
        let hash = hash_of(&rows[row as usize].scope);
        if let Ok(entry) = self.0.find_entry(hash, |other| *other == row) {
            entry.remove();
        }
    }
}

/// Names come from remote sites.
fn hash_of(name: &str) -> u64 {
    secret::of_process().hash_one(name)
}
