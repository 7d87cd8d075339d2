//! Requests that are left when a crawl ends early.

use crate::crawl::control::submissions::Waiting;
use crate::crawl::core::Core;
use crate::crawl::finish::Pending;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Requests still to be fetched when the crawl ended, in order of admission; then those in files, those that were
    /// not taken from handles, and those that the source still held.
    pub fn take_pending(&mut self) -> impl Iterator<Item = Pending> + '_ {
        // A source was notified of the ends of its requests, and no results are asked for again.
        let unwritten = match self.control.has_keeping_source() {
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
        let left = self.work.drain_left();
        let jobs = merged(self.frontier.drain(outside), left).chain(spilled);
        let submitted = std::iter::from_fn(|| self.control.poll_submission());
        let submitted: Vec<Waiting> = submitted.collect();
        let returned = self.control.take_returned();
        let credentials = self.requests.credentials();
        let submitted = submitted
            .into_iter()
            .filter_map(move |waiting| match waiting {
                Waiting::Numbered(job) => Some(Pending::of(&job, credentials)),
                Waiting::Seed(job, position) => Some(Pending {
                    id: None,
                    request: job.to_request(),
                    position: Some(position).filter(|position| *position > 0),
                }),
                Waiting::SeedsEnd => None,
            });
        let returned = returned.into_iter().map(move |request| {
            // Those without depth are seeds of the source, which were not admitted yet.
            match request.depth {
                0 => Pending {
                    id: None,
                    request,
                    position: None,
                },
                _ => Pending::of_request(request, credentials),
            }
        });
        // A robots.txt is requested again for what waits for it.
        let control = &self.control;
        let queued = jobs.filter(move |job: &Job| {
            job.kind != PageKind::Robots && !control.is_kept_by_source(job.root())
        });
        let unwritten = unwritten.into_iter();
        let unwritten = unwritten.map(move |request| Pending::of_request(request, credentials));
        let queued = queued.map(move |job| Pending::of(&job, credentials));
        unwritten.chain(queued).chain(submitted).chain(returned)
    }
}

/// The jobs of both, each of which is in order of admission, in that order.
fn merged(
    one: impl Iterator<Item = Job>,
    other: impl Iterator<Item = Job>,
) -> impl Iterator<Item = Job> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if first.id > second.id => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::url::CrawlUrl;

    #[test]
    fn jobs_of_two_lists_are_in_order_of_admission() {
        let job = |id: &u64| Job::seed(*id, CrawlUrl::parse("http://a.test/").expect("a URL"));
        let check = |one: &[u64], other: &[u64]| {
            let merged = merged(one.iter().map(job), other.iter().map(job));
            let mut expected = [one, other].concat();
            expected.sort_unstable();
            assert!(merged.map(|job| job.id).eq(expected));
        };
        check(&[], &[]);
        check(&[1, 2], &[]);
        check(&[], &[1, 2]);
        check(&[1, 4, 5, 9], &[2, 3, 7]);
        check(&[2, 3, 7], &[1, 4, 5, 9]);
    }
}
