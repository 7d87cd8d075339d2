//! What the throttle hears of an attempt: its answer, and how it ended.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::base::slab::Key;
use crate::base::stamp::Stamp;
use crate::crawl::core::Core;
use crate::crawl::flights::Flight;
use crate::crawl::network::faults::IDLE_CLOSED;
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::timings::Timings;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::sink::page::Page;
use crate::sink::reply::BodyMode;
use crate::throttle::signal::{Answer, Classify, Ending, Signal};
use crate::wire::http::Headers;
use crate::wire::marks;

impl<I: Io> Core<I> {
    /// The throttle hears the head of the reply that this connection carries.
    pub fn hear_head(&mut self, key: Key, socket: Key) {
        let exchange = self.network.http(socket).connection.exchange();
        let exchange = exchange.expect("a head has its exchange");
        let head = exchange.head().expect("the head just came");
        let flight = self.flights.get(key).expect("a reply has its attempt");
        let timings = exchange.timings();
        let signal = self.signal_of(flight, Some(head.status), &head.headers, None, timings);
        let (ticket, id) = (flight.ticket, flight.job.id);
        self.throttle.answer(ticket, id, &signal, self.now);
        let flight = self.flights.get_mut(key).expect("it was just there");
        flight.signal = Some(signal);
        self.keep_decisions(key);
    }

    /// The throttle hears of an attempt that ended without a head.
    pub fn on_no_response(
        &mut self,
        flight: &Flight,
        failure: Option<&Failure>,
        timings: &Timings,
    ) {
        let signal = self.signal_of(flight, None, &Headers::default(), failure, timings);
        self.throttle
            .answer(flight.ticket, flight.job.id, &signal, self.now);
    }

    /// The throttle hears how a reply ended whose head it heard of before.
    pub fn hear_end(&mut self, flight: &Flight, signal: &Signal, page: &Page) {
        let failure = page.failure.as_ref().map(|failure| failure.kind);
        if !self.throttle.listens(flight.ticket) && failure.is_none() {
            return;
        }
        let sent = page.timings.sent;
        let took = |end: Stamp| Some(end.at.saturating_since(sent?));
        let ending = Ending {
            failure,
            took: page.timings.body.and_then(took),
            size: page.body.len() as u64 + page.bytes_taken,
            digest: match page.body_mode {
                BodyMode::Keep => xxh3_64(&page.body),
                // What nobody looked at is like no other.
                _ => page.id,
            },
            mark: marks::block_mark(&page.body, page.content_type.as_deref()),
            items: self.with_page(&flight.job, page, |classify, answer| {
                classify.items(answer, &page.body)
            }),
        };
        self.throttle
            .ended(flight.ticket, flight.job.id, signal, &ending, self.now);
    }

    /// Counts an attempt in the statistics of its scopes. Requests of an open loop have no scopes
    /// of their own.
    pub fn count_in_scopes(&mut self, flight: &Flight, page: &Page) {
        if page.timings.sent.is_none() || !self.workload.has_scopes() {
            return;
        }
        for (scope, refused) in self.throttle.ticket_refusals(flight.ticket) {
            let name = self.throttle.scope_name(scope);
            self.output
                .stats_mut()
                .tally(name, refused, page.timings.server_latency());
        }
    }

    /// What whoever reads the answers says of another attempt.
    pub fn told_to_retry(&self, job: &Job, page: &Page) -> Option<bool> {
        self.with_page(job, page, |classify, answer| {
            classify.retries(answer, u32::from(job.attempt))
        })
    }

    /// Asks whoever reads the answers about one that is over.
    fn with_page<T>(
        &self,
        job: &Job,
        page: &Page,
        ask: impl FnOnce(&dyn Classify, &Answer<'_>) -> T,
    ) -> T {
        let names: SmallVec<[&str; 4]> = page.scopes.iter().map(String::as_str).collect();
        ask(
            &*self.classify,
            &Answer {
                id: job.id,
                url: job.url.as_str(),
                scopes: &names,
                status: page.status,
                headers: &page.headers,
                failure: page.failure.as_ref().map(|failure| failure.kind),
                server_latency: page.timings.server_latency(),
                latency: page.timings.latency(),
                slack: page.timings.latency_slack(),
                dont_adjust_delay: job.flags.dont_adjust_delay,
                wall: self.network.io().wall_at_start().at(self.now),
            },
        )
    }

    fn signal_of(
        &self,
        flight: &Flight,
        status: Option<u16>,
        headers: &Headers,
        failure: Option<&Failure>,
        timings: &Timings,
    ) -> Signal {
        let names: SmallVec<[&str; 4]> = self
            .throttle
            .ticket_scopes(flight.ticket)
            .map(|id| self.throttle.scope_name(id))
            .collect();
        // A kept connection that died idle is no word of the server's on our pace.
        let failure = failure.filter(|failure| failure.code != IDLE_CLOSED);
        // What timed out took at least as long as we waited.
        let timed_out = failure.is_some_and(|failure| failure.kind == FailureKind::Timeout);
        let waited = timings.sent.filter(|_| timed_out && status.is_none());
        let waited = waited.map(|sent| self.now.saturating_since(sent));
        self.classify.classify(&Answer {
            id: flight.job.id,
            url: flight.job.url.as_str(),
            scopes: &names,
            status,
            headers,
            failure: failure.map(|failure| failure.kind),
            server_latency: timings.server_latency().or(waited),
            latency: timings.latency().or(waited),
            slack: timings.latency_slack(),
            dont_adjust_delay: flight.job.flags.dont_adjust_delay,
            wall: self.network.io().wall_at_start().at(self.now),
        })
    }
}
