//! Which scopes a request is throttled under, when it does not say so itself.
//!
//! The crawl asks a map once per request, before that waits in a lane. A map answers at once, or
//! takes a [`Later`] and answers from any thread: only that one request waits for it.

mod scopes;
mod built_in;

use std::fmt;

use serde_json::value::RawValue;

pub use built_in::{ByAddress, ByDomain, ByEndpoint, ByHierarchy, ByHost, Combined, UnknownMap};
pub use scopes::{Entry, SCOPES_MAX, Scopes, add_scope};

use crate::wire::url::CrawlUrl;

/// Maps a request to its scopes. Asked once for every request that is admitted, and again for where
/// it redirects to.
///
/// ```
/// use argiope::{ScopeQuery, ByHost, CrawlUrl, ScopeMap};
///
/// /// Requests to a scraping API are also throttled under the site that they are about, and cost.
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
    /// Adds the scopes of a request, the most general first and the most specific last; none at all
    /// means that only the global limits hold.
    fn scopes(&self, query: &mut ScopeQuery<'_>);

    /// Whether requests are also throttled under the address that they go to, as `ip/ADDRESS`. That
    /// is known only when the name has been looked up, so a map cannot add it.
    fn wants_address(&self) -> bool {
        false
    }
}

/// A request whose scopes are asked for, and what was answered so far.
pub struct ScopeQuery<'a> {
    url: &'a CrawlUrl,
    facts: Facts<'a>,
    defer: Option<&'a mut dyn FnMut() -> Later>,
    scopes: Scopes,
    unheard: bool,
}

/// What a request says beyond its URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub method: &'a str,
    pub headers: &'a [(String, String)],
    pub meta: Option<&'a RawValue>,
}

impl<'a> ScopeQuery<'a> {
    /// Asks about a GET of `url` where nobody can wait for an answer: a map that wants to answer
    /// later is taken at its word that it has none, and the request is mapped by its host.
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
            unheard: false,
        }
    }

    /// Asks about a request. `defer` is called for every answer that is to come later.
    pub(crate) fn new(
        url: &'a CrawlUrl,
        facts: Facts<'a>,
        defer: &'a mut dyn FnMut() -> Later,
    ) -> Self {
        ScopeQuery {
            facts,
            defer: Some(defer),
            ..ScopeQuery::about(url)
        }
    }

    /// Where it goes to.
    pub fn url(&self) -> &'a CrawlUrl {
        self.url
    }

    /// Its method.
    pub fn method(&self) -> &'a str {
        self.facts.method
    }

    /// The first of its own header fields of this name. What the crawl adds to every request
    /// (`User-Agent`, `Host`) is not among them.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.facts
            .headers
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The JSON that its caller gave it.
    pub fn meta(&self) -> Option<&'a RawValue> {
        self.facts.meta
    }

    /// Adds a scope.
    pub fn add(&mut self, name: impl Into<String>) {
        self.scopes.put(Entry::of(name));
    }

    /// Adds a scope, and what the request is expected to cost of its quota.
    pub fn add_cost(&mut self, name: impl Into<String>, units: f64) {
        self.scopes.put(Entry::of(name).cost(units));
    }

    /// Adds scopes: a name, a list, a set, a map of names to costs.
    pub fn add_all(&mut self, scopes: impl Into<Scopes>) {
        self.scopes.join(scopes.into());
    }

    /// Says that the order of the scopes means nothing: none is more specific than the others, and
    /// a refusal is about all of them.
    pub fn unordered(&mut self) {
        self.scopes.set_unordered();
    }

    /// Says that the answer, or the rest of it, comes later. What was added stays, and goes before
    /// what comes.
    pub fn later(&mut self) -> Later {
        match &mut self.defer {
            Some(defer) => defer(),
            None => {
                self.unheard = true;
                Later::new(|_| ())
            }
        }
    }

    /// What was answered, once the map has returned.
    pub fn into_scopes(mut self) -> Scopes {
        if self.unheard {
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

/// An answer that is still to be given, from any thread. Dropped without one, the request is mapped
/// by its host.
#[must_use = "dropped at once, the request is mapped by its host"]
pub struct Later {
    tell: Option<Tell>,
}

type Tell = Box<dyn FnOnce(Option<Scopes>) + Send + Sync>;

impl Later {
    /// `tell` hears the answer, or `None` where there will be none. It is called once.
    pub(crate) fn new(tell: impl FnOnce(Option<Scopes>) + Send + Sync + 'static) -> Self {
        Later {
            tell: Some(Box::new(tell)),
        }
    }

    /// Gives the answer. One that comes after the crawl ended is nobody's.
    pub fn answer(mut self, scopes: impl Into<Scopes>) {
        if let Some(tell) = self.tell.take() {
            tell(Some(scopes.into()));
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(None);
        }
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
