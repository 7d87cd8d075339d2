//! The seen set: keys of admitted URLs.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::hash_table::Entry;

use crate::base::keys::{Keys, UrlKey};
use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::sharded::ShardedTable;
use crate::base::time::Instant;
use crate::wire::url::CrawlUrl;

/// Set of keys of admitted URLs.
///
/// 64 bits each: among 100 million URLs the chance that any two collide is 0.03 %, and a collision
/// costs one page. About 9 to 18 bytes a URL. Keys depend on the crawl's secret: no site can craft URLs
/// that collide, or that fall into one bucket.
#[derive(Debug)]
pub struct Seen {
    prints: ShardedTable<u64>,
    keys: Keys,
    delays: Option<Delays>,
}

/// The set's answer about a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenAnswer {
    /// It was not present, and is now.
    New,
    /// It was present.
    Seen,
    /// The answer comes later, with the URL's key.
    Later,
}

impl Seen {
    /// Creates an empty set.
    pub fn new(secret: &Secret) -> Self {
        Seen {
            prints: ShardedTable::new(),
            keys: *secret.keys(),
            delays: None,
        }
    }

    /// The key of a URL.
    pub fn key(&self, url: &CrawlUrl) -> UrlKey {
        self.keys.url(url.as_str())
    }

    /// Adds a URL by its key, unless it is present.
    pub fn ask(&mut self, key: UrlKey, now: Instant) -> SeenAnswer {
        if let Some(delays) = &mut self.delays
            && delays.delay(key, now)
        {
            return SeenAnswer::Later;
        }
        match self.insert(key) {
            true => SeenAnswer::New,
            false => SeenAnswer::Seen,
        }
    }

    /// A later answer that is due: the URL and whether it is new.
    pub fn poll_answer(&mut self, now: Instant) -> Option<(UrlKey, bool)> {
        let key = self.delays.as_mut()?.take_due(now)?;
        Some((key, self.insert(key)))
    }

    /// When the next later answer is due.
    pub fn next_answer(&self) -> Option<Instant> {
        Some(self.delays.as_ref()?.due.first()?.0)
    }

    /// Delays half of all answers by up to 5 s, by chance, as a set on disk would: for tests.
    pub fn delay_by_chance(&mut self, seed: u64) {
        self.delays = Some(Delays {
            rng: Rng::from_seed(seed),
            due: BTreeSet::new(),
        });
    }

    /// Adds a URL by its key at once; returns false if it was present.
    pub fn insert(&mut self, UrlKey(print): UrlKey) -> bool {
        let shard = self.prints.shard_mut(print);
        match shard.entry(print, |other| *other == print, |p| *p) {
            Entry::Occupied(_) => false,
            Entry::Vacant(slot) => {
                slot.insert(print);
                true
            }
        }
    }

    /// Returns whether the URL is present.
    pub fn contains(&self, UrlKey(print): UrlKey) -> bool {
        let shard = self.prints.shard(print);
        shard.find(print, |other| *other == print).is_some()
    }

    /// Number of URLs.
    pub fn len(&self) -> usize {
        self.prints.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.prints.is_empty()
    }
}

/// Answers that come later, by chance.
#[derive(Debug)]
struct Delays {
    rng: Rng,
    due: BTreeSet<(Instant, UrlKey)>,
}

/// Longest delay of an answer.
const DELAY_MAX: Duration = Duration::from_secs(5);

impl Delays {
    /// Draws whether the answer about a URL comes later; half of them do.
    fn delay(&mut self, key: UrlKey, now: Instant) -> bool {
        let drawn = self.rng.next_u64();
        let nanos = DELAY_MAX.as_nanos() as u64;
        // Most of them are short, as those of a disk.
        let share = drawn >> 2 & 0b1111;
        let is_late = drawn & 1 == 1;
        if is_late {
            let delay = Duration::from_nanos(((drawn >> 8) % nanos) >> share);
            self.due.insert((now + delay, key));
        }
        is_late
    }

    /// A URL whose answer is due.
    fn take_due(&mut self, now: Instant) -> Option<UrlKey> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        self.due.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_insert_returns_false() {
        let mut seen = Seen::new(&Secret::random());
        let keys = seen.keys;
        let url = |text: &str| keys.url(text);
        assert!(seen.insert(url("http://a.test/7")));
        assert!(!seen.insert(url("http://a.test/7")));
        assert!(seen.contains(url("http://a.test/7")));
        assert!(!seen.contains(url("http://a.test/8")));
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn urls_crafted_to_share_a_bucket_do_not_share_it_under_another_secret() {
        let low = |seen: &Seen, url: &str| seen.keys.url(url).0 & 0xff;
        let known = Seen::new(&Secret::from_seed(0));
        let wanted = low(&known, "http://a.test/0");
        let urls = (0..).map(|number| format!("http://a.test/{number}"));
        let crafted = urls.filter(|url| low(&known, url) == wanted).take(500);
        let crafted: Vec<String> = crafted.collect();
        let other = Seen::new(&Secret::random());
        let first = low(&other, &crafted[0]);
        let shared = crafted.iter().filter(|url| low(&other, url) == first);
        assert!(shared.count() < 30, "chance has 2");
    }
}
