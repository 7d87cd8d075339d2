//! How closely the moment is known at which something left.
//!
//! The clock is read just before the system call that sends. If others are given the processor
//! between the two, what is sent leaves later than that: nothing shows it but the time that the
//! system call seemed to take, and the scheduler's account of how long our thread had to wait.

use std::time::Duration;

use super::delay::RunDelay;
use super::stamps::{EXACT, PROMPT};
use crate::base::time::Instant;

/// Watches over departures.
#[derive(Debug)]
pub(super) struct Departures {
    delay: RunDelay,
    /// When the account was looked at last.
    looked_at: Instant,
}

impl Departures {
    pub(super) fn start() -> Self {
        Departures {
            delay: RunDelay::start(),
            looked_at: Instant::START,
        }
    }

    /// Some are about to leave. What our thread waited before does not matter to them; it is looked
    /// up often enough to be told from what it waits from now on, and no more often.
    pub(super) fn begin(&mut self, now: Instant) {
        if now.saturating_since(self.looked_at) > ACCOUNT_AGE {
            self.waited(now);
        }
    }

    /// How much later than `before` something may have left that a system call sent between the two.
    pub(super) fn slack(&mut self, before: Instant, after: Instant) -> Duration {
        let took = after.saturating_since(before);
        if took <= PROMPT {
            return Duration::ZERO;
        }
        slack_of(took, self.waited(after))
    }

    fn waited(&mut self, now: Instant) -> Option<Duration> {
        self.looked_at = now;
        self.delay.since_last()
    }
}

/// A system call took so long, and in that time, or in more, the thread waited so long; `None` where
/// nobody knows.
fn slack_of(took: Duration, waited: Option<Duration>) -> Duration {
    match waited {
        Some(waited) if waited <= EXACT => Duration::ZERO,
        Some(waited) => waited.min(took),
        None => took,
    }
}

/// The account is a file to be read, which takes a microsecond or two.
const ACCOUNT_AGE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departure_is_as_doubtful_as_our_thread_was_kept_from_it() {
        let check = |took, waited: Option<u64>, slack| {
            let micros = Duration::from_micros;
            assert_eq!(slack_of(micros(took), waited.map(micros)), micros(slack));
        };
        check(60, Some(0), 0);
        check(60, Some(25), 0);
        check(60, Some(26), 26);
        // The rest of it was before.
        check(60, Some(4000), 60);
        check(60, None, 60);
    }

    #[test]
    fn a_quick_system_call_needs_no_account() {
        let mut departures = Departures::start();
        let before = Instant::from_nanos(1_000_000);
        assert_eq!(departures.slack(before, before + PROMPT), Duration::ZERO);
        assert_eq!(departures.looked_at, Instant::START);
        departures.slack(before, before + PROMPT * 2);
        assert_eq!(departures.looked_at, before + PROMPT * 2);
        departures.begin(before + PROMPT * 2 + ACCOUNT_AGE);
        assert_eq!(departures.looked_at, before + PROMPT * 2);
        let later = before + ACCOUNT_AGE * 2;
        departures.begin(later);
        assert_eq!(departures.looked_at, later);
    }
}
