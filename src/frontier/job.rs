//! A queued request: what waits in a lane.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::request::{Kind, Request};
use crate::throttle::map::{Entry, Scopes};
use crate::throttle::scope::ScopeId;
use crate::wire::proxy::Route;
use crate::wire::url::CrawlUrl;

/// One attempt that is still to be made.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of the attempt, from 1 in order of admission.
    pub id: u64,
    /// The attempt it came from; 0 for none.
    pub parent: u64,
    /// The URL of that attempt, where it is told: the page with the link, or the redirect.
    pub via: Option<Arc<str>>,
    /// Where to.
    pub url: CrawlUrl,
    /// What for.
    pub kind: Kind,
    /// Asked for by a seed, or by a seed's redirect.
    pub seed: bool,
    /// To be sent on a new connection: a kept one died under it.
    pub fresh: bool,
    /// Whoever submitted it waits to hear how it ends, whatever becomes of it.
    pub heard: bool,
    /// Redirects behind it.
    pub redirects: u8,
    /// 1 for the first attempt at this URL.
    pub attempt: u16,
    /// Links followed from a seed.
    pub depth: u32,
    /// Higher goes first within its lane.
    pub priority: i32,
    /// The largest share of a quota that it is expected to take: of those that are equal otherwise
    /// the largest goes first, since it would wait longest. 0 where nothing bounds it.
    pub share: f32,
    /// What few requests have.
    pub extra: Option<Box<Extra>>,
}

/// What few requests have.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// The method; empty means GET.
    pub method: String,
    /// Further header fields.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The scopes that the request named itself: they survive redirects.
    pub scopes: Option<Vec<String>>,
    /// The expected cost in each of them, where that was said.
    pub scope_costs: Vec<f64>,
    /// What the scope map answered, where that took it a while.
    pub mapped: Option<Box<Scopes>>,
    /// The expected cost in those of its lane's scopes for which one was said. The lane keeps their
    /// numbers theirs.
    pub costs: Vec<(ScopeId, f64)>,
    /// The reply teaches AutoThrottle nothing.
    pub dont_adjust_delay: bool,
    /// How long its fetch may take, where that was said.
    pub timeout: Option<Duration>,
    /// Bytes of its body that are kept, where that was said.
    pub body_max: Option<u64>,
    /// Its robots.txt is not asked.
    pub ignore_robots: bool,
    /// No links are looked for in its page.
    pub dont_follow: bool,
    /// No filter leaves it out, nor what it redirects to.
    pub dont_filter: bool,
    /// How it goes, where that was said.
    pub route: Option<Route>,
    /// It neither carries the cookies that are kept nor adds to them.
    pub dont_merge_cookies: bool,
    /// The caller's own JSON.
    pub meta: Option<Box<RawValue>>,
    /// The caller's own number.
    pub tag: u64,
    /// The attempt that it descends from by retries and redirects; 0 where it is the first itself.
    pub root: u64,
    /// URLs that redirected to this one, by fingerprint.
    pub redirected_from: Vec<u64>,
    /// The origin whose robots.txt this fetch is to bring (another's, after a redirect).
    pub robots_for: Option<u32>,
}

impl Extra {
    /// What a request says beyond its URL, if it says anything.
    pub fn of(request: &Request) -> Option<Box<Extra>> {
        let told = !request.method.is_empty()
            || !request.headers.is_empty()
            || !request.body.is_empty()
            || request.scopes.is_some()
            || request.dont_adjust_delay
            || request.timeout.is_some()
            || request.body_max.is_some()
            || request.ignore_robots
            || request.dont_follow
            || request.dont_filter
            || request.route.is_some()
            || request.dont_merge_cookies
            || request.meta.is_some()
            || request.tag != 0;
        told.then(|| {
            Box::new(Extra {
                method: request.method.clone(),
                headers: request.headers.clone(),
                body: request.body.clone(),
                scopes: request.scopes.clone(),
                scope_costs: request.scope_costs.clone(),
                dont_adjust_delay: request.dont_adjust_delay,
                timeout: request.timeout,
                body_max: request.body_max,
                ignore_robots: request.ignore_robots,
                dont_follow: request.dont_follow,
                dont_filter: request.dont_filter,
                route: request.route.clone(),
                dont_merge_cookies: request.dont_merge_cookies,
                meta: request.meta.clone(),
                tag: request.tag,
                ..Extra::default()
            })
        })
    }
}

impl Job {
    /// The page of a URL that a seed names, its first attempt.
    pub fn seed(id: u64, url: CrawlUrl) -> Self {
        Job {
            id,
            parent: 0,
            via: None,
            url,
            kind: Kind::Page,
            seed: true,
            fresh: false,
            heard: false,
            redirects: 0,
            attempt: 1,
            depth: 0,
            priority: 0,
            share: 0.0,
            extra: None,
        }
    }

    /// The attempt that it descends from by retries and redirects: its own number where it is the
    /// first.
    pub fn root(&self) -> u64 {
        match self.extra.as_deref() {
            Some(Extra { root: 0, .. }) | None => self.id,
            Some(extra) => extra.root,
        }
    }

    /// The method.
    pub fn method(&self) -> &str {
        match &self.extra {
            Some(extra) if !extra.method.is_empty() => &extra.method,
            _ => "GET",
        }
    }

    /// Whether making it twice does no more than making it once (RFC 9110, section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        let idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
        idempotent.contains(&self.method())
    }

    /// The scopes that need not be asked for: those that the request named itself, or that the map
    /// told before.
    pub fn own_scopes(&self) -> Option<Scopes> {
        let extra = self.extra.as_deref()?;
        let Some(names) = &extra.scopes else {
            return extra.mapped.as_deref().cloned();
        };
        let costs = extra.scope_costs.iter().copied().map(Some);
        let entries = names.iter().zip(costs.chain(std::iter::repeat(None)));
        let entries = entries.map(|(name, cost)| Entry {
            name: name.clone(),
            cost,
        });
        // A request names a set: none of them is more specific than the others.
        Some(entries.collect::<Scopes>().unordered())
    }

    /// What it is expected to cost those of its scopes for which that was said.
    pub fn costs(&self) -> &[(ScopeId, f64)] {
        self.extra.as_ref().map_or(&[][..], |extra| &extra.costs)
    }

    /// Whether its reply teaches AutoThrottle nothing.
    pub fn dont_adjust_delay(&self) -> bool {
        self.extra
            .as_ref()
            .is_some_and(|extra| extra.dont_adjust_delay)
    }

    /// How long its fetch may take, where that was said.
    pub fn timeout(&self) -> Option<Duration> {
        self.extra.as_ref()?.timeout
    }

    /// How it goes, where that was said.
    pub fn route(&self) -> Option<&Route> {
        self.extra.as_ref()?.route.as_ref()
    }

    /// Whether no filter leaves it out.
    pub fn dont_filter(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.dont_filter)
    }

    /// The rarer parts, made if there are none.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// What a user would say to have it fetched: for `pending.jsonl`.
    pub fn to_request(&self) -> Request {
        let extra = self.extra.as_deref().cloned().unwrap_or_default();
        Request {
            url: self.url.as_str().to_owned(),
            method: extra.method,
            headers: extra.headers,
            body: extra.body,
            priority: self.priority,
            depth: self.depth,
            scopes: extra.scopes,
            scope_costs: extra.scope_costs,
            dont_adjust_delay: extra.dont_adjust_delay,
            timeout: extra.timeout,
            body_max: extra.body_max,
            ignore_robots: extra.ignore_robots,
            dont_follow: extra.dont_follow,
            dont_filter: extra.dont_filter,
            route: extra.route,
            dont_merge_cookies: extra.dont_merge_cookies,
            meta: extra.meta,
            tag: extra.tag,
        }
    }

    /// Its place among the requests of its lane: the greatest goes first.
    ///
    /// robots.txt first, then sitemaps, then by priority, then by share of a quota (which is never
    /// negative, so that its bits are in its order), then in order of admission.
    pub(super) fn rank(&self) -> Rank {
        let kind = match self.kind {
            Kind::Robots => 2,
            Kind::Sitemap => 1,
            Kind::Page => 0,
        };
        (kind, self.priority, self.share.to_bits(), Reverse(self.id))
    }
}

/// What decides which of two requests goes first.
pub(super) type Rank = (u8, i32, u32, Reverse<u64>);
