//! A crawl on a thread of its own, whose pages an async task takes.

#[cfg(feature = "futures")]
pub mod streams;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::{Builder, JoinHandle};

use crate::crawl::control::error::SubmitError;
use crate::crawl::control::found::Found;
use crate::crawl::control::handle::{Handle, Stopper};
use crate::crawl::crawler::pull::held_open;
use crate::crawl::crawler::{Crawler, Turn};
use crate::frontier::request::Request;
use crate::io::{Io, Kernel};
use crate::sink::later::LinksLater;
use crate::sink::page::Page;
use crate::sink::pull::Results;

/// A crawl for async programs: it runs on a thread of its own, and any task takes its pages. Made by [`Crawler::spawn`].
///
/// It needs no particular runtime and no feature; with the feature `futures` it is a `Stream` of pages.
///
/// ```
/// use argiope::sim::{Reply, Web};
/// use argiope::{Config, Crawler, FinishReason, Request};
///
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
/// # }
/// # block_on(async {
/// let web = Web::new(|_| Reply::page("hello"));
/// let mut crawl = Crawler::builder(Config::default()).build_in(&web, 1)?.spawn()?;
/// crawl.submit(Request::get("http://example.com/"))?;
/// while let Some(page) = crawl.next().await {
///     println!("{:?} {}", page.status, page.url);
/// }
/// let crawler = crawl.finish().await;
/// assert_eq!(crawler.progress().finish_reason, Some(FinishReason::Finished));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// **Latency.** Requests become due all the time, and a crawl that shares a thread with other tasks sends them late by
/// as long as those run. On its own thread it is late only if the machine has no processor left. Received bytes are stamped
/// by the kernel in any case.
///
/// **Cancellation.** A page leaves the queue at the moment when [`AsyncCrawl::next`] is ready with it, so a future that is
/// dropped before, as by `select!`, loses none. Dropping the crawl stops it at once and does not wait for its thread.
///
/// **Backpressure.** Untaken pages wait as those of [`Crawler::next_result`] do: up to
/// [`Builder::results_max`](crate::Builder::results_max) of them, and 8 MiB of their content; then nothing new is sent.
/// Producers submit by [`AsyncCrawl::handle`], whose `submit` waits while the crawl has
/// [enough ahead](crate::Builder::ahead). The task that takes the pages must never wait for that: it
/// submits what they lead to by [`AsyncCrawl::submit`].
pub struct AsyncCrawl<I: Io = Kernel> {
    results: Results,
    status: Arc<Status>,
    stopper: Stopper,
    found: Arc<Found>,
    /// The crawl does not end while the owner has a page that may lead to more.
    hold: Option<Handle>,
    /// `None` was returned.
    has_ended: bool,
    thread: Option<JoinHandle<Crawler<I>>>,
}

/// Submits requests to a crawl from async tasks, and keeps it running as a [`Handle`] does.
///
/// ```
/// # use argiope::{AsyncHandle, Request, SubmitError};
/// async fn produce(handle: AsyncHandle) -> Result<(), SubmitError> {
///     for number in 0..1_000_000 {
///         handle.submit(Request::get(format!("https://example.com/{number}"))).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncHandle {
    handle: Handle,
}

/// State of the crawl that its owner reads.
#[derive(Default)]
struct Status {
    /// The thread has ended: by the end of the crawl, or by a panic.
    is_over: AtomicBool,
    /// All results were taken; acknowledgements are missing.
    waits_for_owner: AtomicBool,
}

impl<I: Io + 'static> Crawler<I>
where
    Crawler<I>: Send,
{
    /// Runs the crawl on a thread of its own, for an async program: see [`AsyncCrawl`]. In a crawler that was built
    /// with a sink the pages go there. What needs the crawler itself comes before, such as [`Crawler::serve`].
    ///
    /// In the [simulation](crate::sim) such a crawl is not reproducible: what tasks submit comes at no certain virtual time.
    /// Its time stands still while the crawl has nothing to do but to wait for them, and otherwise runs ahead of theirs.
    ///
    /// # Errors
    /// The system's, if it has no thread left.
    pub fn spawn(self) -> io::Result<AsyncCrawl<I>> {
        let results = self.core.output().results().cloned();
        let results = results.unwrap_or_else(|| Results::new(1));
        let status = Arc::<Status>::default();
        let (stopper, found) = (self.stopper(), Arc::clone(self.core.found()));
        let hold = Some(self.handle());
        let ended = Ended {
            status: Arc::clone(&status),
            results: results.clone(),
        };
        // Otherwise the bound of what this thread submits would depend on when the other one begins.
        self.core.leave_turns_to_others();
        let thread = Builder::new()
            .name("argiope".to_owned())
            .spawn(move || drive(self, &ended))?;
        Ok(AsyncCrawl {
            results,
            status,
            stopper,
            found,
            hold,
            has_ended: false,
            thread: Some(thread),
        })
    }
}

/// Runs a crawl to its end.
fn drive<I: Io>(mut crawler: Crawler<I>, ended: &Ended) -> Crawler<I> {
    let Ended { status, results } = ended;
    crawler.core.wait_outside();
    while crawler.turn(None) == Turn::GoesOn {
        if crawler.core.waits_for_owner() && !status.waits_for_owner.swap(true, Ordering::SeqCst) {
            results.wake();
        }
        crawler.core.wait_outside();
    }
    crawler
}

/// Notifies the owner of the end of the thread, also by a panic.
struct Ended {
    status: Arc<Status>,
    results: Results,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.status.is_over.store(true, Ordering::SeqCst);
        self.results.wake();
    }
}

impl<I: Io> AsyncCrawl<I> {
    /// The next result, once there is one; `None` once the crawl is over and all were taken. What
    /// [`Crawler::next_result`] says of results holds here. The crawl does not end
    /// between a result and the next call: what the result leads to may be submitted meanwhile.
    ///
    /// While it waits, the crawl may end: a task that submits meanwhile, such as one that waits for pages and for a channel
    /// by `select!`, keeps an [`AsyncCrawl::handle`] until it has no more to submit.
    ///
    /// It is `None` as well if the thread of the crawl has panicked: [`AsyncCrawl::finish`] passes the panic on, so await
    /// that at the end.
    ///
    /// Cancellation-safe: a future that is dropped before it is ready loses nothing.
    pub async fn next(&mut self) -> Option<Page> {
        poll_fn(|context| self.poll_result(context)).await
    }

    /// The same for a poll by hand, or by a stream.
    fn poll_result(&mut self, context: &Context<'_>) -> Poll<Option<Page>> {
        let mut is_registered = false;
        while !self.has_ended {
            // Read first: no result comes after that.
            let is_over = self.takes_no_more();
            if let Some(page) = self.take() {
                return Poll::Ready(Some(page));
            }
            if is_over {
                self.has_ended = true;
            } else if is_registered {
                // The owner waits, so it has nothing to submit: the crawl may end.
                self.hold = None;
                return Poll::Pending;
            } else {
                self.results.wait(context.waker());
                is_registered = true;
            }
        }
        self.hold = None;
        Poll::Ready(None)
    }

    /// The next result if one waits; never waits itself. If none does, the crawl may end before the next call, as in
    /// [`AsyncCrawl::next`]; [`AsyncCrawl::is_over`] returns whether there will be none.
    pub fn try_next(&mut self) -> Option<Page> {
        let page = self.take();
        if page.is_none() {
            self.hold = None;
        }
        page
    }

    /// Whether the crawl is over and all results were taken; also after a panic of its thread, which
    /// [`AsyncCrawl::finish`] passes on. In a crawl with a state acknowledgements may be missing, as after
    /// [`AsyncCrawl::next`] has returned `None`.
    pub fn is_over(&self) -> bool {
        // Read first: no result comes after that.
        self.takes_no_more() && self.results.is_empty()
    }

    /// Whether no further result comes.
    fn takes_no_more(&self) -> bool {
        self.status.is_over.load(Ordering::SeqCst)
            || self.status.waits_for_owner.load(Ordering::SeqCst)
    }

    fn take(&mut self) -> Option<Page> {
        if self.results.is_empty() {
            return None;
        }
        // Held before the queue may be empty: until then the crawl does not end.
        (self.hold).get_or_insert_with(|| Handle::of(self.stopper.clone()));
        let (page, is_half_free) = self.results.take_apart()?;
        if is_half_free {
            self.stopper.waker().wake();
        }
        Some(page)
    }

    /// Submits a request without waiting, as [`Handle::submit_now`]; for what a page leads to, and for some
    /// first requests: [`SubmitError::Full`] while 4096 are not admitted. More are submitted by [`Crawler::submit`] before
    /// [`Crawler::spawn`], which has no bound, or by [`AsyncCrawl::handle`], which waits. What a page leads to is to have
    /// a [`Request::depth`]: see [Credentials](Handle#credentials).
    ///
    /// # Errors
    /// As [`Handle::submit_now`]. After [`SubmitError::Full`] take a page first.
    pub fn submit(&self, request: Request) -> Result<u64, SubmitError> {
        // It is taken before the crawl ends for lack of handles.
        Handle::of(self.stopper.clone()).submit_now(request)
    }

    /// Returns a handle for producers. The crawl does not end while one exists.
    pub fn handle(&self) -> AsyncHandle {
        Handle::of(self.stopper.clone()).into()
    }

    /// Returns a handle that stops the crawl, and does not keep it running. After a stop the remaining results can be taken.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Acknowledges a result of a crawl with a state: see [`Crawler::acknowledge`]. [`AsyncCrawl::next`] returns
    /// `None` once all results were taken; acknowledge the last ones, and await [`AsyncCrawl::finish`], which makes the
    /// last commit.
    pub fn acknowledge(&self, id: u64) {
        let waited = self.results.is_unacknowledged();
        self.results.acknowledge(id);
        if waited && !self.results.is_unacknowledged() {
            self.stopper.waker().wake();
        }
    }

    /// Holds a page open until its links are known: see [`Crawler::links_later`].
    pub fn links_later(&self, page: &Page) -> LinksLater {
        held_open(page, &self.found)
    }

    /// Runs the crawl to its end, without further results, and returns the crawler: for its
    /// [reason](crate::Progress::finish_reason), its statistics, and [what was not fetched](Crawler::take_pending). It goes on
    /// while handles exist; stop it before to end it early. Dropping the future stops the crawl.
    ///
    /// # Panics
    /// With the panic of the crawl's thread, if that panicked.
    pub fn finish(mut self) -> impl Future<Output = Crawler<I>> + Send {
        self.give_up();
        poll_fn(move |context| {
            self.results.wait(context.waker());
            if !self.status.is_over.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
            let thread = self.thread.take();
            // It has nothing left to do but to return.
            match thread.expect("it is not polled after it is ready").join() {
                Ok(crawler) => Poll::Ready(crawler),
                Err(panic) => resume_unwind(panic),
            }
        })
    }

    /// The owner takes no more results.
    fn give_up(&mut self) {
        self.results.give_up();
        self.hold = None;
        self.stopper.waker().wake();
    }
}

/// Stops the crawl at once.
impl<I: Io> Drop for AsyncCrawl<I> {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stopper.stop_now();
            self.give_up();
        }
    }
}

impl<I: Io> fmt::Debug for AsyncCrawl<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncCrawl").finish_non_exhaustive()
    }
}

impl AsyncHandle {
    /// Submits a request; ready once the crawl has room for it, with its number: see [`Handle::submit_async`].
    ///
    /// Cancellation-safe: a future that is dropped before it is ready has submitted nothing.
    ///
    /// # Errors
    /// As [`Handle::submit_async`].
    pub fn submit(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<u64, SubmitError>> + Send + use<'_> {
        self.handle.submit_async(request)
    }

    /// The handle itself, which cancels requests, pauses the crawl, changes the pace, and submits without waiting.
    /// Its `submit` would block the task's thread.
    pub fn as_handle(&self) -> &Handle {
        &self.handle
    }
}

impl From<Handle> for AsyncHandle {
    fn from(handle: Handle) -> Self {
        AsyncHandle { handle }
    }
}
