//! Puts the parts of a crawl together.

use std::sync::Arc;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::time::Wall;
use crate::crawl::classifier::Classifier;
use crate::crawl::config::Config;
#[cfg(feature = "cookies")]
use crate::crawl::config::SettingSource;
use crate::crawl::control::Control;
use crate::crawl::core::Core;
use crate::crawl::core::orders::Orders;
use crate::crawl::flights::Flights;
use crate::crawl::journal::state::State;
use crate::crawl::journal::{Journal, departures};
use crate::crawl::network::Network;
use crate::crawl::network::guard::Guard;
use crate::crawl::network::names::Names;
use crate::crawl::network::room::Room;
use crate::crawl::outage::Outage;
use crate::crawl::output::{Output, StatsFile};
use crate::crawl::overrides::Overrides;
use crate::crawl::pages::Pages;
use crate::crawl::requests::Requests;
use crate::crawl::set_up::{Parts, SetUpError};
use crate::crawl::spill::Spill;
use crate::crawl::stats::Stats;
use crate::crawl::steering::Steering;
use crate::crawl::timer::Wakeups;
use crate::crawl::work::Work;
use crate::crawl::work::memory::check_limit;
use crate::crawl::workload::Workload;
use crate::fetch::resolver;
use crate::fetch::resolver::Resolver;
use crate::fetch::tls::{CaFile, TlsConfig, TlsSettings};
use crate::frontier::{ActiveLimits, Frontier};
use crate::io::{Io, open_files};
use crate::throttle::engine::Throttle;
use crate::throttle::map::ScopeMap;
use crate::throttle::settings::{MapKind, ThrottleSettings};
use crate::throttle::signal::Classify;
use crate::throttle::strategies::Strategies;

impl<I: Io> Core<I> {
    /// The state of a crawl that begins now, on a back end, with these resolver settings.
    ///
    /// # Errors
    /// A setting, or a file that one names, cannot be used.
    pub fn new(
        mut io: I,
        config: Config,
        mut resolver: resolver::ResolverSettings,
        mut parts: Parts,
    ) -> Result<Self, SetUpError> {
        let mut config = config.finish()?;
        if config.frontier.queued_max == 0 && parts.state.is_none() {
            config.frontier.queued_max = QUEUED_MAX;
        }
        let now = io.now();
        let wall = io.wall_at_start();
        let seed = config.random_seed.or(parts.entropy).unwrap_or(wall.0);
        let secret = match parts.entropy {
            Some(_) => Secret::random(),
            None => Secret::from_seed(seed),
        };
        let earlier = parts.state.as_ref().map(State::keys);
        let secret = &match earlier.or(parts.keys) {
            Some(keys) => secret.with_keys(keys),
            None => secret,
        };
        let rng = Rng::from_seed(seed);
        for text in &config.resolve {
            let fixed = text.parse().map_err(|error| SetUpError::Setting {
                setting: "RESOLVE",
                reason: format!("{text:?}: {error}"),
            })?;
            resolver.overrides.push(fixed);
        }
        let mut tls = tls_settings(&config, wall)?;
        if let Some(every) = parts.watched_every {
            resolver.retry_within((every / 2).clamp(NAMES_RETRIED_MIN, NAMES_RETRIED_MAX));
            tls.chain_age_max = Some(CHAIN_AGE_MAX);
        }
        let tls = TlsConfig::new(&tls)?;
        let guard = Guard::of(&config)?;
        let throttle_settings = ThrottleSettings {
            started: io.wall_at_start(),
            ..config.throttle.clone()
        };
        let mut throttle = Throttle::new(throttle_settings, rng.fork("jitter").next_u64(), now);
        // Some sockets are reserved for the resolver and for racing connections.
        let sockets = io.capacity();
        let for_requests = sockets_for_requests(sockets);
        let kept_back = sockets - for_requests;
        resolver.ports_max = resolver.ports_max.min(kept_back - kept_back / 4).max(1);
        let wanted = config.throttle.concurrent_requests;
        let room = Room::new(wanted.min(for_requests));
        if wanted > room.most() {
            let bound = match config.io.sockets_max {
                max if max <= sockets => format!("SOCKETS_MAX, which is {max},"),
                _ => format!("the limit of {} open files", open_files()),
            };
            log::warn!(
                "{} is {wanted}, but {bound} allows only {} requests in flight",
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
        let mut frontier = Frontier::new(config.frontier.clone(), secret);
        if parts.state.is_some() {
            let memory_max = config.frontier.seen_memory_max;
            frontier.seen_mut().set_memory_max(memory_max);
        }
        let kept = config.fetch.keepalive_max;
        frontier.limit_active(active_limits(room.most(), for_requests, kept));
        let mut fetch = config.fetch.clone();
        fetch.zstd = fetch.zstd.or(Some(!parts.sink.keeps_codings()));
        let config = Arc::new(config);
        let requests = Requests::new(&config, &fetch, secret);
        let requests = requests.map_err(|error| SetUpError::Setting {
            setting: "DEFAULT_REQUEST_HEADERS",
            reason: error.to_string(),
        })?;
        let waker = io.waker();
        let control = Control::new(
            &config,
            parts.source,
            parts.ahead_max,
            &frontier.numbers(),
            waker,
        );
        let resolver = Resolver::new(resolver, rng.fork("resolver"), secret);
        let names = Names::new(resolver, guard, secret);
        check_limit(io.memory(), &config);
        let last = parts.state.as_ref().and_then(State::commit).cloned();
        let (journal, spill, restored) = match parts.state {
            None => (Journal::none(), Spill::none(), None),
            Some(state) => {
                let name = departures::name_of(state.start.crawl);
                let mut journal = Journal::new(state.start, config.state_sync, now);
                match io.shared_memory(&name, departures::WORDS) {
                    Ok(memory) => journal.set_memory(memory),
                    Err(error) => log::info!(
                        "{name} in shared memory cannot be used: after a kill, \"refetched\" may be missing of \
                         requests of the last 5 ms: {error}"
                    ),
                }
                let spill = Spill::new(state.spill, config.frontier.memory_max);
                (journal, spill, state.restored)
            }
        };
        let mut core = Core {
            network: Network::new(io, Arc::clone(&config), tls, names, room, secret, now),
            now,
            wakeups: Wakeups::new(now),
            control,
            workload: Workload::crawl(),
            work: Work::new(scope_map, config.throttle.delayed_requests_warn_threshold),
            frontier,
            requests,
            throttle,
            outage: Outage::new(config.outage_breaker, secret),
            flights: Flights::default(),
            pages: Pages::new(config.io.workers > 0),
            output: Output::new(
                parts.sink,
                parts.results,
                Stats::new().with_secret(secret),
                StatsFile::new(parts.stats_path, parts.stats_while, now),
            ),
            journal,
            spill,
            orders: Orders::default(),
            overrides: Overrides::new(Arc::clone(&config)),
            steering: Steering::default(),
            classifier: Classifier::new(classify, wall),
            config,
        };
        if core.journal.is_on() {
            core.output.keep_unacknowledged();
            core.control.wait_for_commits();
            core.throttle.save_scopes();
            core.frontier.start_saving();
            #[cfg(feature = "cookies")]
            core.requests.start_saving();
        }
        #[cfg(feature = "cookies")]
        let of_earlier_run = restored.is_some()
            && matches!(core.config.source("COOKIES_FILE"), SettingSource::Preset(_));
        #[cfg(feature = "cookies")]
        if of_earlier_run {
            load_cookies(&mut core.requests, &core.config, wall.at(now), now, true)?;
        }
        if let Some(restored) = restored {
            core.output.resume(last.as_ref());
            let log = core.output.run_log_mut();
            log.is_resumed = true;
            log.committed = restored.commit.as_ref().map(|commit| Wall(commit.at));
            core.restore(restored);
        }
        // Those of a file that this run is given replace the saved ones.
        #[cfg(feature = "cookies")]
        if !of_earlier_run {
            load_cookies(&mut core.requests, &core.config, wall.at(now), now, false)?;
        }
        core.answer_handles();
        Ok(core)
    }
}

/// Lanes that are active although others may be released: as many as requests may be in flight, as far as their
/// connections can be kept, and no more than this. Otherwise the first pages of hosts would come late behind
/// the robots.txt of others.
const ACTIVE_MAX: usize = 4096;

/// `FRONTIER_MAX` of a crawl whose requests are all in memory.
const QUEUED_MAX: usize = 10_000_000;

/// How long after the beginning of its lookup a name without addresses is not looked up anew where targets are watched:
/// half the time to the next request, so that this one looks it up, but not longer than this.
const NAMES_RETRIED_MAX: Duration = Duration::from_secs(30);

/// And not shorter than this: name servers are not the user's alone.
const NAMES_RETRIED_MIN: Duration = Duration::from_millis(500);

/// A watched target shows its certificates so often: resumed sessions do not.
const CHAIN_AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// Sockets that no request takes: three quarters for the ports of the resolver, the rest for its
/// connections and for the second address of a race.
const SOCKETS_KEPT_BACK: usize = 640;

/// Sockets that requests may take, of so many.
pub fn sockets_for_requests(sockets: usize) -> usize {
    sockets - (sockets / 8).min(SOCKETS_KEPT_BACK)
}

/// The bounds of active lanes, where `most` requests may be in flight and `kept` connections idle.
pub fn active_limits(most: usize, for_requests: usize, kept: usize) -> ActiveLimits {
    let kept = kept.min(for_requests);
    ActiveLimits {
        lanes: most.min(ACTIVE_MAX).min(match kept {
            0 => usize::MAX,
            kept => kept,
        }),
        files: for_requests,
        kept,
    }
}

/// Adds the cookies of `COOKIES_FILE`. `of_earlier_run`: that run was given the file, whose cookies may have expired.
#[cfg(feature = "cookies")]
fn load_cookies(
    requests: &mut Requests,
    config: &Config,
    wall: Wall,
    now: crate::base::time::Instant,
    of_earlier_run: bool,
) -> Result<(), SetUpError> {
    let Some(path) = &config.cookies_file else {
        return Ok(());
    };
    let setting = "COOKIES_FILE";
    let shown = path.display();
    let read = match std::fs::read(path) {
        Ok(read) => read,
        // The state has the cookies of the earlier run, and newer ones.
        Err(cause) if of_earlier_run => {
            log::warn!("cannot read {shown} ({setting}): {cause}; the saved cookies are sent");
            return Ok(());
        }
        Err(cause) => {
            return Err(SetUpError::Unreadable {
                setting,
                path: path.clone(),
                cause,
            });
        }
    };
    let refused = |reason: String| SetUpError::Setting {
        setting,
        reason: format!("{shown}: {reason}"),
    };
    let Ok(text) = String::from_utf8(read) else {
        let what = "it is not UTF-8 text; give a file of cookies";
        if of_earlier_run {
            log::warn!("{shown} ({setting}): {what}; the saved cookies are sent");
            return Ok(());
        }
        return Err(refused(what.to_owned()));
    };
    let Some(file) = requests.load_cookies(&text, wall, now) else {
        return Ok(());
    };
    if file.kept == 0 {
        let what = match (file.refused.first(), file.expired) {
            (Some(first), _) => format!("{} at line or entry {}", first.why, first.place),
            (None, 0) => "it is empty".to_owned(),
            (None, expired) => format!("all {expired} have expired"),
        };
        let advice = "give a file as curl -c and wget --save-cookies write it";
        let what = format!("it has no cookie that can be sent: {what}; {advice}");
        if !of_earlier_run {
            return Err(refused(what));
        }
        log::warn!("{shown} ({setting}): {what}");
    }
    if let (Some(first), 1..) = (file.refused.first(), file.kept) {
        log::warn!(
            "{shown} ({setting}): {} lines or entries are left out; the first is {}: {}",
            file.refused.len(),
            first.place,
            first.why
        );
    }
    if file.dropped > 0 {
        log::warn!(
            "{shown} ({setting}): {} cookies are left out: at most {} of a domain and {} in all are kept, the last of \
             the file",
            file.dropped,
            file.bounds.per_domain,
            file.bounds.in_all
        );
    }
    Ok(())
}

fn tls_settings(config: &Config, wall: Wall) -> Result<TlsSettings, SetUpError> {
    let mut settings = TlsSettings::new(wall);
    settings.insecure = config.insecure;
    settings.sessions_memory = config.tls_sessions_memory;
    if let Some(path) = &config.ca_file {
        let name = path.display().to_string();
        let pem = std::fs::read(path).map_err(|cause| SetUpError::Unreadable {
            setting: "CA_FILE",
            path: path.clone(),
            cause,
        })?;
        settings.ca_file = Some(CaFile { name, pem });
    }
    Ok(settings)
}

/// A scope map, and a `Classify` unless it is the built-in one.
type Manager = (Box<dyn ScopeMap>, Option<Box<dyn Classify>>);

/// The scope map and the `Classify`: those of the embedder, those that the configuration names, or the
/// built-in ones.
fn manager(config: &Config, parts: &mut Parts) -> Result<Manager, SetUpError> {
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
                    "manager takes no arguments (got {key:?}); remove it"
                )));
            }
            let known = known.ok_or_else(|| {
                refused(format!(
                    "unknown manager {:?} (registered: {}); only programs that embed the crawler can register one",
                    manager.name,
                    match names.is_empty() {
                        true => "none".to_owned(),
                        false => names.join(", "),
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
        parts.classify.take().or(classify),
    ))
}

/// Checks that every strategy that the configuration names can be created.
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
