//! URLs that were offered to the frontier, and those among them whose answer comes later.
//!
//! ```text
//! offer ──┬─► admitted, duplicate or filtered: at once
//!         └─► later ──► an answer: admitted or duplicate
//! ```
//!
//! Filters answer at once. Whether a URL was seen before may be known only later: where the seen set is
//! on disk, or where the URL belongs to another shard. Such an answer is given to
//! [`Frontier::handle_answer`](super::Frontier::handle_answer).

use hashbrown::HashMap;

use super::filter::Rejection;
use super::request::PageKind;
use crate::base::keys::{HostKey, UrlKey};
use crate::base::secret::Secret;
use crate::wire::url::CrawlUrl;

/// A URL that may be admitted.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The URL.
    pub url: &'a CrawlUrl,
    /// What it is fetched for. Sitemaps have limits of their own.
    pub kind: PageKind,
    /// Links followed from a seed.
    pub depth: u32,
    /// Higher goes first within its lane.
    pub priority: i32,
    /// For a sitemap: how many indexes it is below.
    pub nesting: u32,
    /// It is a seed: `--follow` includes its host, or domain, from now on.
    pub seed: bool,
}

/// An offer whose answer comes later. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferId(u64);

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is new, and now counts as seen.
    Admitted,
    /// It was admitted before, or an equal offer waits for its answer.
    Duplicate,
    /// Excluded by a filter; never [`Filtered::Duplicate`](super::filter::Filtered::Duplicate).
    Filtered(Rejection),
    /// The answer comes from [`Frontier::handle_answer`](super::Frontier::handle_answer).
    Later(OfferId),
}

/// The later answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateAnswer {
    /// Which offer.
    pub id: OfferId,
    /// Whether it is admitted; if not, it is a duplicate.
    pub is_admitted: bool,
    /// The least depth of it and the equal offers since.
    pub depth: u32,
    /// The highest priority of it and the equal offers since.
    pub priority: i32,
    /// It or an equal offer since is a seed.
    pub seed: bool,
}

/// An offer that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub depth: u32,
    pub priority: i32,
    pub seed: bool,
    /// The host whose sitemaps it counts among.
    pub sitemap_of: Option<HostKey>,
}

/// The offers that wait for their answers.
#[derive(Debug)]
pub(super) struct Offers {
    pending: HashMap<UrlKey, (OfferId, Pending), Secret>,
    next: u64,
}

impl Offers {
    /// None waits. `secret` keys the hash table.
    pub fn new(secret: &Secret) -> Self {
        Offers {
            pending: HashMap::with_hasher(*secret),
            next: 0,
        }
    }

    /// Returns whether an offer of this URL waits.
    pub fn holds(&self, key: UrlKey) -> bool {
        self.pending.contains_key(&key)
    }

    /// Merges an offer into an equal one that waits: that one keeps the least depth and the highest
    /// priority, and is a seed if either is. Returns false if there is none.
    pub fn merge(&mut self, key: UrlKey, offer: &Offer<'_>) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let Some((_, pending)) = self.pending.get_mut(&key) else {
            return false;
        };
        pending.depth = pending.depth.min(offer.depth);
        pending.priority = pending.priority.max(offer.priority);
        pending.seed |= offer.seed;
        true
    }

    /// Defers the answer to an offer.
    pub fn defer(&mut self, key: UrlKey, pending: Pending) -> OfferId {
        self.next += 1;
        let id = OfferId(self.next);
        self.pending.insert(key, (id, pending));
        id
    }

    /// Removes an offer: it is being answered.
    pub fn take(&mut self, key: UrlKey) -> Option<(OfferId, Pending)> {
        self.pending.remove(&key)
    }
}
