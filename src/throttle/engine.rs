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

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use smallvec::SmallVec;

use super::scope::{Line, Profile, Queued, Scope, ScopeId};
use super::settings::{ScopePatch, ScopeSettings, Settings};
use super::signal::Signal;
use super::strategy::{Pace, Policy, StrategyMaker};
use crate::base::intern::Interner;
use crate::base::rng::Rng;
use crate::base::slab::{Key, Slab};
use crate::base::time::Instant;
use crate::base::wheel::PacingWheel;

/// When each lane may send.
pub struct Throttle {
    settings: Settings,
    default: Rc<Profile>,
    profiles: BTreeMap<String, Rc<Profile>>,
    strategies: Option<StrategyMaker>,
    names: Interner,
    scopes: Vec<Option<Scope>>,
    lanes: Vec<Lane>,
    lanes_free: Vec<u32>,
    tickets: Slab<Ticket>,
    wheel: PacingWheel,
    due: Vec<(u32, Instant)>,
    ready: VecDeque<ScopeId>,
    /// Those who waited for the global cap and for whom there is room: before all others.
    let_in: VecDeque<ScopeId>,
    capped: VecDeque<ScopeId>,
    in_flight: usize,
    /// Requests are released; if not, only departures are granted.
    releasing: bool,
    rng: Rng,
}

/// A lane, by number. Numbers are used again once a lane is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// A released request: its places in all its scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketId(Key);

impl TicketId {
    /// Small, dense and its own while it is not given back: an index for the caller's table.
    pub fn slot(self) -> usize {
        self.0.slot as usize
    }
}

/// What the engine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The lane's next request may take a connection; its places are reserved under the ticket.
    Release(LaneId, TicketId),
    /// The request of this ticket departs now: its gap is charged.
    Depart(TicketId),
}

#[derive(Debug)]
struct Lane {
    scopes: SmallVec<[ScopeId; 2]>,
    state: Waiting,
    /// The next in the line it stands in.
    next: u32,
    /// It stands in some scope's line (perhaps without waiting any more).
    linked: bool,
    /// Times it was first and could not go for another scope's sake.
    passed: u8,
    /// It waited for a place, not for time: it is due when it gets one.
    wanted_place: bool,
    offered_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Closed,
    Idle,
    Offered,
}

#[derive(Debug)]
struct Ticket {
    scopes: SmallVec<[(ScopeId, u16); 2]>,
    /// No gap is asked about before this (slots, and when the lane was offered).
    due: Instant,
    /// The gap that was asked for, once departed.
    gap: Duration,
    state: TicketState,
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TicketState {
    Preparing,
    Ready,
    Departed,
}

/// A lane that was first this often and could not go claims its scopes, in order of their numbers.
const PASSED_MAX: u8 = 3;

/// Wheel entries taken per call of [`Throttle::poll`], so that a turn stays short.
const EXPIRE_BUDGET: usize = 1024;

impl Throttle {
    /// An engine in which nothing waits. `seed` decides every jitter.
    pub fn new(settings: Settings, seed: u64, start: Instant) -> Self {
        let default = Rc::new(profile(settings.default.clone()));
        let profiles = settings
            .scopes
            .iter()
            .map(|(name, patch)| {
                let patched = patched(&settings.default, patch);
                (name.clone(), Rc::new(profile(patched)))
            })
            .collect();
        Throttle {
            settings,
            default,
            profiles,
            strategies: None,
            names: Interner::new(),
            scopes: Vec::new(),
            lanes: Vec::new(),
            lanes_free: Vec::new(),
            tickets: Slab::new(),
            wheel: PacingWheel::new(start),
            due: Vec::new(),
            ready: VecDeque::new(),
            let_in: VecDeque::new(),
            capped: VecDeque::new(),
            in_flight: 0,
            releasing: true,
            rng: Rng::from_seed(seed),
        }
    }

    /// Lets `maker` choose the strategy of each scope that comes to be from now on.
    pub fn set_strategies(&mut self, maker: StrategyMaker) {
        self.strategies = Some(maker);
    }

    /// Caps the requests in flight in all (open files may allow fewer than the settings say).
    pub fn set_in_flight_max(&mut self, max: usize) {
        self.settings.concurrent_requests = max.max(1);
    }

    /// Stops or resumes releasing. What was released may depart all the same.
    pub fn set_releasing(&mut self, on: bool) {
        self.releasing = on;
    }

    fn has_place(&self) -> bool {
        self.releasing && self.in_flight < self.settings.concurrent_requests
    }

    /// The scope of a name, made if it is new.
    pub fn scope(&mut self, name: &str) -> ScopeId {
        let id = self.names.intern(name);
        let index = id as usize;
        if self.scopes.len() <= index {
            self.scopes.resize_with(index + 1, || None);
        }
        if self.scopes[index].is_none() {
            let profile = Rc::clone(self.profiles.get(name).unwrap_or(&self.default));
            let custom = self.strategies.as_ref().and_then(|maker| maker(name));
            let policy = match custom {
                Some(strategy) => Policy::Custom(strategy),
                None => Policy::built_in(profile.autothrottle.as_ref()),
            };
            self.scopes[index] = Some(Scope::new(profile, policy));
        }
        ScopeId(id)
    }

    /// The scope of an address (`CONCURRENT_REQUESTS_PER_IP`), if that is switched on.
    ///
    /// It caps what is in flight there and paces nothing else, unless it has settings of its own.
    pub fn address_scope(&mut self, address: std::net::IpAddr) -> Option<ScopeId> {
        let concurrency = self.settings.concurrent_requests_per_ip;
        if concurrency == 0 {
            return None;
        }
        let name = format!("ip/{address}");
        if !self.profiles.contains_key(&name) {
            return Some(self.implicit_scope(&name, |settings| {
                settings.concurrency = concurrency;
            }));
        }
        Some(self.scope(&name))
    }

    /// The scope `host/NAME` that honours a Crawl-delay, or the host's present one made slower.
    ///
    /// The delay is never undercut; one request is in flight at a time. The larger of several
    /// delays holds (F51).
    pub fn crawl_delay_scope(&mut self, host: &str, delay: Duration) -> ScopeId {
        let delay = delay.min(self.settings.robotstxt_max_delay);
        let id = self.implicit_scope(&format!("host/{host}"), |_| {});
        let scope = self.scope_mut(id);
        scope.floor = scope.floor.max(delay);
        id
    }

    /// Makes a scope's gap run from the last departure of a lane's scopes: the lane was sent from
    /// before this scope was known to be one of its own.
    pub fn follow_lane(&mut self, scope: ScopeId, lane: LaneId) {
        let scopes = &self.lanes[lane.0 as usize].scopes;
        let sent = scopes
            .iter()
            .filter_map(|id| self.scope_ref(*id).last_sent());
        if let Some(sent) = sent.max() {
            self.scope_mut(scope).follow(sent);
        }
    }

    /// Whether Crawl-delay is honoured for this scope. Where the user gave the scope a delay of its
    /// own that holds instead (F54).
    pub fn heeds_crawl_delay(&self, scope: &str) -> bool {
        let own = self.settings.scopes.get(scope).and_then(|s| s.delay);
        self.settings.robotstxt_obey && own.is_none()
    }

    fn implicit_scope(&mut self, name: &str, adjust: impl FnOnce(&mut ScopeSettings)) -> ScopeId {
        if let Some(id) = self.names.get(name)
            && self.scopes[id as usize].is_some()
        {
            return ScopeId(id);
        }
        let mut settings = ScopeSettings {
            concurrency: 1,
            delay: Duration::ZERO,
            delay_per_slot: Duration::ZERO,
            jitter: super::settings::Jitter::NONE,
            autothrottle: None,
        };
        adjust(&mut settings);
        let id = self.names.intern(name);
        let index = id as usize;
        if self.scopes.len() <= index {
            self.scopes.resize_with(index + 1, || None);
        }
        self.scopes[index] = Some(Scope::new(Rc::new(profile(settings)), Policy::Fixed));
        ScopeId(id)
    }

    /// The name of a scope.
    pub fn scope_name(&self, scope: ScopeId) -> &str {
        self.names.name(scope.0)
    }

    /// The present pace of a scope: delay before jitter, and concurrency.
    pub fn pace(&self, scope: ScopeId) -> Pace {
        self.scope_ref(scope).pace
    }

    /// Opens a lane under these scopes. Without any it is bound by the global cap alone.
    pub fn open_lane(&mut self, scopes: &[ScopeId]) -> LaneId {
        let mut lane = Lane {
            scopes: SmallVec::new(),
            state: Waiting::Idle,
            next: Line::NOBODY,
            linked: false,
            passed: 0,
            wanted_place: false,
            offered_at: Instant::START,
        };
        lane.scopes = self.adopt(scopes);
        if let Some(id) = self.lanes_free.pop() {
            self.lanes[id as usize] = lane;
            LaneId(id)
        } else {
            self.lanes.push(lane);
            LaneId((self.lanes.len() - 1) as u32)
        }
    }

    /// Sorted, without doubles, each counted as named by one more lane.
    fn adopt(&mut self, scopes: &[ScopeId]) -> SmallVec<[ScopeId; 2]> {
        let mut scopes: SmallVec<[ScopeId; 2]> = SmallVec::from_slice(scopes);
        if scopes.is_empty() {
            // No scope means no limit but the global cap (F18): one that never says no.
            scopes.push(self.implicit_scope("", |settings| settings.concurrency = u32::MAX));
        }
        scopes.sort_unstable();
        scopes.dedup();
        for scope in &scopes {
            self.scope_mut(*scope).lanes += 1;
        }
        scopes
    }

    /// The scopes of a lane, in order of their numbers.
    pub fn lane_scopes(&self, lane: LaneId) -> &[ScopeId] {
        &self.lanes[lane.0 as usize].scopes
    }

    /// Adds a scope to a lane that does not wait now (an address once it is known, a Crawl-delay).
    pub fn add_scope(&mut self, lane: LaneId, scope: ScopeId, now: Instant) {
        let old = std::mem::take(&mut self.lanes[lane.0 as usize].scopes);
        if old.contains(&scope) {
            self.lanes[lane.0 as usize].scopes = old;
            return;
        }
        let mut wanted = old.clone();
        wanted.push(scope);
        self.lanes[lane.0 as usize].scopes = self.adopt(&wanted);
        self.disown(&old, now);
    }

    /// Takes a scope from a lane that does not wait now (an address that is the host's no more).
    pub fn remove_scope(&mut self, lane: LaneId, scope: ScopeId, now: Instant) {
        let scopes = &mut self.lanes[lane.0 as usize].scopes;
        if let Some(at) = scopes.iter().position(|other| *other == scope) {
            scopes.remove(at);
            self.disown(&[scope], now);
        }
    }

    /// Closes a lane that does not wait and whose requests have ended.
    pub fn close_lane(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        assert_eq!(slot.state, Waiting::Idle, "a lane that waits is not closed");
        slot.state = Waiting::Closed;
        let scopes = std::mem::take(&mut slot.scopes);
        if !slot.linked {
            self.lanes_free.push(lane.0);
        }
        self.disown(&scopes, now);
    }

    fn disown(&mut self, scopes: &[ScopeId], now: Instant) {
        for scope in scopes {
            self.scope_mut(*scope).lanes -= 1;
            self.settle(*scope, now);
        }
    }

    /// The lane has something to send. Offering twice is offering once.
    pub fn offer(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        assert_ne!(slot.state, Waiting::Closed, "a closed lane sends nothing");
        if slot.state == Waiting::Offered {
            return;
        }
        slot.state = Waiting::Offered;
        slot.offered_at = now;
        slot.passed = 0;
        slot.wanted_place = false;
        let linked = slot.linked;
        let scopes = slot.scopes.clone();
        if !linked {
            self.stand(lane.0, scopes[0], End::Back);
        }
        // A lane that was withdrawn still stands in one of these lines, and now waits again.
        for id in &scopes[..if linked { scopes.len() } else { 1 }] {
            self.look_at(*id, now);
        }
    }

    /// The lane has nothing to send any more.
    pub fn withdraw(&mut self, lane: LaneId, now: Instant) {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.state == Waiting::Offered {
            slot.state = Waiting::Idle;
            self.unclaim(lane.0, now);
        }
    }

    /// The next thing that may happen at `now`; `None` when all wait for time or for one another.
    pub fn poll(&mut self, now: Instant) -> Option<Grant> {
        self.look_around(now);
        while let Some(id) = self.next_to_look_at() {
            let scope = self.scope_mut(id);
            scope.queued = Queued::No;
            if let Some(grant) = self.try_depart(id, now) {
                self.look_at(id, now);
                return Some(grant);
            }
            match self.try_release(id, now) {
                Looked::Granted(grant) => {
                    self.look_at(id, now);
                    return Some(grant);
                }
                Looked::Moved => self.look_at(id, now),
                Looked::Capped => {
                    self.scope_mut(id).queued = Queued::Capped;
                    self.capped.push_back(id);
                    // Departures of a capped scope still need the wheel.
                    self.arm_departure(id, now);
                }
                Looked::Nothing => self.settle(id, now),
            }
            self.look_around(now);
        }
        None
    }

    /// Finds scopes to look at once there are none left.
    fn look_around(&mut self, now: Instant) {
        if self.ready.is_empty() {
            self.advance(now);
        }
        if self.ready.is_empty() && self.let_in.is_empty() {
            self.use_cap();
        }
    }

    fn next_to_look_at(&mut self) -> Option<ScopeId> {
        self.let_in.pop_front().or_else(|| self.ready.pop_front())
    }

    /// Lets the scope that waited longest for the global cap be looked at before all others, if
    /// there is room.
    fn use_cap(&mut self) {
        if !self.has_place() {
            return;
        }
        while let Some(id) = self.capped.pop_front() {
            // Entries of scopes that came to be looked at otherwise are void.
            if let Some(scope) = &mut self.scopes[id.0 as usize]
                && scope.queued == Queued::Capped
            {
                scope.queued = Queued::Ready;
                return self.let_in.push_back(id);
            }
        }
    }

    /// When to call [`Throttle::poll`] next, if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        if self.ready.is_empty() && self.let_in.is_empty() {
            self.wheel.next()
        } else {
            Some(Instant::START)
        }
    }

    /// Takes what is due off the wheel.
    fn advance(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, EXPIRE_BUDGET, &mut due);
        for (id, at) in due.drain(..) {
            let Some(scope) = self.scopes[id as usize].as_mut() else {
                continue;
            };
            if scope.wake_at == at {
                scope.wake_at = Instant::FAR_FUTURE;
                self.look_now(ScopeId(id));
            }
        }
        self.due = due;
    }

    fn try_depart(&mut self, id: ScopeId, now: Instant) -> Option<Grant> {
        loop {
            let slot = self.scope_ref(id).departing.first;
            if slot == Line::NOBODY {
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
    }

    fn try_release(&mut self, id: ScopeId, now: Instant) -> Looked {
        let Some(lane) = self.first_offered(id) else {
            return Looked::Nothing;
        };
        let claims = self.lanes[lane as usize].passed >= PASSED_MAX;
        if let Some((keeper, wants_place)) = self.keeper_of_lane(lane, now, claims) {
            self.lanes[lane as usize].wanted_place |= wants_place;
            if keeper == id {
                return Looked::Nothing;
            }
            self.leave(id);
            let slot = &mut self.lanes[lane as usize];
            slot.passed = slot.passed.saturating_add(1);
            // Before those who do not claim, behind the one whose claim is older.
            let end = if self.scope_ref(keeper).claimed_by == lane {
                End::Front
            } else {
                End::Back
            };
            self.stand(lane, keeper, end);
            self.look_at(keeper, now);
            return Looked::Moved;
        }
        if !self.has_place() {
            self.lanes[lane as usize].wanted_place = true;
            return Looked::Capped;
        }
        self.leave(id);
        let ticket = self.reserve(lane, now);
        self.unclaim(lane, now);
        Looked::Granted(Grant::Release(LaneId(lane), ticket))
    }

    /// The first in line that still waits; those who do not any more leave the line.
    fn first_offered(&mut self, id: ScopeId) -> Option<u32> {
        loop {
            let lane = self.scope_ref(id).waiting.first;
            if lane == Line::NOBODY {
                return None;
            }
            match self.lanes[lane as usize].state {
                Waiting::Offered => return Some(lane),
                Waiting::Idle => self.leave(id),
                Waiting::Closed => {
                    self.leave(id);
                    self.lanes_free.push(lane);
                }
            }
        }
    }

    /// The scope that keeps a lane longest at `now`, and whether by a place it has not; `None` if
    /// none does. A claiming lane stops at the first, having claimed all before it.
    fn keeper_of_lane(&mut self, lane: u32, now: Instant, claims: bool) -> Option<(ScopeId, bool)> {
        let scopes = self.lanes[lane as usize].scopes.clone();
        let mut keeper: Option<(ScopeId, Instant, bool)> = None;
        for id in scopes {
            let scope = self.scope_mut(id);
            let foreign = scope.claimed_by != Line::NOBODY && scope.claimed_by != lane;
            let at = if foreign { None } else { scope.releases_at() };
            if claims && !foreign {
                scope.claimed_by = lane;
            }
            let (at, wants_place) = match at {
                Some(at) if at <= now => continue,
                Some(at) => (at, false),
                None => (Instant::FAR_FUTURE, true),
            };
            if claims {
                return Some((id, wants_place));
            }
            if keeper.is_none_or(|(_, latest, _)| at > latest) {
                keeper = Some((id, at, wants_place));
            }
        }
        keeper.map(|(id, _, wants_place)| (id, wants_place))
    }

    /// The scope whose gap keeps a ready ticket longest at `now`, and until when.
    fn keeper_of_ticket(&self, ticket: &Ticket, now: Instant) -> Option<(ScopeId, Instant)> {
        ticket
            .scopes
            .iter()
            .map(|(id, _)| (*id, self.scope_ref(*id).departs_at().max(ticket.due)))
            .filter(|(_, at)| *at > now)
            .max_by_key(|(_, at)| *at)
    }

    fn reserve(&mut self, lane: u32, now: Instant) -> TicketId {
        self.in_flight += 1;
        let slot = &mut self.lanes[lane as usize];
        slot.state = Waiting::Idle;
        let mut due = if slot.wanted_place {
            now
        } else {
            slot.offered_at
        };
        let scopes = slot.scopes.clone();
        let places = scopes
            .iter()
            .map(|id| {
                let (slot, free_at) = self.scope_mut(*id).reserve();
                due = due.max(free_at);
                (*id, slot)
            })
            .collect();
        TicketId(self.tickets.insert(Ticket {
            scopes: places,
            due,
            gap: Duration::ZERO,
            state: TicketState::Preparing,
            next: Line::NOBODY,
        }))
    }

    /// Adds a scope to a released request, if it has a place: another address is about to be tried.
    pub fn try_add(&mut self, ticket: TicketId, scope: ScopeId) -> bool {
        let held = &self.ticket(ticket).scopes;
        if held.iter().any(|(other, _)| *other == scope) {
            return true;
        }
        let state = self.scope_mut(scope);
        if state.in_flight >= state.pace.concurrency {
            return false;
        }
        let (slot, _) = state.reserve();
        self.ticket_mut(ticket).scopes.push((scope, slot));
        true
    }

    /// The request's connection is ready. It departs by a later [`Grant::Depart`], in the order of
    /// becoming ready. `setup` is what it took from release, and teaches how far ahead to release.
    pub fn ready(&mut self, ticket: TicketId, setup: Duration, now: Instant) {
        let state = self.ticket_mut(ticket);
        assert_eq!(
            state.state,
            TicketState::Preparing,
            "a request is ready once"
        );
        state.state = TicketState::Ready;
        let scopes = state.scopes.clone();
        for (id, _) in &scopes {
            self.scope_mut(*id).learn_setup(setup);
        }
        let keeper = self
            .keeper_of_ticket(self.ticket(ticket), now)
            .map_or(scopes[0].0, |(id, _)| id);
        self.stand_departing(ticket.0.slot, keeper);
        self.look_at(keeper, now);
    }

    /// Charges the gap of a departing request to each of its scopes.
    fn charge(&mut self, ticket: TicketId, now: Instant) {
        let scopes = self.ticket(ticket).scopes.clone();
        let mut due = self.ticket(ticket).due;
        let mut gap = Duration::ZERO;
        for (id, slot) in &scopes {
            let jitter = self.scope_ref(*id).profile.settings.jitter;
            let factor = 1.0 + self.rng.range_f64(jitter.low, jitter.high);
            let scope = self.scope_mut(*id);
            due = due.max(scope.departs_at());
            if scope.last_sent().is_some() {
                gap = gap.max(scope.gap());
            }
            scope.depart(*slot, now, factor as f32);
        }
        let state = self.ticket_mut(ticket);
        state.state = TicketState::Departed;
        state.due = due;
        state.gap = gap;
    }

    /// The exact moment a departed request was sent: the next gap runs from here.
    pub fn sent(&mut self, ticket: TicketId, at: Instant, now: Instant) {
        for (id, slot) in self.ticket(ticket).scopes.clone() {
            self.scope_mut(id).sent(slot, at);
            self.look_at(id, now);
        }
    }

    /// Set-up failed: what was begun at `started` is charged as a send then.
    pub fn charge_failed(&mut self, ticket: TicketId, started: Instant) {
        if self.ticket(ticket).state != TicketState::Departed {
            self.leave_line_of(ticket);
            self.charge(ticket, started);
        }
    }

    /// When throttling allowed the departure.
    pub fn due(&self, ticket: TicketId) -> Instant {
        self.ticket(ticket).due
    }

    /// The gap that throttling asked for before this departure; zero before a scope's first.
    pub fn gap(&self, ticket: TicketId) -> Duration {
        self.ticket(ticket).gap
    }

    /// The scopes of a released request.
    pub fn ticket_scopes(&self, ticket: TicketId) -> impl Iterator<Item = ScopeId> + '_ {
        self.ticket(ticket).scopes.iter().map(|(id, _)| *id)
    }

    /// The answer to a departed request: each of its scopes may change its pace.
    pub fn answer(&mut self, ticket: TicketId, signal: &Signal, now: Instant) {
        for (id, _) in self.ticket(ticket).scopes.clone() {
            let scope = self.scope_mut(id);
            let profile = Rc::clone(&scope.profile);
            let mut pace = scope
                .policy
                .answer(&profile.settings, scope.pace, signal, now);
            pace.concurrency = pace.concurrency.max(1);
            if pace != scope.pace {
                scope.pace = pace;
                self.look_at(id, now);
            }
        }
    }

    /// Nothing of this scope departs before `until`. Holds combine by the latest.
    pub fn hold(&mut self, scope: ScopeId, until: Instant, now: Instant) {
        let state = self.scope_mut(scope);
        state.held_until = state.held_until.max(until);
        self.look_at(scope, now);
    }

    /// Gives back what an undeparted request had reserved: it never happened.
    pub fn cancel(&mut self, ticket: TicketId, now: Instant) {
        self.leave_line_of(ticket);
        self.release_places(ticket, now);
    }

    /// The exchange has ended: its places are free.
    pub fn finish(&mut self, ticket: TicketId, now: Instant) {
        self.leave_line_of(ticket);
        self.release_places(ticket, now);
    }

    fn release_places(&mut self, ticket: TicketId, now: Instant) {
        let ticket = self
            .tickets
            .remove(ticket.0)
            .expect("a ticket is given back once");
        let departed = ticket.state == TicketState::Departed;
        self.in_flight -= 1;
        // Those who wait for the cap come before those who just had a place.
        self.use_cap();
        for (id, slot) in ticket.scopes {
            self.scope_mut(id).free(slot, departed);
            self.settle(id, now);
        }
    }

    /// Forgets the scope if nothing is left of it, else sees to it that it is looked at in time.
    fn settle(&mut self, id: ScopeId, now: Instant) {
        self.forget_if_blank(id, now);
        if self.scopes[id.0 as usize].is_some() {
            self.look_at(id, now);
        }
    }

    /// A ready ticket that will not depart leaves the line it stands in.
    fn leave_line_of(&mut self, ticket: TicketId) {
        if self.ticket(ticket).state != TicketState::Ready {
            return;
        }
        let slot = ticket.0.slot;
        for (id, _) in self.ticket(ticket).scopes.clone() {
            let line = self.scope_ref(id).departing;
            let mut before = Line::NOBODY;
            let mut at = line.first;
            while at != Line::NOBODY && at != slot {
                before = at;
                at = self.ticket_at(at).next;
            }
            if at == slot {
                let next = self.ticket_at(slot).next;
                if before != Line::NOBODY {
                    self.ticket_at_mut(before).next = next;
                }
                let line = &mut self.scope_mut(id).departing;
                if line.first == slot {
                    line.first = next;
                }
                if line.last == slot {
                    line.last = before;
                }
                self.ticket_mut(ticket).state = TicketState::Preparing;
                return;
            }
        }
    }

    /// Sees to it that the scope is looked at when it can next do something: now or by the wheel.
    fn look_at(&mut self, id: ScopeId, now: Instant) {
        let Some(at) = self.acts_at(id) else {
            return;
        };
        let scope = self.scope_mut(id);
        match scope.queued {
            Queued::Ready => {}
            Queued::Capped if scope.departing.is_empty() => {}
            _ if at <= now => self.look_now(id),
            Queued::Capped | Queued::No => {
                if at < scope.wake_at {
                    scope.wake_at = at;
                    self.wheel.insert(at, id.0);
                }
            }
        }
    }

    fn arm_departure(&mut self, id: ScopeId, now: Instant) {
        if !self.scope_ref(id).departing.is_empty() {
            self.look_at(id, now);
        }
    }

    fn look_now(&mut self, id: ScopeId) {
        let scope = self.scope_mut(id);
        match scope.queued {
            Queued::Ready => return,
            // Its entry in the queue of the capped is void from now on.
            Queued::Capped | Queued::No => scope.queued = Queued::Ready,
        }
        self.ready.push_back(id);
    }

    /// When the scope can next let something go, or be forgotten.
    fn acts_at(&self, id: ScopeId) -> Option<Instant> {
        let scope = self.scope_ref(id);
        let departs = (!scope.departing.is_empty()).then(|| {
            let first = self.ticket_at(scope.departing.first);
            scope.departs_at().max(first.due)
        });
        // Claimed for a lane that waits elsewhere: looked at again when the claim ends.
        let claimed = scope.claimed_by != Line::NOBODY && scope.claimed_by != scope.waiting.first;
        let releases = if scope.waiting.is_empty() || claimed {
            None
        } else {
            scope.releases_at()
        };
        match (departs, releases) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (None, None) => scope.blank_at(),
            (one, other) => one.or(other),
        }
    }

    fn unclaim(&mut self, lane: u32, now: Instant) {
        if self.lanes[lane as usize].passed < PASSED_MAX {
            return;
        }
        self.lanes[lane as usize].passed = 0;
        for id in self.lanes[lane as usize].scopes.clone() {
            let scope = self.scope_mut(id);
            if scope.claimed_by == lane {
                scope.claimed_by = Line::NOBODY;
                self.look_at(id, now);
            }
        }
    }

    fn forget_if_blank(&mut self, id: ScopeId, now: Instant) {
        if let Some(scope) = &self.scopes[id.0 as usize]
            && scope.is_blank(now)
        {
            self.scopes[id.0 as usize] = None;
            self.names.remove(id.0);
        }
    }

    fn stand(&mut self, lane: u32, id: ScopeId, end: End) {
        let line = self.scope_ref(id).waiting;
        let slot = &mut self.lanes[lane as usize];
        slot.linked = true;
        slot.next = Line::NOBODY;
        let line = if line.is_empty() {
            Line {
                first: lane,
                last: lane,
            }
        } else if end == End::Front {
            slot.next = line.first;
            Line {
                first: lane,
                ..line
            }
        } else {
            self.lanes[line.last as usize].next = lane;
            Line { last: lane, ..line }
        };
        self.scope_mut(id).waiting = line;
    }

    /// The first lane leaves the line.
    fn leave(&mut self, id: ScopeId) {
        let first = self.scope_ref(id).waiting.first;
        let slot = &mut self.lanes[first as usize];
        slot.linked = false;
        let next = std::mem::replace(&mut slot.next, Line::NOBODY);
        let line = &mut self.scope_mut(id).waiting;
        line.first = next;
        if next == Line::NOBODY {
            line.last = Line::NOBODY;
        }
    }

    fn stand_departing(&mut self, slot: u32, id: ScopeId) {
        self.ticket_at_mut(slot).next = Line::NOBODY;
        let line = self.scope_ref(id).departing;
        if line.is_empty() {
            self.scope_mut(id).departing = Line {
                first: slot,
                last: slot,
            };
        } else {
            self.ticket_at_mut(line.last).next = slot;
            self.scope_mut(id).departing.last = slot;
        }
    }

    /// The first ticket leaves the line.
    fn leave_departing(&mut self, id: ScopeId) {
        let first = self.scope_ref(id).departing.first;
        let next = self.ticket_at(first).next;
        let line = &mut self.scope_mut(id).departing;
        line.first = next;
        if next == Line::NOBODY {
            line.last = Line::NOBODY;
        }
    }

    /// Requests released and not finished.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Scopes that there is state for.
    pub fn scopes_len(&self) -> usize {
        self.scopes.iter().flatten().count()
    }

    /// Scopes with a lane that waits for them.
    pub fn scopes_waiting(&self) -> usize {
        let waits = |scope: &&Scope| !scope.waiting.is_empty();
        self.scopes.iter().flatten().filter(waits).count()
    }

    fn scope_ref(&self, id: ScopeId) -> &Scope {
        self.scopes[id.0 as usize]
            .as_ref()
            .expect("a scope that is named exists")
    }

    fn scope_mut(&mut self, id: ScopeId) -> &mut Scope {
        self.scopes[id.0 as usize]
            .as_mut()
            .expect("a scope that is named exists")
    }

    fn ticket(&self, id: TicketId) -> &Ticket {
        self.tickets
            .get(id.0)
            .expect("a ticket is used until it is given back")
    }

    fn ticket_mut(&mut self, id: TicketId) -> &mut Ticket {
        self.tickets
            .get_mut(id.0)
            .expect("a ticket is used until it is given back")
    }

    fn ticket_at(&self, slot: u32) -> &Ticket {
        self.tickets.by_slot(slot).expect("a ticket in line exists")
    }

    fn ticket_at_mut(&mut self, slot: u32) -> &mut Ticket {
        self.tickets
            .by_slot_mut(slot)
            .expect("a ticket in line exists")
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("scopes", &self.scopes.len())
            .field("lanes", &self.lanes.len())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// Where in a line a lane stands: a claiming one goes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// What came of looking at a scope's first waiter.
enum Looked {
    Granted(Grant),
    Moved,
    Capped,
    Nothing,
}

fn profile(settings: ScopeSettings) -> Profile {
    let autothrottle = settings.autothrottle.clone().map(Rc::new);
    Profile {
        settings,
        autothrottle,
    }
}

/// The settings of a scope that says something of its own; the rest is the default's.
pub fn patched(default: &ScopeSettings, patch: &ScopePatch) -> ScopeSettings {
    let delay_per_slot = match (patch.delay_per_slot, patch.delay) {
        (Some(own), _) => own,
        // A delay of its own speaks for the whole scope.
        (None, Some(_)) => Duration::ZERO,
        (None, None) => default.delay_per_slot,
    };
    ScopeSettings {
        concurrency: patch.concurrency.unwrap_or(default.concurrency),
        delay: patch.delay.unwrap_or(default.delay),
        delay_per_slot,
        jitter: patch.jitter.unwrap_or(default.jitter),
        autothrottle: default.autothrottle.clone(),
    }
}
