//! What is a link and what is not.

use super::element::candidates;
use super::*;
use crate::wire::url::LENGTH_MAX;
use proptest::prelude::*;

fn found(html: &str, options: &LinkOptions<'_>) -> Found {
    let page = CrawlUrl::parse("http://a.test/dir/page?q").unwrap();
    links(html, &page, options)
}

fn urls(html: &str, options: &LinkOptions<'_>) -> Vec<String> {
    let links = found(html, options).links;
    links.iter().map(|link| link.url.to_string()).collect()
}

fn check(html: &str, expected: &[&str]) {
    assert_eq!(urls(html, &LinkOptions::default()), expected, "{html}");
}

const RESOURCES: LinkOptions<'static> = LinkOptions {
    resources: true,
    nofollow: true,
    agent: "argiope",
    links_max: 10_000,
};

#[test]
fn anchors_areas_and_frames_are_links() {
    check(
        "<a href=x>1</a><AREA HREF='/y'><iframe src=\"z\"></iframe><frame src=w><b href=no src=no>",
        &[
            "http://a.test/dir/x",
            "http://a.test/y",
            "http://a.test/dir/z",
            "http://a.test/dir/w",
        ],
    );
}

#[test]
fn page_resources_are_links_by_setting() {
    let html = "<link rel=stylesheet href=1><img src=2 srcset='3 1x, 4,x 2x'><script src=5></script>\
        <source src=6 srcset=7><form action=8></form><form method=post action=no></form>\
        <form method=GET action=9></form><link rel=preconnect href=//no.test>";
    check(html, &[]);
    let numbers: Vec<String> = urls(html, &RESOURCES)
        .iter()
        .map(|url| url.replace("http://a.test/dir/", ""))
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4,x", "5", "6", "7", "8", "9"]);
}

#[test]
fn the_query_of_a_reference_is_in_the_encoding_of_its_page() {
    let check = |encoding: &str, html: &str, expected: &str| {
        let body = crate::wire::charset::encoded(html, encoding);
        let page = CrawlUrl::parse("http://a.test/dir/page?q").unwrap();
        let content_type = format!("text/html; charset={encoding}");
        let found = links_of(&body, Some(&content_type), &page, &LinkOptions::default());
        assert_eq!(found.links[0].url.as_str(), expected, "{encoding}: {html}");
    };
    let euro = "<a href='/you?c=&euro;'>";
    check("iso-8859-15", euro, "http://a.test/you?c=%A4");
    check("windows-1252", euro, "http://a.test/you?c=%80");
    check("gbk", euro, "http://a.test/you?c=%80");
    check("utf-8", euro, "http://a.test/you?c=%E2%82%AC");
    check("euc-kr", "<a href='?한'>", "http://a.test/dir/page?%C7%D1");
    check("shift_jis", "<a href=?あ>", "http://a.test/dir/page?%82%A0");
    check("windows-1251", "<a href=/п?п>", "http://a.test/%D0%BF?%EF");
    // A character missing in the encoding is written as its number.
    let lacking = "http://a.test/?a%26%238364%3Bb";
    check(
        "iso-8859-1",
        "<a href='/?a&#8364;b'>",
        "http://a.test/?a%80b",
    );
    check(
        "windows-1251",
        "<a href='/?a&#9731;&#xfc;'>",
        "http://a.test/?a%26%239731%3B%26%23252%3B",
    );
    check("iso-8859-2", "<a href='/?a&#8364;b'>", lacking);
    // The same for the query of the base of references.
    check(
        "gbk",
        "<base href='/b?中'><a href='#x'>",
        "http://a.test/b?%D6%D0",
    );
    check("utf-8", "<a href='?ü'>", "http://a.test/dir/page?%C3%BC");
    // A page in UTF-16 has its queries in UTF-8.
    let utf_16 = "\u{feff}<a href=?ü>"
        .encode_utf16()
        .flat_map(u16::to_le_bytes);
    let page = CrawlUrl::parse("http://a.test/").unwrap();
    let found = links_of(
        &utf_16.collect::<Vec<_>>(),
        None,
        &page,
        &LinkOptions::default(),
    );
    assert_eq!(found.links[0].url.as_str(), "http://a.test/?%C3%BC");
}

#[test]
fn a_query_in_iso_2022_jp_cannot_switch_sets_of_characters() {
    let check = |html: &str, expected: &str| {
        let body = crate::wire::charset::encoded(html, "iso-2022-jp");
        let page = CrawlUrl::parse("http://a.test/").unwrap();
        let content_type = Some("text/html; charset=iso-2022-jp");
        let found = links_of(&body, content_type, &page, &LinkOptions::default());
        assert_eq!(found.links[0].url.as_str(), expected, "{html}");
    };
    check("<a href='?a&#27;(Jb'>", "http://a.test/?a%26%2365533%3B(Jb");
    // A line break is removed before the text is encoded.
    check("<a href='?あ&#10;い'>", "http://a.test/?%1B$B$%22$$%1B(B");
}

#[test]
fn a_query_with_too_many_unencodable_characters_is_no_link() {
    let check = |count: usize, links: usize| {
        let html = format!("<a href='?{}'>", "\u{2603}".repeat(count));
        let body = html.replace('\u{2603}', "&#9731;");
        let page = CrawlUrl::parse("http://a.test/").unwrap();
        let mut search = LinkSearch::new(
            body.as_bytes(),
            Some("text/html; charset=big5"),
            &page,
            &LinkOptions::default(),
            65_000,
        );
        let mut units = Units::unbounded();
        let mut found = 0;
        while matches!(search.step(&mut units), Step::Link(_)) {
            found += 1;
        }
        assert_eq!(found, links, "{count}");
        assert!(units.spent() >= 2048 * count.min(256) as u64, "{count}");
    };
    check(1, 1);
    check(256, 1);
    check(257, 0);
    check(20_000, 0);
}

#[test]
fn references_are_read_as_browsers_read_them() {
    check("<a href=' \n/a\tb\r\n '>", &["http://a.test/ab"]);
    check(
        "<a href='?a=1&amp;b=2&copy=3&lt;'>",
        &["http://a.test/dir/page?a=1&b=2&copy=3%3C"],
    );
    check("<a href=\"&#x2F;x&#47;y\">", &["http://a.test/x/y"]);
    check("<a href=/x/>1</a>", &["http://a.test/x/"]);
    check("<a href=/x#top><a href=/x#end>", &["http://a.test/x"]);
    check("<a\nhref\n=\n'/x'>", &["http://a.test/x"]);
    check("<a href='/1' href='/2'>", &["http://a.test/1"]);
    check("<a href href='/2'>", &[]);
    check("<a title='>' href=/x>", &["http://a.test/x"]);
    check("<a href=\"/ü?ü\">", &["http://a.test/%C3%BC?%C3%BC"]);
    check("<a/href=/x>", &["http://a.test/x"]);
}

#[test]
fn a_reference_that_cannot_be_fetched_is_no_link() {
    check(
        "<a href='mailto:x@y.z'><a href='javascript:f()'><a href='data:,'><a href='http://'><a href>\
         <a href='http://a b/'><a href='tel:1'><a name=x>",
        &[],
    );
    let long = format!("<a href='/{}'><a href=/x>", "y".repeat(2 * LENGTH_MAX));
    check(&long, &["http://a.test/x"]);
}

#[test]
fn text_that_looks_like_a_link_is_none() {
    check("<!-- <a href=/x> --><a href=/y>", &["http://a.test/y"]);
    check(
        "<script>'<a href=/x>'</script><a href=/y>",
        &["http://a.test/y"],
    );
    check(
        "<script><!-- <script> </script> <a href=/x> --></script><a href=/y>",
        &["http://a.test/y"],
    );
    check(
        "<style><a href=/x></style><a href=/y>",
        &["http://a.test/y"],
    );
    check(
        "<script>'</style>' <a href=/x></script><a href=/y>",
        &["http://a.test/y"],
    );
    check(
        "<title><a href=/x></title><a href=/y>",
        &["http://a.test/y"],
    );
    check(
        "<textarea><a href=/x></textarea><a href=/y>",
        &["http://a.test/y"],
    );
    check(
        "<iframe><a href=/x></iframe><a href=/y>",
        &["http://a.test/y"],
    );
    check("</a href=/x>&lt;a href=/x&gt;", &[]);
    check("<a href=/x", &[]);
}

#[test]
fn a_crawler_without_scripts_reads_noscript() {
    check("<noscript><a href=/x></noscript>", &["http://a.test/x"]);
}

#[test]
fn other_rules_hold_within_svg() {
    check(
        "<svg><style/><a href=/x></svg><a href=/y>",
        &["http://a.test/x", "http://a.test/y"],
    );
    check(
        "<svg><![CDATA[> <a href=/x>]]></svg><a href=/y>",
        &["http://a.test/y"],
    );
    check("<svg/><style/><a href=/x></style></svg>", &[]);
}

#[test]
fn the_first_base_counts_for_the_whole_page() {
    check(
        "<a href=1><base target=_top><base href='//b.test/x/'><base href='//c.test'><a href=2>",
        &["http://b.test/x/1", "http://b.test/x/2"],
    );
    check("<base href=/sub/><a href=x>", &["http://a.test/sub/x"]);
    check("<base href='http://'><a href=x>", &["http://a.test/dir/x"]);
    check(
        "<base href='javascript:x'><a href=x>",
        &["http://a.test/dir/x"],
    );
    check(
        "<base href='ftp://f.test/'><a href=x><a href='//b.test/y'>",
        &[],
    );
}

#[test]
fn a_refresh_is_a_link() {
    check(
        "<meta http-equiv=Refresh content='0; URL=/x'>",
        &["http://a.test/x"],
    );
    check(
        "<meta http-equiv=refresh content='5;url= \"/x y\" '>",
        &["http://a.test/x%20y"],
    );
    check(
        "<meta http-equiv=refresh content='0.5, /x'>",
        &["http://a.test/x"],
    );
    check(
        "<meta http-equiv=refresh content=\"0 url = '/x'z\">",
        &["http://a.test/x"],
    );
    check(
        "<meta http-equiv=refresh content='0;urlx'>",
        &["http://a.test/dir/urlx"],
    );
    for content in ["5", "", "url=/x", "5x; url=/x", "5; url=", ";"] {
        check(
            &format!("<meta http-equiv=refresh content='{content}'>"),
            &[],
        );
    }
}

#[test]
fn nofollow_links_are_omitted_by_setting() {
    let html = "<a rel='me NoFollow' href=/1><a href=/2 rel=noopener><area rel=nofollow href=/3>";
    check(html, &["http://a.test/2"]);
    let all = LinkOptions {
        nofollow: false,
        ..LinkOptions::default()
    };
    let marks: Vec<bool> = found(html, &all)
        .links
        .iter()
        .map(|link| link.nofollow)
        .collect();
    assert_eq!(marks, [true, false, true]);
}

#[test]
fn a_page_may_forbid_following_any_of_its_links() {
    for name in ["robots", "Argiope"] {
        let html = format!("<a href=/1><meta name={name} content='noindex, nofollow'><a href=/2>");
        let found = found(&html, &LinkOptions::default());
        assert!(found.links.is_empty());
        assert!(found.directives.nofollow && found.directives.noindex);
        let all = LinkOptions {
            nofollow: false,
            ..LinkOptions::default()
        };
        assert_eq!(urls(&html, &all).len(), 2);
    }
    check(
        "<a href=/1><meta name=otherbot content=nofollow>",
        &["http://a.test/1"],
    );
}

#[test]
fn a_link_is_returned_once() {
    check(
        "<a href=/x><a href=/x><a href='/x#y'><a href='http://A.test/x'>",
        &["http://a.test/x"],
    );
}

#[test]
fn the_number_of_links_is_bounded() {
    let options = LinkOptions {
        links_max: 3,
        ..LinkOptions::default()
    };
    let html: String = (0..10).map(|n| format!("<a href=/{n}>")).collect();
    let many = found(&html, &options);
    assert_eq!((many.links.len(), many.cut), (3, true));
    let few = found("<a href=/1><a href=/1><a href=/2><a href=/3>", &options);
    assert_eq!((few.links.len(), few.cut), (3, false));
    let bad: String = (0..100).map(|n| format!("<a href=x:{n}>")).collect();
    let none = found(&(bad + "<a href=/late>"), &options);
    assert_eq!((none.links.len(), none.cut), (0, true));
}

#[test]
fn a_link_contains_its_element_and_attribute() {
    let places: Vec<_> = found(
        "<a href=1><meta http-equiv=refresh content='0;2'><img srcset=3>",
        &RESOURCES,
    )
    .links
    .iter()
    .map(|link| (link.element, link.attribute))
    .collect();
    assert_eq!(
        places,
        [("a", "href"), ("meta", "content"), ("img", "srcset")]
    );
}

#[test]
fn a_srcset_is_split_as_browsers_split_it() {
    assert_eq!(candidates("a, b 2x,c 100w , d"), ["a", "b", "c", "d"]);
    assert_eq!(candidates("a,b c(1,2) ,, d,"), ["a,b", "d"]);
    assert_eq!(candidates(" , "), [""; 0]);
}

#[test]
fn a_document_may_be_truncated_anywhere() {
    let html = "\u{feff}<!DOCTYPE html PUBLIC '-//x' \"y\"><base href='/ü/'><title>&amp;</title><svg><![CDATA[x]]>\
        <style/></svg><!-- - --><meta http-equiv=refresh content='1; url=\"/é\"'><meta name=robots \
        content=none><a class=x href=\"/a?b&amp;c=&#xe9;\" rel=nofollow\r\n>é</a><img srcset='a 1x, b(2,3)'>\
        <script>/*<!--<script>*/</script><![endif]--></script><iframe src=x></iframe><textarea></textareas>";
    let all = LinkOptions {
        resources: true,
        nofollow: false,
        ..LinkOptions::default()
    };
    let whole = urls(html, &all);
    assert!(whole.len() >= 5, "{whole:?}");
    for cut in (0..=html.len()).filter(|cut| html.is_char_boundary(*cut)) {
        assert!(urls(&html[..cut], &all).len() <= whole.len());
        urls(&html[cut..], &all);
    }
}

#[test]
fn a_reference_is_too_long_with_its_fragment() {
    let page = CrawlUrl::parse("http://a.test/").unwrap();
    for (length, is_link) in [(LENGTH_MAX - 2, true), (LENGTH_MAX - 1, false)] {
        let reference = format!("x#{}", "y".repeat(length));
        assert_eq!(Base::of(&page).join(&reference).is_ok(), is_link);
        check(
            &format!("<a href={reference}>"),
            if is_link {
                &["http://a.test/dir/x"]
            } else {
                &[]
            },
        );
    }
}

proptest! {
    #[test]
    fn a_reference_without_its_fragment_leads_to_the_same_url(
        reference in "[ab./?#: \\t%@-]{0,4}#[ab./?#: \\t%@-]{0,4}|https?:/{0,3}[ab.#/?@:]{0,8}",
    ) {
        let page = CrawlUrl::parse("http://a.test/dir/page?q").unwrap();
        let url = Base::of(&page).join(&reference).ok().map(|url| url.to_string());
        let found = urls(&format!("<a href=\"{reference}\">"), &LinkOptions::default());
        prop_assert_eq!(found, url.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn no_document_makes_the_parser_panic(
        html in "(<|</|<!--|-->|<!\\[CDATA\\[|\\]\\]>|a|href=|svg|script|base|meta|srcset=|img|[ >/\"'&;#x=,(]|\\PC){0,60}",
    ) {
        urls(&html, &RESOURCES);
    }
}
