//! Hosts that do not answer: held, asked again now and then, given up.

use std::time::Duration;

use argiope::base::time::Instant;
use argiope::frontier::request::Request;
use argiope::io::sim::Answer;

use super::crawl::Plan;
use super::web::{PoliteWeb, address};

const MINUTE: Duration = Duration::from_secs(60);

/// A web of one host that refuses every connection, and a crawl of so many of its pages.
fn refusing(pages: usize) -> (PoliteWeb, Plan) {
    let mut web = PoliteWeb::default();
    web.site("dead.test", address(1));
    web.deaf.insert(address(1), Answer::Refuse);
    let mut plan = Plan::new(&[]).set("RETRY_TIMES", 0);
    plan.seeds = (0..pages)
        .map(|page| format!("http://dead.test/{page}"))
        .collect();
    (web, plan)
}

fn calls(web: &PoliteWeb) -> Vec<Instant> {
    web.calls.iter().map(|(at, _)| *at).collect()
}

#[test]
fn a_refusing_host_is_held_longer_and_longer_after_each_five_failures_and_then_given_up() {
    let (web, plan) = refusing(40);
    let web = web.shared();
    let run = plan.set("ROBOTSTXT_OBEY", false).run(&web);
    run.check_lines();
    let calls = calls(&web.borrow());
    assert_eq!(calls.len(), 20);
    for (last, minutes) in [(4, 15), (9, 30), (14, 60)] {
        let held = calls[last + 1].saturating_since(calls[last]);
        assert!(held >= minutes * MINUTE, "{minutes} minutes, not {held:?}");
        assert!(
            held < (minutes + 1) * MINUTE,
            "{minutes} minutes, not {held:?}"
        );
    }
    let lines = run.lines();
    let ended = |code: &str| lines.iter().filter(|line| line.end() == code).count();
    assert_eq!(ended("connect.refused"), 20);
    assert_eq!(ended("host_down.gave_up"), 20);
}

#[test]
fn calls_to_a_refusing_host_keep_its_gap() {
    let (web, plan) = refusing(5);
    let web = web.shared();
    plan.set("ROBOTSTXT_OBEY", false)
        .set("DOWNLOAD_DELAY", 2)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .run(&web);
    let calls = calls(&web.borrow());
    assert_eq!(calls.len(), 5);
    for pair in calls.windows(2) {
        assert!(pair[1].saturating_since(pair[0]) >= Duration::from_secs(2));
    }
}

#[test]
fn the_robots_txt_of_a_refusing_host_is_asked_for_as_often_as_a_page_is_tried() {
    let (web, plan) = refusing(200);
    let web = web.shared();
    let run = plan.set("RETRY_TIMES", 2).run(&web);
    run.check_lines();
    assert_eq!(calls(&web.borrow()).len(), 3);
    let lines = run.lines();
    let pages = lines.iter().filter(|line| line.is_page());
    let unreachable = pages.filter(|line| line.end() == "robots.unreachable");
    assert_eq!(unreachable.count(), 200);
}

#[test]
fn a_refusing_host_whose_urls_keep_coming_for_two_days_is_called_twenty_times() {
    let (web, plan) = refusing(1);
    let web = web.shared();
    let plan = plan.set("RETRY_TIMES", 2);
    let mut run = plan.begin(&web);
    let handle = run.crawler.handle();
    for quarter in 1..192 {
        run.until(quarter * 15 * MINUTE);
        let url = format!("http://dead.test/later/{quarter}");
        run.crawler
            .submit(Request::get(url))
            .expect("a sound request");
    }
    drop(handle);
    assert_eq!(run.finish(), "finished");
    run.check_lines();
    run.check_manners();
    assert_eq!(calls(&web.borrow()).len(), 20);
    let lines = run.lines();
    let ended = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final());
    assert_eq!(ended.count(), 192);
}
