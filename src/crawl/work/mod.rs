//! Requests outside of the frontier: those that wait for its answer, for their scopes or for a moment of
//! their own, and those that have ended unsent.

pub mod admission;
pub mod delayed;
pub mod left;
pub mod mapping;
pub mod memory;
pub mod offers;
pub mod unsent;

use crate::base::scopes::{SCOPES_MAX, Scopes};
use crate::base::time::Instant;
use crate::crawl::work::delayed::{Crowd, Delayed};
use crate::crawl::work::left::{LeftRequest, LeftRequests};
use crate::crawl::work::mapping::{Mapped, Mapping};
use crate::crawl::work::memory::MemoryRoom;
use crate::crawl::work::offers::{OfferOrigin, Offered, Offers};
use crate::crawl::work::unsent::{CancelledScopes, Unsent, UnsentQueue};
use crate::fetch::failure::Failure;
use crate::frontier::job::Job;
use crate::frontier::offers::OfferId;
use crate::io::Memory;
use crate::state::record::Entry;
use crate::throttle::map::{DeferredScopes, Facts, ScopeMap, ScopeQuery};
use crate::wire::url::CrawlUrl;

/// Requests outside of the frontier.
///
/// They leave by [`Work::handle_answer`], [`Work::handle_mapped`] and [`Work::poll_delayed`] for the
/// frontier, by [`Work::poll_unsent`] for the sink.
pub struct Work {
    /// Requests that the frontier has not answered for yet.
    offers: Offers,
    /// Requests that an earlier run left and that are not queued yet.
    left: LeftRequests,
    scope_map: Box<dyn ScopeMap>,
    /// Requests whose scopes are not known yet.
    mapping: Mapping,
    /// Redirects that may be followed later.
    delayed: Delayed,
    crowd: Crowd,
    unsent: UnsentQueue,
    cancelled_scopes: CancelledScopes,
    /// Attempts that were cancelled in flight, for `pending.jsonl`.
    cancelled: Vec<Job>,
    memory: MemoryRoom,
}

/// A request that was removed.
pub struct Removed {
    /// The request.
    pub job: Job,
    /// The offer whose answer a redirect's page waits for.
    pub awaited: Option<OfferId>,
}

impl Work {
    /// No request yet. `warn_threshold`: `DELAYED_REQUESTS_WARN_THRESHOLD`.
    pub fn new(scope_map: Box<dyn ScopeMap>, warn_threshold: usize) -> Self {
        Work {
            offers: Offers::default(),
            left: LeftRequests::default(),
            scope_map,
            mapping: Mapping::default(),
            delayed: Delayed::default(),
            crowd: Crowd::new(warn_threshold),
            unsent: UnsentQueue::default(),
            cancelled_scopes: CancelledScopes::default(),
            cancelled: Vec::new(),
            memory: MemoryRoom::default(),
        }
    }

    /// Number of requests that wait, without those that ended.
    pub fn len(&self) -> usize {
        self.mapping.len() + self.delayed.len() + self.offers.len() + self.left.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether so many wait that nothing is released.
    pub fn is_full(&self) -> bool {
        self.mapping.is_full() || self.offers.is_full()
    }

    /// Whether so many offers wait for answers that links of pages are not read.
    pub fn is_full_of_offers(&self) -> bool {
        self.offers.is_full()
    }

    /// Whether there is room for one more request from outside.
    pub fn has_room(&self) -> bool {
        self.memory.has_room() && !self.is_full() && !self.unsent.is_full()
    }

    /// Continues with what an earlier run left.
    pub fn restore(&mut self, left: LeftRequests) {
        self.left = left;
    }

    /// The next request that an earlier run left.
    pub fn poll_left(&mut self) -> Option<LeftRequest> {
        self.left.poll()
    }

    /// Removes requests that an earlier run left and that are not made.
    pub fn take_unmade(&mut self) -> Vec<LeftRequest> {
        self.left.take_unmade()
    }

    /// Whether an earlier run left more.
    pub fn has_left(&self) -> bool {
        self.left.len() > 0
    }

    /// How many an earlier run left.
    pub fn left_len(&self) -> usize {
        self.left.len()
    }

    /// A request was cancelled. Returns whether an earlier run may have left it.
    pub fn cancel_left(&mut self, number: u64) -> bool {
        self.left.cancel(number)
    }

    /// A request waits for the frontier's answer to its offer.
    pub fn wait_for_answer(&mut self, id: OfferId, job: Job, origin: OfferOrigin) {
        let job = Box::new(job);
        self.offers.wait(id, Offered { job, origin });
    }

    /// The request of an offer that is answered. `None` if it was cancelled.
    pub fn handle_answer(&mut self, id: OfferId) -> Option<Offered> {
        self.offers.take(id)
    }

    /// Removes all requests that wait for the frontier's answer.
    pub fn take_offers(&mut self) -> Vec<(OfferId, Offered)> {
        self.offers.take_out(|_| true)
    }

    /// The request for a URL that waits outside of the frontier, and when it resumes if that is known.
    pub fn find(&self, url: &CrawlUrl) -> Option<(&Job, Option<Instant>)> {
        let is_it = |job: &Job| job.url == *url;
        if let Some((job, at)) = self.delayed.find(is_it) {
            return Some((job, Some(at)));
        }
        self.mapping.find(is_it).map(|job| (job, None))
    }

    /// Searches some thousand requests that an earlier run left for one for a URL, from a place on, which begins at 0.
    /// Returns it, where the next step begins if there is one, and how many were compared.
    pub fn find_left(&self, from: u64, url: &CrawlUrl) -> (Option<Entry>, Option<u64>, usize) {
        self.left.find_from(from, url)
    }

    /// The same of requests that have ended unsent. Returns it, and whether all were compared; `next` is where the
    /// search is, and begins at 0.
    pub fn find_unsent(&self, next: &mut u64, url: &CrawlUrl) -> (Option<&Unsent>, bool) {
        self.unsent.find_from(next, url)
    }

    /// The request for a URL that was cancelled when the crawl ended, and is still to be fetched.
    pub fn find_cancelled(&self, url: &CrawlUrl) -> Option<&Job> {
        self.cancelled.iter().find(|job| job.url == *url)
    }

    /// Whether requests wait for the frontier's answer.
    pub fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// A request and its scopes: its own, or those of the map. `None` where the map answers later, by
    /// what `later` returns: the request waits for that.
    pub fn map(
        &mut self,
        job: Job,
        later: impl Fn(u64, usize) -> DeferredScopes,
    ) -> Option<(Job, Scopes)> {
        if let Some(known) = job.own_scopes() {
            return Some((job, known));
        }
        let number = self.mapping.number();
        let mut answers = 0;
        let mut defer = || {
            answers += 1;
            later(number, answers - 1)
        };
        let fields = job.fields();
        let facts = Facts {
            method: job.method(),
            headers: &fields,
            meta: job.meta(),
        };
        let mut query = ScopeQuery::new(&job.url, facts, &mut defer);
        self.scope_map.scopes(&mut query);
        let scopes = query.into_scopes();
        if answers == 0 {
            return Some((job, scopes));
        }
        self.mapping.wait(number, job, scopes, answers);
        self.warn_of_crowd();
        None
    }

    /// Handles a late answer of the map. Returns the request and its scopes once all of them are known.
    pub fn handle_mapped(&mut self, mapped: Mapped) -> Option<(Job, Scopes)> {
        let (mut job, scopes) = self.mapping.answered(mapped)?;
        // The map is not called again for a retry.
        job.extra_mut().set_mapped(&scopes);
        Some((job, scopes))
    }

    /// Logs once if the map returned too many scopes.
    pub fn check_scopes(&mut self, job: &Job, scopes: &Scopes) {
        if self.mapping.warns_of_cut(scopes) {
            log::warn!(
                "{}: the scope map returned more than {SCOPES_MAX} scopes; only the first {SCOPES_MAX} are used",
                job.url
            );
        }
    }

    /// Delays a request until `at`. If too many are delayed, returns the one that is due first, to be
    /// followed early.
    pub fn delay(&mut self, job: Job, at: Instant) -> Option<Job> {
        let early = self.delayed.wait(job, at);
        self.warn_of_crowd();
        early.map(|job| *job)
    }

    /// When the next delayed request is due.
    pub fn next_delayed(&self) -> Option<Instant> {
        self.delayed.next()
    }

    /// A delayed request that is due.
    pub fn poll_delayed(&mut self, now: Instant) -> Option<Job> {
        self.delayed.expire(now).map(|job| *job)
    }

    /// Logs once if many requests wait.
    fn warn_of_crowd(&mut self) {
        let (mapping, delayed) = (self.mapping.len(), self.delayed.len());
        if self.crowd.warns(mapping + delayed) {
            log::warn!(
                "{} requests wait in memory outside the frontier (DELAYED_REQUESTS_WARN_THRESHOLD): \
                 {mapping} for an answer of the scope map, {delayed} for the Retry-After of their \
                 redirect",
                mapping + delayed
            );
        }
    }

    /// A request has ended unsent. The sink gets its page when it is ready.
    pub fn end(&mut self, job: Job, scopes: Vec<String>, failure: Failure) {
        self.unsent.push(job, scopes, failure);
    }

    /// The next request that has ended unsent.
    pub fn poll_unsent(&mut self) -> Option<Unsent> {
        self.unsent.pop()
    }

    /// Number of requests that have ended unsent and whose pages the sink has not got.
    pub fn unsent_len(&self) -> usize {
        self.unsent.len()
    }

    /// Whether there are such requests.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The requests of a scope up to this number are cancelled, also those whose scopes are not known yet.
    pub fn cancel_scope(&mut self, name: String, until: u64) {
        self.cancelled_scopes.add(name, until);
    }

    /// The last number of the requests of a scope that are cancelled; `None`: it is not.
    pub fn cancelled_until(&self, name: &str) -> Option<u64> {
        self.cancelled_scopes.until(name)
    }

    /// Whether so many scopes were cancelled that they are to be reviewed.
    pub fn has_many_cancelled_scopes(&self) -> bool {
        self.cancelled_scopes.are_many()
    }

    /// Forgets cancelled scopes of which all requests that were meant have ended, and returns their names.
    /// `lowest_outside`: the lowest number of a request that is not here, and whose result the sink has not got.
    pub fn review_cancelled_scopes(&mut self, lowest_outside: Option<u64>) -> Vec<String> {
        let (mapping, delayed, offers) = (&self.mapping, &self.delayed, &self.offers);
        let waiting = mapping.ids().chain(delayed.ids()).chain(offers.ids());
        let waiting = waiting.chain(self.unsent.ids()).chain(lowest_outside);
        let first = waiting.chain(self.left.next_number()).min();
        self.cancelled_scopes.review(first)
    }

    /// Whether scopes were cancelled whose requests may not all be known.
    pub fn has_cancelled_scopes(&self) -> bool {
        !self.cancelled_scopes.is_empty()
    }

    /// Whether a request under these scopes is cancelled.
    pub fn is_cancelled(&self, job: &Job, scopes: &Scopes) -> bool {
        self.cancelled_scopes.has(job, scopes)
    }

    /// Removes the requests that `is_unwanted` names from those that wait.
    pub fn take_out(&mut self, is_unwanted: impl Fn(&Job) -> bool) -> Vec<Removed> {
        let waiting = self.mapping.take_out(&is_unwanted).into_iter();
        let waiting = waiting.chain(self.delayed.take_out(&is_unwanted));
        let waiting = waiting.map(|job| Removed { job, awaited: None });
        let has_number = |job: &Job| job.id != 0;
        let offered = self
            .offers
            .take_out(|job| has_number(job) && is_unwanted(job));
        let offered = offered.into_iter().map(|(id, offered)| Removed {
            job: *offered.job,
            awaited: matches!(offered.origin, OfferOrigin::Redirect(_)).then_some(id),
        });
        waiting.chain(offered).collect()
    }

    /// A request was cancelled in flight or while it waited for its answer, and is still to be fetched.
    pub fn keep_cancelled(&mut self, job: Job) {
        self.cancelled.push(job);
    }

    /// Removes those that an earlier run left and that are not queued yet, in order of admission. Each is made when
    /// it is asked for: there may be millions.
    pub fn drain_left(&mut self) -> impl Iterator<Item = Job> + use<> {
        self.left.drain()
    }

    /// Removes all other requests, except those that wait for the frontier's answer.
    pub fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        let waiting = self.mapping.drain().chain(self.delayed.drain());
        let cancelled = std::mem::take(&mut self.cancelled);
        // They ended when the sink took no more.
        let unsent = self.unsent.drain().map(|unsent| unsent.job);
        let waiting = waiting.map(|job| *job);
        waiting.chain(cancelled).chain(unsent)
    }

    /// Counts a seed with a URL of so many bytes; returns whether memory is to be measured.
    pub fn handle_seed(&mut self, url_bytes: usize) -> bool {
        self.memory.handle_seed(url_bytes)
    }

    /// Whether memory is to be measured in a tick. `expects_seeds`: more may come.
    pub fn measures_memory(&self, expects_seeds: bool, now: Instant) -> bool {
        expects_seeds || !self.memory.has_room() || self.memory.is_due(now)
    }

    /// So much memory is in use while so many requests are queued. Returns whether seeds may come in
    /// again.
    pub fn handle_memory(&mut self, memory: Option<Memory>, queued: usize, now: Instant) -> bool {
        let had_room = self.memory.has_room();
        self.memory.handle_memory(memory, queued, now);
        self.memory.has_room() && !had_room
    }
}
