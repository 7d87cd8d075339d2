//! A crawler as its user sees it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::config::{Config, ConfigError, PublicHosts};
use super::core::Core;
use super::embed::feed::{Feed, Source, SourceError};
use super::embed::found::Found;
use super::embed::handle::{Handle, Stopper};
use super::embed::inbox::Inbox;
use super::embed::pull::Pull;
use super::embed::steer::Unwanted;
use super::embed::stop::Pending;
use super::life::admission::AdmitError;
use super::life::credentials::Credentials;
use super::life::delayed::{Crowd, Delayed};
use super::life::guard::Guard;
use super::life::intake::Intake;
use super::life::mapping::Mapping;
use super::life::memory::MemoryRoom;
use super::life::origins::Ways;
use super::life::outage::Outage;
use super::life::pieces::Pieces;
use super::life::ports::Ports;
use super::life::room::Room;
use super::life::spare::Spare;
use super::life::storage::Storage;
use super::life::work::Work;
use super::pacing::{MOST, Pacing};
use super::phase::Phase;
use super::stats::{Progress, Stats};
use super::timer::Deadlines;
use crate::base::address;
use crate::base::machine;
use crate::base::rng::Rng;
use crate::base::secret::{Secret, random};
use crate::base::slab::Slab;
use crate::base::time::Instant;
#[cfg(feature = "cookies")]
use crate::fetch::cookies::Jar;
use crate::fetch::pool::Pool;
use crate::fetch::resolver::{self, Resolver};
use crate::fetch::tls::{CaFile, TlsConfig, TlsConfigError, TlsSettings};
use crate::frontier::Frontier;
use crate::frontier::request::Request;
use crate::io::{Io, Kernel, open_files};
use crate::sink::pull::Results;
use crate::sink::{Sink, WriteError};
use crate::throttle::engine::InitialFeedback;
use crate::throttle::engine::Throttle;
use crate::throttle::map::ScopeMap;
use crate::throttle::settings::MapKind;
use crate::throttle::settings::ScopePatch;
use crate::throttle::signal::Feedback;
use crate::throttle::signal::{ByStatus, Classify};
use crate::throttle::strategies::Strategies;

/// A crawl: give it requests and a sink, and let it run.
///
/// It is `Send`: it may be made on one thread and run on another, or move between turns. Nothing in
/// it is global: several may live in one process, on one thread even, each in its turn.
pub struct Crawler<I: Io = Kernel> {
    pub(super) core: Core<I>,
}

/// What an embedder may bring in place of what is built in.
pub struct Parts {
    /// Where results go.
    pub sink: Box<dyn Sink>,
    /// The other end of that sink, where results are pulled.
    pub(super) results: Option<Results>,
    /// Where requests are fetched from.
    pub source: Option<Box<dyn Source>>,
    /// Which scopes a request is throttled under; `None` where the configuration decides.
    pub scope_map: Option<Box<dyn ScopeMap>>,
    /// What an answer means.
    pub classify: Option<Box<dyn Classify>>,
    /// What the pace of a scope does about it.
    pub strategies: Strategies,
    /// Maps and readings of answers that the configuration may name (`THROTTLING_MANAGER`).
    pub managers: BTreeMap<String, NamedManager>,
    /// What is known of a scope before its first request.
    pub initial: Option<InitialFeedback>,
    /// Where `stats.json` is kept up to date; `None` for nowhere.
    pub stats_path: Option<PathBuf>,
    /// Whether it may be written still; `None` where it always may.
    pub stats_while: Option<Box<dyn Fn() -> bool + Send>>,
    /// Bits of the kernel's: chance comes from them where no seed is named, and strangers cannot foresee
    /// how the crawl hashes what they choose. `None` in a world that is to be the same again.
    pub entropy: Option<u64>,
    /// What said how many requests may be in flight, as people know it.
    pub in_flight_named: &'static str,
}

/// Who maps scopes, and who reads answers.
pub type NamedManager = (Box<dyn ScopeMap>, Box<dyn Classify>);

impl Parts {
    /// What is built in, with this sink.
    pub fn new(sink: impl Sink + 'static) -> Self {
        Parts {
            sink: Box::new(sink),
            results: None,
            source: None,
            scope_map: None,
            classify: None,
            strategies: Strategies::default(),
            managers: BTreeMap::new(),
            initial: None,
            stats_path: None,
            stats_while: None,
            entropy: None,
            in_flight_named: "CONCURRENT_REQUESTS",
        }
    }
}

/// How far one turn has brought a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It goes on: take another turn.
    GoesOn,
    /// It is over, for this reason: `finished`, `shutdown`, `closespider_pagecount`,
    /// `closespider_timeout`, `closespider_errorcount`, `source_failed` or `sink_failed`.
    Over(&'static str),
}

/// Why a crawl cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// A setting, or two together, cannot be taken.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel refused what the back end needs.
    #[error("the kernel refused what the event loop needs: {0}")]
    Io(#[from] io::Error),
    /// The certificates are not to be used.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// A file named by a setting cannot be read.
    #[error("cannot read {path} ({setting}): {cause}")]
    Unreadable {
        /// The setting.
        setting: &'static str,
        /// The file.
        path: String,
        /// What the machine said.
        #[source]
        cause: io::Error,
    },
    /// A setting that only shows its fault here.
    #[error("{setting}: {reason}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl SetUpError {
    /// The stable name, after its family: `config`, `setting`, `ca_file.empty`, or, of what the machine
    /// refused, `io.open_files` or `file.not_found`.
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            SetUpError::Config(error) => error.code().into(),
            SetUpError::Io(error) => format!("io.{}", machine::code(error)).into(),
            SetUpError::Tls(error) => error.code().into(),
            SetUpError::Unreadable { cause, .. } => format!("file.{}", machine::code(cause)).into(),
            SetUpError::Setting { .. } => "setting".into(),
        }
    }

    /// Whether the same crawl may begin later, with nothing mended.
    pub fn is_retryable(&self) -> bool {
        match self {
            SetUpError::Io(error) => machine::passes(error),
            SetUpError::Unreadable { cause, .. } => machine::passes(cause),
            SetUpError::Config(_) | SetUpError::Tls(_) | SetUpError::Setting { .. } => false,
        }
    }
}

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
    /// it set for the next, wait until it is readable (in whatever way: level or edge), and again.
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
    /// What is called on the crawler itself between two turns (a submission, say) makes it readable.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.io.as_fd().expect("the kernel has descriptors")
    }
}

/// See [`Crawler::as_fd`].
impl AsFd for Crawler<Kernel> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        Crawler::as_fd(self)
    }
}

/// See [`Crawler::as_fd`]. For loops that know descriptors by their numbers, as tokio's `AsyncFd`: it is
/// the same one as long as the crawler lives, which is what `AsyncFd::register` has to be promised. A
/// crawler is `Send` and not `Sync`: a task that may move between threads waits by `readable_mut`, and
/// makes an `io::Error` of the error of `register`, which holds the crawler.
impl AsRawFd for Crawler<Kernel> {
    fn as_raw_fd(&self) -> RawFd {
        Crawler::as_fd(self).as_raw_fd()
    }
}

impl<I: Io> Crawler<I> {
    /// A crawler on a back end of the caller's, resolving names as it says.
    #[doc(hidden)]
    pub fn on(
        io: I,
        config: Config,
        mut resolver: resolver::Settings,
        mut parts: Parts,
    ) -> Result<Self, SetUpError> {
        let config = config.finish()?;
        let now = io.now();
        let wall = io.wall_at_start();
        let seed = config.random_seed.or(parts.entropy).unwrap_or(wall.0);
        let secret = match parts.entropy {
            Some(_) => Secret::random(),
            None => Secret::from_seed(seed),
        };
        let secret = &secret;
        let rng = Rng::from_seed(seed);
        for text in &config.resolve {
            let fixed = text.parse().map_err(|error| SetUpError::Setting {
                setting: "RESOLVE",
                reason: format!("{text:?}: {error}"),
            })?;
            resolver.overrides.push(fixed);
        }
        let tls = TlsConfig::new(&tls_settings(&config, wall)?)?;
        let guard = guard(&config)?;
        let mut throttle =
            Throttle::new(config.throttle.clone(), rng.fork("jitter").next_u64(), now);
        // Some sockets are the resolver's, and a connection may race another.
        let sockets = io.capacity();
        let kept_back = (sockets / 8).min(SOCKETS_KEPT_BACK);
        let for_requests = sockets - kept_back;
        resolver.ports_max = resolver.ports_max.min(kept_back - kept_back / 4).max(1);
        let wanted = config.throttle.concurrent_requests;
        let room = Room::new(wanted.min(for_requests));
        if wanted > room.most() {
            let bound = match config.io.sockets_max {
                max if max <= sockets => format!("SOCKETS_MAX, which is {max},"),
                _ => format!("the limit of {} open files", open_files()),
            };
            log::warn!(
                "{} is {wanted}, but {bound} leaves room for only {} in flight",
                parts.in_flight_named,
                room.most()
            );
            throttle.set_in_flight_max(room.most());
        }
        throttle.set_secret(secret);
        throttle.set_tracing(config.throttle.debug);
        let (scope_map, classify) = manager(&config, &mut parts)?;
        check_strategies(&config, &parts.strategies)?;
        throttle.set_strategies(parts.strategies);
        if let Some(initial) = parts.initial {
            throttle.set_initial(initial);
        }
        throttle.set_addresses(scope_map.wants_address());
        let frontier = Frontier::new(config.frontier.clone(), secret);
        let mut fetch = config.fetch.clone();
        fetch.zstd = fetch.zstd.or(Some(!parts.sink.keeps_codings()));
        let credentials = Credentials::new(&fetch, secret);
        let credentials = credentials.map_err(|error| SetUpError::Setting {
            setting: "DEFAULT_REQUEST_HEADERS",
            reason: error.to_string(),
        })?;
        let config = Arc::new(config);
        let waker = io.waker();
        let found = Found::new(waker.clone(), Arc::clone(&config), frontier.numbers());
        let found = Arc::new(found);
        let mut core = Core {
            now,
            inbox: Inbox::new(waker.clone(), Arc::clone(&config), frontier.numbers()),
            feed: parts.source.map(|s| Box::new(Feed::new(s, waker.clone()))),
            pieces: Pieces::new(waker),
            load: None,
            leads: Arc::<Found>::clone(&found),
            found,
            frontier,
            throttle,
            resolver: Resolver::new(resolver, rng.fork("resolver"), secret),
            tls,
            guard,
            credentials,
            public_hosts: PublicHosts::new(&config),
            pool: Pool::new(
                config.fetch.keepalive_max,
                config.fetch.keepalive_timeout,
                secret,
            ),
            ways: Ways::new(secret),
            room,
            ports: Ports::new(secret),
            outage: Outage::new(config.outage_breaker, secret),
            flights: Slab::new(),
            work: Work::default(),
            sockets: Slab::new(),
            flight_of: Vec::new(),
            deadlines: Deadlines::new(now),
            resolving: 0,
            asked: HashMap::with_hasher(*secret),
            looked_up: HashMap::with_hasher(*secret),
            dns_sockets: HashMap::with_hasher(*secret),
            unresolved: VecDeque::new(),
            secured: Vec::new(),
            parting: Vec::new(),
            paused: VecDeque::new(),
            favoured: None,
            buffered: 0,
            sink: parts.sink,
            pull: parts.results.map(Pull::new),
            disk: Vec::new(),
            classify,
            scope_map,
            mapping: Mapping::default(),
            delayed: Delayed::default(),
            crowd: Crowd::new(config.throttle.delayed_requests_warn_threshold),
            stats: Stats::new().with_secret(secret),
            phase: Phase::Running,
            halted: false,
            ending: VecDeque::new(),
            unwanted: Unwanted::default(),
            cancelled: Vec::new(),
            scratch: Vec::new(),
            spare: Spare::default(),
            #[cfg(feature = "cookies")]
            jar: config.fetch.cookies.then(|| Jar::new(secret)),
            warned: BTreeSet::new(),
            events: Vec::new(),
            sent: Vec::new(),
            seen: 0,
            next_tick: Some(now + Duration::from_secs(1)),
            stats_path: parts.stats_path,
            stats_while: parts.stats_while,
            stats_written: now,
            stats_under_way: 0,
            intake: Intake::Ready,
            storage: Storage::default(),
            memory: MemoryRoom::default(),
            armed: false,
            unfinished: true,
            config,
            io,
        };
        core.answer();
        core.compare_memory();
        Ok(Crawler { core })
    }

    /// Submits a request from the crawl's own thread; gives the number of its first attempt.
    pub fn submit(&mut self, request: Request) -> Result<u64, AdmitError> {
        let core = &mut self.core;
        if let Phase::Over { .. } = core.phase {
            return Err(AdmitError::Over);
        }
        core.wake_host();
        // The last turn may be long ago.
        core.throttle.set_clock(core.io.now());
        core.admit(&request)
    }

    /// Says something else of a scope from now on, in place of what the configuration said of it;
    /// the next gap obeys. What the scope has learned stays learned. A patch that says nothing takes
    /// back all that was said of the scope; any other is kept for as long as the crawl lasts, about
    /// a kilobyte each.
    ///
    /// The name is one of `THROTTLING_SCOPES`: a host, a scope of your own, `*.example.com`, `ip/*`,
    /// `domain/*`. `default` stands for every scope of which nothing else is said, and what such a
    /// patch does not say stays as it is there. A single scope costs some microseconds; with a pattern
    /// and with `default` all that is known of scopes is looked through, about a microsecond each.
    ///
    /// # Errors
    /// By the rules of `THROTTLING_SCOPES`: no name of a scope; a concurrency of 0 or above 65535; a delay of a hundred
    /// years or more; a quota or a rate that is no number above 0; a factor beyond its range.
    ///
    /// ```
    /// use argiope::settings::ScopePatch;
    /// use argiope::{Config, Crawler, Page};
    /// use std::time::Duration;
    ///
    /// let mut crawler = Crawler::builder(Config::default()).sink(|_: Page| {}).build()?;
    /// let slower = ScopePatch { delay: Some(Duration::from_secs(10)), ..ScopePatch::default() };
    /// crawler.set_scope("example.com", slower)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_scope(&mut self, name: &str, patch: ScopePatch) -> Result<(), ConfigError> {
        let core = &mut self.core;
        let name = core.config.check_scope(name, &patch)?;
        core.wake_host();
        core.throttle.set_scope(&name, patch, core.io.now());
        Ok(())
    }

    /// Tells what is known of a scope otherwise than from its answers: that it is exhausted, for how
    /// long nothing may depart, what remains of its quota.
    pub fn feedback(&mut self, feedback: &Feedback) {
        let core = &mut self.core;
        core.wake_host();
        core.throttle.feedback(feedback, core.io.now());
    }

    /// What submits requests from elsewhere. The crawl does not end while one lives.
    pub fn handle(&self) -> Handle {
        if self.core.inbox.is_closed() {
            self.core.answer();
        }
        self.core.inbox.handle()
    }

    /// What stops the crawl from elsewhere.
    pub fn stopper(&self) -> Stopper {
        self.core.inbox.stopper()
    }

    /// Runs to the end; gives the reason for it. Where there is no sink its results are dropped, for
    /// nobody could take them meanwhile.
    pub fn run(&mut self) -> &'static str {
        if let Some(pull) = &self.core.pull {
            pull.give_up();
        }
        loop {
            if let Turn::Over(reason) = self.turn(None) {
                return reason;
            }
        }
    }

    /// One turn: waits for news, at most for `patience` (for ever, if `None`), and does what there is
    /// to do, as far as that takes a millisecond or so. Without any patience it does not wait, goes on
    /// with what comes in that millisecond, and leaves the [descriptor](Crawler::as_fd) set for a
    /// host's own wait.
    ///
    /// Turns may be taken by one thread after the other. What the kernel does by the thread (the
    /// slack of timers, `TIMER_SLACK`; the account of waits for a processor; on io_uring, receiving)
    /// belongs to whichever took the last turn. The thread before it keeps its timer slack, and may
    /// see one wait of its own broken off (EINTR) when an io_uring leaves it.
    pub fn turn(&mut self, patience: Option<Duration>) -> Turn {
        if let Phase::Over { reason } = self.core.phase {
            return Turn::Over(reason);
        }
        let until = patience.map(|patience| self.core.io.now() + patience);
        if patience == Some(Duration::ZERO) {
            self.core.turn_for_host();
        } else {
            self.core.turn(until);
        }
        match self.core.phase {
            Phase::Over { reason } => Turn::Over(reason),
            _ => Turn::GoesOn,
        }
    }

    /// What was measured so far.
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// How far the crawl has come.
    pub fn progress(&self) -> Progress {
        self.core.progress()
    }

    /// How the scopes were paced so far, and what is to be said of them. Looks at every scope that
    /// there is an account of, some thousands at most.
    pub fn pacing(&self) -> Pacing {
        self.core.pacing(MOST)
    }

    /// The result that could not be written, after `sink_failed`.
    pub fn write_error(&self) -> Option<&WriteError> {
        self.core.sink.failure()
    }

    /// Why the source gave no more, after `source_failed`.
    pub fn source_error(&self) -> Option<&SourceError> {
        self.core.feed.as_ref()?.failure()
    }

    /// What was still to be fetched when the crawl ended early, in order of admission. Of what was
    /// submitted by a [`Handle`], only what has had no final page; of what was submitted otherwise,
    /// and of links, also what was cancelled on its way; before all of these, what the sink could not
    /// write ([`Sink::take_unwritten`]). A [`Source`] has heard of its own, which are not
    /// among them. What is not taken goes with the crawler.
    pub fn take_pending(&mut self) -> impl Iterator<Item = Pending> + '_ {
        self.core.take_pending()
    }

    /// The back end: for tests that look into a simulated one.
    #[doc(hidden)]
    pub fn io(&self) -> &I {
        &self.core.io
    }

    /// The configuration it runs under.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// When the crawl began, and now, on its own clock.
    pub fn elapsed(&self) -> Duration {
        self.core.now.saturating_since(Instant::START)
    }
}

/// Sockets that no request takes: three quarters for the ports of the resolver, the rest for its
/// connections and for the second address of a race.
const SOCKETS_KEPT_BACK: usize = 640;

fn tls_settings(config: &Config, wall: crate::base::time::Wall) -> Result<TlsSettings, SetUpError> {
    let mut settings = TlsSettings::new(wall);
    settings.insecure = config.insecure;
    if let Some(path) = &config.ca_file {
        let name = path.display().to_string();
        let pem = std::fs::read(path).map_err(|cause| SetUpError::Unreadable {
            setting: "CA_FILE",
            path: name.clone(),
            cause,
        })?;
        settings.ca_file = Some(CaFile { name, pem });
    }
    Ok(settings)
}

fn guard(config: &Config) -> Result<Guard, SetUpError> {
    let mut allowed = address::Guard::default();
    for word in &config.allow_net {
        allowed.allow(word).map_err(|error| SetUpError::Setting {
            setting: "ALLOW_NET",
            reason: format!("{word:?}: {error}"),
        })?;
    }
    let excluded = config
        .exclude_nets
        .iter()
        .map(|text| {
            text.parse().map_err(|error| SetUpError::Setting {
                setting: "EXCLUDE",
                reason: format!("{text:?}: {error}"),
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Guard::new(allowed, excluded))
}

/// Who maps scopes and reads answers: whom the embedder brought, whom the configuration names, or
/// what is built in.
fn manager(config: &Config, parts: &mut Parts) -> Result<NamedManager, SetUpError> {
    let built_in = || MapKind::map_of(&config.throttle.scope_map);
    let named = match &config.throttle.manager {
        None => None,
        Some(manager) => {
            let known = parts.managers.remove(&manager.name);
            let names: Vec<&str> = parts.managers.keys().map(String::as_str).collect();
            let refused = |reason: String| SetUpError::Setting {
                setting: "THROTTLING_MANAGER",
                reason,
            };
            if let Some(key) = manager.arguments.keys().next() {
                return Err(refused(format!(
                    "a manager takes no arguments, and {key:?} is one"
                )));
            }
            let known = known.ok_or_else(|| {
                refused(format!(
                    "no manager is registered as {:?} ({}); it is for programs that embed the crawler",
                    manager.name,
                    match names.is_empty() {
                        true => "none is".to_owned(),
                        false => format!("there is {}", names.join(", ")),
                    }
                ))
            })?;
            Some(known)
        }
    };
    let (map, classify) = match named {
        Some((map, classify)) => (Some(map), Some(classify)),
        None => (None, None),
    };
    Ok((
        parts.scope_map.take().or(map).unwrap_or_else(built_in),
        parts
            .classify
            .take()
            .or(classify)
            .unwrap_or_else(|| Box::new(ByStatus)),
    ))
}

/// Whether every strategy that the configuration names can be made.
fn check_strategies(config: &Config, strategies: &Strategies) -> Result<(), SetUpError> {
    let settings = &config.throttle;
    let refused = |setting, reason| SetUpError::Setting { setting, reason };
    if let Some(manager) = &settings.default.manager {
        let checked = strategies.check("", manager);
        checked.map_err(|reason| refused("THROTTLING_SCOPE_MANAGER", reason))?;
    }
    for scope in settings.scopes.keys() {
        if let Some(manager) = &settings.of(scope).manager {
            let checked = strategies.check(scope, manager);
            let reason = |reason| format!("{scope}: {reason}");
            checked.map_err(|error| refused("THROTTLING_SCOPES", reason(error)))?;
        }
    }
    Ok(())
}
