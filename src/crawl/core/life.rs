//! The life of a URL, in seven functions, in this order:
//! `admit`, `release_later`, `on_release`, `on_ready`, `on_bytes`, `on_head`, `on_end`.
//!
//! What a step needs beyond itself is in the files beside this one: the answers to offers in `offers.rs`,
//! scopes in `scopes.rs`, names in `names.rs`, new connections in `connecting.rs`, the request on the wire
//! in `exchanges.rs`, releases and departures in `granting.rs`, events of connections in `connections.rs`,
//! bodies in `reading.rs`, what is reported to the throttle in `signals.rs`, what a reply leads to in
//! `follow.rs`, the work on its body in `pages.rs` and `finding.rs`, its result line in `report.rs`.

use crate::base::bound::Bound;
use crate::base::ids::LaneId;
use crate::base::scopes::Scopes;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::core::follow::{Followed, is_stopped};
use crate::crawl::core::names::Resolved;
use crate::crawl::core::reading::piece_sink;
use crate::crawl::core::url_log::{URL_LOG, log_answer};
use crate::crawl::flights::Stage;
use crate::crawl::network::pieces::{Read, steps_max};
use crate::crawl::network::socket::Carrier;
use crate::crawl::pages::finding::Finding;
use crate::crawl::pages::work::PageWork;
use crate::crawl::pages::{OpenEnd, Task};
use crate::crawl::probe::open_loop::QueuedRequest;
use crate::crawl::work::offers::OfferOrigin;
use crate::fetch::exchange::Exchange;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::frontier::{Next, Unsent};
use crate::io::{Chunk, Io, Stamp};
use crate::sink::page::Page;
use crate::throttle::engine::TicketId;

/// Requests of one lane that may end unsent in one release.
pub const UNSENT_PER_RELEASE: usize = 64;

impl<I: Io> Core<I> {
    /// 1. A request from outside is offered to the frontier, which admits what is new and what no filter
    ///    leaves out: now or later.
    pub fn admit(&mut self, job: Job, origin: OfferOrigin) {
        self.output.stats_mut().seeds += 1;
        // A list of seeds is the user's, and may be a `pending.jsonl`. What a program submits with a depth follows
        // from a page.
        let is_named = origin == OfferOrigin::List || job.names_origin();
        if is_named && !job.is_without_credentials() {
            self.name_origin(&job.url);
        }
        let admission = self.offer(&job);
        self.on_admission(admission, job, origin);
    }

    /// 2. Its lane waits for its scopes, and they wait on the wheel.
    pub fn release_later(&mut self, job: Job) {
        self.release_in_lane(job);
    }

    /// The same. Returns its lane, if that is known at once.
    pub fn release_in_lane(&mut self, job: Job) -> Option<LaneId> {
        if let Err(failure) = self.requests.check_public(&job.url) {
            self.work.end(job, Vec::new(), failure);
            return None;
        }
        let control = &self.control;
        let later = |number, part| control.later(number, part);
        let (job, scopes) = self.work.map(job, later)?;
        self.queue_and_note(job, &scopes)
    }

    /// Queues a request; a probe of watched targets ends it if it waits too long. Returns its lane, if it is queued.
    pub fn queue_and_note(&mut self, job: Job, scopes: &Scopes) -> Option<LaneId> {
        let queued = QueuedRequest {
            tag: job.tag(),
            rank: job.rank(),
            is_repeated: job.attempt > 1,
        };
        let lane = self.queue(job, scopes)?;
        self.workload.note_queued(queued, lane);
        Some(lane)
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
        if self.is_removing() && self.end_cancelled_of(lane) {
            // More of them end when its turn comes again.
            self.throttle.cancel(ticket, self.now);
            return self.offer_or_close(lane);
        }
        for _ in 0..UNSENT_PER_RELEASE {
            let next = self.frontier.next(lane, self.now);
            self.pages.spend_on_rules(self.frontier.take_rule_steps());
            match next {
                Next::Send(job) => {
                    if !self.throttle.recharge(ticket, &job.costs(), self.now) {
                        // It costs more than the one that the lane was offered for.
                        self.throttle.cancel(ticket, self.now);
                        return self.return_to_lane(lane, job);
                    }
                    if self.workload.is_overdue(job.tag(), self.now) {
                        // It ends later in this turn or in the next, and must not start meanwhile.
                        self.throttle.cancel(ticket, self.now);
                        return self.end_late(&job, lane);
                    }
                    log::debug!(target: URL_LOG, "released {}: {}", job.id, job.url);
                    let found = found.expect("a host that may be asked was looked up");
                    self.take_connection(job, lane, ticket, found);
                    // The next request waits for free slots, not for the end of this one.
                    return self.offer_or_close(lane);
                }
                Next::Unsent(job, why) => {
                    let failure = self.unsent(&job, lane, &why);
                    self.end_unsent(&job, lane, failure);
                    if self.has_failed_too_often() {
                        break;
                    }
                }
                Next::CrawlDelay(delay) => {
                    self.throttle.cancel(ticket, self.now);
                    self.apply_crawl_delay(lane, delay);
                    return self.offer_or_close(lane);
                }
                Next::Later => {
                    // The lookup is not part of a later request.
                    self.network.take_lookup(lane);
                    break;
                }
            }
            if self.pages.is_spent_on_rules() {
                break;
            }
        }
        self.throttle.cancel(ticket, self.now);
        self.offer_or_close(lane);
    }

    /// 4. Its connection is ready: the request departs when every gap allows.
    pub fn on_ready(&mut self, key: Key, socket: Key) {
        let flight = self
            .flights
            .get_mut(key)
            .expect("a connection has its attempt");
        let Stage::Connecting { exchange } = std::mem::replace(&mut flight.stage, Stage::Moving)
        else {
            unreachable!("only an attempt that has no connection is given one");
        };
        flight.stage = Stage::Ready {
            exchange,
            socket,
            since: self.now,
        };
        if self.waits_for_start(key) {
            return;
        }
        let is_new = self.network.is_new(socket);
        let flight = self.flights.get(key).expect("it has not ended");
        let setup = is_new.then(|| self.now.saturating_since(flight.released));
        self.throttle.ready(flight.ticket, setup, self.now);
    }

    /// 5. Bytes arrived: head, body, end, as the connection reads them.
    pub fn on_bytes(&mut self, key: Key, chunk: &Chunk, stamp: Stamp) {
        self.network.count_received(key, chunk, self.now);
        let mut used = 0;
        let length = self.network.length_of(chunk);
        let mut steps = Bound::new("read a chunk", steps_max(length));
        while steps.step() {
            let give = piece_sink(self.output.sink(), &self.flights, &self.workload);
            let network = &mut self.network;
            let Some(read) = network.read(key, chunk, &mut used, stamp, give, self.now) else {
                return;
            };
            self.judge_body_start(key);
            match read {
                Read::Again => {}
                Read::Event(event) => self.on_connection_event(key, event),
                Read::Last(event) => return self.on_connection_event(key, event),
                Read::Full => return self.network.hold(key, self.now),
                Read::Enough => return self.hold_for_others(key),
                Read::Held => return,
                Read::All => return self.transmit_with_request(key),
            }
        }
    }

    /// 6. The final head is there: its signal and latency go to the throttle.
    pub fn on_head(&mut self, key: Key, socket: Key) {
        let lane = self.flights.get(key).expect("a reply has its attempt").lane;
        self.frontier.host_answered(lane);
        if let Some((origin, remote)) = self.network.peer_of(socket) {
            self.on_answered(origin, remote);
        }
        self.on_response_head(key, socket);
        #[cfg(feature = "cookies")]
        self.keep_cookies(key, socket);
        self.ask_for_body(key, socket);
    }

    /// 7. It has ended: its links are offered (1), the sink has it, its lane continues (2). A long page takes
    ///    a step in each of the next turns.
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
        let mut outcome = exchange.take_outcome();
        let mut page = self.page_of(&flight, &mut outcome, failure, carrier);
        log_answer(&page);
        self.frontier.count_bytes(flight.lane, page.bytes_wire);
        let kind = page.status.is_some().then_some(flight.job.kind);
        self.network.count_reply(page.bytes_wire, kind);
        self.throttle
            .count_bytes(flight.ticket, page.bytes_wire, self.now);
        let is_stopped = is_stopped(&page);
        let mut body_start = flight.body_start.take();
        if let Some(start) = &mut body_start {
            start.bytes = outcome.start.take().unwrap_or_default();
        }
        let open = OpenEnd {
            ticket: flight.ticket,
            signal: flight.signal.take(),
            body_start,
            decisions: flight.decisions,
        };
        let (refusals, work, open, target) = match outcome.undecoded {
            Some(body) => {
                if !self.classifier.may_read_bodies() {
                    self.throttle.finish_exchange(flight.ticket, self.now);
                }
                let work = PageWork::undecoded(page, body);
                (0, work, Some(Box::new(open)), None)
            }
            None => {
                let (refusals, followed) = self.conclude_reply(&flight.job, open, &mut page, false);
                let (finding, target) = match followed {
                    Followed::Finding(finding)
                        if finding.is_over()
                            && !finding.extracts()
                            && self.pages.try_take_at_once(&page) =>
                    {
                        let of = (&flight.job, flight.lane, flight.origin);
                        let buffers = self.conclude_page(of, refusals, page, None);
                        return self.output.put_exchange(exchange, Some(buffers));
                    }
                    Followed::Finding(finding) => (finding, None),
                    Followed::Awaits(target) => (Finding::default(), Some(target)),
                };
                (refusals, PageWork::new(page, finding), None, target)
            }
        };
        let task = Task {
            job: flight.job,
            lane: flight.lane,
            origin: flight.origin,
            refusals,
            work: Some(work),
            open,
            via: None,
            held: 0,
            expected: 0,
            is_stopped,
            is_cancelled: false,
        };
        let buffers = match target {
            None => self.process_page(task),
            Some(target) => self.wait_for_target(task, target),
        };
        self.output.put_exchange(exchange, buffers);
    }

    /// The body of a reply is there: its scopes get their verdict, and what follows from it is decided. Returns
    /// which of its scopes refused the attempt, too.
    pub fn conclude_reply(
        &mut self,
        job: &Job,
        open: OpenEnd,
        page: &mut Page,
        is_cancelled: bool,
    ) -> (u32, Followed) {
        let failure = page.failure.as_ref();
        let is_our_fault = failure.is_some_and(|f| f.kind == FailureKind::Internal);
        if let Some(signal) = open.signal.as_ref().filter(|_| !is_our_fault) {
            let start = open.body_start.as_deref();
            self.on_response_end(job, open.ticket, signal, start, page);
            page.hold = self.throttle.hold_asked_for(open.ticket);
        }
        let refusals = self.refusals_of(open.ticket);
        self.report_decisions_of(job, open.decisions, page);
        self.throttle.finish(open.ticket, self.now);
        if is_cancelled || is_our_fault {
            // What it leads to is not wanted, or not known.
            page.is_final = true;
            return (refusals, Followed::nothing());
        }
        (refusals, self.follow(job, page))
    }

    /// Failure in the result line of a request that ended unsent.
    fn unsent(&self, job: &Job, lane: LaneId, why: &Unsent) -> Failure {
        match why {
            Unsent::Disallowed(rule, line) => Failure::new(
                FailureKind::Robots,
                "disallowed",
                format!("disallowed by line {line} of robots.txt: {rule}"),
            ),
            Unsent::RobotsUnreachable => Failure::new(
                FailureKind::Robots,
                "unreachable",
                "robots.txt is unavailable, so no URL of this origin may be fetched for now",
            ),
            Unsent::HostDown => {
                let what = match self.frontier.proxy_before(lane, self.now) {
                    Some(proxy) => format!("the proxy {}:{}", proxy.host(), proxy.port()),
                    None => "the host".to_owned(),
                };
                Failure::new(
                    FailureKind::HostDown,
                    "gave_up",
                    format!("{what} was unresponsive for longer than HOST_DOWN_AFTER"),
                )
            }
            Unsent::Unroutable => Failure::new(
                FailureKind::Connect,
                "unreachable",
                "this machine has no route for the host's only address family",
            ),
            Unsent::HostPages => Failure::new(
                FailureKind::Filtered,
                "max_pages_per_host",
                match self
                    .frontier
                    .settings()
                    .own_hosts
                    .pages_max(job.url.host_str())
                {
                    Some((limit, entry)) => {
                        format!("the host has reached HOSTS.{entry:?}.pages_max={limit}")
                    }
                    None => "the host has reached PAGES_PER_HOST_MAX".to_owned(),
                },
            ),
            Unsent::DomainPages => Failure::new(
                FailureKind::Filtered,
                "max_pages_per_domain",
                "the registrable domain has reached PAGES_PER_DOMAIN_MAX",
            ),
            Unsent::DomainBytes => Failure::new(
                FailureKind::Filtered,
                "max_bytes_per_domain",
                "the registrable domain has reached BYTES_PER_DOMAIN_MAX",
            ),
            Unsent::Excluded => Failure::new(
                FailureKind::Filtered,
                "excluded",
                "it was excluded while the crawl ran",
            ),
        }
    }
}
