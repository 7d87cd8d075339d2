//! A request: one URL with its options.

pub mod seeds;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::base::scopes::SCOPES_MAX;
use crate::wire::proxy::{Proxy, Route};

/// A request as a user submits it: by a seeds line, from code, or found as a link.
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
    /// Higher goes first within its lane; 0 is the default.
    pub priority: i32,
    /// Links followed from a seed to get here: 0 for a seed. What it links to has one more, and
    /// `DEPTH_LIMIT` counts from here.
    pub depth: u32,
    /// A sitemap, not a page: it is read for the URLs that it names. How many sitemaps lead to it, itself
    /// among them: 1 as for one that a robots.txt names, which `SITEMAP_DEPTH_LIMIT` counts. 0 for a page.
    pub sitemap: u32,
    /// The scopes to be throttled under, in place of the mapped ones; none at all means that only
    /// the global limits hold. They hold for its retries, its redirects and the robots.txt it asks for,
    /// too, and for none of its links. They have no order: a refusal is about all of them.
    pub scopes: Option<Vec<String>>,
    /// What this request is expected to cost each of `scopes`, in the same order, in the units of
    /// their quotas. Empty if none were given: 1 each. Every retry and redirect costs as much again;
    /// what an answer did cost [`Feedback::actual`](crate::Feedback::actual) tells.
    pub scope_costs: Vec<f64>,
    /// Scrapy's `autothrottle_dont_adjust_delay`: the reply teaches AutoThrottle nothing.
    pub dont_adjust_delay: bool,
    /// How long its fetch may take from its release, in place of `DOWNLOAD_TIMEOUT`. Waits for its turn
    /// and for the sink do not count. Zero lets it do nothing in time, and a hundred years are the most.
    pub timeout: Option<Duration>,
    /// Bytes of its body that are kept, in place of `DOWNLOAD_MAXSIZE`; 0 keeps none, and any number
    /// is allowed: memory is bounded by `BUFFERED_BODIES_MAX` and this one body. Of no effect on a body
    /// that is [taken](crate::BodyMode::Take) in pieces.
    pub body_max: Option<u64>,
    /// Its robots.txt is not asked. What is queued before it in its lane still is.
    pub ignore_robots: bool,
    /// No links are looked for in its page.
    pub dont_follow: bool,
    /// Scrapy's `dont_filter`: it comes in though its URL was seen before or a filter would leave it
    /// out, and so do the targets of its redirects. A URL is seen whatever its method was: a GET after a
    /// HEAD needs this.
    pub dont_filter: bool,
    /// How it goes, in place of `PROXY`. What follows from it goes the same way: its redirects, its
    /// links, the robots.txt it asks for and the sitemaps named there.
    pub route: Option<Route>,
    /// Names of further header fields that are for its origin alone: a redirect elsewhere drops them, as
    /// it does `Authorization`, `Cookie`, `Proxy-Authorization` and `Host`.
    pub private_headers: Vec<String>,
    /// It carries none of the credentials among the header fields of every request, and its origin does
    /// not become one that gets them.
    pub dont_send_credentials: bool,
    /// Scrapy's `dont_merge_cookies`: it carries none of the cookies that are kept, and none that its
    /// reply sets is.
    pub dont_merge_cookies: bool,
    pub(crate) meta: Option<Box<RawValue>>,
    /// The caller's own number, returned as `meta` is; 0 if none was given.
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

    /// Uses this method instead, for example `HEAD`.
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

    /// Sends this field too.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends this field too, to its origin alone: a redirect to another scheme, host or port drops it, as
    /// it does `Authorization` and `Cookie`.
    pub fn private_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.private_headers.push(name.clone());
        self.header(name, value)
    }

    /// Goes before those of lower priority in its lane; 0 is the usual one.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Is throttled under this scope instead of the mapped ones. Called again, under both.
    pub fn scope(mut self, name: impl Into<String>) -> Self {
        self.scopes.get_or_insert_default().push(name.into());
        self
    }

    /// Is throttled under this scope instead of the mapped ones, and expected to cost so much of its
    /// quota, where others cost 1. Called again, under both.
    pub fn scope_cost(mut self, name: impl Into<String>, units: f64) -> Self {
        let before = self.scopes.as_ref().map_or(0, Vec::len);
        self.scope_costs.resize(before, 1.0);
        self.scope_costs.push(units);
        self.scope(name)
    }

    /// Is throttled under this scope alone, as by Scrapy's meta key of the same name.
    /// `DOWNLOAD_SLOTS` and `THROTTLING_SCOPES` set how.
    pub fn download_slot(self, name: impl Into<String>) -> Self {
        self.without_scopes().scope(name)
    }

    /// Is throttled under no scope: only the global limits hold.
    pub fn without_scopes(mut self) -> Self {
        self.scopes = Some(Vec::new());
        self.scope_costs.clear();
        self
    }

    /// Asks that its reply teach AutoThrottle nothing, however slow it is.
    pub fn dont_adjust_delay(mut self) -> Self {
        self.dont_adjust_delay = true;
        self
    }

    /// Carries none of the credentials that `DEFAULT_REQUEST_HEADERS` has for the origins of the seeds,
    /// and does not make its origin one of these.
    pub fn dont_send_credentials(mut self) -> Self {
        self.dont_send_credentials = true;
        self
    }

    /// Logs in with name and password (RFC 7617). Not sent on to another origin by a redirect.
    pub fn basic_auth(self, name: &str, password: &str) -> Self {
        let credentials = BASE64.encode(format!("{name}:{password}").as_bytes());
        self.header("Authorization", format!("Basic {credentials}"))
    }

    /// Shows a token (RFC 6750). Not sent on to another origin by a redirect.
    pub fn bearer_auth(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// Timeout from its release, in place of `DOWNLOAD_TIMEOUT`: see [`Request::timeout`]
    /// (the field).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Bytes kept of its body, in place of `DOWNLOAD_MAXSIZE`.
    pub fn body_max(mut self, bytes: u64) -> Self {
        self.body_max = Some(bytes);
        self
    }

    /// Is fetched even if robots.txt disallows it.
    pub fn ignore_robots(mut self) -> Self {
        self.ignore_robots = true;
        self
    }

    /// Leads nowhere: no links are looked for in its page.
    pub fn dont_follow(mut self) -> Self {
        self.dont_follow = true;
        self
    }

    /// Comes in though it was seen before, or a filter would leave it out.
    pub fn dont_filter(mut self) -> Self {
        self.dont_filter = true;
        self
    }

    /// Goes through this proxy in place of `PROXY`, and so does what follows from it: its
    /// redirects, its links, the robots.txt it asks for and the sitemaps named there.
    ///
    /// Its origin's address is then the proxy's to find and to judge: `RESOLVE` looks at the proxy's own
    /// name alone, and the proxy, having been named, may have any address. `ALLOW_NET` and `EXCLUDE`'s
    /// networks hold for a host that is an address itself; what a name leads to they do not see.
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.route = Some(Route::Proxy(Arc::new(proxy)));
        self
    }

    /// Goes through no proxy, even if `PROXY` is set, and so does what follows from it.
    pub fn without_proxy(mut self) -> Self {
        self.route = Some(Route::Direct);
        self
    }

    /// Has nothing to do with the cookies of others, where `COOKIES_ENABLED` keeps them. One that
    /// brings a Cookie field of its own carries no others either, but its reply's are kept.
    pub fn dont_merge_cookies(mut self) -> Self {
        self.dont_merge_cookies = true;
        self
    }

    /// A value of the caller's own, handed back as JSON with every attempt: also after retries and
    /// redirects, but not with robots.txt, sitemaps and the links that are found.
    ///
    /// # Panics
    /// It cannot be written as JSON: a map whose keys are no text, or a `Serialize` that fails.
    pub fn meta(mut self, meta: impl Serialize) -> Self {
        self.meta = Some(to_raw_value(&meta).expect("the metadata of a request is JSON"));
        self
    }

    /// The JSON that [`Request::meta`] set, or its seeds line.
    pub fn meta_json(&self) -> Option<&str> {
        self.meta.as_deref().map(RawValue::get)
    }

    /// A number of the caller's own, handed back with the result.
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

    /// Whether its own scopes and their costs are such as can be throttled.
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

/// Why a request cannot have the scopes that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopesError {
    /// One has no name.
    #[error("a scope's name is empty")]
    Unnamed,
    /// More than a request can wait for.
    #[error("{0} scopes are too many; {SCOPES_MAX} are the most")]
    TooMany(usize),
    /// There are more costs than scopes.
    #[error("there are more costs than scopes")]
    CostsOfNothing,
    /// A cost that is none.
    #[error("a cost is a number from 0 up, not {0}")]
    Cost(String),
}

impl ScopesError {
    /// The stable name.
    pub const fn code(&self) -> &'static str {
        match self {
            ScopesError::Unnamed => "scopes.unnamed",
            ScopesError::TooMany(_) => "scopes.too_many",
            ScopesError::CostsOfNothing => "scopes.costs",
            ScopesError::Cost(_) => "scopes.cost",
        }
    }

    /// Whether another try may end otherwise: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// Purpose of a request; `kind` of a result line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PageKind {
    /// A page, asked for by a seed or a link.
    #[default]
    Page,
    /// A robots.txt.
    Robots,
    /// A sitemap.
    Sitemap,
}

impl PageKind {
    /// The word in result lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            PageKind::Page => "page",
            PageKind::Robots => "robots",
            PageKind::Sitemap => "sitemap",
        }
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
