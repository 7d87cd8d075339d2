//! Shortages of our own machine: requests wait, and none is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use super::crawl::{Plan, Run};
use super::web::{PoliteWeb, Reply, Step, address};

/// A web of hosts with so many pages each, and a plan to fetch them all as fast as may be, on a new
/// connection each.
fn crawl(hosts: &[usize], change: impl Fn(&mut Plan)) -> Run {
    let mut web = PoliteWeb::default();
    web.round_trip = Duration::from_millis(20);
    web.promise.obeys_robots = false;
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 64)
        .set("ROBOTSTXT_OBEY", false)
        .set("KEEPALIVE_MAX", 0);
    for (number, pages) in hosts.iter().enumerate() {
        let name = format!("host{number}.test");
        let site = web.site(&name, address(1 + number as u16));
        for page in 0..*pages {
            let path = format!("/{page}");
            let think = Duration::from_millis(100);
            site.path(&path, [Step::new(Reply::Page(Vec::new())).after(think)]);
            plan.seeds.push(format!("http://{name}{path}"));
        }
    }
    change(&mut plan);
    let web = web.shared();
    let run = plan.run(&web);
    run.check_lines();
    let lines = run.lines();
    assert_eq!(lines.len(), hosts.iter().sum::<usize>());
    let ends: BTreeMap<String, usize> = lines.iter().fold(BTreeMap::new(), |mut ends, line| {
        *ends.entry(line.end()).or_default() += 1;
        ends
    });
    assert_eq!(ends.keys().collect::<Vec<_>>(), ["200"], "{ends:?}");
    run
}

/// When the last page of a host left, in seconds of the crawl.
fn last_sent(run: &Run, host: &str) -> f64 {
    let web = run.web.borrow();
    let arrivals = web.arrivals.iter().filter(|arrival| arrival.host == host);
    let last = arrivals.map(|arrival| arrival.at.as_nanos()).max();
    last.expect("it was asked") as f64 / 1e9
}

#[test]
fn without_ports_requests_wait_and_retry_rarely() {
    let run = crawl(&[200], |plan| plan.faults.ports_max = 20);
    // Twenty a minute: each port rests for a minute after its connection.
    let took = run.crawler.elapsed().as_secs();
    assert!((535..=640).contains(&took), "{took} s");
    let tries = run.crawler.stats().connections;
    assert!(tries < 300 + 6 * took, "{tries} connections in {took} s");
    assert!(run.turns < 50 * took, "{} turns in {took} s", run.turns);
}

#[test]
fn a_destination_without_ports_occupies_no_slots() {
    // The first has need of six times its ports; the others have just enough.
    let mut hosts = [20; 51];
    hosts[0] = 120;
    let run = crawl(&hosts, |plan| {
        plan.faults.ports_max = 20;
        let scopes = r#"{"host0.test": {"concurrency": 64}, "default": {"concurrency": 1}}"#;
        plan.settings.push(("THROTTLING_SCOPES", scopes.into()));
    });
    assert!(last_sent(&run, "host0.test") > 295.0);
    for other in 1..51 {
        let last = last_sent(&run, &format!("host{other}.test"));
        assert!(last < 4.0, "{last} s");
    }
}

/// How much of a crawl's time its thread was busy.
fn busy(run: &Run) -> f64 {
    let lag = &run.crawler.stats().lag;
    let mean = lag.mean().expect("there were turns").as_secs_f64();
    mean * lag.count() as f64 / run.crawler.elapsed().as_secs_f64()
}

#[test]
fn a_slow_search_for_ports_takes_a_twentieth_of_the_time() {
    let run = crawl(&[1500, 20], |plan| {
        plan.faults.ports_max = 2000;
        plan.faults.port_search = Duration::from_millis(4);
        let scopes = r#"{"host1.test": {"concurrency": 1}}"#;
        plan.settings.push(("THROTTLING_SCOPES", scopes.into()));
    });
    // The first thousand take two seconds; to look for the ports of the others takes one and more.
    let busy = busy(&run);
    assert!(busy < 0.07, "{:.0} % of the time", busy * 100.0);
    let took = run.crawler.elapsed().as_secs();
    assert!((20..=60).contains(&took), "{took} s");
    assert_eq!(run.crawler.stats().connections, 1520, "each is begun once");
    assert!(run.turns < 400 * took, "{} turns in {took} s", run.turns);
    let other = last_sent(&run, "host1.test");
    assert!(other < 4.0, "the other place has ports: {other} s");
}

#[test]
fn without_sockets_fewer_requests_are_in_flight() {
    let hosts = [5; 100];
    let run = crawl(&hosts, |plan| plan.faults.sockets_max = 20);
    assert!(run.web.borrow().all.peak <= 20);
    let took = run.crawler.elapsed().as_secs_f64();
    // With as many at once as there are sockets it takes three seconds.
    assert!(took < 12.0, "{took} s");
    let tries = run.crawler.stats().connections;
    assert!(tries < 500 + 200, "{tries} connections were tried");
}
