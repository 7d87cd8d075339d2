//! A line of JSON, key by key: `results.jsonl`, `throttle.jsonl`.
//!
//! Written by hand into a buffer that is used again: a line costs no allocation.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::base::time::{Wall, nanos};

/// The line so far, and how each kind of value is written.
pub(super) struct Line<'a> {
    pub out: &'a mut Vec<u8>,
}

impl Line<'_> {
    // Inlined, the names are of a known length: there are three dozen on a line.
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
        let width = value.checked_ilog10().map_or(1, |log| log as usize + 1);
        let mut text = [0; 20];
        put_digits(&mut text[..width], value);
        self.put(text, width);
    }

    /// Appends the beginning of a short text. Of a known length it needs no call to be copied, and
    /// what was copied too much is soon taken back.
    fn put<const SIZE: usize>(&mut self, text: [u8; SIZE], length: usize) {
        let end = self.out.len() + length;
        self.out.extend_from_slice(&text);
        self.out.truncate(end);
    }

    /// A span as seconds: no exponent, up to nine digits after the point, no idle zeros.
    pub fn seconds(&mut self, span: Duration) {
        let nanos = nanos(span);
        self.number(nanos / 1_000_000_000);
        let mut fraction = nanos % 1_000_000_000;
        if fraction == 0 {
            return;
        }
        let mut width = 9;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        let mut text = *b".000000000";
        put_digits(&mut text[1..=width], fraction);
        self.put(text, 1 + width);
    }

    /// As [`Wall`] shows itself, in a tenth of the time: there are three on a line.
    pub fn wall(&mut self, wall: Wall) {
        let (year, month, day, hour, minute, second) = wall.civil();
        let mut text = *b"\"0000-00-00T00:00:00.000000000Z\"";
        put_digits(&mut text[1..5], year.unsigned_abs());
        put_digits(&mut text[6..8], month.into());
        put_digits(&mut text[9..11], day.into());
        put_digits(&mut text[12..14], hour.into());
        put_digits(&mut text[15..17], minute.into());
        put_digits(&mut text[18..20], second.into());
        put_digits(&mut text[21..30], wall.0 % 1_000_000_000);
        self.out.extend_from_slice(&text);
    }

    pub fn text(&mut self, text: &str) {
        self.out.push(b'"');
        self.escaped(text);
        self.out.push(b'"');
    }

    /// What needs no escape is copied a stretch at a time. Most texts need none at all: to see that
    /// all octets are looked at, which is quicker than to stop at the first that does.
    pub fn escaped(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let needs = |any: bool, byte: &u8| any | (*byte < 0x20) | matches!(*byte, b'"' | b'\\');
        if !bytes.iter().fold(false, needs) {
            return self.out.extend_from_slice(bytes);
        }
        let mut from = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.out.extend_from_slice(&bytes[from..at]);
            from = at + 1;
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                control => {
                    self.out.extend_from_slice(b"\\u00");
                    for nibble in [control >> 4, control & 0xf] {
                        self.out.push(b"0123456789abcdef"[usize::from(nibble)]);
                    }
                }
            }
        }
        self.out.extend_from_slice(&bytes[from..]);
    }

    /// As the address shows itself, in a tenth of the time where it is IPv4: there are two on a line.
    pub fn address(&mut self, address: SocketAddr) {
        let IpAddr::V4(host) = address.ip() else {
            return self.shown(address);
        };
        let mut before = b'"';
        for octet in host.octets() {
            self.out.push(before);
            self.number(octet.into());
            before = b'.';
        }
        self.out.push(b':');
        self.number(address.port().into());
        self.out.push(b'"');
    }

    /// Something whose text is ours and holds nothing to escape.
    pub fn shown(&mut self, value: impl fmt::Display) {
        self.out.push(b'"');
        write!(Text(self.out), "{value}").expect("a vector takes all that is written");
        self.out.push(b'"');
    }

    /// Before and after.
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

    /// JSON as its owner wrote it. Line ends between its tokens would end our line; inside its
    /// strings JSON allows none.
    pub fn verbatim(&mut self, json: &str) {
        let one_line = json.bytes().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            other => other,
        });
        self.out.extend(one_line);
    }
}

/// Fills a place with the last digits of a number, two at a time.
fn put_digits(place: &mut [u8], number: u64) {
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

/// A span as seconds in decimal.
pub(super) struct Seconds(pub(super) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        Line { out: &mut text }.seconds(self.0);
        f.write_str(str::from_utf8(&text).expect("digits are ASCII"))
    }
}

/// Lets `write!` write into bytes.
struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
