//! URLs of a crawl: http and https only, in one canonical form, stored as their text plus 24 bytes.

mod base;
mod plain;
mod standard;

use std::cell::Cell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use base::Base;
pub(crate) use base::Reach;
use percent_encoding::percent_decode_str;
use standard::Parsed;
pub(super) use standard::ascii_host;
use thiserror::Error;

use crate::base::sentence::debug_as_sentence;

/// An absolute http or https URL in canonical form.
///
/// Parsed by the WHATWG URL standard (as browsers do), then:
/// - the fragment is removed, since it is never sent;
/// - user and password are removed: credentials in links are not ours to send, and users configure
///   theirs as a header;
/// - the final dot of a host (`example.com.`) is removed, otherwise a site could be crawled twice
///   at twice the pace;
/// - hex digits of percent-encoded bytes in the path become upper case (RFC 3986, 6.2.2.1). Nothing
///   is decoded, since servers interpret that differently;
/// - the query is unchanged: no part of it is known to be meaningless.
///
/// The standard itself normalises the host's case, IDNA, the default port, dot segments and the
/// empty path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CrawlUrl {
    text: Box<str>,
    host_end: u16,
    path_start: u16,
    /// Offset of the `?`, or of the end of the text.
    path_end: u16,
    port: u16,
}

impl CrawlUrl {
    /// Parses an absolute URL.
    ///
    /// # Errors
    /// [`UrlError`], which says why it cannot be fetched.
    pub fn parse(input: &str) -> Result<Self, UrlError> {
        match plain::read(input) {
            Some(url) => Ok(url),
            None => parse(input, None)?.into_crawl_url(),
        }
    }

    /// Parses a line of a seeds file: a URL, or a bare host (with port or path), for which
    /// `http://` is assumed.
    ///
    /// A bare name must contain a dot or a port, or be `localhost`: any other word is a mistake and
    /// not a host.
    ///
    /// # Errors
    /// As [`CrawlUrl::parse`].
    pub fn parse_seed(line: &str) -> Result<Self, UrlError> {
        let line = line.trim();
        if line.is_empty() {
            return Err(UrlError::Empty);
        }
        if let Some(rest) = line.strip_prefix("//") {
            return Self::parse(&format!("http://{rest}"));
        }
        let head_end = line.find(['/', '?', '#']).unwrap_or(line.len());
        let head = &line[..head_end];
        if head.is_empty() {
            return Err(UrlError::Relative);
        }
        let (name, after) = if head.starts_with('[') {
            head.split_at(head.find(']').map_or(head.len(), |at| at + 1))
        } else {
            head.split_at(head.find(':').unwrap_or(head.len()))
        };
        let port = after.strip_prefix(':');
        if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit())) {
            return Self::parse(line);
        }
        let names_a_host = port.is_some()
            || name.contains('.')
            || name.starts_with('[')
            || name.eq_ignore_ascii_case("localhost");
        if !names_a_host {
            return Err(UrlError::Relative);
        }
        Self::parse(&format!("http://{line}"))
    }

    /// The URL with this origin and request target, both taken from another URL.
    pub fn from_parts(is_https: bool, host: &str, port: u16, target: &str) -> Self {
        let (scheme, own_port) = if is_https {
            ("https://", 443)
        } else {
            ("http://", 80)
        };
        let host_end = scheme.len() + host.len();
        let mut digits = itoa::Buffer::new();
        let (colon, digits) = match port == own_port {
            true => ("", ""),
            false => (":", digits.format(port)),
        };
        let path_start = host_end + colon.len() + digits.len();
        let mut text = String::with_capacity(path_start + target.len());
        for part in [scheme, host, colon, digits, target] {
            text.push_str(part);
        }
        let query = target.bytes().position(|byte| byte == b'?');
        let path_end = path_start + query.unwrap_or(target.len());
        CrawlUrl {
            text: text.into(),
            host_end: host_end as u16,
            path_start: path_start as u16,
            path_end: path_end as u16,
            port,
        }
    }

    /// From the text of a URL, as [`CrawlUrl::as_str`] returned it: it is split, not parsed. `None` if
    /// it lacks a part, or has a character that no such text has.
    pub(crate) fn from_canonical(text: &str) -> Option<Self> {
        let is_plain = text.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
        if !is_plain || text.len() > LENGTH_MAX {
            return None;
        }
        let (host_start, own_port) = match text.strip_prefix("http")? {
            rest if rest.starts_with("://") => (7, 80),
            rest if rest.starts_with("s://") => (8, 443),
            _ => return None,
        };
        let path_start = host_start + text[host_start..].find('/')?;
        let authority = &text[host_start..path_start];
        if authority.contains(['?', '#', '@']) {
            return None;
        }
        let host_length = host_length(authority);
        let port = match &authority[host_length..] {
            "" => own_port,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        let query = text[path_start..].find('?');
        (host_length > 0).then(|| CrawlUrl {
            text: text.into(),
            host_end: (host_start + host_length) as u16,
            path_start: path_start as u16,
            path_end: query.map_or(text.len(), |at| path_start + at) as u16,
            port,
        })
    }

    /// Resolves a reference found on this page. For many references, create a [`Base`] once.
    ///
    /// # Errors
    /// As [`CrawlUrl::parse`], of the URL that it means.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        Base::of(self).join(reference)
    }

    /// Resolves a reference against a base given as text.
    ///
    /// # Errors
    /// As [`CrawlUrl::parse`], of the base or of the URL that the reference means.
    pub fn parse_with_base(base: &str, reference: &str) -> Result<Self, UrlError> {
        parse(reference, Some(base))?.into_crawl_url()
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the scheme is https.
    pub fn is_https(&self) -> bool {
        self.text.as_bytes()[4] == b's'
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        if self.is_https() {
            Scheme::Https
        } else {
            Scheme::Http
        }
    }

    /// The host as text, IPv6 in brackets.
    pub fn host_str(&self) -> &str {
        &self.text[self.host_start()..usize::from(self.host_end)]
    }

    /// The host: a DNS name or an address.
    pub fn host(&self) -> Host<'_> {
        let text = self.host_str();
        if let Some(inner) = text.strip_prefix('[') {
            let address: Result<Ipv6Addr, _> = inner.trim_end_matches(']').parse();
            if let Ok(address) = address {
                return Host::Address(IpAddr::V6(address));
            }
        }
        match text.parse::<Ipv4Addr>() {
            Ok(address) => Host::Address(IpAddr::V4(address)),
            Err(_) => Host::Name(text),
        }
    }

    /// The port; the scheme's default if none is written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host, with the port unless it is the scheme's default: the value of a Host field.
    pub fn authority(&self) -> &str {
        &self.text[self.host_start()..usize::from(self.path_start)]
    }

    /// The default throttling scope of a URL: its authority, so that http and https on their
    /// default ports share a scope.
    pub fn scope_key(&self) -> &str {
        self.authority()
    }

    /// Scheme, host and port, as in `https://example.com:8443`: the unit that shares connections
    /// and robots.txt.
    pub fn origin(&self) -> &str {
        &self.text[..usize::from(self.path_start)]
    }

    /// Path and query, as in a request line (RFC 9112, 3.2.1).
    pub fn request_target(&self) -> &str {
        &self.text[usize::from(self.path_start)..]
    }

    /// The path; starts with a slash.
    pub fn path(&self) -> &str {
        &self.text[usize::from(self.path_start)..usize::from(self.path_end)]
    }

    /// The query without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.text.get(usize::from(self.path_end) + 1..)
    }

    /// The first value of this parameter in the query, decoded as in a form (percent-encoding and
    /// `+`).
    pub fn query_value(&self, name: &str) -> Option<String> {
        let read = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let mut pairs = self.query()?.split('&').filter(|pair| !pair.is_empty());
        pairs.find_map(|pair| {
            let (own, value) = pair.split_once('=').unwrap_or((pair, ""));
            (read(own) == name).then(|| read(value))
        })
    }

    /// The registrable domain by the public suffix list (`bbc.co.uk`, `me.github.io`).
    ///
    /// If there is none (an address, `localhost`, a public suffix itself) it is the whole host.
    pub fn registrable_domain(&self) -> &str {
        self.domain().unwrap_or(self.host_str())
    }

    /// The same; `None` if there is none.
    ///
    /// The list's private suffixes count as well: a name below a shared host (`github.io`) is a
    /// domain of its own.
    pub fn domain(&self) -> Option<&str> {
        match self.host() {
            Host::Name(name) => psl::domain_str(name),
            Host::Address(_) => None,
        }
    }

    /// Removes query parameters, and `;name=value` parameters of the path, by name.
    ///
    /// A pattern is a name, compared ignoring ASCII case, or a prefix followed by `*` (`utm_*`).
    /// The rest keeps its order and spelling.
    pub fn drop_parameters(self, patterns: &[String]) -> Self {
        if patterns.is_empty() {
            return self;
        }
        let keeps = |parameter: &&str| {
            let name = parameter.split('=').next().unwrap_or("");
            !patterns.iter().any(|pattern| names(pattern, name))
        };
        let path = kept_path(self.path(), keeps);
        let query = self.query().map(|query| {
            let kept: Vec<&str> = query.split('&').filter(keeps).collect();
            // An empty query stays; one that lost its last parameter is removed.
            (!kept.is_empty()).then(|| kept.join("&"))
        });
        let length = path.len() + query.iter().flatten().map(|q| q.len() + 1).sum::<usize>();
        if length == self.request_target().len() {
            return self;
        }
        let mut text = String::with_capacity(usize::from(self.path_start) + length);
        text.push_str(self.origin());
        text.push_str(&path);
        if let Some(query) = query.flatten() {
            text.push('?');
            text.push_str(&query);
        }
        // Parsed again, because a segment like `..;id=1` becomes a dot segment only now.
        Self::parse(&text).unwrap_or(self)
    }

    fn host_start(&self) -> usize {
        if self.is_https() { 8 } else { 7 }
    }

    /// From a text that is canonical except for the hex digits in its path.
    fn of_text(mut text: String, host_end: usize, port: u16) -> Result<Self, UrlError> {
        if text.len() > LENGTH_MAX {
            return Err(UrlError::Long);
        }
        let path_start = text[host_end..]
            .find('/')
            .map_or(text.len(), |at| host_end + at);
        let path_end = text[path_start..]
            .find('?')
            .map_or(text.len(), |at| path_start + at);
        upper_case_octets(&mut text[path_start..path_end]);
        Ok(CrawlUrl {
            text: text.into(),
            host_end: host_end as u16,
            path_start: path_start as u16,
            path_end: path_end as u16,
            port,
        })
    }
}

impl fmt::Display for CrawlUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CrawlUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.text)
    }
}

/// The host of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// A name in lower case, in IDNA's ASCII form, without a final dot.
    Name(&'a str),
    /// An IP address.
    Address(IpAddr),
}

/// Returns whether this name (in lower case) is a public suffix, below which anyone can register:
/// `com`, `co.uk`, `github.io`.
#[cfg(feature = "cookies")]
pub(crate) fn is_public_suffix(name: &str) -> bool {
    psl::suffix_str(name) == Some(name)
}

/// The registrable domain of a host by the public suffix list, or the host itself if there is none:
/// it is an address, `localhost`, or a public suffix.
pub fn registrable(host: &str) -> &str {
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    psl::domain_str(host)
        .filter(|_| !is_address)
        .unwrap_or(host)
}

/// The host in the text of a URL, as [`CrawlUrl::as_str`] returned it, without its scheme.
pub fn host_of_rest(rest: &str) -> &str {
    let end = rest.find('/').unwrap_or(rest.len());
    let authority = &rest[..end];
    &authority[..host_length(authority)]
}

/// The length of the host before a port.
fn host_length(authority: &str) -> usize {
    match authority.find(']') {
        Some(bracket) if authority.starts_with('[') => bracket + 1,
        _ => authority.find(':').unwrap_or(authority.len()),
    }
}

/// Parses any URL, including those that cannot be fetched, against an optional base.
pub fn parse_any(input: &str, base: Option<&str>) -> Result<ParsedUrl, UrlError> {
    let parsed = parse(input, base)?;
    Ok(ParsedUrl {
        href: parsed.href().to_owned(),
        url: parsed.into_crawl_url(),
    })
}

/// The path and query to which robots rules apply, of a URL or of a reference without scheme and
/// host. URLs that cannot be fetched are accepted.
pub fn request_target_of(input: &str) -> Result<String, UrlError> {
    parse(input, Some("http://base.invalid/"))?.request_target()
}

fn parse(input: &str, base: Option<&str>) -> Result<Parsed, UrlError> {
    if input.len() > LENGTH_MAX {
        return Err(UrlError::Long);
    }
    match base {
        Some(base) => Parsed::parse(base)?.join(input, None, &Cell::default()),
        None if input.trim_matches(|c| c <= ' ').is_empty() => Err(UrlError::Empty),
        None => Parsed::parse(input),
    }
}

/// The schemes that are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl Scheme {
    /// Its name: `http` or `https`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A URL as parsed by the standard, and as used by the crawl.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ParsedUrl {
    /// The standard's serialization, with user, password and fragment.
    pub href: String,
    /// The URL to fetch, or why it cannot be fetched.
    pub url: Result<CrawlUrl, UrlError>,
}

/// Why a text is not a URL that can be fetched.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text is empty.
    #[error("the URL is empty")]
    Empty,
    /// Longer than [`LENGTH_MAX`].
    #[error("the URL is longer than 65535 bytes")]
    Long,
    /// A relative reference where an absolute URL is needed.
    #[error("not an absolute URL (http://HOST/… or https://HOST/…)")]
    Relative,
    /// A scheme other than http and https.
    #[error("the scheme {0}: is not supported (only http: and https:)")]
    Scheme(Box<str>),
    /// No host.
    #[error("the URL has no host")]
    NoHost,
    /// The host is neither a name nor an address.
    #[error("the host is neither a name nor an address")]
    Host,
    /// The port is not a number up to 65535.
    #[error("the port is not a number from 0 to 65535")]
    Port,
}

debug_as_sentence!(UrlError);

impl UrlError {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            UrlError::Empty => "empty",
            UrlError::Long => "long",
            UrlError::Relative => "relative",
            UrlError::Scheme(_) => "scheme",
            UrlError::NoHost => "no_host",
            UrlError::Host => "host",
            UrlError::Port => "port",
        }
    }

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// Maximum length of a URL, so that an offset fits into two bytes. Servers rarely accept more than
/// 8 KiB; `URLLENGTH_LIMIT` is the crawl's own limit.
pub const LENGTH_MAX: usize = u16::MAX as usize;

/// Returns whether a parameter pattern matches this parameter.
fn names(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name
            .get(..beginning.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(beginning)),
        None => pattern.eq_ignore_ascii_case(name),
    }
}

/// The path without the `;name=value` parameters for which `keeps` is false.
fn kept_path(path: &str, keeps: impl Fn(&&str) -> bool) -> String {
    let mut kept = String::with_capacity(path.len());
    for segment in path.split_inclusive('/') {
        let (segment, slash) = match segment.strip_suffix('/') {
            Some(segment) => (segment, "/"),
            None => (segment, ""),
        };
        let mut parts = segment.split(';');
        kept.push_str(parts.next().unwrap_or(""));
        for parameter in parts.filter(&keeps) {
            kept.push(';');
            kept.push_str(parameter);
        }
        kept.push_str(slash);
    }
    kept
}

/// Converts the hex digits of percent-encoded bytes to upper case.
fn upper_case_octets(text: &mut str) {
    let mut from = 0;
    while let Some(at) = text[from..].find('%').map(|at| from + at) {
        let digits = text.as_bytes().get(at + 1..at + 3);
        from = at + 1;
        if digits.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)) {
            text[at + 1..at + 3].make_ascii_uppercase();
            from = at + 3;
        }
    }
}

#[cfg(test)]
mod tests;
