//! The state of a crawl and its turn: wait; take what arrived; fire what is due; submit.

use std::collections::{BTreeSet, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use super::config::{Config, PublicHosts};
use super::embed::feed::Feed;
use super::embed::found::Found;
use super::embed::inbox::{Inbox, Waiting};
use super::embed::pull::Pull;
use super::embed::steer::{Ended, Unwanted};
use super::life::credentials::Credentials;
use super::life::delayed::{Crowd, Delayed};
use super::life::flight::{Flight, Socket};
use super::life::guard::Guard;
use super::life::intake::Intake;
use super::life::mapping::Mapping;
use super::life::memory::MemoryRoom;
use super::life::origins::Ways;
use super::life::outage::Outage;
use super::life::pieces::Pieces;
use super::life::ports::Ports;
use super::life::room::Room;
use super::life::spare::Spare;
use super::life::storage::Storage;
use super::life::work::Work;
use super::pacing::{MOST, MOST_RUNNING, Pacing};
use super::phase::Phase;
use super::probe::OpenLoop;
use super::stats::{Progress, Stats};
use super::timer::{Deadlines, Timer};
use crate::base::disk::{DiskDone, DiskJob};
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::base::secret::Secret;
use crate::base::slab::{Key, Slab};
use crate::base::time::Instant;
#[cfg(feature = "cookies")]
use crate::fetch::cookies::Jar;
use crate::fetch::pool::Pool;
use crate::fetch::resolver::{Resolver, SocketId};
use crate::fetch::tls::TlsConfig;
use crate::frontier::Frontier;
use crate::frontier::job::Job;
use crate::io::{Event, Io, Token};
use crate::sink::Sink;
use crate::sink::later::Leads;
use crate::throttle::engine::{Grant, LaneId, Throttle};
use crate::throttle::map::ScopeMap;
use crate::throttle::signal::Classify;

/// A crawl on a back end.
pub(super) struct Core<I: Io> {
    pub io: I,
    pub now: Instant,
    pub config: Arc<Config>,
    pub inbox: Inbox,
    /// Where it fetches requests for itself.
    pub feed: Option<Box<Feed>>,
    /// Requests that come in by the clock, where this is no crawl but a probe.
    pub load: Option<Box<OpenLoop>>,
    /// Links from outside, and the pages that are held open for them.
    pub found: Arc<Found>,
    /// The same, as the sink has it.
    pub leads: Arc<dyn Leads>,
    pub frontier: Frontier,
    pub throttle: Throttle,
    pub resolver: Resolver,
    pub tls: TlsConfig,
    /// Cookies, where they are kept.
    #[cfg(feature = "cookies")]
    pub jar: Option<Jar>,
    pub guard: Guard,
    /// The header fields of every request.
    pub credentials: Credentials,
    pub public_hosts: PublicHosts,
    pub pool: Pool,
    pub ways: Ways,
    /// Requests that our machine has room for.
    pub room: Room,
    /// Where our machine has no local port left.
    pub ports: Ports,
    /// Whether our network works.
    pub outage: Outage,
    pub flights: Slab<Flight>,
    /// Replies that are worked on.
    pub work: Work,
    pub sockets: Slab<Socket>,
    /// The attempt behind each of the throttle's tickets, by the ticket's slot.
    pub flight_of: Vec<Option<Key>>,
    pub deadlines: Deadlines,
    /// Lanes whose host is being resolved.
    pub resolving: usize,
    /// When lanes asked for their host's address.
    pub asked: HashMap<LaneId, Instant, Secret>,
    /// How long lookups took whose lane has not sent anything since.
    pub looked_up: HashMap<LaneId, Duration, Secret>,
    pub dns_sockets: HashMap<SocketId, Key, Secret>,
    /// Lanes that the resolver had no room for.
    pub unresolved: VecDeque<LaneId>,
    /// Connections that are ready for the request they were made for, and have more to say.
    pub secured: Vec<Key>,
    /// Sockets that close once what was queued for them has left.
    pub parting: Vec<Key>,
    /// Sockets whose reading is stopped, in the order of stopping.
    pub paused: VecDeque<Key>,
    /// The one that reads on though there is no room.
    pub favoured: Option<Key>,
    /// Bytes of all bodies that are buffered.
    pub buffered: usize,
    pub sink: Box<dyn Sink>,
    /// The sink's other end, where the crawl's owner takes the results.
    pub pull: Option<Pull>,
    pub disk: Vec<DiskJob>,
    pub classify: Box<dyn Classify>,
    pub scope_map: Box<dyn ScopeMap>,
    /// Requests whose scopes are still to be told.
    pub mapping: Mapping,
    pub delayed: Delayed,
    pub crowd: Crowd,
    pub stats: Stats,
    pub phase: Phase,
    /// It was told to let nothing depart.
    pub halted: bool,
    /// Requests that ended unsent and that the sink is still to hear of.
    pub ending: VecDeque<Ended>,
    pub unwanted: Unwanted,
    /// Attempts that were cancelled, for `pending.jsonl`.
    pub cancelled: Vec<Job>,
    pub scratch: Vec<u8>,
    /// Bodies that the sink takes while they come.
    pub pieces: Pieces,
    /// Memory for attempts to come.
    pub spare: Spare,
    /// Scopes of the user's whose delay was warned of: no more than there are in the settings.
    pub warned: BTreeSet<String>,
    pub(super) events: Vec<Event>,
    /// What a turn has sent so far, each time it looks at the clock: which connection, and gone when.
    pub(super) sent: Vec<(Key, Instant)>,
    /// So much of the news that the next wait tells has been looked at.
    pub(super) seen: usize,
    /// When it wakes unasked; `None` while it sleeps for want of anything to do.
    pub(super) next_tick: Option<Instant>,
    pub(super) stats_path: Option<std::path::PathBuf>,
    pub(super) stats_while: Option<Box<dyn Fn() -> bool + Send>>,
    pub(super) stats_written: Instant,
    /// Replacements of `stats.json` that the disk has not done yet.
    pub(super) stats_under_way: usize,
    /// Where the sink was full when the last turn ended it is asked again even if it is ready by now.
    pub intake: Intake,
    pub storage: Storage,
    pub memory: MemoryRoom,
    /// The descriptor carries the next deadline: a host may be waiting for it.
    pub(super) armed: bool,
    /// There is more to do than one turn takes.
    pub(super) unfinished: bool,
}

/// Grants taken in one turn, so that its length stays bounded.
const GRANTS_PER_TURN: usize = 256;
/// How many of them may be releases, each of which opens a connection: in the meantime others'
/// connections become ready and their requests late.
const RELEASES_PER_TURN: usize = 32;
/// So many scopes, and what belongs to them, are more than the processor's caches hold.
const SCOPES_BEYOND_CACHES: usize = 20_000;
/// After so many events what is due by then is released and departs, and after so many grants what
/// departs leaves: reading a page through or opening a connection takes as long as many a request may
/// be late.
const EVENTS_PER_DEPARTURE: usize = 16;
const GRANTS_PER_SUBMIT: usize = 8;
/// Timers that fire in one turn: a thousand hosts that fell silent together are given up together.
const TIMERS_PER_TURN: usize = 64;
/// Requests taken in from outside in one turn, a few microseconds each.
pub(super) const SUBMITTED_PER_TURN: usize = 64;
/// Requests whose scopes were told that go on in one turn.
const MAPPED_PER_TURN: usize = 64;
/// A turn this late means that the process, or its caller, did not run. No host can be blamed for that
/// time.
const LATE_FOR_HOSTS: Duration = Duration::from_secs(1);
/// How often statistics are written and sinks flushed.
const TICK: Duration = Duration::from_secs(1);
/// How often a sink that was not ready is asked again.
const ASK_SINK_EVERY: Duration = Duration::from_millis(5);
/// How often `stats.json` is replaced.
const STATS_EVERY: Duration = Duration::from_secs(3);
/// The tag of disk jobs that replace `stats.json`, which belong to no open file.
pub(super) const STATS_TAG: u64 = u64::MAX;

impl<I: Io> Core<I> {
    /// One turn. Waits for news until something is due, at most until `until`. Tells whether there was
    /// any: where there was, there soon is more.
    pub fn turn(&mut self, until: Option<Instant>) -> bool {
        self.armed = false;
        if let Some(pull) = &mut self.pull {
            pull.begin_turn();
        }
        self.work.begin_turn();
        self.pieces.begin_turn();
        let last = self.now;
        let deadline = self.next_deadline().into_iter().chain(until).min();
        let mut events = std::mem::take(&mut self.events);
        self.io.wait(deadline, &mut events);
        self.seen = 0;
        let had_news = !events.is_empty();
        self.begin_gaps(&events);
        self.see_time();
        let began = self.now;
        let due = deadline.map_or(began, |deadline| deadline.max(last));
        let late = began.saturating_since(due);
        if late >= LATE_FOR_HOSTS {
            self.frontier.excuse_hosts(late);
        }
        for (number, event) in events.drain(..).enumerate() {
            self.take(event);
            if number % EVENTS_PER_DEPARTURE == EVENTS_PER_DEPARTURE - 1 {
                self.let_depart();
            }
        }
        self.events = events;
        // What fell due in the meantime leaves in this turn, not after the next one's news.
        self.see_time();
        self.unfinished = false;
        self.apply_commands();
        self.drain_inbox();
        self.tell_ended();
        self.arrive();
        self.fire();
        self.grant();
        if !self.work.is_empty() {
            // What departs now need not wait for that.
            self.io.submit();
            self.work_on(false);
        }
        self.resolve_on();
        self.resume();
        self.make_room();
        self.attend_outage();
        let is_stopped = self.halted
            || !self.storage.has_room()
            || !self.sink.is_ready()
            || self.outage.breaker().stops_all()
            || self.outage.breaker().is_all_silent();
        self.frontier.attend_hosts(is_stopped, self.now);
        self.tell_decisions();
        self.hand_to_disk();
        self.end_handshakes();
        self.io.submit();
        self.close_flushed();
        self.advance_phase();
        self.ask_sink();
        if let Some(pull) = &mut self.pull {
            pull.end_turn();
        }
        let ended = self.io.now();
        self.stats.lag.record(ended.saturating_since(began));
        let is_over = matches!(self.phase, Phase::Over { .. });
        if is_over || self.inbox.is_asked() {
            self.answer();
        }
        if is_over {
            self.inbox.close();
            self.found.close();
            if let Some(feed) = &mut self.feed {
                feed.conclude();
            }
        } else if self.next_tick.is_none() && !self.is_idle() {
            // Whoever sleeps is not woken for nothing.
            self.next_tick = Some(self.now + TICK);
        }
        had_news
    }

    /// Looks at the clock. A turn may do so again and again: what it sent has its gap from when it was
    /// gone by then, like all that was sent before.
    fn see_time(&mut self) {
        let mut news = std::mem::take(&mut self.sent);
        let untold = self.io.untold();
        let fresh = untold[self.seen..].iter();
        self.seen = untold.len();
        news.extend(fresh.filter_map(|event| match event {
            Event::Sent { token, gone, .. } => Some((key_of(*token), *gone)),
            _ => None,
        }));
        for (key, gone) in news.drain(..) {
            self.begin_gap(key, gone);
        }
        self.sent = news;
        self.now = self.io.now();
        self.tls.set_now(self.now);
        self.throttle.set_clock(self.now);
    }

    /// When there is something to do, if nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        let is_pulled = self.pull.as_ref().is_some_and(Pull::is_pressing);
        if self.unfinished || is_pulled || matches!(self.phase, Phase::Over { .. }) {
            return Some(self.now);
        }
        let draining = match self.phase {
            Phase::Draining { until, .. } => Some(until),
            _ => None,
        };
        // A sink that waits for another thread cannot say when it is ready: it is asked.
        let waits_for_sink = matches!(self.phase, Phase::Flushing { .. }) || self.intake.is_full();
        [
            waits_for_sink.then(|| self.now + self.asks_sink_every()),
            self.throttle.next_wake(),
            self.outage.next_timeout(),
            self.deadlines.next(),
            self.resolver.next_timeout(),
            self.pool.deadline(),
            self.frontier.next_wake(),
            self.delayed.next(),
            self.load.as_ref().and_then(|load| load.next()),
            self.next_tick,
            self.draws_at(),
            self.ends_at().filter(|_| self.is_running()),
            draining,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Connected {
                token,
                started,
                stamp,
            } => self.on_connected(key_of(token), started, stamp),
            Event::Failed { token, error, at } => self.on_failed(key_of(token), error, at),
            Event::Sent {
                token, at, slack, ..
            } => self.on_sent(key_of(token), at, slack),
            // Its gap is all that this is about.
            Event::Gone { .. } => {}
            Event::Received {
                token,
                chunk,
                stamp,
            } => {
                self.on_bytes(key_of(token), &chunk, stamp);
                self.io.release(chunk);
            }
            Event::Ended { token, stamp } => self.on_ended(key_of(token), stamp),
            Event::Disk(done) => self.on_disk(&done),
            Event::DiskFull(error) => self.on_disk_full(&error),
            Event::DiskRoom => self.on_disk_room(),
            Event::Woken => {}
        }
    }

    /// Takes in what was submitted from outside, as far as there is room.
    fn drain_inbox(&mut self) {
        self.stats.seeds_bad += self.inbox.take_bad_seeds();
        self.take_found();
        if self.phase != Phase::Running {
            return;
        }
        self.draw();
        let mut mapped = 0;
        while let Some(answer) = self.inbox.take_mapped() {
            self.on_mapped(answer);
            mapped += 1;
            if mapped == MAPPED_PER_TURN {
                // Nobody wakes a crawl for what it left.
                self.unfinished = true;
                break;
            }
        }
        let mut taken = 0;
        while self.takes_more() {
            if taken == SUBMITTED_PER_TURN {
                self.unfinished = true;
                return;
            }
            if !self.take_one_in() {
                return;
            }
            taken += 1;
        }
    }

    /// Whether there is room for one more request from outside.
    pub fn takes_more(&self) -> bool {
        self.frontier.has_room()
            && self.memory.has_room()
            && !self.mapping.is_full()
            && !self.has_too_many_ended()
    }

    /// Takes in one request that was submitted from outside, if there is one.
    pub fn take_one_in(&mut self) -> bool {
        match self.inbox.take() {
            None => return false,
            Some(Waiting::Numbered(job)) => self.admit_heard(*job),
            // What was refused is logged and counted.
            Some(Waiting::Seed(request)) => drop(self.admit(&request)),
        }
        self.count_seed_memory();
        true
    }

    /// Fires what is due. The throttle is asked after all others: see `grant`.
    fn fire(&mut self) {
        for _ in 0..TIMERS_PER_TURN {
            let Some(timer) = self.due() else {
                return;
            };
            match timer {
                Timer::Socket(slot) => self.on_socket_timeout(slot),
                Timer::Flight(slot) => self.on_flight_timeout(slot),
                Timer::Resolver => self.resolver.handle_timeout(self.now),
                Timer::Pool => self.on_idle_too_long(),
                Timer::Frontier => self.frontier.expire(&mut self.throttle, self.now),
                Timer::Delayed => {
                    if let Some(job) = self.delayed.expire(self.now) {
                        self.release_later(*job);
                    }
                }
                Timer::Outage => self.outage.handle_timeout(self.now),
                Timer::Tick => self.tick(),
            }
        }
        self.unfinished = true;
    }

    fn due(&mut self) -> Option<Timer> {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        // Ahead of all that may wait for its verdict.
        if is_due(self.outage.next_timeout()) {
            return Some(Timer::Outage);
        }
        if let Some(timer) = self.deadlines.expire(now) {
            return Some(timer);
        }
        if is_due(self.resolver.next_timeout()) {
            return Some(Timer::Resolver);
        }
        if is_due(self.delayed.next()) {
            return Some(Timer::Delayed);
        }
        if is_due(self.pool.deadline()) {
            return Some(Timer::Pool);
        }
        // Ahead of the frontier, whose lanes may be very many.
        if is_due(self.next_tick) {
            return Some(Timer::Tick);
        }
        is_due(self.frontier.next_wake()).then_some(Timer::Frontier)
    }

    /// Lets go what the throttle allows; whether there was anything.
    fn grant(&mut self) -> bool {
        let releasing = self.phase == Phase::Running
            && !self.halted
            && self.storage.has_room()
            && self.sink.is_ready()
            && !self.is_full()
            && !self.mapping.is_full()
            && !self.work_is_full()
            && self.unresolved.is_empty()
            && self.resolving < self.resolving_max()
            && !self.outage.stops_releases(self.room.most());
        self.throttle.set_releasing(releasing);
        if releasing && self.throttle.scopes_len() >= SCOPES_BEYOND_CACHES {
            let lanes = self.throttle.coming(self.now).take(RELEASES_PER_TURN);
            let lanes: SmallVec<[LaneId; RELEASES_PER_TURN]> = lanes.collect();
            if lanes.len() > 1 {
                black_box(self.frontier.touch(&lanes, &self.throttle));
            }
        }
        let mut releases = 0;
        for number in 0..GRANTS_PER_TURN {
            if number % GRANTS_PER_SUBMIT == GRANTS_PER_SUBMIT - 1 {
                self.io.submit();
            }
            match self.throttle.poll(self.now) {
                Some(Grant::Depart(ticket)) => self.depart(ticket),
                Some(Grant::Release(lane, ticket)) => {
                    self.on_release(lane, ticket);
                    // What ended unsent is in the sink.
                    let ready = self.sink.is_ready() && !self.has_failed_too_often();
                    let full = self.work_is_full();
                    self.throttle.set_releasing(releasing && ready && !full);
                    releases += 1;
                    // Rules of robots.txt may take long to compare with.
                    if releases == RELEASES_PER_TURN || self.work.is_spent_on_rules() {
                        break;
                    }
                }
                None => return number > 0,
            }
        }
        self.unfinished = true;
        true
    }

    /// Sends what may depart now, in the midst of a turn, and releases what is due by now.
    fn let_depart(&mut self) {
        self.see_time();
        let mut departed = false;
        for _ in 0..GRANTS_PER_TURN {
            let Some(ticket) = self.throttle.poll_departure(self.now) else {
                break;
            };
            self.depart(ticket);
            departed = true;
        }
        self.arrive();
        if self.grant() || departed {
            self.io.submit();
        }
    }

    /// How often a sink that is not ready is asked again. One that waits for room on the disk is ready
    /// when there is news of that.
    fn asks_sink_every(&self) -> Duration {
        match self.storage.has_room() {
            true => ASK_SINK_EVERY,
            false => TICK,
        }
    }

    /// Whether as many replies are worked on, beside the requests in flight, as may be in flight in all.
    fn work_is_full(&self) -> bool {
        self.work
            .is_full(self.throttle.in_flight(), self.room.most())
    }

    /// Lanes that may wait for names at once: as many as could then be sent at once.
    fn resolving_max(&self) -> usize {
        self.config.throttle.concurrent_requests
    }

    fn tick(&mut self) {
        // Whoever sleeps is not woken for nothing.
        self.next_tick = (!self.is_idle()).then(|| self.now + TICK);
        // A lookup that made room may have had nobody to tell.
        self.offer_unresolved();
        self.sink.flush(&mut self.disk);
        if let Some(most) = self.room.widened() {
            self.throttle.set_in_flight_max(most);
        }
        self.ports.expire(self.now);
        self.watch_memory();
        // Where nobody has a handle nobody asks.
        if !self.inbox.is_closed() {
            self.answer();
        }
        // None would be read before there is room, and the last one has it all.
        let is_time = self.now.saturating_since(self.stats_written) >= STATS_EVERY;
        if is_time && self.storage.has_room() {
            self.write_stats();
        }
    }

    /// Replaces `stats.json`.
    pub fn write_stats(&mut self) {
        self.stats_written = self.now;
        if self.stats_while.as_ref().is_some_and(|may| !may()) {
            return;
        }
        if let Some(path) = self.stats_path.clone() {
            let most = match self.is_running() {
                true => MOST_RUNNING,
                false => MOST,
            };
            let json = self.stats.to_json(&self.progress(), &self.pacing(most));
            let mut bytes = serde_json::to_vec_pretty(&json).expect("a tree of numbers and names");
            bytes.push(b'\n');
            self.stats_under_way += 1;
            self.disk.push(DiskJob::Replace {
                path,
                bytes,
                tag: STATS_TAG,
            });
        }
    }

    pub fn hand_to_disk(&mut self) {
        for job in self.disk.drain(..) {
            self.io.disk(job);
        }
    }

    fn on_disk(&mut self, done: &DiskDone) {
        if done.file.is_none() && done.tag == STATS_TAG {
            self.stats_under_way -= 1;
            if let Err(error) = &done.result {
                log::warn!("stats.json could not be written: {error}");
            }
            return;
        }
        self.sink.disk_done(done, &mut self.disk);
    }

    /// How the scopes were paced so far: of each kind of those that are most of something, so many.
    pub fn pacing(&self, most: usize) -> Pacing {
        Pacing::of(&self.throttle, most, self.now)
    }

    /// How far the crawl has come.
    pub fn progress(&self) -> Progress {
        let wall = self.io.wall_at_start();
        let (outages, outage_time) = self.outage.breaker().totals(self.now);
        let open = self.outage.breaker().open_for(self.now);
        let (hosts_held, next_host) = self.frontier.hosts_held(self.now);
        Progress {
            finish_reason: match self.phase {
                Phase::Over { reason } | Phase::Flushing { reason, .. } => Some(reason),
                _ => None,
            },
            io: self.io.name(),
            started: wall,
            now: wall.at(self.now),
            elapsed: self.now.saturating_since(Instant::START),
            queued: self.frontier.queued()
                + self.mapping.len()
                + self.delayed.len()
                + self.outage.held(),
            in_flight: self.throttle.in_flight(),
            buffered: self.buffered,
            disk_full_for: self.storage.full_for(self.now),
            disk_pauses: self.storage.pauses(),
            disk_paused: self.storage.paused(self.now),
            scopes: self.throttle.scopes_len(),
            scopes_waiting: self.throttle.scopes_waiting(),
            outages,
            outage_time,
            outage_open: open.map(|(_, next)| next),
            hosts_held,
            hosts_held_next: next_host.map(|at| at.saturating_since(self.now)),
            seen: self.frontier.seen_len(),
            filtered: self
                .frontier
                .filtered()
                .iter()
                .map(|(reason, count)| (reason.name(), *count))
                .collect(),
        }
    }
}

/// The slab key that a token carries.
pub(super) fn key_of(token: Token) -> Key {
    Key {
        slot: token.slot,
        generation: token.generation,
    }
}

/// The token of a slab key.
pub(super) fn token_of(key: Key) -> Token {
    Token {
        slot: key.slot,
        generation: key.generation,
    }
}
