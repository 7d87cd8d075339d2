//! Counts by name, of a bounded number of names.

use std::collections::HashMap;

use serde::Serialize;

/// Replies and their bytes by a name that servers may choose.
pub struct Counts {
    table: HashMap<Box<str>, (u64, u64)>,
    others: u64,
}

/// The names with the highest counts.
#[derive(Serialize)]
pub struct Ranking {
    pub rows: Vec<Count>,
    /// Count of all other names.
    pub others: u64,
}

/// A name and its count.
#[derive(Serialize)]
pub struct Count {
    pub name: String,
    pub count: u64,
    /// Bytes of these replies, as received.
    pub bytes_wire: u64,
}

/// Most names that are counted one by one.
const NAMES_MAX: usize = 1000;
/// Most bytes of a name that are kept.
const NAME_LENGTH_MAX: usize = 200;

impl Counts {
    pub fn new() -> Self {
        Counts {
            table: HashMap::new(),
            others: 0,
        }
    }

    /// Counts a reply.
    pub fn add(&mut self, name: &str, bytes_wire: u64) {
        let name = beginning(name, NAME_LENGTH_MAX);
        let is_full = self.table.len() >= NAMES_MAX;
        let entry = match self.table.get_mut(name) {
            Some(entry) => entry,
            None if !is_full => self.table.entry(name.into()).or_default(),
            None => {
                self.others += 1;
                return;
            }
        };
        entry.0 += 1;
        entry.1 += bytes_wire;
    }

    /// The names with the highest counts; ties are ordered by name.
    pub fn ranked(&self, most: usize) -> Ranking {
        let mut rows: Vec<Count> = self
            .table
            .iter()
            .map(|(name, &(count, bytes_wire))| Count {
                name: name.to_string(),
                count,
                bytes_wire,
            })
            .collect();
        rows.sort_by(|a, b| (b.count, &a.name).cmp(&(a.count, &b.name)));
        let rest = rows.split_off(most.min(rows.len()));
        let others = self.others + rest.iter().map(|row| row.count).sum::<u64>();
        Ranking { rows, others }
    }
}

/// The beginning of a text, of at most so many bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let mut counts = Counts::new();
        for number in 0..NAMES_MAX + 10 {
            counts.add(&format!("type/{number}"), 5);
        }
        counts.add("type/7", 5);
        let ranking = counts.ranked(3);
        let rows: Vec<(&str, u64, u64)> = ranking
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.count, row.bytes_wire))
            .collect();
        let expected = [("type/7", 2, 10), ("type/0", 1, 5), ("type/1", 1, 5)];
        assert_eq!(rows, expected);
        assert_eq!(ranking.others, NAMES_MAX as u64 + 10 - 3);
        let all = counts.ranked(usize::MAX);
        assert_eq!((all.rows.len(), all.others), (NAMES_MAX, 10));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut counts = Counts::new();
        counts.add(&"é".repeat(150), 0);
        counts.add(&format!("a{}", "é".repeat(150)), 0);
        let rows = counts.ranked(2).rows;
        assert_eq!(rows[0].name, format!("a{}", "é".repeat(99)));
        assert_eq!(rows[1].name, "é".repeat(100));
        assert_eq!(beginning("aé", 2), "a");
    }
}
