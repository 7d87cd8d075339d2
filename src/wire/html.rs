//! The links of an HTML page, found by a tokenizer that reads as browsers do.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::mem;
use std::ops::Range;

use html5gum::{Emitter, Error, State, Tokenizer};

use super::directives::Directives;
use super::url::{Base, CrawlUrl, LENGTH_MAX};

/// Finds the links of a page, each once, in the order of their first appearance.
///
/// Relative references are resolved against the first `<base href>` or else the page's URL. What
/// is no http or https URL is passed over. A document may break off anywhere.
pub fn links(html: &str, page: &CrawlUrl, options: &LinkOptions<'_>) -> Found {
    let mut references = References::new(options);
    let emitter = LinkEmitter::new(&mut references);
    match Tokenizer::new_with_emitter(html, emitter).finish() {
        Ok(()) => {}
        Err(impossible) => match impossible {},
    }
    references.resolve(page)
}

/// Which links are taken.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions<'a> {
    /// Take what a page is made of too: `link`, `img`, `script`, `source`, and `form` by GET.
    pub resources: bool,
    /// Leave out links marked `rel=nofollow`, and all links of a page whose robots meta says so.
    pub nofollow: bool,
    /// The agent whose robots meta elements are obeyed besides those for all.
    pub agent: &'a str,
    /// The most links taken from one page.
    pub links_max: usize,
}

impl Default for LinkOptions<'_> {
    fn default() -> Self {
        LinkOptions {
            resources: false,
            nofollow: true,
            agent: "argiope",
            links_max: 10_000,
        }
    }
}

/// What was found in a page.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The links.
    pub links: Vec<Link>,
    /// What its meta elements say to crawlers.
    pub directives: Directives,
    /// There were more links than are taken from one page.
    pub cut: bool,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it leads.
    pub url: CrawlUrl,
    /// The element it stands in: `a`, or `meta` for a refresh.
    pub element: &'static str,
    /// The attribute it stands in.
    pub attribute: &'static str,
    /// It, or the page, is marked not to be followed.
    pub nofollow: bool,
}

/// A page of many bad references must not cost more than one of many good ones: so many
/// references are resolved for each link that may be taken.
const REFERENCES_PER_LINK: usize = 4;

/// What of the document matters, still as it stands there. `<base>` counts for the whole page,
/// also for what comes before it, so nothing can be resolved before the end.
struct References<'a> {
    options: &'a LinkOptions<'a>,
    /// The values of attributes, one after the other.
    text: String,
    list: Vec<Reference>,
    base: Option<String>,
    directives: Directives,
}

struct Reference {
    value: Range<usize>,
    element: &'static str,
    attribute: &'static str,
    nofollow: bool,
}

impl<'a> References<'a> {
    fn new(options: &'a LinkOptions<'a>) -> Self {
        References {
            options,
            text: String::new(),
            list: Vec::new(),
            base: None,
            directives: Directives::default(),
        }
    }

    /// Takes in a start tag.
    fn take(&mut self, element: Element, tag: &Tag) {
        use Attribute::*;
        let nofollow = tag
            .value(Rel)
            .is_some_and(|rel| has_word(&rel, &["nofollow"]));
        match element {
            Element::Base => {
                if self.base.is_none() {
                    self.base = tag.value(Href);
                }
            }
            Element::Meta => {
                let content = tag.value(Content).unwrap_or_default();
                let says = |attribute, what: &str| {
                    tag.value(attribute)
                        .is_some_and(|value| value.trim().eq_ignore_ascii_case(what))
                };
                if says(HttpEquiv, "refresh")
                    && let Some(target) = refresh_target(&content)
                {
                    self.push("meta", "content", target, false);
                }
                if let Some(name) = tag.value(Name) {
                    let more = Directives::from_meta(&name, &content, self.options.agent);
                    self.directives = self.directives.and(more);
                }
            }
            Element::A => self.push_value("a", "href", tag.value(Href), nofollow),
            Element::Area => self.push_value("area", "href", tag.value(Href), nofollow),
            Element::Iframe => self.push_value("iframe", "src", tag.value(Src), false),
            Element::Frame => self.push_value("frame", "src", tag.value(Src), false),
            Element::Link => {
                // Hints about hosts, not about documents.
                let hint = tag
                    .value(Rel)
                    .is_some_and(|rel| has_word(&rel, &["preconnect", "dns-prefetch"]));
                if !hint {
                    self.push_value("link", "href", tag.value(Href), nofollow);
                }
            }
            Element::Script => self.push_value("script", "src", tag.value(Src), false),
            Element::Img | Element::Source => {
                let element = if element == Element::Img {
                    "img"
                } else {
                    "source"
                };
                self.push_value(element, "src", tag.value(Src), false);
                let set = tag.value(Srcset).unwrap_or_default();
                for candidate in candidates(&set) {
                    self.push(element, "srcset", candidate, false);
                }
            }
            Element::Form => {
                let method = tag.value(Method).unwrap_or_default();
                if method.is_empty() || method.eq_ignore_ascii_case("get") {
                    self.push_value("form", "action", tag.value(Action), nofollow);
                }
            }
        }
    }

    fn push_value(
        &mut self,
        element: &'static str,
        attribute: &'static str,
        value: Option<String>,
        nofollow: bool,
    ) {
        if let Some(value) = value {
            self.push(element, attribute, &value, nofollow);
        }
    }

    fn push(
        &mut self,
        element: &'static str,
        attribute: &'static str,
        value: &str,
        nofollow: bool,
    ) {
        let start = self.text.len();
        self.text.push_str(value);
        self.list.push(Reference {
            value: start..self.text.len(),
            element,
            attribute,
            nofollow,
        });
    }

    fn resolve(self, page: &CrawlUrl) -> Found {
        let mut found = Found {
            directives: self.directives,
            ..Found::default()
        };
        let page_nofollow = self.directives.nofollow;
        if self.options.nofollow && page_nofollow {
            return found;
        }
        let mut base = Base::of(page);
        if let Some(reference) = &self.base {
            base = base.rebased(reference);
        }
        let mut seen_texts = BTreeSet::new();
        let mut seen_urls = BTreeSet::new();
        let mut resolved_left = self.options.links_max.saturating_mul(REFERENCES_PER_LINK);
        for reference in self.list {
            let text = &self.text[reference.value];
            let nofollow = reference.nofollow || page_nofollow;
            if self.options.nofollow && nofollow || !seen_texts.insert(text) {
                continue;
            }
            if found.links.len() == self.options.links_max || resolved_left == 0 {
                found.cut = true;
                break;
            }
            resolved_left -= 1;
            let Ok(url) = base.join(text) else {
                continue;
            };
            if seen_urls.insert(url.fingerprint()) {
                found.links.push(Link {
                    url,
                    element: reference.element,
                    attribute: reference.attribute,
                    nofollow,
                });
            }
        }
        found
    }
}

/// The elements that matter.
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

/// The attributes that matter, as places in a tag's table.
#[derive(Clone, Copy)]
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
#[derive(Default)]
struct Tag {
    name: Vec<u8>,
    is_end: bool,
    self_closing: bool,
    /// The name of the attribute being read; only as much as could matter.
    attribute: Vec<u8>,
    /// The attribute being read, if its value is kept.
    kept: Option<Attribute>,
    /// The values kept, each where its attribute stands in the table; the first of a name counts.
    values: [Option<Range<usize>>; 9],
    /// Where the values are.
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

/// Names of tags and attributes that are longer than this are none that matter.
const NAME_MAX: usize = 16;

/// Longer values are cut: by one octet too long for a URL, and long enough for any `srcset`.
const VALUE_MAX: usize = LENGTH_MAX + 1;

/// Receives the tokenizer's news and keeps only what matters; it never gives out a token.
struct LinkEmitter<'a, 'b> {
    references: &'a mut References<'b>,
    tag: Tag,
    last_start_tag: Vec<u8>,
    /// How deep in `svg` or `math`, where other rules hold for raw text and CDATA.
    foreign_depth: u32,
}

impl<'a, 'b> LinkEmitter<'a, 'b> {
    fn new(references: &'a mut References<'b>) -> Self {
        LinkEmitter {
            references,
            tag: Tag::default(),
            last_start_tag: Vec::new(),
            foreign_depth: 0,
        }
    }

    /// In which state the text after this start tag is read: what a tree builder would say.
    ///
    /// `noscript` is no raw text here, since a crawler runs no scripts.
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

impl Emitter for LinkEmitter<'_, '_> {
    type Token = Infallible;

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
        let matters = !self.tag.is_end
            && Element::of(&self.tag.name, self.references.options.resources).is_some();
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
        if let Some(element) = Element::of(&self.tag.name, self.references.options.resources) {
            self.references.take(element, &self.tag);
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

    fn pop_token(&mut self) -> Option<Infallible> {
        None
    }

    // Text, comments and doctypes hold no links.
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

/// Whether a list of words separated by blanks has one of these.
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
fn candidates(set: &str) -> Vec<&str> {
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
            // Descriptors go on to a comma that is not in parentheses.
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
