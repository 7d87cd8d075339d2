//! Numbers for the names of hosts and scopes, of which there may be millions.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// A name's number, an index of tables beside this one.
pub type NameId = u32;

/// The names, one after the other in one text: some 40 bytes for each. Servers choose them, so they are hashed under
/// a random key.
pub struct Names {
    secret: RandomState,
    table: HashTable<NameId>,
    text: String,
    /// Where each ends.
    ends: Vec<u32>,
    most: usize,
}

/// Most names, and bytes of them. A crawl may have more: what is not counted for these is counted in total.
pub const NAMES_MAX: usize = 1_000_000;
const BYTES_PER_NAME: usize = 64;

impl Names {
    /// Room for so many names. It is reserved at once, which costs memory only as it is used; a table that grows
    /// would leave behind as much as it has.
    pub fn new(most: usize) -> Self {
        Names {
            secret: RandomState::new(),
            table: HashTable::with_capacity(most),
            text: String::with_capacity(most * BYTES_PER_NAME),
            ends: Vec::with_capacity(most),
            most,
        }
    }

    /// The number of a name, a new one if needed; `None` if the table is full.
    pub fn id(&mut self, name: &str) -> Option<NameId> {
        let hash = self.secret.hash_one(name);
        let (text, ends) = (&self.text, &self.ends);
        if let Some(id) = self.table.find(hash, |id| name_of(text, ends, *id) == name) {
            return Some(*id);
        }
        let is_full = self.ends.len() >= self.most
            || self.text.len() + name.len() > self.most * BYTES_PER_NAME;
        if is_full {
            return None;
        }
        let id = self.ends.len() as NameId;
        self.text.push_str(name);
        self.ends.push(self.text.len() as u32);
        let (text, ends, secret) = (&self.text, &self.ends, &self.secret);
        self.table
            .insert_unique(hash, id, |id| secret.hash_one(name_of(text, ends, *id)));
        Some(id)
    }

    /// The name with this number.
    pub fn name(&self, id: NameId) -> &str {
        name_of(&self.text, &self.ends, id)
    }
}

fn name_of<'a>(text: &'a str, ends: &[u32], id: NameId) -> &'a str {
    let at = id as usize;
    let begin = at.checked_sub(1).map_or(0, |before| ends[before]);
    &text[begin as usize..ends[at] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_number_and_a_full_table_takes_no_more() {
        let mut names = Names::new(3);
        assert_eq!(names.id("a.test"), Some(0));
        assert_eq!(names.id(""), Some(1));
        assert_eq!(names.id("a.test"), Some(0));
        assert_eq!(names.id("b.test"), Some(2));
        assert_eq!(names.id("c.test"), None);
        assert_eq!(names.id("b.test"), Some(2));
        assert_eq!([0, 1, 2].map(|id| names.name(id)), ["a.test", "", "b.test"]);
    }

    #[test]
    fn bytes_of_names_are_bounded_too() {
        let mut names = Names::new(2);
        assert_eq!(names.id(&"x".repeat(129)), None);
        assert_eq!(names.id(&"x".repeat(128)), Some(0));
        assert_eq!(names.id("y"), None);
    }

    #[test]
    fn names_are_found_after_the_table_has_grown() {
        let mut names = Names::new(10_000);
        for round in 0..2 {
            for number in 0..10_000 {
                let found = names.id(&format!("{number}.test"));
                assert_eq!(found, Some(number), "round {round}");
            }
        }
    }
}
