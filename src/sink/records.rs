//! The records of a page in a WARC file: what each says of it.

use crate::fetch::tls::TlsVersion;
use crate::sink::line::Seconds;
use crate::sink::page::Page;
use crate::wire::http::HttpVersion;
use crate::wire::warc::{Digest, Fields, Record, RecordId, RecordKind};

/// Returns whether all readers of records agree on the start of the payload. Readers that look for
/// the first CR LF CR LF fail on a head with other line ends, and those that start at the first
/// line fail on leading blank lines. A payload digest would not match for them.
fn has_regular_head(page: &Page) -> bool {
    const END: &[u8] = b"\r\n\r\n";
    let bytes = &page.response_bytes;
    let head = &bytes[..page.head_length.min(bytes.len())];
    let is_last = |at: usize| at + END.len() == head.len();
    let first = head.windows(END.len()).position(|window| window == END);
    head.starts_with(b"HTTP/") && first.is_some_and(is_last)
}

/// A record of a page, in the file with this `warcinfo` record.
pub(super) fn record_of<'a>(
    page: &'a Page,
    kind: RecordKind,
    id: RecordId,
    info: RecordId,
    protocols: &'a [&'a str],
    block: &'a [u8],
) -> Record<'a> {
    Record {
        target: Some(&page.url),
        address: page.remote.map(|remote| remote.ip()),
        warcinfo: Some(info),
        protocols,
        cipher: page.tls.map(|tls| tls.cipher),
        ..Record::new(kind, id, page.captured_at(), block)
    }
}

/// The record of its reply, which is the main one.
pub(super) fn reply_record<'a>(
    page: &'a Page,
    digest: Option<Digest>,
    id: RecordId,
    info: RecordId,
    protocols: &'a [&'a str],
) -> Record<'a> {
    let kind = RecordKind::Response;
    Record {
        truncated: page.truncated.map(|reason| reason.as_str()),
        payload_digest: digest.filter(|_| !page.chunked && has_regular_head(page)),
        ..record_of(page, kind, id, info, protocols, &page.response_bytes)
    }
}

pub(super) fn protocols_of(page: &Page) -> Vec<&'static str> {
    let http = page.version.map(http_protocol);
    let tls = page.tls.map(|tls| tls_protocol(tls.version));
    http.into_iter().chain(tls).collect()
}

/// The block of a metadata record: the specification's own fields (section 6.6), then ours, with
/// the names and units of result lines. Missing values are omitted.
pub(super) fn metadata_of(page: &Page) -> Fields {
    let timings = &page.timings;
    let mut fields = Fields::default();
    if let Some(via) = &page.via {
        fields.push("via", via);
    }
    if let (Some(sent), Some(end)) = (timings.sent, timings.body) {
        fields.push("fetchTimeMs", end.at.saturating_since(sent).as_millis());
    }
    fields.push("id", page.id);
    if let Some(parent) = page.parent {
        fields.push("parent", parent);
    }
    fields.push("kind", page.kind);
    fields.push("seed", page.seed);
    fields.push("depth", page.depth);
    fields.push("attempt", page.attempt);
    for scope in &page.scopes {
        fields.push("scope", scope);
    }
    if let Some(failure) = &page.failure {
        fields.push("error", failure);
    }
    if let Some(redirect) = &page.redirect {
        fields.push("redirect", redirect);
    }
    if let Some(tls) = page.tls {
        fields.push("tls-resumed", tls.resumed);
        fields.push("tls-verified", tls.verified);
    }
    fields.push("reused", page.reused);
    for (phase, end) in page.phases() {
        if let Some(end) = end {
            fields.push(
                phase.as_str(),
                Seconds(end.saturating_since(timings.started)),
            );
        }
    }
    for (name, span) in [
        ("latency", timings.latency()),
        ("server_latency", timings.server_latency()),
        ("lateness", timings.lateness()),
        ("delay", page.delay),
    ] {
        if let Some(span) = span {
            fields.push(name, Seconds(span));
        }
    }
    fields
}

/// A protocol as named in the proposed `WARC-Protocol` field.
fn http_protocol(version: HttpVersion) -> &'static str {
    match version {
        HttpVersion::Http11 => "http/1.1",
        HttpVersion::Http10 => "http/1.0",
    }
}

fn tls_protocol(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::Tls13 => "tls/1.3",
        TlsVersion::Tls12 => "tls/1.2",
    }
}
