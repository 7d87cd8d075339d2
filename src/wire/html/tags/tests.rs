//! The tags against the library alone and against another implementation, at every cut.

use std::cell::RefCell;

use html5ever::buffer_queue::BufferQueue;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag as TheirTag, TagKind, Token, TokenSink, TokenSinkResult};
use html5ever::tokenizer::{Tokenizer as TheirTokenizer, TokenizerOpts};
use proptest::prelude::*;

use super::*;

/// The marks of a document that the library reads alone, without skimming.
fn alone(html: &str) -> Vec<Mark> {
    let emitter = LinkEmitter::new(true, Arc::default());
    let tokenizer = Tokenizer::new_with_emitter(html, emitter);
    tokenizer
        .map(|mark| mark.expect("a text can be read"))
        .collect()
}

/// Marks of the tags that another implementation finds.
struct Other(RefCell<LinkEmitter>);

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

fn of_another_implementation(html: &str) -> Vec<Mark> {
    let sink = Other(RefCell::new(LinkEmitter::new(true, Arc::default())));
    let options = TokenizerOpts {
        discard_bom: false,
        ..TokenizerOpts::default()
    };
    let tokenizer = TheirTokenizer::new(sink, options);
    let input = BufferQueue::default();
    input.push_back(html.into());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    let marks = &mut tokenizer.sink.0.borrow_mut().marks;
    marks.drain(..).collect()
}

/// All readers find the same in a document, whatever is in sight of ours.
fn check(html: &str) {
    let utf_8 = Some("text/html; charset=utf-8");
    let expected = alone(html);
    // An attribute without a value is empty to them, and to us none.
    let is_empty = |mark: &Mark| match mark {
        Mark::Reference { value, .. } => value.is_empty(),
        Mark::Base(base) => base.is_empty(),
        Mark::Meta { name, .. } => name.is_empty(),
    };
    let mut ours = alone(html);
    ours.retain(|mark| !is_empty(mark));
    let mut theirs = of_another_implementation(html);
    theirs.retain(|mark| !is_empty(mark));
    assert_eq!(theirs, ours, "{html:?}");
    for quantum in [1, 2, 3, 7, 16, 60, usize::MAX] {
        let found = marks(html.as_bytes(), utf_8, quantum);
        assert_eq!(found, expected, "{quantum} at once: {html:?}");
    }
    let wide: Vec<u8> = html.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let found = marks(&wide, Some("text/html; charset=utf-16le"), usize::MAX);
    assert_eq!(found, expected, "in UTF-16: {html:?}");
}

fn marks(html: &[u8], content_type: Option<&str>, quantum: usize) -> Vec<Mark> {
    let mut encoding = Detection::new(html, content_type);
    assert!(encoding.step(html, &mut Units::unbounded()));
    let mut tags = Tags::with_quantum(html, &encoding, true, quantum);
    let mut marks = Vec::new();
    loop {
        match tags.step(&mut Units::new(1)) {
            Step::Mark(mark) => marks.push(mark),
            Step::Paused => {}
            Step::Over => return marks,
        }
    }
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
            let mut tags = Tags::new(&html[..], &encoding, true);
            let mut steps = 0;
            while !matches!(tags.step(&mut Units::new(1)), Step::Over) {
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
fn a_real_page_gives_the_same_links_at_every_cut() {
    let html = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=utf-8><title>a <b> &amp; </titles></title>\
        <style>a > b { c: '<a href=no>' }</style><script>if (a<b) '<a href=no>'</script></head>\
        <body class='a>b' data-x=\"<a href=no>\"><p id=a'b\">x &lt; y &am<p title=<a href=x>\
        <a href=\"/1?a=1&amp;b\" class=c>1</a><!-- <a href=no> --><p a = 'b>' / c=\"d\"e='>'f=\">\" =\">\">\
        <a href=/2></a\n><br/><svg><style/><a href=/3><![CDATA[<a href=no>]]></svg ><i a=b\"c>d\"><a href='4'>\
        <textarea><a href=no></textarea x='>'><a href=5><iframe src=6><a href=no></iframe><a href=7>";
    assert_eq!(alone(html).len(), 7);
    for cut in (0..=html.len()).filter(|cut| html.is_char_boundary(*cut)) {
        check(&html[..cut]);
        check(&html[cut..]);
    }
}
