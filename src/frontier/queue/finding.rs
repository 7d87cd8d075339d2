//! Finds a request in a queue by its target, and how many are ahead of it.

use std::collections::VecDeque;

use super::{Many, Queue, Queued};
use crate::frontier::job::Rank;
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
    /// Number of the attempt among those of its chain, from 1.
    pub attempt: u16,
    /// Requests of the queue that are ahead of it.
    pub ahead: usize,
    /// Whether that is exact. In a very long queue it is an estimate, and sitemaps alternate with pages.
    pub is_exact: bool,
}

/// How far the search in a queue is: first those out of order are compared, then those in order.
///
/// Requests in order may leave the queue between two steps, and others may be added. Requests out of order change their
/// places when one of the queue leaves: then the search begins anew, and so it does when a queue was made anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    unsorted: Unsorted,
    /// The last request in order that was compared.
    last: Option<Rank>,
    /// The same of sitemaps.
    last_sitemap: Option<Rank>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsorted {
    /// So many were compared.
    Compared(usize),
    /// All were.
    Over,
}

impl Default for Unsorted {
    fn default() -> Self {
        Unsorted::Compared(0)
    }
}

impl Cursor {
    /// Whether some requests out of order were compared, and not all.
    pub fn is_among_unsorted(self) -> bool {
        !matches!(self.unsorted, Unsorted::Compared(0) | Unsorted::Over)
    }
}

/// Requests out of order that are compared to count those ahead; of more, a share is estimated.
const COMPARED_MAX: usize = 8_192;

impl Queue {
    /// Compares up to `left` requests, which are subtracted. Returns what was found, and whether the search is over.
    pub fn find(
        &self,
        target: &str,
        cursor: &mut Cursor,
        left: &mut usize,
    ) -> (Option<Found>, bool) {
        let (found, is_over) = match self {
            Queue::Empty => (None, true),
            Queue::One(_) if *left == 0 => (None, false),
            Queue::One(only) => {
                *left -= 1;
                ((only.target() == target).then_some(only), true)
            }
            Queue::Many(many) => many.find(target, cursor, left),
        };
        let found = found.map(|queued| {
            let (ahead, is_exact) = self.ahead_of(queued);
            Found {
                id: queued.id(),
                kind: queued.kind(),
                depth: queued.depth(),
                priority: queued.priority(),
                attempt: queued.attempt(),
                ahead,
                is_exact,
            }
        });
        (found, is_over || found.is_some())
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
    fn find(&self, target: &str, cursor: &mut Cursor, left: &mut usize) -> (Option<&Queued>, bool) {
        let rare = self.rare.as_ref();
        if let Unsorted::Compared(from) = cursor.unsorted {
            let heaps = rare.into_iter().flat_map(|rare| &rare.heaps);
            let heaps = std::iter::once(&self.others).chain(heaps);
            let count: usize = heaps.clone().map(|heap| heap.len()).sum();
            let compared = count.saturating_sub(from).min(*left);
            let mut range = heaps.flatten().skip(from).take(compared);
            if let Some(found) = range.find(|queued| queued.target() == target) {
                return (Some(found), true);
            }
            *left -= compared;
            if from + compared < count {
                cursor.unsorted = Unsorted::Compared(from + compared);
                return (None, false);
            }
            cursor.unsorted = Unsorted::Over;
        }
        let later = rare.into_iter().flat_map(|rare| &rare.later);
        for piece in std::iter::once(&self.run).chain(later) {
            let (found, is_over) = find_sorted(piece, target, &mut cursor.last, left);
            if found.is_some() || !is_over {
                return (found, is_over);
            }
        }
        match self.sitemaps() {
            Some(sitemaps) => find_sorted(&sitemaps.queue, target, &mut cursor.last_sitemap, left),
            None => (None, true),
        }
    }

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

/// Compares requests of a sorted piece, from the first behind `last` on.
fn find_sorted<'a>(
    piece: &'a VecDeque<Queued>,
    target: &str,
    last: &mut Option<Rank>,
    left: &mut usize,
) -> (Option<&'a Queued>, bool) {
    let from = last.map_or(0, |last| {
        piece.partition_point(|queued| queued.rank() >= last)
    });
    let compared = (piece.len() - from).min(*left);
    let mut range = piece.range(from..from + compared);
    if let Some(found) = range.find(|queued| queued.target() == target) {
        return (Some(found), true);
    }
    *left -= compared;
    if compared > 0 {
        *last = piece.get(from + compared - 1).map(Queued::rank);
    }
    (None, from + compared == piece.len())
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
        let mut cursor = Cursor::default();
        loop {
            let mut left = count;
            let (found, is_over) = queue.find(target, &mut cursor, &mut left);
            if is_over {
                return found;
            }
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
