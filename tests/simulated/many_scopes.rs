//! Very many concurrent scopes: none starves, each keeps its pace, and finished ones need no memory.

use std::time::Duration;

use argiope::base::time::Instant;
use argiope::frontier::request::Request;
use serde_json::{Map, Value, json};

use super::crawl::Plan;
use super::policy::{page_of, pages, turns};
use super::web::{PoliteWeb, Step, address};

const FREE: &str = "free.test";

fn web() -> PoliteWeb {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(10);
    web
}

fn plan() -> Plan {
    Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("ROBOTSTXT_OBEY", false)
}

fn urls(name: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |page| format!("http://{name}/{page}"))
}

fn at(second: f64) -> Instant {
    Instant::START + Duration::from_secs_f64(second)
}

/// Requests at a host between two seconds.
fn between(web: &PoliteWeb, host: &str, from: f64, to: f64) -> usize {
    let visits = web.visits(host);
    visits
        .filter(|a| (at(from)..at(to)).contains(&a.at))
        .count()
}

/// How many pages of the free host come in 90 s, and how many of the others, of which there are
/// so many.
fn beside(slow: usize) -> (usize, usize) {
    let mut web = web();
    let mut own = Map::new();
    own.insert(FREE.to_owned(), json!({"concurrency": 4}));
    web.site(FREE, address(1))
        .mood(pages(Duration::from_millis(200)));
    let mut plan = plan().set("CONCURRENT_REQUESTS", 16);
    for number in 0..slow {
        let name = format!("slow{number}.test");
        own.insert(name.clone(), json!({"delay": 5}));
        web.site(&name, address(2 + number as u16))
            .mood(pages(Duration::from_millis(100)));
        plan.seeds.extend(urls(&name, 20));
    }
    let mut plan = plan.set("THROTTLING_SCOPES", Value::Object(own));
    plan.seeds.extend(urls(FREE, 2500));
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(91));
    run.check_manners();
    let web = web.borrow();
    let of = |name: &str| between(&web, name, 0.0, 90.0);
    let others = (0..slow).map(|number| of(&format!("slow{number}.test")));
    (of(FREE), others.sum())
}

#[test]
fn f08_fifty_slow_hosts_leave_a_free_one_its_rate_and_keep_their_own() {
    let (solo, _) = beside(0);
    let (free, slow) = beside(50);
    assert!(free * 100 >= solo * 95, "{free} of {solo}");
    // Ten a second.
    assert!(slow >= 891, "{slow} of 900");
}

/// So many hosts that wait, each for itself, and one that is paced at 200 a second.
fn check_crowd(crowd: usize, waits: Step, delay: f64) {
    let mut web = web();
    web.site(FREE, address(1))
        .mood(pages(Duration::from_millis(20)));
    let own = json!({ FREE: {"delay": 0.005, "concurrency": 16} });
    let mut plan = plan()
        .set("DOWNLOAD_DELAY", delay)
        .set("THROTTLING_SCOPES", own);
    plan.seeds.extend(urls(FREE, 4000));
    for number in 0..crowd {
        let name = format!("slow{number}.test");
        let page = page_of("/").after_ms(50);
        web.site(&name, address(1))
            .mood(turns(1, waits.clone(), page));
        plan.seeds.extend(urls(&name, 2));
    }
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(16));
    run.check_manners();
    let web = web.borrow();
    let free = between(&web, FREE, 5.0, 15.0);
    assert!(free >= 1960, "{free} of 2000");
    let slow = web.arrivals.len() - web.hosts[FREE].visits.len();
    assert_eq!(slow, crowd, "each was asked once");
}

#[test]
fn f08_ten_thousand_hosts_at_a_minute_each_leave_a_paced_one_its_rate() {
    check_crowd(10_000, page_of("/").after_ms(50), 60.0);
}

#[test]
fn f08_thousands_of_hosts_that_are_held_leave_a_paced_one_its_rate() {
    let waits = Step::status(429).after_ms(50).with("Retry-After: 120");
    check_crowd(3000, waits, 0.0);
}

#[test]
fn f105_without_throttling_a_thousand_small_sites_are_fetched_at_once() {
    let mut web = web();
    let mut plan = plan().set("CONCURRENT_REQUESTS_PER_DOMAIN", 8);
    for number in 0..1000 {
        let name = format!("host{number}.test");
        web.site(&name, address(1))
            .mood(pages(Duration::from_millis(20)));
        plan.seeds.extend(urls(&name, 3));
    }
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    assert_eq!(web.arrivals.len(), 3000);
    // A handshake, and a page of all.
    let last = web.arrivals.last().expect("there are some").at;
    assert!(last <= at(0.1), "{last:?}");
}

#[test]
fn f107_each_of_a_hundred_hosts_keeps_its_rate_and_nothing_is_lost() {
    let mut web = web();
    let mut own = Map::new();
    let mut plan = plan().set("DOWNLOAD_DELAY", 0.2);
    let rates = [1, 2, 4, 8];
    for number in 0..100 {
        let name = format!("host{number}.test");
        let rate = rates[number % 4];
        // The rate is from send to send, however long a page takes.
        let entry = json!({"delay": 1.0 / f64::from(rate), "concurrency": 8});
        own.insert(name.clone(), entry);
        web.site(&name, address(1 + number as u16))
            .mood(pages(Duration::from_millis(500)));
        plan.seeds.extend(urls(&name, 10 * rate as usize + 1));
    }
    web.site("unlisted.test", address(200))
        .mood(pages(Duration::from_millis(20)));
    plan.seeds.extend(urls("unlisted.test", 51));
    let count = plan.seeds.len();
    let plan = plan.set("THROTTLING_SCOPES", Value::Object(own));
    let web = web.shared();
    let run = plan.run(&web);
    let web = web.borrow();
    let took = |name: &str| {
        let moments = web.moments(name);
        let last = moments[moments.len() - 1];
        last.saturating_since(moments[0]).as_secs_f64()
    };
    for number in 0..100 {
        let took = took(&format!("host{number}.test"));
        assert!((9.999..10.02).contains(&took), "host {number}: {took} s");
    }
    // F110: a scope that is not listed has the default.
    let unlisted = took("unlisted.test");
    assert!((9.999..10.02).contains(&unlisted), "{unlisted} s");
    // F108: early requests wait, and none is dropped.
    assert_eq!(run.lines().len(), count);
}

#[test]
fn f76_finished_hosts_leave_no_state() {
    let mut web = web();
    let mut plan = plan()
        .set("AUTOTHROTTLE_ENABLED", true)
        .set("AUTOTHROTTLE_START_DELAY", 1)
        .set("THROTTLING_SCOPES", json!({"host0.test": {"delay": 1}}));
    const WAVES: usize = 30;
    const WAVE: usize = 100;
    for number in 0..WAVES * WAVE {
        let mood = pages(Duration::from_millis(20));
        web.site(&format!("host{number}.test"), address(1))
            .mood(mood);
    }
    // One that lasts, so that the crawl does.
    plan.seeds.extend(urls("host0.test", 400));
    let web = web.shared();
    let mut run = plan.begin(&web);
    let mut most = 0;
    for wave in 1..WAVES {
        for number in wave * WAVE..(wave + 1) * WAVE {
            for url in urls(&format!("host{number}.test"), 2) {
                run.crawler.submit(Request::get(url)).expect("it is a URL");
            }
        }
        run.until(Duration::from_secs(10 * wave as u64));
        // A scope that is quick is remembered for a minute: six waves.
        most = most.max(run.crawler.progress().scopes);
    }
    run.finish();
    run.check_manners();
    assert!(most <= 7 * WAVE, "{most} scopes of {WAVES} waves of {WAVE}");
}
