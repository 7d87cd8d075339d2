//! Name servers that fail for some time: the crawl pauses, and no page is lost.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use argiope::testkit::dns;

use crate::run::{Crawl, Crawled, code};
use crate::server::{Server, page};

/// Hosts that are crawled, one page each, each under a domain of its own.
const HOSTS: usize = 200;
/// Names that are answered before the outage.
const ANSWERED_BEFORE: usize = 40;
/// Names that at least are asked for in the outage: from so many on it is recognized.
const FAILED_MIN: usize = 8;
/// How long the outage goes on after that.
const OUTAGE: Duration = Duration::from_secs(2);

/// A name server on loopback for which every name leads to 127.0.0.1. After some answers it has one
/// outage, in which it answers SERVFAIL. With `caches` it still answers for names that it answered before.
fn name_server(caches: bool) -> SocketAddr {
    let (mut answered, mut failed) = (BTreeSet::new(), BTreeSet::new());
    let mut ends_at = None;
    dns::serve(move |name| {
        let is_over = ends_at.is_some_and(|at| Instant::now() >= at);
        let is_known = answered.contains(name);
        let is_known = is_known && (caches || failed.is_empty());
        if !is_over && answered.len() >= ANSWERED_BEFORE && !is_known {
            failed.insert(name.to_owned());
            if failed.len() >= FAILED_MIN {
                ends_at.get_or_insert(Instant::now() + OUTAGE);
            }
            return dns::Answer::Failure;
        }
        answered.insert(name.to_owned());
        dns::Answer::Address(Ipv4Addr::LOCALHOST)
    })
}

/// Crawls all hosts through an outage of their name server.
fn crawl(caches: bool, settings: &[&str]) -> Crawled {
    let server = Server::new(|_| page("a page"));
    let seeds: Vec<String> = (0..HOSTS)
        .map(|number| format!("http://host{number}.test:{}/", server.port()))
        .collect();
    Crawl::of(&["--seeds", "-", "--no-warc", "--follow", "none"])
        .input(seeds.join("\n").as_bytes())
        .with(&["--dns", &name_server(caches).to_string()])
        .with(&["-s", "CONCURRENT_REQUESTS=16"])
        .with(settings)
        .run()
}

/// The errors of final lines.
fn lost(crawled: &Crawled) -> Vec<String> {
    let lines = crawled.lines();
    let is_final = lines.iter().filter(|line| line["final"] == true);
    let codes = is_final.map(|line| code(line).to_owned());
    codes.filter(|code| !code.is_empty()).collect()
}

#[test]
fn name_servers_that_fail_for_seconds_lose_no_page() {
    for caches in [false, true] {
        let crawled = crawl(caches, &[]);
        assert_eq!(lost(&crawled), [""; 0]);
        let lines = crawled.lines();
        let fetched = lines.iter().filter(|line| line["status"] == 200);
        assert_eq!(fetched.count(), HOSTS);
        let stats = crawled.stats();
        assert!(stats["outages"].as_u64() >= Some(1), "{caches}");
        assert!(stats["outage_seconds"].as_f64() >= Some(0.5), "{caches}");
        assert_eq!(stats["outage_open"], false);
    }
}

#[test]
fn without_the_breaker_name_servers_that_fail_for_seconds_lose_pages() {
    let crawled = crawl(false, &["-s", "OUTAGE_BREAKER=false"]);
    let lost = lost(&crawled);
    assert!(lost.len() >= FAILED_MIN, "{lost:?}");
    assert!(lost.iter().all(|code| code == "dns.servfail"), "{lost:?}");
    assert_eq!(crawled.stats()["outages"], 0);
}
