//! A set of numbers of attempts: a bit each, where there are any.

use std::collections::BTreeMap;

/// Numbers of attempts.
#[derive(Debug, Default)]
pub struct Numbers {
    /// By their numbers without the lowest binary digits.
    pages: BTreeMap<u64, Box<[u64; WORDS]>>,
}

/// Words of a page: numbers are mostly dense.
const WORDS: usize = 64;

impl Numbers {
    /// Adds a number. Returns whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        let (page, word, bit) = place_of(number);
        let words = (self.pages.entry(page)).or_insert_with(|| Box::new([0; WORDS]));
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }

    /// Whether a number is among them.
    pub fn has(&self, number: u64) -> bool {
        let (page, word, bit) = place_of(number);
        let words = self.pages.get(&page);
        words.is_some_and(|words| words[word] & bit != 0)
    }
}

/// The page of a number, the word in it, and the bit in that.
fn place_of(number: u64) -> (u64, usize, u64) {
    let word = number / 64;
    let (page, word) = (word / WORDS as u64, word % WORDS as u64);
    (page, word as usize, 1 << (number % 64))
}

impl Extend<u64> for Numbers {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, numbers: I) {
        for number in numbers {
            self.insert(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn each_number_is_new_once() {
        let mut rng = Rng::from_seed(8);
        let (mut numbers, mut model) = (Numbers::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let number = [rng.below(5000), u64::MAX - rng.below(5000)][rng.below(2) as usize];
            assert_eq!(numbers.has(number), model.contains(&number), "{number}");
            assert_eq!(numbers.insert(number), model.insert(number), "{number}");
        }
        assert_eq!(numbers.pages.len(), 4);
    }
}
