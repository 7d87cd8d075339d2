//! How much of the time may go into asking the kernel for more about its stamps.

use std::time::Duration;

use crate::base::time::Instant;

/// What is left of a hundredth of the time.
///
/// A loop that sleeps most of the time, or one that is held up by what it is told to do, can ask
/// about every stamp that is in doubt. One that does nothing but read and send would lose a tenth of
/// its speed by that: it asks about some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    left: Duration,
    /// Until when time has been counted.
    counted: Instant,
}

impl Allowance {
    pub(super) fn new() -> Self {
        Allowance {
            left: MOST,
            counted: Instant::START,
        }
    }

    /// It has become this late.
    pub(super) fn earn(&mut self, now: Instant) {
        let earned = now.saturating_since(self.counted) / SHARE;
        self.left = (self.left + earned).min(MOST);
        self.counted = self.counted.max(now);
    }

    /// Whether one more question may be asked; if so, it counts as asked.
    pub(super) fn spend(&mut self) -> bool {
        match self.left.checked_sub(QUESTION) {
            Some(left) => self.left = left,
            None => return false,
        }
        true
    }
}

/// One part in so many of the time.
const SHARE: u32 = 100;

/// What a question costs: a system call that does not sleep.
const QUESTION: Duration = Duration::from_nanos(400);

/// What can be put by: enough for all who are in flight where each stall finds hundreds of them.
const MOST: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn spend_all(allowance: &mut Allowance) -> u32 {
        (0..100_000).take_while(|_| allowance.spend()).count() as u32
    }

    #[test]
    fn questions_take_a_hundredth_of_the_time() {
        let mut allowance = Allowance::new();
        spend_all(&mut allowance);
        let mut now = Instant::START;
        let mut asked = 0;
        for _ in 0..10_000 {
            now += Duration::from_micros(10);
            allowance.earn(now);
            asked += spend_all(&mut allowance);
        }
        assert_eq!(asked, 2500, "of a tenth of a second one millisecond");
    }

    #[test]
    fn a_stall_pays_for_questions_about_all_that_it_held_up() {
        let mut allowance = Allowance::new();
        spend_all(&mut allowance);
        allowance.earn(Instant::START + Duration::from_millis(50));
        assert_eq!(spend_all(&mut allowance), 1250);
        allowance.earn(Instant::START + Duration::from_secs(3600));
        assert_eq!(
            spend_all(&mut allowance),
            5000,
            "no more than can be put by"
        );
    }
}
