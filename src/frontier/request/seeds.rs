//! Parses seeds lines into requests and writes requests as seeds lines.

pub mod columns;
mod object;

use std::borrow::Cow;

use data_encoding::BASE64;

use self::object::{Headers, Object, Seconds};
use crate::base::sentence::debug_as_sentence;
use crate::frontier::request::Request;
use crate::wire::proxy::Route;

/// Reads one line: a URL, a bare host, `rank,host`, all of them also as CSV or between tabs with further columns, or a JSON
/// object. `None` for a blank line and for one that starts with `#`.
///
/// URLs are checked only as far as needed to detect mistakes; admission parses them in full.
///
/// # Errors
/// The line is none of these. The error states what is wrong and what to write instead; the caller
/// adds the file and the line number.
fn parse_line(line: &str) -> Result<Option<Request>, SeedError> {
    // Text files from Windows may start with a byte order mark.
    let line = line.trim_start_matches('\u{feff}').trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.starts_with('{') {
        return parse_object(line).map(Some);
    }
    let quoted = line.contains('"').then(|| csv_fields(line, ',')).flatten();
    let url = match (quoted, fields_between_tabs(line), line.split_once(',')) {
        (Some(fields), ..) => url_of_fields(&fields, line, url_of),
        // One of them may be a line of CSV, with text that has a tab.
        (None, Some(fields), _) => {
            url_of_fields(&fields, line, |field| url_of(without_columns(field)?))
        }
        (None, None, Some((rank, host))) if is_number(rank) => url_of_single(host.trim()),
        _ => url_of_single(line),
    };
    Ok(Some(Request::get(url?)))
}

/// The URL of a text with one URL or host, and columns behind a host.
fn url_of_single(text: &str) -> Result<String, SeedError> {
    let several = || SeedError::Several(shortened(text, 80));
    if text.contains(' ') {
        // One URL may have spaces, which are escaped, but no further URL behind one.
        let mut words = text.split_whitespace();
        let begins_with_seed = words.next().is_some_and(is_seed);
        if begins_with_seed && words.any(begins_as_url) {
            return Err(several());
        }
    }
    let url = url_of(without_columns(text)?);
    let is_between = |c: char| c.is_whitespace() || c == ',' || c == ';';
    let mut parts = text.split(is_between).filter(|part| !part.is_empty());
    match url {
        Err(SeedError::NotAUrl(_)) if parts.clone().count() > 1 && parts.all(is_seed) => {
            Err(several())
        }
        url => url,
    }
}

/// Whether a word of a line is a URL or a host, and no number.
fn is_seed(word: &str) -> bool {
    let word = word.trim_end_matches([',', ';']);
    word.parse::<f64>().is_err() && url_of(word).is_ok()
}

fn begins_as_url(word: &str) -> bool {
    word.split_once("://")
        .is_some_and(|(scheme, _)| is_http(scheme))
}

/// The URL of a line of several fields: that of its first field or of its second, which is behind a rank.
fn url_of_fields(
    fields: &[Cow<'_, str>],
    line: &str,
    url_of_field: impl Fn(&str) -> Result<String, SeedError>,
) -> Result<String, SeedError> {
    let of = |field: &Cow<'_, str>| url_of_field(field.trim());
    match fields {
        [rank, host, ..] if is_number(rank.trim()) => of(host),
        [first, second, ..] => of(first).or_else(|error| match of(second) {
            Ok(url) => Ok(url),
            Err(_) => match error {
                SeedError::NotAUrl(_) => Err(SeedError::NotAUrl(shortened(line, 80))),
                error => Err(error),
            },
        }),
        [first] => of(first),
        [] => Err(SeedError::NotAUrl(shortened(line, 80))),
    }
}

/// A URL or host without the columns behind it. They are seen where a comma ends its host, since no host has one: a comma
/// in a path or a query is a part of the URL.
///
/// # Errors
/// What is behind it is another host or URL.
fn without_columns(text: &str) -> Result<&str, SeedError> {
    let start = match text.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => scheme.len() + "://".len(),
        _ => 0,
    };
    let rest = &text[start..];
    let ends = |c| matches!(c, '/' | '?' | '#' | '\\');
    let authority = rest.split(ends).next().unwrap_or(rest);
    let Some((host, _)) = authority.split_once(',') else {
        return Ok(text);
    };
    let next = rest[host.len() + 1..].split(',').next().unwrap_or_default();
    match is_bare_host(host) && !authority.contains('@') {
        true if is_seed(next.trim()) => Err(SeedError::Several(shortened(text, 80))),
        true => Ok(&text[..start + host.len()]),
        false => Ok(text),
    }
}

/// The fields of a line with tabs between them; `None` if it has no tab.
fn fields_between_tabs(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let plain = || line.split('\t').map(|field| field.trim().into()).collect();
    let has_tab = line.contains('\t');
    has_tab.then(|| csv_fields(line, '\t').unwrap_or_else(plain))
}

/// The fields of a line of CSV (RFC 4180), or of one with another separator. `None` if it is no such line.
fn csv_fields(line: &str, separator: char) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::new();
    let mut rest = Some(line);
    while let Some(line) = rest {
        let (field, behind) = csv_field(line, separator)?;
        fields.push(field);
        rest = behind;
    }
    Some(fields)
}

/// The first field of a line, and what is behind its separator. A field without quotation marks has none within it.
fn csv_field(line: &str, separator: char) -> Option<(Cow<'_, str>, Option<&str>)> {
    let is_space = |c: char| c.is_whitespace() && c != separator;
    let line = line.trim_start_matches(is_space);
    let Some(quoted) = line.strip_prefix('"') else {
        let (field, rest) = match line.split_once(separator) {
            Some((field, rest)) => (field, Some(rest)),
            None => (line, None),
        };
        return (!field.contains('"')).then_some((Cow::Borrowed(field.trim()), rest));
    };
    let mut field = Cow::Borrowed("");
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('"')?;
        field += part;
        match after.strip_prefix('"') {
            Some(after) => {
                field += "\"";
                rest = after;
            }
            None => {
                rest = after.trim_start_matches(is_space);
                break;
            }
        }
    }
    match rest.strip_prefix(separator) {
        Some(rest) => Some((field, Some(rest))),
        None => rest.is_empty().then_some((field, None)),
    }
}

/// Writes a request as one line that [`parse_line`] reads as the same request, without line end.
fn to_line(request: &Request) -> String {
    let object = Object::of(request);
    // A stop of a crawl writes millions of these.
    if object.has_only_url() && stands_alone(&object.url) {
        return object.url;
    }
    serde_json::to_string(&object).expect("a request is JSON")
}

/// Whether a URL is read as itself from a line without JSON. One that needs escapes there stays JSON.
fn stands_alone(url: &str) -> bool {
    let schemes = ["http://", "https://"].into_iter();
    let has_host = |rest: &str| !rest.is_empty() && !rest.starts_with(['/', '?', '#']);
    let is_escaped = |c: char| c.is_whitespace() || c < ' ' || c == '"' || c == '\\';
    let mut rests = schemes.filter_map(|scheme| url.strip_prefix(scheme));
    // Mostly there are these bytes alone, which are found fast.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    rests.any(has_host) && (url.bytes().all(is_plain) || !url.contains(is_escaped))
}

impl Request {
    /// Reads a line of a seeds file: a URL, a bare host, `rank,host`, or a JSON object. `None` for
    /// blank lines and comments.
    ///
    /// # Errors
    /// The line is none of these.
    pub fn from_line(line: &str) -> Result<Option<Self>, SeedError> {
        parse_line(line)
    }

    /// The line that [`Request::from_line`] reads as the same request, with every field, if the request
    /// is valid. Line ends within `meta` become spaces.
    pub fn to_line(&self) -> String {
        to_line(self)
    }
}

/// An invalid seeds line.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeedError {
    /// Neither a URL nor a host.
    #[error("{0:?} is neither a URL nor a host; write one like http://example.com/ or example.com")]
    NotAUrl(String),
    /// More than one URL or host.
    #[error(
        "{0:?} has more than one URL or host; write each on a line of its own, or %20 for a space within one URL"
    )]
    Several(String),
    /// A URL with another scheme than `http` or `https`.
    #[error("{0:?} is not an HTTP URL; begin it with http:// or https://")]
    Scheme(String),
    /// The line starts with `{` but is not a JSON object of a seed.
    #[error("invalid JSON object of a seed: {0}")]
    Json(String),
    /// An invalid value in the JSON object.
    #[error("`{key}`: {what}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was wrong with the value, and what to write instead.
        what: String,
    },
}

debug_as_sentence!(SeedError);

impl SeedError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            SeedError::NotAUrl(_) => "seed.url",
            SeedError::Several(_) => "seed.several",
            SeedError::Scheme(_) => "seed.scheme",
            SeedError::Json(_) => "seed.json",
            SeedError::Value { .. } => "seed.value",
        }
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The URL of a text that is a URL or a bare host.
fn url_of(text: &str) -> Result<String, SeedError> {
    let not_a_url = || Err(SeedError::NotAUrl(shortened(text, 80)));
    let after = |scheme| {
        let rest = text.strip_prefix(scheme)?.strip_prefix("://")?;
        Some((scheme, rest))
    };
    // Faster than a search.
    let usual = after("http").or_else(|| after("https"));
    let (scheme, rest) = match usual.or_else(|| text.split_once("://")) {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        _ => (None, text),
    };
    if scheme.is_some_and(|scheme| !is_http(scheme)) {
        return Err(SeedError::Scheme(shortened(text, 80)));
    }
    let ends = |byte| matches!(byte, b'/' | b'?' | b'#' | b'\\');
    let authority = &rest[..rest.bytes().position(ends).unwrap_or(rest.len())];
    match scheme {
        Some(_) if authority.is_empty() || authority.contains(char::is_whitespace) => not_a_url(),
        Some(_) => Ok(text.to_owned()),
        None if is_bare_host(authority) => Ok(format!("http://{text}")),
        None => not_a_url(),
    }
}

fn is_http(scheme: &str) -> bool {
    let mut schemes = ["http", "https"].iter();
    schemes.any(|http| scheme.eq_ignore_ascii_case(http))
}

/// RFC 3986, 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Whether this is certainly a host: a name with a dot or a port, `localhost`, or an address; without
/// user information.
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
    // A single word is taken for a mistake, not for a host.
    let is_word = port.is_none() && !host.contains('.') && !host.eq_ignore_ascii_case("localhost");
    port.is_none_or(|port| is_number(port) && port.parse::<u16>().is_ok())
        && match literal {
            Some(literal) => literal.parse::<std::net::Ipv6Addr>().is_ok(),
            None => named(host) && !is_word,
        }
}

fn is_idn(c: char) -> bool {
    !c.is_ascii() && !c.is_whitespace() && !c.is_control()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The first `length` characters of a text.
fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn parse_object(line: &str) -> Result<Request, SeedError> {
    let object: Object = serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        // serde reports "at line 1 column 7"; the line is always 1.
        SeedError::Json(shortened(&message, 300).replace(" at line 1 column ", " at column "))
    })?;
    let wrong = |key, what: String| Err(SeedError::Value { key, what });

    let method = object.method.unwrap_or_default();
    if !method.is_empty() && !is_token(&method) {
        return wrong(
            "method",
            format!("{method:?} is not an HTTP method; write one like \"POST\""),
        );
    }
    let headers = object
        .headers
        .map_or_else(Vec::new, |Headers(headers)| headers);
    for (name, value) in &headers {
        if !is_token(name) {
            return wrong("headers", not_a_field_name(name));
        }
        if value.contains(['\r', '\n', '\0']) {
            return wrong(
                "headers",
                format!("the value of {name:?} contains a line end or NUL; remove it"),
            );
        }
    }
    if let Some(name) = object.private_headers.iter().find(|name| !is_token(name)) {
        return wrong("private_headers", not_a_field_name(name));
    }
    let body = match object.body_b64 {
        None => Vec::new(),
        Some(text) => match BASE64.decode(text.as_bytes()) {
            Ok(body) => body,
            Err(error) => {
                return wrong(
                    "body_b64",
                    format!("invalid base64: {error}; encode with padding"),
                );
            }
        },
    };
    let (scopes, scope_costs) = match (object.scopes, object.download_slot) {
        (None, None) => (None, Vec::new()),
        (Some(scopes), None) => (Some(scopes.names), scopes.costs),
        (None, Some(slot)) => (Some(vec![slot]), Vec::new()),
        (Some(_), Some(slot)) => {
            let what =
                format!("{slot:?} is given together with `scopes`; name all scopes in `scopes`");
            return wrong("download_slot", what);
        }
    };
    let route = match object.proxy.as_deref().map(str::parse::<Route>).transpose() {
        Ok(route) => route,
        Err(error) => {
            let what = format!("{error}; write http://host:port, socks5://host:port or direct");
            return wrong("proxy", what);
        }
    };
    let request = Request {
        url: url_of(object.url.trim())?,
        method,
        headers,
        body,
        priority: object.priority,
        depth: object.depth,
        sitemap: object.sitemap,
        scopes,
        scope_costs,
        dont_adjust_delay: object.dont_adjust_delay,
        timeout: object.timeout.map(|Seconds(timeout)| timeout),
        body_max: object.body_max,
        ignore_robots: object.ignore_robots,
        dont_follow: object.dont_follow,
        dont_filter: object.dont_filter,
        private_headers: object.private_headers,
        headers_for_host: object.headers_for_host,
        dont_send_credentials: object.dont_send_credentials,
        dont_merge_cookies: object.dont_merge_cookies,
        route,
        meta: object.meta,
        tag: object.tag,
    };
    match request.check_scopes() {
        Ok(()) => Ok(request),
        Err(error) => wrong("scopes", error.to_string()),
    }
}

fn not_a_field_name(name: &str) -> String {
    format!("{name:?} is not the name of a header field; write one like \"X-Api-Key\"")
}

/// RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

#[cfg(test)]
mod tests;
