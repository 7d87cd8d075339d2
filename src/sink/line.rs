//! Builds a line of JSON, key by key: `results.jsonl`, `throttle.jsonl`.
//!
//! Written by hand into a reused buffer, so that a line needs no allocation.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::base::time::Wall;
use crate::wire::octets::{self, DELETE, below, equal};
use crate::wire::text::is_control;
use crate::wire::warc::Digest;

/// The line so far, with a method for each kind of value.
pub(super) struct Line<'a> {
    pub out: &'a mut Vec<u8>,
}

/// Appends a key that is not the first of its object, and its value: a bool, a value written by
/// `with`, or null. The key and the constant text after it are one string literal, which is
/// appended at once: there are about 36 per line.
macro_rules! field {
    ($line:ident, $name:literal) => {
        $line.raw(concat!(", \"", $name, "\": "))
    };
    ($line:ident, $name:literal, $is:expr) => {
        $line.raw(match $is {
            true => concat!(", \"", $name, "\": true"),
            false => concat!(", \"", $name, "\": false"),
        })
    };
    ($line:ident, $name:literal, $value:expr, with $write:expr) => {
        match $value {
            Some(value) => {
                $write($line.raw(concat!(", \"", $name, "\": ")), value);
            }
            None => {
                $line.raw(concat!(", \"", $name, "\": null"));
            }
        }
    };
}
pub(super) use field;

impl Line<'_> {
    /// Appends a literal text.
    #[inline(always)]
    pub fn raw(&mut self, text: &'static str) -> &mut Self {
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    // Inlined so that the length of the name is a constant.
    #[inline(always)]
    pub fn first(&mut self, name: &str) -> &mut Self {
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\": ");
        self
    }

    #[inline(always)]
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.out.extend_from_slice(b", ");
        self.first(name)
    }

    pub fn or_null<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.out.extend_from_slice(b"null"),
        }
    }

    pub fn boolean(&mut self, value: bool) {
        let word: &[u8] = if value { b"true" } else { b"false" };
        self.out.extend_from_slice(word);
    }

    pub fn number(&mut self, value: u64) {
        if value < 10 {
            return self.out.push(b'0' + value as u8);
        }
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(value).as_bytes());
    }

    /// Appends the beginning of a short text. Copying a constant length needs no call; the excess
    /// is truncated afterwards.
    fn put<const SIZE: usize>(&mut self, text: [u8; SIZE], length: usize) {
        let end = self.out.len() + length;
        self.out.extend_from_slice(&text);
        self.out.truncate(end);
    }

    /// A duration in seconds: no exponent, up to nine decimals, no trailing zeros.
    pub fn seconds(&mut self, span: Duration) {
        self.number(span.as_secs());
        let fraction = span.subsec_nanos();
        if fraction == 0 {
            return;
        }
        let mut text = *b".000000000";
        put_digits(&mut text[1..], fraction);
        let mut width = text.len();
        while text[width - 1] == b'0' {
            width -= 1;
        }
        self.put(text, width);
    }

    pub fn wall(&mut self, wall: Wall) {
        self.out.extend_from_slice(WallText::new().of(wall));
    }

    pub fn text(&mut self, text: &str) {
        self.out.push(b'"');
        self.escaped(text);
        self.out.push(b'"');
    }

    /// A literal text without characters to escape.
    pub fn word(&mut self, text: &'static str) {
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
    }

    /// Copies runs of characters that need no escape; most texts need none at all. Control
    /// characters beyond ASCII are escaped as well, which JSON permits, because the line may be
    /// displayed on a terminal.
    pub fn escaped(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if is_plain(bytes) {
            return self.out.extend_from_slice(bytes);
        }
        let mut from = 0;
        for (at, char) in text.char_indices() {
            if char != '"' && char != '\\' && !is_control(char) {
                continue;
            }
            self.out.extend_from_slice(&bytes[from..at]);
            from = at + char.len_utf8();
            match char {
                '"' => self.out.extend_from_slice(b"\\\""),
                '\\' => self.out.extend_from_slice(b"\\\\"),
                '\n' => self.out.extend_from_slice(b"\\n"),
                '\r' => self.out.extend_from_slice(b"\\r"),
                '\t' => self.out.extend_from_slice(b"\\t"),
                control => {
                    self.out.extend_from_slice(b"\\u");
                    let code = u32::from(control);
                    for shift in [12, 8, 4, 0] {
                        let nibble = code >> shift & 0xf;
                        self.out.push(b"0123456789abcdef"[nibble as usize]);
                    }
                }
            }
        }
        self.out.extend_from_slice(&bytes[from..]);
    }

    /// The same text as the address's `Display`, ten times as fast for IPv4: there are two per
    /// line.
    pub fn address(&mut self, address: SocketAddr) {
        self.out.push(b'"');
        match address.ip() {
            IpAddr::V4(host) => {
                for octet in host.octets() {
                    let (text, length) = OCTETS[usize::from(octet)];
                    self.put(text, usize::from(length));
                }
                *self.out.last_mut().expect("four octets were written") = b':';
                self.number(address.port().into());
            }
            IpAddr::V6(_) => {
                use std::io::Write as _;
                write!(self.out, "{address}").expect("writing to a Vec does not fail");
            }
        }
        self.out.push(b'"');
    }

    pub fn digest(&mut self, digest: Digest) {
        self.out.push(b'"');
        self.out.extend_from_slice(&digest.text());
        self.out.push(b'"');
    }

    /// A pair of values: before and after.
    pub fn pair<T>(&mut self, [before, after]: [T; 2], write: impl Fn(&mut Self, T)) {
        self.out.push(b'[');
        write(self, before);
        self.out.extend_from_slice(b", ");
        write(self, after);
        self.out.push(b']');
    }

    pub fn list<'t>(&mut self, texts: impl Iterator<Item = &'t str>) {
        self.out.push(b'[');
        for (at, text) in texts.enumerate() {
            if at > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.text(text);
        }
        self.out.push(b']');
    }

    /// JSON as given by the user. Line ends between its tokens would end the line and are replaced;
    /// JSON permits none within strings.
    pub fn verbatim(&mut self, json: &str) {
        let mut buffer = [0; 4];
        for char in json.chars() {
            match char {
                '\n' | '\r' => self.out.push(b' '),
                // Characters beyond ASCII occur only in strings.
                char if !char.is_ascii() && is_control(char) || char == '\u{7f}' => {
                    self.escaped(char.encode_utf8(&mut buffer));
                }
                char => {
                    let bytes = char.encode_utf8(&mut buffer).as_bytes();
                    self.out.extend_from_slice(bytes);
                }
            }
        }
    }
}

/// Formats wall-clock times like their `Display`, ten times as fast. Most times of a line are in
/// the same second, whose date is computed once.
pub(super) struct WallText {
    second: u64,
    text: [u8; 32],
}

impl WallText {
    pub fn new() -> Self {
        WallText {
            second: u64::MAX,
            text: *b"\"0000-00-00T00:00:00.000000000Z\"",
        }
    }

    /// With quotation marks.
    pub fn of(&mut self, wall: Wall) -> &[u8; 32] {
        let text = &mut self.text;
        if self.second != wall.unix_seconds() {
            self.second = wall.unix_seconds();
            let (year, month, day, hour, minute, second) = wall.civil();
            put_digits(&mut text[1..5], year.unsigned_abs() as u32);
            put_digits(&mut text[6..8], month);
            put_digits(&mut text[9..11], day);
            put_digits(&mut text[12..14], hour);
            put_digits(&mut text[15..17], minute);
            put_digits(&mut text[18..20], second);
        }
        put_digits(&mut text[21..30], (wall.0 % 1_000_000_000) as u32);
        text
    }
}

/// Returns whether these bytes need no escape. Bytes beyond ASCII need a further check.
fn is_plain(bytes: &[u8]) -> bool {
    !octets::any(bytes, |word| {
        below(word, b' ') | equal(word, b'"') | equal(word, b'\\') | equal(word, DELETE) | word
    })
}

/// Fills a buffer with the last digits of a number, two at a time.
fn put_digits(place: &mut [u8], number: u32) {
    let mut rest = number;
    let mut pairs = place.rchunks_exact_mut(2);
    for pair in &mut pairs {
        pair.copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    if let [digit] = pairs.into_remainder() {
        *digit = b'0' + (rest % 10) as u8;
    }
}

/// 0 to 255 followed by a point, with their lengths.
const OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([b'.'; 4], 0); 256];
    let mut number = 0;
    while number < 256 {
        let digits = [number / 100, number / 10 % 10, number % 10];
        let mut at = if number < 10 {
            2
        } else if number < 100 {
            1
        } else {
            0
        };
        while at < 3 {
            let length = &mut octets[number].1;
            octets[number].0[*length as usize] = b'0' + digits[at] as u8;
            *length += 1;
            at += 1;
        }
        octets[number].1 += 1;
        number += 1;
    }
    octets
};

/// 00 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// A duration in seconds, in decimal.
pub(super) struct Seconds(pub(super) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        Line { out: &mut text }.seconds(self.0);
        f.write_str(str::from_utf8(&text).expect("digits are ASCII"))
    }
}
