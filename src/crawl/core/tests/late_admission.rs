//! Crawls whose seen set answers late.

use std::net::SocketAddr;
use std::time::Duration;

use crate::crawl::Turn;
use crate::crawl::core::tests::trial::{crawl, get, turn};
use crate::crawl::finish::FinishReason;
use crate::frontier::request::Request;
use crate::io::sim::Origins;

const HOST: &str = "10.0.0.1:80";

/// An origin whose home page redirects to `/target`, and other pages.
fn origins() -> Origins {
    let at: SocketAddr = HOST.parse().expect("an address");
    let mut origins = Origins::default();
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /target\r\ncontent-length: 0\r\n\r\n";
    origins.reply(at, "/from", Duration::ZERO, redirect.as_bytes().to_vec());
    origins.page(at, "/target", "a page");
    origins
}

#[test]
fn a_redirect_is_final_if_and_only_if_its_target_is_not_followed() {
    let (mut followed, mut left_out) = (0, 0);
    for seed in 0..40 {
        let (mut crawler, handle, record) = crawl(origins(), seed, |config, _| {
            config.frontier.robots_obey = false;
            config.throttle.default.delay = Duration::ZERO;
        });
        crawler.delay_admission(seed);
        let paths = ["/from", "/target"];
        for path in &paths[..1 + seed as usize % 2] {
            let request = Request::get(format!("http://10.0.0.1{path}"));
            handle.submit(request).expect("the crawl goes on");
        }
        drop(handle);
        assert_eq!(crawler.run(), FinishReason::Finished);
        let pages = record.pages.borrow();
        let from = pages.iter().find(|page| page.url.ends_with("/from"));
        let from = from.expect("it was fetched");
        let hops = pages.iter().filter(|page| page.root == from.root).count();
        match from.is_final {
            true => left_out += 1,
            false => followed += 1,
        }
        assert_eq!(hops, if from.is_final { 1 } else { 2 }, "{seed}: {pages:?}");
        let fetched = pages.iter().filter(|page| page.url.ends_with("/target"));
        assert_eq!(fetched.filter(|page| page.status.is_some()).count(), 1);
        for root in 1..=1 + seed % 2 {
            assert!(record.end(root).is_some(), "{seed}: {root} has not ended");
        }
    }
    assert!(followed > 0 && left_out > 0, "{followed} {left_out}");
}

#[test]
fn what_is_cancelled_while_it_waits_for_its_answer_ends_as_cancelled() {
    let mut cancelled = 0;
    for seed in 0..20 {
        let (mut crawler, handle, record) = crawl(origins(), seed, |config, _| {
            config.frontier.robots_obey = false;
        });
        crawler.delay_admission(seed);
        let id = handle.submit(get(1, 1)).expect("the crawl goes on");
        turn(&mut crawler, None);
        let waits = crawler.core.work.has_offers();
        handle.cancel(id).expect("it goes on");
        drop(handle);
        assert_eq!(crawler.run(), FinishReason::Finished);
        let end = record.end(id).expect("it ended");
        if waits {
            assert_eq!(end, "cancelled.asked");
            cancelled += 1;
        }
    }
    assert!(cancelled > 0, "none waited");
}

#[test]
fn a_crawl_that_is_stopped_loses_no_offer() {
    for seed in 0..40 {
        let (mut crawler, handle, record) = crawl(origins(), seed, |config, _| {
            config.frontier.robots_obey = false;
        });
        crawler.delay_admission(seed);
        let from = Request::get("http://10.0.0.1/from");
        let urls = [1, 1, 2, 3, 3, 4, 5].map(|page| get(1, page));
        let urls = [from].into_iter().chain(urls);
        let ids = urls.map(|request| handle.submit(request).expect("the crawl goes on"));
        let ids: Vec<u64> = ids.collect();
        for _ in 0..seed % 7 {
            if let Turn::Over(reason) = turn(&mut crawler, None) {
                panic!("{seed}: a handle lives: {reason}");
            }
        }
        handle.stopper().stop_now();
        drop(handle);
        crawler.run();
        let pending: Vec<_> = crawler.take_pending().filter_map(|left| left.id).collect();
        for id in ids {
            let ends = usize::from(record.end(id).is_some());
            let left = pending.iter().filter(|left| **left == id).count();
            assert_eq!(ends + left, 1, "{seed}: {id}: {pending:?}");
        }
    }
}

#[test]
fn tallies_of_scopes_agree_with_the_lines_written_so_far() {
    let mut late = 0;
    for seed in 0..20 {
        let (mut crawler, handle, record) = crawl(origins(), seed, |config, _| {
            config.frontier.robots_obey = false;
        });
        crawler.delay_admission(seed);
        let request = Request::get("http://10.0.0.1/from");
        handle.submit(request).expect("the crawl goes on");
        drop(handle);
        while turn(&mut crawler, None) == Turn::GoesOn {
            let lines = record.pages.borrow().len() as u64;
            let tallies = crawler.core.output.stats().slowest_scopes(9);
            let sent: u64 = tallies.iter().map(|(_, tally)| tally.sent).sum();
            assert_eq!(sent, lines, "{seed}");
            late += u64::from(lines == 0 && crawler.elapsed() > Duration::from_secs(1));
        }
    }
    assert!(late > 0, "no line was late");
}
