//! A request: a URL with its options.

pub mod seeds;

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::base::scopes::SCOPES_MAX;
use crate::base::sentence::debug_as_sentence;
pub use crate::wire::page_kind::PageKind;
use crate::wire::proxy::{Proxy, Route};

/// A request as submitted: from a seeds line or from code.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Request {
    /// The URL, absolute.
    pub url: String,
    /// The method; empty means GET.
    pub method: String,
    /// Further header fields, in order.
    pub headers: Vec<(String, String)>,
    /// The body; empty means none.
    pub body: Vec<u8>,
    /// Within its lane, a higher priority is fetched first; 0 is the default.
    pub priority: i32,
    /// Number of links followed from a seed to this request; 0 for a seed. Links in its page get this
    /// depth plus 1, which `DEPTH_LIMIT` bounds.
    pub depth: u32,
    /// 0 for a page. Otherwise this is a sitemap, whose URLs are fetched; the value is its nesting, which
    /// `SITEMAP_DEPTH_LIMIT` bounds: 1 for a sitemap named in robots.txt, 2 for one named in that.
    pub sitemap: u32,
    /// The scopes that throttle this request, in place of the mapped ones; empty: only the global
    /// limits apply. They also apply to its retries, its redirects and the robots.txt fetched for it, but
    /// not to its links. They are unordered: a refusal slows all of them.
    pub scopes: Option<Vec<String>>,
    /// Expected cost in each of `scopes`, in the same order, in the units of their quotas; missing
    /// costs are 1. Each retry and redirect costs the same again. The cost of a reply, once known, is set
    /// with [`Feedback::actual`](crate::Feedback::actual).
    pub scope_costs: Vec<f64>,
    /// Scrapy's `autothrottle_dont_adjust_delay`: AutoThrottle ignores the latency of the reply.
    pub dont_adjust_delay: bool,
    /// Maximum time of its fetch, from its release by the throttle, in place of `DOWNLOAD_TIMEOUT`. The
    /// waits in the queue and for the sink are not included. 0 times out at once; at most 100 years.
    pub timeout: Option<Duration>,
    /// Maximum size of its body in bytes, in place of `DOWNLOAD_MAXSIZE`; a longer body is cut there, and
    /// 0 keeps nothing. Values above `BUFFERED_BODIES_MAX` are allowed: the memory in use is then at
    /// most that plus this body. No effect on a body that is [taken](crate::BodyMode::Take) in pieces.
    pub body_max: Option<u64>,
    /// Fetch without checking robots.txt. Requests ahead of it in its lane are still checked, and it waits
    /// for them.
    pub ignore_robots: bool,
    /// Do not extract links from its page.
    pub dont_follow: bool,
    /// Scrapy's `dont_filter`: skip the duplicate check and the filters, for this request and for the
    /// targets of its redirects. Duplicates are compared by URL only: a GET after a HEAD of the same URL
    /// needs this.
    pub dont_filter: bool,
    /// Its proxy, or none, in place of `PROXY`. Also applies to its redirects, its links, the robots.txt
    /// fetched for it, and the sitemaps named there.
    pub route: Option<Route>,
    /// Names of header fields that are sent to its origin only: a redirect to another origin drops them,
    /// as it drops `Authorization`, `Cookie`, `Proxy-Authorization` and `Host`.
    pub private_headers: Vec<String>,
    /// Its header fields hold for its origin: they are also sent with its redirects and links there, the links of those
    /// and so on, and the robots.txt and sitemaps that are fetched for them. To another origin none is sent.
    pub headers_for_host: bool,
    /// Send none of the credentials among `DEFAULT_REQUEST_HEADERS`, and do not add its origin to those
    /// that get them.
    pub dont_send_credentials: bool,
    /// Scrapy's `dont_merge_cookies`: send no stored cookies, and store none from its reply.
    pub dont_merge_cookies: bool,
    pub(crate) meta: Option<Box<RawValue>>,
    /// A number of the caller's, returned with every result as `meta` is; 0 by default.
    pub tag: u64,
}

impl Request {
    /// A GET of `url`.
    pub fn get(url: impl Into<String>) -> Self {
        Request {
            url: url.into(),
            ..Request::default()
        }
    }

    /// Sets the method, for example `HEAD`.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = method.into();
        self
    }

    /// A POST of `body` to `url`.
    pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Request {
            url: url.into(),
            method: "POST".to_owned(),
            body: body.into(),
            ..Request::default()
        }
    }

    /// Adds a header field.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a header field that is sent to its origin only: a redirect to another scheme, host or port
    /// drops it, as it drops `Authorization` and `Cookie`.
    pub fn private_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.private_headers.push(name.clone());
        self.header(name, value)
    }

    /// Sets the priority: within its lane, a higher one is fetched first; 0 by default.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Throttles the request under this scope instead of the mapped ones. Further calls add scopes.
    ///
    /// They replace the scope of the host, too: without another call for that, no pace of the host remains but
    /// its Crawl-delay. They are unordered: a refusal slows all of them. For a scope beside the host's, such as a
    /// tenant's, of which a refusal slows the host's alone, use a [`ScopeMap`](crate::ScopeMap) that reads
    /// [`meta`](Request::meta): "Tenants and hosts" in `docs/guide/embedding.md`.
    pub fn scope(mut self, name: impl Into<String>) -> Self {
        self.scopes.get_or_insert_default().push(name.into());
        self
    }

    /// Throttles the request under this scope instead of the mapped ones, with an expected cost of
    /// `units` of its quota (1 by default). Further calls add scopes.
    pub fn scope_cost(mut self, name: impl Into<String>, units: f64) -> Self {
        let before = self.scopes.as_ref().map_or(0, Vec::len);
        self.scope_costs.resize(before, 1.0);
        self.scope_costs.push(units);
        self.scope(name)
    }

    /// Throttles the request under this scope only, like Scrapy's meta key of the same name.
    /// `DOWNLOAD_SLOTS` and `THROTTLING_SCOPES` set its pace.
    pub fn download_slot(self, name: impl Into<String>) -> Self {
        self.without_scopes().scope(name)
    }

    /// Throttles the request under no scope: only the global limits apply.
    pub fn without_scopes(mut self) -> Self {
        self.scopes = Some(Vec::new());
        self.scope_costs.clear();
        self
    }

    /// AutoThrottle ignores the latency of the reply.
    pub fn dont_adjust_delay(mut self) -> Self {
        self.dont_adjust_delay = true;
        self
    }

    /// Sends its header fields with what follows from it at its origin, too: redirects, links, robots.txt, sitemaps.
    pub fn headers_for_host(mut self) -> Self {
        self.headers_for_host = true;
        self
    }

    /// Sends none of the credentials among `DEFAULT_REQUEST_HEADERS`, and does not add its origin to those
    /// that get them.
    pub fn dont_send_credentials(mut self) -> Self {
        self.dont_send_credentials = true;
        self
    }

    /// Sets `Authorization` for Basic authentication (RFC 7617). A redirect to another origin drops it.
    pub fn basic_auth(self, name: &str, password: &str) -> Self {
        let credentials = BASE64.encode(format!("{name}:{password}").as_bytes());
        self.header("Authorization", format!("Basic {credentials}"))
    }

    /// Sets `Authorization` with a bearer token (RFC 6750). A redirect to another origin drops it.
    pub fn bearer_auth(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// Sets the maximum time of its fetch, in place of `DOWNLOAD_TIMEOUT`; see the field
    /// [`Request::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the maximum size of its body, in place of `DOWNLOAD_MAXSIZE`.
    pub fn body_max(mut self, bytes: u64) -> Self {
        self.body_max = Some(bytes);
        self
    }

    /// Fetches the request even if robots.txt disallows it.
    pub fn ignore_robots(mut self) -> Self {
        self.ignore_robots = true;
        self
    }

    /// Extracts no links from its page.
    pub fn dont_follow(mut self) -> Self {
        self.dont_follow = true;
        self
    }

    /// Skips the duplicate check and the filters.
    pub fn dont_filter(mut self) -> Self {
        self.dont_filter = true;
        self
    }

    /// Uses this proxy in place of `PROXY`, also for its redirects, its links, the robots.txt fetched for
    /// it, and the sitemaps named there.
    ///
    /// The proxy resolves the origin's name. So `RESOLVE` applies to the proxy's name only, and `ALLOW_NET`
    /// and the networks of `EXCLUDE` apply only to a host written as an address, not to the addresses of
    /// a name. The proxy itself may have any address.
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.route = Some(Route::Proxy(Arc::new(proxy)));
        self
    }

    /// Uses no proxy, even if `PROXY` is set, also for its redirects, its links, the robots.txt fetched
    /// for it, and the sitemaps named there.
    pub fn without_proxy(mut self) -> Self {
        self.route = Some(Route::Direct);
        self
    }

    /// With `COOKIES_ENABLED`, sends no stored cookies and stores none from its reply. (A request with
    /// a `Cookie` field does not send stored cookies either, but those of its reply are stored.)
    pub fn dont_merge_cookies(mut self) -> Self {
        self.dont_merge_cookies = true;
        self
    }

    /// Attaches a value of the caller's, returned as JSON with every attempt, including retries and
    /// redirects, but not with robots.txt, sitemaps and links that follow from the request.
    ///
    /// # Panics
    /// The value cannot be serialised as JSON: a map whose keys are not text, or a failing `Serialize`.
    pub fn meta(mut self, meta: impl Serialize) -> Self {
        self.meta = Some(to_raw_value(&meta).expect("the metadata of a request is JSON"));
        self
    }

    /// The JSON set by [`Request::meta`] or by the seeds line.
    pub fn meta_json(&self) -> Option<&str> {
        self.meta.as_deref().map(RawValue::get)
    }

    /// Attaches a number of the caller's, returned with every result as `meta` is.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }
}

impl Request {
    /// Its purpose.
    pub(crate) fn kind(&self) -> PageKind {
        match self.sitemap {
            0 => PageKind::Page,
            _ => PageKind::Sitemap,
        }
    }

    /// Validates its own scopes and their costs.
    pub(crate) fn check_scopes(&self) -> Result<(), ScopesError> {
        let names = self.scopes.as_deref().unwrap_or_default();
        if names.iter().any(String::is_empty) {
            return Err(ScopesError::Unnamed);
        }
        if names.len() > SCOPES_MAX {
            return Err(ScopesError::TooMany(names.len()));
        }
        if self.scope_costs.len() > names.len() {
            return Err(ScopesError::CostsOfNothing);
        }
        let is_cost = |cost: &&f64| cost.is_finite() && **cost >= 0.0;
        match self.scope_costs.iter().find(|cost| !is_cost(cost)) {
            Some(cost) => Err(ScopesError::Cost(cost.to_string())),
            None => Ok(()),
        }
    }
}

/// Invalid scopes of a request.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopesError {
    /// A scope's name is empty.
    #[error("a scope's name is empty; give each scope a name")]
    Unnamed,
    /// More scopes than a request can have.
    #[error("{0} scopes are too many; name at most {SCOPES_MAX}")]
    TooMany(usize),
    /// There are more costs than scopes.
    #[error("more costs than scopes; give one cost per scope")]
    CostsOfNothing,
    /// A cost is negative or not finite.
    #[error("invalid cost {0}; give a number of 0 or more")]
    Cost(String),
}

debug_as_sentence!(ScopesError);

impl ScopesError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            ScopesError::Unnamed => "scopes.unnamed",
            ScopesError::TooMany(_) => "scopes.too_many",
            ScopesError::CostsOfNothing => "scopes.costs",
            ScopesError::Cost(_) => "scopes.cost",
        }
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}
