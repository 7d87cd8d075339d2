//! Requests as they leave: exactly what was asked for, and nothing smuggled in.

use std::fmt::Write as _;
use std::mem::replace;

/// Everything that stands in a request's head.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method, a token.
    pub method: &'a str,
    /// The request target: path and query, or the absolute form for a proxy. A fragment is never
    /// sent (RFC 9110 section 4.2.5): it is cut off here at the latest. Empty means `/`.
    pub target: &'a str,
    /// The value of Host: the name, and the port where it is not the scheme's own.
    pub host: &'a str,
    /// The value of Proxy-Authorization; empty leaves it out. For the proxy that takes this request
    /// alone.
    pub proxy_authorization: &'a str,
    /// The value of User-Agent; empty leaves it out.
    pub user_agent: &'a str,
    /// The value of Accept; empty leaves it out.
    pub accept: &'a str,
    /// The value of Accept-Encoding; empty leaves it out.
    pub accept_encoding: &'a str,
    /// Fields that every request has, in order, after those above. One that bears the name of one
    /// above takes its place.
    pub usual: &'a [(String, String)],
    /// This one's own fields, in order, after those above. One that bears the name of one above
    /// takes its place.
    pub headers: &'a [(String, String)],
    /// Bytes of the body that follows. With `None` there is none, and no Content-Length but for the
    /// methods that have a meaning for one: POST, PUT and PATCH say that it is 0 (RFC 9110 section 8.6).
    pub body_bytes: Option<u64>,
}

/// Why a request was not written. Ours or the user's mistake, never the web's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The method is no token.
    #[error("the method {0:?} is no token")]
    Method(String),
    /// CONNECT asks a proxy for a tunnel, and no origin for anything.
    #[error("CONNECT is no request to an origin; the setting PROXY makes tunnels")]
    Connect,
    /// The target holds white space, a control character, or bytes beyond ASCII.
    #[error("the request target {0:?} holds a character that must be encoded")]
    Target(String),
    /// A field name is no token.
    #[error("the header name {0:?} is no token")]
    HeaderName(String),
    /// A field value holds CR, LF, NUL or another control character.
    #[error("the value of header {0:?} holds a control character")]
    HeaderValue(String),
    /// Content-Length and Transfer-Encoding follow from the body; they cannot be set by hand.
    #[error("the header {0:?} follows from the body and cannot be set")]
    Framing(String),
    /// What is said to the next hop about the connection is ours: Connection, TE, Trailer, Upgrade.
    #[error("the header {0:?} is about the connection and cannot be set")]
    Connection(String),
    /// A Host of the caller's is empty, or not the only one (RFC 9112 section 3.2).
    #[error("Host is sent once, and is not empty")]
    Host,
    /// Proxy-Authorization follows from the proxy: set by hand, it would reach origins.
    #[error("the header {0:?} follows from the proxy, whose URL may hold user and password")]
    Proxy(String),
}

impl RequestError {
    /// The stable name.
    pub const fn code(&self) -> &'static str {
        match self {
            RequestError::Method(_) => "method",
            RequestError::Target(_) => "target",
            RequestError::HeaderName(_) => "header_name",
            RequestError::HeaderValue(_) => "header_value",
            RequestError::Framing(_) => "framing",
            RequestError::Connection(_) => "connection",
            RequestError::Proxy(_) => "proxy",
            RequestError::Host => "host",
            RequestError::Connect => "connect",
        }
    }

    /// Whether another try may end otherwise: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// Appends a request's head to `out` (RFC 9112 section 3): Host, User-Agent, Accept,
/// Accept-Encoding, the usual fields, its own, Content-Length. The body is the caller's to add.
///
/// # Errors
/// Anything that would let one field become two, or a reader see another request than we do.
/// `out` is then as it was.
pub fn write_request(out: &mut Vec<u8>, request: &RequestHead<'_>) -> Result<(), RequestError> {
    let begin = out.len();
    write_all(out, request).inspect_err(|_| out.truncate(begin))
}

fn write_all(out: &mut Vec<u8>, request: &RequestHead<'_>) -> Result<(), RequestError> {
    if !is_token(request.method) {
        return Err(RequestError::Method(request.method.to_owned()));
    }
    if request.method == "CONNECT" {
        return Err(RequestError::Connect);
    }
    let target = request.target.split('#').next().unwrap_or_default();
    // All octets are looked at, which is quicker than to stop at the first that is wrong.
    let is_wrong = |wrong: bool, byte: u8| wrong | !byte.is_ascii_graphic();
    if target.bytes().fold(false, is_wrong) {
        return Err(RequestError::Target(request.target.to_owned()));
    }
    let target = if target.is_empty() { "/" } else { target };
    for part in [request.method, " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in [
        ("Host", request.host),
        ("Proxy-Authorization", request.proxy_authorization),
        ("User-Agent", request.user_agent),
        ("Accept", request.accept),
        ("Accept-Encoding", request.accept_encoding),
    ] {
        let replaced = bears(request.usual, name) || bears(request.headers, name);
        // An empty Host is sent: RFC 9112 section 3.2 demands the field.
        if !replaced && (!value.is_empty() || name == "Host") {
            write_value(out, name, value)?;
        }
    }
    let usual = request.usual.iter();
    let usual = usual.filter(|(name, _)| !bears(request.headers, name));
    let mut has_host = false;
    for (name, value) in usual.chain(request.headers) {
        let is_one_of = |ours: &[&str]| ours.iter().any(|ours| ours.eq_ignore_ascii_case(name));
        if is_one_of(&["content-length", "transfer-encoding"]) {
            return Err(RequestError::Framing(name.clone()));
        }
        if is_one_of(&["connection", "te", "trailer", "upgrade"]) {
            return Err(RequestError::Connection(name.clone()));
        }
        if is_one_of(&["proxy-authorization"]) {
            return Err(RequestError::Proxy(name.clone()));
        }
        if is_one_of(&["host"]) && (value.trim_ascii().is_empty() || replace(&mut has_host, true)) {
            return Err(RequestError::Host);
        }
        write_field(out, name, value)?;
    }
    let means_a_body = ["POST", "PUT", "PATCH"].contains(&request.method);
    if let Some(bytes) = request.body_bytes.or(means_a_body.then_some(0)) {
        let mut digits = String::new();
        let _ = write!(digits, "{bytes}");
        write_value(out, "Content-Length", &digits)?;
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Whether one of these fields has this name.
fn bears(fields: &[(String, String)], name: &str) -> bool {
    let mut fields = fields.iter();
    fields.any(|(other, _)| other.eq_ignore_ascii_case(name))
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &str) -> Result<(), RequestError> {
    if !is_token(name) {
        return Err(RequestError::HeaderName(name.to_owned()));
    }
    write_value(out, name, value)
}

/// Writes a field whose name is known to be a token.
fn write_value(out: &mut Vec<u8>, name: &str, value: &str) -> Result<(), RequestError> {
    let is_wrong = |wrong: bool, byte: u8| wrong | (byte.is_ascii_control() & (byte != b'\t'));
    if value.bytes().fold(false, is_wrong) {
        return Err(RequestError::HeaderValue(name.to_owned()));
    }
    for part in [name, ": ", value.trim_ascii(), "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    Ok(())
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| IS_TOKEN[usize::from(byte)])
}

/// Which octets may stand in a token: looked up for every letter of every field that leaves.
const IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> RequestHead<'static> {
        RequestHead {
            method: "GET",
            target: "/a?b",
            host: "a.test:8080",
            proxy_authorization: "",
            user_agent: "spider/1",
            accept: "*/*",
            accept_encoding: "gzip",
            usual: &[],
            headers: &[],
            body_bytes: None,
        }
    }

    fn check(request: &RequestHead<'_>, expected: Result<&str, RequestError>) {
        let mut out = b"before".to_vec();
        let result = write_request(&mut out, request);
        let written = std::str::from_utf8(&out).unwrap();
        let written = written.strip_prefix("before").expect("appended");
        assert_eq!(
            result.map(|()| written.to_owned()),
            expected.map(str::to_owned)
        );
        if written.is_empty() {
            assert_eq!(out, b"before");
        }
    }

    fn fields(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_request_is_written_in_one_fixed_order() {
        check(
            &RequestHead {
                headers: &fields(&[("X-One", "1"), ("x-two", " 2 ")]),
                body_bytes: Some(3),
                ..plain()
            },
            Ok(
                "GET /a?b HTTP/1.1\r\nHost: a.test:8080\r\nUser-Agent: spider/1\r\nAccept: */*\r\n\
                Accept-Encoding: gzip\r\nX-One: 1\r\nx-two: 2\r\nContent-Length: 3\r\n\r\n",
            ),
        );
    }

    #[test]
    fn a_proxy_hears_who_asks_before_anything_else_of_it() {
        check(
            &RequestHead {
                target: "http://a.test:8080/a?b#c",
                proxy_authorization: "Basic eDp5",
                accept: "",
                accept_encoding: "",
                user_agent: "",
                ..plain()
            },
            Ok(
                "GET http://a.test:8080/a?b HTTP/1.1\r\nHost: a.test:8080\r\n\
                Proxy-Authorization: Basic eDp5\r\n\r\n",
            ),
        );
    }

    #[test]
    fn a_field_of_the_callers_takes_the_place_of_ours() {
        check(
            &RequestHead {
                headers: &fields(&[("accept", "text/html"), ("USER-AGENT", "me")]),
                ..plain()
            },
            Ok(
                "GET /a?b HTTP/1.1\r\nHost: a.test:8080\r\nAccept-Encoding: gzip\r\n\
                accept: text/html\r\nUSER-AGENT: me\r\n\r\n",
            ),
        );
    }

    #[test]
    fn a_fragment_is_never_sent() {
        for target in ["#top", "", "/#a#b"] {
            check(
                &RequestHead {
                    target,
                    accept: "",
                    accept_encoding: "",
                    user_agent: "",
                    ..plain()
                },
                Ok("GET / HTTP/1.1\r\nHost: a.test:8080\r\n\r\n"),
            );
        }
    }

    #[test]
    fn nothing_is_smuggled_into_a_request() {
        for value in ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "a\x7f"] {
            check(
                &RequestHead {
                    headers: &fields(&[("X-A", value)]),
                    ..plain()
                },
                Err(RequestError::HeaderValue("X-A".to_owned())),
            );
            check(
                &RequestHead {
                    host: value,
                    ..plain()
                },
                Err(RequestError::HeaderValue("Host".to_owned())),
            );
        }
        for name in ["", "a b", "a:", "a\r\nb", "ä"] {
            check(
                &RequestHead {
                    headers: &fields(&[(name, "v")]),
                    ..plain()
                },
                Err(RequestError::HeaderName(name.to_owned())),
            );
        }
        for target in ["/a b", "/a\r\nHost: b", "/ä", "/\0"] {
            check(
                &RequestHead { target, ..plain() },
                Err(RequestError::Target(target.to_owned())),
            );
        }
        for method in ["", "GET ", "G\r\n"] {
            check(
                &RequestHead { method, ..plain() },
                Err(RequestError::Method(method.to_owned())),
            );
        }
        for name in ["Proxy-Authorization", "proxy-authorization"] {
            check(
                &RequestHead {
                    usual: &fields(&[(name, "Basic eDp5")]),
                    ..plain()
                },
                Err(RequestError::Proxy(name.to_owned())),
            );
        }
        for name in ["Content-Length", "transfer-encoding"] {
            check(
                &RequestHead {
                    headers: &fields(&[(name, "5")]),
                    ..plain()
                },
                Err(RequestError::Framing(name.to_owned())),
            );
        }
        for name in ["Connection", "te", "Trailer", "UPGRADE"] {
            check(
                &RequestHead {
                    headers: &fields(&[(name, "close")]),
                    ..plain()
                },
                Err(RequestError::Connection(name.to_owned())),
            );
        }
        for hosts in [
            &[("Host", "a.test"), ("host", "b.test")][..],
            &[("Host", "")],
            &[("host", " ")],
        ] {
            check(
                &RequestHead {
                    headers: &fields(hosts),
                    ..plain()
                },
                Err(RequestError::Host),
            );
        }
        check(
            &RequestHead {
                method: "CONNECT",
                ..plain()
            },
            Err(RequestError::Connect),
        );
    }

    #[test]
    fn a_method_that_means_a_body_says_that_there_is_none() {
        for method in ["POST", "PUT", "PATCH", "GET", "DELETE", "OPTIONS"] {
            let length = match method {
                "POST" | "PUT" | "PATCH" => "Content-Length: 0\r\n",
                _ => "",
            };
            let expected = format!("{method} /a?b HTTP/1.1\r\nHost: a.test:8080\r\n{length}\r\n");
            check(
                &RequestHead {
                    method,
                    accept: "",
                    accept_encoding: "",
                    user_agent: "",
                    ..plain()
                },
                Ok(&expected),
            );
        }
    }
}
