//! As much HTTP/1.1 as a server of the demo web speaks (RFC 9112).

/// A request's head; the demo web takes no bodies.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether only the reply's head is wanted.
    pub head: bool,
    /// The path, without a query.
    pub path: String,
    /// The host in lower case, without its port.
    pub host: String,
    /// Whether the client unpacks gzip.
    pub gzip: bool,
    /// Whether the connection ends with this exchange.
    pub close: bool,
}

impl Request {
    /// What a reply goes by when nothing could be read of the request: a body, then the end.
    pub fn unreadable() -> Request {
        Request {
            head: false,
            path: String::new(),
            host: String::new(),
            gzip: false,
            close: true,
        }
    }
}

/// What has arrived on a connection so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The head has not ended yet.
    Partial,
    /// A request, and how many bytes it took.
    Request(Request, usize),
    /// Not a request that can be answered.
    Bad,
}

/// Reads the first request of `input`.
pub fn parse(input: &[u8]) -> Parsed {
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match input.len() {
            HEAD_MAX.. => Parsed::Bad,
            _ => Parsed::Partial,
        };
    };
    match std::str::from_utf8(&input[..end]).ok().and_then(request) {
        Some(request) => Parsed::Request(request, end + 4),
        None => Parsed::Bad,
    }
}

fn request(head: &str) -> Option<Request> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let head = match words.next()? {
        "GET" => false,
        "HEAD" => true,
        _ => return None,
    };
    let target = words.next()?;
    let old = words.next()? == "HTTP/1.0";
    let mut request = Request {
        head,
        path: target.split('?').next()?.to_owned(),
        host: String::new(),
        gzip: false,
        close: old,
    };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "host" => request.host = value.split(':').next()?.to_owned(),
            "accept-encoding" => request.gzip = value.contains("gzip"),
            "connection" => request.close = value.contains("close"),
            _ => {}
        }
    }
    Some(request)
}

/// A reply before it is written out.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Headers beside those that say where the body ends.
    pub headers: Vec<(&'static str, String)>,
    /// The body as it is sent.
    pub body: Vec<u8>,
    /// Whether the body goes in chunks, its length unsaid.
    pub chunked: bool,
}

impl Reply {
    /// The reply to `request` as octets.
    pub fn to_bytes(&self, request: &Request) -> Vec<u8> {
        let reason = REASONS.iter().find(|(status, _)| *status == self.status);
        let reason = reason.map_or("Unnamed", |(_, reason)| reason);
        let mut text = format!("HTTP/1.1 {} {reason}\r\n", self.status);
        let framing = if self.chunked {
            ("Transfer-Encoding", "chunked".to_owned())
        } else {
            ("Content-Length", self.body.len().to_string())
        };
        let closing = request.close.then(|| ("Connection", "close".to_owned()));
        for (name, value) in self.headers.iter().chain([&framing]).chain(&closing) {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        let mut bytes = text.into_bytes();
        if request.head {
            return bytes;
        }
        if !self.chunked {
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

const REASONS: &[(u16, &str)] = &[
    (200, "OK"),
    (301, "Moved Permanently"),
    (302, "Found"),
    (400, "Bad Request"),
    (404, "Not Found"),
    (429, "Too Many Requests"),
    (500, "Internal Server Error"),
    (503, "Service Unavailable"),
];
/// More than a polite client's head, less than a hostile one's.
const HEAD_MAX: usize = 16 * 1024;
/// Small enough that most pages take several.
const CHUNK: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"GET /a?b=c HTTP/1.1\r\nHost: Site-0001.test:8080\r\n\
        Accept-Encoding: gzip, br\r\nConnection: close\r\n\r\nrest";

    #[test]
    fn a_head_is_read_when_it_has_ended_and_not_before() {
        let end = WHOLE.len() - 4;
        for cut in 0..end {
            assert_eq!(parse(&WHOLE[..cut]), Parsed::Partial);
        }
        let request = Request {
            head: false,
            path: "/a".into(),
            host: "site-0001.test".into(),
            gzip: true,
            close: true,
        };
        assert_eq!(parse(WHOLE), Parsed::Request(request, end));
    }

    #[test]
    fn what_cannot_be_answered_is_bad() {
        assert_eq!(parse(b"POST / HTTP/1.1\r\n\r\n"), Parsed::Bad);
        assert_eq!(parse(b"GET / HTTP/1.1\r\nno colon\r\n\r\n"), Parsed::Bad);
        assert_eq!(parse(b"\xff\r\n\r\n"), Parsed::Bad);
        assert_eq!(parse(&vec![b'a'; HEAD_MAX]), Parsed::Bad);
    }

    #[test]
    fn a_chunked_reply_says_where_it_ends_by_its_last_chunk() {
        let reply = Reply {
            status: 200,
            body: vec![b'x'; CHUNK + 1],
            chunked: true,
            ..Reply::default()
        };
        let Parsed::Request(request, _) = parse(WHOLE) else {
            panic!("a request")
        };
        let bytes = reply.to_bytes(&request);
        let text = String::from_utf8(bytes).expect("ASCII");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"));
        assert!(text.contains("\r\n\r\n3e8\r\nxxx"));
        assert!(text.ends_with("\r\n1\r\nx\r\n0\r\n\r\n"));
    }
}
