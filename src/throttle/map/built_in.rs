//! The built-in scope maps, which a configuration can name.

use super::{ScopeMap, ScopeQuery};
use std::fmt;

use crate::base::sentence::debug_as_sentence;

/// The default, `host`: one scope per host (with its port, unless it is the scheme's default).
#[derive(Clone, Copy, Debug, Default)]
pub struct ByHost;

/// `domain`: all hosts of a registrable domain share one scope.
///
/// Uses the public suffix list with its private part: `alice.github.io` and `bob.github.io` are two
/// sites. A host without a registrable domain (an address, `localhost`, a suffix itself) is mapped
/// as by [`ByHost`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ByDomain;

/// `hierarchy`: the registrable domain and each subdomain level down to the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByHierarchy;

/// `endpoint`: host and path without the query: `api.example.com/search`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByEndpoint;

/// `ip`: the address that a request goes to, as `ip/ADDRESS`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByAddress;

/// Several maps in sequence. A scope that several of them add is added once.
pub struct Combined(pub Vec<Box<dyn ScopeMap>>);

impl fmt::Debug for Combined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combined").finish_non_exhaustive()
    }
}

impl ScopeMap for ByHost {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        query.add(query.url().scope_key());
    }
}

impl ScopeMap for ByDomain {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        let url = query.url();
        query.add(url.domain().unwrap_or(url.scope_key()));
    }
}

impl ScopeMap for ByHierarchy {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        let url = query.url();
        let Some(domain) = url.domain() else {
            return query.add(url.scope_key());
        };
        let host = url.host_str();
        // The dot before the domain is the last one that is looked at.
        for (dot, _) in host[..host.len() - domain.len()].rmatch_indices('.') {
            query.add(&host[dot + 1..]);
        }
        query.add(host);
    }
}

impl ScopeMap for ByEndpoint {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        let url = query.url();
        // Avoids a clash with reserved names such as `ip/...` if a host has such a name.
        let dot = match url.scope_key() {
            "ip" | "host" | "domain" => ".",
            _ => "",
        };
        query.add(format!("{}{dot}{}", url.scope_key(), url.path()));
    }
}

impl ScopeMap for ByAddress {
    fn scopes(&self, _query: &mut ScopeQuery<'_>) {}

    fn wants_address(&self) -> bool {
        true
    }
}

impl ScopeMap for Combined {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        for map in &self.0 {
            map.scopes(query);
        }
    }

    fn wants_address(&self) -> bool {
        self.0.iter().any(|map| map.wants_address())
    }
}

/// No map has this name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope map {0:?}; known: {list}", list = MapKind::names())]
pub struct UnknownMap(pub String);

debug_as_sentence!(UnknownMap);

impl UnknownMap {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        "scope_map.unknown"
    }

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// `SCOPE_MAP`: a rule that maps a URL to scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Its host, with the port unless it is the scheme's default.
    Host,
    /// Its registrable domain, or its host if there is none.
    Domain,
    /// Its registrable domain and every subdomain level down to its host.
    Hierarchy,
    /// Its host and path, without the query.
    Endpoint,
    /// The address it is fetched from: `ip/ADDRESS`.
    Ip,
}

impl MapKind {
    /// All kinds.
    pub const ALL: [MapKind; 5] = [
        MapKind::Host,
        MapKind::Domain,
        MapKind::Hierarchy,
        MapKind::Endpoint,
        MapKind::Ip,
    ];

    /// The name in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            MapKind::Host => "host",
            MapKind::Domain => "domain",
            MapKind::Hierarchy => "hierarchy",
            MapKind::Endpoint => "endpoint",
            MapKind::Ip => "ip",
        }
    }

    /// All names, for error messages.
    pub fn names() -> String {
        MapKind::ALL.map(MapKind::as_str).join(", ")
    }

    /// Creates the map.
    pub fn map(self) -> Box<dyn ScopeMap> {
        match self {
            MapKind::Host => Box::new(ByHost),
            MapKind::Domain => Box::new(ByDomain),
            MapKind::Hierarchy => Box::new(ByHierarchy),
            MapKind::Endpoint => Box::new(ByEndpoint),
            MapKind::Ip => Box::new(ByAddress),
        }
    }

    /// Combines the maps in this order; without any, the default map.
    pub fn map_of(kinds: &[MapKind]) -> Box<dyn ScopeMap> {
        match kinds {
            [] => Box::new(ByHost),
            [only] => only.map(),
            several => Box::new(Combined(several.iter().map(|kind| kind.map()).collect())),
        }
    }
}

impl fmt::Display for MapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for MapKind {
    type Err = UnknownMap;

    fn from_str(name: &str) -> Result<Self, UnknownMap> {
        let known = |kind: &MapKind| kind.as_str().eq_ignore_ascii_case(name.trim());
        MapKind::ALL
            .into_iter()
            .find(known)
            .ok_or_else(|| UnknownMap(name.to_owned()))
    }
}
