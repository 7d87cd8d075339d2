//! Crawls in virtual time of a host with two addresses: which connections are opened, and which are left.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::core::tests::trial::{config, finish, run_for};
use crate::crawl::{Crawler, Parts};
use crate::fetch::resolver;
use crate::frontier::request::Request;
use crate::io::IoSettings;
use crate::io::sim::{Answer, ConnId, Faults, Net, Sim, World};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;

/// `10.0.0.1` and `10.0.0.2`, each with this round trip; `None` if it never answers.
struct TwoAddresses {
    round_trips: [Option<Duration>; 2],
}

impl TwoAddresses {
    fn round_trip(&self, to: SocketAddr) -> Option<Duration> {
        let is_second = to.ip().to_string() == "10.0.0.2";
        self.round_trips[usize::from(is_second)]
    }
}

impl World for TwoAddresses {
    fn distance(&mut self, to: SocketAddr, _rng: &mut Rng) -> Duration {
        self.round_trip(to).unwrap_or_default()
    }

    fn connect(&mut self, _conn: ConnId, to: SocketAddr, _net: &mut Net) -> Answer {
        match self.round_trip(to) {
            Some(_) => Answer::Accept,
            None => Answer::Silence,
        }
    }

    fn bytes(&mut self, conn: ConnId, _bytes: &[u8], net: &mut Net) {
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        net.reply(conn, Duration::from_millis(500), reply);
    }
}

/// A crawl of one page of a host with these addresses, none of whose attempts takes longer than two
/// seconds.
fn crawl(round_trips: [Option<Duration>; 2]) -> (Crawler<Sim>, Shared<Vec<Page>>) {
    let mut config = config(1);
    config.fetch.download_timeout = Duration::from_secs(2);
    config.frontier.retry_times = 0;
    config.frontier.hosts.down_after = Duration::ZERO;
    config.outage_breaker = false;
    let world = Box::new(TwoAddresses { round_trips });
    let io = Sim::with(1, IoSettings::default(), Faults::default(), world);
    let names = resolver::ResolverSettings {
        hosts: resolver::Hosts::parse("10.0.0.1 a.test\n10.0.0.2 a.test\n"),
        ..resolver::ResolverSettings::default()
    };
    let pages = Shared::<Vec<Page>>::default();
    let results = Shared::clone(&pages);
    let sink = FunctionSink::new(move |page| results.borrow_mut().push(page));
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(io, config, names, Parts::new(sink)).expect("a crawler");
    let seed = Request::get("http://a.test/");
    crawler.submit(seed).expect("a sound seed");
    (crawler, pages)
}

/// Connections that are open, or are being opened.
fn sockets(crawler: &Crawler<Sim>) -> usize {
    crawler.core.network.sockets().iter().count()
}

#[test]
fn the_first_established_connection_closes_the_other() {
    let ms = Duration::from_millis;
    let (mut crawler, pages) = crawl([Some(ms(1000)), Some(ms(10))]);
    run_for(&mut crawler, ms(249));
    assert_eq!(sockets(&crawler), 1, "the first address has a head start");
    run_for(&mut crawler, ms(5));
    assert_eq!(sockets(&crawler), 2, "both are tried");
    run_for(&mut crawler, ms(20));
    assert_eq!(sockets(&crawler), 1, "the slower one is closed");
    assert!(crawler.core.network.races().is_empty());
    finish(&mut crawler);
    let pages = pages.borrow();
    let remote = pages[0].remote.expect("it was connected");
    assert_eq!(pages[0].status, Some(200), "{:?}", pages[0].failure);
    assert_eq!(remote.to_string(), "10.0.0.2:80");
    assert_eq!(crawler.stats().connections, 2);
}

#[test]
fn an_attempt_whose_time_is_over_leaves_no_connection() {
    let (mut crawler, pages) = crawl([None, None]);
    run_for(&mut crawler, Duration::from_millis(1990));
    assert_eq!(sockets(&crawler), 2, "both are tried");
    finish(&mut crawler);
    assert_eq!(sockets(&crawler), 0);
    assert!(crawler.core.network.races().is_empty());
    assert!(crawler.elapsed() < Duration::from_millis(2100));
    let pages = pages.borrow();
    let failure = pages[0].failure.as_ref().expect("nothing answered");
    assert_eq!(failure.name, "connect");
    assert_eq!(pages.len(), 1);
}

#[test]
fn a_stop_closes_all_connections_of_an_attempt() {
    let (mut crawler, pages) = crawl([None, None]);
    run_for(&mut crawler, Duration::from_millis(300));
    assert_eq!(sockets(&crawler), 2, "both are tried");
    crawler.stopper().stop();
    finish(&mut crawler);
    assert_eq!(sockets(&crawler), 0);
    assert!(crawler.core.network.races().is_empty());
    assert!(pages.borrow().is_empty(), "it goes back to its lane");
    assert_eq!(crawler.take_pending().count(), 1);
}
