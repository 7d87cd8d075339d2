//! Samples of the totals, for charts of pages that are opened later.

use crate::admin::response::Response;
use crate::crawl::core::Core;
use crate::crawl::stats::Spread;
use crate::crawl::steering::{Measured, Sample};
use crate::crawl::timer::TICK;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Takes a sample if one is due. `is_last`: no tick follows for now.
    pub fn take_sample(&mut self, is_last: bool) {
        if !self.steering.history().is_due(is_last, self.now) {
            return;
        }
        let stats = self.output.stats();
        let sample = Sample {
            at: self.now,
            pages: stats.pages,
            bytes_wire: stats.bytes_wire,
            server_latency: measured(&stats.server_latency),
            lateness: measured(&stats.lateness),
        };
        self.steering.history_mut().add(sample, TICK);
    }

    /// The samples of the last hour.
    pub fn history(&self) -> Response {
        let started = self.network.wall_at_start();
        let json = self.steering.history().to_json(started);
        Response::of(200, "application/json", json)
    }
}

fn measured(spread: &Spread) -> Measured {
    Measured {
        count: spread.count(),
        seconds: spread.sum_seconds(),
    }
}
