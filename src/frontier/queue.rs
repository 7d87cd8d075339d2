//! The requests of one lane, the greatest first.

use std::collections::{BinaryHeap, VecDeque};

use super::queued::Queued;

/// A priority queue that is small when it is short: of a million lanes most hold one request.
#[derive(Debug, Default)]
pub(super) enum Queue {
    #[default]
    Empty,
    One(Queued),
    /// Boxed, since this is in every lane.
    Many(Box<Many>),
}

/// Requests in their order, as far as they came in it: most do, and then neither their coming nor
/// their going looks at more than one other.
#[derive(Debug, Default)]
pub(super) struct Many {
    /// Each goes before the one behind it.
    run: VecDeque<Queued>,
    /// Those that came when a lesser one was the last of the run.
    others: BinaryHeap<Queued>,
}

impl Queue {
    pub fn push(&mut self, queued: Queued) {
        match std::mem::take(self) {
            Queue::Empty => *self = Queue::One(queued),
            Queue::One(first) => {
                let mut many = Box::<Many>::default();
                many.push(first);
                many.push(queued);
                *self = Queue::Many(many);
            }
            Queue::Many(mut many) => {
                many.push(queued);
                *self = Queue::Many(many);
            }
        }
    }

    pub fn peek(&self) -> Option<&Queued> {
        match self {
            Queue::Empty => None,
            Queue::One(only) => Some(only),
            Queue::Many(many) => many.peek(),
        }
    }

    pub fn pop(&mut self) -> Option<Queued> {
        match std::mem::take(self) {
            Queue::Empty => None,
            Queue::One(only) => Some(only),
            Queue::Many(mut many) => {
                let first = many.pop();
                *self = match many.len() {
                    1 => many.pop().map_or(Queue::Empty, Queue::One),
                    _ => Queue::Many(many),
                };
                first
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Queue::Empty)
    }

    /// Reads the beginning of what lies elsewhere.
    pub fn touch(&self) -> u64 {
        match self {
            Queue::Empty => 0,
            Queue::One(only) => only.id(),
            Queue::Many(many) => many.run.len() as u64,
        }
    }

    /// Takes out those that `wanted` wants, in no order that means anything.
    pub fn extract(&mut self, wanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        // Of a million lanes few have any.
        let has_any = match self {
            Queue::Empty => false,
            Queue::One(only) => wanted(only),
            Queue::Many(many) => many.run.iter().chain(&many.others).any(&wanted),
        };
        if !has_any {
            return Vec::new();
        }
        let mut all = Vec::new();
        while let Some(queued) = self.pop() {
            all.push(queued);
        }
        let (taken, kept) = all.into_iter().partition(wanted);
        let kept: Vec<Queued> = kept;
        kept.into_iter().for_each(|queued| self.push(queued));
        taken
    }
}

impl Many {
    fn push(&mut self, queued: Queued) {
        if self.run.back().is_none_or(|last| queued < *last) {
            if self.run.len() == self.run.capacity() {
                self.run.reserve_exact(growth(self.run.len()));
            }
            self.run.push_back(queued);
        } else {
            if self.others.len() == self.others.capacity() {
                self.others.reserve_exact(growth(self.others.len()));
            }
            self.others.push(queued);
        }
    }

    fn peek(&self) -> Option<&Queued> {
        self.run.front().max(self.others.peek())
    }

    fn pop(&mut self) -> Option<Queued> {
        if self.run.front() > self.others.peek() {
            self.run.pop_front()
        } else {
            self.others.pop()
        }
    }

    fn len(&self) -> usize {
        self.run.len() + self.others.len()
    }
}

/// By how much a queue of this length grows when it is full: it doubles while it is short, and never
/// has more than a fifth of its places empty for growth once it is long.
fn growth(length: usize) -> usize {
    (length / 4).max(length.clamp(4, 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::frontier::job::Job;
    use crate::wire::url::CrawlUrl;

    fn job(id: u64, priority: i32) -> Job {
        let url = CrawlUrl::parse("http://a.test/").expect("a URL");
        Job {
            priority,
            ..Job::seed(id, url)
        }
    }

    #[test]
    fn it_is_no_larger_than_what_a_million_lanes_can_afford() {
        assert_eq!(size_of::<Queue>(), 16);
    }

    #[test]
    fn the_greatest_comes_first_however_they_went_in() {
        let mut rng = Rng::from_seed(1);
        let mut queue = Queue::default();
        let mut model = Vec::new();
        for id in 1..2000 {
            if rng.below(5) < 3 {
                // Those without a priority are queued without a job.
                let priority = rng.below(4) as i32;
                queue.push(Queued::of(job(id, priority)));
                model.push((priority, std::cmp::Reverse(id)));
                model.sort_unstable();
            } else {
                let popped = queue.pop().map(|queued| queued.id());
                assert_eq!(popped, model.pop().map(|(_, id)| id.0));
            }
            let first = queue.peek().map(Queued::id);
            assert_eq!(first, model.last().map(|(_, id)| id.0));
            assert_eq!(queue.is_empty(), model.is_empty());
        }
    }
}
