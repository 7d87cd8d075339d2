//! Which entry of the settings applies to a scope, and which exclusions to a host: as the reference of scopes says.

use super::{Entry, Settings};
use crate::wire::url::{CrawlUrl, Host};

impl Settings {
    /// The entry of a scope: its own, or that of the narrowest pattern that matches; `None`: it has none.
    pub fn entry_of(&self, scope: &str) -> Option<&Entry> {
        let entry = |name: &str| self.scopes.get(name);
        if let Some(own) = entry(scope) {
            return Some(own);
        }
        if scope.starts_with("ip/") {
            return entry("ip/*");
        }
        if scope.contains('/') {
            let slashes = scope.match_indices('/').take(PREFIX_SEGMENTS_MAX);
            let mut ends: Vec<usize> = slashes.map(|(at, _)| at).collect();
            ends.retain(|end| &scope[..*end] != "domain");
            let below = |end: usize| entry(&format!("{}/*", &scope[..end]));
            return ends.into_iter().rev().find_map(below);
        }
        let host = scope.split_once(':').map_or(scope, |(host, _)| host);
        let mut above = host.match_indices('.');
        let below = above.find_map(|(dot, _)| entry(&format!("*{}", &host[dot..])));
        below.or_else(|| entry("domain/*").filter(|_| self.is_domain(scope)))
    }

    /// Replaces an entry; `None`: it is gone.
    pub fn set_entry(&mut self, name: String, entry: Option<Entry>) {
        match entry {
            Some(entry) => self.scopes.insert(name, entry),
            None => self.scopes.remove(&name),
        };
    }

    /// Whether a scope is a registrable domain, of which there are scopes.
    fn is_domain(&self, scope: &str) -> bool {
        let mapped = ["domain", "hierarchy"];
        let is_mapped = |kind: &String| mapped.contains(&kind.as_str());
        let is_name = |url: CrawlUrl| {
            matches!(url.host(), Host::Name(host) if host == scope)
                && url.registrable_domain() == scope
        };
        self.scope_map.iter().any(is_mapped)
            && scope.contains('.')
            && CrawlUrl::parse(&format!("http://{scope}/")).is_ok_and(is_name)
    }
}

/// Most slashes of a pattern such as `key/*`.
const PREFIX_SEGMENTS_MAX: usize = 8;

/// Whether an entry of exclusions is this host, or a domain (`*.a.test`) that has it.
pub(in crate::audit) fn excludes(entry: &str, host: &str) -> bool {
    match entry.strip_prefix("*.") {
        Some(domain) => host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
        None => entry == host,
    }
}
