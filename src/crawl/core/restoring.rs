//! Continues an earlier run of the crawl from its state on disk: nothing of it is recorded again.

use crate::base::keys::HostKey;
use crate::base::time::Wall;
use crate::crawl::core::Core;
use crate::crawl::core::orders::CancelOrders;
use crate::crawl::work::left::{LeftRequest, LeftRequests};
use crate::crawl::work::offers::OfferOrigin;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::state::record::Entry;
use crate::state::replay::Restored;

/// Requests that are queued in one turn, about a microsecond each.
const QUEUED_PER_TURN: usize = if cfg!(test) { 3 } else { 256 };

impl<I: Io> Core<I> {
    /// Continues with what an earlier run had learned and seen. What it left is queued in the turns that follow,
    /// under its numbers.
    pub fn restore(&mut self, mut restored: Restored) {
        self.frontier.exclude_restored();
        self.frontier
            .numbers()
            .continue_from(restored.next_number.max(1));
        let mut cancel_orders = CancelOrders::of(&restored.facts);
        self.restore_cancelled_scopes(&mut cancel_orders);
        let crawl_delays = restored.facts.take_crawl_delays();
        self.frontier.restore_crawl_delays(crawl_delays);
        self.restore_facts(restored.facts, restored.is_quiet);
        // First what frees more memory than it takes.
        for (host, domain) in restored.seed_hosts.into_pairs() {
            self.frontier.restore_seed(HostKey(host), HostKey(domain));
        }
        if let Some(runs) = self.journal.seen() {
            let runs = runs.current().runs;
            self.frontier.seen_mut().restore(runs, &restored.undone);
        }
        self.frontier.restore_seen(restored.seen);
        self.restore_spilled(restored.spilled);
        self.journal.restore_requested(restored.requested);
        if self.requests.are_limited() {
            // Before a request to the same origin is sent without them.
            for Entry { job, .. } in restored.admitted.iter() {
                self.restore_origin(&job);
            }
        }
        for Entry { mut job, .. } in restored.offered {
            job.awaited = false;
            let Some(job) = self.end_offered(job, &mut cancel_orders) else {
                continue;
            };
            // It is offered again, under its number.
            self.journal.record_dropped(&job);
            self.restore_origin(&job);
            let admission = self.offer(&job);
            self.on_admission(admission, job, OfferOrigin::Link);
        }
        let left = LeftRequests::new(restored.admitted, restored.started);
        self.work.restore(left);
        self.restore_cancelled(cancel_orders);
        self.wakeups.turn_again();
    }

    /// Queues some of the requests that an earlier run left.
    pub fn queue_left(&mut self) {
        for _ in 0..QUEUED_PER_TURN {
            let Some(left) = self.work.poll_left() else {
                return;
            };
            self.take_left(left);
        }
        self.wakeups.turn_again_if(self.work.has_left());
    }

    /// The crawl ends: what an earlier run left and is not made ends as well, though it is not its turn yet.
    pub fn end_unmade(&mut self) {
        if self.work.has_cancelled_scopes() {
            // Those of a request are known once it is queued.
            while let Some(left) = self.work.poll_left() {
                self.take_left(left);
            }
        }
        for left in self.work.take_unmade() {
            self.take_left(left);
        }
    }

    fn take_left(&mut self, left: LeftRequest) {
        match left {
            LeftRequest::Queued(job) => self.queue_again(job),
            LeftRequest::Delayed(job, at) => self.delay_left(job, at),
            LeftRequest::Started(job) => self.end_started(job),
            LeftRequest::Cancelled(job) => self.end_cancelled(job),
        }
    }

    fn delay_left(&mut self, job: Job, at: Wall) {
        let wait = at.saturating_since(self.network.wall_at(self.now));
        if wait.is_zero() {
            return self.queue_again(job);
        }
        if let Some(early) = self.work.delay(job, self.now + wait) {
            self.release_later(early);
        }
    }

    /// The user named the URL of a seed, also in an earlier run.
    pub fn restore_origin(&mut self, job: &Job) {
        if job.names_origin() && !job.is_without_credentials() {
            self.name_origin(&job.url);
        }
    }
}
