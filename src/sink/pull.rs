//! A queue of results that the crawl's owner pulls.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;

use crate::base::memory::memory_of;
use crate::sink::Sink;
use crate::sink::commit::Epoch;
use crate::sink::page::Page;

/// A bounded queue between a crawl and the program that pulls its results; the crawl's end is a
/// sink.
///
/// While it is full it is not ready, so the crawl reads no more. Attempts in progress are still
/// added, so the bounds are exceeded by at most the bodies that the crawl had read already.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    waiting: Arc<Mutex<Waiting>>,
    pages_max: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    pages: VecDeque<Page>,
    /// Bytes of their requests, replies and bodies, which have no other bound.
    bytes: usize,
    /// The receiver is gone; results are dropped.
    dropped: bool,
    /// Every attempt is queued, not only results.
    every_attempt: bool,
    /// In a crawl with a state.
    unacknowledged: Option<Unacknowledged>,
    /// A task that waits for a result.
    task: Option<task::Waker>,
}

/// Numbers of results, waiting and taken, that the receiver may still lose.
#[derive(Debug, Default)]
struct Unacknowledged {
    /// Of the epoch that is being committed.
    closing: BTreeSet<u64>,
    /// Of the next one.
    open: BTreeSet<u64>,
    /// The last epoch that ended.
    ended: u64,
}

impl Unacknowledged {
    fn len(&self) -> usize {
        self.closing.len() + self.open.len()
    }

    fn remove(&mut self, id: u64) {
        if !self.closing.remove(&id) {
            self.open.remove(&id);
        }
    }
}

/// Default maximum number of waiting results: as many as a busy turn produces.
pub(crate) const PAGES_MAX: usize = 256;
/// Maximum bytes of waiting results. A page has some ten thousand bytes; one with many millions is
/// accepted as well, since the queue counts as full only when it is in it.
const BYTES_MAX: usize = 8 << 20;
/// Maximum number of results that are not acknowledged. Their receiver keeps far more than their numbers.
const UNACKNOWLEDGED_MAX: usize = 1 << 16;

impl Results {
    /// An empty queue for at most `pages_max` results.
    pub(crate) fn new(pages_max: usize) -> Self {
        Results {
            waiting: Arc::default(),
            pages_max: pages_max.max(1),
        }
    }

    /// Queues every attempt from now on: also robots.txt, sitemaps, and what is retried or redirected.
    pub(crate) fn take_every_attempt(&self) {
        self.waiting().every_attempt = true;
    }

    /// The first waiting result.
    pub(crate) fn take(&self) -> Option<Page> {
        let mut waiting = self.waiting();
        // A page is large, so it is moved as rarely as possible.
        let page = waiting.pages.pop_front();
        waiting.bytes -= page.as_ref().map_or(0, bytes_of);
        page
    }

    /// The same for a receiver on another thread than the crawl's. Returns also whether the crawl is to be woken: half of
    /// the queue is free again.
    pub(crate) fn take_apart(&self) -> Option<(Page, bool)> {
        let page = self.take()?;
        let is_half = self.waiting().pages.len() == self.pages_max / 2;
        Some((page, is_half))
    }

    /// Has this task woken at the next result, once, and no other.
    pub(crate) fn wait(&self, task: &task::Waker) {
        let before = self.waiting().task.replace(task.clone());
        // Last, since it may own a task that uses this queue.
        drop(before);
    }

    /// Wakes the task that waits.
    pub(crate) fn wake(&self) {
        let task = self.waiting().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Returns whether no result waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().pages.is_empty()
    }

    /// Drops all results, present and future, because the receiver is gone. Those that it has taken stay
    /// unacknowledged.
    pub(crate) fn give_up(&self) {
        let mut waiting = self.waiting();
        let mut unacknowledged = waiting.unacknowledged.take();
        if let Some(unacknowledged) = &mut unacknowledged {
            let dropped = waiting.pages.iter();
            dropped.for_each(|page| unacknowledged.remove(page.id));
        }
        *waiting = Waiting {
            dropped: true,
            unacknowledged,
            task: waiting.task.take(),
            ..Waiting::default()
        };
    }

    /// From now on an epoch is prepared once its results are acknowledged.
    pub(crate) fn keep_unacknowledged(&self) {
        self.waiting().unacknowledged = Some(Unacknowledged::default());
    }

    /// The receiver does not lose this result any more.
    pub(crate) fn acknowledge(&self, id: u64) {
        if let Some(unacknowledged) = &mut self.waiting().unacknowledged {
            unacknowledged.remove(id);
        }
    }

    /// Whether a commit waits for the receiver, which has taken all results.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        let waiting = self.waiting();
        waiting.pages.is_empty() && waiting.blocks_commit()
    }

    /// Whether a commit waits for acknowledgements that do not come: the receiver is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        let waiting = self.waiting();
        waiting.dropped && waiting.blocks_commit()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic while the lock was held leaves the queue consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn blocks_commit(&self) -> bool {
        let unacknowledged = self.unacknowledged.as_ref();
        unacknowledged.is_some_and(|of| !of.closing.is_empty())
    }

    fn is_crowded(&self) -> bool {
        let unacknowledged = self.unacknowledged.as_ref();
        unacknowledged.is_some_and(|of| of.len() >= UNACKNOWLEDGED_MAX)
    }
}

impl Sink for Results {
    fn put(&mut self, page: &mut Page) {
        let mut waiting = self.waiting();
        if !waiting.dropped && (waiting.every_attempt || page.is_result()) {
            if let Some(unacknowledged) = &mut waiting.unacknowledged {
                unacknowledged.open.insert(page.id);
                page.epoch = Some(Epoch(unacknowledged.ended + 1));
            }
            waiting.bytes += bytes_of(page);
            waiting.pages.push_back(mem::take(page));
            if let Some(task) = waiting.task.take() {
                drop(waiting);
                task.wake();
            }
        }
    }

    fn is_ready(&self) -> bool {
        let waiting = self.waiting();
        let has_room = waiting.pages.len() < self.pages_max && waiting.bytes < BYTES_MAX;
        has_room && !waiting.is_crowded()
    }

    fn resumed(&mut self, last: Option<Epoch>) {
        if let Some(unacknowledged) = &mut self.waiting().unacknowledged {
            unacknowledged.ended = last.map_or(0, |epoch| epoch.0);
        }
    }

    fn prepare(&mut self, epoch: Epoch) {
        if let Some(unacknowledged) = &mut self.waiting().unacknowledged {
            unacknowledged.ended = epoch.0;
            let mut open = mem::take(&mut unacknowledged.open);
            unacknowledged.closing.append(&mut open);
        }
    }

    fn is_prepared(&self, _epoch: Epoch) -> bool {
        !self.waiting().blocks_commit()
    }
}

fn bytes_of(page: &Page) -> usize {
    memory_of(&page.request_bytes) + memory_of(&page.response_bytes) + memory_of(&page.body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontier::request::PageKind;
    use crate::sink::page::samples;

    #[test]
    fn results_are_returned_in_order_and_a_full_queue_is_not_ready() {
        let results = Results::new(2);
        let mut sink = results.clone();
        assert!(results.is_empty() && results.take().is_none());
        for id in 1..=3 {
            assert_eq!(sink.is_ready(), id <= 2);
            sink.put(&mut samples::page(id));
        }
        let ids = std::iter::from_fn(|| results.take()).map(|page| page.id);
        assert_eq!(ids.collect::<Vec<_>>(), [1, 2, 3]);
        assert!(sink.is_ready());
    }

    #[test]
    fn only_results_are_queued_unless_every_attempt_is_wanted() {
        let ids = |results: &Results| {
            let ids = std::iter::from_fn(|| results.take()).map(|page| page.id);
            ids.collect::<Vec<_>>()
        };
        let results = Results::new(9);
        results.keep_unacknowledged();
        let mut sink = results.clone();
        let mut put = || {
            for (id, kind) in [
                (1, PageKind::Page),
                (2, PageKind::Robots),
                (3, PageKind::Sitemap),
            ] {
                let mut page = samples::page(id);
                page.kind = kind;
                page.seed = false;
                sink.put(&mut page);
            }
            let mut redirect = samples::page(4);
            redirect.is_final = false;
            sink.put(&mut redirect);
        };
        put();
        assert_eq!(ids(&results), [1]);
        results.acknowledge(1);
        results.clone().prepare(Epoch(1));
        assert!(
            results.is_prepared(Epoch(1)),
            "nothing else is to be acknowledged"
        );
        results.take_every_attempt();
        put();
        assert_eq!(ids(&results), [1, 2, 3, 4]);
    }

    #[test]
    fn one_long_body_fills_the_queue_until_it_is_taken() {
        let results = Results::new(100);
        let mut sink = results.clone();
        let mut long = samples::page(1);
        long.body = vec![b'x'; BYTES_MAX];
        sink.put(&mut long);
        sink.put(&mut samples::page(2));
        assert!(!sink.is_ready());
        assert_eq!(results.take().map(|page| page.body.len()), Some(BYTES_MAX));
        assert!(sink.is_ready() && !results.is_empty());
    }

    #[test]
    fn an_epoch_is_prepared_once_its_results_are_acknowledged() {
        let results = Results::new(9);
        results.keep_unacknowledged();
        let mut sink = results.clone();
        for id in 1..=3 {
            sink.put(&mut samples::page(id));
        }
        assert_eq!(results.take().map(|page| page.id), Some(1));
        results.acknowledge(1);
        sink.prepare(Epoch(1));
        sink.put(&mut samples::page(4));
        assert!(!sink.is_prepared(Epoch(1)) && !results.is_unacknowledged());
        let epochs = std::iter::from_fn(|| results.take()).map(|page| page.epoch);
        let epochs: Vec<_> = epochs.flatten().map(|epoch| epoch.0).collect();
        assert_eq!(epochs, [1, 1, 2]);
        assert!(results.is_unacknowledged(), "the receiver has them all");
        results.acknowledge(3);
        assert!(!sink.is_prepared(Epoch(1)));
        results.acknowledge(2);
        assert!(sink.is_prepared(Epoch(1)) && !results.is_unacknowledged());
        sink.prepare(Epoch(2));
        assert!(!sink.is_prepared(Epoch(2)));
        results.give_up();
        assert!(results.is_abandoned(), "it was taken, and may be lost");
        sink.put(&mut samples::page(5));
        results.acknowledge(4);
        sink.prepare(Epoch(3));
        assert!(sink.is_prepared(Epoch(3)) && !results.is_abandoned());
    }

    #[test]
    fn results_without_a_receiver_are_dropped() {
        let results = Results::new(1);
        let mut sink = results.clone();
        sink.put(&mut samples::page(1));
        results.give_up();
        sink.put(&mut samples::page(2));
        assert!(sink.is_ready() && results.is_empty());
    }
}
