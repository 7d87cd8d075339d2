//! Reads requests as they arrive on a server's connection (RFC 9112).
//!
//! Stricter than the reader of replies: a request that two readers could understand in two ways is an error.

use std::mem::take;

use super::chunked::{Chunks, Step};
use super::framing::{chunked, content_length, persistent};
use super::head::{Bounds, HeadBuffer};
use super::request::{IS_TOKEN, is_token};
use super::{Headers, HttpError, HttpVersion, Limits};

use crate::base::sentence::debug_as_sentence;

/// A complete request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboundRequest {
    /// The method, a token.
    pub method: String,
    /// The request target as received: printable ASCII without spaces.
    pub target: String,
    /// The header fields, in order.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// The connection may carry another request (RFC 9112 section 9.3).
    pub keeps_connection: bool,
}

/// Why a request was not accepted. The connection must be closed after the reply.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InboundError {
    /// The request line is not `METHOD TARGET HTTP/1.x`.
    #[error("the request line is malformed; it has the form: GET /path HTTP/1.1")]
    RequestLine,
    /// The version is neither 1.0 nor 1.1.
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    /// The head or its framing is malformed.
    #[error("the head is malformed: {0}")]
    Head(HttpError),
    /// Both Content-Length and Transfer-Encoding, or chunks in HTTP/1.0 (RFC 9112 section 6.1).
    #[error("the length of the body is given twice, or in chunks by HTTP/1.0")]
    Framing,
    /// The head is larger than its limit.
    #[error("the head is larger than 16 KiB or has more than 100 lines")]
    HeadTooLarge,
    /// The body is larger than its limit.
    #[error("the body is larger than 1 MiB; send several requests")]
    BodyTooLarge,
}

debug_as_sentence!(InboundError);

impl InboundError {
    /// The status that answers it.
    pub const fn status(self) -> u16 {
        match self {
            InboundError::RequestLine | InboundError::Head(_) | InboundError::Framing => 400,
            InboundError::Version => 505,
            InboundError::HeadTooLarge => 431,
            InboundError::BodyTooLarge => 413,
        }
    }
}

/// Reads the requests of one connection, one after the other.
///
/// ```text
/// Line ──► Head ──┬─────────────────────► (request)
///                 ├──► Length ──────────► (request)
///                 └──► Chunks ──────────► (request)
/// ```
/// Any state can fail permanently: the same error is then returned again.
#[derive(Debug)]
pub struct InboundReader {
    state: State,
    /// The client waits for an interim reply before it sends the body.
    expects_continue: bool,
}

#[derive(Debug)]
enum State {
    Line(Vec<u8>),
    Head {
        request: InboundRequest,
        version: HttpVersion,
        buffer: HeadBuffer,
        lines: FieldLines,
    },
    Length {
        request: InboundRequest,
        left: usize,
    },
    Chunks {
        request: InboundRequest,
        chunks: Chunks,
    },
    Failed(InboundError),
}

impl Default for InboundReader {
    fn default() -> Self {
        InboundReader {
            state: State::Line(Vec::new()),
            expects_continue: false,
        }
    }
}

impl InboundReader {
    /// Returns the next request and advances `input` past it. `None` asks for more bytes.
    ///
    /// # Errors
    /// The request is not acceptable; nothing more can be read.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<InboundRequest>, InboundError> {
        let read = self.step(input);
        if let Err(error) = read {
            self.state = State::Failed(error);
        }
        read
    }

    /// Whether nothing of a request has arrived since the last one.
    pub fn is_empty(&self) -> bool {
        matches!(&self.state, State::Line(line) if line.is_empty())
    }

    /// Whether an interim reply, 100 Continue, is to be sent now (RFC 9110 section 10.1.1).
    pub fn take_continue(&mut self) -> bool {
        take(&mut self.expects_continue)
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<InboundRequest>, InboundError> {
        while !input.is_empty() {
            match &mut self.state {
                State::Line(line) => {
                    let end = input.iter().position(|byte| *byte == b'\n');
                    let (piece, rest) = input.split_at(end.map_or(input.len(), |at| at + 1));
                    *input = rest;
                    if line.len() + piece.len() > HEAD_MAX {
                        return Err(InboundError::HeadTooLarge);
                    }
                    line.extend_from_slice(piece);
                    if end.is_none() {
                        continue;
                    }
                    let line = take(line);
                    let line = line.trim_ascii_end();
                    // RFC 9112 section 2.2: an empty line before a request is ignored.
                    if !line.is_empty() {
                        let (request, version) = request_line(line)?;
                        self.state = State::Head {
                            request,
                            version,
                            buffer: HeadBuffer::for_trailers(),
                            lines: FieldLines::Start,
                        };
                    }
                }
                State::Head {
                    request,
                    version,
                    buffer,
                    lines,
                } => {
                    let bounds = Bounds::of_head(&limits());
                    let before = *input;
                    let is_whole = buffer.read(input, &bounds).map_err(head_error)?;
                    lines.check(&before[..before.len() - input.len()])?;
                    if !is_whole {
                        continue;
                    }
                    let mut head = take(buffer).parse().map_err(head_error)?;
                    head.version = *version;
                    let mut request = take(request);
                    let length = content_length(&head).map_err(InboundError::Head)?;
                    let in_chunks = chunked(&head).map_err(InboundError::Head)?;
                    is_framed_once(&head.headers)?;
                    if in_chunks && (length.is_some() || *version == HttpVersion::Http10) {
                        return Err(InboundError::Framing);
                    }
                    request.keeps_connection = persistent(&head);
                    let expects = head.headers.get("expect");
                    let expects = expects
                        .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
                        && *version == HttpVersion::Http11;
                    request.headers = head.headers;
                    let left = match length {
                        Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
                        None => 0,
                    };
                    if left > BODY_MAX {
                        return Err(InboundError::BodyTooLarge);
                    }
                    self.expects_continue = expects && (in_chunks || left > 0);
                    self.state = match (in_chunks, left) {
                        (false, 0) => return Ok(Some(self.end(request))),
                        (false, left) => State::Length { request, left },
                        (true, _) => State::Chunks {
                            request,
                            chunks: Chunks::default(),
                        },
                    };
                }
                State::Length { request, left } => {
                    let (piece, rest) = input.split_at(input.len().min(*left));
                    *input = rest;
                    *left -= piece.len();
                    request.body.extend_from_slice(piece);
                    if *left == 0 {
                        let request = take(request);
                        return Ok(Some(self.end(request)));
                    }
                }
                State::Chunks { request, chunks } => {
                    let step = chunks.read(input, &limits()).map_err(InboundError::Head)?;
                    match step {
                        Step::More => {}
                        Step::Data(piece) if request.body.len() + piece.len() > BODY_MAX => {
                            return Err(InboundError::BodyTooLarge);
                        }
                        Step::Data(piece) => request.body.extend_from_slice(piece),
                        Step::Trailers(_) | Step::End => {
                            let request = take(request);
                            return Ok(Some(self.end(request)));
                        }
                    }
                }
                State::Failed(error) => return Err(*error),
            }
        }
        match &self.state {
            State::Failed(error) => Err(*error),
            _ => Ok(None),
        }
    }

    /// The request is complete: the next one follows.
    fn end(&mut self, request: InboundRequest) -> InboundRequest {
        self.state = State::Line(Vec::new());
        request
    }
}

/// Parses `METHOD TARGET HTTP/1.x` (RFC 9112 section 3).
fn request_line(line: &[u8]) -> Result<(InboundRequest, HttpVersion), InboundError> {
    let line = std::str::from_utf8(line).map_err(|_| InboundError::RequestLine)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(InboundError::RequestLine);
    };
    let is_sound = is_token(method)
        && !target.is_empty()
        && target.bytes().all(|byte| byte.is_ascii_graphic());
    let digits = version.strip_prefix("HTTP/");
    let (true, Some(digits)) = (is_sound, digits) else {
        return Err(InboundError::RequestLine);
    };
    let version = match digits {
        "1.0" => HttpVersion::Http10,
        "1.1" => HttpVersion::Http11,
        _ => return Err(InboundError::Version),
    };
    let request = InboundRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        ..InboundRequest::default()
    };
    Ok((request, version))
}

/// Whether the fields that give the length of the body are there once, with one value (RFC 9112 section 6).
fn is_framed_once(headers: &Headers) -> Result<(), InboundError> {
    let is_number = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let is_chunked = |value: &[u8]| value.eq_ignore_ascii_case(b"chunked");
    let one = |name: &str, is_sound: &dyn Fn(&[u8]) -> bool| {
        let mut values = headers.get_all(name);
        values.next().is_none_or(is_sound) && values.next().is_none()
    };
    match one("content-length", &is_number) && one("transfer-encoding", &is_chunked) {
        true => Ok(()),
        false => Err(InboundError::Framing),
    }
}

/// Checks that each line of a head is `name: value` (RFC 9112 section 5): what the reader of replies tolerates, two
/// readers may understand in two ways.
#[derive(Clone, Copy, Debug)]
enum FieldLines {
    /// The first byte of a line.
    Start,
    /// The rest of a name.
    Name,
    /// The rest of a value.
    Value,
    /// The LF after a CR.
    Lf,
}

impl FieldLines {
    fn check(&mut self, bytes: &[u8]) -> Result<(), InboundError> {
        for &byte in bytes {
            *self = match (*self, byte) {
                (FieldLines::Start | FieldLines::Value, b'\r') => FieldLines::Lf,
                (FieldLines::Start | FieldLines::Value | FieldLines::Lf, b'\n') => {
                    FieldLines::Start
                }
                (FieldLines::Start | FieldLines::Name, _) if IS_TOKEN[usize::from(byte)] => {
                    FieldLines::Name
                }
                (FieldLines::Name, b':') => FieldLines::Value,
                (FieldLines::Value, b'\t' | b' '..=b'~' | 0x80..) => FieldLines::Value,
                _ => return Err(InboundError::Head(HttpError::Header)),
            };
        }
        Ok(())
    }
}

fn limits() -> Limits {
    Limits {
        head_bytes_max: HEAD_MAX,
        status_line_bytes_max: HEAD_MAX,
        header_line_bytes_max: HEAD_MAX,
        header_lines_max: LINES_MAX,
        chunk_extras_bytes_max: HEAD_MAX,
        interim_max: 0,
    }
}

fn head_error(error: HttpError) -> InboundError {
    match error {
        HttpError::HeadTooLarge | HttpError::HeaderLineTooLong | HttpError::TooManyHeaderLines => {
            InboundError::HeadTooLarge
        }
        other => InboundError::Head(other),
    }
}

/// Bytes of a request line, and of the fields behind it; browsers send some two kilobytes.
const HEAD_MAX: usize = 16 << 10;

/// Lines of a head.
const LINES_MAX: usize = 100;

/// Bytes of a body: some ten thousand seeds.
const BODY_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of `input` in pieces of `piece` bytes: the targets and bodies of its requests, and the error.
    fn read(input: &[u8], piece: usize) -> (Vec<(String, Vec<u8>)>, Option<InboundError>) {
        let mut reader = InboundReader::default();
        let mut found = Vec::new();
        for mut piece in input.chunks(piece) {
            loop {
                match reader.read(&mut piece) {
                    Ok(Some(request)) => {
                        let line = format!("{} {}", request.method, request.target);
                        found.push((line, request.body));
                    }
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
            assert!(piece.is_empty(), "all is read");
        }
        (found, None)
    }

    /// Reads it at every cut.
    fn check(input: &[u8], requests: &[(&str, &[u8])], error: Option<InboundError>) {
        let expected: Vec<_> = requests
            .iter()
            .map(|(line, body)| ((*line).to_owned(), body.to_vec()))
            .collect();
        let lengths = (1..=input.len().min(40)).chain([input.len().max(1)]);
        for length in lengths {
            let (found, failed) = read(input, length);
            assert_eq!((&found, failed), (&expected, error), "pieces of {length}");
        }
    }

    #[test]
    fn requests_follow_each_other_with_bodies_by_length_and_in_chunks() {
        let input = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n\
            \r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\
            PUT /c HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n\
            DELETE /d HTTP/1.1\r\ncontent-length: 0\r\n\r\n";
        let requests: [(&str, &[u8]); 4] = [
            ("GET /a?b=c", b""),
            ("POST /b", b"hello"),
            ("PUT /c", b"abcde"),
            ("DELETE /d", b""),
        ];
        check(input, &requests, None);
    }

    #[test]
    fn malformed_requests_are_errors_with_a_status() {
        let bad = |input: &[u8], error: InboundError, status| {
            check(input, &[], Some(error));
            assert_eq!(error.status(), status);
        };
        bad(b"GET  / HTTP/1.1\r\n\r\n", InboundError::RequestLine, 400);
        bad(b"GET /\r\n\r\n", InboundError::RequestLine, 400);
        bad(b"\x16\x03\x01\x02\n", InboundError::RequestLine, 400);
        bad(
            b"G\xc3\xa4T / HTTP/1.1\r\n\r\n",
            InboundError::RequestLine,
            400,
        );
        bad(
            b"GET /\x7f HTTP/1.1\r\n\r\n",
            InboundError::RequestLine,
            400,
        );
        bad(b"GET / HTTP/2.0\r\n\r\n", InboundError::Version, 505);
        bad(b"GET / HTTP/1.10\r\n\r\n", InboundError::Version, 505);
        let twice = b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        bad(twice, InboundError::Framing, 400);
        let old = b"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        bad(old, InboundError::Framing, 400);
        let lengths = b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        bad(lengths, InboundError::Head(HttpError::ContentLength), 400);
        let coding = b"PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n";
        bad(coding, InboundError::Head(HttpError::TransferEncoding), 400);
        let chunk = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
        bad(chunk, InboundError::Head(HttpError::ChunkSize), 400);
    }

    #[test]
    fn a_head_that_two_readers_may_understand_in_two_ways_is_refused() {
        for fields in [
            "Content-Length : 5",
            "Content-Length: 5, 5",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length:",
            "Content-Length: +5",
            "X: y\r\n Transfer-Encoding: chunked",
            "Transfer-Encoding",
            "X: y\rTransfer-Encoding: chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: chunked, chunked",
            "X: \0",
            ": x",
        ] {
            let input = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\nhello");
            for piece in [1, 7, input.len()] {
                let (found, error) = read(input.as_bytes(), piece);
                assert_eq!(found, [], "{fields}");
                assert_eq!(error.map(InboundError::status), Some(400), "{fields}");
            }
        }
    }

    #[test]
    fn heads_and_bodies_have_limits() {
        let long = [b"GET /", vec![b'a'; HEAD_MAX].as_slice()].concat();
        assert_eq!(read(&long, 999).1, Some(InboundError::HeadTooLarge));
        let field = vec![b'a'; HEAD_MAX];
        let long = [b"GET / HTTP/1.1\r\nx: ", field.as_slice()].concat();
        assert_eq!(read(&long, 999).1, Some(InboundError::HeadTooLarge));
        let lines = b"x: y\r\n".repeat(LINES_MAX + 1);
        let many = [b"GET / HTTP/1.1\r\n".as_slice(), &lines].concat();
        assert_eq!(read(&many, 999).1, Some(InboundError::HeadTooLarge));
        let declared = format!("PUT / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", BODY_MAX + 1);
        let too_large = Some(InboundError::BodyTooLarge);
        assert_eq!(read(declared.as_bytes(), 999).1, too_large);
        let chunk = [
            format!("{BODY_MAX:x}\r\n").as_bytes(),
            &vec![b'x'; BODY_MAX],
        ]
        .concat();
        let head = b"PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunks = [head.as_slice(), &chunk, b"\r\n1\r\nx"].concat();
        assert_eq!(read(&chunks, 9999).1, too_large);
    }

    #[test]
    fn a_connection_is_kept_as_the_version_and_the_client_say() {
        let keeps = |head: &str| {
            let mut reader = InboundReader::default();
            let request = reader.read(&mut format!("GET / {head}\r\n\r\n").as_bytes());
            request
                .expect("it is sound")
                .expect("it is complete")
                .keeps_connection
        };
        assert!(keeps("HTTP/1.1"));
        assert!(!keeps("HTTP/1.0"));
        assert!(!keeps("HTTP/1.1\r\nConnection: close"));
        assert!(keeps("HTTP/1.0\r\nConnection: keep-alive"));
    }

    #[test]
    fn a_client_that_waits_with_its_body_gets_an_interim_reply_once() {
        let mut reader = InboundReader::default();
        let head = b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(reader.read(&mut head.as_slice()), Ok(None));
        assert!(reader.take_continue());
        assert!(!reader.take_continue());
        let request = reader.read(&mut b"ok".as_slice()).expect("it is sound");
        assert_eq!(request.expect("it is complete").body, b"ok");
        assert!(reader.is_empty());
    }
}
