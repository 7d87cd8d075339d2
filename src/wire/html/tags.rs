//! Reads the relevant tags of a page in bounded steps: adapts the tokenizer library to bodies in
//! any encoding, and passes over what holds no links without it.

mod skim;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
        let is_data = Arc::new(AtomicBool::new(true));
        let reader = BodyReader {
            is_data: Arc::clone(&is_data),
            resources,
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
            LinkEmitter::new(resources, is_data),
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
    /// As in [`LinkEmitter`].
    is_data: Arc<AtomicBool>,
    resources: bool,
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
        let (is_data, resources) = (&self.is_data, self.resources);
        let is_data = needle == DATA && is_data.load(Ordering::Relaxed);
        let rest = self.rest(1);
        let rest = &rest[..rest.len().min(most)];
        if rest.is_empty() {
            return Ok(None);
        }
        let found = match needle {
            DATA if is_data => skim::relevant_tag(rest, |tag| is_relevant(tag, resources)),
            _ => skim::first_of(rest, needle),
        };
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

/// The bytes for which the tokenizer looks in the data state, and in the text of `title` and `textarea`.
const DATA: &[u8] = b"&<\0\r";

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

/// Whether the tokenizer must see a tag with this name, in lower case: it has links, or the text after it
/// is read by other rules.
fn is_relevant(tag: skim::Name<'_>, resources: bool) -> bool {
    is_foreign(tag.name)
        || !tag.is_end
            && (Element::of(tag.name, resources).is_some() || text_after(tag.name).is_some())
}

/// Within these elements other rules apply to raw text and CDATA.
fn is_foreign(name: &[u8]) -> bool {
    matches!(name, b"svg" | b"math")
}

/// The tokenizer state for the text after a start tag with this name, which a tree builder would set.
///
/// `noscript` is not raw text here, since a crawler runs no scripts.
fn text_after(name: &[u8]) -> Option<State> {
    Some(match name {
        b"title" | b"textarea" => State::RcData,
        b"script" => State::ScriptData,
        b"style" | b"iframe" | b"xmp" | b"noembed" | b"noframes" => State::RawText,
        b"plaintext" => State::PlainText,
        _ => return None,
    })
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
    /// The attributes before the one being read, with or without values: a bit for each.
    before: u16,
    /// The values.
    text: Vec<u8>,
}

impl Tag {
    fn begin(&mut self, is_end: bool) {
        self.name.clear();
        self.is_end = is_end;
        self.self_closing = false;
        self.attribute.clear();
        self.kept = None;
        self.values = Default::default();
        self.before = 0;
        self.text.clear();
    }

    fn begin_attribute(&mut self) {
        if let Some(before) = Attribute::of(&self.attribute) {
            self.before |= 1 << before as u16;
        }
        self.attribute.clear();
        self.kept = None;
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
    /// Whether the last tag put the tokenizer into the data state, which it then leaves for tags, comments
    /// and CDATA only: false within the text of a `title`, a `script` and the like.
    is_data: Arc<AtomicBool>,
}

impl LinkEmitter {
    fn new(resources: bool, is_data: Arc<AtomicBool>) -> Self {
        LinkEmitter {
            is_data,
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
        self.tag.begin_attribute();
    }

    fn push_attribute_name(&mut self, name: &[u8]) {
        push_bounded(&mut self.tag.attribute, name, NAME_MAX + 1);
    }

    fn init_attribute_value(&mut self) {
        let matters = !self.tag.is_end && Element::of(&self.tag.name, self.resources).is_some();
        self.tag.kept = Attribute::of(&self.tag.attribute)
            .filter(|kept| matters && self.tag.before >> *kept as u16 & 1 == 0);
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
        let is_foreign = is_foreign(&self.tag.name);
        if self.tag.is_end {
            self.foreign_depth -= u32::from(is_foreign && self.foreign_depth > 0);
            self.is_data.store(true, Ordering::Relaxed);
            return None;
        }
        self.foreign_depth += u32::from(is_foreign && !self.tag.self_closing);
        if let Some(element) = Element::of(&self.tag.name, self.resources) {
            self.take(element);
        }
        let is_empty = self.foreign_depth > 0 && self.tag.self_closing;
        let state = text_after(&self.tag.name).filter(|_| !is_empty);
        self.is_data.store(state.is_none(), Ordering::Relaxed);
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
mod tests;
