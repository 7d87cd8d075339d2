//! Requests delayed until a moment of their own: redirects with a Retry-After. And
//! the one warning that many wait outside the frontier.

use std::collections::BTreeMap;

use crate::base::time::Instant;
use crate::frontier::job::Job;

/// The requests that wait, by when they resume.
#[derive(Debug, Default)]
pub struct Delayed {
    waiting: BTreeMap<(Instant, u64), Box<Job>>,
}

impl Delayed {
    /// A request waits until `at`. If too many would, returns the one whose time is nearest: it resumes
    /// early.
    pub fn wait(&mut self, job: Job, at: Instant) -> Option<Box<Job>> {
        self.waiting.insert((at, job.id), Box::new(job));
        if self.waiting.len() > DELAYED_MAX {
            return Some(self.waiting.pop_first()?.1);
        }
        None
    }

    /// Earliest time at which a waiting request may resume.
    pub fn next(&self) -> Option<Instant> {
        let ((at, _), _) = self.waiting.first_key_value()?;
        Some(*at)
    }

    /// A request that is due by `now`.
    pub fn expire(&mut self, now: Instant) -> Option<Box<Job>> {
        self.next().filter(|at| *at <= now)?;
        Some(self.waiting.pop_first()?.1)
    }

    /// The first request that `is_wanted` names, and when it resumes.
    pub fn find(&self, is_wanted: impl Fn(&Job) -> bool) -> Option<(&Job, Instant)> {
        let mut waiting = self.waiting.iter();
        let (at, job) = waiting.find(|(_, job)| is_wanted(job))?;
        Some((job, at.0))
    }

    /// The numbers of the attempts that wait.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.waiting.keys().map(|(_, id)| *id)
    }

    /// Removes those that `is_unwanted` names.
    pub fn take_out(&mut self, is_unwanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (out, kept): (BTreeMap<_, _>, _) = waiting.partition(|(_, job)| is_unwanted(job));
        self.waiting = kept;
        out.into_values().map(|job| *job).collect()
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Removes all.
    pub fn drain(&mut self) -> impl Iterator<Item = Box<Job>> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }
}

/// Warns of many requests that wait outside of the frontier, for the scope map or for the moment of a
/// redirect.
#[derive(Debug)]
pub struct Crowd {
    warn_at: usize,
    warned: bool,
}

impl Crowd {
    /// Warns once when `warn_at` wait; never where that is 0.
    pub fn new(warn_at: usize) -> Self {
        Crowd {
            warn_at,
            warned: false,
        }
    }

    /// Whether to warn now that `waiting` requests wait.
    pub fn warns(&mut self, waiting: usize) -> bool {
        let warns = !self.warned && self.warn_at > 0 && waiting >= self.warn_at;
        self.warned |= warns;
        warns
    }
}

/// Redirects that wait at most, a few MB. A site that delays all of them must not fill our memory nor
/// delay other sites, and no URL may be lost: one too many is followed early, at the pace of its scope.
const DELAYED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::url::CrawlUrl;

    fn job(id: u64) -> Job {
        Job {
            redirects: 1,
            ..Job::seed(id, CrawlUrl::parse("http://a.test/").expect("a URL"))
        }
    }

    #[test]
    fn f74_a_large_number_of_waiting_requests_is_logged_once() {
        let check = |warn_at, expected: &[usize]| {
            let mut crowd = Crowd::new(warn_at);
            let warned: Vec<usize> = (1..=600).filter(|count| crowd.warns(*count)).collect();
            assert_eq!(warned, expected);
            // No second warning at a count that was reached before.
            assert!(!(1..=600).any(|count| crowd.warns(count)));
        };
        check(500, &[500]);
        check(600, &[600]);
        check(601, &[]);
        check(0, &[]);
    }

    #[test]
    fn above_the_bound_the_earliest_due_request_is_released() {
        let mut delayed = Delayed::default();
        let at = |id: u64| Instant::START + Duration::from_millis(100 * id % 7919 + 1);
        let most = DELAYED_MAX as u64;
        for id in 1..=most {
            assert!(delayed.wait(job(id), at(id)).is_none());
        }
        let nearest = delayed.next().expect("many wait");
        let early = delayed.wait(job(most + 1), at(most + 1)).expect("too many");
        assert_eq!(at(early.id), nearest);
        assert_eq!(delayed.len(), DELAYED_MAX);
    }
}
