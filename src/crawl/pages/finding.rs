//! Searches in bodies: rules of a robots.txt, URLs of a sitemap, links of a page.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::vec;

use crate::base::units::Units;
use crate::sink::page::Page;
use crate::wire::html::fields::Extraction;
use crate::wire::html::{self, Link, LinkOptions, LinkSearch};
use crate::wire::robots::{RobotsReading, Rules};
use crate::wire::sitemap::{self, SitemapReading};
use crate::wire::url::CrawlUrl;

/// A search in the body of a page, with its progress.
#[derive(Default)]
pub struct Finding {
    looks_for: LooksFor,
    /// The body, while it is searched.
    body: Option<Arc<Vec<u8>>>,
    /// What is extracted from the page, after the search.
    extraction: Extraction,
}

#[derive(Default)]
enum LooksFor {
    #[default]
    Nothing,
    Links(Box<LinkSearch<Body>>),
    Sitemap(Box<SitemapReading<Body>>),
    Rules {
        reading: Box<RobotsReading<Body>>,
        /// The number of their origin.
        origin: u32,
        /// The URL of the file, if the sitemaps named in it are found, too.
        base: Option<CrawlUrl>,
    },
    /// The sitemaps named in the robots.txt at this URL.
    Sitemaps(CrawlUrl, vec::IntoIter<String>),
}

/// A body that is searched.
struct Body(Arc<Vec<u8>>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Results of a step.
#[derive(Debug)]
pub enum Step {
    /// A link to this URL.
    Link(Link),
    /// A page named in a sitemap.
    Page(CrawlUrl),
    /// A sitemap named in a sitemap index or a robots.txt.
    Sitemap(CrawlUrl),
    /// A URL that is too long.
    TooLong,
    /// The rules of a robots.txt, for the origin of this number.
    Rules(u32, Rules),
    /// The units are spent.
    Paused,
    /// There is no more. `is_cut`: more links than `LINKS_PER_PAGE_MAX` were there.
    Over { is_cut: bool },
}

/// Cost of a URL, in units, in addition to its octets.
pub const URL_UNITS: usize = 64;

impl Finding {
    /// Looks for the rules of a robots.txt that are for this agent. `base`: its URL, to look for the sitemaps
    /// that it names, too.
    pub fn rules(page: &mut Page, origin: u32, agent: &str, base: Option<&CrawlUrl>) -> Self {
        Finding::of(page, |body, _| LooksFor::Rules {
            reading: Box::new(RobotsReading::new(body, agent)),
            origin,
            base: base.cloned(),
        })
    }

    /// Looks for the URLs of a sitemap at `url`: those of up to `length_max` octets. A body that
    /// decompresses to more than `ratio_max` times its length ends there.
    pub fn sitemap(page: &mut Page, url: &CrawlUrl, ratio_max: u32, length_max: usize) -> Self {
        Finding::of(page, |body, content_type| {
            let ratio_max = Some(ratio_max);
            let reading = SitemapReading::new(body, content_type, url, ratio_max, length_max);
            LooksFor::Sitemap(Box::new(reading))
        })
    }

    /// Looks for the links of a page at `url`: those of up to `length_max` octets.
    pub fn links(
        page: &mut Page,
        url: &CrawlUrl,
        options: &LinkOptions<'_>,
        length_max: usize,
    ) -> Self {
        Finding::of(page, |body, content_type| {
            let search = LinkSearch::new(body, content_type, url, options, length_max);
            LooksFor::Links(Box::new(search))
        })
    }

    fn of(page: &mut Page, looks_for: impl FnOnce(Body, Option<&str>) -> LooksFor) -> Self {
        let body = Arc::new(mem::take(&mut page.body));
        Finding {
            looks_for: looks_for(Body(Arc::clone(&body)), page.content_type.as_deref()),
            body: Some(body),
            extraction: Extraction::default(),
        }
    }

    /// The same, after which these fields are extracted from the page.
    pub fn with_extraction(self, extraction: Extraction) -> Self {
        Finding { extraction, ..self }
    }

    /// Whether fields are extracted after it.
    pub fn extracts(&self) -> bool {
        !self.extraction.is_empty()
    }

    /// Takes what is extracted after it.
    pub fn take_extraction(&mut self) -> Extraction {
        mem::take(&mut self.extraction)
    }

    /// Whether nothing is looked for.
    pub fn is_over(&self) -> bool {
        self.body.is_none()
    }

    /// Length of the body that is searched, in bytes; 0 without a search.
    pub fn body_length(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.len())
    }

    /// Continues until something is found or the units are spent.
    pub fn step(&mut self, units: &mut Units) -> Step {
        loop {
            match &mut self.looks_for {
                LooksFor::Nothing => return Step::Over { is_cut: false },
                LooksFor::Links(search) => {
                    return match search.step(units) {
                        html::Step::Link(link) => Step::Link(link),
                        html::Step::TooLong => Step::TooLong,
                        html::Step::Paused => Step::Paused,
                        html::Step::Over => Step::Over {
                            is_cut: search.is_cut(),
                        },
                    };
                }
                LooksFor::Sitemap(reading) => {
                    return match reading.step(units) {
                        sitemap::Step::Page(url) => Step::Page(url),
                        sitemap::Step::Sitemap(url) => Step::Sitemap(url),
                        sitemap::Step::TooLong => Step::TooLong,
                        sitemap::Step::Paused => Step::Paused,
                        sitemap::Step::Over => Step::Over { is_cut: false },
                    };
                }
                LooksFor::Rules { reading, .. } => {
                    if !reading.step(units) {
                        return Step::Paused;
                    }
                    let read = mem::take(&mut self.looks_for);
                    let LooksFor::Rules {
                        reading,
                        origin,
                        base,
                    } = read
                    else {
                        unreachable!("it was just read");
                    };
                    let (rules, sitemaps) = reading.into_rules();
                    units.spend(rules.heap_size());
                    if let Some(base) = base {
                        self.looks_for = LooksFor::Sitemaps(base, sitemaps.into_iter());
                    }
                    return Step::Rules(origin, rules);
                }
                LooksFor::Sitemaps(base, left) => {
                    if units.is_spent() {
                        return Step::Paused;
                    }
                    let Some(sitemap) = left.next() else {
                        return Step::Over { is_cut: false };
                    };
                    units.spend(URL_UNITS + sitemap.len() + base.as_str().len());
                    if let Ok(url) = base.join(&sitemap) {
                        return Step::Sitemap(url);
                    }
                }
            }
        }
    }

    /// The search is over: the page has its body again.
    pub fn end(mut self, page: &mut Page) {
        let Some(body) = self.body else {
            return;
        };
        if let LooksFor::Links(search) = &mut self.looks_for {
            page.links = Some(search.count() as u32);
            let words = search.take_words();
            if !words.is_empty() {
                page.directives.get_or_insert_default().meta = words;
            }
        }
        self.looks_for = LooksFor::Nothing;
        page.body = Arc::into_inner(body).expect("the body has no other owner any more");
    }

    /// Bytes that it holds.
    pub fn memory(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.capacity())
            + match &self.looks_for {
                LooksFor::Nothing => 0,
                LooksFor::Links(search) => search.memory(),
                LooksFor::Sitemap(reading) => reading.memory(),
                LooksFor::Rules { reading, .. } => reading.memory(),
                LooksFor::Sitemaps(_, left) => left.len() * size_of::<String>(),
            }
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finding")
    }
}
