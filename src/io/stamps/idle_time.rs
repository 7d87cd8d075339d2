//! Idle time: whether the loop has time for extra system calls.

use std::time::Duration;

use crate::base::time::Instant;

/// Time in excess of what reading and sending take: the loop slept or did other work.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct IdleTime {
    /// Up to the present turn. At most [`IDLE_MAX`].
    before: Duration,
    /// When the present turn began.
    since: Instant,
    /// Time allowed for the events at its start.
    allowed: Duration,
}

impl IdleTime {
    pub(in crate::io) fn start() -> Self {
        IdleTime {
            before: Duration::ZERO,
            since: Instant::START,
            allowed: Duration::ZERO,
        }
    }

    /// Whether there is time for extra system calls: in a loop that sleeps now and then, or does more
    /// than read and send. Where there is always something to do each microsecond counts.
    pub(in crate::io) fn is_available(self, now: Instant) -> bool {
        !self.up_to(now).is_zero()
    }

    /// When the present turn began.
    pub(in crate::io) fn since(self) -> Instant {
        self.since
    }

    fn up_to(self, now: Instant) -> Duration {
        let passed = self.before + now.saturating_since(self.since);
        passed.saturating_sub(self.allowed).min(IDLE_MAX)
    }

    /// A turn begins with so many events.
    pub(in crate::io) fn begin_turn(&mut self, now: Instant, events: usize) {
        *self = IdleTime {
            before: self.up_to(now),
            since: now,
            allowed: PER_EVENT * u32::try_from(events).unwrap_or(u32::MAX),
        };
    }
}

/// A loop with no more time than this per event is in a hurry. Looking closely takes three microseconds.
const PER_EVENT: Duration = Duration::from_micros(200);

/// Idle time that is remembered: twice what the events of one turn may take. It is used up after some
/// hundred events.
const IDLE_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_only_reads_and_sends_has_no_idle_time() {
        let micros = |micros: u64| Instant::from_nanos(micros * 1000);
        let mut idle_time = IdleTime::start();
        let has = |idle_time: IdleTime, at| idle_time.is_available(micros(at));
        // Ten events in four hundred microseconds, again and again.
        for turn in 0..10 {
            idle_time.begin_turn(micros(400 * turn), 10);
            assert!(!has(idle_time, 400 * turn + 400));
        }
        // Handling the page of one of them takes longer.
        assert!(!has(idle_time, 3600 + 2000));
        assert!(has(idle_time, 3600 + 2001));
        idle_time.begin_turn(micros(53_600), 10);
        assert!(has(idle_time, 53_600));
        // It is used up after some hundred events.
        for turn in 1..40 {
            idle_time.begin_turn(micros(53_600 + 400 * turn), 10);
        }
        assert!(!has(idle_time, 53_600 + 400 * 40));
        // Sleep is idle time as well, however many events end it, and is used up likewise.
        let woken = 10_000_000;
        idle_time.begin_turn(micros(woken), 256);
        assert!(has(idle_time, woken));
        for turn in 1..40 {
            idle_time.begin_turn(micros(woken + 400 * turn), 10);
        }
        assert!(!has(idle_time, woken + 400 * 40));
    }
}
