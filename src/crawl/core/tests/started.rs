//! What is recorded of requests on their way: those that must not be made twice as started when they are about
//! to depart, not before; others as departed, soon after.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
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
    let mut crawler = crawl_of(state, BTreeMap::new(), web, config);
    for request in requests {
        crawler.submit(request).expect("it is a URL");
    }
    crawler
}

/// A crawl that begins or continues a state, in these files.
fn crawl_of(
    state: State,
    mut files: BTreeMap<PathBuf, Vec<u8>>,
    web: &Web,
    config: Config,
) -> Crawler<Sim> {
    let faults = Faults {
        disk_latency_max: Duration::from_millis(5),
        ..Faults::default()
    };
    let mut io = Sim::with(1, IoSettings::default(), faults, web.world());
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let resolver = ResolverSettings {
        servers: vec![Web::name_server()],
        ..ResolverSettings::default()
    };
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    Crawler::on(io, config, resolver, parts).expect("a crawler")
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

#[test]
fn what_was_started_or_cancelled_is_not_pending_when_a_resumed_crawl_stops_at_once() {
    let web = Web::new(|_| Reply::text("done").after(Duration::from_millis(200)));
    let config = || {
        let mut config = config(1);
        config.throttle.concurrent_requests = IN_FLIGHT;
        config.state_sync = Duration::from_millis(100);
        config
    };
    let order = |host| Request {
        method: "POST".to_owned(),
        ..Request::get(format!("http://h{host}.test/order"))
    };
    let orders = (0..HOSTS).map(order);
    let mut crawler = crawl(&web, config(), orders);
    let mut steps = 0;
    let started = loop {
        crawler.turn(None);
        steps += 1;
        assert!(steps < 10_000, "some are started late");
        let restored = killed(&crawler).restored.expect("it has requests");
        let before = |number: &u64| {
            let numbers = restored.admitted.numbers();
            numbers.filter(|other| other < number).count()
        };
        // Others are queued before it.
        match restored.started.iter().find(|number| before(number) > 0) {
            Some(_) if steps > 20 => break restored.started,
            _ => {}
        }
    };
    let state = killed(&crawler);
    let restored = state.restored.as_ref().expect("it has requests");
    let numbers: Vec<u64> = restored.admitted.numbers().collect();
    let last = *numbers.last().expect("some are left");
    let of_scope = restored.admitted.iter().find(|entry| {
        let number = entry.job.id;
        number != last && number > last / 2 && !started.contains(&number)
    });
    let of_scope = of_scope.expect("others are left");
    let scope = of_scope.job.url.host_str().to_owned();
    let files = crawler.io().files().clone();
    let mut crawler = crawl_of(state, files, &web, config());
    let handle = crawler.handle();
    handle.cancel(last).expect("the crawl goes on");
    handle.cancel_scope(&scope).expect("the crawl goes on");
    crawler.stopper().stop();
    while crawler.turn(None) == Turn::GoesOn {}
    let pending: Vec<u64> = crawler.take_pending().filter_map(|left| left.id).collect();
    let expected = numbers.iter().copied();
    let cancelled = [last, of_scope.job.id];
    let is_left = |number: &u64| !started.contains(number) && !cancelled.contains(number);
    let expected = expected.filter(is_left);
    assert_eq!(pending, expected.collect::<Vec<u64>>());
    let left = killed(&crawler).restored.expect("some are left");
    assert_eq!(left.admitted.numbers().collect::<Vec<u64>>(), pending);
}
