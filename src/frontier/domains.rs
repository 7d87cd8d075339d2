//! Counts of each registrable domain: `PAGES_PER_DOMAIN_MAX` and `BYTES_PER_DOMAIN_MAX`.

use crate::base::keys::{HostKey, Keys};
use crate::base::secret::Secret;
use crate::base::sharded::ShardedTable;
use crate::frontier::saved_counts::Counts;
use crate::wire::url::registrable;

/// Pages and bytes of each domain, for the whole crawl: 32 bytes each. Empty unless one of them is limited.
#[derive(Debug)]
pub struct Domains {
    table: ShardedTable<Domain>,
    keys: Keys,
    pages_max: u32,
    bytes_max: u64,
    /// Whether pages or bytes are counted, and whether bytes are: both as the crawl began, so that a count has all.
    is_counted: bool,
    are_bytes_counted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Domain {
    key: HostKey,
    bytes: u64,
    pages: u32,
    in_flight: u32,
}

/// Whether a request to a domain may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainStanding {
    /// It may.
    Open,
    /// The pages in flight would reach the limit: not unless one of them fails.
    Pending,
    /// The limit of pages is reached.
    Pages,
    /// The limit of bytes is reached.
    Bytes,
}

impl Domains {
    /// No domains, with these limits; 0: none. `secret` has the keys.
    pub fn new(pages_max: u32, bytes_max: u64, secret: &Secret) -> Self {
        Domains {
            table: ShardedTable::new(),
            keys: *secret.keys(),
            pages_max,
            bytes_max,
            is_counted: pages_max > 0 || bytes_max > 0,
            are_bytes_counted: bytes_max > 0,
        }
    }

    /// Changes the limits; 0: none. One that was 0 at the start has no counts.
    pub fn set_limits(&mut self, pages_max: u32, bytes_max: u64) {
        self.pages_max = pages_max;
        self.bytes_max = bytes_max;
    }

    /// Whether anything is counted.
    pub fn are_counted(&self) -> bool {
        self.is_counted
    }

    /// The key of the domain of a host.
    pub fn key_of(&self, host: &str) -> HostKey {
        self.keys.host(registrable(host))
    }

    /// Whether a request to a domain may be sent.
    pub fn standing(&self, key: HostKey) -> DomainStanding {
        let found = self.table.shard(key.0).find(key.0, |own| own.key == key);
        let Some(domain) = found else {
            return DomainStanding::Open;
        };
        let (bytes_max, pages_max) = (self.bytes_max, self.pages_max);
        match () {
            () if bytes_max > 0 && domain.bytes >= bytes_max => DomainStanding::Bytes,
            () if pages_max == 0 => DomainStanding::Open,
            () if domain.pages >= pages_max => DomainStanding::Pages,
            () if domain.pages + domain.in_flight >= pages_max => DomainStanding::Pending,
            () => DomainStanding::Open,
        }
    }

    /// The counts of a domain, without requests in flight.
    pub fn counts(&self, key: HostKey) -> Counts {
        let found = self.table.shard(key.0).find(key.0, |own| own.key == key);
        found.map_or_else(Counts::default, |domain| Counts {
            pages: domain.pages.into(),
            bytes: domain.bytes,
            ..Counts::default()
        })
    }

    /// Continues with the counts of an earlier run.
    pub fn restore(&mut self, key: HostKey, counts: Counts) {
        if self.are_counted() {
            let domain = self.domain_mut(key);
            domain.pages = u32::try_from(counts.pages).unwrap_or(u32::MAX);
            domain.bytes = counts.bytes;
        }
    }

    /// A request for a page departs.
    pub fn begin_page(&mut self, key: HostKey) {
        self.domain_mut(key).in_flight += 1;
    }

    /// It has ended, with a page that counts or without.
    pub fn end_page(&mut self, key: HostKey, counts: bool) {
        let domain = self.domain_mut(key);
        domain.in_flight -= 1;
        domain.pages += u32::from(counts);
    }

    /// Bytes were received from it.
    pub fn count_bytes(&mut self, key: HostKey, bytes: u64) {
        if self.are_bytes_counted {
            let domain = self.domain_mut(key);
            domain.bytes = domain.bytes.saturating_add(bytes);
        }
    }

    fn domain_mut(&mut self, key: HostKey) -> &mut Domain {
        let hash_of = |own: &Domain| own.key.0;
        let shard = self.table.shard_with_room(key.0, hash_of);
        let entry = shard.entry(key.0, |own| own.key == key, hash_of);
        let new = Domain {
            key,
            bytes: 0,
            pages: 0,
            in_flight: 0,
        };
        entry.or_insert(new).into_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_domain_share_its_limits() {
        let mut domains = Domains::new(2, 1000, &Secret::from_seed(1));
        let one = domains.key_of("a.example.co.uk");
        assert_eq!(one, domains.key_of("example.co.uk"));
        let other = domains.key_of("other.co.uk");
        let standings = |domains: &Domains| (domains.standing(one), domains.standing(other));
        domains.begin_page(one);
        assert_eq!(domains.standing(one), DomainStanding::Open);
        domains.begin_page(one);
        assert_eq!(domains.standing(one), DomainStanding::Pending);
        domains.end_page(one, false);
        assert_eq!(domains.standing(one), DomainStanding::Open);
        domains.end_page(one, true);
        domains.begin_page(one);
        domains.end_page(one, true);
        let expected = (DomainStanding::Pages, DomainStanding::Open);
        assert_eq!(standings(&domains), expected);
        domains.count_bytes(other, 999);
        assert_eq!(standings(&domains), expected);
        domains.count_bytes(other, 1);
        assert_eq!(
            standings(&domains),
            (DomainStanding::Pages, DomainStanding::Bytes)
        );
    }

    #[test]
    fn without_limits_nothing_is_counted() {
        let mut domains = Domains::new(0, 0, &Secret::from_seed(1));
        assert!(!domains.are_counted());
        let key = domains.key_of("a.test");
        domains.count_bytes(key, u64::MAX);
        assert!(domains.table.is_empty());
    }
}
