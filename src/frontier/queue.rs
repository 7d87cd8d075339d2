//! Priority queue of one lane's requests.

mod finding;

pub use self::finding::{Cursor, Found};

use crate::frontier::job::Rank;
use crate::frontier::request::PageKind;
use std::collections::{BinaryHeap, VecDeque};

use super::queued::Queued;

/// A priority queue that is small when short: of a million lanes most hold one request.
#[derive(Debug, Default)]
pub(super) enum Queue {
    #[default]
    Empty,
    One(Queued),
    /// Boxed to keep the enum at 16 bytes, since every lane has one.
    Many(Box<Many>),
}

/// Two or more requests. Those pushed in order (most are) go into a run, where push and pop compare
/// with one other request.
#[derive(Debug, Default)]
pub(super) struct Many {
    /// Sorted, the next one first.
    run: VecDeque<Queued>,
    /// Those that ranked above the last of the run when pushed.
    others: BinaryHeap<Queued>,
    rare: Option<Box<Rare>>,
}

/// What few queues have.
#[derive(Debug, Default)]
struct Rare {
    /// Requests behind the run, in pieces: a run of a million would take milliseconds to grow.
    later: VecDeque<VecDeque<Queued>>,
    /// Others, likewise in several heaps.
    heaps: Vec<BinaryHeap<Queued>>,
    /// Sitemaps, if there are or were any: they alternate with pages.
    sitemaps: Option<Sitemaps>,
}

/// A run of so many requests goes on in another piece.
const PIECE: usize = 4096;

/// A heap of so many requests takes no more. There are few of them: the first of each is compared with those of
/// all.
const HEAP: usize = 32 * PIECE;

/// Sitemaps in order of rank, and whether a page is next.
#[derive(Debug, Default)]
struct Sitemaps {
    queue: VecDeque<Queued>,
    /// The last popped was a sitemap.
    is_pages_turn: bool,
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
        if let Queue::Many(many) = self {
            let first = many.pop();
            self.shrink();
            return first;
        }
        match std::mem::take(self) {
            Queue::One(only) => Some(only),
            Queue::Empty | Queue::Many(_) => None,
        }
    }

    /// Removes the request of this rank, which is no sitemap. One that was pushed in order is found by a few
    /// comparisons.
    pub fn remove(&mut self, rank: Rank) -> Option<Queued> {
        match self {
            Queue::Empty => None,
            Queue::One(only) if only.rank() == rank => self.pop(),
            Queue::One(_) => None,
            Queue::Many(many) => {
                let removed = many.remove(rank);
                self.shrink();
                removed
            }
        }
    }

    /// Becomes small again once it is short.
    fn shrink(&mut self) {
        let Queue::Many(many) = self else {
            return;
        };
        *self = match many.len_up_to_two() {
            0 => Queue::Empty,
            // While sitemaps are queued, `is_pages_turn` must be kept.
            1 if many.sitemaps().is_none() => many.pop().map_or(Queue::Empty, Queue::One),
            _ => return,
        };
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Queue::Empty)
    }

    pub fn len(&self) -> usize {
        match self {
            Queue::Empty => 0,
            Queue::One(_) => 1,
            Queue::Many(many) => many.len(),
        }
    }

    /// Reads the first memory behind a pointer, if any; see [`super::lanes::Frontier::touch`].
    pub fn touch(&self) -> u64 {
        match self {
            Queue::Empty => 0,
            Queue::One(only) => only.id(),
            Queue::Many(many) => many.run.len() as u64,
        }
    }

    /// Removes and returns the requests that satisfy `wanted`, in any order.
    pub fn extract(&mut self, wanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        // Fast path: few of a million lanes have any.
        let has_any = match self {
            Queue::Empty => false,
            Queue::One(only) => wanted(only),
            Queue::Many(many) => many.iter().any(&wanted),
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
        if queued.kind() == PageKind::Sitemap {
            let rare = self.rare.get_or_insert_default();
            let queue = &mut rare.sitemaps.get_or_insert_default().queue;
            let at = queue.partition_point(|other| *other > queued);
            return queue.insert(at, queued);
        }
        match self.last().is_none_or(|last| queued < *last) {
            true => self.push_last(queued),
            false => self.push_other(queued),
        }
    }

    /// The last of the run.
    fn last(&self) -> Option<&Queued> {
        let later = self.rare.as_ref().and_then(|rare| rare.later.back());
        later.unwrap_or(&self.run).back()
    }

    fn push_last(&mut self, queued: Queued) {
        let later = self.rare.as_mut().map(|rare| &mut rare.later);
        let piece = match later.and_then(VecDeque::back_mut) {
            Some(last) => last,
            None => &mut self.run,
        };
        if piece.len() < PIECE {
            if piece.len() == piece.capacity() {
                piece.reserve_exact(growth(piece.len()));
            }
            return piece.push_back(queued);
        }
        let later = &mut self.rare.get_or_insert_default().later;
        later.push_back(VecDeque::from([queued]));
    }

    fn push_other(&mut self, queued: Queued) {
        let heaps = self.rare.as_mut().map(|rare| &mut rare.heaps);
        let heap = match heaps.and_then(|heaps| heaps.last_mut()) {
            Some(last) => last,
            None => &mut self.others,
        };
        if heap.len() < HEAP {
            if heap.len() == heap.capacity() {
                heap.reserve_exact(growth(heap.len()));
            }
            return heap.push(queued);
        }
        let heaps = &mut self.rare.get_or_insert_default().heaps;
        heaps.push(BinaryHeap::from([queued]));
    }

    fn peek(&self) -> Option<&Queued> {
        match self.sitemap() {
            Some(sitemap) => Some(sitemap),
            None => self.other(),
        }
    }

    /// The first that is not a sitemap.
    fn other(&self) -> Option<&Queued> {
        if self.others.is_empty() && self.rare.is_none() {
            return self.run.front();
        }
        let mut first = self.run.front().max(self.others.peek());
        for heap in self.rare.iter().flat_map(|rare| &rare.heaps) {
            first = first.max(heap.peek());
        }
        first
    }

    fn sitemaps(&self) -> Option<&Sitemaps> {
        self.rare.as_ref()?.sitemaps.as_ref()
    }

    /// The first sitemap, if it is next.
    fn sitemap(&self) -> Option<&Queued> {
        let sitemaps = self.sitemaps()?;
        let first = sitemaps.queue.front()?;
        let is_first = match self.other() {
            None => true,
            Some(other) => !sitemaps.is_pages_turn && other.kind() == PageKind::Page,
        };
        is_first.then_some(first)
    }

    fn pop(&mut self) -> Option<Queued> {
        if self.sitemap().is_some() {
            let sitemaps = self.rare.as_mut()?.sitemaps.as_mut()?;
            sitemaps.is_pages_turn = true;
            return sitemaps.queue.pop_front();
        }
        let popped = self.pop_other();
        if let Some(rare) = &mut self.rare
            && let Some(sitemaps) = &mut rare.sitemaps
            && popped
                .as_ref()
                .is_some_and(|popped| popped.kind() == PageKind::Page)
        {
            sitemaps.is_pages_turn = false;
        }
        popped
    }

    /// The first that is not a sitemap.
    fn pop_other(&mut self) -> Option<Queued> {
        let Some(rare) = &mut self.rare else {
            return match self.run.front() > self.others.peek() {
                true => self.run.pop_front(),
                false => self.others.pop(),
            };
        };
        let of_heaps = rare.heaps.iter().enumerate();
        let of_heaps = of_heaps.max_by(|(_, one), (_, other)| one.peek().cmp(&other.peek()));
        let in_heaps = of_heaps.and_then(|(number, heap)| Some((number, heap.peek()?)));
        let first = self.run.front().max(self.others.peek());
        if let Some((number, other)) = in_heaps
            && first < Some(other)
        {
            let popped = rare.heaps[number].pop();
            if rare.heaps[number].is_empty() {
                rare.heaps.swap_remove(number);
            }
            return popped;
        }
        if self.run.front() <= self.others.peek() {
            return self.others.pop();
        }
        let popped = self.run.pop_front();
        if self.run.is_empty()
            && let Some(next) = rare.later.pop_front()
        {
            self.run = next;
        }
        popped
    }

    /// Removes the request of this rank, which is no sitemap.
    fn remove(&mut self, rank: Rank) -> Option<Queued> {
        let later = self.rare.iter_mut().flat_map(|rare| &mut rare.later);
        let mut pieces = std::iter::once(&mut self.run).chain(later);
        let sorted = pieces.find_map(|piece| {
            let at = piece.binary_search_by(|other| rank.cmp(&other.rank()));
            piece.remove(at.ok()?)
        });
        if sorted.is_some() {
            // No piece is empty, except the run of a queue without another.
            if let Some(rare) = &mut self.rare {
                rare.later.retain(|piece| !piece.is_empty());
                if self.run.is_empty() {
                    self.run = rare.later.pop_front().unwrap_or_default();
                }
            }
            return sorted;
        }
        let heaps = self.rare.iter_mut().flat_map(|rare| &mut rare.heaps);
        let mut heaps = std::iter::once(&mut self.others).chain(heaps);
        heaps.find_map(|heap| {
            let at = heap.iter().position(|other| other.rank() == rank)?;
            let mut all = std::mem::take(heap).into_vec();
            let removed = all.swap_remove(at);
            *heap = BinaryHeap::from(all);
            Some(removed)
        })
    }

    /// Number of requests, or two if there are more.
    fn len_up_to_two(&self) -> usize {
        match self.run.len() + self.others.len() {
            count @ 0..2 if self.rare.is_some() => self.len().min(2).max(count),
            count => count.min(2),
        }
    }

    fn len(&self) -> usize {
        let rare = self.rare.as_ref().map_or(0, |rare| {
            let later: usize = rare.later.iter().map(VecDeque::len).sum();
            let heaps: usize = rare.heaps.iter().map(BinaryHeap::len).sum();
            let sitemaps = rare.sitemaps.as_ref();
            later + heaps + sitemaps.map_or(0, |sitemaps| sitemaps.queue.len())
        });
        self.run.len() + self.others.len() + rare
    }

    fn iter(&self) -> impl Iterator<Item = &Queued> {
        let rare = self.rare.iter().flat_map(|rare| {
            let sitemaps = rare.sitemaps.iter().flat_map(|sitemaps| &sitemaps.queue);
            let later = rare.later.iter().flatten();
            later.chain(rare.heaps.iter().flatten()).chain(sitemaps)
        });
        self.run.iter().chain(&self.others).chain(rare)
    }
}

/// Slots to add when a queue of this length is full: it doubles up to 64, then grows by 64 up to 256,
/// then by a quarter, so that at most a fifth of a long queue is empty.
fn growth(length: usize) -> usize {
    (length / 4).max(length.clamp(4, 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    fn a_queue_takes_16_bytes() {
        assert_eq!(size_of::<Queue>(), 16);
        assert_eq!(size_of::<Many>(), 64);
    }

    #[test]
    fn sitemaps_alternate_with_pages_even_if_each_names_the_next() {
        let sitemap = |id| Job {
            kind: PageKind::Sitemap,
            ..job(id, 0)
        };
        let mut queue = Queue::default();
        let mut went = Vec::new();
        for page in 1..=3 {
            queue.push(Queued::of(job(page, 0)));
        }
        queue.push(Queued::of(sitemap(10)));
        for _ in 0..8 {
            let next = queue.pop().expect("there is always a sitemap");
            went.push(next.id());
            if next.kind() == PageKind::Sitemap {
                queue.push(Queued::of(sitemap(next.id() + 1)));
            }
        }
        assert_eq!(went, [10, 1, 11, 2, 12, 3, 13, 14]);
        queue.push(Queued::of(Job {
            kind: PageKind::Robots,
            ..job(99, 0)
        }));
        assert_eq!(queue.pop().map(|next| next.id()), Some(99));
    }

    #[test]
    fn the_highest_rank_is_popped_first_in_any_order_of_pushes() {
        let mut rng = Rng::from_seed(1);
        let mut queue = Queue::default();
        let mut model = Vec::new();
        for id in 1..2000 {
            if rng.below(5) < 3 {
                // Priority 0 is queued without a job.
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

    #[test]
    fn any_request_but_a_sitemap_can_be_removed() {
        for (seed, length) in [(1, 3), (2, 40), (3, 3 * PIECE as u64)] {
            let mut rng = Rng::from_seed(seed);
            let mut queue = Queue::default();
            let mut ranks = BTreeSet::new();
            for number in 1..=length {
                // About one of four ranks above the last of the run.
                let id = match rng.below(4) {
                    0 => number,
                    _ => number + length,
                };
                let job = job(id, 0);
                ranks.insert(job.rank());
                queue.push(Queued::of(job));
            }
            let absent = job(3 * length, 0).rank();
            assert!(queue.remove(absent).is_none());
            while let Some(last) = ranks.last().copied() {
                let near = job(1 + rng.below(2 * length), 0).rank();
                let rank = ranks.range(near..).next().copied().unwrap_or(last);
                ranks.remove(&rank);
                let removed = queue.remove(rank).map(|queued| queued.rank());
                assert_eq!(removed, Some(rank), "seed {seed}");
                assert!(queue.remove(rank).is_none(), "it was removed");
                let first = queue.peek().map(Queued::rank);
                assert_eq!(first, ranks.last().copied(), "seed {seed}");
                assert_eq!(queue.len(), ranks.len());
                assert_eq!(queue.is_empty(), ranks.is_empty());
            }
        }
    }

    #[test]
    fn a_long_queue_is_in_pieces_that_never_grow_beyond_their_bounds() {
        const JOBS: u64 = 3 * HEAP as u64;
        let mut queue = Queue::default();
        // Every second one ranks above the last of the run.
        for id in 1..=JOBS {
            queue.push(Queued::of(job(2 * id, 0)));
            queue.push(Queued::of(job(2 * id - 1, 0)));
        }
        let Queue::Many(many) = &queue else {
            panic!("there are many");
        };
        let rare = many.rare.as_ref().expect("it is long");
        assert!(rare.later.iter().all(|piece| piece.capacity() <= 2 * PIECE));
        assert!(rare.heaps.iter().all(|heap| heap.capacity() <= 2 * HEAP));
        assert!(many.run.capacity() <= 2 * PIECE && many.others.capacity() <= 2 * HEAP);
        assert_eq!(queue.len() as u64, 2 * JOBS);
        for id in 1..=2 * JOBS {
            assert_eq!(queue.pop().map(|queued| queued.id()), Some(id));
        }
        assert!(queue.is_empty());
    }
}
