//! Writes a finished attempt as one line of JSON: `results.jsonl`, standard output, `argiope
//! fetch`.

use crate::base::time::Instant;
use crate::fetch::failure::Failure;
use crate::fetch::timings::Accuracy;
use crate::sink::line::{Line, WallText, field};
use crate::sink::page::{AskedHold, Page, TlsInfo};
use crate::wire::directives::DirectiveWords;
use crate::wire::html::fields::Fields;
use crate::wire::http::HttpVersion;
use crate::wire::proxy::Route;
use crate::wire::warc::Digest;

/// Position of a reply's record: `warc` of a result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace<'a> {
    /// The file's final name, relative to the output directory.
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
    write_from_place(page, None, out);
}

/// The line up to the value of `warc`, which is known only after the disk has written the record,
/// long after the page is gone.
pub(super) fn write_until_place(page: &Page, digest: Option<Digest>, out: &mut Vec<u8>) {
    out.reserve(LINE_USUAL);
    let mut line = Line { out };

    line.raw("{\"id\": ").number(page.id);
    let parent = page.parent;
    field!(line, "parent", parent, with Line::number);
    field!(line, "seed", page.seed);
    field!(line, "final", page.is_final);
    field!(line, "kind").word(page.kind.as_str());
    field!(line, "url").text(&page.url);
    let method = field!(line, "method");
    match &*page.method {
        "GET" => method.word("GET"),
        other => method.text(other),
    }
    field!(line, "depth").number(page.depth.into());
    field!(line, "attempt").number(page.attempt.into());
    field!(line, "scopes").list(page.scopes.iter().map(String::as_str));

    let status = page.status.map(u64::from);
    field!(line, "status", status, with Line::number);
    if let Some(judged) = page.judged {
        field!(line, "judged").number(judged.into());
    }
    field!(line, "error", page.failure.as_ref(), with write_failure);
    let truncated = page.truncated.map(|reason| reason.as_str());
    field!(line, "truncated", truncated, with Line::word);
    field!(line, "redirect", page.redirect.as_deref(), with Line::text);
    field!(line, "version", page.version.map(HttpVersion::as_str), with Line::word);
    let content_type = page.content_type.as_deref();
    field!(line, "content_type", content_type, with Line::text);

    field!(line, "remote", page.remote, with Line::address);
    field!(line, "local", page.local, with Line::address);
    field!(line, "reused", page.reused);
    field!(line, "tls", page.tls, with write_tls);

    field!(line, "bytes_wire").number(page.bytes_wire);
    let bytes_body = page.body.len() as u64 + page.bytes_taken;
    field!(line, "bytes_body").number(bytes_body);
    field!(line, "digest", digest, with Line::digest);
    let links = page.links.map(u64::from);
    field!(line, "links", links, with Line::number);
    field!(line, "robots", page.directives.as_deref(), with write_directives);
    if let Some(fields) = &page.fields {
        write_fields(field!(line, "fields"), fields);
    }
    field!(line, "warc");
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

/// The line from after the value of `warc` to its end; `sequence`: its number on standard output.
pub(super) fn write_from_place(page: &Page, sequence: Option<u64>, out: &mut Vec<u8>) {
    let timings = &page.timings;
    let mut text = WallText::new();
    let mut wall = |line: &mut Line<'_>, at: Instant| {
        line.out
            .extend_from_slice(text.of(page.wall_at_start.at(at)));
    };
    let mut line = Line { out };

    wall(field!(line, "started"), timings.started);
    field!(line, "due", timings.due, with &mut wall);
    field!(line, "sent", timings.sent, with &mut wall);

    let phase = |line: &mut Line<'_>, end: Instant| {
        line.seconds(end.saturating_since(timings.started));
    };
    let [
        dns,
        connect,
        tls_handshake,
        request,
        first_byte,
        headers,
        body,
    ] = page.phases().map(|(_, end)| end);
    field!(line, "dns", dns, with phase);
    field!(line, "connect", connect, with phase);
    field!(line, "tls_handshake", tls_handshake, with phase);
    field!(line, "request", request, with phase);
    field!(line, "first_byte", first_byte, with phase);
    field!(line, "headers", headers, with phase);
    field!(line, "body", body, with phase);
    let ended = timings.sent.map(|_| page.ended);
    field!(line, "ended", ended, with phase);

    field!(line, "latency", timings.latency(), with Line::seconds);
    let server_latency = timings.server_latency();
    field!(line, "server_latency", server_latency, with Line::seconds);
    let accuracy = timings.accuracy();
    let clock = accuracy.map(|accuracy| match accuracy {
        Accuracy::Exact | Accuracy::Bound => "kernel",
        Accuracy::User => "user",
    });
    field!(line, "clock", clock, with Line::word);
    if accuracy.is_some_and(|accuracy| accuracy != Accuracy::Exact) {
        field!(line, "bound", true);
    }
    if page.refetched {
        field!(line, "refetched", true);
    }
    field!(line, "lateness", timings.lateness(), with Line::seconds);
    field!(line, "delay", page.delay, with Line::seconds);
    let mut write_hold = |line: &mut Line<'_>, hold: &AskedHold| {
        line.raw("{\"from\": ");
        wall(line, hold.from);
        write_asked(line, hold);
    };
    field!(line, "hold", page.hold.as_deref(), with write_hold);
    if page.robots_ignored {
        field!(line, "robots_ignored", true);
    }
    if let Some(route) = &page.route {
        field!(line, "proxied", matches!(route, Route::Proxy(_)));
    }
    field!(line, "meta", page.meta(), with Line::verbatim);
    if let Some(sequence) = sequence {
        field!(line, "seq").number(sequence);
    }
    line.raw("}\n");
}

/// Appends the first line of a resumed crawl on standard output: lines above this number that were written
/// before it are void.
pub(super) fn write_resumed_after(sequence: u64, out: &mut Vec<u8>) {
    let mut line = Line { out };
    line.raw("{\"resumed_after\": ").number(sequence);
    line.raw("}\n");
}

/// Typical length of a line.
const LINE_USUAL: usize = 1200;

fn write_asked(line: &mut Line<'_>, hold: &AskedHold) {
    line.key("seconds").seconds(hold.asked);
    line.key("source").text(hold.source.as_str());
    line.key("scopes").out.push(b'{');
    for (number, (scope, held)) in hold.scopes.iter().enumerate() {
        line.raw(if number > 0 { ", " } else { "" }).text(scope);
        line.raw(": ").seconds(*held);
    }
    line.raw("}, \"redirect\": ")
        .or_null(hold.redirect, Line::seconds);
    line.out.push(b'}');
}

fn write_failure(line: &mut Line<'_>, failure: &Failure) {
    line.out.push(b'{');
    line.first("kind").text(failure.kind.as_str());
    line.key("code");
    line.out.push(b'"');
    line.escaped(failure.kind.as_str());
    line.out.push(b'.');
    line.escaped(failure.name);
    line.out.push(b'"');
    line.key("detail").text(&failure.detail);
    line.out.push(b'}');
}

fn write_directives(line: &mut Line<'_>, words: &DirectiveWords) {
    line.out.push(b'{');
    line.first("meta")
        .list(words.meta.iter().map(String::as_str));
    line.key("header")
        .list(words.header.iter().map(String::as_str));
    line.out.push(b'}');
}

fn write_fields(line: &mut Line<'_>, fields: &Fields) {
    for (number, (name, value)) in fields.iter().enumerate() {
        line.raw(if number > 0 { ", " } else { "{" }).text(name);
        line.raw(": ").or_null(value, Line::text);
    }
    line.out.push(b'}');
}

fn write_tls(line: &mut Line<'_>, tls: TlsInfo) {
    line.out.push(b'{');
    line.first("version").text(tls.version.as_str());
    line.key("cipher").text(tls.cipher);
    line.key("resumed").boolean(tls.resumed);
    line.key("verified").boolean(tls.verified);
    line.out.push(b'}');
}

#[cfg(test)]
mod tests;
