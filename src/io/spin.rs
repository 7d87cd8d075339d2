//! The tail of a wait, which may be looked through instead of slept through.

use std::time::Duration;

use crate::base::time::Instant;

/// How long before its deadline a wait stops sleeping.
///
/// A sleep ends some ten microseconds after its deadline, now and then a millisecond. Who stays
/// awake for the tail is a fraction of a microsecond late, and pays with a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin(pub(super) Duration);

impl Spin {
    /// When the tail before `until` begins, which is when a sleep should end.
    pub(super) fn tail(self, until: Option<Instant>) -> Option<Instant> {
        match until {
            Some(Instant::FAR_FUTURE) | None => until,
            Some(until) => Some(until - self.0),
        }
    }

    /// Looks through the tail until there is news, or until the deadline. Whether there was news.
    ///
    /// `look` says whether there is any, and when it looked.
    pub(super) fn look_until(until: Instant, mut look: impl FnMut() -> (bool, Instant)) -> bool {
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
            let found = Spin::look_until(at(1_000), || {
                now += step;
                (false, at(now))
            });
            assert_eq!((found, now), (false, ended));
        };
        check(990, 1, 1_000);
        // A look that takes long is the last all the same, and there is always one.
        check(990, 70, 1_060);
        check(5_000, 1, 5_001);
    }

    #[test]
    fn a_tail_ends_with_the_first_news() {
        let mut looks = 0;
        let found = Spin::look_until(at(1_000), || {
            looks += 1;
            (looks == 3, at(looks))
        });
        assert!(found);
        assert_eq!(looks, 3);
    }
}
