//! Entries by number, in a table that never moves as a whole: a running crawl replays its own journal.

use hashbrown::HashMap;

use crate::base::secret::Known;
use crate::state::record::{self, Entry};

/// Entries by their numbers.
///
/// A table of a million entries that doubles would move some hundred megabytes in one turn. Here each of many
/// tables doubles separately, and moves pointers. Each entry is kept as the bytes of its record, which take a
/// tenth of its memory.
#[derive(Debug)]
pub struct Entries {
    tables: Vec<HashMap<u64, Box<[u8]>, Known>>,
    /// What an entry replaces, of those that replace one.
    replaced: HashMap<u64, u64, Known>,
    /// Room for the bytes of one entry.
    bytes: Vec<u8>,
}

/// Number of tables: one of ten million entries has ten thousand. Numbers that follow each other go to different
/// ones.
pub const TABLES: u64 = 1024;

impl Default for Entries {
    fn default() -> Self {
        Entries {
            tables: (0..TABLES).map(|_| HashMap::default()).collect(),
            replaced: HashMap::default(),
            bytes: Vec::new(),
        }
    }
}

impl Entries {
    /// Adds an entry, or replaces that of its number.
    pub fn insert(&mut self, entry: &Entry) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        record::encode_stored(entry, &mut bytes);
        self.insert_stored(entry.job.id, entry.replaces, &bytes);
        self.bytes = bytes;
    }

    /// The same, of an entry with these bytes.
    pub fn insert_stored(&mut self, number: u64, replaces: u64, bytes: &[u8]) {
        match replaces {
            0 if self.replaced.is_empty() => None,
            0 => self.replaced.remove(&number),
            replaced => self.replaced.insert(number, replaced),
        };
        self.table_mut(number).insert(number, bytes.into());
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u64) -> Option<Entry> {
        let bytes = self.table_mut(number).remove(&number)?;
        self.replaced.remove(&number);
        Some(decode(&bytes))
    }

    /// The entry of a number.
    pub fn get(&self, number: u64) -> Option<Entry> {
        self.table(number).get(&number).map(|bytes| decode(bytes))
    }

    /// Whether there is an entry of this number.
    pub fn has(&self, number: u64) -> bool {
        self.table(number).contains_key(&number)
    }

    /// The numbers of entries that replace others, each with the one it replaces.
    pub fn replacements(&self) -> impl Iterator<Item = (u64, u64)> {
        self.replaced
            .iter()
            .map(|(number, replaced)| (*number, *replaced))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.tables.iter().map(HashMap::len).sum()
    }

    /// The entries of a table, of which there are [`TABLES`].
    pub fn of_table(&self, table: u64) -> impl Iterator<Item = Entry> {
        let table = &self.tables[table as usize];
        table.values().map(|bytes| decode(bytes))
    }

    /// All entries, in any order.
    pub fn into_any_order(self) -> impl Iterator<Item = Entry> {
        let tables = self.tables.into_iter();
        tables.flat_map(|table| table.into_values().map(|bytes| decode(&bytes)))
    }

    /// All entries, by number.
    pub fn into_ordered(self) -> OrderedEntries {
        let tables = self.tables.into_iter();
        let mut entries: Vec<(u64, Box<[u8]>)> = tables.flatten().collect();
        entries.sort_unstable_by_key(|(number, _)| *number);
        OrderedEntries {
            entries: entries.into_iter(),
        }
    }

    fn table(&self, number: u64) -> &HashMap<u64, Box<[u8]>, Known> {
        &self.tables[(number % TABLES) as usize]
    }

    fn table_mut(&mut self, number: u64) -> &mut HashMap<u64, Box<[u8]>, Known> {
        &mut self.tables[(number % TABLES) as usize]
    }
}

/// Bytes of a record that are not its entry: the head of its frame, and its kind.
const RECORD: usize = 9;

/// Entries by number. Each is made from its bytes when it is asked for.
#[derive(Debug, Default)]
pub struct OrderedEntries {
    entries: std::vec::IntoIter<(u64, Box<[u8]>)>,
}

impl OrderedEntries {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of their records, roughly.
    pub fn bytes(&self) -> usize {
        let entries = self.entries.as_slice().iter();
        entries.map(|(_, bytes)| bytes.len() + RECORD).sum()
    }

    /// Returns whether there are none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of the entries.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        let entries = self.entries.as_slice().iter();
        entries.map(|(number, _)| *number)
    }

    /// Removes the entries that `is_taken` names, by their numbers; it may ask for an entry.
    pub fn extract(&mut self, is_taken: impl Fn(u64, &dyn Fn() -> Entry) -> bool) -> Vec<Entry> {
        let entries = std::mem::take(&mut self.entries);
        let (taken, left): (Vec<_>, Vec<_>) =
            entries.partition(|(number, bytes)| is_taken(*number, &|| decode(bytes)));
        self.entries = left.into_iter();
        taken.iter().map(|(_, bytes)| decode(bytes)).collect()
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        let entries = self.entries.as_slice().iter();
        entries.map(|(_, bytes)| decode(bytes))
    }
}

/// Removes the entries, one by one.
impl Iterator for OrderedEntries {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.entries.next().map(|(_, bytes)| decode(&bytes))
    }
}

fn decode(bytes: &[u8]) -> Entry {
    record::decode_request(bytes).expect("it was encoded here")
}
