//! Bounds the number of public hosts that a crawl fetches from without a contact, or without their robots.txt.
//!
//! A host is classified by its name when its URL is read, so that a long list of seeds is rejected at
//! once. With private networks allowed and private name servers set, a name may be public or private:
//! then the host is classified by its resolved address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Config;
use crate::base::address::is_global;
use crate::fetch::resolver::Override;
use crate::wire::url::{CrawlUrl, Host};

/// The public hosts of a crawl. Counted only if there is a reason for the bound.
#[derive(Debug)]
pub struct PublicHosts {
    bound: Option<HostsBound>,
    /// Whether a name counts as public only if its address is public.
    by_address: bool,
    fixed: Vec<Override>,
    /// At most as many as the bound, but for those of earlier runs.
    admitted: BTreeSet<Box<str>>,
    /// Those of this run that were not polled.
    unpolled: Vec<Box<str>>,
    has_refused: bool,
}

/// Number of public hosts allowed without a contact.
const PUBLIC_HOSTS_MAX: usize = 10;

/// Why a crawl may fetch from some public hosts only, and from how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostsBound {
    /// The most hosts.
    pub most: usize,
    /// What the crawl lacks.
    pub lack: Lack,
}

/// What a crawl lacks to fetch from many public hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A contact.
    Contact,
    /// Consent of the hosts: robots.txt is not obeyed, and `ROBOTSTXT_IGNORED_HOSTS_MAX` is set.
    Robots,
}

impl HostsBound {
    /// The lowest bound of a configuration, if it has one.
    fn of(config: &Config) -> Option<Self> {
        let bound = |most, lack| HostsBound { most, lack };
        let contact = (!config.names_a_contact()).then_some(bound(PUBLIC_HOSTS_MAX, Lack::Contact));
        let most = config.robots_ignored_hosts_max;
        let is_bounded = !config.frontier.robots_obey && most > 0;
        let robots = is_bounded.then_some(bound(most, Lack::Robots));
        contact
            .into_iter()
            .chain(robots)
            .min_by_key(|bound| bound.most)
    }

    /// What a crawl of many public hosts lacks.
    pub const fn lacks(self) -> &'static str {
        match self.lack {
            Lack::Contact => "no contact",
            Lack::Robots => "obeys no robots.txt",
        }
    }

    /// What lifts the bound.
    pub const fn remedy(self) -> &'static str {
        match self.lack {
            Lack::Contact => {
                "add --contact (CONTACT) with your URL or mail address for site operators"
            }
            Lack::Robots => {
                "leave out --ignore-robots, or, if the operators of all these hosts agree, confirm it with \
                 --ignore-robots-everywhere (ROBOTSTXT_IGNORED_HOSTS_MAX=0)"
            }
        }
    }

    /// The code of a request to a host beyond the bound.
    pub(crate) const fn code(self) -> &'static str {
        match self.lack {
            Lack::Contact => "no_contact",
            Lack::Robots => "robots_ignored",
        }
    }
}

impl PublicHosts {
    /// An empty set, with the rules of this configuration.
    pub fn new(config: &Config) -> Self {
        let private_servers = !config.dns_servers.is_empty()
            && config
                .dns_servers
                .iter()
                .all(|server| !is_global(server.ip()));
        let fixed = config.resolve.iter().filter_map(|text| text.parse().ok());
        PublicHosts {
            bound: HostsBound::of(config),
            by_address: private_servers && !config.allow_net.is_empty(),
            fixed: fixed.collect(),
            admitted: BTreeSet::new(),
            unpolled: Vec::new(),
            has_refused: false,
        }
    }

    /// Whether this is the first call; the refusal is logged once.
    pub(crate) fn is_first_refusal(&mut self) -> bool {
        !std::mem::replace(&mut self.has_refused, true)
    }

    /// Why hosts are counted; `None` if they are not.
    pub fn bound(&self) -> Option<HostsBound> {
        self.bound
    }

    /// Whether hosts are counted.
    pub fn counts(&self) -> bool {
        self.bound.is_some()
    }

    /// Whether hosts are counted by name when their URLs are read.
    pub fn counts_names(&self) -> bool {
        self.counts() && !self.by_address
    }

    /// Whether the host of a URL is allowed. A public host is added to the set; false if the set is full.
    pub fn admits(&mut self, url: &CrawlUrl) -> bool {
        if !self.counts() || self.admitted.contains(url.host_str()) {
            return true;
        }
        let is_public = match url.host() {
            Host::Address(address) => is_global(address),
            Host::Name(name) => {
                !self.by_address && !is_reserved(name) && !self.is_fixed(name, url.port())
            }
        };
        !is_public || self.admits_one(url.host_str())
    }

    /// Whether a host with this address is counted.
    pub(crate) fn counts_at(&self, address: IpAddr) -> bool {
        self.counts() && self.by_address && is_global(address)
    }

    /// Whether a host with this address is allowed; see [`PublicHosts::admits`].
    pub fn admits_at(&mut self, host: &str, address: IpAddr) -> bool {
        !self.counts_at(address) || self.admitted.contains(host) || self.admits_one(host)
    }

    fn admits_one(&mut self, host: &str) -> bool {
        let most = self.bound.map_or(usize::MAX, |bound| bound.most);
        let has_room = self.admitted.len() < most;
        if has_room {
            self.admitted.insert(host.into());
            self.unpolled.push(host.into());
        }
        has_room
    }

    /// The next host that was added to the set since the last call.
    pub(crate) fn poll_admitted(&mut self) -> Option<Box<str>> {
        self.unpolled.pop()
    }

    /// Adds a host that an earlier run of the crawl had in its set.
    pub(crate) fn restore(&mut self, host: &str) {
        if self.counts() {
            self.admitted.insert(host.into());
        }
    }

    fn is_fixed(&self, name: &str, port: u16) -> bool {
        self.fixed.iter().any(|fixed| {
            fixed.port == port
                && fixed.host.as_deref().is_none_or(|host| host == name)
                && !is_global(fixed.address)
        })
    }
}

/// Names that do not exist on the public internet: single labels, and those of RFC 6761, RFC 6762 and
/// RFC 9476.
fn is_reserved(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    !name.contains('.')
        || [
            "test",
            "localhost",
            "invalid",
            "example",
            "local",
            "internal",
            "onion",
            "alt",
        ]
        .contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(hosts: &mut PublicHosts, url: &str) -> bool {
        hosts.admits(&CrawlUrl::parse(url).expect(url))
    }

    #[test]
    fn ten_public_hosts_are_allowed_and_the_eleventh_is_refused() {
        let mut hosts = PublicHosts::new(&Config::default());
        for n in 0..10 {
            assert!(admits(&mut hosts, &format!("http://h{n}.example.com/")));
        }
        assert!(!admits(&mut hosts, "http://h10.example.com/"));
        assert!(!admits(&mut hosts, "http://8.8.8.8/"));
        assert!(admits(&mut hosts, "https://h3.example.com:8443/x"));
        for private in ["http://a.test/", "http://printer/", "http://10.0.0.1/"] {
            assert!(admits(&mut hosts, private), "{private}");
        }
    }

    #[test]
    fn a_name_resolved_by_private_servers_is_classified_by_its_address() {
        let config = Config::default().with("DNS_SERVERS", "127.0.0.1:53");
        let config = config.and_then(|config| config.with("ALLOW_NET", "10.0.0.0/8"));
        let mut hosts = PublicHosts::new(&config.expect("a resolver of our own"));
        let [public, private]: [IpAddr; 2] = [[8, 8, 8, 8].into(), [10, 0, 0, 1].into()];
        for n in 0..30 {
            let name = format!("h{n}.example.com");
            assert!(admits(&mut hosts, &format!("http://{name}/")));
            assert!(hosts.admits_at(&name, private));
            assert_eq!(hosts.admits_at(&name, public), n < 10, "{n}");
        }
        assert!(hosts.admits_at("h3.example.com", public));
    }

    #[test]
    fn hosts_without_their_robots_txt_are_bounded_by_a_setting() {
        let check = |settings: &[(&str, &str)], lack: Option<Lack>, most: usize| {
            let mut config = Config::default();
            for (name, value) in settings {
                config = config.with(name, *value).expect("it is valid");
            }
            let mut hosts = PublicHosts::new(&config);
            assert_eq!(hosts.bound().map(|bound| bound.lack), lack, "{settings:?}");
            let urls = (0..20).map(|n| format!("http://h{n}.example.com/"));
            let admitted = urls.filter(|url| admits(&mut hosts, url)).count();
            assert_eq!(admitted, most, "{settings:?}");
            assert!(admits(&mut hosts, "http://a.test/"), "it is not public");
        };
        let contact = ("CONTACT", "me@example.org");
        let ignored = ("ROBOTSTXT_OBEY", "false");
        let max = |most| ("ROBOTSTXT_IGNORED_HOSTS_MAX", most);
        check(&[contact, ignored], None, 20);
        check(&[contact, ignored, max("0")], None, 20);
        check(&[contact, ignored, max("3")], Some(Lack::Robots), 3);
        check(&[contact, max("3")], None, 20);
        check(&[ignored, max("3")], Some(Lack::Robots), 3);
        check(&[ignored, max("10")], Some(Lack::Contact), 10);
        check(&[ignored, max("15")], Some(Lack::Contact), 10);
    }

    #[test]
    fn hosts_of_earlier_runs_count() {
        let mut earlier = PublicHosts::new(&Config::default());
        for n in 0..8 {
            assert!(admits(&mut earlier, &format!("http://h{n}.example.com/")));
        }
        let mut hosts = PublicHosts::new(&Config::default());
        while let Some(host) = earlier.poll_admitted() {
            hosts.restore(&host);
        }
        let urls = (5..20).map(|n| format!("http://h{n}.example.com/"));
        assert_eq!(urls.filter(|url| admits(&mut hosts, url)).count(), 5);
    }

    #[test]
    fn a_contact_lifts_the_bound() {
        let config = Config::default().with("CONTACT", "me@example.org");
        let mut hosts = PublicHosts::new(&config.expect("a contact"));
        assert!((0..100).all(|n| admits(&mut hosts, &format!("http://h{n}.example.com/"))));
    }
}
