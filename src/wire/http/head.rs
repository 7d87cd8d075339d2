//! Heads: gathered line by line without rescanning, made regular, parsed once by httparse.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

use httparse::{Header, ParserConfig, Status};

use super::{HttpError, Limits};

/// The status line and the header fields of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The version of the status line.
    pub version: Version,
    /// The header fields, in order.
    pub headers: Headers,
}

impl Head {
    /// The reason phrase as it came, often empty; nothing depends on it.
    pub fn reason(&self) -> &[u8] {
        let line = self.headers.bytes.split(|&byte| byte == b'\n').next();
        let after_version = line.and_then(|line| line.get(VERSION_BYTES..));
        let from_code = after_version.unwrap_or_default().trim_ascii_start();
        from_code.get(3..).unwrap_or_default().trim_ascii()
    }
}

/// The versions of HTTP/1 (RFC 9112 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0: the connection closes unless it says otherwise.
    Http10,
    /// HTTP/1.1: the connection stays unless it says otherwise.
    Http11,
}

impl Version {
    /// The name on the wire and in result lines.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

/// Header fields in order, over one buffer. Folded lines are joined, bare CRs are spaces, lines
/// that are no field are left out; names keep their case.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// A bit for each length that a name has: most names that are looked for are not there, and that
    /// is seen without a look at the fields.
    lengths: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: Range<u32>,
    value: Range<u32>,
}

impl Headers {
    /// The value of the first field of this name, in any case, without surrounding white space.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let field = self
            .fields_of(name)
            .find(|field| self.is_named(field, name));
        field.map(|field| self.slice(&field.value))
    }

    /// The values of every field of this name, in any case, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields_of(name)
            .filter(move |field| self.is_named(field, name))
            .map(|field| self.slice(&field.value))
    }

    /// Every field as name and value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| {
            let name = std::str::from_utf8(self.slice(&field.name));
            (
                name.expect("a field name is ASCII"),
                self.slice(&field.value),
            )
        })
    }

    /// The name of every field, in order: the cheap way to see whether any matters.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().map(|field| self.slice(&field.name))
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Bytes of memory that they hold.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// The fields, if one of them can have this name.
    fn fields_of(&self, name: &str) -> std::slice::Iter<'_, Field> {
        let may_be_there = self.lengths & length_bit(name.len()) != 0;
        if may_be_there {
            self.fields.iter()
        } else {
            [].iter()
        }
    }

    fn is_named(&self, field: &Field, name: &str) -> bool {
        // Most names differ in length already; of one that is the same most letters are, as they stand.
        let mut letters = self.slice(&field.name).iter().zip(name.as_bytes());
        field.name.len() == name.len()
            && letters.all(|(one, other)| one == other || one.eq_ignore_ascii_case(other))
    }

    fn slice(&self, range: &Range<u32>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }
}

#[cfg(test)]
impl Headers {
    /// The fields of these lines, as a reply would have brought them.
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

/// What a block of lines may take.
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

/// A head on its way in. Each byte is looked at once, however it is cut; lines are made regular
/// as they end, so that httparse sees the whole block once.
#[derive(Debug, Default)]
pub(super) struct HeadBuffer {
    bytes: Vec<u8>,
    /// Room for what parsing finds.
    fields: Vec<Field>,
    /// Bytes that came in: blank lines ahead included, the line put before trailers not.
    taken: usize,
    /// Where the unfinished line begins.
    line_start: usize,
    /// Lines finished, the status line counted.
    lines: usize,
}

impl HeadBuffer {
    /// A buffer in the memory of fields that nobody wants any more.
    pub(super) fn in_memory_of(mut old: Headers) -> Self {
        old.bytes.clear();
        old.fields.clear();
        HeadBuffer {
            bytes: old.bytes,
            fields: old.fields,
            ..HeadBuffer::default()
        }
    }

    /// A buffer for trailers. Behind a status line they are a head, so the same code reads them.
    pub(super) fn for_trailers() -> Self {
        HeadBuffer {
            bytes: TRAILERS_STATUS_LINE.to_vec(),
            line_start: TRAILERS_STATUS_LINE.len(),
            lines: 1,
            ..HeadBuffer::default()
        }
    }

    /// Whether nothing but blank lines has come.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes lines from `input` up to and with the empty one; true when that has come.
    pub(super) fn read(&mut self, input: &mut &[u8], bounds: &Bounds) -> Result<bool, HttpError> {
        if self.read_whole(input, bounds) {
            return Ok(true);
        }
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

    /// Takes a head that is here whole and has nothing to be made regular, as most come: one look at
    /// all of its bytes in place of one at each line. False if it is not like that; nothing is taken.
    fn read_whole(&mut self, input: &mut &[u8], bounds: &Bounds) -> bool {
        if !self.bytes.is_empty() || !input.starts_with(STATUS_LINE_START) {
            return false;
        }
        // Within these no line can be too long either.
        let most = (bounds.bytes - self.taken).min(bounds.first_line_bytes);
        let within = &input[..input.len().min(most).min(bounds.line_bytes)];
        let Some((length, lines)) = regular_head(within) else {
            return false;
        };
        if lines - 1 > bounds.lines {
            return false;
        }
        let (head, rest) = input.split_at(length);
        self.bytes.extend_from_slice(head);
        self.taken += length;
        self.lines = lines;
        self.line_start = length - 2;
        *input = rest;
        true
    }

    /// Passes over blank lines, then holds the first bytes against what every status line begins
    /// with: a server of another protocol is known at once. True when they have come.
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

    /// Counts `piece` bytes in, unless a limit lies within them; the nearer one is named, so that
    /// the error does not depend on how the input was cut.
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

    /// Makes the line that has just ended regular; true when it is the empty one.
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
        // RFC 9112 section 2.2: a bare CR is a space.
        if find(line, b'\r').is_some() {
            blank(line, |byte| byte == b'\r');
        }
        // RFC 9112 section 5.2: a folded line continues the field before it. Where there is none,
        // httparse passes over it, as section 2.2 has it.
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

    /// The head, when all of it is here.
    pub(super) fn parse(mut self) -> Result<Head, HttpError> {
        let mut fields = std::mem::take(&mut self.fields);
        let (status, version) = self.parts(&mut fields)?;
        let lengths = fields.iter().map(|field| length_bit(field.name.len()));
        let headers = Headers {
            lengths: lengths.fold(0, |all, length| all | length),
            bytes: self.bytes,
            fields,
        };
        Ok(Head {
            status,
            version,
            headers,
        })
    }

    /// Status and version; appends the fields.
    fn parts(&self, fields: &mut Vec<Field>) -> Result<(u16, Version), HttpError> {
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
            Some(0) => Version::Http10,
            _ => Version::Http11,
        };
        assert!(
            u32::try_from(self.bytes.len()).is_ok(),
            "a head is far below 4 GiB"
        );
        // Each is a part of the bytes, so no number is cut.
        let range = |part: &[u8]| {
            let start = part.as_ptr() as usize - self.bytes.as_ptr() as usize;
            start as u32..(start + part.len()) as u32
        };
        fields.extend(response.headers.iter().map(|header| Field {
            name: range(header.name.as_bytes()),
            value: range(header.value),
        }));
        Ok((status.ok_or(HttpError::Status)?, version))
    }
}

/// The bit of a name's length in [`Headers::lengths`].
fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

/// The length of the head that these bytes begin with, and how many lines it has before the empty
/// one; `None` unless it is whole and every line ends with CR LF, holds no other CR and does not
/// begin with a space. Blocks without an end are looked at all bytes at once.
fn regular_head(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut lines = 0;
    let mut at = 0;
    let (ones, _) = bytes.as_chunks::<32>();
    let (nexts, _) = bytes.get(1..)?.as_chunks::<32>();
    for (ones, nexts) in ones.iter().zip(nexts) {
        let (mut breaks, mut ends, mut wrong) = (0_u8, 0_u8, 0_u8);
        for (&one, &next) in ones.iter().zip(nexts) {
            let ended = u8::from(one == b'\n');
            let spaced = u8::from(next == b' ') | u8::from(next == b'\t');
            breaks += ended;
            ends |= ended & u8::from(next == b'\r');
            wrong |= (u8::from(one == b'\r') ^ u8::from(next == b'\n')) | (ended & spaced);
        }
        if ends != 0 {
            break;
        }
        if wrong != 0 {
            return None;
        }
        lines += usize::from(breaks);
        at += ones.len();
    }
    loop {
        match bytes.get(at..at + 2)? {
            b"\n\r" => {
                let whole = bytes.get(at + 2) == Some(&b'\n');
                return whole.then_some((at + 3, lines + 1));
            }
            b"\r\n" => {}
            [b'\r', _] | [_, b'\n'] | [b'\n', b' ' | b'\t'] => return None,
            [b'\n', _] => lines += 1,
            _ => {}
        }
        at += 1;
    }
}

/// Where a byte first stands. Written so that the compiler looks at a block at a time; lines are
/// too short for the standard library's way.
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

/// Puts spaces in the place of these bytes.
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

/// What every status line of ours begins with.
const STATUS_LINE_START: &[u8] = b"HTTP/1.";

/// The length of `HTTP/1.1`.
const VERSION_BYTES: usize = 8;

const TRAILERS_STATUS_LINE: &[u8] = b"HTTP/1.1 200\n";

/// Room that most heads fit in.
const HEAD_BYTES_USUAL: usize = 1024;

/// Header lines of most heads; more go to the heap.
const HEADER_LINES_USUAL: usize = 48;
