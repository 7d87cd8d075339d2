//! The links of an HTML page, found by a tokenizer that reads as browsers do, in bounded steps.

mod references;
mod tags;

use std::collections::BTreeSet;

use self::references::{References, SEEN_BYTES};
use self::tags::{Mark, Tags};
use super::charset::{Detection, QueryEncoding};
use super::directives::Directives;
use super::url::{Base, CrawlUrl, Reach};
use crate::base::units::Units;

/// Finds the links of a page, each once, in the order of their first appearance.
///
/// Relative references are resolved against the first `<base href>` or else the page's URL. What
/// is no http or https URL is passed over. A document may break off anywhere.
///
/// The text is taken for UTF-8: so are the queries of its links. [`links_of`] takes a body as it came.
pub fn links(html: &str, page: &CrawlUrl, options: &LinkOptions<'_>) -> Found {
    let utf_8 = Some("text/html; charset=utf-8");
    links_of(html.as_bytes(), utf_8, page, options)
}

/// The same of a body as it came: those that a crawl finds. The queries of links are in the body's own
/// encoding.
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

/// The links of a page, looked for in bounded steps.
#[derive(Debug)]
pub(crate) struct LinkSearch<B: AsRef<[u8]>> {
    agent: Box<str>,
    resources: bool,
    nofollow: bool,
    links_max: usize,
    url_length_max: usize,
    base: Base,
    query_encoding: Option<QueryEncoding>,
    /// The first `<base href>`.
    document_base: Option<String>,
    directives: Directives,
    references: References,
    stage: Stage<B>,
    /// Links found so far.
    count: usize,
    cut: bool,
}

/// `<base>` counts for the whole page, also for what comes before it, and so does a meta element that
/// says `nofollow`: nothing can be resolved before the page is read.
#[derive(Debug)]
enum Stage<B: AsRef<[u8]>> {
    /// In which encoding is it written?
    Detecting(B, Detection),
    /// Its tags are read.
    Reading(Box<Tags<B>>),
    /// Its references become URLs.
    Resolving(Resolving),
    Over,
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// A link.
    Link(Link),
    /// One whose URL would be longer than is wanted.
    TooLong,
    /// All units are spent.
    Paused,
    /// There are no more.
    Over,
}

impl<B: AsRef<[u8]>> LinkSearch<B> {
    /// A search that has not begun. A URL that is longer than `url_length_max` octets is not made where
    /// that can be seen before.
    pub fn new(
        body: B,
        content_type: Option<&str>,
        page: &CrawlUrl,
        options: &LinkOptions<'_>,
        url_length_max: usize,
    ) -> Self {
        let encoding = Detection::new(body.as_ref(), content_type);
        LinkSearch {
            agent: options.agent.into(),
            resources: options.resources,
            nofollow: options.nofollow,
            links_max: options.links_max,
            url_length_max,
            base: Base::of(page),
            query_encoding: None,
            document_base: None,
            directives: Directives::default(),
            references: References::default(),
            stage: Stage::Detecting(body, encoding),
            count: 0,
            cut: false,
        }
    }

    /// The next link, if it is found before the units are spent.
    pub fn step(&mut self, units: &mut Units) -> Step {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Detecting(body, mut encoding) => {
                    if !encoding.step(body.as_ref(), units) {
                        self.stage = Stage::Detecting(body, encoding);
                        return Step::Paused;
                    }
                    self.query_encoding = encoding.query_encoding();
                    let tags = Tags::new(body, &encoding, self.resources);
                    self.stage = Stage::Reading(Box::new(tags));
                }
                Stage::Reading(mut tags) => match tags.step(units) {
                    tags::Step::Mark(mark) => {
                        self.stage = Stage::Reading(tags);
                        self.take(mark, units);
                    }
                    tags::Step::Paused => {
                        self.stage = Stage::Reading(tags);
                        return Step::Paused;
                    }
                    tags::Step::Over => self.resolve(),
                },
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

    /// Links found so far, also those that were too long.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there were more than are taken from one page.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// What its meta elements say to crawlers, once the page is read.
    pub fn directives(&self) -> Directives {
        self.directives
    }

    /// Bytes that it holds beside the body.
    pub fn memory(&self) -> usize {
        self.references.memory() + self.count * SEEN_BYTES
    }

    fn take(&mut self, mark: Mark, units: &mut Units) {
        match mark {
            Mark::Base(base) => drop(self.document_base.get_or_insert(base)),
            Mark::Meta { name, content } => {
                units.spend(content.len());
                let more = Directives::from_meta(&name, &content, &self.agent);
                self.directives = self.directives.and(more);
            }
            Mark::Reference { nofollow, .. } if self.nofollow && nofollow => {}
            Mark::Reference {
                value,
                element,
                attribute,
                nofollow,
            } => {
                units.spend(REFERENCE_UNITS + value.len());
                let most = self.links_max.saturating_mul(REFERENCES_PER_LINK);
                self.references
                    .push(value, element, attribute, nofollow, most);
            }
        }
    }

    /// The page is read.
    fn resolve(&mut self) {
        if self.nofollow && self.directives.nofollow {
            return;
        }
        let page = self.base.clone().in_encoding(self.query_encoding);
        self.base = match &self.document_base {
            Some(reference) => page.rebased(reference),
            None => page,
        };
        self.references.complete();
        self.stage = Stage::Resolving(Resolving {
            reach: self.base.reach(),
            next: 0,
            seen: BTreeSet::new(),
        });
    }
}

/// A page of many bad references must not cost more than one of many good ones: so many
/// references are resolved for each link that may be taken.
const REFERENCES_PER_LINK: usize = 4;

/// What it takes to note a reference, and to make a URL of one, beside its octets: four of the URL that
/// it is relative to cost what one of HTML does.
const REFERENCE_UNITS: usize = 32;
const RESOLVED_UNITS: usize = 128;

/// References that become URLs.
#[derive(Debug)]
struct Resolving {
    reach: Reach,
    /// The number of the next reference.
    next: usize,
    /// The prints of the URLs that were found.
    seen: BTreeSet<u64>,
}

impl Resolving {
    fn step<B: AsRef<[u8]>>(&mut self, search: &mut LinkSearch<B>, units: &mut Units) -> Step {
        while !units.is_spent() {
            let Some((reference, text)) = search.references.get(self.next) else {
                search.cut |= search.references.is_cut();
                return Step::Over;
            };
            if search.count == search.links_max {
                search.cut = true;
                return Step::Over;
            }
            self.next += 1;
            if self.reach.length_min(text) > search.url_length_max {
                units.spend(REFERENCE_UNITS + text.len());
                search.count += 1;
                return Step::TooLong;
            }
            units.spend(RESOLVED_UNITS + text.len() + self.reach.length() / 4);
            let Ok(url) = search.base.join_within(text, units) else {
                continue;
            };
            if !self.seen.insert(url.fingerprint()) {
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
                nofollow: reference.nofollow || search.directives.nofollow,
            });
        }
        Step::Paused
    }
}

#[cfg(test)]
mod tests;
