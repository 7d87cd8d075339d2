//! Questions that several machines answer together: what is left to do, and what may be done now. Nothing
//! here changes a machine.

use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::network::rate::InFlight;
use crate::crawl::output::Backlog;
use crate::crawl::stats::Progress;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Whether requests are sent.
    pub fn is_running(&self) -> bool {
        self.control.phase().is_running()
    }

    /// Whether requests may be released.
    pub fn may_release(&self) -> bool {
        self.is_running()
            && !self.control.is_paused()
            && self.output.takes_more()
            && !self.network.is_full()
            && self.is_within_rate()
            && self.is_within_total()
            && !self.work.is_full()
            && !self.are_pages_full()
            // As many lanes may wait for names at once as may be in flight.
            && self.network.may_look_up(self.config.throttle.concurrent_requests)
            && !self.outage.stops_releases(self.network.in_flight_max())
    }

    /// Whether releases go on after one of them: requests that ended unsent are in the sink.
    pub fn may_release_more(&self) -> bool {
        self.output.is_ready()
            && !self.has_failed_too_often()
            && !self.are_pages_full()
            && self.is_within_rate()
            && self.is_within_total()
    }

    /// Whether `BYTES_PER_SECOND_MAX` allows one more request.
    pub fn is_within_rate(&self) -> bool {
        self.network.allows_request(self.in_flight(), self.now)
    }

    /// Whether `CLOSESPIDER_BYTECOUNT` allows one more request.
    pub fn is_within_total(&self) -> bool {
        let most = self.frontier.settings().bytes_max;
        (self.network).leaves_room(most, self.in_flight())
    }

    /// The requests in flight. Of one that has no attempt yet it is not known what it is for.
    fn in_flight(&self) -> InFlight {
        InFlight {
            all: self.throttle.in_flight(),
            robots: self.flights.robots(),
        }
    }

    /// Whether `CLOSESPIDER_BYTECOUNT` is reached.
    pub fn has_received_all(&self) -> bool {
        !(self.network).leaves_room(self.frontier.settings().bytes_max, InFlight::NONE)
    }

    /// Whether the replies that are processed and the requests in flight are as many as may be in flight.
    fn are_pages_full(&self) -> bool {
        self.pages
            .is_full(self.throttle.in_flight(), self.network.in_flight_max())
    }

    /// Whether there is room for one more request from outside.
    pub fn has_room(&self) -> bool {
        let is_disk_behind = self.journal.is_behind() || self.spill.is_behind();
        self.frontier.has_room() && self.work.has_room() && !is_disk_behind
    }

    /// Whether submissions wait that the next turn can take.
    pub fn may_take_submissions(&self) -> bool {
        self.is_running() && self.has_room() && self.control.has_submissions()
    }

    /// Whether no host is expected to answer for now: nothing is sent, or our network is silent.
    pub fn is_held_up(&self) -> bool {
        self.control.is_paused()
            || !self.output.takes_more()
            || self.outage.breaker().stops_all()
            || self.outage.breaker().is_all_silent()
    }

    /// Whether `CLOSESPIDER_ERRORCOUNT` is reached.
    pub fn has_failed_too_often(&self) -> bool {
        let max = self.frontier.settings().errors_max;
        let stats = self.output.stats();
        max > 0 && stats.errors_earlier + stats.errors_final >= max
    }

    /// Whether replies are processed.
    pub fn has_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Whether nothing is left to do before a worker returns a page.
    pub fn waits_for_workers(&self) -> bool {
        self.flights.is_empty() && self.pages.are_at_workers()
    }

    /// Whether the scopes of all requests are known, also of those in files, and the sink has all that ended unsent.
    pub fn are_scopes_known(&self) -> bool {
        self.work.is_empty()
            && !self.work.has_unsent()
            && self.spill.is_empty()
            && self.control.is_empty()
    }

    /// Whether nothing is on its way, once nothing is released any more.
    pub fn is_drained(&self) -> bool {
        self.flights.is_empty()
            && self.pages.is_empty()
            && !self.work.has_unsent()
            && !self.work.has_offers()
    }

    /// Whether a crawl that stops waits only for answers to offers, and the full seen set gives no answer.
    pub fn waits_in_vain(&self) -> bool {
        if !self.flights.is_empty() || !self.work.has_offers() {
            return false;
        }
        let are_pages_held =
            !self.pages.has_under_way() || self.work.is_full_of_offers() && self.output.is_ready();
        // Keys in memory become no run while the crawl ends.
        let are_answered = !self.journal.is_looking_up() && self.frontier.is_seen_set_full();
        are_pages_held && are_answered
    }

    /// Whether nothing is left to do, except for submissions that were not taken yet.
    pub fn is_exhausted(&self) -> bool {
        self.flights.is_empty()
            && self.pages.is_empty()
            && self.frontier.queued() == 0
            && self.spill.is_empty()
            && self.work.is_empty()
            && !self.work.has_unsent()
            && self.outage.is_idle()
            && self.workload.is_spent()
            // Their owner may submit more when it takes them.
            && !self.output.results_wait()
            && self.control.is_exhausted()
    }

    /// Whether nothing happens before something comes from outside.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
            && self.pages.is_empty()
            && self.network.is_empty()
            && self.steering.is_empty()
            && self.frontier.queued() == 0
            && self.spill.is_empty()
            && self.work.is_empty()
            && !self.work.has_unsent()
            // Those that find no room wait until memory is measured again.
            && !(self.is_running() && self.control.has_submissions())
            && !self.workload.rules().is_by_clock
            && !self.output.has_stats_file()
            && self.output.is_ready()
    }

    /// In virtual time, waits for what other threads do if nothing else can happen.
    pub fn wait_outside(&self) {
        let is_awaited = self.control.has_handles() || self.output.results_wait();
        if is_awaited && self.is_idle() && self.is_running() {
            self.network.io().wait_outside();
        }
    }

    /// Requests that wait while the sink is not ready.
    pub fn backlog(&self) -> Backlog {
        Backlog {
            queued: self.frontier.queued() + self.spill.len() + self.work.len(),
            under_way: self.flights.len() + self.pages.len(),
            ended: self.work.unsent_len(),
        }
    }

    /// Progress of the crawl.
    pub fn progress(&self) -> Progress {
        let wall = self.network.wall_at_start();
        let (disk_pauses, disk_paused) = self.output.disk_pauses(self.now);
        let (outages, outage_time) = self.outage.breaker().totals(self.now);
        let open = self.outage.breaker().open_for(self.now);
        let (hosts_held, next_host) = self.frontier.hosts_held(self.now);
        Progress {
            finish_reason: self.control.phase().finish_reason(),
            io: self.network.io_kind(),
            started: wall,
            now: wall.at(self.now),
            elapsed: self.now.saturating_since(Instant::START),
            queued: self.backlog().queued + self.outage.held(),
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
            totals: self.totals(),
        }
    }
}
