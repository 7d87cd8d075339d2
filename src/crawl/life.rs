//! The life of a URL, in seven functions, in this order:
//! `admit`, `release_later`, `on_release`, `on_ready`, `on_bytes`, `on_head`, `on_end`.
//!
//! What each of them needs beyond its own step lives beside: names in `names.rs`, connections in
//! `carry.rs`, what a reply leads to in `follow.rs`.

use std::time::Duration;

use super::core::{Core, key_of};
use super::flight::{Flight, Socket, Stage};
use super::names::Resolved;
use crate::base::slab::Key;
use crate::fetch::connection::News;
use crate::fetch::exchange::{Exchange, Outcome};
use crate::fetch::failure::Failure;
use crate::fetch::timings::{Arrival, Timings};
use crate::frontier::filter::Filtered;
use crate::frontier::job::{Extra, Job};
use crate::frontier::request::{Kind, Request};
use crate::frontier::{Next, Unsent};
use crate::io::{Chunk, Clock, Io, Stamp};
use crate::throttle::engine::{LaneId, TicketId};
use crate::throttle::scope::ScopeId;
use crate::throttle::signal::Answer;
use crate::wire::url::{CrawlUrl, UrlError};

/// Why a request was not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no URL that can be fetched.
    Url(UrlError),
    /// A filter leaves it out.
    Filtered(Filtered),
}

impl<I: Io> Core<I> {
    /// 1. A request from outside comes in, if it is new and no filter leaves it out.
    pub fn admit(&mut self, request: Request) -> Result<u64, Refused> {
        let url = match CrawlUrl::parse(&request.url) {
            Ok(url) => self.without_dropped(url),
            Err(error) => {
                self.stats.seeds_bad += 1;
                log::warn!("{:?} is no URL to fetch: {error}", request.url);
                return Err(Refused::Url(error));
            }
        };
        self.stats.seeds += 1;
        self.frontier
            .check(&url, request.depth, true)
            .map_err(Refused::Filtered)?;
        let mut job = Job {
            id: self.frontier.number(),
            parent: 0,
            url,
            kind: Kind::Page,
            seed: true,
            redirects: 0,
            attempt: 1,
            depth: request.depth,
            priority: request.priority,
            extra: None,
        };
        let extra = Extra {
            method: request.method,
            headers: request.headers,
            body: request.body,
            scopes: request.scopes,
            dont_adjust_delay: request.dont_adjust_delay,
            meta: request.meta,
            tag: request.tag,
            ..Extra::default()
        };
        if extra.is_told() {
            job.extra = Some(Box::new(extra));
        }
        let id = job.id;
        self.release_later(job);
        Ok(id)
    }

    /// 2. Its lane waits for its scopes, and they wait on the wheel.
    pub fn release_later(&mut self, job: Job) {
        let scopes = self.scopes_of(&job);
        self.frontier
            .push(job, &scopes, &mut self.throttle, self.now);
    }

    /// 3. Ahead of due by the learned set-up time, the lane's next request takes a connection.
    pub fn on_release(&mut self, lane: LaneId, ticket: TicketId) {
        let addresses = if self.frontier.may_ask(lane, self.now) {
            match self.resolve(lane, ticket) {
                Resolved::Here(addresses) => Some(addresses),
                Resolved::Parked => return,
                Resolved::Never(failure) => {
                    return self.on_unresolvable(lane, ticket, failure);
                }
            }
        } else {
            None
        };
        loop {
            match self.frontier.next(lane, self.now) {
                Next::Send(job) => {
                    let addresses = addresses.expect("a host that may be asked was resolved");
                    return self.take_connection(job, lane, ticket, addresses);
                }
                Next::Unsent(job, why) => self.end_unsent(lane, &job, unsent_failure(&why)),
                Next::CrawlDelay(delay) => {
                    self.throttle.cancel(ticket, self.now);
                    self.heed_crawl_delay(lane, delay);
                    return self.frontier.go_on(lane, &mut self.throttle, self.now);
                }
                Next::Later => {
                    self.throttle.cancel(ticket, self.now);
                    return self.frontier.go_on(lane, &mut self.throttle, self.now);
                }
            }
        }
    }

    /// 4. Its connection is ready: the request departs when every gap allows.
    pub fn on_ready(&mut self, flight: Key, socket: Key) {
        let Some(state) = self.flights.get_mut(flight) else {
            return;
        };
        let stage = std::mem::replace(&mut state.stage, Stage::Moving);
        let Stage::Connecting { exchange, .. } = stage else {
            unreachable!("only an attempt that has none is given a connection");
        };
        state.stage = Stage::Ready { exchange, socket };
        let setup = self.now.saturating_since(state.released);
        let ticket = state.ticket;
        self.throttle.ready(ticket, setup, self.now);
    }

    /// 5. Bytes arrived: head, body, end, as the connection reads them.
    pub fn on_bytes(&mut self, key: Key, chunk: &Chunk, stamp: Stamp) {
        let mut used = 0;
        loop {
            let bytes = self.io.bytes(chunk);
            let mut rest = &bytes[used..];
            let news = match self.sockets.get_mut(key) {
                Some(Socket::Http(http)) => {
                    let before = http.connection.memory();
                    let news = http.connection.handle_bytes(&mut rest, arrival(stamp));
                    self.buffered = (self.buffered + http.connection.memory()).saturating_sub(before);
                    news
                }
                Some(Socket::Dns(socket)) => {
                    return self.resolver.handle_received(*socket, bytes, self.now);
                }
                None => return,
            };
            used = bytes.len() - rest.len();
            match news {
                Some(news) => self.on_news(key, news),
                None => return self.carry_on(key),
            }
        }
    }

    /// 6. The final head is there: its latency and what it means go to the throttle.
    pub fn on_head(&mut self, flight: Key) {
        let Some(state) = self.flights.get(flight) else {
            return;
        };
        let Stage::Exchanging { socket } = state.stage else {
            return;
        };
        let Some(Socket::Http(http)) = self.sockets.get(socket) else {
            return;
        };
        let Some(exchange) = http.connection.exchange() else {
            return;
        };
        let status = exchange.head().map(|head| head.status);
        let timings = *exchange.timings();
        self.answer(flight, status, None, &timings);
    }

    /// 7. It has ended: the sink has it, its links enter (1), its lane goes on (2).
    pub fn on_end(&mut self, flight: Key, exchange: Exchange, failure: Option<Failure>, line: Line) {
        let Some(flight) = self.take_off(flight) else {
            return;
        };
        let timings = *exchange.timings();
        if exchange.head().is_none() {
            self.answer(&flight, None, failure.as_ref(), &timings);
        }
        let mut page = self.page_of(&flight, &exchange, &line);
        self.throttle.finish(flight.ticket, self.now);
        let next = self.what_follows(&flight.job, &exchange, failure.as_ref());
        page.final_ = next.is_final();
        page.failure = next.failure().or(failure);
        page.redirect = next.location();
        let outcome = exchange.into_outcome();
        self.follow(&flight, next, &outcome, &mut page);
        let counts = page.final_ && page.status.is_some();
        self.deliver(page, outcome);
        self.frontier
            .ended(flight.lane, &flight.job, counts, &mut self.throttle, self.now);
    }
}

/// A back end's stamp, as the fetch floor takes it.
pub(super) fn arrival(stamp: Stamp) -> Arrival {
    Arrival {
        at: stamp.at,
        kernel: stamp.clock == Clock::Kernel,
        bound: stamp.bound,
    }
}

fn unsent_failure(why: &Unsent) -> Failure {
    todo!("{why:?}")
}
