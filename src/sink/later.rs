//! Links that are found after their page has ended, by another thread perhaps.

use std::fmt;
use std::sync::Arc;

use crate::frontier::request::Request;
use crate::wire::proxy::Route;

/// Holds a page open until its links are known, on whatever thread they are looked for.
///
/// The crawl does not end while one lives. Dropped without a word it means that there are none. From
/// [`Reply::links_later`](crate::Reply::links_later), for a sink, or
/// [`Crawler::links_later`](crate::Crawler::links_later), for whoever pulls results.
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
#[must_use = "dropped at once it says that there are no links"]
pub struct LinksLater {
    page: OpenPage,
    leads: Arc<dyn Leads>,
}

/// The page that is held open, as far as its links inherit from it.
#[derive(Clone, Debug)]
pub(crate) struct OpenPage {
    pub id: u64,
    pub root: u64,
    pub url: Arc<str>,
    pub depth: u32,
    pub route: Option<Route>,
}

/// Where links go.
pub(crate) trait Leads: fmt::Debug + Send + Sync {
    /// A page is held open, once more perhaps.
    fn open(&self, page: &OpenPage);

    /// These are its links; how many were taken.
    fn add(&self, page: &OpenPage, links: &mut dyn Iterator<Item = Request>) -> usize;

    /// It is not held open any more, by one of those who did.
    fn close(&self, page: &OpenPage);
}

impl LinksLater {
    pub(crate) fn new(page: OpenPage, leads: Arc<dyn Leads>) -> Self {
        leads.open(&page);
        LinksLater { page, leads }
    }

    /// These are the links: each may be relative to the page's URL. They come in like those that
    /// the crawl finds for itself: the page is their parent, they are one link deeper, go the same
    /// way, and the filters hold (`FOLLOW`, `DEPTH_LIMIT` and the others), as far as
    /// [`Request::dont_filter`] does not pass them. What else a request says is heeded.
    ///
    /// Gives how many were handed on: not those beyond `LINKS_PER_PAGE_MAX`, nor what can never be
    /// sent; none once the crawl is over. Wakes the crawl within a millisecond, and does not wait for
    /// it.
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

/// Leads nowhere.
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
