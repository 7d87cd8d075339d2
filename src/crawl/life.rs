//! The life of a URL, in seven functions, in this order:
//! `admit`, `release_later`, `on_release`, `on_ready`, `on_bytes`, `on_head`, `on_end`.
//!
//! What a step needs beyond itself lives below: scopes in `scopes.rs`, names in `names.rs`,
//! connections in `connecting.rs`, what leaves on them in `sending.rs`, what they say in `news.rs`,
//! which of them are read in `reading.rs`, how they end in `closing.rs`; what is reported to the throttle in
//! `hearing.rs`, what a reply leads to in `follow.rs`, the work on its
//! body in `work.rs` and `finding.rs`, its result line in `report.rs`.

pub(super) mod admission;
pub(super) mod scopes;
pub(super) mod mapping;
pub(super) mod names;
pub(super) mod guard;
pub(super) mod origins;
pub(super) mod description;
pub(super) mod connecting;
mod contact;
pub(super) mod credentials;
pub(super) mod sending;
pub(super) mod news;
mod deadlines;
mod reading;
mod closing;
pub(super) mod intake;
pub(super) mod storage;
pub(super) mod memory;
pub(super) mod flight;
pub(super) mod ports;
pub(super) mod room;
pub(super) mod spare;
pub(super) mod pieces;
#[cfg(feature = "cookies")]
pub(super) mod cookies;
pub(super) mod hearing;
mod health;
pub(super) mod outage;
pub(super) mod follow;
pub(super) mod work;
pub(super) mod finding;
pub(super) mod delayed;
pub(super) mod report;
pub(super) mod decisions;

use self::admission::{AdmitError, job_of};
use self::flight::{Carrier, Socket, Stage};
use self::names::Resolved;
use self::pieces::Read;
use self::work::Task;
use super::core::Core;
use crate::base::bound::Bound;
use crate::base::slab::Key;
use crate::fetch::exchange::Exchange;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::filter::Filtered;
use crate::frontier::job::Job;
use crate::frontier::request::{Kind, Request};
use crate::frontier::{Next, Unsent};
use crate::io::{Chunk, Io, Stamp};
use crate::throttle::engine::{LaneId, TicketId};

/// Requests of one lane that may end unsent before others have their turn.
pub(super) const UNSENT_PER_RELEASE: usize = 64;

impl<I: Io> Core<I> {
    /// 1. A request from outside comes in, if it is new and no filter leaves it out.
    pub fn admit(&mut self, request: &Request) -> Result<u64, AdmitError> {
        let mut job = job_of(request, &self.config).inspect_err(|refused| {
            log::warn!("{}: {refused}", request.url);
            self.stats.seeds_bad += 1;
        })?;
        self.stats.seeds += 1;
        self.admit_from_outside(&job)
            .map_err(AdmitError::Filtered)?;
        job.id = self.frontier.number();
        let id = job.id;
        self.release_later(job);
        Ok(id)
    }

    /// The same for one that has its number, since it was submitted through a handle: whoever did
    /// that hears of it if it is left out.
    pub fn admit_heard(&mut self, job: Job) {
        self.stats.seeds += 1;
        match self.admit_from_outside(&job) {
            Ok(()) => self.release_later(job),
            Err(filtered) => self.end_later(job, Vec::new(), left_out(filtered)),
        }
    }

    /// Whether a request from outside comes in.
    fn admit_from_outside(&mut self, job: &Job) -> Result<(), Filtered> {
        if !job.is_without_credentials() {
            self.credentials.add_origin_of(&job.url);
        }
        self.check(job, true)
    }

    /// Whether a filter leaves it out; see [`Frontier::check`](crate::frontier::Frontier::check).
    pub fn check(&mut self, job: &Job, seed: bool) -> Result<(), Filtered> {
        let (frontier, throttle) = (&mut self.frontier, &mut self.throttle);
        if job.flags.dont_filter {
            frontier.mark_seen(&job.url, seed, throttle);
            return Ok(());
        }
        match job.kind {
            Kind::Sitemap => {
                frontier.check_sitemap(&job.url, job.depth, job.nesting(), seed, throttle)
            }
            Kind::Page | Kind::Robots => frontier.check(&job.url, job.depth, seed, throttle),
        }
    }

    /// 2. Its lane waits for its scopes, and they wait on the wheel.
    pub fn release_later(&mut self, job: Job) {
        let Some(job) = self.with_contact(job) else {
            return;
        };
        if let Some((job, scopes)) = self.map(job) {
            self.queue(job, &scopes);
        }
    }

    /// 3. Ahead of due by the learned set-up time, the lane's next request takes a connection.
    pub fn on_release(&mut self, lane: LaneId, ticket: TicketId) {
        let found = if self.frontier.released(lane, self.now) {
            match self.resolve(lane, ticket) {
                Resolved::Found(found) => Some(found),
                Resolved::Later => return,
            }
        } else {
            None
        };
        for _ in 0..UNSENT_PER_RELEASE {
            let next = self.frontier.next(lane, &self.throttle, self.now);
            self.work.spend_on_rules(self.frontier.take_rule_steps());
            match next {
                Next::Send(job) => {
                    if !self.throttle.recharge(ticket, &job.costs(), self.now) {
                        // Not the one that the lane was offered for, and dearer.
                        self.throttle.cancel(ticket, self.now);
                        let throttle = &mut self.throttle;
                        return self.frontier.put_back(lane, job, throttle, self.now);
                    }
                    let found = found.expect("a host that may be asked was looked up");
                    self.take_connection(job, lane, ticket, found);
                    // What is queued behind it waits for its scopes' places, not for its end.
                    return self
                        .frontier
                        .offer_or_close(lane, &mut self.throttle, self.now);
                }
                Next::Unsent(job, why) => {
                    self.end_unsent(&job, lane, unsent(&why));
                    if self.has_failed_too_often() {
                        break;
                    }
                }
                Next::CrawlDelay(delay) => {
                    self.throttle.cancel(ticket, self.now);
                    self.heed_crawl_delay(lane, delay);
                    return self
                        .frontier
                        .offer_or_close(lane, &mut self.throttle, self.now);
                }
                Next::Later => {
                    // Whatever is sent later owes nothing to the lookup before this.
                    self.looked_up.remove(&lane);
                    break;
                }
            }
            if self.work.is_spent_on_rules() {
                break;
            }
        }
        self.throttle.cancel(ticket, self.now);
        self.frontier
            .offer_or_close(lane, &mut self.throttle, self.now);
    }

    /// 4. Its connection is ready: the request departs when every gap allows.
    pub fn on_ready(&mut self, key: Key, socket: Key) {
        let is_new = self.http(socket).connection.used() == 0;
        let flight = self
            .flights
            .get_mut(key)
            .expect("a connection has its attempt");
        let Stage::Connecting { exchange, .. } =
            std::mem::replace(&mut flight.stage, Stage::Moving)
        else {
            unreachable!("only an attempt that has no connection is given one");
        };
        flight.stage = Stage::Ready {
            exchange,
            socket,
            since: self.now,
        };
        let setup = is_new.then(|| self.now.saturating_since(flight.released));
        self.throttle.ready(flight.ticket, setup, self.now);
    }

    /// 5. Bytes arrived: head, body, end, as the connection reads them.
    pub fn on_bytes(&mut self, key: Key, chunk: &Chunk, stamp: Stamp) {
        let mut used = 0;
        let mut steps = Bound::new("read a chunk", steps_max(self.io.bytes(chunk).len()));
        while steps.step() {
            // Without TLS there is no more to come out of what was read, nor to be sent.
            let is_last;
            let bytes = self.io.bytes(chunk);
            let mut rest = &bytes[used..];
            let read = match self.sockets.get_mut(key) {
                Some(Socket::Http(http)) => {
                    let read =
                        self.pieces
                            .read(http, &mut rest, stamp, &self.flights, &mut *self.sink);
                    self.buffered = http.recount(self.buffered);
                    used = bytes.len() - rest.len();
                    let is_plain = http.connection.is_plain();
                    is_last = rest.is_empty() && is_plain && read.ends_exchange();
                    read
                }
                Some(Socket::Dns(socket)) => {
                    let at = stamp.at;
                    return self.resolver.handle_received(*socket, bytes, at, self.now);
                }
                Some(Socket::Probe(_) | Socket::Parting) | None => return,
            };
            match read {
                Read::Again => {}
                Read::News(news) => {
                    self.on_news(key, news);
                    if is_last {
                        return;
                    }
                }
                Read::Full => return self.hold(key),
                Read::Enough => return self.hold_for_others(key),
                Read::Held => return,
                Read::All => return self.carry_on_with_request(key),
            }
        }
    }

    /// 6. The final head is there: its latency and what it means go to the throttle.
    pub fn on_head(&mut self, key: Key, socket: Key) {
        let lane = self.flights.get(key).expect("a reply has its attempt").lane;
        self.frontier.host_answered(lane);
        if let Some(http) = self.sockets.get(socket).and_then(Socket::http) {
            let (origin, remote) = (http.origin, http.connection.remote());
            self.on_answered(origin, remote);
        }
        self.hear_head(key, socket);
        #[cfg(feature = "cookies")]
        self.keep_cookies(key, socket);
        self.ask_for_body(key, socket);
    }

    /// 7. It has ended: its links enter (1), the sink has it, its lane goes on (2); now, or, where that
    ///    takes long, a step in each of the next turns.
    pub fn on_end(
        &mut self,
        key: Key,
        mut exchange: Box<Exchange>,
        failure: Option<Failure>,
        carrier: &Carrier,
    ) {
        let mut flight = self.flights.remove(key).expect("an attempt ends once");
        if exchange.head().is_none() {
            self.on_no_response(&flight, failure.as_ref(), exchange.timings());
        }
        let mut page = self.page_of(&flight, exchange.take_outcome(), failure, carrier);
        if let Some(signal) = flight.signal.take() {
            self.hear_end(&flight, &signal, &page);
        }
        self.tell_decisions_of(&mut flight, &page);
        self.forget_times(key, &flight);
        self.throttle.finish(flight.ticket, self.now);
        let finding = self.follow(&flight.job, &mut page);
        let buffers = self.work_at_once(Task {
            job: flight.job,
            lane: flight.lane,
            origin: flight.origin,
            page,
            finding,
            held: 0,
        });
        self.spare
            .put_exchange(exchange, buffers.unwrap_or_default());
    }
}

/// Steps that so many bytes may take to read: each takes some of them or is the end of something that a
/// byte at least belongs to.
pub(super) fn steps_max(bytes: usize) -> usize {
    bytes.saturating_mul(4).saturating_add(1024)
}

/// How a page says that its request was not admitted.
fn left_out(filtered: Filtered) -> Failure {
    let detail = "a filter leaves it out, or it was admitted before";
    Failure::new(FailureKind::Filtered, filtered.name(), detail)
}

/// How the result line says why a request ended unsent.
fn unsent(why: &Unsent) -> Failure {
    match why {
        Unsent::Disallowed(rule, line) => Failure::new(
            FailureKind::Robots,
            "disallowed",
            format!("robots.txt forbids it in line {line}: {rule}"),
        ),
        Unsent::RobotsUnreachable => Failure::new(
            FailureKind::Robots,
            "unreachable",
            "robots.txt is unavailable, so nothing may be fetched for now",
        ),
        Unsent::HostDown => Failure::new(
            FailureKind::HostDown,
            "gave_up",
            "the host has not answered for as long as HOST_DOWN_AFTER allows",
        ),
        Unsent::Unroutable => Failure::new(
            FailureKind::Connect,
            "unreachable",
            "the host has addresses of one family only, and our machine has no route for it",
        ),
        Unsent::HostPages => Failure::new(
            FailureKind::Filtered,
            "max_pages_per_host",
            "the host has had as many pages as PAGES_PER_HOST_MAX allows",
        ),
    }
}
