//! What the throttle decided, on its way to the sink and to the log. There is nothing to tell
//! without `AUTOTHROTTLE_DEBUG`.

use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::Flight;
use crate::io::Io;
use crate::sink::page::Page;
use crate::throttle::decision::{Decision, Event};

impl<I: Io> Core<I> {
    /// Keeps what an answer led to until its exchange has ended: only then the size of the body is
    /// known. So no more is kept than is in flight.
    pub fn keep_decisions(&mut self, key: Key) {
        if !self.throttle.has_decisions() {
            return;
        }
        let Some(flight) = self.flights.get_mut(key) else {
            return;
        };
        let id = Some(flight.job.id);
        let decided = self.throttle.take_decisions();
        let (own, others): (Vec<_>, Vec<_>) = decided.partition(|decision| decision.id == id);
        flight.decisions.extend(own);
        for decision in others {
            self.tell(&decision);
        }
    }

    /// Tells what an attempt led to whose exchange has ended as this page.
    pub fn report_decisions_of(&mut self, flight: &mut Flight, page: &Page) {
        if flight.decisions.is_empty() && !self.throttle.has_decisions() {
            return;
        }
        let id = Some(flight.job.id);
        let size = page
            .status
            .map(|_| page.body.len() as u64 + page.bytes_taken);
        let mut decided = std::mem::take(&mut flight.decisions);
        decided.extend(self.throttle.take_decisions());
        for decision in &mut decided {
            if decision.id == id {
                decision.size = size;
            }
            self.tell(decision);
        }
    }

    /// Tells what was decided since the last time.
    pub fn report_decisions(&mut self) {
        if !self.throttle.has_decisions() {
            return;
        }
        let decided: Vec<Decision> = self.throttle.take_decisions().collect();
        for decision in &decided {
            self.tell(decision);
        }
    }

    fn tell(&mut self, decision: &Decision) {
        if decision.event == Event::Autothrottle {
            log::info!("{decision}");
        }
        let at = self.network.io().wall_at_start().at(decision.at);
        self.output.put_decision(decision, at);
    }
}
