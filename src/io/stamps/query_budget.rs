//! A budget for querying the kernel about stamps that may be off.

use std::time::Duration;

use crate::base::time::Instant;

/// One hundredth of the time.
///
/// A loop that mostly sleeps, or is held up by its handlers, can query about every stamp in doubt. One
/// that does nothing but read and send would lose a tenth of its speed, so it queries about some.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct QueryBudget {
    left: Duration,
    /// Until when the budget was refilled.
    counted: Instant,
}

impl QueryBudget {
    pub(in crate::io) fn new() -> Self {
        QueryBudget {
            left: BUDGET_MAX,
            counted: Instant::START,
        }
    }

    /// Refills the budget for the time that has passed.
    pub(in crate::io) fn refill(&mut self, now: Instant) {
        let earned = now.saturating_since(self.counted) / SHARE;
        self.left = (self.left + earned).min(BUDGET_MAX);
        self.counted = self.counted.max(now);
    }

    /// Takes the cost of one query; false if the budget is spent.
    pub(in crate::io) fn try_spend(&mut self) -> bool {
        match self.left.checked_sub(QUERY) {
            Some(left) => self.left = left,
            None => return false,
        }
        true
    }
}

/// One part in so many of the time.
const SHARE: u32 = 100;

/// Cost of a query: a system call that does not sleep.
const QUERY: Duration = Duration::from_nanos(400);

/// Bound of the budget: enough for all sockets in flight where each stall finds hundreds of them.
const BUDGET_MAX: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn spend_all(query_budget: &mut QueryBudget) -> u32 {
        (0..100_000)
            .take_while(|_| query_budget.try_spend())
            .count() as u32
    }

    #[test]
    fn queries_take_a_hundredth_of_the_time() {
        let mut query_budget = QueryBudget::new();
        spend_all(&mut query_budget);
        let mut now = Instant::START;
        let mut queries = 0;
        for _ in 0..10_000 {
            now += Duration::from_micros(10);
            query_budget.refill(now);
            queries += spend_all(&mut query_budget);
        }
        assert_eq!(queries, 2500, "one millisecond of a tenth of a second");
    }

    #[test]
    fn a_stall_refills_the_budget_for_all_that_it_delayed() {
        let mut query_budget = QueryBudget::new();
        spend_all(&mut query_budget);
        query_budget.refill(Instant::START + Duration::from_millis(50));
        assert_eq!(spend_all(&mut query_budget), 1250);
        query_budget.refill(Instant::START + Duration::from_secs(3600));
        assert_eq!(
            spend_all(&mut query_budget),
            5000,
            "the bound of the budget"
        );
    }
}
