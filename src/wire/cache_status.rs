//! Whether a reply came out of a cache on the way, so that its speed and its limits say little of
//! the origin.

use super::http::Headers;
use super::structured;

/// Whether a cache on the way answered for the origin; `None` where the reply does not say.
///
/// One hit anywhere decides: in `X-Cache: HIT, MISS` the cache far from us answered, in
/// `MISS, HIT` the near one, and either way the origin did no work. What a near cache stored with
/// the reply when it fetched it cannot make a hit of a miss, for then it hit itself. A reply that
/// the origin only confirmed (304 to a cache that revalidates) counts as cached: its body cost
/// nothing there. `Age` is believed only if nothing else speaks.
pub fn is_cached(headers: &Headers) -> Option<bool> {
    if !headers.begin_with_any(b"acx") || !headers.names().any(|name| source_of(name).is_some()) {
        return None;
    }
    let mut told = None;
    let mut aged = false;
    for (name, value) in headers.iter() {
        // A hit is greater than a miss, and a miss than nothing.
        match source_of(name.as_bytes()) {
            Some(Source::Words) => told = told.max(by_words(value)),
            Some(Source::CacheStatus) => told = told.max(by_cache_status(value)),
            Some(Source::Varnish) => told = told.max(by_varnish(value)),
            Some(Source::Age) => aged |= is_aged(value),
            None => {}
        }
    }
    // An Age of zero has a reply fresh from the origin, and one that was stored just now.
    told.or(aged.then_some(true))
}

#[derive(Clone, Copy)]
enum Source {
    Words,
    CacheStatus,
    Varnish,
    Age,
}

/// The fields in which caches speak, as far as they mean the reply itself: `X-Cache-Lookup`
/// tells what a cache had, not what it used.
const SOURCES: &[(&str, Source)] = &[
    ("age", Source::Age),
    ("x-cache", Source::Words),
    ("cf-cache-status", Source::Words),
    ("cache-status", Source::CacheStatus),
    ("x-cache-status", Source::Words),
    ("x-varnish", Source::Varnish),
    ("x-drupal-cache", Source::Words),
    ("x-proxy-cache", Source::Words),
    ("x-fastcgi-cache", Source::Words),
    ("x-litespeed-cache", Source::Words),
];

fn source_of(name: &[u8]) -> Option<Source> {
    // Most names end at their second letter.
    let begins_so = matches!(
        (name.first()?, name.get(1)?),
        (b'a' | b'A', b'g' | b'G') | (b'c' | b'C', b'a' | b'A' | b'f' | b'F') | (b'x' | b'X', b'-')
    );
    if !begins_so {
        return None;
    }
    let is = |known: &&(&str, _)| name.eq_ignore_ascii_case(known.0.as_bytes());
    SOURCES.iter().find(is).map(|(_, source)| *source)
}

/// `HIT`, `TCP_REFRESH_HIT from …`, `Miss from cloudfront`, `HIT-FOR-PASS`, one for each cache.
fn by_words(value: &[u8]) -> Option<bool> {
    let caches = value.split(|&byte| byte == b',');
    caches.map(by_phrase).max().flatten()
}

/// The last word that decides does: a hit for pass is a pass. What comes after `from` is a name.
fn by_phrase(phrase: &[u8]) -> Option<bool> {
    phrase
        .split(|byte| !byte.is_ascii_alphabetic())
        .take_while(|word| !word.eq_ignore_ascii_case(b"from"))
        .filter_map(verdict)
        .last()
}

fn verdict(word: &[u8]) -> Option<bool> {
    let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
    let ends = |end: &[u8]| {
        let start = word.len().checked_sub(end.len());
        start.is_some_and(|start| word[start..].eq_ignore_ascii_case(end))
    };
    if ends(b"hit") || is(b"stale") || is(b"updating") || is(b"revalidated") {
        Some(true)
    } else if ends(b"miss") || ends(b"pass") || is(b"expired") || is(b"dynamic") {
        Some(false)
    } else {
        None
    }
}

/// One member for each cache (RFC 9211 section 2).
fn by_cache_status(value: &[u8]) -> Option<bool> {
    let caches = structured::members(value).map(|member| {
        let (_, parameters) = structured::item(member);
        let mut told = None;
        for parameter in parameters {
            told = told.max(match parameter {
                (b"hit", None | Some(b"?1")) => Some(true),
                // What it had was confirmed.
                (b"fwd-status", Some(b"304")) => Some(true),
                (b"fwd", Some(_)) => Some(false),
                _ => None,
            });
        }
        told
    });
    caches.max().flatten()
}

/// The number of this request; behind it, if it was a hit, that of the request that was stored.
fn by_varnish(value: &[u8]) -> Option<bool> {
    let numbers = value
        .split(u8::is_ascii_whitespace)
        .filter(|number| !number.is_empty());
    let mut count = 0;
    for number in numbers {
        if !number.iter().all(u8::is_ascii_digit) {
            return None;
        }
        count += 1;
    }
    match count {
        0 => None,
        1 => Some(false),
        _ => Some(true),
    }
}

/// Whether seconds are told, and more than none (RFC 9111 section 5.1).
fn is_aged(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_digit) && value.iter().any(|&digit| digit != b'0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(lines: &str, expected: Option<bool>) {
        let headers = Headers::of_lines(lines.as_bytes());
        assert_eq!(is_cached(&headers), expected, "{lines}");
    }

    #[test]
    fn a_reply_that_speaks_of_no_cache_says_nothing() {
        check("", None);
        check(
            "Cache-Control: max-age=60\nX-Cache-Lookup: HIT from proxy",
            None,
        );
        check("X-Cache: Error from cloudfront", None);
        check("CF-Cache-Status: NONE", None);
    }

    #[test]
    fn every_maker_of_caches_has_words_of_its_own() {
        for hit in [
            "X-Cache: HIT",
            "x-cache: hit",
            "X-Cache: HIT from proxy.example:3128",
            "X-Cache: Hit from cloudfront",
            "X-Cache: RefreshHit from cloudfront",
            "X-Cache: TCP_HIT",
            "X-Cache: TCP_MEM_HIT from a23-1-2-3.deploy.akamaitechnologies.com (AkamaiGHost)",
            "X-Cache: TCP_REFRESH_HIT",
            "CF-Cache-Status: HIT",
            "CF-Cache-Status: STALE",
            "CF-Cache-Status: UPDATING",
            "CF-Cache-Status: REVALIDATED",
            "X-Cache-Status: HIT",
            "X-Proxy-Cache: HIT",
            "X-Drupal-Cache: HIT",
            "X-FastCGI-Cache: STALE",
            "X-LiteSpeed-Cache: hit,private",
        ] {
            check(hit, Some(true));
        }
        for miss in [
            "X-Cache: MISS",
            "X-Cache: Miss from cloudfront",
            "X-Cache: MISS from hit.example",
            "X-Cache: TCP_MISS",
            "X-Cache: TCP_REFRESH_MISS",
            "X-Cache: HIT-FOR-PASS",
            "X-Cache: hit for miss",
            "X-Cache: HITPASS",
            "CF-Cache-Status: MISS",
            "CF-Cache-Status: EXPIRED",
            "CF-Cache-Status: BYPASS",
            "CF-Cache-Status: DYNAMIC",
            "X-Drupal-Cache: MISS",
        ] {
            check(miss, Some(false));
        }
    }

    #[test]
    fn one_hit_on_the_way_is_enough() {
        check("X-Cache: MISS, HIT", Some(true));
        check("X-Cache: HIT, MISS", Some(true));
        check("X-Cache: MISS, MISS", Some(false));
        check("X-Cache: HIT, HIT", Some(true));
        check("CF-Cache-Status: DYNAMIC\nX-Varnish: 5 3", Some(true));
        check("X-Cache: MISS\nX-Cache: HIT", Some(true));
    }

    #[test]
    fn cache_status_tells_each_cache_apart() {
        check("Cache-Status: ExampleCache; hit", Some(true));
        check("Cache-Status: \"Edge, 1\"; hit=?1; ttl=30", Some(true));
        check("Cache-Status: Edge; hit=?0", None);
        check("Cache-Status: Edge; fwd=uri-miss; stored", Some(false));
        check(
            "Cache-Status: Origin; hit; ttl=1100, \"CDN\"; fwd=uri-miss",
            Some(true),
        );
        check(
            "Cache-Status: Origin; fwd=miss, \"CDN\"; fwd=bypass",
            Some(false),
        );
        check("Cache-Status: Edge; fwd=stale; fwd-status=304", Some(true));
        check("Cache-Status: Edge; fwd=stale; fwd-status=200", Some(false));
        check("Cache-Status: \"a; hit\"; fwd=miss", Some(false));
        check("Cache-Status: hit", None);
    }

    #[test]
    fn two_numbers_of_varnish_are_a_hit() {
        check("X-Varnish: 123456", Some(false));
        check("X-Varnish: 123456 98765", Some(true));
        check("X-Varnish: 123456\nX-Varnish: 5 3", Some(true));
        check("X-Varnish: yes it is", None);
        check("X-Varnish:", None);
    }

    #[test]
    fn age_is_believed_when_nothing_else_speaks() {
        check("Age: 5", Some(true));
        check("Age: 0", None);
        check("Age: -5", None);
        check("Age: old", None);
        check("Age: 5\nX-Cache: MISS", Some(false));
        check("Age: 0\nX-Cache: HIT", Some(true));
        check("Age: 5\nX-Cache: what", Some(true));
    }

    proptest! {
        #[test]
        fn no_value_breaks_the_reading(mut value in prop::collection::vec(any::<u8>(), 0..60)) {
            value.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
            for (name, _) in SOURCES {
                is_cached(&Headers::of_lines(&[name.as_bytes(), b": ", &value].concat()));
            }
        }
    }
}
