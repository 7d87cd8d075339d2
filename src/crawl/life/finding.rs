//! What is looked for in a body: the rules of a robots.txt, the URLs of a sitemap, the links of a page.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::vec;

use super::admission::without_dropped;
use super::work::Task;
use crate::base::units::Units;
use crate::crawl::core::Core;
use crate::frontier::filter::Filtered;
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::frontier::robots::Brought;
use crate::frontier::settings::{Follow, Settings};
use crate::io::Io;
use crate::sink::page::Page;
use crate::sink::reply::BodyMode;
use crate::wire::directives::Directives;
use crate::wire::html::{self, LinkOptions, LinkSearch};
use crate::wire::robots::RobotsReading;
use crate::wire::sitemap::{self, SitemapReading};
use crate::wire::url::{CrawlUrl, LENGTH_MAX};

/// What is looked for, and how far that is.
#[derive(Default)]
pub struct Finding {
    looks_for: LooksFor,
    /// The body, while it is looked through.
    body: Option<Arc<Vec<u8>>>,
    /// The URL of the page, as all that it leads to has it.
    via: Option<Arc<str>>,
}

#[derive(Default)]
enum LooksFor {
    #[default]
    Nothing,
    Links(Box<LinkSearch<Body>>),
    Sitemap(Box<SitemapReading<Body>>),
    /// The rules for our agent, for the origin of this number.
    Rules(Box<RobotsReading<Body>>, u32),
    /// The sitemaps that a robots.txt names.
    Sitemaps(vec::IntoIter<String>),
}

/// A body that is looked through.
pub struct Body(Arc<Vec<u8>>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The units are spent.
    Paused,
    /// There is no more.
    Over,
}

impl Finding {
    /// Looks for something in the body of a page.
    fn of(page: &mut Page, looks_for: impl FnOnce(Body) -> LooksFor) -> Self {
        let body = Arc::new(mem::take(&mut page.body));
        Finding {
            looks_for: looks_for(Body(Arc::clone(&body))),
            body: Some(body),
            via: Some(Arc::from(page.url.as_str())),
        }
    }

    /// Whether nothing is looked for.
    pub fn is_over(&self) -> bool {
        self.via.is_none()
    }

    /// Nothing more is looked for: the page has its body again.
    pub fn end(mut self, page: &mut Page) {
        let Some(body) = self.body else {
            return;
        };
        if let LooksFor::Links(search) = &self.looks_for {
            page.links = Some(search.count() as u32);
        }
        self.looks_for = LooksFor::Nothing;
        page.body = Arc::into_inner(body).expect("nobody else has the body any more");
    }

    /// Bytes that it holds.
    pub fn memory(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.capacity())
            + match &self.looks_for {
                LooksFor::Nothing => 0,
                LooksFor::Links(search) => search.memory(),
                LooksFor::Sitemap(reading) => reading.memory(),
                LooksFor::Rules(reading, _) => reading.memory(),
                LooksFor::Sitemaps(left) => left.len() * size_of::<String>(),
            }
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finding")
    }
}

/// What it takes to let a URL in, or to leave it out, beside what its octets take.
const ADMITTED_UNITS: usize = 384;
const LEFT_OUT_UNITS: usize = 64;

impl<I: Io> Core<I> {
    /// A robots.txt has come, or not. Where there is nothing to be read every URL of its origin that
    /// waited goes on.
    pub fn read_robots(&mut self, job: &Job, page: &mut Page) -> Finding {
        let Some(origin) = job.robots_for() else {
            return Finding::default();
        };
        let brought = match (page.status, &page.failure) {
            (Some(200..=299), None) => {
                let agent = &self.frontier.settings().robots_agent;
                return Finding::of(page, |body| {
                    LooksFor::Rules(Box::new(RobotsReading::new(body, agent)), origin)
                });
            }
            // Redirects that lead nowhere are taken for a file that is not there (section 2.3.1.2).
            (Some(300..=399), _) => Brought::Absent,
            (Some(429), _) => Brought::Unreachable,
            (Some(400..=499), None) => Brought::Absent,
            _ => Brought::Unreachable,
        };
        self.frontier
            .robots_arrived(origin, brought, &mut self.throttle, self.now);
        Finding::default()
    }

    /// Looks for the URLs of a sitemap.
    pub fn read_sitemap(&mut self, job: &Job, page: &mut Page) -> Finding {
        if page.status != Some(200) {
            return Finding::default();
        }
        let ratio_max = Some(self.config.fetch.ratio_max);
        let length_max = self.url_length_max();
        let content_type = page.content_type.take();
        let finding = Finding::of(page, |body| {
            let at = &job.url;
            let content_type = content_type.as_deref();
            let reading = SitemapReading::new(body, content_type, at, ratio_max, length_max);
            LooksFor::Sitemap(Box::new(reading))
        });
        page.content_type = content_type;
        finding
    }

    /// Looks for the links of a page, where they are followed.
    pub fn read_links(&mut self, job: &Job, page: &mut Page) -> Finding {
        let settings = self.frontier.settings();
        let follows = settings.follow != Follow::None && !job.flags.dont_follow;
        let is_there = page.body_mode == BodyMode::Keep && page.status == Some(200);
        if !follows || !is_there || !is_html(page) {
            return Finding::default();
        }
        let options = LinkOptions {
            resources: settings.follow_resources,
            nofollow: settings.nofollow,
            agent: &settings.robots_agent,
            links_max: settings.links_per_page_max,
        };
        let by_header = page
            .headers
            .get_all("x-robots-tag")
            .filter_map(|value| std::str::from_utf8(value).ok())
            .map(|value| Directives::from_header(value, &settings.robots_agent))
            .fold(Directives::default(), Directives::and);
        if by_header.nofollow && settings.nofollow {
            page.links = Some(0);
            return Finding::default();
        }
        let length_max = self.url_length_max();
        let content_type = page.content_type.take();
        let finding = Finding::of(page, |body| {
            let content_type = content_type.as_deref();
            let search = LinkSearch::new(body, content_type, &job.url, &options, length_max);
            LooksFor::Links(Box::new(search))
        });
        page.content_type = content_type;
        finding
    }

    /// Goes on looking until the units are spent.
    pub fn find(&mut self, task: &mut Task, units: &mut Units) -> Progress {
        let Task { job, finding, .. } = task;
        let via = finding.via.clone().expect("something is looked for");
        let below = job.depth.saturating_add(1);
        loop {
            match &mut finding.looks_for {
                LooksFor::Nothing => return Progress::Over,
                LooksFor::Links(search) => match search.step(units) {
                    html::Step::Link(link) => {
                        self.admit_found(job, &via, link.url, Kind::Page, below, units);
                    }
                    html::Step::TooLong => self.leave_out_long(units),
                    html::Step::Paused => return Progress::Paused,
                    html::Step::Over => {
                        if search.is_cut() {
                            self.frontier.count_filtered(Filtered::LinksPerPage, 1);
                        }
                        return Progress::Over;
                    }
                },
                LooksFor::Sitemap(reading) => match reading.step(units) {
                    sitemap::Step::Page(url) => {
                        self.admit_found(job, &via, url, Kind::Page, below, units);
                    }
                    sitemap::Step::Sitemap(url) => {
                        self.admit_found(job, &via, url, Kind::Sitemap, job.depth, units);
                    }
                    sitemap::Step::TooLong => self.leave_out_long(units),
                    sitemap::Step::Paused => return Progress::Paused,
                    sitemap::Step::Over => return Progress::Over,
                },
                LooksFor::Rules(reading, origin) => {
                    if !reading.step(units) {
                        return Progress::Paused;
                    }
                    let origin = *origin;
                    let LooksFor::Rules(reading, _) = mem::take(&mut finding.looks_for) else {
                        unreachable!("it was just read");
                    };
                    let (rules, sitemaps) = reading.into_rules();
                    units.spend(rules.heap_size());
                    let brought = Brought::Rules(rules);
                    self.frontier
                        .robots_arrived(origin, brought, &mut self.throttle, self.now);
                    if self.frontier.settings().sitemaps {
                        finding.looks_for = LooksFor::Sitemaps(sitemaps.into_iter());
                    }
                }
                LooksFor::Sitemaps(left) => {
                    if units.is_spent() {
                        return Progress::Paused;
                    }
                    let Some(sitemap) = left.next() else {
                        return Progress::Over;
                    };
                    units.spend(LEFT_OUT_UNITS + sitemap.len() + job.url.as_str().len());
                    if let Ok(url) = job.url.join(&sitemap) {
                        self.admit_found(job, &via, url, Kind::Sitemap, job.depth, units);
                    }
                }
            }
        }
    }

    /// The longest URL that may be let in: where parameters are dropped a longer one may become that.
    fn url_length_max(&self) -> usize {
        match self.config.frontier.drop_parameters.is_empty() {
            true => self.frontier.settings().url_length_limit,
            false => LENGTH_MAX,
        }
    }

    fn leave_out_long(&mut self, units: &mut Units) {
        units.spend(LEFT_OUT_UNITS);
        self.frontier.count_filtered(Filtered::Length, 1);
    }

    /// A URL found on the page `via` comes in, if no filter leaves it out.
    fn admit_found(
        &mut self,
        from: &Job,
        via: &Arc<str>,
        url: CrawlUrl,
        kind: Kind,
        depth: u32,
        units: &mut Units,
    ) {
        units.spend(LEFT_OUT_UNITS + filter_units(self.frontier.settings(), &url));
        let url = without_dropped(url, &self.config);
        let (frontier, throttle) = (&mut self.frontier, &mut self.throttle);
        let nesting = from.nesting().saturating_add(1);
        let checked = match kind {
            Kind::Sitemap => frontier.check_sitemap(&url, depth, nesting, false, throttle),
            Kind::Page | Kind::Robots => frontier.check(&url, depth, false, throttle),
        };
        if checked.is_err() {
            return;
        }
        units.spend(ADMITTED_UNITS);
        let id = self.frontier.number();
        let mut job = Job {
            parent: from.id,
            via: Some(Arc::clone(via)),
            kind,
            seed: false,
            depth,
            ..Job::seed(id, url)
        };
        if kind == Kind::Sitemap {
            job.extra_mut().set_nesting(nesting);
        }
        if let Some(route) = from.route() {
            job.extra_mut().route = Some(Box::new(route.clone()));
        }
        self.release_later(job);
    }
}

/// What the filters take to look at a URL: each pattern its octets, and of a list each entry.
fn filter_units(settings: &Settings, url: &CrawlUrl) -> usize {
    let patterns = settings.allow.len() + settings.deny.len() + settings.drop_parameters.len();
    url.as_str().len() * (1 + patterns) + 4 * settings.exclude_hosts.len()
}

/// Whether a page is HTML: by its type, or, where it has none, by how it begins.
fn is_html(page: &Page) -> bool {
    match &page.content_type {
        Some(value) => {
            let essence = value.split(';').next().unwrap_or("").trim();
            essence.eq_ignore_ascii_case("text/html")
                || essence.eq_ignore_ascii_case("application/xhtml+xml")
        }
        None => {
            let start = page.body.iter().find(|byte| !byte.is_ascii_whitespace());
            start == Some(&b'<')
        }
    }
}
