//! A queue of results that the crawl's owner pulls.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::memory::memory_of;
use crate::sink::Sink;
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
}

/// Default maximum number of waiting results: as many as a busy turn produces.
pub(crate) const PAGES_MAX: usize = 256;
/// Maximum bytes of waiting results. A page has some ten thousand bytes; one with many millions is
/// accepted as well, since the queue counts as full only when it is in it.
const BYTES_MAX: usize = 8 << 20;

impl Results {
    /// An empty queue for at most `pages_max` results.
    pub(crate) fn new(pages_max: usize) -> Self {
        Results {
            waiting: Arc::default(),
            pages_max: pages_max.max(1),
        }
    }

    /// The first waiting result.
    pub(crate) fn take(&self) -> Option<Page> {
        let mut waiting = self.waiting();
        // A page is large, so it is moved as rarely as possible.
        let page = waiting.pages.pop_front();
        waiting.bytes -= page.as_ref().map_or(0, bytes_of);
        page
    }

    /// Returns whether no result waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().pages.is_empty()
    }

    /// Drops all results, present and future, because the receiver is gone.
    pub(crate) fn give_up(&self) {
        let mut waiting = self.waiting();
        *waiting = Waiting {
            dropped: true,
            ..Waiting::default()
        };
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic while the lock was held leaves the queue consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Results {
    fn put(&mut self, page: &mut Page) {
        let mut waiting = self.waiting();
        if !waiting.dropped {
            waiting.bytes += bytes_of(page);
            waiting.pages.push_back(mem::take(page));
        }
    }

    fn is_ready(&self) -> bool {
        let waiting = self.waiting();
        waiting.pages.len() < self.pages_max && waiting.bytes < BYTES_MAX
    }
}

fn bytes_of(page: &Page) -> usize {
    memory_of(&page.request_bytes) + memory_of(&page.response_bytes) + memory_of(&page.body)
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn results_without_a_receiver_are_dropped() {
        let results = Results::new(1);
        let mut sink = results.clone();
        sink.put(&mut samples::page(1));
        results.give_up();
        sink.put(&mut samples::page(2));
        assert!(sink.is_ready() && results.is_empty());
    }
}
