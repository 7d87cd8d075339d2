//! Cancels attempts when the crawl stops or pauses: what has not departed goes back to the frontier, what
//! is on its way ends as `cancelled`.

use crate::base::bound::Bound;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::{Flight, Stage};
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::request::PageKind;
use crate::io::{Close, Io};

impl<I: Io> Core<I> {
    /// Returns every request that has not departed to its lane: nothing more is sent.
    pub fn cancel_unsent(&mut self) {
        for key in self
            .flights
            .keys_where(|stage| !matches!(stage, Stage::Exchanging { .. }))
        {
            let flight = self.withdraw(key);
            self.return_to_lane(flight.lane, flight.job);
        }
        let idle = self.network.idle_len();
        let mut steps = Bound::new("close idle connections", idle);
        while let Some(origin) = self.network.evict_idle() {
            self.release_origin(origin);
            if !steps.step() {
                break;
            }
        }
    }

    /// Ends what is on its way. It is still to be fetched, so it is kept for `pending.jsonl`, unless its
    /// submitter is notified of its end.
    pub fn cancel_all(&mut self) {
        self.requeue_suspects();
        self.cancel_unsent();
        self.settle_offers();
        self.put_all_unsent();
        for key in self.flights.keys_where(|_| true) {
            let Some(flight) = self.flights.get(key) else {
                continue;
            };
            let Stage::Exchanging { socket } = flight.stage else {
                continue;
            };
            if flight.job.kind != PageKind::Robots && !flight.job.awaited {
                self.work.keep_cancelled(flight.job.clone());
            }
            let failure = Failure::new(
                FailureKind::Cancelled,
                "stopped",
                "the crawl was stopped before the reply was complete",
            );
            if let Some(event) = self.network.abort(socket, failure, self.now) {
                self.on_connection_event(socket, event);
            }
        }
    }

    /// Removes an attempt that has not departed; closes its connections and returns its ticket.
    pub fn withdraw(&mut self, key: Key) -> Flight {
        let flight = self.flights.remove(key).expect("the caller found it");
        match &flight.stage {
            Stage::Connecting { .. } => self.abandon(key),
            Stage::Ready { socket, .. } => self.close_socket(*socket, Close::Finish),
            Stage::Exchanging { .. } | Stage::Moving => {}
        }
        self.release_origin(flight.origin);
        self.throttle.cancel(flight.ticket, self.now);
        flight
    }
}
