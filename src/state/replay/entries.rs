//! Entries by number, in lists that never move as a whole: a running crawl replays its own journal.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::base::secret::Known;
use crate::state::record::codec::{Input, put_bytes};
use crate::state::record::{self, Entry};
use crate::wire::url::CrawlUrl;

/// Entries by their numbers.
///
/// Each is kept as the bytes of its record, which take a tenth of its memory. Those of near numbers are one
/// after the other: millions wait in memory, and a table would take as much as their bytes.
#[derive(Debug, Default)]
pub struct Entries {
    /// By their numbers without the lowest binary digits.
    parts: BTreeMap<u64, Part>,
    /// The part that the last entry was added to, while it grows.
    growing: Option<u64>,
    /// Entries with more than [`BYTES_MAX`], by number. In its part each has no bytes.
    long: HashMap<u64, Box<[u8]>, Known>,
    /// What an entry replaces, of those that replace one.
    replaced: HashMap<u64, u64, Known>,
    len: usize,
    /// Room for the bytes of one entry.
    bytes: Vec<u8>,
}

/// Entries by number, each behind the lowest digits of its number, and after its length.
#[derive(Debug, Default)]
struct Part {
    bytes: Vec<u8>,
    /// No entry has had greater digits.
    last: u8,
}

/// An entry in a part.
struct Item<'a> {
    /// The lowest digits of its number.
    low: u8,
    bytes: &'a [u8],
    /// Where the next one begins.
    end: usize,
}

/// Lowest binary digits of a number that its part does not have.
const LOW_BITS: u32 = 6;

/// Most bytes of an entry in a part: a part is moved in microseconds.
const BYTES_MAX: usize = 1024;

/// Parts that [`Entries::some_from`] returns at once, with five hundred entries at most.
const SOME: usize = 8;

/// Parts that [`OrderedEntries::find_from`] compares in one step, of 64 entries at most.
const SEARCHED: usize = if cfg!(test) { 1 } else { 64 };

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
        let (place, low) = place_of(number);
        // They are mostly added in order.
        let is_last = (self.parts.last_key_value())
            .is_some_and(|(last, part)| (*last, part.last) < (place, low));
        if !is_last {
            self.take(number);
        }
        if replaces != 0 {
            self.replaced.insert(number, replaces);
        }
        let bytes = match bytes.len() {
            0..=BYTES_MAX => bytes,
            _ => {
                self.long.insert(number, bytes.into());
                &[]
            }
        };
        if self.growing != Some(place) {
            if let Some(full) = self.growing.and_then(|place| self.parts.get_mut(&place)) {
                full.bytes.shrink_to_fit();
            }
            self.growing = Some(place);
        }
        let part = match self.parts.last_entry() {
            Some(last) if *last.key() == place => last.into_mut(),
            _ => self.parts.entry(place).or_default(),
        };
        part.insert(low, bytes);
        self.len += 1;
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u64) -> Option<Entry> {
        let bytes = self.take(number)?;
        Some(decode(&bytes))
    }

    /// Removes an entry; returns its bytes.
    fn take(&mut self, number: u64) -> Option<Box<[u8]>> {
        let (place, low) = place_of(number);
        let part = self.parts.get_mut(&place)?;
        let (at, item) = part.find(low);
        let Item { bytes, end, .. } = item?;
        let bytes: Box<[u8]> = bytes.into();
        part.bytes.drain(at..end);
        match part.bytes.len() {
            0 => {
                self.parts.remove(&place);
            }
            left if left < part.bytes.capacity() / 2 => part.bytes.shrink_to_fit(),
            _ => {}
        }
        self.len -= 1;
        if !self.replaced.is_empty() {
            self.replaced.remove(&number);
        }
        Some(match bytes.is_empty() {
            true => self.long.remove(&number).expect("a long entry"),
            false => bytes,
        })
    }

    /// The entry of a number.
    pub fn get(&self, number: u64) -> Option<Entry> {
        let (part, low) = place_of(number);
        let (_, item) = self.parts.get(&part)?.find(low);
        Some(decode(self.bytes_of(number, &item?)))
    }

    /// Whether there is an entry of this number.
    pub fn has(&self, number: u64) -> bool {
        let (part, low) = place_of(number);
        let part = self.parts.get(&part);
        part.is_some_and(|part| part.find(low).1.is_some())
    }

    /// The numbers of entries that replace others, each with the one it replaces.
    pub fn replacements(&self) -> impl Iterator<Item = (u64, u64)> {
        self.replaced
            .iter()
            .map(|(number, replaced)| (*number, *replaced))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Some hundred entries, and where the next ones begin; it begins at 0. `None`: there are no more.
    pub fn some_from(&self, from: u64) -> Option<(u64, impl Iterator<Item = Entry>)> {
        let parts = self.parts.range(from..).take(SOME);
        let (last, _) = parts.clone().last()?;
        let items = parts.flat_map(|(part, entries)| self.of_part(*part, entries, 0));
        Some((last + 1, items.map(|(_, bytes)| decode(bytes))))
    }

    /// All entries, by number.
    pub fn into_ordered(self) -> OrderedEntries {
        OrderedEntries {
            entries: self,
            next: 0,
        }
    }

    /// The entries of a part from this position in its bytes, by number.
    fn of_part<'a>(
        &'a self,
        place: u64,
        part: &'a Part,
        from: usize,
    ) -> impl Iterator<Item = (u64, &'a [u8])> {
        part.items(from).map(move |(_, item)| {
            let number = number_of(place, item.low);
            (number, self.bytes_of(number, &item))
        })
    }

    fn bytes_of<'a>(&'a self, number: u64, item: &Item<'a>) -> &'a [u8] {
        match item.bytes {
            [] => self.long.get(&number).expect("a long entry"),
            bytes => bytes,
        }
    }
}

impl Part {
    /// Adds an entry, which is not there.
    fn insert(&mut self, low: u8, bytes: &[u8]) {
        if self.bytes.is_empty() || self.last < low {
            self.last = low;
            self.bytes.push(low);
            put_bytes(bytes, &mut self.bytes);
            return;
        }
        let (at, _) = self.find(low);
        let mut added = vec![low];
        put_bytes(bytes, &mut added);
        self.bytes.splice(at..at, added);
    }

    /// The position of an entry, or of the next; and the entry, if it is there.
    fn find(&self, low: u8) -> (usize, Option<Item<'_>>) {
        match self.items(0).find(|(_, item)| item.low >= low) {
            Some((at, item)) if item.low == low => (at, Some(item)),
            Some((at, _)) => (at, None),
            None => (self.bytes.len(), None),
        }
    }

    /// The entries from this position on, each with its own.
    fn items(&self, from: usize) -> impl Iterator<Item = (usize, Item<'_>)> {
        let mut next = from;
        std::iter::from_fn(move || {
            let at = next;
            let item = self.item_at(at)?;
            next = item.end;
            Some((at, item))
        })
    }

    fn item_at(&self, at: usize) -> Option<Item<'_>> {
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let mut input = Input::new(rest);
        let low = input.byte("number").expect("it was encoded here");
        let bytes = input.bytes("entry").expect("it was encoded here");
        Some(Item {
            low,
            bytes,
            end: self.bytes.len() - input.len(),
        })
    }
}

/// The part of a number, and its lowest digits.
fn place_of(number: u64) -> (u64, u8) {
    (number >> LOW_BITS, (number & ((1 << LOW_BITS) - 1)) as u8)
}

fn number_of(part: u64, low: u8) -> u64 {
    part << LOW_BITS | u64::from(low)
}

/// Bytes of a record that are not its entry: the head of its frame, and its kind.
const RECORD: usize = 9;

/// Entries by number. Each is made from its bytes when it is asked for.
#[derive(Debug, Default)]
pub struct OrderedEntries {
    entries: Entries,
    /// The position in the first part of the entry that is removed next; those before it were removed.
    next: usize,
}

impl OrderedEntries {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len
    }

    /// Bytes of their records, roughly.
    pub fn bytes(&self) -> usize {
        let Entries {
            parts, long, len, ..
        } = &self.entries;
        let bytes = parts.values().map(|part| part.bytes.len());
        let long = long.values().map(|bytes| bytes.len());
        bytes.sum::<usize>() + long.sum::<usize>() + len * RECORD
    }

    /// Returns whether there are none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of the entries.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.stored().map(|(number, _)| number)
    }

    /// The numbers of entries that others replace.
    pub fn replaced(&self) -> impl Iterator<Item = u64> {
        self.entries.replacements().map(|(_, replaced)| replaced)
    }

    /// Removes the entries that `is_taken` names, by their numbers; it may ask for an entry.
    pub fn extract(&mut self, is_taken: impl Fn(u64, &dyn Fn() -> Entry) -> bool) -> Vec<Entry> {
        let taken = self
            .stored()
            .filter(|(number, bytes)| is_taken(*number, &|| decode(bytes)));
        let numbers: Vec<u64> = taken.map(|(number, _)| number).collect();
        let entries = &mut self.entries;
        let taken = numbers.into_iter();
        taken.filter_map(|number| entries.remove(number)).collect()
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.stored().map(|(_, bytes)| decode(bytes))
    }

    /// Searches some thousand entries for one that is for this URL, from a part on; it begins at 0. Returns it, where
    /// the next part begins if there is one, and how many were compared.
    pub fn find_from(&self, from: u64, url: &CrawlUrl) -> (Option<Entry>, Option<u64>, usize) {
        let first = self.entries.parts.keys().next();
        let parts = self.entries.parts.range(from..).take(SEARCHED);
        let mut compared = 0;
        let mut next = None;
        for (place, part) in parts {
            let from = if Some(place) == first { self.next } else { 0 };
            for (_, bytes) in self.entries.of_part(*place, part, from) {
                if record::is_request_for(bytes, url) {
                    return (Some(decode(bytes)), None, compared);
                }
                compared += 1;
            }
            next = Some(place + 1);
        }
        let next = next.filter(|next| self.entries.parts.range(next..).next().is_some());
        (None, next, compared)
    }

    /// The entries as their bytes, by number.
    fn stored(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let parts = self.entries.parts.iter().enumerate();
        parts.flat_map(|(index, (place, part))| {
            let from = if index == 0 { self.next } else { 0 };
            self.entries.of_part(*place, part, from)
        })
    }
}

/// Removes the entries, one by one.
impl Iterator for OrderedEntries {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let first = self.entries.parts.first_entry()?;
            let place = *first.key();
            let Some(item) = first.get().item_at(self.next) else {
                first.remove();
                self.next = 0;
                continue;
            };
            self.next = item.end;
            self.entries.len -= 1;
            let number = number_of(place, item.low);
            return Some(match item.bytes {
                [] => decode(&self.entries.long.remove(&number).expect("a long entry")),
                bytes => decode(bytes),
            });
        }
    }
}

fn decode(bytes: &[u8]) -> Entry {
    record::decode_request(bytes).expect("it was encoded here")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::frontier::job::Job;
    use crate::wire::url::CrawlUrl;

    fn entry(number: u64, path: usize) -> Entry {
        let url = format!("http://a.test/{}", "x".repeat(path));
        Entry {
            job: Job::seed(number, CrawlUrl::parse(&url).expect("a URL")),
            replaces: number % 3,
            not_before: None,
        }
    }

    fn brief(entry: &Entry) -> (usize, u64) {
        (entry.job.url.as_str().len(), entry.replaces)
    }

    #[test]
    fn random_entries_are_those_of_a_map() {
        let mut rng = Rng::from_seed(8);
        let mut entries = Entries::default();
        let mut model: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for _ in 0..40_000 {
            let number = rng.below(3000);
            if rng.chance(0.6) {
                // Some are long.
                let longest = if rng.chance(0.1) { 4000 } else { 40 };
                let path = rng.below(longest);
                let entry = entry(number, path as usize);
                entries.insert(&entry);
                model.insert(number, brief(&entry));
            } else {
                let removed = entries.remove(number);
                assert_eq!(removed.as_ref().map(brief), model.remove(&number));
            }
            let number = rng.below(3000);
            assert_eq!(entries.has(number), model.contains_key(&number));
            let found = entries.get(number);
            assert_eq!(found.as_ref().map(brief), model.get(&number).copied());
        }
        assert_eq!(entries.len(), model.len());
        let mut replaced: Vec<(u64, u64)> = entries.replacements().collect();
        replaced.sort_unstable();
        let of_model = model
            .iter()
            .map(|(number, (_, replaced))| (*number, *replaced));
        assert!(of_model.filter(|(_, replaced)| *replaced != 0).eq(replaced));
        let (mut from, mut count) = (0, 0);
        while let Some((next, some)) = entries.some_from(from) {
            (from, count) = (next, count + some.count());
        }
        assert_eq!(count, model.len());
        check_ordered(entries.into_ordered(), model);
    }

    /// Takes entries one by one and, after half of them, all with an even number.
    fn check_ordered(mut ordered: OrderedEntries, mut model: BTreeMap<u64, (usize, u64)>) {
        for _ in 0..model.len() / 2 {
            let next = ordered.next().map(|entry| (entry.job.id, brief(&entry)));
            assert_eq!(next, model.pop_first());
        }
        let is_even = |number: u64| number.is_multiple_of(2);
        let taken = ordered.extract(|number, entry| {
            assert_eq!(entry().job.id, number);
            is_even(number)
        });
        let taken: Vec<u64> = taken.iter().map(|entry| entry.job.id).collect();
        let even = model.keys().copied().filter(|number| is_even(*number));
        assert!(even.eq(taken));
        model.retain(|number, _| !is_even(*number));
        assert_eq!(ordered.len(), model.len());
        assert!(ordered.numbers().eq(model.keys().copied()));
        assert!(
            ordered
                .iter()
                .map(|entry| brief(&entry))
                .eq(model.values().copied())
        );
        assert!(ordered.map(|entry| entry.job.id).eq(model.into_keys()));
    }

    #[test]
    fn an_entry_is_found_by_its_url_in_steps_while_the_first_are_taken() {
        let mut entries = Entries::default();
        for number in 0..2000 {
            // Some are long.
            let path = if number % 50 == 0 {
                3000 + number
            } else {
                number
            };
            entries.insert(&entry(number, path as usize));
        }
        let mut ordered = entries.into_ordered();
        let url = |number: u64| entry(0, number as usize).job.url;
        let find = |ordered: &mut OrderedEntries, url: &CrawlUrl, taken: usize| {
            let (mut from, mut ahead) = (0, 0);
            loop {
                let (found, next, compared) = ordered.find_from(from, url);
                ahead += compared;
                if found.is_some() {
                    return found.map(|entry| (entry.job.id, ahead));
                }
                from = next?;
                ordered.take(taken).for_each(drop);
            }
        };
        assert_eq!(find(&mut ordered, &url(1999), 0), Some((1999, 1999)));
        assert_eq!(find(&mut ordered, &url(3100), 0), Some((100, 100)));
        assert_eq!(find(&mut ordered, &url(2001), 0), None);
        assert_eq!(find(&mut ordered, &url(1201), 10), Some((1201, 1201)));
        assert_eq!(find(&mut ordered, &url(1), 0), None, "it was taken");
    }

    #[test]
    fn an_entry_takes_few_bytes_beside_its_own() {
        let mut entries = Entries::default();
        let mut own = 0;
        for number in 1..100_000 {
            let entry = entry(3 * number, 10);
            entries.insert(&entry);
            own += entries.bytes.len();
        }
        let parts = entries.parts.values();
        let part = size_of::<(u64, Part)>() * 3 / 2;
        let bytes: usize = parts.map(|entries| part + entries.bytes.capacity()).sum();
        assert!(bytes < own + 5 * 100_000, "{bytes} for {own}");
    }
}
