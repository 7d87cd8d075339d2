//! Reads the relevant tags of a page in bounded steps: adapts the tokenizer library to bodies in
//! any encoding.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::Range;

use html5gum::{Emitter, Error, Reader, State, Tokenizer};

use crate::base::units::Units;
use crate::wire::charset::{Detection, Recoder};
use crate::wire::url::LENGTH_MAX;

/// The tags of a page that concern links.
#[derive(Debug)]
pub(super) struct Tags<B: AsRef<[u8]>>(Tokenizer<BodyReader<B>, LinkEmitter>);

/// Relevant content of a tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A reference.
    Reference {
        value: String,
        element: &'static str,
        attribute: &'static str,
        nofollow: bool,
    },
    /// The base of references, if it is the first one.
    Base(String),
    /// A meta element with a name.
    Meta { name: String, content: String },
}

/// Result of a step.
pub(super) enum Step {
    Mark(Mark),
    /// The units are used up.
    Paused,
    /// The page is read.
    Over,
}

impl<B: AsRef<[u8]>> Tags<B> {
    /// The tags of a body with a known encoding. `resources`: include those of page resources.
    pub fn new(body: B, encoding: &Detection, resources: bool) -> Self {
        Tags::with_quantum(body, encoding, resources, QUANTUM)
    }

    fn with_quantum(body: B, encoding: &Detection, resources: bool, quantum: usize) -> Self {
        let reader = BodyReader {
            body,
            at: encoding.start(),
            recoder: encoding.recoder(),
            text: Vec::new(),
            text_at: 0,
            left: quantum,
            quantum,
            matched: false,
        };
        Tags(Tokenizer::new_with_emitter(
            reader,
            LinkEmitter::new(resources),
        ))
    }

    /// The next relevant tag.
    pub fn step(&mut self, units: &mut Units) -> Step {
        while !units.is_spent() {
            match self.0.next() {
                Some(Ok(mark)) => {
                    units.spend(MARK_UNITS);
                    return Step::Mark(mark);
                }
                Some(Err(_)) => units.spend(QUANTUM),
                None => return Step::Over,
            }
        }
        Step::Paused
    }
}

/// Reads a body as UTF-8 and limits how much is read at once.
///
/// An error makes the tokenizer return, and it continues afterwards as if there was none. It reads
/// once per round of its loops, at the beginning, except after a character reference: no error is
/// returned there.
#[derive(Debug)]
struct BodyReader<B> {
    body: B,
    /// Offset up to which the body was read.
    at: usize,
    recoder: Option<Box<Recoder>>,
    /// Converted text, and the offset up to which it was read.
    text: Vec<u8>,
    text_at: usize,
    /// Units left before the next pause.
    left: usize,
    /// Units between two pauses.
    quantum: usize,
    /// The last read was a successful comparison.
    matched: bool,
}

/// The error that interrupts the tokenizer after a quantum.
#[derive(Debug)]
struct Paused;

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the budget of this step is used up")
    }
}

impl std::error::Error for Paused {}

impl<B: AsRef<[u8]>> BodyReader<B> {
    /// The next `wanted` bytes, or all that are left.
    fn rest(&mut self, wanted: usize) -> &[u8] {
        let body = self.body.as_ref();
        let Some(recoder) = &mut self.recoder else {
            return &body[self.at..];
        };
        while self.text.len() - self.text_at < wanted && self.at < body.len() {
            self.text.drain(..self.text_at);
            self.text_at = 0;
            let end = body.len().min(self.at + RECODED_AT_ONCE);
            recoder.decode(&body[self.at..end], end == body.len(), &mut self.text);
            self.at = end;
        }
        &self.text[self.text_at..]
    }

    fn advance(&mut self, length: usize) {
        match self.recoder {
            None => self.at += length,
            Some(_) => self.text_at += length,
        }
    }

    fn spend(&mut self, units: usize) {
        self.left = self.left.saturating_sub(units);
    }

    fn pause(&mut self) -> Result<(), Paused> {
        if self.left > 0 || mem::take(&mut self.matched) {
            return Ok(());
        }
        self.left = self.quantum;
        Err(Paused)
    }
}

impl<B: AsRef<[u8]>> Reader for BodyReader<B> {
    type Error = Paused;

    #[inline]
    fn read_byte(&mut self) -> Result<Option<u8>, Paused> {
        self.pause()?;
        let Some(octet) = self.rest(1).first().copied() else {
            return Ok(None);
        };
        self.advance(1);
        self.spend(1 + READ_UNITS);
        Ok(Some(octet))
    }

    fn try_read_string(&mut self, wanted: &[u8], case_sensitive: bool) -> Result<bool, Paused> {
        self.spend(COMPARED_UNITS);
        let rest = self.rest(wanted.len());
        let matched = rest.get(..wanted.len()).is_some_and(|there| {
            there == wanted || !case_sensitive && there.eq_ignore_ascii_case(wanted)
        });
        if matched {
            self.advance(wanted.len());
            self.matched = true;
        }
        Ok(matched)
    }

    #[inline]
    fn read_until<'b>(
        &'b mut self,
        needle: &[u8],
        _: &'b mut [u8; 4],
    ) -> Result<Option<&'b [u8]>, Paused> {
        self.pause()?;
        let most = self.left.max(1);
        let rest = self.rest(1);
        let rest = &rest[..rest.len().min(most)];
        if rest.is_empty() {
            return Ok(None);
        }
        let found = rest.iter().position(|octet| needle.contains(octet));
        let length = found.unwrap_or(rest.len()).max(1);
        self.spend(length + READ_UNITS);
        self.advance(length);
        let (text, end) = match self.recoder {
            None => (self.body.as_ref(), self.at),
            Some(_) => (&self.text[..], self.text_at),
        };
        Ok(Some(&text[end - length..end]))
    }
}

/// Units between two pauses.
const QUANTUM: usize = 4096;

/// Cost of comparing the input with a wanted text; after `&` there may be dozens.
const COMPARED_UNITS: usize = 2;

/// Cost of a tokenizer step besides the bytes it reads: a page that consists only of tags has one
/// per byte.
const READ_UNITS: usize = 2;

/// Cost of a mark besides its bytes.
const MARK_UNITS: usize = 32;

/// Bytes converted at once.
const RECODED_AT_ONCE: usize = 2048;

/// The relevant elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    Base,
    Meta,
    A,
    Area,
    Iframe,
    Frame,
    Link,
    Img,
    Script,
    Source,
    Form,
}

impl Element {
    fn of(name: &[u8], resources: bool) -> Option<Self> {
        Some(match name {
            b"a" => Element::A,
            b"area" => Element::Area,
            b"base" => Element::Base,
            b"meta" => Element::Meta,
            b"iframe" => Element::Iframe,
            b"frame" => Element::Frame,
            b"link" if resources => Element::Link,
            b"img" if resources => Element::Img,
            b"script" if resources => Element::Script,
            b"source" if resources => Element::Source,
            b"form" if resources => Element::Form,
            _ => return None,
        })
    }
}

/// The relevant attributes, as indices into a tag's table.
#[derive(Clone, Copy, Debug)]
enum Attribute {
    Href,
    Src,
    Srcset,
    Action,
    Method,
    Rel,
    Content,
    HttpEquiv,
    Name,
}

impl Attribute {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"href" => Attribute::Href,
            b"src" => Attribute::Src,
            b"srcset" => Attribute::Srcset,
            b"action" => Attribute::Action,
            b"method" => Attribute::Method,
            b"rel" => Attribute::Rel,
            b"content" => Attribute::Content,
            b"http-equiv" => Attribute::HttpEquiv,
            b"name" => Attribute::Name,
            _ => return None,
        })
    }
}

/// The tag being read.
#[derive(Debug, Default)]
struct Tag {
    name: Vec<u8>,
    is_end: bool,
    self_closing: bool,
    /// The name of the attribute being read, truncated to the relevant length.
    attribute: Vec<u8>,
    /// The attribute being read, if its value is relevant.
    kept: Option<Attribute>,
    /// Ranges of the values in `text`, by attribute; the first of duplicates counts.
    values: [Option<Range<usize>>; 9],
    /// The values.
    text: Vec<u8>,
}

impl Tag {
    fn begin(&mut self, is_end: bool) {
        self.name.clear();
        self.is_end = is_end;
        self.self_closing = false;
        self.kept = None;
        self.values = Default::default();
        self.text.clear();
    }

    fn value(&self, attribute: Attribute) -> Option<String> {
        let range = self.values[attribute as usize].clone()?;
        Some(String::from_utf8_lossy(&self.text[range]).into_owned())
    }
}

/// Longer names of tags and attributes are not relevant.
const NAME_MAX: usize = 16;

/// Longer values are truncated: one byte too long for a URL, and long enough for any `srcset`.
const VALUE_MAX: usize = LENGTH_MAX + 1;

/// Receives the tokenizer's events and keeps what is relevant.
#[derive(Debug)]
struct LinkEmitter {
    resources: bool,
    /// Marks not returned yet.
    marks: VecDeque<Mark>,
    tag: Tag,
    last_start_tag: Vec<u8>,
    /// Nesting depth in `svg` or `math`, where other rules apply to raw text and CDATA.
    foreign_depth: u32,
}

impl LinkEmitter {
    fn new(resources: bool) -> Self {
        LinkEmitter {
            resources,
            marks: VecDeque::new(),
            tag: Tag::default(),
            last_start_tag: Vec::new(),
            foreign_depth: 0,
        }
    }

    /// Stores the relevant content of a start tag.
    fn take(&mut self, element: Element) {
        use Attribute::*;
        let tag = &self.tag;
        let marks = &mut self.marks;
        let mut push = |element, attribute, value: String, nofollow| {
            marks.push_back(Mark::Reference {
                value,
                element,
                attribute,
                nofollow,
            });
        };
        let nofollow = tag
            .value(Rel)
            .is_some_and(|rel| has_word(&rel, &["nofollow"]));
        match element {
            Element::Base => {
                if let Some(base) = tag.value(Href) {
                    marks.push_back(Mark::Base(base));
                }
            }
            Element::Meta => {
                let content = tag.value(Content).unwrap_or_default();
                let equals = |attribute, what: &str| {
                    tag.value(attribute)
                        .is_some_and(|value| value.trim().eq_ignore_ascii_case(what))
                };
                if equals(HttpEquiv, "refresh")
                    && let Some(target) = refresh_target(&content)
                {
                    push("meta", "content", target.to_owned(), false);
                }
                if let Some(name) = tag.value(Name) {
                    marks.push_back(Mark::Meta { name, content });
                }
            }
            Element::A => push_value(&mut push, "a", "href", tag.value(Href), nofollow),
            Element::Area => push_value(&mut push, "area", "href", tag.value(Href), nofollow),
            Element::Iframe => push_value(&mut push, "iframe", "src", tag.value(Src), false),
            Element::Frame => push_value(&mut push, "frame", "src", tag.value(Src), false),
            Element::Link => {
                // Hints about hosts, not about documents.
                let hint = tag
                    .value(Rel)
                    .is_some_and(|rel| has_word(&rel, &["preconnect", "dns-prefetch"]));
                if !hint {
                    push_value(&mut push, "link", "href", tag.value(Href), nofollow);
                }
            }
            Element::Script => push_value(&mut push, "script", "src", tag.value(Src), false),
            Element::Img | Element::Source => {
                let element = if element == Element::Img {
                    "img"
                } else {
                    "source"
                };
                push_value(&mut push, element, "src", tag.value(Src), false);
                let set = tag.value(Srcset).unwrap_or_default();
                for candidate in candidates(&set) {
                    push(element, "srcset", candidate.to_owned(), false);
                }
            }
            Element::Form => {
                let method = tag.value(Method).unwrap_or_default();
                if method.is_empty() || method.eq_ignore_ascii_case("get") {
                    push_value(&mut push, "form", "action", tag.value(Action), nofollow);
                }
            }
        }
    }

    /// The tokenizer state for the text after this start tag, which a tree builder would set.
    ///
    /// `noscript` is not raw text here, since a crawler runs no scripts.
    fn text_state(&self) -> Option<State> {
        if self.foreign_depth > 0 && self.tag.self_closing {
            return None;
        }
        Some(match &self.tag.name[..] {
            b"title" | b"textarea" => State::RcData,
            b"script" => State::ScriptData,
            b"style" | b"iframe" | b"xmp" | b"noembed" | b"noframes" => State::RawText,
            b"plaintext" => State::PlainText,
            _ => return None,
        })
    }
}

impl Emitter for LinkEmitter {
    type Token = Mark;

    fn init_start_tag(&mut self) {
        self.tag.begin(false);
    }

    fn init_end_tag(&mut self) {
        self.tag.begin(true);
    }

    fn push_tag_name(&mut self, name: &[u8]) {
        push_bounded(&mut self.tag.name, name, NAME_MAX + 1);
    }

    fn set_self_closing(&mut self) {
        self.tag.self_closing = true;
    }

    fn init_attribute(&mut self) {
        self.tag.attribute.clear();
        self.tag.kept = None;
    }

    fn push_attribute_name(&mut self, name: &[u8]) {
        push_bounded(&mut self.tag.attribute, name, NAME_MAX + 1);
    }

    fn init_attribute_value(&mut self) {
        let matters = !self.tag.is_end && Element::of(&self.tag.name, self.resources).is_some();
        self.tag.kept = Attribute::of(&self.tag.attribute)
            .filter(|kept| matters && self.tag.values[*kept as usize].is_none());
        if let Some(kept) = self.tag.kept {
            let start = self.tag.text.len();
            self.tag.values[kept as usize] = Some(start..start);
        }
    }

    fn push_attribute_value(&mut self, value: &[u8]) {
        let Some(kept) = self.tag.kept else { return };
        let Some(range) = &mut self.tag.values[kept as usize] else {
            return;
        };
        push_bounded(&mut self.tag.text, value, range.start + VALUE_MAX);
        range.end = self.tag.text.len();
    }

    fn emit_current_tag(&mut self) -> Option<State> {
        let is_foreign = matches!(&self.tag.name[..], b"svg" | b"math");
        if self.tag.is_end {
            self.foreign_depth -= u32::from(is_foreign && self.foreign_depth > 0);
            return None;
        }
        self.foreign_depth += u32::from(is_foreign && !self.tag.self_closing);
        if let Some(element) = Element::of(&self.tag.name, self.resources) {
            self.take(element);
        }
        let state = self.text_state();
        mem::swap(&mut self.last_start_tag, &mut self.tag.name);
        state
    }

    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        self.tag.is_end && self.tag.name == self.last_start_tag
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&mut self) -> bool {
        self.foreign_depth > 0
    }

    fn set_last_start_tag(&mut self, name: Option<&[u8]>) {
        self.last_start_tag = name.unwrap_or_default().to_vec();
    }

    fn should_emit_errors(&mut self) -> bool {
        false
    }

    #[inline]
    fn pop_token(&mut self) -> Option<Mark> {
        self.marks.pop_front()
    }

    // Text, comments and doctypes contain no links.
    fn emit_eof(&mut self) {}
    fn emit_error(&mut self, _: Error) {}
    fn emit_string(&mut self, _: &[u8]) {}
    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn set_force_quirks(&mut self) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn emit_current_doctype(&mut self) {}
}

fn push_bounded(to: &mut Vec<u8>, more: &[u8], length_max: usize) {
    let room = length_max.saturating_sub(to.len());
    to.extend_from_slice(&more[..more.len().min(room)]);
}

/// Pushes a value if there is one.
fn push_value(
    push: &mut impl FnMut(&'static str, &'static str, String, bool),
    element: &'static str,
    attribute: &'static str,
    value: Option<String>,
    nofollow: bool,
) {
    if let Some(value) = value {
        push(element, attribute, value, nofollow);
    }
}

/// Returns whether a space-separated list contains one of these words.
fn has_word(list: &str, words: &[&str]) -> bool {
    list.split_ascii_whitespace()
        .any(|word| words.iter().any(|wanted| word.eq_ignore_ascii_case(wanted)))
}

/// The URL in the content of a refresh: `5; url=/there` (WHATWG HTML, 4.2.5.3).
fn refresh_target(content: &str) -> Option<&str> {
    let blank = |c: char| c.is_ascii_whitespace();
    let content = content.trim_start_matches(blank);
    let after_time = content.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    if after_time.len() == content.len()
        || !after_time.starts_with(|c| blank(c) || ";,".contains(c))
    {
        return None;
    }
    let rest = after_time.trim_start_matches(blank);
    let rest = rest.strip_prefix([';', ',']).unwrap_or(rest);
    let rest = rest.trim_start_matches(blank);
    let after_name = rest
        .get(..3)
        .filter(|name| name.eq_ignore_ascii_case("url"))
        .and_then(|_| rest[3..].trim_start_matches(blank).strip_prefix('='))
        .map(|value| value.trim_start_matches(blank));
    let target = after_name.unwrap_or(rest);
    let target = match target.chars().next() {
        Some(quote @ ('"' | '\'')) => target[1..].split(quote).next().unwrap_or(""),
        _ => target,
    };
    (!target.is_empty()).then_some(target)
}

/// The URLs of a `srcset` (WHATWG HTML, 4.8.4.2.1).
pub(super) fn candidates(set: &str) -> Vec<&str> {
    let blank = |c: char| c.is_ascii_whitespace();
    let mut found = Vec::new();
    let mut rest = set;
    loop {
        rest = rest.trim_start_matches(|c| blank(c) || c == ',');
        if rest.is_empty() {
            return found;
        }
        let end = rest.find(blank).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let url = word.trim_end_matches(',');
        found.push(url);
        rest = after;
        if url.len() == word.len() {
            // A descriptor ends at a comma outside of parentheses.
            let mut depth = 0;
            let comma = rest.find(|c| {
                match c {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                c == ',' && depth <= 0
            });
            rest = &rest[comma.unwrap_or(rest.len())..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    const WORDS: [&str; 44] = [
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
    ];

    proptest! {
        #[test]
        fn a_page_read_with_pauses_gives_the_same_links(
            words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40),
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
}
