//! The table of all settings: name, kind, meaning, and the field of [`Config`].

use serde_json::Value;

use super::choices::{
    AllowedPatterns, Codes, CookieFile, Cookies, ExtractForm, Flag, JitterForm, LineCompression,
    Maybe, NotFlag, OneOf, Patterns,
};
use super::error::{Problem, nearest};
use super::form::Form;
use super::hosts::{Hosts, LoginForm};
use super::net::{
    Agent, Contact, DirectHosts, Exclusions, FieldNames, File, Headers, Nets, Origins, Overrides,
    ProxyForm, RouteForm, Servers, Token, Words,
};
use super::quantity::{
    AboveOne, AboveZero, BelowOne, Bytes, Concurrency, Delay, Failures, GzipLevel, Limit,
    MetricsScopes, Timeout, Whole,
};
use super::scopes::{Keys, Scopes, Slots};
use super::throttling::{Errors, Exceptions, ManagerForm, MapKinds, Target};
use super::{BackEnd, Config, SettingValue};
use crate::frontier::settings::Follow;
use crate::throttle::settings::{
    AutoThrottleMode, LatencyFrom, Oversize, RateLimitHeaders, WindowKind,
};

/// A setting: the values it accepts, and the field of the [`Config`] it sets.
#[derive(Debug)]
pub struct Setting {
    /// Its name: Scrapy's name if Scrapy has the setting.
    pub name: &'static str,
    /// What its value may be, in words for people: an open set.
    pub kind: &'static str,
    /// Its effect, in one line.
    pub meaning: &'static str,
    /// The key of a scope's entry that sets the same for one scope; `backoff.jitter` is a key in a table.
    pub scope_key: Option<&'static str>,
    /// An alias.
    pub alias: Option<&'static str>,
    /// Whether a running crawl applies a new value; otherwise it needs another run.
    pub is_live: bool,
    pub(super) read: fn(&Config) -> Value,
    pub(super) write: fn(&mut Config, &Value) -> Result<(), Problem>,
}

impl Setting {
    const fn scope_key(mut self, key: &'static str) -> Self {
        self.scope_key = Some(key);
        self
    }

    const fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    const fn alias(mut self, name: &'static str) -> Self {
        self.alias = Some(name);
        self
    }

    /// Whether `name` is its name or alias, case-insensitive.
    pub fn is_named(&self, name: &str) -> bool {
        let name = name.trim();
        self.name.eq_ignore_ascii_case(name)
            || self
                .alias
                .is_some_and(|alias| alias.eq_ignore_ascii_case(name))
    }

    /// The default value.
    pub fn default(&self) -> SettingValue {
        (self.read)(&Config::default()).into()
    }
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Every setting, in the order of the reference.
pub fn settings() -> &'static [Setting] {
    TABLE
}

/// The setting of this name or alias, case-insensitive.
pub(super) fn find(name: &str) -> Result<&'static Setting, Problem> {
    let known = TABLE.iter().find(|setting| setting.is_named(name));
    known.ok_or_else(|| {
        Problem::new(
            "unknown setting",
            match nearest(name, TABLE.iter().map(|setting| setting.name)) {
                Some(name) => format!("did you mean {name}?"),
                None => "`argiope settings` lists all settings".to_owned(),
            },
        )
    })
}

/// A row: name, form, the field that is read, the field that is written if it is another, meaning.
macro_rules! row {
    ($name:literal, $form:ty, $($read:ident).+, $meaning:literal) => {
        row!($name, $form, $($read).+, $($read).+, $meaning)
    };
    ($name:literal, $form:ty, $($read:ident).+, $($write:ident).+, $meaning:literal) => {
        Setting {
            name: $name,
            kind: <$form>::KIND,
            meaning: $meaning,
            scope_key: None,
            alias: None,
            is_live: false,
            read: |config| <$form>::write(&config.$($read).+),
            write: |config, value| {
                #[allow(clippy::useless_conversion, reason = "a field may be optional or not")]
                {
                    config.$($write).+ = <$form>::read(value)?.into();
                }
                Ok(())
            },
        }
    };
}

static TABLE: &[Setting] = &[
    // Pace.
    row!("CONCURRENT_REQUESTS", Whole<usize, 0>, throttle.concurrent_requests,
        "maximum requests in flight; 0: as many as the open-file limit allows").live(),
    row!("CONCURRENT_REQUESTS_PER_DOMAIN", Concurrency<1>, throttle.default.concurrency, given.concurrency,
        "maximum requests in flight per scope; unset with AutoThrottle on: 8").scope_key("concurrency").live(),
    row!("CONCURRENT_REQUESTS_PER_IP", Concurrency<0>, throttle.concurrent_requests_per_ip,
        "maximum requests in flight per IP address; 0: addresses are not scopes"),
    row!("DOWNLOAD_DELAY", Delay, throttle.default.delay, given.delay,
        "minimum gap between sends of a scope, also with AutoThrottle; unset with AutoThrottle on: 0").scope_key("delay").live(),
    row!("DOWNLOAD_DELAY_PER_SLOT", Delay, throttle.default.delay_per_slot, given.delay_per_slot,
        "minimum gap between sends of one slot of a scope; unset with a delay set or AutoThrottle on: 0").scope_key("delay_per_slot").live(),
    row!("RANDOMIZE_DOWNLOAD_DELAY", JitterForm, throttle.default.jitter, given.base.jitter,
        "each gap is the delay times a random factor: true: 0.5 to 1.5; 0.2: 0.8 to 1.2; [low, high]: 1 + low to 1 + high").scope_key("jitter").live(),
    row!("SCOPE_MAP", MapKinds, throttle.scope_map,
        "scopes of a URL: host; domain: registrable domain; hierarchy: both and all names between; endpoint: host and path; ip: address"),
    row!("THROTTLING_SCOPES", Scopes, given.scopes,
        "settings per scope, by name or pattern (*.example.com, ip/*); the entry default is for all other scopes. The predefined entry is for a site made for practising crawling; a map of your own replaces it").live(),
    row!("DOMAIN_SCOPE_DEFAULTS", Maybe<Keys>, given.domains,
        "settings of every scope that is a registrable domain; effective if SCOPE_MAP has domain").live(),
    row!("ADDRESS_SCOPE_DEFAULTS", Maybe<Keys>, given.addresses,
        "settings of every scope that is an IP address; effective if SCOPE_MAP has ip").live(),
    row!("DOWNLOAD_SLOTS", Slots, given.slots,
        "settings per scope, with Scrapy's keys: concurrency, delay, randomize_delay").live(),
    // Backoff.
    row!("BACKOFF_ENABLED", Flag, throttle.default.backoff.enabled, given.base.backoff.enabled,
        "refusals raise a scope's delay, and a Retry-After with a refusal holds the scope").scope_key("backoff.enabled").live(),
    row!("BACKOFF_HTTP_CODES", Codes, throttle.default.backoff.http_codes, given.base.backoff.http_codes,
        "status codes that are refusals").scope_key("backoff.http_codes").live(),
    row!("BACKOFF_EXCEPTIONS", Exceptions, throttle.default.backoff.exceptions, given.base.backoff.exceptions,
        "errors that are refusals").scope_key("backoff.exceptions").live(),
    row!("BACKOFF_DELAY_FACTOR", AboveOne, throttle.default.backoff.delay_factor, given.base.backoff.delay_factor,
        "factor by which each round of refusals multiplies the delay").scope_key("backoff.delay_factor").live(),
    row!("BACKOFF_MAX_DELAY", Timeout, throttle.default.backoff.max_delay, given.base.backoff.max_delay,
        "maximum delay of a backoff, and maximum hold by a Retry-After").scope_key("backoff.max_delay").live(),
    row!("BACKOFF_MIN_DELAY", Timeout, throttle.default.backoff.min_delay, given.base.backoff.min_delay,
        "minimum delay of a backoff, until a rate is known to work").scope_key("backoff.min_delay").live(),
    row!("BACKOFF_JITTER", JitterForm, throttle.default.backoff.jitter, given.base.backoff.jitter,
        "the jitter of a backoff, until a rate is known to work").scope_key("backoff.jitter").live(),
    row!("BACKOFF_WINDOW", Timeout, throttle.default.backoff.window, given.base.backoff.window,
        "time without a refusal after which the delay is reduced by one step").scope_key("backoff.window").live(),
    row!("BACKOFF_CONCURRENCY_FACTOR", BelowOne, throttle.default.backoff.concurrency_factor, given.base.backoff.concurrency_factor,
        "factor by which refusals multiply the concurrency once the delay is at its maximum").scope_key("backoff.concurrency_factor")
        .alias("BACKOFF_CONCURRENCY_DECREASE_FACTOR").live(),
    row!("RATELIMIT_HEADERS", OneOf<RateLimitHeaders>, throttle.rate_limit_headers,
        "when RateLimit fields hold a scope: always: when no quota remains; backoff: only with a refusal; off: never").live(),
    row!("RETRY_AFTER_OBEY", Flag, throttle.obey_fully,
        "a Retry-After holds its scope for its whole time, even above BACKOFF_MAX_DELAY").live(),
    row!("REDIRECT_MAX_DELAY", Delay, throttle.redirect_max_delay,
        "maximum time that a redirect waits for its Retry-After").live(),
    // Ramp-up and quotas.
    row!("RAMPUP_BACKOFF_TARGET", Target, throttle.rampup.backoff_target, given.rampup.backoff_target,
        "refusals per window that ramp-up aims at; only a scope's entry enables ramp-up").scope_key("rampup.backoff_target").live(),
    row!("THROTTLING_WINDOW", Delay, throttle.window, given.window,
        "length of a quota's window; 0: quotas have no effect").scope_key("window").live(),
    row!("THROTTLING_WINDOW_KIND", OneOf<WindowKind>, throttle.window_kind, given.window_kind,
        "fixed: consecutive windows, each with the full quota; sliding: the quota applies to every span of that length").scope_key("window_kind").live(),
    row!("QUOTA_OVERSIZE", OneOf<Oversize>, throttle.oversize, given.oversize,
        "a request that costs more than its quota: alone: sent as the only one of a window; refuse: refused").live(),
    // AutoThrottle.
    Setting {
        name: "AUTOTHROTTLE_ENABLED",
        kind: Flag::KIND,
        meaning: "AutoThrottle: the delay follows the latency",
        scope_key: Some("autothrottle.enabled"),
        alias: None,
        is_live: true,
        read: |config| Flag::write(&config.throttle.default.autothrottle.is_some()),
        write: |config, value| {
            config.given.autothrottle = Flag::read(value)?;
            Ok(())
        },
    },
    row!("AUTOTHROTTLE_MODE", OneOf<AutoThrottleMode>, throttle.autothrottle.mode, given.autothrottle_settings.mode,
        "robust: filters outliers and recognises caches and blocks; scrapy: exactly Scrapy's rules").scope_key("autothrottle.mode").live(),
    row!("AUTOTHROTTLE_START_DELAY", Delay, throttle.autothrottle.start_delay, given.autothrottle_settings.start_delay,
        "the delay before the first latency is measured").scope_key("autothrottle.start_delay").live(),
    row!("AUTOTHROTTLE_MAX_DELAY", Delay, throttle.autothrottle.max_delay, given.autothrottle_settings.max_delay,
        "maximum delay that AutoThrottle sets").scope_key("autothrottle.max_delay").live(),
    row!("AUTOTHROTTLE_TARGET_CONCURRENCY", AboveZero, throttle.autothrottle.target_concurrency, given.autothrottle_settings.target_concurrency,
        "requests in parallel that AutoThrottle aims at; fractions allowed").scope_key("autothrottle.target_concurrency").live(),
    row!("LATENCY_FROM", OneOf<LatencyFrom>, throttle.autothrottle.latency_from, given.latency_from,
        "start of the latency that AutoThrottle follows: send: the request's departure (default of robust); connect: TCP established (default of scrapy)").scope_key("autothrottle.latency_from").live(),
    row!("AUTOTHROTTLE_DEBUG", Flag, throttle.debug,
        "every pace decision is written to throttle.jsonl, or passed to the sink"),
    // Managers.
    row!("THROTTLING_MANAGER", ManagerForm, throttle.manager,
        "registered manager that maps requests to scopes and classifies replies; default: built in"),
    row!("THROTTLING_SCOPE_MANAGER", ManagerForm, throttle.default.manager, given.base.manager,
        "registered manager that decides a scope's pace; default: built in").scope_key("manager"),
    row!("DELAYED_REQUESTS_WARN_THRESHOLD", Whole<usize, 0>, throttle.delayed_requests_warn_threshold,
        "number of waiting requests outside the frontier that triggers one warning; 0: never"),
    row!("THROTTLING_ROBOTSTXT_OBEY", Flag, throttle.robotstxt_obey,
        "the Crawl-delay of robots.txt is obeyed"),
    row!("THROTTLING_ROBOTSTXT_MAX_DELAY", Delay, throttle.robotstxt_max_delay,
        "maximum Crawl-delay; a longer one is reduced to this"),
    row!("THROTTLING_ROBOTSTXT_KEEP_CONCURRENCY", Flag, throttle.robotstxt_keep_concurrency,
        "a Crawl-delay does not reduce the concurrency to 1"),
    // Identity and robots.txt.
    row!("USER_AGENT", Agent, given.user_agent,
        "the User-Agent header; CONTACT is appended"),
    row!("CONTACT", Maybe<Contact>, given.contact,
        "URL or mail address for site operators; the command requires one above 10 public hosts"),
    row!("CREDENTIAL_ORIGINS", Origins, fetch.credential_origins,
        "origins that get the credentials among DEFAULT_REQUEST_HEADERS, in addition to the seeds' origins; *: all"),
    row!("PRIVATE_HEADERS", FieldNames, fetch.private_headers,
        "headers that are credentials, in addition to Authorization, Cookie and Host"),
    row!("ACCEPT_ZSTD", Maybe<Flag>, fetch.zstd,
        "Accept-Encoding includes zstd; unset: only if no WARC is written, because WARC readers cannot decode it"),
    row!("DEFAULT_REQUEST_HEADERS", Headers, fetch.headers,
        "headers sent with every request"),
    row!("HTTP_USER", Maybe<LoginForm>, fetch.user,
        "user name and password for the origins that get the credentials among DEFAULT_REQUEST_HEADERS"),
    row!("HOSTS", Hosts, frontier.own_hosts,
        "settings of single hosts: headers, user, user_agent, proxy, pages_max, body_max, depth_limit; \"*.example.com\": every host below it"),
    row!("COOKIES_ENABLED", Cookies, fetch.cookies,
        "cookies set by replies are stored, and sent with later requests"),
    row!("COOKIES_FILE", Maybe<CookieFile>, cookies_file,
        "file of cookies that are sent from the beginning, as curl and wget write it, or JSON; as COOKIES_ENABLED"),
    row!("ROBOTSTXT_OBEY", Flag, frontier.robots_obey,
        "robots.txt is obeyed"),
    row!("ROBOTSTXT_IGNORED_HOSTS_MAX", Whole<usize, 0>, robots_ignored_hosts_max,
        "without ROBOTSTXT_OBEY, maximum public hosts that get requests; 0: no limit. --ignore-robots sets it to 10"),
    row!("ROBOTSTXT_USER_AGENT", Maybe<Token>, given.robots_agent,
        "product token matched in robots.txt; unset: that of USER_AGENT"),
    row!("ROBOTSTXT_CACHE_TIME", Timeout, frontier.robots_lifetime,
        "how long a robots.txt is used before it is fetched again").live(),
    row!("ROBOTS_MEMORY", Bytes<u64>, frontier.robots_memory,
        "memory for the rules of all robots.txt files; the least recently used are evicted, and fetched again if needed"),
    row!("OUTAGE_BREAKER", Flag, outage_breaker,
        "an outage of the local network or the name servers pauses the crawl; its requests are tried again"),
    row!("HOST_DOWN_AFTER", Delay, frontier.hosts.down_after,
        "an unresponsive host is held, and when it fails again this long after its last success its requests fail; not before HOST_HOLD_FAILURES; 0: neither"),
    row!("HOST_DOWN_EXCEPTIONS", Errors, frontier.hosts.exceptions,
        "errors that count against a host, where it cannot be connected to or gives no answer for its robots.txt; others cost an attempt"),
    row!("HOST_HOLD_FAILURES", Failures, frontier.hosts.failures_max,
        "failures to connect in a row after which a host is held; one for its robots.txt is enough"),
    row!("HOST_HOLD_MIN", Timeout, frontier.hosts.hold_min,
        "first hold of an unresponsive host; each further one is twice as long"),
    row!("HOST_HOLD_MAX", Timeout, frontier.hosts.hold_max,
        "maximum hold of an unresponsive host"),
    row!("HOST_DOWN_TIME", Timeout, frontier.hosts.down_time,
        "time for which a host that was given up is not tried again; twice as long each time"),
    row!("HOST_DOWN_TIME_MAX", Timeout, frontier.hosts.down_time_max,
        "maximum time for which a host that was given up is not tried again"),
    // What is fetched.
    row!("FOLLOW", OneOf<Follow>, frontier.follow,
        "links that are followed: none; host: those to the seeds' hosts; domain: to their domains; all"),
    row!("DEPTH_LIMIT", Whole<u32, 0>, frontier.depth_limit,
        "maximum number of links from a seed; 0: no limit").live(),
    row!("CLOSESPIDER_PAGECOUNT", Whole<u64, 0>, frontier.pages_max,
        "pages after which the crawl ends; 0: no limit").live(),
    row!("CLOSESPIDER_ERRORCOUNT", Whole<u64, 0>, frontier.errors_max,
        "final errors after which the crawl ends, not counting filtered, cancelled and disallowed; 0: no limit").live(),
    row!("CLOSESPIDER_BYTECOUNT", Bytes<u64, 0>, frontier.bytes_max,
        "bytes received over the wire, robots.txt included, after which the crawl ends at once: replies in flight are cut, and still to be fetched; 0: no limit").live(),
    row!("CLOSESPIDER_TIMEOUT", Limit, max_time,
        "time after which the crawl ends; 0: no limit").live(),
    row!("PAGES_PER_DOMAIN_MAX", Whole<u32, 0>, frontier.pages_per_domain_max,
        "maximum pages of one registrable domain; 0: no limit").live(),
    row!("BYTES_PER_DOMAIN_MAX", Bytes<u64, 0>, frontier.bytes_per_domain_max,
        "bytes received from one registrable domain, robots.txt included, after which nothing more is requested from it; 0: no limit").live(),
    row!("PAGES_PER_HOST_MAX", Whole<u32, 0>, frontier.pages_per_host_max,
        "maximum pages of one host; 0: no limit").live(),
    row!("ALLOW", AllowedPatterns, frontier.allow,
        "a URL must match one of these; empty: no restriction").live(),
    row!("DENY", Patterns, frontier.deny,
        "a URL must match none of these").live(),
    row!("EXCLUDE", Exclusions, given.exclude,
        "hosts, *.domains and networks that get no requests").live(),
    row!("ALLOW_NET", Nets, allow_net,
        "networks allowed in addition to globally routable addresses"),
    row!("URLLENGTH_LIMIT", Whole<usize, 1>, frontier.url_length_limit,
        "maximum length of a URL, in bytes").live(),
    row!("PATH_REPEAT_LIMIT", Whole<u32, 1>, frontier.path_repeat_limit,
        "maximum repetitions of one path segment in a URL").live(),
    row!("LINKS_PER_PAGE_MAX", Whole<usize, 0>, frontier.links_per_page_max,
        "maximum links followed from one page"),
    row!("FOLLOW_NOFOLLOW", NotFlag, frontier.nofollow,
        "links marked nofollow are followed, too").live(),
    row!("FOLLOW_RESOURCES", Flag, frontier.follow_resources,
        "link, img, script, source and form are followed, too").live(),
    row!("FOLLOW_SITEMAPS", Flag, frontier.sitemaps,
        "sitemaps named in robots.txt are read"),
    row!("SITEMAP_DEPTH_LIMIT", Whole<u32, 0>, frontier.sitemap_depth_limit,
        "maximum nesting of sitemap indexes; 1: only the sitemaps named in robots.txt; 0: no limit"),
    row!("SITEMAPS_PER_HOST_MAX", Whole<u32, 0>, frontier.sitemaps_per_host_max,
        "maximum sitemaps of one host; 0: no limit"),
    row!("DROP_QUERY_PARAMETERS", Words, frontier.drop_parameters,
        "query parameters removed from URLs; a trailing * matches any suffix (utm_*)"),
    row!("FRONTIER_MAX", Whole<usize, 0>, frontier.queued_max,
        "maximum queued requests; beyond it links are dropped and counted, and reading seeds pauses; 0: no limit with a state on disk, ten million without"),
    row!("FRONTIER_MEMORY", Bytes<u64>, frontier.memory_max,
        "memory for queued requests and their lanes; with a state on disk requests beyond it wait there"),
    row!("SEEN_MEMORY", Bytes<u64>, frontier.seen_memory_max,
        "memory for keys of admitted URLs, at most 13 bytes for each; with a state on disk those beyond it go there, and 10 bits of each stay in memory"),
    row!("RETRY_TIMES", Whole<u32, 0>, frontier.retry_times,
        "maximum retries of a page").live(),
    row!("RETRY_HTTP_CODES", Codes, frontier.retry_codes,
        "status codes that are retried").live(),
    row!("RETRY_EXCEPTIONS", Errors, frontier.retry_exceptions,
        "errors that are retried: kinds (timeout), or codes of a kind (dns.servfail)").live(),
    row!("REDIRECT_MAX_TIMES", Whole<u32, 0>, frontier.redirects_max,
        "maximum redirects followed from one URL").live(),
    // One fetch.
    row!("DOWNLOAD_TIMEOUT", Timeout, fetch.download_timeout,
        "maximum time of a whole fetch").live(),
    row!("CONNECT_TIMEOUT", Timeout, fetch.connect_timeout,
        "maximum time until TCP is established").live(),
    row!("TLS_TIMEOUT", Timeout, fetch.tls_timeout,
        "maximum time of a TLS handshake").live(),
    row!("FIRST_BYTE_TIMEOUT", Timeout, fetch.first_byte_timeout,
        "maximum time from the request's departure to the reply's first byte").live(),
    row!("IDLE_TIMEOUT", Timeout, fetch.idle_timeout,
        "maximum time between two bytes of a reply").live(),
    row!("DOWNLOAD_MAXSIZE", Bytes<u64>, fetch.body_max,
        "maximum size of a body; a longer one is cut there").live(),
    row!("DOWNLOAD_MIN_RATE", Whole<u64, 0>, fetch.rate_min,
        "minimum rate of a body in bytes per second, over 30 s; 0: none").live(),
    row!("DECODED_RATIO_MAX", Whole<u32, 1>, fetch.ratio_max,
        "maximum ratio of a body's decoded size to its coded size").live(),
    row!("KEEPALIVE_TIMEOUT", Delay, fetch.keepalive_timeout,
        "maximum time that an idle connection is kept open"),
    row!("KEEPALIVE_MAX", Whole<usize, 0>, fetch.keepalive_max,
        "maximum idle connections; 0: each request opens a connection"),
    row!("TLS_SESSIONS_MEMORY", Bytes<u64, 0>, tls_sessions_memory,
        "memory for TLS sessions to be resumed, some 8 kB a host; those of hosts with nothing queued are evicted first; 0: none is kept"),
    row!("CA_FILE", Maybe<File>, ca_file,
        "file of certificates (PEM) trusted in addition to the built-in ones"),
    row!("INSECURE", Flag, insecure,
        "certificates are not verified"),
    // Names and machine.
    row!("PROXY", Maybe<ProxyForm>, frontier.proxies.usual,
        "proxy of requests that do not name one"),
    row!("PROXY_HTTPS", Maybe<RouteForm>, frontier.proxies.https,
        "the same of https URLs, or direct; unset: that of PROXY"),
    row!("NO_PROXY", DirectHosts, frontier.proxies.except,
        "hosts with their subdomains, addresses and CIDRs that are asked without PROXY and PROXY_HTTPS; *: all"),
    row!("DNS_SERVERS", Servers, dns_servers,
        "name servers instead of the system's"),
    row!("RESOLVE", Overrides, resolve,
        "fixed addresses of hosts; *: any host"),
    row!("IO", OneOf<BackEnd>, back_end,
        "the kernel interface"),
    row!("SOCKETS_MAX", Whole<usize, 1>, io.sockets_max,
        "maximum open sockets; the open-file limit applies, too"),
    row!("READ_BUDGET", Bytes<usize>, io.read_budget,
        "bytes read in one turn of the loop, from one socket or several"),
    row!("TIMER_SLACK", Delay, io.timer_slack,
        "timer slack: maximum time by which the kernel may wake the thread late"),
    row!("SPIN", Delay, io.spin,
        "busy-waiting before a deadline, for sends accurate to microseconds; uses a whole core"),
    row!("WORKERS", Whole<usize, 0>, io.workers,
        "helper threads for the work on long pages; 0: the crawl's thread does it. `argiope crawl`: the cores minus one, at most 4"),
    row!("BUFFERED_BODIES_MAX", Bytes<u64>, buffered_bodies_max,
        "memory for all bodies; at the bound, reading pauses"),
    row!("BYTES_PER_SECOND_MAX", Bytes<u64, 0>, bytes_per_second_max,
        "bytes received per second from all servers: beyond it nothing is sent, and reading pauses; 0: no limit").live(),
    row!("STOP_GRACE", Delay, stop_grace,
        "maximum time that a stopping crawl waits for requests in flight").live(),
    row!("METRICS_SCOPES_MAX", MetricsScopes, metrics_scopes_max,
        "scopes with metrics of their own: those that waited longest; at most 100").live(),
    row!("RANDOM_SEED", Maybe<Whole<u64, 0>>, random_seed,
        "random seed; unset: seeded by the system"),
    // Files.
    row!("WARC", Flag, warc,
        "exchanges are written to WARC files"),
    row!("WARC_SIZE_MAX", Bytes<u64>, warc_size_max,
        "size at which a new WARC file is started"),
    row!("WARC_CDXJ", Flag, warc_cdxj,
        "each closed WARC file gets a CDXJ index: warc/NAME.cdxj"),
    row!("RESULTS_SIZE_MAX", Maybe<Bytes<u64>>, rotation.size_max,
        "size at which a new file of result lines is begun, results-000001.jsonl and so on; unset: results.jsonl has all"),
    row!("RESULTS_TIME_MAX", Limit, rotation.time_max,
        "time after its first line at which a file of result lines is closed and another begun; 0: none"),
    row!("RESULTS_COMPRESSION", LineCompression, rotation.compression,
        "how files of result lines are compressed: results.jsonl.gz or results.jsonl.zst"),
    row!("LINKS_FILE", Flag, links_file,
        "the links of each page are written to links.jsonl, before filters; its files are closed and compressed as those of result lines"),
    row!("EXTRACT", ExtractForm, extraction,
        "fields of HTML pages that result lines get: title, lang, description, canonical, h1, or NAME=SELECTOR; helper threads do it, one at least"),
    row!("FILTERED_FILE", Flag, filtered_file,
        "each link that a filter leaves out is written to filtered.jsonl, with the filter and its rule; its files are closed and compressed as those of result lines"),
    row!("WARC_GZIP_LEVEL", GzipLevel, io.gzip_level,
        "level at which records are compressed: 1 is the fastest, 12 the smallest; 0: they are stored"),
    row!("STATE", Flag, state,
        "what is still to be fetched is kept on disk, for --resume after any end"),
    row!("STATE_SYNC", Delay, state_sync,
        "interval of commits: a crash repeats at most the requests since the last one"),
    row!("DISK_FREE_MIN", Maybe<Bytes<u64, 0>>, io.disk_free_min,
        "free space that remains on the volume of the output: below it the crawl pauses; unset: the lesser of 1 GiB and 2 % of the volume; 0: none"),
];
