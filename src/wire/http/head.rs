//! Heads: collected line by line without rescanning, normalised, and parsed once by httparse.

use std::fmt;
use std::iter;
use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use super::request::IS_TOKEN;
use super::{HttpError, Limits};
use crate::wire::octets::{equal_ignoring_case, value_length, word_length};

/// The status line and the header fields of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The version of the status line.
    pub version: HttpVersion,
    /// The header fields, in order.
    pub headers: Headers,
}

impl Head {
    /// The reason phrase as received, often empty; nothing depends on it.
    pub fn reason(&self) -> &[u8] {
        let line = self.headers.bytes.split(|&byte| byte == b'\n').next();
        let after_version = line.and_then(|line| line.get(VERSION_BYTES..));
        let from_code = after_version.unwrap_or_default().trim_ascii_start();
        from_code.get(3..).unwrap_or_default().trim_ascii()
    }
}

/// The versions of HTTP/1 (RFC 9112 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HttpVersion {
    /// HTTP/1.0: the connection closes by default.
    Http10,
    /// HTTP/1.1: the connection stays open by default.
    Http11,
}

impl HttpVersion {
    /// The name on the wire and in result lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
        }
    }
}

impl fmt::Display for HttpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Header fields in order, in one buffer. Folded lines are joined, bare CRs become spaces, lines
/// that are not a field are omitted; names keep their case.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// For each length of names, the number (from 1) of the first field with such a name; all long
    /// names count as one length. Most names that are looked up are absent, and most others are the
    /// only ones of their length, so look-ups rarely search the fields.
    firsts: [u16; LENGTHS],
    /// A bit for the first two octets of each name.
    initials: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    name: Part,
    value: Part,
    /// The number of the next field with a name of this length, or 0.
    next: u16,
}

/// A range of the bytes of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: u32,
    end: u32,
}

impl Part {
    fn new(start: usize, end: usize) -> Self {
        Part {
            start: start as u32,
            end: end as u32,
        }
    }

    fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

impl Headers {
    /// The value of the first field with this name, in any case, without surrounding white space.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let field = self.fields_of(name).next();
        field.map(|field| self.slice(field.value))
    }

    /// The values of all fields with this name, in any case, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields_of(name).map(|field| self.slice(field.value))
    }

    /// All fields as name and value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| {
            let name = std::str::from_utf8(self.slice(field.name));
            (
                name.expect("a field name is ASCII"),
                self.slice(field.value),
            )
        })
    }

    /// The names of all fields, in order: a cheap way to check for relevant ones.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().map(|field| self.slice(field.name))
    }

    /// Returns whether a name may start with one of these pairs of octets, in any case, without a search
    /// through the fields. If it returns false, none does; other pairs have the same bits, so true may be wrong.
    pub(in crate::wire) fn may_begin_with_any(&self, pairs: &[[u8; 2]]) -> bool {
        let wanted = pairs.iter().fold(0, |all, pair| all | initial_bit(*pair));
        self.initials & wanted != 0
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Bytes of memory used.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// The fields with this name, in order.
    fn fields_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Field> {
        let mut next = self.firsts[length_place(name.len())];
        let each = iter::from_fn(move || {
            let field = self.fields.get(usize::from(next.checked_sub(1)?))?;
            next = field.next;
            Some(field)
        });
        each.filter(|field| equal_ignoring_case(self.slice(field.name), name.as_bytes()))
    }

    fn slice(&self, part: Part) -> &[u8] {
        &self.bytes[part.start as usize..part.end as usize]
    }
}

#[cfg(test)]
impl Headers {
    /// The fields in these lines, as from a reply.
    pub(crate) fn of_lines(lines: &[u8]) -> Self {
        let mut buffer = HeadBuffer::for_trailers();
        let lines = [lines, b"\n\n"].concat();
        let bounds = Bounds::of_head(&Limits::default());
        let whole = buffer.read(&mut lines.as_slice(), &bounds);
        assert_eq!(whole, Ok(true), "the lines of a head");
        buffer.parse().expect("fields").headers
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.iter()
                    .map(|(name, value)| (name, String::from_utf8_lossy(value))),
            )
            .finish()
    }
}

/// Limits of a block of lines.
pub(super) struct Bounds {
    bytes: usize,
    first_line_bytes: usize,
    line_bytes: usize,
    lines: usize,
}

impl Bounds {
    pub(super) fn of_head(limits: &Limits) -> Self {
        Bounds {
            bytes: limits.head_bytes_max,
            first_line_bytes: limits.status_line_bytes_max,
            line_bytes: limits.header_line_bytes_max,
            lines: limits.header_lines_max,
        }
    }

    /// Trailers share their bytes with the chunk extensions that were already `used`.
    pub(super) fn of_trailers(limits: &Limits, used: usize) -> Self {
        Bounds {
            bytes: limits.chunk_extras_bytes_max.saturating_sub(used),
            ..Bounds::of_head(limits)
        }
    }
}

/// A head being read. Most arrive complete and regular, and are parsed in one pass. In others each
/// byte is examined once, however the input is split; each line is normalised at its end, so that
/// httparse parses the whole block once.
#[derive(Debug, Default)]
pub(super) struct HeadBuffer {
    bytes: Vec<u8>,
    /// The fields found in the single pass, or memory for those that httparse will find.
    fields: Vec<Field>,
    /// Status and version from the single pass.
    found: Option<(u16, HttpVersion)>,
    /// Bytes received, including leading blank lines but not the line put before trailers.
    taken: usize,
    /// Start of the unfinished line.
    line_start: usize,
    /// Number of finished lines, including the status line.
    lines: usize,
}

impl HeadBuffer {
    /// A buffer that reuses the memory of old fields.
    pub(super) fn in_memory_of(mut old: Headers) -> Self {
        old.bytes.clear();
        old.fields.clear();
        HeadBuffer {
            bytes: old.bytes,
            fields: old.fields,
            ..HeadBuffer::default()
        }
    }

    /// A buffer for trailers. With a status line before them they are parsed like a head.
    pub(super) fn for_trailers() -> Self {
        HeadBuffer {
            bytes: TRAILERS_STATUS_LINE.to_vec(),
            line_start: TRAILERS_STATUS_LINE.len(),
            lines: 1,
            ..HeadBuffer::default()
        }
    }

    /// Returns whether nothing but blank lines was received.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Consumes lines from `input` up to and including the empty one; returns whether that was
    /// reached.
    pub(super) fn read(&mut self, input: &mut &[u8], bounds: &Bounds) -> Result<bool, HttpError> {
        Ok(self.read_whole(input, bounds) || self.read_by_lines(input, bounds)?)
    }

    /// The same for a head that arrives in pieces or is not regular.
    fn read_by_lines(&mut self, input: &mut &[u8], bounds: &Bounds) -> Result<bool, HttpError> {
        if !self.begin(input, bounds)? {
            return Ok(false);
        }
        while !input.is_empty() {
            let line = find(input, b'\n').map_or(input.len(), |at| at + 1);
            let (line, rest) = input.split_at(line);
            self.make_room(line.len(), bounds)?;
            self.bytes.extend_from_slice(line);
            *input = rest;
            if self.bytes.ends_with(b"\n") {
                if self.end_line() {
                    return Ok(true);
                }
                if self.lines - 1 > bounds.lines {
                    return Err(HttpError::TooManyHeaderLines);
                }
            }
        }
        Ok(false)
    }

    /// Consumes a head that is complete and needs no normalisation, as most are, in one pass.
    /// Returns `false`, and consumes nothing, if it is not like that.
    fn read_whole(&mut self, input: &mut &[u8], bounds: &Bounds) -> bool {
        if !self.bytes.is_empty() {
            return false;
        }
        // Within these limits no line can be too long either.
        let most = (bounds.bytes - self.taken).min(bounds.first_line_bytes);
        let within = &input[..input.len().min(most).min(bounds.line_bytes)];
        let whole = read_regular(within, &mut self.fields);
        let Some(regular) = whole.filter(|_| self.fields.len() <= bounds.lines) else {
            self.fields.clear();
            return false;
        };
        let (head, rest) = input.split_at(regular.length);
        self.bytes.extend_from_slice(head);
        self.found = Some((regular.status, regular.version));
        *input = rest;
        true
    }

    /// Skips blank lines, then compares the first bytes with the start of a status line, so that
    /// another protocol is detected at once. Returns whether they have arrived.
    fn begin(&mut self, input: &mut &[u8], bounds: &Bounds) -> Result<bool, HttpError> {
        while self.bytes.len() < STATUS_LINE_START.len() {
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(false);
            };
            if byte == STATUS_LINE_START[self.bytes.len()] {
                if self.bytes.is_empty() {
                    self.bytes.reserve(HEAD_BYTES_USUAL);
                }
                self.bytes.push(byte);
            } else if !self.bytes.is_empty() || !matches!(byte, b'\r' | b'\n') {
                return Err(match self.bytes.len() {
                    0..5 => HttpError::NotHttp,
                    _ => HttpError::Version,
                });
            }
            self.taken += 1;
            if self.taken > bounds.bytes {
                return Err(HttpError::HeadTooLarge);
            }
            *input = rest;
        }
        Ok(true)
    }

    /// Counts `piece` bytes, unless that exceeds a limit; the limit reached first is reported, so
    /// that the error does not depend on how the input is split.
    fn make_room(&mut self, piece: usize, bounds: &Bounds) -> Result<(), HttpError> {
        let (line_max, too_long) = match self.lines {
            0 => (bounds.first_line_bytes, HttpError::StatusLineTooLong),
            _ => (bounds.line_bytes, HttpError::HeaderLineTooLong),
        };
        let line_room = line_max.saturating_sub(self.bytes.len() - self.line_start);
        let room = bounds.bytes - self.taken;
        if piece > line_room.min(room) {
            return Err(if line_room <= room {
                too_long
            } else {
                HttpError::HeadTooLarge
            });
        }
        self.taken += piece;
        Ok(())
    }

    /// Normalises the line that has just ended; returns whether it is the empty one.
    fn end_line(&mut self) -> bool {
        let (before, line) = self.bytes.split_at_mut(self.line_start);
        let content = line.strip_suffix(b"\n").map_or(0, <[u8]>::len);
        let content = line[..content]
            .strip_suffix(b"\r")
            .map_or(content, <[u8]>::len);
        let line = &mut line[..content];
        if line.is_empty() {
            return true;
        }
        // RFC 9110 section 2.5: a higher minor version is treated as the highest known one.
        let ends = !line.get(VERSION_BYTES).is_some_and(u8::is_ascii_digit);
        if self.lines == 0
            && ends
            && let Some(minor @ b'2'..=b'9') = line.get_mut(VERSION_BYTES - 1)
        {
            *minor = b'1';
        }
        // RFC 9112 section 2.2: a bare CR is a space.
        if find(line, b'\r').is_some() {
            blank(line, |byte| byte == b'\r');
        }
        // RFC 9112 section 5.2: a folded line continues the field before it. If there is none,
        // httparse skips the line, as section 2.2 requires.
        if matches!(line[0], b' ' | b'\t') && self.lines > 1 {
            let end = before.len();
            blank(&mut before[end.saturating_sub(2)..], |byte| {
                matches!(byte, b'\r' | b'\n')
            });
        }
        self.lines += 1;
        self.line_start = self.bytes.len();
        false
    }

    /// Parses the complete head.
    pub(super) fn parse(mut self) -> Result<Head, HttpError> {
        let mut fields = std::mem::take(&mut self.fields);
        let (status, version) = match self.found {
            Some(found) => found,
            None => self.parts(&mut fields)?,
        };
        let Ok(end) = u16::try_from(fields.len() + 1) else {
            // Far beyond any sensible limit.
            return Err(HttpError::TooManyHeaderLines);
        };
        let (mut firsts, mut initials) = ([0; LENGTHS], 0);
        for (field, number) in fields.iter_mut().rev().zip((1..end).rev()) {
            let first = &mut firsts[length_place(field.name.len())];
            field.next = *first;
            *first = number;
            let name = &self.bytes[field.name.start as usize..];
            // At least a colon follows.
            initials |= name.first_chunk().map_or(0, |pair| initial_bit(*pair));
        }
        let headers = Headers {
            bytes: self.bytes,
            fields,
            firsts,
            initials,
        };
        Ok(Head {
            status,
            version,
            headers,
        })
    }

    /// Returns status and version; appends the fields.
    fn parts(&self, fields: &mut Vec<Field>) -> Result<(u16, HttpVersion), HttpError> {
        let mut usual = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADER_LINES_USUAL];
        let mut more = Vec::new();
        let slots = match usual.get_mut(..self.lines) {
            Some(slots) => slots,
            None => {
                more.resize_with(self.lines, MaybeUninit::uninit);
                &mut more[..]
            }
        };
        let mut response = httparse::Response::new(&mut []);
        let mut config = ParserConfig::default();
        config
            .allow_multiple_spaces_in_response_status_delimiters(true)
            .allow_spaces_after_header_name_in_responses(true)
            .ignore_invalid_headers_in_responses(true);
        let parsed = config.parse_response_with_uninit_headers(&mut response, &self.bytes, slots);
        match parsed.map_err(fault)? {
            Status::Complete(used) => debug_assert_eq!(used, self.bytes.len(), "one end of head"),
            Status::Partial => return Err(HttpError::Header),
        }
        let status = response.code.filter(|&code| code >= 100);
        let version = match response.version {
            Some(0) => HttpVersion::Http10,
            _ => HttpVersion::Http11,
        };
        assert!(
            u32::try_from(self.bytes.len()).is_ok(),
            "a head is far below 4 GiB"
        );
        // Each is a range of the bytes, so no number is truncated. An empty slice may point
        // anywhere.
        let part = |part: &[u8]| match part.len() {
            0 => Part::new(0, 0),
            length => {
                let start = part.as_ptr() as usize - self.bytes.as_ptr() as usize;
                Part::new(start, start + length)
            }
        };
        fields.extend(response.headers.iter().map(|header| Field {
            name: part(header.name.as_bytes()),
            value: part(header.value),
            next: 0,
        }));
        Ok((status.ok_or(HttpError::Status)?, version))
    }
}

/// The index of a name's length in [`Headers::firsts`].
fn length_place(length: usize) -> usize {
    length.min(LENGTHS - 1)
}

/// The bit of a name's first two octets in [`Headers::initials`], independent of case.
fn initial_bit([first, second]: [u8; 2]) -> u64 {
    1 << (first % 8 * 8 + second % 8)
}

/// A head that was parsed in one pass.
struct Regular {
    length: usize,
    status: u16,
    version: HttpVersion,
}

/// Parses the head at the start of these bytes if it is complete and strictly conforming: every
/// line ends with CR LF and contains no other CR, no line is folded, and every line is a field. All
/// other heads are left to the lenient parser; for these, httparse gives the same result (a test
/// compares them). May append fields even if it returns `None`.
fn read_regular(bytes: &[u8], fields: &mut Vec<Field>) -> Option<Regular> {
    let version = match bytes.first_chunk()? {
        b"HTTP/1.1 " => HttpVersion::Http11,
        b"HTTP/1.0 " => HttpVersion::Http10,
        _ => return None,
    };
    let code: &[u8; 3] = bytes.get(VERSION_BYTES + 1..)?.first_chunk()?;
    let digits = code.map(|digit| u16::from(digit.wrapping_sub(b'0')));
    let [hundreds @ 1..=9, tens @ 0..=9, ones @ 0..=9] = digits else {
        return None;
    };
    let reason = VERSION_BYTES + 1 + code.len();
    let mut at = reason + value_length(&bytes[reason..]);
    if at > reason && bytes[reason] != b' ' {
        return None;
    }
    loop {
        let ended: &[u8; 2] = bytes.get(at..)?.first_chunk()?;
        if ended != b"\r\n" {
            return None;
        }
        let name = at + 2;
        let mut colon = name + word_length(&bytes[name..]);
        while IS_TOKEN[usize::from(*bytes.get(colon)?)] {
            colon += 1;
        }
        if colon == name {
            let empty = bytes[name..].first_chunk()? == b"\r\n";
            return empty.then_some(Regular {
                length: name + 2,
                status: hundreds * 100 + tens * 10 + ones,
                version,
            });
        }
        if bytes[colon] != b':' {
            return None;
        }
        let mut value = colon + 1;
        while is_space(*bytes.get(value)?) {
            value += 1;
        }
        at = value + value_length(&bytes[value..]);
        let mut end = at;
        while end > value && is_space(bytes[end - 1]) {
            end -= 1;
        }
        fields.push(Field {
            name: Part::new(name, colon),
            value: match end - value {
                0 => Part::new(0, 0),
                _ => Part::new(value, end),
            },
            next: 0,
        });
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The first position of a byte. Written so that the compiler vectorises it; lines are too short
/// for the standard library's method.
fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<16>();
    let lacks = |block: &&[u8; 16]| {
        !block
            .iter()
            .fold(false, |has, &byte| has | (byte == wanted))
    };
    let passed = 16 * blocks.iter().take_while(lacks).count();
    let ahead = bytes[passed..].iter().position(|&byte| byte == wanted)?;
    Some(passed + ahead)
}

/// Replaces the selected bytes with spaces.
fn blank(bytes: &mut [u8], which: impl Fn(u8) -> bool) {
    for byte in bytes {
        if which(*byte) {
            *byte = b' ';
        }
    }
}

fn fault(error: httparse::Error) -> HttpError {
    match error {
        httparse::Error::Version => HttpError::Version,
        httparse::Error::Status => HttpError::Status,
        httparse::Error::TooManyHeaders => HttpError::TooManyHeaderLines,
        _ => HttpError::Header,
    }
}

/// The start of every status line that is accepted.
const STATUS_LINE_START: &[u8] = b"HTTP/1.";

/// The length of `HTTP/1.1`.
const VERSION_BYTES: usize = 8;

const TRAILERS_STATUS_LINE: &[u8] = b"HTTP/1.1 200\n";

/// Number of distinguished name lengths: few names are longer.
const LENGTHS: usize = 24;

/// Initial buffer size, sufficient for most heads.
const HEAD_BYTES_USUAL: usize = 1024;

/// Header lines parsed without heap allocation; most heads have fewer.
const HEADER_LINES_USUAL: usize = 48;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a head in one pass, if it is regular, and by lines; both must give the same result.
    fn check(bytes: &[u8]) -> bool {
        let bounds = Bounds::of_head(&Limits::default());
        let read = |by_lines: bool| {
            let (mut buffer, mut input) = (HeadBuffer::default(), bytes);
            let whole = match by_lines {
                true => buffer.read_by_lines(&mut input, &bounds),
                false => Ok(buffer.read_whole(&mut input, &bounds)),
            };
            (whole == Ok(true)).then(|| (buffer.parse(), input))
        };
        let at_once = read(false);
        let is_regular = at_once.is_some();
        if is_regular {
            assert_eq!(at_once, read(true), "{}", bytes.escape_ascii());
        }
        is_regular
    }

    #[test]
    fn a_regular_head_is_parsed_in_one_pass() {
        let regular: [&[u8]; 6] = [
            b"HTTP/1.1 200\r\n\r\n",
            b"HTTP/1.0 999 \xff\tno\r\nA:\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length:5\r\nX-Tab: \t a\tb \t\r\nx: :\r\n\r\nbody",
            b"HTTP/1.1 200 OK\r\nx: 12345678\x80\x80\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx: 1234567\t\xff\t\t\r\n\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        ];
        for head in regular {
            assert!(check(head), "{}", head.escape_ascii());
        }
        let others: [&[u8]; 14] = [
            b"",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\n\r",
            b"HTTP/1.1 200 OK\n\n",
            b"HTTP/1.1 200OK\r\n\r\n",
            b"HTTP/1.1  200 OK\r\n\r\n",
            b"HTTP/1.1 099 OK\r\n\r\n",
            b"HTTP/1.2 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA : 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: 1\r\n 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: 1\r2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: 12345678\x7f\r\n\r\n",
            b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        ];
        for head in others {
            assert!(!check(head), "{}", head.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn a_head_parsed_in_one_pass_equals_one_parsed_by_lines(
            lines in prop::collection::vec(
                ("[A-Za-z0-9!#^_`|~-]{1,20}", ":[ \t]{0,3}", "([ \t]|[!-~]|[\u{80}-\u{7ff}]){0,20}"),
                0..9,
            ),
            change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut head = String::from("HTTP/1.1 200 OK\r\n");
            for (name, colon, value) in lines {
                head.extend([&*name, &*colon, &*value, "\r\n"]);
            }
            head.push_str("\r\n");
            let mut head = head.into_bytes();
            if let Some((place, byte)) = change {
                let place = place.index(head.len());
                head[place] = byte;
            }
            check(&head);
        }
    }
}
