//! Keys of the hosts of seeds, in some 8 bytes each: there may be ten million.

/// Keys of the host and of the registrable domain of each seed, each pair once.
#[derive(Debug, Default)]
pub struct SeedHosts {
    /// Hosts that are their own registrable domain.
    domains: Shards<u64>,
    /// The others, with their domains.
    others: Shards<(u64, u64)>,
}

impl SeedHosts {
    /// Adds a host with its registrable domain. Returns whether it is new.
    pub fn insert(&mut self, host: u64, domain: u64) -> bool {
        match host == domain {
            true => self.domains.insert(host, host),
            false => self.others.insert(host, (host, domain)),
        }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.domains.len + self.others.len
    }

    /// All pairs, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let domains = self.domains.shards.iter().flatten();
        let others = self.others.shards.iter().flatten();
        domains.map(|host| (*host, *host)).chain(others.copied())
    }

    /// All pairs, in any order. Memory is freed meanwhile.
    pub fn into_pairs(self) -> impl Iterator<Item = (u64, u64)> {
        let domains = self.domains.shards.into_iter().flatten();
        let others = self.others.shards.into_iter().flatten();
        domains.map(|host| (host, host)).chain(others)
    }
}

/// A set in many ordered lists. Each grows by an eighth, so that little memory is unused.
#[derive(Debug)]
struct Shards<T> {
    /// None while the set is empty.
    shards: Vec<Vec<T>>,
    len: usize,
}

/// Lists of a set of ten million have some six hundred each.
const SHARD_BITS: u32 = 14;

impl<T: Ord> Shards<T> {
    /// Adds a value whose key, which is evenly distributed, selects the list. Returns whether it is new.
    fn insert(&mut self, key: u64, value: T) -> bool {
        if self.shards.is_empty() {
            self.shards.resize_with(1 << SHARD_BITS, Vec::new);
        }
        let shard = &mut self.shards[(key >> (u64::BITS - SHARD_BITS)) as usize];
        let Err(at) = shard.binary_search(&value) else {
            return false;
        };
        if shard.len() == shard.capacity() {
            shard.reserve_exact(1 + shard.len() / 8);
        }
        shard.insert(at, value);
        self.len += 1;
        true
    }
}

impl<T> Default for Shards<T> {
    fn default() -> Self {
        Shards {
            shards: Vec::new(),
            len: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn each_pair_is_there_once() {
        let mut rng = Rng::from_seed(4);
        let mut hosts = SeedHosts::default();
        let mut model = BTreeSet::new();
        let mut scrambled = Rng::from_seed(5);
        let keys: Vec<u64> = (0..20_000).map(|_| scrambled.next_u64()).collect();
        for _ in 0..60_000 {
            let host = keys[rng.below(20_000) as usize];
            let domain = match rng.chance(0.5) {
                true => host,
                false => keys[rng.below(3) as usize],
            };
            assert_eq!(hosts.insert(host, domain), model.insert((host, domain)));
        }
        assert_eq!(hosts.len(), model.len());
        assert_eq!(hosts.iter().collect::<BTreeSet<_>>(), model);
        assert_eq!(hosts.into_pairs().collect::<BTreeSet<_>>(), model);
    }

    #[test]
    fn a_host_takes_at_most_10_bytes() {
        const HOSTS: usize = 1_000_000;
        let mut rng = Rng::from_seed(6);
        let mut hosts = SeedHosts::default();
        for _ in 0..HOSTS {
            let host = rng.next_u64();
            hosts.insert(host, host);
        }
        let shards = hosts.domains.shards.iter();
        let bytes: usize = shards
            .map(|shard| size_of_val(shard) + 8 * shard.capacity())
            .sum();
        assert!(bytes <= 10 * HOSTS, "{bytes}");
    }
}
