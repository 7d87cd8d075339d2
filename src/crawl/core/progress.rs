//! Ticks, `stats.json`, and how far the crawl has come.

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::output::Backlog;
use crate::crawl::pace_report::{MOST, MOST_RUNNING, PaceReport};
use crate::crawl::stats::Progress;
use crate::crawl::stats::Snapshot;
use crate::crawl::timer::TICK;
use crate::io::Io;

/// Interval at which a sink that was not ready is asked again.
const SINK_INTERVAL: Duration = Duration::from_millis(5);

impl<I: Io> Core<I> {
    /// A second has passed: writes statistics, flushes sinks, measures what is limited.
    pub fn tick(&mut self) {
        let is_idle = self.is_idle();
        self.wakeups.set_tick(is_idle, self.now);
        // A lookup that made room may have had no lane to notify.
        self.offer_unresolved();
        self.output.flush();
        if let Some(most) = self.network.tick(self.now) {
            self.throttle.set_in_flight_max(most);
        }
        self.watch_memory();
        if self.control.has_handles() {
            self.answer_handles();
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
        let json = self.output.stats().to_value(&progress, &pacing);
        let mut text = serde_json::to_vec_pretty(&json).expect("a tree of numbers and names");
        text.push(b'\n');
        self.output.write_stats(text);
    }

    pub fn hand_to_disk(&mut self) {
        for job in self.output.poll_jobs() {
            self.network.disk(job);
        }
    }

    /// Pacing of the scopes so far: `most` of each ranking.
    pub fn pacing(&self, most: usize) -> PaceReport {
        PaceReport::of(&self.throttle, most, self.now)
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

    /// Returns a snapshot to the handles that ask.
    pub fn answer_handles(&self) {
        let snapshot = Snapshot::of(
            self.output.stats(),
            self.progress(),
            self.control.is_paused(),
        );
        self.control.answer(snapshot);
    }

    /// A turn ends: notes whether the sink takes more.
    pub fn check_sink(&mut self) {
        let backlog = Backlog {
            queued: self.frontier.queued() + self.work.len(),
            under_way: self.flights.len() + self.pages.len(),
            ended: self.work.unsent_len(),
        };
        let is_fetching = self.control.phase().is_fetching();
        self.output.check_sink(backlog, is_fetching, self.now);
    }

    /// Interval at which a sink that is not ready is asked again. While it waits for room on the disk, an
    /// event wakes the crawl.
    pub fn sink_interval(&self) -> Duration {
        match self.output.has_disk_room() {
            true => SINK_INTERVAL,
            false => TICK,
        }
    }
}
