//! A rate of bytes that is not exceeded on average.

use std::time::Duration;

use crate::base::time::Instant;

/// A token bucket of bytes. It is a moment: until `paid_at` the bytes so far take the whole rate (the generic cell rate
/// algorithm).
#[derive(Clone, Copy, Debug)]
pub struct ByteRate {
    per_second: u64,
    paid_at: Instant,
    /// Bytes that were not used in so much time may be used later.
    unspent_max: Duration,
}

impl ByteRate {
    /// So many bytes per second, at least 1, of which none was used. What was not used in `unspent_max` may be used
    /// later.
    pub fn new(per_second: u64, unspent_max: Duration) -> Self {
        ByteRate {
            per_second,
            paid_at: Instant::START,
            unspent_max,
        }
    }

    /// The rate.
    pub fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Bytes were used.
    pub fn count(&mut self, bytes: u64, now: Instant) {
        let unspent = Instant::START + now.saturating_since(Instant::START + self.unspent_max);
        self.paid_at = self.paid_at.max(unspent) + self.time_of(bytes as f64);
    }

    /// When the bytes so far are within the rate.
    pub fn paid_at(&self) -> Instant {
        self.paid_at
    }

    /// The time that bytes take at the rate.
    pub fn time_of(&self, bytes: f64) -> Duration {
        let seconds = bytes / self.per_second as f64;
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST);
        time.min(LONGEST)
    }

    /// Changes the rate. What was used beyond the earlier one is forgotten.
    pub fn restart(&mut self, per_second: u64, now: Instant) {
        (self.per_second, self.paid_at) = (per_second, now);
    }

    /// What is unpaid under an earlier rate takes as much longer or shorter as the rates differ.
    pub fn inherit(&mut self, old: ByteRate, now: Instant) {
        let unpaid = old.paid_at.saturating_since(now).as_secs_f64();
        self.paid_at = now + self.time_of(unpaid * old.per_second as f64);
    }
}

/// Times are on a clock that does not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn bytes_are_paid_by_time_at_the_present_rate() {
        let rate_of = |per_second| ByteRate::new(per_second, Duration::from_secs(1));
        let mut rate = rate_of(1000);
        rate.count(1500, at(10_000));
        assert_eq!(rate.paid_at(), at(10_500), "a second was unspent");
        rate.count(500, at(10_100));
        assert_eq!(rate.paid_at(), at(11_000));
        let mut faster = rate_of(2000);
        faster.inherit(rate, at(10_200));
        assert_eq!(faster.paid_at(), at(10_600));
        faster.count(u64::MAX, at(20_000));
        faster.count(u64::MAX, at(20_000));
        assert!(faster.paid_at() > at(1 << 40), "it does not overflow");
    }
}
