//! The public crawler type.

pub mod builder;
pub mod url_check;
mod pull;
pub mod threaded;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::Duration;

use crate::admin::format::MetricsFormat;
use crate::base::secret::random;
use crate::base::time::Instant;
use crate::crawl::config::{Config, ConfigError};
use crate::crawl::control::feed::SourceError;
use crate::crawl::control::handle::{Handle, Stopper};
use crate::crawl::control::reload::ReloadAnswer;
use crate::crawl::core::Core;
use crate::crawl::finish::FinishReason;
use crate::crawl::finish::Pending;
use crate::crawl::pace_report::{MOST, PaceReport};
use crate::crawl::set_up::{Admin, Parts, SetUpError};
use crate::crawl::stats::{Progress, Stats};
use crate::crawl::work::admission::AdmitError;
use crate::fetch::resolver;
use crate::frontier::request::Request;
use crate::io::{Io, Kernel};
use crate::sink::WriteError;
use crate::throttle::settings::ScopePatch;
use crate::throttle::signal::Feedback;

/// A crawl: fetches the requests given to it, and passes the results to a sink.
///
/// It is `Send`: it may be built on one thread and run on another, or move between turns. It has no
/// global state: several may run in one process, even on one thread, with alternate turns.
///
/// `I` is what it runs on: the kernel, or the [simulation](crate::sim). A function for both has the bound
/// [`Platform`](crate::Platform).
pub struct Crawler<I: Io = Kernel> {
    pub(super) core: Core<I>,
}

/// Result of one turn of the crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The crawl is not over: make another turn.
    GoesOn,
    /// It is over, for this reason.
    Over(FinishReason),
}

impl<I: Io> fmt::Debug for Crawler<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crawler").finish_non_exhaustive()
    }
}

/// A turn on each platform. It makes a debug build compile the generic code of a crawl with the library; programs
/// share that code and do not compile it again.
#[cfg(debug_assertions)]
#[used]
static TURNS: (TurnOf<Kernel>, TurnOf<crate::io::sim::Sim>) = (Crawler::turn, Crawler::turn);

#[cfg(debug_assertions)]
type TurnOf<I> = fn(&mut Crawler<I>, Option<Duration>) -> Turn;

impl Crawler<Kernel> {
    /// A crawler on the kernel interface that the configuration names.
    #[doc(hidden)]
    pub fn new(config: Config, mut parts: Parts) -> Result<Self, SetUpError> {
        parts.entropy = Some(random());
        let io = Kernel::open(config.back_end, config.io.clone())?;
        let mut resolver = resolver::read_settings();
        if !config.dns_servers.is_empty() {
            resolver.servers.clone_from(&config.dns_servers);
        }
        Crawler::on(io, config, resolver, parts)
    }

    /// A descriptor for a host loop: readable when there is something to do. It carries every
    /// deadline too, so waiting for it alone is enough: take a turn without patience, which leaves
    /// it set for the next, wait until it is readable (level- or edge-triggered), and repeat.
    /// Only the first turn is taken without waiting.
    ///
    /// ```
    /// use argiope::{Config, Crawler, Request, Turn};
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use std::time::Duration;
    ///
    /// let mut crawler = Crawler::builder(Config::default()).build()?;
    /// while crawler.turn(Some(Duration::ZERO)) == Turn::GoesOn {
    ///     poll(&mut [PollFd::new(&crawler, PollFlags::IN)], None)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Calls on the crawler itself between two turns (a submission, for example) make it readable.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.io().as_fd().expect("the kernel has descriptors")
    }
}

/// See [`Crawler::as_fd`].
impl AsFd for Crawler<Kernel> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        Crawler::as_fd(self)
    }
}

/// See [`Crawler::as_fd`]. For loops that take descriptors by number, such as tokio's `AsyncFd`: it stays
/// the same for the crawler's lifetime, as `AsyncFd::register` requires. A
/// crawler is `Send` and not `Sync`: a task that may move between threads waits with `readable_mut`, and
/// makes an `io::Error` of the error of `register`, which holds the crawler.
impl AsRawFd for Crawler<Kernel> {
    fn as_raw_fd(&self) -> RawFd {
        Crawler::as_fd(self).as_raw_fd()
    }
}

impl<I: Io> Crawler<I> {
    /// A crawler on a back end and resolver settings of the caller.
    #[doc(hidden)]
    pub fn on(
        io: I,
        config: Config,
        resolver: resolver::ResolverSettings,
        parts: Parts,
    ) -> Result<Self, SetUpError> {
        let core = Core::new(io, config, resolver, parts)?;
        Ok(Crawler { core })
    }

    /// Serves the control interface from now on, until the crawl is over, also at the endpoints of earlier calls;
    /// returns the address of the TCP listener,
    /// if there is one. The same thread serves it, a few calls in each turn. Paths and replies are described by
    /// `/v1/openapi.json`.
    ///
    /// Call it before [`Crawler::spawn`], which takes the crawler.
    ///
    /// # Errors
    /// The system's, with the endpoint: an address or a file that is in use, a path of more than 107 bytes.
    pub fn serve(&mut self, admin: Admin) -> io::Result<Option<SocketAddr>> {
        self.core.serve(admin)
    }

    /// Appends to this file, which has `length` bytes and is made if that is 0: a line of JSON when the run begins,
    /// when settings of scopes change, and when it ends. With the result lines, `robots.jsonl` and `orders.jsonl`
    /// it shows whether the crawl was polite: the book's reference describes the lines. Call it once, before the
    /// first turn.
    pub fn log_runs(&mut self, path: impl Into<PathBuf>, length: u64) {
        self.core.log_runs(path.into(), length);
    }

    /// Submits a request from the crawl's own thread; returns the number of its first attempt at once. The
    /// request ends with a final page of that number: also if it is excluded by a filter or was admitted
    /// before (`filtered`).
    ///
    /// # Errors
    /// [`AdmitError`]: the request is invalid, or the crawl is over.
    pub fn submit(&mut self, request: Request) -> Result<u64, AdmitError> {
        self.core.submit(&request)
    }

    /// Replaces the settings of a scope from now on, in place of those of the configuration;
    /// the next gap obeys. What the scope has learned is kept. An empty patch removes all
    /// earlier patches of the scope; any other is kept for as long as the crawl lasts, about
    /// a kilobyte each. A crawl with a state keeps them for later runs, too, where they go before the
    /// configuration, except for each key that the configuration of the later run sets and did not set so before:
    /// there the configuration holds, and a warning is logged.
    ///
    /// The name is one of `THROTTLING_SCOPES`: a host, a scope of your own, `*.example.com`, `ip/*`,
    /// `domain/*`. `default` stands for every scope without settings of its own, and what such a
    /// patch leaves out stays as it is there. A single scope costs some microseconds; with a pattern
    /// and with `default` all known scopes are visited, about a microsecond each.
    ///
    /// # Errors
    /// By the rules of `THROTTLING_SCOPES`: an invalid name; a concurrency of 0 or above 65535; a delay of a hundred
    /// years or more; a quota or a rate that is not a number above 0; a factor out of its range.
    ///
    /// ```
    /// use argiope::settings::ScopePatch;
    /// use argiope::{Config, Crawler, Page};
    /// use std::time::Duration;
    ///
    /// let mut crawler = Crawler::builder(Config::default()).sink(|_: Page| {}).build()?;
    /// let slower = ScopePatch::default().delay(Duration::from_secs(10));
    /// crawler.set_scope("example.com", slower)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_scope(&mut self, name: &str, patch: ScopePatch) -> Result<(), ConfigError> {
        self.core.set_scope(name, patch)
    }

    /// Sets where a new configuration comes from when an operator ([`Crawler::serve`]) or [`Stopper::reload`] asks for
    /// one. `source` is called on the crawl's thread and must return at once: it reads files on another thread, and
    /// gives what it read by [`ReloadAnswer::give`]. The configuration is applied as [`Handle::reload`] does; an
    /// operator gets what that changed, or why nothing was.
    pub fn reload_from(&mut self, source: impl Fn(ReloadAnswer) + Send + 'static) {
        self.core.set_reload_source(Box::new(source));
    }

    /// Reports knowledge of a scope from another source than its answers: that it is exhausted, until when
    /// nothing may depart, how much of its quota remains.
    pub fn feedback(&mut self, feedback: &Feedback) {
        self.core.feedback(feedback);
    }

    /// Replaces [`Builder::ahead`](crate::Builder::ahead) from now on.
    pub fn set_ahead(&mut self, requests: usize) {
        self.core.set_ahead(requests);
    }

    /// Returns a handle that submits requests from other threads. The crawl does not end while one exists.
    pub fn handle(&self) -> Handle {
        self.core.handle()
    }

    /// Returns a handle that stops the crawl from other threads.
    pub fn stopper(&self) -> Stopper {
        self.core.stopper()
    }

    /// Runs to the end; returns the reason for it. Without a sink the results are dropped, since
    /// no one could take them meanwhile.
    pub fn run(&mut self) -> FinishReason {
        self.core.output().give_up_results();
        loop {
            if let Turn::Over(reason) = self.turn(None) {
                return reason;
            }
        }
    }

    /// One turn: waits for events, at most for `patience` (without limit, if `None`), and handles
    /// them, for about a millisecond at most. With a patience of zero it does not wait, continues
    /// with events of that millisecond, and leaves the [descriptor](Crawler::as_fd) set for a
    /// host's own wait.
    ///
    /// Turns may be taken by one thread after the other. Per-thread state of the kernel (the
    /// slack of timers, `TIMER_SLACK`; the account of waits for a processor; receiving on io_uring)
    /// belongs to the thread that took the last turn. The thread before it keeps its timer slack, and may
    /// have one wait of its own interrupted (EINTR) when an io_uring leaves it.
    ///
    /// # Panics
    /// With a panic of the embedder's code. After that the crawl takes no more requests and commands from handles, and must
    /// not be used again.
    pub fn turn(&mut self, patience: Option<Duration>) -> Turn {
        if let Some(reason) = self.core.over() {
            return Turn::Over(reason);
        }
        let until = patience.map(|patience| self.core.io().now() + patience);
        let turn = catch_unwind(AssertUnwindSafe(|| {
            if patience == Some(Duration::ZERO) {
                self.core.turn_for_host();
            } else {
                self.core.turn(until);
            }
        }));
        if let Err(panic) = turn {
            // Submitters are woken and refused: no further turn will make room.
            self.core.close_after_panic();
            resume_unwind(panic);
        }
        self.core.over().map_or(Turn::GoesOn, Turn::Over)
    }

    /// Statistics so far.
    pub fn stats(&self) -> &Stats {
        self.core.output().stats()
    }

    /// Progress of the crawl.
    pub fn progress(&self) -> Progress {
        self.core.progress()
    }

    /// Report on the pacing of the scopes so far, with remarks. Visits every scope with
    /// an account, some thousands at most.
    pub fn pacing(&self) -> PaceReport {
        self.core.pacing(MOST)
    }

    /// The metrics of the crawl so far, as text for Prometheus and other scrapers: counters, gauges and
    /// histograms. [`MetricsFormat::content_type`] is the header that goes with it. It takes about as long as
    /// `stats.json`, so render it once per scrape. The book's reference lists all metrics.
    ///
    /// Only the `METRICS_SCOPES_MAX` scopes that waited longest have series of their own, so that the length is
    /// bounded.
    ///
    /// ```
    /// use argiope::{Config, Crawler, MetricsFormat};
    ///
    /// let crawler = Crawler::builder(Config::default()).build()?;
    /// // The Accept header of a scrape.
    /// let format = MetricsFormat::from_accept("application/openmetrics-text, text/plain;q=0.5");
    /// let text = crawler.metrics(format);
    /// assert!(text.contains("argiope_pages_total 0\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(&self, format: MetricsFormat) -> String {
        self.core.metrics(format)
    }

    /// The result that could not be written, after `sink_failed`.
    pub fn write_error(&self) -> Option<&WriteError> {
        self.core.write_error()
    }

    /// The error of the source, after `source_failed`.
    pub fn source_error(&self) -> Option<&SourceError> {
        self.core.source_error()
    }

    /// Requests still to be fetched when the crawl ended early, in order of admission. Of those
    /// submitted by a [`Handle`], only those without a final page; of those submitted otherwise,
    /// and of links, also those cancelled in flight; before all of these, those that the sink could not
    /// write ([`DiskSink::take_unwritten`](crate::DiskSink::take_unwritten)). Requests of a
    /// [`RequestSource`](crate::RequestSource) are not among them: it was notified of their ends; but
    /// those that it [does not keep](crate::RequestSource::keeps_requests), and those that it
    /// [still held](crate::RequestSource::finish). Requests that are not taken are dropped with the crawler.
    pub fn take_pending(&mut self) -> impl Iterator<Item = Pending> + '_ {
        self.core.take_pending()
    }

    /// Delays the answers to half of all offers to the frontier, at random: for tests of crawls whose seen
    /// set cannot answer at once.
    #[doc(hidden)]
    pub fn delay_admission(&mut self, seed: u64) {
        self.core.delay_admission(seed);
    }

    /// The back end: for tests that inspect a simulated one.
    #[doc(hidden)]
    pub fn io(&self) -> &I {
        self.core.io()
    }

    /// The same, to be changed.
    #[doc(hidden)]
    pub fn io_mut(&mut self) -> &mut I {
        self.core.io_mut()
    }

    /// The configuration it runs under.
    pub fn config(&self) -> &Config {
        self.core.config()
    }

    /// The start of the crawl, and now, on its own clock.
    pub fn elapsed(&self) -> Duration {
        self.core.now().saturating_since(Instant::START)
    }
}
