//! Reports responses to the throttle, and the throttle's decisions to the sink and the log.

use crate::base::slab::Key;
use crate::crawl::classifier::{BodyStart, Response};
use crate::crawl::core::Core;
use crate::crawl::flights::Flight;
use crate::fetch::failure::Failure;
use crate::fetch::timings::Timings;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::sink::page::Page;
use crate::throttle::decision::{Decision, DecisionEvent};
use crate::throttle::engine::TicketId;
use crate::throttle::signal::{BodySignal, Signal};
use crate::wire::http::Headers;

impl<I: Io> Core<I> {
    /// The head of the response on this connection has arrived: it may change the pace.
    pub fn on_response_head(&mut self, key: Key, socket: Key) {
        let exchange = self.network.exchange_on(socket);
        let exchange = exchange.expect("a head has its exchange");
        let head = exchange.head().expect("the head just came");
        let flight = self.flights.get(key).expect("a reply has its attempt");
        let response = Response {
            status: Some(head.status),
            headers: &head.headers,
            failure: None,
            timings: exchange.timings(),
        };
        let signal = self.signal_of(flight, &response);
        let names = self.scope_names(flight);
        let classifier = &self.classifier;
        let body_start = classifier.body_start(&flight.job, names, &response, self.now);
        let (ticket, id) = (flight.ticket, flight.job.id);
        if let Some(start) = &body_start {
            self.network.want_body_start(socket, start.wanted);
        }
        match self.classifier.may_read_bodies() {
            true => self.throttle.answer_head(ticket, id, &signal, self.now),
            false => self.throttle.answer(ticket, id, &signal, self.now),
        }
        let flight = self.flights.get_mut(key).expect("it was just there");
        flight.signal = Some(signal);
        flight.body_start = body_start;
        self.keep_decisions(key);
    }

    /// Judges a body on this connection by its start, once that is there and the body goes on.
    pub fn judge_body_start(&mut self, socket: Key) {
        if !self.classifier.may_read_bodies() || !self.network.poll_body_start(socket) {
            return;
        }
        let key = self.network.attempt_on(socket);
        let exchange = self.network.exchange_on(socket);
        let exchange = exchange.expect("a body has its exchange");
        let head = exchange.head().expect("a body follows its head");
        let flight = self.flights.get(key).expect("a reply has its attempt");
        let response = Response {
            status: Some(head.status),
            headers: &head.headers,
            failure: None,
            timings: exchange.timings(),
        };
        let (names, start) = (self.scope_names(flight), exchange.start());
        let classifier = &self.classifier;
        let body = classifier.start_signal_of(&flight.job, names, &response, start, self.now);
        let signal = flight.signal.as_ref().expect("its head was judged");
        let (ticket, id) = (flight.ticket, flight.job.id);
        self.throttle
            .answer_body(ticket, id, signal, None, &body, self.now);
        let flight = self.flights.get_mut(key).expect("it was just there");
        let start = flight.body_start.as_mut();
        start.expect("its start is wanted").signal = Some(body);
        self.keep_decisions(key);
    }

    /// The names of the scopes of an attempt.
    fn scope_names(&self, flight: &Flight) -> impl Iterator<Item = &str> {
        let scopes = self.throttle.ticket_scopes(flight.ticket);
        scopes.map(|id| self.throttle.scope_name(id))
    }

    /// An attempt has ended without a head.
    pub fn on_no_response(
        &mut self,
        flight: &Flight,
        failure: Option<&Failure>,
        timings: &Timings,
    ) {
        let response = Response {
            status: None,
            headers: &Headers::default(),
            failure,
            timings,
        };
        let signal = self.signal_of(flight, &response);
        self.throttle
            .answer(flight.ticket, flight.job.id, &signal, self.now);
    }

    fn signal_of(&self, flight: &Flight, response: &Response<'_>) -> Signal {
        let names = self.scope_names(flight);
        self.classifier
            .signal_of(&flight.job, names, response, self.now)
    }

    /// A response has ended whose head gave this signal. `start`: the part of its body by which it is judged,
    /// if not all that was kept.
    pub fn on_response_end(
        &mut self,
        job: &Job,
        ticket: TicketId,
        signal: &Signal,
        start: Option<&BodyStart>,
        page: &mut Page,
    ) {
        let id = job.id;
        let failure = page.failure.as_ref().map(|failure| failure.kind);
        let body = match start.and_then(|start| start.signal.clone()) {
            // It was judged before; only its end is news.
            Some(judged) => BodySignal {
                feedback: Vec::new(),
                ..judged
            },
            None => (self.classifier).body_signal_of(job, page, start, self.now),
        };
        let is_judged = start.is_some_and(|start| start.signal.is_some());
        if !is_judged || failure.is_some() {
            self.throttle
                .answer_body(ticket, id, signal, failure, &body, self.now);
        }
        page.judged = body.status;
        if self.throttle.listens(ticket) {
            let replaced = body.status.map(|status| Signal {
                status: Some(status),
                ..signal.clone()
            });
            let signal = replaced.as_ref().unwrap_or(signal);
            let ending = self.classifier.ending_of(page, &body);
            self.throttle.ended(ticket, id, signal, &ending, self.now);
        }
    }

    /// The bodies of these replies are not decoded any more: their scopes get no verdict.
    pub fn end_without_verdict(&mut self, tickets: Vec<TicketId>) {
        for ticket in tickets {
            self.throttle.finish(ticket, self.now);
        }
    }

    /// Which of its scopes refused an attempt: a bit for each, in the order of its page's scopes.
    pub fn refusals_of(&self, ticket: TicketId) -> u32 {
        let refusals = self.throttle.ticket_refusals(ticket);
        let bits = (0..u32::BITS).zip(refusals);
        bits.fold(0, |bits, (number, (_, refused))| {
            bits | u32::from(refused) << number
        })
    }

    /// Counts an attempt in the statistics of its scopes, together with its line.
    pub fn count_in_scopes(&mut self, page: &Page, refusals: u32) {
        if page.timings.sent.is_none() || !self.workload.rules().counts_scopes {
            return;
        }
        let latency = page.timings.server_latency();
        for (number, scope) in (0..).zip(&page.scopes) {
            let refused = refusals
                .checked_shr(number)
                .is_some_and(|bits| bits & 1 > 0);
            self.output.stats_mut().tally(scope, refused, latency);
        }
    }

    /// Keeps the decisions that a head caused until its exchange has ended: only then the size of the body
    /// is known. No more are kept than are in flight.
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
            self.report(&decision);
        }
    }

    /// Reports the decisions that an attempt caused whose exchange has ended as this page.
    pub fn report_decisions_of(&mut self, job: &Job, mut decided: Vec<Decision>, page: &Page) {
        if decided.is_empty() && !self.throttle.has_decisions() {
            return;
        }
        let id = Some(job.id);
        let size = page
            .status
            .map(|_| page.body.len() as u64 + page.bytes_taken);
        decided.extend(self.throttle.take_decisions());
        for decision in &mut decided {
            if decision.id == id {
                decision.size = size;
            }
            self.report(decision);
        }
    }

    /// Reports the decisions since the last call. There are none without `AUTOTHROTTLE_DEBUG`.
    pub fn report_decisions(&mut self) {
        if !self.throttle.has_decisions() {
            return;
        }
        let decided: Vec<Decision> = self.throttle.take_decisions().collect();
        for decision in &decided {
            self.report(decision);
        }
    }

    fn report(&mut self, decision: &Decision) {
        if decision.event == DecisionEvent::Autothrottle {
            log::info!("{decision}");
        }
        let at = self.network.wall_at(decision.at);
        self.output.put_decision(decision, at);
    }
}
