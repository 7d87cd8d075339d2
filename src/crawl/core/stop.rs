//! Stopping: what is not sent goes back to the frontier, what is on its way ends as `cancelled`.

use crate::base::bound::Bound;
use crate::crawl::control::pending::Pending;
use crate::crawl::control::shared::Waiting;
use crate::crawl::core::Core;
use crate::crawl::flights::Stage;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Takes back every request that has not departed: nothing more is sent.
    pub fn cancel_unsent(&mut self) {
        for key in self
            .flights
            .keys_where(|stage| !matches!(stage, Stage::Exchanging { .. }))
        {
            let flight = self.withdraw(key);
            self.put_back(flight.lane, flight.job);
        }
        let idle = self.network.idle_len();
        let mut steps = Bound::new("close idle connections", idle);
        while let Some(origin) = self.network.evict_idle() {
            self.let_go_of(origin);
            if !steps.step() {
                break;
            }
        }
    }

    /// Ends what is on its way. It is still to be fetched, so it is kept for `pending.jsonl`; but
    /// whoever waits to hear of it hears of its end here, and once.
    pub fn cancel_all(&mut self) {
        self.put_back_suspects();
        self.cancel_unsent();
        self.settle_offers();
        self.put_all_unsent();
        for key in self.flights.keys_where(|_| true) {
            let Some(Stage::Exchanging { socket }) = self.flights.get(key).map(|f| &f.stage) else {
                continue;
            };
            let socket = *socket;
            if let Some(flight) = self.flights.get(key)
                && flight.job.kind != Kind::Robots
                && !flight.job.awaited
            {
                self.cancelled.push(flight.job.clone());
            }
            let failure = Failure::new(
                FailureKind::Cancelled,
                "stopped",
                "the crawl was stopped before the reply was whole",
            );
            if let Some(news) = self.network.abort(socket, failure, self.now) {
                self.on_news(socket, news);
            }
        }
    }

    /// What was still to be fetched when the crawl ended, in order of admission.
    pub fn take_pending(&mut self) -> impl Iterator<Item = Pending> + '_ {
        // A source was given the ends of its requests, and no results are asked for again.
        let unwritten = match self.feed {
            None => self.output.take_unwritten(),
            Some(_) => Vec::new(),
        };
        let found = self.drain_found().into_iter();
        let found = found.chain(self.drain_offers());
        let waiting = self.mapping.drain().chain(self.delayed.drain());
        let outside = waiting
            .map(|job| *job)
            .chain(self.cancelled.drain(..))
            .chain(self.pages.drain().filter(|job| !job.awaited))
            .chain(found);
        let jobs = self.frontier.drain(outside);
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
