//! The tags against the library alone and against another implementation, at every cut.

use std::cell::RefCell;

use html5ever::buffer_queue::BufferQueue;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag as TheirTag, TagKind, Token, TokenSink, TokenSinkResult};
use html5ever::tokenizer::{Tokenizer as TheirTokenizer, TokenizerOpts};
use proptest::prelude::*;

use super::*;
use crate::wire::html::element::Mark;

/// The marks of a document, as texts, and those of attributes without a value or with an empty one.
#[derive(Debug, Default, PartialEq)]
struct Seen(Vec<(bool, String)>);

/// What a mark costs here.
const SEEN_UNITS: usize = 100;

impl Marks for Seen {
    fn add(&mut self, mark: Mark<'_>) -> usize {
        let is_empty = match mark {
            Mark::Reference { value, .. } => value.is_empty(),
            Mark::Base(base) => base.is_empty(),
            Mark::Meta { name, .. } => name.is_empty(),
        };
        self.0.push((is_empty, format!("{mark:?}")));
        SEEN_UNITS
    }
}

impl Seen {
    /// An attribute without a value is empty to another implementation, and to us none.
    fn without_empty(mut self) -> Self {
        self.0.retain(|(is_empty, _)| !is_empty);
        self
    }
}

/// An emitter, and what it has recorded when it is gone.
fn emitter() -> (LinkEmitter<Seen>, Shared<Seen>) {
    let shared = Shared(Arc::new(Mutex::new(Record {
        marks: Seen::default(),
        cost: 0,
        beyond: 0,
        is_data: true,
    })));
    (LinkEmitter::new(true, shared.clone()), shared)
}

/// The marks of a document that the library reads alone, without skimming.
fn alone(html: &str) -> Seen {
    let (emitter, shared) = emitter();
    let tokenizer = Tokenizer::new_with_emitter(html, emitter);
    tokenizer.finish().expect("a text can be read");
    mem::take(&mut shared.lock().marks)
}

/// Marks of the tags that another implementation finds.
struct Other(RefCell<LinkEmitter<Seen>>);

impl TokenSink for Other {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let Token::TagToken(tag) = token else {
            return TokenSinkResult::Continue;
        };
        let mut emitter = self.0.borrow_mut();
        let TheirTag {
            kind,
            name,
            self_closing,
            attrs,
            ..
        } = tag;
        match kind {
            TagKind::StartTag => emitter.init_start_tag(),
            TagKind::EndTag => emitter.init_end_tag(),
        }
        emitter.push_tag_name(name.as_bytes());
        if self_closing {
            emitter.set_self_closing();
        }
        for attribute in attrs {
            emitter.init_attribute();
            emitter.push_attribute_name(attribute.name.local.as_bytes());
            emitter.init_attribute_value();
            emitter.push_attribute_value(attribute.value.as_bytes());
        }
        match emitter.emit_current_tag() {
            None => TokenSinkResult::Continue,
            Some(State::PlainText) => TokenSinkResult::Plaintext,
            Some(State::RcData) => TokenSinkResult::RawData(RawKind::Rcdata),
            Some(State::RawText) => TokenSinkResult::RawData(RawKind::Rawtext),
            Some(State::ScriptData) => TokenSinkResult::RawData(RawKind::ScriptData),
            Some(other) => unreachable!("no tag leads to {other:?}"),
        }
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.0.borrow().foreign_depth > 0
    }
}

fn of_another_implementation(html: &str) -> Seen {
    let (emitter, shared) = emitter();
    let options = TokenizerOpts {
        discard_bom: false,
        ..TokenizerOpts::default()
    };
    let tokenizer = TheirTokenizer::new(Other(RefCell::new(emitter)), options);
    let input = BufferQueue::default();
    input.push_back(html.into());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    mem::take(&mut shared.lock().marks)
}

/// All readers find the same in a document, whatever is in sight of ours.
fn check(html: &str) {
    let utf_8 = Some("text/html; charset=utf-8");
    let theirs = of_another_implementation(html).without_empty();
    assert_eq!(theirs, alone(html).without_empty(), "{html:?}");
    let expected = alone(html);
    for quantum in [1, 2, 3, 7, 16, 60, usize::MAX] {
        let found = marks(html.as_bytes(), utf_8, quantum);
        assert_eq!(found, expected, "{quantum} at once: {html:?}");
    }
    let wide: Vec<u8> = html.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let found = marks(&wide, Some("text/html; charset=utf-16le"), usize::MAX);
    assert_eq!(found, expected, "in UTF-16: {html:?}");
}

fn marks(html: &[u8], content_type: Option<&str>, quantum: usize) -> Seen {
    let mut encoding = Detection::new(html, content_type);
    assert!(encoding.step(html, &mut Units::unbounded()));
    let mut tags = Tags::with_quantum(html, &encoding, true, Seen::default(), quantum);
    while !tags.step(&mut Units::new(1)) {}
    tags.into_marks()
}

/// Tokens that lead the tokenizer from each of its states to the others.
const WORDS: &[&str] = &[
    "<a href=",
    "<a",
    " href",
    "=",
    "\"",
    "'",
    ">",
    "/>",
    "<",
    "</a>",
    "<!--",
    "-->",
    "--!>",
    "-",
    "<!",
    "<!doctype",
    "<!DOCTYPE html PUBLIC \"a\" 'b'>",
    "<![CDATA[",
    "]]>",
    "<?",
    "<base href=x>",
    "<script>",
    "</script>",
    "<title>",
    "</title>",
    "<style>",
    "</style",
    "<svg>",
    "</svg>",
    "&amp;",
    "&ampx",
    "&notin;",
    "&not",
    "&#65;",
    "&#x41",
    "&",
    "&x",
    ";",
    "\r\n",
    "\r",
    " ",
    "\0",
    "ü",
    "x",
    "<p>",
    "<p class=",
    "<p title='><a href=x>'",
    "<i\ta='b' c=\"d\"",
    "</p>",
    "</a x='>'>",
    "</",
    "/",
    "<br/>",
    "<Textarea>",
    "</TEXTAREA>",
    "<math/>",
    "<math>",
    "</Math\n>",
    "<style/>",
    "<xmp>",
    "</xmp>",
    "<noembed",
    "<plaintext>",
    "<plaintexts>",
    "<abcdefghijklmnopq",
    "<IMG src=y srcset='z 1x'>",
    "<link rel=x href=y",
    "\x0C",
    "`",
];

/// One of these texts.
fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(texts).prop_map(str::to_owned)
}

/// An attribute as authors write it, and as they should not.
fn attribute() -> impl Strategy<Value = String> {
    let blank = one_of(&[" ", " ", "\n", "\r\n", "\t ", "/", ""]);
    let name = one_of(&[
        "href",
        "href",
        "href",
        "HREF",
        "hRef",
        "hrefs",
        "rel",
        "rel",
        "src",
        "srcset",
        "name",
        "content",
        "http-equiv",
        "http_equiv",
        "method",
        "action",
        "class",
        "id",
        "data-long-name",
        "h\0",
        "é",
        "x\"y",
        "=x",
        "a'b",
        "<p",
        "_",
        "href\0",
    ]);
    let equals = one_of(&["=", "=", "=", "=", " =", "= ", "\n=\r\n", "", " "]);
    let piece = one_of(&[
        "/p", "x", "?a=1", "nofollow", "refresh", "0;url=y", "get", "&amp;", "&amp;", "&amp",
        "&b=2", "&=", "& ", "&", "&;", "&#47;", "&#x2f", "&#", "&lt;", "&copy", "&copy=", "&copy;",
        "&notit;", "&not", "&AMP;", "&é", "\0", "\r", "\r\n", "é", "日", ">", "<", "<b>", "=", "/",
        " ", ",", "2x", "\"", "'",
    ]);
    let value = prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat());
    let quote = one_of(&["\"", "\"", "\"", "'", ""]);
    (blank, name, equals, quote, value).prop_map(|(blank, name, equals, quote, value)| match equals
        .contains('=')
    {
        true => format!("{blank}{name}{equals}{quote}{value}{quote}"),
        false => format!("{blank}{name}{equals}"),
    })
}

/// A tag with attributes.
fn tag() -> impl Strategy<Value = String> {
    let name = one_of(&[
        "a",
        "a",
        "a",
        "A",
        "a1",
        "ab",
        "a=b",
        "a\"b",
        "a\0",
        "base\0",
        "meta\0",
        "area",
        "base",
        "Meta",
        "meta",
        "iframe",
        "frame",
        "link",
        "img",
        "IMG",
        "script",
        "source",
        "form",
        "p",
        "b",
        "span",
        "h1",
        "x-long-name",
        "abcdefgh",
        "abcdefghi",
        "noscript",
        "noscripts",
        "title",
        "textarea",
        "style",
        "svg",
        "math",
        "xmp",
        "noembed",
        "noframes",
        "main",
        "strong",
        "small",
        "label",
        "object",
    ]);
    let end = one_of(&[">", ">", ">", ">", "/>", " >", " / >", ""]);
    let start = one_of(&["<", "<", "<", "<", "</"]);
    let attributes = prop::collection::vec(attribute(), 0..4);
    (start, name, attributes, end).prop_map(|(start, name, attributes, end)| {
        format!("{start}{name}{}{end}", attributes.concat())
    })
}

/// What stands between tags.
fn between() -> impl Strategy<Value = String> {
    one_of(&[
        "",
        "x",
        "\n",
        "x &amp; y",
        "&",
        "a < b",
        "</a>",
        "</p\n>",
        "</b x='>'>",
        "<!-- <a href=c> -->",
        "<!-->",
        "<![CDATA[ <a href=d> ]]>",
        "<?x <a href=e>",
        "</script>",
        "</style>",
        "</title>",
        "</textarea>",
        "</xmp>",
        "</noembed>",
        "</noframes>",
        "</iframe>",
        "</svg>",
        "</math>",
        "<a href=/f>",
        "<a href=\"/g?h&amp;i\">",
        "\0",
    ])
}

/// Documents of tags with attributes.
fn document() -> impl Strategy<Value = String> {
    let part = prop_oneof![3 => tag(), 2 => between()];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn tags_read_without_the_library_make_no_difference(html in document()) {
        check(&html);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_cut_makes_a_difference(html in document()) {
        let expected = alone(&html);
        for quantum in 1..=html.len() + 4 {
            let found = marks(html.as_bytes(), Some("text/html; charset=utf-8"), quantum);
            prop_assert_eq!(&found, &expected, "{} at once", quantum);
        }
        for cut in (0..=html.len()).filter(|cut| html.is_char_boundary(*cut)) {
            let (start, rest) = html.split_at(cut);
            for part in [start, rest] {
                let found = marks(part.as_bytes(), Some("text/html; charset=utf-8"), usize::MAX);
                prop_assert_eq!(found, alone(part), "{:?}", part);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn what_is_passed_over_makes_no_difference(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..40),
    ) {
        check(&words.concat());
    }

    #[test]
    fn no_sequence_of_special_characters_makes_a_difference(
        html in "(<a href=|<p |</?(i|svg|title|script|style)|<!--|--|[<>=/'\"& \r\n\t\0;!?ax-]){0,40}",
    ) {
        check(&html);
    }

    #[test]
    fn a_page_read_with_pauses_gives_the_same_links(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..40),
        quantum in 1..5usize,
    ) {
        let html = words.concat();
        let whole = marks(html.as_bytes(), Some("text/html; charset=utf-8"), usize::MAX);
        let paused = marks(html.as_bytes(), Some("text/html; charset=utf-8"), quantum);
        prop_assert_eq!(&paused, &whole);
        let wide: Vec<u8> = html.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let recoded = marks(&wide, Some("text/html; charset=utf-16le"), quantum);
        prop_assert_eq!(&recoded, &whole);
    }
}

#[test]
fn no_construct_holds_a_step_for_longer_than_its_units() {
    for hostile in [
        "x",
        "<",
        "<a ",
        " ",
        "&a",
        "&",
        "<!--",
        "\0",
        "<a x",
        "<script>\0",
        "</script",
        "<a b=c d='e'",
        "<a href=",
        "\r",
        "<svg>",
        "<![CDATA[",
        "&#",
        "<textarea>&CounterClockwiseContourIntegra",
    ] {
        for start in [
            "",
            "<a ",
            "<a href=",
            "<a href='",
            "<!--",
            "<plaintext>",
            "<script>",
            "<!doctype ",
        ] {
            let html = [
                start.as_bytes(),
                &hostile.repeat(100_000 / hostile.len()).into_bytes(),
            ]
            .concat();
            let mut encoding = Detection::new(&html, Some("text/html; charset=utf-8"));
            assert!(encoding.step(&html, &mut Units::unbounded()));
            let mut tags = Tags::new(&html[..], &encoding, true, Seen::default());
            let mut steps = 0;
            while !tags.step(&mut Units::new(1)) {
                steps += 1;
            }
            assert!(
                steps >= html.len() / QUANTUM - 1,
                "{start}{hostile}: {steps}"
            );
        }
    }
}

#[test]
fn what_is_found_costs_units() {
    let set = format!("<img srcset='{}x'>", "x, ".repeat(999));
    let coded_set = format!("<img srcset='{}&lt;'>", "x, ".repeat(999));
    for (tag, marks, count) in [
        ("<a href=x>", 1, 10_000),
        ("<a href=&lt;x>", 1, 10_000),
        ("<a href=x>", 1, 1),
        ("<a href=&lt;x>", 1, 1),
        (&set, 1000, 10),
        (&coded_set, 1000, 10),
    ] {
        let html = tag.repeat(count);
        let encoding = Detection::new(html.as_bytes(), Some("text/html; charset=utf-8"));
        let mut tags = Tags::new(html.as_bytes(), &encoding, true, Seen::default());
        let mut units = Units::unbounded();
        assert!(tags.step(&mut units));
        assert_eq!(tags.marks(|seen| seen.0.len()), marks * count);
        let least = marks * count * SEEN_UNITS + html.len();
        let spent = units.spent() as usize;
        assert!(spent >= least, "{count} times {tag}: {spent} of {least}");
    }
}

#[test]
fn a_real_page_gives_the_same_links_at_every_cut() {
    let html = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=utf-8><title>a <b> &amp; </titles></title>\
        <style>a > b { c: '<a href=no>' }</style><script>if (a<b) '<a href=no>'</script></head>\
        <body class='a>b' data-x=\"<a href=no>\"><p id=a'b\">x &lt; y &am<p title=<a href=x>\
        <a href=\"/1?a=1&amp;b\" class=c>1</a><!-- <a href=no> --><p a = 'b>' / c=\"d\"e='>'f=\">\" =\">\">\
        <a href=/2></a\n><br/><svg><style/><a href=/3><![CDATA[<a href=no>]]></svg ><i a=b\"c>d\"><a href='4'>\
        <textarea><a href=no></textarea x='>'><a href=5><iframe src=6><a href=no></iframe><a href=7>";
    assert_eq!(alone(html).0.len(), 7);
    for cut in (0..=html.len()).filter(|cut| html.is_char_boundary(*cut)) {
        check(&html[..cut]);
        check(&html[cut..]);
    }
}
