//! A finished attempt as one line of JSON: `results.jsonl`, standard output, `argiope fetch`.

use crate::base::time::Instant;
use crate::fetch::failure::Failure;
use crate::sink::line::Line;
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
        .list(page.scopes.iter().map(String::as_str));

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

    line.key("remote").or_null(page.remote, Line::address);
    line.key("local").or_null(page.local, Line::address);
    line.key("reused").boolean(page.reused);
    line.key("tls").or_null(page.tls, Line::tls);

    line.key("bytes_wire").number(page.bytes_wire);
    line.key("bytes_body")
        .number(page.body.len() as u64 + page.bytes_taken);
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
    if page.bounds().next().is_some() {
        line.key("bounds").list(page.bounds());
    }
    line.key("lateness")
        .or_null(timings.lateness(), Line::seconds);
    line.key("delay").or_null(page.delay, Line::seconds);
    line.key("meta")
        .or_null(page.meta.as_deref().map(|meta| meta.get()), Line::verbatim);
    line.out.extend_from_slice(b"}\n");
}

impl Line<'_> {
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
}

#[cfg(test)]
mod tests;
