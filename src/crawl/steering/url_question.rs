//! The question where a URL is: which place is searched for it, and how far that is.

use crate::frontier::UrlSearch;
use crate::wire::url::CrawlUrl;

/// A question for a URL.
///
/// ```text
/// Queues ──► Files ──► Left ──► Unsent ──► answered
///    ▲          │        │         │
///    └──────────┴────────┴─────────┘ the URL was queued, or its block was moved
/// ```
#[derive(Debug)]
pub struct UrlQuestion {
    /// The URL.
    pub url: CrawlUrl,
    /// What is searched next.
    pub place: Place,
    /// The number of the search in files.
    pub number: u32,
    /// The URL was queued since the search began, perhaps in a place that was searched before.
    has_moved: bool,
    /// How often the search began anew.
    again: u32,
    /// Why the URL may be in a place where it was not found.
    doubt: Option<String>,
}

/// A place where a URL can be.
#[derive(Debug)]
pub enum Place {
    /// The queues in memory.
    Queues(UrlSearch),
    /// The queues on disk.
    Files,
    /// What an earlier run left and is not queued.
    Left {
        /// Where the search is.
        from: u64,
        /// Number of those that were compared.
        compared: usize,
        /// Number of all when the search began.
        count: usize,
    },
    /// Requests that have ended unsent, whose results wait: where the search is.
    Unsent(u64),
}

/// So often a search begins anew.
const AGAIN_MAX: u32 = 16;

impl UrlQuestion {
    /// Begins with the queues.
    pub fn new(url: CrawlUrl, search: UrlSearch) -> Self {
        UrlQuestion {
            url,
            place: Place::Queues(search),
            number: 0,
            has_moved: false,
            again: 0,
            doubt: None,
        }
    }

    /// This URL is queued now.
    pub fn note_queued(&mut self, url: &CrawlUrl) {
        self.has_moved |= self.url == *url;
    }

    /// Whether the URL was queued since the search began, so that this begins anew.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Begins anew under a new number; returns false if it did so too often: `why` is the doubt that is left.
    pub fn begin_again(&mut self, number: u32, search: UrlSearch, why: &str) -> bool {
        (self.number, self.place) = (number, Place::Queues(search));
        (self.has_moved, self.doubt) = (false, None);
        self.again += 1;
        if self.again > AGAIN_MAX {
            self.doubt = Some(why.to_owned());
        }
        self.doubt.is_none()
    }

    /// The URL may be in a place where it was not found.
    pub fn doubt(&mut self, why: &str) {
        self.doubt.get_or_insert_with(|| why.to_owned());
    }

    /// Why the URL may be in a place where it was not found.
    pub fn doubts(&self) -> Option<&str> {
        self.doubt.as_deref()
    }
}
