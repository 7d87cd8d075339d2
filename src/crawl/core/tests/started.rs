//! What is recorded of requests on their way: those that must not be made twice as started when they are about
//! to depart, not before; others as departed, soon after.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{config, run_for};
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, FinishReason, Parts, Turn};
use crate::fetch::resolver::ResolverSettings;
use crate::frontier::request::Request;
use crate::io::IoSettings;
use crate::io::sim::web::{Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::NullSink;

const HOSTS: u64 = 60;
const IN_FLIGHT: usize = 3;

/// A crawl with a state, of these requests.
fn crawl(web: &Web, config: Config, requests: impl Iterator<Item = Request>) -> Crawler<Sim> {
    let state = State::new(Path::new("out"), "{}".to_owned(), [3; 16]).expect("it is short");
    let faults = Faults {
        disk_latency_max: Duration::from_millis(5),
        ..Faults::default()
    };
    let mut io = Sim::with(1, IoSettings::default(), faults, web.world());
    let mut files = BTreeMap::new();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let resolver = ResolverSettings {
        servers: vec![Web::name_server()],
        ..ResolverSettings::default()
    };
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(io, config, resolver, parts).expect("a crawler");
    for request in requests {
        crawler.submit(request).expect("it is a URL");
    }
    crawler
}

/// What a crawl that is killed now leaves.
fn killed(crawler: &Crawler<Sim>) -> State {
    State::load_from(Path::new("out"), crawler.io().files()).expect("it can be read")
}

/// Runs a crawl of one POST at each host for so many turns, or to its end; returns why it ended, the hosts
/// that were asked, and the state.
fn run(turns: usize) -> (Option<FinishReason>, Vec<String>, State) {
    let web = Web::new(|_| Reply::text("done").after(Duration::from_millis(200)));
    let mut config = config(1);
    config.throttle.concurrent_requests = IN_FLIGHT;
    config.state_sync = Duration::from_millis(100);
    let orders = (0..HOSTS).map(|host| {
        let mut order = Request::get(format!("http://h{host}.test/order"));
        order.method = "POST".to_owned();
        order
    });
    let mut crawler = crawl(&web, config, orders);
    let mut reason = None;
    for _ in 0..turns {
        if let Turn::Over(over) = crawler.turn(None) {
            reason = Some(over);
            break;
        }
    }
    let asked = web.asked().into_iter().map(|asked| asked.host);
    (reason, asked.collect(), killed(&crawler))
}

#[test]
fn no_more_requests_are_started_than_may_be_in_flight() {
    let (reason, asked, _) = run(1_000_000);
    assert_eq!(reason, Some(FinishReason::Finished));
    let hosts: BTreeSet<&String> = asked.iter().collect();
    assert_eq!((hosts.len() as u64, asked.len() as u64), (HOSTS, HOSTS));
    let mut most = 0;
    for turns in (1..400).step_by(3) {
        let (reason, asked, state) = run(turns);
        assert_eq!(reason, None, "turn {turns}");
        let Some(restored) = state.restored else {
            continue;
        };
        let hosts: BTreeSet<String> = asked.into_iter().collect();
        let started = restored.started;
        let unasked = restored.admitted.filter(|entry| {
            let is_started = started.contains(&entry.job.id);
            is_started && !hosts.contains(entry.job.url.host_str())
        });
        let unasked = unasked.count();
        assert!(unasked <= IN_FLIGHT, "turn {turns}: {unasked} are started");
        most = most.max(unasked);
    }
    assert!(most > 0, "some are started and have not departed");
}

#[test]
fn a_departure_is_recorded_though_nothing_happens_after_it() {
    for seed in 0..20 {
        let web = Web::new(|_| Reply::text("done").after(Duration::from_secs(60)));
        let mut config = config(seed);
        config.state_sync = Duration::from_secs(3600);
        let pages = (0..HOSTS).map(|host| Request::get(format!("http://h{host}.test/")));
        let mut crawler = crawl(&web, config, pages);
        // Less than to the next tick.
        run_for(&mut crawler, Duration::from_millis(800));
        assert_eq!(web.asked().len() as u64, HOSTS, "seed {seed}");
        let restored = killed(&crawler).restored.expect("it has requests");
        assert_eq!(restored.requested.len() as u64, HOSTS, "seed {seed}");
    }
}
