//! Every setting there is, in one place: name, kind, meaning, and the field behind it.

use serde_json::Value;

use super::error::{Problem, nearest};
use super::form::{Codes, Flag, Form, JitterForm, Maybe, OneOf, Opposite, Patterns};
use super::net::{
    Agent, Contact, Exclusions, File, Headers, Nets, Overrides, Servers, Token, Words,
};
use super::quantity::{AboveZero, Bytes, Delay, Limit, Timeout, Whole};
use super::scopes::{Scopes, Slots};
use super::{BackEnd, Config};
use crate::frontier::settings::Follow;
use crate::throttle::settings::LatencyFrom;

/// A setting: what a person may say, and which field of the [`Config`] it becomes.
#[derive(Debug)]
pub struct Setting {
    /// Its name: Scrapy's where Scrapy has one.
    pub name: &'static str,
    /// What kind of value it takes.
    pub kind: &'static str,
    /// What it does, in a line.
    pub meaning: &'static str,
    /// The key by which a scope says the same for itself.
    pub scope_key: Option<&'static str>,
    pub(super) read: fn(&Config) -> Value,
    pub(super) write: fn(&mut Config, &Value) -> Result<(), Problem>,
}

impl Setting {
    const fn scope_key(mut self, key: &'static str) -> Self {
        self.scope_key = Some(key);
        self
    }

    /// The value that holds where nobody says anything.
    pub fn default(&self) -> Value {
        (self.read)(&Config::default())
    }
}

/// Every setting, in the order in which a person would want to read of them.
pub fn settings() -> &'static [Setting] {
    TABLE
}

/// The setting of this name, in any case.
pub(super) fn find(name: &str) -> Result<&'static Setting, Problem> {
    let known = TABLE
        .iter()
        .find(|setting| setting.name.eq_ignore_ascii_case(name.trim()));
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
    row!("CONCURRENT_REQUESTS_PER_DOMAIN", Whole<u32, 1>, throttle.default.concurrency, said.concurrency,
        "requests in flight per scope; unset with AutoThrottle on: 8").scope_key("concurrency"),
    row!("CONCURRENT_REQUESTS_PER_IP", Whole<u32, 0>, throttle.concurrent_requests_per_ip,
        "requests in flight per address; 0: addresses are no scopes"),
    row!("DOWNLOAD_DELAY", Delay, throttle.default.delay, said.delay,
        "least gap between sends of a scope, and AutoThrottle's floor; unset with AutoThrottle on: 0").scope_key("delay"),
    row!("DOWNLOAD_DELAY_PER_SLOT", Delay, throttle.default.delay_per_slot, said.delay_per_slot,
        "least gap between sends of one slot of a scope; unset with a delay set or AutoThrottle on: 0").scope_key("delay_per_slot"),
    row!("RANDOMIZE_DOWNLOAD_DELAY", JitterForm, throttle.default.jitter,
        "each gap is drawn around the delay: true is 0.5 either way").scope_key("jitter"),
    row!("THROTTLING_SCOPES", Scopes, said.scopes,
        "scopes that differ: concurrency, delay, delay_per_slot, jitter, ignore_robots_txt"),
    row!("DOWNLOAD_SLOTS", Slots, said.slots,
        "the same as Scrapy has it: concurrency, delay, randomize_delay"),
    row!("AUTOTHROTTLE_ENABLED", Flag, said.autothrottle,
        "the delay follows the latency"),
    row!("AUTOTHROTTLE_START_DELAY", Delay, said.autothrottle_settings.start_delay,
        "the delay before anything is known"),
    row!("AUTOTHROTTLE_MAX_DELAY", Delay, said.autothrottle_settings.max_delay,
        "the longest delay that latency may bring about"),
    row!("AUTOTHROTTLE_TARGET_CONCURRENCY", AboveZero, said.autothrottle_settings.target_concurrency,
        "requests in parallel that it aims at; fractions allowed"),
    row!("LATENCY_FROM", OneOf<LatencyFrom>, said.autothrottle_settings.latency_from,
        "where that latency begins: at the request's departure, or at TCP established"),
    row!("THROTTLING_ROBOTSTXT_OBEY", Flag, throttle.robotstxt_obey,
        "robots.txt's Crawl-delay is honoured").scope_key("ignore_robots_txt"),
    row!("THROTTLING_ROBOTSTXT_MAX_DELAY", Delay, throttle.robotstxt_max_delay,
        "no Crawl-delay is taken for longer than this"),
    // Identity and robots.txt.
    row!("USER_AGENT", Agent, said.user_agent,
        "who we say we are; the contact is added"),
    row!("CONTACT", Maybe<Contact>, said.contact,
        "where whoever runs the crawl is reached; needed above 10 public hosts"),
    row!("DEFAULT_REQUEST_HEADERS", Headers, fetch.headers,
        "headers sent with every request"),
    row!("ROBOTSTXT_OBEY", Flag, frontier.robots_obey,
        "robots.txt is obeyed"),
    row!("ROBOTSTXT_USER_AGENT", Maybe<Token>, said.robots_agent,
        "the token looked for in robots.txt; unset: that of USER_AGENT"),
    row!("ROBOTSTXT_CACHE_TIME", Timeout, frontier.robots_lifetime,
        "how long a robots.txt holds"),
    // What is fetched.
    row!("FOLLOW", OneOf<Follow>, frontier.follow,
        "which links are followed: none, those on the seeds' hosts, on their domains, or all"),
    row!("DEPTH_LIMIT", Whole<u32, 0>, frontier.depth_limit,
        "how many links deep from a seed; 0: no limit"),
    row!("CLOSESPIDER_PAGECOUNT", Whole<u64, 0>, frontier.pages_max,
        "pages after which the crawl ends; 0: no limit"),
    row!("CLOSESPIDER_ERRORCOUNT", Whole<u64, 0>, frontier.errors_max,
        "pages ended by an error after which the crawl ends; 0: no limit"),
    row!("CLOSESPIDER_TIMEOUT", Limit, max_time,
        "time after which the crawl ends; 0: no limit"),
    row!("PAGES_PER_HOST_MAX", Whole<u32, 0>, frontier.pages_per_host_max,
        "pages of one host; 0: no limit"),
    row!("ALLOW", Patterns, frontier.allow,
        "where there are any, a URL must match one"),
    row!("DENY", Patterns, frontier.deny,
        "a URL must match none"),
    row!("EXCLUDE", Exclusions, said.exclude,
        "hosts, *.domains and networks never asked"),
    row!("ALLOW_NET", Nets, allow_net,
        "networks asked although not globally routable"),
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
    row!("DROP_QUERY_PARAMETERS", Words, frontier.drop_parameters,
        "query parameters left out of URLs; utm_* is a pattern"),
    row!("FRONTIER_MAX", Whole<usize, 1>, frontier.queued_max,
        "requests queued at once; links beyond are dropped and counted, seeds wait"),
    row!("RETRY_TIMES", Whole<u32, 0>, frontier.retry_times,
        "how often a page is tried again"),
    row!("RETRY_HTTP_CODES", Codes, frontier.retry_codes,
        "statuses that are tried again"),
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
        "the longest silence within a reply"),
    row!("DOWNLOAD_MAXSIZE", Bytes<u64>, fetch.body_max,
        "the largest body; what is over is cut, the rest kept"),
    row!("DOWNLOAD_MIN_RATE", Whole<u64, 0>, fetch.rate_min,
        "bytes a second that a body must bring over 30 s; 0: any"),
    row!("DECODED_RATIO_MAX", Whole<u32, 1>, fetch.ratio_max,
        "how many times larger than its coded form a body may become"),
    row!("KEEPALIVE_TIMEOUT", Delay, fetch.keepalive_timeout,
        "how long a connection waits for its next request"),
    row!("KEEPALIVE_MAX", Whole<usize, 0>, fetch.keepalive_max,
        "connections that may wait"),
    row!("CA_FILE", Maybe<File>, ca_file,
        "certificates trusted beside the usual ones (PEM)"),
    row!("INSECURE", Flag, insecure,
        "certificates are not verified"),
    // Names and machine.
    row!("DNS_SERVERS", Servers, dns_servers,
        "name servers instead of the system's"),
    row!("RESOLVE", Overrides, resolve,
        "addresses by decree; * is every host"),
    row!("IO", OneOf<BackEnd>, back_end,
        "the kernel interface"),
    row!("SOCKETS_MAX", Whole<usize, 1>, io.sockets_max,
        "open sockets; open files bound it further"),
    row!("READ_BUDGET", Bytes<usize>, io.read_budget,
        "bytes read from one socket before the others have their turn"),
    row!("TIMER_SLACK", Delay, io.timer_slack,
        "how coarsely the kernel may time our sleep"),
    row!("BUFFERED_BODIES_MAX", Bytes<u64>, buffered_bodies_max,
        "memory for all bodies together; at the bound reading stops"),
    row!("STOP_GRACE", Delay, stop_grace,
        "how long a stopping crawl waits for what is in flight"),
    row!("RANDOM_SEED", Maybe<Whole<u64, 0>>, random_seed,
        "where randomness starts; unset: elsewhere each time"),
    // Files.
    row!("WARC", Flag, warc,
        "exchanges are kept as WARC files"),
    row!("WARC_SIZE_MAX", Bytes<u64>, warc_size_max,
        "the largest WARC file; then the next is begun"),
];
