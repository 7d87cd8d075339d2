//! Whole pages to a function of the embedder's.

use crate::base::disk::DiskJob;
use crate::sink::Sink;
use crate::sink::page::Page;

/// Hands every finished attempt to a function, on the crawl's thread.
///
/// While the function runs the crawl stands still; no latency is measured wrong by that, but
/// nothing is sent either. So it is to wait for nobody: a function that hands pages on, to a channel say,
/// tells with [`FunctionSink::ready_when`] whether there is room for more. What is on its way then is
/// still put, up to what is in flight: the channel itself has no bound, and what is in it is counted.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::sync::mpsc::channel;
///
/// use argiope::Page;
/// use argiope::sink::function::FunctionSink;
///
/// let (pages, inbox) = channel::<Page>();
/// let waiting = Arc::new(AtomicUsize::new(0));
/// let (more, now) = (Arc::clone(&waiting), Arc::clone(&waiting));
/// let sink = FunctionSink::new(move |page| {
///     more.fetch_add(1, Ordering::SeqCst);
///     // Whoever read it may be gone: then it is dropped.
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

impl<F: FnMut(Page)> FunctionSink<F> {
    /// Hands pages to `function`, which always takes more.
    pub fn new(function: F) -> Self {
        FunctionSink {
            function,
            ready: || true,
        }
    }

    /// The crawl sends, and reads from the network, only while `ready` says so. It is asked in each turn,
    /// and every few milliseconds while it says no: nobody has to wake the crawl.
    pub fn ready_when<R: Fn() -> bool>(self, ready: R) -> FunctionSink<F, R> {
        FunctionSink {
            function: self.function,
            ready,
        }
    }
}

impl<F: FnMut(Page) + Send, R: Fn() -> bool + Send> Sink for FunctionSink<F, R> {
    fn put(&mut self, page: &mut Page, _disk: &mut Vec<DiskJob>) {
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
    fn a_function_gets_whole_pages_and_says_when_it_is_full() {
        let seen = Shared::new(Vec::new());
        let mut sink = FunctionSink::new(|page: Page| seen.borrow_mut().push(page.body))
            .ready_when(|| seen.borrow().len() < 2);
        for id in 1..=2 {
            assert!(sink.is_ready());
            sink.put(&mut samples::page(id), &mut Vec::new());
        }
        assert!(!sink.is_ready());
        assert_eq!(*seen.borrow(), [b"hello", b"hello"]);
    }
}
