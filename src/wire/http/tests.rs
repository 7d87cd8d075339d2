//! Replies in every split, and every limit.

use super::*;

/// All items, with the pieces of the body joined, and how the reply ended.
#[derive(Debug, PartialEq)]
struct Reply {
    interim: Vec<u16>,
    status: Option<u16>,
    headers: Vec<(String, String)>,
    body: String,
    trailers: Vec<(String, String)>,
    framing: Option<Framing>,
    end: Result<bool, HttpError>,
    left: usize,
}

/// Reads a reply that arrives in these pieces, followed by the end of the connection.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    method_is_head: bool,
    limits: Limits,
) -> Reply {
    let mut reader = ResponseReader::new(method_is_head, limits);
    let mut reply = Reply {
        interim: Vec::new(),
        status: None,
        headers: Vec::new(),
        body: String::new(),
        trailers: Vec::new(),
        framing: None,
        end: Err(HttpError::NoReply),
        left: 0,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let list = |headers: &Headers| {
        headers
            .iter()
            .map(|(name, value)| (name.to_owned(), text(value)))
            .collect()
    };
    let mut over = false;
    let mut broken = false;
    for piece in pieces {
        let mut input = piece;
        while !over && !broken {
            match reader.next(&mut input) {
                Ok(None) => {
                    assert!(input.is_empty(), "asks for more with bytes left");
                    break;
                }
                Ok(Some(Item::Interim(head))) => reply.interim.push(head.status),
                Ok(Some(Item::Head(head))) => {
                    reply.status = Some(head.status);
                    reply.headers = list(&head.headers);
                }
                Ok(Some(Item::Body(piece))) => {
                    assert!(!piece.is_empty(), "a piece of a body is never empty");
                    reply.body += &text(piece);
                }
                Ok(Some(Item::Trailers(trailers))) => reply.trailers = list(&trailers),
                Ok(Some(Item::End { reusable })) => {
                    reply.end = Ok(reusable);
                    over = true;
                }
                Err(error) => {
                    assert_eq!(reader.next(&mut input), Err(error), "an error is permanent");
                    reply.end = Err(error);
                    broken = true;
                }
            }
        }
        reply.left += input.len();
    }
    reply.framing = reader.framing();
    if !over && !broken {
        reply.end = reader.finish().map(|item| match item {
            Item::End { reusable } => reusable,
            other => panic!("a reply must end with End: {other:?}"),
        });
    }
    if broken {
        // How far into a piece an error is found does not matter.
        reply.left = 0;
    }
    reply
}

/// Reads the reply in every split, with the same result: whole, in two parts, and byte by byte.
fn reply_with(raw: &[u8], method_is_head: bool, limits: Limits) -> Reply {
    let whole = read([raw], method_is_head, limits);
    for at in 0..=raw.len() {
        let (one, two) = raw.split_at(at);
        assert_eq!(
            read([one, two], method_is_head, limits),
            whole,
            "cut at {at}"
        );
    }
    assert_eq!(read(raw.chunks(1), method_is_head, limits), whole);
    assert_eq!(read(raw.chunks(7), method_is_head, limits), whole);
    whole
}

fn reply(raw: &str) -> Reply {
    reply_with(raw.as_bytes(), false, Limits::default())
}

/// Checks a reply that ends well: status, body, framing, and whether the connection can be reused.
fn check(raw: &str, status: u16, body: &str, framing: Framing, reusable: bool) {
    let reply = reply(raw);
    assert_eq!(
        (reply.status, reply.body.as_str(), reply.framing, reply.end),
        (Some(status), body, Some(framing), Ok(reusable)),
        "{raw:?}"
    );
}

fn check_error(raw: &str, error: HttpError) {
    assert_eq!(reply(raw).end, Err(error), "{raw:?}");
}

fn value(raw: &str, name: &str) -> Option<String> {
    let headers = reply(raw).headers;
    headers
        .into_iter()
        .find(|(other, _)| other == name)
        .map(|(_, value)| value)
}

#[test]
fn a_length_ends_the_body() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        200,
        "hello",
        Framing::Length(5),
        true,
    );
}

#[test]
fn an_empty_body_needs_no_further_byte() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        200,
        "",
        Framing::Length(0),
        true,
    );
}

#[test]
fn without_length_or_chunks_the_connection_ends_the_body() {
    check(
        "HTTP/1.1 200 OK\r\n\r\nall of it",
        200,
        "all of it",
        Framing::Close,
        false,
    );
}

#[test]
fn chunks_are_joined_and_their_extensions_dropped() {
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n\
         3\r\nabc\r\n00a ; name=\"v\";x\r\n0123456789\r\n0\r\n\r\n",
        200,
        "abc0123456789",
        Framing::Chunked,
        true,
    );
}

#[test]
fn chunk_lines_may_end_with_lf_alone_or_have_trailing_space() {
    check(
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3 \t\nabc\n2;x\nde\n0  \n\n",
        200,
        "abcde",
        Framing::Chunked,
        true,
    );
}

#[test]
fn trailers_are_handed_over_apart_from_the_head() {
    let reply = reply(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\nx\r\n0\r\nDigest: one\r\n two\r\nExpires: 0\r\n\r\n",
    );
    assert_eq!(reply.end, Ok(true));
    assert_eq!(
        reply.headers,
        [("Transfer-Encoding".into(), "chunked".into())]
    );
    assert_eq!(
        reply.trailers,
        [
            ("Digest".into(), "one   two".into()),
            ("Expires".into(), "0".into())
        ]
    );
}

#[test]
fn a_broken_chunk_is_an_error_and_keeps_the_body_before_it() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
    for (rest, error) in [
        ("g\r\n", HttpError::ChunkSize),
        ("\r\n", HttpError::ChunkSize),
        ("-1\r\n", HttpError::ChunkSize),
        ("0x1\r\n", HttpError::ChunkSize),
        ("1 1\r\n", HttpError::ChunkSize),
        ("1\rx", HttpError::ChunkSize),
        ("10000000000000000\r\n", HttpError::ChunkSize),
        ("1\r\nXX", HttpError::ChunkEnd),
        ("1\r\nX\rX", HttpError::ChunkEnd),
        ("0\r\n\rx", HttpError::Header),
        ("0\r\nA: \0\r\n\r\n", HttpError::Header),
        ("1\r\n", HttpError::TruncatedChunks),
        ("0\r\n", HttpError::TruncatedChunks),
        ("0\r\nA: b\r\n", HttpError::TruncatedChunks),
        ("", HttpError::TruncatedChunks),
    ] {
        let reply = reply(&format!("{head}{rest}"));
        assert_eq!(reply.end, Err(error), "{rest:?}");
        assert!(reply.body.starts_with("ab"));
    }
}

#[test]
fn chunked_overrides_a_length_and_prevents_reuse() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        200,
        "",
        Framing::Chunked,
        false,
    );
    check(
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        200,
        "",
        Framing::Chunked,
        false,
    );
}

#[test]
fn only_chunked_is_a_transfer_coding() {
    for coding in [
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, identity",
        "chunked\r\n more",
    ] {
        check_error(
            &format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n"),
            HttpError::TransferEncoding,
        );
    }
    for coding in ["chunked, chunked", "identity, chunked", ",chunked"] {
        check(
            &format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n"),
            200,
            "",
            Framing::Chunked,
            true,
        );
    }
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
        200,
        "x",
        Framing::Length(1),
        true,
    );
}

#[test]
fn equal_lengths_agree_and_differing_ones_are_refused() {
    for lengths in [
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2, 2",
        "content-length: 02\r\nCONTENT-LENGTH: 2,",
        "Content-Length:\t2 ",
        "Content-Length :2",
        "Content-Length:\r\n 2",
    ] {
        check(
            &format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nab"),
            200,
            "ab",
            Framing::Length(2),
            true,
        );
    }
    for lengths in [
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2, 3",
        "Content-Length: +2",
        "Content-Length: -2",
        "Content-Length: 2.0",
        "Content-Length: 2 2",
        "Content-Length: two",
        "Content-Length: 18446744073709551616",
    ] {
        check_error(
            &format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nab"),
            HttpError::ContentLength,
        );
    }
}

#[test]
fn an_empty_length_counts_as_missing() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nab",
        200,
        "ab",
        Framing::Close,
        false,
    );
}

#[test]
fn some_replies_have_no_body_whatever_they_declare() {
    for status in [204, 304] {
        let reply = reply(&format!(
            "HTTP/1.1 {status} x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        ));
        assert_eq!(
            (reply.status, reply.framing, reply.end),
            (Some(status), Some(Framing::None), Ok(true))
        );
    }
    let to_head = reply_with(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        true,
        Limits::default(),
    );
    assert_eq!(
        (to_head.status, to_head.framing, to_head.end),
        (Some(200), Some(Framing::None), Ok(true))
    );
}

#[test]
fn bytes_after_a_reply_are_left_to_the_caller() {
    for (raw, left) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1", 8),
        ("HTTP/1.1 204 OK\r\n\r\nbody", 4),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\r\n",
            2,
        ),
    ] {
        let reply = reply(raw);
        assert_eq!((reply.end, reply.left), (Ok(true), left), "{raw:?}");
    }
}

#[test]
fn interim_replies_come_before_the_final_one() {
    let raw = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
               HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let reply = reply(raw);
    assert_eq!(reply.interim, [100, 103]);
    assert_eq!(
        (reply.status, reply.body.as_str(), reply.end),
        (Some(200), "x", Ok(true))
    );
}

#[test]
fn an_interim_reply_does_not_begin_the_final_one() {
    let mut reader = ResponseReader::new(false, Limits::default());
    assert!(!reader.has_begun());
    let mut input = &b"\r\n"[..];
    assert_eq!(reader.next(&mut input), Ok(None));
    assert!(!reader.has_begun(), "a blank line is not a reply");
    input = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert!(matches!(
        reader.next(&mut input),
        Ok(Some(Item::Interim(_)))
    ));
    assert!(!reader.has_begun());
    input = b"H";
    assert_eq!(reader.next(&mut input), Ok(None));
    assert!(reader.has_begun());
    assert_eq!(reader.finish(), Err(HttpError::TruncatedHead));
}

#[test]
fn switching_protocols_is_refused() {
    check_error(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        HttpError::SwitchingProtocols,
    );
}

#[test]
fn the_connection_is_kept_by_version_and_connection_field() {
    for (version, line, reusable) in [
        ("1.1", "X: y", true),
        ("1.1", "Connection: close", false),
        ("1.1", "Connection: foo, Close", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close", false),
        ("1.1", "Connection: closed", true),
        ("1.1", "Proxy-Connection: close", false),
        ("1.0", "X: y", false),
        ("1.0", "Connection: Keep-Alive", true),
        ("1.0", "Connection: keep-alive, close", false),
        ("1.0", "Proxy-Connection: keep-alive", false),
    ] {
        check(
            &format!("HTTP/{version} 200 OK\r\n{line}\r\nContent-Length: 0\r\n\r\n"),
            200,
            "",
            Framing::Length(0),
            reusable,
        );
    }
}

#[test]
fn a_truncated_reply_is_an_error() {
    check_error("", HttpError::NoReply);
    check_error("\r\n", HttpError::NoReply);
    check_error("HTTP/1.1 100 Continue\r\n\r\n", HttpError::NoReply);
    check_error("HTTP/1.1 200 OK\r\nA: b\r\n", HttpError::TruncatedHead);
    let reply = reply("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
    assert_eq!(reply.body, "ab", "what arrived is kept");
    assert_eq!(reply.end, Err(HttpError::TruncatedBody { missing: 3 }));
}

#[test]
fn a_higher_minor_version_is_treated_as_the_highest_known() {
    for minor in 0..=9 {
        for end in ["\r\n", "\n"] {
            let raw = format!("HTTP/1.{minor} 200 OK{end}Content-Length: 2{end}{end}ok");
            let mut reader = ResponseReader::new(false, Limits::default());
            let mut input = raw.as_bytes();
            let item = reader.next(&mut input).expect("it is HTTP/1");
            let Some(Item::Head(head)) = item else {
                panic!("a head comes first: {item:?}");
            };
            let expected = match minor {
                0 => HttpVersion::Http10,
                _ => HttpVersion::Http11,
            };
            assert_eq!((head.version, head.status), (expected, 200), "{raw:?}");
        }
    }
}

#[test]
fn a_non_http_reply_is_detected_by_its_first_bytes() {
    for (raw, error) in [
        ("S", HttpError::NotHttp),
        ("<html>", HttpError::NotHttp),
        ("HTTPX", HttpError::NotHttp),
        ("http/1.1 200 OK\r\n\r\n", HttpError::NotHttp),
        (" HTTP/1.1 200 OK\r\n\r\n", HttpError::NotHttp),
        ("HTTP/2", HttpError::Version),
        ("HTTP/01.1", HttpError::Version),
        ("HTTP/1.22 200 OK\r\n\r\n", HttpError::Version),
        ("HTTP/1.2\t200 OK\r\n\r\n", HttpError::Version),
        ("HTTP/1.x 200 OK\r\n\r\n", HttpError::Version),
        ("HTTP/1.01 200 OK\r\n\r\n", HttpError::Version),
        ("HTTP/1.1\t200 OK\r\n\r\n", HttpError::Version),
        ("HTTP/1.1200 OK\r\n\r\n", HttpError::Version),
        ("HTTP/1.1 2 OK\r\n\r\n", HttpError::Status),
        ("HTTP/1.1 099 OK\r\n\r\n", HttpError::Status),
        ("HTTP/1.1 2000 OK\r\n\r\n", HttpError::Status),
        ("HTTP/1.1 OK\r\n\r\n", HttpError::Status),
        ("HTTP/1.1 200 O\0K\r\n\r\n", HttpError::Status),
        ("HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n", HttpError::Header),
        ("HTTP/1.1 200 OK\r\nA\0: b\r\n\r\n", HttpError::Header),
    ] {
        check_error(raw, error);
    }
}

#[test]
fn another_protocol_is_rejected_at_its_first_byte() {
    let mut reader = ResponseReader::new(false, Limits::default());
    let mut input = &b"SSH-2.0-OpenSSH"[..];
    assert_eq!(reader.next(&mut input), Err(HttpError::NotHttp));
}

#[test]
fn malformed_heads_common_on_the_web_are_accepted() {
    for (raw, name, expected) in [
        ("HTTP/1.1 200 OK\nA: b\n\n", "A", Some("b")),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", "A", Some("b")),
        ("\r\n\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n", "A", Some("b")),
        ("HTTP/1.1 200\r\nA: b\r\n\r\n", "A", Some("b")),
        ("HTTP/1.1  200  OK\r\nA: b\r\n\r\n", "A", Some("b")),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "A", Some("b")),
        ("HTTP/1.1 200 OK\r\nA:b \t \r\n\r\n", "A", Some("b")),
        ("HTTP/1.1 200 OK\r\nA:\r\n\r\n", "A", Some("")),
        // A bare CR is a space, in the status line too.
        ("HTTP/1.1 200 OK\r\nA: b\rc: d\r\n\r\n", "A", Some("b c: d")),
        ("HTTP/1.1 200 OK\rX: y\r\nA: b\r\n\r\n", "X", None),
        ("HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n", "A", Some("b")),
        // Obsolete folding.
        (
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\td\r\n\r\n",
            "A",
            Some("b   c  \td"),
        ),
        ("HTTP/1.1 200 OK\nA: b\n c\n\n", "A", Some("b  c")),
        ("HTTP/1.1 200 OK\r\nA:\r\n b\r\n\r\n", "A", Some("b")),
        ("HTTP/1.1 200 OK\r\nA: b\r\n \r\n\r\n", "A", Some("b")),
        // Lines that are not a header field.
        ("HTTP/1.1 200 OK\r\n X: y\r\nA: b\r\n\r\n", "A", Some("b")),
        ("HTTP/1.1 200 OK\r\n X: y\r\nA: b\r\n\r\n", "X", None),
        (
            "HTTP/1.1 200 OK\r\nno field\r\nA: b\r\n\r\n",
            "A",
            Some("b"),
        ),
        ("HTTP/1.1 200 OK\r\n: y\r\nA: b\r\n\r\n", "A", Some("b")),
    ] {
        assert_eq!(value(raw, name).as_deref(), expected, "{raw:?}");
        assert_eq!(reply(raw).status, Some(200));
    }
}

#[test]
fn fields_are_found_in_any_case_and_kept_in_order() {
    let mut reader = ResponseReader::new(false, Limits::default());
    let mut input =
        &b"HTTP/1.0 404 Not  found \r\nSet-Cookie: a\r\nX: \xff\r\nset-cookie: b\r\n\r\n"[..];
    let Ok(Some(Item::Head(head))) = reader.next(&mut input) else {
        panic!("a head");
    };
    assert_eq!(
        (head.status, head.version, head.reason()),
        (404, HttpVersion::Http10, &b"Not  found"[..])
    );
    assert_eq!(head.headers.len(), 3);
    assert_eq!(head.headers.get("SET-COOKIE"), Some(&b"a"[..]));
    assert_eq!(head.headers.get("x"), Some(&b"\xff"[..]));
    assert_eq!(head.headers.get("y"), None);
    let all: Vec<_> = head.headers.get_all("set-cookie").collect();
    assert_eq!(all, [b"a", b"b"]);
    let names: Vec<_> = head.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Set-Cookie", "X", "set-cookie"]);
}

#[test]
fn a_line_folded_onto_the_status_line_is_ignored() {
    let mut reader = ResponseReader::new(false, Limits::default());
    let mut input = &b"HTTP/1.1 200 OK\r\n X: y\r\n\tZ\r\n\r\n"[..];
    let Ok(Some(Item::Head(head))) = reader.next(&mut input) else {
        panic!("a head");
    };
    assert_eq!((head.reason(), head.headers.len()), (&b"OK"[..], 0));
}

/// Limits small enough to be tested from both sides.
const TIGHT: Limits = Limits {
    head_bytes_max: 60,
    status_line_bytes_max: 20,
    header_line_bytes_max: 30,
    header_lines_max: 3,
    chunk_extras_bytes_max: 10,
    interim_max: 2,
};

fn check_limit(raw: &str, error: Option<HttpError>) {
    let reply = reply_with(raw.as_bytes(), false, TIGHT);
    assert_eq!(reply.end.err(), error, "{raw:?}");
    if let Some(error) = error {
        assert_eq!(error.class(), ErrorClass::TooLarge);
    }
}

#[test]
fn every_limit_is_met_exactly() {
    let pad = |bytes: usize| "x".repeat(bytes);
    // 13 bytes of version and status, 2 of line end.
    let line = |extra: usize| format!("HTTP/1.1 200 {}\r\n\r\n", pad(5 + extra));
    check_limit(&line(0), None);
    check_limit(&line(1), Some(HttpError::StatusLineTooLong));
    let line = |extra: usize| format!("HTTP/1.1 200\r\nA: {}\r\n\r\n", pad(25 + extra));
    check_limit(&line(0), None);
    check_limit(&line(1), Some(HttpError::HeaderLineTooLong));
    let head = |extra: usize| {
        format!(
            "HTTP/1.1 200\r\nA: {}\r\nB: {}\r\n\r\n",
            pad(20),
            pad(14 + extra)
        )
    };
    check_limit(&head(0), None);
    check_limit(&head(1), Some(HttpError::HeadTooLarge));
    let blank = |lines: usize| format!("{}HTTP/1.1 200\r\n\r\n", "\n".repeat(lines));
    check_limit(&blank(44), None);
    check_limit(&blank(45), Some(HttpError::HeadTooLarge));
    check_limit(&"\r".repeat(61), Some(HttpError::HeadTooLarge));
    let lines = |lines: usize| format!("HTTP/1.1 200\r\n{}\r\n", "A:b\r\n".repeat(lines));
    check_limit(&lines(3), None);
    check_limit(&lines(4), Some(HttpError::TooManyHeaderLines));
    check_limit(
        "HTTP/1.1 200\r\nA:b\r\n c\r\n d\r\n e\r\n\r\n",
        Some(HttpError::TooManyHeaderLines),
    );
    let interim = |replies: usize| {
        format!(
            "{}HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 100\r\n\r\n".repeat(replies)
        )
    };
    check_limit(&interim(2), None);
    check_limit(&interim(3), Some(HttpError::TooManyInterim));
}

#[test]
fn chunk_extensions_and_trailers_are_bounded() {
    let chunked =
        |rest: String| format!("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
    let pad = |bytes: usize| "x".repeat(bytes);
    let extra = Some(HttpError::ChunkExtrasTooLarge);
    // The line end of the extension counts.
    check_limit(&chunked(format!("1;{}\r\nx\r\n0\r\n\r\n", pad(8))), None);
    check_limit(&chunked(format!("1;{}\r\nx\r\n0\r\n\r\n", pad(9))), extra);
    check_limit(
        &chunked(format!("1{}\r\nx\r\n0\r\n\r\n", " ".repeat(10))),
        None,
    );
    check_limit(
        &chunked(format!("1{}\r\nx\r\n0\r\n\r\n", " ".repeat(11))),
        extra,
    );
    // Leading zeros beyond 64 bits.
    check_limit(
        &chunked(format!("{}1\r\nx\r\n0\r\n\r\n", "0".repeat(25))),
        None,
    );
    check_limit(
        &chunked(format!("{}1\r\nx\r\n0\r\n\r\n", "0".repeat(26))),
        extra,
    );
    // Trailers, including the empty line.
    check_limit(&chunked(format!("0\r\nA:{}\r\n\r\n", pad(4))), None);
    check_limit(&chunked(format!("0\r\nA:{}\r\n\r\n", pad(5))), extra);
    // Extensions add up, and data offsets them.
    check_limit(&chunked("1;xx\r\nx\r\n".repeat(3) + "0\r\n\r\n"), None);
    check_limit(&chunked("1;xx\r\nx\r\n".repeat(4) + "0\r\n\r\n"), extra);
    check_limit(&chunked("4;xx\r\nxxxx\r\n".repeat(9) + "0\r\n\r\n"), None);
    check_limit(
        &chunked("1;xx\r\nx\r\n".repeat(3) + "0;\r\nA:b\r\n\r\n"),
        extra,
    );
}

#[test]
fn the_error_does_not_depend_on_the_split_near_several_limits() {
    let pad = |bytes: usize| "x".repeat(bytes);
    for (first, second) in [(10, 60), (24, 60), (25, 29), (14, 28)] {
        let raw = format!("HTTP/1.1 200\r\nA:{}\r\nB:{}", pad(first), pad(second));
        reply_with(raw.as_bytes(), false, TIGHT);
    }
}

#[test]
fn a_large_head_may_arrive_byte_by_byte() {
    // Rescanning from the start for each byte would take minutes.
    let line = format!("A: {}\r\n", "x".repeat(1300));
    let raw = format!("HTTP/1.1 204 OK\r\n{}\r\n", line.repeat(200));
    let reply = read(raw.as_bytes().chunks(1), false, Limits::default());
    assert_eq!((reply.status, reply.headers.len()), (Some(204), 200));
}

#[test]
fn every_error_has_a_distinct_code_within_its_class() {
    let all = [
        HttpError::NoReply,
        HttpError::TruncatedHead,
        HttpError::TruncatedBody { missing: 1 },
        HttpError::TruncatedChunks,
        HttpError::NotHttp,
        HttpError::Version,
        HttpError::Status,
        HttpError::Header,
        HttpError::ContentLength,
        HttpError::TransferEncoding,
        HttpError::ChunkSize,
        HttpError::ChunkEnd,
        HttpError::SwitchingProtocols,
        HttpError::StatusLineTooLong,
        HttpError::HeaderLineTooLong,
        HttpError::TooManyHeaderLines,
        HttpError::HeadTooLarge,
        HttpError::ChunkExtrasTooLarge,
        HttpError::TooManyInterim,
    ];
    let mut names: Vec<_> = all
        .iter()
        .map(|error| format!("{:?}.{}", error.class(), error.code()))
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all.len());
}

mod random {
    use proptest::prelude::*;

    use super::*;

    /// Bytes that are often almost a reply.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(&b"HTTP/1.1 200 OK\r\n"[..]),
            Just(&b"HTTP/1.0 100\n"[..]),
            Just(&b"Transfer-Encoding: chunked\r\n"[..]),
            Just(&b"Content-Length: 7\r\n"[..]),
            Just(&b"Content-Length:"[..]),
            Just(&b"Connection: close\n"[..]),
            Just(&b"A: b"[..]),
            Just(&b"\r\n"[..]),
            Just(&b"\n"[..]),
            Just(&b"\r"[..]),
            Just(&b" "[..]),
            Just(&b"\t"[..]),
            Just(&b":"[..]),
            Just(&b"\0"[..]),
            Just(&b"\xff"[..]),
            Just(&b"3\r\nabc\r\n"[..]),
            Just(&b"5;x=y\nabcde\n"[..]),
            Just(&b"0\r\n"[..]),
            Just(&b"ffffffffffffffff\r\n"[..]),
        ];
        let start = prop_oneof![4 => Just(&b"HTTP/1.1 200 OK\r\n"[..]), 1 => Just(&b""[..])];
        (start, prop::collection::vec(part, 0..20))
            .prop_map(|(start, parts)| [start, &parts.concat()].concat())
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_no_cut_matters(raw in nearly(), to_head in any::<bool>(), tight in any::<bool>()) {
            let limits = if tight { TIGHT } else { Limits::default() };
            reply_with(&raw, to_head, limits);
        }

        #[test]
        fn noise_does_not_panic(raw in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..8) {
            let start = &b"HTTP/1.1"[..at];
            reply_with(&[start, &raw].concat(), false, Limits::default());
        }

        #[test]
        fn endless_noise_in_a_head_ends_within_the_limits(line in "[ -~]{0,40}\r?\n") {
            let mut reader = ResponseReader::new(false, Limits::default());
            let mut taken = 0;
            let mut input = &b"HTTP/1.1 200 OK\r\n"[..];
            let _ = reader.next(&mut input);
            while taken < 2 * Limits::default().head_bytes_max {
                let mut input = line.as_bytes();
                taken += input.len();
                match reader.next(&mut input) {
                    Ok(None) => {}
                    // An empty line ended the head.
                    Ok(Some(_)) => return Ok(()),
                    Err(error) => {
                        prop_assert_eq!(error.class(), ErrorClass::TooLarge);
                        return Ok(());
                    }
                }
            }
            prop_assert!(false, "an endless head was accepted");
        }
    }
}
