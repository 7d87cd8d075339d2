//! Just enough of HTTP/1.1 to tell requests apart and to reply, well or badly.

use std::collections::VecDeque;
use std::time::Duration;

/// Longer heads and bodies than this are not read: no crawler sends them.
const REQUEST_MAX: usize = 64 * 1024;

/// A request as it was read.
#[derive(Debug, Default)]
pub struct Request {
    pub target: String,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    /// The connection must end after the reply.
    pub last: bool,
}

impl Request {
    /// Takes a whole request off the front of what has come. `None`: more must come.
    ///
    /// # Errors
    /// It is too long, or no request at all.
    pub fn take(input: &mut Vec<u8>) -> Result<Option<Self>, ()> {
        let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if input.len() > REQUEST_MAX {
                Err(())
            } else {
                Ok(None)
            };
        };
        let head = std::str::from_utf8(&input[..end]).map_err(drop)?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or("").split(' ');
        let (Some(_), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(());
        };
        let mut request = Request {
            target: target.to_owned(),
            headers: Vec::new(),
            last: version == "HTTP/1.0",
        };
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(())?;
            let name = name.to_ascii_lowercase();
            request.headers.push((name, value.trim().to_owned()));
        }
        if let Some(connection) = request.header("connection") {
            request.last = connection.eq_ignore_ascii_case("close")
                || request.last && !connection.eq_ignore_ascii_case("keep-alive");
        }
        let body = match request.header("content-length") {
            Some(length) => length.parse::<usize>().map_err(drop)?,
            None => 0,
        };
        if body > REQUEST_MAX {
            return Err(());
        }
        let whole = end + 4 + body;
        if input.len() < whole {
            return Ok(None);
        }
        input.drain(..whole);
        Ok(Some(request))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(other, _)| other == name)?;
        Some(value)
    }

    /// The host without its port.
    pub fn host(&self) -> &str {
        let host = self.header("host").unwrap_or("");
        host.rsplit_once(':').map_or(host, |(name, _)| name)
    }
}

/// What a server does, and how long after the step before, or after the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub after: Duration,
    pub act: Act,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Send(Vec<u8>),
    Close,
    Reset,
    /// Nothing more happens until the client goes away.
    Hang,
}

/// A reply: the steps that it takes.
pub type Steps = VecDeque<Step>;

/// The bytes of a reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// Its head, declaring the whole body or that it comes in chunks.
    pub fn head(&self, chunked: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        if chunked {
            head += "Transfer-Encoding: chunked\r\n\r\n";
        } else {
            head += &format!("Content-Length: {}\r\n\r\n", self.body.len());
        }
        head.into_bytes()
    }

    /// Head and body in one piece.
    pub fn whole(&self) -> Vec<u8> {
        let mut bytes = self.head(false);
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Other",
    }
}

/// `%41` as `A`; what is no escape stays as it is.
pub fn unescaped(text: &str) -> String {
    let text = text.as_bytes();
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 3).filter(|_| text[at] == b'%');
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                at += 3;
            }
            None => {
                bytes.push(text[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"GET /1 HTTP/1.1\r\nHost: a.test:80\r\nX: y\r\n\r\n\
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
            assert_eq!((first.target.as_str(), first.host()), ("/1", "a.test"));
            assert_eq!((second.target.as_str(), second.host()), ("/2", "b"));
            assert!(!first.last && second.last && input.is_empty());
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for wrong in ["GET /\r\n\r\n", "GET / HTTP/1.1\r\nno field\r\n\r\n"] {
            assert!(Request::take(&mut wrong.as_bytes().to_vec()).is_err());
        }
        assert!(Request::take(&mut vec![b'x'; REQUEST_MAX + 1]).is_err());
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescaped("http%3A%2F%2Fa%"), "http://a%");
    }
}
