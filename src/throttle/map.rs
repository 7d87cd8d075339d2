//! Which scopes a request is throttled under, when it does not say so itself.

use crate::wire::url::CrawlUrl;

/// Maps a URL to the names of its scopes. Called once for every URL that is admitted.
pub trait ScopeMap {
    /// Appends the names of the scopes of `url`; none at all means that only the global cap holds.
    fn scopes(&self, url: &CrawlUrl, names: &mut Vec<String>);
}

/// The default: each host (with its port, where that is not the scheme's own) is one scope.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByHost;

impl ScopeMap for ByHost {
    fn scopes(&self, url: &CrawlUrl, names: &mut Vec<String>) {
        names.push(url.scope_key().to_owned());
    }
}
