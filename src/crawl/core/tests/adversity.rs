//! Whole crawls in virtual time through a world that is unkind: each must come to its end, with
//! every request accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::life::UNSENT_PER_RELEASE;
use crate::crawl::core::tests::judged::{Judge, Overheard};
use crate::crawl::core::tests::log::{capture, captured};
use crate::crawl::core::tests::operated::RandomOperator;
use crate::crawl::core::tests::trial::turn;
use crate::crawl::core::tests::watch::Watch;
use crate::crawl::finish::FinishReason;
use crate::crawl::network::socket::Socket;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver;
use crate::frontier::filter::Filtered;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::{Answer, ConnId, Faults, Net, Sim, World};
use crate::io::{Close, IoSettings};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::throttle::settings::Jitter;

/// Servers by address. All other addresses refuse connections.
#[derive(Default)]
struct Unkind {
    servers: BTreeMap<SocketAddr, Server>,
    connections: BTreeMap<ConnId, (SocketAddr, Vec<u8>)>,
    /// Time, server and path of each request.
    hits: Vec<(Instant, SocketAddr, String)>,
    connections_peak: usize,
    /// Connections without a request so far.
    silent: BTreeSet<ConnId>,
}

#[derive(Default)]
struct Server {
    replies: BTreeMap<String, Vec<u8>>,
    think: Duration,
    /// Number of connections that are closed as soon as they are established.
    hangs_up: u32,
    /// Time without a request after which a connection is closed.
    patience: Option<Duration>,
}

impl Unkind {
    fn server(&mut self, at: &str) -> &mut Server {
        let at = at.parse().expect("an address and a port");
        self.servers.entry(at).or_default()
    }

    fn paths(&self, at: &str) -> Vec<&str> {
        let at: SocketAddr = at.parse().expect("an address and a port");
        let here = self.hits.iter().filter(|(_, to, _)| *to == at);
        here.map(|(_, _, path)| path.as_str()).collect()
    }
}

impl Server {
    fn reply(&mut self, path: &str, reply: impl Into<Vec<u8>>) -> &mut Self {
        self.replies.insert(path.to_owned(), reply.into());
        self
    }

    fn page(&mut self, path: &str, html: &str) -> &mut Self {
        let length = html.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}");
        self.reply(path, format!("{head}\r\n\r\n{html}"))
    }

    /// Adds a page at `/` with links to `count` others, `/0` and on.
    fn pages(&mut self, count: usize) -> &mut Self {
        let links: String = (0..count).map(|n| format!("<a href=/{n}>")).collect();
        for n in 0..count {
            self.page(&format!("/{n}"), "one of many");
        }
        self.page("/", &links)
    }
}

impl World for Unkind {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        Duration::from_millis(2)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        let Some(server) = self.servers.get_mut(&to) else {
            return Answer::Refuse;
        };
        if server.hangs_up > 0 {
            server.hangs_up -= 1;
            net.end(conn, Duration::ZERO);
        }
        if let Some(patience) = server.patience {
            net.alarm(patience, conn.0);
        }
        self.silent.insert(conn);
        self.connections.insert(conn, (to, Vec::new()));
        self.connections_peak = self.connections_peak.max(self.connections.len());
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let Some((to, unread)) = self.connections.get_mut(&conn) else {
            return;
        };
        unread.extend_from_slice(bytes);
        self.silent.remove(&conn);
        while let Some(end) = unread.windows(4).position(|w| w == b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head);
            let path = head.split(' ').nth(1).unwrap_or("").to_owned();
            let server = &self.servers[to];
            let reply = server.replies.get(&path).map_or(NOT_FOUND, |r| &r[..]);
            net.reply(conn, server.think, reply);
            self.hits.push((net.now(), *to, path));
        }
    }

    fn closed(&mut self, conn: ConnId, _how: Close, _net: &mut Net) {
        self.connections.remove(&conn);
    }

    fn alarm(&mut self, what: u64, net: &mut Net) {
        let conn = ConnId(what);
        if self.silent.contains(&conn) && self.connections.contains_key(&conn) {
            net.end(conn, Duration::ZERO);
        }
    }
}

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

/// Longer than any of these crawls should take.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);

/// A crawl through simulated servers without delays, one request at a time per scope.
struct Trip {
    config: Config,
    io: IoSettings,
    names: resolver::ResolverSettings,
    world: Shared<Unkind>,
}

impl Trip {
    fn new() -> Self {
        let mut config = Config::default();
        config.throttle.default.delay = Duration::ZERO;
        config.throttle.default.delay_per_slot = Duration::ZERO;
        config.allow_net = vec!["10.0.0.0/8".to_owned()];
        config.random_seed = Some(1);
        Trip {
            config,
            io: IoSettings::default(),
            names: resolver::ResolverSettings::default(),
            world: Shared::default(),
        }
    }

    fn server(&self, at: &str, make: impl FnOnce(&mut Server)) {
        make(self.world.borrow_mut().server(at));
    }

    fn crawler(&self, results: &Shared<Vec<Page>>) -> Crawler<Sim> {
        let world = Box::new(Shared::clone(&self.world));
        let io = Sim::with(1, self.io.clone(), Faults::default(), world);
        let config = self.config.clone().finish().expect("a sound config");
        let results = Shared::clone(results);
        let sink = FunctionSink::new(move |page| results.borrow_mut().push(page));
        Crawler::on(io, config, self.names.clone(), Parts::new(sink)).expect("a crawler")
    }

    /// Crawls from these URLs to the end; returns the finish reason and every finished attempt.
    fn run(&self, seeds: &[&str]) -> (FinishReason, Vec<Page>) {
        let results = Shared::default();
        let mut crawler = self.crawler(&results);
        for seed in seeds {
            crawler.submit(Request::get(*seed)).expect("a sound seed");
        }
        let reason = finish(&mut crawler);
        let pages = results.borrow().clone();
        (reason, pages)
    }
}

/// Runs the crawl to its end, within [`PATIENCE`].
fn finish(crawler: &mut Crawler<Sim>) -> FinishReason {
    let mut watch = Watch::default();
    loop {
        if let Turn::Over(reason) = watch.turn(crawler, None) {
            return reason;
        }
        assert!(
            crawler.elapsed() < PATIENCE,
            "the crawl does not end: {:?}",
            crawler.progress()
        );
    }
}

#[test]
fn one_origin_has_as_many_requests_in_flight_as_its_scope_allows() {
    let mut trip = Trip::new();
    trip.config.throttle.default.concurrency = 4;
    trip.server("10.0.0.1:80", |server| {
        server.pages(12).think = Duration::from_secs(1);
    });
    let (reason, pages) = trip.run(&["http://10.0.0.1/"]);
    assert_eq!(reason, FinishReason::Finished);
    assert_eq!(pages.len(), 14);
    assert_eq!(trip.world.borrow().connections_peak, 4);
}

#[test]
fn a_robots_txt_is_requested_again_if_its_connection_ends_before_the_request() {
    let trip = Trip::new();
    trip.server("10.0.0.1:80", |server| {
        server.page("/", "").hangs_up = 1;
    });
    let (reason, pages) = trip.run(&["http://10.0.0.1/"]);
    assert_eq!(reason, FinishReason::Finished);
    assert_eq!(pages.last().expect("a page").status, Some(200));
}

#[test]
fn a_page_limit_is_reached_if_a_connection_ends_before_its_use() {
    let mut trip = Trip::new();
    trip.config.frontier.pages_max = 1;
    trip.config.frontier.robots_obey = false;
    for (n, hangs_up) in [(1, 1), (2, 0)] {
        trip.server(&format!("10.0.0.{n}:80"), |server| {
            server.page("/", "").hangs_up = hangs_up;
        });
    }
    let (reason, pages) = trip.run(&["http://10.0.0.1/", "http://10.0.0.2/"]);
    let brought = pages.iter().filter(|page| page.status.is_some()).count();
    assert_eq!((reason, brought), (FinishReason::PageCount, 1));
}

#[test]
fn a_new_connection_that_ends_while_a_hold_keeps_its_request_loses_no_request() {
    const REFUSAL: &str = "HTTP/1.1 429 Too Many\r\nretry-after: 4\r\ncontent-length: 0\r\n\r\n";
    let mut put_back = 0;
    // The refusal arrives while the second connection is established and its request waits for its delay.
    for think in 480..500 {
        let mut trip = Trip::new();
        trip.config.frontier.retry_times = 0;
        trip.config.frontier.robots_obey = false;
        trip.config.throttle.default.concurrency = 2;
        trip.config.throttle.default.delay = Duration::from_millis(500);
        trip.config.throttle.default.jitter = Jitter::NONE;
        trip.server("10.0.0.1:80", |server| {
            server.reply("/a", REFUSAL).page("/b", "");
            server.think = Duration::from_millis(think);
            server.patience = Some(Duration::from_secs(1));
        });
        let (reason, pages) = trip.run(&["http://10.0.0.1/a", "http://10.0.0.1/b"]);
        assert_eq!(reason, FinishReason::Finished);
        let errors: Vec<_> = pages
            .iter()
            .map(|page| (page.status, error(page)))
            .collect();
        let expected = [(Some(429), None), (Some(200), None)];
        assert_eq!(errors, expected, "{think} ms");
        let hits = &trip.world.borrow().hits;
        let waited = hits[1].0.saturating_since(hits[0].0);
        put_back += usize::from(waited >= Duration::from_secs(4));
    }
    assert!(put_back > 0, "no hold came in time");
}

#[test]
fn a_further_address_is_tried_only_if_its_scope_has_a_free_slot() {
    const THINK: Duration = Duration::from_millis(700);
    let mut trip = Trip::new();
    trip.config.frontier.robots_obey = false;
    trip.config.throttle.default.concurrency = 8;
    trip.config.throttle.concurrent_requests_per_ip = 1;
    // Nothing listens at the first address of a.test.
    let hosts = "10.0.0.9 a.test\n10.0.0.2 a.test\n10.0.0.2 b.test\n";
    trip.names.hosts = resolver::Hosts::parse(hosts);
    trip.server("10.0.0.2:80", |server| {
        server.page("/a", "").page("/b", "");
        server.think = THINK;
    });
    let (reason, pages) = trip.run(&["http://b.test/b", "http://a.test/a"]);
    assert_eq!(reason, FinishReason::Finished);
    let world = trip.world.borrow();
    let asked: Vec<_> = world.hits.iter().map(|(at, _, path)| (path, *at)).collect();
    assert_eq!(asked[0].0, "/b");
    assert!(asked.len() <= 2, "{asked:?}");
    for (path, at) in &asked[1..] {
        let since = at.saturating_since(asked[0].1);
        assert!(since >= THINK, "{path} came beside /b: {since:?}");
    }
    assert!(pages.iter().any(|page| page.status == Some(200)));
}

#[test]
fn f74_delayed_redirects_count_for_the_warning_of_waiting_requests() {
    const LATER: &str = "HTTP/1.1 302 Found\r\nretry-after: 60\r\ncontent-length: 0\r\nlocation: ";
    let check = |redirects: usize, expected: usize| {
        capture();
        let mut trip = Trip::new();
        trip.config.throttle.delayed_requests_warn_threshold = 5;
        trip.server("10.0.0.1:80", |server| {
            server.pages(redirects);
            for n in 0..redirects {
                server.reply(&format!("/{n}"), format!("{LATER}/target{n}\r\n\r\n"));
            }
        });
        let mut crawler = trip.crawler(&Shared::default());
        crawler
            .submit(Request::get("http://10.0.0.1/"))
            .expect("a sound seed");
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert!(crawler.elapsed() > Duration::from_secs(60), "they wait");
        let lines = captured().into_iter();
        let warnings: Vec<String> = lines
            .filter(|line| line.contains("DELAYED_REQUESTS_WARN_THRESHOLD"))
            .collect();
        assert_eq!(
            warnings.len(),
            expected,
            "{redirects} redirects: {warnings:?}"
        );
        for warning in warnings {
            assert!(
                warning.starts_with("WARN: 5 requests wait in memory"),
                "{warning}"
            );
        }
    };
    check(4, 0);
    check(5, 1);
    check(6, 1);
    check(20, 1);
}

fn error(page: &Page) -> Option<String> {
    let failure = page.failure.as_ref()?;
    Some(format!("{}.{}", failure.kind.as_str(), failure.name))
}

#[test]
fn a_robots_txt_redirected_to_a_failed_host_counts_as_unreachable() {
    let mut trip = Trip::new();
    trip.config.frontier.retry_times = 0;
    trip.config.frontier.robots_obey = false;
    let redirect =
        "HTTP/1.1 301 Moved\r\nlocation: http://10.0.0.2/robots.txt\r\ncontent-length: 0\r\n\r\n";
    trip.server("10.0.0.1:80", |server| {
        server.page("/", "").reply("/robots.txt", redirect);
    });
    let results = Shared::default();
    let mut crawler = trip.crawler(&results);
    // These requests fail before the other host's robots.txt is requested: robots.txt is obeyed only
    // afterwards.
    for n in 0..30 {
        let url = format!("http://10.0.0.2/{n}");
        crawler.submit(Request::get(url)).expect("a sound seed");
    }
    let handle = crawler.handle();
    while crawler.progress().queued > 0 || crawler.progress().in_flight > 0 {
        turn(&mut crawler, None);
    }
    crawler.core.frontier.settings_mut().robots_obey = true;
    crawler
        .submit(Request::get("http://10.0.0.1/"))
        .expect("a sound seed");
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let results = results.borrow();
    assert_eq!(
        error(results.last().expect("a page")).as_deref(),
        Some("robots.unreachable")
    );
}

#[test]
fn an_excluded_host_gets_no_request_not_even_for_robots_txt() {
    let mut trip = Trip::new();
    trip.config.frontier.exclude_hosts = vec!["10.0.0.2".to_owned()];
    let redirect =
        "HTTP/1.1 301 Moved\r\nlocation: http://10.0.0.2/robots.txt\r\ncontent-length: 0\r\n\r\n";
    trip.server("10.0.0.1:80", |server| {
        server.page("/", "").reply("/robots.txt", redirect);
    });
    trip.server("10.0.0.2:80", |server| {
        server.page("/", "");
    });
    let (_, pages) = trip.run(&["http://10.0.0.1/"]);
    assert_eq!(pages.len(), 2);
    assert!(trip.world.borrow().paths("10.0.0.2:80").is_empty());
}

#[test]
fn a_crawl_ends_after_as_many_errors_as_configured() {
    let mut trip = Trip::new();
    trip.config.frontier.errors_max = 2;
    trip.config.frontier.retry_times = 0;
    trip.config.frontier.hosts.down_after = Duration::ZERO;
    trip.config.frontier.robots_obey = false;
    let seeds = ["http://10.0.0.1/", "http://10.0.0.1/1", "http://10.0.0.1/2"];
    let (reason, pages) = trip.run(&seeds);
    assert_eq!((reason, pages.len()), (FinishReason::ErrorCount, 2));
}

#[test]
fn requests_from_outside_are_taken_in_while_others_are_waited_for() {
    let mut trip = Trip::new();
    trip.config.frontier.robots_obey = false;
    trip.config.frontier.deny = vec![regex::Regex::new("/left-out").expect("a pattern")];
    trip.server("10.0.0.1:80", |server| {
        server.page("/", "").think = Duration::from_secs(20);
    });
    let mut crawler = trip.crawler(&Shared::default());
    let handle = crawler.handle();
    let seed = Request::get("http://10.0.0.1/");
    handle.submit(seed).expect("the crawl goes on");
    for n in 0..4000 {
        let url = format!("http://10.0.0.1/left-out/{n}");
        handle.submit(Request::get(url)).expect("the crawl goes on");
    }
    while crawler.elapsed() < Duration::from_secs(1) {
        turn(&mut crawler, None);
    }
    assert_eq!(crawler.progress().filtered[&Filtered::Denied], 4000);
}

#[test]
fn bodies_are_buffered_up_to_their_bound_and_one_more() {
    const BODY: usize = 1 << 20;
    let mut trip = Trip::new();
    trip.config.frontier.robots_obey = false;
    trip.config.buffered_bodies_max = BODY as u64;
    trip.config.fetch.body_max = BODY as u64;
    trip.io.read_budget = 1024;
    let hosts = 1..=8;
    let seeds: Vec<String> = hosts
        .clone()
        .map(|n| format!("http://10.0.0.{n}/"))
        .collect();
    for n in hosts {
        trip.server(&format!("10.0.0.{n}:80"), |server| {
            server.page("/", &"x".repeat(BODY));
        });
    }
    let results = Shared::default();
    let mut crawler = trip.crawler(&results);
    for seed in &seeds {
        crawler.submit(Request::get(seed)).expect("a sound seed");
    }
    let mut peak = 0;
    while turn(&mut crawler, None) == Turn::GoesOn {
        peak = peak.max(crawler.core.network.buffered());
    }
    assert!(results.borrow().iter().all(|page| page.body.len() == BODY));
    // A body is stored twice, raw and decoded, in buffers that grow by doubling.
    assert!(peak <= 6 * BODY, "{peak}");
    assert_eq!(crawler.core.network.buffered(), 0);
}

#[test]
fn a_reply_that_we_kept_waiting_is_not_blamed_for_it() {
    let mut trip = Trip::new();
    trip.config.frontier.robots_obey = false;
    trip.config.fetch.idle_timeout = Duration::from_secs(2);
    trip.server("10.0.0.1:80", |server| {
        server.page("/", &"x".repeat(1 << 20));
    });
    trip.io.read_budget = 1024;
    let results: Shared<Vec<Page>> = Shared::default();
    let ready = Shared::new(true);
    let mut crawler = trip.crawler(&results);
    let (pages, is_ready) = (Shared::clone(&results), Shared::clone(&ready));
    let sink = FunctionSink::new(move |page| pages.borrow_mut().push(page));
    let sink = sink.ready_when(move || is_ready.get());
    crawler.core.output.set_sink(sink);
    crawler
        .submit(Request::get("http://10.0.0.1/"))
        .expect("a sound seed");
    while crawler.core.network.buffered() < 1 << 16 {
        turn(&mut crawler, None);
    }
    ready.set(false);
    while crawler.elapsed() < Duration::from_secs(300) {
        turn(&mut crawler, None);
    }
    ready.set(true);
    finish(&mut crawler);
    assert_eq!(error(&results.borrow()[0]), None);
}

#[test]
fn requests_in_flight_are_bounded_by_the_number_of_sockets() {
    let mut trip = Trip::new();
    trip.config.frontier.robots_obey = false;
    trip.config.frontier.retry_times = 0;
    trip.io.sockets_max = 8;
    let seeds: Vec<String> = (1..=40).map(|n| format!("http://10.0.0.{n}/")).collect();
    for n in 1..=40 {
        trip.server(&format!("10.0.0.{n}:80"), |server| {
            server.page("/", "").think = Duration::from_secs(1);
        });
    }
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let (_, pages) = trip.run(&seeds);
    assert!(pages.iter().all(|page| page.status == Some(200)));
    assert!(trip.world.borrow().connections_peak <= 8);
}

#[test]
fn redirects_end_if_more_are_allowed_than_can_be_counted() {
    let mut trip = Trip::new();
    trip.config.frontier.robots_obey = false;
    trip.config.frontier.redirects_max = 1000;
    trip.server("10.0.0.1:80", |server| {
        for n in 0..300 {
            let next = n + 1;
            let head = format!("HTTP/1.1 302 Found\r\nlocation: /{next}\r\ncontent-length: 0");
            server.reply(&format!("/{n}"), format!("{head}\r\n\r\n"));
        }
    });
    let (reason, pages) = trip.run(&["http://10.0.0.1/0"]);
    let last = pages.last().expect("a page");
    assert_eq!((reason, pages.len()), (FinishReason::Finished, 256));
    assert_eq!(error(last).as_deref(), Some("redirect.limit"));
}

#[test]
fn a_turn_stays_short_if_a_whole_queue_ends_unsent() {
    let trip = Trip::new();
    let robots = "HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\nUser-agent: *\r\nDisallow: /\r\n";
    trip.server("10.0.0.1:80", |server| {
        server.reply("/robots.txt", robots);
    });
    let results: Shared<Vec<Page>> = Shared::default();
    let taken = Shared::new(0);
    let mut crawler = trip.crawler(&results);
    let (pages, taken_now) = (Shared::clone(&results), Shared::clone(&taken));
    let sink = FunctionSink::new(move |page| pages.borrow_mut().push(page));
    let held = Shared::clone(&results);
    // Ready until ten pages have arrived since it was last emptied.
    let ready = move || held.borrow().len() < taken_now.get() + 10;
    crawler.core.output.set_sink(sink.ready_when(ready));
    for n in 0..5000 {
        let url = format!("http://10.0.0.1/{n}");
        crawler.submit(Request::get(url)).expect("a sound seed");
    }
    while turn(&mut crawler, None) == Turn::GoesOn {
        let came = results.borrow().len() - taken.get();
        assert!(came < 10 + UNSENT_PER_RELEASE, "{came}");
        taken.set(results.borrow().len());
    }
    assert_eq!(results.borrow().len(), 5001);
}

#[test]
fn a_sitemap_that_is_a_gzip_file_is_read() {
    let mut trip = Trip::new();
    trip.config.frontier.sitemaps = true;
    let robots = "Sitemap: http://10.0.0.1/map.xml.gz";
    let map = "<urlset><url><loc>http://10.0.0.1/hidden</loc></url></urlset>";
    let map = crate::wire::coding::gzip(map.as_bytes());
    let head = |length| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    trip.server("10.0.0.1:80", |server| {
        server.page("/", "").page("/hidden", "");
        server.reply("/robots.txt", head(robots.len()) + robots);
        server.reply("/map.xml.gz", [head(map.len()).into_bytes(), map].concat());
    });
    trip.run(&["http://10.0.0.1/"]);
    let world = trip.world.borrow();
    assert!(world.paths("10.0.0.1:80").contains(&"/hidden"));
}

#[test]
fn a_host_without_an_address_is_tried_again_for_a_later_link() {
    let mut trip = Trip::new();
    trip.config.frontier.follow = Follow::All;
    trip.config.frontier.robots_obey = false;
    trip.server("10.0.0.1:80", |server| {
        server.page(
            "/",
            "<a href=http://nowhere.invalid/1></a><a href=/next></a>",
        );
        server.page("/next", "<a href=http://nowhere.invalid/2></a>");
    });
    let (reason, pages) = trip.run(&["http://10.0.0.1/"]);
    let nowhere = |page: &&Page| error(page).as_deref() == Some("dns.nxdomain");
    assert_eq!(
        (reason, pages.iter().filter(nowhere).count()),
        (FinishReason::Finished, 2)
    );
}
/// Servers that fail at random.
pub struct FaultyServers {
    hosts: u64,
    connections: BTreeMap<ConnId, Vec<u8>>,
    hits: u64,
}

impl FaultyServers {
    /// This many servers, from 10.0.0.0 on.
    pub fn new(hosts: u64) -> Self {
        FaultyServers {
            hosts,
            connections: BTreeMap::new(),
            hits: 0,
        }
    }
}

impl World for FaultyServers {
    fn connect(&mut self, conn: ConnId, _to: SocketAddr, net: &mut Net) -> Answer {
        match net.rng().below(20) {
            0 => return Answer::Refuse,
            1 => return Answer::Unreachable,
            2 => return Answer::Silence,
            3 => net.end(conn, Duration::ZERO),
            4 => net.reset(conn, Duration::ZERO),
            5 => net.reply(conn, Duration::ZERO, b"220 mail at your service\r\n"),
            6 => net.end(conn, Duration::from_millis(400)),
            _ => {}
        }
        self.connections.insert(conn, Vec::new());
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let Some(unread) = self.connections.get_mut(&conn) else {
            return;
        };
        unread.extend_from_slice(bytes);
        while unread.windows(4).any(|w| w == b"\r\n\r\n") {
            unread.clear();
            self.hits += 1;
            let think = Duration::from_millis(net.rng().below(2000));
            let host = net.rng().below(self.hosts);
            let n = net.rng().below(40);
            let to = format!("http://10.0.0.{host}/{n}");
            let page = |body: &str| {
                let length = body.len();
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{body}"
                )
            };
            let empty = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n");
            let reply = match net.rng().below(24) {
                0 => empty("500 Oh") + "\r\n",
                1 => empty("429 Slow") + "\r\n",
                2 => empty("301 There") + &format!("location: {to}\r\n\r\n"),
                3 => empty("302 There") + "location: /robots.txt\r\n\r\n",
                4 => {
                    empty("302 There")
                        + &format!("location: http://10.0.0.{host}/robots.txt\r\n\r\n")
                }
                5 => page("User-agent: *\nDisallow: /1\nCrawl-delay: 3\n"),
                6 => "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort".to_owned(),
                7 => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(),
                8 => "no HTTP at all\r\n\r\n".to_owned(),
                9 => page(&"x".repeat(30_000)),
                10 => "HTTP/1.1 204 None\r\n\r\n".to_owned(),
                11 => page("twice") + &page("twice"),
                12 => empty("302 There") + "location: http://127.0.0.1/\r\n\r\n",
                13 => "HTTP/1.1 200 OK\r\n\r\nuntil the end".to_owned(),
                14 => String::new(),
                _ => page(&format!("<a href={to}>one</a><a href=/{n}/next>two</a>")),
            };
            net.reply(conn, think, reply.as_bytes());
            match net.rng().below(8) {
                0 => net.end(conn, think),
                1 => net.reset(conn, think),
                2 => net.end(conn, think + Duration::from_secs(1)),
                _ => {}
            }
        }
    }

    fn closed(&mut self, conn: ConnId, _how: Close, _net: &mut Net) {
        self.connections.remove(&conn);
    }
}

#[test]
fn a_crawl_of_faulty_servers_ends_without_open_state() {
    let mut states: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..25 {
        let mut rng = Rng::from_seed(seed);
        let mut trip = Trip::new();
        let config = &mut trip.config;
        config.throttle.default.concurrency = 1 + rng.below(4) as u32;
        config.throttle.default.delay = Duration::from_millis(rng.below(3) * 300);
        config.throttle.concurrent_requests = 1 + rng.below(30) as usize;
        config.throttle.concurrent_requests_per_ip = rng.below(3) as u32;
        config.frontier.pages_per_host_max = rng.below(2) as u32 * 15;
        config.frontier.pages_max = rng.below(4) / 3 * 20;
        config.frontier.sitemaps = true;
        let mut others = Rng::from_seed(seed + 1000);
        config.frontier.robots_memory = 1 + others.below(3) * 300;
        config.frontier.sitemap_depth_limit = others.below(3) as u32;
        config.frontier.sitemaps_per_host_max = others.below(3) as u32 * 2;
        config.fetch.body_max = 40_000;
        config.buffered_bodies_max = 40_000;
        trip.io.sockets_max = 4 + rng.below(30) as usize;
        trip.io.read_budget = 2000;
        let mut stops = rng.chance(0.2);
        let judge = Judge::default();
        let world = Box::new(Overheard {
            inner: Box::new(FaultyServers::new(8)),
            replies: Shared::clone(&judge.replies),
            is_down: Shared::default(),
        });
        let io = Sim::with(seed, trip.io.clone(), Faults::default(), world);
        let results: Shared<Vec<Page>> = Shared::default();
        let pages = Shared::clone(&results);
        let sink = FunctionSink::new(move |page| pages.borrow_mut().push(page));
        let config = trip.config.clone().finish().expect("a sound config");
        let names = resolver::ResolverSettings {
            servers: vec!["10.0.0.53:53".parse().expect("an address")],
            ..resolver::ResolverSettings::default()
        };
        let mut crawler = Crawler::on(io, config, names, Parts::new(sink)).expect("a crawler");
        if seed % 2 == 1 {
            crawler.delay_admission(seed);
        }
        let mut seeds = BTreeSet::new();
        for n in 0..60 {
            let mut request = Request::get(format!("http://10.0.0.{}/{n}", n % 9));
            if rng.chance(0.2) {
                request = Request::get(format!("http://nowhere{}.test/{n}", n % 3));
            }
            if rng.chance(0.2) {
                let names = ["one", "two", "three"].map(str::to_owned);
                request.scopes = Some(names[..1 + rng.below(3) as usize].to_vec());
            }
            seeds.insert(request.url.clone());
            crawler.submit(request).expect("a sound seed");
        }
        let stopper = crawler.stopper();
        let mut operator = (seed % 3 == 1)
            .then(|| RandomOperator::new(&mut crawler, seed + 2000, 40, judge, seeds));
        let mut turns = 0;
        let mut watch = Watch::default();
        let reason = loop {
            if let Turn::Over(reason) = watch.turn(&mut crawler, None) {
                break reason;
            }
            crawler.core.frontier.check_hosts();
            if let Some(operator) = &mut operator {
                operator.act(&mut crawler);
                let what = format!("seed {seed}, turn {turns}");
                operator.ask(&mut crawler, &results.borrow(), &what);
            }
            if stops && crawler.elapsed() > Duration::from_secs(5) {
                stopper.stop();
                stops = false;
            }
            let hours = crawler.elapsed().as_secs() / 3600;
            turns += 1;
            assert!(
                turns < 300_000,
                "{seed}: it spins: {:?}",
                crawler.progress()
            );
            assert!(hours < 24, "{seed}: no end: {:?}", crawler.progress());
        };
        for (state, count) in operator.iter().flat_map(RandomOperator::states) {
            *states.entry(state.clone()).or_default() += count;
        }
        let mut ids: Vec<u64> = results.borrow().iter().map(|page| page.id).collect();
        ids.sort_unstable();
        assert!(
            ids.windows(2).all(|two| two[0] < two[1]),
            "{seed}: notified twice"
        );
        let whole = reason == FinishReason::Finished;
        let core = &crawler.core;
        assert!(core.flights.is_empty(), "{seed}: flights");
        assert!(core.network.races().is_empty(), "{seed}: races");
        assert_eq!(core.throttle.in_flight(), 0, "{seed}: tickets");
        let counted = core
            .network
            .sockets()
            .iter()
            .filter_map(|(_, socket)| match socket {
                Socket::Http(http) => Some(http.counted),
                _ => None,
            });
        let counted: Vec<usize> = counted.collect();
        assert!(core.steering.is_empty(), "{seed}: operators");
        assert_eq!(
            counted.len(),
            core.network.idle_len(),
            "{seed}: connections"
        );
        assert_eq!(
            core.network.buffered(),
            counted.iter().sum::<usize>(),
            "{seed}: buffered"
        );
        if whole {
            assert_eq!(core.frontier.queued(), 0, "{seed}: queued");
            assert_eq!(core.frontier.lanes_open(), 0, "{seed}: lanes");
            assert!(core.network.names().lookups().is_empty(), "{seed}: lookups");
            let results = results.borrow();
            let seeds = results.iter().filter(|page| page.parent.is_none());
            assert_eq!(seeds.count(), 60, "{seed}: seeds");
        } else {
            let pending = crawler.take_pending().count();
            assert!(
                pending > 0 || reason != FinishReason::Shutdown,
                "{seed}: nothing pending"
            );
        }
    }
    for state in ["queued", "in_flight", "ended"] {
        assert!(states.contains_key(state), "{state}: {states:?}");
    }
}
