//! Admits requests from outside of the turn: submissions, the source's, links from other threads, those of
//! a probe. Each is taken as far as there is room.

use crate::base::ids::LaneId;
use crate::base::scopes::Scopes;
use crate::base::time::Instant;
use crate::crawl::control::found::LinkEvent;
use crate::crawl::control::submissions::Waiting;
use crate::crawl::core::Core;
use crate::crawl::journal::state::ALL_SEEDS;
use crate::crawl::work::admission::{AdmitError, job_of};
use crate::crawl::work::offers::OfferOrigin;
use crate::crawl::workload::Arrival;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::frontier::offers::Admission;
use crate::frontier::request::Request;
use crate::io::Io;

/// Requests of each kind that are admitted in one turn, a few microseconds each.
const INPUTS_PER_TURN: usize = 64;

/// Answers of the scope map that are taken in one turn.
const MAPPED_PER_TURN: usize = 64;

/// Requests of a probe that are admitted in one turn: more would delay those that are due already.
const ARRIVALS_PER_TURN: usize = 256;

/// Requests of a probe that waited too long and are ended in one turn.
const OVERDUE_PER_TURN: usize = 256;

impl<I: Io> Core<I> {
    /// Admits what is there from outside, except the requests of a probe.
    pub fn take_requests(&mut self) {
        self.output.stats_mut().seeds_bad += self.control.take_bad_seeds();
        self.take_found();
        if self.is_running() {
            self.poll_source();
            self.take_mapped();
            self.take_submissions();
        }
    }

    fn take_submissions(&mut self) {
        let mut taken = 0;
        while self.has_room() {
            if taken == INPUTS_PER_TURN {
                return self.wakeups.turn_again();
            }
            if !self.take_submission() {
                return;
            }
            taken += 1;
        }
    }

    /// Admits one request that was submitted by a handle; returns whether there was one.
    pub fn take_submission(&mut self) -> bool {
        let url_bytes = match self.control.poll_submission() {
            None => return false,
            Some(Waiting::Numbered(job)) => {
                let url_bytes = job.url.as_str().len();
                self.admit(job, OfferOrigin::Submitter);
                url_bytes
            }
            Some(Waiting::Seed(job, position)) => {
                let url_bytes = job.url.as_str().len();
                self.admit(job, OfferOrigin::List);
                if position > 0 {
                    self.record_seeds_taken(position);
                }
                url_bytes
            }
            Some(Waiting::SeedsEnd) => {
                self.record_seeds_taken(ALL_SEEDS);
                return true;
            }
        };
        self.count_seed_memory(url_bytes);
        true
    }

    /// The first attempt of a request. A request that can never be sent is logged and counted.
    pub fn job_of(&mut self, request: &Request) -> Result<Job, AdmitError> {
        job_of(request, &self.config).inspect_err(|refused| {
            log::warn!("{}: {refused}", request.url);
            self.output.stats_mut().seeds_bad += 1;
        })
    }

    /// The same with a number, which its submitter or source is given.
    pub fn numbered_job_of(&mut self, request: &Request) -> Result<Job, AdmitError> {
        let mut job = self.job_of(request)?;
        job.id = self.frontier.number();
        Ok(job)
    }

    fn take_mapped(&mut self) {
        let mut taken = 0;
        while let Some(mapped) = self.control.poll_mapped() {
            if let Some((job, scopes)) = self.work.handle_mapped(mapped) {
                self.queue(job, &scopes);
            }
            taken += 1;
            if taken == MAPPED_PER_TURN {
                // No event wakes the crawl for those that are left.
                return self.wakeups.turn_again();
            }
        }
    }

    fn poll_source(&mut self) {
        for _ in 0..INPUTS_PER_TURN {
            if !self.has_room() {
                return;
            }
            let Some(request) = self.control.poll_source(self.now) else {
                return;
            };
            self.admit_from_source(&request);
            self.count_seed_memory(request.url.len());
        }
    }

    /// When the source is to be polled.
    pub fn source_due(&self) -> Option<Instant> {
        let due = self.control.source_due(self.now)?;
        self.has_room().then_some(due)
    }

    /// Admits a request of the source. The source is notified of its end in any case.
    fn admit_from_source(&mut self, request: &Request) {
        match self.numbered_job_of(request) {
            Ok(mut job) => {
                job.awaited = true;
                self.control.handle_accepted(job.id, request);
                self.admit(job, OfferOrigin::Submitter);
            }
            Err(why) => self.control.handle_rejected(request, &why),
        }
    }

    /// Admits links that were found on other threads. A crawl that sends nothing more still does: they
    /// are among what was left to be fetched.
    fn take_found(&mut self) {
        for _ in 0..INPUTS_PER_TURN {
            if self.work.is_full() {
                return;
            }
            let Some(event) = self.control.poll_found() else {
                return;
            };
            match event {
                LinkEvent::Link(job) => {
                    let admission = self.offer(&job);
                    self.on_admission(admission, *job, OfferOrigin::Link);
                }
                LinkEvent::Cut(count) => self.leave_out_cut(count),
                LinkEvent::Closed(_) => {}
            }
        }
        self.wakeups.turn_again_if(self.control.has_found());
    }

    /// The links that came too late for a crawl that is over, as far as no filter leaves them out.
    /// Those whose answers come later wait among the offers.
    pub fn drain_found(&mut self) -> Vec<Job> {
        let mut admitted = Vec::new();
        for job in self.control.drain_found() {
            match self.offer(&job) {
                Admission::Admitted => admitted.push(job),
                later => self.on_admission(later, job, OfferOrigin::Link),
            }
        }
        admitted
    }

    /// Queues the requests of a probe that are due.
    pub fn take_arrivals(&mut self) {
        if !self.workload.rules().is_by_clock {
            return;
        }
        if !self.is_running() {
            return self.workload.close_arrivals(self.now);
        }
        // A turn may be long, and they are due whatever it has to do.
        self.now = self.network.clock();
        if self.is_held_back() {
            self.workload.note_held(self.now);
        }
        self.end_overdue();
        for _ in 0..ARRIVALS_PER_TURN {
            let waiting = self.frontier.queued();
            match self.workload.take_arrival(waiting, self.now) {
                Arrival::None => return,
                Arrival::Dropped => {}
                Arrival::Request(mut job) => {
                    job.id = self.frontier.number();
                    self.queue_and_note(*job, &Scopes::new());
                }
            }
        }
        self.wakeups.turn_again();
    }

    /// Whether requests of a probe wait for ourselves: a pause that was ordered, a sink that takes no more, or
    /// `BYTES_PER_SECOND_MAX`.
    fn is_held_back(&self) -> bool {
        self.control.is_paused() || !self.output.takes_more() || !self.is_within_rate()
    }

    /// Ends the requests to watched targets that may wait no longer: otherwise the next one would be skipped, and the
    /// last result be an old one. Those that have a connection have deadlines of their own.
    fn end_overdue(&mut self) {
        for _ in 0..OVERDUE_PER_TURN {
            let Some(overdue) = self.workload.poll_overdue(self.now) else {
                return;
            };
            let waits = |(lane, _): (LaneId, _)| self.waits_for_name(lane);
            if !overdue.is_over && overdue.queued.is_some_and(waits) {
                self.workload.extend(overdue.tag);
                continue;
            }
            let queued = overdue.queued;
            let job = queued.and_then(|(lane, rank)| self.frontier.take_queued(lane, rank));
            match (job, queued) {
                (Some(job), Some((lane, _))) => self.end_late(&job, lane),
                _ if !overdue.is_over => self.workload.extend(overdue.tag),
                // It has a connection.
                _ => {}
            }
        }
        self.wakeups.turn_again();
    }

    /// Ends a request to a watched target that waited too long; it counts as in flight.
    pub fn end_late(&mut self, job: &Job, lane: LaneId) {
        let waits_for_name = self.waits_for_name(lane);
        // One that waits for a name does so whatever is held back.
        let is_held = match waits_for_name {
            true => !self.output.is_ready(),
            false => self.workload.was_held(job.tag()),
        };
        if waits_for_name {
            self.network.end_lookup(lane, None, self.now);
        }
        let (code, detail) = match waits_for_name {
            true => ("dns", "no answer from a name server"),
            false => ("total", "it got no connection"),
        };
        match is_held {
            true => {
                // The lookup is not part of a later request.
                self.network.take_lookup(lane);
                self.workload.skip(job.tag());
                self.end_attempt(lane, job, false);
            }
            false => {
                let failure = Failure::new(FailureKind::Timeout, code, detail);
                self.end_unconnected(job, lane, failure);
            }
        }
        if waits_for_name && self.frontier.has_queued(lane) {
            // The next one waits for the same answer.
            self.network.begin_lookup(lane, self.now);
        }
    }

    fn waits_for_name(&self, lane: LaneId) -> bool {
        self.network.names().lookups().waits_since(lane).is_some()
    }

    /// Measures memory in a tick: each time if seeds wait for memory or more of them may come, otherwise
    /// now and then.
    pub fn watch_memory(&mut self) {
        let expects_seeds = self.control.expects_seeds();
        if self.work.measures_memory(expects_seeds, self.now) {
            self.measure_memory();
        }
    }

    fn measure_memory(&mut self) {
        let (memory, queued) = (self.network.memory(), self.frontier.queued());
        let has_room_again = self.work.handle_memory(memory, queued, self.now);
        self.wakeups.turn_again_if(has_room_again);
    }

    /// Counts a seed.
    fn count_seed_memory(&mut self, url_bytes: usize) {
        if self.work.handle_seed(url_bytes) {
            self.measure_memory();
        }
    }
}
