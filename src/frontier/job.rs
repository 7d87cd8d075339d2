//! One attempt to be made: a request as the frontier and the crawl pass it on.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::extra::{Costs, Extra, Flags};
use super::request::{PageKind, Request};
use crate::base::scopes::Scopes;
use crate::wire::proxy::Route;
use crate::wire::url::CrawlUrl;

/// One attempt to be made.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of the attempt, from 1 in order of admission.
    pub id: u64,
    /// The attempt that led to it; 0 for none.
    pub parent: u64,
    /// The URL of the parent, if known: the page with the link, or the redirect.
    pub via: Option<Arc<str>>,
    /// Its URL.
    pub url: CrawlUrl,
    /// Its purpose.
    pub kind: PageKind,
    /// A seed, or the target of a seed's redirect.
    pub seed: bool,
    /// Send it on a new connection, because a reused one was closed before its reply.
    pub fresh: bool,
    /// The submitter waits for the result, which is always reported.
    pub awaited: bool,
    /// Number of redirects that led to it.
    pub redirects: u8,
    /// Number of the attempt at this URL, from 1.
    pub attempt: u16,
    /// Number of links followed from a seed.
    pub depth: u32,
    /// Within its lane, a higher priority is fetched first.
    pub priority: i32,
    /// The largest share of a quota that it is expected to take; 0 without quotas. Of requests with
    /// equal priority, the largest share is fetched first, because it would wait longest.
    pub share: f32,
    /// Its flags.
    pub flags: Flags,
    /// Optional fields; few requests have any.
    pub extra: Option<Box<Extra>>,
}

impl Job {
    /// The first attempt at a seed's URL.
    pub fn seed(id: u64, url: CrawlUrl) -> Self {
        Job {
            id,
            parent: 0,
            via: None,
            url,
            kind: PageKind::Page,
            seed: true,
            fresh: false,
            awaited: false,
            redirects: 0,
            attempt: 1,
            depth: 0,
            priority: 0,
            share: 0.0,
            flags: Flags::default(),
            extra: None,
        }
    }

    /// The first attempt of its chain of retries and redirects; its own number if it is the first.
    pub fn root(&self) -> u64 {
        let extra = self.extra.as_ref();
        extra.and_then(|extra| extra.root()).unwrap_or(self.id)
    }

    /// The method.
    pub fn method(&self) -> &str {
        let extra = self.extra.as_ref();
        extra.and_then(|extra| extra.method()).unwrap_or("GET")
    }

    /// Whether its method is idempotent (RFC 9110, section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        let idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
        idempotent.contains(&self.method())
    }

    /// Its own header fields, in order.
    pub fn fields(&self) -> Vec<(String, String)> {
        let Some(extra) = &self.extra else {
            return Vec::new();
        };
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        extra.fields().map(owned).collect()
    }

    /// Whether the user or the program named its URL: no page links or redirects to it.
    pub fn names_origin(&self) -> bool {
        self.seed && self.redirects == 0 && self.depth == 0
    }

    /// Whether it is sent without the credentials among `DEFAULT_REQUEST_HEADERS`.
    pub fn is_without_credentials(&self) -> bool {
        let extra = self.extra.as_ref();
        extra.is_some_and(|extra| extra.is_without_credentials())
    }

    /// Names of its own fields that are sent to its origin only.
    pub fn private_headers(&self) -> Vec<String> {
        let extra = self.extra.as_ref();
        let names = extra.into_iter().flat_map(|extra| extra.private_headers());
        names.map(str::to_owned).collect()
    }

    /// The body; empty means none.
    pub fn body(&self) -> &[u8] {
        self.extra.as_ref().map_or(&[], |extra| extra.body())
    }

    /// The caller's JSON.
    pub fn meta(&self) -> Option<&RawValue> {
        self.extra.as_ref()?.meta.as_deref()
    }

    /// The caller's number.
    pub fn tag(&self) -> u64 {
        self.extra.as_ref().map_or(0, |extra| extra.tag())
    }

    /// The scopes that are known without a call of the scope map: named by the request, or returned by
    /// an earlier call.
    pub fn own_scopes(&self) -> Option<Scopes> {
        self.extra.as_ref()?.scopes()
    }

    /// Its expected costs, in those scopes of its lane for which it has one.
    pub fn costs(&self) -> Costs {
        let extra = self.extra.as_ref();
        extra.map_or_else(Costs::new, |extra| extra.costs())
    }

    /// Timeout of its fetch, if the request sets one.
    pub fn timeout(&self) -> Option<Duration> {
        self.extra.as_ref()?.timeout()
    }

    /// Maximum size of its body, if the request sets one.
    pub fn body_max(&self) -> Option<u64> {
        self.extra.as_ref()?.body_max()
    }

    /// Its proxy, if the request sets one.
    pub fn route(&self) -> Option<&Route> {
        self.extra.as_ref()?.route.as_deref()
    }

    /// The origin whose robots.txt this fetch is for.
    pub fn robots_for(&self) -> Option<u32> {
        self.extra.as_ref()?.robots_for()
    }

    /// Nesting of a sitemap: 1 if named in robots.txt; 0 for a page.
    pub fn nesting(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.nesting())
    }

    /// The optional fields, created if there are none.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// The request that, when submitted, has it fetched: for `pending.jsonl`.
    pub fn to_request(&self) -> Request {
        let extra = self.extra.as_ref();
        let (scopes, scope_costs) = extra.and_then(|extra| extra.own_named_scopes()).unzip();
        Request {
            url: self.url.as_str().to_owned(),
            method: extra
                .and_then(|extra| extra.method())
                .unwrap_or_default()
                .to_owned(),
            headers: self.fields(),
            body: self.body().to_owned(),
            priority: self.priority,
            depth: self.depth,
            sitemap: match self.kind {
                PageKind::Sitemap => self.nesting().max(1),
                PageKind::Page | PageKind::Robots => 0,
            },
            scopes,
            scope_costs: scope_costs.unwrap_or_default(),
            dont_adjust_delay: self.flags.dont_adjust_delay,
            timeout: self.timeout(),
            body_max: self.body_max(),
            ignore_robots: self.flags.ignore_robots,
            dont_follow: self.flags.dont_follow,
            dont_filter: self.flags.dont_filter,
            route: self.route().cloned(),
            private_headers: self.private_headers(),
            headers_for_host: extra.is_some_and(|extra| extra.has_shared_fields()),
            dont_send_credentials: self.is_without_credentials(),
            dont_merge_cookies: self.flags.dont_merge_cookies,
            meta: extra.and_then(|extra| extra.meta.clone()),
            tag: self.tag(),
        }
    }

    /// Whether that request has fields that its result line does not have.
    pub fn has_more_than_line(&self) -> bool {
        let extra = self.extra.as_ref();
        self.kind == PageKind::Sitemap
            || self.flags != Flags::default()
            || self.priority != 0
            || extra.is_some_and(|extra| extra.has_more_than_line())
    }

    /// Its rank in its lane: the greatest is fetched first.
    ///
    /// By kind (robots.txt, then sitemaps, which alternate with pages), priority, share of a quota (never
    /// negative, so that its bits have its order), and order of admission.
    pub fn rank(&self) -> Rank {
        let kind = match self.kind {
            PageKind::Robots => 2,
            PageKind::Sitemap => 1,
            PageKind::Page => 0,
        };
        (kind, self.priority, self.share.to_bits(), Reverse(self.id))
    }
}

/// Rank of a request: the greater is fetched first.
pub type Rank = (u8, i32, u32, Reverse<u64>);
