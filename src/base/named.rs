//! Values by name, one after the other in memory: those of millions of names are added without an allocation for
//! each.
//!
//! Hand-written: a map of libraries has two allocations for each name and its value, and moves all when it grows.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use super::secret;
use super::sharded::ShardedTable;

/// The newest value of each name, with its time.
///
/// Values are appended, and what is replaced or removed is dead until its piece is free. Where more than half is
/// dead, what is left of the oldest piece is appended again.
#[derive(Debug, Default)]
pub struct NamedValues {
    pieces: VecDeque<Piece>,
    /// Number of the first piece.
    first: u32,
    index: ShardedTable<Place>,
    /// Items that are not in the index yet.
    unsettled: Vec<Place>,
    /// Bytes of the items of these.
    unsettled_bytes: usize,
    len: usize,
    /// Bytes of the items that are in use.
    used: usize,
    /// The same, with those that are dead.
    bytes: usize,
}

/// Items, one after the other.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    used: usize,
}

/// Where the item of a name is.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u64,
    piece: u32,
    offset: u32,
}

/// A value with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedValue<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its time, in a unit of the caller's.
    pub at: u64,
    /// The value.
    pub value: &'a [u8],
}

/// What a review of one saved value found: nothing, or a name whose value is recorded anew, empty if it has no effect
/// any more.
pub type Reviewed = Option<(Box<str>, Vec<u8>)>;

/// A position between values, from the first one that was added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    piece: u32,
    offset: usize,
}

/// An item as it is stored: whether it is in use (1 byte), time (8), lengths of name and value (4 each), both.
struct Item<'a> {
    is_used: bool,
    named: NamedValue<'a>,
    length: usize,
}

/// Bytes of an item before its name.
const HEAD: usize = 1 + 8 + 4 + 4;

/// Bytes of a piece, which is appended again within a millisecond. In tests it has few items.
const PIECE: usize = if cfg!(test) { 500 } else { 128 << 10 };

/// Memory of an entry of the index, on average.
const INDEXED: usize = 32;

impl NamedValues {
    /// Without values.
    pub fn new() -> Self {
        NamedValues::default()
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of names and values in use.
    pub fn bytes(&self) -> usize {
        self.used - HEAD * self.len
    }

    /// Memory of what is in use, roughly.
    pub fn memory(&self) -> usize {
        self.used + INDEXED * self.len
    }

    /// Adds a value, or replaces that of its name.
    pub fn insert(&mut self, named: NamedValue<'_>) {
        let hash = hash_of(named.name);
        self.take_hashed(hash, named.name);
        self.append(hash, named);
        if self.bytes > 2 * self.used + 2 * PIECE {
            self.renew_first();
        }
    }

    /// Adds a value, or replaces that of its name, as [`NamedValues::insert`] does. [`NamedValues::settle`] puts it
    /// into the index. Before that only `add` and the counts of bytes may be called. A million values take half the
    /// time of `insert`.
    pub fn add(&mut self, named: NamedValue<'_>) {
        let before = self.bytes;
        let added = self.append_item(hash_of(named.name), named);
        self.unsettled.push(added);
        self.unsettled_bytes += self.bytes - before;
    }

    /// Memory of values that were added and are not in the index: they may have replaced others.
    pub fn unsettled_memory(&self) -> usize {
        self.unsettled_bytes + size_of::<Place>() * self.unsettled.len()
    }

    /// Puts what was added into the index.
    pub fn settle(&mut self) {
        let mut added = std::mem::take(&mut self.unsettled);
        self.unsettled_bytes = 0;
        if self.index.is_empty() {
            self.index = ShardedTable::for_records(added.len());
        }
        let hash_of = |place: &Place| place.hash;
        ShardedTable::sort(&mut added, hash_of);
        for place in added {
            let name_at = |place: Place| self.item_at(place).named.name;
            let is_older =
                |other: &Place| other.hash == place.hash && name_at(*other) == name_at(place);
            let shard = self.index.shard(place.hash);
            let Some(older) = shard.find(place.hash, is_older).copied() else {
                let shard = self.index.shard_with_room(place.hash, hash_of);
                shard.insert_unique(place.hash, place, hash_of);
                continue;
            };
            let shard = self.index.shard_mut(place.hash);
            let found = shard.find_mut(place.hash, |other| other.is(older));
            *found.expect("it was found before") = place;
            self.mark_dead(older);
        }
        self.free_first();
        while self.bytes > 2 * self.used + 2 * PIECE && self.pieces.len() > 1 {
            self.renew_first();
        }
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<NamedValue<'_>> {
        let place = self.find(hash_of(name), name)?;
        Some(self.item_at(place).named)
    }

    /// Removes a name; returns the time and the value.
    pub fn remove(&mut self, name: &str) -> Option<(u64, Box<[u8]>)> {
        if self.is_empty() {
            return None;
        }
        let place = self.find(hash_of(name), name)?;
        let NamedValue { at, value, .. } = self.item_at(place).named;
        let value = value.into();
        self.take(name);
        Some((at, value))
    }

    /// Removes a name; returns whether it was there.
    pub fn take(&mut self, name: &str) -> bool {
        self.take_hashed(hash_of(name), name)
    }

    fn take_hashed(&mut self, hash: u64, name: &str) -> bool {
        let Some(place) = self.find(hash, name) else {
            return false;
        };
        let shard = self.index.shard_mut(hash);
        let found = shard.find_entry(hash, |other| other.is(place));
        if let Ok(entry) = found {
            entry.remove();
        }
        self.mark_dead(place);
        self.free_first();
        true
    }

    /// An item is not in the index any more.
    fn mark_dead(&mut self, place: Place) {
        let length = self.item_at(place).length;
        self.len -= 1;
        self.used -= length;
        let piece = &mut self.pieces[(place.piece - self.first) as usize];
        piece.bytes[place.offset as usize] = 0;
        piece.used -= length;
    }

    /// All values, in the order in which they were added, for the most part.
    pub fn iter(&self) -> impl Iterator<Item = NamedValue<'_>> {
        let pieces = self.pieces.iter();
        let items = pieces.flat_map(|piece| items_from(&piece.bytes, 0));
        items.filter(|item| item.is_used).map(|item| item.named)
    }

    /// The next value at a position, which moves behind it, or behind the last one: what was removed is passed
    /// once. What is added meanwhile may come, too.
    pub fn next(&self, position: &mut Position) -> Option<NamedValue<'_>> {
        if position.piece < self.first {
            *position = Position {
                piece: self.first,
                offset: 0,
            };
        }
        loop {
            let number = (position.piece - self.first) as usize;
            let piece = self.pieces.get(number)?;
            for item in items_from(&piece.bytes, position.offset) {
                position.offset += item.length;
                if item.is_used {
                    return Some(item.named);
                }
            }
            if number + 1 == self.pieces.len() {
                return None;
            }
            *position = Position {
                piece: position.piece + 1,
                offset: 0,
            };
        }
    }

    /// Reviews the value at a position, which moves behind it, once for each. One that `is_over` is removed, and is
    /// recorded as empty unless it was. One whose time is after `latest` is recorded anew. `None`: all were reviewed.
    pub fn review(
        &mut self,
        position: &mut Position,
        latest: u64,
        is_over: impl FnOnce(NamedValue<'_>) -> bool,
    ) -> Option<Reviewed> {
        let mut next = *position;
        let reviewed = self.next(&mut next).map(|named| {
            let is_over = is_over(named);
            let is_changed = is_over && !named.value.is_empty() || named.at > latest;
            let value = if is_over { &[] } else { named.value };
            let changed = is_changed.then(|| (Box::from(named.name), value.to_vec()));
            (changed, is_over.then(|| Box::<str>::from(named.name)))
        });
        *position = next;
        let (changed, over) = reviewed?;
        if let Some(name) = over {
            self.take(&name);
        }
        Some(changed)
    }

    /// All values, in the order of [`NamedValues::iter`]. Memory is freed meanwhile.
    pub fn into_values(self) -> impl Iterator<Item = (String, u64, Vec<u8>)> {
        let mut pieces = self.pieces;
        drop(self.index);
        let mut offset = 0;
        std::iter::from_fn(move || {
            while let Some(piece) = pieces.front() {
                for item in items_from(&piece.bytes, offset) {
                    offset += item.length;
                    if item.is_used {
                        let NamedValue { name, at, value } = item.named;
                        return Some((name.to_owned(), at, value.to_owned()));
                    }
                }
                pieces.pop_front();
                offset = 0;
            }
            None
        })
    }

    fn find(&self, hash: u64, name: &str) -> Option<Place> {
        let is_it = |place: &Place| place.hash == hash && self.item_at(*place).named.name == name;
        self.index.shard(hash).find(hash, is_it).copied()
    }

    fn item_at(&self, place: Place) -> Item<'_> {
        let piece = &self.pieces[(place.piece - self.first) as usize];
        item_at(&piece.bytes, place.offset as usize).expect("the index names items")
    }

    /// Appends a value whose name is not in the index.
    fn append(&mut self, hash: u64, named: NamedValue<'_>) {
        let place = self.append_item(hash, named);
        let hash_of = |place: &Place| place.hash;
        let shard = self.index.shard_with_room(hash, hash_of);
        shard.insert_unique(hash, place, hash_of);
    }

    /// Appends an item that is in use.
    fn append_item(&mut self, hash: u64, named: NamedValue<'_>) -> Place {
        let length = HEAD + named.name.len() + named.value.len();
        let has_room =
            |piece: &Piece| piece.bytes.is_empty() || piece.bytes.len() + length <= PIECE;
        if !self.pieces.back().is_some_and(has_room) {
            // The first one grows: mostly there are few values.
            let room = if self.pieces.is_empty() { 0 } else { PIECE };
            self.pieces.push_back(Piece {
                bytes: Vec::with_capacity(room.max(length)),
                used: 0,
            });
        }
        let number = self.first + self.pieces.len() as u32 - 1;
        let piece = self.pieces.back_mut().expect("it was just added");
        let place = Place {
            hash,
            piece: number,
            offset: piece.bytes.len() as u32,
        };
        piece.bytes.push(1);
        piece.bytes.extend(named.at.to_le_bytes());
        for length in [named.name.len(), named.value.len()] {
            piece.bytes.extend((length as u32).to_le_bytes());
        }
        piece.bytes.extend_from_slice(named.name.as_bytes());
        piece.bytes.extend_from_slice(named.value);
        piece.used += length;
        self.used += length;
        self.bytes += length;
        self.len += 1;
        place
    }

    /// Appends what is left of the first piece again, and frees it.
    fn renew_first(&mut self) {
        if self.pieces.len() < 2 {
            return;
        }
        let piece = self.take_first();
        for item in items_from(&piece.bytes, 0).filter(|item| item.is_used) {
            self.append(hash_of(item.named.name), item.named);
        }
        self.free_first();
    }

    /// Drops the values of the first piece, mostly the oldest ones. Returns false if there is one piece alone.
    pub fn drop_first(&mut self) -> bool {
        let has_more = self.pieces.len() > 1;
        if has_more {
            self.take_first();
            self.free_first();
        }
        has_more
    }

    /// Removes the first piece, and its values from the index.
    fn take_first(&mut self) -> Piece {
        let piece = self.pieces.pop_front().expect("there is one");
        let number = self.first;
        self.first += 1;
        self.bytes -= piece.bytes.len();
        self.used -= piece.used;
        let mut offset = 0;
        for item in items_from(&piece.bytes, 0) {
            if item.is_used {
                let place = Place {
                    hash: hash_of(item.named.name),
                    piece: number,
                    offset,
                };
                let shard = self.index.shard_mut(place.hash);
                if let Ok(entry) = shard.find_entry(place.hash, |other| other.is(place)) {
                    entry.remove();
                }
                self.len -= 1;
            }
            offset += item.length as u32;
        }
        piece
    }

    /// Frees the first pieces if nothing in them is in use, but for the last one, which grows.
    fn free_first(&mut self) {
        while self.pieces.len() > 1 && self.pieces[0].used == 0 {
            let freed = self.pieces.pop_front();
            self.bytes -= freed.map_or(0, |piece| piece.bytes.len());
            self.first += 1;
        }
    }
}

impl Place {
    fn is(self, other: Place) -> bool {
        (self.piece, self.offset) == (other.piece, other.offset)
    }
}

/// Names come from remote sites.
fn hash_of(name: &str) -> u64 {
    secret::of_process().hash_one(name)
}

/// The items in a piece from an offset on.
fn items_from(bytes: &[u8], mut offset: usize) -> impl Iterator<Item = Item<'_>> {
    std::iter::from_fn(move || {
        let item = item_at(bytes, offset)?;
        offset += item.length;
        Some(item)
    })
}

fn item_at(bytes: &[u8], offset: usize) -> Option<Item<'_>> {
    let (head, rest) = bytes.get(offset..)?.split_first_chunk::<HEAD>()?;
    let [is_used, at @ .., _, _, _, _, _, _, _, _] = head;
    let [.., n0, n1, n2, n3, v0, v1, v2, v3] = *head;
    let length_of = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
    let (name, rest) = rest.split_at_checked(length_of([n0, n1, n2, n3]))?;
    let value = rest.get(..length_of([v0, v1, v2, v3]))?;
    Some(Item {
        is_used: *is_used == 1,
        named: NamedValue {
            name: std::str::from_utf8(name).expect("it was a text"),
            at: u64::from_le_bytes(*at),
            value,
        },
        length: HEAD + name.len() + value.len(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::rng::Rng;

    fn owned(named: NamedValue<'_>) -> (String, u64, Vec<u8>) {
        (named.name.to_owned(), named.at, named.value.to_owned())
    }

    #[test]
    fn the_newest_value_of_each_name_is_there_and_little_memory_is_dead() {
        let mut rng = Rng::from_seed(3);
        let mut values = NamedValues::new();
        let mut model: BTreeMap<String, (u64, Vec<u8>)> = BTreeMap::new();
        for at in 0..30_000 {
            let name = format!("h{}.test", rng.below(if at < 15_000 { 2000 } else { 20 }));
            let is_settled = values.unsettled_memory() == 0;
            if is_settled && rng.chance(0.2) {
                let removed = values
                    .remove(&name)
                    .map(|(at, value)| (at, value.into_vec()));
                assert_eq!(removed, model.remove(&name));
            } else {
                let value = vec![at as u8; rng.below(30) as usize];
                let named = NamedValue {
                    name: &name,
                    at,
                    value: &value,
                };
                if is_settled && rng.chance(0.99) {
                    values.insert(named);
                } else {
                    values.add(named);
                    if rng.chance(0.01) {
                        values.settle();
                    }
                }
                model.insert(name, (at, value));
            }
            if values.unsettled_memory() > 0 {
                continue;
            }
            assert_eq!(values.len(), model.len());
            let (bytes, used) = (values.bytes, values.used);
            assert!(bytes <= 3 * used + 4 * PIECE, "{at}: {used} of {bytes}");
        }
        values.settle();
        for (name, (at, value)) in &model {
            let expected = NamedValue {
                name,
                at: *at,
                value,
            };
            assert_eq!(values.get(name), Some(expected));
        }
        assert_eq!(values.get("other.test"), None);
        let bytes = model
            .iter()
            .map(|(name, (_, value))| name.len() + value.len());
        assert_eq!(values.bytes(), bytes.sum::<usize>());
        let mut position = Position::default();
        let next = std::iter::from_fn(|| values.next(&mut position));
        let by_position: Vec<_> = next.map(owned).collect();
        let all: Vec<_> = values.iter().map(owned).collect();
        assert_eq!(by_position, all);
        let mut sorted: Vec<_> = values.into_values().collect();
        assert_eq!(sorted, all);
        sorted.sort();
        let model = model.into_iter();
        assert!(
            sorted
                .into_iter()
                .eq(model.map(|(name, (at, value))| (name, at, value)))
        );
    }

    #[test]
    fn each_value_is_reviewed_once_and_what_was_removed_is_not_passed_again() {
        let mut values = NamedValues::new();
        for number in 0..1000 {
            values.insert(NamedValue {
                name: &format!("{number:04}"),
                at: number,
                value: &b"value"[number as usize % 5..],
            });
        }
        // The first stays, and with it all pieces behind it. The last ones were needed before.
        let is_over = |named: NamedValue<'_>| !named.at.is_multiple_of(3);
        for number in 901..1000 {
            assert!(values.take(&format!("{number:04}")));
        }
        let mut position = Position::default();
        let mut recorded = Vec::new();
        while let Some(reviewed) = values.review(&mut position, 890, is_over) {
            recorded.push(reviewed.map(|(name, value)| (name.into_string(), value.len())));
        }
        assert_eq!(recorded.len(), 901);
        assert_eq!(recorded[0], None);
        assert_eq!(recorded[1], Some(("0001".to_owned(), 0)));
        assert_eq!(recorded[3], None);
        assert_eq!(
            recorded[897],
            Some(("0897".to_owned(), 3)),
            "after the latest"
        );
        assert_eq!(values.len(), 301);
        let end = (position.piece, position.offset);
        assert_eq!(end.0 as usize, values.pieces.len() - 1, "it is at the end");
        assert_eq!(values.review(&mut position, 890, is_over), None);
        assert_eq!((position.piece, position.offset), end);
        // What comes later is reviewed, too.
        let at = 2000;
        let (name, value) = ("later", &b"value"[..]);
        values.insert(NamedValue { name, at, value });
        assert!(values.review(&mut position, 890, is_over).is_some());
    }

    #[test]
    fn the_oldest_values_are_dropped_a_piece_at_a_time() {
        let mut values = NamedValues::new();
        for number in 0..1000 {
            values.insert(NamedValue {
                name: &format!("{number:04}"),
                at: number,
                value: b"value",
            });
        }
        let mut dropped = 0;
        while values.drop_first() {
            let count = 1000 - values.len() - dropped;
            assert!((1..=PIECE / HEAD).contains(&count), "{count}");
            dropped += count;
            let left: Vec<u64> = values.iter().map(|named| named.at).collect();
            assert!(left.iter().copied().eq(dropped as u64..1000));
            assert_eq!(values.get(&format!("{:04}", dropped - 1)), None);
            assert!(values.get(&format!("{dropped:04}")).is_some());
            assert_eq!(values.bytes(), 9 * left.len());
        }
        assert!(dropped > 900, "{dropped}");
    }

    #[test]
    fn a_position_stays_behind_what_it_has_passed_while_values_are_removed() {
        let mut values = NamedValues::new();
        let name_of = |number: u64| format!("{number:03}");
        for at in 0..300 {
            values.insert(NamedValue {
                name: &name_of(at),
                at,
                value: b"value",
            });
        }
        let mut position = Position::default();
        let mut found = Vec::new();
        while let Some(named) = values.next(&mut position) {
            let at = named.at;
            found.push(at);
            // One that was passed, one that comes, and all so far.
            values.take(&name_of(at));
            values.take(&name_of(at + 2));
        }
        let expected: Vec<u64> = (0..300).filter(|at| at % 4 < 2).collect();
        assert_eq!(found, expected);
        assert!(values.is_empty() && values.pieces.len() <= 1);
    }
}
