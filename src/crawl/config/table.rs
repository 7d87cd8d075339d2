//! Every setting there is, in one place: name, kind, meaning, and the field behind it.

use serde_json::Value;

use super::choices::{Codes, Cookies, Flag, JitterForm, Maybe, OneOf, Opposite, Patterns};
use super::error::{Problem, nearest};
use super::form::Form;
use super::net::{
    Agent, Contact, Exclusions, FieldNames, File, Headers, Nets, Origins, Overrides, Servers,
    Through, Token, Words,
};
use super::quantity::{AboveOne, AboveZero, BelowOne, Bytes, Delay, Limit, Places, Timeout, Whole};
use super::scopes::{Keys, Scopes, Slots};
use super::throttling::{Errors, Exceptions, Instead, MapKinds, Target};
use super::{BackEnd, Config, SettingValue};
use crate::frontier::settings::Follow;
use crate::throttle::settings::{
    AutoThrottleMode, LatencyFrom, Oversize, RateLimitHeaders, WindowKind,
};

/// A setting: the values it accepts, and the field of the [`Config`] it sets.
#[derive(Debug)]
pub struct Setting {
    /// Its name: Scrapy's where Scrapy has one.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: &'static str,
    /// Its effect, in a line.
    pub meaning: &'static str,
    /// The key that sets the same for a single scope; `backoff.jitter` is in a table.
    pub scope_key: Option<&'static str>,
    /// Another name that is taken for this one.
    pub alias: Option<&'static str>,
    pub(super) read: fn(&Config) -> Value,
    pub(super) write: fn(&mut Config, &Value) -> Result<(), Problem>,
}

impl Setting {
    const fn scope_key(mut self, key: &'static str) -> Self {
        self.scope_key = Some(key);
        self
    }

    const fn alias(mut self, name: &'static str) -> Self {
        self.alias = Some(name);
        self
    }

    /// Whether this is the setting that `name` means, in any case and spelling.
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

/// Every setting, in the order in which a person would want to read of them.
pub fn settings() -> &'static [Setting] {
    TABLE
}

/// The setting of this name, in any case.
pub(super) fn find(name: &str) -> Result<&'static Setting, Problem> {
    let known = TABLE.iter().find(|setting| setting.is_named(name));
    known.ok_or_else(|| {
        Problem::new(
            "there is no such setting",
            match nearest(name, TABLE.iter().map(|setting| setting.name)) {
                Some(name) => format!("did you mean {name}?"),
                None => "`argiope settings` lists them all".to_owned(),
            },
        )
    })
}

/// A row: name, form, the field that holds, the field that is written where it is another, meaning.
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
        "requests in flight in all; 0: as many as open files allow"),
    row!("CONCURRENT_REQUESTS_PER_DOMAIN", Places<1>, throttle.default.concurrency, given.concurrency,
        "requests in flight per scope; unset with AutoThrottle on: 8").scope_key("concurrency"),
    row!("CONCURRENT_REQUESTS_PER_IP", Places<0>, throttle.concurrent_requests_per_ip,
        "requests in flight per address; 0: addresses are no scopes"),
    row!("DOWNLOAD_DELAY", Delay, throttle.default.delay, given.delay,
        "least gap between sends of a scope, and AutoThrottle's floor; unset with AutoThrottle on: 0").scope_key("delay"),
    row!("DOWNLOAD_DELAY_PER_SLOT", Delay, throttle.default.delay_per_slot, given.delay_per_slot,
        "least gap between sends of one slot of a scope; unset with a delay set or AutoThrottle on: 0").scope_key("delay_per_slot"),
    row!("RANDOMIZE_DOWNLOAD_DELAY", JitterForm, throttle.default.jitter, given.base.jitter,
        "each gap is drawn around the delay: true is 0.5 either way").scope_key("jitter"),
    row!("SCOPE_MAP", MapKinds, throttle.scope_map,
        "which scopes a URL has: its host, registrable domain, all names between, host and path, address"),
    row!("THROTTLING_SCOPES", Scopes, given.scopes,
        "scopes that differ, by name or pattern (*.example.com, ip/*); default is all others. The entry there is for a site made to practise crawling on; a map of your own replaces it"),
    row!("DOMAIN_SCOPE_DEFAULTS", Maybe<Keys>, given.domains,
        "what differs in every scope that is a registrable domain, where SCOPE_MAP makes them"),
    row!("ADDRESS_SCOPE_DEFAULTS", Maybe<Keys>, given.addresses,
        "what differs in every scope that is an address, where SCOPE_MAP makes them"),
    row!("DOWNLOAD_SLOTS", Slots, given.slots,
        "the same in Scrapy's form: concurrency, delay, randomize_delay"),
    // Backoff.
    row!("BACKOFF_ENABLED", Flag, throttle.default.backoff.enabled, given.base.backoff.enabled,
        "refusals slow a scope down, and a Retry-After with them holds it").scope_key("backoff.enabled"),
    row!("BACKOFF_HTTP_CODES", Codes, throttle.default.backoff.http_codes, given.base.backoff.http_codes,
        "statuses that are refusals").scope_key("backoff.http_codes"),
    row!("BACKOFF_EXCEPTIONS", Exceptions, throttle.default.backoff.exceptions, given.base.backoff.exceptions,
        "errors that are refusals").scope_key("backoff.exceptions"),
    row!("BACKOFF_DELAY_FACTOR", AboveOne, throttle.default.backoff.delay_factor, given.base.backoff.delay_factor,
        "each round of refusals multiplies the delay by this").scope_key("backoff.delay_factor"),
    row!("BACKOFF_MAX_DELAY", Timeout, throttle.default.backoff.max_delay, given.base.backoff.max_delay,
        "the longest delay of a backoff, and the longest hold by a Retry-After").scope_key("backoff.max_delay"),
    row!("BACKOFF_MIN_DELAY", Timeout, throttle.default.backoff.min_delay, given.base.backoff.min_delay,
        "the least delay of a backoff, until a rate is known to work").scope_key("backoff.min_delay"),
    row!("BACKOFF_JITTER", JitterForm, throttle.default.backoff.jitter, given.base.backoff.jitter,
        "the jitter of a backoff, until a rate is known to work").scope_key("backoff.jitter"),
    row!("BACKOFF_WINDOW", Timeout, throttle.default.backoff.window, given.base.backoff.window,
        "time without a refusal after which a scope becomes faster by one step").scope_key("backoff.window"),
    row!("BACKOFF_CONCURRENCY_FACTOR", BelowOne, throttle.default.backoff.concurrency_factor, given.base.backoff.concurrency_factor,
        "concurrency is multiplied by this where the delay is at its longest").scope_key("backoff.concurrency_factor")
        .alias("BACKOFF_CONCURRENCY_DECREASE_FACTOR"),
    row!("RATELIMIT_HEADERS", OneOf<RateLimitHeaders>, throttle.rate_limit_headers,
        "when RateLimit fields hold a scope: whenever nothing remains, with refusals only, or never"),
    row!("RETRY_AFTER_OBEY", Flag, throttle.obey_fully,
        "a Retry-After holds its scope for its whole time, above BACKOFF_MAX_DELAY too"),
    row!("REDIRECT_MAX_DELAY", Delay, throttle.redirect_max_delay,
        "the longest that a redirect waits for its Retry-After"),
    // Ramp-up and quotas.
    row!("RAMPUP_BACKOFF_TARGET", Target, throttle.rampup.backoff_target, given.rampup.backoff_target,
        "refusals wanted per window where ramp-up is on; only a scope entry switches it on").scope_key("rampup.backoff_target"),
    row!("THROTTLING_WINDOW", Delay, throttle.window, given.window,
        "length of a quota's window; 0: quotas never block").scope_key("window"),
    row!("THROTTLING_WINDOW_KIND", OneOf<WindowKind>, throttle.window_kind, given.window_kind,
        "fixed: windows follow each other; sliding: every span of that length counts").scope_key("window_kind"),
    row!("QUOTA_OVERSIZE", OneOf<Oversize>, throttle.oversize, given.oversize,
        "a request that costs more than its quota: sent alone into an untouched window, or refused"),
    // AutoThrottle.
    Setting {
        name: "AUTOTHROTTLE_ENABLED",
        kind: Flag::KIND,
        meaning: "the delay follows the latency",
        scope_key: Some("autothrottle.enabled"),
        alias: None,
        read: |config| Flag::write(&config.throttle.default.autothrottle.is_some()),
        write: |config, value| {
            config.given.autothrottle = Flag::read(value)?;
            Ok(())
        },
    },
    row!("AUTOTHROTTLE_MODE", OneOf<AutoThrottleMode>, throttle.autothrottle.mode, given.autothrottle_settings.mode,
        "robust: filters outliers and recognises caches and blocks; scrapy: Scrapy's rules to the digit").scope_key("autothrottle.mode"),
    row!("AUTOTHROTTLE_START_DELAY", Delay, throttle.autothrottle.start_delay, given.autothrottle_settings.start_delay,
        "the delay before anything is known").scope_key("autothrottle.start_delay"),
    row!("AUTOTHROTTLE_MAX_DELAY", Delay, throttle.autothrottle.max_delay, given.autothrottle_settings.max_delay,
        "the longest delay that AutoThrottle sets").scope_key("autothrottle.max_delay"),
    row!("AUTOTHROTTLE_TARGET_CONCURRENCY", AboveZero, throttle.autothrottle.target_concurrency, given.autothrottle_settings.target_concurrency,
        "requests in parallel that it aims at; fractions allowed").scope_key("autothrottle.target_concurrency"),
    row!("LATENCY_FROM", OneOf<LatencyFrom>, throttle.autothrottle.latency_from, given.latency_from,
        "start of the latency that it follows: departure (robust), or TCP established (scrapy)").scope_key("autothrottle.latency_from"),
    row!("AUTOTHROTTLE_DEBUG", Flag, throttle.debug,
        "every decision about a pace is written to throttle.jsonl, or given to the sink"),
    // What decides.
    row!("THROTTLING_MANAGER", Instead, throttle.manager,
        "what maps requests to scopes and reads answers; default is built in"),
    row!("THROTTLING_SCOPE_MANAGER", Instead, throttle.default.manager, given.base.manager,
        "what decides a scope's pace; default is built in").scope_key("manager"),
    row!("DELAYED_REQUESTS_WARN_THRESHOLD", Whole<usize, 0>, throttle.delayed_requests_warn_threshold,
        "requests from outside the frontier that wait at once, for one warning; 0: never"),
    row!("THROTTLING_ROBOTSTXT_OBEY", Flag, throttle.robotstxt_obey,
        "robots.txt's Crawl-delay is honoured"),
    row!("THROTTLING_ROBOTSTXT_MAX_DELAY", Delay, throttle.robotstxt_max_delay,
        "the longest Crawl-delay; longer ones count as this"),
    row!("THROTTLING_ROBOTSTXT_KEEP_CONCURRENCY", Flag, throttle.robotstxt_keep_concurrency,
        "a Crawl-delay leaves the concurrency as it is, instead of 1"),
    // Identity and robots.txt.
    row!("USER_AGENT", Agent, given.user_agent,
        "the User-Agent header; the contact is added"),
    row!("CONTACT", Maybe<Contact>, given.contact,
        "how site owners reach you; the command requires one above 10 public hosts"),
    row!("CREDENTIAL_ORIGINS", Origins, fetch.credential_origins,
        "origins that get the credentials among DEFAULT_REQUEST_HEADERS beside those of the seeds; *: all"),
    row!("PRIVATE_HEADERS", FieldNames, fetch.private_headers,
        "headers that are credentials, beside Authorization, Cookie and Host"),
    row!("ACCEPT_ZSTD", Maybe<Flag>, fetch.zstd,
        "zstd is in Accept-Encoding; unset: where no WARC is written, whose readers cannot decode it"),
    row!("DEFAULT_REQUEST_HEADERS", Headers, fetch.headers,
        "headers sent with every request"),
    row!("COOKIES_ENABLED", Cookies, fetch.cookies,
        "cookies that replies set are kept, and sent with later requests"),
    row!("ROBOTSTXT_OBEY", Flag, frontier.robots_obey,
        "robots.txt is obeyed"),
    row!("ROBOTSTXT_USER_AGENT", Maybe<Token>, given.robots_agent,
        "the token looked for in robots.txt; unset: that of USER_AGENT"),
    row!("ROBOTSTXT_CACHE_TIME", Timeout, frontier.robots_lifetime,
        "how long a robots.txt is used before it is fetched again"),
    row!("ROBOTS_MEMORY", Bytes<u64>, frontier.robots_memory,
        "memory for the rules of all robots.txt files; the least recently used are evicted, and fetched again when needed"),
    row!("OUTAGE_BREAKER", Flag, outage_breaker,
        "the crawl waits while our own network or name servers do not work, and loses nothing"),
    row!("HOST_DOWN_AFTER", Delay, frontier.host_down_after,
        "a host that does not answer is held, and given up this long after its last success; 0: neither"),
    // What is fetched.
    row!("FOLLOW", OneOf<Follow>, frontier.follow,
        "which links are followed: none, those on the seeds' hosts, on their domains, or all"),
    row!("DEPTH_LIMIT", Whole<u32, 0>, frontier.depth_limit,
        "how many links deep from a seed; 0: no limit"),
    row!("CLOSESPIDER_PAGECOUNT", Whole<u64, 0>, frontier.pages_max,
        "pages after which the crawl ends; 0: no limit"),
    row!("CLOSESPIDER_ERRORCOUNT", Whole<u64, 0>, frontier.errors_max,
        "final errors after which the crawl ends, filtered, cancelled and disallowed ones aside; 0: no limit"),
    row!("CLOSESPIDER_TIMEOUT", Limit, max_time,
        "time after which the crawl ends; 0: no limit"),
    row!("PAGES_PER_HOST_MAX", Whole<u32, 0>, frontier.pages_per_host_max,
        "pages of one host; 0: no limit"),
    row!("ALLOW", Patterns, frontier.allow,
        "where there are any, a URL must match one"),
    row!("DENY", Patterns, frontier.deny,
        "a URL must match none"),
    row!("EXCLUDE", Exclusions, given.exclude,
        "hosts, *.domains and networks that get no requests"),
    row!("ALLOW_NET", Nets, allow_net,
        "networks that may be connected to although not globally routable"),
    row!("URLLENGTH_LIMIT", Whole<usize, 1>, frontier.url_length_limit,
        "the longest URL, in bytes"),
    row!("PATH_REPEAT_LIMIT", Whole<u32, 1>, frontier.path_repeat_limit,
        "how often one path segment may come in a URL"),
    row!("LINKS_PER_PAGE_MAX", Whole<usize, 0>, frontier.links_per_page_max,
        "links taken from one page"),
    row!("FOLLOW_NOFOLLOW", Opposite, frontier.nofollow,
        "links marked nofollow are followed all the same"),
    row!("FOLLOW_RESOURCES", Flag, frontier.follow_resources,
        "link, img, script, source and form are followed too"),
    row!("FOLLOW_SITEMAPS", Flag, frontier.sitemaps,
        "sitemaps named in robots.txt are read"),
    row!("SITEMAP_DEPTH_LIMIT", Whole<u32, 0>, frontier.sitemap_depth_limit,
        "how deep sitemaps may stand in one another; 1: those in robots.txt; 0: no limit"),
    row!("SITEMAPS_PER_HOST_MAX", Whole<u32, 0>, frontier.sitemaps_per_host_max,
        "sitemaps of one host; 0: no limit"),
    row!("DROP_QUERY_PARAMETERS", Words, frontier.drop_parameters,
        "query parameters left out of URLs; utm_* is a pattern"),
    row!("FRONTIER_MAX", Whole<usize, 1>, frontier.queued_max,
        "requests queued at once; links beyond are dropped and counted, seeds wait"),
    row!("RETRY_TIMES", Whole<u32, 0>, frontier.retry_times,
        "how often a page is tried again"),
    row!("RETRY_HTTP_CODES", Codes, frontier.retry_codes,
        "statuses that are tried again"),
    row!("RETRY_EXCEPTIONS", Errors, frontier.retry_exceptions,
        "errors that are tried again: kinds (timeout), or codes of a kind (dns.servfail)"),
    row!("REDIRECT_MAX_TIMES", Whole<u32, 0>, frontier.redirects_max,
        "redirects followed from one URL"),
    // One fetch.
    row!("DOWNLOAD_TIMEOUT", Timeout, fetch.download_timeout,
        "the longest a whole fetch may take"),
    row!("CONNECT_TIMEOUT", Timeout, fetch.connect_timeout,
        "the longest until TCP is established"),
    row!("TLS_TIMEOUT", Timeout, fetch.tls_timeout,
        "the longest a TLS handshake may take"),
    row!("FIRST_BYTE_TIMEOUT", Timeout, fetch.first_byte_timeout,
        "the longest from the request's departure to the reply's first byte"),
    row!("IDLE_TIMEOUT", Timeout, fetch.idle_timeout,
        "the longest time without a byte within a reply"),
    row!("DOWNLOAD_MAXSIZE", Bytes<u64>, fetch.body_max,
        "the largest body; what is over is cut, the rest kept"),
    row!("DOWNLOAD_MIN_RATE", Whole<u64, 0>, fetch.rate_min,
        "bytes a second that a body must bring over 30 s; 0: any"),
    row!("DECODED_RATIO_MAX", Whole<u32, 1>, fetch.ratio_max,
        "how many times larger than its coded form a body may become"),
    row!("KEEPALIVE_TIMEOUT", Delay, fetch.keepalive_timeout,
        "how long a connection waits for its next request"),
    row!("KEEPALIVE_MAX", Whole<usize, 0>, fetch.keepalive_max,
        "connections that may wait; 0: each request has one of its own"),
    row!("CA_FILE", Maybe<File>, ca_file,
        "certificates trusted beside the usual ones (PEM)"),
    row!("INSECURE", Flag, insecure,
        "certificates are not verified"),
    // Names and machine.
    row!("PROXY", Maybe<Through>, frontier.proxy,
        "the proxy of requests that name none themselves"),
    row!("DNS_SERVERS", Servers, dns_servers,
        "name servers instead of the system's"),
    row!("RESOLVE", Overrides, resolve,
        "fixed addresses of hosts; * is any host"),
    row!("IO", OneOf<BackEnd>, back_end,
        "the kernel interface"),
    row!("SOCKETS_MAX", Whole<usize, 1>, io.sockets_max,
        "open sockets; open files bound it further"),
    row!("READ_BUDGET", Bytes<usize>, io.read_budget,
        "bytes read from one socket before the other sockets are read"),
    row!("TIMER_SLACK", Delay, io.timer_slack,
        "timer slack: how late the kernel may wake the thread"),
    row!("SPIN", Delay, io.spin,
        "time of busy-waiting before a deadline, for sends exact to some microseconds; uses a whole core"),
    row!("BUFFERED_BODIES_MAX", Bytes<u64>, buffered_bodies_max,
        "memory for all bodies together; at the bound reading stops"),
    row!("STOP_GRACE", Delay, stop_grace,
        "time that a stopping crawl gives requests in flight"),
    row!("RANDOM_SEED", Maybe<Whole<u64, 0>>, random_seed,
        "random seed; unset: another one each time"),
    // Files.
    row!("WARC", Flag, warc,
        "exchanges are written to WARC files"),
    row!("WARC_SIZE_MAX", Bytes<u64>, warc_size_max,
        "the largest WARC file; then the next is begun"),
];
