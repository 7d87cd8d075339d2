//! Bounds loops that should end by themselves.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of loops that were cut so far, in all crawls of this process.
static CUT: AtomicU64 = AtomicU64::new(0);

/// Counts the steps of one run of a loop. A loop with more steps than its input can explain is
/// spinning: tests fail on it; release builds log it and leave the loop, so that signals, timers
/// and other hosts are still served.
#[derive(Debug)]
pub struct Bound {
    what: &'static str,
    most: usize,
    steps: usize,
}

impl Bound {
    /// Permits at most `most` steps. `what` is a verb phrase for the report: what the loop does.
    pub fn new(what: &'static str, most: usize) -> Self {
        Bound {
            what,
            most,
            steps: 0,
        }
    }

    /// Counts a step. Returns whether it is permitted.
    #[must_use]
    pub fn step(&mut self) -> bool {
        self.steps += 1;
        if self.steps <= self.most {
            return true;
        }
        debug_assert!(false, "to {} takes at most {} steps", self.what, self.most);
        let before = CUT.fetch_add(1, Ordering::Relaxed);
        // A spinning loop is cut in every turn, so it is logged at powers of two only.
        if before == 0 || (before + 1).is_power_of_two() {
            log::error!(
                "to {} took more than {} steps and was cut short ({} times so far): this is a fault in \
                 argiope, please report it with the settings of this crawl",
                self.what,
                self.most,
                before + 1
            );
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_permits_its_number_of_steps() {
        let mut bound = Bound::new("count", 3);
        assert!(bound.step() && bound.step() && bound.step());
    }

    #[test]
    #[should_panic(expected = "to count takes at most 1 steps")]
    fn one_step_more_panics_in_tests() {
        let mut bound = Bound::new("count", 1);
        while bound.step() {}
    }
}
