//! Continues an earlier run of the crawl from its state on disk: nothing of it is recorded again.

use std::time::Duration;

use crate::base::keys::HostKey;
use crate::base::time::Wall;
use crate::crawl::core::Core;
use crate::crawl::work::offers::OfferOrigin;
use crate::io::Io;
use crate::state::record::Entry;
use crate::state::replay::{Restored, is_in_seen_set};

impl<I: Io> Core<I> {
    /// Admits what an earlier run left, under its numbers, after what it had learned.
    pub fn restore(&mut self, restored: Restored) {
        self.frontier
            .numbers()
            .continue_from(restored.next_number.max(1));
        self.restore_facts(restored.facts, restored.is_quiet);
        if let Some(runs) = self.journal.seen() {
            let runs = runs.current().runs;
            self.frontier.seen_mut().restore(runs, &restored.undone);
        }
        self.frontier.restore_seen(&restored.seen);
        for (host, domain) in &restored.seed_hosts {
            self.frontier.restore_seed(HostKey(*host), HostKey(*domain));
        }
        for (host, delay) in restored.crawl_delays {
            let delay = Duration::from_nanos(delay);
            self.frontier.restore_crawl_delay(host, delay);
        }
        self.restore_spilled(restored.spilled);
        self.journal.restore_requested(restored.requested);
        for entry in restored.admitted {
            let is_started = restored.started.binary_search(&entry.job.id).is_ok();
            self.restore_admitted(entry, is_started);
        }
        for Entry { mut job, .. } in restored.offered {
            job.awaited = false;
            // It is offered again, under its number.
            self.journal.record_dropped(&job);
            if !job.is_without_credentials() && job.seed {
                self.requests.add_origin_of(&job.url);
            }
            let admission = self.offer(&job);
            self.on_admission(admission, job, OfferOrigin::Link);
        }
    }

    fn restore_admitted(&mut self, entry: Entry, is_started: bool) {
        let Entry {
            mut job,
            not_before,
            ..
        } = entry;
        // Its submitter is gone.
        job.awaited = false;
        // Its URL is in the seen set already, if at all.
        if job.seed && is_in_seen_set(&job) {
            self.frontier.add_seed(&job.url);
        }
        if job.seed && job.redirects == 0 && !job.is_without_credentials() {
            self.requests.add_origin_of(&job.url);
        }
        let wall = self.network.wall_at(self.now);
        let wait = not_before.map_or(Duration::ZERO, |at| Wall(at).saturating_since(wall));
        if is_started {
            return self.end_started(job);
        }
        if wait.is_zero() {
            return self.queue_admitted(job);
        }
        if let Some(early) = self.work.delay(job, self.now + wait) {
            self.release_later(early);
        }
    }
}
