//! Ticks, `stats.json`, and snapshots for handles.

use std::time::Duration;

use crate::crawl::core::Core;
use crate::crawl::pace_report::{MOST, MOST_RUNNING, PaceReport};
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
        self.output.flush(self.network.wall_at(self.now));
        if let Some(most) = self.network.tick(self.now) {
            self.throttle.set_in_flight_max(most);
        }
        if self.config.max_time.is_some() {
            self.journal.count_time(self.now);
        }
        self.watch_memory();
        self.take_sample(is_idle);
        self.control.offer_room(true);
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
        // A block of requests is durable before the commit of its record.
        let spill = self.spill.poll_jobs().into_iter();
        let state = spill.chain(self.journal.poll_jobs(self.now));
        for job in state.chain(self.output.poll_jobs()) {
            self.network.disk(job);
        }
    }

    /// Pacing of the scopes so far: `most` of each ranking.
    pub fn pacing(&self, most: usize) -> PaceReport {
        PaceReport::of(&self.throttle, most, self.now)
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
        let is_fetching = self.control.phase().is_fetching();
        self.output
            .check_sink(self.backlog(), is_fetching, self.now);
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
