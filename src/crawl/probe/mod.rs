//! Latency under a constant rate: an open loop, whose requests leave when they are due whatever
//! became of those before, over the connections, names and timeouts of a crawl.

mod schedule;
pub(super) mod open_loop;
mod report;
mod ceiling;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::ceiling::{Ceiling, CeilingError};
pub use self::report::{Measure, ProbeInterval, ProbeReport};
pub use self::schedule::{Arrivals, Length};

use self::open_loop::{OpenLoop, Target};
use self::schedule::Schedule;
use crate::base::rng::Rng;
use crate::crawl::config::{Config, SettingSource, settings};
use crate::crawl::control::handle::Stopper;
use crate::crawl::crawler::{Crawler, Turn};
use crate::crawl::finish::FinishReason;
use crate::crawl::requests::check_request;
use crate::crawl::set_up::{Parts, SetUpError};
use crate::crawl::workload::Workload;
use crate::fetch::resolver;
use crate::frontier::filter;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::{Io, Kernel};
use crate::sink::{DiskSink, WriteError};
use crate::throttle;
use crate::wire::url::CrawlUrl;

/// Settings of a probe.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// Requests a second, in all.
    pub rate: f64,
    /// Extent of the measurement.
    pub length: Length,
    /// Before that: requests come in at the same rate, and count nowhere.
    pub warmup: Duration,
    /// Distribution of the gaps between requests.
    pub arrivals: Arrivals,
    /// Connections that there may be at once, each with one request in flight. Requests that are
    /// due while all are busy wait, and their latency from due on counts the wait.
    pub connections_max: usize,
    /// Every request has a connection of its own.
    pub new_connections: bool,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        ProbeSettings {
            // As much as any server bears that is somebody else's by mistake.
            rate: 10.0,
            length: Length::Time(Duration::from_secs(10)),
            warmup: Duration::ZERO,
            arrivals: Arrivals::Constant,
            // A second's worth of replies that all hang, at a thousand a second.
            connections_max: 1000,
            new_connections: false,
        }
    }
}

/// Measures latency at a constant total rate.
///
/// It asks for its targets in turn, each request when it is due, on the loop, connections, names
/// and timeouts of a crawl. Nothing is paced, no robots.txt is asked for, no redirect followed and
/// nothing tried again (but for a request under which a kept connection died). It ends when every
/// request has ended, or `STOP_GRACE` after the last was due.
///
/// ```no_run
/// use argiope::probe::{Measure, Probe, ProbeSettings};
/// use argiope::{Config, Page, Request};
///
/// let settings = ProbeSettings { rate: 500.0, ..ProbeSettings::default() };
/// let config = Config::default().with("ALLOW_NET", "loopback")?;
/// let targets = [Request::get("http://127.0.0.1:8080/")];
/// let mut probe = Probe::new(config, settings, &targets, |_: Page| {})?;
/// probe.run();
/// let report = probe.report();
/// println!("{:?}", report.spread(Measure::Due).quantile(0.99));
/// assert!(report.is_rate_reached(), "{} a second", report.rate_reached());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Probe<I: Io = Kernel> {
    crawler: Crawler<I>,
}

impl Probe<Kernel> {
    /// A probe on the kernel, of these targets; each attempt that ends goes to `sink`, those of
    /// the warm-up too.
    ///
    /// # Errors
    /// A setting or a target cannot be taken, or the kernel refuses what the loop needs.
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
        let targets = targets
            .iter()
            .map(|request| target(request, &config))
            .collect::<Result<Vec<_>, _>>()?;
        let grace = config.stop_grace;
        let seed = config.random_seed;
        warn_of_unheeded(&config);
        unleash(&mut config, &settings);
        let mut parts = Parts::new(sink);
        parts.in_flight_named = "--connections";
        let mut crawler = make(config, parts)?;
        let core = &mut crawler.core;
        let seed = seed.unwrap_or(core.io().wall_at_start().0);
        let schedule = Schedule::new(
            (settings.arrivals, settings.rate),
            settings.warmup,
            settings.length,
            Rng::from_seed(seed).fork("arrivals"),
            core.io().now(),
        );
        let mut report = ProbeReport::new(
            (settings.arrivals, settings.rate),
            settings.length,
            seed,
            core.in_flight_max(),
        );
        report.io = core.io().kind();
        let load = OpenLoop::new(schedule, targets, settings.new_connections, grace, report);
        for target in load.targets() {
            // What cannot be put on the wire is the caller's to hear of now, not the sink's later.
            let job = load.job_of(target, 0);
            check_request(&job).map_err(|error| refused(&target.request.url, error))?;
            core.trust_origin_of(&job.url);
        }
        core.set_workload(Workload::probe(load));
        Ok(Probe { crawler })
    }

    /// Runs to the end; gives the reason for it: `finished`, `shutdown` (it was stopped),
    /// `overdue` (what was left `STOP_GRACE` after the last request was due was given up),
    /// `blocked_address` (a target's address may not be asked) or `sink_failed`.
    pub fn run(&mut self) -> FinishReason {
        self.crawler.run()
    }

    /// One turn: waits for events, at most for `patience`, and handles them.
    pub fn turn(&mut self, patience: Option<Duration>) -> Turn {
        self.crawler.turn(patience)
    }

    /// The crawl that the probe is.
    #[cfg(test)]
    pub(crate) fn crawler_mut(&mut self) -> &mut Crawler<I> {
        &mut self.crawler
    }

    /// How many requests have ended so far, those of the warm-up too.
    pub fn ended(&self) -> u64 {
        self.load().ended()
    }

    /// What was counted so far, at no cost. What follows from the whole is only in
    /// [`Probe::report`]: why it ended, the span, what was left unsent.
    pub fn so_far(&self) -> &ProbeReport {
        self.load().so_far()
    }

    /// What was measured. Copies all of it, which takes longer than a request may be late: it is
    /// for the end.
    pub fn report(&self) -> ProbeReport {
        let core = &self.crawler.core;
        let wall = core.io().wall_at_start();
        let connections = core.output().stats().connections;
        self.load()
            .report(wall, core.over(), connections, core.now())
    }

    /// From now on, distributions are also kept for [`Probe::take_interval`].
    pub fn keep_intervals(&mut self) {
        let now = self.crawler.core.io().now();
        self.load_mut().keep_intervals(now);
    }

    /// Intervals measured since the last call, or since they are kept.
    pub fn take_interval(&mut self) -> Option<ProbeInterval> {
        let core = &self.crawler.core;
        let (wall, now) = (core.io().wall_at_start(), core.io().now());
        self.load_mut().take_interval(wall, now)
    }

    /// The result that could not be written, after `sink_failed`.
    pub fn write_error(&self) -> Option<&WriteError> {
        self.crawler.write_error()
    }

    /// Since the probe began, on its own clock.
    pub fn elapsed(&self) -> Duration {
        self.crawler.elapsed()
    }

    /// Handle that stops the probe from another thread.
    pub fn stopper(&self) -> Stopper {
        self.crawler.stopper()
    }

    /// Whether somebody asked it to stop.
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

/// Whether all of it makes sense together.
fn check(settings: &ProbeSettings, targets: &[Request]) -> Result<(), SetUpError> {
    let refused = |setting, reason: &str| {
        let reason = reason.to_owned();
        Err(SetUpError::Setting { setting, reason })
    };
    if targets.is_empty() {
        return refused("URL", "there is nothing to ask for; name a URL");
    }
    if !settings.rate.is_finite() || settings.rate <= 0.0 {
        return refused("--rate", "no rate; give requests a second, above 0");
    }
    if settings.rate > RATE_MAX {
        return refused(
            "--rate",
            "no thread sends so many; give 10 million a second at most",
        );
    }
    let too_long = |span: Duration| span > SPAN_MAX;
    match settings.length {
        Length::Time(span) if span.is_zero() => {
            return refused("--duration", "no time at all; give more than 0");
        }
        Length::Time(span) if too_long(span) => {
            return refused("--duration", "too long; give ten years at most");
        }
        Length::Requests(0) => return refused("--requests", "none at all; give 1 or more"),
        Length::Requests(count) if count as f64 / settings.rate > SPAN_MAX.as_secs_f64() => {
            return refused(
                "--requests",
                "too many at this rate; give ten years' worth at most",
            );
        }
        Length::Time(_) | Length::Requests(_) => {}
    }
    if too_long(settings.warmup) {
        return refused("--warmup", "too long; give ten years at most");
    }
    if settings.connections_max == 0 {
        return refused("--connections", "none at all; give 1 or more");
    }
    Ok(())
}

fn target(request: &Request, config: &Config) -> Result<Target, SetUpError> {
    let url = CrawlUrl::parse(&request.url).map_err(|error| refused(&request.url, error))?;
    if filter::excludes(&config.frontier, &url) {
        return Err(refused(&request.url, "EXCLUDE keeps us away"));
    }
    Ok(Target {
        url,
        request: request.clone(),
    })
}

fn refused(url: &str, why: impl std::fmt::Display) -> SetUpError {
    SetUpError::Setting {
        setting: "URL",
        reason: format!("{url}: {why}"),
    }
}

/// Settings that were set but have no effect in a probe, with their sources.
fn unheeded(config: &Config) -> Vec<String> {
    settings()
        .iter()
        .filter(|setting| !HEEDED.contains(&setting.name))
        .map(|setting| (setting.name, config.source(setting.name)))
        .filter(|(_, source)| **source != SettingSource::Default)
        .map(|(name, source)| format!("{name} ({source})"))
        .collect()
}

fn warn_of_unheeded(config: &Config) {
    let names = unheeded(config);
    if !names.is_empty() {
        log::warn!(
            "a probe does not heed {}: nothing is paced, followed or tried again, and connections \
             are kept as --connections and --new-connections say",
            names.join(", ")
        );
    }
}

/// Leaves of a crawl's manners what one fetch needs. Requests have no scope, so nothing keeps one
/// that is due but the number of connections.
fn unleash(config: &mut Config, settings: &ProbeSettings) {
    config.throttle = throttle::settings::ThrottleSettings {
        concurrent_requests: settings.connections_max,
        ..throttle::settings::ThrottleSettings::default()
    };
    config.fetch.keepalive_max = settings.connections_max;
    config.max_time = None;
    config.outage_breaker = false;
    let frontier = &mut config.frontier;
    frontier.robots_obey = false;
    frontier.follow = Follow::None;
    frontier.retry_times = 0;
    frontier.pages_max = 0;
    frontier.errors_max = 0;
    frontier.pages_per_host_max = 0;
    frontier.host_down_after = Duration::ZERO;
}

/// Beyond what one thread can do by two orders of magnitude.
const RATE_MAX: f64 = 1e7;
/// Moments are counted in nanoseconds, of which there are enough for centuries.
const SPAN_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The settings that mean something to a probe. The rest is of paces, and of what a crawl does beside
/// fetching.
const HEEDED: [&str; 26] = [
    "USER_AGENT",
    "CONTACT",
    "DEFAULT_REQUEST_HEADERS",
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
    "CA_FILE",
    "INSECURE",
    "DNS_SERVERS",
    "RESOLVE",
    "IO",
    "SOCKETS_MAX",
    "READ_BUDGET",
    "TIMER_SLACK",
    "SPIN",
    "BUFFERED_BODIES_MAX",
    "STOP_GRACE",
    "RANDOM_SEED",
];
