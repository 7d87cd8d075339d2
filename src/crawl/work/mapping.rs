//! Requests that wait for a late answer of the scope map.

use std::collections::BTreeMap;

use crate::base::scopes::Scopes;
use crate::frontier::job::Job;
use crate::throttle::map::{ByHost, ScopeMap, ScopeQuery};
use crate::wire::url::CrawlUrl;

/// The requests that wait for their scopes, by number.
#[derive(Debug, Default)]
pub struct Mapping {
    waiting: BTreeMap<u64, Waiting>,
    asked: u64,
    warned_cut: bool,
}

/// An answer; without scopes if there will be none.
#[derive(Debug)]
pub struct Mapped {
    /// The number of the query.
    pub number: u64,
    /// Which of its answers this is.
    pub part: usize,
    pub scopes: Option<Scopes>,
}

/// A request that waits for answers.
#[derive(Debug)]
struct Waiting {
    job: Box<Job>,
    /// Immediate answers.
    scopes: Scopes,
    /// Queries to be answered later, in order.
    parts: Vec<Option<Scopes>>,
    missing: usize,
}

/// While so many wait no request is admitted from outside, and none is released. Links of pages in flight
/// may come on top.
pub const WAITING_MAX: usize = 10_000;

impl Mapping {
    /// The number of the next query.
    pub fn number(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// A request waits for so many answers.
    pub fn wait(&mut self, number: u64, job: Job, scopes: Scopes, answers: usize) {
        let waiting = Waiting {
            job: Box::new(job),
            scopes,
            parts: vec![None; answers],
            missing: answers,
        };
        self.waiting.insert(number, waiting);
    }

    /// An answer has come. Returns the request and its scopes, once all of them are there.
    pub fn answered(&mut self, mapped: Mapped) -> Option<(Job, Scopes)> {
        let waiting = self.waiting.get_mut(&mapped.number)?;
        let part = waiting.parts.get_mut(mapped.part)?;
        let scopes = mapped.scopes.unwrap_or_else(|| by_host(&waiting.job.url));
        if part.replace(scopes).is_none() {
            waiting.missing -= 1;
        }
        if waiting.missing > 0 {
            return None;
        }
        let mut whole = self.waiting.remove(&mapped.number)?;
        for part in whole.parts.into_iter().flatten() {
            whole.scopes.join(part);
        }
        Some((*whole.job, whole.scopes))
    }

    /// Whether to warn that these are not all the scopes that the map gave: the first time.
    pub fn warns_of_cut(&mut self, scopes: &Scopes) -> bool {
        let warns = scopes.is_cut() && !self.warned_cut;
        self.warned_cut |= warns;
        warns
    }

    /// The first request that `is_wanted` names.
    pub fn find(&self, is_wanted: impl Fn(&Job) -> bool) -> Option<&Job> {
        let mut waiting = self.waiting.values().map(|waiting| &*waiting.job);
        waiting.find(|job| is_wanted(job))
    }

    /// The numbers of the attempts that wait.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.waiting.values().map(|waiting| waiting.job.id)
    }

    /// Removes those that `is_unwanted` names: their answers are ignored.
    pub fn take_out(&mut self, is_unwanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (out, kept): (BTreeMap<_, _>, _) = waiting.partition(|(_, w)| is_unwanted(&w.job));
        self.waiting = kept;
        out.into_values().map(|waiting| *waiting.job).collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no more should come.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// Removes all: their answers are ignored.
    pub fn drain(&mut self) -> impl Iterator<Item = Box<Job>> + use<> {
        std::mem::take(&mut self.waiting)
            .into_values()
            .map(|waiting| waiting.job)
    }
}

fn by_host(url: &CrawlUrl) -> Scopes {
    let mut query = ScopeQuery::about(url);
    ByHost.scopes(&mut query);
    query.into_scopes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64) -> Job {
        Job::seed(id, CrawlUrl::parse("http://a.test:81/").expect("a URL"))
    }

    fn answer(number: u64, part: usize, scopes: Option<&str>) -> Mapped {
        Mapped {
            number,
            part,
            scopes: scopes.map(Scopes::from),
        }
    }

    #[test]
    fn f67_a_request_waits_for_all_its_answers_and_has_them_in_the_order_of_asking() {
        let mut mapping = Mapping::default();
        let number = mapping.number();
        mapping.wait(number, job(1), "first".into(), 2);
        assert!(mapping.answered(answer(number, 1, Some("third"))).is_none());
        assert!(mapping.answered(answer(number, 1, Some("third"))).is_none());
        assert_eq!(mapping.len(), 1);
        let (job, scopes) = mapping
            .answered(answer(number, 0, Some("second")))
            .expect("that was the last");
        assert_eq!(job.id, 1);
        assert_eq!(scopes, ["first", "second", "third"].into());
        assert_eq!(mapping.len(), 0);
        assert!(mapping.answered(answer(number, 0, Some("late"))).is_none());
    }

    #[test]
    fn f67_a_missing_answer_of_the_map_falls_back_to_the_host() {
        let mut mapping = Mapping::default();
        let number = mapping.number();
        mapping.wait(number, job(1), Scopes::new(), 1);
        let (_, scopes) = mapping.answered(answer(number, 0, None)).expect("an end");
        assert_eq!(scopes, "a.test:81".into());
    }
}
