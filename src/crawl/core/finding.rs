//! Finds robots rules, links and sitemap URLs in a reply, a step at a time.

use crate::base::units::Units;
use crate::crawl::core::Core;
use crate::crawl::pages::Task;
use crate::crawl::pages::finding::{Finding, Step, URL_UNITS};
use crate::crawl::work::admission::without_dropped;
use crate::crawl::work::offers::OfferOrigin;
use crate::frontier::Frontier;
use crate::frontier::filter::Filtered;
use crate::frontier::job::Job;
use crate::frontier::offers::{Admission, Offer};
use crate::frontier::request::PageKind;
use crate::frontier::robots::RobotsResult;
use crate::frontier::settings::Follow;
use crate::io::Io;
use crate::sink::page::Page;
use crate::sink::reply::BodyMode;
use crate::wire::directives::{DirectiveWords, Directives};
use crate::wire::html::LinkOptions;
use crate::wire::url::{CrawlUrl, LENGTH_MAX};

/// Units that the admission of a URL takes, beside [`URL_UNITS`] and what its octets take.
const ADMITTED_UNITS: usize = 384;

impl<I: Io> Core<I> {
    /// A robots.txt has arrived, or is unavailable. If there is nothing to read, the URLs of its origin
    /// that waited continue at once.
    pub fn read_robots(&mut self, job: &Job, page: &mut Page) -> Finding {
        let Some(origin) = job.robots_for() else {
            return Finding::default();
        };
        if let Some(result) = RobotsResult::of_reply(page.judged_status(), page.failure.is_none()) {
            page.robots = Some(self.on_robots(job.id, origin, result));
            return Finding::default();
        }
        let settings = self.frontier.settings();
        let base = settings.sitemaps.then_some(&job.url);
        Finding::rules(page, origin, &settings.robots_agent, base)
    }

    /// Looks for the URLs of a sitemap.
    pub fn read_sitemap(&mut self, job: &Job, page: &mut Page) -> Finding {
        if page.judged_status() != Some(200) {
            return Finding::default();
        }
        let ratio_max = self.config.fetch.ratio_max;
        Finding::sitemap(page, &job.url, ratio_max, self.url_length_max())
    }

    /// Looks for the links of a page, where they are followed, and then for the fields of `EXTRACT`.
    pub fn read_page(&mut self, job: &Job, page: &mut Page) -> Finding {
        let is_there = page.body_mode == BodyMode::Keep && page.status.is_some();
        let extracts = is_there && !page.body.is_empty() && is_html(page);
        let finding = self.read_links(job, page);
        match extracts {
            true => finding.with_extraction(self.config.extraction.clone()),
            false => finding,
        }
    }

    /// Looks for the links of a page, where they are followed.
    fn read_links(&mut self, job: &Job, page: &mut Page) -> Finding {
        let settings = self.frontier.settings();
        let mut words = DirectiveWords::default();
        let mut by_header = Directives::default();
        let fields = page.headers.get_all("x-robots-tag");
        for value in fields.filter_map(|value| std::str::from_utf8(value).ok()) {
            words.add_header(value, &settings.robots_agent);
            let more = Directives::from_header(value, &settings.robots_agent);
            by_header = by_header.and(more);
        }
        page.directives = (!words.is_empty()).then(|| Box::new(words));
        let follows = settings.follow != Follow::None && !job.flags.dont_follow;
        let is_there = page.body_mode == BodyMode::Keep && page.judged_status() == Some(200);
        if !follows || !is_there || !is_html(page) {
            return Finding::default();
        }
        let options = LinkOptions {
            resources: settings.follow_resources,
            nofollow: settings.nofollow,
            agent: &settings.robots_agent,
            links_max: settings.links_per_page_max,
        };
        if by_header.nofollow && settings.nofollow {
            page.links = Some(0);
            return Finding::default();
        }
        Finding::links(page, &job.url, &options, self.url_length_max())
    }

    /// Continues the search until the units are spent; returns whether it is over.
    pub fn find(&mut self, task: &mut Task, units: &mut Units) -> bool {
        while !task.work_mut().is_searched() {
            match task.work_mut().search(units) {
                Step::Paused => return false,
                found => self.handle_step(task, found, units),
            }
        }
        true
    }

    /// Handles what a worker has found, until the units are spent; returns whether that is all.
    pub fn handle_found(&mut self, task: &mut Task, units: &mut Units) -> bool {
        while !units.is_spent() {
            let Some(found) = task.work_mut().poll_found() else {
                return true;
            };
            self.handle_step(task, found, units);
        }
        !task.work_mut().has_found()
    }

    /// Admits a URL that was found in a reply, or applies its rules.
    fn handle_step(&mut self, task: &mut Task, found: Step, units: &mut Units) {
        let (id, depth) = (task.job.id, task.job.depth);
        match found {
            Step::Link(link) => {
                if self.output.keeps_links() {
                    units.spend(link.url.as_str().len());
                    let page = &mut task.work_mut().page;
                    page.found_links.get_or_insert_default().add(&link);
                }
                let depth = depth.saturating_add(1);
                self.admit_found(task, link.url, PageKind::Page, depth, units);
            }
            Step::Page(url) => {
                self.admit_found(task, url, PageKind::Page, depth.saturating_add(1), units);
            }
            Step::Sitemap(url) => {
                self.admit_found(task, url, PageKind::Sitemap, depth, units);
            }
            Step::TooLong => {
                units.spend(URL_UNITS);
                self.leave_out_unread(Filtered::Length, 1, &mut task.work_mut().page);
            }
            Step::Rules(origin, rules) => {
                let robots = self.on_robots(id, origin, RobotsResult::Rules(rules));
                task.work_mut().page.robots = Some(robots);
            }
            Step::Paused => {}
            Step::Over { is_cut } => {
                let page = &mut task.work_mut().page;
                self.leave_out_unread(Filtered::LinksPerPage, u64::from(is_cut), page);
            }
        }
    }

    /// The longest URL that is read: where parameters are dropped a longer one may become short enough.
    fn url_length_max(&self) -> usize {
        match self.config.frontier.drop_parameters.is_empty() {
            true => self.frontier.settings().url_length_limit,
            false => LENGTH_MAX,
        }
    }

    /// Offers a URL that was found in a reply.
    fn admit_found(
        &mut self,
        task: &mut Task,
        url: CrawlUrl,
        kind: PageKind,
        depth: u32,
        units: &mut Units,
    ) {
        units.spend(URL_UNITS + filter_units(&self.frontier, &url));
        let url = without_dropped(url, &self.config);
        let nesting = task.job.nesting().saturating_add(1);
        let offer = Offer {
            url: &url,
            kind,
            depth,
            priority: 0,
            nesting,
            seed: false,
        };
        let admission = self.frontier.offer(&offer, self.now);
        match admission {
            // Most links end here.
            Admission::Duplicate => return,
            Admission::Filtered(rejection) => {
                let page = &mut task.work_mut().page;
                return units.spend(self.leave_out_link(&rejection, &url, page));
            }
            Admission::Admitted | Admission::Later(_) => {}
        }
        units.spend(ADMITTED_UNITS);
        let id = self.frontier.number();
        let via = task.shared_url();
        let from = &task.job;
        let mut job = Job {
            parent: from.id,
            via: Some(via),
            kind,
            seed: false,
            depth,
            ..Job::seed(id, url)
        };
        if kind == PageKind::Sitemap {
            job.extra_mut().set_nesting(nesting);
        }
        if let Some(extra) = &from.extra
            && extra.has_shared_fields()
            && job.url.origin() == from.url.origin()
        {
            job.extra_mut().share_fields(extra);
        }
        if let Some(route) = from.route() {
            job.extra_mut().route = Some(Box::new(route.clone()));
        }
        self.on_admission(admission, job, OfferOrigin::Link);
    }
}

/// Units that the filters take for a URL: its octets for each pattern, and each entry of a list.
fn filter_units(frontier: &Frontier, url: &CrawlUrl) -> usize {
    let settings = frontier.settings();
    let patterns = settings.allow.len() + settings.deny.len() + settings.drop_parameters.len();
    let of_settings = url.as_str().len() * (1 + patterns) + 4 * settings.exclude_hosts.len();
    of_settings + frontier.excluded().units(url)
}

/// Whether a page is HTML: by its type, or by its first character if it has none.
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
