//! Links and seeds that filters leave out: each is logged (`-vv`), and written if the sink keeps them.

use log::Level;

use crate::crawl::core::Core;
use crate::crawl::core::url_log::URL_LOG;
use crate::frontier::filter::{Filtered, Rejection};
use crate::frontier::job::Job;
use crate::io::Io;
use crate::sink::filtered::{DISALLOWED, FilteredLink};
use crate::sink::page::Page;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// A filter leaves out a link of a page, or the target of its redirect. Returns the bytes that are written.
    pub fn leave_out_link(&self, rejection: &Rejection, url: &CrawlUrl, page: &mut Page) -> usize {
        if !self.shows_left_out() {
            return 0;
        }
        let rule = self.frontier.rule_of(rejection, url);
        let page_url = page.url.clone();
        let link = FilteredLink {
            url: Some(url.as_str()),
            from: Some(&page_url),
            filter: rejection.filter.as_str(),
            rule: rule.as_deref(),
            count: 1,
        };
        self.add_to_page(&link, page)
    }

    /// A filter leaves out links of a page whose URLs are not known.
    pub fn leave_out_unread(&mut self, filter: Filtered, count: u64, page: &mut Page) {
        self.frontier.count_filtered(filter, count);
        if count == 0 || !self.shows_left_out() {
            return;
        }
        let rule = Rejection::from(filter).rule(self.frontier.settings(), None);
        let page_url = page.url.clone();
        let link = FilteredLink {
            url: None,
            from: Some(&page_url),
            filter: filter.as_str(),
            rule: rule.as_deref(),
            count,
        };
        self.add_to_page(&link, page);
    }

    /// The same, of a page whose links are found on another thread.
    pub fn leave_out_cut(&mut self, count: u64) {
        self.frontier.count_filtered(Filtered::LinksPerPage, count);
        if count > 0 && self.shows_left_out() {
            let filter = Filtered::LinksPerPage;
            let rule = Rejection::from(filter).rule(self.frontier.settings(), None);
            self.put_left_out(&FilteredLink {
                url: None,
                from: None,
                filter: filter.as_str(),
                rule: rule.as_deref(),
                count,
            });
        }
    }

    /// A filter leaves out a seed, or another request from outside.
    pub fn leave_out(&mut self, rejection: &Rejection, job: &Job) {
        if !self.shows_left_out() {
            return;
        }
        let rule = self.frontier.rule_of(rejection, &job.url);
        self.put_left_out(&FilteredLink {
            url: Some(job.url.as_str()),
            from: job.via.as_deref(),
            filter: rejection.filter.as_str(),
            rule: rule.as_deref(),
            count: 1,
        });
    }

    /// robots.txt disallows what was admitted before its rules were known; `detail`: the line and the rule.
    pub fn leave_out_disallowed(&self, page: &mut Page, detail: &str) {
        if self.output.keeps_filtered() {
            let (url, via) = (page.url.clone(), page.via.clone());
            self.add_to_page(
                &FilteredLink {
                    url: Some(&url),
                    from: via.as_deref(),
                    filter: DISALLOWED,
                    rule: Some(detail.strip_prefix("disallowed by ").unwrap_or(detail)),
                    count: 1,
                },
                page,
            );
        }
    }

    fn shows_left_out(&self) -> bool {
        self.output.keeps_filtered() || log::log_enabled!(target: URL_LOG, Level::Debug)
    }

    fn add_to_page(&self, link: &FilteredLink<'_>, page: &mut Page) -> usize {
        log_left_out(link);
        match self.output.keeps_filtered() {
            true => page.filtered_links.get_or_insert_default().add(link),
            false => 0,
        }
    }

    fn put_left_out(&mut self, link: &FilteredLink<'_>) {
        log_left_out(link);
        if self.output.keeps_filtered() {
            let at = self.network.wall_at(self.now);
            self.output.put_filtered(link, at);
        }
    }
}

fn log_left_out(link: &FilteredLink<'_>) {
    let from = link.from.map(|from| format!(", from {from}"));
    log::debug!(
        target: URL_LOG,
        "left out {}: {} ({}{})",
        link.url.unwrap_or("a link"),
        link.filter,
        link.rule.unwrap_or("no rule"),
        from.unwrap_or_default()
    );
}
