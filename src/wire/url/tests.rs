//! How URLs are parsed, and their parts.

use super::*;
use proptest::prelude::*;

fn check(input: &str, canonical: &str) {
    let url = CrawlUrl::parse(input).expect(input);
    assert_eq!(url.as_str(), canonical, "{input}");
    let again = CrawlUrl::parse(canonical).expect(canonical);
    assert_eq!(
        again, url,
        "the canonical form must be its own canonical form"
    );
    assert_eq!(
        format!("{}{}", url.origin(), url.request_target()),
        canonical
    );
    let (host, target) = (url.host_str(), url.request_target());
    assert_eq!(
        CrawlUrl::from_parts(url.is_https(), host, url.port(), target),
        url,
        "it can be rebuilt from its parts"
    );
    assert_eq!(CrawlUrl::from_canonical(canonical), Some(url));
}

fn refused(input: &str, code: &str) {
    let error = CrawlUrl::parse(input).expect_err(input);
    assert_eq!(error.code(), code, "{input}: {error}");
}

fn url(input: &str) -> CrawlUrl {
    CrawlUrl::parse(input).expect(input)
}

#[test]
fn different_spellings_have_one_canonical_form() {
    check("HTTP://Example.COM", "http://example.com/");
    check("http://example.com:80/", "http://example.com/");
    check("https://a.test:80/?q", "https://a.test:80/?q");
    check("http://a.test:65535/x?y=z", "http://a.test:65535/x?y=z");
    check("https://example.com:443/x", "https://example.com/x");
    check(
        "http://example.com/a/./b/../c#top",
        "http://example.com/a/c",
    );
    check(" http://exa\nmple.com/\t", "http://example.com/");
    check("http://example.com./x", "http://example.com/x");
    check("http://a.test/ü?ü", "http://a.test/%C3%BC?%C3%BC");
    check(
        "http://XN--bcher-kva.example",
        "http://xn--bcher-kva.example/",
    );
    check("http://0x7f.1/", "http://127.0.0.1/");
    check("http://[0:0:0:0:0:0:0:1]:8080", "http://[::1]:8080/");
    check("http:\\\\example.com\\a", "http://example.com/a");
}

#[test]
fn a_host_may_have_letters_of_any_script() {
    check(
        "http://bücher.example/ü",
        "http://xn--bcher-kva.example/%C3%BC",
    );
    check("http://пример.рф", "http://xn--e1afmkfd.xn--p1ai/");
    refused("http://xn--a.test/", "host");
}

#[test]
fn hex_digits_of_the_path_are_upper_cased_and_nothing_is_decoded() {
    check(
        "http://a.test/%7euser/%2f%c3%bc",
        "http://a.test/%7Euser/%2F%C3%BC",
    );
    check("http://a.test/100%", "http://a.test/100%");
    check("http://a.test/%%3a%zz", "http://a.test/%%3A%zz");
}

#[test]
fn the_query_is_kept_as_it_is() {
    check("http://a.test/?b=%3a&a=&&=", "http://a.test/?b=%3a&a=&&=");
    check("http://a.test/x?", "http://a.test/x?");
    assert_eq!(url("http://a.test/x?").query(), Some(""));
    assert_eq!(url("http://a.test/x").query(), None);
}

#[test]
fn credentials_are_dropped() {
    check("http://user:secret@a.test:81/x", "http://a.test:81/x");
}

#[test]
fn a_url_that_cannot_be_fetched_has_a_specific_error() {
    for input in [
        "mailto:a@b.test",
        "javascript:void(0)",
        "data:,x",
        "ftp://a.test/",
        "tel:1",
    ] {
        refused(input, "scheme");
    }
    refused("", "empty");
    refused(" \n", "empty");
    refused("/path", "relative");
    refused("http://", "no_host");
    refused("http://./", "no_host");
    refused("http://a b/", "host");
    refused("http://[::1", "host");
    refused("http://a.test:99999/", "port");
    refused(&format!("http://a.test/{}", "x".repeat(70_000)), "long");
    refused(&format!("http://a.test/{}", "ü".repeat(20_000)), "long");
}

#[test]
fn the_parts_of_a_url_are_correct() {
    let url = url("https://www.example.co.uk:8443/a/b?c=d?e");
    assert!(url.is_https());
    assert_eq!(url.host(), Host::Name("www.example.co.uk"));
    assert_eq!(url.port(), 8443);
    assert_eq!(url.scope_key(), "www.example.co.uk:8443");
    assert_eq!(url.origin(), "https://www.example.co.uk:8443");
    assert_eq!(url.path(), "/a/b");
    assert_eq!(url.query(), Some("c=d?e"));
    assert_eq!(url.request_target(), "/a/b?c=d?e");
    assert_eq!(url.registrable_domain(), "example.co.uk");
}

#[test]
fn http_and_https_on_default_ports_share_a_scope_but_no_origin() {
    let (plain, secure) = (url("http://a.test/"), url("https://a.test/"));
    assert_eq!((plain.port(), secure.port()), (80, 443));
    assert_eq!(plain.scope_key(), secure.scope_key());
    assert_ne!(plain.origin(), secure.origin());
    assert_eq!(url("https://a.test:80/").scope_key(), "a.test:80");
}

#[test]
fn a_host_may_be_an_address() {
    let v6 = url("http://[2001:db8::1]:8080/");
    assert_eq!(v6.host(), Host::Address("2001:db8::1".parse().unwrap()));
    assert_eq!(v6.scope_key(), "[2001:db8::1]:8080");
    assert_eq!(v6.registrable_domain(), "[2001:db8::1]");
    let v4 = url("http://127.1/");
    assert_eq!(v4.host(), Host::Address("127.0.0.1".parse().unwrap()));
    assert_eq!(v4.registrable_domain(), "127.0.0.1");
}

#[test]
fn a_host_without_a_registrable_domain_is_its_own() {
    assert_eq!(
        url("http://localhost:8000/").registrable_domain(),
        "localhost"
    );
    assert_eq!(url("http://co.uk/").registrable_domain(), "co.uk");
    assert_eq!(
        url("http://a.me.github.io/").registrable_domain(),
        "me.github.io"
    );
    assert_eq!(url("http://b.a.test/").registrable_domain(), "a.test");
}

#[test]
fn references_are_resolved_against_their_page() {
    let page = url("https://a.test/dir/page?q#f");
    let joined = |reference: &str| page.join(reference).map(|url| url.to_string());
    assert_eq!(joined("x"), Ok("https://a.test/dir/x".to_owned()));
    assert_eq!(joined("?z"), Ok("https://a.test/dir/page?z".to_owned()));
    assert_eq!(joined(""), Ok("https://a.test/dir/page?q".to_owned()));
    assert_eq!(joined("//b.test"), Ok("https://b.test/".to_owned()));
    assert_eq!(joined("///b.test/x"), Ok("https://b.test/x".to_owned()));
    assert_eq!(joined("/\\/b.test/x"), Ok("https://b.test/x".to_owned()));
    assert_eq!(joined("../../../x"), Ok("https://a.test/x".to_owned()));
    assert_eq!(joined("mailto:x").unwrap_err().code(), "scheme");
    let given = CrawlUrl::parse_with_base("http://a.test/x/", "../y").unwrap();
    assert_eq!(given.as_str(), "http://a.test/y");
}

#[test]
fn every_url_has_a_request_target_for_robots_rules() {
    let target = |input: &str| request_target_of(input).unwrap();
    assert_eq!(target("ftp://a.test/x?y#z"), "/x?y");
    assert_eq!(target("http://a.test"), "/");
    assert_eq!(target("/x y"), "/x%20y");
    assert_eq!(target(""), "/");
}

#[test]
fn a_seed_may_be_a_bare_host() {
    let seed = |line: &str| CrawlUrl::parse_seed(line).map(|url| url.to_string());
    assert_eq!(seed(" example.com "), Ok("http://example.com/".to_owned()));
    assert_eq!(
        seed("example.com:8080/x"),
        Ok("http://example.com:8080/x".to_owned())
    );
    assert_eq!(seed("localhost:80"), Ok("http://localhost/".to_owned()));
    assert_eq!(seed("localhost/a:b"), Ok("http://localhost/a:b".to_owned()));
    assert_eq!(seed("127.0.0.1"), Ok("http://127.0.0.1/".to_owned()));
    assert_eq!(seed("[::1]:81/x"), Ok("http://[::1]:81/x".to_owned()));
    assert_eq!(
        seed("//example.com/x"),
        Ok("http://example.com/x".to_owned())
    );
    assert_eq!(
        seed("https://example.com"),
        Ok("https://example.com/".to_owned())
    );
}

#[test]
fn an_invalid_seed_has_a_specific_error() {
    let code = |line: &str| CrawlUrl::parse_seed(line).unwrap_err().code();
    assert_eq!(code("  "), "empty");
    assert_eq!(code("nonsense"), "relative");
    assert_eq!(code("/path"), "relative");
    assert_eq!(code("not a url.com"), "host");
    assert_eq!(code("mailto:a@b.test"), "scheme");
    assert_eq!(code("ftp://a.test/"), "scheme");
    assert_eq!(code("example.com:99999"), "port");
}

#[test]
fn parameters_are_dropped_by_name_and_by_prefix() {
    let patterns = [
        "utm_*".to_owned(),
        "PHPSESSID".to_owned(),
        "jsessionid".to_owned(),
    ];
    let dropped = |input: &str| url(input).drop_parameters(&patterns).to_string();
    assert_eq!(
        dropped("http://a.test/?a=1&utm_source=x&b"),
        "http://a.test/?a=1&b"
    );
    assert_eq!(dropped("http://a.test/?phpsessid=1"), "http://a.test/");
    assert_eq!(
        dropped("http://a.test/x;jsessionid=A1/y?q"),
        "http://a.test/x/y?q"
    );
    assert_eq!(
        dropped("http://a.test/x;v=1?utm=1&"),
        "http://a.test/x;v=1?utm=1&"
    );
    let cut = url("http://a.test/x?utm_a=1&z=2").drop_parameters(&patterns);
    assert_eq!(cut, url("http://a.test/x?z=2"));
    assert_eq!(cut.query(), Some("z=2"));
    assert_eq!(
        dropped("http://a.test/x/..;jsessionid=1/y"),
        "http://a.test/y"
    );
}

#[test]
fn a_text_without_a_part_of_a_url_is_not_split() {
    let long = format!("http://a.test/{}", "x".repeat(LENGTH_MAX));
    for text in [
        "",
        "http",
        "ftp://a.test/",
        "http:/a.test/",
        "http://a.test",
        "http:///",
        "http://:80/",
        "http://a.test:/",
        "http://a.test:65536/",
        "http://[::1/",
        "http://[::1]x/",
        "http://a.test?/",
        "http://u@a.test/",
        "http://a.test/ü",
        "http://a.test/ ",
        &long,
    ] {
        assert_eq!(CrawlUrl::from_canonical(text), None, "{text:.40}");
    }
}

#[test]
fn a_query_value_is_decoded_as_in_a_form() {
    let value = |query: &str, name: &str| url(&format!("http://a.test/?{query}")).query_value(name);
    assert_eq!(value("a=1&b=2&a=3", "a"), Some("1".to_owned()));
    assert_eq!(
        value("&&x%3D=a+b%2Bc=%C3%BC", "x="),
        Some("a b+c=ü".to_owned())
    );
    assert_eq!(value("a+b", "a b"), Some(String::new()));
    assert_eq!(value("a=%ff%zz%", "a"), Some("\u{fffd}%zz%".to_owned()));
    assert_eq!(value("a=1", "b"), None);
}

#[test]
fn a_url_costs_its_text_and_24_bytes() {
    assert_eq!(size_of::<CrawlUrl>(), 24);
}

proptest! {
    #[test]
    fn every_valid_url_has_one_canonical_form(
        input in "(https?:/{0,3})?([a-z0-9.:@%ü\\[\\]-]{0,12})(/[a-z.%;/ü]{0,12})?([?#]\\PC{0,12}){0,2}",
        patterns in proptest::collection::vec("[a-z]?[*]?", 0..3),
    ) {
        for url in [CrawlUrl::parse(&input), CrawlUrl::parse_seed(&input)].into_iter().flatten() {
            let url = url.clone().drop_parameters(&patterns);
            prop_assert_eq!(&CrawlUrl::parse(url.as_str()).unwrap(), &url);
            prop_assert_eq!(CrawlUrl::from_canonical(url.as_str()), Some(url.clone()));
            prop_assert_eq!(format!("{}{}", url.origin(), url.request_target()), url.as_str());
            prop_assert!(url.path().starts_with('/'));
            prop_assert!(!url.host_str().is_empty());
            prop_assert!(url.scope_key().starts_with(url.host_str()));
            prop_assert!(url.scope_key().ends_with(url.registrable_domain()) || url.authority() != url.host_str());
        }
    }
}
