//! Requests that end while the sink writes the rest: each has one final line, or is pending.

use std::time::Duration;

use serde_json::Value;

use crate::crawl::config::Config;
use crate::crawl::core::tests::full_disks::{crawl_of, lines, run};
use crate::crawl::core::tests::trial::{get, turn};
use crate::crawl::finish::FinishReason;
use crate::crawl::{Crawler, Turn};
use crate::io::sim::{Origins, Sim};

/// A crawl of one page, and the page's number. Its time limit is 5 s, and its disk is full from 2.5 s to
/// 60 s, when the remaining lines are written: within the grace.
fn crawl(origins: Origins) -> (Crawler<Sim>, u64) {
    let config = Config::default().with("CLOSESPIDER_TIMEOUT", 5);
    let config = config.and_then(|config| config.with("STOP_GRACE", 90));
    let mut crawler = crawl_of(origins, config.expect("a setting"));
    let id = crawler.submit(get(1, 0)).expect("it is a URL");
    (crawler, id)
}

fn turn_until(crawler: &mut Crawler<Sim>, seconds: u64) {
    while crawler.elapsed() < Duration::from_secs(seconds) {
        let left = Duration::from_secs(seconds).saturating_sub(crawler.elapsed());
        assert_eq!(turn(crawler, Some(left)), Turn::GoesOn);
    }
}

/// Runs the crawl to its time limit. Checks that this request has one final line, or is pending once.
fn check_ends_once(crawler: &mut Crawler<Sim>, id: u64) {
    let reason = run(crawler);
    assert_eq!(reason, FinishReason::Timeout, "{:?}", crawler.write_error());
    let all = lines(crawler).into_iter();
    let ends: Vec<Value> = all
        .filter(|line| line["root"] == id && line["final"] == true)
        .collect();
    let pending = crawler.take_pending().filter(|left| left.id == Some(id));
    let pending = pending.count();
    assert_eq!(
        ends.len() + pending,
        1,
        "{ends:?} {pending} {:?}",
        lines(crawler)
    );
}

#[test]
fn a_duplicate_that_is_submitted_while_the_rest_is_written_has_an_end() {
    let mut origins = Origins::default();
    origins.page("10.0.0.1:80".parse().expect("an address"), "/0", "a page");
    let (mut crawler, _) = crawl(origins);
    let handle = crawler.handle();
    turn_until(&mut crawler, 4);
    crawler.submit(get(1, 1)).expect("it is a URL");
    turn_until(&mut crawler, 20);
    let id = crawler.submit(get(1, 0)).expect("the crawl is not over");
    drop(handle);
    check_ends_once(&mut crawler, id);
}

#[test]
fn a_delayed_redirect_that_ends_while_the_rest_is_written_has_an_end() {
    let mut origins = Origins::default();
    let reply = b"HTTP/1.1 302 Found\r\nlocation: http://10.0.0.2/1\r\nretry-after: 15\r\ncontent-length: 0\r\n\r\n";
    origins.reply(
        "10.0.0.1:80".parse().expect("an address"),
        "/0",
        Duration::ZERO,
        reply,
    );
    let (mut crawler, id) = crawl(origins);
    let handle = crawler.handle();
    turn_until(&mut crawler, 4);
    assert_eq!(crawler.core.work.len(), 1, "the redirect waits");
    handle.cancel_scope("10.0.0.2").expect("it goes on");
    crawler.submit(get(1, 7)).expect("it is a URL");
    turn_until(&mut crawler, 30);
    assert!(crawler.core.over().is_none());
    drop(handle);
    check_ends_once(&mut crawler, id);
}
