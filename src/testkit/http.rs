//! HTTP/1.1 as a server reads and writes it (RFC 9112), well or badly.
//!
//! Hand-written, and apart from the crawler's own reader: a test server must be able to break the rules, and
//! must not share the reader's errors.

use std::borrow::Cow;
use std::time::Duration;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method, as it was sent.
    pub method: String,
    /// The request's target: a path and a query, or a whole URL.
    pub target: String,
    /// The field `Host`, with its port if it has one.
    pub host: String,
    /// Names and values in their order.
    pub headers: Vec<(String, String)>,
    /// The head as text, from the method to the empty line, both included.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the client ends the connection with this exchange.
    pub is_last: bool,
}

/// The bytes are not a request, or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Request {
    /// Takes a whole request off the front of `input`; `None` if more must arrive first.
    pub fn take(input: &mut Vec<u8>) -> Result<Option<Request>, Malformed> {
        let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
            return match input.len() {
                HEAD_MAX.. => Err(Malformed),
                _ => Ok(None),
            };
        };
        let end = end + 4;
        let mut request = Request::of_head(String::from_utf8_lossy(&input[..end]).into_owned())?;
        let length = match request.header("Content-Length") {
            Some(length) => length.parse::<usize>().map_err(|_| Malformed)?,
            None => 0,
        };
        if length > BODY_MAX {
            return Err(Malformed);
        }
        if input.len() < end + length {
            return Ok(None);
        }
        request.body = input[end..end + length].to_vec();
        input.drain(..end + length);
        Ok(Some(request))
    }

    fn of_head(head: String) -> Result<Request, Malformed> {
        let mut lines = head.trim_end_matches("\r\n").split("\r\n");
        let mut words = lines.next().unwrap_or("").split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Malformed);
        };
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').ok_or(Malformed)?;
            Ok((name.to_owned(), value.trim().to_owned()))
        });
        let mut request = Request {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: headers.collect::<Result<_, _>>()?,
            ..Request::default()
        };
        let connection = request.header("Connection").unwrap_or("");
        request.is_last = match version {
            "HTTP/1.0" => !connection.eq_ignore_ascii_case("keep-alive"),
            _ => connection.eq_ignore_ascii_case("close"),
        };
        request.host = request.header("Host").unwrap_or("").to_owned();
        request.head = head;
        Ok(request)
    }

    /// The first value of a header, by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(other, _)| other.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or(&self.target)
    }

    /// The host without its port.
    pub fn host_name(&self) -> &str {
        let host = self.host.as_str();
        host.rsplit_once(':').map_or(host, |(name, _)| name)
    }
}

/// A status code and its reason phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    code: u16,
    reason: Cow<'static, str>,
}

impl From<u16> for Status {
    fn from(code: u16) -> Self {
        let reason = REASONS.iter().find(|(status, _)| *status == code);
        let reason = reason.map_or("Other", |(_, reason)| reason);
        Status {
            code,
            reason: reason.into(),
        }
    }
}

impl From<&'static str> for Status {
    /// From `429 Too Many Requests`.
    fn from(line: &'static str) -> Self {
        let (code, reason) = line.split_once(' ').unwrap_or((line, ""));
        Status {
            code: code.parse().expect("a status begins with its code"),
            reason: reason.into(),
        }
    }
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Reply {
    status: Status,
    headers: Vec<(Cow<'static, str>, String)>,
    /// The body as it is sent.
    pub body: Vec<u8>,
    /// Whether the body is sent in chunks, its length undeclared.
    pub is_chunked: bool,
    /// How long after the request it begins.
    pub after: Duration,
}

impl Reply {
    /// A reply without headers and body.
    pub fn new(status: impl Into<Status>) -> Reply {
        Reply {
            status: status.into(),
            headers: Vec::new(),
            body: Vec::new(),
            is_chunked: false,
            after: Duration::ZERO,
        }
    }

    /// An HTML page without a body: `429 Too Many Requests`.
    pub fn status(status: impl Into<Status>) -> Reply {
        Reply::new(status).field("Content-Type", "text/html")
    }

    /// An HTML page.
    pub fn page(body: impl AsRef<[u8]>) -> Reply {
        Reply::status(200).body(body)
    }

    /// A redirect to this URL.
    pub fn redirect(status: impl Into<Status>, to: &str) -> Reply {
        Reply::status(status).field("Location", to)
    }

    /// The same with one more header.
    pub fn field(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl std::fmt::Display,
    ) -> Reply {
        self.headers.push((name.into(), value.to_string()));
        self
    }

    /// The same with this body.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Reply {
        self.body = body.as_ref().to_vec();
        self
    }

    /// The same, so long after the request.
    pub fn after(mut self, after: Duration) -> Reply {
        self.after = after;
        self
    }

    /// The status code.
    pub fn code(&self) -> u16 {
        self.status.code
    }

    /// The head: the headers in their order, then the one that frames the body.
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status.code, self.status.reason);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &match self.is_chunked {
            true => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
            false => format!("Content-Length: {}\r\n\r\n", self.body.len()),
        };
        head.into_bytes()
    }

    /// Head and body.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        if !self.is_chunked {
            bytes.extend(&self.body);
            return bytes;
        }
        for chunk in self.body.chunks(CHUNK) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    }
}

/// One thing that a server does about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Does nothing for so long.
    Wait(Duration),
    /// Sends these bytes again and again, so long after each other, until the client goes or reads no
    /// more.
    Repeat(Vec<u8>, Duration),
    /// Does nothing until the client goes.
    Hang,
    /// Sends nothing more, and takes further requests.
    End,
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
}

/// A handler of requests.
pub trait Answer {
    /// The steps of the answer.
    fn into_steps(self, request: &Request) -> Vec<Step>;
}

impl Answer for Vec<Step> {
    fn into_steps(self, _request: &Request) -> Vec<Step> {
        self
    }
}

impl Answer for Reply {
    /// Of HEAD the head.
    fn into_steps(self, request: &Request) -> Vec<Step> {
        let bytes = match request.method == "HEAD" {
            true => self.head(),
            false => self.to_bytes(),
        };
        vec![Step::Wait(self.after), Step::Send(bytes)]
    }
}

const REASONS: &[(u16, &str)] = &[
    (200, "OK"),
    (301, "Moved Permanently"),
    (302, "Found"),
    (400, "Bad Request"),
    (403, "Forbidden"),
    (404, "Not Found"),
    (421, "Misdirected Request"),
    (429, "Too Many Requests"),
    (500, "Internal Server Error"),
    (502, "Bad Gateway"),
    (503, "Service Unavailable"),
    (504, "Gateway Timeout"),
];
/// No crawler sends a longer head.
const HEAD_MAX: usize = 64 * 1024;
/// No crawler sends a longer body.
const BODY_MAX: usize = 64 << 20;
/// Small enough that most pages take several.
const CHUNK: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"GET /1?x HTTP/1.1\r\nHost: a.test:80\r\nX: y\r\n\r\n\
        POST /2 HTTP/1.1\r\nhost: b\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";

    #[test]
    fn requests_are_the_same_however_they_are_cut() {
        for cut in 0..=TWO.len() {
            let mut input = Vec::new();
            let mut found = Vec::new();
            for part in [&TWO[..cut], &TWO[cut..]] {
                input.extend_from_slice(part);
                while let Some(request) = Request::take(&mut input).expect("both are well-formed") {
                    found.push(request);
                }
            }
            let [first, second] = &found[..] else {
                panic!("{} requests when cut at {cut}", found.len());
            };
            assert_eq!((first.path(), first.host_name()), ("/1", "a.test"));
            assert_eq!((first.header("x"), first.header("y")), (Some("y"), None));
            assert_eq!((second.path(), second.host_name()), ("/2", "b"));
            assert_eq!(
                (&second.method[..], &second.body[..]),
                ("POST", &b"abc"[..])
            );
            assert_eq!(
                [&first.head, &second.head]
                    .map(String::len)
                    .iter()
                    .sum::<usize>()
                    + 3,
                TWO.len()
            );
            assert!(!first.is_last && second.is_last && input.is_empty());
        }
    }

    #[test]
    fn a_client_of_http_1_0_keeps_its_connection_only_if_it_asks_to() {
        let check = |fields: &str, is_last| {
            let mut input = format!("GET / HTTP/1.0\r\n{fields}\r\n").into_bytes();
            let request = Request::take(&mut input)
                .expect("well-formed")
                .expect("whole");
            assert_eq!(request.is_last, is_last, "{fields}");
        };
        check("", true);
        check("Connection: keep-alive\r\n", false);
        check("Connection: close\r\n", true);
    }

    #[test]
    fn what_is_no_request_is_malformed() {
        for wrong in [
            &b"GET /\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nno field\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"\xff\r\n\r\n",
            &[b'x'; HEAD_MAX],
        ] {
            assert_eq!(Request::take(&mut wrong.to_vec()), Err(Malformed));
        }
    }

    #[test]
    fn a_chunked_reply_ends_with_its_last_chunk() {
        let mut reply = Reply::new(200).body(vec![b'x'; CHUNK + 1]);
        reply.is_chunked = true;
        let text = String::from_utf8(reply.to_bytes()).expect("ASCII");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"));
        assert!(text.contains("\r\n\r\n3e8\r\nxxx"));
        assert!(text.ends_with("\r\n1\r\nx\r\n0\r\n\r\n"));
    }

    #[test]
    fn a_reply_to_head_has_no_body() {
        let check = |method: &str, expected: &[u8]| {
            let request = Request {
                method: method.to_owned(),
                ..Request::default()
            };
            let reply = Reply::new("299 So").field("A", 1).body("body");
            let steps = reply.into_steps(&request);
            assert_eq!(steps[1], Step::Send(expected.to_vec()));
        };
        check(
            "HEAD",
            b"HTTP/1.1 299 So\r\nA: 1\r\nContent-Length: 4\r\n\r\n",
        );
        check(
            "GET",
            b"HTTP/1.1 299 So\r\nA: 1\r\nContent-Length: 4\r\n\r\nbody",
        );
    }
}
