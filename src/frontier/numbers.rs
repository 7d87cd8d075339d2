//! Numbers of attempts: a counter shared by all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counter of attempts.
///
/// A number has 48 bits: 8 for the shard of the crawl above 40 that count from 1. So numbers of shards
/// are distinct, and each is exact in a JSON number (below 2⁵³).
#[derive(Clone, Debug)]
pub struct Numbers(Arc<AtomicU64>);

/// Bits of the count: 10¹² attempts, three years at 10,000 a second.
const COUNT_BITS: u32 = 40;
/// The last count of a shard.
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

impl Numbers {
    /// Counter of a shard; an undivided crawl is shard 0.
    pub fn of_shard(shard: u8) -> Self {
        Numbers(Arc::new(AtomicU64::new(u64::from(shard) << COUNT_BITS)))
    }

    /// Returns the next number, which no other call returns.
    ///
    /// Panics after 2⁴⁰ numbers.
    pub fn next(&self) -> u64 {
        let next = |last: u64| (last & COUNT_MAX != COUNT_MAX).then_some(last + 1);
        // The counter stays where it is when it is exhausted: each further call panics, too.
        let last = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.expect("a shard makes fewer than 2^40 attempts") + 1
    }

    /// Continues from `next` on, the next number of an earlier run.
    pub fn continue_from(&self, next: u64) {
        self.0.fetch_max(next - 1, Ordering::Relaxed);
    }

    /// The last number returned; one below the first if there was none.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers::of_shard(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_shards_are_distinct_and_exact_in_json() {
        let first = |shard| Numbers::of_shard(shard).next();
        assert_eq!(first(0), 1);
        assert_eq!(Numbers::default().last(), 0);
        let last_of_first = (1_u64 << COUNT_BITS) - 1;
        assert!(first(1) > last_of_first);
        assert!((first(255) | last_of_first) < 1 << 53);
        assert_eq!((first(255) as f64) as u64, first(255));
    }

    #[test]
    fn an_exhausted_shard_panics_at_each_call_and_returns_no_number_of_the_next() {
        let numbers = Numbers(Arc::new(AtomicU64::new(COUNT_MAX - 1)));
        assert_eq!(numbers.next(), COUNT_MAX);
        for _ in 0..2 {
            let exhausted = std::panic::catch_unwind(|| numbers.next());
            let text = exhausted.expect_err("there is no number left");
            let text = text.downcast::<String>().expect("a message");
            assert!(text.contains("fewer than 2^40"), "{text}");
            assert_eq!(numbers.last(), COUNT_MAX);
        }
    }
}
