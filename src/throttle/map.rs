//! Maps a request to the scopes under which it is throttled, if it does not name them itself.
//!
//! The crawl calls the map once per request, before the request is queued in a lane. A map answers
//! at once, or takes a [`DeferredScopes`] and answers from any thread; only that request waits for it.

mod built_in;

use std::fmt;

use serde_json::value::RawValue;

pub use built_in::{
    ByAddress, ByDomain, ByEndpoint, ByHierarchy, ByHost, Combined, MapKind, UnknownMap,
};

use crate::base::scopes::{ScopeEntry, Scopes};
use crate::wire::url::CrawlUrl;

/// Maps a request to its scopes. Called once for every admitted request, and again for the target
/// of a redirect.
///
/// ```
/// use argiope::{ScopeQuery, ByHost, CrawlUrl, ScopeMap};
///
/// /// Throttles requests to a scraping API also under their target site, and sets their cost.
/// struct WithTarget;
///
/// impl ScopeMap for WithTarget {
///     fn scopes(&self, query: &mut ScopeQuery<'_>) {
///         ByHost.scopes(query);
///         if query.url().host_str() == "api.example.com" {
///             query.add_cost("credits", 2.5);
///             let target = query.url().query_value("url");
///             if let Some(Ok(target)) = target.map(|target| CrawlUrl::parse(&target)) {
///                 query.add(target.scope_key());
///             }
///         }
///     }
/// }
///
/// let url = CrawlUrl::parse("https://api.example.com/?url=https%3A%2F%2Fa.test%2F")?;
/// let mut query = ScopeQuery::about(&url);
/// WithTarget.scopes(&mut query);
/// let scopes = query.into_scopes();
/// assert!(scopes.names().eq(["api.example.com", "credits", "a.test"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ScopeMap: Send {
    /// Adds the scopes of a request, from the most general to the most specific. Without any scope
    /// only the global limits apply.
    fn scopes(&self, query: &mut ScopeQuery<'_>);

    /// Returns whether requests are also throttled under the address they go to, as `ip/ADDRESS`. A
    /// map cannot add that scope, because the address is known only after name resolution.
    fn wants_address(&self) -> bool {
        false
    }
}

/// A request whose scopes are wanted, and the scopes added so far.
pub struct ScopeQuery<'a> {
    url: &'a CrawlUrl,
    facts: Facts<'a>,
    defer: Option<&'a mut dyn FnMut() -> DeferredScopes>,
    scopes: Scopes,
    is_ignored: bool,
}

/// The parts of a request besides its URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub method: &'a str,
    pub headers: &'a [(String, String)],
    pub meta: Option<&'a RawValue>,
}

impl<'a> ScopeQuery<'a> {
    /// A query about a GET of `url` that must be answered at once. If the map asks for a later
    /// answer, that answer is ignored and the request is mapped by its host.
    pub fn about(url: &'a CrawlUrl) -> Self {
        ScopeQuery {
            url,
            facts: Facts {
                method: "GET",
                headers: &[],
                meta: None,
            },
            defer: None,
            scopes: Scopes::new(),
            is_ignored: false,
        }
    }

    /// A query about a request. `defer` is called for every answer that will come later.
    pub(crate) fn new(
        url: &'a CrawlUrl,
        facts: Facts<'a>,
        defer: &'a mut dyn FnMut() -> DeferredScopes,
    ) -> Self {
        ScopeQuery {
            facts,
            defer: Some(defer),
            ..ScopeQuery::about(url)
        }
    }

    /// URL of the request.
    pub fn url(&self) -> &'a CrawlUrl {
        self.url
    }

    /// Method of the request.
    pub fn method(&self) -> &'a str {
        self.facts.method
    }

    /// The first header field of this name that the request sets itself. Fields that the crawl adds
    /// to every request (`User-Agent`, `Host`) are not included.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.facts
            .headers
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The JSON value that the caller attached to the request.
    pub fn meta(&self) -> Option<&'a str> {
        self.facts.meta.map(RawValue::get)
    }

    /// Adds a scope.
    pub fn add(&mut self, name: impl Into<String>) {
        self.scopes.insert(ScopeEntry::new(name));
    }

    /// Adds a scope, with the expected cost of the request in units of its quota.
    pub fn add_cost(&mut self, name: impl Into<String>, units: f64) {
        self.scopes.insert(ScopeEntry::new(name).cost(units));
    }

    /// Adds scopes, given as a name, a list, a set, or a map of names to costs.
    pub fn add_all(&mut self, scopes: impl Into<Scopes>) {
        self.scopes.join(scopes.into());
    }

    /// Declares the scopes unordered: none is more specific than the others, and a refusal concerns
    /// all of them.
    pub fn unordered(&mut self) {
        self.scopes.set_unordered();
    }

    /// Announces that the answer, or the rest of it, comes later. Scopes added so far are kept, in
    /// front of those that come later.
    pub fn later(&mut self) -> DeferredScopes {
        match &mut self.defer {
            Some(defer) => defer(),
            None => {
                self.is_ignored = true;
                DeferredScopes::new(|_| ())
            }
        }
    }

    /// The scopes, after the map has returned.
    pub fn into_scopes(mut self) -> Scopes {
        if self.is_ignored {
            ByHost.scopes(&mut self);
        }
        self.scopes
    }
}

impl fmt::Debug for ScopeQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeQuery")
            .field("url", self.url)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// An answer that is still to be given, from any thread. If it is dropped without one, the request
/// is mapped by its host.
#[must_use = "if it is dropped, the request is mapped by its host"]
pub struct DeferredScopes {
    on_answer: Option<OnAnswer>,
}

type OnAnswer = Box<dyn FnOnce(Option<Scopes>) + Send + Sync>;

impl DeferredScopes {
    /// `on_answer` is called once, with the answer, or with `None` if there will be none.
    pub(crate) fn new(on_answer: impl FnOnce(Option<Scopes>) + Send + Sync + 'static) -> Self {
        DeferredScopes {
            on_answer: Some(Box::new(on_answer)),
        }
    }

    /// Gives the answer. An answer after the end of the crawl is ignored.
    pub fn answer(mut self, scopes: impl Into<Scopes>) {
        if let Some(on_answer) = self.on_answer.take() {
            on_answer(Some(scopes.into()));
        }
    }
}

impl Drop for DeferredScopes {
    fn drop(&mut self) {
        if let Some(on_answer) = self.on_answer.take() {
            on_answer(None);
        }
    }
}

impl fmt::Debug for DeferredScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredScopes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
