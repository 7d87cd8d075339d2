//! A seeds line to a request and back: what a crawl starts from, and what it leaves unfinished.

use std::fmt;

use data_encoding::BASE64;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::frontier::request::Request;

/// Reads one line: a URL, a bare host, `rank,host`, or a JSON object. A blank line and one that
/// begins with `#` hold nothing.
///
/// URLs are looked at only as far as to tell them from mistakes; admission reads them in full.
///
/// # Errors
/// The line is none of these. The error says what is wrong and what to write instead; the caller
/// knows the file and the line's number.
pub fn parse_line(line: &str) -> Result<Option<Request>, SeedError> {
    // Files from Windows begin with a byte order mark.
    let line = line.trim_start_matches('\u{feff}').trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.starts_with('{') {
        return parse_object(line).map(Some);
    }
    let text = match line.split_once(',') {
        Some((rank, host)) if is_number(rank) => host.trim(),
        _ => line,
    };
    Ok(Some(Request::get(url_of(text)?)))
}

/// Writes a request as one line that [`parse_line`] reads as the same request, without line end.
///
/// `tag` is the caller's own and is not written.
pub fn to_line(request: &Request) -> String {
    let json =
        |request: &Request| serde_json::to_string(&Object::of(request)).expect("a request is JSON");
    let line = json(request);
    let says_only_url = line == json(&Request::get(request.url.as_str()));
    let stands_alone = request.url.starts_with("http")
        && !request.url.contains(char::is_whitespace)
        && url_of(&request.url).is_ok_and(|url| url == request.url);
    if says_only_url && stands_alone {
        return request.url.clone();
    }
    line
}

/// Why a line is no seed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    /// Neither a URL nor a host.
    #[error("{0:?} is neither a URL nor a host; write one like http://example.com/ or example.com")]
    NotAUrl(String),
    /// A URL that is not fetched by HTTP.
    #[error("{0:?} is not fetched by HTTP; URLs begin with http:// or https://")]
    Scheme(String),
    /// The line begins as a JSON object and is none, or not one of a seed.
    #[error("not a seed as JSON: {0}")]
    Json(String),
    /// A value of the object that no request can have.
    #[error("`{key}`: {what}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with its value, and what to write instead.
        what: String,
    },
}

/// The URL that a text stands for.
fn url_of(text: &str) -> Result<String, SeedError> {
    let not_a_url = || Err(SeedError::NotAUrl(shortened(text, 80)));
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        _ => (None, text),
    };
    if let Some(scheme) = scheme
        && !["http", "https"]
            .iter()
            .any(|http| scheme.eq_ignore_ascii_case(http))
    {
        return Err(SeedError::Scheme(shortened(text, 80)));
    }
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or("");
    match scheme {
        Some(_) if authority.is_empty() || authority.contains(char::is_whitespace) => not_a_url(),
        Some(_) => Ok(text.to_owned()),
        None if is_bare_host(authority) => Ok(format!("http://{text}")),
        None => not_a_url(),
    }
}

/// RFC 3986, 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// A host that nobody meant as something else: with a port perhaps, but without a user.
fn is_bare_host(authority: &str) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let named = |host: &str| {
        host.chars().any(|c| c.is_alphanumeric())
            && host
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ".-_%".contains(c) || is_idn(c))
    };
    let literal = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    port.is_none_or(|port| is_number(port) && port.parse::<u16>().is_ok())
        && match literal {
            Some(literal) => literal.parse::<std::net::Ipv6Addr>().is_ok(),
            None => named(host),
        }
}

fn is_idn(c: char) -> bool {
    !c.is_ascii() && !c.is_whitespace() && !c.is_control()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Enough of a text to find it again.
fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn parse_object(line: &str) -> Result<Request, SeedError> {
    let object: Object = serde_json::from_str(line).map_err(|error| {
        let told = error.to_string();
        // A seed is one line: of serde's "at line 1 column 7" only the column tells anything.
        SeedError::Json(shortened(&told, 300).replace(" at line 1 column ", " at column "))
    })?;
    let wrong = |key, what: String| Err(SeedError::Value { key, what });

    let method = object.method.unwrap_or_default();
    if !method.is_empty() && !is_token(&method) {
        return wrong(
            "method",
            format!("{method:?} is no HTTP method; write one like \"POST\""),
        );
    }
    let headers = object
        .headers
        .map_or_else(Vec::new, |Headers(headers)| headers);
    for (name, value) in &headers {
        if !is_token(name) {
            return wrong("headers", format!("{name:?} is no name of a header field"));
        }
        if value.contains(['\r', '\n', '\0']) {
            return wrong(
                "headers",
                format!("the value of {name:?} holds a line end or a NUL"),
            );
        }
    }
    let body = match object.body_b64 {
        None => Vec::new(),
        Some(text) => match BASE64.decode(text.as_bytes()) {
            Ok(body) => body,
            Err(error) => {
                return wrong("body_b64", format!("not base64 with its padding: {error}"));
            }
        },
    };
    let (scopes, scope_costs) = match object.scopes {
        None => (None, Vec::new()),
        Some(scopes) => (Some(scopes.names), scopes.costs),
    };
    if scopes.iter().flatten().any(String::is_empty) {
        return wrong("scopes", "a scope's name is empty".into());
    }
    if scope_costs
        .iter()
        .any(|cost| !cost.is_finite() || *cost < 0.0)
    {
        return wrong("scopes", "a cost is a number from 0 up".into());
    }
    Ok(Request {
        url: url_of(object.url.trim())?,
        method,
        headers,
        body,
        priority: object.priority,
        depth: object.depth,
        scopes,
        scope_costs,
        dont_adjust_delay: object.dont_adjust_delay,
        meta: object.meta,
        tag: 0,
    })
}

/// RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// A seeds line's JSON object, key by key as INTERFACE has them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Object {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<Scopes>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    depth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    headers: Option<Headers>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_b64: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    dont_adjust_delay: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
}

impl Object {
    fn of(request: &Request) -> Object {
        let Request {
            url,
            method,
            headers,
            body,
            priority,
            depth,
            scopes,
            scope_costs,
            dont_adjust_delay,
            meta,
            tag: _,
        } = request;
        Object {
            url: url.clone(),
            scopes: scopes.as_ref().map(|names| Scopes {
                names: names.clone(),
                costs: scope_costs.clone(),
            }),
            priority: *priority,
            depth: *depth,
            method: (!method.is_empty()).then(|| method.clone()),
            headers: (!headers.is_empty()).then(|| Headers(headers.clone())),
            body_b64: (!body.is_empty()).then(|| BASE64.encode(body)),
            dont_adjust_delay: *dont_adjust_delay,
            meta: meta.clone(),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A name, a list of names, or a map of names to costs, in the order they were written.
#[derive(Debug)]
struct Scopes {
    names: Vec<String>,
    costs: Vec<f64>,
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Scopes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`scopes` as a name, a list of names or a map of names to costs")
            }

            fn visit_str<E>(self, name: &str) -> Result<Scopes, E> {
                Ok(Scopes {
                    names: vec![name.to_owned()],
                    costs: Vec::new(),
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scopes, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Scopes {
                    names,
                    costs: Vec::new(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scopes, A::Error> {
                let (mut names, mut costs) = (Vec::<String>::new(), Vec::new());
                while let Some((name, cost)) = map.next_entry()? {
                    if names.contains(&name) {
                        return Err(A::Error::custom(format_args!(
                            "`scopes` names {name:?} twice"
                        )));
                    }
                    names.push(name);
                    costs.push(cost);
                }
                Ok(Scopes { names, costs })
            }
        }
        from.deserialize_any(Forms)
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.costs.is_empty() {
            return self.names.serialize(to);
        }
        let costs = self.costs.iter().copied().chain(std::iter::repeat(1.0));
        to.collect_map(self.names.iter().zip(costs))
    }
}

/// A map of names to values, or a list of pairs where a name comes more than once.
#[derive(Debug)]
struct Headers(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`headers` as a map of names to values or a list of [name, value]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Headers, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = list.next_element()? {
                    pairs.push(pair);
                }
                Ok(Headers(pairs))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Headers(pairs))
            }
        }
        from.deserialize_any(Forms)
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &str) -> Request {
        parse_line(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .unwrap_or_else(|| panic!("{line} was skipped"))
    }

    fn error(line: &str) -> String {
        match parse_line(line) {
            Err(error) => error.to_string(),
            Ok(request) => panic!("{line} was read as {request:?}"),
        }
    }

    #[test]
    fn a_line_is_a_url_a_host_or_a_rank_and_a_host() {
        let check = |line: &str, url: &str| assert_eq!(parsed(line).url, url, "{line}");
        check("http://a.test/x?y#z", "http://a.test/x?y#z");
        check("  HTTPS://a.test  ", "HTTPS://a.test");
        check("http://user:pass@a.test/", "http://user:pass@a.test/");
        check("http://a.test/with a space", "http://a.test/with a space");
        check(
            "http://a.test/?u=ftp://b.test",
            "http://a.test/?u=ftp://b.test",
        );
        check("a.test", "http://a.test");
        check("a.test/x://y", "http://a.test/x://y");
        check("a.test:8080/x", "http://a.test:8080/x");
        check(
            "a.test?next=http://b.test/",
            "http://a.test?next=http://b.test/",
        );
        check("bücher.example", "http://bücher.example");
        check("127.0.0.1", "http://127.0.0.1");
        check("[::1]:80", "http://[::1]:80");
        check("localhost", "http://localhost");
        check("1,google.com", "http://google.com");
        check("1000000, a.test ", "http://a.test");
        check("7,https://a.test/", "https://a.test/");
        check("\u{feff}a.test\r\n", "http://a.test");
    }

    #[test]
    fn blank_lines_and_comments_are_skipped() {
        for line in ["", "   ", "\r\n", "# a.test", "  #", "\u{feff}"] {
            assert!(parse_line(line).unwrap().is_none(), "{line:?}");
        }
    }

    #[test]
    fn what_is_no_seed_is_named_with_its_remedy() {
        let check = |line: &str, expected: &str| {
            let told = error(line);
            assert!(told.contains(expected), "{line}: {told}");
        };
        check("mailto:someone@a.test", "neither a URL nor a host");
        check("two words", "neither a URL nor a host");
        check("http://", "neither a URL nor a host");
        check("http:///path", "neither a URL nor a host");
        check("http://a b/", "neither a URL nor a host");
        check("user@a.test", "neither a URL nor a host");
        check("a.test:http", "neither a URL nor a host");
        check("a.test:65536", "neither a URL nor a host");
        check("[zzz]", "neither a URL nor a host");
        check("...", "neither a URL nor a host");
        check("GlobalRank,TldRank,Domain", "neither a URL nor a host");
        check("ftp://a.test/", "begin with http:// or https://");
        check("{", "not a seed as JSON");
        check("{}", "missing field `url`");
        check(r#"{"url": "a.test"} x"#, "trailing characters at column 19");
        check(
            r#"{"url": "a.test", "url": "b.test"}"#,
            "duplicate field `url`",
        );
        check(r#"{"url": "a.test", "prio": 1}"#, "unknown field `prio`");
        check(r#"{"url": "a.test", "prio": 1}"#, "`priority`");
        check(r#"{"url": "a.test", "priority": "high"}"#, "expected i32");
        check(
            r#"{"url": "a.test", "priority": 3000000000}"#,
            "expected i32",
        );
        check(r#"{"url": "a.test", "depth": -1}"#, "expected u32");
        check(r#"{"url": "two words"}"#, "neither a URL nor a host");
        check(r#"{"url": "a.test", "method": "GE T"}"#, "`method`");
        check(r#"{"url": "a.test", "headers": {"a:": "b"}}"#, "`headers`");
        check(
            r#"{"url": "a.test", "headers": {"a": "b\r\nc: d"}}"#,
            "`headers`",
        );
        check(r#"{"url": "a.test", "headers": 1}"#, "`headers` as a map");
        check(r#"{"url": "a.test", "body_b64": "!"}"#, "`body_b64`");
        check(r#"{"url": "a.test", "scopes": 1}"#, "`scopes` as a name");
        check(r#"{"url": "a.test", "scopes": [""]}"#, "`scopes`");
        check(r#"{"url": "a.test", "scopes": {"a": -1}}"#, "from 0 up");
        check(r#"{"url": "a.test", "scopes": {"a": 1, "a": 2}}"#, "twice");
    }

    #[test]
    fn an_error_shows_no_more_of_a_line_than_finds_it() {
        let told = error(&format!("{} x", "é".repeat(100_000)));
        assert!(told.len() < 400, "{told}");
        let told = error(&format!(r#"{{"{}": 1}}"#, "x".repeat(100_000)));
        assert!(told.len() < 400, "{told}");
    }

    #[test]
    fn an_object_says_everything_about_a_request() {
        let request = parsed(
            r#"{"url": "a.test/x", "scopes": {"zeta": 2.5, "alpha": 1}, "priority": -3, "depth": 2,
                "method": "POST", "headers": {"X-B": "1", "X-A": "2"}, "body_b64": "aGVsbG8=",
                "dont_adjust_delay": true, "meta": {"n": 1.10}}"#,
        );
        assert_eq!(request.url, "http://a.test/x");
        assert_eq!(request.scopes.unwrap(), ["zeta", "alpha"]);
        assert_eq!(request.scope_costs, [2.5, 1.0]);
        assert_eq!((request.priority, request.depth), (-3, 2));
        assert_eq!(request.method, "POST");
        let headers = [("X-B", "1"), ("X-A", "2")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(request.headers, headers);
        assert_eq!(request.body, b"hello");
        assert!(request.dont_adjust_delay);
        assert_eq!(request.meta.unwrap().get(), r#"{"n": 1.10}"#);
    }

    #[test]
    fn scopes_are_a_name_a_list_or_none_at_all() {
        let check = |scopes: &str, expected: Option<&[&str]>| {
            let request = parsed(&format!(r#"{{"url": "a.test", "scopes": {scopes}}}"#));
            let names = request.scopes.as_ref();
            let names = names.map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(names.as_deref(), expected, "{scopes}");
            assert!(request.scope_costs.is_empty());
        };
        check(r#""api""#, Some(&["api"]));
        check(r#"["b", "a"]"#, Some(&["b", "a"]));
        check("[]", Some(&[]));
        check("null", None);
    }

    #[test]
    fn a_request_that_is_only_a_url_is_written_as_one() {
        assert_eq!(to_line(&Request::get("http://a.test/x")), "http://a.test/x");
        let mut request = Request::get("http://a.test/");
        request.depth = 1;
        assert_eq!(to_line(&request), r#"{"url":"http://a.test/","depth":1}"#);
    }

    fn any_request() -> impl Strategy<Value = Request> {
        let name = "[A-Za-z0-9/._é-]{1,12}";
        let scopes = prop_oneof![
            Just((None, Vec::new())),
            prop::collection::vec(name, 0..4).prop_map(|names| (Some(names), Vec::new())),
            prop::collection::btree_map(name, 0u32..1000, 1..4).prop_map(|map| {
                let costs = map
                    .values()
                    .map(|&eighths| f64::from(eighths) / 8.0)
                    .collect();
                (Some(map.into_keys().collect()), costs)
            }),
        ];
        let header = ("[A-Za-z][A-Za-z0-9-]{0,8}", "[^\r\n\0]{0,12}");
        let meta = prop::option::of(r#"[1-9][0-9]{0,30}|"[a-z ]{0,9}"|\[1,  true\]"#);
        (
            "https?://[a-z0-9.]{1,9}(:80)?[/?#]\\PC{0,20}",
            scopes,
            any::<i32>(),
            any::<u32>(),
            prop_oneof![Just(""), Just("GET"), Just("M-SEARCH")],
            prop::collection::vec(header, 0..3),
            prop::collection::vec(any::<u8>(), 0..20),
            any::<bool>(),
            meta,
        )
            .prop_map(
                |(url, scopes, priority, depth, method, headers, body, flag, meta)| Request {
                    url: url.trim().to_owned(),
                    method: method.to_owned(),
                    headers,
                    body,
                    priority,
                    depth,
                    scopes: scopes.0,
                    scope_costs: scopes.1,
                    dont_adjust_delay: flag,
                    meta: meta.map(|meta| RawValue::from_string(meta).unwrap()),
                    tag: 0,
                },
            )
    }

    proptest! {
        #[test]
        fn a_request_written_and_read_is_the_same_request(request in any_request()) {
            let line = to_line(&request);
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(format!("{:?}", parsed(&line)), format!("{request:?}"));
            let plain = Request::get(request.url);
            prop_assert_eq!(format!("{:?}", parsed(&to_line(&plain))), format!("{plain:?}"));
        }

        #[test]
        fn no_line_is_too_strange(line in any::<String>()) {
            let _ = parse_line(&line);
            let _ = parse_line(&format!("{{{line}"));
        }
    }
}
