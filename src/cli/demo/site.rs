//! Hosts of the demo web, drawn from a seed: rules, speed, limits, pages.

pub mod answer;

use std::net::Ipv4Addr;
use std::time::Duration;

use argiope::base::rng::Rng;

/// All hosts, `site-0001.test` and on, and the port they share.
pub struct World {
    sites: Vec<Site>,
    port: u16,
}

impl World {
    /// Draws `domains` hosts with about `pages` pages each. The same seed draws the same world.
    pub fn draw(domains: u32, pages: u32, seed: u64, port: u16) -> World {
        let chance = Rng::from_seed(seed);
        let sites = (1..=domains)
            .map(|number| {
                let chance = chance.fork(number.to_le_bytes());
                Site::draw(number, domains, pages, chance)
            })
            .collect();
        World { sites, port }
    }

    /// The host of this name, if it exists.
    pub fn find(&self, host: &str) -> Option<&Site> {
        let number = host.strip_prefix("site-")?.strip_suffix(".test")?;
        let site = self.site(number.parse().ok()?)?;
        (site.host() == host).then_some(site)
    }

    /// The host of this number, counted from 1.
    pub fn site(&self, number: u32) -> Option<&Site> {
        self.sites.get((number as usize).checked_sub(1)?)
    }

    /// All hosts by number.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The address of a path on a host.
    pub fn url(&self, site: &Site, path: &str) -> String {
        format!("http://{}:{}{path}", site.host(), self.port)
    }
}

/// One host.
pub struct Site {
    /// Counted from 1.
    pub number: u32,
    /// Its behaviour on requests.
    pub temper: Temper,
    /// Its robots.txt.
    pub robots: Robots,
    /// The home page, then `/page-1` and on.
    pub pages: Vec<Page>,
    /// Whether one page is linked from the sitemap only.
    pub sitemap: bool,
    /// Whether its pages link to `/private/open`, which is allowed.
    pub open: bool,
    /// Usual time to the first byte.
    pub latency: Duration,
    /// Random seed of its replies.
    pub chance: Rng,
    /// Other hosts its pages link to, by number.
    others: [u32; 2],
}

/// Behaviour of a host on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    /// Answers.
    Usual,
    /// Answers after a second or two.
    Slow,
    /// Refuses connections.
    Refusing,
    /// Reads the request, then resets the connection.
    Resetting,
    /// Answers 429 to a request sooner than this after the previous one.
    Limiting(Duration),
    /// Answers 429 to the first request for a page, then answers normally.
    Busy,
}

/// A host's robots.txt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Robots {
    /// No robots.txt: everything is allowed.
    Absent,
    /// `/private/` is disallowed, except `/private/open`.
    Rules {
        /// The `Crawl-delay`.
        delay: Option<Duration>,
        /// Whether `/robots.txt` redirects to the rules.
        moved: bool,
    },
    /// Always 503: everything is disallowed.
    Failing,
}

/// Answer of a page of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Page {
    /// A page without coding.
    Plain,
    /// A page in gzip, for clients that decode it.
    Gzip,
    /// A page in chunks.
    Chunked,
    /// Redirects to another path of the host.
    Moved,
    /// Redirects to the first of `others`.
    Away,
    /// 404.
    Missing,
    /// 500.
    Failing,
}

impl Page {
    /// Number of requests it takes: a redirect takes a second one, a failure two retries by default.
    fn requests(self) -> f64 {
        match self {
            Page::Moved => 2.0,
            Page::Failing => 3.0,
            _ => 1.0,
        }
    }
}

impl Site {
    fn draw(number: u32, domains: u32, pages: u32, mut chance: Rng) -> Site {
        let temper = match chance.below(1000) {
            0..20 => Temper::Refusing,
            20..30 => Temper::Resetting,
            30..60 => Temper::Slow,
            60..80 => Temper::Limiting(Duration::from_millis(300 + chance.below(400))),
            80..95 => Temper::Busy,
            _ => Temper::Usual,
        };
        let delay = |seconds| Robots::Rules {
            delay: Some(Duration::from_secs_f64(seconds)),
            moved: false,
        };
        let moved = chance.chance(0.08);
        let robots = match chance.below(100) {
            0..25 => Robots::Absent,
            25..28 => Robots::Failing,
            28..32 => delay(0.5),
            32..36 if temper != Temper::Slow => delay(1.5),
            36..40 if temper != Temper::Slow => delay(2.0),
            _ => Robots::Rules { delay: None, moved },
        };
        let latency = if temper == Temper::Slow {
            chance.range_f64(1.0, 2.0)
        } else {
            (0.04 * normal(&mut chance).exp()).clamp(0.005, 0.3)
        };
        let mut site = Site {
            number,
            temper,
            robots,
            pages: Vec::new(),
            open: false,
            others: std::array::from_fn(|_| 1 + chance.below(domains.into()) as u32),
            sitemap: matches!(robots, Robots::Rules { .. }) && chance.chance(0.2),
            latency: Duration::from_secs_f64(latency),
            chance,
        };
        site.open = matches!(robots, Robots::Rules { .. }) && site.chance.chance(0.1);
        site.draw_pages(pages);
        site
    }

    /// Draws as many pages as a client with a delay of 1 s fetches in `pages` + 3 seconds, robots.txt
    /// included, at most `pages`. A slow host has fewer, so that all hosts are finished at about the
    /// same time.
    fn draw_pages(&mut self, pages: u32) {
        let pace = self.pace();
        let mut seconds = f64::from(pages + 3) - self.requests_besides() * pace;
        let count = pages.saturating_sub(self.chance.below(2) as u32).max(1);
        let mut page = Page::Plain;
        while self.pages.len() < count as usize {
            seconds -= page.requests() * pace;
            if seconds < 0.0 && !self.pages.is_empty() {
                return;
            }
            self.pages.push(page);
            page = match self.chance.below(100) {
                0..8 => Page::Moved,
                8..13 => Page::Away,
                13..20 => Page::Missing,
                20..23 => Page::Failing,
                23..45 => Page::Gzip,
                45..60 => Page::Chunked,
                _ => Page::Plain,
            };
        }
    }

    /// Seconds between requests of a client with a delay of 1 s, or more if the host requires it.
    fn pace(&self) -> f64 {
        let wait = self.latency.max(self.crawl_delay());
        wait.as_secs_f64().max(1.0)
    }

    /// Requests other than for the pages: robots.txt and its redirect, retries, `/private/open`.
    fn requests_besides(&self) -> f64 {
        let moved = matches!(self.robots, Robots::Rules { moved: true, .. });
        let busy = self.temper == Temper::Busy;
        1.0 + f64::from(u8::from(moved) + u8::from(busy) + u8::from(self.open))
    }

    /// The host's name.
    pub fn host(&self) -> String {
        format!("site-{:04}.test", self.number)
    }

    /// Its address. A refusing host has an address without a listener.
    pub fn address(&self) -> Ipv4Addr {
        match self.temper {
            Temper::Refusing => Ipv4Addr::new(127, 0, 1, 1),
            _ => ADDRESSES[self.number as usize % ADDRESSES.len()],
        }
    }

    /// The `Crawl-delay` of its robots.txt; zero if it has none.
    pub fn crawl_delay(&self) -> Duration {
        match self.robots {
            Robots::Rules { delay, .. } => delay.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// Whether its robots.txt disallows a path. An unavailable robots.txt disallows everything.
    pub fn forbids(&self, path: &str) -> bool {
        if is_robots(path) {
            return false;
        }
        let path = decoded(path);
        match (self.temper, self.robots) {
            (Temper::Resetting, _) | (_, Robots::Failing) => true,
            (_, Robots::Rules { .. }) => path.starts_with("/private/") && !path.starts_with(OPEN),
            (_, Robots::Absent) => false,
        }
    }

    /// The hosts it links to. None links to an unreachable host.
    pub fn friends<'a>(&'a self, world: &'a World) -> impl Iterator<Item = &'a Site> {
        self.others
            .iter()
            .filter_map(|number| world.site(*number))
            .filter(|site| !matches!(site.temper, Temper::Refusing | Temper::Resetting))
    }
}

/// Whether a path is robots.txt or the target of its redirect.
pub fn is_robots(path: &str) -> bool {
    path == ROBOTS || path == RULES
}

/// A percent-decoded path, as compared with robots.txt.
pub fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.extend(code.or(Some(b'%')));
        bytes.extend(part[if code.is_some() { 2 } else { 0 }..].bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A number from the standard normal distribution, by the Box-Muller method.
fn normal(chance: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - chance.range_f64(0.0, 1.0)).ln()).sqrt();
    radius * (std::f64::consts::TAU * chance.range_f64(0.0, 1.0)).cos()
}

/// Addresses of the servers; several, so that there are several address scopes.
pub const ADDRESSES: [Ipv4Addr; 16] = {
    let mut addresses = [Ipv4Addr::LOCALHOST; 16];
    let mut last = 1;
    while last <= 16 {
        addresses[last as usize - 1] = Ipv4Addr::new(127, 0, 0, last);
        last += 1;
    }
    addresses
};

/// Path of the rules.
pub const ROBOTS: &str = "/robots.txt";
/// Path of the rules on some hosts, after a redirect.
pub const RULES: &str = "/robots-rules.txt";
/// Allowed path below a disallowed one.
pub const OPEN: &str = "/private/open";
#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        World::draw(2000, 5, 1, 80)
    }

    #[test]
    fn worlds_differ_if_and_only_if_their_seeds_differ() {
        let robots = |seed| -> Vec<_> {
            let world = World::draw(100, 5, seed, 80);
            world
                .sites
                .iter()
                .map(|site| (site.robots, site.latency))
                .collect()
        };
        assert_eq!(robots(1), robots(1));
        assert_ne!(robots(1), robots(2));
    }

    #[test]
    fn every_temper_and_every_page_occurs() {
        let world = world();
        let some = |wanted: &dyn Fn(&Site) -> bool| assert!(world.sites.iter().any(wanted));
        for temper in [
            Temper::Slow,
            Temper::Refusing,
            Temper::Resetting,
            Temper::Busy,
        ] {
            some(&|site| site.temper == temper);
        }
        some(&|site| matches!(site.temper, Temper::Limiting(_)));
        for robots in [Robots::Absent, Robots::Failing] {
            some(&|site| site.robots == robots);
        }
        some(&|site| matches!(site.robots, Robots::Rules { moved: true, .. }));
        some(&|site| site.crawl_delay() == Duration::from_secs(2));
        some(&|site| site.sitemap);
        for page in [Page::Gzip, Page::Chunked, Page::Moved, Page::Away] {
            some(&|site| site.pages.contains(&page));
        }
        for page in [Page::Missing, Page::Failing] {
            some(&|site| site.pages.contains(&page));
        }
    }

    #[test]
    fn only_the_names_of_hosts_are_found() {
        let world = world();
        assert_eq!(
            world.find("site-0007.test").map(|site| site.number),
            Some(7)
        );
        assert_eq!(
            world.find("site-2000.test").map(|site| site.number),
            Some(2000)
        );
        for stranger in [
            "site-7.test",
            "site-0000.test",
            "site-2001.test",
            "a.test",
            "",
        ] {
            assert!(world.find(stranger).is_none(), "{stranger}");
        }
    }

    #[test]
    fn latencies_are_spread_from_five_milliseconds_to_three_hundred() {
        let world = world();
        let usual = || {
            world
                .sites
                .iter()
                .filter(|site| site.temper != Temper::Slow)
        };
        let below = |millis| {
            let limit = Duration::from_millis(millis);
            usual().filter(|site| site.latency < limit).count() * 100 / usual().count()
        };
        assert_eq!((below(5), below(301)), (0, 100));
        assert!((40..60).contains(&below(40)), "the median is 40 ms");
    }

    #[test]
    fn all_hosts_take_a_polite_client_about_the_same_time() {
        for site in &world().sites {
            let pages: f64 = site.pages.iter().map(|page| page.requests()).sum();
            let seconds = (site.requests_besides() + pages) * site.pace();
            let home_alone = site.pages.len() == 1;
            assert!(seconds <= 8.0 || home_alone, "{}", site.number);
            assert!(seconds <= 10.0, "{}", site.number);
        }
    }

    #[test]
    fn a_host_without_available_rules_disallows_all_but_robots_txt() {
        let world = world();
        let failing = |site: &&Site| site.robots == Robots::Failing;
        let site = world.sites.iter().find(failing).expect("some are");
        assert!(site.forbids("/") && !site.forbids(ROBOTS));
        let resetting = |site: &&Site| site.temper == Temper::Resetting;
        let site = world.sites.iter().find(resetting).expect("some are");
        assert!(site.forbids("/") && !site.forbids(ROBOTS));
    }

    #[test]
    fn valid_percent_encoding_is_decoded() {
        let check = |path, expected: &str| assert_eq!(decoded(path), expected);
        check("/%70%2f", "/p/");
        check("/100%", "/100%");
        check("/%zz%7", "/%zz%7");
        check("/%é", "/%é");
    }
}
