//! Links found outside of the crawl's thread, and the pages that are held open until then.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use crate::base::secret::Known;
use crate::crawl::config::Config;
use crate::crawl::work::admission::job_of;
use crate::frontier::job::Job;
use crate::frontier::numbers::Numbers;
use crate::frontier::request::Request;
use crate::io::Waker;
use crate::sink::later::{Leads, OpenPage};
use crate::wire::url::CrawlUrl;

/// Links of pages that are held open, shared with the threads that hold them.
pub struct Found {
    waker: Waker,
    config: Arc<Config>,
    numbers: Numbers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of holders of each page, by the number of its request, until the crawl has taken the event
    /// of its closing.
    open: HashMap<u64, usize, Known>,
    /// Links not taken yet: at most `LINKS_PER_PAGE_MAX` for each page that is held open.
    events: VecDeque<LinkEvent>,
    closed: bool,
}

/// An event of a page that is held open.
pub enum LinkEvent {
    /// A link, numbered.
    Link(Box<Job>),
    /// So many further links were dropped.
    Cut(u64),
    /// One of its holders has closed it.
    Closed(u64),
}

impl Found {
    pub fn new(waker: Waker, config: Arc<Config>, numbers: Numbers) -> Self {
        Found {
            waker,
            config,
            numbers,
            state: Mutex::default(),
        }
    }

    /// Whether any page is held open, or events of one wait.
    pub fn is_any_open(&self) -> bool {
        !self.state().open.is_empty()
    }

    /// The same, for the pages of the request of this number.
    pub fn is_open(&self, root: u64) -> bool {
        self.state().open.contains_key(&root)
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.state().events.is_empty()
    }

    /// Drops all links from now on: called when the crawl is over.
    pub fn close(&self) {
        self.state().closed = true;
    }

    /// Removes the waiting links.
    pub fn drain(&self) -> Vec<Job> {
        let waiting = std::mem::take(&mut self.state().events).into_iter();
        waiting
            .filter_map(|event| match event {
                LinkEvent::Link(job) => Some(*job),
                LinkEvent::Cut(_) | LinkEvent::Closed(_) => None,
            })
            .collect()
    }

    pub(in crate::crawl) fn take(&self) -> Option<LinkEvent> {
        let mut state = self.state();
        let event = state.events.pop_front()?;
        if let LinkEvent::Closed(root) = event
            && let Some(times) = state.open.get_mut(&root)
        {
            *times -= 1;
            if *times == 0 {
                state.open.remove(&root);
            }
        }
        Some(event)
    }

    fn push(&self, all: impl IntoIterator<Item = LinkEvent>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        // A crawl that left some polls them in its next turn; one that found none sleeps.
        let asleep = state.events.is_empty();
        state.events.extend(all);
        let wakes = asleep && !state.events.is_empty();
        drop(state);
        if wakes {
            self.waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while holding it left it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first attempt at a link of a page.
    fn job_of(&self, page: &OpenPage, mut link: Request) -> Option<Job> {
        let url = CrawlUrl::parse_with_base(&page.url, &link.url).ok()?;
        link.url = url.as_str().to_owned();
        link.depth = page.depth.saturating_add(1);
        if link.route.is_none() {
            link.route.clone_from(&page.route);
        }
        Some(Job {
            id: self.numbers.next(),
            parent: page.id,
            via: Some(Arc::clone(&page.url)),
            seed: false,
            ..job_of(&link, &self.config).ok()?
        })
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Found")
    }
}

impl Leads for Found {
    fn open(&self, page: &OpenPage) {
        *self.state().open.entry(page.root).or_default() += 1;
    }

    fn add(&self, page: &OpenPage, links: &mut dyn Iterator<Item = Request>) -> usize {
        if self.state().closed {
            return 0;
        }
        let most = self.config.frontier.links_per_page_max;
        let taken: Vec<LinkEvent> = (&mut *links)
            .take(most)
            .filter_map(|link| self.job_of(page, link))
            .map(|job| LinkEvent::Link(Box::new(job)))
            .collect();
        let count = taken.len();
        let cut = links.count() as u64;
        self.push(
            taken
                .into_iter()
                .chain((cut > 0).then_some(LinkEvent::Cut(cut))),
        );
        count
    }

    fn close(&self, page: &OpenPage) {
        self.push([LinkEvent::Closed(page.root)]);
    }
}

#[cfg(test)]
mod tests;
