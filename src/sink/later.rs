//! Links that are found after their page has ended, possibly on another thread.

use std::fmt;
use std::sync::Arc;

use crate::frontier::request::Request;
use crate::wire::proxy::Route;

/// Keeps a page open until its links are known. Can be sent to any thread.
///
/// The crawl does not end while one exists. Dropping it without links means that there are none.
/// Created by [`Reply::links_later`](crate::Reply::links_later) for a sink, or
/// [`Crawler::links_later`](crate::Crawler::links_later) for a program that pulls results.
///
/// ```
/// use argiope::{Config, Crawler, Request};
///
/// let config = Config::default().with("ALLOW_NET", "loopback")?;
/// # let config = config.with("HOST_DOWN_AFTER", "0")?;
/// let mut crawler = Crawler::builder(config).build()?;
/// crawler.submit(Request::get("http://127.0.0.1:9/"))?;
/// while let Some(page) = crawler.next_result() {
///     let later = crawler.links_later(&page);
///     std::thread::spawn(move || {
///         if page.status == Some(200) {
///             later.links([Request::get("/next")]);
///         }
///     });
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "if it is dropped, the page has no further links"]
pub struct LinksLater {
    page: OpenPage,
    leads: Arc<dyn Leads>,
}

/// The properties of an open page that its links inherit.
#[derive(Clone, Debug)]
pub(crate) struct OpenPage {
    pub id: u64,
    pub root: u64,
    pub url: Arc<str>,
    pub depth: u32,
    pub route: Option<Route>,
}

/// Receives links.
pub(crate) trait Leads: fmt::Debug + Send + Sync {
    /// The page is kept open by one more owner.
    fn open(&self, page: &OpenPage);

    /// Adds links of the page; returns how many were accepted.
    fn add(&self, page: &OpenPage, links: &mut dyn Iterator<Item = Request>) -> usize;

    /// One owner no longer keeps the page open.
    fn close(&self, page: &OpenPage);
}

impl LinksLater {
    pub(crate) fn new(page: OpenPage, leads: Arc<dyn Leads>) -> Self {
        leads.open(&page);
        LinksLater { page, leads }
    }

    /// Submits the links; each may be relative to the page's URL. They are treated like links found
    /// by the crawl itself: the page is their parent, their depth is one more, they use the same
    /// route, and the filters apply (`FOLLOW`, `DEPTH_LIMIT` and the others) unless
    /// [`Request::dont_filter`] is set. Other properties of a request are kept.
    ///
    /// Returns how many were accepted: not those beyond `LINKS_PER_PAGE_MAX` or that can never be
    /// sent, and none after the end of the crawl. Wakes the crawl within a millisecond, and does
    /// not wait for it.
    pub fn links(self, links: impl IntoIterator<Item = Request>) -> usize {
        self.leads.add(&self.page, &mut links.into_iter())
    }
}

impl Drop for LinksLater {
    fn drop(&mut self) {
        self.leads.close(&self.page);
    }
}

impl fmt::Debug for LinksLater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinksLater")
            .field("page", &self.page)
            .finish()
    }
}

/// Ignores all links.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct NoLeads;

#[cfg(test)]
impl Leads for NoLeads {
    fn open(&self, _page: &OpenPage) {}

    fn add(&self, _page: &OpenPage, _links: &mut dyn Iterator<Item = Request>) -> usize {
        0
    }

    fn close(&self, _page: &OpenPage) {}
}
