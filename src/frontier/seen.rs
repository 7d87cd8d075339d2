//! The seen set: which URLs were admitted, by fingerprint.

use hashbrown::hash_table::Entry;

use crate::base::secret::Secret;
use crate::base::sharded::ShardedTable;
use crate::wire::url::CrawlUrl;

/// Fingerprints of admitted URLs.
///
/// 64 bits each: among 100 million URLs the chance that any two collide is 0.03 %, and a collision
/// costs one page. About 9 to 18 bytes a URL. They are made under the crawl's secret: nobody can write a
/// URL that passes for another, or many that lie in one place.
#[derive(Debug)]
pub struct Seen {
    prints: ShardedTable<u64>,
    secret: Secret,
}

impl Seen {
    /// None yet.
    pub fn new(secret: &Secret) -> Self {
        Seen {
            prints: ShardedTable::new(),
            secret: *secret,
        }
    }

    /// Adds a URL; false if it was there.
    pub fn insert(&mut self, url: &CrawlUrl) -> bool {
        let print = self.secret.print(url.as_str());
        let shard = self.prints.shard_mut(print);
        match shard.entry(print, |other| *other == print, |p| *p) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(print);
                true
            }
        }
    }

    /// Whether the URL is there.
    pub fn contains(&self, url: &CrawlUrl) -> bool {
        let print = self.secret.print(url.as_str());
        let shard = self.prints.shard(print);
        shard.find(print, |other| *other == print).is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.prints.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_new_once() {
        let url = |text: &str| CrawlUrl::parse(text).expect(text);
        let mut seen = Seen::new(&Secret::random());
        assert!(seen.insert(&url("http://a.test/7")));
        assert!(!seen.insert(&url("http://a.test/7")));
        assert!(seen.contains(&url("http://a.test/7")));
        assert!(!seen.contains(&url("http://a.test/8")));
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn urls_that_share_a_place_in_one_crawl_do_not_in_another() {
        let low = |seen: &Seen, url: &str| seen.secret.print(url) & 0xff;
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
