//! Control of a running crawl by the embedding program: submissions, a source, commands, links from
//! other threads, stopping.

pub mod ahead;
pub mod channel;
pub mod error;
pub mod feed;
pub mod found;
pub mod handle;
pub mod inbox;
pub mod phase;
pub mod reload;
pub mod reloads;
pub mod shared;
pub mod submissions;

use std::sync::Arc;
use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::control::feed::{Ending, RequestSource, SourceError, SourceQueue};
use crate::crawl::control::found::{Found, LinkEvent};
use crate::crawl::control::handle::{Handle, Stopper};
use crate::crawl::control::inbox::{Inbox, Stop};
use crate::crawl::control::phase::Phase;
use crate::crawl::control::reload::{ReloadSource, Reloader};
use crate::crawl::control::shared::Command;
use crate::crawl::control::submissions::Waiting;
use crate::crawl::stats::Snapshot;
use crate::crawl::work::admission::AdmitError;
use crate::crawl::work::mapping::Mapped;
use crate::frontier::job::Job;
use crate::frontier::numbers::Numbers;
use crate::frontier::request::Request;
use crate::io::Waker;
use crate::sink::later::Leads;
use crate::sink::page::Page;
use crate::throttle::map::DeferredScopes;

/// Commands of the embedding program, and the phase of the crawl.
///
/// Requests leave by [`Control::poll_submission`], [`Control::poll_source`] and [`Control::poll_found`],
/// commands by [`Control::poll_commands`] and [`Control::poll_stop`]. The end of a source's request enters
/// by [`Control::handle_end`].
pub struct Control {
    /// The inbox of its handles.
    inbox: Inbox,
    source: Option<Box<SourceQueue>>,
    /// Links from other threads, and the pages that are held open for them.
    found: Arc<Found>,
    /// The same, for the sink.
    leads: Arc<dyn Leads>,
    /// The source of new configurations.
    reloader: Reloader,
    phase: Phase,
    is_paused: bool,
    /// An operator has paused it.
    is_ordered_to_pause: bool,
    /// `STOP_GRACE`.
    stop_grace: Duration,
    /// When `CLOSESPIDER_TIMEOUT` is reached.
    ends_at: Option<Instant>,
    /// Whether [`Control::poll_time_limit`] has returned true.
    is_time_limit_polled: bool,
    /// Time of earlier runs of the crawl.
    earlier: Duration,
}

impl Control {
    /// The control of a crawl that begins. `ahead_max`: most requests that handles may submit beyond what is being
    /// fetched.
    pub fn new(
        config: &Arc<Config>,
        source: Option<Box<dyn RequestSource>>,
        ahead_max: usize,
        numbers: &Numbers,
        waker: Waker,
    ) -> Self {
        let found = Found::new(waker.clone(), Arc::clone(config), numbers.clone());
        let found = Arc::new(found);
        Control {
            inbox: Inbox::new(
                waker.clone(),
                Arc::clone(config),
                numbers.clone(),
                ahead_max,
            ),
            source: source.map(|source| Box::new(SourceQueue::new(source, waker))),
            leads: Arc::<Found>::clone(&found),
            found,
            reloader: Reloader::default(),
            phase: Phase::Running,
            is_paused: false,
            is_ordered_to_pause: false,
            stop_grace: config.stop_grace,
            ends_at: config.max_time.map(|most| Instant::START + most),
            is_time_limit_polled: false,
            earlier: Duration::ZERO,
        }
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Enters a phase, or updates the present one.
    pub fn set_phase(&mut self, phase: Phase) {
        debug_assert!(phase.rank() >= self.phase.rank(), "a phase never returns");
        self.phase = phase;
    }

    /// Returns when `CLOSESPIDER_TIMEOUT` is reached, if it is set.
    pub fn ends_at(&self) -> Option<Instant> {
        self.ends_at
    }

    /// Returns once that `CLOSESPIDER_TIMEOUT` is reached.
    pub fn poll_time_limit(&mut self, now: Instant) -> bool {
        let is_reached = self.ends_at.is_some_and(|at| at <= now);
        is_reached && !std::mem::replace(&mut self.is_time_limit_polled, true)
    }

    /// Earlier runs of the crawl took this long: `CLOSESPIDER_TIMEOUT` is for all of them.
    pub fn count_earlier(&mut self, active: Duration, config: &Config) {
        self.earlier = active;
        let left = config.max_time.map(|most| most.saturating_sub(active));
        self.ends_at = left.map(|left| Instant::START + left);
    }

    /// `CLOSESPIDER_TIMEOUT` and `STOP_GRACE` have changed.
    pub fn set_limits(&mut self, config: &Config) {
        self.stop_grace = config.stop_grace;
        self.count_earlier(self.earlier, config);
    }

    /// How long the crawl has run until `now`, in all its runs.
    pub fn active_time(&self, now: Instant) -> Duration {
        self.earlier + now.saturating_since(Instant::START)
    }

    /// The grace time of a command to stop, or to stop sooner, that was not returned yet.
    pub fn poll_stop(&mut self) -> Option<Duration> {
        Some(match self.inbox.take_stop()? {
            Stop::Configured => self.stop_grace,
            Stop::Within(grace) => grace,
        })
    }

    /// Updates whether the crawl is paused; returns whether it has just been.
    pub fn update_pause(&mut self) -> bool {
        let was_paused = self.is_paused;
        self.is_paused = self.is_to_pause() && self.phase.is_running();
        self.is_paused && !was_paused
    }

    /// An operator pauses or resumes the crawl; it takes effect with the next commands. A handle that has paused it
    /// has to resume it as well.
    pub fn order_pause(&mut self, is_paused: bool) {
        self.is_ordered_to_pause = is_paused;
    }

    /// Whether a handle or an operator wants a pause.
    pub fn is_to_pause(&self) -> bool {
        self.inbox.is_paused() || self.is_ordered_to_pause
    }

    /// Lifts the pause that an operator ordered if a handle has resumed the crawl since; returns whether it did.
    pub fn lift_ordered_pause(&mut self) -> bool {
        self.inbox.take_resumed() && std::mem::take(&mut self.is_ordered_to_pause)
    }

    /// Sets the source of new configurations.
    pub fn set_reload_source(&mut self, source: ReloadSource) {
        self.reloader.set_source(source);
    }

    /// Asks the source for the configuration; returns the number of the request, `None` without a source.
    pub fn ask_for_reload(&mut self) -> Option<u64> {
        let stopper = self.stopper();
        self.reloader.ask(stopper)
    }

    /// Whether a signal has asked for a reload since the last call.
    pub fn take_reload_signal(&self) -> bool {
        self.inbox.reloads().take_asked()
    }

    /// The next answer of the source, with the number of its request.
    pub fn poll_reload(&self) -> Option<(u64, Result<Box<Config>, String>)> {
        self.inbox.reloads().take_answer()
    }

    /// Whether the crawl is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether a stop was requested.
    pub fn is_stopping(&self) -> bool {
        self.inbox.is_stopping()
    }

    /// Accepts no more commands. Returns whether some are still to be applied.
    pub fn close_commands(&mut self) -> bool {
        self.inbox.close_commands()
    }

    /// Whether commands are still to be applied.
    pub fn has_commands(&self) -> bool {
        self.inbox.has_commands()
    }

    /// Takes the commands since the last call, as many as one turn has time for. Returns also whether there
    /// are more.
    pub fn poll_commands(&mut self) -> (Vec<Command>, bool) {
        self.inbox.take_commands()
    }

    /// A turn begins, on this thread.
    pub fn begin_turn(&self) {
        self.inbox.begin_turn();
    }

    /// An attempt of the request of this number took off, or its flight is over.
    pub fn handle_flight(&mut self, root: u64, is_in_flight: bool) {
        self.inbox.handle_flight(root, is_in_flight);
    }

    /// The sink has the final page of the request of this number.
    pub fn handle_final(&mut self, root: u64) {
        self.inbox.handle_end(root);
    }

    /// Submitters get the room that fetched requests left.
    pub fn offer_room(&mut self, is_tick: bool) {
        self.inbox.offer_room(is_tick);
    }

    /// The next request submitted by a handle.
    pub fn poll_submission(&mut self) -> Option<Waiting> {
        self.inbox.take()
    }

    /// Whether submissions wait.
    pub fn has_submissions(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The next answer of the scope map.
    pub fn poll_mapped(&mut self) -> Option<Mapped> {
        self.inbox.take_mapped()
    }

    /// Enables answers of the scope map from any thread.
    pub fn later(&self, number: u64, part: usize) -> DeferredScopes {
        self.inbox.later(number, part)
    }

    /// Takes the next event of a page that is held open. Notifies the source if this ends one of its
    /// requests.
    pub fn poll_found(&mut self) -> Option<LinkEvent> {
        let event = self.found.take()?;
        if let LinkEvent::Closed(root) = event
            && let Some(source) = &mut self.source
            && !self.found.is_open(root)
        {
            source.handle_closed(root);
        }
        Some(event)
    }

    /// Whether such events wait.
    pub fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// The links that arrived too late for a crawl that is over.
    pub fn drain_found(&mut self) -> Vec<Job> {
        self.found.drain()
    }

    /// Removes the submissions that `is_unwanted` names.
    pub fn take_out(&mut self, is_unwanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        self.inbox.take_out(is_unwanted)
    }

    /// The lowest number of a waiting submission.
    pub fn lowest_number(&self) -> Option<u64> {
        self.inbox.lowest_number()
    }

    /// Whether neither submissions nor links wait.
    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty() && self.found.is_empty()
    }

    /// Number of invalid seed lines since the last call.
    pub fn take_bad_seeds(&mut self) -> u64 {
        self.inbox.take_bad_seeds()
    }

    /// Whether a handle exists.
    pub fn has_handles(&self) -> bool {
        !self.inbox.is_closed()
    }

    /// Whether handles or the source may bring more seeds.
    pub fn expects_seeds(&self) -> bool {
        let source = self.source.as_ref();
        source.is_some_and(|source| !source.is_finished()) || self.has_handles()
    }

    /// Whether no further request can arrive, except waiting submissions.
    pub fn is_exhausted(&self) -> bool {
        let source = self.source.as_ref();
        source.is_none_or(|source| source.is_finished())
            && !self.found.is_any_open()
            && !self.has_handles()
    }

    /// Returns when the source is to be polled; `None` while it waits to be woken, or without a source.
    pub fn source_due(&self, now: Instant) -> Option<Instant> {
        let source = self.source.as_ref().filter(|_| self.phase.is_running());
        source?.next_poll(now)
    }

    /// Polls the source if that is due; returns its next request.
    pub fn poll_source(&mut self, now: Instant) -> Option<Request> {
        self.source.as_mut()?.poll(now)
    }

    /// Called when a request of the source was accepted under this number. Records it until it ends.
    pub fn handle_accepted(&mut self, id: u64, request: &Request) {
        let source = self.source.as_mut();
        source
            .expect("the source that returned the request")
            .handle_accepted(id, request);
    }

    /// Called when a request of the source was rejected. Notifies the source at once.
    pub fn handle_rejected(&mut self, request: &Request, why: &AdmitError) {
        let source = self.source.as_mut();
        source
            .expect("the source that returned the request")
            .handle_rejected(request, why);
    }

    /// Called when an attempt of the request of this number departs. Records that the request was sent, if it
    /// is the source's.
    pub fn handle_departure(&mut self, root: u64) {
        if let Some(source) = &mut self.source {
            source.handle_departure(root);
        }
    }

    /// Returns how a page ends a request of the source, if it does: to be passed to [`Control::handle_end`]
    /// once the sink has taken the page.
    pub fn end_of(&self, page: &Page) -> Option<Ending> {
        self.source.as_ref()?.end_of(page)
    }

    /// Called when the sink has taken the page that ends a request of the source. Notifies the source; if the
    /// page is still held open, when that is closed.
    pub fn handle_end(&mut self, ending: Ending) {
        if let Some(source) = &mut self.source {
            let is_open = self.found.is_open(ending.root);
            source.handle_end(ending, is_open);
        }
    }

    /// The crawl has a state: the source is notified of ends that are committed.
    pub fn wait_for_commits(&mut self) {
        if let Some(source) = &mut self.source {
            source.wait_for_commits();
        }
    }

    /// A commit begins, of all ends so far.
    pub fn handle_prepare(&mut self) {
        if let Some(source) = &mut self.source {
            source.handle_prepare();
        }
    }

    /// That commit is durable. Notifies the source.
    pub fn handle_commit(&mut self) {
        if let Some(source) = &mut self.source {
            source.handle_commit();
        }
    }

    /// Whether the crawl has a source that keeps its requests until they have ended: they are never pending.
    pub fn has_keeping_source(&self) -> bool {
        let source = self.source.as_ref();
        source.is_some_and(|source| source.keeps_requests())
    }

    /// Whether the source gave the request of this number, keeps it, and was not notified of its end.
    pub fn is_kept_by_source(&self, root: u64) -> bool {
        let source = self.source.as_ref();
        source.is_some_and(|source| source.keeps_requests() && source.has(root))
    }

    /// Takes the requests that the source still held at the end.
    pub fn take_returned(&mut self) -> Vec<Request> {
        let source = self.source.as_mut();
        source.map_or_else(Vec::new, |source| source.take_returned())
    }

    /// The error of the source, if it failed.
    pub fn source_error(&self) -> Option<&SourceError> {
        self.source.as_ref()?.failure()
    }

    /// Accepts no more submissions: those that wait are still to be fetched.
    pub fn close_submissions(&self) {
        self.inbox.close_submissions();
    }

    /// The same if none waits and no handle exists. Returns whether they are closed.
    pub fn close_submissions_if_done(&self) -> bool {
        self.inbox.close_submissions_if_done()
    }

    /// A turn has panicked, and there will be no other: handles are answered that the crawl is over.
    pub fn close_inbox(&mut self) {
        self.inbox.close();
        self.found.close();
    }

    /// Another thread than the builder's will take the turns.
    pub fn hand_over(&self) {
        self.inbox.hand_over();
    }

    /// Replaces the most requests that handles may submit beyond what is being fetched.
    pub fn set_ahead_max(&self, requests: usize) {
        self.inbox.set_ahead_max(requests);
    }

    /// A control handle for any thread.
    pub fn handle(&self) -> Handle {
        self.inbox.handle()
    }

    /// A stop handle for any thread.
    pub fn stopper(&self) -> Stopper {
        self.inbox.stopper()
    }

    /// Links from other threads.
    pub fn found(&self) -> &Arc<Found> {
        &self.found
    }

    /// The same, for replies.
    pub fn leads(&self) -> &Arc<dyn Leads> {
        &self.leads
    }

    /// Whether a handle requested a snapshot.
    pub fn is_asked(&self) -> bool {
        self.inbox.is_asked()
    }

    /// Sends a snapshot to all handles that requested one.
    pub fn answer(&self, snapshot: Snapshot) {
        self.inbox.answer(snapshot);
    }

    /// Called when the crawl is over. Accepts no further submissions and links, and notifies the source of
    /// the end of its remaining requests.
    pub fn close(&mut self) {
        self.inbox.close();
        self.found.close();
        if let Some(source) = &mut self.source {
            source.close();
        }
    }
}
