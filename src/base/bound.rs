//! A bound on a loop that ends by itself, unless we are wrong.

use std::sync::atomic::{AtomicU64, Ordering};

/// Loops that were cut short so far, in all crawls of this process.
static CUT: AtomicU64 = AtomicU64::new(0);

/// Counts the steps of one run of a loop. A loop that has more of them than its input can account for
/// spins: tests fail on it, release builds report it and go on behind it, so that signals, timers and
/// other hosts have their turn.
#[derive(Debug)]
pub struct Bound {
    what: &'static str,
    most: usize,
    steps: usize,
}

impl Bound {
    /// At most so many steps. `what` is for the report: what the loop does, as a verb.
    pub fn new(what: &'static str, most: usize) -> Self {
        Bound {
            what,
            most,
            steps: 0,
        }
    }

    /// One step more. Whether it may be made.
    #[must_use]
    pub fn step(&mut self) -> bool {
        self.steps += 1;
        if self.steps <= self.most {
            return true;
        }
        debug_assert!(false, "to {} takes at most {} steps", self.what, self.most);
        let before = CUT.fetch_add(1, Ordering::Relaxed);
        // A loop that spins is cut in every turn.
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
    fn as_many_steps_as_it_says_may_be_made() {
        let mut bound = Bound::new("count", 3);
        assert!(bound.step() && bound.step() && bound.step());
    }

    #[test]
    #[should_panic(expected = "to count takes at most 1 steps")]
    fn one_more_fails_a_test() {
        let mut bound = Bound::new("count", 1);
        while bound.step() {}
    }
}
