//! Passes over the text and the tags of a page that hold no links.
//!
//! What it passes over has no effect on the tokenizer: the text between tags, and tags after which it is
//! in the data state again. It decides nothing that is not wholly in sight; the tokenizer reads that.

use memchr::{memchr, memchr2, memchr3};

/// The name of a tag.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    /// In lower case.
    pub name: &'a [u8],
    pub is_end: bool,
}

/// In text in the data state, the offset of the first `<` that is not that of an irrelevant tag which ends
/// in sight. Tags with longer names than any relevant one are irrelevant.
#[inline]
pub(super) fn relevant_tag(text: &[u8], is_relevant: impl Fn(Name<'_>) -> bool) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr(b'<', &text[at..])?;
        match irrelevant_tag(&text[at..], &is_relevant) {
            Some(length) => at += length,
            None => return Some(at),
        }
    }
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

/// The length of the tag at the beginning of the text, if it is irrelevant and ends in sight.
#[inline]
fn irrelevant_tag(text: &[u8], is_relevant: &impl Fn(Name<'_>) -> bool) -> Option<usize> {
    let is_end = text.get(1) == Some(&b'/');
    let start = 1 + usize::from(is_end);
    if !text.get(start)?.is_ascii_alphabetic() {
        return None;
    }
    let mut name = [0; NAME_MAX];
    let mut length = 0;
    while let Some(octet) = text.get(start + length) {
        if is_blank(*octet) || matches!(octet, b'/' | b'>') {
            break;
        }
        if let Some(copy) = name.get_mut(length) {
            *copy = octet.to_ascii_lowercase();
        }
        length += 1;
    }
    let known = name.get(..length);
    if known.is_some_and(|name| is_relevant(Name { name, is_end })) {
        return None;
    }
    let rest = &text[start + length..];
    tag_end(rest).map(|end| start + length + end)
}

/// The length of the rest of a tag after its name, by the rules for attributes (WHATWG HTML, 13.2.5.32 to
/// 13.2.5.40), if it ends in sight.
#[inline]
fn tag_end(rest: &[u8]) -> Option<usize> {
    if rest.first() == Some(&b'>') {
        return Some(1);
    }
    // Without a quote before, the first `>` is the end.
    let first = memchr3(b'>', b'"', b'\'', rest)?;
    if rest[first] == b'>' {
        return Some(first + 1);
    }
    let mut octets = Octets { rest, at: 0 };
    let mut octet = octets.next()?;
    loop {
        // Before the name of an attribute. A `/` before a `>` closes the element, which is of no concern.
        while is_blank(octet) || octet == b'/' {
            octet = octets.next()?;
        }
        if octet == b'>' {
            return Some(octets.at);
        }
        // A `=` that comes first belongs to the name.
        octet = octets.next()?;
        while !is_blank(octet) && !matches!(octet, b'/' | b'>' | b'=') {
            octet = octets.next()?;
        }
        while is_blank(octet) {
            octet = octets.next()?;
        }
        if octet != b'=' {
            continue;
        }
        octet = octets.next()?;
        while is_blank(octet) {
            octet = octets.next()?;
        }
        match octet {
            b'"' | b'\'' => {
                octets.at += memchr(octet, &rest[octets.at..])? + 1;
                octet = octets.next()?;
            }
            b'>' => {}
            _ => {
                while !is_blank(octet) && octet != b'>' {
                    octet = octets.next()?;
                }
            }
        }
    }
}

/// The bytes of a tag, and the offset of the next one.
struct Octets<'a> {
    rest: &'a [u8],
    at: usize,
}

impl Octets<'_> {
    #[inline]
    fn next(&mut self) -> Option<u8> {
        let octet = self.rest.get(self.at).copied();
        self.at += 1;
        octet
    }
}

/// White space in tags; a CR is read as a line feed.
#[inline]
fn is_blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\n' | b'\t' | b'\r' | b'\x0C')
}

/// Longer names of elements are not relevant.
const NAME_MAX: usize = 16;
