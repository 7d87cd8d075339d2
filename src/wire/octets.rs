//! Octets looked at eight at a time: texts are short, and nearly all of them are what they should be.

use std::borrow::Cow;

use percent_encoding::AsciiSet;

/// Whether any octet of a text is one of those that `wrong` tells of, eight in a word: of each the top
/// bit counts. An ordinary letter must not be one.
#[inline]
pub(crate) fn any(text: &[u8], wrong: impl Fn(u64) -> u64) -> bool {
    let (eights, rest) = text.as_chunks::<8>();
    let words = eights.iter().map(|octets| u64::from_le_bytes(*octets));
    let mut found = words.fold(0, |found, word| found | wrong(word));
    if !rest.is_empty() {
        // Of a long text some are looked at again, which costs less than to look at single ones.
        let last = text.last_chunk().copied().unwrap_or_else(|| {
            let mut last = [b'a'; 8];
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        found |= wrong(u64::from_le_bytes(last));
    }
    found & TOPS != 0
}

/// Of each octet of a word the top bit tells whether it is below a bound, which is 0x80 at most: exactly
/// so up to the first that is, from the lowest; a borrow may set it for one behind that.
#[inline]
pub(crate) const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * bound as u64) & !word
}

/// The same of those that equal an octet.
#[inline]
pub(crate) const fn equal(word: u64, octet: u8) -> u64 {
    below(word ^ (ONES * octet as u64), 1)
}

/// Whether two texts are the same but for the case of ASCII letters.
#[inline]
pub(super) fn same_but_for_case(one: &[u8], other: &[u8]) -> bool {
    let (Some(one_last), Some(other_last)) = (one.last_chunk(), other.last_chunk()) else {
        return one.eq_ignore_ascii_case(other);
    };
    let ((ones, _), (others, _)) = (one.as_chunks(), other.as_chunks());
    one.len() == other.len()
        && eight_are_same(one_last, other_last)
        && ones
            .iter()
            .zip(others)
            .all(|(one, other)| eight_are_same(one, other))
}

/// The same of eight octets.
#[inline]
fn eight_are_same(one: &[u8; 8], other: &[u8; 8]) -> bool {
    const CASE: u64 = ONES * 0x20;
    let (one, other) = (u64::from_le_bytes(*one), u64::from_le_bytes(*other));
    let differs = one ^ other;
    // No carry leaves an octet whose top bit is not set.
    let lower = (one | CASE) & !TOPS;
    let from_a = lower + ONES * (0x80 - b'a' as u64);
    let beyond_z = lower + ONES * (0x80 - b'z' as u64 - 1);
    let letters = from_a & !beyond_z & !one & TOPS;
    differs & !CASE == 0 && (differs << 2) & !letters == 0
}

/// How many octets there are before the first that stands in no value of a header field: a control
/// character, most often the CR behind it.
#[inline]
pub(super) fn value_length(octets: &[u8]) -> usize {
    let (eights, rest) = octets.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        let controls = (below(word, b' ') | equal(word, DELETE)) & TOPS;
        if controls == 0 {
            continue;
        }
        // A tab is one of them and yet no end.
        let first = controls.trailing_zeros() as usize / 8;
        let end = eight[first..].iter().position(|octet| ends_value(*octet));
        if let Some(more) = end {
            return number * 8 + first + more;
        }
    }
    let end = rest.iter().position(|octet| ends_value(*octet));
    octets.len() - rest.len() + end.unwrap_or(rest.len())
}

fn ends_value(octet: u8) -> bool {
    octet < b' ' && octet != b'\t' || octet == DELETE
}

/// A reference to a URL as a header field or a robots.txt gives it: every octet beyond ASCII becomes
/// its percent-encoding, whatever encoding was meant, as in browsers and curl.
pub(crate) fn percent_encoded(octets: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(octets) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => percent_encoding::percent_encode(octets, BEYOND_ASCII).into(),
    }
}

/// Nothing but what every set has: octets beyond ASCII.
const BEYOND_ASCII: &AsciiSet = &AsciiSet::EMPTY;

pub(crate) const DELETE: u8 = 0x7f;

const ONES: u64 = u64::MAX / 0xff;
const TOPS: u64 = ONES << 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// A text of letters of each length with each octet at each place, with what is found in it.
    fn check(found: impl Fn(&[u8]) -> usize, expected: impl Fn(&[u8]) -> usize) {
        for length in 0..27 {
            for place in 0..length {
                for octet in 0..=u8::MAX {
                    for next in [b'x', 0x80, octet.wrapping_add(1), b'\t'] {
                        let mut text = vec![b'x'; length];
                        text[place] = octet;
                        if let Some(place) = text.get_mut(place + 1) {
                            *place = next;
                        }
                        assert_eq!(found(&text), expected(&text), "{}", text.escape_ascii());
                    }
                }
            }
        }
    }

    #[test]
    fn any_octet_is_found_wherever_it_stands() {
        let is = |text: &[u8]| any(text, |word| below(word, b'!') | equal(word, b'q') | word);
        let plainly = |octet: &u8| *octet < b'!' || *octet == b'q' || *octet >= 0x80;
        check(
            |text| usize::from(is(text)),
            |text| usize::from(text.iter().any(plainly)),
        );
        assert!(!is(b""));
    }

    #[test]
    fn texts_are_the_same_but_for_the_case_of_their_letters() {
        for one in 0..=u8::MAX {
            for other in 0..=u8::MAX {
                for length in [1, 8, 11] {
                    let mut texts = [vec![b'-'; length], vec![b'-'; length]];
                    for place in [0, length / 2, length - 1] {
                        (texts[0][place], texts[1][place]) = (one, other);
                    }
                    let same = texts[0].eq_ignore_ascii_case(&texts[1]);
                    assert_eq!(same_but_for_case(&texts[0], &texts[1]), same, "{texts:?}");
                }
            }
        }
        assert!(!same_but_for_case(b"12345678", b"123456789"));
        assert!(!same_but_for_case(b"1234567", b"12345678"));
    }

    #[test]
    fn octets_beyond_ascii_are_percent_encoded_and_nothing_else_is() {
        assert_eq!(percent_encoded(b"/a b%20?<\"#"), "/a b%20?<\"#");
        assert_eq!(percent_encoded(b"/caf\xe9?\x7f"), "/caf%E9?\x7f");
        assert_eq!(percent_encoded("/café".as_bytes()), "/caf%C3%A9");
    }

    #[test]
    fn a_value_ends_at_the_first_control_character_save_a_tab() {
        check(value_length, |text| {
            let end = text.iter().position(|octet| ends_value(*octet));
            end.unwrap_or(text.len())
        });
        assert_eq!(value_length(b""), 0);
    }
}
