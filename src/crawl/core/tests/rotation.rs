//! Crawls of more hosts than connections are kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{config, crawl_under, finish};
use crate::crawl::finish::FinishReason;
use crate::frontier::request::Request;
use crate::io::sim::{Answer, ConnId, Faults, Net, World};
use crate::io::{Io, IoSettings};
use crate::throttle::settings::ScopePatch;

/// Servers that answer each request after the same time.
#[derive(Default)]
struct Servers {
    /// The file of each.
    robots: &'static str,
    /// They end each connection after its reply.
    close: bool,
    connections: BTreeMap<ConnId, SocketAddr>,
    /// When each server was asked for its robots.txt.
    asked: BTreeMap<SocketAddr, Instant>,
    /// When each server was asked for pages.
    pages: BTreeMap<SocketAddr, Vec<Instant>>,
}

const ANSWERS_AFTER: Duration = Duration::from_millis(10);

impl World for Servers {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        Duration::from_micros(100)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, _net: &mut Net) -> Answer {
        self.connections.insert(conn, to);
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let server = self.connections[&conn];
        let close = match self.close {
            true => "connection: close\r\n",
            false => "",
        };
        let body = match bytes.starts_with(b"GET /robots.txt") {
            true => {
                self.asked.insert(server, net.now());
                self.robots
            }
            false => {
                self.pages.entry(server).or_default().push(net.now());
                "ok"
            }
        };
        let length = body.len();
        let reply = format!("HTTP/1.1 200 OK\r\n{close}content-length: {length}\r\n\r\n{body}");
        net.reply(conn, ANSWERS_AFTER, reply.as_bytes());
        if self.close {
            net.end(conn, ANSWERS_AFTER);
        }
    }
}

impl Servers {
    /// Servers with this robots.txt.
    fn with_robots(robots: &'static str) -> Self {
        Servers {
            robots,
            ..Servers::default()
        }
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The longest time from the beginning, or from one page to the next, in which a server was not asked.
    fn longest_wait(&self) -> Duration {
        let waits = self.pages.values().flat_map(|times| {
            let before = [Instant::START].into_iter().chain(times.iter().copied());
            let waits = before.zip(times);
            waits.map(|(before, at)| at.saturating_since(before))
        });
        waits.max().unwrap_or_default()
    }

    /// The longest time from a robots.txt to the first page.
    fn longest_to_first_page(&self) -> Duration {
        let of = |(server, times): (&SocketAddr, &Vec<Instant>)| {
            times[0].saturating_since(self.asked[server])
        };
        self.pages.iter().map(of).max().unwrap_or_default()
    }
}

/// Fetches so many pages of each of so many hosts, which take turns in the list of seeds. Returns the time that
/// it took.
fn rotate(
    servers: Servers,
    hosts: u32,
    pages: u32,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Shared<Servers>, Duration) {
    let requests = (0..pages).flat_map(|page| (0..hosts).map(move |host| request(host, page)));
    crawl_all(servers, requests, edit)
}

fn request(host: u32, page: u32) -> Request {
    Request::get(format!("http://10.0.{}.{}/{page}", host / 256, host % 256))
}

fn crawl_all(
    servers: Servers,
    requests: impl Iterator<Item = Request>,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Shared<Servers>, Duration) {
    let world = Shared::new(servers);
    let net = Shared::clone(&world);
    let (mut crawler, _) = crawl_under(Faults::default(), None, net, 1, |settings, io| {
        *settings = config(1);
        settings.throttle.default.concurrency = 1;
        edit(settings, io);
    });
    let began = crawler.io().now();
    let mut count = 0;
    for request in requests {
        crawler.submit(request).expect("a sound seed");
        count += 1;
    }
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let took = crawler.io().now().saturating_since(began);
    if world.borrow().robots != NOTHING_ALLOWED {
        assert_eq!(world.borrow().pages.values().flatten().count(), count);
    }
    (world, took)
}

const NOTHING_ALLOWED: &str = "User-agent: *\nDisallow: /\n";

#[test]
fn of_hosts_that_take_turns_by_their_delay_as_many_keep_connections_as_can_be_kept() {
    let (hosts, pages, kept) = (100, 40, 60);
    let (world, _) = rotate(Servers::default(), hosts, pages, |config, _| {
        config.throttle.default.delay = Duration::from_secs(1);
        // One after the other.
        config.throttle.concurrent_requests = 1;
        config.fetch.keepalive_max = kept;
    });
    let connections = world.borrow().connections() as u32;
    let least = hosts + (hosts - kept as u32) * (pages - 1);
    assert!(
        connections <= least + least / 10,
        "{connections} connections, {least} at the best"
    );
}

/// More hosts than connections are kept, and fewer requests in flight than could be.
#[test]
fn busy_hosts_take_turns_of_many_pages_on_their_connections() {
    for slots in [1, 2, 8] {
        let (hosts, pages) = (120, 40);
        let (world, took) = rotate(Servers::default(), hosts, pages, |config, _| {
            config.throttle.default.concurrency = slots;
            config.throttle.concurrent_requests = 20;
            config.fetch.keepalive_max = 60;
        });
        let connections = world.borrow().connections() as u32;
        assert!(
            connections <= hosts * slots + hosts / 10,
            "{slots} slots: {connections} connections"
        );
        let least = ANSWERS_AFTER * (hosts * pages / 20);
        assert!(took < least + least / 10, "{slots} slots: {took:?}");
    }
}

/// Their turns are those of all others, at the longest.
#[test]
fn no_host_waits_longer_than_two_rounds_of_turns() {
    for (kept, close, slots) in [(10, false, 1), (0, false, 1), (10, true, 1), (10, false, 2)] {
        let (hosts, pages) = (40, 200);
        let servers = Servers {
            close,
            ..Servers::default()
        };
        let (world, took) = rotate(servers, hosts, pages, |config, _| {
            config.throttle.default.concurrency = slots;
            config.throttle.concurrent_requests = 10;
            config.fetch.keepalive_max = kept;
        });
        let round = ANSWERS_AFTER * (hosts * 64 / 10);
        let longest = world.borrow().longest_wait();
        assert!(longest < round * 2, "{kept} {close} {slots}: {longest:?}");
        let least = ANSWERS_AFTER * (hosts * pages / 10);
        assert!(took < least + least / 5, "{kept} {close} {slots}: {took:?}");
    }
}

#[test]
fn more_requests_in_flight_than_sockets_starve_no_host() {
    let (hosts, pages) = (200, 100);
    let (world, _) = rotate(Servers::default(), hosts, pages, |config, io| {
        config.throttle.concurrent_requests = 1000;
        io.sockets_max = 80;
    });
    let round = ANSWERS_AFTER * (hosts * 64 / 70);
    let longest = world.borrow().longest_wait();
    assert!(longest < round * 2, "{longest:?}");
    let connections = world.borrow().connections() as u32;
    assert!(connections < hosts * 5, "{connections} connections");
}

#[test]
fn hosts_that_allow_nothing_hold_no_file() {
    let servers = Servers::with_robots(NOTHING_ALLOWED);
    let (world, took) = rotate(servers, 1000, 1, |config, io| {
        config.frontier.robots_obey = true;
        config.throttle.default.delay = Duration::from_secs(1);
        io.sockets_max = 80;
    });
    assert_eq!(world.borrow().asked.len(), 1000);
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

#[test]
fn hosts_that_wait_longer_than_a_connection_hold_no_file() {
    let servers = Servers::with_robots("User-agent: *\nCrawl-delay: 10\n");
    let (_, took) = rotate(servers, 1000, 2, |config, io| {
        config.frontier.robots_obey = true;
        io.sockets_max = 80;
    });
    assert!(took < Duration::from_secs(22), "{took:?}");
    let servers = Servers::with_robots("");
    let (_, took) = rotate(servers, 1000, 1, |config, io| {
        config.frontier.robots_obey = true;
        config.throttle.default.delay = Duration::from_secs(10);
        io.sockets_max = 80;
    });
    assert!(took < Duration::from_secs(12), "{took:?}");
}

#[test]
fn a_hosts_first_page_uses_the_connection_of_its_robots_txt() {
    let by_delay: fn(&mut Config) = |config| {
        config.throttle.default.delay = Duration::from_secs(2);
    };
    let by_robots: fn(&mut Config) = |_| ();
    for (robots, edit) in [
        ("", by_delay),
        ("User-agent: *\nCrawl-delay: 2\n", by_robots),
    ] {
        let servers = Servers::with_robots(robots);
        let (world, took) = rotate(servers, 1000, 1, |config, io| {
            config.frontier.robots_obey = true;
            edit(config);
            io.sockets_max = 80;
        });
        let world = world.borrow();
        let connections = world.connections();
        assert!(connections <= 1050, "{connections} connections, {robots:?}");
        let longest = world.longest_to_first_page();
        assert!(longest <= Duration::from_secs(4), "{longest:?}, {robots:?}");
        assert!(took < Duration::from_secs(60), "{took:?}, {robots:?}");
    }
}

/// Each page comes with a robots.txt and a gap of the hosts' common scope for each.
#[test]
fn a_first_page_goes_before_hosts_that_begin_in_the_same_scope() {
    let gap = Duration::from_millis(50);
    for delay in [Duration::ZERO, Duration::from_millis(500)] {
        let hosts = 300;
        let requests = (0..hosts).map(|host| {
            let own = format!("host {host}");
            request(host, 0).scope("shared").scope(own)
        });
        let (world, took) = crawl_all(Servers::with_robots(""), requests, |config, _| {
            config.frontier.robots_obey = true;
            config.throttle.default.delay = delay;
            let shared = ScopePatch {
                delay: Some(gap),
                ..ScopePatch::default()
            };
            config.throttle.scopes.insert("shared".into(), shared);
        });
        let world = world.borrow();
        let connections = world.connections() as u32;
        assert!(
            connections <= hosts + hosts / 20,
            "{connections}, {delay:?}"
        );
        let longest = world.longest_to_first_page();
        assert!(longest <= delay.max(gap) * 2, "{longest:?}, {delay:?}");
        assert!(took < gap * hosts * 2 + delay * 2, "{took:?}, {delay:?}");
    }
}

#[test]
fn a_first_page_for_which_no_connection_waits_goes_in_the_order_of_its_line() {
    let gap = Duration::from_millis(50);
    let hosts = 100;
    let servers = Servers {
        close: true,
        ..Servers::with_robots("")
    };
    let requests = (0..hosts).map(|host| request(host, 0).scope("shared"));
    let (world, _) = crawl_all(servers, requests, |config, _| {
        config.frontier.robots_obey = true;
        let shared = ScopePatch {
            delay: Some(gap),
            ..ScopePatch::default()
        };
        config.throttle.scopes.insert("shared".into(), shared);
    });
    let longest = world.borrow().longest_to_first_page();
    assert!(longest > gap * hosts / 2, "{longest:?}");
}

#[test]
fn hosts_begin_although_others_never_end() {
    let endless = (0..100).flat_map(|page| (0..200).map(move |host| request(host, page)));
    let fresh = (0..100).map(|host| request(1000 + host, 0));
    let (world, took) = crawl_all(
        Servers::with_robots(""),
        endless.chain(fresh),
        |config, io| {
            config.frontier.robots_obey = true;
            config.throttle.concurrent_requests = 1000;
            io.sockets_max = 80;
        },
    );
    let longest = world.borrow().longest_to_first_page();
    assert!(longest <= Duration::from_secs(4), "{longest:?}");
    let least = ANSWERS_AFTER * (200 * 101 / 70);
    assert!(took < least * 2, "{took:?}");
}

#[test]
fn a_higher_priority_goes_first_although_lower_ones_are_active() {
    for shared in [false, true] {
        let low = (0..100).flat_map(|page| (0..100).map(move |host| request(host, page)));
        let high = (0..100).map(|host| request(1000 + host, 0).priority(5));
        let scoped = low.chain(high).map(|request| match shared {
            true => request.scope("shared"),
            false => request,
        });
        let (world, took) = crawl_all(Servers::default(), scoped, |config, _| {
            config.throttle.default.concurrency = 20;
            config.throttle.concurrent_requests = 20;
            config.fetch.keepalive_max = 30;
        });
        let world = world.borrow();
        let of_high = |server: &SocketAddr| match server {
            SocketAddr::V4(at) => at.ip().octets()[2] >= 3,
            SocketAddr::V6(_) => false,
        };
        let high = world.pages.iter().filter(|(server, _)| of_high(server));
        let last = high.flat_map(|(_, times)| times).max().copied();
        let last = last
            .expect("there are some")
            .saturating_since(Instant::START);
        assert!(last < took / 10, "{shared}: {last:?} of {took:?}");
    }
}
