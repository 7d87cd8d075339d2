//! What a loop works for: a crawl or a probe. Every difference between the two is a rule or a method here,
//! so that the life of a URL tests a rule instead of the kind of workload.

use crate::admin::format::MetricsFormat;
use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::crawl::finish::FinishReason;
use crate::crawl::probe::open_loop::{OpenLoop, Overdue, QueuedRequest};
use crate::crawl::probe::watch::{NoMetrics, WatchCounts};
use crate::frontier::job::Job;
use crate::sink::page::Page;

/// Rules in which workloads differ.
pub struct Rules {
    /// Requests come in by the clock.
    pub is_by_clock: bool,
    /// Redirects, links, rules and sitemaps of replies are followed.
    pub follows_replies: bool,
    /// The sink may take bodies while they arrive.
    pub streams_bodies: bool,
    /// Requests wait for a host that does not answer, and cost no attempt meanwhile.
    pub waits_for_hosts: bool,
    /// Requests wait where this machine has no socket or port for them, or is slow to find one.
    pub waits_for_machine: bool,
    /// Attempts are counted in the statistics of their scopes.
    pub counts_scopes: bool,
}

/// Requests come from seeds, sources, handles and links; replies are followed.
const CRAWL: Rules = Rules {
    is_by_clock: false,
    follows_replies: true,
    streams_bodies: true,
    waits_for_hosts: true,
    waits_for_machine: true,
    counts_scopes: true,
};

/// Requests come in by the clock; replies are measured, and lead to nothing. What could not be sent, and how
/// long everything took, is reported. Requests have no scopes of their own.
const PROBE: Rules = Rules {
    is_by_clock: true,
    follows_replies: false,
    streams_bodies: false,
    waits_for_hosts: false,
    waits_for_machine: false,
    counts_scopes: false,
};

/// The workload of a loop.
pub struct Workload {
    rules: &'static Rules,
    /// The requests of a probe.
    open_loop: Option<Box<OpenLoop>>,
}

/// Requests that are due.
pub enum Arrival {
    /// Nothing, for now.
    None,
    /// A request that is dropped, since too many wait.
    Dropped,
    /// A request, without a number.
    Request(Box<Job>),
}

impl Workload {
    /// A crawl.
    pub fn crawl() -> Self {
        Workload {
            rules: &CRAWL,
            open_loop: None,
        }
    }

    /// A probe of these requests.
    pub fn probe(open_loop: OpenLoop) -> Self {
        Workload {
            rules: &PROBE,
            open_loop: Some(Box::new(open_loop)),
        }
    }

    /// The rules that hold.
    pub fn rules(&self) -> &'static Rules {
        self.rules
    }

    /// The requests of a probe.
    pub fn open_loop(&self) -> Option<&OpenLoop> {
        self.open_loop.as_deref()
    }

    /// The same, mutable.
    pub fn open_loop_mut(&mut self) -> Option<&mut OpenLoop> {
        self.open_loop.as_deref_mut()
    }

    /// What became of the requests to targets that are requested over and over.
    pub fn watch_counts(&self) -> Option<WatchCounts> {
        Some(self.open_loop()?.watched()?.counts())
    }

    /// The metrics of the target with this URL.
    ///
    /// # Errors
    /// There is no such target, or it has no result yet.
    pub fn target_metrics(&self, url: &str, format: MetricsFormat) -> Result<String, NoMetrics> {
        let watch = self.open_loop().and_then(OpenLoop::watched);
        watch.ok_or(NoMetrics::Unwatched)?.metrics(url, format)
    }

    /// Whether of bodies the length alone is wanted: those of targets that are watched.
    pub fn counts_bodies(&self) -> bool {
        self.open_loop()
            .is_some_and(|requests| requests.watched().is_some())
    }

    /// A request waits in this lane from now on.
    pub fn note_queued(&mut self, queued: QueuedRequest, lane: LaneId) {
        if let Some(requests) = self.open_loop_mut() {
            requests.note_queued(queued, lane);
        }
    }

    /// A request to a watched target that may wait no longer, whether it still waits or not.
    pub fn poll_overdue(&mut self, now: Instant) -> Option<Overdue> {
        self.open_loop_mut()?.poll_overdue(now)
    }

    /// A request to a watched target may wait until all of its time is over.
    pub fn extend(&mut self, tag: u64) {
        if let Some(requests) = self.open_loop_mut() {
            requests.extend(tag);
        }
    }

    /// Whether a request to a watched target may wait no longer.
    pub fn is_overdue(&self, tag: u64, now: Instant) -> bool {
        self.open_loop()
            .is_some_and(|requests| requests.is_overdue(tag, now))
    }

    /// Requests are held back now, for a reason that is not the targets'.
    pub fn note_held(&mut self, now: Instant) {
        if let Some(requests) = self.open_loop_mut() {
            requests.note_held(now);
        }
    }

    /// Whether requests were held back since one to a watched target was due.
    pub fn was_held(&self, tag: u64) -> bool {
        self.open_loop()
            .is_some_and(|requests| requests.was_held(tag))
    }

    /// A request to a watched target is not sent, for a reason that is not its target's.
    pub fn skip(&mut self, tag: u64) {
        if let Some(requests) = self.open_loop_mut() {
            requests.skip(tag);
        }
    }

    /// When the time of a request began, if not with its release: a request to a watched target has the time from
    /// its due time on, so that it ends before the next one.
    pub fn due_of(&self, tag: u64) -> Option<Instant> {
        self.open_loop()?.due_of(tag)
    }

    /// When the next request is due by the clock, or the last ones are abandoned.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.open_loop()?.next()
    }

    /// Takes the next request that is due by the clock, while `waiting` others wait to be sent.
    pub fn take_arrival(&mut self, waiting: usize, now: Instant) -> Arrival {
        match self
            .open_loop_mut()
            .and_then(|requests| requests.take(waiting, now))
        {
            None => Arrival::None,
            Some(None) => Arrival::Dropped,
            Some(Some(job)) => Arrival::Request(Box::new(job)),
        }
    }

    /// No request comes in any more.
    pub fn close_arrivals(&mut self, now: Instant) {
        if let Some(requests) = self.open_loop_mut() {
            requests.close(now);
        }
    }

    /// Returns whether no more requests come in by the clock.
    pub fn is_spent(&self) -> bool {
        self.open_loop().is_none_or(OpenLoop::is_spent)
    }

    /// Why the loop should end though requests are left, if it should.
    pub fn is_stuck(&self, now: Instant) -> Option<FinishReason> {
        self.open_loop()?.is_stuck(now)
    }

    /// Maximum number of connections, idle ones included, beside what open files allow.
    pub fn connections_max(&self) -> usize {
        self.open_loop()
            .map_or(usize::MAX, OpenLoop::connections_max)
    }

    /// Returns whether a connection is kept whose reply has ended: where something is queued for its
    /// origin. A probe's requests are queued only when they are due.
    pub fn keeps_connection(&self, is_queued: bool) -> bool {
        self.open_loop()
            .map_or(is_queued, |requests| requests.keeps_connection(is_queued))
    }

    /// An attempt has ended with this page, before the sink has it.
    pub fn handle_page(&mut self, page: &mut Page) {
        if let Some(requests) = self.open_loop_mut() {
            requests.end(page);
        }
    }
}
