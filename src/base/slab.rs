//! A slab with generation-checked keys; the only file that uses the `slab` crate.

/// The slot of a value, with the slot's generation.
///
/// The key of a removed value finds nothing, even if its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Index of the slot, small and dense: freed slots are reused first.
    pub slot: u32,
    /// Number of values that the slot had before, modulo 2³².
    pub generation: u32,
}

impl Key {
    /// The key as one number, for interfaces that only support that.
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The inverse of [`to_u64`](Self::to_u64).
    pub const fn from_u64(number: u64) -> Key {
        Key {
            slot: number as u32,
            generation: (number >> 32) as u32,
        }
    }
}

/// Values in slots: insertion, removal and access in constant time.
pub struct Slab<T> {
    values: slab::Slab<T>,
    /// By slot, the generation of its present or next value.
    generations: Vec<u32>,
}

impl<T> Slab<T> {
    /// An empty slab.
    pub const fn new() -> Self {
        Slab {
            values: slab::Slab::new(),
            generations: Vec::new(),
        }
    }

    /// Inserts a value into a free slot.
    ///
    /// Panics beyond 2³² values, which no bounded crawl reaches.
    pub fn insert(&mut self, value: T) -> Key {
        let key = self.vacant_key();
        self.insert_vacant(value);
        key
    }

    /// Number of slots, free ones included: the slot of each value is less.
    pub fn slots(&self) -> u32 {
        self.generations.len() as u32
    }

    /// The key of the next inserted value.
    pub fn vacant_key(&self) -> Key {
        let index = self.values.vacant_key();
        let slot = u32::try_from(index).expect("a slab holds at most 2^32 values");
        let generation = self.generations.get(index).copied().unwrap_or(0);
        Key { slot, generation }
    }

    /// The value of a key, unless it was removed.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.is_current(key).then(|| self.by_slot(key.slot))?
    }

    /// The value of a key, unless it was removed; mutable.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.is_current(key).then(|| self.by_slot_mut(key.slot))?
    }

    /// Removes a value; its key is stale from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        if !self.is_current(key) {
            return None;
        }
        let value = self.values.try_remove(key.slot as usize)?;
        let generation = &mut self.generations[key.slot as usize];
        *generation = generation.wrapping_add(1);
        Some(value)
    }

    /// The present value of a slot.
    pub fn by_slot(&self, slot: u32) -> Option<&T> {
        self.values.get(slot as usize)
    }

    /// The present value of a slot, mutable.
    pub fn by_slot_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.values.get_mut(slot as usize)
    }

    /// The key of a slot's present value.
    pub fn key_of(&self, slot: u32) -> Option<Key> {
        let generation = *self.generations.get(slot as usize)?;
        self.values
            .contains(slot as usize)
            .then_some(Key { slot, generation })
    }

    /// All values in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.values.iter().map(|(index, value)| {
            let (slot, generation) = (index as u32, self.generations[index]);
            (Key { slot, generation }, value)
        })
    }

    /// All values in the order of their slots, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        let generations = &self.generations;
        self.values.iter_mut().map(|(index, value)| {
            let (slot, generation) = (index as u32, generations[index]);
            (Key { slot, generation }, value)
        })
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn insert_vacant(&mut self, value: T) {
        let index = self.values.insert(value);
        if index == self.generations.len() {
            self.generations.push(0);
        }
    }

    fn is_current(&self, key: Key) -> bool {
        self.generations.get(key.slot as usize) == Some(&key.generation)
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing_even_if_its_slot_is_reused() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        assert_eq!(slab.get(first), None);
        let second = slab.insert("second");
        assert_eq!(second.slot, first.slot);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.by_slot(first.slot), Some(&"second"));
        assert_eq!(slab.key_of(first.slot), Some(second));
    }

    #[test]
    fn the_vacant_key_is_the_next_inserted_key() {
        let mut slab = Slab::new();
        for value in 0..4 {
            let predicted = slab.vacant_key();
            assert_eq!(slab.insert(value), predicted);
            if value % 2 == 0 {
                slab.remove(predicted);
            }
        }
    }

    #[test]
    fn values_are_iterated_in_the_order_of_their_slots() {
        let mut slab = Slab::new();
        let keys: Vec<Key> = (0..5).map(|value| slab.insert(value)).collect();
        slab.remove(keys[3]);
        slab.remove(keys[1]);
        slab.insert(9);
        for (_, value) in slab.iter_mut() {
            *value *= 10;
        }
        let values: Vec<i32> = slab.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [0, 90, 20, 40]);
        assert!(slab.iter().all(|(key, value)| slab.get(key) == Some(value)));
        assert_eq!(slab.len(), 4);
    }

    #[test]
    fn a_key_can_be_converted_to_a_number_and_back() {
        let key = Key {
            slot: 7,
            generation: u32::MAX,
        };
        assert_eq!(Key::from_u64(key.to_u64()), key);
    }
}
