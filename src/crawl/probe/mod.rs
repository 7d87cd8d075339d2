//! Measures latency at a constant rate, in an open loop: each request is sent when it is due, whether
//! earlier ones were answered or not. Uses the connections, resolver and timeouts of a crawl.

mod schedule;
pub(super) mod open_loop;
mod report;
pub(in crate::crawl) mod watch;
mod ceiling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use self::ceiling::{Ceiling, CeilingError, Exceeded};
pub use self::report::{Measure, ProbeInterval, ProbeReport};
pub use self::schedule::{Arrivals, Length};
pub use self::watch::WatchCounts;

use self::open_loop::{OpenLoop, Target};
use self::schedule::Schedule;
use crate::admin::format::MetricsFormat;
use crate::base::rng::Rng;
use crate::crawl::config::{Config, SettingSource, settings};
use crate::crawl::control::handle::Stopper;
use crate::crawl::crawler::{Crawler, Turn};
use crate::crawl::finish::FinishReason;
use crate::crawl::requests::check_request;
use crate::crawl::set_up::{Admin, Parts, SetUpError};
use crate::crawl::workload::Workload;
use crate::fetch::resolver;
use crate::frontier::filter;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::{Io, Kernel, open_files};
use crate::sink::{DiskSink, WriteError};
use crate::throttle;
use crate::wire::url::CrawlUrl;

/// Settings of a probe: change the fields of a default.
///
/// With [`ProbeSettings::every`] the defaults are those of `argiope probe --targets FILE --every`; so is that of
/// `DOWNLOAD_TIMEOUT`: 10 s, or 90 % of `every` if that is less, so that a request ends before the next one to its target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeSettings {
    /// Requests per second, for all targets together. Default: 10. No effect with `every`.
    pub rate: f64,
    /// Extent of the measurement. `None`, the default: 10 s; with `every` [`Length::Endless`].
    pub length: Option<Length>,
    /// Time before the measurement: requests are sent at the same rate, and not counted. Default: zero.
    pub warmup: Duration,
    /// Distribution of the gaps between requests. Default: [`Arrivals::Constant`]. No effect with `every`.
    pub arrivals: Arrivals,
    /// Maximum open connections, each with one request in flight. Requests that are due while all
    /// are busy wait; [`Measure::Due`] includes the wait. `None`, the default: 1000; with `every` one for each target, so
    /// that none waits for another (where many hang, that takes as many open files:
    /// [`raise_open_files`](crate::raise_open_files)).
    pub connections_max: Option<usize>,
    /// Open a new connection for every request. `None`, the default: no; with `every` yes. If not, `KEEPALIVE_TIMEOUT` is
    /// by default `every` and `DOWNLOAD_TIMEOUT` together.
    pub new_connections: Option<bool>,
    /// Request each target once in this time, in place of `rate` and `arrivals`: the phases of the targets are
    /// spread evenly, and each keeps its own. A request that is due while the one before to the same target is
    /// open is not sent ([`ProbeReport::skipped`]), nor is one that is overdue by as much, or that a pause or the sink
    /// holds back. One that has no connection after half of `DOWNLOAD_TIMEOUT` ends as `timeout.total`. The last result
    /// of each is kept for `/probe` of [`Probe::serve`]. A target whose address is not allowed is down, and the probe
    /// goes on.
    /// Bodies are counted, and not in the pages that the sink gets. Default: `None`.
    pub every: Option<Duration>,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        ProbeSettings {
            // Harmless to any server, in case the URL is wrong.
            rate: 10.0,
            length: None,
            warmup: Duration::ZERO,
            arrivals: Arrivals::Constant,
            connections_max: None,
            new_connections: None,
            every: None,
        }
    }
}

impl ProbeSettings {
    /// The rate and the arrivals at which so many targets are requested.
    fn pace(&self, targets: usize) -> (Arrivals, f64) {
        match self.every {
            Some(every) => (Arrivals::Constant, targets as f64 / every.as_secs_f64()),
            None => (self.arrivals, self.rate),
        }
    }

    fn length(&self) -> Length {
        self.length.unwrap_or(match self.every {
            Some(_) => Length::Endless,
            None => Length::Time(LENGTH_DEFAULT),
        })
    }

    fn connections_max(&self, targets: usize) -> usize {
        self.connections_max.unwrap_or(match self.every {
            Some(_) => targets,
            None => CONNECTIONS_DEFAULT,
        })
    }

    fn new_connections(&self) -> bool {
        self.new_connections.unwrap_or(self.every.is_some())
    }

    /// Sets the timeouts that follow from `every`, unless others are set.
    fn set_timeouts(&self, config: &mut Config) {
        let Some(every) = self.every else {
            return;
        };
        let is_default = |config: &Config, name| *config.source(name) == SettingSource::Default;
        if is_default(config, "DOWNLOAD_TIMEOUT") {
            let timeout = TIMEOUT_DEFAULT.min(every.mul_f64(0.9));
            config.fetch.download_timeout = timeout.max(TIMEOUT_MIN);
        }
        if is_default(config, "KEEPALIVE_TIMEOUT") {
            // A connection is kept until the next request to its target, also where that is due late in its time.
            config.fetch.keepalive_timeout = every + config.fetch.download_timeout;
        }
    }
}

/// Measures latency at a constant total rate.
///
/// Requests go to the targets in turn, each when it is due, over the event loop, connections,
/// resolver and timeouts of a crawl. No request is throttled, no robots.txt fetched, no redirect
/// followed and no request retried (except one whose reused connection was closed before a reply).
/// The probe ends when every request has ended, or `STOP_GRACE` after the last was due.
///
/// ```no_run
/// use argiope::probe::{Measure, Probe, ProbeSettings};
/// use argiope::{Config, Page, Request};
///
/// let mut settings = ProbeSettings::default();
/// settings.rate = 500.0;
/// let config = Config::default().with("ALLOW_NET", "loopback")?;
/// let targets = [Request::get("http://127.0.0.1:8080/")];
/// let mut probe = Probe::new(config, settings, &targets, |_: Page| {})?;
/// probe.run();
/// let report = probe.report();
/// println!("{:?}", report.spread(Measure::Due).quantile(0.99));
/// assert!(report.is_rate_reached(), "{} a second", report.rate_reached());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Many targets, each once in 15 s until a stop, and their last results for Prometheus:
///
/// ```no_run
/// use argiope::probe::{Probe, ProbeSettings};
/// use argiope::{Admin, Config, Page, Request};
/// use std::time::Duration;
///
/// let mut settings = ProbeSettings::default();
/// settings.every = Some(Duration::from_secs(15));
/// let targets = ["https://example.com/", "https://example.org/"].map(Request::get);
/// let mut probe = Probe::new(Config::default(), settings, &targets, |_: Page| {})?;
/// probe.serve(Admin::new().listen(([127, 0, 0, 1], 9115).into()))?;
/// let stopper = probe.stopper(); // for another thread
/// println!("{}", probe.run()); // http://127.0.0.1:9115/probe?target=https://example.com/
/// # let _ = stopper;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Probe<I: Io = Kernel> {
    crawler: Crawler<I>,
}

impl<I: Io> fmt::Debug for Probe<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

impl Probe<Kernel> {
    /// A probe of these targets on a kernel back end; `sink` gets the page of each attempt, those of
    /// the warm-up included.
    ///
    /// # Errors
    /// A setting or a target is invalid, or a system call that sets up the loop failed.
    pub fn new(
        config: Config,
        settings: ProbeSettings,
        targets: &[Request],
        sink: impl DiskSink + 'static,
    ) -> Result<Self, SetUpError> {
        Probe::set_up(config, settings, targets, sink, Crawler::new)
    }
}

impl<I: Io> Probe<I> {
    /// A probe on a back end and resolver settings of the caller.
    #[doc(hidden)]
    pub fn on(
        io: I,
        resolver: resolver::ResolverSettings,
        config: Config,
        settings: ProbeSettings,
        targets: &[Request],
        sink: impl DiskSink + 'static,
    ) -> Result<Self, SetUpError> {
        Probe::set_up(config, settings, targets, sink, |config, parts| {
            Crawler::on(io, config, resolver, parts)
        })
    }

    fn set_up(
        mut config: Config,
        settings: ProbeSettings,
        targets: &[Request],
        sink: impl DiskSink + 'static,
        make: impl FnOnce(Config, Parts) -> Result<Crawler<I>, SetUpError>,
    ) -> Result<Self, SetUpError> {
        check(&settings, targets)?;
        settings.set_timeouts(&mut config);
        let targets = targets
            .iter()
            .enumerate()
            .map(|(number, request)| target(number, request, &config))
            .collect::<Result<Vec<_>, _>>()?;
        let (grace, timeout) = (config.stop_grace, config.fetch.download_timeout);
        let seed = config.random_seed;
        warn_settings_without_effect(&config);
        if settings.every.is_some() {
            warn_few_files(settings.connections_max(targets.len()));
        }
        disable_crawl_policies(&mut config, settings.connections_max(targets.len()));
        let mut parts = Parts::new(sink);
        parts.in_flight_named = "connections_max (--connections)";
        parts.watched_every = settings.every;
        let mut crawler = make(config, parts)?;
        let core = &mut crawler.core;
        let seed = seed.unwrap_or(core.io().wall_at_start().0);
        let pace = settings.pace(targets.len());
        let schedule = Schedule::new(
            pace,
            settings.warmup,
            settings.length(),
            Rng::from_seed(seed).fork("arrivals"),
            core.io().now(),
        );
        let mut report = ProbeReport::new(pace, settings.length(), seed, core.in_flight_max());
        report.io = core.io().kind();
        let mut load = OpenLoop::new(schedule, targets, settings.new_connections(), grace, report);
        if let Some(every) = settings.every {
            check_distinct(load.targets())?;
            load.watch(every, timeout, core.io().wall_at_start());
            // One of them may have such an address now and then; all of them have it by mistake.
            let jobs = load.targets().iter().map(|target| load.job_of(target, 0));
            core.check_any_allowed(jobs)
                .map_err(|(url, why)| SetUpError::Setting {
                    setting: "URL",
                    reason: format!("{}: {why}", url.as_str()),
                })?;
        }
        for (number, target) in load.targets().iter().enumerate() {
            // A request that cannot be encoded is an error of the caller, reported now instead of as pages.
            let job = load.job_of(target, 0);
            check_request(&job)
                .map_err(|error| invalid(number, None, &target.request.url, error))?;
            core.trust_origin_of(&job.url);
        }
        core.set_workload(Workload::probe(load));
        Ok(Probe { crawler })
    }

    /// Runs to the end and returns the reason: `finished`, `shutdown` (it was stopped), `overdue`
    /// (requests still open `STOP_GRACE` after the last was due were abandoned), `blocked_address`
    /// (a target's address is not allowed; not with [`ProbeSettings::every`]) or `sink_failed`.
    pub fn run(&mut self) -> FinishReason {
        self.crawler.run()
    }

    /// One turn: waits for events, at most for `patience`, and handles them.
    pub fn turn(&mut self, patience: Option<Duration>) -> Turn {
        self.crawler.turn(patience)
    }

    /// The crawl that runs the probe.
    #[cfg(test)]
    pub(crate) fn crawler_mut(&mut self) -> &mut Crawler<I> {
        &mut self.crawler
    }

    /// Number of requests that have ended, those of the warm-up included.
    pub fn ended(&self) -> u64 {
        self.load().ended()
    }

    /// The counts so far, without a copy. Values known only at the end are in [`Probe::report`]: the
    /// finish reason, the span, the number of unsent requests.
    pub fn so_far(&self) -> &ProbeReport {
        self.load().so_far()
    }

    /// The results. Copies all distributions, which delays requests that are due: call it at the
    /// end.
    pub fn report(&self) -> ProbeReport {
        let core = &self.crawler.core;
        let wall = core.io().wall_at_start();
        let connections = core.output().stats().connections;
        self.load()
            .report(wall, core.over(), connections, core.now())
    }

    /// Listens for operators and scrapers, as [`Crawler::serve`] does: `/metrics` has totals and histograms, and
    /// with [`ProbeSettings::every`] `/probe?target=URL` the last result of a target, with the names of the blackbox
    /// exporter. Returns the address of the TCP listener.
    ///
    /// # Errors
    /// The system's, with the endpoint.
    pub fn serve(&mut self, admin: Admin) -> io::Result<Option<SocketAddr>> {
        self.crawler.serve(admin)
    }

    /// The metrics of the probe now, as [`Crawler::metrics`] writes them.
    pub fn metrics(&self, format: MetricsFormat) -> String {
        self.crawler.core.metrics(format)
    }

    /// The metrics of the last request to a target, as `/probe` of [`Probe::serve`] has them. `None` if this is not
    /// the canonical URL of a target, if its first request has not ended, or without [`ProbeSettings::every`].
    pub fn target_metrics(&self, url: &str, format: MetricsFormat) -> Option<String> {
        let workload = self.crawler.core.workload();
        workload.target_metrics(url, format).ok()
    }

    /// What became of the requests to all targets; `None` without [`ProbeSettings::every`].
    pub fn watch_counts(&self) -> Option<WatchCounts> {
        self.crawler.core.workload().watch_counts()
    }

    /// Starts to record distributions per interval, for [`Probe::take_interval`].
    pub fn keep_intervals(&mut self) {
        let now = self.crawler.core.io().now();
        self.load_mut().keep_intervals(now);
    }

    /// The interval since the last call, or since [`Probe::keep_intervals`].
    pub fn take_interval(&mut self) -> Option<ProbeInterval> {
        let core = &self.crawler.core;
        let (wall, now) = (core.io().wall_at_start(), core.io().now());
        self.load_mut().take_interval(wall, now)
    }

    /// The result that could not be written, after `sink_failed`.
    pub fn write_error(&self) -> Option<&WriteError> {
        self.crawler.write_error()
    }

    /// Time since the probe started, by its back end's clock.
    pub fn elapsed(&self) -> Duration {
        self.crawler.elapsed()
    }

    /// Handle that stops the probe from another thread.
    pub fn stopper(&self) -> Stopper {
        self.crawler.stopper()
    }

    /// Whether a stop was requested.
    pub fn is_stopping(&self) -> bool {
        self.crawler.core.is_stopping()
    }

    /// The crawler that does the work.
    #[doc(hidden)]
    pub fn crawler(&self) -> &Crawler<I> {
        &self.crawler
    }

    fn load(&self) -> &OpenLoop {
        self.crawler
            .core
            .workload()
            .open_loop()
            .expect("a probe has a load")
    }

    fn load_mut(&mut self) -> &mut OpenLoop {
        self.crawler
            .core
            .workload_mut()
            .open_loop_mut()
            .expect("a probe has a load")
    }
}

/// Checks the settings and the number of targets.
fn check(settings: &ProbeSettings, targets: &[Request]) -> Result<(), SetUpError> {
    let refused = |setting, reason: &str| {
        let reason = reason.to_owned();
        Err(SetUpError::Setting { setting, reason })
    };
    if targets.is_empty() {
        return refused("URL", "no URL given; give at least one");
    }
    let is_rate = settings.rate.is_finite() && settings.rate > 0.0;
    if settings.every.is_none() && !is_rate {
        let rate = settings.rate;
        let reason = format!("{rate} is not a rate; give requests per second, above 0");
        return refused("rate", &reason);
    }
    if let Some(every) = settings.every {
        if every < EVERY_MIN {
            return refused("every", "too short; give at least 1ms");
        }
        if every > SPAN_MAX {
            return refused("every", "too long; give at most 10 years");
        }
    }
    if settings.pace(targets.len()).1 > RATE_MAX {
        let Some(every) = settings.every else {
            return refused(
                "rate",
                "too high for one thread; give at most 10 million per second",
            );
        };
        let count = targets.len();
        let least = (count as f64 / RATE_MAX * 1e3).ceil();
        let reason = format!(
            "{every:?} is too short for {count} targets; give at least {least}ms, or fewer targets"
        );
        return refused("every", &reason);
    }
    let too_long = |span: Duration| span > SPAN_MAX;
    match settings.length() {
        Length::Time(span) if span.is_zero() => {
            return refused("length", "not above 0; give a duration above 0");
        }
        Length::Time(span) if too_long(span) => {
            return refused("length", "too long; give at most 10 years");
        }
        Length::Requests(0) => return refused("length", "0 is too small; give 1 or more"),
        Length::Requests(count)
            if count as f64 / settings.pace(targets.len()).1 > SPAN_MAX.as_secs_f64() =>
        {
            return refused(
                "length",
                "too many at this pace; give at most as many as are due in 10 years",
            );
        }
        Length::Time(_) | Length::Requests(_) | Length::Endless => {}
    }
    if too_long(settings.warmup) {
        return refused("warmup", "too long; give at most 10 years");
    }
    if settings.connections_max == Some(0) {
        return refused("connections_max", "0 is too small; give 1 or more");
    }
    Ok(())
}

fn target(number: usize, request: &Request, config: &Config) -> Result<Target, SetUpError> {
    let url = CrawlUrl::parse(&request.url)
        .map_err(|error| invalid(number, None, &request.url, error))?;
    if filter::excludes(&config.frontier, &url) {
        let why = "the host is excluded; remove it from EXCLUDE";
        return Err(invalid(number, None, &request.url, why));
    }
    Ok(Target {
        url,
        request: request.clone(),
    })
}

/// Checks that no two targets have the same URL.
fn check_distinct(targets: &[Target]) -> Result<(), SetUpError> {
    let mut seen = BTreeMap::new();
    for (number, target) in targets.iter().enumerate() {
        let url = target.url.as_str();
        if let Some(earlier) = seen.insert(url, number) {
            let why = "given twice; each target is requested once in `every`";
            return Err(invalid(number, Some(earlier), url, why));
        }
    }
    Ok(())
}

fn invalid(
    number: usize,
    earlier: Option<usize>,
    url: &str,
    why: impl std::fmt::Display,
) -> SetUpError {
    SetUpError::Target {
        number,
        earlier,
        reason: format!("{url}: {why}"),
    }
}

/// Settings that the user set but that have no effect on a probe, with their sources.
fn settings_without_effect(config: &Config) -> Vec<String> {
    settings()
        .iter()
        .filter(|setting| !SETTINGS_WITH_EFFECT.contains(&setting.name))
        .map(|setting| (setting.name, config.source(setting.name)))
        .filter(|(_, source)| **source != SettingSource::Default)
        .map(|(name, source)| format!("{name} ({source})"))
        .collect()
}

fn warn_settings_without_effect(config: &Config) {
    let names = settings_without_effect(config);
    if !names.is_empty() {
        log::warn!(
            "no effect on a probe: {}; a probe does not throttle, follow or retry, and connections \
             are governed by connections_max (--connections) and new_connections (--new-connections)",
            names.join(", ")
        );
    }
}

/// Warns of a limit of open files at which targets that hang would delay others.
fn warn_few_files(connections_max: usize) {
    let (needed, files) = (connections_max.saturating_add(FILES_OTHER), open_files());
    if needed as u64 > files {
        log::warn!(
            "{connections_max} connections need as many open files, and this process may have {files}: where many \
             targets do not answer, others wait; raise the limit (ulimit -n {needed})"
        );
    }
}

/// Disables throttling, robots.txt, links, retries and limits. Requests have no scope, so only
/// the number of connections delays one that is due.
fn disable_crawl_policies(config: &mut Config, connections_max: usize) {
    config.throttle = throttle::settings::ThrottleSettings {
        concurrent_requests: connections_max,
        ..throttle::settings::ThrottleSettings::default()
    };
    config.fetch.keepalive_max = connections_max;
    config.max_time = None;
    config.outage_breaker = false;
    config.robots_ignored_hosts_max = 0;
    let frontier = &mut config.frontier;
    frontier.robots_obey = false;
    frontier.follow = Follow::None;
    frontier.retry_times = 0;
    frontier.pages_max = 0;
    frontier.errors_max = 0;
    frontier.bytes_max = 0;
    frontier.pages_per_host_max = 0;
    frontier.own_hosts = std::sync::Arc::new(frontier.own_hosts.without_limits());
    frontier.pages_per_domain_max = 0;
    frontier.bytes_per_domain_max = 0;
    frontier.hosts.down_after = Duration::ZERO;
}

/// Long enough for percentiles, and short enough to wait for.
const LENGTH_DEFAULT: Duration = Duration::from_secs(10);
/// At 1000 requests per second, enough for replies that take 1 s.
const CONNECTIONS_DEFAULT: usize = 1000;
/// The usual timeout of a scrape.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// The least that `DOWNLOAD_TIMEOUT` may be.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Open files besides connections.
const FILES_OTHER: usize = 64;
/// Shorter than any reply takes.
const EVERY_MIN: Duration = Duration::from_millis(1);
/// 100 times what one thread can send per second.
const RATE_MAX: f64 = 1e7;
/// An instant is a `u64` of nanoseconds, which overflows after 584 years.
const SPAN_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The settings that have an effect on a probe. The others concern throttling, the frontier and output.
const SETTINGS_WITH_EFFECT: &[&str] = &[
    "USER_AGENT",
    "CONTACT",
    "ACCEPT_ZSTD",
    "DEFAULT_REQUEST_HEADERS",
    "HTTP_USER",
    "HOSTS",
    "COOKIES_ENABLED",
    "COOKIES_FILE",
    "EXCLUDE",
    "ALLOW_NET",
    "DOWNLOAD_TIMEOUT",
    "CONNECT_TIMEOUT",
    "TLS_TIMEOUT",
    "FIRST_BYTE_TIMEOUT",
    "IDLE_TIMEOUT",
    "DOWNLOAD_MAXSIZE",
    "DOWNLOAD_MIN_RATE",
    "DECODED_RATIO_MAX",
    "KEEPALIVE_TIMEOUT",
    "TLS_SESSIONS_MEMORY",
    "CA_FILE",
    "INSECURE",
    "PROXY",
    "PROXY_HTTPS",
    "NO_PROXY",
    "DNS_SERVERS",
    "RESOLVE",
    "IO",
    "SOCKETS_MAX",
    "READ_BUDGET",
    "TIMER_SLACK",
    "SPIN",
    "WORKERS",
    "BUFFERED_BODIES_MAX",
    "BYTES_PER_SECOND_MAX",
    "STOP_GRACE",
    "RANDOM_SEED",
];
