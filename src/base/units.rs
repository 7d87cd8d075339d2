//! Budgets for work in bounded steps.

/// The remaining units of work in a step.
///
/// Work is counted instead of timed, so that a crawl in virtual time is reproducible. A unit is
/// about the time to read one byte of HTML, a few nanoseconds. The last item of a step may exceed
/// the budget; an item's cost is bounded.
#[derive(Debug)]
pub(crate) struct Units {
    left: u64,
    /// Includes units beyond the budget.
    spent: u64,
}

impl Units {
    /// A budget of `units`.
    pub fn new(units: u64) -> Self {
        Units {
            left: units,
            spent: 0,
        }
    }

    /// A budget that is never used up.
    pub fn unbounded() -> Self {
        Units::new(u64::MAX)
    }

    /// Records this much work.
    pub fn spend(&mut self, units: usize) {
        self.left = self.left.saturating_sub(units as u64);
        self.spent = self.spent.saturating_add(units as u64);
    }

    /// Returns whether the budget is used up, so that the step ends.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Remaining units.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Units spent, including those beyond the budget.
    #[cfg(test)]
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Takes up to `most` units out, for one of several users of the budget.
    pub fn take(&mut self, most: u64) -> Units {
        let taken = self.left.min(most);
        self.left -= taken;
        Units::new(taken)
    }

    /// Puts back the units that a user of the budget has not spent.
    pub fn put_back(&mut self, unused: &Units) {
        self.left = self.left.saturating_add(unused.left);
        self.spent = self.spent.saturating_add(unused.spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_spent_and_shared_and_never_negative() {
        let mut units = Units::new(100);
        units.spend(30);
        let mut part = units.take(50);
        assert_eq!((units.left(), part.left()), (20, 50));
        part.spend(10);
        units.put_back(&part);
        assert_eq!((units.left(), units.spent()), (60, 40));
        assert_eq!(units.take(1000).left(), 60);
        assert!(units.is_spent());
        units.spend(1);
        assert!(units.is_spent());
        let mut all = Units::unbounded();
        all.spend(usize::MAX - 1);
        assert!(!all.is_spent());
    }
}
