//! A channel as a source of requests.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::crawl::control::feed::{
    AT_ONCE, EndedRequest, RequestEnd, RequestSource, SourceError, SourcePoll, Wake,
};
use crate::frontier::request::Request;

/// A channel, a stream, or any function that is polled, as a [`RequestSource`] with exact backpressure: a request leaves the
/// channel when the crawl has room for it. The senders see a full channel while [`ChannelSource::at_once`] requests are in the
/// crawl; a channel for `n` requests bounds the producer to `n` more.
///
/// The crawl ends once all senders are dropped and the rest is done. After a crawl that ended early, the requests that it had
/// not sent, or was to retry, and those that were left in the channel are in
/// [`Crawler::take_pending`](crate::Crawler::take_pending); those in flight had a final page, `cancelled.stopped`. A request
/// that can never be sent has neither: [`ChannelSource::on_rejected`]. From then on sending fails.
///
/// With a receiver of tokio's ([`ChannelSource::from`]) a request that was sent has a page, is pending or is rejected. Only a
/// place that was reserved (`reserve`, or a sink between its two steps) before the crawl ended early, and is used a second
/// or more after that, sends to nothing: the end of the crawl waits for it so long at most, and not at all where none is
/// reserved. Other channels cannot be closed before they are emptied: what a sender sends in the moment between the last
/// poll and the drop of the receiver is lost, and so is what is left after a million requests.
///
/// ```
/// use argiope::sim::{Reply, Web};
/// use argiope::{ChannelSource, Config, Crawler, FinishReason, Page, Request};
///
/// let (requests, receiver) = std::sync::mpsc::sync_channel(100);
/// std::thread::spawn(move || {
///     for number in 0..1000 {
///         // Waits while the channel is full; the crawl is over once this fails.
///         if requests.send(Request::get(format!("http://a.test/{number}"))).is_err() {
///             break;
///         }
///     }
/// });
/// let config = Config::default().with("DOWNLOAD_DELAY", 0)?;
/// let mut crawler = Crawler::builder(config)
///     .source(ChannelSource::from(receiver))
///     .sink(|page: Page| println!("{:?} {}", page.status, page.url))
///     .build_in(&Web::new(|_| Reply::page("hello")), 1)?;
/// assert_eq!(crawler.run(), FinishReason::Finished);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With the feature `tokio`, `ChannelSource::from` takes a receiver of tokio's. Without it
/// `ChannelSource::new(move |context| receiver.poll_recv(context))` does, with the losses of [`ChannelSource::new`].
pub struct ChannelSource {
    receiver: Receives,
    at_once: usize,
    on_rejected: Option<Box<OnRejected>>,
    /// Wakes the crawl, since its first poll.
    task: Option<Waker>,
}

enum Receives {
    /// The function wakes the task of the context when there is something.
    Polled(Box<Poller>),
    /// The channel cannot wake anybody.
    Std(Receiver<Request>),
    #[cfg(feature = "tokio")]
    Tokio(tokio::sync::mpsc::Receiver<Request>),
    /// All senders are dropped, or the crawl has ended. What is polled after its end may panic.
    Ended,
}

type Poller = dyn FnMut(&mut Context<'_>) -> Poll<Option<Request>> + Send;

type OnRejected = dyn FnMut(&EndedRequest<'_>) + Send;

/// An empty channel that cannot wake the crawl is polled again after this time.
const POLLED_EVERY: Duration = Duration::from_millis(5);

impl ChannelSource {
    /// Takes requests by a function such as `poll_recv` or `poll_next`: ready with a request, pending until it wakes
    /// the task of its context, or ready with `None` once no more come, after which it is not called again. It is called
    /// on the crawl's thread and must not block.
    ///
    /// After a crawl that ended early the function is called until it is pending, at most a million times, and dropped with
    /// all that it holds, so that senders fail. It cannot be closed before: what is sent between its last call and its
    /// drop, or after a million requests, is lost, without a page and not pending. [`ChannelSource::from`] waits for what
    /// is sent to a receiver of tokio's.
    ///
    /// In a task of tokio, tokio's own channels and timers are pending after 128 operations until the task yields, and wake
    /// no task before: a crawl whose turns such a task takes ([`Crawler::turn`](crate::Crawler::turn), `run` or
    /// `next_result` inside an async function) would sleep for ever and lose what is left at its end. With the feature
    /// `tokio` the function is polled outside of that budget. [`Crawler::spawn`](crate::Crawler::spawn) has its own thread,
    /// and needs neither.
    pub fn new(
        poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Request>> + Send + 'static,
    ) -> Self {
        ChannelSource::of(Receives::Polled(Box::new(poll)))
    }

    fn of(receiver: Receives) -> Self {
        ChannelSource {
            receiver,
            at_once: AT_ONCE,
            on_rejected: None,
            task: None,
        }
    }

    /// Most requests of the channel in the crawl at once, from leaving it to their end: 10 000 by default, 1 at least. They
    /// should cover far more hosts, or scopes, than are busy at once, since requests of one scope wait for each other.
    #[must_use]
    pub fn at_once(mut self, requests: usize) -> Self {
        self.at_once = requests;
        self
    }

    /// Calls this function with each request that can never be sent, such as one with an invalid URL, by its tag and
    /// [`meta`](Request::meta): it has no page and is not pending. Without a function it is logged and counted
    /// ([`Stats::seeds_bad`](crate::Stats::seeds_bad)) alone.
    #[must_use]
    pub fn on_rejected(mut self, rejected: impl FnMut(&EndedRequest<'_>) + Send + 'static) -> Self {
        self.on_rejected = Some(Box::new(rejected));
        self
    }

    fn receive(&mut self, context: &mut Context<'_>) -> SourcePoll {
        let polled = match &mut self.receiver {
            Receives::Polled(poll) => outside_budget(poll, context),
            #[cfg(feature = "tokio")]
            Receives::Tokio(receiver) => {
                outside_budget(&mut |context| receiver.poll_recv(context), context)
            }
            Receives::Std(receiver) => match receiver.try_recv() {
                Ok(request) => Poll::Ready(Some(request)),
                Err(TryRecvError::Disconnected) => Poll::Ready(None),
                Err(TryRecvError::Empty) => return SourcePoll::Later(POLLED_EVERY),
            },
            Receives::Ended => Poll::Ready(None),
        };
        match polled {
            Poll::Ready(Some(request)) => SourcePoll::Request(request),
            Poll::Ready(None) => {
                self.receiver = Receives::Ended;
                SourcePoll::Finished
            }
            Poll::Pending => SourcePoll::Nothing,
        }
    }
}

/// Polls a function outside of the budget that tokio gives its task: the task does not yield during a turn, so what
/// yields to it is never woken.
fn outside_budget(
    poll: &mut (impl FnMut(&mut Context<'_>) -> Poll<Option<Request>> + ?Sized),
    context: &mut Context<'_>,
) -> Poll<Option<Request>> {
    #[cfg(feature = "tokio")]
    {
        let polled = std::future::poll_fn(poll);
        std::pin::pin!(tokio::task::coop::unconstrained(polled)).poll(context)
    }
    #[cfg(not(feature = "tokio"))]
    poll(context)
}

/// A channel of the standard library cannot wake the crawl: while it is empty it is polled every 5 ms, and a request
/// waits so long at most. What is sent in the moment in which a stopped crawl drops the receiver is lost.
impl From<Receiver<Request>> for ChannelSource {
    fn from(receiver: Receiver<Request>) -> Self {
        ChannelSource::of(Receives::Std(receiver))
    }
}

/// Needs the feature `tokio`. The receiver is closed before it is emptied, so that nothing is lost of what was sent, also in
/// places that were reserved before, if they are used within a second.
#[cfg(feature = "tokio")]
impl From<tokio::sync::mpsc::Receiver<Request>> for ChannelSource {
    fn from(receiver: tokio::sync::mpsc::Receiver<Request>) -> Self {
        ChannelSource::of(Receives::Tokio(receiver))
    }
}

impl RequestSource for ChannelSource {
    fn next(&mut self, wake: &Wake) -> Result<SourcePoll, SourceError> {
        let new = || Waker::from(Arc::new(Crawl(wake.clone())));
        let task = self.task.get_or_insert_with(new).clone();
        Ok(self.receive(&mut Context::from_waker(&task)))
    }

    /// The sender learns of the end of a request by its page. One that is rejected has none.
    fn ended(&mut self, ended: &EndedRequest<'_>) {
        if let (RequestEnd::Rejected(_), Some(rejected)) = (ended.end, &mut self.on_rejected) {
            rejected(ended);
        }
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn keeps_requests(&self) -> bool {
        false
    }

    /// Empties the channel.
    fn finish(&mut self) -> Vec<Request> {
        #[cfg(feature = "tokio")]
        if let Receives::Tokio(receiver) = &mut self.receiver {
            let rest = emptied(receiver);
            self.receiver = Receives::Ended;
            return rest;
        }
        let mut rest = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        // It cannot be closed: while a sender sends without end, the crawl still ends.
        while rest.len() < REST_MAX
            && let SourcePoll::Request(request) = self.receive(&mut context)
        {
            rest.push(request);
        }
        // The source lives as long as the crawler; senders that wait for room must fail now.
        self.receiver = Receives::Ended;
        rest
    }
}

/// Closes a channel, and takes what is in it. After the close no place is given to senders; those that were given before
/// may still be used, by another thread in the midst of a send, and are waited for.
#[cfg(feature = "tokio")]
fn emptied(receiver: &mut tokio::sync::mpsc::Receiver<Request>) -> Vec<Request> {
    use tokio::sync::mpsc::error::TryRecvError;

    receiver.close();
    let mut rest = Vec::new();
    let mut waits = 0;
    loop {
        match receiver.try_recv() {
            Ok(request) => rest.push(request),
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) if waits == RESERVED_WAITS_MAX => break,
            Err(TryRecvError::Empty) => {
                waits += 1;
                std::thread::sleep(RESERVED_WAIT);
            }
        }
    }
    rest
}

/// A reserved place is used in microseconds, unless its thread has no processor, or its task is that of the crawl or
/// waits for something else: then the crawl must end nevertheless.
#[cfg(feature = "tokio")]
const RESERVED_WAITS_MAX: u32 = 1000;

/// How long one wait is.
#[cfg(feature = "tokio")]
const RESERVED_WAIT: Duration = Duration::from_millis(1);

/// Most requests that a channel which cannot be closed gives back, in a second or so: more than a bounded one holds.
const REST_MAX: usize = 1_000_000;

impl fmt::Debug for ChannelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelSource").finish_non_exhaustive()
    }
}

/// The task that a channel wakes.
struct Crawl(Wake);

impl std::task::Wake for Crawl {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TrySendError, sync_channel};
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::base::shared::Shared;
    use crate::crawl::core::tests::trial::{SinkRecord, calm, crawl_from, finish, run_for};
    use crate::crawl::crawler::Crawler;
    use crate::crawl::finish::FinishReason;
    use crate::io::Io;
    use crate::io::sim::Sim;

    fn get(number: usize) -> Request {
        Request::get(format!("http://10.0.0.1/{number}")).tag(number as u64)
    }

    /// A queue that is polled, and the task that it wakes.
    #[derive(Clone, Default)]
    struct Queue(Arc<Mutex<(Vec<Request>, Option<Waker>)>>);

    impl Queue {
        fn push(&self, request: Request) {
            let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            queue.0.push(request);
            if let Some(task) = queue.1.take() {
                task.wake();
            }
        }

        fn source(&self) -> ChannelSource {
            let queue = Arc::clone(&self.0);
            ChannelSource::new(move |context| {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                match queue.0.pop() {
                    Some(request) => Poll::Ready(Some(request)),
                    None => {
                        queue.1 = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            })
        }
    }

    /// A crawl with a source; each answer takes `think`, and two requests are in flight at most.
    fn crawl_of(
        source: impl RequestSource + 'static,
        think: Duration,
    ) -> (Crawler<Sim>, SinkRecord) {
        crawl_from(Some(Box::new(source)), calm(think), 1, |config, _| {
            config.throttle.default.concurrency = 2;
        })
    }

    #[test]
    fn a_request_that_is_sent_to_a_sleeping_crawl_is_released_at_once() {
        let queue = Queue::default();
        let (mut crawler, record) = crawl_of(queue.source(), Duration::from_millis(10));
        run_for(&mut crawler, Duration::from_secs(3600));
        queue.push(get(1));
        let before = crawler.io().now();
        run_for(&mut crawler, Duration::from_secs(1));
        let pages = record.pages.borrow();
        assert_eq!(pages.len(), 1);
        let late = pages[0].timings.started.saturating_since(before);
        assert!(late < Duration::from_millis(2), "{late:?}");
    }

    #[test]
    fn a_request_leaves_its_channel_when_there_is_room_for_it() {
        const AT_ONCE: usize = 7;
        let (sender, receiver) = sync_channel(20);
        let source = ChannelSource::from(receiver).at_once(AT_ONCE);
        let (mut crawler, record) = crawl_of(source, Duration::from_millis(10));
        let mut sent = 0;
        while sent < 200 {
            while sent < 200 && sender.try_send(get(sent)).is_ok() {
                sent += 1;
            }
            let ended = record.pages.borrow().len();
            assert!(sent <= 20 + AT_ONCE + ended, "{sent} {ended}");
            run_for(&mut crawler, Duration::from_millis(20));
            let taken = crawler.progress().in_flight + crawler.progress().queued;
            assert_eq!(taken, AT_ONCE, "they fill their room");
        }
        drop(sender);
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert_eq!(record.pages.borrow().len(), 200);
    }

    #[test]
    fn what_a_channel_still_held_and_what_was_not_fetched_is_pending() {
        let (sender, receiver) = sync_channel(100);
        for number in 0..50 {
            sender.try_send(get(number)).expect("there is room");
        }
        let source = ChannelSource::from(receiver).at_once(20);
        let (mut crawler, record) = crawl_of(source, Duration::from_secs(1));
        run_for(&mut crawler, Duration::from_millis(2500));
        crawler.stopper().stop_now();
        assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
        let pages = record.pages.borrow();
        let pending = crawler.take_pending().map(|pending| pending.request.tag);
        let mut all: Vec<u64> = pages.iter().map(|page| page.tag).chain(pending).collect();
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<u64>>());
        assert!(!pages.is_empty() && pages.len() < 20);
        drop(crawler);
        assert!(sender.try_send(get(50)).is_err(), "the receiver is dropped");
    }

    #[test]
    fn senders_fail_after_a_stop_while_the_crawler_is_kept() {
        let polled = |receiver: Receiver<Request>| {
            ChannelSource::new(move |_| match receiver.try_recv() {
                Ok(request) => Poll::Ready(Some(request)),
                Err(TryRecvError::Disconnected) => Poll::Ready(None),
                Err(TryRecvError::Empty) => Poll::Pending,
            })
        };
        for source in [polled, ChannelSource::from] {
            let (sender, receiver) = sync_channel(10);
            for number in 0..5 {
                sender.try_send(get(number)).expect("there is room");
            }
            let source = source(receiver).at_once(2);
            let (mut crawler, record) = crawl_of(source, Duration::from_secs(1));
            run_for(&mut crawler, Duration::from_millis(500));
            crawler.stopper().stop_now();
            assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
            let sent = sender.try_send(get(5));
            assert!(matches!(sent, Err(TrySendError::Disconnected(_))));
            let pending = crawler.take_pending().count();
            assert_eq!(record.pages.borrow().len() + pending, 5);
        }
    }

    /// As of `futures::stream::unfold`.
    #[test]
    fn a_function_is_not_polled_after_its_end() {
        let mut left = vec![get(2), get(1)];
        let mut has_ended = false;
        let source = ChannelSource::new(move |_| {
            assert!(!has_ended, "polled after its end");
            let next = left.pop();
            has_ended = next.is_none();
            Poll::Ready(next)
        });
        let (mut crawler, record) = crawl_of(source, Duration::from_millis(10));
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert_eq!(record.pages.borrow().len(), 2);
        assert_eq!(crawler.take_pending().count(), 0);
    }

    #[test]
    fn a_request_that_can_never_be_sent_is_reported() {
        let (sender, receiver) = sync_channel(100);
        let rejected = Shared::<Vec<(u64, String)>>::default();
        let reported = rejected.clone();
        let source = ChannelSource::from(receiver).on_rejected(move |ended| {
            if let RequestEnd::Rejected(why) = ended.end {
                let why = why.code().into_owned();
                reported.borrow_mut().push((ended.tag, why));
            }
        });
        let invalid = Request::get("no URL").tag(7);
        for request in [get(1), invalid, get(2)] {
            sender.try_send(request).expect("there is room");
        }
        drop(sender);
        let (mut crawler, record) = crawl_of(source, Duration::from_millis(10));
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert_eq!(record.pages.borrow().len(), 2);
        let rejected = rejected.borrow();
        assert_eq!(rejected.len(), 1);
        assert_eq!(rejected[0].0, 7);
        assert!(rejected[0].1.starts_with("url"), "{rejected:?}");
    }

    /// After 128 operations tokio's channels are pending until the task yields, which it does not.
    #[cfg(feature = "tokio")]
    #[test]
    fn a_task_of_tokio_takes_more_requests_than_its_budget() {
        use tokio::sync::mpsc;

        let check = |source: fn(mpsc::Receiver<Request>) -> ChannelSource, at_once, is_stopped| {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let crawl = async {
                let (sender, receiver) = mpsc::channel(1000);
                for number in 0..1000 {
                    sender.try_send(get(number)).expect("there is room");
                }
                let source = source(receiver).at_once(at_once);
                let (mut crawler, record) = crawl_of(source, Duration::from_millis(1));
                if is_stopped {
                    run_for(&mut crawler, Duration::from_millis(10));
                    crawler.stopper().stop_now();
                } else {
                    drop(sender);
                }
                // The budget is that of one poll of the task.
                finish(&mut crawler);
                let pages = record.pages.borrow().len();
                pages + crawler.take_pending().count()
            };
            let count = runtime.expect("a runtime").block_on(crawl);
            assert_eq!(count, 1000, "{at_once} {is_stopped}");
        };
        let polled = |mut receiver: mpsc::Receiver<Request>| {
            ChannelSource::new(move |context| receiver.poll_recv(context))
        };
        for is_stopped in [false, true] {
            check(polled, 10, is_stopped);
            check(ChannelSource::from, 10, is_stopped);
            check(ChannelSource::from, 10_000, is_stopped);
        }
    }

    /// As fast producers do.
    #[cfg(feature = "tokio")]
    #[test]
    fn a_receiver_of_tokio_is_closed_before_it_is_emptied() {
        use tokio::sync::mpsc;

        let (sender, receiver) = mpsc::channel(4);
        let mut source = ChannelSource::from(receiver);
        for number in 0..4 {
            sender.try_send(get(number)).expect("there is room");
        }
        assert_eq!(source.finish().len(), 4);
        assert!(sender.is_closed());
    }

    /// As of a thread in the midst of a send.
    #[cfg(feature = "tokio")]
    #[test]
    fn what_is_sent_to_a_place_that_was_reserved_before_the_end_is_pending() {
        use tokio::sync::mpsc;

        let (sender, receiver) = mpsc::channel(4);
        let mut source = ChannelSource::from(receiver);
        sender.try_send(get(0)).expect("there is room");
        let place = sender.clone().try_reserve_owned().expect("there is room");
        let sending = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(sender.closed());
            place.send(get(1));
        });
        let rest: Vec<u64> = source.finish().iter().map(|rest| rest.tag).collect();
        assert_eq!(rest, [0, 1]);
        sending.join().expect("it sends");
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn a_place_that_is_reserved_and_not_used_does_not_keep_a_crawl_from_its_end() {
        use tokio::sync::mpsc;

        let (sender, receiver) = mpsc::channel(4);
        let mut source = ChannelSource::from(receiver);
        let place = sender.try_reserve().expect("there is room");
        assert_eq!(source.finish().len(), 0);
        assert!(sender.is_closed());
        drop(place);
    }

    #[test]
    fn a_source_is_finished_once_after_the_ends_of_its_requests() {
        /// Holds three requests back.
        struct Held {
            given: usize,
            calls: Shared<Vec<&'static str>>,
        }

        impl RequestSource for Held {
            fn next(&mut self, _wake: &Wake) -> Result<SourcePoll, SourceError> {
                self.given += 1;
                Ok(match self.given {
                    1..=5 => SourcePoll::Request(get(self.given)),
                    _ => SourcePoll::Nothing,
                })
            }

            fn ended(&mut self, _ended: &EndedRequest<'_>) {
                self.calls.borrow_mut().push("ended");
            }

            fn finish(&mut self) -> Vec<Request> {
                self.calls.borrow_mut().push("finish");
                (6..9).map(get).collect()
            }
        }

        let calls = Shared::default();
        let held = Held {
            given: 0,
            calls: calls.clone(),
        };
        let (mut crawler, _record) = crawl_of(held, Duration::from_secs(1));
        run_for(&mut crawler, Duration::from_millis(1500));
        crawler.stopper().stop_now();
        assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
        let pending = crawler.take_pending().map(|pending| pending.request.tag);
        // A source that keeps its requests was notified of their ends.
        assert_eq!(pending.collect::<Vec<u64>>(), [6, 7, 8]);
        drop(crawler);
        let expected = ["ended", "ended", "ended", "ended", "ended", "finish"];
        assert_eq!(*calls.borrow(), expected);
    }
}
