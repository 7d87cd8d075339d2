//! Takes in the requests of a probe that are due.

use crate::base::scopes::Scopes;
use crate::crawl::control::phase::Phase;
use crate::crawl::core::Core;
use crate::crawl::workload::Arrival;
use crate::io::Io;

/// Requests taken in in one turn: more would keep those waiting that are in already.
const ARRIVALS_PER_TURN: usize = 256;

impl<I: Io> Core<I> {
    /// Takes in the requests of a probe that are due.
    pub fn arrive(&mut self) {
        if !self.workload.has_arrivals() {
            return;
        }
        if self.phase != Phase::Running {
            return self.workload.close_arrivals(self.now);
        }
        // A turn may be long, and they are due whatever it has to do.
        self.now = self.network.io().now();
        for _ in 0..ARRIVALS_PER_TURN {
            let waiting = self.frontier.queued();
            match self.workload.take_arrival(waiting, self.now) {
                Arrival::None => return,
                Arrival::Dropped => {}
                Arrival::Request(mut job) => {
                    job.id = self.frontier.number();
                    self.queue(*job, &Scopes::new());
                }
            }
        }
        self.unfinished = true;
    }
}
