//! A list of all scopes in a certain state, found in steps: only some scopes have accounts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::scope::Scope;
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

    /// The rank of a scope in this state; `None`: it is in another.
    fn rank_of(self, scope: &Scope, now: Instant) -> Option<u64> {
        match self {
            ScopeState::Held => scope.is_held(now).then(|| scope.departs_at().as_nanos()),
            ScopeState::Full => (!scope.has_free_slot()).then(|| scope.in_flight.into()),
            ScopeState::Any => Some(scope.lanes.into()),
        }
    }
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
            let Some(rank) = search.state.rank_of(scope, now) else {
                continue;
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

    /// The names of the scopes that a search has found, the first by rank first: those that are in the state now.
    /// `is_wanted`: as in the search. The id of a scope that was evicted since may be another's by now.
    pub(crate) fn found(
        &self,
        search: ScopeSearch,
        is_wanted: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<String> {
        let sorted = search.top.into_sorted_vec().into_iter();
        let ids = sorted.map(|Reverse((_, id))| id);
        let in_state = ids.filter(|id| {
            let scope = self.scope_table.get(*id);
            scope.is_some_and(|scope| search.state.rank_of(scope, now).is_some())
        });
        let names = in_state.map(|id| self.scope_table.name(id));
        let wanted = names.filter(|name| is_wanted(name));
        wanted.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

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
        let found = throttle.found(search, |_| true, Instant::START);
        assert_eq!(found, [] as [&str; 0]);
    }

    #[test]
    fn a_scope_that_has_the_id_of_an_evicted_one_is_found_only_if_it_is_wanted() {
        let mut throttle = Throttle::new(ThrottleSettings::default(), 1, Instant::START);
        let is_wanted = |name: &str| name.ends_with(".a.example");
        let far = Instant::START + Duration::from_secs(3600);
        let add = |throttle: &mut Throttle, name: &str, is_held: bool| {
            let id = throttle.scope(name);
            if is_held {
                throttle.hold(id, far, Instant::START);
            }
            id
        };
        let first = ["1.a.example", "2.a.example", "3.a.example"];
        let first = first.map(|name| add(&mut throttle, name, true));
        let mut search = ScopeSearch::new(ScopeState::Held, 10);
        assert!(throttle.advance_search(&mut search, is_wanted, Instant::START));
        // One is free of its hold, and two others have the ids of evicted ones.
        let last = far + Duration::from_secs(1);
        for id in &first {
            assert!(throttle.evict_if_blank(*id, last));
        }
        let again = ["4.a.example", "5.b.example", "6.a.example"];
        let mut ids = Vec::new();
        for (name, is_held) in again.into_iter().zip([true, true, false]) {
            ids.push(add(&mut throttle, name, is_held));
        }
        ids.sort_unstable();
        assert_eq!(ids, first, "ids are used again");
        let found = throttle.found(search, is_wanted, Instant::START);
        assert_eq!(found, ["4.a.example"]);
    }
}
