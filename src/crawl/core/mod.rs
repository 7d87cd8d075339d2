//! The state of a crawl and its turn: wait; take what arrived; fire what is due; submit.

pub(super) mod life;
mod adopting;
mod cancelling;
mod commands;
mod commits;
mod connecting;
mod connections;
mod drive;
mod exchanges;
mod exclusions;
mod facts;
mod given;
mod finding;
mod follow;
mod granting;
mod host_orders;
mod host_view;
mod health;
mod inputs;
mod lanes;
mod left_out;
mod limiting;
mod logging;
mod metrics;
mod names;
mod offers;
mod operators;
mod orders;
mod owner;
mod outage;
mod outage_probes;
mod pages;
mod pending;
mod phase;
mod program_orders;
mod progress;
mod questions;
mod reading;
mod reloading;
mod report;
mod restoring;
mod rotating;
mod runs;
mod samples;
mod scope_orders;
mod searching;
mod scopes;
mod seen;
mod set_up;
mod signals;
mod spilling;
mod evicting;
mod removing;
mod scope_log;
mod keeping;
mod starting;
mod url_log;
mod url_places;
mod url_search;
mod url_view;
mod vain_orders;
mod views;
mod waits_view;
#[cfg(test)]
pub mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::classifier::Classifier;
use crate::crawl::config::Config;
use crate::crawl::control::Control;
use crate::crawl::core::orders::Orders;
use crate::crawl::flights::Flights;
use crate::crawl::journal::Journal;
use crate::crawl::network::Network;
use crate::crawl::network::socket::key_of;
use crate::crawl::outage::Outage;
use crate::crawl::output::Output;
use crate::crawl::overrides::Overrides;
use crate::crawl::pages::Pages;
use crate::crawl::requests::Requests;
use crate::crawl::spill::Spill;
use crate::crawl::steering::Steering;
use crate::crawl::timer::{SlotTimer, Timer, Wakeups};
use crate::crawl::work::Work;
use crate::crawl::workload::Workload;
use crate::frontier::Frontier;
use crate::io::{Event, Io};
use crate::throttle::engine::Throttle;

/// A crawl on a back end.
///
/// Each machine owns its state and does not access another. The methods here pass values between them.
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
    /// Classifies responses.
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
    /// The state on disk.
    journal: Journal,
    /// Requests that do not fit into memory.
    spill: Spill,
    /// Orders that later runs are to follow.
    orders: Orders,
    /// Settings that change while the crawl runs.
    overrides: Overrides,
    /// The connections of operators.
    steering: Steering,
}

/// After so many events what is due by then is released and departs: reading a page takes long.
const EVENTS_PER_DEPARTURE: usize = 16;

/// Timers that fire in one turn: a thousand connections may be out of time together.
const TIMERS_PER_TURN: usize = 64;

/// A turn this late means that the process, or its caller, did not run. Hosts are not charged for that
/// time.
const LATE_FOR_HOSTS: Duration = Duration::from_secs(1);

impl<I: Io> Core<I> {
    /// One turn: waits for events until something is due, at most until `until`. Returns whether there
    /// were any: where there were, more come soon.
    pub fn turn(&mut self, until: Option<Instant>) -> bool {
        let had_events = self.wait(until);
        let began = (self.now, self.network.processor_time());
        self.take_events();
        self.take_input();
        self.fire();
        self.grant();
        self.advance_machines();
        self.hand_over();
        self.advance_phase();
        self.end_turn(began);
        had_events
    }

    /// Waits for events.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        self.wakeups.begin_turn();
        self.control.begin_turn();
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

    /// Handles what has arrived; requests depart in between.
    fn take_events(&mut self) {
        let mut events = self.network.take_events();
        self.take_all(&mut events);
        self.network.put_back_events(events);
        let mut events = self.network.take_name_events();
        if !events.is_empty() {
            // Names that are resolved are connected to, which takes long.
            self.depart_due();
            self.take_all(&mut events);
        }
        self.network.put_back_name_events(events);
        // What became due in the meantime departs in this turn.
        self.update_clock();
    }

    /// Handles these events, in order; after every few, what is due departs.
    fn take_all(&mut self, events: &mut Vec<Event>) {
        for (number, event) in events.drain(..).enumerate() {
            self.take(event);
            if number % EVENTS_PER_DEPARTURE == EVENTS_PER_DEPARTURE - 1 {
                self.depart_due();
            }
        }
    }

    /// Takes commands and requests from outside of the turn, and what has ended unsent.
    fn take_input(&mut self) {
        self.wakeups.begin_work();
        self.apply_commands();
        self.queue_left();
        self.take_requests();
        self.put_ready_unsent();
        self.take_arrivals();
        self.serve_operators();
        self.advance_reload();
    }

    /// Advances what is neither due nor from outside: pages, lookups, bodies that were stopped, outages.
    fn advance_machines(&mut self) {
        if !self.pages.is_empty() {
            // What has departed does not wait for that.
            self.network.submit();
            self.process_pages(false);
        }
        self.update_lookups();
        let flights = &self.flights;
        let number_of = |key| flights.get(key).map(|flight| flight.job.id);
        self.network.resume(number_of, self.now);
        self.resume_bodies();
        self.update_outage();
        self.advance_seen();
        self.advance_spill();
        self.advance_scope_orders();
        self.advance_removals();
        self.advance_scope_log();
        if self.control.phase().is_fetching() {
            self.forget_orders();
        }
        self.frontier.update_hosts(self.is_held_up(), self.now);
    }

    /// Hands over what is to be written and sent.
    fn hand_over(&mut self) {
        self.report_decisions();
        self.review_facts();
        self.record_facts();
        self.advance_commit();
        self.hand_to_disk();
        self.send_to_operators();
        self.end_handshakes();
        self.network.submit();
        self.network.close_flushed();
    }

    /// Measures the turn, answers handles, and closes a crawl that is over.
    fn end_turn(&mut self, began: (Instant, Option<Duration>)) {
        self.check_sink();
        self.output.end_turn();
        for (root, is_in_flight) in self.flights.drain_moved() {
            self.control.handle_flight(root, is_in_flight);
        }
        self.control.offer_room(false);
        self.record_lag(began);
        let is_over = self.control.phase().is_over();
        if is_over || self.control.is_asked() {
            self.answer_handles();
        }
        if is_over {
            self.control.close();
            self.close_operators();
            return;
        }
        // Requests may have left the queue since submissions were taken, and no event follows for those
        // that ended unsent.
        self.wakeups.turn_again_if(self.may_take_submissions());
        self.wakeups.turn_again_if(self.frontier.may_activate());
        if self.wakeups.next_tick().is_none() {
            let is_idle = self.is_idle();
            self.wakeups.set_tick(is_idle, self.now);
        }
    }

    /// Records the length of a turn that began at a time and at a processor time.
    fn record_lag(&mut self, (began, processor_time): (Instant, Option<Duration>)) {
        let took = self.network.clock().saturating_since(began);
        let stats = self.output.stats_mut();
        stats.lag.record(took);
        // No other turn took more processor time than it took time.
        if took > stats.lag_processor_max
            && let (Some(from), Some(to)) = (processor_time, self.network.processor_time())
        {
            let used = to.saturating_sub(from);
            stats.lag_processor_max = stats.lag_processor_max.max(used);
        }
    }

    /// Updates the time, and begins the gaps of what was sent until then. A turn may do so repeatedly.
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
                let waits = self.control.phase().is_flushing()
                    || self.output.was_full()
                    || self.output.is_preparing();
                waits.then(|| self.now + self.sink_interval())
            }
            Timer::Throttle => self.throttle.next_wake(),
            Timer::Outage => self.outage.next_timeout(),
            Timer::Rate => self.network.rate_due(self.now),
            Timer::Slots => self.network.next_deadline(),
            Timer::Resolver => self.network.names().next_timeout(),
            Timer::Delayed => self.work.next_delayed(),
            Timer::Admission => self.frontier.next_answer(),
            Timer::Pool => self.network.idle_deadline(),
            Timer::Commit => self.commit_due(),
            Timer::Records => self.journal.hand_over_due(),
            Timer::Tick => self.wakeups.next_tick(),
            Timer::Frontier => self.frontier.next_wake(),
            Timer::Arrival => self.workload.next_arrival(),
            Timer::Source => self.source_due(),
            Timer::TimeLimit => self.control.ends_at().filter(|_| self.is_running()),
            Timer::Grace => {
                let end = self.control.phase().grace_end();
                end.filter(|_| !self.waits_for_workers())
            }
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
            // It begins a gap, which `update_clock` has done.
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
            Event::Disk(done) => self.on_disk(&done),
            Event::DiskFull(error) => self.output.handle_disk_full(&error, self.now),
            Event::DiskRoom => {
                self.output.handle_disk_room(self.now);
                self.wakeups.turn_again();
            }
            Event::Computed(done) => self.on_computed(done),
            Event::Woken => {}
            Event::Accepted {
                listener,
                accepted,
                peer,
                ..
            } => self.network.handle_accepted(listener, accepted, peer),
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
                    Some(SlotTimer::Flight(slot)) => self.on_race_timeout(slot),
                    // Its deadline was moved; the wheel has the new one now.
                    None => {}
                },
                Timer::Resolver => self.network.handle_query_timeout(self.now),
                Timer::Delayed => {
                    if let Some(job) = self.work.poll_delayed(self.now) {
                        self.release_later(job);
                    }
                }
                Timer::Admission => self.take_due_answer(),
                Timer::Pool => self.close_expired(),
                Timer::Commit => self.begin_commit(),
                Timer::Tick => self.tick(),
                Timer::Frontier => {
                    self.frontier.expire(self.now);
                    self.update_lanes();
                }
                Timer::Again
                | Timer::Sink
                | Timer::Throttle
                | Timer::Rate
                | Timer::Records
                | Timer::Arrival
                | Timer::Source
                | Timer::TimeLimit
                | Timer::Grace => unreachable!("{timer:?} has a step of its own in each turn"),
            }
        }
        self.wakeups.turn_again();
    }
}
