//! Pace: caps, gaps, addresses, and a crawl that only waits.

use std::time::Duration;

use super::crawl::Plan;
use super::web::{PoliteWeb, Reply, Step, address};

#[test]
fn concurrency_per_host_is_used_and_never_exceeded() {
    for cap in [1, 2, 8] {
        let mut web = PoliteWeb::default();
        web.promise.per_host = cap;
        let mut plan = Plan::new(&[])
            .set("DOWNLOAD_DELAY", 0)
            .set("CONCURRENT_REQUESTS_PER_DOMAIN", cap);
        plan.seeds = web.pages("one.test", 1, 40, Duration::from_millis(200));
        let web = web.shared();
        plan.run(&web);
        assert_eq!(web.borrow().hosts["one.test"].peak, cap);
    }
}

#[test]
fn total_concurrency_is_used_and_never_exceeded() {
    let mut web = PoliteWeb::default();
    web.promise.in_all = 16;
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8)
        .set("CONCURRENT_REQUESTS", 16);
    for number in 1..=20 {
        let name = format!("host{number}.test");
        let pages = web.pages(&name, number, 10, Duration::from_millis(100));
        plan.seeds.extend(pages);
    }
    let web = web.shared();
    plan.run(&web);
    assert_eq!(web.borrow().all.peak, 16);
}

#[test]
fn ten_names_on_one_address_share_its_slots() {
    for asks_names in [false, true] {
        let mut web = PoliteWeb::default();
        web.promise.per_address = 2;
        let mut plan = Plan::new(&[])
            .set("DOWNLOAD_DELAY", 0)
            .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8)
            .set("CONCURRENT_REQUESTS_PER_IP", 2);
        plan.asks_names = asks_names;
        for number in 0..10 {
            let name = format!("name{number}.test");
            let pages = web.pages(&name, 9, 5, Duration::from_millis(100));
            plan.seeds.extend(pages);
        }
        let web = web.shared();
        plan.run(&web);
        let web = web.borrow();
        assert_eq!(web.addresses[&address(9)].peak, 2);
        assert_eq!(web.questions > 0, asks_names);
    }
}

#[test]
fn requests_depart_when_due_after_the_set_up_time_is_learned() {
    let mut web = PoliteWeb::default();
    web.round_trip = Duration::from_millis(80);
    web.promise.gap_min = Duration::from_secs(1);
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 1)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false);
    // Every page ends its connection: each request needs a handshake of its own.
    let site = web.site("one.test", address(1));
    for page in 0..50 {
        let path = format!("/{page}");
        site.path(&path, [Step::new(Reply::UntilEnd(Vec::new()))]);
        plan.seeds.push(format!("http://one.test{path}"));
    }
    let web = web.shared();
    plan.run(&web);
    let moments = web.borrow().moments("one.test");
    assert_eq!(moments.len(), 51);
    for pair in moments.windows(2).skip(12) {
        let gap = pair[1].saturating_since(pair[0]);
        assert!(gap < Duration::from_millis(1002), "a gap of {gap:?}");
    }
}

#[test]
fn slow_send_calls_do_not_shorten_gaps() {
    // Of one host a delay is long beside a send, of many it is short beside a turn full of them.
    for (hosts, delay) in [(1, 100), (40, 5)] {
        let delay = Duration::from_millis(delay);
        let mut web = PoliteWeb::default();
        web.round_trip = Duration::from_millis(1);
        web.promise.gap_min = delay;
        let mut plan = Plan::new(&[])
            .set("DOWNLOAD_DELAY", delay.as_secs_f64())
            .set("RANDOMIZE_DOWNLOAD_DELAY", false)
            .set("CONCURRENT_REQUESTS_PER_DOMAIN", 4);
        plan.faults.send_max = Duration::from_millis(2);
        for number in 1..=hosts {
            let name = format!("host{number}.test");
            let pages = web.pages(&name, number, 20, Duration::from_millis(10));
            plan.seeds.extend(pages);
        }
        // Without a fault.
        plan.run(&web.shared());
    }
}

#[test]
fn due_requests_depart_between_two_events() {
    let delay = Duration::from_millis(200);
    let mut web = PoliteWeb::default();
    web.round_trip = Duration::from_millis(1);
    web.promise.gap_min = delay / 2;
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", delay.as_secs_f64())
        .set("ROBOTSTXT_OBEY", false);
    web.promise.obeys_robots = false;
    plan.faults.chunk_takes = Duration::from_millis(1);
    let think = Duration::from_millis(10);
    for number in 1..=120 {
        plan.seeds
            .extend(web.pages(&format!("host{number}.test"), number, 30, think));
    }
    let web = web.shared();
    let run = plan.run(&web);
    let lines = run.lines();
    let mut late: Vec<f64> = lines
        .iter()
        .filter_map(|line| line.0["lateness"].as_f64())
        .collect();
    late.sort_by(f64::total_cmp);
    // As long as the sixteen pieces of news take that lie between two looks at what is due, mostly: not
    // as long as a turn, and the one before it.
    let most = late[late.len() * 99 / 100];
    assert!(most < 0.008, "one in a hundred is {most} s late");
}

#[test]
fn a_waiting_crawl_takes_about_one_turn_per_second() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[]).set("DOWNLOAD_DELAY", "1h");
    for number in 1..=50 {
        let name = format!("host{number}.test");
        let pages = web.pages(&name, number, 3, Duration::from_millis(100));
        plan.seeds.extend(pages);
    }
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(60));
    let before = run.turns;
    run.until(Duration::from_secs(60 + 600));
    let turns = run.turns - before;
    // A tick a second, for what is written and reported; none for a host.
    assert!(turns <= 602, "{turns} turns in ten minutes of waiting");
}

#[test]
fn f80_a_crawl_without_anything_to_do_does_not_wake() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[]).set("DOWNLOAD_DELAY", 0);
    plan.seeds = web.pages("one.test", 1, 3, Duration::from_millis(100));
    let mut run = plan.begin(&web.shared());
    // As long as there is a handle more may come.
    let _handle = run.crawler.handle();
    run.until(Duration::from_secs(60));
    assert_eq!(run.web.borrow().moments("one.test").len(), 4);
    let before = run.turns;
    run.until(Duration::from_secs(60 + 3600));
    // The one that was asked to be patient for an hour.
    assert_eq!(run.turns - before, 1);
}

#[test]
fn f80_due_requests_depart_within_two_milliseconds() {
    let mut web = PoliteWeb::default();
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 7.3)
        .set("ROBOTSTXT_OBEY", false)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false);
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(10);
    for number in 1..=50 {
        let name = format!("host{number}.test");
        let pages = web.pages(&name, number, 20, Duration::from_millis(100));
        plan.seeds.extend(pages);
    }
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    for number in 1..=50 {
        let moments = web.moments(&format!("host{number}.test"));
        assert_eq!(moments.len(), 20);
        for pair in moments.windows(2) {
            let gap = pair[1].saturating_since(pair[0]).as_secs_f64();
            assert!((7.299_99..7.302).contains(&gap), "{gap} s at {number}");
        }
    }
}
