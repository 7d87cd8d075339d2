//! Keys of URLs in the indexes of web archives: `com,example)/path?query`, by SURT (Sort-friendly URI
//! Reordering Transform) with the canonical form of the Internet Archive.
//!
//! Hand-written: a reader finds a page only if it computes the same key, and the readers use `surt` for Python,
//! which no crate reproduces. What it does with odd URLs is done here, too; the tests compare them.

mod path;
mod query;

use std::net::Ipv4Addr;

use crate::wire::url::ascii_host;

/// The key of a URL: graphic ASCII without spaces, so that it ends at the first space of an index line.
///
/// A URL of which `surt` makes no key, because its port is none, is its own key.
pub fn key_of(url: &str) -> String {
    let bytes = match url.starts_with("filedesc") {
        true => None,
        false => surt(url),
    };
    let bytes = bytes.unwrap_or_else(|| url.as_bytes().to_vec());
    let mut key = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte.is_ascii_graphic() {
            true => key.push(char::from(byte)),
            false => push_escaped(byte, &mut key),
        }
    }
    key
}

/// A URL split by RFC 3986, appendix B.
struct Parts<'a> {
    scheme: &'a [u8],
    authority: &'a [u8],
    path: &'a [u8],
    query: &'a [u8],
}

fn surt(url: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = (url.trim_matches(is_space).bytes())
        .filter(|byte| !matches!(byte, b'\n' | b'\r' | b'\t'))
        .collect();
    if text.is_empty() {
        return Some(b"-".to_vec());
    }
    let text = with_scheme(text);
    let parts = split(without_repeated_scheme(&text))?;
    let (mut host, port) = host_and_port(parts.authority)?;
    let mut path = parts.path.to_vec();
    if host.is_empty() && parts.scheme.starts_with(b"http") && !path.is_empty() {
        (host, path) = host_in_path(&path);
    }
    let host = canonical_host(&host);
    let path = path::canonical(unescape(&path), host.is_some());
    let is_default = match parts.scheme.to_ascii_lowercase().as_slice() {
        b"http" => port == Some(80),
        b"https" => port == Some(443),
        _ => false,
    };

    let mut key = Vec::with_capacity(text.len());
    match host {
        Some(host) => {
            let is_massaged = parts.scheme != b"dns";
            let host = if is_massaged {
                without_www(&host)
            } else {
                &host
            };
            for (number, label) in host.rsplit(|byte| *byte == b'.').enumerate() {
                key.extend_from_slice(if number > 0 { b"," } else { b"" });
                key.extend_from_slice(label);
            }
            if let Some(port) = port.filter(|_| !is_default) {
                key.extend_from_slice(format!(":{port}").as_bytes());
            }
            key.push(b')');
        }
        None => {
            key.extend_from_slice(parts.scheme);
            key.push(b':');
        }
    }
    let query = query::canonical(escape(&unescape(parts.query)));
    match path.is_empty() && !query.is_empty() {
        true => key.push(b'/'),
        false => key.extend_from_slice(&path),
    }
    if !query.is_empty() {
        key.push(b'?');
        key.extend_from_slice(&query);
    }
    Some(key)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// What names no scheme is taken for a host.
fn with_scheme(text: Vec<u8>) -> Vec<u8> {
    match scheme_length(&text) {
        Some(_) => text,
        None => [b"http://", &text[..]].concat(),
    }
}

/// The length of a scheme that a colon follows.
fn scheme_length(text: &[u8]) -> Option<usize> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let starts = text.first().is_some_and(u8::is_ascii_alphabetic);
    (starts && text[..colon].iter().all(is_scheme)).then_some(colon)
}

/// `http://https://host/` stands for the latter.
fn without_repeated_scheme(mut text: &[u8]) -> &[u8] {
    let prefix = |text: &[u8]| {
        let prefixes = [&b"http://"[..], b"https://"];
        let found = prefixes.into_iter().find(|prefix| text.starts_with(prefix));
        found.map(<[u8]>::len)
    };
    while let Some(length) = prefix(text) {
        match prefix(&text[length..]) {
            Some(_) => text = &text[length..],
            None => break,
        }
    }
    text
}

fn split(text: &[u8]) -> Option<Parts<'_>> {
    let length = scheme_length(text)?;
    let (scheme, rest) = (&text[..length], &text[length + 1..]);
    let rest = until(rest, |byte| byte == b'#').0;
    let (rest, query) = until(rest, |byte| byte == b'?');
    let (authority, path) = match rest.strip_prefix(b"//") {
        Some(rest) => {
            let (authority, _) = until(rest, |byte| byte == b'/');
            rest.split_at(authority.len())
        }
        None => (&rest[..0], rest),
    };
    Some(Parts {
        scheme,
        authority,
        path,
        query,
    })
}

/// What is before and behind the first such byte; nothing is behind if there is none.
fn until(text: &[u8], is_end: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| is_end(*byte)) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

/// The host, without brackets, and the port; `None` if what stands for the port is none. Names and passwords are
/// left out.
fn host_and_port(authority: &[u8]) -> Option<(Vec<u8>, Option<u16>)> {
    let end = authority.iter().rposition(|byte| *byte != b':');
    let authority = &authority[..end.map_or(0, |end| end + 1)];
    let user = authority.iter().rposition(|byte| *byte == b'@');
    let authority = &authority[user.map_or(0, |at| at + 1)..];
    let (before, bracketed) = until(authority, |byte| byte == b'[');
    let (host, rest) = match before.len() < authority.len() {
        true => until(bracketed, |byte| byte == b']'),
        false => (authority, authority),
    };
    let (name, port) = until(rest, |byte| byte == b':');
    let has_port = name.len() < rest.len();
    let host = match before.len() < authority.len() {
        true => host,
        false => name,
    };
    let port = match has_port {
        true => {
            let is_number = port.iter().all(u8::is_ascii_digit);
            let digits = str::from_utf8(port).ok().filter(|_| is_number);
            Some(digits?.parse().ok()?)
        }
        false => None,
    };
    Some((host.to_vec(), port.filter(|port| *port > 0)))
}

/// The host of `http:////host/path`, and the rest.
fn host_in_path(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let start = path.iter().position(|byte| *byte != b'/');
    let (host, rest) = until(&path[start.unwrap_or(path.len())..], |byte| byte == b'/');
    (host.to_vec(), [b"/", rest].concat())
}

/// A host in lower case and ASCII, addresses with four numbers; `None` if nothing is left.
fn canonical_host(host: &[u8]) -> Option<Vec<u8>> {
    let mut host = unescape(host);
    if !host.is_ascii() {
        let text: String = host.utf8_chunks().map(|chunk| chunk.valid()).collect();
        if let Some(ascii) = ascii_host(&text) {
            host = ascii.into_bytes();
        }
    }
    let mut single = Vec::with_capacity(host.len());
    let mut rest = &host[..];
    while let [first, next @ ..] = rest {
        single.push(*first);
        rest = match (first, next) {
            (b'.', [b'.', ..]) => &next[1..],
            _ => next,
        };
    }
    let start = single.iter().position(|byte| *byte != b'.')?;
    let end = single.iter().rposition(|byte| *byte != b'.')?;
    let host = &single[start..=end];
    Some(match address(host) {
        Some(address) => address.to_string().into_bytes(),
        None => escape(&host.to_ascii_lowercase()).to_ascii_lowercase(),
    })
}

/// The address that a host of numbers stands for, as the C library reads it: `1.2` is `1.0.0.2`, and a number that
/// begins with 0 is octal. One number alone is always decimal.
fn address(host: &[u8]) -> Option<Ipv4Addr> {
    let text = str::from_utf8(host).ok()?;
    if host.iter().all(u8::is_ascii_digit) {
        let modulo =
            |value: u32, digit: u8| value.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'));
        return Some(host.iter().copied().fold(0, modulo).into());
    }
    let numbers: Vec<&str> = text.split('.').collect();
    let is_number =
        |number: &&str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    // Where the first is octal, all have octal digits.
    let is_octal = text.starts_with('0') && !text.contains(['8', '9']);
    if numbers.len() > 4 || !numbers.iter().all(is_number) || text.starts_with('0') != is_octal {
        return None;
    }
    let value = |number: &&str| match number.starts_with('0') {
        true => u32::from_str_radix(number, 8).ok(),
        false => number.parse().ok(),
    };
    let values: Option<Vec<u32>> = numbers.iter().map(value).collect();
    let values = values?;
    let (last, first) = values.split_last()?;
    let left = 32 - 8 * first.len() as u32;
    if first.iter().any(|value| *value > 255) || u64::from(*last) >= 1 << left {
        return None;
    }
    let high = first
        .iter()
        .fold(0_u64, |high, value| high << 8 | u64::from(*value));
    Some(((high << left) as u32 | last).into())
}

/// Without `www.`, or `www` and a number.
fn without_www(host: &[u8]) -> &[u8] {
    let Some(rest) = host.strip_prefix(b"www") else {
        return host;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b".").unwrap_or(host)
}

/// Percent-decodes until nothing is left to decode, in one pass: what a decoded byte completes is decoded at once,
/// and no two escapes overlap, so that the order does not matter.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        out.push(*byte);
        while let [.., b'%', high, low] = out[..]
            && let (Some(high), Some(low)) = (digit(high), digit(low))
        {
            out.truncate(out.len() - 3);
            out.push(high << 4 | low);
        }
    }
    out
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Percent-encodes all but graphic ASCII, `#` and `%`.
fn escape(text: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'#' | b'%' => push_escaped(*byte, &mut out),
            byte if byte.is_ascii_graphic() => out.push(char::from(*byte)),
            byte => push_escaped(*byte, &mut out),
        }
    }
    out.into_bytes()
}

fn push_escaped(byte: u8, out: &mut String) {
    let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value)]);
    out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests;
