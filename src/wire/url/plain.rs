//! A fast path for URLs and references that are canonical as written, as most are; a tenth of the cost of
//! full parsing.
//!
//! All other URLs are left to the standard's parser: other letters, escapes, dot segments except those at the
//! beginning of a reference, and names that need further checks.

use std::net::Ipv4Addr;

use super::{CrawlUrl, LENGTH_MAX};

/// Parses a URL that is in canonical form; `None` if that is not certain.
pub(super) fn read(input: &str) -> Option<CrawlUrl> {
    let (host_start, own_port) = match input.strip_prefix("http") {
        Some(rest) if rest.starts_with("://") => (7, 80),
        Some(rest) if rest.starts_with("s://") => (8, 443),
        _ => return None,
    };
    if input.len() > LENGTH_MAX {
        return None;
    }
    let octets = input.as_bytes();
    let path_start = host_start + octets[host_start..].iter().position(|b| *b == b'/')?;
    let target = &octets[path_start..];
    let path_end = target.iter().position(|b| *b == b'?');
    let path_end = path_start + path_end.unwrap_or(target.len());
    let authority = &input[host_start..path_start];
    let (host, port) = match authority.bytes().position(|byte| byte == b':') {
        Some(colon) => {
            let port = port(&authority[colon + 1..]);
            (&authority[..colon], port.filter(|port| *port != own_port)?)
        }
        None => (authority, own_port),
    };
    let path = &octets[path_start..path_end];
    let has_dots = path.windows(2).any(|pair| pair == b"/.");
    let is_plain = is_host(host) && all(path, PATH) && !has_dots && all(&octets[path_end..], QUERY);
    is_plain.then(|| CrawlUrl {
        text: input.into(),
        host_end: (host_start + host.len()) as u16,
        path_start: path_start as u16,
        path_end: path_end as u16,
        port,
    })
}

/// Resolves a reference that is a path or a query in canonical form, with or without a fragment, after any
/// number of `./` and `../`; `None` if that is not certain.
pub(super) fn join(base: &CrawlUrl, reference: &str) -> Option<CrawlUrl> {
    let path_start = usize::from(base.path_start);
    let path_end = usize::from(base.path_end);
    let (mut folder, mut target) = (None, reference);
    if reference.starts_with('.') {
        let mut path = &base.text[path_start..=folder_end(base)];
        loop {
            if let Some(rest) = target.strip_prefix("./") {
                target = rest;
            } else if let Some(rest) = target.strip_prefix("../") {
                target = rest;
                // At the root there is no folder above.
                let parent = path[..path.len() - 1].rfind('/').unwrap_or(0);
                path = &path[..=parent];
            } else {
                break;
            }
        }
        folder = Some(path_start + path.len());
    }
    let octets = target.as_bytes();
    let (path, is_plain) = path_of(octets);
    let rest = &octets[path..];
    let length = match rest.first() {
        None | Some(b'#') => path,
        Some(b'?') => path + length_in(rest, QUERY),
        Some(_) => return None,
    };
    if !is_plain || !matches!(octets.get(length), None | Some(b'#')) {
        return None;
    }
    let kept = match (folder, octets.first()) {
        (Some(folder), _) => folder,
        (None, None | Some(b'#')) => return None,
        (None, Some(b'/')) if octets.get(1) == Some(&b'/') => return None,
        (None, Some(b'/')) => path_start,
        (None, Some(b'?')) => path_end,
        // Possibly a scheme.
        (None, Some(_)) if octets[..path].contains(&b':') => return None,
        (None, Some(_)) => folder_end(base) + 1,
    };
    if reference.len() > LENGTH_MAX || kept + length > LENGTH_MAX {
        return None;
    }
    let mut text = String::with_capacity(kept + length);
    text.push_str(&base.text[..kept]);
    text.push_str(&target[..length]);
    Some(CrawlUrl {
        text: text.into(),
        host_end: base.host_end,
        path_start: base.path_start,
        path_end: (kept + path) as u16,
        port: base.port,
    })
}

/// Offset of the last `/` of the path.
fn folder_end(url: &CrawlUrl) -> usize {
    let path_start = usize::from(url.path_start);
    let path = &url.text[path_start..usize::from(url.path_end)];
    path_start + path.rfind('/').expect("a path begins with it")
}

/// Length of the path at the beginning of a reference, and whether no segment begins with a dot.
fn path_of(reference: &[u8]) -> (usize, bool) {
    let (mut before, mut has_dots) = (b'/', false);
    let end = reference.iter().position(|octet| {
        has_dots |= before == b'/' && *octet == b'.';
        before = *octet;
        CLASSES[usize::from(*octet)] & PATH == 0
    });
    (end.unwrap_or(reference.len()), !has_dots)
}

/// The number of first bytes of this class.
fn length_in(octets: &[u8], class: u8) -> usize {
    let end = octets
        .iter()
        .position(|octet| CLASSES[usize::from(*octet)] & class == 0);
    end.unwrap_or(octets.len())
}

/// A port in canonical form.
fn port(digits: &str) -> Option<u16> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !digits.starts_with('0'))
        .then(|| digits.parse().ok())
        .flatten()
}

/// Returns whether this is a name that IDNA leaves unchanged, or an IPv4 address in canonical form.
fn is_host(host: &str) -> bool {
    let point = host.bytes().rposition(|byte| byte == b'.');
    let last = &host.as_bytes()[point.map_or(0, |point| point + 1)..];
    if last.first().is_some_and(u8::is_ascii_digit) {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    all(host.as_bytes(), HOST)
        && host.split('.').all(|label| !label.is_empty())
        && !host.contains("xn--")
}

fn all(octets: &[u8], class: u8) -> bool {
    length_in(octets, class) == octets.len()
}

const HOST: u8 = 1;
const PATH: u8 = 2;
const QUERY: u8 = 4;

/// The parts in which each byte is allowed and has no special meaning.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut octet = 0_u8;
    while octet < 128 {
        if octet.is_ascii_lowercase() || octet.is_ascii_digit() {
            classes[octet as usize] = HOST | PATH | QUERY;
        } else if octet.is_ascii_uppercase() {
            classes[octet as usize] = PATH | QUERY;
        }
        octet += 1;
    }
    let others: [(&[u8], u8); 4] = [
        (b"-.", HOST | PATH | QUERY),
        (b"_~!$&()*+,;=:@/", PATH | QUERY),
        (b"'", PATH),
        (b"?%", QUERY),
    ];
    let mut group = 0;
    while group < others.len() {
        let (octets, class) = others[group];
        let mut at = 0;
        while at < octets.len() {
            classes[octets[at] as usize] = class;
            at += 1;
        }
        group += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_urls_take_the_fast_path() {
        for url in [
            "http://example.com/",
            "https://www.example.co.uk:8443/a/b.html?q=%20x&y=1",
            "http://127.0.1.250:18080/p1",
            "https://a-b.test/A//~user/(x);y=1,2?",
        ] {
            assert_eq!(read(url).expect(url).as_str(), url);
        }
    }

    #[test]
    fn other_urls_are_left_to_the_full_parser() {
        for url in [
            "HTTP://a.test/",
            "http://a.test",
            "http://A.test/",
            "http://a.test./",
            "http://a..test/",
            "http://xn--a.test/",
            "http://a.test:80/",
            "http://a.test:080/",
            "http://a.test:/",
            "http://u@a.test/",
            "http://127.1/",
            "http://1.2.3.04/",
            "http://a.0x1/",
            "http://[::1]/",
            "http://a.test/./b",
            "http://a.test/%2e/",
            "http://a.test/a b",
            "http://a.test/#x",
            "http://a.test/?'",
            "http://a.test/ä",
            "ftp://a.test/",
            " http://a.test/",
        ] {
            assert_eq!(read(url), None, "{url}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn the_fast_path_agrees_with_the_standard(
            url in "https?://([a-z0-9.:-]{1,12}|[0-9.]{7,11}|[a-z]{1,3}[.]test)(:[0-9]{1,5})?/([ -~]{0,12}|[a-zA-Z0-9/._~?=&'%-]{0,16})",
        ) {
            if let Some(plain) = read(&url) {
                prop_assert_eq!(Ok(plain), super::super::parse(&url, None).and_then(super::super::Parsed::into_crawl_url));
            }
        }
    }
}
