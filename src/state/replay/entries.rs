//! Entries by number, in a table that never moves as a whole: a running crawl replays its own journal.

use hashbrown::HashMap;

use crate::base::secret::Known;
use crate::state::record::Entry;

/// Entries by their numbers.
///
/// A table of a million entries that doubles would move some hundred megabytes in one turn. Here each of many
/// tables doubles separately, and moves pointers.
#[derive(Debug)]
pub struct Entries {
    tables: Vec<HashMap<u64, Box<Entry>, Known>>,
}

/// Number of tables. Numbers that follow each other go to different ones.
const TABLES: u64 = 64;

impl Default for Entries {
    fn default() -> Self {
        Entries {
            tables: (0..TABLES).map(|_| HashMap::default()).collect(),
        }
    }
}

impl Entries {
    /// Adds an entry, or replaces that of its number.
    pub fn insert(&mut self, entry: Entry) {
        let number = entry.job.id;
        self.table_mut(number).insert(number, Box::new(entry));
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u64) -> Option<Entry> {
        self.table_mut(number).remove(&number).map(|entry| *entry)
    }

    /// The entry of a number.
    pub fn get(&self, number: u64) -> Option<&Entry> {
        let table = &self.tables[(number % TABLES) as usize];
        table.get(&number).map(|entry| &**entry)
    }

    /// Whether there is an entry of this number.
    pub fn has(&self, number: u64) -> bool {
        self.get(number).is_some()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.tables.iter().map(HashMap::len).sum()
    }

    /// All entries, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        let tables = self.tables.iter();
        tables.flat_map(|table| table.values().map(|entry| &**entry))
    }

    /// All entries, in any order.
    pub fn into_any_order(self) -> impl Iterator<Item = Entry> {
        let tables = self.tables.into_iter();
        tables.flat_map(|table| table.into_values().map(|entry| *entry))
    }

    /// All entries, by number.
    pub fn into_ordered(self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.into_any_order().collect();
        entries.sort_unstable_by_key(|entry| entry.job.id);
        entries
    }

    /// Keeps the entries that satisfy `is_kept`.
    pub fn retain(&mut self, is_kept: impl Fn(&Entry) -> bool) {
        for table in &mut self.tables {
            table.retain(|_, entry| is_kept(entry));
        }
    }

    fn table_mut(&mut self, number: u64) -> &mut HashMap<u64, Box<Entry>, Known> {
        &mut self.tables[(number % TABLES) as usize]
    }
}
