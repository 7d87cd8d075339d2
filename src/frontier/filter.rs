//! What is in and what is out of a crawl.

use std::collections::BTreeMap;

use super::settings::{Follow, Settings};
use crate::wire::url::CrawlUrl;

/// Why a URL is not admitted. Filtered links are counted, by name; they have no result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Filtered {
    /// It was admitted before.
    Duplicate,
    /// Longer than `URLLENGTH_LIMIT`.
    Length,
    /// Deeper than `DEPTH_LIMIT`.
    Depth,
    /// A path segment repeats more often than `PATH_REPEAT_LIMIT`: a trap.
    PathRepeat,
    /// On a host that `--follow` leaves out.
    Offsite,
    /// No `--allow` matches.
    NotAllowed,
    /// A `--deny` matches.
    Denied,
    /// Its host is excluded.
    Excluded,
    /// Its host has had `--max-pages-per-host`.
    HostPages,
    /// The frontier is full.
    FrontierFull,
    /// The page had more links than `LINKS_PER_PAGE_MAX`.
    LinksPerPage,
    /// A sitemap that stands deeper in others than `SITEMAP_DEPTH_LIMIT`.
    SitemapDepth,
    /// A sitemap of a host that has had `SITEMAPS_PER_HOST_MAX`.
    HostSitemaps,
}

impl Filtered {
    /// The name under which it is counted.
    pub const fn name(self) -> &'static str {
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
            Filtered::FrontierFull => "frontier_full",
            Filtered::LinksPerPage => "links_per_page",
            Filtered::SitemapDepth => "sitemap_depth",
            Filtered::HostSitemaps => "max_sitemaps_per_host",
        }
    }
}

/// The filters that need nothing but the URL and the settings.
///
/// A seed passes all but `--exclude`, `--deny`, `--allow` and the length: where it leads is the user's word.
pub fn check(settings: &Settings, url: &CrawlUrl, depth: u32) -> Result<(), Filtered> {
    if url.as_str().len() > settings.url_length_limit {
        return Err(Filtered::Length);
    }
    if settings.depth_limit > 0 && depth > settings.depth_limit {
        return Err(Filtered::Depth);
    }
    if depth > 0 && repeats(url.path(), settings.path_repeat_limit) {
        return Err(Filtered::PathRepeat);
    }
    if excludes(settings, url) {
        return Err(Filtered::Excluded);
    }
    if settings.deny.iter().any(|deny| deny.is_match(url.as_str())) {
        return Err(Filtered::Denied);
    }
    let allow = &settings.allow;
    if !allow.is_empty() && !allow.iter().any(|allow| allow.is_match(url.as_str())) {
        return Err(Filtered::NotAllowed);
    }
    Ok(())
}

/// Whether `--exclude` names the URL's host: then nothing at all is asked of it.
pub fn excludes(settings: &Settings, url: &CrawlUrl) -> bool {
    is_excluded(&settings.exclude_hosts, url.host_str())
}

/// The hosts and domains that links may lead to.
#[derive(Debug, Default)]
pub struct Site {
    domains: BTreeMap<Box<str>, ()>,
}

impl Site {
    /// Counts the URL's registrable domain as one of the seeds'.
    pub fn add(&mut self, follow: Follow, url: &CrawlUrl) {
        if follow == Follow::Domain {
            self.domains
                .entry(url.registrable_domain().into())
                .or_default();
        }
    }

    /// Whether `--follow` leads there. `seed_host`: the URL's host is a seed's.
    pub fn contains(&self, follow: Follow, url: &CrawlUrl, seed_host: bool) -> bool {
        match follow {
            Follow::None => false,
            Follow::Host => seed_host,
            Follow::Domain => self.domains.contains_key(url.registrable_domain()),
            Follow::All => true,
        }
    }
}

/// Whether one path segment stands in the path more than `limit` times; 0 is no limit.
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

/// Whether a list of hosts (`a.test`) and domains (`*.a.test`: all below it, and itself) names this one.
fn is_excluded(list: &[String], host: &str) -> bool {
    list.iter().any(|entry| match entry.strip_prefix("*.") {
        Some(domain) => host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
        None => host == entry,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_url(settings: &Settings, url: &str, depth: u32) -> Result<(), Filtered> {
        check(settings, &CrawlUrl::parse(url).expect(url), depth)
    }

    #[test]
    fn a_segment_that_repeats_too_often_is_a_trap() {
        let settings = Settings {
            path_repeat_limit: 2,
            ..Settings::default()
        };
        assert_eq!(check_url(&settings, "http://a.test/a/b/a/c", 1), Ok(()));
        assert_eq!(
            check_url(&settings, "http://a.test/a/b/a/c/a", 1),
            Err(Filtered::PathRepeat)
        );
        assert_eq!(check_url(&settings, "http://a.test/a/a/a", 0), Ok(()));
    }

    #[test]
    fn a_url_over_the_length_limit_is_out() {
        let settings = Settings {
            url_length_limit: 20,
            ..Settings::default()
        };
        assert_eq!(check_url(&settings, "http://a.test/123456", 0), Ok(()));
        assert_eq!(
            check_url(&settings, "http://a.test/1234567", 0),
            Err(Filtered::Length)
        );
    }

    #[test]
    fn depth_is_counted_from_the_seed() {
        let settings = Settings {
            depth_limit: 2,
            ..Settings::default()
        };
        assert_eq!(check_url(&settings, "http://a.test/", 2), Ok(()));
        assert_eq!(
            check_url(&settings, "http://a.test/", 3),
            Err(Filtered::Depth)
        );
    }

    #[test]
    fn an_excluded_domain_takes_its_subdomains_along_and_not_its_neighbours() {
        let list = vec!["*.bad.test".to_owned(), "one.test".to_owned()];
        assert!(is_excluded(&list, "bad.test"));
        assert!(is_excluded(&list, "deep.www.bad.test"));
        assert!(!is_excluded(&list, "notbad.test"));
        assert!(is_excluded(&list, "one.test"));
        assert!(!is_excluded(&list, "www.one.test"));
    }

    #[test]
    fn patterns_are_matched_on_the_whole_url() {
        let settings = Settings {
            allow: vec![regex::Regex::new(r"/keep/").expect("a pattern")],
            deny: vec![regex::Regex::new(r"\.pdf$").expect("a pattern")],
            ..Settings::default()
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
}
