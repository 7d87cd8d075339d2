//! Replies in every cut, and every limit.

use super::*;

/// All items, the pieces of a body joined, and how it ended.
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

/// Reads a reply that comes in these pieces; then the connection ends.
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
                    assert_eq!(reader.next(&mut input), Err(error), "an error stays");
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
            other => panic!("only an end ends a reply: {other:?}"),
        });
    }
    if broken {
        // How far into a piece an error was found is nobody's business.
        reply.left = 0;
    }
    reply
}

/// The reply, the same in every cut: whole, in two at each place, and byte by byte.
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

/// A reply that ends well: status, body, framing, and whether the connection may be reused.
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
