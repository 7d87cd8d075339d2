//! `bytes_per_second` of a scope: its next request waits until the bytes received before are within the rate.

use std::time::Duration;

use crate::base::time::Instant;

/// A token bucket of received bytes: until `paid_at` those so far take the whole rate. What was not received in the last
/// second may be later: a reply takes a while, and its bytes are counted at its end.
#[derive(Clone, Copy, Debug)]
pub struct ByteRate {
    per_second: u64,
    paid_at: Instant,
}

impl ByteRate {
    /// So many bytes per second, at least 1; none was received.
    pub fn new(per_second: u64) -> Self {
        ByteRate {
            per_second,
            paid_at: Instant::START,
        }
    }

    /// Bytes were received.
    pub fn count(&mut self, bytes: u64, now: Instant) {
        let unspent = Instant::START + now.saturating_since(Instant::START + UNSPENT_MAX);
        self.paid_at = self.paid_at.max(unspent) + self.time_of(bytes as f64);
    }

    /// The time that bytes take at the rate.
    fn time_of(&self, bytes: f64) -> Duration {
        let seconds = bytes / self.per_second as f64;
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST);
        time.min(LONGEST)
    }

    /// When the bytes so far are within the rate.
    pub fn paid_at(&self) -> Instant {
        self.paid_at
    }

    /// What is unpaid under an earlier rate takes as much longer or shorter as the rates differ.
    pub fn inherit(&mut self, old: ByteRate, now: Instant) {
        let unpaid = old.paid_at.saturating_since(now).as_secs_f64();
        self.paid_at = now + self.time_of(unpaid * old.per_second as f64);
    }
}

/// The time in which what was not received may be received later.
const UNSPENT_MAX: Duration = Duration::from_secs(1);

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
        let mut rate = ByteRate::new(1000);
        rate.count(1500, at(10_000));
        assert_eq!(rate.paid_at(), at(10_500), "a second was unspent");
        rate.count(500, at(10_100));
        assert_eq!(rate.paid_at(), at(11_000));
        let mut faster = ByteRate::new(2000);
        faster.inherit(rate, at(10_200));
        assert_eq!(faster.paid_at(), at(10_600));
        faster.count(u64::MAX, at(20_000));
        faster.count(u64::MAX, at(20_000));
        assert!(faster.paid_at() > at(1 << 40), "it does not overflow");
    }
}
