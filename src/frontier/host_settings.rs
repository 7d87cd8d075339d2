//! Settings of single hosts (`HOSTS`): what is sent to them, by which way, and their limits.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::host_patterns::patterns_above;
use crate::wire::login::Login;
use crate::wire::proxy::Route;
use crate::wire::url::CrawlUrl;

/// The settings of one entry. What is `None` or empty is left to wider entries and to the settings of all hosts.
#[derive(Clone, Default, PartialEq)]
pub struct HostSettings {
    /// Header fields of each request, which replace those of the same names among `DEFAULT_REQUEST_HEADERS`.
    pub headers: Vec<(String, String)>,
    /// User name and password.
    pub user: Option<Login>,
    /// The User-Agent field.
    pub user_agent: Option<String>,
    /// The way of requests that name none.
    pub route: Option<Route>,
    /// Pages fetched; 0: no limit.
    pub pages_max: Option<u32>,
    /// Bytes of a body.
    pub body_max: Option<u64>,
    /// Links from a seed; 0: no limit.
    pub depth_limit: Option<u32>,
}

/// Settings by host. The name of an entry is a host with its port unless that is the default (both schemes), an origin
/// (`https://example.com`), or a pattern (`*.example.com`: every host below that).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostTable {
    /// As given.
    entries: BTreeMap<String, HostSettings>,
    /// For each entry its settings, completed from the wider ones that match.
    complete: BTreeMap<String, HostEntry>,
    limits_pages: bool,
    limits_depth: bool,
    has_routes: bool,
}

/// An entry, completed from wider ones.
#[derive(Clone, Debug, PartialEq)]
pub struct HostEntry {
    /// Its position among all entries.
    pub position: usize,
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: HostSettings,
}

impl HostTable {
    /// A table of these entries, by normalised names.
    pub fn new(entries: BTreeMap<String, HostSettings>) -> Self {
        let any = |has: fn(&HostSettings) -> bool| entries.values().any(has);
        let mut table = HostTable {
            limits_pages: any(|own| own.pages_max.is_some()),
            limits_depth: any(|own| own.depth_limit.is_some()),
            has_routes: any(|own| own.route.is_some()),
            entries,
            complete: BTreeMap::new(),
        };
        let complete = table
            .entries
            .iter()
            .enumerate()
            .map(|(position, (name, own))| {
                let wider = wider_names(name).into_iter();
                let wider = wider.filter_map(|name| table.entries.get(&name));
                let settings = wider.fold(own.clone(), HostSettings::over);
                let entry = HostEntry {
                    position,
                    name: name.clone(),
                    settings,
                };
                (name.clone(), entry)
            });
        table.complete = complete.collect();
        table
    }

    /// The table without limits of pages and depth.
    pub fn without_limits(&self) -> Self {
        let without = |own: &HostSettings| HostSettings {
            pages_max: None,
            depth_limit: None,
            ..own.clone()
        };
        let entries = self.entries.iter();
        HostTable::new(
            entries
                .map(|(name, own)| (name.clone(), without(own)))
                .collect(),
        )
    }

    /// The entries as given, by name.
    pub fn entries(&self) -> &BTreeMap<String, HostSettings> {
        &self.entries
    }

    /// The completed entries, by position.
    pub fn complete(&self) -> impl Iterator<Item = &HostEntry> {
        // Both maps have the same keys.
        self.complete.values()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an entry limits the pages of a host.
    pub fn limits_pages(&self) -> bool {
        self.limits_pages
    }

    /// The narrowest entry that matches a URL.
    pub fn of(&self, url: &CrawlUrl) -> Option<&HostEntry> {
        if self.is_empty() {
            return None;
        }
        let own = self.complete.get(url.origin());
        own.or_else(|| self.of_host(url.scope_key(), url.host_str()))
    }

    fn of_host(&self, name: &str, host: &str) -> Option<&HostEntry> {
        let own = self.complete.get(name);
        own.or_else(|| patterns_above(host).find_map(|pattern| self.complete.get(&pattern)))
    }

    /// The way of requests to a URL that name none; `None`: that of all hosts.
    pub fn route(&self, url: &CrawlUrl) -> Option<&Route> {
        match self.has_routes {
            true => self.of(url)?.settings.route.as_ref(),
            false => None,
        }
    }

    /// The limit of depth of a URL, with the name of its entry; `None`: that of all hosts.
    pub fn depth_limit(&self, url: &CrawlUrl) -> Option<(u32, &str)> {
        let entry = if self.limits_depth {
            self.of(url)
        } else {
            None
        }?;
        Some((entry.settings.depth_limit?, &entry.name))
    }

    /// The limit of pages of a host, with the name of its entry; `None`: that of all hosts. Pages are counted of a host,
    /// whatever the port.
    pub fn pages_max(&self, host: &str) -> Option<(u32, &str)> {
        if !self.limits_pages {
            return None;
        }
        let entry = self.of_host(host, host)?;
        Some((entry.settings.pages_max?, &entry.name))
    }
}

/// Names of entries that match all that this one matches, the narrowest first.
fn wider_names(name: &str) -> Vec<String> {
    let origin = CrawlUrl::parse(name).ok().filter(|_| name.contains("://"));
    let key = origin.as_ref().map_or(name, |url| url.scope_key());
    let host = key.strip_prefix("*.").unwrap_or(key);
    let host = match host.starts_with('[') {
        true => "",
        false => host.split_once(':').map_or(host, |(host, _)| host),
    };
    let own = origin.is_some().then(|| key.to_owned());
    own.into_iter().chain(patterns_above(host)).collect()
}

impl HostSettings {
    /// These, completed by those of a wider entry.
    fn over(mut self, wider: &HostSettings) -> Self {
        let is_more = |(name, _): &&(String, String)| !self.replaces(name);
        let more: Vec<_> = wider.headers.iter().filter(is_more).cloned().collect();
        self.headers.extend(more);
        let has_authorization = self.headers.iter().any(|(name, _)| is_authorization(name));
        if !has_authorization && self.user.is_none() {
            self.user.clone_from(&wider.user);
        }
        self.user_agent = self.user_agent.or_else(|| wider.user_agent.clone());
        self.route = self.route.or_else(|| wider.route.clone());
        self.pages_max = self.pages_max.or(wider.pages_max);
        self.body_max = self.body_max.or(wider.body_max);
        self.depth_limit = self.depth_limit.or(wider.depth_limit);
        self
    }

    /// Whether it sets the field of this name, in whatever way.
    pub fn replaces(&self, name: &str) -> bool {
        let by_name = |(own, _): &(String, String)| own.eq_ignore_ascii_case(name);
        self.headers.iter().any(by_name)
            || self.user.is_some() && is_authorization(name)
            || self.user_agent.is_some() && name.eq_ignore_ascii_case("user-agent")
    }
}

fn is_authorization(name: &str) -> bool {
    name.eq_ignore_ascii_case("authorization")
}

/// Without the values of its header fields, and without credentials.
impl fmt::Debug for HostSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("HostSettings")
            .field("headers", &headers)
            .field("user", &self.user)
            .field("user_agent", &self.user_agent)
            .field("route", &self.route)
            .field("pages_max", &self.pages_max)
            .field("body_max", &self.body_max)
            .field("depth_limit", &self.depth_limit)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &str)]) -> HostSettings {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        HostSettings {
            headers: all.iter().map(owned).collect(),
            ..HostSettings::default()
        }
    }

    fn table(entries: &[(&str, HostSettings)]) -> HostTable {
        let entries = entries.iter();
        HostTable::new(
            entries
                .map(|(name, own)| ((*name).to_owned(), own.clone()))
                .collect(),
        )
    }

    fn url(text: &str) -> CrawlUrl {
        CrawlUrl::parse(text).expect(text)
    }

    #[test]
    fn the_narrowest_entry_of_a_url_applies() {
        let none = HostSettings::default;
        let table = table(&[
            ("a.test", none()),
            ("https://a.test", none()),
            ("a.test:81", none()),
            ("*.a.test", none()),
            ("*.test", none()),
            ("[::1]:81", none()),
        ]);
        let check = |text: &str, expected: Option<&str>| {
            let found = table.of(&url(text)).map(|entry| entry.name.as_str());
            assert_eq!(found, expected, "{text}");
        };
        check("https://a.test/x", Some("https://a.test"));
        check("http://a.test/", Some("a.test"));
        check("http://a.test:81/", Some("a.test:81"));
        check("https://a.test:81/", Some("a.test:81"));
        check("http://a.test:82/", Some("*.test"));
        check("http://x.a.test:82/", Some("*.a.test"));
        check("http://b.test/", Some("*.test"));
        check("http://test/", None);
        check("http://a.test.example/", None);
        check("http://[::1]:81/", Some("[::1]:81"));
        check("http://[::1]/", None);
    }

    #[test]
    fn an_entry_is_completed_from_wider_ones_key_by_key() {
        let table = table(&[
            (
                "https://a.test",
                HostSettings {
                    user: Some("a:b".parse().expect("a login")),
                    ..headers(&[("X-One", "1")])
                },
            ),
            (
                "a.test",
                HostSettings {
                    pages_max: Some(3),
                    ..headers(&[("x-one", "2"), ("X-Two", "2")])
                },
            ),
            (
                "*.test",
                HostSettings {
                    depth_limit: Some(7),
                    pages_max: Some(9),
                    ..headers(&[("Authorization", "Bearer x"), ("X-Three", "3")])
                },
            ),
        ]);
        let entry = table.of(&url("https://a.test/")).expect("an entry");
        let names = entry.settings.headers.iter().map(|(name, _)| &**name);
        let names: Vec<&str> = names.collect();
        assert_eq!(names, ["X-One", "X-Two", "X-Three"], "its own login holds");
        assert_eq!(table.pages_max("a.test"), Some((3, "a.test")));
        assert_eq!(table.pages_max("b.test"), Some((9, "*.test")));
        assert_eq!(table.pages_max("b.example"), None);
        let limit = table.depth_limit(&url("http://a.test/"));
        assert_eq!(limit, Some((7, "a.test")));
        let positions: Vec<usize> = table.complete().map(|entry| entry.position).collect();
        assert_eq!(positions, [0, 1, 2]);
    }

    #[test]
    fn values_of_headers_and_logins_are_not_shown() {
        let own = HostSettings {
            user: Some("name:secret".parse().expect("a login")),
            route: Some("http://me:secret@p.test:1".parse().expect("a proxy")),
            ..headers(&[("X-Key", "secret")])
        };
        let shown = format!("{:?}", table(&[("a.test", own)]));
        assert!(
            shown.contains("X-Key") && !shown.contains("secret"),
            "{shown}"
        );
    }
}
