//! The requests of one lane, the greatest first.

use std::collections::BinaryHeap;

use super::job::Job;

/// A priority queue that is small when it is short: of a million lanes most hold one request.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The greatest.
    first: Option<Box<Job>>,
    /// The others. Made when there is one, and gone with the last.
    #[expect(
        clippy::box_collection,
        reason = "eight bytes where there are none, not 24"
    )]
    others: Option<Box<BinaryHeap<Box<Job>>>>,
}

impl Queue {
    pub fn push(&mut self, job: Box<Job>) {
        let Some(first) = &mut self.first else {
            self.first = Some(job);
            return;
        };
        let other = if *job > **first {
            std::mem::replace(first, job)
        } else {
            job
        };
        self.others.get_or_insert_default().push(other);
    }

    pub fn peek(&self) -> Option<&Job> {
        self.first.as_deref()
    }

    pub fn pop(&mut self) -> Option<Box<Job>> {
        let next = self.others.as_mut().and_then(|others| others.pop());
        if next.is_none() {
            self.others = None;
        }
        std::mem::replace(&mut self.first, next)
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Empties it, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = Box<Job>> {
        let others = self.others.take().map(|others| *others);
        self.first
            .take()
            .into_iter()
            .chain(others.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Kind;
    use super::*;
    use crate::base::rng::Rng;
    use crate::wire::url::CrawlUrl;

    fn job(id: u64, priority: i32) -> Box<Job> {
        Box::new(Job {
            id,
            parent: 0,
            via: None,
            url: CrawlUrl::parse("http://a.test/").expect("a URL"),
            kind: Kind::Page,
            seed: true,
            fresh: false,
            redirects: 0,
            attempt: 1,
            depth: 0,
            priority,
            share: 0.0,
            extra: None,
        })
    }

    #[test]
    fn the_greatest_comes_first_however_they_went_in() {
        let mut rng = Rng::from_seed(1);
        let mut queue = Queue::default();
        let mut model = BinaryHeap::new();
        for id in 1..2000 {
            if rng.below(5) < 3 {
                let priority = rng.below(4) as i32;
                queue.push(job(id, priority));
                model.push(job(id, priority));
            } else {
                let popped = queue.pop().map(|job| job.id);
                assert_eq!(popped, model.pop().map(|job| job.id));
            }
            assert_eq!(queue.peek().map(|job| job.id), model.peek().map(|j| j.id));
            assert_eq!(queue.is_empty(), model.is_empty());
        }
        let mut rest: Vec<u64> = queue.drain().map(|job| job.id).collect();
        let mut expected: Vec<u64> = model.into_iter().map(|job| job.id).collect();
        rest.sort_unstable();
        expected.sort_unstable();
        assert_eq!(rest, expected);
        assert!(queue.is_empty());
    }
}
