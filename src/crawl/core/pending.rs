//! Requests that are left when a crawl ends early.

use crate::crawl::control::shared::Waiting;
use crate::crawl::core::Core;
use crate::crawl::finish::Pending;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Requests still to be fetched when the crawl ended, in order of admission; those in files come last.
    pub fn take_pending(&mut self) -> impl Iterator<Item = Pending> + '_ {
        // A source was notified of the ends of its requests, and no results are asked for again.
        let unwritten = match self.control.has_source() {
            false => self.output.take_unwritten(),
            true => Vec::new(),
        };
        let found = self.drain_found().into_iter();
        self.keep_offers();
        let outside = self
            .work
            .drain()
            .chain(self.pages.drain().filter(|job| !job.awaited))
            .chain(found);
        let spilled = self.drain_spilled();
        let jobs = self.frontier.drain(outside).chain(spilled);
        let submitted = std::iter::from_fn(|| self.control.poll_submission());
        let submitted: Vec<Waiting> = submitted.collect();
        let submitted = submitted.into_iter().filter_map(|waiting| match waiting {
            Waiting::Numbered(job) => Some(Pending {
                id: Some(job.root()),
                request: job.to_request(),
            }),
            Waiting::Seed(job, _) => Some(Pending {
                id: None,
                request: job.to_request(),
            }),
            Waiting::SeedsEnd => None,
        });
        // A robots.txt is requested again for what waits for it.
        let control = &self.control;
        let queued = jobs.filter(move |job: &Job| {
            job.kind != PageKind::Robots && !control.is_of_source(job.root())
        });
        let credentials = self.requests.credentials();
        let unwritten = unwritten.into_iter();
        let unwritten = unwritten.map(move |request| Pending::of_unwritten(request, credentials));
        let queued = queued.map(move |job| Pending::of(&job, credentials));
        unwritten.chain(queued).chain(submitted)
    }
}
