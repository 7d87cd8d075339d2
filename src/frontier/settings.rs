//! Settings of the frontier: what is fetched and what is filtered.

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

use super::host_settings::HostTable;
use super::proxies::Proxies;

/// Filters, limits and habits of the frontier.
#[derive(Clone, Debug)]
pub struct FrontierSettings {
    /// `FOLLOW` and `--follow`: which links are followed.
    pub follow: Follow,
    /// `DEPTH_LIMIT` and `--max-depth`: links followed from a seed; 0: no limit.
    pub depth_limit: u32,
    /// `URLLENGTH_LIMIT`: bytes of a URL.
    pub url_length_limit: usize,
    /// `PATH_REPEAT_LIMIT`: maximum repetitions of one path segment in a URL (crawler traps repeat segments).
    pub path_repeat_limit: u32,
    /// `LINKS_PER_PAGE_MAX`: links taken from one page.
    pub links_per_page_max: usize,
    /// `CLOSESPIDER_PAGECOUNT` and `--max-pages`: pages fetched; 0: no limit.
    pub pages_max: u64,
    /// `CLOSESPIDER_ERRORCOUNT`: final results with an error after which the crawl ends, other than
    /// `filtered`, `cancelled` and `robots.disallowed`; 0: no limit.
    pub errors_max: u64,
    /// `CLOSESPIDER_BYTECOUNT` and `--max-bytes`: bytes of replies, as they came over the wire; 0: no limit.
    pub bytes_max: u64,
    /// `PAGES_PER_HOST_MAX` and `--max-pages-per-host`: pages fetched of one host; 0: no limit.
    pub pages_per_host_max: u32,
    /// `PAGES_PER_DOMAIN_MAX`: pages fetched of one registrable domain; 0: no limit.
    pub pages_per_domain_max: u32,
    /// `BYTES_PER_DOMAIN_MAX`: bytes received from one registrable domain, after which no request is sent to
    /// it; 0: no limit.
    pub bytes_per_domain_max: u64,
    /// `ALLOW` and `--allow`: where there are any, a URL must match one.
    pub allow: Vec<Regex>,
    /// `DENY` and `--deny`: a URL must match none.
    pub deny: Vec<Regex>,
    /// `EXCLUDE` and `--exclude`: hosts (`example.com`) and domains (`*.example.com`) never asked. CIDRs
    /// go to the address guard.
    pub exclude_hosts: Vec<String>,
    /// `FRONTIER_MAX`: requests queued at once; links beyond it are dropped and counted, seeds wait. 0: no
    /// limit.
    pub queued_max: usize,
    /// `FRONTIER_MEMORY`: bytes for queued requests and their lanes. With a state on disk, requests beyond it
    /// wait there.
    pub memory_max: u64,
    /// `SEEN_MEMORY`: bytes for keys of admitted URLs. With a state on disk, keys beyond it go there. 80
    /// million URLs fit into the default, which takes a minute to write.
    pub seen_memory_max: u64,
    /// `ROBOTSTXT_OBEY`.
    pub robots_obey: bool,
    /// `ROBOTSTXT_USER_AGENT`: the token looked for in robots.txt.
    pub robots_agent: String,
    /// `ROBOTSTXT_CACHE_TIME`: how long a robots.txt holds.
    pub robots_lifetime: Duration,
    /// `ROBOTS_MEMORY`: bytes of the rules of all robots.txt files; those used least lately go first,
    /// and are fetched again when they are needed.
    pub robots_memory: u64,
    /// `RETRY_TIMES`: how often a page is tried again.
    pub retry_times: u32,
    /// `RETRY_HTTP_CODES`.
    pub retry_codes: Vec<u16>,
    /// `RETRY_EXCEPTIONS`: errors tried again, by kind (`timeout`) or by kind and code (`dns.servfail`).
    pub retry_exceptions: Vec<String>,
    /// `REDIRECT_MAX_TIMES`; robots.txt has a limit of its own, 5.
    pub redirects_max: u32,
    /// `FOLLOW_NOFOLLOW` inverted: `rel=nofollow`, robots meta and `X-Robots-Tag` are honoured.
    pub nofollow: bool,
    /// `FOLLOW_RESOURCES`: also `link`, `img`, `script`, `source`, `form`.
    pub follow_resources: bool,
    /// `FOLLOW_SITEMAPS`: sitemaps named in robots.txt are read.
    pub sitemaps: bool,
    /// `SITEMAP_DEPTH_LIMIT`: how deep sitemaps may stand in one another, from 1 for those that robots.txt
    /// names; 0: no limit.
    pub sitemap_depth_limit: u32,
    /// `SITEMAPS_PER_HOST_MAX`: sitemaps fetched of one host; 0: no limit.
    pub sitemaps_per_host_max: u32,
    /// `HOST_…`: when a host that does not answer is held, and when it is given up.
    pub hosts: HostPolicy,
    /// `PROXY`, `PROXY_HTTPS` and `NO_PROXY`: the proxies of requests that name none.
    pub proxies: Proxies,
    /// `HOSTS`: settings of single hosts.
    pub own_hosts: Arc<HostTable>,
    /// `DROP_QUERY_PARAMETERS`: names of query parameters (tracking, session ids) left out of URLs;
    /// `utm_*` patterns.
    pub drop_parameters: Vec<String>,
}

impl Default for FrontierSettings {
    fn default() -> Self {
        FrontierSettings {
            follow: Follow::Host,
            depth_limit: 0,
            url_length_limit: 8192,
            path_repeat_limit: 5,
            links_per_page_max: 10_000,
            pages_max: 0,
            errors_max: 0,
            bytes_max: 0,
            pages_per_host_max: 0,
            pages_per_domain_max: 0,
            bytes_per_domain_max: 0,
            allow: Vec::new(),
            deny: Vec::new(),
            exclude_hosts: Vec::new(),
            queued_max: 0,
            memory_max: 1 << 30,
            seen_memory_max: 1 << 30,
            robots_obey: true,
            robots_agent: "argiope".to_owned(),
            robots_lifetime: Duration::from_secs(24 * 3600),
            robots_memory: 256 << 20,
            retry_times: 2,
            retry_codes: vec![500, 502, 503, 504, 522, 524, 408, 429],
            // What may be gone at the next try. A name that does not exist will not exist then.
            retry_exceptions: [
                "connect",
                "timeout",
                "reset",
                "truncated",
                "dns.timeout",
                "dns.servfail",
            ]
            .map(str::to_owned)
            .to_vec(),
            redirects_max: 20,
            nofollow: true,
            follow_resources: false,
            sitemaps: false,
            // The protocol knows an index and the sitemaps in it; some nest once more.
            sitemap_depth_limit: 3,
            // Fifty million URLs.
            sitemaps_per_host_max: 1000,
            hosts: HostPolicy::default(),
            proxies: Proxies::default(),
            own_hosts: Arc::default(),
            drop_parameters: Vec::new(),
        }
    }
}

/// When a host that does not answer is held, so that its requests wait, and when it is given up, so that they
/// fail.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPolicy {
    /// `HOST_DOWN_EXCEPTIONS`: the errors that count against a host, by kind (`dns`) or by kind and code
    /// (`connect.refused`), where it could not be connected to, or its robots.txt got no answer.
    pub exceptions: Vec<String>,
    /// `HOST_HOLD_FAILURES`: failures in a row after which it is held; one for robots.txt is enough.
    pub failures_max: u8,
    /// `HOST_HOLD_MIN`: the first hold; each further one is twice as long.
    pub hold_min: Duration,
    /// `HOST_HOLD_MAX`: the longest hold.
    pub hold_max: Duration,
    /// `HOST_DOWN_AFTER`: once it was held it is given up at a failure this long after the first one since its last
    /// success. 0: no host is held or given up, and each request fails separately (a probe, or a program that watches its
    /// own servers).
    pub down_after: Duration,
    /// `HOST_DOWN_TIME`: how long it stays given up the first time; each further time twice as long. Then one
    /// request tries again.
    pub down_time: Duration,
    /// `HOST_DOWN_TIME_MAX`: the longest time that it stays given up.
    pub down_time_max: Duration,
}

impl HostPolicy {
    /// Whether a failure counts against the host, if it shows that the host does not answer.
    pub fn counts(&self, is_named: impl Fn(&str) -> bool) -> bool {
        self.exceptions.iter().any(|name| is_named(name))
    }
}

impl Default for HostPolicy {
    fn default() -> Self {
        HostPolicy {
            exceptions: ["connect", "dns", "timeout", "reset", "truncated"]
                .map(str::to_owned)
                .to_vec(),
            // Fewer may be chance where many requests go at once.
            failures_max: 5,
            hold_min: Duration::from_secs(5),
            hold_max: Duration::from_secs(15 * 60),
            // A restart, or a deployment, takes no longer.
            down_after: Duration::from_secs(120),
            down_time: Duration::from_secs(15 * 60),
            down_time_max: Duration::from_secs(24 * 3600),
        }
    }
}

/// Which links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Follow {
    /// None: only the seeds are fetched.
    None,
    /// Those on the hosts of the seeds and of their redirects.
    Host,
    /// Those on the registrable domains of the seeds and of their redirects.
    Domain,
    /// All.
    All,
}

impl Follow {
    /// The value of `FOLLOW`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Follow::None => "none",
            Follow::Host => "host",
            Follow::Domain => "domain",
            Follow::All => "all",
        }
    }
}
