//! The proxy of requests that name none: by the scheme of the URL, with exceptions by its host.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::base::address::Network;
use crate::wire::proxy::{Proxy, Route};
use crate::wire::url::CrawlUrl;

/// The settings `PROXY`, `PROXY_HTTPS` and `NO_PROXY`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proxies {
    /// `PROXY`: that of all requests.
    pub usual: Option<Arc<Proxy>>,
    /// `PROXY_HTTPS`: the route of https URLs, if it is another one.
    pub https: Option<Route>,
    /// `NO_PROXY`: hosts that are asked directly.
    pub except: Vec<Direct>,
}

/// Hosts that are asked directly: an entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direct {
    /// All.
    All,
    /// The host of this name and its subdomains.
    Domain(Box<str>),
    /// Hosts that are addresses in this network. A name is not resolved for it.
    Network(Network),
}

/// A text is no entry of `NO_PROXY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDirect;

impl Proxies {
    /// Whether all requests go directly.
    pub fn are_none(&self) -> bool {
        self.usual.is_none() && self.https.is_none()
    }

    /// The route of requests for a URL, if scheme and host make a difference.
    pub fn route_if_varied(&self, url: &CrawlUrl) -> Option<Route> {
        let is_varied = self.https.is_some() || (self.usual.is_some() && !self.except.is_empty());
        is_varied.then(|| match self.of(url.is_https(), url.host_str()) {
            Some(proxy) => Route::Proxy(Arc::clone(proxy)),
            None => Route::Direct,
        })
    }

    /// The proxy of requests for URLs with this scheme and host; `None` if they go directly.
    pub fn of(&self, is_https: bool, host: &str) -> Option<&Arc<Proxy>> {
        let proxy = match &self.https {
            Some(Route::Direct) if is_https => None,
            Some(Route::Proxy(proxy)) if is_https => Some(proxy),
            _ => self.usual.as_ref(),
        };
        proxy.filter(|_| !self.except.iter().any(|direct| direct.includes(host)))
    }
}

impl Direct {
    /// Whether this is one of the hosts. `host`: as in a URL, IPv6 in brackets.
    fn includes(&self, host: &str) -> bool {
        match self {
            Direct::All => true,
            Direct::Domain(domain) => (host.strip_suffix(&**domain))
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            Direct::Network(network) => {
                let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
                let address: Option<IpAddr> = bare.unwrap_or(host).parse().ok();
                address.is_some_and(|address| network.contains(address))
            }
        }
    }
}

/// As curl 7.86 and later read it: `*`, a name with or without a leading dot or `*.`, an address, a CIDR.
impl FromStr for Direct {
    type Err = NotDirect;

    fn from_str(text: &str) -> Result<Self, NotDirect> {
        let text = text.trim();
        if text == "*" {
            return Ok(Direct::All);
        }
        let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if let Ok(network) = bare.unwrap_or(text).parse() {
            return Ok(Direct::Network(network));
        }
        let name = text.trim_start_matches('*').trim_start_matches('.');
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_name = !name.is_empty() && !name.contains(['/', ':', '*', '@', '?', '#', ' ']);
        match CrawlUrl::parse(&format!("http://{name}/")) {
            // A URL's host may be an address in another form, such as 0x7f000001.
            Ok(url) if is_name => Ok(match url.host_str().parse() {
                Ok(address) => Direct::Network(address),
                Err(_) => Direct::Domain(url.host_str().into()),
            }),
            _ => Err(NotDirect),
        }
    }
}

impl fmt::Display for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Direct::All => f.write_str("*"),
            Direct::Domain(domain) => f.write_str(domain),
            Direct::Network(network) => network.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(text: &str) -> Arc<Proxy> {
        Arc::new(text.parse().expect("a proxy"))
    }

    #[test]
    fn entries_without_a_proxy_are_read_as_curl_reads_them() {
        let check = |text: &str, shown: Option<&str>| {
            let read = text.parse::<Direct>().ok();
            assert_eq!(
                read.as_ref().map(ToString::to_string).as_deref(),
                shown,
                "{text}"
            );
            if let Some(read) = read {
                assert_eq!(read.to_string().parse(), Ok(read), "{text}");
            }
        };
        check("*", Some("*"));
        check("Example.com", Some("example.com"));
        check(".example.com", Some("example.com"));
        check("*.example.com", Some("example.com"));
        check("example.com.", Some("example.com"));
        check("b\u{fc}cher.example", Some("xn--bcher-kva.example"));
        check("10.0.0.0/8", Some("10.0.0.0/8"));
        check("127.0.0.1", Some("127.0.0.1/32"));
        check("[::1]", Some("::1/128"));
        check("0x101e400", Some("1.1.228.0/32"));
        check("fd00::/8", Some("fd00::/8"));
        for wrong in [
            "",
            ".",
            "http://a.test",
            "a.test:80",
            "a b",
            "10.0.0.0/99",
            "a.*",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_proxy_is_chosen_by_scheme_unless_the_host_is_an_exception() {
        let except = ["a.test", "10.0.0.0/8", "::1"].map(|text| text.parse().expect(text));
        let proxies = Proxies {
            usual: Some(proxy("http://p.test:1")),
            https: Some(Route::Proxy(proxy("http://q.test:2"))),
            except: except.to_vec(),
        };
        let check = |proxies: &Proxies, is_https: bool, host: &str, expected: Option<&str>| {
            let found = proxies.of(is_https, host).map(|proxy| proxy.host());
            assert_eq!(found, expected, "{is_https} {host}");
        };
        check(&proxies, false, "b.test", Some("p.test"));
        check(&proxies, true, "b.test", Some("q.test"));
        for host in ["a.test", "b.a.test", "10.1.2.3", "[::1]"] {
            check(&proxies, false, host, None);
            check(&proxies, true, host, None);
        }
        for host in ["ba.test", "test", "11.0.0.1", "[::2]"] {
            check(&proxies, false, host, Some("p.test"));
        }
        let direct = Proxies {
            https: Some(Route::Direct),
            ..proxies.clone()
        };
        check(&direct, true, "b.test", None);
        check(&direct, false, "b.test", Some("p.test"));
        let url = |text: &str| CrawlUrl::parse(text).expect(text);
        let route = direct.route_if_varied(&url("https://b.test/"));
        assert_eq!(route, Some(Route::Direct));
        let route = proxies.route_if_varied(&url("http://b.test/"));
        assert_eq!(route, proxies.usual.clone().map(Route::Proxy));
        let all_by_one = Proxies {
            usual: proxies.usual.clone(),
            ..Proxies::default()
        };
        assert_eq!(all_by_one.route_if_varied(&url("http://b.test/")), None);
        let none = Proxies::default();
        assert!(none.are_none() && !direct.are_none());
        check(&none, true, "b.test", None);
        let all = Proxies {
            except: vec![Direct::All],
            ..proxies
        };
        check(&all, false, "b.test", None);
    }
}
