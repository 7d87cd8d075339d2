//! Work in bounded steps: how much of it may still be done before others have their turn.

/// Units of work that are left in a step.
///
/// Work is counted, not timed, so that a crawl in virtual time is the same crawl again. A unit is about
/// the time that reading one octet of HTML takes, a few nanoseconds. The last item of a step may cost
/// more than what is left; an item's cost is bounded.
#[derive(Debug)]
pub(crate) struct Units {
    left: u64,
    /// Also what was more than was left.
    spent: u64,
}

impl Units {
    /// So many.
    pub fn new(units: u64) -> Self {
        Units {
            left: units,
            spent: 0,
        }
    }

    /// More than any work takes.
    pub fn unbounded() -> Self {
        Units::new(u64::MAX)
    }

    /// This much was done.
    pub fn spend(&mut self, units: usize) {
        self.left = self.left.saturating_sub(units as u64);
        self.spent = self.spent.saturating_add(units as u64);
    }

    /// Whether nothing is left, so that the step ends.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// How many were spent, also beyond those that there were.
    #[cfg(test)]
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Takes out as many as these, or all, for one of several that share them.
    pub fn take(&mut self, most: u64) -> Units {
        let taken = self.left.min(most);
        self.left -= taken;
        Units::new(taken)
    }

    /// Puts back what one of several has not used.
    pub fn put_back(&mut self, unused: &Units) {
        self.left = self.left.saturating_add(unused.left);
        self.spent = self.spent.saturating_add(unused.spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_spent_and_shared_and_never_fewer_than_none() {
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
