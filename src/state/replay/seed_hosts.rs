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
    /// Adds a host with its registrable domain.
    pub fn insert(&mut self, host: u64, domain: u64) {
        match host == domain {
            true => self.domains.insert(host, host),
            false => self.others.insert(host, (host, domain)),
        }
    }

    /// Number of pairs; those that were added last may count twice.
    pub fn len_max(&self) -> usize {
        let all = |shards: &[Vec<u64>]| shards.iter().map(Vec::len).sum::<usize>();
        let others = self.others.shards.iter().map(Vec::len);
        all(&self.domains.shards) + others.sum::<usize>()
    }

    /// All pairs, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let domains = self.domains.shards.iter().cloned().flat_map(in_order);
        let others = self.others.shards.iter().cloned().flat_map(in_order);
        domains.map(|host| (host, host)).chain(others)
    }

    /// All pairs, in any order. Memory is freed meanwhile.
    pub fn into_pairs(self) -> impl Iterator<Item = (u64, u64)> {
        let domains = self.domains.shards.into_iter().flat_map(in_order);
        let others = self.others.shards.into_iter().flat_map(in_order);
        domains.map(|host| (host, host)).chain(others)
    }
}

/// A set in many lists. Each is ordered but for its end, where values may be there twice: a list that is full is
/// ordered and grows by an eighth, so that a value costs a few moves and little memory is unused.
#[derive(Debug)]
struct Shards<T> {
    /// None while the set is empty.
    shards: Vec<Vec<T>>,
    /// The value that was added last.
    last: Option<T>,
}

/// Lists of a set of ten million have some five thousand each: one is ordered in microseconds, and the ends of all
/// stay in the cache.
const SHARD_BITS: u32 = 11;

/// A list grows by so many values at least.
const GROWTH_MIN: usize = 16;

impl<T: Ord + Copy> Shards<T> {
    /// Adds a value whose key, which is evenly distributed, selects the list.
    fn insert(&mut self, key: u64, value: T) {
        // Pages of a host are often seeds in a row.
        if self.last == Some(value) {
            return;
        }
        self.last = Some(value);
        if self.shards.is_empty() {
            self.shards.resize_with(1 << SHARD_BITS, Vec::new);
        }
        let shard = &mut self.shards[(key >> (u64::BITS - SHARD_BITS)) as usize];
        if shard.len() == shard.capacity() {
            *shard = in_order(std::mem::take(shard));
            shard.reserve_exact(GROWTH_MIN.max(shard.len() / 8));
        }
        shard.push(value);
    }
}

/// A list in order, with each value once.
fn in_order<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    // Not unstable: this one uses that most of it is in order.
    list.sort();
    list.dedup();
    list
}

impl<T> Default for Shards<T> {
    fn default() -> Self {
        Shards {
            shards: Vec::new(),
            last: None,
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
            hosts.insert(host, domain);
            model.insert((host, domain));
        }
        let len = hosts.len_max();
        let twice = model.len() / 8 + ((2 * GROWTH_MIN) << SHARD_BITS);
        assert!((model.len()..=model.len() + twice).contains(&len), "{len}");
        let sorted = |mut pairs: Vec<(u64, u64)>| {
            pairs.sort_unstable();
            pairs
        };
        let model: Vec<(u64, u64)> = model.into_iter().collect();
        assert_eq!(sorted(hosts.iter().collect()), model);
        assert_eq!(sorted(hosts.into_pairs().collect()), model);
    }

    #[test]
    fn a_host_takes_at_most_10_bytes_however_often_it_is_added() {
        const HOSTS: usize = 1_000_000;
        let mut rng = Rng::from_seed(6);
        let mut hosts = SeedHosts::default();
        let all: Vec<u64> = (0..HOSTS).map(|_| rng.next_u64()).collect();
        for host in all.iter().chain(&all) {
            hosts.insert(*host, *host);
        }
        let shards = hosts.domains.shards.iter();
        let bytes: usize = shards
            .map(|shard| size_of_val(shard) + 8 * shard.capacity())
            .sum();
        assert!(bytes <= 10 * HOSTS, "{bytes}");
    }
}
