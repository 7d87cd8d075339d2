//! URL filters: which URLs a crawl admits.

use std::fmt;

use hashbrown::HashTable;
use regex::Regex;

use super::settings::{Follow, FrontierSettings};
use crate::base::keys::{HostKey, Keys};
use crate::base::secret::Secret;
use crate::wire::url::CrawlUrl;

/// Why a URL is not admitted. Filtered links are counted by name; they have no result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Filtered {
    /// It was admitted before.
    Duplicate,
    /// Longer than `URLLENGTH_LIMIT`.
    Length,
    /// Deeper than `DEPTH_LIMIT`.
    Depth,
    /// A path segment repeats more than `PATH_REPEAT_LIMIT` times: a crawler trap.
    PathRepeat,
    /// Its host is outside `--follow`.
    Offsite,
    /// No `--allow` matches.
    NotAllowed,
    /// A `--deny` matches.
    Denied,
    /// Its host is excluded.
    Excluded,
    /// `--max-pages-per-host` is reached.
    HostPages,
    /// Its registrable domain has reached `PAGES_PER_DOMAIN_MAX`.
    DomainPages,
    /// Its registrable domain has reached `BYTES_PER_DOMAIN_MAX`.
    DomainBytes,
    /// `FRONTIER_MAX` requests are queued.
    FrontierFull,
    /// Beyond the first `LINKS_PER_PAGE_MAX` links of its page.
    LinksPerPage,
    /// A sitemap nested deeper than `SITEMAP_DEPTH_LIMIT`.
    SitemapDepth,
    /// A sitemap of a host that has reached `SITEMAPS_PER_HOST_MAX`.
    HostSitemaps,
}

impl Filtered {
    /// The name under which it is counted.
    pub const fn as_str(self) -> &'static str {
        match self {
            Filtered::Duplicate => "duplicate",
            Filtered::Length => "url_length",
            Filtered::Depth => "depth",
            Filtered::PathRepeat => "path_repeat",
            Filtered::Offsite => "offsite",
            Filtered::NotAllowed => "not_allowed",
            Filtered::Denied => "denied",
            Filtered::Excluded => "excluded",
            Filtered::HostPages => "max_pages_per_host",
            Filtered::DomainPages => "max_pages_per_domain",
            Filtered::DomainBytes => "max_bytes_per_domain",
            Filtered::FrontierFull => "frontier_full",
            Filtered::LinksPerPage => "links_per_page",
            Filtered::SitemapDepth => "sitemap_depth",
            Filtered::HostSitemaps => "max_sitemaps_per_host",
        }
    }

    /// The name of the setting that causes it; `None` for a duplicate.
    pub fn setting(self) -> Option<&'static str> {
        let mut settings = SETTINGS.iter();
        let found = settings.find(|(filter, _)| *filter == self);
        found.map(|(_, name)| *name)
    }
}

/// The setting of each filter.
const SETTINGS: [(Filtered, &str); 14] = [
    (Filtered::Length, "URLLENGTH_LIMIT"),
    (Filtered::Depth, "DEPTH_LIMIT"),
    (Filtered::PathRepeat, "PATH_REPEAT_LIMIT"),
    (Filtered::Offsite, "FOLLOW"),
    (Filtered::NotAllowed, "ALLOW"),
    (Filtered::Denied, "DENY"),
    (Filtered::Excluded, "EXCLUDE"),
    (Filtered::HostPages, "PAGES_PER_HOST_MAX"),
    (Filtered::DomainPages, "PAGES_PER_DOMAIN_MAX"),
    (Filtered::DomainBytes, "BYTES_PER_DOMAIN_MAX"),
    (Filtered::FrontierFull, "FRONTIER_MAX"),
    (Filtered::LinksPerPage, "LINKS_PER_PAGE_MAX"),
    (Filtered::SitemapDepth, "SITEMAP_DEPTH_LIMIT"),
    (Filtered::HostSitemaps, "SITEMAPS_PER_HOST_MAX"),
];

impl fmt::Display for Filtered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A filter that a URL does not pass, and which of its entries rejects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The filter.
    pub filter: Filtered,
    /// The position of the entry in the list of the filter: a pattern of `DENY`, a host of `EXCLUDE`. `None` if the
    /// filter has no list, or an order excludes the URL.
    pub entry: Option<u32>,
}

impl From<Filtered> for Rejection {
    fn from(filter: Filtered) -> Self {
        let entry = None;
        Rejection { filter, entry }
    }
}

impl Rejection {
    fn by_entry(filter: Filtered, position: usize) -> Self {
        let entry = u32::try_from(position).ok();
        Rejection { filter, entry }
    }

    /// The rule as a setting is written, `DENY=\.pdf$`; `None` if none has caused it, or an order. `url`: the one that is
    /// rejected, if it is known.
    pub fn rule(&self, settings: &FrontierSettings, url: Option<&CrawlUrl>) -> Option<String> {
        let name = self.filter.setting()?;
        let hosts = &settings.own_hosts;
        let own = match self.filter {
            Filtered::Depth => url.and_then(|url| Some(("depth_limit", hosts.depth_limit(url)?))),
            Filtered::HostPages => {
                url.and_then(|url| Some(("pages_max", hosts.pages_max(url.host_str())?)))
            }
            _ => None,
        };
        if let Some((key, (limit, entry))) = own {
            return Some(format!("HOSTS.{entry:?}.{key}={limit}"));
        }
        let at = |list: &[String]| list.get(self.entry? as usize).cloned();
        let value = match self.filter {
            Filtered::Duplicate => return None,
            Filtered::Length => settings.url_length_limit.to_string(),
            Filtered::Depth => settings.depth_limit.to_string(),
            Filtered::PathRepeat => settings.path_repeat_limit.to_string(),
            Filtered::Offsite => settings.follow.as_str().to_owned(),
            Filtered::NotAllowed => {
                let patterns = settings.allow.iter().take(PATTERNS_SHOWN);
                let patterns: Vec<&str> = patterns.map(Regex::as_str).collect();
                patterns.join(",")
            }
            Filtered::Denied => settings.deny.get(self.entry? as usize)?.as_str().to_owned(),
            Filtered::Excluded => at(&settings.exclude_hosts)?,
            Filtered::HostPages => settings.pages_per_host_max.to_string(),
            Filtered::DomainPages => settings.pages_per_domain_max.to_string(),
            Filtered::DomainBytes => settings.bytes_per_domain_max.to_string(),
            Filtered::FrontierFull => settings.queued_max.to_string(),
            Filtered::LinksPerPage => settings.links_per_page_max.to_string(),
            Filtered::SitemapDepth => settings.sitemap_depth_limit.to_string(),
            Filtered::HostSitemaps => settings.sitemaps_per_host_max.to_string(),
        };
        Some(format!("{name}={value}"))
    }
}

/// Patterns of `ALLOW` that a rule names; a URL is rejected because it matches none of all.
const PATTERNS_SHOWN: usize = 5;

/// Applies the filters that need only the URL and the settings.
///
/// A seed (`depth` 0) is exempt from the limits on depth and on repeated path segments, since the user
/// chose it.
pub fn check(settings: &FrontierSettings, url: &CrawlUrl, depth: u32) -> Result<(), Rejection> {
    if url.as_str().len() > settings.url_length_limit {
        return Err(Filtered::Length.into());
    }
    let own = settings.own_hosts.depth_limit(url);
    let depth_limit = own.map_or(settings.depth_limit, |(limit, _)| limit);
    if depth_limit > 0 && depth > depth_limit {
        return Err(Filtered::Depth.into());
    }
    if depth > 0 && repeats(url.path(), settings.path_repeat_limit) {
        return Err(Filtered::PathRepeat.into());
    }
    if let Some(position) = excluding(&settings.exclude_hosts, url.host_str()) {
        return Err(Rejection::by_entry(Filtered::Excluded, position));
    }
    let mut deny = settings.deny.iter();
    if let Some(position) = deny.position(|deny| deny.is_match(url.as_str())) {
        return Err(Rejection::by_entry(Filtered::Denied, position));
    }
    let allow = &settings.allow;
    if !allow.is_empty() && !allow.iter().any(|allow| allow.is_match(url.as_str())) {
        return Err(Filtered::NotAllowed.into());
    }
    Ok(())
}

/// Returns whether `--exclude` matches the URL's host: then no request is sent to it.
pub fn excludes(settings: &FrontierSettings, url: &CrawlUrl) -> bool {
    is_excluded(&settings.exclude_hosts, url.host_str())
}

/// Registrable domains of the seeds, for `--follow domain`: 8 bytes each, by their keys.
#[derive(Debug)]
pub struct Site {
    domains: HashTable<u64>,
    keys: Keys,
}

impl Site {
    /// Creates an empty set. `secret` has the keys.
    pub fn new(secret: &Secret) -> Self {
        Site {
            domains: HashTable::new(),
            keys: *secret.keys(),
        }
    }

    /// Adds the registrable domain of a seed's URL.
    pub fn add(&mut self, follow: Follow, url: &CrawlUrl) {
        if follow == Follow::Domain {
            self.restore(self.keys.host(url.registrable_domain()));
        }
    }

    /// Adds a registrable domain by its key.
    pub fn restore(&mut self, HostKey(key): HostKey) {
        let entry = self.domains.entry(key, |other| *other == key, |key| *key);
        entry.or_insert(key);
    }

    /// Returns whether `--follow` includes the URL. `seed_host`: its host is a seed's.
    pub fn contains(&self, follow: Follow, url: &CrawlUrl, seed_host: bool) -> bool {
        match follow {
            Follow::None => false,
            Follow::Host => seed_host,
            Follow::Domain => {
                let key = self.keys.host(url.registrable_domain()).0;
                self.domains.find(key, |other| *other == key).is_some()
            }
            Follow::All => true,
        }
    }
}

/// Returns whether a path segment occurs more than `limit` times; 0: no limit.
fn repeats(path: &str, limit: u32) -> bool {
    if limit == 0 {
        return false;
    }
    let mut segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    if segments.len() <= limit as usize {
        return false;
    }
    segments.sort_unstable();
    segments
        .windows(limit as usize + 1)
        .any(|window| window[0] == window[limit as usize])
}

/// Returns whether a list of hosts (`a.test`) and domains (`*.a.test`: itself and all subdomains)
/// matches `host`.
pub(super) fn is_excluded(list: &[String], host: &str) -> bool {
    excluding(list, host).is_some()
}

/// The position of the first entry of such a list that matches `host`.
pub(super) fn excluding(list: &[String], host: &str) -> Option<usize> {
    list.iter()
        .position(|entry| match entry.strip_prefix("*.") {
            Some(domain) => host
                .strip_suffix(domain)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            None => host == entry,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_url(settings: &FrontierSettings, url: &str, depth: u32) -> Result<(), Filtered> {
        let url = CrawlUrl::parse(url).expect(url);
        check(settings, &url, depth).map_err(|rejection| rejection.filter)
    }

    #[test]
    fn a_path_that_repeats_a_segment_too_often_is_filtered() {
        let settings = FrontierSettings {
            path_repeat_limit: 2,
            ..FrontierSettings::default()
        };
        assert_eq!(check_url(&settings, "http://a.test/a/b/a/c", 1), Ok(()));
        assert_eq!(
            check_url(&settings, "http://a.test/a/b/a/c/a", 1),
            Err(Filtered::PathRepeat)
        );
        assert_eq!(check_url(&settings, "http://a.test/a/a/a", 0), Ok(()));
    }

    #[test]
    fn a_url_over_the_length_limit_is_filtered() {
        let settings = FrontierSettings {
            url_length_limit: 20,
            ..FrontierSettings::default()
        };
        assert_eq!(check_url(&settings, "http://a.test/123456", 0), Ok(()));
        assert_eq!(
            check_url(&settings, "http://a.test/1234567", 0),
            Err(Filtered::Length)
        );
    }

    #[test]
    fn depth_is_counted_from_the_seed() {
        let settings = FrontierSettings {
            depth_limit: 2,
            ..FrontierSettings::default()
        };
        assert_eq!(check_url(&settings, "http://a.test/", 2), Ok(()));
        assert_eq!(
            check_url(&settings, "http://a.test/", 3),
            Err(Filtered::Depth)
        );
    }

    #[test]
    fn an_excluded_domain_includes_its_subdomains_only() {
        let list = vec!["*.bad.test".to_owned(), "one.test".to_owned()];
        assert!(is_excluded(&list, "bad.test"));
        assert!(is_excluded(&list, "deep.www.bad.test"));
        assert!(!is_excluded(&list, "notbad.test"));
        assert!(is_excluded(&list, "one.test"));
        assert!(!is_excluded(&list, "www.one.test"));
    }

    #[test]
    fn patterns_are_matched_on_the_whole_url() {
        let settings = FrontierSettings {
            allow: vec![regex::Regex::new(r"/keep/").expect("a pattern")],
            deny: vec![regex::Regex::new(r"\.pdf$").expect("a pattern")],
            ..FrontierSettings::default()
        };
        assert_eq!(check_url(&settings, "http://a.test/keep/x", 0), Ok(()));
        assert_eq!(
            check_url(&settings, "http://a.test/keep/x.pdf", 0),
            Err(Filtered::Denied)
        );
        assert_eq!(
            check_url(&settings, "http://a.test/x", 0),
            Err(Filtered::NotAllowed)
        );
    }

    #[test]
    fn a_rejection_names_the_rule_as_a_setting_is_written() {
        let pattern = |text| regex::Regex::new(text).expect("a pattern");
        let settings = FrontierSettings {
            deny: vec![pattern("/x/"), pattern(r"\.pdf$")],
            allow: vec![pattern("^http://a")],
            exclude_hosts: vec!["b.test".to_owned(), "*.bad.test".to_owned()],
            depth_limit: 3,
            ..FrontierSettings::default()
        };
        let rule = |url: &str, depth| {
            let url = CrawlUrl::parse(url).expect(url);
            check(&settings, &url, depth).map_err(|rejection| rejection.rule(&settings, Some(&url)))
        };
        let rejected = |rule: &str| Err(Some(rule.to_owned()));
        assert_eq!(rule("http://a.test/", 3), Ok(()));
        assert_eq!(rule("http://a.test/y.pdf", 0), rejected(r"DENY=\.pdf$"));
        assert_eq!(
            rule("http://x.bad.test/", 0),
            rejected("EXCLUDE=*.bad.test")
        );
        assert_eq!(rule("http://a.test/", 4), rejected("DEPTH_LIMIT=3"));
        assert_eq!(rule("http://c.test/", 0), rejected("ALLOW=^http://a"));
    }
}
