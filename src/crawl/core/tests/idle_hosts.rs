//! Crawls whose hosts are forgotten and come back all the time: limits, gaps and the hosts of the seeds
//! hold as if each had stayed in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::turn;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver;
use crate::frontier::filter::Filtered;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::IoSettings;
use crate::io::sim::{Answer, ConnId, Faults, Net, Sim, World};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::throttle::settings::Jitter;
use crate::wire::url::CrawlUrl;

/// Servers from 10.0.0.0 on that link to each other at random, and fail at random.
#[derive(Default)]
struct Linked {
    hosts: u64,
    connections: BTreeMap<ConnId, SocketAddr>,
    /// Time, host and path of each request.
    hits: Vec<(Instant, String, String)>,
}

impl World for Linked {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        Duration::from_millis(2)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        self.connections.insert(conn, to);
        match net.rng().below(10) {
            0 => Answer::Refuse,
            _ => Answer::Accept,
        }
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let head = String::from_utf8_lossy(bytes);
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let host = self.connections[&conn].ip().to_string();
        let think = Duration::from_millis(net.rng().below(2000));
        let mut link = || {
            let (host, path) = (net.rng().below(self.hosts), net.rng().below(30));
            format!("http://10.0.0.{host}/{path}")
        };
        let links: String = (0..3).map(|_| format!("<a href={}>", link())).collect();
        let body = match path.as_str() {
            "/robots.txt" => {
                let maps = (0..4).map(|n| format!("Sitemap: http://{host}/{n}.xml\n"));
                maps.collect()
            }
            map if map.ends_with(".xml") => {
                format!("<urlset><url><loc>{}</loc></url></urlset>", link())
            }
            _ => links,
        };
        let (kind, length) = ("text/html", body.len());
        let reply = match net.rng().below(20) {
            0 => "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_owned(),
            1 => "HTTP/1.1 404 Gone\r\ncontent-length: 0\r\n\r\n".to_owned(),
            _ => format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        };
        match net.rng().below(20) {
            0 => net.reset(conn, think),
            1 => net.end(conn, think),
            _ => net.reply(conn, think, reply.as_bytes()),
        }
        self.hits.push((net.now(), host, path));
    }
}

/// The results of a crawl.
struct Outcome {
    hits: Vec<(Instant, String, String)>,
    pages: Vec<Page>,
    offsite: u64,
    hosts_peak: usize,
    returns: usize,
}

const HOSTS: u64 = 40;
const SEEDS: u64 = 15;

fn crawl(seed: u64, config: &Config) -> Outcome {
    let world = Shared::new(Linked {
        hosts: HOSTS,
        ..Linked::default()
    });
    let net = Box::new(Shared::clone(&world));
    let io = Sim::with(seed, IoSettings::default(), Faults::default(), net);
    let results: Shared<Vec<Page>> = Shared::default();
    let pages = Shared::clone(&results);
    let sink = FunctionSink::new(move |page| pages.borrow_mut().push(page));
    let config = config.clone().finish().expect("a sound config");
    let names = resolver::ResolverSettings::default();
    let mut crawler = Crawler::on(io, config, names, Parts::new(sink)).expect("a crawler");
    if seed % 2 == 1 {
        crawler.delay_admission(seed);
    }
    for host in 0..SEEDS {
        let url = format!("http://10.0.0.{host}/");
        crawler.submit(Request::get(url)).expect("a sound seed");
    }
    let (mut hosts_peak, mut returns, mut before) = (0, 0, 0);
    while turn(&mut crawler, None) == Turn::GoesOn {
        let idle = crawler.core.frontier.check_hosts();
        assert!(idle < 64, "{seed}: {idle} hosts are idle");
        let hosts = crawler.core.frontier.hosts_len();
        hosts_peak = hosts_peak.max(hosts);
        returns += usize::from(hosts > before);
        before = hosts;
        let hours = crawler.elapsed().as_secs() / 3600;
        assert!(hours < 48, "{seed}: no end: {:?}", crawler.progress());
    }
    let filtered = crawler.progress().filtered;
    let hits = std::mem::take(&mut world.borrow_mut().hits);
    Outcome {
        hits,
        pages: results.take(),
        offsite: filtered.get(&Filtered::Offsite).copied().unwrap_or(0),
        hosts_peak,
        returns,
    }
}

#[test]
fn limits_gaps_and_seed_membership_survive_the_eviction_of_hosts() {
    let (mut at_most, mut returns) = (0, 0);
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let mut config = Config::default();
        config.allow_net = vec!["10.0.0.0/8".to_owned()];
        config.random_seed = Some(seed);
        let gap = Duration::from_millis(100 + rng.below(2000));
        config.throttle.default.delay = gap;
        config.throttle.default.jitter = Jitter::NONE;
        config.throttle.default.concurrency = 1;
        config.throttle.concurrent_requests = 1 + rng.below(4) as usize;
        let frontier = &mut config.frontier;
        frontier.retry_times = rng.below(3) as u32;
        frontier.robots_obey = rng.chance(0.5);
        frontier.robots_lifetime = Duration::from_secs(1 + rng.below(60));
        frontier.sitemaps = rng.chance(0.5);
        frontier.sitemaps_per_host_max = 2;
        frontier.follow = match rng.below(3) {
            0 => Follow::All,
            _ => Follow::Host,
        };
        let pages_max = 1 + rng.below(6) as u32;
        frontier.pages_per_host_max = pages_max;
        let (follow, reads_sitemaps) = (frontier.follow, frontier.sitemaps);
        let outcome = crawl(seed, &config);
        returns += outcome.returns;

        let mut pages: BTreeMap<String, u32> = BTreeMap::new();
        let mut links = 0;
        for page in &outcome.pages {
            let url = CrawlUrl::parse(&page.url).expect("it was fetched");
            let is_page = !page.url.ends_with(".txt") && !page.url.ends_with(".xml");
            if is_page && page.is_final && page.status.is_some() {
                *pages.entry(url.host_str().to_owned()).or_default() += 1;
            }
            if page.links.is_some() && page.failure.is_none() {
                let body = String::from_utf8_lossy(&page.body).into_owned();
                links += hosts_linked(&body).filter(|host| *host >= SEEDS).count() as u64;
            }
        }
        let most = pages.values().max().copied().unwrap_or(0);
        assert!(most <= pages_max, "{seed}: PAGES_PER_HOST_MAX: {pages:?}");
        at_most += u32::from(most == pages_max);

        let mut last: BTreeMap<&str, Instant> = BTreeMap::new();
        let mut sitemaps: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (at, host, path) in &outcome.hits {
            if let Some(before) = last.insert(host, *at) {
                let between = at.saturating_since(before);
                assert!(between >= gap, "{seed}: {host}: {between:?} < {gap:?}");
            }
            if path.ends_with(".xml") {
                sitemaps.entry(host).or_default().insert(path);
            }
            let number: u64 = host["10.0.0.".len()..].parse().expect("a number");
            let is_seed = number < SEEDS;
            assert!(is_seed || follow == Follow::All, "{seed}: offsite: {host}");
        }
        let most = sitemaps.values().map(BTreeSet::len).max().unwrap_or(0);
        assert!(most <= 2, "{seed}: SITEMAPS_PER_HOST_MAX: {sitemaps:?}");
        if follow == Follow::Host {
            // URLs of sitemaps are filtered as well.
            assert!(
                reads_sitemaps || outcome.offsite == links,
                "{seed}: {} offsite, not {links}",
                outcome.offsite
            );
            let followed = outcome.pages.iter().any(|page| page.depth > 0);
            assert!(followed || pages_max == 1, "{seed}: no link was followed");
            assert!(outcome.hosts_peak <= SEEDS as usize, "{seed}");
        }
    }
    assert!(at_most > 15, "the limit was reached in {at_most} crawls");
    assert!(returns > 300, "hosts came back {returns} times");
}

/// The numbers of the hosts that a page links to, one for each URL.
fn hosts_linked(body: &str) -> impl Iterator<Item = u64> {
    let links = body.split("http://10.0.0.").skip(1);
    let links: BTreeSet<&str> = links.filter_map(|link| link.split('>').next()).collect();
    let hosts = links.into_iter().filter_map(|link| link.split('/').next());
    hosts.map(|host| host.parse().expect("a number"))
}
