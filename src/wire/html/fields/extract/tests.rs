//! The values of fields in pages, and what hostile pages cost.

mod random;

use super::*;
use crate::wire::charset::encoded;
use crate::wire::html::fields::{Extraction, FieldSpec};

/// The value of a field in a page.
fn value_in(field: &str, body: &[u8], content_type: Option<&str>) -> Option<String> {
    let spec = FieldSpec::parse(field).unwrap_or_else(|problem| panic!("{field}: {problem:?}"));
    let extraction = Extraction::new(vec![spec]).unwrap_or_else(|error| panic!("{error:?}"));
    let fields = extraction
        .fields_of(body, content_type, false)
        .expect("there is one");
    let (_, value) = fields.iter().next().expect("there is one");
    value.map(str::to_owned)
}

#[track_caller]
fn check(field: &str, html: &str, expected: Option<&str>) {
    let found = value_in(field, html.as_bytes(), Some("text/html; charset=utf-8"));
    assert_eq!(found.as_deref(), expected, "{field} in {html}");
}

const PAGE: &str = r#"<!DOCTYPE html><html lang="en-GB"><head>
<title>
  Tea &amp; coffee </title><META NAME=Description CONTENT="All about &quot;tea&quot;">
<link rel="stylesheet" href="a.css"><link rel="Canonical nofollow" href="/tea?a=1&amp;b=2">
</head><body><h1>Tea<br>pots</h1><h1>Second</h1>
<ul><li class="item a">one<li class="item b">two <b>bold</b><li id=last>three</ul>
<p>First<p class=price data-currency=EUR>12.50 <span>each</span></p>
<img alt=none><img class="hero wide" src="/i.png"><noscript><img class=lazy src=l.png></noscript>
</body></html>"#;

#[test]
fn the_built_in_fields_are_found() {
    check("title", PAGE, Some("Tea & coffee"));
    check("lang", PAGE, Some("en-GB"));
    check("description", PAGE, Some("All about \"tea\""));
    check("canonical", PAGE, Some("/tea?a=1&b=2"));
    check("h1", PAGE, Some("Teapots"));
}

#[test]
fn every_cut_of_a_page_has_whole_values_or_none() {
    let fields = [
        "title",
        "description",
        "canonical",
        "h1",
        "x=.price > span",
        "x=li:last-child",
    ];
    for field in fields {
        let whole = value_in(field, PAGE.as_bytes(), None);
        let spec = FieldSpec::parse(field).expect("valid");
        let extraction = Extraction::new(vec![spec]).expect("valid");
        let mut found = 0;
        for end in 0..PAGE.len() {
            let fields = extraction.fields_of(&PAGE.as_bytes()[..end], None, true);
            let fields = fields.expect("there is one");
            let (_, value) = fields.iter().next().expect("there is one");
            assert!(
                value.is_none() || value == whole.as_deref(),
                "{field}: {value:?} of {end}"
            );
            assert_eq!(value.is_none(), fields.is_partial(), "{field} of {end}");
            found += usize::from(value.is_some());
        }
        // That no element follows another is known at the end alone.
        assert_eq!(found > 0, field != "x=li:last-child", "{field}");
    }
}

#[test]
fn selectors_are_those_of_style_sheets() {
    check("x=.price", PAGE, Some("12.50 each"));
    check("x=p.price::text", PAGE, Some("12.50 each"));
    check("x=.price > span", PAGE, Some("each"));
    check("x=p.price::attr(data-currency)", PAGE, Some("EUR"));
    check("x=li:nth-child(2)", PAGE, Some("two bold"));
    check("x=li:last-child", PAGE, Some("three"));
    check("x=li + li b", PAGE, Some("bold"));
    check("x=li.a ~ #last", PAGE, Some("three"));
    check("x=li:not(.a)", PAGE, Some("two bold"));
    check("x=h3, h1", PAGE, Some("Teapots"));
    check("x=[data-currency^=E]", PAGE, Some("12.50 each"));
    check("x=img.lazy::attr(src)", PAGE, Some("l.png"));
}

#[test]
fn the_first_element_that_has_a_value_counts() {
    check("x=img::attr(src)", PAGE, Some("/i.png"));
    check("x=img", PAGE, Some(""));
    check("x=h1::attr(class)", PAGE, None);
    check("x=h2", PAGE, None);
    check("title", "<p>No title", None);
    check("title", "<title></title>", Some(""));
    check("title", "", None);
    check("title", "<title>Cut off", Some("Cut off"));
    check("lang", "<p>Text", None);
}

#[test]
fn a_selector_that_cannot_be_used_is_refused() {
    let refused = |field: &str, part: &str| {
        let spec = FieldSpec::parse(field).expect(field);
        let (text, problem) = Extraction::new(vec![spec]).expect_err(field);
        assert_eq!(text, field);
        assert!(problem.what.contains(part), "{field}: {}", problem.what);
    };
    refused("x=p[", "cannot be read");
    refused("x=p >", "cannot be read");
    refused("x=a:checked", "a pseudo-class that is not known");
    refused("x=..a", "a dot without the name of a class");
    refused("x=div:has(p)", ":has()");
    refused("x=div:HAS(p)", ":has()");
    refused(r"x=div:h\61s(p)", "cannot be read");
}

#[test]
fn pages_in_other_encodings_are_read() {
    let check = |title: &str, label: &str, content_type: Option<&str>, before: &str| {
        let html = format!("{before}<title>{title}</title>");
        let found = value_in("title", &encoded(&html, label), content_type);
        assert_eq!(found.as_deref(), Some(title), "{label}");
    };
    let by_field = |label: &str| format!("text/html; charset={label}");
    check("чай", "windows-1251", Some(&by_field("windows-1251")), "");
    check("お茶", "shift_jis", None, "<meta charset=shift_jis>");
    check("thé", "utf-8", None, "\u{feff}");
    let mut utf_16 = vec![0xff, 0xfe];
    utf_16.extend(
        "<title>té</title>"
            .encode_utf16()
            .flat_map(u16::to_le_bytes),
    );
    assert_eq!(value_in("title", &utf_16, None).as_deref(), Some("té"));
    // A character in two pieces.
    for length in PIECE - 12..PIECE {
        let html = format!("<!--{}--><title>é💡</title>", "x".repeat(length));
        self::check("title", &html, Some("é💡"));
    }
    let invalid = b"<title>a\xffb</title>";
    let found = value_in("title", invalid, Some("text/html; charset=utf-8"));
    assert_eq!(found.as_deref(), Some("a\u{fffd}b"));
}

#[test]
fn a_value_that_is_read_in_part_at_a_look_is_completed() {
    for length in FIRST_LOOK - 60..FIRST_LOOK {
        let filler = "x".repeat(length);
        let html = format!("<!--{filler}--><title>A title of some words</title><p>Text");
        check("title", &html, Some("A title of some words"));
        let html = format!("<!--{filler}--><ul><li>one<li>two</ul>{}", " ".repeat(5000));
        check("x=li:last-child", &html, Some("two"));
    }
}

#[test]
fn a_value_is_cut_between_characters() {
    let html = format!("<title>a{}</title>", "é".repeat(VALUE_MAX));
    let value = value_in("title", html.as_bytes(), None).expect("a title");
    assert_eq!(value.len(), VALUE_MAX - 1, "the last would not fit");
    let html = format!("<title>{}</title>", " a\n\t".repeat(VALUE_MAX));
    let value = value_in("title", html.as_bytes(), None).expect("a title");
    assert_eq!(value, "a ".repeat(VALUE_MAX / 2).trim_end());
}

#[test]
fn only_the_first_megabyte_is_read() {
    let at = |length: usize| {
        let html = format!("<p>{}</p><h1>Here</h1>", "x".repeat(length));
        value_in("h1", html.as_bytes(), None)
    };
    assert_eq!(at(READ_MAX - 100).as_deref(), Some("Here"));
    assert_eq!(at(READ_MAX), None);
}

#[test]
fn every_cut_of_a_page_is_read() {
    for end in 0..PAGE.len() {
        let found = value_in("h1", &PAGE.as_bytes()[..end], None).unwrap_or_default();
        // A tag that is cut before its name is text.
        let text = found.trim_end_matches(['<', '/']);
        assert!("Teapots".starts_with(text), "{end}: {found}");
    }
}

/// The bytes of a page that are read before the guard ends that.
fn read_of(html: &[u8]) -> usize {
    let mut page = Page::new();
    let mut read = 0;
    for piece in html.chunks(PIECE) {
        read += piece.len();
        if !page.read(piece) {
            break;
        }
    }
    read
}

#[test]
fn a_page_with_a_tree_of_excessive_cost_is_not_read_further() {
    let repeated = |part: &str| part.repeat(READ_MAX / part.len()).into_bytes();
    assert!(read_of(&repeated("<div>")) < 4 * DEPTH_MAX * 5);
    assert!(read_of(&repeated("<i><div>")) < 4 * DEPTH_MAX * 8);
    let numbered = |write: &dyn Fn(usize) -> String| -> Vec<u8> {
        let parts = (0..).map(write);
        let mut html = Vec::from(*b"<a ");
        for part in parts {
            html.extend_from_slice(part.as_bytes());
            if html.len() > READ_MAX {
                return html;
            }
        }
        html
    };
    // Some ten thousand attributes.
    assert!(read_of(&numbered(&|number| format!("a{number} "))) < 100_000);
    assert!(read_of(&numbered(&|number| format!("a{number}=''"))) < 100_000);
    assert!(read_of(&numbered(&|number| format!("a{number}/"))) < 100_000);
    // Where a text only seems to be, or not to be, a tag.
    for before in [
        "<script>a<b c='</script>",
        "<svg><style>",
        "<svg><title><a b=''>",
        "<!-- <a b='-->",
        "<svg><![CDATA[<a b='>]]></svg>",
        "<p title='<!--'>",
        "<script><!--<script></script a=\"--></script>",
        "<script></b a=\"</script ",
    ] {
        let mut html = Vec::from(before);
        html.extend(numbered(&|number| format!("a{number} ")));
        let read = read_of(&html);
        assert!(read < 100_000, "{before}: {read}");
    }
    // Elements that a paragraph opens anew.
    let formats = numbered(&|number| format!("<b id={number}></p><p>"));
    assert!(read_of(&formats) < 40_000);
}

#[test]
fn usual_long_pages_are_read_to_their_end() {
    let whole = |html: String| assert_eq!(read_of(html.as_bytes()), html.len());
    whole("<p class=a>Some <b>bold</b> text</p>\n".repeat(20_000));
    whole(format!("<p>{}<p>", "word ".repeat(200_000)));
    whole(format!(
        "<script>{}</script>",
        "a = b / c;\n".repeat(90_000)
    ));
    whole(format!("<!--{}-->", "a comment = / ".repeat(70_000)));
    whole(format!("<a{}b>", " ".repeat(500_000)));
    whole(format!(
        "<div data-a='{{{}}}'><p title=\"{}\"><h1>Here</h1>",
        r#""key": "a / b = c", "#.repeat(25_000),
        "M 10 10 L 20 20 ".repeat(30_000)
    ));
    whole(format!(
        "<svg><![CDATA[{}]]></svg>",
        "a <b c = d ".repeat(50_000)
    ));
    whole(format!(
        "<img src=\"data:image/png;base64,{}\">",
        "iVBORw0KGgoAAAANSUhEUgAAAyAAAAJYCAYAAACadoJwAAAACXBIWXMAAA7DAAAOw/8A".repeat(5_000)
    ));
}

/// The value of the last of these fields in a page, and whether the search ended early.
fn last_in(fields: &[&str], body: &str) -> (Option<String>, bool) {
    let specs = fields
        .iter()
        .map(|field| FieldSpec::parse(field).expect(field));
    let extraction = Extraction::new(specs.collect()).expect("they are valid");
    let found = extraction
        .fields_of(body.as_bytes(), None, false)
        .expect("some");
    let (_, value) = found.iter().last().expect("there is one");
    (value.map(str::to_owned), found.is_partial())
}

#[test]
fn a_selector_of_excessive_cost_in_a_page_ends_without_a_value() {
    let siblings = format!("{}<h1>Here</h1>", "<b></b>".repeat(60_000));
    assert_eq!(last_in(&["x=u ~ b"], &siblings), (None, true));
    assert_eq!(last_in(&["x=i b"], &siblings), (None, false));
    assert_eq!(
        last_in(&["h1"], &siblings),
        (Some("Here".to_owned()), false)
    );
    let types = (0..20_000).map(|number| format!("<b{number}></b{number}>"));
    let types = format!("<div>{}</div>", types.collect::<String>());
    assert_eq!(last_in(&["x=:nth-of-type(2)"], &types), (None, true));
}

#[test]
fn a_field_of_excessive_cost_takes_nothing_from_others() {
    let page = format!(
        "{}<h1 class=x>Here</h1>",
        "<b data-a=aaaaaaaaa></b>".repeat(30_000)
    );
    let found = last_in(&["x=u ~ b", "y=u ~ i b", "z=h1.x"], &page);
    assert_eq!(found, (Some("Here".to_owned()), true));
}

#[test]
fn the_siblings_of_ancestors_count() {
    let row = format!("<tr>{}</tr>", "<td>1</td>".repeat(20));
    let table = |rows: usize| format!("<table id=prices>{}</table><p>Last</p>", row.repeat(rows));
    let found = |field: &str, rows: usize| last_in(&[field], &table(rows));
    assert_eq!(found("x=#prices tr.a ~ tr td", 2000), (None, true));
    assert_eq!(found("x=#prices tr.a ~ tr td", 100), (None, false));
    // That no `div` is above the first is known for all.
    assert_eq!(found("x=#prices ~ div tr ~ tr td", 2000), (None, false));
    // The numbers of rows are known from those before.
    assert_eq!(found("x=#prices tr:nth-child(401) td", 400), (None, false));
    let value = Some("1".to_owned());
    assert_eq!(found("x=#prices tr:nth-child(399) td", 400), (value, false));
    assert_eq!(
        found("x=tr:nth-last-child(2000) ~ tr i", 300),
        (None, false)
    );
}

#[test]
fn selectors_within_selectors_count_for_each_that_they_are_tried_at() {
    let page = format!("{}<p>1", "<i><b>".repeat(120));
    let page = format!("{page}{}", "<u></u>".repeat(50_000));
    let found = last_in(&["x=:not(:not(h1 *) *).y u"], &page);
    assert_eq!(found, (None, true));
    let blind = ":not(:not(*))".repeat(70);
    let (field, page) = (format!("x=h2 {blind}"), "<p>1".repeat(100_000));
    assert_eq!(last_in(&[&field], &page), (None, true));
}

#[test]
fn the_classes_and_attributes_of_elements_that_a_selector_looks_at_count() {
    let names = |count: usize, prefix: &str| -> String {
        let names = (0..count).map(|number| format!("{prefix}{number} "));
        names.collect()
    };
    let classes = format!("class='{}'", names(1000, "c"));
    let attributes = names(1000, "a");
    let value = format!("title='{}'", "a ".repeat(2000));
    let within = |own: &str| format!("<div {own}>{}</div>", "<p>1</p>".repeat(10_000));
    let behind = |own: &str| {
        let within = "<p>1</p>".repeat(10_000);
        format!("<div {own}></div><ul>{within}</ul>")
    };
    let check = |field: &str, page: String| {
        assert_eq!(last_in(&[field], &page), (None, true), "{field}");
        // One class, attribute or word of an element is no excess.
        for usual in [within("class=a title=a"), behind("class=a title=a")] {
            assert_eq!(last_in(&[field], &usual), (None, false), "{field}");
        }
    };
    check("x=.zzz p", within(&classes));
    check("x=.zzz > p", within(&classes));
    check("x=:is(.zzz, #a) p", within(&classes));
    check("x=:not(:not(.zzz)) p", within(&classes));
    check("x=[zzz] p", within(&attributes));
    check("x=[title~=zzz] p", within(&value));
    check("x=[title*=zzz] p", within(&value));
    let equal = "a ".repeat(200);
    check(&format!("x=[title*='{equal}z' i] p"), within(&value));
    check("x=.zzz ~ ul p", behind(&classes));
    check("x=[zzz] + ul > p", behind(&attributes));
}

#[test]
fn attributes_that_tags_add_to_the_body_end_the_reading() {
    let tag = |tag: usize| {
        let attributes = (0..500).map(|number| format!("a{tag}b{number} "));
        format!("<body {}>", attributes.collect::<String>())
    };
    let page: String = (0..100).map(tag).collect();
    assert!(read_of(page.as_bytes()) < 150_000);
    let usual = "<body class=a id=b>".repeat(1000);
    assert_eq!(read_of(usual.as_bytes()), usual.len());
}

#[test]
fn open_elements_behind_a_comment_elsewhere_end_the_reading() {
    // The last node of each piece is one of the root.
    let page = format!("{}</body><!--xxx-->", "<div>".repeat(99));
    assert_eq!(page.len(), PIECE);
    assert!(read_of(page.repeat(500).as_bytes()) < 10_000);
}

#[test]
fn many_tags_at_many_open_elements_end_the_reading() {
    let page = |depth: usize, tags: usize| {
        let page = format!("{}{}", "<div>".repeat(depth), "<i></i>".repeat(tags));
        read_of(page.as_bytes()) == page.len()
    };
    assert!(page(50, 100_000));
    assert!(page(480, 20_000));
    assert!(!page(480, 50_000));
}

#[test]
fn every_bound_of_ours_leaves_whole_values_or_none() {
    let none = (None, true);
    // The end of what is read.
    let long = |start: usize| {
        let filler = "x".repeat(READ_MAX - start);
        format!("<i>One</i><!--{filler}--><h1>Long title that goes on</h1>")
    };
    assert_eq!(last_in(&["h1"], &long(30)), none);
    assert_eq!(
        last_in(&["x=i"], &long(30)),
        (Some("One".to_owned()), false)
    );
    assert_eq!(last_in(&["x=b"], &long(30)), none, "it may be behind");
    let whole = Some("Long title that goes on".to_owned());
    assert_eq!(last_in(&["h1"], &long(200)), (whole, false));
    // The depth.
    let deep = |depth: usize| format!("<h1>Begin {} End</h1>", "<b>".repeat(depth));
    let whole = Some("Begin End".to_owned());
    assert_eq!(last_in(&["h1"], &deep(400)), (whole, false));
    assert_eq!(last_in(&["h1"], &deep(2000)), none);
    // The steps, in a look after one that has found a part.
    let page = |word: &str, words: usize| {
        let before = "<p></p>".repeat(190);
        format!("{before}<u></u><p>{}", word.repeat(words))
    };
    let many: Vec<String> = (0..63).map(|number| format!("f{number}=b")).collect();
    let fields: Vec<&str> = many.iter().map(String::as_str).chain(["x=u ~ p"]).collect();
    let parts = page("w<!-- not text -->", 1000);
    assert_eq!(last_in(&fields, &parts), none);
    let (value, is_partial) = last_in(&["x=u ~ p"], &parts);
    assert_eq!(
        (value.map(|value| value.len()), is_partial),
        (Some(1000), false)
    );
    // More than a value may have is known before that.
    let (value, _) = last_in(&fields, &page("word ", 3000));
    assert_eq!(value.map(|value| value.len()), Some(VALUE_MAX));
}

#[test]
fn fields_of_the_head_are_not_looked_for_in_all_of_the_body() {
    let page = |length: usize| {
        let filler = "<p>x</p>".repeat(length / 8);
        format!("<html><head></head><body>{filler}<link rel=canonical href=/a>")
    };
    let found = |length: usize| last_in(&["canonical"], &page(length)).0;
    assert_eq!(
        found(20_000).as_deref(),
        Some("/a"),
        "a head that ended early"
    );
    assert_eq!(found(200_000), None);
    let own = last_in(&["x=link::attr(href)"], &page(200_000)).0;
    assert_eq!(own.as_deref(), Some("/a"));
    // However long the head is.
    for head in [0, 5_000, 100_000] {
        let head = format!("<title>{}</title>", "x".repeat(head));
        let found = |length: usize| last_in(&["canonical"], &format!("{head}{}", page(length))).0;
        assert_eq!(found(BODY_READ_MAX - 1000).as_deref(), Some("/a"));
        assert_eq!(found(BODY_READ_MAX + 1000), None);
    }
}

#[test]
fn an_element_that_goes_on_behind_a_bound_has_no_value() {
    let deep = format!("<h1>One{}two</h1>", "<div>".repeat(2000));
    assert_eq!(last_in(&["h1"], &deep), (None, true));
    let long = format!("<!--{}--><h1>One", "x".repeat(READ_MAX - 15));
    assert_eq!(last_in(&["h1"], &format!("{long} two</h1>")), (None, true));
    let whole = last_in(&["h1"], &format!("{}</h1>", long.replacen("xxxxx", "", 1)));
    assert_eq!(whole, (Some("One".to_owned()), false));
    // More than a value may have is known.
    let words = format!("<p>{}", "word ".repeat(READ_MAX / 4));
    let (value, is_partial) = last_in(&["x=p"], &words);
    assert_eq!(
        (value.map(|value| value.len()), is_partial),
        (Some(VALUE_MAX), false)
    );
}

#[test]
fn a_table_goes_on_behind_what_does_not_belong_into_it() {
    let stray = format!("<b>{}</b>", "x".repeat(2 * FIRST_LOOK));
    let html = format!("<table><tr><td>1 </tr>{stray}<tr><td>2</table>");
    check("x=table", &html, Some("1 2"));
}

#[test]
fn a_page_that_is_not_read_to_its_end_is_reported() {
    let deep = format!("<title>Here</title>{}<h1>Not</h1>", "<div>".repeat(2000));
    assert_eq!(
        last_in(&["h1"], &format!("{deep}{}", " ".repeat(5000))),
        (None, true)
    );
    let all = last_in(&["title"], &format!("{deep}{}", " ".repeat(9000)));
    assert_eq!(all, (Some("Here".to_owned()), false), "it was found before");
}

#[test]
fn selectors_that_look_ahead_are_known() {
    let check = |selector: &str, expected: bool| {
        let spec = FieldSpec::parse(&format!("x={selector}")).expect(selector);
        let selectors = Selectors::new(&[spec]).expect(selector);
        assert_eq!(selectors.0[0].parts.looks_ahead, expected, "{selector}");
    };
    for own in [
        "p.a#b",
        r#"meta[name="a:empty" i]"#,
        "a[rel~=b]",
        "a b",
        "a>b",
        "a+b",
        "a ~ b",
        "li:nth-child(2)",
        "li:NTH-child(2)",
        "li:first-of-type",
        ":not(:first-child)",
        r".\:empty",
    ] {
        check(own, false);
    }
    for own in [
        "li:last-child",
        "li:LAST-child",
        "p:empty",
        "li:not(:only-child)",
        "li:is(a, b:last-of-type) c",
        "li:nth-last-child(2)",
        "li:only-of-type, p",
        r"li:\6eth-last-child(2)",
    ] {
        check(own, true);
    }
}
