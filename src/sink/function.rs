//! Passes pages to a function of the embedding program.

use crate::sink::Sink;
use crate::sink::page::Page;
use std::fmt;

/// Calls a function with every finished attempt, on the crawl's thread.
///
/// The crawl does nothing while the function runs: measured latencies stay correct, but nothing is
/// sent. So the function must not block. If it passes pages on, for example to a channel, set
/// [`FunctionSink::ready_when`] to report whether there is room. Attempts in progress are still
/// delivered after it reports `false`, up to the number in flight, so the channel itself must be
/// unbounded and its contents counted.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::sync::mpsc::channel;
///
/// use argiope::{FunctionSink, Page};
///
/// let (pages, inbox) = channel::<Page>();
/// let waiting = Arc::new(AtomicUsize::new(0));
/// let (more, now) = (Arc::clone(&waiting), Arc::clone(&waiting));
/// let sink = FunctionSink::new(move |page| {
///     more.fetch_add(1, Ordering::SeqCst);
///     // The reader may be gone: then the page is dropped.
///     let _ = pages.send(page);
/// })
/// .ready_when(move || now.load(Ordering::SeqCst) < 1000);
/// # let _ = sink;
/// std::thread::spawn(move || {
///     for page in inbox {
///         waiting.fetch_sub(1, Ordering::SeqCst);
///         println!("{}", page.url);
///     }
/// });
/// ```
pub struct FunctionSink<F, R = fn() -> bool> {
    function: F,
    ready: R,
}

impl<F, R> fmt::Debug for FunctionSink<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionSink").finish_non_exhaustive()
    }
}

impl<F: FnMut(Page)> FunctionSink<F> {
    /// Calls `function` for each page, without backpressure.
    pub fn new(function: F) -> Self {
        FunctionSink {
            function,
            ready: || true,
        }
    }

    /// Makes the crawl send, and read from the network, only while `ready` returns `true`. It is
    /// called in each turn, and every few milliseconds while it returns `false`, so the crawl need
    /// not be woken.
    pub fn ready_when<R: Fn() -> bool>(self, ready: R) -> FunctionSink<F, R> {
        FunctionSink {
            function: self.function,
            ready,
        }
    }
}

impl<F: FnMut(Page) + Send, R: Fn() -> bool + Send> Sink for FunctionSink<F, R> {
    fn put(&mut self, page: &mut Page) {
        (self.function)(std::mem::take(page));
    }

    fn is_ready(&self) -> bool {
        (self.ready)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shared::Shared;
    use crate::sink::page::samples;

    #[test]
    fn a_function_receives_complete_pages_and_applies_backpressure() {
        let seen = Shared::new(Vec::new());
        let mut sink = FunctionSink::new(|page: Page| seen.borrow_mut().push(page.body))
            .ready_when(|| seen.borrow().len() < 2);
        for id in 1..=2 {
            assert!(sink.is_ready());
            sink.put(&mut samples::page(id));
        }
        assert!(!sink.is_ready());
        assert_eq!(*seen.borrow(), [b"hello", b"hello"]);
    }
}
