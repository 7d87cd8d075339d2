//! Whether a crawl would fetch a URL, and which filter or rule prevents it.

use crate::base::secret::Secret;
use crate::crawl::config::Config;
use crate::crawl::network::guard::Guard;
use crate::crawl::set_up::SetUpError;
use crate::crawl::work::admission::without_dropped;
use crate::fetch::failure::FailureKind;
use crate::frontier::Frontier;
use crate::frontier::filter::Filtered;
use crate::frontier::settings::Follow;
use crate::wire::robots::Robots;
use crate::wire::url::CrawlUrl;

/// Checks URLs against the filters of a crawl with a configuration, before anything was fetched: the frontier's own
/// filters, what is followed from its seeds, and the addresses that may be connected to.
///
/// ```
/// use argiope::parts::UrlCheck;
/// use argiope::{Config, CrawlUrl};
///
/// let config = Config::default().with("DENY", [r"\.pdf$"])?;
/// let mut check = UrlCheck::new(&config)?;
/// check.add_seed(&CrawlUrl::parse("https://example.com/")?);
/// let url = |text| CrawlUrl::parse(text);
/// assert!(check.check(&url("https://example.com/a")?, 1).is_ok());
/// let left_out = check.check(&url("https://example.com/a.pdf")?, 1).unwrap_err();
/// assert_eq!((left_out.filter, left_out.rule.as_deref()), ("denied", Some(r"DENY=\.pdf$")));
/// let left_out = check.check(&url("https://example.org/")?, 1).unwrap_err();
/// assert_eq!(left_out.rule.as_deref(), Some("FOLLOW=host"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct UrlCheck {
    config: Config,
    frontier: Frontier,
    guard: Guard,
}

/// Why a URL is not fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The name of the filter: one of [`Filtered`](crate::Filtered), `excluded_address`, `not_global`, or `disallowed`
    /// by robots.txt.
    pub filter: &'static str,
    /// The setting that causes it; `None` for a rule of robots.txt.
    pub setting: Option<&'static str>,
    /// The rule: `DENY=\.pdf$`, or `Disallow: /private`. `None` if the filter has no rules.
    pub rule: Option<String>,
    /// Why, as a sentence that ends without a full stop.
    pub why: String,
}

impl UrlCheck {
    /// The filters of a configuration. There is no seed yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: &Config) -> Result<Self, SetUpError> {
        let config = config.clone().finish()?;
        Ok(UrlCheck {
            frontier: Frontier::new(config.frontier.clone(), &Secret::random()),
            guard: Guard::of(&config)?,
            config,
        })
    }

    /// Adds a seed: `FOLLOW` refers to its host and its registrable domain.
    pub fn add_seed(&mut self, url: &CrawlUrl) {
        let url = self.fetched_as(url);
        self.frontier.add_seed(&url);
    }

    /// The URL that is fetched: without the parameters of `DROP_QUERY_PARAMETERS`.
    pub fn fetched_as(&self, url: &CrawlUrl) -> CrawlUrl {
        without_dropped(url.clone(), &self.config)
    }

    /// Checks a URL. `depth`: links from a seed; 0: it is a seed itself. The address of a name is not looked up.
    ///
    /// # Errors
    /// What prevents that it is fetched.
    pub fn check(&self, url: &CrawlUrl, depth: u32) -> Result<(), LeftOut> {
        let url = &self.fetched_as(url);
        let checked = self.frontier.check_url(url, depth, depth == 0);
        checked.map_err(|rejection| {
            let filter = rejection.filter;
            let rule = self.frontier.rule_of(&rejection, url);
            LeftOut {
                filter: filter.as_str(),
                setting: filter.setting(),
                why: self.why(filter, rule.as_deref().unwrap_or_default()),
                rule,
            }
        })?;
        self.guard.check_host(url.host_str()).map_err(|failure| {
            let setting = match failure.kind {
                FailureKind::BlockedAddress => "ALLOW_NET",
                _ => "EXCLUDE",
            };
            LeftOut {
                filter: failure.name,
                setting: Some(setting),
                rule: Some(setting.to_owned()),
                why: failure.detail.to_string(),
            }
        })
    }

    /// Checks a URL against a robots.txt of its origin, if that is obeyed.
    ///
    /// # Errors
    /// The rule that disallows it.
    pub fn check_robots(&self, url: &CrawlUrl, robots: &Robots) -> Result<(), LeftOut> {
        if !self.obeys_robots() {
            return Ok(());
        }
        let agent = &self.config.frontier.robots_agent;
        let rules = robots.agent(agent);
        let verdict = rules.allowed(self.fetched_as(url).request_target());
        if verdict.allowed {
            return Ok(());
        }
        let rule = verdict.rule.map(|rule| (rule.pattern, rule.line));
        Err(LeftOut {
            filter: "disallowed",
            setting: Some("ROBOTSTXT_OBEY"),
            rule: rule.map(|(pattern, _)| format!("Disallow: {pattern}")),
            why: match rule {
                Some((pattern, line)) => {
                    format!(
                        "robots.txt disallows it for {agent}: Disallow: {pattern} (line {line})"
                    )
                }
                None => format!("robots.txt disallows it for {agent}"),
            },
        })
    }

    /// Whether robots.txt is obeyed.
    pub fn obeys_robots(&self) -> bool {
        self.config.frontier.robots_obey
    }

    fn why(&self, filter: Filtered, rule: &str) -> String {
        match filter {
            Filtered::Length => format!("it is longer than {rule} bytes"),
            Filtered::Depth => format!("it is more links from a seed than {rule}"),
            Filtered::PathRepeat => format!("a segment of its path occurs more often than {rule}"),
            Filtered::Offsite => match self.config.frontier.follow {
                Follow::None => format!("no links are followed ({rule})"),
                Follow::Domain => format!("its domain is none of the seeds' ({rule})"),
                Follow::Host | Follow::All => format!("its host is none of the seeds' ({rule})"),
            },
            Filtered::NotAllowed => format!("no pattern matches it: {rule}"),
            Filtered::Denied => format!("a pattern matches it: {rule}"),
            Filtered::Excluded => format!("its host is excluded: {rule}"),
            other => format!("the filter {other} rejects it: {rule}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &[(&str, &str)], depth: u32, url: &str, expected: Option<(&str, &str)>) {
        let mut config = Config::default();
        for (name, value) in settings {
            config = config.with(name, *value).expect("it is valid");
        }
        let mut check = UrlCheck::new(&config).expect("it is valid");
        check.add_seed(&CrawlUrl::parse("http://www.seed.test/").expect("a URL"));
        let checked = check.check(&CrawlUrl::parse(url).expect(url), depth);
        let found = checked.as_ref().err().map(|left_out| {
            let rule = left_out.rule.as_deref().unwrap_or("none");
            (left_out.filter, rule)
        });
        assert_eq!(found, expected, "{url} under {settings:?}: {checked:?}");
    }

    #[test]
    fn each_filter_names_itself_and_its_rule() {
        let link = "http://www.seed.test/a";
        check(&[], 1, link, None);
        let offsite = "http://a.seed.test/";
        check(&[], 1, offsite, Some(("offsite", "FOLLOW=host")));
        check(&[], 0, offsite, None);
        check(&[("FOLLOW", "domain")], 1, offsite, None);
        let none = Some(("offsite", "FOLLOW=none"));
        check(&[("FOLLOW", "none")], 1, link, none);
        let deep = Some(("depth", "DEPTH_LIMIT=2"));
        check(&[("DEPTH_LIMIT", "2")], 3, link, deep);
        let long = Some(("url_length", "URLLENGTH_LIMIT=21"));
        check(&[("URLLENGTH_LIMIT", "21")], 0, link, long);
        let denied = Some(("denied", "DENY=/a$"));
        check(&[("DENY", "/a$")], 0, link, denied);
        let not_allowed = Some(("not_allowed", "ALLOW=/docs/"));
        check(&[("ALLOW", "/docs/")], 0, link, not_allowed);
        let excluded = Some(("excluded", "EXCLUDE=*.seed.test"));
        check(&[("EXCLUDE", "a.test,*.seed.test")], 0, link, excluded);
        let local = Some(("not_global", "ALLOW_NET"));
        check(&[], 0, "http://127.0.0.1/", local);
        check(&[], 0, "http://localhost/", local);
        check(&[("ALLOW_NET", "loopback")], 0, "http://127.0.0.1/", None);
        let net = Some(("excluded_address", "EXCLUDE"));
        check(&[("EXCLUDE", "8.0.0.0/8")], 0, "http://8.8.8.8/", net);
    }

    #[test]
    fn a_url_is_checked_without_the_parameters_that_are_dropped() {
        let drop = [("DROP_QUERY_PARAMETERS", "utm_*"), ("DENY", "utm_")];
        check(&drop, 1, "http://www.seed.test/?utm_source=x", None);
    }

    #[test]
    fn rules_of_robots_txt_count_only_where_it_is_obeyed() {
        let robots = Robots::parse(b"User-agent: *\nDisallow: /a\n");
        let url = CrawlUrl::parse("http://www.seed.test/a/b").expect("a URL");
        let check = |obey: bool| {
            let config = Config::default().with("ROBOTSTXT_OBEY", obey);
            let check = UrlCheck::new(&config.expect("it is valid")).expect("it is valid");
            check.check_robots(&url, &robots)
        };
        let left_out = check(true).expect_err("it is disallowed");
        assert_eq!(left_out.rule.as_deref(), Some("Disallow: /a"));
        assert!(left_out.why.ends_with("(line 2)"), "{}", left_out.why);
        assert_eq!(check(false), Ok(()));
    }
}
