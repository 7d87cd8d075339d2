//! What a loop works for: a crawl or a probe. Every difference between the two is a method here, so that
//! the life of a URL asks for a rule and not for its workload.

use crate::base::time::Instant;
use crate::crawl::finish::FinishReason;
use crate::crawl::probe::open_loop::OpenLoop;
use crate::frontier::job::Job;
use crate::sink::page::Page;

/// The workload of a loop.
pub enum Workload {
    /// Requests come from seeds, sources, handles and links; replies are followed.
    Crawl,
    /// Requests come in by the clock; replies are measured, and lead to nothing.
    Probe(Box<OpenLoop>),
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
    /// The requests of a probe.
    pub fn probe(&self) -> Option<&OpenLoop> {
        match self {
            Workload::Crawl => None,
            Workload::Probe(requests) => Some(requests),
        }
    }

    /// The same, mutable.
    pub fn probe_mut(&mut self) -> Option<&mut OpenLoop> {
        match self {
            Workload::Crawl => None,
            Workload::Probe(requests) => Some(requests),
        }
    }

    /// Returns whether requests come in by the clock.
    pub fn has_arrivals(&self) -> bool {
        self.probe().is_some()
    }

    /// When the next request is due by the clock, or the last ones are given up.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.probe()?.next()
    }

    /// Takes the next request that is due by the clock, while `waiting` others wait to be sent.
    pub fn take_arrival(&mut self, waiting: usize, now: Instant) -> Arrival {
        match self.probe_mut().and_then(|probe| probe.take(waiting, now)) {
            None => Arrival::None,
            Some(None) => Arrival::Dropped,
            Some(Some(job)) => Arrival::Request(Box::new(job)),
        }
    }

    /// No request comes in any more.
    pub fn close_arrivals(&mut self, now: Instant) {
        if let Some(probe) = self.probe_mut() {
            probe.close(now);
        }
    }

    /// Returns whether no more requests come in by the clock.
    pub fn is_spent(&self) -> bool {
        self.probe().is_none_or(OpenLoop::is_spent)
    }

    /// Why the loop should end though requests are left, if it should.
    pub fn is_stuck(&self, now: Instant) -> Option<FinishReason> {
        self.probe()?.is_stuck(now)
    }

    /// Maximum number of connections, idle ones included, beside what open files allow.
    pub fn connections_max(&self) -> usize {
        self.probe().map_or(usize::MAX, OpenLoop::connections_max)
    }

    /// Returns whether a connection is kept whose reply has ended: where something is queued for its
    /// origin. A probe's requests are queued only when they are due.
    pub fn keeps_connection(&self, is_queued: bool) -> bool {
        self.probe()
            .map_or(is_queued, |probe| probe.keeps_connection(is_queued))
    }

    /// Returns whether requests wait where our machine has no socket or port for them, or is slow to find
    /// one. A probe reports what it could not send, and how long everything took.
    pub fn waits_for_machine(&self) -> bool {
        !self.has_arrivals()
    }

    /// Returns whether requests wait for a host that does not answer, and cost no attempt meanwhile.
    pub fn waits_for_hosts(&self) -> bool {
        !self.has_arrivals()
    }

    /// Returns whether redirects, links, rules and sitemaps of replies are followed.
    pub fn follows_replies(&self) -> bool {
        !self.has_arrivals()
    }

    /// Returns whether the sink may take bodies while they arrive.
    pub fn streams_bodies(&self) -> bool {
        !self.has_arrivals()
    }

    /// Returns whether attempts are counted in the statistics of their scopes. A probe's have none of
    /// their own.
    pub fn has_scopes(&self) -> bool {
        !self.has_arrivals()
    }

    /// An attempt has ended with this page, before the sink has it.
    pub fn handle_page(&mut self, page: &mut Page) {
        if let Some(probe) = self.probe_mut() {
            probe.end(page);
        }
    }
}
