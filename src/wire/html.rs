//! Finds the links of an HTML page in bounded steps, as the HTML standard reads it: plain tags at once, the
//! others with a tokenizer.

mod element;
pub mod fields;
mod references;
mod tags;

use std::collections::BTreeSet;

use self::element::{Mark, Marks};
use self::references::{References, SEEN_BYTES};
use self::tags::Tags;
use super::charset::{Detection, QueryEncoding};
use super::directives::{DirectiveWords, Directives};
use super::url::{Base, CrawlUrl, Reach};
use crate::base::units::Units;

/// Finds the links of a page, without duplicates, in the order of their first appearance.
///
/// Relative references are resolved against the first `<base href>` or else the page's URL.
/// References that are not http or https URLs are skipped. The document may be truncated anywhere.
///
/// The text is treated as UTF-8, and so are the queries of its links. [`links_of`] takes a body in
/// any encoding.
pub fn links(html: &str, page: &CrawlUrl, options: &LinkOptions<'_>) -> Found {
    let utf_8 = Some("text/html; charset=utf-8");
    links_of(html.as_bytes(), utf_8, page, options)
}

/// The same for the bytes of a page, in the character encoding that `content_type`, the document or its
/// first bytes name. The queries of links are in that encoding, as in browsers. References that are not
/// http or https URLs are left out, malformed ones among them.
pub fn links_of(
    body: &[u8],
    content_type: Option<&str>,
    page: &CrawlUrl,
    options: &LinkOptions<'_>,
) -> Found {
    let mut search = LinkSearch::new(body, content_type, page, options, usize::MAX);
    let mut links = Vec::new();
    loop {
        match search.step(&mut Units::unbounded()) {
            Step::Link(link) => links.push(link),
            Step::TooLong | Step::Paused => {}
            Step::Over => break,
        }
    }
    Found {
        links,
        directives: search.directives(),
        cut: search.is_cut(),
    }
}

/// Which links to return.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions<'a> {
    /// Include page resources: `link`, `img`, `script`, `source`, and `form` with method GET.
    pub resources: bool,
    /// Omit links marked `rel=nofollow`, and all links of a page whose robots meta element has `nofollow`.
    pub nofollow: bool,
    /// The agent whose robots meta elements apply, besides those for all agents.
    pub agent: &'a str,
    /// Maximum number of links per page.
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

/// The links of a page and its directives.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Found {
    /// The links.
    pub links: Vec<Link>,
    /// The directives in its meta elements.
    pub directives: Directives,
    /// There were more links than the maximum.
    pub cut: bool,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Target of the link.
    pub url: CrawlUrl,
    /// The element that contains it, by its HTML name in lower case: `a`, or `meta` for a refresh. An open
    /// set: later versions may look into more.
    pub element: &'static str,
    /// The attribute that contains it, likewise.
    pub attribute: &'static str,
    /// The link or its page is marked nofollow.
    pub nofollow: bool,
}

/// A search for the links of a page, in bounded steps.
#[derive(Debug)]
pub(crate) struct LinkSearch<B: AsRef<[u8]>> {
    resources: bool,
    links_max: usize,
    url_length_max: usize,
    base: Base,
    query_encoding: Option<QueryEncoding>,
    /// What the page says; elsewhere while it is read.
    marks: PageMarks,
    stage: Stage<B>,
    /// Number of links found so far.
    count: usize,
    cut: bool,
}

/// What a page says about links.
#[derive(Debug, Default)]
struct PageMarks {
    agent: Box<str>,
    /// References and pages marked nofollow are omitted.
    nofollow: bool,
    references_max: usize,
    /// The first `<base href>`.
    base: Option<String>,
    directives: Directives,
    words: DirectiveWords,
    references: References,
}

/// `<base>` applies to the whole page, including the part before it, and so does a meta element
/// with `nofollow`: references can be resolved only after the whole page was read.
#[derive(Debug)]
enum Stage<B: AsRef<[u8]>> {
    /// Detects the encoding.
    Detecting(B, Detection),
    /// Reads the tags.
    Reading(Box<Tags<B, PageMarks>>),
    /// Resolves the references to URLs.
    Resolving(Resolving),
    Over,
}

/// Result of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// A link.
    Link(Link),
    /// A link whose URL would be longer than the maximum.
    TooLong,
    /// The units are used up.
    Paused,
    /// There are no more links.
    Over,
}

impl<B: AsRef<[u8]>> LinkSearch<B> {
    /// A new search. A URL longer than `url_length_max` bytes is not built if its length is known
    /// before.
    pub fn new(
        body: B,
        content_type: Option<&str>,
        page: &CrawlUrl,
        options: &LinkOptions<'_>,
        url_length_max: usize,
    ) -> Self {
        let encoding = Detection::new(body.as_ref(), content_type);
        LinkSearch {
            resources: options.resources,
            links_max: options.links_max,
            url_length_max,
            base: Base::of(page),
            query_encoding: None,
            marks: PageMarks {
                agent: options.agent.into(),
                nofollow: options.nofollow,
                references_max: options.links_max.saturating_mul(REFERENCES_PER_LINK),
                ..PageMarks::default()
            },
            stage: Stage::Detecting(body, encoding),
            count: 0,
            cut: false,
        }
    }

    /// The next link, if it is found before the units are used up.
    pub fn step(&mut self, units: &mut Units) -> Step {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Detecting(body, mut encoding) => {
                    if !encoding.step(body.as_ref(), units) {
                        self.stage = Stage::Detecting(body, encoding);
                        return Step::Paused;
                    }
                    self.query_encoding = encoding.query_encoding();
                    let marks = std::mem::take(&mut self.marks);
                    let tags = Tags::new(body, &encoding, self.resources, marks);
                    self.stage = Stage::Reading(Box::new(tags));
                }
                Stage::Reading(mut tags) => {
                    if !tags.step(units) {
                        self.stage = Stage::Reading(tags);
                        return Step::Paused;
                    }
                    self.marks = tags.into_marks();
                    self.resolve();
                }
                Stage::Resolving(mut resolving) => {
                    let step = resolving.step(self, units);
                    if !matches!(step, Step::Over) {
                        self.stage = Stage::Resolving(resolving);
                    }
                    return step;
                }
                Stage::Over => return Step::Over,
            }
        }
    }

    /// Number of links found so far, including those that were too long.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether there were more links than the maximum.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The directives in its meta elements, once the page is read.
    pub fn directives(&self) -> Directives {
        self.marks.directives
    }

    /// The words of these elements, once the page is read; then there are none left.
    pub fn take_words(&mut self) -> Vec<String> {
        std::mem::take(&mut self.marks.words.meta)
    }

    /// Bytes of memory used besides the body.
    pub fn memory(&self) -> usize {
        let references = self.marks.references.memory();
        match &self.stage {
            Stage::Reading(tags) => tags.marks(|marks| marks.references.memory()),
            Stage::Resolving(resolving) => references + resolving.seen.len() * SEEN_BYTES,
            Stage::Detecting(..) | Stage::Over => references,
        }
    }

    /// Starts to resolve after the page was read.
    fn resolve(&mut self) {
        if self.marks.nofollow && self.marks.directives.nofollow {
            return;
        }
        let page = self.base.clone().in_encoding(self.query_encoding);
        self.base = match &self.marks.base {
            Some(reference) => page.rebased(reference),
            None => page,
        };
        self.marks.references.complete();
        self.stage = Stage::Resolving(Resolving {
            reach: self.base.reach(),
            next: 0,
            seen: BTreeSet::new(),
        });
    }
}

impl Marks for PageMarks {
    fn add(&mut self, mark: Mark<'_>) -> usize {
        let length = match mark {
            Mark::Base(base) => {
                self.base.get_or_insert_with(|| base.to_owned());
                base.len()
            }
            Mark::Meta { name, content } => {
                let more = Directives::from_meta(name, content, &self.agent);
                self.directives = self.directives.and(more);
                self.words.add_meta(name, content, &self.agent);
                content.len()
            }
            Mark::Reference { nofollow, .. } if self.nofollow && nofollow => 0,
            Mark::Reference {
                value,
                element,
                attribute,
                nofollow,
            } => {
                self.references
                    .push(value, element, attribute, nofollow, self.references_max);
                REFERENCE_UNITS + value.len()
            }
        };
        MARK_UNITS + length
    }
}

/// Cost of a mark of the page, besides its bytes.
const MARK_UNITS: usize = 32;

/// References resolved per permitted link, so that a page with many invalid references costs no
/// more than one with many valid ones.
const REFERENCES_PER_LINK: usize = 4;

/// Costs of recording a reference, and of resolving one, besides its bytes. Four bytes of the base
/// URL cost as much as one byte of HTML.
const REFERENCE_UNITS: usize = 32;
const RESOLVED_UNITS: usize = 128;

/// References being resolved to URLs.
#[derive(Debug)]
struct Resolving {
    reach: Reach,
    /// Index of the next reference.
    next: usize,
    /// Hashes of the URLs found.
    seen: BTreeSet<u64>,
}

impl Resolving {
    fn step<B: AsRef<[u8]>>(&mut self, search: &mut LinkSearch<B>, units: &mut Units) -> Step {
        while !units.is_spent() {
            let Some((reference, text)) = search.marks.references.get(self.next) else {
                search.cut |= search.marks.references.is_cut();
                return Step::Over;
            };
            if search.count == search.links_max {
                search.cut = true;
                return Step::Over;
            }
            self.next += 1;
            // No reference keeps more than the whole base.
            if self.reach.length() > search.url_length_max
                && self.reach.length_min(text) > search.url_length_max
            {
                units.spend(REFERENCE_UNITS + text.len());
                search.count += 1;
                return Step::TooLong;
            }
            units.spend(RESOLVED_UNITS + text.len() + self.reach.length() / 4);
            let Ok(url) = search.base.join_within(text, units) else {
                continue;
            };
            if !self.seen.insert(references::hash(url.as_str())) {
                continue;
            }
            search.count += 1;
            if url.as_str().len() > search.url_length_max {
                return Step::TooLong;
            }
            return Step::Link(Link {
                url,
                element: reference.element,
                attribute: reference.attribute,
                nofollow: reference.nofollow || search.marks.directives.nofollow,
            });
        }
        Step::Paused
    }
}

#[cfg(test)]
mod tests;
