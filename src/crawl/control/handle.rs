//! Thread-safe control handle of a crawl: submits requests, changes settings, stops it, reads
//! snapshots.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use log::LevelFilter;
use serde_json::{Map, Value};

use crate::crawl::config::{Config, SettingValue};
use crate::crawl::control::error::{ControlError, RefusedSetting, ReloadError, SubmitError};
use crate::crawl::control::shared::{Command, Shared};
use crate::crawl::control::submissions::{Limit, RoomWait, Submitted, Waiting};
use crate::crawl::overrides::{check_limit, refused};
use crate::crawl::stats::Snapshot;
use crate::crawl::work::admission::job_of;
use crate::frontier::HOST_PRIORITY_MAX;
use crate::frontier::job::Job;
use crate::frontier::request::Request;
use crate::io::Waker;
use crate::throttle::settings::ScopePatch;
use crate::throttle::signal::Feedback;

/// Submits requests to a crawl and controls it, from any thread.
///
/// While a handle exists the crawl does not end for lack of work: it sleeps, and each call here wakes
/// it. Drop the last handle once no more requests come. A sink, a scope map or a strategy that owns
/// one prevents the crawl from finishing: give those a [`Stopper`], or drop it before.
///
/// # Every number ends once
///
/// [`Handle::submit`] and [`Handle::try_submit`] give each request a number, that of its first
/// attempt. The page of that attempt has it as [`Page::id`](crate::Page::id), and every page that
/// descends from it by retries and redirects as [`Page::root`](crate::Page::root). Whatever happens,
/// each number ends in one of two ways, once:
///
/// - by a page that is [final](crate::Page::is_final): what was fetched, or a failure. Here belong
///   `cancelled.asked` ([`Handle::cancel`], [`Handle::cancel_scope`]), `cancelled.stopped` (it was
///   in flight when the grace time ran out, or when the sink failed), and, with the code of the
///   filter, `filtered` for a duplicate or an excluded URL. Nothing was sent if
///   [`Timings::sent`](crate::Timings::sent) is `None`.
/// - by [`Crawler::take_pending`](crate::Crawler::take_pending), after a crawl that ended early: it
///   was not sent, or was to be retried, and has no final page.
///
/// ```
/// use argiope::{Config, Crawler, FinishReason, Page, Request};
///
/// let mut crawler = Crawler::builder(Config::default().with("ALLOW_NET", "loopback")?)
///     .sink(|page: Page| println!("{}: {:?}", page.root, page.status))
///     .build()?;
/// let handle = crawler.handle();
/// let crawl = std::thread::spawn(move || crawler.run());
/// let id = handle.submit(Request::get("http://127.0.0.1:9/").tag(7))?;
/// handle.cancel(id)?;
/// drop(handle);
/// assert_eq!(crawl.join().unwrap(), FinishReason::Finished);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Backpressure
///
/// Handles submit at most so many requests beyond those that are being fetched as [`Builder::ahead`] says, 10 000 by
/// default, and at most 4096 that the crawl has not admitted. From there on:
///
/// | call | does |
/// |---|---|
/// | [`Handle::submit`] | waits; on the thread that takes the crawl's turns it would wait for itself, so it does as [`Handle::submit_now`], and on the thread that built the crawler accepts the request until the first turn |
/// | [`Handle::submit_async`] | is pending |
/// | [`Handle::try_submit`] | returns [`SubmitError::Full`] |
/// | [`Handle::submit_now`] | accepts the request, unless 4096 are not admitted; then [`SubmitError::Full`] |
/// | [`Handle::submit_seed`] | accepts the seed, and waits while 4096 are not admitted: `FRONTIER_MAX` bounds seeds, and with a state those beyond `FRONTIER_MEMORY` wait on disk |
/// | [`Crawler::submit`](crate::Crawler::submit) | accepts the request |
///
/// The thread or task that takes the pages must never wait for room: while pages are untaken nothing is sent, so there
/// would never be room. What a page leads to is submitted by [`Handle::submit_now`], or, where pages are pulled, by
/// [`Crawler::submit`](crate::Crawler::submit). A crawl that is [paused](Handle::pause) makes no room either: a submitter
/// that waits cannot resume it.
///
/// Waiting submitters are woken once there is room for 64 requests, or for a sixteenth of `ahead` if that is less; of less
/// room, within a second. As many are woken as there is room for, those first that have waited longest.
///
/// Once a crawl ends (all is done, it was stopped, or a limit was reached), all of these return [`SubmitError::Over`] at
/// once, in waiting submitters too; only the owner's [`Crawler::submit`](crate::Crawler::submit) does so when it is over.
///
/// A sink that submits by [`Handle::submit_now`] finds no room while 4096 requests are not admitted, of which a turn admits
/// 64. One that finds many in a page adds them by [`Reply::links_later`](crate::Reply::links_later).
///
/// # Credentials
///
/// Credentials among `DEFAULT_REQUEST_HEADERS`, and `HTTP_USER`, are for the origins that the program names. A submitted
/// request names its origin, for this crawl and those that continue it, unless its [`Request::depth`] is above 0 or it
/// has [`Request::dont_send_credentials`]. A link that was submitted with neither would get the credentials, whatever
/// host the page chose.
///
/// [`Builder::ahead`]: crate::Builder::ahead
#[derive(Debug)]
pub struct Handle {
    stopper: Stopper,
}

/// Stops a crawl, from any thread or a signal handler. It does not keep the crawl running.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
    waker: Waker,
}

impl Handle {
    /// Makes a handle and counts it: the crawl does not end while the count is above 0.
    pub(in crate::crawl) fn of(stopper: Stopper) -> Self {
        stopper.shared.handles.fetch_add(1, Ordering::SeqCst);
        Handle { stopper }
    }

    /// Submits a request; waits while the crawl has no room, so that memory stays bounded and a producer stays a little
    /// ahead of the crawl: see [Backpressure](Handle#backpressure). Returns its number: see
    /// [the type's page](Handle#every-number-ends-once).
    ///
    /// On the thread that took the crawl's last turn, as in a sink, it never waits, but does as
    /// [`Handle::submit_now`]; before the first turn the thread that built the crawler, which may be the one to take it,
    /// submits without bound. Not for async tasks, where [`Handle::submit_async`] waits without blocking its thread.
    ///
    /// # Errors
    /// [`SubmitError::Rejected`] if it can never be sent, [`SubmitError::Over`] once the crawl
    /// ends; [`SubmitError::Full`] only where it does not wait.
    pub fn submit(&self, request: Request) -> Result<u64, SubmitError> {
        let shared = &self.stopper.shared;
        if let Some(limit) = shared.limit_of_driver() {
            return self.submit_within(request, limit);
        }
        let job = match job_of(&request, &shared.config) {
            Ok(job) => job,
            Err(why) => {
                let request = Box::new(request);
                return Err(SubmitError::Rejected { request, why });
            }
        };
        let submitted = shared.submissions.when_there_is_room(Limit::Ahead);
        if submitted.is_closed() {
            return Err(SubmitError::Over(Box::new(request)));
        }
        Ok(self.add(submitted, job))
    }

    /// Submits a request; the future is ready once the crawl has room for it, and returns its number as
    /// [`Handle::submit`] does. Nothing is submitted before it is polled, nor if it is dropped before it
    /// is ready. It needs no particular runtime.
    ///
    /// # Errors
    /// As [`Handle::submit`]; never [`SubmitError::Full`].
    pub fn submit_async(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<u64, SubmitError>> + Send + use<'_> {
        let mut request = Some(request);
        let mut room = self.room_wait();
        std::future::poll_fn(move |context| self.poll_submit(&mut request, &mut room, context))
    }

    /// A wait for room that has not begun.
    pub(in crate::crawl) fn room_wait(&self) -> RoomWait {
        RoomWait::new(&self.stopper.shared.submissions, Limit::Ahead)
    }

    /// Takes and submits a request once there is room for it.
    pub(in crate::crawl) fn poll_submit(
        &self,
        request: &mut Option<Request>,
        room: &mut RoomWait,
        context: &Context<'_>,
    ) -> Poll<Result<u64, SubmitError>> {
        loop {
            if room.poll_wait(context.waker()) {
                return Poll::Pending;
            }
            let next = request.take().expect("it is not polled after it is ready");
            match self.try_submit(next) {
                // Other submitters took the room in the meantime.
                Err(SubmitError::Full(back)) => *request = Some(*back),
                Ok(id) => {
                    room.end();
                    return Poll::Ready(Ok(id));
                }
                error => {
                    room.give_up();
                    return Poll::Ready(error);
                }
            }
        }
    }

    /// Submits a request if there is room; never waits.
    ///
    /// # Errors
    /// As [`Handle::submit`], and [`SubmitError::Full`] while there is no room:
    /// see [Backpressure](Handle#backpressure).
    pub fn try_submit(&self, request: Request) -> Result<u64, SubmitError> {
        self.submit_within(request, Limit::Ahead)
    }

    /// Submits a request that follows from a page, for what takes the pages: never waits, and may exceed
    /// [`Builder::ahead`](crate::Builder::ahead). What it submits counts, so that producers wait all the longer.
    ///
    /// What follows from a page is to have a [`Request::depth`], that of the page plus 1, or
    /// [`Request::dont_send_credentials`]: see [Credentials](Handle#credentials).
    ///
    /// # Errors
    /// As [`Handle::submit`], and [`SubmitError::Full`] while 4096 requests are not admitted: the queue is full
    /// (`FRONTIER_MAX`), or more are submitted at once than a turn takes.
    pub fn submit_now(&self, request: Request) -> Result<u64, SubmitError> {
        let limit = self.stopper.shared.limit_of_driver();
        self.submit_within(request, limit.unwrap_or(Limit::Inbox))
    }

    fn submit_within(&self, request: Request, limit: Limit) -> Result<u64, SubmitError> {
        let shared = &self.stopper.shared;
        let is_open = |request| match shared.submissions.lock() {
            submitted if submitted.is_closed() => Err(SubmitError::Over(request)),
            submitted if submitted.is_full(limit) => Err(SubmitError::Full(request)),
            submitted => Ok((submitted, request)),
        };
        // Checked first, since a full inbox refuses many times in a row.
        let (unlocked, request) = is_open(Box::new(request))?;
        drop(unlocked);
        let job = match job_of(&request, &shared.config) {
            Ok(job) => job,
            Err(why) => return Err(SubmitError::Rejected { request, why }),
        };
        let (submitted, _) = is_open(request)?;
        Ok(self.add(submitted, job))
    }

    /// Numbers a request and adds it.
    fn add(&self, mut submitted: MutexGuard<'_, Submitted>, mut job: Job) -> u64 {
        job.id = self.stopper.shared.numbers.next();
        job.awaited = true;
        let id = job.id;
        self.wake_if(submitted.add(Waiting::Numbered(job)));
        id
    }

    /// Submits a seed; waits while the crawl has no room. It gets its number when it is admitted. A seed
    /// that can never be sent, or that a filter leaves out, is counted ([`Stats::seeds_bad`], and
    /// [`Progress::filtered`]). For lists of millions of URLs with possible duplicates:
    /// [`Builder::ahead`](crate::Builder::ahead) does not hold for it.
    ///
    /// # Errors
    /// As [`Handle::submit`].
    ///
    /// [`Stats::seeds_bad`]: crate::Stats::seeds_bad
    /// [`Progress::filtered`]: crate::Progress::filtered
    pub fn submit_seed(&self, request: Request) -> Result<(), SubmitError> {
        self.submit_seed_at(request, 0)
    }

    /// The same for the seed at this position of the list of seeds, from 1: a crawl with a state on disk
    /// records how far the list was taken. Positions must ascend.
    #[doc(hidden)]
    pub fn submit_seed_at(&self, request: Request, position: u64) -> Result<(), SubmitError> {
        let shared = &self.stopper.shared;
        let job = match job_of(&request, &shared.config) {
            Ok(job) => job,
            Err(why) => {
                self.count_bad_seeds(1);
                let request = Box::new(request);
                return Err(SubmitError::Rejected { request, why });
            }
        };
        let limit = shared.limit_of_driver();
        let mut submitted = match limit {
            // It would wait for itself.
            Some(_) => shared.submissions.lock(),
            None => shared.submissions.when_there_is_room(Limit::Inbox),
        };
        if submitted.is_closed() {
            return Err(SubmitError::Over(Box::new(request)));
        }
        if submitted.is_full(limit.unwrap_or(Limit::Inbox)) {
            return Err(SubmitError::Full(Box::new(request)));
        }
        self.wake_if(submitted.add(Waiting::Seed(job, position)));
        Ok(())
    }

    /// The list of seeds has ended: every entry was submitted.
    #[doc(hidden)]
    pub fn end_seeds(&self) {
        // One more than there is room for, at most.
        let mut submitted = self.stopper.shared.submissions.lock();
        if !submitted.is_closed() {
            self.wake_if(submitted.add(Waiting::SeedsEnd));
        }
    }

    /// Cancels the request of this number in any state: waiting, in flight, or to be retried. Its last
    /// page has the failure `cancelled.asked`. A request that has ended, or does not exist, is ignored.
    /// The number is that of its first attempt, also in a later run:
    /// [`QueuedRequest::root`](crate::QueuedRequest::root).
    /// The crawl searches its queues in steps while it goes on; cancels that arrive together share one search. No
    /// request that was cancelled is sent meanwhile.
    ///
    /// # Errors
    /// [`ControlError::Busy`] while 4096 commands wait, [`ControlError::Over`] once nothing more is fetched.
    pub fn cancel(&self, id: u64) -> Result<(), ControlError> {
        self.send(Command::Cancel(id))
    }

    /// Cancels every request that is throttled under this scope, as [`Handle::cancel`] does: those
    /// that have their number by now, from any submitter, and the links found by now. A seed has
    /// none before it is admitted, at the crawl's next turn. A robots.txt is fetched all the same, since
    /// other requests wait for it.
    ///
    /// # Errors
    /// As [`Handle::cancel`].
    pub fn cancel_scope(&self, name: &str) -> Result<(), ControlError> {
        // What is submitted later has a greater number.
        let until = self.stopper.shared.numbers.last();
        self.send(Command::CancelScope(name.to_owned(), until))
    }

    /// Changes the settings of a scope from now on: see [`Crawler::set_scope`]. Changes are applied in
    /// their order: 64 single scopes in a turn, and a pattern or `default` alone.
    ///
    /// # Errors
    /// As [`Handle::cancel`], and [`ControlError::Unsound`].
    ///
    /// [`Crawler::set_scope`]: crate::Crawler::set_scope
    pub fn set_scope(&self, name: &str, patch: ScopePatch) -> Result<(), ControlError> {
        let name = self.stopper.shared.config.check_scope(name, &patch)?;
        self.send(Command::SetScope(name, Box::new(patch)))
    }

    /// Withdraws all that [`Handle::set_scope`], [`Crawler::set_scope`] or an operator has changed of a scope: what is
    /// configured for it holds again.
    ///
    /// # Errors
    /// As [`Handle::set_scope`].
    ///
    /// [`Crawler::set_scope`]: crate::Crawler::set_scope
    pub fn withdraw_scope(&self, name: &str) -> Result<(), ControlError> {
        let name = (self.stopper.shared.config).check_scope(name, &ScopePatch::default())?;
        self.send(Command::WithdrawScope(name))
    }

    /// Changes a limit of the crawl from now on, in later runs, too, until [`Handle::withdraw_limit`]: it holds over the
    /// configuration, also over one that is [reloaded](Handle::reload). These limits can be changed:
    /// `CONCURRENT_REQUESTS`, `BYTES_PER_SECOND_MAX`, `CLOSESPIDER_PAGECOUNT`, `CLOSESPIDER_ERRORCOUNT`,
    /// `CLOSESPIDER_BYTECOUNT`, `CLOSESPIDER_TIMEOUT`, `PAGES_PER_HOST_MAX`, `PAGES_PER_DOMAIN_MAX` and
    /// `BYTES_PER_DOMAIN_MAX`, the last three only if the run began with a value above 0, since nothing is counted
    /// otherwise.
    ///
    /// While more requests are in flight than may be, none departs. A crawl that has reached a limit by then ends.
    ///
    /// # Errors
    /// As [`Handle::cancel`], and [`ControlError::Unsound`]: another setting, or a value that it does not accept.
    pub fn set_limit(
        &self,
        name: &str,
        value: impl Into<SettingValue>,
    ) -> Result<(), ControlError> {
        self.send_limit(name, value.into().into())
    }

    /// Withdraws what [`Handle::set_limit`] or an operator has set: the configured value holds again.
    ///
    /// # Errors
    /// As [`Handle::set_limit`].
    pub fn withdraw_limit(&self, name: &str) -> Result<(), ControlError> {
        self.send_limit(name, Value::Null)
    }

    fn send_limit(&self, name: &str, value: Value) -> Result<(), ControlError> {
        let start = &self.stopper.shared.config;
        let (name, value) = check_limit(start, name, &value).map_err(|refused| refused.error)?;
        let limits = Map::from_iter([(name.to_owned(), value)]);
        self.send(Command::SetLimits(limits))
    }

    /// Replaces the configuration from now on; a later run has the one that it is given. Settings that
    /// [`Setting::is_live`] names take effect at once, for requests and links that are not decided yet; all others must
    /// be as the crawl began. Settings of scopes ([`Handle::set_scope`]) and limits ([`Handle::set_limit`]) that were
    /// changed hold over the new configuration.
    ///
    /// # Errors
    /// Nothing is applied: the configuration is invalid, has settings that need another run, or the crawl takes no
    /// commands.
    ///
    /// ```
    /// use argiope::{Config, Crawler, Page, ReloadError};
    ///
    /// let crawler = Crawler::builder(Config::default()).sink(|_: Page| {}).build()?;
    /// let handle = crawler.handle();
    /// handle.reload(Config::default().with("DOWNLOAD_DELAY", "5s")?)?;
    /// let refused = handle.reload(Config::default().with("WARC", false)?);
    /// assert!(matches!(refused, Err(ReloadError::NeedsRun(settings)) if settings[0].name == "WARC"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Setting::is_live`]: crate::settings::Setting::is_live
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let config = config.finish()?;
        let refused = refused(&self.stopper.shared.config, &config).into_iter();
        let refused: Vec<RefusedSetting> = refused.map(RefusedSetting::of).collect();
        if !refused.is_empty() {
            return Err(ReloadError::NeedsRun(refused));
        }
        self.send(Command::Reload(Box::new(config)))?;
        Ok(())
    }

    /// Forgets what was learned of a scope, of all that a pattern such as `*.example.com` matches, or of all
    /// (`default`): the limits that refusals have shown, and AutoThrottle's delays. Holds, minimum gaps and quotas
    /// stay. What is kept of scopes that are not in use is forgotten as well, in later runs, too; a crawl keeps such
    /// orders of at most 1000 patterns, and refuses others with a warning.
    ///
    /// # Errors
    /// As [`Handle::set_scope`].
    pub fn forget(&self, name: &str) -> Result<(), ControlError> {
        let config = &self.stopper.shared.config;
        let name = config.check_scope(name, &ScopePatch::default())?;
        self.send(Command::Forget(name))
    }

    /// Excludes a host (`example.com`), a domain with all below it (`*.example.com`), a network (`192.0.2.0/24`) or a
    /// pattern of URLs (`re:PATTERN`) from now on, and in later runs of a crawl with a state. Nothing more is sent to
    /// it, except for what is in flight; queued requests end as `filtered.excluded`, or `filtered.excluded_address` in
    /// a network, when their turn comes. At most 1000, 50 of them patterns; more are logged and left out.
    ///
    /// # Errors
    /// As [`Handle::cancel`], and [`ControlError::Invalid`] if it is none of these.
    pub fn exclude(&self, name: &str) -> Result<(), ControlError> {
        self.change_exclusion(name, true)
    }

    /// Withdraws an exclusion by [`Handle::exclude`] or by an operator.
    ///
    /// # Errors
    /// As [`Handle::exclude`].
    pub fn include(&self, name: &str) -> Result<(), ControlError> {
        self.change_exclusion(name, false)
    }

    fn change_exclusion(&self, name: &str, is_excluded: bool) -> Result<(), ControlError> {
        let exclusion = Config::check_exclusion(name).map_err(ControlError::Invalid)?;
        self.send(Command::Exclude(Box::new(exclusion), is_excluded))
    }

    /// Adds this, from -1000 to 1000, to the priorities of all requests to a host from now on, and in later runs of a
    /// crawl with a state; 0 ends that. At most 1000 hosts; more are logged and left out.
    ///
    /// # Errors
    /// As [`Handle::cancel`], and [`ControlError::Invalid`] for a name that is no host, or another priority.
    pub fn set_host_priority(&self, host: &str, priority: i32) -> Result<(), ControlError> {
        let host = Config::check_host(host).map_err(ControlError::Invalid)?;
        if !(-HOST_PRIORITY_MAX..=HOST_PRIORITY_MAX).contains(&priority) {
            let message = format!(
                "a priority is from -{HOST_PRIORITY_MAX} to {HOST_PRIORITY_MAX}, not {priority}"
            );
            return Err(ControlError::Invalid(message));
        }
        self.send(Command::HostPriority(host, priority))
    }

    /// Sets the maximum level of the process's log, as [`log::set_max_level`] does at once; here it is an order, which has
    /// its line in `orders.jsonl`.
    ///
    /// # Errors
    /// As [`Handle::cancel`].
    pub fn set_log_level(&self, level: LevelFilter) -> Result<(), ControlError> {
        self.send(Command::LogLevel(level))
    }

    /// Applies knowledge of a scope from another source than its replies: see [`Crawler::feedback`].
    ///
    /// # Errors
    /// As [`Handle::cancel`].
    ///
    /// [`Crawler::feedback`]: crate::Crawler::feedback
    pub fn feedback(&self, feedback: Feedback) -> Result<(), ControlError> {
        self.send(Command::Feedback(Box::new(feedback)))
    }

    /// Closes the output files, those that have something, and begins others with what comes next:
    /// [`DiskSink::rotate`](crate::DiskSink::rotate). In a crawl with a state they get their final names after the
    /// next commit.
    ///
    /// # Errors
    /// As [`Handle::cancel`].
    pub fn rotate(&self) -> Result<(), ControlError> {
        self.send(Command::Rotate)
    }

    /// Stops departures until [`Handle::resume`]. Requests that have departed run to their end, those
    /// about to depart return to their queue, and the clocks of delays, holds and quotas keep running. It is
    /// also over with the last handle.
    pub fn pause(&self) {
        self.stopper.shared.paused.store(true, Ordering::SeqCst);
        self.stopper.waker.wake();
    }

    /// Resumes departures at the paces of their scopes, without making up for the pause; also if an operator has
    /// paused the crawl ([`Crawler::serve`]).
    ///
    /// [`Crawler::serve`]: crate::Crawler::serve
    pub fn resume(&self) {
        self.stopper.shared.resumed.store(true, Ordering::SeqCst);
        self.end_pause();
    }

    fn end_pause(&self) {
        self.stopper.shared.paused.store(false, Ordering::SeqCst);
        self.stopper.waker.wake();
    }

    /// Returns a snapshot: wakes the crawl and waits for the end of its present turn, a millisecond or so.
    /// If no turn ends within 100 ms (none is taken, or a sink is slow, or this is the crawl's own thread,
    /// where [`Crawler::stats`](crate::Crawler::stats) has more), returns the last snapshot, which is taken
    /// every second.
    pub fn stats(&self) -> Snapshot {
        self.stopper.shared.ask(|| self.stopper.waker.wake())
    }

    /// Ends the crawl gracefully, as [`Stopper::shutdown`].
    pub fn shutdown(&self, grace: Duration) {
        self.stopper.shutdown(grace);
    }

    /// Counts invalid seed lines, for the statistics.
    pub fn count_bad_seeds(&self, count: u64) {
        let shared = &self.stopper.shared;
        shared.bad_seeds.fetch_add(count, Ordering::SeqCst);
    }

    /// Stops the crawl, but does not keep it running as a handle does.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    fn send(&self, command: Command) -> Result<(), ControlError> {
        let first = self.stopper.shared.send(command)?;
        self.wake_if(first);
        Ok(())
    }

    /// A crawl that left something in the inbox polls it in its next turn; one that found it empty sleeps.
    fn wake_if(&self, asleep: bool) {
        if asleep {
            self.stopper.waker.wake();
        }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Handle::of(self.stopper.clone())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stopper.shared.handles.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end_pause();
        }
        self.stopper.waker.wake();
    }
}

impl Stopper {
    pub(in crate::crawl) fn of(shared: Arc<Shared>, waker: Waker) -> Self {
        Stopper { shared, waker }
    }

    pub(in crate::crawl) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(in crate::crawl) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Reloads the configuration from the source that [`Crawler::reload_from`] set: what that finds is in the log.
    ///
    /// [`Crawler::reload_from`]: crate::Crawler::reload_from
    pub fn reload(&self) {
        self.shared.reloads.ask();
        self.waker.wake();
    }

    /// Ends the crawl gracefully: requests in flight may finish within the configured grace time
    /// (`STOP_GRACE`).
    pub fn stop(&self) {
        self.shared.stop_within(Shared::CONFIGURED);
        self.waker.wake();
    }

    /// Ends the crawl at once: requests in flight are cancelled. Files stay valid.
    pub fn stop_now(&self) {
        self.shutdown(Duration::ZERO);
    }

    /// Ends the crawl gracefully: nothing more is sent, and requests in flight may finish within `grace`
    /// from when the crawl handles the command; then they are cancelled. A shorter grace may be given
    /// later; a longer one has no effect.
    pub fn shutdown(&self, grace: Duration) {
        let nanos = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        self.shared.stop_within(nanos.min(Shared::CONFIGURED - 1));
        self.waker.wake();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}
