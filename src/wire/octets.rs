//! Byte searches that process eight bytes at a time, for short texts that rarely contain what is
//! searched.
//!
//! Hand-written: `memchr` searches for one to three given bytes, and here ranges of bytes are searched
//! for.

use std::borrow::Cow;

use percent_encoding::AsciiSet;

/// Returns whether any byte of a text is flagged by `wrong`, which gets eight bytes as a word and
/// sets the top bit of each flagged one. It must not flag ASCII letters, because short texts are
/// padded with them.
#[inline]
pub(crate) fn any(text: &[u8], wrong: impl Fn(u64) -> u64) -> bool {
    let (eights, rest) = text.as_chunks::<8>();
    let words = eights.iter().map(|octets| u64::from_le_bytes(*octets));
    let mut found = words.fold(0, |found, word| found | wrong(word));
    if !rest.is_empty() {
        // The last eight bytes overlap with the previous ones, which is cheaper than processing
        // single bytes.
        let last = text.last_chunk().copied().unwrap_or_else(|| {
            let mut last = [b'a'; 8];
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        found |= wrong(u64::from_le_bytes(last));
    }
    found & TOPS != 0
}

/// Sets the top bit of each byte below `bound` (at most 0x80). Exact up to the first such byte,
/// from the lowest; a borrow may also set it in a later one.
#[inline]
pub(crate) const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * bound as u64) & !word
}

/// The same for bytes equal to `octet`.
#[inline]
pub(crate) const fn equal(word: u64, octet: u8) -> u64 {
    below(word ^ (ONES * octet as u64), 1)
}

/// Returns whether two texts are equal, ignoring the case of ASCII letters.
#[inline]
pub(super) fn equal_ignoring_case(one: &[u8], other: &[u8]) -> bool {
    let (Some(one_last), Some(other_last)) = (one.last_chunk(), other.last_chunk()) else {
        return one.eq_ignore_ascii_case(other);
    };
    let ((ones, _), (others, _)) = (one.as_chunks(), other.as_chunks());
    one.len() == other.len()
        && eight_are_equal(one_last, other_last)
        && ones
            .iter()
            .zip(others)
            .all(|(one, other)| eight_are_equal(one, other))
}

/// The same for eight bytes.
#[inline]
fn eight_are_equal(one: &[u8; 8], other: &[u8; 8]) -> bool {
    const CASE: u64 = ONES * 0x20;
    let (one, other) = (u64::from_le_bytes(*one), u64::from_le_bytes(*other));
    let differs = one ^ other;
    // No carry crosses bytes, since the top bits are cleared.
    let lower = (one | CASE) & !TOPS;
    let from_a = lower + ONES * (0x80 - b'a' as u64);
    let beyond_z = lower + ONES * (0x80 - b'z' as u64 - 1);
    let letters = from_a & !beyond_z & !one & TOPS;
    differs & !CASE == 0 && (differs << 2) & !letters == 0
}

/// Number of bytes before the first one that is not allowed in a header field value: a control
/// character, usually the CR at the end.
#[inline(always)]
pub(super) fn value_length(octets: &[u8]) -> usize {
    let mut passed = 0;
    while let Some(eight) = octets[passed..].first_chunk() {
        let word = u64::from_le_bytes(*eight);
        let controls = (below(word, b' ') | equal(word, DELETE)) & TOPS;
        if controls == 0 {
            passed += 8;
            continue;
        }
        let first = controls.trailing_zeros() as usize / 8;
        passed += first;
        // A tab is a control character but allowed.
        if ends_value(eight[first]) {
            return passed;
        }
        passed += 1;
    }
    let rest = &octets[passed..];
    let end = rest.iter().position(|octet| ends_value(*octet));
    passed + end.unwrap_or(rest.len())
}

/// A lower bound of the number of letters and hyphens at the start of a text. It reads eight octets at a time;
/// fewer that are left at the end are not read.
#[inline(always)]
pub(super) fn word_length(octets: &[u8]) -> usize {
    let mut passed = 0;
    while let Some(eight) = octets[passed..].first_chunk() {
        let others = not_of_words(u64::from_le_bytes(*eight));
        if others != 0 {
            return passed + others.trailing_zeros() as usize / 8;
        }
        passed += 8;
    }
    passed
}

/// Sets the top bit of each byte that is neither a letter nor a hyphen. No carry crosses bytes, since the top
/// bits are cleared.
#[inline(always)]
const fn not_of_words(word: u64) -> u64 {
    // Letters are those from 0x40 on whose last five bits are 1 to 26.
    let place = word & (ONES * 0x1f);
    let letters = (word << 1) & (place + ONES * 0x7f) & !(place + ONES * (0x80 - 27));
    let from_hyphen = word ^ (ONES * b'-' as u64);
    let no_hyphens = ((from_hyphen & !TOPS) + ONES * 0x7f) | from_hyphen;
    (no_hyphens & !letters | word) & TOPS
}

fn ends_value(octet: u8) -> bool {
    octet < b' ' && octet != b'\t' || octet == DELETE
}

/// Converts a URL reference from a header field or a robots.txt: every non-ASCII byte is
/// percent-encoded, whatever its encoding, as in browsers and curl.
pub(crate) fn percent_encoded(octets: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(octets) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => percent_encoding::percent_encode(octets, BEYOND_ASCII).into(),
    }
}

/// The characters to encode besides non-ASCII: none.
const BEYOND_ASCII: &AsciiSet = &AsciiSet::EMPTY;

pub(crate) const DELETE: u8 = 0x7f;

const ONES: u64 = u64::MAX / 0xff;
const TOPS: u64 = ONES << 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests texts of letters of each length, with each byte at each position.
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
    fn any_byte_is_found_at_any_position() {
        let is = |text: &[u8]| any(text, |word| below(word, b'!') | equal(word, b'q') | word);
        let plainly = |octet: &u8| *octet < b'!' || *octet == b'q' || *octet >= 0x80;
        check(
            |text| usize::from(is(text)),
            |text| usize::from(text.iter().any(plainly)),
        );
        assert!(!is(b""));
    }

    #[test]
    fn texts_are_compared_ignoring_ascii_case() {
        for one in 0..=u8::MAX {
            for other in 0..=u8::MAX {
                for length in [1, 8, 11] {
                    let mut texts = [vec![b'-'; length], vec![b'-'; length]];
                    for place in [0, length / 2, length - 1] {
                        (texts[0][place], texts[1][place]) = (one, other);
                    }
                    let same = texts[0].eq_ignore_ascii_case(&texts[1]);
                    assert_eq!(equal_ignoring_case(&texts[0], &texts[1]), same, "{texts:?}");
                }
            }
        }
        assert!(!equal_ignoring_case(b"12345678", b"123456789"));
        assert!(!equal_ignoring_case(b"1234567", b"12345678"));
    }

    #[test]
    fn octets_beyond_ascii_are_percent_encoded_and_nothing_else_is() {
        assert_eq!(percent_encoded(b"/a b%20?<\"#"), "/a b%20?<\"#");
        assert_eq!(percent_encoded(b"/caf\xe9?\x7f"), "/caf%E9?\x7f");
        assert_eq!(percent_encoded("/café".as_bytes()), "/caf%C3%A9");
    }

    #[test]
    fn a_value_ends_at_the_first_control_character_except_a_tab() {
        check(value_length, |text| {
            let end = text.iter().position(|octet| ends_value(*octet));
            end.unwrap_or(text.len())
        });
        assert_eq!(value_length(b""), 0);
    }

    #[test]
    fn a_word_ends_at_the_first_octet_that_is_no_letter_or_hyphen() {
        for octet in 0..=u8::MAX {
            let is_of_word = octet.is_ascii_alphabetic() || octet == b'-';
            for place in 0..16 {
                let mut text = [b'x'; 16];
                text[place] = octet;
                let expected = if is_of_word { 16 } else { place };
                assert_eq!(word_length(&text), expected, "{octet:#x}");
            }
        }
        assert_eq!(word_length(b"letters"), 0, "fewer than eight");
    }
}
