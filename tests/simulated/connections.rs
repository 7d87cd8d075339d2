//! Kept connections, and servers that end them.

use std::time::Duration;

use super::crawl::Plan;
use super::web::{PoliteWeb, Reply, Step, address};

/// Crawls three pages a second apart over a server that gives idle connections up after `patience`.
fn crawl(patience: Duration, round_trip: Duration) -> (Vec<String>, Vec<bool>) {
    let mut web = PoliteWeb::default();
    web.round_trip = round_trip;
    web.promise.gap_min = Duration::from_secs(1);
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 1)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("ROBOTSTXT_OBEY", false);
    web.promise.obeys_robots = false;
    plan.seeds = web.pages("one.test", 1, 3, Duration::ZERO);
    web.site("one.test", address(1)).patience = Some(patience);
    let web = web.shared();
    let run = plan.run(&web);
    run.check_lines();
    let lines = run.lines();
    (
        lines.iter().map(super::crawl::Line::end).collect(),
        lines.iter().map(|line| line.0["reused"] == true).collect(),
    )
}

#[test]
fn a_request_that_crosses_the_end_of_a_kept_connection_is_sent_once_more_on_a_new_one() {
    // The server hangs up 950 ms after the first request; the next arrives 50 ms later. By then
    // the third stands before its second try.
    let (ends, reused) = crawl(Duration::from_millis(930), Duration::from_millis(200));
    assert_eq!(ends, ["200", "reset.idle_closed", "200", "200"]);
    assert_eq!(reused, [false, true, false, false]);
}

#[test]
fn a_kept_connection_is_reused() {
    let (ends, reused) = crawl(Duration::from_secs(5), Duration::from_millis(20));
    assert_eq!(ends, ["200"; 3]);
    assert_eq!(reused, [false, true, true]);
}

#[test]
fn connections_closed_early_by_the_server_are_replaced() {
    for patience in [1, 300, 800] {
        let patience = Duration::from_millis(patience);
        let (ends, reused) = crawl(patience, Duration::from_millis(20));
        assert_eq!(ends, ["200"; 3], "{patience:?}");
        assert_eq!(reused, [false; 3], "{patience:?}");
    }
}

#[test]
fn a_page_that_always_resets_is_retried_up_to_the_limit() {
    let mut web = PoliteWeb::default();
    let site = web.site("one.test", address(1));
    site.page("/first", &[])
        .path("/resets", [Step::new(Reply::Reset)])
        .page("/last", &[]);
    let mut plan = Plan::new(&["http://one.test/first", "http://one.test/resets"]);
    plan.seeds.push("http://one.test/last".to_owned());
    let web = web.shared();
    let run = plan.run(&web);
    run.check_lines();
    assert_eq!(
        run.ends("http://one.test/resets"),
        ["reset.idle_closed", "reset.reset", "reset.reset"]
    );
}

/// So many hosts with a page that is answered so, and a crawl of all that tries each once.
fn hosts_of_one_page(count: u16, reply: &Reply) -> (PoliteWeb, Plan) {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("RETRY_TIMES", 0)
        .set("ROBOTSTXT_OBEY", false);
    for number in 1..=count {
        let name = format!("host{number}.test");
        let site = web.site(&name, address(number));
        site.path("/", [Step::new(reply.clone())]);
        plan.seeds.push(format!("http://{name}/"));
    }
    (web, plan)
}

#[test]
fn a_server_that_sends_a_byte_per_second_times_out_and_delays_no_other() {
    let (web, mut plan) = hosts_of_one_page(300, &Reply::Page(Vec::new()));
    plan.faults.piece_bytes_max = 1;
    plan.faults.piece_gap_max = Duration::from_secs(2);
    let web = web.shared();
    let run = plan.run(&web);
    let ends: Vec<String> = run.lines().iter().map(super::crawl::Line::end).collect();
    assert_eq!(ends.len(), 300);
    let in_time = |end: &String| matches!(end.as_str(), "timeout.rate" | "timeout.first_byte");
    assert!(ends.iter().all(in_time), "{ends:?}");
    // All at once: each waits for its own server alone.
    let took = run.crawler.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn many_simultaneous_timeouts_are_spread_over_turns() {
    let (web, plan) = hosts_of_one_page(600, &Reply::Silence);
    let web = web.shared();
    let mut run = plan.begin(&web);
    let (mut ended, mut most) = (0, 0);
    while run.turn().is_none() {
        let now = run.crawler.stats().attempts;
        most = most.max(now - ended);
        ended = now;
    }
    assert_eq!(ended, 600);
    assert!(most <= 64, "{most} were given up in one turn");
}
