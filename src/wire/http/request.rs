//! Writes requests, and rejects anything that could smuggle in other fields or requests.
//!
//! Hand-written: a request is a few lines of text. Fields are sent in the order in which the user named
//! them, which a map of fields does not keep, and those of every request are encoded once.

use std::fmt::Write as _;
use std::mem::replace;

use crate::base::sentence::debug_as_sentence;
use crate::wire::octets::{DELETE, any, below, equal, value_length};

/// The parts of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method, a token.
    pub method: &'a str,
    /// The request target: path and query, or the absolute form for a proxy. A fragment is never
    /// sent (RFC 9110 section 4.2.5): it is removed here at the latest. Empty means `/`.
    pub target: &'a str,
    /// The value of Host: the name, and the port unless it is the scheme's default.
    pub host: &'a str,
    /// The value of Proxy-Authorization; omitted if empty. Only for a proxy that receives this
    /// request itself.
    pub proxy_authorization: &'a str,
    /// Fields of every request, in order, after those above.
    pub usual: &'a UsualFields,
    /// This request's own fields, in order, after those above. They replace fields above with the
    /// same name.
    pub headers: &'a [(String, String)],
    /// Size of the body that follows. With `None` there is no body, and Content-Length is sent only
    /// for methods that expect a body: POST, PUT and PATCH send 0 (RFC 9110 section 8.6).
    pub body_bytes: Option<u64>,
}

/// The fields of every request, validated and encoded once; each head gets a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsualFields {
    fields: Vec<(String, String)>,
    /// All of them, encoded.
    lines: Vec<u8>,
    /// One of them replaces Host.
    name_host: bool,
}

impl UsualFields {
    /// Our fields in order, without empty ones, then the others in order. One of the others with
    /// the name of one of ours, or of Host, replaces it.
    ///
    /// # Errors
    /// The field errors of [`write_request`].
    pub fn new(ours: &[(&str, &str)], others: &[(String, String)]) -> Result<Self, RequestError> {
        let ours = ours
            .iter()
            .filter(|(name, value)| !value.is_empty() && !contains_name(others, name))
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let fields: Vec<(String, String)> = ours.chain(others.iter().cloned()).collect();
        let mut lines = Vec::new();
        check_fields(&fields)?;
        for (name, value) in &fields {
            write_field(&mut lines, name, value);
        }
        Ok(UsualFields {
            name_host: contains_name(&fields, "Host"),
            fields,
            lines,
        })
    }

    /// Encoded size in bytes.
    pub(crate) fn length(&self) -> usize {
        self.lines.len()
    }
}

/// Why a request was not written. A mistake of this program or its user, never of the web.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The method is not a token.
    #[error("the method {0:?} is not a token")]
    Method(String),
    /// CONNECT asks a proxy for a tunnel; it is not a request to an origin.
    #[error("CONNECT is not a request to an origin; use the setting PROXY for tunnels")]
    Connect,
    /// The target contains white space, a control character, or non-ASCII bytes.
    #[error("the request target {0:?} contains a character that must be percent-encoded")]
    Target(String),
    /// A field name is not a token.
    #[error("the header name {0:?} is not a token")]
    HeaderName(String),
    /// A field value contains CR, LF, NUL or another control character.
    #[error("the value of header {0:?} contains a control character")]
    HeaderValue(String),
    /// Content-Length and Transfer-Encoding follow from the body and cannot be set.
    #[error("the header {0:?} follows from the body and cannot be set")]
    Framing(String),
    /// Fields about the connection to the next hop are set by this crate: Connection, TE, Trailer,
    /// Upgrade.
    #[error("the header {0:?} is about the connection and cannot be set")]
    Connection(String),
    /// A Host set by the caller is empty, or not the only one (RFC 9112 section 3.2).
    #[error("Host must be sent once and must not be empty")]
    Host,
    /// Proxy-Authorization follows from the proxy: if set by hand, it would be sent to origins.
    #[error("the header {0:?} follows from the proxy; put user and password into its URL")]
    Proxy(String),
}

debug_as_sentence!(RequestError);

impl RequestError {
    /// Stable error code.
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

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// Appends a request's head to `out` (RFC 9112 section 3): Host, the usual fields, its own,
/// Content-Length. The caller adds the body.
///
/// # Errors
/// Anything that could turn one field into two, or let a server see another request than we do.
/// `out` is then unchanged.
pub fn write_request(out: &mut Vec<u8>, request: &RequestHead<'_>) -> Result<(), RequestError> {
    let target = match request.checked()? {
        "" => "/",
        target => target,
    };
    for part in [request.method, " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let (usual, headers) = (request.usual, request.headers);
    // An empty Host is sent: RFC 9112 section 3.2 requires the field.
    if !usual.name_host && !contains_name(headers, "Host") {
        write_field(out, "Host", request.host);
    }
    if !request.proxy_authorization.is_empty() {
        write_field(out, "Proxy-Authorization", request.proxy_authorization);
    }
    if headers.is_empty() {
        out.extend_from_slice(&usual.lines);
    } else {
        let usual = usual.fields.iter();
        let usual = usual.filter(|(name, _)| !contains_name(headers, name));
        for (name, value) in usual.chain(headers) {
            write_field(out, name, value);
        }
    }
    let means_a_body = ["POST", "PUT", "PATCH"].contains(&request.method);
    if let Some(bytes) = request.body_bytes.or(means_a_body.then_some(0)) {
        let mut digits = String::new();
        let _ = write!(digits, "{bytes}");
        write_field(out, "Content-Length", &digits);
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

impl<'a> RequestHead<'a> {
    /// Checks that [`write_request`] would write it.
    ///
    /// # Errors
    /// Those of [`write_request`].
    pub fn check(&self) -> Result<(), RequestError> {
        self.checked().map(drop)
    }

    /// The same; returns the target without its fragment.
    fn checked(&self) -> Result<&'a str, RequestError> {
        if !is_token(self.method) {
            return Err(RequestError::Method(self.method.to_owned()));
        }
        if self.method == "CONNECT" {
            return Err(RequestError::Connect);
        }
        let mut target = self.target;
        let not_graphic = |word| below(word, b'!') | equal(word, DELETE) | word;
        if any(target.as_bytes(), |word| {
            not_graphic(word) | equal(word, b'#')
        }) {
            target = target.split('#').next().unwrap_or_default();
            if any(target.as_bytes(), not_graphic) {
                return Err(RequestError::Target(self.target.to_owned()));
            }
        }
        check_value("Host", self.host)?;
        if !self.proxy_authorization.is_empty() {
            check_value("Proxy-Authorization", self.proxy_authorization)?;
        }
        check_fields(self.headers)?;
        Ok(target)
    }
}

/// Returns whether one of these fields has this name.
fn contains_name(fields: &[(String, String)], name: &str) -> bool {
    let mut fields = fields.iter();
    fields.any(|(other, _)| other.eq_ignore_ascii_case(name))
}

/// Checks that these fields may be set by the caller.
fn check_fields(fields: &[(String, String)]) -> Result<(), RequestError> {
    let mut has_host = false;
    for (name, value) in fields {
        check_field(name, value)?;
        if name.eq_ignore_ascii_case("host") && replace(&mut has_host, true) {
            return Err(RequestError::Host);
        }
    }
    Ok(())
}

/// Checks that a field may be set by the caller.
fn check_field(name: &str, value: &str) -> Result<(), RequestError> {
    let is_one_of = |ours: &[&str]| ours.iter().any(|ours| ours.eq_ignore_ascii_case(name));
    if is_one_of(&["content-length", "transfer-encoding"]) {
        return Err(RequestError::Framing(name.to_owned()));
    }
    if is_one_of(&["connection", "te", "trailer", "upgrade"]) {
        return Err(RequestError::Connection(name.to_owned()));
    }
    if is_one_of(&["proxy-authorization"]) {
        return Err(RequestError::Proxy(name.to_owned()));
    }
    if is_one_of(&["host"]) && value.trim_ascii().is_empty() {
        return Err(RequestError::Host);
    }
    if !is_token(name) {
        return Err(RequestError::HeaderName(name.to_owned()));
    }
    check_value(name, value)
}

fn check_value(name: &str, value: &str) -> Result<(), RequestError> {
    let is_control = |word| below(word, b' ') | equal(word, DELETE);
    // A tab is a control character but allowed.
    if any(value.as_bytes(), is_control) && value_length(value.as_bytes()) < value.len() {
        return Err(RequestError::HeaderValue(name.to_owned()));
    }
    Ok(())
}

/// Writes a validated field.
fn write_field(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value.trim_ascii(), "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// RFC 9110 section 5.6.2.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| IS_TOKEN[usize::from(byte)])
}

/// The bytes allowed in a token; a table because it is used for every letter of every field name.
pub(super) const IS_TOKEN: [bool; 256] = {
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
            usual: &NONE,
            headers: &[],
            body_bytes: None,
        }
    }

    static NONE: UsualFields = UsualFields {
        fields: Vec::new(),
        lines: Vec::new(),
        name_host: false,
    };

    /// The fields of a crawl, and these.
    fn usual(others: &[(&str, &str)]) -> Result<UsualFields, RequestError> {
        let ours = [
            ("User-Agent", "spider/1"),
            ("Accept", "*/*"),
            ("Accept-Encoding", "gzip"),
            ("X-Empty", ""),
        ];
        UsualFields::new(&ours, &fields(others))
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
                usual: &usual(&[]).unwrap(),
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
    fn a_proxys_credentials_precede_the_other_fields() {
        check(
            &RequestHead {
                target: "http://a.test:8080/a?b#c",
                proxy_authorization: "Basic eDp5",
                usual: &usual(&[]).unwrap(),
                ..plain()
            },
            Ok(
                "GET http://a.test:8080/a?b HTTP/1.1\r\nHost: a.test:8080\r\n\
                Proxy-Authorization: Basic eDp5\r\nUser-Agent: spider/1\r\nAccept: */*\r\n\
                Accept-Encoding: gzip\r\n\r\n",
            ),
        );
    }

    #[test]
    fn a_field_of_the_caller_replaces_ours() {
        check(
            &RequestHead {
                usual: &usual(&[("X-Usual", "1")]).unwrap(),
                headers: &fields(&[("accept", "text/html"), ("USER-AGENT", "me")]),
                ..plain()
            },
            Ok(
                "GET /a?b HTTP/1.1\r\nHost: a.test:8080\r\nAccept-Encoding: gzip\r\nX-Usual: 1\r\n\
                accept: text/html\r\nUSER-AGENT: me\r\n\r\n",
            ),
        );
    }

    #[test]
    fn usual_fields_replace_ours_and_are_replaced_by_the_requests_own() {
        let usual = usual(&[("accept", "b"), ("host", "c.test"), ("x-d", " e ")]).unwrap();
        let before = "GET /a?b HTTP/1.1\r\nUser-Agent: spider/1\r\nAccept-Encoding: gzip\r\n";
        let check_with = |headers: &[(&str, &str)], expected: &str| {
            check(
                &RequestHead {
                    usual: &usual,
                    headers: &fields(headers),
                    ..plain()
                },
                Ok(&format!("{before}{expected}\r\n")),
            );
        };
        check_with(&[], "accept: b\r\nhost: c.test\r\nx-d: e\r\n");
        check_with(&[("X-D", "f")], "accept: b\r\nhost: c.test\r\nX-D: f\r\n");
        check_with(&[("Host", "g")], "accept: b\r\nx-d: e\r\nHost: g\r\n");
    }

    #[test]
    fn a_fragment_is_never_sent() {
        for target in ["#top", "", "/#a#b"] {
            check(
                &RequestHead { target, ..plain() },
                Ok("GET / HTTP/1.1\r\nHost: a.test:8080\r\n\r\n"),
            );
        }
    }

    #[test]
    fn fields_with_forbidden_names_or_values_are_rejected() {
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
                    headers: &fields(&[(name, "Basic eDp5")]),
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
    fn a_method_that_expects_a_body_sends_content_length_zero() {
        for method in ["POST", "PUT", "PATCH", "GET", "DELETE", "OPTIONS"] {
            let length = match method {
                "POST" | "PUT" | "PATCH" => "Content-Length: 0\r\n",
                _ => "",
            };
            let expected = format!("{method} /a?b HTTP/1.1\r\nHost: a.test:8080\r\n{length}\r\n");
            check(&RequestHead { method, ..plain() }, Ok(&expected));
        }
    }

    #[test]
    fn usual_fields_with_forbidden_names_or_values_are_rejected() {
        let check = |name: &str, value: &str, expected: RequestError| {
            assert_eq!(usual(&[(name, value)]), Err(expected));
        };
        check(
            "X-A",
            "a\r\nX: y",
            RequestError::HeaderValue("X-A".to_owned()),
        );
        check("a b", "v", RequestError::HeaderName("a b".to_owned()));
        check("dnt", "a\n", RequestError::HeaderValue("dnt".to_owned()));
        let name = "Proxy-Authorization";
        check(name, "Basic eDp5", RequestError::Proxy(name.to_owned()));
        let name = "content-length";
        check(name, "5", RequestError::Framing(name.to_owned()));
    }
}
