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
        bytes.reserve_exact(encoded_bytes(value));
        encode(label, value, &mut bytes);
        self.0 = bytes.into_boxed_slice();
    }

    /// From byte strings as [`encode`] appends them, one after the other. `None` if the last one is
    /// incomplete.
    pub fn from_encoded(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, _, rest) = split_first(rest)?;
        }
        Some(Records(bytes.into()))
    }

    /// Appends a number, in as few bytes as possible.
    pub fn push_number(&mut self, label: u8, number: u64) {
        self.push(label, &number.to_le_bytes()[..number_bytes(number)]);
    }

    /// The first with this label.
    pub fn get(&self, label: u8) -> Option<&[u8]> {
        self.all(label).next()
    }

    /// The first with this label, as a number; `None` also if it has more than 8 bytes.
    pub fn number(&self, label: u8) -> Option<u64> {
        let value = self.get(label)?;
        let mut bytes = [0; 8];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
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
            if rest.is_empty() {
                return None;
            }
            let (label, value, others) = split_first(rest).expect("they are complete");
            rest = others;
            Some((label, value))
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

/// Appends a labelled byte string: its label, its length (7 bits a byte, the lowest first), its bytes.
/// The state on disk has this form, too.
pub fn encode(label: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(label);
    let mut rest = value.len();
    while rest > LOW {
        out.push((rest & LOW) as u8 | MORE);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend_from_slice(value);
}

/// Appends a labelled number, as [`Records::push_number`] has it.
pub fn encode_number(label: u8, number: u64, out: &mut Vec<u8>) {
    encode(label, &number.to_le_bytes()[..number_bytes(number)], out);
}

/// Number of bytes that [`encode`] appends.
pub fn encoded_bytes(value: &[u8]) -> usize {
    1 + length_bytes(value.len()) + value.len()
}

/// The label and the value of the first byte string, and the bytes after it; `None` if it is incomplete.
fn split_first(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (label, mut rest) = bytes.split_first()?;
    let (mut length, mut shift) = (0, 0);
    loop {
        let (byte, more) = rest.split_first()?;
        rest = more;
        let bits = usize::from(byte & !MORE);
        if shift >= usize::BITS || bits << shift >> shift != bits {
            return None;
        }
        length |= bits << shift;
        shift += 7;
        if byte & MORE == 0 {
            // A length has one form, so that equal records have equal bytes.
            if bits == 0 && shift > 7 {
                return None;
            }
            break;
        }
    }
    let (value, rest) = rest.split_at_checked(length)?;
    Some((*label, value, rest))
}

/// Number of bytes of a number without its leading zeros.
fn number_bytes(number: u64) -> usize {
    8 - number.leading_zeros() as usize / 8
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
    fn encoded_records_are_read_up_to_an_incomplete_one() {
        let long = vec![7; 300];
        let mut bytes = Vec::new();
        let mut borders = vec![0];
        for (label, value) in [(1, &b"one"[..]), (2, b""), (1, &long)] {
            encode(label, value, &mut bytes);
            let last = borders.last().expect("a border");
            assert_eq!(bytes.len(), last + encoded_bytes(value));
            borders.push(bytes.len());
        }
        for cut in 0..=bytes.len() {
            let read = Records::from_encoded(&bytes[..cut]);
            assert_eq!(read.is_some(), borders.contains(&cut), "{cut}");
        }
        let records = Records::from_encoded(&bytes).expect("complete");
        assert!(records.iter().eq([(1, &b"one"[..]), (2, b""), (1, &long)]));
        // A length that does not fit into a word.
        let endless = [&[1][..], &[0xff; 9], &[0x7f]].concat();
        assert_eq!(Records::from_encoded(&endless), None);
        assert_eq!(Records::from_encoded(&[0xff; 40]), None);
        let wrapped = [&[1][..], &[0x80; 9], &[2]].concat();
        assert_eq!(Records::from_encoded(&wrapped), None);
        // A length in more bytes than it needs.
        assert_eq!(Records::from_encoded(&[1, 0x81, 0, 7]), None);
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
