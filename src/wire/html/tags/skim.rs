//! Reads the text and the plain tags of a page without the tokenizer.
//!
//! What it reads has no effect on the tokenizer: the text between tags, and tags after which it is in the data
//! state again. It decides nothing that is not wholly in sight, and no value with more than the simplest
//! character references; the tokenizer reads that.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

use crate::wire::html::element::{
    Attribute, Element, Kind, LETTERS_MAX, Name, VALUE_MAX, may_matter, text_of,
};

/// In text in the data state, the offset of the first `<` that the tokenizer must read. `record` gets the
/// elements before that may have a link; after one for which it returns false, the offset is the end of that tag.
#[inline]
pub(super) fn tags(
    text: &[u8],
    resources: bool,
    mut record: impl FnMut(Element, &Values<'_>) -> bool,
) -> Option<usize> {
    let next_from = |at| memchr(b'<', &text[at..]).map_or(text.len(), |length| at + length);
    let mut at = next_from(0);
    while at < text.len() {
        // Usually this is the next tag; a processor looks for it before it knows where this one ends.
        let next = next_from(at + 1);
        let tag = &text[at..];
        let is_end = tag.get(1) == Some(&b'/');
        let start = 1 + usize::from(is_end);
        if tag[start.min(tag.len())..]
            .first_chunk()
            .is_some_and(|start| is_bare(*start, is_end))
        {
            at = next;
            continue;
        }
        let Some((name, name_length)) = tag.get(start..).and_then(|text| name_of(text, is_end))
        else {
            return Some(at);
        };
        let rest = &tag[start + name_length..];
        let kind = name.map_or(Kind::Irrelevant, |name| Kind::of(name, resources));
        let mut goes_on = true;
        let length = match kind {
            Kind::Links(element) if !is_end => {
                let mut values = Values::default();
                let length = tag_length(rest, |name, value| values.add(name, value));
                let length = length.filter(|_| values.are_plain());
                goes_on = length.is_none() || record(element, &values);
                length
            }
            Kind::Text(..) if !is_end => None,
            Kind::Foreign => None,
            _ => tag_length(rest, |_, _| {}),
        };
        let Some(length) = length else {
            return Some(at);
        };
        let end = at + start + name_length + length;
        if !goes_on {
            return Some(end);
        }
        at = if end <= next { next } else { next_from(end) };
    }
    None
}

/// Whether this is the start of a tag without attributes that does not matter, after its `<` or `</`.
#[inline]
fn is_bare(start: [u8; LETTERS_MAX + 1], is_end: bool) -> bool {
    let [letters @ .., _] = start;
    let count = letters_of(letters);
    start[count] == b'>' && start[0].is_ascii_alphabetic() && !may_matter(count, start[0], is_end)
}

/// The name of a tag after its `<` or `</`, if it may matter, and its length; `None` if it does not end in sight,
/// or if this is no tag.
#[inline]
fn name_of(text: &[u8], is_end: bool) -> Option<(Option<Name>, usize)> {
    let first = *text.first()?;
    if !first.is_ascii_alphabetic() {
        return None;
    }
    if let Some(letters) = text.first_chunk() {
        let count = letters_of(*letters);
        if let Some(next) = text.get(count)
            && CLASSES[usize::from(*next)] & TAG_NAME == 0
        {
            let name = may_matter(count, first, is_end).then(|| Name::of_letters(*letters, count));
            return Some((name, count));
        }
    }
    let length = length_of(text, TAG_NAME)?;
    Some((Some(Name::of(&text[..length])), length))
}

/// The number of first bytes that are letters, or others that are of class [`OTHER`].
#[inline]
fn letters_of(text: [u8; LETTERS_MAX]) -> usize {
    const LETTER: u64 = u64::from_le_bytes([0x40; LETTERS_MAX]);
    (!u64::from_le_bytes(text) & LETTER).trailing_zeros() as usize / 8
}

/// Values of the relevant attributes of a tag.
#[derive(Debug, Default)]
pub(super) struct Values<'a> {
    values: [Option<&'a [u8]>; Attribute::COUNT],
    /// The attributes that are there, with or without values: a bit for each.
    named: u16,
    /// Those with character references.
    coded: u16,
    /// A value must be read by the tokenizer.
    is_odd: bool,
}

impl<'a> Values<'a> {
    #[inline]
    fn add(&mut self, name: &[u8], value: Option<&'a [u8]>) {
        let Some(attribute) = Attribute::of(name) else {
            return;
        };
        let bit = 1 << attribute as u16;
        // The first of duplicates counts.
        let is_first = self.named & bit == 0;
        self.named |= bit;
        let Some(value) = value.filter(|_| is_first) else {
            return;
        };
        self.values[attribute as usize] = Some(value);
        if value.len() > VALUE_MAX {
            self.is_odd = true;
        }
        if memchr3(b'&', b'\0', b'\r', value).is_some() {
            self.coded |= bit;
            self.is_odd |= !has_plain_references(value);
        }
    }

    /// Whether the tokenizer would read the same values.
    fn are_plain(&self) -> bool {
        !self.is_odd
    }

    /// The value of an attribute.
    pub fn get(&self, attribute: Attribute) -> Option<Cow<'a, str>> {
        let text = text_of(self.values[attribute as usize]?);
        match self.coded & 1 << attribute as u16 {
            0 => Some(text),
            _ => Some(text.replace("&amp;", "&").into()),
        }
    }
}

/// Whether each `&` in the value of an attribute begins `&amp;`, or means itself (WHATWG HTML, 13.2.5.72 and
/// 13.2.5.73): nothing that is a reference follows it, or what could be one is followed by a `=`.
fn has_plain_references(value: &[u8]) -> bool {
    if memchr2(b'\0', b'\r', value).is_some() {
        return false;
    }
    let mut rest = value;
    while let Some(at) = memchr(b'&', rest) {
        rest = &rest[at + 1..];
        let end = rest.iter().position(|octet| !octet.is_ascii_alphanumeric());
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let is_plain = match after.first() {
            Some(b';') => matches!(name, b"amp" | b""),
            Some(b'=') => true,
            Some(b'#') => false,
            _ => name.is_empty(),
        };
        if !is_plain {
            return false;
        }
    }
    true
}

/// The offset of the first byte that is one of `needle`, bytes for which the tokenizer looks.
///
/// Where it looks for the end of a text or a comment, a NUL or CR within is passed over: it only would
/// change the text, which is not kept.
#[inline]
pub(super) fn first_of(text: &[u8], needle: &[u8]) -> Option<usize> {
    match needle {
        // Text in which references have an effect on the text only.
        b"&<\0\r" | b"<\0\r" => memchr(b'<', text),
        // Comments, and scripts in comments.
        b"-<\0\r" | b"<-\0\r" => memchr2(b'-', b'<', text),
        // Bogus comments and doctypes.
        b">\0\r" => memchr(b'>', text),
        b"\0\r" => None,
        _ => first_in(text, needle),
    }
}

/// The same for texts that are kept, which are short.
fn first_in(text: &[u8], needle: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0_u64, 0_u64);
    for octet in needle {
        match octet {
            0..64 => low |= 1 << octet,
            64..128 => high |= 1 << (octet - 64),
            128.. => return text.iter().position(|octet| needle.contains(octet)),
        }
    }
    text.iter().position(|octet| match octet {
        0..64 => low >> octet & 1 == 1,
        64..128 => high >> (octet - 64) & 1 == 1,
        128.. => false,
    })
}

/// The length of the rest of a tag after its name, by the rules for attributes (WHATWG HTML, 13.2.5.32 to
/// 13.2.5.40), if it ends in sight. `each` gets the name of each attribute, and its value if it has one.
#[inline]
fn tag_length<'a>(rest: &'a [u8], mut each: impl FnMut(&[u8], Option<&'a [u8]>)) -> Option<usize> {
    let mut at = 0;
    loop {
        // The usual shape at once: a short name and a value in double quotes.
        if let Some([b' ', letters @ ..]) = rest[at..].first_chunk::<{ LETTERS_MAX + 1 }>() {
            let end = at + 1 + letters_of(*letters);
            if end > at + 1 && rest[end..].starts_with(b"=\"") {
                let value = &rest[end + 2..];
                let value = &value[..memchr(b'"', value)?];
                each(&rest[at + 1..end], Some(value));
                at = end + 2 + value.len() + 1;
                if rest.get(at) == Some(&b'>') {
                    return Some(at + 1);
                }
                continue;
            }
        }
        // A `/` before a `>` closes the element, which is of no concern.
        at += length_of(&rest[at..], BLANK | SLASH)?;
        if rest[at] == b'>' {
            return Some(at + 1);
        }
        // A `=` that comes first belongs to the name.
        let letters = rest[at..].first_chunk().map_or(0, |text| letters_of(*text));
        let letters = letters.max(1);
        let length = letters + length_of(&rest[at + letters..], NAME)?;
        let name = &rest[at..at + length];
        at += length;
        at += length_of(&rest[at..], BLANK)?;
        if rest[at] != b'=' {
            each(name, None);
            continue;
        }
        at += 1;
        at += length_of(&rest[at..], BLANK)?;
        let quote = rest[at];
        let length = match quote {
            b'"' | b'\'' => {
                at += 1;
                memchr(quote, &rest[at..])?
            }
            b'>' => {
                each(name, None);
                return Some(at + 1);
            }
            _ => length_of(&rest[at..], !(BLANK | END))?,
        };
        each(name, Some(&rest[at..at + length]));
        at += length + usize::from(CLASSES[usize::from(quote)] == QUOTE);
    }
}

/// The number of first bytes that are in one of these classes, if another byte is in sight.
#[inline]
fn length_of(text: &[u8], classes: u8) -> Option<usize> {
    text.iter()
        .position(|octet| CLASSES[usize::from(*octet)] & classes == 0)
}

/// White space in tags; a CR is read as a line feed.
const BLANK: u8 = 1;
const SLASH: u8 = 2;
const END: u8 = 4;
const EQUALS: u8 = 8;
const QUOTE: u8 = 16;
const OTHER: u8 = 32;
/// What the name of an attribute consists of, from its second byte on.
const NAME: u8 = OTHER | QUOTE;
/// What the name of a tag consists of.
const TAG_NAME: u8 = NAME | EQUALS;

/// What each byte is in a tag.
const CLASSES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let special = [
        (b' ', BLANK),
        (b'\n', BLANK),
        (b'\t', BLANK),
        (b'\r', BLANK),
        (b'\x0C', BLANK),
        (b'/', SLASH),
        (b'>', END),
        (b'=', EQUALS),
        (b'"', QUOTE),
        (b'\'', QUOTE),
    ];
    let mut at = 0;
    while at < special.len() {
        let (octet, class) = special[at];
        classes[octet as usize] = class;
        at += 1;
    }
    classes
};
