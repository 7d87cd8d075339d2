//! Results that wait until the crawl's owner takes them.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::disk::DiskJob;
use crate::base::memory::memory_of;
use crate::sink::Sink;
use crate::sink::page::Page;

/// A bounded queue between a crawl and whoever pulls its results: a sink at the one end.
///
/// While it is full it is not ready, so the crawl reads no more. What was on its way by then still
/// comes in, so the bounds are exceeded by what the crawl had read of bodies, at the most.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    waiting: Arc<Mutex<Waiting>>,
    pages_max: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    pages: VecDeque<Page>,
    /// What their requests, replies and bodies take, of the memory that has no bound of its own.
    bytes: usize,
    /// Nobody will take them.
    dropped: bool,
}

/// Results that wait unless something else is said: as many as a busy turn brings.
pub(crate) const PAGES_MAX: usize = 256;
/// What may wait beside them in bytes. A page is of some ten thousand, and one of many millions is
/// taken all the same: it is not before one is there that the queue is full.
const BYTES_MAX: usize = 8 << 20;

impl Results {
    /// An empty queue in which at most so many wait.
    pub(crate) fn new(pages_max: usize) -> Self {
        Results {
            waiting: Arc::default(),
            pages_max: pages_max.max(1),
        }
    }

    /// The first of those that wait.
    pub(crate) fn take(&self) -> Option<Page> {
        let mut waiting = self.waiting();
        // A page is large, and moves no more often than it must.
        let page = waiting.pages.pop_front();
        waiting.bytes -= page.as_ref().map_or(0, bytes_of);
        page
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().pages.is_empty()
    }

    /// Nobody will take any: those that wait go, and so do those that come.
    pub(crate) fn give_up(&self) {
        let mut waiting = self.waiting();
        *waiting = Waiting {
            dropped: true,
            ..Waiting::default()
        };
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whoever panicked while holding it left a queue that is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Results {
    fn put(&mut self, page: &mut Page, _disk: &mut Vec<DiskJob>) {
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
    fn results_come_out_as_they_went_in_and_too_many_are_told_of() {
        let results = Results::new(2);
        let mut sink = results.clone();
        assert!(results.is_empty() && results.take().is_none());
        for id in 1..=3 {
            assert_eq!(sink.is_ready(), id <= 2);
            sink.put(&mut samples::page(id), &mut Vec::new());
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
        sink.put(&mut long, &mut Vec::new());
        sink.put(&mut samples::page(2), &mut Vec::new());
        assert!(!sink.is_ready());
        assert_eq!(results.take().map(|page| page.body.len()), Some(BYTES_MAX));
        assert!(sink.is_ready() && !results.is_empty());
    }

    #[test]
    fn what_nobody_will_take_is_not_kept() {
        let results = Results::new(1);
        let mut sink = results.clone();
        sink.put(&mut samples::page(1), &mut Vec::new());
        results.give_up();
        sink.put(&mut samples::page(2), &mut Vec::new());
        assert!(sink.is_ready() && results.is_empty());
    }
}
