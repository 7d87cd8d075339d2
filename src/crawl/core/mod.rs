//! The state of a crawl and its turn: wait; take what arrived; fire what is due; submit.

pub(super) mod life;
mod cancelling;
mod closing;
mod commands;
mod connecting;
mod connection_events;
mod drive;
mod finding;
mod follow;
mod health;
mod inputs;
mod lanes;
mod names;
mod offers;
mod owner;
mod outage;
mod outage_probes;
mod pages;
mod phase;
mod pieces;
mod reading;
mod report;
mod scopes;
mod sending;
mod set_up;
mod signals;
#[cfg(test)]
pub mod tests;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::crawl::classifier::Classifier;
use crate::crawl::config::Config;
use crate::crawl::control::Control;
use crate::crawl::flights::Flights;
use crate::crawl::network::Network;
use crate::crawl::network::socket::key_of;
use crate::crawl::outage::Outage;
use crate::crawl::output::{Backlog, Output};
use crate::crawl::pacing::{MOST, MOST_RUNNING, Pacing};
use crate::crawl::pages::Pages;
use crate::crawl::requests::Requests;
use crate::crawl::stats::Progress;
use crate::crawl::timer::{SlotTimer, TICK, Timer, Wakeups};
use crate::crawl::work::Work;
use crate::crawl::workload::Workload;
use crate::frontier::Frontier;
use crate::io::{Event, Io};
use crate::throttle::engine::{Grant, Throttle};

/// A crawl on a back end.
///
/// Each machine owns its state and knows no other. The methods here pass values between them.
pub(super) struct Core<I: Io> {
    config: Arc<Config>,
    /// The time of this turn.
    now: Instant,
    /// Further turns, ticks, and a host that waits.
    wakeups: Wakeups,
    /// Handles, the source, and the phase.
    control: Control,
    /// A crawl or a probe.
    workload: Workload,
    /// Requests outside of the frontier.
    work: Work,
    /// Queued requests, by lane.
    frontier: Frontier,
    /// Header fields, cookies, contact.
    requests: Requests,
    /// The pace of each scope.
    throttle: Throttle,
    /// What responses mean.
    classifier: Classifier,
    /// Attempts between release and end.
    flights: Flights,
    /// Connections, and the back end below them.
    network: Network<I>,
    /// Whether our network works.
    outage: Outage,
    /// Replies that are worked on.
    pages: Pages,
    /// The sink and the disk.
    output: Output,
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

/// A turn this late means that the process, or its caller, did not run. No host can be blamed for that
/// time.
const LATE_FOR_HOSTS: Duration = Duration::from_secs(1);

/// How often a sink that was not ready is asked again.
const ASK_SINK_EVERY: Duration = Duration::from_millis(5);

impl<I: Io> Core<I> {
    /// One turn: waits for events until something is due, at most until `until`. Returns whether there
    /// were any: where there were, more come soon.
    pub fn turn(&mut self, until: Option<Instant>) -> bool {
        let had_events = self.wait(until);
        let began = self.now;
        self.take_events();
        self.take_input();
        self.fire();
        self.grant();
        self.work_and_resume();
        self.hand_over();
        self.advance_phase();
        self.end_turn(began);
        had_events
    }

    /// Waits for events; looks at the clock, and begins the gaps of what has left.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        self.wakeups.begin_turn();
        self.output.begin_turn();
        self.pages.begin_turn();
        let last = self.now;
        let deadline = self.next_deadline().into_iter().chain(until).min();
        self.network.wait(deadline);
        self.update_clock();
        let due = deadline.map_or(self.now, |deadline| deadline.max(last));
        let late = self.now.saturating_since(due);
        if late >= LATE_FOR_HOSTS {
            self.frontier.discount_time(late);
        }
        self.network.has_events()
    }

    /// Takes what has arrived, and lets requests depart in between.
    fn take_events(&mut self) {
        let mut events = self.network.take_events();
        for (number, event) in events.drain(..).enumerate() {
            self.take(event);
            if number % EVENTS_PER_DEPARTURE == EVENTS_PER_DEPARTURE - 1 {
                self.depart_due();
            }
        }
        self.network.put_back_events(events);
        // What fell due in the meantime leaves in this turn, not after the next one's events.
        self.update_clock();
    }

    /// Takes commands and requests from outside of the turn, and what has ended unsent.
    fn take_input(&mut self) {
        self.wakeups.begin_work();
        self.apply_commands();
        self.take_requests();
        self.put_ready_unsent();
        self.take_arrivals();
    }

    /// Works on what is neither due nor from outside: pages, lookups, bodies held back, the network.
    fn work_and_resume(&mut self) {
        if !self.pages.is_empty() {
            // What departs now need not wait for that.
            self.network.submit();
            self.work_on(false);
        }
        self.resolve_on();
        let flights = &self.flights;
        let number_of = |key| flights.get(key).map(|flight| flight.job.id);
        self.network.resume(number_of, self.now);
        self.make_room();
        self.attend_outage();
        let is_stopped = self.control.is_paused()
            || !self.output.takes_more()
            || self.outage.breaker().stops_all()
            || self.outage.breaker().is_all_silent();
        self.frontier.update_hosts(is_stopped, self.now);
    }

    /// Hands over what is to be written and sent.
    fn hand_over(&mut self) {
        self.report_decisions();
        self.hand_to_disk();
        self.end_handshakes();
        self.network.submit();
        self.network.close_flushed();
    }

    /// Measures the turn, answers who asked, and closes the doors of a crawl that is over.
    fn end_turn(&mut self, began: Instant) {
        self.check_sink();
        self.output.end_turn();
        let took = self.network.io().now().saturating_since(began);
        self.output.stats_mut().lag.record(took);
        let is_over = self.control.phase().is_over();
        if is_over || self.control.is_asked() {
            self.answer();
        }
        if is_over {
            self.control.close();
        } else if self.wakeups.next_tick().is_none() {
            let is_idle = self.is_idle();
            self.wakeups.set_tick(is_idle, self.now);
        }
    }

    /// Looks at the clock. A turn may do so again and again: what it sent has its gap from when it was
    /// gone by then, like all that was sent before.
    fn update_clock(&mut self) {
        while let Some((attempt, gone)) = self.network.poll_sent() {
            self.begin_gap(attempt, gone);
        }
        self.now = self.network.update_clock();
        self.throttle.set_clock(self.now);
    }

    /// When the next turn is due if nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = Timer::ALL.into_iter();
        deadlines.filter_map(|timer| self.deadline_of(timer)).min()
    }

    /// When a timer is due; `None` while it is not set. The only definition of each.
    fn deadline_of(&self, timer: Timer) -> Option<Instant> {
        match timer {
            Timer::Again => {
                let again = self.wakeups.is_unfinished()
                    || self.control.phase().is_over()
                    || self.output.is_pressing();
                again.then_some(self.now)
            }
            Timer::Sink => {
                let waits = self.control.phase().is_flushing() || self.output.was_full();
                waits.then(|| self.now + self.asks_sink_every())
            }
            Timer::Throttle => self.throttle.next_wake(),
            Timer::Outage => self.outage.next_timeout(),
            Timer::Slots => self.network.next_deadline(),
            Timer::Resolver => self.network.names().next_timeout(),
            Timer::Delayed => self.work.next_delayed(),
            Timer::Admission => self.frontier.next_answer(),
            Timer::Pool => self.network.idle_deadline(),
            Timer::Tick => self.wakeups.next_tick(),
            Timer::Frontier => self.frontier.next_wake(),
            Timer::Arrival => self.workload.next_arrival(),
            Timer::Source => self.source_due(),
            Timer::TimeLimit => self.control.ends_at().filter(|_| self.is_running()),
            Timer::Grace => self.control.phase().grace_end(),
        }
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
            } => self.network.handle_sent(key_of(token), at, slack),
            // Its gap is all that this is about.
            Event::Flushed { .. } => {}
            Event::Received {
                token,
                chunk,
                stamp,
            } => {
                self.on_bytes(key_of(token), &chunk, stamp);
                self.network.release(chunk);
            }
            Event::Ended { token, stamp } => self.on_ended(key_of(token), stamp),
            Event::Disk(done) => self.output.handle_disk(&done),
            Event::DiskFull(error) => self.output.handle_disk_full(&error, self.now),
            Event::DiskRoom => {
                self.output.handle_disk_room(self.now);
                self.wakeups.turn_again();
            }
            Event::Woken => {}
            // Nothing listens yet; dropped, it is closed.
            Event::Accepted { .. } => {}
        }
    }

    /// Fires the timers that are due, one by one, up to a bound.
    fn fire(&mut self) {
        for _ in 0..TIMERS_PER_TURN {
            let is_due = |timer: &Timer| self.deadline_of(*timer).is_some_and(|at| at <= self.now);
            let Some(timer) = Timer::FIRED.into_iter().find(is_due) else {
                return;
            };
            match timer {
                Timer::Outage => self.outage.handle_timeout(self.now),
                Timer::Slots => match self.network.expire_deadline(self.now) {
                    Some(SlotTimer::Socket(slot)) => self.on_socket_timeout(slot),
                    Some(SlotTimer::Flight(slot)) => self.on_flight_timeout(slot),
                    // It is due later, and now known to be.
                    None => {}
                },
                Timer::Resolver => self.network.names_mut().handle_timeout(self.now),
                Timer::Delayed => {
                    if let Some(job) = self.work.poll_delayed(self.now) {
                        self.release_later(job);
                    }
                }
                Timer::Admission => self.take_due_answer(),
                Timer::Pool => self.on_idle_too_long(),
                Timer::Tick => self.tick(),
                Timer::Frontier => {
                    self.frontier.expire(self.now);
                    self.update_lanes();
                }
                Timer::Again
                | Timer::Sink
                | Timer::Throttle
                | Timer::Arrival
                | Timer::Source
                | Timer::TimeLimit
                | Timer::Grace => unreachable!("{timer:?} has a step of its own in each turn"),
            }
        }
        self.wakeups.turn_again();
    }

    /// Lets go what the throttle allows; whether there was anything.
    fn grant(&mut self) -> bool {
        let releasing = self.is_running()
            && !self.control.is_paused()
            && self.output.takes_more()
            && !self.network.is_full()
            && !self.work.is_full()
            && !self.work_is_full()
            && !self.network.names().lookups().has_refused()
            && self.network.names().lookups().under_way() < self.resolving_max()
            && !self.outage.stops_releases(self.network.in_flight_max());
        debug_assert!(
            !self.frontier.has_lane_changes(),
            "each change of a lane is applied where it is made"
        );
        self.throttle.set_releasing(releasing);
        if releasing && self.throttle.scopes_len() >= SCOPES_BEYOND_CACHES {
            let lanes = self.throttle.coming(self.now).take(RELEASES_PER_TURN);
            let lanes: SmallVec<[LaneId; RELEASES_PER_TURN]> = lanes.collect();
            if lanes.len() > 1 {
                black_box(self.frontier.touch(&lanes));
                black_box(self.throttle.touch(&lanes));
            }
        }
        let mut releases = 0;
        for number in 0..GRANTS_PER_TURN {
            if number % GRANTS_PER_SUBMIT == GRANTS_PER_SUBMIT - 1 {
                self.network.submit();
            }
            match self.throttle.poll(self.now) {
                Some(Grant::Depart(ticket)) => self.depart(ticket),
                Some(Grant::Release(lane, ticket)) => {
                    self.on_release(lane, ticket);
                    // What ended unsent is in the sink.
                    let ready = self.output.is_ready() && !self.has_failed_too_often();
                    let full = self.work_is_full();
                    self.throttle.set_releasing(releasing && ready && !full);
                    releases += 1;
                    // Rules of robots.txt may take long to compare with.
                    if releases == RELEASES_PER_TURN || self.pages.is_spent_on_rules() {
                        break;
                    }
                }
                None => return number > 0,
            }
        }
        self.wakeups.turn_again();
        true
    }

    /// Sends what may depart now, in the midst of a turn, and releases what is due by now.
    fn depart_due(&mut self) {
        self.update_clock();
        let mut departed = false;
        for _ in 0..GRANTS_PER_TURN {
            let Some(ticket) = self.throttle.poll_departure(self.now) else {
                break;
            };
            self.depart(ticket);
            departed = true;
        }
        self.take_arrivals();
        if self.grant() || departed {
            self.network.submit();
        }
    }

    /// A turn ends: notes whether the sink takes more.
    fn check_sink(&mut self) {
        let backlog = Backlog {
            queued: self.frontier.queued() + self.work.len(),
            under_way: self.flights.len() + self.pages.len(),
            ended: self.work.unsent_len(),
        };
        let is_fetching = self.control.phase().is_fetching();
        self.output.check_sink(backlog, is_fetching, self.now);
    }

    /// How often a sink that is not ready is asked again. One that waits for room on the disk is ready
    /// when there is news of that.
    fn asks_sink_every(&self) -> Duration {
        match self.output.has_disk_room() {
            true => ASK_SINK_EVERY,
            false => TICK,
        }
    }

    /// Whether as many replies are worked on, beside the requests in flight, as may be in flight in all.
    fn work_is_full(&self) -> bool {
        self.pages
            .is_full(self.throttle.in_flight(), self.network.in_flight_max())
    }

    /// Lanes that may wait for names at once: as many as could then be sent at once.
    fn resolving_max(&self) -> usize {
        self.config.throttle.concurrent_requests
    }

    fn tick(&mut self) {
        let is_idle = self.is_idle();
        self.wakeups.set_tick(is_idle, self.now);
        // A lookup that made room may have had nobody to tell.
        self.offer_unresolved();
        self.output.flush();
        if let Some(most) = self.network.tick(self.now) {
            self.throttle.set_in_flight_max(most);
        }
        self.watch_memory();
        if self.control.has_handles() {
            self.answer();
        }
        if self.output.is_stats_file_due(self.now) {
            self.write_stats();
        }
    }

    /// Replaces `stats.json`.
    pub fn write_stats(&mut self) {
        if !self.output.begin_stats(self.now) {
            return;
        }
        let most = match self.is_running() {
            true => MOST_RUNNING,
            false => MOST,
        };
        let (progress, pacing) = (self.progress(), self.pacing(most));
        let json = self.output.stats().to_json(&progress, &pacing);
        let mut text = serde_json::to_vec_pretty(&json).expect("a tree of numbers and names");
        text.push(b'\n');
        self.output.write_stats(text);
    }

    pub fn hand_to_disk(&mut self) {
        for job in self.output.poll_jobs() {
            self.network.disk(job);
        }
    }

    /// Whether requests are sent.
    pub fn is_running(&self) -> bool {
        self.control.phase().is_running()
    }

    /// How the scopes were paced so far: of each kind of those that are most of something, so many.
    pub fn pacing(&self, most: usize) -> Pacing {
        Pacing::of(&self.throttle, most, self.now)
    }

    /// How far the crawl has come.
    pub fn progress(&self) -> Progress {
        let wall = self.network.io().wall_at_start();
        let (disk_pauses, disk_paused) = self.output.disk_pauses(self.now);
        let (outages, outage_time) = self.outage.breaker().totals(self.now);
        let open = self.outage.breaker().open_for(self.now);
        let (hosts_held, next_host) = self.frontier.hosts_held(self.now);
        Progress {
            finish_reason: self.control.phase().finish_reason(),
            io: self.network.io().kind(),
            started: wall,
            now: wall.at(self.now),
            elapsed: self.now.saturating_since(Instant::START),
            queued: self.frontier.queued() + self.work.len() + self.outage.held(),
            in_flight: self.throttle.in_flight(),
            buffered: self.network.buffered(),
            disk_full_for: self.output.disk_full_for(self.now),
            disk_pauses,
            disk_paused,
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
                .map(|(reason, count)| (*reason, *count))
                .collect(),
        }
    }
}
