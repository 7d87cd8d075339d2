//! The engine of pacing: which lane may send next, and when, so that each of its scopes allows.
//!
//! A *lane* is a queue of requests that share a set of scopes; what is in the queue is the
//! frontier's affair. A lane with something to send is *offered*. It waits in one place, the line
//! of the scope that keeps it longest; only scopes are on the wheel. When a scope may release, its
//! first waiter is looked at: it goes, or moves to the line of another scope that keeps it longer.
//!
//! ```text
//! offer ─► waiting ─► Grant::Release (places reserved) ─► ready ─► Grant::Depart ─► sent ─► finish
//!                         └────────── cancel ◄────────────┘ (gap charged)
//! ```
//!
//! Places (concurrency, the global cap) are reserved over all scopes at once when a request is
//! released; the gap is checked and charged when it departs, so that slow handshakes never bunch
//! requests. See the specification's *When a pace is charged*.

mod accounts;
mod median;
mod findings;
mod answers;
mod lanes;
mod lines;
mod scope_table;
mod scopes;
mod tickets;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;

pub use self::accounts::Account;
pub use self::lanes::LaneId;
pub use self::scopes::says_of_many;
pub use self::tickets::TicketId;

use self::accounts::Accounts;
use self::lanes::Lane;
use self::lines::End;
use self::scope_table::ScopeTable;
use self::scopes::{default_profile, profile};
use self::tickets::Ticket;
use super::backoff::Learned;
use super::cause::Cause;
use super::decision::Decision;
use super::scope::{Change, NOBODY, Profile, Queued, Scope, ScopeId};
use super::settings::Settings;
use super::signal::Feedback;
use super::strategies::Strategies;
use crate::base::bound::Bound;
use crate::base::chunked::ChunkedVec;
use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::slab::Slab;
use crate::base::time::Instant;
use crate::base::wheel::PacingWheel;

/// When each lane may send.
pub struct Throttle {
    settings: Settings,
    default: Arc<Profile>,
    profiles: BTreeMap<String, Arc<Profile>>,
    strategies: Strategies,
    initial: Option<InitialFeedback>,
    /// The last time that it was told: what is known of a new scope counts from then.
    clock: Instant,
    /// Addresses are scopes, whether `CONCURRENT_REQUESTS_PER_IP` says so or not.
    addresses: bool,
    roll: ScopeTable,
    lanes: ChunkedVec<Lane>,
    lanes_free: Vec<u32>,
    tickets: Slab<Ticket>,
    wheel: PacingWheel,
    due: Vec<(u32, Instant)>,
    /// Scopes that may let a prepared request depart: looked at before all others, since who is
    /// late there is late on the wire.
    departing: VecDeque<ScopeId>,
    ready: VecDeque<ScopeId>,
    /// Of which something was just released, and which was not looked at since: mostly its lane is
    /// offered again at once, and one look is enough for both.
    released_of: Option<ScopeId>,
    /// When the wheel was last asked.
    advanced: Option<Instant>,
    /// It had no more for that moment, and has been given nothing for it since.
    drained: bool,
    /// Those who waited for the global cap and for whom there is room: before all others.
    uncapped: VecDeque<ScopeId>,
    /// Those whose first lane waits for the global cap: each at most once, in order of coming.
    capped: VecDeque<ScopeId>,
    /// Scopes looked at so far by [`Throttle::poll`].
    looks: u64,
    /// Polls in a row that ended at their bound without a grant.
    fruitless: u32,
    in_flight: usize,
    /// Scopes in whose line a lane stands.
    lines: usize,
    /// Requests are released; if not, only departures are granted.
    releasing: bool,
    rng: Rng,
    /// Decisions are kept for whoever asks.
    tracing: bool,
    decisions: Vec<Decision>,
    /// Kept between answers, so that none allocates.
    changes: Vec<Change>,
    accounts: Accounts,
    /// The limits that scopes had learned which are gone, by a hash of their names.
    learned: HashMap<u64, Learned, Secret>,
    secret: Secret,
}

/// What the engine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The lane's next request may take a connection; its places are reserved under the ticket.
    Release(LaneId, TicketId),
    /// The request of this ticket departs now: its gap is charged.
    Depart(TicketId),
}

/// What is known of a scope, by its name, before its first request.
pub type InitialFeedback = Box<dyn Fn(&str) -> Option<Feedback> + Send>;

/// A lane that was first this often and could not go claims its scopes, in order of their numbers.
const PASSED_MAX: u8 = 2;

/// Scopes looked at per call of [`Throttle::poll`] before it returns without a grant, so that a turn
/// stays short. The next call goes on from there.
const LOOKS_PER_POLL: u32 = 4096;

/// Wheel entries taken per call of [`Throttle::poll`], so that a turn stays short.
const EXPIRE_BUDGET: usize = 1024;

impl Throttle {
    /// An engine in which nothing waits. `seed` decides every jitter, and how names are hashed until
    /// [`Throttle::set_secret`] says otherwise.
    pub fn new(settings: Settings, seed: u64, start: Instant) -> Self {
        let secret = Secret::from_seed(seed);
        let default = Arc::new(default_profile(&settings));
        let profiles = settings
            .scopes
            .keys()
            .map(|name| (name.clone(), Arc::new(profile(&settings, name))))
            .collect();
        Throttle {
            settings,
            default,
            profiles,
            strategies: Strategies::default(),
            initial: None,
            clock: start,
            addresses: false,
            roll: ScopeTable::new(&secret),
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
            capped: VecDeque::new(),
            looks: 0,
            fruitless: 0,
            in_flight: 0,
            lines: 0,
            releasing: true,
            rng: Rng::from_seed(seed),
            tracing: false,
            decisions: Vec::new(),
            changes: Vec::new(),
            accounts: Accounts::default(),
            learned: HashMap::with_hasher(secret),
            secret,
        }
    }

    /// Hashes names under this secret: strangers choose them. Before any scope came to be.
    pub fn set_secret(&mut self, secret: &Secret) {
        assert!(self.roll.names.is_empty(), "names are hashed already");
        self.roll = ScopeTable::new(secret);
        self.learned = HashMap::with_hasher(*secret);
        self.secret = *secret;
    }

    /// What names are hashed under.
    #[cfg(test)]
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Where the strategies of the scopes come from that come to be from now on.
    pub fn set_strategies(&mut self, strategies: Strategies) {
        self.strategies = strategies;
    }

    /// What is known of scopes that come to be from now on.
    pub fn set_initial(&mut self, known: InitialFeedback) {
        self.initial = Some(known);
    }

    /// Tells the time, before scopes may come to be.
    pub fn set_clock(&mut self, now: Instant) {
        self.clock = now;
    }

    /// Makes every address a scope, though `CONCURRENT_REQUESTS_PER_IP` says nothing of them.
    pub fn set_addresses(&mut self, on: bool) {
        self.addresses = on;
    }

    /// Caps the requests in flight in all (open files may allow fewer than the settings say).
    pub fn set_in_flight_max(&mut self, max: usize) {
        self.settings.concurrent_requests = max.max(1);
    }

    /// Stops or resumes releasing. What was released may depart all the same.
    pub fn set_releasing(&mut self, on: bool) {
        self.releasing = on;
    }

    /// Keeps every decision for [`Throttle::take_decisions`], or none.
    pub fn set_tracing(&mut self, on: bool) {
        self.tracing = on;
    }

    /// Whether there is anything for [`Throttle::take_decisions`].
    pub(crate) fn has_decisions(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// What was decided since the last call.
    pub fn take_decisions(&mut self) -> std::vec::Drain<'_, Decision> {
        self.decisions.drain(..)
    }

    fn has_place(&self) -> bool {
        self.releasing && self.in_flight < self.settings.concurrent_requests
    }

    /// The next thing that may happen at `now`; `None` when all wait for time or for one another.
    pub fn poll(&mut self, now: Instant) -> Option<Grant> {
        self.look_behind(now);
        self.look_around(now);
        for _ in 0..LOOKS_PER_POLL {
            let Some(id) = self.next_to_look_at() else {
                self.fruitless = 0;
                return None;
            };
            self.looks += 1;
            let scope = self.scope_mut(id);
            scope.queued = Queued::No;
            if let Some(grant) = self.try_depart(id, now) {
                self.look_at(id, now);
                self.fruitless = 0;
                return Some(grant);
            }
            match self.try_release(id, now) {
                Looked::Granted(grant) => {
                    self.released_of = Some(id);
                    self.fruitless = 0;
                    return Some(grant);
                }
                Looked::Moved => self.look_at(id, now),
                Looked::Capped => {
                    let scope = self.scope_mut(id);
                    if !std::mem::replace(&mut scope.capped, true) {
                        self.capped.push_back(id);
                    }
                    self.account_capped(id, now);
                    // Departures of a capped scope still need the wheel.
                    self.arm_departure(id, now);
                }
                Looked::Nothing => self.settle(id, now),
            }
            self.look_around(now);
        }
        self.report_fruitless();
        None
    }

    /// Scopes looked at since the start: in step with the requests, or something spins.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// A poll ended at its bound without a grant. Many scopes may become due together, so one such
    /// poll is no fault; more in a row than there are scopes to look at are.
    fn report_fruitless(&mut self) {
        self.fruitless += 1;
        let looks = u64::from(self.fruitless) * u64::from(LOOKS_PER_POLL);
        // Each scope may be looked at for its departures, its releases and each lane that moves.
        let most =
            8 * (self.roll.len() + self.lanes.len()) as u64 + 1024 * u64::from(LOOKS_PER_POLL);
        if looks > most {
            debug_assert!(
                false,
                "{looks} scopes were looked at in a row and nothing was granted"
            );
            if self.fruitless.is_power_of_two() {
                log::error!(
                    "the throttle looked at {looks} scopes in a row and granted nothing: this is a \
                     fault in argiope, please report it with the settings of this crawl"
                );
            }
        }
    }

    /// The next request that may depart at `now`, among the scopes that are known to have one.
    pub fn poll_departure(&mut self, now: Instant) -> Option<TicketId> {
        self.look_behind(now);
        while let Some(id) = self.departing.pop_front() {
            self.scope_mut(id).queued = Queued::No;
            let granted = self.try_depart(id, now);
            self.look_at(id, now);
            if let Some(Grant::Depart(ticket)) = granted {
                return Some(ticket);
            }
        }
        None
    }

    /// The lanes that stand first where something may be released at `now`, as far as is known, the
    /// first of them first.
    pub fn coming(&mut self, now: Instant) -> impl Iterator<Item = LaneId> + '_ {
        self.look_behind(now);
        self.look_around(now);
        let scopes = self.ready.iter().filter_map(|id| self.roll.get(*id));
        let lasts = scopes.map(|scope| scope.waiting);
        lasts
            .filter(|last| *last != NOBODY)
            .map(|last| LaneId(self.lanes[last as usize].next))
    }

    /// Looks at the scope of what was released last, if nobody did since.
    fn look_behind(&mut self, now: Instant) {
        if let Some(id) = self.released_of.take()
            && self.roll.get(id).is_some()
        {
            self.look_at(id, now);
        }
    }

    /// Finds scopes to look at: once for each `now`, and once there are none left where that was not
    /// all.
    fn look_around(&mut self, now: Instant) {
        if self.advanced != Some(now) || self.ready.is_empty() && !self.drained {
            self.advanced = Some(now);
            self.advance(now);
        }
        if self.ready.is_empty() && self.uncapped.is_empty() {
            self.use_cap();
        }
    }

    fn next_to_look_at(&mut self) -> Option<ScopeId> {
        if let Some(id) = self.departing.pop_front() {
            return Some(id);
        }
        loop {
            let id = self
                .uncapped
                .pop_front()
                .or_else(|| self.ready.pop_front())?;
            // Entries of scopes that came to be looked at before their turn are void.
            if let Some(scope) = self.roll.get(id)
                && scope.queued == Queued::Ready
            {
                return Some(id);
            }
        }
    }

    /// Lets the scope that waited longest for the global cap be looked at before all others, if
    /// there is room.
    fn use_cap(&mut self) {
        if !self.has_place() {
            return;
        }
        while let Some(id) = self.capped.pop_front() {
            // Entries of scopes that are gone are void.
            if let Some(scope) = self.roll.get_mut(id)
                && std::mem::take(&mut scope.capped)
            {
                match scope.queued {
                    // It is looked at before those of `uncapped`.
                    Queued::Departing => return,
                    Queued::No | Queued::Ready => {}
                }
                // Its entry in `ready` is void once it was looked at.
                scope.queued = Queued::Ready;
                return self.uncapped.push_back(id);
            }
        }
    }

    /// When to call [`Throttle::poll`] next, if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        let queues = [&self.departing, &self.ready, &self.uncapped];
        if queues.iter().all(|queue| queue.is_empty()) && self.released_of.is_none() {
            self.wheel.next()
        } else {
            Some(Instant::START)
        }
    }

    /// Takes what is due off the wheel.
    fn advance(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due);
        self.drained = !self.wheel.expire(now, EXPIRE_BUDGET, &mut due);
        // Void entries go first. No such look waits for another, so the memory, in which millions of
        // scopes lie about, serves several at once; the looks below depend on one another.
        due.retain(|(id, at)| {
            let scope = self.roll.get(ScopeId(*id));
            scope.is_some_and(|scope| scope.wake_at == *at)
        });
        for (id, at) in due.drain(..) {
            let Some(scope) = self.roll.get_mut(ScopeId(id)) else {
                continue;
            };
            if scope.wake_at == at {
                scope.wake_at = Instant::FAR_FUTURE;
                let may_depart = self.may_depart_at(ScopeId(id)).is_some_and(|at| at <= now);
                self.look_now(ScopeId(id), may_depart);
            }
        }
        self.due = due;
    }

    fn try_depart(&mut self, id: ScopeId, now: Instant) -> Option<Grant> {
        // Each step but the last moves a ticket to another scope's line.
        let mut steps = Bound::new("find a departure", self.tickets.len() + 1);
        while steps.step() {
            let slot = self.first_departing(self.scope_ref(id));
            if slot == NOBODY {
                return None;
            }
            let ticket = self.tickets.by_slot(slot).expect("a ticket in line exists");
            if let Some((keeper, _)) = self.keeper_of_ticket(ticket, now) {
                if keeper == id {
                    return None;
                }
                self.leave_departing(id);
                self.stand_departing(slot, keeper);
                self.look_at(keeper, now);
                continue;
            }
            self.leave_departing(id);
            let key = self.tickets.key_of(slot).expect("a ticket in line exists");
            self.charge(TicketId(key), now);
            return Some(Grant::Depart(TicketId(key)));
        }
        None
    }

    fn try_release(&mut self, id: ScopeId, now: Instant) -> Looked {
        let Some(lane) = self.first_offered(id) else {
            return Looked::Nothing;
        };
        let claims = self.lanes[lane as usize].passed >= PASSED_MAX;
        if let Some((keeper, wants_place)) = self.keeper_of_lane(lane, now, claims) {
            if wants_place {
                self.lanes[lane as usize].want_place();
            }
            if keeper == id {
                return Looked::Nothing;
            }
            self.leave(id);
            let slot = &mut self.lanes[lane as usize];
            slot.passed = slot.passed.saturating_add(1);
            // Before those who do not claim, behind the one whose claim is older.
            let end = if self.scope_ref(keeper).claimed_by() == lane {
                End::Front
            } else {
                End::Back
            };
            self.stand(lane, keeper, end);
            self.look_at(keeper, now);
            return Looked::Moved;
        }
        if !self.has_place() {
            self.lanes[lane as usize].want_place();
            return Looked::Capped;
        }
        self.leave(id);
        self.account_waited(id, now);
        let ticket = self.reserve(lane, now);
        self.unclaim(lane, now);
        Looked::Granted(Grant::Release(LaneId(lane), ticket))
    }

    /// The scope that keeps a lane longest at `now`, and whether by a place it has not; `None` if
    /// none does. A claiming lane stops at the first, having claimed all before it.
    fn keeper_of_lane(&mut self, lane: u32, now: Instant, claims: bool) -> Option<(ScopeId, bool)> {
        if claims {
            return self.claim(lane, now);
        }
        let state = &self.lanes[lane as usize];
        let mut keeper: Option<(ScopeId, Instant, bool)> = None;
        for id in state.scopes() {
            let scope = self.scope_ref(*id);
            let (at, wants_place) = match scope.releases_for(lane, state.cost(*id), now) {
                Some(at) if at <= now => continue,
                Some(at) => (at, false),
                None => (Instant::FAR_FUTURE, true),
            };
            if keeper.is_none_or(|(_, latest, _)| at > latest) {
                keeper = Some((*id, at, wants_place));
            }
        }
        keeper.map(|(id, _, wants_place)| (id, wants_place))
    }

    /// Claims a lane's scopes, all in one order, so that no two wait for each other, up to the first
    /// that keeps it.
    fn claim(&mut self, lane: u32, now: Instant) -> Option<(ScopeId, bool)> {
        let mut scopes = self.lanes[lane as usize].scopes_apart();
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

    /// What a lane waits for that a scope keeps.
    pub(super) fn cause(
        &self,
        keeper: ScopeId,
        cost: f64,
        wants_place: bool,
        now: Instant,
    ) -> Cause {
        let scope = self.scope_ref(keeper);
        if wants_place {
            return Cause::Concurrency;
        }
        if scope.fits_at(cost, now) > now {
            return Cause::Quota;
        }
        Cause::of(scope.slowest_rule(now), scope.is_held(now))
    }

    /// The scope whose gap keeps a ready ticket longest at `now`, and until when.
    fn keeper_of_ticket(&self, ticket: &Ticket, now: Instant) -> Option<(ScopeId, Instant)> {
        ticket
            .held
            .iter()
            .map(|held| {
                let scope = self.scope_ref(held.id);
                let at = if scope.has_room_on_the_wire() {
                    scope.departs_at().max(ticket.due)
                } else {
                    // Its places were taken before there were fewer.
                    Instant::FAR_FUTURE
                };
                (held.id, at)
            })
            .filter(|(_, at)| *at > now)
            .max_by_key(|(_, at)| *at)
    }

    /// Forgets the scope if nothing is left of it, else sees to it that it is looked at in time.
    fn settle(&mut self, id: ScopeId, now: Instant) {
        if !self.forget_if_blank(id, now) {
            self.look_at(id, now);
        }
    }

    /// Sees to it that the scope is looked at when it can next do something: now or by the wheel.
    fn look_at(&mut self, id: ScopeId, now: Instant) {
        // Of all that is done for a request this is done most often: the scope is found once.
        if self.released_of == Some(id) {
            self.released_of = None;
        }
        let scope = self.scope_ref(id);
        let (queued, wake_at) = (scope.queued, scope.wake_at);
        let (departing, waiting) = (self.first_departing(scope), self.first_waiting(scope));
        let departs = departing != NOBODY && scope.has_room_on_the_wire();
        let releases = waiting != NOBODY && scope.has_place();
        // Both go by the gap, and it is dear.
        let departs_at = match departs || releases {
            true => scope.departs_at(),
            false => Instant::START,
        };
        let departs = departs.then(|| departs_at.max(self.ticket_at(departing).due));
        let first = (waiting != NOBODY).then(|| {
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
        // What waits for the global cap is looked at when there is room, not when it is due.
        let at = self.acts_at(scope, departs, first.filter(|_| !scope.capped));
        self.account_waiting(id, scope.account, first, now);
        let Some(at) = at else {
            return;
        };
        match queued {
            Queued::Departing => {}
            Queued::Ready if departing == NOBODY => {}
            _ if at <= now => self.look_now(id, departs.is_some_and(|at| at <= now)),
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
        if self.scope_ref(id).departing != NOBODY {
            self.look_at(id, now);
        }
    }

    fn look_now(&mut self, id: ScopeId, may_depart: bool) {
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

    /// When the first of the scope's prepared requests may depart, if there is one.
    fn may_depart_at(&self, id: ScopeId) -> Option<Instant> {
        let scope = self.scope_ref(id);
        let first = self.first_departing(scope);
        (first != NOBODY && scope.has_room_on_the_wire())
            .then(|| scope.departs_at().max(self.ticket_at(first).due))
    }

    /// When the scope can next let something go, or be forgotten.
    fn acts_at(
        &self,
        scope: &Scope,
        departs: Option<Instant>,
        first: Option<FirstInLine>,
    ) -> Option<Instant> {
        // Claimed for a lane that waits elsewhere: looked at again when the claim ends.
        let first = first.filter(|first| scope.is_free_for(first.lane));
        let releases = first.and_then(|first| first.releases);
        match (departs, releases) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (None, None) => scope.blank_at(),
            (one, other) => one.or(other),
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("scopes", &self.roll.len())
            .field("lanes", &self.lanes.len())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// The lane that stands first in a scope's line.
#[derive(Clone, Copy)]
struct FirstInLine {
    lane: u32,
    /// It has something to send; if not, it just still stands there.
    is_offered: bool,
    /// What its request is expected to cost the scope.
    cost: f64,
    /// When the scope lets it go; `None` while every place is taken.
    releases: Option<Instant>,
}

/// What came of looking at a scope's first waiter.
enum Looked {
    Granted(Grant),
    Moved,
    Capped,
    Nothing,
}
