//! Finds a request in a queue by its target, and how many are ahead of it.

use std::collections::VecDeque;

use super::{Many, Queue, Queued};
use crate::frontier::request::PageKind;

/// A queued request that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of its attempt.
    pub id: u64,
    /// Page, robots.txt or sitemap.
    pub kind: PageKind,
    /// Depth from its seed.
    pub depth: u32,
    /// Priority of the request.
    pub priority: i32,
    /// Requests of the queue that are ahead of it.
    pub ahead: usize,
    /// Whether that is exact. In a very long queue it is an estimate, and sitemaps alternate with pages.
    pub is_exact: bool,
}

/// Requests out of order that are compared to count those ahead; of more, a share is estimated.
const COMPARED_MAX: usize = 8_192;

impl Queue {
    /// Searches `count` requests, beginning with the one at `from` in an order of no meaning. Returns what was
    /// found, and whether all were searched.
    pub fn find(&self, target: &str, from: usize, count: usize) -> (Option<Found>, bool) {
        let found = match self {
            Queue::Empty => None,
            Queue::One(only) => (from == 0 && only.target() == target).then_some(only),
            Queue::Many(many) => {
                let mut range = many.iter().skip(from).take(count);
                range.find(|queued| queued.target() == target)
            }
        };
        let found = found.map(|queued| {
            let (ahead, is_exact) = self.ahead_of(queued);
            Found {
                id: queued.id(),
                kind: queued.kind(),
                depth: queued.depth(),
                priority: queued.priority(),
                ahead,
                is_exact,
            }
        });
        let is_over = found.is_some() || from.saturating_add(count) >= self.len();
        (found, is_over)
    }

    /// Requests ahead of one, and whether that number is exact.
    fn ahead_of(&self, queued: &Queued) -> (usize, bool) {
        match self {
            Queue::Empty | Queue::One(_) => (0, true),
            Queue::Many(many) => many.ahead_of(queued),
        }
    }
}

impl Many {
    fn ahead_of(&self, queued: &Queued) -> (usize, bool) {
        let sitemaps = self.sitemaps().map_or(0, |sitemaps| sitemaps.queue.len());
        if queued.kind() == PageKind::Sitemap {
            let queue = self.sitemaps().map(|sitemaps| &sitemaps.queue);
            let ahead = queue.map_or(0, |queue| before(queue, queued));
            let others = self.len() - sitemaps;
            return (ahead + ahead.min(others), others == 0);
        }
        let rare = self.rare.as_ref();
        let later = rare.into_iter().flat_map(|rare| &rare.later);
        let sorted: usize = std::iter::once(&self.run)
            .chain(later)
            .map(|piece| before(piece, queued))
            .sum();
        let heaps = rare.into_iter().flat_map(|rare| &rare.heaps);
        let heaps = std::iter::once(&self.others).chain(heaps);
        let unsorted: usize = heaps.clone().map(|heap| heap.len()).sum();
        let compared = heaps.flatten().take(COMPARED_MAX);
        let ahead = compared.filter(|other| *other > queued).count();
        let is_estimate = unsorted > COMPARED_MAX;
        let ahead = match is_estimate {
            true => (ahead as u64 * unsorted as u64 / COMPARED_MAX as u64) as usize,
            false => ahead,
        };
        let pages = sorted + ahead;
        (
            pages + sitemaps.min(pages + 1),
            !is_estimate && sitemaps == 0,
        )
    }
}

/// The number of requests in a sorted piece that are before one.
fn before(piece: &VecDeque<Queued>, queued: &Queued) -> usize {
    piece.partition_point(|other| other > queued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::frontier::job::Job;
    use crate::wire::url::CrawlUrl;

    fn queued(id: u64, priority: i32, kind: PageKind) -> Queued {
        let url = CrawlUrl::parse(&format!("http://a.test/{id}")).expect("a URL");
        Queued::of(Job {
            priority,
            kind,
            ..Job::seed(id, url)
        })
    }

    /// Searches in steps of `count`.
    fn find(queue: &Queue, target: &str, count: usize) -> Option<Found> {
        let mut from = 0;
        loop {
            let (found, is_over) = queue.find(target, from, count);
            if is_over {
                return found;
            }
            from += count;
        }
    }

    #[test]
    fn the_requests_ahead_of_one_are_those_that_are_popped_before_it() {
        let mut rng = Rng::from_seed(7);
        for count in [1, 2, 3, 40, 3000] {
            let mut queue = Queue::default();
            for id in 1..=count {
                let priority = rng.below(3) as i32;
                queue.push(queued(id, priority, PageKind::Page));
            }
            let places = (1..=count).map(|id| find(&queue, &format!("/{id}"), 7));
            let places: Vec<Found> = places.map(|found| found.expect("it is queued")).collect();
            assert_eq!(find(&queue, "/0", 7), None);
            let mut popped = 0;
            while let Some(next) = queue.pop() {
                let found = places[next.id() as usize - 1];
                assert_eq!((found.id, found.ahead), (next.id(), popped));
                assert!(found.is_exact);
                popped += 1;
            }
        }
    }

    #[test]
    fn among_very_many_out_of_order_the_number_ahead_is_an_estimate() {
        let mut queue = Queue::default();
        // Each ranks above the one before it.
        for id in 1..=40_000 {
            queue.push(queued(id, id as i32, PageKind::Page));
        }
        let found = find(&queue, "/10000", 4096).expect("it is queued");
        assert!(!found.is_exact);
        let off = found.ahead.abs_diff(30_000);
        assert!(off < 10_000, "{found:?}");
    }

    #[test]
    fn sitemaps_alternate_with_the_pages_ahead() {
        let mut queue = Queue::default();
        for id in 1..=4 {
            queue.push(queued(id, 0, PageKind::Page));
        }
        for id in 11..=12 {
            queue.push(queued(id, 0, PageKind::Sitemap));
        }
        let ahead = |id: u64| find(&queue, &format!("/{id}"), 9).map(|found| found.ahead);
        let all = [11, 1, 12, 2, 3, 4].map(|id| ahead(id).expect("it is queued"));
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }
}
