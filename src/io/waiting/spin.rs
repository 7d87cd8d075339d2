//! The tail of a wait, which can be polled through instead of slept through.

use std::time::Duration;

use crate::base::time::Instant;

/// How long before its deadline a wait stops sleeping.
///
/// A sleep ends some ten microseconds after its deadline, at times a millisecond. Polling through the
/// tail ends a fraction of a microsecond late, at the cost of a busy core.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct Spin(pub(in crate::io) Duration);

impl Spin {
    /// When the tail before `until` begins: the deadline of the sleep.
    pub(in crate::io) fn tail(self, until: Option<Instant>) -> Option<Instant> {
        match until {
            Some(Instant::FAR_FUTURE) | None => until,
            Some(until) => Some(until - self.0),
        }
    }

    /// Polls until something is found or the deadline has passed. Returns whether something was found.
    ///
    /// `look` returns whether it found something, and when it looked.
    pub(in crate::io) fn poll_until(
        until: Instant,
        mut look: impl FnMut() -> (bool, Instant),
    ) -> bool {
        loop {
            let (found, now) = look();
            if found || now >= until {
                return found;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_sleep_ends_where_the_tail_begins() {
        let spin = Spin(Duration::from_nanos(200));
        assert_eq!(spin.tail(Some(at(1_000))), Some(at(800)));
        assert_eq!(spin.tail(Some(at(100))), Some(Instant::START));
        assert_eq!(spin.tail(None), None);
        let never = Some(Instant::FAR_FUTURE);
        assert_eq!(spin.tail(never), never, "there is no tail before never");
        let asleep = Spin(Duration::ZERO);
        assert_eq!(asleep.tail(Some(at(1_000))), Some(at(1_000)));
    }

    #[test]
    fn a_tail_ends_at_the_deadline_and_not_before() {
        let check = |began: u64, step: u64, ended: u64| {
            let mut now = began;
            let found = Spin::poll_until(at(1_000), || {
                now += step;
                (false, at(now))
            });
            assert_eq!((found, now), (false, ended));
        };
        check(990, 1, 1_000);
        // There is always one poll; a slow one can exceed the deadline.
        check(990, 70, 1_060);
        check(5_000, 1, 5_001);
    }

    #[test]
    fn a_tail_ends_with_the_first_event() {
        let mut looks = 0;
        let found = Spin::poll_until(at(1_000), || {
            looks += 1;
            (looks == 3, at(looks))
        });
        assert!(found);
        assert_eq!(looks, 3);
    }
}
