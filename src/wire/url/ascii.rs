//! http and https URLs with hosts in ASCII, read as the WHATWG URL standard says, without a library.
//!
//! A host in IDNA's ASCII form (`xn--…`) is taken as it stands: whether it decodes to something is not
//! looked at. One with other letters is refused ([`UrlError::Idn`]).

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::{CrawlUrl, UrlError};

/// A URL of any scheme; of those that are not fetched, no more than what joining needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Fetched(CrawlUrl),
    /// `is_opaque`: it has no path that something could be relative to, as `mailto:`.
    Other {
        scheme: String,
        is_opaque: bool,
    },
}

#[cfg_attr(
    feature = "idn",
    expect(dead_code, reason = "tests compare the readers only")
)]
impl Parsed {
    pub(super) fn of(url: &CrawlUrl) -> Self {
        Parsed::Fetched(url.clone())
    }

    pub(super) fn parse(input: &str) -> Result<Self, UrlError> {
        resolve(input, None)
    }

    /// Resolves a reference against this.
    pub(super) fn join(&self, reference: &str) -> Result<Self, UrlError> {
        resolve(reference, Some(self))
    }

    pub(super) fn scheme(&self) -> &str {
        match self {
            Parsed::Fetched(url) => url.scheme(),
            Parsed::Other { scheme, .. } => scheme,
        }
    }

    /// The text of what is fetched, and the scheme of what is not.
    pub(super) fn href(&self) -> &str {
        match self {
            Parsed::Fetched(url) => url.as_str(),
            Parsed::Other { scheme, .. } => scheme,
        }
    }

    /// Path and query.
    pub(super) fn request_target(self) -> Result<String, UrlError> {
        Ok(self.into_crawl_url()?.request_target().to_owned())
    }

    /// What we would fetch.
    pub(super) fn into_crawl_url(self) -> Result<CrawlUrl, UrlError> {
        match self {
            Parsed::Fetched(url) => Ok(url),
            Parsed::Other { scheme, .. } => Err(UrlError::Scheme(scheme.into())),
        }
    }
}

fn resolve(input: &str, base: Option<&Parsed>) -> Result<Parsed, UrlError> {
    let input = input.trim_matches(|c| c <= ' ');
    let input = match input.contains(NEVER_MEANT) {
        true => Cow::from(input.replace(NEVER_MEANT, "")),
        false => Cow::from(input),
    };
    let Some((scheme, rest)) = scheme_of(&input) else {
        return match base {
            None => Err(UrlError::Relative),
            Some(Parsed::Fetched(base)) => relative(base, &input).map(Parsed::Fetched),
            Some(Parsed::Other { is_opaque, .. }) if *is_opaque && !input.starts_with('#') => {
                Err(UrlError::Relative)
            }
            Some(other) => Ok(other.clone()),
        };
    };
    if !matches!(&*scheme, "http" | "https") {
        let is_special = matches!(&*scheme, "ftp" | "file" | "ws" | "wss");
        return Ok(Parsed::Other {
            is_opaque: !is_special && !rest.starts_with('/'),
            scheme,
        });
    }
    let after_slashes = rest.trim_start_matches(SLASHES);
    let url = match base {
        Some(Parsed::Fetched(base)) if base.scheme() == scheme => relative(base, rest)?,
        _ => absolute(&scheme, after_slashes)?,
    };
    Ok(Parsed::Fetched(url))
}

/// The scheme in lower case, and what comes after its colon.
fn scheme_of(input: &str) -> Option<(String, &str)> {
    let (scheme, rest) = input.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|octet| octet.is_ascii_alphanumeric() || b"+-.".contains(&octet));
    is_scheme.then(|| (scheme.to_ascii_lowercase(), rest))
}

/// What has no scheme, or the base's own.
fn relative(base: &CrawlUrl, input: &str) -> Result<CrawlUrl, UrlError> {
    let after_slashes = input.trim_start_matches(SLASHES);
    let slashes = input.len() - after_slashes.len();
    if slashes >= 2 {
        return absolute(base.scheme(), after_slashes);
    }
    let (path, query) = path_and_query(input);
    let mut text = String::from(base.origin());
    let path_start = text.len();
    if slashes == 0 && path.is_empty() {
        text.push_str(base.path());
        push_query(&mut text, query.or(base.query()));
    } else {
        let beside = match slashes {
            0 => base.path().rfind('/').map_or("/", |at| &base.path()[..=at]),
            _ => "/",
        };
        text.push_str(beside);
        push_path(&mut text, path_start, path.trim_start_matches(SLASHES));
        push_query(&mut text, query);
    }
    let host_end = base.host_start() + base.host_str().len();
    CrawlUrl::of_text(text, host_end, base.port())
}

/// What comes after the scheme and its slashes, from the authority on.
fn absolute(scheme: &str, input: &str) -> Result<CrawlUrl, UrlError> {
    let authority_end = input.find(['/', '\\', '?', '#']).unwrap_or(input.len());
    let (authority, rest) = input.split_at(authority_end);
    let host_and_port = authority.rsplit('@').next().unwrap_or(authority);
    let after_brackets = match host_and_port.starts_with('[') {
        true => host_and_port.find(']').unwrap_or(host_and_port.len()),
        false => 0,
    };
    let (host, port) = match host_and_port[after_brackets..].find(':') {
        Some(colon) => {
            let (host, port) = host_and_port.split_at(after_brackets + colon);
            (host, &port[1..])
        }
        None => (host_and_port, ""),
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let own_port = if scheme == "https" { 443 } else { 80 };
    let port = match port {
        "" => own_port,
        digits if digits.bytes().all(|octet| octet.is_ascii_digit()) => {
            digits.parse().map_err(|_| UrlError::Port)?
        }
        _ => return Err(UrlError::Port),
    };
    let mut text = format!("{scheme}://{}", canonical_host(host)?);
    let host_end = text.len();
    if port != own_port {
        let _ = write!(text, ":{port}");
    }
    let path_start = text.len();
    let (path, query) = path_and_query(rest);
    text.push('/');
    push_path(
        &mut text,
        path_start,
        path.strip_prefix(SLASHES).unwrap_or(path),
    );
    push_query(&mut text, query);
    CrawlUrl::of_text(text, host_end, port)
}

/// Path and query as they were written, without the fragment.
fn path_and_query(input: &str) -> (&str, Option<&str>) {
    let input = input.split('#').next().unwrap_or(input);
    match input.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (input, None),
    }
}

/// Appends segments to a text that ends with a slash, and follows those of dots.
fn push_path(text: &mut String, path_start: usize, path: &str) {
    let mut segments = path.split(SLASHES).peekable();
    while let Some(segment) = segments.next() {
        match dots(segment) {
            0 => {
                text.extend(utf8_percent_encode(segment, PATH));
                if segments.peek().is_some() {
                    text.push('/');
                }
            }
            1 => {}
            _ => {
                let parent = text[path_start..text.len() - 1].rfind('/');
                text.truncate(path_start + parent.unwrap_or(0) + 1);
            }
        }
    }
}

/// How many dots a segment is made of, written as such or as octets; 0 if it is made of more.
fn dots(segment: &str) -> usize {
    let (mut rest, mut dots) = (segment, 0);
    while !rest.is_empty() && dots < 3 {
        rest = match rest.as_bytes() {
            [b'.', ..] => &rest[1..],
            [b'%', b'2', b'e' | b'E', ..] => &rest[3..],
            _ => return 0,
        };
        dots += 1;
    }
    dots % 3
}

fn push_query(text: &mut String, query: Option<&str>) {
    if let Some(query) = query {
        text.push('?');
        text.extend(utf8_percent_encode(query, QUERY));
    }
}

/// The host as the standard writes it, and without a root dot.
fn canonical_host(host: &str) -> Result<String, UrlError> {
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').ok_or(UrlError::Host)?;
        let address: Ipv6Addr = address.parse().map_err(|_| UrlError::Host)?;
        return Ok(match (address.to_ipv4_mapped(), address.segments()) {
            (None, _) => format!("[{address}]"),
            // The standard knows no dots there.
            (Some(_), [.., high, low]) => format!("[::ffff:{high:x}:{low:x}]"),
        });
    }
    let decoded = percent_decode_str(host).decode_utf8();
    let name = decoded.map_err(|_| UrlError::Host)?.to_ascii_lowercase();
    if !name.is_ascii() {
        return Err(UrlError::Idn);
    }
    if name
        .bytes()
        .any(|octet| octet <= b' ' || FORBIDDEN.contains(&octet))
    {
        return Err(UrlError::Host);
    }
    let bare = name.trim_end_matches('.');
    if bare.is_empty() {
        return Err(UrlError::NoHost);
    }
    let last = bare.rsplit('.').next().unwrap_or(bare);
    if last.bytes().all(|octet| octet.is_ascii_digit()) || number(last).is_some() {
        return address(bare).map(|address| address.to_string());
    }
    Ok(bare.to_owned())
}

/// An IPv4 address of one to four numbers, the last of which fills what is left.
fn address(host: &str) -> Result<Ipv4Addr, UrlError> {
    let numbers: Option<Vec<u64>> = host.split('.').map(number).collect();
    let numbers = numbers.filter(|numbers| numbers.len() <= 4);
    let (last, others) = numbers
        .as_deref()
        .and_then(<[u64]>::split_last)
        .ok_or(UrlError::Host)?;
    let room = 1 << (8 * (4 - others.len()));
    if *last >= room || others.iter().any(|number| *number > 255) {
        return Err(UrlError::Host);
    }
    let address = others
        .iter()
        .zip([24, 16, 8])
        .fold(*last, |address, (number, shift)| address | number << shift);
    Ok(Ipv4Addr::from(address as u32))
}

/// A number of an address: decimal, octal behind a 0, hexadecimal behind 0x. Beyond 64 bits it is
/// the largest.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [] => return None,
        [b'0', b'x', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.is_empty() {
        return Some(0);
    }
    digits
        .chars()
        .all(|digit| digit.is_digit(radix))
        .then(|| u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

/// What separates segments, also where it should not.
const SLASHES: [char; 2] = ['/', '\\'];

/// What is taken out wherever it stands.
const NEVER_MEANT: [char; 3] = ['\t', '\n', '\r'];

/// Beside controls and space (WHATWG URL, forbidden domain code points).
const FORBIDDEN: &[u8] = b"#/:<>?@[\\]^|%\x7f";

/// The path and the special-query percent-encode sets, as the library for all URLs has them.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');
const QUERY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\'');

#[cfg(all(test, feature = "idn"))]
mod tests;
