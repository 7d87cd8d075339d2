//! Whether a loop has the time to look closely.

use std::time::Duration;

use crate::base::time::Instant;

/// How much more time has passed than a loop takes that only reads and sends: asleep, or busy with
/// other things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leisure {
    /// Up to the present turn. At most [`LEISURE_MAX`].
    before: Duration,
    /// When the present turn began.
    since: Instant,
    /// What the news that it began with may take.
    allowed: Duration,
}

impl Leisure {
    pub(super) fn start() -> Self {
        Leisure {
            before: Duration::ZERO,
            since: Instant::START,
            allowed: Duration::ZERO,
        }
    }

    /// Whether there is time to look closely: a loop that is asleep now and then has it, and one that
    /// does more than to read and send. Where there is always something to do each microsecond counts.
    pub(super) fn is_there(self, now: Instant) -> bool {
        !self.up_to(now).is_zero()
    }

    /// When the present turn began.
    pub(super) fn since(self) -> Instant {
        self.since
    }

    fn up_to(self, now: Instant) -> Duration {
        let passed = self.before + now.saturating_since(self.since);
        passed.saturating_sub(self.allowed).min(LEISURE_MAX)
    }

    /// A turn begins with so much news.
    pub(super) fn begin_turn(&mut self, now: Instant, news: usize) {
        *self = Leisure {
            before: self.up_to(now),
            since: now,
            allowed: HURRIED * u32::try_from(news).unwrap_or(u32::MAX),
        };
    }
}

/// A loop to which each piece of news leaves no more than this is in a hurry. To look closely takes
/// three microseconds.
const HURRIED: Duration = Duration::from_micros(200);

/// So much leisure is remembered: twice what the news of one turn may take. Some hundred pieces of
/// news later a loop is taken for one that has none.
const LEISURE_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_only_reads_and_sends_has_no_leisure() {
        let micros = |micros: u64| Instant::from_nanos(micros * 1000);
        let mut leisure = Leisure::start();
        let has = |leisure: Leisure, at| leisure.is_there(micros(at));
        // Ten pieces of news in four hundred microseconds, again and again.
        for turn in 0..10 {
            leisure.begin_turn(micros(400 * turn), 10);
            assert!(!has(leisure, 400 * turn + 400));
        }
        // The page of one of them keeps us busy.
        assert!(!has(leisure, 3600 + 2000));
        assert!(has(leisure, 3600 + 2001));
        leisure.begin_turn(micros(53_600), 10);
        assert!(has(leisure, 53_600));
        // It is forgotten after some hundred pieces of news.
        for turn in 1..40 {
            leisure.begin_turn(micros(53_600 + 400 * turn), 10);
        }
        assert!(!has(leisure, 53_600 + 400 * 40));
        // Sleep is leisure, too, however much news ends it, and is not remembered for good.
        let woken = 10_000_000;
        leisure.begin_turn(micros(woken), 256);
        assert!(has(leisure, woken));
        for turn in 1..40 {
            leisure.begin_turn(micros(woken + 400 * turn), 10);
        }
        assert!(!has(leisure, woken + 400 * 40));
    }
}
