//! The work on a body that came: rules, sitemaps, links.

use std::sync::Arc;

use super::admission::without_dropped;
use crate::crawl::core::Core;
use crate::frontier::filter::Filtered;
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::frontier::robots::Brought;
use crate::io::Io;
use crate::sink::page::Page;
use crate::sink::reply::Wish;
use crate::wire::charset;
use crate::wire::coding::{Budget, Decoder};
use crate::wire::directives::Directives;
use crate::wire::html::{self, LinkOptions};
use crate::wire::robots::Robots;
use crate::wire::sitemap::{self, Sitemap};
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// A robots.txt has come, or not: every URL of its origin that waited hears of it.
    pub fn read_robots(&mut self, job: &Job, page: &Page) {
        let Some(origin) = job.robots_for() else {
            return;
        };
        let mut sitemaps = Vec::new();
        let brought = match (page.status, &page.failure) {
            (Some(200..=299), None) => {
                let robots = Robots::parse(&page.body);
                sitemaps = robots.sitemaps().to_vec();
                let agent = &self.frontier.settings().robots_agent;
                Brought::Rules(Arc::new(robots.agent(agent)))
            }
            // Redirects that lead nowhere are taken for a file that is not there (section 2.3.1.2).
            (Some(300..=399), _) => Brought::Absent,
            (Some(429), _) => Brought::Unreachable,
            (Some(400..=499), None) => Brought::Absent,
            _ => Brought::Unreachable,
        };
        self.frontier
            .robots_arrived(origin, brought, &mut self.throttle, self.now);
        if self.frontier.settings().sitemaps {
            let via = Arc::from(page.url.as_str());
            for sitemap in sitemaps {
                if let Ok(url) = job.url.join(&sitemap) {
                    self.admit_found(job, &via, url, Kind::Sitemap, job.depth);
                }
            }
        }
    }

    pub fn read_sitemap(&mut self, job: &Job, page: &Page) {
        if page.status != Some(200) {
            return;
        }
        let content_type = page.content_type.as_deref();
        let unpacked = unpacked(&page.body, self.config.fetch.ratio_max);
        let body = unpacked.as_deref().unwrap_or(&page.body);
        let sitemap = Sitemap::parse(body, content_type, &job.url);
        let via = Arc::from(page.url.as_str());
        for url in sitemap.sitemaps {
            self.admit_found(job, &via, url, Kind::Sitemap, job.depth);
        }
        for url in sitemap.pages {
            self.admit_found(job, &via, url, Kind::Page, job.depth.saturating_add(1));
        }
    }

    pub fn read_links(&mut self, job: &Job, page: &mut Page) {
        let settings = self.frontier.settings();
        let leads_on = settings.follow != crate::frontier::settings::Follow::None;
        let follows = leads_on && !job.flags.dont_follow;
        let is_there = page.wish == Wish::Keep && page.status == Some(200);
        if !follows || !is_there || !is_html(page) {
            return;
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
            return;
        }
        let text = charset::decode(&page.body, page.content_type.as_deref());
        let found = html::links(&text, &job.url, &options);
        page.links = Some(found.links.len() as u32);
        if found.cut {
            self.frontier.count_filtered(Filtered::LinksPerPage, 1);
        }
        let via = Arc::from(page.url.as_str());
        for link in found.links {
            self.admit_found(job, &via, link.url, Kind::Page, job.depth.saturating_add(1));
        }
    }

    /// A URL found on the page `via` comes in, if no filter leaves it out.
    fn admit_found(&mut self, from: &Job, via: &Arc<str>, url: CrawlUrl, kind: Kind, depth: u32) {
        let url = without_dropped(url, &self.config);
        let throttle = &mut self.throttle;
        if self.frontier.check(&url, depth, false, throttle).is_err() {
            return;
        }
        let id = self.frontier.number();
        let mut job = Job {
            parent: from.id,
            via: Some(Arc::clone(via)),
            kind,
            seed: false,
            depth,
            ..Job::seed(id, url)
        };
        if let Some(route) = from.route() {
            job.extra_mut().route = Some(Box::new(route.clone()));
        }
        self.release_later(job);
    }
}

/// The content of a sitemap that is a gzip file; `None` where it is none. As far as it can be read.
fn unpacked(body: &[u8], ratio_max: u32) -> Option<Vec<u8>> {
    if !body.starts_with(&[0x1f, 0x8b]) {
        return None;
    }
    let budget = Budget {
        bytes_max: sitemap::LENGTH_MAX as u64,
        ratio_max: u64::from(ratio_max),
    };
    let mut content = Vec::new();
    let mut decoder = Decoder::new([&b"gzip"[..]], budget).ok()?;
    let _ = decoder.write(body, &mut content);
    Some(content)
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
