//! Which elements and attributes of a page concern links, and what they say.

use std::borrow::Cow;

use crate::wire::url::LENGTH_MAX;

/// The name of an element: up to eight letters in lower case, as a number. All longer names but `plaintext` are
/// equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name(u64);

impl Name {
    /// The name that is the whole text, which is in any case.
    pub const fn of(text: &[u8]) -> Self {
        if text.len() > LETTERS_MAX {
            return match text.eq_ignore_ascii_case(b"plaintext") {
                true => PLAINTEXT,
                false => UNKNOWN,
            };
        }
        let (mut name, mut at) = (0, 0);
        while at < text.len() {
            // It would be as if the name ended here.
            if text[at] == 0 {
                return UNKNOWN;
            }
            name |= (text[at].to_ascii_lowercase() as u64) << (8 * at);
            at += 1;
        }
        Name(name)
    }

    /// The name of so many letters, up to eight, at the beginning of a text.
    #[inline]
    pub fn of_letters(text: [u8; LETTERS_MAX], count: usize) -> Self {
        let all = u64::from_le_bytes(text) | u64::from_le_bytes([b' '; LETTERS_MAX]);
        Name(all & u64::MAX >> (8 * (LETTERS_MAX - count)))
    }
}

/// The most letters of a name of concern, except `plaintext`.
pub(super) const LETTERS_MAX: usize = 8;

/// What the tokenizer and this module must know of an element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Irrelevant,
    /// It may have a link, and nothing else is of concern.
    Links(Element),
    /// The text after its start tag is read by other rules. It may have a link, too.
    Text(TextState, Option<Element>),
    /// Within it, other rules apply to raw text and CDATA.
    Foreign,
}

/// The rules for the text after a start tag, which a tree builder would set.
///
/// `noscript` is not raw text here, since a crawler runs no scripts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextState {
    RcData,
    RawText,
    ScriptData,
    PlainText,
}

impl Kind {
    /// The kind of the elements with this name. `resources`: page resources are links.
    #[inline]
    pub fn of(name: Name, resources: bool) -> Self {
        match name {
            A => Kind::Links(Element::A),
            AREA => Kind::Links(Element::Area),
            BASE => Kind::Links(Element::Base),
            META => Kind::Links(Element::Meta),
            FRAME => Kind::Links(Element::Frame),
            LINK if resources => Kind::Links(Element::Link),
            IMG if resources => Kind::Links(Element::Img),
            SOURCE if resources => Kind::Links(Element::Source),
            FORM if resources => Kind::Links(Element::Form),
            SCRIPT => Kind::Text(TextState::ScriptData, resources.then_some(Element::Script)),
            IFRAME => Kind::Text(TextState::RawText, Some(Element::Iframe)),
            STYLE | XMP | NOEMBED | NOFRAMES => Kind::Text(TextState::RawText, None),
            TITLE | TEXTAREA => Kind::Text(TextState::RcData, None),
            PLAINTEXT => Kind::Text(TextState::PlainText, None),
            SVG | MATH => Kind::Foreign,
            _ => Kind::Irrelevant,
        }
    }

    /// The element, if it may have a link.
    pub fn element(self) -> Option<Element> {
        match self {
            Kind::Links(element) => Some(element),
            Kind::Text(_, element) => element,
            Kind::Irrelevant | Kind::Foreign => None,
        }
    }
}

/// Whether a name of so many letters, up to eight, that begins with this one may be of concern.
#[inline]
pub(super) fn may_matter(letters: usize, first: u8, is_end: bool) -> bool {
    let names = match is_end {
        true => &FOREIGN,
        false => &FIRST_LETTERS,
    };
    names[letters] >> (first & 31) & 1 == 1
}

/// The first letters of names, a bit for each, by the number of letters.
const fn first_letters(names: &[&[u8]]) -> [u32; LETTERS_MAX + 1] {
    let mut letters = [0; LETTERS_MAX + 1];
    let mut at = 0;
    while at < names.len() {
        letters[names[at].len()] |= 1 << (names[at][0] & 31);
        at += 1;
    }
    letters
}

/// Of the names that matter in start tags, except `plaintext`.
const FIRST_LETTERS: [u32; LETTERS_MAX + 1] = first_letters(&[
    b"a",
    b"area",
    b"base",
    b"form",
    b"frame",
    b"iframe",
    b"img",
    b"link",
    b"math",
    b"meta",
    b"noembed",
    b"noframes",
    b"script",
    b"source",
    b"style",
    b"svg",
    b"textarea",
    b"title",
    b"xmp",
]);
/// Of the names that matter in end tags.
const FOREIGN: [u32; LETTERS_MAX + 1] = first_letters(&[b"math", b"svg"]);

/// The elements with links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
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

/// The relevant attributes, as indices into a tag's table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attribute {
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
    /// The number of relevant attributes.
    pub const COUNT: usize = 9;

    /// The attribute with this name, in any case.
    #[inline]
    pub fn of(name: &[u8]) -> Option<Self> {
        let known: &[(&[u8], Attribute)] = match name.len() {
            3 => &[(b"src", Attribute::Src), (b"rel", Attribute::Rel)],
            4 => &[(b"href", Attribute::Href), (b"name", Attribute::Name)],
            6 => &[
                (b"srcset", Attribute::Srcset),
                (b"action", Attribute::Action),
                (b"method", Attribute::Method),
            ],
            7 => &[(b"content", Attribute::Content)],
            10 => &[(b"http-equiv", Attribute::HttpEquiv)],
            _ => return None,
        };
        let is_same = |(known, _): &&(&[u8], _)| name.eq_ignore_ascii_case(known);
        known.iter().find(is_same).map(|(_, attribute)| *attribute)
    }
}

/// Relevant content of a tag.
#[derive(Debug)]
pub(super) enum Mark<'a> {
    /// A reference.
    Reference {
        value: &'a str,
        element: &'static str,
        attribute: &'static str,
        nofollow: bool,
    },
    /// The base of references, if it is the first one.
    Base(&'a str),
    /// A meta element with a name.
    Meta { name: &'a str, content: &'a str },
}

/// Receives the marks of a page in the order of the document.
pub(super) trait Marks {
    /// Records a mark; returns the cost of that in units.
    fn add(&mut self, mark: Mark<'_>) -> usize;
}

impl Element {
    /// Records what a start tag of this element says, by the values of its attributes. Returns the cost in units.
    pub fn record<'a>(
        self,
        value: impl Fn(Attribute) -> Option<Cow<'a, str>>,
        marks: &mut impl Marks,
    ) -> usize {
        use Attribute::{Action, Href, Method, Rel, Src, Srcset};
        let nofollow = || value(Rel).is_some_and(|rel| has_word(&rel, &["nofollow"]));
        let (element, name, attribute, nofollow) = match self {
            Element::Base => {
                return value(Href).map_or(0, |base| marks.add(Mark::Base(&base)));
            }
            Element::Meta => return record_meta(value, marks),
            Element::A => ("a", "href", Href, nofollow()),
            Element::Area => ("area", "href", Href, nofollow()),
            Element::Iframe => ("iframe", "src", Src, false),
            Element::Frame => ("frame", "src", Src, false),
            Element::Link => {
                // Hints about hosts, not about documents.
                let is_hint = |rel: Cow<'_, str>| has_word(&rel, &["preconnect", "dns-prefetch"]);
                if value(Rel).is_some_and(is_hint) {
                    return 0;
                }
                ("link", "href", Href, nofollow())
            }
            Element::Script => ("script", "src", Src, false),
            Element::Img => ("img", "src", Src, false),
            Element::Source => ("source", "src", Src, false),
            Element::Form => {
                let is_other = |method: Cow<'_, str>| {
                    !method.is_empty() && !method.eq_ignore_ascii_case("get")
                };
                if value(Method).is_some_and(is_other) {
                    return 0;
                }
                ("form", "action", Action, nofollow())
            }
        };
        let mut cost = 0;
        if let Some(value) = value(attribute) {
            cost += marks.add(Mark::Reference {
                value: &value,
                element,
                attribute: name,
                nofollow,
            });
        }
        if matches!(self, Element::Img | Element::Source)
            && let Some(set) = value(Srcset)
        {
            for candidate in candidates(&set) {
                cost += marks.add(Mark::Reference {
                    value: candidate,
                    element,
                    attribute: "srcset",
                    nofollow,
                });
            }
        }
        cost
    }
}

/// Records a refresh, and a name with its content.
fn record_meta<'a>(
    value: impl Fn(Attribute) -> Option<Cow<'a, str>>,
    marks: &mut impl Marks,
) -> usize {
    let content = value(Attribute::Content).unwrap_or_default();
    let mut cost = 0;
    let is_refresh = |equiv: Cow<'_, str>| equiv.trim().eq_ignore_ascii_case("refresh");
    if value(Attribute::HttpEquiv).is_some_and(is_refresh)
        && let Some(target) = refresh_target(&content)
    {
        cost += marks.add(Mark::Reference {
            value: target,
            element: "meta",
            attribute: "content",
            nofollow: false,
        });
    }
    if let Some(name) = value(Attribute::Name) {
        cost += marks.add(Mark::Meta {
            name: &name,
            content: &content,
        });
    }
    cost
}

/// The text of a value; invalid bytes become U+FFFD.
pub(super) fn text_of(value: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(value) {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(value),
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

/// Longer values are truncated: one byte too long for a URL, and long enough for any `srcset`.
pub(super) const VALUE_MAX: usize = LENGTH_MAX + 1;

const A: Name = Name::of(b"a");
const AREA: Name = Name::of(b"area");
const BASE: Name = Name::of(b"base");
const FORM: Name = Name::of(b"form");
const FRAME: Name = Name::of(b"frame");
const IFRAME: Name = Name::of(b"iframe");
const IMG: Name = Name::of(b"img");
const LINK: Name = Name::of(b"link");
const MATH: Name = Name::of(b"math");
const META: Name = Name::of(b"meta");
const NOEMBED: Name = Name::of(b"noembed");
const NOFRAMES: Name = Name::of(b"noframes");
const PLAINTEXT: Name = Name(1);
const SCRIPT: Name = Name::of(b"script");
const SOURCE: Name = Name::of(b"source");
const STYLE: Name = Name::of(b"style");
const SVG: Name = Name::of(b"svg");
const TEXTAREA: Name = Name::of(b"textarea");
const TITLE: Name = Name::of(b"title");
const XMP: Name = Name::of(b"xmp");
/// Any other name: of more letters, or with a NUL.
const UNKNOWN: Name = Name(0);
