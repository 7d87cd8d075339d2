//! What scopes without an account wait for, in sum: there may be millions, with no room for more than a cause in each.

use super::super::cause::WaitCause;
use super::super::scope::NO_INDEX;
use crate::base::time::Instant;

/// The present wait of a scope without an account, as it is kept in place of the number of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenWait {
    /// None.
    No,
    /// For this cause.
    For(WaitCause),
    /// A lane is parked: for the global cap, until it is not.
    Parked,
}

/// Sums of the waits of such scopes. Each moment counts for the cause at that time.
#[derive(Debug, Default)]
pub(super) struct OpenWaits {
    /// Number of scopes that wait for each cause.
    open: [u64; CAUSES],
    /// By cause, in nanoseconds: the ends of waits without their beginnings, the open ones included.
    sums: [i128; CAUSES],
}

const CAUSES: usize = WaitCause::ALL.len();

/// Numbers from this one on are of no row.
const FIRST: u32 = NO_INDEX - 1 - CAUSES as u32;

impl OpenWait {
    /// From the number of a row; `None`: it is one.
    pub fn of_row(row: u32) -> Option<Self> {
        match NO_INDEX - row {
            0 => Some(OpenWait::No),
            1 => Some(OpenWait::Parked),
            _ if row < FIRST => None,
            code => Some(OpenWait::For(WaitCause::ALL[code as usize - 2])),
        }
    }

    /// What stands in place of the number of a row.
    pub fn to_row(self) -> u32 {
        match self {
            OpenWait::No => NO_INDEX,
            OpenWait::Parked => NO_INDEX - 1,
            OpenWait::For(cause) => NO_INDEX - 2 - cause as u32,
        }
    }

    /// Its cause.
    pub fn cause(self) -> Option<WaitCause> {
        match self {
            OpenWait::No => None,
            OpenWait::Parked => Some(WaitCause::GlobalCap),
            OpenWait::For(cause) => Some(cause),
        }
    }
}

impl OpenWaits {
    /// A scope waits otherwise from now on.
    pub fn change(&mut self, from: OpenWait, to: OpenWait, now: Instant) {
        if from.cause() == to.cause() {
            return;
        }
        let at = i128::from(now.as_nanos());
        if let Some(cause) = from.cause() {
            self.open[cause as usize] -= 1;
            self.sums[cause as usize] += at;
        }
        if let Some(cause) = to.cause() {
            self.open[cause as usize] += 1;
            self.sums[cause as usize] -= at;
        }
    }

    /// A scope has waited for this long beside.
    pub fn add(&mut self, cause: WaitCause, nanos: u64) {
        self.sums[cause as usize] += i128::from(nanos);
    }

    /// Nanoseconds until `now`.
    pub fn total(&self, cause: WaitCause, now: Instant) -> u128 {
        let open = i128::from(self.open[cause as usize]) * i128::from(now.as_nanos());
        u128::try_from(self.sums[cause as usize] + open).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waits_are_summed_by_their_present_causes() {
        let at = |seconds| Instant::START + Duration::from_secs(seconds);
        let mut waits = OpenWaits::default();
        let delay = OpenWait::For(WaitCause::Delay);
        let total = |waits: &OpenWaits, cause| waits.total(cause, at(100)) / 1_000_000_000;
        waits.change(OpenWait::No, delay, at(10));
        waits.change(OpenWait::No, delay, at(20));
        assert_eq!(total(&waits, WaitCause::Delay), 90 + 80);
        waits.change(delay, OpenWait::Parked, at(30));
        waits.change(
            OpenWait::Parked,
            OpenWait::For(WaitCause::GlobalCap),
            at(35),
        );
        waits.change(OpenWait::For(WaitCause::GlobalCap), OpenWait::No, at(40));
        waits.add(WaitCause::Hold, 3_000_000_000);
        assert_eq!(total(&waits, WaitCause::Delay), 20 + 80);
        assert_eq!(total(&waits, WaitCause::GlobalCap), 10);
        assert_eq!(total(&waits, WaitCause::Hold), 3);
    }

    #[test]
    fn waits_have_numbers_beyond_those_of_rows() {
        let waits = WaitCause::ALL.map(OpenWait::For).into_iter();
        for wait in waits.chain([OpenWait::No, OpenWait::Parked]) {
            assert_eq!(OpenWait::of_row(wait.to_row()), Some(wait));
        }
        assert_eq!(OpenWait::of_row(0), None);
        assert_eq!(OpenWait::of_row(FIRST - 1), None);
    }
}
