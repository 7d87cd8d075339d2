//! Orders about many scopes, which are applied to the existing ones in steps: there may be ten million.
//!
//! Until a scope was visited it may have settings of before the last change, so it is refreshed before each decision
//! about it: what is sent under it, what a reply to it means, whether it is evicted. Nothing leaves sooner than the new
//! settings permit.

use std::collections::VecDeque;

use super::Throttle;
use super::learned::LearnedLimits;
use super::scopes::covers_many_scopes;
use super::tickets::TicketId;
use crate::base::ids::ScopeId;
use crate::base::time::Instant;
use crate::base::units::Units;

/// What is being applied.
#[derive(Debug)]
pub(super) struct Visits {
    /// Scopes that are still to be visited: with the next one, this many in the order of ids, after the last the first.
    stale: usize,
    next: u32,
    /// Ids from this one on were given since the last change: their scopes have the present settings.
    end: usize,
    forgets: VecDeque<Forget>,
    forgotten: VecDeque<Forgotten>,
    begun: u64,
    units_per_step: u64,
}

/// An order to forget what was learned of many scopes.
#[derive(Debug)]
struct Forget {
    id: ForgetId,
    /// A pattern, or `default`.
    name: String,
    /// The next scope.
    next: u32,
    /// Scopes so far.
    scopes: usize,
}

/// An order to forget what was learned of many scopes that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// Its number.
    pub id: ForgetId,
    /// A pattern, or `default`.
    pub name: String,
    /// Number of its scopes.
    pub scopes: usize,
}

/// Number of an order to forget that is applied in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForgetId(u64);

/// How far an order to forget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgetting {
    /// It is over, for so many scopes.
    Done(usize),
    /// [`Throttle::poll_forgotten`] returns it later.
    Going(ForgetId),
    /// It is not begun, for this reason.
    Refused(&'static str),
}

/// Units of a step, some tenths of a millisecond.
const UNITS_PER_STEP: u64 = 16_384;

/// A scope and its name are in memory of their own, and the name is compared with patterns.
const SCOPE_UNITS: usize = 32;

/// Why an order is refused.
const TOO_MANY_AT_ONCE: &str = "too many such orders go on";
const TOO_MANY_NAMES: &str =
    "a crawl keeps orders to forget of at most 1000 patterns: name the scopes, or default";

/// Orders to forget that may wait. More are refused.
const FORGETS_MAX: usize = 64;

impl Default for Visits {
    fn default() -> Self {
        Visits {
            stale: 0,
            next: 0,
            end: 0,
            forgets: VecDeque::new(),
            forgotten: VecDeque::new(),
            begun: 0,
            units_per_step: UNITS_PER_STEP,
        }
    }
}

impl Throttle {
    /// Visits so many units of scopes in a step.
    #[cfg(test)]
    pub(crate) fn set_units_per_visit(&mut self, units: u64) {
        self.visits.units_per_step = units;
    }

    /// The settings have changed: existing scopes are visited from now on, the first of them at once.
    pub(super) fn begin_refresh(&mut self, now: Instant) {
        // It goes on where an earlier one is, so that changes in a row do not keep it from any scope.
        self.visits.end = self.scope_table.ids_len();
        self.visits.stale = self.visits.end;
        self.advance_refresh(now);
    }

    /// Applies changes to the next few scopes. Returns whether there are more.
    pub(crate) fn advance_visits(&mut self, now: Instant) -> bool {
        self.advance_refresh(now);
        if let Some(forget) = self.visits.forgets.pop_front() {
            self.advance_forget(forget, now);
        }
        self.has_visits()
    }

    /// Whether changes are to be applied to more scopes.
    pub(crate) fn has_visits(&self) -> bool {
        self.is_refreshing() || !self.visits.forgets.is_empty()
    }

    /// Whether some scopes may have settings of before the last change.
    pub(crate) fn is_refreshing(&self) -> bool {
        self.visits.stale > 0
    }

    /// Applies the present settings to a scope that may not have been visited since they changed.
    pub(crate) fn refresh_named(&mut self, name: &str, now: Instant) {
        if self.is_refreshing()
            && let Some(id) = self.scope_table.find(name)
        {
            self.refresh(id, now);
        }
    }

    /// The same for a scope by its id.
    pub(super) fn refresh_stale(&mut self, id: ScopeId, now: Instant) {
        if self.is_refreshing() {
            self.refresh(id, now);
        }
    }

    /// The same for the scopes of a lane.
    pub(super) fn refresh_lane(&mut self, lane: u32, now: Instant) {
        if self.is_refreshing() {
            for id in self.lanes[lane as usize].scopes_copy() {
                self.refresh(id, now);
            }
        }
    }

    /// The same for the scopes of a released request.
    pub(super) fn refresh_ticket(&mut self, ticket: TicketId, now: Instant) {
        if self.is_refreshing() {
            for id in self.ticket(ticket).ids() {
                self.refresh(id, now);
            }
        }
    }

    fn advance_refresh(&mut self, now: Instant) {
        let mut units = Units::new(self.visits.units_per_step);
        while self.visits.stale > 0 && !units.is_spent() {
            units.spend(SCOPE_UNITS);
            let id = self.visits.next;
            self.visits.next = match id as usize + 1 < self.visits.end {
                true => id + 1,
                false => 0,
            };
            self.visits.stale -= 1;
            self.refresh(ScopeId(id), now);
        }
    }

    /// Forgets what was learned of a scope; of all scopes that a pattern matches; or of all (`default`): the limits that
    /// refusals have shown, and AutoThrottle's delays. Holds, minimum gaps and quotas stay. What is kept of scopes that
    /// are not in use is dropped when they are.
    pub(crate) fn forget(&mut self, name: &str, now: Instant) -> Forgetting {
        if !covers_many_scopes(name) {
            // What was kept of it is restored first: it may have a hold.
            let id = self.scope(name);
            self.forget_scope(id, now);
            return Forgetting::Done(1);
        }
        let is_same = |forget: &&Forget| forget.next == 0 && forget.name == name;
        if let Some(same) = self.visits.forgets.iter().find(is_same) {
            return Forgetting::Going(same.id);
        }
        if self.visits.forgets.len() >= FORGETS_MAX {
            return Forgetting::Refused(TOO_MANY_AT_ONCE);
        }
        if !self.forgotten.has_room_for(name) {
            return Forgetting::Refused(TOO_MANY_NAMES);
        }
        self.forgotten.order(name);
        if name == "default" {
            self.learned = LearnedLimits::default();
        }
        self.visits.begun += 1;
        let id = ForgetId(self.visits.begun);
        let forget = Forget {
            id,
            name: name.to_owned(),
            next: 0,
            scopes: 0,
        };
        match self.visits.forgets.is_empty() {
            true => self.advance_forget(forget, now),
            false => self.visits.forgets.push_back(forget),
        }
        match self.visits.forgotten.back() {
            Some(last) if last.id == id => {
                let scopes = last.scopes;
                self.visits.forgotten.pop_back();
                Forgetting::Done(scopes)
            }
            _ => Forgetting::Going(id),
        }
    }

    /// The next order to forget that is over.
    pub(crate) fn poll_forgotten(&mut self) -> Option<Forgotten> {
        self.visits.forgotten.pop_front()
    }

    /// A scope is about to be evicted: what an order that goes on is to forget of it is not kept. The order may not have
    /// visited it, or the scope comes again among those that the order has passed.
    pub(super) fn forget_evicted(&mut self, id: ScopeId) {
        if self.visits.forgets.is_empty() || !self.scope_ref(id).has_rules() {
            return;
        }
        let name = self.scope_table.name(id);
        let mut is_forgotten = false;
        for forget in &mut self.visits.forgets {
            if self.settings.covers(&forget.name, name) {
                is_forgotten = true;
                forget.scopes += usize::from(forget.next <= id.0);
            }
        }
        if is_forgotten {
            self.reset_learned(id);
            // What was recorded before is not restored by a later run.
            self.mark_changed(id);
        }
    }

    /// Goes on with an order to forget; what is left of it is the next one to go on with.
    fn advance_forget(&mut self, mut forget: Forget, now: Instant) {
        let mut units = Units::new(self.visits.units_per_step);
        while !units.is_spent() {
            let id = ScopeId(forget.next);
            if forget.next as usize >= self.scope_table.ids_len() {
                return self.visits.forgotten.push_back(Forgotten {
                    id: forget.id,
                    name: forget.name,
                    scopes: forget.scopes,
                });
            }
            forget.next += 1;
            units.spend(SCOPE_UNITS);
            let learns = self
                .scope_table
                .get(id)
                .is_some_and(|scope| scope.has_rules());
            if learns && (self.settings).covers(&forget.name, self.scope_table.name(id)) {
                forget.scopes += 1;
                self.forget_scope(id, now);
            }
        }
        self.visits.forgets.push_front(forget);
    }

    fn forget_scope(&mut self, id: ScopeId, now: Instant) {
        self.refresh_stale(id, now);
        self.reset_learned(id);
        // It is recorded before the order is acknowledged.
        self.mark_held(id);
        self.evict_or_schedule(id, now);
    }

    fn reset_learned(&mut self, id: ScopeId) {
        let name = self.scope_table.name(id);
        let settings = &self.scope_ref(id).profile.settings;
        let strategy = self.strategies.of(name, settings);
        self.scope_mut(id).forget(strategy);
    }
}
