//! A few labelled byte strings in one allocation, for optional data of millions of objects.
//!
//! Hand-written: a struct of optional fields takes the room of all of them in every object, and a map
//! takes several allocations.

/// Byte strings with labels, in the order of insertion. A label may occur several times.
///
/// Each costs two bytes in addition to its own, three from 128 bytes on. A look-up reads the
/// headers before the result; an insertion copies everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records(Box<[u8]>);

impl Records {
    /// Appends a byte string.
    pub fn push(&mut self, label: u8, value: &[u8]) {
        let mut bytes = std::mem::take(&mut self.0).into_vec();
        bytes.reserve_exact(1 + length_bytes(value.len()) + value.len());
        bytes.push(label);
        let mut rest = value.len();
        while rest > LOW {
            bytes.push((rest & LOW) as u8 | MORE);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes.extend_from_slice(value);
        self.0 = bytes.into_boxed_slice();
    }

    /// Appends a number, in as few bytes as possible.
    pub fn push_number(&mut self, label: u8, number: u64) {
        let zeros = number.leading_zeros() as usize / 8;
        self.push(label, &number.to_le_bytes()[..8 - zeros]);
    }

    /// The first with this label.
    pub fn get(&self, label: u8) -> Option<&[u8]> {
        self.all(label).next()
    }

    /// The first with this label, as a number.
    pub fn number(&self, label: u8) -> Option<u64> {
        let value = self.get(label)?;
        let mut bytes = [0; 8];
        bytes[..value.len()].copy_from_slice(value);
        Some(u64::from_le_bytes(bytes))
    }

    /// All with this label.
    pub fn all(&self, label: u8) -> impl Iterator<Item = &[u8]> {
        let labelled = self.iter().filter(move |(other, _)| *other == label);
        labelled.map(|(_, value)| value)
    }

    /// All, with their labels.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (label, mut behind) = rest.split_first()?;
            let (mut length, mut shift) = (0, 0);
            loop {
                let (byte, more) = behind.split_first().expect("a label has its length");
                behind = more;
                length |= usize::from(byte & !MORE) << shift;
                shift += 7;
                if byte & MORE == 0 {
                    break;
                }
            }
            let (value, others) = behind.split_at(length);
            rest = others;
            Some((*label, value))
        })
    }

    /// Removes those for which `keep` returns `false`.
    pub fn retain(&mut self, keep: impl Fn(u8, &[u8]) -> bool) {
        if self.iter().all(|(label, value)| keep(label, value)) {
            return;
        }
        let mut kept = Records::default();
        for (label, value) in self.iter().filter(|(label, value)| keep(*label, value)) {
            kept.push(label, value);
        }
        *self = kept;
    }

    /// Removes all with this label.
    pub fn remove(&mut self, label: u8) {
        self.retain(|other, _| other != label);
    }
}

/// Number of bytes of an encoded length.
fn length_bytes(length: usize) -> usize {
    let bits = usize::BITS - length.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// The bits of a byte that belong to the length.
const LOW: usize = 0x7f;
/// The bit of a byte that marks another byte to follow.
const MORE: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_returned_in_order() {
        let mut records = Records::default();
        assert_eq!(records.get(1), None);
        let long = vec![7; 20_000];
        let values: [(u8, &[u8]); 5] = [
            (1, b"one"),
            (2, b""),
            (1, &long),
            (3, &long[..127]),
            (2, &long[..128]),
        ];
        for (label, value) in values {
            records.push(label, value);
        }
        assert!(records.iter().eq(values));
        assert_eq!(records.get(1), Some(&b"one"[..]));
        assert!(records.all(2).eq([&b""[..], &long[..128]]));
        let heads = 2 + 2 + 4 + 2 + 3;
        assert_eq!(records.0.len(), heads + 3 + 20_000 + 127 + 128);
    }

    #[test]
    fn a_number_uses_as_few_bytes_as_possible() {
        let check = |number: u64, bytes: usize| {
            let mut records = Records::default();
            records.push_number(9, number);
            assert_eq!(records.number(9), Some(number));
            assert_eq!(records.0.len(), 2 + bytes, "{number}");
        };
        check(0, 0);
        check(255, 1);
        check(256, 2);
        check(u64::MAX >> 8, 7);
        check(u64::MAX, 8);
    }

    #[test]
    fn removed_records_are_gone_and_the_others_stay() {
        let mut records = Records::default();
        for (label, value) in [(1, b"a"), (2, b"b"), (1, b"c"), (3, b"d")] {
            records.push(label, value);
        }
        records.retain(|label, value| label != 1 || value == b"c");
        records.remove(3);
        records.remove(4);
        assert!(records.iter().eq([(2, &b"b"[..]), (1, &b"c"[..])]));
    }
}
