//! The pacing engine: decides which lane may send next, and when, so that each of its scopes allows
//! it.
//!
//! A *lane* is a queue of requests that share a set of scopes; the frontier owns the queue's
//! contents. A lane with a request to send is *offered*. It waits in one place, the line of the
//! scope that delays it longest; only scopes are on the wheel. When a scope may release a request,
//! the engine checks the first lane of its line, which is released or moves to the line of another
//! scope that delays it longer.
//!
//! ```text
//! offer ─► waiting ─► Grant::Release (slots reserved) ──► ready ─► Grant::Depart ─► sent ─► finish
//!                         └────────── cancel ◄────────────┘ (gap charged)
//! ```
//!
//! Slots (concurrency, the global cap) are reserved in all scopes at once when a request is
//! released. The gap is checked and charged when it departs, so that slow handshakes never bunch
//! requests. See the specification's *When a pace is charged*.

mod accounts;
mod median;
mod mixed;
mod places;
mod profiles;
mod findings;
mod forgotten;
mod answers;
mod asked;
mod history;
pub(crate) mod effective;
mod lanes;
mod learned;
mod lines;
mod open_waits;
mod saved;
mod scope_table;
mod scopes;
mod search;
mod tickets;
mod view;
mod visits;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

pub use self::accounts::Account;
pub(crate) use self::forgotten::ForgottenNames;
pub use self::saved::summary_of;
pub use self::scopes::covers_many_scopes;
pub(crate) use self::search::{ScopeSearch, ScopeState};
pub use self::tickets::TicketId;
pub(crate) use self::visits::{ForgetId, Forgetting, Forgotten};

use self::accounts::Accounts;
use self::history::History;
use self::lanes::Lane;
use self::learned::LearnedLimits;
use self::mixed::Priorities;
use self::profiles::Profiles;
use self::saved::{SavedScopes, UnsavedScopes};
use self::scope_table::ScopeTable;
use self::tickets::Ticket;
use self::visits::Visits;
use super::cause::WaitCause;
use super::decision::Decision;
use super::scope::{Change, NO_INDEX, NOT_CAPPED, Queued, Scope};
use super::settings::ThrottleSettings;
use super::signal::Feedback;
use super::strategies::Strategies;
use crate::base::bound::Bound;
use crate::base::chunked::ChunkedVec;
use crate::base::ids::{LaneId, ScopeId};
use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::slab::Slab;
use crate::base::time::Instant;
use crate::base::wheel::PacingWheel;

/// Decides when each lane may send.
pub struct Throttle {
    settings: ThrottleSettings,
    profiles: Profiles,
    strategies: Strategies,
    initial: Option<InitialFeedback>,
    /// The latest time known; the initial state of a new scope counts from it.
    clock: Instant,
    /// Addresses are scopes even if `CONCURRENT_REQUESTS_PER_IP` is 0.
    addresses: bool,
    scope_table: ScopeTable,
    lanes: ChunkedVec<Lane>,
    lanes_free: Vec<u32>,
    tickets: Slab<Ticket>,
    wheel: PacingWheel,
    due: Vec<(u32, Instant)>,
    /// Scopes that may let a prepared request depart. They are checked before all others, because a
    /// delay here is a delay on the wire.
    departing: VecDeque<ScopeId>,
    ready: VecDeque<ScopeId>,
    /// The scope of the last release, if it was not checked since. Its lane is usually offered
    /// again at once, and one check then covers both.
    released_of: Option<ScopeId>,
    /// The time for which the wheel was last advanced.
    advanced: Option<Instant>,
    /// The wheel had no more entries due at that time, and none were added since.
    drained: bool,
    /// Scopes that waited for the global cap and now have room; checked before `ready`.
    uncapped: VecDeque<ScopeId>,
    /// Priorities of lanes, and what waits by them.
    priorities: Priorities,
    /// Number of scopes checked so far by [`Throttle::poll`].
    scopes_checked: u64,
    /// Number of lanes looked at so far in lines.
    lanes_visited: u64,
    /// Consecutive polls that ended at their bound without a grant.
    empty_polls: u32,
    in_flight: usize,
    /// Scopes with a lane in their line.
    lines: usize,
    /// Whether requests are released; if not, only departures are granted.
    releasing: bool,
    /// Entries of the settings that are bolder than a Crawl-delay, of which a warning was written.
    crawl_delay_warned: BTreeSet<String>,
    rng: Rng,
    /// Whether decisions are recorded.
    tracing: bool,
    decisions: Vec<Decision>,
    /// Reused between answers to avoid allocation.
    changes: Vec<Change>,
    accounts: Accounts,
    /// Learned limits of evicted scopes.
    learned: LearnedLimits,
    /// The last decisions, if they are kept.
    history: History,
    /// Orders to forget, for learned limits and saved states of scopes that are not in use.
    forgotten: ForgottenNames,
    /// States of scopes that an earlier run of the crawl saved.
    saved: SavedScopes,
    /// Scopes that are to be saved for a later one.
    unsaved: UnsavedScopes,
    /// Orders about many scopes.
    visits: Visits,
    secret: Secret,
}

/// Permission of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The lane's next request may take a connection; its slots are reserved under the ticket.
    Release(LaneId, TicketId),
    /// The ticket's request departs now; its gap is charged.
    Depart(TicketId),
}

/// The end of a line at which a lane is inserted; a claiming lane goes to the front.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// Returns what is known of a scope, by its name, before its first request.
pub type InitialFeedback = Box<dyn Fn(&str) -> Option<Feedback> + Send>;

/// A lane that was first in a line this often without being released claims its scopes, in order of
/// their ids.
const PASSED_OVER_MAX: u8 = 2;

/// Maximum number of scopes checked per call of [`Throttle::poll`] without a grant, so that a turn
/// stays short. The next call continues from there.
const CHECKS_PER_POLL: u32 = 4096;

/// Maximum number of wheel entries taken per call of [`Throttle::poll`], so that a turn stays
/// short.
const EXPIRE_BUDGET: usize = 1024;

impl Throttle {
    /// Creates an engine without lanes. `seed` determines all jitter, and the hashing of names
    /// until `set_secret` is called.
    pub fn new(settings: ThrottleSettings, seed: u64, start: Instant) -> Self {
        let secret = Secret::from_seed(seed);
        Throttle {
            profiles: Profiles::new(&settings),
            settings,
            strategies: Strategies::default(),
            initial: None,
            clock: start,
            addresses: false,
            scope_table: ScopeTable::new(&secret),
            lanes: ChunkedVec::new(),
            lanes_free: Vec::new(),
            tickets: Slab::new(),
            wheel: PacingWheel::new(start),
            due: Vec::new(),
            departing: VecDeque::new(),
            ready: VecDeque::new(),
            released_of: None,
            advanced: None,
            drained: false,
            uncapped: VecDeque::new(),
            priorities: Priorities::default(),
            scopes_checked: 0,
            lanes_visited: 0,
            empty_polls: 0,
            in_flight: 0,
            lines: 0,
            releasing: true,
            crawl_delay_warned: BTreeSet::new(),
            rng: Rng::from_seed(seed),
            tracing: false,
            decisions: Vec::new(),
            changes: Vec::new(),
            accounts: Accounts::default(),
            learned: LearnedLimits::default(),
            forgotten: ForgottenNames::default(),
            history: History::default(),
            saved: SavedScopes::new(&secret),
            unsaved: UnsavedScopes::default(),
            visits: Visits::default(),
            secret,
        }
    }

    /// Sets the secret under which names are hashed, because remote parties choose names. Must be
    /// called before the first scope is created.
    pub(crate) fn set_secret(&mut self, secret: &Secret) {
        assert!(
            self.scope_table.is_empty(),
            "the secret is set before the first scope is created"
        );
        self.scope_table = ScopeTable::new(secret);
        self.saved = SavedScopes::new(secret);
        self.secret = *secret;
    }

    /// The secret under which names are hashed.
    #[cfg(test)]
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Sets the source of strategies for scopes created from now on.
    pub(crate) fn set_strategies(&mut self, strategies: Strategies) {
        self.strategies = strategies;
    }

    /// Sets the source of initial knowledge for scopes created from now on.
    pub(crate) fn set_initial(&mut self, known: InitialFeedback) {
        self.initial = Some(known);
    }

    /// Sets the current time; call it before scopes may be created.
    pub(crate) fn set_clock(&mut self, now: Instant) {
        self.clock = now;
    }

    /// Makes every address a scope even if `CONCURRENT_REQUESTS_PER_IP` is 0.
    pub(crate) fn set_addresses(&mut self, on: bool) {
        self.addresses = on;
    }

    /// Whether addresses are scopes.
    pub(crate) fn has_addresses(&self) -> bool {
        self.addresses || self.settings.concurrent_requests_per_ip > 0
    }

    /// Caps the total number of requests in flight; the limit on open files may be lower than the
    /// settings.
    pub(crate) fn set_in_flight_max(&mut self, max: usize) {
        self.settings.concurrent_requests = max.max(1);
    }

    /// Stops or resumes releasing. Released requests may still depart.
    pub(crate) fn set_releasing(&mut self, on: bool) {
        self.releasing = on;
    }

    /// Turns the recording of decisions for [`Throttle::take_decisions`] on or off.
    pub fn set_tracing(&mut self, on: bool) {
        self.tracing = on;
    }

    /// Returns whether [`Throttle::take_decisions`] has anything to return.
    pub(crate) fn has_decisions(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// Takes the decisions recorded since the last call.
    pub fn take_decisions(&mut self) -> std::vec::Drain<'_, Decision> {
        self.decisions.drain(..)
    }

    fn has_room(&self) -> bool {
        self.releasing && self.in_flight < self.settings.concurrent_requests
    }

    /// Whether there is room for a request, and none may be released now: called after [`Throttle::poll`] had
    /// nothing to grant.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_room() && self.has_nothing_ready()
    }

    /// Number of requests that may be in flight beside those that are.
    pub(crate) fn room(&self) -> usize {
        self.settings
            .concurrent_requests
            .saturating_sub(self.in_flight)
    }

    fn has_nothing_ready(&self) -> bool {
        let queues = [&self.departing, &self.ready, &self.uncapped];
        let is_empty = queues.iter().all(|queue| queue.is_empty());
        is_empty && self.released_of.is_none() && !self.priorities.is_splitting()
    }

    /// Returns the next grant at `now`, or `None` when everything waits for time or for another
    /// request to end.
    pub fn poll(&mut self, now: Instant) -> Option<Grant> {
        if self.priorities.is_splitting() {
            self.split_lines(now);
        }
        self.check_released_scope(now);
        self.collect_due(now);
        for _ in 0..CHECKS_PER_POLL {
            let Some(id) = self.next_to_check() else {
                self.empty_polls = 0;
                return None;
            };
            self.scopes_checked += 1;
            let scope = self.scope_mut(id);
            scope.queued = Queued::No;
            if let Some(grant) = self.try_depart(id, now) {
                self.schedule_check(id, now);
                self.empty_polls = 0;
                return Some(grant);
            }
            match self.try_release(id, now) {
                Checked::Granted(grant) => {
                    self.released_of = Some(id);
                    self.empty_polls = 0;
                    return Some(grant);
                }
                Checked::Moved => self.schedule_check(id, now),
                Checked::Capped => {
                    self.push_capped(id);
                    self.account_capped(id, now);
                    // Departures of a capped scope still need a wheel entry.
                    self.arm_departure(id, now);
                }
                Checked::Nothing => self.evict_or_schedule(id, now),
            }
            self.collect_due(now);
        }
        self.count_empty_poll();
        None
    }

    /// Number of scopes checked since the start. It should grow in proportion to the requests;
    /// otherwise the engine is spinning.
    #[cfg(test)]
    pub(crate) fn scopes_checked(&self) -> u64 {
        self.scopes_checked
    }

    /// Scopes and lanes that were looked at since the start, entries of the wheel included.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> u64 {
        self.scopes_checked + self.lanes_visited
    }

    /// Memory of lanes that wait behind others of other priorities, in bytes.
    #[cfg(test)]
    pub(crate) fn mixed_bytes(&self) -> usize {
        self.priorities.bytes()
    }

    /// Counts a poll that ended at its bound without a grant. Many scopes may become due together,
    /// so one such poll is not a fault; more in a row than there are scopes to check are.
    fn count_empty_poll(&mut self) {
        self.empty_polls += 1;
        let scopes_checked = u64::from(self.empty_polls) * u64::from(CHECKS_PER_POLL);
        // Each scope may be checked for its departures, its releases, and each lane that moves.
        let most = 8 * (self.scope_table.len() + self.lanes.len()) as u64
            + 1024 * u64::from(CHECKS_PER_POLL);
        if scopes_checked > most {
            debug_assert!(
                false,
                "{scopes_checked} scopes were checked in a row and nothing was granted"
            );
            if self.empty_polls.is_power_of_two() {
                log::error!(
                    "the throttle checked {scopes_checked} scopes in a row without a grant: this is a \
                     fault in argiope, please report it with the settings of this crawl"
                );
            }
        }
    }

    /// Returns the next request that may depart at `now`, among scopes known to have a prepared
    /// request.
    pub(crate) fn poll_departure(&mut self, now: Instant) -> Option<TicketId> {
        self.check_released_scope(now);
        while let Some(id) = self.departing.pop_front() {
            self.scope_mut(id).queued = Queued::No;
            let granted = self.try_depart(id, now);
            self.schedule_check(id, now);
            if let Some(Grant::Depart(ticket)) = granted {
                return Some(ticket);
            }
        }
        None
    }

    /// The first lanes of scopes that may release at `now`, as far as is known, in order.
    pub(crate) fn coming(&mut self, now: Instant) -> impl Iterator<Item = LaneId> + '_ {
        self.check_released_scope(now);
        self.collect_due(now);
        let scopes = self.ready.iter().filter_map(|id| self.scope_table.get(*id));
        let lasts = scopes.map(|scope| scope.waiting);
        lasts
            .filter(|last| *last != NO_INDEX)
            .map(|last| LaneId(self.lanes[last as usize].next))
    }

    /// Checks the scope of the last release, unless it was checked since.
    fn check_released_scope(&mut self, now: Instant) {
        if let Some(id) = self.released_of.take()
            && self.scope_table.get(id).is_some()
        {
            self.schedule_check(id, now);
        }
    }

    /// Collects due scopes from the wheel: once per `now`, and again when the queue is empty and
    /// the wheel had more.
    fn collect_due(&mut self, now: Instant) {
        if self.advanced != Some(now) || self.ready.is_empty() && !self.drained {
            self.advanced = Some(now);
            self.advance(now);
        }
        if self.ready.is_empty() && self.uncapped.is_empty() {
            self.promote_capped();
        }
    }

    fn next_to_check(&mut self) -> Option<ScopeId> {
        if let Some(id) = self.departing.pop_front() {
            return Some(id);
        }
        loop {
            let id = self
                .uncapped
                .pop_front()
                .or_else(|| self.ready.pop_front())?;
            // Entries of scopes that were checked out of turn are void.
            if let Some(scope) = self.scope_table.get(id)
                && scope.queued == Queued::Ready
            {
                return Some(id);
            }
        }
    }

    /// If there is room, moves a scope that waits for the global cap to the front: that with the highest
    /// priority, among equal ones the one that has waited longest.
    fn promote_capped(&mut self) {
        if !self.has_room() {
            return;
        }
        while let Some((id, number)) = self.priorities.pop_capped() {
            // Entries of evicted scopes and of other priorities are void.
            if let Some(scope) = self.scope_table.get_mut(id)
                && scope.capped == number
            {
                scope.capped = NOT_CAPPED;
                match scope.queued {
                    // It is checked before `uncapped` anyway.
                    Queued::Departing => return,
                    Queued::No | Queued::Ready => {}
                }
                // Its entry in `ready` becomes void once it was checked.
                scope.queued = Queued::Ready;
                return self.uncapped.push_back(id);
            }
        }
    }

    /// Returns when to call [`Throttle::poll`] next if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.has_nothing_ready() {
            true => self.wheel.next(),
            false => Some(Instant::START),
        }
    }

    /// Takes due entries off the wheel.
    fn advance(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due);
        self.drained = !self.wheel.expire(now, EXPIRE_BUDGET, &mut due);
        self.lanes_visited += due.len() as u64;
        // Void entries are removed in a first pass. Its memory reads are independent, so the
        // processor overlaps the cache misses of several scopes; the checks below depend on one
        // another.
        due.retain(|(id, at)| {
            let scope = self.scope_table.get(ScopeId(*id));
            scope.is_some_and(|scope| scope.wake_at == *at)
        });
        for (id, at) in due.drain(..) {
            let Some(scope) = self.scope_table.get_mut(ScopeId(id)) else {
                continue;
            };
            if scope.wake_at == at {
                scope.wake_at = Instant::FAR_FUTURE;
                let may_depart = self.may_depart_at(ScopeId(id)).is_some_and(|at| at <= now);
                self.check_now(ScopeId(id), may_depart);
            }
        }
        self.due = due;
    }

    fn try_depart(&mut self, id: ScopeId, now: Instant) -> Option<Grant> {
        // Each step but the last moves a ticket to another scope's line.
        let mut steps = Bound::new("find a departure", self.tickets.len() + 1);
        while steps.step() {
            let slot = self.first_departing(self.scope_ref(id));
            if slot == NO_INDEX {
                return None;
            }
            let key = self.tickets.key_of(slot).expect("a ticket in line exists");
            self.refresh_ticket(TicketId(key), now);
            let ticket = self.ticket(TicketId(key));
            if let Some((blocker, _)) = self.blocker_of_ticket(ticket, now) {
                if blocker == id {
                    return None;
                }
                self.dequeue_departing(id);
                self.enqueue_departing(slot, blocker);
                self.schedule_check(blocker, now);
                continue;
            }
            self.dequeue_departing(id);
            self.charge(TicketId(key), now);
            return Some(Grant::Depart(TicketId(key)));
        }
        None
    }

    fn try_release(&mut self, id: ScopeId, now: Instant) -> Checked {
        let Some(lane) = self.first_offered(id) else {
            return Checked::Nothing;
        };
        self.refresh_lane(lane, now);
        let claims = self.lanes[lane as usize].passed_over >= PASSED_OVER_MAX;
        if let Some((blocker, wants_slot)) = self.blocker_of_lane(lane, now, claims) {
            if wants_slot {
                self.lanes[lane as usize].wait_for_slot();
            }
            if blocker == id {
                return Checked::Nothing;
            }
            self.dequeue(id);
            let slot = &mut self.lanes[lane as usize];
            slot.passed_over = slot.passed_over.saturating_add(1);
            self.join_line(lane, blocker);
            self.schedule_check(blocker, now);
            return Checked::Moved;
        }
        if !self.has_room() {
            self.lanes[lane as usize].wait_for_slot();
            return Checked::Capped;
        }
        self.dequeue(id);
        self.account_waited(id, now);
        let ticket = self.reserve(lane, now);
        self.unclaim(lane, now);
        Checked::Granted(Grant::Release(LaneId(lane), ticket))
    }

    /// Returns the scope that delays a lane longest at `now`, and whether the lane waits there for
    /// a slot; `None` if no scope does. A claiming lane stops at the first such scope, having
    /// claimed all before it.
    fn blocker_of_lane(
        &mut self,
        lane: u32,
        now: Instant,
        claims: bool,
    ) -> Option<(ScopeId, bool)> {
        if claims {
            return self.claim(lane, now);
        }
        let state = &self.lanes[lane as usize];
        let mut blocker: Option<(ScopeId, Instant, bool)> = None;
        for id in state.scopes() {
            let scope = self.scope_ref(*id);
            let (at, wants_slot) = match scope.releases_for(lane, state.cost(*id), now) {
                Some(at) if at <= now => continue,
                Some(at) => (at, false),
                None => (Instant::FAR_FUTURE, true),
            };
            if blocker.is_none_or(|(_, latest, _)| at > latest) {
                blocker = Some((*id, at, wants_slot));
            }
        }
        blocker.map(|(id, _, wants_slot)| (id, wants_slot))
    }

    /// Claims a lane's scopes up to the first that delays it. All lanes claim in the same order, so
    /// that no two wait for each other.
    fn claim(&mut self, lane: u32, now: Instant) -> Option<(ScopeId, bool)> {
        let mut scopes = self.lanes[lane as usize].scopes_copy();
        scopes.sort_unstable();
        for id in scopes {
            let cost = self.cost(lane, id);
            let scope = self.scope_mut(id);
            let at = scope.releases_for(lane, cost, now);
            if scope.is_free_for(lane) {
                scope.claim(lane);
            }
            if at.is_none_or(|at| at > now) {
                return Some((id, at.is_none()));
            }
        }
        None
    }

    /// The reason for which a scope delays a lane.
    pub(super) fn cause(
        &self,
        blocker: ScopeId,
        cost: f64,
        wants_slot: bool,
        now: Instant,
    ) -> WaitCause {
        let scope = self.scope_ref(blocker);
        if wants_slot {
            return WaitCause::Concurrency;
        }
        if scope.fits_at(cost, now) > now {
            return WaitCause::Quota;
        }
        WaitCause::of(scope.slowest_rule(now), scope.is_held(now))
    }

    /// The scope whose gap delays a ready ticket longest at `now`, and until when.
    fn blocker_of_ticket(&self, ticket: &Ticket, now: Instant) -> Option<(ScopeId, Instant)> {
        let mut blocker: Option<(ScopeId, Instant)> = None;
        for held in &ticket.held {
            let scope = self.scope_ref(held.id);
            let at = if scope.may_depart_more() {
                scope.departs_at().max(ticket.due)
            } else {
                // Its slots were reserved before the concurrency was lowered.
                Instant::FAR_FUTURE
            };
            if at > now && blocker.is_none_or(|(_, latest)| at >= latest) {
                blocker = Some((held.id, at));
            }
        }
        blocker
    }

    /// Evicts the scope if it holds no state, else schedules its next check.
    fn evict_or_schedule(&mut self, id: ScopeId, now: Instant) {
        if !self.evict_if_blank(id, now) {
            self.schedule_check(id, now);
        }
    }

    /// Schedules the next check of the scope: now, or through the wheel.
    fn schedule_check(&mut self, id: ScopeId, now: Instant) {
        // This is the most frequent operation per request, so the scope is looked up once.
        if self.released_of == Some(id) {
            self.released_of = None;
        }
        let scope = self.scope_ref(id);
        let (queued, wake_at) = (scope.queued, scope.wake_at);
        let (departing, waiting) = (self.first_departing(scope), self.first_waiting(scope));
        let departs = departing != NO_INDEX && scope.may_depart_more();
        let releases = waiting != NO_INDEX && scope.has_free_slot();
        // Both depend on the gap, which is expensive to compute.
        let departs_at = match departs || releases {
            true => scope.departs_at(),
            false => Instant::START,
        };
        let departs = departs.then(|| departs_at.max(self.ticket_at(departing).due));
        let first = (waiting != NO_INDEX).then(|| {
            let lane = &self.lanes[waiting as usize];
            let cost = lane.cost(id);
            FirstInLine {
                lane: waiting,
                is_offered: lane.is_offered(),
                cost,
                releases: match releases {
                    true => scope.releases_after(departs_at, cost, now),
                    false => None,
                },
            }
        });
        // A lane that waits for the global cap is checked when there is room, not at a time.
        let at = self.next_action_at(scope, departs, first.filter(|_| !scope.is_capped()));
        self.account_waiting(id, scope.account, first, now);
        let Some(at) = at else {
            return;
        };
        match queued {
            Queued::Departing => {}
            Queued::Ready if departing == NO_INDEX => {}
            _ if at <= now => self.check_now(id, departs.is_some_and(|at| at <= now)),
            Queued::Ready => {}
            Queued::No if at < wake_at => {
                self.scope_mut(id).wake_at = at;
                self.wheel.insert(at, id.0);
                self.drained &= self.advanced.is_some_and(|asked| at > asked);
            }
            Queued::No => {}
        }
    }

    fn arm_departure(&mut self, id: ScopeId, now: Instant) {
        if self.scope_ref(id).departing != NO_INDEX {
            self.schedule_check(id, now);
        }
    }

    fn check_now(&mut self, id: ScopeId, may_depart: bool) {
        let scope = self.scope_mut(id);
        match (scope.queued, may_depart) {
            (Queued::Departing, _) | (Queued::Ready, false) => {}
            // Its entry in another queue is void from now on.
            (_, true) => {
                scope.queued = Queued::Departing;
                self.departing.push_back(id);
            }
            (Queued::No, false) => {
                scope.queued = Queued::Ready;
                self.ready.push_back(id);
            }
        }
    }

    /// When the first of the scope's prepared requests may depart, if it has one.
    fn may_depart_at(&self, id: ScopeId) -> Option<Instant> {
        let scope = self.scope_ref(id);
        let first = self.first_departing(scope);
        (first != NO_INDEX && scope.may_depart_more())
            .then(|| scope.departs_at().max(self.ticket_at(first).due))
    }

    /// When the scope may next release or depart a request, or be evicted.
    fn next_action_at(
        &self,
        scope: &Scope,
        departs: Option<Instant>,
        first: Option<FirstInLine>,
    ) -> Option<Instant> {
        // Claimed for a lane that waits elsewhere: checked again when the claim ends.
        let first = first.filter(|first| scope.is_free_for(first.lane));
        let releases = first.and_then(|first| first.releases);
        match (departs, releases) {
            (Some(a), Some(b)) => Some(a.min(b)),
            // It is evicted once its entry among the capped ones is taken, which is not at a time.
            (None, None) if scope.is_capped() => None,
            (None, None) => scope.blank_at(),
            (one, other) => one.or(other),
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("scopes", &self.scope_table.len())
            .field("lanes", &self.lanes.len())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// The first lane in a scope's line.
#[derive(Clone, Copy)]
struct FirstInLine {
    lane: u32,
    /// It has a request to send. If not, it merely was not removed from the line yet.
    is_offered: bool,
    /// What its request is expected to cost the scope.
    cost: f64,
    /// When the scope permits its release; `None` while all slots are taken.
    releases: Option<Instant>,
}

/// Result of checking the first lane of a scope.
enum Checked {
    Granted(Grant),
    Moved,
    Capped,
    Nothing,
}
