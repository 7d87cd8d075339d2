//! URLs that were offered to the frontier, and those among them whose answer comes later.
//!
//! ```text
//! offer ──┬─► admitted, duplicate or filtered: at once
//!         └─► later ──► an answer: admitted or duplicate
//! ```
//!
//! Filters answer at once. Whether a URL was seen before may be known only later: where the seen set is
//! on disk, or where the URL belongs to another shard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hashbrown::HashMap;

use super::filter::Filtered;
use super::request::PageKind;
use crate::base::keys::{HostKey, UrlKey};
use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::time::Instant;
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
    /// Excluded by a filter; never [`Filtered::Duplicate`].
    Filtered(Filtered),
    /// The answer comes from [`Frontier::answer_due`](super::Frontier::answer_due).
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
}

/// An offer that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub key: UrlKey,
    pub depth: u32,
    pub priority: i32,
    /// The host whose sitemaps it counts among.
    pub sitemap_of: Option<HostKey>,
}

/// The offers that wait for their answers.
#[derive(Debug)]
pub(super) struct Offers {
    pending: BTreeMap<OfferId, Pending>,
    by_key: HashMap<UrlKey, OfferId, Secret>,
    next: u64,
    delays: Option<Delays>,
}

impl Offers {
    /// None waits. `secret` keys the hash table.
    pub fn new(secret: &Secret) -> Self {
        Offers {
            pending: BTreeMap::new(),
            by_key: HashMap::with_hasher(*secret),
            next: 0,
            delays: None,
        }
    }

    /// Returns whether an offer of this URL waits.
    pub fn holds(&self, key: UrlKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Merges an offer into an equal one that waits: that one keeps the least depth and the highest
    /// priority. Returns false if there is none.
    pub fn merge(&mut self, key: UrlKey, depth: u32, priority: i32) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let id = self.by_key.get(&key);
        let Some(pending) = id.and_then(|id| self.pending.get_mut(id)) else {
            return false;
        };
        pending.depth = pending.depth.min(depth);
        pending.priority = pending.priority.max(priority);
        true
    }

    /// Defers the answer to an offer.
    pub fn defer(&mut self, pending: Pending) -> OfferId {
        self.next += 1;
        let id = OfferId(self.next);
        self.by_key.insert(pending.key, id);
        self.pending.insert(id, pending);
        id
    }

    /// Removes an offer: it is being answered.
    pub fn take(&mut self, id: OfferId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.by_key.remove(&pending.key);
        Some(pending)
    }

    /// The first offer that waits.
    pub fn first(&self) -> Option<OfferId> {
        self.pending.keys().next().copied()
    }

    /// Delays answers in a simulated crawl.
    pub fn delays(&mut self) -> Option<&mut Delays> {
        self.delays.as_mut()
    }

    /// When the next put-off answer is due.
    pub fn next_answer(&self) -> Option<Instant> {
        Some(self.delays.as_ref()?.due.first()?.0)
    }

    /// Puts off answers by chance from now on.
    pub fn delay_by_chance(&mut self, seed: u64) {
        self.delays = Some(Delays {
            rng: Rng::from_seed(seed),
            due: BTreeSet::new(),
        });
    }
}

/// Puts off answers by chance, as a seen set on disk would: for tests.
#[derive(Debug)]
pub(super) struct Delays {
    rng: Rng,
    due: BTreeSet<(Instant, OfferId)>,
}

/// Longest delay of an answer.
const DELAY_MAX: Duration = Duration::from_secs(5);

impl Delays {
    /// Delay of the next answer; half of them have none.
    pub fn draw(&mut self) -> Option<Duration> {
        let drawn = self.rng.next_u64();
        let nanos = DELAY_MAX.as_nanos() as u64;
        // Most of them are short, as those of a disk.
        let share = drawn >> 2 & 0b1111;
        (drawn & 1 == 1).then(|| Duration::from_nanos(((drawn >> 8) % nanos) >> share))
    }

    /// An answer is due at `at`.
    pub fn set(&mut self, at: Instant, id: OfferId) {
        self.due.insert((at, id));
    }

    /// An offer whose answer is due.
    pub fn take_due(&mut self, now: Instant) -> Option<OfferId> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        self.due.pop_first().map(|(_, id)| id)
    }
}
