//! The seen set: which URLs were admitted, by fingerprint.

use hashbrown::HashTable;

/// Fingerprints of admitted URLs.
///
/// 64 bits each: among 100 million URLs the chance that any two collide is 0.03 %, and a collision
/// costs one page. About 9 to 18 bytes a URL.
#[derive(Debug, Default)]
pub struct Seen {
    prints: HashTable<u64>,
}

impl Seen {
    /// Adds a fingerprint; false if it was there.
    pub fn insert(&mut self, print: u64) -> bool {
        match self.prints.entry(print, |other| *other == print, |p| *p) {
            hashbrown::hash_table::Entry::Occupied(_) => false,
            hashbrown::hash_table::Entry::Vacant(place) => {
                place.insert(print);
                true
            }
        }
    }

    /// Whether the fingerprint is there.
    pub fn contains(&self, print: u64) -> bool {
        self.prints.find(print, |other| *other == print).is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.prints.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_new_once() {
        let mut seen = Seen::default();
        assert!(seen.insert(7));
        assert!(!seen.insert(7));
        assert!(seen.contains(7));
        assert!(!seen.contains(8));
        assert_eq!(seen.len(), 1);
    }
}
