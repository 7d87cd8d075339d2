//! The seen set: keys of admitted URLs.

use hashbrown::hash_table::Entry;

use crate::base::keys::{Keys, UrlKey};
use crate::base::secret::Secret;
use crate::base::sharded::ShardedTable;
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
}

impl Seen {
    /// Creates an empty set.
    pub fn new(secret: &Secret) -> Self {
        Seen {
            prints: ShardedTable::new(),
            keys: *secret.keys(),
        }
    }

    /// The key of a URL.
    pub fn key(&self, url: &CrawlUrl) -> UrlKey {
        self.keys.url(url.as_str())
    }

    /// Adds a URL by its key; returns false if it was present.
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
