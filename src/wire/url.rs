//! URLs as the crawl knows them: http and https only, in one canonical form that fits in 24 bytes
//! and its text.

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
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// An absolute http or https URL in canonical form.
///
/// Read as the WHATWG URL standard says (a browser's reading), then:
/// - the fragment is dropped, it never leaves the client;
/// - user and password are dropped: credentials that lie about in links are not ours to send, and
///   a user who has some says so with a header;
/// - the root dot of a host (`example.com.`) is dropped, or a site could be crawled twice at twice
///   the pace;
/// - hex digits of percent-encoded octets in the path are upper-cased (RFC 3986, 6.2.2.1). Nothing
///   is decoded, since servers differ in what they make of it;
/// - the query is kept as it is: nothing in it is known to be without meaning.
///
/// Host case, IDNA, default port, dot segments and the empty path are the standard's own work.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CrawlUrl {
    text: Box<str>,
    host_end: u16,
    path_start: u16,
    /// Where the `?` is, or the end of the text.
    path_end: u16,
    port: u16,
}

impl CrawlUrl {
    /// Reads an absolute URL.
    pub fn parse(input: &str) -> Result<Self, UrlError> {
        match plain::read(input) {
            Some(url) => Ok(url),
            None => parse(input, None)?.into_crawl_url(),
        }
    }

    /// Reads a line of a seeds file: a URL, or a bare host (with port or path) for which `http://`
    /// is meant.
    ///
    /// A bare name must have a dot or a port, or be `localhost`: a stray word is a mistake, not a
    /// host.
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

    /// The URL of an origin and a request target, both as they were read from one.
    pub fn of_parts(is_https: bool, host: &str, port: u16, target: &str) -> Self {
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

    /// Resolves a reference found on this page. For many of them, make a [`Base`] once.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        Base::of(self).join(reference)
    }

    /// Resolves a reference against a base given as text.
    pub fn with_base(base: &str, reference: &str) -> Result<Self, UrlError> {
        parse(reference, Some(base))?.into_crawl_url()
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether TLS is asked for.
    pub fn is_https(&self) -> bool {
        self.text.as_bytes()[4] == b's'
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_https() { "https" } else { "http" }
    }

    /// The host as text, IPv6 in brackets.
    pub fn host_str(&self) -> &str {
        &self.text[self.host_start()..usize::from(self.host_end)]
    }

    /// The host: a name for DNS, or an address that needs none.
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

    /// The port, the scheme's own where none is written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host, and port where it is not the scheme's own: the value of a Host field.
    pub fn authority(&self) -> &str {
        &self.text[self.host_start()..usize::from(self.path_start)]
    }

    /// The throttling scope a URL has when nobody says otherwise: its authority, so that http and
    /// https on their own ports are one scope.
    pub fn scope_key(&self) -> &str {
        self.authority()
    }

    /// Scheme, host and port, as `https://example.com:8443`: what shares connections and robots.txt.
    pub fn origin(&self) -> &str {
        &self.text[..usize::from(self.path_start)]
    }

    /// Path and query, as a request line wants them (RFC 9112, 3.2.1).
    pub fn request_target(&self) -> &str {
        &self.text[usize::from(self.path_start)..]
    }

    /// The path; begins with a slash.
    pub fn path(&self) -> &str {
        &self.text[usize::from(self.path_start)..usize::from(self.path_end)]
    }

    /// The query without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.text.get(usize::from(self.path_end) + 1..)
    }

    /// The first value of this name in the query, read as a form's: with escapes and `+` undone.
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

    /// The domain somebody registered, by the public suffix list (`bbc.co.uk`, `me.github.io`).
    ///
    /// Where there is none (an address, `localhost`, a public suffix itself) it is the whole host.
    pub fn registrable_domain(&self) -> &str {
        self.domain().unwrap_or(self.host_str())
    }

    /// The same; `None` where there is none.
    ///
    /// The list's private suffixes are suffixes too: who has a name at a host of many (`github.io`)
    /// shares it with nobody.
    pub fn domain(&self) -> Option<&str> {
        match self.host() {
            Host::Name(name) => psl::domain_str(name),
            Host::Address(_) => None,
        }
    }

    /// Leaves out query parameters, and `;name=value` parameters of the path, by name.
    ///
    /// A pattern is a name, compared without regard to ASCII case, or a beginning followed by `*`
    /// (`utm_*`). What stays keeps its order and its spelling.
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
            // An empty query that was there stays; one that lost its last parameter goes.
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
        // Read anew: a segment like `..;id=1` becomes a dot segment only now.
        Self::parse(&text).unwrap_or(self)
    }

    /// What the seen set remembers of a URL.
    ///
    /// Sixty-four bits of XXH3: among a thousand million URLs the chance that any two collide, and
    /// one page is wrongly taken as seen, is three in a hundred, for half the memory of 128 bits.
    /// The function is fixed and unseeded, because fingerprints are written to disk.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(self.text.as_bytes())
    }

    fn host_start(&self) -> usize {
        if self.is_https() { 8 } else { 7 }
    }

    /// Of a text that is canonical but for the hex digits in its path.
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

/// A host, as a URL names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// A name, lower-cased and in IDNA's ASCII form, without a root dot.
    Name(&'a str),
    /// An address in the place of a name.
    Address(IpAddr),
}

/// Whether everybody may have a name below this one, which is in lower case: `com`, `co.uk`,
/// `github.io`.
#[cfg(feature = "cookies")]
pub(crate) fn is_public_suffix(name: &str) -> bool {
    psl::suffix_str(name) == Some(name)
}

/// The registrable domain of a host's name by the public suffix list, or the host itself where there is
/// none: it is an address, `localhost`, or a public suffix.
pub fn registrable(host: &str) -> &str {
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    psl::domain_str(host)
        .filter(|_| !is_address)
        .unwrap_or(host)
}

/// Reads any URL, also one that we would not fetch, against a base if there is one.
pub fn read(input: &str, base: Option<&str>) -> Result<Reading, UrlError> {
    let parsed = parse(input, base)?;
    Ok(Reading {
        href: parsed.href().to_owned(),
        url: parsed.into_crawl_url(),
    })
}

/// Path and query of a URL, as robots rules are about them, or of a reference without scheme and
/// host. The URL may be one that is not fetched.
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

/// How a URL reads by the standard, and what we make of it.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The standard's serialization, with user, password and fragment.
    pub href: String,
    /// What we would fetch, or why we would not.
    pub url: Result<CrawlUrl, UrlError>,
}

/// Why a text is no URL that we can fetch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Nothing there.
    #[error("the URL is empty")]
    Empty,
    /// Longer than [`LENGTH_MAX`].
    #[error("the URL is longer than 65535 bytes")]
    Long,
    /// A relative reference where an absolute URL is needed.
    #[error("not an absolute URL (http://HOST/… or https://HOST/…)")]
    Relative,
    /// A scheme that is not fetched.
    #[error("the scheme {0}: is not fetched, only http: and https: are")]
    Scheme(Box<str>),
    /// No host.
    #[error("the URL names no host")]
    NoHost,
    /// A host that is no name and no address.
    #[error("the host is neither a name nor an address")]
    Host,
    /// A port that is no number up to 65535.
    #[error("the port is not a number from 0 to 65535")]
    Port,
}

impl UrlError {
    /// The stable name.
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

    /// Whether another try may end otherwise: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The longest URL that can be held at all, so that an offset takes two bytes. Servers seldom take
/// more than 8 KiB; `URLLENGTH_LIMIT` is where a crawl says so.
pub const LENGTH_MAX: usize = u16::MAX as usize;

/// Whether a parameter pattern names this parameter.
fn names(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name
            .get(..beginning.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(beginning)),
        None => pattern.eq_ignore_ascii_case(name),
    }
}

/// The path without the `;name=value` parameters that are not kept.
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

/// Upper-cases the hex digits of percent-encoded octets.
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
