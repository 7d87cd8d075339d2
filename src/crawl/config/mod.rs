//! Configuration of a crawl: the settings of all floors, each with its source.

mod changes;
mod contact;
mod error;
mod exclusion;
mod choices;
mod form;
mod hosts;
mod net;
mod order;
mod preset;
mod quantity;
mod scopes;
mod setters;
mod table;
mod throttling;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

pub(in crate::crawl) use self::changes::Change;
pub use self::contact::{HostsBound, Lack, PublicHosts};
pub use self::error::{ConfigError, Problem, SettingSource};
use self::error::{UNKNOWN_KEY, nearest};
pub use self::net::EVERY_ORIGIN;
pub(in crate::crawl) use self::order::ScopeOrder;
pub use self::preset::{Preset, presets};
pub use self::quantity::interval_of_rate;
pub(in crate::crawl) use self::scopes::{DEFAULT_ENTRY, patch_text};
pub use self::table::{Setting, settings};
pub use self::value::SettingValue;

pub use crate::io::BackEnd;

use self::form::Form;
use self::net::{Agent, is_net, product_token};
use self::quantity::{AboveOne, AboveZero, BelowOne, Delay};
use self::scopes::Scopes;
use crate::fetch::settings::FetchSettings;
use crate::frontier::settings::FrontierSettings;
use crate::io::IoSettings;
use crate::sink::files::Rotation;
use crate::throttle::map::{MapKind, ScopeQuery};
use crate::throttle::settings::{
    ADDRESSES, AutoThrottle, AutoThrottlePatch, BasePace, DOMAINS, LatencyFrom, Oversize, Rampup,
    RampupPatch, ScopePatch, ScopeSettings, ThrottleSettings, WindowKind,
};
use crate::wire::html::fields::Extraction;
use crate::wire::proxy::Route;
use crate::wire::url::{CrawlUrl, Host};

/// Configuration of a crawl.
///
/// [`Config::with`] and [`Config::set`] set a setting by name, record its source, and update the
/// settings derived from it; the commonest have [typed setters](#typed-setters). [`Config::finish`] checks all
/// settings together; a crawler calls it before it starts.
///
/// ```
/// use argiope::Config;
/// use std::time::Duration;
///
/// let config = Config::default()
///     .download_delay(Duration::from_millis(250))
///     .concurrent_requests(16)
///     .with("KEEPALIVE_MAX", 100)?;
/// assert_eq!(config.throttle().usual().delay.as_millis(), 250);
/// assert!(Config::default().with("DOWNLOAD_DELAY", "soon").is_err());
/// # Ok::<(), argiope::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of throttling: the pace of each scope.
    pub(crate) throttle: ThrottleSettings,
    /// Settings of fetching a page.
    pub(crate) fetch: FetchSettings,
    /// Settings of the frontier: what is fetched and what is filtered.
    pub(crate) frontier: FrontierSettings,
    /// Settings of the back end.
    pub(crate) io: IoSettings,
    /// `IO`: the back end.
    pub(crate) back_end: BackEnd,
    /// `DNS_SERVERS`: name servers; empty: those of `/etc/resolv.conf`.
    pub(crate) dns_servers: Vec<SocketAddr>,
    /// `RESOLVE`: address overrides, each `HOST:PORT:ADDR`.
    pub(crate) resolve: Vec<String>,
    /// `ALLOW_NET`: networks allowed in addition to globally routable addresses: CIDRs, or the
    /// words `loopback` and `private`.
    pub(crate) allow_net: Vec<String>,
    /// The CIDRs of `EXCLUDE`: excluded networks; also applied to resolved addresses.
    pub(crate) exclude_nets: Vec<String>,
    /// `CA_FILE`: certificates trusted in addition to webpki-roots, as PEM.
    pub(crate) ca_file: Option<PathBuf>,
    /// `COOKIES_FILE`: cookies that are sent from the beginning.
    pub(crate) cookies_file: Option<PathBuf>,
    /// `INSECURE`: certificates are not verified.
    pub(crate) insecure: bool,
    /// `TLS_SESSIONS_MEMORY`: bytes of TLS sessions that are kept for resumption.
    pub(crate) tls_sessions_memory: u64,
    /// `CONTACT`: URL or mail address of the crawl's operator. `fetch.user_agent` includes it.
    pub(crate) contact: Option<String>,
    /// `ROBOTSTXT_IGNORED_HOSTS_MAX`: most public hosts without `ROBOTSTXT_OBEY`; 0: no limit.
    pub(crate) robots_ignored_hosts_max: usize,
    /// `BUFFERED_BODIES_MAX`: bytes of all bodies in memory; at the bound, reading pauses.
    pub(crate) buffered_bodies_max: u64,
    /// `BYTES_PER_SECOND_MAX`: bytes received per second; 0: no limit.
    pub(crate) bytes_per_second_max: u64,
    /// `STOP_GRACE`: how long a stopping crawl waits for the requests in flight.
    pub(crate) stop_grace: Duration,
    /// `OUTAGE_BREAKER`: pauses the crawl during an outage of the local network or of the name
    /// servers; no request is lost. An outage is assumed when eight hosts on different networks fail
    /// and no other host answers.
    pub(crate) outage_breaker: bool,
    /// `CLOSESPIDER_TIMEOUT` and `--max-time`: the time after which the crawl ends.
    pub(crate) max_time: Option<Duration>,
    /// `STATE`: what is still to be fetched is kept on disk.
    pub(crate) state: bool,
    /// `STATE_SYNC`: interval of commits.
    pub(crate) state_sync: Duration,
    /// `WARC`: exchanges are written to WARC files.
    pub(crate) warc: bool,
    /// `WARC_SIZE_MAX`: bytes after which a new WARC file is started.
    pub(crate) warc_size_max: u64,
    /// `WARC_CDXJ`: closed WARC files get an index.
    pub(crate) warc_cdxj: bool,
    /// `RESULTS_SIZE_MAX`, `RESULTS_TIME_MAX`, `RESULTS_COMPRESSION`: files of result lines.
    pub(crate) rotation: Rotation,
    /// `LINKS_FILE`: the links of pages are written to a file of their own.
    pub(crate) links_file: bool,
    /// `EXTRACT`: fields that are extracted from HTML pages.
    pub(crate) extraction: Extraction,
    /// `FILTERED_FILE`: the links that filters leave out are written to a file of their own.
    pub(crate) filtered_file: bool,
    /// `METRICS_SCOPES_MAX`: most scopes with metrics of their own.
    pub(crate) metrics_scopes_max: usize,
    /// `RANDOM_SEED`: random seed; `None`: seeded by the system.
    pub(crate) random_seed: Option<u64>,
    /// Values given for settings that are derived from others.
    given: Given,
    /// Source of each setting; one that was not set is absent.
    sources: BTreeMap<&'static str, SettingSource>,
    /// The first value of a typed setter that was refused.
    refused: Option<Box<ConfigError>>,
}

/// Most helper threads: more than there are cores only wait for each other.
const WORKERS_MAX: usize = 1024;

/// Parses a duration in the syntax of settings and flags: `0.5` (seconds), `500ms`, `10s`, `2h`.
///
/// # Errors
/// Not a duration, negative, or longer than 100 years.
pub fn span(text: &str) -> Result<Duration, Problem> {
    Delay::read(&text.into())
}

/// Values as given, from which [`Config::derive`] computes the effective ones.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    concurrency: Option<u32>,
    delay: Option<Duration>,
    delay_per_slot: Option<Duration>,
    autothrottle: bool,
    autothrottle_settings: AutoThrottle,
    latency_from: Option<LatencyFrom>,
    /// The other defaults of all scopes.
    base: ScopeSettings,
    rampup: Rampup,
    window: Duration,
    window_kind: WindowKind,
    oversize: Oversize,
    domains: Option<ScopePatch>,
    addresses: Option<ScopePatch>,
    scopes: BTreeMap<String, ScopePatch>,
    slots: BTreeMap<String, ScopePatch>,
    user_agent: String,
    contact: Option<String>,
    robots_agent: Option<String>,
    exclude: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        let throttle = ThrottleSettings::default();
        let fetch = FetchSettings::default();
        let given = Given {
            concurrency: None,
            delay: None,
            delay_per_slot: None,
            autothrottle: false,
            autothrottle_settings: throttle.autothrottle.clone(),
            latency_from: throttle.latency_from,
            base: throttle.default.clone(),
            rampup: throttle.rampup.clone(),
            window: throttle.window,
            window_kind: throttle.window_kind,
            oversize: throttle.oversize,
            domains: None,
            addresses: None,
            scopes: scopes::raw_patches(&throttle.scopes),
            slots: BTreeMap::new(),
            user_agent: fetch.user_agent.clone(),
            contact: None,
            robots_agent: None,
            exclude: Vec::new(),
        };
        Config {
            throttle,
            fetch,
            frontier: FrontierSettings::default(),
            io: IoSettings::default(),
            back_end: BackEnd::Auto,
            dns_servers: Vec::new(),
            resolve: Vec::new(),
            allow_net: Vec::new(),
            exclude_nets: Vec::new(),
            ca_file: None,
            cookies_file: None,
            insecure: false,
            tls_sessions_memory: 512 << 20,
            contact: None,
            robots_ignored_hosts_max: 0,
            // 50 bodies of the largest size, or 100 000 of the usual size.
            buffered_bodies_max: 512 * 1024 * 1024,
            bytes_per_second_max: 0,
            outage_breaker: true,
            // Below the 30 s that service managers and clusters commonly wait before they kill.
            stop_grace: Duration::from_secs(25),
            state: true,
            state_sync: Duration::from_secs(1),
            max_time: None,
            warc: true,
            // The size that WARC's guidelines recommend.
            warc_size_max: 1024 * 1024 * 1024,
            // What readers of archives need. It takes a second processor for some seconds per file, if there is one
            // to spare.
            warc_cdxj: true,
            // One file that can be read while it is written: nothing else is expected.
            rotation: Rotation::default(),
            // Ten times as long as the result lines.
            links_file: false,
            extraction: Extraction::default(),
            // Of a crawl that stays on its hosts, most links.
            filtered_file: false,
            // Enough to find the hosts that hold a crawl up; each has six series.
            metrics_scopes_max: 20,
            random_seed: None,
            given,
            sources: BTreeMap::new(),
            refused: None,
        }
    }
}

impl Config {
    /// Returns the configuration with one setting changed; its source is [`SettingSource::Program`].
    ///
    /// # Errors
    /// Unknown setting, or a value that it does not accept.
    pub fn with(mut self, name: &str, value: impl Into<SettingValue>) -> Result<Self, ConfigError> {
        self.set(name, value, SettingSource::Program)?;
        Ok(self)
    }

    /// Sets a setting, unless a source of higher precedence has set it.
    ///
    /// Names are case-insensitive. The value is checked even if a source of higher precedence
    /// overrides it; an error leaves the configuration unchanged.
    ///
    /// # Errors
    /// Unknown setting, or a value that it does not accept.
    pub fn set(
        &mut self,
        name: &str,
        value: impl Into<SettingValue>,
        source: SettingSource,
    ) -> Result<(), ConfigError> {
        self.set_json(name, value.into().as_json(), source)
    }

    fn set_json(
        &mut self,
        name: &str,
        value: &Value,
        source: SettingSource,
    ) -> Result<(), ConfigError> {
        let setting = match table::find(name) {
            Ok(setting) => setting,
            Err(mut problem) => {
                if value.is_object() && !mend_table(&mut problem, name) {
                    problem.mend =
                        format!("settings stand above the first [table]: leave out [{name}]");
                }
                return Err(problem.at(source, name));
            }
        };
        let mut changed = self.clone();
        if let Err(mut problem) = (setting.write)(&mut changed, value) {
            mend_misplaced(&mut problem, setting.name);
            return Err(problem.at(source, setting.name));
        }
        let before = self
            .sources
            .get(setting.name)
            .unwrap_or(&SettingSource::Default);
        if source.rank() >= before.rank() {
            if changed.given != self.given {
                changed.derive();
            }
            if !changed.extraction.is_empty() {
                // It takes longer than a turn of the crawl's thread may.
                changed.io.workers = changed.io.workers.max(1);
            }
            changed.sources.insert(setting.name, source);
            *self = changed;
        }
        Ok(())
    }

    /// Sets the settings of a preset, except those that a source of higher precedence has set.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no preset of this name.
    pub fn preset(&mut self, name: &str) -> Result<(), ConfigError> {
        let preset = preset::find(name)
            .map_err(|problem| problem.at(SettingSource::Flag("--preset".to_owned()), name))?;
        for (setting, value) in preset.values {
            let source = SettingSource::Preset(preset.name.to_owned());
            self.set(setting, *value, source)?;
        }
        Ok(())
    }

    /// The current value of a setting, unredacted: `PROXY` includes its password. `None` for an
    /// unknown setting.
    pub fn get(&self, name: &str) -> Option<SettingValue> {
        let setting = table::find(name).ok()?;
        Some((setting.read)(self).into())
    }

    /// The throttle settings, for use with [`parts::Throttle`](crate::parts::Throttle).
    pub fn throttle(&self) -> &ThrottleSettings {
        &self.throttle
    }

    /// The names of the scopes that `SCOPE_MAP` and `CONCURRENT_REQUESTS_PER_IP` give a URL. That of its
    /// address is known only if its host is one.
    pub fn scopes_of(&self, url: &CrawlUrl) -> Vec<String> {
        let map = MapKind::map_of(&self.throttle.scope_map);
        let mut query = ScopeQuery::about(url);
        map.scopes(&mut query);
        let mut names: Vec<_> = query.into_scopes().names().map(str::to_owned).collect();
        let by_address = map.wants_address() || self.throttle.concurrent_requests_per_ip > 0;
        if let Host::Address(address) = url.host()
            && by_address
        {
            names.push(format!("ip/{address}"));
        }
        names
    }

    #[doc(hidden)]
    pub fn fetch(&self) -> &FetchSettings {
        &self.fetch
    }

    #[doc(hidden)]
    pub fn frontier(&self) -> &FrontierSettings {
        &self.frontier
    }

    #[doc(hidden)]
    pub fn io(&self) -> &IoSettings {
        &self.io
    }

    #[doc(hidden)]
    pub fn extraction(&self) -> &Extraction {
        &self.extraction
    }

    /// `STOP_GRACE`: how long a stopping crawl waits for the requests in flight.
    pub fn stop_grace(&self) -> Duration {
        self.stop_grace
    }

    /// `WARC_SIZE_MAX`: bytes after which a new WARC file is started; `None` if `WARC` is off.
    pub fn warc_size_max(&self) -> Option<u64> {
        self.warc.then_some(self.warc_size_max)
    }

    /// `WARC_CDXJ`: closed WARC files get an index.
    pub fn warc_cdxj(&self) -> bool {
        self.warc_cdxj
    }

    /// `RESULTS_SIZE_MAX`, `RESULTS_TIME_MAX` and `RESULTS_COMPRESSION`: when a file of result lines is closed and
    /// another begun, and how they are compressed.
    pub fn rotation(&self) -> Rotation {
        self.rotation
    }

    /// `LINKS_FILE`: whether the links of pages are written to a file of their own.
    pub fn links_file(&self) -> bool {
        self.links_file
    }

    /// `FILTERED_FILE`: whether the links that filters leave out are written to a file of their own.
    pub fn filtered_file(&self) -> bool {
        self.filtered_file
    }

    /// A value for display: without the passwords of `PROXY` and `HTTP_USER`, and without the credentials, proxy
    /// passwords and header values of `HOSTS`. `None` for an unknown setting.
    pub fn shown(&self, name: &str) -> Option<SettingValue> {
        let setting = table::find(name).ok()?;
        let frontier = &self.frontier;
        let shown = match setting.name {
            "PROXY" => (frontier.proxies.usual.as_ref()).map(|proxy| proxy.to_shown_url().into()),
            "PROXY_HTTPS" => match &frontier.proxies.https {
                Some(Route::Proxy(proxy)) => Some(proxy.to_shown_url().into()),
                _ => None,
            },
            "HTTP_USER" => self.fetch.user.as_ref().map(hosts::shown_login),
            "HOSTS" => Some(hosts::shown(&frontier.own_hosts)),
            _ => None,
        };
        Some(shown.unwrap_or_else(|| (setting.read)(self)).into())
    }

    /// Whether cookies are kept: `COOKIES_ENABLED`, or `COOKIES_FILE` has some.
    #[cfg(feature = "cookies")]
    pub(crate) fn has_cookies(&self) -> bool {
        self.fetch.cookies || self.cookies_file.is_some()
    }

    /// `INSECURE`: whether certificates are not verified.
    pub fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Source of the current value of a setting.
    pub fn source(&self, name: &str) -> &SettingSource {
        let Ok(setting) = table::find(name) else {
            return &SettingSource::Default;
        };
        let set_by_entry = setting.scope_key.is_some_and(|key| self.sets_default(key));
        let name = match set_by_entry {
            true => "THROTTLING_SCOPES",
            false => setting.name,
        };
        self.sources.get(name).unwrap_or(&SettingSource::Default)
    }

    /// Whether the entry [`DEFAULT_ENTRY`] of `THROTTLING_SCOPES` sets this key.
    fn sets_default(&self, key: &str) -> bool {
        let scopes = Scopes::write(&self.given.scopes);
        let path = format!("/{DEFAULT_ENTRY}/{}", key.replace('.', "/"));
        scopes.pointer(&path).is_some()
    }

    /// Checks all settings together, and sets those that depend on the machine. A crawler calls this
    /// before it starts.
    ///
    /// # Errors
    /// A typed setter was given a value that its setting does not accept, or two settings contradict each other.
    pub fn finish(mut self) -> Result<Config, ConfigError> {
        if let Some(refused) = self.refused.take() {
            return Err(*refused);
        }
        let mut scratch = self.clone();
        for setting in settings() {
            (setting.write)(&mut scratch, &(setting.read)(&self))
                .map_err(|problem| self.blame(problem, setting.name))?;
        }
        // The derived scopes may have been written directly since they were derived.
        Scopes::read(&Scopes::write(&self.throttle.scopes))
            .map_err(|problem| self.blame(problem, "THROTTLING_SCOPES"))?;
        self.check_paces()?;
        self.check_hosts()?;
        Agent::read(&self.fetch.user_agent.as_str().into())
            .map_err(|problem| self.blame(problem, "USER_AGENT"))?;
        if self.fetch.body_max > self.buffered_bodies_max {
            let problem = Problem::new(
                "DOWNLOAD_MAXSIZE is larger than BUFFERED_BODIES_MAX",
                "lower DOWNLOAD_MAXSIZE or raise BUFFERED_BODIES_MAX",
            );
            return Err(self.blame(problem, "DOWNLOAD_MAXSIZE"));
        }
        let buffered_max = self.buffered_bodies_max;
        let bodies = self.frontier.own_hosts.entries().iter();
        let mut bodies = bodies.filter_map(|(host, own)| Some((host, own.body_max?)));
        if let Some((host, longest)) = bodies.find(|(_, longest)| *longest > buffered_max) {
            let problem = Problem::new(
                format!("{longest} is larger than BUFFERED_BODIES_MAX, {buffered_max}"),
                "lower body_max or raise BUFFERED_BODIES_MAX",
            );
            return Err(self.blame(problem.within("body_max").within(host), "HOSTS"));
        }
        let is_authorization =
            |(name, _): &(String, String)| name.eq_ignore_ascii_case("authorization");
        if self.fetch.user.is_some() && self.fetch.headers.iter().any(is_authorization) {
            let problem = Problem::new(
                "HTTP_USER and the header Authorization exclude each other",
                "remove one of them",
            );
            return Err(self.blame(problem, "HTTP_USER"));
        }
        if self.io.workers > WORKERS_MAX {
            let what = format!("{} is more than {WORKERS_MAX} threads", self.io.workers);
            let problem = Problem::new(what, "give as many as there are cores to spare");
            return Err(self.blame(problem, "WORKERS"));
        }
        if self.throttle.concurrent_requests == 0 {
            self.throttle.concurrent_requests = open_files_max().min(self.io.sockets_max);
        }
        Ok(self)
    }

    /// Whether the User-Agent contains a contact: a URL or a mail address.
    pub fn names_a_contact(&self) -> bool {
        self.contact.is_some()
            || self.fetch.user_agent.contains("://")
            || self.fetch.user_agent.contains('@')
    }

    fn blame(&self, problem: Problem, name: &str) -> ConfigError {
        problem.at(self.source(name).clone(), name)
    }

    /// Computes the derived settings from those given.
    fn derive(&mut self) {
        self.derive_throttle();
        let given = &self.given;
        self.contact = given.contact.clone();
        self.fetch.user_agent = match &given.contact {
            Some(contact) if !given.user_agent.contains(contact.as_str()) => {
                format!("{} (+{contact})", given.user_agent)
            }
            _ => given.user_agent.clone(),
        };
        self.frontier.robots_agent = given
            .robots_agent
            .clone()
            .unwrap_or_else(|| product_token(&given.user_agent));
        let (nets, hosts) = given
            .exclude
            .iter()
            .cloned()
            .partition(|entry| is_net(entry));
        self.exclude_nets = nets;
        self.frontier.exclude_hosts = hosts;
    }

    /// Computes the pace of each scope.
    fn derive_throttle(&mut self) {
        let given = &self.given;
        let mut scopes = scopes::effective(&given.slots, &given.scopes);
        for (key, defaults) in [(DOMAINS, &given.domains), (ADDRESSES, &given.addresses)] {
            if let Some(defaults) = defaults {
                let own = scopes.remove(key).unwrap_or_default();
                scopes.insert(key.to_owned(), own.over(defaults));
            }
        }
        let everywhere = scopes.remove(DEFAULT_ENTRY).unwrap_or_default();
        if let Some(silenced) = everywhere.ignore_robots_txt {
            for patch in scopes.values_mut() {
                patch.ignore_robots_txt.get_or_insert(silenced);
            }
        }

        // An explicit delay is the whole gap; the default delay per slot would lengthen it.
        let delay = everywhere.delay.or(given.delay);
        let delay_per_slot = everywhere.delay_per_slot.or(given.delay_per_slot);
        let base = |automatic| {
            let usual = BasePace::usual(automatic);
            BasePace {
                concurrency: everywhere
                    .concurrency
                    .or(given.concurrency)
                    .unwrap_or(usual.concurrency),
                delay: delay.unwrap_or(usual.delay),
                delay_per_slot: delay_per_slot.unwrap_or(match delay {
                    Some(_) => Duration::ZERO,
                    None => usual.delay_per_slot,
                }),
            }
        };
        let automatic = everywhere
            .autothrottle
            .enabled
            .unwrap_or(given.autothrottle);
        let BasePace {
            concurrency,
            delay,
            delay_per_slot,
        } = base(automatic);

        let pace = &mut self.throttle;
        pace.scopes = scopes;
        pace.inverse_base = base(!automatic);
        pace.window = everywhere.window.unwrap_or(given.window);
        pace.window_kind = everywhere.window_kind.unwrap_or(given.window_kind);
        pace.oversize = given.oversize;
        pace.latency_from = everywhere.autothrottle.latency_from.or(given.latency_from);
        pace.autothrottle = AutoThrottle {
            latency_from: given
                .latency_from
                .unwrap_or(given.autothrottle_settings.mode.latency_from()),
            ..given.autothrottle_settings.clone()
        };
        pace.rampup = given.rampup.clone();
        pace.default = given.base.clone();
        // Resolves the defaults with every mechanism enabled, so that a scope that enables one
        // inherits its settings.
        let on = pace.scope(&ScopePatch {
            autothrottle: AutoThrottlePatch {
                enabled: Some(true),
                ..everywhere.autothrottle.clone()
            },
            rampup: RampupPatch {
                enabled: Some(true),
                ..everywhere.rampup.clone()
            },
            ..everywhere.clone()
        });
        pace.autothrottle = on.autothrottle.clone().unwrap_or_default();
        pace.rampup = on.rampup.clone().unwrap_or_default();
        pace.default = ScopeSettings {
            concurrency,
            delay,
            delay_per_slot,
            autothrottle: on.autothrottle.filter(|_| automatic),
            rampup: on
                .rampup
                .filter(|_| everywhere.rampup.enabled == Some(true)),
            ..on
        };
    }

    /// Validates a scope patch during a crawl, by the rules of `THROTTLING_SCOPES`. Returns the
    /// scope's normalised name.
    pub(crate) fn check_scope(
        &self,
        name: &str,
        patch: &ScopePatch,
    ) -> Result<String, ConfigError> {
        let at = |problem: Problem| {
            problem
                .within(name)
                .at(SettingSource::Program, "THROTTLING_SCOPES")
        };
        let known = scopes::check(name, patch).map_err(at)?;
        check_pace(&self.throttle.scope(patch)).map_err(at)?;
        Ok(known)
    }

    /// Checks the settings of hosts that do not answer against each other.
    fn check_hosts(&self) -> Result<(), ConfigError> {
        let hosts = &self.frontier.hosts;
        let pairs = [
            (
                "HOST_HOLD_MIN",
                hosts.hold_min,
                "HOST_HOLD_MAX",
                hosts.hold_max,
            ),
            (
                "HOST_DOWN_TIME",
                hosts.down_time,
                "HOST_DOWN_TIME_MAX",
                hosts.down_time_max,
            ),
        ];
        for (least_name, least, most_name, most) in pairs {
            if least > most {
                let what =
                    format!("{least_name} is {least:?}, more than {most_name}, which is {most:?}");
                let mend = format!("lower {least_name} or raise {most_name}");
                // The message names the one that the user set.
                let name = match self.source(least_name) {
                    SettingSource::Default => most_name,
                    _ => least_name,
                };
                return Err(self.blame(Problem::new(what, mend), name));
            }
        }
        Ok(())
    }

    /// Checks the derived paces, and those written directly: combinations that no single value shows.
    fn check_paces(&self) -> Result<(), ConfigError> {
        let default = &self.throttle.default;
        // The message names the bound that the user set.
        let bound = match self.source("BACKOFF_MIN_DELAY") {
            SettingSource::Default => "BACKOFF_MAX_DELAY",
            _ => "BACKOFF_MIN_DELAY",
        };
        check_backoff(default).map_err(|problem| self.blame(problem.whole(), bound))?;
        check_target(default)
            .map_err(|problem| self.blame(problem, "AUTOTHROTTLE_TARGET_CONCURRENCY"))?;
        for name in self.throttle.scopes.keys() {
            let pace = self.throttle.of(name);
            let named = |problem: Problem| self.blame(problem.within(name), "THROTTLING_SCOPES");
            check_pace(&pace).map_err(named)?;
        }
        Ok(())
    }
}

/// Checks a scope's settings against each other.
fn check_pace(pace: &ScopeSettings) -> Result<(), Problem> {
    check_backoff(pace).map_err(|problem| problem.within("backoff"))?;
    check_target(pace).map_err(|problem| problem.within("autothrottle"))
}

fn check_backoff(pace: &ScopeSettings) -> Result<(), Problem> {
    let backoff = &pace.backoff;
    let number = |key: &str, read: Result<f64, Problem>| {
        read.map(|_| ()).map_err(|problem| problem.within(key))
    };
    number("delay_factor", AboveOne::read(&backoff.delay_factor.into()))?;
    number(
        "concurrency_factor",
        BelowOne::read(&backoff.concurrency_factor.into()),
    )?;
    if backoff.min_delay > backoff.max_delay {
        let what = format!(
            "min_delay is {:?}, more than max_delay, which is {:?}",
            backoff.min_delay, backoff.max_delay
        );
        let mend = "lower min_delay (BACKOFF_MIN_DELAY) or raise max_delay (BACKOFF_MAX_DELAY)";
        return Err(Problem::new(what, mend).within("min_delay"));
    }
    Ok(())
}

fn check_target(pace: &ScopeSettings) -> Result<(), Problem> {
    match &pace.autothrottle {
        Some(auto) => AboveZero::read(&auto.target_concurrency.into()).map(|_| ()),
        None => Ok(()),
    }
}

/// Open-file limit minus [`FILES_BESIDE_SOCKETS`], at least 1.
fn open_files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = limit.current.or(limit.maximum).unwrap_or(u64::MAX);
    usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(FILES_BESIDE_SOCKETS)
        .max(1)
}

/// Open files that are not sockets to origins: standard streams, seeds, results, WARC, the back end's
/// descriptors, and sockets to name servers.
const FILES_BESIDE_SOCKETS: usize = 64;

/// The name of a table that is no setting may be meant for one that is a table. Returns whether it is near one.
fn mend_table(problem: &mut Problem, name: &str) -> bool {
    let tables = TABLE_NAMES.iter();
    let near =
        tables.filter_map(|(known, setting)| Some((nearest(name, [*known].into_iter())?, setting)));
    let Some((_, setting)) = near.min_by_key(|(known, _)| known.len().abs_diff(name.len())) else {
        return false;
    };
    problem.mend = format!("did you mean {setting}?");
    true
}

/// Names of settings that are tables, and words for them.
const TABLE_NAMES: [(&str, &str); 5] = [
    ("HOSTS", "HOSTS"),
    ("HOST_SETTINGS", "HOSTS"),
    ("THROTTLING_SCOPES", "THROTTLING_SCOPES"),
    ("SCOPES", "THROTTLING_SCOPES"),
    ("EXTRACT", "EXTRACT"),
];

/// A key that a table does not have may be a setting that stands below it by mistake. `table`: the setting that is
/// the table.
fn mend_misplaced(problem: &mut Problem, table: &str) {
    let key = problem.entry.last();
    let setting = key.and_then(|key| table::find(key).ok());
    if let (Some(setting), UNKNOWN_KEY) = (setting, &*problem.what) {
        let host = problem.entry.first().filter(|_| table == "HOSTS");
        problem.mend = match (setting.scope_key, host) {
            (Some(key), Some(host)) => {
                let pace = hosts::pace_of(host, key);
                format!("{pace}; that of all stands above the first [table]")
            }
            (Some(key), None) => {
                format!("of a scope it is {key}; that of all stands above the first [table]")
            }
            (None, _) => {
                "it is a setting of its own, which stands above the first [table]".to_owned()
            }
        };
    }
}

#[cfg(test)]
mod tests;
