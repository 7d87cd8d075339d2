//! Classification of responses, for the pace and for retries, by the crawl's `Classify`, which the
//! embedder may supply.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::base::stamp::Stamp;
use crate::base::time::{Instant, Wall};
use crate::crawl::network::IDLE_CLOSED;
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::timings::Timings;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::sink::page::Page;
use crate::sink::reply::BodyMode;
use crate::throttle::signal::{
    Answer, BODY_START_MAX, BodyPart, BodySignal, ByStatus, Classify, ExchangeEnd, Signal,
};
use crate::wire::http::Headers;
use crate::wire::marks;

/// Classifies responses.
pub struct Classifier {
    /// The embedder's; without one, the status decides.
    own: Option<Box<dyn Classify>>,
    wall_at_start: Wall,
}

/// A response: a head, or a failure without one.
pub struct Response<'a> {
    /// The status, if there is a head.
    pub status: Option<u16>,
    pub headers: &'a Headers,
    pub failure: Option<&'a Failure>,
    pub timings: &'a Timings,
}

/// The first bytes of a body, by which the embedder's `Classify` judges its response.
#[derive(Debug)]
pub struct BodyStart {
    /// Number of the bytes that it reads.
    pub wanted: usize,
    /// Those of a body that is not kept, once it has ended.
    pub bytes: Vec<u8>,
    /// Its signal, if the body went on after those bytes.
    pub signal: Option<BodySignal>,
}

impl BodyStart {
    /// The first bytes of the body of this page.
    fn of<'a>(&'a self, page: &'a Page) -> &'a [u8] {
        match page.body_mode {
            BodyMode::Keep => &page.body[..self.wanted.min(page.body.len())],
            _ => &self.bytes,
        }
    }
}

impl Classifier {
    /// With the embedder's `Classify`, if there is one. `wall_at_start`: when the crawl's clock began.
    pub fn new(own: Option<Box<dyn Classify>>, wall_at_start: Wall) -> Self {
        Classifier { own, wall_at_start }
    }

    /// Whether a signal may depend on a body: scopes then wait for it before they send again.
    pub fn may_read_bodies(&self) -> bool {
        self.own.is_some()
    }

    /// Signal of a response to a job, for the pace of its scopes.
    pub fn signal_of<'a>(
        &self,
        job: &Job,
        scopes: impl Iterator<Item = &'a str>,
        response: &Response<'_>,
        now: Instant,
    ) -> Signal {
        match &self.own {
            Some(own) => {
                let scopes: Names<'_> = scopes.collect();
                own.classify(&self.answer_of(job, &scopes, response, now))
            }
            // It does not depend on the scopes.
            None => ByStatus.classify(&self.answer_of(job, &[], response, now)),
        }
    }

    /// How the body of a response with a head is judged; `None`: as the sink keeps it, once it has ended.
    pub fn body_start<'a>(
        &self,
        job: &Job,
        scopes: impl Iterator<Item = &'a str>,
        response: &Response<'_>,
        now: Instant,
    ) -> Option<Box<BodyStart>> {
        let own = self.own_of_bodies(job)?;
        let scopes: Names<'_> = scopes.collect();
        match own.body_part(&self.answer_of(job, &scopes, response, now)) {
            BodyPart::Kept => None,
            BodyPart::Start(bytes) => Some(Box::new(BodyStart {
                wanted: bytes.min(BODY_START_MAX),
                bytes: Vec::new(),
                signal: None,
            })),
        }
    }

    /// The embedder's, if it judges the body of the response to this job. A robots.txt or a sitemap may have
    /// the words of a refusal in a comment or a URL, and its origin would be lost by a wrong verdict.
    fn own_of_bodies(&self, job: &Job) -> Option<&dyn Classify> {
        let own = self.own.as_deref()?;
        (job.kind == PageKind::Page).then_some(own)
    }

    /// Signal of the start of a body that goes on.
    pub fn start_signal_of<'a>(
        &self,
        job: &Job,
        scopes: impl Iterator<Item = &'a str>,
        response: &Response<'_>,
        start: &[u8],
        now: Instant,
    ) -> BodySignal {
        let Some(own) = &self.own else {
            return BodySignal::nothing();
        };
        let scopes: Names<'_> = scopes.collect();
        own.classify_body(&self.answer_of(job, &scopes, response, now), start)
    }

    /// The facts of a response, as far as it is known.
    fn answer_of<'a>(
        &self,
        job: &'a Job,
        scopes: &'a [&'a str],
        response: &Response<'a>,
        now: Instant,
    ) -> Answer<'a> {
        let timings = response.timings;
        // A kept connection that was closed while idle carries no signal for the pace.
        let failure = response.failure;
        let failure = failure.filter(|failure| failure.name != IDLE_CLOSED);
        // What timed out took at least as long as the attempt waited.
        let timed_out = failure.is_some_and(|failure| failure.kind == FailureKind::Timeout);
        let waited = timings
            .sent
            .filter(|_| timed_out && response.status.is_none());
        let waited = waited.map(|sent| now.saturating_since(sent));
        Answer {
            id: job.id,
            url: job.url.as_str(),
            kind: job.kind,
            scopes,
            status: response.status,
            headers: response.headers,
            failure: failure.map(|failure| failure.kind),
            server_latency: timings.server_latency().or(waited),
            latency: timings.latency().or(waited),
            slack: timings.latency_slack(),
            dont_adjust_delay: job.flags.dont_adjust_delay,
            body_status: None,
            wall: self.wall_at_start.at(now),
        }
    }

    /// Signal of the body of a response that has ended, in addition to its head's. `start`: the part of it
    /// that is judged, if not all that was kept.
    pub fn body_signal_of(
        &self,
        job: &Job,
        page: &Page,
        start: Option<&BodyStart>,
        now: Instant,
    ) -> BodySignal {
        if self.own_of_bodies(job).is_none() {
            return BodySignal::nothing();
        }
        let signal = self.with_answer(job, page, now, |own, answer| {
            own.classify_body(answer, start.map_or(&*page.body, |start| start.of(page)))
        });
        signal.unwrap_or_else(BodySignal::nothing)
    }

    /// Facts of a response's end.
    pub fn ending_of(&self, page: &Page, body: &BodySignal) -> ExchangeEnd {
        let sent = page.timings.sent;
        let took = |end: Stamp| Some(end.at.saturating_since(sent?));
        ExchangeEnd {
            kind: page.kind,
            status: page.judged_status(),
            // The throttle knows both: each scope has its own answer.
            sent: Instant::START,
            refused: false,
            failure: page.failure.as_ref().map(|failure| failure.kind),
            took: page.timings.body.and_then(took),
            size: page.body.len() as u64 + page.bytes_taken,
            digest: match page.body_mode {
                BodyMode::Keep => xxh3_64(&page.body),
                // A body that was not kept is like no other.
                _ => page.id,
            },
            mark: marks::block_mark(&page.body, page.content_type.as_deref()),
            items: body.items,
        }
    }

    /// Whether an attempt that ended is made again; `None` where the settings decide.
    pub fn retries(&self, job: &Job, page: &Page, now: Instant) -> Option<bool> {
        let retries = self.with_answer(job, page, now, |own, answer| {
            own.retries(answer, u32::from(job.attempt))
        });
        retries.flatten()
    }

    /// Asks the embedder's `Classify`, if there is one, about an attempt that ended.
    fn with_answer<T>(
        &self,
        job: &Job,
        page: &Page,
        now: Instant,
        ask: impl FnOnce(&dyn Classify, &Answer<'_>) -> T,
    ) -> Option<T> {
        let own = self.own.as_ref()?;
        let scopes: Names<'_> = page.scopes.iter().map(String::as_str).collect();
        let answered = ask(
            &**own,
            &Answer {
                id: job.id,
                url: job.url.as_str(),
                kind: job.kind,
                scopes: &scopes,
                status: page.status,
                headers: &page.headers,
                failure: page.failure.as_ref().map(|failure| failure.kind),
                server_latency: page.timings.server_latency(),
                latency: page.timings.latency(),
                slack: page.timings.latency_slack(),
                dont_adjust_delay: job.flags.dont_adjust_delay,
                body_status: page.judged,
                wall: self.wall_at_start.at(now),
            },
        );
        Some(answered)
    }
}

/// Names of the scopes of a request.
type Names<'a> = SmallVec<[&'a str; 4]>;
