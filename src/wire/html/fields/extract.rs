//! Finds the values of fields in a page: adapts a library of CSS selectors, and bounds what a page can cost.
//!
//! The library builds the tree that browsers build. Some of its steps, and some selectors, take time in
//! proportion to the square of a page made for that: bounds of the tree, of attributes, and of the steps of
//! each field end these early. What is left unread or untried then is as if the page had been cut off there.

mod attributes;
mod metered;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use html5ever::TokenizerResult;
use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::fmt::UTF8;
use html5ever::tendril::stream::Utf8LossyDecoder;
use html5ever::tendril::{ByteTendril, StrTendril, TendrilSink};
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{Tracer, TreeBuilder, TreeBuilderOpts, TreeSink};
use html5ever::{LocalName, Namespace};
#[cfg(test)]
use html5ever::{ParseOpts, parse_document};
#[cfg(test)]
use scraper::Selector as UnboundedSelector;
use scraper::error::SelectorErrorKind;
use scraper::selector::{
    CssLocalName, CssString, NonTSPseudoClass, Parser as ScraperParser, PseudoElement, Simple,
};
use scraper::{ElementRef, Html, HtmlTreeSink};
use selectors::attr::{
    AttrSelectorOperation, AttrSelectorOperator, CaseSensitivity, NamespaceConstraint,
};
use selectors::bloom::BloomFilter;
use selectors::context::{
    MatchingContext, MatchingForInvalidation, MatchingMode, NeedsSelectorFlags, QuirksMode,
    SelectorCaches,
};
use selectors::matching::{ElementSelectorFlags, matches_selector};
use selectors::parser::{
    Component, NthSelectorData, ParseRelative, Selector, SelectorList, SelectorParseErrorKind,
};
use selectors::{Element, OpaqueElement};

use self::attributes::{Attributes, Follows};
use self::metered::{Metered, Steps};
use super::{Extracted, FieldProblem, FieldSpec};
use crate::base::units::Units;
use crate::wire::charset::Detection;

/// Selectors in the order of their fields.
#[derive(Debug)]
pub(super) struct Selectors(Vec<Field>);

/// What is wrong with a selector.
const fn words_of(kind: &SelectorParseErrorKind) -> &'static str {
    match kind {
        SelectorParseErrorKind::ClassNeedsIdent => "a dot without the name of a class behind it",
        SelectorParseErrorKind::EmptySelector => "a part of it is empty",
        SelectorParseErrorKind::DanglingCombinator => "nothing stands behind its >, + or ~",
        SelectorParseErrorKind::NoQualifiedNameInAttributeSelector
        | SelectorParseErrorKind::InvalidQualNameInAttr => {
            "brackets without the name of an attribute"
        }
        SelectorParseErrorKind::UnexpectedTokenInAttributeSelector
        | SelectorParseErrorKind::ExpectedBarInAttr => {
            "something unexpected stands in its brackets"
        }
        SelectorParseErrorKind::BadValueInAttr => "the value in its brackets needs quotation marks",
        SelectorParseErrorKind::NoIdentForPseudo
        | SelectorParseErrorKind::PseudoElementExpectedColon
        | SelectorParseErrorKind::PseudoElementExpectedIdent => "a colon without a name behind it",
        SelectorParseErrorKind::UnsupportedPseudoClassOrElement => {
            "a pseudo-class that is not known"
        }
        SelectorParseErrorKind::ExpectedNamespace
        | SelectorParseErrorKind::ExplicitNamespaceUnexpectedToken => {
            "a namespace, which pages do not have"
        }
        _ => "something unexpected stands in it",
    }
}

#[derive(Debug)]
struct Field {
    selector: SelectorList<Simple>,
    /// The attribute whose value is wanted; otherwise the text of the element.
    attribute: Option<Box<str>>,
    parts: Parts,
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

/// What is of the head is looked for in so many bytes of the body: what belongs into the head is in the body of many
/// pages, but soon.
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
                    parts: Parts::of(selector.slice()),
                    selector,
                    attribute: spec.attribute.clone(),
                    is_of_head: OF_HEAD.contains(&&*spec.text),
                }),
                Err(error) => {
                    let reason = match SelectorErrorKind::from(error) {
                        SelectorErrorKind::UnexpectedSelectorParseError(kind) => {
                            words_of(&kind).to_owned()
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

    /// The first value of each field in a page. If it `is_cut_off`, or is not read to its end here, an element without
    /// its end has no text: that may be a part of it.
    pub fn values_in(
        &self,
        body: &[u8],
        content_type: Option<&str>,
        is_cut_off: bool,
    ) -> Extracted {
        let found = self.search(body, content_type, is_cut_off);
        Extracted {
            is_cut: found.iter().any(|found| found.is_cut),
            values: found.into_iter().map(|found| found.value).collect(),
        }
    }

    /// The values, and how they were found.
    fn search(&self, body: &[u8], content_type: Option<&str>, is_cut_off: bool) -> Vec<Found> {
        let mut is_cut_off = is_cut_off || body.len() > READ_MAX;
        let body = &body[..body.len().min(READ_MAX)];
        let mut encoding = Detection::new(body, content_type);
        while !encoding.step(body, &mut Units::unbounded()) {}
        let mut recoder = encoding.recoder();
        let mut page = Page::new();
        let mut found: Vec<Found> = self.0.iter().map(|_| Found::default()).collect();
        let mut text = Vec::new();
        let (mut at, mut look_at) = (encoding.start(), FIRST_LOOK);
        let (mut head_end, mut is_head_over) = (None, false);
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
                is_cut_off |= at < body.len();
                break;
            }
            if head_end.is_none() && page.has_body() {
                head_end = Some(at + BODY_READ_MAX);
            }
            if at == body.len() {
                break;
            }
            if !is_head_over && head_end.is_some_and(|end| at >= end) {
                is_head_over = true;
                page.look_for_of_head(&self.0, &mut found, at);
            }
            if at >= look_at {
                look_at *= 2;
                page.look_for(&self.0, &mut found, at, false);
                if found.iter().all(|found| found.is_final) {
                    return found;
                }
            }
        }
        if is_cut_off {
            page.look_for(&self.0, &mut found, at, false);
            let unknown = found.iter_mut().filter(|found| !found.is_final);
            unknown.for_each(Found::cut);
        } else {
            page.end();
            page.look_for(&self.0, &mut found, at, true);
        }
        found
    }
}

impl Found {
    /// The search ends before what it has found is known to be whole.
    fn cut(&mut self) {
        (self.value, self.is_final, self.is_cut) = (None, true, true);
    }
}

/// What is to be known of the parts of selectors before they are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    /// What follows an element decides, too: its match is known at the end of the page only.
    looks_ahead: bool,
    /// Parts that look at no element, and so are not counted where they do.
    blind: u64,
}

impl Parts {
    /// Of these selectors and those within them.
    fn of(selectors: &[Selector<Simple>]) -> Self {
        let mut parts = Parts::default();
        for part in selectors.iter().flat_map(Selector::iter_raw_match_order) {
            match part {
                Component::Is(list) | Component::Where(list) | Component::Negation(list) => {
                    parts.add(1, Parts::of(list.slice()));
                }
                Component::NthOf(data) => {
                    parts.looks_ahead |= !is_from_start(data.nth_data());
                    parts.add(1, Parts::of(data.selectors()));
                }
                Component::Nth(data) => parts.looks_ahead |= !is_from_start(data),
                Component::Empty => parts.looks_ahead = true,
                Component::LocalName(_)
                | Component::ID(_)
                | Component::Class(_)
                | Component::AttributeInNoNamespaceExists { .. }
                | Component::AttributeInNoNamespace { .. }
                | Component::AttributeOther(_)
                | Component::Root
                | Component::Combinator(_) => {}
                _ => parts.blind += 1,
            }
        }
        parts
    }

    fn add(&mut self, blind: u64, within: Parts) {
        self.looks_ahead |= within.looks_ahead;
        self.blind += blind + within.blind;
    }

    /// Steps for each element at which the selectors are tried.
    fn per_try(self) -> u64 {
        1 + self.blind / 2
    }
}

/// Whether the number of an element is that among those before it.
fn is_from_start(data: &NthSelectorData) -> bool {
    !data.ty.is_from_end() && !data.ty.is_only()
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
    /// Nodes among which its body is not.
    without_body: usize,
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
            added: Cell::new(0),
        };
        let reader = Reader {
            tokenizer: Tokenizer::new(watched, TokenizerOpts::default()),
            input: BufferQueue::default(),
            attributes: Attributes::default(),
            tags: 0,
            scanned: 0,
        };
        Page {
            decoder: Utf8LossyDecoder::new(reader),
            without_body: 0,
        }
    }

    /// Reads more; returns false where the page is not to be read further.
    fn read(&mut self, piece: &[u8]) -> bool {
        self.decoder.process(ByteTendril::from_slice(piece));
        let reader = &mut self.decoder.inner_sink;
        let has_few_open = reader.has_few_open();
        is_usual(&reader.html()) && has_few_open && !reader.attributes.is_excessive()
    }

    /// The page has no more.
    fn end(&mut self) {
        self.decoder.inner_sink.tokenizer.end();
    }

    /// Whether its body has begun. It is not to be asked again then.
    fn has_body(&mut self) -> bool {
        let html = self.decoder.inner_sink.html();
        let nodes = html.tree.nodes();
        let new = nodes.len() - self.without_body;
        self.without_body = nodes.len();
        // An element of this name is made once.
        nodes.rev().take(new).any(|node| {
            let element = node.value().as_element();
            element.is_some_and(|element| element.name() == "body")
        })
    }

    /// The elements that may get more content, and some that may not.
    fn open_elements(&self) -> BTreeSet<NodeId> {
        let open = OpenElements::default();
        let reader = &self.decoder.inner_sink;
        reader.tokenizer.sink.tree.trace_handles(&open);
        open.0.into_inner()
    }

    /// Looks for the values of fields of the head a last time, after so many bytes of the body.
    fn look_for_of_head(&self, fields: &[Field], found: &mut [Found], read: usize) {
        let steps_max = steps_max(read, fields.len());
        let all = fields.iter().zip(found);
        for (field, found) in all.filter(|(field, _)| field.is_of_head) {
            self.look_for_field(field, found, steps_max, false);
            found.is_final = true;
        }
    }

    /// Looks for the values that are not final, after so many bytes of the body. `is_over`: the page is read.
    fn look_for(&self, fields: &[Field], found: &mut [Found], read: usize, is_over: bool) {
        let steps_max = steps_max(read, fields.len());
        for (field, found) in fields.iter().zip(found) {
            self.look_for_field(field, found, steps_max, is_over);
        }
    }

    /// Looks for the value of a field, unless it is final.
    fn look_for_field(&self, field: &Field, found: &mut Found, steps_max: u64, is_over: bool) {
        let may_know = is_over || !field.parts.looks_ahead;
        if found.is_final || !may_know {
            return;
        }
        let html = self.decoder.inner_sink.html();
        let steps = Steps::new(found.steps, steps_max, field.parts.per_try());
        let open = || match is_over {
            true => BTreeSet::new(),
            false => self.open_elements(),
        };
        field.look_in(&html, open, is_over, &steps, found);
        found.steps = steps.taken();
        if steps.are_excessive() {
            found.cut();
        }
    }
}

impl Field {
    /// Finds the value in the first element that has one, in the order of the page. If the steps are excessive, what it
    /// finds has no meaning.
    fn look_in(
        &self,
        html: &Html,
        open: impl FnOnce() -> BTreeSet<NodeId>,
        is_over: bool,
        steps: &Steps,
        found: &mut Found,
    ) {
        (found.value, found.is_final) = (None, is_over);
        // The numbers of elements among their siblings are found once: later ones are found from them.
        let mut caches = SelectorCaches::default();
        for node in html.tree.root().descendants() {
            let element = ElementRef::wrap(node);
            if !steps.take(steps.at(element.is_some())) {
                return;
            }
            let Some(element) = element else {
                continue;
            };
            if !self.matches(Metered::new(element, steps), &mut caches) {
                continue;
            }
            let Some(attribute) = &self.attribute else {
                let (text, is_full) = text_of(element, steps);
                found.value = Some(text.into());
                found.is_final |= is_full || is_closed(html, &open(), element);
                return;
            };
            steps.take(STEPS_OF_ATTRIBUTE);
            if let Some(value) = element.value().attr(attribute) {
                found.value = Some(plain([value].into_iter()).0.into());
                found.is_final = true;
                return;
            }
        }
    }

    fn matches(&self, element: Metered<'_>, caches: &mut SelectorCaches) -> bool {
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
    /// Tags and comments since the open elements were counted.
    tags: usize,
    /// Open elements at each tag so far, added up.
    scanned: usize,
}

impl Reader {
    fn html(&self) -> std::cell::Ref<'_, Html> {
        self.tokenizer.sink.tree.sink.0.borrow()
    }

    /// Whether few elements are open or would be opened anew, formats that a paragraph has closed, for the number of
    /// tags: the library looks through them at each. The last node is not in them all: a comment behind `</body>` is
    /// in none.
    fn has_few_open(&mut self) -> bool {
        let count = Count(Cell::new(0));
        self.tokenizer.sink.tree.trace_handles(&count);
        let tags = std::mem::take(&mut self.tags);
        // Few more can have been open since the last count: a piece is short.
        self.scanned += tags * (count.0.get() + OPEN_BETWEEN);
        count.0.get() <= 2 * DEPTH_MAX && self.scanned <= SCANNED_MAX
    }

    fn feed(&mut self, part: StrTendril) {
        let bytes = part.clone();
        self.input.push_back(part);
        while !matches!(self.tokenizer.feed(&self.input), TokenizerResult::Done) {}
        let mark = self.tokenizer.sink.mark.take();
        self.tags += usize::from(mark.is_some());
        self.attributes.read(bytes.as_bytes(), mark);
        self.attributes.add(self.tokenizer.sink.added.take() as u64);
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
    /// Attributes that tags added to an element that was there.
    added: Cell<usize>,
}

impl TokenSink for Watched {
    type Handle = NodeId;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<Self::Handle> {
        let is_mark = matches!(
            token,
            Token::TagToken(_) | Token::CommentToken(_) | Token::DoctypeToken(_)
        );
        if let Token::TagToken(tag) = &token
            && matches!(&*tag.name, "html" | "body")
        {
            self.added.set(self.added.get() + tag.attrs.len());
        }
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

/// Whether an element gets no more content. What is in a table and does not belong there goes before it, so something
/// may follow a table that is open. Elements of formatting are kept to be opened again: they have ended if something
/// follows.
fn is_closed(html: &Html, open: &BTreeSet<NodeId>, element: ElementRef<'_>) -> bool {
    if !open.contains(&element.id()) {
        return true;
    }
    if !FORMATTING.contains(&element.value().name()) {
        return false;
    }
    let last = html.tree.nodes().next_back();
    last.is_some_and(|last| {
        let is_it = |id| id == element.id();
        !is_it(last.id()) && !last.ancestors().any(|above| is_it(above.id()))
    })
}

/// Elements that are opened again in what follows them, if their end is missing.
const FORMATTING: [&str; 14] = [
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
];

/// The text of an element, and whether it is longer than a value may be.
fn text_of(element: ElementRef<'_>, steps: &Steps) -> (String, bool) {
    let texts = element.descendants().map_while(|node| {
        let text = node.value().as_text().map_or("", |text| &*text.text);
        steps.take(1 + text.len() as u64 / 8).then_some(text)
    });
    plain(texts)
}

/// A text with single spaces in place of all white space, without any at its ends; and whether it was cut, as it is
/// longer than a value may be.
fn plain<'a>(parts: impl Iterator<Item = &'a str>) -> (String, bool) {
    let mut text = String::new();
    let mut is_after_space = false;
    for char in parts.flat_map(str::chars) {
        if char.is_whitespace() {
            is_after_space = !text.is_empty();
            continue;
        }
        let space = usize::from(is_after_space);
        if text.len() + space + char.len_utf8() > VALUE_MAX {
            return (text, true);
        }
        if std::mem::take(&mut is_after_space) {
            text.push(' ');
        }
        text.push(char);
    }
    (text, false)
}

/// Most nodes that are one in the other: as many as browsers allow. The library looks through all open
/// elements at each tag.
const DEPTH_MAX: usize = 512;

/// Elements that a piece opens and closes.
const OPEN_BETWEEN: usize = 64;

/// Most looks at open elements in a page: a third of a second. Pages of a megabyte have a tenth of it, if as many as
/// fifty elements are open at each of their tags.
const SCANNED_MAX: usize = 1 << 25;

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

/// Collects the elements that the builder of a tree has at hand.
#[derive(Default)]
struct OpenElements(RefCell<BTreeSet<NodeId>>);

impl Tracer for OpenElements {
    type Handle = NodeId;

    fn trace_handle(&self, node: &NodeId) {
        self.0.borrow_mut().insert(*node);
    }
}

/// Counts the nodes that the builder of a tree has at hand.
struct Count(Cell<usize>);

impl Tracer for Count {
    type Handle = NodeId;

    fn trace_handle(&self, _node: &NodeId) {
        self.0.set(self.0.get() + 1);
    }
}

/// What the search for one of so many fields may cost in a page of which so many bytes are read, in steps of a few
/// nanoseconds. Each field has its own share, whatever the others cost.
fn steps_max(read: usize, fields: usize) -> u64 {
    let share = (STEPS_PER_BYTE / fields as u64).max(STEPS_PER_BYTE_MIN);
    STEPS_FREE + read as u64 * share
}

/// Steps of a field in a page besides those for its length.
const STEPS_FREE: u64 = 1 << 16;

/// Steps of all fields for each byte that is read: twenty with several ancestors cost a fifth of this in usual pages.
const STEPS_PER_BYTE: u64 = 64;

/// Fewest steps of a field for each byte.
const STEPS_PER_BYTE_MIN: u64 = 2;

/// Steps of finding an attribute by its name.
const STEPS_OF_ATTRIBUTE: u64 = 8;

#[cfg(test)]
mod tests;
