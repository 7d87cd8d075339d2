//! Requests that the crawl pulls from a source: a database, a queue, a file that grows. The source is
//! notified of the end of each.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use serde_json::value::RawValue;

use crate::base::secret::Known;
use crate::base::time::Instant;
use crate::crawl::work::admission::AdmitError;
use crate::fetch::failure::Failure;
use crate::frontier::request::{PageKind, Request};
use crate::io::Waker;
use crate::sink::page::Page;

/// Source of a crawl's requests: polled while there is room for them, and notified of their ends.
///
/// ```
/// use argiope::{Config, Crawler, EndedRequest, FinishReason, Page, Request, RequestSource, SourceError, SourcePoll, Wake};
///
/// /// Rows of a table, each handed out once. Its number is the request's tag.
/// struct Rows {
///     fresh: Vec<(u64, String)>,
///     done: Vec<u64>,
/// }
///
/// impl RequestSource for Rows {
///     fn next(&mut self, _wake: &Wake) -> Result<SourcePoll, SourceError> {
///         Ok(match self.fresh.pop() {
///             Some((row, url)) => SourcePoll::Request(Request::get(url).tag(row)),
///             None => SourcePoll::Finished,
///         })
///     }
///
///     fn ended(&mut self, ended: &EndedRequest<'_>) {
///         match ended.should_requeue() {
///             true => {} // The row stays fresh for the next crawl.
///             false => self.done.push(ended.tag),
///         }
///     }
/// }
///
/// let rows = Rows { fresh: vec![(7, "http://127.0.0.1:9/".to_owned())], done: Vec::new() };
/// let mut crawler = Crawler::builder(Config::default())
///     .source(rows)
///     .sink(|page: Page| println!("{}: {:?}", page.tag, page.status))
///     .build()?;
/// assert_eq!(crawler.run(), FinishReason::Finished);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// All methods are called on the crawl's thread and must not block. Run a blocking client on a separate thread
/// that sends batches through a channel. While the channel is empty the source returns
/// [`SourcePoll::Nothing`], and the thread calls [`Wake::wake`] after the next batch; send it a clone of
/// the [`Wake`] on the first poll. A database in the same process that answers in microseconds may be
/// queried directly.
///
/// In a crawl with a [state](crate::Builder::state) `ended` comes once a commit covers the result, so that
/// a queue can remove the request then. Otherwise a request ends when the sink has taken its page, not when
/// the thread of a sink has written it. If results must be safe before a request is acknowledged, let source and sink send to
/// that thread through one channel: the page arrives first. `tests/strangers/harvest.rs` in the
/// repository does so, with SQLite.
///
/// A channel needs no such type: [`ChannelSource`](crate::ChannelSource).
///
/// Each request ends exactly once: by a final page, which the sink has taken by then; unsent or
/// unfinished, when the crawl is over or dropped; or rejected. A request without an end when the
/// process is killed was never acknowledged, so its queue can hand it out again.
pub trait RequestSource: Send {
    /// The next request, if there is one now. Called again when the crawl has room; after a result
    /// other than a request, when that result allows it.
    ///
    /// # Errors
    /// A permanent failure: the crawl sends nothing more, finishes the requests in flight within
    /// `STOP_GRACE` and ends as `source_failed`. A temporary failure is not an error: return
    /// [`SourcePoll::Later`].
    fn next(&mut self, wake: &Wake) -> Result<SourcePoll, SourceError>;

    /// Called when one of its requests has ended; in a crawl with a state, once that is committed. One whose
    /// result is not committed when the crawl ends is [unfinished](RequestEnd::Unfinished).
    fn ended(&mut self, ended: &EndedRequest<'_>);

    /// Most of its requests in the crawl at once, from their poll to their end: 10 000 by default, 1
    /// at least. They should cover far more hosts, or scopes, than are busy at once, since requests of
    /// one scope wait for each other. `FRONTIER_MAX` bounds them too. In a crawl with a state, those of a source that
    /// [keeps](RequestSource::keeps_requests) them end with a commit, so it should be more than are fetched in a
    /// `STATE_SYNC`.
    fn at_once(&self) -> usize {
        AT_ONCE
    }

    /// Whether the source keeps its requests until they have ended, as a table does: those that the crawl leaves unsent
    /// or unfinished are then its own affair. By default it does. A source that has nowhere to put them, such as a channel,
    /// returns false: then they are among [`Crawler::take_pending`](crate::Crawler::take_pending), as those of a handle
    /// are, and `ended` is called all the same. The answer must always be the same.
    fn keeps_requests(&self) -> bool {
        true
    }

    /// Called once, when the crawl is over or dropped, after the ends of all requests, and also after
    /// [`SourcePoll::Finished`] or an error. Writes what the source has not written yet, and returns the requests that it
    /// took from elsewhere and the crawl did not get, such as the rest of a batch: they are among
    /// [`Crawler::take_pending`](crate::Crawler::take_pending), after those of the crawl. A crawl with a state does
    /// not record them: submit them to the run that continues it.
    fn finish(&mut self) -> Vec<Request> {
        Vec::new()
    }
}

/// Error that ends a source.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Result of polling a source.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are requests, and none is kept"
)]
pub enum SourcePoll {
    /// A request. It is a seed: it keeps its depth, and its host counts as a seed's.
    Request(Request),
    /// None now. Polled again after [`Wake::wake`]; until then the crawl sleeps if it has no other
    /// work.
    Nothing,
    /// None for this long, at least a millisecond, or until [`Wake::wake`].
    Later(Duration),
    /// The source is exhausted. The crawl ends once all work is done, unless a [`Handle`](crate::Handle) exists.
    Finished,
}

/// Has the crawl poll its source again, from any thread: within a millisecond, if the crawl has room.
#[derive(Clone)]
pub struct Wake {
    asked: Arc<AtomicBool>,
    waker: Waker,
}

/// One of a source's requests, and how it ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EndedRequest<'a> {
    /// Its number: [`Page::root`] of all its pages. `None` if it was rejected.
    pub id: Option<u64>,
    /// Its [`Request::tag`].
    pub tag: u64,
    /// Its [`Request::meta`], JSON.
    pub meta: Option<&'a str>,
    /// Its end.
    pub end: RequestEnd<'a>,
}

/// End of a source's request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RequestEnd<'a> {
    /// By a final page, which the sink has taken. This includes failed requests, cancelled ones
    /// (`cancelled.stopped`, `cancelled.asked`) and filtered ones (`filtered`).
    Final {
        /// The status, if there was a final head.
        status: Option<u16>,
        /// The failure, if any.
        failure: Option<&'a Failure>,
    },
    /// The crawl ended before the request was sent. It has no page.
    NotBegun,
    /// The crawl ended before a retry of it, or before a redirect's target: it was sent, and has no
    /// final page.
    Unfinished,
    /// It was rejected and never sent. It has no page.
    Rejected(&'a AdmitError),
}

impl EndedRequest<'_> {
    /// Whether another crawl should fetch it: the end of this process ended it, not the web and not a
    /// command. The same as [`Failure::should_requeue`] of its page's failure.
    pub fn should_requeue(&self) -> bool {
        match self.end {
            RequestEnd::NotBegun | RequestEnd::Unfinished => true,
            RequestEnd::Final { failure, .. } => failure.is_some_and(Failure::should_requeue),
            RequestEnd::Rejected(_) => false,
        }
    }
}

impl Wake {
    /// Signals that the source has requests.
    pub fn wake(&self) {
        if !self.asked.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// Default of a source's requests in the crawl at once: enough hosts for a broad crawl, in a few
/// megabytes.
pub(in crate::crawl) const AT_ONCE: usize = 10_000;

/// Least delay between two polls. Without it, a source that is polled again at once would keep the
/// crawl from sleeping.
const LATER_MIN: Duration = Duration::from_millis(1);

/// A source, and its requests that have not ended.
pub(in crate::crawl) struct SourceQueue {
    source: Box<dyn RequestSource>,
    wake: Wake,
    state: State,
    /// Its requests that have not ended.
    given: HashMap<u64, Given, Known>,
    /// In a crawl with a state: ends of which it is notified after a commit.
    uncommitted: Option<Uncommitted>,
    failure: Option<SourceError>,
    /// Requests that it still held at the end.
    returned: Vec<Request>,
}

/// Requests that have ended, until a commit covers their results.
#[derive(Debug, Default)]
struct Uncommitted {
    /// By the commit under way.
    closing: Vec<(Given, Ending)>,
    /// By the next one.
    open: Vec<(Given, Ending)>,
}

/// When the source is polled again.
///
/// ```text
/// Polls ──► Waits ──► Polls        (its time has come, or it was woken)
///   └─────► Finished ──► Closed    (it failed, perhaps; the crawl is over)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// As soon as there is room.
    Polls,
    /// When it is woken, and at this moment, if there is one.
    Waits(Option<Instant>),
    /// Never.
    Finished,
    /// Never, and it was notified of the end of everything.
    Closed,
}

/// A request of a source.
#[derive(Debug)]
struct Given {
    tag: u64,
    meta: Option<Box<RawValue>>,
    /// An attempt of it was sent.
    begun: bool,
    /// Its final page, while that is held open.
    page: Option<Box<Ending>>,
}

/// End of a page, once the sink has taken it.
#[derive(Debug)]
pub(in crate::crawl) struct Ending {
    pub root: u64,
    status: Option<u16>,
    failure: Option<Failure>,
}

impl SourceQueue {
    pub fn new(source: Box<dyn RequestSource>, waker: Waker) -> Self {
        let asked = Arc::default();
        SourceQueue {
            source,
            wake: Wake { asked, waker },
            state: State::Polls,
            given: HashMap::default(),
            uncommitted: None,
            failure: None,
            returned: Vec::new(),
        }
    }

    /// Returns whether the source has no more requests.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished | State::Closed)
    }

    /// Returns the error with which it failed, if it did.
    pub fn failure(&self) -> Option<&SourceError> {
        self.failure.as_ref()
    }

    /// Returns when it is to be polled; `None` while it waits to be woken, or while as many of its requests
    /// as it allows have not ended.
    pub(in crate::crawl) fn next_poll(&self, now: Instant) -> Option<Instant> {
        // A source that keeps no requests does not wait for commits: it has nothing to remove then.
        let uncommitted = self.uncommitted.as_ref();
        let uncommitted = uncommitted.filter(|_| self.source.keeps_requests());
        let uncommitted = uncommitted.map_or(0, |of| of.closing.len() + of.open.len());
        if self.given.len() + uncommitted >= self.source.at_once().max(1) {
            return None;
        }
        match self.state {
            State::Polls => Some(now),
            State::Waits(_) if self.wake.asked.load(Ordering::SeqCst) => Some(now),
            State::Waits(until) => until,
            State::Finished | State::Closed => None,
        }
    }

    /// Polls the source if that is due; returns its next request.
    pub(in crate::crawl) fn poll(&mut self, now: Instant) -> Option<Request> {
        self.next_poll(now).filter(|at| *at <= now)?;
        // Cleared first: a wake from here on may be about more than this poll finds.
        self.wake.asked.store(false, Ordering::SeqCst);
        match self.source.next(&self.wake) {
            Ok(SourcePoll::Request(request)) => {
                self.state = State::Polls;
                return Some(request);
            }
            Ok(SourcePoll::Nothing) => self.state = State::Waits(None),
            Ok(SourcePoll::Later(wait)) => {
                self.state = State::Waits(Some(now + wait.max(LATER_MIN)))
            }
            Ok(SourcePoll::Finished) => self.state = State::Finished,
            Err(error) => {
                self.failure = Some(error);
                self.state = State::Finished;
            }
        }
        None
    }

    /// Called when a request of the source was accepted under this number. Records it until it ends.
    pub(in crate::crawl) fn handle_accepted(&mut self, id: u64, request: &Request) {
        let given = Given {
            tag: request.tag,
            meta: request.meta.clone(),
            begun: false,
            page: None,
        };
        self.given.insert(id, given);
    }

    /// Called when a request of the source was rejected. Notifies the source at once.
    pub(in crate::crawl) fn handle_rejected(&mut self, request: &Request, why: &AdmitError) {
        self.source.ended(&EndedRequest {
            id: None,
            tag: request.tag,
            meta: request.meta_json(),
            end: RequestEnd::Rejected(why),
        });
    }

    /// Called when the first bytes of an attempt depart: if the crawl ends now, its request is
    /// [unfinished](RequestEnd::Unfinished).
    pub fn handle_departure(&mut self, root: u64) {
        if let Some(given) = self.given.get_mut(&root) {
            given.begun = true;
        }
    }

    /// Returns how a page ends a request of the source, if it does. Called before the sink takes the page.
    pub fn end_of(&self, page: &Page) -> Option<Ending> {
        let ends = page.is_final && page.kind != PageKind::Robots;
        (ends && self.given.contains_key(&page.root)).then(|| Ending {
            root: page.root,
            status: page.status,
            failure: page.failure.clone(),
        })
    }

    /// Called when the sink has taken the page of `ending`. Notifies the source; if the page is still held
    /// open, when that is closed.
    pub fn handle_end(&mut self, ending: Ending, is_open: bool) {
        if is_open {
            if let Some(given) = self.given.get_mut(&ending.root) {
                given.page = Some(Box::new(ending));
            }
            return;
        }
        let Some(given) = self.given.remove(&ending.root) else {
            return;
        };
        match &mut self.uncommitted {
            Some(uncommitted) => uncommitted.open.push((given, ending)),
            None => self.source.ended(&given.ended(ending.root, ending.end())),
        }
    }

    /// The crawl has a state: from now on the source is notified of an end once its result is committed.
    pub fn wait_for_commits(&mut self) {
        self.uncommitted = Some(Uncommitted::default());
    }

    /// A commit begins, of all results so far.
    pub fn handle_prepare(&mut self) {
        if let Some(uncommitted) = &mut self.uncommitted {
            uncommitted.closing.append(&mut uncommitted.open);
        }
    }

    /// That commit is durable. Notifies the source of the ends that it covers.
    pub fn handle_commit(&mut self) {
        let uncommitted = self.uncommitted.as_mut();
        let covered = uncommitted.map(|of| std::mem::take(&mut of.closing));
        for (given, ending) in covered.into_iter().flatten() {
            self.source.ended(&given.ended(ending.root, ending.end()));
        }
    }

    /// Called when the last held-open page of this request was closed. Notifies the source if the sink has
    /// taken the final page.
    pub fn handle_closed(&mut self, root: u64) {
        let given = self.given.get_mut(&root);
        if let Some(ending) = given.and_then(|given| given.page.take()) {
            self.handle_end(*ending, false);
        }
    }

    /// Whether the request of this number is the source's and has not ended.
    pub fn has(&self, root: u64) -> bool {
        self.given.contains_key(&root)
    }

    /// Called when the crawl is over. Notifies the source of the end of all its remaining requests, in the
    /// order of their numbers, and takes back what it holds. The requests stay recorded.
    pub fn close(&mut self) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        // Their results are lost.
        let uncommitted = self.uncommitted.take().unwrap_or_default();
        let lost = uncommitted.closing.into_iter().chain(uncommitted.open);
        let lost = lost.map(|(given, ending)| (ending.root, given));
        self.given.extend(lost);
        let mut rest: Vec<(&u64, &Given)> = self.given.iter().collect();
        rest.sort_unstable_by_key(|(id, _)| **id);
        for (id, given) in rest {
            let end = match (&given.page, given.begun) {
                (Some(ending), _) => ending.end(),
                (None, true) => RequestEnd::Unfinished,
                (None, false) => RequestEnd::NotBegun,
            };
            self.source.ended(&given.ended(*id, end));
        }
        self.returned = self.source.finish();
    }

    /// Whether the source keeps its requests until they have ended.
    pub fn keeps_requests(&self) -> bool {
        self.source.keeps_requests()
    }

    /// Takes the requests that the source still held at the end.
    pub fn take_returned(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.returned)
    }
}

/// Dropping a crawl ends it.
impl Drop for SourceQueue {
    fn drop(&mut self) {
        self.close();
    }
}

impl Given {
    fn ended<'a>(&'a self, id: u64, end: RequestEnd<'a>) -> EndedRequest<'a> {
        EndedRequest {
            id: Some(id),
            tag: self.tag,
            meta: self.meta.as_deref().map(RawValue::get),
            end,
        }
    }
}

impl Ending {
    fn end(&self) -> RequestEnd<'_> {
        RequestEnd::Final {
            status: self.status,
            failure: self.failure.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests;
