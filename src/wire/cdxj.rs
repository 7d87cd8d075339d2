//! Lines of a CDXJ index: what a record of a WARC file says, as `cdxj-indexer` reads it, and its line.
//!
//! Hand-written: no crate writes them, and their readers expect what `cdxj-indexer` 1.5 for Python makes of each
//! record, also of one with a strange head.

mod head;

use std::io::{self, BufRead, ErrorKind, Read};

use self::head::{decoded, fields, is_space, read_head, trim_end};
use crate::wire::surt;
use crate::wire::warc::{Digest, Hashing};

/// What a record says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indexed {
    /// It has a line.
    Entry(Box<Entry>),
    /// It has none: it is no capture.
    Other,
    /// A head of it is longer than [`HEAD_MAX`], so that it has none.
    Long,
}

/// A line without the place of its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// When the capture began: 14 digits.
    timestamp: String,
    url: String,
    mime: Option<String>,
    status: Option<String>,
    digest: Option<String>,
}

/// The place of a record.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Name of its file.
    pub filename: &'a str,
    /// Offset of its gzip member.
    pub offset: u64,
    /// Length of that.
    pub length: u64,
}

/// Longest head of a record, and of a reply in it. The crawl has a fraction of it.
pub const HEAD_MAX: usize = 256 << 10;

/// Longest line. It is several times as long as a URL and a media type that fit into their heads need.
pub const LINE_MAX: usize = 1 << 20;

impl Entry {
    /// Its line without a line end: key, time, and a JSON object in ASCII. `None` if it is longer than [`LINE_MAX`].
    pub fn line(&self, place: Place<'_>) -> Option<Vec<u8>> {
        let mut line = surt::key_of(&self.url);
        line.push(' ');
        line.push_str(&self.timestamp);
        line.push_str(" {");
        let (length, offset) = (place.length.to_string(), place.offset.to_string());
        let values = [
            ("url", Some(&*self.url)),
            ("mime", self.mime.as_deref()),
            ("status", self.status.as_deref()),
            ("digest", self.digest.as_deref()),
            ("length", Some(&length)),
            ("offset", Some(&offset)),
            ("filename", Some(place.filename)),
        ];
        let mut separator = "";
        for (name, value) in values {
            if let Some(value) = value {
                line.push_str(separator);
                push_string(name, &mut line);
                line.push_str(": ");
                push_string(value, &mut line);
                separator = ", ";
            }
        }
        line.push('}');
        (line.len() <= LINE_MAX).then(|| line.into_bytes())
    }
}

/// Reads one record, which must be all that `member` has.
///
/// # Errors
/// [`ErrorKind::InvalidData`]: it is no record, or `member` has more than one. Errors of `member`.
pub fn read_record(member: &mut impl BufRead) -> io::Result<Indexed> {
    let mut head = Vec::new();
    if !read_head(member, &mut head, HEAD_MAX)? {
        return Ok(Indexed::Long);
    }
    if !head.starts_with(b"WARC/") {
        return Err(invalid("a gzip member does not begin with a WARC record"));
    }
    let record = RecordHead::new(&head)?;
    let mut block = member.by_ref().take(record.length);
    let indexed = match &record.kind {
        Some(kind) => read_capture(*kind, &record, &mut block)?,
        None => Indexed::Other,
    };
    skip(&mut block)?;
    if block.limit() > 0 {
        return Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "a WARC record is shorter than its Content-Length",
        ));
    }
    loop {
        let rest = member.fill_buf()?;
        if rest.is_empty() {
            return Ok(indexed);
        }
        if !rest.iter().all(u8::is_ascii_whitespace) {
            return Err(invalid("a gzip member has more than one WARC record"));
        }
        let length = rest.len();
        member.consume(length);
    }
}

/// The kinds of records that have lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Response,
    Revisit,
    /// A resource or metadata, of which the media type is the block's.
    Block,
}

/// The fields of a record that matter.
struct RecordHead {
    /// `None` if it has no line.
    kind: Option<Kind>,
    length: u64,
    timestamp: String,
    url: String,
    digest: Option<String>,
    content_type: Option<String>,
}

impl RecordHead {
    fn new(head: &[u8]) -> io::Result<Self> {
        let (mut kind, mut length, mut date, mut url) = (None, None, None, None);
        let (mut digest, mut content_type) = (None, None);
        for (name, value) in fields(head) {
            let wanted = match () {
                () if name.eq_ignore_ascii_case("WARC-Type") => &mut kind,
                () if name.eq_ignore_ascii_case("Content-Length") => &mut length,
                () if name.eq_ignore_ascii_case("WARC-Date") => &mut date,
                () if name.eq_ignore_ascii_case("WARC-Target-URI") => &mut url,
                () if name.eq_ignore_ascii_case("WARC-Payload-Digest") => &mut digest,
                () if name.eq_ignore_ascii_case("Content-Type") => &mut content_type,
                () => continue,
            };
            wanted.get_or_insert(value);
        }
        let length = length.and_then(|length| length.trim().parse().ok());
        let length = length.ok_or_else(|| invalid("a WARC record has no Content-Length"))?;
        let is_described = content_type.as_deref() != Some("application/warc-fields");
        let kind = match kind.as_deref() {
            Some("response") => Some(Kind::Response),
            Some("revisit") => Some(Kind::Revisit),
            Some("resource" | "metadata") if is_described && url.is_some() => Some(Kind::Block),
            _ => None,
        };
        let (mut timestamp, mut target) = (String::new(), String::new());
        if kind.is_some() {
            let date = date.as_deref().and_then(timestamp_of);
            timestamp = date.ok_or_else(|| invalid("a WARC record has no valid WARC-Date"))?;
            target = url.ok_or_else(|| invalid("a WARC record has no WARC-Target-URI"))?;
            if let Some(inner) = target
                .strip_prefix('<')
                .and_then(|url| url.strip_suffix('>'))
            {
                target = inner.to_owned();
            }
            target = target.replace(' ', "%20");
        }
        Ok(RecordHead {
            kind,
            length,
            timestamp,
            url: target,
            digest: digest.filter(|digest: &String| !digest.is_empty()),
            content_type,
        })
    }
}

/// Reads as much of a block as its line needs.
fn read_capture(kind: Kind, record: &RecordHead, block: &mut impl BufRead) -> io::Result<Indexed> {
    let mut entry = Entry {
        timestamp: record.timestamp.clone(),
        url: record.url.clone(),
        digest: record.digest.clone(),
        ..Entry::default()
    };
    let is_http = ["http:", "https:"]
        .iter()
        .any(|scheme| record.url.starts_with(scheme));
    let mut content_type = record.content_type.clone();
    if kind != Kind::Block {
        content_type = None;
        if record.length > 0 && is_http {
            let mut head = Vec::new();
            if !read_head(block, &mut head, HEAD_MAX)? {
                return Ok(Indexed::Long);
            }
            entry.status = Some(status_of(&head));
            let is_type = |name: &str| name.eq_ignore_ascii_case("Content-Type");
            content_type = fields(&head).find_map(|(name, value)| is_type(&name).then_some(value));
        }
    }
    entry.mime = match kind {
        Kind::Revisit => Some("warc/revisit".to_owned()),
        _ => content_type.map(|value| {
            let end = value.find(|c| c == ';' || is_space(c));
            value[..end.unwrap_or(value.len())].to_owned()
        }),
    };
    if entry.digest.is_none() && kind != Kind::Revisit {
        entry.digest = Some(digest_of(block)?.to_string());
    }
    Ok(Indexed::Entry(Box::new(entry)))
}

/// The digest of the rest of a block. Of a chunked reply it covers the chunks' framing, as that of `cdxj-indexer`:
/// [`Digest::from_payload`] differs, and result lines have that.
fn digest_of(block: &mut impl BufRead) -> io::Result<Digest> {
    let mut hashing = Hashing::new();
    loop {
        let bytes = block.fill_buf()?;
        if bytes.is_empty() {
            return Ok(hashing.finish());
        }
        hashing.update(bytes);
        let length = bytes.len();
        block.consume(length);
    }
}

fn skip(block: &mut impl BufRead) -> io::Result<()> {
    loop {
        let length = block.fill_buf()?.len();
        if length == 0 {
            return Ok(());
        }
        block.consume(length);
    }
}

/// The second word of the first line.
fn status_of(head: &[u8]) -> String {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or(head);
    let line = decoded(line);
    let line = trim_end(&line);
    let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
    let rest = trim_end(rest.trim_start_matches(is_space));
    rest.split(' ').next().unwrap_or("").to_owned()
}

/// The 14 digits of a date such as `2026-11-28T09:30:00.123Z`, whose fractions are cut off. One without a time of day
/// is its start.
fn timestamp_of(date: &str) -> Option<String> {
    let mut numbers = date.split(|c: char| !c.is_ascii_digit());
    let mut timestamp = String::with_capacity(14);
    for (width, range) in [
        (4, 1..=9999),
        (2, 1..=12),
        (2, 1..=31),
        (2, 0..=23),
        (2, 0..=59),
        (2, 0..=60),
    ] {
        let text = numbers.next().filter(|text| !text.is_empty());
        let value: u32 = match text {
            Some(text) => text.parse().ok()?,
            None => 0,
        };
        if !range.contains(&value) {
            return None;
        }
        timestamp.push_str(&format!("{value:0width$}"));
    }
    Some(timestamp)
}

/// A JSON string in ASCII.
fn push_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
