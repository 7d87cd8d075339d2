//! Finds the values of fields in a page: adapts a library of CSS selectors, and bounds what a page can cost.
//!
//! The library builds the tree that browsers build. Some of its steps, and some selectors, take time in
//! proportion to the square of a page made for that: bounds of the tree, of attributes, and of the steps of
//! each field end these early.

mod attributes;
mod paths;

use std::cell::Cell;

use html5ever::TokenizerResult;
use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::fmt::UTF8;
use html5ever::tendril::stream::Utf8LossyDecoder;
use html5ever::tendril::{ByteTendril, StrTendril, TendrilSink};
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts, TreeSink};
use scraper::error::SelectorErrorKind;
use scraper::selector::{Parser as ScraperParser, Simple};
use scraper::{ElementRef, Html, HtmlTreeSink};
use selectors::context::{
    MatchingContext, MatchingForInvalidation, MatchingMode, NeedsSelectorFlags, QuirksMode,
    SelectorCaches,
};
use selectors::matching::matches_selector;
use selectors::parser::{ParseRelative, SelectorList, SelectorParseErrorKind};

use self::attributes::{Attributes, Follows};
use self::paths::{Paths, Reach};
use super::{Extracted, FieldProblem, FieldSpec};
use crate::base::units::Units;
use crate::wire::charset::Detection;

/// Selectors in the order of their fields.
#[derive(Debug)]
pub(super) struct Selectors(Vec<Field>);

#[derive(Debug)]
struct Field {
    selector: SelectorList<Simple>,
    /// The attribute whose value is wanted; otherwise the text of the element.
    attribute: Option<Box<str>>,
    reach: Reach,
    /// It is in the head of a page, and not looked for far behind it.
    is_of_head: bool,
}

/// A value that is looked for.
#[derive(Debug, Default)]
struct Found {
    value: Option<Box<str>>,
    /// What follows in the page does not change it.
    is_final: bool,
    /// Steps that were spent on it.
    steps: u64,
    /// The search ended for its cost, before the end of what was to be read.
    is_cut: bool,
}

/// The part of a page that is read. Most pages are shorter; titles and the like are at the beginning.
const READ_MAX: usize = 1 << 20;

/// Longest value, in bytes; what is longer is cut between characters.
const VALUE_MAX: usize = 4096;

/// Bytes read between two looks at the tree.
const PIECE: usize = 512;

/// The fields are first looked for after so many bytes, then after twice as many, and so on: what is at the
/// beginning of a page costs no more than that.
const FIRST_LOOK: usize = 4096;

/// What is of the head is not looked for after so many bytes of the body: what belongs into the head is in the body of
/// many pages, but soon.
const BODY_READ_MAX: usize = 32 << 10;

/// The built-in fields that are of the head.
const OF_HEAD: &[&str] = &["lang", "description", "canonical"];

impl Selectors {
    /// The selectors of these fields.
    ///
    /// # Errors
    /// One is invalid; with the text of its field.
    pub fn new(specs: &[FieldSpec]) -> Result<Self, (String, FieldProblem)> {
        let field = |spec: &FieldSpec| {
            let fail = |what: String, mend: &str| {
                let problem = FieldProblem::new(what, mend);
                Err((spec.text.to_string(), problem))
            };
            if spec.selector.to_ascii_lowercase().contains(":has(") {
                return fail(
                    "a selector with :has(), whose cost no page bounds".to_owned(),
                    "select the inner element itself",
                );
            }
            let mut input = cssparser::Parser::new(&spec.selector);
            match SelectorList::parse(&CssParser, &mut input, ParseRelative::No) {
                Ok(selector) => Ok(Field {
                    selector,
                    attribute: spec.attribute.clone(),
                    reach: Reach::of(&spec.selector),
                    is_of_head: OF_HEAD.contains(&&*spec.text),
                }),
                Err(error) => {
                    let reason = match SelectorErrorKind::from(error) {
                        SelectorErrorKind::UnexpectedSelectorParseError(kind) => {
                            format!("{kind:?}")
                        }
                        other => other.to_string(),
                    };
                    let what = format!("with a selector that cannot be read ({reason})");
                    fail(what, "give one as in a style sheet, such as div.price > b")
                }
            }
        };
        specs
            .iter()
            .map(field)
            .collect::<Result<_, _>>()
            .map(Selectors)
    }

    /// The first value of each field in a page. If it `is_cut_off`, an element without its end has no text: that may
    /// be a part of it.
    pub fn values_in(
        &self,
        body: &[u8],
        content_type: Option<&str>,
        is_cut_off: bool,
    ) -> Extracted {
        let body = &body[..body.len().min(READ_MAX)];
        let mut encoding = Detection::new(body, content_type);
        while !encoding.step(body, &mut Units::unbounded()) {}
        let mut recoder = encoding.recoder();
        let mut page = Page::new();
        let mut found: Vec<Found> = self.0.iter().map(|_| Found::default()).collect();
        let mut text = Vec::new();
        let (mut at, mut look_at) = (encoding.start(), FIRST_LOOK);
        let (mut body_at, mut is_cut) = (None, false);
        while at < body.len() {
            let end = body.len().min(at + PIECE);
            let piece = &body[at..end];
            let goes_on = match &mut recoder {
                None => page.read(piece),
                Some(recoder) => {
                    text.clear();
                    recoder.decode(piece, end == body.len(), &mut text);
                    page.read(&text)
                }
            };
            at = end;
            if !goes_on {
                is_cut = at < body.len();
                break;
            }
            if at >= look_at && at < body.len() {
                look_at *= 2;
                page.look_for(&self.0, &mut found, false);
                if body_at.is_none() && page.has_body() {
                    body_at = Some(at);
                }
                if body_at.is_some_and(|begun| at - begun >= BODY_READ_MAX) {
                    for (field, found) in self.0.iter().zip(&mut found) {
                        found.is_final |= field.is_of_head;
                    }
                }
                if found.iter().all(|found| found.is_final) {
                    return values_of(found, false);
                }
            }
        }
        if is_cut_off {
            page.look_for(&self.0, &mut found, false);
        }
        let known: Vec<bool> = found.iter().map(|found| found.is_final).collect();
        page.end();
        page.look_for(&self.0, &mut found, true);
        if is_cut_off {
            let unknown = found.iter_mut().zip(known).filter(|(_, known)| !known);
            for (found, _) in unknown {
                (found.value, found.is_cut) = (None, true);
            }
        }
        let is_cut = is_cut && found.iter().any(|found| found.value.is_none());
        values_of(found, is_cut)
    }
}

/// `is_cut`: the page was not read as far as it is to be.
fn values_of(found: Vec<Found>, is_cut: bool) -> Extracted {
    Extracted {
        is_cut: is_cut || found.iter().any(|found| found.is_cut),
        values: found.into_iter().map(|found| found.value).collect(),
    }
}

/// Reads selectors as scraper does, without `:has()`.
struct CssParser;

impl<'i> selectors::parser::Parser<'i> for CssParser {
    type Impl = Simple;
    type Error = SelectorParseErrorKind;

    fn parse_is_and_where(&self) -> bool {
        selectors::parser::Parser::parse_is_and_where(&ScraperParser)
    }
}

/// A page that is read into a tree.
struct Page {
    decoder: Utf8LossyDecoder<Reader>,
    /// Bytes that were read.
    read: u64,
}

impl Page {
    fn new() -> Self {
        let options = TreeBuilderOpts {
            // A crawler runs no scripts, and sees what `noscript` has for it.
            scripting_enabled: false,
            ..TreeBuilderOpts::default()
        };
        let sink = HtmlTreeSink::new(Html::new_document());
        let watched = Watched {
            tree: TreeBuilder::new(sink, options),
            mark: Cell::new(None),
        };
        let reader = Reader {
            tokenizer: Tokenizer::new(watched, TokenizerOpts::default()),
            input: BufferQueue::default(),
            attributes: Attributes::default(),
        };
        Page {
            decoder: Utf8LossyDecoder::new(reader),
            read: 0,
        }
    }

    /// Reads more; returns false where the page is not to be read further.
    fn read(&mut self, piece: &[u8]) -> bool {
        self.read += piece.len() as u64;
        self.decoder.process(ByteTendril::from_slice(piece));
        let reader = &self.decoder.inner_sink;
        is_usual(&reader.html()) && !reader.attributes.is_excessive()
    }

    /// The page has no more.
    fn end(&mut self) {
        self.decoder.inner_sink.tokenizer.end();
    }

    /// Whether its body has begun.
    fn has_body(&self) -> bool {
        let html = self.decoder.inner_sink.html();
        let root = html.tree.root().children().filter_map(ElementRef::wrap);
        let mut parts = root.flat_map(|root| root.children().filter_map(ElementRef::wrap));
        parts.any(|part| part.value().name() == "body")
    }

    /// Looks for the values that are not final. `is_over`: the page is read.
    fn look_for(&mut self, fields: &[Field], found: &mut [Found], is_over: bool) {
        let html = self.decoder.inner_sink.html();
        let steps_max = steps_max(self.read, fields.len());
        for (field, found) in fields.iter().zip(found) {
            let may_know = is_over || !field.reach.is_known_at_the_end();
            if !found.is_final && may_know {
                field.look_in(&html, is_over, steps_max, found);
            }
        }
    }
}

impl Field {
    /// Finds the value in the first element that has one, in the order of the page.
    fn look_in(&self, html: &Html, is_over: bool, steps_max: u64, found: &mut Found) {
        found.is_final = is_over;
        // The numbers of elements among their siblings are found once: later ones are found from them.
        let mut caches = SelectorCaches::default();
        let mut paths = Paths::new(self.reach);
        for element in html.tree.root().descendants().filter_map(ElementRef::wrap) {
            found.steps += paths.enter(element);
            if found.steps > steps_max {
                // What was found before stays.
                (found.is_final, found.is_cut) = (true, true);
                return;
            }
            if !self.matches(element, &mut caches) {
                continue;
            }
            let Some(attribute) = &self.attribute else {
                found.value = Some(plain(element.text()).into());
                found.is_final |= is_closed(html, element);
                return;
            };
            if let Some(value) = element.value().attr(attribute) {
                found.value = Some(plain([value].into_iter()).into());
                found.is_final = true;
                return;
            }
        }
    }

    fn matches(&self, element: ElementRef<'_>, caches: &mut SelectorCaches) -> bool {
        let mut context = MatchingContext::new(
            MatchingMode::Normal,
            None,
            caches,
            QuirksMode::NoQuirks,
            NeedsSelectorFlags::No,
            MatchingForInvalidation::No,
        );
        let mut any = self.selector.slice().iter();
        any.any(|selector| matches_selector(selector, 0, None, &element, &mut context))
    }
}

/// Reads text into a tree, up to each tag: so it is known where tags end.
struct Reader {
    tokenizer: Tokenizer<Watched>,
    input: BufferQueue,
    attributes: Attributes,
}

impl Reader {
    fn html(&self) -> std::cell::Ref<'_, Html> {
        self.tokenizer.sink.tree.sink.0.borrow()
    }

    fn feed(&mut self, part: StrTendril) {
        let bytes = part.clone();
        self.input.push_back(part);
        while !matches!(self.tokenizer.feed(&self.input), TokenizerResult::Done) {}
        let mark = self.tokenizer.sink.mark.take();
        self.attributes.read(bytes.as_bytes(), mark);
    }
}

impl TendrilSink<UTF8> for Reader {
    type Output = ();

    fn process(&mut self, text: StrTendril) {
        let mut from = 0;
        for (at, _) in text.match_indices('>') {
            let end = at as u32 + 1;
            self.feed(text.subtendril(from, end - from));
            from = end;
        }
        let length = text.len32();
        if from < length {
            self.feed(text.subtendril(from, length - from));
        }
    }

    fn error(&mut self, _what: std::borrow::Cow<'static, str>) {}

    fn finish(self) {}
}

/// A node of the tree.
type NodeId = <HtmlTreeSink as TreeSink>::Handle;

/// Passes tokens to the tree, and records where tags and comments end.
struct Watched {
    tree: TreeBuilder<NodeId, HtmlTreeSink>,
    /// The last one, and what follows it.
    mark: Cell<Option<Follows>>,
}

impl TokenSink for Watched {
    type Handle = NodeId;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<Self::Handle> {
        let is_mark = matches!(
            token,
            Token::TagToken(_) | Token::CommentToken(_) | Token::DoctypeToken(_)
        );
        let result = self.tree.process_token(token, line);
        if is_mark {
            self.mark.set(Some(match result {
                TokenSinkResult::RawData(_) | TokenSinkResult::Plaintext => Follows::Raw,
                _ => Follows::Data,
            }));
        }
        result
    }

    fn end(&self) {
        self.tree.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.tree
            .adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// Whether something follows an element in the tree.
fn is_closed(html: &Html, element: ElementRef<'_>) -> bool {
    let last = html.tree.nodes().next_back();
    last.is_some_and(|last| {
        let is_it = |id| id == element.id();
        !is_it(last.id()) && !last.ancestors().any(|above| is_it(above.id()))
    })
}

/// A text with single spaces in place of all white space, without any at its ends.
fn plain<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut is_after_space = false;
    for char in parts.flat_map(str::chars) {
        if char.is_whitespace() {
            is_after_space = !text.is_empty();
            continue;
        }
        let space = usize::from(is_after_space);
        if text.len() + space + char.len_utf8() > VALUE_MAX {
            break;
        }
        if std::mem::take(&mut is_after_space) {
            text.push(' ');
        }
        text.push(char);
    }
    text
}

/// Most nodes that are one in the other: as many as browsers allow. The library looks through all open
/// elements at each tag.
const DEPTH_MAX: usize = 512;

/// Most nodes of a tree: of a megabyte of short tags, and some 30 MB.
const NODES_MAX: usize = 1 << 18;

/// Whether a tree takes no more than a page warrants, so that it may grow.
fn is_usual(html: &Html) -> bool {
    let nodes = html.tree.nodes();
    let count = nodes.len();
    let Some(last) = { nodes }.next_back() else {
        return true;
    };
    count <= NODES_MAX && last.ancestors().take(DEPTH_MAX + 1).count() <= DEPTH_MAX
}

/// What the search for one of so many fields may cost in a page of which so many bytes are read, in steps of a few
/// nanoseconds. Each field has its own share, whatever the others cost.
fn steps_max(read: u64, fields: usize) -> u64 {
    let share = (STEPS_PER_BYTE / fields as u64).max(STEPS_PER_BYTE_MIN);
    STEPS_FREE + read * share
}

/// Steps of a field in a page besides those for its length.
const STEPS_FREE: u64 = 1 << 16;

/// Steps of all fields for each byte that is read: twenty with several ancestors cost a fifth of this in usual pages.
const STEPS_PER_BYTE: u64 = 64;

/// Fewest steps of a field for each byte.
const STEPS_PER_BYTE_MIN: u64 = 2;

#[cfg(test)]
mod tests;
