//! The encodings that need no library, with the face of the library that knows them all.

use std::borrow::Cow;

/// An encoding of the WHATWG's list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16Be,
    Utf16Le,
    Windows1252,
}

pub(super) static UTF_8: &Encoding = &Encoding::Utf8;
pub(super) static UTF_16BE: &Encoding = &Encoding::Utf16Be;
pub(super) static UTF_16LE: &Encoding = &Encoding::Utf16Le;
pub(super) static WINDOWS_1252: &Encoding = &Encoding::Windows1252;

impl Encoding {
    /// The encoding that a byte order mark means, and the mark's length.
    pub(super) fn for_bom(bytes: &[u8]) -> Option<(&'static Encoding, usize)> {
        match bytes {
            [0xef, 0xbb, 0xbf, ..] => Some((UTF_8, 3)),
            [0xfe, 0xff, ..] => Some((UTF_16BE, 2)),
            [0xff, 0xfe, ..] => Some((UTF_16LE, 2)),
            _ => None,
        }
    }

    /// The encoding of a label.
    ///
    /// What is in none of these is read as UTF-8. So its ASCII stays what it is, which markup and
    /// most links are, and where something is lost U+FFFD says so; any other guess would be wrong
    /// without showing it.
    pub(super) fn for_label(label: &[u8]) -> Option<&'static Encoding> {
        let label = label.trim_ascii();
        let is_one_of = |labels: &[&str]| {
            labels
                .iter()
                .any(|l| label.eq_ignore_ascii_case(l.as_bytes()))
        };
        Some(if is_one_of(WINDOWS_1252_LABELS) {
            WINDOWS_1252
        } else if is_one_of(UTF_16LE_LABELS) {
            UTF_16LE
        } else if is_one_of(UTF_16BE_LABELS) {
            UTF_16BE
        } else {
            UTF_8
        })
    }

    /// Its name in the WHATWG's list.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Encoding::Utf8 => "UTF-8",
            Encoding::Utf16Be => "UTF-16BE",
            Encoding::Utf16Le => "UTF-16LE",
            Encoding::Windows1252 => "windows-1252",
        }
    }

    /// What decodes a document piece by piece.
    pub(super) fn new_decoder_without_bom_handling(&'static self) -> Decoder {
        Decoder {
            encoding: self,
            lead: None,
            high: None,
        }
    }

    /// The text of a document without its byte order mark; the library has more to say beside it.
    pub(super) fn decode_without_bom_handling<'a>(&self, bytes: &'a [u8]) -> (Cow<'a, str>,) {
        let text = match self {
            Encoding::Utf8 => String::from_utf8_lossy(bytes),
            Encoding::Utf16Be => utf16(bytes, u16::from_be_bytes),
            Encoding::Utf16Le => utf16(bytes, u16::from_le_bytes),
            Encoding::Windows1252 => windows_1252(bytes),
        };
        (text,)
    }
}

/// Decodes a document piece by piece. Of UTF-8 there is nothing to decode.
#[derive(Debug)]
pub(super) struct Decoder {
    encoding: &'static Encoding,
    /// The first octet of a unit of UTF-16.
    lead: Option<u8>,
    /// The first unit of a pair.
    high: Option<u16>,
}

impl Decoder {
    /// Decodes as much as there is room for; how much was read, and how much was written.
    pub(super) fn decode_to_utf8(
        &mut self,
        bytes: &[u8],
        text: &mut [u8],
        last: bool,
    ) -> ((), usize, usize, bool) {
        // Two letters of four octets come of one octet at most, and two more at the end.
        let room = text.len().saturating_sub(DECODED_AT_END) / 8;
        let read = bytes.len().min(room);
        let mut written = 0;
        let mut push = |letter: char| {
            written += letter.encode_utf8(&mut text[written..]).len();
        };
        for octet in &bytes[..read] {
            let unit = match (self.encoding, self.lead.take()) {
                (Encoding::Windows1252, _) => {
                    push(letter(octet));
                    continue;
                }
                (Encoding::Utf8, _) => {
                    push(char::from(*octet));
                    continue;
                }
                (_, None) => {
                    self.lead = Some(*octet);
                    continue;
                }
                (Encoding::Utf16Be, Some(lead)) => u16::from_be_bytes([lead, *octet]),
                (Encoding::Utf16Le, Some(lead)) => u16::from_le_bytes([lead, *octet]),
            };
            let units = self.high.take().into_iter().chain([unit]);
            for read in char::decode_utf16(units) {
                match read {
                    Ok(letter) => push(letter),
                    Err(alone) if alone.unpaired_surrogate() == unit && unit < 0xdc00 => {
                        self.high = Some(unit);
                    }
                    Err(_) => push(char::REPLACEMENT_CHARACTER),
                }
            }
        }
        if last && read == bytes.len() {
            let halves = usize::from(self.high.take().is_some());
            let halves = halves + usize::from(self.lead.take().is_some());
            (0..halves).for_each(|_| push(char::REPLACEMENT_CHARACTER));
        }
        ((), read, written, false)
    }
}

/// Octets of what stands for a document that was cut in the midst of a pair.
const DECODED_AT_END: usize = 6;

fn letter(octet: &u8) -> char {
    match octet {
        0x80..=0x9f => WINDOWS_1252_HIGH[usize::from(octet - 0x80)],
        _ => char::from(*octet),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Cow<'static, str> {
    let pairs = bytes.chunks_exact(2);
    let odd = (!pairs.remainder().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
    char::decode_utf16(pairs.map(|pair| unit([pair[0], pair[1]])))
        .map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER))
        .chain(odd)
        .collect()
}

fn windows_1252(bytes: &[u8]) -> Cow<'_, str> {
    if let Some(text) = str::from_utf8(bytes).ok().filter(|text| text.is_ascii()) {
        return text.into();
    }
    bytes.iter().map(letter).collect()
}

/// What stands where ISO 8859-1 has controls (WHATWG Encoding, index-windows-1252).
const WINDOWS_1252_HIGH: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// WHATWG Encoding, 4.2.
const WINDOWS_1252_LABELS: &[&str] = &[
    "ansi_x3.4-1968",
    "ascii",
    "cp1252",
    "cp819",
    "csisolatin1",
    "ibm819",
    "iso-8859-1",
    "iso-ir-100",
    "iso8859-1",
    "iso88591",
    "iso_8859-1",
    "iso_8859-1:1987",
    "l1",
    "latin1",
    "us-ascii",
    "windows-1252",
    "x-cp1252",
];
const UTF_16BE_LABELS: &[&str] = &["unicodefffe", "utf-16be"];
const UTF_16LE_LABELS: &[&str] = &[
    "csunicode",
    "iso-10646-ucs-2",
    "ucs-2",
    "unicode",
    "unicodefeff",
    "utf-16",
    "utf-16le",
];
