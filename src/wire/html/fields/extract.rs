//! Finds the values of fields in a page: adapts a library of CSS selectors, and bounds what a page can cost.
//!
//! The library builds the tree that browsers build. Some of its steps, and some selectors, take time in
//! proportion to the square of a page made for that; [`Guard`] and [`Budget`] end these early.

use html5ever::driver::{ParseOpts, Parser, parse_document};
use html5ever::tendril::stream::Utf8LossyDecoder;
use html5ever::tendril::{ByteTendril, TendrilSink};
use html5ever::tree_builder::TreeBuilderOpts;
use scraper::error::SelectorErrorKind;
use scraper::{ElementRef, Html, HtmlTreeSink, Node, Selector};

use super::{FieldProblem, FieldSpec};
use crate::base::units::Units;
use crate::wire::charset::Detection;

/// Selectors in the order of their fields.
#[derive(Debug)]
pub(super) struct Selectors(Vec<Field>);

#[derive(Debug)]
struct Field {
    selector: Selector,
    /// The attribute whose value is wanted; otherwise the text of the element.
    attribute: Option<Box<str>>,
    reach: Reach,
}

/// Which nodes besides an element a selector looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    ancestors: bool,
    siblings: bool,
    /// What follows an element decides, too: its match is known at the end of the page only.
    following: bool,
}

/// A value that is looked for.
#[derive(Debug, Default)]
struct Found {
    value: Option<Box<str>>,
    /// What follows in the page does not change it.
    is_final: bool,
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
            if spec.selector.contains(":has(") {
                return fail(
                    "a selector with :has(), whose cost no page bounds".to_owned(),
                    "select the inner element itself",
                );
            }
            match Selector::parse(&spec.selector) {
                Ok(selector) => Ok(Field {
                    selector,
                    attribute: spec.attribute.clone(),
                    reach: Reach::of(&spec.selector),
                }),
                Err(error) => {
                    let reason = match error {
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

    /// The first value of each field in a page.
    pub fn values_in(&self, body: &[u8], content_type: Option<&str>) -> Box<[Option<Box<str>>]> {
        let body = &body[..body.len().min(READ_MAX)];
        let mut encoding = Detection::new(body, content_type);
        while !encoding.step(body, &mut Units::unbounded()) {}
        let mut recoder = encoding.recoder();
        let mut page = Page::new();
        let mut found: Vec<Found> = self.0.iter().map(|_| Found::default()).collect();
        let mut text = Vec::new();
        let (mut at, mut look_at) = (encoding.start(), FIRST_LOOK);
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
                break;
            }
            if at >= look_at && at < body.len() {
                look_at *= 2;
                page.look_for(&self.0, &mut found, false);
                if found.iter().all(|found| found.is_final) {
                    return values_of(found);
                }
            }
        }
        page.end();
        page.look_for(&self.0, &mut found, true);
        values_of(found)
    }
}

fn values_of(found: Vec<Found>) -> Box<[Option<Box<str>>]> {
    found.into_iter().map(|found| found.value).collect()
}

impl Reach {
    fn of(selector: &str) -> Self {
        let plain = without_brackets(selector);
        let has = |parts: &[&str]| parts.iter().any(|part| plain.contains(part));
        let following = has(&[":last", ":only", ":nth-last", ":empty"]);
        Reach {
            ancestors: has(&[" ", ">", "\t", "\n"]),
            siblings: following || has(&["~", ":nth", ":first-of"]),
            following,
        }
    }
}

/// A selector without what is in brackets: there a space or a tilde has another meaning.
fn without_brackets(selector: &str) -> String {
    let mut depth = 0_u32;
    let mut keep = |char: &char| {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    selector.chars().filter(|char| keep(char)).collect()
}

/// A page that is read into a tree.
struct Page {
    parser: Utf8LossyDecoder<Parser<HtmlTreeSink>>,
    guard: Guard,
    budget: Budget,
}

impl Page {
    fn new() -> Self {
        let options = ParseOpts {
            tree_builder: TreeBuilderOpts {
                // A crawler runs no scripts, and sees what `noscript` has for it.
                scripting_enabled: false,
                ..TreeBuilderOpts::default()
            },
            ..ParseOpts::default()
        };
        let sink = HtmlTreeSink::new(Html::new_document());
        Page {
            parser: parse_document(sink, options).from_utf8(),
            guard: Guard::default(),
            budget: Budget { steps: STEPS_FREE },
        }
    }

    /// Reads more; returns false where the page is not to be read further.
    fn read(&mut self, piece: &[u8]) -> bool {
        self.budget.steps += piece.len() as u64 * STEPS_PER_BYTE;
        self.parser.process(ByteTendril::from_slice(piece));
        let html = self.parser.inner_sink.tokenizer.sink.sink.0.borrow();
        self.guard.allows(&html, piece)
    }

    /// The page has no more.
    fn end(&mut self) {
        self.parser.inner_sink.tokenizer.end();
    }

    /// Looks for the values that are not final. `is_over`: the page is read.
    fn look_for(&mut self, fields: &[Field], found: &mut [Found], is_over: bool) {
        let html = self.parser.inner_sink.tokenizer.sink.sink.0.borrow();
        for (field, found) in fields.iter().zip(found) {
            let may_know = is_over || !field.reach.following;
            if !found.is_final && may_know {
                field.look_in(&html, is_over, &mut self.budget, found);
            }
        }
    }
}

impl Field {
    /// Finds the value in the first element that has one, in the order in which elements begin.
    fn look_in(&self, html: &Html, is_over: bool, budget: &mut Budget, found: &mut Found) {
        found.is_final = is_over;
        for node in html.tree.nodes() {
            let Some(element) = ElementRef::wrap(node).filter(|node| node.parent().is_some())
            else {
                continue;
            };
            if !budget.spend(element, self.reach) {
                // What was found before stays.
                found.is_final = true;
                return;
            }
            if !self.selector.matches(&element) {
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

/// Ends the reading of a page whose tree would take more than its length warrants.
#[derive(Debug, Default)]
struct Guard {
    /// Nodes of the tree, and the length of its last text.
    size: (usize, usize),
    /// Bytes since the tree last grew that may separate attributes of one tag.
    separators: usize,
    /// Comparisons of names of attributes, at most.
    compared: usize,
}

/// Most nodes that are one in the other: as many as browsers allow. The library looks through all open
/// elements at each tag.
const DEPTH_MAX: usize = 512;

/// Most nodes of a tree: of a megabyte of short tags, and some 30 MB.
const NODES_MAX: usize = 1 << 18;

/// Most comparisons of the names of attributes: the library compares each with all of its tag.
const COMPARED_MAX: usize = 1 << 26;

impl Guard {
    /// Whether to go on after this piece.
    fn allows(&mut self, html: &Html, piece: &[u8]) -> bool {
        let nodes = html.tree.nodes();
        let count = nodes.len();
        let Some(last) = { nodes }.next_back() else {
            return true;
        };
        let text = match last.value() {
            Node::Text(text) => text.len(),
            _ => 0,
        };
        let size = (count, text);
        if std::mem::replace(&mut self.size, size) != size {
            self.separators = 0;
        }
        let separates = |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'=');
        let more = piece.iter().filter(separates).count();
        // A tag that is whole in a piece has few.
        self.compared += more * self.separators;
        self.separators += more;
        count <= NODES_MAX
            && self.compared <= COMPARED_MAX
            && last.ancestors().take(DEPTH_MAX + 1).count() <= DEPTH_MAX
    }
}

/// What matching may still cost in a page: a few nanoseconds a step.
#[derive(Debug)]
struct Budget {
    steps: u64,
}

/// Steps of a page besides those for its length.
const STEPS_FREE: u64 = 1 << 16;

/// Steps for each byte that is read: twenty fields with several ancestors cost a fifth of this in usual pages.
const STEPS_PER_BYTE: u64 = 64;

impl Budget {
    /// Spends the steps that a selector may take at an element; returns false if they are not there.
    fn spend(&mut self, element: ElementRef<'_>, reach: Reach) -> bool {
        let mut steps = weight(element.value());
        if reach.ancestors {
            let above = element.ancestors().filter_map(ElementRef::wrap);
            steps += above.map(|above| weight(above.value())).sum::<u64>();
        }
        if reach.siblings {
            steps += element.prev_siblings().count() as u64;
        }
        if reach.following {
            steps += element.next_siblings().count() as u64;
        }
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                true
            }
            None => false,
        }
    }
}

/// Steps of a comparison with an element: its attributes and their length.
fn weight(element: &scraper::node::Element) -> u64 {
    let attributes = element.attrs.iter();
    1 + attributes
        .map(|(_, value)| 1 + value.len() as u64 / 16)
        .sum::<u64>()
}

#[cfg(test)]
mod tests;
