//! The page of an attempt for the sink, and the ends of requests that never had a connection.

use std::borrow::Cow;

use crate::base::ids::LaneId;
use crate::crawl::core::Core;
use crate::crawl::core::url_log::log_unsent;
use crate::crawl::flights::Flight;
use crate::crawl::network::socket::Carrier;
use crate::fetch::exchange::{Buffers, Outcome};
use crate::fetch::failure::Failure;
use crate::fetch::timings::Timings;
use crate::fetch::tls::Certificates;
use crate::frontier::job::Job;
use crate::frontier::request::{PageKind, Request};
use crate::io::Io;
use crate::sink::page::Page;
use crate::sink::reply::BodyMode;
use crate::wire::http::Headers;

/// Requests that ended unsent and are put into the sink in one turn.
const UNSENT_PER_TURN: usize = 64;

impl<I: Io> Core<I> {
    /// The page of an attempt that connected or tried to.
    pub fn page_of(
        &mut self,
        flight: &Flight,
        outcome: &mut Outcome,
        failure: Option<Failure>,
        carrier: &Carrier,
    ) -> Box<Page> {
        let mut page = self.blank_page(&flight.job);
        let scopes = self.throttle.ticket_scopes(flight.ticket);
        let names = scopes.map(|id| self.throttle.scope_name(id));
        rewrite_all(&mut page.scopes, names);
        let gap = self.throttle.gap(flight.ticket);
        page.failure = failure;
        page.truncated = outcome.truncated;
        page.remote = carrier.remote;
        page.local = carrier.local;
        page.reused = carrier.reused;
        page.tls = carrier.tls;
        page.certificates = carrier.certificates.clone();
        page.timings = outcome.timings;
        page.delay = outcome.timings.sent.map(|_| gap);
        page.hold = self.throttle.hold_asked_for(flight.ticket);
        page.refetched = outcome.timings.sent.is_some() && self.take_requested(&page.url);
        page.bytes_wire = outcome.bytes_wire;
        page.request_bytes = std::mem::take(&mut outcome.request_bytes);
        page.response_bytes = std::mem::take(&mut outcome.response_bytes);
        page.head_length = outcome.head_length;
        page.chunked = outcome.chunked;
        page.body = std::mem::take(&mut outcome.body);
        page.body_mode = outcome.body_mode;
        page.bytes_taken = outcome.bytes_taken;
        if let Some(head) = outcome.head.take() {
            page.status = Some(head.status);
            page.version = Some(head.version);
            if let Some(value) = head.headers.get("content-type") {
                // Mostly it is that of the page before.
                let place = page.content_type.insert(self.output.take_content_type());
                if place.as_bytes() != value {
                    rewrite(place, &String::from_utf8_lossy(value));
                }
            }
            page.headers = head.headers;
        }
        page
    }

    /// A page of what was requested, without a reply. Its scopes are still those of the page that had this
    /// memory before.
    fn blank_page(&mut self, job: &Job) -> Box<Page> {
        let mut page = self.output.take_page();
        // Written in place, since a page is large. All fields are named, so that none keeps its old value.
        let Page {
            id,
            root,
            parent,
            via,
            seed,
            is_final,
            kind,
            url,
            method,
            depth,
            attempt,
            scopes: _,
            status,
            judged,
            failure,
            truncated,
            redirect,
            version,
            content_type,
            remote,
            local,
            reused,
            refetched,
            epoch,
            tls,
            certificates,
            bytes_wire,
            links,
            directives,
            fields,
            found_links,
            filtered_links,
            timings,
            ended,
            delay,
            hold,
            robots_ignored,
            robots,
            wall_at_start,
            route,
            is_route_own,
            meta,
            tag,
            request_bytes,
            response_bytes,
            head_length,
            chunked,
            headers,
            body,
            body_mode,
            bytes_taken,
        } = &mut *page;
        *id = job.id;
        *root = job.root();
        *parent = (job.parent != 0).then_some(job.parent);
        via.clone_from(&job.via);
        *seed = job.seed;
        *is_final = true;
        *kind = job.kind;
        rewrite(url, job.url.as_str());
        *method = match job.method() {
            "GET" => Cow::Borrowed("GET"),
            other => Cow::Owned(other.to_owned()),
        };
        *depth = job.depth;
        *attempt = u32::from(job.attempt);
        *status = None;
        *judged = None;
        *failure = None;
        *truncated = None;
        *redirect = None;
        *version = None;
        *content_type = None;
        *remote = None;
        *local = None;
        *reused = false;
        *refetched = false;
        *epoch = None;
        *tls = None;
        *certificates = Certificates::default();
        *bytes_wire = 0;
        *links = None;
        *directives = None;
        *fields = None;
        *found_links = None;
        *filtered_links = None;
        *timings = Timings {
            started: self.now,
            ..Timings::default()
        };
        *ended = self.now;
        *delay = None;
        *hold = None;
        *robots_ignored = job.flags.ignore_robots;
        *robots = None;
        *wall_at_start = self.network.wall_at_start();
        *route = self.shown_route(job);
        *is_route_own = job.route().is_some();
        *meta = job.meta().map(ToOwned::to_owned);
        *tag = job.tag();
        *request_bytes = Vec::new();
        *response_bytes = Vec::new();
        *head_length = 0;
        *chunked = false;
        *headers = Headers::default();
        *body = Vec::new();
        *body_mode = BodyMode::Keep;
        *bytes_taken = 0;
        page
    }

    pub fn lane_scope_names(&self, lane: LaneId) -> Vec<String> {
        let scopes = self.throttle.lane_scopes(lane).iter();
        let names = scopes.map(|id| self.throttle.scope_name(*id));
        names.map(str::to_owned).collect()
    }

    /// A request of a lane ended without being sent, and was not counted as being sent.
    pub fn end_unsent(&mut self, job: &Job, lane: LaneId, failure: Failure) {
        self.end_unqueued(job, self.lane_scope_names(lane), failure);
    }

    /// A request ended without being sent, under these scopes.
    pub fn end_unqueued(&mut self, job: &Job, scopes: Vec<String>, failure: Failure) {
        let mut page = self.blank_page(job);
        page.scopes = scopes;
        if failure.is_named("robots.disallowed") {
            self.leave_out_disallowed(&mut page, &failure.detail);
        }
        page.failure = Some(failure);
        if job.kind == PageKind::Robots {
            // Requests, perhaps of another host, wait for it. There is no body to read.
            drop(self.read_robots(job, &mut page));
        }
        self.deliver(job, page);
    }

    /// A request ended because its host has no address; it counts as having been tried.
    pub fn end_unconnected(&mut self, job: &Job, lane: LaneId, failure: Failure) {
        let mut page = self.blank_page(job);
        page.scopes = self.lane_scope_names(lane);
        if let Some(took) = self.network.take_lookup(lane) {
            page.timings.started = self.now - took;
            page.timings.dns = Some(self.now);
        }
        page.failure = Some(failure);
        drop(self.follow(job, &mut page));
        self.deliver(job, page);
        self.end_attempt(lane, job, false);
    }

    /// Puts what has ended unsent into the sink, as far as that is ready. Once the sink writes the rest it
    /// takes no more: what ends then is pending.
    pub fn put_ready_unsent(&mut self) {
        if !self.control.phase().is_fetching() {
            return;
        }
        for _ in 0..UNSENT_PER_TURN {
            if !self.output.is_ready() {
                break;
            }
            let Some(unsent) = self.work.poll_unsent() else {
                break;
            };
            self.end_unqueued(&unsent.job, unsent.scopes, unsent.failure);
        }
        self.wakeups
            .turn_again_if(self.work.has_unsent() && self.output.is_ready());
    }

    /// Puts all that has ended unsent into the sink, ready or not: the crawl ends.
    pub fn put_all_unsent(&mut self) {
        if !self.control.phase().is_fetching() {
            return;
        }
        self.end_unmade();
        while let Some(unsent) = self.work.poll_unsent() {
            self.end_unqueued(&unsent.job, unsent.scopes, unsent.failure);
        }
    }

    /// Puts a page into the sink; returns the memory of what the sink leaves.
    pub fn deliver(&mut self, job: &Job, mut page: Box<Page>) -> Buffers {
        self.workload.handle_page(&mut page);
        let end = self.control.end_of(&page);
        let is_final = page.is_final;
        // With a source that keeps its requests nothing is pending: it is notified of the end of each.
        let may_be_pending =
            is_final && job.kind != PageKind::Robots && !self.control.has_keeping_source();
        let request = || job.to_request();
        let has_more = may_be_pending && job.has_more_than_line();
        let asked_by: Option<&dyn Fn() -> Request> = if has_more { Some(&request) } else { None };
        log_unsent(&page);
        let buffers = self.output.put(page, asked_by);
        self.record_ended(job, is_final);
        if is_final && job.awaited {
            self.control.handle_final(job.root());
        }
        if let Some(end) = end {
            self.control.handle_end(end);
        }
        buffers
    }
}

/// Replaces a text in its memory.
fn rewrite(text: &mut String, by: &str) {
    text.clear();
    text.push_str(by);
}

/// Replaces texts in their memory.
fn rewrite_all<'a>(texts: &mut Vec<String>, by: impl Iterator<Item = &'a str>) {
    let mut count = 0;
    for text in by {
        match texts.get_mut(count) {
            Some(place) => rewrite(place, text),
            None => texts.push(text.to_owned()),
        }
        count += 1;
    }
    texts.truncate(count);
}
