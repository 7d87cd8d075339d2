//! Detects replies from intermediate caches, whose latency and rate limits are a poor measure of the
//! origin.
//!
//! Hand-written: apart from `Cache-Status` (RFC 9211) each cache has its own fields and words, and how
//! they outweigh each other is decided here.

use super::http::Headers;
use super::structured;

/// Returns whether an intermediate cache answered instead of the origin; `None` if the reply does
/// not show it.
///
/// One hit anywhere decides: in `X-Cache: HIT, MISS` the cache far from us answered, in `MISS, HIT`
/// the near one, and in both cases the origin did no work. Fields that a near cache stored with the
/// reply cannot turn a miss into a hit, because then the near cache itself hit. A reply that the
/// origin only confirmed (304 to a revalidating cache) counts as cached: its body cost the origin
/// nothing. `Age` is used only if no other field decides.
pub fn is_cached(headers: &Headers) -> Option<bool> {
    if !headers.may_begin_with_any(&BEGINNINGS)
        || !headers.names().any(|name| source_of(name).is_some())
    {
        return None;
    }
    let mut is_hit = None;
    let mut aged = false;
    for (name, value) in headers.iter() {
        // A hit is greater than a miss, and a miss greater than no information.
        match source_of(name.as_bytes()) {
            Some(Source::Words) => is_hit = is_hit.max(by_words(value)),
            Some(Source::CacheStatus) => is_hit = is_hit.max(by_cache_status(value)),
            Some(Source::Varnish) => is_hit = is_hit.max(by_varnish(value)),
            Some(Source::Age) => aged |= is_aged(value),
            None => {}
        }
    }
    // An Age of zero occurs both in replies fresh from the origin and in those just stored.
    is_hit.or(aged.then_some(true))
}

#[derive(Clone, Copy)]
enum Source {
    Words,
    CacheStatus,
    Varnish,
    Age,
}

/// The fields set by caches that describe the reply itself. `X-Cache-Lookup` is not among them: it
/// describes what a cache had, not what it used.
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

/// How they begin.
const BEGINNINGS: [[u8; 2]; 4] = [*b"ag", *b"ca", *b"cf", *b"x-"];

fn source_of(name: &[u8]) -> Option<Source> {
    // Most names are excluded by their second letter.
    let begins = name.get(..2)?;
    if !BEGINNINGS
        .iter()
        .any(|known| begins.eq_ignore_ascii_case(known))
    {
        return None;
    }
    let is = |known: &&(&str, _)| name.eq_ignore_ascii_case(known.0.as_bytes());
    SOURCES.iter().find(is).map(|(_, source)| *source)
}

/// `HIT`, `TCP_REFRESH_HIT from …`, `Miss from cloudfront`, `HIT-FOR-PASS`; one phrase per cache.
fn by_words(value: &[u8]) -> Option<bool> {
    let caches = value.split(|&byte| byte == b',');
    caches.map(by_phrase).max().flatten()
}

/// The last deciding word counts: a hit for pass is a pass. The text after `from` is a name.
fn by_phrase(phrase: &[u8]) -> Option<bool> {
    phrase
        .split(|byte| !byte.is_ascii_alphabetic())
        .take_while(|word| !word.eq_ignore_ascii_case(b"from"))
        .filter_map(is_hit_word)
        .last()
}

fn is_hit_word(word: &[u8]) -> Option<bool> {
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

/// One member per cache (RFC 9211 section 2).
fn by_cache_status(value: &[u8]) -> Option<bool> {
    let caches = structured::members(value).map(|member| {
        let (_, parameters) = structured::item(member);
        let mut is_hit = None;
        for parameter in parameters {
            is_hit = is_hit.max(match parameter {
                (b"hit", None | Some(b"?1")) => Some(true),
                // The cached reply was confirmed by the origin.
                (b"fwd-status", Some(b"304")) => Some(true),
                (b"fwd", Some(_)) => Some(false),
                _ => None,
            });
        }
        is_hit
    });
    caches.max().flatten()
}

/// The id of this request, followed after a hit by that of the request whose reply was stored.
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

/// Returns whether the value is a number of seconds above zero (RFC 9111 section 5.1).
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
    fn a_reply_without_cache_fields_is_undecided() {
        check("", None);
        check(
            "Cache-Control: max-age=60\nX-Cache-Lookup: HIT from proxy",
            None,
        );
        check("X-Cache: Error from cloudfront", None);
        check("CF-Cache-Status: NONE", None);
    }

    #[test]
    fn the_values_of_every_common_cache_are_understood() {
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
    fn a_hit_in_any_cache_counts() {
        check("X-Cache: MISS, HIT", Some(true));
        check("X-Cache: HIT, MISS", Some(true));
        check("X-Cache: MISS, MISS", Some(false));
        check("X-Cache: HIT, HIT", Some(true));
        check("CF-Cache-Status: DYNAMIC\nX-Varnish: 5 3", Some(true));
        check("X-Cache: MISS\nX-Cache: HIT", Some(true));
    }

    #[test]
    fn each_member_of_cache_status_counts() {
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
    fn two_ids_in_x_varnish_are_a_hit() {
        check("X-Varnish: 123456", Some(false));
        check("X-Varnish: 123456 98765", Some(true));
        check("X-Varnish: 123456\nX-Varnish: 5 3", Some(true));
        check("X-Varnish: yes it is", None);
        check("X-Varnish:", None);
    }

    #[test]
    fn age_counts_only_without_other_fields() {
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
        fn no_value_makes_the_parser_panic(mut value in prop::collection::vec(any::<u8>(), 0..60)) {
            value.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
            for (name, _) in SOURCES {
                is_cached(&Headers::of_lines(&[name.as_bytes(), b": ", &value].concat()));
            }
        }
    }
}
