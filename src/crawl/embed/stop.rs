//! Stopping: what is not sent goes back to the frontier, what is on its way ends as `cancelled`.

use super::inbox::Waiting;
use crate::base::bound::Bound;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::life::credentials::Credentials;
use crate::crawl::life::flight::Stage;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::frontier::request::{Kind, Request};
use crate::io::{Close, Io};
use crate::wire::url::CrawlUrl;

/// A request that had not been fetched when its crawl ended early.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The number that its submission was given, or the first attempt at a link; `None` where it
    /// never had one.
    pub id: Option<u64>,
    /// What would have it fetched. Where it had been redirected it asks for the target.
    pub request: Request,
}

impl Pending {
    /// Of one whose origin may not have the credentials of the seeds' origins it says so: as a seed of
    /// another crawl it would get them.
    fn of(job: &Job, credentials: &Credentials) -> Self {
        let mut request = job.to_request();
        request.dont_send_credentials |= !credentials.are_for(&job.url);
        Pending {
            id: Some(job.root()),
            request,
        }
    }

    /// Of one whose result could not be written; the same holds for its credentials.
    fn of_unwritten(mut request: Request, credentials: &Credentials) -> Self {
        let url = CrawlUrl::parse(&request.url);
        request.dont_send_credentials |= !url.is_ok_and(|url| credentials.are_for(&url));
        Pending { id: None, request }
    }
}

impl<I: Io> Core<I> {
    /// Takes back every request that has not departed: nothing more is sent.
    pub fn cancel_unsent(&mut self) {
        for key in self.flights_where(|stage| !matches!(stage, Stage::Exchanging { .. })) {
            let flight = self.withdraw(key);
            self.frontier
                .put_back(flight.lane, flight.job, &mut self.throttle, self.now);
        }
        let mut steps = Bound::new("close idle connections", self.pool.len());
        while let Some(idle) = self.pool.evict() {
            if !steps.step() {
                break;
            }
            if let Some(key) = self.sockets.key_of(idle) {
                self.close_socket(key, Close::Finish);
            }
        }
    }

    /// Ends what is on its way. It is still to be fetched, so it is kept for `pending.jsonl`; but
    /// whoever waits to hear of it hears of its end here, and once.
    pub fn cancel_all(&mut self) {
        self.put_back_suspects();
        self.cancel_unsent();
        self.tell_all_ended();
        for key in self.flights_where(|_| true) {
            let Some(Stage::Exchanging { socket }) = self.flights.get(key).map(|f| &f.stage) else {
                continue;
            };
            let socket = *socket;
            if let Some(flight) = self.flights.get(key)
                && flight.job.kind != Kind::Robots
                && !flight.job.heard
            {
                self.cancelled.push(flight.job.clone());
            }
            let now = self.now;
            let failure = Failure::new(
                FailureKind::Cancelled,
                "stopped",
                "the crawl was stopped before the reply was whole",
            );
            if let Some(news) = self.http(socket).connection.abort(failure, now) {
                self.on_news(socket, news);
            }
        }
    }

    pub fn flights_where(&self, wanted: impl Fn(&Stage) -> bool) -> Vec<Key> {
        self.flights
            .iter()
            .filter(|(_, flight)| wanted(&flight.stage))
            .map(|(key, _)| key)
            .collect()
    }

    /// What was still to be fetched when the crawl ended, in order of admission.
    pub fn take_pending(&mut self) -> impl Iterator<Item = Pending> + '_ {
        // A source was given the ends of its requests, and no results are asked for again.
        let unwritten = match self.feed {
            None => self.sink.take_unwritten(),
            Some(_) => Vec::new(),
        };
        let found = self.drain_found().into_iter();
        let waiting = self.mapping.drain().chain(self.delayed.drain());
        let outside = waiting
            .map(|job| *job)
            .chain(self.cancelled.drain(..))
            .chain(self.work.drain().filter(|job| !job.heard))
            .chain(found);
        let jobs = self.frontier.drain(outside, &self.throttle);
        let feed = self.feed.as_deref();
        let is_of_source = move |job: &Job| feed.is_some_and(|feed| feed.gave(job.root()));
        // A robots.txt is asked for again by what waits for it.
        let queued = jobs.filter(move |job| job.kind != Kind::Robots && !is_of_source(job));
        let submitted = std::iter::from_fn(|| self.inbox.take()).map(|waiting| match waiting {
            Waiting::Numbered(job) => Pending {
                id: Some(job.root()),
                request: job.to_request(),
            },
            Waiting::Seed(request) => Pending {
                id: None,
                request: *request,
            },
        });
        let credentials = &self.credentials;
        let unwritten = unwritten.into_iter();
        let unwritten = unwritten.map(move |request| Pending::of_unwritten(request, credentials));
        let queued = queued.map(move |job| Pending::of(&job, credentials));
        unwritten.chain(queued).chain(submitted)
    }
}
