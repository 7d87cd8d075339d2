//! The moment of an arrival, and how precisely it is known.

use std::time::Duration;

use super::time::Instant;

/// When something arrived: exactly at `at`, or at `at` or up to `slack` before it.
///
/// It is exact only if the kernel stamped these very bytes. Everything else is a bound: a stamp of our
/// own, taken when we noticed, and a kernel's stamp that may belong to a later segment. Latencies that
/// end with a bound are upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The moment.
    pub at: Instant,
    /// Which clock.
    pub clock: Clock,
    /// It may have arrived as much earlier. Zero if the stamp is exact.
    pub slack: Duration,
}

impl Stamp {
    /// A stamp by the kernel that belongs to these very bytes.
    pub const fn exact(at: Instant) -> Self {
        Stamp {
            at,
            clock: Clock::Kernel,
            slack: Duration::ZERO,
        }
    }

    /// Whether it arrived at this moment or before: an upper bound. All our own stamps are.
    pub fn is_bound(&self) -> bool {
        !self.is_kernels() || !self.slack.is_zero()
    }

    /// Whether the kernel made it.
    pub fn is_kernels(&self) -> bool {
        self.clock == Clock::Kernel
    }
}

/// The clock of a stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// The kernel's, as the bytes arrived (`SO_TIMESTAMPING`).
    Kernel,
    /// Ours, when we noticed.
    #[default]
    User,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernels_stamp_without_slack_is_exact() {
        let at = Instant::from_nanos(7);
        let check = |clock, slack, is_bound| {
            let slack = Duration::from_nanos(slack);
            assert_eq!(Stamp { at, clock, slack }.is_bound(), is_bound);
        };
        check(Clock::Kernel, 0, false);
        check(Clock::Kernel, 1, true);
        check(Clock::User, 0, true);
        check(Clock::User, 1, true);
        assert!(!Stamp::exact(at).is_bound());
    }
}
