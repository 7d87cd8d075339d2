//! A list of all scopes in a certain state, found in steps: only some scopes have accounts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Throttle;
use crate::base::ids::ScopeId;
use crate::base::time::Instant;
use crate::base::units::Units;

/// The state of the scopes that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeState {
    /// A hold delays them; the one that ends last is first.
    Held,
    /// All slots of their concurrency are taken; the one with most requests in flight is first.
    Full,
    /// Any; the one with most lanes is first.
    Any,
}

impl ScopeState {
    /// The words for them.
    pub const ALL: [(&'static str, ScopeState); 3] = [
        ("held", ScopeState::Held),
        ("full", ScopeState::Full),
        ("any", ScopeState::Any),
    ];
}

/// The search for scopes.
#[derive(Debug)]
pub(crate) struct ScopeSearch {
    state: ScopeState,
    /// The next scope.
    next: u32,
    most: usize,
    /// The first so far by rank, the last of them first.
    top: BinaryHeap<Reverse<(u64, ScopeId)>>,
}

/// Units of a step, some tenths of a millisecond: one for each scope, and [`NAME_UNITS`] for each name that is compared.
const UNITS_PER_STEP: u64 = 4_096;

/// A name is in memory of its own, and a pattern may have several parts.
const NAME_UNITS: usize = 16;

impl ScopeSearch {
    /// The search for so many scopes in this state.
    pub fn new(state: ScopeState, most: usize) -> Self {
        ScopeSearch {
            state,
            next: 0,
            most,
            top: BinaryHeap::new(),
        }
    }
}

impl Throttle {
    /// Goes on with a search; returns whether it is over. `is_wanted`: whether a name counts.
    pub(crate) fn advance_search(
        &self,
        search: &mut ScopeSearch,
        is_wanted: impl Fn(&str) -> bool,
        now: Instant,
    ) -> bool {
        let mut units = Units::new(UNITS_PER_STEP);
        while !units.is_spent() {
            units.spend(1);
            let id = ScopeId(search.next);
            if search.next as usize >= self.scope_table.ids_len() {
                return true;
            }
            search.next += 1;
            let Some(scope) = self.scope_table.get(id) else {
                continue;
            };
            let rank = match search.state {
                ScopeState::Held if scope.is_held(now) => scope.departs_at().as_nanos(),
                ScopeState::Full if !scope.has_free_slot() => scope.in_flight.into(),
                ScopeState::Any => scope.lanes.into(),
                ScopeState::Held | ScopeState::Full => continue,
            };
            let is_full = search.top.len() == search.most;
            let last = search.top.peek().map(|Reverse((rank, _))| *rank);
            if is_full && last.is_some_and(|last| rank <= last) {
                continue;
            }
            units.spend(NAME_UNITS);
            if !is_wanted(self.scope_table.name(id)) {
                continue;
            }
            if is_full {
                search.top.pop();
            }
            search.top.push(Reverse((rank, id)));
        }
        false
    }

    /// The names of the scopes that a search has found, the first by rank first, without those that were evicted
    /// since.
    pub(crate) fn found(&self, search: ScopeSearch) -> Vec<String> {
        let sorted = search.top.into_sorted_vec().into_iter();
        let ids = sorted.map(|Reverse((_, id))| id);
        let live = ids.filter(|id| self.scope_table.get(*id).is_some());
        live.map(|id| self.scope_table.name(id).to_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::throttle::settings::ThrottleSettings;

    #[test]
    fn a_step_compares_few_names_also_if_the_pattern_fits_none() {
        let mut throttle = Throttle::new(ThrottleSettings::default(), 1, Instant::START);
        for number in 0..2_000 {
            throttle.scope(&format!("{number}.test"));
        }
        let mut search = ScopeSearch::new(ScopeState::Any, 10);
        let (mut all, mut steps) = (0, 0);
        loop {
            let compared = Cell::new(0);
            let is_wanted = |_: &str| {
                compared.set(compared.get() + 1);
                false
            };
            let is_over = throttle.advance_search(&mut search, is_wanted, Instant::START);
            assert!(compared.get() <= 256, "{}", compared.get());
            all += compared.get();
            steps += 1;
            if is_over {
                break;
            }
        }
        assert_eq!(all, 2_000);
        assert!(steps > 7, "{steps}");
        assert_eq!(throttle.found(search), [] as [&str; 0]);
    }
}
