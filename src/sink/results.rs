//! A finished attempt as one line of JSON: `results.jsonl`, standard output, `argiope fetch`.
//!
//! Written by hand into a buffer that is used again: a line costs no allocation.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::base::time::{Instant, Wall, nanos};
use crate::fetch::failure::Failure;
use crate::sink::page::{Page, TlsInfo};
use crate::wire::warc::Digest;

/// Where a reply's record lies: `warc` of a result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace<'a> {
    /// The file's final name, as seen from the output directory.
    pub file: &'a str,
    /// Offset of the record's gzip member.
    pub offset: u64,
    /// Length of the record's gzip member.
    pub length: u64,
}

/// Appends the line of `page`, with its line end.
pub fn write_line(page: &Page, place: Option<RecordPlace<'_>>, out: &mut Vec<u8>) {
    write_until_place(page, page.digest(), out);
    write_place(place, out);
    write_from_place(page, out);
}

/// The line up to the value of `warc`, which is known only when the disk has written the record,
/// long after the page is gone.
pub(super) fn write_until_place(page: &Page, digest: Option<Digest>, out: &mut Vec<u8>) {
    let mut line = Line { out };

    line.out.push(b'{');
    line.first("id").number(page.id);
    line.key("parent").or_null(page.parent, Line::number);
    line.key("seed").boolean(page.seed);
    line.key("final").boolean(page.final_);
    line.key("kind").text(page.kind);
    line.key("url").text(&page.url);
    line.key("method").text(&page.method);
    line.key("depth").number(page.depth.into());
    line.key("attempt").number(page.attempt.into());
    line.key("scopes")
        .list(page.scopes.iter().map(|scope| &**scope));

    let status = page.status.map(u64::from);
    line.key("status").or_null(status, Line::number);
    line.key("error")
        .or_null(page.failure.as_ref(), Line::failure);
    let truncated = page.truncated.map(|reason| reason.name());
    line.key("truncated").or_null(truncated, Line::text);
    line.key("redirect")
        .or_null(page.redirect.as_deref(), Line::text);
    line.key("version").or_null(page.version, Line::text);
    line.key("content_type")
        .or_null(page.content_type.as_deref(), Line::text);

    line.key("remote").or_null(page.remote, Line::shown);
    line.key("local").or_null(page.local, Line::shown);
    line.key("reused").boolean(page.reused);
    line.key("tls").or_null(page.tls, Line::tls);

    line.key("bytes_wire").number(page.bytes_wire);
    line.key("bytes_body").number(page.body.len() as u64);
    line.key("digest").or_null(digest, Line::shown);
    line.key("links")
        .or_null(page.links.map(u64::from), Line::number);
    line.key("warc");
}

/// Appends the value of `warc`.
pub(super) fn write_place(place: Option<RecordPlace<'_>>, out: &mut Vec<u8>) {
    let mut line = Line { out };
    line.or_null(place, |line, place| {
        line.out.push(b'{');
        line.first("file").text(place.file);
        line.key("offset").number(place.offset);
        line.key("length").number(place.length);
        line.out.push(b'}');
    });
}

/// The line from behind the value of `warc` to its end.
pub(super) fn write_from_place(page: &Page, out: &mut Vec<u8>) {
    let wall = |at: Instant| page.wall_at_start.at(at);
    let timings = &page.timings;
    let phase = |end: Option<Instant>| end.map(|end| end.saturating_since(timings.started));
    let mut line = Line { out };

    line.key("started").wall(wall(timings.started));
    line.key("due").or_null(timings.due.map(wall), Line::wall);
    line.key("sent").or_null(timings.sent.map(wall), Line::wall);

    for (name, end) in page.phases() {
        line.key(name).or_null(phase(end), Line::seconds);
    }

    line.key("latency")
        .or_null(timings.latency(), Line::seconds);
    line.key("server_latency")
        .or_null(timings.server_latency(), Line::seconds);
    let clock = timings
        .headers
        .map(|_| if timings.kernel { "kernel" } else { "user" });
    line.key("clock").or_null(clock, Line::text);
    if clock.is_some() && timings.bound {
        line.key("bound").boolean(true);
    }
    line.key("lateness")
        .or_null(timings.lateness(), Line::seconds);
    line.key("delay").or_null(page.delay, Line::seconds);
    line.key("meta")
        .or_null(page.meta.as_deref().map(|meta| meta.get()), Line::verbatim);
    line.out.extend_from_slice(b"}\n");
}

/// A span as seconds in decimal: no exponent, up to nine digits after the point, no idle zeros.
pub(super) struct Seconds(pub(super) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        Line { out: &mut text }.seconds(self.0);
        f.write_str(str::from_utf8(&text).expect("digits are ASCII"))
    }
}

/// The line so far, and how each kind of value is written.
struct Line<'a> {
    out: &'a mut Vec<u8>,
}

impl Line<'_> {
    fn first(&mut self, name: &str) -> &mut Self {
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\": ");
        self
    }

    fn key(&mut self, name: &str) -> &mut Self {
        self.out.extend_from_slice(b", ");
        self.first(name)
    }

    fn or_null<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.out.extend_from_slice(b"null"),
        }
    }

    fn boolean(&mut self, value: bool) {
        let word: &[u8] = if value { b"true" } else { b"false" };
        self.out.extend_from_slice(word);
    }

    fn number(&mut self, value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[at..]);
    }

    /// `value` in exactly `width` digits.
    fn padded(&mut self, value: u64, width: usize) {
        let end = self.out.len() + width;
        self.out.resize(end, b'0');
        let mut rest = value;
        for digit in self.out[end - width..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    fn seconds(&mut self, span: Duration) {
        let nanos = nanos(span);
        self.number(nanos / 1_000_000_000);
        let fraction = nanos % 1_000_000_000;
        if fraction != 0 {
            self.out.push(b'.');
            self.padded(fraction, 9);
            while self.out.last() == Some(&b'0') {
                self.out.pop();
            }
        }
    }

    /// As [`Wall`] shows itself, in a tenth of the time: there are three on a line.
    fn wall(&mut self, wall: Wall) {
        let (year, month, day, hour, minute, second) = wall.civil();
        self.out.push(b'"');
        self.padded(year.unsigned_abs(), 4);
        for (before, value) in [
            (b'-', month),
            (b'-', day),
            (b'T', hour),
            (b':', minute),
            (b':', second),
        ] {
            self.out.push(before);
            self.padded(value.into(), 2);
        }
        self.out.push(b'.');
        self.padded(wall.0 % 1_000_000_000, 9);
        self.out.extend_from_slice(b"Z\"");
    }

    fn text(&mut self, text: &str) {
        self.out.push(b'"');
        self.escaped(text);
        self.out.push(b'"');
    }

    /// What needs no escape is copied a stretch at a time.
    fn escaped(&mut self, text: &str) {
        let bytes = text.as_bytes();
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

    /// Something whose text is ours and holds nothing to escape.
    fn shown(&mut self, value: impl fmt::Display) {
        self.out.push(b'"');
        write!(Text(self.out), "{value}").expect("a vector takes all that is written");
        self.out.push(b'"');
    }

    fn list<'t>(&mut self, texts: impl Iterator<Item = &'t str>) {
        self.out.push(b'[');
        for (at, text) in texts.enumerate() {
            if at > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.text(text);
        }
        self.out.push(b']');
    }

    fn failure(&mut self, failure: &Failure) {
        self.out.push(b'{');
        self.first("kind").text(failure.kind.name());
        self.key("code");
        self.out.push(b'"');
        self.escaped(failure.kind.name());
        self.out.push(b'.');
        self.escaped(failure.code);
        self.out.push(b'"');
        self.key("detail").text(&failure.detail);
        self.out.push(b'}');
    }

    fn tls(&mut self, tls: TlsInfo) {
        self.out.push(b'{');
        self.first("version").text(tls.version);
        self.key("cipher").text(tls.cipher);
        self.key("resumed").boolean(tls.resumed);
        self.key("verified").boolean(tls.verified);
        self.out.push(b'}');
    }

    /// JSON as its owner wrote it. Line ends between its tokens would end our line; inside its
    /// strings JSON allows none.
    fn verbatim(&mut self, json: &str) {
        let one_line = json.bytes().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            other => other,
        });
        self.out.extend(one_line);
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

#[cfg(test)]
mod tests;
