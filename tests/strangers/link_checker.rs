//! Finds broken links, as one task of a tokio program.
//!
//! Fetches the pages of the site, beginning with the first; external links are only checked: by HEAD, and
//! by GET if HEAD is answered with an error. The crawl has no thread: its descriptor is readable when there
//! is work, and each turn takes about a millisecond.

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use argiope::parts::{LinkOptions, links_of};
use argiope::{Config, CrawlUrl, Crawler, FailureKind, Page, Request, Turn};
use argiope::{FinishReason, PageKind};
use tokio::io::unix::AsyncFd;

/// A URL that was looked at.
#[derive(Debug)]
pub struct Target {
    pub url: CrawlUrl,
    /// The pages that link to it.
    pub pages: Vec<String>,
    /// Each redirect on the way: its status, and where it led.
    pub redirects: Vec<(u16, String)>,
    pub verdict: Verdict,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The check ended before it.
    Unknown,
    Fine(u16),
    /// Its status, or the code of what went wrong: `404`, `dns.nxdomain`, `timeout.first_byte`.
    Broken(String),
    /// Somebody does not want us to look: `robots.disallowed`.
    Skipped(String),
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// Why it ended: `finished`, or `shutdown` after a signal.
    pub reason: FinishReason,
    pub targets: Vec<Target>,
    /// Links that came after the limit.
    pub left_out: usize,
}

/// Checks the site that `start` belongs to, and at most `targets_max` URLs. Ends early when `stop` does.
pub async fn check(
    start: &str,
    config: Config,
    targets_max: usize,
    stop: impl Future<Output = ()>,
) -> Result<Report, Box<dyn Error + Send + Sync>> {
    let start = CrawlUrl::parse(start)?;
    // Of a redirect each hop is reported.
    let builder = Crawler::builder(config.with("FOLLOW", "none")?).every_attempt();
    let crawler = builder.build()?;
    // SAFETY: a crawler has the same descriptor for as long as it lives.
    let mut crawler = unsafe { AsyncFd::register(crawler) }.map_err(io::Error::from)?;
    let mut site = Site {
        authority: start.authority().to_owned(),
        targets_max,
        report: Report {
            reason: FinishReason::Finished,
            targets: Vec::new(),
            left_out: 0,
        },
        known: HashMap::new(),
    };
    site.add(start, None, crawler.get_mut());

    let mut stop = pin!(stop);
    let mut is_stopping = false;
    site.report.reason = loop {
        let turn = crawler.get_mut().turn(Some(Duration::ZERO));
        while let Some(page) = crawler.get_mut().try_next_result() {
            site.take(page, crawler.get_mut());
        }
        if let Turn::Over(reason) = turn {
            break reason;
        }
        tokio::select! {
            ready = crawler.readable_mut() => ready?.clear_ready(),
            () = &mut stop, if !is_stopping => {
                is_stopping = true;
                crawler.get_ref().stopper().shutdown(Duration::from_secs(1));
            }
        }
    };
    Ok(site.report)
}

struct Site {
    /// Host and port, of which all pages are read.
    authority: String,
    targets_max: usize,
    report: Report,
    /// Where each URL stands among the targets. That is its tag, too.
    known: HashMap<CrawlUrl, usize>,
}

impl Site {
    /// A link to `url`, on `page`; or the first URL.
    fn add(&mut self, url: CrawlUrl, page: Option<&str>, crawler: &mut Crawler) {
        let number = self.report.targets.len();
        let index = *self.known.entry(url.clone()).or_insert(number);
        if index == number && number == self.targets_max {
            self.known.remove(&url);
            self.report.left_out += 1;
            return;
        }
        if index == number {
            let method = if url.authority() == self.authority {
                "GET"
            } else {
                "HEAD"
            };
            let target = Target {
                url,
                pages: Vec::new(),
                redirects: Vec::new(),
                verdict: Verdict::Unknown,
            };
            self.report.targets.push(target);
            self.ask(index, method, crawler);
        }
        self.report.targets[index]
            .pages
            .extend(page.map(str::to_owned));
    }

    fn ask(&mut self, index: usize, method: &str, crawler: &mut Crawler) {
        let target = &mut self.report.targets[index];
        // Each is asked for once as it is, and what redirects to it does not count.
        let mut request = Request::get(target.url.as_str())
            .method(method)
            .tag(index as u64)
            .dont_filter();
        if target.url.authority() != self.authority {
            request = request.body_max(0);
        }
        if let Err(refused) = crawler.submit(request) {
            target.verdict = Verdict::Broken(refused.code().into_owned());
        }
    }

    /// An attempt has ended.
    fn take(&mut self, page: Page, crawler: &mut Crawler) {
        let index = page.tag as usize;
        if page.kind != PageKind::Page {
            return;
        }
        let target = &mut self.report.targets[index];
        if let (Some(status), Some(to)) = (page.status, &page.redirect) {
            target.redirects.push((status, to.clone()));
        }
        if !page.is_final {
            return;
        }
        target.verdict = match (&page.failure, page.status) {
            (Some(failure), _) => match failure.kind {
                FailureKind::Cancelled => Verdict::Unknown,
                FailureKind::Robots | FailureKind::Filtered => Verdict::Skipped(failure.code()),
                _ => Verdict::Broken(failure.code()),
            },
            (None, Some(status)) if status < 400 => Verdict::Fine(status),
            (None, status) => Verdict::Broken(status.unwrap_or(0).to_string()),
        };
        if page.method == "HEAD" && page.status.is_some_and(|status| status >= 400) {
            target.redirects.clear();
            return self.ask(index, "GET", crawler);
        }
        let is_html = page
            .content_type
            .as_deref()
            .is_some_and(|kind| kind.starts_with("text/html"));
        let Ok(url) = CrawlUrl::parse(&page.url) else {
            return;
        };
        if is_html
            && url.authority() == self.authority
            && matches!(target.verdict, Verdict::Fine(_))
        {
            let options = LinkOptions {
                resources: true,
                ..LinkOptions::default()
            };
            let content_type = page.content_type.as_deref();
            for link in links_of(&page.body, content_type, &url, &options).links {
                self.add(link.url, Some(url.as_str()), crawler);
            }
        }
    }
}
